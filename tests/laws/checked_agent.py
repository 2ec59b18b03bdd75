"""Agents of which everything is checked, for processes that are killed: hooks, instructions, deps, a tool that ends the turn."""

import os
from typing import Any

import gesta
from gesta.hooks import Add, Asking, AskPerson, Calling, Change, Hooks, Refuse

JUDGE = gesta.Agent("judge", model=gesta.scripted("fine"))


class Till:
    """What the tools need; made anew in each process."""

    rate = 2


def rules(_context: gesta.Context[Till]) -> str:
    """Make other instructions each time."""
    return f"You pay. {os.urandom(4).hex()}"


@gesta.tool(effect="once", reconcile=lambda _key: gesta.Done("paid, as it seems"))
async def pay(cents: int, context: gesta.Context[Till]) -> str:
    """Pay."""
    return f"paid {cents * context.deps.rate}"


@gesta.tool(effect="pure", ends_turn=True)
async def hand_over(to: str) -> str:
    """Hand over."""
    if to == "Bob":
        raise gesta.ToolError("Bob is away.")
    return f"handed over to {to}"


async def message(text: str, context: gesta.Context[Till]) -> Change:
    """Change a message once another agent has seen it."""
    await context.call(JUDGE, text)
    return Change(f"{text}!")


def request(asking: Asking, _context: gesta.Context[Till]) -> Add:
    """Remind."""
    return Add(f"Reminder {asking.number}.")


def call(calling: Calling, _context: gesta.Context[Till]) -> Change | Refuse | AskPerson | None:
    """Change a call, refuse one, and leave one to a person."""
    verdicts: dict[int, Change | AskPerson | Refuse] = {
        1: Change({"cents": 2}),
        7: AskPerson("That is a lot."),
        9: Refuse("Not nine."),
    }
    return verdicts.get(calling.args.get("cents", 0))


async def answer(text: str, context: gesta.Context[Till]) -> Change:
    """Change an answer once another agent has seen it."""
    await context.call(JUDGE, text)
    return Change(text.replace("Ann", "a colleague"))


def agent(*script: Any, hooks: Hooks) -> gesta.Agent[Any]:
    """Make an agent with these hooks."""
    model, policy = gesta.scripted(*script), gesta.Policy(deaths=1000)
    tools = [pay, hand_over]
    return gesta.Agent("desk", model=model, instructions=rules, tools=tools, hooks=hooks, deps=Till, policy=policy)


calls = [*(gesta.call("pay", cents=cents) for cents in (1, 7, 9)), gesta.call("hand_over", to="Bob")]
whole = agent(
    gesta.reply(calls=calls),
    gesta.call("hand_over", to="Ann"),
    hooks=Hooks(message=message, request=request, call=call, answer=answer),
)
short = agent(
    gesta.reply(calls=[gesta.call("pay", cents=1), gesta.call("hand_over", to="Ann")]), hooks=Hooks(call=call)
)
