"""Encodes messages as the body of a request to the Anthropic Messages API. Nothing is sent here.

A block is one message in the provider's JSON, and the envelope is the body without its blocks. A request header is the
recorded entry that states settings, tools and instructions, not an HTTP header. Consecutive messages of one role are
merged. A message must give the same bytes in every release of `anthropic-messages/1`: a changed prefix would invalidate
the provider's cache and the signatures of thinking. Content that the provider refuses, such as a blank text, is left
out or replaced. Two cache marks are set: after the part that never changes, and at the end. The setting `cache_control:
None` removes them.

Source: platform.claude.com, "Messages", "Prompt caching" and "Structured outputs" (both generally available), "Handle
tool calls", "Server tools", "Preserved thinking", "Models overview"; anthropic-sdk-python 2.11; read 2026-11.
"""

import hashlib
import re
from base64 import b64encode
from typing import Any, ClassVar

from msgspec import Struct

from gesta.function_tool.output import ASKED
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message
from gesta.model.request import Envelope
from gesta.models.anthropic_reply import AnthropicParser
from gesta.models.anthropic_schema import arguments, held
from gesta.models.chat_completions import NOT_IN_NAMES
from gesta.models.jsontext import compact
from gesta.models.parts import note
from gesta.models.settings import ELSEWHERE, SERVER_TOOLS, refuse_own

OWN = ("model", "system", "messages", "tools", "stream")
"""Members of the body that Gesta writes itself. Settings with these names are refused."""


MAX_TOKENS = 32_000
"""The default of `max_tokens`, which the provider requires. All models since Claude 4 accept this value."""

CACHE: dict[str, Any] = {"type": "ephemeral"}

ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
TEXTS = ("application/json", "application/xml", "application/yaml")
"""Media types of files that are sent as text, besides those that begin with `text/`."""

EMPTY = "(empty)"
"""The text that is sent for a message without any content, because the provider refuses an empty message."""

SEAM = b"]}"
LEAD = b'{"role":"user","content":[{"type":"text","text":"(The conversation begins.)"}]}'
TRAIL = b'{"role":"user","content":[{"type":"text","text":"(Go on.)"}]}'
"""A user's message to send last: models since Claude 4.6 refuse a request that ends with a message of their own."""

THOUGHTS = ("thinking", "redacted_thinking")


class AnthropicDialect(Struct, frozen=True):
    """The request format of the Messages API, for one model with its settings."""

    model: str
    """The provider's name for the model."""
    settings: dict[str, Any] = {}
    """Members of the body, such as `temperature`, and `server_tools`. A request header's settings replace these; `None`
    leaves a member out."""
    stream: bool = True

    encoder: ClassVar[str] = "anthropic-messages/1"
    path: ClassVar[str] = "/v1/messages"
    """The part of the URL after the provider's base address."""

    def __post_init__(self) -> None:
        """Raise AgentError if a setting would replace a member of the body that Gesta writes itself."""
        refuse_own(self.model, self.settings, OWN, ELSEWHERE)

    def encode(self, message: Message) -> bytes:
        """Return one message as a block, which is one JSON object.

        A system message becomes a user's message whose text is inside a `<system>` tag.
        """
        if message.role == "assistant":
            content = self._kept(message) or _said(message)
        elif message.role == "tool":
            content = [_result(message)]
        else:
            text = f"<system>\n{message.text}\n</system>" if message.role == "system" else message.text
            content = [*_text(text), *[block for part in message.parts for block in _part(part)]]
        role = "assistant" if message.role == "assistant" else "user"
        return compact({"role": role, "content": content or _text(EMPTY)})

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the request body without the messages: the settings, tools and instructions from `header`."""
        meta = header.meta or {}
        settings = self.settings
        if isinstance(own := meta.get("settings"), dict):
            settings = settings | {name: value for name, value in own.items() if name not in OWN}
        members = {"cache_control": CACHE} | settings
        listed = members.pop(SERVER_TOOLS, None)
        system = _text(str(meta.get("instructions") or ""))
        if header.output is not None:
            system += _hold(header.output, members)
        tools = [_tool(tool) for tool in header.tools or () if meta.get("tools_in") != "text"]
        if (mark := members["cache_control"]) is not None and (stable := system or tools):
            stable[-1] = stable[-1] | {"cache_control": mark}
        tools += [tool for tool in (listed if isinstance(listed, list) else ()) if isinstance(tool, dict)]
        first: dict[str, Any] = {"model": self.model, "max_tokens": MAX_TOKENS}
        members = first | {"system": system or None, "tools": tools or None} | members
        if self.stream:
            members["stream"] = True
        head = compact({name: value for name, value in members.items() if value is not None})
        return Envelope(head[:-1] + b',"messages":[', b",", b"]}", seam=SEAM, lead=LEAD, trail=TRAIL)

    def parser(self) -> AnthropicParser:
        """Return a new parser, which reads one reply."""
        return AnthropicParser()

    def _kept(self, message: Message) -> list[dict[str, Any]]:
        """Return the recorded content blocks of the reply that a message was made from, or an empty list.

        The blocks include thinking and the results of server tools. The list is empty if another model sent the reply,
        or if the blocks do not hold exactly as many calls as the message.
        """
        native = message.native
        if native is None or native.by != f"{self.encoder} {self.model}" or not isinstance(native.items, list):
            return []
        given = [item for item in native.items if isinstance(item, dict)]
        items = [(kind, item) for item in given if isinstance(kind := item.get("type"), str)]
        if sum(kind == "tool_use" for kind, _ in items) != len(message.calls):
            return []
        used = {_id_of(item) for kind, item in items if kind.endswith("_tool_use")}
        paired = used & {_id_of(item) for kind, item in items if kind.endswith("_tool_result")} - {""}
        calls, content = iter(message.calls), list[dict[str, Any]]()
        for kind, item in items:
            if kind == "text":
                content += _text(str(item.get("text") or ""))
            elif kind == "tool_use":
                caller = {"caller": item["caller"]} if _id_of(item.get("caller")) in paired else {}
                content.append(_use(next(calls)) | caller)
            elif not kind.endswith(("_tool_use", "_tool_result")) or _id_of(item) in paired:
                content.append(item)
        return _ended(content)


def _hold(wanted: dict[str, Any], members: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask for an answer that fits a schema: in the body, or in words if Claude cannot enforce the schema.

    If the user's settings already determine the form of the answer, nothing is done.

    Args:
        wanted: the schema of the answer.
        members: the members of the body, which are changed.

    Returns:
        Blocks for the system prompt, with the words; an empty list if there are none.
    """
    config = members.get("output_config", {})
    if "output_format" in members or not isinstance(config, dict) or "format" in config:
        return []
    if (schema := held(wanted)) is None:
        return _text(ASKED + compact(wanted).decode())
    members["output_config"] = config | {"format": {"type": "json_schema", "schema": schema}}
    return []


