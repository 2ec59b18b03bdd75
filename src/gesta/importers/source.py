"""A file to import. It is unpacked while it is read: line by line, or one JSON value at a time.

The content is not trusted. A JSON document is read piece by piece, so a file with a thousand conversations needs the
memory of one. A zip archive is read member by member, and no member is written to disk. Every error in the file raises
`BadImport`, which names the place of the error.
"""

import gzip
import io
import os
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from msgspec import json as fast

from gesta.errors import MissingExtra
from gesta.importers.reader import BadImport, ImportBounds, Look, Piece, Reader, listed
from gesta.importers.unpacked import NOT_EXACT, Counted

try:
    import zstandard  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    zstandard = None  # type: ignore[assignment, unused-ignore]

__all__ = ["BadImport", "Document", "ImportBounds", "Piece", "Source"]

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
ZIP_ZSTD = 93
"""The number of zstd among the compression methods of zip, which Python knows from 3.14 on."""
METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated", ZIP_ZSTD: "zstd"}
"""The compression methods that are allowed in a zip archive. They need little more memory than the unpacked text."""
OTHER_METHODS = {9: "deflate64", 12: "bzip2", 14: "lzma", 95: "xz"}
AT_ONCE = 16 * 2**20
"""Greatest unpacked size in bytes of a file that is read into memory as a whole, which is faster."""
PACKED = {"path", "data"}
"""The members of a line that packs a named JSON document."""
ZSTD_DAMAGED = () if zstandard is None else (zstandard.ZstdError,)
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, *ZSTD_DAMAGED)
"""The exceptions that are raised for a damaged or incomplete packed file."""


class Document(NamedTuple):
    """One JSON document of a file that may hold many."""

    path: str
    """Name of the document, if the file is a zip archive or packs documents as lines `{"path", "data"}`; else `""`."""
    place: int
    """Number of the document in the file, from 0."""
    value: Any


