"""The sessions of a record: who took part, when, and where each stands.

Where a session stands is where the last turns of its root runs stand. It is read from the last entry of each run; only
a run whose turn is open is read as a whole.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from gesta.decide.waiting import Waiting
from gesta.entry import utc_time
from gesta.integrity.tombstones import SESSION
from gesta.kinds import EndContent, UserContent
from gesta.log.journal import read
from gesta.record.waits import state_of, turn_ended, waits_of
from gesta.store import RunRow, Store

COUNTED = ("user", "assistant", "tool-call")
TITLE = 4
"""Entries of a run among which its first message is."""


class Session(Struct, frozen=True, kw_only=True):
    """One conversation, or one start of an application."""

    name: str
    stands: Literal["open", "waiting", "ended", "recorded"]
    """`open`: a turn is at work, or was left. `waiting`: a turn waits, see `waiting`. `recorded`: there is no turn."""
    reason: str | None
    """Of an ended one: how its last turn ended."""
    waiting: tuple[Waiting, ...]
    """What its turns wait for, also in runs below."""
    title: str
    """The first message; empty if there is none."""
    first_at: datetime
    last_at: datetime
    runs: tuple[str, ...]
    """Ids of its root runs, in the order in which they began."""
    agents: tuple[str, ...]
    """Names of those runs: of agents, or of what a program recorded."""
    below: int
    """Number of runs below them."""
    entries: int
    messages: int
    """Messages of people and answers."""
    calls: int
    """Tool calls, also those of runs below."""


async def sessions(store: Store, now: datetime, limit: int | None = None) -> list[Session]:
    """Return the sessions of a record, the one that was active last first.

    Args:
        limit: at most so many.

    Cost: a list of all runs; for each session that is returned, its counts and two rows of each root run, and the runs
    whose turn is open as a whole.
    """
    rows: dict[str, list[RunRow]] = {}
    for row in await store.runs():
        if row.session != SESSION:
            rows.setdefault(row.session, []).append(row)
    newest = sorted(rows.values(), key=lambda runs: max((row.last_at, row.pos) for row in runs), reverse=True)
    return [await _session(store, runs, now) for runs in newest[:limit]]


async def _session(store: Store, rows: list[RunRow], now: datetime) -> Session:
    ids = {row.run for row in rows}
    roots = [row for row in rows if row.parent_run not in ids]
    stands, reason, waiting = "recorded", None, list[Waiting]()
    for root in sorted(roots, key=lambda row: (row.last_at, row.pos)):
        if await turn_ended(store, root):
            reason = await _reason(store, root)
            stands = "ended" if stands == "recorded" else stands
        elif await _took_turns(store, root) and (await state_of(store, root.run)).open:
            waiting += [each for each in await waits_of(store, root.run, now) if each.what != "running"]
            stands = "waiting" if waiting else "open"
    counts = await _counts(store, ids)
    return Session(
        name=rows[0].session,
        stands=stands,  # type: ignore[arg-type] # the words above
        reason=reason if stands == "ended" else None,
        waiting=tuple(waiting),
        title=await _title(store, roots[0]),
        first_at=utc_time(min(row.at for row in rows)),
        last_at=utc_time(max(row.last_at for row in rows)),
        runs=tuple(root.run for root in roots),
        agents=tuple(dict.fromkeys(root.name for root in roots)),
        below=len(rows) - len(roots),
        entries=sum(row.head for row in rows),
        messages=counts.get("user", 0) + counts.get("assistant", 0),
        calls=counts.get("tool-call", 0),
    )


async def _took_turns(store: Store, row: RunRow) -> bool:
    query = """SELECT 1 FROM entries WHERE run = ? AND kind = 'begin' AND content LIKE '%"role":"turn"%' LIMIT 1"""
    return bool((await store.sql(query, (row.run,))).rows)


async def _reason(store: Store, row: RunRow) -> str | None:
    last = (await read(store, row.run, row.head - 1))[0].content
    if not isinstance(last, EndContent):
        return None
    return last.reason or ("answered" if last.status == "success" else "failed")


async def _title(store: Store, row: RunRow) -> str:
    """Return the first message of a run."""
    first = await read(store, row.run, 0, TITLE)
    return next((entry.content.value for entry in first if isinstance(entry.content, UserContent)), "")


async def _counts(store: Store, runs: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in runs:
        kinds = ", ".join(f"'{kind}'" for kind in COUNTED)
        query = f"SELECT kind, count(*) FROM entries WHERE run = ? AND kind IN ({kinds}) GROUP BY kind"  # noqa: S608
        for kind, count in (await store.sql(query, (run,))).rows:
            found[kind] = found.get(kind, 0) + int(count)
    return found
