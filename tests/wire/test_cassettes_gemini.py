"""Recorded traffic of Google's `generateContent`: every reply is read, and every request that can be said is built."""

import itertools
import json
import re
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.validators.gemini import violations
from tests.wire.recorded import body_of, recorded

from gesta.errors import ModelFault
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message, Native
from gesta.model.request import Reply, Request
from gesta.model.usage import tokens
from gesta.models.gemini import UNSIGNED, GeminiDialect
from gesta.models.gemini_reply import GeminiParser

CASSETTES, REPLIES, STREAMS, CALLS, GIVEN_BACK, BUILT = 66, 109, 5, 44, 42, 105
"""Counted once, so that a reader which skips half of them is found."""

NO_REPLIES = {"test_google_model_armor_prompt_template_text_gets_blocked": ("MODEL_ARMOR", False)}
"""Recorded refusals of the provider: the fault that each is, and whether to ask again."""

UNSAID = {
    "two steps": "calls of two contents of the model in a row, answered together: each reply of ours is answered itself",
    "openapi": "functions described in OpenAPI's words (`parameters`), while a header has JSON Schema",
}
"""What a recorded request may hold that a header and messages cannot."""

DIFFERENCES = {"empty text": "the Gemini API takes an empty text, Vertex AI refuses it: a word stands there instead"}
"""How a body may differ from the recorded one, and why."""


class Exchange(NamedTuple):
    name: str
    model: str
    asked: Any
    body: bytes
    streamed: bool


@pytest.fixture(scope="module")
def exchanges(corpus: Path) -> list[Exchange]:
    return [exchange(Path(name).stem, one) for name, one in recorded(corpus, b"enerateContent") if ours(one)]


def ours(interaction: dict[str, Any]) -> bool:
    return "enerateContent" in urlsplit(interaction["request"]["uri"]).path


def exchange(name: str, interaction: dict[str, Any]) -> Exchange:
    asked, answered = (body_of(interaction[side]) for side in ("request", "response"))
    model = urlsplit(interaction["request"]["uri"]).path.rpartition("/")[2].partition(":")[0]
    return Exchange(name, model, json.loads(asked), answered, not answered.lstrip().startswith(b"{"))


def parse(data: bytes, size: int) -> tuple[Reply, str, str]:
    parser, deltas = GeminiParser(), []
    for start in range(0, len(data), size):
        deltas += parser.feed(data[start : start + size])
    said, thought = ("".join(delta.text for delta in deltas if delta.type == type) for type in ("text", "thought"))
    return parser.close(), said, thought


def chunks(one: Exchange) -> list[Any]:
    if not one.streamed:
        return [json.loads(one.body)]
    return [json.loads(line[5:]) for line in one.body.decode().splitlines() if line.startswith("data:")]


def replies(exchanges: list[Exchange]) -> list[Exchange]:
    return [one for one in exchanges if one.name not in NO_REPLIES]


