"""Implements `gesta serve` over MCP, the Model Context Protocol: programs call agents, or read a record (all runs).

The program talks to the server over stdin and stdout (stdio), or over HTTP.
"""

from collections.abc import Callable

import anyio

from gesta.address import open_record
from gesta.cli.loading import load_all, with_default
from gesta.cli.serve_options import ServeCommandOptions, access_of, listening
from gesta.cli.talk import DIM, Stop, json_line, put, say
from gesta.cli.tracing import traced
from gesta.errors import MissingExtra

try:
    from gesta.serve.mcp import http, stdio
    from gesta.serve.mcp.reading import Bounds, RecordServer
    from gesta.serve.mcp.server import AgentServer
    from gesta.serve.server import serve as run
    from gesta.serve.service import Service
except ModuleNotFoundError as missing:
    raise MissingExtra("gesta serve by MCP", "mcp", "mcp") from missing

from gesta.cli import http as by_http  # the extra `mcp` has all that it needs


def serve(options: ServeCommandOptions) -> None:
    """Serve agents, or a record for reading, over stdio or HTTP as the options say. Returns when the server ends."""
    texts, work = _texts(options), not options.no_work
    if options.read:
        (_read_by_stdio if options.stdio else _read_by_http)(options)
    elif options.stdio:
        _work_by_stdio(options, texts)
    else:
        by_http.serve(
            options,
            lambda record, agents, access: http.agents_app(
                record, agents, access, work=work, texts=texts, paths=options.path
            ),
            http.PATH,
        )


def _work_by_stdio(options: ServeCommandOptions, texts: dict[str, str]) -> None:
    """Serve agents as tools for the program that started this process, over stdin and stdout.

    Args:
        texts: the descriptions of agents that `_texts` returns.
    """
    agents, approver = load_all(options.agents or ())
    agents = with_default(agents, options.model)
    address = options.target(new=True)

    async def main() -> None:
        async with open_record(address, approver=approver) as record, traced(record):
            service = Service(agents, turns=options.turns, followers=options.followers)
            made = AgentServer(service, texts, local=True)
            service.begin(record, work=not options.no_work)
            names = ", ".join(agent.name for agent in agents)
            await stdio.serve(made.server, service, _saying(f"Serving {names} over stdio, on the record {address}."))

    anyio.run(main)


def _read_by_stdio(options: ServeCommandOptions) -> None:
    address = options.source()

    async def main() -> None:
        async with open_record(address, readonly=True) as record:
            made = RecordServer(Bounds())
            made.begin(record)
            await stdio.serve(made.server, made, _saying(f"The record {address} may be read over stdio."))

    anyio.run(main)


def _saying(words: str) -> Callable[[], None]:
    return lambda: say(words, DIM)


def _read_by_http(options: ServeCommandOptions) -> None:
    address, access = options.source(), access_of(options)

    def ready(at: str) -> None:
        if options.json:
            put(json_line({"address": at, "record": address, "mcp": f"{at}{http.PATH}"}))
        else:
            say(f"Clients of MCP may read the record {address} at {at}{http.PATH}. Ctrl-C ends it.")

    async def main() -> None:
        async with open_record(address, readonly=True) as record:
            app, reader = http.record_app(record, access, Bounds())
            with listening(options.host, options.port) as listens:
                await run(app, reader, listens, ready=ready)

    anyio.run(main)


def _texts(options: ServeCommandOptions) -> dict[str, str]:
    """Return the descriptions of agents from the options `--describe`, by name of the agent.

    Raises Stop for an option that is not `AGENT=TEXT`, or for a repeated name.
    """
    texts = dict[str, str]()
    for each in options.describe or ():
        name, mark, text = each.partition("=")
        if not mark or not name or not text.strip() or name in texts:
            found = f"--describe {each!r} is not AGENT=TEXT, or names an agent twice."
            raise Stop(f"{found} Write --describe desk='Gives refunds.'")
        texts[name] = text.strip()
    return texts
