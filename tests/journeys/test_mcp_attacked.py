"""Agents with a server of MCP whose own process is cancelled, killed or cannot write: no effect twice, doubts named."""

import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.conftest import FULL
from tests.mcp_shop import SERVER, either, http_shop, lines, shop

import gesta
from gesta.address import bind
from gesta.errors import WriteFailed
from gesta.kinds import AttemptContent, FaultContent, ToolResultContent
from gesta.record.record import Record
from gesta.store import Batch
from gesta.stores.memory import MemoryStore

pytestmark = pytest.mark.sample(2, over="parent")

TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])
CALLS = [("pay", "a"), ("put", "b"), ("look", "c")]


def buyer(source: Any, number: object = "") -> gesta.Agent:
    calls = [gesta.call(tool, item=f"{item}{number}") for tool, item in CALLS]
    return gesta.Agent("buyer", model=gesta.scripted(*calls, "Done."), tools=[source])


async def settled(record: Record, agent: gesta.Agent, session: str, folder: Path) -> Counter[str]:
    """Resume a turn until it is answered, as a person who looks what happened, and return how often it said retry."""
    retries = Counter[str]()
    outcome = await record.resume(session, agent)
    while outcome.reason == "waiting":
        (waiting,) = outcome.waiting
        if waiting.what == "running":  # what was cancelled has not ended yet
            await anyio.lowlevel.checkpoint()
            outcome = await record.resume(session, agent)
            continue
        assert (waiting.what, waiting.tool) == ("doubt", "pay")
        assert waiting.args is not None
        paid = f"pay {waiting.args['item']}"
        happened = paid in lines(folder, "effects")
        retries[paid] += not happened
        await record.resolve(waiting, "done" if happened else "retry", by="Ada", result="paid")
        outcome = await record.resume(session, agent)
    assert outcome.answer == "Done.", outcome
    return retries


def check(folder: Path, retries: Counter[str], number: object) -> None:
    """Check that each effect happened, and none more often than a person said."""
    effects = Counter(lines(folder, "effects"))
    for tool, item in CALLS[:2]:
        did = f"{tool} {item}{number}"
        assert 1 <= effects[did] <= 1 + retries[did], (did, effects, retries)


@TRANSPORTS
async def test_a_turn_cancelled_at_any_instant_of_a_call_repeats_no_effect(transport: str, tmp_path: Path) -> None:
    chance, cancelled = random.Random(transport), 0
    with either(transport, tmp_path) as source:
        for grace_s in (0, 5) if FULL else (0,):
            async with gesta.open(tmp_path / f"r{grace_s}.gesta", durability="normal", grace_s=grace_s) as record:
                await record.run(buyer(source, f"-{grace_s}"), "Buy.", session="first")
                for number in range(100 if FULL else 4):
                    agent, session = buyer(source, f"{grace_s}-{number}"), f"s{number}"
                    cancelled += await cancelled_in(record, agent, session, chance.choice([5, 40, 150]), chance)
                    check(tmp_path, await settled(record, agent, session, tmp_path), f"{grace_s}-{number}")
                assert await record.verify() == []
    assert cancelled
    assert transport == "http" or not any(map(living, lines(tmp_path, "starts")))


async def cancelled_in(record: Record, agent: gesta.Agent, session: str, most: int, chance: random.Random) -> bool:
    """Run an agent, and cancel it some passes of the event loop after a call was told."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def wait(passes: int) -> None:
                for _ in range(passes):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

            def hear(event: gesta.Event) -> None:
                if event.type == "call":
                    group.start_soon(wait, chance.randrange(most))

            await record.run(agent, "Buy.", session=session, listener=hear)
            group.cancel_scope.cancel()
    return scope.cancelled_caught


def living(pid: str) -> bool:
    try:
        return (Path("/proc") / pid / "stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class FailsOnce(MemoryStore):
    """Fails one write, which was done or not."""

    def __init__(self, number: int, *, done: bool) -> None:
        super().__init__()
        self.left, self.done = number, done

    async def append(self, batch: Batch) -> int:
        self.left -= 1
        if self.left:
            return await super().append(batch)
        if self.done:
            await super().append(batch)
        raise WriteFailed(":memory:", "the disk is full")


@pytest.mark.slow
@pytest.mark.parametrize("done", [True, False] if FULL else [True])
async def test_a_write_that_fails_once_in_the_middle_of_calls_repeats_no_effect(done: bool, tmp_path: Path) -> None:
    with http_shop(tmp_path) as url:
        number, failed = 0, True
        while failed:  # until the turn has fewer writes than that
            number += 1 if FULL else 4
            failed = False
            agent = buyer(gesta.mcp(url), number)
            record = Record(FailsOnce(number, done=done), bind)
            try:
                await record.run(agent, "Buy.", session="s", key="k")
            except WriteFailed:
                failed = True
                await record.run(agent, "Buy.", session="s", key="k")
            check(tmp_path, await settled(record, agent, "s", tmp_path), number)
    assert number > 8


PROGRAM = """
import sys
import gesta

