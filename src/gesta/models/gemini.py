"""Encodes messages as the body of a request to Gemini's `generateContent`. Nothing is sent here.

A block is one message in the API's JSON, and the envelope is the body without its blocks. A request header is the
recorded entry that states settings, tools and instructions, not an HTTP header. Consecutive messages of one role become
one content of the body, so results of parallel calls come together. Words after results are a content of their own,
because the API refuses words beside results. A message must give the same bytes in every release of `gemini/1` for the
same model, because prompt caches need equal prefixes. From Gemini 3 on, calls have ids, and the first call of a step
must have a signature: a call that another model made gets a placeholder.

Source: ai.google.dev, "Thought signatures" with its FAQs, "Function calling" (ids; multimodal responses), "File input
methods", and the API reference, read 2026-11; words beside results: vellum-ai/vellum-assistant#39495, 2026-07; ids on
Vertex AI from Gemini 3 on: BerriAI/litellm#34603; JSON beside functions before Gemini 3: googleapis/python-genai#867.
"""

import binascii
import re
from base64 import b64decode, b64encode
from typing import Any, ClassVar
from urllib.parse import quote

from msgspec import Struct

from gesta.function_tool.output import ASKED
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message
from gesta.model.request import Envelope
from gesta.models.chat_completions import NOT_IN_NAMES
from gesta.models.gemini_reply import GeminiParser
from gesta.models.gemini_schema import arguments, held
from gesta.models.jsontext import compact
from gesta.models.parts import note
from gesta.models.settings import ELSEWHERE, SERVER_TOOLS, refuse_own

OWN = ("model", "contents", "systemInstruction", "tools", "stream")
"""Members of the body that Gesta writes itself. Settings with these names are refused."""

CONFIG = "generationConfig"
IN_CONFIG = frozenset(
    {
        *("temperature", "topP", "topK", "seed", "maxOutputTokens", "stopSequences", "candidateCount"),
        *("presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs", "thinkingConfig", "responseFormat"),
        *("responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities", "mediaResolution"),
        *("speechConfig", "imageConfig", "audioTimestamp", "audioTranscriptionConfig", "translationConfig"),
        *("enableEnhancedCivicAnswers", "enableAffectiveDialog", "routingConfig"),
    }
)
"""Settings that are members of `generationConfig`. All other settings are members of the body itself."""

GENERATION = re.compile(r"gemini-(\d{1,3})")
UNSIGNED = "skip_thought_signature_validator"
"""The placeholder that the API accepts as the signature of a call which the model did not make."""

TAKEN = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf", "text/plain")
IN_RESULTS = ("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain")
"""Media types of files that a tool result may hold."""
TEXTS = ("application/json", "application/xml", "application/yaml", "application/javascript")
"""Media types of files that are sent as text, besides those that begin with `text/`."""
DATA_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,(.*)", re.DOTALL)

EMPTY = "(empty)"
"""The text that is sent for a message without any content."""

SEAM = b"]}"
RESULT = b'{"role":"user","parts": ['
"""The beginning of a content with tool results. Its space prevents it from being merged with a content of a user's
words."""
LEAD = b'{"role":"user","parts":[{"text":"(The conversation begins.)"}]}'
TRAIL = b'{"role":"user","parts":[{"text":"(Go on.)"}]}'
"""A user's message to send last, because the API refuses a request that ends with words of the model."""


