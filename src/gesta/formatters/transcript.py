"""A plain transcript: tool calls and results as text, which a model can read without being offered the tools.

It is for models that took no part in the run: a judge, a summariser, or a provider without tools. Such a model is
offered no tools, and its reply is read as text alone.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gesta.entry import Entry
from gesta.formatters.tool_calls import State, ToolCalls
from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.prompt.formatter import observation_text


class Transcript:
    """Formatter that writes a history as plain text."""

    name = "transcript/1"

    def start(self) -> State:
        """Make the state before the first segment."""
        return State()

    def format(self, entries: Sequence[Entry], state: State) -> list[Message]:
        """Return the messages of one segment."""
        return [_told(message) for message in ToolCalls().format(entries, state)]

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return the header with the mark that no tools are offered natively."""
        return replace(header, meta={**(header.meta or {}), "tools_in": "text"})

    def reader(self) -> None:
        """Return `None`: there are no calls, only text."""


def _told(message: Message) -> Message:
    if message.role == "tool":
        told = f"[result of {message.name or 'a tool'}]\n{message.text}"
        return Message(
            role="user", text=told, parts=message.parts, name=message.name, observes=True, sources=message.sources
        )
    if not message.calls:
        return replace(message, native=None)
    calls = [f"[calls {call.name} with {observation_text(call.args)}]" for call in message.calls]
    text = "\n".join([*([message.text] if message.text else []), *calls])
    return Message(role="assistant", text=text, sources=message.sources)
