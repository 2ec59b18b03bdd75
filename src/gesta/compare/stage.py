"""A store for a replay, which supplies the recorded answers of models and tools.

A process that writes to the store must write the recorded entries again: each new entry is compared with the recorded
one at its place. At the first difference the writing process is stopped, as if it had died. A model's answer or a
tool's result is returned if it is the next recorded entry; otherwise the process is stopped too. `replaying` then
decides how to continue.

An attempt is the entry that says that a tool is about to run. If the process dies then, the tool's function
`reconcile` is asked later whether the attempt had its effect. A lease is the right to write a run. A letter is a
message to a run, such as an approval, from another process. The seq of an entry is its number in the run. Writes are
collected in a journal before they are committed.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TypeGuard

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from gesta.codec.blobs import Blobs
from gesta.codec.rows import encode_content, from_row, to_row
from gesta.compare.outside import RECONCILED, by_letter, by_tool, from_outside, unmoved
from gesta.compare.same import Difference, by_lot, difference, noted_time
from gesta.entry import GENESIS, Entry, Row, utc_text
from gesta.errors import BrokenRecord, WriteFailed
from gesta.function_tool.context import Done, NotDone, Unknown
from gesta.function_tool.reconcile import Untold
from gesta.kinds import (
    AttemptContent,
    BudgetContent,
    ChatCompletionContent,
    Content,
    EdgeContent,
    FaultContent,
    Kind,
    Opened,
    ResolutionContent,
    ToolResultContent,
)
from gesta.log.journal import Journal
from gesta.models.replay import Recorded, recorded
from gesta.perform.late import LATE
from gesta.state.calls import UNSETTLED
from gesta.state.steps import NOTE_NAME
from gesta.store import Batch, BlobRow, Foreign, Info, Lease, Letter, QueryBounds, RunRow, Table, TransactionalEffect

GATE = 50  # number of times to look for the next entry while nothing else happens
BESIDE = frozenset({Kind.ToolResult, Kind.Fault, Kind.Edge, Kind.Budget, Kind.Begin, Kind.End})
"""Kinds of entries from outside the agent's code that a replaying process may write itself while it waits."""
Found = tuple[Entry, Entry, Difference]
"""A recorded entry, the entry that was written in its place, and their first difference."""


