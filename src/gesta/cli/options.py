"""Options that several commands share, as dataclasses. Each command takes one of them as its only argument.

A record is the store of all runs, usually one file. The options decide which record is used. A command that writes uses
`--record`, else the variable `GESTA_RECORD`, else `runs.gesta` in this folder, and prints its choice. A command that
only reads also searches the folders above.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from gesta.cli.talk import DIM, Stop, say
from gesta.errors import GestaError, NoRecord

DEFAULT = "runs.gesta"
VARIABLE = "GESTA_RECORD"

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="An id, the start of one, a session name, or `last`.", show_default=False)
]


@dataclass(frozen=True, kw_only=True)
class Common:
    """Command-line options that every command has."""

    json: Annotated[bool, typer.Option("--json", help="Write data as JSON lines.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False


@dataclass(frozen=True, kw_only=True)
class OnRecord(Common):
    """Command-line options of a command that reads or writes a record."""

    record: Annotated[str | None, typer.Option("--record", metavar="FILE", help="The record.", show_default=False)] = (
        None
    )

    @property
    def named(self) -> str:
        """The text ` --record FILE` for command lines that are printed; empty if the user did not give this option."""
        return f" --record {quoted(self.record)}" if self.record else ""

    def target(self, *, new: bool = False) -> str:
        """Return the address of the record to write: `--record`, else `GESTA_RECORD`, else `runs.gesta` in this folder.

        Args:
            new: whether the record need not exist, because the command creates it.

        Raises:
            NoRecord: there is no record.
            Stop: there is none, but others are in the folder; or the record would be in memory.
        """
        address = self.record or os.environ.get(VARIABLE) or DEFAULT
        if "://" not in address:
            if address == ":memory:":
                raise Stop("A record that ends with the command helps nobody. Name a file: --record FILE.gesta")
            if not new and not Path(address).is_file():
                raise _missing(address)
            if not self.record:
                say(f"record: {address}", DIM)
        return address

    def source(self, named: str | None = None) -> str:
        """Return the address of the record to read: `named`, else `--record`, else `GESTA_RECORD`, else one nearby.

        `nearest_record` finds the record nearby.

        Raises:
            NoRecord: there is no record.
            Stop: there is none, but others are in the folder; or nothing says which of them is meant.
        """
        address = named or self.record or os.environ.get(VARIABLE) or nearest_record()
        if "://" not in address and not Path(address).is_file():
            raise _missing(address)
        return address


By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who answers, by default you; nothing checks it.", show_default=False),
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="The reason.", show_default=False)]
Call = Annotated[
    int | None, typer.Option("--call", metavar="N", help="Seq of the call, if several wait.", show_default=False)
]


DefaultModel = Annotated[
    str | None,
    typer.Option("--model", metavar="PROVIDER:NAME", help="The model for agents without one.", show_default=False),
]


Servers = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        metavar="SERVER",
        help="Add the tools of an MCP server, a command or a URL; may be repeated.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class WorkOptions(OnRecord):
    """Command-line options of `gesta work`."""

    agents: Annotated[
        list[str],
        typer.Argument(metavar="FILE.py:NAME...", help="The agents whose turns are continued.", show_default=False),
    ]
    model: DefaultModel = None
    mcp: Servers = None
    once: Annotated[bool, typer.Option("--once", help="Continue all turns that are due now, then end.")] = False
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Number of turns that run at once.")] = 4
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.05, help="Time between two checks of the record.")
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class ApproveOptions(OnRecord):
    """Command-line options of `gesta approve`."""

    run: Run = "last"
    deny: Annotated[bool, typer.Option("--deny", help="Deny the call.")] = False
    args: Annotated[
        str | None,
        typer.Option("--args", metavar="JSON", help="Run the call with these arguments.", show_default=False),
    ] = None
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="JSON", help="Do not run the call; this is its result.", show_default=False),
    ] = None
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="The reason, which the model reads.", show_default=False),
    ] = None
    by: By = None
    call: Call = None
    all: Annotated[bool, typer.Option("--all", help="Every call that waits.")] = False
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file", metavar="FILE", help="File with a token that proves who answers.", show_default=False
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(OnRecord):
    """Command-line options of `gesta answer`."""

    run: Run
    text: Annotated[
        str, typer.Argument(metavar="ANSWER", help="The answer: JSON if the question asks for it, else text.")
    ]
    by: By = None
    call: Annotated[
        int | None,
        typer.Option("--question", metavar="N", help="Seq of the question, if several wait.", show_default=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ResolveOptions(OnRecord):
    """Command-line options of `gesta resolve`."""

    run: Run
    verdict: Annotated[
        Literal["done", "failed", "retry"],
        typer.Argument(metavar="done|failed|retry", help="It happened, it failed, or it is to be tried again."),
    ]
    result: Annotated[
        str | None,
        typer.Option(
            "--result", metavar="JSON", help="The result of the call, which the model reads.", show_default=False
        ),
    ] = None
    by: By = None
    call: Call = None


@dataclass(frozen=True, kw_only=True)
class CancelOptions(OnRecord):
    """Command-line options of `gesta cancel`."""

    run: Run = "last"
    reason: Reason = None
    by: By = None


@dataclass(frozen=True, kw_only=True)
class RunsOptions(OnRecord):
    """Command-line options of `gesta runs`."""

    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Greatest number of runs listed.")] = (
        20
    )
    size: Annotated[bool, typer.Option("--size", help="Show bytes: of entries, and of large values.")] = False


@dataclass(frozen=True, kw_only=True)
class LogOptions(OnRecord):
    """Command-line options of `gesta log`."""

    run: Run = "last"
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep running, and show new entries as they come.")] = (
        False
    )
    kinds: Annotated[
        str | None,
        typer.Option("--kinds", metavar="A,B", help="Only entries of these kinds.", show_default=False),
    ] = None
    raw: Annotated[bool, typer.Option("--raw", help="Show entries as they are stored.")] = False
    form: Annotated[
        str | None,
        typer.Option("--as", metavar="FORM", help="Form: activity, steps, task, react or codeact.", show_default=False),
    ] = None
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="tsv", help="With --as task: tab-separated values.", show_default=False),
    ] = None
    all: Annotated[bool, typer.Option("--all", help="Also show requests, attempts and whole texts.")] = False


@dataclass(frozen=True, kw_only=True)
class SqlOptions(OnRecord):
    """Command-line options of `gesta sql`."""

    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT.", show_default=False)]
    csv: Annotated[bool, typer.Option("--csv", help="Write comma-separated values.")] = False
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", min=0, help="Time limit of the query; 0 for none.")
    ] = 60.0
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=0, help="Limit of rows; 0 for none.")] = 1_000_000
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", min=0, help="Limit of bytes of the result; 0 for none.")
    ] = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(OnRecord):
    """Command-line options of `gesta verify`."""

    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The record.", show_default=False)] = None
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="HEAD", help="A head that was kept, or a file of heads.", show_default=False),
    ] = None
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="FILE", help="Write the heads of all runs to this file.", show_default=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ExportOptions(OnRecord):
    """Command-line options of `gesta export`."""

    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="An id, the start of one, a session, or `last`.", show_default=False),
    ] = None
    all: Annotated[bool, typer.Option("--all", help="Every run.")] = False
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="gesta, agent-catalog, trig, nquads or otlp.")
    ] = "gesta"
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Output file; by default standard output.", show_default=False
        ),
    ] = None
    content: Annotated[bool, typer.Option("--content", help="With otlp: also what was said and called.")] = False


@dataclass(frozen=True, kw_only=True)
class ImportOptions(OnRecord):
    """Command-line options of `gesta import`."""

    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="The files to read.", show_default=False)]
    format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="Format of the files; by default recognised.", show_default=False
        ),
    ] = None
    largest_value: Annotated[
        int, typer.Option("--largest-value", metavar="N", min=1, help="Limit of characters in one value or line.")
    ] = 64 * 2**20
    largest_file: Annotated[
        int, typer.Option("--largest-file", metavar="N", min=1, help="Limit of bytes of one file, unpacked.")
    ] = 16 * 2**30


@dataclass(frozen=True, kw_only=True)
class PushOptions(Common):
    """Command-line options of `gesta push`."""

    source: Annotated[str, typer.Argument(metavar="FROM", help="The record that is copied.", show_default=False)]
    target: Annotated[
        str,
        typer.Argument(metavar="TO", help="A file ending in .gesta, or postgresql://…", show_default=False),
    ]
    move: Annotated[bool, typer.Option("--move", help="Move the runs: they continue only in TO.")] = False
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who moves them; by default you.", show_default=False)
    ] = None


def nearest_record() -> str:
    """Return the path of the nearest `runs.gesta`, in this folder or above it.

    If there is none, return the path of the only other record in this folder.

    Raises:
        NoRecord: there is no record.
        Stop: there are several records in this folder.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / DEFAULT).is_file():
            return os.path.relpath(folder / DEFAULT) if folder in (here, here.parent) else str(folder / DEFAULT)
    others = _records(here)
    if len(others) == 1:
        return others[0]
    if others:
        raise Stop(f"Several records lie here: {', '.join(others)}. Name one with --record FILE.")
    raise NoRecord(DEFAULT)


