"""The data of two kinds of pages: a run in the form of another system, and the explanation of an answer.

A record is the store of all runs, and a run is a list of entries. A session is a group of runs. A form is a table of
rows made from the entries of a run, as another system would log them. The form `why` is the table of the entries that
an answer was made from. It explains the entry with the seq `entry`; with `None`, the last answer of the run.
"""

from collections import OrderedDict
from typing import Any, Protocol

from anyio import Lock, to_thread
from starlette.requests import Request
from starlette.responses import Response

from gesta.address import Record
from gesta.cli.chains import nodes
from gesta.cli.talk import json_harmless, json_line
from gesta.compat.forms import FORMS, Form, FormRow
from gesta.entry import Entry
from gesta.errors import nearest
from gesta.prompt import observation_text
from gesta.serve.bodies import Refused, answered
from gesta.store import RunRow
from gesta.text.redactor import SECRETS
from gesta.views.lineage import Node
from gesta.web.lineages import Lineages
from gesta.web.numbers import number

WHY = "why"
"""The name of the form that explains an answer."""
KEPT = 2
"""Number of tables kept in memory."""
TEXT = 1000
"""Greatest number of characters of a cell that are sent with the table.

The rest is sent when a person asks for the row.
"""


class FormPages:
    """Makes and keeps the tables of the runs of one record."""

    def __init__(self, record: Record, lineages: Lineages) -> None:
        self.record, self._lineages = record, lineages
        self._kept: OrderedDict[tuple[str, str, int | None], tuple[int, Form]] = OrderedDict()
        self._lock = Lock()

    async def rows(self, name: str, form: str, asked: "Asked") -> dict[str, Any]:
        """Return the rows that `asked` names, of the table of the run `name`, and the number of all its rows.

        Long cells are cut.

        The notes of a row are the annotations of its entry: names with values, apart from the entry's content. An
        annotation that is equal in the row before is left out.
        """
        made = await self._form(name, form, asked.entry)
        shown = made.rows[asked.after : asked.after + asked.limit]
        before = made.rows[asked.after - 1].notes if 0 < asked.after <= len(made.rows) else {}
        rows = []
        for row in shown:
            changed = {key: row.notes[key] for key in row.notes if row.notes[key] != before.get(key)}
            notes, before = ", ".join(f"{key}={observation_text(value)}" for key, value in changed.items()), row.notes
            rows.append(_row(row, notes))
        return {"form": form, "headings": made.headings, "rows": rows, "total": len(made.rows)}

    async def row(self, name: str, form: str, place: int, entry: int | None) -> dict[str, Any]:
        """Return row `place` (from 0) of the table of the run `name`, uncut. Raises Refused if there is no such row."""
        made = await self._form(name, form, entry)
        if place >= len(made.rows):
            raise Refused(404, "NoRow", f"The form has no row {place}.")
        return {"cells": made.rows[place].cells}

    async def _form(self, name: str, form: str, entry: int | None) -> Form:
        """Return the table of the run `name` in one form. Raises Refused if there is no such form.

        Cost: reads all entries of the run. A table in memory is used until the session gets new entries.
        """
        if form not in (*FORMS, WHY):
            raise Refused(404, "NoForm", f"No form {form!r}.{nearest(form, FORMS)} Forms: {', '.join([*FORMS, WHY])}.")
        row = await self.record.find(name)
        entries = sum(each.head for each in await self.record.store.runs(row.session))
        async with self._lock:
            known, made = self._kept.pop((row.run, form, entry), (-1, Form((), [])))
            if known != entries:
                made = await (self._why(row, entry) if form == WHY else self._shaped(row, form))
            self._kept[row.run, form, entry] = entries, made
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return made

    async def _shaped(self, row: RunRow, form: str) -> Form:
        """Return the table of a run in the form of another system. It is made in a thread, because this takes long."""
        entries = await FORMS[form].entries(self.record, row)
        return await to_thread.run_sync(FORMS[form].form, entries)

    async def _why(self, row: RunRow, entry: int | None) -> Form:
        """Return the table of the form `why`, which explains an entry of the run."""
        found = (await self._lineages.explained(row.run, entry)).found
        rows = [_node(node, row.run) for node in found.nodes]
        return Form(("entry", "what", "made from", "content"), rows)

    async def lines(self, name: str, form: str, entry: int | None) -> str:
        """Return the run `name` in one form as JSON lines, like `gesta log --as FORM --json` and `gesta why --json`."""
        row = await self.record.find(name)
        if form == WHY:
            explained = await self._lineages.explained(row.run, entry)
            return "".join(f"{json_line(each)}\n" for each in nodes(explained.found))
        if form not in FORMS:
            raise Refused(404, "NoForm", f"No form {form!r}.{nearest(form, FORMS)}")
        return await to_thread.run_sync(_text, form, await FORMS[form].entries(self.record, row))


def _text(form: str, entries: list[Entry]) -> str:
    """Return the entries of a run as JSON lines, in the form of another system."""
    found = FORMS[form].lines(entries)
    return "".join(f"{json_harmless(each) if isinstance(each, str) else json_line(each)}\n" for each in found)


def _node(node: Node, run: str) -> FormRow:
    """Return one entry of an explanation as a row. An entry of the run `run` is named by its number alone."""
    sources = ", ".join(each.removeprefix(f"{run}.") for each in node.derived_from)
    what = node.type if node.status is None else f"{node.type}, {node.status}"
    made_from = f"{sources} (inferred)" if node.inferred and sources else sources
    return FormRow((node.id.removeprefix(f"{run}."), what, made_from, node.text), node.run, node.seq)


def _row(row: FormRow, notes: str) -> dict[str, Any]:
    """Return a row and its notes as a dict for the page, with long texts cut.

    If a cell was cut, `characters` is the length that the row's longest cell had before.
    """
    cut = tuple(cell[:TEXT] for cell in row.cells)
    more = max((len(cell) for cell in row.cells), default=0)
    found = {"cells": cut, "run": row.run, "seq": row.seq, "notes": notes[:TEXT]}
    return found | ({"characters": more} if cut != row.cells else {})


class HasForms(Protocol):
    """The attributes of `Pages` (the pages of a record) that the functions in this file use."""

    @property
    def forms(self) -> FormPages:
        """The tables of runs in the forms of other systems."""


class Asked:
    """A page's request for some rows of a form, read from the query of the address."""

    def __init__(self, request: Request) -> None:
        self.after, self.limit = number(request, "after", 0), min(1000, number(request, "limit", 200))
        self.entry = number(request, "entry", 0) or None


async def _rows(request: Request, pages: HasForms) -> Response:
    params = request.path_params
    return answered(await pages.forms.rows(params["run"], params["form"], Asked(request)))


async def _one(request: Request, pages: HasForms) -> Response:
    params: dict[str, Any] = request.path_params
    return answered(await pages.forms.row(params["run"], params["form"], params["seq"], Asked(request).entry))


async def _lines(request: Request, pages: HasForms) -> Response:
    """Send a run in one form, as JSON lines for download, so that a browser does not show them as a page."""
    params = request.path_params
    text = await pages.forms.lines(params["run"], params["form"], Asked(request).entry)
    named = {"content-disposition": f'attachment; filename="{params["form"]}.jsonl"'}
    return Response(SECRETS.bytes(text.encode()), headers=named, media_type="application/octet-stream")


AT = "/api/{record:number}/runs/{run}/forms/{form}"
PLACES = ((AT, _rows), (AT + "/rows/{seq:number}", _one), (AT + "/lines", _lines))
"""The addresses, each with the function that answers it."""
