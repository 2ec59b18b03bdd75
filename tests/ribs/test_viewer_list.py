"""The list of sessions: what the index of runs counts, what each filter leaves, and how a large record is read."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import anyio
import anyio.lowlevel
import apsw
import pytest
from tests.commands import gesta_command
from tests.ribs.test_views_on_stores import USAGE, desk

import gesta
from gesta import kinds
from gesta.decide.waiting import BEGUN_BY, PERSON, SENT, Waiting, What
from gesta.entry import run_id
from gesta.importers.file import import_file
from gesta.kinds import AgentRef, BeginContent, Content
from gesta.log.journal import Journal, open_root
from gesta.model.usage import tokens
from gesta.record.waits import state_of
from gesta.stores.pruning import Choice, Pruner, plan, prune
from gesta.stores.run_index import ASKS, RunIndex
from gesta.stores.session_list import listed
from gesta.views.sessions import SessionFilter
from gesta.web.data import Pages
from gesta.web.listing import Asked, Listing, asked, everywhere
from gesta.web.people import shown, until

pytestmark = [pytest.mark.anyio, pytest.mark.sample(2, over="parent")]
USAGES: tuple[Any, ...] = (
    USAGE,
    {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7},
    {"promptTokenCount": 11, "candidatesTokenCount": 3, "thoughtsTokenCount": 4, "toolUsePromptTokenCount": 1},
    {"prompt_tokens": "many", "completion_tokens": -4},
    {"prompt_tokens": 10**30, "completion_tokens": 1},
    {"prompt_tokens": 8},
    None,
)


async def write(record: gesta.Record, session: str, contents: list[Content], name: str = "raw") -> str:
    """Write a run with a turn that holds some contents, and return its id."""
    run = run_id(record.info.id, session, name)
    journal = Journal(record.store, await record.store.lease(run))
    opened = kinds.Opened(session=session, name=name, record=record.info.id)
    log = open_root(journal, BeginContent(name=name, role="turn", agent=AgentRef(name=name, digest="0" * 64)), opened)
    for content in contents:
        log.write(content)
    log.write(kinds.EndContent(reason="answered"))
    await journal.durable()
    await record.store.release(journal.lease)
    return run


def priced(usd: float) -> list[Content]:
    """Return a request with its answer and its cost; an edge that has a cost too is not a request."""
    return [
        kinds.RequestHeaderContent(meta={"model": "m"}),
        kinds.RequestContent(header=2, blocks=[], body_digest="0" * 64),
        kinds.ChatCompletionContent(output="Yes.", usage=USAGE),
        kinds.BudgetContent(of=3, spent={"usd": usd, "tokens": 39}),
        kinds.EdgeContent(source=["raw"], dest=["below"]),
        kinds.BudgetContent(of=6, spent={"usd": 100.0}),
    ]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a record with a session for each filter."""
    path = tmp_path_factory.mktemp("list") / "shop.gesta"
    anyio.run(fill, path)
    return path


async def fill(path: Path) -> None:
    async with gesta.open(path) as opened:
        await opened.run(desk(gesta.call("look", number=1), "A lamp."), "What is it?", session="anna")
        await opened.run(desk(gesta.call("look", number=2), "Nothing."), "And two?", session="bob")
        await opened.run(desk(gesta.call("pay", euros=5), name="clerk"), "Pay.", session="carl")
        clerk = desk(gesta.call("look", number=1), "A lamp.", name="clerk").as_tool(description="Looks.")
        boss = gesta.scripted(gesta.call("clerk", task="Look."), "It is a lamp.")
        await opened.run(gesta.Agent("boss", model=boss, tools=[clerk]), "What is there?", session="dora")
        await write(opened, "eve", priced(0.25))
        async with opened.span("notes", session="finn") as span:
            span.log(kinds.UserContent(value="Only written down"))
        await opened.run(desk(policy=gesta.Policy(limits=gesta.Limits(requests=1))), "Hi", session="gus")


@pytest.fixture
async def record(filled: Path, tmp_path: Path) -> AsyncIterator[gesta.Record]:
    """Return a copy of the record, open for writing."""
    async with gesta.open(shutil.copy(filled, tmp_path / "shop.gesta")) as opened:
        yield opened


async def names(record: gesta.Record, **wanted: Any) -> list[str]:
    index = RunIndex(record.store)
    await index.update()
    return [each.name for each in (await listed(index, SessionFilter(**wanted), record.now())).sessions]


