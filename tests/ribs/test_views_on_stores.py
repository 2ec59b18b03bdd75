"""What a page shows of a record is the same on every store: sessions, history, what waits, sums, and the SQL views."""

import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from tests.postgres import Server

import gesta
from gesta.compare.forks import Change, Fork, fork, go_on
from gesta.decide.waiting import SENT, in_words
from gesta.entry import Row
from gesta.errors import NoRun
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    Opened,
    RequestContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.log.journal import Journal, open_root
from gesta.message import attached
from gesta.model.usage import tokens
from gesta.store import Letter, Table
from gesta.stores.memory import MemoryStore
from gesta.stores.run_index import RunIndex
from gesta.stores.session_list import listed
from gesta.stores.views import OLDER
from gesta.views.sessions import SessionFilter

USAGE = {"prompt_tokens": 30, "completion_tokens": 9}


@gesta.tool(effect="pure")
def look(number: int) -> str:
    """Look something up."""
    if number > 1:
        raise gesta.ToolError("there is no such number")
    return "a lamp"


@gesta.tool(effect="once", approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"{euros} paid"


def desk(*said: Any, name: str = "desk", **more: Any) -> gesta.Agent:
    return gesta.Agent(name, model=gesta.scripted(*said), tools=[look, pay], **more)


LOOK = desk(
    gesta.reply("I look both up.", calls=[gesta.call("look", number=1), gesta.call("look", number=2)], usage=USAGE),
    gesta.reply("A lamp.", usage=USAGE),
    "You are welcome.",
)
PAY = desk(gesta.call("pay", euros=5), "Paid.", name="clerk")
BOSS = gesta.Agent(
    "boss", model=gesta.scripted(gesta.call("clerk", task="Pay 5."), "All is paid."), tools=[PAY.as_tool()]
)


async def filled(record: gesta.Record) -> dict[str, str]:
    """Fill a record, and return the ids of some of its runs."""
    looked = await record.run(LOOK, "What is it?", session="anna", key="m0", user="anna")
    await record.run(LOOK, "Thank you", session="anna", key="m1")
    short = desk(gesta.call("look", number=1), policy=gesta.Policy(limits=gesta.Limits(requests=1)))
    await record.run(short, "What is it?", session="bob")
    waits = await record.run(BOSS, "Pay.", session="carl")
    await record.run(PAY, "Pay, too.", session="carl")
    done = await record.run(BOSS, "Pay.", session="dora")
    await record.approve("dora", by="ann")
    await record.resume(done.run, BOSS)
    async with record.span("app", session="eve") as span:
        span.log(UserContent(value="Is it dry?"))
        call = span.log(ToolCallContent(tool_name="weather", tool_args={"in": "Rome"}))
        assert call is not None
        span.log(ToolResultContent(tool_result="Error: no such town", status="error", outcome="ok", call=call.seq))
        span.log(AssistantContent(value="Nobody knows."))
    row = await record.find("anna")
    (reply,) = [each.seq for each in await record.read(row.run) if getattr(each.content, "output", "") == "A lamp."]
    made = await fork(record, row, Fork(changes=[Change(reply, "output", "No lamp.")], session="fork"))
    await go_on(record, made, LOOK)
    return {"looked": looked.run, "waits": waits.run, "below": waits.waiting[0].run, "fork": made.run}


VIEWS = (
    "SELECT sid, root, runs, entries FROM sessions ORDER BY sid",
    "SELECT sid FROM last_session",
    "SELECT sid, root, inputs, outputs FROM exchanges ORDER BY sid, root, seq",
    "SELECT sid, root, tool_name, status, outcome, paired FROM tool_invocations ORDER BY sid, root, call",
    "SELECT turn, request, model, tokens_in, tokens_out FROM costs ORDER BY run, request",
    "SELECT session, path, role, status, reason FROM spans ORDER BY session, run, span",
)


COSTS = "SELECT tokens_in, tokens_out FROM costs ORDER BY request"


async def picture(address: str) -> dict[str, Any]:
    """Return all that is shown of a record, without ids and times."""
    async with gesta.open(address) as record:
        runs = await filled(record)
        shown: dict[str, Any] = {
            "sessions": await record.sessions(),
            "two": await record.sessions(2),
            "waiting": await record.waiting("carl"),
            "history": {
                name: await record.history(name, calls=True) for name in ("anna", "bob", "dora", "eve", "fork")
            },
            "below": await record.history(runs["below"], calls=True),
            "chat": await record.chat_messages("carl", calls=True),
        }
        for by in ("day", "agent", "model", "tool"):
            found = await record.stats(by)
            shown[by] = [
                {name: value for name, value in each.facts().items() if name != "latency_ms"} for each in found.values()
            ]
        for query in VIEWS:
            shown[query] = sorted(map(list, (await record.store.sql(query)).rows), key=repr)
    text = msgspec.json.encode(shown).decode()
    for place, run in enumerate(dict.fromkeys(re.findall(r"\b[0-9a-f]{16}\b", text))):
        text = text.replace(run, f"run-{place}")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "TIME", text)
    found_: dict[str, Any] = msgspec.json.decode(text)
    return found_


