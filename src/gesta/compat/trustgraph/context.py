"""The objects that a pattern's step receives: a callback for responses, a callback for the next step, and services.

A pattern is a class whose method runs the steps of an agent. A flow is an object that returns services by name. A turn
is the work of a pattern on one message; it consists of such steps.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from gesta.compat.trustgraph.requests import AgentRequest, AgentResponse
from gesta.log.journal import utc_now

Respond = Callable[[AgentResponse], Awaitable[None]]
Next = Callable[[AgentRequest], Awaitable[None]]
Flow = Callable[[str], Any]
"""A function that returns a service by name."""
Say = Callable[..., Awaitable[None]]
USER_AWARE = ("structured-query-request", "row-embeddings-query-request")
"""Names of the services that also receive the name of the user."""


class Action(Struct):
    """An action of an agent, with the thought before it and the observation (its result)."""

    thought: str = ""
    name: str = ""
    arguments: dict[str, Any] = {}
    observation: str = ""


class Final(Struct):
    """An agent's final answer, with the thought before it."""

    thought: str = ""
    final: Any = ""


class UserAwareContext:
    """A flow with facts about the current turn: its user, the callback for responses, the clock and others."""

    def __init__(self, flow: Flow, user: str, respond: Respond | None = None, streaming: bool = False) -> None:  # noqa: FBT001, FBT002 - as its users write it
        self._flow, self._user = flow, user
        self.respond = respond
        self.streaming = streaming
        self.current_explain_uri: str | None = None
        """Id of the newest entry of the turn, from which the current work derives."""
        self.key = ""
        """Idempotency key of the turn: 64 hexadecimal digits, which stay the same when the turn is resumed."""
        self.clock: Callable[[], datetime] = utc_now
        self.cancelled: Callable[[], bool] = lambda: False

    def __call__(self, service_name: str) -> Any:
        """Return a service by name. A service named in `USER_AWARE` also receives the name of the user."""
        client = self._flow(service_name)
        if service_name in USER_AWARE:
            client._current_user = self._user  # noqa: SLF001 - the name that these services read
        return client


class Prompted(Protocol):
    """Protocol of a service that asks a model with a named prompt."""

    async def prompt(
        self,
        id: str,
        variables: Mapping[str, Any],
        streaming: bool = False,  # noqa: FBT001, FBT002 - as its users write it
        chunk_callback: Callable[[str, bool], Awaitable[None]] | None = None,
    ) -> str:
        """Return the model's answer to the prompt named `id`.

        When streaming, also call `chunk_callback` with each piece of the answer, and whether it is the last one.
        """
