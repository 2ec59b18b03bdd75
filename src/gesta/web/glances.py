"""Overviews and timelines of runs, kept in memory for the pages.

A record is the store of all runs, and a run is a list of entries. The entries of a run are read once; after that only
new entries are added. Of the runs that a run started (its child runs), only a few facts are kept. A bar is a piece of
the timeline: one turn, model call, tool call or wait. A lane is one row of the timeline, with the bars of one kind. A
session is a group of runs.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from anyio import Lock
from msgspec import Struct, field
from msgspec.structs import replace

from gesta.address import Record
from gesta.store import RunRow
from gesta.views.children import ChildFacts, child_facts
from gesta.views.overview import Overview, OverviewView
from gesta.views.timeline import Bar, Timeline, TimelineView, busy_ms
from gesta.web.reading import read

READ = 2000
"""Number of entries read at once; between these reads other requests are answered."""
KEPT = 16
"""Number of runs whose overview and timeline are kept in memory."""
KEPT_CHILDREN = 5000
"""Number of child runs whose facts are kept in memory."""
BARS = 4000
"""Greatest number of bars of a run that are sent: the newest ones."""
FEW = 300
"""Number of bars up to which the small picture beside a conversation shows each bar."""
CHILDREN = 200
"""Greatest number of child runs in one answer."""


class Glance(Struct):
    """The overview and the timeline of one run, up to the last entry that was read."""

    overview: Overview = field(default_factory=Overview)
    timeline: Timeline = field(default_factory=Timeline)
    lock: Lock = field(default_factory=Lock)


class Glances:
    """The overviews and timelines of the runs of one record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._kept: OrderedDict[str, Glance] = OrderedDict()
        self._facts: OrderedDict[str, ChildFacts] = OrderedDict()

    async def of(self, run: str) -> Glance:
        """Return the overview and the timeline of a run, after reading the entries that are new since the last call."""
        glance = self._kept.setdefault(run, Glance())
        self._kept.move_to_end(run)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        overview, timeline = OverviewView(), TimelineView()
        async with glance.lock:
            while entries := await read(self.record.store, run, glance.overview.last, limit=READ):
                for entry in entries:
                    overview.apply(glance.overview, entry)
                    timeline.apply(glance.timeline, entry)
        return glance

    async def time(self, run: str) -> dict[str, Any]:
        """Return the newest bars of a run, the busy milliseconds of each lane, and the number of child runs."""
        row = await self.record.find(run)
        timeline = (await self.of(row.run)).timeline
        bars = timeline.bars
        shown = bars[-BARS:]
        below = [each for each in await self.record.store.runs(row.session) if each.parent_run == row.run]
        return {
            "run": row.run,
            "agent": row.name,
            "bars": shown,
            "left_out": len(bars) - len(shown),
            "edges": timeline.edges,
            "busy_ms": busy_ms(bars),
            "below": len(below),
        }

    async def children(self, run: str, after: int = 0) -> dict[str, Any]:
        """Return facts about the child runs of a run, in the order of their beginnings, and the number of them all.

        Args:
            after: number of child runs to skip.
        """
        row = await self.record.find(run)
        rows = await self.record.store.runs(row.session)
        below, own = Counter(each.parent_run for each in rows), [each for each in rows if each.parent_run == row.run]
        shown = own[after : after + CHILDREN]
        return {
            "count": len(own),
            "after": after,
            "children": [await self._child(each, below[each.run]) for each in shown],
        }

    async def _child(self, row: RunRow, below: int) -> ChildFacts:
        kept = self._facts.get(row.run)
        if kept is None or (kept.head, kept.below) != (row.head, below):
            state, view = Overview(), OverviewView()
            while entries := await read(self.record.store, row.run, state.last, limit=READ):
                for entry in entries:
                    view.apply(state, entry)
            kept = self._facts[row.run] = child_facts(row, state, below)
        self._facts.move_to_end(row.run)
        while len(self._facts) > KEPT_CHILDREN:
            self._facts.popitem(last=False)
        return kept


def around(row: RunRow, rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    """Return facts about the runs that the page of a run links to: other root runs of its session, and its parents.

    Parents are followed up to a root run (a run that no other run started). The run itself is listed too.

    Args:
        rows: the runs of the session.
    """
    by_id = {each.run: each for each in rows}
    way, here = list[str](), row
    while here.run not in way:
        way.append(here.run)
        here = by_id.get(here.parent_run or "", here)
    found = [each for each in rows if each.parent_run not in by_id or each.run in way]
    roots = [each for each in found if each.run not in way][:CHILDREN]
    return [
        {"run": each.run, "agent": each.name, "parent": each.parent_run}
        for each in found
        if each.run in way or each in roots
    ]


def thinned(bars: Sequence[Bar]) -> list[Bar]:
    """Return bars for a small picture. Bars of one lane that are too close to tell apart are merged.

    Up to `FEW` bars are returned unchanged. A bar with a tone, which marks a failure or the like, is never merged.
    """
    if len(bars) <= FEW:
        return [*bars]
    step = (max(bar.end or bar.start for bar in bars) - min(bar.start for bar in bars)) / FEW
    found, last = list[Bar](), dict[str, int]()
    for bar in bars:
        before = found[last[bar.lane]] if bar.lane in last else None
        ends = before.end if before is not None and not before.tone and not bar.tone and bar.end is not None else None
        if before is not None and ends is not None and bar.end is not None and bar.start - ends < step:
            found[last[bar.lane]] = replace(before, end=max(ends, bar.end), tokens=None, usd=None)
        else:
            last[bar.lane] = len(found)
            found.append(bar)
    return found
