"""Prices: what genai-prices says of a model, read as its provider counts; what it does not know has no price."""

from typing import Any

import pytest

import gesta
from gesta import address
from gesta.errors import MissingExtra
from gesta.models import prices
from gesta.models.hosted import hosted

pytest.importorskip("genai_prices")
USAGE = {"prompt_tokens": 1_000_000, "completion_tokens": 0}


def usd(name: str, usage: dict[str, Any]) -> float | None:
    found = prices.listed(name)
    return found.usd(usage) if found is not None else None


@pytest.mark.parametrize(
    "name", ["openai:gpt-5-mini", "groq:llama-3.3-70b-versatile", "mistral:mistral-large-latest", "xai:grok-4"]
)
def test_a_known_model_has_a_price_and_cached_tokens_cost_no_more(name: str) -> None:
    whole = usd(name, USAGE)
    cached = usd(name, {**USAGE, "prompt_tokens_details": {"cached_tokens": 900_000}})
    assert whole is not None
    assert cached is not None
    assert 0 < cached <= whole
    more = usd(name, {"prompt_tokens": 1_000_000, "completion_tokens": 1_000})
    assert more is not None
    assert more > whole


@pytest.mark.parametrize("name", ["openai:no-such-model", "ollama:llama3.1", "localhost:llama", "scripted", "openai:"])
def test_what_the_list_does_not_know_has_no_price(name: str) -> None:
    assert usd(name, USAGE) is None


@pytest.mark.parametrize("usage", [{}, {"total_tokens": 7}, {"prompt_tokens": "many"}, {"prompt_tokens": -1}])
def test_a_usage_that_cannot_be_read_has_no_price(usage: dict[str, Any]) -> None:
    assert usd("openai:gpt-5-mini", usage) is None


def test_the_list_says_which_edition_it_is() -> None:
    found = prices.listed("openai:gpt-5-mini")
    assert found is not None
    assert found.dated.startswith("genai-prices 0.")


def test_binding_an_agent_finds_its_price_and_keeps_one_that_it_has() -> None:
    model = hosted("openai:gpt-5-mini", key="none")
    bound = address.bind(gesta.Agent("a", model=model))
    assert bound.price is not None
    assert bound.price.usd(USAGE)
    own = prices.Listed("openai", "gpt-4o")
    assert address.bind(gesta.Agent("a", model=model, price=own)).price is own
    assert address.bind(gesta.Agent("a", model=gesta.scripted("hi"))).price is None


class Missing(prices.Listed):
    """A list that nobody installed."""

    library = "no-such-library"


def test_without_the_library_a_budget_in_dollars_names_the_extra() -> None:
    line = r"A budget in US dollars needs 'no-such-library', which is not installed: pip install 'gesta\[prices\]'"
    with pytest.raises(MissingExtra, match=line):
        Missing("openai", "gpt-5-mini").check()
    assert Missing("openai", "gpt-5-mini").usd(USAGE) is None
    assert prices.listed("openai:gpt-5-mini", needed=True) is not None
