"""Finds models, formatters and records (stores of agents' runs) by their names. Each is imported when first used.

provider:model   a model over HTTP             the argument `base_url` names another server
tool-calls       a formatter (makes the model's messages from a run's entries)
FILE.gesta       a record in SQLite            :memory: a record that ends with the process
postgresql://user@host/database                a record in PostgreSQL
"""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, cast

import anyio
import anyio.lowlevel
import msgspec

from gesta.agent import Agent, chained, with_model_of
from gesta.decide.approval import Approver
from gesta.entry import Entry
from gesta.errors import BadAddress, GestaError, MissingExtra, nearest, refuse_unknown
from gesta.function_tool.tool import Tool
from gesta.model.request import Model
from gesta.perform.execution import Terms, nobody_knows
from gesta.perform.sources import Sources
from gesta.perform.stop import GRACE_S
from gesta.policy import Budget, Price
from gesta.prompt import Formatter
from gesta.record.record import Record as Base
from gesta.store import QueryBounds, Store, refuse_wrong
from gesta.text.redactor import SECRETS

if TYPE_CHECKING:
    from gesta.views.history import SaidMessage
    from gesta.views.lineage import Explanation
    from gesta.views.sessions import Session
    from gesta.views.stats import Numbers

Durability = Literal["synced", "normal"]
Failover = Literal["synchronous"]
Address = str | os.PathLike[str]
"""The place of a record: the path of a file, or the address of a server."""
T = TypeVar("T")
CLASSES = {
    "tool-calls": "gesta.formatters.tool_calls:ToolCalls",
    "react": "gesta.compat.kodeagent.react:ReActHistoryFormatter",
    "codeact": "gesta.compat.kodeagent.codeact:CodeActHistoryFormatter",
    "react-text": "gesta.formatters.react_text:ReActText",
    "codeact-text": "gesta.formatters.codeact_text:CodeActText",
    "json-text": "gesta.formatters.json_text:JsonText",
    "transcript": "gesta.formatters.transcript:Transcript",
}
FORMATTERS = tuple(CLASSES)


def formatter(name: str) -> Formatter[Any]:
    """Return a new formatter by its name. Raises BadAddress for an unknown name."""
    if name not in CLASSES:
        raise BadAddress(f"No formatter {name!r:.60}.{nearest(name, FORMATTERS)} Known: {', '.join(FORMATTERS)}.")
    place, _, made = CLASSES[name].partition(":")
    found: Formatter[Any] = getattr(import_module(place), made)()
    return found


def model(address: str, base_url: str | None = None) -> Model:
    """Return a model for an address `provider:model`, or for a model name on the OpenAI-compatible server `base_url`.

    Raises:
        BadAddress: the address names no provider, or an unknown provider.
        NoKey: the provider needs a key and its environment variable is not set.
    """
    from gesta.models.hosted import hosted

    return hosted(address, base_url=base_url)


def price(name: str, budget: Budget | None = None) -> Price | None:
    """Return the prices of the model `name`; `None` if unknown. Raises MissingExtra if `budget` needs genai-prices."""
    from gesta.models.prices import listed

    return listed(name, needed=budget is not None and budget.usd is not None)


def bind(agent: Agent, models: dict[str, Model] | None = None) -> Agent:
    """Return the agent, with addresses of models and formatters replaced by objects. `models` caches models by address.

    Raises:
        BadAddress: the agent has no model, or one of its addresses names nothing that exists.
    """
    if agent.model == "" and agent.lacks_model:
        known = "in the agent, in record.run(...), or with --model; model=gesta.scripted(...) needs no key"
        raise BadAddress(f"Agent {agent.name!r} has no model. Give it one, as in model='openai:gpt-5-mini': {known}.")
    changes: dict[str, Any] = {}
    if isinstance(agent.model, str) and agent.model:
        kept = {} if models is None else models
        changes["model"] = kept[agent.model] = kept.get(agent.model) or model(agent.model)
    if isinstance(agent.formatter, str) or not hasattr(agent.formatter, "reader"):
        changes["formatter"] = formatter(str(agent.formatter))
    if agent.price is None and ":" in (name := getattr(changes.get("model", agent.model), "name", "")):
        changes["price"] = price(name, agent.policy.budget)
    if agent.repair is True:
        changes["repair"] = repair()
    if (rule := agent.policy.compact) is not None and rule.by is not None:  # raises at once if the key is missing
        rule = msgspec.structs.replace(rule, by=bind(rule.by, models))
        changes["policy"] = msgspec.structs.replace(agent.policy, compact=rule)
    if any(not isinstance(each, Agent) for each in agent.fallbacks):
        alone = msgspec.structs.replace(agent, fallbacks=(), price=None)
        changes["fallbacks"] = chained([bind(msgspec.structs.replace(alone, model=m), models) for m in agent.fallbacks])
    made = msgspec.structs.replace(agent, **changes) if changes else agent
    tools = [described(tool if tool.agent is None else with_model_of(tool, made)) for tool in agent.tools]
    if any(new is not old for new, old in zip(tools, agent.tools, strict=True)):
        made = msgspec.structs.replace(made, tools=tools)
    return made


