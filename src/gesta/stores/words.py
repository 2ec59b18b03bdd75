"""Finds words in a record (the store of all runs) by a full-text index. Only a search updates the index.

A search first adds all new entries to the index. The index holds no text, only the places of each word. A large record
in a file keeps its index in the file. For all other records, each search makes the index again in memory. Pruning
(removing runs) deletes the index from the file, and the next search makes it again.

`seq` numbers the entries of one run (a conversation of an agent), `pos` all entries of the record.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from gesta.codec.rows import blob_names, from_row
from gesta.entry import Row
from gesta.errors import GestaError, RecordError
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Content,
    SystemContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.log.journal import entry_of
from gesta.prompt import observation_text
from gesta.store import Store
from gesta.stores.sqlite import InlineSqliteStore
from gesta.stores.sqlite_open import enter
from gesta.stores.tables import ROW, WORDS

KINDS = ("system", "user", "assistant", "chat-completion", "thought", "tool-call", "tool-result")
"""The kinds of entries in which words are found."""
SMALL = 5_000
"""Greatest number of entries of a record that does not keep its index in its file."""
LONGEST = 1_000_000  # greatest number of characters of one entry that are indexed
CHUNK = 2_000  # number of rows that one commit indexes, so that other processes can write in between
FORM = 1
"""The version of the index. A release with another version makes the index again."""
WAIT_MS = 5_000
OPENING, CLOSING = "\x02", "\x03"
"""Marks before and after each match in a snippet. In the text itself they become spaces."""

LISTED = ", ".join(f"'{kind}'" for kind in KINDS)
DROP = "DROP TABLE IF EXISTS gesta_words; DROP TABLE IF EXISTS gesta_words_known;"
NEXT = f"""SELECT {ROW}, pos FROM entries WHERE pos > ? AND kind IN ({LISTED}) ORDER BY pos LIMIT {CHUNK}"""  # noqa: S608
MEMORY = "CREATE TABLE entries(pos INTEGER PRIMARY KEY, run TEXT, seq INTEGER, kind TEXT, at TEXT);"


class Wanted(Struct, frozen=True, kw_only=True):
    """What to search for: the words, the conditions for entries, and the number of results."""

    words: str
    """An entry must contain all these words. Also accepted: `"words in this order"`, `begin*`, `one OR other`."""
    run: str | None = None
    session: str | None = None
    agent: str | None = None
    kinds: Sequence[str] = ()
    since: str | None = None
    """The earliest time of an entry, in UTC, in the form of a row's `at`."""
    until: str | None = None
    """Only entries before this time are found. It has the form of a row's `at`."""
    best: bool = False
    """Whether the best matches come first; with `False` the newest entries come first."""
    limit: int = 20


class Hit(Struct, frozen=True, kw_only=True):
    """An entry in which the words were found, with the text around the first match."""

    run: str
    seq: int
    session: str
    agent: str
    kind: str
    at: str
    snippet: str
    """Words around the first match. Each match is between the marks `OPENING` and `CLOSING`."""


async def find(store: Store, wanted: Wanted, *, keep_from: int | None = SMALL) -> list[Hit]:
    """Return the entries of a record that contain all words of a search.

    Args:
        keep_from: number of entries above which a record in a file keeps its index there; `None` to keep no index.

    Raises:
        GestaError: there is no word to look for.

    Cost: some milliseconds, and 20 us for each entry that is not in the index yet. An index in memory is made again for
    each search, so this includes all entries.
    """
    asked = compiled(wanted.words)
    runs = {row.run: row for row in await store.runs(wanted.session, wanted.agent)}
    with closing(WordIndex(store, keep_from)) as index:
        connection = await index.connection()
        places = _places(connection, asked, wanted, runs if wanted.session or wanted.agent else None)
    hits, before = list[Hit](), ("", "")
    for run, seq, kind, at in places:
        rows = await store.read(run, seq - 1, seq)
        text = text_of((await entry_of(store, rows[0])).content) if rows else ""
        if (run, text) == before:  # the reply of a model and the answer to the person have the same text
            continue
        before = (run, text)
        row = runs.get(run)
        session, agent = (row.session, row.name) if row is not None else ("", "")
        snippet = shown(text, asked)
        hits.append(Hit(run=run, seq=seq, session=session, agent=agent, kind=kind, at=at, snippet=snippet))
    return hits


