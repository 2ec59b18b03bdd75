"""The operations on the tables of a record in SQLite, each inside the writer's transaction.

Each operation checks the database before it writes. So a refused operation fails alone, and the others are committed.
The store remembers the head (last seq) of each run that it wrote, which saves a query. It forgets the heads when
SQLite's data version shows that another connection has written.

A record is the store of all runs. A batch holds rows (encoded entries) of one run. `seq` numbers the rows of a run,
`pos` all rows of the record. A lease is the right of one process to write a run, and its epoch grows each time that the
lease is taken. A letter is a message in the inbox of a run. A mirror is a copy of a run that continues elsewhere.
"""

import os
import socket
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import apsw

from gesta.entry import GENESIS, Row, utc_text
from gesta.errors import BrokenRecord, GestaError, LeaseLost, RunHeld, RunMirrored
from gesta.log.journal import Clock
from gesta.store import Batch, Lease, Letter, Prune, TransactionalEffect
from gesta.stores.common import checked, forks
from gesta.stores.effects import Sql
from gesta.stores.locks import Presence
from gesta.stores.sharing import Adopt, Declare, Mirror, Take, Work
from gesta.stores.sqlite_door import examined, read
from gesta.stores.tables import ADD_BLOB, ADD_ROW, FORGET_WORDS, LIST_TOOL, PRUNE, TOOLS, UNLIST_TOOL, WORDS_KNOWN

GIVE_BACK = "UPDATE main.leases SET owner = NULL WHERE run = ? AND owner = ? AND epoch = ?"
SHOW = "INSERT OR IGNORE INTO main.owners(owner, process, host, since) VALUES(?, ?, ?, ?)"
TAKE = """INSERT INTO main.leases(run, owner, epoch, since) VALUES(?1, ?2, ?3, ?4)
ON CONFLICT(run) DO UPDATE SET owner = ?2, epoch = ?3, since = ?4"""
DECLARE = """INSERT INTO main.owners(owner, process, host, since, gone_by) VALUES(?1, 0, '', ?2, ?3)
ON CONFLICT(owner) DO UPDATE SET gone_by = coalesce(gone_by, ?3)"""


