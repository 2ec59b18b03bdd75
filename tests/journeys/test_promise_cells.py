"""What each fault does to a call of each effect: cells of the tables of docs/promise.md.

A till counts what was begun, whatever its keys. The tool of effect `agent` is an agent as a tool, whose own tool is
`once`: it counts what that one begins.
"""

import asyncio
import hashlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests import programs
from tests.ribs.test_backup import approve
from tests.threads import Held

import gesta
from gesta.address import Record, bind, drive, inline_store
from gesta.compare.forks import Fork, fork, go_on
from gesta.errors import RunHeld, WriteFailed
from gesta.function_tool.context import NeedsAnswer, ToolQuestion
from gesta.kinds import AttemptContent, ResolutionContent, SignalContent, ToolResultContent
from gesta.perform import threads as outlive
from gesta.store import Batch, TransactionalEffect
from gesta.stores.memory import MemoryStore
from gesta.stores.sqlite_backup import backup
from gesta.tools.person import ask_person
from gesta.workflow.verbs import Verbs

pytestmark = pytest.mark.sample(2, over="parent")

EFFECTS = ("pure", "idempotent", "once", "transactional", "agent")
FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
Hit = Callable[[], Awaitable[None]]
every_effect = pytest.mark.parametrize("effect", EFFECTS)
TABLE = "CREATE TABLE IF NOT EXISTS paid(key TEXT)"


class Till:
    """Counts what tools begin; the first time, a fault strikes."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        """Idempotency keys, one for each effect that was begun."""
        self.context: gesta.Context | None = None
        """Of the last of them, where the tool is a coroutine."""
        self.strike: Hit | None = None
        """The fault, of a tool that is a coroutine."""
        self.strike_sync: Callable[[gesta.Context], Any] | None = None
        """The same, of one that is not."""

    async def pay(self, context: gesta.Context) -> str:
        """Pay."""
        self.keys.append(context.key)
        self.context = context
        if self.strike is not None and len(self.keys) == 1:
            await self.strike()
        return "paid"

    def book(self, context: gesta.Context) -> int:
        """Book a payment; return how many are on record."""
        self.keys.append(context.key)
        context.sql(TABLE)
        context.sql("INSERT INTO paid VALUES(?)", (context.key,))
        if self.strike_sync is not None and len(self.keys) == 1:
            self.strike_sync(context)
        return int(context.sql("SELECT count(*) FROM paid")[0][0])


def paying(effect: str, till: Till, *, now: str | None = None, **options: Any) -> gesta.Agent:
    """Make an agent that pays once, by a tool of that effect.

    Args:
        now: the effect that the code of today declares.
    """
    declared: dict[str, Any] = {"name": "pay", "effect": now or effect} | options
    call, child = gesta.call("pay"), None
    tool: gesta.Tool
    if effect == "transactional":
        tool = gesta.tool(till.book, **declared)
    elif effect == "agent":
        inner = gesta.tool(till.pay, name="pay", effect="once")
        child = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "paid"), tools=[inner])
        tool, call = msgspec.structs.replace(child.as_tool("pay"), **options), gesta.call("pay", task="pay")
    else:
        tool = gesta.tool(till.pay, **declared)
    return gesta.Agent("desk", model=gesta.scripted(call, "ok"), tools=[tool])


def found(entries: list[gesta.Entry], kind: type) -> list[Any]:
    return [entry.content for entry in entries if isinstance(entry.content, kind)]


def stands(outcome: gesta.Outcome) -> str:
    """Return how a turn ended, or what it waits for."""
    return " ".join(each.what for each in outcome.waiting) or outcome.reason


async def results(record: Record, outcome: gesta.Outcome) -> list[tuple[str, Any]]:
    entries = await record.read(outcome.run)
    return [(each.outcome, each.tool_result) for each in found(entries, ToolResultContent)]


GO: dict[str, Any] = {"session": "s", "key": "k"}
DIED = {"pure": (2, 1), "idempotent": (2, 1), "once": (1, 1), "transactional": (2, 2), "agent": (1, 1)}
"""Effects that were begun where the first try left no result, and their keys; of `transactional` one is kept."""
THEN = {"pure": "answered", "idempotent": "answered", "once": "doubt", "transactional": "answered", "agent": "doubt"}
"""How the turn stands then."""

DYING = """
import os, sys
from tests.journeys.test_promise_cells import GO, Till, gesta, paying
path, effect, witness = sys.argv[1:]
till = Till()
async def die():
    die_now(None)
