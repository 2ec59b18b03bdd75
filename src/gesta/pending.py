"""Where one tool call stands, from its attempts, its approval and its resolution; it is gone once it has a result.

An attempt without a result is in doubt if it was written before the lease was taken, or if a `fault` says that it timed
out, was cancelled, or that the tool itself could not tell; else it is running. Lease epochs are on record for people:
those of one store say nothing about those of another, where a copied record may go on.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct

from gesta.kinds import AnswerContent, ApprovalContent

LOST = "lost"
"""Type of the error of a try that a crash cut off; it counts for nothing."""
WAITS = "waits"
"""Type of the error of an attempt that waits for a child run, which waits for somebody."""
EXPIRED = "expiry"
"""Who denies an approval that nobody gave in time."""
UNSETTLED = "unsettled"
"""Type of the error when a tool's `reconcile` could not tell either."""


class Try(Struct):
    """The last attempt of a call."""

    seq: int
    once: bool
    """Whether its tool said then that its effect must not happen twice."""
    doubt: str | None = None
    """Type of the error that left it in doubt, beside a lost lease."""
    unsettled: bool = False
    """`reconcile` was asked and could not tell."""
    child: str = ""
    """The child run that it waits for."""
    verdict: str | None = None
    """Of its resolution."""
    settled: int | None = None
    """Seq of its resolution."""


class Pending(Struct):
    """A tool call without a result."""

    seq: int
    name: str
    args: dict[str, Any]
    good: bool
    """Whether the model generated it well."""
    error: str = ""
    """Why not, for the model."""
    attempts: int = 0
    waited: int = 0
    """Attempts that ended because a child run waits."""
    last: Try | None = None
    asked: int | None = None
    """Its approval-request."""
    approval: ApprovalContent | None = None
    approved: int | None = None
    """Seq of the approval."""
    expires: datetime | None = None
    """When the approval-request does."""
    question: int | None = None
    """Of a tool that a person carries out: its question."""
    answer: AnswerContent | None = None
    result: Any = None
    """Given by a resolution `done` or `failed`."""

    @property
    def final_args(self) -> dict[str, Any]:
        """The model's arguments, or those that a person approved instead."""
        approved = self.approval.args if self.approval is not None else None
        return self.args if approved is None else approved

    def in_doubt(self, since: int) -> bool:
        """Say whether nobody knows if its effect happened, for who took the lease at head `since`."""
        last = self.last
        return last is not None and last.verdict is None and (last.doubt is not None or last.seq <= since)

    def running(self, since: int) -> bool:
        """Say whether who took the lease at head `since` is trying it right now."""
        return self.last is not None and self.last.verdict is None and not self.in_doubt(since)
