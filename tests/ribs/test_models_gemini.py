"""The Gemini dialect: what it writes, what it reads, and that every history becomes a valid body."""

import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conftest import COSTLY
from tests.costs import LINEAR, growth
from tests.laws.scenes import World, agent, play
from tests.laws.test_histories import text, wild_calls
from tests.validators.gemini import violations

from gesta.errors import AgentError, ModelFault
from gesta.function_tool.output import ASKED
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message, Native
from gesta.model.request import Delta, Reply, ReplyCall, Request, native_by
from gesta.model.usage import Tokens, tokens
from gesta.models.gemini import UNSIGNED, GeminiDialect
from gesta.models.gemini_reply import GeminiParser
from gesta.models.gemini_schema import adapted, arguments, held
from gesta.prompt import Prompt
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore

pytestmark = pytest.mark.sample(2, over="parent")

DIALECT = GeminiDialect("gemini-3-pro")
OLDER = GeminiDialect("gemini-2.5-flash")
BY = "gemini/1 gemini-3-pro"
WEATHER = {"name": "weather", "description": "Today's weather", "args_schema": {"type": "object", "properties": {}}}
DECLARED = {
    "name": "weather",
    "description": "Today's weather",
    "parametersJsonSchema": {"type": "object", "properties": {}},
}
SIGNATURE = {"thoughtSignature": "c2lnbg=="}
CODE = {"executableCode": {"id": "x1", "language": "PYTHON", "code": "print(1)"}}
RAN = {"codeExecutionResult": {"id": "x1", "outcome": "OUTCOME_OK", "output": "1\n"}}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [word(each) for each in parts]}


def spoken(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": [word(each) for each in parts]}


def word(given: Any) -> Any:
    return {"text": given} if isinstance(given, str) else given


def use(id: str | None, name: str = "weather", **args: Any) -> dict[str, Any]:
    return {"functionCall": ({} if id is None else {"id": id}) | {"name": name, "args": args}}


def result(id: str | None, said: str, *parts: Any, name: str = "weather", key: str = "output") -> dict[str, Any]:
    response = ({} if id is None else {"id": id}) | {"name": name, "response": {key: said}}
    return {"functionResponse": response | ({"parts": [*parts]} if parts else {})}


def written(message: Message, dialect: GeminiDialect = DIALECT) -> Any:
    return json.loads(dialect.encode(message).decode("utf-8"))


def sent(header: RequestHeaderContent, *messages: Message, dialect: GeminiDialect = DIALECT) -> Any:
    request = Request(header=header, envelope=dialect.envelope(header), blocks=[*map(dialect.encode, messages)])
    return json.loads(request.body())


def history(*messages: Message, dialect: GeminiDialect = DIALECT) -> Any:
    body = sent(RequestHeaderContent(), *messages, dialect=dialect)
    assert violations(body, dialect.model) == []
    return body["contents"]


# --- blocks ---


@pytest.mark.parametrize(
    ("message", "block"),
    [
        (Message(role="user", text='"Ü"\n'), '{"role":"user","parts":[{"text":"\\"Ü\\"\\n"}]}'.encode()),
        (
            Message(role="system", text="Be brief."),
            b'{"role":"user","parts":[{"text":"<system>\\nBe brief.\\n</system>"}]}',
        ),
        (
            Message(role="assistant", text="Well.", calls=(Call("c1", "weather", {"city": "Rome", "days": None}),)),
            (
                b'{"role":"model","parts":[{"text":"Well."},{"functionCall":{"id":"c1","name":"weather",'
                b'"args":{"city":"Rome","days":null}},"thoughtSignature":"skip_thought_signature_validator"}]}'
            ),
        ),
        (
            Message(role="tool", text="21 degrees", call_id="c1", name="weather", sources=(4,)),
            (
                b'{"role":"user","parts": [{"functionResponse":{"id":"c1","name":"weather",'
                b'"response":{"output":"21 degrees"}}}]}'
            ),
        ),
        (
            Message(role="tool", text="no such city", call_id="c1", name="weather", failed=True),
            (
                b'{"role":"user","parts": [{"functionResponse":{"id":"c1","name":"weather",'
                b'"response":{"error":"no such city"}}}]}'
            ),
        ),
        (
            Message(role="assistant", text="21.", native=Native(BY, [{"text": "21."} | SIGNATURE])),
            b'{"role":"model","parts":[{"text":"21.","thoughtSignature":"c2lnbg=="}]}',
        ),
    ],
)
def test_a_block_is_these_bytes_for_ever(message, block):
    assert DIALECT.encode(message) == block
    assert DIALECT.encoder == "gemini/1"


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("gemini-3-pro", True, "/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("gemini-3-pro", False, "/models/gemini-3-pro:generateContent"),
        ("models/gemini-3-pro", False, "/models/gemini-3-pro:generateContent"),
        ("tunedModels/mine", False, "/tunedModels/mine:generateContent"),
        ("a model?key=1", False, "/models/a%20model%3Fkey%3D1:generateContent"),
    ],
)
def test_the_path_holds_the_model(model, stream, path):
    assert GeminiDialect(model, stream=stream).path == path


def test_neighbours_of_one_role_are_one_content_but_words_never_stand_beside_results():
    calls = (Call("a", "weather", {"x": 1}), Call("b", "weather", {}))
    messages = (
        Message(role="user", text="Hi"),
        Message(role="user", text="there"),
        Message(role="assistant", text="Two at once.", calls=calls),
        Message(role="tool", text="1", call_id="a", name="weather"),
        Message(role="tool", text="", call_id="b", name="weather"),
        Message(role="system", text="Hurry."),
        Message(role="user", text="And?"),
        Message(role="assistant", text="Done."),
        Message(role="assistant", text="Really."),
        Message(role="user", text="Thanks"),
    )
    assert history(*messages) == [
        user("Hi", "there"),
        spoken("Two at once.", use("a", x=1) | {"thoughtSignature": UNSIGNED}, use("b")),
        user(result("a", "1"), result("b", "")),
        user("<system>\nHurry.\n</system>", "And?"),
        spoken("Done.", "Really."),
        user("Thanks"),
    ]
    assert history(*messages, dialect=OLDER)[1:3] == [
        spoken("Two at once.", use(None, x=1), use(None)),
        user(result(None, "1"), result(None, "")),
    ]


