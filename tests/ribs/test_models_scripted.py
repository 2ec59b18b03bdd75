"""The scripted model: what it may be told to say, and that it says it in the form of the wire."""

import json
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gesta
import gesta.models.scripted as module
from gesta.errors import AgentError, ModelFault, ScriptExhausted
from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Delta, Reply, ReplyCall, Request
from gesta.models.scripted import call, fault, reply, scripted


def request(model: Any, answered: int = 0, number: int = 1) -> Request:
    header = RequestHeaderContent(meta={"model": model.name})
    block = model.encode(Message(role="user", text="Hi"))
    return Request(header=header, envelope=model.envelope(header), blocks=[block], answered=answered, number=number)


async def ask(model: Any, answered: int = 0, number: int = 1) -> tuple[Reply, list[str]]:
    parser, deltas = model.parser(), []
    async with aclosing(model.send(request(model, answered, number))) as pieces:
        async for piece in pieces:
            deltas += parser.feed(piece)
    return parser.close(), [delta.text for delta in deltas]


async def said(model: Any, answered: int = 0, number: int = 1) -> Any:
    try:
        found, _ = await ask(model, answered, number)
    except (ModelFault, AgentError) as error:
        return str(error)
    return found.text or [(made.name, made.args, made.id) for made in found.calls]


async def test_items_answer_by_their_number_and_nothing_is_counted():
    model = scripted("one", call("weather", city="Rome"), "three")
    for _ in range(2):
        assert [await said(model, n) for n in range(3)] == ["one", [("weather", '{"city":"Rome"}', None)], "three"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("Hello", Reply(text="Hello")),
        ("", Reply()),
        (call("now"), Reply(calls=(ReplyCall("now", "{}"),))),
        (call("f", id="tool's own", name="x", self=1), None),
        (["Wait.", call("a", x=1), "So.", call("b")],
         Reply(text="Wait.\nSo.", calls=(ReplyCall("a", '{"x":1}'), ReplyCall("b", "{}")))),
        ((call("a"), call("a")), Reply(calls=(ReplyCall("a", "{}"), ReplyCall("a", "{}")))),
        (ReplyCall("f", '{"broken', "c1"), Reply(calls=(ReplyCall("f", '{"broken', "c1"),))),
        (reply("T", thought="h", usage={"n": None}, finish_reason="length"),
         Reply(text="T", thought="h", usage={"n": None}, finish_reason="length")),
        (reply(calls=[call("a"), ReplyCall("b", "[]", "x")]),
         Reply(calls=(ReplyCall("a", "{}"), ReplyCall("b", "[]", "x")))),
        (lambda request: f"was {request.answered}", Reply(text="was 0")),
        (lambda _: lambda _: [call("a")], Reply(calls=(ReplyCall("a", "{}"),))),
    ],
)  # fmt: skip
async def test_each_kind_of_item_gives_its_reply(item, expected, stream):
    found, deltas = await ask(scripted(item, stream=stream))
    if expected is None:
        assert json.loads(found.calls[0].args) == {"id": "tool's own", "name": "x", "self": 1}
        return
    reason = expected.finish_reason or ("tool_calls" if expected.calls else "stop")
    assert found == Reply(
        text=expected.text, calls=expected.calls, thought=expected.thought, usage=expected.usage,
        model="scripted", finish_reason=reason, keep=False,
    )  # fmt: skip
    assert "".join(deltas) == (expected.thought or "") + expected.text if stream else deltas == []


def test_arguments_of_a_call_may_be_any_values():
    assert json.loads(call("f", x=complex(1, 2), n=None).args) == {"x": "(1+2j)", "n": None}
    assert call("f", z="\ud800").args == '{"z":"\\ud800"}'


async def test_an_item_may_be_asynchronous():
    async def later(request: Request) -> str:
        return "later"

    assert await said(scripted(later)) == "later"


async def test_a_text_comes_in_several_pieces():
    text = "Rome is dry today, so there is no need of an umbrella."
    _, deltas = await ask(scripted(text))
    assert len(deltas) > 1
    _, deltas = await ask(scripted(text * 1000))
    assert len(deltas) <= 16


async def test_the_reply_comes_whole_after_its_words_as_a_provider_s_is_read():
    made = scripted(reply("Hi", thought="Hm.", calls=[call("f")], usage={"total_tokens": 7}))
    assert [piece async for piece in made.send(request(made))] == [
        Delta("thought", "Hm."),
        Delta("text", "Hi"),
        Reply(
            text="Hi",
            thought="Hm.",
            calls=(ReplyCall("f", "{}"),),
            model="scripted",
            finish_reason="tool_calls",
            usage={"total_tokens": 7},
            keep=False,
        ),
    ]


async def test_faults_come_before_the_answer_they_precede_and_answer_nothing():
    model = scripted("one", fault("503"), fault(429, times=2, retry_after_s=1.5), "two", fault("timeout"))
    assert await said(model, 0) == "one"
    assert [await said(model, 1, number) for number in (1, 2, 3, 4, 5)] == [
        *("scripted fault 503", "scripted fault 429", "scripted fault 429", "two", "two")
    ]
    assert await said(model, 2, 1) == "scripted fault timeout"
    assert (await said(model, 2, 2)).startswith("Model 'scripted' was asked for answer 3 but holds 2.")
    assert await said(scripted(fault("503", times=None), "never"), 0, 99) == "scripted fault 503"


