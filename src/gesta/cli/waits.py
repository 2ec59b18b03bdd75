"""Finds the wait of a run that a command means, and shows it."""

from dataclasses import dataclass

from gesta.cli.talk import FAILED, Stop, short
from gesta.cli.voice import call_text
from gesta.decide.waiting import Waiting, doubts
from gesta.entry import Entry
from gesta.kinds import BeginContent
from gesta.record.answers import said
from gesta.record.record import Record
from gesta.state.run import RunState
from gesta.store import RunRow

MOST = 1000
"""The most characters of a call that are shown; `gesta log RUN --all` shows all."""


@dataclass(frozen=True)
class Found:
    """A run, its state, and the waits in it and in the runs below it."""

    record: Record
    row: RunRow
    state: RunState
    waits: tuple[Waiting, ...]
    root: str
    """Id of the run that is to be resumed."""
    hint: str
    """Address of the agent that took the last turn of that run, as far as it is known."""

    def waiting(self, *kinds: str) -> list[Waiting]:
        """Return the waits of some kinds, in the run itself or else in a run below. Raises Stop for several runs."""
        found = [each for each in self.waits if each.what in kinds]
        found = [each for each in found if each.run == self.row.run] or found
        runs = dict.fromkeys(each.run for each in found)
        if len(runs) > 1:
            named = "".join(f"\n  {run}  {next(each.text for each in found if each.run == run)}" for run in runs)
            raise Stop(f"Something waits in {len(runs)} runs below {self.row.run}. Name one:{named}", FAILED)
        return found

    async def answered(self, waiting: Waiting) -> bool:
        """Return whether a letter in the inbox answers the wait already."""
        return await said(self.record.store, waiting.run, waiting.of) is not None


async def find(record: Record, name: str) -> Found:
    """Find a run, and read its state and its waits. Raises NoRun."""
    row = await record.find(name)
    above = {each.run: each for each in await record.store.runs(row.session)}
    root, met = row, set[str]()
    while root.parent_run in above and root.run not in met:
        met.add(root.run)
        root = above[root.parent_run]
    state = await record.state(row.run)
    waits = await record.waiting(row.run) if state.open else doubts(row.run, state)
    return Found(record, row, state, tuple(waits), root.run, _hint(await record.read(root.run)))


def _hint(entries: list[Entry]) -> str:
    begins = [entry.content for entry in entries if isinstance(entry.content, BeginContent)]
    hints = [begin.agent.hint for begin in begins if begin.agent is not None and begin.agent.hint]
    return hints[-1] if hints else "FILE.py:NAME"


def shown(waiting: Waiting, args: dict[str, object] | None = None) -> str:
    """Return the call of a wait, as Python would write it."""
    return short(call_text(waiting.tool or "", (waiting.args or {}) if args is None else args), MOST)
