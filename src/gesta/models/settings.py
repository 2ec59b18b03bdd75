"""Members of a body that settings may not name, and the one setting that is no member of a body."""

from collections.abc import Collection
from typing import Any

from gesta.errors import AgentError

SERVER_TOOLS = "server_tools"
"""Lists tools which a provider runs itself, in its own form."""
ELSEWHERE = f" Tools that the provider runs itself go into {SERVER_TOOLS!r}."


def refuse_own(model: str, settings: dict[str, Any], own: Collection[str], more: str = "") -> None:
    """Refuse settings that would replace members made from the record. Raises AgentError."""
    for name in own:
        if name in settings:
            raise AgentError(
                f"Settings of model {model!r} hold {name!r}, which is made from the agent and its record. "
                f"Leave out {', '.join(map(repr, own))}; every other member is sent as it is.{more}"
            )
