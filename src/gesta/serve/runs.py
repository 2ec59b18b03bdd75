"""Answers requests about sessions and runs: messages to agents, the history of a session, a run's state and events.

A run is the recorded conversation or task of one agent. A turn is one message to it with all that follows until the
answer. The first line of each function that answers a path is the summary of that path in OpenAPI.
"""

import re
from collections.abc import AsyncIterator
from functools import partial

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from gesta.errors import NoRun
from gesta.events import Event
from gesta.perform.call_contents import plain
from gesta.record.followers import Target
from gesta.record.options import MessageOptions
from gesta.serve.bodies import NewMessage, Refused, answered, caller, kept, read, shown
from gesta.serve.people import found
from gesta.serve.service import Service
from gesta.serve.sse import EventStream, encoded, line
from gesta.text.redactor import SECRETS
from gesta.views.history import history

LIMIT = re.compile(r"[0-9]{1,9}")
"""Form of the query parameter `limit`."""
AFTER = re.compile(r"\d{1,18}(-\d{1,9})?")
"""Form of the id of an event, or of a pos (place in the record)."""


async def health(_request: Request, service: Service) -> Response:
    """Return whether the server accepts messages. Needs no token."""
    await service.check_record()
    return answered({"status": "ok"})


async def agents(_request: Request, service: Service) -> Response:
    """List the agents: the name of each, and the names of its tools."""
    return answered(
        [{"name": each.name, "tools": [tool.name for tool in each.tools]} for each in service.agents.values()]
    )


async def message(request: Request, service: Service) -> Response:
    """Send a message to an agent. The response is the outcome, or a stream of events if the client accepts it."""
    said, header = await read(request, NewMessage), request.headers.get("idempotency-key")
    if header and said.key not in (None, header):
        raise Refused(400, "BadRequest", "The body and the header Idempotency-Key name two keys. Leave one out.")
    said = replace(said, key=header or said.key)
    agent, session = service.agent(said.agent), named(request)
    options = MessageOptions(session=session, key=said.key, user=said.user, traceparent=caller(request))
    if "text/event-stream" not in request.headers.get("accept", ""):
        with service.turns:
            outcome = await service.record.run(agent, said.message, **options)
        return answered(shown(outcome))
    stream = service.record.stream(agent, said.message, **options)
    await stream.ready()

    async def lines() -> AsyncIterator[bytes]:
        async for event in stream:
            yield told(event)
        if stream.outcome is not None:
            yield line(encoded(plain(shown(stream.outcome))), event="outcome")

    service.turns.occupy()
    return EventStream(lines(), service.draining, leave=partial(service.leave, stream))


async def sessions(request: Request, service: Service) -> Response:
    """List the sessions, the most recently active first. The query parameter `limit` is the greatest number of them."""
    limit = request.query_params.get("limit", "")
    if limit and not (LIMIT.fullmatch(limit) and int(limit) > 0):
        raise Refused(400, "BadRequest", f"limit is {limit!r:.40}, expected a whole number from 1 on.")
    return answered(await service.record.sessions(int(limit) if limit else None))


async def session(request: Request, service: Service) -> Response:
    """Show the messages of a session and the things it waits for; with `calls=1` also its tool calls."""
    record, name = service.record, named(request)
    rows = [row for row in await record.store.runs(name) if row.parent_run is None]
    if not rows:
        raise NoRun(name)
    said = await history(record.store, rows, calls=request.query_params.get("calls") in ("1", "true"))
    return answered({"session": name, "messages": said, "waiting": await record.waiting(rows[-1].run)})


def named(request: Request) -> str:
    """Return the name of the session in a request's path. It names a session only, never a run.

    Raises Refused for a name with a character that a database keeps in no column.
    """
    return SECRETS.text(kept(request.path_params["session"]))


async def run(request: Request, service: Service) -> Response:
    """Show the state of a run: its session, parent run and turns, whether a turn is open, and what it waits for."""
    record, name = service.record, await found(request, service)
    row, state = await record.find(name), await record.state(name)
    turn = state.turn
    shown = {
        "run": row.run,
        "session": row.session,
        "name": row.name,
        "parent_run": row.parent_run,
        "head": state.head,
        "turns": len(state.began),
        "open": state.open,
        "reason": turn.reason if turn is not None else None,
        "waiting": await record.waiting(name),
    }
    return answered(shown)


async def waiting(_request: Request, service: Service) -> Response:
    """List the approvals, answers and other things that the unfinished turns of all sessions wait for."""
    return answered([wait for each in await service.record.sessions() for wait in each.waiting])


async def run_events(request: Request, service: Service) -> Response:
    """Stream the events of a run after the event `after` or `Last-Event-ID`, then new events as they come."""
    run = await found(request, service)
    return _events(request, service, await service.record.followers.target(run, service.record.find))


async def session_events(request: Request, service: Service) -> Response:
    """Stream the events of a session, with the same parameters as for a run. The session need not have begun yet."""
    return _events(request, service, Target(session=named(request), whole=True))


def _events(request: Request, service: Service, target: Target) -> Response:
    """Return a stream of the events of a run or a session. A session that has not begun is waited for.

    With `until=end` in the query, the stream ends as soon as no turn is unfinished.

    Raises:
        Refused: the parameter `after` is malformed, or too many streams are open.
    """
    record, query = service.record, request.query_params
    after = request.headers.get("last-event-id") or query.get("after") or "0"
    if not AFTER.fullmatch(after):
        raise Refused(
            400, "BadRequest", f"after is {after!r:.40}, expected the id of an event, such as 17-0, or a pos."
        )

    async def lines() -> AsyncIterator[bytes]:
        async for event in record.follow(replace(target, until_end=query.get("until") == "end"), after=after):
            yield told(event)

    service.followers.occupy()
    return EventStream(lines(), service.draining, leave=service.followers.free)


def told(event: Event) -> bytes:
    """Return the bytes of an event for the stream, without tracebacks of errors."""
    if event.type == "explain" and event.explain_graph.holds is not None:
        event = replace(event, explain_graph=replace(event.explain_graph, holds=shown(event.explain_graph.holds)))
    elif event.type == "end":
        event = replace(event, outcome=shown(event.outcome))
    return line(encoded(plain(event)), event=event.type, id_=event.id)
