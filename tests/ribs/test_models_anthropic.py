"""The Anthropic Messages dialect: what it writes, what it reads, and that every history becomes a valid body."""

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
from tests.costs import LINEAR, growth
from tests.laws.scenes import World, agent, play
from tests.laws.test_histories import text, wild_calls
from tests.validators.anthropic_messages import violations

from gesta.errors import AgentError, ModelFault
from gesta.function_tool.output import ASKED
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message, Native
from gesta.model.request import Delta, Reply, ReplyCall, Request, native_by
from gesta.model.usage import tokens
from gesta.models.anthropic_messages import AnthropicDialect
from gesta.models.anthropic_reply import AnthropicParser
from gesta.models.anthropic_schema import arguments, held
from gesta.prompt import Prompt
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore

pytestmark = pytest.mark.sample(2, over="parent")

DIALECT = AnthropicDialect("claude-x-4-5", {"temperature": 0.2})
BY = "anthropic-messages/1 claude-x-4-5"
WEATHER = {"name": "weather", "description": "Today's weather", "args_schema": {"type": "object", "properties": {}}}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbg=="}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Rome"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [word(each) for each in content]}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [word(each) for each in content]}


def word(given: Any) -> Any:
    return {"type": "text", "text": given} if isinstance(given, str) else given


def use(id: str, name: str = "weather", **args: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": args}


def result(id: str, *content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id} | ({"content": content[0]} if content else {}) | more


def written(message: Message, dialect: AnthropicDialect = DIALECT) -> Any:
    return json.loads(dialect.encode(message).decode("utf-8"))


def sent(header: RequestHeaderContent, *messages: Message, dialect: AnthropicDialect = DIALECT) -> Any:
    request = Request(header=header, envelope=dialect.envelope(header), blocks=[*map(dialect.encode, messages)])
    return json.loads(request.body())


def history(*messages: Message) -> Any:
    body = sent(RequestHeaderContent(), *messages)
    assert violations(body) == []
    return body["messages"]


# --- blocks ---


@pytest.mark.parametrize(
    ("message", "block"),
    [
        (
            Message(role="user", text='"Ü"\n'),
            '{"role":"user","content":[{"type":"text","text":"\\"Ü\\"\\n"}]}'.encode(),
        ),
        (
            Message(role="system", text="Be brief."),
            b'{"role":"user","content":[{"type":"text","text":"<system>\\nBe brief.\\n</system>"}]}',
        ),
        (
            Message(role="assistant", text="Well.", calls=(Call("c1", "weather", {"city": "Rome", "days": None}),)),
            (
                b'{"role":"assistant","content":[{"type":"text","text":"Well."},'
                b'{"type":"tool_use","id":"c1","name":"weather","input":{"city":"Rome","days":null}}]}'
            ),
        ),
        (
            Message(role="tool", text="21 degrees", call_id="c1", name="weather", sources=(4,)),
            b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"21 degrees"}]}',
        ),
        (
            Message(role="tool", text="no such city", call_id="c1", name="weather", failed=True),
            (
                b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"no such city",'
                b'"is_error":true}]}'
            ),
        ),
        (
            Message(role="assistant", text="21.", native=Native(BY, [THINKING, {"type": "text", "text": "21."}])),
            (
                b'{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"c2lnbg=="},'
                b'{"type":"text","text":"21."}]}'
            ),
        ),
    ],
)
def test_a_block_is_these_bytes_for_ever(message, block):
    assert DIALECT.encode(message) == block
    assert DIALECT.encoder == "anthropic-messages/1"
    assert DIALECT.path == "/v1/messages"


def test_neighbours_of_one_role_are_one_message_and_results_come_first():
    calls = (Call("a", "weather", {"x": 1}), Call("b", "weather", {}))
    assert history(
        Message(role="user", text="Hi"),
        Message(role="user", text="there"),
        Message(role="assistant", text="Two at once.", calls=calls),
        Message(role="tool", text="1", call_id="a"),
        Message(role="tool", text="2", call_id="b"),
        Message(role="system", text="Hurry."),
        Message(role="user", text="And?"),
        Message(role="assistant", text="Done."),
        Message(role="assistant", text="Really."),
        Message(role="user", text="Thanks"),
    ) == [
        user("Hi", "there"),
        assistant("Two at once.", use("a", x=1), use("b")),
        user(result("a", "1"), result("b", "2"), "<system>\nHurry.\n</system>", "And?"),
        assistant("Done.", "Really."),
        user("Thanks"),
    ]


def test_a_user_has_the_first_word_and_the_last():
    assert history(Message(role="assistant", text="Welcome.\n")) == [
        user("(The conversation begins.)"),
        assistant("Welcome."),
        user("(Go on.)"),
    ]
    assert history(Message(role="user", text="Hi")) == [user("Hi")]
    assert sent(RequestHeaderContent())["messages"] == []


