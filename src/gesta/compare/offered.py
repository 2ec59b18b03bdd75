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
from gesta.compare.outside import from_outside
from gesta.compare.played import PlayedTool, played
from gesta.compare.stage import Stage
from gesta.content import ToolServer
from gesta.decide.open_call import tools_told
from gesta.entry import Entry
from gesta.errors import AgentError
from gesta.function_tool.source import OpenSource, Start, ToolSource
from gesta.function_tool.tool import UNSAID, Tool
from gesta.kinds import (
    ApprovalContent,
    ApprovalRequestContent,
    AttemptContent,
    ChatCompletionContent,
    Content,
    Kind,
    RequestContent,
    RequestHeaderContent,
    ToolCallContent,
    ToolResultContent,
)

FIELDS = ("description", "args_schema", "strict", *UNSAID)
"""Members of a tool in a request header that are fields of a tool too."""
REQUESTS = (RequestHeaderContent, RequestContent)
ABOUT = (AttemptContent, ApprovalRequestContent, ToolResultContent)
"""What an agent does about a call: it tries the call, asks a person, or writes a placeholder."""


class Open(msgspec.Struct):
    """What is on record about the open calls of a tool."""

    asked: bool = False
    """Whether a person is asked about a call and has not answered."""
    pure: bool = False
    """Whether the last attempt of a call was of a tool that only reads."""


class Offered:
    """Supplies the tools that servers, such as those of MCP, offered in a recorded run. It contacts no server."""

    holding = False

    def __init__(self, stage: Stage, agent: Agent) -> None:
        self._stage, self._agent = stage, agent
        self._opened: list[tuple[ToolSource, OpenSource]] = []
        self._made: dict[tuple[bytes, Tool | None], PlayedTool] = {}
        self._calls, self._headers = dict[int, str](), dict[int, dict[str, dict[str, Any]]]()
        for entry in stage.recorded:
            if isinstance(entry.content, ToolCallContent) and entry.content.status == "success":
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
        """Return the tools of the next request, with those of open calls as the record shows them next."""
        at, recorded = self._stage.written, self._stage.recorded
        before = max((seq for seq in self._headers if seq <= at), default=0)
        following = next((each for each in islice(recorded, at, None) if isinstance(each.content, REQUESTS)), None)
        header, end = (before, len(recorded)) if following is None else (following.seq, following.seq - 1)
        if following is not None and isinstance(following.content, RequestContent):
            header = following.content.header
        now, old = self._headers.get(header, {}), self._headers.get(before, {})
        batch = self._next(at, end)
        found = now | {name: {**now[name], "server": each} for name, each in self._servers(end).items() if name in now}
        for name, each in self._open(batch[0].seq - 1 if batch else end).items():
            known = found.pop(name, None)
            known = old.get(name) or known or {"server": ""}
            about = [entry.content for entry in batch if self._of(entry) == name]
            if about or each.asked or not batch or batch[0].kind is not Kind.Attempt:
                found |= {name: {**known, **rules}} if (rules := _shown(about, each)) is not None else {}
        told = (_told(entry.content) for entry in batch if self._of(entry) is not None)
        names = next(filter(None, told), list(found))
        return {name: found.get(name) or now.get(name) or old.get(name) or {"server": ""} for name in names}

    def _servers(self, at: int) -> dict[str, ToolServer]:
        """Return the servers that carry out the calls of the next reply, by the name of the tool."""
        found, asked = dict[str, ToolServer](), False
        for entry in islice(self._stage.recorded, at, None):
            asked |= isinstance(entry.content, ChatCompletionContent)
            if asked and isinstance(entry.content, REQUESTS):
                break
            name = self._of(entry)
            if name is not None and isinstance(entry.content, AttemptContent) and entry.content.server is not None:
                found.setdefault(name, entry.content.server)
        return found

    def _of(self, entry: Entry) -> str | None:
        """Return the name of the tool whose call an entry is about."""
        of = getattr(entry.content, "call" if isinstance(entry.content, ToolResultContent) else "of", None)
        return self._calls.get(of or 0)

    def _next(self, at: int, end: int) -> list[Entry]:
        """Return the next entries of one kind in which the agent tries calls, asks a person, or closes calls."""
        batch = list[Entry]()
        for entry in islice(self._stage.recorded, at, end):
            if isinstance(entry.content, ABOUT) and not from_outside(self._stage.recorded, entry):
                if batch and batch[0].kind is not entry.kind:
                    break
                batch.append(entry)
            elif batch:
                break
        return batch

    def _open(self, at: int) -> dict[str, Open]:
        """Return the tools with open calls at an entry, by name."""
        calls, asks, effects = set[int](), dict[int, int](), dict[int, str | None]()
        for entry in reversed(self._stage.recorded[:at]):
            if isinstance(entry.content, ChatCompletionContent):
                break
            calls |= {entry.seq} & self._calls.keys()
        done = set[int]()
        for entry in self._stage.recorded[min(calls, default=at) : at]:
            match entry.content:
                case ToolResultContent(call=int() as call):
                    done.add(call)
                case ApprovalRequestContent(of=call):
                    asks[entry.seq] = call
                case ApprovalContent(of=asked):
                    asks.pop(asked, None)
                case AttemptContent(of=call, effect=effect):
                    effects[call] = effect
        found = dict[str, Open]()
        for seq in sorted(calls - done):
            each = found.setdefault(self._calls[seq], Open())
            each.asked |= seq in asks.values()
            each.pure |= effects.get(seq) == "pure"
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


def _shown(about: Sequence[Content], call: Open) -> dict[str, Any] | None:
    """Return the rules of a tool, as the next entries about its calls show them; `None` if the tool is not there."""
    tried = next((each for each in about if isinstance(each, AttemptContent)), None)
    if tried is not None:
        return {"effect": tried.effect, "approval": False} | ({"server": tried.server} if tried.server else {})
    request = next((each for each in about if isinstance(each, ApprovalRequestContent)), None)
    if request is not None:
        return {"approval": True} | ({"effect": request.effect} if request.effect is not None else {})
    closed = [each.outcome for each in about if isinstance(each, ToolResultContent)]
    if "unknown" in closed and call.pure:  # it only read when it was tried, and has an effect now
        return {"effect": "once"}
    if "interrupted" in closed:
        return {"effect": "pure"}
    if "error" in closed or "unknown" in closed:
        return None
    return {"approval": True} if call.asked else {}


def _told(content: Content) -> list[str]:
    """Return the names of the tools that a model was told when it named a tool that was not there."""
    if not isinstance(content, ToolResultContent) or content.outcome != "error" or content.error is not None:
        return []
    return tools_told(content.tool_result) if isinstance(content.tool_result, str) else []


async def nowhere() -> None:
    """Raise AssertionError: a replay calls no server."""
    raise AssertionError("a replay calls no server")
