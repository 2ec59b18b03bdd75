"""An index of the runs and sessions of a record, for lists with counts, tokens, cost, outcome and tools.

A record is the store of all runs of agents, and a session is the runs of one conversation. The `pos` of an entry is its
number in the record. The index is a database of this process, on disk if it does not fit in memory. The record does not
keep it, and no text of a message is in it. An update reads only the entries after the last pos in the index, and
removes pruned runs.
"""

import time
from collections.abc import Collection, Sequence
from typing import Any

import apsw
from anyio import Lock

from gesta.decide.waiting import BEGUN_BY
from gesta.errors import GestaError, RecordError
from gesta.integrity.tombstones import SESSION
from gesta.kinds import BeginContent, EndContent
from gesta.log.journal import read
from gesta.state.calls import NOT_FAILED
from gesta.store import Store
from gesta.stores.counted import READ, USAGE, WROTE
from gesta.stores.postgres_tables import rewritten

AT_ONCE = 10_000
"""Number of entries that one query reads."""
ASKS = tuple(dict.fromkeys(kind.value for kind in BEGUN_BY.values() if kind is not None))
"""Kinds of entries that ask somebody for something. A turn without any of them cannot be waiting."""

TABLES = """
CREATE TABLE runs(
    id INTEGER PRIMARY KEY, run TEXT UNIQUE, session TEXT, name TEXT, agent TEXT, parent TEXT, base INTEGER,
    at TEXT, pos INTEGER, head INTEGER, last_at TEXT, last_pos INTEGER, root INTEGER DEFAULT 1,
    messages INTEGER, calls INTEGER, errors INTEGER, answers INTEGER,
    tokens_in INTEGER, tokens_out INTEGER, unknown_usage INTEGER, usd REAL, priced INTEGER,
    turn INTEGER, asks INTEGER, ended INTEGER, reason TEXT
);
CREATE INDEX of_session ON runs(session);
CREATE INDEX of_agent ON runs(agent);
CREATE TABLE sessions(
    session TEXT PRIMARY KEY, at TEXT, last_at TEXT, last_pos INTEGER, runs INTEGER, below INTEGER, entries INTEGER,
    messages INTEGER, calls INTEGER, errors INTEGER, answers INTEGER, tokens_in INTEGER, tokens_out INTEGER,
    unknown_usage INTEGER, usd REAL, priced INTEGER, seconds REAL, open INTEGER, asks INTEGER, reason TEXT,
    waits INTEGER DEFAULT 0, alive INTEGER DEFAULT 0, looked INTEGER DEFAULT 0
);
CREATE INDEX open_sessions ON sessions(last_pos) WHERE open;
CREATE TABLE tools(name TEXT, run INTEGER, calls INTEGER, PRIMARY KEY(name, run)) WITHOUT ROWID;
CREATE TEMP TABLE touched(session TEXT PRIMARY KEY);
CREATE TEMP TABLE chosen(session TEXT PRIMARY KEY);
"""


