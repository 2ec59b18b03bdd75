"""What an imported run holds, by the names under which the corpus of recorded runs counts what its sources hold.

Only the entries are read: the message that an entry stands for is in its annotation `message`. Where a count is equal
to that of the corpus, which was made from the sources, nothing was lost and nothing was added.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from msgspec import Struct

from gesta import kinds
from gesta.entry import Entry

ROLES = {
    kinds.Kind.System: "system",
    kinds.Kind.RequestHeader: "system",
    kinds.Kind.User: "user",
    kinds.Kind.Assistant: "assistant",
    kinds.Kind.ChatCompletion: "assistant",
    kinds.Kind.ToolResult: "tool",
}
NOTES = {"user-step": "user", "user-tool-result": "tool", "exit": "exit"}
"""Roles of messages by the key of the key-value that they became."""
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
VERDICTS = {"suite_name": "suite", "attack_type": "attack", "termination_reason": "term"}
"""What is counted by its value, by the key of its note."""


class Message(Struct):
    """One message of a source, as its entry has it."""

    role: str
    text: str
    calls: int = 0


def messages_of(entries: Sequence[Entry]) -> list[Message]:
    """Give the messages of a run, in the order of the source."""
    found: dict[int, Message] = {}
    places: dict[int, int] = {}
    for entry in entries:
        place = (entry.annotations or {}).get("message")
        if isinstance(place, int):
            places[entry.seq] = place
            added = "tool_result" in (entry.annotations or {}).get("inferred", ())
            found[place] = Message(_role(entry), "" if added else _text(entry.content))
        elif _calls(entry):
            for cause in entry.causes:
                if isinstance(cause, int) and cause in places:
                    found[places[cause]].calls += 1
    return [found[place] for place in sorted(found)]


def _role(entry: Entry) -> str:
    content = entry.content
    if isinstance(content, kinds.KeyValueContent):
        return NOTES.get(content.key, "other")
    if isinstance(content, kinds.AssistantContent) and entry.causes:
        return "exit"  # mini-swe-agent: what was submitted, which no model said in that message
    return ROLES.get(entry.kind, "other")


def _calls(entry: Entry) -> bool:
    content = entry.content
    return isinstance(content, kinds.ToolCallContent) or (
        isinstance(content, kinds.KeyValueContent) and content.key == "user-tool-call"
    )


def _text(content: Any) -> str:
    match content:
        case kinds.ChatCompletionContent(output=text) | kinds.ToolResultContent(tool_result=text):
            pass
        case kinds.RequestHeaderContent(meta=meta):
            text = (meta or {}).get("instructions")
        case kinds.KeyValueContent(value={"content": text}):
            pass
        case _:
            text = getattr(content, "value", None)
    return text if isinstance(text, str) else "" if text is None else json.dumps(text, default=str)


def counted(entries: Sequence[Entry]) -> Counter[str]:
    """Count what a run holds, by the names of MANIFEST.json."""
    messages = messages_of(entries)
    results = [entry.content for entry in entries if isinstance(entry.content, kinds.ToolResultContent)]
    calls = [message.calls for message in messages if message.calls]
    made = sum(isinstance(entry.content, kinds.ToolCallContent) for entry in entries)
    by_user = sum(map(_calls, entries)) - made
    thoughts = sum(entry.kind is kinds.Kind.Thought for entry in entries)
    found = Counter(
        {
            "traj": 1,
            "messages": len(messages),
            "tool_calls": made + by_user,
            "requestor.assistant": made,
            "requestor.user": by_user,
            "calls_by.user": by_user,
            "tool_results": sum(message.role == "tool" for message in messages),
            "tool_errors": sum(map(_failed, entries)),
            "errors": sum(one.status == "error" for one in results),
            "max.calls_per_traj": made + by_user,
            "max.messages_per_traj": len(messages),
            "max.parallel": max(calls, default=0),
            "max.message_chars": max((len(message.text) for message in messages), default=0),
            "max.chars_per_traj": sum(len(message.text) for message in messages),
            "raw_data": sum(_raw(entry.content) for entry in entries),
            "reasoning_field": thoughts,
            "reasoning_content": thoughts,
            "requests": sum(entry.kind is kinds.Kind.Request for entry in entries),
            "responses": sum(entry.kind is kinds.Kind.ChatCompletion for entry in entries),
            "observations": sum(_observed(entry.content) for entry in entries),
            "ticks": sum(
                isinstance(one.content, kinds.KeyValueContent) and one.content.key == "tick" for one in entries
            ),
            "turns_with_calls": len(calls),
            "turns_text_and_calls": sum(bool(one.calls and one.text.strip()) for one in messages),
            "parallel_turns": sum(each > 1 for each in calls),
            "traj_without_calls": int(bool(messages) and not calls),
            "odd.empty_trajectory": int(not messages),
            "odd.ends_with_pending_calls": int(bool(messages) and messages[-1].calls > 0),
        }
    )
    found.update(said(messages))
    found.update(noted(entries))
    return found


def events_of(entries: Sequence[Entry]) -> set[str]:
    """Give the ids of the events that stand behind entries; one may be in several runs."""
    return {notes["event"] for entry in entries if isinstance((notes := entry.annotations or {}).get("event"), str)}


def _failed(entry: Entry) -> bool:
    """Return whether the source itself says that a result is a failure."""
    content = entry.content
    if isinstance(content, kinds.KeyValueContent) and content.key == "user-tool-result":
        return isinstance(content.value, dict) and content.value.get("error") is True
    inferred = (entry.annotations or {}).get("inferred", ())
    return isinstance(content, kinds.ToolResultContent) and content.status == "error" and "status" not in inferred


def _observed(content: Any) -> bool:
    return isinstance(content, kinds.BeginContent) and content.role not in ("import", "turn")


def _raw(content: Any) -> bool:
    return "raw" in (getattr(content, "meta", None) or {}) or "raw_data" in (content.extra or {})


def said(messages: Sequence[Message]) -> Counter[str]:
    """Count what the texts of messages are like, and who follows whom."""
    found: Counter[str] = Counter()
    for one in messages:
        text, spoken = one.text, one.role == "assistant"
        found["chars"] += len(text)
        found[f"role.{one.role}"] += 1
        found[f"content.empty.{one.role}"] += not text
        found["empty_content"] += not text
        found["odd.tool_empty_content"] += one.role == "tool" and not text
        found["odd.assistant_empty_content_no_calls"] += spoken and not text and not one.calls
        found["odd.whitespace_only_content.assistant"] += spoken and text.isspace()
        found["content.non_ascii"] += not text.isascii()
        found["content.astral_chars"] += any(character > "\uffff" for character in text)
        found["content.over_20k"] += len(text) > 20_000
        found["odd.carriage_return"] += "\r" in text
        found["odd.ansi_escape"] += "\x1b[" in text
        found["odd.control_chars"] += CONTROL.search(text) is not None
    for one, other in pairwise(messages):
        if one.role == other.role and one.role in ("assistant", "user"):
            found[f"odd.consecutive_{one.role}"] += 1
        found["odd.message_between_call_and_result"] += one.calls > 0 and other.role != "tool"
    if messages:
        found.update((f"starts_with.{messages[0].role}", f"ends_with.{messages[-1].role}"))
    return found


def noted(entries: Sequence[Entry]) -> Counter[str]:
    """Count what was noted about a run as a whole."""
    notes = {one.content.key: one.content.value for one in entries if isinstance(one.content, kinds.KeyValueContent)}
    first = entries[0].content if entries else None
    notes |= first.state if isinstance(first, kinds.BeginContent) and isinstance(first.state, dict) else {}
    found = Counter(f"{VERDICTS[key]}.{value}" for key, value in notes.items() if key in VERDICTS)
    found["attack.None"] += "suite_name" in notes and "attack_type" not in notes
    found["attack_succeeded_per_file"] += notes.get("security") is True and "attack_type" in notes
    ended = notes.get("info")
    if isinstance(ended, dict) and "exit_status" in ended:
        found[f"exit.{ended['exit_status']}"] += 1
    found["utility_true"] += notes.get("utility") is True
    found["run_error"] += notes.get("error") is not None
    reward, info = notes.get("reward"), notes.get("reward_info")
    found["reward>0"] += isinstance(reward, int | float) and reward > 0
    found["reward_1"] += isinstance(info, dict) and info.get("reward") == 1
    return found


def merge(total: dict[str, int], one: Counter[str]) -> None:
    """Add the counts of a run to those of its file; of sizes keep the largest."""
    for name, count in one.items():
        total[name] = max(total.get(name, 0), count) if name.startswith("max.") else total.get(name, 0) + count


def like(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name is like one of some patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
