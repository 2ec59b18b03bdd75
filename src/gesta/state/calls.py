"""The state of one open tool call: its attempts, its approval and its resolution. The call's result ends it.

A hook is a function of the agent that may change or refuse a call. An entry's seq is its number in the run. An attempt
is *in doubt* if nobody knows whether it had its effect. An attempt without a result is in doubt in two cases: it was
written before this process took the lease (the right to write the run), or a `fault` entry says that it timed out, was
cancelled, or that the tool could not tell. Otherwise it is running. A *resolution* settles a doubt: a person, or the
tool's `reconcile` function, says what happened. An attempt is *over* once an entry says that its function has ended.
Before that, a call with effects is not tried again. The constants name types of errors in `fault` and `end` entries.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from gesta.entry import Entry
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    CheckContent,
    EdgeContent,
    FaultContent,
    ResolutionContent,
    ToolServer,
)

LOST = "lost"
"""A crash interrupted a try of a request, or the process of a turn died. The try is not counted as a failure."""
WAITS = "waits"
"""The attempt ended because its child run waits."""
ASKS = "asks"
"""The attempt ended because its tool needs a person's answer."""
EXPIRED = "expiry"
"""Not a type of error: the name in `by` of a denial that was written because the approval-request expired."""
UNSETTLED = "unsettled"
"""The tool's `reconcile` could not say whether the effect happened."""
UNKNOWN_END = "unknown-end"
"""The `fault` entry only reports, in `over`, whether a check found that the attempt has ended."""
TOO_DEEP = "too-deep"
"""The call was refused because agents call agents too deeply. The model reads this error."""
DEPTH = "depth"
"""A call in the turn, or in a run below it, was refused as too deep a second time. This error ends the turn."""
UNMADE = "instructions"
"""The function that returns an agent's instructions failed. This error ends the turn."""
HOOK = "hook"
"""A hook failed. This error ends the turn."""
WAITING = (WAITS, ASKS)
"""Types of errors of attempts that wait for an answer or a child run. The call is tried again after the wait."""
OF_TURN = (DEPTH, UNMADE, HOOK, WAITS)
"""The errors that end a turn, or make it wait for an agent that a hook called."""
REFUSED = "refused"
"""A hook ended the turn by returning `Refuse`."""
UNSTARTED = "unstarted"
"""The function of the attempt was never called."""
KEY_EXPIRED = "key-expired"
"""The call's idempotency key is so old that the service may have forgotten it."""
NOT_FAILED = (LOST, UNKNOWN_END, UNSETTLED, UNSTARTED, KEY_EXPIRED, *WAITING)
"""Types of errors in `fault` entries that are not counted as failures: something was lost, looked up, or waits."""
EFFECTS = ("once", "transactional")
"""Values of a tool's `effect` with which a second attempt may cause a second effect."""
STRICTNESS = ("pure", "idempotent", "transactional", "once")
"""Values of a tool's `effect`, the strictest last."""


class Try(Struct):
    """One attempt to run the tool for a call."""

    seq: int
    effect: str | None = None
    """The strictest `effect` of the tool at the time of this attempt, and of earlier ones that may have had theirs.
    `None` if unknown, as in some entries of format 1."""
    process: str | None = None
    key: str | None = None
    at: datetime | None = None
    """Time at which the attempt began."""
    doubt: str | None = None
    """Type of the error that left the attempt in doubt; `None` if no error did."""
    reason: str = ""
    """What that error says, such as the message of `InDoubt`; empty without such an error."""
    over: bool = False
    """Whether the attempt's function has certainly ended."""
    looked: int = 0
    """Seq of the last `fault` entry which says that a check could not find out whether the attempt has ended; 0 without
    such an entry. If a later check finds the same, it writes no entry, and only raises this number."""
    asked: int = 0
    """Seq of the last `fault` entry which says that the tool's `reconcile` gave no usable answer; 0 without such an
    entry since the attempt has ended. If `reconcile` fails in the same way again, it writes no entry, and only
    raises this number."""
    expired: bool = False
    """Whether the attempt's idempotency key is too old to be used again."""
    child: str = ""
    """Id of the child run that the attempt waits for."""
    called: int = 0
    """Number of agents that the tool called in the attempt, without those whose child run it named itself."""
    verdict: str | None = None
    """Verdict of the resolution of this attempt (done, failed or retry); `None` if it has no resolution."""
    settled: int | None = None
    """Seq of the attempt's resolution; `None` if it has no resolution."""
    void: bool = False
    """Whether the old idempotency key can no longer have an effect, so that the next attempt draws a new key."""
    server: ToolServer | None = None
    """The server that ran the tool; `None` for a function in the user's own program."""
    agent: str | None = None
    """Name of the agent that the tool ran in a child run; `None` for a function. Entries of format 1, which have no
    `key`, never say it."""
    before: "Try | None" = None
    """The previous attempt. It becomes the last attempt again if this attempt never started."""

    @property
    def doubtful(self) -> bool:
        """Whether the attempt has certainly ended without a result, so that it may or may not have had its effect."""
        return self.doubt not in WAITING and (self.over or self.doubt is not None)

    @property
    def final(self) -> bool:
        """Whether the attempt's resolution counts now: it says `done`, or the effect can no longer happen after it.

        An attempt of format 1 names no process, so that nobody can check it: the person is believed.
        """
        return self.verdict == "done" or self.over or self.void or self.process is None

    @property
    def premature(self) -> bool:
        """Whether the attempt's resolution no longer counts if the attempt ends after it.

        Between the two, the effect could still happen, although the resolution is `failed` or `retry`.
        """
        if self.void or self.verdict == "done":
            return False
        return self.verdict == "failed" or self.effect in EFFECTS or self.expired

    def strictest(self, effect: str | None) -> str | None:
        """Return the effect to assume for the attempt after this one; `None` if `effect` is `None`.

        That is the strictest of the tool's `effect` and those of the attempts so far. But attempts whose effect
        certainly did not happen do not count.

        Args:
            effect: the tool's `effect` now.
        """
        if effect not in STRICTNESS or self.effect not in STRICTNESS:
            return effect
        if self.void or (self.settled is not None and (self.expired or self.effect in EFFECTS)):
            return effect
        return max(effect, self.effect, key=STRICTNESS.index)

    @property
    def renewed(self) -> bool:
        """Whether the next attempt draws a new idempotency key, because this one is void or too old."""
        return self.void or self.expired


