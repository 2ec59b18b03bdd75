"""Tokens of every provider are counted alike: all that was read, all that was written, and what of it was cached."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.model.usage import Tokens, tokens

ROWS: dict[str, tuple[dict[str, Any], Tokens | None]] = {
    "Chat Completions": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 8},
        },
        Tokens(input=100, output=20, cache_read=64, reasoning=8),
    ),
    "DeepSeek": (
        {"prompt_tokens": 100, "completion_tokens": 20, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
        Tokens(input=100, output=20, cache_read=64),
    ),
    "Responses": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 30},
            "output_tokens_details": {"reasoning_tokens": 8},
        },
        Tokens(input=100, output=20, cache_read=0, cache_write=30, reasoning=8),
    ),
    "Anthropic counts what was cached beside": (
        {
            "input_tokens": 10,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 30,
            "output_tokens": 20,
            "output_tokens_details": {"thinking_tokens": 8},
        },
        Tokens(input=100, output=20, cache_read=60, cache_write=30, reasoning=8),
    ),
    "LiteLLM counts it inside, by the same names": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 30,
        },
        Tokens(input=100, output=20, cache_read=60, cache_write=30),
    ),
    "Gemini counts what was thought beside": (
        {
            "promptTokenCount": 90,
            "toolUsePromptTokenCount": 10,
            "candidatesTokenCount": 12,
            "thoughtsTokenCount": 8,
            "cachedContentTokenCount": 64,
            "totalTokenCount": 120,
        },
        Tokens(input=100, output=20, cache_read=64, reasoning=8),
    ),
    "nothing": ({}, None),
    "half": ({"prompt_tokens": 3}, None),
    "no counts": ({"prompt_tokens": "3", "completion_tokens": True}, None),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_tokens_are_counted(row: tuple[dict[str, Any], Tokens | None]) -> None:
    usage, expected = row
    assert tokens(usage) == expected


names = st.sampled_from(sorted({name for usage, _ in ROWS.values() for name in usage}))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens"]), inner),
    max_leaves=3,
)


@given(st.dictionaries(names, values))
def test_nothing_that_a_provider_says_raises(usage: dict[str, Any]) -> None:
    found = tokens(usage)
    assert found is None or (isinstance(found.input, int) and isinstance(found.output, int))
    assert tokens(None) is None