def test_a_user_has_the_first_word_and_the_model_never_the_last():
    assert history(Message(role="assistant", text="Welcome.")) == [
        user("(The conversation begins.)"),
        spoken("Welcome."),
        user("(Go on.)"),
    ]
    assert history(Message(role="user", text="Hi")) == [user("Hi")]
    call = Message(role="assistant", calls=(Call("a", "weather", {}),))
    answer = Message(role="tool", text="1", call_id="a", name="weather")
    assert [each["role"] for each in history(call, answer)] == ["user", "model", "user"]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_message_without_a_word_has_one(role):
    assert written(Message(role=role))["parts"] == [word("(empty)")]
    assert written(Message(role=role, text=" "))["parts"] == [word(" ")]
    assert written(Message(role=role, parts=(Part(type="text", text=""),)))["parts"] == [word("(empty)")]


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("weather", "weather"),
        ("get weather", "get_weather"),
        ("9to5", "_9to5"),
        ("-x", "_-x"),
        ("", "_"),
        ("日本", "__"),
        ("9" * 64, "_" + "9" * 63),
        ("x" * 70, "x" * 64),
    ],
)
def test_a_name_that_is_refused_becomes_another_in_the_call_and_in_its_result(name, becomes):
    found = history(
        Message(role="user", text="Hi"),
        Message(role="assistant", calls=(Call("a", name, {}),)),
        Message(role="tool", text="1", call_id="a", name=name),
    )
    assert found[1]["parts"][0]["functionCall"]["name"] == becomes
    assert found[2]["parts"][0]["functionResponse"]["name"] == becomes


@pytest.mark.parametrize(
    ("model", "recent"),
    [
        ("gemini-1.5-flash", False),
        ("gemini-2.5-pro", False),
        ("models/gemini-2.0-flash", False),
        ("gemini-3-pro-preview", True),
        ("gemini-10", True),
        ("gemini-flash-latest", True),
        ("gemma-4", True),
    ],
)
def test_ids_and_signatures_are_sent_to_models_that_give_them(model, recent):
    dialect = GeminiDialect(model)
    call, other = Call("a", "weather", {}), Call("b", "weather", {})
    parts = written(Message(role="assistant", calls=(call, other)), dialect)["parts"]
    assert ["id" in part["functionCall"] for part in parts] == [recent, recent]
    assert [part.get("thoughtSignature") for part in parts] == [UNSIGNED if recent else None, None]
    answer = written(Message(role="tool", text="1", call_id="a", name="weather"), dialect)["parts"][0]
    assert ("id" in answer["functionResponse"]) == recent
    assert dialect.recent == recent


IMAGE = Part(type="image", data=b"\x89PNG", media_type="image/png", name="cat.png")
INLINE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}


@pytest.mark.parametrize(
    ("part", "made"),
    [
        (Part(type="text", text="and"), word("and")),
        (IMAGE, INLINE),
        (Part(type="image", data=bytearray(b"\x89PNG"), media_type="IMAGE/PNG; q=1"), INLINE),
        (Part(type="image", url="data:image/png;base64,iVBORw=="), INLINE),
        (
            Part(type="file", data=b"%PDF", media_type="application/pdf"),
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}},
        ),
        (
            Part(type="file", data=b"a,b", media_type="text/csv"),
            {"inlineData": {"mimeType": "text/plain", "data": "YSxi"}},
        ),
        (
            Part(type="file", data=b"{}", media_type="application/json"),
            {"inlineData": {"mimeType": "text/plain", "data": "e30="}},
        ),
        (
            Part(type="file", data=b"RIFF", media_type="audio/wav"),
            {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
        ),
        (
            Part(type="image", url="https://x.org/a.png", media_type="image/png"),
            {"fileData": {"fileUri": "https://x.org/a.png", "mimeType": "image/png"}},
        ),
        (Part(type="file", url="https://youtu.be/x"), {"fileData": {"fileUri": "https://youtu.be/x"}}),
        (
            Part(type="file", url="gs://a/b.mp4", media_type="video/mp4"),
            {"fileData": {"fileUri": "gs://a/b.mp4", "mimeType": "video/mp4"}},
        ),
        (Part(type="image", data=b"GIF", media_type="image/gif"), "[image 'x', image/gif: it cannot be shown here]"),
        (Part(type="image", data=b"x"), "[image 'x', type unknown: it cannot be shown here]"),
        (Part(type="image", data=b"", media_type="image/png"), "[image 'x', image/png: it cannot be shown here]"),
        (Part(type="file", data=b"\xff", media_type="text/x"), "[file 'x', text/x: it cannot be shown here]"),
        (Part(type="file", url="http://x.org/a"), "[file 'x', type unknown: it cannot be shown here]"),
        (Part(type="file", url="data:image/png;base64,?"), "[file 'x', type unknown: it cannot be shown here]"),
        (Part(type="file", blob="b1", media_type="text/x"), "[file 'x', text/x: it cannot be shown here]"),
    ],
)
def test_a_part_is_shown_where_it_can_be_and_named_where_it_cannot(part, made):
    named = msgspec.structs.replace(part, name="x")
    assert history(Message(role="user", text="Look", parts=(named,))) == [user("Look", word(made))]
    said = written(Message(role="assistant", parts=(named,)))["parts"]
    assert [[*each] for each in said] == [["text"]]


def test_an_address_that_is_a_whole_file_is_not_named_in_full():
    [part] = written(Message(role="user", parts=(Part(type="file", url="data:a/b;base64," + "A" * 1000),)))["parts"]
    assert len(part["text"]) < 300


