"""Traces across programs, and that each span of a record reaches a receiver once, whatever is killed or away."""

import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
from benchmarks import tracing as benchmark
from tests import programs
from tests.commands import gesta_command
from tests.otlp_receiver import Receiver, receiving
from tests.postgres import running
from tests.serving import post, served

import gesta
from gesta.bridges.otlp.following import Exporter
from gesta.bridges.otlp.settings import settings
from gesta.bridges.tracing import tracing
from gesta.entry import Row, run_id
from gesta.errors import AgentError, WriteFailed
from gesta.kinds import Kind, UserContent
from gesta.store import Store
from gesta.text.tracing import TraceContext, span_id, trace_id

FULL = os.environ.get("GESTA_TESTS") == "full"
full = pytest.mark.skipif(not FULL, reason="GESTA_TESTS=full kills it on PostgreSQL, too")
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


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: 21 degrees, dry"


def guide() -> gesta.Agent[Any]:
    asks = gesta.call("weather", city="Rome")
    return gesta.Agent("guide", model=gesta.scripted(asks, "Rome is dry."), tools=[weather])


SPANS = 4
"""Spans of a turn of the guide."""


def exporter(record: gesta.Record, receiver: Receiver, folder: Path, told: list[str] | None = None) -> Exporter:
    given = settings(receiver.address, environment={})
    assert given is not None
    quick = msgspec.structs.replace(given, wait_s=0.001)
    words: list[str] = [] if told is None else told
    return Exporter(record.store, quick, folder / "place.json", told=words.append)


@pytest.mark.slow
def test_a_hundred_runs_reach_a_receiver_that_is_away_for_the_middle_third(tmp_path: Path) -> None:
    receiver, told = Receiver(), list[str]()

    async def main() -> None:
        async with gesta.open(tmp_path / "a.gesta", durability="normal") as record, anyio.create_task_group() as tasks:
            with receiving(into=receiver):
                port = int(receiver.address.rpartition(":")[2])
                sends = exporter(record, receiver, tmp_path, told)
                tasks.start_soon(sends.follow)
                for _ in range(33):
                    await record.run(guide(), "A coat?")
                await anyio.to_thread.run_sync(receiver.wait, 33 * SPANS)
            for _ in range(33):
                await record.run(guide(), "A coat?")
            with receiving(port, receiver):
                for _ in range(34):
                    await record.run(guide(), "A coat?")
                await anyio.to_thread.run_sync(receiver.wait, 100 * SPANS)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    assert len(receiver.spans) == 100 * SPANS
    assert not receiver.unequal
    assert told[-1] == "Traces are taken again."


def test_what_a_program_did_is_sent_before_its_block_ends(tmp_path: Path) -> None:
    async def main(address: str) -> None:
        async with gesta.open(tmp_path / "a.gesta") as record, tracing(record, address, place=tmp_path / "place"):
            await record.run(guide(), "A coat?")

    with receiving() as receiver:
        anyio.run(main, receiver.address)
    assert set(receiver.times.values()) == {1}
    assert len(receiver.spans) == SPANS


def test_a_program_whose_receiver_is_away_ends_and_its_spans_come_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(address: str) -> None:
        async with gesta.open(tmp_path / "a.gesta") as record, tracing(record, address, place=tmp_path / "place.json"):
            outcome = await record.run(guide(), "A coat?")
            assert outcome.answer == "Rome is dry."

    with receiving() as receiver:
        pass
    anyio.run(main, receiver.address)
    assert "Traces wait: http://127.0.0.1:" in caplog.text
    assert "Not all traces were taken." in caplog.text
    with receiving(int(receiver.address.rpartition(":")[2]), receiver):
        anyio.run(main, receiver.address)
    assert len(receiver.spans) == 2 * SPANS
    assert set(receiver.times.values()) == {1}


@pytest.mark.slow
def test_an_exporter_that_is_cancelled_anywhere_goes_on_where_it_was(tmp_path: Path) -> None:
    dice = random.Random(7)

    async def main(receiver: Receiver) -> None:
        async with gesta.open(tmp_path / "a.gesta", durability="normal") as record:
            for _ in range(10):
                await record.run(guide(), "A coat?")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(exporter(record, receiver, tmp_path).follow)
                    for _ in range(dice.randrange(60)):
                        await anyio.lowlevel.checkpoint()
                    tasks.cancel_scope.cancel()
            await exporter(record, receiver, tmp_path).once()

    with receiving() as receiver:
        anyio.run(main, receiver)
    assert len(receiver.spans) == 10 * SPANS
    assert not receiver.unequal


class Flaky:
    """A store whose reading breaks off once."""

    def __init__(self, store: Store) -> None:
        self._store, self.left = store, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        async with aclosing(self._store.tail(after)) as rows:
            async for page in rows:
                if self.left:
                    self.left -= 1
                    yield page[:5]
                    raise WriteFailed("a.gesta", "the server went away")
                yield page


