"""The state of one open tool call: its attempts, its approval and its resolution. The call's result ends it.

An attempt without a result is in doubt in two cases: it was written before the present lease was taken, or a `fault`
says that it timed out, was cancelled, or that the tool could not tell. Otherwise it is running. An attempt is over once
an entry says that its function has ended. Before that, a call with effects is not tried again.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from gesta.kinds import AnswerContent, ApprovalContent, CheckContent, FaultContent, ToolServer

LOST = "lost"
"""Type of the error of a try that a crash interrupted, and of a turn whose process died. The try does not count as
failed."""
WAITS = "waits"
"""Type of the error of an attempt that ended because its child run waits."""
ASKS = "asks"
"""Type of the error of an attempt that ended because its tool needs a person's answer."""
EXPIRED = "expiry"
"""The name in `by` of the denial that is written when an approval-request expires."""
UNSETTLED = "unsettled"
"""Type of the error when a tool's `reconcile` could not tell what happened."""
UNKNOWN_END = "unknown-end"
"""Type of the error of a fault that says whether the process of an attempt has ended, as far as that is known."""
TOO_DEEP = "too-deep"
"""Type of the error of a call that was refused because agents call agents too deep. The model reads it."""
DEPTH = "depth"
"""Type of the error when a turn, or a run below it, is refused for depth a second time. It ends the turn."""
UNMADE = "instructions"
"""Type of the error when the function that makes an agent's instructions failed. It ends the turn."""
HOOK = "hook"
"""Type of the error when a hook failed. It ends the turn."""
WAITING = (WAITS, ASKS)
"""Types of the errors of an attempt whose call is made again when the answer or event that it waits for is there."""
OF_TURN = (DEPTH, UNMADE, HOOK, WAITS)
"""Types of the errors that end a turn, or make it wait for an agent that a hook called."""
REFUSED = "refused"
"""Type of the error of a turn that a hook ended by `Refuse`."""
UNSTARTED = "unstarted"
"""Type of the error of an attempt whose function was never called."""
KEY_EXPIRED = "key-expired"
"""Type of the error of a call whose idempotency key the service may have forgotten."""
EFFECTS = ("once", "transactional")
"""Effect policies under which a second attempt may cause a second effect."""


class Try(Struct):
    """The last attempt of a call."""

    seq: int
    effect: str | None = None
    """The tool's effect policy at the time of the attempt; `None` in entries of format 1 that do not say."""
    process: str | None = None
    key: str | None = None
    at: datetime | None = None
    """Time at which the attempt began."""
    doubt: str | None = None
    """Type of the error that left the attempt in doubt; `None` if there was none."""
    over: bool = False
    """Whether the attempt's function has certainly ended."""
    looked: int = 0
    """Seq of the last entry which says that it is not known whether the attempt ended; 0 if there is no such entry. A
    later check with the same result writes no entry, but moves `looked` above the head of its lease."""
    asked: bool = False
    """Whether `reconcile` was asked and could not tell, or its answer could not be used yet."""
    asked_over: bool = False
    """Whether `reconcile` was asked like this when the attempt was known to be over."""
    expired: bool = False
    """Whether the attempt's key is too old to be used again."""
    child: str = ""
    """Id of the child run that the attempt waits for."""
    state: Any = None
    """What the tool gets back when a person has answered."""
    verdict: str | None = None
    """Verdict of the attempt's resolution."""
    settled: int | None = None
    """Seq of the attempt's resolution."""
    void: bool = False
    """Whether the next attempt draws a new key."""
    server: ToolServer | None = None
    """The server that carried the attempt out; `None` for a function of the program."""
    before: "Try | None" = None
    """The attempt before this one. It is the last attempt again if this one never begins."""

    @property
    def premature(self) -> bool:
        """Whether a resolution other than `done` may be wrong, because the attempt may have had its effect later."""
        if self.void or self.verdict == "done":
            return False
        return self.verdict == "failed" or self.effect in EFFECTS


