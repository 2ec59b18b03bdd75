"""Agents as tools of MCP whose clients cancel or leave at any instant, and whose record is in PostgreSQL."""

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client
from mcp_types import CallToolResult
from tests.conftest import FULL
from tests.postgres import Server
from tests.serving import served

import gesta
from gesta.serve.mcp.http import agents_app

serving = partial(served, make=partial(agents_app, texts={}))


def shop(paid: Counter[str], effect: Any) -> gesta.Agent:
    """Return an agent that pays for the order of its message."""

    async def pay(order: str) -> str:
        """Pay for an order."""
        await anyio.lowlevel.checkpoint()
        paid[order] += 1
        return "paid"

    def choose(messages: list[dict[str, Any]], _header: Any) -> Any:
        return "It is paid." if messages[-1]["role"] == "tool" else gesta.call("pay", order=messages[-1]["content"])

    return gesta.Agent("shop", model=gesta.function(choose), tools=[gesta.tool(pay, effect=effect)])


def told(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


async def cancelled_in(client: Client, said: dict[str, str], passes: int) -> None:
    """Send a message, and cancel it after some passes of the event loop, unless it is answered before."""
    async with anyio.create_task_group() as group:

        async def ask() -> None:
            await client.call_tool("shop", said)
            group.cancel_scope.cancel()

        group.start_soon(ask)
        for _ in range(passes):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_message_cancelled_at_any_instant_pays_once_or_is_cancelled(mode: str, tmp_path: Path) -> None:
    paid, chance = Counter[str](), random.Random(mode)
    with serving(tmp_path / "shop.gesta", agents=[shop(paid, "once")]) as address:
        async with Client(f"{address}/mcp", mode=mode) as client:
            for number in range(150 if FULL else 8):
                said = {"message": f"order-{number}", "session": f"s{number}", "key": "m1"}
                await cancelled_in(client, said, chance.choice([chance.randrange(30), chance.randrange(3000)]))
                again = await client.call_tool("shop", said)
                if mode == "legacy" and again.is_error:
                    assert "The turn ended with cancelled" in told(again)
                    assert paid[f"order-{number}"] <= 1
                else:
                    assert told(again) == "It is paid."
                    assert paid[f"order-{number}"] == 1


async def test_two_servers_on_one_postgresql_answer_a_message_once(postgres: Server) -> None:
    paid, said = Counter[str](), {"message": "order-1", "session": "s", "key": "m1"}
    with postgres.emptied() as record:
        agent = shop(paid, "once")
        with serving(record, agents=[agent]) as first, serving(record, agents=[agent]) as second:
            answers = list[CallToolResult]()

            async def ask(address: str, mode: str) -> None:
                async with Client(f"{address}/mcp", mode=mode) as client:
                    answers.append(await client.call_tool("shop", said))

            async with anyio.create_task_group() as group:
                group.start_soon(ask, first, "auto")
                group.start_soon(ask, second, "legacy")
    assert [told(each) for each in answers] == ["It is paid."] * 2
    assert len({(each.meta or {})["gesta/run"] for each in answers}) == 1
    assert paid == {"order-1": 1}
