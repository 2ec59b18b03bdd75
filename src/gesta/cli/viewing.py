"""The command `view`, which shows a record in a browser, or writes pages that need no server."""

import secrets
import webbrowser
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.app import command
from gesta.cli.options import OnRecord
from gesta.cli.serve_options import Host, Port, listening
from gesta.cli.talk import DIM, Stop, json_line, say
from gesta.errors import MissingExtra

if TYPE_CHECKING:
    from gesta.integrity.verify import Head


@dataclass(frozen=True, kw_only=True)
class ViewOptions(OnRecord):
    """Command-line options of `gesta view`."""

    records: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE...]", help="Records to show; by default the nearest.", show_default=False),
    ] = None
    host: Host = "127.0.0.1"
    port: Port = 8421
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name of this machine for others.", show_default=False),
    ] = None
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="HEAD", help="A head that was kept, or a file of heads.", show_default=False),
    ] = None
    export: Annotated[
        str | None,
        typer.Option("--export", metavar="DIR", help="Write pages that open from a disk.", show_default=False),
    ] = None
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="With --export: a run, a session or `last`.", show_default=False),
    ] = None


@command(ViewOptions, example="gesta view runs.gesta --export site")
def view(options: ViewOptions) -> int:
    """Show a record in a browser: sessions, runs, and why.

    The command prints an address with a token. Only a browser that has opened this address can read the record. Ends on
    Ctrl-C.

    With --export, the command writes a folder of pages: one run and the runs that it started, or all runs of a
    session. Its index.html opens in any browser, without Gesta and without a network.
    """
    import anyio

    from gesta.address import open_record
    from gesta.cli.files import kept_heads

    try:
        from gesta.serve.access import local
        from gesta.serve.server import serve
        from gesta.web.app import Viewer
        from gesta.web.data import Pages
    except ModuleNotFoundError as missing:
        raise MissingExtra("gesta view", "starlette and uvicorn", "view") from missing
    if options.head and len(options.records or ()) > 1:
        raise Stop("--head compares one record with heads. Name one file.")
    kept = kept_heads(options.head or ())
    if options.export is not None or options.run is not None:
        return _export(options, kept)
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
            viewer.pages[0].evidence.heads = kept
            with listening(options.host, options.port) as listens:
                await serve(viewer.app(token, hosts), viewer, listens, ready=ready)

    anyio.run(main)
    return 0


def _export(options: ViewOptions, kept: "list[list[Head]]") -> int:
    from gesta.cli.folder import write_folder

    if options.export is None:
        raise Stop("--run names what --export writes. Write: gesta view --export DIR --run RUN")
    if len(options.records or ()) > 1:
        raise Stop("--export writes runs of one record. Name one file.")
    named = next(iter(options.records or ()), None)
    return write_folder(options, named, Path(options.export), options.run or "last", kept)
