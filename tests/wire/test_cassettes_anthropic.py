"""Recorded traffic of Anthropic's API: every reply is read, and every request that can be said is built again."""

import json
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.validators.anthropic_messages import violations
from tests.wire.recorded import body_of, recorded

from gesta.errors import ModelFault
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message, Native
from gesta.model.request import Reply, Request
from gesta.model.usage import tokens
from gesta.models.anthropic_messages import AnthropicDialect
from gesta.models.anthropic_reply import AnthropicParser

CASSETTES, REPLIES, STREAMS, CALLS, BUILT = 77, 122, 6, 56, 86
"""Counted once, so that a reader which skips half of them is found."""

NO_REPLIES = {"test_anthropic_explicit_effort_xhigh_unsupported_model_errors": ("invalid_request_error", False)}
"""Recorded errors: the fault that each is, and whether to ask again."""

UNSAID = {
    "tool_reference": "results that point at tools, for the search of the provider",
    "system": "messages of role system inside a history, which only new models take: here they are a user's",
    "file": "files that lie at the provider, by their id",
    "option": "options of a single tool: when it is loaded, or whether its schema is a grammar",
}
"""What a recorded request may hold that a header and messages cannot."""

DIFFERENCES = {
    "the assistant first": "older models want a user's words at the beginning, so some are put there",
    "open server tool": "a call of one of the provider's own tools without its result: a text beside the results "
    "would make every later request be refused, so it is not sent back",
}
"""How a body may differ from the recorded one, and why."""


class Exchange(NamedTuple):
    name: str
    asked: Any
    body: bytes
    streamed: bool


@pytest.fixture(scope="module")
def exchanges(corpus: Path) -> list[Exchange]:
    return [exchange(Path(name).stem, one) for name, one in recorded(corpus, b"/v1/messages") if ours(one)]


def ours(interaction: dict[str, Any]) -> bool:
    return urlsplit(interaction["request"]["uri"]).path == AnthropicDialect.path


def exchange(name: str, interaction: dict[str, Any]) -> Exchange:
    asked, answered = (body_of(interaction[side]) for side in ("request", "response"))
    return Exchange(name, json.loads(asked), answered, not answered.lstrip().startswith(b"{"))


def parse(data: bytes, size: int) -> tuple[Reply, str, str]:
    parser, deltas = AnthropicParser(), []
    for start in range(0, len(data), size):
        deltas += parser.feed(data[start : start + size])
    said, thought = ("".join(delta.text for delta in deltas if delta.type == type) for type in ("text", "thought"))
    return parser.close(), said, thought


def message(one: Exchange) -> Any:
    """The message of a reply, put together by hand where it is a stream."""
    if not one.streamed:
        return json.loads(one.body)
    made: Any = None
    for line in one.body.decode().splitlines():
        event: Any = json.loads(line[5:]) if line.startswith("data:") else {"type": ""}
        match event["type"]:
            case "message_start":
                made = event["message"]
            case "content_block_start":
                made["content"].append(event["content_block"] | {"written": ""})
            case "content_block_delta":
                block, delta = made["content"][event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] += delta["signature"]
                    case "input_json_delta":
                        block["written"] += delta["partial_json"]
            case "message_delta":
                made |= event["delta"]
                made["usage"] |= {name: value for name, value in event["usage"].items() if value is not None}
    for block in made["content"]:
        if written := block.pop("written"):
            block["input"] = json.loads(written)
    return made


def replies(exchanges: list[Exchange]) -> list[Exchange]:
    return [one for one in exchanges if one.name not in NO_REPLIES]


