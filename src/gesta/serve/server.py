"""Runs the application with uvicorn. When the server ends, running turns are left open until it is started again.

A turn is one message to an agent and all the work up to its answer.
"""

import signal
from collections.abc import Callable
from socket import socket
from types import FrameType
from typing import Protocol

import uvicorn
from starlette.applications import Starlette

DRAIN_S = 10
"""Greatest number of seconds that running requests have to end."""


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

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start to listen, and then call `ready` with the address."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end the server, which then exits with code 0. A second Ctrl-C ends the server at once."""
        del frame
        if self.servers:
            self.servers[0].get_loop().call_soon_threadsafe(self._service.drain)
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


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
