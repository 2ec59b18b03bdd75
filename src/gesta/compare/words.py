"""Describes differences as text: which entry differs, the path of the difference, and both values.

A replay runs an agent's code again on a recorded run, and compares each entry that it writes with the recorded one.
"""

import json
from collections.abc import Iterator
from typing import Any

from gesta.compare.replaying import Divergence
from gesta.compare.same import MISSING, Difference
from gesta.entry import Entry
from gesta.kinds import ToolCallContent, ToolResultContent

MOST, BEFORE = 160, 30
"""Greatest number of characters shown of a value, and of the equal text shown before a difference in a long value."""


def divergence_lines(found: Divergence, entries: list[Entry]) -> list[str]:
    """Return lines of text that describe where a replay differs from the record.

    Args:
        entries: the recorded entries of the run, from the first one on.
    """
    entry = found.recorded or found.replayed
    assert entry is not None
    head = f"entry {found.seq} of run {found.run}, {_what(entry, entries)}: {found.difference.path}"
    lines = [head, *(f"  {mark} {text}" for mark, text in sides(found.difference))]
    if found.difference.path in ("$.kind", "$") and found.replayed is not None:
        lines.append(f"    which is {_what(found.replayed, entries)}")
    return lines


def sides(difference: Difference) -> Iterator[tuple[str, str]]:
    """Yield both values of a difference as text: the old value after the mark `-`, and the new value after `+`."""
    before, after = (_text(value) for value in (difference.before, difference.after))
    alike = next((place for place, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, alike - BEFORE) if max(len(before), len(after)) > MOST else 0
    for mark, text in (("-", before), ("+", after)):
        cut = text[start : start + MOST]
        yield mark, f"{'…' if start else ''}{cut}{'…' if start + MOST < len(text) else ''}"


def plain(value: Any) -> Any:
    """Return one value of a difference as JSON; `None` if the value is missing."""
    return None if value is MISSING else value


def call_text(name: str, args: dict[str, Any]) -> str:
    """Return a tool call in Python notation."""
    shown = (f"{key}={json.dumps(value, default=repr, ensure_ascii=False)}" for key, value in args.items())
    return f"{name}({', '.join(shown)})"


def _what(entry: Entry, entries: list[Entry]) -> str:
    content = entry.content
    if isinstance(content, ToolCallContent):
        return f"call {call_text(content.tool_name, content.tool_args)}"
    if isinstance(content, ToolResultContent) and content.call is not None and content.call <= len(entries):
        call = entries[content.call - 1].content
        if isinstance(call, ToolCallContent):
            return f"result of {call_text(call.tool_name, call.tool_args)}"
    return str(entry.kind)


def _text(value: Any) -> str:
    return "(nothing)" if value is MISSING else json.dumps(value, ensure_ascii=False, default=str)
