"""The explanations that the pages ask for are made from entries that stay folded, and are those of `gesta why`."""

from pathlib import Path

import pytest

import gesta
from gesta.views.across import explain_run
from gesta.web.lineages import Lineages


def agents(answers: int) -> gesta.Agent:
    @gesta.tool(effect="pure")
    def price(of: str) -> str:
        """Return a price."""
        return f"{of}: 12.50 euros"

    clerk = gesta.Agent("clerk", model=gesta.function(lambda *_: "It is 12.50 euros, the clerk says."), tools=[price])
    script = [
        each
        for _ in range(answers)
        for each in (gesta.call("price", of="tea"), gesta.call("clerk", task="What is tea?"), "12.50")
    ]
    return gesta.Agent("desk", model=gesta.scripted(*script), tools=[price, clerk.as_tool()])


@pytest.mark.anyio
async def test_answers_that_come_while_somebody_looks_are_explained_as_by_a_new_look(tmp_path: Path) -> None:
    async with gesta.open(tmp_path / "r.gesta") as record:
        desk, lineages = agents(3), Lineages(record)
        for _ in range(3):
            outcome = await record.run(desk, "What is tea?", session="s")
            for seq in (None, 3, (await record.read(outcome.run))[-2].seq):
                explained = await lineages.explained(outcome.run, seq)
                assert explained.found == await explain_run(record, outcome.run, seq)
                assert explained.found.elsewhere == ()
            assert len({node.run for node in explained.found.nodes}) > 1, "the clerk has a run of its own"
            assert explained.passages
