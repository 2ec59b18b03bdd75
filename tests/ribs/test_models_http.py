"""Sending over HTTP, against servers on loopback that behave, and against those that do not."""

import asyncio
import gc
import gzip
import json
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import httpx2
import pytest
from tests.laws.dialects import STRICT, Said, Spoken

import gesta
from gesta.errors import AgentError, BadAddress, ModelFault, NoKey
from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Reply, Request
from gesta.models.bounds import Bounds
from gesta.models.chat_completions import ChatDialect
from gesta.models.hosted import hosted, http_model
from gesta.models.http import USER_AGENT, HttpModel, Secret, Wire
from gesta.models.providers import AZURE, PROVIDERS, Provider, locate

pytestmark = pytest.mark.sample(2, over="parent")

KEY = "sk-very-secret-0123456789"
STREAM = (
    b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"Hell"}}]}\n\n'
    b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"o"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"total_tokens":3}}\n\ndata: [DONE]\n\n'
)
WHOLE = b'{"model":"m","choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}],"usage":{"total_tokens":3}}'

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """What was asked of a server on loopback, one text for each request."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.bodies: list[Any] = []
        self.url = ""


@asynccontextmanager
async def serving(*behaviours: Behaviour):
    """A server that meets its requests with these behaviours, one after the other, and the last one for ever."""
    server, left = Server(), list(behaviours)

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                server.heads.append(head.decode())
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                server.bodies.append(json.loads(await reader.readexactly(int(length.split(b":")[1]))))
                await (left.pop(0) if len(left) > 1 else left[0])(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(meet, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()
        await asyncio.sleep(0)


def answer(body: bytes, status: str = "200 OK", *headers: str) -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return behave


def chunked(*pieces: bytes, ended: bool | None = True, pause_s: float = 0.0) -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n")
        for piece in pieces:
            await writer.drain()
            await asyncio.sleep(pause_s)
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if ended:
            writer.write(b"0\r\n\r\n")
        elif ended is False:
            writer.close()

    return behave


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
    writer.close()


@asynccontextmanager
async def asking(server: Server, key: Any = KEY, **options: Any):
    provider = options.pop("provider", Provider("test", server.url, "TEST_KEY"))
    dialect = ChatDialect("m", stream=options.pop("stream", True))
    model = HttpModel(dialect, provider, key=key, **options)
    try:
        yield model
    finally:
        await model.aclose()


def request(model: HttpModel) -> Request:
    header = RequestHeaderContent(meta={"instructions": "Be brief."})
    return Request(
        header=header, envelope=model.envelope(header), blocks=[model.encode(Message(role="user", text="Hi"))]
    )


async def ask(model: HttpModel) -> Reply:
    parser = model.parser()
    async with aclosing(model.send(request(model))) as pieces:
        async for piece in pieces:
            parser.feed(piece)
    return parser.close()


async def fault(model: HttpModel) -> ModelFault:
    with pytest.raises(ModelFault) as found:
        await ask(model)
    assert KEY not in str(found.value)
    return found.value


EXPECTED = Reply(text="Hello", model="m", finish_reason="stop", usage={"total_tokens": 3})


@pytest.mark.parametrize(
    "behaviour",
    [
        chunked(STREAM),
        chunked(*[STREAM[i : i + 11] for i in range(0, len(STREAM), 11)]),
        chunked(STREAM[:100], STREAM[100:], pause_s=0.01),
        chunked(STREAM, ended=False),
        answer(STREAM),
        answer(WHOLE),
        answer(b"\n\n" + WHOLE, "201 Created"),
        answer(gzip.compress(STREAM), "200 OK", "content-encoding: gzip"),
    ],
)
async def test_a_reply_comes_whole_or_in_pieces(behaviour):
    async with serving(behaviour) as server, asking(server) as model:
        assert await ask(model) == EXPECTED
        assert await ask(model) == EXPECTED
    assert server.bodies[0] == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    }


async def test_the_request_is_what_wire_shows():
    async with serving(answer(WHOLE)) as server, asking(server, headers={"X-Title": "t", "Api-Key": KEY}) as model:
        wire = model.wire(request(model))
        await ask(model)
    assert wire == Wire(
        "POST",
        f"{server.url}/chat/completions",
        (
            ("accept", "text/event-stream, application/json"),
            ("accept-encoding", "gzip"),
            ("content-type", "application/json"),
            ("user-agent", USER_AGENT),
            ("authorization", Secret("TEST_KEY", "Bearer ")),
            ("x-title", "t"),
            ("api-key", Secret("api-key")),
        ),
        request(model).body(),
    )
    assert KEY not in repr(wire)
    head = server.heads[0].lower()
    assert head.startswith("post /v1/chat/completions http/1.1\r\n")
    for line in (f"authorization: bearer {KEY}", "x-title: t", f"api-key: {KEY}", f"user-agent: {USER_AGENT}"):
        assert f"\r\n{line}\r\n" in head
    assert head.count(KEY) == 2


async def test_the_key_comes_from_the_environment_when_it_is_sent(monkeypatch):
    async with serving(answer(WHOLE)) as server, asking(server, key=None) as model:
        monkeypatch.delenv("TEST_KEY", raising=False)
        with pytest.raises(NoKey) as found:
            await ask(model)
        assert str(found.value).startswith("No key for 'test': set TEST_KEY. Without a key, `gesta demo` runs")
        monkeypatch.setenv("TEST_KEY", f" {KEY}\n")
        assert (await ask(model)).text == "Hello"
        monkeypatch.setenv("TEST_KEY", "käse")
        with pytest.raises(AgentError, match="holds characters that no HTTP header can carry"):
            await ask(model)
    assert f"\r\nauthorization: Bearer {KEY}\r\n" in server.heads[0]


async def test_a_server_without_a_key_gets_none():
    async with serving(answer(WHOLE)) as server, asking(server, None, provider=Provider("ollama", server.url)) as model:
        assert (await ask(model)).text == "Hello"
        optional = HttpModel(ChatDialect("m"), Provider("vllm", server.url, "NO_SUCH_KEY", key_needed=False))
        assert (await ask(optional)).text == "Hello"
        await optional.aclose()
        own = HttpModel(
            ChatDialect("m"), Provider("x", server.url, "NO_SUCH_KEY"), headers={"Authorization": "Basic x"}
        )
        assert (await ask(own)).text == "Hello"
        await own.aclose()
    assert ["authorization" in head.lower() for head in server.heads] == [False, False, True]
    assert "\r\nauthorization: Basic x\r\n" in server.heads[2]


@pytest.mark.parametrize(
    ("status", "type", "retry"),
    [
        ("400 Bad Request", "http-400", False),
        ("401 Unauthorized", "http-401", False),
        ("404 Not Found", "http-404", False),
        ("408 Request Timeout", "http-408", True),
        ("409 Conflict", "http-409", True),
        ("422 Unprocessable Entity", "http-422", False),
        ("429 Too Many Requests", "http-429", True),
        ("500 Internal Server Error", "http-500", True),
        ("503 Service Unavailable", "http-503", True),
        ("529 Overloaded", "http-529", True),
    ],
)
async def test_a_status_says_whether_to_ask_again(status, type, retry):
    body = b'{"error":{"message":"So it is.","type":null}}'
    async with serving(answer(body, status)) as server, asking(server) as model:
        found = await fault(model)
    assert (found.type, found.http_status, found.retry) == (type, int(status[:3]), retry)
    assert found.message == f"test:m: HTTP {status[:3]}: So it is."


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"m","code":"context_length_exceeded"}}', "m"),
        (b"<h1>Bad gateway</h1>", "<h1>Bad gateway</h1>"),
        (b"", "Bad Gateway"),
        (b"null", "Bad Gateway"),
        (b'{"error":{}}', '{"error":{}}'),
        (b"x" * 1_000_000, "x" * 1000),
        (b'{"error":{"message":"Wrong key ' + KEY.encode() + b'"}}', "Wrong key <secret TEST_KEY>"),
    ],
)
async def test_the_message_of_an_error_is_shown(body, message):
    async with serving(answer(body, "502 Bad Gateway")) as server, asking(server) as model:
        found = await fault(model)
    assert found.message == f"test:m: HTTP 502: {message}"
    assert found.retry == (b"context_length" not in body)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        (["retry-after: 7"], 7.0),
        (["retry-after: 0.5"], 0.5),
        (["retry-after: 7", "retry-after-ms: 1500"], 1.5),
        (["retry-after: Wed, 21 Oct 2026 07:28:10 GMT", "date: Wed, 21 Oct 2026 07:28:00 GMT"], 10.0),
        (["retry-after: Wed, 21 Oct 2026 07:28:10 GMT"], 70.0),
        (["retry-after: Wed, 21 Oct 2026 07:28:10 -0000", "date: nonsense"], 70.0),
        (["retry-after: Wed, 21 Oct 2020 07:28:10 GMT"], 0.0),
        (["retry-after: soon"], None),
        (["retry-after: -3"], None),
        (["retry-after: nan"], None),
        (["retry-after: inf"], None),
        (["retry-after: Wed, 99999999999999999999 Oct 2026 07:28:10 GMT"], None),
        (["retry-after: Wed, 21 Oct 2026 07:28:10 +99999999999999999999"], None),
        (["retry-after: Wed, 21 Oct 2026 07:28:10 GMT", "date: Wed, 21 Oct 99999999999999999999 07:28:00 GMT"], 70.0),
        ([], None),
    ],
)
async def test_a_pause_that_is_asked_for_is_passed_on(headers, wait_s):
    def clock() -> datetime:
        return datetime(2026, 10, 21, 7, 27, tzinfo=UTC)

    busy = answer(b'{"error":"busy"}', "429 Too Many Requests", *headers)
    async with serving(busy, answer(WHOLE)) as server, asking(server, clock=clock) as model:
        found = await fault(model)
        assert (found.retry_after_s, found.retry, found.message) == (wait_s, True, "test:m: HTTP 429: busy")
        assert (await ask(model)).text == "Hello"


@pytest.mark.parametrize(
    ("behaviour", "type", "message"),
    [
        (silent, "timeout", "test:m: no answer from '{url}/chat/completions' in time: ReadTimeout."),
        (chunked(STREAM[:90], STREAM[90:], pause_s=1), "timeout", "test:m: no answer from"),
        (hang_up, "connection", "test:m: lost '{url}/chat/completions': RemoteProtocolError: Server disconnected"),
        (garbage, "connection", "test:m: lost '{url}/chat/completions': RemoteProtocolError: "),
        (chunked(ended=False), "connection", "test:m: lost"),
        (chunked(STREAM[:90], ended=False), "lost-stream", "The stream ended without a reason to stop"),
        (answer(WHOLE[:-9] + b" " * 9), "bad-reply", "Expected one JSON object, found '"),
        (
            answer(b"<html>Log in to the hotel</html>"),
            "bad-reply",
            "Expected JSON or server-sent events, found '<html>",
        ),
        (answer(b"not gzip", "200 OK", "content-encoding: gzip"), "bad-reply", "test:m: the reply cannot be unpacked"),
    ],
)
async def test_a_server_that_does_not_behave_is_a_fault_to_retry(behaviour, type, message):
    async with serving(behaviour) as server, asking(server, bounds=Bounds(read_s=0.2)) as model:
        found = await fault(model)
    assert found.type == type
    assert found.retry
    assert found.http_status is None
    assert message.format(url=server.url) in found.message


@pytest.mark.parametrize("said", [each for each in STRICT if each.speaks != "gemini"], ids=lambda each: each.name)
async def test_a_reply_that_has_ended_is_not_asked_for_again_where_the_server_leaves_the_connection_open(said: Spoken):
    async def behave(writer: asyncio.StreamWriter) -> None:
        await chunked(*said.wire(Said(text="Hello"), 0).events, ended=None)(writer)
        await silent(writer)

    async with serving(behave) as server, gesta.open(":memory:") as record:
        model = hosted(said.name, base_url=server.url, key=KEY, bounds=Bounds(read_s=3))
        outcome = await record.run(gesta.Agent("guide", model=model), "Hi")
        await model.aclose()
    assert (outcome.answer, len(server.bodies)) == ("Hello", 1)


CUT_ITEM = {"type": "function_call", "id": "f", "call_id": "c", "name": "wipe", "arguments": "", "status": "incomplete"}
CUT_CALLS: dict[str, list[Any]] = {
    "chat-completions": [
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "wipe"}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "length"}]},
    ],
    "anthropic-messages": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "c", "name": "wipe"}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ],
    "responses": [
        {"type": "response.output_item.added", "output_index": 0, "item": CUT_ITEM},
        {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
    ],
}


@pytest.mark.parametrize("said", [each for each in STRICT if each.speaks in CUT_CALLS], ids=lambda each: each.name)
async def test_a_call_whose_reply_was_cut_off_before_its_arguments_came_is_not_made(said: Spoken):
    made: list[str] = []

    @gesta.tool(effect="once")
    def wipe(only: str = "everything") -> str:
        """Wipe it."""
        made.append(only)
        return "wiped"

    cut = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in CUT_CALLS[said.speaks]]
    after = said.wire(Said(text="I was cut off."), 1).events
    async with serving(chunked(*cut), chunked(*after)) as server, gesta.open(":memory:") as record:
        model = hosted(said.name, base_url=server.url, key=KEY)
        outcome = await record.run(gesta.Agent("desk", model=model, tools=[wipe]), "Hi")
        await model.aclose()
    assert (outcome.answer, made) == ("I was cut off.", [])
    sent = json.dumps(server.bodies[-1])
    assert "The reply was cut off before the arguments of 'wipe' came. Make the call again." in sent
    assert not said.judge(sent.encode())


async def test_a_reply_that_drips_for_ever_ends_at_the_total_time():
    dripping = chunked(*[b": keep-alive\n\n"] * 100, pause_s=0.02)
    async with serving(dripping) as server, asking(server, bounds=Bounds(total_s=0.1)) as model:
        found = await fault(model)
    assert (found.type, found.message) == (
        "timeout",
        "test:m: the reply took longer than 0.1 s, which is Bounds(total_s=0.1).",
    )


async def test_an_error_that_drips_for_ever_ends_at_the_total_time():
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Oh no\r\ncontent-length: 100\r\n\r\n{")
        await asyncio.sleep(5)

    async with serving(behave) as server, asking(server, bounds=Bounds(total_s=0.1)) as model:
        assert (await fault(model)).type == "timeout"
    async with serving(behave) as server, asking(server, bounds=Bounds(read_s=0.1)) as model:
        found = await fault(model)
        assert (found.type, found.message) == ("http-500", "test:m: HTTP 500: {")


async def test_nobody_listening_is_said():
    async with serving(silent) as server:
        pass
    async with asking(server) as model:
        found = await fault(model)
    assert (found.type, found.retry) == ("connection", True)
    reached = f"'{server.url}/chat/completions' (is a server running there?)"
    assert found.message.startswith(f"test:m: cannot reach {reached}: ConnectError")


async def test_a_redirect_is_not_followed_with_the_key():
    async with serving(answer(WHOLE)) as elsewhere:
        away = answer(b"", "307 Temporary Redirect", f"location: {elsewhere.url}/x?token=t")
        async with serving(away) as server, asking(server) as model:
            found = await fault(model)
        assert elsewhere.heads == []
    assert (found.type, found.http_status, found.retry) == ("redirect", 307, False)
    assert found.message == (
        f"test:m: '{server.url}/chat/completions' answered 307, which leads to '{elsewhere.url}/x'. Redirects are not "
        "followed, since the key would go along. Give the final address as base URL."
    )


async def test_leaving_early_ends_the_connection():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"2\r\n: \r\n")
                await writer.drain()
                await asyncio.sleep(0)
                begun.set()
        except ConnectionError:
            ended.set()
            raise

    async with serving(endless) as server, asking(server) as model:
        async with aclosing(model.send(request(model))) as pieces:
            await anext(pieces)
        await ended.wait()
        begun.clear()
        ended.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, model)
            await begun.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()


async def test_cookies_are_not_kept():
    async with serving(answer(WHOLE, "200 OK", "set-cookie: who=you; path=/")) as server, asking(server) as model:
        await ask(model)
        await ask(model)
    assert "cookie" not in server.heads[1].lower()


@pytest.mark.slow
async def test_many_ask_at_once_and_share_connections():
    async with serving(chunked(STREAM, pause_s=0.01)) as server, asking(server) as model:
        async with anyio.create_task_group() as tasks:
            for _ in range(150):
                tasks.start_soon(ask, model)
        assert len(server.heads) == 150
        assert len(model._clients) == 1


def test_each_event_loop_has_connections_of_its_own():
    model: Any = None

    async def once() -> str:
        nonlocal model
        async with serving(answer(WHOLE)) as server:
            model = model or HttpModel(ChatDialect("m"), Provider("test", server.url))
            model.url = f"{server.url}/chat/completions"
            try:
                return (await ask(model)).text
            finally:
                await model.aclose()

    assert [anyio.run(once), anyio.run(once)] == ["Hello", "Hello"]
    gc.collect()
    assert len(model._clients) == 0


def test_connections_are_closed_when_their_event_loop_ends():
    async def once() -> httpx2.AsyncClient:
        async with serving(answer(WHOLE)) as server:
            model = HttpModel(ChatDialect("m"), Provider("test", server.url))
            assert (await ask(model)).text == "Hello"
            return await model._client()

    client = anyio.run(once)
    assert client.is_closed
    gc.collect()  # an open socket would warn here, and warnings are errors


FAULTS = {
    "CloseError": ("connection", True),
    "ConnectError": ("connection", True),
    "ConnectTimeout": ("timeout", True),
    "CookieConflict": ("connection", False),
    "DecodingError": ("bad-reply", True),
    "HTTPError": ("connection", False),
    "HTTPStatusError": ("connection", False),
    "InvalidURL": ("connection", False),
    "LocalProtocolError": ("connection", False),
    "NetworkError": ("connection", True),
    "PoolTimeout": ("timeout", True),
    "ProtocolError": ("connection", False),
    "ProxyError": ("connection", True),
    "ReadError": ("connection", True),
    "ReadTimeout": ("timeout", True),
    "RemoteProtocolError": ("connection", True),
    "RequestError": ("connection", False),
    "RequestNotRead": ("connection", False),
    "ResponseNotRead": ("connection", False),
    "SSEError": ("connection", False),
    "StreamClosed": ("connection", False),
    "StreamConsumed": ("connection", False),
    "StreamError": ("connection", False),
    "TimeoutException": ("timeout", True),
    "TooManyRedirects": ("connection", False),
    "TransportError": ("connection", False),
    "UnsupportedProtocol": ("connection", False),
    "WriteError": ("connection", True),
    "WriteTimeout": ("timeout", True),
}


def test_every_error_of_the_library_has_its_fault():
    classes = {
        name: found
        for name, found in vars(httpx2).items()
        if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, Warning)
    }
    assert classes.keys() == FAULTS.keys()
    model = HttpModel(ChatDialect("m"), Provider("test", "http://localhost/v1"), key=KEY)
    for name, found in classes.items():
        exc = found.__new__(found)
        exc.args = (f"{KEY} is not a good",)
        made = model._fault(exc)
        assert (made.type, made.retry) == FAULTS[name], name
        assert KEY not in made.message


@pytest.mark.parametrize("name", [name for name, (type, _) in FAULTS.items() if "Response" not in name])
async def test_errors_of_the_library_do_not_leave_send(name, monkeypatch):
    error = getattr(httpx2, name)
    exc = error.__new__(error)
    exc.args = ("no",)

    async def fail(*args: Any, **options: Any) -> Any:
        raise exc

    model = HttpModel(ChatDialect("m"), Provider("test", "http://localhost/v1"))
    client = await model._client()
    monkeypatch.setattr(client, "send", fail)
    found = await fault(model)
    assert (found.type, found.retry) == FAULTS[name]
    assert found.__cause__ is exc
    await model.aclose()


# --- credentials, proxies ---


async def test_a_function_gives_the_key_of_each_request():
    given = iter(["first-key-0123456789", "second-key-0123456789"])

    async def later() -> str:
        return next(given)

    async with serving(answer(WHOLE)) as server, asking(server, later) as model:
        await ask(model)
        await ask(model)
        assert "authorization: Bearer first-key-0123456789" in server.heads[0]
        assert "authorization: Bearer second-key-0123456789" in server.heads[1]
        assert "first-key-0123456789" not in repr(model.wire(request(model)))


async def test_a_function_that_is_not_async_is_called_in_a_thread():
    seen = []

    def blocking() -> str:
        seen.append(threading.current_thread())
        return KEY

    async with serving(answer(WHOLE)) as server, asking(server, blocking) as model:
        await ask(model)
    assert seen != [threading.main_thread()]


@pytest.mark.parametrize(
    ("gives", "said", "retry"),
    [
        (lambda: 1 / 0, "the function that gives the key raised ZeroDivisionError: division by zero.", True),
        (lambda: None, "gave a NoneType, expected a str", False),
    ],
)
async def test_a_function_that_gives_no_key_is_a_fault(gives: Any, said: str, retry: bool):
    async with serving(answer(WHOLE)) as server, asking(server, gives) as model:
        found = await fault(model)
        assert (found.type, found.retry, server.heads) == ("credential", retry, [])
        assert said in found.message


async def test_a_token_is_sent_as_a_bearer_whatever_header_a_key_has():
    async with serving(answer(WHOLE)) as server:
        for more, sent in (({"key": KEY}, f"api-key: {KEY}"), ({"token": lambda: KEY}, f"authorization: Bearer {KEY}")):
            model = hosted("azure:m", base_url=server.url.removesuffix("/v1"), **more)
            await ask(model)
            await model.aclose()
            assert sent in server.heads[-1]
            assert server.heads[-1].startswith("POST /openai/v1/chat/completions ")


async def test_a_key_and_a_token_are_refused():
    with pytest.raises(AgentError, match="has a key and a token, expected one of them"):
        hosted("azure:m", base_url="https://x.example", key=KEY, token=lambda: KEY)


async def test_requests_go_through_a_proxy():
    async with serving(answer(WHOLE)) as server:
        model = hosted("m", base_url="http://far.example/v1", proxy=server.url.removesuffix("/v1"), key=KEY)
        await ask(model)
        await model.aclose()
        assert server.heads[0].startswith("POST http://far.example/v1/chat/completions ")


async def test_requests_go_through_the_proxy_of_the_environment(monkeypatch):
    async with serving(answer(WHOLE)) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        model = hosted("m", base_url="http://far.example/v1", key=KEY)
        await ask(model)
        await model.aclose()
        assert server.heads[0].startswith("POST http://far.example/v1/chat/completions ")


@pytest.mark.parametrize(
    ("variable", "value", "address", "url"),
    [
        ("OPENAI_BASE_URL", "http://box/v1/", "openai:m", "http://box/v1/chat/completions"),
        ("OPENAI_BASE_URL", "http://box/v1", "openai-responses:m", "http://box/v1/responses"),
        ("ANTHROPIC_BASE_URL", "http://box", "anthropic:m", "http://box/v1/messages"),
        (
            "GOOGLE_GEMINI_BASE_URL",
            "http://box",
            "google:m",
            "http://box/v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        ("AZURE_OPENAI_ENDPOINT", "http://box/", "azure:m", "http://box/openai/v1/chat/completions"),
        ("AZURE_OPENAI_ENDPOINT", "http://box/openai/v1", "azure-responses:m", "http://box/openai/v1/responses"),
        ("GROQ_BASE_URL", "http://box", "groq:m", "http://box/openai/v1/chat/completions"),
        ("TOGETHER_BASE_URL", "http://box/v1", "together:m", "http://box/v1/chat/completions"),
        ("OLLAMA_HOST", "box:11434", "ollama:m", "http://box:11434/v1/chat/completions"),
    ],
)
def test_the_environment_names_a_base_url_and_python_comes_first(monkeypatch, variable, value, address, url):
    monkeypatch.setenv(variable, value)
    assert hosted(address, key=KEY).url == url
    assert hosted(address, base_url="http://other/v1", key=KEY).url.startswith("http://other/v1/")
    monkeypatch.setenv(variable, "ftp://box")
    with pytest.raises(BadAddress, match=f"{variable}: 'ftp://box.*' is not a base URL"):
        hosted(address, key=KEY)


def test_a_model_is_made_by_its_first_name_too():
    model = http_model("m", "http://box/v1", key=KEY)
    assert (model.url, model._found_key()) == ("http://box/v1/chat/completions", KEY)


def test_an_option_that_a_model_does_not_have_is_refused():
    with pytest.raises(TypeError, match="has no option 'baseurl'"):
        hosted("ollama:m", baseurl="http://box/v1")  # type: ignore[call-arg]
    whole = hosted("ollama:m", bounds=Bounds(total_s=5), stream=False)
    assert (whole.bounds.total_s, b'"stream":true' in whole.envelope(RequestHeaderContent()).head) == (5, False)


def test_a_provider_with_addresses_of_ones_own_asks_for_one(monkeypatch):
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(
        BadAddress, match="'azure:m' needs an address of your own: set AZURE_OPENAI_ENDPOINT, or give a"
    ):
        hosted("azure:m", key=KEY)


async def test_an_organisation_and_a_project_of_the_environment_are_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    async with serving(answer(WHOLE)) as server:
        model = hosted("openai:m", base_url=server.url, key=KEY, headers={"OpenAI-Project": "proj-2"})
        await ask(model)
        await model.aclose()
        assert "openai-organization: org-1" in server.heads[0]
        assert "openai-project: proj-2" in server.heads[0]


def test_a_key_may_stand_under_another_name(monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    assert hosted("google:m")._found_key() == KEY


# --- addresses ---


def test_an_address_leads_to_a_provider(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = hosted("openai:gpt-4o", settings={"temperature": 0})
    assert (model.name, model.encoder) == ("openai:gpt-4o", "chat-completions/1")
    assert model.url == "https://api.openai.com/v1/chat/completions"
    assert repr(model) == "HttpModel('openai:gpt-4o', 'https://api.openai.com/v1/chat/completions')"
    assert b'"temperature":0' in model.envelope(RequestHeaderContent()).head
    assert hosted("ollama:llama3.1:8b").dialect.model == "llama3.1:8b"
    assert b"stream_options" not in hosted("mistral:m", key="k").envelope(RequestHeaderContent()).head


def test_a_base_url_takes_any_name(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GESTA_API_KEY", "other")
    own = hosted("llama3:8b", base_url="http://box:9000/v1/?api-version=3#x")
    assert (own.name, own.url) == ("box:llama3:8b", "http://box:9000/v1/chat/completions?api-version=3")
    assert repr(own) == "HttpModel('box:llama3:8b', 'http://box:9000/v1/chat/completions')"
    assert own._found_key() == "other", "a provider's key goes only where its name is written"
    proxied = hosted("openai:gpt-4o", base_url="http://box:9000/v1")
    assert (proxied.url, proxied._found_key()) == ("http://box:9000/v1/chat/completions", KEY)


@pytest.mark.parametrize(
    ("address", "base_url", "message"),
    [
        ("gpt-4o", None, "'gpt-4o' names no provider: write provider:model, as in 'openai:gpt-4o'"),
        (
            "opnai:gpt-4o",
            None,
            "or give a base URL. Did you mean 'openai'? Known: openai, openai-responses, azure, azure-responses, anthropic",
        ),
        ("gpt-5-mini", None, "or give a base URL. Did you mean 'openai:gpt-5-mini'? Known: openai"),
        ("claude-sonnet-4-5", None, "Did you mean 'anthropic:claude-sonnet-4-5'?"),
        ("gemini-3-pro", None, "Did you mean 'google:gemini-3-pro'?"),
        ("groq/llama-3.3-70b", None, "Did you mean 'groq:llama-3.3-70b'?"),
        ("opnai", None, "Did you mean 'openai'?"),
        ("openai:", None, "'openai:' names no model: write openai:MODEL, by the provider's own name for it."),
        ("", "http://localhost/v1", "'' names no provider"),
        ("m", "localhost:8000", "'localhost:8000' is not a base URL. Write one as https://api.example.com/v1 or"),
        ("openai:m", "ftp://host", "'ftp://host' is not a base URL."),
        ("m", "http://", "'http://' is not a base URL."),
        ("m", "http://[::1", "'http://[::1' is not a base URL."),
        ("m", "http://a:b@host/v1", "The base URL of 'host' holds a user or password, which would end up in logs."),
    ],
)
def test_an_address_that_leads_nowhere_says_so(address, base_url, message):
    with pytest.raises(BadAddress) as found:
        hosted(address, base_url=base_url)
    assert message in str(found.value)


@pytest.mark.parametrize("name", [name for name, each in PROVIDERS.items() if each.key_needed and each.key_variable])
def test_a_missing_key_names_every_variable_and_the_ways_without_a_key(name, monkeypatch):
    provider = PROVIDERS[name]
    variables = [name for name in (provider.key_variable, *provider.key_also) if name is not None]
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)
    if "RESOURCE" in provider.url:
        monkeypatch.setenv(provider.url_variable, "https://ann.openai.azure.com")
    with pytest.raises(NoKey) as found:
        hosted(f"{name}:m")
    assert str(found.value) == (
        f"No key for '{name}': set {' or '.join(variables)}. Without a key, `gesta demo` runs, and so do agents on "
        "gesta.scripted(...) or gesta.replay(...)."
    )


def test_a_missing_key_is_said_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("XAI_API_KEY", raising=False)
    with pytest.raises(NoKey, match="No key for 'xai': set XAI_API_KEY"):
        hosted("xai:grok")
    monkeypatch.setenv("XAI_API_KEY", "  ")
    with pytest.raises(NoKey):
        hosted("xai:grok")


def test_every_provider_is_complete():
    for name, provider in PROVIDERS.items():
        assert name == provider.name
        assert not provider.url.endswith("/")
        local = provider.url.startswith("http://localhost:")
        assert local or provider.url.startswith("https://")
        assert local != bool(provider.key_variable and provider.key_needed)
        assert provider.url == AZURE.url or locate(f"{name}:m") == (provider, "m")
    assert "TEST_KEY" not in os.environ
