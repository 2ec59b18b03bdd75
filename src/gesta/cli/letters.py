"""Implements `approve`, `answer`, `resolve` and `cancel`, which write a letter to a run's inbox.

A record is the store of all runs. A letter is a message that waits in the inbox until the process that resumes the run
reads it. A command needs neither the agent nor the lease (the right to write the run) to write a letter. A wait is one
thing that an open turn cannot go on without, such as a person's approval of a call. A call in doubt is one that may or
may not have had its effect.
"""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from gesta.address import open_record
from gesta.cli.approving import Verdict, give, signing_key, who
from gesta.cli.options import AnswerOptions, ApproveOptions, CancelOptions, OnRecord, ResolveOptions, quoted
from gesta.cli.talk import FAILED, RED, Stop, count, json_line, put, say, short
from gesta.cli.waits import MOST, Found, find, shown
from gesta.decide.waiting import APPROVAL, DOUBT, QUESTION, SENT, Waiting
from gesta.entry import utc_text
from gesta.errors import SaidBefore
from gesta.record.inbox import misfit
from gesta.text.visible import remarks, visible


def approve(options: ApproveOptions) -> None:
    """Send a person's answer about the calls that wait for approval, and print the command to type next.

    Raises Stop if no call waits, or if several wait and the options name none of them.
    """

    async def answer(found: Found) -> None:
        verdict, signed = _verdict(options), signing_key() is not None
        waiting = found.waiting(*APPROVAL)
        proven = signed or verdict.token is not None
        open_ = [each for each in waiting if proven or each.answer_sent_at is None]
        if waiting and not open_:
            raise Stop(f"Run {waiting[0].run}: {SENT}. {_next(options, found)}", FAILED)
        open_ = _in_time(open_, options, found)
        calls = open_ if options.all and open_ else [_one(open_, options.call, found, "approval")]
        if len(calls) > 1 and (verdict.token is not None or verdict.args is not None):
            what = "A token fits" if verdict.token is not None else "--args fits"
            raise Stop(f"{what} one call, and --all means {len(calls)}. Name the call with --call N.")
        how = ", with a token" if verdict.token is not None else f", signed as {verdict.by}" if signed else ""
        for each in calls:
            if (await give(found.record, each, verdict)).again:
                raise Stop(f"This answer to call {each.call} was sent before. {_next(options, found)}", FAILED)
            _told(options, verdict.verdict, each, how=how, args=verdict.args)
            if each.answer_sent_at is not None:
                say("Another answer to it waits already; the first one that counts decides.")
        left = len(open_) - len(calls)
        say(f"{count(left, 'call')} still to be answered." if left else _next(options, found))

    _with_run(options, options.run, answer)


def _in_time(waits: list[Waiting], options: ApproveOptions, found: Found) -> list[Waiting]:
    """Return the waits whose request for approval has not expired.

    Raises Stop if the request of the call named by --call has expired, or if all have.
    """
    now = found.record.now()
    late = [each for each in waits if each.expires is not None and each.expires <= now]
    if options.call is not None:
        late = [each for each in late if each.call == options.call]
    left = [each for each in waits if each not in late]
    if late and (options.call is not None or not left):
        one = len(late) == 1
        what = "The request for approval" if one else f"{len(late)} requests for approval"
        named = "".join(f"\n  call {each.call}, {shown(each)}, at {utc_text(each.expires or now)}" for each in late)
        raise Stop(
            f"{what} in run {late[0].run} {'has' if one else 'have'} expired, so nothing was sent:{named}\n"
            f"{'The call does' if one else 'The calls do'} not run; when the run goes on, the model reads that nobody "
            f"answered in time. {_next(options, found)}"
        )
    return left


