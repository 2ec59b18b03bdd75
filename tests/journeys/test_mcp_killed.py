"""A server that is killed in the middle of its calls, over both transports: no effect twice, every doubt named."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import tried
from tests.mcp_shop import either, lines

import gesta
from gesta.kinds import FaultContent

CALLS = tried(3, 6, 50)
TOOLS = ("pay", "put", "look")


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_killed_in_the_middle_of_each_call_repeats_no_effect(transport: str, tmp_path: Path) -> None:
    def choose(messages: list[Any], _: Any) -> Any:
        number = (len(messages) - 1) // 2
        if number == CALLS:
            return "Done."
        (tmp_path / ("die-before" if number // len(TOOLS) % 2 else "die-after")).touch()
        return gesta.call(TOOLS[number % len(TOOLS)], item=f"i{number}")

    limits = gesta.Limits(requests=None, calls=None)
    doubts = 0
    with either(transport, tmp_path) as source:
        agent = gesta.Agent("buyer", model=gesta.function(choose), tools=[source], policy=gesta.Policy(limits=limits))
        async with gesta.open(tmp_path / "r.gesta", durability="normal") as record:
            outcome = await record.run(agent, "Buy.", session="s")
            while outcome.reason == "waiting":
                (waiting,) = outcome.waiting
                assert (waiting.what, waiting.tool) == ("doubt", "pay")
                assert waiting.args is not None
                happened = f"pay {waiting.args['item']}" in lines(tmp_path, "effects")
                await record.resolve(waiting, "done" if happened else "retry", by="Ada", result="paid")
                doubts += 1
                outcome = await record.resume("s", agent)
            entries = await record.read(outcome.run)
            assert await record.verify() == []
    assert outcome.answer == "Done."
    effects = Counter(lines(tmp_path, "effects"))
    wanted = {f"{TOOLS[number % 3]} i{number}" for number in range(CALLS)}
    assert set(effects) == wanted
    assert [name for name, times in effects.items() if times > 1 and not name.startswith("look")] == []
    assert doubts == sum(number % 3 == 0 for number in range(CALLS))
    faults = [each.content.error for each in entries if isinstance(each.content, FaultContent)]
    named = [each for each in faults if each.type == "InDoubt" and "the MCP server 'shop' was lost" in each.message]
    assert len(named) == CALLS
    assert len(lines(tmp_path, "starts")) == CALLS + 1
