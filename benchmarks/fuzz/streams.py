"""Replies of models, whole and as streams: damaged, cut into random pieces, and read by every dialect."""

import json
from random import Random
from typing import Any

from benchmarks.fuzz.commands import Wrong
from benchmarks.fuzz.mutating import cut, spoilt, twisted
from gesta.errors import ModelFault
from gesta.models.anthropic_reply import AnthropicParser
from gesta.models.chat_completions import ChatParser
from gesta.models.gemini_reply import GeminiParser
from gesta.models.responses_reply import ResponsesParser

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
ARGS = '{"what": "one"}'


def _chat(**delta: Any) -> dict[str, Any]:
    return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _fn(index: int, **more: Any) -> dict[str, Any]:
    return {"index": index, "type": "function", **more}


CHAT: list[Any] = [
    _chat(role="assistant", content="Hello, "),
    _chat(content="you", reasoning_content="Greet."),
    _chat(tool_calls=[_fn(0, id="c1", function={"name": "look", "arguments": ""})]),
    _chat(tool_calls=[_fn(0, function={"arguments": ARGS[:5]}), _fn(1, id="c2", function={"name": "b"})]),
    _chat(tool_calls=[_fn(0, function={"arguments": ARGS[5:]})]),
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": USAGE},
]
CHAT_WHOLE = {
    "model": "m",
    "choices": [
        {
            "message": {
                "content": "Hello",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": ARGS}}],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": USAGE,
}
ANTHROPIC: list[Any] = [
    {"type": "message_start", "message": {"model": "m", "role": "assistant", "usage": {"input_tokens": 9}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Greet."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "abc"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "c", "name": "look"}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ARGS}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]
ANTHROPIC_WHOLE = {
    "type": "message",
    "model": "m",
    "content": [
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "c", "name": "look", "input": {"what": "one"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 9, "output_tokens": 3},
}
GEMINI_WHOLE = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Greet.", "thought": True},
                    {"text": "Hello"},
                    {"functionCall": {"name": "look", "args": {"what": "one"}}, "thoughtSignature": "abc"},
                ],
            },
            "finishReason": "STOP",
        }
    ],
    "modelVersion": "m",
    "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12},
}
GEMINI: list[Any] = [
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello, "}]}}], "modelVersion": "m"},
    GEMINI_WHOLE,
]
MESSAGE = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
FUNCTION = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "look", "arguments": ARGS}
REASONING = {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Greet."}]}
RESPONSES_WHOLE = {
    "id": "resp",
    "object": "response",
    "model": "m",
    "status": "completed",
    "output": [REASONING, MESSAGE, FUNCTION],
    "usage": {"input_tokens": 9, "output_tokens": 3},
}
RESPONSES: list[Any] = [
    {"type": "response.created", "response": {"id": "resp", "model": "m", "output": [], "status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hello"},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
    {"type": "response.output_item.added", "output_index": 1, "item": {**FUNCTION, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ARGS},
    {"type": "response.output_item.done", "output_index": 1, "item": FUNCTION},
    {"type": "response.completed", "response": RESPONSES_WHOLE},
]
ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy.", "code": 529}}
DIALECTS: dict[str, tuple[Any, list[Any], Any]] = {
    "chat": (ChatParser, CHAT, CHAT_WHOLE),
    "anthropic": (AnthropicParser, ANTHROPIC, ANTHROPIC_WHOLE),
    "gemini": (GeminiParser, GEMINI, GEMINI_WHOLE),
    "responses": (ResponsesParser, RESPONSES, RESPONSES_WHOLE),
}


def sent(lot: Random, events: list[Any], whole: Any) -> bytes:
    """Return a reply as a server sends it, with some damage."""
    way = lot.random()
    if way < 0.25:
        data = json.dumps(twisted(lot, whole) if lot.random() < 0.7 else whole).encode("utf-8", "replace")
    else:
        many = list(events)
        for _ in range(lot.choice((0, 1, 1, 2))):
            place = lot.randrange(len(many))
            many[place] = twisted(lot, many[place])
        if lot.random() < 0.1:
            many.insert(lot.randrange(len(many) + 1), lot.choice((ERROR, {}, [], None, "x", 7)))
        if lot.random() < 0.1:
            lot.shuffle(many)
        end = lot.choice((b"\n\n", b"\n\n", b"\r\n\r\n", b"\n", b"\r\r"))
        lines = [_line(lot, event) + end for event in many]
        data = b"".join(lines) + lot.choice((b"", b"data: [DONE]" + end))
    return spoilt(lot, data) if lot.random() < 0.5 else data


def _line(lot: Random, event: Any) -> bytes:
    data = json.dumps(event, ensure_ascii=lot.random() < 0.5).encode("utf-8", "surrogatepass")
    name = event.get("type") if isinstance(event, dict) else None
    before = b"event: %b\n" % name.encode("utf-8", "replace") if isinstance(name, str) and lot.random() < 0.5 else b""
    return before + b"data: " + data


def parsed(parser: Any, pieces: list[bytes]) -> tuple[str, Any]:
    """Return how a parser reads a reply, fed as `perform` does it: until the parser says that the reply is complete."""
    try:
        for piece in pieces:
            parser.feed(piece)
            if parser.over:
                break
        return "reply", parser.close()
    except ModelFault as fault:
        return f"fault {fault.type}", str(fault)


def cut_anywhere(lot: Random, _samples: Any) -> str:
    """Read a reply whole and in pieces. Both must have the same result."""
    parser, events, whole = DIALECTS[lot.choice(list(DIALECTS))]
    data = sent(lot, events, whole)
    once = parsed(parser(), [data])
    for pieces in (cut(lot, data), [data[place : place + 1] for place in range(len(data))] if len(data) < 4000 else []):
        if pieces and (again := parsed(parser(), pieces)) != once and repr(again) != repr(once):
            raise Wrong(f"cut otherwise, {data[:300]!r} gives\n  {again!r}\nnot\n  {once!r}")
    return once[0]
