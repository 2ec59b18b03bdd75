"""The `processor` that a pattern expects: its limit of steps, its tools, and the methods that save contents.

A processor belongs to one turn, the work of the pattern on one message. A record is the store of all runs, and a run is
a list of entries.
"""

from typing import Any

from gesta.compat.trustgraph.agent.orchestrator.turn import PatternTurn
from gesta.compat.trustgraph.agent.react.types import Argument
from gesta.compat.trustgraph.agent.react.types import Tool as Described
from gesta.compat.trustgraph.provenance import agent_session_uri
from gesta.function_tool.tool import Tool


class Processor:
    """The default processor of a pattern. Its methods save nothing, because the record contains every content."""

    def __init__(self, turn: PatternTurn) -> None:
        self.turn = turn
        self.max_iterations = turn.most
        self.additional_context = ""
        self.agent = self
        """The object that has the tools; TrustGraph's patterns read `processor.agent.tools`."""
        self.aggregator = self
        """The object with `register_fanout`, which TrustGraph's patterns call when they start sub-agents."""
        self.tools = {tool.name: described(tool, turn) for tool in turn.verbs.agent.tools}
        """The agent's tools, by name."""

    async def save_answer_content(
        self,
        doc_id: str,
        user: str,
        content: str,
        title: str | None = None,
        timeout: float = 120,  # noqa: ASYNC109 - as its users write it
    ) -> str:
        """Return the document's id without saving anything: an entry of the record contains the content."""
        return doc_id

    def provenance_session_uri(self, session_id: str) -> str:
        """Return the URI of the session with this id."""
        return agent_session_uri(session_id)

    def register_fanout(
        self, correlation_id: str, parent_session_id: str, expected_siblings: int, request_template: Any = None
    ) -> None:
        """Do nothing: the record shows which sub-agents were asked and what each of them found."""


class Implementation:
    """A tool that is bound to the turn in which it runs."""

    def __init__(self, tool: Tool, turn: PatternTurn) -> None:
        self.tool, self.turn = tool, turn

    def __call__(self, context: Any) -> "Implementation":
        """Return this object. The context is not used, because the turn is already known."""
        return self

    async def invoke(self, **arguments: Any) -> str:
        """Run the tool and return its result as text. If the turn is resumed, a recorded result is returned instead."""
        return await self.turn.use(self.tool, arguments)


def described(tool: Tool, turn: PatternTurn) -> Described:
    """Return a Gesta tool as TrustGraph's `Tool`. Its calls are made in `turn`."""
    properties: dict[str, Any] = tool.args_schema.get("properties", {})
    arguments = [
        Argument(name, str(said.get("type", "")), str(said.get("description", ""))) for name, said in properties.items()
    ]
    config = {"group": list(tool.group), "applicable-states": list(tool.applicable_states), "state": tool.state}
    kept = {name: value for name, value in config.items() if value}
    return Described(tool.name, tool.description, arguments, Implementation(tool, turn), kept)
