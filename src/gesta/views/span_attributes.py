"""Computes the attributes of trace spans by the GenAI semantic conventions 1.41.0 of OpenTelemetry.

A session is the runs of one conversation. A completion is the entry with a model's reply. A header is the entry with
the model, instructions and tools of requests. Each function returns the attributes that one entry adds to a span.
Source: "GenAI client spans", "GenAI agent spans" and the attribute registry, semantic conventions 1.41.0, read 2026-11.
Where these pages differ, the names of the 1.41.0 release are used, because backends read them.
`openinference.span.kind` tells Phoenix what a span is if the conventions have no operation for it.
"""

import re
import zlib
from base64 import b64decode
from typing import Any

import msgspec
from msgspec import Struct

from gesta import kinds
from gesta.kinds import BeginContent, EndContent, RequestHeaderContent
from gesta.model.usage import MOST_TOKENS, tokens
from gesta.views.span_messages import heading
from gesta.views.spans import SHORT, AttributeValue, as_json, shown

Attributes = dict[str, AttributeValue]
PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "moonshot": "moonshot_ai",
}
"""Names of providers in the conventions that differ from Gesta's names, by Gesta's name."""
KEYLESS = "gesta"
"""Provider name for the models that need no key: scripted, function and replay."""
SETTINGS = {
    "temperature": float,
    "top_p": float,
    "top_k": float,
    "frequency_penalty": float,
    "presence_penalty": float,
    "seed": int,
}
"""Settings that the conventions have a name for, and their types."""
ROLES = {"plan": "plan", "task": "invoke_workflow"}
"""Operation of a span that a program opened, by the role of the span."""
FIRST_ID = re.compile(rb'"(?:id|responseId)"\s*:\s*"([^"\\]{1,100})"')
"""Finds the provider's id of a reply in the bytes of a stream."""


class Asked(Struct, frozen=True):
    """The name of a request's span, and the span's attributes."""

    name: str
    attributes: Attributes


def spoken_as(content: BeginContent) -> str:
    """Return the name of the trace span for a `begin` entry."""
    if content.role == "turn":
        return f"invoke_agent {content.agent.name if content.agent is not None else content.name}"
    role = content.role or ""
    return content.name if content.name.startswith(role) else f"{role} {content.name}"


def began_of(content: BeginContent, session: str) -> Attributes:
    """Return the attributes that a `begin` entry adds to its span."""
    found: Attributes = {"gen_ai.conversation.id": shown(session, 200), "session.id": shown(session, 200)}
    if content.role == "turn":
        found |= {"gen_ai.operation.name": "invoke_agent", "openinference.span.kind": "AGENT"}
        found["gen_ai.agent.name"] = shown(content.agent.name if content.agent is not None else content.name, 120)
        if content.agent is not None:
            found["gesta.agent.digest"] = content.agent.digest
        return found
    found["openinference.span.kind"] = "CHAIN"
    if content.role is not None:
        found["gesta.role"] = shown(content.role, 120)
    if content.role in ROLES:
        found["gen_ai.operation.name"] = ROLES[content.role]
    return found


def ended_of(begin: BeginContent, content: EndContent) -> Attributes:
    """Return the attributes that an `end` entry adds to its span, such as the reason and the type of the error."""
    found: Attributes = {}
    if begin.role == "turn":
        found["gesta.reason"] = content.reason or ("answered" if content.status == "success" else "failed")
    if content.doubts:
        found["gesta.doubts"] = [shown(each, 120) for each in content.doubts[:50]]
    if content.status == "error" and content.reason != "cancelled":
        found["error.type"] = shown(content.error.type if content.error is not None else content.reason or "error", 120)
    return found


def asked_of(header: RequestHeaderContent | None, session: str, *, content: bool, model: str | None = None) -> Asked:
    """Return the name and the attributes of the span of a request.

    Args:
        header: the header of the request; `None` if it is not on record.
        session: name of the session.
        content: whether the span includes the texts of the instructions and the tools.
        model: name of the model, if there is no header.
    """
    named = str(header.model or "") if header is not None else model or ""
    provider, separator, short = named.partition(":")
    if not separator:
        provider, short = KEYLESS if header is not None else "unknown", named
    short = shown(short, 200)
    found: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": shown(PROVIDERS.get(provider, provider) or "unknown", 120),
        "gen_ai.conversation.id": shown(session, 200),
        "session.id": shown(session, 200),
        "openinference.span.kind": "LLM",
    }
    if short:
        found["gen_ai.request.model"] = short
    if header is not None:
        settings = (header.meta or {}).get("settings")
        found |= _settings(settings if isinstance(settings, dict) else {})
        if header.output is not None:
            found["gen_ai.output.type"] = "json"
        if content:
            found |= heading(header)
    return Asked(f"chat {short}", found)


