"""The same random inputs to KodeAgent's own messages and formatters and to Gesta's: the same results, but for a list.

Skipped without kodeagent; `.ci/originals kodeagent` runs it. What differs is decided by the input, so a difference that
no class foresees fails, and so does a class that never occurs. Ids of calls are drawn anew there, and left out here.
"""

import json
import os
import random
from typing import Any

import pytest
from tests.seeds.tally import Tally

from gesta.compat import kodeagent as ours

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the network for prices when imported
theirs = pytest.importorskip("kodeagent.history_formatter")
models = pytest.importorskip("kodeagent.models")
pytestmark = pytest.mark.filterwarnings("ignore")

CASES = 1500
TEXTS = ["", "dry", "é \u2028", "FINISH", "a\nb", '{"a": 1}', "x" * 300]
ARGS = [
    *(
        "{}",
        '{"x": 1}',
        '{"x":1}',
        '{"é": "é"}',
        "{'x': 1}",
        "```json\n{}\n```",
        '{"x": 1,}',
        'so: {"x": 1}.',
        "{x: 1}",
    ),
    *('[{"x": 1}]', "[1]", "5", "", " ", "no", '{"x": NaN}', '{"x": 1', '{"x": [1'),
]
BOTH = ("ReActHistoryFormatter", "CodeActHistoryFormatter")


def fields(dice: random.Random) -> tuple[str, dict[str, Any]]:
    """Return the name of a class of messages, and fields for one."""
    kind = dice.choice(["ReActChatMessage", "CodeActChatMessage", "ChatMessage"])
    if kind == "ChatMessage":
        role = dice.choice(["user", "assistant", "system", "tool"])
        return kind, {"role": role, "content": dice.choice([*TEXTS, *([None, 5] if role != "user" else [5])])}
    found: dict[str, Any] = {"thought": dice.choice(TEXTS), "task_successful": dice.random() < 0.3}
    if dice.random() < 0.5:
        found["final_answer"] = dice.choice(TEXTS)
    if kind == "CodeActChatMessage":
        return kind, {**found, "code": dice.choice([None, "", " ", "print(1)", 'say("é")'])}
    return kind, {**found, "action": dice.choice(["look", "FINISH", "search_web"]), "args": dice.choice([None, *ARGS])}


def made(module: Any, kind: str, given: dict[str, Any]) -> Any:
    try:
        return getattr(module, kind)(**given)
    except ValueError:
        return ValueError


def shown(message: Any) -> Any:
    """Return a message for a provider with its metadata, as plain values, without ids."""
    names = ("_thought", "_task_successful", "files", "_action", "_args", "_code")
    metadata = {name: message.get(name) for name in names}
    return json.loads(json.dumps([dict(message), metadata])), "_action" in message, "_code" in message


def without_ids(found: Any) -> Any:
    for call in found[0][0].get("tool_calls", ()):
        assert call.pop("id").startswith("call_")
    return found


class Dumped(Tally):
    """What two libraries make of the same, compared as JSON."""

    def dumps(self, want: Any, got: Any, foreseen: list[str], given: Any) -> bool:
        """Compare two results."""
        their, own = (json.dumps(each, default=str, sort_keys=True) for each in (want, got))
        return self.compare(their, own, foreseen, given)


def of_args(args: Any) -> list[str]:
    """Return the classes in which arguments may differ."""
    found = ["what JSON lacks is text in arguments"] if "NaN" in str(args) else []
    return found + ["what was cut off is not repaired"] * str(args).startswith(('{"x": 1', '{"x": [1')) * (
        "}" not in str(args)
    )


def test_messages_are_made_refused_and_dumped_alike() -> None:
    tally = Dumped()
    for seed in range(CASES):
        kind, given = fields(random.Random(seed))
        want, got = made(models, kind, dict(given)), made(ours, kind, dict(given))
        foreseen = of_args(given.get("args"))
        if tally.dumps(want is ValueError, got is ValueError, foreseen, given) and want is not ValueError:
            tally.dumps(want.model_dump(), got.model_dump(), foreseen, given)
            tally.dumps(str(want), str(got), foreseen, given)
            assert getattr(want, "is_final", None) == getattr(got, "is_final", None)
    print(tally.told("KodeAgent, messages"))
    assert tally.plain > CASES
    assert set(tally.classes) == {"what JSON lacks is text in arguments", "what was cut off is not repaired"}


def test_formatters_make_the_same_of_the_same_messages() -> None:
    tally = Dumped()
    for seed in range(CASES):
        kind, given = fields(random.Random(seed))
        want, got = made(models, kind, dict(given)), made(ours, kind, dict(given))
        if ValueError in (want, got):
            continue
        for name in BOTH:
            their, own = getattr(theirs, name)(), getattr(ours, name)()
            foreseen = of_args(given.get("args"))
            empty = given.get("final_answer") == "" and want.final_answer == ""
            foreseen += ["an empty answer is an answer"] * empty
            foreseen += ["no content is an empty text"] * (given.get("content", "") is None)
            foreseen += ["a message of another kind of agent is shown by what it holds"] * (
                (kind, name) in [("CodeActChatMessage", BOTH[0]), ("ReActChatMessage", BOTH[1])]
            )
            calls = bool(their.should_format_as_tool_call(want)), own.should_format_as_tool_call(got)
            tally.dumps(calls[0], calls[1], foreseen, given)
            both = [without_ids(shown(one.pydantic_to_dict(msg))) for one, msg in ((their, want), (own, got))]
            tally.dumps(both[0], both[1], foreseen, (name, given))
            if calls == (True, True):
                states: list[dict[str, Any]] = [{"last_tool_call_id": None, "pending_tool_call": False} for _ in "ab"]
                their.format_tool_call(want, states[0])
                own.format_tool_call(got, states[1])
                assert states[0]["pending_tool_call"] == states[1]["pending_tool_call"]
                assert None not in (states[0]["last_tool_call_id"], states[1]["last_tool_call_id"])
    print(tally.told("KodeAgent, formatters"))
    assert tally.plain > CASES
    assert set(tally.classes) == {
        "what JSON lacks is text in arguments",
        "an empty answer is an answer",
        "no content is an empty text",
        "a message of another kind of agent is shown by what it holds",
    }


def test_messages_for_a_provider_behave_alike_as_dicts() -> None:
    tally, keys = Dumped(), ["role", "content", "name", "_thought", "files", "other"]
    for seed in range(CASES):
        dice = random.Random(seed)
        start = {dice.choice(keys): dice.choice(TEXTS) for _ in range(3)}
        pair = theirs.LLMMessage(**start), ours.LLMMessage(**start)
        for _ in range(dice.randrange(6)):
            key, value, more = dice.choice(keys), dice.choice(TEXTS), {dice.choice(keys): "m"} if seed % 2 else {}
            match dice.randrange(4):
                case 0:
                    for one in pair:
                        one[key] = value
                case 1:
                    for one in pair:
                        one.update({key: value}, **more)
                case 2:
                    for one in pair:
                        one.update([(key, value)])
                case _:
                    for one in pair:
                        one.update(**{key: value})
        for key in keys:
            tally.dumps(key in pair[0], key in pair[1], [], start)
            tally.dumps(pair[0].get(key, "none"), pair[1].get(key, "none"), [], start)
        tally.dumps(dict(pair[0]), dict(pair[1]), [], start)
        tally.dumps(json.dumps(pair[0]), json.dumps(pair[1]), [], start)
        tally.dumps(len(pair[0]), len(pair[1]), [], start)
    print(tally.told("KodeAgent, messages for a provider"))
    assert tally.plain > 10 * CASES
    assert not tally.classes
