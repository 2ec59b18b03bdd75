"""The Responses dialect: what it writes, what it reads, and that what it read goes back as it should."""

import base64
import contextlib
import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.scenes import World, again, agent
from tests.laws.test_histories import bodies, scripts
from tests.laws.test_resume import whole as played
from tests.validators.responses import violations

from gesta.errors import AgentError, ModelFault
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message, Native
from gesta.model.request import Reply, ReplyCall, Request
from gesta.model.usage import Tokens, tokens
from gesta.models.responses import ResponsesDialect, answer_format, parameters
from gesta.record.record import Record

DIALECT = ResponsesDialect("gpt-5")
STORING = ResponsesDialect("gpt-5", {"store": True})
WEATHER = {"name": "weather", "description": "Today's weather", "args_schema": {"type": "object", "properties": {}}}
TEXT = st.text(st.characters(codec=None), max_size=20)
HALF = "\ud83d"


def built(
    *messages: Message, header: RequestHeaderContent | None = None, dialect: ResponsesDialect = DIALECT
) -> dict[str, Any]:
    header = header or RequestHeaderContent()
    request = Request(header=header, envelope=dialect.envelope(header), blocks=[*map(dialect.encode, messages)])
    found = json.loads(request.body())
    assert isinstance(found, dict)
    return found


def sent(*messages: Message, dialect: ResponsesDialect = DIALECT) -> list[Any]:
    return list(built(*messages, dialect=dialect)["input"])


# --- what is written ---


@pytest.mark.parametrize(
    ("message", "block"),
    [
        (Message(role="system", text="Be brief."), b'{"role":"system","content":"Be brief."}'),
        (Message(role="user", text='"Ü"\n😀'), '{"role":"user","content":"\\"Ü\\"\\n😀"}'.encode()),
        (Message(role="assistant", text=""), b'{"role":"assistant","content":""}'),
        (
            Message(role="assistant", text="Wait.", calls=(Call("c1", "weather", {"city": "Rome", "days": None}),)),
            (
                b'{"role":"assistant","content":"Wait."},{"type":"function_call","call_id":"c1","name":"weather",'
                b'"arguments":"{\\"city\\":\\"Rome\\",\\"days\\":null}"}'
            ),
        ),
        (
            Message(role="tool", text="", call_id="c1", name="weather"),
            b'{"type":"function_call_output","call_id":"c1","output":""}',
        ),
    ],
)
def test_a_block_is_these_bytes_for_ever(message, block):
    assert DIALECT.encode(message) == block
    assert (DIALECT.encoder, DIALECT.path) == ("responses/1", "/responses")


def test_members_of_a_body_stand_in_one_order_and_the_input_last():
    header = RequestHeaderContent(
        tools=[WEATHER, {"name": "now"}],
        output={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        meta={"instructions": "Be brief.", "settings": {"top_p": 0.9, "model": "other", "input": 3}},
    )
    dialect = ResponsesDialect("gpt-5", {"text": {"verbosity": "low"}})
    body = built(Message(role="user", text="Hi"), header=header, dialect=dialect)
    assert list(body) == ["model", "instructions", "tools", "store", "include", "text", "top_p", "stream", "input"]
    assert (body["model"], body["instructions"], body["store"]) == ("gpt-5", "Be brief.", False)
    assert body["include"] == ["reasoning.encrypted_content"]
    assert [*map(list, body["tools"])] == [["type", "name", "description", "parameters", "strict"]] * 2
    assert body["tools"][1]["parameters"] == {"type": "object", "properties": {}}
    assert body["text"]["format"]["name"] == "answer"
    assert body["text"]["verbosity"] == "low"
    assert violations(body) == []


def test_an_empty_header_gives_the_least_body():
    envelope = ResponsesDialect("m", {"store": None, "include": None}, stream=False).envelope(RequestHeaderContent())
    assert envelope.head == b'{"model":"m","input":['
    assert (envelope.join, envelope.tail, envelope.seam, envelope.lead) == (b",", b"]}", b"", b"")


def test_settings_of_the_header_win_and_none_leaves_a_member_out():
    dialect = ResponsesDialect("m", {"temperature": 1, "stream_options": {}}, stream=False)
    header = RequestHeaderContent(
        tools=[WEATHER],
        output={"type": "object"},
        meta={"tools_in": "text", "settings": {"temperature": 0, "store": True, "include": None, "text": None}},
    )
    assert built(header=header, dialect=dialect) == {"model": "m", "store": True, "temperature": 0, "input": []}
    own = {"format": {"type": "json_object"}}
    header = RequestHeaderContent(output={}, meta={"settings": {"text": own}})
    assert built(header=header)["text"] == own


@pytest.mark.parametrize("name", ["input", "tools", "instructions", "previous_response_id"])
def test_a_setting_that_is_made_from_the_record_is_refused(name):
    with pytest.raises(AgentError) as found:
        ResponsesDialect("gpt-5", {name: []})
    assert str(found.value).startswith(
        f"Settings of model 'gpt-5' hold {name!r}, which is made from the agent and its record. Leave out 'model', "
    )


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        *(("gpt-5", True), ("gpt-6-luna", True), ("o4-mini", True), ("openai/gpt-5.4", True), ("grok-4", True)),
        *(("gpt-4o", False), ("openai/gpt-4.1-mini", False), ("ft:gpt-4o:x", False), ("gpt-5-chat-latest", False)),
        *(("chatgpt-4o-latest", False), ("computer-use-preview", False), ("openai/gpt-oss-120b", True)),
    ],
)
def test_models_without_reasoning_are_not_asked_for_it(model, asked):
    assert ("include" in built(dialect=ResponsesDialect(model))) == asked


