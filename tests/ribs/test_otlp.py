"""Runs as OpenTelemetry spans: what they hold, what becomes of them on the way, and that each is there once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.otlp_receiver import Receiver, attributes, receiving

import gesta
from gesta.bridges.otlp.following import Exporter
from gesta.bridges.otlp.settings import Settings, settings
from gesta.text.tracing import TraceContext, span_id, trace_id

CALLER = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067440a9902b7")

USAGE = {"prompt_tokens": 40, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 30}}


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: 21 degrees, dry"


@gesta.tool(effect="pure")
def broken(city: str) -> str:
    """Break."""
    raise ValueError(f"no such city: {city}")


@gesta.tool(effect="once", approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"{cents} cents paid"


def guide(*script: Any, tools: Sequence[Any] = (weather, broken, pay)) -> gesta.Agent[Any]:
    answers = script or (gesta.reply(calls=[gesta.call("weather", city="Rome")], usage=USAGE), "Rome is dry.")
    return gesta.Agent("guide", model=gesta.scripted(*answers), tools=list(tools), instructions="Be short.")


def found(receiver: Receiver, **more: Any) -> Settings:
    made = settings(receiver.address, environment=more.pop("environment", {}), **more)
    assert made is not None
    return msgspec.structs.replace(made, wait_s=0.001)


class Sending:
    """A record and a receiver, and an exporter between them for each call."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self.path, self.place, self.receiver = folder / "a.gesta", folder / "place.json", receiver
        self.told: list[str] = []

    def run(self, *agents: gesta.Agent[Any], **options: Any) -> list[gesta.Outcome[Any]]:
        """Run a turn of each agent."""
        return [gesta.run_sync(each, "Do I need a coat?", record=self.path, **options) for each in agents]

    def send(self, address: str | None = None, **options: Any) -> Any:
        """Send what is on record, and return what was done."""

        async def main() -> Any:
            async with gesta.open(address or self.path) as record:
                given = found(self.receiver, **options)
                return await Exporter(record.store, given, self.place, told=self.told.append).once()

        return anyio.run(main)


@pytest.fixture
def sending(tmp_path: Path) -> Any:
    with receiving() as receiver:
        yield Sending(tmp_path, receiver)


def test_a_turn_is_a_tree_of_spans_by_the_conventions(sending: Sending) -> None:
    (outcome,) = sending.run(guide(), session="ann", user="u-7")
    assert sending.send().sent == 4
    (turn,) = sending.receiver.named("invoke_agent guide")
    assert [each.name for each in sending.receiver.under(turn)] == [
        "chat scripted",
        "execute_tool weather",
        "chat scripted",
    ]
    assert turn.parent_span_id == b""
    assert turn.trace_id.hex() == trace_id(outcome.run, 1)
    assert turn.span_id.hex() == span_id(outcome.run, 1)
    assert {each.trace_id for each in sending.receiver.spans.values()} == {turn.trace_id}
    assert turn.kind == Span.SPAN_KIND_INTERNAL
    given = attributes(turn)
    assert given["gen_ai.operation.name"] == "invoke_agent"
    assert given["gen_ai.agent.name"] == "guide"
    assert given["gen_ai.conversation.id"] == given["session.id"] == "ann"
    assert (given["user.id"], given["gesta.run"], given["gesta.reason"]) == ("u-7", outcome.run, "answered")
    first, tool, _ = sending.receiver.under(turn)
    given = attributes(first)
    assert given["gen_ai.operation.name"] == "chat"
    assert given["gen_ai.request.model"] == "scripted"
    assert given["gen_ai.response.finish_reasons"] == ["tool_calls"]
    counts = [given[f"gen_ai.usage.{name}"] for name in ("input_tokens", "output_tokens", "cache_read.input_tokens")]
    assert counts == [40, 9, 30]
    given = attributes(tool)
    assert (given["gen_ai.operation.name"], given["gen_ai.tool.name"]) == ("execute_tool", "weather")
    assert given["gen_ai.tool.description"] == "Today's weather in a city."
    assert [event.name for event in tool.events] == ["gesta.attempt"]


def test_what_was_said_is_sent_only_if_it_is_asked_for(sending: Sending) -> None:
    sending.run(guide())
    sending.send()
    said = ("Rome", "coat", "Be short", "21 degrees")
    texts = [str(span) for span in sending.receiver.spans.values()]
    assert not [word for word in said for text in texts if word in text]
    sending.place.unlink()
    with receiving() as sending.receiver:
        sending.send(content=True)
        (turn,) = sending.receiver.named("invoke_agent guide")
        _, tool, last = sending.receiver.under(turn)
    given = attributes(turn)
    assert given["gen_ai.input.messages"] == (
        '[{"role": "user", "parts": [{"type": "text", "content": "Do I need a coat?"}]}]'
    )
    assert (given["input.value"], given["output.value"]) == ("Do I need a coat?", "Rome is dry.")
    assert attributes(tool)["gen_ai.tool.call.arguments"] == '{"city": "Rome"}'
    assert attributes(tool)["gen_ai.tool.call.result"] == "Rome: 21 degrees, dry"
    given = attributes(last)
    assert given["gen_ai.system_instructions"] == '[{"type": "text", "content": "Be short."}]'
    assert '"tool_call_response"' in given["gen_ai.input.messages"]
    assert '"content": "Rome is dry."' in given["gen_ai.output.messages"]
    assert '"name": "weather"' in given["gen_ai.tool.definitions"]


