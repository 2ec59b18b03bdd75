"""Reads the input or the output of a model, in the form that a framework recorded.

The value may be a list of messages, a request or a reply of OpenAI or Gemini, a state of LangGraph, arguments of a
function, or plain text. `FORMS` lists the readers of these forms; the first one that can read the value is used. A
value that no reader can read is left to the caller.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from gesta.importers import framework_message
from gesta.importers.chat import Said
from gesta.importers.foreign import Oddities
from gesta.importers.framework_message import Item
from gesta.importers.python_text import decoded

LINE = re.compile(r"(?:^|\n)(system|developer|user|assistant|tool): ")
"""Finds the beginning of each message in a text that lists messages."""
DEEPEST = 12
"""Greatest number of dots at which the name of an attribute is split."""
INPUTS, OUTPUTS = ("llm.input_messages.", "gen_ai.prompt."), ("llm.output_messages.", "gen_ai.completion.")
"""Beginnings of the names of attributes that hold messages, in OpenInference and in older OpenTelemetry: what a model
was sent, and what it replied."""
INSTRUCTIONS = ("system_instruction", "system", "instructions")


class Given(Struct, kw_only=True):
    """The input or the output of a model, read into messages and tools."""

    whole: Any
    raws: list[Any] = field(default_factory=list)
    """The messages in the form of the source."""
    by: str | None = None
    """The role of messages that name no role; `None` if the caller's default applies."""
    items: list[Item] = field(default_factory=list)
    """The messages in `raws`, each read into an `Item`."""
    form: str = ""
    """The name of the form in `FORMS`."""
    key: str = ""
    """The member of `whole` that holds the messages; `""` if `whole` itself is the list."""
    instructions: str | None = None
    tools: list[Any] = field(default_factory=list)
    """The tools that the model could call, in the form of the source."""
    model: str | None = None
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None

    @property
    def said(self) -> list[Said]:
        """All messages in the value, in order."""
        return [said for item in self.items for said in item.said]

    def shown(self, references: list[Any]) -> Any:
        """Return a copy of the value that was read, with references in place of its messages.

        Args:
            references: one value for each message, in the order of the messages.
        """
        if self.key:
            return {**self.whole, self.key: references}
        if not isinstance(self.whole, list):
            return self.whole
        return references if self.raws is self.whole else [references]


Form = Callable[[Any], Given | None]


def read(value: Any, by: str, oddities: Oddities) -> Given | None:
    """Return the messages and tools in the input or output of a model; `None` if it has no known form.

    Args:
        by: the role for messages that name no role, if their form does not imply it: user, assistant or tool.
        oddities: counts problems of the value by name.
    """
    value = decoded(value)
    for name, form in FORMS.items():
        given = form(value)
        if given is None:
            continue
        given.form = name
        given.items += [framework_message.item(raw, given.by or by, oddities) for raw in given.raws]
        unread = [item for item in given.items if not item.said and item.tool is None]
        if len(unread) < len(given.items):
            oddities.update([framework_message.UNKNOWN_MESSAGE] * len(unread))
            return given
    return None


def from_attributes(attributes: Mapping[str, Any], starts: tuple[str, ...]) -> list[Any] | None:
    """Return the messages that are spread over attributes, such as `llm.input_messages.0.message.role`.

    Return `None` if no attribute holds a message.

    Args:
        starts: beginnings of the names of attributes with messages, such as `llm.input_messages.`.
    """
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        start = next((start for start in starts if name.startswith(start)), None)
        path = name[len(start or "") :].split(".", DEEPEST)
        if start is not None and path[0].isdecimal() and len(path) > 1:
            _put(tree, path, value)
    found = [each for each in _in_order(tree) if isinstance(each, dict)]
    return [_gathered(each.get("message", each)) for each in found] or None


def is_cut(attributes: Mapping[str, Any], starts: tuple[str, ...]) -> bool:
    """Return whether no attribute belongs to the first message, as when a library limits the number of attributes.

    Args:
        starts: beginnings of the names of attributes with messages, such as `llm.input_messages.`.
    """
    firsts = tuple(f"{start}0." for start in starts)
    return not any(name.startswith(firsts) for name in attributes)


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            inner = tree[name] = {}
        tree = inner
    tree[path[-1]] = value


def _in_order(tree: Any) -> list[Any]:
    numbers = [name for name in tree if name.isdecimal() and len(name) < 10] if isinstance(tree, dict) else []
    return [tree[name] for name in sorted(numbers, key=int)]


