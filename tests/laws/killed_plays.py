"""Plays for processes that die: each acts on an outside world, and is played again with the same words until it ends.

The world keeps what was done to it, and nothing in it keeps a thing from being done twice.
"""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from anyio.lowlevel import checkpoint

import gesta
from gesta.address import Record
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.orchestration import DoneTool
from gesta.compat.langroid.task import Task
from gesta.compat.langroid.tool_message import ToolMessage
from gesta.function_tool.tool import Effect
from gesta.kinds import KeyValueContent
from gesta.model.request import Request
from gesta.models.jsontext import read
from gesta.models.scripted import Keyless, spoken
from gesta.patterns.supervisor import supervisor
from gesta.workflow.verbs import Verbs

SESSION = "s"
POLICY = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0, empty=0), attempts=1000)
"""A call may be lost as often as the process dies: when to give one up is tested elsewhere."""
CLOCK = "began"
"""Name of the note of the clock, which alone differs."""
Messages = list[dict[str, Any]]


class Outside:
    """What the programs act on."""

    def __init__(self, path: str | Path = ":memory:", reach: Callable[[str], None] = lambda _: None) -> None:
        self._rows = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._rows.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing that it wrote
        self._rows.execute("CREATE TABLE IF NOT EXISTS rows(what, key, text)")
        self._lock = threading.Lock()  # sqlite3 of Python 3.13 mixes up the statements of two threads
        self.reach = reach
        """Is told of each point that a life comes to; some lives end there."""

    def write(self, what: str, key: str, text: str = "") -> str:
        self.reach("")
        with self._lock:
            self._rows.execute("INSERT INTO rows VALUES(?, ?, ?)", (what, key, text))
        self.reach("outside")
        return text

    def once(self, what: str, key: str, text: str) -> str:
        """Write a row unless there is one of that key."""
        found = self.find(key)
        return self.write(what, key, text) if found is None else found

    def find(self, key: str) -> str | None:
        with self._lock:
            row = self._rows.execute("SELECT text FROM rows WHERE key = ?", [key]).fetchone()
        return None if row is None else str(row[0])

    def effects(self) -> list[tuple[str, str]]:
        """What was done, without the keys: they are others in each record."""
        return sorted(self._rows.execute("SELECT what, text FROM rows WHERE what != 'asked'"))

    def asked(self) -> Counter[str]:
        """How often each request was sent, by its digest."""
        return Counter(key for (key,) in self._rows.execute("SELECT key FROM rows WHERE what = 'asked'"))

    def close(self) -> None:
        self._rows.close()


def mind(outside: Outside, says: Callable[[Messages, Request], Any] | Sequence[Any]) -> Keyless:
    """Make a model of a function, or of items by how much the run has answered; each request sent is a row outside."""

    def choose(request: Request) -> Any:
        outside.write("asked", request.digest)
        if not callable(says):
            return says[request.answered]
        return says([read(block) for block in request.blocks], request)

    return Keyless("mind", choose, spoken("mind", stream=True))


def tools(outside: Outside) -> list[gesta.Tool]:
    """One tool of each policy that can be carried on without a person."""

    async def look(place: str) -> str:
        await checkpoint()
        return f"saw {place}"

    async def put(place: str, context: gesta.Context) -> str:
        await checkpoint()
        return outside.once("put", context.key, f"put at {place}")

    async def pay(place: str, context: gesta.Context) -> dict[str, str]:
        outside.write("pay", context.key, place)
        await checkpoint()
        return {"paid": place}

    def paid(key: str) -> gesta.Done | gesta.NotDone:
        place = outside.find(key)
        return gesta.Done({"paid": place}) if place is not None else gesta.NotDone()

    return [
        gesta.tool(look, effect="pure"),
        gesta.tool(put, effect="idempotent"),
        gesta.tool(pay, effect="once", reconcile=paid),
    ]


def read_out(messages: Messages) -> str:
    """Answer with all results of tools since the last question."""
    return " and ".join(each["content"] for each in messages if each["role"] == "tool")


async def play_supervisor(record: Record, outside: Outside) -> None:
    """A supervisor has three agents find things out at once, each with two tools at once."""

    def says(messages: Messages, request: Request) -> Any:
        role, last = (request.header.meta or {})["prompt"]["name"], messages[-1]
        if role == "decompose":
            return json.dumps({"goals": ["attic", "cellar", "garden"]})
        if role == "synthesise":
            return "; ".join(each["result"] for each in json.loads(messages[0]["content"])["results"])
        if last["role"] != "user":
            return read_out(messages)
        place = last["content"]
        return [gesta.call("look", place=place), gesta.call("pay" if place == "garden" else "put", place=place)]

    boss = supervisor("boss", mind(outside, says), tools(outside))
    patient = msgspec.structs.replace(boss, policy=POLICY)
    await record.run(patient, "Where is the gold?", session=SESSION, key="m")


