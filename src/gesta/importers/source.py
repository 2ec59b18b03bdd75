"""A file that is read in: unpacked on the way, as lines or as JSON values, one at a time.

Nothing is known of what is inside, and nothing is trusted. A JSON document is read piece by piece, so that a file of a
thousand conversations takes the memory of one; a zip archive is read member by member, and no member is written
to disk. Whatever is wrong with the file is one error, `BadImport`, which says where.
"""

import gzip
import io
import json
import os
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from msgspec import Struct

from gesta.errors import GestaError, MissingExtra
from gesta.importers.unpacked import DECODER, Counted

try:
    import zstandard  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    zstandard = None  # type: ignore[assignment, unused-ignore]

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
"""How members of a zip archive may be packed. None of these ways needs more memory than the unpacked text."""
OTHER_METHODS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
CHUNK = 64 * 1024
"""Characters that are read at once, at least."""
PACKED = {"path", "data"}
"""Members of a line that holds a document of its own."""
SHOWN = 6
"""Members that a description of a file names."""
ZSTD_DAMAGED = () if zstandard is None else (zstandard.ZstdError,)
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, *ZSTD_DAMAGED)
"""What unpackers raise."""


class BadImport(GestaError):
    """A file cannot be read in."""

    def __init__(
        self, path: str, found: str, todo: str = "Nothing of it was imported.", *, large: bool = False
    ) -> None:
        super().__init__(f"Cannot import {path!r}: {found}. {todo}")
        self.found = found
        self.large = large
        """Whether it is only larger than a bound."""


class ImportBounds(Struct, frozen=True, kw_only=True):
    """How much of a file is taken in; packed, it looks far smaller."""

    value: int = 64 * 2**20
    """Characters of one JSON value, bytes of one line or of one member of a zip archive: what is in memory at once."""
    file: int = 16 * 2**30
    """Bytes of the file, unpacked."""

    def passed(self, path: str, what: str, name: str) -> BadImport:
        """Make the error of what is larger than one of them."""
        return BadImport(
            path,
            f"{what} has more than {getattr(self, name):,} {'bytes' if name == 'file' else 'characters'}",
            f"Raise it if that is meant: gesta import --largest-{name} N, or ImportBounds({name}=N).",
            large=True,
        )


class Piece(NamedTuple):
    """One value of a JSON document."""

    key: str
    """The member that it is, or is an element of; empty for an element of the document itself."""
    place: int | None
    """Its place in that list, from 0; `None` for a whole member."""
    value: Any

    @property
    def path(self) -> str:
        """Where it stands, as in `$.simulations[3]`."""
        member = f".{self.key}" if self.key.isidentifier() else f"[{self.key[:40]!r}]" if self.key else ""
        return f"${member}" + ("" if self.place is None else f"[{self.place}]")


class Document(NamedTuple):
    """One of the JSON documents that a file holds, one after the other."""

    path: str
    """Its own name, where the file packs many as lines `{"path", "data"}` or as a zip archive; else empty."""
    place: int
    """Its place in the file, from 0."""
    value: Any


class Look(Struct, frozen=True):
    """What a file looks like from its beginning."""

    form: str
    """`object`, `list` (of its first element), `zip`, or `other`."""
    keys: tuple[str, ...]
    """Members of that object, until one of those that were looked for was whole; of a pack, those of its data; of a
    zip archive its members, all of them."""
    found: str
    """The same in words."""