FACTS = f"""WITH read AS MATERIALIZED (
    SELECT run, seq, pos, kind, at,
        CASE WHEN kind = 'chat-completion' THEN {USAGE} END AS usage,
        CASE WHEN kind = 'begin' THEN json_extract(content, '$.opened') END AS opened,
        CASE WHEN kind = 'begin' THEN json_extract(content, '$.role') WHEN kind = 'end' THEN
            (SELECT json_extract(begun.content, '$.role') FROM entries AS begun
                WHERE begun.run = entries.run AND begun.seq = entries.span) END AS role,
        CASE WHEN kind = 'tool-result' THEN coalesce(json_extract(content, '$.outcome'),
            json_extract(content, '$.status'), 'ok') END AS outcome,
        CASE WHEN kind = 'fault' THEN coalesce(json_extract(content, '$.error.type'), '') END AS fault,
        CASE WHEN kind = 'budget' AND json_type(content, '$.spent.usd') IN ('integer', 'real', 'number')
            THEN (SELECT CAST(json_extract(entries.content, '$.spent.usd') AS DOUBLE PRECISION) FROM entries AS asked
                WHERE asked.run = entries.run AND asked.seq = CAST(json_extract(entries.content, '$.of') AS INTEGER)
                AND asked.kind = 'request') END AS usd
    FROM entries WHERE {{where}}
),
counted AS (
    SELECT read.*, CASE WHEN usage IS NOT NULL THEN {READ} END AS tokens_in,
        CASE WHEN usage IS NOT NULL THEN {WROTE} END AS tokens_out
    FROM read
),
known AS (
    SELECT run, max(json_extract(opened, '$.session')) AS session, max(json_extract(opened, '$.name')) AS name,
        max(CASE WHEN opened IS NOT NULL THEN at END) AS at, max(json_extract(opened, '$.parent_run')) AS parent,
        max(CASE WHEN json_extract(opened, '$.base') IS NOT NULL THEN 1 END) AS base,
        min(pos) AS pos, max(seq) AS head, max(pos) AS last_pos,
        count(*) FILTER (WHERE kind IN ('user', 'assistant')) AS messages,
        count(*) FILTER (WHERE kind = 'tool-call') AS calls,
        count(*) FILTER (WHERE fault NOT IN ({", ".join(f"'{each}'" for each in NOT_FAILED)}) OR (kind = 'tool-result'
            AND outcome IN ('error', 'interrupted', 'unknown'))) AS errors,
        count(*) FILTER (WHERE kind = 'chat-completion') AS answers,
        sum(CASE WHEN tokens_out IS NOT NULL THEN tokens_in END) AS tokens_in,
        sum(CASE WHEN tokens_in IS NOT NULL THEN tokens_out END) AS tokens_out,
        count(*) FILTER (WHERE kind = 'chat-completion' AND (tokens_in IS NULL OR tokens_out IS NULL)) AS unknown_usage,
        sum(usd) AS usd, count(usd) AS priced,
        max(CASE WHEN kind = 'begin' AND role = 'turn' THEN seq END) AS turn,
        max(CASE WHEN kind IN ({", ".join(f"'{kind}'" for kind in ASKS)}) THEN seq END) AS asks,
        max(CASE WHEN kind = 'end' AND role = 'turn' THEN seq END) AS ended
    FROM counted GROUP BY run
)
SELECT known.run, known.session, name, parent, coalesce(base, 0), known.at, known.pos, head, final.at, last_pos,
    messages, calls, errors, answers, coalesce(tokens_in, 0), coalesce(tokens_out, 0), unknown_usage, usd, priced,
    turn, asks, over.span, CASE WHEN ended IS NULL THEN NULL ELSE coalesce(json_extract(over.content, '$.reason'),
        CASE WHEN json_extract(over.content, '$.status') = 'error' THEN 'failed' ELSE 'answered' END) END, final.digest
FROM known JOIN entries AS final ON final.run = known.run AND final.seq = known.head
LEFT JOIN entries AS over ON over.run = known.run AND over.seq = known.ended"""  # noqa: S608 - constants
TOOLS = """SELECT run, json_extract(content, '$.tool_name'), count(*) FROM entries
    WHERE {where} AND kind = 'tool-call' AND content IS NOT NULL GROUP BY 1, 2"""
BETWEEN = "pos > {} AND pos <= {}"

_SUMMED = ("messages", "calls", "errors", "answers", "tokens_in", "tokens_out", "unknown_usage", "priced")
_COLUMNS = """run, session, name, parent, base, at, pos, head, last_at, last_pos, messages, calls, errors, answers,
    tokens_in, tokens_out, unknown_usage, usd, priced, turn, asks, ended, reason, agent"""
ADD = f"""INSERT INTO runs({_COLUMNS}) VALUES({", ".join("?" * 23)}, CASE WHEN ?3 GLOB '*#[0-9]*'
    THEN substr(?3, 1, instr(?3, '#') - 1) ELSE ?3 END)
ON CONFLICT(run) DO UPDATE SET head = max(head, excluded.head), last_at = excluded.last_at,
    last_pos = excluded.last_pos, {", ".join(f"{name} = {name} + excluded.{name}" for name in _SUMMED)},
    usd = CASE WHEN excluded.usd IS NULL THEN usd ELSE coalesce(usd, 0) + excluded.usd END,
    turn = coalesce(excluded.turn, turn), asks = coalesce(excluded.asks, asks),
    ended = coalesce(excluded.ended, ended), reason = coalesce(excluded.reason, reason)"""
