"""How a server ends: also a connection that arrives while it begins to end is closed, and holds nothing up."""

import signal
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn

from gesta.serve.server import Server


class Quiet:
    drained = False

    def drain(self) -> None:
        self.drained = True


@asynccontextmanager
async def started(body: bytes, grace_s: int | None) -> AsyncIterator[tuple[Server, socket.socket]]:
    """Start a server that answers each request with a body, and yield it with the socket at which it listens."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for done in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{done}.complete"})
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=grace_s)
    server = Server(config, Quiet(), lambda _: None)
    config.load()
    server.lifespan = config.lifespan_class(config)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        await server.lifespan.startup()
        await server.startup([listens])
        yield server, listens


@pytest.mark.parametrize("rounds", range(6))
async def test_a_connection_that_arrives_as_the_server_begins_to_end_is_closed_at_once(rounds: int) -> None:
    """Args: rounds: turns of the event loop between the arrival of the connection and the end of the server."""
    async with started(b"", None) as (server, listens):  # without a bound: a forgotten connection would hold it up
        with socket.create_connection(listens.getsockname()) as peer:
            peer.setblocking(False)
            peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
            await server.shutdown([listens])
            assert not server.server_state.connections


async def test_peers_that_send_half_a_request_or_never_read_are_cut_off_when_their_time_is_over() -> None:
    async with started(bytes(50_000_000), 1) as (server, listens):
        with ExitStack() as left:
            for sent in (b"", b"GET /", b"\x00odd\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
                peer = left.enter_context(socket.create_connection(listens.getsockname()))
                peer.setblocking(False)
                peer.send(sent)
            await anyio.wait_all_tasks_blocked()
            await server.shutdown([listens])
            assert not server.server_state.connections


async def test_a_server_that_is_asked_to_end_before_it_listens_ends_at_once() -> None:
    service, told, states = Quiet(), list[str](), list[str]()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        server.handle_exit(signal.SIGTERM, None)
        await send({"type": "lifespan.startup.complete"})
        states.append((await receive())["type"])
        await send({"type": "lifespan.shutdown.complete"})

    server = Server(uvicorn.Config(app, log_level="critical"), service, told.append)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        await server.serve([listens])
    assert service.drained
    assert states == ["lifespan.shutdown"]
    assert told == [], "it answers nobody any more"
