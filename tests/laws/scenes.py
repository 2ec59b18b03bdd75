"""Scenes for the laws: a world with effects that are counted, an agent that acts on it, and prefixes of what it did."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

import gesta
from gesta import address
from gesta.kinds import AssistantContent, AttemptContent, EndContent, Kind, ToolCallContent, ToolResultContent
from gesta.record.record import Record
from gesta.store import Batch
from gesta.stores.memory import MemoryStore

TEXT = "do it"


@dataclass
class World:
    """What the tools act on: rows by idempotency key, and how often each effect fired."""

    rows: dict[str, str] = field(default_factory=dict)
    fired: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "World":
        return World(dict(self.rows), Counter(self.fired))

    def act(self, key: str, text: str, *, keyed: bool) -> str:
        if keyed and key in self.rows:
            return self.rows[key]
        self.fired[key] += 1
        self.rows[key] = text
        return text


def tools(world: World) -> list[gesta.Tool]:
    """One tool of each effect policy."""

    async def look(x: int) -> str:
        return f"saw {x}"

    async def put(x: int, context: gesta.Context) -> str:
        return world.act(context.key, f"put {x}", keyed=True)

    async def pay(x: int, context: gesta.Context) -> dict[str, int]:
        world.act(context.key, f"{x}", keyed=False)
        return {"paid": x}

    async def wire(x: int, context: gesta.Context) -> str:
        return world.act(context.key, f"wired {x}", keyed=False)

    async def fail(x: int) -> str:
        raise ValueError(f"no {x} here")

    def paid(key: str) -> gesta.Done | gesta.NotDone:
        return gesta.Done({"paid": int(world.rows[key])}) if key in world.rows else gesta.NotDone()

    return [
        gesta.tool(look, effect="pure"),
        gesta.tool(put, effect="idempotent"),
        gesta.tool(pay, effect="once", reconcile=paid),
        gesta.tool(wire, effect="once"),
        gesta.tool(fail, effect="pure"),
    ]


def agent(world: World, script: Sequence[Any], **changes: Any) -> gesta.Agent:
    """An agent that follows a script in a world."""
    quick = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0, empty=0))
    made = gesta.Agent("actor", model=gesta.scripted(*script), tools=tools(world), policy=quick)
    return address.bind(msgspec.structs.replace(made, **changes))


class Tape(MemoryStore):
    """A memory store that remembers its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.tape: list[Batch] = []

    async def append(self, batch: Batch) -> int:
        self.tape.append(batch)
        return await super().append(batch)


async def again(batches: Iterable[Batch]) -> MemoryStore:
    """Make a store that holds what these commits wrote, as if its writer had died after the last."""
    store = MemoryStore()
    for batch in batches:
        await store.declare_gone(batch.lease.owner, "scenes")
        lease = await store.lease(batch.lease.run)
        await store.append(msgspec.structs.replace(batch, lease=lease, letters=()))
        await store.release(lease)
    return store


async def play(store: MemoryStore, acting: gesta.Agent, texts: Sequence[str] = (TEXT,)) -> list[gesta.Outcome]:
    """Send the messages, each under its own key: the driver that is run again after a crash."""
    record = Record(store, address.bind)
    return [await record.run(acting, text, session="s", key=f"m{place}") for place, text in enumerate(texts)]


def facts(entries: Iterable[gesta.Entry]) -> list[Any]:
    """What must be the same however often a run was interrupted: calls, arguments, outcomes, answers, reasons."""
    found: list[Any] = []
    results: dict[int, Any] = {}
    for entry in entries:
        content = entry.content
        if isinstance(content, ToolResultContent) and content.call is not None:
            results.setdefault(content.call, (content.tool_result, content.outcome))
    for entry in entries:
        content = entry.content
        if isinstance(content, ToolCallContent):
            found.append((content.tool_name, content.tool_args, results.get(entry.seq)))
        elif isinstance(content, AssistantContent):
            found.append(content.value)
        elif isinstance(content, EndContent):
            found.append((content.reason, content.status))
    return found


def doubtful(entries: Sequence[gesta.Entry]) -> list[int]:
    """Calls that were attempted and have no result."""
    done = {entry.content.call for entry in entries if isinstance(entry.content, ToolResultContent)}
    tried = [entry.content.of for entry in entries if isinstance(entry.content, AttemptContent)]
    return [call for call in dict.fromkeys(tried) if call not in done]


def kinds(entries: Iterable[gesta.Entry]) -> list[Kind]:
    """The kinds, in order."""
    return [entry.kind for entry in entries]
