"""Pruning removes whole runs (conversations of an agent), never part of one. A plan first lists the runs.

A record is the store of all runs; `pos` numbers its entries. A lease is the right of one process to write a run. A
tombstone is an entry that says that a run was removed. A hold is an entry in which a person forbids to remove a run. A
cause is an entry that another entry was made from.

A run stays if a turn of it is open, if it has a hold, or if `Choice.keep` keeps it. Then the runs to which it refers
stay too: its parent and children, the runs of its causes, and the base of a fork (the run that the fork continues).
Runs that refer to each other are removed in one commit, or all of them stay.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from msgspec import Struct

from gesta.entry import run_id
from gesta.errors import BrokenRecord, LeaseLost, RunHeld
from gesta.integrity.tombstones import HOLD, NAME, PRUNED, SESSION, Hold, Places, Pruned, Tombstone, holds, stretches
from gesta.kinds import BeginContent, KeyValueContent, Opened
from gesta.log.journal import Clock, Journal, Log, closing, open_root, utc_now
from gesta.state.opening import shielded
from gesta.store import Lease, Prune, RunRow, Store, below

TOGETHER = 20_000
"""Greatest number of entries that one commit removes. Runs that refer to each other may have more."""

TURNS = """SELECT run, seq FROM entries WHERE kind = 'begin' AND content LIKE '%"role":"turn"%'"""
ENDS = "SELECT run, span, seq FROM entries WHERE kind = 'end'"
FORKS = "SELECT run, content FROM entries WHERE kind = 'begin' AND content LIKE '%\"base\":{%'"
NEWS = """SELECT run, causes, CASE WHEN kind = 'begin' THEN content ELSE '{}' END FROM entries
    WHERE pos > ? AND (kind = 'begin' OR causes LIKE '%"%')"""
LAST = "SELECT coalesce(max(pos), 0) FROM entries"
CAUSES = "SELECT DISTINCT run, causes FROM entries WHERE causes LIKE '%\"%'"  # a text in it is another run's id
LETTERS = "SELECT run, max(at), count(*) FROM inbox GROUP BY run"
PLACES = "SELECT run, pos FROM entries WHERE run IN ({})"
AT_ONCE = 500  # greatest number of runs in one query
NAMED = 5  # greatest number of runs that the reason for a staying run names


class Choice(Struct, frozen=True, kw_only=True):
    """The conditions for runs to prune. A run is chosen if it meets all of them."""

    runs: Sequence[str] = ()
    """Ids of runs; their child runs are chosen too."""
    session: str | None = None
    before: str | None = None
    """A time in UTC, in the form of a row's `at`. The last entry and the last letter of a chosen run are older."""
    keep: int = 0
    """Number of root runs that stay, with all runs below them. Those with the latest entries or letters stay."""


class Staying(Struct, frozen=True):
    """A run that was chosen for pruning but is not removed, and the reason."""

    run: RunRow
    why: str


class Plan(Struct, frozen=True):
    """The runs that a call of `prune` would remove, and the chosen runs that stay."""

    groups: list[list[RunRow]]
    """Groups of runs that refer to each other; each group is removed in one commit."""
    staying: list[Staying]
    letters: dict[str, int]
    """The number of letters (waiting messages) in the inbox of each run; runs without letters are left out."""
    kept: int = 0
    """The number of chosen runs that stay only because of `Choice.keep`."""
    pos: int = 0
    """The pos of the last entry when the plan was made."""

    @property
    def runs(self) -> list[RunRow]:
        """All runs that would be pruned."""
        return [run for group in self.groups for run in group]


class Gone(Struct):
    """The result of `prune`: how many runs and entries were removed, and which runs were not."""

    runs: int = 0
    entries: int = 0
    staying: list[Staying] = msgspec.field(default_factory=list)
    """The runs of the plan that were not removed, each with the reason."""


