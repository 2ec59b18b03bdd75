"""Answers a request that failed, and says what an HTTP client can do about it.

The messages of Gesta's errors name functions of Python and commands of a terminal. A client of the server has neither,
so these parts are replaced here by paths of the server. A run is the recorded conversation or task of one agent.
"""

from starlette.responses import Response

from gesta import errors
from gesta.errors import GestaError
from gesta.record.followers import FollowerTooSlow
from gesta.serve.bodies import failed, failure, status_of

SEVERAL = (
    "Send one of these numbers, as `call`, or as `question` where it says `of`, to the path of the run that is named "
    "with it. Or send the element of GET /waiting as `waiting`."
)
"""What to do if a person's word fits several waits, or another one than it names."""


def advised(raised: BaseException) -> Response:
    """Return the error response to a request whose handling raised this exception."""
    message = told(raised) if isinstance(raised, GestaError) else ""
    if not message:
        return failure(raised)
    status = status_of(raised)
    return failed(status, type(raised).__name__, message, {"Retry-After": "1"} if status == 503 else None)


def told(raised: GestaError) -> str:
    """Return the message of an error for an HTTP client; an empty text if the error's own message fits."""
    match raised:
        case errors.NoRun():
            todo = "GET /sessions lists the sessions and their runs."
        case errors.SeveralRuns():
            todo = "Name a run by its session in place of its id, or the other way round. GET /sessions lists both."
        case errors.Expired():
            todo = "The call does not run, and the model reads that nobody answered in time."
        case errors.NotWaiting(waiting=()):
            todo = "GET /waiting lists what waits."
        case errors.NotWaiting():
            todo = SEVERAL
        case errors.SaidBefore(root=root):
            todo = f"Nothing was sent. GET /runs/{root} says how the run goes on."
        case errors.TurnOpen(run=run):
            todo = f"GET /runs/{run} says what it waits for, and POST /runs/{run}/cancel ends it."
        case FollowerTooSlow(after=after):
            todo = f"Ask for the events again, with the header `Last-Event-ID: {after}`."
        case errors.RunHeld(run=run, unknown=None):
            return f"Run {run!r} is being written now. Ask again when that is done: GET /runs/{run} says how it stands."
        case errors.LeaseLost():
            return "The server lost the run while it worked on it. Send the message again, under its key if it has one."
        case _:
            return ""
    return f"{raised.found}. {todo}"