def test_lone_surrogates_are_sent_as_replacement_characters_and_pairs_as_one_character():
    text = "a\ud800b \ud83d\ude00 \udc00"
    assert sent(Message(role="user", text=text))[0]["content"] == "a\ufffdb 😀 \ufffd"
    said, call = sent(Message(role="assistant", text=text, calls=(Call("\ud800", "n\udfff", {"k\ud800": ["\udead"]}),)))
    assert said["content"] == "a\ufffdb 😀 \ufffd"
    assert call["name"] == "n_"
    assert json.loads(call["arguments"]) == {"k\ufffd": ["\ufffd"]}
    header = RequestHeaderContent(meta={"instructions": text, "settings": {"user": "\ud800"}})
    assert built(header=header)["user"] == "\ufffd"


@pytest.mark.parametrize("id", ["", None, "a.b", "x" * 65, "日本", "functions.look:0", "\ud800"])
def test_an_id_that_is_refused_becomes_another_and_the_same_in_the_answer(id):
    calls = (Call(id or "", "look", {}),)
    call, answer = sent(Message(role="assistant", calls=calls), Message(role="tool", text="x", call_id=id))
    assert call["call_id"] == answer["call_id"]
    assert call["call_id"].startswith("call_")
    assert violations(built(Message(role="assistant", calls=calls), Message(role="tool", text="", call_id=id))) == []
    assert sent(Message(role="tool", call_id="x" * 64))[0]["call_id"] == "x" * 64


def test_a_name_that_a_model_made_up_is_sent_as_a_name_that_is_allowed():
    names = ["get weather", "", "日本", "a.b/c", "x" * 70, "get_weather-2"]
    items = sent(Message(role="assistant", calls=tuple(Call(f"c{at}", name, {}) for at, name in enumerate(names))))
    assert [item["name"] for item in items] == ["get_weather", "_", "__", "a_b_c", "x" * 64, "get_weather-2"]


PNG, PDF = b"\x89PNG", b"%PDF-1.4"
PNG_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
SHOWN: list[tuple[Part, dict[str, Any]]] = [
    (
        Part(type="image", data=PNG, media_type="image/png"),
        {"type": "input_image", "detail": "auto", "image_url": PNG_URL},
    ),
    (
        Part(type="image", url="https://a.example/b.webp"),
        {"type": "input_image", "detail": "auto", "image_url": "https://a.example/b.webp"},
    ),
    (
        Part(type="file", data=PDF, media_type="Application/PDF; x=1", name="a\ud800.pdf"),
        {
            "type": "input_file",
            "filename": "a\ufffd.pdf",
            "file_data": f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}",
        },
    ),
    (
        Part(type="file", data=b"a,b", media_type="text/csv"),
        {"type": "input_file", "filename": "file", "file_data": "data:text/csv;base64,YSxi"},
    ),
    (Part(type="file", url="http://a.example/b"), {"type": "input_file", "file_url": "http://a.example/b"}),
    (
        Part(type="file", data=PNG, media_type="image/png"),
        {"type": "input_image", "detail": "auto", "image_url": PNG_URL},
    ),
    (Part(type="text", text="words"), {"type": "input_text", "text": "words"}),
]
NOT_SHOWN = [
    Part(type="image", data=b"<svg/>", media_type="image/svg+xml", name="n"),
    Part(type="image", data=PNG, name="n"),
    Part(type="image", data=b"", media_type="image/png", name="n"),
    Part(type="image", data=17, media_type="image/png", name="n"),
    Part(type="image", url="file:///etc/passwd", name="n"),
    Part(type="file", data=b"RIFF", media_type="audio/wav", name="n"),
    Part(type="file", data=b"??", name="n"),
    Part(type="file", blob="b1", name="n"),
]


@pytest.mark.parametrize(("part", "item"), SHOWN)
def test_images_and_files_are_sent_to_a_model_by_users_and_tools(part, item):
    other = SHOWN[0]
    user, answer = (
        Message(role="user", text="Look", parts=(part, other[0])),
        Message(role="tool", parts=(other[0], part)),
    )
    assert sent(user) == [{"role": "user", "content": [{"type": "input_text", "text": "Look"}, item, other[1]]}]
    assert sent(answer)[0]["output"] == [other[1], item]
    assert violations(built(user)) == []


@pytest.mark.parametrize("part", NOT_SHOWN)
def test_what_cannot_be_shown_is_named(part):
    found = sent(Message(role="user", text="Look", parts=(part,)))[0]["content"]
    assert found == f"Look\n[{part.type} 'n', {part.media_type or 'type unknown'}: it cannot be shown here]"
    beside = sent(Message(role="user", parts=(part, SHOWN[0][0])))[0]["content"]
    assert [each["type"] for each in beside] == ["input_text", "input_image"]


def test_only_users_and_tools_show_anything():
    parts = (SHOWN[0][0], Part(type="text", text="and this"))
    for role in ("system", "assistant"):
        (item,) = sent(Message(role=role, text="Look", parts=parts))
        assert item["content"] == "Look\n[image 'without a name', image/png: it cannot be shown here]\nand this"


@pytest.mark.parametrize("schema", [None, {}, {"type": "string"}, {"anyOf": [{"type": "object"}]}, {"properties": [3]}])
def test_the_schema_of_a_tool_is_one_of_a_plain_object(schema):
    assert parameters(schema) == {"type": "object", "properties": {}}


def test_a_schema_of_a_tool_that_may_stay_as_it_is_stays():
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"minimum": 3}]}}, "$defs": {}}
    assert json.dumps(parameters(schema)) == json.dumps(schema)


