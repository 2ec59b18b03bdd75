"""ReAct as text: a reply is a thought with actions (tool calls) and their arguments, or with a final answer.

A *marker* such as `Action:` starts a part of the reply. A brace or a marker inside a string does not end the arguments.
Malformed arguments with only one possible meaning are accepted: single quotes, a list of one object, a fence, words
after the object. All actions of a reply become calls. An observation or an answer after an action is ignored, because
the model made it up before it saw a result.
"""

import json
import re
from collections.abc import Callable
from typing import ClassVar

from gesta.formatters.text_form import UNKNOWN, LineReader, TextForm, marker
from gesta.message import Call
from gesta.model.request import Reply, ReplyCall
from gesta.prompt import observation_text

NO_ACTION = frozenset({"", "none", "n/a", "finish"})
"""Words that models write as the name of the action when they answer instead."""
NAMED = 64
"""Greatest number of characters of a tool's name."""
AROUND = " \t\r\n\"'`*[]()."
"""Characters that models write around a tool's name."""
BEFORE = re.compile(r"[\s`]*(?:json|python)?\s*")
AGAIN = re.compile(r"[\s`,;]*[\[{]")
TOKEN = re.compile(
    r""""([^"\\]*(?:\\.[^"\\]*)*)"|'([^'\\]*(?:\\.[^'\\]*)*)'|,(?=\s*[}\]])|\b(True|False|None)\b""",
    re.DOTALL,
)
INSIDE = re.compile(r"""\\.|["\n\r\t]""", re.DOTALL)
JSON = {"True": "true", "False": "false", "None": "null", "\\'": "'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Bracketed:
    """Finds the first value in brackets in a text that arrives in pieces."""

    def __init__(self, opening: str) -> None:
        self.start: int | None = None
        self.end: int | None = None
        self.quote = ""
        """The quotation mark of the open string; empty outside of strings."""
        self._opening = re.compile(f"[{re.escape(opening)}]")
        self._read = 0
        self._depth = 0
        self._escaped = False

    def feed(self, text: str) -> None:
        """Add the next piece of the text. Cost: linear in the length of the piece."""
        at = 0
        while at < len(text) and self.end is None:
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            found = self._awaited().search(text, at)
            if found is None:
                break
            at = found.end()
            self._meet(found[0], self._read + at)
        self._read += len(text)

    def _awaited(self) -> re.Pattern[str]:
        if self.quote:
            return STRINGS[self.quote]
        return self._opening if self.start is None else BRACKETS

    def _meet(self, mark: str, after: int) -> None:
        if mark == "\\":
            self._escaped = True
        elif mark in "\"'":
            self.quote = "" if self.quote else mark
        elif mark in "{[":
            self.start = after - 1 if self.start is None else self.start
            self._depth += 1
        else:
            self._depth -= 1
            self.end = after if self._depth == 0 else None


STRINGS = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
BRACKETS = re.compile(r"""["'{}\[\]]""")


class Action:
    """One action of a reply: the name of a tool and its arguments, as the model wrote them."""

    def __init__(self) -> None:
        self.name: list[str] = []
        self.args: list[str] | None = None
        self.value = Bracketed("{")
        """Finds the arguments, which may also be on the same line as the name."""

    def begin_args(self) -> None:
        """End the name of the action. The text that is added from now on belongs to the arguments."""
        self.args, self.value = [], Bracketed("{[")

    def add(self, text: str) -> None:
        """Add text to the name of the action, or to its arguments once the arguments have begun."""
        (self.name if self.args is None else self.args).append(text)
        self.value.feed(text)

    @property
    def title(self) -> str:
        """The name of the tool: the first line that is not empty, without the marks that models put around it."""
        text = "".join(self.name)
        text = text if self.args is not None else text[: self.value.start]
        lines = (line.strip(AROUND) for line in text.splitlines())
        return next((line for line in lines if line), "")

    def call(self) -> ReplyCall:
        """Return the action as a call. Arguments that cannot be read stay a text."""
        name, text = self.title, "".join(self.name if self.args is None else self.args)
        if len(name) > NAMED:
            return ReplyCall(UNKNOWN, f"{name}\n{text}" if self.args else text.strip())
        start, end = self.value.start, self.value.end
        if start is None:
            return ReplyCall(name or UNKNOWN, "{}" if self.args is None else text.strip(" \t\r\n`") or "{}")
        fits = self.args is None or BEFORE.fullmatch(text[:start]) is not None
        if end is None or not fits or AGAIN.match(text, end):
            return ReplyCall(name or UNKNOWN, (text if self.args is not None else text[start:]).strip())
        return ReplyCall(name or UNKNOWN, an_object(text[start:end]))


def an_object(text: str) -> str:
    """Return an object, written as JSON or as in Python, as JSON text. It may be the only element of a list.

    A text that means no object is returned unchanged.
    """
    reads: tuple[Callable[[], object], ...] = (
        lambda: json.loads(text),
        lambda: json.loads(TOKEN.sub(_as_json, text), strict=False),
    )
    for place, read in enumerate(reads):
        try:
            value = read()
        except (ValueError, RecursionError):
            continue
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
        elif place == 0:
            return text
        return json.dumps(value) if isinstance(value, dict) else text
    return text


def _as_json(token: re.Match[str]) -> str:
    """Return the JSON form of a Python string or constant; an empty text for a comma before a closing bracket."""
    double, single, name = token.groups()
    body = single if double is None else double
    if body is None:
        return JSON.get(name, "")
    return '"' + INSIDE.sub(lambda found: JSON.get(found[0], found[0]), body) + '"'


class ReActReader(LineReader):
    """Parses a reply that is a thought with actions and their arguments, or with a final answer."""

    PARTS: ClassVar[dict[str, str]] = {
        "thought": "thought",
        "action": "action",
        "args": "args",
        "arguments": "args",
        "action input": "args",
        "observation": "observation",
        "final answer": "answer",
    }
    MARKER = marker(tuple(PARTS))

    def __init__(self) -> None:
        super().__init__()
        self.actions: list[Action] = []

    def counts(self, part: str) -> bool:
        """Return whether a marker starts a part at this place of the reply.

        Inside a string, a marker is only text. The markers of arguments and observations start a part only after an
        action.
        """
        if self.part in ("action", "args") and self.actions[-1].value.quote:
            return False
        return self.part == "action" if part == "args" else part != "observation" or bool(self.actions)

    def enter(self, part: str) -> None:
        """Start a part of the reply: the text that follows belongs to it.

        An observation, or an answer after an action, was made up by the model, so the rest of the reply is ignored.
        """
        if part == "answer" and all(action.title.lower() in NO_ACTION for action in self.actions):
            self.actions.clear()
        super().enter(part)
        if part == "action":
            self.actions.append(Action())
        elif part == "args":
            self.actions[-1].begin_args()
        elif self.actions and part != "thought":
            self.stop()

    def body(self, text: str) -> None:
        """Add text to the current part of the reply."""
        if self.part in ("action", "args"):
            self.actions[-1].add(text)
        else:
            super().body(text)

    def calls(self, reply: Reply) -> list[ReplyCall]:
        """Return the actions as calls, in order."""
        return [action.call() for action in self.actions]


class ReActText(TextForm):
    """The formatter for ReAct as text: it writes tool calls as actions, and reads actions in a reply as tool calls."""

    name = "react-text/1"
    prompt = "react.txt"

    def reader(self) -> ReActReader:
        """Return a new reader for one reply."""
        return ReActReader()

    def written(self, call: Call) -> str:
        """Return a call as an action and its arguments."""
        return f"Action: {call.name}\nArgs: {observation_text(call.args)}"