def test_files_stand_in_a_result_where_the_model_takes_them():
    page = Part(type="file", url="https://x.org/a.pdf", media_type="application/pdf")
    sound, plain = Part(type="file", data=b"x", media_type="audio/wav", name="s"), Part(type="text", text="and")
    message = Message(role="tool", text="found", parts=(plain, IMAGE, page, sound), call_id="a", name="weather")
    note = "[file 's', audio/wav: it cannot be shown here]"
    assert written(message)["parts"] == [
        result(
            "a",
            f"found\nand\n{note}",
            INLINE,
            {"fileData": {"fileUri": "https://x.org/a.pdf", "mimeType": "application/pdf"}},
        )
    ]
    [older] = written(message, OLDER)["parts"]
    assert "parts" not in older["functionResponse"]
    assert older["functionResponse"]["response"]["output"].count("it cannot be shown here") == 3
    assert written(Message(role="tool", parts=(IMAGE,), call_id="a", name="weather"))["parts"] == [
        result("a", "", INLINE)
    ]


@given(text, st.sampled_from(["system", "user", "assistant", "tool"]), st.booleans())
def test_any_text_gives_a_valid_block(said, role, failed):
    block = written(Message(role=role, text=said, name=said, call_id=said, failed=failed))
    assert block["role"] == ("model" if role == "assistant" else "user")
    assert len(block["parts"]) == 1
    clean = said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if role == "user" and said:
        assert block["parts"][0]["text"] == clean
    if role == "tool":
        assert block["parts"][0]["functionResponse"]["response"] == {"error" if failed else "output": clean}


def test_arguments_that_no_json_has_become_text():
    call = Call("a", "weather", {"nan": float("nan"), "none": None, "half": "\ud800"})
    [part] = written(Message(role="assistant", calls=(call,)))["parts"]
    assert part["functionCall"]["args"] == {"nan": "nan", "none": None, "half": "\ufffd"}


# --- what the provider wants back ---


def kept(items: Any, *calls: Call, text: str = "said", by: str = BY) -> Any:
    return written(Message(role="assistant", text=text, calls=calls, native=Native(by, items)))["parts"]


CALLED: dict[str, Any] = {"functionCall": {}}


def test_an_own_reply_is_given_back_as_it_was_with_the_calls_that_are_on_record():
    thought = {"text": "Hm.", "thought": True} | SIGNATURE
    items = [
        thought,
        word("One."),
        CODE | SIGNATURE,
        RAN,
        word("Two."),
        CALLED | SIGNATURE,
        CALLED,
        word("") | SIGNATURE,
    ]
    found = kept(items, Call("a:1", "weather", {"x": 1}), Call("b", "unknown", {}))
    assert found == [*items[:5], use("a:1", x=1) | SIGNATURE, use("b", "unknown"), items[7]]


def test_a_first_call_without_a_signature_says_so():
    calls = (Call("a", "weather", {}), Call("b", "weather", {}))
    assert kept([word("x") | SIGNATURE, CALLED, CALLED], *calls) == [
        word("x") | SIGNATURE,
        use("a") | {"thoughtSignature": UNSIGNED},
        use("b"),
    ]


@pytest.mark.parametrize(
    "native",
    [
        None,
        Native("gemini/1 gemini-3-flash", [CALLED | SIGNATURE]),
        Native("anthropic-messages/1 claude", [CALLED | SIGNATURE]),
        Native(BY, [RAN]),
        Native(BY, [CALLED | SIGNATURE, CALLED]),
        Native(BY, CALLED),
        Native(BY, None),
    ],
)
def test_of_any_other_reply_only_text_and_calls_are_sent(native):
    message = Message(role="assistant", text="said", calls=(Call("a", "weather", {}),), native=native)
    assert written(message)["parts"] == [word("said"), use("a") | {"thoughtSignature": UNSIGNED}]


def test_items_that_no_provider_gave_are_no_reason_to_fail():
    assert kept([7, "x", None, [], word("")]) == [word("said")]


# --- envelopes ---


def test_members_of_a_body_stand_in_one_order_and_contents_last():
    dialect = GeminiDialect("gemini-3-pro", {"safetySettings": [], "temperature": 0.2, "toolConfig": {"a": 1}})
    header = RequestHeaderContent(
        tools=[WEATHER, {"name": "now"}],
        output={"type": "object"},
        meta={
            "instructions": "Be brief.",
            "settings": {"max_output_tokens": 9, "contents": [], "thinkingConfig": {"thinkingLevel": "low"}},
        },
    )
    body = sent(header, Message(role="user", text="Hi"), dialect=dialect)
    assert list(body) == [
        *("systemInstruction", "tools", "safetySettings", "toolConfig", "generationConfig", "contents")
    ]
    assert body["systemInstruction"] == {"parts": [word("Be brief.")]}
    now = {"name": "now", "parametersJsonSchema": {"type": "object", "properties": {}}}
    assert body["tools"] == [{"functionDeclarations": [DECLARED, now]}]
    assert body["generationConfig"] == {
        "temperature": 0.2,
        "maxOutputTokens": 9,
        "thinkingConfig": {"thinkingLevel": "low"},
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
    }
    assert body["contents"] == [user("Hi")]


def test_an_empty_header_gives_the_least_body():
    envelope = GeminiDialect("m", stream=False).envelope(RequestHeaderContent())
    assert (envelope.head, envelope.join, envelope.tail) == (b'{"contents":[', b",", b"]}")
    assert sent(RequestHeaderContent(tools=[WEATHER], meta={"tools_in": "text"})) == {"contents": []}


def test_settings_of_the_header_win_and_none_leaves_a_member_out():
    dialect = GeminiDialect("m", {"topP": 1, "seed": 3, "labels": {}, "generationConfig": {"topK": 2, "seed": 4}})
    own: dict[str, Any] = {
        "temperature": 0,
        "seed": None,
        "labels": None,
        "generationConfig": {"topK": 5},
        "tools": [],
        "stream": 1,
    }
    body = sent(RequestHeaderContent(meta={"settings": own}), dialect=dialect)
    assert body == {"generationConfig": {"topP": 1, "topK": 5, "temperature": 0}, "contents": []}
    own = {"generationConfig": None, "store": False}
    assert sent(RequestHeaderContent(meta={"settings": own}), dialect=dialect) == {
        "labels": {},
        "store": False,
        "contents": [],
    }


