"""Part 1 of the demo: the conversation is streamed, and a person is asked before money is paid back.

A turn is one message of the customer with all that follows until the agent's answer.
"""

from contextlib import suppress

import anyio
from rich.text import Text

import gesta
from gesta.cli.approving import who
from gesta.demo.conversation import MESSAGES
from gesta.demo.driver import answer, awaits_approval, key
from gesta.demo.stage import Stage, Verdict
from gesta.demo.voice import CUSTOMER

PAUSE_S = 0.03
"""Seconds between the pieces of a replayed answer, on a terminal."""


def play_first(stage: Stage, session: str) -> tuple[gesta.Outcome, Verdict | None]:
    """Run the conversation until it ends, or until a turn waits for a person who cannot be asked.

    Returns:
        The outcome of the last turn, and the person's answer about the refund; `None` if no person answered.
    """
    stage.open_shop(session)
    stage.voice.heading(f"Part 1: a refund that a person approves (session {session})")
    verdict = None
    for place, text in enumerate(MESSAGES):
        if stage.choices.full:
            stage.voice.line()
            stage.voice.person(CUSTOMER, text)
        outcome = anyio.run(_say, stage, session, place)
        while awaits_approval(outcome):
            verdict = _asked(stage, outcome)
            if verdict is None:
                return outcome, None
            anyio.run(_answer, stage, outcome, verdict)
            outcome = anyio.run(_say, stage, session, place)
        if outcome.reason != "answered":
            break
    return outcome, verdict


async def _say(stage: Stage, session: str, place: int) -> gesta.Outcome:
    """Send message number `place`, or resume its turn, and print what happens. Return the turn's outcome.

    The words of the answer are streamed only with `--full`.
    """
    full = stage.choices.full
    agent = stage.agent(PAUSE_S if full and stage.console.is_terminal else 0.0)
    async with gesta.open(stage.choices.address) as record:
        stream = record.stream(agent, MESSAGES[place], session=session, key=key(place))
        async for event in stream:
            if event.type == "observation" or not (full or event.type == "answer"):
                await stage.show_new(record, session, spoken=not full)
            if full or event.type == "error":
                stage.voice.hear(event)
        stage.voice.close()
        await stage.show_new(record, session, spoken=not full)
    assert stream.outcome is not None
    return stream.outcome


async def _answer(stage: Stage, outcome: gesta.Outcome, verdict: Verdict) -> None:
    async with gesta.open(stage.choices.address) as record:
        await answer(record, outcome, verdict.verdict, verdict.by)


def _asked(stage: Stage, outcome: gesta.Outcome) -> Verdict | None:
    """Ask on the terminal whether the refund may be made, and return the answer; `None` if nobody can be asked.

    With the option `--yes`, approve the refund without asking.
    """
    if stage.choices.yes:
        return Verdict("approved", "--yes")
    if not stage.choices.interactive:
        return None
    full = stage.choices.full
    if full:
        stage.voice.line()
        stage.voice.paragraph("The record waits for a person. May this call run?", "bold")
        for waiting in outcome.waiting:
            stage.voice.paragraph(f"  {stage.transcript(outcome.session).called(waiting.call or 0)}")
    with suppress(EOFError):
        while True:
            said = (
                stage.console.input(Text("Approve? [y/n] " if full else f"{'you':>8}  Approve? [y/n] ")).strip().lower()
            )
            if said in {"y", "yes", "n", "no"}:
                if full:
                    stage.voice.line()
                return Verdict("approved" if said.startswith("y") else "denied", who())
    stage.voice.line()
    return None