def die_now(_context):
    print(till.keys[-1], flush=True)
    with open(witness, "x"):
        os._exit(9)
if not os.path.exists(witness):
    till.strike, till.strike_sync = die, die_now
outcome = gesta.run_sync(paying(effect, till), "go", record=path, **GO)
print(*till.keys, " ".join(each.what for each in outcome.waiting) or outcome.reason, sep="\\n")
"""


def living(folder: Path, effect: str) -> subprocess.CompletedProcess[str]:
    """Run the turn in a process of its own, which dies in the tool the first time."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src")])
    words = ["-c", DYING, str(folder / "r.gesta"), effect, str(folder / "witness")]
    return programs.run(words, env=os.environ | {"PYTHONPATH": path}, cwd=folder)


@pytest.mark.sample(3)
@every_effect
def test_a_process_dies_in_a_tool(effect: str, tmp_path: Path) -> None:
    first, second = living(tmp_path, effect), living(tmp_path, effect)
    assert (first.returncode, second.returncode) == (9, 0), second.stderr
    *again, stood = second.stdout.split()
    keys = first.stdout.split() + again
    assert (len(keys), len(set(keys)), stood) == (*DIED[effect], THEN[effect])
    store = inline_store(str(tmp_path / "r.gesta"), readonly=True)
    record = Record(store, bind)
    shown = found(drive(record.read(drive(record.find("s")).run)), ToolResultContent)
    drive(store.close())
    assert [each.tool_result for each in shown] == {"transactional": [1], "once": [], "agent": []}.get(effect, ["paid"])


@pytest.mark.sample(3)
@every_effect
def test_a_copy_by_cp_of_a_record_whose_process_died_waits_for_a_person(effect: str, tmp_path: Path) -> None:
    assert living(tmp_path, effect).returncode == 9
    (tmp_path / "copy").mkdir()
    for name in ("r.gesta", "r.gesta-wal"):
        shutil.copy(tmp_path / name, tmp_path / "copy" / name)

    async def main() -> str:
        async with gesta.open(str(tmp_path / "copy" / "r.gesta")) as record:
            till = Till()
            agent = msgspec.structs.replace(paying(effect, till), policy=RAISES)
            with pytest.raises(RunHeld, match="cannot be looked up from here") as held:
                await record.run(agent, "go", **GO)
            assert till.keys == []
            (process,) = re.findall(r"gesta gone ([^)]+)\)", str(held.value))
            await record.store.declare_gone(process, "ann")
            return stands(await record.run(agent, "go", **GO))

    assert anyio.run(main) == THEN[effect]


@pytest.mark.sample(3)
@every_effect
def test_a_process_died_on_another_host(effect: str, tmp_path: Path) -> None:
    """A server found its run free; whether the process still works cannot be looked up, as after `cp`."""
    assert living(tmp_path, effect).returncode == 9
    path = tmp_path / "there.gesta"
    shutil.copy(tmp_path / "r.gesta-wal", f"{path}-wal")
    shutil.copy(tmp_path / "r.gesta", path)
    with closing(sqlite3.connect(path)) as server:
        server.execute("UPDATE leases SET owner = NULL")
        server.commit()
    till = Till()

    async def main() -> None:
        async with gesta.open(str(path)) as record:
            outcome = await record.run(paying(effect, till), "go", **GO)
            assert (len(till.keys), stands(outcome)) == (DIED[effect][0] - 1, THEN[effect])
            if effect == "once":
                await _tried_again(record, outcome, till)

    anyio.run(main)


async def _tried_again(record: Record, outcome: gesta.Outcome, till: Till) -> None:
    """A person allows another try, before and after somebody says that the process has ended: only the latter counts."""
    of = outcome.waiting[0].of or 0
    await record.send(outcome.run, ResolutionContent(of=of, verdict="retry", by="ann"), key="r")
    agent = paying("once", till)
    assert (stands(await record.resume(outcome.run, agent)), till.keys) == ("running", [])
    attempt = found(await record.read(outcome.run), AttemptContent)[0]
    await record.store.declare_gone(attempt.process, "ann")
    assert (stands(await record.resume(outcome.run, agent)), till.keys) == ("doubt", [])
    await record.send(outcome.run, ResolutionContent(of=of, verdict="retry", by="ann"), key="again")
    assert (stands(await record.resume(outcome.run, agent)), len(till.keys)) == ("answered", 1)