def repair() -> Callable[[str], dict[str, Any] | None]:
    """Return a function that parses nearly valid JSON. Raises MissingExtra if json-repair is not installed."""
    try:
        from gesta.formatters.repair import repair as made
    except ModuleNotFoundError as missing:
        raise MissingExtra("An agent that repairs arguments", "json-repair", "repair") from missing
    return made


def described(tool: Tool) -> Tool:
    """Return a copy of a tool whose description and parameter descriptions come from its function's docstring."""
    if "\n" not in tool.description:
        return tool
    if "described" not in tool.__dict__:
        from gesta.tools.docstring import read

        tool.__dict__["described"] = tool.with_texts(*read(tool.description))
    made: Tool = tool.__dict__["described"]
    return made


class FileOptions(TypedDict, total=False):
    """The options for every store, in a file or on a server."""

    durability: Durability
    """`synced` (the default): commits survive a loss of power. `normal` is faster: a loss of power can undo the last
    commits, but a crash of the program cannot. Attempts of tools with effects are always synced."""
    readonly: bool
    """If true, nothing is written, and a missing file is not created."""
    busy_s: float
    """Seconds to wait for other writers, and for a server that cannot be reached. 60 by default."""


class ServerOptions(FileOptions, total=False):
    """The options for stores on a database server."""

    failover: Failover | None
    """`synchronous` declares that a PostgreSQL server which replaces another server has all of its commits."""
    tool_role: str | None
    """PostgreSQL role under which the SQL of transactional tools runs."""


class StoreOptions(ServerOptions, total=False):
    """The options of every function that opens a store."""

    queries: QueryBounds
    """Bounds of each SQL query of a user: time, rows and size. By default only the time has a bound: 600 seconds."""


class Options(StoreOptions, total=False):
    """The options of `gesta.open`."""

    grace_s: float
    """After the caller stopped waiting for a turn, a running tool with effects may go on for this many seconds; 10
    by default, 0 to stop it at once."""
    approver: Approver | None
    """Checks who approved a tool call, and rejects false approvals. Without it, the name in an approval is believed."""
    gone: Callable[[str], bool | None]
    """A function that returns whether the process with a name has ended; `None` if it cannot know. Called only if the
    operating system cannot tell."""


def store(address: Address, **options: Unpack[StoreOptions]) -> Store:
    """Return an opened store. The address has the forms that `open_record` lists.

    Raises:
        BadAddress, MissingExtra, NoRecord, BrokenRecord, NewerRecord, WriteFailed: the store cannot be opened.
    """
    return _opened(address, options, inline=False)


def inline_store(address: Address, **options: Unpack[StoreOptions]) -> Store:
    """Return an opened store whose coroutines never wait for another task, for programs without an event loop."""
    return _opened(address, options, inline=True)


def _opened(place: Address, options: StoreOptions, *, inline: bool) -> Store:
    address = place if isinstance(place, str) else os.fspath(place) if isinstance(place, os.PathLike) else None
    if not isinstance(address, str):
        raise BadAddress(
            f"The address of a record is {place!r:.60}, expected a path such as 'shop.gesta', ':memory:' or "
            "'postgresql://user@host/database'."
        )
    _learn(address)
    queries = options.pop("queries", None)
    opened = _store(address, cast("ServerOptions", options), inline=inline)
    opened.queries = queries or opened.queries
    return opened


def _store(address: str, options: ServerOptions, *, inline: bool) -> Store:
    if address == ":memory:":
        from gesta.stores.memory import MemoryStore

        return MemoryStore()
    if remote(address):
        from gesta.stores.postgres import InlinePostgresStore, PostgresStore

        return (InlinePostgresStore if inline else PostgresStore).open(address, **options)
    from gesta.stores.sqlite import InlineSqliteStore, SqliteStore

    return (InlineSqliteStore if inline else SqliteStore).open(address, **local(address, options))


def _learn(address: str) -> None:
    """Add the secrets in the environment and in an address to the secrets that are removed from all texts."""
    SECRETS.add_environment(os.environ)
    SECRETS.add_address(address)


def local(address: str, options: ServerOptions) -> FileOptions:
    """Return those of `options` that a record in a file has. Raises BadAddress if one is set that only servers have."""
    if options.get("failover") is not None or options.get("tool_role") is not None:
        raise BadAddress(
            f"{address!r} is a record in a file; `failover` and `tool_role` are for records in PostgreSQL. "
            "Leave them out, or name postgresql://user@host/database."
        )
    kept: FileOptions = {}
    if "durability" in options:
        kept["durability"] = options["durability"]
    if "readonly" in options:
        kept["readonly"] = options["readonly"]
    if "busy_s" in options:
        kept["busy_s"] = options["busy_s"]
    return kept