class WordIndex:
    """A word index of one store, kept in its file or made in this process."""

    def __init__(self, store: Store, keep_from: int | None = SMALL) -> None:
        """Prepare the index, without reading the store.

        Args:
            keep_from: see `find`.
        """
        self._store, self._keep_from = store, keep_from
        self._open: apsw.Connection | None = None
        self._kept = False
        self._pos = 0
        self.share = 0.0
        """Share of the record's entries that are in the index, from 0 to 1."""

    async def connection(self, seconds: float | None = None) -> apsw.Connection:
        """Add new entries to the index, and return a connection to it.

        Sets the attribute `share`: the part of the record's entries that is in the index, from 0 to 1.

        Args:
            seconds: time after which no more entries are added in this call; `None` adds all.
        """
        until = None if seconds is None else time.monotonic() + seconds
        if self._keep_from is not None and isinstance(self._store, InlineSqliteStore) and (self._kept or not self._pos):
            self.close()
            with suppress(apsw.Error):  # the file cannot be written now, so the index is made in this process
                found = _kept(self._store.path, self._keep_from, until)
                if found is not None:
                    self._open, self.share = found
                    self._kept = True
                    return self._open
        if self._open is None or self._kept:
            self.close()
            self._open, self._pos, self._kept = apsw.Connection(""), 0, False  # on disk if memory is too small
            self._open.execute(MEMORY + WORDS)
        await self._more(self._open, until)
        return self._open

    async def _more(self, connection: apsw.Connection, until: float | None) -> None:
        last = await self._store.last()
        while self._pos < last and (until is None or time.monotonic() < until):
            self._pos = await _added(self._store, connection, self._pos) or last
        self.share = self._pos / last if last else 1.0

    async def places(self, words: str, most: int, seconds: float | None = None) -> dict[str, int]:
        """Return for each run the seq of its newest entry that contains the words.

        The run with the newest match comes first.

        Args:
            most: greatest number of matching entries that are examined, the newest first.
            seconds: see `connection`.

        Raises:
            GestaError: there is no word to look for.
        """
        query = """SELECT run, max(seq) FROM (SELECT run, seq, pos
            FROM (SELECT rowid AS found FROM gesta_words WHERE gesta_words MATCH ? ORDER BY rowid DESC LIMIT ?)
            CROSS JOIN entries ON entries.pos = found) GROUP BY run ORDER BY max(pos) DESC"""
        asked = compiled(words)
        try:
            return dict(_all(await self.connection(seconds), query, (asked, most)))
        except apsw.SQLError as error:
            raise GestaError(f"Cannot look for {words!r}: {error}.") from error

    async def snippet(self, run: str, seq: int, words: str) -> tuple[str, str]:
        """Return the kind of an entry, and the words around the first match; empty texts if there is no such entry."""
        rows = await self._store.read(run, seq - 1, seq)
        entry = await entry_of(self._store, rows[0]) if rows else None
        return (str(entry.kind), shown(text_of(entry.content), compiled(words))) if entry is not None else ("", "")

    def close(self) -> None:
        """Close the connection. An index that was made in this process is discarded."""
        if self._open is not None:
            self._open.close(force=True)
        self._open, self._pos = None, 0


