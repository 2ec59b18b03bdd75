"""The sessions of a record, as lists show them, and the filter that selects some of them.

A session stands as the last turns of its root runs stand: it waits if one of them waits, else it is open if one is
open, else it has the reason of the turn that ended last. What `gesta runs` shows of a run is decided by the same turn,
whatever was written after it.
"""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from gesta.decide.waiting import Waiting

Standing = Literal["open", "waiting", "ended", "recorded"]
Sort = Literal["newest", "cost", "tokens", "duration", "entries"]
TITLE = 200
"""Greatest number of characters in a title."""


class RunOf(Struct, frozen=True, kw_only=True):
    """One run of a session, in a list."""

    run: str
    agent: str
    parent: str | None
    """Id of the run above it; `None` for a root run."""
    stands: Standing
    reason: str | None
    entries: int


class Session(Struct, frozen=True, kw_only=True):
    """One conversation, or one start of an application."""

    name: str
    stands: Standing
    """`open`: a turn is running, or was left open. `waiting`: a turn waits, see `waiting`. `ended`: its last turn has
    ended. `recorded`: there is no turn."""
    reason: str | None
    """For an ended session: how its last turn ended."""
    running: bool
    """Whether a process that has not ended is driving one of its open turns."""
    waiting: tuple[Waiting, ...]
    """The waits of its turns, also in the runs below."""
    title: str
    """Beginning of the first message, at most 200 characters; empty if there is no message."""
    first_at: datetime
    last_at: datetime
    runs: tuple[str, ...]
    """Ids of its root runs, in the order in which they began."""
    agents: tuple[str, ...]
    """Names of these runs, which are names of agents, or names that a program gave."""
    below: int
    """Number of runs below the root runs."""
    tree: tuple[RunOf, ...]
    """Its runs in the order in which they began, at most 50 of them; empty if there is only one."""
    entries: int
    messages: int
    """Number of messages of people and of answers."""
    calls: int
    """Number of tool calls, also in the runs below."""
    errors: int
    """Number of failed requests, and of calls that failed or whose outcome is unknown."""
    tokens_in: int
    tokens_out: int
    unknown_usage: int
    """Number of answers without a count of tokens."""
    usd: float | None
    """Sum of the costs on record, in US dollars; `None` if there is none."""
    unpriced: int
    """Number of answers without a cost on record."""


class SessionFilter(Struct, frozen=True, kw_only=True):
    """The sessions that somebody wants to see, and their order."""

    agent: str = ""
    """Name of an agent that took part, also below."""
    stands: str = ""
    """`waiting`, `open`, `running`, `ended`, `recorded`, or a reason such as `failed`."""
    tool: str = ""
    """Name of a tool that was called."""
    errors: bool = False
    """Whether only sessions are wanted that failed or have a failed request or call."""
    cost: float | None = None
    """Least cost, in US dollars; sessions without a cost on record are left out."""
    since: str = ""
    """The earliest time of a session's last entry, in UTC as rows hold it; included."""
    until: str = ""
    """The end of the times of a session's first entry, in the same form; not included."""
    sort: Sort = "newest"
    """`newest`: running sessions first, then the last active. Else the greatest first; unknown costs come last."""
    after: int = 0
    """Number of fitting sessions to skip."""
    limit: int | None = 50


class Totals(Struct, frozen=True, kw_only=True):
    """Sums over all sessions that fit a filter."""

    sessions: int = 0
    runs: int = 0
    entries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None
    """Sum of the known costs, in US dollars; `None` if none is known."""
    unpriced: int = 0
    """Number of answers without a cost on record."""


class SessionList(Struct, frozen=True, kw_only=True):
    """One page of sessions, and the sums over all that fit."""

    sessions: list[Session]
    totals: Totals
