"""Commands that import, export, copy and check data: `import`, `export`, `push`, `verify`.

A record is the store of all runs. A run is one conversation of an agent, recorded as a list of entries. A head is the
id and digest of a run's last entry. A letter is a message in a run's inbox. The docstrings are help texts.
"""

from gesta.cli.app import command
from gesta.cli.options import ExportOptions, ImportOptions, PushOptions, VerifyOptions
from gesta.importers.own import OWN


@command(ImportOptions, example="gesta import runs.jsonl --record copy.gesta", lists={"formats": ", ".join(OWN)})
def import_(options: ImportOptions) -> int:
    """Read recorded conversations into a record.

    The format of a file is recognised from its content. Formats: {formats}.
    """
    from gesta.cli import files

    return files.import_(options)


@command(ExportOptions, example="gesta export last -o run.jsonl")
def export(options: ExportOptions) -> None:
    """Write runs as Gesta's JSON lines.

    Other formats, by --format: agent-catalog, an activity log; trig and nquads, which say in the terms of PROV-O what
    each answer was made from; otlp, spans of OpenTelemetry in OTLP's JSON.
    """
    from gesta.cli import files

    files.export(options)


@command(PushOptions, example="gesta push runs.gesta copy.gesta")
def push(options: PushOptions) -> int:
    """Copy a record into another, also to or from PostgreSQL.

    Ids, digests and the order of entries stay the same. The command may be repeated: only new entries are copied. A run
    that another process is writing is listed and not copied; the exit code is then 1.

    A run that is new in the other record becomes a mirror there: no turn can run in it. With --move, runs are continued
    only in the other record, and the letters in their inboxes are moved too. If a move was interrupted, repeat it.
    """
    from gesta.cli import files

    return files.push(options)


@command(VerifyOptions, example="gesta verify runs.gesta")
def verify(options: VerifyOptions) -> int:
    """Check whether a byte of a record was changed.

    Every entry is checked against the chain of digests of its run. If something was changed, the command says where,
    and the exit code is 1.

    A person who can write the file can also cut off its end, or compute a new chain. Only heads that were kept
    elsewhere show this: --keep writes heads to a file, and --head FILE compares the record with them later.
    """
    from gesta.cli import files

    return files.verify(options)
