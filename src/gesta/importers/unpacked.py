"""What is unpacked is counted as it is read, for a few bytes may hold more than any disk; and how JSON is read."""

import io
import json
from typing import IO, Any

from msgspec import MsgspecError
from msgspec import json as fast

AT_ONCE = 64 * 1024


class Counted(io.RawIOBase):
    """What an unpacker gives; raises `failure` once that is more than so many bytes."""

    def __init__(self, file: IO[bytes], most: int, failure: Exception) -> None:
        self._file, self._most, self._failure = file, most, failure
        self.size = 0
        """Bytes that it gave so far."""

    def buffered(self) -> IO[bytes]:
        """Return it as a file that is read in pieces of some size."""
        return io.BufferedReader(self, AT_ONCE)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read on; see `io.RawIOBase`."""
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.size += len(data)
        if self.size > self._most:
            raise self._failure
        return len(data)


def _integer(text: str) -> int | str:
    """Read an integer; one of thousands of digits, which Python refuses, stays text."""
    try:
        return int(text)
    except ValueError:
        return text


def loads(text: str) -> Any:
    """Read a text of JSON, by the quicker decoder where that reads it, for then both read alike.

    Raises:
        ValueError, RecursionError: it is no JSON, or is nested too deeply.
    """
    try:
        return fast.decode(text)
    except NOT_EXACT:
        return DECODER.decode(text)


NOT_EXACT = (MsgspecError, RecursionError, ValueError)
"""What a decoder raises that reads less than `DECODER`, four times as fast, and reads that alike."""
DECODER = json.JSONDecoder(parse_int=_integer, strict=False)
"""Reads what Python reads: also NaN, and line ends inside strings."""
