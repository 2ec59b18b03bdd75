"""Runs the application with uvicorn. When the server ends, running turns are left open until it is started again.

A turn is one message to an agent and all the work up to its answer.
"""

import signal
from collections.abc import Callable
from contextlib import suppress
from socket import socket
from types import FrameType
from typing import Protocol

import anyio
import uvicorn
from starlette.applications import Starlette

DRAIN_S = 10
"""Greatest number of seconds that running requests have to end."""
LATE_S = 0.05
"""Seconds between two looks for connections that arrived while the server began to end."""
BEGIN_CYCLES = 4
"""Cycles of the event loop that a connection takes from its arrival to its first callback, and one more."""


class Drains(Protocol):
    """A service that refuses new requests and ends its streams before its server ends."""

    def drain(self) -> None:
        """Refuse new requests, and end open streams."""


class Server(uvicorn.Server):
    """A uvicorn server that calls its service's `drain` as soon as it is asked to end.

    Args:
        service: refuses new requests once its method `drain` was called.
        ready: called with the address of the server, once it listens.
    """

    def __init__(self, config: uvicorn.Config, service: Drains, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._service, self._ready = service, ready
        self.servers = []  # uvicorn sets them once they listen, and a signal may come before

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start to listen, and then call `ready` with the address, unless the server is asked to end already."""
        await super().startup(sockets)
        if self.should_exit:
            self._service.drain()
        elif self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end the server, which then exits with code 0. A second Ctrl-C ends the server at once."""
        del frame
        if self.servers:
            self.servers[0].get_loop().call_soon_threadsafe(self._service.drain)
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Stop listening, let running requests end, and close all connections.

        uvicorn closes the idle connections that it knows. A connection that it has accepted, but does not know yet,
        would stay open, and hold the server up until its time to end is over.
        """
        await self._stop_accepting()
        async with anyio.create_task_group() as group:
            group.start_soon(self._close_late)
            await super().shutdown(sockets)
            group.cancel_scope.cancel()
        for connection in self.server_state.connections:  # requests whose time to end is over
            connection.transport.abort()
        await anyio.lowlevel.checkpoint()  # the transports close their sockets in the next cycle of the loop

    async def _stop_accepting(self) -> None:
        """Accept no more connections, and wait until those that were accepted have begun.

        Python 3.11 leaves a connection open that has not begun when its server is closed (python/cpython#109564).
        """
        loop = self.servers[0].get_loop()
        for listens in (each for server in self.servers for each in server.sockets):
            with suppress(NotImplementedError, RuntimeError):  # loops that are not of asyncio, and that of Windows
                loop.remove_reader(listens)
        for _ in range(BEGIN_CYCLES):
            await anyio.lowlevel.checkpoint()

    async def _close_late(self) -> None:
        """Close connections that became idle or known after the server began to end, until this task is cancelled."""
        while True:
            await anyio.sleep(LATE_S)
            for connection in list(self.server_state.connections):
                if not connection.transport.is_closing():
                    connection.shutdown()


async def serve(app: Starlette, service: Drains, listens: socket, *, ready: Callable[[str], None]) -> None:
    """Serve an application until SIGTERM or Ctrl-C.

    Args:
        app: the application that `assembled` returned for an opened record.
        service: the service that `assembled` returned with it.
        listens: the socket at which requests arrive.
        ready: called with the address, once requests are answered.
    """
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN_S)
    await Server(config, service, ready).serve([listens])
