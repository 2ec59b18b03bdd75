"""Formats text for a terminal: wraps, cuts and aligns lines, by the number of columns that each character takes."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

from gesta.cli.talk import harmless, terminal

WIDEST = 120
"""Greatest width of a page in columns, because longer lines are hard to read."""
GAP = "  "
"""What is between two columns of a table."""
ID = 16
"""Number of characters of a run's id."""


def page_width() -> int:
    """Return the width of the terminal in columns, from 40 to 120; 100 if there is no terminal."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, 40), WIDEST)


def wrap(text: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` columns, broken at spaces where possible. Indentation is kept."""
    lines: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        lines += [line.rstrip()] if cell_len(line) <= width else _broken(line, width)
    return lines


def _broken(line: str, width: int) -> list[str]:
    """Break a line that is too long into several lines."""
    words = line.split()
    lines = [line[: min(len(line) - len(line.lstrip(" ")), width // 2)]]
    for word in words:
        space = " " if lines[-1].strip() else ""
        if cell_len(lines[-1]) + len(space) + cell_len(word) <= width:
            lines[-1] += space + word
        else:
            lines += chop_cells(word, width)
    return lines if lines[0].strip() else lines[1:]


def fold(lines: list[str], most: int | None) -> list[str]:
    """Return the first `most` lines, and a line that counts the others. `most=None` returns all lines."""
    if most is None or len(lines) <= most + 1:
        return lines
    return [*lines[:most], f"... {len(lines) - most:,} lines more"]


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), room: int | None = None
) -> list[str]:
    """Return a table as one text for the headings and one for each row, with aligned columns.

    Each cell takes one line, and escapes replace characters that control a terminal. Only if the table is wider than
    `room`, columns without any value are left out, and cells are broken at spaces into several lines.

    Args:
        right: headings of the columns that are aligned right.
        room: greatest width in columns; by default that of the terminal, and no limit if stdout is not a terminal.
    """
    cells = [[harmless(cell).replace("\n", "\\n").replace("\t", "\\t") for cell in row] for row in (headings, *rows)]
    columns = [list(column) for column in zip(*cells, strict=True)]
    if room is None:
        room = shutil.get_terminal_size((100, 24)).columns if terminal(sys.stdout) else sys.maxsize
    if _width(map(_widest, columns), GAP) > room and rows:
        columns = [column for column in columns if any(column[1:])]
    widths, gap = _narrowed(columns, room, right)
    aligned = [_aligned(column, width, right=column[0] in right) for column, width in zip(columns, widths, strict=True)]
    return ["\n".join(_beside(row, widths, gap)) for row in zip(*aligned, strict=True)]


def _widest(cells: Iterable[str]) -> int:
    return max(map(cell_len, cells), default=0)


def _width(widths: Iterable[int], gap: str) -> int:
    """Return the width of a table with columns of these widths."""
    return sum(each + len(gap) for each in widths) - len(gap)


def _narrowed(columns: Sequence[Sequence[str]], room: int, right: Sequence[str]) -> tuple[list[int], str]:
    """Return the width of each column, and the gap between columns.

    The widest columns are made narrower until the table fits into `room`. Numbers, in columns named in `right`, are
    never broken. Words are broken only if they are longer than the id of a run, or if nothing else helps.
    """
    widths, gap = [min(_widest(column), room) for column in columns], GAP
    for longest, gap in ((ID, GAP), (ID, " "), (ID // 2, " ")):
        least = [
            max(_widest(column[0].split()), _widest(column[1:]))
            if column[0] in right
            else min(_widest(word for cell in column for word in cell.split()), longest)
            for column in columns
        ]
        while _width(widths, gap) > room:
            left = [place for place, width in enumerate(widths) if width > least[place]]
            if not left:
                break
            widths[max(left, key=widths.__getitem__)] -= 1
        if _width(widths, gap) <= room:
            break
    return widths, gap


def _aligned(cells: Sequence[str], width: int, *, right: bool) -> list[list[str]]:
    """Return the cells of one column, each as lines of this width."""
    lines = ([cell] if cell_len(cell) <= width else wrap(cell, width) for cell in cells)
    return [[_padded(line, width - cell_len(line), right=right) for line in each] for each in lines]


def _padded(line: str, by: int, *, right: bool) -> str:
    return " " * by + line if right else line + " " * by


def _beside(cells: Sequence[Sequence[str]], widths: Sequence[int], gap: str) -> Iterator[str]:
    """Yield the lines of one row, in which its cells are beside each other."""
    for line in zip_longest(*cells):
        padded = (part if part is not None else " " * width for part, width in zip(line, widths, strict=True))
        yield gap.join(padded).rstrip()
