"""Computes what a turn may spend, in tokens and US dollars, and what it has spent.

The greatest possible cost of a request is reserved before the request. Afterwards the request is settled: the real cost
replaces the reserved amount. A turn keeps such an account if its agent has a budget, or if its parent run gave it an
allowance. A child run is the run of an agent that a run calls; an `edge` entry names it. These functions only compute.
The code that asks the model writes the amounts as entries.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gesta.agent import Agent
from gesta.kinds import BudgetContent, Error, QuestionContent
from gesta.model.usage import MOST_TOKENS, tokens
from gesta.policy import Budget
from gesta.state.account import Amount, Spent, header_tokens, number
from gesta.state.run import RunState

ALMOST = 1e-9
"""Allowed rounding error of a sum of dollars."""


class Overrun(Struct, frozen=True):
    """A limit of the turn's budget, in tokens or dollars, that the next request could exceed."""

    axis: Literal["tokens", "usd"]
    bound: float
    counted: float
    """Amount that is spent or reserved so far."""
    need: float
    allowed: bool
    """Whether the parent run set the bound."""

    @property
    def text(self) -> str:
        """Sentence for people: the limit, the amount spent so far, and the amount that the next request may need."""
        whose = "what the run above allows it" if self.allowed else "its budget"
        bound, counted, need = (_shown(self.axis, each) for each in (self.bound, self.counted, self.need))
        found = f"of {bound}, {counted} are spent or set aside, and the next request may take {need}"
        return f"The turn reached {whose}: {found}."

    @property
    def error(self) -> Error:
        """The error with which the turn ends if nobody raises the limit."""
        hint = "Raise Budget.{}, or bound each reply: settings={{'max_tokens': ...}}."
        return Error(type=self.axis, message=f"{self.text} {hint.format(self.axis)}")

    @property
    def question(self) -> QuestionContent:
        """The question whether to raise the limit, for a budget with `when_spent="ask"`."""
        unit = "US dollars" if self.axis == "usd" else "tokens"
        return QuestionContent(
            value=f"{self.text} How many more {unit} may it spend? 0 ends it.",
            schema={"type": "number", "minimum": 0},
            raises=self.axis,
        )


def _shown(axis: str, value: float) -> str:
    return f"${value:.4f}" if axis == "usd" else f"{value:,.0f} tokens"


def account(own: Budget | None, state: RunState) -> Budget | None:
    """Return the budget of the open turn, limited by the allowance from its parent run; `None` if it has neither.

    Args:
        own: the budget in the policy of the turn's agent.
    """
    assert state.turn is not None
    allowed = state.turn.spending.allowed
    if allowed is None:
        return own
    made = own or Budget(
        request_usd=number(allowed.get("request_usd"), Budget().request_usd),
        request_tokens=int(number(allowed.get("request_tokens"), Budget().request_tokens)),
    )
    bounds = {name: _least(getattr(made, name), allowed.get(name)) for name in ("usd", "tokens")}
    return msgspec.structs.replace(made, **bounds)


def _least(own: float | None, allowed: Any) -> float | None:
    return min((each for each in (own, allowed) if each is not None), default=None)


def need(agent: Agent, budget: Budget, state: RunState) -> Amount:
    """Return the greatest possible cost of the next request: the cost of its prompt and of the longest reply."""
    prompt, before, header = state.weight.tokens, state.weight.header, state.header
    # Instructions that a function makes are known only from the header that this turn wrote.
    if isinstance(agent.instructions, str) or header is None or state.turn is None or not state.turn.headed:
        header = agent.formats().dress(agent.offering(state.tool_state).header())
    if before is not None:  # what the provider counted contains it
        prompt += max(0, header_tokens(header) - header_tokens(before))
    elif not state.weight.counted:
        prompt += header_tokens(header)
    bounds = (agent.settings.get(name) for name in MOST_TOKENS)
    reply = next((each for each in bounds if isinstance(each, int)), budget.request_tokens)
    usd = _price(agent, {"prompt_tokens": prompt, "completion_tokens": reply})
    return Amount(prompt + reply, budget.request_usd if usd is None else usd)


