"""Whole runs go, in one commit, with a tombstone; what is referred to, held, open or new stays."""

import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gesta
from gesta.address import Record, bind, inline_store
from gesta.bridges.pushing import push
from gesta.entry import run_id
from gesta.errors import BrokenRecord, RunMirrored
from gesta.integrity.tombstones import Hold, pruned, stretches, unexplained
from gesta.kinds import KeyValueContent, SignalContent
from gesta.log.journal import Clock
from gesta.store import Batch, Letter, Store
from gesta.stores.memory import MemoryStore
from gesta.stores.pruning import Choice, Plan, Pruner, hold, plan, prune
from gesta.stores.words import Wanted, find
from gesta.testing import make_batch, make_row

pytestmark = [pytest.mark.anyio, pytest.mark.sample(2, over="parent")]
AT = "2026-01-02T03:04:05.000006Z"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "postgres":
        pytest.importorskip("psycopg")
    address = request.getfixturevalue("emptied") if request.param == "postgres" else str(tmp_path / "r.gesta")
    opened = MemoryStore() if request.param == "memory" else inline_store(address)
    yield opened
    await opened.close()


async def recorded(store: Store, run: str, session: str = "s", count: int = 3, **opened: Any) -> None:
    """A run of so many entries, one of them with a large value beside."""
    record = Record(store, bind)
    lease = await store.lease(run)
    content = {"kind": "begin", "name": run, "opened": {"session": session, "name": run, "record": "0" * 32, **opened}}
    first = make_row(run, 1, "begin", msgspec.json.encode(content).decode())
    await store.append(Batch(lease, 0, [first]))
    await store.append(make_batch(lease, 1, count - 1))
    await store.release(lease)
    assert len(await record.store.read(run)) == count


async def told(store: Store, run: str, causes: str) -> None:
    """One more entry, made from others."""
    lease = await store.lease(run)
    row = msgspec.structs.replace(make_row(run, lease.head + 1), causes=causes)
    await store.append(Batch(lease, lease.head, [row]))
    await store.release(lease)


def going(found: Plan) -> list[list[str]]:
    return [sorted(row.run for row in group) for group in found.groups]


def why(found: Plan) -> dict[str, str]:
    return {each.run.run: each.why for each in found.staying}


async def left(store: Store) -> set[str]:
    return {row.run for row in await store.runs() if row.session != "gesta"}


async def test_a_pruned_run_leaves_a_tombstone_that_says_what_it_was(store: Store):
    for run in ("a", "b", "c"):
        await recorded(store, run)
    head = await store.head("b")
    gone = await prune(store, await plan(store, Choice(runs=["b"])), Pruner(by="ann", reason="old"))
    assert (gone.runs, gone.entries, gone.staying) == (1, 3, [])
    assert await left(store) == {"a", "c"}
    (said,) = await pruned(store)
    (stone,) = said.runs
    assert (said.by, said.reason, said.record) == ("ann", "old", store.info.id)
    assert said.places == [(4, 6)]
    assert (stone.run, stone.session, stone.name, stone.head, stone.entries) == ("b", None, None, 3, 3)
    assert stone.digest == head[1].hex()
    assert await unexplained(store) == []


async def test_a_run_that_was_removed_by_hand_is_told_from_one_that_was_pruned(tmp_path: Path):
    path = tmp_path / "r.gesta"
    agent = gesta.Agent("desk", gesta.scripted("Hello."))
    async with gesta.open(str(path)) as record:
        for session in ("a", "b", "c"):
            await record.run(agent, "Hi", session=session)
        (row,) = await record.store.runs("b")
        await prune(record.store, await plan(record.store, Choice(runs=[row.run])), Pruner(by="ann"))
        assert await record.verify() == []
        (other,) = await record.store.runs("c")
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM entries WHERE run = ?", (other.run,))
        db.commit()
    async with gesta.open(str(path), readonly=True) as record:
        (flaw,) = await record.verify()
    assert (flaw.run, flaw.seq) == ("", 0)
    assert flaw.what.startswith("entries are missing, and no tombstone says that they were pruned")
    assert flaw.what.endswith("(places 15 to 21)")


async def test_a_tombstone_that_is_taken_away_is_missed_too(tmp_path: Path):
    path = tmp_path / "r.gesta"
    store = inline_store(str(path))
    for run in ("a", "b"):
        await recorded(store, run)
    await prune(store, await plan(store, Choice(runs=["a"])), Pruner(by="ann"))
    await recorded(store, "c")
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM entries WHERE run NOT IN ('a', 'b', 'c')")
        db.commit()
    store = inline_store(str(path), readonly=True)
    assert await unexplained(store) == [(1, 3), (7, 9)]
    await store.close()


