"""The model that answers as a recorded run did."""

import hashlib
import zlib
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import gesta
from gesta.entry import Entry
from gesta.errors import AgentError, ScriptExhausted
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Error,
    FaultContent,
    RequestContent,
    RequestHeaderContent,
    ThoughtContent,
    ToolCallContent,
    UserContent,
)
from gesta.model.request import Envelope, Reply, ReplyCall, Request
from gesta.models.hosted import hosted
from gesta.models.replay import from_messages, recorded, replay, said
from gesta.models.scripted import call

BODY = b'{"messages":[]}'
DIGEST = hashlib.sha256(BODY).hexdigest()


def run(*contents: tuple[Any, tuple[Any, ...]], name: str = "r-1") -> list[Entry]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Entry(run=name, seq=seq, at=at, span=1, content=content, causes=causes)
        for seq, (content, causes) in enumerate(contents, 1)
    ]


RUN = run(
    (RequestHeaderContent(tools=[{"name": "weather"}]), ()),
    (UserContent(value="Rome?"), ()),
    (RequestContent(header=1, blocks=[], body_digest="0" * 64), (2,)),
    (FaultContent(of=3, error=Error(type="http-503", message="busy")), (3,)),
    (RequestContent(header=1, blocks=[], body_digest=DIGEST, number=2), (2,)),
    (ChatCompletionContent(output="I look.", model="gpt-x", finish_reason="tool_calls", usage={"n": 1}), (5,)),
    (ThoughtContent(value="Hm."), (6,)),
    (ToolCallContent(tool_name="weather", tool_args={"city": "Rome"}, tool_call_id="c1"), (6,)),
    (ToolCallContent(tool_name="odd", tool_args={}, status="error", meta={"raw_args": '{"ci'}), (6,)),
    (RequestContent(header=1, blocks=[], body_digest="1" * 64), (6,)),
    (ChatCompletionContent(output="Dry."), (10,)),
    (AssistantContent(value="Dry."), (11,)),
)


def request_for(answered: int, digest: str = "") -> Request:
    envelope = Envelope(BODY[:-2], b",", BODY[-2:])
    return Request(header=RequestHeaderContent(), envelope=envelope, blocks=[], answered=answered, digest=digest)


async def ask(model: Any, answered: int = 0, digest: str = "") -> Reply:
    parser = model.parser()
    async with aclosing(model.send(request_for(answered, digest))) as pieces:
        async for piece in pieces:
            parser.feed(piece)
    found: Reply = parser.close()
    return found


@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_answers_again_with_its_calls_and_thoughts(stream):
    model = replay(reversed(RUN), stream=stream)
    assert await ask(model) == Reply(
        text="I look.",
        thought="Hm.",
        calls=(ReplyCall("weather", '{"city":"Rome"}', "c1"), ReplyCall("odd", '{"ci')),
        model="gpt-x",
        finish_reason="tool_calls",
        usage={"n": 1},
        keep=False,
    )
    assert await ask(model, 1) == Reply(text="Dry.", keep=False), "what was not on record is not made up"
    with pytest.raises(ScriptExhausted, match="Model 'replay' was asked for answer 3 but holds 2"):
        await ask(model, 2)


async def test_strict_demands_the_body_that_was_answered():
    model = replay(RUN, strict=True)
    assert (await ask(model)).text == "I look."
    assert (await ask(model, digest=DIGEST)).text == "I look."
    with pytest.raises(AgentError) as found:
        await ask(model, 1)
    assert str(found.value) == (
        f"Strict replay: answer 2 (r-1.11) was given to a request with SHA-256 {'1' * 64}, and this request has "
        f"{DIGEST}. Prompt, tools, settings or model differ; `gesta diff` says where, and strict=False replays all "
        "the same."
    )


RAW = (
    b'data: {"model":"m","choices":[{"delta":{"content":"Dry.","reasoning":"Hm."},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"n":2}}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize(
    ("packed", "output", "expected"),
    [
        (
            zlib.compress(RAW),
            "Dry.",
            Reply(text="Dry.", thought="Hm.", model="m", finish_reason="stop", usage={"n": 2}),
        ),
        (zlib.compress(RAW), "Changed.", Reply(text="Changed.", model="gpt-x", keep=False)),
        (zlib.compress(b'{"type":"message","content":[]}'), "Dry.", Reply(text="Dry.", model="gpt-x", keep=False)),
        (b"no zlib", "Dry.", Reply(text="Dry.", model="gpt-x", keep=False)),
    ],
)
async def test_recorded_bytes_are_answered_as_they_came(packed, output, expected):
    entries = run(
        (ChatCompletionContent(output=output, model="gpt-x", meta={"raw_zlib": packed}), ()),
        (ThoughtContent(value="read from the text, as the bytes show"), (2,)),
    )
    model = replay(entries)
    assert await ask(model) == expected
    pieces = [piece async for piece in model.send(request_for(0))]
    assert (pieces == [RAW]) == (expected.usage is not None)