ADD_TOOL = """INSERT INTO tools SELECT ?2, id, ?3 FROM runs WHERE run = ?1
    ON CONFLICT(name, run) DO UPDATE SET calls = calls + excluded.calls"""
TURN = "UPDATE runs SET turn = ?, ended = ?, reason = ? WHERE run = ?"
BASE, TURNED = 4, 19
"""Places in a row of `FACTS`: whether the run is a fork, and the seq of the last turn that its own entries begin."""
OPEN = "(turn IS NOT NULL AND coalesce(ended, 0) < turn)"
ROOTS = """UPDATE runs SET root = parent IS NULL OR NOT EXISTS (
        SELECT 1 FROM runs AS above WHERE above.run = runs.parent AND above.session = runs.session)
    WHERE session IN touched"""
GATHER = f"""INSERT OR REPLACE INTO sessions SELECT session, min(at), max(last_at), max(last_pos), count(*),
        sum(1 - root), sum(head), {", ".join(f"sum({name})" for name in _SUMMED[:-1])}, sum(usd), sum(priced),
        (julianday(max(last_at)) - julianday(min(at))) * 86400, max(root AND {OPEN}),
        max({OPEN} AND (base OR coalesce(asks, 0) > turn)),
        (SELECT ended.reason FROM runs AS ended WHERE ended.session = runs.session AND ended.root
            AND ended.reason IS NOT NULL ORDER BY ended.last_at DESC, ended.pos DESC LIMIT 1), 0, 0, 0
    FROM runs WHERE session IN touched GROUP BY session"""  # noqa: S608


