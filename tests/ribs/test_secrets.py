"""No key gets out of a process by way of a server that repeats it, against real servers on loopback."""

import base64
import html
import json
import sqlite3
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from tests.conftest import sampled

import gesta
from gesta.errors import BadAddress
from gesta.model.request import Reply, Request
from gesta.models.hosted import dialect
from gesta.models.http import HttpModel
from gesta.models.providers import Provider, Speaks
from gesta.text.redactor import SECRETS

KEY = "sk-TOP/SECRET+0123456789-wxyz=="
SPEAKS: tuple[Speaks, ...] = ("chat-completions", "responses", "anthropic-messages", "gemini")
HEADERS = {"chat-completions": "authorization", "responses": "authorization", "anthropic-messages": "x-api-key"}
ONCE = gesta.Policy(retry=gesta.Retry(tries=1))

Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def serving(answer: Callable[[str], Answer]) -> Iterator[str]:
    """Serve answers that are made of the key that came."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            given = (self.headers.get(name) for name in ("authorization", "x-api-key", "x-goog-api-key"))
            key = next((each for each in given if each), "").removeprefix("Bearer ")
            assert key == KEY
            status, headers, body = answer(key)
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def model(speaks: Speaks, url: str, *, stream: bool = True) -> HttpModel:
    header = {"anthropic-messages": "x-api-key", "gemini": "x-goog-api-key"}.get(speaks, "authorization")
    provider = Provider("test", url, "TEST_KEY", speaks=speaks, key_header=header)
    return HttpModel(dialect(provider, "m", stream=stream), provider, key=KEY)


def error(said: str, **more: Any) -> bytes:
    return json.dumps({"error": {"message": said, **more}}).encode()


def masked(key: str) -> str:
    return f"Incorrect API key provided: {key[:8]}{'*' * 9}{key[-4:]}, or {key[:3]}...{key[-3:]}, or ***{key[-5:]}."


def basic(key: str) -> str:
    return base64.b64encode(f"user:{key}".encode()).decode()


ANSWERS: dict[str, Callable[[str], Answer]] = {
    "an error in a 200 body": lambda key: (200, {}, error(f"bad key {key}", code="invalid_api_key")),
    "an event": lambda key: (
        200,
        {"content-type": "text/event-stream"},
        b"event: error\ndata: " + error(key) + b"\n\n",
    ),
    "a page": lambda key: (502, {}, f"<h1>Bad</h1><a href='?k={quote(key)}'>{html.escape(key)}</a>".encode()),
    "a page with 200": lambda key: (200, {}, f"<html><h1>Who is {key}?</h1></html>".encode()),
    "type and code": lambda key: (400, {}, error("no", type=f"bad {key}", code=key)),
    "a long type": lambda key: (400, {}, error("no", type="x" * 90 + key)),
    "a long page": lambda key: (500, {}, b"y" * 985 + key.encode()),
    "a redirect": lambda key: (
        307,
        {"location": f"http://user:{key}@other.example/{quote(key, safe='')}?k={key}"},
        b"",
    ),
    "masked": lambda key: (401, {}, error(masked(key))),
    "basic": lambda key: (401, {}, error(f"bad header Basic {basic(key)}")),
    "JSON in JSON": lambda key: (400, {}, error(json.dumps(json.dumps({"headers": {"authorization": key}})))),
    "an object": lambda key: (400, {}, json.dumps({"detail": [{key: key}]}).encode()),
    "a bare value": lambda key: (403, {}, json.dumps(key).encode()),
    "half a body": lambda key: (
        200,
        {"content-length": "5000"},
        b'{"choices": [{"message": {"content": "' + key.encode(),
    ),
    "a reason": lambda key: (
        200,
        {},
        b'{"choices":[{"finish_reason":"%s","message":{"content":"%s"}}]}' % ((key.encode(),) * 2),
    ),
}
PIECES = ("TOP/SEC", "RET+0", "0123456789", "wxyz", quote(KEY, safe=""), basic(KEY)[9:-4])


def held(path: Path) -> list[str]:
    """What stands in a record: its bytes, and all that can be unpacked."""
    data = b"".join(each.read_bytes() for each in path.parent.glob(path.name + "*")).decode("latin-1")
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT content FROM entries").fetchall()
    connection.close()
    return [data, *(row[0] for row in rows)]


def check(texts: list[str]) -> None:
    for text in texts:
        assert not [piece for piece in PIECES if piece in text]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("what", "speaks"),
    [pair for place, what in enumerate(ANSWERS) for pair in sampled([(what, speaks) for speaks in SPEAKS], 2, place)],
)
async def test_a_key_that_a_server_repeats_is_nowhere(speaks: Speaks, what: str, tmp_path: Path) -> None:
    path, heard = tmp_path / "r.gesta", list[str]()
    with serving(ANSWERS[what]) as url:
        agent = gesta.Agent("a", model=model(speaks, url), policy=ONCE)
        async with gesta.open(str(path)) as record:
            stream = record.stream(agent, "hello", session="s")
            heard = [repr(event) async for event in stream]
            outcome = stream.outcome
        await agent.model.aclose()  # type: ignore[union-attr]
    assert outcome is not None
    check([*held(path), repr(outcome), *heard])


async def reply_to(asked: HttpModel, request: Request) -> Reply:
    parser = asked.parser()
    async for piece in asked.send(request):
        parser.feed(piece)
    return parser.close()


@pytest.mark.sample(4)
@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("what", ["type and code", "a redirect", "masked", "a page", "an error in a 200 body"])
async def test_a_fault_says_nothing_of_the_key_in_any_form(speaks: Speaks, what: str) -> None:
    with serving(ANSWERS[what]) as url:
        asked = model(speaks, url)
        agent = gesta.Agent("a", model=asked)
        header = agent.header()
        request = Request(header=header, envelope=asked.envelope(header), blocks=[], answered=0)
        with pytest.raises(gesta.ModelFault) as found:
            await reply_to(asked, request)
        await asked.aclose()
    failure = found.value
    failure.add_note(f"asked with {KEY}")
    check(
        [str(failure), repr(failure), failure.type, failure.message, "".join(traceback.format_exception(failure)[-1:])]
    )
    check(failure.__notes__)


SPLIT = KEY[:9], KEY[9:20], KEY[20:]


def test_a_key_that_a_model_says_in_pieces_reaches_no_listener_and_no_record(tmp_path: Path) -> None:
    def events(key: str) -> Answer:
        said = ["The key is ", *SPLIT, ", or not"]
        lines = [json.dumps({"choices": [{"index": 0, "delta": {"content": each}}]}) for each in said]
        lines.append(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        return 200, {"content-type": "text/event-stream"}, "".join(f"data: {line}\n\n" for line in lines).encode()

    path, heard = tmp_path / "r.gesta", list[str]()

    async def main() -> None:
        async with gesta.open(str(path)) as record:
            stream = record.stream(gesta.Agent("a", model=model("chat-completions", url)), "hello")
            heard.extend([event.content async for event in stream if event.type == "answer"])
            assert stream.outcome is not None
            assert stream.outcome.answer == "The key is <secret TEST_KEY>, or not"

    with serving(events) as url:
        anyio.run(main)
    assert "".join(heard) == "The key is <secret TEST_KEY>, or not"
    check([*held(path), *heard])
    assert not any("raw_zlib" in text for text in held(path)[1:])  # it held the key in pieces


@pytest.mark.parametrize(
    "url",
    [
        f"htp://user:{KEY}@host/v1",
        f"user:{KEY}@host/v1",
        f"https:/user:{KEY}@host",
        f"http://:{KEY}@[::1/v1?api-key={KEY}",
        f"https://?key={KEY}",
        f"http://host:0/?token={quote(KEY)}",
    ],
)
def test_a_malformed_base_url_is_shown_without_its_key(url: str) -> None:
    with pytest.raises(BadAddress) as found:
        Provider("x", url)
    check([str(found.value), repr(found.value)])
    assert "is not a base URL" in str(found.value)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://ann:{KEY}@host:port/db",
        "postgresql://ann:TOP/SECRET/0123456789@host:99999999/db?nonsense=1",
        f"postgresql://ann:{KEY}@@host:5432:77/db?password={quote(KEY)}&what=1",
        f"postgresql://ann@host/db?passwd={KEY}",
        f"postgresql:/ann:{KEY}@host/db",
        f"postgres:ann:{KEY}@host/db",
        f"mysql://ann:{KEY}@host/db",
        f"postgresql://ann:{KEY}@host/db?schema=No%20Such",
        "postgresql://ann:wxyz@host:port/db",  # too short to be looked for by its value
    ],
)
async def test_a_malformed_address_of_postgresql_is_shown_without_its_password(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gesta.GestaError) as found:
        async with gesta.open(address, readonly=True):
            pass
    check([str(found.value), repr(found.value)])


async def test_an_address_that_leads_nowhere_is_shown_without_its_password() -> None:
    with pytest.raises(gesta.GestaError) as found:
        async with gesta.open(f"postgresql://ann:{quote(KEY, safe='')}@127.0.0.1:1/db", busy_s=0.1):
            pass
    check(["".join(traceback.format_exception(found.value))])
    assert "postgresql://ann@127.0.0.1:1/db" in str(found.value)


def test_nothing_is_looked_for_where_there_are_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PATH": "/usr/bin"})
    gesta.run_sync(gesta.Agent("a", gesta.scripted("one")), "go", record=str(tmp_path / "a.gesta"))
    assert SECRETS.search is None


def test_each_entry_is_searched_once_where_there_are_secrets(tmp_path: Path) -> None:
    SECRETS.add("crm", KEY)
    SECRETS.text("compile it")
    search, texts = SECRETS.search, list[str]()
    assert search is not None

    def counting(text: str) -> Any:
        texts.append(text)
        return search(text)

    SECRETS.search = counting
    agent = gesta.Agent("a", gesta.scripted("one"))
    gesta.run_sync(agent, "go", record=str(tmp_path / "a.gesta"))
    stored = [text for text in texts if text.startswith('{"kind"')]
    with sqlite3.connect(tmp_path / "a.gesta") as connection:
        ((entries,),) = connection.execute("SELECT count(*) FROM entries").fetchall()
    connection.close()
    assert len(stored) <= entries + 1  # the header is looked at before it is used, too
