"""Entries are written into a buffer at once and in order; a caller awaits `durable` until they are committed.

An entry is one stored fact of a run, its seq is its number there, and its content is its data. A letter is a message or
answer in the run's inbox that becomes an entry. A blob is a large value that is stored beside its entry. `Journal` is
the only writer of a run: its process holds the lease, which is the right to write. `Log` is a handle on one span (named
part) of a run. After a failed commit nothing more is written. Otherwise effects could happen without entries.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from typing import Any

import anyio
from msgspec.structs import replace

from gesta.codec.blobs import Blobs
from gesta.codec.rows import blob_names, decode_content, from_row, to_row
from gesta.entry import GENESIS, Cause, Entry, Row
from gesta.errors import BrokenRecord, GestaError, LeaseLost, message_of
from gesta.kinds import (
    Base,
    BeginContent,
    Content,
    EndContent,
    Error,
    KeyValueContent,
    Kind,
    Opened,
)
from gesta.log.shared import rows_of
from gesta.log.steering import refuse_own
from gesta.store import Batch, BlobRow, Lease, Letter, Prune, Statements, Store, TransactionalEffect

Clock = Callable[[], datetime]
PAGE = 500  # greatest number of entries in memory while a run is folded
SALTS = 32  # one system call for randomness serves many entries of a run


utc_now: Clock = partial(datetime.now, UTC)
"""A function that reads the wall clock."""


async def read(
    store: Store, run: str, after: int = 0, until: int | None = None, limit: int | None = None
) -> list[Entry]:
    """Return a run's entries with `after` < seq <= `until`, sorted, at most `limit`, with their large values.

    For a fork (a run that shares the first entries of another run), the shared entries are included.

    Raises:
        NewerRecord, BrokenRecord: an entry cannot be read.
    """
    entries = []
    for row in await rows_of(store, run, after, until, limit):
        names = blob_names(row)
        try:
            entry = await entry_of(store, row) if names else from_row(row, {})  # a coroutine for each row takes long
        except BrokenRecord as error:
            raise in_record(store, error) from error
        entries.append(entry if entry.run == run else replace(entry, run=run, shared_from=entry.run))
    return entries


def in_record(store: Store, error: BrokenRecord) -> BrokenRecord:
    """Return an error about an unreadable entry with the address of the record in its message."""
    here = store.info.address
    return error if error.address == here else BrokenRecord(here, f"{error.address}: {error.found}")


async def pages(store: Store, run: str, seq: int = 0) -> AsyncGenerator[list[Entry], None]:
    """Yield a run's entries after `seq` in lists of at most `PAGE`. So a long run is not in memory at once."""
    while entries := await read(store, run, seq, limit=PAGE):
        yield entries
        seq = entries[-1].seq


async def entry_of(store: Store, row: Row) -> Entry:
    """Return the entry of a row, with its large values read from their blobs."""
    names = blob_names(row)
    return from_row(row, {name: (await store.get_blob(row.run, name)).data for name in names} if names else {})