class RunIndex:
    """An index of the runs and sessions of one record. `update` adds new entries to it."""

    def __init__(self, store: Store, at_once: int = AT_ONCE) -> None:
        self.store, self._at_once = store, at_once
        self.pos = 0
        """The pos up to which the index contains all entries."""
        self.whole = False
        """Whether an update has reached the end of the record at least once."""
        self._rewritten = store.info.sql == "postgresql"
        self._lock = Lock()
        self._clear(0)

    def _clear(self, last: int) -> None:
        self.database = apsw.Connection("")  # a temporary file without a name, used if memory does not suffice
        self.all(f"PRAGMA cache_size = -12000; PRAGMA journal_mode = MEMORY; {TABLES}")
        self.pos, self.whole = 0, False
        self._mark: tuple[Any, ...] = (0, None)  # pos and digest of the last entry that is in the index
        self._turned = set[str]()  # runs with a turn that their own entries begin
        self._begun = last  # runs whose pruning is reported up to here were gone before any entry was read

    def all(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query on the tables of the index, such as `runs` and `sessions`."""
        return self.database.execute(query, values).fetchall()

    def choose(self, sessions: Collection[str]) -> None:
        """Replace the rows of the table `chosen` by the names of these sessions, for queries that join it."""
        self.all("DELETE FROM chosen")
        self.database.executemany("INSERT OR IGNORE INTO chosen VALUES(?)", [(each,) for each in sessions])

    async def update(self, seconds: float | None = None) -> float:
        """Add new entries to the index. Return the share of the record's entries that it now contains, from 0 to 1.

        Args:
            seconds: time after which no more entries are added; `None` adds all.

        Cost: 5 us for each new entry, in the store; the first update reads all entries.
        """
        until = None if seconds is None else time.monotonic() + seconds
        async with self._lock:
            last = await self.store.last()
            if not self.pos or last < self.pos or (last > self.pos and await self._forgotten()):
                self._clear(last)
            while self.pos < last and (until is None or time.monotonic() < until):
                to = min(last, self.pos + self._at_once)
                if await self._read(self.pos, to) and to > self._begun:
                    self._clear(last)
            self.whole = self.whole or self.pos >= last
            return self.pos / last if last else 1.0

    async def _forgotten(self) -> bool:
        """Return whether another entry is in the place of the last one that is in the index.

        This is so after a crash of a server that did not wait for its disk.
        """
        pos, digest = self._mark
        found = (await self.store.sql("SELECT digest FROM entries WHERE pos = ?", (pos,))).rows
        return any(each != digest for (each,) in found)

    async def take(self, runs: Collection[str]) -> None:
        """Add all entries of the runs with these ids. Called instead of `update`, to index only these runs."""
        some = [*runs]
        for start in range(0, len(some), 200):
            part = some[start : start + 200]
            await self._add(f"run IN ({', '.join('?' * len(part))})", part)

    async def _read(self, after: int, until: int) -> bool:
        """Add the entries after the pos `after` up to `until`. Return whether one of them reports a removed run.

        An entry that is not valid JSON makes a query fail. Then the range is halved until only that entry is left out.
        """
        try:
            pruned = await self._add(BETWEEN.format(int(after), int(until)))
        except RecordError:
            if until - after > 1:
                middle = (after + until) // 2
                return await self._read(after, middle) | await self._read(middle, until)
            await self.store.last()  # raises if the store itself fails
            pruned = False
        self.pos = until
        return pruned

    async def _add(self, where: str, values: Sequence[Any] = ()) -> bool:
        rows = [row for row in await self._asked(FACTS, where, values) if isinstance(row[0], str)]
        self._mark = max([self._mark, *((row[9], row[-1]) for row in rows)], key=lambda mark: mark[0])
        tools = [row for row in await self._asked(TOOLS, where, values) if isinstance(row[1], str)]
        self._turned.update(row[0] for row in rows if row[TURNED] is not None)
        forked = [await self._shared_turn(row[0]) for row in rows if row[0] not in self._turned and self._is_fork(row)]
        with self.database:
            self.database.executemany(ADD, [row[:-1] for row in rows])
            self.all("DELETE FROM runs WHERE session = ? OR session IS NULL", (SESSION,))
            self.database.executemany(ADD_TOOL, tools)
            self.database.executemany(TURN, forked)
            self.all("DELETE FROM touched")
            self.database.executemany(
                "INSERT OR IGNORE INTO touched SELECT session FROM runs WHERE run = ?", [(row[0],) for row in rows]
            )
            self.all(ROOTS)
            circles = "SELECT min(id) FROM runs WHERE session IN touched GROUP BY session HAVING max(root) = 0"
            self.all(f"UPDATE runs SET root = 1 WHERE id IN ({circles})")  # noqa: S608 - a stranger may have made one
            self.all(GATHER)
        return any(row[1] == SESSION for row in rows)

    def _is_fork(self, row: Sequence[Any]) -> bool:
        return bool(row[BASE] or self.all("SELECT 1 FROM runs WHERE run = ? AND base", (row[0],)))

    async def _shared_turn(self, run: str) -> tuple[int | None, int | None, str | None, str]:
        """Return the seqs of the last turn of a fork that was begun and of the last that ended, and how that one ended.

        A fork may go on with a turn that its base began. All are `None` if its entries cannot be read.
        """
        try:
            entries = await read(self.store, run)
        except GestaError:
            await self.store.last()  # raises if the store itself fails
            return None, None, None, run
        turns = {each.seq for each in entries if isinstance(each.content, BeginContent) and each.content.role == "turn"}
        ended, reason = None, None
        for each in entries:
            if each.span in turns and isinstance(each.content, EndContent):
                how = "failed" if each.content.status == "error" else "answered"
                ended, reason = each.span, each.content.reason or how
        return max(turns, default=None), ended, reason, run

    async def _asked(self, query: str, where: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        text = query.format(where=where)
        rows = (await self.store.sql(rewritten(text) if self._rewritten else text, values)).rows
        return [tuple(sayable(cell) if isinstance(cell, str) else cell for cell in row) for row in rows]


def sayable(text: str) -> str:
    """Return a text that SQLite can hold. A lone surrogate (from a byte that is not UTF-8) becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
