"""Every dialect with what its provider takes, and a provider of each that answers in its own wire form.

What is judged is a body as it is sent. What a model says is said once and written as each provider would send it: whole
and as the events of a stream, with its reasoning in the form in which the provider wants it back.
"""

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from tests.validators import anthropic_messages, chat_completions, gemini, responses

from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Envelope, Parser, ReplyCall, Request
from gesta.models.hosted import dialect
from gesta.models.http import Dialect
from gesta.models.jsontext import exact
from gesta.models.providers import PROVIDERS

Object = dict[str, Any]
SIGNATURE = "c2lnbmVk"


class Said(Struct, frozen=True, kw_only=True):
    """What a model says in one reply."""

    text: str = ""
    thought: str | None = None
    calls: tuple[ReplyCall, ...] = ()
    lost: bool = False
    """Whether the stream is lost half-way when it is said for the first time."""


class Wire(NamedTuple):
    """A reply as a provider sends it."""

    whole: bytes
    events: list[bytes]


class Spoken(NamedTuple):
    """How one model is spoken to, how its provider answers, and what it takes."""

    provider: str
    dialect: Dialect
    wire: Callable[[Said, int], Wire]
    """What is sent for the reply of this number, which its ids hold."""
    judge: Callable[[bytes], list[str]]
    """What is wrong with a body."""

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.dialect.model}"

    @property
    def speaks(self) -> str:
        return self.dialect.encoder.partition("/")[0]


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def plain_event(event: Object) -> bytes:
    return b"data: " + exact(event) + b"\n\n"


def typed_event(type: str, **members: Any) -> bytes:
    return b"event: " + type.encode() + b"\n" + plain_event({"type": type, **members})


def identified(call: ReplyCall, key: str = "id") -> Object:
    return {} if call.id is None else {key: call.id}


def arguments(call: ReplyCall) -> Any:
    """The arguments as a provider has them that reads them itself: an object, or else what they were."""
    try:
        found = json.loads(call.args)
    except (ValueError, RecursionError):
        return call.args
    return found if isinstance(found, dict) else call.args


def chat(said: Said, number: int = 0) -> Wire:
    """Chat Completions, with all that any server wants back."""
    calls: list[Object] = [
        {
            **identified(call),
            "type": "function",
            "function": {"name": call.name, "arguments": call.args},
            "extra_content": {"google": {"thought_signature": SIGNATURE}},
        }
        for call in said.calls
    ]
    thought: Object = {}
    if said.thought is not None:
        detail = {"type": "reasoning.text", "text": said.thought, "signature": SIGNATURE, "index": 0}
        thought = {"reasoning_content": said.thought, "reasoning_details": [detail]}
    message = {"role": "assistant", "content": said.text, **thought} | ({"tool_calls": calls} if calls else {})
    deltas = [{key: value} for key, value in thought.items()] + [{"content": half} for half in halves(said.text)]
    for index, call in enumerate(calls):
        first, second = halves(call["function"]["arguments"])
        begun = call | {"index": index, "function": call["function"] | {"arguments": first}}
        deltas += [{"tool_calls": [begun]}, {"tool_calls": [{"index": index, "function": {"arguments": second}}]}]
    end = {"finish_reason": "tool_calls" if calls else "stop"}
    chunks = [{"index": 0, "delta": delta} for delta in deltas] + [{"index": 0, "delta": {}, **end}]
    events = [plain_event({"model": "m-1", "choices": [chunk]}) for chunk in chunks]
    whole = exact({"model": "m-1", "choices": [{"index": 0, "message": message, **end}]})
    return Wire(whole, [*events, b"data: [DONE]\n\n"])


def anthropic(said: Said, number: int = 0) -> Wire:
    """Anthropic Messages: a reply with signed thinking, or with a search that the provider did."""
    blocks: list[Object] = [
        {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": []},
    ]
    if said.thought is not None:
        blocks = [{"type": "thinking", "thinking": said.thought, "signature": SIGNATURE}]
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    for call in said.calls:
        blocks.append({"type": "tool_use", **identified(call), "name": call.name, "input": arguments(call)})
    message, end = {"type": "message", "model": "m-1"}, {"stop_reason": "tool_use" if said.calls else "end_turn"}
    events = [typed_event("message_start", message=message | {"content": []})]
    empty = {"text": "", "thinking": "", "signature": "", "input": {}}
    for index, block in enumerate(blocks):
        told = {key: value for key, value in block.items() if key in empty}
        begun = block | {key: empty[key] for key in told}
        events.append(typed_event("content_block_start", index=index, content_block=begun))
        for key, value in told.items():
            kind, member = ("input_json_delta", "partial_json") if key == "input" else (f"{key}_delta", key)
            pieces = halves(value if isinstance(value, str) else exact(value).decode())
            deltas = [{"type": kind, member: piece} for piece in pieces]
            events += [typed_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(typed_event("content_block_stop", index=index))
    events += [typed_event("message_delta", delta=end), typed_event("message_stop")]
    return Wire(exact(message | {"content": blocks} | end), events)


def responded(said: Said, number: int = 0) -> Wire:
    """Responses; reasoning is encrypted."""
    items: list[Object] = []
    if said.thought is not None:
        summary = [{"type": "summary_text", "text": said.thought}]
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": SIGNATURE})
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        items.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content})
    for at, call in enumerate(said.calls):
        named = {**identified(call, "call_id"), "name": call.name}
        items.append({"type": "function_call", "id": f"fc_{number}_{at}", **named, "arguments": call.args})
    body = {"object": "response", "model": "m-1", "status": "completed", "output": items}
    events = [typed_event("response.created", response=body | {"status": "in_progress", "output": []})]
    for index, item in enumerate(items):
        kind, text = {
            "reasoning": ("reasoning_summary_text", said.thought or ""),
            "message": ("output_text", said.text),
            "function_call": ("function_call_arguments", item.get("arguments", "")),
        }[item["type"]]
        place = {"output_index": index, "item_id": item["id"]}
        begun = {key: value for key, value in item.items() if key not in ("content", "summary", "arguments")}
        events.append(typed_event("response.output_item.added", output_index=index, item=begun))
        events += [typed_event(f"response.{kind}.delta", **place, delta=half) for half in halves(text)]
        events.append(typed_event("response.output_item.done", output_index=index, item=item))
    return Wire(exact(body), [*events, typed_event("response.completed", response=body)])


