"""The tokens of a reply, counted in the same way for every provider. The provider's own usage stays on record.

Source: usage of Chat Completions and Responses (OpenAI API reference), Messages (Anthropic, "Prompt caching"),
generateContent (Gemini API, "UsageMetadata") and DeepSeek ("Context Caching"), read 2026-11.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

CACHE_READ = ("cache_read_input_tokens", "prompt_cache_hit_tokens", "cachedContentTokenCount")
CACHE_WRITE = ("cache_creation_input_tokens",)
BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Members that Anthropic does not include in its `input_tokens`. All other providers include them, also LiteLLM with
the same names."""


MAX_COUNT = 2**53
"""Greatest count of tokens that is accepted; a greater or negative number is ignored."""


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens of a request and its reply."""

    input: int
    """All tokens that the model read, cached or not."""
    output: int
    """All tokens that the model wrote, with reasoning."""
    cache_read: int | None = None
    """Input tokens that the provider read from its cache; `None` if it does not say."""
    cache_write: int | None = None
    """Input tokens that the provider wrote to its cache; `None` if it does not say."""
    reasoning: int | None = None
    """Output tokens of reasoning; `None` if the provider does not say."""


def tokens(usage: Mapping[str, Any] | None) -> Tokens | None:
    """Return the tokens of a provider's usage; `None` if it lacks input or output tokens. Never raises."""
    if not usage or not isinstance(usage, Mapping):  # a record may hold any value there
        return None
    read, wrote = _first(usage, "prompt_tokens", "input_tokens"), _first(usage, "completion_tokens", "output_tokens")
    details = ("completion_tokens_details", "output_tokens_details")
    thought = _inside(usage, details, "reasoning_tokens", "thinking_tokens")
    if "promptTokenCount" in usage:
        thought = _first(usage, "thoughtsTokenCount")
        read = _sum(_first(usage, "promptTokenCount"), _first(usage, "toolUsePromptTokenCount"))
        wrote = (_first(usage, "candidatesTokenCount") or 0) + (thought or 0)
    if read is None or wrote is None:
        return None
    cached = _first(usage, *CACHE_READ)
    if cached is None:
        cached = _inside(usage, ("prompt_tokens_details", "input_tokens_details"), "cached_tokens")
    if "prompt_tokens" not in usage:
        read += sum(_first(usage, name) or 0 for name in BESIDE)
    kept = _first(usage, *CACHE_WRITE)
    if kept is None:
        kept = _inside(usage, ("prompt_tokens_details", "input_tokens_details"), "cache_write_tokens")
    return Tokens(input=read, output=wrote, cache_read=cached, cache_write=kept, reasoning=thought)


def _first(usage: Mapping[str, Any], *names: str) -> int | None:
    """Return the value of the first of these names that is a count of tokens; `None` if there is none."""
    counts = (usage.get(name) for name in names)
    return next((count for count in counts if type(count) is int and 0 <= count < MAX_COUNT), None)


def _inside(usage: Mapping[str, Any], groups: tuple[str, ...], *names: str) -> int | None:
    inner = next((found for group in groups if isinstance(found := usage.get(group), dict)), {})
    return _first(inner, *names)


def _sum(first: int | None, second: int | None) -> int | None:
    return first if first is None else first + (second or 0)
