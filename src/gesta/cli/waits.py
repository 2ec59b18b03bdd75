"""What waits for a person, in a run and in the child runs below it, each with the run that the answer goes to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gesta.cli.talk import FAILED, Stop
from gesta.entry import utc_text
from gesta.events import Outcome
from gesta.kinds import TimerContent
from gesta.record.inbox import refusals
from gesta.record.record import Record
from gesta.state.calls import WAITS, OpenCall, Try
from gesta.state.run import RunState
from gesta.store import RunRow


@dataclass(frozen=True)
class Open:
    """A call, a question or a timer that a turn waits for."""

    run: str
    what: Literal["approval", "doubt", "running", "question", "timer", "resume", "deaths", "copy"]
    seq: int
    """Of the call, the question or the timer."""
    call: OpenCall | None = None
    text: str = ""
    """Of a question; of a timer, when it is due."""
    declared: bool = True
    """Whether the call's tool said what its effect is."""
    refused: str = ""
    """Why the last answer about the call does not count; empty if nobody gave such an answer."""


async def open_calls(record: Record, outcome: Outcome) -> list[Open]:
    """Find what a turn waits for, down through its child runs."""
    found: list[Open] = []
    for each in outcome.waiting:
        run = each.run or outcome.run
        state = await record.state(run)
        call = state.call(each.call)
        if each.what == "child":
            found += await _below(record, run)
        elif each.what == "question" or each.what == "budget":  # noqa: PLR1714 - mypy narrows by this alone
            asked = state.questions.get(each.of or 0)
            found += [Open(run, "question", each.of or 0, call, asked.value)] if asked is not None else []
        elif each.what == "timer":
            notes = (note for note in state.steps.notes.values() if note.seq == each.of)
            due = next((note.content.due_at for note in notes if isinstance(note.content, TimerContent)), None)
            found.append(Open(run, "timer", each.of or 0, None, utc_text(due) if due is not None else each.tool or ""))
        elif call is None:
            found.append(Open(run, each.what, each.call or 0, None))
        else:
            refused = await _refused(record, run, call) if each.what == "approval" else ""
            found.append(Open(run, each.what, call.seq, call, declared=each.declared, refused=refused))
    return found


async def _below(record: Record, run: str) -> list[Open]:
    """Return what waits in a child run, as a process sees it that does not write the run."""
    state = await record.state(run)
    if not state.open:
        return []
    found = [Open(run, "question", seq, None, asked.value) for seq, asked in state.questions.items()]
    for call in state.calls.values():
        if awaits_approval(call):
            found.append(Open(run, "approval", call.seq, call, refused=await _refused(record, run, call)))
        elif call.last is not None and call.last.doubt != WAITS and call.last.verdict != "done":
            found.append(Open(run, _about(call.last), call.seq, call))
    session = state.opened.session if state.opened is not None else None
    for row in await record.store.runs(session):
        if row.parent_run == run:
            found += await _below(record, row.run)
    return found


def _about(last: Try) -> Literal["doubt", "running"]:
    """Return which question about an attempt is open: its outcome, or first whether it has ended."""
    if last.verdict is not None:  # it goes on by itself when the attempt has ended
        return "running"
    return "doubt" if last.doubt is not None or last.over or last.looked else "running"


async def _refused(record: Record, run: str, call: OpenCall) -> str:
    """Read why the last answer about a call does not count."""
    return next(reversed(await refusals(record, run, call.asked or 0)), "")


def awaits_approval(call: OpenCall) -> bool:
    """Return whether a person was asked about a call and has not answered."""
    return call.asked is not None and call.approval is None


async def where_it_waits(record: Record, row: RunRow, waits: Callable[[RunState], bool]) -> tuple[RunRow, RunRow]:
    """Find the run at or below a run in which something waits, and the root run that is to be resumed then.

    Raises:
        Stop: several runs wait for something.
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
