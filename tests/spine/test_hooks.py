"""What a hook may say at each point, and what it is told."""

from typing import get_args

import pytest

import gesta
from gesta.errors import AgentError
from gesta.hooks import VERDICTS, AskPerson, Hooks, Point, Refuse, Verdict


def test_each_point_has_verdicts_and_a_refusal_is_among_them() -> None:
    assert tuple(VERDICTS) == get_args(Point)
    assert all(Refuse in kinds for kinds in VERDICTS.values())
    assert {kind for kinds in VERDICTS.values() for kind in kinds} == set(get_args(Verdict))
    assert AskPerson().words == ""


def test_what_is_no_function_is_no_hook() -> None:
    with pytest.raises(AgentError, match="Hooks\\(call='never'\\): expected a function"):
        Hooks(call="never")  # type: ignore[arg-type]


def test_a_program_has_no_hooks_and_the_digest_of_an_agent_names_them() -> None:
    async def program(*_: object) -> str:
        return ""

    hooks = Hooks(message=lambda _text, _context: None)
    with pytest.raises(AgentError, match="a program and hooks"):
        gesta.Agent("a", program=program, hooks=hooks)

    def digest(**changes: Hooks) -> str:
        from gesta import address

        return address.bind(gesta.Agent("a", model=gesta.scripted("Hi."), **changes)).ref().digest  # type: ignore[arg-type]

    assert digest() != digest(hooks=hooks)
