"""The command `models`, which lists the providers of models, and the environment variables with their keys."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gesta.cli.app import command
from gesta.cli.options import Common
from gesta.cli.talk import DIM, json_line, put_all, say

PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")


@dataclass(frozen=True, kw_only=True)
class ModelsOptions(Common):
    """Command-line options of `gesta models`."""


@command(ModelsOptions, example="gesta models")
def models(options: ModelsOptions) -> None:
    """List the providers of models, and which API keys were found."""
    from gesta.cli.layout import table
    from gesta.models.providers import AZURE, PROVIDERS
    from gesta.text.redactor import SECRETS

    rows = []
    for provider in PROVIDERS.values():
        variable, key = provider.key()
        reached, url = provider.in_force(), provider.url
        rows.append(
            {
                "provider": provider.name,
                "variable": variable,
                "needed": provider.key_needed,
                "found": bool(key),
                "url": SECRETS.address(reached.url) if reached.url != AZURE.url else None,
                "url_variable": provider.url_variable,
                "url_found": reached.url != url,
                "headers": [name for name, other in provider.header_variables.items() if os.environ.get(other)],
            }
        )
    if options.json:
        put_all(map(json_line, rows))
        return
    put_all(table(("provider", "key", "address"), [(str(row["provider"]), _key(row), _address(row)) for row in rows]))
    if proxies := [name for name in PROXIES if os.environ.get(name)]:
        say(f"Requests go through what {', '.join(proxies)} says.", DIM)
    say("Use one with --model NAME:MODEL, as in openai:gpt-4o; any other server that speaks Chat Completions with", DIM)
    say("--base-url URL --model MODEL. No key at all: gesta.scripted(...), gesta.replay(...), `gesta demo`.", DIM)


def _key(row: Mapping[str, Any]) -> str:
    variable = row["variable"]
    if variable is None:
        return "needs no key"
    if row["found"]:
        return f"{variable} is set"
    return f"{variable} is not set" if row["needed"] else f"{variable} is not set, and not needed"


def _address(row: Mapping[str, Any]) -> str:
    if row["url"] is None:
        return f"{row['url_variable']} is not set"
    return f"{row['url']}, from {row['url_variable']}" if row["url_found"] else str(row["url"])