async def test_parents_and_children_go_together_or_stay_together(store: Store):
    await recorded(store, "parent")
    await recorded(store, "child", parent_run="parent")
    await recorded(store, "grandchild", parent_run="child")
    await recorded(store, "other", session="t")
    found = await plan(store, Choice(runs=["child"]))
    assert going(found) == []
    assert why(found) == {
        "child": "run parent refers to it and stays",
        "grandchild": "run child refers to it and stays",
    }
    found = await plan(store, Choice(runs=["parent"]))
    assert going(found) == [["child", "grandchild", "parent"]]
    await prune(store, found, Pruner(by="ann"))
    assert await left(store) == {"other"}
    (said,) = await pruned(store)
    assert {stone.run for stone in said.runs} == {"parent", "child", "grandchild"}


async def test_a_base_stays_while_a_fork_of_it_does_and_a_fork_may_go_alone(store: Store):
    await recorded(store, "base")
    await recorded(store, "fork", base={"run": "base", "seq": 2, "digest": "0"})
    assert why(await plan(store, Choice(runs=["base"]))) == {"base": "run fork refers to it and stays"}
    assert going(await plan(store, Choice(runs=["fork"]))) == [["fork"]]
    assert going(await plan(store, Choice(session="s"))) == [["base", "fork"]]


async def test_all_forks_that_keep_a_base_are_named_or_some_and_how_many_more(store: Store):
    await recorded(store, "base")

    async def forked(*runs: str) -> None:
        for run in runs:
            await recorded(store, run, session="f", base={"run": "base", "seq": 2, "digest": "0"})

    await forked("f2", "f1")
    assert why(await plan(store, Choice(session="s"))) == {"base": "runs f1 and f2 refer to it and stay"}
    found = await plan(store, Choice())
    await forked("f3", "f4", "f5")
    words = "runs f3, f4 and f5, which are new, refer to it"
    gone = await prune(store, found, Pruner(by="ann"))
    assert {each.run.run: each.why for each in gone.staying} == dict.fromkeys(("base", "f1", "f2"), words)
    five = {"base": "runs f1, f2, f3, f4 and f5 refer to it and stay"}
    assert why(await plan(store, Choice(session="s"))) == five
    await forked("f6", "f7")
    more = {"base": "runs f1, f2, f3, f4, f5 and 2 more refer to it and stay"}
    assert why(await plan(store, Choice(session="s"))) == more


async def test_what_stays_only_for_a_run_is_no_reason_for_it_to_stay(store: Store):
    await recorded(store, "base")
    await recorded(store, "parent", session="f")
    await recorded(store, "fork", parent_run="parent", base={"run": "base", "seq": 2, "digest": "0"})
    await recorded(store, "below", parent_run="base")
    await recorded(store, "other", session="f", base={"run": "base", "seq": 2, "digest": "0"})
    assert why(await plan(store, Choice(session="s"))) == {
        "base": "runs fork and other refer to it and stay",
        "fork": "run parent refers to it and stays",
        "below": "run base refers to it and stays",
    }


async def test_a_base_stays_of_which_somebody_made_a_fork_meanwhile(store: Store):
    await recorded(store, "base")
    await recorded(store, "source")
    found = await plan(store, Choice(session="s"))
    await recorded(store, "fork", base={"run": "base", "seq": 2, "digest": "0"})
    await recorded(store, "user")
    await told(store, "user", '[["source",2]]')
    gone = await prune(store, found, Pruner(by="ann"))
    assert gone.runs == 0
    assert {each.run.run: each.why for each in gone.staying} == {
        "base": "run fork, which is new, refers to it",
        "source": "run user, which is new, refers to it",
    }
    assert await left(store) == {"base", "source", "fork", "user"}


async def test_what_an_entry_elsewhere_was_made_from_stays(store: Store):
    for run in ("source", "user"):
        await recorded(store, run)
    await told(store, "user", '[1,["source",2]]')
    assert why(await plan(store, Choice(runs=["source"]))) == {"source": "run user refers to it and stays"}
    assert going(await plan(store, Choice(runs=["user"]))) == [["user"]]