def _missing(address: str) -> GestaError:
    """Return the error that there is no record at an address. It names the records in the folder of the address.

    If the address is a folder, the error says so, and names the records in it.
    """
    inside = os.path.isdir(address)  # noqa: PTH112 - a NUL in it is not an error
    found = _records(Path(address) if inside else Path(address).parent)
    if not found and not inside:
        return NoRecord(address)
    them = ", ".join(map(repr, found[:5])) + (" and others" if found[5:] else "")
    what = f"{address!r} is a folder, and a record is a file." if inside else f"No record at {address!r}."
    has = f" That folder has {them}." if found else ""
    return Stop(f"{what}{has} Name one with --record FILE, or in the variable {VARIABLE}.")


def _records(folder: Path) -> list[str]:
    found = folder.glob("*.gesta") if os.path.isdir(folder) else ()  # noqa: PTH112 - a NUL in it is not an error
    return sorted(path.name for path in found if path.is_file())


def quoted(text: str) -> str:
    """Return a word as it must be written in a shell command: in quotes if it needs them, else unchanged."""
    import shlex

    return shlex.quote(text)


@dataclass(frozen=True, kw_only=True)
class ShowOptions(OnRecord):
    """Command-line options of `gesta show`."""

    run: Run = "last"
    entry: Annotated[
        int | None,
        typer.Argument(
            metavar="[ENTRY]", min=1, help="Seq of an entry; by default the last request.", show_default=False
        ),
    ] = None
    wire: Annotated[bool, typer.Option("--wire", help="Show the request as sent, without secrets.")] = False
    diff: Annotated[bool, typer.Option("--diff", help="Show what a request added to the one before.")] = False
    form: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="FORMATTER", help="Show it in another form, such as react-text.", show_default=False
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="PROVIDER:NAME", help="Show it as a request to this model.", show_default=False
        ),
    ] = None
    whole: Annotated[bool, typer.Option("--whole", help="Show the prompt without its compactions.")] = False
