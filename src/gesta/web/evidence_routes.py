"""The addresses under which the pages ask what `verify` says. None of these requests writes to the record."""

from typing import Literal, Protocol

from starlette.requests import Request
from starlette.responses import Response

from gesta.address import Record
from gesta.integrity.verify import heads
from gesta.serve.bodies import Received, answered, read
from gesta.web.evidence import Evidence, heads_in


class HasEvidence(Protocol):
    """The pages of a record, as far as they are used here."""

    @property
    def record(self) -> Record:
        """The record."""

    @property
    def evidence(self) -> Evidence:
        """The checks of the record."""


class Asked(Received, frozen=True, kw_only=True):
    """What to do with the check of a record."""

    do: Literal["start", "stop"]
    heads: str | None = None
    """Heads that were kept elsewhere, one in a line; `None` for those that the viewer knows."""


async def _evidence(_request: Request, pages: HasEvidence) -> Response:
    return answered(pages.evidence.about())


async def _run(request: Request, pages: HasEvidence) -> Response:
    return answered(await pages.evidence.run(await pages.record.find(request.path_params["run"])))


async def _heads(_request: Request, pages: HasEvidence) -> Response:
    """Answer with the heads of all runs as a file, to be kept where no writer of the record can change it."""
    lines = "".join(f"{head}\n" for head in await heads(pages.record.store))
    return Response(lines, headers={"content-disposition": 'attachment; filename="heads.txt"'}, media_type="text/plain")


async def ask(request: Request, pages: HasEvidence) -> Response:
    """Begin or stop the check of a record."""
    asked = await read(request, Asked)
    if asked.do == "stop":
        pages.evidence.stop()
    else:
        if asked.heads is not None:
            pages.evidence.heads = [found] if (found := heads_in(asked.heads)) else []
        pages.evidence.start()
    return answered(pages.evidence.about(), 202)


PLACES = (
    ("/api/{record:int}/evidence", _evidence),
    ("/api/{record:int}/runs/{run}/evidence", _run),
    ("/api/{record:int}/heads", _heads),
)
"""The addresses that are read, and the functions that answer."""