def test_an_exporter_goes_on_after_a_server_that_restarts(tmp_path: Path) -> None:
    told = list[str]()

    async def main(receiver: Receiver) -> None:
        async with gesta.open(tmp_path / "a.gesta") as record, anyio.create_task_group() as tasks:
            for _ in range(3):
                await record.run(guide(), "A coat?")
            sends = exporter(record, receiver, tmp_path, told)
            sends._store = Flaky(record.store)
            tasks.start_soon(sends.follow)
            await anyio.to_thread.run_sync(receiver.wait, 3 * SPANS)
            tasks.cancel_scope.cancel()

    with receiving() as receiver:
        anyio.run(main, receiver)
    assert told[0].startswith("Traces wait: the record cannot be read:")
    assert len(receiver.spans) == 3 * SPANS
    assert not receiver.unequal


def test_a_worker_sends_its_turns_if_a_variable_names_a_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "desk.py").write_text("import gesta\nagent = gesta.Agent('desk', model=gesta.scripted('Hello.'))\n")
    path = str(tmp_path / "a.gesta")
    gesta.run_sync(gesta.Agent("desk", model=gesta.scripted("Hello.")), "Hi", record=path)
    monkeypatch.setenv("GESTA_STATE", str(tmp_path / "state"))
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
        done = gesta_command("work", f"{tmp_path / 'desk.py'}:agent", "--once", "--record", path)
        assert done.exit_code == 0, done.output
        assert len(receiver.named("invoke_agent desk")) == 1
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        done = gesta_command("work", f"{tmp_path / 'desk.py'}:agent", "--once", "--record", path)
        assert done.exit_code == 0
        assert "No traces are sent. OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'" in done.stderr
    assert [each.parent.name for each in (tmp_path / "state").rglob("*.json")] == ["traces"]


SERVED = """
import gesta

@gesta.tool(effect="pure")
def weather(city: str) -> str:
    "Today's weather in a city."
    return f"{city}: dry"

agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("weather", city="Rome"), "Dry."), tools=[weather])
"""


@pytest.mark.slow
def test_a_served_turn_hangs_under_the_request_that_asked_and_is_sent_as_it_ends(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(SERVED)
    words = [sys.executable, "-c", benchmark.MAIN, "serve", "desk.py:agent", "--port", "0", "--json"]
    with receiving() as receiver:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.address, "GESTA_STATE": str(tmp_path / "state")}
        process = subprocess.Popen(words, cwd=tmp_path, env=os.environ | variables, stdout=subprocess.PIPE)
        with process:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            post(address, "/sessions/s/messages", {"message": "A coat?"}, traceparent=str(CALLER))
            receiver.wait(SPANS)
            process.terminate()
            assert process.wait() == 0
    (turn,) = receiver.named("invoke_agent desk")
    assert (turn.trace_id.hex(), turn.parent_span_id.hex()) == (CALLER.trace, CALLER.span)
    assert set(receiver.times.values()) == {1}


def test_the_command_sends_what_is_on_record_and_says_how_much(tmp_path: Path) -> None:
    path, place = str(tmp_path / "a.gesta"), str(tmp_path / "place.json")
    gesta.run_sync(guide(), "A coat?", record=path)
    with receiving() as receiver:
        words = ["trace", path, "--to", receiver.address, "--once", "--place", place]
        assert gesta_command(*words, "--content").stdout == "4 spans sent\n"
        assert "coat" in str(receiver.named("invoke_agent guide"))
        gesta.run_sync(guide(), "A coat?", record=path)
        assert gesta_command(*words, "--sample", "0").stdout == "0 spans sent, 4 not in the sample\n"
        gesta.run_sync(guide(), "A coat?", record=path)
        done = gesta_command(*words, "--json", "--no-content")
        assert json.loads(done.stdout) == {"sent": 4, "rejected": 0, "left_out": 0}


def test_without_the_extra_the_install_line_is_named(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['opentelemetry.proto'] = None\n"
    code = f"{hidden}from gesta.cli import main; main()"
    gesta.run_sync(guide(), "A coat?", record=tmp_path / "a.gesta")
    done = programs.run(["-c", code, "trace", "a.gesta", "--to", "http://127.0.0.1:9"], cwd=tmp_path)
    assert done.returncode == 1
    told = "error: Sending traces needs 'opentelemetry-proto', which is not installed: pip install 'gesta[otel]'\n"
    assert done.stderr == told
    done = programs.run(["-c", code, "export", "--all", "--format", "otlp", "--record", "a.gesta"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"name":"invoke_agent guide"' in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("place", ["SQLite", pytest.param("PostgreSQL", marks=full)])
def test_every_span_is_there_once_though_the_exporter_is_killed(place: str, tmp_path: Path) -> None:
    size = benchmark.FULL if FULL else benchmark.Size(6, 1)
    with ExitStack() as stack:
        address = str(tmp_path / "a.gesta")
        if place == "PostgreSQL":
            address = stack.enter_context(running()).address("traces")
        result = benchmark.play(address, size, tmp_path)
    assert not benchmark.failed(result, size), benchmark.told(result, size)
