"""Forks of real retail conversations: the right diff, nothing fired, and what is shared takes no space."""

import json
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from benchmarks.retail.agent import desk
from benchmarks.retail.corpus import FILES, Conversation, load_conversations, load_database
from benchmarks.retail.drive import converse
from benchmarks.retail.tools import WRITING_TOOLS
from benchmarks.retail.world import World
from msgspec.structs import replace
from tests.cli.conftest import Gesta, folder, gesta  # noqa: F401 - fixtures
from tests.conftest import FULL, sampled

import gesta as library
from gesta.compare.differences import compare
from gesta.compare.forks import Change, Fork, asked_otherwise, fork, go_on, recorded_model
from gesta.entry import Entry
from gesta.events import Outcome
from gesta.kinds import AttemptContent, RequestContent, ToolCallContent, ToolResultContent
from gesta.models.replay import replay
from gesta.store import RunRow

TAU2 = "tau2-bench/results/retail-gpt-4.1.json.gz"
PLAYED = list(FILES) if FULL else [TAU2]
CONVERSATIONS = 1000 if FULL else 2
"""Of each file, at most."""
SEQS = 1000 if FULL else 3
"""Of each conversation, at most: at which it is forked."""


class Scene:
    """A real conversation that was driven on a file, and what happens outside from then on."""

    def __init__(self, conversation: Conversation, place: Path) -> None:
        self.conversation, self.path = conversation, place / "r.gesta"
        World.create(place / "world.db", load_database(conversation.dialect)).close()
        self.world = World(place / "world.db")
        self.fired: list[str] = []
        """Tools that ran."""

    async def drive(self) -> None:
        """Have the conversation."""
        async with library.open(str(self.path)) as record:
            await converse(record, self.conversation, self.world)
        self.before, self.size = self.world.dump(), self.path.stat().st_size

    def agent(self, entries: Sequence[Entry]) -> library.Agent:
        """The agent, whose tools are watched, and whose model says what is on record."""
        return recorded_model(entries, desk(self.conversation, self.world, self._watched))

    def _watched(self, tool: library.Tool) -> library.Tool:
        def give(context: library.Context, **args: object) -> object:
            self.fired.append(tool.name)
            return tool.function(context=context, **args)

        return replace(tool, function=give)

    def untouched(self) -> bool:
        """Whether nothing at all happened outside."""
        return not self.fired and self.world.dump() == self.before


async def forked(record: library.Record, base: RunRow, how: Fork, agent: library.Agent) -> tuple[Outcome, list[Entry]]:
    made = await fork(record, base, how)
    return await go_on(record, made, agent), await record.read(made.run)


async def space(record: library.Record, run: str) -> tuple[int, int, int]:
    """The first seq of the rows of a run, how many they are, and its blobs."""
    rows = await record.store.sql(f"SELECT min(seq), count(*) FROM entries WHERE run = '{run}'")
    blobs = await record.store.sql(f"SELECT count(*) FROM blobs WHERE run = '{run}'")
    return *rows.rows[0], blobs.rows[0][0]


def other_result(entry: Entry) -> Change:
    """Another value in a result: of the status of what it shows, or else of the whole."""
    assert isinstance(entry.content, ToolResultContent)
    try:
        value = json.loads(str(entry.content.tool_result))
    except ValueError:
        value = None
    if isinstance(value, dict) and "status" in value:
        return Change(entry.seq, "tool_result.status", "lost")
    return Change(entry.seq, "tool_result", f"{entry.content.tool_result} (checked)")


def some(lot: random.Random, entries: Sequence[Entry]) -> list[Entry]:
    return sorted(lot.sample(entries, min(SEQS, len(entries))), key=lambda entry: entry.seq)


@pytest.mark.slow
@pytest.mark.timeout(1800 if FULL else 60)
@pytest.mark.parametrize("file", PLAYED)
async def test_a_fork_with_one_result_changed_shows_it_fires_nothing_and_shares_what_comes_before(
    corpus: Path, file: str, tmp_path: Path
) -> None:
    lot, made = random.Random(5), 0
    for place, conversation in enumerate(load_conversations(file)[:CONVERSATIONS]):
        (tmp_path / str(place)).mkdir()
        scene = Scene(conversation, tmp_path / str(place))
        await scene.drive()
        async with library.open(str(scene.path)) as record:
            base = await record.find(conversation.id)
            entries = await record.read(base.run)
            results = [entry for entry in entries if isinstance(entry.content, ToolResultContent)]
            for entry in some(lot, results):
                change = other_result(entry)
                _, own = await forked(record, base, Fork(changes=[change]), scene.agent(entries))
                (step,) = compare(entries, own).steps
                assert step.before == entry
                (difference,) = step.differences
                assert (difference.path, difference.after) == (f"$.{change.path}", change.value)
                assert not any(each.fired for each in compare(entries, own).after.effects)
                rest = [each for each in own if each.seq >= entry.seq]
                assert await space(record, own[0].run) == (entry.seq, len(rest), 0)
                assert not any(isinstance(each.content, AttemptContent) for each in rest)
                asked = [each.seq for each in rest if isinstance(each.content, RequestContent)]
                assert asked_otherwise(entries, own) == asked, "what was changed was shown to the model"
                made += 1
            assert scene.untouched()
            assert await record.read(base.run) == entries
            assert await record.verify() == []
        scene.world.close()
    print(f"{file}: {made} forks")
    assert made


