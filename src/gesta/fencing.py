"""In a fork nothing happens that nobody allowed: a call is answered with what the same call gave in its base.

One that is not on record there goes live if its tool is pure, or was named when the fork was made; else it waits, as
for an approval, and a person may let it go live. So a fork that somebody resumes is fenced like one that was just made,
and its own `attempt` entries are all that it ever did outside.
"""

from collections.abc import Iterable

import msgspec

from gesta.agent import Agent
from gesta.codec import digest_of
from gesta.decide import Waiting
from gesta.desk import Desk
from gesta.entry import Entry
from gesta.kinds import ApprovalContent, Forked, ToolCallContent, ToolResultContent
from gesta.log import read
from gesta.outcome import Outcome
from gesta.playing import play
from gesta.run import turn
from gesta.tooling import Tool

FROM = "from"
"""Extra of a result: the entry of the base that it was taken from."""
Call = tuple[str, str]
"""Tool, and digest of the canonical arguments."""


async def advance(agent: Agent, desk: Desk) -> Outcome:
    """Take a turn to its end, or until it waits for somebody: where it is a fork's, for somebody else than its base."""
    opened, take = desk.state.opened, turn if agent.program is None else play
    base = opened.base if opened is not None else None
    if base is None:
        return await take(agent, desk)
    agent = msgspec.structs.replace(agent, tools=[_fenced(tool, base) for tool in agent.tools])
    begun = [call for call in desk.state.calls.values() if call.last is not None and call.last.seq <= base.seq]
    await _answered(agent, base, [Waiting("doubt", call.seq, call.name) for call in begun], desk)
    ended = await take(agent, desk)
    while ended.end is None and await _answered(agent, base, ended.waiting, desk):
        ended = await take(agent, desk)
    return ended


async def base_below(name: str, desk: Desk) -> Forked | None:
    """Say what a run below a fork goes on from: nothing that it shares, but what it is answered from."""
    opened = desk.state.opened
    if opened is None or opened.base is None:
        return None
    rows = await desk.log.journal.store.runs(name=name)
    below = [row.run for row in rows if row.parent_run == opened.base.run]
    return Forked(run=below[-1] if below else "", seq=0, live=opened.base.live)


def _fenced(tool: Tool, base: Forked) -> Tool:
    """Have each call wait for consent; one that was begun before the fork is not tried again by itself."""
    if _free(tool, base):
        return msgspec.structs.replace(tool, approval=True)
    effect = tool.effect if tool.effect == "transactional" else "once"
    return msgspec.structs.replace(tool, approval=True, effect=effect, reconcile=None)


def _free(tool: Tool, base: Forked) -> bool:
    return tool.effect == "pure" or tool.name in (base.live or ())


async def _answered(agent: Agent, base: Forked, waits: Iterable[Waiting], desk: Desk) -> bool:
    """Answer what the turn waits for, as far as the base or the fence says how; False where neither does."""
    waits = list(waits)
    if not waits:
        return False
    known = given(await read(desk.log.journal.store, base.run))
    own = await read(desk.log.journal.store, desk.log.run)
    answered = False
    for waiting in waits:
        call, tool = desk.state.calls.get(waiting.call), agent.tool(waiting.tool)
        if call is None or tool is None or waiting.run is not None:
            continue
        named = (call.name, digest_of(call.args))
        found, place = known.get(named, []), _place(own, named, call.seq)
        if found:
            _answer(found[min(place, len(found) - 1)], call.seq, desk)
        elif waiting.what == "approval" and call.asked is not None and not tool.asks and _free(tool, base):
            by = f"fork of {base.run}"
            desk.write(ApprovalContent(of=call.asked, verdict="approved", by=by), call.asked)
        else:
            continue
        answered = True
    desk.absorb()
    return answered


def given(entries: Iterable[Entry]) -> dict[Call, list[Entry]]:
    """Give the results on record by what was called, in the order of the calls."""
    calls: dict[int, Call] = {}
    results: dict[int, Entry] = {}
    for entry in entries:
        content = entry.content
        if isinstance(content, ToolCallContent):
            calls[entry.seq] = content.tool_name, digest_of(content.tool_args)
        elif isinstance(content, ToolResultContent) and content.call in calls:
            results.setdefault(content.call, entry)
    found: dict[Call, list[Entry]] = {}
    for call, named in calls.items():
        if call in results:
            found.setdefault(named, []).append(results[call])
    return found


def _place(own: Iterable[Entry], named: Call, seq: int) -> int:
    """Say the how-manieth call of its kind it is, from 0: the same call may have given something else later."""
    before = [entry.content for entry in own if entry.seq < seq]
    return sum(
        isinstance(each, ToolCallContent) and (each.tool_name, digest_of(each.tool_args)) == named for each in before
    )


def _answer(entry: Entry, call: int, desk: Desk) -> None:
    assert isinstance(entry.content, ToolResultContent)
    extra = {**(entry.content.extra or {}), FROM: entry.id}
    content = msgspec.structs.replace(entry.content, call=call, tool_call_id=None, extra=extra)
    desk.observe(desk.write(content, call))
