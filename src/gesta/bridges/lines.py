"""The lines of Gesta's own JSON lines, and a reader that checks every one of them.

    {"gesta": 1, "record": id}                              once, first
    {"run", "head", "digest"}                               each run: where it will end
    {"run", "blob", "salt", "text" or "base64"}             a large value, before the entry that needs it
    {"run", "seq", "kind", "at", "span", "causes", "version", "content", "annotations", "salt", "digest"}

`causes`, `content` and `annotations` are written byte for byte as they are stored. They are JSON, so people and jq can
read them, and the digests stay valid. A program that reformats the lines breaks the digests. No digest covers the id in
the first line; it only names the exported record.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from gesta.codec.blobs import intact
from gesta.codec.chain import verify
from gesta.codec.rows import blob_names, from_row
from gesta.entry import GENESIS, Entry, Row, utc_text
from gesta.errors import BrokenRecord, NewerRecord
from gesta.importers.source import BadImport, Source
from gesta.kinds import BeginContent
from gesta.store import BlobRow

FORMAT = 1
"""Version of the format of the lines. Each entry has its own version too."""
HEADLESS = 'the first line is not {"gesta": 1, "record": …}'


class Header(Struct, forbid_unknown_fields=True):
    """The first line of an export."""

    gesta: int
    record: str
    """Id of the exported record."""


class RunLine(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The line before the entries of a run.

    The line states the seq and digest of the run's last entry, so that a reader notices if the end was cut off.
    """

    run: str
    head: int
    """Seq of the last entry of the run in this file."""
    digest: str
    """Digest of the last entry, in hex."""
    after: int = 0
    """For a fork, the seq of the last entry that it shares with its base; otherwise 0."""
    before: str = ""
    """Digest of that base entry, in hex."""


