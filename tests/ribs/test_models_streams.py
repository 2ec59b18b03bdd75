"""What the Chat Completions dialect reads: whole replies and streams, however they are cut and however odd."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.costs import LINEAR, growth

from gesta.errors import ModelFault
from gesta.model.request import Reply, ReplyCall
from gesta.models.chat_completions import ChatDialect, ChatParser
from gesta.models.sse import Events


def event(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    chunk = {"model": "m-1", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


STOP = event(finish="stop")
DONE = b"data: [DONE]\n\n"


def read(*pieces: bytes) -> tuple[Reply, str, str]:
    """The reply, the joined deltas of its text, and those of its thought."""
    parser, deltas = ChatDialect("m").parser(), []
    for piece in pieces:
        deltas += parser.feed(piece)
    reply = parser.close()
    texts = {type: "".join(delta.text for delta in deltas if delta.type == type) for type in ("text", "thought")}
    return reply, texts["text"], texts["thought"]


def reply_of(*pieces: bytes) -> Reply:
    return read(*pieces)[0]


def calls_of(*fragments: dict[str, Any] | list[dict[str, Any]]) -> list[tuple[str | None, str, str]]:
    events = [event({"tool_calls": part if isinstance(part, list) else [part]}) for part in fragments]
    return [(call.id, call.name, call.args) for call in reply_of(*events, STOP).calls]


def fn(name: str | None = None, args: Any = None) -> dict[str, Any]:
    return {"name": name, "arguments": args}


# --- whole replies ---


def whole(message: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"model": "m-1", "choices": [{"message": message, "finish_reason": "stop"}], **more}).encode()


def test_a_whole_reply_is_read():
    message = {
        "content": "Hello",
        "reasoning_content": "Greet.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": fn("weather", '{"city":"Rome"}')},
            {"id": "c1", "function": fn("weather", {"city": "Oslo"})},
            {"function": fn("now")},
        ],
    }
    found, text, _ = read(whole(message, usage={"total_tokens": 3, "odd": [1]}))
    assert found == Reply(
        text="Hello",
        thought="Greet.",
        calls=(
            ReplyCall("weather", '{"city":"Rome"}', "c1"),
            ReplyCall("weather", '{"city":"Oslo"}', "c1"),
            ReplyCall("now", "{}", None),
        ),
        model="m-1",
        finish_reason="stop",
        usage={"total_tokens": 3, "odd": [1]},
    )
    assert text == ""


@pytest.mark.parametrize("before", [b"\n\n\n", b"\xef\xbb\xbf", b" \r\n\t"])
def test_what_keeps_a_connection_alive_before_a_reply_is_passed_over(before):
    assert reply_of(before, whole({"content": "Hi"})).text == "Hi"
    assert reply_of(before, event({"content": "Hi"}), STOP).text == "Hi"


@pytest.mark.parametrize(
    ("content", "text", "thought"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab", None),
        (["a", {"type": "text", "content": "b"}, None, 3, {"type": "image"}], "ab", None),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}],
            "a",
            "hm",
        ),
        ([{"type": "refusal", "refusal": "No."}], "No.", None),
        (None, "", None),
        (17, "", None),
        ([], "", None),
    ],
)
def test_content_may_be_a_list_of_parts(content, text, thought):
    found = reply_of(whole({"content": content}))
    assert (found.text, found.thought) == (text, thought)
    assert reply_of(event({"content": content}), STOP) == found


@pytest.mark.parametrize(
    ("message", "text", "thought"),
    [
        ({"content": None, "refusal": "I will not."}, "I will not.", None),
        ({"content": "a", "reasoning": "r"}, "a", "r"),
        ({"content": "a", "reasoning": "r", "reasoning_content": "r"}, "a", "r"),
        ({"content": "a", "reasoning": None, "reasoning_content": ""}, "a", None),
    ],
)
def test_refusals_are_text_and_reasoning_is_thought(message, text, thought):
    found, streamed, thinking = read(event(message), STOP)
    assert (found.text, found.thought) == (text, thought)
    assert (streamed, thinking) == (text, thought or "")
    assert reply_of(whole(message)) == found


def test_a_legacy_function_call_is_a_call():
    legacy = {"content": None, "function_call": fn("weather", '{"a":1}')}
    assert reply_of(whole(legacy)).calls == (ReplyCall("weather", '{"a":1}'),)
    pieces = [event({"function_call": fn("weather", "")}), event({"function_call": {"arguments": '{"a":1}'}})]
    assert reply_of(*pieces, STOP).calls == (ReplyCall("weather", '{"a":1}'),)


def test_only_the_first_of_several_choices_is_the_answer():
    body = {"choices": [{"index": 1, "message": {"content": "b"}}, {"index": 0, "message": {"content": "a"}}]}
    assert reply_of(json.dumps(body).encode()).text == "a"


# --- streams ---


def test_a_stream_is_read():
    found, text, thought = read(
        b": OPENROUTER PROCESSING\n\n",
        b'data: {"choices":[],"prompt_filter_results":[]}\n\n',
        event({"role": "assistant", "content": ""}),
        event({"reasoning_content": "Gre"}),
        event({"reasoning_content": "et."}),
        event({"content": "Hell"}),
        event({"content": "o"}, usage=None),
        STOP,
        b'data: {"choices":[],"usage":{"total_tokens":1}}\n\n',
        b'data: {"choices":[],"usage":{"total_tokens":3}}\n\n',
        DONE,
        b"data: garbage after the end\n\n",
    )
    assert found == Reply(text="Hello", thought="Greet.", model="m-1", finish_reason="stop", usage={"total_tokens": 3})
    assert (text, thought) == ("Hello", "Greet.")


@pytest.mark.parametrize(
    "stream",
    [
        event({"content": "Hi"}) + STOP,  # no [DONE]
        event({"content": "Hi"}) + DONE,  # no reason
        (event({"content": "Hi"}) + STOP + DONE).replace(b"\n", b"\r\n"),
        (event({"content": "Hi"}) + STOP + DONE).replace(b"\n", b"\r"),
        (event({"content": "Hi"}) + STOP + DONE).replace(b"data: ", b"data:"),
        (event({"content": "Hi"}) + STOP + DONE).replace(b"\n\n", b"\n"),  # no empty lines
        (event({"content": "Hi"}) + STOP + DONE).replace(b"data: ", b": hey\nid: 7\nretry: 3\nevent: message\ndata: "),
        (event({"content": "Hi"}) + STOP + DONE).rstrip(),
        event({"content": "Hi"}) + STOP.rstrip(),
        event({"content": "Hi"}) + STOP + b'data: {"choices": [], "usa',  # cut, but after the reason
        event({"content": "Hi"}).replace(b"[{", b"[\ndata: {") + STOP,  # one event on two lines
        b'data: {"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}\n\n',
        event({"content": "Hi"}) + b'data: {"choices":[{"delta":null,"message":{"content":"Hi"}}]}\n\n' + STOP,
        b"data: 3\n\ndata: null\n\ndata:\n\n" + event({"content": "Hi"}) + STOP,
        b'data: {"type":"ping"}\n\ndata: {"choices":null}\n\ndata: {"choices":[null]}\n\n'
        + event({"content": "Hi"})
        + STOP,
    ],
)
def test_servers_end_and_frame_their_streams_in_many_ways(stream):
    assert reply_of(stream).text == "Hi"
    assert reply_of(*[stream[i : i + 1] for i in range(len(stream))]) == reply_of(stream)


def test_usage_may_stand_in_odd_places():
    assert reply_of(event({"content": "a"}), event(finish="stop", x_groq={"usage": {"n": 1}})).usage == {"n": 1}
    moon = b'data: {"choices":[{"delta":{},"finish_reason":"stop","usage":{"n":2}}]}\n\n'
    assert reply_of(moon).usage == {"n": 2}


@pytest.mark.parametrize(
    ("fragments", "calls"),
    [
        pytest.param(
            [
                {"index": 0, "id": "a", "function": fn("weather", "")},
                {"index": 0, "function": {"arguments": '{"ci'}},
                {"index": 1, "id": "b", "function": fn("now", "")},
                {"index": 0, "function": {"arguments": 'ty":1}'}},
                {"index": 1, "function": {"arguments": "{}"}},
            ],
            [("a", "weather", '{"city":1}'), ("b", "now", "{}")],
            id="interleaved",
        ),
        pytest.param(
            [
                {"id": "a", "function": fn("weather", '{"a"')},
                {"id": "a", "function": fn(None, ":1}")},
                {"id": "b", "function": fn("now", None)},
            ],
            [("a", "weather", '{"a":1}'), ("b", "now", "{}")],
            id="no index, ids repeated",
        ),
        pytest.param(
            [
                {"id": "a", "function": fn("weather", '{"a"')},
                {"function": {"arguments": ":"}},
                {"function": {"arguments": "1}"}},
                {"id": "b", "function": fn("now", "{}")},
            ],
            [("a", "weather", '{"a":1}'), ("b", "now", "{}")],
            id="no index, id once",
        ),
        pytest.param(
            [
                [{"function": fn("weather", '{"a":1}')}, {"function": fn("weather", '{"a":2}')}],
                {"function": fn("now")},
            ],
            [(None, "weather", '{"a":1}'), (None, "weather", '{"a":2}'), (None, "now", "{}")],
            id="no index, no ids",
        ),
        pytest.param(
            [
                {"function": fn("refresh")},
                {"function": fn("weather", '{"a":1}')},
            ],
            [(None, "refresh", "{}"), (None, "weather", '{"a":1}')],
            id="no index, no ids, the first without arguments",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "function": fn("weather", '{"a":1}')},
                {"index": 0, "id": "b", "function": fn("weather", '{"a":2}')},
                {"index": 0, "id": "c", "function": fn("now", "{}")},
            ],
            [("a", "weather", '{"a":1}'), ("b", "weather", '{"a":2}'), ("c", "now", "{}")],
            id="all numbered 0",
        ),
        pytest.param(
            [
                {"index": 0, "id": "", "function": fn("weather", '{"a":1}')},
                {"index": 0, "id": "", "function": fn("weather", '{"a":2}')},
                {"index": 0, "id": "", "function": fn("now", "{}")},
            ],
            [(None, "weather", '{"a":1}'), (None, "weather", '{"a":2}'), (None, "now", "{}")],
            id="all numbered 0, empty ids",
        ),
        pytest.param(
            [
                {"index": 0, "id": "x1", "function": fn("weather", "")},
                {"index": 0, "id": "x2", "function": fn(None, '{"a"')},
                {"index": 0, "id": "x3", "function": {"arguments": ":1}"}},
            ],
            [("x1", "weather", '{"a":1}')],
            id="a new id on every piece",
        ),
        pytest.param(
            [
                {"id": "x1", "function": fn("weather", "")},
                {"id": "x2", "function": fn(None, '{"a":1}')},
            ],
            [("x1", "weather", '{"a":1}')],
            id="a new id on every piece, no index",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "function": fn("get_", "")},
                {"index": 0, "id": "a", "function": fn("weather", "")},
                {"index": 0, "function": {"arguments": '{"a":1}'}},
            ],
            [("a", "get_weather", '{"a":1}')],
            id="name in pieces",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "function": fn("weather", '{"a"')},
                {"index": 0, "id": "a", "function": fn("weather", ": {")},
                {"index": 0, "id": "a", "function": fn("weather", "}}")},
            ],
            [("a", "weather", '{"a": {}}')],
            id="name on every piece",
        ),
        pytest.param(
            [
                {"index": 0, "id": None, "function": fn(None, "{")},
                {"index": 0, "id": "a", "function": fn("weather", "}")},
            ],
            [("a", "weather", "{}")],
            id="id and name late",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "function": fn("weather", "{}")},
                {"index": 0, "function": {"arguments": '{"a":1}'}},
            ],
            [("a", "weather", '{"a":1}')],
            id="an empty object holds the place",
        ),
        pytest.param(
            [{"index": 0, "id": "a", "function": fn("weather", {"a": 1, "b": None})}],
            [("a", "weather", '{"a":1,"b":null}')],
            id="arguments as an object",
        ),
        pytest.param(
            [{"index": 0, "id": "a", "function": fn("weather", '{"a":')}],
            [("a", "weather", '{"a":')],
            id="arguments cut off stay as they are",
        ),
        pytest.param(
            [{"index": 0, "id": 7, "type": "custom", "custom": {"name": "sql", "input": "select 1"}}],
            [("7", "sql", "select 1")],
            id="custom tool",
        ),
        pytest.param(
            [{"index": 0}, {"index": [0]}, [{"function": None}], {"index": 0, "function": fn("now", "{}")}],
            [(None, "now", "{}")],
            id="empty pieces",
        ),
    ],
)
def test_pieces_of_calls_find_together(fragments, calls):
    assert calls_of(*fragments) == calls


def test_a_character_cut_between_its_surrogates_is_one_again():
    halves = [rb'data: {"choices":[{"delta":{"content":"a\ud83d"}}]}' + b"\n\n"]
    halves += [rb'data: {"choices":[{"delta":{"content":"\ude00b \ud800"}}]}' + b"\n\n", STOP]
    found, text, _ = read(*halves)
    assert found.text == text == "a😀b \ud800"
    assert reply_of(*halves[:2], DONE).text == "a😀b \ud800"


def test_lone_surrogates_and_broken_utf_8_are_read():
    assert reply_of(rb'{"choices":[{"message":{"content":"\ud800 \n"}}]}').text == "\ud800 \n"
    assert reply_of(b'data: {"choices":[{"delta":{"content":"a\xff"}}]}\n\n', STOP).text == "a\ufffd"
    assert reply_of(b'{"choices":[{"message":{"content":"a\xffb\tc"}}]}').text == "a\ufffdb\tc"


# --- what is not a reply ---


@pytest.mark.parametrize(
    ("data", "type", "retry"),
    [
        (b"", "lost-stream", True),
        (b"\n\n", "lost-stream", True),
        (b": keep-alive\n\n", "lost-stream", True),
        (event({"content": "Hi"}), "lost-stream", True),
        (event({"content": "Hi"}) + b'data: {"choi', "lost-stream", True),
        (b"<html>login</html>", "bad-reply", True),
        (b"Internal Server Error\n", "bad-reply", True),
        (b'{"choices": [', "bad-reply", True),
        (b'{"choices": []}', "bad-reply", True),
        (b'{"id": 1}', "bad-reply", True),
        (b"[]", "bad-reply", True),
        (b"[1]", "bad-reply", True),
        (b"{" * 100_000, "bad-reply", True),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "bad-reply", True),
        (b"data: {nope}\n\n", "bad-reply", True),
        (DONE, "bad-reply", True),
        (b'{"error": {"message": "m", "type": "server_error"}}', "server_error", True),
        (b'{"error": {"message": "m", "code": 429}}', "http-429", True),
        (b'{"error": {"message": "m", "code": 400, "type": null}}', "http-400", False),
        (b'{"error": {"message": "m", "type": "invalid_request_error", "code": "x"}}', "x", False),
        (b'{"error": {"message": "m", "code": "insufficient_quota"}}', "insufficient_quota", False),
        (b'{"error": {"message": "m", "code": "tool_use_failed", "type": "invalid_request_error"}}', "tool_use_failed", True),
        (b'{"error": "model not loaded"}', "provider-error", True),
        (b'[{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}]', "INVALID_ARGUMENT", False),
        (b'{"object": "error", "message": "m", "code": 404}', "http-404", False),
        (b'{"detail": [{"msg": "m"}]}', "provider-error", True),
        (b'{"choices": [{"error": {"code": 502, "message": "m"}}]}', "http-502", True),
        (event({"content": "a"}) + b'data: {"error": {"code": 502, "message": "m"}}\n\n', "http-502", True),
        (event({"content": "a"}) + b'event: error\ndata: {"message": "m"}\n\n', "provider-error", True),
        (event({"content": "a"}) + b'data: {"error": {"type": "overloaded_error"}}', "overloaded_error", True),
    ],
)  # fmt: skip
def test_what_is_no_reply_is_a_fault(data, type, retry):
    for pieces in ([data], [data[i : i + 7] for i in range(0, len(data), 7)]):
        with pytest.raises(ModelFault) as found:
            read(*pieces)
        assert (found.value.type, found.value.retry) == (type, retry)
        assert found.value.message


def test_a_fault_shows_what_came():
    with pytest.raises(ModelFault) as found:
        read(b"<html>" + b"x" * 1000)
    assert str(found.value) == (
        f"Expected JSON or server-sent events, found {'<html>' + 'x' * 194!r} and 800 bytes more."
    )
    with pytest.raises(ModelFault, match="raw: upstream is down"):
        read(b'{"error": {"message": "raw", "metadata": {"raw": "upstream is down"}}}')


# --- however it is cut ---

RECORDED = (
    b": hello\r\n\r\n"
    + event({"role": "assistant", "content": "", "reasoning": "Ünd 😀"})
    + event({"content": "Grüße 😀 aus\n"}).replace(b"\n\n", b"\r\n\r\n")
    + rb'data:{"choices":[{"delta":{"content":"\ud83d"}}]}' + b"\r\r"
    + 'data:{"choices":[{"delta":{"content":"→ 東京 \U0001f9d1"}}]}\n\n'.encode()
    + event({"tool_calls": [{"index": 0, "id": "a", "function": fn("weather", "")}]})
    + event({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Köln'}}]})
    + event({"tool_calls": [{"index": 1, "id": "b", "function": fn("now", "{}")}]})
    + event({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]})
    + event(finish="tool_calls")
    + b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n'
    + DONE
)  # fmt: skip


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(st.integers(min_value=0, max_value=10_000), max_size=40))
def test_any_cut_of_a_stream_gives_the_same_reply_and_deltas(places):
    assert read(*cut(RECORDED, places)) == read(RECORDED)


def test_every_single_cut_gives_the_same_reply_and_deltas():
    expected = read(RECORDED)
    assert expected[1] == expected[0].text
    assert expected[2] == expected[0].thought == "Ünd 😀"
    assert [call.args for call in expected[0].calls] == ['{"city": "Köln"}', "{}"]
    for place in range(len(RECORDED)):
        assert read(RECORDED[:place], RECORDED[place:]) == expected


@given(st.binary(max_size=200) | st.text(alphabet='data: {}[]"\n\r,choices0delta', max_size=200).map(str.encode),
       st.lists(st.integers(min_value=0, max_value=200), max_size=5))  # fmt: skip
@example(b"data: \r\ndata\n\n{", [3])
def test_no_bytes_raise_anything_but_a_fault(data, places):
    def outcome(pieces: list[bytes]) -> Any:
        try:
            return read(*pieces)
        except ModelFault as fault:
            return fault.type, fault.retry, fault.http_status

    assert outcome(cut(data, places)) == outcome([data])


WORDS = st.sampled_from(
    [
        *(
            "choices",
            "delta",
            "message",
            "content",
            "text",
            "refusal",
            "reasoning",
            "thinking",
            "finish_reason",
            "usage",
        ),
        *("tool_calls", "function_call", "function", "custom", "name", "arguments", "input", "id", "index", "model"),
        *("error", "code", "type", "metadata", "raw", "x_groq", "object"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just("a lot") | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=25,
)


@given(st.lists(st.builds(lambda delta, more: {"choices": [{"delta": delta, **more}]} | more,
                          st.dictionaries(WORDS, ANYTHING), st.dictionaries(WORDS, ANYTHING, max_size=1)), max_size=4))  # fmt: skip
def test_no_json_raises_anything_but_a_fault(chunks):
    bodies = [json.dumps(chunk).encode().replace(b'"a lot"', b"9" * 5000) for chunk in chunks]
    for data in (b"".join(b"data: %s\n\n" % body for body in bodies) + DONE, *bodies):
        with contextlib.suppress(ModelFault):
            read(data)
        with contextlib.suppress(ModelFault):
            read(data.replace(b'"delta"', b'"message"'))


MESSAGES = st.fixed_dictionaries(
    {
        "content": st.none() | st.text(max_size=30),
        "reasoning_content": st.none() | st.text(max_size=10),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {"id": st.text("abc", min_size=1, max_size=2), "function": st.builds(fn, st.text("xyz", min_size=1),
                 st.text(max_size=20).map(lambda text: json.dumps({"a": text})))}
            ),
            max_size=3,
        ),
    }
)  # fmt: skip


@given(MESSAGES, st.integers(min_value=1, max_value=7))
def test_a_streamed_reply_equals_the_whole_one(message, size):
    usage = {"total_tokens": 3}
    pieces = [message[name] or "" for name in ("reasoning_content", "content")]
    stream = b"".join(
        event({name: text[i : i + size]})
        for name, text in zip(("reasoning_content", "content"), pieces, strict=True)
        for i in range(0, len(text), size)
    )
    for index, call in enumerate(message["tool_calls"]):
        args = call["function"]["arguments"]
        stream += event({"tool_calls": [{"index": index, **call, "function": fn(call["function"]["name"], "")}]})
        for i in range(0, len(args), size):
            stream += event({"tool_calls": [{"index": index, "function": {"arguments": args[i : i + size]}}]})
    stream += STOP + event(usage=usage) + DONE
    assert reply_of(stream) == reply_of(whole(message, usage=usage))


def test_lines_end_in_all_three_ways_also_across_pieces():
    reader = Events()
    found = []
    for piece in (b"event: a\r", b"\ndata: 1\r", b"", b"\n", b"\r", b"data: 2\n", b"\n", b"data: 3\n\ndata: 4"):
        found += reader.feed(piece)
    assert found + reader.close() == [(b"a", b"1"), (b"", b"2"), (b"", b"3"), (b"", b"4")]


@pytest.mark.sample(4)
@pytest.mark.parametrize("size", [64, 65536])
@pytest.mark.parametrize("form", ["stream", "whole"])
def test_megabytes_take_linear_time(size, form):
    def take(length):
        text = "x" * length
        data = event({"content": text}) + STOP if form == "stream" else whole({"content": text})
        assert len(reply_of(*[data[i : i + size] for i in range(0, len(data), size)]).text) == length

    assert growth(take, 1_000_000) < LINEAR


def test_megabytes_of_arguments_in_pieces_take_linear_time():
    # The name on every piece, and pieces that look like a new object: the worst that a server can do.
    piece = event({"tool_calls": [{"index": 0, "function": fn("f", "{" + "x" * 1000)}]})

    def take(pieces):
        assert len(reply_of(*[piece] * pieces, STOP).calls[0].args) == 1001 * pieces

    assert growth(take, 1000) < LINEAR


def test_a_reader_says_whether_its_bytes_are_worth_keeping():
    parser = ChatParser(keep=False)
    parser.feed(STOP)
    assert parser.close().keep is False
    assert reply_of(STOP).keep is True


@pytest.mark.parametrize(
    "data",
    [
        b"<html>\r\n<title>502 Bad Gateway</title>" + b"<p>x</p>" * 300,
        b"1e+308",
        b'data: {"object": "ping"}\n\n' + DONE + b"data: what follows came by chance\n\n" * 30,
        b"event: x\r\n: nothing\r\n" + b"x" * 2000,
        b"data: 5e-324\r\n\r\ndata: {}\r\n\r\ndata: [DONE]\r\n\r\nONE]\r\n\r\n",
    ],
)
def test_the_message_of_a_bad_reply_does_not_depend_on_how_it_was_cut(data: bytes):
    def found(*pieces: bytes) -> str:
        parser = ChatDialect("m").parser()
        for piece in pieces:
            parser.feed(piece)
            if parser.over:
                break
        with pytest.raises(ModelFault) as caught:
            parser.close()
        return f"{caught.value.type}: {caught.value.message}"

    once = found(data)
    assert found(*(data[place : place + 1] for place in range(len(data)))) == once
    assert {found(data[:place], data[place:]) for place in range(0, len(data), 7)} == {once}
