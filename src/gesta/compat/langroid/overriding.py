"""Finds and calls the methods with which a subclass or a program replaces an agent's own methods.

Such a method may be synchronous or asynchronous, and may return any value. This module has functions instead of
methods, because a tool may have the name of any public method of an agent.
"""

import inspect
from collections.abc import Callable
from typing import Any

from anyio import to_thread

from gesta.compat.langroid.chat_document import ChatDocument
from gesta.compat.langroid.entities import Entity
from gesta.compat.langroid.messages import Messages, Said

RESPONDERS = {Entity.AGENT: "agent_response", Entity.LLM: "llm_response", Entity.USER: "user_response"}
"""Names of the methods that respond, in the order in which a task asks them."""
SEVERAL = "entity_responders"


async def respond(agent: Any, entity: Entity, msg: Said) -> ChatDocument | None:
    """Return the response of `entity` (the agent, its model or the user) to a message; `None` if it does not respond.

    A class may override `llm_response` or `llm_response_async`, for example. Of two such methods, the one that the most
    specific class overrides is called.
    """
    assert isinstance(agent, Messages)
    method = getattr(agent, nearest_twin(agent, RESPONDERS[entity]))
    if overrides(agent, SEVERAL, f"{SEVERAL}_async"):
        method = dict(getattr(agent, nearest_twin(agent, SEVERAL))()).get(entity)
    if method is None:
        return None
    return agent.to_ChatDocument(await called(method, msg), author_entity=entity)


def restart(agent: Any) -> None:
    """Call the agent's `init_state`, after the agent was made or copied, or when a task restarts it."""
    agent._begins = True  # noqa: SLF001 - of an agent
    try:
        agent.init_state()
    finally:
        agent._begins = False  # noqa: SLF001 - as above


def overrides(agent: object, *names: str) -> bool:
    """Return whether a subclass or a program has replaced any of the methods in `names`."""
    owners = [next((cls for cls in type(agent).__mro__ if name in vars(cls)), object) for name in names]
    return any(not is_ours(cls) for cls in owners) or any(name in vars(agent) for name in names)


def nearest_twin(agent: object, name: str) -> str:
    """Return `name` or its `_async` twin, whichever the most specific class defines."""
    return min(f"{name}_async", name, key=lambda each: _place(agent, each))


async def called(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method and return its result. A synchronous method runs in a thread, so it may itself call the agent."""
    if inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(getattr(method, "__call__", None)):  # noqa: B004
        return await method(*args)
    value = await to_thread.run_sync(method, *args)
    return await value if inspect.isawaitable(value) else value


def is_ours(cls: type) -> bool:
    """Return whether a class is defined by Gesta rather than by the program."""
    return cls.__module__.startswith(__package__)


def _place(agent: object, name: str) -> int:
    """Return how far away a method is defined: -1 for the agent itself, 0 for its class, 1 for its first base class."""
    classes = type(agent).__mro__
    return -1 if name in vars(agent) else next((n for n, cls in enumerate(classes) if name in vars(cls)), len(classes))
