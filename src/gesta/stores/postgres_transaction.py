"""One transaction of a writer: it locks the record, reads who may write the runs, and carries out operations.

A record is the stored history of all runs (conversations of agents). One query at the beginning reads the state of all
runs that the operations write. Rows are collected until another statement has to run, so that the rows of many batches
are sent together.

A batch holds rows (encoded entries) of one run. `seq` numbers the rows of a run, and the head is the last seq. `pos`
numbers all rows of the record. A lease is the right of one process to write a run, and its epoch grows each time that
the lease is taken. A letter is a message in the inbox of a run.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import psycopg
from msgspec.structs import astuple

from gesta.entry import Row, utc_text
from gesta.errors import GestaError, LeaseLost
from gesta.log.journal import utc_now
from gesta.store import Batch, Info, Lease, Letter, Prune
from gesta.stores.common import batches_of, forks
from gesta.stores.postgres_holding import Holding
from gesta.stores.postgres_leases import DECLARE, GIVE_BACK, GRANT, mirror, take
from gesta.stores.postgres_open import Connection, number
from gesta.stores.postgres_tables import ADD_BLOB, ADD_ROW, LETTER, PRUNE
from gesta.stores.sharing import Adopt, Declare, Mirror, Take, Work
from gesta.stores.tables import ROW

LOCK = "SELECT pg_advisory_xact_lock($1)"
NEWS, HASTE = ", pg_notify($2, '')", ", set_config('synchronous_commit', 'off', true)"
"""Additions to the query for the lock: notify the followers of the commit; do not wait for the disk in the commit."""
LEASES = """SELECT run, owner, epoch, (SELECT max(seq) FROM entries WHERE entries.run = asked.run), pos
    FROM (SELECT coalesce(max(pos), 0) AS pos FROM entries) AS last
    LEFT JOIN unnest($1::text[]) AS asked(run) ON true LEFT JOIN leases USING (run)"""
WRITTEN = "SELECT pos FROM entries WHERE run = $1 AND seq = $2 AND digest = $3"
GRANTED = "SELECT 1 FROM leases WHERE run = $1 AND owner = $2 AND epoch = $3"
TOUCH = "UPDATE leases SET epoch = epoch WHERE run = $1"  # a commit that changes nothing waits for no disk
ADOPT = "UPDATE record SET mark = NULL, adopted_by = $1, server = coalesce($2, server)"
SENT = "SELECT 1 FROM inbox_keys WHERE run = $1 AND key = $2"
LARGEST = 2**29  # bytes of a value; a message to the server has up to 2**30, and libpq sends that in minutes
MOST_ROWS = 16  # up to so many rows are added in one exchange; for more, one statement for all batches is faster
TYPES = {"seq": "bigint", "span": "bigint", "version": "bigint", "salt": "bytea", "digest": "bytea"}
"""Types of the columns of a row that are not texts."""


@lru_cache(MOST_ROWS)
def adding(rows: int) -> str:
    """Return the statement that adds rows to a run, if its lease and its head are those that the writer expects.

    Its values are the run, the owner and epoch of the lease, the head, and then the columns of each row. It returns the
    pos of each row, or nothing if nothing was added.
    """
    columns = ROW.split(", ")
    values = [
        ", ".join(f"${5 + row * len(columns) + place}::{TYPES.get(name, 'text')}" for place, name in enumerate(columns))
        for row in range(rows)
    ]
    return f"""INSERT INTO entries(pos, {ROW})
    SELECT last.pos + n, {ROW.replace("run", "added.run", 1)}
    FROM (VALUES {", ".join(f"({n}, {each})" for n, each in enumerate(values, 1))}) AS added(n, {ROW}),
        (SELECT coalesce(max(pos), 0) AS pos FROM entries) AS last
    WHERE EXISTS (SELECT 1 FROM leases WHERE leases.run = $1 AND owner = $2 AND epoch = $3)
        AND (SELECT coalesce(max(seq), 0) FROM entries WHERE entries.run = $1) = $4
    RETURNING pos"""  # noqa: S608 - made of names of columns alone


def simple(works: Sequence[Work]) -> bool:
    """Return whether `add_at_once` can carry operations out: batches that only add some rows, and releases."""
    rows = 0
    for work in works:
        match work:
            case Batch(blobs=(), letters=(), prunes=(), beside=(), mail=()) if work.rows and work.lease.epoch:
                rows += len(work.rows)
            case Lease():
                pass
            case _:
                return False
    return 0 < rows <= MOST_ROWS


class Transaction:
    """One transaction on a record in PostgreSQL. A transaction locks the record, so only one runs at a time."""

    def __init__(self, connection: Connection, info: Info, holding: Holding, server: str | None) -> None:
        self._connection = connection
        self._server = server
        self._holding = holding
        self._lock = number(info.id)
        self._channel = channel(info)
        self._pos = 0  # pos of the last row, also of rows that are not sent yet
        self._rows: list[Row] = []  # collected rows, which `flush` sends
        self._known: dict[str, tuple[str | None, int, int]] = {}  # run: owner, epoch and head

    def begin(self, runs: Iterable[str] = (), *, synced: bool = False) -> None:
        """Begin the transaction, lock the record, and read the heads and leases of `runs`.

        Args:
            runs: ids of the runs whose batches the transaction will append. Without runs, readers that wait for new
                rows are not notified.
            synced: whether the commit waits for the disk.
        """
        connection, asked = self._connection, sorted(set(runs))
        lock = LOCK + NEWS * bool(asked) + HASTE * (not synced)
        with connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            connection.execute(lock, (self._lock, *[self._channel] * bool(asked)))
            found = connection.execute(LEASES, (asked,)).fetchall()
        self._known = {run: (owner, epoch or 0, head or 0) for run, owner, epoch, head, _ in found}
        self._pos = found[0][-1]

    def add_at_once(self, works: Sequence[Work], *, synced: bool) -> tuple[list[int | None], dict[str, int]]:
        """Begin the transaction, carry out simple operations, and commit it, in one exchange with the server.

        The server checks leases and heads, so the record is not locked while this process waits for an answer.

        Args:
            works: operations for which `simple` is true.
            synced: whether the commit waits for the disk.

        Returns:
            For each operation the pos of its last row; `None` for a release, and for a batch that was not added. And
            the freed leases, as `give_back` returns them.
        """
        connection, added = self._connection, list[Any]()
        with connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            connection.execute(LOCK + NEWS + HASTE * (not synced), (self._lock, self._channel))
            for work in works:
                if isinstance(work, Batch):
                    lease, columns = work.lease, chain.from_iterable(astuple(row)[:-1] for row in work.rows)
                    values = (lease.run, lease.owner, lease.epoch, work.head, *columns)
                    added.append(connection.execute(adding(len(work.rows)), values))
                else:
                    added.append(None)
            given = self.give_back()
            connection.execute("COMMIT")
        places = [sorted(cursor.fetchall()) if cursor is not None else [] for cursor in added]
        return [rows[-1][0] if rows else None for rows in places], given

    def added(self, work: Work) -> int | None:
        """Return the pos of the last row of a batch that was added before; `None` if it was not, or is not a batch."""
        if not isinstance(work, Batch) or not work.rows:
            return None
        last = work.rows[-1]
        found = self._all(WRITTEN, last.run, last.seq, last.digest)
        return int(found[0][0]) if found else None

    def happened(self, works: Sequence[Work], outcomes: Sequence[Any]) -> bool:
        """Return whether an earlier transaction was committed, although its connection was lost during the commit.

        It is enough to find one of its rows, leases or letters: they are committed together or not at all.

        Args:
            works: the operations of that transaction.
            outcomes: the results of these operations.
        """
        for work, outcome in zip(works, outcomes, strict=True):
            if isinstance(work, Batch) and work.rows and isinstance(outcome, int):
                return self.added(work) is not None
        for work, outcome in zip(works, outcomes, strict=True):
            if isinstance(work, Take) and isinstance(outcome, Lease):
                return bool(self._all(GRANTED, outcome.run, outcome.owner, outcome.epoch))
            if isinstance(work, Letter) and outcome is True:  # an equal letter of another sender has the same effect
                return bool(self._all(SENT, work.run, work.key))
        return False  # all other operations may be repeated

    def carry_out(self, work: Work) -> Any:
        """Carry out one operation, and return its result.

        If the operation is refused, its GestaError is returned and not raised.
        """
        try:
            if isinstance(work, Batch):
                return self._append(work)
            self.flush()
            match work:
                case Letter():
                    return self._add(work)
                case Take():
                    return self._take(work)
                case Mirror():
                    return mirror(self._connection, work.lease, work.of)
                case Declare():
                    values = (work.process, utc_text(utc_now()), work.by)
                    self._connection.execute(DECLARE, values)
                case Adopt():
                    self._connection.execute(ADOPT, (work.by, self._server))
        except GestaError as refused:  # an operation is refused before it writes anything
            return refused

    def _take(self, work: Take) -> Lease:
        lease = take(self._connection, self._holding, work)
        self._known[work.run] = (lease.owner, lease.epoch, lease.head)
        return lease

    def give_back(self) -> dict[str, int]:
        """Free the leases that this process no longer uses, so that other processes can take them.

        Returns the epoch of each of these leases, by run.
        """
        if not self._holding.holds:
            return {}
        presence = self._holding.presence
        with presence.lock:
            given = dict(presence.back)
        for run, epoch in given.items():
            self._connection.execute(GIVE_BACK, (run, self._holding.process, epoch))
        return given

    def _append(self, batch: Batch) -> int:
        lease, rows, run = batch.lease, batch.rows, batch.lease.run
        for each in batches_of(batch):
            refuse_large(blob.data for blob in each.blobs)
            self._allow(each)
        for gone in batch.prunes:
            self._allow_prune(gone)
        if batch.letters:
            self._take_in(run, set(batch.letters))
        for letter in batch.mail:
            self._add(letter, letter.at)
        for each in batches_of(batch):
            if each.blobs:  # one by one, because a message to the server holds 1 GB
                blobs = [(each.lease.run, *astuple(blob)) for blob in each.blobs]
                self._connection.cursor().executemany(ADD_BLOB, blobs)
            self._rows += each.rows
            self._pos += len(each.rows)
        if not rows:
            if batch.synced:
                self._connection.execute(TOUCH, (run,))
            return 0
        self._known[run] = (lease.owner, lease.epoch, rows[-1].seq)
        for gone in batch.prunes:
            self._prune(gone.lease.run)
        return self._pos

    def flush(self) -> None:
        """Send the collected rows to the server."""
        if self._rows:
            rows = [(pos, *astuple(row)[:-1]) for pos, row in enumerate(self._rows, self._pos - len(self._rows) + 1)]
            self._connection.cursor().executemany(ADD_ROW, rows)  # arrays of texts take three times as long to write
            self._rows = []

    def _allow_prune(self, gone: Prune) -> None:
        self._allow(Batch(gone.lease, gone.lease.head, ()))
        waiting = {one for (one,) in self._all("SELECT id FROM inbox WHERE run = $1", gone.lease.run)}
        if waiting != set(gone.letters):
            raise LeaseLost(gone.lease.run, f"letters {sorted(gone.letters)} in its inbox", f"{sorted(waiting)}")

    def _prune(self, run: str) -> None:
        self.flush()
        self._known.pop(run, None)
        for statement in PRUNE:
            self._connection.execute(statement, (run,))

    def _allow(self, batch: Batch) -> None:
        """Raise LeaseLost if a batch lacks the current lease of its run, or if the run has newer entries."""
        lease, run = batch.lease, batch.lease.run
        owner, epoch, last = self._known.get(run, (None, 0, 0))
        if owner in (None, lease.owner) and epoch < lease.epoch:  # a crash of the server may lose the newest leases
            self._connection.execute(GRANT, (run, lease.owner, lease.epoch, utc_text(utc_now())))
        elif (owner or "", epoch) != (lease.owner, lease.epoch):
            found = f"epoch {epoch}" if owner or not lease.epoch else "it free"
            raise LeaseLost(run, f"the lease of epoch {lease.epoch}", found)
        forking = not last and forks(batch)
        if last != batch.head and not forking:
            raise LeaseLost(run, f"head {batch.head}", f"head {last}")

    def _take_in(self, run: str, letters: set[int]) -> None:
        waiting = {one for (one,) in self._all("SELECT id FROM inbox WHERE run = $1", run)}
        if letters - waiting:
            raise LeaseLost(run, f"letters {sorted(letters - waiting)} in its inbox", "them taken in before")
        self._connection.execute("DELETE FROM inbox WHERE id = ANY($1)", (sorted(letters),))

    def _add(self, letter: Letter, at: str | None = None) -> bool:
        refuse_large([letter.content])
        query = "INSERT INTO inbox_keys(run, key) VALUES($1, $2) ON CONFLICT DO NOTHING RETURNING 1"
        if not self._all(query, letter.run, letter.key):
            return False
        self._connection.execute(LETTER, (letter.run, letter.key, letter.content, at))
        return True

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._connection.execute(query, values).fetchall()


def refuse_large(values: Iterable[str | bytes]) -> None:
    """Raise psycopg.DataError if a value has more than `LARGEST` bytes.

    The server would end the connection, and with it the transaction of other operations, or be locked for minutes.
    """
    for value in values:
        long = isinstance(value, str) and len(value) > LARGEST // 4  # a sign has up to four bytes
        size = len(str(value).encode("utf-8", "replace") if long else value)
        if size > LARGEST:
            raise psycopg.DataError(f"a value has {size:,} bytes, more than {LARGEST:,}")


def channel(info: Info) -> str:
    """Return the name of the PostgreSQL channel on which the server reports commits to a record."""
    return f"gesta_{info.id}"
