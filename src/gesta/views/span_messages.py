"""Collects the newest messages of a prompt, up to a bound, as JSON of the GenAI semantic conventions.

An entry is one recorded fact of a run; its seq is its number there. A request header is an entry with the model,
instructions and tools of requests. A span contains at most `CONTENT` characters of a conversation, so the cost of
tracing does not grow with its length. Source: "Model: gen_ai input messages" and "gen_ai output messages" of the
semantic conventions 1.41.0, read 2026-11.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gesta.content import Part
from gesta.entry import Entry
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    CompactionContent,
    RequestHeaderContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.message import part_text
from gesta.prompt import observation_text
from gesta.views.spans import as_json, shown

CONTENT = 64 * 1024
"""Greatest number of characters of an attribute with messages."""
PIECE = 16 * 1024
"""Greatest number of characters of one part of a message."""


class Spoken(Struct):
    """One message of a prompt."""

    seq: int
    """Seq of the entry that the message was made from."""
    role: str
    parts: list[dict[str, Any]]
    """Its parts, as the conventions write them."""
    size: int
    """Approximate number of characters of its JSON."""


def text_part(text: str, type_: str = "text") -> dict[str, Any]:
    """Return a message part with a text, cut to `PIECE` characters."""
    return {"type": type_, "content": shown(text, PIECE)}


def words_of(text: str, parts: Sequence[Part] | None) -> list[dict[str, Any]]:
    """Return the message parts for a text, and for the images and files among `parts`.

    The part for an image or file has a text with its name, type and address.
    """
    more = [text_part(part_text(part)) for part in parts or () if part.type != "text"]
    return [text_part(text), *more] if text or not more else more


def call_part(seq: int, content: ToolCallContent) -> dict[str, Any]:
    """Return the message part for a tool call. If the provider gave the call no id, the id is `call_` and its seq."""
    arguments = (
        content.tool_args if len(as_json(content.tool_args)) <= PIECE else shown(as_json(content.tool_args), PIECE)
    )
    id_ = shown(content.tool_call_id or f"call_{seq}", 100)
    return {"type": "tool_call", "id": id_, "name": shown(content.tool_name, 120), "arguments": arguments}


class Conversation:
    """The newest messages that a run's model was sent: at most `CONTENT` characters."""

    def __init__(self) -> None:
        self._said: list[Spoken] = []
        self._size = 0
        self._calls: dict[int, str] = {}

    def add(self, entry: Entry) -> None:
        """Add the next entry of the run. Never raises."""
        match entry.content:
            case UserContent() as content:
                self._say(entry.seq, "user", words_of(content.value, content.parts))
            case SystemContent() as content:
                role = "user" if content.source else "system"
                self._say(entry.seq, role, words_of(content.value, content.parts))
            case ChatCompletionContent(output=text):
                self._say(entry.seq, "assistant", [text_part(text)] if text else [])
            case AssistantContent() as content if not entry.causes or content.history:
                self._say(entry.seq, "assistant", words_of(content.value, content.parts))
            case ToolCallContent() as content:
                self._call(entry, content)
            case ToolResultContent() as content if content.call is not None:
                part = {"type": "tool_call_response", "id": self._calls.pop(content.call, f"call_{content.call}")}
                part["response"] = shown(observation_text(content.tool_result), PIECE)
                self._say(entry.seq, "tool", [part])
            case CompactionContent() as content:
                self._compact(entry.seq, content)

    def _say(self, seq: int, role: str, parts: list[dict[str, Any]]) -> None:
        self._said.append(Spoken(seq, role, parts, 0))
        self._weigh(self._said[-1])
        while self._size > CONTENT and len(self._said) > 1:
            self._size -= self._said.pop(0).size

    def _weigh(self, said: Spoken) -> None:
        self._size -= said.size
        said.size = len(as_json(said.parts)) + 40
        self._size += said.size

    def _call(self, entry: Entry, content: ToolCallContent) -> None:
        part = call_part(entry.seq, content)
        self._calls[entry.seq] = part["id"]
        reply = next((each for each in reversed(self._said[-3:]) if each.seq in entry.causes), None)
        if reply is None:
            self._say(entry.seq, "assistant", [part])
        else:
            reply.parts.append(part)
            self._weigh(reply)

    def _compact(self, seq: int, content: CompactionContent) -> None:
        self._said = [each for each in self._said if not content.from_seq <= each.seq <= content.to_seq]
        self._size = sum(each.size for each in self._said)
        if content.summary is not None:
            self._say(seq, "user", [text_part(content.summary)])
            self._said.insert(0, self._said.pop())

    def text(self) -> str:
        """Return the messages as JSON text."""
        return as_json([{"role": each.role, "parts": each.parts} for each in self._said if each.parts])


class Reply(Struct):
    """The reply of a model: its reasoning, its text and its tool calls."""

    thoughts: list[str]
    words: str = ""
    calls: list[dict[str, Any]] = []
    """Parts of the calls, as `call_part` returns them."""
    finish: str = ""
    """Why the model stopped, in the provider's word; empty if unknown."""

    def text(self) -> str:
        """Return the reply as JSON text."""
        parts = [text_part(thought, "reasoning") for thought in self.thoughts]
        parts += [text_part(self.words)] if self.words else []
        return as_json([{"role": "assistant", "parts": [*parts, *self.calls], "finish_reason": self.finish or "stop"}])


def heading(header: RequestHeaderContent) -> dict[str, str]:
    """Return span attributes with the instructions and the tools of a request header."""
    said = (header.meta or {}).get("instructions")
    found = {"gen_ai.system_instructions": as_json([text_part(said)])} if isinstance(said, str) and said else {}
    tools = [
        {
            "type": "function",
            "name": tool.get("name"),
            "description": tool.get("description"),
            "parameters": tool.get("args_schema"),
        }
        for tool in header.tools or ()
        if isinstance(tool, dict)
    ]
    if tools and len(told := as_json(tools)) <= CONTENT:
        found["gen_ai.tool.definitions"] = shown(told, CONTENT)
    return found