class Syncing(MemoryStore):
    """Notes which commits of one kind wait for the disk, whatever the durability."""

    def __init__(self, kind: str = "attempt") -> None:
        super().__init__()
        self.kind = kind
        self.synced = list[bool]()

    async def append(self, batch: Batch) -> int:
        self.synced += [batch.synced for row in batch.rows if row.kind == self.kind]
        return await super().append(batch)


@every_effect
async def test_an_attempt_waits_for_the_disk_under_every_durability(effect: str) -> None:
    till, store = Till(), Syncing()
    assert stands(await Record(store, bind).run(paying(effect, till), "go", **GO)) == "answered"
    assert store.synced == {"pure": [False], "transactional": [], "agent": [True, True]}.get(effect, [True])


def asking() -> gesta.Agent:
    """Make an agent whose model asks a person."""
    call = gesta.call("ask_person", question="Which color?")
    return gesta.Agent("desk", model=gesta.scripted(call), tools=[ask_person()])


@gesta.tool(effect="pure")
def size() -> str:
    """Ask a person."""
    raise NeedsAnswer({"size": ToolQuestion("Which size?")})


async def asks(verbs: Verbs, text: str) -> str:
    """A program that asks a person."""
    return str(await verbs.ask("color", f"Which color for {text}?"))


@pytest.mark.parametrize(
    ("kind", "agent"),
    [
        ("approval-request", paying("once", Till(), approval=True)),
        ("question", asking()),
        ("question", gesta.Agent("desk", model=gesta.scripted(gesta.call("size")), tools=[size])),
        ("question", gesta.Agent("desk", program=asks)),
    ],
    ids=["an approval", "a question of a model", "a question of a tool", "a question of a program"],
)
async def test_what_a_person_is_asked_waits_for_the_disk_under_every_durability(kind: str, agent: gesta.Agent) -> None:
    store = Syncing(kind)
    assert (await Record(store, bind).run(agent, "go", **GO)).reason == "waiting"
    assert store.synced == [True]


async def sleeps(verbs: Verbs, text: str) -> str:
    """A program that waits for an hour."""
    return f"{text} at {await verbs.sleep('hour', 3600)}"


async def test_a_time_that_a_caller_is_told_to_wait_for_is_on_disk_under_every_durability() -> None:
    store = Syncing("timer")
    assert (await Record(store, bind).run(gesta.Agent("desk", program=sleeps), "go", **GO)).waiting[0].what == "timer"
    assert store.synced == [True]


