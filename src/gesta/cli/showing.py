"""The command `show`: one entry, or the exact request that was sent."""

from gesta.cli.app import command
from gesta.cli.options import ShowOptions


@command(ShowOptions, example="gesta show last --diff")
def show(options: ShowOptions) -> None:
    """Show an entry, or a request as it was sent.

    With --as or --model the request is made for another form or provider, and a note names what those cannot show.

    --wire makes the body again from the entries and checks it against the digest on record. --diff names the entries
    that each new message was made from, what the provider had in its cache, and what broke that.
    """
    from gesta.cli import wire

    wire.show(options)