source = gesta.mcp({server!r}, timeouts={{"pay": 60}})
agent = gesta.Agent("buyer", model=gesta.scripted(gesta.call("pay", item="soup"), "Done."), tools=[source])
gesta.run_sync(agent, "Buy.", record="r.gesta", session="s")
"""


@contextmanager
def held(folder: Path, server: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program whose call is at work at the server, which waits for somebody to read and to write."""
    for pipe in ("begun", "go"):
        os.mkfifo(folder / pipe)
    (folder / "agent.py").write_text(PROGRAM.format(server=server))
    with subprocess.Popen([sys.executable, "agent.py"], cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


KILLS = [("stdio", "after"), ("http", "before"), ("stdio", "before"), ("http", "after")]


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "when"), KILLS if FULL else KILLS[:1])
async def test_a_process_killed_in_the_middle_of_a_call_leaves_a_doubt_and_no_server(
    transport: str, when: str, tmp_path: Path
) -> None:
    (tmp_path / f"hold-{when}").touch()
    with place(transport, tmp_path) as server:
        with held(tmp_path, server) as process:
            await anyio.to_thread.run_sync((tmp_path / "begun").read_text)
            begun = os.pidfd_open(int(lines(tmp_path, "starts")[-1]))
            process.send_signal(signal.SIGKILL)
            process.wait()
        if transport == "stdio":
            assert select.select([begun], [], [], 10)[0], "the server has ended with the process that began it"
        else:
            await anyio.to_thread.run_sync(let_go, tmp_path / "go")
        os.close(begun)
        agent = gesta.Agent(
            "buyer", model=gesta.scripted(gesta.call("pay", item="soup"), "Done."), tools=[gesta.mcp(server)]
        )
        async with gesta.open(tmp_path / "r.gesta") as record:
            retries = await settled(record, agent, "s", tmp_path)
            entries = await record.read((await record.find("s")).run)
    assert Counter(lines(tmp_path, "effects"))["pay soup"] <= 1 + retries["pay soup"]
    attempts = [each.content for each in entries if isinstance(each.content, AttemptContent)]
    assert len({each.key for each in attempts}) == 1


@contextmanager
def place(transport: str, folder: Path) -> Iterator[Any]:
    """Yield the command or the URL of the server."""
    if transport == "stdio":
        yield [sys.executable, "-S", str(SERVER), str(folder)]
    else:
        with http_shop(folder) as url:
            yield url


def let_go(pipe: Path) -> None:
    """Release a server that waits; it may have ended."""
    with suppress(OSError):
        os.write(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), b"go")


async def test_a_call_that_was_cancelled_is_over_although_its_connection_lives(tmp_path: Path) -> None:
    for pipe in ("begun", "go"):
        os.mkfifo(tmp_path / pipe)
    (tmp_path / "hold-before").touch()
    with http_shop(tmp_path) as url:
        agent = gesta.Agent("buyer", model=gesta.scripted(gesta.call("pay", item="a"), "Done."), tools=[gesta.mcp(url)])
        async with gesta.open(grace_s=0) as record:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def cancel() -> None:
                        await anyio.to_thread.run_sync((tmp_path / "begun").read_text)
                        scope.cancel()

                    group.start_soon(cancel)
                    await record.run(agent, "Buy.", session="s")
            let_go(tmp_path / "go")
            outcome = await record.resume("s", agent)
            assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "pay")]
            await record.resolve(outcome.waiting[0], "retry", by="Ada")
            assert (await record.resume("s", agent)).answer == "Done."


