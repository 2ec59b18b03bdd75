"""The gate accepts only the browser that opened the address with the token, and only requests from this server's pages.

The token in the address is turned into a cookie that scripts cannot read. A request is refused if it names another
host or comes from another site. So a page of another site cannot read the record through a browser on this machine.
"""

import hmac
from urllib.parse import quote, urlencode

from starlette.datastructures import Headers, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gesta.serve.access import host_name, local

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy: pages load nothing from other servers and contain no inline scripts or styles."""
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
OPEN = frozenset({"/static/style.css", "/static/icon.svg"})
"""Files that the page of a refusal loads. They hold nothing of a record, so they need no token."""
REFUSED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Gesta</title><link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/style.css"></head>
<body><header><span class="name">Gesta</span></header>
<main class="empty"><h1>This page is closed</h1><p>{}</p></main></body></html>
"""
CLOSED = (
    "The token is missing, or belongs to an earlier start of the viewer. "
    "Open the address that `gesta view` printed, with its token."
)
BODY_BYTES = 1_000_000
"""Greatest number of bytes of a request's body."""


class Gate:
    """ASGI middleware that checks every request, and adds the headers that protect the pages."""

    def __init__(self, app: ASGIApp, token: str, hosts: tuple[str, ...] = ()) -> None:
        self._app, self._token, self._hosts = app, token, {each.lower() for each in hosts if each}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a permitted request on to the application; answer any other request here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._answer(scope)

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await (self._app if answer is None else answer)(scope, receive, protected)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the gate's own response, such as a refusal; `None` if the application has to answer the request."""
        headers, query = Headers(scope=scope), QueryParams(scope["query_string"])
        host = headers.get("host", "")
        port = host.rpartition(":")[2]
        name = f"gesta-{port if port.isdecimal() else 80}"
        if not local(host) and host_name(host) not in self._hosts:
            return _refused(f"The request names the host {host!r}. The viewer answers on this machine alone.")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _refused("A page of another site sent this request.")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            return _refused("A page of another site sent this request.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > BODY_BYTES or "transfer-encoding" in headers:
            return PlainTextResponse(f"The body has more than {BODY_BYTES:,} bytes, or no length.", 413)
        given = query.get("token")
        if given is not None and self._same(given):
            rest = urlencode([(key, value) for key, value in query.multi_items() if key != "token"])
            path = "/" + quote(scope["path"].lstrip("/"))
            answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            answer.set_cookie(name, given, httponly=True, samesite="strict", path="/")
            return answer
        if self._same(cookie_parser(headers.get("cookie", "")).get(name, "")) or scope["path"] in OPEN:
            return None
        if "text/html" in headers.get("accept", ""):
            return HTMLResponse(
                REFUSED.format(CLOSED.replace("`gesta view`", "<code>gesta view</code>")),
                401,
                {"cache-control": "no-store"},
            )
        return _refused(CLOSED, 401)

    def _same(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _refused(text: str, status: int = 403) -> Response:
    return PlainTextResponse(text, status, {"cache-control": "no-store"})