def test_tools_of_the_provider_come_after_the_agents():
    dialect = GeminiDialect("gemini-3-pro", {"server_tools": [{"googleSearch": {}}, 7]})
    body = sent(RequestHeaderContent(tools=[WEATHER]), dialect=dialect)
    assert body["tools"] == [{"functionDeclarations": [DECLARED]}, {"googleSearch": {}}]
    assert sent(RequestHeaderContent(), dialect=dialect)["tools"] == [{"googleSearch": {}}]
    assert "tools" not in sent(RequestHeaderContent(meta={"settings": {"server_tools": None}}), dialect=dialect)


@pytest.mark.parametrize(
    "settings",
    [
        {"responseMimeType": "text/plain"},
        {"response_schema": {"type": "STRING"}, "responseMimeType": "application/json"},
        {"generationConfig": {"responseJsonSchema": {"type": "string"}, "responseMimeType": "application/json"}},
    ],
)
def test_ones_own_form_of_the_answer_wins(settings):
    body = sent(RequestHeaderContent(output={"type": "object"}, meta={"settings": settings}))
    assert "object" not in json.dumps(body)


def test_an_answer_that_cannot_be_held_to_its_schema_is_asked_for_in_words():
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    endless = sent(RequestHeaderContent(output=schema, meta={"instructions": "Be brief."}))
    words = ASKED + json.dumps(schema, separators=(",", ":"))
    assert endless == {"systemInstruction": {"parts": [word("Be brief."), word(words)]}, "contents": []}
    header = RequestHeaderContent(output={"type": "object"}, tools=[WEATHER])
    older = sent(header, Message(role="user", text="Hi"), dialect=OLDER)
    assert "generationConfig" not in older
    assert older["systemInstruction"] == {"parts": [word(ASKED + '{"type":"object"}')]}
    assert violations(older, OLDER.model) == []
    alone = sent(RequestHeaderContent(output={"type": "object"}), dialect=OLDER)
    assert alone["generationConfig"]["responseJsonSchema"] == {"type": "object"}


@pytest.mark.parametrize("name", ["model", "contents", "systemInstruction", "tools", "stream"])
def test_a_setting_that_is_made_from_the_record_is_refused(name):
    with pytest.raises(AgentError) as found:
        GeminiDialect("gemini-3-pro", {name: []})
    assert str(found.value) == (
        f"Settings of model 'gemini-3-pro' hold {name!r}, which is made from the agent and its record. Leave out "
        "'model', 'contents', 'systemInstruction', 'tools', 'stream'; every other member is sent as it is. Tools that "
        "the provider runs itself go into 'server_tools'."
    )


# --- schemas ---

A = {"$ref": "#/$defs/A"}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        ({"const": 1, "title": "T"}, {"title": "T", "type": "integer", "enum": [1]}),
        ({"const": True}, {"type": "boolean"}),
        ({"const": None}, {"type": "null"}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"type": "number", "enum": [1, 2]}, {"type": "number", "enum": [1, 2]}),
        (
            {"type": ["string", "null"], "enum": ["a", None]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        ),
        ({"enum": [[1]]}, {"enum": [[1]]}),
        ({"enum": []}, {"enum": []}),
        ({"enum": ["a", 1], "anyOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}], "enum": ["a", 1]}),
        (A, A),
        (A | {"description": "d", "default": None}, {"description": "d", "default": None, "anyOf": [A]}),
        ({"$ref": "#/definitions/A"}, A),
        ({"allOf": [A], "description": "d"}, {"description": "d", "anyOf": [A]}),
        ({"allOf": [A, {"type": "object"}]}, {"allOf": [A, {"type": "object"}]}),
        ({"$schema": "x", "type": "string"}, {"type": "string"}),
        ({"items": True, "additionalProperties": True}, {"additionalProperties": True}),
        (
            {"type": "array", "prefixItems": [{"const": 1}], "items": False},
            {"type": "array", "prefixItems": [{"type": "integer", "enum": [1]}], "maxItems": 1},
        ),
        ({"properties": {"$ref": {"const": 1}}}, {"properties": {"$ref": {"type": "integer", "enum": [1]}}}),
        ({"default": {"const": 1}, "additionalProperties": False}, {"default": {"const": 1}, "additionalProperties": False}),
        ({"definitions": {"A": True}, "$defs": {"B": {}}}, {"$defs": {"A": {}, "B": {}}}),
    ],
)  # fmt: skip
def test_a_schema_is_rewritten_where_it_would_be_refused_or_not_read(given, made):
    before = json.dumps(given)
    assert adapted(given) == made
    assert json.dumps(given) == before


def test_a_schema_that_is_taken_stays_as_it_is():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "x", "minLength": 1, "format": "date"},
            "b": {"type": "array", "items": {"anyOf": [A, {"type": "null"}]}, "uniqueItems": True},
            "c": {"type": "object", "additionalProperties": {"type": "integer", "exclusiveMinimum": 0}},
        },
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"A": {"type": "object", "properties": {}}},
    }
    assert adapted(schema) == held(schema) == arguments(schema) == schema


def test_arguments_of_a_function_are_an_object_at_the_top():
    table = {"$defs": {"A": {"type": "object", "properties": {"x": {}}, "title": "A"}}}
    assert arguments(A | table) == table["$defs"]["A"] | table
    assert arguments(A | table | {"title": "B"}) == table["$defs"]["A"] | table | {"title": "B"}
    assert arguments({}) == {"type": "object"}
    assert arguments({"anyOf": [A]}) == {"type": "object", "anyOf": [A]}
    assert arguments({"type": "string"}) == {"type": "object"}
    assert arguments(A | {"$defs": {"A": A}})["type"] == "object"
    assert arguments(A | {"$defs": {"A": 7}})["type"] == "object"


