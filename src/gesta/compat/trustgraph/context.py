"""The objects passed to a step of a pattern: a callback for responses, a callback for the next step, and services."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from gesta.compat.trustgraph.requests import AgentRequest, AgentResponse
from gesta.log.journal import utc_now

Respond = Callable[[AgentResponse], Awaitable[None]]
Next = Callable[[AgentRequest], Awaitable[None]]
Flow = Callable[[str], Any]
"""A function that returns a service by its name."""
Say = Callable[..., Awaitable[None]]
USER_AWARE = ("structured-query-request", "row-embeddings-query-request")
"""Names of the services that are told the name of the user."""


class Action(Struct):
    """An action of an agent, and its observation."""

    thought: str = ""
    name: str = ""
    arguments: dict[str, Any] = {}
    observation: str = ""


class Final(Struct):
    """The final answer of an agent."""

    thought: str = ""
    final: Any = ""


class UserAwareContext:
    """A flow, with the name of its user and the callback for responses."""

    def __init__(self, flow: Flow, user: str, respond: Respond | None = None, streaming: bool = False) -> None:  # noqa: FBT001, FBT002 - as its users write it
        self._flow, self._user = flow, user
        self.respond = respond
        self.streaming = streaming
        self.current_explain_uri: str | None = None
        """Id of the entry that the current work derives from."""
        self.key = ""
        """Idempotency key, 64 hex: the same however often the turn is resumed."""
        self.clock: Callable[[], datetime] = utc_now
        self.cancelled: Callable[[], bool] = lambda: False

    def __call__(self, service_name: str) -> Any:
        """Return a service by its name. A service named in `USER_AWARE` is told the name of the user."""
        client = self._flow(service_name)
        if service_name in USER_AWARE:
            client._current_user = self._user  # noqa: SLF001 - the name that these services read
        return client


class Prompted(Protocol):
    """A service that answers prompts."""

    async def prompt(
        self,
        id: str,
        variables: Mapping[str, Any],
        streaming: bool = False,  # noqa: FBT001, FBT002 - as its users write it
        chunk_callback: Callable[[str, bool], Awaitable[None]] | None = None,
    ) -> str:
        """Return the answer to a prompt. When streaming, pieces of it are passed to `chunk_callback`."""
