"""How a server ends: also a connection that arrives while it begins to end is closed, and holds nothing up."""

import socket
from typing import Any

import anyio
import pytest
import uvicorn

from gesta.serve.server import Server


class Quiet:
    def drain(self) -> None: ...


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("rounds", range(6))
async def test_a_connection_that_arrives_as_the_server_begins_to_end_is_closed_at_once(rounds: int) -> None:
    """Args: rounds: turns of the event loop between the arrival of the connection and the end of the server."""
    config = uvicorn.Config(nothing, log_level="warning", timeout_graceful_shutdown=None)
    server = Server(config, Quiet(), lambda _: None)
    config.load()
    server.lifespan = config.lifespan_class(config)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        await server.lifespan.startup()
        await server.startup([listens])
        peer = socket.create_connection(listens.getsockname())
        try:
            peer.setblocking(False)
            peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
            await server.shutdown([listens])  # without a bound of time: a forgotten connection would hold it up
            assert not server.server_state.connections
        finally:
            peer.close()