class Source:
    """A file to import. It is opened again for each reading."""

    def __init__(self, path: str | os.PathLike[str], bounds: ImportBounds = ImportBounds()) -> None:  # noqa: B008
        self.path, self.bounds = os.fspath(path), bounds
        self.name = Path(self.path).name
        """Name of the file, without its folders."""
        self._size = 0
        self._packed: Counted | None = None
        self._whole: Any = None
        self._tried = False

    @property
    def size(self) -> int:
        """Unpacked size of the file in bytes. While the file is being unpacked, it is the number of bytes so far."""
        return self._size if self._packed is None else self._packed.size

    @property
    def stem(self) -> str:
        """Name of the file without endings such as `.gz`, `.jsonl` or `.eval`."""
        stem = self.name
        for ending in (".gz", ".zst", ".json", ".jsonl", ".ndjson", ".eval"):
            stem = stem.removesuffix(ending) or stem
        return stem

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the file without their line ends, and without a byte order mark. Raises BadImport."""
        mark = BOM_UTF8
        with self._opened() as file:
            while line := file.readline(self.bounds.value + 2):
                if len(line := line.rstrip(b"\r\n").removeprefix(mark)) > self.bounds.value:
                    raise self.bounds.passed(self.path, "a line of it", "value")
                yield line
                mark = b""

    def begins(self, mark: bytes) -> bool:
        """Return whether the unpacked file begins with these bytes. Raises BadImport."""
        with self._opened() as file:
            return file.read(len(mark)) == mark

    def pieces(self, streamed: str | None = None) -> Iterator[Piece]:
        """Yield the elements of the file if it is one JSON list, or the members if it is one JSON object.

        Args:
            streamed: name of a member. If the value of this member is a list, its elements are yielded one by one.

        Raises:
            BadImport: the file is not JSON, or more text follows the value.
        """
        if isinstance(whole := self._at_once(), list | dict):
            yield from _pieces(whole, streamed)
            return
        with self._opened() as file:
            reader = Reader(self.path, file, self.bounds)
            if reader.take("["):
                yield from reader.elements("")
            elif reader.take("{"):
                yield from reader.members(streamed)
            else:
                yield Piece("", None, reader.value("$"))
            if reader.peek():
                raise BadImport(self.path, f"{reader.peek()!r} follows the end of its JSON document")

    def documents(self) -> Iterator[Document]:
        """Yield the JSON documents of the file one by one. The file may be JSON lines, or a single document.

        A line `{"path", "data"}` packs a named document, which is its `data`.

        Raises:
            BadImport: the file is not JSON. The documents before the error have been yielded.
        """
        with self._opened() as file:
            reader = Reader(self.path, file, self.bounds)
            place = 0
            while reader.peek():
                value, path = reader.line(f"document {place + 1}"), ""
                if isinstance(value, dict) and value.keys() == PACKED and isinstance(value["path"], str):
                    value, path = value["data"], value["path"]
                yield Document(path, place, value)
                place += 1

    def names(self) -> tuple[str, ...]:
        """Return the names of the members of a zip archive in order, without repetition.

        Return `()` for any other file.

        Raises BadImport.
        """
        with self._archive() as archive:
            names = [] if archive is None else [name for name in archive.namelist() if not name.endswith("/")]
        return tuple(dict.fromkeys(names))

    def members(self, names: Iterable[str], *, together: bool = False) -> Iterator[Document]:
        """Yield members of a zip archive as JSON documents. If two members have the same name, the last one is used.

        Args:
            names: the members to read.
            together: whether the caller keeps all these members in memory. Then the greatest size of one member,
                `bounds.value`, is also the greatest sum of their sizes.

        Raises:
            BadImport: a member is not JSON or cannot be unpacked. The members before it have been yielded.
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
        """Return a description of the beginning of the file, from which its format is recognised.

        Args:
            marks: sets of member names. Reading stops as soon as all names of one set were found.
        """
        if names := self.names():
            return Look("zip", names, f"a zip archive with {listed(names)}")
        with self._opened() as file:
            reader = Reader(self.path, file, self.bounds)
            try:
                return reader.look(marks)
            except BadImport as error:
                if error.large:
                    raise
                return Look("other", (), f"what begins like JSON, but {error.found}")

    def _at_once(self) -> Any:
        """Return the value of a small file; `None` if the file is large, or if the fast decoder cannot read it.

        The value is kept in memory, because callers read a file several times.
        """
        most = min(AT_ONCE, self.bounds.value)
        if not self._tried:
            self._tried = True
            with self._opened() as file:
                data = file.read(most + 1)
            with suppress(*NOT_EXACT):
                self._whole = fast.decode(data.removeprefix(BOM_UTF8)) if len(data) <= most else None
        return self._whole

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
            except (RuntimeError, ValueError, OverflowError) as error:  # raised for some damaged archives
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
            todo = f"Only {', '.join(METHODS.values())} members are read; pack it anew so."
            raise BadImport(self.path, f"its member {name!r} is packed with {method}", todo)
        try:
            with self._opened_member(archive, info) as file:
                reader = Reader(self.path, file, self.bounds)
                value = reader.value(name)
                if reader.peek():
                    raise BadImport(self.path, f"{reader.peek()!r} follows the end of {name!r}")
        except (RuntimeError, UnicodeDecodeError) as error:  # encrypted, an unknown method, or a damaged name
            raise BadImport(self.path, f"its member {name!r} cannot be unpacked: {error}") from error
        return value

    def _opened_member(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
        if info.compress_type != ZIP_ZSTD:
            return archive.open(info)
        packed = copy(info)
        packed.compress_type, packed.file_size = zipfile.ZIP_STORED, info.compress_size
        del packed.CRC  # that of the unpacked bytes
        with archive.open(packed) as file:
            data = self._zstd(file).read(info.file_size + 1)
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise zipfile.BadZipFile(f"Bad size or CRC-32 for file {info.filename!r}")
        return io.BytesIO(data)

    def _unpacked(self, plain: IO[bytes], magic: bytes) -> IO[bytes]:
        if magic.startswith(GZIP):
            return self._counted(cast("IO[bytes]", gzip.GzipFile(fileobj=plain)))
        if not magic.startswith(ZSTD):
            return plain
        return self._counted(self._zstd(plain))

    def _zstd(self, packed: IO[bytes]) -> IO[bytes]:
        if zstandard is None:
            raise MissingExtra(f"Reading {self.path!r}, which is packed with zstd,", "zstandard", "zstd")
        unpacking = zstandard.ZstdDecompressor(max_window_size=2**27)
        return cast("IO[bytes]", unpacking.stream_reader(packed, read_across_frames=True))

    def _counted(self, file: IO[bytes]) -> IO[bytes]:
        failure = self.bounds.passed(self.path, "what is packed in it", "file")
        self._packed = Counted(file, self.bounds.file, failure)
        return self._packed.buffered()


def _pieces(whole: Any, streamed: str | None) -> Iterator[Piece]:
    """Yield the elements of a list or the members of an object that is in memory, as `Source.pieces` does."""
    for key, value in [("", whole)] if isinstance(whole, list) else whole.items():
        if isinstance(value, list) and key == (streamed if whole is not value else key):
            yield from (Piece(key, place, each) for place, each in enumerate(value))
        else:
            yield Piece(key, None, value)
