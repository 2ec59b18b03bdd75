"""Formats text for a terminal: wraps, cuts and aligns lines, by the number of columns that each character takes."""

import shutil
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

from gesta.cli.talk import harmless

WIDEST = 120
"""Greatest width of a page in columns, because longer lines are hard to read."""


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


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """Return a table as lines, with aligned columns. The first line has the headings.

    Each cell takes one line, and escapes replace characters that control a terminal.

    Args:
        right: headings of the columns that are aligned right.
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
