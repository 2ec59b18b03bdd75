"""A local server that answers as no provider should: wrong statuses, headers, compressions, sizes and streams."""

import gzip
import socket
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import anyio
from msgspec.structs import replace

import gesta
from benchmarks.fuzz.commands import Wrong
from benchmarks.fuzz.mutating import cut, spoilt
from benchmarks.fuzz.streams import DIALECTS, sent
from gesta.codec.rows import encode_content
from gesta.models.bounds import Bounds
from gesta.models.hosted import dialect
from gesta.models.http import HttpModel
from gesta.models.providers import PROVIDERS

KEY = "sk-fuzz-0123456789abcdef"
STATUSES = (
    b"200 OK",
    b"200 OK",
    b"200 OK",
    b"204 No",
    b"301 Moved",
    b"400 Bad",
    b"401 No",
    b"429 Slow",
    b"500 Oh",
    b"999",
)
HEADERS = (
    *(
        b"content-type: text/event-stream",
        b"content-type: application/json",
        b"content-type: text/html; charset=nothing",
    ),
    *(b"content-length: 5", b"content-length: -1", b"content-length: 99999999999", b"transfer-encoding: chunked"),
    *(b"location: http://u:p@127.0.0.1:1/?key=" + KEY.encode(), b"retry-after: 1e400", b"retry-after: yesterday"),
    *(b"content-encoding: gzip", b"content-encoding: br", b"content-encoding: deflate, gzip", b"x: " + b"y" * 9000),
    *(b"set-cookie: a=b", b"connection: close", b": nameless", b"no colon", b"retry-after-ms: nan", b"x-\xff: \xfe"),
)
BOMB = gzip.compress(b"data: " + b"x" * 20_000_000)


class Server:
    """A server that sends `pieces` to every client."""

    def __init__(self, _folder: Path) -> None:
        self.pieces: list[bytes] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            with connection, suppress(OSError):
                connection.settimeout(2)
                connection.recv(100_000)
                for piece in self.pieces:
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)


def answer(lot: Random, name: str) -> bytes:
    """Return what the server sends: mostly a status line, headers and a body."""
    _, events, whole = DIALECTS[name]
    way = lot.random()
    body = sent(lot, events, whole)
    if way < 0.05:
        body = BOMB
    elif way < 0.15:
        body = lot.choice(
            (b"<html>" + body, b'{"error": {"message": "bad key %b", "code": "%b"}}' % (KEY.encode(), KEY.encode()))
        )
    headers = [lot.choice(HEADERS) for _ in range(lot.choice((0, 1, 1, 2, 4)))]
    if lot.random() < 0.15 or way < 0.05:
        headers = [b"content-encoding: gzip"]
        body = body if way < 0.05 else lot.choice((gzip.compress(body, mtime=0), zlib.compress(body), body[:50]))
    if lot.random() < 0.5:
        headers.append(b"content-length: %d" % len(body))
    data = b"HTTP/1.1 " + lot.choice(STATUSES) + b"\r\n" + b"".join(each + b"\r\n" for each in headers) + b"\r\n" + body
    return spoilt(lot, data) if lot.random() < 0.2 and way >= 0.05 else data


def served(lot: Random, server: Server) -> str:
    """Ask a model whose server answers with hostile data. The turn must end, and no secret may be on record."""
    provider, name = lot.choice(
        (("openai", "responses"), ("anthropic", "anthropic"), ("gemini", "gemini"), ("groq", "chat"))
    )
    data = answer(lot, name)
    server.pieces = cut(lot, data) if len(data) < 100_000 else [data]
    return anyio.run(_asked, provider, server.url)


async def _asked(provider: str, url: str) -> str:
    known = PROVIDERS[provider]
    spoken = dialect(known, "m", None, stream=True)
    model = HttpModel(spoken, replace(known, url=url), key=KEY, bounds=Bounds(total_s=5.0))
    agent = gesta.Agent("asker", model=model, policy=gesta.Policy(retry=gesta.Retry(tries=1, empty=0)))
    async with gesta.open() as record:
        outcome = await record.run(agent, "Hello?")
        entries: list[Any] = await record.read(outcome.run)
        texts = [encode_content(entry.content) for entry in entries]
    await model.aclose()
    if any(KEY in text for text in texts) or KEY in repr(outcome):
        raise Wrong(f"the key is on record: {next((text for text in texts if KEY in text), '')[:600]}")
    return str(outcome.reason)
