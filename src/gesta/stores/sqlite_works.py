"""The operations on the tables of a record in SQLite, each inside the writer's transaction.

Each operation checks the database before it writes. So a refused operation fails alone, and the others are committed.
The store remembers the head (last seq) of each run that it wrote, which saves a query. It forgets the heads when
SQLite's data version shows that another connection has written.

A record is the store of all runs. A batch holds rows (encoded entries) of one run. `seq` numbers the rows of a run,
`pos` all rows of the record. A lease is the right of one process to write a run, and its epoch grows each time that the
lease is taken. A letter is a message in the inbox of a run.
"""

from itertools import chain
from operator import attrgetter
from typing import Any

import apsw

from gesta.entry import Row, utc_text
from gesta.errors import GestaError, LeaseLost
from gesta.log.journal import Clock
from gesta.store import Batch, Lease, Letter, Prune, TransactionalEffect
from gesta.stores.common import checked, forks
from gesta.stores.effects import Sql
from gesta.stores.sharing import Adopt, Declare, Mirror, Take, Work
from gesta.stores.sqlite_door import examined, read
from gesta.stores.sqlite_leases import Leases
from gesta.stores.tables import ADD_BLOB, ADD_ROW, FORGET_WORDS, LIST_TOOL, PRUNE, TOOLS, UNLIST_TOOL, WORDS_KNOWN

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
