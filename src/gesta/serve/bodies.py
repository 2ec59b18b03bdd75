"""Reads the bodies of requests into structs, writes JSON responses, and chooses the HTTP status of each error.

A run is the recorded conversation or task of one agent, and the record is the store of all runs. A turn is one message
to an agent with all that follows until its answer. The outcome of a turn says how it ended. An entry is one recorded
fact of a run, such as a tool call.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from gesta import errors
from gesta.decide.waiting import Waiting
from gesta.errors import GestaError, message_of, nearest
from gesta.kinds import Error
from gesta.perform.call_contents import plain
from gesta.text.redactor import SECRETS
from gesta.text.tracing import trace_context

Body = TypeVar("Body", bound=msgspec.Struct)

STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (errors.NoRun, 404),
    (errors.SeveralRuns, 409),
    (errors.NotWaiting, 409),
    (errors.SaidBefore, 409),
    (errors.OtherMessage, 409),
    (errors.OtherType, 409),
    (errors.TurnOpen, 409),
    (errors.RunHeld, 409),
    (errors.RunMirrored, 409),
    (errors.WriteFailed, 503),
    (errors.LeaseLost, 503),
    (errors.NoServer, 503),
    (errors.NoKey, 500),
    (errors.NoDeps, 500),
    (errors.BadAddress, 500),
    (errors.MissingExtra, 500),
    (errors.AgentError, 400),
)
"""HTTP status for each class of errors. The first class that matches decides. Any other error has status 500."""


UNKEPT = re.compile("[\0\ud800-\udfff]")
"""Characters that a database keeps in no column as they are: U+0000, and half of a surrogate pair."""


class Refused(Exception):
    """Raised to answer a request with an HTTP error.

    Args:
        status: HTTP status.
        type_: name of the error, for programs.
        message: text for people.
        headers: further HTTP headers of the response.
    """

    def __init__(self, status: int, type_: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.type, self.message, self.headers = status, type_, message, headers
        super().__init__(message)


def kept(session: str) -> str:
    """Return the name of a session. Raises Refused if it holds a character that a database keeps in no column."""
    if (odd := UNKEPT.search(session)) is not None:
        raise Refused(400, "BadRequest", f"The session's name holds {odd[0]!r}. Leave that character out of it.")
    return session


def unopened() -> Refused:
    """Return the error for a request to an application that has not opened its record.

    An application that was given an address opens the record when a server starts it. An application that is mounted in
    another one is not started, so it never opens the record.
    """
    mount = "async with gesta.open(...) as record: web.mount(PATH, app(record, ...))"
    found = "The record is not open: this application was given an address, and was not started by a server."
    return Refused(500, "NotStarted", f"{found} Mounted in another one it needs an opened record: {mount}")


Failed = TypeVar("Failed", bound=msgspec.Struct)


def shown(value: Failed) -> Failed:
    """Return a copy of a value without the traceback of its error. The copy is sent to a client.

    Args:
        value: an outcome, or the content of an entry.
    """
    error = getattr(value, "error", None)
    if not isinstance(error, Error) or error.traceback is None:
        return value
    return replace(value, error=replace(error, traceback=None))


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON in one line. Secrets of this process, such as API keys, are replaced by their names."""
    try:
        return SECRETS.bytes(msgspec.json.encode(value))
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can contain only as an escape
        return SECRETS.bytes(json.dumps(msgspec.to_builtins(value)).encode())


