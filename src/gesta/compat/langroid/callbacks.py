"""Callbacks: functions of a program that receive the messages of a task's agents while the task runs.

If an interrupted task continues, the messages from before the interruption are not sent again. Each callback is an
attribute that a program sets; `None` means no callback. `is_tool` says whether a message contains a tool call.
`record.stream` yields the same messages as events.
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
    """The callbacks of an agent."""

    start_llm_stream: Callable[[], Callable[[str, StreamEventType], Any]] | None = None
    """Called when the model is asked. It returns a function that is called with each piece of the answer."""
    cancel_llm_stream: Callable[[], Any] | None = None
    """Called when the pieces of an answer that were sent so far are invalid, for instance after a lost connection."""
    finish_llm_stream: Callable[..., Any] | None = None
    """Called with `content` (the whole text) and `is_tool` when a streamed answer is complete."""
    show_llm_response: Callable[..., Any] | None = None
    """Called with the model's answer (`content`, its text, and `is_tool`), unless `start_llm_stream` is set."""
    show_agent_response: Callable[..., Any] | None = None
    """Called with the agent's answer: `content`, its text, and `is_tool`."""
    get_user_response: Callable[..., str] | None = None
    """Called with the text shown to a person as `prompt`. It returns the person's answer."""


class TaskCallbacks(Struct, kw_only=True, metaclass=Spelled):
    """The callbacks of a task."""

    show_subtask_response: Callable[..., Any] | None = None
    """Called with a sub-task as `task`, and with `content` and `is_tool` of its answer."""


@contextmanager
def heard(callbacks: Callbacks, live: LiveRun) -> Iterator[None]:
    """Send the pieces of the model's answer to the callbacks while the `with` block runs.

    Other listeners of the run, such as `record.stream`, receive the pieces too.
    """
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
    """Call a callback, unless it is `None`, with an answer: its text, and whether the answer is a tool message."""
    if callback is not None:
        callback(content=content, is_tool=is_tool)