@pytest.mark.parametrize("blank", ["", " \n\t", "\u2003"])
def test_blank_texts_are_not_sent(blank):
    call = Call("a", "weather", {})
    assert history(
        Message(role="user", text=blank),
        Message(role="assistant", text=blank),
        Message(role="user", text=blank, parts=(Part(type="text", text=blank), Part(type="text", text="x"))),
        Message(role="assistant", text=blank, calls=(call,)),
        Message(role="tool", text=blank, call_id="a"),
        Message(role="assistant", calls=(Call("b", "weather", {}),)),
        Message(role="tool", text=blank, call_id="b", failed=True),
    ) == [
        user("(empty)"),
        assistant("(empty)"),
        user("x"),
        assistant(use("a")),
        user(result("a")),
        assistant(use("b")),
        user(result("b", "(empty)", is_error=True)),
    ]


def test_ids_and_names_that_are_refused_become_others_of_their_own():
    ids = ["toolu_01", "call.1", "call:1", "", "é", "\ud800", "x" * 65, "x" * 64]
    calls = tuple(Call(id, f"na me{id}", {}) for id in ids)
    results = [Message(role="tool", text="1", call_id=id) for id in ids]
    asked, answered = history(Message(role="user", text="?"), Message(role="assistant", calls=calls), *results)[1:]
    made = [block["id"] for block in asked["content"]]
    assert made == [block["tool_use_id"] for block in answered["content"]]
    assert (made[0], made[-1]) == (ids[0], ids[-1])
    assert len(set(made)) == len(ids)
    assert made[1] == "call_e8b7b7b3793f991dd79d37cbf2fd785d"
    assert written(Message(role="tool"))["content"][0]["tool_use_id"] == made[3]


PNG, PDF = b"\x89PNG", b"%PDF"


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            Part(type="image", data=PNG, media_type="image/png"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        ),
        (
            Part(type="file", data=bytearray(PNG), media_type="IMAGE/PNG; a=b", name="cat.png"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        ),
        (
            Part(type="image", url="https://x.org/cat"),
            {"type": "image", "source": {"type": "url", "url": "https://x.org/cat"}},
        ),
        (
            Part(type="file", data=PDF, media_type="application/pdf", name="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
                "title": "a.pdf",
            },
        ),
        (
            Part(type="file", url="https://x.org/a.pdf"),
            {"type": "document", "source": {"type": "url", "url": "https://x.org/a.pdf"}},
        ),
        (
            Part(type="file", data="a,ü".encode(), media_type="text/csv"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,ü"}},
        ),
        (
            Part(type="file", data=b"{}", media_type="application/json"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "{}"}},
        ),
        (Part(type="text", text="and this"), "and this"),
        (
            Part(type="image", blob="b1", media_type="image/png", name="cat.png"),
            "[image 'cat.png', image/png: it cannot be shown here]",
        ),
        (Part(type="file", blob="b2"), "[file 'b2', type unknown: it cannot be shown here]"),
        (Part(type="image", data=b"<svg/>", media_type="image/svg+xml"), "[image 'without a name', image/svg+xml: it cannot be shown here]"),
        (Part(type="file", data=b"RIFF", media_type="audio/wav", name="a.wav"), "[file 'a.wav', audio/wav: it cannot be shown here]"),
        (Part(type="file", data=b"\xff", media_type="text/plain", name="a.txt"), "[file 'a.txt', text/plain: it cannot be shown here]"),
        (Part(type="file", data=b" \n", media_type="text/plain", name="a.txt"), "[file 'a.txt', text/plain: it cannot be shown here]"),
        (Part(type="image", url="http://x.org/cat"), "[image 'http://x.org/cat', type unknown: it cannot be shown here]"),
        (
            Part(type="file", url="https://x.org/a.csv", media_type="text/csv"),
            "[file 'https://x.org/a.csv', text/csv: it cannot be shown here]",
        ),
    ],
)  # fmt: skip
def test_a_part_is_shown_where_it_can_be_and_named_where_it_cannot(part, block):
    call = Call("a", "weather", {})
    said = history(
        Message(role="user", text="Look", parts=(part,)),
        Message(role="assistant", calls=(call,)),
        Message(role="tool", text="Here", call_id="a", parts=(part,)),
        Message(role="user", parts=(part,)),
    )
    assert said[0] == user("Look", block)
    assert said[2] == user(result("a", [word("Here"), word(block)]), block)
    failed = written(Message(role="tool", call_id="a", parts=(part,), failed=True))["content"][0]["content"]
    assert [each["type"] for each in failed] == ["text"]
    spoken = written(Message(role="assistant", parts=(part,)))["content"]
    assert [each["type"] for each in spoken] == ["text"]


@given(text, st.sampled_from(["system", "user", "assistant", "tool"]), st.booleans())
def test_any_text_gives_a_valid_block(said, role, failed):
    block = written(Message(role=role, text=said, failed=failed))
    assert block["role"] == ("assistant" if role == "assistant" else "user")
    assert len(block["content"]) == 1
    clean = said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if role == "user" and said.strip():
        assert block["content"][0]["text"] == clean


def test_arguments_that_no_json_has_become_text():
    call = Call("a", "weather", {"nan": float("nan"), "none": None, "half": "\ud800"})
    block = written(Message(role="assistant", calls=(call,)))["content"][0]
    assert block["input"] == {"nan": "nan", "none": None, "half": "\ufffd"}


# --- what the provider wants back ---


