"""Makes a `ModelFault` from the errors of providers, in all their forms.

The type of a fault is the provider's own word (`context_length_exceeded`) or, without one, `http-<status>`. Gesta's own
types are `lost-stream`, `bad-reply`, `timeout`, `connection`, `redirect`.
"""

import re
from typing import Any

from gesta.errors import ModelFault
from gesta.models.jsontext import compact
from gesta.text.redactor import SECRETS

AROUND = 4000  # bytes read beyond an excerpt, for a secret at its end
PERMANENT = frozenset(
    {
        *("insufficient_quota", "context_length_exceeded", "model_not_found", "invalid_prompt", "content_filter"),
        *("invalid_request_error", "authentication_error", "permission_error", "not_found_error", "invalid_api_key"),
        "billing_error",
    }
)
"""Types of faults that the same request would cause again, whatever the status (OpenAI: 429 for an unpaid bill)."""

RESAMPLED = frozenset({"tool_use_failed"})
"""Types for output of the model that its own server refused (Groq, with status 400). The next try may succeed."""


def retryable(status: int) -> bool:
    """Return whether the same request may succeed a little later, given the HTTP status of its reply."""
    return status in (408, 409, 429) or status >= 500


def excerpt(data: bytes, size: int = 200) -> str:
    """Return the first bytes of a reply as text, for an error message."""
    text = SECRETS.bytes(data[: size + AROUND])[:size].decode("utf-8", "replace")
    return repr(text) + (f" and {len(data) - size} bytes more" if len(data) > size else "")


def bad_reply(found: str) -> ModelFault:
    """Return the fault for bytes that are not a reply."""
    return ModelFault("bad-reply", found, retry=True)


def lost_stream(found: str) -> ModelFault:
    """Return the fault for a reply that ended early."""
    return ModelFault("lost-stream", found, retry=True)


def provider_fault(body: Any, status: int | None = None, retry_after_s: float | None = None) -> ModelFault:
    """Return the fault for an error body, which may be any value. Never raises.

    Args:
        body: decoded JSON: `{"error": {…}}`, `{"error": "text"}`, `[{"error": …}]` (Gemini), `{"detail": …}` (FastAPI),
            `{"object": "error", "message": …}` (vLLM), or anything else.
        status: the HTTP status; `None` for an error inside a reply with status 200, whose `code` may hold the status.
        retry_after_s: the pause that the provider asked for.
    """
    if isinstance(body, list) and body:
        body = body[0]
    error = (body.get("error") or body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        error = {"message": error} if error else {}
    words = [_word(error.get(name)) for name in ("code", "type", "status")]
    codes = [int(word) for word in words if word.isdecimal() and len(word) == 3]
    if status is None and codes and 400 <= codes[0] < 600:
        status = codes[0]
    names = [word for word in words if word and not word.isdecimal()]
    type_ = names[0] if names else f"http-{status}" if status else "provider-error"
    return ModelFault(
        type_,
        _message(error) or f"no message (HTTP {status})",
        http_status=status,
        retry=type_ in RESAMPLED or (PERMANENT.isdisjoint(names) and (status is None or retryable(status))),
        retry_after_s=retry_after_s if retry_after_s is not None else _asked_wait_s(error.get("details")),
    )


def _asked_wait_s(details: Any) -> float | None:
    """Return the seconds to wait that Google asks for: `{"retryDelay": "3.5s"}` among the details."""
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"\d{1,6}(\.\d{1,9})?s", delay):
            return float(delay[:-1])
    return None


def _word(value: Any) -> str:
    if isinstance(value, int) and 0 <= value < 1000:
        return str(value)
    return SECRETS.text(value).strip()[:100] if isinstance(value, str) else ""


def _message(error: dict[str, Any]) -> str:
    found = error.get("message") or error.get("detail") or error.get("msg")
    text = found if isinstance(found, str) else compact(found or error).decode() if error else ""
    meta = error.get("metadata")
    more = meta.get("raw") if isinstance(meta, dict) else error.get("failed_generation")  # OpenRouter; Groq
    return SECRETS.message(f"{text}: {more}" if isinstance(more, str) else text)[:2000]
