"""Writes a run as an activity log of agent-catalog: JSON lines, one for each entry of the run.

A run is a stored list of entries; each entry has a content of some kind, such as a tool call. Kinds that agent-catalog
lacks become key-values. Fields that it lacks become members of `extra`. If the run was imported from an activity log,
the export writes the original lines again. An inferred entry is one that no program logged, such as the end of a span
that was never closed; it has no line.
"""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from gesta.codec.rows import PythonValue as Unheld
from gesta.codec.rows import Secret
from gesta.entry import Entry, utc_text
from gesta.errors import BrokenRecord, NoRun
from gesta.importers.agent_catalog import ANY, FIELDS, MEMBERS, NAME, Line, full, line_of
from gesta.kinds import AgentRef, BeginContent, KeyValueContent, ToolCallContent, ToolResultContent
from gesta.prompt import numbers_in_hex
from gesta.record.record import Record
from gesta.state.run import UNFIT

IMPLIED = {"inferred": ["entry"]}
"""The annotations that mark an inferred entry. The export writes no line for it."""
OF_TEXT = ("Decimal", "PosixPath", "PurePosixPath", "PureWindowsPath", "UUID", "WindowsPath")
"""Classes whose constructor takes one text. pydantic writes their values as that text, and so does this export."""


async def export_run(record: Record, run: str) -> AsyncIterator[str]:
    """Yield the lines of a run's activity log, each with its line end. For an imported run, yield the original lines.

    Raises:
        NoRun: no run has this id.
        BrokenRecord: an entry or blob was changed after it was written.
    """
    entries = await record.read(run)
    if not entries:
        raise NoRun(run, [row.run for row in await record.store.runs()])
    for line in run_lines(entries):
        yield f"{line}\n"


def run_lines(entries: list[Entry]) -> Iterator[str]:
    """Yield the lines of a run's activity log, without line ends. Raises BrokenRecord if an entry is malformed."""
    writer = _Writer(entries)
    for entry in entries:
        try:
            line = writer.line(entry)
        except UNFIT as error:
            raise BrokenRecord(f"entry {entry.id}", f"a member is not of its type ({error!r})") from error
        if line is not None:
            yield line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))