async def test_each_filter_leaves_the_sessions_that_fit(record: gesta.Record) -> None:
    assert await names(record) == ["gus", "finn", "eve", "dora", "carl", "bob", "anna"]
    assert await names(record, agent="clerk") == ["dora", "carl"]
    assert await names(record, tool="look") == ["dora", "bob", "anna"]
    assert await names(record, stands="waiting") == ["carl"]
    assert await names(record, stands="recorded") == ["finn"]
    assert await names(record, stands="failed") == ["gus"]
    assert await names(record, stands="ended", tool="look") == ["dora", "bob", "anna"]
    assert await names(record, stands="open") == await names(record, stands="running") == []
    assert await names(record, errors=True) == ["gus", "bob"]
    assert await names(record, cost=0.25) == ["eve"]
    assert await names(record, cost=0.26) == []
    assert await names(record, since="2026-01-01") == await names(record)
    assert await names(record, until="2026-01-01") == []
    assert await names(record, after=1, limit=2) == ["finn", "eve"]


async def test_a_process_that_died_and_was_looked_up_is_no_error(record: gesta.Record) -> None:
    for name, types in {"lost": ["lost", "unknown-end"], "away": ["lost", "http-503"]}.items():
        await write(
            record, name, [kinds.FaultContent(of=1, error=kinds.Error(type=each, message="x")) for each in types]
        )
    errors = {each.name: each.errors for each in await record.sessions()}
    assert (errors["lost"], errors["away"]) == (0, 1)
    assert await names(record, errors=True) == ["away", "gus", "bob"]


async def test_sessions_are_sorted_by_cost_tokens_and_entries(record: gesta.Record) -> None:
    assert (await names(record, sort="cost"))[0] == "eve"
    assert (await names(record, sort="tokens"))[0] == "eve"
    assert (await names(record, sort="entries"))[0] == "dora"
    assert len(await names(record, sort="duration")) == 7


async def test_sums_are_over_all_that_fits_and_children_count_under_their_session(record: gesta.Record) -> None:
    index = RunIndex(record.store)
    await index.update()
    found = await listed(index, SessionFilter(agent="boss", limit=1), record.now())
    assert (found.totals.sessions, found.totals.runs, found.totals.usd) == (1, 2, None)
    (dora,) = found.sessions
    assert [(each.agent, each.parent) for each in dora.tree] == [("boss", None), ("clerk#6", dora.runs[0])]
    assert (dora.below, dora.title, dora.agents) == (1, "What is there?", ("boss",))
    all_ = (await listed(index, SessionFilter(limit=0), record.now())).totals
    assert (all_.sessions, all_.runs, all_.usd, all_.tokens_in) == (7, 8, 0.25, 30)
    assert all_.entries == await record.store.last()


async def test_the_index_counts_as_the_folds_do_also_when_it_grows_entry_by_entry(record: gesta.Record) -> None:
    contents = [kinds.ChatCompletionContent(output="Yes.", usage=usage) for usage in USAGES]
    await write(record, "usages", [*contents])
    whole, grown = RunIndex(record.store), RunIndex(record.store)
    await whole.update()
    for pos in range(await record.store.last()):
        await grown._read(pos, pos + 1)
    query = "SELECT run, tokens_in, tokens_out, unknown_usage, turn, ended, reason FROM runs ORDER BY run"
    assert whole.all(query) == grown.all(query)
    tools = "SELECT tools.name, runs.run, tools.calls FROM tools JOIN runs ON id = tools.run ORDER BY 1, 2"
    assert whole.all(tools) == grown.all(tools) != []
    for run, read, wrote, unknown, turn, ended, reason in whole.all(query):
        state, entries = await state_of(record.store, run), await record.read(run)
        counts = [
            tokens(each.content.usage) for each in entries if isinstance(each.content, kinds.ChatCompletionContent)
        ]
        known = [each for each in counts if each is not None]
        assert (read, wrote) == (sum(each.input for each in known), sum(each.output for each in known))
        assert unknown == len(counts) - len(known)
        assert (turn is not None and (ended or 0) < turn) == state.open
        assert state.open or reason == (state.turn.reason if state.turn is not None else None)


def test_every_kind_of_wait_says_with_which_entry_it_begins() -> None:
    assert {*BEGUN_BY} == {*get_args(What)}, "lists of sessions show no wait of a kind that BEGUN_BY lacks"
    assert {*ASKS} == {"approval-request", "attempt", "question", "timer"}


