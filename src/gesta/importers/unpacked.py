"""Counts bytes while they are unpacked, because a small file may unpack to more than a disk holds. Also reads JSON."""

import io
import json
from typing import IO, Any

from msgspec import MsgspecError
from msgspec import json as fast

AT_ONCE = 64 * 1024


class Counted(io.RawIOBase):
    """A file that counts the bytes of an unpacker, and raises `failure` after more than `most` bytes."""

    def __init__(self, file: IO[bytes], most: int, failure: Exception) -> None:
        self._file, self._most, self._failure = file, most, failure
        self.size = 0
        """Number of bytes that were read so far."""

    def buffered(self) -> IO[bytes]:
        """Return this file as a buffered reader."""
        return io.BufferedReader(self, AT_ONCE)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer, as `io.RawIOBase` describes."""
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.size += len(data)
        if self.size > self._most:
            raise self._failure
        return len(data)


def _integer(text: str) -> int | str:
    """Return an integer. A number with more digits than Python reads stays a text."""
    try:
        return int(text)
    except ValueError:
        return text


def loads(text: str) -> Any:
    """Return the value of a JSON text, read by the faster decoder if it can read the text: both return the same then.

    Raises:
        ValueError, RecursionError: the text is not JSON, or is nested too deeply.
    """
    try:
        return fast.decode(text)
    except NOT_EXACT:
        return DECODER.decode(text)


NOT_EXACT = (MsgspecError, RecursionError, ValueError)
"""Exceptions of the faster decoder, which is four times as fast, for texts that `DECODER` may still read."""
DECODER = json.JSONDecoder(parse_int=_integer, strict=False)
"""A decoder that reads everything that Python reads: also NaN, and line ends inside strings."""