def kept(items: Any, *calls: Call, text: str = "said", by: str = BY) -> Any:
    return written(Message(role="assistant", text=text, calls=calls, native=Native(by, items)))["content"]


def test_an_own_reply_is_given_back_as_it_was_with_the_calls_that_are_on_record():
    items = [
        THINKING,
        {"type": "text", "text": "One."},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use"},
    ]
    items += [{"type": "text", "text": "Two."}, {"type": "tool_use"}]
    calls = (Call("a:1", "weather", {"x": 1}), Call("b", "unknown", {}))
    found = kept(items, *calls)
    assert found[:3] == items[:3]
    assert found[3] == use("call_" + found[3]["id"].removeprefix("call_"), x=1)
    assert found[4:] == [word("Two."), use("b", "unknown")]


@pytest.mark.parametrize(
    "native",
    [
        None,
        Native("anthropic-messages/1 claude-y", [THINKING, {"type": "tool_use"}]),
        Native("openai-responses/1 gpt", [THINKING, {"type": "tool_use"}]),
        Native(BY, [THINKING]),
        Native(BY, [THINKING, {"type": "tool_use"}, {"type": "tool_use"}]),
        Native(BY, {"type": "tool_use"}),
        Native(BY, None),
    ],
)
def test_of_any_other_reply_only_text_and_calls_are_sent(native):
    message = Message(role="assistant", text="said", calls=(Call("a", "weather", {}),), native=native)
    assert written(message)["content"] == [word("said"), use("a")]


def test_a_tool_of_the_provider_is_given_back_with_its_result_or_not_at_all():
    other = SEARCH | {"id": "srvtoolu_2"}
    late = FOUND | {"tool_use_id": "srvtoolu_0"}
    said = {"type": "text", "text": "said"}
    assert kept([SEARCH, FOUND, said]) == [SEARCH, FOUND, said]
    assert kept([late, SEARCH, FOUND, other, said]) == [SEARCH, FOUND, said]
    assert kept([THINKING, said, other]) == [THINKING, said]
    assert kept([THINKING, other]) == [said]
    assert kept([other, {"type": "tool_use"}], Call("a", "weather", {})) == [use("a")]
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    assert kept([SEARCH, FOUND, {"type": "tool_use", "caller": caller}], Call("a", "weather", {}))[-1] == (
        use("a") | {"caller": caller}
    )
    assert kept([SEARCH, {"type": "tool_use", "caller": caller}], Call("a", "weather", {})) == [use("a")]


def test_items_that_no_provider_gave_are_no_reason_to_fail():
    nameless = [{"type": "server_tool_use"}, {"type": "web_search_tool_result", "tool_use_id": 7}, {"type": "tool_use"}]
    assert kept(nameless, Call("a", "weather", {})) == [use("a")]
    assert kept([7, "x", None, {"type": 7}, {"type": "text", "text": None}]) == [word("said")]


def test_an_own_reply_ends_neither_in_thought_nor_in_white_space():
    said = {"type": "text", "text": "said \n"}
    assert kept([{"type": "text", "text": "\n\n"}, THINKING, said, THINKING, THINKING]) == [THINKING, word("said")]
    assert kept([THINKING], text="") == [word("(empty)")]


# --- envelopes ---


def test_members_of_a_body_stand_in_one_order_and_messages_last():
    header = RequestHeaderContent(
        tools=[WEATHER, {"name": "now"}],
        output={"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}},
        meta={"model": "anthropic:x", "instructions": "Be brief.", "settings": {"top_p": 0.9, "model": "other"}},
    )
    body = sent(header, Message(role="user", text="Hi"))
    assert violations(body) == []
    assert list(body) == [
        *("model", "max_tokens", "system", "tools", "cache_control", "temperature", "top_p", "output_config"),
        *("stream", "messages"),
    ]
    assert (body["model"], body["max_tokens"], body["stream"]) == ("claude-x-4-5", 32_000, True)
    mark = {"type": "ephemeral"}
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert body["cache_control"] == mark
    assert body["tools"] == [
        {"name": "weather", "description": "Today's weather", "input_schema": {"type": "object", "properties": {}}},
        {"name": "now", "input_schema": {"type": "object", "properties": {}}},
    ]
    closed = {"type": "object", "properties": {"a": {"type": "integer", "description": '{"minimum":1}'}}}
    assert body["output_config"] == {
        "format": {"type": "json_schema", "schema": closed | {"additionalProperties": False}}
    }


def test_an_empty_header_gives_the_least_body():
    envelope = AnthropicDialect("m", {"cache_control": None}, stream=False).envelope(RequestHeaderContent())
    assert envelope.head == b'{"model":"m","max_tokens":32000,"messages":['
    assert (envelope.join, envelope.tail, envelope.seam) == (b",", b"]}", b"]}")


def test_settings_of_the_header_win_and_none_leaves_a_member_out():
    dialect = AnthropicDialect("m", {"temperature": 1, "max_tokens": 8, "top_k": 3})
    own: dict[str, Any] = {
        "temperature": 0,
        "top_k": None,
        "cache_control": None,
        "messages": [],
        "system": "x",
        "stream": 1,
    }
    body = sent(RequestHeaderContent(tools=[WEATHER], meta={"settings": own, "tools_in": "text"}), dialect=dialect)
    assert body == {"model": "m", "max_tokens": 8, "temperature": 0, "stream": True, "messages": []}


def test_the_cache_is_marked_after_what_never_changes_and_at_the_end():
    long = {"type": "ephemeral", "ttl": "1h"}
    header = RequestHeaderContent(tools=[WEATHER, {"name": "now"}], meta={"settings": {"cache_control": long}})
    body = sent(header, Message(role="user", text="Hi"))
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, long]
    assert body["cache_control"] == long
    off = RequestHeaderContent(tools=[WEATHER], meta={"settings": {"cache_control": None}, "instructions": "x"})
    assert b"cache_control" not in DIALECT.envelope(off).head


