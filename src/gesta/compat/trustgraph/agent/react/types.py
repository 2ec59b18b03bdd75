"""TrustGraph's classes for actions, final answers, tools and the arguments of tools."""

from dataclasses import dataclass, field
from typing import Any

from gesta.compat.trustgraph.context import Action, Final


@dataclass
class Argument:
    """The description of one argument of a tool."""

    name: str
    type: str
    description: str


@dataclass
class Tool:
    """A tool as a pattern sees it. `await implementation(context).invoke(...)` runs it."""

    name: str
    description: str
    arguments: list[Argument]
    implementation: Any
    config: dict[str, Any] = field(default_factory=dict)
    """Optional keys: `group`, `state` and `applicable-states`."""


__all__ = ["Action", "Argument", "Final", "Tool"]
