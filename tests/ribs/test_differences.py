"""Two runs are compared by what happened, not by what came a moment sooner."""

import anyio

import gesta
from gesta.compare.differences import compare
from gesta.entry import Entry
from gesta.kinds import ToolResultContent


async def looked_up(first: str, *, rome: str = "dry") -> list[Entry]:
    """Return the entries of a run with two calls at once, of which the call for the city `first` ends first."""
    ended = anyio.Event()

    @gesta.tool(effect="pure")
    async def weather(city: str) -> str:
        """Today's weather."""
        if city == first:
            ended.set()
        else:
            await ended.wait()
            await anyio.wait_all_tasks_blocked()
        return rome if city == "Rome" else "wet"

    calls = gesta.reply(calls=[gesta.call("weather", city="Rome"), gesta.call("weather", city="Oslo")])
    agent = gesta.Agent("guide", model=gesta.scripted(calls, "Rome."), tools=[weather])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Where is it dry?")
        return await record.read(outcome.run)


async def test_results_of_calls_at_once_may_come_in_either_order() -> None:
    one, other = await looked_up("Rome"), await looked_up("Oslo")
    results = [[each.content for each in run if isinstance(each.content, ToolResultContent)] for run in (one, other)]
    assert [[each.tool_result for each in run] for run in results] == [["dry", "wet"], ["wet", "dry"]]
    assert not compare(one, other).steps


async def test_a_changed_result_of_calls_at_once_is_shown_as_one_change() -> None:
    (step,) = compare(await looked_up("Rome"), await looked_up("Oslo", rome="hot")).steps
    assert step.before is not None
    assert step.after is not None
    assert [(each.before, each.after) for each in step.differences] == [("dry", "hot")]
