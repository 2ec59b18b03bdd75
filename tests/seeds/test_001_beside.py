"""The same random inputs to LangChain's own schema and to Gesta's: the same results, but for a fixed list of classes.

Skipped without langchain-core and langchain-classic; `.ci/originals` runs it. What differs is decided by the input, so a
difference that no class foresees fails, and so does a class that never occurs.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.seeds.tally import Tally

from gesta.compat import langchain as ours

theirs = pytest.importorskip("langchain_core.agents")
messages = pytest.importorskip("langchain_core.messages")
load = pytest.importorskip("langchain_core.load")
pads = pytest.importorskip("langchain_classic.agents.format_scratchpad")
tools = pytest.importorskip("langchain_classic.agents.output_parsers.tools")
tool_pad = pytest.importorskip("langchain_classic.agents.format_scratchpad.tools")
pytestmark = pytest.mark.filterwarnings("ignore")

CASES = 600
TEXTS = ["", "dry", "é \u2028", "Thought: x\nAction: look", "<final_answer>", "<tool>x</tool>", '{"a": 1}', "x" * 500]
VALUES: list[Any] = [
    None,
    True,
    0,
    -7,
    1.5,
    float("nan"),
    "",
    "dry",
    b"x",
    {1},
    (1, 2),
    [],
    {},
    {"é": [None]},
    {1: 2},
    {(1,): 2},
]
NAMES = ["look", "search_web", "a", "exponentiate"]


def value(dice: random.Random, depth: int = 2) -> Any:
    kind = dice.randrange(4 if depth else 2)
    if kind == 2:
        return [value(dice, depth - 1) for _ in range(dice.randrange(3))]
    if kind == 3:
        return {dice.choice(["a", "b", "é", "lc", "n"]): value(dice, depth - 1) for _ in range(dice.randrange(3))}
    return dice.choice(VALUES)


def message(dice: random.Random, calls: list[dict[str, Any]]) -> dict[str, Any]:
    more = {"additional_kwargs": {"k": dice.choice(TEXTS)}} if dice.random() < 0.2 else {}
    named = {"name": dice.choice([None, "n"]), "id": dice.choice([None, "i1"])}
    return {
        "content": dice.choice(TEXTS),
        "tool_calls": calls,
        **more,
        **{key: each for key, each in named.items() if each},
    }


Pair = tuple[Any, Any]
"""LangChain's object, and Gesta's of the same members."""


def steps(dice: random.Random) -> list[tuple[Pair, Any]]:
    """Return actions with their observations; calls of one reply share its message, and a last step may stand twice."""
    found: list[tuple[Pair, Any]] = []
    for turn in range(dice.randrange(1, 4)):
        tool, log = dice.choice(NAMES), dice.choice(TEXTS)
        tool_input: Any = dice.choice([dice.choice(TEXTS), {"q": dice.choice(TEXTS), "n": turn}])
        kind = dice.randrange(3)
        if kind == 0:
            plain = theirs.AgentAction(tool, tool_input, log), ours.AgentAction(tool, tool_input, log)
            found.append((plain, value(dice)))
            continue
        ids = [f"c{turn}-{n}" for n in range(dice.randrange(1, 3) if kind == 2 else 0)]
        calls = [{"name": tool, "args": {"n": n}, "id": id_, "type": "tool_call"} for n, id_ in enumerate(ids)]
        said = message(dice, calls)
        pair = (messages.AIMessage(**said), ours.AIMessage(**said))
        if kind == 1:
            logged: dict[str, Any] = {"tool": tool, "tool_input": tool_input, "log": log}
            made = [cls(**logged, message_log=[one]) for cls, one in zip(
                (theirs.AgentActionMessageLog, ours.AgentActionMessageLog), pair, strict=True)]  # fmt: skip
            found.append(((made[0], made[1]), value(dice)))
        answered = calls if dice.random() < 0.8 else calls[1:]
        for call in answered:
            fields: dict[str, Any] = {"tool": tool, "tool_input": call["args"], "log": log, "tool_call_id": call["id"]}
            native = tools.ToolAgentAction(**fields, message_log=[pair[0]])
            found.append(((native, ours.AgentActionMessageLog(**fields, message_log=[pair[1]])), value(dice)))
    return found + found[-1:] if dice.random() < 0.1 else found


Made = tuple[Any, ...]
"""A function, and what it is given."""


class Pairs(Tally):
    """What two functions make of the same."""

    def results(self, want: Made, got: Made, foreseen: Sequence[str] = ()) -> None:
        """Compare two results, or the errors in place of them."""
        self.compare(result_of(*want), result_of(*got), foreseen)


def result_of(make: Callable[..., Any], *given: Any) -> Any:
    try:
        return make(*given)
    except (TypeError, ValueError) as error:
        return type(error).__name__


def no_json_below_lc(each: Any, *, below: bool = False) -> bool:
    """Return whether LangChain cannot write a value: below a member `lc` it leaves everything to `json`."""
    match each:
        case dict():
            inner = below or "lc" in each
            odd = any(not isinstance(key, str | int | float | bool | None) for key in each)
            return (below and odd) or (not odd and any(no_json_below_lc(one, below=inner) for one in each.values()))
        case list() | tuple():
            return any(no_json_below_lc(one, below=below) for one in each)
    return below and isinstance(each, bytes | set)


def test_lc_json_is_the_same() -> None:
    tally = Pairs()
    for seed in range(CASES):
        dice = random.Random(seed)
        for (their, own), seen in steps(dice):
            tally.results((load.dumps, their), (ours.to_lc, own))
            tally.results((load.dumps, their), (ours.to_lc, their))
            tally.results((partial(load.dumps, pretty=True), their), (partial(ours.to_lc, pretty=True), own))
            values = {"output": seen, "more": value(dice)}
            foreseen = ["what json cannot write below `lc` is a stub"] if no_json_below_lc(values) else []
            ends = theirs.AgentFinish(values, "l"), ours.AgentFinish(values, "l")
            tally.results((load.dumps, ends[0]), (ours.to_lc, ends[1]), foreseen)
    print(tally.told("LangChain, actions as JSON"))
    assert tally.plain > 3 * CASES
    assert set(tally.classes) == {"what json cannot write below `lc` is a stub"}


def test_messages_of_actions_and_steps_are_the_same() -> None:
    tally = Pairs()
    for seed in range(CASES):
        for (their, own), seen in steps(random.Random(seed)):
            foreseen = ["the answer of a native call keeps the call's id"] if getattr(own, "tool_call_id", None) else []
            step = theirs.AgentStep(action=their, observation=seen)
            tally.results((list, their.messages), (list, own.messages))
            tally.results((list, step.messages), (list, ours.AgentStep(own, seen).messages), foreseen)
            assert ours.AgentStep(their, seen).messages == ours.AgentStep(own, seen).messages
    print(tally.told("LangChain, messages of actions and steps"))
    assert tally.plain > CASES
    assert set(tally.classes) == {"the answer of a native call keeps the call's id"}


def test_scratchpads_are_the_same() -> None:
    tally = Pairs()
    for seed in range(2 * CASES):
        made = steps(random.Random(seed))
        their = [(pair[0], seen) for pair, seen in made]
        own = [(pair[1], seen) for pair, seen in made]
        words = ["values are JSON, not Python's repr"] if any(not isinstance(seen, str) for _, seen in own) else []
        plain = (
            ["an observation of a plain action is shown"] if any(each[0].type == "AgentAction" for each in own) else []
        )
        logs = [each for each, _ in own if each.type != "AgentAction"]
        replies = {id(each.message_log[0]): each.message_log[0] for each in logs}.values()
        asked = sum(max(len(reply.tool_calls), 1) for reply in replies)
        open_ = ["a call without a step is answered"] if asked != len(logs) else []
        equal = ["equal replies stay two"] if len({id(pair) for pair, _ in made}) < len(made) else []
        without = ["the answer to a reply without calls is a function message"]
        bare = without if any(not reply.tool_calls for reply in replies) else []
        inputs = any(isinstance(each.tool_input, dict) for each, _ in own)
        tags = any("<final_answer>" in str(each) for pair in own for each in (pair[0].tool_input, pair[1]))
        marked = words + ["values are JSON, not Python's repr"] * inputs + ["the tag of an answer is escaped"] * tags
        for name, foreseen in [
            ("format_log_to_str", words),
            ("format_log_to_messages", words),
            ("format_xml", marked),
            ("format_to_openai_function_messages", plain),
        ]:
            tally.results((getattr(pads, name), their), (getattr(ours, name), own), foreseen)
            assert getattr(ours, name)(their) == getattr(ours, name)(own)
        pair = (tool_pad.format_to_tool_messages, their), (ours.format_to_tool_messages, own)
        tally.results(*pair, plain + open_ + equal + bare)
    print(tally.told("LangChain, scratchpads"))
    assert tally.plain > CASES
    assert set(tally.classes) == {
        "values are JSON, not Python's repr",
        "the tag of an answer is escaped",
        "an observation of a plain action is shown",
        "a call without a step is answered",
        "equal replies stay two",
        "the answer to a reply without calls is a function message",
    }
