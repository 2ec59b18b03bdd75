"""Implements `gesta serve` over HTTP, which serves agents until the process is asked to end.

Everything that the agents do is stored in a record, the store of all runs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from gesta.address import Record, open_record
from gesta.agent import Agent
from gesta.cli.loading import load_all, with_default
from gesta.cli.serve_options import ServeCommandOptions, access_of, listening
from gesta.cli.talk import DIM, json_line, put, say
from gesta.cli.tracing import traced
from gesta.errors import MissingExtra

try:
    from gesta.serve.access import Access
    from gesta.serve.app import assembled
    from gesta.serve.routes import DESCRIPTION
    from gesta.serve.server import serve as run
    from gesta.serve.service import Service
except ModuleNotFoundError as missing:
    raise MissingExtra("gesta serve", "starlette and uvicorn", "serve") from missing

if TYPE_CHECKING:
    from starlette.applications import Starlette

    Made = tuple[Starlette, Service]

Assemble = Callable[[Record, list[Agent[Any]], Access], "Made"]


def serve(options: ServeCommandOptions, make: Assemble | None = None, more: str = "") -> None:
    """Serve agents, and print the address. Returns when the server ends.

    Args:
        make: makes the web application and its service; `None` for the ordinary application.
        more: path at which the server also speaks the Model Context Protocol; empty without it.
    """
    access = access_of(options)
    agents, approver = load_all(options.agents or ())
    agents = with_default(agents, options.model)
    record = options.target(new=True)

    def ready(address: str) -> None:
        names, further = [agent.name for agent in agents], f"{address}{more}"
        if options.json:
            facts = {"address": address, "record": record, "agents": names}
            put(json_line({**facts, more.strip("/"): further} if more else facts))
            return
        say(f"Serving {', '.join(names)} at {address}, on the record {record}.")
        if more:
            say(f"Clients of MCP find them at {further}.", DIM)
        described = options.path is None or DESCRIPTION in options.path
        say(f"{address}{DESCRIPTION} describes it. Ctrl-C ends it." if described else "Ctrl-C ends it.", DIM)

    async def main() -> None:
        async with open_record(record, approver=approver) as opened, traced(opened):
            if make is not None:
                app, service = make(opened, agents, access)
            else:
                app, service = assembled(opened, agents, access, work=not options.no_work, paths=options.path)
            with listening(options.host, options.port) as listens:
                await run(app, service, listens, ready=ready)

    anyio.run(main)
