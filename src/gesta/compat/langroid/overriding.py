"""Finds and calls methods that a subclass or a program puts in place of an agent's: synchronous or not, of any result.

This module has functions, since every public method of an agent may have the name of a tool.
"""

import inspect
from collections.abc import Callable
from typing import Any

from anyio import to_thread

from gesta.compat.langroid.chat_document import ChatDocument
from gesta.compat.langroid.entities import Entity
from gesta.compat.langroid.messages import Messages, Said

RESPONDERS = {Entity.AGENT: "agent_response", Entity.LLM: "llm_response", Entity.USER: "user_response"}
"""Names of the responders' methods, in the order in which the responders are asked."""
SEVERAL = "entity_responders"


async def respond(agent: Any, entity: Entity, msg: Said) -> ChatDocument | None:
    """Return a responder's answer as a document, from the method that was overridden last."""
    assert isinstance(agent, Messages)
    method = getattr(agent, nearest_twin(agent, RESPONDERS[entity]))
    if overrides(agent, SEVERAL, f"{SEVERAL}_async"):
        method = dict(getattr(agent, nearest_twin(agent, SEVERAL))()).get(entity)
    if method is None:
        return None
    return agent.to_ChatDocument(await called(method, msg), author_entity=entity)


def restart(agent: Any) -> None:
    """Call `init_state` of an agent that has no history yet, or whose history a task has hidden."""
    agent._begins = True  # noqa: SLF001 - of an agent
    try:
        agent.init_state()
    finally:
        agent._begins = False  # noqa: SLF001 - as above


def overrides(agent: object, *names: str) -> bool:
    """Return whether a subclass or the program has replaced any of these methods."""
    owners = [next((cls for cls in type(agent).__mro__ if name in vars(cls)), object) for name in names]
    return any(not is_ours(cls) for cls in owners) or any(name in vars(agent) for name in names)


def nearest_twin(agent: object, name: str) -> str:
    """Return the name of a method or of its asynchronous twin: the method that was overridden last."""
    return min(f"{name}_async", name, key=lambda each: _place(agent, each))


async def called(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method and return its result; a synchronous method runs in a thread, where it may call the agent."""
    if inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(getattr(method, "__call__", None)):  # noqa: B004
        return await method(*args)
    value = await to_thread.run_sync(method, *args)
    return await value if inspect.isawaitable(value) else value


def is_ours(cls: type) -> bool:
    """Return whether a class is defined by Gesta, and not by the program."""
    return cls.__module__.startswith(__package__)


def _place(agent: object, name: str) -> int:
    """Return the place of a method's class in the agent's class order; -1 if the agent object itself has the method."""
    classes = type(agent).__mro__
    return -1 if name in vars(agent) else next((n for n, cls in enumerate(classes) if name in vars(cls)), len(classes))
