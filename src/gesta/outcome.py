"""An outcome says how a turn ended or what it waits for; it is read from the folded state, not written down."""

from typing import Any

from msgspec import Struct

from gesta.decide import Waiting
from gesta.kinds import Error
from gesta.spending import Spent


class Outcome(Struct, frozen=True, kw_only=True):
    """How a turn ended, or what it waits for."""

    run: str
    session: str
    turn: int
    """Seq of the begin of the turn."""
    reason: str
    """answered, failed, limit, budget, cancelled, or waiting."""
    answer: str | None = None
    value: Any = None
    """What a program gave, where that is no text, or a value of the agent's `output`; else the answer."""
    waiting: tuple[Waiting, ...] = ()
    queued: bool = False
    """Whether the message waits behind another turn of the run, whose outcome this is."""
    doubts: tuple[str, ...] = ()
    """Names of tools with a call whose outcome was still unknown when the turn ended."""
    error: Error | None = None
    """Of a turn that was not answered: what went wrong, or which limit was reached."""
    requests: int = 0
    """Answers that the model gave."""
    tokens_in: int = 0
    tokens_out: int = 0
    unknown_usage: int = 0
    """Answers that came without a count of tokens; those are not in the sums."""
    spent: Spent | None = None
    """With all that the runs below spent; none where no account was kept, see `Budget`."""
    end: int | None = None
    """Seq of the end of the turn; none while it waits."""

    @property
    def usd(self) -> float | None:
        """What it cost, in US dollars; none where anybody's price is unknown, or no account was kept."""
        return self.spent.usd if self.spent is not None else None