def _settings(settings: dict[str, Any]) -> Attributes:
    found: Attributes = {}
    for name, type_ in SETTINGS.items():
        value = settings.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[f"gen_ai.request.{name}"] = type_(value)
    most = next((settings[name] for name in MOST_TOKENS if type(settings.get(name)) is int), None)
    if most is not None:
        found["gen_ai.request.max_tokens"] = most
    stop = settings.get("stop") or settings.get("stop_sequences")
    if stop:
        found["gen_ai.request.stop_sequences"] = [
            shown(str(each), 120) for each in ([stop] if isinstance(stop, str) else stop)
        ]
    return found


def replied_of(content: kinds.ChatCompletionContent) -> dict[str, Any]:
    """Return the attributes that a completion adds to its span: model, finish reason, token counts and reply id."""
    found: dict[str, Any] = {}
    if content.model:
        found["gen_ai.response.model"] = shown(content.model, 200)
    if content.finish_reason:
        found["gen_ai.response.finish_reasons"] = [shown(content.finish_reason, 120)]
    used = tokens(content.usage)
    if used is not None:
        counts = {
            "gen_ai.usage.input_tokens": used.input,
            "gen_ai.usage.output_tokens": used.output,
            "gen_ai.usage.cache_read.input_tokens": used.cache_read,
            "gen_ai.usage.cache_creation.input_tokens": used.cache_write,
            "gen_ai.usage.reasoning.output_tokens": used.reasoning,
        }
        found |= {name: count for name, count in counts.items() if count is not None}
    id_ = _response_id(content.meta or {})
    return found | ({"gen_ai.response.id": id_} if id_ else {})


class _Named(Struct):
    id: str | None = None
    response_id: str | None = msgspec.field(name="responseId", default=None)


def _response_id(meta: dict[str, Any]) -> str | None:
    """Return the provider's id of a reply, read from the bytes in `meta`; `None` if it is not found. Never raises."""
    try:
        raw = meta.get("raw")
        if raw is None and isinstance(packed := meta.get("raw_zlib"), str | bytes):
            raw = zlib.decompressobj().decompress(b64decode(packed) if isinstance(packed, str) else packed, 2**22)
        data = raw.encode() if isinstance(raw, str) else raw
        if not isinstance(data, bytes):
            return None
        if data.lstrip()[:1] == b"{":
            named = msgspec.json.decode(data, type=_Named)
            return shown(named.id or named.response_id or "", 120) or None
        found = FIRST_ID.search(data[:8192])
        return shown(found[1].decode(), 120) if found else None
    except (ValueError, zlib.error, msgspec.MsgspecError, RecursionError):
        return None


def called_of(content: kinds.ToolCallContent, header: RequestHeaderContent | None, session: str) -> Attributes:
    """Return the attributes of the span of a tool call. `header` is that of the request; it describes the tool."""
    found: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": shown(content.tool_name, 120),
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": shown(session, 200),
        "session.id": shown(session, 200),
        "openinference.span.kind": "TOOL",
    }
    if content.tool_call_id:
        found["gen_ai.tool.call.id"] = shown(content.tool_call_id, 120)
    for tool in (header.tools if header is not None else None) or ():
        if (
            isinstance(tool, dict)
            and tool.get("name") == content.tool_name
            and isinstance(tool.get("description"), str)
        ):
            found["gen_ai.tool.description"] = shown(tool["description"], SHORT)
    return found


def resulted_of(content: kinds.ToolResultContent) -> tuple[Attributes, str | None]:
    """Return the attributes that a tool result adds to its span, and why the call failed (`None` for success)."""
    outcome = content.outcome or ("ok" if content.status == "success" else "error")
    found: Attributes = {"gesta.outcome": outcome}
    if content.status == "success" and outcome in ("ok", "late"):
        return found, None
    found["error.type"] = shown(content.error.type if content.error is not None else outcome, 120)
    return found, content.error.message if content.error is not None else f"the call ended: {outcome}"


def retrieved_of(found: kinds.RetrievalContent, session: str, *, content: bool) -> Attributes:
    """Return the attributes of the span of a retrieval (a search for passages).

    Args:
        found: content of the entry.
        session: name of the session.
        content: whether the span includes the query and the passages found.
    """
    given: Attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.conversation.id": shown(session, 200),
        "session.id": shown(session, 200),
        "openinference.span.kind": "RETRIEVER",
        "gesta.hits": len(found.hits),
    }
    if content:
        hits = [{"id": hit.chunk or hit.document, "score": hit.score or 0.0} for hit in found.hits[:50]]
        given |= {"gen_ai.retrieval.query.text": shown(found.query, SHORT), "gen_ai.retrieval.documents": as_json(hits)}
    return given
