"""Law 8: every entry has its place, and every answer is explained, back to its question."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.conftest import COSTLY, FULL
from tests.laws.scenes import Tape, World, agent, play
from tests.laws.test_resume import from_prefix, prefixes, scripts, whole
from tests.ribs.test_lineage import NODES, supervisor_of

import gesta
from gesta.demo.play import Choices
from gesta.demo.play import play as play_demo
from gesta.entry import Entry, fold
from gesta.events import Event
from gesta.importers.file import import_file
from gesta.kinds import AssistantContent, Kind, RequestContent, ResolutionContent
from gesta.lineage import PLACES
from gesta.prompt import references
from gesta.record.record import Record
from gesta.views.lineage import Lineage, Unexplained, explain, unexplained

SHOWN = {Kind.User, Kind.ToolCall, Kind.ToolResult}


def answers(entries: Sequence[Entry]) -> Iterator[int]:
    return (entry.seq for entry in entries if isinstance(entry.content, AssistantContent))


def prompted(entries: Sequence[Entry], seq: int) -> set[int]:
    """All that entered the prompts of an answer, as its requests have it: not by causes but by blocks."""
    by_seq = {entry.seq: entry for entry in entries}
    request: int | None = next(
        entry.seq for entry in reversed(entries[: seq - 1]) if isinstance(entry.content, RequestContent)
    )
    found: set[int] = set()
    while request is not None:
        content = by_seq[request].content
        assert isinstance(content, RequestContent)
        found.update(source for sources in references(content) for source in sources)
        request = content.extends
    return found


def explained(entries: Sequence[Entry]) -> None:
    """Every entry is placed, and every answer names its question and all that it was made from."""
    by_seq = {entry.seq: entry for entry in entries}
    assert unexplained(entries) == Unexplained({}, (), (), 0)
    for seq in answers(entries):
        found = explain(entries, seq)
        assert found == explain(entries[:seq], seq), "later entries change no explanation"
        assert found.complete
        assert found.questions
        assert found.nodes[-1].seq == seq
        named = {node.seq for node in found.nodes}
        shown = prompted(entries, seq)
        assert {source for source in shown if by_seq[source].kind in SHOWN} <= named
        said = {entry.seq for entry in entries if entry.kind in (Kind.Approval, Kind.Resolution) and entry.seq < seq}
        assert said <= named, "every word of a person stands in the explanation of what came after it"
        ids = [node.id for node in found.nodes]
        for place, node in enumerate(found.nodes):
            assert set(node.derived_from) <= set(ids[:place])
            assert node.derived_from or node.type in ("Question", "Instructions")


@COSTLY
@given(st.lists(scripts, min_size=1, max_size=3))
def test_every_answer_of_any_run_is_explained(parts: list[list[Any]]) -> None:
    async def main() -> None:
        tape = Tape()
        acting = agent(World(), [step for part in parts for step in part])
        outcomes = await play(tape, acting, [f"do part {place}" for place, _ in enumerate(parts)])
        entries = await Record(tape, lambda made: made).read(outcomes[0].run)
        explained(entries)
        for end in range(len(entries)):
            assert unexplained(entries[:end]) == Unexplained({}, (), (), 0)

    anyio.run(main)


@COSTLY
@given(scripts)
def test_a_run_that_was_resumed_is_explained_as_well(script: list[Any]) -> None:
    async def main() -> None:
        tape, world, _ = await whole(script)
        for prefix in prefixes(tape.tape):
            for lost in (False, True):
                explained((await from_prefix(script, prefix, world, lost=lost))[1])

    anyio.run(main)


@pytest.mark.parametrize("verdict", ["done", "failed", "retry"])
async def test_what_a_person_says_of_a_doubt_is_in_the_explanation(verdict: Any) -> None:
    tape, world = Tape(), World()
    script = [gesta.call("doubtful", x=1), "done"]

    async def doubtful(x: int) -> str:
        world.fired["doubtful"] += 1
        if world.fired["doubtful"] == 1:
            raise gesta.InDoubt("the line went dead")
        return "there"

    acting = agent(world, script, tools=[gesta.tool(doubtful, effect="once")])
    (waiting,) = await play(tape, acting)
    record = Record(tape, lambda made: made)
    doubt = waiting.waiting[0].of
    assert doubt is not None
    assert await record.send(waiting.run, ResolutionContent(of=doubt, verdict=verdict, by="ann"), key="r")
    (done,) = await play(tape, acting)
    assert done.answer == "done"
    explained(await record.read(done.run))


def told_as_explained(events: Sequence[Event], entries: Sequence[Entry]) -> int:
    """Every explain event says what the explanation of its entry says afterwards."""
    heard = [event for event in events if event.type == "explain"]
    ids = {entry.id: entry for entry in entries}
    for event in heard:
        assert event.explain_graph is not None
        assert event.explain_id is not None
        entry = ids[event.explain_id]
        node = explain(entries, entry.seq, entry.run).nodes[-1]
        assert (node.type, node.derived_from) == (event.explain_graph.node, event.explain_graph.derived_from)
    return len(heard)


@given(st.lists(scripts, min_size=1, max_size=3))
def test_what_is_told_while_a_run_goes_on_is_what_is_explained_afterwards(parts: list[list[Any]]) -> None:
    async def main() -> None:
        tape, events = Tape(), list[Event]()
        acting = agent(World(), [step for part in parts for step in part])
        for place, _ in enumerate(parts):
            record = Record(tape, lambda made: made)  # another one for each turn: what it tells is in no memory
            outcome = await record.run(acting, f"do part {place}", session="s", listener=events.append)
        entries = await record.read(outcome.run)
        assert told_as_explained(events, entries) >= 1

    anyio.run(main)


async def test_what_a_supervisor_and_its_agents_tell_is_what_is_explained_afterwards() -> None:
    async with gesta.open(":memory:") as record:
        events: list[Event] = []
        for text in ("where is gold?", "and now?"):
            await record.run(supervisor_of("cellar", "garden"), text, session="s", listener=events.append)
        entries = [entry for row in await record.store.runs() for entry in await record.read(row.run)]
    assert told_as_explained(events, entries) == 2 * len(NODES)


@given(scripts, st.integers(0, 40))
def test_lineage_is_a_fold(script: list[Any], cut: int) -> None:
    async def main() -> None:
        _, _, entries = await whole(script)
        assert fold(Lineage(), entries[cut:], fold(Lineage(), entries[:cut])) == fold(Lineage(), entries)

    anyio.run(main)


@pytest.mark.slow
def test_the_runs_of_the_demo_are_explained(tmp_path: Path) -> None:
    async def every() -> list[list[Entry]]:
        async with gesta.open(str(tmp_path / "demo.gesta"), readonly=True) as record:
            return [await record.read(row.run) for row in await record.store.runs()]

    with (tmp_path / "said").open("w", encoding="utf-8") as said:
        play_demo(Choices(record=str(tmp_path / "demo.gesta"), yes=True), Console(file=said))
    runs = anyio.run(every)
    assert [len(list(answers(entries))) for entries in runs] == [4, 4]
    for entries in runs:
        explained(entries)


RETAIL = {  # conversations, answers, and unprompted greetings
    "tau-bench/trajectories/retail-grok-3-with-injected-503.json.gz": (115, 0),
    "tau2-bench/results/retail-gpt-4.1.json.gz": (40, 40),
    "tau2-bench/results/retail-toolorchestra-gpt-5.json.gz": (114, 114),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RETAIL)[: None if FULL else 1], ids=lambda name: name.rpartition("/")[2])
async def test_recorded_retail_conversations_are_explained(corpus: Path, tmp_path: Path, name: str) -> None:
    async with gesta.open(str(tmp_path / "retail.gesta")) as record:
        await import_file(record, corpus / name)
        runs = [await record.read(row.run) for row in await record.store.runs()]
    found = [unexplained(entries) for entries in runs]
    assert [each.entries for each in found] == [{}] * len(runs)
    assert [each.answers for each in found] == [()] * len(runs)
    assert (len(runs), sum(len(each.unprompted) for each in found)) == RETAIL[name]
    for entries, each in zip(runs, found, strict=True):
        marked = ["causes" in (entry.annotations or {}).get("inferred", ()) for entry in entries]
        assert each.inferred == sum(marked) > 0
        for seq in list(answers(entries))[-1:]:
            last = explain(entries, seq)
            assert last.complete
            assert last.nodes[-1].inferred or not last.questions
            assert {node.type for node in last.nodes} >= {"Conclusion"}


def test_every_kind_has_a_place() -> None:
    assert set(PLACES) == set(Kind)
