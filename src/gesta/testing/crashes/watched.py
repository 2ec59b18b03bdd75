"""Wraps a store and the tools of an agent: the wrappers write to the test's log, and may kill the process.

A record is the store of all runs, and a run is a list of entries (events). Each commit, letter and lease has a point
before and after it, and so has each call of a tool's function. At a point the test may kill the process, cancel its
turn or make a write fail. Arguments and results stay the same, so the tested agent behaves as without the test. A
letter is a message or an approval that waits in the inbox of a run. A lease is the right to write a run. A
life is one process of the test.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

import msgspec

from gesta.agent import Agent
from gesta.entry import Row
from gesta.errors import WriteFailed
from gesta.function_tool.context import Context, NotDone
from gesta.function_tool.tool import Tool
from gesta.store import (
    Batch,
    BlobRow,
    Foreign,
    Info,
    Lease,
    Letter,
    RunRow,
    Statements,
    Store,
    Table,
    TransactionalEffect,
)
from gesta.testing.crashes.witness import Life, Line, Written, written

P = ParamSpec("P")
CONTEXT = "gesta_crashing_context"
"""Name of the parameter by which a tool's wrapper gets the context of the call, even if the tool itself has no such
parameter."""


class Watched:
    """A store that writes a line to the test's log before each commit begins and after it returns.

    Methods without points only call the wrapped store; `gesta.store.Store` describes them in full.
    """

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self.queries = store.queries
        self._life = life

    @property
    def info(self) -> Info:
        """Facts about the wrapped store, such as its id and its address."""
        return self._store.info

    async def append(self, batch: Batch) -> int:
        """Commit a batch of rows, and return the pos (number in the store) of the batch's last row."""
        run, entries = batch.lease.run, written(batch.rows)
        self._life.tell(Line(what="committing", run=run, entries=entries))
        self._life.reach(f"before the commit of {_kinds(entries)}")
        self._fail()
        pos = await self._store.append(batch)
        self._life.tell(Line(what="committed", run=run, entries=entries))
        self._life.reach(f"after the commit of {_kinds(entries)}")
        return pos

    def _fail(self) -> None:
        """Raise WriteFailed if the test wants the next write to fail."""
        if self._life.fails():
            raise WriteFailed(self.info.address, "the crash test fails this write")

    async def transact(self, effect: TransactionalEffect) -> None:
        """Commit the effect of a transactional tool together with its entries, in one transaction."""
        done: list[Batch] = []

        def work(sql: Statements) -> tuple[Batch, bool]:
            batch, kept = effect.work(sql)
            done.append(batch)
            entries = written(batch.rows)
            self._life.tell(Line(what="committing", run=batch.lease.run, entries=entries))
            self._life.reach(f"inside the transaction of {_kinds(entries)}")
            return batch, kept

        self._life.reach("before a transaction")
        self._fail()
        await self._store.transact(TransactionalEffect(effect.run, work, effect.timeout_s))
        for batch in done[-1:]:
            self._life.tell(Line(what="committed", run=batch.lease.run, entries=written(batch.rows)))
        self._life.reach("after a transaction")

    async def holds(self, lease: Lease) -> bool:
        """Return whether a lease is still held."""
        return await self._store.holds(lease)

    def deliver(self, letter: Letter) -> bool:
        """Add a letter to the inbox of a run, from any thread.

        Return `False` if a letter with the same key came before.
        """
        counts = self._store.deliver(letter)
        if counts:
            self._life.tell(Line(what="sent", run=letter.run, letter=letter))
        return counts

    async def send(self, letter: Letter) -> bool:
        """Add a letter to the inbox of a run. Return `False` if a letter with the same key came before."""
        self._life.reach("before a letter is sent")
        counts = await self._store.send(letter)
        if counts:
            self._life.tell(Line(what="sent", run=letter.run, letter=letter))
        self._life.reach("after a letter is sent")
        return counts

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Acquire the lease of a run (the right to write it), and return the lease.

        Args:
            mirror: whether the run may be a mirror (a copy that only `push` writes).
        """
        self._life.reach("before a lease is taken")
        lease = await self._store.lease(run, mirror=mirror)
        self._life.reach("after a lease is taken")
        return lease

    async def release(self, lease: Lease) -> None:
        """Release the lease of a run."""
        self._life.reach("before a lease is given back")
        await self._store.release(lease)
        self._life.reach("after a lease is given back")

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Mark a run as a mirror (copy) of the same run in the record with id `of`; `None` removes the mark."""
        await self._store.mirror(lease, of)

    async def gone(self, process: str) -> bool | None:
        """Return whether a process has ended; `None` if that is not known."""
        return await self._store.gone(process)

    async def declare_gone(self, process: str, by: str) -> None:
        """Store a person's statement that a process has ended."""
        await self._store.declare_gone(process, by)

    async def adopt(self, by: str) -> None:
        """Store a person's decision that this copy of a record replaces the original."""
        await self._store.adopt(by)

    def keep(self) -> Callable[[], None]:
        """Show other processes that this one still runs, until the returned function is called."""
        return self._store.keep()

    def descriptor(self) -> int | None:
        """Return the descriptor of a file that subprocesses may keep open; `None` if the store has none.

        While a subprocess has this file open, other processes see this process as running.
        """
        return self._store.descriptor()

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return the rows of a run, at most `limit` of them.

        The rows have a seq (number in the run) above `after`, and not above `until`.
        """
        return await self._store.read(run, after, until, limit)

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return the seq (number in the run) and the digest of the last entry of a run."""
        return await self._store.head(run)

    async def last(self) -> int:
        """Return the pos (number in the store) of the last entry of any run."""
        return await self._store.last()

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened. `session` and `name` select the runs that match."""
        return await self._store.runs(session, name)

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Return a value of a run that is too large for a row and is stored separately."""
        return await self._store.get_blob(run, name)

    async def inbox(self, run: str) -> list[Letter]:
        """Return the letters in the inbox of a run."""
        return await self._store.inbox(run)

    def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Yield the rows of all runs after the pos `after`, without end: first the stored rows, then each new row."""
        return self._store.tail(after)

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Return the result of a query that only reads."""
        return await self._store.sql(query, parameters)

    async def shrink(self) -> int:
        """Free the space of pruned (removed) runs, and return by how many bytes the store became smaller."""
        return await self._store.shrink()

    async def damage(self) -> list[str]:
        """Check the store, and return a text for each damage that was found."""
        return await self._store.damage()

    async def foreign(self) -> Foreign:
        """Return the tables and other objects that Gesta did not make."""
        return await self._store.foreign()

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


