"""Commands that keep a record in shape: `backup`, `prune`, `hold`."""

from gesta.cli.app import command
from gesta.cli.record_options import BackupOptions, HoldOptions, PruneOptions


@command(BackupOptions, example="gesta backup copy.gesta")
def backup(options: BackupOptions) -> None:
    """Copy a record into a new file while it is being written.

    The copy is the record as it was at one moment, inbox and index included. A record in PostgreSQL is copied by
    `gesta push`, or by the tools of its server.
    """
    from gesta.cli import storage

    storage.backup(options)


@command(PruneOptions, example="gesta prune --before 90d --keep 100 --yes")
def prune(options: PruneOptions) -> int:
    """Take old runs away for good, whole, after saying which.

    A run stays while its turn is open, while it is held (`gesta hold`), and while a run that stays refers to it. Each
    leaves a tombstone, which `gesta verify` knows. Exit code 1 if one that you named stays; nothing is done then.
    """
    from gesta.cli import storage

    return storage.prune(options)


@command(HoldOptions, example="gesta hold last --reason 'a complaint'")
def hold(options: HoldOptions) -> None:
    """Keep a run from being pruned, or --release it.

    It is written down who holds it and why. Without RUN, what is held is listed.
    """
    from gesta.cli import storage

    storage.hold(options)
