"""Makes the ASGI application, which can run alone or be mounted in another one, such as a FastAPI application.

A record is the store of all runs of agents. A turn is one message to an agent and all the work up to its answer.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ExceptionHandler

from gesta.address import Address, Record, open_record
from gesta.agent import Agent
from gesta.serve.access import Access, Guard
from gesta.serve.bodies import answered, failed
from gesta.serve.openapi import description
from gesta.serve.routes import DESCRIPTION, Place, chosen, routes
from gesta.serve.service import Service

OF_MCP = ("Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name")
"""Headers that requests by the Model Context Protocol (MCP) may have."""
Source = Record | Address | AbstractAsyncContextManager[Record]
"""An opened record, the address of a record, or the context manager that `gesta.open(...)` returns."""


def app(
    record: Source,
    agents: Sequence[Agent[Any]],
    access: Access | None = None,
    *,
    work: bool = True,
    paths: Collection[str] | None = None,
) -> Starlette:
    """Return an ASGI application that serves agents over HTTP.

    Args:
        record: an opened record, which the application uses until it is closed. Or an address or `gesta.open(...)`,
            which the application opens when it starts and closes when it ends; an application that is mounted in
            another one needs an opened record.
        agents: the agents, which must have different names.
        access: the rules of access; by default everybody on this machine may send requests.
        work: whether this server also continues unfinished turns, as the command `gesta work` does.
        paths: the paths to serve, such as `/sessions/{session}/messages`; `None` for all of them. Name only a few
            if strangers can reach the application.

    Raises:
        AgentError: there is no agent, two agents have the same name, or a path does not exist.
    """
    made, _ = assembled(record, agents, access or Access(), work=work, paths=paths)
    return made


def assembled(
    record: Source,
    agents: Sequence[Agent[Any]],
    access: Access,
    *,
    work: bool,
    beside: Callable[[Service], BaseRoute] | None = None,
    paths: Collection[str] | None = None,
) -> tuple[Starlette, Service]:
    """Return an ASGI application as `app` does, and its service.

    Call the service's `drain` before the server ends. It ends the open streams.

    Args:
        record, agents, access, work, paths: as in `app`.
        beside: makes one more route for the application; receives the service.
    """
    service = Service(agents, turns=access.turns, followers=access.followers)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if isinstance(record, Record):
            yield
            return
        source = record if isinstance(record, AbstractAsyncContextManager) else open_record(record)
        async with source as opened:
            service.begin(opened, work=work)
            yield
            service.drain()

    places, described = chosen(paths), paths is None or DESCRIPTION in paths
    more: list[BaseRoute] = [_description_of(places)] if described else []
    more += [beside(service)] if beside is not None else []
    if isinstance(record, Record):
        service.begin(record, work=work)
    made = Starlette(
        routes=[*routes(service, places), *more],
        middleware=[*crossing(access), Middleware(Guard, access=access)],
        lifespan=lifespan,
        exception_handlers=dict.fromkeys((404, 405), _unknown(described=described)),
    )
    return made, service


def crossing(access: Access) -> list[Middleware]:
    """Return the CORS middleware that lets web pages of `access.origins` send requests; `[]` if it has no origins."""
    if not access.origins:
        return []
    allowed = Middleware(
        CORSMiddleware,
        allow_origins=list(access.origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", *OF_MCP],
        expose_headers=["Mcp-Session-Id"],
    )
    return [allowed]


def _description_of(places: Sequence[Place]) -> Route:
    async def describe(request: Request) -> Response:
        return answered(description(places, request.scope.get("root_path", "")))

    return Route(DESCRIPTION, describe, methods=["GET"])


def _unknown(*, described: bool) -> ExceptionHandler:
    """Return the function that answers a request for a path or a method that does not exist.

    Args:
        described: whether the description of all paths is served.
    """

    async def answer(request: Request, raised: Exception) -> Response:
        status = getattr(raised, "status_code", 404)
        what = "No such path" if status == 404 else "No such method for this path"
        listed = f" GET {request.scope.get('root_path', '')}{DESCRIPTION} lists them." if described else ""
        return failed(status, "NotFound", f"{what}: {request.method} {request.url.path}.{listed}")

    return answer