@pytest.mark.parametrize(
    ("made", "type", "status", "retry"),
    [
        (fault(), "http-503", 503, True),
        (fault(429, retry_after_s=2), "http-429", 429, True),
        (fault("400"), "http-400", 400, False),
        (fault("400", retry=True), "http-400", 400, True),
        (fault("lost-stream"), "lost-stream", None, True),
        (fault("context_length_exceeded", retry=False, message="Too long."), "context_length_exceeded", None, False),
    ],
)
async def test_a_fault_is_what_a_provider_would_give(made, type, status, retry):
    with pytest.raises(ModelFault) as found:
        await ask(scripted(made, "x"))
    assert (found.value.type, found.value.http_status, found.value.retry) == (type, status, retry)
    assert found.value.retry_after_s == made.retry_after_s


async def test_a_stream_is_lost_after_so_many_characters():
    text = "Rome is dry today, so no umbrella."
    model = scripted(fault("lost-stream", after=20), lambda _: text)
    parser, shown = model.parser(), list[Delta]()

    async def read() -> None:
        async for piece in model.send(request(model)):
            shown.extend(parser.feed(piece))

    with pytest.raises(ModelFault, match="lost-stream"):
        await read()
    assert "".join(delta.text for delta in shown) == text[:20]
    with pytest.raises(ModelFault, match="ended before its first byte"):
        parser.close()
    assert await said(model, 0, 2) == text
    assert await said(scripted(fault("lost-stream", after=5), text, stream=False)) == "scripted fault lost-stream"
    assert await said(scripted(fault("lost-stream", after=5))) == "scripted fault lost-stream"


async def test_past_its_end_it_says_so():
    with pytest.raises(ScriptExhausted) as found:
        await ask(scripted("one", name="guide"), 1)
    assert (
        str(found.value)
        == "Model 'guide' was asked for answer 2 but holds 1. It counts the answers of the whole run: add one, or begin another session."
    )


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (("a", 7), "Item 2 of model 'scripted' is 7 (int); expected a text, gesta.call(...), a list of these for one"),
        (([],), "Item 1 of model 'scripted' is [] (list); expected a text"),
        ((["a", fault()],), "Item 1 of model 'scripted' holds Fault(type='http-503'"),
        (({"name": "weather"},), "Item 1 of model 'scripted' is {'name': 'weather'} (dict); expected"),
        ((None,), "Item 1 of model 'scripted' is None (NoneType)"),
        ((dict,), "Item 1 of model 'scripted' is <class 'dict'> (type)"),
        ((["x" * 500, 3.5],), "Item 1 of model 'scripted' holds 3.5 (float); expected texts and gesta.call(...) only."),
    ],
)
def test_a_wrong_item_is_named_when_the_script_is_made(items, message):
    with pytest.raises(AgentError) as found:
        scripted(*items)
    assert str(found.value).startswith(message)


async def test_a_wrong_item_from_a_function_is_named_when_it_answers():
    assert (await said(scripted("one", lambda _: None), 1)).startswith(
        "Answer 2 of model 'scripted' is None (NoneType); expected"
    )
    assert await said(scripted(lambda _: fault("503"))) == "scripted fault 503"


def test_what_cannot_be_meant_is_refused_where_it_is_written():
    with pytest.raises(AgentError, match=r"gesta.reply: calls hold 'weather' \(str\); expected gesta.call"):
        reply(calls=["weather"])  # type: ignore[list-item]  # on purpose
    for options in ({"what": 200}, {"times": 0}, {"after": -1}):
        with pytest.raises(AgentError, match=r"a status is 400 to 599, times at least 1 or None for always"):
            fault(**options)  # type: ignore[arg-type]  # on purpose


ODD = st.text(st.characters(codec=None), max_size=60).map(
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)


@given(ODD, ODD, ODD, st.booleans())
async def test_any_text_comes_out_as_it_went_in(text, thought, args, stream):
    item = reply(text, thought=thought, calls=[ReplyCall("f", args or "{}", "i")])
    found, _ = await ask(scripted(item, stream=stream))
    assert (found.text, found.thought or "", found.calls[0].args) == (text, thought, args or "{}")


async def test_a_pause_lies_before_each_piece(monkeypatch):
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    _, pieces = await ask(scripted("x" * 40, pause_s=0.01))
    assert waited == [0.01] * len(waited)
    assert len(waited) >= max(3, len(pieces))


async def test_the_example_in_the_docstring_runs():
    example = (module.__doc__ or "").partition("\n\n    ")[2]
    model = eval(example, {"gesta": gesta})
    assert await said(model, 0) == [("weather", '{"city":"Rome"}', None)]
    assert await said(model, 1) == "Two at once."
    assert [await said(model, 2, number) for number in (1, 2)] == ["scripted fault 503", "Dry."]
    assert await said(model, 3) == "That was answer 4."
    assert await said(model, 4) == "Goodbye."


def test_the_model_shows_its_name():
    assert repr(scripted(name="guide")) == "<model 'guide'>"
    assert scripted().encoder == "chat-completions/1"
    assert b'"model":"guide"' in scripted(name="guide").envelope(RequestHeaderContent()).head
