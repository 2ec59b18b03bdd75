"""Traces across programs: the caller's trace goes on in a turn, in its tools, and in the agents below."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.serving import post, served

import gesta
from gesta.entry import run_id
from gesta.errors import AgentError
from gesta.kinds import Kind, UserContent
from gesta.text.tracing import TraceContext, span_id, trace_id

CALLER = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067440a9902b7")


class Seen(list[str | None]):
    """The contexts that a tool got."""

    def desk(self) -> gesta.Agent[Any]:
        """An agent whose tool is an agent whose tool looks at its context."""

        @gesta.tool(effect="pure")
        def look(context: gesta.Context) -> str:
            """Look."""
            self.append(context.traceparent)
            return "found"

        below = gesta.Agent("guide", model=gesta.scripted(gesta.call("look"), "It is there."), tools=[look])
        asks = gesta.call("guide", task="Look.")
        return gesta.Agent("desk", model=gesta.scripted(asks, "Yes."), tools=[below.as_tool(), look])


def messages(path: Path) -> list[tuple[str, str | None]]:
    """The run and the context of each message on record."""

    async def read() -> list[tuple[str, str | None]]:
        async with gesta.open(path) as record:
            entries = [each for row in await record.store.runs() for each in await record.read(row.run)]
            return [(each.run, each.content.traceparent) for each in entries if isinstance(each.content, UserContent)]

    return anyio.run(read)


def test_a_callers_context_is_on_record_and_reaches_the_tools_of_the_agents_below(tmp_path: Path) -> None:
    seen = Seen()
    outcome = gesta.run_sync(seen.desk(), "Where?", record=tmp_path / "a.gesta", traceparent=str(CALLER))
    assert messages(tmp_path / "a.gesta") == [(outcome.run, str(CALLER))]
    with gesta.open_sync(tmp_path / "a.gesta") as record:
        child = run_id(record.info.id, outcome.run, "guide#6")
        (call,) = [each.seq for each in record.read(child) if each.kind is Kind.ToolCall]
    assert seen == [f"00-{CALLER.trace}-{span_id(child, call)}-01"]


def test_a_turn_without_a_caller_has_a_trace_that_follows_from_the_record(tmp_path: Path) -> None:
    seen = Seen()
    outcome = gesta.run_sync(seen.desk(), "Where?", record=tmp_path / "a.gesta")
    assert seen[0] is not None
    assert seen[0].split("-")[1] == trace_id(outcome.run, 1)


def test_a_caller_that_samples_nothing_is_passed_on_as_such(tmp_path: Path) -> None:
    seen = Seen()
    gesta.run_sync(seen.desk(), "Where?", record=tmp_path / "a.gesta", traceparent=f"{str(CALLER)[:-1]}0")
    assert seen[0] is not None
    assert seen[0].startswith(f"00-{CALLER.trace}-")
    assert seen[0].endswith("-00")


def test_a_malformed_context_of_a_program_is_refused_and_that_of_a_request_is_ignored(tmp_path: Path) -> None:
    told = r"traceparent='7': expected 00-TRACE-SPAN-FLAGS, with 32, 16 and 2 hex digits\."
    with pytest.raises(AgentError, match=told):
        gesta.run_sync(Seen().desk(), "Where?", record=":memory:", traceparent="7")
    with served(tmp_path / "a.gesta") as address:
        assert post(address, "/sessions/s/messages", {"message": "Hello"}, traceparent="7").status_code == 200


def test_a_web_requests_context_stands_with_its_message(tmp_path: Path) -> None:
    chat = {"model": "desk", "messages": [{"role": "user", "content": "Hello"}]}
    with served(tmp_path / "a.gesta") as address:
        one = post(address, "/sessions/s/messages", {"message": "Hello"}, traceparent=str(CALLER))
        two = post(address, "/v1/chat/completions", chat, traceparent=str(CALLER))
    assert (one.status_code, two.status_code) == (200, 200)
    assert [context for _, context in messages(tmp_path / "a.gesta")] == [str(CALLER)] * 2


def test_a_message_that_waited_for_another_turn_keeps_its_context() -> None:
    @gesta.tool(effect="once", approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        return f"{cents} paid"

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", cents=1), "Paid.", "Hello."), tools=[pay])

    async def main() -> list[str | None]:
        async with gesta.open(":memory:") as record:
            first = await record.run(agent, "Pay.", session="s")
            queued = await record.run(agent, "Hello?", session="s", traceparent=str(CALLER))
            assert queued.queued
            await record.approve(first.waiting[0], by="ann")
            await record.resume(first.run, agent)
            entries = await record.read(first.run)
            return [each.content.traceparent for each in entries if isinstance(each.content, UserContent)]

    assert anyio.run(main) == [None, str(CALLER)]
