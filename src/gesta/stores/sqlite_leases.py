"""The leases on the runs of a file. A lease is the right of one process to write one run.

The table `leases` names for each run the process that has its lease. The kernel shows whether that process still runs;
see `presence`. Inside the process, `Presence` lists the leases in use. A released lease leaves that list at once, and
the next commit of this process changes the table. All statements run in a transaction of the only writer, so nothing
else changes a lease.

The epoch of a lease is a number that grows each time that the lease is taken. A mirror is a copy of a run that
continues in another record.
"""

import os
import socket
from collections.abc import Sequence
from typing import Any

import apsw

from gesta.entry import GENESIS, utc_text
from gesta.errors import BrokenRecord, RunHeld, RunMirrored
from gesta.log.journal import Clock
from gesta.store import Lease
from gesta.stores.presence import Presence
from gesta.stores.sharing import Declare, Take

GIVE_BACK = "UPDATE main.leases SET owner = NULL WHERE run = ? AND owner = ? AND epoch = ?"
SHOW = "INSERT OR IGNORE INTO main.owners(owner, process, host, since) VALUES(?, ?, ?, ?)"
TAKE = """INSERT INTO main.leases(run, owner, epoch, since) VALUES(?1, ?2, ?3, ?4)
ON CONFLICT(run) DO UPDATE SET owner = ?2, epoch = ?3, since = ?4"""
DECLARE = """INSERT INTO main.owners(owner, process, host, since, gone_by) VALUES(?1, 0, '', ?2, ?3)
ON CONFLICT(owner) DO UPDATE SET gone_by = coalesce(gone_by, ?3)"""


class Leases:
    """The leases that one store has taken and released, and the SQL that records them in the file."""

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
