"""Converts contents of older formats to the present format when they are read. The stored text stays unchanged.

A content is the data of an entry.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, get_args

import msgspec

from gesta.kinds import Content

Upcasts = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
CLASSES: Mapping[str, type[Content]] = {kind.__struct_config__.tag: kind for kind in get_args(Content)}
"""The classes of contents, by their tags."""


def _typed_members(members: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a content of format 1, converted to format 2.

    Version 0.1.0 wrote some facts into `extra` that have fields of their own now. They are moved if they fit the field.
    """
    extra, lifted = members.get("extra"), LIFTED.get(members.get("kind", ""), {})
    if type(extra) is not dict or not extra.keys() & lifted.keys():
        return members
    types = {field.name: field.type for field in msgspec.structs.fields(CLASSES[members["kind"]])}
    made: dict[str, Any] = {}
    for name in extra.keys() & lifted.keys():
        with suppress(Exception):  # not of the field's type: it is a user's own member
            fields = _unsummed(extra[name]) if name == "summary_failed" else {lifted[name]: extra[name]}
            made |= {field: msgspec.convert(value, types[field]) for field, value in fields.items()}
            extra = {key: value for key, value in extra.items() if key != name}
    return {**members, **made, "extra": extra or None}


def _unsummed(failed: Any) -> dict[str, Any]:
    """Return the fields `error` and `run` of a `compaction` entry whose summary could not be made.

    Args:
        failed: value of `summary_failed` in format 1, with the reason and the run.
    """
    return {"error": {"type": "summary", "message": failed["reason"]}, "run": failed["run"]}


LIFTED: Mapping[str, Mapping[str, str]] = {
    "system": {"from": "source", "corrects": "corrects", "document": "document", "history": "history"},
    "user": {"document": "document", "history": "history"},
    "assistant": {"history": "history", "return_values": "return_values"},
    "chat-completion": {"agent_actions": "actions"},
    "attempt": {"effect": "effect"},
    "tool-result": {"state": "state", "error": "error", "document": "document", "by": "by", "from": "copy_of"},
    "fault": {"run": "run"},
    "begin": {"allowance": "allowance"},
    "end": {"null": "null", "goal": "goal"},
    "edge": {"child": "child"},
    "decision": {"task_type": "task_type"},
    "question": {"raises": "raises"},
    "compaction": {"tokens": "tokens", "summary_failed": "error"},
}
"""For each kind: members of `extra` in format 1, and the field of format 2 that each of them becomes."""
UPCASTS: Upcasts = {1: _typed_members}  # from each version to the next one
