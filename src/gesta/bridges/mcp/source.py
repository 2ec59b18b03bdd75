"""`gesta.mcp`: the tools, resources and prompts of an MCP server, in the tools of an agent.

A call of a tool of a server is a call like any other: its attempt is on record before it is sent, and what becomes of
it follows from how it ended. The key of the attempt goes along: by it, a server can tell a second try from a second
call.
"""

from collections.abc import Hashable, Sequence
from importlib.util import find_spec
from typing import Any, Unpack

import msgspec
from msgspec import Struct

from gesta.agent import Agent
from gesta.bridges.mcp.connection import Connection
from gesta.bridges.mcp.offers import Offer
from gesta.bridges.mcp.remote import RemoteTool
from gesta.bridges.mcp.spec import McpOptions, Rules, Spec, read
from gesta.errors import MissingExtra
from gesta.function_tool.source import Start


class McpSource(Struct, frozen=True):
    """A server and the rules for its tools. It does no I/O."""

    spec: Spec
    rules: Rules

    def __repr__(self) -> str:
        """Return the server, without secrets."""
        return f"gesta.mcp({self.spec.shown!r})"

    @property
    def shared_by(self) -> Hashable:
        """Sources that are equal in this value share a connection."""
        return self.spec

    def described(self) -> Any:
        """Return its part of an agent's digest: the server and the rules, no value of a header or variable."""
        spec, names = self.spec, [name for name, _ in (*self.spec.headers, *self.spec.env)]
        return [spec.shown, names, spec.cwd, spec.elicitation, spec.sampling, msgspec.to_builtins(self.rules)]

    def open(self, start: Start) -> Connection:
        """Open it for a record; the server is reached when its tools are asked for."""
        return Connection(self.spec, start, _calling)


def _calling(connection: Connection, offer: Offer, agent: Agent[Any]) -> Any:
    return RemoteTool(connection, offer, agent).call


def mcp(server: str | Sequence[str], **options: Unpack[McpOptions]) -> McpSource:
    """Make a source of the tools, resources and prompts of an MCP server, for `Agent(tools=[...])`.

    Args:
        server: a command such as `"uvx some-server"`, a list of its words, or the URL of streamable HTTP.
        options: see `McpOptions`.

    Raises:
        MissingExtra: the library `mcp` is not installed.
        BadAddress: the server is neither a command nor a URL.
        AgentError: an option does not fit.
        TypeError: there is no such option.
    """
    if find_spec("mcp") is None:
        raise MissingExtra("A server of MCP tools", "mcp", "mcp")
    spec, rules = read(server, options)
    return McpSource(spec, rules)
