"""The waits of an open turn: what the turn cannot go on without, with all facts that a person needs to answer.

Waits are computed from the run's state and never stored. So any process that can read the run computes the same waits.
An attempt is one execution of a tool for a call. A call is in doubt if nobody knows whether it had its effect. The seq
of an entry is its number in its run.
"""

import copy
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gesta.codec.rows import digest_of
from gesta.kinds import Kind, TimerContent, ToolServer
from gesta.state.calls import WAITING, OpenCall, Try
from gesta.state.run import RunState
from gesta.text.visible import remarks

What = Literal["approval", "doubt", "running", "child", "question", "budget", "timer", "resume", "deaths", "copy"]
"""The kinds of waits; see `Waiting.what`."""
BEGUN_BY: dict[What, Kind | None] = {
    "approval": Kind.ApprovalRequest,
    "doubt": Kind.Attempt,
    "running": Kind.Attempt,
    "child": Kind.Attempt,
    "question": Kind.Question,
    "budget": Kind.Question,
    "timer": Kind.Timer,
    "resume": None,
    "deaths": None,
    "copy": None,
}
"""For each kind of wait, the kind of the entry that begins it; `None` if no entry does. A list of sessions looks for
waits only in turns with such an entry."""
APPROVAL: tuple[What, ...] = ("approval",)
"""Kinds of waits that `record.approve` and `record.deny` end."""
QUESTION: tuple[What, ...] = ("question", "budget")
"""Kinds of waits that `record.answer` ends."""
DOUBT: tuple[What, ...] = ("doubt", "running")
"""Kinds of waits that `record.resolve` ends."""
PERSON = frozenset({*APPROVAL, *QUESTION, "doubt"})
"""Kinds of waits that a person is asked to end."""
SENT = "answer sent, waits for a program to go on"
"""The words for a wait whose answer is in the inbox of the run. A program that continues the run reads the inbox."""


class Waiting(Struct, frozen=True):
    """One thing that an open turn waits for."""

    what: What
    """What is waited for.

    `approval`, `question`, `doubt`: a person's answer. `running`: the end of an attempt whose process may still run.
    `budget`: a person's decision whether the turn may spend more. `child`: a run below, about which no more is known.
    `timer`: a time. `resume`: any process that continues the turn, because its caller stopped waiting for it.
    `deaths`: a person who resumes the turn, because too many processes died in it. `copy`: `gesta adopt`, because
    this record is a copy."""
    call: int | None = None
    """Seq of the tool call; `None` if a program or the turn itself waits."""
    tool: str | None = None
    """Name of the tool, or of the program's step; `None` if the turn itself waits."""
    of: int | None = None
    """Seq of the entry that the wait is about: an approval-request, question, timer, or attempt in doubt."""
    declared: bool = True
    """Whether the tool's author declared its effect."""
    run: str = ""
    """Id of the run to which the answer has to be sent: the run of the turn, or a run below it."""
    session: str = ""
    args: dict[str, Any] | None = None
    """The arguments of the call as stored: secrets are replaced by their names. See `remarks` for suspicious
    characters."""
    args_digest: str = ""
    """SHA-256 of the canonical arguments, in hex."""
    effect: str | None = None
    """The tool's effect: pure, idempotent, once or transactional; `None` if the record does not say."""
    question: str = ""
    """Text of the question that a person is asked."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer; `None` for any text."""
    expires: datetime | None = None
    """Time after which an approval is no longer accepted."""
    due: datetime | None = None
    """Time at which a timer ends."""
    since: datetime | None = None
    """Time at which the attempt in doubt began."""
    process: str | None = None
    """Name of the process that made the attempt in doubt, as `gesta gone` takes it."""
    server: ToolServer | None = None
    """For a doubt: the server that runs the tool; `None` for a function of the program."""
    axis: Literal["tokens", "usd"] | None = None
    """For a budget: the unit of the bound that was reached."""
    spent: float | None = None
    """For a budget: the amount that is spent or reserved so far."""
    bound: float | None = None
    """For a budget: the amount that the turn may spend; `None` if it can be computed only with the agent."""
    need: float | None = None
    """For a budget: the amount that the next request may cost; `None` if it can be computed only with the agent."""
    remarks: tuple[str, ...] = ()
    """Warnings for the person: characters in the texts that are invisible or that look like other characters."""
    why: str = ""
    """For an approval: why a hook wants a person to be asked; empty if the tool itself needs the approval. For a doubt:
    why nobody knows whether it happened, such as the message of `InDoubt`; empty if the process ended. In an
    outcome, where the agent is known, it also says that the agent has no tool of that name any more."""
    refused: str = ""
    """Why the last answer about the call was rejected; empty if none was rejected."""
    answer_sent_at: datetime | None = None
    """Time at which the store received an answer to this wait; `None` if there is none. The answer stays in the run's
    inbox until a program continues the run. In the outcome of the run itself, this is `None`."""

    @property
    def text(self) -> str:
        """The wait in a few words: its kind, and the name of the tool or step."""
        return f"{self.what} of {self.tool}" if self.tool else self.what