def test_tools_of_the_provider_come_after_the_agents():
    search = {"type": "web_search_20260209", "name": "web_search"}
    dialect = AnthropicDialect("m", {"server_tools": [search, "x"], "cache_control": None})
    body = sent(RequestHeaderContent(tools=[WEATHER]), dialect=dialect)
    assert [tool["name"] for tool in body["tools"]] == ["weather", "web_search"]
    body = sent(RequestHeaderContent(tools=[WEATHER], meta={"tools_in": "text"}), dialect=dialect)
    assert body["tools"] == [search]
    assert "server_tools" not in body
    assert "tools" not in sent(RequestHeaderContent(meta={"settings": {"server_tools": None}}), dialect=dialect)


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({}, {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": False}}}),
        ({"output_config": None}, None),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, {"format": {"type": "json_schema", "schema": {}}}),
        ({"output_format": None}, None),
    ],
)  # fmt: skip
def test_ones_own_form_of_the_answer_wins(settings, config):
    header = RequestHeaderContent(output={"type": "object"}, meta={"settings": settings})
    assert sent(header).get("output_config") == config


def test_other_members_of_the_form_stay():
    header = RequestHeaderContent(output={"type": "object"}, meta={"settings": {"output_config": {"effort": "low"}}})
    assert list(sent(header)["output_config"]) == ["effort", "format"]


def test_an_answer_that_cannot_be_held_to_its_schema_is_asked_for_in_words():
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    body = sent(RequestHeaderContent(output=schema, meta={"instructions": "Be brief."}))
    assert "output_config" not in body
    assert [block["text"] for block in body["system"]] == [
        "Be brief.",
        ASKED + '{"type":"object","additionalProperties":{"type":"integer"}}',
    ]
    assert [*body["system"][0]] == ["type", "text"]
    assert "cache_control" in body["system"][1]


@pytest.mark.parametrize("name", ["model", "system", "messages", "tools", "stream"])
def test_a_setting_that_is_made_from_the_record_is_refused(name):
    with pytest.raises(AgentError) as found:
        AnthropicDialect("claude-x", {name: None})
    assert str(found.value) == (
        f"Settings of model 'claude-x' hold {name!r}, which is made from the agent and its record. "
        "Leave out 'model', 'system', 'messages', 'tools', 'stream'; every other member is sent as it is. "
        "Tools that the provider runs itself go into 'server_tools'."
    )


# --- schemas ---

INT = {"type": "integer"}
CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}} | CLOSED),
        ({"type": "object", "properties": {"a": INT}, "required": ["a"], "title": "T", "description": "D"},
         {"type": "object", "properties": {"a": INT}, "required": ["a"], "title": "T", "description": "D"} | CLOSED),
        ({"type": "integer", "minimum": 0, "maximum": 3, "description": "D"},
         {"type": "integer", "description": 'D\n\n{"minimum":0,"maximum":3}'}),
        ({"type": "string", "pattern": "^a", "format": "date"}, {"type": "string", "format": "date", "description": '{"pattern":"^a"}'}),
        ({"type": "string", "format": "odd"}, {"type": "string", "description": '{"format":"odd"}'}),
        ({"type": "array", "items": INT, "minItems": 1, "maxItems": 4},
         {"type": "array", "items": INT, "minItems": 1, "description": '{"maxItems":4}'}),
        ({"type": "array", "items": INT, "minItems": 2}, {"type": "array", "items": INT, "description": '{"minItems":2}'}),
        ({"type": "array", "prefixItems": [INT, {"type": "string"}], "items": False},
         {"type": "array", "items": {"anyOf": [INT, {"type": "string"}]},
          "description": '{"prefixItems":[{"type":"integer"},{"type":"string"}]}'}),
        ({"oneOf": [INT, {"type": "null"}], "default": None}, {"anyOf": [INT, {"type": "null"}], "default": None}),
        ({"type": "integer", "anyOf": [{"const": 1}, {"type": "integer"}, {"properties": {}}]},
         {"anyOf": [{"const": 1}, INT, {"type": "object", "properties": {}} | CLOSED]}),
        ({"enum": ["a", None]}, {"enum": ["a", None]}),
        ({"allOf": [{"$ref": "#/$defs/A"}], "title": "x", "$defs": {"A": INT}}, {"$defs": {"A": INT}, "$ref": "#/$defs/A"}),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "description": "x"}, "b": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "object"}}},
         {"$defs": {"A": {"type": "object", "properties": {}} | CLOSED}, "type": "object",
          "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}}} | CLOSED),
        ({"type": ["object", "null"]}, {"type": ["object", "null"], "properties": {}} | CLOSED),
        ({"anyOf": [INT], "discriminator": {}, "$schema": "x"}, {"anyOf": [INT]}),
        ({"type": "object", "additionalProperties": {}}, None),
        ({"type": "object", "additionalProperties": True}, None),
        ({"type": "object", "patternProperties": {"a": INT}}, None),
        ({"type": "object", "properties": {"any": {}}}, None),
        ({"type": "object", "properties": {"any": True}}, None),
        ({"type": "object", "properties": {}, "anyOf": [INT]}, None),
        ({"$ref": "https://x.org/y"}, None),
        ({"$ref": "#/$defs/A"}, None),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}}, None),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [INT, {"$ref": "#/$defs/B"}]}, "B": {"items": {"$ref": "#/$defs/A"}}}}, None),
        ({"allOf": [INT, {"$ref": "#/$defs/A"}], "$defs": {"A": INT}}, None),
        ({}, None),
        ({"$defs": 1, "definitions": [1]}, None),
    ],
)  # fmt: skip
def test_a_schema_is_taken_as_far_as_it_means_the_same(given, taken):
    assert held(given) == taken


