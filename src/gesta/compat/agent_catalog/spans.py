"""agent-catalog's spans and the catalog that makes them. Every log is written as an entry of a record.

A span begins when it is entered. If a program logs into a span that is not open, the span begins before that log. It
ends with the span around it, or when the program no longer holds the root span. The begin and the end of a span like
that are marked as inferred, and exports leave them out.
"""

import os
import threading
import weakref
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from json import loads
from typing import Any, Self
from uuid import uuid4

from msgspec import Struct

from gesta.address import Address, bind, drive, inline_store
from gesta.catalog.index import Catalog as Index
from gesta.catalog.index import index
from gesta.catalog.version import Version
from gesta.compat.agent_catalog.contents import BaseContent, content_of
from gesta.compat.agent_catalog.export import IMPLIED, export_run
from gesta.content import AgentRef, Base, Error, Kind, Opened
from gesta.errors import message_of
from gesta.kinds import BeginContent, EndContent, KeyValueContent
from gesta.log.journal import Journal
from gesta.log.steering import refuse_own
from gesta.record.record import Record, writing
from gesta.store import Store


class Identifier(Struct, frozen=True):
    """The identifier of a span: its path and its session."""

    name: list[str]
    """Names of the spans from the root to this span."""
    session: str


class Log(Struct, frozen=True, kw_only=True):
    """One line of an activity log."""

    identifier: str
    span: Identifier
    timestamp: datetime
    content: BaseContent
    annotations: dict[str, Any] | None = None
    catalog_version: dict[str, Any]


