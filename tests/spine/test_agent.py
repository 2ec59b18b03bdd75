"""An agent is a frozen description, and its digest says whether it is the same one."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import gesta
from gesta.address import bind
from gesta.errors import AgentError, BadAddress
from gesta.hooks import Hooks


def agent(**more) -> gesta.Agent:
    return bind(gesta.Agent("desk", model=gesta.scripted("Yes."), instructions="Be short.", **more))


def test_a_digest_that_is_known_is_the_one_that_would_be_made() -> None:
    known: dict[bytes, str] = {}
    first = agent().ref(known)
    assert first == agent().ref(known) == agent().ref()
    assert len(known) == 1


def test_an_agent_that_was_changed_has_another_digest_whatever_is_known() -> None:
    known: dict[bytes, str] = {}
    changed = msgspec.structs.replace(agent(), instructions="Be brief.")
    assert agent().ref(known).digest != changed.ref(known).digest == changed.ref().digest


def test_settings_that_change_in_place_change_the_digest() -> None:
    known: dict[bytes, str] = {}
    one = agent(settings={"temperature": 0})
    before = one.ref(known)
    one.settings["temperature"] = 1
    assert one.ref(known).digest != before.digest


@pytest.mark.parametrize("odd", [2**80, "\ud800", {"set"}, 1.5])
def test_whatever_settings_hold_the_digest_is_the_same_with_and_without_what_is_known(odd) -> None:
    known: dict[bytes, str] = {}
    one = agent(settings={"odd": odd})
    assert one.ref(known) == one.ref(known) == one.ref()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"instructions": 5}, "instructions=5, expected a text, or a function"),
        ({"deps": {"shop": 1}}, "deps of type dict, expected a function that makes them"),
        ({"hooks": [print]}, "hooks=.*, expected gesta.hooks.Hooks"),
    ],
)
def test_a_value_where_a_function_is_wanted_is_refused_with_what_to_write(given: dict[str, Any], said: str) -> None:
    with pytest.raises(AgentError, match=f"Agent 'a' has {said}"):
        gesta.Agent("a", model=gesta.scripted("Hi."), **given)


def test_a_field_by_the_name_of_another_library_is_told_by_its_name_here() -> None:
    with pytest.raises(TypeError, match="That is `instructions` here"):
        gesta.Agent("guide", model=gesta.scripted("Hello."), system_prompt="Be brief.")  # type: ignore[call-arg]


@gesta.tool(effect="pure")
def look(at: str) -> str:
    """Look."""
    return at


def plain(at: str) -> str:
    """Look."""
    return at


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"model": gesta.scripted},
            "Agent 'desk' has model=scripted, a function, expected a model: gesta.scripted(ANSWERS), gesta.function(FUNCTION), or 'openai:gpt-5-mini'.",
        ),
        ({"tools": look}, "Agent 'desk' has tools=look, expected a list of tools. Write tools=[look]."),
        ({"tools": plain}, "Agent 'desk' has tools=plain, expected a list of tools. Write tools=[plain]."),
        (
            {"policy": {"requests": 3}},
            "Agent 'desk' has policy={'requests': 3}, expected gesta.Policy(limits=gesta.Limits(requests=20)) or the like.",
        ),
        (
            {"model": None},
            "Agent 'desk' has model=None, expected a model: gesta.scripted(ANSWERS), gesta.function(FUNCTION), or 'openai:gpt-5-mini'.",
        ),
        ({"state": 3}, "Agent 'desk' has state=3, expected a text."),
        ({"hint": 3}, "Agent 'desk' has hint=3, expected a text, or None."),
        ({"catalog": 3}, "Agent 'desk' has catalog=3, expected a text, or None."),
        ({"settings": 3}, "Agent 'desk' has settings=3, expected a dict."),
        ({"meta": None}, "Agent 'desk' has meta=None, expected a dict."),
        ({"groups": "shop"}, "Agent 'desk' has groups='shop', expected a list of names, or None."),
        (
            {"fallbacks": "openai:gpt-5-mini"},
            "Agent 'desk' has fallbacks='openai:gpt-5-mini', expected a list of models.",
        ),
        ({"program": 3}, "Agent 'desk' has program=3, expected an async function, or None."),
        (
            {"repair": "yes"},
            "Agent 'desk' has repair='yes', expected True, False, or a function that repairs a text.",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused_with_what_to_write(given: dict[str, Any], said: str) -> None:
    with pytest.raises(AgentError) as found:
        gesta.Agent("desk", **{"model": gesta.scripted("Yes."), **given})
    assert str(found.value) == said


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(AgentError, match="Agent 7 has name=7, expected a text"):
        gesta.Agent(7, gesta.scripted("Yes."))  # type: ignore[arg-type]


def test_what_is_no_formatter_is_refused_where_a_turn_would_begin() -> None:
    with pytest.raises(BadAddress, match=r"No formatter 'None'\. Known: tool-calls, react"):
        bind(gesta.Agent("desk", gesta.scripted("Yes."), formatter=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["guide.py:agent", None])
def test_what_is_no_agent_is_refused_where_a_turn_would_begin(given: Any) -> None:
    with pytest.raises(AgentError) as found:
        gesta.run_sync(given, "Hi", record=":memory:")
    assert str(found.value) == f"{given!r} is not an agent. Write gesta.Agent(NAME, model=...), or a variable with one."


def test_a_function_of_deps_that_asks_for_something_is_refused() -> None:
    def opened(context: Any) -> Any:
        return context

    with pytest.raises(AgentError) as found:
        gesta.Agent("guide", model=gesta.scripted("Hello."), deps=opened)  # type: ignore[arg-type]
    assert str(found.value) == (
        "Agent 'guide' has deps=opened(context), expected a function that is called as opened()."
    )
    assert gesta.Agent("guide", model=gesta.scripted("Hello."), deps=dict).deps is dict


def none() -> Any: ...


def one(first: Any) -> Any: ...


def three(first: Any, second: Any, third: Any) -> Any: ...


NONE: Any = none
ONE: Any = one
THREE: Any = three


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda: gesta.Agent("a", program=ONE), "Agent 'a' has program=one(first), {} one(verbs, text)."),
        (lambda: gesta.Agent("a", instructions=NONE), "Agent 'a' has instructions=none(), {} none(context)."),
        (lambda: gesta.Agent("a", repair=NONE), "Agent 'a' has repair=none(), {} none(text)."),
        (lambda: Hooks(message=ONE), "Hooks(message=...): found one(first), {} one(message, context)."),
        (lambda: gesta.function(ONE), "gesta.function: found one(first), {} one(messages, header)."),
        (
            lambda: gesta.function(THREE),
            "gesta.function: found three(first, second, third), {} three(messages, header).",
        ),
        (lambda: gesta.scripted("Hi.", NONE), "Item 2 of model 'scripted': found none(), {} none(request)."),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_where_it_is_given(made: Callable[[], Any], found: str) -> None:
    with pytest.raises(AgentError) as refused:
        made()
    assert str(refused.value) == found.format("expected a function that is called as")


def test_a_function_whose_parameters_cannot_be_read_is_called_as_it_is() -> None:
    unreadable = type("Odd", (), {"__signature__": "?", "__call__": lambda *_: "Hello."})()
    agent = gesta.Agent("a", model=gesta.function(unreadable))
    assert gesta.run_sync(agent, "Hi", record=":memory:").answer == "Hello."
