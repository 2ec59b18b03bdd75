"""What is unpacked is counted as it is read, for a few bytes may hold more than any disk; and how JSON is read."""

import io
import json
from typing import IO, Any

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


DECODER = json.JSONDecoder(parse_int=_integer, strict=False)
"""Reads what Python reads: also NaN, and line ends inside strings."""
