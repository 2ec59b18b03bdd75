"""What is unpacked is counted as it is read, for a few bytes may hold more than any disk."""

import io
from typing import IO, Any

AT_ONCE = 64 * 1024


def counted(file: IO[bytes], most: int, failure: Exception) -> IO[bytes]:
    """Read from an unpacker, and raise `failure` once it gave more than so many bytes."""
    return io.BufferedReader(_Counted(file, most, failure), AT_ONCE)


class _Counted(io.RawIOBase):
    def __init__(self, file: IO[bytes], most: int, failure: Exception) -> None:
        self._file, self._left, self._failure = file, most, failure

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._left -= len(data)
        if self._left < 0:
            raise self._failure
        return len(data)
