"""The web application of the viewer: its pages, their data as JSON, and new entries as server-sent events.

A record is the store of all runs, and a run is a list of entries. A line is one entry of a run as the pages show it.
The seq of an entry is its number in its run, from 1; the pos is its number in the whole record. A record is named in an
address by its number on the command line, from 0.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from gesta.errors import GestaError
from gesta.serve.bodies import Refused, answered, failed, failure
from gesta.serve.sse import EventStream, encoded
from gesta.serve.sse import line as told
from gesta.state.run import UNFIT
from gesta.web import evidence_routes, forms, people, sent_routes
from gesta.web.data import Pages
from gesta.web.files import file
from gesta.web.gate import Gate
from gesta.web.graph import Shown
from gesta.web.listing import asked, everywhere
from gesta.web.numbers import number, number_in
from gesta.web.one_script import one_script
from gesta.web.reading import misfits, readable

STATIC = files("gesta.web") / "static"
NAME = re.compile(r"[a-z-]+\.(?:js|css|svg)")
TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
SCRIPT, MODULE = "gesta.js", '<script type="module" src="/static/app.js"></script>'
Answering = Callable[[Request, Pages], Awaitable[Response]]


class Viewer:
    """The web application for one or more records."""

    def __init__(self, pages: Sequence[Pages]) -> None:
        self.pages = pages
        self.draining = anyio.Event()

    def drain(self) -> None:
        """End the open event streams and stop the running checks of records, so that the server can shut down."""
        self.draining.set()
        for each in self.pages:
            each.evidence.stop()

    def app(self, token: str, hosts: tuple[str, ...] = ()) -> Starlette:
        """Return the ASGI application, which accepts only requests with the token.

        Args:
            hosts: names besides those of this machine that the `Host` header of a request may have.
        """
        places: tuple[tuple[str, Answering], ...] = (
            ("/api/{record:number}/sessions", _sessions),
            ("/api/{record:number}/runs/{run}", _run),
            ("/api/{record:number}/runs/{run}/lines", _lines),
            ("/api/{record:number}/runs/{run}/time", _time),
            ("/api/{record:number}/runs/{run}/children", _children),
            ("/api/{record:number}/runs/{run}/why", _why),
            ("/api/{record:number}/runs/{run}/graph", _graph),
            ("/api/{record:number}/runs/{run}/entries/{seq:number}", _entry),
            ("/api/{record:number}/runs/{run}/entries/{seq:number}/files/{place:number}", file),
            ("/api/{record:number}/follow", self._follow),
            ("/api/{record:number}/waiting", people.waiting),
            *sent_routes.PLACES,
            *forms.PLACES,
            *evidence_routes.PLACES,
        )
        routes = [
            Route("/api/records", self._records),
            Route("/api/sessions", self._everywhere),
            *(Route(path, self._answering(answers)) for path, answers in places),
            Route("/api/{record:number}/answer", self._answering(people.answer), methods=["POST"]),
            Route("/api/{record:number}/evidence", self._answering(evidence_routes.ask), methods=["POST"]),
            Route("/static/{name}", _static),
            Route("/api/{path:path}", _nothing),
            Route("/{path:path}", _page),
        ]
        small = Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4)
        return Starlette(routes=routes, middleware=[Middleware(Gate, token=token, hosts=hosts), small])

    def _answering(self, answers: Answering) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            place = int(request.path_params["record"])
            if place >= len(self.pages):
                return failed(404, "NoRecord", f"There is no record {place}.")
            try:
                await self.pages[place].settle()
                return await answers(request, self.pages[place])
            except (GestaError, Refused) as error:
                return failure(error)
            except UNFIT:  # an entry with a member of a wrong type
                run = str(request.path_params.get("run", ""))
                if (broken := await misfits(self.pages[place].record.store, run)) is None:
                    raise
                return failure(broken)

        return answer

    async def _records(self, _request: Request) -> Response:
        return answered([await each.about() for each in self.pages])

    async def _everywhere(self, request: Request) -> Response:
        try:
            return answered(await everywhere(self.pages, asked(request.query_params)))
        except GestaError as error:
            return failure(error)

    async def _follow(self, request: Request, pages: Pages) -> Response:
        """Stream new entries as server-sent events, whose ids are positions in the record.

        With `run` in the query, each event holds the new lines of that run. Without it, each event holds the ids of the
        runs that got new entries.
        """
        last = await pages.record.store.last()
        after = number_in(request.headers.get("last-event-id", ""), number(request, "after", last))
        after = min(after, last)  # a crash of the server may have lost what a page has read
        run = request.query_params.get("run")

        async def news() -> AsyncIterator[bytes]:
            async for rows in pages.record.store.tail(after):
                own = [row for row in rows if run in (None, row.run)]
                if own and run is not None:
                    lines = await pages.shown([await readable(pages.record.store, row) for row in own])
                    yield told(encoded(lines), event="lines", id_=str(rows[-1].pos))
                elif own:
                    yield told(encoded(sorted({row.run for row in own})), event="runs", id_=str(rows[-1].pos))

        return EventStream(news(), self.draining)


async def _nothing(_request: Request) -> Response:
    return failed(404, "NotFound", "There is nothing at this address.")


async def _page(_request: Request) -> Response:
    return HTMLResponse(_index(), headers={"cache-control": "no-cache"})


@cache
def _index() -> str:
    """Return the HTML page.

    The address of the script contains the script's digest. So a browser can cache the script for ever.
    """
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    version = hashlib.sha256(_script()).hexdigest()[:16]
    return page.replace(MODULE, f'<script defer src="/static/{SCRIPT}?{version}"></script>')


@cache
def _script() -> bytes:
    """Return all modules joined into one script. Loading thirty modules one by one takes a browser half a second."""
    return one_script(modules(), "app.js", {}).encode()


def modules() -> dict[str, str]:
    """Return the text of each JavaScript module of the pages, by file name."""
    return {each.name: each.read_text(encoding="utf-8") for each in STATIC.iterdir() if each.name.endswith(".js")}


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name == SCRIPT:
        headers = {"cache-control": "private, max-age=31536000, immutable"} if request.url.query else {}
        return Response(_script(), media_type=TYPES["js"], headers=headers)
    if not NAME.fullmatch(name) or not (STATIC / name).is_file():
        return failed(404, "NotFound", "There is no such file.")
    kind = TYPES[name.rpartition(".")[2]]
    return FileResponse(str(STATIC / name), media_type=kind, headers={"cache-control": "no-cache"})


async def _sessions(request: Request, pages: Pages) -> Response:
    return answered(await pages.listing.page(asked(request.query_params)))


async def _run(request: Request, pages: Pages) -> Response:
    return answered(await pages.run(request.path_params["run"]))


async def _lines(request: Request, pages: Pages) -> Response:
    limit = min(1000, number(request, "limit", 200))
    return answered(await pages.lines(request.path_params["run"], number(request, "after", 0), limit))


async def _time(request: Request, pages: Pages) -> Response:
    return answered(await pages.glances.time(request.path_params["run"]))


async def _children(request: Request, pages: Pages) -> Response:
    return answered(await pages.glances.children(request.path_params["run"], number(request, "after", 0)))


async def _why(request: Request, pages: Pages) -> Response:
    return answered(await pages.why(request.path_params["run"], number(request, "entry", 0) or None))


async def _graph(request: Request, pages: Pages) -> Response:
    query = request.query_params
    shown = Shown(all=bool(query.get("all")), turned=set(query.get("turned", "").split(",")))
    return answered(await pages.graph(request.path_params["run"], number(request, "entry", 0) or None, shown))


async def _entry(request: Request, pages: Pages) -> Response:
    params: dict[str, Any] = request.path_params
    return answered(await pages.entry(params["run"], params["seq"]))
