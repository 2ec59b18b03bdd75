"""Encodes any Python value as stored text and decodes it; `chain` defines how digests cover the stored text.

Encoding never raises, whatever value an agent writes. It also returns the value as it will be read back. A value that
JSON or SQLite cannot hold exactly is stored under a *mark*: an object with one key that starts with `$`, such as
`{"$bytes": "aGk="}`. A user's own object of this form is wrapped in `$dict`, so that no value can imitate a mark.
Stored text has no spaces, so a text without `{"$` contains no mark. A large value is a blob, stored beside the row. The
stored form changes only with `VERSION`. The content of an entry is its data.
"""

import json
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from enum import Enum
from functools import cache
from hashlib import sha256
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from gesta.codec.upcasts import CLASSES, UPCASTS, Upcasts
from gesta.entry import VERSION, Cause, Entry, Row, utc_text, utc_time
from gesta.errors import BrokenRecord, NewerRecord
from gesta.kinds import Base, Content, Kind
from gesta.text.objects import MAX_DEPTH
from gesta.text.redactor import SECRETS

T = TypeVar("T")
Keep = Callable[[bytes], str]  # takes the bytes of a large value and returns the name of its blob
LARGE = 64 * 1024  # bytes above which a text, bytes or a whole field is a blob


class PythonValue(msgspec.Struct, frozen=True):
    """The value that is read back in place of a Python object that cannot be stored."""

    type: str
    """Name of the value's class; `cycle` for a value that contains itself; `json` for one that is nested too deeply."""
    repr: str
    """The value's `repr`, at most 10,000 characters; for `json`, the whole value as JSON text."""


class Secret(msgspec.Struct, frozen=True):
    """A placeholder that is stored in place of a secret, such as an API key."""

    name: str


