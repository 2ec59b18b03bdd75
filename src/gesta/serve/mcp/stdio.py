"""The protocol over standard input and output, for a client that starts the server as its child.

The server ends when its client closes the input, at SIGTERM and at Ctrl-C. Turns at work are left open, and go on at
its next start. What else is printed goes to standard error, because standard output is the protocol's.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, cast

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server

from gesta.serve.server import Drains

ENDS = (signal.SIGTERM, signal.SIGINT)
STDIN = 0


async def serve(server: Server[Any], served: Drains) -> None:
    """Answer the client until it is gone, or this process is asked to end."""
    async with anyio.create_task_group() as group:

        async def asked() -> None:
            with anyio.open_signal_receiver(*ENDS) as signals:
                async for _ in signals:
                    group.cancel_scope.cancel()

        group.start_soon(asked)
        with _input() as lines:
            async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (read, write):
                with _apart():
                    await server.run(read, write, server.create_initialization_options())
        group.cancel_scope.cancel()
    served.drain()


class Lines:
    """The lines of the input. Whoever stops waiting for one is not held up, for another may never come."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the lines as they come."""
        while line := await anyio.to_thread.run_sync(self._file.readline, abandon_on_cancel=True):
            yield line


@contextmanager
def _input() -> Iterator[Lines]:
    """Reserve the input for the protocol in this block; tools and their children read an empty one."""
    own = os.dup(STDIN)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, STDIN)
    os.close(empty)
    try:  # a thread may still read it when the block ends, so the number must not become that of another file
        yield Lines(os.fdopen(own, encoding="utf-8", errors="replace", closefd=False))
    finally:
        os.dup2(own, STDIN)


@contextmanager
def _apart() -> Iterator[None]:
    """Print to standard error in this block; what was printed before, and is not written yet, goes there too."""
    with redirect_stdout(sys.stderr):
        out = sys.__stdout__
        try:
            yield
        finally:
            if out is not None:
                out.flush()
