"""One conversation of a foreign file, as the entries of a new run that the module `file` will write.

A run is a list of entries. Their numbers (seqs) begin with 1, so entries can refer to each other before they are
written. A content is what an entry says. A span is a part of a run from its begin to its end. A cause is an entry from
which another entry was made. The annotation `inferred` names facts that the source does not state. Members of the
source for which an entry has no field are kept in `extra`. An oddity is a problem in the source, such as a call without
a result. An import counts oddities, and does not fail because of them.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from struct import unpack_from
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import MsgspecError, Struct, field, msgpack
from msgspec.json import Encoder

from gesta.codec.rows import Secret, digest_of
from gesta.importers.source import BadImport, Document, Source
from gesta.kinds import Content, SystemContent
from gesta.state.opening import shielded
from gesta.store import Lease, Store

T = TypeVar("T")

Oddities = Counter[str]
ODDITIES: Mapping[str, str] = MappingProxyType(
    {
        "bad-arguments": "arguments of a call are not a JSON object; their text is kept in meta.raw_args",
        "bad-time": "a time cannot be read; it is kept in extra",
        "call-without-name": "a call does not say which tool",
        "cut-message": "only the end of what a model gave is there; kept in extra, no completion is made of it",
        "left-out": "a request leaves out what an earlier one held; that is hidden from there on",
        "lost-call": "a call is not in the source; one without name and arguments stands for it before its result",
        "message-errors": "a message lists errors of its generation; they are kept in extra",
        "missing-call-id": "a call has no id",
        "missing-result-id": "a result does not say which call it answers; taken in order",
        "missing-parent": "a span or an event names a parent that is not there; it lies in what is around it",
        "nested-generation": "a generation lies in another: the same call, seen by another instrument; kept as a span",
        "no-conversations": "the file holds no conversation at all",
        "no-messages": "a conversation lists no messages; they are taken from its longest request, else from its input",
        "orphan-response": "a response answers no request that is waiting; kept whole in a key-value",
        "orphan-result": "a result answers no call that is waiting",
        "other-conversation": "a run of that name holds another conversation; this one got a name with its digest",
        "other-speaker": "a verdict blames another agent than the one that spoke at the step that it names",
        "repeated-call-id": "two calls of one conversation have the same id",
        "repeated-request": "a request was sent again as it was",
        "repeated-span-id": "two spans of one conversation have the same id; others lie in the first",
        "unanswered-call": "a call has no result",
        "unanswered-request": "a request has no response",
        "unanswered-turn": "the person spoke again before an answer",
        "unbegun-span": "a span ends that was not begun, or has ended; its end is kept in a key-value",
        "unended-span": "a span has no end; it ends in error",
        "unknown-ending": "the source names an ending that is not known; taken as failed",
        "unknown-form": "what a model was given or gave is in no known form; kept whole in a key-value",
        "unknown-member": "a member that its format does not have; kept in extra, or in the state of the first span",
        "unknown-message": "an element of a list of messages is not a message of a known form; it stays where it stood",
        "unknown-part": "a part of a message is of an unknown type; it is named in the words and kept in extra",
        "unknown-step": "a verdict names a step that is not there",
        "unreadable-message": "a message is not an object or has an unknown role; kept whole in a key-value",
        "wrong-type": "a member has another type than its format says; it is kept in extra",
    }
)
"""The names of the oddities that a source may have, each with a description."""

KEY = re.compile(
    r"(api|access|secret|account|private|subscription)[-_]?key|(access|auth|session|api|refresh|bearer)[-_]?token"
    r"|secret|password|credential|authorization",
    re.IGNORECASE,
)
"""Finds names of settings that give access to an account, such as `api_key`."""
NAME = 200
"""Greatest number of characters in the name of a conversation."""
FIRST_YEAR = 1970
"""A time before this year is a placeholder, so it is treated like a text that is not a time."""


FLOAT, SMALL, LARGE = b"\xcb", 1e-4, 1e16
"""The first byte of a float in msgpack, and the range of numbers that JSON writes without an exponent."""
_ENCODER, _SORTED, _PACKER = Encoder(), Encoder(order="sorted"), msgpack.Encoder()
_SORTER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class ForeignEntry(Struct, frozen=True, kw_only=True, gc=False):
    """One entry that will be written."""

    content: Content
    span: int
    """Seq of the entry that begins the span around this entry. An entry that begins a span has its own seq here."""
    causes: tuple[int, ...] = ()
    at: datetime | None = None
    """Time of the entry, in UTC and aware; `None` if the source has no time. The entry then gets the time of the entry
    before it."""
    sure: bool = True
    """Whether the source states this time, with its time zone, for this entry. If not, the annotation `inferred` names
    `at`."""
    inferred: tuple[str, ...] = ()
    """Other facts that the reader inferred: names of fields of the content, or `causes`, `kind`, `span` or `entry`."""
    message: int | None = None
    """Number of the message in the source, from 0, that the entry represents; `None` if it represents no message."""
    annotations: dict[str, Any] | None = None
    """Annotations of the entry other than `inferred`."""


class Foreign(Struct, kw_only=True):
    """One conversation of a foreign file, as the entries of a run."""

    id: str
    """Name of the conversation. It is unique in the file, and the same each time the file is read."""
    name: str
    """Name of the run, which is the name of the agent."""
    digest: str
    """SHA-256, in hex, of the conversation as the file has it."""
    plain: bool = False
    """Whether all values have types of JSON. The import then skips the check that they can be read back unchanged."""
    entries: list[ForeignEntry] = field(default_factory=list)
    """The entries in order. The first one is the begin that opens the run."""


class Imported(Struct, frozen=True, kw_only=True):
    """The result of an import: numbers of runs and entries, and the oddities of the file."""

    runs: int
    """Number of runs that were created or extended."""
    entries: int
    """Number of entries that were written."""
    skipped: int
    """Number of runs that an earlier import had already written, so that nothing was written for them."""
    format: str
    oddities: dict[str, int] = field(default_factory=dict)
    """How often each oddity of `ODDITIES` was found. Skipped conversations are included."""


Progress = Callable[[int], None]
"""A function that is called with the number of entries read so far. Entries of an earlier import are counted too."""
Read = Callable[[Source, Oddities], Iterator[Foreign]]
"""A reader: a function that yields the conversations of a file, one at a time. It raises BadImport."""


class Members:
    """The members of a JSON object that no reader has taken yet.

    A reader takes the members that it knows; the others can be kept in `extra`.
    """

    __slots__ = ("_left", "_oddities")

    def __init__(self, value: dict[str, Any], oddities: Oddities) -> None:
        self._left = value.copy()
        self._oddities = oddities

    def take(self, key: str, kind: type[T] | tuple[type[T], ...]) -> T | None:
        """Remove and return a member; `None` if it is missing or null.

        A member of another type stays, and is counted as an oddity; then the result is `None` too.
        """
        value = self._left.pop(key, None)
        if value is None or isinstance(value, kind):
            return value
        self._left[key] = value
        self._oddities["wrong-type"] += 1
        return None

    def drop(self, key: str, value: Any) -> None:
        """Remove a member if it has this value, because the value is already stored elsewhere."""
        if key in self._left and same(self._left[key], value):
            del self._left[key]

    def time(self, key: str) -> tuple[datetime | None, bool]:
        """Remove a member that holds a time as ISO 8601 text. Return the time in UTC, and whether it is certain.

        A time without a zone is read as UTC, and is not certain. If there is no readable time, return `(None, False)`.
        """
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

    def seconds(self, key: str) -> tuple[datetime | None, bool]:
        """Remove a member that holds a time in seconds since 1970.

        Return the time in UTC, and whether one was found.
        """
        value = self._left.get(key)
        if value is None:
            return None, False
        try:
            at = None if isinstance(value, bool) else datetime.fromtimestamp(value, UTC)
        except (TypeError, ValueError, OverflowError, OSError):
            at = None
        if at is None or at.year < FIRST_YEAR:
            self._oddities["bad-time"] += 1
            return None, False
        del self._left[key]
        return at, True

    def rest(self) -> dict[str, Any] | None:
        """Return the members that were not taken and are not null; `None` if there are no such members."""
        return ({key: value for key, value in self._left.items() if value is not None} or None) if self._left else None


def each_document(
    source: Source, oddities: Oddities, make: Callable[[Document, str, Oddities], Foreign]
) -> Iterator[Foreign]:
    """Yield one conversation for each JSON document of a file.

    If two conversations have the same id, the later one gets a longer id.

    Args:
        make: called with the document, its name for errors, and the counter of oddities; it returns the conversation.
    """
    ids: set[str] = set()
    for document in source.documents():
        words = f"document {document.place + 1}" + (f", {document.path!r}" if document.path else "")
        one = make(document, words, oddities)
        if one.id in ids:
            one.id = f"{one.id}~{document.place}"
        ids.add(one.id)
        yield one
    oddities["no-conversations"] += not ids


def list_in(value: Any, key: str, path: str, missing: str) -> list[Any]:
    """Return the member `key` of a JSON object, which must be a list.

    Args:
        value: the object.
        path: path of the file, for the error.
        missing: text of the error.

    Raises:
        BadImport: the value is not an object, or its member is not a list.
    """
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise BadImport(path, missing)
    return found


def object_of(value: Any) -> dict[str, Any]:
    """Return the value if it is a dict, else an empty dict."""
    return value if isinstance(value, dict) else {}


def told(text: str, by: str, extra: dict[str, Any]) -> SystemContent:
    """Return a content for a text that the program `by` wrote, although the source calls it a message of the user."""
    return SystemContent(value=text, source=[by], extra=extra or None)


def merged(extra: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any]:
    """Return a dict with the members of both dicts.

    If a name occurs in both, return the first dict with the second dict as its member `extra`.
    """
    extra, more = extra or {}, more or {}
    return {**extra, **more} if extra.keys().isdisjoint(more) else {**extra, "extra": more}


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal and of the same type; `False` if they are too deep to compare."""
    try:
        return type(one) is type(other) and bool(one == other)
    except RecursionError:
        return False