async def test_sampling_spends_the_budget_of_the_turn_and_ends_with_it(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 500}
    asked = list[str]()

    def choose(messages: list[Any], header: Any) -> Any:
        if not header.tools:
            asked.append(messages[-1]["content"])
            return gesta.reply("O soup!", usage=usage)
        done = sum(each["role"] == "tool" for each in messages)
        return gesta.reply(calls=[gesta.call("compose", item=f"soup {done}")], usage=usage)

    agent = gesta.Agent(
        "poet",
        model=gesta.function(choose),
        tools=[shop(tmp_path, sampling=True)],
        policy=gesta.Policy(budget=gesta.Budget(tokens=4000, request_tokens=500)),
    )
    async with gesta.open() as record:
        outcome = await record.run(agent, "Write.", session="s")
    assert outcome.reason == "budget"
    assert outcome.spent is not None
    assert outcome.spent.tokens == 501 * (outcome.requests + len(asked)) <= 4000
    assert len(asked) == outcome.requests > 0, "the replies of both are in it"


async def test_two_agents_use_one_server_at_once(tmp_path: Path) -> None:
    async with gesta.open() as record:
        outcomes = dict[int, Any]()

        async def run(number: int) -> None:
            agent = buyer(shop(tmp_path), number)
            outcomes[number] = await record.run(agent, "Buy.", session=f"s{number}")

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(run, number)
    assert [each.answer for each in outcomes.values()] == ["Done."] * 8
    wanted = {f"{tool} {item}{number}": 1 for tool, item in CALLS for number in range(8)}
    assert Counter(lines(tmp_path, "effects")) == wanted
    assert len(lines(tmp_path, "starts")) == 1


async def test_two_agents_that_are_asked_at_once_are_asked_one_by_one(tmp_path: Path) -> None:
    for one in ("one", "other"):  # neither of the first two calls goes on before both have asked, and were answered
        (tmp_path / f"meet-{one}").touch()
    items = ("soup", "salt", "bread")
    async with gesta.open() as record:
        calls = [gesta.call("safe_choose", item=item) for item in items]
        agent = gesta.Agent("buyer", model=gesta.scripted(*calls, "Done."), tools=[shop(tmp_path)])

        async def run(session: str) -> None:
            await record.run(agent, "Buy.", session=session)

        async with anyio.create_task_group() as group:
            group.start_soon(run, "s")
            group.start_soon(run, "t")
        for session in ("s", "t"):
            outcome = await record.resume(session, agent)
            while outcome.reason == "waiting":
                assert outcome.waiting[0].what == "question"
                await record.answer(outcome.waiting[0], {"size": session}, by="Ada")
                outcome = await record.resume(session, agent)
            assert outcome.answer == "Done."
            entries = await record.read(outcome.run)
            refused, *done = [each.content for each in entries if isinstance(each.content, ToolResultContent)]
            assert refused.outcome == "error"
            assert "nobody knows which of them asks" in str(refused.tool_result)
            assert [each.tool_result for each in done] == [f"safe_choose: {item} {session}" for item in items[1:]]


@pytest.mark.parametrize("ended", ["closed", "expired"])
async def test_a_held_call_that_nobody_answers_in_time_is_cancelled_and_in_doubt(ended: str, tmp_path: Path) -> None:
    agent = gesta.Agent(
        "buyer",
        model=gesta.scripted(gesta.call("choose", item="soup"), "Done."),
        tools=[shop(tmp_path, hold_s=3600 if ended == "closed" else 1e-6)],
    )

    async with gesta.open(tmp_path / "r.gesta") as record:
        outcome = await record.run(agent, "Buy.", session="s")
        if ended == "expired":
            await record.answer(outcome.waiting[0], {"size": "large"}, by="Ada")
            outcome = await record.resume("s", agent)
    assert "notifications/cancelled" in lines(tmp_path, "requests")
    assert not any(map(living, lines(tmp_path, "starts")))
    async with gesta.open(tmp_path / "r.gesta") as record:
        if ended == "closed":
            await record.answer(outcome.waiting[0], {"size": "large"}, by="Ada")
            outcome = await record.resume("s", agent)
        assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "choose")]
        entries = await record.read(outcome.run)
        faults = [each.content.error.message for each in entries if isinstance(each.content, FaultContent)]
        assert any("the process, the server or the time for it ended" in each for each in faults)
        assert lines(tmp_path, "effects") == []
        await record.resolve(outcome.waiting[0], "retry", by="Ada")
        outcome = await record.resume("s", agent)
        assert (outcome.answer, lines(tmp_path, "effects")) == ("Done.", ["choose soup large"])