def compiled(words: str) -> str:
    """Return an FTS5 query for the words that a person typed. Raises GestaError if there is no word."""
    parts: list[str] = []
    for phrase, word in re.findall(r'"([^"]*)"|(\S+)', sayable(words)):
        text, prefix = (phrase, "") if phrase else (word.rstrip("*"), "*" if word.endswith("*") else "")
        if word == "OR" and parts and parts[-1] != "OR":
            parts.append("OR")
        elif any(sign.isalnum() for sign in text):
            parts.append('"' + text.replace('"', "") + '"' + prefix)
    if parts and parts[-1] == "OR":
        parts[-1] = '"or"'
    if not parts:
        raise GestaError(f"No word to look for in {words!r}. Words are letters and digits: gesta find refund")
    return " AND ".join(parts).replace(" AND OR AND ", " OR ")


def text_of(content: Content) -> str:
    """Return the text of a content that can be searched; an empty text for kinds without text."""
    match content:
        case UserContent() | AssistantContent() | SystemContent() | ThoughtContent():
            text = told(content.value)
        case ChatCompletionContent():
            text = told(content.output)
        case ToolCallContent():
            text = f"{content.tool_name} {told(content.tool_args)}"
        case ToolResultContent():
            text = told(content.tool_result)
        case _:
            text = ""
    return text[:LONGEST]


def told(value: Any) -> str:
    """Return a value, such as the arguments of a call, as text for the index. Unlike in JSON, nothing is escaped."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(f"{told(key)}: {told(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(told, value))
    return "" if value is None else observation_text(value)


def shown(text: str, asked: str) -> str:
    """Return the words of a text around the first match, with a mark before and after each match.

    Args:
        asked: an FTS5 query, as `compiled` returns it.
    """
    memory = apsw.Connection(":memory:")
    try:
        memory.execute("CREATE VIRTUAL TABLE one USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')")
        memory.execute("INSERT INTO one VALUES(?)", (sayable(text),))
        query = "SELECT snippet(one, 0, ?, ?, '…', 16) FROM one WHERE one MATCH ?"
        found = memory.execute(query, (OPENING, CLOSING, asked)).fetchall()
    finally:
        memory.close(force=True)
    return str(found[0][0]) if found else text[:100]


def sayable(text: str) -> str:
    """Return a text that SQLite can index: lone surrogates, NUL and the marks that `shown` sets are replaced."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ").replace(OPENING, " ").replace(CLOSING, " ")


def _places(
    connection: apsw.Connection, asked: str, wanted: Wanted, runs: dict[str, Any] | None
) -> list[tuple[str, int, str, str]]:
    tests, values = ["gesta_words MATCH ?"], [asked]
    for test, value in (("run = ?", wanted.run), ("at >= ?", wanted.since), ("at < ?", wanted.until)):
        if value is not None:
            tests.append(test)
            values.append(value)
    if wanted.kinds:
        tests.append(f"kind IN ({', '.join('?' * len(wanted.kinds))})")
        values += wanted.kinds
    if runs is not None:
        connection.execute("CREATE TEMP TABLE chosen(run TEXT PRIMARY KEY)")
        connection.executemany("INSERT INTO chosen VALUES(?)", [(run,) for run in runs])
        tests.append("run IN chosen")
    order = "rank" if wanted.best else "gesta_words.rowid DESC"
    query = f"""SELECT run, seq, kind, at FROM gesta_words CROSS JOIN entries ON entries.pos = gesta_words.rowid
        WHERE {" AND ".join(tests)} ORDER BY {order} LIMIT ?"""  # noqa: S608 - tests of ours
    try:
        return _all(connection, query, (*values, min(wanted.limit, 2**63 - 1)))
    except apsw.SQLError as error:
        raise GestaError(f"Cannot look for {wanted.words!r}: {error}.") from error


