"""A tool message that a model writes as XML, so that code and other long texts need no escaping.

The parser understands elements, text, CDATA sections and HTML entities, but no attributes and no declarations. An
element whose name begins with an underscore is skipped. The last message in a text may lack its closing tag.
"""

import json
import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any, ClassVar, Self
from xml.sax.saxutils import escape

from gesta.compat.langroid.exceptions import XMLException
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.tool_message import ToolMessage, arguments_of
from gesta.errors import BadArguments

MARK = re.compile(r"<!\[CDATA\[(?P<data>.*?)(?:\]\]>|\Z)|<(?P<end>/?)(?P<tag>[A-Za-z_][\w.-]*)\s*>", re.DOTALL)
DATA = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)", re.DOTALL)
FENCE = re.compile(r"\A\s*```\w*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)
ITEM = "item"


class XMLToolMessage(ToolMessage):
    """A tool message written as XML: an element `<tool>` that contains `<request>` and one element for each field."""

    _root: ClassVar[str] = "tool"

    @classmethod
    def find_candidates(cls, text: str) -> list[str]:
        """Return the parts of a text that look like messages: each begins with the opening tag of a message."""
        return [text[start:end] for start, end in cls._places(text)]

    @classmethod
    def calls_in(cls, text: str) -> list[tuple[dict[str, Any], int, int]]:
        """Return the calls in a text, each with its start and end. An XML message without a `request` is not a call."""
        read = [(cls._read(text[start:end]), start, end) for start, end in cls._places(text)]
        return [(args, start, end) for args, start, end in read if args.get("request")]

    @classmethod
    def extract_field_values(cls, formatted_string: str) -> dict[str, Any] | None:
        """Return the fields of the first call in a text, unconverted; `None` if it is not a call of this tool."""
        found = cls.calls_in(formatted_string)
        return found[0][0] if found and found[0][0]["request"] == cls.name() else None

    @classmethod
    def parse(cls, formatted_string: str) -> Self | None:
        """Return the first call in a text as a message; `None` if it is not a call of this tool.

        Raises XMLException if the fields of the call do not fit the class.
        """
        values = cls.extract_field_values(formatted_string)
        try:
            return None if values is None else cls.model_validate(cls.arguments_read(values))
        except BadArguments as wrong:
            raise XMLException(str(wrong)) from wrong

    @classmethod
    def arguments_read(cls, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call converted to the types of their fields. XML has only texts and elements."""
        properties, defs = facts_of(cls).schema["properties"], facts_of(cls).schema.get("$defs", {})
        return {name: _typed(value, properties.get(name, {}), defs) for name, value in args.items()}

    @classmethod
    def format_instructions(cls, tool: bool = False) -> str:  # noqa: FBT001, FBT002 - the name that users know
        """Return the description of the tool as text for a model, with each field as an XML element.

        `tool` has no effect; Langroid's method has it.
        """
        del tool
        schema = facts_of(cls).schema
        fields = "\n".join(f"  <{name}>{json.dumps(each)}</{name}>" for name, each in schema["properties"].items())
        shown = f"<{cls._root}>\n  <request>{cls.name()}</request>\n{fields}\n</{cls._root}>"
        parts = [f"TOOL: {cls.name()}", f"PURPOSE: {facts_of(cls).purpose}", f"XML, each element described:\n{shown}"]
        return "\n".join(filter(None, [*parts, cls.instructions(), cls.usage_examples()]))

    @classmethod
    def json_instructions(cls, tool: bool = False) -> str:  # noqa: FBT001, FBT002 - the name that users know
        """Return the same text as `format_instructions`, which is not JSON. `tool` has no effect."""
        return cls.format_instructions(tool)

    def format_example(self) -> str:
        """Return the message as XML text, as a model would send it."""
        properties = facts_of(type(self)).schema["properties"]
        every = {"request": self.name()} | arguments_of(self)
        lines = [f"  {_written(name, value, properties.get(name, {}))}" for name, value in every.items()]
        return "\n".join([f"<{self._root}>", *lines, f"</{self._root}>"])

    @classmethod
    def _places(cls, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each message in a text."""
        opening, closing = f"<{cls._root}>", f"</{cls._root}>"
        text = DATA.sub(lambda found: " " * len(found[0]), text)
        start = text.find(opening)
        while start >= 0:
            end, following = text.find(closing, start), text.find(opening, start + 1)
            if end < 0 and following < 0:
                yield start, len(text)
            elif end >= 0:
                yield start, end + len(closing)
                following = text.find(opening, end)
            start = following

    @classmethod
    def _read(cls, text: str) -> dict[str, Any]:
        """Return the fields in the XML of one message, by name. The values are texts or lists of elements."""
        inside = _elements(text)
        found = inside[0][1] if inside and inside[0][0] == cls._root else inside
        return {name: value for name, value in found if not name.startswith("_")} if isinstance(found, list) else {}


def _elements(text: str) -> list[tuple[str, Any]]:
    """Return the elements in a text, each as its name and its content: a text, or a list of such pairs.

    An element without a closing tag ends together with the element around it.
    """
    top: list[tuple[str, Any]] = []
    stack: list[tuple[str, list[tuple[str, Any]]]] = [("", top)]
    at, words = 0, [""]
    for mark in MARK.finditer(text):
        words[-1] += unescape(text[at : mark.start()])
        at = mark.end()
        if mark["data"] is not None:
            words[-1] += mark["data"]
        elif not mark["end"]:
            stack.append((mark["tag"], []))
            words.append("")
        elif mark["tag"] in [name for name, _ in stack[1:]]:
            while _close(stack, words) != mark["tag"]:
                pass
    words[-1] += unescape(text[at:])
    while len(stack) > 1:
        _close(stack, words)
    return top


def _close(stack: list[tuple[str, list[tuple[str, Any]]]], words: list[str]) -> str:
    """End the innermost open element, add it to the element that contains it, and return the ended element's name.

    Args:
        stack: name and inner elements of each open element, outermost first.
        words: text of each open element, in the same order.
    """
    (name, inside), text = stack.pop(), words.pop()
    fenced = FENCE.match(text)
    plain = text.strip("\n") if "\n" in text.strip() else text.strip()  # the first line of code may be indented
    stack[-1][1].append((name, inside or (fenced[1] if fenced else plain)))
    return name


def _typed(value: Any, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    """Return the content of an element (`value`), converted to the type that its JSON Schema names.

    Args:
        defs: the schemas to which `$ref` refers, by name.
    """
    schema = defs.get(str(schema.get("$ref", "")).removeprefix("#/$defs/"), schema)
    forms = [schema, *schema.get("anyOf", ())]
    types = {each.get("type") for each in forms}
    if isinstance(value, list):
        if "array" in types:
            items = next(each.get("items", {}) for each in forms if each.get("type") == "array")
            return [_typed(each, items, defs) for _, each in value]
        inner: Mapping[str, Any] = next((each.get("properties", {}) for each in forms if "properties" in each), {})
        return {name: _typed(each, inner.get(name, {}), defs) for name, each in value}
    if not isinstance(value, str) or "string" in types:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _written(name: str, value: Any, schema: Mapping[str, Any]) -> str:
    """Return a field as an XML element. The text of `code`, or of a field whose schema has `verbatim`, is CDATA."""
    if isinstance(value, list):
        return f"<{name}>{''.join(_written(ITEM, each, {}) for each in value)}</{name}>"
    if isinstance(value, dict):
        return f"<{name}>{''.join(_written(key, each, {}) for key, each in value.items())}</{name}>"
    text = value if isinstance(value, str) else json.dumps(value)
    verbatim = schema.get("verbatim") or name == "code"
    shown = "<![CDATA[" + text.replace("]]>", "]]]]><![CDATA[>") + "]]>" if verbatim else escape(text)
    return f"<{name}>{shown}</{name}>"