def generated(said: Said, number: int = 0) -> Wire:
    """Gemini: where it thought, it signs its calls, or else the end."""
    signed: Object = {} if said.thought is None else {"thoughtSignature": SIGNATURE}
    parts: list[Object] = [{"text": said.thought, "thought": True}] if said.thought else []
    parts += [{"text": said.text}] if said.text else []
    for call in said.calls:
        parts.append({"functionCall": {**identified(call), "name": call.name, "args": arguments(call)}, **signed})
    if signed and not said.calls:
        parts.append({"text": "", **signed})
    pieces = [
        part | half
        for part in parts
        for half in ([{"text": text} for text in halves(part["text"])] if part.get("text") else [{}])
    ]
    chunks = [{"content": {"role": "model", "parts": [piece]}} for piece in pieces] + [{"finishReason": "STOP"}]
    events = [plain_event({"modelVersion": "m-1", "candidates": [chunk]}) for chunk in chunks]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return Wire(exact({"modelVersion": "m-1", "candidates": [candidate]}), events)


def decoded(judge: Callable[[Any], list[str]], body: bytes) -> list[str]:
    """Judge bytes by rules for what they mean; a name that stands twice in an object is wrong everywhere."""
    try:
        request = chat_completions.parse(body.decode())
    except (ValueError, RecursionError) as error:
        return [f"$: not valid JSON in UTF-8 ({error})"]
    return judge(request)


def spoken(address: str, **settings: Any) -> Spoken:
    """The model of an address, with what its provider takes."""
    provider, _, model = address.partition(":")
    made = dialect(PROVIDERS[provider], model, settings)
    match made.encoder.partition("/")[0]:
        case "anthropic-messages":
            return Spoken(provider, made, anthropic, partial(decoded, anthropic_messages.violations))
        case "responses":
            return Spoken(provider, made, responded, partial(decoded, responses.violations))
        case "gemini":
            return Spoken(provider, made, generated, partial(decoded, partial(gemini.violations, model=model)))
    return Spoken(provider, made, chat, chat_completions.violations)


STRICT = [
    spoken(address)
    for address in (
        "openai:gpt-5-mini",
        "anthropic:claude-opus-5",
        "openai-responses:gpt-5",
        "google:gemini-3-pro-preview",
    )
]
"""Of each dialect, a model whose provider takes the least."""
MODELS = [
    *STRICT,
    *map(spoken, ("deepseek:deepseek-reasoner", "openrouter:z-ai/glm-5", "gemini:gemini-3-pro-preview")),
    *map(spoken, ("anthropic:claude-sonnet-4-5", "openai-responses:gpt-4.1", "google:gemini-2.5-flash")),
    spoken("openai-responses:gpt-5-mini", store=True),
]


class Sent(NamedTuple):
    """One request, as it was when it was sent."""

    digest: str
    header: RequestHeaderContent
    head: bytes
    blocks: list[bytes]


class Host:
    """A model at its provider: it says what it was given, in its wire form, and judges all that it is sent."""

    def __init__(self, of: Spoken, said: Sequence[Said], *, sizes: Sequence[int] = (64,), stream: bool = True) -> None:
        self.name, self.encoder = of.name, of.dialect.encoder
        self._of, self._said, self._sizes, self._stream = of, said, sizes, stream
        self._dialect: Any = replace(of.dialect, stream=stream)  # type: ignore[type-var]  # all are structs
        self.encoded: list[Message] = []
        self.sent: list[Sent] = []
        self.wrong: list[str] = []

    def encode(self, message: Message) -> bytes:
        """Count it, and hold it to what a formatter promises."""
        self.encoded.append(message)
        self.wrong += [
            f"arguments of {call.id} are not an object" for call in message.calls if type(call.args) is not dict
        ]
        made: bytes = self._dialect.encode(message)
        return made

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        made: Envelope = self._dialect.envelope(header)
        return made

    def parser(self) -> Parser:
        made: Parser = self._dialect.parser()
        return made

    async def send(self, request: Request) -> AsyncGenerator[bytes, None]:
        body = request.body()
        self.wrong += [f"{self.name}: {each}" for each in self._of.judge(body)]
        digest = hashlib.sha256(body).hexdigest()
        if digest != request.digest:
            self.wrong.append("the digest is not that of the body")
        self.sent.append(Sent(digest, request.header, request.envelope.head, list(request.blocks)))
        said = self._said[min(request.answered, len(self._said) - 1)]
        wire = self._of.wire(said, request.answered)
        data = b"".join(wire.events) if self._stream else wire.whole
        if said.lost and request.number == 1:
            data = data[: len(data) // 2]
        for piece in cut(data, self._sizes):
            yield piece


def cut(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Cut bytes into pieces of these sizes, again and again."""
    at, lengths = 0, cycle(sizes)
    while at < len(data):
        size = next(lengths)
        yield data[at : at + size]
        at += size
