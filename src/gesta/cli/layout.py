"""Lines and tables for a page of text: wrapped, folded and aligned by what characters take up on a terminal."""

import shutil
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

from gesta.cli.talk import harmless

WIDEST = 120
"""Columns that a page takes at most; longer lines are hard to read."""


def page_width() -> int:
    """Give the columns of the terminal; where there is none, of a page."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, 40), WIDEST)


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` columns, at spaces where it has some; indents stay."""
    lines: list[str] = []
    for given in text.expandtabs(4).split("\n"):
        if cell_len(given) <= width:
            lines.append(given.rstrip())
            continue
        line, used = "", 0
        for word in given.split(" "):
            size = cell_len(word)
            if line and used + 1 + size > width:
                lines.append(line)
                line, used = "", 0
            if size > width:
                *whole, word = chop_cells(word, width)  # noqa: PLW2901 - its rest goes on
                lines += ([line] if line else []) + whole
                line, used, size = "", 0, cell_len(word)
            line, used = (f"{line} {word}", used + 1 + size) if line or not word else (word, size)
        lines.append(line)
    return lines


def fold(lines: list[str], most: int | None) -> list[str]:
    """Keep the first lines, and say how many there are more."""
    if most is None or len(lines) <= most + 1:
        return lines
    return [*lines[:most], f"... {len(lines) - most:,} lines more"]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """Align cells in columns; the first line is the headings. Those named in `right` stand at the right.

    Cells are made harmless, and take one line each.
    """
    cells = [[harmless(cell).replace("\n", "\\n").replace("\t", "\\t") for cell in row] for row in (headings, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [
            (" " * (width - cell_len(cell))) + cell if heading in right else cell + " " * (width - cell_len(cell))
            for heading, cell, width in zip(headings, row, widths, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines
