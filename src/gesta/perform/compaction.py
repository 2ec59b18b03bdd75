"""Makes a prompt that has grown too large smaller before it is sent.

An entry is one recorded fact of a run; its seq is its number there. A `compaction` entry names the entries that the
model is no longer shown; `decide` chooses them. Nothing is deleted. The agent's policy may name another agent that
summarises them. That agent is asked once, in a child run (a run of its own).
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gesta.agent import Agent
from gesta.decide.compaction import MADE, old_results, old_turns
from gesta.entry import Cause
from gesta.events import Outcome
from gesta.kinds import CompactionContent, Error
from gesta.log.journal import read
from gesta.message import Message, part_text
from gesta.perform.child import ChildTask, ChildWaits, hand_over
from gesta.perform.execution import LiveRun

LEFT_OUT = "(Earlier messages were left out here to save space, and there is no summary of them.)"
"""Text in place of turns that were left out, if the summarising agent wrote no summary."""
LONGEST = 8_000
"""Greatest number of characters of one tool result that the summarising agent is shown."""
CHILD = "compact"
TASK = "The conversation so far:\n\n"


async def compact(agent: Agent, live: LiveRun) -> None:
    """Leave out old tool results from a prompt that is too large. If there are none, leave out old turns.

    If nothing can be left out, note in the state that the next request has to be sent as it is.
    """
    live.prompt.close()
    results, turn = old_results(agent, live.state, live.prompt), live.state.turn
    for each in results:
        live.write(each, *range(each.from_seq, each.to_seq + 1))
    if results or turn is None:
        return
    turns = old_turns(agent, live.state, live.prompt)
    if turns is None:
        turn.smallest = turn.request_mark
    else:
        await _leave_out(agent, live, turns)


async def _leave_out(agent: Agent, live: LiveRun, made: CompactionContent) -> None:
    """Write the entry `made`, which leaves out old turns. A summarising agent, if there is one, first adds a summary.

    If that agent fails, a fixed sentence takes the place of the summary, and the entry's `error` says why.
    """
    rule, first, last = agent.policy.compact, made.from_seq, made.to_seq
    assert rule is not None
    causes: list[Cause] = [last]
    if rule.by is not None:
        text = TASK + transcript(await _messages(agent, live, first, last))
        handed = ChildTask(f"{CHILD}#{last}", f"{live.log.run}.{CHILD}.{last}", text, CHILD, last)
        try:
            ended = await hand_over(live, rule.by, handed)
        except ChildWaits as waits:  # no summary can be had now, but the turns are left out all the same
            run, why = waits.args
            made = replace(made, doubts=await live.host.call_off(live, handed.child) or None)
        else:
            assert ended.end is not None
            run, why, causes = ended.run, _why_no_summary(ended), [(ended.run, ended.end)]
            made = replace(made, summary=ended.answer, doubts=list(ended.doubts) or None)
        if why is not None:
            made = replace(made, summary=LEFT_OUT, error=Error(type="summary", message=why), run=run or None)
    live.write(made, *causes)


def _why_no_summary(ended: Outcome) -> str | None:
    """Return the reason why the summarising agent wrote no summary; `None` if it wrote one."""
    if ended.reason != "answered":
        return f"{ended.reason}: {ended.error.message}" if ended.error is not None else ended.reason
    return None if ended.answer and ended.answer.strip() else "it gave no text"


async def _messages(agent: Agent, live: LiveRun, first: int, last: int) -> Sequence[Message]:
    """Return the messages of the entries `first` to `last`. Earlier summaries in that range come first."""
    store, formatter = live.log.journal.store, agent.formats()
    entries = await read(store, live.log.run, first - 1, last)
    earlier = [entry.content.summary for entry in entries if isinstance(entry.content, CompactionContent)]
    before = [Message(role="user", text=text) for text in earlier if text not in (None, MADE, LEFT_OUT)]
    return before + formatter.format(entries, formatter.start())


def transcript(messages: Sequence[Message]) -> str:
    """Return messages as one text for the summarising agent."""
    lines = []
    for each in messages:
        who = f"result of {each.name}" if each.role == "tool" else each.role
        text = _shortened(each.text) if each.role == "tool" or each.observes else each.text
        beside = [f"[calls {call.name} with {call.args}]" for call in each.calls]
        beside += map(part_text, each.parts)
        lines.append("\n".join([f"{who}: {text}", *beside]))
    return "\n\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} [... {len(text) - LONGEST:,} more characters]"
