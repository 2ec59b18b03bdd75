"""The runs that a run started: what each was called for, what it answered, and what it cost.

The name of a run that a tool call started holds the seq of the call. A run that a program started is found at the edge
that its first message came from.
"""

import re
from typing import Any

from msgspec import Struct

from gesta.store import RunRow
from gesta.views.overview import Overview, totals

NAMED = re.compile(r"(.+)#(\d{1,15})(?:\.\w+)?")
"""Name of a run that a tool call started: the tool and the seq of the call; see `perform.child.child_name`."""


class ChildFacts(Struct, frozen=True, kw_only=True):
    """A run that another run started."""

    run: str
    name: str
    at: str
    last_at: str
    """Time of its last entry."""
    head: int
    call: int | None
    """Seq of the call that started it; `None` if a program started it."""
    edge: int | None
    """Seq of the entry that its first message came from."""
    reason: str | None
    """How its last turn ended; `None` while it is open."""
    answer: str
    """Beginning of its last answer."""
    below: int
    """Number of runs that it started."""
    totals: dict[str, Any]


def child_facts(row: RunRow, overview: Overview, below: int) -> ChildFacts:
    """Return the facts about a run that another run started."""
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
    """Return the name of the tool or agent from the name of a run."""
    found = NAMED.fullmatch(name)
    return found[1] if found is not None else name


def call_of(name: str) -> int | None:
    """Return the seq of the call that started a run of this name; `None` if the name holds none."""
    found = NAMED.fullmatch(name)
    return int(found[2]) if found is not None else None
