"""What waits for a person, in a run and in the child runs below it, each with the run that the answer goes to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gesta.cli.talk import FAILED, Stop
from gesta.outcome import Outcome
from gesta.pending import WAITS, Pending
from gesta.record import Record
from gesta.standing import RunState
from gesta.store import RunRow


@dataclass(frozen=True)
class Open:
    """A call that waits."""

    run: str
    call: Pending
    what: Literal["approval", "doubt", "running"]
    declared: bool = True
    """Whether its tool said what its effect is."""


async def open_calls(record: Record, outcome: Outcome) -> list[Open]:
    """Find the calls that a turn waits for, down through its child runs."""
    found: list[Open] = []
    for each in outcome.waiting:
        run = each.run or outcome.run
        if each.what == "child":
            found += await _below(record, run)
            continue
        call = (await record.state(run)).calls.get(each.call)
        if call is not None:
            found.append(Open(run, call, each.what, each.declared))
    return found


async def _below(record: Record, run: str) -> list[Open]:
    """Find the calls that wait in a child run, as somebody sees it who does not write it."""
    found: list[Open] = []
    state = await record.state(run)
    if not state.open:
        return found
    for call in state.calls.values():
        if awaits_approval(call):
            found.append(Open(run, call, "approval"))
        elif call.last is not None and call.last.verdict is None and call.last.doubt != WAITS:
            found.append(Open(run, call, "doubt"))
    session = state.opened.session if state.opened is not None else None
    for row in await record.store.runs(session):
        if row.parent_run == run:
            found += await _below(record, row.run)
    return found


def awaits_approval(call: Pending) -> bool:
    """Say whether a person was asked about a call and has not answered."""
    return call.asked is not None and call.approval is None


async def where_it_waits(record: Record, row: RunRow, waits: Callable[[RunState], bool]) -> tuple[RunRow, RunRow]:
    """Find the run at or below a run in which something waits, and the root run that is to be resumed then.

    Raises:
        Stop: something waits in several.
    """
    rows = await record.store.runs(row.session)
    by_id = {each.run: each for each in rows}
    root = row
    while root.parent_run in by_id:
        root = by_id[root.parent_run]
    if waits(await record.state(row.run)):
        return row, root
    left, found = [row.run], list[RunRow]()
    while left:
        above = left.pop()
        below = [each for each in rows if each.parent_run == above]
        left += [each.run for each in below]
        found += [each for each in below if waits(await record.state(each.run))]
    if len(found) > 1:
        named = "".join(f"\n  {each.run}  {each.name}" for each in found)
        raise Stop(f"Something waits in {len(found)} runs below {row.run}. Name one:{named}", FAILED)
    return (found[0] if found else row), root
