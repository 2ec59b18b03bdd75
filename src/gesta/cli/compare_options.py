"""Command-line options of the commands `replay`, `fork`, `diff` and `case`."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from gesta.cli.options import OnRecord, Run, Servers
from gesta.cli.running import AgentAddress

Live = Annotated[
    list[str] | None,
    typer.Option("--live", metavar="TOOL", help="A tool that may really run; repeatable.", show_default=False),
]


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(OnRecord):
    """Command-line options of `gesta replay`."""

    run: Run
    agent: AgentAddress
    live: Live = None


@dataclass(frozen=True, kw_only=True)
class ForkOptions(OnRecord):
    """Command-line options of `gesta fork`."""

    run: Run
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE.py:NAME]", help="The agent for the fork; without one, no turn is run.", show_default=False
        ),
    ] = None
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="SEQ", min=0, help="Seq of the last entry that is shared.", show_default=False),
    ] = None
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SEQ.PATH=VALUE", help="A new value for a part of one entry.", show_default=False
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PROVIDER:NAME",
            help="Ask this model; `recorded` repeats the record.",
            show_default=False,
        ),
    ] = None
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="Ask an OpenAI-compatible server.", show_default=False),
    ] = None
    instructions: Annotated[
        str | None,
        typer.Option("--instructions", metavar="TEXT", help="Other instructions, or @FILE.", show_default=False),
    ] = None
    live: Live = None
    mcp: Servers = None
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", metavar="NAME", help="Session name of the fork.", show_default=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DiffOptions(OnRecord):
    """Command-line options of `gesta diff`."""

    run: Run
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The run to compare it with.")]


@dataclass(frozen=True, kw_only=True)
class CaseOptions(OnRecord):
    """Command-line options of `gesta case`."""

    what: Annotated[
        Literal["add", "accept"],
        typer.Argument(metavar="add|accept", help="Make a case from a run, or update cases."),
    ]
    words: Annotated[
        list[str],
        typer.Argument(metavar="RUN FILE.py:NAME | FILE...", help="A run and its agent, or cases.", show_default=False),
    ]
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="Folder of the cases.")] = "tests/cases"
    live: Live = None
