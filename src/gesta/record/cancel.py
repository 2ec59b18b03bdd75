"""Ends the open turns of child runs when the turn of their parent run ends or no longer waits for them.

Otherwise a late approval could continue a turn whose answer nobody waits for. A turn is one message to an agent and all
the work up to its answer. A child run is a run that a turn of another run started. Another process may hold the lease
of the child run (the right to write the run). Then a letter (a message) is sent to the run's inbox, and that process
ends the turn at its next step.

A call is in doubt if nobody knows whether it had its effect. The parent run has to know of each doubt in the runs below
it, so that a person is asked before it makes such a call again. So each run is ended after the runs below it. Then the
costs of the ended runs are settled in the account of the parent run.
"""

from collections.abc import Sequence
from typing import TypeGuard

from msgspec.structs import replace

from gesta.codec.rows import encode_content
from gesta.decide.budget import returned
from gesta.entry import Cause
from gesta.errors import RunHeld
from gesta.kinds import BudgetContent, EndContent, Error, Kind, SignalContent
from gesta.log.journal import Clock, Journal, read
from gesta.perform.execution import LiveRun
from gesta.record.leases import Leases
from gesta.record.waits import last_end, state_of
from gesta.state.account import Spending
from gesta.state.opening import close_orphans
from gesta.store import Letter, RunRow, Store

Cost = tuple[BudgetContent, *tuple[Cause, ...]]
"""What a child run spent, as a `budget` entry's content; then the `end` entry of that run, if its turn has begun."""


async def cancel_below(leases: Leases, clock: Clock, live: LiveRun, name: str | None) -> list[str]:
    """End the open turns of the child runs of `live`, and of all runs below these; see `Host.call_off`."""
    assert live.state.opened is not None
    rows = await leases.store.runs(live.state.opened.session)
    if name is not None:
        rows = [row for row in rows if row.parent_run != live.log.run or f"{row.name}.".startswith(f"{name}.")]
    doubts = sorted(await _Ending(leases, clock, rows, live.log.run).below(live.log.run))
    live.absorb()
    if live.state.turn is not None:
        costs = await _costs(leases.store, live.state.turn.spending, live.log.run, rows)
        if name is None:  # else the call may be tried again, and begin the child run then
            costs += await _unused(leases.store, live.state.turn.spending, live.log.run, rows)
        for spent, *ends in costs:
            live.write(spent, spent.of, *ends)
        live.absorb()
    return doubts


async def _costs(store: Store, spending: Spending, run: str, rows: Sequence[RunRow]) -> list[Cost]:
    """Return the costs of child runs that have ended, and are not settled in the account of their parent run yet.

    Each cost is a `budget` entry's content. With it comes the `end` entry of the child run, which is a cause of that
    entry. Without an `edge` entry to settle, nothing is read.

    Args:
        spending: the account of the parent run's turn.
        run: id of the parent run.
        rows: the child runs to look at, among other runs.
    """
    found = list[Cost]()
    for row in rows if spending.held.keys() & spending.edges.keys() else ():
        if row.parent_run != run:
            continue
        head, _ = await store.head(row.run)
        last = await read(store, row.run, head - 1)
        task = await read(store, row.run, last[0].span, last[0].span + 1) if last and last[0].kind == Kind.End else []
        edges = [seq for each in task for run_, seq in filter(_elsewhere, each.causes) if run_ == run]
        edges += [spending.children[row.name]] if row.name in spending.children else []
        edge = next((each for each in edges if each in spending.held and each in spending.edges), None)
        turn = (await state_of(store, row.run)).turn if edge is not None else None
        if edge is not None and turn is not None and turn.end is not None:
            spent = returned(edge, spending.edges[edge].allowance, turn.spending.spent(turn.requests))
            found += [(spent, (row.run, turn.end))] if spent is not None else []
    return found


async def _unused(store: Store, spending: Spending, run: str, rows: Sequence[RunRow]) -> list[Cost]:
    """Return a cost of 0 for each `edge` entry from which no child run began a turn, so that nothing stays reserved.

    Args:
        spending: the account of the parent run's turn, which is about to end.
        run: id of the parent run.
        rows: the child runs of that run, among other runs.
    """
    unused = spending.held.keys() & spending.edges.keys()
    for row in rows if unused else ():
        if row.parent_run == run:
            causes = [cause for each in await read(store, row.run) for cause in filter(_elsewhere, each.causes)]
            unused -= {spending.children.get(row.name), *(seq for run_, seq in causes if run_ == run)}
    costs = [returned(edge, spending.edges[edge].allowance, None) for edge in sorted(unused)]
    return [(cost,) for cost in costs if cost is not None]


def _elsewhere(cause: Cause) -> TypeGuard[tuple[str, int]]:
    return isinstance(cause, tuple)


class _Ending:
    """Ends the turns of runs, and gathers the names of tools with a call of unknown outcome in these runs.

    Args:
        rows: the runs of the session that may be ended.
        root: id of the run that no longer waits for them.
    """

    def __init__(self, leases: Leases, clock: Clock, rows: Sequence[RunRow], root: str) -> None:
        self.leases, self.clock, self.rows, self.root = leases, clock, rows, root

    async def below(self, run: str) -> set[str]:
        """End the open turns of all runs below a run. Return the names of tools that they left in doubt."""
        found: set[str] = set()
        for row in self.rows:  # in the order in which they were opened
            if row.parent_run == run:
                found |= await self._end(row)
        return found

    async def _end(self, row: RunRow) -> set[str]:
        """End the open turn of a run, if there is one, with the reason `cancelled`. Return what is in doubt there."""
        store = self.leases.store
        ended = await last_end(store, row)
        if ended is not None:
            return set(ended.doubts or ())
        try:
            return await self._cancel(row.run)
        except RunHeld:  # an attempt on record before this letter may be at work, and a later one does not begin
            text = encode_content(SignalContent(name="cancel", by=f"run {self.root}"))
            await store.send(Letter(row.run, f"cancel-{self.root}", text))
        return await self.below(row.run) | set((await state_of(store, row.run)).left_in_doubt())

    async def _cancel(self, run: str) -> set[str]:
        """End the open turn of a run that nobody holds. Raises RunHeld if another process holds it."""
        async with self.leases.leased(run) as lease:
            below, by = await self.below(run), f"run {self.root}"
            state = await state_of(self.leases.store, run)
            doubts = below | set(state.left_in_doubt())
            if state.turn is None or not state.open:
                return doubts
            journal, begin = Journal(self.leases.store, lease, self.clock), state.turn.begin
            costs = await _costs(self.leases.store, state.turn.spending, run, self.rows)
            for spent, *ends in costs + await _unused(self.leases.store, state.turn.spending, run, self.rows):
                journal.write(spent, begin, (spent.of, *ends))
            close_orphans(journal, state)
            signal = journal.write(SignalContent(name="cancel", by=by), begin)
            error = Error(type="cancelled", message=f"cancelled by {by}")
            end = EndContent(status="error", reason="cancelled", error=error)
            end = replace(end, doubts=sorted(doubts) or None, below=sorted(below) or None)
            journal.write(end, begin, (signal.seq,))
            journal.sync()
            await journal.durable()
        return doubts
