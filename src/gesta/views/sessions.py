"""The sessions of a record: who took part, when, and the state of each.

The state of a session is that of the last turns of its root runs. It is read from the last entry of each run, for a
hundred runs at a time; only a run with an open turn is read as a whole.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from gesta.codec.rows import decode_content
from gesta.decide.waiting import Waiting
from gesta.entry import utc_time
from gesta.errors import BrokenRecord
from gesta.integrity.tombstones import SESSION
from gesta.kinds import BeginContent, Content, EndContent, UserContent
from gesta.log.journal import read
from gesta.record.waits import state_of, waits_of
from gesta.store import RunRow, Store

AT_ONCE = 100
"""Number of runs in one query."""
TITLE = 200
"""Greatest number of characters in a title."""
FIRST = 4
"""Number of first entries of a run in which its first message is looked for."""
COUNTS = """SELECT run, kind, count(*) FROM entries
    WHERE run IN ({}) AND kind IN ('user', 'assistant', 'tool-call') GROUP BY run, kind"""
LAST = """SELECT e.run, e.content, b.content
    FROM (SELECT run, max(seq) AS seq FROM entries WHERE run IN ({}) GROUP BY run) h
    JOIN entries e ON e.run = h.run AND e.seq = h.seq
    LEFT JOIN entries b ON b.run = e.run AND b.seq = e.span"""
TURNS = """SELECT DISTINCT run FROM entries WHERE run IN ({}) AND kind = 'begin' AND content LIKE '%"role":"turn"%'"""
FIRSTS = f"""SELECT run, content FROM entries
    WHERE run IN ({{}}) AND kind = 'user' AND seq <= {FIRST} ORDER BY pos DESC"""  # noqa: S608


class Session(Struct, frozen=True, kw_only=True):
    """One conversation, or one start of an application."""

    name: str
    stands: Literal["open", "waiting", "ended", "recorded"]
    """`open`: a turn is running, or was left open. `waiting`: a turn waits, see `waiting`. `ended`: its last turn has
    ended. `recorded`: there is no turn."""
    reason: str | None
    """For an ended session: how its last turn ended."""
    waiting: tuple[Waiting, ...]
    """The waits of its turns, also in the runs below."""
    title: str
    """Beginning of the first message, at most 200 characters; empty if there is no message."""
    first_at: datetime
    last_at: datetime
    runs: tuple[str, ...]
    """Ids of its root runs, in the order in which they began."""
    agents: tuple[str, ...]
    """Names of these runs, which are names of agents, or names that a program gave."""
    below: int
    """Number of runs below the root runs."""
    entries: int
    messages: int
    """Number of messages of people and of answers."""
    calls: int
    """Number of tool calls, also in the runs below."""


async def sessions(store: Store, now: datetime, limit: int | None = None) -> list[Session]:
    """Return the sessions of a record, the last active session first.

    Args:
        limit: greatest number of sessions; `None` returns all.

    Cost: reads the list of all runs; for the returned sessions, some queries for each hundred runs, and all entries
    of runs with an open turn.
    """
    rows: dict[str, list[RunRow]] = {}
    for row in await store.runs():
        if row.session != SESSION:
            rows.setdefault(row.session, []).append(row)
    newest = sorted(rows.values(), key=lambda runs: max((row.last_at, row.pos) for row in runs), reverse=True)[:limit]
    known = await _known(store, newest)
    return [await _session(store, runs, known, now) for runs in newest]


class Known(Struct):
    """Facts about some runs, by run."""

    counts: dict[str, dict[str, int]]
    ended: dict[str, str]
    """How the last turn ended, for runs whose last entry is the end of a turn."""
    turns: set[str]
    """Runs that have a turn."""
    titles: dict[str, str]


async def _known(store: Store, found: Sequence[Sequence[RunRow]]) -> Known:
    """Read the facts for a list of sessions, for many runs at once."""
    known = Known({}, {}, set(), {})
    every = [row.run for rows in found for row in rows]
    roots = [row.run for rows in found for row in _roots(rows)]
    async for run, kind, count in _asked(store, COUNTS, every):
        known.counts.setdefault(run, {})[kind] = int(count)
    async for run, last, begin in _asked(store, LAST, roots):
        end, opened = _content(last), _content(begin)
        if isinstance(end, EndContent) and isinstance(opened, BeginContent) and opened.role == "turn":
            known.ended[run] = end.reason or ("answered" if end.status == "success" else "failed")
    async for (run,) in _asked(store, TURNS, [run for run in roots if run not in known.ended]):
        known.turns.add(run)
    async for run, content in _asked(store, FIRSTS, roots):
        first = _content(content)
        if isinstance(first, UserContent):
            known.titles[run] = first.value
    return known


async def _asked(store: Store, query: str, runs: Sequence[str]) -> AsyncIterator[tuple[Any, ...]]:
    for start in range(0, len(runs), AT_ONCE):
        some = runs[start : start + AT_ONCE]
        for row in (await store.sql(query.format(", ".join("?" * len(some))), some)).rows:
            yield row


def _content(text: str | None) -> Content | None:
    """Return a content; `None` if it was erased, or cannot be read without its large values."""
    try:
        return decode_content(text, {}) if text is not None else None
    except BrokenRecord:
        return None


def _roots(rows: Sequence[RunRow]) -> list[RunRow]:
    ids = {row.run for row in rows}
    return [row for row in rows if row.parent_run not in ids] or list(rows[:1])  # a stranger may have made a circle


async def _session(store: Store, rows: Sequence[RunRow], known: Known, now: datetime) -> Session:
    roots = _roots(rows)
    stands: Literal["open", "waiting", "ended", "recorded"] = "recorded"
    reason, waiting = None, list[Waiting]()
    for root in sorted(roots, key=lambda row: (row.last_at, row.pos)):
        if root.run in known.ended:
            stands, reason = "ended" if stands == "recorded" else stands, known.ended[root.run]
        elif root.run in known.turns and (await state_of(store, root.run)).open:
            waiting += [each for each in await waits_of(store, root.run, now) if each.what != "running"]
            stands = "waiting" if waiting else "open"
    counts = [known.counts.get(row.run, {}) for row in rows]
    return Session(
        name=rows[0].session,
        stands=stands,
        reason=reason if stands == "ended" else None,
        waiting=tuple(waiting),
        title=(known.titles.get(roots[0].run) or await _title(store, roots[0]))[:TITLE],
        first_at=_time(store, min(rows, key=lambda row: row.at), "at"),
        last_at=_time(store, max(rows, key=lambda row: row.last_at), "last_at"),
        runs=tuple(root.run for root in roots),
        agents=tuple(dict.fromkeys(root.name for root in roots)),
        below=len(rows) - len(roots),
        entries=sum(row.head for row in rows),
        messages=sum(each.get("user", 0) + each.get("assistant", 0) for each in counts),
        calls=sum(each.get("tool-call", 0) for each in counts),
    )


def _time(store: Store, row: RunRow, name: Literal["at", "last_at"]) -> datetime:
    try:
        return utc_time(getattr(row, name))
    except ValueError as error:
        raise BrokenRecord(store.info.address, f"a time of run {row.run} cannot be read ({error})") from error


async def _title(store: Store, row: RunRow) -> str:
    """Return the first message of a run.

    Needed only if the message is a large value, or is shared with the base of a fork.
    """
    first = await read(store, row.run, 0, FIRST)
    return next((entry.content.value for entry in first if isinstance(entry.content, UserContent)), "")
