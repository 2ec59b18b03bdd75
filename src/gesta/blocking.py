"""The synchronous door: programs without an event loop run agents and record spans through it.

Running an agent starts a loop of its own for that call. Recording needs none: a store of one file or of memory never
waits for another task, so its coroutines run to their end in one go. Each entry is committed before `log` returns.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

import anyio

from gesta.address import Options, Record, bind, divided, drive, inline_store, open_record
from gesta.agent import Agent
from gesta.entry import Entry
from gesta.errors import GestaError
from gesta.event import Listener
from gesta.kinds import Content, Kind
from gesta.log import Log
from gesta.outcome import Outcome
from gesta.record import Said
from gesta.store import RunRow
from gesta.views.lineage import Explanation


class Span:
    """A span of one's own program: log into it, open spans inside it."""

    def __init__(self, log: Log, commit: Callable[[], None]) -> None:
        self._log = log
        self._commit = commit

    @property
    def run(self) -> str:
        """Id of the run that the span lies in."""
        return self._log.run

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the spans from the root of the run to this one."""
        return self._log.path

    def log(self, content: Content, **annotations: Any) -> Entry | None:
        """Write an entry and commit it; none if the span skips its kind. Raises WriteFailed."""
        entry = self._log.log(content, **annotations)
        self._commit()
        return entry

    def __setitem__(self, key: str, value: Any) -> None:
        """Write one key-value entry; assigning a key twice writes two."""
        self._log[key] = value
        self._commit()

    @contextmanager
    def span(
        self, name: str, *, skip: Collection[Kind] = (), state: Any = None, **annotations: Any
    ) -> Iterator["Span"]:
        """Open a span inside this one; see `Log.span`."""
        try:
            with self._log.span(name, skip=skip, state=state, **annotations) as inner:
                self._commit()
                yield Span(inner, self._commit)
        finally:
            self._commit()


class SyncRecord:
    """An opened record, for programs without an event loop. Made by `gesta.open_sync`."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def run(
        self,
        agent: Agent,
        message: Said,
        *,
        session: str | None = None,
        key: str | None = None,
        user: str | None = None,
    ) -> Outcome:
        """Send a message to an agent; see `Record.run`."""
        refuse_inside_loop("Record.run")
        return anyio.run(lambda: self.record.run(agent, message, session=session, key=key, user=user))

    @contextmanager
    def span(self, name: str, *, session: str, run: str | None = None, **options: Any) -> Iterator[Span]:
        """Open a span at the root of the run `run` (by default of the span's own name) in that session.

        Args:
            options: `skip` (kinds that are not recorded), `state` (read again at the end), and annotations, which
                every entry in the span inherits.
        """
        opened = self.record.span(name, session=session, run=run, **options)
        log = drive(opened.__aenter__())
        try:
            drive(log.durable())
            yield Span(log, lambda: drive(log.durable()))
        except BaseException as error:
            if not drive(opened.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            drive(opened.__aexit__(None, None, None))

    def find(self, name: str) -> RunRow:
        """Find a run; see `Record.find`."""
        return drive(self.record.find(name))

    def read(self, run: str) -> list[Entry]:
        """Read a run's entries by seq."""
        return drive(self.record.read(run))

    def explain(self, entry: Entry | str | tuple[str, int]) -> Explanation:
        """Explain an entry; see `Record.explain`."""
        return drive(self.record.explain(entry))


def run_sync(
    agent: Agent,
    message: Said,
    *,
    record: str = ":memory:",
    session: str | None = None,
    key: str | None = None,
    listener: Listener | None = None,
) -> Outcome:
    """Send a message to an agent and wait for the outcome; see `Record.run`.

    Args:
        record: path of a `.gesta` file, or `:memory:` for a private one that ends with the call.
    """
    refuse_inside_loop("gesta.open(...) and Record.run")

    async def main() -> Outcome:
        async with open_record(record) as opened:
            return await opened.run(agent, message, session=session, key=key, listener=listener)

    return anyio.run(main)


@contextmanager
def open_sync(address: str = ":memory:", **options: Unpack[Options]) -> Iterator[SyncRecord]:
    """Open a record for a program without an event loop; see `gesta.open`.

    With `synced`, entries survive a crash of the process at once, and loss of power from the end of their span on.
    """
    of_store, terms = divided(options)
    store = inline_store(address, **of_store)
    try:
        record = Record(store, bind)
        record.holder.terms = terms
        yield SyncRecord(record)
    finally:
        drive(store.close())


def refuse_inside_loop(twin: str) -> None:
    """Raise an error that names the async twin, when an event loop is running in this thread."""
    try:
        anyio.get_current_task()
    except anyio.NoEventLoopError:
        return
    raise GestaError(f"An event loop is running in this thread. Await {twin} instead of the synchronous door.")