def plain(value: Any) -> Any:
    """Return a value as agent-catalog would write it to JSON.

    Most values that JSON cannot hold become their Python `repr`.
    """
    match value:
        case dict():
            return {plain(key) if isinstance(key, str) else repr(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case set() | frozenset():
            return sorted((plain(each) for each in value), key=_same)
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case None | bool() | int():
            return numbers_in_hex(value)
        case float():
            return value if abs(value) < float("inf") else repr(value)
        case datetime():
            return value.isoformat()
        case bytes():
            return _text(value)
        case Unheld():
            return plain(_named(value))
        case Secret():
            return f"<secret {value.name}>"
        case _:
            return plain(msgspec.to_builtins(value)) if isinstance(value, msgspec.Struct) else repr(value)


def _about(entries: list[Entry]) -> Line | None:
    """Return the dict that an import stored: the session's id and catalog version. `None` if there was no import.

    It is stored in the first begin entry or, in older records, in a key-value entry.
    """
    for content in (entry.content for entry in entries[:2]):
        told = content.state if isinstance(content, BeginContent) and content.role == "import" else None
        told = told.get(NAME) if isinstance(told, dict) else None
        if isinstance(content, KeyValueContent) and content.key == NAME:
            told = content.value
        if isinstance(told, dict):
            return told
    return None


class _Writer:
    """A converter of one run's entries to activity log lines."""

    def __init__(self, entries: list[Entry]) -> None:
        self._begins = {entry.seq: entry for entry in entries if isinstance(entry.content, BeginContent)}
        self._paths: dict[int, list[str]] = {}
        self._notes: dict[int, Line] = {}
        self._ids = {e.seq: e.content.tool_call_id for e in entries if isinstance(e.content, ToolCallContent)}
        opened = [e.content.opened for e in entries if isinstance(e.content, BeginContent) and e.content.opened]
        self._session: Any = opened[-1].session if opened else entries[0].run  # of a fork, the first one is the base's
        agents = (begin.content.agent for begin in self._begins.values() if isinstance(begin.content, BeginContent))
        agent = next((agent for agent in agents if agent is not None), None)
        self._version: Any = {"timestamp": utc_text(entries[0].at), **_version(agent)}
        for begin in self._begins.values():
            self._enter(begin)
        about = _about(entries) if len(opened) <= 1 else None  # what a fork shares is in no line of it
        self._imported = about is not None
        if about is not None:
            self._session, self._version = about.get("session"), about.get("catalog_version")

    def line(self, entry: Entry) -> Line | str | None:
        """Return the line of an entry: a dict, or the text of an imported line. `None` if the entry is inferred."""
        notes = dict(entry.annotations or {})
        only = notes.pop(NAME, None)
        if self._imported and isinstance(only, dict):
            return self._as_it_came(entry, notes, only)
        if notes == IMPLIED or (self._imported and "entry" in (notes.get("inferred") or ())):
            return None
        merged = {**self._notes.get(entry.span, {}), **notes}
        return {
            "identifier": entry.id,
            "span": {"session": plain(self._session), "name": plain(self._paths.get(entry.span, []))},
            "timestamp": utc_text(entry.at),
            "content": self._content(entry),
            **({"annotations": plain(merged)} if merged else {}),
            "catalog_version": self._version,
        }

    def _as_it_came(self, entry: Entry, notes: Line, only: Line) -> Line | str:
        if "line" in only:
            return str(only["line"])
        notes.pop("inferred", None)
        line = {"identifier": only["identifier"], "annotations": notes, "span": {"name": self._paths[entry.span]}}
        back = line_of(entry.content, line | {"timestamp": utc_text(entry.at)}, self._session, self._version)
        back |= {key: value for key, value in only.items() if key != "without"}
        gone = only.get("without", ())
        return {key: back[key] for key in (*MEMBERS, *(set(back) - set(MEMBERS))) if key in back and key not in gone}

    def _enter(self, begin: Entry) -> None:
        content = begin.content
        assert isinstance(content, BeginContent)
        self._paths[begin.seq] = [*self._paths.get(content.parent or 0, []), content.name]
        self._notes[begin.seq] = {**self._notes.get(content.parent or 0, {}), **(content.annotations or {})}

    def _content(self, entry: Entry) -> Line:
        """Return an entry's content as agent-catalog writes it. Fields that agent-catalog lacks go into `extra`."""
        content = entry.content
        kind, fields = str(content.kind), content.__struct_fields__
        values = {name: getattr(content, name) for name in fields if name != "extra"}
        extra = dict(content.extra or {})
        if kind not in FIELDS:
            told = {name: value for name, value in values.items() if value is not None}
            return full({"kind": "key-value", "key": kind, "value": plain(told)}, plain(extra) or None)
        known = {name: values.pop(name) for name in FIELDS[kind]}
        if isinstance(content, ToolCallContent):
            known["tool_call_id"] = self._call_id(entry.seq, entry.run)
        if isinstance(content, ToolResultContent) and content.call in self._ids:
            known["tool_call_id"] = self._call_id(content.call, entry.run)
        for tool in (known.get("tools") or ()) if kind == "request-header" else ():
            tool |= {"description": tool.get("description") or "", "args_schema": tool.get("args_schema") or {}}
        own = {field.name: field.default for field in msgspec.structs.fields(content)}
        more = {name: value for name, value in values.items() if value not in (None, [], ()) and value != own[name]}
        more |= {"causes": [_id(cause, entry.run) for cause in entry.causes]} if entry.causes else {}
        clash = {name: more.pop(name) for name in [*more] if name in extra}
        extra |= more | ({"gesta": clash} if clash else {})
        shown = {name: plain(value) for name, value in known.items() if value is not None or ANY.get(kind) == name}
        return full({"kind": kind, **shown}, plain(extra) or None)

    def _call_id(self, seq: int, run: str) -> str:
        own = self._ids[seq]
        return own if own is not None else "call_" + sha256(f"{run}.{seq}".encode()).hexdigest()[:8]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return repr(data)


def _named(value: Unheld) -> str:
    """Return the repr of a value. For classes in `OF_TEXT`, return only its text: `1.5` for `Decimal('1.5')`."""
    text = value.repr[len(value.type) + 2 : -2]
    return text if value.type in OF_TEXT and value.repr == f"{value.type}({text!r})" else value.repr


def _version(agent: AgentRef | None) -> Line:
    """Return the `catalog_version` of a line: the version of the agent's catalog, or else the digest of the agent."""
    if agent is None:
        return {"is_dirty": True, "version_system": "raw"}
    if agent.catalog is None:
        return {"identifier": agent.digest, "is_dirty": False, "version_system": "raw"}
    commit, _, dirty = agent.catalog.partition("+")
    system = "raw" if commit.startswith("sha256:") else "git"
    return {"identifier": commit.removeprefix("sha256:"), "is_dirty": bool(dirty), "version_system": system}


def _id(cause: Any, run: str) -> str:
    return f"{run}.{cause}" if isinstance(cause, int) else ".".join(map(str, cause))


def _same(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
