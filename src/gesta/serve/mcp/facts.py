"""The tools by which an assistant reads a record, the store of all runs.

A run is a list of entries: the recorded facts about one agent's work. Each tool returns the rows that the command of
its name (`gesta show`, …) prints as JSON. The docstring of each class below is the description of the tool that the
assistant's model reads.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from gesta.address import Record
from gesta.cli.chains import explained, nodes
from gesta.cli.pages import entry_facts, kinds_of, newest, table_rows
from gesta.cli.record_options import FindOptions
from gesta.cli.search import hit_facts, matches
from gesta.cli.wire import shown_facts
from gesta.compare.requests import Wanted, remade, request_facts
from gesta.errors import GestaError
from gesta.log.journal import entry_of
from gesta.log.shared import rows_of
from gesta.perform.call_contents import plain
from gesta.serve.bodies import Received

Row = dict[str, Any]
Asked = TypeVar("Asked", bound=Received)
Most = Annotated[int, Meta(ge=1, le=200, description="How many.")]
Text = Annotated[str, Meta(max_length=1000)]
RUN = "A run: its id, a unique start of it, a session (its newest run), or `last`."
Run = Annotated[str, Meta(max_length=1000, description=RUN)]
Day = Annotated[str, Meta(max_length=100, description="An age or a day: 90m, 12h, 7d, 2026-11-21.")]
Kinds = Annotated[str, Meta(max_length=1000, description="Only entries of these kinds, as `tool-call,tool-result`.")]


class Sessions(Received, frozen=True, kw_only=True):
    """List the sessions, the most recently active first: who took part, when, and what each waits for."""

    limit: Most = 20


class Runs(Received, frozen=True, kw_only=True):
    """List the runs, newest first: agent, session, times, tokens, cost, and status."""

    limit: Most = 20


class Log(Received, frozen=True, kw_only=True):
    """Read the entries of a run in order: what was said, asked, called, answered and decided."""

    run: Run = "last"
    after: Annotated[int, Meta(ge=0, description="Only entries after this seq; the seq of the last one goes on.")] = 0
    limit: Most = 50
    kinds: Kinds | None = None


class Show(Received, frozen=True, kw_only=True):
    """Show one entry of a run. Without an entry, show the last request as it was sent to the model."""

    run: Run = "last"
    entry: Annotated[int, Meta(ge=1, description="Seq of the entry.")] | None = None


class Why(Received, frozen=True, kw_only=True):
    """Show what an answer was made from, back to its question: calls, results, passages, approvals, decisions."""

    run: Run = "last"
    entry: Annotated[int, Meta(ge=1, description="Seq of an entry; by default the last answer.")] | None = None


class Find(Received, frozen=True, kw_only=True):
    """Find words in what was said, called and answered."""

    words: Annotated[
        list[Text],
        Meta(min_length=1, max_length=50, description="All must be there. A text with spaces: in its order."),
    ]
    run: Annotated[str, Meta(max_length=1000, description="Only in this run.")] | None = None
    session: Annotated[str, Meta(max_length=1000, description="Only in this session.")] | None = None
    agent: Annotated[str, Meta(max_length=1000, description="Only in runs of this agent.")] | None = None
    kinds: Kinds | None = None
    since: Day | None = None
    until: Day | None = None
    best: Annotated[bool, Meta(description="Best first, in place of newest first.")] = False
    limit: Most = 20


class Sql(Received, frozen=True, kw_only=True):
    """Query the record with SQL; one SELECT at a time.

    Tables: entries (run, seq, kind, at, span, causes, content as JSON, annotations, pos), runs (run, session, name,
    parent_run, at, last_at, head), blobs.
    """

    query: Annotated[str, Meta(max_length=20_000, description="One SELECT.")]


async def sessions(record: Record, asked: Sessions) -> list[Row]:
    """Return the sessions, as `GET /sessions` of `gesta serve` lists them."""
    return [plain(each) for each in await record.sessions(asked.limit)]


async def runs(record: Record, asked: Runs) -> list[Row]:
    """Return facts about the newest runs, the newest first."""
    return await newest(record, asked.limit)


async def log(record: Record, asked: Log) -> list[Row]:
    """Return entries of a run, in order, as `gesta log --json` prints them."""
    row, wanted = await record.find(asked.run), kinds_of(asked.kinds)
    found, after = list[Row](), asked.after
    while len(found) < asked.limit and (stored := await rows_of(record.store, row.run, after, limit=asked.limit)):
        fit = [each for each in stored if wanted is None or each.kind in wanted]
        found += [entry_facts(await entry_of(record.store, each)) for each in fit[: asked.limit - len(found)]]
        after = stored[-1].seq
    return found


async def show(record: Record, asked: Show) -> list[Row]:
    """Return one row: an entry of a run, or without `asked.entry` the last request to a model.

    Raises:
        GestaError: the run has no such entry, or no request.
    """
    row = await record.find(asked.run)
    if asked.entry is not None:
        found = await rows_of(record.store, row.run, asked.entry - 1, limit=1)
        if not found:
            raise GestaError(f"Run {row.run!r} has no entry {asked.entry}. Name one from 1 to {row.head}.")
        return [shown_facts(await entry_of(record.store, found[0]))]
    wanted = Wanted()
    return [request_facts(remade(await record.read(row.run), wanted), wanted)]


async def why(record: Record, asked: Why) -> list[Row]:
    """Return one row for each node of an explanation: an entry and the entries that it was made from."""
    return nodes(await explained(record, asked.run, asked.entry))


async def find(record: Record, asked: Find) -> list[Row]:
    """Return one row for each entry that contains the words of `asked`."""
    given = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return [hit_facts(hit) for hit in await matches(record, FindOptions(**given))]


async def sql(record: Record, asked: Sql) -> list[Row]:
    """Return the rows of a query, each as a dict."""
    return table_rows(await record.store.sql(asked.query))


class Question(Struct, frozen=True):
    """A tool that reads a record: the type of its arguments, and the function that returns its rows."""

    takes: type[Received]
    answers: Callable[[Record, Any], Awaitable[list[Row]]]


QUESTIONS: dict[Literal["sessions", "runs", "log", "show", "why", "find", "sql"], Question] = {
    "sessions": Question(Sessions, sessions),
    "runs": Question(Runs, runs),
    "log": Question(Log, log),
    "show": Question(Show, show),
    "why": Question(Why, why),
    "find": Question(Find, find),
    "sql": Question(Sql, sql),
}
"""The tools, by name."""
