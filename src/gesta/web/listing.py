"""The list of sessions of one record or several: filtered, searched by words, sorted, with sums.

A run is a list of entries, a session is a group of runs, and the record is the store of all of them. An index of the
record makes the list fast. For a large record the index is built in slices, one a request. Until it is complete, the
page shows the newest sessions and the share of entries that were read, and asks again. So no request takes long.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anyio import Lock
from msgspec import Struct
from msgspec.structs import replace

from gesta.errors import GestaError, message_of
from gesta.record.record import Record
from gesta.stores.run_index import RunIndex
from gesta.stores.session_list import listed
from gesta.stores.words import CLOSING, OPENING, WordIndex
from gesta.views.sessions import SessionFilter, Sort, Totals
from gesta.web.numbers import number_in

SLICE_S = 0.15
"""Time in seconds for which one request adds entries to the index."""
LARGE = 20_000
"""Number of entries above which the first request is answered without adding to the index."""
NEWEST = 2500
"""Number of the newest entries in which the newest runs are looked for, while the index is not complete."""
RUNS = 60
"""Greatest number of runs listed while the index is not complete."""
MATCHES = 5_000
"""Number of matching entries, newest first, that a search by words looks at."""
CHOICES = 300
"""Greatest number of names of agents, and of tools, offered as filters."""
LIMIT = 200
LATELY = f"SELECT DISTINCT run FROM (SELECT run FROM entries ORDER BY pos DESC LIMIT {NEWEST}) AS late"  # noqa: S608
SORTS: tuple[Sort, ...] = ("newest", "cost", "tokens", "duration", "entries")
DAY = re.compile(r"\d{4}-\d\d-\d\d")
COST = re.compile(r"\d{1,9}(\.\d{1,9})?")


class Asked(Struct, frozen=True, kw_only=True):
    """A request for the list, read from its address: filters, words to search for, order, and page."""

    filter: SessionFilter
    words: str = ""
    choices: bool = False
    """Whether the names of agents and tools are requested too."""


class Listed(Struct, kw_only=True):
    """A page of the list of sessions, and the sums of all sessions that fit the filters and words."""

    sessions: list[dict[str, Any]]
    totals: Totals
    read: float
    """Share of the entries read so far, from 0 to 1. Below 1, the list is not complete."""
    agents: list[str] | None = None
    tools: list[str] | None = None
    records: int = 1
    problems: list[str] = []
    """Why records are left out of a list of several: one sentence for each record that cannot be read now."""


def asked(given: Mapping[str, str]) -> Asked:
    """Return the request for the list that an address's query describes. Values of a wrong form are ignored."""
    days = {name: given.get(name, "") for name in ("since", "until")}
    days = {name: day for name, day in days.items() if DAY.fullmatch(day)}
    sort: Sort = next((sort for sort in SORTS if sort == given.get("sort")), "newest")
    cost = given.get("cost", "")
    wanted = SessionFilter(
        agent=given.get("agent", ""),
        stands=given.get("stands", ""),
        tool=given.get("tool", ""),
        errors=bool(given.get("errors")),
        cost=float(cost) if COST.fullmatch(cost) else None,
        since=days.get("since", ""),
        until=f"{days['until']}T99" if "until" in days else "",
        sort=sort,
        after=number_in(given.get("after", ""), 0),
        limit=min(LIMIT, number_in(given.get("limit", ""), 50)),
    )
    words = given.get("words", "").strip()
    words = words if any(sign.isalnum() for sign in words) else ""
    return Asked(filter=wanted, words=words, choices=bool(given.get("choices")))


