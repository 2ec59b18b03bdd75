"""Runs go out with those below them, so that whoever goes on with them elsewhere knows what they did there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands import gesta_command

import gesta
from gesta.bridges.jsonl import together
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
async def test_a_fork_is_exported_with_its_base_and_the_runs_below_both() -> None:
    async with gesta.open() as record:
        base = await record.run(by_tool(), "Pay.", session="s")
        made = await fork(record, await record.find(base.run), Fork())
        below = [row.run for row in await record.store.runs() if row.parent_run == base.run]
        assert await together(record.store, made.run) == [base.run, made.run, *below]