INNER = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    "schema",
    [
        INNER,
        {"type": "object", "properties": {}},
        {
            "type": "object",
            "title": "Answer",
            "properties": {
                "a": {"type": "array", "items": INNER},
                "b": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]},
                "c": {"enum": ["d", "e"]},
                "f": {**INNER, "type": ["object", "null"]},
            },
            "required": ["f", "a", "b", "c"],
            "$defs": {"B": INNER},
        },
    ],
)
def test_an_answer_is_strict_where_its_schema_can_be(schema):
    found = answer_format(schema)
    assert found["strict"] is True
    assert violations({"model": "m", "input": "x", "text": {"format": found}}) == []
    without = json.dumps(found["schema"]).replace(', "additionalProperties": false', "")
    assert json.loads(without) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "default": ""}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "format": "uri"}}, "required": ["a"]},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"$ref": "#/x", "title": "t"}}, "required": ["a"]},
        {"type": "object", "anyOf": [INNER]},
        {"type": "object", "properties": {"a": {"anyOf": []}}, "required": ["a"]},
        {"type": "object", "properties": [], "required": {}},
        {"type": "array", "items": INNER},
        {},
    ],
)
def test_any_other_schema_of_an_answer_is_sent_as_it_is(schema):
    assert answer_format(schema) == {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}


# --- whole replies ---


def of_message(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{len(text)}", "role": "assistant", "content": content, **more}


def of_call(name: str, args: Any, id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": args, **more}


def of_thought(*summary: str, id: str = "rs_1", **more: Any) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": id, "summary": parts, "encrypted_content": "gAAA", **more}


def response(*output: Any, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 5}, "odd": [1]}
    return {"object": "response", "model": "gpt-5-1", "status": "completed", "output": output, "usage": usage, **more}


def read(*pieces: bytes) -> tuple[Reply, str, str]:
    """The reply, the joined deltas of its text, and those of its thought."""
    parser, deltas = DIALECT.parser(), []
    for piece in pieces:
        deltas += parser.feed(piece)
    reply = parser.close()
    texts = {type: "".join(delta.text for delta in deltas if delta.type == type) for type in ("text", "thought")}
    return reply, texts["text"], texts["thought"]


def reply_of(*output: Any, **more: Any) -> Reply:
    return read(json.dumps(response(*output, **more)).encode())[0]


def test_a_whole_reply_is_read():
    body = response(
        of_thought("First.", "Then."),
        of_message("Let me look.", phase="commentary"),
        of_call("weather", '{"city":"Rome"}'),
        of_call("now", "", "call_2"),
    )
    found, text, thought = read(b"\n\n \xef\xbb\xbf" + json.dumps(body).encode())
    assert found == Reply(
        text="Let me look.",
        thought="First.\n\nThen.",
        calls=(ReplyCall("weather", '{"city":"Rome"}', "call_1"), ReplyCall("now", "{}", "call_2")),
        model="gpt-5-1",
        finish_reason="completed",
        usage=body["usage"],
        native=[
            {"type": "reasoning", "id": "rs_1", "summary": body["output"][0]["summary"], "encrypted_content": "gAAA"},
            {"type": "message", "id": "msg_12", "phase": "commentary", "content": "Let me look."},
            {"type": "function_call", "id": "fc_call_1"},
            {"type": "function_call", "id": "fc_call_2"},
        ],
    )
    assert (text, thought) == ("", "")
    assert tokens(found.usage) == Tokens(input=7, output=3, cache_read=5)


@pytest.mark.parametrize(
    ("output", "text", "thought"),
    [
        ([of_message("a"), of_message(""), of_message("b")], "a\n\nb", None),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}], "No.", None),
        ([{"type": "message", "content": ["a", {"text": "b"}, None, 3, {"type": "output_image"}]}], "ab", None),
        ([{"type": "message", "content": "a"}, {"content": "b"}], "a\n\nb", None),
        ([{"type": "agent_message", "role": "assistant", "content": "a"}], "a", None),
        ([{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}], "", "r"),
        ([{"type": "reasoning", "summary": ["s"], "content": [{"text": "r"}]}, of_thought("t")], "", "r\n\nt"),
        ([], "", None),
        ([None, 3, "x", [], {"type": 3}, {"type": "message"}, {"type": "new", "content": "?"}], "", None),
    ],
)
def test_words_are_read_from_all_that_holds_them(output, text, thought):
    found = reply_of(*output)
    assert (found.text, found.thought) == (text, thought)


@pytest.mark.parametrize(
    ("item", "call"),
    [
        (of_call("a", '{"x": 1}'), ReplyCall("a", '{"x": 1}', "call_1")),
        (of_call("a", {"y": 1, "x": 2}), ReplyCall("a", '{"y":1,"x":2}', "call_1")),
        (of_call("a", None), ReplyCall("a", "{}", "call_1")),
        ({"type": "function_call", "id": "fc_1", "name": "a"}, ReplyCall("a", "{}", "fc_1")),
        ({"type": "function_call", "name": "a", "call_id": 17}, ReplyCall("a", "{}", "17")),
        ({"type": "function_call", "name": 3, "arguments": "no JSON"}, ReplyCall("", "no JSON")),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": 'SELECT "ü"'},
            ReplyCall("sql", '{"input":"SELECT \\"ü\\""}', "c"),
        ),
    ],
)
def test_a_call_is_read_in_the_forms_that_it_has(item, call):
    assert reply_of(item).calls == (call,)


