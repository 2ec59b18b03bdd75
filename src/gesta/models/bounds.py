"""Limits the time and the size of one reply. A server may send without end, so the bytes are counted as they arrive.

A reply is decompressed here and not by the HTTP library, at most one mebibyte at a time. So a few compressed bytes
cannot become gigabytes in memory before they are counted. Requests accept only gzip, so only gzip is decompressed.

Source: RFC 9110, section 8.4; RFC 1952.
"""

import math
import zlib
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from gesta.errors import AgentError, ModelFault, nearest
from gesta.models.faults import bad_reply
from gesta.policy import Spelled

MIB = 2**20
VARIABLE = "GESTA_REPLY_BOUNDS"
"""Name of the environment variable that holds the bounds for models given as an address such as `openai:gpt-4o`."""
PIECE = MIB
"""Greatest number of bytes that one step of decompression returns."""


class Bounds(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """The greatest time and size of a reply. `None` means no bound.

    The request is sent again after a reply that took too long, but not after a reply that was too large.
    """

    connect_s: float | None = 10.0
    read_s: float | None = 300.0
    """Greatest number of seconds between two pieces of a reply. A reasoning model may send nothing for minutes before
    its first word."""
    write_s: float | None = 60.0
    total_s: float | None = 1200.0
    """Greatest number of seconds from the sending of the request to the end of the reply."""
    sent_bytes: int | None = 64 * MIB
    """Greatest size of a reply in bytes as they arrive over the network, before decompression."""
    unpacked_bytes: int | None = 64 * MIB
    line_bytes: int | None = 32 * MIB
    """Greatest size in bytes of one line of a stream, which is read as one value."""
    lines: int | None = 2_000_000
    """Greatest number of lines of a stream; an event has two or three."""


def bounds_of(text: str) -> Bounds:
    """Return the bounds that the value of `GESTA_REPLY_BOUNDS` sets, such as `total_s=3600,lines=none`.

    Bounds that the text does not name keep their defaults.

    Raises:
        AgentError: the text names an unknown bound, or a value is neither a number above 0 nor `none`.
    """
    known, given = Bounds.__struct_fields__, dict[str, float | int | None]()
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in known:
            near = nearest(name, known)
            raise AgentError(f"{VARIABLE}: there is no bound {name!r}.{near} The bounds are: {', '.join(known)}.")
        try:
            bound = None if value.lower() == "none" else float(value) if name.endswith("_s") else int(value)
        except ValueError:
            bound = 0
        if bound is not None and not 0 < bound < math.inf:
            example = f"{name}={getattr(Bounds(), name)}"
            expected = f"expected a number above 0 or none, as in {example}"
            raise AgentError(f"{VARIABLE}: {part!r} is not a bound, {expected}.")
        given[name] = bound
    return replace(Bounds(), **given)


class Inflow:
    """A counter for the bytes of one reply, which it decompresses as they arrive.

    Raises:
        ModelFault: type `bad-reply`: the reply has a compression other than gzip.
    """

    def __init__(self, bounds: Bounds, model: str, encoding: str, media_type: str) -> None:
        self._bounds, self._model = bounds, model
        packing = encoding.strip().lower()
        if packing not in ("", "identity", "gzip", "x-gzip"):
            raise bad_reply(f"{model}: the reply is packed as {packing[:100]!r}; expected gzip, or none.")
        self._gzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if packing.endswith("gzip") else None
        self._stream = media_type.strip().lower().startswith("text/event-stream")
        self._sent = self._unpacked = self._line = self._lines = 0

    def take(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes from the network, and yield them in pieces of at most one mebibyte.

        Raises:
            ModelFault: the reply exceeds a bound, or the bytes are not valid gzip.
        """
        self._sent += len(data)
        self._check("sent_bytes", self._sent, "bytes as sent")
        for piece in self._pieces(data):
            self._unpacked += len(piece)
            self._check("unpacked_bytes", self._unpacked, "bytes")
            if self._stream:
                self._count_lines(piece)
            yield piece

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        if self._gzip is None:
            yield data
            return
        while data and not self._gzip.eof:
            try:
                piece = self._gzip.decompress(data, PIECE)
            except zlib.error as exc:
                raise bad_reply(f"{self._model}: the reply cannot be unpacked: {exc}.") from exc
            data = self._gzip.unconsumed_tail
            if piece:
                yield piece

    def _count_lines(self, piece: bytes) -> None:
        ends = piece.count(b"\n") or piece.count(b"\r")
        if ends:
            self._line += max(piece.find(b"\n"), piece.find(b"\r"))
            self._check("line_bytes", self._line, "bytes in one line")
            self._line = len(piece) - 1 - max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        else:
            self._line += len(piece)
        self._lines += ends
        self._check("line_bytes", self._line, "bytes in one line")
        self._check("lines", self._lines, "lines")

    def _check(self, name: str, found: int, unit: str) -> None:
        most = getattr(self._bounds, name)
        if most is not None and found > most:
            raise ModelFault(
                "reply-too-large",
                f"{self._model}: the reply has more than {most:,} {unit}, so the rest was not read. "
                f"Raise it with gesta.hosted(…, bounds=Bounds({name}=…)) if a reply may be as large.",
            )