_ENCODER, _SORTER, _PACKER = msgspec.json.Encoder(), msgspec.json.Encoder(order="sorted"), msgspec.msgpack.Encoder()
_ANY, _CAUSES = msgspec.json.Decoder(), msgspec.json.Decoder(tuple[Cause, ...])
_CONTENT: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content)
_NUMBERS = msgspec.json.Decoder(float_hook=lambda text: int(n) if abs(n := float(text)) < 2**63 and n % 1 == 0 else n)
_TAGS: Mapping[Kind, str] = {kind: kind.value for kind in Kind}
_UNREADABLE = (msgspec.MsgspecError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
_COLUMNS: Mapping[str, type] = {
    **dict.fromkeys(("run", "kind", "at", "causes", "content", "annotations"), str),
    **dict.fromkeys(("seq", "span", "version"), int),
    "digest": bytes,
}
_MARKS: Mapping[str, Callable[[Any], Any]] = {
    "$text": lambda base64: b64decode(base64).decode("utf-8", "surrogatepass"),
    "$bytes": b64decode,
    "$float": float,
    "$int": lambda digits: int(digits, 16),
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$items": dict,
    "$py": lambda pair: PythonValue(*pair),
    "$json": lambda text: PythonValue("json", text),
    "$cycle": lambda _: PythonValue("cycle", "…"),
    "$secret": Secret,
}


def to_row(entry: Entry, prev: bytes, salt: bytes, keep: Keep) -> tuple[Entry, Row]:
    """Return two values: the entry as it will be read back, and its row.

    Args:
        prev: digest of the previous entry. salt: random bytes that are stored in the row and go into its digest.
        keep: stores a large value as a blob, and returns the blob's name.
    """
    text, content = _pack(entry.content, keep, typed=True)
    notes_text, notes = (None, None) if entry.annotations is None else _pack(entry.annotations, keep, typed=False)
    causes = "[]"
    if entry.causes:
        only = entry.causes[0].__class__ is int and entry.causes[1:] == ()  # most have one cause: this is faster
        causes = f"[{entry.causes[0]}]" if only else _ENCODER.encode(entry.causes).decode()
    kind, moment = _TAGS[entry.content.kind], entry.at
    fast = moment.tzinfo is UTC and moment.microsecond  # as `utc_text`, without its call
    at = msgspec.to_builtins(moment) if fast else utc_text(moment)
    run, seq, span = entry.run, entry.seq, entry.span
    header = sha256(_ENCODER.encode((run, seq, kind, at, span, msgspec.Raw(causes), VERSION))).digest()
    sealed = sha256(b"%b%b\0%b" % (salt, text.encode(), notes_text.encode() if notes_text else b"")).digest()
    digest = sha256(prev + header + sealed).digest()  # as `chain.link`, without its calls
    row = Row(run, seq, kind, at, span, causes, VERSION, text, notes_text, salt, digest)
    read = Entry(
        run=run, seq=seq, at=moment, span=span, causes=entry.causes, content=content, annotations=notes, digest=digest
    )
    return read, row


def from_row(row: Row, blobs: Mapping[str, bytes]) -> Entry:
    """Return the entry of a row, given its blobs (see `blob_names`). Raises NewerRecord or BrokenRecord."""
    try:
        numbers = row.seq.__class__ is row.span.__class__ is row.version.__class__ is int
        if not (numbers and row.run.__class__ is str and row.digest.__class__ is bytes):
            raise TypeError("a column holds another type")
        if row.version > VERSION:
            raise NewerRecord(f"Entry {row.run}.{row.seq}", row.version, VERSION)
        content = _read(row.content, blobs, row.version)
        if row.kind != content.kind:
            raise ValueError(f"column kind says {row.kind!r}, its content {str(content.kind)!r}")
        causes = () if row.causes == "[]" else _CAUSES.decode(row.causes)
        notes = None if row.annotations is None else _annotations(row.annotations, blobs)
        return Entry(
            run=row.run,
            seq=row.seq,
            at=utc_time(row.at),
            span=row.span,
            causes=causes,
            content=content,
            annotations=notes,
            version=row.version,
            digest=row.digest,
            pos=row.pos,
        )
    except _UNREADABLE as error:
        raise BrokenRecord(f"entry {row.run}.{row.seq}", _unreadable_column(row, blobs) or str(error)) from error


def _annotations(text: str, blobs: Mapping[str, bytes]) -> dict[str, Any]:
    notes = _unmark(_ANY.decode(text), blobs)
    if type(notes) is not dict:
        raise TypeError(f"found {text!r:.60}, expected an object")
    return notes


def _unreadable_column(row: Row, blobs: Mapping[str, bytes]) -> str:
    """Return an error text for the first column that cannot be read, given the blobs of the row; else an empty text."""
    for name, kind in _COLUMNS.items():
        cell = getattr(row, name)
        if cell is None and name == "annotations":
            continue
        if type(cell) is not kind:
            return f"column {name} holds {cell!r:.60}, expected {kind.__name__}"
        if isinstance(cell, str) and not cell.isascii():
            odd = cell.encode("utf-8", "surrogateescape")
            try:
                odd.decode()
            except UnicodeDecodeError as error:
                return f"column {name} is not UTF-8 text: byte {odd[error.start]:#04x} at place {error.start:,}"
    for name, reader in (
        ("content", lambda: _read(row.content, blobs, row.version)),
        ("causes", lambda: _CAUSES.decode(row.causes)),
        ("annotations", lambda: row.annotations is None or _annotations(row.annotations, blobs)),
        ("at", lambda: utc_time(row.at)),
    ):
        try:
            reader()
        except _UNREADABLE as error:
            return f"column {name}: {error}"
    return ""


def blob_names(row: Row) -> list[str]:
    """Return the names of the blobs that `from_row` needs, without repetitions."""
    found: list[str] = []
    for text in (row.content, row.annotations):  # called for each row: comprehensions take longer
        if text.__class__ is str and "$" in text and '{"$blob"' in text:
            found += _names(text.encode("utf-8", "surrogatepass"))
    return list(dict.fromkeys(found)) if found else found


def encode_content(content: Content) -> str:
    """Return a content as stored text. Its large values are in the text too: a letter or a page has no blobs."""
    return _pack(content, None, typed=True)[0]


def as_recorded(content: T) -> T:
    """Return a content as it will be read back from the record: with placeholders instead of secrets."""
    if SECRETS.search is None:
        return content
    back: T = _pack(content, None, typed=isinstance(content, Base))[1]
    return back


def decode_content(text: str, blobs: Mapping[str, bytes]) -> Content:
    """Return the content in a stored text. Raises BrokenRecord if it cannot be read, or if a blob is missing."""
    try:
        return _read(text, blobs)
    except _UNREADABLE as error:
        raise BrokenRecord("content", str(error)) from error


def canonical(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value, which are the same for equal values.

    Keys are sorted. Whole numbers are written without a fraction: 1.0 as 1, if below 2**63.
    """
    return _SORTER.encode(_NUMBERS.decode(_ENCODER.encode(_Writer(None, sorts=True).mark(value))))


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value's canonical bytes, in hex."""
    return sha256(canonical(value)).hexdigest()


def _pack(value: Any, keep: Keep | None, *, typed: bool, plain: bool = False) -> tuple[str, Any]:
    """Return a value as JSON text, and as it will be read back.

    Args:
        keep: stores a large value as a blob, and returns the blob's name; `None` to keep large values in the text.
        typed: whether the value is an entry's content. plain: whether it has only JSON types, which saves a comparison.
    """
    try:
        data = _ENCODER.encode(value)
        packed = _PACKER.encode(value)  # raises for integers of more than 64 bits
        text = data.decode()
        odd = ("$" in text and '{"$' in text) or ("\\" in text and "\\u0000" in text)  # one character is found faster
        size = len(data)
        levels = text.count("{") + text.count("[") if size > 2 * MAX_DEPTH else 0  # upper bound of the nesting
        if levels > MAX_DEPTH:  # a value beside another one is not deeper
            odd |= levels - text.count("},{") - text.count("],[") > MAX_DEPTH
        if not odd and (keep is None or size <= LARGE):
            # JSON turns infinity and NaN into null
            exact = plain and not ("null" in text and (b"\xcb\x7f" in packed or b"\xcb\xff" in packed))
            back: Any = value if exact else (_CONTENT if typed else _ANY).decode(text)
            if (exact or back == value) and (SECRETS.search is None or SECRETS.search(text) is None):
                return text, back
    except Exception:  # noqa: BLE001, S110  # a value may raise any exception
        pass
    writer = _Writer(keep, hides=True)
    if typed:
        kind: Any = type(value)
        words, members = _stand_in_words(kind), _members(value).items()
        marked = {name: each if each in words.get(name, ()) else writer.field(each) for name, each in members}
    else:
        marked = writer.field(value)
    text = _ENCODER.encode(marked).decode()
    return text, _read(text, writer.blobs) if typed else _unmark(_ANY.decode(text), writer.blobs)


@cache
def _stand_in_words(kind: Any) -> dict[str, tuple[str, ...]]:
    """Return, by field, the words that a class of contents allows in a `Literal` field. They are never redacted."""
    found: dict[str, tuple[str, ...]] = {kind.__struct_config__.tag_field: (kind.__struct_config__.tag,)}
    for field in msgspec.structs.fields(kind):
        for option in (field.type, *get_args(field.type)):
            if get_origin(option) is Literal:
                found[field.name] = get_args(option)
    return found


def _members(struct: Any) -> dict[Any, Any]:
    kind, config = type(struct), type(struct).__struct_config__
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    members = {} if config.tag is None else {config.tag_field: config.tag}
    members |= {name: getattr(struct, name) for name in kind.__struct_fields__}
    return {name: value for name, value in members.items() if value is not defaults.get(name, msgspec.Raw)}


_PLAIN: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (dict, "", dict.copy),
    (list, "", list.copy),
    (Enum, "", lambda value: value.value),
    *((each, "", getattr(each, f"__{each.__name__}__")) for each in (str, int, float)),
    *((each, "", each.isoformat) for each in (datetime, date, time)),
    ((bytes, bytearray, memoryview), "", lambda value: b"".join([value])),
    *((each, f"${each.__name__}", lambda value, of=each: [*of.__iter__(value)]) for each in (tuple, set, frozenset)),
    (PythonValue, "$py", lambda value: [value.type, value.repr]),
    (Secret, "$secret", lambda value: value.name),
    (msgspec.Struct, "", _members),
)  # for a class: the mark, and a function to JSON types


def _plain(value: Any, *, deep: bool) -> tuple[str, Any]:
    """Return the mark, such as `$bytes`, for a value that JSON cannot hold, and the value in JSON types.

    Errors that the value's own methods raise are caught.

    Args:
        deep: whether the value is nested too deeply for JSON.
    """
    with suppress(Exception):
        if deep:
            return "$json", json.dumps(value, default=repr)
        for kind, name, plain in _PLAIN:
            if issubclass(type(value), kind):
                return name, plain(value)
    told = ["object"] * 2
    with suppress(Exception):
        told = [str.__str__(type(value).__name__)] * 2
    with suppress(Exception):
        told[1] = str.__str__(repr(value))[:10_000]
    return "$py", told


class _Writer(msgspec.Struct):  # adds marks, and stores large values as blobs
    keep: Keep | None
    sorts: bool = False
    hides: bool = False  # whether secrets are replaced
    blobs: dict[str, bytes] = {}

    def field(self, value: Any) -> Any:
        data = _ENCODER.encode(self.mark(value))
        return self.large(data, "json") or msgspec.Raw(data)

    def large(self, data: bytes, form: str) -> Any:
        if self.keep is None or len(data) <= LARGE:
            return None
        name, needs = self.keep(data), _names(data) if form == "json" else []
        self.blobs[name] = data
        return {"$blob": {"name": name, "as": form, "size": len(data)} | ({"needs": needs} if needs else {})}

    def mark(self, value: Any, path: tuple[int, ...] = ()) -> Any:
        kind = type(value)
        if value is None or kind is bool or (kind is int and -(2**63) <= value < 2**64):
            return value
        if kind is str:
            value = SECRETS.text(value) if self.hides else value
            data = value.encode("utf-8", "surrogatepass")
            exact = "\0" not in value and data.decode("utf-8", "replace") == value
            return self.large(data, "text") or (value if exact else {"$text": b64encode(data).decode()})
        if kind is int:
            return {"$int": self.mark(hex(value))}
        if kind is float:
            return value if abs(value) < float("inf") else {"$float": str(value)}
        if kind is bytes:
            value = SECRETS.bytes(value) if self.hides else value
            return self.large(value, "bytes") or {"$bytes": b64encode(value).decode()}
        if id(value) in path:
            return {"$cycle": True}
        name, plain = _plain(value, deep=len(path) >= MAX_DEPTH)
        path = (*path, id(value))
        if type(plain) is dict:
            return self.object(plain, path)
        marked = [self.mark(item, path) for item in plain] if type(plain) is list else self.mark(plain, path)
        if "set" in name:
            marked.sort(key=_ENCODER.encode)
        return {name: marked} if name else marked

    def object(self, members: dict[Any, Any], path: tuple[int, ...]) -> dict[str, Any]:
        keys: list[Any] = [self.mark(key) if issubclass(type(key), str) else None for key in members]
        if any(type(key) is not str for key in keys) or len({*keys}) != len(keys):
            pairs = [[self.mark(key, path), self.mark(value, path)] for key, value in members.items()]
            return {"$items": sorted(pairs, key=_ENCODER.encode) if self.sorts else pairs}
        marked = {key: self.mark(value, path) for key, value in zip(keys, members.values(), strict=True)}
        return {"$dict": marked} if len(keys) == 1 and keys[0].startswith("$") else marked


def _names(data: bytes) -> list[str]:
    asked: defaultdict[str, bytes] = defaultdict(lambda: b"0")  # a text that every form of blob can be decoded from
    with suppress(*_UNREADABLE):  # `from_row` reports these errors
        _unmark(_ANY.decode(data), asked)
    return list(asked)


def _read(text: str, blobs: Mapping[str, bytes], version: int = VERSION, upcasts: Upcasts = UPCASTS) -> Content:
    if version == VERSION and not ("$" in text and '{"$' in text):
        try:
            return _CONTENT.decode(text)
        except msgspec.ValidationError:  # a field holds another type than it declares
            pass
    members = _unmark(_ANY.decode(text), blobs)
    for older in range(version, VERSION):
        members = upcasts[older](members)
    kind = CLASSES.get(members.get("kind", ""))
    if kind is None:
        raise ValueError(f"this release knows no kind {members.get('kind')!r}")
    with suppress(Exception):  # not only ValidationError: a lone surrogate in a time raises UnicodeError
        return msgspec.convert(members, kind)
    for field in msgspec.structs.fields(kind):
        with suppress(Exception):
            members[field.name] = msgspec.convert(members[field.name], field.type)
    return kind(**{name: members[name] for name in kind.__struct_fields__ if name in members})


def _unmark(value: Any, blobs: Mapping[str, bytes]) -> Any:
    if type(value) is list:
        return [_unmark(item, blobs) for item in value]
    if type(value) is not dict:
        return value
    name, item = next(iter(value.items()), ("", value))
    if len(value) != 1 or name[:1] != "$":
        return {key: _unmark(item, blobs) for key, item in value.items()}
    if name == "$dict":
        return {key: _unmark(inner, blobs) for key, inner in item.items()}
    try:
        if name != "$blob":
            return _MARKS[name](_unmark(item, blobs))
        data, *_ = [blobs[needed] for needed in (item["name"], *item.get("needs", ()))]
    except KeyError as error:
        raise ValueError(f"{name}: {error} is not known") from error
    except TypeError:  # an unhashable key or member of a set
        return PythonValue(name, repr(item))
    if item["as"] == "bytes":
        return data
    return data.decode("utf-8", "surrogatepass") if item["as"] == "text" else _unmark(_ANY.decode(data), blobs)
