"""Options of `serve`, the rules of access that follow from them, and the socket at which the server listens."""

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.options import DefaultModel, OnRecord
from gesta.cli.talk import Stop
from gesta.errors import MissingExtra

if TYPE_CHECKING:
    from gesta.serve.access import Access

VARIABLE = "GESTA_TOKEN"
"""The environment variable with the bearer token of clients, unless `--token` names another variable."""

Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address that it listens on.")]
Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 for any that is free.")]


@dataclass(frozen=True, kw_only=True)
class ServeCommandOptions(OnRecord):
    """Command-line options of `gesta serve`."""

    agents: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE.py:NAME...", help="The agents that are served.", show_default=False),
    ] = None
    mcp: Annotated[bool, typer.Option("--mcp", help="Also as tools of MCP, at the path /mcp.")] = False
    stdio: Annotated[
        bool, typer.Option("--stdio", help="As tools of MCP for the client that started this command, without HTTP.")
    ] = False
    read: Annotated[
        bool, typer.Option("--read", help="No agents: by MCP an assistant may read the record, and never write it.")
    ] = False
    describe: Annotated[
        list[str] | None,
        typer.Option(
            "--describe",
            metavar="AGENT=TEXT",
            help="What an MCP client reads of an agent, in place of its instructions' first line; may be repeated.",
            show_default=False,
        ),
    ] = None
    path: Annotated[
        list[str] | None,
        typer.Option(
            "--path",
            metavar="PATH",
            help="Serve this path alone, as /mcp or /sessions/{session}/messages; may be repeated.",
            show_default=False,
        ),
    ] = None
    host: Host = "127.0.0.1"
    port: Port = 8420
    token: Annotated[
        list[str] | None,
        typer.Option(
            "--token",
            metavar="NAME=VARIABLE",
            help=f"A client, and the variable with its token; may be repeated. Without it: {VARIABLE}, if set.",
            show_default=False,
        ),
    ] = None
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin", metavar="URL", help="A site whose pages may ask; may be repeated.", show_default=False
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A name of this server, where no token is asked for.",
            show_default=False,
        ),
    ] = None
    body_bytes: Annotated[int, typer.Option("--body-bytes", metavar="N", min=1, help="Bytes of one request.")] = (
        8 * 2**20
    )
    turns: Annotated[int, typer.Option("--turns", metavar="N", min=1, help="Turns that are taken at once.")] = 64
    followers: Annotated[
        int, typer.Option("--followers", metavar="N", min=1, help="Streams that are open at once.")
    ] = 1000
    model: DefaultModel = None
    no_work: Annotated[
        bool, typer.Option("--no-work", help="Do not go on with turns that were left open or answered.")
    ] = False


def access_of(options: ServeCommandOptions) -> "Access":
    """Return the server's rules of access, such as its tokens, from the options.

    Raises Stop if other machines could connect without a token.
    """
    try:
        from gesta.serve.access import Access, local
    except ModuleNotFoundError as missing:
        raise MissingExtra("gesta serve", "starlette and uvicorn", "serve") from missing
    tokens = _tokens(options.token)
    if not tokens and not local(options.host):
        found = f"Without a token only this machine may ask, and --host {options.host} lets others in."
        raise Stop(f"{found} Set {VARIABLE} to a token of 32 characters or so, or leave --host out.")
    return Access(
        tokens=tokens,
        origins=options.origin or (),
        hosts=options.allow_host or (),
        body_bytes=options.body_bytes,
        turns=options.turns,
        followers=options.followers,
    )


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Raises Stop if the system refuses, such as for a port in use."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as failure:
        why = os.strerror(failure.errno) if isinstance(failure, OSError) and failure.errno else str(failure)
        found = f"Cannot listen on {host}, port {port}: {why}."
        raise Stop(f"{found} Name another one with --port, or any that is free with --port 0.") from failure


def _tokens(given: list[str] | None) -> dict[str, str]:
    """Return the token of each client, by the client's name.

    Raises Stop for an option that is not `NAME=VARIABLE`, for a repeated name, or for a variable that is not set.
    """
    if not given:
        return {"client": os.environ[VARIABLE]} if os.environ.get(VARIABLE) else {}
    found = dict[str, str]()
    for each in given:
        name, _, variable = each.partition("=")
        if not name or not variable or name in found:
            raise Stop(f"--token {each!r} is not NAME=VARIABLE, or names a client twice. Write --token web=WEB_TOKEN.")
        if not os.environ.get(variable):
            raise Stop(f"--token {each}: the variable {variable} is not set. It holds the token of {name!r}.")
        found[name] = os.environ[variable]
    return found
