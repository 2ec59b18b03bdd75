"""Sessions and runs: messages to agents, what was said, where a run stands, and its events as they come."""

from collections.abc import AsyncIterator

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from gesta.events import Event
from gesta.perform.result import plain
from gesta.serve.bodies import NewMessage, answered, read, shown
from gesta.serve.people import found
from gesta.serve.service import Service
from gesta.serve.sse import EventStream, encoded, line


async def health(_request: Request, service: Service) -> Response:
    """Return whether the server takes messages, and for which agents."""
    return answered({"status": "ok", "record": service.record.info.id, "agents": [*service.agents]})


async def agents(_request: Request, service: Service) -> Response:
    """List the agents."""
    return answered(
        [{"name": each.name, "tools": [tool.name for tool in each.tools]} for each in service.agents.values()]
    )


async def message(request: Request, service: Service) -> Response:
    """Send a message to an agent, and answer with the outcome; or with its events, if the request accepts those."""
    said = await read(request, NewMessage)
    agent, session = service.agent(said.agent), request.path_params["session"]
    if "text/event-stream" not in request.headers.get("accept", ""):
        with service.turns:
            outcome = await service.record.run(agent, said.message, session=session, key=said.key, user=said.user)
        return answered(shown(outcome))
    record = service.record
    stream = record.stream(agent, said.message, session=session, key=said.key, user=said.user)

    async def lines() -> AsyncIterator[bytes]:
        async for event in stream:
            yield told(event)
        if stream.outcome is not None:
            yield line(encoded(plain(shown(stream.outcome))), event="outcome")

    service.turns.occupy()
    return EventStream(lines(), service.draining, leave=service.turns.free)


async def run(request: Request, service: Service) -> Response:
    """Show where a run stands."""
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
    """List what open turns of all sessions wait for."""
    record = service.record
    open_ = [row.run for row in await record.store.runs() if row.parent_run is None]
    return answered([each for run in open_ for each in await record.waiting(run)])


def told(event: Event) -> bytes:
    """Return an event as it is sent."""
    if event.type == "explain" and event.explain_graph.holds is not None:
        event = replace(event, explain_graph=replace(event.explain_graph, holds=shown(event.explain_graph.holds)))
    elif event.type == "end":
        event = replace(event, outcome=shown(event.outcome))
    return line(encoded(plain(event)), event=event.type, id_=event.id)
