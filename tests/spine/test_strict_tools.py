"""A strict tool: a provider that can do so holds the model to its schema; the header on record says so."""

import json

import pytest

import gesta
from gesta.errors import BadTool
from gesta.message import Message
from gesta.models.hosted import unsent


@gesta.tool(effect="pure", strict=True)
def look(city: str, days: int) -> str:
    """Look."""
    return f"{city}: {days}"


@pytest.mark.parametrize(
    ("address", "strict"),
    [
        ("openai:m", ["function", "strict"]),
        ("openai-responses:m", ["strict"]),
        ("anthropic:m", ["strict"]),
        ("google:m", None),
    ],
)
def test_a_strict_tool_is_sent_as_one_where_the_provider_has_that(address: str, strict: list[str] | None) -> None:
    model = unsent(address)
    header = gesta.Agent("guide", model=model, tools=[look]).header()
    assert header.tools is not None
    assert header.tools[0]["strict"] is True
    envelope = model.envelope(header)
    body = json.loads(envelope.head + model.encode(Message(role="user", text="x")) + envelope.tail)
    if strict is None:
        assert "strict" not in json.dumps(body)
        return
    (found,) = body["tools"]
    for name in strict:
        found = found[name]
    assert found is True


def test_a_tool_that_is_not_strict_is_described_as_before() -> None:
    plain = gesta.tool(look.function, effect="pure")
    header = gesta.Agent("guide", model=gesta.scripted("x"), tools=[plain]).header()
    assert header.tools is not None
    assert "strict" not in header.tools[0]


def test_a_parameter_that_may_be_left_out_is_refused() -> None:
    with pytest.raises(BadTool, match="strict needs every parameter, and 'days' may be left out"):

        @gesta.tool(effect="pure", strict=True)
        def look(city: str, days: int = 1) -> str:
            """Look."""
            return f"{city}: {days}"