TOLD_APART = ("call", "tool", "args_digest", "question", "schema", "expires", "since")
"""The fields of a wait that tell it from another wait of the same run, kind and seq. Such another wait exists after a
run was pruned and begun anew, or a backup was restored."""


def changed(shown: Waiting, now: Waiting) -> list[str]:
    """Return the names of the fields of `TOLD_APART` that differ from what was shown; empty if it is the same wait.

    Args:
        shown: what the person was shown. A field with its default value was not shown, so it is not compared.
        now: the wait of the same run, kind and seq.
    """
    bare = Waiting(shown.what)
    return [
        name
        for name in TOLD_APART
        if getattr(shown, name) != getattr(bare, name)
        and _comparable(getattr(shown, name)) != _comparable(getattr(now, name))
    ]


def _comparable(value: Any) -> Any:
    """Return a fact in the form in which two are compared. A page may have read the numbers of a schema as floats."""
    return json.loads(json.dumps(value), parse_int=float) if isinstance(value, dict) else value


def mark(waiting: Waiting) -> str:
    """Return a short digest of the facts of a wait, such as the tool and the arguments of the call.

    Another wait can get the run, kind and seq of this one, as after a prune. Its digest differs.
    """
    return digest_of({name: to_builtins(getattr(waiting, name)) for name in TOLD_APART})[:16]


def in_words(waits: Iterable[Waiting]) -> str:
    """Return a short text about waits, such as `waits: approval of send_mail`; empty if there are no waits.

    Waits whose answer was sent are left out. If every answer was sent, the text says so.
    """
    waits = [*waits]
    left = [each.text for each in waits if each.answer_sent_at is None]
    return f"waits: {', '.join(left)}" if left else SENT if waits else ""


def described(waiting: Waiting, run: str, state: RunState) -> Waiting:
    """Return a copy of a wait with facts from the run's state, such as the arguments, the question and the expiry.

    A wait that already has these facts, such as a wait of a child run, is returned unchanged.
    """
    if waiting.session:
        return waiting
    opened, turn = state.opened, state.turn
    call = state.call(waiting.call) or state.unknown.get(waiting.call or 0)
    waiting = replace(waiting, run=waiting.run or run, session=opened.session if opened is not None else "")
    if call is not None:
        known = _of_call(call, waiting.what)
        said = [each for each in (known.get("why"), waiting.why) if each]
        waiting = replace(waiting, **{**known, "why": "; ".join(said)})
    asked = state.questions.get(waiting.of or 0)
    if asked is not None:
        waiting = replace(waiting, question=asked.value, schema=asked.schema)
    if waiting.what == "timer":
        notes = (note.content for note in state.steps.notes.values() if note.seq == waiting.of)
        due = next((content.due_at for content in notes if isinstance(content, TimerContent)), None)
        waiting = replace(waiting, due=due)
    if asked is not None and asked.raises is not None and turn is not None:
        spent = float(getattr(turn.spending.counted, asked.raises))
        waiting = replace(waiting, what="budget", axis=asked.raises, spent=spent)
    noticed = remarks([waiting.tool or "", waiting.args, waiting.question, waiting.why])
    return replace(waiting, remarks=tuple(noticed)) if noticed else waiting


