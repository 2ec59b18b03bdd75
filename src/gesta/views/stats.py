"""Computes statistics by day, agent, model or tool: requests, tokens, cost, latencies, errors.

An entry is one recorded fact of a run; its seq is its number there. A row is the part of an entry that is counted. Only
this part is read, so a record of a million entries is read in one pass. Unknown prices and token counts have counters
of their own and are never added as 0. For a fork (a run that shares the first entries of another run, its base), only
its own work is counted: no shared or copied entries, and no calls that got their result from the base.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from types import MappingProxyType
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from gesta.entry import VERSION, utc_text, utc_time
from gesta.kinds import Forked
from gesta.log.shared import base_in
from gesta.model.usage import tokens
from gesta.record.names import agents_of
from gesta.store import Store

By = Literal["day", "agent", "model", "tool"]
KINDS = ("request-header", "request", "chat-completion", "fault", "budget", "tool-call", "attempt", "tool-result")
FAILED = frozenset({"error", "denied", "interrupted", "unknown"})
"""Outcomes of a call that are counted as errors. A late result is a second result of its call, and is not counted."""
PERCENTILES = (50, 90, 99)
PAGE = 20_000
ROWS = f"""SELECT pos, run, seq, kind, at, content, annotations, version FROM entries
    WHERE pos > ? AND kind IN ({", ".join(f"'{kind}'" for kind in KINDS)})
    ORDER BY pos LIMIT ?"""  # noqa: S608
BASES = """SELECT run, content FROM entries WHERE kind = 'begin' AND content LIKE '%"base"%' ORDER BY pos"""


class Numbers(Struct):
    """The counts of one day, agent, model or tool."""

    requests: int = 0
    faults: int = 0
    """Number of tries of requests that failed: refused, lost or interrupted."""
    answers: int = 0
    """Number of replies of models."""
    tokens_in: int = 0
    tokens_out: int = 0
    unknown_usage: int = 0
    """Number of replies without a count of tokens."""
    usd: float | None = None
    """Cost in US dollars of the replies whose price is known; `None` if no price is known."""
    unpriced: int = 0
    """Number of replies without a price on record."""
    calls: int = 0
    errors: int = 0
    """Number of tool calls that failed, were denied or interrupted, or have an unknown outcome."""
    unanswered: int = 0
    """Number of tool calls without a result."""
    latencies_ms: list[float] = msgspec.field(default_factory=list)
    """Latencies of replies in milliseconds; if grouped by tool, the times from an attempt to its result."""

    def facts(self) -> dict[str, Any]:
        """Return the counts as JSON values, with the error rate of calls and percentiles of the latency."""
        found = {name: getattr(self, name) for name in self.__struct_fields__ if name != "latencies_ms"}
        found["usd"] = None if self.usd is None else round(self.usd, 9)
        found["error_rate"] = round(self.errors / done, 6) if (done := self.calls - self.unanswered) else None
        ordered = sorted(self.latencies_ms)
        return found | {"latency_ms": {f"p{each}": percentile(ordered, each) for each in PERCENTILES}}


class Mark(Struct):
    """A note stored with an entry, which says that the entry is a copy. Version 0.1.0 wrote it into `extra`."""

    origin: Any = msgspec.field(default=None, name="from")
    """In a fork: id of the entry that this entry is a copy of."""


class Told(Struct):
    """The members of a stored content that are counted. All other members are skipped without being parsed."""

    header: Any = None
    meta: Any = None
    model: Any = None
    usage: Any = None
    latency_ms: Any = None
    of: Any = None
    spent: Any = None
    call: Any = None
    tool_name: Any = None
    tool_call_id: Any = None
    status: Any = None
    outcome: Any = None
    copy_of: Any = None
    before: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="extra")
    """The member `extra`, read only in entries of format 1, where it holds what `copy_of` holds now."""


class Row(Struct, frozen=True):
    """The columns of a stored entry that the statistics need."""

    pos: int
    run: str
    seq: int
    kind: str
    at: str
    content: str
    annotations: str | None = None
    version: int = VERSION


class Call(Struct):
    """A tool call as one run sees it: the run that made the call, or a fork that shares it."""

    groups: list[str]
    counted: bool
    tool: str
    id: Any
    shared: "Call | None" = None
    """In a fork: the same call in its base."""
    began: str = ""
    """Time of its last attempt, as stored; empty if there is none."""
    done: bool = False
    """Whether the call has a result in this run. A fork may have a result that its base still waits for."""
    answered: bool = False
    """Whether the call has a result in this run or in a fork of it."""


class Standing(Struct):
    """The state of one run after the rows read so far, such as its calls without a result."""

    base: "Standing | None" = None
    """For a fork: the state of its base, which wrote the entries up to the seq `shared`."""
    shared: int = 0
    forked: bool = False
    """Whether the run is a fork or a child run of a fork. Such a child run shares no entries, but gets results."""
    models: dict[int, str] = msgspec.field(default_factory=dict)
    """Model that each request header names, by the header's seq."""
    asked: dict[int, tuple[str, str]] = msgspec.field(default_factory=dict)
    """Model and time of each request, by the request's seq."""
    last: int = 0
    """Seq of the last request."""
    model: str = ""
    """Model that was asked last, or that replied without a recorded request."""
    spoke: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """The models that the run used, each with the first seq at which it was used."""
    calls: dict[int, Call] = msgspec.field(default_factory=dict)
    unpriced: set[int] = msgspec.field(default_factory=set)
    """Seqs of requests whose reply was counted and whose price was not read yet."""


