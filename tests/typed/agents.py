"""A user's program: an agent that answers with a value of a type is taken wherever an agent is."""

from dataclasses import dataclass
from typing import assert_type

import gesta
from gesta.compare.forks import Fork, fork, go_on
from gesta.compare.replaying import replay_run
from gesta.patterns.plan import plan_then_execute
from gesta.patterns.router import router
from gesta.patterns.supervisor import supervisor
from gesta.serve import app
from gesta.worker import Worker


@dataclass
class City:
    """What is asked for."""

    name: str


cities = gesta.Agent("cities", model="openai:gpt-5-mini", output=City)
plain = gesta.Agent("plain", model="openai:gpt-5-mini", tools=[cities.as_tool()])


async def count(verbs: gesta.Verbs, text: str) -> int:
    """Count."""
    return len((await verbs.call(cities, text, "ask")).text)


counter = gesta.Agent("counter", program=count)
gesta.Agent("plan", program=plan_then_execute("plan", "openai:gpt-5-mini", executor=cities).program)
supervisor("supervisor", "openai:gpt-5-mini", worker=cities)
router("router", "openai:gpt-5-mini", {"cities": cities, "plain": plain})
app("a.gesta", [plain, cities, counter])


async def main() -> None:
    """Work, fork and replay."""
    async with gesta.open("a.gesta") as record:
        await Worker(record, [plain, cities, counter]).work(print)
        base = await record.find("last")
        made = await fork(record, base, Fork(at=2))
        assert_type(await go_on(record, made, cities), gesta.Outcome[City])
        print((await replay_run({base.run: await record.read(base.run)}, base.run, cities)).divergence)