def test_a_failed_call_and_a_failed_turn_have_the_status_and_the_exception(sending: Sending) -> None:
    fails = gesta.fault(400)
    sending.run(guide(gesta.call("broken", city="X"), fails))
    sending.send()
    (tool,) = sending.receiver.named("execute_tool broken")
    assert (tool.status.code, attributes(tool)["error.type"]) == (Status.STATUS_CODE_ERROR, "ValueError")
    assert attributes(tool.events[-1])["exception.message"] == "no such city: X"
    (turn,) = sending.receiver.named("invoke_agent guide")
    assert (turn.status.code, attributes(turn)["gesta.reason"]) == (Status.STATUS_CODE_ERROR, "failed")
    chats = sending.receiver.named("chat scripted")
    assert [each.status.code for each in chats] == [Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR]
    assert attributes(chats[1])["error.type"] == "400"


def test_a_request_that_is_tried_again_is_one_span_with_each_fault(sending: Sending) -> None:
    policy = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0))
    agent = guide(gesta.fault(503, times=2), "Done.")
    sending.run(gesta.Agent("guide", model=agent.model, policy=policy))
    sending.send()
    (chat,) = sending.receiver.named("chat scripted")
    assert [each.name for each in chat.events] == ["exception", "exception"]
    assert chat.status.code == Status.STATUS_CODE_UNSET


def test_a_child_run_hangs_under_the_call_that_called_it(sending: Sending) -> None:
    below = guide()
    desk = gesta.Agent("desk", model=gesta.scripted(gesta.call("guide", task="Coat?"), "No."), tools=[below.as_tool()])
    sending.run(desk, traceparent=str(CALLER))
    sending.send()
    (turn,) = sending.receiver.named("invoke_agent desk")
    (call,) = sending.receiver.named("execute_tool guide")
    (child,) = sending.receiver.named("invoke_agent guide")
    assert turn.parent_span_id.hex() == CALLER.span
    assert call.parent_span_id == turn.span_id
    assert child.parent_span_id == call.span_id
    assert {each.trace_id.hex() for each in sending.receiver.spans.values()} == {CALLER.trace}


def test_a_turn_that_waits_is_sent_when_it_ends_and_its_parts_before(sending: Sending) -> None:
    agent = guide(gesta.call("pay", cents=5), "Paid.")
    (waiting,) = sending.run(agent, session="ann")
    assert sending.send().sent == 1
    assert [each.name for each in sending.receiver.spans.values()] == ["chat scripted"]

    async def go_on() -> None:
        async with gesta.open(sending.path) as record:
            await record.approve(waiting.waiting[0], by="ann")
            await record.resume(waiting.run, agent)

    anyio.run(go_on)
    sending.send()
    (turn,) = sending.receiver.named("invoke_agent guide")
    names = ["chat scripted", "wait for approval pay", "execute_tool pay", "chat scripted"]
    assert [each.name for each in sending.receiver.under(turn)] == names
    wait = sending.receiver.under(turn)[1]
    assert attributes(wait)["gesta.verdict"] == "approved"
    assert set(sending.receiver.times.values()) == {1}


def test_the_same_record_gives_the_same_spans_in_every_exporter_byte_for_byte(sending: Sending) -> None:
    sending.run(guide(), guide(gesta.call("pay", cents=5), "Paid."), guide(gesta.call("broken", city="X"), "Well."))
    first = sending.send(content=True).sent
    sending.place.unlink()
    assert sending.send(content=True).sent == first
    assert set(sending.receiver.times.values()) == {2}
    assert not sending.receiver.unequal


def test_an_exporter_goes_on_at_its_place(sending: Sending) -> None:
    sending.run(guide())
    assert sending.send().sent == 4
    assert sending.send().sent == 0
    sending.run(guide())
    assert sending.send().sent == 4
    assert set(sending.receiver.times.values()) == {1}


def test_a_lost_answer_sends_the_same_bytes_again(sending: Sending) -> None:
    sending.run(guide())

    def taken_and_lost(request: Any) -> None:
        sending.receiver.take(request)

    sending.receiver.answers += [taken_and_lost, taken_and_lost]
    assert sending.send(environment={"OTEL_EXPORTER_OTLP_TIMEOUT": "5000"}).tries == 2
    assert set(sending.receiver.times.values()) == {3}
    assert not sending.receiver.unequal
    assert len(sending.told) == 2
    assert sending.told[0].startswith("Traces wait: http://127.0.0.1:")
    assert sending.told[1] == "Traces are taken again."


def test_a_receiver_that_asks_for_patience_gets_the_same_later(sending: Sending) -> None:
    sending.run(guide())
    sending.receiver.answers += [lambda _: (429, {"retry-after": "0"}, b""), lambda _: (503, {}, b"")]
    done = sending.send()
    assert (done.sent, done.tries) == (4, 2)
    assert set(sending.receiver.times.values()) == {1}
