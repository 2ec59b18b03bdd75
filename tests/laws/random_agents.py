"""Agents drawn by lot, and the world that they act on: tools of each policy, child runs, programs, people who answer.

What is drawn depends on a seed alone, so that each life of a record makes the same agent. The world is a file outside
of the record, in which nothing keeps a row from being written twice.
"""

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec

import gesta
from gesta import address
from gesta.kinds import AnswerContent, ApprovalContent, Content, SignalContent, UserContent
from gesta.record.record import Record
from gesta.state.run import RunState
from gesta.testing.crashes.life import Scene
from gesta.testing.crashes.watched import Watched
from gesta.testing.crashes.witness import Life
from gesta.tools.person import ask_person
from gesta.workflow.verbs import Verbs

LOOK_S = 0.01
NAMES = ("look", "glance", "put", "pay", "wire", "post", "book", "sign", "ask_person")
WEIGHTS = (2, 1, 2, 3, 2, 1, 2, 2, 1)


class World:
    """What the tools act on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, what: str, key: str, text: str) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=10)) as rows:
            rows.execute("CREATE TABLE IF NOT EXISTS rows(what, key, text)")
            rows.execute("INSERT INTO rows VALUES(?, ?, ?)", (what, key, text))

    def find(self, key: str) -> str | None:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=10)) as rows:
            rows.execute("CREATE TABLE IF NOT EXISTS rows(what, key, text)")
            row = rows.execute("SELECT text FROM rows WHERE key = ?", [key]).fetchone()
        return None if row is None else str(row[0])

    def twice(self) -> list[str]:
        """What was done more than once for one call."""
        self.find("")
        with closing(sqlite3.connect(self._path, timeout=10)) as rows:
            query = "SELECT what, key, count(*) FROM rows GROUP BY what, key HAVING count(*) > 1"
            return [f"the world has {times} rows of {what} {key:.12}" for what, key, times in rows.execute(query)]


def tools(world: World) -> list[gesta.Tool]:
    """Tools of each policy, in threads and in the loop."""

    def look(place: int) -> str:
        return f"saw {place}"

    async def glance(place: int) -> str:
        await anyio.sleep(0.002)
        return f"glanced at {place}"

    async def put(place: int, context: gesta.Context) -> str:
        if world.find(context.key) is None:
            world.write("put", context.key, f"put {place}")
        return f"put {place}"

    def pay(euros: int, context: gesta.Context) -> str:
        world.write("pay", context.key, f"paid {euros}")
        return f"paid {euros}"

    async def wire(euros: int, context: gesta.Context) -> str:
        world.write("wire", context.key, f"wired {euros}")
        return f"wired {euros}"

    def post(letter: int, context: gesta.Context) -> str:
        world.write("post", context.key, f"posted {letter}")
        return f"posted {letter}"

    def book(room: int, context: gesta.Context) -> str:
        marks = "$1, $2" if "://" in context.record else "?, ?"
        context.sql("CREATE TABLE IF NOT EXISTS bookings(room TEXT, key TEXT)")
        context.sql(f"INSERT INTO bookings VALUES({marks})", (str(room), context.key))
        return f"booked {room}"

    async def sign(paper: int, context: gesta.Context) -> str:
        world.write("sign", context.key, f"signed {paper}")
        await anyio.sleep(0.002)
        return f"signed {paper}"

    def settled(key: str) -> gesta.Done | gesta.NotDone:
        found = world.find(key)
        return gesta.Done(found) if found is not None else gesta.NotDone()

    return [
        gesta.tool(look, effect="pure"),
        gesta.tool(glance, effect="pure"),
        gesta.tool(put, effect="idempotent"),
        gesta.tool(pay, effect="once", reconcile=settled),
        gesta.tool(wire, effect="once"),
        gesta.tool(post, effect="once", on_doubt="tell"),
        gesta.tool(book, effect="transactional"),
        gesta.tool(sign, effect="once", approval=True, reconcile=settled),
        ask_person(answer={"type": "integer"}),
    ]


ARGUMENTS = {
    "pay": "euros",
    "wire": "euros",
    "post": "letter",
    "book": "room",
    "sign": "paper",
    "ask_person": "question",
}


def script(lot: random.Random, more: tuple[str, ...] = ()) -> list[Any]:
    """Draw what a model says: replies with one to four calls at once, and an answer."""
    replies: list[Any] = []
    for _ in range(lot.randint(1, 3)):
        names = lot.choices((*NAMES, *more), (*WEIGHTS, *(4 for _ in more)), k=lot.choice((1, 1, 2, 3, 4)))
        calls = []
        for name in names:
            value: Any = lot.randrange(10_000)
            if name in more:
                value = f"task {value}"
            elif name == "ask_person":
                value = f"How many for {value}?"
            calls.append(gesta.call(name, **{"task" if name in more else ARGUMENTS.get(name, "place"): value}))
        replies.append(calls)
    return [*replies, *(f"Done {lot.randrange(10_000)}." for _ in range(9))]  # it may be told more, and asked again


def agent(seed: int, folder: Path) -> gesta.Agent:
    """Draw an agent: alone, with others as its tools, or a program that calls others at once."""
    lot, world = random.Random(seed), World(folder / "world.db")
    policy = gesta.Policy(
        retry=gesta.Retry(first_wait_s=0.0),
        attempts=lot.choice((3, 3, 1000)),
        parallel=lot.choice((1, 2, 8)),
        when_busy="queue",
    )

    def one(name: str, *more: gesta.Agent) -> gesta.Agent:
        said = script(lot, tuple(each.name for each in more))
        others = [each.as_tool(description="Does a task.") for each in more]
        own = [*tools(world), *others]
        return gesta.Agent(name, model=gesta.scripted(*said, stream=False), tools=own, policy=policy)

    match lot.choice(("alone", "above", "above", "program")):
        case "alone":
            return one("desk")
        case "above":
            scout = one("scout")
            return one("desk", scout, one("clerk", scout) if lot.random() < 0.5 else one("guide"))
        case _:
            return gesta.Agent("desk", program=program(lot, one("scout"), one("clerk", one("guide"))), policy=policy)


def program(lot: random.Random, *others: gesta.Agent) -> Callable[[Verbs, str], Any]:
    """Draw a program: it calls agents, at once or one after the other, and may ask a person and wait for a time."""
    asks, sleeps, at_once = lot.random() < 0.5, lot.random() < 0.3, lot.random() < 0.5

    async def run(verbs: Verbs, text: str) -> str:
        verbs.now("began")
        said: dict[str, str] = {}

        async def call(each: gesta.Agent) -> None:
            said[each.name] = (await verbs.call(each, f"{text} ({each.name})", each.name)).text

        if at_once:
            async with anyio.create_task_group() as group:
                for each in others:
                    group.start_soon(call, each)
        else:
            for each in others:
                await call(each)
        if asks:
            said["person"] = str(await verbs.ask("how many", "How many?", {"type": "integer"}))
        if sleeps:
            await verbs.sleep("rest", 0.02)
        return "; ".join(f"{name}: {text}" for name, text in sorted(said.items()))

    return run


# people and programs outside, each a process of its own


async def outsider(scene: Scene, number: int, seed: int) -> None:
    """Send letters into the runs of a record, as long as the campaign goes on: 1 approves, 2 answers, 3 says more."""
    campaign = os.getppid()
    life, lot = Life(scene.witness, -number), random.Random(seed * 10 + number)
    record = Record(Watched(address.store(scene.record, durability="normal"), life), address.bind)
    sent: set[tuple[str, str]] = set()
    while os.getppid() == campaign:
        for row in await record.store.runs(scene.session):
            letters = LETTERS[number - 1](await record.state(row.run), lot)
            for key, content in letters:
                if (row.run, key) not in sent:
                    sent.add((row.run, key))
                    await record.send(row.run, content, key=key)
        await anyio.sleep(LOOK_S)


Letters = list[tuple[str, Content]]


def approvals(state: RunState, lot: random.Random) -> Letters:
    """Answer each request for approval, twice: only one of the two may count."""
    found: Letters = []
    for call in state.calls.values():
        if call.awaits_approval:
            assert call.asked is not None
            said = ApprovalContent(of=call.asked, verdict="approved", by=f"ann {lot.random()}")
            said = lot.choice(
                (
                    said,
                    said,
                    msgspec.structs.replace(said, verdict="denied", reason="no"),
                    msgspec.structs.replace(said, args={"paper": lot.randrange(10_000)}),
                    msgspec.structs.replace(said, verdict="answered", result="signed by hand"),
                )
            )
            again = msgspec.structs.replace(said, verdict="denied", by=f"bob {lot.random()}", args=None, result=None)
            found += [(f"ann-{call.asked}", said), (f"bob-{call.asked}", again)]
    return found


def answers(state: RunState, lot: random.Random) -> Letters:
    """Answer each question."""
    return [
        (f"answer-{seq}", AnswerContent(of=seq, value=lot.randrange(100), by=f"cid {lot.random()}"))
        for seq in state.questions
    ]


def sayings(state: RunState, lot: random.Random) -> Letters:
    """Send more messages to a run while it is at work, wake it, and now and then cancel it."""
    if not state.open or state.head % 3:
        return []
    by = f"dee {lot.random()}"
    said: list[Content] = [UserContent(value=f"By the way, {by}.", user_id="dee"), SignalContent(name="wake", by=by)]
    cancel = SignalContent(name="cancel", by=by)
    return [(f"more-{state.head}", cancel if lot.random() < 0.02 else lot.choice(said))]


LETTERS = (approvals, answers, sayings)


def send_letters(scene: Scene, number: int, seed: int) -> None:
    """Be one of those outside."""
    anyio.run(outsider, scene, number, seed)
