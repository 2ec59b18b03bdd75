"""Implements the commands `backup`, `prune` and `hold`.

A record is the store of all runs of agents. Pruning removes whole runs. A hold is an entry that protects a run from
being pruned.
"""

import sys

import anyio
import typer

from gesta.address import open_record, remote
from gesta.cli.approving import who
from gesta.cli.layout import table
from gesta.cli.pages import reading
from gesta.cli.record_options import BackupOptions, HoldOptions, PruneOptions
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
from gesta.cli.times import point
from gesta.errors import RecordBusy, WriteFailed
from gesta.integrity.tombstones import Hold, holds
from gesta.record.record import Record
from gesta.store import RunRow
from gesta.stores.pruning import Choice, Gone, Plan, Pruner, Staying, plan
from gesta.stores.pruning import hold as keep
from gesta.stores.pruning import prune as take_away

SHOWN = 20
"""Greatest number of runs that each list shows. A last line counts the others."""
STAYS = (
    "So what was pruned may still stand in the file or its log. End what has it open, and run the same command again "
    "with --yes."
)


def sizes(number: int) -> str:
    """Return a number of bytes as text for people, such as `1.5 MB`."""
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= one:
            return f"{number / one:,.1f} {unit}"
    return f"{number} B"


def backup(options: BackupOptions) -> None:
    """Copy the file of a record while other processes write it, and print the size of the copy."""
    from gesta.stores.sqlite_backup import backup as copy

    address = options.source()
    if remote(options.to):
        raise Stop(f"A backup is a file. Into a database: gesta push {address} {options.to}")
    if remote(address):
        raise Stop(
            "A record in PostgreSQL is copied by `gesta push`, or by pg_dump. Into a file that keeps every id and "
            f"digest: gesta push ADDRESS {options.to}"
        )
    shows = terminal(sys.stderr)

    def progress(done: int, of: int) -> None:
        if shows:
            print(f"\r{done:,} of {of:,} pages ...", end="", file=sys.stderr, flush=True)

    size = copy(address, options.to, progress)
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr)
    if options.json:
        put(json_line({"from": address, "to": options.to, "bytes": size}))
    else:
        put(harmless(f"{address} copied to {options.to}: {sizes(size)}"))


def prune(options: PruneOptions) -> int:
    """Show the runs to remove, ask for confirmation, and remove them. Returns the exit code."""
    if not (options.runs or options.before or options.session or options.keep):
        raise Stop("Say what goes: gesta prune RUN, --before 90d, --session NAME, or --keep 100 and nothing older.")
    address, before = options.target(), point(options.before, "--before")

    async def work() -> int:
        async with open_record(address) as record:
            named = [(await record.find(name)).run for name in options.runs or ()]
            choice = Choice(runs=named, session=options.session, before=before, keep=options.keep)
            found = await plan(record.store, choice)
            kept = [each for each in found.staying if each.run.run in named]
            if kept:
                raise Stop(f"{_why(kept[0])} Nothing was pruned.", FAILED)
            if not options.json:
                _show(found)
            if not found.groups:
                say("Nothing is pruned.")
                return await _told(record, options, Gone()) if options.yes else 0
            if not _agreed(options, found):
                return USAGE
            gone = await take_away(record.store, found, Pruner(by=options.by or who(), reason=options.reason))
            return await _told(record, options, gone)

    return anyio.run(work)


def _agreed(options: PruneOptions, found: Plan) -> bool:
    if options.yes:
        return True
    runs, entries = len(found.runs), sum(run.head for run in found.runs)
    words = f"{count(runs, 'run')}, {count(entries, 'entry')} would go, for good."
    if options.json or not terminal(sys.stdin):
        say(f"{words} Nothing was pruned: add --yes.")
        return False
    return bool(typer.confirm(f"{words} Prune?", err=True))


def _show(found: Plan) -> None:
    """Print the runs to remove. Then print why other runs that the options choose have to stay."""
    if found.groups:
        say("These go, oldest first:")
        going = sorted(found.runs, key=lambda run: run.last_at)
        lines = [_line(run) for run in going[:SHOWN]]
        heading, *rows = table(("run", "session", "agent", "last entry (UTC)", "entries"), lines, right=("entries",))
        put(styled(heading, BOLD, sys.stdout))
        put_all(rows)
        if len(going) > SHOWN:
            put(f"... and {count(len(going) - SHOWN, 'run')} more")
    for each in found.staying[:SHOWN]:
        say(_why(each), DIM)
    if len(found.staying) > SHOWN:
        say(f"... and {count(len(found.staying) - SHOWN, 'run')} more that cannot go", DIM)
    if found.kept:
        say(f"{count(found.kept, 'run')} more would fit and {'stays' if found.kept == 1 else 'stay'} for --keep.", DIM)


def _line(run: RunRow) -> tuple[str, ...]:
    return run.run, short(run.session, 40), short(run.name, 24), run.last_at[:19].replace("T", " "), f"{run.head:,}"


def _why(each: Staying) -> str:
    return f"Run {each.run.run} (session {each.run.session}) stays: {each.why.rstrip('.')}."


async def _told(record: Record, options: PruneOptions, gone: Gone) -> int:
    """Free the space of the removed runs, and print how many runs were removed. Returns the exit code."""
    freed, words, erased = 0, "", True
    try:
        freed = await record.store.shrink()
        words = f", {sizes(freed)} freed" if freed > 0 else ""
    except WriteFailed as failure:
        erased = False
        say("Another program is reading the record just now." if isinstance(failure, RecordBusy) else str(failure))
        say(STAYS)
    for each in gone.staying:
        say(_why(each))
    if options.json:
        facts = {"runs": gone.runs, "entries": gone.entries, "freed": freed, "stayed": len(gone.staying)}
        put(json_line(facts | {"erased": erased}))
    elif gone.runs:
        put(f"{count(gone.runs, 'run')}, {count(gone.entries, 'entry')} pruned{words}")
    return FAILED if gone.staying or not erased else 0


def hold(options: HoldOptions) -> None:
    """Protect a run from being pruned, end that protection, or list the protected runs."""
    if options.run is None:
        _list(options)
        return
    address, name = options.target(), options.run

    async def work() -> Hold:
        async with open_record(address) as record:
            run = (await record.find(name)).run
            value = Hold(run=run, held=not options.release, by=options.by or who(), reason=options.reason)
            await keep(record.store, value)
            return value

    value = anyio.run(work)
    if options.json:
        put(json_line({"run": value.run, "held": value.held, "by": value.by, "reason": value.reason}))
    else:
        put(f"held: {value.run}" if value.held else f"may go: {value.run}")


def _list(options: HoldOptions) -> None:
    held = reading(options, lambda record: holds(record.store))
    if options.json:
        put_all(json_line({"run": each.run, "by": each.by, "reason": each.reason}) for each in held.values())
    elif held:
        heading, *rows = table(("run", "by", "reason"), [(e.run, e.by, e.reason or "") for e in held.values()])
        put(styled(heading, BOLD, sys.stdout))
        put_all(rows)
    else:
        say("No run is held.")
