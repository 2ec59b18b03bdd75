"""Reads the values of a long JSON text one at a time, and describes what is wrong with a text that is not JSON.

The text is read piece by piece, so only its largest value has to fit into memory.
"""

import io
import json
from collections.abc import Collection, Iterator, Sequence
from typing import IO, Any, NamedTuple

from msgspec import Struct
from msgspec import json as fast

from gesta.errors import GestaError
from gesta.importers.unpacked import DECODER, NOT_EXACT

CHUNK = 64 * 1024
"""Least number of characters that are read from the file at once."""
SHOWN = 6
"""Greatest number of members that the description of a file names."""


class BadImport(GestaError):
    """The error about a file that cannot be imported."""

    def __init__(
        self, path: str, found: str, todo: str = "Nothing of it was imported.", *, large: bool = False
    ) -> None:
        super().__init__(f"Cannot import {path!r}: {found}. {todo}")
        self.found = found
        self.large = large
        """Whether the only reason is that the file, or a value in it, is larger than a bound."""


class ImportBounds(Struct, frozen=True, kw_only=True):
    """The greatest size of a file to import, and of one value in it. A packed file may be far larger than it seems."""

    value: int = 64 * 2**20
    """Greatest number of characters of one JSON value, or of bytes of one line or one member of a zip archive. This
    much is in memory at once."""
    file: int = 16 * 2**30
    """Greatest unpacked size of the file in bytes."""

    def passed(self, path: str, what: str, name: str) -> BadImport:
        """Return the error for something that is larger than a bound.

        Args:
            path: path of the file.
            what: what is too large, in words for the message, such as `one value of it`.
            name: the bound, `value` or `file`.
        """
        return BadImport(
            path,
            f"{what} has more than {getattr(self, name):,} {'bytes' if name == 'file' else 'characters'}",
            f"Raise it if that is meant: gesta import --largest-{name} N, or ImportBounds({name}=N).",
            large=True,
        )


class Piece(NamedTuple):
    """One value of a JSON document: a member of its object, or an element of a list."""

    key: str
    """Name of the member that is the value or contains it; `""` if the document itself is the list."""
    place: int | None
    """Number of the element in its list, from 0; `None` if the value is a member and no element."""
    value: Any

    @property
    def path(self) -> str:
        """Where the value is in the document, as in `$.simulations[3]`."""
        member = f".{self.key}" if self.key.isidentifier() else f"[{self.key[:40]!r}]" if self.key else ""
        return f"${member}" + ("" if self.place is None else f"[{self.place}]")


class Look(Struct, frozen=True):
    """A description of the beginning of a file, from which the file's format is recognised."""

    form: str
    """`object`, `list` (described by its first element), `zip`, or `other`."""
    keys: tuple[str, ...]
    """Names of the members of the first object, as far as it was read. For a line `{"path", "data"}` they are the
    members of `data`, for a zip archive the names of its files."""
    found: str
    """The form and the members in words, for an error message."""


