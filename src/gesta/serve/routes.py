"""The table of all paths of the server. The routes and the OpenAPI description are made from it."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from gesta.errors import AgentError, nearest
from gesta.serve import bodies, chat, chat_messages, people, runs
from gesta.serve.access import BodyTooLarge
from gesta.serve.advice import advised
from gesta.serve.bodies import too_large
from gesta.serve.service import LOGGER, Service

Answering = Callable[[Request, Service], Awaitable[Response]]
"""A function that answers the requests for a path."""
Method = Literal["GET", "POST"]


class Place(Struct, frozen=True):
    """A path of the server, and the function that answers its requests."""

    method: Method
    path: str
    answers: Answering
    body: type[Struct] | None = None
    """Form of the JSON body of a request; `None` if there is no body."""
    streams: bool = False
    """Whether the response may be server-sent events."""

    @property
    def summary(self) -> str:
        """One sentence about the requests for this path: the first line of the function's docstring."""
        return (self.answers.__doc__ or "").partition("\n")[0].rstrip(".")


PLACES = (
    Place("GET", "/health", runs.health),
    Place("GET", "/agents", runs.agents),
    Place("GET", "/sessions", runs.sessions),
    Place("GET", "/sessions/{session}", runs.session),
    Place("POST", "/sessions/{session}/messages", runs.message, bodies.NewMessage, streams=True),
    Place("GET", "/sessions/{session}/events", runs.session_events, streams=True),
    Place("GET", "/waiting", runs.waiting),
    Place("GET", "/runs/{run}", runs.run),
    Place("GET", "/runs/{run}/events", runs.run_events, streams=True),
    Place("POST", "/runs/{run}/approve", people.approve, bodies.Approval),
    Place("POST", "/runs/{run}/deny", people.deny, bodies.Approval),
    Place("POST", "/runs/{run}/answer", people.answer, bodies.Answer),
    Place("POST", "/runs/{run}/resolve", people.resolve, bodies.Resolution),
    Place("POST", "/runs/{run}/cancel", people.cancel, bodies.Cancellation),
    Place("GET", "/v1/models", chat.models),
    Place("POST", "/v1/chat/completions", chat.completions, chat_messages.ChatRequest, streams=True),
)


DESCRIPTION = "/openapi.json"
"""The path of the OpenAPI description."""


def chosen(paths: Collection[str] | None) -> list[Place]:
    """Return those `PLACES` whose path is in `paths`, or all with `None`. Raises AgentError for an unknown path."""
    if paths is None:
        return [*PLACES]
    known = [*dict.fromkeys(place.path for place in PLACES), DESCRIPTION]
    for path in [paths] if isinstance(paths, str) else paths:
        if path not in known or isinstance(paths, str):
            expected = f"expected a list with some of these: {', '.join(known)}"
            raise AgentError(f"paths= of gesta.serve.app, or --path: found {path!r}, {expected}.{nearest(path, known)}")
    return [place for place in PLACES if place.path in paths]


def routes(service: Service, places: Sequence[Place] = PLACES) -> list[Route]:
    """Return a Starlette route for each place. Exceptions of the place's function become error responses."""
    return [Route(place.path, _answering(place, service), methods=[place.method]) for place in places]


def _answering(place: Place, service: Service) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            if place.body is not None:
                with service.receiving():
                    await request.body()  # the request keeps it
            return await place.answers(request, service)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody receives it
        except BodyTooLarge as raised:
            return too_large(raised.most)
        except Exception as raised:  # noqa: BLE001 - whatever it was, the client is answered
            made = advised(raised)
            if made.status_code == 500:
                LOGGER.error("%s %s failed", place.method, place.path, exc_info=raised)
            return made

    return answer