class Below(MemoryStore):
    """Notes the commits on which another run relies, and whether they wait for the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = list[tuple[str, bool]]()

    async def append(self, batch: Batch) -> int:
        children = {row.run for row in await self.runs() if row.parent_run is not None}
        for row in batch.rows:
            if row.kind == "edge" or (row.kind == "end" and row.run in children):
                self.synced.append((row.kind, batch.synced))
        return await super().append(batch)


CLERK = gesta.Agent("clerk", model=gesta.function(lambda *_: "Blue."))


async def hands_over(verbs: Verbs, text: str) -> str:
    """A program that calls an agent."""
    return (await verbs.call(CLERK, text, "clerk")).text


@pytest.mark.parametrize("way", ["a model calls", "a program calls", "nobody waits any more"])
async def test_what_another_run_relies_on_waits_for_the_disk_under_every_durability(way: str) -> None:
    clerk = asking() if way.startswith("nobody") else CLERK
    call = gesta.call(clerk.name, task="go")
    agent = gesta.Agent("boss", model=gesta.scripted(call, "Blue."), tools=[clerk.as_tool()])
    agent = gesta.Agent("boss", program=hands_over) if "program" in way else agent
    store = Below()
    record = Record(store, bind)
    outcome = await record.run(agent, "go", **GO)
    if outcome.reason == "waiting":
        await record.cancel(outcome.run, by="ann")
    assert store.synced == [("edge", True), ("end", True)]


@every_effect
async def test_a_tool_does_not_return_in_time(effect: str) -> None:
    till = Till()
    till.strike, till.strike_sync = anyio.sleep_forever, lambda context: context.sql(FOREVER)
    async with gesta.open(grace_s=0) as record:
        outcome = await record.run(paying(effect, till, timeout_s=0.05), "go", **GO)
        given = await results(record, outcome)
    assert (len(till.keys), len(set(till.keys))) == (DIED[effect] if effect != "transactional" else (1, 1))
    assert stands(outcome) == {"once": "doubt"}.get(effect, "answered")
    kinds = {"pure": ["ok"], "idempotent": ["ok"], "once": []}.get(effect, ["error"])
    assert [outcome for outcome, _ in given] == kinds


WAYS = ("scope", "task", "wait_for", "closed")


async def left(record: Record, agent: gesta.Agent, till: Till, way: str) -> None:
    """Begin the turn, and stop waiting for it while its tool is at work, in one of several ways."""
    if way == "scope":
        with anyio.CancelScope() as scope:
            till.strike, till.strike_sync = partial(_cancelled, scope.cancel), lambda _context: scope.cancel()
            await record.run(agent, "go", **GO)
        return
    work = asyncio.ensure_future(record.run(agent, "go", **GO))
    if way == "closed":
        till.strike, till.strike_sync = partial(_cancelled, record.close), lambda _context: record.close()
        assert stands(await work) in ("resume", "answered")
        return
    till.strike, till.strike_sync = partial(_cancelled, work.cancel), lambda _context: work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await (work if way == "task" else asyncio.wait_for(work, 60))


async def _cancelled(cancel: Callable[[], Any]) -> None:
    cancel()
    await anyio.sleep_forever()


@every_effect
@pytest.mark.parametrize("way", WAYS)
async def test_a_program_stops_waiting_for_its_turn(effect: str, way: str) -> None:
    till = Till()
    agent = paying(effect, till)
    async with gesta.open(grace_s=0) as record:
        await left(record, agent, till, way)
        row = await record.find("s")
        assert (await record.state(row.run)).open or effect == "transactional"
        outcome = await record.run(agent, "go", **GO)
    begun = DIED[effect] if effect != "transactional" else (1, 1)  # a commit cannot be broken off
    assert (len(till.keys), len(set(till.keys)), stands(outcome)) == (*begun, THEN[effect])


@every_effect
async def test_a_person_cancels_a_turn_while_its_tool_is_at_work(effect: str) -> None:
    till = Till()
    async with gesta.open() as record:

        async def cancel() -> None:
            row = next(row for row in await record.store.runs() if row.parent_run is None)
            await record.send(row.run, SignalContent(name="cancel", by="ann"), key="c")

        till.strike, till.strike_sync = cancel, lambda _context: drive(cancel())
        outcome = await record.run(paying(effect, till), "go", **GO)
        given = await results(record, outcome)
    assert (len(till.keys), outcome.reason) == (1, "cancelled")
    assert given == [("ok", 1 if effect == "transactional" else "paid")]


async def test_a_turn_that_is_cancelled_in_doubt_says_of_which_tool_and_another_call_of_it_needs_a_person() -> None:
    till = Till()
    till.strike = _in_doubt
    agent = paying("once", till)
    agent = msgspec.structs.replace(
        agent,
        model=gesta.scripted(gesta.call("pay"), gesta.call("pay"), "ok"),
        policy=gesta.Policy(when_busy="replace"),
    )
    async with gesta.open() as record:
        first = await record.run(agent, "go", session="s")
        assert stands(first) == "doubt"
        await record.send(first.run, SignalContent(name="cancel", by="ann"), key="c")
        ended = await record.resume(first.run, agent)
        assert (ended.reason, ended.doubts) == ("cancelled", ("pay",))
        again = await record.run(agent, "again", session="s")
    assert (len(till.keys), stands(again)) == (1, "doubt")


async def _is_an_error_or_a_doubt(effect: str, till: Till) -> None:
    """What a tool raises is the error of a pure or transactional one, and a doubt of another."""
    async with gesta.open() as record:
        outcome = await record.run(paying(effect, till), "go", **GO)
        given = await results(record, outcome)
    begun = {"pure": (1, 1), "transactional": (1, 1)}.get(effect, DIED[effect])
    assert (len(till.keys), len(set(till.keys)), stands(outcome)) == (*begun, THEN[effect])
    kinds = {"idempotent": ["ok"], "pure": ["error"], "transactional": ["error"]}.get(effect, [])
    assert [outcome for outcome, _ in given] == kinds


async def _in_doubt() -> None:
    raise TimeoutError("no answer from the bank")


def _sync_doubt(_context: gesta.Context) -> None:
    raise TimeoutError("no answer from the bank")


@every_effect
async def test_a_tool_raises_when_nobody_can_know(effect: str) -> None:
    till = Till()
    till.strike, till.strike_sync = _in_doubt, _sync_doubt
    await _is_an_error_or_a_doubt(effect, till)


async def _wrong() -> None:
    raise ValueError("there is no such account")


def _sync_wrong(_context: gesta.Context) -> None:
    raise ValueError("there is no such account")


@every_effect
async def test_a_tool_raises_anything_else(effect: str) -> None:
    till = Till()
    till.strike, till.strike_sync = _wrong, _sync_wrong
    async with gesta.open() as record:
        outcome = await record.run(paying(effect, till), "go", **GO)
        given = await results(record, outcome)
    assert (len(till.keys), stands(outcome)) == (1, "answered")
    assert [outcome for outcome, _ in given] == (["error"] if effect != "agent" else ["ok"])


class Failing(MemoryStore):
    """Fails the first write of a tool's result."""

    failed = False

    def fail(self, kind: bool) -> None:
        if kind and not self.failed:
            self.failed = True
            raise WriteFailed(":memory:", "the disk is full")

    async def append(self, batch: Batch) -> int:
        self.fail(any(row.kind == "tool-result" for row in batch.rows))
        return await super().append(batch)

    async def transact(self, effect: TransactionalEffect) -> None:
        self.fail(kind=True)
        await super().transact(effect)


