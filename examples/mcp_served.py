"""An agent is a tool for MCP clients. A message that is sent again runs once, and the client's user approves a refund.

Prints:
    the client has the tool desk: Refunds orders.
    asked: The agent desk wants to call refund(order=42). Allow it?
    desk: Order 42 is refunded.
    sent again: Order 42 is refunded.
    refunds: [42]
"""

import asyncio
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

import gesta
from gesta.serve.mcp import app

PAID: list[int] = []


@gesta.tool(effect="once", approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    PAID.append(order)
    return f"Order {order} is refunded."


def choose(messages: list[dict[str, Any]], _header: Any) -> Any:
    return messages[-1]["content"] if messages[-1]["role"] == "tool" else gesta.call("refund", order=42)


desk = gesta.Agent("desk", model=gesta.function(choose), tools=[refund], instructions="Refunds orders.")


async def approve(context: Any, params: Any) -> ElicitResult:  # noqa: ARG001 - `mcp` names both
    print(f"asked: {params.message}")
    return ElicitResult(action="accept", content={"approve": True})


async def main() -> None:
    async with (
        gesta.open("desk.gesta") as record,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app(record, [desk]))) as http,
        Client(
            streamable_http_client("http://localhost/mcp", http_client=http), elicitation_callback=approve
        ) as client,
    ):
        for tool in (await client.list_tools()).tools:
            print(f"the client has the tool {tool.name}: {tool.description}")
        for name in ("desk", "sent again"):
            (answer,) = (await client.call_tool("desk", {"message": "Refund order 42.", "key": "m1"})).content
            print(f"{name}: {answer.text if answer.type == 'text' else answer.type}")
    print(f"refunds: {PAID}")


asyncio.run(main())
