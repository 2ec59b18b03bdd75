"""Serves MCP over standard input and output, for a client that starts the server as its child process.

The server ends when the client closes the input, at SIGTERM, and at Ctrl-C. Running turns are left open, and continue
when the server is started again. Standard output is used for MCP only, so all other output goes to standard error.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, cast

import anyio
from anyio.abc import TaskStatus
from mcp.server import Server
from mcp.server.stdio import stdio_server

from gesta.serve.server import Drains

ENDS = (signal.SIGTERM, signal.SIGINT)
STDIN = 0


async def serve(server: Server[Any], served: Drains, ready: Callable[[], None]) -> None:
    """Answer the client until it closes the input, or until this process is asked to end.

    Args:
        server: the MCP server that answers.
        served: the service whose `drain` is called at the end.
        ready: called once this process handles signals.
    """
    async with anyio.create_task_group() as group:

        async def asked(*, task_status: TaskStatus[None]) -> None:
            with anyio.open_signal_receiver(*ENDS) as signals:
                task_status.started()
                async for _ in signals:
                    group.cancel_scope.cancel()

        await group.start(asked)
        ready()
        with _input() as lines:
            async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (read, write):
                with _apart():
                    await server.run(read, write, server.create_initialization_options())
        group.cancel_scope.cancel()
    served.drain()


class Lines:
    """The lines of standard input. A reader that is cancelled stops at once, also while it waits for a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the lines as they come."""
        while line := await anyio.to_thread.run_sync(self._file.readline, abandon_on_cancel=True):
            yield line


@contextmanager
def _input() -> Iterator[Lines]:
    """Yield the lines of standard input. Inside the block, tools and child processes read an empty input instead."""
    own = os.dup(STDIN)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, STDIN)
    os.close(empty)
    try:  # not closed: a thread may still read it, and its number must not be reused for another file
        yield Lines(os.fdopen(own, encoding="utf-8", errors="replace", closefd=False))
    finally:
        os.dup2(own, STDIN)


@contextmanager
def _apart() -> Iterator[None]:
    """Send text that is printed inside this block to standard error. Text that was already buffered goes there, too."""
    with redirect_stdout(sys.stderr):
        out = sys.__stdout__
        try:
            yield
        finally:
            if out is not None:
                out.flush()
