"""Recorded traffic of the Responses API: every reply is read, every request that can be said here is built again."""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from tests.validators.responses import violations
from tests.wire.recorded import body_of, recorded

from gesta.errors import ModelFault
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message, Native
from gesta.model.request import Reply, Request
from gesta.model.usage import tokens
from gesta.models.responses import ResponsesDialect
from gesta.models.responses_reply import ResponsesParser

CASSETTES, EXCHANGES, REPLIES, QUEUED, STREAMS, CALLS, NATIVE = 82, 134, 127, 7, 24, 50, 65
"""Counted once, so that a reader which skips half of them is found."""
REASONING = 40, 62
"""Items of it that go back: without and with the other items that only a provider which stores them knows."""
REQUESTS, REBUILT, SAME = 127, 112, 46
"""Recorded; those that can be said here; of these the ones that are the same but for what says nothing."""

UNSAYABLE = {
    "an earlier response or a conversation by its id": 7,
    "tools that stand in the input": 5,
    "a file that was uploaded before": 3,
}
"""Requests that hold what there is no word for here, by the first such thing in each."""

DIFFERENT = {
    "a tool that is strict": 42,
    "a tool that the provider runs or loads": 24,
}
"""Requests that differ in their tools and in nothing else: those of a header are functions of ours, and are not strict,
as their schemas may let members be left out."""


class Exchange(NamedTuple):
    cassette: str
    asked: Any
    body: bytes

    @property
    def streamed(self) -> bool:
        return self.body.lstrip()[:1] != b"{"


@pytest.fixture(scope="module")
def exchanges(corpus: Path) -> list[Exchange]:
    return [exchange(name, one) for name, one in recorded(corpus, b"/responses") if of_responses(one)]


def of_responses(interaction: Mapping[str, Any]) -> bool:
    """A response that is made, or looked up later."""
    method, path = interaction["request"]["method"], interaction["request"]["uri"].partition("?")[0]
    return (method == "POST" and path.endswith("/responses")) or (method == "GET" and "/responses/resp_" in path)


def exchange(name: str, interaction: Mapping[str, Any]) -> Exchange:
    asked, answered = (body_of(interaction[side]) for side in ("request", "response"))
    return Exchange(name, json.loads(asked or b"null"), answered)


def read(data: bytes, size: int) -> tuple[Reply, str, str]:
    parser, deltas = ResponsesParser(), []
    for start in range(0, len(data), size):
        deltas += parser.feed(data[start : start + size])
    reply = parser.close()
    said, thought = ("".join(each.text for each in deltas if each.type == type) for type in ("text", "thought"))
    return reply, said, thought


# --- replies ---


