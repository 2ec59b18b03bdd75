"""The model that is a function of the conversation."""

import copy
import json
import pickle
import textwrap
from contextlib import aclosing
from typing import Any

import pytest

import gesta
import gesta.models.function as module
from gesta.errors import AgentError
from gesta.kinds import RequestHeaderContent
from gesta.message import Call, Message
from gesta.model.request import Reply, ReplyCall, Request
from gesta.models.function import function
from gesta.models.scripted import call

HEADER = RequestHeaderContent(tools=[{"name": "f"}], meta={"instructions": "Be brief."})


async def ask(model: Any, *messages: Message) -> Reply:
    request = Request(header=HEADER, envelope=model.envelope(HEADER), blocks=[*map(model.encode, messages)])
    parser = model.parser()
    async with aclosing(model.send(request)) as pieces:
        async for piece in pieces:
            parser.feed(piece)
    found: Reply = parser.close()
    return found


async def test_it_sees_the_messages_and_the_header():
    seen: list[Any] = []

    def answer(messages, header):
        seen.append((messages, header))
        return "Done."

    found = await ask(
        function(answer),
        Message(role="user", text="Hi \ud800"),
        Message(role="assistant", calls=(Call("c", "f", {"a": None}),)),
        Message(role="tool", text="1", call_id="c"),
    )
    assert found == Reply(text="Done.", model="function", finish_reason="stop", keep=False)
    assert seen == [
        (
            [
                {"role": "user", "content": "Hi \ufffd"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":null}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "1"},
            ],
            HEADER,
        )
    ]


async def test_it_may_be_asynchronous_and_give_any_item():
    async def answer(messages, header):
        return ["Both.", call("f"), call(messages[-1]["content"])]

    found = await ask(function(answer, "mine", stream=False), Message(role="user", text="g"))
    assert found.calls == (ReplyCall("f", "{}"), ReplyCall("g", "{}"))
    assert (found.text, found.model) == ("Both.", "mine")


async def test_the_example_in_the_docstring_runs():
    known: dict[str, Any] = {"gesta": gesta}
    exec(textwrap.dedent((module.__doc__ or "").partition("\n\n")[2]), known)
    assert (await ask(known["agent"].model, Message(role="user", text="Hi"))).text == "You said: Hi"


async def test_what_it_raises_is_not_hidden():
    def answer(messages, header):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ask(function(answer), Message(role="user"))


async def test_what_is_no_item_is_named():
    with pytest.raises(AgentError, match=r"Answer 1 of model 'function' is None \(NoneType\); expected a text"):
        await ask(function(lambda *_: None), Message(role="user"))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(AgentError, match=r"gesta.function: 'echo' is not a function; expected one called as fn"):
        function("echo")  # type: ignore[arg-type]  # on purpose


async def test_a_function_may_change_what_it_is_handed_and_sees_it_as_it_was_the_next_time():
    seen: list[Any] = []

    def answer(messages, _header):
        seen.append([message["content"] for message in messages])
        messages[0]["content"] = "changed"
        messages.clear()
        return "Done."

    model = function(answer)
    blocks = [model.encode(Message(role="user", text="a"))]
    request = Request(header=HEADER, envelope=model.envelope(HEADER), blocks=blocks)
    for _ in range(2):
        _ = [piece async for piece in model.send(request)]
    blocks.append(model.encode(Message(role="user", text="b")))
    _ = [piece async for piece in model.send(request)]
    blocks[0] = model.encode(Message(role="user", text="c"))
    _ = [piece async for piece in model.send(request)]
    assert seen == [["a"], ["a"], ["a", "b"], ["c", "b"]]


CALLING = Message(role="assistant", calls=(Call("c", "f", {"a": 1}),))


def asked(model: Any, messages: list[Message]) -> Request:
    return Request(header=HEADER, envelope=model.envelope(HEADER), blocks=[*map(model.encode, messages)])


async def answered(model: Any, request: Request) -> None:
    _ = [piece async for piece in model.send(request)]


@pytest.mark.parametrize(
    "change",
    [
        lambda messages: messages[1].update(content="changed"),
        lambda messages: messages[1].pop("content"),
        lambda messages: messages[1].__ior__({"content": "changed"}),
        lambda messages: messages[1]["tool_calls"].clear(),
        lambda messages: messages[1]["tool_calls"].append({}),
        lambda messages: messages[1]["tool_calls"].__setitem__(0, {}),
        lambda messages: messages[1]["tool_calls"][0].setdefault("more", 1),
        lambda messages: messages[1]["tool_calls"][0]["function"].__setitem__("arguments", "{}"),
    ],
)
async def test_what_a_function_changes_inside_of_a_message_it_does_not_see_again(change: Any) -> None:
    seen: list[str] = []

    def answer(messages, _header):
        seen.append(json.dumps(messages))
        if len(seen) == 1:
            change(messages)
        return "Done."

    model = function(answer)
    request = asked(model, [Message(role="user", text="a"), CALLING])
    await answered(model, request)
    await answered(model, request)
    assert seen[0] == seen[1]


async def test_a_message_is_read_once_and_handed_each_time_as_it_is() -> None:
    seen: list[list[Any]] = []

    def answer(messages, _header):
        seen.append(messages)
        return "Done."

    model = function(answer)
    blocks = [model.encode(CALLING)]
    request = Request(header=HEADER, envelope=model.envelope(HEADER), blocks=blocks)
    await answered(model, request)
    blocks.append(model.encode(Message(role="tool", text="1", call_id="c")))
    await answered(model, request)
    first, then = seen
    assert (len(first), len(then)) == (1, 2), "each request has a list of its own"
    assert first[0] is then[0]


async def test_copies_of_what_a_function_is_handed_are_ordinary_dicts_and_lists() -> None:
    seen: list[Any] = []

    def answer(messages, _header):
        seen.append(messages)
        return "Done."

    model = function(answer)
    await answered(model, asked(model, [CALLING]))
    (messages,) = seen
    for made in (copy.deepcopy(messages), pickle.loads(pickle.dumps(messages))):
        assert made == messages
        calls = made[0]["tool_calls"]
        assert {type(made), type(made[0]), type(calls), type(calls[0])} == {dict, list}
    assert type(copy.copy(messages[0])) is dict
    assert repr(messages[0]) == repr(dict(messages[0]))
