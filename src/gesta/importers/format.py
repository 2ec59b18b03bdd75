"""The description of one foreign format: how its files are recognised, and which function reads them.

A module that reads a format lists the format in its `FORMATS`. Gesta's own modules are listed in `own`; other packages
register theirs by an entry point.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from gesta.importers.foreign import Imported, Progress, Read
from gesta.importers.source import Source
from gesta.record.record import Record

Take = Callable[[Record, Source, Progress], Awaitable[Imported]]
"""A function that imports a whole file into a record (the store of all runs), in place of a reader."""


def members_of(text: str) -> frozenset[str]:
    """Return the names in a text, separated by white space, as a set."""
    return frozenset(text.split())


class Format(Struct, frozen=True):
    """One foreign format that can be imported."""

    name: str
    what: str
    """A description for people who do not know the name."""
    form: str
    """What a file contains: `object` (one or many JSON objects), `list` (a JSON list of objects) or `zip` (an
    archive)."""
    keys: tuple[str, ...]
    """Names of members (keys of the first JSON object, or files of the archive) that a file of this format must
    have."""
    read: Read | None = None
    """The reader: a function that yields the conversations of a file. It is `None` only if `take` is set."""
    sessions: bool = False
    """Whether the source names its conversations. The import then keeps each name as the name of a session (a group of
    runs)."""
    vague: bool = False
    """Whether files of other formats may have the members in `keys` too. The format is then recognised only if no other
    format fits."""
    members: frozenset[str] | None = None
    """Names of known members, in addition to those that the reader uses. Other members are counted as unknown. `None`
    turns the count off."""
    within: tuple[str, ...] = ("function",)
    """Names of members that hold objects. Unknown members of these objects are counted too."""
    take: Take | None = None
    """A function that imports a whole file, for files that contain records of Gesta. It is used instead of `read`."""