@every_effect
async def test_a_result_cannot_be_written(effect: str) -> None:
    till, store = Till(), Failing()
    agent, record = paying(effect, till), Record(store, bind)
    if effect == "agent":  # the run above waits for the one below, whose write failed
        assert stands(await record.run(agent, "go", **GO)) == "running"
    else:
        with pytest.raises(WriteFailed):
            await record.run(agent, "go", **GO)
    assert stands(await record.run(agent, "go", **GO)) == "answered"
    assert (len(till.keys), store.failed) == (1, True)


@every_effect
async def test_a_message_comes_again_under_its_key(effect: str) -> None:
    till = Till()
    async with gesta.open() as record:
        agent = paying(effect, till)
        first = await record.run(agent, "go", **GO)
        assert await record.run(agent, "go", **GO) == first
    assert (len(till.keys), stands(first)) == (1, "answered")


@every_effect
async def test_a_listener_raises(effect: str) -> None:
    till, heard = Till(), []

    def listen(event: gesta.Event) -> None:
        heard.append(event)
        raise ConnectionError("the browser is gone")

    async with gesta.open() as record:
        outcome = await record.run(paying(effect, till), "go", listener=listen, **GO)
    assert (len(till.keys), stands(outcome), len(heard)) == (1, "answered", 1)


@every_effect
async def test_a_version_that_says_less_goes_on_with_a_call_in_doubt(effect: str) -> None:
    till = Till()
    async with gesta.open(grace_s=0) as record:
        await left(record, paying(effect, till), till, "scope")
        newer = paying(effect, till, now=None if effect in ("agent", "transactional") else "pure")
        newer = msgspec.structs.replace(newer, instructions="Another version.")
        outcome = await record.run(newer, "go", **GO)
    begun = DIED[effect] if effect != "transactional" else (1, 1)
    assert (len(till.keys), len(set(till.keys)), stands(outcome)) == (*begun, THEN[effect])


@every_effect
async def test_a_model_makes_the_same_call_again(effect: str) -> None:
    till = Till()
    agent = paying(effect, till)
    call = gesta.call("pay", task="pay") if effect == "agent" else gesta.call("pay")
    async with gesta.open() as record:
        twice = msgspec.structs.replace(agent, model=gesta.scripted(call, call, "ok"))
        outcome = await record.run(twice, "go", **GO)
    assert (len(till.keys), len(set(till.keys)), stands(outcome)) == (2, 2, "answered")


RAISES = gesta.Policy(when_busy="raise")


@every_effect
async def test_a_backup_is_restored(effect: str, tmp_path: Path) -> None:
    here, there = str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta")
    till, elsewhere = Till(), Till()
    async with gesta.open(here) as record:
        first = await record.run(paying(effect, till, approval=True), "go", **GO)
        assert stands(first) == "approval"
        backup(here, there)
        await approve(record, first.run)
        assert stands(await record.resume(first.run, paying(effect, till, approval=True))) == "answered"
    async with gesta.open(there) as copy:
        await approve(copy, first.run)
        agent = paying(effect, elsewhere, approval=True)
        stood = stands(await copy.resume(first.run, agent))
        assert (stood, len(elsewhere.keys)) == (("answered", 1) if effect == "pure" else ("copy", 0))
        await copy.store.adopt("ann")
        assert stands(await copy.resume(first.run, agent)) == "answered"
    assert len(elsewhere.keys) == 1