class Leases:
    """The leases that one store has taken and released, and the SQL that records them in the file.

    The table `leases` names for each run the process that has its lease. The kernel shows whether that process still
    runs. Inside the process, `Presence` lists the leases in use. A released lease leaves that list at once, and the
    next commit of this process changes the table.
    """

    def __init__(self, connection: apsw.Connection, presence: Presence, clock: Clock) -> None:
        self.presence = presence
        """The locked byte of this process, with the leases that all its stores use."""
        self._clock = clock
        self._cursor = connection.cursor()
        self._mine: dict[str, int] = {}  # epochs of the leases that this store took and has not released, by run
        self._took: dict[str, int] = {}  # the same for leases that the present transaction took
        self._shown = False

    def leave(self, lease: Lease) -> bool:
        """Release a lease in this process. Return whether a commit still has to free it for other processes."""
        if lease.owner != self.presence.process:
            return False
        if self._mine.get(lease.run) == lease.epoch:
            del self._mine[lease.run]
        self.presence.leave(lease.run, lease.epoch)
        return lease.run in self.presence.back

    def leave_all(self) -> None:
        """Release all leases of this store in this process. Its next commit frees them for other processes."""
        for run, epoch in self._mine.items():
            self.presence.leave(run, epoch)
        self._mine = {}

    def give_back(self) -> dict[str, int]:
        """Free the leases that this process has released, so that other processes can take them.

        Returns the epoch of each freed lease, by run. Each transaction calls this, and passes the result to `committed`
        after its commit.
        """
        given = dict(self.presence.back)
        for run, epoch in given.items():
            self._cursor.execute(GIVE_BACK, (run, self.presence.process, epoch))
        return given

    def committed(self, given: dict[str, int]) -> None:
        """Update the lists of leases in memory after a commit: the leases that it took are in use, `given` are free.

        Args:
            given: the leases that the transaction freed, as `give_back` returned them.
        """
        if given:
            self.presence.returned(given)
        if self._took:
            for run, epoch in self._took.items():
                self.presence.take(run, epoch)
            self._mine |= self._took
            self._took = {}

    def forget(self) -> None:
        """Forget the leases that a transaction took, because the transaction was not committed."""
        self._took = {}

    def take(self, wish: Take) -> Lease:
        """Acquire the lease of a run, and return it. Nothing is written if an error is raised.

        Raises:
            RunHeld: the lease is in use in this process, or in a process that is not known to have ended.
            RunMirrored: the run is a mirror, and `wish.mirror` is `False`.
            BrokenRecord: the seq or digest of the run's last entry, or the epoch of its lease, has a wrong type.
        """
        run, process = wish.run, self.presence.process
        last = self._first("SELECT seq, digest FROM main.entries WHERE run = ? ORDER BY seq DESC LIMIT 1", run)
        head, digest = last or (0, GENESIS)
        query = "SELECT epoch, since, owner, mirror_of FROM main.leases WHERE run = ?"
        epoch, since, owner, mirror_of = self._first(query, run) or (0, "", None, None)
        if not (isinstance(head, int) and isinstance(digest, bytes) and isinstance(epoch, int)):
            raise BrokenRecord(f"run {run}", "the seq or digest of its last entry, or its epoch, holds another type")
        if mirror_of is not None and not wish.mirror:
            raise RunMirrored(run, mirror_of)
        if owner == process:
            if run in self.presence.using or run in self._took:
                raise RunHeld(run, self._told(owner), since, head)
        elif owner is not None and (gone := self._gone(owner)) is not True:
            unknown = f", which cannot be looked up from here (if it has ended: gesta gone {owner}),"
            said = unknown if gone is None else ""
            raise RunHeld(run, self._told(owner) + said, since, head, owner if gone is None else None)
        now = utc_text(self._clock())
        self._show(now)
        self._cursor.execute(TAKE, (run, process, epoch + 1, now))
        self._took[run] = epoch + 1
        return Lease(run, process, epoch + 1, head, digest, lost=owner is not None)

    def declare(self, said: Declare) -> None:
        """Record a person's statement that a process has ended. An earlier statement about the process is kept."""
        self._cursor.execute(DECLARE, (said.process, utc_text(self._clock()), said.by))

    def hide(self) -> None:
        """Delete the row that describes this process, because the process no longer uses the file."""
        if self._shown:
            self._cursor.execute(
                "DELETE FROM main.owners WHERE owner = ? AND gone_by IS NULL", (self.presence.process,)
            )

    def _gone(self, process: str) -> bool | None:
        if self._first("SELECT 1 FROM main.owners WHERE owner = ? AND gone_by IS NOT NULL", process):
            return True
        return self.presence.gone(process)

    def _told(self, process: str) -> str:
        number, host = self._first("SELECT process, host FROM main.owners WHERE owner = ?", process) or (0, "")
        return f"process {number} on {host}" if number else f"process {process!r}"

    def _show(self, now: str) -> None:
        """Write a row about this process, for people to read. The first call also deletes rows of ended processes."""
        if not self._shown:
            known: Sequence[Any] = self._cursor.execute(
                "SELECT owner FROM main.owners WHERE gone_by IS NULL"
            ).fetchall()
            for (owner,) in known:
                if self.presence.gone(owner):
                    self._cursor.execute("DELETE FROM main.owners WHERE owner = ?", (owner,))
            self._shown = True
        self._cursor.execute(SHOW, (self.presence.process, os.getpid(), socket.gethostname(), now))

    def _first(self, query: str, *values: str) -> tuple[Any, ...] | None:
        rows = self._cursor.execute(query, values).fetchall()
        return rows[0] if rows else None


COLUMNS = attrgetter(*Row.__struct_fields__[:-1])
"""Returns the columns of a row that are inserted; SQLite itself assigns the pos."""

