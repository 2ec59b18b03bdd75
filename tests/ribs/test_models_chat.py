"""What the Chat Completions dialect writes: blocks and envelopes."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.validators.chat_completions import violations

from gesta.errors import AgentError
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message
from gesta.model.request import Request
from gesta.models.chat_completions import ChatDialect
from gesta.models.jsontext import compact, exact, read, read_all

DIALECT = ChatDialect("gpt-x", {"temperature": 0.2})
WEATHER = {"name": "weather", "description": "Today's weather", "args_schema": {"type": "object", "properties": {}}}


def sent(header: RequestHeaderContent, *messages: Message, dialect: ChatDialect = DIALECT) -> Any:
    request = Request(header=header, envelope=dialect.envelope(header), blocks=[*map(dialect.encode, messages)])
    return json.loads(request.body())


@pytest.mark.parametrize(
    ("message", "block"),
    [
        (Message(role="system", text="Be brief."), b'{"role":"system","content":"Be brief."}'),
        (Message(role="user", text='"Ü"\n😀'), '{"role":"user","content":"\\"Ü\\"\\n😀"}'.encode()),
        (Message(role="assistant", text=""), b'{"role":"assistant","content":""}'),
        (
            Message(role="assistant", calls=(Call("c1", "weather", {"city": "Rome", "days": None}),)),
            (
                b'{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":'
                b'{"name":"weather","arguments":"{\\"city\\":\\"Rome\\",\\"days\\":null}"}}]}'
            ),
        ),
        (
            Message(role="tool", text="21 degrees", call_id="c1", name="weather", sources=(4,)),
            b'{"role":"tool","tool_call_id":"c1","content":"21 degrees"}',
        ),
    ],
)
def test_a_block_is_these_bytes_for_ever(message, block):
    assert DIALECT.encode(message) == block
    assert DIALECT.encoder == "chat-completions/1"


def test_text_and_calls_of_one_message_stand_together():
    calls = (Call("a", "x", {}), Call("b", "y", {"z": [1, 2.5, True]}))
    block = json.loads(DIALECT.encode(Message(role="assistant", text="Two at once.", calls=calls)))
    assert block["content"] == "Two at once."
    assert [call["id"] for call in block["tool_calls"]] == ["a", "b"]
    assert [json.loads(call["function"]["arguments"]) for call in block["tool_calls"]] == [{}, {"z": [1, 2.5, True]}]


def test_parts_that_are_no_text_are_named():
    parts = (
        Part(type="text", text="and this"),
        Part(type="image", blob="b1", media_type="image/png", name="cat.png"),
        Part(type="file", blob="b2"),
    )
    block = json.loads(DIALECT.encode(Message(role="user", text="Look", parts=parts)))
    assert block["content"] == (
        "Look\nand this\n[image 'cat.png', image/png: it cannot be shown here]\n"
        "[file 'b2', type unknown: it cannot be shown here]"
    )
    assert json.loads(DIALECT.encode(Message(role="user", parts=parts[:1])))["content"] == "and this"


@pytest.mark.parametrize(("form", "media_type"), [("image", None), ("image", "text/plain"), ("file", None)])
def test_bytes_of_which_nobody_says_what_they_are_are_named(form, media_type):
    """A provider refuses them, and every later request of the conversation with them."""
    part = Part(type=form, data=b"?", media_type=media_type, name="x")
    block = json.loads(DIALECT.encode(Message(role="user", text="Look", parts=(part,))))
    assert block["content"] == f"Look\n[{form} 'x', {media_type or 'type unknown'}: it cannot be shown here]"


def test_members_of_a_body_stand_in_one_order_and_messages_last():
    header = RequestHeaderContent(
        tools=[WEATHER, {"name": "now"}],
        output={"type": "object"},
        meta={"model": "openai:gpt-x", "instructions": "Be brief.", "settings": {"top_p": 0.9, "model": "other"}},
    )
    body = sent(header, Message(role="user", text="Hi"), Message(role="assistant", text="Ho"))
    assert list(body) == [
        *("model", "tools", "temperature", "top_p", "response_format", "stream", "stream_options", "messages")
    ]
    assert body["model"] == "gpt-x"
    assert body["tools"][0] == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Today's weather",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    assert body["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }
    assert body["stream_options"] == {"include_usage": True}
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant"]


def test_an_empty_header_gives_the_least_body():
    envelope = ChatDialect("m", stream=False).envelope(RequestHeaderContent())
    assert envelope.head == b'{"model":"m","messages":['
    assert (envelope.join, envelope.tail) == (b",", b"]}")


def test_settings_of_the_header_win_and_none_leaves_a_member_out():
    dialect = ChatDialect("m", {"temperature": 1, "seed": 3, "stream_options": None})
    body = sent(RequestHeaderContent(meta={"settings": {"temperature": 0, "seed": None}}), dialect=dialect)
    assert body == {"model": "m", "temperature": 0, "stream": True, "messages": []}
    own = {"type": "json_object"}
    body = sent(RequestHeaderContent(output={}, meta={"settings": {"response_format": own}}))
    assert body["response_format"] == own


def test_a_setting_that_is_made_from_the_record_is_refused():
    with pytest.raises(AgentError) as found:
        ChatDialect("gpt-x", {"messages": []})
    assert str(found.value) == (
        "Settings of model 'gpt-x' hold 'messages', which is made from the agent and its record. "
        "Leave out 'model', 'messages', 'tools', 'stream'; every other member is sent as it is."
    )


def test_lone_surrogates_are_sent_as_replacement_characters_and_pairs_as_one_character():
    text = "a\ud800b \ud83d\ude00 \udc00"
    message = Message(role="user", text=text)
    assert json.loads(DIALECT.encode(message))["content"] == "a\ufffdb 😀 \ufffd"
    call = Message(role="assistant", text=text, calls=(Call("\ud800", "n\udfff", {"k\ud800": ["\udead"]}),))
    block = json.loads(DIALECT.encode(call))
    assert block["tool_calls"][0]["id"] == "\ufffd"
    assert block["tool_calls"][0]["function"]["name"] == "n_"
    assert json.loads(block["tool_calls"][0]["function"]["arguments"]) == {"k\ufffd": ["\ufffd"]}
    header = RequestHeaderContent(meta={"instructions": text, "settings": {"stop": ["\ud800"]}})
    assert sent(header, Message(role="user"))["stop"] == ["\ufffd"]


def test_a_name_that_a_model_made_up_is_sent_as_a_name_that_is_allowed():
    names = ["get weather", "", "日本", "a.b/c", "x" * 70, "get_weather-2"]
    message = Message(role="assistant", calls=tuple(Call("c", name, {}) for name in names))
    written = [call["function"]["name"] for call in json.loads(DIALECT.encode(message))["tool_calls"]]
    assert written == ["get_weather", "_", "__", "a_b_c", "x" * 64, "get_weather-2"]


NAMES = st.text(st.characters(codec=None), max_size=80)


@given(st.lists(st.tuples(NAMES, NAMES), max_size=3), st.text(st.characters(codec=None), min_size=1), st.booleans())
def test_a_body_is_valid_by_the_rules_of_the_provider(turns, text, stream):
    """The rules were written down by somebody who has not seen the dialect."""
    messages = [Message(role="user", text=text)]
    for number, (name, result) in enumerate(turns):
        call = Call(f"call_{number}", name, {"a": text, result: math.nan})
        messages.append(Message(role="assistant", text=result, calls=(call,)))
        messages.append(Message(role="tool", text=result, call_id=call.id, name=name))
    header = RequestHeaderContent(
        tools=[WEATHER], output={"type": "object"}, meta={"instructions": text, "settings": {"stop": [text]}}
    )
    dialect = ChatDialect("gpt-x", stream=stream)
    request = Request(header=header, envelope=dialect.envelope(header), blocks=[*map(dialect.encode, messages)])
    assert violations(request.body()) == []


class Rude:
    def __str__(self):
        raise RuntimeError("no")


def test_arguments_that_no_json_has_become_text():
    loop: list[Any] = []
    loop.append(loop)
    args = {
        "nan": math.nan,
        "inf": -math.inf,
        "none": None,
        "rude": Rude(),
        "kind": complex(1, 2),
        "date": datetime(2026, 1, 2, tzinfo=UTC),
        "big": 10**40,
        "loop": loop,
        3: (1, 2),
    }
    block = json.loads(DIALECT.encode(Message(role="assistant", calls=(Call("c", "n", args),))))  # type: ignore[arg-type]  # on purpose
    assert json.loads(block["tool_calls"][0]["function"]["arguments"]) == {
        "nan": "nan",
        "inf": "-inf",
        "none": None,
        "rude": "Rude",
        "kind": "(1+2j)",
        "date": "2026-01-02T00:00:00Z",
        "big": 10**40,
        "loop": ["…"],
        "3": [1, 2],
    }


def test_arguments_nested_beyond_measure_are_cut_off():
    deep: Any = "end"
    for _ in range(50_000):
        deep = [deep]
    written = compact({"deep": deep, "wide": [None]})
    assert json.loads(written)["wide"] == [None]
    assert written.count(b"[") == 100


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec=None)) | st.integers(), inner, max_size=4)
        | st.tuples(inner)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_is_written_as_strict_json(value):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(compact(value).decode("utf-8"), parse_constant=refuse)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_json_is_written_and_read_without_a_change(value):
    assert read(compact(value)) == value == read(exact(value))


@given(st.text(st.characters(codec=None)))
def test_any_text_survives_where_it_must_be_exact(text):
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert read(exact(text)) == paired


@given(st.lists(JSON | st.text(st.characters(codec=None)), max_size=4))
def test_several_texts_are_read_as_each_of_them_alone(values):
    texts = [exact(value) for value in values]
    assert read_all(texts) == [read(text) for text in texts]


@given(st.text(st.characters(codec=None)), st.sampled_from(["system", "user", "assistant", "tool"]))
def test_any_text_gives_a_valid_block(text, role):
    block = json.loads(DIALECT.encode(Message(role=role, text=text)).decode("utf-8"))
    assert block["role"] == role
    assert block["content"] == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
