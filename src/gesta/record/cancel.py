"""Ends the open turns of child runs when the turn of their parent run ends or no longer waits for them.

Otherwise a late approval could continue a turn whose answer nobody waits for. A turn is one message to an agent and all
the work up to its answer. A child run is a run that a turn of another run started. Another process may hold the lease
of the child run (the right to write the run). Then a letter (a message) is sent to the run's inbox, and that process
ends the turn at its next step.
"""

from collections.abc import Sequence

from gesta.codec.rows import encode_content
from gesta.errors import RunHeld
from gesta.kinds import EndContent, Error, SignalContent
from gesta.log.journal import Clock, Journal
from gesta.perform.execution import LiveRun
from gesta.record.leases import Leases
from gesta.record.waits import state_of, turn_ended
from gesta.state.opening import close_orphans
from gesta.store import Letter


async def cancel_below(leases: Leases, clock: Clock, live: LiveRun, names: Sequence[str] | None = None) -> None:
    """End the open turns of the child runs of `live`, and of all runs below these.

    Args:
        live: the parent run.
        names: names of the child runs to end; `None` for all.
    """
    opened, run, store = live.state.opened, live.log.run, leases.store
    assert opened is not None
    by = f"run {run}"
    open_ = {run}
    for row in await store.runs(opened.session):  # in the order in which they were opened
        if names is not None and row.parent_run == run and row.name not in names:
            continue
        if row.parent_run in open_ and not await turn_ended(store, row):
            open_.add(row.run)
            try:
                await _end_turn(leases, clock, row.run, by)
            except RunHeld:
                text = encode_content(SignalContent(name="cancel", by=by), None)
                await store.send(Letter(row.run, f"cancel-{run}", text))


async def _end_turn(leases: Leases, clock: Clock, run: str, by: str) -> None:
    """End the open turn of a run with the reason `cancelled`. If no turn is open, do nothing.

    Args:
        by: who cancels the turn; this name is recorded.

    Raises:
        RunHeld: another process holds the run.
    """
    async with leases.leased(run) as lease:
        state = await state_of(leases.store, run)
        if state.turn is None or not state.open:
            return
        journal, begin = Journal(leases.store, lease, clock), state.turn.begin
        close_orphans(journal, state)
        signal = journal.write(SignalContent(name="cancel", by=by), begin)
        error, doubts = Error(type="cancelled", message=f"cancelled by {by}"), state.left_in_doubt() or None
        end = EndContent(status="error", reason="cancelled", error=error, doubts=doubts)
        journal.write(end, begin, (signal.seq,))
        await journal.durable()
