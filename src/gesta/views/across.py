"""Explains an entry together with the entries of other runs that it was made from.

A record is the store of all runs. A node is an entry that the explanation shows. The seq of an entry is its number in
its run. The sources of an entry may be in other runs, such as a child run, or the run in which a task was planned.
Other runs are read only if they contain sources. A `State` holds the entries read so far, with the sources of each.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from gesta.entry import Entry, fold
from gesta.errors import GestaError
from gesta.lineage import Key, Origin
from gesta.log.journal import read
from gesta.record.record import Record
from gesta.views.lineage import Explanation, Lineage, Node, State, explanation, nodes_of

T = TypeVar("T")
Call = Callable[..., Awaitable[Any]]
"""A function that calls another function with the given arguments, possibly in another thread."""
ReadRun = Callable[[str], Awaitable[list[Entry]]]
"""A function that returns all entries of the run with the given id."""


async def explain(record: Record, entry: Entry | str | Key) -> Explanation:
    """Return the explanation of an entry, including its sources in other runs.

    Args:
        record: the opened record.
        entry: the entry itself, its id (`run.seq`), or its run and seq.

    Raises:
        NoRun: there is no such run.
        GestaError: the run has no such entry.
    """
    run, seq = _key(entry)
    row = await record.find(run)
    return await explain_run(record, row.run, seq)


async def here(work: Callable[..., T], *args: Any) -> T:
    """Call a function in this thread, and return its value. `explain_from` uses `here` by default."""
    return work(*args)


async def explain_run(record: Record, run: str, seq: int | None = None) -> Explanation:
    """Return the explanation of one entry of a run, by default of its last answer.

    A run without an answer is explained from its last node or, without a node, from its last entry.

    Args:
        record: the opened record.
        run: id of the run.
        seq: seq of the entry; `None` for the default.

    Raises:
        GestaError: the run has no such entry.
    """
    entries = await read(record.store, run, until=seq if seq is not None and seq > 0 else None)
    return await explain_from(fold(Lineage(), entries), run, seq, record.read)


async def explain_from(state: State, run: str, seq: int | None, read_run: ReadRun, call: Call = here) -> Explanation:
    """Return the explanation of one entry of a run, as `explain_run` does, from entries that were read before.

    Args:
        state: holds the entries of the run, at least up to the explained entry. Entries of other runs
            are added to it.
        run: id of the run.
        seq: seq of the entry; `None` for the default, see `explain_run`.
        read_run: returns all entries of another run.
        call: calls functions that take long in a long run. A server passes a function that uses another thread.

    Raises:
        GestaError: the run has no such entry.
    """
    origin = state.origins.get(run, Origin())
    if seq is None:
        answers = [answer for of, answer in state.questions if of == run]
        seq = max(answers or origin.nodes or origin.links, default=0)
    if (run, seq) not in state.entries:
        last = max(origin.links, default=0)
        raise GestaError(f"No entry {seq} in run {run}. Its entries are 1 to {last}; `gesta log` shows them.")
    found: Explanation = await call(explanation, state, (run, seq))
    while await _read_more(state, found.elsewhere, read_run):
        found = await call(explanation, state, (run, seq))
    return found


async def all_nodes(record: Record, run: str | None = None) -> tuple[tuple[Node, ...], State]:
    """Return the nodes of a run with their sources in other runs, and the state with all entries that were read.

    Args:
        run: id of the run; `None` for all runs.
    """
    state = State()
    for each in [run] if run is not None else [row.run for row in await record.store.runs()]:
        fold(Lineage(), await record.read(each), state)
    nodes, elsewhere = nodes_of(state, run)
    while await _read_more(state, elsewhere, record.read):
        nodes, elsewhere = nodes_of(state, run)
    return nodes, state


async def _read_more(state: State, elsewhere: tuple[Key, ...], read_run: ReadRun) -> bool:
    """Add all entries of the runs named in `elsewhere`, which has sources as (run, seq), to the state.

    Return whether there were new entries. `read_run` returns the entries of a run.
    """
    known = len(state.entries)
    for run in sorted({run for run, _ in elsewhere}):
        fold(Lineage(), await read_run(run), state)
    return len(state.entries) > known


def _key(entry: Entry | str | Key) -> Key:
    """Return the run and the seq of an entry. Raises GestaError for a text that is not an id of an entry."""
    if isinstance(entry, Entry):
        return entry.run, entry.seq
    if isinstance(entry, str):
        run, _, seq = entry.rpartition(".")
        if not run or not seq.isdecimal():
            raise GestaError(
                f"{entry!r} is not an id of an entry. An id is a run, a dot and a seq: `gesta log` shows them."
            )
        return run, int(seq)
    if not isinstance(entry, tuple):
        raise GestaError(
            f"A value of type {type(entry).__name__} is not an entry. Pass an entry of record.read(run), such as "
            "the one of kind 'assistant', or its id, or its run and seq."
        )
    return entry
