"""The command `view`: shows a record in a browser."""

import secrets
import webbrowser
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gesta.cli.app import command
from gesta.cli.options import OnRecord
from gesta.cli.serve_options import listening
from gesta.cli.talk import DIM, json_line, say
from gesta.errors import MissingExtra


@dataclass(frozen=True, kw_only=True)
class ViewOptions(OnRecord):
    """Options of `view`."""

    records: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE...]", help="Records to show; by default the nearest.", show_default=False),
    ] = None
    host: Annotated[str, typer.Option("--host", help="Address that it listens on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 for any that is free.")] = 8421
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name of this machine for others.", show_default=False),
    ] = None
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False


@command(ViewOptions, example="gesta view runs.gesta --no-open")
def view(options: ViewOptions) -> int:
    """Show a record in a browser: sessions, runs, and why.

    It prints one address with a token, which lets in the browser that opens it. Ends on Ctrl-C.
    """
    import anyio

    from gesta.address import open_record

    try:
        from gesta.serve.access import local
        from gesta.serve.server import serve
        from gesta.web.app import Viewer
        from gesta.web.data import Pages
    except ModuleNotFoundError as missing:
        raise MissingExtra("gesta view", "starlette and uvicorn", "view") from missing
    addresses = [options.source(each) for each in options.records or [""]]
    hosts = tuple(options.allow_host or ()) + (() if local(options.host) else (options.host,))
    token = secrets.token_urlsafe(32)

    def ready(address: str) -> None:
        opened = f"{address}/?token={token}"
        print(json_line({"address": opened}) if options.json else opened, flush=True)
        say(f"Showing {', '.join(addresses)}. Ctrl-C ends it.", DIM)
        if not options.no_open:
            webbrowser.open(opened)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            records = [await stack.enter_async_context(open_record(each, readonly=True)) for each in addresses]
            named = zip(records, addresses, strict=True)
            viewer = Viewer([Pages(record, Path(record.info.address).name, each) for record, each in named])
            with listening(options.host, options.port) as listens:
                await serve(viewer.app(token, hosts), viewer, listens, ready=ready)

    anyio.run(main)
    return 0
