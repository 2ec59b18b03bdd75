"""The explanations of answers for the pages. The entries of the last run that was asked about stay in memory.

A record is the store of all runs, and a run is a list of entries; a seq is the number of an entry in its run. An
explanation names the entries that an answer was made from. A page asks for the same explanation three times: as a list,
and as two pictures. So the entries of a run are read once, and after that only new entries are added.
"""

from collections.abc import Collection, Sequence

from anyio import Lock, to_thread
from msgspec import Struct

from gesta.address import Record
from gesta.entry import Entry, fold
from gesta.kinds import Kind
from gesta.serve.bodies import Refused
from gesta.views.across import explain_from
from gesta.views.drawn import Drawn, Texts, drawn, narrowed
from gesta.views.lineage import Explanation, Lineage, State
from gesta.web.reading import read


class Explained(Struct, frozen=True):
    """The explanation of an entry, and the passages of its sources that the entry repeats."""

    found: Explanation
    passages: Sequence[Drawn]
    """The passages of its sources that an answer repeats; empty if the entry is not an answer."""
    near: Collection[str]
    """Ids of the nodes that a page shows first. If the entry repeats no passage, these are all nodes.

    Else they are the answer, its questions, the instructions, the sources of the passages, and the calls before these.
    """


class Lineages:
    """Makes the explanations of entries of one record. The entries that were read for them stay in memory."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._lock = Lock()
        self._run, self._state, self._texts = "", State(), Texts()
        self._last: tuple[tuple[int | None, int], Explained] | None = None

    async def explained(self, run: str, seq: int | None) -> Explained:
        """Return the explanation of an entry of a run; `None` as `seq` stands for the last answer.

        Raises:
            NoRun: there is no such run.
            Refused: the run has no such entry.

        Cost: at first all entries of the run, and later only new entries.
        """
        run = (await self.record.find(run)).run
        async with self._lock:
            await self._read(run)
            if seq is not None and (run, seq) not in self._state.entries:
                raise Refused(404, "NoEntry", f"No entry {seq} in run {run}.")
            asked = seq, len(self._state.entries)
            if self._last is None or self._last[0] != asked:
                self._last = None
                found = await explain_from(self._state, run, seq, self._rest, to_thread.run_sync)
                made = await to_thread.run_sync(self._compared, found)
                self._last = (seq, len(self._state.entries)), made
            return self._last[1]

    async def _read(self, run: str) -> None:
        """Read the new entries of a run, and of the other runs that its answers were made from, into memory.

        If entries that were read earlier are no longer in the record, everything is read again.
        """
        if run != self._run:
            self._forget(run)
        for each in [run, *(other for other in self._state.origins if other != run)]:
            last = self._known(each)
            entries = await read(self.record.store, each, max(0, last - 1))
            if last and not entries:
                self._forget(run)
                await self._read(run)
                return
            await to_thread.run_sync(fold, Lineage(), entries[bool(last) :], self._state)

    def _forget(self, run: str) -> None:
        self._run, self._state, self._texts, self._last = run, State(), Texts(), None

    def _known(self, run: str) -> int:
        """Return how far a run was read: the seq of its last entry in memory; 0 if no entry is there."""
        origin = self._state.origins.get(run)
        return max(origin.links, default=0) if origin is not None else 0

    async def _rest(self, run: str) -> list[Entry]:
        """Return the entries of a run that were not read yet."""
        return await read(self.record.store, run, self._known(run))

    def _compared(self, found: Explanation) -> Explained:
        """Return an explanation together with the passages that the explained answer repeats."""
        target = found.nodes[-1]
        answer = target.kind is Kind.Assistant or target.type == "Conclusion"
        passages = drawn(found, self._texts) if answer else ()
        near = narrowed(found, passages) if passages else {node.id for node in found.nodes}
        return Explained(found, passages, near)
