"""Makes the output of `log --as`: one run (a conversation) in the form in which another system shows its runs.

By default the columns fit the page and long texts are cut. With `--json`, the output can be read by the other system's
own programs.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len, chop_cells

from gesta.cli.layout import fold, page_width, wrap
from gesta.cli.options import LogOptions
from gesta.cli.pages import heading, reading
from gesta.cli.talk import BOLD, Stop, harmless, json_harmless, json_line, put, put_all, short, styled
from gesta.compat.forms import FORMS, Form
from gesta.compat.langroid.task_log import COLUMNS, task_log, tsv
from gesta.errors import nearest
from gesta.prompt import observation_text
from gesta.record.record import Record
from gesta.store import RunRow

FORMATS = ("tsv",)
FEW = 6
"""Greatest number of lines that are shown of a text, unless `--all` is set."""
NOTE = 50
"""Greatest number of characters that are shown of a key-value entry. Most of these entries are for programs only."""
Cells = Sequence[str]


def log(options: LogOptions) -> None:
    """Print a run in another system's form, as the options say."""
    form = _chosen(options)

    async def show(record: Record) -> None:
        row = await record.find(options.run)
        lines = await _lines(record, row, form, options)
        if not (options.json or options.format):
            put(styled(harmless(heading(row)), BOLD, sys.stdout))
            put("")
        put_all(lines)

    reading(options, show)


def _chosen(options: LogOptions) -> str:
    """Return the name of the form that the options choose, such as `activity` or `steps`.

    Raises Stop if there is no such form, or if the form cannot be combined with another option.
    """
    form, named = options.form or "task", "--as" if options.form is not None else "--format"
    clashes = {
        f"{named} and --raw": options.raw,
        f"{named} and --follow": options.follow,
        f"{named} and --kinds": options.kinds is not None,
        "--format and --json": options.json and options.format is not None,
    }
    for both, given in clashes.items():
        if given:
            raise Stop(f"{both} do not go together. Leave one of them out.")
    if form not in FORMS:
        raise Stop(f"No form {form!r}.{nearest(form, FORMS)} Forms: {', '.join(FORMS)}.")
    if options.format not in (None, *FORMATS):
        raise Stop(f"No format {options.format!r}.{nearest(options.format or '', FORMATS)} Formats: tsv.")
    if options.format is not None and form != "task":
        raise Stop(f"--format {options.format} is a form of --as task, not of --as {form}.")
    return form


def columns(headings: Cells, rows: Sequence[Cells], *, everything: bool) -> Iterator[str]:
    """Yield rows of cells in aligned columns. The text of the last column is broken into lines.

    Unless `everything` is set, long texts in the last column are cut after some lines. Other columns are cut if they
    take more than half of the page.
    """
    if not headings:
        return
    most = page_width()
    rows = [[observation_text(cell) for cell in row] for row in rows]
    *left, last = headings
    cells = [[harmless(cell).replace("\n", "\\n").replace("\t", "\\t") for cell in row[:-1]] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(left, *cells, strict=True)]
    while not everything and sum(widths) + 2 * len(widths) > most // 2:
        widths[widths.index(max(widths))] -= 1
    if any(left):
        yield styled("  ".join([*map(_fitted, left, widths), last]).rstrip(), BOLD, sys.stdout)
    for ours, row in zip(cells, rows, strict=True):
        before = "".join(f"{_fitted(*each)}  " for each in zip(ours, widths, strict=True))
        lines = wrap(harmless(row[-1]).strip("\n"), max(most - cell_len(before), most // 4))
        for place, line in enumerate(fold(lines, None if everything else FEW)):
            yield ((" " * cell_len(before) if place else before) + line).rstrip()


def _fitted(cell: str, width: int) -> str:
    """Return a cell, cut or filled with spaces to a width in columns."""
    if cell_len(cell) > width:
        cell = f"{chop_cells(cell, width - 3)[0]}..." if width > 4 else chop_cells(cell, width)[0]
    return cell + " " * (width - cell_len(cell))


async def _lines(record: Record, row: RunRow, form: str, options: LogOptions) -> Iterable[str]:
    """Return the lines to print for a run: as JSON, as tab-separated values, or as columns."""
    shape = FORMS[form]
    entries = await shape.entries(record, row)
    if options.json:
        return (json_harmless(each) if isinstance(each, str) else json_line(each) for each in shape.lines(entries))
    if options.format is not None:
        return (harmless(tsv(cells)) for cells in [COLUMNS, *(each.cells().values() for each in task_log(entries))])
    made = shape.form(entries)
    return columns(made.headings, list(_cells(form, made, everything=options.all)), everything=options.all)


def _cells(form: str, made: Form, *, everything: bool) -> Iterator[Cells]:
    """Yield the cells of each row. The last cell also shows the row's annotations (names with values).

    In the form `activity`, annotations that are the same as in the row before are left out, unless `everything` is set.
    """
    before = dict[str, Any]()
    for row in made.rows:
        *left, told = row.cells
        notes = row.notes
        if not everything and form == "activity":
            told = short(told, NOTE) if row.cells[1] == "key-value" else told
            before, notes = notes, {key: notes[key] for key in notes if notes[key] != before.get(key)}
        said = ", ".join(f"{key}={observation_text(value)}" for key, value in notes.items())
        yield (*left, f"{told}\n[{said}]".lstrip("\n") if said else told)