def node(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


@pytest.mark.parametrize(
    ("schema", "ends"),
    [
        (A | {"$defs": {"A": node("v", v={"type": "string"}, kids={"type": "array", "items": A})}}, True),
        (A | {"$defs": {"A": node("kids", kids={"type": "array", "items": A})}}, False),
        (A | {"$defs": {"A": node("a", a={"anyOf": [A, {"type": "null"}]})}}, False),
        (node("a", a=A) | {"$defs": {"A": node("b", b={"$ref": "#/$defs/B"}), "B": node("a", a=A)}}, False),
        (node("a", a=A) | {"$defs": {"A": node("b", b={"$ref": "#/$defs/B"}), "B": node(a=A)}}, True),
        (node("a", a={"type": "string", "default": A}), True),
        ({"type": "array", "items": {"$ref": "#"}}, False),
        ({"type": "object", "properties": 7, "required": 7, "$defs": 7}, True),
    ],
)
def test_an_answer_is_held_to_a_schema_that_ends(schema, ends):
    assert (held(schema) is not None) == ends


# --- replies ---

USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 2, "thoughtsTokenCount": 4, "totalTokenCount": 9}


def chunk(*parts: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [word(each) for each in parts]}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate | more], "modelVersion": "gemini-3-pro-001", "usageMetadata": USAGE}


def whole(*parts: Any, finish: Any = "STOP", **more: Any) -> bytes:
    return json.dumps(chunk(*parts, finish=finish, **more)).encode()


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\r\n\r\n"


def pieces(part: Any, size: int) -> list[Any]:
    """One part as the API streams it: words in pieces, and their signature after them, or with the last."""
    said = part.get("text")
    if not isinstance(said, str) or "thoughtSignature" in part:
        return [part]
    return [part | {"text": said[at : at + size]} for at in range(0, len(said), size)] or [part]


def chunks(*parts: Any, finish: Any = "STOP", size: int = 3, **more: Any) -> list[dict[str, Any]]:
    made = [chunk(piece) for part in parts for piece in pieces(word(part), size)]
    for each in made:
        each["usageMetadata"] = {"promptTokenCount": 3, "totalTokenCount": 3}
    return [*made, chunk(finish=finish, **more)]


def stream(*parts: Any, finish: Any = "STOP", size: int = 3, **more: Any) -> bytes:
    return b"".join(map(event, chunks(*parts, finish=finish, size=size, **more)))


def read(*data: bytes) -> tuple[Reply, str, str]:
    parser, deltas = GeminiParser(), list[Delta]()
    for piece in data:
        deltas += parser.feed(piece)
    said, thought = ("".join(delta.text for delta in deltas if delta.type == type) for type in ("text", "thought"))
    return parser.close(), said, thought


def reply_of(*data: bytes) -> Reply:
    return read(*data)[0]


THOUGHT = {"text": "Hm, 東京?", "thought": True}
FULL = (
    THOUGHT,
    "Grüße 😀 aus",
    CODE | SIGNATURE,
    RAN,
    " 東京.",
    use("f1", city="Köln", days=[1, 2.5, None]) | SIGNATURE,
    use(None, "now"),
    word("") | {"thoughtSignature": "ZW5k"},
)


def test_a_whole_reply_is_read():
    assert reply_of(whole(*FULL)) == Reply(
        text="Grüße 😀 aus 東京.",
        thought="Hm, 東京?",
        calls=(ReplyCall("weather", '{"city":"Köln","days":[1,2.5,null]}', "f1"), ReplyCall("now", "{}", None)),
        model="gemini-3-pro-001",
        finish_reason="STOP",
        usage=USAGE,
        native=[word("Grüße 😀 aus"), CODE | SIGNATURE, RAN, word(" 東京."), CALLED | SIGNATURE, CALLED, FULL[7]],
    )


def test_a_streamed_reply_is_the_same_and_its_deltas_join_to_it():
    expected = reply_of(whole(*FULL))
    assert read(stream(*FULL)) == (expected, expected.text, expected.thought)
    assert read(json.dumps(chunks(*FULL), indent=1).encode()) == (expected, "", "")
    assert read(whole(*FULL))[1:] == ("", "")


def test_what_was_read_is_written_back_by_the_same_model_alone():
    reply = reply_of(whole(*FULL))
    calls = tuple(Call(call.id or "made", call.name, json.loads(call.args)) for call in reply.calls)
    message = Message(role="assistant", text=reply.text, calls=calls, native=Native(BY, reply.native))
    assert written(message) == spoken(*FULL[1:6], use("made", "now"), FULL[7])
    other = written(message, GeminiDialect("gemini-3-flash"))
    unsigned = use("f1", city="Köln", days=[1, 2.5, None]) | {"thoughtSignature": UNSIGNED}
    assert other == spoken(reply.text, unsigned, use("made", "now"))


@pytest.mark.parametrize(
    "parts",
    [
        ("Hi",),
        (use("a"),),
        ("Hi", use("a"), "there"),
        ("",),
        (),
        (THOUGHT, "Hi"),
        ({},),
        ({"thought": True},),
        ({"inlineData": {"mimeType": "image/png", "data": "x"}, "thought": True},),
        ({"text": "x", "thoughtSignature": ""},),
        ({"text": "x", "thoughtSignature": 7},),
        ({"executableCode": 7},),
        ({"a": {}, "b": {}},),
    ],
)
def test_text_and_calls_alone_need_nothing_back(parts):
    assert reply_of(whole(*parts)).native is None
    assert reply_of(stream(*parts)) == reply_of(whole(*parts))


