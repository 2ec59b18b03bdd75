"""Spans follow from the record alone: whoever begins to read it anywhere ends with the same spans."""

import random
from pathlib import Path

import anyio
import pytest
from tests.conftest import FULL
from tests.laws.random_agents import agent

import gesta
from gesta.bridges.otlp.encoding import span_message
from gesta.bridges.otlp.folding import Folding
from gesta.entry import Entry
from gesta.log.journal import entry_of


async def told(record: gesta.Record, entries: list[Entry]) -> list[str]:
    """The spans that a folding which begins with the first of these entries gives."""
    folding, found = Folding(record.store, content=True), list[str]()
    for entry in entries:
        spans, sampled = await folding.add(entry)
        assert sampled or not spans
        found += [str(span_message(span)) for span in spans]
    return found


async def entries_of(record: gesta.Record) -> list[Entry]:
    last, found = await record.store.last(), list[Entry]()
    async for rows in record.store.tail(0):
        found += [await entry_of(record.store, row) for row in rows]
        if found[-1].pos >= last:
            break
    return found


async def played(seed: int, folder: Path) -> None:
    """Two turns of a random agent, approved where they wait, and one of the turns forked."""
    async with gesta.open(folder / "a.gesta", durability="normal") as record:
        drawn = agent(seed, folder)
        for text in ("go", "on"):
            outcome = await record.run(drawn, text, session="s")
            for waiting in outcome.waiting:
                if waiting.what == "approval":
                    await record.approve(waiting, by="ann")
            if outcome.waiting:
                await record.resume(outcome.run, drawn)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(40 if FULL else 6))
def test_a_place_in_the_record_is_all_that_an_exporter_needs(seed: int, tmp_path: Path) -> None:
    lot = random.Random(seed)

    async def main() -> None:
        await played(seed, tmp_path)
        async with gesta.open(tmp_path / "a.gesta") as record:
            entries = await entries_of(record)
            whole = await told(record, entries)
            assert len(set(whole)) == len(whole) > 0
            cuts = range(len(entries)) if FULL else lot.sample(range(len(entries)), min(8, len(entries)))
            for cut in cuts:
                assert await told(record, entries[:cut]) + await told(record, entries[cut:]) == whole

    anyio.run(main)


@pytest.mark.parametrize("seed", range(40 if FULL else 6))
def test_each_span_lies_under_one_that_is_open_or_was_sent_and_ends_after_it_began(seed: int, tmp_path: Path) -> None:
    async def main() -> None:
        await played(seed, tmp_path)
        async with gesta.open(tmp_path / "a.gesta") as record:
            folding, spans = Folding(record.store), []
            for entry in await entries_of(record):
                spans += (await folding.add(entry))[0]
            ids = [each.span for each in spans]
            assert len(set(ids)) == len(ids)
            begun = {(each.run, each.seq) for each in spans}
            ended = {row.run for row in await record.store.runs() if not (await record.state(row.run)).open}
            for span in spans:
                assert span.start <= span.end
                assert (span.run, span.seq) in begun
                if span.parent is not None and span.run in ended and {row.run for row in spans} <= ended:
                    assert span.parent in ids
            for run in ended:
                state = await record.state(run)
                assert {(run, begin) for begin in state.began} <= begun

    anyio.run(main)
