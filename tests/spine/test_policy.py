"""Rules are data: a misspelt one is refused, and so is one that bounds nothing."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.errors import AgentError
from gesta.policy import Budget, Compact, Limits, Policy, Retry


def test_a_misspelt_rule_is_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(TypeError, match=r"Limits has no field 'request'. Did you mean 'requests'\?"):
        Limits(request=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [-1, math.inf, math.nan])
def test_a_bound_that_bounds_nothing_is_refused(value: float) -> None:
    with pytest.raises(AgentError, match="expected a number from 0 on"):
        Budget(usd=value)
    with pytest.raises(AgentError, match="expected a whole number from 0 on"):
        Compact(at_tokens=value)  # type: ignore[arg-type]


ODD = [
    (Limits, "requests", -1, "a whole number from 0 on, or None."),
    (Limits, "calls", "3", "a whole number from 0 on, or None."),
    (Limits, "depth", None, "a whole number from 0 on."),
    (Limits, "depth", math.nan, "a whole number from 0 on."),
    (Retry, "tries", 1.5, "a whole number from 0 on."),
    (Retry, "first_wait_s", math.nan, "a number from 0 on."),
    (Retry, "max_wait_s", math.inf, "a number from 0 on."),
    (Retry, "factor", -1, "a number from 0 on."),
    (Retry, "empty", True, "a whole number from 0 on."),
    (Policy, "parallel", 0, "a whole number from 1 on."),
    (Policy, "parallel", math.inf, "a whole number from 1 on."),
    (Policy, "deaths", 0, "a whole number from 1 on."),
    (Policy, "tool_timeout_s", 0, "seconds above 0, or None."),
    (Policy, "tool_timeout_s", -1, "seconds above 0, or None."),
    (Policy, "when_busy", "Queue", "one of 'queue', 'replace', 'raise'."),
    (Policy, "when_left", None, "one of 'go-on', 'stop'."),
    (Budget, "when_spent", "wait", "one of 'stop', 'ask'."),
    (Policy, "limits", 20, "gesta.policy.Limits(...)."),
    (Policy, "budget", 0.5, "gesta.policy.Budget(...), or None."),
]


@pytest.mark.parametrize(("rules", "name", "value", "expected"), ODD)
def test_a_value_that_a_rule_cannot_have_is_refused_with_what_it_can_have(
    rules: type[Any], name: str, value: Any, expected: str
) -> None:
    with pytest.raises(AgentError) as refused:
        rules(**{name: value})
    assert str(refused.value) == f"{rules.__name__}({name}={value!r}): expected {expected}"


def test_a_rule_without_bound_and_a_whole_number_that_is_a_float_are_taken() -> None:
    assert (Limits(requests=math.inf).requests, Policy(tool_timeout_s=math.inf).tool_timeout_s) == (math.inf,) * 2  # type: ignore[arg-type]
    assert repr((Budget(tokens=1e6).tokens, Policy(parallel=2.0).parallel)) == "(1000000, 2)"  # type: ignore[arg-type]


def test_a_wait_after_thousands_of_tries_is_the_longest_one() -> None:
    assert Retry(tries=5000).wait_s(3000) == Retry().max_wait_s


@given(st.integers(1, 60), st.one_of(st.none(), st.floats(0, 1e6)))
def test_a_wait_never_shrinks_from_try_to_try_and_never_passes_its_maximum(failed: int, asked_s: float | None) -> None:
    retry = Retry()
    wait_s = retry.wait_s(failed, asked_s)
    assert retry.first_wait_s <= wait_s <= retry.max_wait_s
    assert retry.wait_s(failed + 1, asked_s) >= wait_s


def test_what_nobody_said_is_bounded_all_the_same() -> None:
    assert Policy().limits.requests is not None
    assert Policy().budget is None


def test_each_wait_is_longer_by_the_factor_and_none_is_longer_than_the_bound() -> None:
    rule = Retry(first_wait_s=1.0, factor=3.0, max_wait_s=20.0)
    assert [rule.wait_s(failed) for failed in (1, 2, 3, 4, 5_000)] == [1, 3, 9, 20, 20]
    assert [rule.wait_s(2, asked_s) for asked_s in (None, 2.0, 7.0, 60.0)] == [3, 3, 7, 20]