_TOLD, _MARK = msgspec.json.Decoder(Told), msgspec.json.Decoder(Mark)
UNKNOWN = "unknown"


class Stats:
    """Counts rows for each group, such as each day; see `stats`. Rows must be added in the order of the record."""

    def __init__(
        self,
        by: By,
        agents: dict[str, str],
        since: str = "",
        until: str = "",
        bases: Mapping[str, Forked] = MappingProxyType({}),
    ) -> None:
        self.by = by
        self.groups: dict[str, Numbers] = {}
        self._agents, self._bases = agents, bases
        self._since, self._until = since, until
        self._runs: dict[str, Standing] = {}

    def add(self, row: Row) -> None:
        """Add a row. A row that cannot be parsed is not counted. Never raises."""
        try:
            told = _TOLD.decode(row.content)
        except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
            return
        if not (isinstance(row.seq, int) and isinstance(row.at, str) and isinstance(row.run, str)):
            return
        run = self._runs.get(row.run) or self._begun(row.run)
        counted = self._since <= row.at and (not self._until or row.at < self._until)
        match row.kind:
            case "request-header":
                meta = told.meta if isinstance(told.meta, dict) else {}
                run.models[row.seq] = str(meta.get("model") or UNKNOWN)
            case "request":
                model = _header(run, told.header)
                run.asked[row.seq], run.last = (model, row.at), row.seq
                _speaks(run, row.seq, model)
                self._asked(row, model, counted=counted)
            case "fault" if isinstance(told.of, int) and told.of in run.asked and counted:
                for group in self._of(row, run.asked[told.of][0]):
                    group.faults += 1
            case "chat-completion":
                self._answered(row, told, run, counted=counted and not (run.forked and _marked(row.annotations)))
            case "budget":
                self._spent(row, told, run)
            case "tool-call" | "attempt" | "tool-result":
                self._worked(row, told, run, counted=counted)

    def _begun(self, run: str) -> Standing:
        """Make and return the state of a run at its first row. A fork starts with the model that its base used."""
        line, found = [run], None
        while (base := self._bases.get(line[-1])) is not None and base.run not in line:
            found = self._runs.get(base.run)
            if found is not None:
                break
            line.append(base.run)
        for each in reversed(line):
            shared = self._bases[each].seq if each in self._bases else 0
            model = _model(found, shared) if found is not None else ""
            found = Standing(base=found, shared=shared, forked=each in self._bases, model=model, spoke=[(0, model)])
            self._runs[each] = found
        assert found is not None
        return found

    def _of(self, row: Row, model: str) -> list[Numbers]:
        """Return a list with the counts of a row's day, agent or `model`; an empty list if the groups are tools."""
        names = {"day": row.at[:10], "agent": self._agents.get(row.run, UNKNOWN), "model": model}
        return [self.groups.setdefault(names[self.by], Numbers())] if self.by in names else []

    def _asked(self, row: Row, model: str, *, counted: bool) -> None:
        for group in self._of(row, model) if counted else ():
            group.requests += 1

    def _answered(self, row: Row, told: Told, run: Standing, *, counted: bool) -> None:
        asked = run.asked.get(run.last)
        model, began = asked or (str(told.model or UNKNOWN), "")
        if asked is None and not any(each.asked for each in _line(run)):
            _speaks(run, row.seq, model)
        if not counted:
            return
        if asked is not None:
            run.unpriced.add(run.last)
        used = tokens(told.usage if isinstance(told.usage, dict) else None)
        took = told.latency_ms if isinstance(told.latency_ms, int | float) else between_ms(began, row.at)
        for group in self._of(row, model):
            group.answers += 1
            group.unpriced += 1
            group.unknown_usage += used is None
            group.tokens_in += used.input if used is not None else 0
            group.tokens_out += used.output if used is not None else 0
            if took is not None:
                group.latencies_ms.append(took)

    def _spent(self, row: Row, told: Told, run: Standing) -> None:
        usd = told.spent.get("usd") if isinstance(told.spent, dict) else None
        if not isinstance(told.of, int) or told.of not in run.unpriced or not isinstance(usd, int | float):
            return
        run.unpriced.discard(told.of)
        for group in self._of(row, run.asked[told.of][0]):
            group.usd = (group.usd or 0.0) + usd
            group.unpriced -= 1

    def _worked(self, row: Row, told: Told, run: Standing, *, counted: bool) -> None:
        if row.kind == "tool-call":
            tool = str(told.tool_name or UNKNOWN)
            names = {"day": row.at[:10], "agent": self._agents.get(row.run, UNKNOWN), "tool": tool}
            call = Call([names.get(self.by, run.model or UNKNOWN)], counted, tool, told.tool_call_id)
            run.calls[row.seq] = call
            for group in self._groups(call):
                group.calls += 1
                group.unanswered += 1
        elif row.kind == "attempt":
            if (tried := _known(run, told.of)) is not None:
                tried.began = row.at
        elif not (run.forked and _marked(row.annotations)) and (found := _call(run, told)) is not None:
            first = found.shared or found
            again, found.done, first.answered = first.answered, True, True
            failed = told.status == "error" or told.outcome in FAILED
            taken = run.forked and (told.copy_of is not None if row.version > 1 else _marked(told.before))
            took = between_ms(found.began, row.at)
            for group in self._groups(found):
                group.unanswered -= not again
                group.calls += again - taken
                group.errors += failed and not taken
                if took is not None and self.by == "tool":
                    group.latencies_ms.append(took)

    def _groups(self, call: Call) -> list[Numbers]:
        return [self.groups.setdefault(name, Numbers()) for name in call.groups] if call.counted else []


