"""An agent has the tools of an MCP server, which is also in this file. Its run is replayed without the server.

It needs `pip install 'gesta[mcp]'`. Prints:
    approval order {'item': 'lamp'} once
    One lamp is on its way.
    stock: 7 of lamp
    order: ordered lamp
    replayed: all the same; starts of the server: 1
"""

import asyncio
import sys
from pathlib import Path

import gesta
from gesta.compare.replaying import replay_run

shop = gesta.mcp([sys.executable, __file__, "--serve"], approval=["order"])
model = gesta.scripted(gesta.call("stock", item="lamp"), gesta.call("order", item="lamp"), "One lamp is on its way.")
clerk = gesta.Agent("clerk", model=model, tools=[shop])


async def main() -> None:
    async with gesta.open("shop.gesta") as record:
        outcome = await record.run(clerk, "A lamp, please.", session="ann")
        (waiting,) = outcome.waiting
        print(waiting.what, waiting.tool, waiting.args, waiting.effect)
        await record.approve(waiting, by="Ada")
        print((await record.resume("ann", clerk)).answer)
        for message in await record.history("ann", calls=True):
            for call in message.calls:
                print(f"{call.tool}: {call.result}")
        entries = await record.read(outcome.run)
    found = await replay_run({outcome.run: entries}, outcome.run, clerk)
    print("replayed:", found.first or "all the same", end="; ")


def serve() -> None:
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    with Path("starts.txt").open("a") as file:
        file.write("started\n")
    server = MCPServer("shop", version="1.0")
    server.add_tool(lambda item: f"7 of {item}", "stock", annotations=ToolAnnotations(read_only_hint=True))
    server.add_tool(lambda item: f"ordered {item}", "order")
    server.run()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        asyncio.run(main())
        print("starts of the server:", Path("starts.txt").read_text().count("started"))
