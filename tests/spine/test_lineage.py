"""What an entry was made from follows from causes alone."""

import gesta
from gesta.lineage import Origin, derived


async def traced(*script: object) -> tuple[str, Origin]:
    async with gesta.open(":memory:") as record:
        agent = gesta.Agent("a", model=gesta.scripted(*script))  # type: ignore[arg-type]
        outcome = await record.run(agent, "hello")
        origin = Origin()
        for entry in await record.read(outcome.run):
            origin.add(entry)
        return outcome.run, origin


async def test_an_answer_is_a_conclusion_that_derives_from_its_question() -> None:
    run, origin = await traced("hi")
    nodes = {node: seq for seq, node in origin.nodes.items()}
    assert {"Question", "Conclusion"} <= set(nodes)
    found = derived({run: origin}, (run, nodes["Conclusion"]), lambda key: key[1] in origin.nodes)
    assert found == ((run, nodes["Question"]),)