def _kinds(entries: Sequence[Written]) -> str:
    return ", ".join(dict.fromkeys(entry.kind for entry in entries)) or "nothing"


def watched(agent: Agent, life: Life) -> Agent:
    """Return a copy of the agent whose tools log their calls. Tools that a person carries out stay unwrapped."""
    tools = [tool if tool.asks else _watched(tool, life) for tool in agent.tools]
    return msgspec.structs.replace(agent, tools=tools)


def _watched(tool: Tool, life: Life) -> Tool:
    function = (_called if tool.threaded else _awaited)(tool.function, tool, life)
    reconcile = tool.reconcile and _asked(tool.name, tool.reconcile, life)
    names = (*tool.context_names, CONTEXT)
    return msgspec.structs.replace(tool, function=function, context_names=names, reconcile=reconcile)


def _asked(name: str, reconcile: Callable[P, Any], life: Life) -> Callable[P, Any]:
    """Return a wrapper for a tool's `reconcile`, which finds out whether a call had its effect.

    The wrapper writes a line to the test's log if a call had no effect.
    """

    def heard(key: object, found: Any) -> Any:
        if isinstance(found, NotDone):
            life.tell(Line(what="undone", tool=name, key=str(key)))
        return found

    async def later(key: object, found: Awaitable[Any]) -> Any:
        return heard(key, await found)

    @wraps(reconcile)
    async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
        return heard(args[0], await reconcile(*args, **kwargs))

    @wraps(reconcile)
    def called(*args: P.args, **kwargs: P.kwargs) -> Any:
        found = reconcile(*args, **kwargs)
        return later(args[0], found) if inspect.isawaitable(found) else heard(args[0], found)

    return awaited if inspect.iscoroutinefunction(reconcile) else called


def _called(function: Callable[P, Any], tool: Tool, life: Life) -> Callable[P, Any]:
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        line = _start(tool, kwargs.pop(CONTEXT), life)
        try:
            result = function(*args, **kwargs)
        except Exception:
            life.tell(msgspec.structs.replace(line, what="raised"))
            raise
        return _finish(line, life, result) if inspect.isawaitable(result) else _return(line, life, result)

    return call


def _awaited(function: Callable[P, Any], tool: Tool, life: Life) -> Callable[P, Any]:
    async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        line = _start(tool, kwargs.pop(CONTEXT), life)
        return await _finish(line, life, function(*args, **kwargs))

    return call


def _start(tool: Tool, context: object, life: Life) -> Line:
    """Write to the test's log that a tool's function is about to be called, and return the line.

    Args:
        context: the `Context` of the call.
    """
    assert isinstance(context, Context)
    life.reach(f"before {tool.name} starts")
    attempt = int(context.explain_id.rpartition(".")[2])
    line = Line(what="started", run=context.run, tool=tool.name, effect=tool.effect, key=context.key, attempt=attempt)
    life.tell(line)
    return line


async def _finish(line: Line, life: Life, result: Awaitable[Any]) -> Any:
    try:
        value = await result
    except Exception:
        life.tell(msgspec.structs.replace(line, what="raised"))
        raise
    return _return(line, life, value)


def _return(line: Line, life: Life, result: Any) -> Any:
    """Write to the test's log that a tool's function has returned, and return the function's result.

    At this time the result is not in the record yet.

    Args:
        line: the line that `_start` wrote for the call.
    """
    life.tell(msgspec.structs.replace(line, what="returned"))
    life.reach(f"after {line.tool} returned")
    return result
