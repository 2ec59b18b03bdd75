"""Matches a person's answer to the thing that a run waits for.

A record is the store of all runs. A run is one conversation of an agent: a list of entries. The seq of an entry is its
number in the run. A wait is one thing that stops the open turn of a run, such as a tool call that needs approval. A
person answers with an approval, an answer to a question, or a resolution. A resolution says whether a call in doubt
(one that may or may not have happened) did happen. Each run has an inbox, in which answers wait until they become
entries. Only the first answer to a wait is used. The same answer again changes nothing, and a different answer is
refused.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gesta.codec.rows import decode_content, encode_content
from gesta.decide.waiting import APPROVAL, DOUBT, QUESTION, Waiting, changed, doubts, told_doubts, waits
from gesta.entry import utc_text
from gesta.errors import AgentError, Expired, NoRun, NotWaiting, RunHeld, SaidBefore
from gesta.kinds import AnswerContent, ApprovalContent, Content, ResolutionContent
from gesta.log.journal import read
from gesta.record.waits import WORDS, answers_sent, state_of, waits_of
from gesta.state.opening import check_here
from gesta.state.run import RunState, RunView
from gesta.store import Store
from gesta.text.objects import MAX_DEPTH
from gesta.text.redactor import SECRETS

Word = ApprovalContent | AnswerContent | ResolutionContent
VALUES = {ApprovalContent: ("args", "result"), AnswerContent: ("value",), ResolutionContent: ("result",)}
"""For each class of answers, the fields with a person's own values, which a tool or a program gets as they are."""
BITS = 14_284
"""Bits of the longest integer that is accepted: Python writes and reads integers of at most 4,300 digits."""


class Receipt(Struct, frozen=True, kw_only=True):
    """The receipt for a person's answer: the answer, the person who gave it, and the run to resume."""

    verdict: str
    """`approved`, `denied` or `answered`; for a resolution `done`, `failed` or `retry`."""
    run: str
    """Id of the run that the answer is about; its inbox received the answer."""
    root: str
    """Id of the run to resume: the same run, or the root run above it."""
    session: str
    of: int
    """Seq of the entry that was answered: the approval-request, the question, or the attempt in doubt."""
    call: int | None
    """Seq of the tool call; `None` for a question of a program."""
    tool: str | None
    """Name of the tool; `None` for a question of a program."""
    by: str
    """Name of the person who gave this answer first."""
    again: bool = False
    """Whether the same answer had been given before, so that nothing was sent."""
    contested: bool = False
    """Whether a different answer with another token came before and was not judged yet. If that one is valid, it
    counts, and this one does not. An opened record with the program's `approver` judges it at once."""


class Meant(NamedTuple):
    """The wait that a person's answer is about, and whether it was answered before."""

    waiting: Waiting
    known: Word | None
    """The answer that already ended this wait; `None` if nobody has answered it."""


async def meant(store: Store, waiting: Waiting | str, kinds: Sequence[str], wanted: int | None, now: datetime) -> Meant:
    """Return the one wait that a person's answer is for, also if it was answered before.

    Args:
        store: the store of the record.
        waiting: the wait itself, or the id of the run that waits, or the id of a run above that run.
        kinds: kinds of waits that the answer can be for, such as `approval`.
        wanted: seq of the call, request, question or attempt to answer; `None` if only one wait fits.
        now: the present time, which decides whether a request for approval has expired.

    Raises:
        NotWaiting: no wait fits, or several do; the error then lists the arguments that choose each. Or the wait that
            was shown was replaced by another one, such as a call with other arguments.
        Expired: the request for approval has expired.
        RunMirrored: the run is continued in another record.
        NoRun: there is no such run.
    """
    run = waiting.run if isinstance(waiting, Waiting) else waiting
    state = await state_of(store, run)
    if state.opened is None:
        raise NoRun(run)
    await check_home(store, run, state)
    shown = waiting if isinstance(waiting, Waiting) else None
    if shown is not None and (wanted := shown.of if shown.what in kinds else None) is None:
        raise NotWaiting(run, kinds[0], [], others=[shown.text])
    if not state.open:
        found = doubts(run, state)
    else:
        found = waits(run, state, now) if shown is not None else await waits_of(store, run, now)
        found = [*found, *told_doubts(run, state)] if kinds == DOUBT else found
    fit = [each for each in found if each.what in kinds and wanted in (None, each.call, each.of)]
    if wanted is None:
        fit = [each for each in fit if not _expired_by(each, now)] or fit
        if len(fit) > 1:
            sent = await answers_sent(store, {each.run for each in fit})
            fit = [each for each in fit if each.of not in sent.get(each.run, {})] or fit[:1]
    if len(fit) == 1:
        (one,) = fit
        check_shown(shown, one)
        if _expired_by(one, now):
            raise Expired(one.run, one.call or 0, utc_text(one.expires or now))
        await check_home(store, one.run, None)
        return Meant(one, None)
    if not fit and wanted is not None and (before := await _before(store, run, kinds, wanted)) is not None:
        check_shown(shown, before.waiting)
        return before
    rest = [each for each in found if each.what in kinds]
    others = [each.text for each in found if each.what not in kinds]
    raise NotWaiting(run, kinds[0], _named(fit or rest, run), wanted=wanted, others=others, missed=not fit)


