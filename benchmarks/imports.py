"""Measures the cost of importing recorded conversations, compared with `json.loads` of the same files and with a floor.

Run `python -m benchmarks.imports [FOLDER…]` with folders of the corpus; by default all. Times are CPU time, so compare
the ratios. The floor encodes, hashes and inserts the same entries as rows of a plain table, one conversation at a time.
"""

import gzip
import hashlib
import io
import json
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
import apsw
import msgspec
from msgspec import Struct

import gesta
from benchmarks._corpus_folder import corpus_at
from benchmarks.corpus import reason
from gesta.errors import GestaError
from gesta.importers.file import import_file
from gesta.importers.known import find_format
from gesta.importers.source import Source

TABLE = (
    "CREATE TABLE rows (run TEXT, seq INTEGER, kind TEXT, span INTEGER, content TEXT, digest BLOB, UNIQUE (run, seq))"
)


class Cost(Struct):
    """The cost of importing some files."""

    name: str
    mb: float = 0
    """Size of the files before compression, in MB."""
    loads_s: float = 0
    floor_s: float = 0
    import_s: float = 0
    entries: int = 0
    record_mb: float = 0

    @property
    def over(self) -> float:
        """Number of bytes per entry that the record has beyond 1.05 times the files."""
        return (self.record_mb - 1.05 * self.mb) * 1e6 / max(self.entries, 1)


def texts(path: Path) -> list[bytes]:
    """Return the decompressed data of a file; of an archive, the data of each member."""
    data = path.read_bytes()
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            return [archive.read(info) for info in archive.infolist() if not info.is_dir()]
    if path.suffix == ".zst":
        import zstandard  # type: ignore[import-not-found, unused-ignore]

        unpacking = zstandard.ZstdDecompressor(max_window_size=2**27)
        return [unpacking.stream_reader(io.BytesIO(data), read_across_frames=True).read()]
    return [gzip.decompress(data) if path.suffix == ".gz" else data]


def loads(data: bytes) -> None:
    """Decode a JSON document, or one document a line."""
    try:
        json.loads(data)
    except ValueError:
        for line in data.splitlines():
            if line.strip():
                json.loads(line)


def floor(path: Path, folder: str) -> float:
    """Return the CPU seconds for writing the same entries to a plain table."""
    source = Source(path)
    read = find_format(source).read
    assert read is not None
    every = [foreign.entries for foreign in read(source, Counter())]
    db = apsw.Connection(str(Path(folder) / "floor.db"))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("DROP TABLE IF EXISTS rows")
    db.execute(TABLE)
    encoder, began = msgspec.json.Encoder(enc_hook=repr), time.process_time()
    for number, entries in enumerate(every):
        rows, digest = [], b""
        for seq, entry in enumerate(entries, 1):
            try:
                content = encoder.encode(entry.content)
            except (TypeError, ValueError, UnicodeError):
                content = repr(entry.content).encode("utf-8", "backslashreplace")
            digest = hashlib.sha256(digest + hashlib.sha256(content).digest()).digest()
            rows.append((str(number), seq, str(entry.content.kind), entry.span, content.decode(), digest))
        with db:
            db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", rows)
    return time.process_time() - began


async def taken(path: Path, address: str) -> tuple[float, int]:
    """Import a file. Return the CPU seconds and the number of entries."""
    async with gesta.open(address, durability="normal") as record:
        began = time.process_time()
        done = await import_file(record, path)
        return time.process_time() - began, done.entries


def cost(root: Path, name: str) -> Cost:
    """Measure the files of a folder."""
    found = Cost(name)
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((root / name).rglob("*")):
            if not path.is_file() or reason(path.relative_to(root).as_posix()) is not None:
                continue
            data = texts(path)
            began = time.process_time()
            for each in data:
                loads(each)
            found.loads_s += time.process_time() - began
            found.mb += sum(map(len, data)) / 1e6
            found.floor_s += floor(path, folder)
            seconds, entries = anyio.run(taken, path, str(Path(folder) / "corpus.gesta"))
            found.import_s, found.entries = found.import_s + seconds, found.entries + entries
        found.record_mb = sum(path.stat().st_size for path in Path(folder).glob("corpus.gesta*")) / 1e6
    return found


def row(one: Cost) -> str:
    """Return one line of the table."""
    by_loads, by_floor = (one.import_s / max(each, 1e-9) for each in (one.loads_s, one.floor_s))
    us = one.import_s / max(one.entries, 1) * 1e6
    figures = f"{one.mb:8.1f} {one.entries:9,} {us:10.0f} {by_loads:9.1f} {by_floor:9.1f} {one.over:9.0f}"
    return f"{one.name:20} {figures}"


def main(words: Sequence[str] | None = None) -> int:
    """Measure the folders, and print the table."""
    root = corpus_at(None)
    if root is None:
        return 0
    names = list(sys.argv[1:] if words is None else words) or sorted(path.name for path in root.glob("*/"))
    print(f"{'folder':20} {'MB':>8} {'entries':>9} {'us/entry':>10} {'x loads':>9} {'x floor':>9} {'B over':>9}")
    total = Cost("all")
    for name in names:
        try:
            one = cost(root, name)
        except (GestaError, ImportError) as error:
            print(f"{name}: {error}")
            continue
        if one.entries:
            print(row(one), flush=True)
        for field in ("mb", "loads_s", "floor_s", "import_s", "entries", "record_mb"):
            setattr(total, field, getattr(total, field) + getattr(one, field))
    print(row(total))
    print("wanted: at most 15 x loads, 2.5 x floor, and 160 B an entry beyond 1.05 x the files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