@pytest.mark.timeout(60)
def test_every_reply_is_read_as_it_says(exchanges):
    calls = 0
    for one in replies(exchanges):
        made, (reply, said, thought) = chunks(one), parse(one.body, len(one.body))
        candidates = [each["candidates"][0] for each in made if "candidates" in each]
        parts = [part for each in candidates for part in each.get("content", {}).get("parts", [])]
        texts = [part["text"] for part in parts if "text" in part and not part.get("thought")]
        refused = [each["finishMessage"] for each in candidates if each.get("finishReason") == "MODEL_ARMOR"]
        assert reply.text == "".join(texts + refused), one.name
        assert (reply.thought or "") == "".join(part["text"] for part in parts if part.get("thought")), one.name
        used = [part["functionCall"] for part in parts if "functionCall" in part]
        assert [(call.id, call.name, json.loads(call.args)) for call in reply.calls] == [
            (call.get("id"), call["name"], call["args"]) for call in used
        ], one.name
        assert reply.model == made[0]["modelVersion"]
        assert reply.finish_reason == [each["finishReason"] for each in candidates if "finishReason" in each][-1]
        assert reply.usage == made[-1]["usageMetadata"], one.name
        counted, usage = tokens(reply.usage), made[-1]["usageMetadata"]
        assert counted is not None
        assert counted.input == usage["promptTokenCount"] + usage.get("toolUsePromptTokenCount", 0)
        assert counted.input + counted.output == usage["totalTokenCount"]
        assert (said, thought) == ((reply.text, reply.thought or "") if one.streamed else ("", "")), one.name
        more = [part for part in parts if part.keys() & {"thoughtSignature", "executableCode", "codeExecutionResult"}]
        assert [
            part.get("thoughtSignature")
            for part in reply.native or ()
            if part.keys() not in ({"text"}, {"functionCall"})
        ] == [part.get("thoughtSignature") for part in more], one.name
        calls += len(reply.calls)
    read = replies(exchanges)
    streams = sum(one.streamed for one in read)
    print(f"{len({one.name for one in read})} cassettes, {len(read)} replies, {streams} of them streams, {calls} calls")
    assert (len({one.name for one in read}), len(read), streams, calls) == (CASSETTES, REPLIES, STREAMS, CALLS)


def test_every_recorded_refusal_is_a_known_one(exchanges):
    found = {}
    for one in exchanges:
        if one.name in NO_REPLIES:
            with pytest.raises(ModelFault) as fault:
                parse(one.body, 100)
            found[one.name] = (fault.value.type, fault.value.retry)
    assert found == NO_REPLIES


@pytest.mark.timeout(60)
def test_recorded_streams_may_be_cut_anywhere_and_equal_whole_replies(exchanges):
    for one in exchanges:
        if one.streamed:
            assert b"\r\n\r\n" in one.body
            expected = parse(one.body, len(one.body))
            for data in (one.body, one.body.replace(b"\r\n", b"\n")):
                for size in (1, 7, 100):
                    assert parse(data, size) == expected, one.name
            array = json.dumps(chunks(one), indent=1).encode()
            assert parse(array, 1000) == (expected[0], "", ""), one.name


@pytest.mark.timeout(60)
def test_what_was_read_is_given_back_as_real_clients_gave_it_back(exchanges):
    """A reply that a later request of its cassette holds is written as it stands there, but for its visible thought."""
    compared = 0
    for one, two in itertools.pairwise(replies(exchanges)):
        place = len(one.asked["contents"])
        if one[:2] != two[:2] or two.asked["contents"][:place] != one.asked["contents"]:
            continue
        reply, dialect = parse(one.body, 1000)[0], GeminiDialect(one.model)
        there = [part for part in parts_of(two.asked["contents"][place]) if part.get("text", "") != reply.thought]
        ids = [part["functionCall"].get("id", "") for part in there if "functionCall" in part]
        calls = tuple(Call(id, call.name, json.loads(call.args)) for id, call in zip(ids, reply.calls, strict=True))
        native = Native(f"{dialect.encoder} {one.model}", reply.native)
        block = dialect.encode(Message(role="assistant", text=reply.text, calls=calls, native=native))
        here, there = (
            [plain_part(part, recent=dialect.recent) for part in parts]
            for parts in (parts_of(json.loads(block)), there)
        )
        assert here == there, one.name
        compared += 1
    print(f"{compared} replies given back")
    assert compared == GIVEN_BACK


# --- requests ---


def camel(value: Any) -> Any:
    """An object with its own names in camelCase; what is below stays as it is. Google reads both."""
    if not isinstance(value, dict):
        return value
    return {re.sub("_([a-z])", lambda found: found[1].upper(), name): each for name, each in value.items()}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def parts_of(content: Any) -> list[dict[str, Any]]:
    """The parts of a content, with the names in each as Google documents them."""
    made = [camel(part) for part in listed(content["parts"])]
    for part in made:
        for kind in ("inlineData", "fileData", "functionCall", "functionResponse"):
            if kind in part:
                part[kind] = camel(part[kind])
        response = part.get("functionResponse", {})
        if "parts" in response:
            response["parts"] = parts_of(response)
        if "thoughtSignature" in part:
            part["thoughtSignature"] = alphabet(part["thoughtSignature"])
        if "inlineData" in part:
            part["inlineData"]["data"] = alphabet(part["inlineData"]["data"])
    return made


