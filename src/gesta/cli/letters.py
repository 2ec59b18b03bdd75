"""What `approve`, `resolve` and `cancel` do: put a letter into a run's inbox.

That needs no agent and no lease. Whoever goes on with the run takes the letter in.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from gesta.address import open_record
from gesta.agent import Agent
from gesta.cli.approving import Verdict, letter, signing_key, who
from gesta.cli.options import AnswerOptions, ApproveOptions, CancelOptions, OnRecord, ResolveOptions, quoted
from gesta.cli.talk import FAILED, RED, Stop, count, json_line, put, say, short
from gesta.cli.voice import call_text
from gesta.cli.waits import awaits_approval, where_it_waits
from gesta.codec.rows import decode_content
from gesta.entry import Entry, fold, utc_text
from gesta.errors import RunHeld
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    BeginContent,
    QuestionContent,
    ResolutionContent,
    SignalContent,
)
from gesta.models.scripted import scripted
from gesta.record.inbox import calls_in_doubt, misfit
from gesta.record.record import Record
from gesta.state.calls import OpenCall
from gesta.state.run import RunState, RunView
from gesta.store import RunRow
from gesta.text.visible import remarks, visible

MOST = 1000
"""Characters of a call that are shown; `gesta log RUN --all` shows all."""


@dataclass(frozen=True)
class Found:
    """A run, where it stands, and what waits in its inbox."""

    record: Record
    row: RunRow
    state: RunState
    hint: str
    """Address of the agent that took its last turn, as far as it is known."""
    root: RunRow
    """The run that is to be resumed."""
    answered: frozenset[int]
    """Questions and attempts that a letter answers already."""


def approve(options: ApproveOptions) -> None:
    """Answer the calls that wait for a person. Raises Stop if no call waits, or if it is unclear which is meant."""

    async def answer(found: Found) -> None:
        verdict, signed = _verdict(options), signing_key() is not None
        waiting = [call for call in found.state.calls.values() if awaits_approval(call)]
        proven = signed or verdict.token is not None
        open_ = [call for call in waiting if proven or call.asked not in found.answered]
        if waiting and not open_:
            raise Stop(
                f"Run {found.row.run} has its answer, but nobody went on with it. {_next(options, found)}", FAILED
            )
        open_ = _in_time(open_, options, found)
        calls = open_ if options.all and open_ else [_one(open_, options.call, found, "approval")]
        if verdict.token is not None and len(calls) > 1:
            raise Stop(f"A token fits one call, and --all means {len(calls)}. Name the call with --call N.")
        how = ", with a token" if verdict.token is not None else f", signed as {verdict.by}" if signed else ""
        for call in calls:
            if not await letter(found.record, found.row.run, call, verdict):
                raise Stop(f"This answer to call {call.seq} was sent before. {_next(options, found)}", FAILED)
            _told(options, verdict.verdict, call, found, how=how, args=verdict.args)
            if call.asked in found.answered:
                say("Another answer to it waits already; the first one that counts decides.")
        left = len(open_) - len(calls)
        say(f"{count(left, 'call')} still to be answered." if left else _next(options, found))

    _with_run(options, options.run, answer, lambda state: any(map(awaits_approval, state.calls.values())))


def _in_time(calls: list[OpenCall], options: ApproveOptions, found: Found) -> list[OpenCall]:
    """Return the calls whose request has not expired.

    Raises Stop if an expired one is meant, or if no other call waits.
    """
    now = found.record.turns.clock()
    late = [call for call in calls if call.expires is not None and call.expires <= now]
    if options.call is not None:
        late = [call for call in late if call.seq == options.call]
    left = [call for call in calls if call not in late]
    if late and (options.call is not None or not left):
        one = len(late) == 1
        what = "The request for approval" if one else f"{len(late)} requests for approval"
        named = "".join(f"\n  call {call.seq}, {_shown(call)}, at {utc_text(call.expires)}" for call in late)  # type: ignore[arg-type] # filtered above
        raise Stop(
            f"{what} in run {found.row.run} {'has' if one else 'have'} expired, so nothing was sent:{named}\n"
            f"{'The call does' if one else 'The calls do'} not run; when the run goes on, the model reads that nobody "
            f"answered in time. {_next(options, found)}"
        )
    return left


def _verdict(options: ApproveOptions) -> Verdict:
    """Return the answer that the options give.

    Raises Stop if they contradict each other, are no JSON, or lack a token.
    """
    said = [name for name in ("deny", "args", "result") if getattr(options, name)]
    if len(said) > 1:
        raise Stop(f"--{said[0]} and --{said[1]} do not go together: one says how the call ends, the other otherwise.")
    args = _json("--args", options.args)
    if args is not None and not isinstance(args, dict):
        raise Stop(f"--args is a JSON {type(args).__name__}, expected an object such as '{{\"amount\": 5}}'.")
    verdict: Any = "denied" if options.deny else "answered" if options.result is not None else "approved"
    by, result = options.by or who(), _json("--result", options.result)
    token = _token(options.token_file) if options.token_file is not None else None
    return Verdict(verdict=verdict, by=by, reason=options.reason, args=args, result=result, token=token)


def _token(path: str) -> str:
    """Read a token from a file. Raises Stop if the file holds no token."""
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Stop(f"Cannot read the token in {path!r}: {why}. Name a file that is there: --token-file FILE") from error
    if not token:
        raise Stop(f"There is no token in {path!r}: expected one line of text. Write the token of `sign` there.")
    return token


def answer(options: AnswerOptions) -> None:
    """Answer a question. Raises Stop if no question waits, if several do, or if the answer does not fit."""

    async def tell(found: Found) -> None:
        run, asked = found.row.run, dict(found.state.questions)
        if not asked:
            raise Stop(
                f"Run {run} waits for no answer: {_standing(found.state)}. `gesta runs` shows what waits.", FAILED
            )
        named = "".join(f"\n  --question {seq}  {short(visible(each.value), MOST)}" for seq, each in asked.items())
        if options.call is not None:
            asked = {seq: content for seq, content in asked.items() if seq == options.call}
        if not asked:
            raise Stop(f"Question {options.call} of run {run} is not among those that wait. Name one of these:{named}")
        if len(asked) > 1:
            raise Stop(f"{len(asked)} questions of run {run} wait. Say which:{named}")
        ((seq, question),) = asked.items()
        value = _fitting(options.text, question)
        content = AnswerContent(of=seq, value=value, by=options.by or who())
        if not await found.record.send(found.row.run, content, key=f"answer-{seq}"):
            raise Stop(f"Question {seq} was answered before. {_next(options, found)}", FAILED)
        if options.json:
            put(json_line({"run": found.row.run, "question": seq, "answer": value}))
        say(_next(options, found))

    _with_run(options, options.run, tell, lambda state: bool(state.questions))


def _fitting(text: str, question: QuestionContent) -> Any:
    """Return an answer in the type that its question asks for. Raises Stop if the answer does not fit."""
    if question.schema is None:
        return text
    wanted = question.schema.get("type")
    if wanted == "string" and not text.startswith('"'):
        return text
    value = _json("The answer", text)
    problem = misfit(value, question.schema)
    if problem is not None:
        raise Stop(f"The answer {problem}. The question was: {visible(question.value)}")
    return value


EARLY = "What was begun may still be at work, and happen after you looked. When it has ended, look and say it again."


def resolve(options: ResolveOptions) -> None:
    """Settle a doubt. Raises Stop if there is no doubt, or if it is not clear which is meant."""
    result = _json("--result", options.result)

    async def settle(found: Found) -> None:
        call = _one(calls_in_doubt(found.state), options.call, found, "doubt")
        assert call.last is not None
        if call.last.doubt is None:
            await _nobody_writes(found)
        content = ResolutionContent(of=call.last.seq, verdict=options.verdict, by=options.by or who(), result=result)
        key = f"resolution-{call.last.seq}{'-over' if call.last.over else ''}"
        if not await found.record.send(found.row.run, content, key=key):
            raise Stop(f"The doubt about call {call.seq} was settled before. {_next(options, found)}", FAILED)
        _told(options, options.verdict, call, found)
        if (
            options.verdict != "done"
            and call.last.process is not None
            and call.last.effect is not None
            and not call.last.over
        ):
            say(EARLY)
        say(_next(options, found))

    _with_run(options, options.run, settle, lambda state: bool(calls_in_doubt(state)))


def cancel(options: CancelOptions) -> None:
    """End the open turn of a run. Raises Stop if no turn is open."""

    async def end(found: Found) -> None:
        turn = found.state.turn
        if turn is None or not found.state.open:
            raise Stop(
                f"No turn is open in run {found.row.run}: {_standing(found.state)}. `gesta runs` shows which are open.",
                FAILED,
            )
        content = SignalContent(name="cancel", by=options.by or who(), reason=options.reason)
        await found.record.send(found.row.run, content, key=f"cancel-{turn.begin}")
        try:
            reason = await _end_turn(found)
        except RunHeld as held:
            reason = "cancel"
            say(f"{held.owner} is writing run {found.row.run} and will end the turn at its next step.")
        else:
            say(f"Run {found.row.run}: the turn is ended ({reason}).")
        if options.json:
            put(json_line({"run": found.row.run, "turn": turn.begin, "reason": reason}))

    _with_run(options, options.run, end)


async def _end_turn(found: Found) -> str:
    """Read the signal and end the turn, since no other process does it. No agent is needed for that."""
    outcome = await found.record.resume(found.row.run, Agent(found.row.name, scripted()))
    return outcome.reason


def _with_run(
    options: OnRecord,
    name: str,
    do: Callable[[Found], Awaitable[None]],
    waits: Callable[[RunState], bool] = lambda _state: True,
) -> None:
    address = options.target()

    async def main() -> None:
        async with open_record(address) as record:
            await do(await find(record, name, waits))

    anyio.run(main)


async def find(record: Record, name: str, waits: Callable[[RunState], bool] = lambda _state: True) -> Found:
    """Find a run, or the one below it in which something waits, and read where it stands. Raises NoRun."""
    row, root = await where_it_waits(record, await record.find(name), waits)
    entries = await record.read(row.run)
    contents = [decode_content(each.content, {}) for each in await record.store.inbox(row.run)]
    answered = frozenset(each.of for each in contents if isinstance(each, ApprovalContent | ResolutionContent))
    above = entries if root.run == row.run else await record.read(root.run)
    return Found(record, row, fold(RunView(), entries), _hint(above), root, answered)


def _hint(entries: list[Entry]) -> str:
    begins = [entry.content for entry in entries if isinstance(entry.content, BeginContent)]
    hints = [begin.agent.hint for begin in begins if begin.agent is not None and begin.agent.hint]
    return hints[-1] if hints else "FILE.py:NAME"


def _one(calls: list[OpenCall], wanted: int | None, found: Found, what: str) -> OpenCall:
    """Return the call that is meant. Raises Stop if there is no such call, or if there are several."""
    run = found.row.run
    named = "".join(f"\n  --call {call.seq}  {_shown(call)}" for call in calls)
    if not calls:
        wait = "waits for no approval" if what == "approval" else "is in no doubt about a call"
        raise Stop(f"Run {run} {wait}: {_standing(found.state)}.", FAILED)
    if wanted is not None:
        chosen = [call for call in calls if call.seq == wanted]
        if not chosen:
            raise Stop(f"Call {wanted} of run {run} is not among those that wait. Name one of these:{named}")
        return chosen[0]
    if len(calls) > 1:
        every = ", or --all for every one" if what == "approval" else ""
        raise Stop(f"{len(calls)} calls of run {run} wait. Say which{every}:{named}")
    return calls[0]


def _standing(state: RunState) -> str:
    turn = state.turn
    if turn is None:
        return "no agent took a turn in it"
    if turn.reason is not None:
        return f"its last turn ended with {turn.reason!r}"
    return "its turn is open and can be resumed"


def _told(
    options: OnRecord, said: str, call: OpenCall, found: Found, *, how: str = "", args: dict[str, Any] | None = None
) -> None:
    """Print the answer about a call again, with the arguments that the call runs with."""
    args = call.final_args if args is None else args
    if options.json:
        put(json_line({"run": found.row.run, "call": call.seq, "tool": call.name, "said": said}))
    else:
        say(f"{said}{how}: {short(call_text(call.name, args), MOST)}")
        for remark in remarks([call.name, args]):
            say(remark, RED)


def _shown(call: OpenCall) -> str:
    return short(call_text(call.name, call.final_args), MOST)


def _next(options: OnRecord, found: Found) -> str:
    return f"Next: gesta resume {found.root.run} {quoted(found.hint)}{options.named}"


def _json(what: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        as_text = f"{what} '\"sent\"'" if what.startswith("-") else "'\"sent\"'"
        raise Stop(f"{what} is {text!r}, expected JSON ({error}). Text goes in quotes: {as_text}") from error


async def _nobody_writes(found: Found) -> None:
    """Check that nobody is making the attempt right now. Raises RunHeld."""
    lease = await found.record.store.lease(found.row.run)
    await found.record.store.release(lease)
