"""Real retail conversations through Gesta's own loop: the same facts from every prefix, and through real kills."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from benchmarks.retail.corpus import Conversation, load_conversations, load_database
from benchmarks.retail.drive import compare, converse, results
from benchmarks.retail.reexecute import Tally
from benchmarks.retail.rules import RetailError
from benchmarks.retail.tools import Retail
from benchmarks.retail.world import World
from tests.conftest import FULL, sampled, tried
from tests.laws.scenes import Tape, again, doubtful, facts

import gesta
from gesta import address
from gesta.address import Record
from gesta.entry import Entry
from gesta.kinds import AttemptContent, ToolCallContent, ToolResultContent
from gesta.store import Batch

TAU2 = "tau2-bench/results/retail-gpt-4.1.json.gz"
CONVERSATIONS = 20
EVERY = 1 if FULL else 32
KILLS = tried(1, 3, 50)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def template(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("retail") / "template.db"
    World.create(path, load_database("tau2")).close()
    return path


@pytest.fixture(scope="module")
def conversations(corpus: Path) -> list[Conversation]:
    return list(load_conversations(TAU2)[:CONVERSATIONS])


async def entries_of(store: Tape, run: str) -> list[Entry]:
    return await Record(store, address.bind).read(run)


def rebuild(world: World, entries: Sequence[Entry], *, lost: bool) -> None:
    """Bring a fresh world to where it was at a prefix: finished calls, and, if `lost`, those that were being tried."""
    retail = Retail(world, "tau2")
    calls = {entry.seq: entry for entry in entries if isinstance(entry.content, ToolCallContent)}
    done = [entry.content.call for entry in entries if isinstance(entry.content, ToolResultContent)]
    tried = {entry.content.of: entry.content.key for entry in entries if isinstance(entry.content, AttemptContent)}
    for seq in [*(seq for seq in done if seq in tried), *(doubtful(entries) if lost else [])]:
        call = calls[seq]
        assert isinstance(call.content, ToolCallContent)
        with suppress(RetailError):
            retail.call(call.content.tool_name, call.content.tool_args, tried[seq] or "")


async def resumed(conversation: Conversation, prefix: Sequence[Batch], world: World, *, lost: bool) -> list[Entry]:
    store = await again(prefix)
    record = Record(store, address.bind)
    if prefix:
        rebuild(world, await record.read(prefix[0].lease.run), lost=lost)
    outcomes = await converse(record, conversation, world)
    return await record.read(outcomes[0].run)


@pytest.mark.sample(3)
@pytest.mark.timeout(900 if FULL else 40)
@pytest.mark.parametrize("place", sampled(range(CONVERSATIONS), 3))
def test_every_prefix_of_a_real_conversation_resumes_to_the_same_facts_and_world(
    place: int, conversations: list[Conversation], template: Path, tmp_path: Path
) -> None:
    async def main() -> None:
        conversation, tape = conversations[place], Tape()
        with World.copy(template, tmp_path / "whole.db") as whole:
            outcomes = await converse(Record(tape, address.bind), conversation, whole)
            entries = await entries_of(tape, outcomes[0].run)
            for end in range(place % EVERY, len(tape.tape) + 1, EVERY):
                for lost in (False, True):
                    with World.copy(template, tmp_path / "again.db") as world:
                        found = await resumed(conversation, tape.tape[:end], world, lost=lost)
                        assert facts(found) == facts(entries), f"prefix of {end} commits, lost={lost}"
                        assert world.same_as(whole)
                        assert sorted(world.applied().values()) == sorted(whole.applied().values())

    anyio.run(main)


@pytest.mark.slow
@pytest.mark.timeout(900 if FULL else 60)
def test_real_kills_at_random_points_lose_and_repeat_nothing(
    conversations: list[Conversation], template: Path, tmp_path: Path
) -> None:
    chance, kills, driven = random.Random(7), 0, 0
    while kills < KILLS and driven < 4 * KILLS:
        place = driven % CONVERSATIONS
        record, world = tmp_path / f"{driven}.gesta", tmp_path / f"{driven}.db"
        World.copy(template, world).close()
        while not drive(place, record, world, chance.uniform(0.0, 0.12) if kills < KILLS else None):
            kills += 1
        check(conversations[place], record, world, template, tmp_path / "whole.db")
        driven += 1
    assert kills >= KILLS, f"only {kills} kills fell inside a conversation"


def drive(place: int, record: Path, world: Path, kill_after_s: float | None) -> bool:
    """Run the driver, and kill it some time after it began; true if it was done before."""
    command = [sys.executable, "-m", "benchmarks.retail.child", TAU2, str(place), str(record), str(world)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ)) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            child.send_signal(signal.SIGKILL)
        return "done" in child.stdout.read()


def check(conversation: Conversation, record: Path, world: Path, template: Path, fresh: Path) -> None:
    async def main() -> None:
        tape = Tape()
        with World.copy(template, fresh) as whole, World(world) as found:
            outcomes = await converse(Record(tape, address.bind), conversation, whole)
            expected = await entries_of(tape, outcomes[0].run)
            async with gesta.open(str(record)) as opened:
                run = (await opened.find(conversation.id)).run
                entries = await opened.read(run)
                assert await opened.verify() == []
            assert facts(entries) == facts(expected)
            assert found.same_as(whole)
            tally = Tally("kills")
            compare(conversation, results(entries), tally)
            assert tally.equal == tally.compared

    anyio.run(main)
