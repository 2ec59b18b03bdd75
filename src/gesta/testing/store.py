"""The tests that every store must pass, as the class `StoreContract`. The name of each test is a sentence.

Subclass it, define how a store is opened, and run the class with pytest. Each test runs on an event loop of its own, so
no plugin is needed.
"""
# ruff: noqa: D102 - the name of a test is its sentence

from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from gesta.entry import GENESIS, utc_text
from gesta.errors import BrokenRecord, LeaseLost, RecordError
from gesta.log.journal import utc_now
from gesta.store import Batch, BlobRow, Lease, Letter, Prune, Store, first_lease
from gesta.testing.leases import LeaseSentences
from gesta.testing.rows import (
    AT,
    append_many,
    collected,
    follow,
    later,
    make_batch,
    make_opening,
    make_row,
    refused,
    telling,
)

WRITING = """DELETE FROM entries
UPDATE entries SET content = '{}'
INSERT INTO blobs(run, name, salt, data) VALUES('r', 'n', x'00', x'00')
DROP TABLE entries
CREATE TABLE more(x)
CREATE TEMP TABLE more(x)
PRAGMA user_version = 7
PRAGMA query_only = OFF
ATTACH ':memory:' AS more
VACUUM INTO '/nowhere/at/all'
BEGIN IMMEDIATE
SELECT 1; DELETE FROM entries""".splitlines()