@pytest.mark.slow
async def test_every_store_shows_the_same_of_the_same_record(tmp_path: Path, postgres: Server) -> None:
    here = await picture(":memory:")
    assert await picture(str(tmp_path / "a.gesta")) == here
    assert await picture(postgres.address()) == here


USAGES: tuple[Any, ...] = (
    {"prompt_tokens": 30, "completion_tokens": 9},
    {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7},
    {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
    {"promptTokenCount": 11, "candidatesTokenCount": 3, "thoughtsTokenCount": 4, "toolUsePromptTokenCount": 1},
    {"promptTokenCount": 11},
    {"promptTokenCount": None, "candidatesTokenCount": 3},
    {"prompt_tokens": "many", "completion_tokens": -4},
    {"prompt_tokens": 10**30, "completion_tokens": 10**12},
    "many",
    ["many"],
    None,
)
"""Usage in the words of each dialect, and usage that no provider sends."""


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_costs_have_the_tokens_of_every_dialect(store: str, tmp_path: Path, postgres: Server) -> None:
    address = {"memory": ":memory:", "sqlite": str(tmp_path / "a.gesta"), "postgres": postgres.address()}[store]
    async with gesta.open(address) as record:
        journal = Journal(record.store, await record.store.lease("raw"))
        log = open_root(journal, BeginContent(name="raw"), Opened(session="s", name="raw", record=record.info.id))
        for usage in USAGES:
            log.write(RequestContent(header=1, blocks=[], body_digest="0" * 64))
            log.write(ChatCompletionContent(output="Yes.", usage=usage))
        await journal.durable()
        await record.store.release(journal.lease)
        found = [tuple(row) for row in (await record.store.sql(COSTS)).rows]
    for usage, (read, wrote) in zip(USAGES, found, strict=True):
        counts = tokens(usage)
        assert (read, wrote) == (counts.input, counts.output) if counts is not None else None in (read, wrote), usage


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_a_list_tells_by_one_query_which_answers_were_sent(
    store: str, tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = {"memory": ":memory:", "sqlite": str(tmp_path / "a.gesta"), "postgres": postgres.address()}[store]
    async with gesta.open(address) as record:
        runs = [(await record.run(agent, "Pay.", session=f"s{n}")).run for n, agent in enumerate((PAY, BOSS, PAY))]
        for run in runs[:2]:
            await record.approve(run, by="ann")
        reading = gesta.open(address, readonly=True) if store != "memory" else nullcontext(record)
        async with reading as elsewhere:
            asked = list[str]()
            sql, inbox = elsewhere.store.sql, elsewhere.store.inbox

            async def counted(query: str, *values: Any) -> Table:
                asked.extend(["inbox"] * ("FROM inbox" in query))
                return await sql(query, *values)

            async def read(run: str) -> list[Letter]:
                asked.append(run)
                return await inbox(run)

            monkeypatch.setattr(elsewhere.store, "sql", counted)
            monkeypatch.setattr(elsewhere.store, "inbox", read)
            found = {each.name: in_words(each.waiting) for each in await elsewhere.sessions()}
            assert found == {"s0": SENT, "s1": SENT, "s2": "waits: approval of pay"}
            assert asked == ["inbox"]
            ((wait,), (below,), (none,)) = [await elsewhere.waiting(run) for run in runs]
        assert none.answer_sent_at is None
        assert wait.answer_sent_at is not None
        assert below.run != runs[1]
        assert below.answer_sent_at is not None
        await record.resume(runs[0], PAY)
        assert await record.waiting(runs[0]) == []


async def test_a_record_of_0_1_0_is_asked_through_the_views_of_this_release(tmp_path: Path) -> None:
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 3}
    async with gesta.open(tmp_path / "a.gesta") as record:
        await record.run(desk(gesta.reply("A lamp.", usage=usage)), "What is it?")
    connection = apsw.Connection(str(tmp_path / "a.gesta"))
    (older,) = [each for each in OLDER.split(";\n") if "VIEW IF NOT EXISTS costs" in each]
    connection.execute(f"DROP VIEW costs; {older}")
    assert connection.execute(COSTS).fetchall() == [(None, None)]
    connection.close()
    async with gesta.open(tmp_path / "a.gesta") as record:
        assert (await record.store.sql(COSTS)).rows == [(11, 3)]


async def test_sessions_say_who_took_part_and_how_each_stands() -> None:
    async with gesta.open() as record:
        runs = await filled(record)
        found = {each.name: each for each in await record.sessions()}
        assert list(found) == ["fork", "eve", "dora", "carl", "bob", "anna"]
        stands = {name: (each.stands, each.reason, [w.what for w in each.waiting]) for name, each in found.items()}
        assert stands == {
            "fork": ("ended", "answered", []),
            "eve": ("recorded", None, []),
            "dora": ("ended", "answered", []),
            "carl": ("waiting", None, ["approval", "approval"]),
            "bob": ("ended", "limit", []),
            "anna": ("ended", "answered", []),
        }
        anna, carl = found["anna"], found["carl"]
        assert (anna.title, anna.messages, anna.calls, anna.agents) == ("What is it?", 4, 2, ("desk",))
        assert anna.first_at < anna.last_at < carl.last_at
        assert (carl.agents, len(carl.runs), carl.below, carl.entries) == (("boss", "clerk"), 2, 1, 23)
        assert {each.run for each in carl.waiting} == {runs["below"], carl.runs[1]}
        assert [each.name for each in await record.sessions(1)] == ["fork"]


@pytest.mark.parametrize("at_once", [1, 1000])
async def test_a_fork_that_goes_on_in_a_turn_of_its_base_stands_as_that_turn_does(at_once: int) -> None:
    async with gesta.open() as record:
        outcome = await record.run(desk(gesta.call("look", number=1), "A lamp."), "What is it?", session="s")
        base = await record.find(outcome.run)
        call = next(entry.seq for entry in await record.read(base.run) if entry.kind == "tool-call")
        index = RunIndex(record.store, at_once)

        async def stands(session: str) -> tuple[str, str | None]:
            await index.update()
            found = await listed(index, SessionFilter(), record.now())
            return next((each.stands, each.reason) for each in found.sessions if each.name == session)

        made = await fork(record, base, Fork(at=call, session="one"))
        assert await stands("one") == ("open", None)
        await go_on(record, made, desk(gesta.call("look", number=1), "A lamp."))
        assert await stands("one") == ("ended", "answered")
        assert {each.name: each.reason for each in await record.sessions()} == {"one": "answered", "s": "answered"}
        paying = await record.run(PAY, "Pay.", session="p")
        waits = await fork(record, await record.find(paying.run), Fork(session="two"))
        assert await stands("two") == ("waiting", None)
        await go_on(record, waits, PAY)
        assert await stands("two") == ("waiting", None)
        assert [each.name for each in await record.sessions() if each.waiting] == ["two", "p"]
        await record.approve("two", by="ann")
        await record.resume(waits.run, PAY)
        assert await stands("two") == ("ended", "answered")


async def test_a_history_is_what_was_said_and_with_its_calls_a_valid_list_of_messages() -> None:
    async with gesta.open() as record:
        runs = await filled(record)
        anna = await record.history("anna")
        assert [(each.role, each.text) for each in anna] == [
            ("user", "What is it?"),
            ("assistant", "A lamp."),
            ("user", "Thank you"),
            ("assistant", "You are welcome."),
        ]
        assert (anna[0].user, anna[1].agent, anna[1].at > anna[0].at) == ("anna", "desk", True)
        assert (await record.explain(anna[1].id)).nodes
        told = (await record.history("anna", calls=True))[1]
        assert (told.text, [(each.tool, each.args, each.outcome, each.result) for each in told.calls]) == (
            "I look both up.",
            [
                ("look", {"number": 1}, "ok", "a lamp"),
                ("look", {"number": 2}, "error", "there is no such number"),
            ],
        )
        assert [each.ended for each in await record.history("bob")] == ["limit"]
        assert [(each.role, each.text) for each in await record.history(runs["below"])] == [("user", "Pay 5.")]
        answered = next(each.run for each in await record.store.runs("dora") if each.parent_run is not None)
        assert [each.text for each in await record.history(answered)] == ["Pay 5.", "Paid."]
        chat = await record.chat_messages("carl", calls=True)
        ids = [call["id"] for each in chat for call in each.get("tool_calls", ())]
        assert [each["role"] for each in chat] == ["user", "assistant", "tool"] * 2
        assert [each["tool_call_id"] for each in chat if each["role"] == "tool"] == ids
        assert chat[2]["content"] == "This call has no result yet."
        with pytest.raises(NoRun):
            await record.history("nobody")


async def test_a_picture_that_a_person_sent_stands_in_the_list_of_messages(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    async with gesta.open() as record:
        await record.run(LOOK, ["What is it?", attached(tmp_path / "a.png")], session="s")
        (part,) = (await record.history("s"))[0].parts
        assert (part.type, part.name) == ("image", "a.png")
        words, image = (await record.chat_messages("s"))[0]["content"]
        assert words == {"type": "text", "text": "What is it?"}
        assert image["image_url"]["url"].startswith("data:image/png;base64,")


async def test_errors_of_tools_are_counted_as_errors() -> None:
    async with gesta.open() as record:
        await filled(record)
        by = {name: (each.calls, each.errors, each.unanswered) for name, each in (await record.stats("tool")).items()}
        assert by == {"clerk": (2, 0, 1), "look": (3, 1, 0), "pay": (3, 0, 2), "weather": (1, 1, 0)}
        assert await record.stats("tool", until="2026-01-01") == {}
        assert list(await record.stats("agent", since="2026-01-01")) == ["app", "boss", "clerk", "desk"]
        (session, *_) = await record.sessions()
        alone = await record.stats("agent", session=session.name)
        assert (
            0
            < sum(each.requests for each in alone.values())
            <= sum(each.requests for each in (await record.stats("agent")).values())
        )
        assert await record.stats("agent", session="nobody") == {}
        with pytest.raises(ValueError, match="soon"):
            await record.stats(since="soon")


class Asked(MemoryStore):
    """Counts queries and pages."""

    queries_made = 0

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        self.queries_made += 1
        return await super().sql(query, parameters)

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        self.queries_made += 1
        return await super().read(run, after, until, limit)


async def test_a_list_of_sessions_asks_for_a_hundred_runs_at_a_time() -> None:
    store = Asked()
    record = gesta.address.Record(store, gesta.address.bind)
    hello = desk("Hello.")
    for number in range(250):
        await record.run(hello, f"{number:03}" * 100, session=f"s{number}")
    store.queries_made = 0
    found = await record.sessions()
    assert (len(found), found[0].name, found[0].title) == (250, "s249", ("249" * 100)[:200])
    assert {(each.stands, each.messages) for each in found} == {("ended", 2)}
    assert store.queries_made == 7


async def test_runs_that_lie_below_each_other_are_listed_all_the_same() -> None:
    store = MemoryStore()
    record = gesta.address.Record(store, gesta.address.bind)
    outcome = await record.run(BOSS, "Pay.", session="s")
    (below,) = [each.run for each in outcome.waiting]
    rows = store._opened
    store._opened = [msgspec.structs.replace(row, parent_run=below) if row.run == outcome.run else row for row in rows]
    (one,) = await record.sessions()
    assert (one.name, one.stands, len(one.runs)) == ("s", "waiting", 1)
    receipt = await record.approve(below, by="ann")
    assert receipt.run == below
    assert receipt.root in (below, outcome.run)
