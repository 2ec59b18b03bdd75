"""Counts the tokens of a reply in the same way for every provider. The provider's own usage stays on record.

A usage is the JSON object in which a provider reports its counts. The names of the members differ between providers.

Source: usage of Chat Completions and Responses (OpenAI API reference), Messages (Anthropic, "Prompt caching"),
generateContent (Gemini API, "UsageMetadata") and DeepSeek ("Context Caching"), read 2026-11.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

CACHE_READ = ("cache_read_input_tokens", "prompt_cache_hit_tokens", "cachedContentTokenCount")
CACHE_WRITE = ("cache_creation_input_tokens",)
MOST_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "maxOutputTokens")
"""Names, in requests of providers, of the setting that limits the tokens of a reply."""
BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Members that Anthropic does not include in its `input_tokens`. All other providers, and LiteLLM under the same
names, include them."""


class Counted(Struct, frozen=True, kw_only=True):
    """The names of the members that hold input and output tokens, in one of the forms that providers use."""

    known_by: str = ""
    """A member by which a usage of these providers is recognised; empty for the last rules, which fit any usage."""
    read: tuple[str, ...]
    """Members that may hold the number of tokens that the model read. The first valid count is used."""
    read_beside: tuple[str, ...] = ()
    """Members whose counts are added to that number."""
    wrote: tuple[str, ...] = ()
    """Members that may hold the number of tokens that the model wrote. If empty, only the counts in `wrote_beside` are
    added up."""
    wrote_beside: tuple[str, ...] = ()


COUNTED = (
    Counted(
        known_by="promptTokenCount",
        read=("promptTokenCount",),
        read_beside=("toolUsePromptTokenCount",),
        wrote_beside=("candidatesTokenCount", "thoughtsTokenCount"),
    ),
    Counted(
        known_by="prompt_tokens",
        read=("prompt_tokens", "input_tokens"),
        wrote=("completion_tokens", "output_tokens"),
    ),
    Counted(read=("input_tokens",), read_beside=BESIDE, wrote=("completion_tokens", "output_tokens")),
)
"""How to count, for each group of providers. The first rules that fit a usage are used. The function `tokens` and the
SQL of all stores are made from these rules."""

MAX_COUNT = 10**12
"""Upper bound of a count of tokens. A count that is negative, or not below the bound, is ignored."""


class Tokens(Struct, frozen=True, kw_only=True):
    """The number of tokens of a request and its reply."""

    input: int
    """All tokens that the model read, from a cache or not."""
    output: int
    """All tokens that the model wrote, including reasoning."""
    cache_read: int | None = None
    """Input tokens that the provider read from its cache; `None` if it does not say."""
    cache_write: int | None = None
    """Input tokens that the provider wrote to its cache; `None` if it does not say."""
    reasoning: int | None = None
    """Output tokens of reasoning; `None` if the provider does not say."""


def tokens(usage: Mapping[str, Any] | None) -> Tokens | None:
    """Return the counts in a provider's usage; `None` if input or output tokens are missing. Never raises."""
    if not usage or not isinstance(usage, Mapping):  # a record may hold any value there
        return None
    way = next(each for each in COUNTED if not each.known_by or each.known_by in usage)
    read = _all(usage, way.read, way.read_beside)
    wrote = _all(usage, way.wrote, way.wrote_beside)
    if read is None or wrote is None:
        return None
    details = ("completion_tokens_details", "output_tokens_details")
    thought = _inside(usage, details, "reasoning_tokens", "thinking_tokens")
    if "promptTokenCount" in usage:
        thought = _first(usage, "thoughtsTokenCount")
    cached = _first(usage, *CACHE_READ)
    if cached is None:
        cached = _inside(usage, ("prompt_tokens_details", "input_tokens_details"), "cached_tokens")
    kept = _first(usage, *CACHE_WRITE)
    if kept is None:
        kept = _inside(usage, ("prompt_tokens_details", "input_tokens_details"), "cache_write_tokens")
    return Tokens(input=read, output=wrote, cache_read=cached, cache_write=kept, reasoning=thought)


def _first(usage: Mapping[str, Any], *names: str) -> int | None:
    """Return the first valid count among the members of `usage` with these names; `None` if no such member is valid."""
    for name in names:
        count = usage.get(name)
        if type(count) is int and 0 <= count < MAX_COUNT:
            return count
    return None


def _inside(usage: Mapping[str, Any], groups: tuple[str, ...], *names: str) -> int | None:
    """Return the first valid count among the members `names` of the first object among the members `groups`.

    Return `None` if there is no such object or no valid count in it.
    """
    for group in groups:
        inner = usage.get(group)
        if isinstance(inner, dict):
            return _first(inner, *names)
    return None


def _all(usage: Mapping[str, Any], names: tuple[str, ...], beside: tuple[str, ...]) -> int | None:
    """Return the first valid count among the members `names`, plus all counts of the members `beside`.

    Return `None` if no member of `names` is a valid count.
    """
    count = _first(usage, *names) if names else 0
    if count is not None:
        for name in beside:
            count += _first(usage, name) or 0
    return count