class BlobLine(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A large value that entries refer to; its name is SHA-256(salt + data)."""

    run: str
    blob: str
    salt: str
    text: str | None = None
    base64: str | None = None
    """The data in base64, used instead of `text` if the bytes are not UTF-8."""


class EntryLine(Struct, forbid_unknown_fields=True):
    """The line of an entry. Its members are always in this order."""

    run: str
    seq: int
    kind: str
    at: str
    span: int
    causes: Raw
    version: int
    content: Raw
    annotations: Raw
    salt: str
    digest: str


class Checked(Struct, frozen=True):
    """An entry that was read and checked: its digest matches its content and the digest of the entry before it."""

    line: int
    """Number of its line in the file, from 1."""
    head: int
    """Seq of the last entry of its run in the file."""
    row: Row
    blobs: tuple[BlobRow, ...]
    """The large values whose lines come directly before this entry."""


class _Probe(Struct):
    """The members by which the kind of a line is recognised."""

    gesta: int | None = None
    head: int | None = None
    blob: str | None = None


_probe, _header = msgspec.json.Decoder(_Probe), msgspec.json.Decoder(Header)
_run, _blob, _entry = msgspec.json.Decoder(RunLine), msgspec.json.Decoder(BlobLine), msgspec.json.Decoder(EntryLine)


def checked(source: Source) -> Iterator[Checked]:
    """Yield the entries of a file in order, each one checked.

    Raises:
        BadImport: a line cannot be read, a byte was changed, or something is missing.
        NewerRecord: a later release of Gesta wrote the file.
    """
    return _Pass(source).entries()


class _Pass:
    """One reading of a file from its first line to its last, with the state of the run that is being read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._number = 0
        self._run = RunLine("", 0, "")
        self._seq, self._before = 0, GENESIS
        self._blobs: dict[str, BlobRow] = {}
        """Blobs that were read, but whose entry has not been read yet."""
        self._given: set[str] = set()
        """Names of the blobs (large values) that earlier entries of this run refer to."""
        self._runs: set[str] = set()
        self._begun = False

    def entries(self) -> Iterator[Checked]:
        for data in self._source.lines():
            self._number += 1
            try:
                found = self._take(data) if data.strip() else None
            except (msgspec.MsgspecError, BrokenRecord, ValueError, OverflowError, RecursionError) as error:
                what = f"{self._due()} cannot be read: {error.__cause__ or error}" if self._begun else HEADLESS
                raise self._wrong(what) from error
            if found is not None:
                yield found
        self._number += 1
        self._complete()
        if not self._begun:
            raise self._wrong("the file is empty")

    def _take(self, data: bytes) -> Checked | None:
        probe = _probe.decode(data)
        if probe.gesta is None and not self._begun:
            raise self._wrong(HEADLESS)
        if probe.gesta is not None:
            self._complete()
            self._begun = True
            if probe.gesta < 1:
                raise self._wrong(HEADLESS)
            if probe.gesta > FORMAT:
                raise NewerRecord(repr(self._source.path), probe.gesta, FORMAT)
            _header.decode(data)
        elif probe.head is not None:
            self._complete()
            self._open(_run.decode(data))
        elif probe.blob is not None:
            self._keep(_blob.decode(data))
        else:
            return self._check(_entry.decode(data))
        return None

    def _open(self, run: RunLine) -> None:
        if run.run in self._runs:
            raise self._wrong(f"run {run.run!r} comes a second time")
        if run.head <= run.after or run.after < 0:
            raise self._wrong(f"run {run.run!r} has no entries")
        self._runs.add(run.run)
        self._run, self._seq, self._given = run, run.after, set()
        self._before = bytes.fromhex(run.before) if run.after else GENESIS

    def _keep(self, line: BlobLine) -> None:
        if line.run != self._run.run:
            raise self._wrong(f"a blob of run {line.run!r}, where {self._due()} was due")
        if (line.text is None) == (line.base64 is None):
            raise self._wrong(f"blob {line.blob!r} has not one of text and base64")
        data = b64decode(line.base64, validate=True) if line.base64 is not None else (line.text or "").encode()
        salt = bytes.fromhex(line.salt)
        exact = salt.hex() == line.salt and line.base64 in (None, b64encode(data).decode())
        if not exact or not intact(line.blob, salt, data):
            raise self._wrong(f"blob {line.blob!r}, before {self._due()}, does not match its name")
        self._blobs[line.blob] = BlobRow(line.blob, salt, data)

    def _check(self, line: EntryLine) -> Checked:
        row = _stored(line)
        entry = f"entry {row.run}.{row.seq}"
        if (row.run, row.seq) != (self._run.run, self._seq + 1) or row.seq > self._run.head:
            raise self._wrong(f"{entry}, where {self._due()} was due")
        if not verify(row, self._before):
            raise self._wrong(f"{entry} ({row.kind}) does not match its digest {line.digest}")
        if row.seq == self._run.head and line.digest != self._run.digest:
            raise self._wrong(f"{entry} has digest {line.digest}, where its run should end with {self._run.digest}")
        names, blobs = set(blob_names(row)), {name: blob.data for name, blob in self._blobs.items()}
        if names - self._given - set(blobs):
            raise self._wrong(f"{entry} misses blob {min(names - self._given - set(blobs))!r}")
        if set(blobs) - names:
            raise self._wrong(f"{entry} does not need blob {min(set(blobs) - names)!r}")
        if names <= set(blobs):  # a blob that came long before is no longer in memory
            flaw = _flaw(from_row(row, blobs), row, self._run.after + 1)
            if flaw:
                raise self._wrong(f"{entry} {flaw}")
        found = Checked(self._number, self._run.head, row, tuple(self._blobs.values()))
        self._seq, self._before, self._blobs = row.seq, row.digest, {}
        self._given |= set(blobs)
        return found

    def _complete(self) -> None:
        """Raise BadImport if the run before the current line is not complete, or if a blob belongs to no entry."""
        if self._seq != self._run.head:
            raise self._wrong(f"{self._due()} is missing; the run goes on to {self._run.head}")
        if self._blobs:
            raise self._wrong(f"blob {min(self._blobs)!r} is needed by no entry")

    def _due(self) -> str:
        return f"entry {self._run.run}.{self._seq + 1}" if self._seq < self._run.head else "the next run"

    def _wrong(self, what: str) -> BadImport:
        return BadImport(self._source.path, f"line {self._number}: {what}")


def _stored(line: EntryLine) -> Row:
    salt, digest = bytes.fromhex(line.salt), bytes.fromhex(line.digest)
    if (salt.hex(), digest.hex()) != (line.salt, line.digest):
        raise ValueError("salt and digest are not in lower-case hex")
    causes, content = bytes(line.causes).decode(), bytes(line.content).decode()
    notes = None if bytes(line.annotations) == b"null" else bytes(line.annotations).decode()
    head = (line.run, line.seq, line.kind, line.at, line.span)
    return Row(*head, causes, line.version, content, notes, salt, digest)


def _flaw(entry: Entry, row: Row, first: int) -> str:
    """Return what is wrong with an entry whose digest is right but that Gesta would never write.

    The text is empty if nothing is wrong.

    Args:
        first: seq of the first entry of the run; of a fork, the first that it does not share with its base.
    """
    begins = isinstance(entry.content, BeginContent)
    opens = isinstance(entry.content, BeginContent) and entry.content.opened is not None
    own = [cause for cause in entry.causes if isinstance(cause, int)]
    flaws = {
        "is of another kind than its content": entry.kind != row.kind,
        "does not open its run": entry.seq == first and not opens,
        "opens its run a second time": entry.seq > first and opens,
        "has a time that is not written as in a record": utc_text(entry.at) != row.at,
        "lies in a span that is not there": not (entry.span == entry.seq if begins else 0 < entry.span < entry.seq),
        "has a cause that is not before it": not all(0 < cause < entry.seq for cause in own),
    }
    return next((flaw for flaw, found in flaws.items() if found), "")
