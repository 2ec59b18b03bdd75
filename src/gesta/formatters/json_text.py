"""Tool calls as JSON in the model's text: an object with the key `request` is a call of the tool named there.

No other object is a call, whatever keys it has, so other JSON in prose is never run. A listener gets the text up to the
first place where an object may begin. The rest is held back until the reply is complete.
"""

import json
import re

import msgspec

from gesta.formatters.text_form import UNKNOWN, TextForm
from gesta.message import Call
from gesta.model.request import Delta, Reply, ReplyCall
from gesta.prompt import observation_text
from gesta.text.objects import TextObject, objects

NAMED = re.compile(r"[\"']?request[\"']?\s*:\s*[\"']([A-Za-z0-9_-]{1,64})[\"']")
"""Finds the tool's name in an object that cannot be read as JSON."""
FENCES = re.compile(r"```\w*\s*```")
"""Matches a code fence that is empty because the object inside was removed."""


class JsonReader:
    """Parses a reply whose text may contain JSON objects."""

    part = "json"
    cut: int | None = None

    def __init__(self) -> None:
        self._words: list[str] = []
        self._space = ""  # not shown yet, because it is dropped if a call follows
        self._held = self._begun = False

    def feed(self, text: str) -> list[Delta]:
        """Add the next piece of a reply, and return the text to show now.

        The shown text ends where a JSON object may begin.
        """
        self._words.append(text)
        if self._held:
            return []
        stop = min((at for at in (text.find("{"), text.find("`")) if at >= 0), default=len(text))
        self._held = stop < len(text)
        words = self._space + text[:stop] if self._begun else text[:stop].lstrip()
        told = words.rstrip()
        self._space = words[len(told) :]
        self._begun |= bool(told)
        return [Delta("text", told)] if told else []

    def close(self, reply: Reply) -> Reply:
        """Return a copy of the reply with the calls that its text contains. Their JSON is removed from the text."""
        text = "".join(self._words)
        calls = [(found, call) for found in objects(text) if (call := _call(found, text)) is not None]
        if not calls:
            return msgspec.structs.replace(reply, text=text.lstrip())
        left, at = [], 0
        for found, _ in calls:
            left.append(text[at : found.start])
            at = found.end
        rest = FENCES.sub("", "".join([*left, text[at:]])).strip()
        return msgspec.structs.replace(reply, text=rest, calls=(*reply.calls, *(call for _, call in calls)))


class JsonText(TextForm):
    """The formatter for models that write tool calls as JSON in their text: it writes and reads such calls."""

    name = "json-text/1"
    prompt = "json.txt"

    def reader(self) -> JsonReader:  # type: ignore[override]  # it reads objects, not lines
        """Return a new reader for one reply."""
        return JsonReader()

    def written(self, call: Call) -> str:
        """Return a call as JSON, as the model should write it."""
        return observation_text({"request": ""} | call.args | {"request": call.name})


def _call(found: TextObject, text: str) -> ReplyCall | None:
    """Return the tool call that a JSON object in a reply describes; `None` if it describes none."""
    if found.value is None:
        named = NAMED.search(text, found.start, found.end)
        return ReplyCall(named[1], text[found.start : found.end]) if named else None
    name = found.value.get("request")
    if not isinstance(name, str):
        return None
    args = {key: value for key, value in found.value.items() if key != "request"}
    return ReplyCall(name or UNKNOWN, json.dumps(args, ensure_ascii=False))