def _of_call(call: OpenCall, what: str) -> dict[str, Any]:
    args, last = call.args if what == "approval" else call.final_args, call.last
    known: dict[str, Any] = {"args": copy.deepcopy(args), "args_digest": digest_of(args), "effect": call.effect}
    if last is not None:
        known["effect"] = last.effect or call.effect
    if call.check is not None and call.check.verdict == "asked":
        known["why"] = call.check.words or ""
    if what == "approval":
        return {**known, "expires": call.expires, "refused": call.refused}
    if what in ("doubt", "running") and last is not None:
        why = last.reason if what == "doubt" else ""
        return {**known, "since": last.at, "process": last.process, "server": last.server, "why": why}
    return known


def waits(run: str, state: RunState, now: datetime) -> list[Waiting]:
    """Return what the open turn of a run waits for, without the waits of the runs below it.

    No process can know whether an attempt of another process is still running. So an attempt that may be running is
    always a wait of the kind `running`.
    """
    if not state.open:
        return []
    found = [*_questions(state), *_approvals(state), *_doubts(state), *_timed(state, now)]
    return [described(each, run, state) for each in found]


def doubts(run: str, state: RunState) -> list[Waiting]:
    """Return a wait for each call of a run whose outcome is unknown, even if its turn has ended.

    These include the calls about which the model was told that their outcome is unknown (`on_doubt="tell"`).
    """
    return [described(each, run, state) for each in [*_doubts(state), *_closed_doubts(state)]]


def told_doubts(run: str, state: RunState) -> list[Waiting]:
    """Return a wait for each call about which the model was told that its outcome is unknown. No turn waits for it."""
    return [described(each, run, state) for each in _closed_doubts(state)]


def _questions(state: RunState) -> Iterator[Waiting]:
    calls = {seq: call for call in state.calls.values() for seq in (call.question, *call.asks)}
    names = {note.seq: name for name, note in state.steps.notes.items()}
    for seq in state.questions:
        call = calls.get(seq)
        of, tool = (None, names.get(seq)) if call is None else (call.seq, call.name)
        yield Waiting("question", of, tool, seq)


def _approvals(state: RunState) -> Iterator[Waiting]:
    for call in state.current():
        if call.awaits_approval:
            yield Waiting("approval", call.seq, call.name, call.asked)


def _doubts(state: RunState) -> Iterator[Waiting]:
    for call in state.calls.values():
        if call.last is None or call.last.doubt in WAITING or call.last.verdict == "done" or call.awaits_approval:
            continue
        if call.last.effect == "pure" and (call.last.doubt is not None or call.last.over):  # it runs again
            yield Waiting("resume")
        else:
            yield Waiting(_about(call.last), call.seq, call.name, call.last.seq)


def _closed_doubts(state: RunState) -> Iterator[Waiting]:
    for call in state.unknown.values():
        if call.last is not None and call.seq not in state.calls and call.last.verdict is None:
            yield Waiting(_about(call.last), call.seq, call.name, call.last.seq)


def _about(last: Try) -> Literal["doubt", "running"]:
    """Return the kind of wait that an unfinished attempt causes: `running` if it may still run, else `doubt`."""
    if last.verdict is not None:  # the resolution is used when the attempt has ended
        return "running"
    return "doubt" if last.doubt is not None or last.over or last.looked else "running"


def _timed(state: RunState, now: datetime) -> Iterator[Waiting]:
    for name, due in state.steps.timers.items():
        if due > now:
            yield Waiting("timer", tool=name, of=state.steps.notes[name].seq)
