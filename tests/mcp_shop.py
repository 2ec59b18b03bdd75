"""Starts the small MCP server of the tests over both transports, and reads what it did."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gesta

SERVER = Path(__file__).with_name("mcp_server.py")


def shop(folder: Path, *words: str, **options: Any) -> Any:
    """Return the server over stdio, as a source of tools."""
    return gesta.mcp([sys.executable, "-S", str(SERVER), str(folder), *words], **options)


@contextmanager
def http_shop(folder: Path) -> Iterator[str]:
    """Start the server over HTTP, and yield its URL."""
    command = [sys.executable, "-S", "-u", str(SERVER), str(folder), "--http"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as server:
        try:
            while not (folder / "port").exists():
                assert server.poll() is None, server.communicate()[0].decode()
            yield f"http://127.0.0.1:{(folder / 'port').read_text()}/mcp"
        finally:
            server.terminate()


@contextmanager
def either(transport: str, folder: Path, **options: Any) -> Iterator[Any]:
    """Yield the server over `stdio` or `http`, as a source of tools."""
    if transport == "stdio":
        yield shop(folder, **options)
    else:
        with http_shop(folder) as url:
            yield gesta.mcp(url, **options)


def lines(folder: Path, name: str) -> list[str]:
    """Return the lines that the server wrote into a file."""
    path = folder / name
    return path.read_text().split("\n")[:-1] if path.exists() else []
