"""A source is a place outside the program that offers tools, such as a server; it is asked when a turn begins.

An agent names its sources among its tools. For a turn, each is replaced by the tools that it offers then, and before
each request by those that it offers now, if it says that they have changed. So the rest of Gesta sees plain tools.
"""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

from gesta.function_tool.tool import Tool

Start = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Starts a coroutine in the background, which must end soon after `OpenSource.close` was called."""


class OpenSource(Protocol):
    """A source that was opened for a record, and serves its turns until the record is closed."""

    @property
    def holding(self) -> bool:
        """Whether it holds calls of turns that wait for a person."""

    async def offered(self, source: Any, agent: Any, *, again: bool = False) -> Sequence[Tool]:
        """Return the tools that it offers now; the same tools as long as they have not changed.

        Args:
            source: the source as the agent has it. Several that share what they open may choose other tools.
            agent: the agent that has the source.
            again: whether the turn has tools of the source already, which it keeps if the source cannot be reached.

        Raises:
            GestaError: it cannot be reached, or what it offers cannot be used.
        """

    def ended(self, run: str) -> None:
        """Drop the calls that it holds for a run, because the turn of that run has ended."""

    def close(self) -> None:
        """End whatever it started."""


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools, as an agent has it: a frozen description that does no I/O."""

    @property
    def shared_by(self) -> Hashable:
        """Sources that are equal in this value share what they open."""

    def described(self) -> Any:
        """Return its part of the agent's digest, as JSON without secrets. What it offers is no part of it."""

    def open(self, start: Start) -> OpenSource:
        """Open it for a record. Nothing is waited for here."""
