"""Keeps the last lines of a server's standard error, for the error message if the server does not start."""

import os
from collections import deque
from contextlib import suppress
from threading import Event, Thread
from typing import TextIO

import anyio.to_thread

from gesta.text.redactor import SECRETS

LINES, CHARS = 20, 400


class Tail:
    """A pipe for a server's standard error. A thread reads it and keeps the last lines."""

    def __init__(self) -> None:
        self._lines = deque[str](maxlen=LINES)
        self._ended = Event()
        reading, writing = os.pipe()
        self.file: TextIO = os.fdopen(writing, "w")
        """The writing end of the pipe, which the server gets. This process closes its own copy afterwards."""
        Thread(target=self._empty, args=(reading,), name="gesta mcp stderr", daemon=True).start()

    def _empty(self, reading: int) -> None:
        left = b""
        try:
            while data := os.read(reading, 65536):
                *lines, left = (left + data[-65536:]).split(b"\n")
                left = left[-CHARS:]
                self._lines.extend(line.decode("utf-8", "replace")[-CHARS:] for line in lines[-LINES:])
            self._lines.append(left.decode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            os.close(reading)
            self._ended.set()

    def close(self) -> None:
        """Close this process's copy of `file`. Otherwise the thread would not see that the server has ended."""
        with suppress(OSError):
            self.file.close()

    async def text(self) -> str:
        """Return the last lines without secrets.

        Waits at most a second for the output of a server that has just ended.
        """
        await anyio.to_thread.run_sync(self._ended.wait, 1.0)
        return SECRETS.message("\n".join(f"  {line.rstrip()}" for line in self._lines if line.strip()))
