"""Recorded traffic of real servers: every Chat Completions reply in the corpus is read, and what is none is named."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.wire.recorded import body_of, recorded

from gesta.errors import ModelFault
from gesta.message import Call, Message
from gesta.model.request import Reply
from gesta.models.chat_completions import ChatDialect, ChatParser
from gesta.models.replay import said

REPLIES, STREAMS = 178, 35
"""Counted once, so that a reader which skips half of them is found."""

NO_REPLIES = {
    "test_tool_regular_error": ("model_not_found", False),
    "test_tool_use_failed_error_streaming": ("tool_use_failed", True),
    "test_multimodal_tool_return_matrix[direct-binary-audio-openai_chat]": ("invalid_value", False),
    "test_multimodal_tool_return_matrix[tool_return_content-binary-audio-openai_chat]": ("invalid_value", False),
    "test_openai_web_search_tool_model_not_supported": ("invalid_request_error", False),
}
"""Recorded errors: the fault that each is, and whether to ask again."""


class Exchange(NamedTuple):
    name: str
    asked: Any
    body: bytes
    streamed: bool


@pytest.fixture(scope="module")
def exchanges(corpus: Path) -> list[Exchange]:
    return [exchange(Path(name).stem, one) for name, one in recorded(corpus, b"/chat/completions") if of_chat(one)]


def of_chat(interaction: dict[str, Any]) -> bool:
    return interaction["request"]["uri"].partition("?")[0].endswith("/chat/completions")


def exchange(name: str, interaction: dict[str, Any]) -> Exchange:
    asked, answered = (body_of(interaction[side]) for side in ("request", "response"))
    return Exchange(name, json.loads(asked), answered, answered.lstrip()[:1] not in (b"{", b"["))


def read(data: bytes, size: int) -> tuple[Reply, str]:
    parser, deltas = ChatParser(), []
    for start in range(0, len(data), size):
        deltas += parser.feed(data[start : start + size])
    return parser.close(), "".join(delta.text for delta in deltas if delta.type == "text")


@pytest.mark.timeout(120)
def test_every_reply_is_read_and_every_error_is_a_known_one(exchanges):
    replies, errors, streams = 0, {}, 0
    for one in exchanges:
        try:
            reply, shown = read(one.body, len(one.body))
        except ModelFault as fault:
            errors[one.name] = (fault.type, fault.retry)
            continue
        replies, streams = replies + 1, streams + one.streamed
        assert reply.text or reply.calls, one.name
        assert reply.usage, one.name
        assert reply.model, one.name
        for call in reply.calls:
            assert call.name
            assert isinstance(json.loads(call.args), dict), one.name
        assert shown == (reply.text if one.streamed else ""), one.name
    print(f"{replies} replies read, {streams} of them streams; not read: {errors}")
    assert errors == NO_REPLIES
    assert (replies, streams) == (REPLIES, STREAMS)


@pytest.mark.timeout(120)
def test_a_whole_reply_is_read_as_it_says(exchanges):
    for one in exchanges:
        if one.streamed or one.name in NO_REPLIES:
            continue
        body = json.loads(one.body)
        message, reply = body["choices"][0]["message"], read(one.body, 1000)[0]
        if isinstance(message.get("content"), str):
            assert reply.text == message["content"] + (message.get("refusal") or ""), one.name
        assert [(call.id, call.name) for call in reply.calls] == [
            (call["id"] or None, call["function"]["name"]) for call in message.get("tool_calls") or []
        ], one.name
        assert reply.usage == body["usage"], one.name
        assert reply.finish_reason == body["choices"][0]["finish_reason"], one.name


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_recorded_streams_may_be_cut_anywhere(exchanges):
    for one in exchanges:
        if one.streamed and one.name not in NO_REPLIES:
            expected = read(one.body, len(one.body))
            for data in (one.body, one.body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")):
                for size in (1, 7, 100):
                    assert read(data, size) == expected, one.name


@pytest.mark.timeout(120)
def test_recorded_conversations_are_said_again(exchanges):
    """What was sent back to a server holds its earlier words: calls, ids and arguments as they were."""
    seen = 0
    for one in exchanges:
        messages = [message for message in one.asked["messages"] if message["role"] == "assistant"]
        for message, item in zip(messages, said(one.asked["messages"]), strict=True):
            calls = message.get("tool_calls") or []
            assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
                (call.id, call.name, call.args) for call in item.calls
            ], one.name
            seen += len(calls)
    assert seen > 50


@pytest.mark.timeout(120)
def test_blocks_are_what_real_clients_sent(exchanges):
    """Written from our own form, a message is the same JSON, but for members that say nothing."""
    compared = 0
    for one in exchanges:
        for message in one.asked["messages"]:
            if isinstance(message.get("content"), list) or message.keys() - PLAIN:
                continue
            ours = json.loads(ChatDialect("m").encode(neutral(message)))
            assert plain(ours) == plain(message), one.name
            compared += 1
    assert compared > 200


PLAIN = {"role", "content", "tool_calls", "tool_call_id"}


def neutral(message: dict[str, Any]) -> Message:
    calls = message.get("tool_calls") or []
    return Message(
        role=message["role"],
        text=message.get("content") or "",
        calls=tuple(
            Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls
        ),
        call_id=message.get("tool_call_id"),
    )


def plain(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        call | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or []
    ]
    shown = {"content": message.get("content") or None, "tool_calls": calls or None}
    return {name: value for name, value in (message | shown).items() if value is not None}