def overrun(agent: Agent, state: RunState) -> Overrun | None:
    """Return the limit of the budget that the next request could exceed; `None` if it can exceed none."""
    budget, turn = account(agent.policy.budget, state), state.turn
    assert turn is not None
    agent = agent.in_place(turn.instead) if turn.instead else agent  # a fallback model has a price of its own
    if budget is None or (budget.usd is None and budget.tokens is None):
        return None
    spending = turn.spending
    counted, wanted = spending.counted, need(agent, budget, state)
    axes: tuple[Literal["usd"], Literal["tokens"]] = ("usd", "tokens")
    for axis in axes:
        bound = getattr(budget, axis)
        if bound is None:
            continue
        have, more, next_ = (getattr(each, axis) for each in (counted, spending.more, wanted))
        if have + next_ > bound + more + ALMOST:
            allowed = getattr(agent.policy.budget, axis, None) != bound
            return Overrun(axis, bound + more, have, next_, allowed)
    return None


def reserved(agent: Agent, state: RunState) -> dict[str, Any] | None:
    """Return the amount to reserve for the next request; `None` if the turn keeps no account."""
    budget = account(agent.policy.budget, state)
    return None if budget is None else msgspec.to_builtins(need(agent, budget, state))


def settled(agent: Agent, held: Mapping[str, Any], usage: dict[str, Any] | None) -> dict[str, Any]:
    """Return the cost of a reply, as a budget entry stores it.

    If the cost is unknown, the reserved amount is counted.

    Args:
        held: the reserved amount.
        usage: the usage as the provider sent it; `None` if it sent none.
    """
    counts = tokens(usage)
    usd = _price(agent, usage) if usage is not None and counts is not None else None
    spent: dict[str, Any] = {"tokens": counts.input + counts.output if counts is not None else None, "usd": usd}
    if None in spent.values():
        spent["counted"] = {name: held[name] if value is None else value for name, value in spent.items()}
    if usd is not None and agent.price is not None:
        spent["prices"] = agent.price.dated
    return spent


def share(own: Budget | None, state: RunState, among: int) -> dict[str, Any] | None:
    """Return the allowance of a child run: an equal part of the budget that is left; `None` without a budget.

    Args:
        own: the budget in the policy of the turn's agent.
        among: number of child runs that get an equal part. This turn keeps one such part too.
    """
    budget = account(own, state)
    if budget is None:
        return None
    assert state.turn is not None
    spending = state.turn.spending
    given: dict[str, Any] = {"request_usd": budget.request_usd, "request_tokens": budget.request_tokens}
    if budget.tokens is not None:
        left = budget.tokens + spending.more.tokens - spending.counted.tokens
        given["tokens"] = max(0, left // (1 + among))
    if budget.usd is not None:
        rest = budget.usd + spending.more.usd - spending.counted.usd
        given["usd"] = max(0.0, math.floor(rest / (1 + among) * 1e6) / 1e6)
    return given


def returned(edge: int, allowance: Mapping[str, Any] | None, spent: Spent | None) -> BudgetContent | None:
    """Return the content of a budget entry with a child run's cost; `None` if neither run keeps an account.

    Args:
        edge: seq of the `edge` entry that names the child run.
        allowance: what the parent run allowed the child run to spend; `None` without a budget.
        spent: the cost of the child run; `None` if it kept no account.
    """
    if spent is None and allowance is None:
        return None
    found: dict[str, Any] = {"tokens": 0, "usd": 0.0}
    if spent is not None:
        found = {"tokens": spent.tokens, "usd": spent.usd}
        if spent.usd is None:
            found["counted"] = {"tokens": spent.tokens, "usd": spent.counted_usd}
    return BudgetContent(of=edge, spent=found)


def _price(agent: Agent, usage: dict[str, Any]) -> float | None:
    if agent.price is None:
        return None
    try:
        usd = number(agent.price.usd(usage), -1.0)
    except Exception:  # noqa: BLE001 - a price list that raises must not end the turn
        return None
    return None if usd < 0 else round(usd, 9)
