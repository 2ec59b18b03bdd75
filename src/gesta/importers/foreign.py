"""A foreign conversation is the entries of one new run, in order, before they are stamped.

Readers make these, `file` writes them. The n-th entry will have seq n, so links and causes are already the final
ones. What a reader concluded, where the source does not say it, is named in the entry's annotation `inferred`; what it
could not place stays in `extra`. Whatever is odd about the source is counted under a name of `ODDITIES`.
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
        "bad-arguments": "arguments of a call are no JSON object; their text is kept in meta.raw_args",
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
        "unknown-message": "an element of a list of messages is no message of a known form; it stays where it stood",
        "unknown-part": "a part of a message is of an unknown type; it is named in the words and kept in extra",
        "unknown-step": "a verdict names a step that is not there",
        "unreadable-message": "a message is no object or has an unknown role; kept whole in a key-value",
        "wrong-type": "a member has another type than its format says; it is kept in extra",
    }
)
"""What can be odd about a source, in words."""

KEY = re.compile(
    r"(api|access|secret|account|private|subscription)[-_]?key|(access|auth|session|api|refresh|bearer)[-_]?token"
    r"|secret|password|credential|authorization",
    re.IGNORECASE,
)
"""Names of settings that give access to an account."""
NAME = 200
"""Characters that the name of a conversation may have."""
FIRST_YEAR = 1970
"""Earlier times are taken for a placeholder, and have no fixed width as text."""


FLOAT, SMALL, LARGE = b"\xcb", 1e-4, 1e16
"""How a packed number with a fraction begins, and the numbers that are written without an exponent."""
_ENCODER, _SORTED, _PACKER = Encoder(), Encoder(order="sorted"), msgpack.Encoder()
_SORTER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class ForeignEntry(Struct, frozen=True, kw_only=True, gc=False):
    """One entry to be."""

    content: Content
    span: int
    """Seq of the begin that it lies in; of a begin, its own."""
    causes: tuple[int, ...] = ()
    at: datetime | None = None
    """UTC, aware; `None` if the source does not say, and then the time is that of the entry before."""
    sure: bool = True
    """Whether the source has that time, with its zone, for this very entry; else `at` is inferred."""
    inferred: tuple[str, ...] = ()
    """What else the reader concluded: names of members of the content, or `causes`, `kind`, `span`, `entry`."""
    message: int | None = None
    """Place in the source of the message that it stands for."""
    annotations: dict[str, Any] | None = None
    """What else is to be annotated."""


class Foreign(Struct, kw_only=True):
    """One conversation of a foreign file."""

    id: str
    """Its own name, stable and unique in its file."""
    name: str
    """Of the run: who the agent is."""
    digest: str
    """Of the conversation as it stands in the file, SHA-256 in hex."""
    plain: bool = False
    """Whether all values in it are of types that JSON has; then they are written down without being read back."""
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

    __slots__ = ("_left", "_oddities")

    def __init__(self, value: dict[str, Any], oddities: Oddities) -> None:
        self._left = value.copy()
        self._oddities = oddities

    def take(self, key: str, kind: type[T] | tuple[type[T], ...]) -> T | None:
        """Remove and return a member. A member of another type stays, and counts as odd; null is nothing."""
        value = self._left.pop(key, None)
        if value is None or isinstance(value, kind):
            return value
        self._left[key] = value
        self._oddities["wrong-type"] += 1
        return None

    def drop(self, key: str, value: Any) -> None:
        """Remove a member if it says only what is known already."""
        if key in self._left and same(self._left[key], value):
            del self._left[key]

    def time(self, key: str) -> tuple[datetime | None, bool]:
        """Remove and return a time, and whether it is certain. A time without a zone is taken as UTC, uncertain."""
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
        """Remove and return a time in seconds since 1970, and whether there is one."""
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
        """Return what is left over; nulls say nothing."""
        return ({key: value for key, value in self._left.items() if value is not None} or None) if self._left else None


def each_document(
    source: Source, oddities: Oddities, make: Callable[[Document, str, Oddities], Foreign]
) -> Iterator[Foreign]:
    """Make a conversation of each document of a file, with a name that no other has.

    Args:
        make: is given a document, the words that name it in an error, and where to count.
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
    """Return the list that is this member of an object. Raises BadImport, with what is `missing`, if there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise BadImport(path, missing)
    return found


def object_of(value: Any) -> dict[str, Any]:
    """Return an object as it is, and an empty one of any other value."""
    return value if isinstance(value, dict) else {}


def told(text: str, by: str, extra: dict[str, Any]) -> SystemContent:
    """Make words of a program of what it told the model as if a person had; the model is shown them as such again."""
    return SystemContent(value=text, source=[by], extra=extra or None)


def merged(extra: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any]:
    """Put what is left of a message and what is left of its own `extra` together, side by side if that can be."""
    extra, more = extra or {}, more or {}
    return {**extra, **more} if extra.keys().isdisjoint(more) else {**extra, "extra": more}


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, and of one type; of those that are nested too deeply nobody can tell."""
    try:
        return type(one) is type(other) and bool(one == other)
    except RecursionError:
        return False


def without_keys(value: Any, depth: int = 8) -> Any:
    """Hide what gives access to an account: the texts of settings that are named as keys or tokens are."""
    if isinstance(value, list) and depth:
        return [without_keys(each, depth - 1) for each in value]
    if not isinstance(value, dict) or not depth:
        return value
    return {
        key: Secret(key) if isinstance(each, str) and each and KEY.search(key) else without_keys(each, depth - 1)
        for key, each in value.items()
    }


def digest_json(value: Any) -> str:
    """Digest what a JSON document says, however it is laid out: SHA-256 in hex."""
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
    """Return whether both encoders write all numbers of a packed ASCII value alike: those that need no exponent."""
    at = packed.find(FLOAT)
    while at >= 0:
        number = abs(unpack_from(">d", packed.ljust(at + 9), at + 1)[0])
        if not (number == 0 or SMALL <= number < LARGE):
            return False
        at = packed.find(FLOAT, at + 1)
    return True


def identical(one: Any, other: Any) -> bool:
    """Return whether two JSON values have the same digest. Cost: far less than two digests, if they are alike."""
    try:
        text = _ENCODER.encode(one)
        if b"null" not in text and text == _ENCODER.encode(other):  # what is no number would be null too
            return True
    except (MsgspecError, RecursionError, ValueError):
        pass
    return digest_json(one) == digest_json(other)


def plain_name(*parts: Any) -> str:
    """Make a name of what a file says, whatever that is: one short line of printable characters."""
    text = ".".join(str(part) for part in parts if isinstance(part, str | int))
    if not text.isprintable():
        text = "".join(one if one.isprintable() else "?" for one in text[:NAME])
    return text[:NAME].strip()


@asynccontextmanager
async def leased(store: Store, run: str) -> AsyncIterator[Lease]:
    """Hold the right to write a run. Raises RunHeld."""
    lease = await store.lease(run)
    try:
        yield lease
    finally:
        with shielded():
            await store.release(lease)