def alphabet(given: str) -> str:
    """Base64 may be written in either alphabet."""
    return given.replace("-", "+").replace("_", "/")


def declarations(asked: Any) -> list[Any]:
    tools = [camel(tool) for tool in listed(asked.get("tools", []))]
    return [camel(each) for tool in tools for each in tool.get("functionDeclarations", ())]


def unsaid(asked: Any) -> str | None:
    """What a header and messages cannot say, if there is something."""
    turns = [{*(name for part in parts_of(content) for name in part)} for content in asked["contents"]]
    if any("functionCall" in one and "functionCall" in two for one, two in itertools.pairwise(turns)):
        return "two steps"
    return "openapi" if any("parameters" in each for each in declarations(asked)) else None


def header(asked: Any) -> RequestHeaderContent:
    rest = {name: value for name, value in camel(asked).items() if name != "contents"}
    texts = [part["text"] for part in parts_of(rest.pop("systemInstruction", {"parts": []}))]
    config = camel(rest.pop("generationConfig", {}))
    output = config.pop("responseJsonSchema", None)
    if output is not None:
        assert config.pop("responseMimeType") == "application/json"
    own = [
        {"name": each["name"], "description": each["description"], "args_schema": each["parametersJsonSchema"]}
        for each in declarations(asked)
    ]
    served = [camel(tool) for tool in listed(rest.pop("tools", []))]
    settings = rest | config | {"server_tools": [tool for tool in served if "functionDeclarations" not in tool]}
    return RequestHeaderContent(
        tools=own or None, output=output, meta={"settings": settings, "instructions": "\n\n".join(texts)}
    )


def messages(asked: Any, by: str) -> list[Message]:
    found: list[Message] = []
    for content in asked["contents"]:
        parts = parts_of(content)
        if content["role"] == "model":
            found += said(parts, by)
        elif "functionResponse" in parts[0]:
            found += [answered(part["functionResponse"]) for part in parts]
        else:
            found.append(Message(role="user", parts=tuple(map(part_of, parts))))
    return found


def said(parts: list[Any], by: str) -> list[Message]:
    """Words of the model, each part a message; or one reply with what has to go back with it."""
    if all(part.keys() == {"text"} for part in parts):
        return [Message(role="assistant", text=part["text"]) for part in parts]
    calls = tuple(
        Call(part["functionCall"].get("id", ""), part["functionCall"]["name"], part["functionCall"]["args"])
        for part in parts
        if "functionCall" in part
    )
    own = [
        {name: value for name, value in part.items() if (name, value) != ("thoughtSignature", FOREIGN)}
        for part in parts
    ]
    foreign = own != parts
    items = [part | {"functionCall": {}} if "functionCall" in part else part for part in own]
    text = "".join(part.get("text", "") for part in parts)
    return [Message(role="assistant", text=text, calls=calls, native=None if foreign else Native(by, items))]


