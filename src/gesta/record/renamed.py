"""Refuses a new run whose message another agent of the session may have carried out in part.

A run is found by its session and the name of its agent. So an agent with a new name begins a new run, which knows
nothing of the turn that was left open under the old name, and would repeat the effects of that turn. A root run is a
run that no other run started. A lease is the right to write a run. A letter is a message in the inbox of a run. An
attempt is an entry which says that a tool was about to be called.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager

from gesta.agent import Agent
from gesta.errors import RunHeld, RunMirrored, TurnOpen
from gesta.kinds import UserContent
from gesta.log.journal import letters
from gesta.perform.execution import LiveRun, TurnCaller
from gesta.record.waits import last_end, state_of
from gesta.state.calls import WAITING
from gesta.state.opening import MESSAGE, Opening
from gesta.state.run import RunState
from gesta.store import RunRow, Store

HoldRun = Callable[[str, Agent, TurnCaller], AbstractAsyncContextManager[LiveRun]]
"""Holds the lease of the run with a given id; see `Turns.held`."""


async def refuse_renamed(agent: Agent, opening: Opening, live: LiveRun, hold: HoldRun) -> None:
    """Raise TurnOpen if another agent of the session may have carried out the message of `opening`, a new root run's.

    That is so if the open turn of another root run has an attempt of a tool with effects, and the attempt has no
    result; `agent`, or an agent among its tools, has a tool of that name, or a program, which may call any tool; the
    message has a key that the other run knows, or has no key; and nobody holds the lease of the other run.

    Cost: reads two rows of each other root run of the session, and the whole run if its turn is open.
    """
    if not isinstance(opening.content, UserContent):  # a program opens the turn by itself, and no message comes again
        return
    store, told = live.log.journal.store, TurnCaller(None, live.stop)
    rows = await store.runs(opening.session)
    for row in rows:
        if row.parent_run is not None or row.name == opening.name or await last_end(store, row) is not None:
            continue
        state = await state_of(store, row.run)
        if not state.open or not await _knows(store, row.run, state, opening.key):
            continue
        tool = await _tried(store, rows, state, row.run, _tools(agent))
        if tool is not None and not await _driven(hold(row.run, agent, told)):
            assert state.turn is not None
            raise TurnOpen(row.run, state.turn.begin, _found(row, state.turn.key, tool, opening))


def _tools(agent: Agent) -> set[str] | None:
    """Return the names of the tools of an agent, and of those that are its tools; `None` if one has a program."""
    names = {tool.name for tool in agent.tools}
    for below in [tool.agent for tool in agent.tools if tool.agent is not None]:
        tools = _tools(below)
        if tools is None:
            return None
        names |= tools
    return names if agent.program is None else None


async def _knows(store: Store, run: str, state: RunState, key: str | None) -> bool:
    """Return whether a run had or has a message with this key; `True` without a key, as nobody can tell then."""
    if key is None or key in state.turns:
        return True
    return any(letter.key == MESSAGE + key for letter, _ in await letters(store, run))


async def _tried(
    store: Store, rows: Sequence[RunRow], state: RunState, run: str, names: Collection[str] | None
) -> str | None:
    """Return the name of a tool that may have had its effect in a run, or in a run below it, without a result.

    A result which tells the model that the outcome is unknown is none.

    Args:
        rows: the runs of the session.
        state: the state of the run.
        names: names of the tools to look for; `None` for all tools. Runs below are looked at if a call of such a tool
            began them.
    """
    told = {seq: call for seq, call in state.unknown.items() if state.turn is not None and seq > state.turn.begin}
    calls = [each for each in (told | state.tried()).values() if names is None or each.name in names]
    for call in calls:
        if call.last is not None and call.last.agent is None and call.last.doubt not in WAITING and not call.last.void:
            return call.name
    for row in rows if calls or names is None else ():
        if row.parent_run == run and await last_end(store, row) is None:
            tool = await _tried(store, rows, await state_of(store, row.run), row.run, None)
            if tool is not None:
                return tool
    return None


async def _driven(hold: AbstractAsyncContextManager[LiveRun]) -> bool:
    """Return whether a process that runs holds the lease of a run. If a process died with it, that is written.

    Args:
        hold: holds that lease.
    """
    try:
        async with hold:
            return False
    except RunHeld as held:
        return held.unknown is None
    except RunMirrored:
        return False


def _found(row: RunRow, key: str | None, tool: str, opening: Opening) -> str:
    """Return what is wrong and what to do, as the part of an error's message that describes the open turn."""
    old, new, run = row.name, opening.name, row.run
    before, now = (f"the key {each!r}" if each is not None else "no key" for each in (key, opening.key))
    return (
        f"not finished: agent {old!r} of session {row.session!r} got a message with {before} and called {tool!r}, and "
        f"that call has no result. Now agent {new!r}, which has no run there, gets a message with {now} and could make "
        f"the call again, so nothing was begun. If {old!r} was renamed to {new!r}, name it {old!r} again, and its turn "
        f"goes on. Or say what became of the call: gesta resolve {run} done (or failed, or retry)"
    )
