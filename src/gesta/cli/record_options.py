"""Options of the commands that search a whole record, and of those that maintain it."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from gesta.cli.options import By, OnRecord

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="AGE|DAY", help="Only from then on: 7d, 2026-11-21.", show_default=False),
]
Until = Annotated[str | None, typer.Option("--until", metavar="AGE|DAY", help="Only before that.", show_default=False)]


@dataclass(frozen=True, kw_only=True)
class FindOptions(OnRecord):
    """Options of `find`."""

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORDS...", help="All must be there; in quotes, together; a* begins.", show_default=False
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
    best: Annotated[bool, typer.Option("--best", help="Best first, in place of newest first.")] = False
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many are listed.")] = 20


@dataclass(frozen=True, kw_only=True)
class StatsOptions(OnRecord):
    """Options of `stats`."""

    by: Annotated[Literal["day", "agent", "model", "tool"], typer.Option("--by", help="A row for each.")] = "day"
    session: Annotated[str | None, typer.Option("--session", "-s", help="Only this one.", show_default=False)] = None
    since: Since = None
    until: Until = None


@dataclass(frozen=True, kw_only=True)
class BackupOptions(OnRecord):
    """Options of `backup`."""

    to: Annotated[str, typer.Argument(metavar="TO", help="A new file ending in .gesta.", show_default=False)]


@dataclass(frozen=True, kw_only=True)
class RepairOptions(OnRecord):
    """Options of `repair`."""

    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The record.", show_default=False)] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


@dataclass(frozen=True, kw_only=True)
class PruneOptions(OnRecord):
    """Options of `prune`."""

    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="These, with the runs below them.", show_default=False),
    ] = None
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="AGE|DAY", help="To which nothing came since: 30d, 2026-11-21.", show_default=False
        ),
    ] = None
    session: Annotated[
        str | None, typer.Option("--session", "-s", metavar="NAME", help="Of this session.", show_default=False)
    ] = None
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=0, help="The N newest stay, whatever else.")] = 0
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who prunes; by default you.", show_default=False)
    ] = None
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is written down.", show_default=False)
    ] = None


@dataclass(frozen=True, kw_only=True)
class HoldOptions(OnRecord):
    """Options of `hold`."""

    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Without one, what is held is listed.", show_default=False),
    ] = None
    release: Annotated[bool, typer.Option("--release", help="Let it go again.")] = False
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why.", show_default=False)] = None
    by: By = None


@dataclass(frozen=True, kw_only=True)
class AdoptOptions(OnRecord):
    """Options of `adopt`."""

    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="Mirrors, or runs that were moved away; by default the record.", show_default=False
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who says so; by default you.", show_default=False)
    ] = None


@dataclass(frozen=True, kw_only=True)
class GoneOptions(OnRecord):
    """Options of `gone`."""

    process: Annotated[
        str | None,
        typer.Argument(metavar="[PROCESS]", help="Its name, or the start of it. Without one, all are listed."),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who says so; by default you.", show_default=False)
    ] = None
