"""A prompt that has grown too large is made smaller before it is sent: what is left out is on record as that.

What is left out follows from the policy, the folded state and the prompt, so a run that was killed goes on alike. A
summary is the answer of another agent in a child run: it is bought once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gesta.agent import Agent
from gesta.calling import ChildWaits, Handed, hand_over
from gesta.desk import Desk
from gesta.entry import Cause
from gesta.kinds import CompactionContent
from gesta.log import read
from gesta.message import Message, part_text
from gesta.outcome import Outcome
from gesta.policy import Compact
from gesta.turn import UNSUMMED

LEAST = 0.1
"""Part of the bound that has to be freed: a prompt that changes is a prompt that no provider has in its cache."""
MADE = "[This result was left out to save space. The call was made: do not make it again to read this.]"
"""In place of a result whose call may have had an effect."""
LEFT_OUT = "(Earlier messages were left out here to save space, and there is no summary of them.)"
"""In place of turns that an agent was to sum up, and did not."""
LONGEST = 8_000
"""Characters of a result that a summary is made from: larger ones are the reason for it."""
CHILD = "compact"
TASK = "The conversation so far:\n\n"


async def compact(agent: Agent, desk: Desk) -> None:
    """Leave out what the policy says, if the next prompt would be too large."""
    rule = agent.policy.compact
    if rule is None or desk.state.weight.tokens <= rule.at_tokens:
        return
    desk.prompt.close()
    places = list(_results(rule, desk))
    if _worth(rule, desk, places):
        for place in places:
            shown = desk.prompt.shown[place]
            seqs, tool = shown.sources, agent.tool(shown.tool or "")
            said = None if tool is not None and tool.effect == "pure" else MADE
            extra = {"tokens": _tokens(desk, [place])}
            desk.write(CompactionContent(from_seq=min(seqs), to_seq=max(seqs), summary=said, extra=extra), *seqs)
        desk.absorb()
    if desk.state.weight.tokens <= rule.at_tokens:
        return
    places = list(_turns(rule, desk))
    if places and _worth(rule, desk, places):
        await _leave_out(agent, desk, places)
        desk.absorb()


def _results(rule: Compact, desk: Desk) -> Iterator[int]:
    """Give the places of old results that are large; what came since the last reply stays, for nobody has read it."""
    shown = desk.prompt.shown
    read = max((place for place, each in enumerate(shown) if each.role == "assistant"), default=0)
    results = [place for place, each in enumerate(shown) if each.observes]
    for place in results[: max(0, len(results) - rule.keep_results)] if rule.results_over is not None else ():
        assert rule.results_over is not None
        seqs = shown[place].sources
        together = max(seqs) - min(seqs) < len(seqs)  # nothing else lies between them
        large = len(desk.prompt.blocks[place]) > rule.results_over and not shown[place].left_out
        if large and together and place < read:
            yield place


def _turns(rule: Compact, desk: Desk) -> Iterator[int]:
    """Give the places of old turns; what the application said before the first stays."""
    kept = desk.state.began[-rule.keep_turns - 1 :][0]
    leading = True
    for place, each in enumerate(desk.prompt.shown):
        leading = leading and each.role == "system"
        if not leading and each.sources and max(each.sources) < kept:
            yield place


def _worth(rule: Compact, desk: Desk, places: Sequence[int]) -> bool:
    return _tokens(desk, places) >= LEAST * rule.at_tokens


def _tokens(desk: Desk, places: Sequence[int]) -> int:
    """Guess the tokens of some blocks from those of the whole prompt."""
    sizes = [len(block) for block in desk.prompt.blocks]
    return desk.state.weight.tokens * sum(sizes[place] for place in places) // max(1, sum(sizes))


async def _leave_out(agent: Agent, desk: Desk, places: Sequence[int]) -> None:
    """Leave turns out; with a summary, if an agent gives one, and else with the words that there is none."""
    seqs = [seq for place in places for seq in desk.prompt.shown[place].sources]
    first, last = min(seqs), max(seqs)
    extra: dict[str, Any] = {"tokens": _tokens(desk, places)}
    rule = agent.policy.compact
    assert rule is not None
    summary: str | None = None
    causes: list[Cause] = [last]
    if rule.by is not None:
        text = TASK + told(await _messages(agent, desk, first, last))
        handed = Handed(f"{CHILD}#{last}", f"{desk.log.run}.{CHILD}.{last}", text, CHILD, last)
        try:
            ended = await hand_over(desk, rule.by, handed)
        except ChildWaits as waits:  # nobody sums it up now; it is on record all the same
            run, why = waits.args
        else:
            assert ended.end is not None
            run, why, causes = ended.run, _lacking(ended), [(ended.run, ended.end)]
            summary = ended.answer
        if why is not None:
            summary, extra[UNSUMMED] = LEFT_OUT, {"reason": why, "run": run}
    desk.write(CompactionContent(from_seq=first, to_seq=last, summary=summary, extra=extra), *causes)


def _lacking(ended: Outcome) -> str | None:
    """Say why a child run gave no summary; none where it gave one."""
    if ended.reason != "answered":
        return f"{ended.reason}: {ended.error.message}" if ended.error is not None else ended.reason
    return None if ended.answer and ended.answer.strip() else "it gave no text"


async def _messages(agent: Agent, desk: Desk, first: int, last: int) -> Sequence[Message]:
    """Give the messages of a range, an earlier summary too."""
    store, formatter = desk.log.journal.store, agent.formats()
    entries = await read(store, desk.log.run, first - 1, last)
    earlier = [entry.content.summary for entry in entries if isinstance(entry.content, CompactionContent)]
    before = [Message(role="user", text=text) for text in earlier if text not in (None, MADE, LEFT_OUT)]
    return before + formatter.format(entries, formatter.start())


def told(messages: Sequence[Message]) -> str:
    """Write messages as a text that somebody reads who did not take part."""
    lines = []
    for each in messages:
        who = f"result of {each.name}" if each.role == "tool" else each.role
        text = _cut(each.text) if each.role == "tool" or each.observes else each.text
        beside = [f"[calls {call.name} with {call.args}]" for call in each.calls]
        beside += map(part_text, each.parts)
        lines.append("\n".join([f"{who}: {text}", *beside]))
    return "\n\n".join(lines)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} [... {len(text) - LONGEST:,} more characters]"