ALLOWED = """SELECT owner, epoch, (SELECT max(seq) FROM main.entries WHERE run = ?1)
FROM (SELECT 1) LEFT JOIN main.leases ON run = ?1"""


class Works:
    """Carries out the operations of one store, and remembers the heads of the runs that it wrote."""

    def __init__(self, connection: apsw.Connection, leases: Leases, clock: Clock) -> None:
        self.leases = leases
        self.quiet: set[str] = set()
        """Runs whose inbox is known to be empty, so that it need not be read."""
        self._clock = clock
        self._connection = connection
        self._heads: dict[str, tuple[str, int, int]] = {}  # by run: owner, epoch and head after our last commit
        self._one = connection.cursor()
        self._many = connection.cursor()

    def begin(self) -> dict[str, int]:
        """Free the leases that this process released. Called at the beginning of a transaction.

        Returns the epoch of each freed lease, by run.
        """
        given = self.leases.give_back()
        for run in given:
            self._heads.pop(run, None)
            self.quiet.discard(run)
        return given

    def forget(self) -> None:
        """Forget the heads, which others may have changed, and the leases that an uncommitted transaction took."""
        self._heads.clear()
        self.leases.forget()

    def carry_out(self, work: Work) -> Any:
        """Carry out an operation, and return its result, or a GestaError if the operation was refused.

        A refused operation has written nothing. But a `TransactionalEffect` may have written before it fails, so its
        errors are raised and not returned.
        """
        if isinstance(work, TransactionalEffect):
            return self._transact(work)
        try:
            match work:
                case Batch():
                    return self._append(work)
                case Letter():
                    return self._add(work, utc_text(self._clock()))
                case Take():
                    lease = self.leases.take(work)
                    self._heads[lease.run] = lease.owner, lease.epoch, lease.head
                    return lease
                case Lease():
                    return None  # `begin` has freed it, with all released leases
                case Mirror():
                    self._allow(work.lease)
                    self._one.execute("UPDATE main.leases SET mirror_of = ? WHERE run = ?", (work.of, work.lease.run))
                case Declare():
                    self.leases.declare(work)
                case Adopt():
                    self._one.execute("UPDATE main.record SET mark = NULL, adopted_by = ?", (work.by,))
        except GestaError as refused:
            return refused

    def _append(self, batch: Batch) -> int:
        lease, rows, run = batch.lease, batch.rows, batch.lease.run
        if self._heads.get(run) != (lease.owner, lease.epoch, batch.head):
            self._allow_batch(batch)
        for each in batch.beside:
            self._allow_batch(each)
        for gone in batch.prunes:
            self._allow_prune(gone)
        if batch.letters:
            self._take_in(run, set(batch.letters))
        for letter in batch.mail:
            self._add(letter, letter.at)
        if batch.blobs:
            self._many.executemany(ADD_BLOB, [(run, blob.name, blob.salt, blob.data) for blob in batch.blobs])
        self._many.executemany(ADD_ROW, map(COLUMNS, rows))
        if batch.beside:
            blobs = [(each.lease.run, blob.name, blob.salt, blob.data) for each in batch.beside for blob in each.blobs]
            if blobs:
                self._many.executemany(ADD_BLOB, blobs)
            self._many.executemany(ADD_ROW, map(COLUMNS, chain.from_iterable(each.rows for each in batch.beside)))
        if lease.epoch:
            self._heads[run] = (lease.owner, lease.epoch, rows[-1].seq if rows else batch.head)
        pos = self._connection.last_insert_rowid() if rows else 0
        for gone in batch.prunes:  # after the rows are added, so that no pos is assigned a second time
            self._prune(gone.lease.run)
        return pos

    def _transact(self, effect: TransactionalEffect) -> int:
        """Call the `work` of an effect, append the entries that it returns, and return the pos of the last one.

        `work` runs a tool's SQL. If it returns `False` as its second value, the tool's changes are undone. If a
        statement of the tool has ended the whole transaction, a new transaction writes the entries.
        """
        sql, before = Sql(self._connection), self._tables()
        self._one.execute("SAVEPOINT effect")
        with sql.guarded(effect.timeout_s):
            batch, kept = effect.work(sql)
        if kept:
            sql.check()  # `work` must have called it, but a batch that was not checked must not be committed
            if sql.makes:
                self._list(before)
        elif self._connection.in_transaction:
            self._one.execute("ROLLBACK TO effect")
        if self._connection.in_transaction:
            self._one.execute("RELEASE effect")
        else:
            self._one.execute("BEGIN IMMEDIATE")
            self.forget()
            self.begin()
        return self._append(checked(batch))

    def _tables(self) -> set[str]:
        return {each.name for each in examined(read(self._connection)).beside if each.type == "table"}

    def _list(self, before: set[str]) -> None:
        """Update the list of tables that tools made, after a tool has changed the schema.

        Args:
            before: names of the tables before the tool ran.
        """
        now = self._tables()
        if now == before:
            return
        if not self._one.execute("SELECT 1 FROM main.sqlite_master WHERE name = 'gesta_tables'").fetchall():
            self._one.execute(TOOLS)
        self._many.executemany(LIST_TOOL, [(name,) for name in sorted(now - before)])
        self._many.executemany(UNLIST_TOOL, [(name,) for name in sorted(before - now)])

    def _allow_prune(self, gone: Prune) -> None:
        self._allow_batch(Batch(gone.lease, gone.lease.head, ()))
        waiting = {one for (one,) in self._one.execute("SELECT id FROM main.inbox WHERE run = ?", (gone.lease.run,))}
        if waiting != set(gone.letters):
            raise LeaseLost(gone.lease.run, f"letters {sorted(gone.letters)} in its inbox", f"{sorted(waiting)}")

    def _prune(self, run: str) -> None:
        self._heads.pop(run, None)
        if self._one.execute(WORDS_KNOWN).fetchall():
            self._one.execute(FORGET_WORDS)
        for statement in PRUNE:
            self._one.execute(statement, (run,))

    def _allow_batch(self, batch: Batch) -> None:
        """Raise LeaseLost if a batch lacks the current lease of its run, or if the run has newer entries."""
        last = self._allow(batch.lease)
        forking = last is None and forks(batch)
        if (last or 0) != batch.head and not forking:
            raise LeaseLost(batch.lease.run, f"head {batch.head}", f"head {last or 0}")

    def _allow(self, lease: Lease) -> int | None:
        """Return the head (last seq) of the run of a lease; `None` if the run has no entries.

        Raises LeaseLost if the lease is no longer the current lease of the run.
        """
        ((owner, epoch, last),) = self._one.execute(ALLOWED, (lease.run,)).fetchall()
        if (owner or "", epoch or 0) != (lease.owner, lease.epoch):
            found = f"epoch {epoch}" if owner or not lease.epoch else "it free"
            raise LeaseLost(lease.run, f"the lease of epoch {lease.epoch}", found)
        assert last is None or isinstance(last, int), "a seq is a number"
        return last

    def _take_in(self, run: str, letters: set[int]) -> None:
        waiting = {one for (one,) in self._one.execute("SELECT id FROM main.inbox WHERE run = ?", (run,))}
        if letters - waiting:
            raise LeaseLost(run, f"letters {sorted(letters - waiting)} in its inbox", "them taken in before")
        self._many.executemany("DELETE FROM main.inbox WHERE id = ?", [(one,) for one in letters])

    def _add(self, letter: Letter, at: str) -> bool:
        self._one.execute("INSERT OR IGNORE INTO main.inbox_keys(run, key) VALUES(?, ?)", (letter.run, letter.key))
        if not self._connection.changes():
            return False
        self.quiet.discard(letter.run)
        values = (letter.run, letter.key, letter.content, at)
        self._one.execute("INSERT INTO main.inbox(run, key, content, at) VALUES(?, ?, ?, ?)", values)
        return True
