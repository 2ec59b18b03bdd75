"""Lists of sessions, from the index of runs: a page of the sessions that fit a filter, and sums over all of them.

A record is the store of all runs of agents. A session is the runs of one conversation. A turn is one message with all
that follows until its answer. A root run is one that no other run started. A fork is a run that begins with the entries
of another run. A lease is the right of one process to write a run.

Only the sessions on the page are read from the record itself: their titles, and what their open turns wait for. A
filter by "waiting" or "open" also reads each session whose open turn may wait, if the session has changed.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from gesta.codec.rows import decode_content
from gesta.decide.waiting import Waiting
from gesta.entry import utc_time
from gesta.errors import BrokenRecord
from gesta.integrity.tombstones import SESSION
from gesta.kinds import UserContent
from gesta.log.journal import read
from gesta.record.waits import answers_sent, waits_on_record, with_sent
from gesta.store import Store
from gesta.stores.run_index import OPEN, RunIndex, sayable
from gesta.views.sessions import TITLE, RunOf, Session, SessionFilter, SessionList, Standing, Totals

FIRST = 12
"""Number of entries at the beginning of a run that are searched for its first message."""
FIRSTS = f"""SELECT run, content FROM entries
    WHERE run IN ({{}}) AND kind = 'user' AND seq <= {FIRST} ORDER BY pos DESC"""  # noqa: S608
OWNERS = "SELECT run, owner FROM leases WHERE owner IS NOT NULL AND run IN ({})"
TREE = 50
"""Greatest number of runs that a list shows of one session."""
STANDS = """CASE WHEN open AND waits THEN 'waiting' WHEN open THEN 'open' ELSE coalesce(reason, 'recorded') END"""
ORDERS = {
    "newest": "alive DESC, last_at DESC, last_pos DESC",
    "cost": "usd DESC NULLS LAST, last_at DESC",
    "tokens": "tokens_in + tokens_out DESC, last_at DESC",
    "duration": "seconds DESC, last_at DESC",
    "entries": "entries DESC, last_at DESC",
}
ROW = f"""session, {STANDS}, reason, alive, at, last_at, runs, below, entries, messages, calls, errors,
    tokens_in, tokens_out, unknown_usage, usd, answers - priced, open AND asks"""
OF_SESSION = f"""SELECT session, run, name, parent, root, {OPEN}, ended, reason, head, pos FROM runs
    WHERE session IN ({{}}) ORDER BY pos"""  # noqa: S608


async def sessions(store: Store, now: datetime, limit: int | None = None) -> list[Session]:
    """Return the sessions of a record, the session with the latest entry first.

    Args:
        now: the present time, which decides whether a timer has ended or an approval request has expired.
        limit: greatest number of sessions; `None` returns all.

    Raises:
        ValueError: `limit` is negative or no whole number.

    Cost: reads the list of all runs, and all entries of the returned sessions in one pass. Runs with an open turn that
    may wait are read once more.
    """
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise ValueError(f"sessions(limit={limit!r:.60}): expected a whole number from 0 on, or None.")
    last: dict[str, tuple[str, int]] = {}
    runs: dict[str, list[str]] = {}
    for row in await store.runs():
        if row.session != SESSION:
            last[row.session] = max(last.get(row.session, ("", 0)), (row.last_at, row.pos))
            runs.setdefault(row.session, []).append(row.run)
    newest = sorted(last, key=last.__getitem__, reverse=True)[:limit]
    index = RunIndex(store)
    await index.take([run for session in newest for run in runs[session]])
    found = {each.name: each for each in (await listed(index, SessionFilter(limit=None), now)).sessions}
    return [found[session] for session in newest if session in found]


async def listed(
    index: RunIndex, wanted: SessionFilter, now: datetime, chosen: Collection[str] | None = None
) -> SessionList:
    """Return one page of the sessions that fit a filter, and the sums over all sessions that fit.

    Args:
        now: the present time, which decides whether a timer has ended or an approval request has expired.
        chosen: names of the sessions among which to list; `None` for all.
    """
    if wanted.stands in ("waiting", "open"):
        await _look(index, now)
    await _enliven(index)
    where, values = _tests(index, wanted, chosen)
    ((number, *sums),) = index.all(
        f"""SELECT count(*), total(runs), total(entries), total(tokens_in), total(tokens_out), sum(usd),
            total(answers - priced) FROM sessions WHERE {where}""",  # noqa: S608 - tests of ours
        values,
    )
    whole = [int(each) for each in (*sums[:4], sums[5])]
    totals = Totals(
        sessions=number, runs=whole[0], entries=whole[1], tokens_in=whole[2], tokens_out=whole[3], usd=sums[4],
        unpriced=whole[4],
    )  # fmt: skip
    rows = index.all(
        f"SELECT {ROW} FROM sessions WHERE {where} ORDER BY {ORDERS[wanted.sort]} LIMIT ? OFFSET ?",  # noqa: S608
        (*values, -1 if wanted.limit is None else min(wanted.limit, 2**63 - 1), min(wanted.after, 2**63 - 1)),
    )
    return SessionList(sessions=await _sessions(index, rows, now), totals=totals)


def _tests(index: RunIndex, wanted: SessionFilter, chosen: Collection[str] | None) -> tuple[str, list[Any]]:
    """Return an SQL condition that holds for the wanted sessions, and the values of its parameters.

    Args:
        chosen: names of the sessions among which to list; `None` for all.
    """
    tests: list[tuple[str, Any]] = []
    if wanted.agent:
        tests.append(("session IN (SELECT session FROM runs WHERE agent = ?)", wanted.agent))
    if wanted.tool:
        used = "SELECT runs.session FROM tools JOIN runs ON runs.id = tools.run WHERE tools.name = ?"
        tests.append((f"session IN ({used})", wanted.tool))
    if wanted.stands == "running":
        tests.append(("alive = ?", 1))
    elif wanted.stands == "ended":
        tests.append(("NOT open AND reason IS NOT ?", None))
    elif wanted.stands:
        tests.append((f"{STANDS} = ?", wanted.stands))
    if wanted.errors:
        tests.append(("(errors > 0 OR (NOT open AND reason = ?))", "failed"))
    if wanted.cost is not None:
        tests.append(("usd >= ?", wanted.cost))
    if wanted.since:
        tests.append(("last_at >= ?", wanted.since))
    if wanted.until:
        tests.append(("at < ?", wanted.until))
    if chosen is not None:
        index.choose(chosen)
        tests.append(("session IN chosen AND ?", 1))
    given = [sayable(value) if isinstance(value, str) else value for _, value in tests]
    return " AND ".join(test for test, _ in tests) or "true", given


async def _look(index: RunIndex, now: datetime) -> None:
    """Note in the index which sessions wait, for example for an approval. Only sessions with new entries are read."""
    asked = index.all("SELECT session, last_pos FROM sessions WHERE open AND asks AND looked < last_pos")
    open_ = await _open(index, [session for session, _ in asked])
    found = await _waits(index.store, dict(zip((session for session, _ in asked), open_, strict=True)), now)
    for session, last in asked:
        waits = _told(found[session])
        looked = last if len(waits) == len(found[session]) else 0  # an answer about a running call may still come
        index.all("UPDATE sessions SET waits = ?, looked = ? WHERE session = ?", (bool(waits), looked, session))


async def _open(index: RunIndex, names: Sequence[str]) -> list[list[str]]:
    """Return for each session the ids of its root runs whose turn has not ended."""
    query = f"SELECT run FROM runs WHERE session = ? AND root AND {OPEN} ORDER BY last_at, pos"  # noqa: S608
    return [[run for (run,) in index.all(query, (name,))] for name in names]


async def _waits(store: Store, runs: Mapping[str, Sequence[str]], now: datetime) -> dict[str, list[Waiting]]:
    """Return for each session what the open turns of its runs wait for. Runs that cannot be read are left out.

    Args:
        runs: ids of the runs to look at, by session.
    """
    found = dict[str, list[Waiting]]()
    for session, several in runs.items():
        found[session] = []
        for run in several:
            with suppress(BrokenRecord):
                found[session] += await waits_on_record(store, run, now)
    sent = await answers_sent(store, {each.run for waits in found.values() for each in waits})
    return {session: with_sent(waits, sent) for session, waits in found.items()}


def _told(waits: Sequence[Waiting]) -> list[Waiting]:
    """Return the waits to show in a list. A call that may be running is shown only if a person sent an answer to it."""
    return [each for each in waits if each.what != "running" or each.answer_sent_at is not None]


async def _enliven(index: RunIndex) -> None:
    """Mark the sessions on which a running process works: it holds the lease of a run with an open turn."""
    runs = dict(
        index.all(f"SELECT run, session FROM runs WHERE {OPEN} ORDER BY last_pos DESC LIMIT 1000")  # noqa: S608
    )
    index.all("UPDATE sessions SET alive = 0 WHERE alive")
    if runs:
        query = OWNERS.format(", ".join("?" * len(runs)))
        owners = (await index.store.sql(query, [*runs])).rows
        gone = {owner: await index.store.gone(owner) for owner in {owner for _, owner in owners}}
        alive = {runs[run] for run, owner in owners if gone[owner] is False}
        index.database.executemany("UPDATE sessions SET alive = 1 WHERE session = ?", [(each,) for each in alive])


async def _sessions(index: RunIndex, rows: Sequence[tuple[Any, ...]], now: datetime) -> list[Session]:
    runs: dict[str, list[tuple[Any, ...]]] = {}
    for start in range(0, len(rows), 500):
        names = [row[0] for row in rows[start : start + 500]]
        for session, *run in index.all(OF_SESSION.format(", ".join("?" * len(names))), names):
            runs.setdefault(session, []).append(tuple(run))
    roots = {session: [run for run in of if run[3]] for session, of in runs.items()}
    titles = await _titles(index.store, [of[0][0] for of in roots.values()])
    open_ = {row[0]: [run[0] for run in roots[row[0]] if row[17] and run[4]] for row in rows}
    waits = await _waits(index.store, open_, now)
    found = []
    for row in rows:
        name, of = row[0], roots[row[0]]
        waiting = _told(waits[name])
        stands, reason = _standing("waiting" if waiting else row[1] if row[1] != "waiting" else "open")
        found.append(
            Session(
                name=name, stands=stands, reason=reason, running=bool(row[3]), waiting=tuple(waiting),
                title=titles[of[0][0]], first_at=_time(index, name, row[4]), last_at=_time(index, name, row[5]),
                runs=tuple(run[0] for run in of), agents=tuple(dict.fromkeys(run[1] for run in of)), below=row[7],
                tree=_tree(runs[name]), entries=row[8], messages=row[9], calls=row[10], errors=row[11],
                tokens_in=row[12], tokens_out=row[13], unknown_usage=row[14], usd=row[15], unpriced=row[16],
            )
        )  # fmt: skip
    return found


def _standing(word: str) -> tuple[Standing, str | None]:
    """Return the state of a session or run (such as `waiting` or `ended`), and the reason if it has ended.

    Args:
        word: the state from the index: `waiting`, `open`, `recorded`, or the reason of the last end.
    """
    match word:
        case "waiting" | "open" | "recorded":
            return word, None
        case _:
            return "ended", word


def _tree(runs: Sequence[tuple[Any, ...]]) -> tuple[RunOf, ...]:
    if len(runs) < 2:
        return ()
    found = []
    for run, agent, parent, root, open_, ended, reason, head, _ in runs[:TREE]:
        stands, why = _standing("open" if open_ else reason if ended else "recorded")
        above = None if root else parent
        found.append(RunOf(run=run, agent=agent, parent=above, stands=stands, reason=why, entries=head))
    return tuple(found)


async def _titles(store: Store, runs: Sequence[str]) -> dict[str, str]:
    """Return the title of each run, by run: the beginning of its first message."""
    found = dict[str, str]()
    for start in range(0, len(runs), 100):
        some = runs[start : start + 100]
        for run, text in (await store.sql(FIRSTS.format(", ".join("?" * len(some))), some)).rows:
            try:
                content = decode_content(text, {}) if text is not None else None
            except BrokenRecord:
                continue
            if isinstance(content, UserContent):
                found[run] = str(content.value)[:TITLE]
    return {run: found[run] if found.get(run) else await _title(store, run) for run in runs}


async def _title(store: Store, run: str) -> str:
    """Return the title of a run by reading its first entries.

    The query of `_titles` does not find a message that is a large value, or that a fork shares with another run.
    """
    try:
        first = await read(store, run, 0, FIRST)
    except BrokenRecord:
        return ""
    return next((str(entry.content.value) for entry in first if isinstance(entry.content, UserContent)), "")[:TITLE]


def _time(index: RunIndex, session: str, text: str) -> datetime:
    try:
        return utc_time(text)
    except (ValueError, TypeError) as error:
        found = f"a time of session {session} cannot be read ({error})"
        raise BrokenRecord(index.store.info.address, found) from error
