"""The description of one foreign format: how its files are recognised, and which function reads them.

A module that reads a format lists it in `FORMATS`. `known` lists Gesta's own modules; other packages use an entry
point.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from gesta.importers.foreign import Imported, Progress, Read
from gesta.importers.source import Source
from gesta.record.record import Record

Take = Callable[[Record, Source, Progress], Awaitable[Imported]]
"""Imports a whole file into a record in its own way."""


def members_of(text: str) -> frozenset[str]:
    """Return the names in a text that are separated by white space."""
    return frozenset(text.split())


class Format(Struct, frozen=True):
    """One format that can be imported."""

    name: str
    what: str
    """Description for people who do not know the name of the format."""
    form: str
    """What a file holds: `object`, `list` of objects, or `zip` archive."""
    keys: tuple[str, ...]
    """The members by which a file of this format is recognised."""
    read: Read | None = None
    """`None` only if `take` imports the whole file."""
    sessions: bool = False
    """Whether its conversations are sessions of the source. Their names are kept."""
    vague: bool = False
    """Whether other formats have these members too. Then this format is used only if no other format fits."""
    members: frozenset[str] | None = None
    """Names of known members beside those that the reader takes; every other member is counted as unknown. With `None`
    nothing is counted."""
    within: tuple[str, ...] = ("function",)
    """Names of members whose own members are counted in the same way."""
    take: Take | None = None
    """Imports a file that holds whole records, such as Gesta's own lines; it takes the place of `read`."""
