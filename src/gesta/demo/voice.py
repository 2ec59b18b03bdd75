"""The output of the demo: the words of customer and agent in two columns, and everything else in dim lines.

All output was read from the record, except the words of an answer while it streams. Characters that control a terminal
are printed as escapes, because the texts come from models, tools and records.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gesta.cli.talk import harmless
from gesta.events import Event

INDENT, WIDTH = 10, 80
CUSTOMER, AGENT = ("customer", "bold cyan"), ("agent", "bold green")


class Voice:
    """Prints the demo on a console, at most 80 columns wide."""

    def __init__(self, console: Console, *, full: bool = True) -> None:
        self._console = console
        self._full = full
        self._muted = False
        self._plain = console.no_color
        self._width = max(40, min(console.width, WIDTH)) - 1
        self._column = 0
        self._word = ""
        self._gap = False

    @contextmanager
    def muted(self, *, when: bool = True) -> Iterator[None]:
        """Print no notes, no facts, and no words of customer and agent inside the `with` block.

        Args:
            when: with `False`, everything is printed as usual.
        """
        before, self._muted = self._muted, when or self._muted
        try:
            yield
        finally:
            self._muted = before

    def gap(self) -> None:
        """Print an empty line. Without `--full`, do nothing."""
        if self._full and not self._muted:
            self.line()

    def heading(self, text: str) -> None:
        """Print a heading. With `--full`, the heading is underlined."""
        self.line()
        self._put(text, "bold")
        if self._full:
            self._put("-" * cell_len(text), "dim")

    def paragraph(self, text: str, style: str = "") -> None:
        """Print a paragraph, wrapped to the width of the output. `style` is a style of rich, such as `bold`."""
        for line in textwrap.wrap(harmless(text), self._width):
            self._put(line, style)

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line of any length without wrapping, so that it can be copied or searched, in a style of rich."""
        self._put(text, style)

    def note(self, text: str) -> None:
        """Print a note as one dim line. A text that does not fit is cut off."""
        if not self._muted:
            self._put(" " * INDENT + self._cut(text), "dim")

    def fact(self, name: str, text: str, style: str = "yellow") -> None:
        """Print a fact after its name, wrapped to the width of the output. Only the name has the style (of rich)."""
        if self._muted:
            return
        self.close()
        lines = textwrap.wrap(harmless(text), self._width - INDENT)
        for place, line in enumerate(lines or [""]):
            head = f"{'' if place else name:<{INDENT}}"
            self._console.print(Text.assemble((head, self._style(style)), self._fit(line)), soft_wrap=True)

    def person(self, who: tuple[str, str], text: str) -> None:
        """Print the words of `who`, which is `CUSTOMER` or `AGENT`. Without `--full`, cut them to fit on one line."""
        if not self._muted:
            self.words(text if self._full else self._cut(text), who)
            self.close()

    def words(self, text: str, who: tuple[str, str] = AGENT) -> None:
        """Print more words of `who`, on the same line as that speaker's earlier words.

        A word is never split between lines, even if its pieces come one by one.

        Args:
            who: the speaker's name and its style (of rich): `CUSTOMER` or `AGENT`.
        """
        if not self._column and text:
            self._console.print(Text(f"{who[0]:>{INDENT - 2}}  ", self._style(who[1])), end="", soft_wrap=True)
            self._column = INDENT
        for char in harmless(text):
            if not char.isspace():
                self._word += char
                continue
            self._finish_word()
            if char == "\n":
                self._break()
            else:
                self._gap = self._column > INDENT

    def close(self) -> None:
        """Print the end of the line on which words of a speaker were printed."""
        if self._column:
            self._finish_word()
            self._console.print()
        self._column, self._gap = 0, False

    def _finish_word(self) -> None:
        size = cell_len(self._word) + self._gap
        if not self._word:
            return
        if self._column + size > self._width and self._column > INDENT:
            self._break()
            size -= 1
        self._console.print(Text(" " * self._gap + self._fit(self._word)), end="", soft_wrap=True)
        self._column, self._word, self._gap = self._column + size, "", False

    def _break(self) -> None:
        self._console.print()
        self._console.print(" " * INDENT, end="", soft_wrap=True)
        self._column, self._gap = INDENT, False

    def _put(self, text: str, style: str) -> None:
        self.close()
        self._console.print(Text(self._fit(harmless(text)), self._style(style)), soft_wrap=True)

    def _style(self, style: str) -> str:
        """Return the style, or `""` if the console has no colours."""
        return "" if self._plain else style

    def _cut(self, text: str) -> str:
        """Return as much of a text as fits on one line."""
        text = " ".join(harmless(text).split())
        most = self._width - INDENT
        return text if len(text) <= most else f"{text[: most - 3]}..."

    def _fit(self, text: str) -> str:
        """Return the text with `?` for each character that the terminal's encoding lacks."""
        return text.encode(self._console.encoding, "replace").decode(self._console.encoding)

    def hear(self, event: Event) -> None:
        """Print the words of an answer while they stream, and a note about retracted words or an error."""
        if event.type == "answer" and event.content:
            self.words(event.content)
        elif event.type == "retract" and self._column:
            self.note("(those words are taken back: they are not part of an answer)")
        elif event.type == "error":
            self.note(event.content)
