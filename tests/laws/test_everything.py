"""Laws 1, 2, 3, 6 and 9 over agents drawn by lot: every policy, child runs, programs, people and times; dying in between.

A thread of a tool outlives a death inside this process, so how often effects fire is held by real kills: `test_crashes`.
"""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conftest import COSTLY
from tests.laws.random_agents import LETTERS, agent
from tests.laws.test_killed_patterns import Mortal
from tests.validators.chat_completions import violations

import gesta
from gesta import address
from gesta.address import Record
from gesta.demo.facts import bought_again
from gesta.entry import Entry
from gesta.integrity.verify import audit
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    AssistantContent,
    Content,
    EndContent,
    RequestContent,
    ResolutionContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.prompt import rebuild
from gesta.state.calls import WAITS
from gesta.state.run import RunState
from gesta.stores.memory import MemoryStore
from gesta.views.lineage import unexplained

MODEL = gesta.scripted("Anything.", stream=False)
ROUNDS = 60
"""Times that a turn is taken up before it counts as one that does not end."""


def resolutions(state: RunState, lot: random.Random) -> list[tuple[str, Content]]:
    """Settle each doubt, since nobody else is there to do it."""
    del lot
    tries = [call.last for call in state.calls.values() if call.last is not None]
    doubts = [last for last in tries if last.verdict is None and last.doubt != WAITS]
    return [
        (f"settled-{last.seq}", ResolutionContent(of=last.seq, verdict="done", by="eve", result="it happened"))
        for last in doubts
    ]


Tellers = tuple[Callable[[RunState, random.Random], list[tuple[str, Content]]], ...]
TELLERS: Tellers = (*LETTERS, resolutions)


async def told(store: Mortal, lot: random.Random, tellers: "Tellers") -> None:
    """Have everybody outside send what they have to say."""
    record = Record(store, address.bind)
    for row in await store.runs():
        state = await record.state(row.run)
        for tell in tellers:
            for key, content in tell(state, lot):
                await record.send(row.run, content, key=key)


def agreeing(state: RunState, lot: random.Random) -> list[tuple[str, Content]]:
    """Approve every call and answer every question, the same whenever they come."""
    del lot
    asked = [call.asked for call in state.calls.values() if call.awaits_approval and call.asked is not None]
    said: list[tuple[str, Content]] = [
        (f"ann-{seq}", ApprovalContent(of=seq, verdict="approved", by="ann")) for seq in asked
    ]
    questions = state.questions.items()
    return said + [(f"cid-{seq}", AnswerContent(of=seq, value=len(each.value), by="cid")) for seq, each in questions]


async def lived(seed: int, deaths: list[int], folder: Path, tellers: Tellers = TELLERS) -> MemoryStore:
    """Run an agent's turn to its end, through deaths at some commits. Returns what is on record."""
    store, lot, left = Mortal(), random.Random(seed), list(deaths)
    for _ in range(ROUNDS):
        store.begin((left.pop(), "after") if left else None)
        outcome = None
        try:
            outcome = await Record(store, address.bind).run(agent(seed, folder), "Begin.", session="s", key="m")
        except BaseException:
            if not store.dead:
                raise
        if store.dead or outcome is None:
            continue
        if outcome.reason != "waiting" and not left:
            return store
        store.begin(None)
        await told(store, lot, tellers if not left else tellers[:3])
        await anyio.sleep(0.005)
    raise AssertionError(f"agent {seed} did not come to an end after {deaths}")


async def laws(store: MemoryStore) -> None:
    """Hold what is on record against the laws."""
    record = Record(store, address.bind)
    every: list[Entry] = []
    for row in await store.runs():
        entries = await record.read(row.run)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))  # law 1
        for entry in entries:
            if isinstance(entry.content, RequestContent):
                made = rebuild(entries, entry.seq, address.formatter("tool-calls"), MODEL)
                assert violations(made.body()) == []  # law 3
                assert made.digest == entry.content.body_digest
        assert bought_again(entries) == 0
        assert not (await record.state(row.run)).open  # law 6
        every += entries
    assert unexplained(every).entries == {}
    assert await audit(store) == []
    await flipped(store)


async def flipped(store: MemoryStore) -> None:
    """Law 9: a changed byte is found at its entry."""
    place = len(store._rows) // 2
    row = store._rows[place]
    run = store._runs[row.run]
    changed = replace(row, content=row.content.replace(":", ": ", 1))
    run[run.index(row)] = changed
    store._rows[place] = changed
    flaws = await audit(store)
    assert (flaws[0].run, flaws[0].seq) == (row.run, row.seq)


@COSTLY
@given(st.integers(0, 10_000), st.lists(st.integers(1, 12), max_size=3))
def test_whatever_an_agent_is_and_wherever_it_dies_the_laws_hold(seed: int, deaths: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        async def main() -> None:
            await laws(await lived(seed, deaths, folder))

        anyio.run(main)


async def facts(store: MemoryStore) -> list[Any] | None:
    """What was done and said in each run, by its task; None where somebody had to settle a doubt, or a call was lost."""
    record, found = Record(store, address.bind), []
    for row in await store.runs():
        entries = await record.read(row.run)
        by_seq = {entry.seq: entry.content for entry in entries}
        done = []
        for content in by_seq.values():
            if isinstance(content, ResolutionContent) and content.by == "eve":
                return None
            if isinstance(content, ToolResultContent) and content.call is not None:
                if content.outcome in ("interrupted", "unknown", "late"):
                    return None
                call = by_seq[content.call]
                assert isinstance(call, ToolCallContent)
                done.append((call.tool_name, str(call.tool_args), str(content.tool_result), content.outcome))
        said = [each.value for each in by_seq.values() if isinstance(each, AssistantContent)]
        said += [str(each.state) for each in by_seq.values() if isinstance(each, EndContent) and not said]
        task = next(content.value for content in by_seq.values() if isinstance(content, UserContent | SystemContent))
        found.append((row.name.partition("#")[0], task, sorted(done), said[-1:]))
    return sorted(found)


@COSTLY
@given(st.integers(0, 10_000), st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_wherever_an_agent_dies_it_reaches_the_same_facts(seed: int, deaths: list[int]) -> None:
    async def main() -> None:
        tellers = (agreeing, agreeing, agreeing, resolutions)
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            harmed = await facts(await lived(seed, deaths, Path(one), tellers))
            whole = await facts(await lived(seed, [], Path(other), tellers))
            assert harmed is None or harmed == whole

    anyio.run(main)