@pytest.mark.parametrize(
    ("parts", "native"),
    [
        ((SIGNATURE,), [word("") | SIGNATURE]),
        (({"thought": True} | SIGNATURE,), [{"text": "", "thought": True} | SIGNATURE]),
        (("a", "b", "c" + "", word("d") | SIGNATURE, "e"), [word("abc"), word("d") | SIGNATURE, word("e")]),
        ((THOUGHT | SIGNATURE, "a"), [THOUGHT | SIGNATURE, word("a")]),
        (({"toolCall": {"toolType": "X"}}, {"toolResponse": {}}), [{"toolCall": {"toolType": "X"}}, {"toolResponse": {}}]),
        (({"inlineData": {"mimeType": "image/png", "data": "x"}},), [{"inlineData": {"mimeType": "image/png", "data": "x"}}]),
        (({"new": {"x": 1}, "partMetadata": {}},), [{"new": {"x": 1}, "partMetadata": {}}]),
    ],
)  # fmt: skip
def test_what_is_more_than_text_and_calls_is_kept_in_order(parts, native):
    assert reply_of(whole(*parts)).native == native
    assert reply_of(stream(*parts)).native == native


def test_words_around_something_else_are_paragraphs():
    assert reply_of(whole("I run.", CODE, RAN, "It is", " 1.")).text == "I run.\n\nIt is 1."
    assert reply_of(whole("I run.\n", CODE, "It is 1.")).text == "I run.\nIt is 1."
    assert reply_of(whole("a", use("x"), "b")).text == "a\n\nb"
    assert reply_of(whole(THOUGHT, "a", THOUGHT, "b")).thought == "Hm, 東京?\n\nHm, 東京?"
    assert reply_of(whole(THOUGHT, "a", THOUGHT, "b")).text == "a\n\nb"
    assert reply_of(whole("a", word("") | SIGNATURE, "b")).text == "ab"
    assert reply_of(stream("a", CODE, "", "b")) == reply_of(whole("a", CODE, "", "b"))


def test_usage_is_the_last_and_nothing_that_was_told_before_is_lost():
    early = chunk("Hi") | {"usageMetadata": {"promptTokenCount": 3, "cachedContentTokenCount": 2, "totalTokenCount": 5}}
    reply = reply_of(event(early), event(chunk(finish="STOP")))
    assert reply.usage == USAGE | {"cachedContentTokenCount": 2}
    assert tokens(reply.usage) == Tokens(input=3, output=6, cache_read=2, reasoning=4)
    assert tokens({"promptTokenCount": 15, "thoughtsTokenCount": 2}) == Tokens(input=15, output=2, reasoning=2)
    assert tokens({"promptTokenCount": 343, "toolUsePromptTokenCount": 877, "candidatesTokenCount": 82}) == (
        Tokens(input=1220, output=82)
    )


@pytest.mark.parametrize("finish", ["STOP", "MAX_TOKENS", "SAFETY", "OTHER", "A_NEW_ONE", 7])
def test_the_reason_to_stop_is_the_providers(finish):
    assert reply_of(whole("Hi", finish=finish)).finish_reason == str(finish)
    assert reply_of(stream("Hi", finish=finish)).finish_reason == str(finish)
    assert reply_of(whole("Hi", finish=None)).finish_reason is None


def test_what_is_said_of_a_refusal_is_text():
    for make in (whole, stream):
        refused = reply_of(make(finish="SAFETY", finishMessage="Not this."))
        assert (refused.text, refused.finish_reason) == ("Not this.", "SAFETY")
        assert reply_of(make("I", finish="SAFETY", finishMessage="Not this.")).text == "I\n\nNot this."
        assert reply_of(make("I", finish="STOP", finishMessage="Model generated function call(s).")).text == "I"
        assert reply_of(make(use("a"), finish="OTHER", finishMessage="Hm.")).text == ""
        assert reply_of(make(finish="SAFETY")).text == ""
    assert read(stream(finish="SAFETY", finishMessage="Not this."))[1] == "Not this."


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"name": "f"}, ReplyCall("f", "{}", None)),
        ({"name": "f", "args": None, "id": ""}, ReplyCall("f", "{}", None)),
        ({"name": "f", "args": '{"a":'}, ReplyCall("f", '{"a":', None)),
        ({"name": "f", "args": [1]}, ReplyCall("f", "[1]", None)),
        ({"name": 7, "args": {"b": 1, "a": 2}, "id": 7}, ReplyCall("", '{"b":1,"a":2}', "7")),
        ({"name": "f", "args": {"x": "\ud800"}}, ReplyCall("f", '{"x":"\\ud800"}', None)),
        ({}, ReplyCall("", "{}", None)),
    ],
)
def test_calls_of_any_form_are_read(call, expected):
    assert reply_of(whole({"functionCall": call})).calls == (expected,)


def test_only_the_first_of_several_candidates_is_the_answer():
    body = {"candidates": [{"index": 1, "content": {"parts": [word("b")]}}, {"content": {"parts": [word("a")]}}]}
    assert reply_of(json.dumps(body).encode()).text == "a"


def test_candidates_without_parts_are_replies():
    bodies: list[dict[str, Any]] = [{}, {"content": {}}, {"content": {"role": "model"}}, {"content": {"parts": None}}]
    for candidate in bodies:
        reply = reply_of(json.dumps({"candidates": [candidate | {"finishReason": "MAX_TOKENS"}]}).encode())
        assert (reply.text, reply.calls, reply.finish_reason, reply.native) == ("", (), "MAX_TOKENS", None)