class Listing:
    """The sessions of one record, with the indexes over its runs and words."""

    def __init__(self, record: Record, slice_s: float = SLICE_S, large: int = LARGE) -> None:
        self.record, self.slice_s, self.large = record, slice_s, large
        self.index = RunIndex(record.store)
        self.words = WordIndex(record.store)
        self._newest: tuple[int, RunIndex] | None = None
        self._lock = Lock()

    async def page(self, wanted: Asked) -> Listed:
        """Return a page of the sessions that fit the filters and words of a request.

        Cost: some milliseconds, and at most `slice_s` seconds to index new entries.
        """
        async with self._lock:
            read, index = await self._read(wanted)
            if index is None:
                return Listed(sessions=[], totals=Totals(), read=read)
            places = dict[str, tuple[str, int]]()
            if wanted.words:
                hits = await self.words.places(wanted.words, MATCHES, self.slice_s)
                read = min(read, self.words.share)
                for run, seq in hits.items():
                    for (session,) in index.all("SELECT session FROM runs WHERE run = ?", (run,)):
                        places.setdefault(session, (run, seq))
            chosen = places.keys() if wanted.words else None
            found = await listed(index, wanted.filter, self.record.now(), chosen)
            page = Listed(sessions=[], totals=found.totals, read=read)
            for session in found.sessions:
                fact = {name: getattr(session, name) for name in session.__struct_fields__}
                page.sessions.append(fact | {"hit": await self._hit(wanted.words, places.get(session.name))})
            if wanted.choices and index is self.index:
                page.agents = self._names("SELECT agent, count(*) AS n FROM runs GROUP BY 1 ORDER BY n DESC LIMIT ?")
                page.tools = self._names("SELECT name, sum(calls) AS n FROM tools GROUP BY 1 ORDER BY n DESC LIMIT ?")
            return page

    async def whole(self) -> RunIndex:
        """Return the index of all runs, after adding all entries that it lacks. Cost: grows with their number."""
        await self.index.update()
        return self.index

    async def _read(self, wanted: Asked) -> tuple[float, RunIndex | None]:
        """Return the share of entries read so far (0 to 1), and an index for the list.

        Until the index of all runs is complete, an index of the newest runs is returned. If that is not enough for the
        filters, the order or the words of the request, `None` is returned as the index.
        """
        narrow = replace(wanted.filter, after=0, limit=None) != SessionFilter(limit=None) or wanted.words
        first = self._newest is None and not self.index.pos and await self.record.store.last() > self.large
        share = await self.index.update(0.0 if first and not narrow else self.slice_s)
        if share >= 1 or self.index.whole:
            self._newest = None
            return 1.0, self.index
        if narrow:
            return share, None
        last = await self.record.store.last()
        if self._newest is None or self._newest[0] != last:
            rows = (await self.record.store.sql(LATELY)).rows
            self._newest = last, RunIndex(self.record.store)
            await self._newest[1].take([str(run) for (run,) in rows][:RUNS])
        return share, self._newest[1]

    async def _hit(self, words: str, place: tuple[str, int] | None) -> dict[str, Any] | None:
        """Return where the words were found, as `{run, seq, kind, parts}`; `None` if `place` is `None`.

        `parts` is the text around the words, split at the matches: the second, the fourth and each further even part
        is a match.

        Args:
            words: the words that the user searched for.
            place: id of the run and seq of the entry that contains the words.
        """
        if place is None:
            return None
        kind, snippet = await self.words.snippet(*place, words)
        parts = snippet.replace(CLOSING, OPENING).split(OPENING)
        return {"run": place[0], "seq": place[1], "kind": kind, "parts": parts}

    def _names(self, query: str) -> list[str]:
        return sorted(str(name) for name, _ in self.index.all(query, (CHOICES,)) if name)


class Lists(Protocol):
    """What lists the sessions of one record."""

    @property
    def listing(self) -> Listing:
        """The object that lists the sessions, and keeps the index of runs that it makes for that."""

    async def settle(self) -> None:
        """Forget what was read, if the record is not the same any more. Raises RecordError if it cannot be read."""


async def everywhere(places: Sequence[Lists], wanted: Asked) -> Listed:
    """Return a page of the sessions of several records that fit a request, sorted together.

    Each session has the number of its record. A record that cannot be read is left out. Raises its error if it is the
    only one.
    """
    first = replace(
        wanted, filter=replace(wanted.filter, after=0, limit=wanted.filter.after + (wanted.filter.limit or 0))
    )
    read_, problems = dict[int, Listed](), list[str]()
    for number, each in enumerate(places):
        try:
            await each.settle()
            read_[number] = await each.listing.page(first)
        except GestaError as error:
            if len(places) == 1:
                raise
            problems.append(message_of(error))
    pages = [*read_.values()]
    rows = [row | {"record": number} for number, page in read_.items() for row in page.sessions]
    rows.sort(key=lambda row: _order(row, wanted.filter.sort), reverse=True)
    sums = [page.totals for page in pages]
    usd = [each.usd for each in sums if each.usd is not None]
    totals = Totals(
        **{name: sum(getattr(each, name) for each in sums) for name in Totals.__struct_fields__ if name != "usd"},
        usd=sum(usd) if usd else None,
    )
    names = {
        name: sorted({one for page in pages for one in getattr(page, name) or ()}) if wanted.choices else None
        for name in ("agents", "tools")
    }
    shown = rows[wanted.filter.after :][: wanted.filter.limit]
    read = min((page.read for page in pages), default=1.0)
    return Listed(sessions=shown, totals=totals, read=read, records=len(places), problems=problems, **names)


def _order(row: dict[str, Any], sort: Sort) -> tuple[Any, ...]:
    match sort:
        case "cost":
            first: Any = -1.0 if row["usd"] is None else row["usd"]
        case "tokens":
            first = row["tokens_in"] + row["tokens_out"]
        case "duration":
            first = (row["last_at"] - row["first_at"]).total_seconds()
        case "entries":
            first = row["entries"]
        case _:
            first = row["running"]
    return first, row["last_at"]