def _text(text: str) -> list[dict[str, Any]]:
    """Return a text as a list of one content block, or an empty list for a blank text, which the provider refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _id_of(item: Any) -> str:
    """Return the id of the provider's tool call to which a content block belongs; `""` if there is no such call."""
    found = [item.get(name) for name in ("tool_use_id", "tool_id", "id")] if isinstance(item, dict) else []
    return next((id for id in found if isinstance(id, str)), "")


def _ended(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the content without thinking and white space at its end.

    The provider refuses messages that end with these.
    """
    while content and content[-1].get("type") in THOUGHTS:
        content.pop()
    if content and content[-1].get("type") == "text":
        content[-1] = content[-1] | {"text": content[-1]["text"].rstrip()}
    return content


def _said(message: Message) -> list[dict[str, Any]]:
    """Return the content blocks of an assistant's message, made from the message's text and calls."""
    words = [part.text or "" if part.type == "text" else note(part) for part in message.parts]
    texts = [block for word in (message.text, *words) for block in _text(word)]
    return _ended([*texts, *[_use(call) for call in message.calls]])


def _use(call: Call) -> dict[str, Any]:
    name = NOT_IN_NAMES.sub("_", call.name)[:64] or "_"
    return {"type": "tool_use", "id": _id(call.id), "name": name, "input": call.args}


def _result(message: Message) -> dict[str, Any]:
    """Return a tool result in the provider's form.

    The provider accepts an empty result, but an error must have a text.
    """
    text = _text(message.text)
    if message.failed:
        words = [part.text or "" if part.type == "text" else note(part) for part in message.parts]
        parts = [block for word in words for block in _text(word)]
    else:
        parts = [block for part in message.parts for block in _part(part)]
    content: Any = [*text, *parts]
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(message.call_id or "")}
    if not parts:
        content = message.text if text else EMPTY if message.failed else None
    if content is not None:
        result["content"] = content
    return result | {"is_error": True} if message.failed else result


def _part(part: Part) -> list[dict[str, Any]]:
    """Return a part of a user's message or a tool result as content blocks.

    A note replaces a part that cannot be sent.
    """
    if part.type == "text":
        return _text(part.text or "")
    media = (part.media_type or "").partition(";")[0].strip().lower()
    given = bytes(part.data) if isinstance(part.data, bytes | bytearray) else b""
    source: dict[str, Any] = {"type": "base64", "media_type": media, "data": b64encode(given).decode()}
    if not given:
        source = {"type": "url", "url": part.url}
        if not (part.url or "").startswith("https://"):
            return _text(note(part))
        media = media or ("image/png" if part.type == "image" else "application/pdf")
    if media in IMAGES:
        return [{"type": "image", "source": source}]
    if media != "application/pdf":
        if (text := _read(given, media)) is None:
            return _text(note(part))
        source = {"type": "text", "media_type": "text/plain", "data": text}
    document = {"type": "document", "source": source}
    return [document | {"title": part.name[:200]} if part.name and part.name.strip() else document]


def _read(given: bytes, media: str) -> str | None:
    """Return the text of a file; `None` if the file is not text, or is blank.

    Args:
        given: the bytes of the file.
        media: its media type.
    """
    if not media.startswith("text/") and media not in TEXTS:
        return None
    try:
        text = given.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text if text.strip() else None


def _id(id: str) -> str:
    """Return an id unchanged if the provider accepts it, or an id made from its hash.

    The provider accepts 1 to 64 characters: ASCII letters, digits, `_` and `-`.
    """
    return id if ID.fullmatch(id) else f"call_{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    described = {"description": tool["description"]} if tool.get("description") else {}
    schema = arguments(tool.get("args_schema") or {"type": "object", "properties": {}})
    strict = {"strict": True} if tool.get("strict") else {}
    return {"name": tool.get("name", "")} | described | {"input_schema": schema} | strict
