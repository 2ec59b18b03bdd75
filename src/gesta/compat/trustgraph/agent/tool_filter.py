"""Functions that select the tools of a request by its groups of tools and by the state of its run.

The state is a word, such as `ready`, which a tool may set when it succeeds. Gesta itself makes the same selection
before each request to a model.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from gesta.function_tool.tool import Tool

T = TypeVar("T")
UNDEFINED = "undefined"
"""The state of a run before any tool has set one."""


def filter_tools_by_group_and_state(
    tools: Mapping[str, T], requested_groups: Sequence[str] | None = None, current_state: str | None = None
) -> dict[str, T]:
    """Return the tools that belong to a requested group and can be used in the current state.

    Args:
        requested_groups: `None` means the group `default`; `*` means all groups; an empty sequence means no tools.
        current_state: an empty state, or `None`, means `undefined`.
    """
    groups = {"default"} if requested_groups is None else set(requested_groups)
    return {name: tool for name, tool in tools.items() if _available(tool, groups, current_state or UNDEFINED)}


def get_next_state(tool: Any, current_state: str) -> str:
    """Return the state of a run after a tool has succeeded: the state that the tool sets, else the current state."""
    return str(_config(tool).get("state") or current_state)


def validate_tool_config(config: Mapping[str, Any]) -> None:
    """Check the groups and states of a tool. Raises ValueError if one of them has a wrong type."""
    for name, what in (("group", "group"), ("applicable-states", "state")):
        value = config.get(name, [])
        if not isinstance(value, list):
            raise ValueError(f"Tool {name!r} field must be a list of strings, got {value!r:.100}")  # noqa: TRY004 - as its users catch it
        if not all(isinstance(each, str) for each in value):
            raise ValueError(f"All {what} names must be strings, got {value!r:.100}")
    if not isinstance(config.get("state", ""), str):
        raise ValueError(f"Tool 'state' field must be a string, got {config['state']!r:.100}")  # noqa: TRY004


def _available(tool: Any, groups: set[str], state: str) -> bool:
    config = _config(tool)
    own, states = _listed(config.get("group", ["default"])), _listed(config.get("applicable-states", ["*"]))
    return ("*" in groups or not groups.isdisjoint(own)) and not {"*", state}.isdisjoint(states)


def _config(tool: Any) -> Mapping[str, Any]:
    """Return the groups and states of a tool as a dict. The tool may be TrustGraph's or Gesta's."""
    if isinstance(tool, Tool):
        made = {"group": list(tool.group), "applicable-states": list(tool.applicable_states), "state": tool.state}
        return {name: value for name, value in made.items() if value}
    found: Mapping[str, Any] | None = getattr(tool, "config", None)
    return found or {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
