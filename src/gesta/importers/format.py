"""One format of foreign files: how it is known, and what reads it.

A module that reads one says so in `FORMATS`. Gesta's own are listed in `known`; others bring theirs by an entry point.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from gesta.importers.foreign import Imported, Progress, Read
from gesta.importers.source import Source
from gesta.record.record import Record

Take = Callable[[Record, Source, Progress], Awaitable[Imported]]
"""Takes a whole file into a record, and writes it in a way of its own."""


def members_of(text: str) -> frozenset[str]:
    """Return names that stand in a text, with blanks between them."""
    return frozenset(text.split())


class Format(Struct, frozen=True):
    """One format that can be read in."""

    name: str
    what: str
    """In words, for those who do not know the name."""
    form: str
    """`object`, `list` of objects, or `zip` archive."""
    keys: tuple[str, ...]
    """The members by which it is known."""
    read: Read | None = None
    """None only where `take` does all."""
    sessions: bool = False
    """Whether its conversations are sessions of the source, and keep those names."""
    vague: bool = False
    """Whether others have these members too: it is taken for this one if it is for no other."""
    members: frozenset[str] | None = None
    """Names of members that may be there beside those that are read; another one is counted as unknown. `None` counts
    nothing."""
    within: tuple[str, ...] = ("function",)
    """Of those, the ones whose own members are looked at too."""
    take: Take | None = None
    """For a format that holds whole records: Gesta's own lines."""
