"""What an agent decides, and the tools that it may use, as TrustGraph's patterns see them."""

from dataclasses import dataclass, field
from typing import Any

from gesta.compat.trustgraph.context import Action, Final


@dataclass
class Argument:
    """An argument of a tool."""

    name: str
    type: str
    description: str


@dataclass
class Tool:
    """A tool: `implementation(context).invoke(...)` carries it out."""

    name: str
    description: str
    arguments: list[Argument]
    implementation: Any
    config: dict[str, Any] = field(default_factory=dict)
    """`group`, `state` and `applicable-states`, where it has them."""


__all__ = ["Action", "Argument", "Final", "Tool"]
