"""Finds the run that a person's name for it means: its id, or its session. Also names the agent of each run.

A record is the store of all runs; a session is the runs of one conversation. An entry is one recorded fact of a run.
A root run is a run that no other run started. A session can have any name, also the id of a run of another session.
Such a name means two runs, and a person's word about one of them must not reach the other one.
"""

import re
from contextlib import suppress

import msgspec
from msgspec import Struct

from gesta.codec.rows import decode_content
from gesta.content import Opened
from gesta.errors import BrokenRecord, SeveralRuns
from gesta.kinds import BeginContent
from gesta.store import RunRow, Store

RUN_ID = re.compile("[0-9a-f]{16}")
"""Pattern of a complete run id."""
FIRST = "SELECT run, content FROM entries WHERE kind = 'begin' AND seq = 1"


class NamedAgent(Struct):
    """The agent in the content of a `begin` entry. Only its name is read."""

    name: str = ""


class FirstBegin(Struct):
    """The content of the first entry of a run. Only its agent is read."""

    agent: NamedAgent | None = None


_begin_decoder = msgspec.json.Decoder(FirstBegin)


async def run_of_id(store: Store, run: str) -> RunRow | None:
    """Return the run whose id is `run`; `None` if there is none. A session of this name is not looked for."""
    if RUN_ID.fullmatch(run) is not None:
        with suppress(BrokenRecord):
            first = await store.read(run, limit=1)
            begin = decode_content(first[0].content or "", {}) if first else None
            if isinstance(begin, BeginContent) and isinstance(begin.opened, Opened):
                return next((row for row in await store.runs(begin.opened.session) if row.run == run), None)
    return None


async def agents_of(store: Store, session: str | None = None) -> dict[str, str]:
    """Return the name of the agent of each run of a session, or of all runs, by the id of the run.

    A run whose first entry names no agent, as a fork or an import, has its own name.
    """
    agents = {row.run: row.name for row in await store.runs(session)}
    for run, content in (await store.sql(FIRST)).rows:
        with suppress(msgspec.MsgspecError, RecursionError):
            agent = _begin_decoder.decode(str(content)).agent
            if agent is not None and agent.name and str(run) in agents:
                agents[str(run)] = agent.name
    return agents


async def exact_run(store: Store, name: str) -> RunRow | None:
    """Return the run whose id is `name`, or else the newest root run of the session `name`; `None` if there is none.

    Cost: does not read the list of all runs, as `Inbox.find` may.

    Raises:
        SeveralRuns: `name` is the id of a run and the name of another session.
    """
    found = await run_of_id(store, name)
    if found is not None:
        await refuse_session(store, name)
        return found
    rows = [row for row in await store.runs(name) if row.parent_run is None]
    return rows[-1] if rows else None


async def refuse_session(store: Store, run: str) -> None:
    """Raise SeveralRuns if the id of a run is also the name of a session that the run is not in."""
    rows = await store.runs(run)
    roots = [row.run for row in rows if row.parent_run is None]
    if roots and all(row.run != run for row in rows):
        raise SeveralRuns(run, [run, roots[-1]])
