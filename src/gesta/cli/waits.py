"""Finds what a run waits for, and the commands that a person types about it.

A wait is one thing that an open turn cannot go on without, such as a person's approval of a call. A turn is one message
with all that follows until its answer. A doubt is a call that may or may not have had its effect.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from gesta.cli.talk import FAILED, Stop, short
from gesta.decide.waiting import QUESTION, SENT, Waiting, doubts, told_doubts
from gesta.entry import Entry, utc_text
from gesta.kinds import BeginContent
from gesta.record.record import Record
from gesta.record.waits import answers_sent, with_sent
from gesta.state.run import RunState
from gesta.store import RunRow
from gesta.text.visible import call_text, remarks, visible

MOST = 1000
"""Greatest number of characters of a call that are shown; `gesta log RUN --all` shows all."""

UNDECLARED = '`{tool}` said nothing about its effect, so it was not run again; if it only reads: @tool(effect="pure")'
STANDING = {
    "resume": "The turn was left before its end; it goes on when it is resumed.",
    "deaths": "Too many processes died in this turn without bringing it on; it goes on when a person resumes it.",
    "copy": "This record is a copy, and the turn may go on in the one it was copied from. "
    "If this one is to go on: gesta adopt",
    "child": "A run below waits, or another process writes it; the turn goes on when that run does.",
}
"""Texts for waits that are not about a call, a question or a time."""
IN_DOUBT = "`{tool}` was started and left no result: nobody knows whether it happened, so it was not run again."
OF_SERVER = (
    "`{tool}` is a tool of the server {server!r}. To have such calls made again instead: gesta.mcp(..., "
    "effects={effects}) if a second call does no harm, or 'pure' if it only reads."
)
FIND_OUT = "Find out whether it happened. If it did not, say `failed` below instead of `done`, or `retry`."


@dataclass(frozen=True)
class Found:
    """A run with its state and its waits. Waits of its child runs (the runs that it started) are included."""

    record: Record
    row: RunRow
    state: RunState
    waits: tuple[Waiting, ...]
    root: str
    """Id of the topmost parent run, which is the run to resume. A run without a parent has its own id here."""
    hint: str
    """Address of the agent that took the last turn of the run `root`; `FILE.py:NAME` if it is not known."""

    def waiting(self, *kinds: str) -> list[Waiting]:
        """Return the waits of these kinds in this run. If there are none, return those of a child run.

        Raises Stop if several child runs have waits of these kinds.
        """
        found = [each for each in self.waits if each.what in kinds]
        found = [each for each in found if each.run == self.row.run] or found
        runs = dict.fromkeys(each.run for each in found)
        if len(runs) > 1:
            named = "".join(f"\n  {run}  {next(each.text for each in found if each.run == run)}" for run in runs)
            raise Stop(f"Something waits in {len(runs)} runs below {self.row.run}. Name one:{named}", FAILED)
        return found


async def find(record: Record, name: str) -> Found:
    """Return a run by its name, with its state and its waits. Raises NoRun.

    Args:
        name: an id, the start of one, `last`, or a session.
    """
    row = await record.find(name)
    above = {each.run: each for each in await record.store.runs(row.session)}
    root, met = row, set[str]()
    while root.parent_run in above and root.run not in met:
        met.add(root.run)
        root = above[root.parent_run]
    state = await record.state(row.run)
    if state.open:
        waits = [*await record.waiting(row.run), *told_doubts(row.run, state)]
    else:
        waits = with_sent(doubts(row.run, state), await answers_sent(record.store, [row.run]))
    return Found(record, row, state, tuple(waits), root.run, _hint(await record.read(root.run)))


def _hint(entries: list[Entry]) -> str:
    begins = [entry.content for entry in entries if isinstance(entry.content, BeginContent)]
    hints = [begin.agent.hint for begin in begins if begin.agent is not None and begin.agent.hint]
    return hints[-1] if hints else "FILE.py:NAME"


def shown(waiting: Waiting, args: dict[str, object] | None = None) -> str:
    """Return the call of a wait as Python source, such as `refund(number=42)`.

    Args:
        args: arguments to show in place of the recorded ones.
    """
    return short(call_text(waiting.tool or "", (waiting.args or {}) if args is None else args), MOST)


def settling(waits: Sequence[Waiting], named: str) -> list[str]:
    """Return the command lines with which a person answers the waits of a turn, such as `gesta approve RUN`.

    Args:
        named: the end of each command line: ` --record FILE`, or an empty text.
    """
    waits = [each for each in waits if each.answer_sent_at is None]
    doubts = [each for each in waits if each.what == "doubt"]
    approvals = [each for each in waits if each.what == "approval"]
    questions = [each for each in waits if each.what in QUESTION]
    found = [(each, "resolve", " done" + (f" --call {each.call}" if len(doubts) > 1 else "")) for each in doubts]
    found += [(each, "approve", f" --call {each.call}" if len(approvals) > 1 else "") for each in approvals]
    found += [
        (each, "answer", " ANSWER" + (f" --question {each.of}" if len(questions) > 1 else "")) for each in questions
    ]
    return [f"gesta {verb} {each.run}{rest}{named}" for each, verb, rest in found]


def why(each: Waiting) -> str:
    """Return the reason why a turn does not continue, as a sentence for a person."""
    if each.answer_sent_at is not None:
        return f"{_why(each)}\n{SENT.capitalize()}."
    return _why(each)


def why_forked(each: Waiting, base: str) -> str:
    """Return the reason why a fork of the run `base` does not continue, as a sentence for a person."""
    if each.what != "approval":
        return why(each)
    return f"{each.tool} (call {each.call}) is not on record of run {base}, and may have an effect."


def _choices(each: Waiting) -> list[str]:
    found = (each.schema or {}).get("enum")
    named = [visible(one if isinstance(one, str) else json.dumps(one)) for one in found] if type(found) is list else []
    return [f"The answer is one of: {short(', '.join(named), MOST)}"] if named else []


def _why(each: Waiting) -> str:  # mypy reports a kind of wait that is missing here
    match each.what:
        case "resume" | "deaths" | "copy" | "child":
            return STANDING[each.what]
        case "question" | "budget":
            asked = [f"A question: {visible(each.question)}", *_choices(each), *remarks(each.question)]
            return "\n".join(asked)
        case "timer":
            due = utc_text(each.due) if each.due is not None else each.tool
            return f"Waiting until {due}; `gesta work` goes on with it then."
        case "approval":
            refused = [f"An answer to it does not count: {visible(each.refused)}"] if each.refused else []
            asks = f"Waiting for approval of {shown(each)} (call {each.call})."
            return "\n".join([asks, *_reason(each), *each.remarks, *refused])
        case "doubt":
            text = (IN_DOUBT if each.declared or each.server else UNDECLARED).format(tool=visible(each.tool or ""))
            unknown = f"Outcome unknown: {shown(each)} (call {each.call}). {text}"
            return "\n".join([unknown, *_reason(each), *_of_server(each), *each.remarks])
        case "running":
            return (
                f"{shown(each)} (call {each.call}) may be tried again once its last attempt has ended; its process may "
                f"still be at work. If that has ended for certain: gesta gone {each.process}"
            )
    assert_never(each.what)


def _reason(each: Waiting) -> list[str]:
    return [f"The reason: {visible(each.why)}"] if each.why else []


def _of_server(each: Waiting) -> list[str]:
    """Return a line that says how to declare the effect of a server's tool, so that its calls leave no doubt.

    For any other tool, return an empty list. A tool that is a function can have a `reconcile`, which settles the doubt.
    """
    if each.server is None or each.effect != "once":
        return []
    tool, server = visible(each.tool or ""), visible(each.server.name)
    effects = {visible(each.server.tool or each.tool or ""): "idempotent"}
    return [OF_SERVER.format(tool=tool, server=server, effects=effects)]
