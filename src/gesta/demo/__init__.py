"""The agent of `gesta demo`: a support desk for a small shop, with the address `gesta.demo:agent`.

Its tools are ordinary functions on a real SQLite file. The tool `refund` pays money back. A refund must happen only
once, a person approves it, and after a crash Gesta asks the shop whether the refund happened. The model replays a
conversation that was written for the demo; `--model provider:name` uses a live model instead.
"""

from pathlib import Path
from typing import Annotated, Any

import gesta
from gesta.demo import shop
from gesta.demo.conversation import model

POLICY = (
    "Goods that arrive damaged are refunded in full, to the card or account that paid for them. The customer need not "
    "send them back. A colleague approves each refund; paying it out takes three to five working days."
)

INSTRUCTIONS = """You are the support desk of Harbour & Wick, a small shop for home goods. Be brief and kind.
Ask for the email address before you look anything up. Before a refund, read the order and the refund policy, say what
you would refund, and wait until the customer agrees. Amounts are in euros. Never promise what no tool has confirmed."""


def its_shop(context: gesta.Context) -> Path:
    """Return the path of the shop's file for the session of a call."""
    return shop.place(context.record, context.session)


@gesta.tool(effect="pure")
def find_customer(email: Annotated[str, "the address they order with"], context: gesta.Context) -> dict[str, Any]:
    """Find a customer and their orders, newest first."""
    return shop.customer(its_shop(context), email)


@gesta.tool(effect="pure")
def order_status(order_id: Annotated[int, "number of the order"], context: gesta.Context) -> dict[str, Any]:
    """Read one order: what was in it, what was paid and how, whether it was delivered or refunded."""
    return shop.order(its_shop(context), order_id)


@gesta.tool(effect="pure")
def refund_policy() -> str:
    """Read the shop's rules on refunds."""
    return POLICY


def find_refund(key: str, context: gesta.Context) -> gesta.Done | gesta.NotDone:
    """Return `Done` if a refund with this key was booked, else `NotDone`. Gesta calls this function after a crash."""
    booked = shop.booked_as(its_shop(context), key)
    return gesta.Done(booked) if booked is not None else gesta.NotDone()


@gesta.tool(effect="once", approval=True, reconcile=find_refund)
def refund(
    order_id: Annotated[int, "number of the order"],
    amount: Annotated[str, "in euros, such as 12.50"],
    reason: Annotated[str, "in a few words"],
    context: gesta.Context,
) -> dict[str, Any]:
    """Pay money back to the customer. A colleague approves each refund before it is made."""
    return shop.book(its_shop(context), refund_asked(order_id, amount, reason, context))


def refund_asked(order_id: int, amount: str, reason: str, context: gesta.Context) -> shop.Refund:
    """Return the refund that a call asks for. The refund's key is the idempotency key of the call.

    Args:
        amount: in euros, such as `12.50`.
    """
    return shop.Refund(key=context.key, order_id=order_id, cents=shop.cents(amount), reason=reason, at=context.clock())


agent = gesta.Agent(
    "support",
    model=model(),
    instructions=INSTRUCTIONS,
    tools=[find_customer, order_status, refund_policy, refund],
    hint="gesta.demo:agent",
)
