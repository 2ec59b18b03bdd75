"""`gesta.mcp` makes the tools, resources and prompts of an MCP server usable among the tools of an agent.

Calls of these tools are recorded like all others. The attempt of a call is stored before the call is sent. If it is
unknown whether the server carried the call out, the effect policy of the tool decides whether to send it again. The
server gets the idempotency key of the call, so that it can recognize a call that is sent a second time.
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
    """An MCP server in an agent's list of tools, and the rules that choose among its tools. Making it does no I/O."""

    spec: Spec
    rules: Rules

    def __repr__(self) -> str:
        """Return the text of the call of `gesta.mcp` that makes this source, without secrets."""
        return f"gesta.mcp({self.spec.shown!r})"

    @property
    def shared_by(self) -> Hashable:
        """The description of the server. Sources with equal descriptions share a connection."""
        return self.spec

    def described(self) -> Any:
        """Return the server's address, options and rules as JSON data, which is part of the hash of the agent.

        Of HTTP headers and environment variables, only the names are included.
        """
        spec, names = self.spec, [name for name, _ in (*self.spec.headers, *self.spec.env)]
        return [
            spec.shown,
            names,
            spec.cwd,
            spec.elicitation,
            spec.sampling,
            spec.protocol,
            msgspec.to_builtins(self.rules),
        ]

    def open(self, start: Start) -> Connection:
        """Return a connection for a record. The connection contacts the server when the tools are first needed.

        Args:
            start: function that runs the connection's task in the background.
        """
        return Connection(self.spec, start, _calling)


def _calling(connection: Connection, offer: Offer, agent: Agent[Any]) -> Any:
    return RemoteTool(connection, offer, agent).call


def mcp(server: str | Sequence[str], **options: Unpack[McpOptions]) -> McpSource:
    """Return a source of the tools, resources and prompts of an MCP server, for `Agent(tools=[...])`.

    Args:
        server: a command such as `"uvx some-server"`, a list of its words, or the URL of streamable HTTP.
        options: see `McpOptions`.

    Raises:
        MissingExtra: the library `mcp` is not installed.
        BadAddress: the server is neither a command nor a URL.
        AgentError: an option has a wrong value, or does not apply to this server.
        TypeError: there is no such option.
    """
    if find_spec("mcp") is None:
        raise MissingExtra("A server of MCP tools", "mcp", "mcp")
    spec, rules = read(server, options)
    return McpSource(spec, rules)
