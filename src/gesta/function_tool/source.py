"""A source is a place outside the program that offers tools, such as an MCP server.

An agent has sources among its tools. At the beginning of a turn (from a message to the answer), each source is replaced
by the tools that it offers. If the source reports later that its tools have changed, they are read again before the
next request. All other modules see ordinary tools only. A record is the store of all runs of agents. The digest of an
agent is a hash of its description, which shows whether the agent was changed.
"""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

from gesta.function_tool.tool import Tool

Start = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Starts a coroutine in the background. The coroutine must end soon after `OpenSource.close` is called."""


class OpenSource(Protocol):
    """A source opened for one record, with its connections.

    All turns of the record use it until the record is closed.
    """

    @property
    def holding(self) -> bool:
        """Whether the source keeps unfinished calls open, because their turns wait for a person's answer."""

    async def offered(self, source: Any, agent: Any, *, again: bool = False) -> Sequence[Tool]:
        """Return the tools that the source offers now.

        The same objects are returned as long as the tools do not change.

        Args:
            source: the description of the source. Descriptions that share an open source may choose different tools.
            agent: the agent that has the source.
            again: whether the turn already has tools of the source. The turn then keeps these tools if the source
                cannot be reached.

        Raises:
            GestaError: the source cannot be reached, or its tools cannot be used.
        """

    def ended(self, run: str) -> None:
        """Cancel the calls that the source keeps open for a run. Called when the run's turn has ended."""

    def close(self) -> None:
        """Stop all tasks and processes that the source has started."""


@runtime_checkable
class ToolSource(Protocol):
    """A description of a source, which an agent has in its list of tools. It is frozen and does no I/O."""

    @property
    def shared_by(self) -> Hashable:
        """A value for comparison: sources with equal values share one open source."""

    def described(self) -> Any:
        """Return a description of this source for the agent's digest: JSON data without secrets and without tools."""

    def open(self, start: Start) -> OpenSource:
        """Open the source for a record and return it, without waiting for a connection.

        Args:
            start: function that runs the source's tasks in the background.
        """