def _gathered(message: Any) -> Any:
    """Return a message that was spread over attributes, with its tool calls and its parts as lists.

    In attributes, each call and each part is a member with a number as its name. Other values are returned unchanged.
    """
    if not isinstance(message, dict):
        return message
    calls = [each.get("tool_call", each) for each in _in_order(message.get("tool_calls")) if isinstance(each, dict)]
    parts = [each.get("message_content", each) for each in _in_order(message.get("contents")) if isinstance(each, dict)]
    rest = {key: value for key, value in message.items() if key not in ("tool_calls", "contents")}
    return rest | ({"content": parts} if parts else {}) | ({"tool_calls": calls} if calls else {})


def _list(value: Any) -> Given | None:
    if not isinstance(value, list):
        return None
    only = value[0] if len(value) == 1 else None  # LangChain has a list of messages for each prompt
    return Given(whole=value, raws=only if isinstance(only, list) else value)


def _request(key: str) -> Form:
    """Return a reader of requests that hold their messages in the member `key`."""

    def form(value: Any) -> Given | None:
        given = value.get(key) if isinstance(value, dict) else None
        raws = [given] if isinstance(given, str | dict) else given
        if not isinstance(raws, list):
            return None
        held = [part for part in (value, value.get("config")) if isinstance(part, dict)]
        told = [framework_message.words(part[name]) for part in held for name in INSTRUCTIONS if part.get(name)]
        tools = [tool for part in held for tool in _every(part.get("tools"))]
        instructions = next((text for text in told if text), None)
        return Given(whole=value, raws=raws, by="user", key=key, instructions=instructions, tools=tools)

    return form


def _choices(key: str, inner: str) -> Form:
    """Return a reader of replies with several candidates. It reads the first candidate.

    Args:
        key: member of the reply that lists the candidates.
        inner: member of a candidate that holds its message.
    """

    def form(value: Any) -> Given | None:
        choices = value.get(key) if isinstance(value, dict) else None
        first = choices[0] if isinstance(choices, list) and choices else None
        return _reply(value, [first.get(inner)], first) if isinstance(first, dict) else None

    return form


def _responses(value: Any) -> Given | None:
    if not isinstance(value, dict) or value.get("object") != "response":
        return None
    given = _reply(value, _every(value.get("output")), {})
    given.instructions, given.tools = _text(value.get("instructions")), _every(value.get("tools"))
    return given


def _generations(value: Any) -> Given | None:
    first = value.get("generations") if isinstance(value, dict) else None
    for _ in range(2):
        first = first[0] if isinstance(first, list) and first else None
    return _reply(value, [first.get("message") or first.get("text")], {}) if isinstance(first, dict) else None


def _converse(value: Any) -> Given | None:
    output = value.get("output") if isinstance(value, dict) else None
    inner = output.get("message") if isinstance(output, dict) else None
    return _reply(value, [inner], {"finish_reason": value.get("stopReason")}) if isinstance(inner, dict) else None


def _wrapped(key: str) -> Form:
    """Return a reader of replies whose only message is in the member `key`."""

    def form(value: Any) -> Given | None:
        inner = value.get(key) if isinstance(value, dict) else None
        return _reply(value, [inner], value) if isinstance(inner, dict) else None

    return form


def _reply(value: dict[str, Any], raws: list[Any], first: dict[str, Any]) -> Given:
    return Given(
        whole=value,
        raws=[raw for raw in raws if raw is not None],
        by="assistant",
        model=_text(value.get("model")) or _text(value.get("model_version")),
        usage=next((each for key in ("usage", "usage_metadata") if isinstance(each := value.get(key), dict)), None),
        finish_reason=_text(first.get("finish_reason")),
    )


def _single(value: Any) -> Given | None:
    return Given(whole=value, raws=[value]) if isinstance(value, dict) else None


def _lines(value: Any) -> Given | None:
    if not isinstance(value, str) or LINE.match(value) is None:
        return None
    found = list(LINE.finditer(value))
    ends = [line.start() for line in found[1:]] + [len(value)]
    lines = [(line[1], value[line.end() : end]) for line, end in zip(found, ends, strict=True)]
    return Given(whole=value, items=[Item(value, [framework_message.line(*each) for each in lines])])


def _plain(value: Any) -> Given | None:
    return Given(whole=value, raws=[value]) if isinstance(value, str) else None


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "list of messages": _list,
        "chat request": _request("messages"),
        "Gemini request": _request("contents"),
        "prompt": _request("prompt"),
        "arguments": _request("args"),
        "chat reply": _choices("choices", "message"),
        "Gemini reply": _choices("candidates", "content"),
        "Responses reply": _responses,
        "Converse reply": _converse,
        "generations": _generations,
        "choice": _wrapped("message"),
        "event": _wrapped("content"),
        "message": _single,
        "lines": _lines,
        "words": _plain,
    }
)
"""The readers of the known forms by their names, in the order in which they are tried."""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _every(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