async def plan(store: Store, choice: Choice) -> Plan:
    """Return the runs to remove, and the chosen runs that stay. Cost: reads kind and causes of all entries."""
    ((pos,),) = (await store.sql(LAST)).rows
    rows = {row.run: row for row in await store.runs() if (row.session, row.name) != (SESSION, NAME)}
    letters = {str(run): (str(at), int(count)) for run, at, count in (await store.sql(LETTERS)).rows}
    last = {run: max(row.last_at, letters.get(run, ("", 0))[0]) for run, row in rows.items()}
    refers = await _references(store, rows)
    named = below(choice.runs, rows.values())
    fits = {
        run
        for run, row in rows.items()
        if (not choice.runs or run in named)
        and choice.session in (None, row.session)
        and (choice.before is None or last[run] < choice.before)
    }
    roots = sorted((run for run, row in rows.items() if row.parent_run not in rows), key=last.__getitem__)
    floor = below(roots[max(0, len(roots) - choice.keep) :], rows.values())
    stays = dict.fromkeys(rows.keys() - fits, "") | dict.fromkeys(floor, "")
    stays |= {run: _held(hold) for run, hold in (await holds(store)).items() if run in rows}
    stays |= dict.fromkeys(await _open(store) & rows.keys(), "a turn of it is open: end it first with `gesta cancel`")
    _spread(stays, refers)
    going = [row for run, row in rows.items() if run not in stays]
    return Plan(
        list(_groups(going, refers)),
        [Staying(rows[run], why) for run, why in stays.items() if run in fits and why],
        {run: count for run, (_, count) in letters.items()},
        sum(1 for run in fits if stays.get(run) == ""),
        int(pos),
    )


def _held(hold: Hold) -> str:
    return f"{hold.by} holds it" + (f": {hold.reason}" if hold.reason else "")


async def _references(store: Store, rows: dict[str, RunRow]) -> dict[str, set[str]]:
    """Return for each run the runs that it refers to: its parent, children and base, and the runs of its causes."""
    found = defaultdict[str, set[str]](set)
    for row in rows.values():
        if row.parent_run is not None:
            found[row.run].add(row.parent_run)
            found[row.parent_run].add(row.run)
    for run, causes in (await store.sql(CAUSES)).rows:
        found[str(run)] |= _caused(_read(store, run, causes))
    for run, content in (await store.sql(FORKS)).rows:
        found[str(run)] |= _based(_read(store, run, content))
    return {run: others - {run} for run, others in found.items()}


def _read(store: Store, run: str, text: str) -> Any:
    """Return the value of a JSON text in an entry of `run`. Raises BrokenRecord if the text cannot be read."""
    try:
        return json.loads(text)
    except (RecursionError, TypeError, ValueError) as error:
        raise BrokenRecord(store.info.address, f"what run {run!r} refers to cannot be read ({error})") from error


def _caused(causes: Any) -> set[str]:
    return {str(each[0]) for each in causes if isinstance(each, list) and each} if isinstance(causes, list) else set()


def _base(content: Any) -> tuple[str, int] | None:
    """Return a fork's base run, and the number of the last entry that they share, from its first `begin`; or `None`."""
    opened = content.get("opened") if isinstance(content, dict) else None
    base = opened.get("base") if isinstance(opened, dict) else None
    return (str(base.get("run")), base["seq"]) if isinstance(base, dict) and isinstance(base.get("seq"), int) else None


def _based(content: Any) -> set[str]:
    return {base[0] for base in (_base(content),) if base is not None}


async def _open(store: Store) -> set[str]:
    """Return the runs with a turn that has no `end` entry. A fork may end a turn that began in its base run."""
    begun = defaultdict[str, set[int]](set)
    ended = {(run, span): seq for run, span, seq in (await store.sql(ENDS)).rows if isinstance(seq, int)}
    for run, seq in (await store.sql(TURNS)).rows:
        begun[str(run)].add(seq if isinstance(seq, int) else 0)  # no turn begins there, so it has no end
    found = {run for run, seqs in begun.items() if any((run, seq) not in ended for seq in seqs)}
    forks = {str(run): _base(_read(store, run, content)) for run, content in (await store.sql(FORKS)).rows}
    bases = {run: base for run, base in forks.items() if base is not None}
    for fork in bases:
        heirs = [fork]  # the fork, and the runs between it and the run in which the turn was begun
        while (base := bases.get(heirs[-1])) is not None and base[0] not in heirs:
            run, until = base
            shared = {seq for seq in begun[run] if seq <= until < ended.get((run, seq), until + 1)}
            if any(all((heir, seq) not in ended for heir in heirs) for seq in shared):
                found.add(fork)
            heirs.append(run)
    return found


