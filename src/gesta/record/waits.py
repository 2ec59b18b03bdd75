"""Reads what an open turn waits for.

A wait is one thing that an open turn cannot go on without, such as an approval. A turn is one message to an agent and
all the work up to its answer. The waits of a turn include the waits of its child runs, where a person must answer. The
answer of a person is a letter in the inbox of the run, until a program that continues the run writes it as an entry.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from gesta.codec.rows import decode_content
from gesta.decide.waiting import Waiting, described, waits
from gesta.entry import fold, utc_time
from gesta.errors import BrokenRecord, GestaError
from gesta.events import Outcome
from gesta.kinds import AnswerContent, ApprovalContent, BeginContent, EndContent, Kind, ResolutionContent
from gesta.log.journal import entry_of, read
from gesta.loop import outcome_of
from gesta.state.opening import Opening, check_same
from gesta.state.run import RunState, RunView
from gesta.store import Letter, RunRow, Store

WORDS = (ApprovalContent, AnswerContent, ResolutionContent)
"""Contents by which a person answers what a run waits for."""
Sent = Mapping[str, Mapping[int, datetime]]
"""Arrival times of the answers in inboxes: by run, and then by the seq of the entry that is answered."""
IN_INBOXES = "SELECT run, key, content, at, id FROM inbox WHERE run IN ({}) ORDER BY id"
AT_ONCE = 500
"""Number of runs whose inboxes one query reads."""


async def waits_of(store: Store, run: str, now: datetime) -> list[Waiting]:
    """Return the waits of a run's open turn, and of the runs below it. The list is empty if no turn is open.

    Cost: reads those runs.
    """
    found = await waits_on_record(store, run, now)
    return with_sent(found, await answers_sent(store, {each.run for each in found}))


async def answers_sent(store: Store, runs: Collection[str]) -> Sent:
    """Return the arrival times of the answers in the inboxes of `runs`; see `Sent`. Unreadable answers are left out.

    Cost: one query for each 500 runs.
    """
    names, letters = [run for run in runs if run.isascii()], list[Letter]()
    if len(names) == 1:
        letters = await store.inbox(names[0])
    else:
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            rows = (await store.sql(IN_INBOXES.format(", ".join("?" * len(some))), some)).rows
            letters += [Letter(*row) for row in rows]
    found = dict[str, dict[int, datetime]]()
    for letter in letters:
        with suppress(BrokenRecord, ValueError, TypeError):
            content, at = decode_content(letter.content, {}), utc_time(letter.at)
            if isinstance(content, WORDS):
                found.setdefault(letter.run, {}).setdefault(content.of, at)
    return found


def with_sent(waits: Iterable[Waiting], sent: Sent) -> list[Waiting]:
    """Return copies of waits with the times at which their answers were sent; see `Waiting.answer_sent_at`."""
    times = [(each, sent.get(each.run, {}).get(each.of or 0)) for each in waits]
    return [each if at is None else replace(each, answer_sent_at=at) for each, at in times]


async def waits_on_record(store: Store, run: str, now: datetime) -> list[Waiting]:
    """Return the same waits as `waits_of`, read from the entries alone: the inboxes are not read."""
    state = await state_of(store, run)
    if state.opened is None or not state.open:
        return []
    state.mark = store.info.mark
    found, rows = waits(run, state, now), await store.runs(state.opened.session)
    left, met = [run], {run}
    while left:
        above = left.pop(0)
        for row in rows:
            if row.parent_run == above and row.run not in met and await last_end(store, row) is None:
                met.add(row.run)
                left.append(row.run)
                found += waits(row.run, await state_of(store, row.run), now)
    return found or ([described(Waiting("copy"), run, state)] if state.copied else [])


async def with_waits_below(store: Store, outcome: Outcome, now: datetime) -> Outcome:
    """Return a copy of an outcome in which each wait for a child run is replaced by the waits of that child run."""
    found = list[Waiting]()
    for each in outcome.waiting:
        try:
            below = await waits_of(store, each.run, now) if each.what == "child" else []
        except GestaError:  # that run cannot be read: its turn reports it when it continues
            below = []
        found += below or [each]
    return replace(outcome, waiting=tuple(found))


async def left_in_doubt(store: Store, run: str, session: str, keys: Collection[str]) -> set[str]:
    """Return the names of tools that some child runs of a run, and the runs below these, left in doubt.

    A letter that settles a doubt is not looked at: only a turn that continues checks it. Cost: reads those runs.

    Args:
        keys: keys of the tasks that the child runs were begun for.
    """
    found, left, rows = set[str](), [run], await store.runs(session)
    while left:
        above = left.pop(0)
        for row in rows:
            if row.parent_run != above:
                continue
            state = await state_of(store, row.run)
            if above == run and state.turns.keys().isdisjoint(keys):
                continue
            ended = await last_end(store, row)
            if ended is not None:
                found.update(ended.doubts or ())
                continue
            left.append(row.run)
            found.update(state.left_in_doubt())
    return found


async def last_end(store: Store, row: RunRow) -> EndContent | None:
    """Return the end of a turn if it is the last entry of a run, else `None`. A pruned (removed) run has ended.

    Cost: reads two rows.
    """
    last = next(iter(await store.read(row.run, row.head - 1)), None)
    if last is None:  # it was pruned
        return EndContent()
    content = (await entry_of(store, last)).content if last.kind == Kind.End else None
    begins = await store.read(row.run, last.span - 1, last.span) if isinstance(content, EndContent) else []
    begun = [(await entry_of(store, begin)).content for begin in begins]
    turn = any(isinstance(each, BeginContent) and each.role == "turn" for each in begun)
    return content if turn and isinstance(content, EndContent) else None


async def state_of(store: Store, run: str) -> RunState:
    """Return the state of a run, computed from its entries. Cost: reads the run."""
    return fold(RunView(), await read(store, run))


class LastTurn(Struct, frozen=True):
    """Whether a turn of a run was open when the run was last looked at."""

    head: int = 0
    """Seq of the run's last entry at that time."""
    digest: bytes = b""
    """Digest of that entry."""
    begin: int = 0
    """Seq of the `begin` entry of the open turn; 0 if no turn was open."""


async def last_turn(store: Store, run: str, known: LastTurn) -> LastTurn:
    """Return whether a turn of a run is open now. Cost: reads the entries since `known`, the last result."""
    entries, begin = await read(store, run, max(known.head - 1, 0)), known.begin
    if known.head and (not entries or (entries[0].seq, entries[0].digest) != (known.head, known.digest)):
        entries, begin = await read(store, run), 0  # the run was pruned, or its record replaced
    for entry in entries:
        if isinstance(entry.content, BeginContent) and entry.content.role == "turn":
            begin = entry.seq
        elif isinstance(entry.content, EndContent) and entry.span == begin:
            begin = 0
    return LastTurn(entries[-1].seq, entries[-1].digest, begin) if entries else LastTurn()


async def opened_before(store: Store, run: str, opening: Opening) -> Outcome | None:
    """Return the outcome of the turn of a run that was begun with the key of `opening`, as far as it is on record.

    The `end` of the outcome of an open turn is `None`. Return `None` if no turn was begun with that key.

    Cost: reads the run.

    Raises:
        OtherMessage: the key of that turn was used for another message.
    """
    state = await state_of(store, run) if opening.key is not None else None
    known = state.turns.get(opening.key or "") if state is not None else None
    if state is None or known is None:
        return None
    check_same(run, opening, known)
    return outcome_of(run, state, of=known)
