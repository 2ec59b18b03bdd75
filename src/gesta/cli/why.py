"""The command `why`, which shows what an answer was made from.

An entry is one recorded event of a run (a conversation of an agent), and `seq` is its number in the run.
"""

from dataclasses import dataclass
from typing import Annotated

import typer

from gesta.cli.app import command
from gesta.cli.options import OnRecord, Run


@dataclass(frozen=True, kw_only=True)
class WhyOptions(OnRecord):
    """Command-line options of `gesta why`."""

    run: Run = "last"
    entry: Annotated[
        int | None,
        typer.Argument(
            metavar="[ENTRY]", min=1, help="Seq of an entry; by default the last answer.", show_default=False
        ),
    ] = None
    all: Annotated[bool, typer.Option("--all", help="Show everything, with whole texts.")] = False


@command(WhyOptions, example="gesta why last")
def why(options: WhyOptions) -> None:
    """Show what an answer was made from, back to its question.

    The command lists entries from the Question to the Conclusion. Each line has the seq of an entry, and the entries
    that this entry was made from.
    """
    from gesta.cli import chains

    chains.why(options, options.run, options.entry, everything=options.all)