def _kept(path: Path, keep_from: int, until: float | None) -> tuple[apsw.Connection, float] | None:
    """Add entries to the index that a record keeps in its file.

    Returns a connection, and the share of the entries that are in the index, from 0 to 1; `None` if the file has no
    index and the record has at most `keep_from` entries.

    Args:
        until: time (by `time.monotonic`) after which no more entries are added; `None` adds all.

    Raises:
        apsw.Error: the index cannot be written.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        enter(connection, path)
        connection.set_busy_timeout(WAIT_MS)
        connection.execute("PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON")
        known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'gesta_words_known'").fetchall()
        if not known and _last(connection) <= keep_from:
            connection.close(force=True)
            return None
        while _filled(connection) and (until is None or time.monotonic() < until):
            pass
        ((pos,),) = _all(connection, "SELECT pos FROM gesta_words_known")
        return connection, pos / max(1, pos, _last(connection))
    except BaseException:
        connection.close(force=True)
        raise


def _filled(connection: apsw.Connection) -> int:
    """Add the next entries to the index in a file, in one commit.

    Returns how far the index advanced, as a difference of pos; 0 if it is up to date.
    """
    with suppress(apsw.SQLError):  # raised if there is no index yet
        query = """SELECT known.pos, (SELECT coalesce(max(pos), 0) FROM entries)
            FROM gesta_words_known AS known WHERE form = ?"""
        if any(pos >= last for pos, last in _all(connection, query, (FORM,))):
            return 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        pos = _started(connection)
        rows = [Row(*row) for row in _all(connection, NEXT, (pos,))]
        query = "SELECT name, data FROM blobs WHERE run = ? AND name = ?"
        add = "INSERT INTO gesta_words(rowid, text) VALUES(?, ?)"
        connection.executemany(
            add, _texts(rows, lambda row, name: connection.execute(query, (row.run, name)).fetchall())
        )
        until = rows[-1].pos if len(rows) == CHUNK else _last(connection)
        connection.execute("UPDATE gesta_words_known SET pos = ?", (until,))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return int(until - pos)


def _last(connection: apsw.Connection) -> int:
    ((last,),) = _all(connection, "SELECT coalesce(max(pos), 0) FROM entries")
    return int(last)


def _all(connection: apsw.Connection, query: str, values: Sequence[Any] = ()) -> list[Any]:
    return connection.execute(query, values).fetchall()


def _started(connection: apsw.Connection) -> int:
    """Return the pos of the last entry in the index. If there is no index, an empty one is created."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'gesta_words_known'").fetchall()
    found = _all(connection, "SELECT pos FROM gesta_words_known WHERE form = ?", (FORM,)) if known else []
    if found:
        return int(found[0][0])
    connection.execute(DROP + WORDS)
    connection.execute("INSERT INTO gesta_words_known VALUES(1, 0, ?)", (FORM,))
    return 0


def _texts(rows: Sequence[Row], blobs: Any) -> Iterator[tuple[int, str]]:
    """Yield the pos and the text of each row that has text. A row that cannot be read is left out.

    Args:
        blobs: returns name and data of a blob, given a row and the blob's name.
    """
    for row in rows:
        with suppress(RecordError):
            found = {str(name): bytes(data) for each in blob_names(row) for name, data in blobs(row, each)}
            if text := text_of(from_row(row, found).content):
                yield row.pos, sayable(text)


async def _added(store: Store, connection: apsw.Connection, pos: int) -> int:
    """Add the next entries after a pos to an index of this process.

    Returns the pos of the last entry that was added; 0 if there was no further entry.
    """
    rows, held = [Row(*row) for row in (await store.sql(NEXT, (pos,))).rows], dict[str, list[tuple[str, bytes]]]()
    for row in rows:
        for name in blob_names(row):
            with suppress(RecordError):
                held[name] = [(name, (await store.get_blob(row.run, name)).data)]
    with connection:
        texts = list(_texts(rows, lambda _, name: held.get(name, [])))
        connection.executemany("INSERT INTO gesta_words(rowid, text) VALUES(?, ?)", texts)
        facts = [
            [sayable(cell) if isinstance(cell, str) else cell for cell in (row.pos, row.run, row.seq, row.kind, row.at)]
            for row in rows
        ]
        connection.executemany("INSERT INTO entries VALUES(?, ?, ?, ?, ?)", facts)
    return int(rows[-1].pos) if rows else 0
