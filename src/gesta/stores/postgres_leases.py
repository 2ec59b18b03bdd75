"""SQL statements about leases. A lease is the right of one process to write a run.

Each statement runs in a transaction that locks the record (the store of all runs). So no other process can change a
lease at the same time.

The table `leases` names for each run the process that may write it, and the lease's epoch. The epoch grows each time
that the lease is taken. Each running process holds a lock on its name, by a connection to the server. If nobody holds
that lock, the process has ended. A lease of this process is in use while `Presence.using` holds its run and epoch.
"""

import os
import socket
from typing import Any

from gesta.entry import GENESIS, utc_text
from gesta.errors import LeaseLost, RunHeld, RunMirrored
from gesta.log.journal import utc_now
from gesta.store import Lease
from gesta.stores.postgres_holding import Holding
from gesta.stores.postgres_open import Connection, number
from gesta.stores.sharing import Take

FOUND = """SELECT leases.epoch, leases.since, leases.owner, mirror_of, process, host, gone_by IS NOT NULL
    FROM leases LEFT JOIN owners ON owners.owner = leases.owner WHERE run = $1"""
GRANT = """INSERT INTO leases(run, owner, epoch, since) VALUES($1, $2, $3, $4)
    ON CONFLICT(run) DO UPDATE SET owner = $2, epoch = $3, since = $4"""
GIVE_BACK = "UPDATE leases SET owner = NULL WHERE run = $1 AND owner = $2 AND epoch <= $3"
OWNED = "SELECT run, epoch FROM leases WHERE owner = $1"
SHOW = "INSERT INTO owners(owner, process, host, since) VALUES($1, $2, $3, $4) ON CONFLICT DO NOTHING"
IDLE = """SELECT owner FROM owners WHERE owner <> $1 AND gone_by IS NULL
    AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.owner = owners.owner)"""
DECLARE = """INSERT INTO owners(owner, process, host, since, gone_by) VALUES($1, 0, '', $2, $3)
    ON CONFLICT(owner) DO UPDATE SET gone_by = $3"""
MIRROR = "UPDATE leases SET mirror_of = $4 WHERE run = $1 AND owner = $2 AND epoch = $3 RETURNING 1"


def take(connection: Connection, holding: Holding, work: Take) -> Lease:
    """Acquire the lease of a run for this process, and mark the run as in use.

    Args:
        holding: the name and the locks of this process.
        work: the run, and whether it may be a mirror (a copy of a run that continues in another record).

    Raises:
        RunHeld: the lease is in use in this process, or in another process that has not ended.
        RunMirrored: the run is a mirror, and `work` does not allow that.
    """
    run, presence, me = work.run, holding.presence, holding.process
    last = rows(connection, "SELECT seq, digest FROM entries WHERE run = $1 ORDER BY seq DESC LIMIT 1", run)
    head, digest = last[0] if last else (0, GENESIS)
    found = rows(connection, FOUND, run)
    epoch, since, owner, mirror, process, host, declared = found[0] if found else (0, "", *(None,) * 5)
    if mirror is not None and not work.mirror:
        raise RunMirrored(run, mirror)
    with presence.lock:
        in_use = presence.using.get(run, -1) >= epoch + (owner != me)  # a running commit does not show its epoch
        given_back = presence.back.get(run, -1) >= epoch
    if in_use:
        raise RunHeld(run, f"process {os.getpid()} on {socket.gethostname()}, which is this one", since, head)
    if owner not in (None, me) and not (declared or dead(connection, owner)):
        raise RunHeld(run, f"process {process} on {host}" if host else f"process {owner}", since, head)
    now = utc_text(utc_now())
    connection.execute(GRANT, (run, me, epoch + 1, now))
    connection.execute(SHOW, (me, os.getpid(), socket.gethostname(), now))
    presence.take(run, epoch + 1)
    return Lease(run, me, epoch + 1, head, digest, lost=owner is not None and not (owner == me and given_back))


def recall(connection: Connection, holding: Holding) -> None:
    """Release again what this process released before, if the server does not know it any more.

    No commit of a release waits for the disk, so a crash of the server may lose it. Otherwise no other process could
    take these runs, and the next lease of this process would count as lost. In a copy, all leases are void.
    """
    if not holding.holds:
        return
    presence = holding.presence
    for run, epoch in rows(connection, OWNED, holding.process):
        with presence.lock:
            if presence.using.get(run, 0) < epoch:
                presence.back[run] = max(epoch, presence.back.get(run, 0))


def rows(connection: Connection, query: str, *values: Any) -> list[Any]:
    """Return all rows of a query, with `values` for `$1`, `$2` and so on."""
    return connection.execute(query, values).fetchall()


def dead(connection: Connection, owner: str) -> bool:
    """Return whether a process has ended: no connection to the server holds the lock on its name any more."""
    return bool(rows(connection, "SELECT pg_try_advisory_xact_lock($1)", number(owner))[0][0])


def clean(connection: Connection, me: str) -> None:
    """Delete other processes from the table `owners` if they have ended and have no lease.

    Args:
        me: the name of this process.
    """
    for (owner,) in rows(connection, IDLE, me):
        if dead(connection, owner):
            connection.execute("DELETE FROM owners WHERE owner = $1", (owner,))


def mirror(connection: Connection, lease: Lease, of: str | None) -> None:
    """Mark a run as a mirror of its original, or as an ordinary run again.

    A mirror is a copy of a run that continues in another record. Raises LeaseLost if the lease is no longer held.

    Args:
        of: the id of the record of the original; `None` for an ordinary run.
    """
    if not rows(connection, MIRROR, lease.run, lease.owner, lease.epoch, of):
        raise LeaseLost(lease.run, f"the lease of epoch {lease.epoch}", "that it is no longer held")
