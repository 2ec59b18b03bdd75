"""The tests that every importer must pass, as the class `ImporterContract`. The name of each test is a sentence.

An importer turns a recorded conversation into the entries of a run. A span is a part of a run, from its begin to its
end. The causes of an entry are the entries from which it was made.
"""
# ruff: noqa: D102 - the name of a test is its sentence

import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from gesta.address import open_record
from gesta.entry import Entry
from gesta.formatters.tool_calls import ToolCalls
from gesta.importers.file import take
from gesta.importers.foreign import Foreign, plain_name
from gesta.importers.format import Format
from gesta.importers.source import BadImport, Source
from gesta.kinds import BeginContent, EndContent
from gesta.record.record import Record
from gesta.testing.formatter import answered

VALUES: tuple[Any, ...] = (
    None,
    True,
    7,
    -0.5,
    10**400,
    "",
    "half \ud800 a pair, \x00",
    [],
    [[]],
    {},
    {"id": 7},
    [None],
)
"""The values that replace other values in the changed copies of a sample."""
CHANGED = 40
"""Default for `ImporterContract.changed`."""


class ImporterContract:
    """The tests that every importer must pass. Subclass it and define `formats` and `samples`.

    A sample is a whole file. It should be small, and contain all features of the format.
    """

    changed = CHANGED
    """Greatest number of copies of a sample with changed values. Further copies, as many, have changed bytes."""

    def formats(self) -> Sequence[Format]:
        """Return the formats that the importer's entry point names."""
        raise NotImplementedError

    def samples(self) -> Mapping[str, bytes]:
        """Return the bytes of sample files by their names. Each file contains at least one conversation."""
        raise NotImplementedError

    def test_a_file_is_known_by_its_content(self) -> None:
        for _, source in self.sources():
            assert self.format_of(source) is not None, (
                f"{source.name!r} has no format here: it is {source.look([one.keys for one in self.formats()]).found}"
            )

    def test_a_conversation_has_a_name_an_agent_and_a_digest(self) -> None:
        for name, source in self.sources():
            every = self.read(source)
            assert every, f"{name!r} holds no conversation"
            for one in every:
                assert one.id and plain_name(one.id) == one.id, f"the id {one.id!r} is not a plain line"
                assert one.name and plain_name(one.name) == one.name, f"the name {one.name!r} is not a plain line"
                assert re.fullmatch("[0-9a-f]{64}", one.digest), f"the digest {one.digest!r} is not a SHA-256 in hex"
            assert len({one.id for one in every}) == len(every), "two conversations of one file have the same id"

    def test_reading_again_gives_the_same(self) -> None:
        for name, source in self.sources():
            one, again = self.read(source), self.read(source)
            assert [each.digest for each in one] == [each.digest for each in again], f"digests of {name!r} change"
            assert one == again, f"entries of {name!r} change from one reading to the next"

    def test_the_name_of_the_file_is_not_part_of_a_conversation(self) -> None:
        for _, source in self.sources():
            with tempfile.TemporaryDirectory() as folder:
                moved = Path(folder, f"moved-{source.name}")
                moved.write_bytes(Path(source.path).read_bytes())
                found = [one.digest for one in self.read(Source(moved))]
            assert found == [one.digest for one in self.read(source)], "a file that was moved would come in twice"

    def test_spans_nest_and_causes_point_back(self) -> None:
        for _, source in self.sources():
            for one in self.read(source):
                nested(one)

    def test_a_file_comes_in_once_and_verifies(self) -> None:
        for _, source in self.sources():
            runs = len(self.read(source))

            async def work(record: Record, source: Source = source, runs: int = runs) -> None:
                first, again = await self.take(record, source), await self.take(record, source)
                assert (first, again) == (runs, 0), f"{first} of {runs} runs were written, then {again} more"
                assert await record.verify() == [], "the record is not as it was written"

            self.on_record(work)

    def test_a_model_can_read_what_was_said(self) -> None:
        for _, source in self.sources():

            async def work(record: Record, source: Source = source) -> None:
                await self.take(record, source)
                for row in await record.store.runs():
                    entries: list[Entry] = await record.read(row.run)
                    messages = ToolCalls().format(entries, ToolCalls().start())
                    assert messages, f"nothing of conversation {row.session!r} is a message"
                    answered(messages)

            self.on_record(work)

    def test_no_value_breaks_it(self) -> None:
        for name, source in self.sources():
            self.harmless(name, changed_values(Path(source.path).read_bytes(), self.changed))

    def test_no_bytes_break_it(self) -> None:
        for name, source in self.sources():
            self.harmless(name, changed_bytes(Path(source.path).read_bytes(), self.changed))

    def sources(self) -> Iterator[tuple[str, Source]]:
        """Write each sample to a temporary file, and yield the sample's name and the file."""
        with tempfile.TemporaryDirectory() as folder:
            for name, data in self.samples().items():
                path = Path(folder, name)
                path.write_bytes(data)
                yield name, Source(path)

    def format_of(self, source: Source) -> Format | None:
        """Return the format that is recognised from a file's content; `None` if none of `formats` fits."""
        look = source.look([one.keys for one in self.formats()])
        fits = (one for one in self.formats() if look.form == one.form and set(one.keys).issubset(look.keys))
        return next(fits, None)

    def read(self, source: Source) -> list[Foreign]:
        """Return the conversations of a file."""
        read = (self.format_of(source) or self.formats()[0]).read
        assert read is not None, "the format has no `read`"
        return list(read(source, Counter()))

    async def take(self, record: Record, source: Source) -> int:
        """Import a file into a record (an opened store), and return the number of runs that were written."""
        done = await take(record, source, self.format_of(source) or self.formats()[0])
        return done.runs

    def on_record(self, work: Callable[[Record], Any]) -> None:
        """Call an async function with a new record (store of runs) in memory as its argument."""

        async def main() -> None:
            async with open_record() as record:
                await work(record)

        anyio.run(main)

    def harmless(self, name: str, files: Iterator[bytes]) -> None:
        """Check that reading changed files either yields conversations or raises `BadImport`.

        Args:
            name: name for the files.
            files: the bytes of each file.
        """
        with tempfile.TemporaryDirectory() as folder:
            for data in files:
                path = Path(folder, name)
                path.write_bytes(data)
                try:
                    self.read(Source(path))
                except BadImport:
                    continue
                except Exception as error:
                    found = f"expected conversations or BadImport, found {error!r}"
                    raise AssertionError(f"{found}, of a file that is {data!r:.2000}") from error


