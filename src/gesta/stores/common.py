"""Code that all stores share: checks of a batch before its commit, and the wait for new entries.

A record is everything in one store. A run is the list of entries (events) of one conversation of an agent. A batch is
the entries that one commit adds to a run. A row is an encoded entry: `row.seq` numbers the entries of its run from 1,
and `row.pos` numbers all entries of the store. A lease is the right of one process to write a run. A letter is a
message that waits in a run's inbox. A blob is a large value that is stored apart from its entry. A tombstone is an
entry that says that a run was removed.
"""

import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import cache
from typing import Any
from weakref import WeakSet

import anyio

from gesta.codec.blobs import SALT
from gesta.entry import Row
from gesta.errors import BrokenRecord
from gesta.log.shared import base_of
from gesta.store import Batch, BlobRow, Letter

PAGE = 500  # greatest number of rows that a tail yields at once
PRIVATE = 0o600
"""Mode of a record's file: only its owner reads and writes it. SQLite uses the same mode for the files beside it."""
LONGEST_MS = 2**31 - 1  # the longest time limit of a PostgreSQL server, about 24 days
FIRST_S, LONGEST_S = 0.005, 0.2  # seconds between the queries of a tail: shortly after new rows, and at most


def private(path: str | os.PathLike[str], flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a file, and return its descriptor. If this call creates the file, only the present user can read it.

    This function is meant as the `opener` of Python's `open`. Raises OSError.
    """
    return os.open(path, flags, PRIVATE)


TURNS: WeakSet[Any] = WeakSet()
"""The objects whose lock `turn_of` made."""


def turn_of(one: Any) -> threading.Lock:
    """Return a lock for the attribute `_turn` of an object.

    A forked child gets a free lock in its place: the thread of the parent that holds it does not exist in the child.
    """
    _watch_forks()
    TURNS.add(one)
    return threading.Lock()


@cache
def _watch_forks() -> None:
    def free() -> None:
        for one in list(TURNS):
            one._turn = threading.Lock()  # noqa: SLF001 - the stores of this folder

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=free)


def new_id() -> str:
    """Return a random name of 32 hex digits."""
    return secrets.token_hex(16)


def milliseconds(seconds: float) -> int:
    """Return a time as PostgreSQL takes it for a limit: in whole milliseconds, from 1 to 24 days.

    A longer or endless time becomes the longest one. The result is not 0, which a server takes for no limit.
    """
    return max(1, min(LONGEST_MS, round(1000 * min(seconds, LONGEST_MS))))


def checked(batch: Batch) -> Batch:
    """Check a batch before its commit, and return it. Without the check, a commit could leave a gap in a run.

    Raises:
        ValueError: a row belongs to another run than the lease, or does not follow the row before it; runs are pruned
            without a tombstone; two batches are of one run; a letter belongs to another run; or a batch without a lease
            does not begin a run.
    """
    seq, run = batch.head, batch.lease.run
    for row in batch.rows:
        seq += 1
        if row.seq != seq or row.run != run:
            raise ValueError(f"expected entry {run}.{seq} next in the batch, found {row.run}.{row.seq}")
    if batch.prunes and (not batch.rows or any(gone.lease.run == run for gone in batch.prunes)):
        raise ValueError(f"expected an entry in {run!r} that says which other runs go")
    for letter in batch.mail:
        if letter.run != run:
            raise ValueError(f"expected letters of run {run!r} with its batch, found one of {letter.run!r}")
    if batch.head and not batch.lease.epoch:
        raise ValueError(f"expected a batch that begins the run {run!r}, which nobody holds, found one after its head")
    if batch.beside and len({each.lease.run for each in batches_of(batch)}) <= len(batch.beside):
        raise ValueError(f"expected batches of other runs beside that of {run!r}, found one of the same")
    for each in batch.beside:
        checked(each)
    return batch


def batches_of(batch: Batch) -> Sequence[Batch]:
    """Return a batch and the batches of other runs that are committed with it."""
    return (batch, *batch.beside)


def forks(batch: Batch) -> bool:
    """Return whether a batch begins a fork: a new run that continues from an entry of another run.

    The numbers of a fork's rows continue from that entry, and do not begin at 1. So the store must not report a gap.
    """
    base = base_of(batch.rows[0]) if batch.rows else None
    return base is not None and base.seq == batch.head


def blob_of(address: str, run: str, name: str, rows: Sequence[tuple[Any, ...]]) -> BlobRow:
    """Return the blob that a query found.

    Args:
        address: address of the record, for errors.
        run: the run that the blob belongs to.
        name: name of the blob.
        rows: the result of the query.

    Raises:
        BrokenRecord: the run has no such blob, its salt or data has another type, or its salt has the wrong length.
    """
    if not rows:
        raise BrokenRecord(address, f"run {run!r} has no blob {name!r}")
    blob = BlobRow(*rows[0])
    if not (isinstance(blob.salt, bytes) and isinstance(blob.data, bytes)):
        raise BrokenRecord(address, f"blob {name!r} of run {run!r}: column salt or data holds another type")
    if len(blob.salt) != SALT:
        found = f"its salt has {len(blob.salt)} bytes, expected {SALT}"
        raise BrokenRecord(address, f"blob {name!r} of run {run!r} was changed: {found}")
    return blob


def letters_of(address: str, rows: Iterable[tuple[Any, ...]]) -> list[Letter]:
    """Return the letters in `rows`, the result of a query. `address` names the record in errors.

    Raises BrokenRecord if a letter's key, content or time is not text.
    """
    found = [Letter(*row) for row in rows]
    for each in found:
        if not (isinstance(each.key, str) and isinstance(each.content, str) and isinstance(each.at, str)):
            raise BrokenRecord(
                address, f"letter {each.id} of run {each.run!r}: column key, content or at holds another type"
            )
    return found


class News:
    """Wakes the tasks that wait for new entries of a store."""

    def __init__(self) -> None:
        self.over = False
        """Whether the store was closed. A closed store gets no more entries."""
        self._bells: dict[anyio.Event, int] = {}  # one event for each waiting task, with the id of its thread

    def ring(self) -> None:
        """Wake the tasks that wait in this thread.

        Tasks in other threads are not woken. They query the store again when their wait times out.
        """
        if self._bells:
            here = threading.get_ident()
            for bell, thread in list(self._bells.items()):
                if thread == here:
                    bell.set()

    def close(self) -> None:
        """Mark the store as closed, and wake the tasks that wait in this thread."""
        self.over = True
        self.ring()

    async def listen(self, longest_s: float) -> None:
        """Wait until `ring` is called in this thread, at most `longest_s` seconds."""
        bell = anyio.Event()
        self._bells[bell] = threading.get_ident()
        try:
            with anyio.move_on_after(longest_s):
                await bell.wait()
        finally:
            del self._bells[bell]


async def follow(page: Callable[[int, int], list[Row]], news: News, after: int) -> AsyncGenerator[list[Row], None]:
    """Yield pages of rows in the order of their pos, until the store is closed.

    A commit through the same store ends the wait for the next page at once. Commits by other processes are found by
    polling: after 5 ms, and then at growing intervals of at most 200 ms.

    Args:
        page: returns the rows after a pos. Its second argument is the greatest number of rows.
        after: the pos after which the first page begins.
    """
    wait_s = FIRST_S
    while not news.over:
        rows = page(after, PAGE)
        if rows:
            after, wait_s = rows[-1].pos, FIRST_S
            yield rows
        else:
            await news.listen(wait_s)
            wait_s = min(2 * wait_s, LONGEST_S)