FOREIGN = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""What stands for a signature, once more in base64."""


def answered(response: Any) -> Message:
    [(key, value)] = response["response"].items() or [("output", "")]
    return Message(
        role="tool",
        text=value if isinstance(value, str) else json.dumps(value),
        parts=tuple(map(part_of, response.get("parts", ()))),
        call_id=response.get("id"),
        name=response["name"],
        failed=key == "error",
    )


def part_of(part: Any) -> Part:
    match part:
        case {"text": text}:
            return Part(type="text", text=text)
        case {"inlineData": {"mimeType": media, "data": data}}:
            return Part(type="file", data=b64decode(data), media_type=media)
        case {"fileData": {"fileUri": url}}:
            return Part(type="file", url=url, media_type=part["fileData"].get("mimeType"))
    raise AssertionError(part)


def plain(body: Any, *, recent: bool) -> Any:
    """The same body in one of the forms that say the same.

    Names are spelled in two ways, and so is base64; the model's contents in a row are one; all functions are one tool,
    and provider's tools come after them; an empty description need not be said; a result may stand under any name but
    `error`, and as an object, which we send as text; nothing is an empty one; a schema that is a reference is the one
    that it refers to. A model before Gemini 3 reads neither ids nor what stands for a signature, which itself may be
    base64 of the documented word.
    """
    made = {name: value for name, value in camel(body).items() if value not in ({}, [], None)}
    if "systemInstruction" in made:
        made["systemInstruction"] = "\n\n".join(part["text"] for part in parts_of(made["systemInstruction"]))
    functions = [
        {name: value for name, value in each.items() if (name, value) != ("description", "")}
        for each in declarations(body)
    ]
    served = [camel(tool) for tool in listed(made.pop("tools", []))]
    made["tools"] = [*functions, *(tool for tool in served if "functionDeclarations" not in tool)]
    schema = made.get("generationConfig", {}).get("responseJsonSchema", {})
    if "$ref" in schema:
        target = schema["$defs"][schema.pop("$ref").rpartition("/")[2]]
        made["generationConfig"]["responseJsonSchema"] = target | schema
    made["contents"] = []
    for content in body["contents"]:
        if not made["contents"] or (made["contents"][-1]["role"], content["role"]) != ("model", "model"):
            made["contents"].append({"role": content["role"], "parts": []})
        made["contents"][-1]["parts"] += [plain_part(part, recent=recent) for part in parts_of(content)]
    return made


def plain_part(part: Any, *, recent: bool) -> Any:
    if part.get("thoughtSignature") in (FOREIGN, alphabet(UNSIGNED)):
        part["thoughtSignature"] = UNSIGNED
    for kind in ("functionCall", "functionResponse"):
        if kind in part and not recent:
            part[kind].pop("id", None)
            if part.get("thoughtSignature") == UNSIGNED:
                del part["thoughtSignature"]
    if "functionResponse" in part:
        one = answered(part["functionResponse"])
        part["functionResponse"]["response"] = {"error" if one.failed else "output": one.text}
    return part


def difference(built: Any, recorded: Any) -> str | None:
    """Name what is different, if something is."""
    if built == recorded:
        return None
    recorded["contents"] = json.loads(json.dumps(recorded["contents"]).replace('{"text": ""}', '{"text": "(empty)"}'))
    return "empty text" if built == recorded else "unclassified"


@pytest.mark.timeout(60)
def test_recorded_requests_are_built_again(exchanges):
    skipped, differences, built = Counter[str](), Counter[str](), 0
    for one in exchanges:
        if (reason := unsaid(one.asked)) is not None:
            skipped[reason] += 1
            continue
        dialect = GeminiDialect(one.model, stream=one.streamed)
        head, history = header(one.asked), messages(one.asked, f"{dialect.encoder} {dialect.model}")
        blocks = [dialect.encode(message) for message in history]
        body = json.loads(Request(header=head, envelope=dialect.envelope(head), blocks=blocks).body())
        assert violations(body, one.model) == [], one.name
        built += 1
        ours, theirs = (plain(each, recent=dialect.recent) for each in (body, one.asked))
        if (different := difference(ours, theirs)) is not None:
            assert different in DIFFERENCES, (one.name, ours, theirs)
            differences[different] += 1
    print(f"{built} requests built again; different: {dict(differences)}; not to be said: {dict(skipped)}")
    assert built == BUILT
    assert differences == dict.fromkeys(DIFFERENCES, 1)
    assert skipped == {"openapi": 3, "two steps": 2}
    assert skipped.keys() == UNSAID.keys()