@pytest.mark.timeout(60)
def test_every_reply_is_read_as_it_says(exchanges):
    calls = 0
    for one in replies(exchanges):
        body, (reply, said, thought) = message(one), parse(one.body, len(one.body))
        paragraphs: list[str] = []
        for at, block in enumerate(body["content"]):
            if block["type"] == "text":
                touching = (paragraphs or [" "])[-1][-1:].isspace() or block["text"][:1].isspace()
                paragraphs += [] if touching or body["content"][at - 1]["type"] == "text" else ["\n\n"]
                paragraphs.append(block["text"])
        assert reply.text == "".join(paragraphs), one.name
        thoughts = [block["thinking"] for block in body["content"] if block["type"] == "thinking"]
        assert reply.thought == ("\n\n".join(thoughts) or None), one.name
        assert [(call.id, call.name, json.loads(call.args)) for call in reply.calls] == [
            (block["id"], block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"
        ], one.name
        assert reply.model == body["model"]
        assert reply.finish_reason == body["stop_reason"]
        assert reply.usage == body["usage"], one.name
        counted = tokens(reply.usage)
        assert counted is None or counted.output == body["usage"]["output_tokens"]
        assert (said, thought) == ((reply.text, reply.thought or "") if one.streamed else ("", "")), one.name
        assert (reply.native is None) == ({"text", "tool_use"} >= {block["type"] for block in body["content"]})
        calls += len(reply.calls)
    read = replies(exchanges)
    streams = sum(one.streamed for one in read)
    print(f"{len({one.name for one in read})} cassettes, {len(read)} replies, {streams} of them streams, {calls} calls")
    assert (len({one.name for one in read}), len(read), streams, calls) == (CASSETTES, REPLIES, STREAMS, CALLS)


def test_every_recorded_error_is_a_known_one(exchanges):
    found = {}
    for one in exchanges:
        if one.name in NO_REPLIES:
            with pytest.raises(ModelFault) as fault:
                parse(one.body, 100)
            found[one.name] = (fault.value.type, fault.value.retry)
    assert found == NO_REPLIES


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_recorded_streams_may_be_cut_anywhere_and_equal_whole_replies(exchanges):
    for one in exchanges:
        if one.streamed:
            expected = parse(one.body, len(one.body))
            for data in (one.body, one.body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")):
                for size in (1, 7, 100):
                    assert parse(data, size) == expected, one.name
            whole = json.dumps(message(one)).encode()
            assert parse(whole, 1000) == (expected[0], "", ""), one.name


# --- requests ---


def unsaid(asked: Any) -> str | None:
    """What a header and messages cannot say, if there is something."""
    for message in asked["messages"]:
        if message["role"] == "system":
            return "system"
        for block in blocks_of(message):
            parts = inside(block) if block["type"] == "tool_result" else [block]
            if any(each["type"] == "tool_reference" for each in parts):
                return "tool_reference"
            if any(each.get("source", {}).get("type") == "file" for each in parts):
                return "file"
    options = {name for tool in asked.get("tools", ()) if "input_schema" in tool for name in tool}
    return "option" if options - {"name", "description", "input_schema", "type"} else None


def header(asked: Any) -> RequestHeaderContent:
    rest = {name: value for name, value in asked.items() if name not in ("model", "messages", "stream")}
    system, tools = rest.pop("system", ""), rest.pop("tools", [])
    texts = [system] if isinstance(system, str) else [block["text"] for block in system]
    config = dict(rest.pop("output_config", {}))
    output = config.pop("format", {}).get("schema")
    settings = {"cache_control": None} | rest | ({"output_config": config} if config else {})
    own = [
        {"name": tool["name"], "description": tool["description"], "args_schema": tool["input_schema"]}
        for tool in tools
        if "input_schema" in tool
    ]
    settings["server_tools"] = [tool for tool in tools if "input_schema" not in tool]
    return RequestHeaderContent(
        tools=own or None, output=output, meta={"settings": settings, "instructions": "\n\n".join(texts)}
    )


def messages(asked: Any, by: str) -> list[Message]:
    return [
        one for message in asked["messages"] for one in (said if message["role"] == "assistant" else heard)(message, by)
    ]


def blocks_of(message: Any) -> list[Any]:
    given = message["content"]
    return [{"type": "text", "text": given}] if isinstance(given, str) else given


def inside(block: Any) -> list[Any]:
    return [{"type": "text", "text": block["content"]}] if isinstance(block["content"], str) else block["content"]


def said(message: Any, by: str) -> list[Message]:
    blocks = blocks_of(message)
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    calls = tuple(Call(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use")
    items = [{"type": "tool_use"} if block["type"] == "tool_use" else block for block in blocks]
    plain = [block["type"] for block in blocks] in (["text"] + ["tool_use"] * len(calls), ["tool_use"] * len(calls))
    native = None if plain else Native(by, items)
    return [Message(role="assistant", text="\n\n".join(texts), calls=calls, native=native)]


def heard(message: Any, by: str) -> list[Message]:
    del by
    found, parts = list[Message](), list[Part]()
    for block in blocks_of(message):
        if block["type"] == "tool_result":
            inner = [part(each) for each in inside(block)]
            text = inner.pop(0).text if inner and inner[0].type == "text" else ""
            found.append(
                Message(
                    role="tool",
                    text=text or "",
                    parts=tuple(inner),
                    call_id=block["tool_use_id"],
                    failed=block.get("is_error", False),
                )
            )
        else:
            parts.append(part(block))
    return [*found, Message(role="user", parts=tuple(parts))] if parts else found


def part(block: Any) -> Part:
    source = block.get("source", {})
    match block["type"], source.get("type"):
        case "text", _:
            return Part(type="text", text=block["text"])
        case kind, "base64":
            data = b64decode(source["data"])
            return Part(type="image" if kind == "image" else "file", data=data, media_type=source["media_type"])
        case kind, "url":
            return Part(type="image" if kind == "image" else "file", url=source["url"])
        case kind, "text":
            return Part(type="file", data=source["data"].encode(), media_type=source["media_type"])
    raise AssertionError(block)


def plain(body: Any) -> Any:
    """The same body in one of the forms that say the same.

    A string stands for a list of one text; neighbours of one role are one message; what is false, null or empty need
    not be said; two texts of the system are one; the provider's tools come after the agent's, which are of type custom.
    """
    made = {name: value for name, value in body.items() if value not in (None, False)}
    if "system" in made:
        texts = [made["system"]] if isinstance(made["system"], str) else [block["text"] for block in made["system"]]
        made["system"] = "\n\n".join(texts)
    if "tools" in made:
        silent = (("type", "custom"), ("description", ""))
        tools = [{name: tool[name] for name in tool if (name, tool[name]) not in silent} for tool in made["tools"]]
        made["tools"] = sorted(tools, key=lambda tool: "input_schema" not in tool)
    made["messages"] = []
    for message in body["messages"]:
        if not made["messages"] or made["messages"][-1]["role"] != message["role"]:
            made["messages"].append({"role": message["role"], "content": []})
        made["messages"][-1]["content"] += [block(each) for each in blocks_of(message)]
    return made


def block(given: Any) -> Any:
    made = {name: value for name, value in given.items() if (name, value) != ("is_error", False)}
    if given["type"] == "tool_result" and isinstance(given.get("content"), str):
        made["content"] = [{"type": "text", "text": given["content"]}]
    return made


def difference(built: Any, recorded: Any) -> str | None:
    """Name what is different, if something is."""
    if built == recorded:
        return None
    if built["messages"][1:] == recorded["messages"]:
        return "the assistant first"
    results = json.dumps(recorded)
    for message in recorded["messages"]:
        message["content"] = [
            one
            for one in message["content"]
            if not one["type"].endswith("_tool_use") or f'"tool_use_id": "{one["id"]}"' in results
        ]
    return "open server tool" if built == recorded else "unclassified"


@pytest.mark.timeout(60)
def test_recorded_requests_are_built_again(exchanges):
    skipped, differences, built = Counter[str](), Counter[str](), 0
    for one in exchanges:
        if (reason := unsaid(one.asked)) is not None:
            skipped[reason] += 1
            continue
        dialect = AnthropicDialect(one.asked["model"], stream=bool(one.asked.get("stream")))
        head, history = header(one.asked), messages(one.asked, f"{dialect.encoder} {dialect.model}")
        blocks = [dialect.encode(message) for message in history]
        body = json.loads(Request(header=head, envelope=dialect.envelope(head), blocks=blocks).body())
        assert violations(body) == [], one.name
        built += 1
        if (different := difference(plain(body), plain(one.asked))) is not None:
            assert different in DIFFERENCES, (one.name, body, one.asked)
            differences[different] += 1
    print(f"{built} requests built again; different: {dict(differences)}; not to be said: {dict(skipped)}")
    assert built == BUILT
    assert differences == dict.fromkeys(DIFFERENCES, 1)
    assert skipped == {"option": 21, "tool_reference": 10, "file": 4, "system": 2}