class Catalog:
    """Makes spans that write to a record, and finds the tools and prompts of a folder.

    Args:
        record: a record, or the address of a store; by default the address in `GESTA_RECORD`, else `runs.gesta`.
        folder: the folder of the tools and prompts; if it is passed, all logs have its version.
    """

    def __init__(self, record: Record | Address | None = None, *, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = folder
        self._runs: weakref.WeakValueDictionary[tuple[str, str], Run] = weakref.WeakValueDictionary()
        if isinstance(record, Record):
            self.record = record
        else:
            store = inline_store(record or os.environ.get("GESTA_RECORD") or "runs.gesta")
            self.record = Record(store, bind)
            weakref.finalize(self.record, _close, store)

    @property
    def index(self) -> Index:
        """The tools and prompts of the folder, which is read again at each use."""
        return index(os.fspath(self._folder or "."))

    @property
    def version(self) -> Version:
        """Version of the folder."""
        return self.index.version

    def find(
        self,
        kind: str,
        query: str | None = None,
        name: str | None = None,
        annotations: Mapping[str, str] | None = None,
        limit: int | None = 1,
    ) -> Any:
        """Return the item with a name, or a list of items that a search finds: tools as `Tool`, prompts as `Item`."""
        found = self.index
        sort: Any = kind.removesuffix("s")
        items = [found.item(name, sort)] if name is not None else []
        if name is None:
            items = [hit.item for hit in found.find(query or "", kind=sort, annotations=annotations, limit=limit)]
        made: list[Any] = found.tools(*(item.name for item in items)) if sort == "tool" else list(items)
        return made[0] if name is not None else made

    def Span(  # noqa: N802 - its name
        self,
        name: str,
        session: str | None = None,
        state: Any = None,
        iterable: bool = False,  # noqa: FBT001, FBT002 - its users' names
        blacklist: Collection[Kind | str] | None = None,
        **kwargs: Any,
    ) -> "GlobalSpan":
        """Return a root span of a session, by default of a new session. `Span.new` describes the other parameters."""
        key = session or uuid4().hex, name
        version = None if self._folder is None else self.version
        run = self._runs.get(key) or Run(self.record, *key)
        self._runs[key] = run
        given = {"state": state, "iterable": iterable, "blacklist": blacklist, "kwargs": kwargs}
        return GlobalSpan(run, name, given, version)


class Run:
    """Writes one run. It holds the lease of the run while a span is open."""

    def __init__(self, record: Record, session: str, name: str) -> None:
        self.record, self.session, self.name = record, session, name
        self._lock = threading.RLock()
        self._held: Any = None
        self._journal: Journal | None = None
        self._opened: Opened | None = None
        self._open: dict[int, tuple[tuple[str, ...], bool]] = {}
        """For each open span, by the seq of its begin: its path, and whether its begin is inferred."""

    def begin(self, span: "Span", parent: int | None, *, implied: bool) -> int:
        """Write the begin of a span, and return its seq. The first begin of a run opens the run."""
        with self._lock:
            if self._journal is None:
                self._held = writing(self.record, self.session, self.name)
                self._journal, self._opened = drive(self._held.__aenter__())
            opened = self._opened if self._journal.head == 0 else None
            own = {"state": span.state, "annotations": span.kwargs or None, "agent": span.ref}
            content = BeginContent(name=span.name, parent=parent, opened=opened, **own)
            seq = self.write(content, 0, IMPLIED if implied else None)
            self._open[seq] = (span.path, implied)
            return seq

    def write(self, content: Any, span: int, notes: dict[str, Any] | None = None) -> int:
        """Write an entry in a span, commit it, and return its seq."""
        with self._lock:
            assert self._journal is not None
            seq = self._journal.write(content, span, (), notes).seq
            drive(self._journal.durable())
            return seq

    def end(self, span: int, content: EndContent) -> None:
        """Write the end of a span and of the inferred spans in it. If no span is open then, release the run."""
        with self._lock:
            around, _ = self._open[span]
            inside = [seq for seq, (path, implied) in self._open.items() if implied and path[: len(around)] == around]
            for seq in sorted({*inside, span}, reverse=True):
                if seq >= span:
                    _, implied = self._open.pop(seq)
                    self.write(content if seq == span else EndContent(), seq, IMPLIED if implied else None)
            if not self._open:
                self.free()

    def free(self) -> None:
        """Write the ends of all open spans, and release the run."""
        with self._lock:
            for seq in sorted(self._open, reverse=True):
                self.write(EndContent(), seq, IMPLIED if self._open.pop(seq)[1] else None)
            held, self._held, self._journal = self._held, None, None
            if held is not None:
                drive(held.__aexit__(None, None, None))

    def is_open(self, span: int) -> bool:
        """Return whether a span has begun and not ended."""
        return span in self._open


class Span:
    """A span. A program logs into it, assigns keys to it and makes spans in it; `with span:` begins and ends it."""

    def __init__(self, run: Run, name: str, parent: "Span | None", options: dict[str, Any]) -> None:
        self._run, self._begun = run, 0
        self.name, self.parent = name, parent
        self.state = options["state"]
        """Value that is written with the begin of the span and, in its form at that time, with the end."""
        self.iterable: bool = options["iterable"]
        self.blacklist: set[str] = {str(kind) for kind in options["blacklist"] or ()}
        """Kinds of content that are not recorded in this span and in the spans inside it."""
        self.kwargs: dict[str, Any] = options["kwargs"]
        """Annotations of this span. The annotations of the spans around it apply too."""
        self._first = 0
        self.ref: AgentRef | None = None
        """In a root span: the reference that names the version of the catalog on record."""

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the spans from the root to this span."""
        return (*(self.parent.path if self.parent is not None else ()), self.name)

    @property
    def identifier(self) -> Identifier:
        """The path and the session of the span."""
        return Identifier(list(self.path), self._run.session)

    def new(
        self,
        name: str,
        state: Any = None,
        iterable: bool = False,  # noqa: FBT001, FBT002 - its users' names
        blacklist: Collection[Kind | str] | None = None,
        **kwargs: Any,
    ) -> "Span":
        """Return a new span inside this span.

        Args:
            state: value that is written with its begin and end; by default the state of this span, if it is no root.
            iterable: has no effect, because all logs are on record.
            blacklist: kinds that are not recorded, in addition to those of this span.
            kwargs: annotations of all logs in the new span.
        """
        inherited = self.state if self.parent is not None else None
        skipped = {*self.blacklist, *(str(kind) for kind in blacklist or ())}
        given = {"state": state or inherited, "iterable": iterable, "blacklist": skipped, "kwargs": kwargs}
        return Span(self._run, name, self, given)

    def log(self, content: Base | Mapping[str, Any], **kwargs: Any) -> None:
        """Write a content, or a mapping of its members, with annotations. Raises BadContent for bad members."""
        made: Any = content if isinstance(content, Base) else content_of(content)
        refuse_own(made, "log(...)")
        if str(made.kind) not in self.blacklist:
            self._run.write(made, self._now(), kwargs or None)

    def enter(self) -> Self:
        """Begin the span."""
        if str(Kind.Begin) not in self.blacklist:
            parent = self.parent._now() if self.parent is not None else None  # noqa: SLF001 - of this class
            self._begun = self._run.begin(self, parent, implied=False)
            self._first = self._first or self._begun
        return self

    def exit(self, error: BaseException | None = None) -> None:
        """End the span. An exception that left the span is written with the end; agent-catalog writes no end then."""
        failure = None if error is None else Error(type=type(error).__name__, message=message_of(error))
        ended = EndContent(state=self.state, status="error" if failure else "success", error=failure)
        self._run.end(self._now(), ended)

    def logs(self) -> list[Log]:
        """Return the logs of this span and of the spans inside it, read from the record."""
        run, path = self._run, list(self.path)
        if not self._first:
            return []

        async def lines() -> list[dict[str, Any]]:
            found = await run.record.turns.run_of(run.session, run.name)
            return [loads(line) async for line in export_run(run.record, found)]

        every = (line for line in drive(lines()) if int(line["identifier"].rpartition(".")[2]) >= self._first)
        return [log_of(line) for line in every if line["span"]["name"][: len(path)] == path]

    def __enter__(self) -> Self:
        """Begin the span."""
        return self.enter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the span."""
        self.exit(error)

    def __setitem__(self, key: str, value: Any) -> None:
        """Write a key-value. Assigning a key twice writes two entries."""
        self.log(KeyValueContent(key=key, value=value))

    def __iter__(self) -> Iterator[Log]:
        """Yield the logs that `logs` returns."""
        return iter(self.logs())

    def _now(self) -> int:
        """Return the seq of the span's begin. If the span is not open, begin it first."""
        if not self._run.is_open(self._begun):
            parent = self.parent._now() if self.parent is not None else None  # noqa: SLF001 - of this class
            self._begun = self._run.begin(self, parent, implied=True)
            self._first = self._first or self._begun
        return self._begun


class GlobalSpan(Span):
    """A root span of a session."""

    def __init__(self, run: Run, name: str, options: dict[str, Any], version: Version | None) -> None:
        super().__init__(run, name, None, options)
        if version is not None:
            self.ref = AgentRef(name=name, digest=version.identifier, catalog=str(version))
        weakref.finalize(self, run.free)

    @property
    def session(self) -> str:
        """Name of the session."""
        return self._run.session


def log_of(line: Mapping[str, Any]) -> Log:
    """Return a line of an activity log as a `Log`. Raises BadContent if its members make no content."""
    return Log(
        identifier=line["identifier"],
        span=Identifier(line["span"]["name"], line["span"]["session"]),
        timestamp=datetime.fromisoformat(line["timestamp"]),
        content=content_of(line["content"]),
        annotations=line.get("annotations"),
        catalog_version=line["catalog_version"],
    )


def _close(store: Store) -> None:
    """Close a store when the record is no longer used, or at the latest when the program ends."""
    drive(store.close())
