"""The formats that can be imported: Gesta's own, and those of other installed packages.

A package names its importer under `[project.entry-points."gesta.importers"]`, with the name of the format on the left
and its `FORMATS` on the right. An importer that cannot be loaded is listed with the reason; all others work.
"""

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from msgspec import Struct, field
from msgspec.structs import replace

from gesta.errors import GestaError, nearest
from gesta.importers.foreign import Foreign, Oddities, Read
from gesta.importers.format import Format
from gesta.importers.own import OWN
from gesta.importers.source import BadImport, Source
from gesta.kinds import BeginContent

GROUP = "gesta.importers"
DATABASE = b"SQLite format 3\0"
"""The first bytes of the file of a record."""


class Known(Struct):
    """The formats that can be imported in this Python environment."""

    formats: list[Format] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    """The reason why an entry point of another package cannot be used, by the name of the entry point."""

    def words(self) -> str:
        """Return a list of the formats as text. The error about a file of an unknown format shows this text."""
        text = f"Known formats: {', '.join(dict.fromkeys(known.name for known in self.formats))}."
        return " ".join([text, *(f"Not usable: {name!r}, {why}." for name, why in self.broken.items())])


def formats() -> Known:
    """Return all formats: first Gesta's own, then those of other packages by name. Cost: imports every importer."""
    known = Known([one for name in OWN for one in _own(name)])
    for entry in _others():
        _add(known, entry)
    return known


def find_format(source: Source) -> Format:
    """Return the format of a file, which is recognised from the beginning of its content.

    Raises:
        BadImport: no known format fits.
    """
    known = formats()
    look = source.look([one.keys for one in known.formats if not one.vague])
    for one in sorted(known.formats, key=lambda one: one.vague):
        if look.form == one.form and set(one.keys).issubset(look.keys):
            return one
    if source.begins(DATABASE):
        raise BadImport(source.path, "it is a SQLite database", f"Copy a record with: gesta push {source.path} RECORD")
    raise BadImport(source.path, f"its format is not known; it is {look.found}", known.words())


def named(source: Source, name: str) -> Format:
    """Return the format with this name. Gesta's importers of other formats are not loaded.

    Raises:
        BadImport: there is no format of that name, or its importer cannot be loaded. The error names `source`.
    """
    if name in OWN:
        return _own(name)[0]
    known = formats()
    for one in known.formats:
        if one.name == name:
            return one
    if name in known.broken:
        raise BadImport(source.path, f"the importer {name!r} cannot be used: {known.broken[name]}")
    near = nearest(name, [one.name for one in known.formats])
    raise BadImport(source.path, f"no format is named {name!r}.{near}".strip("."), known.words())


def _own(name: str) -> tuple[Format, ...]:
    found: tuple[Format, ...] = EntryPoint(name, f"{OWN[name]}:FORMATS", GROUP).load()
    return found


def _others() -> list[EntryPoint]:
    return _installed(tuple((place, _changed_at(place)) for place in sys.path))


@lru_cache(1)
def _installed(_places: tuple[tuple[str, int], ...]) -> list[EntryPoint]:
    """Return the entry points of importers in other packages, sorted by name.

    The argument holds each folder of `sys.path` with the time of its last change. It is only the key of the cache.
    Cost: 10 ms if a folder has changed, else nothing.
    """
    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def _changed_at(place: str) -> int:
    try:
        return os.stat(place or ".").st_mtime_ns  # noqa: PTH116 - called for each folder of the path and each file
    except OSError:
        return 0


def _add(known: Known, entry: EntryPoint) -> None:
    """Load an entry point, and add its formats. If the entry point cannot be used, store the reason instead."""
    by = f"{entry.value} of {entry.dist.name}" if entry.dist is not None else entry.value
    if entry.name in {one.name for one in known.formats}:
        known.broken[entry.name] = f"{by}: there is a format of that name already"
        return
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a foreign module may raise anything when imported
        known.broken[entry.name] = f"{by}: {type(error).__name__}: {error}"
        return
    made = found if isinstance(found, tuple) else (found,)
    wrong = [one for one in made if not isinstance(one, Format) or one.name != entry.name or one.read is None]
    if wrong or not made:
        known.broken[entry.name] = (
            f"{by}: expected a tuple of Format(name={entry.name!r}, read=…), found {found!r:.200}"
        )
        return
    known.formats += [replace(one, read=guarded(one)) for one in made]


def guarded(format: Format) -> Read:
    """Return a wrapper for the reader of another package.

    The wrapper raises BadImport for every error and wrong result of the reader.
    """
    read = format.read
    assert read is not None

    def each(source: Source, oddities: Oddities) -> Iterator[Foreign]:
        try:
            for foreign in read(source, oddities):
                if not foreign.entries or not isinstance(foreign.entries[0].content, BeginContent):
                    raise TypeError(f"conversation {foreign.id!r} does not begin with a BeginContent")
                yield foreign
        except GestaError:
            raise
        except Exception as error:
            raise BadImport(
                source.path, f"the importer {format.name!r} failed: {type(error).__name__}: {error}"
            ) from error

    return each
