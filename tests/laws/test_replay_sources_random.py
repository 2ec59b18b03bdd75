"""Law 10 for any source: whatever it offers from step to step, and wherever the run was left, its record replays it."""

import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import COSTLY

import gesta
from gesta.compare.replaying import replay_run
from gesta.content import ToolServer
from gesta.errors import NotWaiting
from gesta.function_tool.context import Context, NeedsAnswer, ToolQuestion
from gesta.function_tool.tool import Tool

NAMES = ("a", "b", "c", "d")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Shelf(msgspec.Struct):
    """A source that offers other tools each time that it is asked, and tools that end in every way."""

    dice: random.Random
    fired: list[str] = []
    holding: bool = False
    shared_by: str = "shelf"
    made: list[Tool] = []
    stale: bool = True
    """Whether the source may offer other tools when it is asked next."""

    def described(self) -> Any:
        return "shelf"

    def open(self, start: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> "Shelf":
        del start
        return self

    async def offered(self, source: Any, agent: Any, *, again: bool = False) -> Sequence[Tool]:
        del source, agent, again
        if self.stale and self.dice.random() < 0.5:
            names = [name for name in NAMES if self.dice.random() < 0.7]
            self.stale = False
            self.made = [self.tool(name) for name in names]
        return self.made

    def ended(self, run: str) -> None:
        pass

    def close(self) -> None:
        pass

    def tool(self, name: str) -> Tool:
        dice, fired = self.dice, self.fired

        async def function(n: int, context: Context) -> str:
            fired.append(name)
            self.stale = True
            match dice.randrange(8):
                case 0:
                    raise gesta.ToolError("it fails")
                case 1:
                    raise gesta.InDoubt("the server was lost")
                case 2 | 3 if not context.answers:
                    raise NeedsAnswer({"which": ToolQuestion("Which?")}, {"n": n})
                case 4:
                    sampled = gesta.Agent("sampling", model=gesta.scripted(f"{name} is fine"))
                    return (await context.call_as("sampling-1", sampled, "Well?")).answer or ""
            return f"{name} {n} {dict(context.answers)}"

        return Tool(
            name=name,
            description=dice.choice(["", f"Do {name}."]),
            args_schema=SCHEMA,
            function=function,
            effect=dice.choice(["pure", "idempotent", "once"]),
            approval=dice.random() < 0.2,
            context_names=("context",),
            server=ToolServer(name="shelf", version=str(dice.randrange(2)), schema=f"{dice.randrange(9)}"),
        )


class Unopened(msgspec.Struct):
    """A source that must not be opened."""

    shared_by: str = "unopened"

    def described(self) -> Any:
        return None

    def open(self, start: Any) -> Any:
        raise AssertionError("a replay opened a source")


@gesta.tool(effect="pure")
def own(n: int) -> int:
    """Count."""
    return n


def agent(dice: random.Random, source: Any) -> gesta.Agent:
    def said(messages: list[Any], _header: Any) -> Any:
        turn = sum(each["role"] == "user" for each in messages)
        if sum(each["role"] == "tool" for each in messages) >= 4 * turn:
            return "Done."
        calls = [
            gesta.call(dice.choice([*NAMES, "own", "never"]), n=dice.randrange(3)) for _ in range(dice.randrange(1, 4))
        ]
        return calls if dice.random() < 0.9 else "Done already."

    return gesta.Agent("buyer", model=gesta.function(said), tools=[own, source])


async def settle(dice: random.Random, record: gesta.Record, each: gesta.Waiting) -> None:
    with suppress(NotWaiting):  # an answer before it ended what this one waits for
        match each.what:
            case "approval" if dice.random() < 0.7:
                await record.approve(each, by="Ada")
            case "approval":
                await record.deny(each, by="Ada")
            case "question":
                await record.answer(each, dice.choice(["x", "y"]), by="Ada")
            case "doubt":
                await record.resolve(each, dice.choice(["done", "retry", "failed"]), by="Ada")


async def lived(dice: random.Random, source: Shelf, turns: int) -> dict[str, list[gesta.Entry]]:
    """Return the runs of a conversation in which each wait is answered in some way, and some turns are cancelled."""
    async with gesta.open() as record:
        acting = agent(dice, source)
        for turn in range(turns):
            outcome = await record.run(acting, f"Turn {turn}.", session="s")
            for _ in range(40):
                if not outcome.waiting:
                    break
                source.stale = True
                for each in outcome.waiting[: dice.randrange(1, 4)]:
                    await settle(dice, record, each)
                if dice.random() < 0.05:
                    await record.cancel("s", by="Ada")
                outcome = await record.resume("s", acting)
            else:
                await record.cancel("s", by="Ada")
        return {row.run: await record.read(row.run) for row in await record.store.runs()}


@COSTLY
@given(st.integers(0, 100_000))
def test_whatever_a_source_offers_its_runs_are_replayed_without_it(seed: int) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        source = Shelf(dice)
        runs = await lived(dice, source, 2)
        root = next(run for run, entries in runs.items() if entries[0].content.opened.parent_run is None)  # type: ignore[union-attr]
        fired = len(source.fired)
        for end in {len(runs[root]), *dice.sample(range(1, len(runs[root])), min(3, len(runs[root]) - 1))}:
            found = await replay_run({**runs, root: runs[root][:end]}, root, agent(dice, Unopened()))
            assert found.first is None, (end, found.first)
            assert found.entries == end
        assert len(source.fired) == fired

    anyio.run(main)
