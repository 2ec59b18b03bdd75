"""Where a model fails for good, another one is asked for the rest of the turn; it is on record, and needs no memory."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import anyio
import msgspec
import pytest

import gesta
from gesta.compare.replaying import replay_run
from gesta.errors import BadAddress, ModelFault
from gesta.kinds import FaultContent, RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Request
from gesta.models.chat_completions import ChatDialect
from gesta.models.scripted import Fault, Keyless

QUICK = gesta.Policy(retry=gesta.Retry(tries=2, first_wait_s=0))


@gesta.tool(effect="pure")
def look() -> str:
    """Look."""
    return "seen"


class Named:
    """A function model under a name of its own, which counts what it is asked."""

    def __init__(self, name: str, *says: Any) -> None:
        self.asked: list[int] = []
        self._says = list(says)
        self.model = gesta.function(self._answer, name=name)

    def _answer(self, messages: list[Any], _header: Any) -> Any:
        self.asked.append(len(messages))
        said = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        if isinstance(said, Exception):
            raise said
        return said


def refused(retry: bool = False) -> ModelFault:
    return ModelFault("overloaded", "no capacity", http_status=529, retry=retry)


def agent(first: Named, *others: Named, tools: Any = (look,)) -> gesta.Agent:
    fallbacks = [each.model for each in others]
    return gesta.Agent("desk", model=first.model, fallbacks=fallbacks, tools=list(tools), policy=QUICK)


def models(entries: list[gesta.Entry]) -> list[str]:
    headers = [each.content for each in entries if isinstance(each.content, RequestHeaderContent)]
    return [(each.meta or {})["model"] for each in headers]


async def test_another_model_is_asked_for_the_rest_of_the_turn_and_the_first_in_the_next() -> None:
    first, second = Named("first", refused(), "I am back."), Named("second", gesta.call("look"), "Seen.")
    desk = agent(first, second)
    async with gesta.open() as record:
        outcome = await record.run(desk, "Look.", session="s")
        assert (outcome.answer, len(first.asked), len(second.asked)) == ("Seen.", 1, 2)
        assert (await record.run(desk, "And now?", session="s")).answer == "I am back."
        entries = await record.read(outcome.run)
    assert models(entries) == ["first", "second", "first"]
    (fault,) = [each.content for each in entries if isinstance(each.content, FaultContent)]
    assert (fault.instead, fault.wait_s, fault.error.http_status) == ("second", 0.0, 529)


async def test_what_a_fallback_of_another_provider_answered_is_in_the_next_prompt() -> None:
    read: list[list[str]] = []

    def back(messages: list[Any], _header: Any) -> str:
        read.append([each["content"] for each in messages])
        if len(read) == 1:
            raise refused()
        return "I am back."

    here, there = (
        gesta.function(back, name="here:first"),
        gesta.function(lambda *_: "Good morning.", name="there:second"),
    )
    desk = gesta.Agent("desk", model=here, fallbacks=[there], policy=QUICK)
    async with gesta.open() as record:
        await record.run(desk, "Hello.", session="s")
        await record.run(desk, "And now?", session="s")
        run = (await record.run(desk, "And then?", session="s")).run
        entries = await record.read(run)
    assert read[1] == ["Hello.", "Good morning.", "And now?"]
    assert read[2] == ["Hello.", "Good morning.", "And now?", "I am back.", "And then?"]
    replayed = await replay_run({run: entries}, run, desk)
    assert (replayed.entries, replayed.divergence) == (len(entries), None)


class OtherDialect(ChatDialect, frozen=True):
    """A dialect whose messages can be told from those of Chat Completions."""

    encoder: ClassVar[str] = "other/1"

    def encode(self, message: Message) -> bytes:
        return msgspec.json.encode({**msgspec.json.decode(super().encode(message)), "dialect": "other"})


async def test_a_message_that_waited_while_a_fallback_was_asked_is_sent_in_the_form_of_the_first_model() -> None:
    read: list[list[str]] = []

    def answer(request: Request) -> Any:
        read.append([msgspec.json.decode(block).get("dialect", "own") for block in request.blocks])
        return (
            Fault(type="overloaded", message="no capacity", retry=False),
            gesta.call("look"),
            "Seen.",
            "I am back.",
        )[len(read) - 1]

    waits = gesta.tool(lambda: "seen", name="look", effect="once", approval=True)
    here = Keyless("here:first", answer, ChatDialect("first", {}, stream=False))
    there = Keyless("there:second", answer, OtherDialect("second", {}, stream=False))
    desk = gesta.Agent("desk", model=here, fallbacks=[there], tools=[waits], policy=QUICK)
    async with gesta.open() as record:
        outcome = await record.run(desk, "Look.", session="s")
        assert (await record.run(desk, "And now?", session="s")).queued
        await record.approve(outcome.run, by="ann")
        assert (await record.resume(outcome.run, desk)).answer == "Seen."
    assert read == [["own"], ["other"], ["other"] * 3, ["own"] * 5]


async def test_what_a_task_that_a_tool_left_behind_writes_hides_no_result_from_a_fallback() -> None:
    leave, left, read = anyio.Event(), anyio.Event(), list[list[str]]()
    clerk = gesta.Agent("clerk", model=gesta.function(lambda *_: "Noted."))

    @gesta.tool(effect="once")
    async def begin(context: gesta.Context) -> str:
        """Begin something, and do not wait for it."""

        async def later() -> None:
            await leave.wait()
            await context.call(clerk, "Note it.")
            left.set()

        behind.append(asyncio.ensure_future(later()))
        return "begun"

    @gesta.tool(effect="once")
    async def pay(cents: int, context: gesta.Context) -> str:
        """Pay."""
        if cents == 2:
            while "paid 1" not in [getattr(each.content, "tool_result", "") for each in await record.read(context.run)]:
                await anyio.lowlevel.checkpoint()
            leave.set()
            await left.wait()
        return f"paid {cents}"

    def fallback(messages: list[Any], _header: Any) -> Any:
        read.append([each["content"] for each in messages if each["role"] == "tool"])
        both = gesta.reply(calls=[gesta.call("pay", cents=1), gesta.call("pay", cents=2)])
        return both if len(read) == 1 else "Done."

    def first(messages: list[Any], _header: Any) -> Any:
        if len(messages) > 1:
            raise refused()
        return gesta.call("begin")

    behind: list[asyncio.Future[None]] = []
    here = gesta.function(first, name="here:first")
    there = gesta.function(fallback, name="there:second")
    desk = gesta.Agent("desk", model=here, fallbacks=[there], tools=[begin, pay], policy=QUICK)
    async with gesta.open() as record:
        assert (await record.run(desk, "Pay.")).answer == "Done."
    assert read[-1] == ["begun", "paid 1", "paid 2"]


async def test_what_can_be_tried_again_is_tried_as_often_as_the_policy_says_before_another_is_asked() -> None:
    first, second = Named("first", refused(retry=True)), Named("second", refused(retry=True))
    third = Named("third", "Here.")
    async with gesta.open() as record:
        outcome = await record.run(agent(first, second, third), "Hello.", session="s")
        assert (outcome.answer, len(first.asked), len(second.asked)) == ("Here.", 2, 2)


async def test_if_all_fail_the_turn_fails_with_the_last_fault() -> None:
    second = Named("second", ModelFault("auth", "no such key", http_status=401))
    async with gesta.open() as record:
        outcome = await record.run(agent(Named("first", refused()), second), "Hello.", session="s")
    assert outcome.reason == "failed"
    assert outcome.error is not None
    assert outcome.error.http_status == 401


async def test_at_every_prefix_another_process_goes_on_with_the_same_model(tmp_path: Path) -> None:
    desk = agent(Named("first", refused()), Named("second", gesta.call("look"), "Seen."))
    async with gesta.open(tmp_path / "r.gesta") as record:
        run = (await record.run(desk, "Look.", session="s")).run
        entries = await record.read(run)
        replayed = await replay_run({run: entries}, run, desk)
    assert (replayed.entries, replayed.divergence) == (len(entries), None)


async def test_a_turn_that_was_left_while_the_fallback_was_asked_goes_on_with_it() -> None:
    begun = anyio.Event()

    async def slow(messages: list[Any], _header: Any) -> str:
        if not begun.is_set():
            begun.set()
            await anyio.sleep_forever()
        return f"Answered after {len(messages)} message."

    first = Named("first", refused())
    desk = gesta.Agent("desk", model=first.model, fallbacks=[gesta.function(slow, name="slow")], policy=QUICK)
    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record.run(desk, "Hello.", session="s"))
            await begun.wait()
            group.cancel_scope.cancel()
        run = (await record.find("s")).run
        assert (await record.resume(run, desk)).answer == "Answered after 1 message."
        assert len(first.asked) == 1


async def test_an_agent_that_has_no_such_model_any_more_asks_its_own() -> None:
    first = Named("first", refused(), "I am back.")
    second = Named("second", gesta.call("look"), "never")
    waits = gesta.tool(lambda: "seen", name="look", effect="once", approval=True)
    desk = agent(first, second, tools=[waits])
    async with gesta.open() as record:
        outcome = await record.run(desk, "Look.", session="s")
        await record.approve(outcome.run, by="ann")
        changed = gesta.Agent("desk", model=first.model, tools=[waits], policy=QUICK)
        assert (await record.resume(outcome.run, changed)).answer == "I am back."


def test_a_fallback_that_leads_nowhere_is_said_before_anything_is_asked() -> None:
    desk = gesta.Agent("desk", model=gesta.scripted("never"), fallbacks=["opnai:gpt-5"])
    with pytest.raises(BadAddress, match="Did you mean 'openai'"):
        gesta.run_sync(desk, "Hello.")