async def test_old_runs_go_and_a_letter_counts_as_something_that_came(store: Store):
    for run in ("a", "b"):
        await recorded(store, run)
    await store.send(Letter("b", "key", "{}"))  # it comes now, as the store's clock says
    assert going(await plan(store, Choice(before="2026-01-01"))) == []
    assert going(await plan(store, Choice(before="2026-02-01"))) == [["a"]]
    found = await plan(store, Choice(before="9999-01-01"))
    assert going(found) == [["a"], ["b"]]
    await prune(store, found, Pruner(by="ann"))
    (said,) = await pruned(store)
    assert [stone.letters for stone in said.runs] == [0, 1]


async def test_the_newest_stay_with_all_that_they_called(store: Store):
    for run in ("a", "b", "c"):
        await recorded(store, run)
    await recorded(store, "below", parent_run="c")
    found = await plan(store, Choice(keep=1))
    assert going(found) == [["a"], ["b"]]
    assert found.kept == 2
    for keep in (3, 4, 5, 9):
        assert going(await plan(store, Choice(keep=keep))) == []


async def test_a_held_run_stays_until_it_is_let_go(store: Store):
    await recorded(store, "a")
    await hold(store, Hold(run="a", by="ann", reason="a complaint"))
    assert why(await plan(store, Choice(session="s"))) == {"a": "ann holds it: a complaint"}
    await hold(store, Hold(run="a", held=False, by="bob"))
    assert going(await plan(store, Choice(session="s"))) == [["a"]]


async def test_of_what_two_records_say_of_a_run_the_later_word_holds_it_or_lets_it_go(store: Store):
    def at(minute: int) -> Clock:
        return lambda: datetime(2026, 1, 2, 3, minute, tzinfo=UTC)

    other, choice = MemoryStore(), Choice(session="s")
    for run in ("a", "b"):
        await recorded(other, run)
    await hold(store, Hold(run="c", by="bob"), at(1))  # so the holds of the other record come after its own
    await hold(other, Hold(run="a", by="ann"), at(2))
    await push(other, store)
    assert why(await plan(store, choice)) == {"a": "ann holds it"}
    await hold(store, Hold(run="a", held=False, by="bob"), at(3))
    await hold(other, Hold(run="b", held=False, by="ann"), at(4))
    await hold(store, Hold(run="b", by="bob"), at(5))
    await push(other, store)
    assert why(await plan(store, choice)) == {"b": "bob holds it"}


async def test_an_open_turn_stays(tmp_path: Path):
    @gesta.tool(effect="once", approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    agent = gesta.Agent("desk", gesta.scripted(gesta.call("pay", euros=5), "Done."), tools=[pay])
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        await record.run(agent, "Pay", session="s")
        found = await plan(record.store, Choice(session="s"))
        assert [each.why for each in found.staying] == ["a turn of it is open: end it first with `gesta cancel`"]


async def test_a_fork_in_which_a_turn_of_its_base_is_still_open_stays(store: Store):
    async def taken(run: str, head: int, *contents: str, span: int = 1) -> None:
        lease = await store.lease(run)
        kinds = [msgspec.json.decode(each)["kind"] for each in contents]
        rows = [make_row(run, head + 1 + n, kinds[n], each, span) for n, each in enumerate(contents)]
        await store.append(Batch(lease, head, rows))
        await store.release(lease)

    opened = '{"session":"s","name":"n","record":"0"'
    end = '{"kind":"end"}'
    await taken("base", 0, f'{{"kind":"begin","role":"turn","opened":{opened}}}}}', '{"kind":"user","value":"x"}', end)
    for run in ("open", "ended"):
        base = '"base":{"run":"base","seq":2,"digest":"0"}'
        await taken(run, 2, f'{{"kind":"begin","role":"fork","opened":{opened},{base}}}}}')
    await taken("ended", 3, end)
    found = await plan(store, Choice(session="s"))
    assert why(found) == {
        "open": "a turn of it is open: end it first with `gesta cancel`",
        "base": "run open refers to it and stays",
    }
    assert going(found) == [["ended"]]


async def test_a_run_that_is_being_written_or_was_written_meanwhile_stays_with_what_belongs_to_it(store: Store):
    for run in ("held", "grown", "free"):
        await recorded(store, run)
    await recorded(store, "child", parent_run="held")
    await recorded(store, "sent")
    found = await plan(store, Choice(session="s"))
    await store.lease("held")
    await told(store, "grown", "[]")
    await store.send(Letter("sent", "key", "{}", AT))
    gone = await prune(store, found, Pruner(by="ann"))
    assert gone.runs == 1
    assert await left(store) == {"held", "child", "grown", "sent"}
    words = {each.run.run: each.why for each in gone.staying}
    assert words["held"].startswith("Run 'held' is being written by process")
    assert words["child"] == "run held belongs to it and stays"
    assert words["grown"] == words["sent"] == "something was added to it meanwhile"


async def test_a_record_whose_index_and_entries_differ_is_not_pruned(tmp_path: Path):
    path = tmp_path / "r.gesta"
    opened = inline_store(str(path))
    await recorded(opened, "aaaaaaaa", count=9)
    await opened.close()
    at = path.read_bytes().index(b"aaaaaaaa\x07\x07")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"aaaaAaaa")
    opened = inline_store(str(path))
    with pytest.raises(BrokenRecord, match="entry 7 of one of the runs names 'aaaaAaaa' as its run"):
        await prune(opened, await plan(opened, Choice(runs=["aaaaaaaa"])), Pruner(by="ann"))
    assert "aaaaaaaa" in await left(opened)
    await opened.close()