def _spread(stays: dict[str, str], refers: dict[str, set[str]]) -> None:
    """Add to `stays` all runs to which a staying run refers, each with the reason."""
    waiting, kept, users = list(stays), dict[str, str](), defaultdict[str, set[str]](set)
    for run in waiting:  # the list grows meanwhile
        for other in refers.get(run, ()):
            users[other].add(run)
            if other not in stays and other not in kept:
                kept[other] = run
                waiting.append(other)
    for run in kept:
        named = sorted(other for other in users[run] if run not in _chain(other, kept))
        many = len(named) > 1
        stays[run] = f"{_named(named)} {'refer' if many else 'refers'} to it and {'stay' if many else 'stays'}"


def _chain(run: str, kept: dict[str, str]) -> Iterator[str]:
    """Yield a run, the run that keeps it from being removed, the run that keeps that one, and so on."""
    yield run
    while run in kept:
        run = kept[run]
        yield run


def _named(runs: Sequence[str]) -> str:
    if len(runs) == 1:
        return f"run {runs[0]}"
    shown, last = (runs[:-1], runs[-1]) if len(runs) <= NAMED else (runs[:NAMED], f"{len(runs) - NAMED} more")
    return f"runs {', '.join(shown)} and {last}"


def _groups(going: list[RunRow], refers: dict[str, set[str]]) -> Iterator[list[RunRow]]:
    """Yield the runs to remove in groups, so that no reference leads from one group to another."""
    beside, rows = defaultdict[str, set[str]](set), {row.run: row for row in going}
    for run in rows:
        for other in refers.get(run, ()):
            if other in rows:
                beside[run].add(other)
                beside[other].add(run)
    seen = set[str]()
    for row in going:
        if row.run not in seen:
            group, waiting = [], [row.run]
            seen.add(row.run)
            while waiting:
                run = waiting.pop()
                group.append(rows[run])
                new = beside[run] - seen
                seen |= new
                waiting += sorted(new)
            yield group


class Pruner(Struct, frozen=True, kw_only=True):
    """The person who removes runs, the reason, and the options of `prune`. The tombstones contain person and reason."""

    by: str
    reason: str | None = None
    clock: Clock = utc_now
    together: int = TOGETHER


async def prune(store: Store, what: Plan, pruner: Pruner, progress: Callable[[int], None] = lambda _: None) -> Gone:
    """Remove the runs of a plan. Runs that refer to each other are all removed, or none of them.

    Args:
        progress: called now and then with the number of runs removed so far.

    Raises:
        WriteFailed: the record cannot be written. Groups that were pruned before the failure stay removed, and have
            tombstones.
    """
    gone, waiting = Gone(), list(what.groups)
    while waiting:
        together: list[list[RunRow]] = []
        while waiting and (not together or sum(r.head for g in [*together, waiting[0]] for r in g) <= pruner.together):
            together.append(waiting.pop(0))
        async with AsyncExitStack() as stack:
            found = [await _ours(store, group, what, gone, stack) for group in together]
            found = await _still(store, found, what, gone)
            await _commit(store, [each for part in found for each in part], gone, pruner)
        progress(gone.runs)
    return gone


class _Going(Struct, frozen=True):
    """A run that is about to be pruned. This process holds its lease."""

    row: RunRow
    prune: Prune
    digest: bytes


async def _ours(store: Store, group: list[RunRow], what: Plan, gone: Gone, stack: AsyncExitStack) -> list[_Going]:
    """Acquire the leases of a group. If one run is in use or has changed, return [], and add all to `gone.staying`."""
    found = []
    for row in group:
        why = ""
        try:
            lease = await store.lease(row.run, mirror=True)
        except RunHeld as error:
            why = str(error)
        else:
            stack.push_async_callback(_release, store, lease)
            letters = [letter.id for letter in await store.inbox(row.run)]
            if lease.head != row.head or len(letters) != what.letters.get(row.run, 0):
                why = "something was added to it meanwhile"
            found.append(_Going(row, Prune(lease, letters), lease.digest))
        if why:
            others = f"run {row.run} belongs to it and stays"
            gone.staying += [Staying(each, why if each is row else others) for each in group]
            return []
    return found


