"""Rules are data: a misspelt one is refused, and so is one that bounds nothing."""

import math

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
    with pytest.raises(AgentError, match="expected a number from 0 on"):
        Compact(at_tokens=value)  # type: ignore[arg-type]


@given(st.integers(1, 60), st.one_of(st.none(), st.floats(0, 1e6)))
def test_a_wait_never_shrinks_from_try_to_try_and_never_passes_its_maximum(failed: int, asked_s: float | None) -> None:
    retry = Retry()
    wait_s = retry.wait_s(failed, asked_s)
    assert retry.first_wait_s <= wait_s <= retry.max_wait_s
    assert retry.wait_s(failed + 1, asked_s) >= wait_s


def test_what_nobody_said_is_bounded_all_the_same() -> None:
    assert Policy().limits.requests is not None
    assert Policy().budget is None
