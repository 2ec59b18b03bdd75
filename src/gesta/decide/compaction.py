"""Chooses what to leave out of a prompt that is too large: first old results of tools, then whole old turns.

A compaction is an entry which says what is left out; nothing is deleted. The choice depends only on the policy, the
run's state and the prompt. So after a crash the same choice is made again. A *place* is the index of a message in the
prompt.
"""

from collections.abc import Iterator, Sequence

from gesta.agent import Agent
from gesta.kinds import CompactionContent
from gesta.policy import Compact
from gesta.prompt import Prompt
from gesta.state.account import header_tokens
from gesta.state.run import RunState

FREED = 0.1
"""Part of `Compact.at_tokens` that must be freed. A smaller gain is not worth a changed prompt, which the provider has
to process without its cache."""
MADE = "[This result was left out to save space. The call was made: do not make it again to read this.]"
"""Text that replaces a result that was left out, if its call may have had an effect."""


def old_results(agent: Agent, state: RunState, prompt: Prompt) -> list[CompactionContent]:
    """Return a compaction for each old tool result to leave out.

    The list is empty if leaving them out would free less than the share `FREED` of the policy's `at_tokens`.
    """
    rule = agent.policy.compact
    assert rule is not None
    places, found = list(_results(rule, prompt)), list[CompactionContent]()
    for place in places if _worth(rule, state, prompt, places) else ():
        shown = prompt.shown[place]
        tool, size = agent.tool(shown.tool or ""), _tokens(state, prompt, [place])
        said = None if tool is not None and tool.effect == "pure" else MADE
        first, last = min(shown.sources), max(shown.sources)
        found.append(CompactionContent(from_seq=first, to_seq=last, summary=said, tokens=size))
    return found


def old_turns(agent: Agent, state: RunState, prompt: Prompt) -> CompactionContent | None:
    """Return the compaction that leaves out old turns, without a summary.

    Return `None` if this would free less than the share `FREED` of the policy's `at_tokens`.
    """
    rule = agent.policy.compact
    assert rule is not None
    places = list(_turns(rule, state, prompt))
    if not places or not _worth(rule, state, prompt, places):
        return None
    seqs = [seq for place in places for seq in prompt.shown[place].sources]
    return CompactionContent(from_seq=min(seqs), to_seq=max(seqs), tokens=_tokens(state, prompt, places))


def hiding(state: RunState, prompt: Prompt, first: int, last: int, summary: str | None = None) -> CompactionContent:
    """Return a compaction that leaves out the entries `first` to `last`, with an estimate of their tokens."""
    prompt.close()
    shown = enumerate(prompt.shown)
    places = [at for at, each in shown if each.sources and first <= min(each.sources) and max(each.sources) <= last]
    tokens = _tokens(state, prompt, places)
    return CompactionContent(from_seq=first, to_seq=last, summary=summary, tokens=tokens)


def _results(rule: Compact, prompt: Prompt) -> Iterator[int]:
    """Yield the places of results larger than `rule.results_over` bytes, except the last `rule.keep_results` results.

    Results after the last reply are excluded, because no model has read them.
    """
    shown = prompt.shown
    read = max((place for place, each in enumerate(shown) if each.role == "assistant"), default=0)
    results = [place for place, each in enumerate(shown) if each.observes]
    for place in results[: max(0, len(results) - rule.keep_results)] if rule.results_over is not None else ():
        assert rule.results_over is not None
        seqs = shown[place].sources
        together = max(seqs) - min(seqs) < len(seqs)  # no other entry is between them
        large = len(prompt.blocks[place]) > rule.results_over and not shown[place].left_out
        if large and together and place < read:
            yield place


def _turns(rule: Compact, state: RunState, prompt: Prompt) -> Iterator[int]:
    """Yield the places of the messages of old turns: all but the last `rule.keep_turns + 1` turns.

    System messages before the first turn are not included.
    """
    kept = state.began[-rule.keep_turns - 1 :][0]
    leading = True
    for place, each in enumerate(prompt.shown):
        leading = leading and each.role == "system"
        if not leading and each.sources and max(each.sources) < kept:
            yield place


def _worth(rule: Compact, state: RunState, prompt: Prompt, places: Sequence[int]) -> bool:
    return _tokens(state, prompt, places) >= FREED * rule.at_tokens


def _tokens(state: RunState, prompt: Prompt, places: Sequence[int]) -> int:
    """Return the estimated number of tokens of the messages at these places.

    The tokens of the whole prompt, without its instructions and tools, are divided in proportion to the bytes of its
    messages.
    """
    sizes, whole = [len(block) for block in prompt.blocks], state.weight.tokens
    if state.weight.header is not None:
        whole = max(0, whole - header_tokens(state.weight.header))
    return whole * sum(sizes[place] for place in places) // max(1, sum(sizes))
