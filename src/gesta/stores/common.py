"""Code that all stores share: checks of a batch before its commit, and the wait for new entries."""

import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio

from gesta.codec.blobs import SALT
from gesta.entry import Row
from gesta.errors import BrokenRecord
from gesta.log.shared import base_of
from gesta.store import Batch, BlobRow

PAGE = 500  # rows that a tail gives at once, at most
PRIVATE = 0o600
"""Mode of a file that holds what is on record; SQLite gives its log and its shared memory the mode of the file."""
FIRST_S, LONGEST_S = 0.005, 0.2  # a tail looks this soon after news, and this seldom when there is none


def private(path: str | os.PathLike[str], flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a file, and make it so that nobody but its user may read it: an `opener` for `open`. Raises OSError."""
    return os.open(path, flags, PRIVATE)


def new_id() -> str:
    """Make a random name of 32 hex digits."""
    return secrets.token_hex(16)


def checked(batch: Batch) -> Batch:
    """Check a batch before its commit, so that a gap can never be committed.

    Raises:
        ValueError: a row is of another run than the lease, or does not follow the one before it; runs are pruned
            without a tombstone; two batches are of one run; or one without a lease begins no run.
    """
    seq, run = batch.head, batch.lease.run
    for row in batch.rows:
        seq += 1
        if row.seq != seq or row.run != run:
            raise ValueError(f"expected entry {run}.{seq} next in the batch, found {row.run}.{row.seq}")
    if batch.prunes and (not batch.rows or any(gone.lease.run == run for gone in batch.prunes)):
        raise ValueError(f"expected an entry in {run!r} that says which other runs go")
    if batch.head and not batch.lease.epoch:
        raise ValueError(f"expected a batch that begins the run {run!r}, which nobody holds, found one after its head")
    if batch.beside and len({each.lease.run for each in batches_of(batch)}) <= len(batch.beside):
        raise ValueError(f"expected batches of other runs beside that of {run!r}, found one of the same")
    for each in batch.beside:
        checked(each)
    return batch


def batches_of(batch: Batch) -> Sequence[Batch]:
    """Return a batch and those that are committed with it."""
    return (batch, *batch.beside)


def forks(batch: Batch) -> bool:
    """Return whether a batch begins a fork, whose first row follows the last one that it shares.

    Any other missing run was lost by its server, and its writer does not know it yet.
    """
    base = base_of(batch.rows[0]) if batch.rows else None
    return base is not None and base.seq == batch.head


def blob_of(address: str, run: str, name: str, rows: Sequence[tuple[Any, ...]]) -> BlobRow:
    """Return the blob that a query found.

    Raises:
        BrokenRecord: the run has no such blob, or the length of its salt is wrong.
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


class News:
    """Wakes those who follow a store from its own event loop."""

    def __init__(self) -> None:
        self.over = False
        """The store was closed: nothing will come any more."""
        self._bells: dict[anyio.Event, int] = {}  # of listeners, with the thread that each waits in

    def ring(self) -> None:
        """Wake the listeners of this thread; those of others look for themselves. Costs nothing when there are none."""
        if self._bells:
            here = threading.get_ident()
            for bell, thread in list(self._bells.items()):
                if thread == here:
                    bell.set()

    def close(self) -> None:
        """Wake all listeners: no more entries will come."""
        self.over = True
        self.ring()

    async def listen(self, longest_s: float) -> None:
        """Wait until `ring` is called, at most for that many seconds."""
        bell = anyio.Event()
        self._bells[bell] = threading.get_ident()
        try:
            with anyio.move_on_after(longest_s):
                await bell.wait()
        finally:
            del self._bells[bell]


async def follow(page: Callable[[int, int], list[Row]], news: News, after: int) -> AsyncGenerator[list[Row], None]:
    """Yield pages of rows by pos for ever, until the store is closed.

    Own commits wake the follower. It looks for those of other processes, less often the longer none came.
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
