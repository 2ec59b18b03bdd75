"""Plays the demo in two parts: a refund that a person approves, and the same refund in a process that is killed.

Everything that the demo claims was read from the record, from the shop's file, or from the exit code of a process.
"""

import anyio
from rich.console import Console

import gesta
from gesta.cli.talk import ANSWERED, DOUBT, FAILED, INTERRUPTED, LIMIT, WAITING
from gesta.demo.driver import awaits_approval
from gesta.demo.facts import usage
from gesta.demo.first import play_first
from gesta.demo.second import play_second
from gesta.demo.stage import Choices, Stage, program
from gesta.demo.voice import WIDTH
from gesta.errors import BadAddress

__all__ = ["Choices", "play"]

REPLAYED = (
    "A support desk agent on a real SQLite shop. Its model replays a conversation: no key, no network. The tools, the "
    "shop, the record and the kill are real."
)
LIVE = "A support desk agent on a real SQLite shop, with the live model {}. The customer's messages are written."
NOBODY = "There is no terminal to ask at, and no --yes."
UNANSWERED = "The refund is neither approved nor denied. Its turn waits on the record; approve it and go on with:"
DENIED = "Part 2 would kill a process in the middle of the refund. The refund was denied, so there is nothing to kill."

NEXT = (
    ("why {0} {1}", "what that answer was made from"),
    ("view", "both conversations in a browser"),
)
"""Commands to try after the demo, each with what it shows: about the answer that followed the approval, and about both
conversations."""
NEXT_IN_FULL = (
    ("log {0}", "every line of that conversation"),
    ("runs", "every run on this record"),
    ("verify", "whether a byte of it was changed"),
    ("export last", "a run as JSON lines"),
    ('sql "SELECT kind, count(*) FROM entries GROUP BY kind"', ""),
)


def play(choices: Choices, console: Console) -> int:
    """Play both parts, and return the exit code.

    Raises:
        GestaError: the record cannot be written, or the model cannot be used.
    """
    if choices.address == ":memory:" or "://" in choices.address:
        raise BadAddress(f"The demo needs a record in a file, not {choices.address!r}: --record FILE.gesta")
    stage = Stage(choices, console)
    try:
        return _play(stage)
    except KeyboardInterrupt:
        stage.voice.line()
        stage.voice.paragraph("Interrupted. What was done is on the record; go on with:")
        stage.voice.line(f"  {stage.resume}")
        return INTERRUPTED


def _play(stage: Stage) -> int:
    stage.agent()
    number = anyio.run(stage.free_number)
    live = stage.choices.model or stage.choices.base_url
    stage.voice.paragraph(LIVE.format(live) if live else REPLAYED)
    outcome, verdict = play_first(stage, f"demo-{number}")
    if awaits_approval(outcome):
        stage.voice.line()
        stage.voice.paragraph(UNANSWERED if stage.choices.interactive else f"{NOBODY} {UNANSWERED}")
        stage.voice.line(f"  {program()} approve last{stage.choices.named} && {stage.resume}")
        return WAITING
    code = _judged(stage, outcome)
    if code == ANSWERED and verdict is not None and verdict.verdict == "approved":
        second = anyio.run(play_second, stage, f"demo-{number}-crash", verdict)
        code = FAILED if second is None else _judged(stage, second)
    elif code == ANSWERED:
        stage.voice.line()
        stage.voice.paragraph(DENIED if verdict is not None else "The model asked for no refund: there is no part 2.")
    anyio.run(_close, stage)
    return code


def _judged(stage: Stage, outcome: gesta.Outcome) -> int:
    """Return the exit code for the outcome of a turn. If the turn has no answer, print why."""
    if outcome.reason == "answered":
        return ANSWERED
    said = outcome.error.message if outcome.error is not None else f"waits for {outcome.waiting}"
    stage.voice.line()
    stage.voice.paragraph(f"The turn ended without an answer ({outcome.reason}): {said}", "bold red")
    return {"waiting": DOUBT, "limit": LIMIT, "budget": LIMIT}.get(outcome.reason, FAILED)


async def _close(stage: Stage) -> None:
    """Print the commands to try next. With `--full`, first print the cost and the paths of the files."""
    async with gesta.open(stage.choices.address) as record:
        took = usage([entry for session in stage.sessions for entry in await stage.entries(record, session)])
    live, voice = bool(stage.choices.live), stage.voice
    voice.line()
    if stage.choices.full:
        voice.fact("tokens", took.text if live else f"{took.text}, as written into the conversation; none was bought")
        voice.fact("cost", "unknown" if live else "unknown: a replay has no price")
        voice.fact("record", stage.choices.address)
        voice.fact("shops", ", ".join(str(stage.shop(session)) for session in stage.sessions))
        voice.line()
        voice.line("Worth trying next:")
    session = stage.sessions[-1]
    answer = stage.transcript(session).answer
    next_ = (*NEXT, *(NEXT_IN_FULL if stage.choices.full else ()))
    lines = [
        f"  {program()} {command.format(session, answer or '').rstrip()}{stage.choices.named}" for command, _ in next_
    ]
    width = max(len(line) for line in lines[: len(NEXT)]) + 4
    for line, (_, what) in zip(lines, next_, strict=True):
        told = f"{line:<{width}}{what}"
        voice.line(told if what and len(line) < width and len(told) < WIDTH else line)