def test_a_schema_that_is_taken_stays_as_it_is_and_a_deep_one_is_not_taken():
    taken = held({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}})
    assert taken is not None
    assert held(taken) == taken
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    assert held(deep) is None


NODES: Any = st.recursive(
    st.sampled_from([INT, {"type": "string", "maxLength": 3}, {"type": "null"}, {"enum": [1]}, {"type": "object"}]),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda made: {"type": "object", "properties": made}
        )
        | st.lists(inner, min_size=1, max_size=3).map(lambda made: {"anyOf": made})
        | inner.map(lambda made: {"type": "array", "items": made, "maxItems": 2})
    ),
    max_leaves=8,
)


@given(NODES)
def test_every_object_that_is_taken_is_closed(schema):
    header = RequestHeaderContent(output={"type": "object", "properties": {"value": schema}})
    assert violations(sent(header, Message(role="user", text="?"))) == []


def test_arguments_of_a_tool_are_an_object_at_the_top():
    fine = {"type": "object", "properties": {"a": {"anyOf": [INT]}}}
    assert arguments(fine) is fine
    assert arguments({"properties": {}}) == {"type": "object", "properties": {}}
    assert arguments({"type": "object", "anyOf": [INT], "title": "T"}) == {"type": "object", "title": "T"}
    assert arguments({"$ref": "#/$defs/A", "$defs": {}}) == {"type": "object", "$ref": "#/$defs/A", "$defs": {}}


# --- replies ---

MODEL, USAGE = "claude-x-4-5-20260101", {"input_tokens": 3, "cache_read_input_tokens": 0, "output_tokens": 1}


def event(type: str, **members: Any) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type} | members)}\n\n".encode()


def whole(*content: Any, finish: Any = "end_turn", **more: Any) -> bytes:
    message = {"type": "message", "role": "assistant", "model": MODEL, "content": [word(each) for each in content]}
    return json.dumps(message | {"stop_reason": finish, "usage": USAGE | {"output_tokens": 9}} | more).encode()


def start(**more: Any) -> bytes:
    return event("message_start", message={"model": MODEL, "content": [], "stop_reason": None, "usage": USAGE} | more)


def pieces(block: dict[str, Any], index: int, size: int = 3) -> bytes:
    """One block as the API streams it."""
    empty = {"text": "", "thinking": "", "signature": "", "input": {}}
    streamed = {name: value for name, value in block.items() if name in empty}
    made = [event("content_block_start", index=index, content_block=block | {name: empty[name] for name in streamed})]
    for name, value in streamed.items():
        told = json.dumps(value) if name == "input" else value
        kind, member = ("input_json_delta", "partial_json") if name == "input" else (f"{name}_delta", name)
        cuts = [told] if name == "signature" else [told[at : at + size] for at in range(0, len(told), size)]
        cuts = ["", *cuts] if name == "input" else cuts
        made += [event("content_block_delta", index=index, delta={"type": kind, member: cut}) for cut in cuts]
    return b"".join([*made, event("content_block_stop", index=index)])


def end(finish: Any = "end_turn", **more: Any) -> bytes:
    usage = {"output_tokens": 9, "cache_read_input_tokens": None}
    return event("message_delta", delta={"stop_reason": finish} | more, usage=usage) + event("message_stop")


def stream(*content: Any, finish: Any = "end_turn", size: int = 3, **more: Any) -> bytes:
    blocks = b"".join(pieces(word(each), index, size) for index, each in enumerate(content))
    return start() + event("ping") + blocks + end(finish, **more)


def read(*data: bytes) -> tuple[Reply, str, str]:
    parser, deltas = AnthropicParser(), list[Delta]()
    for piece in data:
        deltas += parser.feed(piece)
    said, thought = ("".join(delta.text for delta in deltas if delta.type == type) for type in ("text", "thought"))
    return parser.close(), said, thought


def reply_of(*data: bytes) -> Reply:
    return read(*data)[0]