@collected
class StoreContract(LeaseSentences):
    """The tests that every store must pass. Subclass it and define `open_store`.

    Define `open_again` too if several processes can open the store, and `break_off` if its commits can fail.
    """

    async def test_rows_come_back_as_they_were_written(self, store: Store) -> None:
        lease = await store.lease("r")
        odd = "ünï ' \" \\ \U0001f600 \u200b" + "long " * 40_000
        rows = [
            make_opening("r", "s", "n"),
            msgspec.structs.replace(make_row("r", 2, content=odd), causes='[1,["q",7]]', annotations='{"a":1}'),
            make_row("r", 3, span=2),
        ]
        last, read = await store.append(Batch(lease, 0, rows)), await store.read("r")
        assert [msgspec.structs.replace(row, pos=0) for row in read] == rows
        assert [row.pos for row in read] == [last - 2, last - 1, last]

    async def test_pos_grows_over_all_runs(self, store: Store) -> None:
        one, two = await store.lease("one"), await store.lease("two")
        batches = make_batch(one, 0, 2), make_batch(two, 0, 3), make_batch(one, 2, 1)
        first, second, third = [await store.append(batch) for batch in batches]
        assert (second, third) == (first + 3, first + 4)

    async def test_a_part_of_a_run_can_be_read(self, store: Store) -> None:
        await store.append(make_batch(await store.lease("r"), 0, 9))
        parts = {(4, None, None): [5, 6, 7, 8, 9], (0, 2, None): [1, 2], (2, 5, None): [3, 4, 5], (2, 8, 2): [3, 4]}
        for (after, until, limit), seqs in parts.items():
            assert [row.seq for row in await store.read("r", after, until, limit)] == seqs
        assert [row.seq for row in await store.read("r", 7, 99, 99)] == [8, 9]
        for after, until, limit in ((9, None, None), (0, 0, None), (0, None, 0)):
            assert await store.read("r", after, until, limit) == []
        assert await store.read("nobody") == []

    async def test_the_head_is_the_last_entry(self, store: Store) -> None:
        assert await store.head("r") == (0, GENESIS)
        batch = make_batch(await store.lease("r"), 0, 3)
        await store.append(batch)
        assert await store.head("r") == (3, batch.rows[-1].digest)

    async def test_a_gap_is_refused(self, store: Store) -> None:
        lease = await store.lease("r")
        for rows in ([2], [1, 3], [1, 1], [0]):
            await refused(store.append(Batch(lease, 0, [make_row("r", seq) for seq in rows])), ValueError)
        await refused(store.append(Batch(lease, 0, [make_row("another", 1)])), ValueError)
        assert await store.read("r") == []

    async def test_a_writer_that_does_not_know_the_head_is_refused(self, store: Store) -> None:
        lease = await store.lease("r")
        await store.append(make_batch(lease, 0, 3))
        for head in (0, 2, 4):
            error = await refused(store.append(make_batch(lease, head)), LeaseLost)
            assert f"head {head}" in str(error)
            assert "head 3" in str(error)
        assert (await store.head("r"))[0] == 3

    async def test_a_fork_goes_on_with_the_seq_of_its_base(self, store: Store) -> None:
        lease = await store.lease("fork")
        begin = '{"kind":"begin","opened":{"session":"s","name":"a","record":"r","base":{"run":"b","seq":5}}}'
        await store.append(Batch(lease, 5, [make_row("fork", 6, "begin", begin), make_row("fork", 7)]))
        await store.append(make_batch(lease, 7))
        assert [row.seq for row in await store.read("fork", 6)] == [7, 8]

    async def test_batches_of_several_runs_are_committed_together_or_not_at_all(self, store: Store) -> None:
        lease = await store.lease("held")
        blob = BlobRow("name", b"s" * 16, b"data")
        new = [make_batch(first_lease(run), 0, 2) for run in ("a", "b")]
        new[1] = msgspec.structs.replace(new[1], blobs=[blob])
        last = await store.append(msgspec.structs.replace(make_batch(lease, 0, 3), beside=new))
        read = [row for run in ("held", "a", "b") for row in await store.read(run)]
        assert [row.pos for row in read] == list(range(last - 6, last + 1))
        assert await store.get_blob("b", "name") == blob
        more = [make_batch(first_lease(run), 0) for run in ("c", "a")]
        await refused(store.append(msgspec.structs.replace(more[0], beside=more[1:])), LeaseLost)
        await refused(store.append(msgspec.structs.replace(more[0], beside=more[:1])), ValueError)
        assert await store.head("c") == (0, GENESIS)

    async def test_a_run_that_nobody_ever_held_can_be_begun_without_a_lease(self, store: Store, other: Store) -> None:
        await store.append(make_batch(first_lease("r"), 0, 2))
        await refused(store.append(make_batch(first_lease("r"), 0)), LeaseLost)
        await refused(store.append(make_batch(first_lease("r"), 2)), ValueError)
        lease = await other.lease("r")
        assert (lease.head, lease.lost) == (2, False)
        await other.append(make_batch(lease, 2))
        await other.lease("held")
        await refused(store.append(make_batch(first_lease("held"), 0)), LeaseLost)

    async def test_a_run_that_its_server_lost_is_not_begun_in_the_middle(self, store: Store) -> None:
        lease = await store.lease("r")
        await refused(store.append(Batch(lease, 5, [make_row("r", 6, "begin", '{"kind":"begin"}')])), LeaseLost)
        assert await store.read("r") == []

    async def test_a_refused_batch_leaves_nothing(self, store: Store) -> None:
        lease = await store.lease("r")
        await store.send(Letter("r", "key", "{}", AT))
        (letter,) = await store.inbox("r")
        blob = BlobRow("name", b"s" * 16, b"data")
        await refused(store.append(Batch(lease, 3, [make_row("r", 4)], [blob], [letter.id])), LeaseLost)
        assert await store.read("r") == []
        assert await store.inbox("r") == [letter]
        await refused(store.get_blob("r", "name"), BrokenRecord)

    async def test_runs_are_listed_as_they_were_opened(self, store: Store) -> None:
        assert await store.runs() == []
        for run, session, name in (("b", "s", "one"), ("a", "s", "two"), ("c", "t", "one")):
            lease = await store.lease(run)
            await store.append(Batch(lease, 0, [make_opening(run, session, name, "b" if run == "a" else None)]))
            await store.append(make_batch(lease, 1, 2))
        runs = await store.runs()
        assert [(row.run, row.session, row.name, row.parent_run) for row in runs] == [
            ("b", "s", "one", None),
            ("a", "s", "two", "b"),
            ("c", "t", "one", None),
        ]
        assert {(row.head, row.at, row.last_at, row.record) for row in runs} == {(3, AT, AT, "0" * 32)}
        assert [row.pos for row in runs] == [(await store.read(row.run))[0].pos for row in runs]
        assert [row.run for row in await store.runs("s")] == ["b", "a"]
        assert [row.run for row in await store.runs(name="one")] == ["b", "c"]
        assert [row.run for row in await store.runs("t", "one")] == ["c"]
        assert await store.runs("t", "two") == []

    async def test_blobs_belong_to_their_run(self, store: Store) -> None:
        lease, data = await store.lease("r"), bytes(range(256)) * 1000
        blob = BlobRow("name", b"s" * 16, data)
        await store.append(Batch(lease, 0, [make_row("r", 1)], [blob]))
        await store.append(Batch(lease, 1, [make_row("r", 2)], [blob, BlobRow("empty", b"t" * 16, b"")]))
        assert (await store.get_blob("r", "name")).data == data
        assert (await store.get_blob("r", "empty")).data == b""
        for run, name in (("r", "other"), ("q", "name")):
            await refused(store.get_blob(run, name), BrokenRecord)

    async def test_letters_wait_in_the_order_in_which_they_came(self, store: Store) -> None:
        await store.lease("r")  # a letter can be sent without a lease, and while somebody holds it
        for key in ("c", "a", "b"):
            assert await store.send(Letter("r", key, f'"{key}"', AT))
        letters = await store.inbox("r")
        assert [(one.run, one.key, one.content) for one in letters] == [("r", key, f'"{key}"') for key in "cab"]
        assert [one.id for one in letters] == sorted({one.id for one in letters})
        assert await store.inbox("q") == []

    async def test_a_letter_is_in_the_inbox_or_in_the_log_and_counts_once_ever(self, store: Store) -> None:
        lease, letter = await store.lease("r"), Letter("r", "key", "{}", AT)
        assert await store.send(letter)
        assert not await store.send(letter)
        (waiting,) = await store.inbox("r")
        batch = Batch(lease, 0, [make_row("r", 1)], (), [waiting.id])
        await store.append(batch)
        assert await store.inbox("r") == []
        assert not await store.send(letter)
        assert await store.inbox("r") == []
        assert await store.send(msgspec.structs.replace(letter, run="q"))
        twice = Batch(lease, 1, [make_row("r", 2)], (), [waiting.id])
        await refused(store.append(twice), LeaseLost)
        assert (await store.head("r"))[0] == 1

    async def test_a_run_goes_whole_in_the_commit_that_says_so(self, store: Store) -> None:
        desk, one = await store.lease("desk"), await store.lease("one")
        await store.append(
            Batch(one, 0, [make_opening("one", "s", "n"), make_row("one", 2)], [BlobRow("b", b"s" * 16, b"d")])
        )
        await store.append(make_batch(await store.lease("two"), 0, 2))
        await store.send(Letter("one", "key", "{}", AT))
        (letter,) = await store.inbox("one")
        going = Prune(Lease("one", one.owner, one.epoch, 2, one.digest), [letter.id])
        last = await store.append(Batch(desk, 0, [make_row("desk", 1)], prunes=[going]))
        assert [await store.read("one"), await store.inbox("one"), await store.runs()] == [[], [], []]
        assert await store.head("one") == (0, GENESIS)
        await refused(store.get_blob("one", "b"), BrokenRecord)
        await refused(store.append(Batch(one, 2, [make_row("one", 3)])), LeaseLost)
        assert [row.seq for row in await store.read("two")] == [1, 2]
        assert (await store.sql("SELECT count(*) FROM entries")).rows == [(3,)]
        again = await store.lease("one")
        assert (again.head, again.digest, again.epoch > one.epoch) == (0, GENESIS, True)
        assert await store.send(Letter("one", "key", "{}", AT)), "keys go with the run"
        assert await store.append(make_batch(again, 0)) == last + 1, "a place is given out once"
        await store.shrink()
        assert [row.seq for row in await store.read("two")] == [1, 2]

    async def test_a_run_stays_to_which_something_was_added_meanwhile(self, store: Store) -> None:
        desk, one = await store.lease("desk"), await store.lease("one")
        await store.append(make_batch(one, 0, 2))
        known = Lease("one", one.owner, one.epoch, 2, one.digest)
        await store.send(Letter("one", "key", "{}", AT))
        letters = [letter.id for letter in await store.inbox("one")]
        stranger = Lease("one", "nobody", one.epoch, 2, one.digest)
        for going in (Prune(one, letters), Prune(known), Prune(stranger, letters), Prune(known, [*letters, 99])):
            await refused(store.append(Batch(desk, 0, [make_row("desk", 1)], prunes=[going])), LeaseLost)
        for batch in (
            Batch(desk, 0, (), prunes=[Prune(known, letters)]),
            Batch(one, 2, [make_row("one", 3)], prunes=[Prune(one)]),
        ):
            await refused(store.append(batch), ValueError)
        assert [row.seq for row in await store.read("one")] == [1, 2]
        assert await store.read("desk") == []
        assert len(await store.inbox("one")) == 1
        await store.append(make_batch(one, 2))

    async def test_a_tail_goes_on_after_runs_went(self, store: Store) -> None:
        desk = await store.lease("desk")
        for run in ("one", "two"):
            await store.append(make_batch(await store.lease(run), 0, 3))
        await store.release(Lease("one", desk.owner, 1, 0, b""))
        lease = await store.lease("one")
        last = await store.append(Batch(desk, 0, [make_row("desk", 1)], prunes=[Prune(lease)]))
        with anyio.fail_after(5):
            assert [(row.run, row.seq) for row in await follow(store, 4)] == [
                ("two", 1),
                ("two", 2),
                ("two", 3),
                ("desk", 1),
            ]
            await store.append(make_batch(desk, 1))
            assert [row.pos for row in await follow(store, 1, first=last)] == [last + 1]

    async def test_a_letter_bears_the_time_at_which_the_store_took_it(self, store: Store) -> None:
        before = utc_text(utc_now())
        await store.send(Letter("r", "key", "{}", AT))
        (letter,) = await store.inbox("r")
        assert letter.at != AT
        assert len(letter.at) == len(AT)
        assert letter.at[:10] >= before[:10]

    async def test_letters_of_a_run_that_moves_here_keep_their_times_and_their_order(self, store: Store) -> None:
        lease = await store.lease("r")
        await store.append(make_batch(lease, 0))
        assert await store.send(Letter("r", "known", "1"))
        mail = [Letter("r", key, f'"{key}"', AT, id=7) for key in ("late", "known", "early")]
        await store.append(Batch(lease, 1, (), mail=mail))
        letters = await store.inbox("r")
        assert [(one.key, one.content) for one in letters] == [("known", "1"), ("late", '"late"'), ("early", '"early"')]
        assert [one.at for one in letters[1:]] == [AT, AT]
        assert [one.id for one in letters] == sorted({one.id for one in letters})
        await refused(store.append(Batch(lease, 0, (), mail=[Letter("r", "stale", "2", AT)])), LeaseLost)
        assert not await store.send(Letter("r", "late", "3"))
        assert await store.inbox("r") == letters

    async def test_a_batch_that_must_not_be_forgotten_is_taken_as_any_other(self, store: Store) -> None:
        lease = await store.lease("r")
        batch = msgspec.structs.replace(make_batch(lease, 0), synced=True)
        await store.append(batch)
        assert await store.head("r") == (1, batch.rows[-1].digest)

    async def test_a_record_is_the_same_when_it_is_opened_again(self, store: Store, other: Store) -> None:
        await store.append(make_batch(await store.lease("r"), 0, 2))
        assert other.info == store.info
        assert await other.read("r") == await store.read("r")
        assert len(bytes.fromhex(store.info.id)) == 16

    async def test_the_last_place_is_that_of_the_last_entry_of_any_run(self, store: Store, other: Store) -> None:
        assert await store.last() == 0
        first = await store.append(make_batch(await store.lease("r"), 0, 3))
        assert await store.last() == await other.last() == first
        assert await store.append(make_batch(await store.lease("s"), 0)) == await store.last() == first + 1

    async def test_a_tail_gives_what_is_there_and_then_what_comes(self, store: Store) -> None:
        lease = await store.lease("r")
        await store.append(make_batch(lease, 0, 3))
        with anyio.fail_after(5):
            seen = [row.seq for row in await follow(store, 2, first=(await store.read("r"))[0].pos)]
            assert seen == [2, 3]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(later, lambda: store.append(make_batch(lease, 3)))
                assert [row.seq for row in await follow(store, 4)] == [1, 2, 3, 4]

    async def test_a_tail_gives_what_others_write_in_the_order_of_pos(self, store: Store, other: Store) -> None:
        async with anyio.create_task_group() as tasks:
            for one, run in ((store, "a"), (other, "b")):
                tasks.start_soon(append_many, one, run, 5)
            with anyio.fail_after(5):
                rows = await follow(store, 10)
        assert [row.pos for row in rows] == sorted({row.pos for row in rows})
        assert sorted((row.run, row.seq) for row in rows) == [(run, seq) for run in "ab" for seq in range(1, 6)]

    async def test_a_tail_ends_when_the_store_is_closed(self, store: Store) -> None:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(later, store.close)
                assert [rows async for rows in store.tail()] == []

    async def test_sql_reads(self, store: Store) -> None:
        lease = await store.lease("r")
        await store.append(Batch(lease, 0, [make_opening("r", "s", "n"), make_row("r", 2)]))
        for count in (2, 3):  # the next query finds the new rows
            found = await store.sql("SELECT run, max(seq) AS last FROM entries WHERE run = ? GROUP BY run", ["r"])
            assert (found.columns, found.rows) == (("run", "last"), [("r", count)])
            await store.append(make_batch(lease, count))
        assert (await store.sql("SELECT session, head FROM runs")).rows == [("s", 4)]
        assert (await store.sql("SELECT seq, kind FROM entries WHERE seq > 99")).columns == ("seq", "kind")
        assert (await store.sql("SELECT id FROM record")).rows == [(store.info.id,)]

    async def test_the_inboxes_of_several_runs_are_read_by_one_query(self, store: Store) -> None:
        for run in ("r", "q", "other"):
            await store.send(Letter(run, "key", "{}", AT))
        query = "SELECT run, key, content, at, id FROM inbox WHERE run IN (?, ?) ORDER BY id"
        found = [Letter(*row) for row in (await store.sql(query, ["q", "r"])).rows]
        assert found == [*await store.inbox("r"), *await store.inbox("q")]

    async def test_sql_never_writes(self, store: Store) -> None:
        await store.append(make_batch(await store.lease("r"), 0, 2))
        for query in (*WRITING, "SELECT nothing FROM nowhere", "no sql at all", "SELECT ?"):
            error = await refused(store.sql(query), RecordError)
            assert query in str(error)
        assert (await store.sql("SELECT count(*) FROM entries")).rows == [(2,)]

    async def test_fifty_runs_append_at_once(self, store: Store) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(append_many, store, f"r{number}", 4)
        places = set()
        for number in range(50):
            rows = await store.read(f"r{number}")
            assert [row.seq for row in rows] == [1, 2, 3, 4]
            places |= {row.pos for row in rows}
        assert len(places) == 200

    async def test_a_cancelled_append_returns_or_never_happened(self, store: Store) -> None:
        lease, head = await store.lease("r"), 0
        for wait_s in (0, 0, 0.0001, 0.0003, 0.001, 0.003):
            known: list[Any] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(telling, store.append(make_batch(lease, head, 3)), known)
                await anyio.sleep(wait_s)
                tasks.cancel_scope.cancel()
            head += 3 * len(known)
            assert (await store.head("r"))[0] == head
        await store.append(make_batch(lease, head))

    async def test_a_refused_batch_does_not_harm_those_beside_it(self, store: Store) -> None:
        leases = [await store.lease(f"r{number}") for number in range(10)]
        await store.append(make_batch(leases[3], 0))
        outcomes: list[Any] = []
        async with anyio.create_task_group() as tasks:
            for lease in leases:
                tasks.start_soon(telling, store.append(make_batch(lease, 0)), outcomes)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["LeaseLost"] + ["int"] * 9

    async def test_closing_twice_does_nothing_and_a_closed_store_refuses(self, store: Store) -> None:
        lease = await store.lease("r")
        await store.close()
        await store.close()
        await refused(store.append(make_batch(lease, 0)), RecordError)
        await refused(store.read("r"), RecordError)
        await refused(store.lease("r"), RecordError)
