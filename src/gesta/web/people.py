"""The requests by which a person answers, on a page, what a run waits for. No other request of the viewer writes.

Each request opens the record for writing, puts one message into the inbox of a run, and closes the record. The process
that drives the run reads the message and continues the run. A wait is one thing that an open turn needs before it can
go on, such as an approval or an answer to a question. A doubt is a tool call that may or may not have had its effect; a
turn also waits for a decision about it. A session is a group of runs.
"""

from typing import Any, Literal, assert_never

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from gesta.address import open_record
from gesta.cli.approving import Verdict, give, who
from gesta.decide.waiting import PERSON, QUESTION, SENT, Waiting
from gesta.errors import AgentError, BrokenRecord, NotWaiting
from gesta.record.answers import Receipt, check_shown
from gesta.record.record import Record
from gesta.serve.bodies import Received, answered, read
from gesta.stores.session_list import listed
from gesta.text.visible import visible, visible_value
from gesta.views.sessions import SessionFilter
from gesta.web.data import Pages


class Word(Received, frozen=True, kw_only=True):
    """A person's answer to one wait."""

    run: str
    of: int
    """Seq of the entry that is answered: the approval-request, the question, or the attempt in doubt."""
    verdict: Literal["approved", "denied", "answered", "done", "failed", "retry"]
    by: str
    args: dict[str, Any] | None = None
    """Arguments to use in place of the model's; `None` keeps those of the model."""
    value: Any = None
    """The answer to a question, or the result of a call."""
    reason: str | None = None
    waiting: Waiting | None = None
    """The wait as the page showed it. If another one is in its place now, the answer is refused."""


class Shown(Struct, frozen=True):
    """A wait with the facts that the person who answers needs."""

    wait: Waiting
    visible: Any
    """The arguments or the question, with invisible characters replaced by visible marks."""
    why: str
    """The `why` of the wait, likewise."""
    answerable: bool
    until: str
    """If a person cannot answer this wait on the page: a sentence about what makes the turn go on; otherwise empty."""
    said: str
    """The last message of a person in the session; empty if there is none."""


async def waiting(_request: Request, pages: Pages) -> Response:
    """Return the waits of all sessions, for the page, and the name of the user of this machine."""
    index, wanted = await pages.listing.whole(), SessionFilter(stands="waiting", limit=None)
    found = await listed(index, wanted, pages.record.now())
    waits = list[Shown]()
    for several in [session.waiting for session in found.sessions if session.waiting]:
        said = await last_said(pages, several[0].session)
        waits += [shown(wait, said) for wait in several]
    return answered({"waiting": waits, "by": who()})


async def last_said(pages: Pages, session: str) -> str:
    """Return a person's last message in a session; "" if there is none, or if the session's runs are damaged."""
    try:
        said = [each for each in await pages.record.history(session) if each.role == "user"] if session else []
    except BrokenRecord:  # the evidence says why
        return ""
    return visible(str(said[-1].text)) if said else ""


def shown(wait: Waiting, said: str) -> Shown:
    """Return a wait with the facts that the person who answers needs.

    Args:
        said: the last message of a person in the session.
    """
    asks = wait.what == "question" or wait.args is None
    words = visible(wait.question) if asks else visible_value(msgspec.to_builtins(wait.args))
    return Shown(wait, words, visible(wait.why), wait.what in PERSON and wait.answer_sent_at is None, until(wait), said)


def until(wait: Waiting) -> str:
    """Return a sentence about what ends a wait; empty for a wait that a person can answer on the page."""
    if wait.answer_sent_at is not None:
        return f"{SENT.capitalize()}."
    match wait.what:
        case "approval" | "question" | "budget" | "doubt":
            return ""
        case "timer":
            return "It goes on when its time comes" + (f": {wait.due:%Y-%m-%d %H:%M:%S} UTC." if wait.due else ".")
        case "running":
            return "A process may still be at work on it."
        case "child":
            return "A run below has to end first."
        case "resume":
            return "Continue it with gesta resume."
        case "deaths":
            return "Too many processes died in it: continue it with gesta resume."
        case "copy":
            return "This record is a copy: gesta adopt makes it go on."
    assert_never(wait.what)


async def answer(request: Request, pages: Pages) -> Response:
    """Put a person's answer into the inbox of the waiting run.

    Raises:
        NotWaiting: no run waits for this answer.
        NoRecord: the record is not at its address any more. No new one is made.
    """
    word = await read(request, Word)
    if not word.by.strip():
        raise AgentError("Nobody is named who answers. Write your name.")
    async with open_record(pages.address, readonly=True):  # raises for a record that was moved away or deleted
        pass  # opening it for writing would make a new one
    async with open_record(pages.address) as record:
        waits = [each for each in await record.waiting(word.run) if each.of == word.of and each.run == word.run]
        if not waits:
            raise NotWaiting(word.run, "approval", [], wanted=word.of)
        check_shown(word.waiting, waits[0])
        receipt = await _given(record, waits[0], word)
    return answered({"new": not receipt.again, "tool": receipt.tool}, 202)


async def _given(record: Record, wait: Waiting, word: Word) -> Receipt:
    match wait.what, word.verdict:
        case "approval", "approved" | "denied" | "answered" as verdict:
            said = Verdict(verdict=verdict, by=word.by, reason=word.reason, args=word.args, result=word.value)
            return await give(record, wait, said)
        case what, "answered" if what in QUESTION:
            return await record.answer(wait, word.value, by=word.by)
        case "doubt", "done" | "failed" | "retry" as verdict:
            return await record.resolve(wait, verdict, by=word.by, result=word.value)
        case what, verdict:
            raise AgentError(f"{verdict!r} is not an answer to a wait for {what}.")
