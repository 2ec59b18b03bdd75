"""Sends a request over HTTP, and yields the bytes of the reply. No other file for models uses the network.

The key is read when a request is sent. It is in one header only, and never in a repr, an error or a `Wire` (a request
that can be shown). Redirects are never followed, because the key would be sent along. A dialect is the format of one
provider's API. If a connection is lost in the middle of a reply, the bytes end there, and the dialect's parser decides
whether they are enough: many servers disconnect after the last word instead of ending properly.
"""

import functools
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import anyio
import httpx2
from anyio.lowlevel import current_token
from msgspec import Struct

from gesta.errors import AgentError, ModelFault, NoKey
from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Envelope, Parser, Request
from gesta.models.bounds import Bounds, Inflow
from gesta.models.credential import Credential, given
from gesta.models.faults import provider_fault
from gesta.models.jsontext import read
from gesta.models.providers import Provider
from gesta.text.redactor import HEADER, SECRETS, scrub

T = TypeVar("T")

THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
ERROR_BYTES = 64 * 1024
"""Greatest number of bytes that are read of the body of an error reply."""


class Dialect(Protocol):
    """The interface of a request format: builds the body of a request from messages, and parses replies."""

    @property
    def model(self) -> str:
        """The provider's name for the model."""

    @property
    def encoder(self) -> str:
        """Name and version of the encoding, such as `chat-completions/1`."""

    @property
    def path(self) -> str:
        """The part of the URL after the provider's base address. It may hold a query."""

    def encode(self, message: Message) -> bytes:
        """Return one message as a block: the bytes that represent it in the body of every request."""

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the request body without the messages: the settings, tools and instructions from `header`."""

    def parser(self) -> Parser:
        """Return a new parser, which reads one reply."""


class Secret(Struct, frozen=True):
    """A placeholder for a secret in the headers of a `Wire`."""

    name: str
    """The name of the environment variable or of the header that holds the secret."""
    prefix: str = ""


class Wire(Struct, frozen=True):
    """One HTTP request as it will be sent, except that placeholders replace the secrets. So it may be shown."""

    method: str
    url: str
    headers: tuple[tuple[str, str | Secret], ...]
    body: bytes


def _user_agent() -> str:
    try:
        return f"gesta/{version('gesta')}"
    except PackageNotFoundError:
        return "gesta"


USER_AGENT = _user_agent()


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context. The context is made only once: reading the certificates takes 20 ms."""
    return httpx2.create_ssl_context()


def _now() -> datetime:
    return datetime.now(UTC)


