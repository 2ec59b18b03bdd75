"""Command-line options of the commands that search a whole record, and of the commands that maintain a record."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from gesta.cli.options import By, OnRecord, Reason

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="AGE|DAY", help="Only from this time on: 7d, 2026-11-21.", show_default=False),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="AGE|DAY", help="Only before this time.", show_default=False)
]
Sure = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DeclaredBy = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who declares it; by default you.", show_default=False)
]


@dataclass(frozen=True, kw_only=True)
class FindOptions(OnRecord):
    """Command-line options of `gesta find`."""

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORDS...", help='Words that an entry must have. Also: "a phrase", begin*.', show_default=False
        ),
    ]
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only in this run.", show_default=False)] = (
        None
    )
    session: Annotated[
        str | None, typer.Option("--session", "-s", metavar="NAME", help="Only in this session.", show_default=False)
    ] = None
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only in runs of this agent.", show_default=False)
    ] = None
    kinds: Annotated[
        str | None, typer.Option("--kinds", metavar="A,B", help="Only in entries of these kinds.", show_default=False)
    ] = None
    since: Since = None
    until: Until = None
    best: Annotated[bool, typer.Option("--best", help="List the best matches first, not the newest.")] = False
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Greatest number of entries listed.")
    ] = 20


@dataclass(frozen=True, kw_only=True)
class SessionsOptions(OnRecord):
    """Command-line options of `gesta sessions`."""

    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORDS]...", help="Only sessions with these words.", show_default=False),
    ] = None
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="An agent took part.", show_default=False)
    ] = None
    stands: Annotated[
        str | None,
        typer.Option(
            "--stands", metavar="STATE", help="waiting, open, running, ended, answered, failed, ...", show_default=False
        ),
    ] = None
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="NAME", help="A tool was called.", show_default=False)
    ] = None
    errors: Annotated[bool, typer.Option("--errors", help="Something failed.")] = False
    cost: Annotated[
        float | None, typer.Option("--cost", metavar="USD", min=0, help="It cost at least so much.", show_default=False)
    ] = None
    since: Since = None
    until: Until = None
    sort: Annotated[
        Literal["newest", "cost", "tokens", "duration", "entries"], typer.Option("--sort", help="What comes first.")
    ] = "newest"
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Greatest number of sessions listed.")
    ] = 20


@dataclass(frozen=True, kw_only=True)
class StatsOptions(OnRecord):
    """Command-line options of `gesta stats`."""

    by: Annotated[Literal["day", "agent", "model", "tool"], typer.Option("--by", help="What each row counts.")] = "day"
    session: Annotated[
        str | None, typer.Option("--session", "-s", metavar="NAME", help="Only this session.", show_default=False)
    ] = None
    since: Since = None
    until: Until = None


@dataclass(frozen=True, kw_only=True)
class BackupOptions(OnRecord):
    """Command-line options of `gesta backup`."""

    to: Annotated[str, typer.Argument(metavar="TO", help="A new file ending in .gesta.", show_default=False)]


@dataclass(frozen=True, kw_only=True)
class RepairOptions(OnRecord):
    """Command-line options of `gesta repair`."""

    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The record.", show_default=False)] = None
    yes: Sure = False


@dataclass(frozen=True, kw_only=True)
class PruneOptions(OnRecord):
    """Command-line options of `gesta prune`."""

    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Runs to remove, with the runs below them.", show_default=False),
    ] = None
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="AGE|DAY", help="Runs unchanged since then: 30d, 2026-11-21.", show_default=False
        ),
    ] = None
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", metavar="NAME", help="Only runs of this session.", show_default=False),
    ] = None
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=0, help="Number of newest runs that stay in any case.")
    ] = 0
    yes: Sure = False
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who prunes; by default you.", show_default=False)
    ] = None
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="The reason, which is recorded.", show_default=False)
    ] = None


@dataclass(frozen=True, kw_only=True)
class HoldOptions(OnRecord):
    """Command-line options of `gesta hold`."""

    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The run; without it, held runs are listed.", show_default=False),
    ] = None
    release: Annotated[bool, typer.Option("--release", help="End the hold.")] = False
    reason: Reason = None
    by: By = None


@dataclass(frozen=True, kw_only=True)
class AdoptOptions(OnRecord):
    """Command-line options of `gesta adopt`."""

    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="Mirrors or moved runs; by default the whole record.", show_default=False
        ),
    ] = None
    yes: Sure = False
    by: DeclaredBy = None


@dataclass(frozen=True, kw_only=True)
class GoneOptions(OnRecord):
    """Command-line options of `gesta gone`."""

    process: Annotated[
        str | None,
        typer.Argument(metavar="[PROCESS]", help="Name of the process or its start. Without it, all are listed."),
    ] = None
    yes: Sure = False
    by: DeclaredBy = None
