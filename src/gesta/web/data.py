"""The data of the pages, read from a record: sessions, the overview of a run, its lines, an explanation, an entry.

A record is the store of all runs, and a run is a list of entries; a seq is the number of an entry in its run. A session
is a group of runs. A line is one entry as a page shows it. The lines of a run are read in pages. The overview of a run
is kept in memory: its entries are read once, and after that only new entries are added.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from gesta.address import Record
from gesta.codec.rows import encode_content
from gesta.entry import Entry, utc_text
from gesta.errors import BrokenRecord, GestaError, message_of
from gesta.kinds import Kind
from gesta.record.waits import waits_of
from gesta.serve.bodies import Refused
from gesta.views.lines import LINKS, Line, fell, line, needed
from gesta.views.overview import totals
from gesta.views.timeline import busy_ms
from gesta.web.evidence import Evidence
from gesta.web.forms import FormPages
from gesta.web.glances import BARS, Glances, around, thinned
from gesta.web.graph import RunFacts, Shown, pictured
from gesta.web.lineages import Lineages
from gesta.web.listing import Listing
from gesta.web.reading import read
from gesta.web.sent import SentPages

PAGE = 200
"""Number of entries in one page of a run."""
LISTED = 50
"""Greatest number of deaths, and of doubts, listed beside a run: the newest ones.

