"""Reads the bytes of a reply as JSON, whole or as server-sent events. The bytes themselves show which of the two it is.

Each dialect interprets the JSON. However the bytes are cut, the same values come in the same order.
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
"""Greatest number of bytes of a stream that are kept, to show them if the bytes are not a stream of events."""
MARK = b"[DONE]"
"""The event that ends the stream of many servers."""


class Incoming(ABC):
    """A parser for one reply.

    The joined deltas are the text of all complete events. A whole reply has no deltas. The last event may lack the
    empty line after it; it is then part of the reply and makes no delta.
    """

    def __init__(self) -> None:
        self.whole: list[bytes] | None = None
        """Pieces of a reply that is not a stream."""
        self.first = b""
        """The first bytes of a stream, at most `FIRST`, however it was cut."""
        self.marked = False
        """Whether the server's mark for the end of the stream came."""
        self._events: Events | None = None

    def feed(self, data: bytes) -> list[Delta]:
        """Read the next bytes.

        Raises:
            ModelFault: the stream holds an error, or an event that is no JSON.
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
        """Return the reply.

        Raises:
            ModelFault: `lost-stream` when the bytes end early, `bad-reply` when they are no reply, else the reply's own
                error.
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
        """Whether the reply has ended, so that the rest of the stream is ignored."""
        return self.marked

    @property
    def beginning(self) -> bytes:
        """The beginning of the stream, for an error message. Once the reply has ended, only its first line."""
        return self.first.splitlines()[0] if self.over else self.first

    def lost(self, found: str, *, begun: bool) -> ModelFault:
        """Return the fault for a stream that ended early, or for bytes that are no stream of events."""
        if self._events is not None and self._events.strange and not (begun or self.over):
            return bad_reply(f"Expected JSON or server-sent events, found {excerpt(self.beginning)}.")
        return lost_stream(found)

    # of one dialect

    @abstractmethod
    def take_whole(self, body: Any, data: bytes) -> None:
        """Read a whole reply, parsed from these bytes. Raises ModelFault if it is not a reply."""

    @abstractmethod
    def take_event(self, event: Any, name: bytes) -> list[Delta]:
        """Read one event of a stream, and return its words for a listener. Raises ModelFault for an error."""

    @abstractmethod
    def check_end(self) -> None:
        """Raise ModelFault if the stream ended early."""

    @abstractmethod
    def reply(self) -> Reply:
        """Return the reply, as far as it came."""

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
        """Read the last event, which has no empty line after it. If it was cut and cannot be read, it is ignored."""
        try:
            self._take(events.close())
        except ModelFault as exc:
            if exc.type != "bad-reply":
                raise
