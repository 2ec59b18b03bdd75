"""Counts what is left out or changed, by kind of loss, when entries are turned into messages for a model.

The entries themselves stay on record. If a message has no other place for some content, the content is written as plain
text. This is counted as a loss, because the model no longer gets the content in its own form. A compaction is an entry
that leaves older messages out of later requests.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gesta.entry import Entry
from gesta.kinds import ChatCompletionContent, Kind, ThoughtContent, ToolCallContent, ToolResultContent
from gesta.message import Message

LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "thought": "reasoning that a provider let be seen; no model is shown another one's",
        "native": "what a provider kept for itself in a reply, such as signatures; only its own model has it back",
        "calls-in-words": "calls that stand in the text",
        "unanswered": "calls without a result on record; a placeholder stands for it",
        "late": "results that came after their call was closed; they stand in a user's message",
        "call-id": "ids that a provider gave to calls and that were odd or repeated; others stand for them",
        "tool-name": "names of tools that no provider takes",
        "arguments": "arguments that are not a JSON object; an empty one stands for them",
        "file": "images and files that are not on record themselves",
        "file-in-words": "images and files that this provider takes no such message with; a note names them",
        "settings": "settings by another provider's names; they go as they are, and may be refused",
        "left-out": "entries that a compaction left out",
    }
)
"""Description of each kind of loss."""

SAID = frozenset({Kind.User, Kind.ToolCall, Kind.ToolResult})
"""Kinds of entries that must be visible in the messages, unless a compaction left them out."""


def losses(entries: Sequence[Entry], messages: Sequence[Message], by: str = "") -> Counter[str]:
    """Return the number of losses of each kind in messages.

    Args:
        entries: the entries that the messages were made from.
        messages: the messages.
        by: name of the model to which the messages are sent, as `gesta.model.request.native_by` returns it. Signatures
            and other native items of its own replies are sent back to it, so they are not lost. Empty for no model.
    """
    found: Counter[str] = Counter()
    shown = {seq for message in messages for seq in message.sources}
    calls = [call for message in messages for call in message.calls]
    names, given = {call.name for call in calls}, Counter[str]()
    for entry in entries:
        match entry.content:
            case ThoughtContent() if entry.seq not in shown:
                found["thought"] += 1
            case ToolCallContent() as call if entry.seq in shown:
                found["calls-in-words"] += not calls
                given[call.tool_call_id or ""] += bool(calls)
                found["arguments"] += "raw_args" in (call.meta or {}) and not call.tool_args
                found["tool-name"] += bool(calls) and call.tool_name not in names
            case ToolResultContent(outcome="late"):
                found["late"] += 1
        found["left-out"] += entry.kind in SAID and entry.seq not in shown
    del given[""]  # a call without an id of its own loses nothing
    found["call-id"] = (given - Counter(call.id for call in calls)).total()
    answered = {entry.content.call for entry in entries if isinstance(entry.content, ToolResultContent)}
    found["unanswered"] += sum(entry.kind is Kind.ToolCall and entry.seq not in answered for entry in entries)
    kept = {
        entry.seq: entry.content.meta or {} for entry in entries if isinstance(entry.content, ChatCompletionContent)
    }
    given_back = {seq for message in messages if message.native is not None for seq in message.sources}
    for seq, meta in kept.items():
        native = meta.get("native")
        back = isinstance(native, dict) and native.get("by") == by and seq in given_back
        found["native"] += isinstance(native, dict) and not back
    parts = [part for message in messages for part in message.parts if part.type != "text"]
    found["file"] += sum(part.data is None and part.url is None for part in parts)
    return Counter({name: count for name, count in found.items() if count})


def told(found: Mapping[str, int]) -> list[str]:
    """Return the losses in words, one line for each kind."""
    return [f"{count} x {name}: {LOSSES[name]}" for name, count in found.items()]