class CalledAgent(Struct, frozen=True):
    """An agent that a tool called."""

    agent: str
    input: Any
    """The message to the agent."""
    edge: int
    """Seq of the `edge` entry about the call."""


class OpenCall(Struct):
    """The state of a tool call that has no result yet."""

    seq: int
    name: str
    args: dict[str, Any]
    good: bool
    """Whether the arguments that the model generated are usable, so that the call can run."""
    error: str = ""
    """Why the call cannot run, in words for the model."""
    repeats: bool = False
    """Whether another call of this tool had an unknown outcome when the model made this call. If so, this call needs
    an approval."""
    attempts: int = 0
    waited: int = 0
    """Number of attempts that ended in order to wait for a child run or a person's answer."""
    children: dict[int, CalledAgent] = field(default_factory=dict)
    """The agents that the tool called, by the numbers of their child runs."""
    first_at: datetime | None = None
    """Time of the first attempt with the present idempotency key."""
    last: Try | None = None
    asked: int | None = None
    """Seq of the approval-request for the call; `None` if nobody was asked."""
    approval: ApprovalContent | None = None
    approved: int | None = None
    """Seq of the approval."""
    expires: datetime | None = None
    """Time at which the approval-request expires."""
    effect: str | None = None
    """The tool's `effect` when a person was asked; `None` if it is not known."""
    refused: str = ""
    """Why the last approval of the call was rejected; empty if no approval was rejected."""
    refusals: int = 0
    """Number of approvals that were rejected."""
    question: int | None = None
    """Seq of the question, if a person does the tool's work."""
    answer: AnswerContent | None = None
    asks: dict[int, str] = field(default_factory=dict)
    """Unanswered questions of the tool: for each seq, the tool's own name of the question."""
    answers: dict[str, Any] = field(default_factory=dict)
    """Answers to the tool's questions, by the tool's own names of the questions."""
    state: Any = None
    """For a tool that asked a person: the data that all later attempts get back, until the tool asks again."""
    heard: list[int] = field(default_factory=list)
    """Seqs of the entries that hold the `answers`."""
    result: Any = None
    """The result in a resolution `done` or `failed`."""
    checked: int = 0
    """Seq of the entry with the hook's verdict on the call; the seq of the call itself if the hook allowed it without
    an entry. 0 if no hook was called."""
    check: CheckContent | None = None
    made: dict[str, Any] | None = None
    """The arguments as the model made them, if a hook changed them; else `None`."""

    @property
    def awaits_approval(self) -> bool:
        """Whether the call waits for an approval: a person was asked, has not answered, and no attempt came after."""
        return self.asked is not None and self.approval is None and (self.last is None or self.last.seq < self.asked)

    @property
    def final_args(self) -> dict[str, Any]:
        """The arguments to run the call with: the model's arguments, or those that the approving person set instead."""
        approved = self.approval.args if self.approval is not None else None
        return self.args if approved is None else approved

    @property
    def unchecked(self) -> bool:
        """Whether nothing was done about the call yet: no hook judged it, nobody was asked, and no attempt was made."""
        return self.good and not self.checked and self.last is None and self.asked is None and self.question is None

    @property
    def said(self) -> list[int]:
        """Seqs of the entries that are causes of the call's attempts and result.

        They are a hook's verdict on the call, the answers of persons, and the approval.
        """
        check = [self.checked, *self.heard] if self.check is not None else self.heard
        return check if self.approved is None else [*check, self.approved]

    @property
    def again(self) -> bool:
        """Whether the next attempt repeats the idempotency key of an earlier attempt that may have had its effect."""
        if self.last is None or self.last.renewed or self.last.effect in EFFECTS:  # settled before the next one begins
            return False
        return self.attempts > self.waited

    def forked(self) -> tuple[int, ...]:
        """Change the call for a fork: a run that begins with entries of another run, and must repeat no effect of it.

        An approval, the idempotency key and a `retry` verdict (the tool may run again) are removed. So are the answers
        and the state of a tool that asked a person: in the fork, the tool begins anew.

        Returns:
            Seqs of the questions that are no longer open.
        """
        if self.approval is None or self.approval.verdict == "approved":
            self.approval = self.approved = self.expires = None
        if self.last is None:
            return ()
        self.last.void = True
        if self.last.verdict == "retry":
            self.last.verdict = self.last.settled = None
        self.state, self.answers, self.heard = None, {}, []
        if self.last.doubt not in WAITING:  # else the base waited; the fork's own tool has called and asked nobody
            return ()
        self.last.doubt, self.last.child = LOST, ""
        ended, self.asks = tuple(self.asks), {}
        return ended

    def in_doubt(self, since: int) -> bool:
        """Return whether nobody knows if the call had its effect.

        Args:
            since: seq of the run's last entry when the present lease was taken. An attempt up to this seq is in doubt.
        """
        last = self.last
        return last is not None and last.verdict is None and (last.doubt is not None or last.seq <= since)

    def running(self, since: int) -> bool:
        """Return whether the present holder of the lease is attempting the call now.

        Args:
            since: seq of the run's last entry when the present lease was taken. An attempt up to this seq is not the
                holder's.
        """
        return self.last is not None and self.last.verdict is None and not self.in_doubt(since)

    def unlooked(self, since: int) -> bool:
        """Return whether the last attempt may still run, and nobody has checked this since the present lease was taken.

        Args:
            since: seq of the run's last entry when the present lease was taken.
        """
        return self.last is not None and not self.last.over and self.last.looked <= since

    def unasked(self, since: int) -> bool:
        """Return whether `reconcile` may be called for the last attempt.

        After a failure of `reconcile`, it is called again only under a new lease, or once the attempt has ended.

        Args:
            since: seq of the run's last entry when the present lease was taken.
        """
        return self.last is not None and self.last.asked <= since

    def resolved(self, content: ResolutionContent, seq: int) -> bool:
        """Add the verdict of a resolution, if it is about the last attempt. Return whether it counts now.

        Args:
            seq: seq of the resolution.
        """
        last = self.last
        if last is None or last.seq != content.of or last.verdict not in (None, "retry"):
            return False
        last.verdict, last.settled, self.result = content.verdict, seq, content.result
        last.void |= content.void
        return last.final

    def doubted(self, last: Try, seq: int, content: FaultContent) -> None:
        """Add the facts of a `fault` entry about the last attempt of the call, such as a timeout.

        Args:
            last: the last attempt.
            seq: seq of the `fault` entry.
        """
        type_ = content.error.type
        if type_ == UNSTARTED:
            self.attempts, self.last = self.attempts - 1, last.before
            return
        self.waited += type_ in WAITING
        if content.over is True and not last.over:
            last.over, last.asked = True, 0
            if last.verdict is not None and last.premature:
                last.verdict = last.settled = self.result = None
        if content.over is False:
            last.looked = seq
        if type_ == UNSETTLED:
            last.asked = seq
        last.expired |= type_ == KEY_EXPIRED
        if type_ == ASKS:
            self.state = content.state
        if type_ != UNKNOWN_END:
            last.doubt, last.child = type_, content.run or ""
            last.reason = "" if type_ in WAITING else content.error.message


def called_agent(calls: Mapping[int, OpenCall], entry: Entry, content: EdgeContent) -> None:
    """Add the call of an agent to the open tool call that made it.

    Args:
        calls: the open tool calls.
        entry: an `edge` entry, with its content. If it does not name the child run, its place among the entries of the
            attempt is the child run's number.
    """
    for call in calls.values():
        if call.last is not None and entry.causes == (call.last.seq,):
            part = (content.child or "").removeprefix(f"{call.name}#{call.seq}").removeprefix(".")
            if not part or part.isdecimal():
                call.last.called += 1
                number = int(part or (1 if content.child else call.last.called))
                call.children.setdefault(number, CalledAgent(content.dest[0], content.payload, entry.seq))
