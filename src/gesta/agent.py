"""An agent is a frozen description: it has no state, and nothing of it is kept but its name and a digest.

Model and formatter may be named by an address; `gesta.open` binds them when a turn begins.
"""

from typing import Any

import msgspec
from msgspec import Struct

from gesta.codec import digest_of
from gesta.errors import BadTool
from gesta.formatter import Formatter
from gesta.kinds import AgentRef, RequestHeaderContent
from gesta.model import Model
from gesta.policy import Policy, Spelled
from gesta.tooling import Tool


class Agent(Struct, frozen=True, metaclass=Spelled):
    """Who answers: a name, a model, instructions, tools and rules."""

    name: str
    model: Model | str
    """A model, or an address `provider:model`."""
    instructions: str = ""
    tools: tuple[Tool, ...] | list[Tool] = ()
    formatter: Formatter[Any] | str = "tool-calls"
    policy: Policy = Policy()
    settings: dict[str, Any] = {}
    """Settings of the model's request, such as `temperature`, as the provider names them."""
    hint: str | None = None
    """Where the agent came from, for people; never imported."""

    def __post_init__(self) -> None:
        """Refuse two tools of one name: a model could not tell them apart."""
        for tool in self.tools:
            if not isinstance(tool, Tool):
                name = getattr(tool, "__name__", repr(tool))
                found = f"Agent {self.name!r}: {name!r} in its tools is a {type(tool).__name__}, expected a tool."
                raise BadTool(f"{found} Write @gesta.tool above `def {name}`.")
        names = [tool.name for tool in self.tools]
        for name in names:
            if names.count(name) > 1:
                raise BadTool(f"Agent {self.name!r} has two tools named {name!r}. Give one another: tool(name='...').")

    def tool(self, name: str) -> Tool | None:
        """Find a tool by its name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def asked(self) -> Model:
        """Give the model that was bound."""
        assert not isinstance(self.model, str), f"agent {self.name!r} was not bound: model is {self.model!r}"
        return self.model

    def formats(self) -> Formatter[Any]:
        """Give the formatter that was bound."""
        assert not isinstance(self.formatter, str), f"agent {self.name!r} was not bound"
        return self.formatter

    def header(self) -> RequestHeaderContent:
        """Make what holds for all its requests."""
        meta: dict[str, Any] = {"model": self.asked().name}
        if self.instructions:
            meta["instructions"] = self.instructions
        if self.settings:
            meta["settings"] = self.settings
        tools = [
            {"name": tool.name, "description": tool.description, "args_schema": tool.args_schema} for tool in self.tools
        ]
        return RequestHeaderContent(tools=tools or None, meta=meta)

    def ref(self) -> AgentRef:
        """Say which agent this is, on the record."""
        rules = [[tool.name, tool.effect, tool.approval, tool.timeout_s, tool.on_doubt] for tool in self.tools]
        described = [self.name, msgspec.to_builtins(self.header()), self.formats().name, rules]
        return AgentRef(name=self.name, digest=digest_of([described, msgspec.to_builtins(self.policy)]), hint=self.hint)