def nested(foreign: Foreign) -> None:
    """Check that the spans of a conversation are nested, and that each entry comes after its causes."""
    spans: list[int] = []
    for seq, entry in enumerate(foreign.entries, 1):
        assert all(0 < cause < seq for cause in entry.causes), f"entry {seq} is caused by one that is not before it"
        if isinstance(entry.content, BeginContent):
            assert entry.span == seq, f"entry {seq} begins a span and lies in {entry.span}"
            spans.append(seq)
        assert entry.span in spans, f"entry {seq} lies in span {entry.span}, which is not open"
        if isinstance(entry.content, EndContent):
            spans.remove(entry.span)
    assert foreign.entries and isinstance(foreign.entries[0].content, BeginContent), "the first entry begins no span"
    assert not spans, f"the spans {spans} have no end"


def changed_values(data: bytes, most: int) -> Iterator[bytes]:
    """Yield at most `most` copies of a JSON document, or of JSON lines. In each copy one value is replaced.

    For a file in another form, nothing is yielded.
    """
    lot = random.Random(0)  # noqa: S311 - the same files each time
    try:
        lines = [json.loads(data)]
    except ValueError:
        try:
            lines = [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError:
            return  # the file is packed or no JSON
    places = [(line, *path) for line, value in enumerate(lines) for path in paths(value)]
    for line, *path in lot.sample(places, min(most, len(places))):
        value = lot.choice(VALUES)
        made = [put(each, path, value) if at == line else each for at, each in enumerate(lines)]
        yield "\n".join(map(json.dumps, made)).encode()


def paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value inside a JSON value. The first path is empty, which means the value itself."""
    yield ()
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((key, *path) for path in paths(each))


def put(whole: Any, path: Sequence[Any], value: Any) -> Any:
    """Return a copy of a JSON value in which the value at one path is replaced."""
    if not path:
        return value
    first, *rest = path
    if isinstance(whole, dict):
        return {key: put(each, rest, value) if key == first else each for key, each in whole.items()}
    return [put(each, rest, value) if at == first else each for at, each in enumerate(whole)]


def changed_bytes(data: bytes, most: int) -> Iterator[bytes]:
    """Yield `most` copies of a file: half of them cut off somewhere, half with one byte changed."""
    lot = random.Random(1)  # noqa: S311 - the same files each time
    for _ in range(most // 2):
        at = lot.randrange(len(data) + 1)
        yield data[:at]
        yield data[:at] + bytes([lot.randrange(256)]) + data[at + 1 :]
