"""Callbacks hear what agents of a task say while it runs; what is on record already is not told again.

Each is an attribute that a program sets; `None` hears nothing. `record.stream` gives the same as events.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from gesta.compat.langroid.entities import StreamEventType
from gesta.events import Broadcast, Event
from gesta.perform.execution import LiveRun
from gesta.policy import Spelled


class Callbacks(Struct, kw_only=True, metaclass=Spelled):
    """Callbacks of an agent."""

    start_llm_stream: Callable[[], Callable[[str, StreamEventType], Any]] | None = None
    """Called when the model is asked; what it returns is called with each piece of the answer."""
    cancel_llm_stream: Callable[[], Any] | None = None
    """Called when what was heard is withdrawn, as after a lost connection."""
    finish_llm_stream: Callable[..., Any] | None = None
    """Called with `content` and `is_tool` when the answer is whole."""
    show_llm_response: Callable[..., Any] | None = None
    """Called with `content` and `is_tool`, where the model is not heard while it speaks."""
    show_agent_response: Callable[..., Any] | None = None
    """Called with `content` and `is_tool`."""
    get_user_response: Callable[..., str] | None = None
    """Called with `prompt`; its result is what the person says."""


class TaskCallbacks(Struct, kw_only=True, metaclass=Spelled):
    """Callbacks of a task."""

    show_subtask_response: Callable[..., Any] | None = None
    """Called with `task`, `content` and `is_tool`."""


@contextmanager
def heard(callbacks: Callbacks, live: LiveRun) -> Iterator[None]:
    """Call the callbacks with the words of the model while the block runs. The run's listener hears them too."""
    if callbacks.start_llm_stream is None:
        yield
        return
    hear, before, own = callbacks.start_llm_stream(), live.broadcast, Broadcast()

    def tell(event: Event, durable: int) -> None:
        if event.type == "retract" and callbacks.cancel_llm_stream is not None:
            callbacks.cancel_llm_stream()
        elif event.type in ("answer", "thought") and event.content:
            hear(event.content, StreamEventType.TEXT if event.type == "answer" else StreamEventType.REASONING)
        before.tell(event, durable)

    own.join(tell)
    live.broadcast = own
    try:
        yield
    finally:
        live.broadcast = before


def told(callback: Callable[..., Any] | None, content: str, *, is_tool: bool) -> None:
    """Call a callback, if there is one."""
    if callback is not None:
        callback(content=content, is_tool=is_tool)