class Reader:
    """Reads the JSON values of one file from a position that moves forward."""

    def __init__(self, path: str, file: IO[bytes], bounds: ImportBounds) -> None:
        self._path, self._bounds = path, bounds
        # Bytes that are not UTF-8 become lone surrogates, which a record keeps exactly.
        self._text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
        self._buffer, self._at, self._over = "", 0, False

    def peek(self) -> str:
        """Return the next character that is not white space, without moving past it; `""` at the end of the file."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._buffer) or not self._more():
                return self._buffer[self._at : self._at + 1]

    def take(self, character: str) -> bool:
        """Move past a character if it comes next (after any white space). Return whether it did."""
        found = self.peek() == character
        self._at += found
        return found

    def value(self, path: str) -> Any:
        """Return the next JSON value, and move past it. Cost: at most three times that of parsing a text in memory.

        Args:
            path: where the value is in the document, for an error.

        Raises:
            BadImport: the value is not JSON, is nested too deeply, or is longer than `ImportBounds.value` characters.
        """
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._buffer, self._at)
            except RecursionError:
                raise BadImport(self._path, f"{path} is nested too deeply") from None
            except json.JSONDecodeError as error:
                if self._more():
                    continue
                raise BadImport(self._path, f"{path} is not JSON: {error.msg}") from None
            if end == len(self._buffer) and isinstance(value, int | float) and self._more():
                continue  # more digits of the number may follow
            if end - self._at > self._bounds.value:
                raise self._bounds.passed(self._path, "one value of it", "value")
            self._at = end
            return value

    def line(self, path: str) -> Any:
        """Return the next JSON value, and move past it; as `value`, but for files that have each value on one line.

        For a value on one line it is faster than `value`. For any other value it takes at most twice as long.
        """
        self.peek()
        while (end := self._buffer.find("\n", self._at)) < 0 and self._more():
            pass
        try:
            value = fast.decode(self._buffer[self._at : end if end >= 0 else None])
        except NOT_EXACT:
            return self.value(path)
        self._at = end if end >= 0 else len(self._buffer)
        return value

    def elements(self, key: str) -> Iterator[Piece]:
        """Yield the elements of a list, whose opening bracket was just read.

        Args:
            key: name of the member that is the list; `""` if the document is the list.

        Raises:
            BadImport: the list is not JSON.
        """
        if self.take("]"):
            return
        piece = Piece(key, 0, None)
        while piece.place == 0 or self._comma(Piece(key, None, None).path, "]"):
            yield piece._replace(value=self.value(piece.path))
            piece = Piece(key, (piece.place or 0) + 1, None)

    def members(self, streamed: str | None = None) -> Iterator[Piece]:
        """Yield the members of an object, whose opening brace was just read. Raises BadImport.

        Args:
            streamed: name of a member. If its value is a list, its elements are yielded one by one.
        """
        for key in self.keys():
            if key == streamed and self.take("["):
                yield from self.elements(key)
            else:
                yield Piece(key, None, self.value(Piece(key, None, None).path))

    def keys(self) -> Iterator[str]:
        """Yield the names of the members of an object, whose opening brace was just read. Raises BadImport.

        The caller must read the value of each member before it asks for the next name.
        """
        if self.take("}"):
            return
        more = True
        while more:
            key = self.value("$")
            if not isinstance(key, str) or not self.take(":"):
                raise BadImport(self._path, f"$ is no JSON: {self.shown()} where a member was due")
            yield key
            more = self._comma("$", "}")

    def look(self, marks: Collection[tuple[str, ...]]) -> Look:
        """Describe the value that comes next, so that its format can be recognised.

        Args:
            marks: sets of member names. Reading stops after the first set that is complete.
        """
        if not self.peek():
            return Look("other", (), "an empty file")
        form, words = ("list", "a JSON list of objects") if self.take("[") else ("object", "a JSON object")
        if not self.take("{"):
            return Look("other", (), "a JSON list, not of objects" if form == "list" else self.shown())
        keys: list[str] = []
        for key in self.keys():
            if keys == ["path"] and key == "data" and self.peek() == "{":
                return self.look(marks)
            keys.append(key)
            if any(key in mark and set(mark).issubset(keys) for mark in marks):  # its value may be most of the file
                break
            self.value(Piece(key, None, None).path)
        return Look(form, tuple(keys), f"{words} with {listed(keys)}")

    def shown(self) -> str:
        """Return a phrase for an error message about the next characters, such as `text that begins 'abc'`."""
        return f"text that begins {self._buffer[self._at : self._at + 40]!r}" if self.peek() else "the end of the file"

    def _comma(self, path: str, end: str) -> bool:
        if self.take(","):
            return True
        if self.take(end):
            return False
        raise BadImport(self._path, f"{path} is not JSON: {self.shown()} where ',' or {end!r} was due")

    def _more(self) -> bool:
        """Read more text into the buffer, and return whether there was any.

        A call reads about as much text as is still unparsed, so that a long value is parsed only a few times.
        """
        if self._over:
            return False
        rest = self._buffer[self._at :]
        if len(rest) > self._bounds.value:
            raise self._bounds.passed(self._path, "one value of it", "value")
        chunk = self._text.read(max(CHUNK, min(len(rest), self._bounds.value + 1 - len(rest))))
        self._buffer, self._at, self._over = rest + chunk, 0, not chunk
        return bool(chunk)


def listed(keys: Sequence[str]) -> str:
    """Return a phrase that names at most `SHOWN` members, such as `the members 'id', 'messages'`."""
    named = ", ".join(repr(key[:40]) for key in keys[:SHOWN]) + (", …" if len(keys) > SHOWN else "")
    return f"the members {named}" if keys else "no members"
