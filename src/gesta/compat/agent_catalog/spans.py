"""agent-catalog's spans, and the catalog that makes them. Each logged content is written to a record as an entry.

A record is an opened store of runs. A run is a list of entries; the seq of an entry is its number in the run. A span is
a named part of a run, from its begin entry to its end entry.

A span begins when it is entered. If a program logs into a span that is not open, the span begins just before that log.
It then ends with the span around it, or when the root span is garbage-collected. Begin and end entries that were
written in this way are marked as inferred. Exports leave them out, because agent-catalog would not have written them.
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
    """The path and the session of a span, which together identify the span."""

    name: list[str]
    """Names of the spans from the root to this span."""
    session: str


class Log(Struct, frozen=True, kw_only=True):
    """One line of an activity log, with agent-catalog's field names."""

    identifier: str
    span: Identifier
    timestamp: datetime
    content: BaseContent
    annotations: dict[str, Any] | None = None
    catalog_version: dict[str, Any]


class Catalog:
    """A factory of spans that write to a record, and an index of the tools and prompts in a folder.

    Args:
        record: a record, or the address of a store; by default the address in `GESTA_RECORD`, else `runs.gesta`.
        folder: the folder of the tools and prompts. If a folder is passed, each log line names the version of this
            folder.
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
        """Index of the tools and prompts in the folder. Each use reads the folder again."""
        return index(os.fspath(self._folder or "."))

    @property
    def version(self) -> Version:
        """The current version of the folder: its git commit, or else a digest of its files."""
        return self.index.version

    def find(
        self,
        kind: str,
        query: str | None = None,
        name: str | None = None,
        annotations: Mapping[str, str] | None = None,
        limit: int | None = 1,
    ) -> Any:
        """Return the item called `name`. Without a name, return a list of the items that a search for `query` finds.

        Args:
            kind: `tool`, `tools`, `prompt` or `prompts`. Tools are returned as `Tool`, prompts as `Item`.
            query: what the item should do, in words.
            name: name of the item.
            annotations: annotations that a found item must have.
            limit: greatest length of the list; `None` for no limit.
        """
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
        """Return a new root span, in a new session if none is named. `Span.new` describes the other parameters."""
        key = session or uuid4().hex, name
        version = None if self._folder is None else self.version
        run = self._runs.get(key) or Run(self.record, *key)
        self._runs[key] = run
        given = {"state": state, "iterable": iterable, "blacklist": blacklist, "kwargs": kwargs}
        return GlobalSpan(run, name, given, version)


class Run:
    """The writer of one run. While any span is open, it holds the run's lease: no other process can write the run."""

    def __init__(self, record: Record, session: str, name: str) -> None:
        self.record, self.session, self.name = record, session, name
        self._lock = threading.RLock()
        self._held: Any = None
        self._journal: Journal | None = None
        self._opened: Opened | None = None
        self._open: dict[int, tuple[tuple[str, ...], bool]] = {}
        """The spans that have not ended, by the seq of their begin entry: path, and whether the begin is inferred."""

    def begin(self, span: "Span", parent: int | None, *, implied: bool) -> int:
        """Write the begin entry of a span, and return its seq. The first call also acquires the run's lease.

        Args:
            parent: seq of the begin entry of the span around the new span; `None` for a root span.
            implied: whether the program never entered the span, so that its begin is inferred.
        """
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
        """Write an entry into the span that began at seq `span`, commit it, and return its seq.

        `notes` are the entry's annotations.
        """
        with self._lock:
            assert self._journal is not None
            seq = self._journal.write(content, span, (), notes).seq
            drive(self._journal.durable())
            return seq

    def end(self, span: int, content: EndContent) -> None:
        """End a span and the inferred spans inside it. When no span is open any more, release the run's lease."""
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
        """End all open spans, and release the run's lease."""
        with self._lock:
            for seq in sorted(self._open, reverse=True):
                self.write(EndContent(), seq, IMPLIED if self._open.pop(seq)[1] else None)
            held, self._held, self._journal = self._held, None, None
            if held is not None:
                drive(held.__aexit__(None, None, None))

    def is_open(self, span: int) -> bool:
        """Return whether the span that began at this seq is still open."""
        return span in self._open


