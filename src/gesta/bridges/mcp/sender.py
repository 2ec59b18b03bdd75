"""Sends the HTTP requests of a connection. A failed request ends no other request.

The library `mcp` does not report why a request failed, and it ends all calls if one connection is refused. Here a
failure is turned into a JSON-RPC error for the failed request alone, which says whether the request was sent. A random
word in this error's data distinguishes it from errors that the server sent. Header values may be functions, which are
called for each request.
"""

import inspect
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import anyio.to_thread
import httpx2
import msgspec

from gesta.bridges.mcp.spec import Spec
from gesta.errors import message_of
from gesta.text.redactor import SECRETS

CONNECT_S = 30.0
PARTING_S = 1.0
"""Seconds to wait for the server's reply to the end of a session. The reply has no use."""
BODY_BYTES = 64 << 20
"""Greatest size in bytes of a reply that is one JSON document."""
EVENT_BYTES = 64 << 20
"""Greatest size in bytes of one event of a stream."""
UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
    httpx2.InvalidURL,
)
"""Exceptions that mean that no part of the request was sent."""
GATEWAY = (502, 504)
Kind = Literal["unsent", "lost", "gone", "refused"]
"""How a request failed.

`unsent`: it did not reach the server. `lost`: nobody knows whether the server carried it out. `gone`: the server has
forgotten the session. `refused`: the server answered with an error.
"""
CODE = -32000


class HeaderFailed(Exception):
    """The function for a header's value raised an exception, or returned something other than a string."""


class Sender(httpx2.AsyncClient):
    """The HTTP client for one MCP server."""

    def __init__(self, spec: Spec, types: Any, odd: Callable[[], None]) -> None:
        """Make the client of a server.

        Args:
            types: the module `mcp.types`, which reads messages of the protocol.
            odd: called for each event that is left out.
        """
        super().__init__(timeout=httpx2.Timeout(CONNECT_S, read=None))  # each call has a timeout of its own
        self._spec, self._types, self._odd = spec, types, odd
        self.word = os.urandom(12).hex()
        """The random word in the errors that are made here.

        A server does not know it, so it cannot forge such an error.
        """
        self._events = dict[Any, str]()
        """Id of the last event of each request that is not answered yet. A lost stream is resumed by that id."""

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        auth: Any = httpx2.USE_CLIENT_DEFAULT,
        follow_redirects: Any = httpx2.USE_CLIENT_DEFAULT,
    ) -> httpx2.Response:
        """Send a request, and return the reply.

        If the request failed, return a made-up reply with the error instead of raising.
        """
        of = _request_id(request)
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(PARTING_S).as_dict()
        try:
            for name, value in self._spec.headers:
                request.headers[name] = value if isinstance(value, str) else await _given(name, value)
            response = await super().send(request, stream=stream, auth=auth, follow_redirects=follow_redirects)
        except (*UNSENT, HeaderFailed, ValueError) as failure:
            return self._instead(request, of, "unsent", _said(failure))
        except httpx2.TransportError as failure:
            return self._instead(request, of, "lost", _said(failure))
        if request.method == "GET":
            resumed = request.headers.get("last-event-id")
            of = next((each for each, event in self._events.items() if event == resumed), None)
            return self._streamed(request, of, response)
        if request.method != "POST" or of is None:
            return response
        return await self._checked(request, of, response)

    async def _checked(self, request: httpx2.Request, of: Any, response: httpx2.Response) -> httpx2.Response:
        """Read the body of a reply, and return the reply if the body answers the request; else return an error reply.

        A redirect by 307 or 308 is returned unread: the request is to be sent elsewhere, so nothing was done. A stream
        of events is checked while it is read.

        Args:
            of: id of the JSON-RPC request; `None` for a notification, which has no id.
        """
        status, kind = response.status_code, response.headers.get("content-type", "").lower()
        if status < 300 and kind.startswith("text/event-stream"):
            return self._streamed(request, of, response)
        if response.has_redirect_location:
            if status in (307, 308):
                return response
            await response.aclose()
            place = response.headers["location"].partition("?")[0]
            return self._instead(request, of, "lost", f"HTTP {status} to {place}, not an answer to the request")
        try:
            body = await _body(response)
        except (httpx2.TransportError, httpx2.DecodingError) as failure:
            return self._instead(request, of, "lost", _said(failure))
        finally:
            await response.aclose()
        if body is None:
            return self._instead(request, of, "lost", f"the reply has more than {BODY_BYTES} bytes")
        forgotten = status == 404 and "mcp-session-id" in request.headers
        if self._is_answer(body, of, status) and not forgotten:
            names = ("content-type", "mcp-session-id")
            kept = {name: response.headers[name] for name in names if name in response.headers}
            return httpx2.Response(status, headers=kept, content=body, request=request)
        if status < 400:  # the server may have carried it out: the reply was cut off, or a proxy sent it
            what = f"{len(body)} bytes of {kind or 'no type'}" if body else "an empty reply"
            return self._instead(request, of, "lost", f"HTTP {status} with {what}, not an answer to the request")
        said = f"HTTP {status} {response.reason_phrase}".strip()
        if forgotten:
            return self._instead(request, of, "gone", said)
        return self._instead(request, of, "lost" if status in GATEWAY else "refused", said)

    def _is_answer(self, body: bytes, of: Any, status: int) -> bool:
        """Return whether a body is the JSON-RPC answer to the request with the id `of`. An error may lack the id.

        With an HTTP `status` of 400 or more, only an error is an answer.
        """
        try:
            message: Any = self._types.jsonrpc_message_adapter.validate_json(body, by_name=False)
        except ValueError:
            return False
        if isinstance(message, self._types.JSONRPCError):
            return message.id in (of, None)
        return status < 400 and isinstance(message, self._types.JSONRPCResponse) and message.id == of

    def _streamed(self, request: httpx2.Request, of: Any, response: httpx2.Response) -> httpx2.Response:
        """Return a stream of events without those that are not messages or answer another request.

        The library `mcp` would take such an event for the server's answer. Without an answer, a stream that ends is
        a loss, as it is with a reply that is one JSON document. Another response is returned unchanged.

        Args:
            of: id of the JSON-RPC request that the stream answers; `None` if it is not known.
        """
        kind = response.headers.get("content-type", "").lower()
        if response.status_code >= 300 or not kind.startswith("text/event-stream"):
            return response
        session = response.headers.get("mcp-session-id")
        kept = {"content-type": "text/event-stream"} | ({"mcp-session-id": session} if session is not None else {})
        stream = Events(response, self._kept(of, response))
        return httpx2.Response(response.status_code, headers=kept, stream=stream, request=request)

    async def _kept(self, of: Any, response: httpx2.Response) -> AsyncIterator[bytes]:
        async for event in httpx2.EventSource(response, max_event_size=EVENT_BYTES):
            if event.id and of is not None:
                self._events[of] = event.id
            data = event.data
            if event.event == "message" and data and not self._belongs(data, of):
                data = ""
            told = [f"id: {event.id}"] if event.id else []
            told += [f"retry: {event.retry}"] if event.retry is not None else []
            told += [f"event: {event.event}", *(f"data: {line}" for line in data.split("\n") if data), "", ""]
            yield "\n".join(told).encode()

    def _belongs(self, data: str, of: Any) -> bool:
        """Return whether an event is a message of the protocol, and no answer to another request than `of`."""
        try:
            message: Any = self._types.jsonrpc_message_adapter.validate_json(data, by_name=False)
        except ValueError:
            self._odd()
            return False
        failed = isinstance(message, self._types.JSONRPCError)
        if not failed and not isinstance(message, self._types.JSONRPCResponse):
            return True
        if of is not None and message.id != of and not (failed and message.id is None):
            self._odd()
            return False
        self._events.pop(of, None)
        return True

    def _instead(self, request: httpx2.Request, of: Any, kind: Kind, said: str) -> httpx2.Response:
        """Return a made-up reply, which reports to the library `mcp` that a request failed.

        Args:
            of: id of the JSON-RPC request. `None` for a notification, which has no id: then the reply has no body.
            kind: how the request failed, such as `lost`.
            said: the error's message.
        """
        if of is None:
            return httpx2.Response(202 if request.method == "POST" else 503, request=request)
        error = {"code": CODE, "message": SECRETS.message(said), "data": {"word": self.word, "kind": kind}}
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": of, "error": error})
        return httpx2.Response(503, headers={"content-type": "application/json"}, content=body, request=request)

    def kind_of(self, data: Any) -> Kind | None:
        """Return how a request failed, such as `lost`, from an error's data; `None` if the server sent the error."""
        return data.get("kind") if isinstance(data, dict) and data.get("word") == self.word else None


