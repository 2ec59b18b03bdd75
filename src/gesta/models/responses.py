"""Encodes messages as the body of a request to OpenAI's Responses API. Nothing is sent here.

A block is one message as JSON bytes, and the envelope is the body without its blocks. A request header is the recorded
entry that states settings, tools and instructions, not an HTTP header. The provider stores nothing unless the setting
`store` is set, so each request holds the whole conversation. A message must give the same bytes in every release of
`responses/1`, because prompt caches need equal beginnings. Lone surrogates become U+FFFD. The model's setting `store`
decides whether ids of items are sent. A request's setting cannot, because messages are encoded before it is known.

Source: OpenAI API reference, "Responses", "Create", and guides "Function calling", "File inputs", "Images and vision",
"Structured outputs", read 2026-11. Encrypted reasoning refused by models without any: NousResearch/hermes-agent#24234,
2026-05-12; parameters that are not plain object: ComposioHQ/composio#1829, 2025-08-06.
"""

import re
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Envelope
from gesta.models.jsontext import ENCODER, compact
from gesta.models.parts import data_url, note
from gesta.models.responses_items import again, call_id, call_item
from gesta.models.responses_reply import ResponsesParser
from gesta.models.settings import ELSEWHERE, SERVER_TOOLS, refuse_own

OWN = ("model", "input", "instructions", "tools", "stream", "previous_response_id", "conversation")
"""Members of the body that Gesta writes itself. Settings with these names are refused."""

UNREASONING = re.compile(r"(^|[/:])(gpt-[34]|chatgpt|computer-use)|-chat\b")
"""Names of models that refuse a request which asks for encrypted reasoning."""

IMAGES = ("image/png", "image/jpeg", "image/webp", "image/gif")
FILES = re.compile(
    r"text/.+|application/(pdf|json|rtf|(.+\+)?xml|(x-)?(yaml|sh|javascript|typescript)|msword"
    r"|vnd\.(ms-(excel|powerpoint)|openxmlformats-officedocument\..+|oasis\.opendocument\.text))"
)
"""Media types of files that the provider accepts."""

REFUSED = ("oneOf", "anyOf", "allOf", "enum", "not")
"""Keywords that the schema of a tool's arguments must not have at its top."""
STRICT = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const"),
        *("$ref", "$defs", "title", "description"),
    }
)
"""Keywords of a schema that every model can enforce."""
FORMS = {"properties": dict, "$defs": dict, "anyOf": list, "required": list}
"""The type that the value of these keywords must have."""


class ResponsesDialect(Struct, frozen=True):
    """The request format of the Responses API, for one model with its settings."""

    model: str
    """The provider's name for the model."""
    settings: dict[str, Any] = {}
    """Members of the body, such as `max_output_tokens`, and `server_tools`. A request header's settings replace these;
    `None` leaves a member out."""
    stream: bool = True

    encoder: ClassVar[str] = "responses/1"
    path: ClassVar[str] = "/responses"
    """The part of the URL after the provider's base address."""

    def __post_init__(self) -> None:
        """Raise AgentError if a setting would replace a member of the body that Gesta writes itself."""
        refuse_own(self.model, self.settings, OWN, ELSEWHERE)

    def encode(self, message: Message) -> bytes:
        """Return one message as a block: one or more items of the API as JSON objects, with commas between them."""
        if message.role == "assistant":
            return b",".join([_written(item) for item in self._said(message)])
        content = _content(message)
        if message.role == "tool":
            output = {"type": "function_call_output", "call_id": call_id(message.call_id), "output": content}
            return _written(output)
        return _written({"role": message.role, "content": content})

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the request body without the messages: the settings, tools and instructions from `header`."""
        meta = header.meta or {}
        members: dict[str, Any] = {"model": self.model}
        if instructions := meta.get("instructions"):
            members["instructions"] = str(instructions)
        tools = [_tool(tool) for tool in header.tools or () if meta.get("tools_in") != "text"]
        members["tools"] = tools
        members["store"] = False
        if UNREASONING.search(self.model) is None:
            members["include"] = ["reasoning.encrypted_content"]
        members |= self.settings
        if isinstance(own := meta.get("settings"), dict):
            members |= {name: value for name, value in own.items() if name not in OWN}
        listed = members.pop(SERVER_TOOLS, None)
        tools += [tool for tool in (listed if isinstance(listed, list) else ()) if isinstance(tool, dict)]
        if header.output is not None:
            text = members.setdefault("text", {})
            if isinstance(text, dict):
                members["text"] = {"format": answer_format(header.output)} | text
        if self.stream:
            members["stream"] = True
        else:
            members.pop("stream_options", None)
        members["tools"] = tools or None
        head = compact({name: value for name, value in members.items() if value is not None})[:-1] + b',"input":['
        return Envelope(head, b",", b"]}")

    def parser(self) -> ResponsesParser:
        """Return a new parser, which reads one reply."""
        return ResponsesParser()

    def _said(self, message: Message) -> list[dict[str, Any]]:
        """Return the items of an assistant's message.

        If this model sent the message and its items were recorded, return the recorded items. Else make items from the
        text and the calls.
        """
        native = message.native
        if native is not None and native.by == f"{self.encoder} {self.model}":
            stored = self.settings.get("store", False) is not False
            sent = again(native.items, message.calls, stored=stored)
            if any(item.get("role") for item in sent) or (sent and not message.text):
                return sent
        text = _words(message)
        said = [{"role": "assistant", "content": text}] if text or not message.calls else []
        return [*said, *[call_item(call) for call in message.calls]]


def _written(item: dict[str, Any]) -> bytes:
    try:
        return ENCODER.encode(item)
    except Exception:  # noqa: BLE001 - a recorded value may be nested too deep or hold lone surrogates
        return compact(item)


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Return the content of a message: its text, or a list of parts if it holds images or files that can be sent."""
    shown = [_shown(part) for part in message.parts]
    if message.role == "system" or not any(shown):
        return _words(message)
    parts = [{"type": "input_text", "text": message.text}] if message.text else []
    for part, made in zip(message.parts, shown, strict=True):
        if made is not None:
            parts.append(made)
        elif text := _text(part):
            parts.append({"type": "input_text", "text": text})
    return parts