def refuse_odd(content: Content) -> None:
    """Raise AgentError if a person's answer holds a value that JSON cannot hold, such as a Decimal, bytes or NaN."""
    for field in VALUES.get(type(content), ()):
        refuse_no_json(field, getattr(content, field))


def refuse_no_json(field: str, value: Any) -> None:
    """Raise AgentError if JSON cannot hold a value that a person gave.

    Args:
        field: name of the argument with the value, for the error.
    """
    if (problem := _no_json(value, "$", 0)) is not None:
        todo = "Expected JSON: text, whole or finite numbers, true, false, null, and lists and objects of them."
        raise AgentError(f"{field}=...: {SECRETS.text(problem):.300}. {todo}")


def _no_json(value: Any, where: str, depth: int) -> str | None:
    """Return what JSON cannot hold in a value, and where; `None` if it can hold all of it."""
    if value is None or isinstance(value, str | bool):
        return None
    if isinstance(value, int):
        long = value.bit_length() > BITS
        return f"found an integer of {value.bit_length():,} bits at `{where}`, more than 4,300 digits" if long else None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"found {float(value)} at `{where}`"
    if not isinstance(value, dict | list | tuple):
        return f"found {_odd_text(value)} at `{where}`"
    if depth == MAX_DEPTH:
        return f"found more than {MAX_DEPTH} levels of lists and objects"
    if not isinstance(value, dict):
        inside = (_no_json(each, f"{where}[{at}]", depth + 1) for at, each in enumerate(value))
    elif odd := [key for key in value if not isinstance(key, str)]:
        return f"found the key {_odd_text(odd[0])} at `{where}`, expected a text"
    else:
        inside = (_no_json(each, f"{where}.{key}", depth + 1) for key, each in value.items())
    return next((problem for problem in inside if problem is not None), None)


def _odd_text(value: Any) -> str:
    """Return a value and its type for an error, without secrets, and also if its `repr` fails."""
    text = "?"
    with suppress(Exception):
        text = SECRETS.text(repr(value))[:60]
    return f"{text} (of type {type(value).__name__})"


def check_shown(shown: Waiting | None, now: Waiting) -> None:
    """Raise NotWaiting if a person was shown another wait than the one that has its run, kind and seq now.

    Args:
        shown: what the person was shown; `None` if the person named a run.
        now: the wait that is on record.
    """
    if shown is not None and (parts := changed(shown, now)):
        other = f"another {now.text} than was shown ({', '.join(parts)} changed)"
        raise NotWaiting(now.run, _kind(now), [], wanted=now.of, others=[other])


def check_turn(shown: Waiting | str, run: str, state: RunState, now: datetime) -> None:
    """Raise NotWaiting if a run has no open turn, or if its open turn is not that of the wait that a person was shown.

    Args:
        shown: what the person was shown; a text if the person named a run.
        state: state of the run.
        now: the present time.
    """
    if state.turn is None or not state.open:
        raise NotWaiting(run, "turn", [])
    if isinstance(shown, Waiting):
        if shown.of is not None and shown.of < state.turn.begin:
            raise NotWaiting(run, "turn", [], wanted=shown.of, others=["another turn than was shown"])
        for each in waits(run, state, now):
            if (each.what, each.of) == (shown.what, shown.of):
                check_shown(shown, each)


