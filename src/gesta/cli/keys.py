"""The command `models`: which providers could be asked, and which environment variables hold a key."""

import os
from dataclasses import dataclass

from gesta.cli.app import command
from gesta.cli.options import Common
from gesta.cli.talk import DIM, json_line, put_all, say


@dataclass(frozen=True, kw_only=True)
class ModelsOptions(Common):
    """Options of `models`."""


@command(ModelsOptions, example="gesta models")
def models(options: ModelsOptions) -> None:
    """List providers, and whose key was found; never the key."""
    from gesta.cli.layout import table
    from gesta.models.providers import PROVIDERS

    rows = []
    for provider in PROVIDERS.values():
        found = bool(provider.key_variable and os.environ.get(provider.key_variable, "").strip())
        rows.append((provider.name, provider.key_variable, provider.key_needed, found, provider.url))
    if options.json:
        names = ("provider", "variable", "needed", "found", "url")
        put_all(json_line(dict(zip(names, row, strict=True))) for row in rows)
        return
    lines = []
    for name, variable, needed, found, url in rows:
        if variable is None:
            key = "needs no key"
        elif found:
            key = f"{variable} is set"
        else:
            key = f"{variable} is not set" if needed else f"{variable} is not set, and not needed"
        lines.append((name, key, url))
    put_all(table(("provider", "key", "address"), lines))
    say("Use one with --model NAME:MODEL, as in openai:gpt-4o; any other server that speaks Chat Completions with", DIM)
    say("--base-url URL --model MODEL. No key at all: gesta.scripted(...), gesta.replay(...), `gesta demo`.", DIM)
