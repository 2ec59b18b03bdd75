"""The sessions of a record as lists show them, and the filter that selects some of them.

A run is the recorded conversation or task of one agent. A child run was started by another run; a root run was not. A
turn is one message to an agent and all the work up to its answer. The status of a session (`stands`) follows from the
last turns of its root runs. If one of these turns waits, the session is `waiting`; else, if one is open, it is `open`.
Otherwise it has the reason of the turn that ended last.
"""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from gesta.decide.waiting import Waiting

Standing = Literal["open", "waiting", "ended", "recorded"]
"""Status of a session or of a run; see `Session.stands`."""
Sort = Literal["newest", "cost", "tokens", "duration", "entries"]
"""Order of a list of sessions; see `SessionFilter.sort`."""
TITLE = 200
"""Greatest number of characters in a title."""


class RunOf(Struct, frozen=True, kw_only=True):
    """One run of a session, as a row in a list."""

    run: str
    agent: str
    """Name of the run, which is usually the name of its agent."""
    parent: str | None
    """Id of the parent run; `None` for a root run."""
    stands: Standing
    """Status of the run, as in `Session.stands`."""
    reason: str | None
    """For a run whose last turn has ended: the reason of its end."""
    entries: int
    """Number of entries of the run."""


class Session(Struct, frozen=True, kw_only=True):
    """One conversation, or one start of an application: its runs, its status and the sums over its runs."""

    name: str
    stands: Standing
    """Status. `open`: a turn is running, or was left open. `waiting`: a turn waits, see `waiting`. `ended`: the last
    turn has ended. `recorded`: there is no turn, for example because a program only recorded spans."""
    reason: str | None
    """For an ended session: the reason with which its last turn ended."""
    running: bool
    """Whether a process that is still running works on one of its open turns."""
    waiting: tuple[Waiting, ...]
    """What its turns wait for, including the turns of child runs."""
    title: str
    """Beginning of the first message, at most 200 characters; empty if there is no message."""
    first_at: datetime
    last_at: datetime
    runs: tuple[str, ...]
    """Ids of the root runs, in the order in which they began."""
    agents: tuple[str, ...]
    """Names of the root runs, which are names of agents, or names that a program chose."""
    below: int
    """Number of runs that are not root runs."""
    tree: tuple[RunOf, ...]
    """All runs of the session in the order in which they began, at most 50; empty if there is only one run."""
    entries: int
    messages: int
    """Number of messages of people plus number of answers."""
    calls: int
    """Number of tool calls, including those of child runs."""
    errors: int
    """Number of failed requests plus number of calls that failed or whose outcome is unknown."""
    tokens_in: int
    tokens_out: int
    unknown_usage: int
    """Number of model replies without a count of tokens."""
    usd: float | None
    """Sum of the recorded costs, in US dollars; `None` if no cost is on record."""
    unpriced: int
    """Number of model replies without a cost on record."""


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions to list, and in which order."""

    agent: str = ""
    """Name of an agent that took part, also in a child run; empty for any."""
    stands: str = ""
    """`waiting`, `open`, `running`, `ended`, `recorded`, or a reason such as `failed`; empty for any."""
    tool: str = ""
    """Name of a tool that was called; empty for any."""
    errors: bool = False
    """Whether to list only sessions that failed or that have a failed request or call."""
    cost: float | None = None
    """Least cost in US dollars; sessions without a recorded cost are then left out."""
    since: str = ""
    """Sessions whose last entry is earlier are left out. UTC, in the text form of stored rows; empty for no limit."""
    until: str = ""
    """Sessions whose first entry is at this time or later are left out, in the same form."""
    sort: Sort = "newest"
    """`newest`: sessions with a running turn first, then the most recently active first. Any other order: the greatest
    value first, sessions with an unknown cost last."""
    after: int = 0
    """Number of matching sessions to skip."""
    limit: int | None = 50
    """Greatest number of sessions to return; `None` for all."""


class Totals(Struct, frozen=True, kw_only=True):
    """Sums over all sessions that match a filter."""

    sessions: int = 0
    runs: int = 0
    entries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None
    """Sum of the known costs in US dollars; `None` if no cost is known."""
    unpriced: int = 0
    """Number of model replies without a cost on record."""


class SessionList(Struct, frozen=True, kw_only=True):
    """One page of sessions, and the sums over all sessions that match the filter."""

    sessions: list[Session]
    totals: Totals
