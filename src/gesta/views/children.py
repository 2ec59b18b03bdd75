"""Lists the child runs of a run: what each was called for, what it answered, and what it cost.

An entry is one recorded fact of a run; its seq is its number there. A child run that a tool call started has the seq of
the call in its name. If a program started the child run, the parent has an `edge` entry about it, which the first
message of the child run names as its cause.
"""

import re
from typing import Any

from msgspec import Struct

from gesta.store import RunRow
from gesta.views.overview import Overview, totals

NAMED = re.compile(r"(.+)#(\d{1,15})(?:\.\w+)?")
"""Name of a run that a tool call started: the tool, `#` and the seq of the call; see `perform.child.child_name`."""


class ChildFacts(Struct, frozen=True, kw_only=True):
    """Facts about one child run, as pages show them."""

    run: str
    name: str
    """Name of the tool or agent."""
    at: str
    """Time of its first entry."""
    last_at: str
    """Time of its last entry."""
    head: int
    """Seq of its last entry."""
    call: int | None
    """Seq of the parent's call that started it; `None` if a program started it."""
    edge: int | None
    """Seq of the parent's entry that its first message came from."""
    reason: str | None
    """Why its last turn ended; `None` while that turn is open."""
    answer: str
    """Beginning of its last answer."""
    below: int
    """Number of runs that it started itself."""
    totals: dict[str, Any]
    """Counts and sums; see `views.overview.totals`."""


def child_facts(row: RunRow, overview: Overview, below: int) -> ChildFacts:
    """Return the facts about a child run. `below` is the number of runs that the child run started."""
    called = overview.called
    return ChildFacts(
        run=row.run,
        name=agent_of(row.name),
        at=row.at,
        last_at=row.last_at,
        head=row.head,
        call=call_of(row.name),
        edge=called[1] if called is not None and called[0] == row.parent_run else None,
        reason=overview.turns[-1].reason if overview.turns else None,
        answer=overview.answer,
        below=below,
        totals=totals(overview),
    )


def agent_of(name: str) -> str:
    """Return the name of the tool or agent in a run's name: `search` for the run `search#12`."""
    found = NAMED.fullmatch(name)
    return found[1] if found is not None else name


def call_of(name: str) -> int | None:
    """Return the seq of the call in a run's name, such as 12 for the run `search#12`; `None` if it contains none."""
    found = NAMED.fullmatch(name)
    return int(found[2]) if found is not None else None
