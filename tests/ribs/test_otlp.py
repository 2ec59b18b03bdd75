"""Runs as OpenTelemetry spans: what they hold, what becomes of them on the way, and that each is there once."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
from anyio.abc import SocketAttribute, SocketStream
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.commands import gesta_command
from tests.journeys.test_budgets import Cents
from tests.otlp_receiver import Receiver, attributes, from_json, receiving

import gesta
from gesta.bridges.otlp.following import Exporter
from gesta.bridges.otlp.settings import Settings, TracingError, settings
from gesta.bridges.tracing import tracing
from gesta.text.tracing import TraceContext, span_id, trace_id

pytestmark = pytest.mark.sample(2, over="parent")

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
def sending(tmp_path: Path) -> Iterator[Sending]:
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


def spans_in(request: Any) -> list[Span]:
    return [span for told in request.resource_spans for held in told.scope_spans for span in held.spans]


def test_a_span_that_the_receiver_refuses_is_left_out_and_all_others_are_sent(sending: Sending) -> None:
    runs = [sending.run(guide())[0].run for _ in range(3)]
    bad = bytes.fromhex(span_id(runs[1], 1))

    def refuses(request: Any) -> Any:
        held = bad in [each.span_id for each in spans_in(request)]
        return (400, {"content-type": "text/plain"}, b"that one is bad") if held else (200, {}, b"")

    sending.receiver.answers += [refuses] * 20
    done = sending.send()
    assert (done.sent, done.rejected) == (11, 1)
    assert bad not in sending.receiver.spans
    why = f"The receiver of traces does not take span {bad.hex()}: status 400 Bad Request: that one is bad."
    assert sending.told == [why]
    sending.receiver.answers.clear()
    assert sending.send().sent == 0


def test_what_a_receiver_rejects_of_a_message_is_said_and_not_sent_again(sending: Sending) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans, partial.partial_success.error_message = 1, "too old"
    sending.run(guide())
    sending.receiver.answers.append(lambda _: (200, {}, partial.SerializeToString()))
    done = sending.send()
    assert (done.sent, done.rejected, done.tries) == (3, 1, 0)
    partial.partial_success.rejected_spans = -1  # no number of spans
    sending.run(guide())
    sending.receiver.answers.append(lambda _: (200, {}, partial.SerializeToString()))
    assert (sending.send().sent, len(sending.told)) == (4, 1)
    assert sending.told == ["The receiver of traces did not take 1 of 4 spans: too old."]


@pytest.mark.parametrize(
    ("piece", "told", "sent"), [(b"x" * 65536, [], 4), (b"x", ["does not take them: no whole answer in 0.1 s"], 0)]
)
def test_an_answer_that_never_ends_neither_fills_the_memory_nor_is_waited_for(
    tmp_path: Path, piece: bytes, told: list[str], sent: int
) -> None:
    pieces = 0

    async def answer(client: SocketStream) -> None:
        nonlocal pieces
        async with client:
            await client.receive()
            await client.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n")
            with suppress(anyio.BrokenResourceError):
                while True:
                    await client.send(piece)
                    pieces += 1
                    await anyio.lowlevel.checkpoint()

    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, gesta.open(tmp_path / "a.gesta") as record, anyio.create_task_group() as tasks:
            await record.run(guide(), "Do I need a coat?")
            tasks.start_soon(listener.serve, answer)
            port = listener.extra(SocketAttribute.local_port)
            given = settings(f"http://127.0.0.1:{port}", environment={"OTEL_EXPORTER_OTLP_TIMEOUT": "100"})
            heard = anyio.Event()
            said: list[str] = []

            def tell(words: str) -> None:
                said.append(words)
                heard.set()

            assert given is not None
            exporter = Exporter(record.store, given, tmp_path / "place.json", told=tell)
            tasks.start_soon(exporter.follow)
            if told:
                await heard.wait()
            else:
                assert await exporter.drain(60)
            assert exporter.counts.sent == sent
            assert all(word in each for word, each in zip(told, said, strict=True))
            tasks.cancel_scope.cancel()

    anyio.run(main)
    assert pieces * len(piece) < 200 * 65536


def test_a_receiver_that_refuses_who_asks_is_an_error_once_and_keeps_the_place(sending: Sending) -> None:
    sending.run(guide())
    sending.receiver.answers.append(lambda _: (401, {"content-type": "text/plain"}, b"no key"))
    told = r"^http://127.0.0.1:\d+/v1/traces does not take traces: status 401 Unauthorized: no key\. Check address"
    with pytest.raises(TracingError, match=told):
        sending.send()
    assert sending.send().sent == 4


def test_a_receiver_that_is_away_ends_a_single_pass_after_some_tries(tmp_path: Path) -> None:
    with receiving() as receiver:
        pass
    away = Sending(tmp_path, receiver)
    away.run(guide())
    with pytest.raises(
        TracingError, match=r"did not take them: ConnectError: .* Nothing is lost: send them again later"
    ):
        away.send()
    assert len(away.told) == 1


def test_headers_reach_the_receiver_and_nothing_else(sending: Sending, caplog: pytest.LogCaptureFixture) -> None:
    secret = "sk-lf-0123456789abcdef"
    sending.run(guide())
    sending.receiver.answers.append(lambda _: (403, {"content-type": "text/plain"}, f"bad key {secret}".encode()))
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{secret},X-Scope=shop"}
    with pytest.raises(TracingError) as refused:
        sending.send(environment=headers)
    assert secret not in str(refused.value)
    sending.send(environment=headers)
    assert sending.receiver.headers[-1]["authorization"] == f"Bearer {secret}"
    assert sending.receiver.headers[-1]["x-scope"] == "shop"
    assert secret not in sending.place.read_text() + caplog.text + "".join(sending.told)
    assert secret.encode() not in sending.path.read_bytes()


def test_a_secret_of_this_process_in_an_older_record_is_not_sent(sending: Sending) -> None:
    sending.run(guide("The word is swordfish-42."))
    gesta.secret("word", "swordfish-42")
    sending.send(content=True)
    texts = "".join(str(span) for span in sending.receiver.spans.values())
    assert "swordfish" not in texts
    assert "<secret word>" in texts


HOSTILE = ["\ud800 half", "\x00\x1b[2J", "a" * 300_000, "}{\"'", "\u202e right", "", "é" * 70_000]


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_sent_bounded_and_whole_messages_stay_valid(sending: Sending, text: str) -> None:
    agent = guide(
        gesta.reply(text, calls=[gesta.call("weather", city=text), gesta.call(text or "none", x=text)]), text or "!"
    )
    sending.run(agent, session=f"s{text[:50]}")
    assert sending.send(content=True).rejected == 0
    assert len(sending.receiver.spans) == 5
    for span in sending.receiver.spans.values():
        assert len(span.name) < 200
        assert span.name.isprintable()
        for name, value in attributes(span).items():
            assert len(value) < 100_000 if isinstance(value, str) else True, name
            if name.startswith(("gen_ai.input.messages", "gen_ai.output.messages")):
                assert json.loads(value)


def test_a_restored_backup_that_went_another_way_is_sent_anew(sending: Sending, tmp_path: Path) -> None:
    sending.run(guide())
    backup = tmp_path / "backup.gesta"
    with gesta.open_sync(sending.path):
        pass
    shutil.copy(sending.path, backup)
    sending.run(guide())
    assert sending.send().sent == 8
    shutil.copy(backup, sending.path)
    sending.run(guide(), guide(), guide())
    assert sending.send().sent == 16
    assert "as after a restored backup" in sending.told[0]
    assert len(sending.receiver.spans) == 20


def test_a_pruned_record_goes_on_at_its_place(sending: Sending) -> None:
    first = sending.run(guide())[0]
    sending.send()
    done = gesta_command("prune", first.run, "--yes", "--record", str(sending.path))
    assert done.exit_code == 0, done.output
    sending.run(guide())
    assert sending.send().sent in (4, 5)  # the tombstone is a span of its own, or no span
    assert set(sending.receiver.times.values()) == {1}
    assert not sending.told


@pytest.mark.slow
def test_a_sampled_run_is_whole_with_the_runs_below_it_or_absent(sending: Sending) -> None:
    for number in range(30):
        below = guide()
        asks = gesta.call("guide", task="Coat?")
        sending.run(
            gesta.Agent("desk", model=gesta.scripted(asks, "No."), tools=[below.as_tool()]), session=f"s{number}"
        )
    done = sending.send(sample=0.5)
    assert done.sent + done.left_out == 30 * 8
    assert 0 < done.sent < 30 * 8
    by_trace: dict[bytes, int] = {}
    for span in sending.receiver.spans.values():
        by_trace[span.trace_id] = by_trace.get(span.trace_id, 0) + 1
    assert set(by_trace.values()) == {8}


@pytest.mark.parametrize(
    ("sampler", "sent"),
    [("", 0), ("parentbased_always_on", 0), ("always_on", 4), ("traceidratio", 4), ("always_off", 0)],
)
def test_the_callers_choice_is_heeded_as_the_sampler_says(sending: Sending, sampler: str, sent: int) -> None:
    sending.run(guide(), traceparent=str(TraceContext(CALLER.trace, CALLER.span, sampled=False)))
    assert sending.send(environment={"OTEL_TRACES_SAMPLER": sampler}).sent == sent


def test_metrics_count_each_span_once_however_often_it_is_sent(sending: Sending) -> None:
    sending.run(guide())
    sending.send()
    sending.receiver.points.clear()
    sending.run(guide(), guide())

    def taken_and_lost(request: Any) -> None:
        sending.receiver.take(request)

    sending.receiver.answers += [taken_and_lost]
    sending.send()
    points = {
        (metric, dict(labels)["gen_ai.operation.name"], dict(labels).get("gen_ai.token.type")): point
        for (metric, labels), point in sending.receiver.points.items()
        if dict(labels).get("gen_ai.response.model", "scripted") == "scripted"
    }
    assert points["gen_ai.client.operation.duration", "chat", None].count == 6
    assert points["gen_ai.client.operation.duration", "execute_tool", None].count == 3
    assert points["gen_ai.client.operation.duration", "invoke_agent", None].count == 3
    used = points["gen_ai.client.token.usage", "chat", "input"]
    assert (used.count, used.sum, sum(used.bucket_counts)) == (3, 120.0, 3)
    assert len(used.bucket_counts) == len(used.explicit_bounds) + 1


def test_what_a_turn_cost_under_a_budget_is_on_its_span(sending: Sending) -> None:
    budget = gesta.Budget(usd=1000.0, tokens=10_000_000)
    agent = msgspec.structs.replace(guide(), price=Cents(), policy=gesta.Policy(budget=budget))
    sending.run(agent)
    sending.send()
    (turn,) = sending.receiver.named("invoke_agent guide")
    chats = sending.receiver.named("chat scripted")
    costs = [attributes(each).get("gesta.cost_usd") for each in chats]
    assert costs[0] == pytest.approx(0.09)
    assert attributes(turn)["gesta.cost_usd"] == pytest.approx(0.09)


def test_a_receiver_without_metrics_gets_the_spans(sending: Sending) -> None:
    sending.receiver.metrics_status = 405
    sending.run(guide())
    assert sending.send().sent == 4
    assert not sending.told


def test_json_and_gzip_carry_the_same_spans(sending: Sending) -> None:
    sending.run(guide())
    variables = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_METRICS_EXPORTER": "none"}
    sending.send(content=True, environment=variables)
    sending.place.unlink()
    sending.send(content=True, environment={"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"})
    assert set(sending.receiver.times.values()) == {2}
    assert not sending.receiver.unequal
    assert sending.receiver.headers[0]["content-type"] == "application/json"
    assert sending.receiver.headers[-1]["content-encoding"] == "gzip"


FORKED = """
import gesta