def test_a_wait_on_a_page_has_a_form_or_says_how_the_turn_goes_on() -> None:
    assert {what for what in get_args(What) if not until(Waiting(what))} == PERSON
    answered = Waiting("approval", run="r", answer_sent_at=datetime.now(UTC))
    assert (shown(answered, "").answerable, shown(answered, "").until) == (False, f"{SENT.capitalize()}.")
    timer = Waiting("timer", due=datetime(2099, 1, 1, 8, 30, tzinfo=UTC))
    assert until(timer) == "It goes on when its time comes: 2099-01-01 08:30:00 UTC."


async def test_an_imported_run_stands_as_its_last_turn_in_every_list(tmp_path: Path) -> None:
    source, path = tmp_path / "talk.jsonl", tmp_path / "in.gesta"
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    source.write_text(json.dumps({"messages": said}) + "\n")
    async with gesta.open(path) as opened:
        await import_file(opened, source)
        (session,) = await opened.sessions()
    assert (session.stands, session.reason) == ("ended", "answered")
    listed_ = await anyio.to_thread.run_sync(lambda: gesta_command("runs", "--json", "--record", str(path)))
    assert json.loads(listed_.stdout)["stands"] == "answered"


async def test_a_run_at_work_is_on_top_and_running_until_it_has_ended(record: gesta.Record) -> None:
    index, began, may_end = RunIndex(record.store), anyio.Event(), anyio.Event()

    @gesta.tool(effect="pure")
    async def wait() -> str:
        """Wait."""
        began.set()
        await may_end.wait()
        return "done"

    async def first() -> tuple[str, str, bool]:
        await index.update()
        (session,) = (await listed(index, SessionFilter(limit=1), record.now())).sessions
        return session.name, session.stands, session.running

    agent = gesta.Agent("slow", model=gesta.scripted(gesta.call("wait"), "Done."), tools=[wait])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: record.run(agent, "Wait", session="slow"))
        await began.wait()
        await write(record, "later", [])
        assert await first() == ("slow", "open", True)
        assert await names(record, stands="running") == ["slow"]
        may_end.set()
    await write(record, "last", [])
    assert await first() == ("last", "ended", False)


async def test_pruned_runs_leave_the_index_with_the_next_update(record: gesta.Record) -> None:
    index = RunIndex(record.store)
    await index.update()
    await prune(record.store, await plan(record.store, Choice(session="anna")), Pruner(by="test"))
    await index.update()
    found = await listed(index, SessionFilter(), record.now())
    assert [each.name for each in found.sessions] == ["gus", "finn", "eve", "dora", "carl", "bob"]
    assert found.totals.sessions == 6


async def test_an_entry_that_is_no_json_is_left_out_and_the_list_is_there(tmp_path: Path) -> None:
    path = tmp_path / "odd.gesta"
    async with gesta.open(path) as opened:
        await opened.run(desk(gesta.call("look", number=1), "A lamp."), "What is it?", session="anna")
        await opened.run(desk("Yes."), "Well?", session="bob")
    changed = apsw.Connection(str(path))
    changed.execute("UPDATE entries SET content = '{' WHERE kind IN ('chat-completion', 'end')")
    changed.close()
    async with gesta.open(path, readonly=True) as opened:
        index = RunIndex(opened.store)
        await index.update()
        found = await listed(index, SessionFilter(), opened.now())
    assert [(each.name, each.title) for each in found.sessions] == [("bob", "Well?"), ("anna", "What is it?")]


class CutShort:
    """A store in which one query is cancelled."""

    def __init__(self, store: Any, left: int) -> None:
        self._store, self._left, self.scope = store, left, anyio.CancelScope()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def sql(self, *words: Any) -> Any:
        self._left -= 1
        if not self._left:
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()
        return await self._store.sql(*words)


async def cut_short(record: gesta.Record, left: int, at_once: int) -> RunIndex:
    """Return an index of which an update was cancelled in one of its queries."""
    store: Any = CutShort(record.store, left)
    index = RunIndex(store, at_once)
    with store.scope:
        await index.update()
    index.store = record.store
    return index


async def test_an_update_that_is_cut_short_in_any_query_counts_no_entry_twice(
    record: gesta.Record, tmp_path: Path
) -> None:
    with closing(apsw.Connection(str(tmp_path / "shop.gesta"))) as changed:
        changed.execute("UPDATE entries SET content = '{' WHERE kind = 'budget'")
    facts, whole, left, complete = "SELECT messages, calls, answers, head FROM runs ORDER BY run", None, 1, False
    while not complete:
        index = await cut_short(record, left, at_once=40)
        complete, left = index.whole, left + 2
        await index.update()
        whole = whole or index.all(facts)
        assert index.all(facts) == whole, left
    assert left > 12


