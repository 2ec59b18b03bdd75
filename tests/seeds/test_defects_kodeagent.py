"""What KodeAgent's histories get wrong, done right: each test is named in docs/coming-from/parity.md."""

import copy
import json
import pickle
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.costs import LINEAR, growth
from tests.validators.chat_completions import history_violations

import gesta
from gesta.address import open_record
from gesta.compat.kodeagent.codeact import CodeActHistoryFormatter
from gesta.compat.kodeagent.history import HistoryFormatter
from gesta.compat.kodeagent.kutils import make_user_message
from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.compat.kodeagent.models import ChatMessage
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.entry import Entry
from gesta.kinds import ChatCompletionContent, Content, ThoughtContent, ToolCallContent, ToolResultContent, UserContent

FORMATTERS = [ReActHistoryFormatter(), CodeActHistoryFormatter()]
both = pytest.mark.parametrize("made_by", FORMATTERS, ids=lambda one: one.name)
AT = datetime(2026, 11, 21, tzinfo=UTC)


def entries(*contents: Content) -> list[Entry]:
    return [Entry(run="r", seq=seq, at=AT, span=1, content=content) for seq, content in enumerate(contents, 1)]


def call(**more: Any) -> ToolCallContent:
    return ToolCallContent(**{"tool_name": "look", "tool_args": {"x": 1}, "tool_call_id": "c1"} | more)


def plain(messages: Sequence[LLMMessage]) -> list[dict[str, Any]]:
    return [dict(message) for message in messages]


async def turn(made_by: HistoryFormatter, *script: Any) -> list[Entry]:
    """The entries of one turn, with a tool that fails."""

    @gesta.tool(effect="pure")
    def look(x: int) -> str:
        """Look."""
        raise LookupError("nothing there")

    async with open_record(":memory:") as record:
        agent = gesta.Agent("desk", model=gesta.scripted(*script), tools=[look], formatter=made_by)
        await record.run(agent, "go", session="s")
        return await record.read((await record.find("s")).run)


@both
async def test_a_tool_that_raises_and_arguments_that_do_not_fit_are_answered_with_id_and_name(
    made_by: HistoryFormatter,
) -> None:
    history = made_by.history(await turn(made_by, gesta.call("look", x=1), gesta.call("look", y=2), "done"))
    told = [message for message in history if message["role"] == "tool"]
    calls = [made for message in history for made in message.get("tool_calls", ())]
    assert [message["tool_call_id"] for message in told] == [made["id"] for made in calls]
    assert len(told) == 2
    assert all(message["name"] == made["function"]["name"] for message, made in zip(told, calls, strict=True))
    assert "nothing there" in told[0]["content"]
    assert history_violations(plain(history)) == []


@both
async def test_an_agents_own_history_goes_in_again(made_by: HistoryFormatter) -> None:
    seen: list[Sequence[dict[str, Any]]] = []

    def answer(messages: Sequence[dict[str, Any]], _header: Any) -> Any:
        seen.append(messages)
        return gesta.call("look", x=1) if len(seen) % 2 else "done"

    @gesta.tool(effect="pure")
    def look(x: int) -> str:
        """Look."""
        return "seen"

    agent = gesta.Agent("desk", model=gesta.function(answer), tools=(tools := [look]), formatter=made_by)
    async with open_record(":memory:") as record:
        for text in ("go", "and again"):
            await record.run(agent, text, session="s")
        history = made_by.history(await record.read((await record.find("s")).run))
    assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant"] * 2
    assert [message["role"] for message in seen[-1]] == [message["role"] for message in history[:-1]]
    assert history_violations(plain(history)) == []
    assert tools == [look]


@both
def test_calls_that_are_alike_in_one_message_or_in_several_have_ids_of_their_own(made_by: HistoryFormatter) -> None:
    said, seen = ChatCompletionContent(output=""), ToolResultContent(tool_result="r", tool_call_id="c1")
    history = made_by.history(entries(said, call(), call(), seen, seen, said, call(), seen))
    ids = [made["id"] for message in history for made in message.get("tool_calls", ())]
    assert len(set(ids)) == len(ids) == 3
    assert history_violations([{"role": "user", "content": "go"}, *plain(history)]) == []


@both
def test_an_id_that_nobody_gave_is_eight_hex_characters_and_the_same_again(made_by: HistoryFormatter) -> None:
    made = [made_by._generate_tool_call_id(ChatMessage(role="assistant", action=name, args="{}")) for name in "aab"]
    history = made_by.history(entries(ChatCompletionContent(output=""), call(tool_call_id=None)))
    shown = history[0]["tool_calls"][0]["id"]
    assert all(re.fullmatch("call_[0-9a-f]{8}", each) for each in (*made, shown))
    assert made[0] == made[1]


@both
def test_a_call_shows_its_name_and_arguments_with_the_thought_beside_it_also_as_json(made_by: HistoryFormatter) -> None:
    said = ChatCompletionContent(output="Thought: two ways\nAction: look")
    made = made_by.history(entries(said, ThoughtContent(value="two ways"), call()))[0]
    again = json.loads(json.dumps(made))
    [shown] = again["tool_calls"]
    assert again["content"] == "two ways"
    assert "look" in json.dumps(shown)
    assert "x" in json.loads(shown["function"]["arguments"]) or "x=1" in shown["function"]["arguments"]


def test_a_message_of_role_tool_keeps_its_id() -> None:
    made = ReActHistoryFormatter().pydantic_to_dict(ChatMessage(role="tool", content="r", tool_call_id="c1"))
    assert (made["role"], made["content"], made["tool_call_id"]) == ("tool", "r", "c1")


def test_what_is_no_json_object_never_reaches_a_provider_as_arguments() -> None:
    for args in ("[1]", "5", "NaN", '{"a": NaN}', "{'a': 1}", "```json\n{}\n```", "", None):
        run = entries(ChatCompletionContent(output=""), call(tool_args={}, status="error", meta={"raw_args": args}))
        for made_by in FORMATTERS:
            made = made_by.history(run)[0]["tool_calls"][0]["function"]["arguments"]
            assert isinstance(json.loads(made, parse_constant=pytest.fail), dict)


def test_an_address_is_an_image_by_its_end_and_nothing_is_fetched() -> None:
    [message] = make_user_message("see", ["https://x.invalid/a.png.html", "https://x.invalid/a.png?size=1"])
    assert [part["type"] for part in message["content"]] == ["text", "text", "image_url"]


def test_metadata_is_kept_or_lost_with_the_message_and_counts_when_two_are_compared() -> None:
    made = LLMMessage(role="user", content="hi", _thought="t", files=["a"])
    assert made.copy() == copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert made != LLMMessage(role="user", content="hi", _thought="other", files=["a"])
    assert "update" not in made
    assert made.get("copy") is None
    assert made.pop("files") == ["a"]
    assert "files" not in made
    made.setdefault("_more", 1)
    made |= {"_most": 2}
    assert json.loads(json.dumps(made)) == {"role": "user", "content": "hi"}


@pytest.mark.slow
def test_many_messages_cost_what_each_costs() -> None:
    made_by = ReActHistoryFormatter()

    def format_one_by_one(count: int) -> None:
        state = made_by.start()
        for entry in every[:count]:
            made_by.format([entry], state)

    every = entries(*[UserContent(value="hi")] * 4_000)
    assert growth(format_one_by_one, 1_000) < LINEAR