class GeminiDialect(Struct, frozen=True):
    """The request format of `generateContent`, for one model with its settings."""

    model: str
    """The provider's name for the model, with or without `models/`."""
    settings: dict[str, Any] = {}
    """Members of the body or of its `generationConfig`, and `server_tools`. A request header's settings replace these;
    `None` leaves a member out."""
    stream: bool = True

    encoder: ClassVar[str] = "gemini/1"

    def __post_init__(self) -> None:
        """Raise AgentError if a setting would replace a member of the body that Gesta writes itself."""
        refuse_own(self.model, self.settings, OWN, ELSEWHERE)

    @property
    def path(self) -> str:
        """The part of the URL after the provider's base address, with the model and the method `generateContent`."""
        name = quote(self.model, safe="/@")
        verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        return f"/{name if '/' in name else f'models/{name}'}:{verb}"

    @property
    def recent(self) -> bool:
        """Whether the model is Gemini 3 or later.

        A model whose name has no version is assumed to be Gemini 3 or later.
        """
        found = GENERATION.search(self.model)
        return found is None or int(found[1]) >= 3

    def encode(self, message: Message) -> bytes:
        """Return one message as a block, which is one JSON object.

        A system message becomes a user's message whose text is inside a `<system>` tag.
        """
        if message.role == "tool":
            return RESULT + compact(self._result(message)) + SEAM
        if message.role == "assistant":
            parts = self._signed(self._kept(message) or self._said(message))
        else:
            text = f"<system>\n{message.text}\n</system>" if message.role == "system" else message.text
            parts = [*_text(text), *[_part(part) or _noted(part) for part in message.parts]]
        role = "model" if message.role == "assistant" else "user"
        return compact({"role": role, "parts": parts or _text(EMPTY)})

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the request body without the messages: the settings, tools and instructions from `header`."""
        meta = header.meta or {}
        own = meta.get("settings")
        members, config = _sorted(self.settings, own if isinstance(own, dict) else {})
        listed = members.pop(SERVER_TOOLS, None)
        system = _text(str(meta.get("instructions") or ""))
        declared = [_tool(tool) for tool in header.tools or () if meta.get("tools_in") != "text"]
        tools: list[dict[str, Any]] = [{"functionDeclarations": declared}] if declared else []
        tools += [tool for tool in (listed if isinstance(listed, list) else ()) if isinstance(tool, dict)]
        if header.output is not None:
            system += _hold(header.output, config, native=self.recent or not tools)
        first = {"systemInstruction": {"parts": system} if system else None, "tools": tools or None}
        members = first | members | {CONFIG: _set(config) or None}
        head = compact(_set(members))[:-1]
        head += (b"," if len(head) > 1 else b"") + b'"contents":['
        return Envelope(head, b",", b"]}", seam=SEAM, lead=LEAD, trail=TRAIL)

    def parser(self) -> GeminiParser:
        """Return a new parser, which reads one reply."""
        return GeminiParser()

    def _kept(self, message: Message) -> list[dict[str, Any]]:
        """Return the recorded parts of the reply that a message was made from, or an empty list.

        The parts include signatures and the code that the provider ran. The list is empty if another model sent the
        reply, or if the number of its calls differs.
        """
        native = message.native
        if native is None or native.by != f"{self.encoder} {self.model}" or not isinstance(native.items, list):
            return []
        items = [item for item in native.items if isinstance(item, dict)]
        if sum("functionCall" in item for item in items) != len(message.calls):
            return []
        calls, parts = iter(message.calls), list[dict[str, Any]]()
        for item in items:
            if "functionCall" in item:
                parts.append(item | self._call(next(calls)))
            elif item.get("text") != "" or "thoughtSignature" in item:
                parts.append(item)
        return parts

    def _said(self, message: Message) -> list[dict[str, Any]]:
        """Return the parts of an assistant's message, made from the message's text and calls."""
        notes = [
            block for part in message.parts for block in _text(part.text or "" if part.type == "text" else note(part))
        ]
        return [*_text(message.text), *notes, *[self._call(call) for call in message.calls]]

    def _signed(self, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the parts. If the model demands a signature, a first call without one gets a placeholder."""
        place = next((place for place, part in enumerate(parts) if "functionCall" in part), None)
        if place is not None and self.recent and not parts[place].get("thoughtSignature"):
            parts[place] = parts[place] | {"thoughtSignature": UNSIGNED}
        return parts

    def _call(self, call: Call) -> dict[str, Any]:
        return {"functionCall": self._id(call.id) | {"name": _name(call.name), "args": call.args}}

    def _id(self, id: str | None) -> dict[str, Any]:
        return {"id": id} if id and self.recent else {}

    def _result(self, message: Message) -> dict[str, Any]:
        """Return a tool result in the API's form.

        The result's text has a note for each file that a result cannot hold.
        """
        texts, parts = [message.text] if message.text else [], list[dict[str, Any]]()
        for part in message.parts:
            if part.type == "text":
                texts.append(part.text or "")
            elif self.recent and (made := _part(part, in_result=True)):
                parts.append(made)
            else:
                texts.append(note(part))
        response = {"error" if message.failed else "output": "\n".join(texts)}
        result = self._id(message.call_id) | {"name": _name(message.name or ""), "response": response}
        return {"functionResponse": result | ({"parts": parts} if parts else {})}


