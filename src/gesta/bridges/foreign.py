"""A foreign conversation is the entries of one new run, in order, before they are stamped.

Readers make these, `importing` writes them. The n-th entry will have seq n, so links and causes are already the final
ones. What a reader concluded, where the source does not say it, is named in the entry's annotation `inferred`; what it
could not place stays in `extra`. Whatever is odd about the source is counted under a name of `ODDITIES`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, field

from gesta.bridges.source import Source
from gesta.codec import digest_of
from gesta.kinds import Content

T = TypeVar("T")

Oddities = Counter[str]
ODDITIES: Mapping[str, str] = MappingProxyType(
    {
        "bad-arguments": "arguments of a call are no JSON object; their text is kept in meta.raw_args",
        "bad-time": "a time cannot be read; it is kept in extra",
        "call-without-name": "a call does not say which tool",
        "message-errors": "a message lists errors of its generation; they are kept in extra",
        "missing-call-id": "a call has no id",
        "missing-result-id": "a result does not say which call it answers; taken in order",
        "no-conversations": "the file holds no conversation at all",
        "orphan-result": "a result answers no call that is waiting",
        "other-conversation": "a run of that name holds another conversation; this one got a name with its digest",
        "repeated-call-id": "two calls of one conversation have the same id",
        "unanswered-call": "a call has no result",
        "unanswered-turn": "the person spoke again before an answer",
        "unknown-ending": "the source names an ending that is not known; taken as failed",
        "unreadable-message": "a message is no object or has an unknown role; kept whole in a key-value",
        "wrong-type": "a member has another type than its format says; it is kept in extra",
    }
)
"""What can be odd about a source, in words."""

NAME = 200
"""Characters that the name of a conversation may have."""
FIRST_YEAR = 1970
"""Earlier times are taken for a placeholder, and have no fixed width as text."""


class ForeignEntry(Struct, frozen=True, kw_only=True):
    """One entry to be."""

    content: Content
    span: int
    """Seq of the begin that it lies in; of a begin, its own."""
    causes: tuple[int, ...] = ()
    annotations: dict[str, Any] | None = None
    at: datetime | None = None
    """UTC, aware; none where the source does not say, then it is that of the entry before."""


class Foreign(Struct, kw_only=True):
    """One conversation of a foreign file."""

    id: str
    """Its own name, stable and unique in its file."""
    name: str
    """Of the run: who the agent is."""
    digest: str
    """Of the conversation as it stands in the file, SHA-256 in hex."""
    entries: list[ForeignEntry] = field(default_factory=list)
    """The first is the begin that will open the run."""


class Imported(Struct, frozen=True, kw_only=True):
    """What an import did."""

    runs: int
    """Runs that were made or extended."""
    entries: int
    """Entries that were written."""
    skipped: int
    """Runs that were there already, whole."""
    format: str
    oddities: dict[str, int] = field(default_factory=dict)
    """How often each thing of `ODDITIES` was met, in what was skipped too."""


Progress = Callable[[int], None]
"""Is told how many entries were gone through so far, those that were there already included."""
Read = Callable[[Source, Oddities], Iterator[Foreign]]
"""A reader: the conversations of a file, one at a time. Raises BadImport."""


class Members:
    """The members of a JSON object, taken one by one; what is not taken is left over."""

    def __init__(self, value: dict[str, Any], oddities: Oddities) -> None:
        self._left = dict(value)
        self._oddities = oddities

    def take(self, key: str, kind: type[T] | tuple[type[T], ...]) -> T | None:
        """Take a member. One of another type stays where it is, and counts as odd; null is nothing."""
        value = self._left.get(key)
        if value is not None and not isinstance(value, kind):
            self._oddities["wrong-type"] += 1
            return None
        self._left.pop(key, None)
        return value

    def drop(self, key: str, value: Any) -> None:
        """Take a member only if it says what is known already."""
        if self._left.get(key) == value:
            self._left.pop(key, None)

    def time(self, key: str) -> tuple[datetime | None, bool]:
        """Take a time, and say whether it is sure; one without a zone is read as UTC and is not."""
        text = self.take(key, str)
        if text is None:
            return None, False
        try:
            at = datetime.fromisoformat(text)
            sure = at.tzinfo is not None
            at = at.astimezone(UTC) if sure else at.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            at = None
        if at is None or at.year < FIRST_YEAR:
            self._left[key] = text
            self._oddities["bad-time"] += 1
            return None, False
        return at, sure

    def rest(self) -> dict[str, Any] | None:
        """Give what is left over; nulls say nothing."""
        return {key: value for key, value in self._left.items() if value is not None} or None


def digest_json(value: Any) -> str:
    """Digest what a JSON document says, however it is laid out: SHA-256 in hex."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        return digest_of(value)
    return sha256(text.encode()).hexdigest()


def plain_name(*parts: Any) -> str:
    """Make a name of what a file says, whatever that is: one short line of printable characters."""
    text = ".".join(str(part) for part in parts if isinstance(part, str | int))
    return "".join(one if one.isprintable() else "?" for one in text[:NAME]).strip()
