"""The command `show`, which prints one entry, or the exact request that was sent to a model.

An entry is one recorded event of a run (a conversation of an agent). The docstring is the help text.
"""

from gesta.cli.app import command
from gesta.cli.options import ShowOptions


@command(ShowOptions, example="gesta show last --diff")
def show(options: ShowOptions) -> None:
    """Show an entry, or a request as it was sent.

    With --as or --model, the request is made for another formatter or provider, and a note names what is lost. --wire
    makes the body again from the entries, and compares its digest with the recorded one. --diff names the entries from
    which each new message was made. It also shows what the provider had in its cache, and why it could not use more.
    """
    from gesta.cli import wire

    wire.show(options)
