"""Serves MCP over streamable HTTP: at one path of the application, with the same rules of access as all other paths.

Clients of protocol version 2026-07-28 need no session. Older clients have a session in the memory of this server; after
a restart the client is told that the session is gone, and begins another one. Turns (messages to agents, and the work
on them) are stored in the record, so no turn is lost.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import anyio
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gesta.address import Record, open_record
from gesta.agent import Agent
from gesta.serve.access import ANYBODY, Access, BodyTooLarge, Guard
from gesta.serve.app import Source, assembled, crossing
from gesta.serve.bodies import Refused, answered, failure, too_large
from gesta.serve.mcp.calls import Running
from gesta.serve.mcp.reading import Bounds, RecordServer
from gesta.serve.mcp.server import AgentServer
from gesta.serve.service import Service

PATH = "/mcp"
"""The path at which MCP is served."""


class Served(Protocol):
    """A server that says whether it accepts requests now: a `Service` or a `RecordServer`."""

    draining: anyio.Event

    def check(self) -> None:
        """Raise Refused if the server has not begun yet, or is about to end."""


class Busy(Protocol):
    """An MCP server that counts the calls that it has not answered yet."""

    server: Server[Any]

    running: Running


class Endpoint:
    """ASGI application that answers the requests of MCP clients at one path of the server.

    Args:
        made: the MCP server.
        served: says whether the server accepts requests.
    """

    def __init__(self, made: Busy, served: Served, access: Access) -> None:
        self._made, self._served, self._access = made, served, access
        self._manager: StreamableHTTPSessionManager | None = None
        self._ready = anyio.Event()

    async def run(self) -> None:
        """Serve the sessions of clients until the server is about to end and all calls are answered."""
        self._manager = StreamableHTTPSessionManager(  # which runs once, and an application may start again
            app=self._made.server,
            max_request_body_size=self._access.body_bytes,
            max_sessions=self._access.followers,
        )
        async with self._manager.run():
            self._ready.set()
            await self._served.draining.wait()
            await self._made.running.none.wait()  # they end by themselves, because their turns were asked to stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. A session accepts only the token with which it was begun."""
        try:
            self._served.check()
            await self._ready.wait()
            assert self._manager is not None
            client = scope.get("state", {}).get("client", ANYBODY)
            if client != ANYBODY:
                user = AuthenticatedUser(AccessToken(token="", client_id=client, scopes=[]))
                scope = {**scope, "user": user}
            await self._manager.handle_request(scope, receive, send)
        except Refused as refused:
            await failure(refused)(scope, receive, send)
        except BodyTooLarge as raised:
            await too_large(raised.most)(scope, receive, send)


def app(
    record: Source,
    agents: Sequence[Agent[Any]],
    access: Access | None = None,
    *,
    work: bool = True,
    descriptions: Mapping[str, str] | None = None,
    paths: Collection[str] | None = None,
) -> Starlette:
    """Return an ASGI application that serves agents as `gesta.serve.app` does, and also as tools of MCP at `/mcp`.

    Args:
        record, agents, access, work: see `gesta.serve.app`.
        paths: the paths to serve beside `/mcp`, which is always served; `[]` for none, `None` for all.
        descriptions: descriptions by agent name, used in place of the first lines of the agents' instructions.

    Raises:
        AgentError: there is no agent, two agents have the same name, a description names no agent, or a path does not
            exist.
    """
    made, _ = agents_app(record, agents, access or Access(), work=work, texts=descriptions or {}, paths=paths)
    return made


def agents_app(
    record: Source,
    agents: Sequence[Agent[Any]],
    access: Access,
    *,
    work: bool,
    texts: Mapping[str, str],
    paths: Collection[str] | None = None,
) -> tuple[Starlette, Service]:
    """Return the application that `app` makes, and the service behind it. `texts` are descriptions by agent name."""
    others = paths if paths is None or isinstance(paths, str) else [each for each in paths if each != PATH]

    def beside(service: Service) -> Route:
        endpoint = Endpoint(AgentServer(service, texts, local=not access.tokens), service, access)
        service.beside.append(endpoint.run)
        return Route(PATH, endpoint)

    return assembled(record, agents, access, work=work, beside=beside, paths=others)


def reader(record: Source, access: Access | None = None, *, bounds: Bounds | None = None) -> Starlette:
    """Return an ASGI application through which an assistant can read a record, by MCP at `/mcp`.

    Args:
        record: a record that was opened with `readonly=True`, its address, or `gesta.open(..., readonly=True)`.
        access: the rules of access; by default everybody on this machine may send requests.
        bounds: limits of each answer.
    """
    made, _ = record_app(record, access or Access(), bounds or Bounds())
    return made


def record_app(record: Source, access: Access, bounds: Bounds) -> tuple[Starlette, RecordServer]:
    """Return the application that `reader` returns, and the server object that answers its requests.

    Call the server's `drain` before the process ends, so that it refuses further requests.
    """
    made = RecordServer(bounds)
    endpoint = Endpoint(made, made, access)

    def begin(opened: Record) -> None:
        made.begin(opened)
        opened.start(endpoint.run)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if isinstance(record, Record):
            yield
            return
        source = record if isinstance(record, AbstractAsyncContextManager) else open_record(record, readonly=True)
        async with source as opened:
            begin(opened)
            yield
            made.drain()

    async def health(_: Request) -> Response:
        try:
            made.check()
        except Refused as refused:
            return failure(refused)
        return answered({"status": "ok"})

    if isinstance(record, Record):
        begin(record)
    routes = [Route("/health", health, methods=["GET"]), Route(PATH, endpoint)]
    return Starlette(
        routes=routes, middleware=[*crossing(access), Middleware(Guard, access=access)], lifespan=lifespan
    ), made
