"""Reads the bytes of a reply into JSON, whole or as server-sent events; the bytes themselves say which.

What the JSON says is for each dialect to read. However the bytes are cut, the same values come in the same order.
"""

from abc import ABC, abstractmethod
from typing import Any

from gesta.errors import ModelFault
from gesta.model import Delta, Reply
from gesta.models.faults import bad_reply, excerpt, lost_stream
from gesta.models.jsontext import read
from gesta.models.sse import Event, Events

BLANK = b" \t\r\n\xef\xbb\xbf"
"""What may stand before a reply: keep-alive lines and a byte order mark."""
MARK = b"[DONE]"
"""Ends the events of many servers."""


class Incoming(ABC):
    """A reader of one reply.

    Deltas join to the text of the reply as far as it came in complete events; a whole reply has none, and what an
    event without its empty line held at the very end is in the reply alone.
    """

    def __init__(self) -> None:
        self.whole: list[bytes] | None = None
        """Pieces of a reply that is no stream."""
        self.first = b""
        """How a stream began."""
        self.marked = False
        """Whether the server said that its events are over."""
        self._events: Events | None = None

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes.

        Raises:
            ModelFault: the stream holds an error, or an event that is no JSON.
        """
        if self._events is None:  # nothing that tells has come, or a whole reply is coming
            if self.whole is not None:
                self.whole.append(data)
                return []
            data = data.lstrip(BLANK)
            if not data:
                return []
            if data[0] in b"{[":
                self.whole = [data]
                return []
            self.first, self._events = data[:1000], Events()
        return self._take(self._events.feed(data))

    def close(self) -> Reply:
        """Give the reply.

        Raises:
            ModelFault: `lost-stream` when the bytes end early, `bad-reply` when they are no reply, else what the reply
                reports.
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
        """Whether nothing that follows in the stream is part of the reply."""
        return self.marked

    def lost(self, found: str, *, begun: bool) -> ModelFault:
        """Make the fault of a stream that ended early, or that never was one."""
        if self._events is not None and self._events.strange and not begun:
            return bad_reply(f"Expected JSON or server-sent events, found {excerpt(self.first)}.")
        return lost_stream(found)

    # of one dialect

    @abstractmethod
    def take_whole(self, body: Any, data: bytes) -> None:
        """Take a whole reply, read from these bytes. Raises ModelFault for what is none."""

    @abstractmethod
    def take_event(self, event: Any, name: bytes) -> list[Delta]:
        """Take one event of a stream, and give what a listener may hear of it. Raises ModelFault for an error."""

    @abstractmethod
    def check_end(self) -> None:
        """Raise ModelFault where a stream ended early."""

    @abstractmethod
    def reply(self) -> Reply:
        """Give what came."""

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
        """Read what has no line end; it may be cut, so what cannot be read is no news."""
        try:
            self._take(events.close())
        except ModelFault as exc:
            if exc.type != "bad-reply":
                raise