def without_keys(value: Any, depth: int = 8) -> Any:
    """Return a copy of a value in which texts under names such as `api_key` are replaced by a `Secret`.

    Only the outermost `depth` levels are searched.
    """
    if isinstance(value, list) and depth:
        return [without_keys(each, depth - 1) for each in value]
    if not isinstance(value, dict) or not depth:
        return value
    return {
        key: Secret(key) if isinstance(each, str) and each and KEY.search(key) else without_keys(each, depth - 1)
        for key, each in value.items()
    }


def digest_json(value: Any) -> str:
    """Return the SHA-256 of a JSON value, in hex. Spaces and the order of members do not matter."""
    try:
        text = _SORTED.encode(value)
        if not (text.isascii() and b"\x7f" not in text and _usual(_PACKER.encode(value))):
            text = _SORTER.encode(value).encode()
    except RecursionError:
        return digest_of(value)
    except (MsgspecError, TypeError, ValueError, OverflowError):
        text = _SORTER.encode(value).encode()
    return sha256(text).hexdigest()


def _usual(packed: bytes) -> bool:
    """Return whether no number in a value needs an exponent in JSON. Then msgspec and `json` write the same numbers.

    Args:
        packed: the value as msgpack; its texts must be ASCII.
    """
    at = packed.find(FLOAT)
    while at >= 0:
        number = abs(unpack_from(">d", packed.ljust(at + 9), at + 1)[0])
        if not (number == 0 or SMALL <= number < LARGE):
            return False
        at = packed.find(FLOAT, at + 1)
    return True


def identical(one: Any, other: Any) -> bool:
    """Return whether two JSON values have the same digest. Their JSON texts are compared first, which is faster."""
    try:
        text = _ENCODER.encode(one)
        if b"null" not in text and text == _ENCODER.encode(other):  # msgspec writes NaN as null
            return True
    except (MsgspecError, RecursionError, ValueError):
        pass
    return digest_json(one) == digest_json(other)


def plain_name(*parts: Any) -> str:
    """Return a name made from values of a file: one line of at most `NAME` printable characters.

    Values that are neither text nor int are left out. The others are joined by dots.
    """
    text = ".".join(str(part) for part in parts if isinstance(part, str | int))
    if not text.isprintable():
        text = "".join(one if one.isprintable() else "?" for one in text[:NAME])
    return text[:NAME].strip()


@asynccontextmanager
async def leased(store: Store, run: str) -> AsyncIterator[Lease]:
    """Hold the lease of a run (the exclusive right to write it) inside a `with` block, and release it at the end.

    Raises RunHeld if another process has the lease.
    """
    lease = await store.lease(run)
    try:
        yield lease
    finally:
        with shielded():
            await store.release(lease)