class HttpModel:
    """A model behind an HTTP API.

    It joins a dialect (the format of the API) with a provider (address, key and headers).
    """

    def __init__(
        self,
        dialect: Dialect,
        provider: Provider,
        *,
        key: Credential | None = None,
        headers: Mapping[str, str] | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self.dialect, self.provider, self.bounds = dialect, provider, bounds
        self._key, self._clock = key, clock
        told = {name: os.environ.get(variable, "") for name, variable in provider.header_variables.items()}
        given = {name.lower(): value for name, value in (headers or {}).items()}
        self._headers = {name: value for name, value in told.items() if value} | given
        SECRETS.add(provider.key_variable or "key", key if isinstance(key, str) else "")
        SECRETS.add_address(provider.proxy or "")
        SECRETS.add_headers(self._headers)
        SECRETS.add_address(provider.url)
        self._clients: WeakKeyDictionary[Any, tuple[httpx2.AsyncClient, AsyncGenerator[None, None]]]
        self._clients = WeakKeyDictionary()
        url, (path, _, query) = urlsplit(provider.url), dialect.path.partition("?")
        query = "&".join(part for part in (url.query, query) if part)
        self.url = urlunsplit(url._replace(path=url.path.rstrip("/") + path, query=query, fragment=""))
        """The address to which requests are sent."""

    def __repr__(self) -> str:
        """Return the model's name and address. The address's query is left out, because a query may hold a secret."""
        return SECRETS.message(f"HttpModel({self.name!r}, {self.url.partition('?')[0]!r})")

    @property
    def name(self) -> str:
        """The model's name in the form `provider:model`."""
        return f"{self.provider.name}:{self.dialect.model}"

    @property
    def encoder(self) -> str:
        """Name and version of the dialect's encoding, such as `chat-completions/1`."""
        return self.dialect.encoder

    def encode(self, message: Message) -> bytes:
        """Return one message as a block: the bytes that represent it in the body of every request."""
        return self.dialect.encode(message)

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the request body without the messages: the settings, tools and instructions from `header`."""
        return self.dialect.envelope(header)

    def parser(self) -> Parser:
        """Return a new parser, which reads one reply."""
        return self.dialect.parser()

    def within(self, bounds: Bounds) -> "HttpModel":
        """Return a copy of this model with other bounds (limits of time and size)."""
        key, headers, clock = self._key, self._headers, self._clock
        return HttpModel(self.dialect, self.provider, key=key, headers=headers, bounds=bounds, clock=clock)

    def check(self) -> None:
        """Check that the model's key is set, if it needs one. A function that returns keys is not called.

        Raises:
            NoKey: the provider needs a key, and none is set.
            AgentError: the key contains characters that an HTTP header cannot hold.
        """
        if not callable(self._key):
            self._sendable(self._found_key())

    def wire(self, request: Request) -> Wire:
        """Return exactly the HTTP request that `send` will send, with placeholders for the secrets. Nothing is sent."""
        headers: dict[str, str | Secret] = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "gzip",
            "content-type": "application/json",
            "user-agent": USER_AGENT,
        }
        headers |= self.provider.headers
        if self._key is not None or self.provider.key_variable is not None:
            header = self.provider.key_header
            prefix = "Bearer " if header == "authorization" else ""
            headers[header] = Secret(self.provider.key_variable or "key", prefix)
        for name, value in self._headers.items():
            headers[name] = Secret(name) if HEADER.search(name) else value
        return Wire("POST", self.url, tuple(headers.items()), request.body())

    async def send(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Send the request, and yield the bytes of the reply as they arrive, decompressed.

        Close the iterator if you stop before its end.

        Raises:
            NoKey: the provider needs a key and its variable is not set.
            AgentError: the key contains characters that an HTTP header cannot hold.
            ModelFault: the provider's error, or one of `timeout`, `connection`, `redirect`, `bad-reply`,
                `reply-too-large` and `credential`. A connection lost after the first bytes is not an error here.
        """
        wire, begun = self.wire(request), False
        deadline = anyio.current_time() + (self.bounds.total_s or float("inf"))
        headers = self._resolved(wire, await self._within(deadline, self._credential()))
        client = await self._client()
        try:
            sent = client.build_request(wire.method, wire.url, headers=headers, content=wire.body)
            response = await self._within(deadline, client.send(sent, stream=True))
            try:
                if not response.is_success:
                    raise await self._refusal(response, deadline)
                pieces, inflow = response.aiter_raw(), self._inflow(response)
                while (data := await self._within(deadline, anext(pieces, None))) is not None:
                    begun = begun or bool(data)
                    for piece in inflow.take(data):
                        yield piece
            finally:
                with anyio.move_on_after(5, shield=True):
                    await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, httpx2.CookieConflict) as exc:
            if not (begun and isinstance(exc, httpx2.ReadError | httpx2.RemoteProtocolError)):
                raise self._fault(exc) from exc

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The next `send` opens new connections.

        An event loop that ends properly, as in `asyncio.run` and `anyio.run`, closes its connections by itself.
        """
        _, open_end = self._clients.pop(_loop(), (None, None))
        if open_end is not None:
            await open_end.aclose()

    async def _client(self) -> httpx2.AsyncClient:
        """Return the HTTP client for the running event loop. A client made in another event loop cannot be used."""
        loop = _loop()
        if loop not in self._clients:
            limits = self.bounds
            client = httpx2.AsyncClient(
                verify=_tls(),
                proxy=self.provider.proxy,
                timeout=httpx2.Timeout(
                    connect=limits.connect_s, read=limits.read_s, write=limits.write_s, pool=limits.total_s
                ),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
                follow_redirects=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            )
            self._clients[loop] = client, _closing(client)
            await anext(self._clients[loop][1])
        return self._clients[loop][0]

    def _found_key(self) -> str:
        key = self._key if isinstance(self._key, str) else self.provider.key()[1]
        return key.strip()

    def _sendable(self, key: str) -> str | None:
        """Return the key; `None` if it is empty. The key is registered as a secret, so that it appears in no text.

        Raises NoKey if the provider needs a key that is empty, AgentError if an HTTP header cannot hold the key.
        """
        variable = self.provider.key_variable
        SECRETS.add(variable or "key", key)
        if not key.isascii() or not (key + "x").isprintable():
            raise AgentError(
                f"The key for {self.provider.name!r} holds characters that no HTTP header can carry. "
                f"Set {variable or 'key='} to the key alone."
            )
        if not key and variable and self.provider.key_needed and self.provider.key_header not in self._headers:
            raise NoKey(self.provider.name, " or ".join((variable, *self.provider.key_also)))
        return key or None

    async def _credential(self) -> str | None:
        """Return the key for one request; `None` if there is no key.

        Raises NoKey if a needed key is missing, AgentError if the key contains characters that an HTTP header cannot
        hold, and ModelFault if the function that returns the key failed.
        """
        return self._sendable(await given(self._key, self.name) if callable(self._key) else self._found_key())

    def _resolved(self, wire: Wire, key: str | None) -> dict[str, str]:
        """Return the headers with the secrets filled in. If `key` is `None`, the key's header is left out."""
        headers: dict[str, str] = {}
        for name, value in wire.headers:
            if isinstance(value, str):
                headers[name] = value
            elif name in self._headers:
                headers[name] = self._headers[name]
            elif key:
                headers[name] = value.prefix + key
        return headers

    def _inflow(self, response: httpx2.Response) -> Inflow:
        found = response.headers
        return Inflow(self.bounds, self.name, found.get("content-encoding", ""), found.get("content-type", ""))

    async def _within(self, deadline: float, work: Awaitable[T]) -> T:
        try:
            with anyio.fail_after(deadline - anyio.current_time()):
                return await work
        except TimeoutError as exc:
            total_s = self.bounds.total_s
            found = f"{self.name}: the reply took longer than {total_s} s, which is Bounds(total_s={total_s})."
            raise ModelFault("timeout", found, retry=True) from exc

    async def _refusal(self, response: httpx2.Response, deadline: float) -> ModelFault:
        """Return the ModelFault for a reply with an HTTP status outside 200 to 299, with the provider's own message."""
        status, headers = response.status_code, response.headers
        if response.is_redirect:
            where = SECRETS.message(headers.get("location", "")).partition("?")[0]
            return ModelFault(
                "redirect",
                f"{self.name}: {self.url.partition('?')[0]!r} answered {status}, which leads to {where!r}. Redirects "
                "are not followed, since the key would go along. Give the final address as base URL.",
                http_status=status,
            )
        data, pieces = b"", response.aiter_raw()
        with suppress(httpx2.HTTPError):  # the status alone is enough for the error
            while len(data) < ERROR_BYTES and (raw := await self._within(deadline, anext(pieces, None))) is not None:
                data += raw
        with suppress(ModelFault):
            data = b"".join(self._inflow(response).take(data[:ERROR_BYTES]))[:ERROR_BYTES]
        data = SECRETS.bytes(data)  # before it is shortened: half a secret would not be found
        try:
            body = read(data)
        except ValueError:
            body = data[:1000].decode("utf-8", "replace")
        fault = provider_fault(body or response.reason_phrase, status, _asked_wait_s(headers, self._clock))
        variable = self.provider.key()[0]
        hint = f" The key was read from {variable}." if status == 401 and variable and not self._key else ""
        return ModelFault(
            fault.type,
            f"{self.name}: HTTP {status}: {fault.message}{hint}",
            http_status=status,
            retry=fault.retry,
            retry_after_s=fault.retry_after_s,
        )

    def _fault(self, exc: Exception) -> ModelFault:
        """Return the ModelFault for an exception that the HTTP library raised."""
        scrub(exc)
        found = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
        at = self.url.partition("?")[0]
        match exc:
            case httpx2.TimeoutException():
                return ModelFault("timeout", f"{self.name}: no answer from {at!r} in time: {found}.", retry=True)
            case httpx2.ConnectError():
                asked = " (is a server running there?)" if urlsplit(at).hostname in THIS_MACHINE else ""
                return ModelFault("connection", f"{self.name}: cannot reach {at!r}{asked}: {found}.", retry=True)
            case httpx2.DecodingError():
                return ModelFault("bad-reply", f"{self.name}: the reply cannot be unpacked: {found}.", retry=True)
            case httpx2.NetworkError() | httpx2.RemoteProtocolError() | httpx2.ProxyError():
                return ModelFault("connection", f"{self.name}: lost {at!r}: {found}.", retry=True)
            case _:
                return ModelFault("connection", f"{self.name}: cannot be sent to {at!r}: {found}.")


async def _closing(client: httpx2.AsyncClient) -> AsyncGenerator[None, None]:
    """Yield once. An event loop that ends closes this generator, which then closes the client's connections."""
    try:
        yield
    finally:
        await client.aclose()


def _loop() -> Any:
    token: Any = current_token()
    return getattr(token, "native_token", token)


def _asked_wait_s(headers: Mapping[str, str], clock: Callable[[], datetime]) -> float | None:
    """Return how many seconds the reply's headers ask the client to wait; `None` if they do not ask it to wait.

    `retry-after-ms` has priority over `Retry-After`, which may also hold a date. The date is compared with the
    reply's `Date` header, or with the clock if there is no such header.

    Source: RFC 9110, section 10.2.3; OpenAI and Azure send both headers.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) * unit_s
        except ValueError:
            continue
        if 0 <= wait_s < float("inf"):
            return wait_s
    until, since = _date(headers.get("retry-after")), _date(headers.get("date")) or clock()
    return max((until - since).total_seconds(), 0.0) if until is not None else None


def _date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):  # the second for a number that no date can hold
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
