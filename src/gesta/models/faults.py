"""Turns the errors that providers send, in all their forms, into a `ModelFault`: the error of a failed model request.

The type of a fault is the provider's own name for the error (`context_length_exceeded`) or, without such a name,
`http-<status>`. Types of Gesta itself are `lost-stream`, `bad-reply`, `timeout`, `connection` and `redirect`.
"""

import re
from typing import Any

from gesta.errors import ModelFault
from gesta.models.jsontext import compact
from gesta.text.redactor import SECRETS

AROUND = 4000  # bytes searched for secrets beyond an excerpt, because a secret may begin at its end
PERMANENT = frozenset(
    {
        *("insufficient_quota", "context_length_exceeded", "model_not_found", "invalid_prompt", "content_filter"),
        *("invalid_request_error", "authentication_error", "permission_error", "not_found_error", "invalid_api_key"),
        "billing_error",
    }
)
"""Types of faults that a second try cannot repair, whatever the status (OpenAI sends 429 for an unpaid bill)."""

RESAMPLED = frozenset({"tool_use_failed"})
"""Types of faults where the provider refused what its own model wrote (Groq, with status 400). A second try may
succeed."""


def retryable(status: int) -> bool:
    """Return whether a request that got this HTTP status may succeed if it is sent again later."""
    return status in (408, 409, 429) or status >= 500


def excerpt(data: bytes, size: int = 200) -> str:
    """Return the first `size` bytes of a reply as quoted text for an error message, without secrets.

    If the reply is longer, the text ends with the number of bytes that were left out.
    """
    text = SECRETS.bytes(data[: size + AROUND])[:size].decode("utf-8", "replace")
    return repr(text) + (f" and {len(data) - size} bytes more" if len(data) > size else "")


def bad_reply(found: str) -> ModelFault:
    """Return the ModelFault for bytes that cannot be read as a reply. Its `retry` is true.

    Args:
        found: the message, which says what was expected and what came.
    """
    return ModelFault("bad-reply", found, retry=True)


def lost_stream(found: str) -> ModelFault:
    """Return the ModelFault for a reply that ended before it was complete. Its `retry` is true.

    Args:
        found: the message, which says where the reply ended.
    """
    return ModelFault("lost-stream", found, retry=True)


def provider_fault(body: Any, status: int | None = None, retry_after_s: float | None = None) -> ModelFault:
    """Return the ModelFault for the error that a provider sent. The function never raises, whatever `body` is.

    Args:
        body: decoded JSON: `{"error": {…}}`, `{"error": "text"}`, `[{"error": …}]` (Gemini), `{"detail": …}` (FastAPI),
            `{"object": "error", "message": …}` (vLLM), or anything else.
        status: the HTTP status; `None` for an error inside a reply with status 200, whose `code` may hold the status.
        retry_after_s: seconds to wait before the next try, as the HTTP headers asked.
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
    """Return the seconds to wait that Google's error asks for, as in `{"retryDelay": "3.5s"}`; else `None`."""
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
    more = (
        meta.get("raw") if isinstance(meta, dict) else error.get("failed_generation")
    )  # where OpenRouter and Groq put it
    return SECRETS.message(f"{text}: {more}" if isinstance(more, str) else text)[:2000]
