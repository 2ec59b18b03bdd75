"""Reads the bytes of a reply as JSON. The bytes show whether it is one JSON value or a stream of server-sent events.

This file decodes the JSON. The parser of each provider's format, a subclass of `Incoming`, interprets it. The bytes may
be cut anywhere: the result is the same. A delta is a piece of text or thought, to show while the reply arrives.
"""

from abc import ABC, abstractmethod
from typing import Any

from gesta.errors import ModelFault
from gesta.model.request import Delta, Reply
from gesta.models.faults import bad_reply, excerpt, lost_stream
from gesta.models.jsontext import read
from gesta.models.sse import Event, Events

BLANK = b" \t\r\n\xef\xbb\xbf"
"""Bytes that may come before a reply: keep-alive lines and a byte order mark."""
FIRST = 1000
"""Number of bytes at the start of a stream that are kept. An error shows them if they are not a stream of events."""
MARK = b"[DONE]"
"""The data of the event with which many servers end a stream."""


class Incoming(ABC):
    """Base class of the parsers of replies. One object parses one reply.

    A reply that is one JSON value has no deltas. In a stream, the last event may lack the empty line after it. Such an
    event is part of the reply, but makes no delta.
    """

    def __init__(self) -> None:
        self.whole: list[bytes] | None = None
        """Pieces of a reply that is not a stream."""
        self.first = b""
        """The first bytes of a stream, at most `FIRST`."""
        self.marked = False
        """Whether the server's mark for the end of the stream came."""
        self._events: Events | None = None

    def feed(self, data: bytes) -> list[Delta]:
        """Read the next bytes, and return the deltas that they complete.

        Raises:
            ModelFault: the stream reports an error, or an event is not JSON.
        """
        if self._events is None:  # the form is not known yet, or it is a whole reply
            if self.whole is not None:
                self.whole.append(data)
                return []
            data = data.lstrip(BLANK)
            if not data:
                return []
            if data[0] in b"{[":
                self.whole = [data]
                return []
            self._events = Events()
        if len(self.first) < FIRST:
            self.first += data[: FIRST - len(self.first)]
        return self._take(self._events.feed(data))

    def close(self) -> Reply:
        """Return the whole reply. Call this method after the last bytes.

        Raises:
            ModelFault: `lost-stream` if the bytes end early, `bad-reply` if they are not reply, or the error that the
                reply reports.
        """
        if self.whole is not None:
            data = b"".join(self.whole)
            try:
                body = read(data)
            except ValueError as exc:
                raise bad_reply(f"Expected one JSON object, found {excerpt(data)}: {exc}.") from exc
            self.take_whole(body, data)
        elif self._events is None:
            raise lost_stream("The reply ended before its first byte.")
        else:
            self._read_rest(self._events)
            self.check_end()
        return self.reply()

    @property
    def over(self) -> bool:
        """Whether the reply has ended. The rest of the stream is then ignored."""
        return self.marked

    @property
    def beginning(self) -> bytes:
        """The first bytes of the stream, for an error message; only its first line once the reply has ended."""
        return self.first.splitlines()[0] if self.over else self.first

    def lost(self, found: str, *, begun: bool) -> ModelFault:
        """Return the ModelFault (the error of a failed model request) for a stream that ended early.

        Args:
            found: sentence that says how the stream ended, for the error's message.
            begun: whether any part of a reply came. If none came and the bytes are not a stream of events, the error is
                `bad-reply`, otherwise `lost-stream`.
        """
        if self._events is not None and self._events.strange and not (begun or self.over):
            return bad_reply(f"Expected JSON or server-sent events, found {excerpt(self.beginning)}.")
        return lost_stream(found)

    # Each provider's format implements these.

    @abstractmethod
    def take_whole(self, body: Any, data: bytes) -> None:
        """Read a whole reply, which came as one JSON value, so that `reply` can return it.

        Args:
            body: the decoded JSON value.
            data: the bytes of the value, for error messages.

        Raises:
            ModelFault: the value is not a reply, or it reports an error.
        """

    @abstractmethod
    def take_event(self, event: Any, name: bytes) -> list[Delta]:
        """Read one event of a stream, and return its deltas. Raises ModelFault if the event reports an error.

        Args:
            event: the decoded JSON of the event.
            name: type of the event, as the stream states it; empty if it states none.
        """

    @abstractmethod
    def check_end(self) -> None:
        """Raise ModelFault if the stream ended before the reply was complete."""

    @abstractmethod
    def reply(self) -> Reply:
        """Return the reply as far as it has been read."""

    def _take(self, events: list[Event]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            if self.over:
                break
            if not data.startswith(b"{") and (word := data.strip()) in (b"", MARK):
                self.marked = bool(word)
                continue
            try:
                event = read(data)
            except ValueError as exc:
                if b"\n" not in data:
                    found = f"Expected JSON in an event of the stream, found {excerpt(data)}: {exc}."
                    raise bad_reply(found) from exc
                # Some servers leave out the empty line between events.
                deltas += self._take([(name, line) for line in data.split(b"\n")])
            else:
                deltas += self.take_event(event, name)
        return deltas

    def _read_rest(self, events: Events) -> None:
        """Read the stream's last event if the empty line after the event is missing.

        An event that was cut off, so that its data is not JSON, is ignored.
        """
        try:
            self._take(events.close())
        except ModelFault as exc:
            if exc.type != "bad-reply":
                raise
