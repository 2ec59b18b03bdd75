"""A source is a place outside the program that offers tools, such as a server.

An agent has sources among its tools. At the beginning of a turn, each source is asked for its tools, which replace it.
A source may say later that its tools have changed; then they are read again before the next request. All other modules
see ordinary tools only.
"""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

from gesta.function_tool.tool import Tool

Start = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Starts a coroutine in the background, which must end soon after `OpenSource.close` was called."""


class OpenSource(Protocol):
    """A source that was opened for a record. It is used by the record's turns until the record is closed."""

    @property
    def holding(self) -> bool:
        """Whether the source holds calls of turns that wait for a person."""

    async def offered(self, source: Any, agent: Any, *, again: bool = False) -> Sequence[Tool]:
        """Return the present tools of the source. If they have not changed, the same objects are returned.

        Args:
            source: the description in the agent. Descriptions that share this open source may choose different tools.
            agent: the agent that has the source.
            again: whether the turn has tools of the source already, which it keeps if the source cannot be reached.

        Raises:
            GestaError: the source cannot be reached, or its tools cannot be used.
        """

    def ended(self, run: str) -> None:
        """Drop the calls that the source holds for a run, because the turn of that run has ended."""

    def close(self) -> None:
        """End all tasks and processes that the source has started."""


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools in an agent: a frozen description that does no I/O."""

    @property
    def shared_by(self) -> Hashable:
        """A value for comparison. Sources with equal values share one open source."""

    def described(self) -> Any:
        """Return the source's part of the agent's digest, as JSON without secrets and without the offered tools."""

    def open(self, start: Start) -> OpenSource:
        """Return the source, opened for a record. This call does not wait for a connection."""