async def _still(store: Store, groups: list[list[_Going]], what: Plan, gone: Gone) -> list[list[_Going]]:
    """Return the groups to which no run newer than the plan refers. Add the runs of the others to `gone.staying`."""
    asked = {each.row.run for group in groups for each in group}
    named = defaultdict[str, set[str]](set)
    for run, causes, content in (await store.sql(NEWS, (what.pos,))).rows:
        if run not in asked:
            for other in (_caused(_read(store, run, causes)) | _based(_read(store, run, content))) & asked:
                named[other].add(str(run))
    kept = []
    for group in groups:
        by = sorted(set[str]().union(*(named[each.row.run] for each in group if each.row.run in named)))
        if by:
            words = "which are new, refer" if len(by) > 1 else "which is new, refers"
            gone.staying += [Staying(each.row, f"{_named(by)}, {words} to it") for each in group]
        else:
            kept.append(group)
    return kept


async def _release(store: Store, lease: Lease) -> None:
    with shielded():
        await store.release(lease)


async def _commit(store: Store, going: list[_Going], gone: Gone, pruner: Pruner) -> None:
    """Write the tombstones and remove the runs, in one commit. If one has changed, add all to `gone.staying`."""
    if not going:
        return
    places = await _places(store, [each.row.run for each in going])
    every: Places = stretches(sorted(pos for each in places.values() for pos in each))
    stones = [_stone(each, len(places[each.row.run])) for each in going]
    value = Pruned(record=store.info.id, runs=stones, places=every, by=pruner.by, reason=pruner.reason)
    try:
        await _note(store, PRUNED, value, pruner.clock, [each.prune for each in going])
    except LeaseLost as error:  # after the check, a letter came or another process took the run
        gone.staying += [Staying(each.row, str(error)) for each in going]
        return
    gone.runs += len(going)
    gone.entries += sum(stone.entries for stone in stones)


async def _places(store: Store, runs: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {run: [] for run in runs}
    for start in range(0, len(runs), AT_ONCE):
        some = runs[start : start + AT_ONCE]
        for run, pos in (await store.sql(PLACES.format(", ".join("?" * len(some))), some)).rows:
            if run not in found:  # an index of the database says otherwise
                raise BrokenRecord(store.info.address, f"entry {pos} of one of the runs names {run!r} as its run")
            found[run].append(int(pos))
    return found


def _stone(each: _Going, entries: int) -> Tombstone:
    row = each.row
    return Tombstone(
        run=row.run,
        parent_run=row.parent_run,
        at=row.at,
        last_at=row.last_at,
        head=row.head,
        entries=entries,
        digest=each.digest.hex(),
        letters=len(each.prune.letters),
    )


async def hold(store: Store, value: Hold, clock: Clock = utc_now) -> None:
    """Write that a run is protected from pruning, or no longer protected. Raises RunHeld while `prune` is running."""
    await _note(store, HOLD, value, clock, [])


async def _desk(store: Store) -> str:
    """Return the id of the run in which this record keeps its tombstones and holds."""
    own = [row.run for row in await store.runs(SESSION, NAME) if row.record == store.info.id]
    return own[-1] if own else run_id(store.info.id, SESSION, NAME)


async def _note(store: Store, key: str, value: Hold | Pruned, clock: Clock, prunes: list[Prune]) -> None:
    """Write `value` under `key` in a key-value entry, and remove the runs `prunes` in the same commit."""
    lease = await store.lease(await _desk(store))
    try:
        journal = Journal(store, lease, clock)
        opened = Opened(session=SESSION, name=NAME, record=store.info.id)
        log: Log = open_root(journal, BeginContent(name=NAME), opened)
        with closing(log):
            log.write(KeyValueContent(key=key, value=msgspec.json.decode(msgspec.json.encode(value))))
        journal.prunes = prunes
        with shielded():
            await journal.durable()
    finally:
        await _release(store, lease)