class Span:
    """A named scope of a program's logs. `with span:` begins and ends it.

    `log` and `span[key] = value` write into the span. `new` makes a span inside it.
    """

    def __init__(self, run: Run, name: str, parent: "Span | None", options: dict[str, Any]) -> None:
        self._run, self._begun = run, 0
        self.name, self.parent = name, parent
        self.state = options["state"]
        """A value written with the begin entry. The end entry gets the value as it is at that time."""
        self.iterable: bool = options["iterable"]
        self.blacklist: set[str] = {str(kind) for kind in options["blacklist"] or ()}
        """Kinds of content that are not recorded in this span and in the spans inside it."""
        self.kwargs: dict[str, Any] = options["kwargs"]
        """Annotations of this span. The span's logs get them, and also the annotations of the spans around it."""
        self._first = 0
        self.ref: AgentRef | None = None
        """The version of the catalog's folder. `None` without a folder, and in a span inside another span."""

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
            state: value that is stored with the new span's begin and end. By default it is the state of this span; if
                this span is a root, no state is stored.
            iterable: has no effect, because logs can always be read back from the record.
            blacklist: kinds that are not recorded, in addition to those of this span.
            kwargs: annotations of all logs in the new span.
        """
        inherited = self.state if self.parent is not None else None
        skipped = {*self.blacklist, *(str(kind) for kind in blacklist or ())}
        given = {"state": state or inherited, "iterable": iterable, "blacklist": skipped, "kwargs": kwargs}
        return Span(self._run, name, self, given)

    def log(self, content: Base | Mapping[str, Any], **kwargs: Any) -> None:
        """Write a content, or a mapping of its members, unless its kind is on the blacklist. Keywords are annotations.

        Raises BadContent if a member of the mapping is missing or has a wrong type.
        """
        made: Any = content if isinstance(content, Base) else content_of(content)
        refuse_own(made, "log(...)")
        if str(made.kind) not in self.blacklist:
            self._run.write(made, self._now(), kwargs or None)

    def enter(self) -> Self:
        """Write the begin entry of the span, unless the blacklist contains the kind of begin entries."""
        if str(Kind.Begin) not in self.blacklist:
            parent = self.parent._now() if self.parent is not None else None  # noqa: SLF001 - of this class
            self._begun = self._run.begin(self, parent, implied=False)
            self._first = self._first or self._begun
        return self

    def exit(self, error: BaseException | None = None) -> None:
        """End the span. If `error` is passed, the end entry contains it."""
        failure = None if error is None else Error(type=type(error).__name__, message=message_of(error))
        ended = EndContent(state=self.state, status="error" if failure else "success", error=failure)
        self._run.end(self._now(), ended)

    def logs(self) -> list[Log]:
        """Return the logs of this span and of the spans inside it, in the order of writing, read from the record."""
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
        """Write a key-value entry. Assigning the same key twice writes two entries."""
        self.log(KeyValueContent(key=key, value=value))

    def __iter__(self) -> Iterator[Log]:
        """Yield the same logs as `logs`."""
        return iter(self.logs())

    def _now(self) -> int:
        """Return the seq of the span's begin entry. If the span is not open, begin it first, marked as inferred."""
        if not self._run.is_open(self._begun):
            parent = self.parent._now() if self.parent is not None else None  # noqa: SLF001 - of this class
            self._begun = self._run.begin(self, parent, implied=True)
            self._first = self._first or self._begun
        return self._begun


class GlobalSpan(Span):
    """The root span of a run. When this span is garbage-collected, all spans of the run end."""

    def __init__(self, run: Run, name: str, options: dict[str, Any], version: Version | None) -> None:
        super().__init__(run, name, None, options)
        if version is not None:
            self.ref = AgentRef(name=name, digest=version.identifier, catalog=str(version))
        weakref.finalize(self, run.free)

    @property
    def session(self) -> str:
        """Id of the session."""
        return self._run.session


def log_of(line: Mapping[str, Any]) -> Log:
    """Return the `Log` for a line of an activity log, given as a dict. Raises BadContent for a malformed content."""
    return Log(
        identifier=line["identifier"],
        span=Identifier(line["span"]["name"], line["span"]["session"]),
        timestamp=datetime.fromisoformat(line["timestamp"]),
        content=content_of(line["content"]),
        annotations=line.get("annotations"),
        catalog_version=line["catalog_version"],
    )


def _close(store: Store) -> None:
    """Close a record's store. Called when the record is garbage-collected, at the latest when the program ends."""
    drive(store.close())
