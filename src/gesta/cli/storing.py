"""Commands that keep a record in shape: `backup`, `adopt`, `gone`, `prune`, `hold`, `repair`."""

from gesta.cli.app import command
from gesta.cli.record_options import AdoptOptions, BackupOptions, GoneOptions, HoldOptions, PruneOptions, RepairOptions


@command(BackupOptions, example="gesta backup copy.gesta")
def backup(options: BackupOptions) -> None:
    """Copy a record into a new file while it is being written.

    The copy is the record as it was at one moment, inbox and index included. It is marked: turns that were open in it
    start no call that has effects until a person runs `gesta adopt`, because the record may go on with them too. A
    record in PostgreSQL is copied by `gesta push`, or by the tools of its server.
    """
    from gesta.cli import storage

    storage.backup(options)


@command(AdoptOptions, example="gesta adopt --record copy.gesta --by ann --yes")
def adopt(options: AdoptOptions) -> int:
    """Declare that a copy is the record that goes on, after a restore.

    In a copy, turns that were open when it was made start no call that has effects: the record that was copied may go
    on with them. Adopt the copy only when that record, and every other copy of it, is used no more. Look first at what
    it did after the copy was made: none of that is on record here, and what the turns here do again happens twice.

    With RUN, a mirror that `gesta push` made, or a run that was moved away, goes on here, with the runs above and below
    it: for when the other record is lost.
    """
    from gesta.cli import claims

    return claims.adopt(options)


@command(GoneOptions, example="gesta gone 6f2c81d0a94be357 --by ann --yes")
def gone(options: GoneOptions) -> int:
    """Declare that a process has ended, if Gesta cannot find out.

    No second attempt of a call with effects begins while the process of the first attempt may still run. Only its own
    machine knows whether a process runs. Make sure that the process has ended, with all that it started, before you
    declare it. A process that runs on this machine cannot be declared to have ended: exit code 1. Without PROCESS, the
    command lists the processes that hold a run or tried a call that has no result.
    """
    from gesta.cli import claims

    return claims.gone(options)


@command(PruneOptions, example="gesta prune --before 90d --keep 100 --yes")
def prune(options: PruneOptions) -> int:
    """Remove old runs for good, each whole, after listing them.

    A run stays while its turn is open, while it is held (`gesta hold`), and while a run that stays refers to it. A
    removed run leaves a tombstone, which `gesta verify` knows. Exit code 1 if a run that you named has to stay; no
    run is removed then.
    """
    from gesta.cli import storage

    return storage.prune(options)


@command(HoldOptions, example="gesta hold last --reason 'a complaint'")
def hold(options: HoldOptions) -> None:
    """Keep a run from being pruned, or --release it.

    The record stores who holds the run and why. Without RUN, the command lists the runs that are held.
    """
    from gesta.cli import storage

    storage.hold(options)


@command(RepairOptions, example="gesta repair runs.gesta --yes")
def repair(options: RepairOptions) -> int:
    """Remove from a record what others put on its tables.

    Triggers, views and indexes that no release of Gesta made are shown first, each with its text, and none of them is
    run. Gesta's own views and indexes are put back where they are missing. No entry and no table is changed. Exit code
    1 if something is left that keeps the record from being opened.
    """
    from gesta.cli import repairing

    return repairing.repair(options)
