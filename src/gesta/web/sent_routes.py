"""The addresses under which the pages read what a run sent to its model."""

from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from gesta.compare.requests import Wanted
from gesta.serve.bodies import answered
from gesta.text.redactor import SECRETS
from gesta.web.numbers import number
from gesta.web.sent import SentPages, ways

AT = "/api/{record:number}/runs/{run}/requests"


class HasSent(Protocol):
    """The attributes of `Pages` (the pages of a record) that the functions in this file use."""

    @property
    def sent(self) -> SentPages:
        """The data about the requests to models."""


async def _requests(request: Request, pages: HasSent) -> Response:
    limit = min(1000, number(request, "limit", 500))
    return answered(await pages.sent.requests(request.path_params["run"], number(request, "after", 0), limit))


async def _request(request: Request, pages: HasSent) -> Response:
    return answered(await pages.sent.request(*_wanted(request)))


async def _header(request: Request, pages: HasSent) -> Response:
    return answered(await pages.sent.header(*_wanted(request)))


async def _messages(request: Request, pages: HasSent) -> Response:
    limit = min(500, number(request, "limit", 50))
    return answered(await pages.sent.messages(*_wanted(request), number(request, "after", 0), limit))


async def _message(request: Request, pages: HasSent) -> Response:
    before, params = bool(request.query_params.get("before")), _params(request)
    return answered(await pages.sent.message(*_wanted(request), params["place"], before=before))


async def _wire(request: Request, pages: HasSent) -> Response:
    return answered(await pages.sent.wire(*_wanted(request), number(request, "after", 0)))


async def _body(request: Request, pages: HasSent) -> Response:
    """Send the body of a recorded request as a download, so that a browser does not show it as a page."""
    body, seq = SECRETS.bytes(await pages.sent.body(*_wanted(request))), _params(request)["seq"]
    named = {"content-disposition": f'attachment; filename="request-{seq}.json"'}
    return Response(body, headers=named, media_type="application/octet-stream")


async def _ways(_request: Request, _pages: HasSent) -> Response:
    return answered(ways())


PLACES = (
    (AT, _requests),
    (AT + "/{seq:number}", _request),
    (AT + "/{seq:number}/header", _header),
    (AT + "/{seq:number}/messages", _messages),
    (AT + "/{seq:number}/messages/{place:number}", _message),
    (AT + "/{seq:number}/wire", _wire),
    (AT + "/{seq:number}/body", _body),
    ("/api/{record:number}/ways", _ways),
)
"""The addresses, each with the function that answers it."""


def _params(request: Request) -> dict[str, Any]:
    params: dict[str, Any] = request.path_params
    return params


def _wanted(request: Request) -> tuple[str, Wanted]:
    """Return the run that a URL names, and which request of that run the URL asks for, in which form."""
    params, query = _params(request), request.query_params
    form, model = query.get("form") or None, query.get("as") or None
    return params["run"], Wanted(entry=params["seq"], form=form, model=model, whole=bool(query.get("whole")))