async def sent_as(store: Store, about: Waiting, key: str) -> Word | None:
    """Return the answer that was sent with the key `key`; `None` if there is none.

    The answer may still be in the inbox of the run, or be an entry of the run already.
    """
    for letter in await store.inbox(about.run):
        if letter.key == key and isinstance(content := decode_content(letter.content, {}), WORDS):
            return content
    before = await _before(store, about.run, [about.what], about.of or 0)
    return before.known if before is not None else None


async def told(store: Store, about: Waiting, word: Word, known: Word | None, *, sent: bool) -> Receipt:
    """Return the receipt for a person's answer.

    Args:
        about: the wait that was answered.
        word: the answer.
        known: the answer that was given before; `None` if there is none.
        sent: whether the inbox accepted the answer. The inbox refuses an answer whose key was used before.

    Raises:
        SaidBefore: a different answer was given before.
    """
    if not sent and (known is None or _meaning(known) != _meaning(word)):
        was, by = (_verdict(known), known.by) if known is not None else ("answered", "somebody")
        raise SaidBefore(about.run, _named([about], about.run)[0], was, by, await _root(store, about))
    return Receipt(
        verdict=_verdict(word),
        run=about.run,
        root=await _root(store, about),
        session=about.session,
        of=about.of or 0,
        call=about.call,
        tool=about.tool,
        by=word.by if known is None else known.by,
        again=not sent,
    )


def _kind(waiting: Waiting) -> str:
    """Return the kind of a wait as `NotWaiting` names it."""
    return next(kinds[0] for kinds in (APPROVAL, QUESTION, DOUBT) if waiting.what in kinds)


def _expired_by(waiting: Waiting, now: datetime) -> bool:
    return waiting.expires is not None and waiting.expires <= now


def _named(waits: Sequence[Waiting], run: str) -> list[str]:
    """Return a text for each wait, to be listed in an error: `call=4 (send_mail) in run 'ab12'`."""
    named = []
    for each in waits:
        chosen = f"of={each.of}" if each.what in QUESTION else f"call={each.call}"
        below = f" in run {each.run!r}" if each.run != run else ""
        named.append(f"{chosen} ({(each.question or each.tool or ''):.60}){below}")
    return named


async def check_home(store: Store, run: str, state: RunState | None) -> None:
    """Raise RunMirrored if a run is continued in another record.

    Args:
        state: state of the run; `None` to compute it from the recorded entries.
    """
    state = await state_of(store, run) if state is None else state
    check_here(run, state, store)
    if state.opened is not None and not state.moved and state.opened.record != store.info.id:
        with suppress(RunHeld):  # made in another record: taking the lease fails if it is a mirror
            await store.release(await store.lease(run))


async def _before(store: Store, run: str, kinds: Sequence[str], wanted: int) -> Meant | None:
    """Return a wait that was answered before, with its recorded answer; `None` if there is none.

    Cost: reads the run.

    Args:
        kinds: kinds of waits to look for, such as `approval`.
        wanted: seq of the call, request, question or attempt that was answered.
    """
    state, view, found = RunState(), RunView(), None
    for entry in await read(store, run):
        word = entry.content
        if isinstance(word, WORDS) and getattr(word, "refused", None) is None:
            then = [*waits(run, state, entry.at), *(told_doubts if state.open else doubts)(run, state)]
            for each in then:
                if each.of == word.of and each.what in kinds and wanted in (each.call, each.of):
                    found = Meant(each, word)
        state = view.apply(state, entry)
    return found


async def _root(store: Store, about: Waiting) -> str:
    above = {row.run: row.parent_run for row in await store.runs(about.session)}
    run, met = about.run, set[str]()
    while (parent := above.get(run)) is not None and parent in above and run not in met:
        met.add(run)
        run = parent
    return run


def _meaning(word: Word) -> str:
    """Return an answer as a text without its author. Two answers with the same meaning have the same text."""
    bare: dict[str, Any] = {"by": "", "sent_at": None}
    if isinstance(word, ApprovalContent):
        bare |= {"reason": None, "token": None, "refused": None}
    return encode_content(replace(word, **bare))


def other_than(word: Word) -> Callable[[Word], bool]:
    """Return a function that returns whether an answer differs from `word` in more than its author and its token."""
    return lambda each: _meaning(each) != _meaning(word)


def _verdict(word: Word) -> str:
    return "answered" if isinstance(word, AnswerContent) else word.verdict