class Stage:
    """A store for one replayed run: it compares each entry that the agent's code writes with the recorded entry."""

    queries = QueryBounds()

    def __init__(
        self, entries: Sequence[Entry], opened: Opened, *, prompts: bool = True, live: Collection[str] = ()
    ) -> None:
        self.run = entries[0].run
        self.opened = opened
        self.recorded = list(entries)
        """The recorded entries; entry `seq` is at index `seq - 1`."""
        self.made: list[Entry] = []
        """The entries replayed so far, both written by the agent's code and copied."""
        self.prompts, self.live = prompts, frozenset(live)
        self.moves = False
        """Whether an entry of the same kind as the recorded one is accepted even if its content differs."""
        self.found: Found | None = None
        """The difference that stopped the last process; `None` if it was stopped for another reason."""
        self.stopped = self.over = False
        """Whether the process was stopped, or has reached the end of the record."""
        self.journal: Journal | None = None
        """Journal of the process that is writing; `None` if none is."""
        self.children: dict[int, str] = {}
        """Names of the child runs that tools started, by the seq of the `edge` entry."""
        self._rows: list[Row] = []
        self._kept, self._blobs = Blobs(), dict[str, BlobRow]()
        self._epoch = 0
        self._answers = {one.id: one for one in recorded(self.recorded)}
        self._results = {by_tool(each): each for each in self.recorded if by_tool(each) is not None}

    @property
    def info(self) -> Info:
        """The id of the record that contains the replayed run, and the address `replay`."""
        return Info(self.opened.record, "replay", utc_text(self.recorded[0].at))

    @property
    def done(self) -> int:
        """Seq of the last replayed entry; 0 if no entry was replayed yet."""
        return len(self.made)

    @property
    def next(self) -> Entry | None:
        """The next recorded entry; `None` after the last one."""
        return self.recorded[self.done] if self.done < len(self.recorded) else None

    @property
    def left(self) -> Sequence[Entry]:
        """The recorded entries that were not replayed yet."""
        return self.recorded[self.done :]

    def now(self) -> datetime:
        """Return the time that a program noted in the entry to be written, or else that of the next or last entry."""
        noted = noted_time(self.recorded, self.done if self.journal is None else self.journal.head)
        return noted or (self.next or self.recorded[-1]).at

    def copy(self, entry: Entry) -> None:
        """Add the next recorded entry unchanged to the replayed ones."""
        prev = self._rows[-1].digest if self._rows else GENESIS
        _, row = to_row(entry, prev, bytes(16), self._kept.keep)
        self._blobs |= {name: BlobRow(name, salt, data) for name, salt, data in self._kept.take()}
        self._add(entry, msgspec.structs.replace(row, run=entry.shared_from or entry.run))

    def back(self, head: int) -> list[tuple[Entry, Row]]:
        """Remove the replayed entries after the seq `head`, and return them; `forth` appends them again."""
        gone = list(zip(self.made[head:], self._rows[head:], strict=True))
        del self.made[head:], self._rows[head:]
        return gone

    def forth(self, gone: list[tuple[Entry, Row]]) -> None:
        """Append `gone`, the entries that `back` removed, to the replayed entries again."""
        for entry, row in gone:
            self._add(entry, row)

    def stop(self) -> WriteFailed:
        """Mark the simulated process as stopped, and return the exception to raise in it."""
        self.stopped = True
        return WriteFailed("replay", "it goes no further here")

    def _add(self, entry: Entry, row: Row) -> None:
        self.made.append(entry)
        self._rows.append(row)

    async def append(self, batch: Batch) -> int:
        """Compare the entries of a batch with the recorded ones, and add the entries that are equal.

        Returns the seq of the last replayed entry. Raises WriteFailed at the first difference, and if the lease belongs
        to an earlier simulated process.
        """
        if self.stopped or batch.head != self.done or batch.lease.epoch != self._epoch:
            raise self.stop()
        self._blobs |= {blob.name: blob for blob in batch.blobs}
        data = {name: blob.data for name, blob in self._blobs.items()}
        for row in batch.rows:
            entry, kept = from_row(row, data), self.next
            if kept is None:
                self.over = True
                raise self.stop()
            other = difference(kept, entry, prompts=self.prompts)
            copied = unmoved(self.recorded, kept) or by_lot(kept, entry)
            if other is not None and not (self.moves and kept.kind == entry.kind and not copied):
                self.found = kept, entry, other
                raise self.stop()
            self._add(entry, row)
        return self.done

    async def transact(self, effect: TransactionalEffect) -> None:
        """Compare the entries that a transactional tool writes with the recorded ones. No table is changed."""
        batch, _ = effect.work(NoTables())
        await self.append(batch)

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return the rows of replayed entries; an empty list for any other run."""
        rows = self._rows[after:until] if run == self.run else []
        return rows[:limit]

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return a list with the row of the replayed run in the table of runs.

        The list is empty if `session` or `name` belongs to another run. The row exists before the run's first entry,
        because the code looks the run up by id.
        """
        opened, at = self.opened, utc_text(self.recorded[0].at)
        row = RunRow(self.run, opened.session, opened.name, opened.record, opened.parent_run, at, self.done, at, 1)
        return [row] if session in (None, row.session) and name in (None, row.name) else []

    async def last(self) -> int:
        """Return the position of the last entry in this store, which is the number of replayed entries."""
        return self.done

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return the seq and the digest of the last replayed entry."""
        return self.done, self._rows[-1].digest if self._rows else GENESIS

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Return a new lease (the right to write) for a new simulated process. Earlier leases become invalid."""
        self._epoch += 1
        self.stopped, self.found = False, None
        return Lease(run, f"replay {self._epoch}", self._epoch, *(await self.head(run)))

    async def release(self, lease: Lease) -> None:
        """Do nothing: the next lease replaces this one."""

    async def holds(self, lease: Lease) -> bool:
        """Return whether a lease is the newest one. A newer lease makes all earlier ones invalid."""
        return lease.epoch == self._epoch

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Do nothing: a replayed run is never a mirror, a copy of a run that continues in another record."""

    async def gone(self, process: str) -> bool | None:
        """Return whether a process had ended, as the next recorded entry says; `None` if it does not say this."""
        content = self.coming()
        return content.over if isinstance(content, FaultContent) else None

    async def declare_gone(self, process: str, by: str) -> None:
        """Do nothing: the record already says which processes have ended."""

    async def adopt(self, by: str) -> None:
        """Do nothing: only a copied record needs a person's decision that it replaces its original."""

    def keep(self) -> Callable[[], None]:
        """Return a function that does nothing: no other process asks whether this process is still running."""
        return lambda: None

    def descriptor(self) -> int | None:
        """Return `None`: no subprocess is started here."""
        return None

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Return a blob (a large value of an entry) by name. Raises BrokenRecord if no replayed entry has it."""
        if name not in self._blobs:
            raise BrokenRecord("replay", f"run {run!r} has no blob {name!r}")
        return self._blobs[name]

    async def send(self, letter: Letter) -> bool:
        """Return `False`, and drop the letter: the letters of the run are on record already."""
        return False

    def deliver(self, letter: Letter) -> bool:
        """Return `False`, and drop the letter: the letters of the run are on record already."""
        return False

    async def inbox(self, run: str) -> list[Letter]:
        """Return the next recorded entries as letters, once other tasks of a program have written the notes before."""
        for _ in range(GATE // 2):
            coming = self.recorded[self.written : self.written + 1]
            if not any(NOTE_NAME in (each.annotations or ()) for each in coming):
                break
            await checkpoint()
        found: list[Letter] = []
        for entry in self.recorded[self.written :]:
            if not by_letter(self.recorded, entry):
                break
            found.append(Letter(run, self._key(entry), encode_content(entry.content), "", entry.seq))
        return found

    def _key(self, entry: Entry) -> str:
        """Return the key for the letter from which the recorded `entry` was made: the entry's seq as text.

        For a late tool result, the key is made from the seq of the last attempt of its call.
        """
        of = entry.content.call if isinstance(entry.content, ToolResultContent) else None
        tried = [
            each.seq for each in self.recorded if isinstance(each.content, AttemptContent) and each.content.of == of
        ]
        return f"{LATE}{tried[-1]}-" if tried else str(entry.seq)

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Stop the process, because a replay answers no query. Raises WriteFailed."""
        raise self.stop()

    async def shrink(self) -> int:
        """Return 0, the number of bytes freed: there is no file to shrink."""
        return 0

    async def damage(self) -> list[str]:
        """Return an empty list: the stage is in memory and cannot be damaged."""
        return []

    async def foreign(self) -> Foreign:
        """Return no objects of other programs: the stage is in memory and has no tables."""
        return Foreign()

    async def close(self) -> None:
        """Do nothing: the stage has no file or connection."""

    def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Raise WriteFailed, which stops the simulated process: a replay does not stream its new entries."""
        raise self.stop()

    def answer(self) -> tuple[Recorded, ChatCompletionContent]:
        """Return the model's recorded answer, which must be the next recorded entry.

        Raises WriteFailed if the next recorded entry is something else.
        """
        entry = self.next
        if entry is None:
            self.over = True
        if entry is None or not isinstance(entry.content, ChatCompletionContent):
            raise self.stop()
        return self._answers[entry.id], entry.content

    def result_at_once(self, attempt: int) -> ToolResultContent:
        """Return the result of a transactional tool, which was committed together with its attempt.

        Raises WriteFailed if there is no such result.
        """
        entry = self._results.get(attempt)
        if entry is None or entry.seq != attempt + 1:
            raise self.stop()
        assert isinstance(entry.content, ToolResultContent)
        return entry.content

    async def result(self, attempt: int) -> ToolResultContent:
        """Wait until the replay has reached the recorded result of an attempt, and return this result.

        Raises WriteFailed if there is no such result, or if the replay cannot reach it.
        """
        entry = self._results.get(attempt)
        if entry is None or not await self.comes(entry.seq - 1):
            raise self.stop()
        assert isinstance(entry.content, ToolResultContent)
        return entry.content

    def called(self, attempt: int) -> list[tuple[str, str, str]]:
        """Return the agents that a tool called in an attempt: the name, the task and the part of each.

        The part is the name that the tool chose for the child run, else the number of the child run.
        """
        found, number = list[tuple[str, str, str]](), 0
        for edge in self.recorded:
            if isinstance(edge.content, EdgeContent) and edge.causes == (attempt,):
                name = edge.content.child or self.children.get(edge.seq)
                part = name.rpartition("#")[2].partition(".")[2] or "1" if name is not None else str(number + 1)
                number += part.isdecimal()
                found.append((edge.content.dest[0], str(edge.content.payload), part))
        return found

    def coming(self) -> Content | None:
        """Return the content of the recorded entry that the replay has to write next; `None` at the end."""
        return self.recorded[self.written].content if self.written < len(self.recorded) else None

    def settle(self, write: Callable[..., Entry]) -> Sequence[Entry]:
        """Write the next recorded entries if they settle what child runs spent. Return the entries not replayed yet.

        Args:
            write: writes an entry, given its content and its causes.
        """
        while self.written < len(self.recorded):
            entry = self.recorded[self.written]
            if not isinstance(entry.content, BudgetContent) or not from_outside(self.recorded, entry):
                break
            write(entry.content, *entry.causes)
        return self.left

    async def settled(self, attempt: int) -> Any:
        """Return the recorded answer of a tool's `reconcile` function about an attempt: `Done` or `NotDone`.

        If the record says next that the function could not tell, return the recorded reason. If the record
        said so earlier, return `Unknown()`. Raises WriteFailed if the record has no answer at this place.
        """
        content = self.coming()
        if isinstance(content, ResolutionContent) and content.of == attempt and content.by.startswith(RECONCILED):
            return Done(content.result) if content.verdict == "done" else NotDone()
        if _unsettled(content, attempt):
            return Untold(content.error.message.partition(" could not tell: ")[2])
        if any(_unsettled(each.content, attempt) for each in self.recorded[: self.written]):
            return Unknown()
        if self.journal is not None:
            await self.journal.durable()  # what was written before is on record, though nobody answered
        raise self.stop()

    async def comes(self, head: int) -> bool:
        """Wait until the replayed run has `head` entries. Return `False` if it does not get that far."""
        idle, written = 0, self.written
        between = self.recorded[written:head]
        if any(from_outside(self.recorded, each) and each.kind not in BESIDE for each in between):
            return False
        while (now := self.written) < head and idle < GATE and not self.stopped:
            idle, written = (idle + 1 if now == written else 0), now
            await anyio.sleep(0 if idle < GATE // 2 else 0.001)
        return self.written >= head

    @property
    def written(self) -> int:
        """Number of entries written so far, including those in the journal that are not compared yet."""
        return self.journal.head if self.journal is not None else self.done


def _unsettled(content: Content | None, attempt: int) -> TypeGuard[FaultContent]:
    """Return whether a content says that `reconcile` could not tell what became of an attempt."""
    return isinstance(content, FaultContent) and content.of == attempt and content.error.type == UNSETTLED


class NoTables:
    """The database connection of a transactional tool in a replay. Statements given to it are not run."""

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return no rows, without running the statement."""
        del statement, parameters
        return []

    def check(self) -> None:
        """Do nothing: no statement was run."""
