"""Runs go out with those below them, so that whoever goes on with them elsewhere knows what they did there."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands import gesta_command

import gesta
from gesta.bridges.jsonl import together
from gesta.bridges.otlp.files import export
from gesta.bridges.pushing import push
from gesta.compare.forks import Fork, fork

PAID: list[str] = []


@gesta.tool(effect="once")
def pay() -> str:
    """Pay, and hear nothing."""
    PAID.append("paid")
    raise gesta.InDoubt("the line went dead")


def think(messages: list[Any], _header: Any) -> Any:
    return "Paid." if messages[-1]["role"] == "tool" else gesta.call("pay")


PAYER = gesta.Agent("payer", gesta.function(think), tools=[pay])


def by_tool() -> gesta.Agent:
    return gesta.Agent("boss", gesta.scripted(gesta.call("payer", task="Pay."), "Done."), tools=[PAYER.as_tool()])


def by_program() -> gesta.Agent:
    async def below(verbs: gesta.Verbs, text: str) -> str:
        return (await verbs.call(PAYER, text, "pay")).text

    async def program(verbs: gesta.Verbs, text: str) -> str:
        return (await verbs.call(gesta.Agent("below", program=below), text, "below")).text

    return gesta.Agent("boss", program=program)


@pytest.mark.parametrize("made", [by_tool, by_program])
def test_a_doubt_below_a_run_that_was_exported_is_a_doubt_where_it_was_imported(
    tmp_path: Path, made: Callable[[], gesta.Agent]
) -> None:
    PAID.clear()
    agent, file = made(), tmp_path / "s.jsonl"
    here, there = str(tmp_path / "here.gesta"), str(tmp_path / "there.gesta")
    with gesta.open_sync(here) as record:
        outcome = record.run(agent, "Pay.", session="s", key="1")
        record.run(gesta.Agent("other", gesta.scripted("Hello.")), "Hello.", session="s")
    below = 1 if made is by_tool else 2
    assert gesta_command("export", outcome.run, "--record", here, "-o", str(file)).exit_code == 0
    done = gesta_command("import", str(file), "--record", there)
    assert f"s.jsonl: {1 + below} runs, " in done.output
    with gesta.open_sync(there) as copy:
        outcome = copy.run(agent, "Pay.", session="s", key="1")
        assert ([each.what for each in outcome.waiting], PAID) == (["doubt"], ["paid"])
        assert copy.verify() == []


@pytest.mark.anyio
async def test_all_runs_below_are_exported_also_from_a_copy_that_got_them_before_those_above() -> None:
    low = gesta.Agent("low", gesta.scripted("Deep."))
    middle = gesta.Agent("middle", gesta.scripted(gesta.call("low", task="?"), "So."), tools=[low.as_tool()])
    top = gesta.Agent("top", gesta.scripted(gesta.call("middle", task="?"), "Done."), tools=[middle.as_tool()])
    async with gesta.open() as here, gesta.open() as there:
        run = (await here.run(top, "?")).run
        held = [await here.store.lease(row.run) for row in await here.store.runs() if row.name != "low#6"]
        assert (await push(here.store, there.store)).runs == 1  # somebody writes the others
        for lease in held:
            await here.store.release(lease)
        assert (await push(here.store, there.store)).runs == 2
        assert [row.name for row in await there.store.runs()] == ["low#6", "top", "middle#6"]
        assert set(await together(there.store, run)) == set(await together(here.store, run))
        assert await agents_in(there, run) == await agents_in(here, run) == ["low", "middle", "top"]


async def agents_in(record: gesta.Record, run: str) -> list[str]:
    """Return the agents whose turns are spans in an export for OpenTelemetry."""
    told = "".join([line async for line in export(record, run, content=False)])
    return sorted(re.findall(r'"name":\s*"invoke_agent (\w+)"', told))


@pytest.mark.anyio
async def test_a_fork_is_exported_with_its_base_and_the_runs_below_both() -> None:
    async with gesta.open() as record:
        base = await record.run(by_tool(), "Pay.", session="s")
        made = await fork(record, await record.find(base.run), Fork())
        below = [row.run for row in await record.store.runs() if row.parent_run == base.run]
        assert await together(record.store, made.run) == [base.run, made.run, *below]