FULL = (
    THINKING,
    "Grüße 😀 aus",
    SEARCH,
    FOUND,
    " 東京.",
    {"type": "redacted_thinking", "data": "ZGF0YQ=="},
    use("toolu_1", city="Köln", days=[1, 2.5, None]),
    use("toolu_2", "now"),
)


def test_a_whole_reply_is_read():
    assert reply_of(whole(*FULL, finish="tool_use")) == Reply(
        text="Grüße 😀 aus 東京.",
        thought="Hm.",
        calls=(
            ReplyCall("weather", '{"city":"Köln","days":[1,2.5,null]}', "toolu_1"),
            ReplyCall("now", "{}", "toolu_2"),
        ),
        model=MODEL,
        finish_reason="tool_use",
        usage={"input_tokens": 3, "cache_read_input_tokens": 0, "output_tokens": 9},
        native=[*map(word, FULL[:6]), {"type": "tool_use"}, {"type": "tool_use"}],
    )


def test_a_streamed_reply_is_the_same_and_its_deltas_join_to_it():
    expected = reply_of(whole(*FULL, finish="tool_use"))
    assert read(stream(*FULL, finish="tool_use")) == (expected, expected.text, expected.thought)
    assert read(whole(*FULL, finish="tool_use"))[1:] == ("", "")


def test_what_was_read_is_written_back_by_the_same_model_alone():
    reply = reply_of(whole(*FULL, finish="tool_use"))
    calls = tuple(Call(call.id or "", call.name, json.loads(call.args)) for call in reply.calls)
    message = Message(role="assistant", text=reply.text, calls=calls, native=Native(BY, reply.native))
    assert written(message) == assistant(*FULL)
    other = written(message, AnthropicDialect("claude-y"))
    assert other == assistant(reply.text, *FULL[-2:])


@pytest.mark.parametrize(
    "content",
    [
        ("Hi",),
        (use("a"),),
        ("Hi", use("a")),
        ("",),
        (),
        (use("a") | {"caller": {"type": "direct"}},),
        ({"type": "text", "text": "x", "citations": [{"cited_text": "y"}]},),
        (THINKING | {"signature": ""}, "Hi"),
    ],
)
def test_text_and_calls_alone_need_nothing_back(content):
    assert reply_of(whole(*content)).native is None
    assert reply_of(stream(*content)).native is None


def test_words_around_something_else_are_paragraphs_and_words_around_a_citation_are_not():
    assert reply_of(whole("I look.", SEARCH, FOUND, "It rains", " in Rome.")).text == "I look.\n\nIt rains in Rome."
    assert reply_of(whole("I look.\n", SEARCH, FOUND, "It rains.")).text == "I look.\nIt rains."
    assert reply_of(whole(THINKING, "a", THINKING, "b")).thought == "Hm.\n\nHm."
    assert reply_of(stream("a", SEARCH, FOUND, "", "b")) == reply_of(whole("a", SEARCH, FOUND, "", "b"))


