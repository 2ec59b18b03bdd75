"""The tools that the servers of a recorded run offered, made again from the record. No server is asked or started.

A request header says which tools came from servers, with the rules by which they were called. An attempt says which
server carried it out. The tools of a step are those of its next request, and those that the step tries.

Only if a replay runs a tool of a server, as with `--live`, the agent's sources are opened, and that tool is called.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from gesta.agent import Agent
from gesta.compare.played import PlayedTool, played
from gesta.compare.stage import Stage
from gesta.content import ToolServer
from gesta.entry import Entry
from gesta.errors import AgentError
from gesta.function_tool.source import OpenSource, Start, ToolSource
from gesta.function_tool.tool import UNSAID, Tool
from gesta.kinds import (
    ApprovalRequestContent,
    AttemptContent,
    RequestContent,
    RequestHeaderContent,
    ToolCallContent,
)

FIELDS = ("description", "args_schema", "strict", *UNSAID)
"""Members of a tool in a request header that are fields of a tool too."""


class Offered:
    """The source of all tools that servers offered in a recorded run."""

    holding = False

    def __init__(self, stage: Stage, agent: Agent) -> None:
        self._stage, self._agent = stage, agent
        self._opened: list[tuple[ToolSource, OpenSource]] = []
        self._made: dict[tuple[bytes, Tool | None], PlayedTool] = {}
        self._calls, self._headers = dict[int, str](), dict[int, Mapping[str, dict[str, Any]]]()
        for entry in stage.recorded:
            if isinstance(entry.content, ToolCallContent):
                self._calls[entry.seq] = entry.content.tool_name
            elif isinstance(entry.content, RequestHeaderContent):
                self._headers[entry.seq] = offers(entry.content)

    @property
    def any(self) -> bool:
        """Whether a server offered any tool."""
        return any(self._headers.values())

    @property
    def shared_by(self) -> Hashable:
        """This object: nothing shares its tools."""
        return id(self)

    def described(self) -> Any:
        """Return nothing: no digest of an agent is compared."""
        return None

    def open(self, start: Start) -> OpenSource:
        """Return this object. The agent's sources are opened only if one of their tools really runs."""
        named = {name for offered in self._headers.values() for name in offered} & self._stage.live
        self._opened = [(each, each.open(start)) for each in self._agent.sources] if named else []
        return self

    async def offered(self, source: Any, agent: Any, *, again: bool = False) -> Sequence[Tool]:
        """Return the tools that servers offered at the present place of the record.

        Raises:
            AgentError: a tool that really runs is offered by no server now.
            GestaError: the server of a tool that really runs cannot be reached.
        """
        del source
        found, live = self._present(), dict[str, Tool]()
        for each, opened in self._opened:
            live |= {tool.name: tool for tool in await opened.offered(each, agent, again=again)}
        own = [tool.name for tool in self._agent.tools]
        return [self._tool(name, each, live) for name, each in found.items() if name not in own]

    def ended(self, run: str) -> None:
        """Drop the calls that the sources hold for a run."""
        for _, opened in self._opened:
            opened.ended(run)

    def close(self) -> None:
        """Close the sources that were opened."""
        for _, opened in self._opened:
            opened.close()

    def _present(self) -> dict[str, dict[str, Any]]:
        """Return the tools of the next request, and of the calls that are tried or asked about before it."""
        stage, tried = self._stage, dict[str, AttemptContent | None]()
        before = max((seq for seq in self._headers if seq <= stage.written), default=0)
        header = before
        for entry in islice(stage.recorded, stage.written, None):
            content = entry.content
            if isinstance(content, RequestHeaderContent | RequestContent):
                header = content.header if isinstance(content, RequestContent) else entry.seq
                break
            if isinstance(content, AttemptContent | ApprovalRequestContent) and content.of in self._calls:
                attempt = content if isinstance(content, AttemptContent) else None
                tried.setdefault(self._calls[content.of], attempt)
        now, old = self._headers.get(header, {}), self._headers.get(before, {})
        found = dict(now)
        for name, attempt in tried.items():
            each = old.get(name) or now.get(name)
            if attempt is not None and attempt.server is not None:
                each = {**(each or {}), "effect": attempt.effect, "server": attempt.server}
            if each is not None:
                found[name] = each
        return found

    def _tool(self, name: str, each: dict[str, Any], live: Mapping[str, Tool]) -> PlayedTool:
        real = live.get(name) if name in self._stage.live else None
        if real is None and name in self._stage.live:
            found = f"Tool {name!r} is to run, and no server of agent {self._agent.name!r} offers it now"
            raise AgentError(f"{found}. Leave --live {name} out, or add its server: tools=[..., gesta.mcp(...)].")
        key = msgspec.json.encode(each, enc_hook=repr), real
        if key not in self._made:
            server = each["server"]
            server = server if isinstance(server, ToolServer) else ToolServer(name=server, schema="")
            fields = {field: each[field] for field in FIELDS if field in each}
            made = Tool(name=name, function=nowhere, server=server, **fields)
            self._made[key] = played(self._stage, made, real)
        return self._made[key]


def offers(header: RequestHeaderContent) -> dict[str, dict[str, Any]]:
    """Return the tools of servers in a request header, by name."""
    return {str(each["name"]): each for each in header.tools or () if isinstance(each.get("server"), str)}


def offered_names(entries: Iterable[Entry]) -> list[str]:
    """Return the names of all tools that servers offered in a run."""
    headers = [each.content for each in entries if isinstance(each.content, RequestHeaderContent)]
    return list(dict.fromkeys(name for header in headers for name in offers(header)))


async def nowhere() -> None:
    """Raise AssertionError: a replay calls no server."""
    raise AssertionError("a replay calls no server")