class OpenCall(Struct):
    """A tool call without a result."""

    seq: int
    name: str
    args: dict[str, Any]
    good: bool
    """Whether the model generated the call well."""
    error: str = ""
    """Why the call is malformed, for the model."""
    repeats: bool = False
    """Whether another call of the tool had an unknown outcome when the model made this call. If so, it needs
    approval."""
    attempts: int = 0
    waited: int = 0
    """Number of attempts that ended because a child run or a person's answer was waited for."""
    first_at: datetime | None = None
    """Time of the first attempt under the key that is used now."""
    last: Try | None = None
    asked: int | None = None
    """Seq of the approval-request for the call."""
    approval: ApprovalContent | None = None
    approved: int | None = None
    """Seq of the approval."""
    expires: datetime | None = None
    """Time at which the approval-request expires."""
    effect: str | None = None
    """The tool's effect policy when a person was asked; `None` if it is not known."""
    refused: str = ""
    """Why the last approval does not count; empty if no approval was refused."""
    refusals: int = 0
    """Number of approvals that do not count."""
    question: int | None = None
    """Seq of the question, if a person carries the tool out."""
    answer: AnswerContent | None = None
    asks: dict[int, str] = field(default_factory=dict)
    """Questions of the tool that nobody has answered: the tool's names for them, by seq."""
    answers: dict[str, Any] = field(default_factory=dict)
    """Answers to questions of the tool, by the tool's names."""
    heard: list[int] = field(default_factory=list)
    """Seqs of these answers."""
    result: Any = None
    """The result that a resolution `done` or `failed` gave."""
    checked: int = 0
    """Seq of the check by the agent's hook, or of the call itself if the hook allowed it without a check."""
    check: CheckContent | None = None
    made: dict[str, Any] | None = None
    """The arguments that the model made; `None` unless a hook changed them."""

    @property
    def awaits_approval(self) -> bool:
        """Whether a person was asked to approve the call and has not answered."""
        return self.asked is not None and self.approval is None

    @property
    def final_args(self) -> dict[str, Any]:
        """The arguments to use: the model's, or those that a person approved instead."""
        approved = self.approval.args if self.approval is not None else None
        return self.args if approved is None else approved

    @property
    def unchecked(self) -> bool:
        """Whether the agent's hook has not been asked yet, and nothing else has happened to the call."""
        return self.good and not self.checked and self.last is None and self.asked is None and self.question is None

    @property
    def said(self) -> list[int]:
        """Seqs of the call's check, answers and approval, which are causes of its attempts and its result."""
        check = [self.checked, *self.heard] if self.check is not None else self.heard
        return check if self.approved is None else [*check, self.approved]

    @property
    def again(self) -> bool:
        """Whether an earlier attempt may have had the effect under the key that the next attempt will use."""
        if self.last is None or self.last.void or self.last.effect in EFFECTS:  # known before the next one begins
            return False
        return self.attempts > self.waited

    def forked(self) -> tuple[int, ...]:
        """Remove what would allow an effect of the run that this one is a fork of. Returns the questions that end."""
        if self.approval is None or self.approval.verdict == "approved":
            self.approval = self.approved = self.expires = None
        if self.last is None:
            return ()
        self.last.void = True
        if self.last.verdict == "retry":
            self.last.verdict = self.last.settled = None
        if self.last.doubt not in WAITING:  # else the base waited; the fork's tool has neither called nor asked anybody
            return ()
        self.last.doubt, self.last.child, self.last.state = LOST, "", None
        ended, self.asks = tuple(self.asks), {}
        return ended

    def in_doubt(self, since: int) -> bool:
        """Return whether it is unknown if the call's effect happened.

        Args:
            since: head of the run when the present lease was taken.
        """
        last = self.last
        return last is not None and last.verdict is None and (last.doubt is not None or last.seq <= since)

    def running(self, since: int) -> bool:
        """Return whether the holder of the run is trying the call now.

        Args:
            since: head of the run when the present lease was taken.
        """
        return self.last is not None and self.last.verdict is None and not self.in_doubt(since)

    def unlooked(self, since: int) -> bool:
        """Return whether the last attempt may have ended and was not checked under the present lease.

        Args:
            since: head of the run when the present lease was taken.
        """
        return self.last is not None and not self.last.over and self.last.looked <= since

    def doubted(self, last: Try, seq: int, content: FaultContent) -> None:
        """Add a fault of the last attempt.

        Args:
            seq: seq of the fault.
        """
        type_ = content.error.type
        if type_ == UNSTARTED:
            self.attempts, self.last = self.attempts - 1, last.before
            return
        self.waited += type_ in WAITING
        if content.over is True and not last.over:
            last.over = True
            if last.verdict is not None and last.premature:
                last.verdict = last.settled = self.result = None
        if content.over is False:
            last.looked = seq
        if type_ == UNSETTLED:
            last.asked, last.asked_over = True, last.asked_over or content.over is True
        last.expired |= type_ == KEY_EXPIRED
        if type_ != UNKNOWN_END:
            last.doubt, last.child, last.state = type_, content.run or "", content.state