def test_what_the_provider_runs_by_itself_is_no_call_of_ours():
    items: list[dict[str, Any]] = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": None},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c", "outputs": []},
        {"type": "mcp_call", "id": "mcp_1", "name": "n", "arguments": "{}", "server_label": "s", "output": "o"},
        {"type": "image_generation_call", "id": "ig_1", "result": "AAAA" * 1000, "quality": "high"},
        {"type": "computer_call", "id": "cu_1", "call_id": "c9", "action": {"type": "click"}},
        {"type": "tomorrow", "id": "t_1"},
        {"type": "function_call"},
    ]
    found = reply_of(*items, of_message("Found."))
    assert (found.text, found.calls) == ("Found.", ())
    assert found.native == [
        items[0],
        {"type": "file_search_call", "id": "fs_1", "queries": ["q"]},
        items[2],
        items[3],
        {"type": "image_generation_call", "id": "ig_1"},
        {"type": "computer_call"},
        {"type": "tomorrow"},
        {"type": "message", "id": "msg_6", "content": "Found."},
    ]


@pytest.mark.parametrize("output", [[], [of_message("a")], [of_message("a"), of_call("f", "{}")], [{"type": "new"}]])
def test_text_and_calls_alone_need_nothing_more(output):
    assert reply_of(*output).native is None


@pytest.mark.parametrize(
    ("more", "finish"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
        ({"status": "incomplete", "incomplete_details": None}, "incomplete"),
        ({"status": "incomplete", "incomplete_details": {"reason": 3}}, None),
        ({"status": None, "incomplete_details": {"reason": "?"}}, None),
        ({"status": "complete"}, "complete"),
        ({"error": None}, "completed"),
    ],
)
def test_the_reason_to_stop_is_the_providers(more, finish):
    assert reply_of(of_message("a"), **more).finish_reason == finish


@pytest.mark.parametrize(
    ("body", "type", "retry"),
    [
        (response(status="queued"), "background", False),
        (response(status="in_progress", background=True), "background", False),
        (response(status="cancelled"), "cancelled", False),
        (response(status="failed", error={"code": "server_error", "message": "Oops."}), "server_error", True),
        (response(status="failed", error={"code": "invalid_prompt", "message": "No."}), "invalid_prompt", False),
        (response(status="failed", error=None), "provider-error", True),
        (response(error={"code": "rate_limit_exceeded", "message": "Wait."}), "rate_limit_exceeded", True),
        ({"error": {"type": "invalid_request_error", "message": "Bad."}}, "invalid_request_error", False),
        ({"error": "bad"}, "provider-error", True),
        ([{"error": {"code": 404, "status": "NOT_FOUND"}}], "NOT_FOUND", False),
        ({"detail": "Not found"}, "provider-error", True),
        ({"object": "error", "message": "bad", "code": 400}, "http-400", False),
        ({}, "bad-reply", True),
        ([], "bad-reply", True),
        ({"choices": []}, "bad-reply", True),
    ],
)
def test_a_body_that_is_no_reply_is_a_fault(body, type, retry):
    with pytest.raises(ModelFault) as found:
        read(json.dumps(body).encode())
    assert (found.value.type, found.value.retry) == (type, retry)


def test_a_fault_says_what_to_do_and_what_came():
    with pytest.raises(ModelFault, match=r"status is 'queued': with `background` .* Leave that setting out"):
        reply_of(status="queued")
    with pytest.raises(ModelFault, match=r"Expected `output` in the reply, found '{\"a\":1}'"):
        read(b'{"a":1}')
    with pytest.raises(ModelFault, match=r"Expected one JSON object, found '{\"a\"'"):
        read(b'{"a"')


def test_text_of_a_server_that_gives_nothing_else_is_read():
    assert reply_of(output_text="Hi").text == "Hi"
    assert read(b'{"output_text": "Hi", "status": "completed"}')[0].text == "Hi"
    assert reply_of(of_message("a"), output_text="b").text == "a"


# --- streams ---


def event(type: str, **more: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (type.encode(), json.dumps({"type": type, **more}).encode())


def streamed(body: dict[str, Any], *, size: int = 3, closing: bool = True) -> bytes:
    """Return a reply as the provider's events; the closing response has no output if that is wanted."""
    made = [event("response.created", response={**body, "status": "in_progress", "output": [], "usage": None})]
    for index, item in enumerate(body["output"]):
        place = {"output_index": index, "item_id": item.get("id")}
        bare = {key: value for key, value in item.items() if key not in ("content", "summary", "arguments", "input")}
        made.append(event("response.output_item.added", output_index=index, item=bare))
        for key, name in (("content", "content_index"), ("summary", "summary_index")):
            for at, part in enumerate(item.get(key) or ()):
                kind = {"summary_text": "reasoning_summary_text"}.get(part["type"], part["type"])
                text = part.get("text", part.get("refusal"))
                cuts = [text[start : start + size] for start in range(0, len(text), size)]
                made += [event(f"response.{kind}.delta", **place, **{name: at}, delta=cut) for cut in cuts]
                whole = {"text": text, "refusal": text}
                made.append(event(f"response.{kind}.done", **place, **{name: at}, **whole))
        for key, kind in (("arguments", "function_call_arguments"), ("input", "custom_tool_call_input")):
            if key in item:
                cuts = [item[key][start : start + size] for start in range(0, len(item[key]), size)]
                made += [event(f"response.{kind}.delta", **place, delta=cut) for cut in cuts]
                made.append(event(f"response.{kind}.done", **place, **{key: item[key]}))
        made.append(event("response.output_item.done", output_index=index, item=item if closing else bare))
    made += [b": ping\n\n", event("response.tomorrow", delta="?"), event("keepalive")]
    final = body if closing else {**body, "output": []}
    return b"".join([*made, event(f"response.{body['status']}", response=final)])


RICH = response(
    of_thought("Eins.", "Zwei 😀"),
    of_message("Let me look. ", phase="commentary"),
    of_call("weather", '{"city":"Zürich"}'),
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    of_thought(id="rs_2"),
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "sql", "input": "SELECT 1"},
    {
        "type": "message",
        "id": "msg_9",
        "content": [{"type": "output_text", "text": "Sure"}, {"type": "refusal", "refusal": " not."}],
    },
)