def _line(run: Standing | None) -> Iterator[Standing]:
    """Yield the state of a run, then of its base, of the base's base, and so on."""
    while run is not None:
        yield run
        run = run.base


def _holder(run: Standing, seq: int) -> Standing:
    """Return the state of the run that wrote the entry `seq` of a run: the run itself or one of its bases."""
    while run.base is not None and seq <= run.shared:
        run = run.base
    return run


def _header(run: Standing, seq: Any) -> str:
    """Return the model named in the entry `seq`, a request header (model, instructions and tools of requests)."""
    return _holder(run, seq).models.get(seq, UNKNOWN) if isinstance(seq, int) else UNKNOWN


def _model(run: Standing, seq: int) -> str:
    """Return the model that a run used when it wrote the entry `seq`."""
    run = _holder(run, seq)
    return next((model for since, model in reversed(run.spoke) if since <= seq), "")


def _speaks(run: Standing, seq: int, model: str) -> None:
    if model != run.model:
        run.model = model
        run.spoke.append((seq, model))


def _marked(said: str | msgspec.Raw | None) -> bool:
    """Return whether `said`, JSON notes stored with an entry, mark it as a copy of another entry."""
    try:
        return said is not None and _MARK.decode(said).origin is not None
    except (msgspec.MsgspecError, RecursionError):
        return False