@pytest.mark.parametrize(
    "data",
    [
        event(chunk("Hi")) + event(chunk(finish="STOP")),
        (event(chunk("Hi")) + event(chunk(finish="STOP"))).replace(b"\r\n", b"\n"),
        (event(chunk("Hi")) + event(chunk(finish="STOP"))).replace(b"\r\n", b"\r"),
        (event(chunk("Hi")) + event(chunk(finish="STOP"))).replace(b"data: ", b"data:"),
        (event(chunk("Hi")) + event(chunk(finish="STOP"))).replace(b"\r\n\r\n", b"\n"),
        event(chunk("Hi")) + event(chunk(finish="STOP")).rstrip(),
        event(chunk("Hi", finish="STOP")) + b'data: {"usa',
        b": hey\n\n" + event({"usageMetadata": {}}) + event(chunk("Hi", finish="STOP")) + b"data: [DONE]\n\n",
        event(chunk("Hi", finish="STOP")) + b"data: [DONE]\n\ndata: garbage\n\n",
        b"data:\n\n" + event([1]) + event(7) + event({"candidates": 7}) + event(chunk("Hi", finish="STOP")),
        b"\n\n \xef\xbb\xbf" + whole("Hi"),
        b"[" + whole("H", finish=None) + b"\n,\r\n" + whole("i") + b"]\n",
    ],
)
def test_servers_frame_their_replies_in_many_ways(data):
    assert (reply_of(data).text, reply_of(data).finish_reason) == ("Hi", "STOP")
    assert reply_of(*[data[at : at + 1] for at in range(len(data))]) == reply_of(data)


def test_a_character_cut_between_its_surrogates_is_one_again():
    halves = [rb'data: {"candidates":[{"content":{"parts":[{"text":"a\ud83d"}]}}]}' + b"\n\n"]
    halves += [rb'data: {"candidates":[{"content":{"parts":[{"text":"\ude00 \ud800"}]}}]}' + b"\n\n"]
    reply, said, _ = read(*halves, event(chunk(CODE, finish="STOP")))
    assert reply.text == said == "a😀 \ud800"
    assert reply.native[0] == word("a😀 \ud800")


# --- what is not a reply ---

EXHAUSTED = {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}
INVALID = {"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}
BLOCKED = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "No."}, "usageMetadata": {}}