@pytest.mark.parametrize("closing", [True, False])
def test_a_stream_is_read_as_the_whole_reply(closing):
    found, text, thought = read(streamed(RICH, closing=closing))
    assert found == reply_of(*RICH["output"])
    assert text == found.text == "Let me look. \n\nSure not."
    assert thought == found.thought == "Eins.\n\nZwei 😀"


@given(st.lists(st.integers(0, len(streamed(RICH))), max_size=8), st.booleans())
def test_any_cut_of_a_stream_gives_the_same_reply_and_deltas(places, closing):
    data = streamed(RICH, closing=closing)
    edges = [0, *sorted(places), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert read(*pieces) == read(data)


@pytest.mark.slow
def test_every_single_cut_gives_the_same_reply_and_deltas():
    data = streamed(response(of_thought("ü"), of_message("😀"), of_call("f", "{}"))).replace(b"\n", b"\r\n")
    expected = read(data)
    for place in range(len(data)):
        assert read(data[:place], data[place:]) == expected


words = st.text(st.characters(codec=None), min_size=1, max_size=8)
output = st.lists(
    st.one_of(
        words.map(of_message),
        st.builds(lambda text: {"type": "message", "content": [{"type": "refusal", "refusal": text}]}, words),
        st.lists(words, max_size=3).map(lambda texts: of_thought(*texts)),
        st.builds(lambda text: of_thought(content=[{"type": "reasoning_text", "text": text}]), words),
        st.builds(lambda at, args: of_call("f", args, f"call_{at}"), st.integers(0, 9), TEXT),
        st.builds(lambda text: {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": text}, TEXT),
    ),
    max_size=5,
)


@given(output, st.integers(1, 5), st.booleans())
def test_a_streamed_reply_equals_the_whole_one(items, size, closing):
    items = [item | {"id": f"i_{at}"} for at, item in enumerate(items)]
    found, text, thought = read(streamed(response(*items), size=size, closing=closing))
    assert found == reply_of(*items)
    assert found.text.startswith(text)
    assert (found.thought or "").startswith(thought)


END = event("response.completed", response=response())


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([event("response.output_text.delta", delta="a"), event("response.output_text.delta", delta="b")], "ab"),
        ([event("response.output_text.done", text="ab")], "ab"),
        (
            [
                event("response.output_item.done", item=of_message("a")),
                event("response.output_item.done", item=of_message("b")),
            ],
            "a\n\nb",
        ),
        (
            [event("response.output_text.delta", delta=HALF), event("response.output_text.delta", delta="\ude00!")],
            "😀!",
        ),
        (
            [
                event("response.output_text.delta", delta="a" + HALF),
                event("response.refusal.delta", output_index=1, delta="b"),
            ],
            f"a{HALF}\n\nb",
        ),
        ([event("response.refusal.delta", delta="No"), event("response.refusal.delta", delta=".")], "No."),
    ],
)
def test_servers_tell_a_text_in_many_ways(events, text):
    assert read(*events, END)[0].text == text


def calls_of(*events: bytes) -> list[tuple[str, str, str | None]]:
    return [(call.name, call.args, call.id) for call in read(*events, END)[0].calls]


def pieces_of(args: str, **more: Any) -> list[bytes]:
    return [event("response.function_call_arguments.delta", delta=piece, **more) for piece in args]


ADDED, FINISHED = "response.output_item.added", "response.output_item.done"


def test_pieces_of_calls_find_together_by_id_by_index_or_by_order():
    first, second = of_call("a", "", "c1"), of_call("b", "", "c2")
    both = [("a", "{}", "c1"), ("b", "[]", "c2")]
    ordered = [event(ADDED, item=first), *pieces_of("{}"), event(ADDED, item=second), *pieces_of("[]")]
    assert calls_of(*ordered) == both
    known = [event(ADDED, item=first, output_index=0), event(ADDED, item=second, output_index=1)]
    by_index = [*pieces_of("[]", output_index=1), *pieces_of("{}", output_index=0)]
    assert calls_of(*known, *by_index) == both
    rotated = [*pieces_of("{}", output_index=0, item_id="x1"), *pieces_of("[]", output_index=1, item_id="x2")]
    assert calls_of(*known, *rotated) == both
    zeros = [event(ADDED, item=first, output_index=0), event(ADDED, item=second, output_index=0)]
    by_id = [*pieces_of("{}", output_index=0, item_id="fc_c1"), *pieces_of("[]", output_index=0, item_id="fc_c2")]
    assert calls_of(*zeros, *by_id) == both
    done = [first | {"arguments": "{}"}, second | {"arguments": "[]"}]
    assert calls_of(*[event(FINISHED, item=item, output_index=0) for item in done]) == both
    assert calls_of(*[event(FINISHED, item=item) for item in done]) == both
    told = event("response.function_call_arguments.done", arguments="{}", name="a", call_id="c1")
    assert calls_of(told) == both[:1]


def test_the_closing_response_is_the_truth_unless_listeners_were_told_otherwise():
    delta = event("response.output_text.delta", delta="Hi")
    closing = event("response.completed", response=response(of_message("Hi all"), of_call("f", "{}")))
    found, text, _ = read(delta, closing)
    assert (found.text, len(found.calls), text) == ("Hi all", 1, "Hi")
    other = event("response.completed", response=response(of_message("Bye")))
    assert read(delta, other)[0].text == "Hi"
    calls = event("response.completed", response=response(of_message("Bye"), of_call("f", "{}")))
    found = read(delta, calls)[0]
    assert (found.text, len(found.calls)) == ("Hi\n\nBye", 1)


def test_what_comes_out_of_order_is_shown_to_nobody_and_not_lost():
    events = [
        event("response.output_text.delta", output_index=0, delta="a"),
        event("response.output_text.delta", output_index=1, delta="b"),
        event("response.output_text.delta", output_index=0, delta="c"),
        event("response.output_text.delta", output_index=1, delta="d"),
    ]
    found, text, _ = read(*events, END)
    assert text == "a\n\nb"
    assert found.text == "a\n\nb\n\nac\n\nbd"


def test_reasoning_that_is_told_twice_is_shown_once():
    events = [
        event("response.reasoning_text.delta", output_index=0, delta="hm"),
        event("response.reasoning_summary_text.delta", output_index=0, delta="hm"),
    ]
    found, _, thought = read(*events, END)
    assert thought == found.thought == "hm"


@pytest.mark.parametrize(
    "end",
    [
        b"data: [DONE]\n\n",
        b'data: {"type":"response.completed"}\n\n',
        b'event: response.completed\ndata: {"response":{"status":"completed"}}\n\n',
        b'data: {"type":"response.finished","response":{"status":"completed"}}\n\n',
        b'data: {"object":"response","status":"completed","output":[]}',
        event("response.done", response=response()) + event("response.output_text.delta", delta="after"),
        event("response.completed", response=response()).replace(b"\n\n", b"\n"),
    ],
)
def test_servers_end_their_streams_in_many_ways(end):
    found = read(b": hello\n\n", event("response.output_text.delta", delta="Hi"), end)[0]
    assert found.text == "Hi"


def test_an_event_says_how_a_reply_ended_where_the_response_does_not():
    assert read(event("response.incomplete", response={"output": []}))[0].finish_reason == "incomplete"
    assert read(event("response.completed", response={"output": [], "status": None}))[0].finish_reason is None


@pytest.mark.slow
def test_many_pieces_take_linear_time():
    text = event("response.output_text.delta", item_id="m", output_index=0, content_index=0, delta="x" * 100)
    args = event("response.function_call_arguments.delta", item_id="f", output_index=1, delta="y" * 100)
    found, shown, _ = read(*[text] * 30_000, *[args] * 30_000, END)
    assert (len(found.text), len(shown), len(found.calls[0].args)) == (3_000_000, 3_000_000, 3_000_000)


def test_events_without_empty_lines_between_them_are_read():
    lines = [b"data: " + json.dumps({"type": "response.output_text.delta", "delta": text}).encode() for text in "ab"]
    assert read(b"\n".join(lines), b"\n\n", END)[0].text == "ab"


@pytest.mark.parametrize(
    ("data", "type", "retry"),
    [
        (b"", "lost-stream", True),
        (b" \n", "lost-stream", True),
        (event("response.created", response={"status": "in_progress"}), "lost-stream", True),
        (event("response.queued", response={"status": "queued"}), "lost-stream", True),
        (event("response.output_text.delta", delta="a"), "lost-stream", True),
        (b"data: [DONE]\n\n", "lost-stream", True),
        (b"<html>no</html>", "bad-reply", True),
        (b"data: {oops\n\n", "bad-reply", True),
        (event("error", code="rate_limit_exceeded", message="m", param=None), "rate_limit_exceeded", True),
        (event("error", code=None, message="m"), "provider-error", True),
        (event("error", error={"type": "invalid_request_error", "message": "m"}), "invalid_request_error", False),
        (b"event: error\ndata: null\n\n", "provider-error", True),
        (b'event: error\ndata: "m"\n\n', "provider-error", True),
        (b'data: {"error":{"code":"server_error","message":"m"}}\n\n', "server_error", True),
        (event("response.failed", response=response(error={"code": "server_error"})), "server_error", True),
        (event("response.failed", response={}), "provider-error", True),
        (event("response.cancelled", response=response(status="cancelled")), "cancelled", False),
    ],
)
def test_what_is_no_whole_stream_is_a_fault(data, type, retry):
    with pytest.raises(ModelFault) as found:
        read(data)
    assert (found.value.type, found.value.retry) == (type, retry)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.just("queued") | st.just("completed"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = ["type", "response", "item", "delta", "output_index", "item_id", "content_index", "text", "error", "name"]
KINDS = ["response.output_text.delta", "response.refusal.done", "response.reasoning_text.delta", ADDED, FINISHED]
KINDS += ["response.completed", "response.function_call_arguments.delta", "response.custom_tool_call_input.done"]
TYPES = ["message", "function_call", "custom_tool_call", "reasoning", "web_search_call", "compaction"]
MEMBERS = ["content", "summary", "encrypted_content", "id", "call_id", "arguments", "input", "phase", "role", "action"]
items = st.fixed_dictionaries({"type": st.sampled_from(TYPES)}, optional=dict.fromkeys(MEMBERS, JSON))
responses = st.fixed_dictionaries({"output": st.lists(items | JSON, max_size=3) | JSON, "status": JSON})
members = dict.fromkeys(NAMES[4:], JSON) | {"response": responses | JSON, "item": items | JSON, "delta": JSON}
chunks = st.fixed_dictionaries({"type": st.sampled_from(KINDS) | JSON}, optional=members)


@given(st.lists(chunks, max_size=5), responses)
def test_no_json_raises_anything_but_a_fault(events, body):
    stream = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)
    for data in (stream, stream + END, json.dumps(body).encode()):
        parser, shown = DIALECT.parser(), {"text": "", "thought": ""}
        with contextlib.suppress(ModelFault):
            for delta in parser.feed(data):
                shown[delta.type] += delta.text
            reply = parser.close()
            assert reply.text.startswith(shown["text"])
            assert (reply.thought or "").startswith(shown["thought"])
            back(DIALECT, reply)
            back(STORING, reply)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=3))
