"""Refuses settings of a model that would replace parts of the request body which Gesta writes itself.

Settings are members of the body by the provider's own names. The messages, for example, are made from the recorded
entries of a run, so a setting must not replace them.
"""

from collections.abc import Collection
from typing import Any

from gesta.errors import AgentError

SERVER_TOOLS = "server_tools"
"""Name of the setting that lists the tools which the provider runs itself. The list is in the provider's own form."""
ELSEWHERE = f" Tools that the provider runs itself go into {SERVER_TOOLS!r}."


def refuse_own(model: str, settings: dict[str, Any], own: Collection[str], more: str = "") -> None:
    """Raise AgentError if a setting has one of the names in `own`.

    Args:
        model: name of the model, for the error.
        own: names of the members of the request body that Gesta writes itself.
        more: a sentence to add to the error.
    """
    for name in own:
        if name in settings:
            raise AgentError(
                f"Settings of model {model!r} hold {name!r}, which is made from the agent and its record. "
                f"Leave out {', '.join(map(repr, own))}; every other member is sent as it is.{more}"
            )