@pytest.mark.slow
async def test_while_the_requests_are_the_same_a_fork_is_answered_from_the_record_and_else_it_stops(
    corpus: Path, tmp_path: Path
) -> None:
    conversation = load_conversations(TAU2)[0]
    scene = Scene(conversation, tmp_path)
    await scene.drive()
    async with library.open(str(scene.path)) as record:
        base = await record.find(conversation.id)
        entries = await record.read(base.run)
        strict = replace(scene.agent(entries), model=replay(entries, strict=True, stream=False))
        for seq in sampled(range(len(entries)), 5):  # ends as its base did, since each request has the same bytes
            ended, own = await forked(record, base, Fork(at=seq), strict)
            told = [str((step.before or step.after).kind) for step in compare(entries, own).steps]  # type: ignore[union-attr]
            lost = seq > 0 and entries[seq - 1].kind == "request"
            assert told == ["fault"] * lost, "a request that is shared without its answer is asked again"
            assert (ended.reason, asked_otherwise(entries, own)) == ("failed", []), "the recording ends with a question"
        first = next(entry for entry in entries if isinstance(entry.content, ToolResultContent))
        ended, own = await forked(record, base, Fork(changes=[other_result(first)]), strict)
        assert ended.error is not None
        assert "Strict replay: answer" in ended.error.message
        assert scene.untouched()
        assert await record.verify() == []


async def test_the_prefix_of_a_fork_takes_no_space_however_long_it_is(corpus: Path, tmp_path: Path) -> None:
    scene = Scene(max(load_conversations(TAU2), key=lambda each: len(each.messages)), tmp_path)
    await scene.drive()
    async with library.open(str(scene.path)) as record:
        base = await record.find(scene.conversation.id)
        entries = await record.read(base.run)
        ends = [entry.seq for entry in entries if entry.kind == "end"]
        for seq in (ends[0], ends[-1]):
            made = await fork(record, base, Fork(at=seq))
            assert await space(record, made.run) == (seq + 1, 2, 0)
        columns = "length(content) + length(digest) + length(salt)"
        sizes = await record.store.sql(f"SELECT run, sum({columns}) FROM entries GROUP BY run")
    held = dict(sizes.rows)
    whole = held.pop(base.run)
    assert len(entries) > 100
    assert all(size < whole / 50 for size in held.values())
    assert scene.path.stat().st_size - scene.size <= 2 * 4096, "two short rows each, and room in the indexes"


DESK = """
import os
from pathlib import Path
from msgspec.structs import replace
import gesta
from benchmarks.retail.agent import desk as made
from benchmarks.retail.corpus import load_conversations
from benchmarks.retail.world import World


def told(what):
    with open("outside.txt", "a") as file:
        file.write(what + "\\n")


def watched(tool):
    def give(**args):
        told(tool.name)
        return tool.function(**args)

    return replace(tool, function=give)


conversation = next(each for each in load_conversations(os.environ["FILE"]) if each.id == os.environ["CONVERSATION"])
desk = replace(
    made(conversation, World(Path("world.db")), watched), model=gesta.function(lambda messages, header: told("asked"))
)
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("imported", [False, True])
def test_the_command_line_shows_what_became_of_a_fork_and_stops_where_a_call_is_not_on_record(
    corpus: Path,
    imported: bool,
    folder: Path,  # noqa: F811
    gesta: Gesta,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conversation = load_conversations(TAU2)[0]
    scene = Scene(conversation, folder)
    if imported:
        assert gesta("import", str(corpus / TAU2), "--record", "r.gesta").exit_code == 0
    else:
        anyio.run(scene.drive)
    before = scene.world.dump()
    scene.world.close()
    (folder / "retail_desk.py").write_text(DESK)
    for name, value in (("GESTA_RECORD", "r.gesta"), ("FILE", TAU2), ("CONVERSATION", conversation.id)):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GESTA_CORPUS", os.fspath(corpus))
    with library.open_sync("r.gesta") as record:
        run = json.loads(gesta("find", "isabella.lopez3271", "--kinds", "tool-call", "--json").stdout.splitlines()[0])[
            "run"
        ]
        entries = record.read(run)
    results = [each for each in entries if isinstance(each.content, ToolResultContent)]
    shown = next(each.seq for each in results if '"status": "pending"' in str(each.content.tool_result))  # type: ignore[union-attr]
    words = ("--set", f"{shown}.tool_result.status=delivered", "--model", "recorded", "-s", "delivered")
    done = gesta("fork", run, "retail_desk.py:desk", *words)
    assert ("what it was not asked in run" in done.stderr) is not imported, "no request of an imported run is on record"
    said = gesta("diff", run, "delivered").stdout
    assert re.search(
        rf"~ {shown} → \d+ tool-result\n    \$\.tool_result\.status\n    - \"pending\"\n    \+ \"del", said
    )
    assert re.search(r"^fired +\d +(0|=)$", said, re.MULTILINE)
    calls = [each for each in entries if isinstance(each.content, ToolCallContent)]
    writing = next(each.seq for each in calls if each.content.tool_name in WRITING_TOOLS)  # type: ignore[union-attr]
    words = ("--set", f"{writing}.tool_args.payment_method_id=paypal_1621947", "--model", "recorded", "-s", "paypal")
    done = gesta("fork", run, "retail_desk.py:desk", *words)
    assert done.exit_code == 3
    assert re.search(
        rf"It stops here: modify_pending_order_payment \(call \d+\) is not on record of run {run}", done.stderr
    )
    assert not (folder / "outside.txt").exists(), "no tool ran, and no model was asked"
    with World(folder / "world.db") as world:
        assert world.dump() == before
    assert gesta("verify", "r.gesta").exit_code == 0