@gesta.tool(effect="pure")
def weather(city: str) -> str:
    "Today's weather in a city."
    return "rain"

agent = gesta.Agent("guide", model=gesta.function(lambda *_: "Take a coat."), tools=[weather], instructions="Be short.")
"""


def test_a_fork_has_a_trace_of_its_own_with_a_link_to_its_base(sending: Sending, tmp_path: Path) -> None:
    (base,) = sending.run(guide(), traceparent=str(CALLER))
    (tmp_path / "forked.py").write_text(FORKED)
    words = ["fork", base.run, f"{tmp_path / 'forked.py'}:agent", "--at", "8", "--record", str(sending.path)]
    done = gesta_command(*words)
    assert done.exit_code == 0, done.output
    sending.send()
    old, new = sending.receiver.named("invoke_agent guide")
    assert (old.trace_id.hex(), old.parent_span_id.hex()) == (CALLER.trace, CALLER.span)
    assert (new.trace_id != old.trace_id, new.parent_span_id) == (True, b"")
    assert [(each.trace_id, each.span_id) for each in new.links] == [(old.trace_id, old.span_id)]
    assert [each.name for each in sending.receiver.under(new)] == ["chat function"]


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc', expected one of: http/protobuf",
        ),
        ({"OTEL_TRACES_SAMPLER": "some"}, "OTEL_TRACES_SAMPLER is 'some', expected one of: always_on"),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "half"},
            "OTEL_TRACES_SAMPLER_ARG is 'half', expected a number from 0 to 1",
        ),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "7"},
            "The share of runs is 7.0, expected a number from 0 to 1",
        ),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "OTEL_EXPORTER_OTLP_TIMEOUT is 'soon', expected milliseconds"),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "soon"}, "OTEL_METRIC_EXPORT_INTERVAL is 'soon', expected milliseconds"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a"}, "OTEL_EXPORTER_OTLP_HEADERS holds a part that is not NAME=VALUE"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"}, "'localhost:4318' is not an address to send to"),
    ],
)
def test_a_wrong_setting_says_what_was_expected(variables: dict[str, str], told: str) -> None:
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"} | variables
    with pytest.raises(TracingError, match=re.escape(told)):
        settings(environment=given)


def test_the_variables_of_opentelemetry_are_read() -> None:
    assert settings(environment={}) is None
    base = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318/otel/"}
    assert settings(environment=base | {"OTEL_SDK_DISABLED": "true"}) is None
    made = settings(
        environment=base
        | {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m:9/here",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_METRIC_EXPORT_INTERVAL": "1500",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=a,team=desk%20one",
            "OTEL_SERVICE_NAME": "shop",
        }
    )
    assert made is not None
    assert (made.traces, made.metrics) == ("http://h:4318/otel/v1/traces", "http://m:9/here")
    assert (made.content, made.timeout_s, made.every_s) == (True, 2.5, 1.5)
    assert made.resource == {"service.name": "shop", "team": "desk one"}
    quiet = settings(environment=base | {"OTEL_TRACES_EXPORTER": "none"})
    assert quiet is not None
    assert (quiet.traces, quiet.metrics) == ("", "http://h:4318/otel/v1/metrics")
    own = settings("http://h:1/v1/traces", environment={})
    assert own is not None
    assert (own.traces, own.metrics) == ("http://h:1/v1/traces", "http://h:1/v1/metrics")


def test_the_resource_names_the_service(sending: Sending) -> None:
    sending.run(guide())
    sending.send(environment={"OTEL_SERVICE_NAME": "shop"})
    assert sending.receiver.resources[0]["service.name"] == "shop"


def test_a_place_that_cannot_be_read_or_written_says_so(sending: Sending, tmp_path: Path) -> None:
    sending.run(guide())
    sending.place.write_text("[]")
    with pytest.raises(TracingError, match=r"The place of the exporter cannot be read from .* Remove that file"):
        sending.send()
    sending.place = tmp_path / "a.gesta" / "place.json"
    with pytest.raises(TracingError, match=r"cannot be"):
        sending.send()


def test_a_second_exporter_to_the_same_address_is_refused_and_to_another_sends_all(sending: Sending) -> None:
    sending.run(guide())

    async def main() -> None:
        async with (
            gesta.open(sending.path) as record,
            gesta.open(sending.path) as other,
            tracing(record, sending.receiver.address, place=sending.place),
        ):
            await anyio.to_thread.run_sync(sending.receiver.wait, 4)
            again = Exporter(other.store, found(sending.receiver), sending.place.with_name("b"))
            with pytest.raises(TracingError, match=r"Another exporter sends this record to http://127"):
                await again.once()
            with receiving() as elsewhere:
                done = await Exporter(other.store, found(elsewhere), sending.place.with_name("c")).once()
                assert (done.sent, len(elsewhere.spans)) == (4, 4)

    anyio.run(main)


def test_an_export_is_the_same_spans_as_json_lines(sending: Sending, tmp_path: Path) -> None:
    below = guide()
    desk = gesta.Agent("desk", model=gesta.scripted(gesta.call("guide", task="Coat?"), "No."), tools=[below.as_tool()])
    (outcome,) = sending.run(desk)
    sending.run(guide())
    path = tmp_path / "run.jsonl"
    words = ["export", outcome.run, "--format", "otlp", "--content", "-o", str(path), "--record", str(sending.path)]
    assert gesta_command(*words).exit_code == 0
    told = [from_json(json.loads(line)) for line in path.read_text().splitlines()]
    spans = {span.span_id: span for request in told for span in spans_in(request)}
    sending.send(content=True)
    assert len(spans) == 8
    sent = {id_: span for id_, span in sending.receiver.spans.items() if id_ in spans}
    assert sent == spans
