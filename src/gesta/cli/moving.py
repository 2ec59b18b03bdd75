"""Commands that move data: `import`, `export`, `push`, `verify`."""

from gesta.cli.app import command
from gesta.cli.options import ExportOptions, ImportOptions, PushOptions, VerifyOptions


@command(ImportOptions, example="gesta import runs.jsonl --record copy.gesta")
def import_(options: ImportOptions) -> int:
    """Read recorded conversations into a record.

    The content of a file shows its format. Formats: gesta, tau-bench, tau2-bench, tau2-voice, tau-bench-few-shot,
    agentdojo, mini-swe-agent, swe-agent, swe-agent-interactions, inspect, langfuse, who-and-when, activegraph,
    agent-catalog, openai-chat.
    """
    from gesta.cli import files

    return files.import_(options)


@command(ExportOptions, example="gesta export last -o run.jsonl")
def export(options: ExportOptions) -> None:
    """Write runs as Gesta's JSON lines.

    Other formats, by --format: agent-catalog, an activity log; trig and nquads, what each
    answer was made from as PROV-O; otlp, spans of OpenTelemetry in OTLP's JSON.
    """
    from gesta.cli import files

    files.export(options)


@command(PushOptions, example="gesta push runs.gesta copy.gesta")
def push(options: PushOptions) -> int:
    """Copy a record into another, also to or from PostgreSQL.

    Ids, digests and the order of entries stay. It can be repeated: only what is new is copied. A run that another
    process writes is not copied but listed; exit code 1 then.

    A run that is new in the other record is a mirror there, which takes no turn. With --move the runs go on there and
    no longer here, and the letters that wait go along. A move that broke off is completed by repeating it.
    """
    from gesta.cli import files

    return files.push(options)


@command(VerifyOptions, example="gesta verify runs.gesta")
def verify(options: VerifyOptions) -> int:
    """Find out whether a byte of a record was changed.

    Every entry is checked against the chain of digests of its run. Exit code 1, and where, if something was changed.

    Whoever can write the file can cut off its end, or work out a chain anew. Only heads that --keep
    wrote before, to a place where that person cannot write, reveal it: --head FILE.
    """
    from gesta.cli import files

    return files.verify(options)