def _known(run: Standing, seq: Any) -> Call | None:
    """Return the tool call at this seq of a run, or of its base if the run shares that entry; `None` for no call."""
    if not isinstance(seq, int):
        return None
    found = run.calls.get(seq)
    if found is None and (first := _holder(run, seq).calls.get(seq)) is not None:
        found = run.calls[seq] = Call(first.groups, first.counted, first.tool, first.id, first)
    return found


def _call(run: Standing, told: Told) -> Call | None:
    """Return the call of a result: by seq or id, else the oldest without a result; `None` if it came too late."""
    if told.outcome == "late":
        return None
    if isinstance(told.call, int):
        found = _known(run, told.call)
        return found if found is not None and not found.done else None
    waiting = [call for call in run.calls.values() if not call.done]
    named = [call for call in waiting if told.tool_call_id is not None and call.id == told.tool_call_id]
    return next(iter(named or [call for call in waiting if call.id is None] or waiting), None)


def between_ms(began: str, ended: str) -> float | None:
    """Return the milliseconds between two stored times; `None` if one of them is missing or cannot be parsed."""
    try:
        return round((utc_time(ended) - utc_time(began)).total_seconds() * 1000, 3) if began else None
    except ValueError:
        return None


def _row_time(at: datetime | str | None) -> str:
    """Return a time as text, such as `2026-01-01T00:00:00.000000Z`; `""` for none. Raises ValueError for other text."""
    if not at:
        return ""
    found = datetime.fromisoformat(at) if isinstance(at, str) else at
    return utc_text(found if found.tzinfo is not None else found.replace(tzinfo=UTC))


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Return a percentile of sorted values by the nearest-rank method; `None` if there are no values."""
    return ordered[ceil(len(ordered) * percent / 100) - 1] if ordered else None


async def stats(
    store: Store,
    by: By,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    session: str | None = None,
) -> dict[str, Numbers]:
    """Return the counts of a record for each group, by the name of the group, such as a day or a model.

    Cost: reads all entries of the counted kinds, in pages.

    Args:
        by: what to group by.
        since: requests and calls before it are not counted; a text is a day or a time in ISO format, UTC by default.
        until: requests and calls at this time or later are not counted; same form as `since`.
        session: only runs of this session (conversation) are counted, child runs too; `None` for all sessions.

    Raises:
        ValueError: a text is not a time, or `by` is none of its values.
    """
    if by not in get_args(By):
        raise ValueError(f"stats cannot be made by {by!r:.60}; expected one of {', '.join(map(repr, get_args(By)))}.")
    since, until = _row_time(since), _row_time(until)
    begins = [(str(run), base_in(str(content))) for run, content in (await store.sql(BASES)).rows]
    bases = {run: base for run, base in begins if base is not None}
    agents = await agents_of(store, session)
    found = Stats(by, agents, since, until, bases)
    pos = 0
    while rows := (await store.sql(ROWS, (pos, PAGE))).rows:
        for row in rows:
            if session is None or row[1] in agents:
                found.add(Row(*row))
        pos = rows[-1][0]
    return dict(sorted(found.groups.items()))
