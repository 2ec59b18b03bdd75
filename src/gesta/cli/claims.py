"""The commands `adopt` and `gone`, by which a person states what no program can find out.

A record is the store of all runs. `adopt` states that a copy of a record replaces the original: a copy cannot know
whether the original is still written. `gone` states that a process has ended: no program sees the processes of another
machine. If the statement is false, an effect, such as a payment, may happen twice. So both commands print the statement
before they write it.

An attempt is an entry that says that a process is about to run a tool. A lease is the right of a process to write a
run. A turn is one message with all that follows until its answer.
"""

import sys
from functools import partial
from typing import Any

import anyio
import typer
from msgspec import Struct

from gesta.address import open_record
from gesta.cli.approving import who
from gesta.cli.layout import table
from gesta.cli.pages import reading
from gesta.cli.record_options import AdoptOptions, GoneOptions
from gesta.cli.talk import (
    BOLD,
    DIM,
    FAILED,
    USAGE,
    Stop,
    count,
    harmless,
    json_line,
    put,
    put_all,
    say,
    short,
    styled,
    terminal,
)
from gesta.codec.rows import decode_content
from gesta.errors import nearest
from gesta.kinds import AttemptContent, ToolCallContent
from gesta.record.record import Record
from gesta.store import RunRow

SHOWN = 20
"""Greatest number of runs or attempts that are listed. A last line counts the others."""
ATTEMPTS = "SELECT run, seq, content FROM entries WHERE kind = 'attempt' AND content LIKE ? ORDER BY pos"
HELD = "SELECT run, owner FROM leases WHERE owner IS NOT NULL ORDER BY run"
RESULT = "SELECT count(*) FROM entries WHERE run = ? AND kind = 'tool-result' AND content LIKE ?"
KNOWN = {True: "has ended", False: "is at work here", None: "not known"}
NAME = 16
"""Number of hex digits in the random part of a process's name."""


class Named(Struct, frozen=True):
    """An attempt to run a tool, made by the process that `gesta gone` names."""

    id: str
    tool: str
    answered: bool
    """Whether the call has a result."""


def adopt(options: AdoptOptions) -> int:
    """Record that this copy of a record, or some runs of it, replaces the original. Returns the exit code."""
    address, by = options.target(), options.by or who()

    async def work() -> int:
        async with open_record(address) as record:
            if options.runs:
                return await _adopt_runs(options, record, by)
            mark = record.info.mark
            if mark is None:
                say("This record is not a copy that waits to be adopted. Nothing was changed.")
                return _adopted(options, {"adopted": False, "runs": []})
            open_ = await _open_at(record, mark)
            say(f"{address} is a copy of the record with the id {record.info.id}, up to place {mark:,}.")
            were, end = "was" if len(open_) == 1 else "were", ":" if open_ else "."
            say(f"{count(len(open_), 'turn')} that {were} open then may go on in both{end}")
            _list([f"{row.run}  {short(row.session, 40)}  {short(row.name, 24)}" for row in open_])
            words = "You say that the record it was copied from, and every other copy of it, is used no more."
            if not _agreed(f"{words} Adopt?", yes=options.yes, json=options.json):
                return USAGE
            await record.store.adopt(by)
            return _adopted(options, {"adopted": True, "mark": mark, "by": by, "runs": [row.run for row in open_]})

    return anyio.run(work)


async def _adopt_runs(options: AdoptOptions, record: Record, by: str) -> int:
    from gesta.bridges.pushing import adopt as take

    named = [(await record.find(name)).run for name in options.runs or ()]
    words = f"You say that no other record goes on with {count(len(named), 'run')}, nor with those above and below."
    if not _agreed(f"{words} Adopt?", yes=options.yes, json=options.json):
        return USAGE
    runs = await take(record.store, named, by)
    if not runs:
        say("They go on in this record already. Nothing was changed.")
    return _adopted(options, {"adopted": bool(runs), "by": by, "runs": runs})


def _adopted(options: AdoptOptions, facts: dict[str, Any]) -> int:
    if options.json:
        put(json_line(facts))
    elif facts["adopted"]:
        put(
            harmless(
                f"adopted by {facts['by']}: {count(len(facts['runs']), 'turn' if 'mark' in facts else 'run')} may go on"
            )
        )
    return 0


async def _open_at(record: Record, mark: int) -> list[RunRow]:
    """Return the runs with an open turn that began at a given entry or before it. Cost: reads all entries.

    Args:
        mark: the pos (number in the record) of an entry.
    """
    found = []
    for row in await record.store.runs():
        state = await record.state(row.run)
        if state.turn is not None and state.open:
            entries = await record.read(row.run, state.turn.begin - 1)
            found += [row] if entries[0].pos <= mark else []
    return found