class Source:
    """A file that is opened as often as it is read."""

    def __init__(self, path: str | os.PathLike[str], bounds: ImportBounds = ImportBounds()) -> None:  # noqa: B008
        self.path, self.bounds = os.fspath(path), bounds
        self.name = Path(self.path).name
        """Its name, without folders."""
        self._size = 0
        self._packed: Counted | None = None

    @property
    def size(self) -> int:
        """How many bytes it has, unpacked; of a file that is being unpacked, those that were read so far."""
        return self._size if self._packed is None else self._packed.size

    @property
    def stem(self) -> str:
        """Its name without the endings that say how it is packed and written."""
        stem = self.name
        for ending in (".gz", ".zst", ".json", ".jsonl", ".ndjson", ".eval"):
            stem = stem.removesuffix(ending) or stem
        return stem

    def lines(self) -> Iterator[bytes]:
        """Yield its lines, without their ends."""
        with self._opened() as file:
            while line := file.readline(self.bounds.value + 2):
                if len(line := line.rstrip(b"\r\n")) > self.bounds.value:
                    raise self.bounds.passed(self.path, "a line of it", "value")
                yield line

    def pieces(self, streamed: str | None = None) -> Iterator[Piece]:
        """Yield the elements of its one list, or the members of its one object.

        Args:
            streamed: name of a member; if it is a list, its elements are given one by one.

        Raises:
            BadImport: it is not JSON, or something follows that one value.
        """
        with self._opened() as file:
            reader = _Reader(self.path, file, self.bounds)
            if reader.take("["):
                yield from reader.elements("")
            elif reader.take("{"):
                yield from reader.members(streamed)
            else:
                yield Piece("", None, reader.value("$"))
            if reader.peek():
                raise BadImport(self.path, f"{reader.peek()!r} follows the end of its JSON document")

    def documents(self) -> Iterator[Document]:
        """Yield its documents, one after the other: JSON lines, a single document, or a pack of many.

        Raises:
            BadImport: it is not JSON; the documents before that place were given.
        """
        with self._opened() as file:
            reader = _Reader(self.path, file, self.bounds)
            place = 0
            while reader.peek():
                value, path = reader.value(f"document {place + 1}"), ""
                if isinstance(value, dict) and value.keys() == PACKED and isinstance(value["path"], str):
                    value, path = value["data"], value["path"]
                yield Document(path, place, value)
                place += 1

    def names(self) -> tuple[str, ...]:
        """Return the names of a zip archive's members, in order, each once; empty for other files. Raises BadImport."""
        with self._archive() as archive:
            names = [] if archive is None else [name for name in archive.namelist() if not name.endswith("/")]
        return tuple(dict.fromkeys(names))

    def members(self, names: Iterable[str], *, together: bool = False) -> Iterator[Document]:
        """Yield members of a zip archive, each a JSON document; of two with one name it is the last.

        Args:
            together: whether they will be held at once, so that all have no more room than one.

        Raises:
            BadImport: one is not JSON or cannot be unpacked; those before it were given.
        """
        size = 0
        with self._archive() as archive:
            assert archive is not None
            for place, name in enumerate(names):
                size = archive.getinfo(name).file_size + (size if together else 0)
                if size > self.bounds.value:
                    raise self.bounds.passed(self.path, f"its member {name!r}, with what is read beside it,", "value")
                yield Document(name, place, self._member(archive, name))

    def look(self, marks: Collection[tuple[str, ...]]) -> Look:
        """Look at its beginning, until all members of one of `marks` were met."""
        if names := self.names():
            return Look("zip", names, f"a zip archive with {_listed(names)}")
        with self._opened() as file:
            reader = _Reader(self.path, file, self.bounds)
            try:
                return reader.look(marks)
            except BadImport as error:
                if error.large:
                    raise
                return Look("other", (), f"what begins like JSON, but {error.found}")

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        try:
            with Path(self.path).open("rb") as plain:
                magic = plain.read(4)
                plain.seek(0)
                self._size = os.fstat(plain.fileno()).st_size
                if self._size > self.bounds.file:
                    raise self.bounds.passed(self.path, "it", "file")
                with self._unpacked(plain, magic) as file:
                    yield file
        except DAMAGED as error:
            raise BadImport(self.path, f"its packing is damaged or cut off: {error}") from error
        except OSError as error:
            raise BadImport(self.path, str(error.strerror or error)) from error

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile | None]:
        with self._opened() as file:
            if not file.seekable() or file.read(4) not in ZIP:
                yield None
                return
            try:
                archive = zipfile.ZipFile(file)
            except (RuntimeError, ValueError, OverflowError) as error:  # what it raises for some that are damaged
                raise zipfile.BadZipFile(str(error)) from error
            if sum(info.compress_size for info in archive.infolist()) > Path(self.path).stat().st_size:
                raise zipfile.BadZipFile("its members overlap")
            self._size = sum(info.file_size for info in archive.infolist())
            if self._size > self.bounds.file:
                raise self.bounds.passed(self.path, "all that is packed in it", "file")
            yield archive

    def _member(self, archive: zipfile.ZipFile, name: str) -> Any:
        info = archive.getinfo(name)
        if info.compress_type not in METHODS:
            method = f"{OTHER_METHODS.get(info.compress_type, 'unknown')}, method {info.compress_type}"
            todo = f"Only {' and '.join(METHODS.values())} members are read; pack it anew so."
            raise BadImport(self.path, f"its member {name!r} is packed with {method}", todo)
        try:
            with archive.open(info) as file:
                reader = _Reader(self.path, file, self.bounds)
                value = reader.value(name)
                if reader.peek():
                    raise BadImport(self.path, f"{reader.peek()!r} follows the end of {name!r}")
        except (RuntimeError, UnicodeDecodeError) as error:  # encrypted, of a later kind, or of a damaged name
            raise BadImport(self.path, f"its member {name!r} cannot be unpacked: {error}") from error
        return value

    def _unpacked(self, plain: IO[bytes], magic: bytes) -> IO[bytes]:
        if magic.startswith(GZIP):
            return self._counted(cast("IO[bytes]", gzip.GzipFile(fileobj=plain)))
        if not magic.startswith(ZSTD):
            return plain
        if zstandard is None:
            raise MissingExtra(f"Reading {self.path!r}, which is packed with zstd,", "zstandard", "zstd")
        unpacking = zstandard.ZstdDecompressor(max_window_size=2**27)
        return self._counted(unpacking.stream_reader(plain, read_across_frames=True))

    def _counted(self, file: IO[bytes]) -> IO[bytes]:
        failure = self.bounds.passed(self.path, "what is packed in it", "file")
        self._packed = Counted(file, self.bounds.file, failure)
        return self._packed.buffered()