def test_usage_of_a_stream_is_told_twice_and_a_null_tells_nothing():
    reply = reply_of(stream("Hi"))
    assert reply.usage == {"input_tokens": 3, "cache_read_input_tokens": 0, "output_tokens": 9}
    counted = tokens(reply.usage)
    assert counted is not None
    assert (counted.input, counted.output, counted.cache_read) == (3, 9, 0)
    cached = {"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 4, "output_tokens": 8}
    counted = tokens(cached)
    assert counted is not None
    assert (counted.input, counted.cache_write) == (7, 2)


@pytest.mark.parametrize("finish", ["end_turn", "max_tokens", "stop_sequence", "pause_turn", "refusal", "tool_use", 7])
def test_the_reason_to_stop_is_the_providers(finish):
    expected = finish if isinstance(finish, str) else "7"
    assert (
        reply_of(whole("Hi", finish=finish)).finish_reason
        == reply_of(stream("Hi", finish=finish)).finish_reason
        == expected
    )


def test_what_is_said_of_a_refusal_is_text():
    details = {"type": "refusal", "category": "cyber", "explanation": "This was declined."}
    for content, said in (((), "This was declined."), (("Hello..",), "Hello..\n\nThis was declined.")):
        expected = reply_of(whole(*content, finish="refusal", stop_details=details))
        assert expected.text == said
        assert read(stream(*content, finish="refusal", stop_details=details)) == (expected, said, "")
    assert reply_of(whole("Hi", finish="refusal", stop_details={"explanation": None})).text == "Hi"
    assert reply_of(whole("Hi", stop_details=details)).text == "Hi"


def test_arguments_that_were_cut_off_stay_as_the_model_wrote_them():
    begun = event("content_block_start", index=0, content_block=use("a"))
    for args in ('{"city": "Ro', '{"x": NaN}', "[1]", '{"x": "\\ud800"}', "null"):
        delta = event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": args})
        assert reply_of(start(), begun, delta, end("max_tokens")).calls == (ReplyCall("weather", args, "a"),)
    assert reply_of(
        whole(use("a") | {"input": "text"}, use("b") | {"input": None}, use("c") | {"input": [1]})
    ).calls == (
        ReplyCall("weather", "text", "a"),
        ReplyCall("weather", "{}", "b"),
        ReplyCall("weather", "[1]", "c"),
    )


def test_blocks_of_types_yet_unknown_are_kept_whole_and_their_words_read():
    odd = {"type": "musing", "text": "Aha.", "depth": 3}
    assert reply_of(whole(odd)).text == "Aha."
    assert reply_of(whole(odd)).native == [odd]
    summary = event("content_block_start", index=0, content_block={"type": "compaction", "content": None})
    for piece in ("So ", "far."):
        delta = {"type": "compaction_delta", "content": piece, "encrypted_content": None}
        summary += event("content_block_delta", index=0, delta=delta)
    reply = reply_of(start(), summary, event("strange", index=0), b": comment\n\n", end())
    assert reply.native == [{"type": "compaction", "content": "So far."}]
    assert reply.text == ""


def test_pieces_whose_beginning_was_never_told_are_read():
    deltas = [{"type": "text_delta", "text": "a"}, {"type": "text_delta", "text": "b"}]
    for index in ({}, {"index": 0}):
        found = [event("content_block_delta", delta=delta, **index) for delta in deltas]
        assert read(*found, event("content_block_delta", delta={"type": "x"}), end())[:2] == (
            Reply(text="ab", finish_reason="end_turn", usage={"output_tokens": 9, "cache_read_input_tokens": None}),
            "ab",
        )


def test_other_servers_leave_out_lines_and_send_content_at_once():
    assert reply_of(stream("Hi").replace(b"\n\n", b"\n") + b"\n").text == "Hi"
    assert reply_of(b"data: [DONE]\n\n", stream("Hi"), b"data: [DONE]\n\n").text == "Hi"
    assert reply_of(start(content=[word("Hi")]), end()).text == "Hi"
    assert reply_of(b'{"content": "Hi"}') == Reply(text="Hi")
    assert reply_of(b"\xef\xbb\xbf\n\n", b"[" + whole("Hi") + b"]").text == "Hi"


def test_a_character_cut_between_its_surrogates_is_one_again():
    halves = [rb'"text":"a\ud83d"', rb'"text":"\ude00 \ud800"']
    found = [
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",%s}}\n\n' % half for half in halves
    ]
    reply, said, _ = read(start(), pieces(word(""), 0), *found, end())
    assert reply.text == said == "a😀 \ud800"


def test_what_is_wanted_back_of_pieces_is_what_it_is_of_the_whole():
    cut = SEARCH | {"input": {}}
    data = start() + event("content_block_start", index=0, content_block=cut)
    data += event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"query": "Ro'})
    data += event("content_block_start", index=1, content_block=word(""))
    for half in (b"\\ud83d", b"\\ude00"):
        data += b'data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"%s"}}\n\n' % half
    assert reply_of(data, end("max_tokens")).native == [cut, word("😀")]


# --- what is not a reply ---

OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"}
INVALID = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}


@pytest.mark.parametrize(
    ("data", "type", "retry"),
    [
        (b"", "lost-stream", True),
        (b"\n\n", "lost-stream", True),
        (start(), "lost-stream", True),
        (start() + pieces(word("Hi"), 0), "lost-stream", True),
        (start() + b'event: message_delta\ndata: {"type": "mess', "lost-stream", True),
        (start() + event("error", error=OVERLOADED["error"]), "overloaded_error", True),
        (start() + pieces(word("Hi"), 0) + event("error", error=OVERLOADED["error"]), "overloaded_error", True),
        (event("error", error=INVALID["error"]), "invalid_request_error", False),
        (start() + event("error", error={"type": "api_error", "message": "m"}), "api_error", True),
        (start() + event("error", error={"type": "rate_limit_error", "message": "m"}), "rate_limit_error", True),
        (b'event: error\ndata: "down"\n\n', "provider-error", True),
        (json.dumps(OVERLOADED).encode(), "overloaded_error", True),
        (json.dumps(INVALID).encode(), "invalid_request_error", False),
        (b'{"detail": "Not Found"}', "provider-error", True),
        (b'{"message": "Unauthorized"}', "provider-error", True),
        (b"<html>login</html>", "bad-reply", True),
        (b'{"content": [', "bad-reply", True),
        (b'{"id": 1}', "bad-reply", True),
        (b'{"content": 7}', "bad-reply", True),
        (b"[]", "bad-reply", True),
        (b"[1]", "bad-reply", True),
        (b"{" * 100_000, "bad-reply", True),
        (b"data: {nope}\n\n", "bad-reply", True),
        (event("message_stop"), "bad-reply", True),
    ],
)
def test_what_is_no_reply_is_a_fault(data, type, retry):
    for cut in ([data], [data[i : i + 7] for i in range(0, len(data), 7)]):
        with pytest.raises(ModelFault) as found:
            read(*cut)
        assert (found.value.type, found.value.retry) == (type, retry)
        assert found.value.message


# --- however it is cut ---

RECORDED = stream(*FULL, finish="tool_use", size=5).replace(b"event: ping\n", b": hello\r\n\r\nevent: ping\r\n")


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


