"""The tools that servers, such as those of MCP, offered in a recorded run, rebuilt from the record for a replay.

No server is contacted. A run is a list of entries, the recorded facts about an agent's work. A request header lists the
tools of servers with their rules: arguments, effect, whether a person must approve a call, and so on. An attempt (one
execution of a call) names the server that ran the call. Before each step of the replay, the tools are those that the
record shows next: in the next request header, and in the next attempts. An open call is a tool call without a result.
The agent's sources (its connections to servers) are opened only if a replay really runs one of their tools, as with
`--live`.
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
"""Members of a tool in a request header that are also fields of `Tool`."""
REQUESTS = (RequestHeaderContent, RequestContent)
ABOUT = (AttemptContent, ApprovalRequestContent, ToolResultContent)
"""Kinds of entries that an agent writes about an open call.

The agent runs the call, asks a person about it, or closes it without running it.
"""


class Open(msgspec.Struct):
    """Facts from the record about the open calls of one tool."""

    asked: bool = False
    """Whether a person was asked to approve a call and has not answered."""
    pure: bool = False
    """Whether the last attempt of a call was made while the tool was declared to only read."""


class Offered:
    """A source of tools for a replayed agent: it supplies the tools that servers offered in the recorded run."""

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
        """Whether the record shows any tool of a server."""
        return any(self._headers.values())

    @property
    def shared_by(self) -> Hashable:
        """The identity of this object, so that no other agent shares its tools."""
        return id(self)

    def described(self) -> Any:
        """Return `None`, because a replay needs no description of the tools."""
        return None

    def open(self, start: Start) -> OpenSource:
        """Return this object itself, which serves as its own opened source.

        The agent's own sources (its connections to servers) are opened only if one of their tools really runs in the
        replay.
        """
        named = {name for offered in self._headers.values() for name in offered} & self._stage.live
        self._opened = [(each, each.open(start)) for each in self._agent.sources] if named else []
        return self

    async def offered(self, source: Any, agent: Any, *, again: bool = False) -> Sequence[Tool]:
        """Return the tools that the servers offered at the place that the replay has reached.

        Args:
            source: is ignored.
            agent, again: as in `OpenSource.offered`, for the servers of tools that really run.

        Raises:
            AgentError: the replay must really run a tool that no server offers now.
            GestaError: the replay must really run a tool whose server cannot be reached.
        """
        del source
        found, live = self._present(), dict[str, Tool]()
        for each, opened in self._opened:
            live |= {tool.name: tool for tool in await opened.offered(each, agent, again=again)}
        own = [tool.name for tool in self._agent.tools]
        return [self._tool(name, each, live) for name, each in found.items() if name not in own]

    def ended(self, run: str) -> None:
        """Inform the opened sources that a run has ended, so that the sources cancel their open calls for that run."""
        for _, opened in self._opened:
            opened.ended(run)

    def close(self) -> None:
        """Close the agent's sources that were opened."""
        for _, opened in self._opened:
            opened.close()

    def _present(self) -> dict[str, dict[str, Any]]:
        """Return, by tool name, the rules of the tools that servers offer at the place that the replay has reached.

        The rules are those in the next request header. If a tool has an open call, the rules that the next entries
        about its calls show are used first, because a server can change its tools in between.
        """
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
        """Return, by tool name, the servers that ran the calls of the first model reply after entry `at`."""
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
        """Return the name of the tool whose call an entry is about; `None` if the entry is about no call."""
        of = getattr(entry.content, "call" if isinstance(entry.content, ToolResultContent) else "of", None)
        return self._calls.get(of or 0)

    def _next(self, at: int, end: int) -> list[Entry]:
        """Return the next consecutive entries of one kind that the agent wrote about its calls.

        The kind is attempt, request for approval, or result. Only entries after seq `at` and up to seq `end` are read.
        """
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
        """Return, by tool name, the facts about those of its calls that are open after entry `at`."""
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
    """Return the tools of servers in a request header, as a dict from the tool's name to its rules."""
    return {str(each["name"]): each for each in header.tools or () if isinstance(each.get("server"), str)}


def offered_names(entries: Iterable[Entry]) -> list[str]:
    """Return the names of all tools that servers offered in a run, each once, in the order of first appearance."""
    headers = [each.content for each in entries if isinstance(each.content, RequestHeaderContent)]
    return list(dict.fromkeys(name for header in headers for name in offers(header)))


def _shown(about: Sequence[Content], call: Open) -> dict[str, Any] | None:
    """Return those rules of a tool that the next entries about its calls show; `None` if it was not offered then.

    For example, an attempt shows the effect of the tool, and a request for approval shows that it needs approval.

    Args:
        about: contents of these entries.
        call: what the entries before them show about the tool's open calls.
    """
    tried = next((each for each in about if isinstance(each, AttemptContent)), None)
    if tried is not None:
        return {"effect": tried.effect, "approval": False} | ({"server": tried.server} if tried.server else {})
    request = next((each for each in about if isinstance(each, ApprovalRequestContent)), None)
    if request is not None:
        return {"approval": True} | ({"effect": request.effect} if request.effect is not None else {})
    closed = [each.outcome for each in about if isinstance(each, ToolResultContent)]
    if "unknown" in closed and call.pure:  # declared to only read when it was tried, but not any more
        return {"effect": "once"}
    if "interrupted" in closed:
        return {"effect": "pure"}
    if "error" in closed or "unknown" in closed:
        return None
    return {"approval": True} if call.asked else {}


def _told(content: Content) -> list[str]:
    """Return the names of the tools there are, which a result lists if the called tool does not exist; else `[]`."""
    if not isinstance(content, ToolResultContent) or content.outcome != "error" or content.error is not None:
        return []
    return tools_told(content.tool_result) if isinstance(content.tool_result, str) else []


async def nowhere() -> None:
    """Raise AssertionError. In a replay, this is the function of a server's tool, and it is never called."""
    raise AssertionError("a replay calls no server")