class _Reader:
    """JSON values out of a stream of text."""

    def __init__(self, path: str, file: IO[bytes], bounds: ImportBounds) -> None:
        self._path, self._bounds = path, bounds
        # Bytes that are no UTF-8 become lone surrogates, which a record keeps exactly.
        self._text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
        self._buffer, self._at, self._over = "", 0, False

    def peek(self) -> str:
        """Return the next character that is no white space; empty at the end."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._buffer) or not self._more():
                return self._buffer[self._at : self._at + 1]

    def take(self, character: str) -> bool:
        """Go past a character, if it is the next."""
        found = self.peek() == character
        self._at += found
        return found

    def value(self, path: str) -> Any:
        """Read one value. Cost: at most three times that of reading it at once."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._buffer, self._at)
            except RecursionError:
                raise BadImport(self._path, f"{path} is nested too deeply") from None
            except json.JSONDecodeError as error:
                if self._more():
                    continue
                raise BadImport(self._path, f"{path} is no JSON: {error.msg}") from None
            if end == len(self._buffer) and isinstance(value, int | float) and self._more():
                continue  # a number may go on
            if end - self._at > self._bounds.value:
                raise self._bounds.passed(self._path, "one value of it", "value")
            self._at = end
            return value

    def elements(self, key: str) -> Iterator[Piece]:
        """Read a list whose bracket was taken."""
        if self.take("]"):
            return
        piece = Piece(key, 0, None)
        while piece.place == 0 or self._comma(Piece(key, None, None).path, "]"):
            yield piece._replace(value=self.value(piece.path))
            piece = Piece(key, (piece.place or 0) + 1, None)

    def members(self, streamed: str | None = None) -> Iterator[Piece]:
        """Read an object whose brace was taken."""
        for key in self.keys():
            if key == streamed and self.take("["):
                yield from self.elements(key)
            else:
                yield Piece(key, None, self.value(Piece(key, None, None).path))

    def keys(self) -> Iterator[str]:
        """Read the names of an object whose brace was taken; each value is to be read before the next name."""
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
        """Look at what begins here."""
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
            if any(key in mark and set(mark).issubset(keys) for mark in marks):  # its value may be all there is
                break
            self.value(Piece(key, None, None).path)
        return Look(form, tuple(keys), f"{words} with {_listed(keys)}")

    def shown(self) -> str:
        """Describe what stands here."""
        return f"text that begins {self._buffer[self._at : self._at + 40]!r}" if self.peek() else "the end of the file"

    def _comma(self, path: str, end: str) -> bool:
        if self.take(","):
            return True
        if self.take(end):
            return False
        raise BadImport(self._path, f"{path} is no JSON: {self.shown()} where ',' or {end!r} was due")

    def _more(self) -> bool:
        """Read on: as much again as is waiting, so that a long value is not tried too often."""
        if self._over:
            return False
        rest = self._buffer[self._at :]
        if len(rest) > self._bounds.value:
            raise self._bounds.passed(self._path, "one value of it", "value")
        chunk = self._text.read(max(CHUNK, min(len(rest), self._bounds.value + 1 - len(rest))))
        self._buffer, self._at, self._over = rest + chunk, 0, not chunk
        return bool(chunk)


def _listed(keys: Sequence[str]) -> str:
    """Name members, but not too many."""
    named = ", ".join(repr(key[:40]) for key in keys[:SHOWN]) + (", …" if len(keys) > SHOWN else "")
    return f"the members {named}" if keys else "no members"