def answered(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON value. The secrets of this process are replaced by their names."""
    return Response(json_bytes(plain(value)), status, dict(headers or {}), "application/json")


def failed(status: int, type_: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an HTTP error response with the JSON form of errors that OpenAI's clients read."""
    error = {"message": SECRETS.message(message), "type": type_, "param": None, "code": None}
    return answered({"error": error}, status, headers)


def too_large(most: int) -> Response:
    """Return the error response to a request whose body is larger than `most` bytes."""
    return failed(413, "BodyTooLarge", f"The body has more than {most} bytes. Raise body_bytes= or --body-bytes.")


def status_of(raised: BaseException) -> int:
    """Return the HTTP status of an error that Gesta raises; 500 for any other exception."""
    return next((status for type_, status in STATUS if isinstance(raised, type_)), 500)


def failure(raised: BaseException) -> Response:
    """Return the error response to a request whose handling raised this exception."""
    if isinstance(raised, Refused):
        return failed(raised.status, raised.type, raised.message, raised.headers)
    status = status_of(raised)
    more = {"Retry-After": "1"} if status == 503 else None
    if isinstance(raised, GestaError):
        return failed(status, type(raised).__name__, message_of(raised), more)
    return failed(500, "InternalError", "The server failed; its log says why. What is on the record is safe.")


def caller(request: Request) -> str | None:
    """Return the W3C trace context (header `traceparent`) of a request; `None` if it is missing or malformed."""
    header = request.headers.get("traceparent")
    return header if trace_context(header) is not None else None


async def read(request: Request, form: type[Body]) -> Body:
    """Return the JSON body of a request as a struct of the type `form`.

    Raises:
        Refused: the content type is not JSON, or the body does not fit the type.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # browsers let pages of other sites send other types without asking the server first
        raise Refused(415, "UnsupportedMediaType", f"Content-Type is {kind!r}, expected application/json.")
    raw = await request.body()
    try:
        return msgspec.json.decode(raw or b"{}", type=form)
    except msgspec.ValidationError as wrong:
        raise Refused(400, "BadRequest", f"{wrong}.{near(str(wrong), form)}") from wrong
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise Refused(400, "BadRequest", f"The body is not JSON: {wrong}.") from wrong


def near(said: str, form: type[msgspec.Struct]) -> str:
    """Return a hint for a body with an unknown member: the most similar known member, and all known members.

    Args:
        said: text of the error. If the error is about something else, the hint is empty.
        form: type of the body.
    """
    if "unknown field" not in said:
        return ""
    known = [field.encode_name for field in msgspec.structs.fields(form)]
    return f"{nearest(said.split('`')[1], known)} Known: {', '.join(known)}."


class Received(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all request bodies: a body with an unknown member is refused."""


class NewMessage(Received, frozen=True, kw_only=True):
    """Body of a request that sends a person's message to an agent."""

    message: str
    agent: str | None = None
    """Name of the agent; required if the server has several agents."""
    key: str | None = None
    """Key of the message: if a message is sent twice with the same key, the second one begins no turn."""
    user: str | None = None
    """Name of the person who sends the message."""


class Approval(Received, frozen=True, kw_only=True):
    """Body of a request in which a person approves or denies a tool call."""

    call: int | None = None
    """Seq of the call; required if several calls wait for approval."""
    waiting: Waiting | None = None
    """The element of `GET /waiting` that the person was shown. If another one is in its place, the word is refused."""
    by: str | None = None
    """Name of the person who decides."""
    args: dict[str, Any] | None = None
    """Arguments to run the call with, in place of the model's."""
    reason: str | None = None
    token: str | None = None
    """Proof of the person's identity, for the record's `approver`."""


class Answer(Received, frozen=True, kw_only=True):
    """Body of a request in which a person answers a question."""

    value: Any
    """The answer: any JSON value that fits the question's schema."""
    question: int | None = None
    """Seq of the question; required if several questions wait."""
    waiting: Waiting | None = None
    """See `Approval.waiting`."""
    by: str | None = None


class Resolution(Received, frozen=True, kw_only=True):
    """Body of a request in which a person decides about a tool call whose outcome is unknown."""

    verdict: str
    """`done`, `failed` or `retry`; see `Record.resolve`."""
    call: int | None = None
    """Seq of the call; required if several calls are in doubt."""
    waiting: Waiting | None = None
    """See `Approval.waiting`."""
    result: Any = None
    """What the tool would have returned, for `done`."""
    by: str | None = None


class Cancellation(Received, frozen=True, kw_only=True):
    """Body of a request in which a person cancels a turn."""

    by: str | None = None
    reason: str | None = None
    waiting: Waiting | None = None
    """See `Approval.waiting`."""
