"""A plain transcript: tool calls and results as text, for a model that is not offered the tools.

Such a model took no part in the run: it is a judge, a summariser, or a model of a provider without tools. Its reply is
read as text, without calls. A segment is the stored entries from one request to the next. The state is what is kept
from one segment for the next, such as the ids of calls.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gesta.entry import Entry
from gesta.formatters.tool_calls import State, ToolCalls
from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.prompt import observation_text


class Transcript:
    """The formatter that writes a history as plain text."""

    name = "transcript/1"

    def start(self) -> State:
        """Return the formatter's state before the first segment."""
        return State()

    def format(self, entries: Sequence[Entry], state: State) -> list[Message]:
        """Return the messages of one segment, and update `state` for the next segment."""
        return [_told(message) for message in ToolCalls().format(entries, state)]

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return a copy of a request header, with a mark that its tools are not sent in the provider's form."""
        return replace(header, meta={**(header.meta or {}), "tools_in": "text"})

    def reader(self) -> None:
        """Return `None`, because a reply has no calls to read."""


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
