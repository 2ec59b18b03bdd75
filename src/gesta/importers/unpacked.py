"""Counts the bytes of a file while it is unpacked, because a small file may unpack to more than a disk can hold.

Also decodes JSON texts that strict decoders refuse.
"""

import io
import json
from typing import IO, Any

from msgspec import MsgspecError
from msgspec import json as fast

AT_ONCE = 64 * 1024


class Counted(io.RawIOBase):
    """An unpacked file that raises the error `failure` as soon as more than `most` bytes were read."""

    def __init__(self, file: IO[bytes], most: int, failure: Exception) -> None:
        self._file, self._most, self._failure = file, most, failure
        self.size = 0
        """Number of bytes that were read so far."""

    def buffered(self) -> IO[bytes]:
        """Return a buffered reader of this file."""
        return io.BufferedReader(self, AT_ONCE)

    def readable(self) -> bool:
        """Return `True`, as `io.RawIOBase` asks of a file that can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer, and return their number, as `io.RawIOBase` describes. Raises `failure`."""
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.size += len(data)
        if self.size > self._most:
            raise self._failure
        return len(data)


def _integer(text: str) -> int | str:
    """Return the integer in a text, or the text itself if it has more digits than Python accepts."""
    try:
        return int(text)
    except ValueError:
        return text


def loads(text: str) -> Any:
    """Return the value of a JSON text. A faster decoder reads the text if it can, with the same result.

    Raises:
        ValueError, RecursionError: the text is not JSON, or is nested too deeply.
    """
    try:
        return fast.decode(text)
    except NOT_EXACT:
        return DECODER.decode(text)


NOT_EXACT = (MsgspecError, RecursionError, ValueError)
"""Errors of the decoder `fast`, which needs a quarter of the time. `DECODER` may still read a text that `fast`
refuses."""
DECODER = json.JSONDecoder(parse_int=_integer, strict=False)
"""A decoder that reads all JSON that Python accepts, also NaN and line ends inside strings."""