A death is a process that died in the run. A doubt is a tool call that may or may not have had its effect.
"""


class Pages:
    """The source of all data that the pages show about one record."""

    def __init__(self, record: Record, name: str, address: str) -> None:
        """Prepare the pages of a record that is open for reading.

        Args:
            name: name of the record on the pages.
            address: address of the record, which is opened a second time to write a person's answer, and to check the
                whole record.
        """
        self.record, self.name, self.address = record, name, address
        self.evidence = Evidence(record, address)
        self._seen: tuple[int, tuple[str, int, bytes] | None] = 0, None
        self._begin()

    def _begin(self) -> None:
        self.listing = Listing(self.record)
        self.glances = Glances(self.record)
        self.lineages = Lineages(self.record)
        self.sent, self.forms = SentPages(self.record), FormPages(self.record, self.lineages)

    async def settle(self) -> None:
        """Forget what was read of the record if its last entry then is not in it now: a backup was put in its place.

        Raises RecordError if the record cannot be read. Cost: two short queries, and a third if the record has grown.
        """
        pos, mark = self._seen
        last = await self.record.store.last()
        other = last < pos or (mark is not None and not await self._holds(*mark))
        if other:
            self._begin()
        if other or last != pos:
            self._seen = last, await self._mark(last)

    async def _mark(self, pos: int) -> tuple[str, int, bytes] | None:
        """Return the run, the seq and the digest of the entry with a pos; `None` if it cannot be read."""
        try:
            rows = (await self.record.store.sql("SELECT run, seq, digest FROM entries WHERE pos = ?", (pos,))).rows
        except GestaError:  # the page of the entry says why
            return None
        match rows:
            case [(str() as run, int() as seq, bytes() as digest)]:
                return run, seq, digest
        return None

    async def _holds(self, run: str, seq: int, digest: bytes) -> bool:
        """Return whether an entry has this digest. It does too if it cannot be read."""
        try:
            rows = await self.record.store.read(run, seq - 1, seq)
        except GestaError:
            return True
        return bool(rows) and rows[0].digest == digest

    async def about(self) -> dict[str, Any]:
        """Return facts about the record for every page: its name, id, address and the position of its last entry.

        If the record cannot be read now, `problem` says why; it is `None` otherwise.
        """
        info, last, problem = self.record.info, 0, None
        try:
            last = await self.record.store.last()
        except GestaError as error:
            problem = message_of(error)
        return {"name": self.name, "id": info.id, "address": info.address, "last": last, "problem": problem}

    async def run(self, name: str) -> dict[str, Any]:
        """Return the overview of a run: its turns, times and totals, the runs around it, and what it waits for."""
        row = await self.record.find(name)
        glance = await self.glances.of(row.run)
        overview, rows = glance.overview, await self.record.store.runs(row.session)
        open_ = bool(overview.turns) and overview.turns[-1].reason is None
        try:
            waiting = await waits_of(self.record.store, row.run, self.record.now()) if open_ else []
        except BrokenRecord:  # the run cannot continue; its evidence says why
            waiting = []
        bars = thinned([bar for bar in glance.timeline.bars[-BARS:] if bar.lane not in ("turn", "span")])
        return {
            "run": row.run,
            "session": row.session,
            "agent": row.name,
            "parent": row.parent_run,
            "at": row.at,
            "last_at": row.last_at,
            "head": overview.last,
            "called": overview.called,
            "runs": around(row, rows),
            "below": sum(each.parent_run == row.run for each in rows),
            "turns": overview.turns,
            "bars": bars,
            "bars_left_out": max(0, len(glance.timeline.bars) - BARS),
            "busy_ms": busy_ms(glance.timeline.bars),
            "totals": totals(overview),
            "deaths": overview.deaths[-LISTED:],
            "doubts": [*overview.doubts.values()][-LISTED:],
            "waiting": waiting,
        }

    async def lines(self, run: str, after: int, limit: int = PAGE) -> list[Line]:
        """Return at most `limit` lines of a run, beginning with the first entry after the seq `after`."""
        return await self.shown(await read(self.record.store, run, after, limit=limit))

    async def shown(self, entries: Sequence[Entry]) -> list[Line]:
        """Return the lines of some entries of one run, in the same order.

        A line may need facts of other entries, such as the call that a result belongs to; these entries are read too.
        """
        known = {entry.seq: entry for entry in entries}
        for _ in range(LINKS):
            wanted = {seq for each in known.values() for seq in needed(each)} - set(known)
            missing = {seq for seq in wanted if 0 < seq < entries[-1].seq}  # an odd record may name any number
            if not missing:
                break
            for seq in missing:
                found = await read(self.record.store, entries[0].run, seq - 1, seq)
                known |= {entry.seq: entry for entry in found}
        made = [line(entry, known) for entry in entries]
        if not any(entry.kind is Kind.Fault for entry in entries):
            return made
        deaths = {each.seq: each for each in (await self.glances.of(entries[0].run)).overview.deaths}
        return [fell(each, deaths[each.seq]) if each.seq in deaths else each for each in made]

    async def why(self, run: str, seq: int | None) -> dict[str, Any]:
        """Return the explanation of an entry: the entries from which it was made, and the passages that it repeats.

        Args:
            seq: seq of the entry; `None` for the last answer of the run.
        """
        explained = await self.lineages.explained(run, seq)
        found, near = explained.found, explained.near
        return {
            "id": found.id,
            "questions": found.questions,
            "complete": found.complete,
            "nodes": [msgspec.to_builtins(node) | {"near": node.id in near} for node in found.nodes],
            "drawn": explained.passages,
        }

    async def graph(self, run: str, seq: int | None, shown: Shown) -> dict[str, Any]:
        """Return the data for drawing the explanation of an entry: coordinates of every node, group and edge.

        Args:
            seq: seq of the entry; `None` for the last answer of the run.
            shown: which nodes a person wants to see, and which groups are open.
        """
        explained = await self.lineages.explained(run, seq)
        runs = {}
        for name in dict.fromkeys(node.run for node in explained.found.nodes):
            row = await self.record.find(name)
            turns = [(turn.seq, turn.number) for turn in (await self.glances.of(row.run)).overview.turns]
            runs[name] = RunFacts(row.name, row.parent_run, turns)
        return pictured(explained.found, explained.passages, explained.near, runs, shown)

    async def entry(self, run: str, seq: int) -> dict[str, Any]:
        """Return one entry with its whole content. Raises Refused if the run has no entry with this seq."""
        entries = await read(self.record.store, run, seq - 1, seq)
        if not entries:
            raise Refused(404, "NoEntry", f"No entry {seq} in run {run}.")
        (entry,) = entries
        return {
            "run": run,
            "seq": seq,
            "kind": str(entry.kind),
            "at": utc_text(entry.at),
            "span": entry.span,
            "causes": entry.causes,
            "annotations": entry.annotations,
            "content": msgspec.Raw(encode_content(entry.content).encode()),
        }