class Events(httpx2.AsyncByteStream):
    """The body of a response that is checked while it is read."""

    def __init__(self, response: httpx2.Response, parts: AsyncIterator[bytes]) -> None:
        self._response, self._parts = response, parts

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the parts of the body."""
        return self._parts

    async def aclose(self) -> None:
        """Close the response."""
        await self._response.aclose()


async def _given(name: str, function: Any) -> str:
    """Return the value of an HTTP header, made by its `function`, and register it as a secret. Raises HeaderFailed."""
    try:
        made = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
        found = function() if made else await anyio.to_thread.run_sync(function)
        value = await found if inspect.isawaitable(found) else found
    except Exception as failure:
        raise HeaderFailed(f"the function of the header {name!r} raised {_said(failure)}") from failure
    if not isinstance(value, str):
        raise HeaderFailed(f"the function of the header {name!r} gave a {type(value).__name__}, expected a text")
    SECRETS.add(name, value)
    SECRETS.add(name, value.partition(" ")[2])
    return value


async def _body(response: httpx2.Response) -> bytes | None:
    """Return the body of a reply; `None` if it is larger than `BODY_BYTES`."""
    parts, size = list[bytes](), 0
    chunks: AsyncIterator[bytes] = response.aiter_bytes()
    async for chunk in chunks:
        size += len(chunk)
        if size > BODY_BYTES:
            return None
        parts.append(chunk)
    return b"".join(parts)


def _request_id(request: httpx2.Request) -> Any:
    """Return the id of the JSON-RPC request in the body; `None` if the body is no such request."""
    try:
        message = msgspec.json.decode(request.content)
    except (msgspec.DecodeError, httpx2.StreamError):
        return None
    return message.get("id") if isinstance(message, dict) and "method" in message else None


def _said(failure: BaseException) -> str:
    said = message_of(failure)
    return f"{type(failure).__name__}: {said}" if said else type(failure).__name__