def _sorted(*settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings as two dicts: members of the body, and members of `generationConfig`.

    Args:
        settings: dicts of settings; later ones replace earlier ones. Names may be written with underscores.
    """
    members, config = dict[str, Any](), dict[str, Any]()
    for given in settings:
        for name, value in given.items():
            spelled = re.sub("_([a-z])", lambda found: found[1].upper(), name)
            if spelled in IN_CONFIG:
                config[spelled] = value
            elif spelled == CONFIG:
                config = config | value if isinstance(value, dict) else {}
            elif spelled not in OWN:
                members[name] = value
    return members, config


def _set(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _hold(wanted: dict[str, Any], config: dict[str, Any], *, native: bool) -> list[dict[str, Any]]:
    """Ask for an answer that fits a schema: by members of `config`, or in words if Gemini cannot enforce the schema.

    If the user's settings already determine the form of the answer, nothing is done.

    Args:
        wanted: the schema of the answer.
        config: the request's `generationConfig`, which is changed in place.
        native: whether the model can enforce a schema in this request.

    Returns:
        Parts for the system instruction, with the words; an empty list if there are none.
    """
    if not config.keys().isdisjoint({"responseMimeType", "responseSchema", "responseJsonSchema", "responseFormat"}):
        return []
    schema = held(wanted) if native else None
    if schema is None:
        return _text(ASKED + compact(wanted).decode())
    config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
    return []


def _text(text: str) -> list[dict[str, Any]]:
    return [{"text": text}] if text else []


def _name(name: str) -> str:
    """Return the name in a form that the API accepts for a function: it begins with a letter or an underscore."""
    made = NOT_IN_NAMES.sub("_", name)[:64] or "_"
    return made if made[0].isalpha() or made[0] == "_" else f"_{made[:63]}"


def _part(part: Part, *, in_result: bool = False) -> dict[str, Any] | None:
    """Return a file as a part with its bytes or its address; `None` if the provider does not accept it.

    Args:
        in_result: whether the part belongs to a tool result, which may hold fewer types of files.
    """
    media = (part.media_type or "").partition(";")[0].strip().lower()
    given = bytes(part.data) if isinstance(part.data, bytes | bytearray) else b""
    url = part.url or ""
    if not given and (found := DATA_URL.fullmatch(url)):
        media = media or found[1].lower()
        given, url = _decoded(found[2]), ""
    known = media in IN_RESULTS if in_result else media in TAKEN or media.startswith(("audio/", "video/"))
    if given:
        if not known and (media.startswith("text/") or media in TEXTS) and _readable(given):
            media, known = "text/plain", True
        return {"inlineData": {"mimeType": media, "data": b64encode(given).decode()}} if known else None
    if not url.startswith(("https://", "gs://")) or not (known or not (media or in_result)):
        return None
    return {"fileData": {"fileUri": url} | ({"mimeType": media} if media else {})}


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _readable(given: bytes) -> bool:
    try:
        given.decode()
    except UnicodeDecodeError:
        return False
    return True


def _noted(part: Part) -> dict[str, Any]:
    """Return a part of a message as a text part. A note replaces an image or file."""
    return {"text": (part.text or EMPTY) if part.type == "text" else note(part)}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    described = {"description": tool["description"]} if tool.get("description") else {}
    schema = arguments(tool.get("args_schema") or {"type": "object", "properties": {}})
    return {"name": tool.get("name", "")} | described | {"parametersJsonSchema": schema}