async def test_the_model_keeps_its_name_so_that_bodies_are_the_same():
    header = RequestHeaderContent(meta={"model": "mistral:m:1", "settings": {"seed": 1}})
    model = replay(run((header, ()), (ChatCompletionContent(output="a"), ())))
    assert model.name == "mistral:m:1"
    original = hosted("mistral:m:1", key="k")
    assert model.envelope(header) == original.envelope(header)
    assert model.encoder == original.encoder
    assert replay(RUN, name="mine").name == "mine"


def test_strict_needs_requests_on_record():
    with pytest.raises(AgentError, match=r"Model 'replay': the request that r-1.1 answered is not on record"):
        replay(run((ChatCompletionContent(output="a"), ())), strict=True)
    with pytest.raises(AgentError, match="these items have none"):
        replay(["a"], strict=True)


def test_entries_of_a_foreign_log_belong_to_the_last_completion():
    entries = run(
        (ThoughtContent(value="before all"), ()),
        (ToolCallContent(tool_name="lost", tool_args={}), ()),
        (ChatCompletionContent(output="a"), ()),
        (ToolCallContent(tool_name="f", tool_args={}), ()),
        (ThoughtContent(value="one"), (("other-run", 3),)),
        (ChatCompletionContent(output="b"), ()),
        (ToolCallContent(tool_name="g", tool_args={}), (3,)),
        (ThoughtContent(value="x"), ()),
        (ThoughtContent(value="y"), ()),
    )
    found = [one.reply for one in recorded(entries)]
    assert [[made.name for made in one.calls] for one in found] == [["f", "g"], []]
    assert [one.thought for one in found] == [None, "x\ny"]


def test_what_an_agent_read_from_the_text_is_not_said_twice():
    entries = run(
        (RequestHeaderContent(), ()),
        (RequestContent(header=1, blocks=[], body_digest=DIGEST), ()),
        (ChatCompletionContent(output="Thought: look\nAction: weather"), (2,)),
        (ThoughtContent(value="look"), (3,)),
        (ToolCallContent(tool_name="weather", tool_args={}), (3,)),
    )
    [one] = recorded(entries)
    assert (one.reply.thought, one.reply.calls) == (None, ())


def test_one_run_at_a_time():
    with pytest.raises(AgentError, match="Expected the entries of one run, found 2: r-1, r-2"):
        replay([*RUN, *run((UserContent(value="x"), ()), name="r-2")])
    with pytest.raises(AgentError, match="Expected entries only, found str: 'x'"):
        replay([*RUN, "x"])


async def test_items_may_be_given_instead():
    model = replay(["a", call("f", x=1)], name="mine")
    assert (await ask(model)).text == "a"
    assert (await ask(model, 1)).calls == (ReplyCall("f", '{"x":1}'),)
    with pytest.raises(ScriptExhausted, match="Model 'mine'"):
        await ask(model, 2)
    with pytest.raises(ScriptExhausted):
        await ask(replay([]))


async def test_a_conversation_is_said_again():
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"broken'}},
                {"id": "c1", "function": "g", "args": {"a": 1}, "placeholder_args": None},
                {"id": None, "function": {"name": "h", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "no"},
        {"role": "assistant", "content": [{"type": "text", "content": "Sorry."}], "function_call": None},
        {"role": "assistant", "content": ""},
        {"role": "exit"},
    ]
    items = said(chat)
    assert items[0] == Reply(
        thought="Hm.",
        calls=(ReplyCall("f", '{"broken', "c1"), ReplyCall("g", '{"a":1}', "c1"), ReplyCall("h", "{}")),
        keep=False,
    )
    assert [item.text for item in items] == ["", "Sorry.", ""]
    model = from_messages(chat, name="recorded")
    assert (await ask(model)).calls == items[0].calls
    assert (await ask(model, 1)).text == "Sorry."
    assert model.name == "recorded"


async def test_which_run_of_a_record_is_replayed_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "two.gesta"
    agent = gesta.Agent("desk", model=gesta.function(lambda messages, _: messages[-1]["content"].upper()))
    async with gesta.open(path) as record:
        await record.run(agent, "first", session="a")
        await record.run(agent, "second", session="b")
    for run, answer in (("a", "FIRST"), ("b", "SECOND"), ("last", "SECOND")):
        again = gesta.Agent("desk", model=gesta.replay(path, run=run))
        async with gesta.open(":memory:") as record:
            assert (await record.run(again, "Again.")).answer == answer
