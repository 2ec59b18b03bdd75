"""Makes spans from the entries of a record, which are added one after another.

An exporter has to store only its place in the record, because the earlier entries of an open turn can be read again
from the record. A run is a list of entries. A turn, the work on one message, is identified by its run and the seq
(number in the run) of its `begin` entry. A root run is one that no other run started.
"""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator

from gesta.entry import Entry
from gesta.kinds import AttemptContent, BeginContent, SystemContent, UserContent
from gesta.log.journal import PAGE, pages, read
from gesta.store import Store
from gesta.text.tracing import span_id
from gesta.views.spans import Above, Link, TraceSpan, above_of
from gesta.views.traces import Turn

TURNS = 1000
"""Greatest number of open turns kept in memory. A turn that was dropped is read again when its next entry comes."""
KNOWN = 20_000
"""Greatest number of turns remembered as ended, and of turns whose place in a trace is remembered."""
Root = tuple[str, int]
"""A turn: the id of its run, and the seq of its `begin`."""


class Folding:
    """Makes spans from entries, and keeps the turns that are still open in memory."""

    def __init__(self, store: Store, *, content: bool = False, ratio: float = 1.0, heeds: bool = True) -> None:
        """Prepare to make spans.

        Args:
            content: whether spans contain the texts of messages, calls and results.
            ratio: the share of root runs whose spans are sent, from 0 to 1.
            heeds: whether to leave out a turn if the caller's trace context says that its trace is not sampled.
        """
        self._store, self._content, self._ratio, self._heeds = store, content, ratio, heeds
        self._turns: OrderedDict[Root, Turn] = OrderedDict()
        self._roots: dict[str, list[int]] = {}
        self._over: OrderedDict[Root, None] = OrderedDict()
        self._above: OrderedDict[Root, Above] = OrderedDict()
        self._sessions: OrderedDict[str, str] = OrderedDict()

    async def add(self, entry: Entry) -> tuple[list[TraceSpan], bool]:
        """Add the next entry of the record.

        Returns the spans that ended with this entry, and whether to send these spans (see `sampled`).
        """
        content = entry.content
        within = content.parent if isinstance(content, BeginContent) else entry.span
        if within is None:
            self._keep(await self._turn(entry))
            return [], False
        turn = self._known(entry.run, within) or await self._loaded(entry, within)
        return ([], False) if turn is None else (await self._step(turn, entry), self.sampled(turn.above))

    async def run(self, run: str) -> AsyncIterator[TraceSpan]:
        """Yield the ended spans of a run.

        For a fork (a run that continues another run), the spans of the other run are left out.
        """
        async for page in pages(self._store, run):
            for entry in page:
                spans, _ = await self.add(entry)
                for span in spans if entry.shared_from is None else ():
                    yield span

    def sampled(self, above: Above) -> bool:
        """Return whether the spans of a turn are to be sent.

        The answer is the same for a root run and all its child runs.

        Args:
            above: the place of the turn in its trace.
        """
        if self._heeds and not above.sampled:
            return False
        share = int.from_bytes(hashlib.sha256(f"gesta sample {above.root}".encode()).digest()[:8]) / 2**64
        return share < self._ratio

    async def _step(self, turn: Turn, entry: Entry) -> list[TraceSpan]:
        lacks = turn.lacks(entry)
        if lacks is not None:
            turn.know(await self._entry(entry.run, lacks))
        spans = turn.add(entry)
        if turn.over:
            self._drop((turn.run, turn.begin))
            _put(self._over, (turn.run, turn.begin), None)
        return spans

    def _known(self, run: str, span: int) -> Turn | None:
        for begin in reversed(self._roots.get(run, ())):
            turn = self._turns[run, begin]
            if span in turn.known:
                self._turns.move_to_end((run, begin))
                return turn
        return None

    def _keep(self, turn: Turn) -> None:
        key = (turn.run, turn.begin)
        if key not in self._turns:
            self._roots.setdefault(turn.run, []).append(turn.begin)
        self._turns[key] = turn
        while len(self._turns) > TURNS:
            self._drop(next(iter(self._turns)))

    def _drop(self, key: Root) -> None:
        if self._turns.pop(key, None) is not None:
            begins = self._roots[key[0]]
            begins.remove(key[1])
            if not begins:
                del self._roots[key[0]]

    async def _loaded(self, entry: Entry, span: int) -> Turn | None:
        """Return the turn that contains an entry, read from the record up to the entry before that one.

        Returns `None` if the turn has ended, or if its `begin` is not found.

        Args:
            span: seq of the `begin` entry of the span that contains the entry.
        """
        begin = await self._root(entry.run, span)
        if begin is None or (entry.run, begin.seq) in self._over:
            return None
        turn, seq = await self._turn(begin), begin.seq
        while rest := await read(self._store, entry.run, seq, entry.seq - 1, PAGE):
            for each in rest:
                await self._step(turn, each)
            seq = rest[-1].seq
        if turn.over:
            return None
        self._keep(turn)
        return turn

    async def _turn(self, begin: Entry) -> Turn:
        earlier = None
        if self._content:
            earlier = await read(self._store, begin.run, max(0, begin.seq - 1 - PAGE), begin.seq - 1)
        return Turn(begin, await self._above_of(begin), content=self._content, earlier=earlier)

    async def _entry(self, run: str, seq: int) -> Entry | None:
        return next(iter(await read(self._store, run, seq - 1, seq)), None) if seq > 0 else None

    async def _root(self, run: str, span: int) -> Entry | None:
        """Return the `begin` entry of the turn that a span belongs to; `None` if there is none.

        Args:
            span: seq of the `begin` entry of the span.
        """
        seen = set[int]()
        while span not in seen:
            seen.add(span)
            begin = await self._entry(run, span)
            if begin is None or not isinstance(begin.content, BeginContent):
                return None
            if begin.content.parent is None:
                return begin
            span = begin.content.parent
        return None

    async def _above_of(self, begin: Entry) -> Above:
        """Return the place of a turn in a trace.

        The place is below the call that started the run, or below a span of the client that sent the message. If there
        is neither, the turn is the top of a trace.
        """
        key = (begin.run, begin.seq)
        known = self._above.get(key)
        if known is None:
            known = await self._placed(begin)
            _put(self._above, key, known)
        return known

    async def _placed(self, begin: Entry) -> Above:
        run, session = begin.run, await self._session(begin.run)
        if begin.shared_from is not None:
            base = await self._entry(begin.shared_from, begin.seq)
            if base is None:
                return above_of(run, begin.seq, session, None)
            trace = (await self._above_of(base)).trace
            link = Link(trace, span_id(begin.shared_from, begin.seq))
            return Above(trace=above_of(run, begin.seq, session, None).trace, root=run, session=session, base=link)
        message = await self._entry(run, begin.seq + 1)
        if message is None or not isinstance(message.content, SystemContent | UserContent):
            return above_of(run, begin.seq, session, None)
        for cause in message.causes:
            if isinstance(cause, tuple) and cause[0] != run:
                return await self._below(cause, session) or above_of(run, begin.seq, session, message)
        return above_of(run, begin.seq, session, message)

    async def _below(self, cause: tuple[str, int], session: str) -> Above | None:
        """Return where a turn of a child run belongs in the trace: below the call that started the turn.

        Return `None` if the call is not found.

        Args:
            cause: run and seq of the parent's entry about the start of the turn.
            session: the session of the child run.
        """
        run, seq = cause
        edge = await self._entry(run, seq)
        root = await self._root(run, edge.span) if edge is not None else None
        if edge is None or root is None:
            return None
        span = edge.span
        for each in edge.causes:
            made = await self._entry(run, each) if isinstance(each, int) else None
            if made is not None and isinstance(made.content, AttemptContent):
                span = made.content.of
        above = await self._above_of(root)
        parent = span_id(run, span)
        return Above(trace=above.trace, parent=parent, root=above.root, session=session, sampled=above.sampled)

    async def _session(self, run: str) -> str:
        known = self._sessions.get(run)
        if known is None:
            first = next(iter(await self._store.read(run, 0, None, 1)), None)
            own = await self._entry(run, first.seq) if first is not None else None
            opened = own.content.opened if own is not None and isinstance(own.content, BeginContent) else None
            known = opened.session if opened is not None else ""
            _put(self._sessions, run, known)
        return known


def _put(kept: OrderedDict[object, object] | OrderedDict, key: object, value: object) -> None:  # type: ignore[type-arg]
    """Add a value to a mapping of at most `KNOWN` values; the oldest value is removed if there are more."""
    kept[key] = value
    if len(kept) > KNOWN:
        kept.popitem(last=False)
