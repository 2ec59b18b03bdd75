"""Reads activity logs of agent-catalog: JSON lines with `identifier`, `span`, `timestamp`, `content` and more.

The lines of one session become one run, in the order of the file. A line names its span by a path of names, from which
the spans are rebuilt. Facts that the source does not state are marked as inferred. The members of a line for which its
entry has no field are in the annotation `agent-catalog`, so an export can write the same lines again.

A run is a list of entries, which are recorded facts. A seq is the number of an entry in its run. A span is a part of a
run from its begin entry to its end entry, such as a turn: the work on one message.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Any, get_args

import msgspec

from gesta.entry import utc_text
from gesta.importers.foreign import FIRST_YEAR, Foreign, ForeignEntry, Oddities, plain_name
from gesta.importers.format import Format
from gesta.importers.source import BadImport, Source
from gesta.importers.unpacked import DECODER
from gesta.kinds import (
    BeginContent,
    Content,
    EndContent,
    Error,
    KeyValueContent,
    ToolCallContent,
    ToolResultContent,
)

NAME = "agent-catalog"
"""The name of the format, which is also the key of the annotations that keep the rest of a line."""
UNREADABLE = "unreadable-message"
"""Key of the key-value entry for a line which is not a log record. Its value is the whole line."""
FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "system": ("value",),
        "tool-call": ("tool_name", "tool_args", "tool_call_id", "status", "meta"),
        "tool-result": ("tool_call_id", "tool_result", "status"),
        "chat-completion": ("output", "meta"),
        "request-header": ("tools", "output", "meta"),
        "user": ("value", "user_id"),
        "assistant": ("value",),
        "begin": ("state",),
        "end": ("state",),
        "edge": ("source", "dest", "payload"),
        "key-value": ("key", "value"),
    }
)
"""The members that agent-catalog writes for each kind of content, besides `kind` and `extra`. Null members are left
out."""
ANY = {"tool-result": "tool_result", "key-value": "value"}
"""The member that a content of this kind must have. If a line lacks the member, null is stored."""
KINDS = {kind.__struct_config__.tag: kind for kind in get_args(Content)}
MEMBERS = frozenset({"identifier", "span", "timestamp", "content", "annotations", "catalog_version"})
NAMELESS = ("",)
"""Path of the span for lines that name no span."""
Line = dict[str, Any]


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield the sessions of a file, one after the other.

    Args:
        oddities: counter of problems in the file, such as a line that cannot be read.

    Raises:
        BadImport: a line is not in the form of an activity log.

    Cost: all lines of the file are in memory, because the lines of a session may be anywhere in it.
    """
    sessions: dict[str, list[bytes]] = {}
    last = None
    for number, data in enumerate(source.lines(), 1):
        if data.strip():
            session = _session(_line(data))
            last = last if session is None else session
            if last is None:
                raise BadImport(source.path, f"line {number} is not a log record: it has no span.session")
            sessions.setdefault(last, []).append(data)
    oddities["no-conversations"] += not sessions
    for session, lines in sessions.items():
        yield _Session(session, lines, oddities).foreign()


