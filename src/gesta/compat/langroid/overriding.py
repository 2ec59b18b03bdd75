"""A subclass, or a program, may put its own in place of any method of an agent, synchronous or not, for any value.

These are functions, since every public method of an agent may be the name of a tool.
"""

import inspect
from collections.abc import Callable
from typing import Any

from anyio import to_thread

from gesta.compat.langroid.chat_document import ChatDocument
from gesta.compat.langroid.entities import Entity
from gesta.compat.langroid.messages import Messages, Said

RESPONDERS = {Entity.AGENT: "agent_response", Entity.LLM: "llm_response", Entity.USER: "user_response"}
"""Names of the responders' methods, in the order in which they are asked."""
SEVERAL = "entity_responders"


async def respond(agent: Any, entity: Entity, msg: Said) -> ChatDocument | None:
    """Return a responder's answer as a document; it is asked by the method that counts."""
    assert isinstance(agent, Messages)
    method = getattr(agent, nearest_twin(agent, RESPONDERS[entity]))
    if overrides(agent, SEVERAL, f"{SEVERAL}_async"):
        method = dict(getattr(agent, nearest_twin(agent, SEVERAL))()).get(entity)
    if method is None:
        return None
    return agent.to_ChatDocument(await called(method, msg), author_entity=entity)


def restart(agent: Any) -> None:
    """Call `init_state` where there is no history yet, or where a task has hidden it."""
    agent._begins = True  # noqa: SLF001 - of an agent
    try:
        agent.init_state()
    finally:
        agent._begins = False  # noqa: SLF001 - as above


def overrides(agent: object, *names: str) -> bool:
    """Return whether a subclass, or the program, put its own in place of any of these methods."""
    owners = [next((cls for cls in type(agent).__mro__ if name in vars(cls)), object) for name in names]
    return any(not is_ours(cls) for cls in owners) or any(name in vars(agent) for name in names)


def nearest_twin(agent: object, name: str) -> str:
    """Return the name of a method or of its asynchronous twin: the one that was overridden last."""
    return min(f"{name}_async", name, key=lambda each: _place(agent, each))


async def called(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method that may be synchronous: then in a thread, where the synchronous methods of agents work."""
    if inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(getattr(method, "__call__", None)):  # noqa: B004
        return await method(*args)
    value = await to_thread.run_sync(method, *args)
    return await value if inspect.isawaitable(value) else value


def is_ours(cls: type) -> bool:
    """Return whether a class is of Gesta's own, and not of a program's."""
    return cls.__module__.startswith(__package__)


def _place(agent: object, name: str) -> int:
    """Return how near a method stands: -1 on the agent itself, else the place of its class in the order."""
    classes = type(agent).__mro__
    return -1 if name in vars(agent) else next((n for n, cls in enumerate(classes) if name in vars(cls)), len(classes))
