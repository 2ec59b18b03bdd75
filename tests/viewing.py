"""A viewer on records, on a port of the loopback interface, in a thread of the test."""

import socket
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import anyio
import httpx2
import uvicorn

import gesta
from gesta.serve.server import Server
from gesta.web.app import Viewer
from gesta.web.data import Pages

TOKEN = "a-token-of-the-viewer-2718281828459045"


@contextmanager
def viewed(*records: str | Path, port: int = 0) -> Iterator[str]:
    """Show records in this block, and yield the address without its token."""
    address: list[str] = []
    listening, servers = threading.Event(), list[Server]()

    def ready(at: str) -> None:
        address.append(at)
        listening.set()

    async def main() -> None:
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(gesta.open(each, readonly=True)) for each in records]
            pages = [Pages(record, Path(each).name, str(each)) for record, each in zip(opened, records, strict=True)]
            viewer = Viewer(pages)
            config = uvicorn.Config(viewer.app(TOKEN), log_level="warning", timeout_graceful_shutdown=5)
            servers.append(Server(config, viewer, ready))
            with socket.create_server(("127.0.0.1", port)) as listens:
                await servers[0].serve([listens])

    thread = threading.Thread(target=anyio.run, args=[main])
    thread.start()
    try:
        assert listening.wait(10)
        yield address[0]
    finally:
        servers[0].handle_exit(15, None)
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def visited(*records: str | Path, at: str = "") -> Iterator[httpx2.Client]:
    """Show records in this block, and yield a browser that has opened the address with its token.

    Args:
        at: the place below which the browser asks.
    """
    with viewed(*records) as address, httpx2.Client(base_url=f"{address}{at}", follow_redirects=True) as client:
        client.get(f"{address}/", params={"token": TOKEN}).raise_for_status()
        yield client
