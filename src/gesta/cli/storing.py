"""Commands that maintain a record: `backup`, `adopt`, `gone`, `prune`, `hold`, `repair`.

A record is the store of all runs. A run is one conversation of an agent. A turn is one message with all that follows
until its answer. The docstrings are help texts.
"""

from gesta.cli.app import command
from gesta.cli.record_options import AdoptOptions, BackupOptions, GoneOptions, HoldOptions, PruneOptions, RepairOptions


@command(BackupOptions, example="gesta backup copy.gesta")
def backup(options: BackupOptions) -> None:
    """Copy a record into a new file, also while runs are being written.

    The copy is the record as it was at one moment, inbox and index included. A turn that was open at that moment starts
    no call with effects in the copy, because the original record may continue the turn too. `gesta adopt` ends this
    restriction. To copy a record in PostgreSQL, use `gesta push` or the tools of its server.
    """
    from gesta.cli import storage

    storage.backup(options)


@command(AdoptOptions, example="gesta adopt --record copy.gesta --by ann --yes")
def adopt(options: AdoptOptions) -> int:
    """Declare that a copy is used from now on, after a restore.

    In a copy, turns that were open start no call with effects, because the original record may continue them. Adopt the
    copy only if the original, and every other copy, is no longer used. First check what the original did after the copy
    was made. The copy does not know these actions, and its turns would do them a second time.

    With RUN, this record continues a run that `gesta push` mirrored here, or that was moved away. The runs that
    started it, and the runs that it started, are continued too. Use this if the other record is lost.
    """
    from gesta.cli import claims

    return claims.adopt(options)


@command(GoneOptions, example="gesta gone 6f2c81d0a94be357 --by ann --yes")
def gone(options: GoneOptions) -> int:
    """Declare that a process has ended, if Gesta cannot find out.

    A call with effects is not tried a second time while the process of the first attempt may still run. Only the
    machine of that process knows whether it runs. First make sure that the process has ended, with everything that it
    started. A process that runs on this machine cannot be declared to have ended: the exit code is 1. Without PROCESS,
    the command lists the processes that may write a run, or that tried a call without a result.
    """
    from gesta.cli import claims

    return claims.gone(options)


@command(PruneOptions, example="gesta prune --before 90d --keep 100 --yes")
def prune(options: PruneOptions) -> int:
    """Remove old whole runs for good, after listing them.

    A run stays if its turn is open, or if it is held (`gesta hold`). It also stays if another run that stays refers to
    it. A removed run leaves a tombstone, which `gesta verify` checks. If you name a run that has to stay, no run is
    removed, and the exit code is 1.
    """
    from gesta.cli import storage

    return storage.prune(options)


@command(HoldOptions, example="gesta hold last --reason 'a complaint'")
def hold(options: HoldOptions) -> None:
    """Protect a run from being pruned, or --release it.

    The record stores who holds the run and why. Without RUN, the command lists the runs that are held.
    """
    from gesta.cli import storage

    storage.hold(options)


@command(RepairOptions, example="gesta repair runs.gesta --yes")
def repair(options: RepairOptions) -> int:
    """Remove what others added to a record's tables.

    Triggers, views and indexes that no release of Gesta made are shown first, each with its text. None of them is run.
    Gesta's own views and indexes are created again if they are missing. No entry and no table is changed. The exit code
    is 1 if an object is left that prevents opening the record.
    """
    from gesta.cli import repairing

    return repairing.repair(options)
