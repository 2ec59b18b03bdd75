"""An outcome says how a turn ended or what it waits for; it is read from the folded state, not written down."""

from typing import Any

from msgspec import Struct

from gesta.decide import Waiting
from gesta.kinds import Error


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
    """What a program gave, where that is no text; else the answer."""
    waiting: tuple[Waiting, ...] = ()
    error: Error | None = None
    """Of a turn that was not answered: what went wrong, or which limit was reached."""
    requests: int = 0
    """Answers that the model gave."""
    tokens_in: int = 0
    tokens_out: int = 0
    unknown_usage: int = 0
    """Answers that came without a count of tokens; those are not in the sums."""
    end: int | None = None
    """Seq of the end of the turn; none while it waits."""
