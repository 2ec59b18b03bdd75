"""Commands that show a record: `runs`, `log`, `sql`.

A record is the store of all runs. A run is one conversation of an agent, recorded as a list of entries. The docstrings
are help texts.
"""

from gesta.cli.app import command
from gesta.cli.options import LogOptions, RunsOptions, SqlOptions


@command(RunsOptions, example="gesta runs --limit 5")
def runs(options: RunsOptions) -> None:
    """List the runs and their state; the one written to last comes first.

    The command searches for the record in this folder, then in the folders above it.
    """
    from gesta.cli import pages

    pages.runs(options)


@command(LogOptions, example="gesta log last")
def log(options: LogOptions) -> int | None:
    """Read a run as a conversation, calls and results included.

    --as shows it in the form of another system: activity (agent-catalog), steps (LangChain), task (Langroid; also with
    --format tsv), react and codeact (KodeAgent).
    """
    if options.form is None and options.format is None:
        from gesta.cli import pages

        return pages.log(options)
    from gesta.cli import forms

    forms.log(options)
    return None


@command(SqlOptions, example="gesta sql 'SELECT kind, count(*) FROM entries GROUP BY kind'")
def sql(options: SqlOptions) -> None:
    """Query the record with SQL that only reads.

    Tables: entries (run, seq, kind, at, span, causes, content as JSON, ...), runs, blobs.
    """
    from gesta.cli import pages

    pages.sql(options)