STANDING = """
import sys, gesta
from tests.journeys.test_promise_cells import GO
@gesta.tool(effect="once")
def pay() -> str:
    "Pay."
    print("paid", flush=True)
    return sys.stdin.readline().strip()
agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "ok"), tools=[pay])
print(gesta.run_sync(agent, "go", record=sys.argv[1], **GO).answer, flush=True)
"""


def test_a_process_that_stands_still_keeps_its_run_and_ends_it_when_it_wakes(tmp_path: Path) -> None:
    root, path = Path(__file__).parents[2], str(tmp_path / "r.gesta")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    command, pipe = [sys.executable, "-c", STANDING, path], subprocess.PIPE
    till = Till()
    agent = msgspec.structs.replace(paying("once", till), policy=RAISES)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "paid\n"
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        with pytest.raises(RunHeld):
            gesta.run_sync(agent, "go", record=path, **GO)
        process.send_signal(signal.SIGCONT)
        assert process.communicate("done\n")[0] == "ok\n"
    assert stands(gesta.run_sync(agent, "go", record=path, **GO)) == "answered"
    assert till.keys == []


async def test_what_a_transactional_tool_did_outlives_the_log_that_held_it(tmp_path: Path) -> None:
    till = Till()
    path = tmp_path / "r.gesta"
    async with gesta.open(str(path)) as record:
        outcome = await record.run(paying("transactional", till), "go", **GO)
        (tmp_path / "r.gesta-wal").unlink()
        with pytest.raises(WriteFailed):
            await record.run(paying("transactional", till), "go", session="t")
    assert len(till.keys) == 1
    async with gesta.open(str(path)) as record:
        assert await results(record, outcome) == [("ok", 1)]
        assert (await record.store.sql("SELECT count(*) FROM paid")).rows == [(1,)]


@pytest.mark.parametrize("effect", ["pure", "idempotent", "once", "agent"])
async def test_a_subprocess_that_a_tool_started_goes_on(effect: str, tmp_path: Path) -> None:
    till, started = Till(), list[subprocess.Popen[bytes]]()

    async def strike() -> None:
        assert till.context is not None
        started.append(till.context.popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        await _cancelled(scope.cancel)

    till.strike = strike
    options: dict[str, Any] = {"reconcile": lambda _key: gesta.NotDone()} if effect == "once" else {}
    agent = paying(effect, till, **options)
    async with gesta.open(str(tmp_path / "r.gesta"), grace_s=0) as record:
        with anyio.CancelScope() as scope:
            await record.run(agent, "go", **GO)
        outcome = await record.run(agent, "go", **GO)
        assert (len(till.keys), len(set(till.keys)), stands(outcome)) == (*DIED[effect], THEN[effect])
        started[0].communicate(b"\n")
        if effect == "once":  # now it is over, and what `reconcile` says of it stays true
            assert stands(await record.run(agent, "go", **GO)) == "answered"
            assert (len(till.keys), len(set(till.keys))) == (2, 1)


@every_effect
async def test_the_log_beside_the_file_is_deleted_while_a_tool_is_at_work(effect: str, tmp_path: Path) -> None:
    till, path, refused = Till(), tmp_path / "r.gesta", []

    def strike_sync(_context: Any) -> None:
        (tmp_path / "r.gesta-wal").unlink()
        if effect == "transactional":  # its turn lasts until the commit
            return
        with pytest.raises(WriteFailed, match="was taken away from a process that writes it"):
            inline_store(str(path))
        refused.append(True)

    async def strike() -> None:
        strike_sync(None)

    till.strike, till.strike_sync = strike, strike_sync
    agent = paying(effect, till)
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        with pytest.raises(WriteFailed):
            await _twice(record, agent)
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        outcome = await record.run(agent, "go", **GO)
        if effect == "transactional":
            assert (await record.store.sql("SELECT count(*) FROM paid")).rows == [(1,)]
    assert stands(outcome) == THEN[effect]
    assert effect == "transactional" or (len(till.keys), len(set(till.keys)), refused) == (*DIED[effect], [True])


async def _twice(record: Record, agent: gesta.Agent) -> None:
    """Run the turn until the write fails that everybody sees: a run above first waits for the one below."""
    await record.run(agent, "go", **GO)
    await record.run(agent, "go", **GO)


class PanicError(BaseException):
    """What a library that is not Python may raise."""


async def _panic() -> None:
    raise PanicError("rust")


def _sync_panic(_context: gesta.Context) -> None:
    raise PanicError("rust")


@every_effect
async def test_a_tool_raises_what_is_no_exception(effect: str) -> None:
    till = Till()
    till.strike, till.strike_sync = _panic, _sync_panic
    await _is_an_error_or_a_doubt(effect, till)


@pytest.mark.parametrize("effect", ["pure", "idempotent", "once"])
async def test_a_thread_outlives_the_timeout_of_its_tool(effect: Any) -> None:
    keys, go, asked = list[str](), threading.Event(), list[str]()

    def settled(key: str) -> gesta.NotDone:
        asked.append(key)
        return gesta.NotDone()

    @gesta.tool(effect=effect, timeout_s=0.3, reconcile=settled)
    def pay(context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        if len(keys) == 1:
            go.wait(10)
        return f"paid {len(keys)}"

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "ok"), tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
        assert (len(keys), len(set(keys)), stands(outcome)) == (*DIED[effect], THEN[effect])
        assert len(asked) == (effect == "once"), "asked, and not believed"
        go.set()
        if effect == "once":
            with anyio.fail_after(10):
                while not await record.store.inbox(outcome.run):
                    await anyio.lowlevel.checkpoint()
            assert stands(await record.run(agent, "go", **GO)) == "answered"
            assert (len(keys), await results(record, outcome)) == (1, [("ok", "paid 1")])


@pytest.mark.parametrize("seen", [True, False], ids=["to_thread", "run_in_executor"])
async def test_a_thread_that_a_tool_starts_is_seen_if_it_carries_the_context(seen: bool) -> None:
    fired, go = list[str](), threading.Event()

    @gesta.tool(effect="once", timeout_s=0.05, reconcile=lambda _key: gesta.NotDone())
    async def pay() -> str:
        """Pay."""
        fired.append("begun")
        if len(fired) == 1:
            loop = asyncio.get_running_loop()
            await (asyncio.to_thread(go.wait, 10) if seen else loop.run_in_executor(None, go.wait, 10))
        return "paid"

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "ok"), tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
    go.set()
    assert (len(fired), stands(outcome)) == ((1, "doubt") if seen else (2, "answered"))