def test_no_bytes_raise_anything_but_a_fault(data, places):
    edges = [0, *sorted(places), len(data)]
    with contextlib.suppress(ModelFault):
        read(*[data[start:end] for start, end in pairwise(edges)])


# --- what goes back ---


def back(dialect: ResponsesDialect, reply: Reply, by: str = "responses/1 gpt-5") -> list[dict[str, Any]]:
    """Send a reply back, its calls answered."""
    calls = tuple(Call(f"c{at}", call.name, {"a": at}) for at, call in enumerate(reply.calls))
    native = None if reply.native is None else Native(by, reply.native)
    messages = [Message(role="assistant", text=reply.text, calls=calls, native=native)]
    messages += [Message(role="tool", text="", call_id=call.id) for call in calls]
    return list(built(*messages, dialect=dialect)["input"])


def kinds_of(found: Sequence[dict[str, Any]]) -> list[str]:
    return [item.get("type") or item["role"] for item in found if item.get("type") != "function_call_output"]


def test_reasoning_goes_back_with_the_calls_of_the_record():
    reply = reply_of(
        of_thought("Hm."), of_message("Wait.", phase="commentary"), of_call("look", '{"x": 1', namespace="n")
    )
    found = back(DIALECT, reply)
    assert found[:3] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "gAAA",
        },
        {"role": "assistant", "content": "Wait.", "phase": "commentary"},
        {"type": "function_call", "call_id": "c0", "name": "look", "arguments": '{"a":0}', "namespace": "n"},
    ]
    assert violations(built() | {"input": found}) == []