async def test_the_run_of_the_record_itself_is_never_pruned(store: Store):
    await recorded(store, "a")
    await hold(store, Hold(run="a", by="ann"))
    own = run_id(store.info.id, "gesta", "storage")
    assert going(await plan(store, Choice(runs=[own]))) == []
    assert going(await plan(store, Choice(session="gesta"))) == []


async def test_a_pruned_conversation_may_begin_anew(tmp_path: Path):
    agent = gesta.Agent("desk", gesta.scripted("Hello."))
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        first = await record.run(agent, "Hi", session="s", key="m0")
        await prune(record.store, await plan(record.store, Choice(session="s")), Pruner(by="ann"))
        assert [row.session for row in await record.store.runs()] == ["gesta"]
        again = await record.run(agent, "Hi", session="s", key="m0")
        assert (again.run, again.turn) == (first.run, 1)
        assert await record.verify() == []
        assert (await record.find("last")).run == first.run


async def test_the_file_becomes_smaller_and_nothing_of_what_went_is_in_it(tmp_path: Path):
    path = tmp_path / "r.gesta"
    store = inline_store(str(path))
    record = Record(store, bind)
    for name in ("going", "staying"):
        async with record.span(name, session=name) as span:
            for _ in range(200):
                span.log(KeyValueContent(key="k", value=f"the secret of {name} " * 50))
    full = path.stat().st_size + path.with_name("r.gesta-wal").stat().st_size
    await prune(store, await plan(store, Choice(session="going")), Pruner(by="ann"))
    assert await store.shrink() >= 0
    await store.close()
    assert path.stat().st_size < 0.7 * full
    assert b"the secret of staying" in path.read_bytes()
    assert b"the secret of going" not in path.read_bytes()


async def test_an_index_of_words_forgets_what_was_pruned(tmp_path: Path):
    agent = gesta.Agent("desk", gesta.scripted("Hello."))
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        for session in ("a", "b"):
            await record.run(agent, "a lamp", session=session)
        assert {hit.session for hit in await find(record.store, Wanted(words="lamp"), keep_from=0)} == {"a", "b"}
        await record.run(agent, "a lamp", session="c")  # not looked through yet
        for session in ("a", "c"):
            await prune(record.store, await plan(record.store, Choice(session=session)), Pruner(by="ann"))
        assert {hit.session for hit in await find(record.store, Wanted(words="lamp"), keep_from=0)} == {"b"}
        await record.store.shrink()
        assert {hit.session for hit in await find(record.store, Wanted(words="lamp"), keep_from=0)} == {"b"}
        assert await record.verify() == []


async def test_many_runs_go_in_few_commits_and_a_broken_off_prune_is_whole(store: Store):
    for number in range(12):
        await recorded(store, f"r{number:02}")
    seen: list[int] = []

    def enough(runs: int) -> None:
        seen.append(runs)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await prune(store, await plan(store, Choice(session="s")), Pruner(by="ann", together=10), enough)
    assert seen == [3, 6]
    assert len(await left(store)) == 6
    assert await unexplained(store) == []
    await prune(store, await plan(store, Choice(session="s")), Pruner(by="ann"))
    assert await left(store) == set()
    assert await unexplained(store) == []


async def test_a_copy_of_a_record_knows_what_was_pruned_there(tmp_path: Path):
    from gesta.bridges.pushing import push

    source, target = inline_store(str(tmp_path / "a.gesta")), inline_store(str(tmp_path / "b.gesta"))
    for run in ("a", "b"):
        await recorded(source, run)
    await prune(source, await plan(source, Choice(runs=["a"])), Pruner(by="ann"))
    await push(source, target)
    assert [stone.run for each in await pruned(target) for stone in each.runs] == ["a"]
    assert await unexplained(target) == []
    await prune(target, await plan(target, Choice(runs=["b"])), Pruner(by="ann"))
    assert len(await target.runs("gesta")) == 2
    assert await unexplained(target) == []
    for store in (source, target):
        await store.close()


