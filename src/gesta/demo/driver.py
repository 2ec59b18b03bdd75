"""Runs the demo's conversation as a program would: it sends each message under a key, and again after a crash.

A record is the store of all runs. A message whose key is in the record is not added again. If the turn of that message
has ended, the outcome is returned; if the turn is open, it is resumed. So one function begins a conversation, and also
continues it after its process was killed or a person has answered.
"""

from typing import Literal

import msgspec

import gesta
from gesta import address
from gesta.demo import agent as support_desk
from gesta.demo.conversation import MESSAGES, model
from gesta.errors import BadAddress
from gesta.kinds import ApprovalContent


def key(place: int) -> str:
    """Return the key of the message with this number, from 0."""
    return f"m{place}"


def staffed(live: str | None, base_url: str | None, pause_s: float = 0.0) -> gesta.Agent:
    """Return the demo's agent, with a live model if one is named, else with a model that replays recorded answers.

    Args:
        live: address of the live model, `provider:name`; `None` for the recorded answers.
        base_url: base URL of the live model.
        pause_s: seconds between the pieces of a replayed answer.

    Raises:
        BadAddress: `live` is wrong, or only `base_url` is given.
        NoKey: the live model needs an API key, and none is set.
    """
    if base_url and not live:
        raise BadAddress("A base URL says where, but not which model. Add --model NAME, by that server's name for it.")
    chosen = address.model(live, base_url) if live else model(pause_s)
    return msgspec.structs.replace(support_desk, model=chosen)


def awaits_approval(outcome: gesta.Outcome) -> bool:
    """Return whether a turn waits for approvals, and for nothing else."""
    return bool(outcome.waiting) and all(waiting.what == "approval" for waiting in outcome.waiting)


async def answer(record: gesta.Record, outcome: gesta.Outcome, verdict: Literal["approved", "denied"], by: str) -> None:
    """Approve or deny every call that waits for approval, as the person `by`.

    The answers go to the inbox of the run.
    """
    for waiting in outcome.waiting:
        assert waiting.of is not None, f"nobody was asked about call {waiting.call}"
        await record.send(
            outcome.run, ApprovalContent(of=waiting.of, verdict=verdict, by=by), key=f"approval-{waiting.of}"
        )


async def drive(record: gesta.Record, agent: gesta.Agent, session: str, by: str) -> gesta.Outcome:
    """Send every message under its key, and approve each call that waits, as the person `by`.

    Return the outcome of the last turn.
    """
    for place, text in enumerate(MESSAGES):
        outcome = await record.run(agent, text, session=session, key=key(place))
        while awaits_approval(outcome):
            await answer(record, outcome, "approved", by)
            outcome = await record.run(agent, text, session=session, key=key(place))
        if outcome.reason != "answered":
            break
    return outcome