def _words(message: Message) -> str:
    """Return the text of a message and of its parts. A short note replaces each part that is not text."""
    if not message.parts:
        return message.text
    texts = [_text(part) for part in message.parts]
    return "\n".join([message.text, *texts] if message.text else texts)


def _text(part: Part) -> str:
    return part.text or "" if part.type == "text" else note(part)


def _shown(part: Part) -> dict[str, Any] | None:
    """Return an image or a file as a part in the API's form; `None` for a text or a type that is not accepted."""
    if part.type == "text":
        return None
    media = (part.media_type or "").partition(";")[0].strip().lower()
    data = bytes(part.data) if isinstance(part.data, bytes | bytearray | memoryview) else b""
    link = part.url if part.url and part.url.startswith(("https://", "http://")) else None
    image = media in IMAGES
    if not (image or (part.type == "file" and FILES.fullmatch(media)) or (not media and link)):
        return None
    inline = data_url(replace(part, data=data, media_type=media)) if data and media else None
    if not (inline or link):
        return None
    if image or part.type == "image":
        return {"type": "input_image", "detail": "auto", "image_url": inline or link}
    if inline is None:
        return {"type": "input_file", "file_url": link}
    name = part.name or ("file.pdf" if media == "application/pdf" else "file")
    return {"type": "input_file", "filename": name, "file_data": inline}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.get("name", ""),
        "description": tool.get("description") or "",
        "parameters": parameters(tool.get("args_schema")),
        "strict": bool(tool.get("strict")),
    }


def parameters(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments as the schema of a plain object. The API accepts no other schema."""
    given = schema if isinstance(schema, dict) else {}
    kept = {name: value for name, value in given.items() if name not in REFUSED}
    properties = kept.get("properties")
    return {**kept, "type": "object", "properties": properties if isinstance(properties, dict) else {}}


def answer_format(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the member `text.format` of a request, which asks for an answer that fits a schema.

    If the API can enforce the schema, `strict` is set.
    """
    closed = closed_schema(schema) if schema.get("type") == "object" and "anyOf" not in schema else None
    head = {"type": "json_schema", "name": "answer"}
    return {**head, "schema": schema if closed is None else closed, "strict": closed is not None}


def closed_schema(schema: Any) -> dict[str, Any] | None:
    """Return the schema with unknown members forbidden in every object, as strict answers require.

    Return `None` if this would change the schema's meaning, or if strict answers do not support the schema.

    A strict answer must hold every property of an object. So a schema with an optional property cannot be strict.
    """
    if not isinstance(schema, dict) or not STRICT.issuperset(schema) or ("$ref" in schema and len(schema) > 1):
        return None
    if not {"type", "$ref", "anyOf", "enum", "const"}.intersection(schema):
        return None  # this schema allows any value
    if not all(isinstance(schema[name], form) for name, form in FORMS.items() if name in schema):
        return None
    closed = dict(schema)
    for name in ("properties", "$defs"):
        if name in schema:
            inner = {key: closed_schema(each) for key, each in schema[name].items()}
            closed[name] = None if None in inner.values() else inner
    if "anyOf" in schema:
        forms = [closed_schema(each) for each in schema["anyOf"]]
        closed["anyOf"] = None if None in forms or not forms else forms
    if "items" in schema:
        closed["items"] = closed_schema(schema["items"])
    types = schema.get("type")
    if types == "object" or (isinstance(types, list) and "object" in types):
        must = sorted(schema.get("required", ()), key=repr) == sorted(schema.get("properties", ()), key=repr)
        closed["additionalProperties"] = False if must and not schema.get("additionalProperties", False) else None
    return None if None in closed.values() else closed