def test_places_are_written_as_stretches():
    assert stretches([1, 2, 3, 5, 8, 9]) == [(1, 3), (5, 5), (8, 9)]
    assert stretches([]) == []


async def test_a_payment_after_a_prune_has_a_key_of_its_own(store: Store) -> None:
    keys = list[str]()

    @gesta.tool(effect="idempotent")
    async def pay(context: gesta.Context) -> str:
        keys.append(context.key)
        return "paid"

    record, desk = Record(store, bind), gesta.Agent("desk", gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    first = await record.run(desk, "Pay.", session="anna", key="m1")
    gone = await prune(store, await plan(store, Choice(runs=[first.run])), Pruner(by="ann"))
    assert gone.runs == 1
    again = await record.run(desk, "Pay.", session="anna", key="m1")
    assert (first.answer, again.answer) == ("Done.", "Done.")
    assert len(set(keys)) == 2
    assert await record.verify() == []


async def test_letters_go_with_their_run_and_are_not_taken_in_by_the_one_that_begins_anew(store: Store) -> None:
    record, desk = Record(store, bind), gesta.Agent("desk", gesta.scripted("Hello.", "And hello again."))
    first = await record.run(desk, "Hi.", session="anna")
    await record.send(first.run, SignalContent(name="cancel", by="bob"), key="c1")
    gone = await prune(store, await plan(store, Choice(session="anna")), Pruner(by="ann"))
    assert gone.runs == 1
    (said,) = await pruned(store)
    assert said.runs[0].letters == 1
    assert await store.inbox(first.run) == []
    assert (await record.run(desk, "Hi.", session="anna")).answer == "Hello."


async def test_a_mirror_is_pruned_like_any_run_and_comes_again_as_a_mirror(store: Store) -> None:
    source = MemoryStore()
    await recorded(source, "r")
    await push(source, store)
    gone = await prune(store, await plan(store, Choice(runs=["r"])), Pruner(by="ann"))
    assert (gone.runs, gone.staying) == (1, [])
    assert await left(store) == set()
    assert (await push(source, store)).runs == 1
    with pytest.raises(RunMirrored):
        await store.lease("r")


async def test_a_run_in_which_a_call_is_at_work_stays(store: Store) -> None:
    record, found = Record(store, bind), list[Any]()

    @gesta.tool(effect="once")
    async def pay(context: gesta.Context) -> str:
        what = await plan(store, Choice(runs=[context.run]))
        forced = Plan([[row for row in await store.runs() if row.run == context.run]], [], {})
        found.extend([why(what)[context.run], (await prune(store, forced, Pruner(by="ann"))).staying[0].why])
        return "paid"

    desk = gesta.Agent("desk", gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    assert (await record.run(desk, "Pay.", session="anna")).answer == "Done."
    assert found[0] == "a turn of it is open: end it first with `gesta cancel`"
    assert "is being written by" in found[1]


async def test_what_no_pruning_explains_is_found_in_time_that_grows_with_the_entries(tmp_path: Path) -> None:
    """Of two runs that wrote in turns, each entry of the pruned one is a gap of its own."""
    calls, path = list[int](), tmp_path / "r.gesta"
    async with gesta.open(path) as record:
        for run in ("a", "b"):
            await recorded(record.store, run, count=2)
        leases = [await record.store.lease(run) for run in ("a", "b")]
        for seq in range(2, 400):
            for lease in leases:
                await record.store.append(make_batch(lease, seq))
        for lease in leases:
            await record.store.release(lease)
        await prune(record.store, await plan(record.store, Choice(runs=["a"])), Pruner(by="p"))
        sys.setprofile(lambda _frame, event, _value: calls.append(1) if event == "call" else None)
        try:
            assert await unexplained(record.store) == []
        finally:
            sys.setprofile(None)
    assert len(calls) < 4000  # for each of 400 gaps and each of 400 places, it was 160,000
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM entries WHERE pos IN (8, 10, 12, 402, 800)")
    async with gesta.open(path, readonly=True) as record:
        assert await unexplained(record.store) == [(8, 8), (10, 10), (12, 12), (402, 402), (800, 800)]
