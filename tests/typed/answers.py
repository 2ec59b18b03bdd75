"""A user's program: what an agent answers has a type."""

from dataclasses import dataclass
from typing import Any, Literal, assert_never, assert_type

import gesta
from gesta.function_tool.output import Output


@dataclass
class City:
    """What is asked for."""

    name: str
    people: int


plain = gesta.Agent("plain", model="openai:gpt-5-mini")
cities = gesta.Agent("cities", model="openai:gpt-5-mini", output=City)
lists = gesta.Agent("lists", model="openai:gpt-5-mini", output=list[int])
choice: Output[Literal["yes", "no"]] = Output(Literal["yes", "no"], by="tool")
judge = gesta.Agent("judge", model="openai:gpt-5-mini", output=choice)
by_tool = gesta.Agent("by-tool", model="openai:gpt-5-mini", output=Output(City, by="tool"))


async def count(verbs: gesta.Verbs, text: str) -> int:
    """Count."""
    asked = await verbs.call(plain, text, "ask")
    return len(asked.text)


counter = gesta.Agent("counter", program=count)


def sync() -> None:
    """Read answers without an event loop."""
    assert_type(gesta.run_sync(plain, "Hi").value, str)
    assert_type(gesta.run_sync(cities, "Rome?").value, City)
    assert_type(gesta.run_sync(lists, "Count.").value, list[int])
    assert_type(gesta.run_sync(judge, "Is it?").value, Literal["yes", "no"])
    assert_type(gesta.run_sync(by_tool, "Rome?").value, City)
    assert_type(gesta.run_sync(counter, "Count.").value, int)
    print(gesta.run_sync(cities, "Rome?").value.people + 1)
    print(gesta.run_sync(plain, "Hi").value.upper())


async def main() -> None:
    """Read answers at the asynchronous door."""
    async with gesta.open("a.gesta") as record:
        outcome = await record.run(cities, "Rome?", session="s", key="k")
        assert_type(outcome, gesta.Outcome[City])
        assert_type(outcome.given, City | None)
        assert_type(await record.resume(outcome.run, lists), gesta.Outcome[list[int]])
        stream = record.stream(cities, "Rome?")
        async for event in stream:
            print(event.type, event.content)
        assert_type(stream.outcome, gesta.Outcome[City] | None)


def why(outcome: gesta.Outcome[Any]) -> str:
    """Return how a turn ended: every reason is known."""
    match outcome.reason:
        case "answered":
            return "fine"
        case "failed" | "limit" | "budget" | "cancelled":
            return outcome.error.message if outcome.error is not None else outcome.reason
        case "waiting":
            return ", ".join(each.text for each in outcome.waiting)
        case _:
            assert_never(outcome.reason)


def any_agent(agent: gesta.Agent[object]) -> str:
    """Accept an agent with any type of answer."""
    return agent.name


print(any_agent(plain), any_agent(cities), any_agent(judge))