@pytest.mark.parametrize(
    ("data", "type", "retry"),
    [
        (b"", "lost-stream", True),
        (b"\n\n", "lost-stream", True),
        (event(chunk("Hi")), "lost-stream", True),
        (event(chunk("Hi")) + b'data: {"candi', "lost-stream", True),
        (event(chunk("Hi")) + b"data: [DONE]\n\n", "lost-stream", True),
        (event(chunk("Hi")) + event(EXHAUSTED), "RESOURCE_EXHAUSTED", True),
        (event(INVALID), "INVALID_ARGUMENT", False),
        (event(INVALID).rstrip(), "INVALID_ARGUMENT", False),
        (b'event: error\ndata: "down"\n\n', "provider-error", True),
        (json.dumps(EXHAUSTED).encode(), "RESOURCE_EXHAUSTED", True),
        (json.dumps([INVALID]).encode(), "INVALID_ARGUMENT", False),
        (json.dumps([chunk("Hi"), EXHAUSTED]).encode(), "RESOURCE_EXHAUSTED", True),
        (b'{"detail": "Not Found"}', "provider-error", True),
        (b'{"message": "Unauthorized"}', "provider-error", True),
        (json.dumps(BLOCKED).encode(), "PROHIBITED_CONTENT", False),
        (event(BLOCKED), "PROHIBITED_CONTENT", False),
        (b'{"promptFeedback": {"blockReason": 7}}', "7", False),
        (b'{"promptFeedback": {"blockReason": "BLOCK_REASON_UNSPECIFIED"}}', "bad-reply", True),
        (whole("Now:", finish="MALFORMED_FUNCTION_CALL", finishMessage="f(x"), "MALFORMED_FUNCTION_CALL", True),
        (stream(use("a"), finish="MALFORMED_FUNCTION_CALL"), "MALFORMED_FUNCTION_CALL", True),
        (whole(finish="UNEXPECTED_TOOL_CALL"), "UNEXPECTED_TOOL_CALL", True),
        (whole(finish="MISSING_THOUGHT_SIGNATURE"), "MISSING_THOUGHT_SIGNATURE", False),
        (whole({"functionCall": {"name": "f", "partialArgs": []}}), "bad-reply", False),
        (whole({"functionCall": {"name": "f", "willContinue": True}}), "bad-reply", False),
        (b"<html>login</html>", "bad-reply", True),
        (b'{"candidates": [', "bad-reply", True),
        (b'{"candidates": []}', "bad-reply", True),
        (b'{"candidates": 7}', "bad-reply", True),
        (b'{"id": 1}', "bad-reply", True),
        (b"[]", "bad-reply", True),
        (b"[1]", "bad-reply", True),
        (b"{" * 100_000, "bad-reply", True),
        (b"data: {nope}\n\n", "bad-reply", True),
    ],
)
def test_what_is_no_reply_is_a_fault(data, type, retry):
    for cut in ([data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        with pytest.raises(ModelFault) as found:
            read(*cut)
        assert (found.value.type, found.value.retry) == (type, retry)
        assert found.value.message


def test_a_prompt_that_was_blocked_says_why():
    with pytest.raises(ModelFault) as found:
        read(json.dumps(BLOCKED).encode())
    assert str(found.value) == "The prompt was blocked (PROHIBITED_CONTENT). No."


# --- however it is cut ---

RECORDED = b": hello\r\n\r\n" + stream(*FULL, size=5)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(st.integers(min_value=0, max_value=10_000), max_size=40))
def test_any_cut_of_a_stream_gives_the_same_reply_and_deltas(places):
    assert read(*cut(RECORDED, places)) == read(RECORDED)


@pytest.mark.slow
def test_every_single_cut_gives_the_same_reply_and_deltas():
    expected = read(RECORDED)
    assert expected[1:] == (expected[0].text, expected[0].thought)
    for place in range(len(RECORDED)):
        assert read(RECORDED[:place], RECORDED[place:]) == expected


WORDS = st.sampled_from(
    [
        *(
            "candidates",
            "content",
            "parts",
            "text",
            "thought",
            "thoughtSignature",
            "functionCall",
            "name",
            "args",
            "id",
        ),
        *("executableCode", "code", "finishReason", "finishMessage", "index", "usageMetadata", "promptTokenCount"),
        *("promptFeedback", "blockReason", "blockReasonMessage", "modelVersion", "error", "detail", "willContinue"),
    ]
)
REASONS = st.sampled_from(["STOP", "SAFETY", "MALFORMED_FUNCTION_CALL", "OTHER"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | REASONS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=20,
)
MEMBERS = st.dictionaries(WORDS, ANYTHING, max_size=4)


@given(st.lists(st.tuples(MEMBERS, MEMBERS, st.lists(MEMBERS, max_size=3)), max_size=4), st.lists(ANYTHING, max_size=2))
@example([({}, {}, [{"functionCall": {"args": {"a": float("nan")}}}])], [])
@example([({}, {"content": {"parts": [7, {"text": "\ud800"}]}}, [])], [])
def test_no_json_raises_anything_but_a_fault(given, odd):
    made = [{"candidates": [{"content": {"parts": parts}} | inner]} | outer for outer, inner, parts in given]
    data = b"".join(map(event, [*made, *odd]))
    bodies = [json.dumps(each).encode() for each in (made, *made, *odd)]
    for bytes_ in (data, data + event(chunk(finish="STOP")), *bodies):
        for one in (bytes_, bytes_.replace(b"0", b"9" * 5000)):
            with contextlib.suppress(ModelFault):
                reply = reply_of(one)
                json.dumps(reply.native)
                calls = tuple(Call(f"c{at}", call.name, {}) for at, call in enumerate(reply.calls))
                assert written(Message(role="assistant", calls=calls, native=Native(BY, reply.native)))["parts"]


@given(st.binary(max_size=200) | st.text(alphabet='data: {}[]"\n\r,candites0', max_size=200).map(str.encode),
       st.lists(st.integers(min_value=0, max_value=200), max_size=5))  # fmt: skip
def test_no_bytes_raise_anything_but_a_fault(data, places):
    def outcome(pieces: list[bytes]) -> Any:
        try:
            return read(*pieces)
        except ModelFault as fault:
            return fault.type, fault.retry, fault.http_status

    assert outcome(cut(data, places)) == outcome([data])


ARGUMENTS = st.dictionaries(
    st.text(max_size=3), st.none() | st.integers(-(2**60), 2**60) | st.text(max_size=8), max_size=3
)
PARTS = st.one_of(
    st.text(max_size=20),
    st.builds(lambda said: {"text": said, "thought": True}, st.text(max_size=10)),
    st.builds(lambda said: word(said) | SIGNATURE, st.text(max_size=10)),
    st.builds(lambda args: use("a") | {"functionCall": {"name": "f", "args": args}}, ARGUMENTS),
    st.sampled_from([CODE, RAN, CODE | SIGNATURE, use(None) | SIGNATURE, SIGNATURE]),
)


@given(st.lists(PARTS, max_size=6), st.integers(min_value=1, max_value=7))
def test_a_streamed_reply_equals_the_whole_one(parts, size):
    expected = reply_of(whole(*parts))
    assert read(stream(*parts, size=size)) == (expected, expected.text, expected.thought or "")
    assert reply_of(json.dumps(chunks(*parts, size=size)).encode()) == expected


def test_many_small_pieces_take_linear_time():
    def take(many):
        data = event(chunk("x" * 50)) * many + event(chunk("y" * 500 * many)) + event(chunk(CODE, finish="STOP"))
        reply = reply_of(*[data[at : at + 65536] for at in range(0, len(data), 65536)])
        assert len(reply.text) == len(reply.native[0]["text"]) == 550 * many

    assert growth(take, 1500) < LINEAR


# --- histories of real runs ---


@dataclass
class Canned:
    """A model that answers what it was given, in the form of the API."""

    answers: Sequence[bytes]
    dialect: GeminiDialect

    @property
    def name(self) -> str:
        return f"google:{self.dialect.model}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dialect, name)

    async def send(self, request: Request) -> AsyncGenerator[bytes, None]:
        yield self.answers[min(request.answered, len(self.answers) - 1)]


def answer(said: str, thought: str | None, calls: Sequence[ReplyCall], ran: Sequence[Any], *, signed: bool) -> bytes:
    parts: list[Any] = [{"text": thought, "thought": True}] if thought is not None else []
    parts += [*ran, said]
    for at, call in enumerate(calls):
        made: dict[str, Any] = {"name": call.name, "args": call.args} | ({} if call.id is None else {"id": call.id})
        with contextlib.suppress(ValueError, RecursionError):
            made["args"] = json.loads(call.args)
        parts.append({"functionCall": made} | (SIGNATURE if signed and not at else {}))
    return stream(*parts, *([SIGNATURE] if signed and not calls else []))


answers = st.lists(
    st.builds(
        answer,
        text,
        st.none() | text,
        st.lists(wild_calls, max_size=3),
        st.sampled_from([[], [CODE, RAN], [CODE | SIGNATURE, RAN], [{"inlineData": {"mimeType": "image/png", "data": "aaaa"}}]]),
        signed=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3-pro-preview", "gemini-flash-latest"])
@COSTLY
@given(answers)
def test_at_every_prefix_of_every_run_the_body_is_valid(model: str, given: list[bytes]) -> None:
    async def main() -> None:
        canned: Any = Canned([*given, whole("done")], GeminiDialect(model))
        acting = agent(World(), [], model=canned)
        store = MemoryStore()
        outcomes = await play(store, acting, ["do it", " "])
        assert {outcome.reason for outcome in outcomes} <= {"answered", "failed"}
        entries = await Record(store, lambda made: made).read(outcomes[0].run)
        assert native_by(canned) == f"gemini/1 {model}"
        others: list[Any] = [Canned([], GeminiDialect(other)) for other in ("gemini-3-other", "gemini-2.0")]
        for reader in (canned, *others):
            header, envelope = acting.header(), reader.envelope(acting.header())
            for place in range(2, len(entries) + 1):
                prompt = Prompt(acting.formats(), reader)
                for entry in entries[:place]:
                    prompt.add(entry)
                prompt.close()
                body = prompt.request(header, envelope, 0).body()
                assert violations(msgspec.json.decode(body), reader.dialect.model) == []

    anyio.run(main)