class Journal:
    """The only writer of a run, while this process holds the run's lease."""

    def __init__(self, store: Store, lease: Lease, clock: Clock = utc_now) -> None:
        self.store = store
        self.lease = lease
        self.clock = clock
        self.head = lease.head
        """Seq of the last entry written, committed or not."""
        self.durable_head = lease.head
        self.digest = lease.digest if lease.head else GENESIS
        """Digest of the last entry written."""
        self._rows: list[Row] = []
        self._results: list[tuple[int, Callable[[], Letter], Any]] = []
        """Results of tools that are not committed yet. Each has its seq, a function that makes a letter of the result,
        and the mark of the attempt (see `perform.threads.Mark`)."""
        self._synced = False
        """Whether the next commit waits until it is on disk, even with durability `normal`."""
        self._letters: list[int] = []
        self.taken_in: set[int] = set()
        """Ids of letters that became entries; each stays in the inbox until its entry is committed."""
        self.prunes: list[Prune] = []
        """Runs that the next commit removes. It also writes entries that record the removal."""
        self._blobs: Blobs | None = None
        self._blob_rows: list[BlobRow] = []
        self.keeps = False
        """Whether written entries are added to `fresh`."""
        self.fresh: list[Entry] = []
        """Entries that were written, in order. A live run takes them out, and adds them to its state."""
        self._committing = False
        self._taken: Batch | None = None
        """The batch that is being committed."""
        self._committed: anyio.Event | None = None  # made only if a task waits
        self._failure: GestaError | None = None
        self._left = False
        self._salts = b""

    def write(
        self, content: Content, span: int, causes: tuple[Cause, ...] = (), annotations: Mapping[str, Any] | None = None
    ) -> Entry:
        """Write a content into the buffer as the next entry, and return the entry.

        A `begin` starts a span of its own, so `span` is ignored for it. Raises the error of an earlier commit that
        failed.
        """
        if self._failure is not None or self._left:
            raise self._refusal()
        seq = self.head + 1
        draft = Entry(
            run=self.lease.run,
            seq=seq,
            at=self.clock(),
            span=seq if content.kind is Kind.Begin else span,
            causes=causes,
            content=content,
            annotations=dict(annotations) if annotations else None,
        )
        if not self._salts:
            self._salts = os.urandom(16 * SALTS)
        salt, self._salts = self._salts[:16], self._salts[16:]
        entry, row = to_row(draft, self.digest, salt, self._keep)
        self._rows.append(row)
        if self.keeps:
            self.fresh.append(entry)
        self.head, self.digest = seq, entry.digest
        return entry

    def sync(self) -> None:
        """Make the next commit wait until it is on disk, because an effect, an answer or another run relies on it.

        A person's answer names its question by seq. If a crash lost the question, another entry could get that seq. So
        it is with the task of a child run. A server may lose its last commits while this process goes on.
        """
        self._synced = True

    def unsaved(self) -> list[Letter]:
        """Return the results of tools that could not be committed, as letters for the run's inbox.

        The process that continues the run needs them, because it does not run those tools again.
        """
        return [letter() for seq, letter, _ in self._results if seq > self.durable_head]

    def forget(self) -> None:
        """Make `unsaved` return nothing from now on, after the caller has sent what it returned to the run's inbox."""
        self._results.clear()

    def secure(self, letter: Callable[[], Letter], mark: Any) -> None:
        """Keep the tool result that was written last, so that `unsaved` returns it if its commit fails.

        Args:
            letter: makes the letter with the result.
            mark: an object that marks the attempt as running, in this process, for as long as the object is kept.
        """
        self._results.append((self.head, letter, mark))

    def take_in(self, letter: Letter, content: Content, span: int) -> Entry:
        """Write the content of a letter as an entry. The commit of the entry deletes the letter from the inbox."""
        of = getattr(content, "of", getattr(content, "call", None))
        entry = self.write(content, span, (of,) if isinstance(of, int) and 0 < of <= self.head else ())
        self._letters.append(letter.id)
        self.taken_in.add(letter.id)
        return entry

    def leave(self) -> None:
        """Refuse all later writes.

        Called when this process stops writing the run, because a tool's thread, or a program that kept its log, may
        still try to write.
        """
        self._left = True

    async def durable(self) -> None:
        """Wait until all entries written so far are committed. Raises WriteFailed or LeaseLost if that fails."""
        target = self.head
        while self.durable_head < target:
            if self._committing:
                await self._others()
            elif self._failure is not None or self._left:
                raise self._refusal()
            else:
                await self._commit(self.store.append(self._batch()))

    async def transact(self, work: Callable[[Statements], bool], timeout_s: float | None) -> None:
        """Call `work`, and commit its changes and entries in one transaction with all entries written before.

        Args:
            work: writes entries, and changes the tables of a tool. Returns whether to keep its changes to the tables.
            timeout_s: seconds that the work may take; `None` for no bound.

        Raises:
            WriteFailed, LeaseLost: nothing was committed.
        """
        if self._synced:  # the transaction itself does not wait for the disk
            await self.durable()
        while self._committing:
            await self._others()
        if self._failure is not None or self._left:
            raise self._refusal()

        def batch(sql: Statements) -> tuple[Batch, bool]:
            kept = work(sql)
            return self._batch(), kept

        await self._commit(self.store.transact(TransactionalEffect(self.lease.run, batch, timeout_s)))

    def _batch(self) -> Batch:
        """Return all that was written and is not committed, as the batch to commit now."""
        if self._blobs is not None and self._blobs.fresh:
            self._blob_rows += [BlobRow(*blob) for blob in self._blobs.take()]
        self._taken = Batch(
            self.lease, self.durable_head, self._rows, self._blob_rows, self._letters, self.prunes, self._synced
        )
        self._rows, self._blob_rows, self._letters, self.prunes, self._synced = [], [], [], [], False
        return self._taken

    async def _commit(self, commit: Awaitable[object]) -> None:
        """Await a commit of the store, whose batch `_batch` returns. Other tasks may write meanwhile."""
        self._committing = True
        try:
            await commit
            assert self._taken is not None
            self.durable_head = self._taken.rows[-1].seq
            while self._results and self._results[0][0] <= self.durable_head:
                del self._results[0]
        except GestaError as failure:
            self._failure = failure
            raise
        except BaseException:  # cancelled before the store began: nothing of it is committed
            if (batch := self._taken) is not None:
                self._rows, self._letters = [*batch.rows, *self._rows], [*batch.letters, *self._letters]
                self._blob_rows, self.prunes = [*batch.blobs, *self._blob_rows], [*batch.prunes, *self.prunes]
                self._synced |= batch.synced
            raise
        finally:
            self._committing, self._taken, committed, self._committed = False, None, self._committed, None
            if committed is not None:
                committed.set()

    def _keep(self, data: bytes) -> str:
        self._blobs = self._blobs or Blobs()
        return self._blobs.keep(data)

    def _refusal(self) -> GestaError:
        return self._failure or LeaseLost(
            self.lease.run, "a span or turn that goes on", "one that has ended or was left"
        )

    async def _others(self) -> None:
        """Wait until no other task of this process is committing entries of the run."""
        self._committed = self._committed or anyio.Event()
        await self._committed.wait()