async def play_errands(record: Record, outside: Outside) -> None:
    """A program decides, reads the clock, and calls an agent that has another agent as a tool, twice at once."""
    scouting: list[Any] = [
        lambda messages, _: [gesta.call(name, place=messages[-1]["content"]) for name in ("put", "pay")],
        lambda messages, _: read_out(messages),
    ]
    scout = gesta.Agent(
        "scout",
        model=mind(outside, lambda messages, request: scouting[request.answered](messages, request)),
        tools=tools(outside),
        policy=POLICY,
    )
    guiding = [
        [gesta.call("scout", task="north"), gesta.call("scout", task="south"), gesta.call("look", place="here")],
        gesta.call("pay", place="the guide"),
        "Seen.",
    ]
    guide = gesta.Agent(
        "guide",
        model=mind(outside, guiding),
        tools=[*tools(outside), scout.as_tool(description="Looks around.")],
        policy=POLICY,
    )

    async def errands(verbs: Verbs, _text: str) -> str:
        verbs.now(CLOCK)
        town = verbs.pick("town", ["Rome", "Oslo"], choice="Rome", why="it is dry")
        said = await verbs.call(guide, {"town": town}, "guide")
        verbs.note("said", KeyValueContent(key="said", value=said.text), [said.seq])
        return f"{town}: {said.text}"

    await record.run(gesta.Agent("errands", program=errands, policy=POLICY), "Go.", session=SESSION, key="m")


def crew(record: Record, outside: Outside) -> Callable[..., ChatAgent]:
    """Return the function that makes chat agents with the same tools."""

    class Reserve(ToolMessage):
        request: str = "reserve"
        purpose: str = "To reserve an <item>."
        item: str
        _tool_effect: Effect | None = "idempotent"

        async def handle_async(self) -> str:
            await checkpoint()
            return outside.once("reserve", f"reserve {self.item}", self.item)

    class Price(ToolMessage):
        request: str = "price"
        purpose: str = "To find the price of an <item>."
        item: str
        _tool_effect: Effect | None = "pure"

        async def handle_async(self) -> int:
            if self.item == "air":
                raise ValueError("air has no price")
            await checkpoint()
            return len(self.item)

    def agent(name: str, *script: Any, native: bool = False, use: bool = True, handle: bool = True) -> ChatAgent:
        llm = mind(outside, script) if script else None
        config = ChatAgentConfig(name=name, llm=llm, use_tools=not native, use_functions_api=native, policy=POLICY)
        made = ChatAgent(config, record=record, session=SESSION)
        made.enable_message([Reserve, Price], use=use, handle=handle)
        return made

    return agent


async def play_task(record: Record, outside: Outside) -> None:
    """A task has a sub-task, which has one; each has tools of its own, called natively or as JSON in text."""
    agent = crew(record, outside)
    boss = agent(
        "boss",
        [gesta.call("reserve", item="hall"), gesta.call("price", item="hall")],
        "Furnish the hall.",
        gesta.call("reserve", item="flowers"),
        "DONE The hall is furnished.",
        native=True,
    )
    buyer = agent(
        "buyer",
        'First the desk. {"request": "reserve", "item": "desk"}',
        "Light it, please.",
        '{"request": "price", "item": "lamp"} {"request": "reserve", "item": "chair"}',
        "DONE A desk, a chair and light.",
    )
    clerk = agent(
        "clerk",
        [gesta.call("price", item="candle"), gesta.call("reserve", item="lamp")],
        gesta.call("done_tool", content="One lamp."),
        native=True,
    )
    clerk.enable_message(DoneTool)
    task, middle, last = (Task(each, interactive=False) for each in (boss, buyer, clerk))
    middle.add_sub_task(last)
    task.add_sub_task(middle)
    await run_once(record, task)


async def play_handed(record: Record, outside: Outside) -> None:
    """A task hands the calls of its model, several at once, to a sub-task that has no model."""
    agent = crew(record, outside)
    items = ["one", "two", "three", "four", "five", "six"]  # as many as make seqs of both runs meet
    boss = agent(
        "boss",
        [gesta.call("reserve", item=item) for item in items],
        [gesta.call("reserve", item="seven"), gesta.call("price", item="air")],
        "DONE All is reserved.",
        native=True,
        handle=False,
    )
    task = Task(boss, interactive=False)
    task.add_sub_task(Task(agent("clerk", use=False), interactive=False, done_if_response=["Agent"]))
    await run_once(record, task)


async def play_asked(record: Record, outside: Outside) -> None:
    """A person is asked, has something done, and ends the task."""
    boss = crew(record, outside)("boss", "What now?", '{"request": "reserve", "item": "desk"}', "More?", "Really?")
    boss.get_user_response = lambda text: "Reserve it." if "What" in text else "q"
    await run_once(record, Task(boss))


async def run_once(record: Record, task: Task) -> None:
    """Run a task unless it has ended: one that is run again then begins a new turn."""
    rows = [row for row in await record.store.runs(SESSION, task.name) if row.parent_run is None]
    turn = (await record.state(rows[0].run)).turn if rows else None
    if turn is None or turn.reason is None:
        await task.run_async("Prepare the feast.")


PLAYS: dict[str, Callable[[Record, Outside], Awaitable[None]]] = {
    "supervisor": play_supervisor,
    "errands": play_errands,
    "task": play_task,
    "handed": play_handed,
    "asked": play_asked,
}