def events(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.decode().splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def final(one: Exchange) -> dict[str, Any]:
    """The response as it stood at the end, read the obvious way."""
    if not one.streamed:
        whole: dict[str, Any] = json.loads(one.body)
        return whole
    *_, last = [event["response"] for event in events(one.body) if "response" in event]
    return dict(last)


def plainly(body: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a response says, read the obvious way."""
    texts, thoughts, calls = [], [], []
    for item in body["output"]:
        if item["type"] == "message":
            texts.append("".join(part["text"] for part in item["content"]))
        elif item["type"] == "reasoning":
            thoughts += [part["text"] for part in item["summary"]]
        elif item["type"] == "function_call":
            calls.append((item["name"], item["arguments"], item["call_id"]))
    return "\n\n".join(texts), "\n\n".join(thoughts) or None, calls, body["status"], body["model"], body["usage"]


def said(reply: Reply) -> tuple[Any, ...]:
    calls = [(call.name, call.args, call.id) for call in reply.calls]
    return reply.text, reply.thought, calls, reply.finish_reason, reply.model, reply.usage


@pytest.mark.timeout(60)
def test_every_reply_is_read_as_it_says_and_what_is_none_yet_is_a_clear_fault(exchanges):
    replies, queued, streams, calls, native = 0, 0, 0, 0, 0
    for one in exchanges:
        if not final(one)["output"]:
            assert final(one)["status"] in ("queued", "in_progress")
            with pytest.raises(ModelFault) as found:
                read(one.body, len(one.body))
            assert (found.value.type, found.value.retry) == ("background", False), one.cassette
            queued += 1
            continue
        reply, text, thought = read(one.body, len(one.body))
        assert said(reply) == plainly(final(one)), one.cassette
        assert (text, thought) == ((reply.text, reply.thought or "") if one.streamed else ("", "")), one.cassette
        counted, usage = tokens(reply.usage), reply.usage or {}
        assert counted is not None
        assert (counted.input, counted.output) == (usage["input_tokens"], usage["output_tokens"])
        assert counted.reasoning == usage["output_tokens_details"]["reasoning_tokens"]
        assert counted.cache_read == usage["input_tokens_details"]["cached_tokens"]
        replies, streams, calls = replies + 1, streams + one.streamed, calls + len(reply.calls)
        native += reply.native is not None
    cassettes = len({one.cassette for one in exchanges})
    counts = (cassettes, len(exchanges), replies, queued, streams, calls, native)
    print("cassettes, exchanges, replies, queued, streams, calls, native:", counts)
    assert counts == (CASSETTES, EXCHANGES, REPLIES, QUEUED, STREAMS, CALLS, NATIVE)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_recorded_streams_may_be_cut_anywhere(exchanges):
    for one in exchanges:
        if one.streamed:
            expected = read(one.body, len(one.body))
            for data in (one.body, one.body.replace(b"\n", b"\r\n")):
                for size in (1, 7, 100) if len(data) < 15_000 else (97, 1000):
                    assert read(data, size) == expected, one.cassette


def without_output(event: dict[str, Any]) -> dict[str, Any]:
    return event | {"response": event["response"] | {"output": []}} if "response" in event else event


@pytest.mark.timeout(60)
def test_a_recorded_stream_whose_closing_response_is_empty_says_the_same(exchanges):
    for one in exchanges:
        if one.streamed:
            data = b"".join(b"data: %s\n\n" % json.dumps(without_output(each)).encode() for each in events(one.body))
            (found, *shown), (reply, *others) = read(data, len(data)), read(one.body, len(one.body))
            # What is encrypted differs from event to event, and one stream lacks the last events of two items.
            types = [[item["type"] for item in each.native or ()] for each in (found, reply)]
            assert types[0] == types[1], one.cassette
            assert (said(found), shown) == (said(reply), others), one.cassette


@pytest.mark.timeout(60)
def test_a_recorded_stream_that_lacks_its_end_is_lost(exchanges):
    for one in exchanges:
        if one.streamed:
            data = one.body[: one.body.rindex(b"event: response.completed")]
            with pytest.raises(ModelFault) as found:
                read(data, 1000)
            assert (found.value.type, found.value.retry) == ("lost-stream", True)


@pytest.mark.timeout(60)
def test_every_reply_can_be_sent_back(exchanges):
    """By the rules of the provider, whether it stores what it says or not."""
    sent = Counter[str]()
    for one in exchanges:
        if not final(one)["output"]:
            continue
        reply = read(one.body, len(one.body))[0]
        for store in (False, True):
            dialect = ResponsesDialect("m", {"store": store})
            calls = [Call(call.id or "", call.name, json.loads(call.args)) for call in reply.calls]
            native = None if reply.native is None else Native("responses/1 m", reply.native)
            messages = [Message(role="user", text="?")]
            messages.append(Message(role="assistant", text=reply.text, calls=tuple(calls), native=native))
            messages += [Message(role="tool", call_id=call.id) for call in calls]
            body = build(dialect, RequestHeaderContent(), messages)
            assert violations(body) == [], one.cassette
            sent.update(f"{item.get('type')} {store}" for item in body["input"])
    assert (sent["reasoning False"], sent["reasoning True"]) == REASONING
    assert sent["function_call False"] == sent["function_call True"] == sent["function_call_output True"] == CALLS


# --- requests ---


class UnsayableError(Exception):
    pass


def build(dialect: ResponsesDialect, header: RequestHeaderContent, messages: list[Message]) -> dict[str, Any]:
    request = Request(header=header, envelope=dialect.envelope(header), blocks=[*map(dialect.encode, messages)])
    return dict(json.loads(request.body()))


OURS = ("model", "input", "instructions", "tools", "stream")


def rebuilt(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Read a request into what this project says, and write it again."""
    if asked.get("previous_response_id") or asked.get("conversation"):
        raise UnsayableError("an earlier response or a conversation by its id")
    settings = {"store": None, "include": None} | {name: asked[name] for name in asked if name not in OURS}
    settings.pop("previous_response_id", None)
    dialect = ResponsesDialect(asked["model"], settings, stream=bool(asked.get("stream")))
    tools = [tool_of(tool) for tool in asked.get("tools", ()) if sayable(tool)]
    header = RequestHeaderContent(tools=tools or None, meta={"instructions": asked.get("instructions")})
    return build(dialect, header, [*messages_of(asked["input"], asked["model"])])


def sayable(tool: Mapping[str, Any]) -> bool:
    return tool["type"] == "function" and "defer_loading" not in tool


def tool_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool["description"], "args_schema": tool["parameters"]}


BY_MODEL = ("reasoning", "function_call", "tool_search_call", "message")


def messages_of(items: list[dict[str, Any]], model: str) -> Iterator[Message]:
    """What a model said at one time is one message; the dialect's own reader says what is to be kept of it."""
    turn: list[dict[str, Any]] = []
    for item in [*items, {"role": "end"}]:
        if item.get("type") in BY_MODEL or item.get("role") == "assistant" or item.get("execution") == "server":
            if turn and "type" not in item:  # words by themselves, as an application puts them there
                yield said_by(turn, model)
                turn = []
            turn.append(item)
            continue
        if turn:
            yield said_by(turn, model)
            turn = []
        if item.get("role") in ("user", "system"):
            text, parts = shown(item["content"])
            yield Message(role=item["role"], text=text, parts=parts)
        elif item.get("type") == "function_call_output":
            text, parts = shown(item["output"])
            yield Message(role="tool", text=text, parts=parts, call_id=item["call_id"])
        elif item.get("type") is not None:
            raise UnsayableError("tools that stand in the input")


def said_by(turn: list[dict[str, Any]], model: str) -> Message:
    reply = read(json.dumps({"status": "completed", "output": turn}).encode(), 10_000)[0]
    calls = tuple(Call(call.id or "", call.name, json.loads(call.args)) for call in reply.calls)
    native = None if reply.native is None else Native(f"responses/1 {model}", reply.native)
    return Message(role="assistant", text=reply.text, calls=calls, native=native)


def shown(content: str | list[dict[str, Any]]) -> tuple[str, tuple[Part, ...]]:
    if isinstance(content, str):
        return content, ()
    parts = [part_of(each) for each in content]
    return ("", tuple(parts)) if len(parts) > 1 or parts[0].type != "text" else (parts[0].text or "", ())


def part_of(part: Mapping[str, Any]) -> Part:
    if "text" in part:
        return Part(type="text", text=part["text"])
    if "file_id" in part:
        raise UnsayableError("a file that was uploaded before")
    kind: Literal["image", "file"] = "image" if part["type"] == "input_image" else "file"
    media, _, data = part.get("image_url", part.get("file_data")).removeprefix("data:").partition(";base64,")
    return Part(type=kind, data=base64.b64decode(data), media_type=media, name=part.get("filename"))


def plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same request without what says nothing: null, an empty list or text, `stream` that is false.

    In the input: an empty message beside calls; the status of an item; the type of what has a role; a list of one text
    in place of the text; annotations; spaces in arguments; ids of calls that came without reasoning, which no other
    item refers to.
    """
    found = {
        name: value
        for name, value in body.items()
        if value not in ([], "") and value is not None and value is not False
    }
    found["tools"] = [{name: value for name, value in tool.items() if value} for tool in body.get("tools", ())]
    bound = any(item.get("type") == "reasoning" for item in body["input"])
    found["input"] = [plain_item(item, bound=bound) for item in body["input"] if item.get("content") != ""]
    return found


def plain_item(item: Mapping[str, Any], *, bound: bool) -> dict[str, Any]:
    nothing = ["status", *(["type"] if "role" in item else []), *(["id"] if not bound else [])]
    found = {name: value for name, value in item.items() if value is not None and name not in nothing}
    if isinstance(parts := found.get("content"), list):
        parts = [{name: value for name, value in part.items() if name != "annotations"} for part in parts]
        found["content"] = parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts
    if isinstance(found.get("arguments"), str):
        found["arguments"] = json.loads(found["arguments"])
    return found


def differences(recorded: Any, ours: Any, path: str = "") -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(ours, dict):
        for name in {**recorded, **ours}:
            yield from differences(recorded.get(name), ours.get(name), f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        for at, (one, other) in enumerate(zip(recorded, ours, strict=True)):
            yield from differences(one, other, f"{path}[{at}]")
    elif recorded != ours:
        yield f"{path}: {recorded!r:.300} != {ours!r:.300}"


STRICT = re.compile(r"\.tools\[\d+\]\.strict: True != None")


@pytest.mark.timeout(60)
def test_recorded_requests_are_built_again(exchanges):
    unsayable, different, same, requests = Counter[str](), Counter[str](), 0, 0
    for one in exchanges:
        if one.asked is None:
            continue
        requests += 1
        try:
            ours = rebuilt(one.asked)
        except UnsayableError as why:
            unsayable[str(why)] += 1
            continue
        assert violations(ours) == [], one.cassette
        theirs = plain(one.asked)
        classes = {"a tool that the provider runs or loads"} if not all(map(sayable, theirs["tools"])) else set()
        theirs["tools"] = [*filter(sayable, theirs["tools"])]
        found = [*differences(theirs, plain(ours))]
        classes |= {"a tool that is strict"} if [*filter(STRICT.fullmatch, found)] else set()
        assert all(map(STRICT.fullmatch, found)), (one.cassette, found)
        different.update(classes)
        same += not classes
    compared = requests - unsayable.total()
    print(f"{requests} requests, {compared} built again, {same} the same; not: {unsayable}; different: {different}")
    assert (requests, compared, same) == (REQUESTS, REBUILT, SAME)
    assert (unsayable, different) == (UNSAYABLE, DIFFERENT)