class _Session:
    """Turns the lines of one session into the entries of a run."""

    def __init__(self, session: str, lines: list[bytes], oddities: Oddities) -> None:
        self._session, self._lines, self._oddities = session, lines, oddities
        self._entries: list[ForeignEntry] = []
        self._open: dict[tuple[str, ...], list[int]] = {}
        """Seqs of the spans that have not ended yet, by path. Several spans may have one path; the newest is last."""
        self._calls: dict[int, tuple[str | None, int]] = {}
        """The calls that have no result yet: from the seq of the call to its id and the seq of its span."""
        self._ids: set[str] = set()
        self._at: datetime | None = None

    def foreign(self) -> Foreign:
        """Return the session as a conversation whose entries are ready to be written."""
        first = next((line for line in map(_line, self._lines) if _session(line) is not None), {})
        version = first.get("catalog_version")
        self._at = _time(first.get("timestamp"))
        about = {NAME: {"session": self._session, "catalog_version": version}}
        self._add(BeginContent(name="import", role="import", state=about), 1)
        self._add(EndContent(), 1)
        for data in self._lines:
            self._take(data, version)
        for span in sorted((seq for seqs in self._open.values() for seq in seqs), reverse=True):
            error = Error(type="unfinished", message="The source has no end of this span.")
            self._add(EndContent(status="error", error=error), span)
        self._oddities["unanswered-call"] += len(self._calls)
        digest = sha256(b"\n".join(self._lines)).hexdigest()
        name = plain_name(*_path(first)[:1]) or "agent"
        return Foreign(id=plain_name(self._session) or digest[:16], name=name, digest=digest, entries=self._entries)

    def _take(self, data: bytes, version: Any) -> None:
        line = _line(data)
        content = _content(line.get("content")) if _session(line) is not None else None
        at = _time(line.get("timestamp"))
        self._oddities["bad-time"] += at is None and "timestamp" in line
        self._at = at or self._at
        if content is None:
            self._oddities[UNREADABLE] += 1
            text = data.decode("utf-8", "surrogateescape")
            span = self._span(_path(line))
            self._add(KeyValueContent(key=UNREADABLE, value=text), span, notes={NAME: {"line": text}})
            return
        path, inferred = _path(line), [] if at else ["at"]
        causes: tuple[int, ...] = ()
        match content:
            case ToolCallContent():
                self._oddities["repeated-call-id"] += content.tool_call_id in self._ids
                self._ids |= {content.tool_call_id} if content.tool_call_id else set()
                span = self._span(path)
                self._calls[len(self._entries) + 1] = (content.tool_call_id, span)
            case ToolResultContent():
                content, causes = self._answer(content, self._span(path))
                inferred += ["call", "causes"] if causes else []
        known = {"kind", "extra", *FIELDS[str(content.kind)]}
        self._oddities["unknown-member"] += len(line.keys() - MEMBERS) + len(line["content"].keys() - known)
        own = _notes(line)
        back = line_of(content, line, self._session, version)
        only = {key: line[key] for key in line if key not in back or _same(back[key]) != _same(line[key])}
        gone = [key for key in back if key not in line]
        only |= {"without": gone} if gone else {}
        notes = own | {NAME: {"identifier": line.get("identifier")} | only}
        if isinstance(content, BeginContent):
            self._begin(content, path, notes, inferred)
        else:
            self._add(content, self._span(path), causes, notes, inferred)
            if isinstance(content, EndContent):
                self._open[path or NAMELESS].pop()

    def _answer(self, content: ToolResultContent, span: int) -> tuple[ToolResultContent, tuple[int, ...]]:
        """Find the call that a result answers: the call with the same id.

        A result without an id answers the first call of its span that has no result yet.

        Returns:
            The result with the seq of its call, and that seq as its cause. If there is no such call, the unchanged
            result and `()`.
        """
        own = content.tool_call_id
        waiting = (seq for seq, (id, of) in self._calls.items() if (id == own if own is not None else of == span))
        call = next(waiting, None)
        self._oddities["missing-result-id"] += own is None
        self._oddities["orphan-result"] += call is None
        if call is None:
            return content, ()
        del self._calls[call]
        return msgspec.structs.replace(content, call=call), (call,)

    def _span(self, path: tuple[str, ...]) -> int:
        """Return the seq of the newest open span with this path. If no such span is open, begin one."""
        path = path or NAMELESS
        if not self._open.get(path):
            self._begin(BeginContent(), path, {}, None)
        return self._open[path][-1]

    def _begin(self, content: BeginContent, path: tuple[str, ...], notes: Line, inferred: list[str] | None) -> None:
        path = path or NAMELESS
        parent = self._span(path[:-1]) if len(path) > 1 else None
        content = msgspec.structs.replace(content, name=path[-1], parent=parent)
        seq = self._add(content, len(self._entries) + 1, (), notes, inferred)
        self._open.setdefault(path, []).append(seq)

    def _add(
        self,
        content: Content,
        span: int,
        causes: tuple[int, ...] = (),
        notes: Line | None = None,
        inferred: list[str] | None = None,
    ) -> int:
        """Add an entry, and return its seq.

        Args:
            notes: annotations of the entry. If they do not include `agent-catalog`, no line states the entry, so the
                whole entry is marked as inferred.
            inferred: names of single members of the entry to mark as inferred.
        """
        whole = [] if notes and NAME in notes else ["entry"]
        unsure = (*whole, *(inferred or ()))
        entry = ForeignEntry(
            content=content, span=span, causes=causes, at=self._at, inferred=unsure, annotations=notes or None
        )
        self._entries.append(entry)
        return len(self._entries)


def full(content: Line, extra: Line | None) -> Line:
    """Return a content as agent-catalog writes it: its first member is `extra`, unless that is `None`."""
    return ({} if extra is None else {"extra": extra}) | content


def line_of(content: Content, line: Line, session: Any, version: Any) -> Line:
    """Return the line of an activity log that an export writes for an entry.

    Args:
        content: the content of the entry.
        line: the original line, for its span, time, identifier and annotations.
        session: name of the session.
        version: the `catalog_version` of the session.
    """
    kind = str(content.kind)
    told = {name: getattr(content, name) for name in FIELDS[kind]}
    notes, at = _notes(line), _time(line.get("timestamp"))
    return {
        "identifier": line.get("identifier"),
        "span": {"session": session, "name": list(_path(line))},
        "timestamp": utc_text(at) if at else None,
        "content": full({"kind": kind} | {name: told[name] for name in told if told[name] is not None}, content.extra),
        **({"annotations": notes} if notes else {}),
        "catalog_version": version,
    }


def _content(members: Any) -> Content | None:
    """Convert the `content` member of a line; return `None` if its kind is unknown or its members do not fit."""
    kind = members.get("kind") if isinstance(members, dict) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        return None
    given = {name: members[name] for name in (*FIELDS[kind], "extra") if name in members}
    if kind in ANY:
        given.setdefault(ANY[kind], None)
    try:
        content: Content = msgspec.convert(given | {"kind": kind}, KINDS[kind])
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return content


def _line(data: bytes) -> Line:
    try:
        found = DECODER.decode(data.decode("utf-8", "surrogateescape").lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _session(line: Line) -> str | None:
    span = line.get("span")
    session = span.get("session") if isinstance(span, dict) else None
    return session if isinstance(session, str) else None


def _path(line: Line) -> tuple[str, ...]:
    span = line.get("span")
    names = span.get("name") if isinstance(span, dict) else None
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _notes(line: Line) -> Line:
    """Return the annotations of a line, without those named `agent-catalog` and `inferred`.

    The import writes annotations of these two names itself.
    """
    notes = line.get("annotations")
    return {key: notes[key] for key in notes if key not in (NAME, "inferred")} if isinstance(notes, dict) else {}


def _time(text: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        known = at.tzinfo is not None and at.astimezone(UTC).year >= FIRST_YEAR
    except (TypeError, ValueError, OverflowError):
        return None
    return at.astimezone(UTC) if known else None


def _same(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


FORMATS = (
    Format(
        NAME,
        "JSON lines of an activity log, with `catalog_version`",
        "object",
        ("catalog_version",),
        read,
        sessions=True,
    ),
)