def _verdict(options: ApproveOptions) -> Verdict:
    """Return the answer that the options express: allowed, denied or answered, with its reason and token.

    Raises Stop for options that contradict each other, for a text that is not JSON, and for an empty token file.
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
    """Return the token in a file. Raises Stop if the file holds no token."""
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Stop(f"Cannot read the token in {path!r}: {why}. Name a file that is there: --token-file FILE") from error
    if not token:
        raise Stop(f"There is no token in {path!r}: expected one line of text. Write the token of `sign` there.")
    return token


def answer(options: AnswerOptions) -> None:
    """Send a person's answer to a question of a run, and print the command to type next.

    Raises Stop if no question waits, if several wait and none is named, or if the type of the answer is wrong.
    """

    async def tell(found: Found) -> None:
        run, asked = found.row.run, found.waiting(*QUESTION)
        if not asked:
            raise Stop(f"Run {run} waits for no answer: {_standing(found)}. `gesta runs` shows what waits.", FAILED)
        run = asked[0].run
        named = "".join(f"\n  --question {each.of}  {short(visible(each.question), MOST)}" for each in asked)
        if options.call is not None:
            asked = [each for each in asked if each.of == options.call]
        if not asked:
            raise Stop(f"Question {options.call} of run {run} is not among those that wait. Name one of these:{named}")
        if len(asked) > 1:
            raise Stop(f"{len(asked)} questions of run {run} wait. Say which:{named}")
        value = _fitting(options.text, asked[0])
        before = Stop(f"Question {asked[0].of} was answered before. {_next(options, found)}", FAILED)
        try:
            receipt = await found.record.answer(asked[0], value, by=options.by or who())
        except SaidBefore as error:
            raise before from error
        if receipt.again:
            raise before
        if options.json:
            put(json_line({"run": receipt.run, "question": receipt.of, "answer": value}))
        say(_next(options, found))

    _with_run(options, options.run, tell)


def _fitting(text: str, question: Waiting) -> Any:
    """Return the answer as a value of the type that the question asks for. Raises Stop if the answer does not fit."""
    if question.schema is None:
        return text
    wanted = question.schema.get("type")
    if wanted == "string" and not text.startswith('"'):
        return text
    problem = misfit(text, question.schema)
    if problem is None and ("anyOf" in question.schema or "enum" in question.schema):
        return text
    if "enum" in question.schema and not _is_json(text):
        raise Stop(f"The answer {problem}. The question was: {visible(question.question)}")
    value = _json("The answer", text)
    problem = misfit(value, question.schema)
    if problem is not None:
        raise Stop(f"The answer {problem}. The question was: {visible(question.question)}")
    return value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


EARLY = "What was begun may still be at work, and happen after you looked. When it has ended, look and say it again."


def resolve(options: ResolveOptions) -> None:
    """Send a person's statement about a call in doubt, such as that its effect happened. Print what to type next.

    Raises Stop if no call is in doubt, or if several are and the options name none of them.
    """
    result = _json("--result", options.result)
    if options.verdict == "retry" and options.result is not None:
        raise Stop("retry and --result do not go together: the tool is tried again, and gives its own result.")

    async def settle(found: Found) -> None:
        one = _one(found.waiting(*DOUBT), options.call, found, "doubt")
        state = await found.record.state(one.run)
        call = state.call(one.call) or state.unknown.get(one.call or 0)
        before = Stop(f"The doubt about call {one.call} was settled before. {_next(options, found)}", FAILED)
        try:
            receipt = await found.record.resolve(one, options.verdict, by=options.by or who(), result=result)
        except SaidBefore as error:
            raise before from error
        if receipt.again:
            raise before
        _told(options, options.verdict, one)
        last = call.last if call is not None and options.verdict != "done" else None
        if last is not None and last.process is not None and last.effect is not None and not last.over:
            say(EARLY)
        say(_next(options, found))

    _with_run(options, options.run, settle)


def cancel(options: CancelOptions) -> None:
    """End the open turn of a run, or tell the process that is writing the run to end the turn.

    Raises Stop if no turn is open.
    """

    async def end(found: Found) -> None:
        turn, run = found.state.turn, found.row.run
        if turn is None or not found.state.open:
            raise Stop(f"No turn is open in run {run}: {_standing(found)}. `gesta runs` shows which are open.", FAILED)
        outcome = await found.record.cancel(run, by=options.by or who(), reason=options.reason)
        if outcome is None:
            say(f"Another process is writing run {run}, and will end the turn at its next step.")
        else:
            say(f"Run {run}: the turn is ended ({outcome.reason}).")
        if options.json:
            put(json_line({"run": run, "turn": turn.begin, "reason": outcome.reason if outcome else "cancel"}))

    _with_run(options, options.run, end)


def _with_run(options: OnRecord, name: str, do: Callable[[Found], Awaitable[None]]) -> None:
    address = options.target()

    async def main() -> None:
        async with open_record(address) as record:
            await do(await find(record, name))

    anyio.run(main)


def _one(waits: list[Waiting], wanted: int | None, found: Found, what: str) -> Waiting:
    """Return the wait about the call that the options name; without a named call, the only wait.

    Raises Stop if there is no such wait, or if several remain.

    Args:
        wanted: seq of the call (its number in the run), from the option --call.
        what: `approval`, or `doubt` for a call in doubt; chooses the words of the error.
    """
    run = waits[0].run if waits else found.row.run
    named = "".join(f"\n  --call {each.call}  {shown(each)}" for each in waits)
    if not waits:
        wait = "waits for no approval" if what == "approval" else "is in no doubt about a call"
        raise Stop(f"Run {run} {wait}: {_standing(found)}.", FAILED)
    if wanted is not None:
        chosen = [each for each in waits if each.call == wanted]
        if not chosen:
            raise Stop(f"Call {wanted} of run {run} is not among those that wait. Name one of these:{named}")
        return chosen[0]
    if len(waits) > 1:
        every = ", or --all for every one" if what == "approval" else ""
        raise Stop(f"{len(waits)} calls of run {run} wait. Say which{every}:{named}")
    return waits[0]


def _standing(found: Found) -> str:
    turn = found.state.turn
    if turn is None:
        return "no agent took a turn in it"
    if turn.reason is not None:
        return f"its last turn ended with {turn.reason!r}"
    left = [visible(each.text) for each in found.waits if each.answer_sent_at is None and each.run == found.row.run]
    return f"it waits for {', '.join(left)}" if left else "its turn is open and can be resumed"


def _told(options: OnRecord, said: str, waiting: Waiting, *, how: str = "", args: dict[str, Any] | None = None) -> None:
    """Print which answer was sent, and the call that it is about.

    Args:
        said: the answer, such as `approved`.
        how: words about how the answer is proven, such as `, with a token`.
        args: arguments that replace the arguments of the call.
    """
    args = waiting.args if args is None else args
    if options.json:
        put(json_line({"run": waiting.run, "call": waiting.call, "tool": waiting.tool, "said": said}))
    else:
        say(f"{said}{how}: {shown(waiting, args)}")
        for remark in remarks([waiting.tool, args]):
            say(remark, RED)


def _next(options: OnRecord, found: Found) -> str:
    return f"Next: gesta resume {found.root} {quoted(found.hint)}{options.named}"


def _no_number(text: str) -> None:
    """Refuse `NaN`, `Infinity` and `-Infinity`, which Python reads although JSON has no such numbers."""
    raise ValueError(f"{text} is not a number in JSON")


def _json(what: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        as_text = f"{what} '\"sent\"'" if what.startswith("-") else "'\"sent\"'"
        raise Stop(f"{what} is {text!r}, expected JSON ({error}). Text goes in quotes: {as_text}") from error