def test_where_items_are_stored_all_go_back_with_their_ids():
    reply = reply_of(of_thought("Hm."), of_message("Wait.", phase="commentary"), of_call("look", "{}"))
    found = back(STORING, reply)
    assert found[1:3] == [
        {
            "type": "message",
            "id": "msg_5",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Wait.", "annotations": []}],
            "phase": "commentary",
        },
        {"type": "function_call", "id": "fc_call_1", "call_id": "c0", "name": "look", "arguments": '{"a":0}'},
    ]
    assert violations(built(dialect=STORING) | {"input": found}) == []


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
FOUND: dict[str, Any] = {
    "type": "tool_search_output",
    "id": "tso_1",
    "call_id": None,
    "execution": "server",
    "tools": [],
}


@pytest.mark.parametrize(
    ("output", "stateless", "stored"),
    [
        (
            [of_thought(), SEARCH, of_thought(id="rs_2"), of_message("a")],
            ["reasoning", "assistant"],
            ["reasoning", "web_search_call", "reasoning", "message"],
        ),
        ([SEARCH, of_message("a")], ["assistant"], ["web_search_call", "message"]),
        (
            [of_thought(), of_thought(id="rs_2"), of_message("a")],
            ["reasoning", "reasoning", "assistant"],
            ["reasoning", "reasoning", "message"],
        ),
        ([of_message("a"), of_thought()], ["assistant"], ["message"]),
        ([of_thought()], ["assistant"], ["assistant"]),
        ([of_thought(encrypted_content=None), of_message("a")], ["assistant"], ["reasoning", "message"]),
        (
            [of_thought(), {"type": "new", "id": "n_1"}, of_thought(id="rs_2"), of_message("a")],
            ["reasoning", "assistant"],
            ["reasoning", "message"],
        ),
        (
            [of_thought(), {"type": "computer_call", "call_id": "c", "id": "cu_1"}, of_message("a")],
            ["assistant"],
            ["message"],
        ),
        (
            [{"type": "tool_search_call", "id": "tsc_1", "arguments": {}}, FOUND, of_call("f", "{}")],
            ["tool_search_call", "tool_search_output", "function_call"],
            ["tool_search_call", "tool_search_output", "function_call"],
        ),
        (
            [{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}, of_message("a")],
            ["compaction", "assistant"],
            ["compaction", "message"],
        ),
        (
            [of_thought(), {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "x"}],
            ["reasoning", "function_call"],
            ["function_call"],
        ),
        ([of_thought(), of_message("a", id="m" * 65)], ["reasoning", "assistant"], ["assistant"]),
    ],
)
def test_reasoning_stands_before_the_item_that_it_came_with_or_not_at_all(output, stateless, stored):
    reply = reply_of(*output)
    for dialect, kinds in ((DIALECT, stateless), (STORING, stored)):
        found = back(dialect, reply)
        assert kinds_of(found) == kinds
        assert violations(built(dialect=dialect) | {"input": found}) == []


def test_plain_reasoning_of_an_open_model_goes_back():
    content = [{"type": "reasoning_text", "text": "hm"}]
    found = back(DIALECT, reply_of(of_thought(encrypted_content=None, content=content), of_call("f", "{}")))
    assert found[0] == {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}
    hidden = back(DIALECT, reply_of(of_thought(content=content), of_call("f", "{}")))
    assert "content" not in hidden[0]