async def test_runs_that_are_pruned_while_the_index_is_made_are_not_in_it(record: gesta.Record) -> None:
    index = await cut_short(record, 6, at_once=5)
    assert index.all("SELECT session FROM runs") == [("anna",)]
    await prune(record.store, await plan(record.store, Choice(session="anna")), Pruner(by="test"))
    await index.update()
    assert ("anna",) not in index.all("SELECT session FROM runs")


async def test_names_and_texts_that_are_no_utf_8_are_listed_and_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "odd.gesta"
    async with gesta.open(path) as opened:
        await opened.run(desk(gesta.call("look", number=1), "A lamp."), "What is it?", session="anna")
    changed = apsw.Connection(str(path))
    for old, new in ((b"look", b"lo\xffk"), (b"anna", b"an\xffa")):
        changed.execute("UPDATE entries SET content = CAST(replace(CAST(content AS BLOB), ?, ?) AS TEXT)", (old, new))
    changed.close()
    async with gesta.open(path, readonly=True) as opened:
        assert await names(opened) == ["an?a"]
        assert await names(opened, tool="lo?k") == ["an?a"]
        assert await names(opened, agent="\udcff") == []


async def test_a_record_that_was_not_read_to_its_end_shows_the_newest_and_says_so(record: gesta.Record) -> None:
    listing = Listing(record, slice_s=0.0)
    page = await listing.page(asked({}))
    assert page.read < 1
    assert [each["name"] for each in page.sessions] == await names(record)
    assert (await listing.page(asked({"agent": "boss"}))).sessions == []
    await listing.whole()
    page = await listing.page(asked({"agent": "boss", "choices": "1"}))
    assert (page.read, page.agents, page.tools) == (
        1,
        ["boss", "clerk", "desk", "notes", "raw"],
        ["clerk", "look", "pay"],
    )
    assert [each["name"] for each in page.sessions] == ["dora"]


@pytest.mark.parametrize("wanted", [{}, {"agent": "boss"}, {"words": "lamp"}])
async def test_a_page_that_asks_again_and_again_has_read_all_in_the_end(
    record: gesta.Record, wanted: dict[str, str]
) -> None:
    listing = Listing(record, large=0)
    shares = [(await listing.page(asked(wanted))).read]
    while shares[-1] < 1:
        shares.append((await listing.page(asked(wanted))).read)
        assert shares[-1] > shares[-2]
    assert shares == sorted(shares)


async def test_words_are_found_in_sessions_and_narrowed_by_the_other_filters(record: gesta.Record) -> None:
    listing = Listing(record)
    page = await listing.page(asked({"words": "lamp"}))
    assert {each["name"] for each in page.sessions} == {"dora", "anna"}
    hit = next(each["hit"] for each in page.sessions if each["name"] == "anna")
    assert (hit["kind"], "".join(hit["parts"]), hit["parts"][1]) == ("assistant", "A lamp.", "lamp")
    assert [each["name"] for each in (await listing.page(asked({"words": "lamp", "agent": "boss"}))).sessions] == [
        "dora"
    ]


async def test_several_records_are_one_list_in_one_order(record: gesta.Record) -> None:
    async with gesta.open() as other:
        await other.run(desk("Yes."), "Well?", session="other")
        both = [Pages(each, "", "") for each in (record, other)]
        page = await everywhere(both, asked({"limit": "2"}))
        assert [(each["record"], each["name"]) for each in page.sessions] == [(1, "other"), (0, "gus")]
        assert (page.totals.sessions, page.totals.usd) == (8, 0.25)
        dearest = await everywhere(both, asked({"sort": "cost", "after": "0", "limit": "1"}))
        assert [each["name"] for each in dearest.sessions] == ["eve"]
        assert [each["name"] for each in (await everywhere(both, asked({"after": "7"}))).sessions] == ["anna"]


@pytest.mark.parametrize(
    "odd",
    [{"since": "x' OR 1"}, {"sort": "; DROP"}, {"cost": "NaN"}, {"after": "-1"}, {"limit": "1e9"}, {"words": '"'}],
)
def test_what_means_nothing_in_an_address_is_left_out(odd: dict[str, str]) -> None:
    assert asked(odd) == Asked(filter=SessionFilter())
