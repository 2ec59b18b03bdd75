"""Opens each tool source of the agents once, and asks it for its tools at every turn.

A tool source offers tools that are not written in the program. An example is an MCP server. The tasks of a source run
in a task group. It ends after the record's turns and before its store. With `gesta.open_sync`, each call has an event
loop of its own, so the sources are opened again for each call.
"""

from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token
from msgspec import Struct
from msgspec.structs import replace

from gesta.agent import Agent
from gesta.errors import BadTool
from gesta.events import LOGGER
from gesta.function_tool.source import OpenSource
from gesta.function_tool.tool import Tool


class InLoop(Struct):
    """The sources that were opened in one event loop, and the task group in which they run."""

    tasks: TaskGroup
    opened: dict[Hashable, OpenSource]


class Sources:
    """The opened tool sources of a record, in each event loop that uses the record."""

    def __init__(self) -> None:
        self._opened: dict[object, InLoop] = {}  # by event loop

    @property
    def ready(self) -> bool:
        """Whether sources can be opened in the present event loop."""
        return bool(self._opened) and current_token() in self._opened

    @property
    def holding(self) -> bool:
        """Whether a source keeps a call open while its turn waits for a person."""
        return any(each.holding for loop in self._opened.values() for each in loop.opened.values())

    async def __aenter__(self) -> Self:
        """Allow sources to be opened in this event loop until the block ends."""
        self._opened[current_token()] = InLoop(await anyio.create_task_group().__aenter__(), {})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the sources of this event loop, and wait until their tasks have ended."""
        loop = self._opened.pop(current_token())
        for each in loop.opened.values():
            each.close()
        await loop.tasks.__aexit__(None, None, None)  # nothing in the group raises, so that `raised` goes on as itself

    async def listed(self, agent: Agent[Any]) -> Agent[Any]:
        """Return a copy of the agent with the tools that its sources offer now; the agent itself if none has changed.

        Raises:
            GestaError: a source cannot be reached, or lacks a tool that the program selected.
            BadTool: two sources, or a source and the program, offer a tool of the same name.
        """
        loop = self._opened[current_token()]
        found: list[Tool] = []
        before = [tool for tool in agent.tools if tool.server is not None]
        for source in agent.sources:
            one = loop.opened.get(source.shared_by)
            if one is None:
                one = loop.opened[source.shared_by] = source.open(partial(_start, loop.tasks))
            found += await one.offered(source, agent, again=bool(before))
        own = [tool for tool in agent.tools if tool.server is None]
        kept = _apart(agent, own, before, found)
        if len(before) == len(kept) and all(map(_is, before, kept)):
            return agent
        return replace(agent, tools=[*own, *kept])

    def ended(self, run: str) -> None:
        """Cancel the calls that sources keep open for a run while its turn waits. Called when the turn has ended."""
        for loop in self._opened.values():
            for each in loop.opened.values():
                each.ended(run)


def _start(tasks: TaskGroup, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    tasks.start_soon(work)


def _is(one: object, other: object) -> bool:
    return one is other


def _apart(agent: Agent[Any], own: list[Tool], before: list[Tool], found: list[Tool]) -> list[Tool]:
    """Return the tools in `found` whose names no other tool has.

    Args:
        agent: the agent, for the text of an error.
        own: tools that the program gave the agent.
        before: tools that sources offered earlier in the turn. If it is empty, the turn begins now, and a name that is
            used twice is an error. Later, a new tool with such a name is left out.
        found: tools that sources offer now.

    Raises:
        BadTool: two tools have one name at the beginning of a turn.
    """
    names, kept = {tool.name for tool in own}, list[Tool]()
    known = {tool.name: _server(tool) for tool in before}
    for tool in found:
        if tool.name not in names and known.get(tool.name, _server(tool)) == _server(tool):
            names.add(tool.name)
            kept.append(tool)
            continue
        clash = f"Agent {agent.name!r} has two tools named {tool.name!r}; one is of the server {_server(tool)!r}"
        if not before:
            raise BadTool(f"{clash}. Give the tools of the server a prefix, as in gesta.mcp(..., prefix='shop_').")
        LOGGER.warning("%s, which offers it since this turn began. That one is left out.", clash)
    return kept


def _server(tool: Tool) -> str:
    return tool.server.name if tool.server is not None else ""
