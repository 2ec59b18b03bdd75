"""Server-sent events. The id of an event is its place in the record (the store of all runs).

After a lost connection, a browser sends the last id, and gets the events after it.

Source: WHATWG HTML standard, section "Server-sent events".
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gesta.serve.advice import advised
from gesta.serve.bodies import json_bytes

LOGGER = logging.getLogger("gesta")
BEAT_S = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy closes the stream."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def line(data: bytes, *, event: str | None = None, id_: str | None = None) -> bytes:
    """Return the bytes of one event with the given data, which must be in one line."""
    head = f"id: {id_}\n".encode() if id_ is not None else b""
    head += f"event: {event}\n".encode() if event is not None else b""
    return head + b"data: " + data + b"\n\n"


def encoded(value: Any) -> bytes:
    """Return a value as JSON in one line, with the secrets of this process replaced by their names."""
    return json_bytes(value)


class EventStream(Response):
    """HTTP response that sends the events of an iterator. It ends with the iterator, the connection or the server."""

    media_type = "text/event-stream"

    def __init__(
        self,
        lines: AsyncIterator[bytes],
        draining: anyio.Event,
        *,
        failing: Callable[[BaseException], bytes] | None = None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the response.

        Args:
            lines: yields the bytes of each event.
            draining: set when the server is about to end.
            failing: returns the bytes of a last event if the iterator raises an exception.
            leave: called when the stream has ended.
        """
        super().__init__(headers=HEADERS)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._lines, self._draining = lines, draining
        self._failing, self._leave = failing or _failed, leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, and a comment after each `BEAT_S` seconds without an event."""
        heard = anyio.Event()

        async def ends_with(wait: Callable[[], Any]) -> None:
            await wait()
            group.cancel_scope.cancel()

        async def left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def beat() -> None:
            nonlocal heard
            while True:
                heard = anyio.Event()
                with anyio.move_on_after(BEAT_S):
                    await heard.wait()
                    continue
                await send({"type": "http.response.body", "body": b": \n\n", "more_body": True})

        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] == "HEAD":  # it asks for the headers alone
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            async with anyio.create_task_group() as group:
                for task in (left, self._draining.wait):
                    group.start_soon(ends_with, task)
                group.start_soon(beat)
                try:
                    async for each in self._lines:
                        heard.set()
                        await send({"type": "http.response.body", "body": each, "more_body": True})
                except Exception as raised:
                    LOGGER.warning("A stream failed.", exc_info=raised)
                    await send({"type": "http.response.body", "body": self._failing(raised), "more_body": True})
                group.cancel_scope.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._leave()
            with anyio.CancelScope(shield=True):
                if (close := getattr(self._lines, "aclose", None)) is not None:
                    await close()


def _failed(raised: BaseException) -> bytes:
    """Return the last event of a stream whose iterator raised an exception. The event has the type `failed`."""
    return line(bytes(advised(raised).body), event="failed")