def divided(options: Options) -> tuple[StoreOptions, Terms]:
    """Return the options in two parts: for the store, and for turns. Raises TypeError for an unknown option."""
    refuse_unknown("gesta.open", options, Options.__annotations__)
    refuse_wrong(options)
    terms = Terms(options.pop("grace_s", GRACE_S), options.pop("approver", None), options.pop("gone", nobody_knows))
    return cast("StoreOptions", options), terms


def remote(address: str) -> bool:
    """Return whether an address names a server. Raises BadAddress for an unknown URL scheme."""
    kind, url, _ = address.partition("://")
    if url and kind not in ("postgresql", "postgres"):
        raise BadAddress(
            f"No store for {kind}:// addresses. A record is a file ending in .gesta, or postgresql://user@host/database."
        )
    return bool(url)


def replay(source: Address | Sequence[Entry], *, run: str = "last", strict: bool = False) -> Model:
    """Return a model that gives the recorded replies of a run again: no key, no network, no cost.

    Args:
        source: path of a record, or the entries of a run.
        run: id, prefix of an id, session name, or `last`, when `source` is a path.
        strict: whether a request that differs from the recorded request is an error.
    """
    from gesta.models.replay import replay as replaying

    if not isinstance(source, str | os.PathLike):
        return replaying(source, strict=strict)
    opened = inline_store(source, readonly=True)
    try:
        record = Record(opened, bind)
        entries = drive(record.read(drive(record.find(run)).run))
    finally:
        drive(opened.close())
    return replaying(entries, strict=strict)


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits for another task, without an event loop, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise GestaError("This record cannot be used without an event loop. Use gesta.open(...) in an async function.")


class Record(Base):
    """An opened record (the store that holds all runs): it runs agents, reads runs, and explains answers."""

    async def explain(self, entry: Entry | str | tuple[str, int]) -> "Explanation":
        """Return the explanation of an entry: all entries of all runs that it was made from, back to the question.

        Args:
            entry: the entry, its id, or its run and seq.

        Raises:
            NoRun: there is no such run.
            GestaError: the run has no such entry.
        """
        from gesta.views.across import explain

        return await explain(self, entry)

    async def sessions(self, limit: int | None = None) -> "list[Session]":
        """Return the sessions (conversations), the most recently active first, with participants, state and waits.

        Args:
            limit: greatest number of sessions to return.
        """
        from gesta.stores.session_list import sessions

        return await sessions(self.store, self.now(), limit)

    async def history(self, session: str, *, calls: bool = False) -> "list[SaidMessage]":
        """Return what a person and the agents said in a session, in order.

        Args:
            session: name of a session, id of a run or child run, start of such an id, or `last`.
            calls: whether to include tool calls, the results of the calls, and the model's replies that made the calls.

        Raises:
            NoRun: no session or run has this name.
        """
        from gesta.views.history import history

        row = await self.find(session)
        named = [each for each in await self.store.runs(row.session) if each.parent_run is None]
        return await history(self.store, named if row.session == session else [row], calls=calls)

    async def chat_messages(self, session: str, *, calls: bool = False) -> list[dict[str, Any]]:
        """Return what `history` returns for these arguments, as chat messages in the form of the `openai` client."""
        from gesta.models.chat_completions import ChatDialect
        from gesta.views.history import messages

        dialect, said = ChatDialect(model=""), await self.history(session, calls=calls)
        return [msgspec.json.decode(dialect.encode(each)) for each in messages(said)]

    async def stats(
        self,
        by: Literal["day", "agent", "model", "tool"] = "day",
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        session: str | None = None,
    ) -> "dict[str, Numbers]":
        """Return counts and costs of requests and calls, by day, agent, model or tool; see `gesta stats`.

        Args:
            since: requests and calls before this time are not counted; a text is a day or a time, by default in UTC.
            until: requests and calls from this time on are not counted.
            session: count only requests and calls in the runs of this session.
        """
        from gesta.views.stats import stats

        return await stats(self.store, by, since, until, session)


@asynccontextmanager
async def open_record(address: Address = ":memory:", **options: Unpack[Options]) -> AsyncIterator[Record]:
    """Open a record for an `async with` block, and close it at the end. A record that does not exist is created.

    Args:
        address: path of a `.gesta` file, text or `pathlib.Path`; `:memory:` for a record that ends with the block.
        options: see `Options`.

    Raises:
        TypeError: an option is unknown.
        BadAddress: `address` is not an address of a record.
        NoRecord, BrokenRecord, NewerRecord, WriteFailed: the record cannot be opened.
    """
    of_store, terms = divided(options)
    opened = store(address, **of_store)
    failure: BaseException | None = None
    models: dict[str, Model] = {}
    try:
        async with Sources() as sources, anyio.create_task_group() as tasks:
            record = Record(opened, partial(bind, models=models), tasks)
            record.turns.terms, record.turns.sources, record.approver = terms, sources, terms.approver
            try:
                yield record
            except BaseException as error:  # noqa: BLE001 - raised below, outside of the group, as itself
                failure = error
            record.close()
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        with anyio.CancelScope(shield=True):
            for made in models.values():
                await getattr(made, "aclose", anyio.lowlevel.checkpoint)()
            await opened.close()