class Log:
    """A handle on one span (named part) of a run, through which entries are written into that span."""

    def __init__(self, journal: Journal, span: int, path: tuple[str, ...], skip: Collection[Kind] = ()) -> None:
        self.journal = journal
        self.run = journal.lease.run
        """Id of the run."""
        self.span_seq = span
        """Seq of the span's `begin` entry."""
        self.path = path
        """Names of the spans from the root of the run to this span."""
        self._skip = frozenset(skip)

    def write(
        self, content: Content, causes: tuple[Cause, ...] = (), annotations: Mapping[str, Any] | None = None
    ) -> Entry:
        """Write an entry in this span; see `Journal.write`."""
        return self.journal.write(content, self.span_seq, causes, annotations)

    def log(self, content: Content, **annotations: Any) -> Entry | None:
        """Write an entry in this span and return it; `None` if the span skips contents of this kind.

        Raises:
            TypeError: `content` is not the data of an entry, such as `gesta.kinds.UserContent`.
            AgentError: `content` is of a kind, or sets a field, that only the run itself may write.
        """
        if not isinstance(content, Base):
            found = f"found {type(content).__name__} {content!r:.60}"
            raise TypeError(f"log(...): {found}, expected a content such as gesta.kinds.UserContent(value='hello').")
        refuse_own(content, "log(...)")
        return None if content.kind in self._skip else self.write(content, annotations=annotations)

    def __setitem__(self, key: str, value: Any) -> None:
        """Write one key-value entry. A second value for the same key is a second entry."""
        self.log(KeyValueContent(key=key, value=value))

    async def durable(self) -> None:
        """Wait until all entries written so far are committed."""
        await self.journal.durable()

    @contextmanager
    def span(
        self,
        name: str,
        *,
        skip: Collection[Kind] = (),
        state: Any = None,
        **annotations: Any,
    ) -> Iterator["Log"]:
        """Open a span inside this span. Its `end` entry is written even if an exception leaves the `with` block.

        Args:
            name: name of the span.
            skip: kinds of contents that `log` does not write in this span.
            state: written when the span begins and again when it ends. So changes of the object in between are on
                record.
            annotations: named values to store with the span.
        """
        refuse_misspelt(annotations)
        begin = BeginContent(name=name, parent=self.span_seq, state=state, annotations=annotations or None)
        inner = Log(self.journal, self.journal.write(begin, 0).seq, (*self.path, name), self._skip | frozenset(skip))
        with closing(inner, state):
            yield inner


def refuse_misspelt(annotations: Iterable[str]) -> None:
    """Raise TypeError for an annotation that looks like a misspelt parameter of a span, such as `skp` for `skip`.

    Otherwise a misspelt `skip=` would silently record the contents that it was meant to leave out.
    """
    for name in annotations:
        for known in ("skip", "state", "session"):
            near = sorted(name) == sorted(known) or get_close_matches(name, [known], cutoff=0.85)
            if near and name != known:
                raise TypeError(
                    f"span(...) has no parameter {name!r}. Did you mean {known!r}? If it is meant as an annotation, "
                    "write another name."
                )


def open_root(journal: Journal, begin: BeginContent, opened: Opened, skip: Collection[Kind] = ()) -> Log:
    """Begin a span that is inside no other span, and return its log.

    If the run is new, its first entry also stores `opened`: facts about the run, such as its session and name.
    """
    if journal.head == 0:
        begin = BeginContent(
            **{name: getattr(begin, name) for name in begin.__struct_fields__ if name != "opened"}, opened=opened
        )
    return Log(journal, journal.write(begin, 0).seq, (begin.name,), skip)


@contextmanager
def closing(log: Log, state: Any = None) -> Iterator[None]:
    """Write the `end` of a span when the block ends. If an exception ended it, the entry has the error."""
    try:
        yield
    except BaseException as error:
        failure = Error(type=type(error).__name__, message=message_of(error))
        log.write(EndContent(state=state, status="error", error=failure))
        raise
    log.write(EndContent(state=state))


async def letters(store: Store, run: str) -> list[tuple[Letter, Content]]:
    """Return the letters in a run's inbox, each with its decoded content."""
    waiting = await store.inbox(run)
    return [(letter, decode_content(letter.content, {})) for letter in waiting] if waiting else []
