"""The command `show`: one entry, or the exact request that was sent."""

from dataclasses import dataclass
from typing import Annotated

import typer

from gesta.cli.app import command
from gesta.cli.options import OnRecord, Run


@dataclass(frozen=True, kw_only=True)
class ShowOptions(OnRecord):
    """What `show` takes."""

    run: Run = "last"
    entry: Annotated[
        int | None,
        typer.Argument(
            metavar="[ENTRY]", min=1, help="Seq of an entry; by default the last request.", show_default=False
        ),
    ] = None
    wire: Annotated[bool, typer.Option("--wire", help="The request as it was sent, secrets marked.")] = False
    diff: Annotated[bool, typer.Option("--diff", help="What a request added to the one before, and from what.")] = False
    form: Annotated[
        str | None,
        typer.Option("--as", metavar="FORMATTER", help="In another form, such as react-text.", show_default=False),
    ] = None
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="PROVIDER:NAME", help="As another model would be asked.", show_default=False),
    ] = None
    whole: Annotated[bool, typer.Option("--whole", help="As if nothing had been left out of the prompt.")] = False


@command(ShowOptions, example="gesta show last --diff")
def show(options: ShowOptions) -> None:
    """Show an entry, or a request as it was sent.

    With --as or --model the request is made for another form or provider, and what those cannot show is told.

    --wire makes the body again from the entries and checks it against the digest on record. --diff names the entries
    that each new message was made from, what the provider had in its cache, and what broke that.
    """
    from gesta.cli import wire

    wire.show(options)
