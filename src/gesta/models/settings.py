"""Checks that settings do not name members of the body that are made from the record."""

from collections.abc import Collection
from typing import Any

from gesta.errors import AgentError

SERVER_TOOLS = "server_tools"
"""The setting that lists tools which a provider runs itself, in the provider's own form."""
ELSEWHERE = f" Tools that the provider runs itself go into {SERVER_TOOLS!r}."


def refuse_own(model: str, settings: dict[str, Any], own: Collection[str], more: str = "") -> None:
    """Raise AgentError if settings would replace members of the body that are made from the record."""
    for name in own:
        if name in settings:
            raise AgentError(
                f"Settings of model {model!r} hold {name!r}, which is made from the agent and its record. "
                f"Leave out {', '.join(map(repr, own))}; every other member is sent as it is.{more}"
            )