KINDS = st.sampled_from(
    [
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"),
        *(
            "text_delta",
            "thinking_delta",
            "input_json_delta",
            "text",
            "thinking",
            "tool_use",
            "server_tool_use",
            "ping",
        ),
    ]
)
NAMES = st.sampled_from(
    [
        *("type", "message", "content", "content_block", "delta", "index", "text", "thinking", "signature", "input"),
        *("partial_json", "stop_reason", "stop_details", "explanation", "usage", "id", "name", "caller", "model"),
        *("citation", "error", "detail", "tool_use_id"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | KINDS | st.just("refusal"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=20,
)
MEMBERS = st.dictionaries(NAMES, ANYTHING, max_size=4)


def hostile(kind: str, members: dict[str, Any], inner: dict[str, Any], type: str) -> dict[str, Any]:
    nested = {"message": inner, "content_block": inner | {"type": type}, "delta": inner | {"type": type}, "index": 0}
    return nested | members | {"type": kind}


@given(st.lists(st.builds(hostile, KINDS, MEMBERS, MEMBERS, KINDS), max_size=6), st.lists(MEMBERS, max_size=3))
@example(
    [{"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "input": {"a": float("nan")}}}],
    [],
)
def test_no_json_raises_anything_but_a_fault(events, content):
    data = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in events)
    for bytes_ in (start() + data + end(), data, whole(*content), whole(*content, finish=None)):
        for one in (bytes_, bytes_.replace(b"0", b"9" * 5000)):
            with contextlib.suppress(ModelFault):
                reply = reply_of(one)
                json.dumps(reply.native)
                message = Message(role="assistant", native=Native(BY, reply.native))
                assert written(message)["content"]


@given(st.binary(max_size=200) | st.text(alphabet='data: {}[]"\n\r,eventype0', max_size=200).map(str.encode),
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
BLOCKS = st.one_of(
    st.text(max_size=20),
    st.builds(lambda said: THINKING | {"thinking": said}, st.text(max_size=10)),
    st.builds(lambda args: use("a") | {"input": args}, ARGUMENTS),
    st.builds(lambda args: SEARCH | {"input": args}, ARGUMENTS),
    st.sampled_from([FOUND, {"type": "redacted_thinking", "data": "x"}]),
)


@given(st.lists(BLOCKS, max_size=6), st.integers(min_value=1, max_value=7))
def test_a_streamed_reply_equals_the_whole_one(content, size):
    assert reply_of(stream(*content, size=size)) == reply_of(whole(*content))


def test_long_arguments_in_small_pieces_take_linear_time():
    def take(length):
        small, large = use("a") | {"input": {"x": "y" * length}}, word("x" * 10 * length)
        data = start() + pieces(small, 0, 50) + pieces(large, 1, 10**6)
        reply = reply_of(*[data[at : at + 65536] for at in range(0, len(data), 65536)], end())
        assert (len(reply.text), len(reply.calls[0].args)) == (10 * length, length + 8)

    assert growth(take, 50_000) < LINEAR


# --- histories of real runs ---


@dataclass
class Canned:
    """A model that answers what it was given, in the form of the API."""

    answers: Sequence[bytes]
    dialect: AnthropicDialect

    @property
    def name(self) -> str:
        return f"anthropic:{self.dialect.model}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dialect, name)

    async def send(self, request: Request) -> AsyncGenerator[bytes, None]:
        yield self.answers[min(request.answered, len(self.answers) - 1)]


def answer(said: str, thought: str | None, calls: Sequence[ReplyCall], search: Sequence[Any]) -> bytes:
    made = start() + (pieces(THINKING | {"thinking": thought}, 0) if thought is not None else b"")
    made += b"".join(pieces(each, 1 + at) for at, each in enumerate([*search, word(said)]))
    for at, call in enumerate(calls):
        begun = {"type": "tool_use", "name": call.name, "input": {}} | ({} if call.id is None else {"id": call.id})
        made += event("content_block_start", index=9 + at, content_block=begun)
        delta = {"type": "input_json_delta", "partial_json": call.args}
        made += event("content_block_delta", index=9 + at, delta=delta)
    return made + end("tool_use" if calls else "end_turn")


answers = st.lists(
    st.builds(
        answer,
        text,
        st.none() | text,
        st.lists(wild_calls, max_size=3),
        st.sampled_from([[], [SEARCH, FOUND], [SEARCH], [FOUND], [SEARCH, FOUND, SEARCH | {"id": "srvtoolu_2"}]]),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-5"])
@given(answers)
def test_at_every_prefix_of_every_run_the_body_is_valid(model: str, given: list[bytes]) -> None:
    async def main() -> None:
        canned: Any = Canned([*given, whole("done")], AnthropicDialect(model))
        acting = agent(World(), [], model=canned)
        store = MemoryStore()
        for outcome in await play(store, acting, ["do it", " "]):
            assert outcome.reason in {"answered", "failed"}
        entries = await Record(store, lambda made: made).read(outcome.run)
        assert native_by(canned) == f"anthropic-messages/1 {model}"
        header, envelope = acting.header(), canned.envelope(acting.header())
        for place in range(2, len(entries) + 1):
            prompt = Prompt(acting.formats(), canned)
            for entry in entries[:place]:
                prompt.add(entry)
            prompt.close()
            body = prompt.request(header, envelope, 0).body()
            assert violations(msgspec.json.decode(body)) == []

    anyio.run(main)