def gone(options: GoneOptions) -> int:
    """Record that a process has ended, and return the exit code.

    If the options name no process, list the processes with a lease, or with an attempt that has no result.
    """
    if options.process is None:
        reading(options, partial(_list_all, options))
        return 0
    address, by, name = options.target(), options.by or who(), options.process

    async def work() -> int:
        async with open_record(address) as record:
            process = _meant(name, await _processes(record))
            known = await record.store.gone(process)
            if known is False:
                raise Stop(
                    f"Process {process} is at work on this machine, so it has not ended. End it first: then that is "
                    "known, and nothing needs to be said.",
                    FAILED,
                )
            attempts = await _attempts(record, process)
            say(f"{count(len(attempts), 'attempt')} {'names' if len(attempts) == 1 else 'name'} process {process}.")
            _list([f"{each.id}  {each.tool}: no result on record" for each in attempts if not each.answered])
            words = "You say that it has ended, with all that it started."
            if known:
                say("That it has ended is known. Nothing was changed.")
            elif not _agreed(f"{words} Write that down?", yes=options.yes, json=options.json):
                return USAGE
            else:
                await record.store.declare_gone(process, by)
            if options.json:
                facts = {"process": process, "gone": True, "by": None if known else by}
                put(json_line({**facts, "attempts": [each.id for each in attempts]}))
            elif not known:
                put(harmless(f"gone: {process}, {by} says"))
            return 0

    return anyio.run(work)


async def _list_all(options: GoneOptions, record: Record) -> None:
    """Print the processes with a lease, or with an attempt that has no result, and whether each has ended."""
    rows = []
    for process in sorted(await _processes(record)):
        open_ = [each.id for each in await _attempts(record, process) if not each.answered]
        held = [str(run) for run, owner in (await record.store.sql(HELD)).rows if owner == process]
        if open_ or held:
            rows.append((process, KNOWN[await record.store.gone(process)], held, open_))
    if options.json:
        put_all(json_line({"process": p, "known": k, "runs": held, "attempts": open_}) for p, k, held, open_ in rows)
    elif rows:
        lines = [(p, k, str(len(held)), str(len(open_))) for p, k, held, open_ in rows]
        columns = ("process", "it", "runs held", "calls without a result")
        heading, *rest = table(columns, lines, right=columns[2:])
        put(styled(heading, BOLD, sys.stdout))
        put_all(rest)
    else:
        say("No process holds a run, or tried a call that has no result.")


async def _processes(record: Record) -> set[str]:
    """Return the names of all processes in the attempts and leases of a record."""
    found = {str(owner) for _, owner in (await record.store.sql(HELD)).rows}
    for _, _, content in (await record.store.sql(ATTEMPTS, ('%"process":"%',))).rows:
        attempt = decode_content(str(content), {})
        found |= {attempt.process} if isinstance(attempt, AttemptContent) and attempt.process else set()
    return found


def _meant(name: str, known: set[str]) -> str:
    """Return the full name of a process, given the whole name or its first characters.

    Raises Stop if no process among `known` fits, or if several do.
    """
    found = [name] if name in known else sorted(each for each in known if name and each.startswith(name))
    if len(found) > 1:
        raise Stop(f"{len(found)} processes begin with {name!r}: {', '.join(found[:5])}. Write more of the name.")
    if not found:
        near = nearest(name[:NAME], [each[:NAME] for each in known])
        raise Stop(f"Nothing in this record names a process {name!r}.{near} `gesta gone` lists those that matter.")
    return found[0]


async def _attempts(record: Record, process: str) -> list[Named]:
    """Return the attempts that a process made, in the order in which they were recorded."""
    found = []
    for run, seq, content in (await record.store.sql(ATTEMPTS, (f'%"process":"{process}"%',))).rows:
        attempt = decode_content(str(content), {})
        assert isinstance(attempt, AttemptContent)
        entries = await record.read(str(run), attempt.of - 1)
        call = entries[0].content if entries else None
        tool = call.tool_name if isinstance(call, ToolCallContent) else "?"
        ((results,),) = (await record.store.sql(RESULT, (run, f'%"call":{attempt.of},%'))).rows
        found.append(Named(f"{run}.{seq}", tool, bool(results)))
    return found


def _list(lines: list[str]) -> None:
    for line in lines[:SHOWN]:
        say(f"    {line}")
    if len(lines) > SHOWN:
        say(f"    ... and {len(lines) - SHOWN:,} more", DIM)


def _agreed(question: str, *, yes: bool, json: bool) -> bool:
    """Ask the person to confirm a statement, and return the answer.

    With `yes`, return `True` without asking. With `json` or without a terminal, nobody can be asked: print that
    `--yes` confirms the statement, and return `False`.
    """
    if yes:
        return True
    if json or not terminal(sys.stdin):
        say(f"{question.rpartition('. ')[0]}. Nothing was changed: add --yes.")
        return False
    return bool(typer.confirm(question, err=True))