@pytest.mark.parametrize("by", ["responses/1 gpt-6", "chat-completions/1 gpt-5", "responses/2 gpt-5", ""])
def test_what_another_model_kept_does_not_exist(by):
    reply = reply_of(of_thought("Secret."), of_message("Wait.", phase="commentary"), of_call("look", "{}"))
    plain = back(DIALECT, msgspec.structs.replace(reply, native=None))
    assert back(DIALECT, reply, by) == plain
    assert "Secret" not in json.dumps(plain)
    assert "phase" not in plain[0]


def test_what_does_not_fit_the_message_does_not_exist():
    reply = reply_of(of_thought(), of_message("Wait."), of_call("look", "{}"))
    one, two = Call("a", "look", {}), Call("b", "look", {})
    kept: list[Any] = reply.native
    wrong: list[Any] = [kept, kept + [{"type": "function_call"}] * 2, None, {}, "x", [None], kept[:1]]
    for items in wrong:
        native = Native("responses/1 gpt-5", items)
        found = sent(Message(role="assistant", text="Wait.", calls=(one, two), native=native))
        assert found == sent(Message(role="assistant", text="Wait.", calls=(one, two)))
    lone = Native("responses/1 gpt-5", [item for item in reply.native if item["type"] != "message"])
    found = sent(Message(role="assistant", text="Wait.", calls=(one,), native=lone))
    assert kinds_of(found) == ["assistant", "function_call"]


def test_what_was_kept_may_be_nested_beyond_measure():
    deep: Any = "end"
    for _ in range(50_000):
        deep = [deep]
    native = Native("responses/1 gpt-5", [{**SEARCH, "action": deep}, {"type": "message", "content": "a"}])
    found = sent(Message(role="assistant", text="a", native=native), dialect=STORING)
    assert kinds_of(found) == ["web_search_call", "assistant"]


@given(JSON | st.lists(items | JSON, max_size=4), TEXT, st.lists(TEXT, max_size=2), st.booleans())
def test_anything_kept_gives_a_valid_block(native, text, ids, stored):
    calls = tuple(Call(id, text, {id: math.nan}) for id in ids)
    message = Message(role="assistant", text=text, calls=calls, native=Native("responses/1 gpt-5", native))
    block = (STORING if stored else DIALECT).encode(message)
    found = json.loads(b"[" + block + b"]")
    assert found
    assert len([item for item in found if item.get("type") == "function_call"]) == len(calls)


@given(output)
def test_what_was_read_goes_back_by_the_rules_of_the_provider(items):
    items = [item | {"id": item.get("id", "msg_x") + f"_{at}"} for at, item in enumerate(items)]
    encrypted = [item | {"content": []} if item["type"] == "reasoning" else item for item in items]
    reply = reply_of(*encrypted)
    for dialect in (DIALECT, STORING):
        assert violations(built(dialect=dialect) | {"input": back(dialect, reply)}) == []


class Spoken:
    """A model that answers as another one does and is written to in this dialect, as if it had reasoned each time."""

    def __init__(self, model: Any, dialect: ResponsesDialect) -> None:
        self.name, self.encoder, self.envelope = "openai:gpt-5", dialect.encoder, dialect.envelope
        self.send, self.parser = model.send, model.parser
        self._dialect = dialect

    def encode(self, message: Message) -> bytes:
        if message.role == "assistant":
            id = "_".join(map(str, message.sources))
            made = [of_thought(id=f"rs_{id}"), *([of_message(message.text)] if message.text else [])]
            made += [of_call(call.name, "{}", f"{id}_{at}") for at, call in enumerate(message.calls)]
            native = reply_of(*[item | {"id": f"{item['id']}_{id}"} for item in made]).native
            message = msgspec.structs.replace(message, native=Native("responses/1 gpt-5", native))
        return self._dialect.encode(message)


@given(scripts, st.sampled_from([DIALECT, STORING]))
def test_every_history_is_valid_whatever_a_model_writes(script, dialect):
    async def main() -> None:
        tape, _, entries = await played(script)
        acting = agent(World(), script)
        acting = msgspec.structs.replace(acting, model=Spoken(acting.asked(), dialect))
        for request in bodies(acting, entries):
            assert violations(json.loads(request.body())) == []
            assert request.body().count(b'"type":"reasoning"') == request.body().count(b'"gAAA"')
        for end in range(1, len(tape.tape), 3):
            store = await again(tape.tape[:end])
            some = await Record(store, lambda made: made).read(tape.tape[0].lease.run)
            for place in range(2, len(some) + 1):
                for request in bodies(acting, some[:place])[-1:]:
                    assert violations(json.loads(request.body())) == []

    anyio.run(main)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=3), TEXT, st.sampled_from(["system", "user", "assistant"]))
def test_a_body_is_valid_by_the_rules_of_the_provider(turns, text, first):
    messages = [Message(role=first, text=text), Message(role="user", text=text), Message(role="user", text="")]
    for number, (name, result) in enumerate(turns):
        calls = (Call(f"call_{number}", name, {"a": text, result: math.nan}), Call(f"other_{number}", name, {}))
        messages.append(Message(role="assistant", text=result, calls=calls))
        messages += [Message(role="tool", text=result, call_id=call.id, name=name, failed=True) for call in calls]
        messages.append(Message(role="system", text=result))
    header = RequestHeaderContent(tools=[WEATHER], output={"type": "object"}, meta={"instructions": text})
    assert violations(built(*messages, header=header)) == []
