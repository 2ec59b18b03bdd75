"""Makes the ASGI application, which can run alone or be mounted in another one, such as a FastAPI application.

A record is the store of all runs of agents. A turn is one message to an agent and all the work up to its answer.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gesta.address import Address, Record, open_record
from gesta.agent import Agent
from gesta.serve.access import Access, Guard
from gesta.serve.bodies import answered, failed
from gesta.serve.openapi import description
from gesta.serve.routes import routes
from gesta.serve.service import Service

OF_MCP = ("Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name")
"""Headers that requests by the Model Context Protocol (MCP) may have."""
Source = Record | Address | AbstractAsyncContextManager[Record]
"""An opened record, the address of a record, or the context manager that `gesta.open(...)` returns."""


def app(record: Source, agents: Sequence[Agent], access: Access | None = None, *, work: bool = True) -> Starlette:
    """Return an ASGI application that serves agents over HTTP.

    Args:
        record: an opened record, which the application uses until it is closed. Or an address or `gesta.open(...)`,
            which the application opens when it starts and closes when it ends; an application that is mounted in
            another one needs an opened record.
        agents: the agents, which must have different names.
        access: the rules of access; by default everybody on this machine may send requests.
        work: whether this server also continues unfinished turns, as the command `gesta work` does.

    Raises:
        AgentError: there is no agent, or two agents have the same name.
    """
    made, _ = assembled(record, agents, access or Access(), work=work)
    return made


def assembled(
    record: Source,
    agents: Sequence[Agent],
    access: Access,
    *,
    work: bool,
    beside: Callable[[Service], BaseRoute] | None = None,
) -> tuple[Starlette, Service]:
    """Return an ASGI application as `app` does, and its service.

    Call the service's `drain` before the server ends. It ends the open streams.

    Args:
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

    more = [Route("/openapi.json", _described, methods=["GET"]), *([beside(service)] if beside is not None else [])]
    if isinstance(record, Record):
        service.begin(record, work=work)
    made = Starlette(
        routes=[*routes(service), *more],
        middleware=[*crossing(access), Middleware(Guard, access=access)],
        lifespan=lifespan,
        exception_handlers={404: _unknown, 405: _unknown},
    )
    return made, service


def crossing(access: Access) -> list[Middleware]:
    """Return the CORS middleware that lets web pages of `access.origins` send requests; an empty list without any."""
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


async def _described(_request: Request) -> Response:
    return answered(description())


async def _unknown(request: Request, raised: Exception) -> Response:
    """Return the error response for a path or a method that does not exist."""
    status = getattr(raised, "status_code", 404)
    what = "No such path" if status == 404 else "No such method for this path"
    return failed(status, "NotFound", f"{what}: {request.method} {request.url.path}. GET /openapi.json lists them.")