DYING_BELOW = """
import os, sys, gesta
policy = gesta.Policy(deaths=2)
child = gesta.Agent("payer", model=gesta.function(lambda messages, header: os._exit(9)), policy=policy)
model = gesta.scripted(gesta.call("payer", task="pay"), "ok")
agent = gesta.Agent("desk", model=model, tools=[child.as_tool()], policy=policy)
outcome = gesta.run_sync(agent, "go", record=sys.argv[1], session="s", key="k")
with gesta.open_sync(sys.argv[1]) as record:
    below = record.read(outcome.waiting[0].run)
print(outcome.waiting[0].what, sum(entry.kind == "fault" and entry.content.of == 1 for entry in below))
"""


def test_deaths_below_count_in_the_run_of_the_agent_that_is_a_tool(tmp_path: Path) -> None:
    lives = [programs.run(["-c", DYING_BELOW, str(tmp_path / "r.gesta")]) for _ in range(4)]
    assert [life.returncode for life in lives] == [9, 9, 0, 0]
    assert lives[-1].stdout == "child 2\n"


async def test_a_pure_call_that_never_returns_is_given_up_and_the_model_reads_that_it_can_be_made_again() -> None:
    fired = list[int]()

    @gesta.tool(effect="pure", timeout_s=0.02)
    async def look() -> str:
        """Look."""
        fired.append(1)
        await anyio.sleep_forever()
        return ""

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("look"), "ok"), tools=[look])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go")
        ((kind, told),) = await results(record, outcome)
    assert (len(fired), kind, outcome.answer) == (3, "interrupted", "ok")
    assert "again" in told


async def test_a_second_cancellation_ends_the_grace() -> None:
    till, at_work = Till(), anyio.Event()

    async def strike() -> None:
        at_work.set()
        await anyio.sleep_forever()

    till.strike = strike
    agent = paying("once", till)
    async with gesta.open(grace_s=3600) as record:
        request = asyncio.ensure_future(record.run(agent, "go", **GO))
        await at_work.wait()
        request.cancel()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert not request.done()
        request.cancel()
        with anyio.fail_after(10):
            await asyncio.wait([request])
        assert stands(await record.run(agent, "go", **GO)) == "doubt"
    assert len(till.keys) == 1


