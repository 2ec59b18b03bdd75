"""Decides who may send requests to the server: by bearer tokens, host names, origins, and the size of requests.

A server without tokens answers only requests that name this machine as their host. So no page of another site can reach
it through a browser that runs on this machine.
"""

import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import force_setattr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gesta.errors import AgentError
from gesta.policy import Spelled
from gesta.serve.bodies import failed, too_large
from gesta.text.redactor import LEAST, SECRETS

OPEN = ("/health",)
"""Paths that need no token. They begin after the path under which the application is mounted in another one."""
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s*]+|null", re.IGNORECASE)
"""Matches the origin of a web page, as browsers send it: a scheme and a host, without a path."""
ANYBODY = "http"
"""Name of every client of a server without tokens."""


class Access(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """Rules that decide which requests a server answers: tokens, origins, hosts and limits."""

    tokens: Mapping[str, str] = {}
    """Bearer token of each client, by the client's name. Without tokens, everybody on this machine may send requests.
    """
    origins: Collection[str] = ()
    """Origins of web pages that may send requests from a browser, such as `https://shop.example`."""
    hosts: Collection[str] = ()
    """For a server without tokens: host names that a request may name as its host, besides those of this machine.
    `shop.example` is allowed with every port, `shop.example:8000` only with that port."""
    body_bytes: int = 8 * 2**20
    """Greatest number of bytes of a request's body."""
    turns: int = 64
    """Greatest number of turns at the same time; a further request is refused with status 429."""
    followers: int = 1000
    """Greatest number of open event streams; a further request is refused with status 429."""

    def __post_init__(self) -> None:
        """Register each token as a secret, so that it is never recorded.

        Raises AgentError if a token is too short, or if another field cannot be used.
        """
        self._refuse_wrong()
        force_setattr(self, "tokens", {name: token.strip() for name, token in self.tokens.items()})
        for name in ("origins", "hosts"):
            force_setattr(self, name, tuple(each.lower() for each in getattr(self, name)))
        for name, token in self.tokens.items():
            if len(token) < LEAST:
                found = f"The token of {name!r} has {len(token)} characters, expected at least {LEAST}."
                raise AgentError(f"{found} Make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'.")
            SECRETS.add(f"token of {name}", token)

    def _refuse_wrong(self) -> None:
        """Raise AgentError for a text in place of a list, an origin that no page has, and a bound below 1."""
        if not isinstance(self.tokens, Mapping) or not all(isinstance(each, str) for each in self.tokens.values()):
            raise AgentError("Access(tokens=...): expected a dict of texts, as in {'web': TOKEN}.")
        for name in ("origins", "hosts"):
            if isinstance(value := getattr(self, name), str) or not isinstance(value, Collection):
                raise AgentError(f"Access({name}={value!r:.60}): expected a list of texts, as in [{value!r:.60}].")
            if not all(isinstance(each, str) and each for each in value):
                raise AgentError(f"Access({name}={value!r:.60}): expected texts that are not empty.")
        for origin in self.origins:
            if not ORIGIN.fullmatch(origin):
                raise AgentError(
                    f"{origin!r:.80} is not an origin of a page, expected one such as 'https://shop.example'."
                )
        for name in ("body_bytes", "turns", "followers"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise AgentError(f"Access({name}={value!r:.60}): expected a whole number from 1 on.")

    def client(self, headers: Headers) -> str | None:
        """Return the name of the client that sent a request; `None` if the request's token is missing or wrong."""
        if not self.tokens:
            return ANYBODY
        scheme, _, given = headers.get("authorization", "").partition(" ")
        found = None
        for name, token in self.tokens.items():  # all are compared, so that the time does not show which one fits
            if hmac.compare_digest(token.encode(), given.strip().encode()) and scheme.lower() == "bearer":
                found = name
        return found

    def refuses(self, headers: Headers) -> str | None:
        """Return why a request is refused for its host or origin; `None` if it is allowed."""
        host = headers.get("host", "")
        if not self.tokens and not local(host) and not {host.lower(), host_name(host)} & {*self.hosts}:
            answered = "Without tokens, only requests to this machine and to the hosts in hosts= are answered."
            return f"The request names the host {host!r}. {answered}"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self.origins and origin.partition("://")[2] != host:
            return f"Pages of {origin} may not ask here. Name it in origins= or --origin."
        return None


def local(host: str) -> bool:
    """Return whether a host name means this machine, such as `localhost:8000` or `127.0.0.1`."""
    name = host_name(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def own_path(scope: Scope) -> str:
    """Return the path of a request without the prefix, such as `/gesta`, under which this application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    own = path.removeprefix(root)
    return own if own.startswith("/") else path


def host_name(host: str) -> str:
    """Return the host name in a value of the HTTP header `Host`, in small letters: `localhost` for `LOCALHOST:80`."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


class Guard:
    """ASGI middleware that refuses requests which break the rules of `Access`, and limits the size of bodies."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on. Its client's name is stored in `scope["state"]["client"]`."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal, most = self._access.refuses(headers), self._access.body_bytes
        length = headers.get("content-length", "")
        client = self._access.client(headers)
        if refusal is not None:
            await failed(403, "Forbidden", refusal)(scope, receive, send)
        elif client is None and own_path(scope) not in OPEN:
            message = "Send the header `Authorization: Bearer TOKEN` with a token of this server."
            await failed(401, "Unauthorized", message, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        elif length.isdecimal() and int(length) > most:
            await too_large(most)(scope, receive, send)
        else:
            scope.setdefault("state", {})["client"] = client
            await self._app(scope, _bounded(receive, most), send)


def _bounded(receive: Receive, most: int) -> Receive:
    """Return a `receive` function that raises BodyTooLarge once more than `most` bytes of the body were received."""
    came = 0

    async def bounded() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > most:
            raise BodyTooLarge(most)
        return message

    return bounded


class BodyTooLarge(Exception):
    """The body of a request grew beyond the limit while it was received."""

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(most)
