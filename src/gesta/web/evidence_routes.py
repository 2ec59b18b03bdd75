"""The addresses under which the pages ask for the results of `verify`. None of these requests writes to the record.

A head is the digest of a run's last entry, kept outside the record; `evidence` explains the checks.
"""

from typing import Literal, Protocol

from starlette.requests import Request
from starlette.responses import Response

from gesta.address import Record
from gesta.integrity.verify import heads
from gesta.serve.bodies import Received, answered, read
from gesta.web.evidence import Evidence, heads_in


class HasEvidence(Protocol):
    """The attributes of `Pages` (the pages of a record) that the functions in this file use."""

    @property
    def record(self) -> Record:
        """The record that the pages show."""

    @property
    def evidence(self) -> Evidence:
        """The checks of the record."""


class Asked(Received, frozen=True, kw_only=True):
    """A person's request to start or stop the check of a record."""

    do: Literal["start", "stop"]
    heads: str | None = None
    """Heads that were kept outside the record, one a line. `None`: use the heads that the viewer already knows."""


async def _evidence(_request: Request, pages: HasEvidence) -> Response:
    return answered(pages.evidence.about())


async def _run(request: Request, pages: HasEvidence) -> Response:
    return answered(await pages.evidence.run(await pages.record.find(request.path_params["run"])))


async def _heads(_request: Request, pages: HasEvidence) -> Response:
    """Send the heads of all runs as a file, which a person should keep where no writer of the record can change it."""
    lines = "".join(f"{head}\n" for head in await heads(pages.record.store))
    return Response(lines, headers={"content-disposition": 'attachment; filename="heads.txt"'}, media_type="text/plain")


async def ask(request: Request, pages: HasEvidence) -> Response:
    """Start or stop the check of the whole record, as the body (`Asked`) says, and answer with the check's state."""
    asked = await read(request, Asked)
    if asked.do == "stop":
        pages.evidence.stop()
    else:
        if asked.heads is not None:
            pages.evidence.heads = [found] if (found := heads_in(asked.heads)) else []
        pages.evidence.start()
    return answered(pages.evidence.about(), 202)


PLACES = (
    ("/api/{record:number}/evidence", _evidence),
    ("/api/{record:number}/runs/{run}/evidence", _run),
    ("/api/{record:number}/heads", _heads),
)
"""The addresses for GET requests, each with the function that answers it."""