async def test_threads_of_tools_wait_for_a_place_before_their_attempt_and_before_their_time_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outlive, "STALE_S", 60.0)  # a busy machine stands still, and such a call looks again later
    held, begun = Held(outlive.THREADS), list[int]()

    @gesta.tool(effect="once", timeout_s=60)
    def pay(number: int) -> str:
        """Pay."""
        begun.append(number)
        held.here()
        return "paid"

    calls = [gesta.call("pay", number=number) for number in range(outlive.THREADS + 20)]
    policy = gesta.Policy(parallel=len(calls), limits=gesta.Limits(calls=None))
    model = gesta.scripted(gesta.reply(calls=calls), "ok")
    agent = gesta.Agent("desk", model=model, tools=[pay], policy=policy)
    async with gesta.open() as record:
        run = asyncio.ensure_future(record.run(agent, "go", **GO))
        await held.all_here()
        attempts = found(await record.read((await record.find("s")).run), AttemptContent)
        assert len(attempts) == len(begun) == outlive.THREADS
        await held.let_go()
        assert stands(await run) == "answered"
    assert sorted(begun) == list(range(len(calls)))


OLD = Path(__file__).parents[1] / "fixtures" / "0.1.0" / "in-doubt.gesta"
"""Made by version 0.1.0: a call `once` and an idempotent one in doubt."""


@pytest.mark.parametrize("said", ["done", "not done", "asked"])
async def test_a_call_that_version_0_1_0_left_in_doubt_goes_on_under_its_old_key(said: str, tmp_path: Path) -> None:
    path, asked, fired = tmp_path / "r.gesta", list[str](), list[str]()
    shutil.copy(OLD, path)

    def settled(key: str) -> gesta.Done | gesta.NotDone:
        asked.append(key)
        return gesta.Done("paid") if said == "done" else gesta.NotDone()

    @gesta.tool(effect="once", reconcile=None if said == "asked" else settled)
    async def pay(cents: int) -> str:
        """Pay an invoice."""
        fired.append("pay")
        return "paid again"

    @gesta.tool(effect="idempotent")
    async def book(room: int, context: gesta.Context) -> str:
        """Book a room."""
        fired.append(context.key)
        return "booked"

    payer = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay", cents=500), "ok"), tools=[pay])
    booker = gesta.Agent("booker", model=gesta.scripted(gesta.call("book", room=7), "ok"), tools=[book])
    async with gesta.open(str(path)) as record:
        record.turns.clock = lambda: datetime(2026, 11, 22, 18, tzinfo=UTC)  # an hour later: the key is still known
        for agent, session in ((payer, "pay"), (booker, "book")):
            run = (await record.find(session)).run
            outcome = await record.resume(run, agent)
            old = hashlib.sha256(f"{record.info.id}|{run}|6".encode()).hexdigest()
            if agent is booker:
                assert (stands(outcome), fired) == ("answered", [old])
            else:
                assert stands(outcome) == ("answered" if said == "done" else "doubt")
                assert (fired, set(asked)) == ([], set() if said == "asked" else {old})


async def _unknown(_key: str) -> gesta.Unknown:
    return gesta.Unknown()


async def _raising(_key: str) -> gesta.Unknown:
    raise ValueError("the bank is closed")


async def _hanging(_key: str) -> gesta.Unknown:
    await anyio.sleep_forever()
    return gesta.Unknown()


@pytest.mark.parametrize("reconcile", [_unknown, _raising, _hanging])
async def test_a_reconcile_that_cannot_tell_leaves_the_call_in_doubt(reconcile: Any) -> None:
    till = Till()
    till.strike = _in_doubt
    agent = paying("once", till, reconcile=reconcile, timeout_s=0.05)
    async with gesta.open() as record:
        assert stands(await record.run(agent, "go", **GO)) == "doubt"
        assert stands(await record.run(agent, "go", **GO)) == "doubt"
    assert len(till.keys) == 1


async def test_a_fork_in_which_a_person_allows_a_call_draws_a_key_of_its_own() -> None:
    till = Till()
    till.strike = _in_doubt
    agent = paying("once", till)
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
        made = await fork(record, await record.find("s"), Fork())
        waits = await go_on(record, made, agent)
        assert (stands(waits), len(till.keys)) == ("doubt", 1)
        of = waits.waiting[0].of or 0
        await record.send(made.run, ResolutionContent(of=of, verdict="retry", by="ann"), key="r")
        ended = await record.resume(made.run, agent)
        if stands(ended) == "approval":
            await approve(record, made.run)
            ended = await record.resume(made.run, agent)
        assert stands(ended) == "answered"
        assert stands(await record.resume(outcome.run, agent)) == "doubt"
    assert len(till.keys) == len(set(till.keys)) == 2
