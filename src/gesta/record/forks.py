"""Runs a fork so that no tool does its work a second time.

A fork is a run that shares the first entries of another run, its base. A call in the fork gets the recorded result of
the same call in the base. If the base has no such result, the call runs only if its tool is pure (it changes nothing
outside), or was named when the fork was made. Any other call waits for a person's approval. The same rule holds when
somebody resumes the fork later. A turn is one message to an agent and all the work up to its answer.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gesta.agent import Agent
from gesta.codec.rows import digest_of
from gesta.decide.waiting import Waiting
from gesta.entry import Entry
from gesta.events import Outcome
from gesta.function_tool.tool import Tool
from gesta.kinds import ApprovalContent, Forked, ToolCallContent, ToolResultContent
from gesta.log.journal import read
from gesta.loop import turn
from gesta.perform.execution import LiveRun
from gesta.state.calls import OpenCall
from gesta.workflow.turn import play

CallDigest = tuple[str, str]
"""Name of a call's tool, and digest of the call's arguments."""


async def advance(agent: Agent, live: LiveRun) -> Outcome:
    """Run a turn until it ends or waits, and return its outcome.

    In a fork, a call that the base made too gets the base's result.
    """
    opened, take = live.state.opened, turn if agent.program is None else play
    base = opened.base if opened is not None else None
    if base is None:
        return await take(agent, live)
    agent = msgspec.structs.replace(agent, tools=[_fenced(tool, base) for tool in agent.tools], sources=())
    begun = [call for call in live.state.calls.values() if call.last is not None and call.last.seq <= base.seq]
    results = _BaseResults(base)
    await _answered(agent, results, [Waiting("doubt", call.seq, call.name) for call in begun], live)
    ended = await take(agent, live)
    while ended.end is None and await _answered(agent, results, ended.waiting, live):
        ended = await take(agent, live)
    return ended


async def base_below(name: str, live: LiveRun) -> Forked | None:
    """Return the base for a child run of a fork; `None` if the parent run is not a fork.

    The base is the child run `name` of the parent run's base. The new child run shares no entries with it, only the
    results of calls.
    """
    opened = live.state.opened
    if opened is None or opened.base is None:
        return None
    rows = await live.log.journal.store.runs(name=name)
    below = [row.run for row in rows if row.parent_run == opened.base.run]
    return Forked(run=below[-1] if below else "", seq=0, live=opened.base.live)


def _fenced(tool: Tool, base: Forked) -> Tool:
    """Return a copy of a tool whose calls in the fork need approval.

    If the tool may run in the fork, `_answered` approves its calls. If not, a call that began before the fork is not
    tried again.
    """
    if _free(tool, base):
        return msgspec.structs.replace(tool, approval=True)
    effect = tool.effect if tool.effect == "transactional" else "once"
    return msgspec.structs.replace(tool, approval=True, effect=effect, reconcile=None)


def _free(tool: Tool, base: Forked) -> bool:
    return tool.effect == "pure" or tool.name in (base.live or ())


class _BaseResults:
    """The results of the base, and which of them the calls of its fork get. Each entry is read once."""

    def __init__(self, base: Forked) -> None:
        self.base = base
        self._given: dict[CallDigest, list[Entry]] | None = None
        """The results of the base, by tool and arguments, in the order of the calls."""
        self._made: dict[CallDigest, list[int]] = {}
        """Seqs of the fork's calls, by tool and arguments."""
        self._seen = 0
        """Seq of the last entry of the fork that was read."""

    async def look(self, live: LiveRun) -> None:
        """Read the base, and the new entries of the fork."""
        store = live.log.journal.store
        if self._given is None:
            self._given = given(await read(store, self.base.run))
        for entry in await read(store, live.log.run, self._seen):
            self._seen = entry.seq
            if isinstance(entry.content, ToolCallContent):
                self._made.setdefault(_digest_of_call(entry.content), []).append(entry.seq)

    def of(self, call: OpenCall) -> Entry | None:
        """Return the result of the same call in the base; `None` if there is none.

        Among calls with the same tool and arguments, the order decides. Further ones get the last result.
        """
        named = (call.name, digest_of(call.args if call.made is None else call.made))
        found = (self._given or {}).get(named)
        place = sum(seq < call.seq for seq in self._made.get(named, ()))
        return found[min(place, len(found) - 1)] if found else None


async def _answered(agent: Agent, results: _BaseResults, waits: Sequence[Waiting], live: LiveRun) -> bool:
    """Write a result or an approval for each waiting call of a fork, if there is one to write.

    The result is copied from the same call in the base. Without it, a call is approved if its tool may run in the fork.
    Return `False` if nothing was written.
    """
    if not waits:
        return False
    await results.look(live)
    base, answered = results.base, False
    for waiting in waits:
        call = live.state.call(waiting.call)
        tool = agent.tool(call.name) if call is not None else None
        if call is None or tool is None or waiting.run not in ("", live.log.run):
            continue
        result = results.of(call)
        if result is not None:
            _copy_result(result, call.seq, live)
        elif waiting.what == "approval" and call.asked is not None and not tool.asks and _free(tool, base):
            by = f"fork of {base.run}"
            live.write(ApprovalContent(of=call.asked, verdict="approved", by=by), call.asked)
        else:
            continue
        answered = True
    live.absorb()
    return answered


def given(entries: Iterable[Entry]) -> dict[CallDigest, list[Entry]]:
    """Return the results of a run's calls, by tool and arguments. Calls without a result are left out.

    If several calls have the same tool and arguments, their results are in one list, in the order of the calls.
    """
    calls: dict[int, CallDigest] = {}
    results: dict[int, Entry] = {}
    for entry in entries:
        content = entry.content
        if isinstance(content, ToolCallContent):
            calls[entry.seq] = _digest_of_call(content)
        elif isinstance(content, ToolResultContent) and content.call in calls:
            results.setdefault(content.call, entry)
    found: dict[CallDigest, list[Entry]] = {}
    for call, named in calls.items():
        if call in results:
            found.setdefault(named, []).append(results[call])
    return found


def _digest_of_call(content: ToolCallContent) -> CallDigest:
    return content.tool_name, digest_of(content.tool_args)


def _copy_result(entry: Entry, call: int, live: LiveRun) -> None:
    assert isinstance(entry.content, ToolResultContent)
    content = msgspec.structs.replace(entry.content, call=call, tool_call_id=None, copy_of=entry.id)
    live.write(content, call)
