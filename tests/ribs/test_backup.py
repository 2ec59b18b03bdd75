"""A backup is the record as it was at one moment, also while other processes write it."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from tests import programs

import gesta
from gesta.address import drive, inline_store
from gesta.errors import BadAddress, BrokenRecord, NoRecord, SetAside, WriteFailed
from gesta.hooks import Hooks
from gesta.kinds import AnswerContent, ApprovalContent
from gesta.stores.sqlite_backup import backup
from gesta.testing import make_batch

pytestmark = pytest.mark.anyio
SOURCE = str(Path(next(iter(gesta.__path__))).parent)
WRITING = """
import sys
from gesta.address import drive, inline_store
from gesta.store import Batch
from gesta.testing import make_batch, make_opening
store = inline_store(sys.argv[1], durability="normal")
lease = drive(store.lease("r"))
drive(store.append(Batch(lease, 0, [make_opening("r", "s", "n")])))
for head in range(1, 10**6, 3):
    drive(store.append(make_batch(lease, head, 3)))
    print(head + 3, flush=True)
"""


def filled(path: Path, count: int = 9) -> None:
    store = inline_store(str(path))
    lease = drive(store.lease("r"))
    drive(store.append(make_batch(lease, 0, count)))
    drive(store.close())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_copy_made_while_another_process_writes_is_whole_and_nobody_waits(tmp_path: Path):
    path = tmp_path / "a.gesta"
    with programs.Program(["-c", WRITING, str(path)]) as writer:
        for number in range(3):
            for _ in range(300):
                before = int(writer.stdout.readline())
            backup(str(path), str(tmp_path / f"copy{number}.gesta"))
            store = inline_store(str(tmp_path / f"copy{number}.gesta"), readonly=True)
            rows = drive(store.read("r"))
            assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
            assert len(rows) >= before
            assert len(rows) % 3 == 1, "no commit is half in it"
            assert drive(store.damage()) == []
            drive(store.close())
        writer.kill()
    assert [name for name in names(tmp_path) if name.startswith("copy")] == [f"copy{n}.gesta" for n in range(3)]


def test_the_copy_of_a_record_that_is_open_here_can_be_gone_on_with(tmp_path: Path):
    store = inline_store(str(tmp_path / "a.gesta"))
    lease = drive(store.lease("r"))
    drive(store.append(make_batch(lease, 0, 3)))
    size = backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"))
    assert size == (tmp_path / "b.gesta").stat().st_size
    drive(store.append(make_batch(lease, 3)))
    copy = inline_store(str(tmp_path / "b.gesta"))
    assert copy.info.id == store.info.id
    again = drive(copy.lease("r"))
    assert again.head == 3, "whoever holds the run in the record does not hold it in the copy"
    drive(copy.append(make_batch(again, 3)))
    drive(copy.close())
    drive(store.close())
    assert names(tmp_path) == ["a.gesta", "b.gesta"]


def test_a_copy_of_a_record_that_nobody_writes_leaves_nothing_beside_it(tmp_path: Path):
    filled(tmp_path / "a.gesta")
    seen: list[tuple[int, int]] = []
    backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"), lambda done, of: seen.append((done, of)))
    assert names(tmp_path) == ["a.gesta", "b.gesta"]
    assert seen[-1][0] == seen[-1][1] > 0
    assert apsw.Connection(str(tmp_path / "b.gesta")).pragma("integrity_check") == "ok"


def test_nothing_is_ever_overwritten(tmp_path: Path):
    filled(tmp_path / "a.gesta")
    (tmp_path / "b.gesta").write_text("mine")
    with pytest.raises(WriteFailed, match="something lies there already; name a new file"):
        backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"))
    assert (tmp_path / "b.gesta").read_text() == "mine"
    with pytest.raises(WriteFailed, match="something lies there already"):
        backup(str(tmp_path / "a.gesta"), str(tmp_path / "a.gesta"))
    assert names(tmp_path) == ["a.gesta", "b.gesta"]


def test_of_two_backups_to_one_name_one_is_made_and_the_other_is_refused(tmp_path: Path):
    filled(tmp_path / "a.gesta")
    (tmp_path / "b.gesta.part").write_text("mine")
    source, target = str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta")

    def meanwhile(*_: Any) -> None:
        if not Path(target).exists():
            backup(source, target)

    with pytest.raises(WriteFailed, match="something lies there already; name a new file"):
        backup(source, target, meanwhile)
    assert names(tmp_path) == ["a.gesta", "b.gesta", "b.gesta.part"]
    assert (tmp_path / "b.gesta.part").read_text() == "mine"
    copy = apsw.Connection(target)
    assert copy.execute("SELECT mark FROM record").fetchall() == [(9,)]
    copy.close()


def test_what_is_no_record_is_not_copied(tmp_path: Path):
    (tmp_path / "x.gesta").write_text("no record" * 1000)
    for name, error in (("x.gesta", BrokenRecord), ("none.gesta", NoRecord)):
        with pytest.raises(error):
            backup(str(tmp_path / name), str(tmp_path / "b.gesta"))
    with pytest.raises(WriteFailed, match="there is no folder"):
        backup(str(tmp_path / "x.gesta"), str(tmp_path / "no" / "b.gesta"))
    assert names(tmp_path) == ["x.gesta"]


def test_a_name_that_is_no_utf_8_is_the_name_of_no_record(tmp_path: Path):
    address = str(tmp_path / "record.gesta")
    drive(inline_store(address, durability="normal").close())
    odd = os.fsdecode(b"copy\xff.gesta")
    with pytest.raises(BadAddress, match="is not a name of a file"):
        backup(address, str(tmp_path / odd))
    with pytest.raises(BadAddress, match="is not a name of a file"):
        inline_store(str(tmp_path / odd), durability="normal")
    assert names(tmp_path) == ["record.gesta"]


def test_a_backup_that_is_broken_off_leaves_no_file_that_looks_like_a_record(tmp_path: Path):
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    filled(tmp_path / "a.gesta")
    with pytest.raises(KeyboardInterrupt):
        backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"), stop)
    assert names(tmp_path) == ["a.gesta"]


def test_a_copy_is_not_mixed_with_the_log_of_the_file_in_whose_place_it_was_put(tmp_path: Path):
    path, copy = tmp_path / "a.gesta", tmp_path / "b.gesta"
    with programs.Program(["-c", WRITING, str(path)]) as writer:
        writer.stdout.readline()
        backup(str(path), str(copy))
        reader = inline_store(str(copy), readonly=True)
        rows = drive(reader.read("r"))
        drive(reader.close())
        writer.stdout.readline()
        writer.kill()
    copy.rename(path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    found = (
        r"it is a copy, and the log '.*/a\.gesta-wal' is of the file in whose place it was put; .*`rm -f .*` goes on"
    )
    for tried in (
        lambda: inline_store(str(path)),
        lambda: inline_store(str(path), readonly=True),
        lambda: backup(str(path), str(tmp_path / "c.gesta")),
    ):
        with pytest.raises(BrokenRecord, match=found):
            tried()
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    for each in (tmp_path / "a.gesta-wal", tmp_path / "a.gesta-shm"):
        each.unlink(missing_ok=True)
    store = inline_store(str(path))
    assert drive(store.read("r")) == rows
    drive(store.close())


@gesta.tool(effect="once", approval=True)
async def pay(context: gesta.Context) -> str:
    """Pay."""
    FIRED.append(context.key)
    return "paid"


@gesta.tool(effect="pure", approval=True)
async def look() -> str:
    """Look."""
    return "seen"


FIRED: list[str] = []
"""Idempotency keys of payments, in order."""


def agent(*tools: gesta.Tool) -> gesta.Agent:
    calls = [gesta.call(tool.name) for tool in tools]
    return gesta.Agent(
        "desk", model=gesta.scripted(*[each for call in calls for each in (call, "Done.")] * 3), tools=tools
    )


async def approve(record: Any, run: str) -> None:
    for call in (await record.state(run)).calls.values():
        content = ApprovalContent(of=call.asked, verdict="approved", by="ann")
        await record.send(run, content, key=f"approval-{call.asked}")


async def test_a_restored_copy_makes_no_call_with_effects_in_a_turn_that_was_open_until_it_is_adopted(tmp_path: Path):
    FIRED.clear()
    here, there = str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta")
    async with gesta.open(here) as record:
        first = await record.run(agent(pay), "Pay.", session="s", key="m1")
        pos = (await record.read(first.run))[-1].pos
        assert record.info.mark is None
        backup(here, there)
        await approve(record, first.run)
        assert (await record.resume(first.run, agent(pay))).answer == "Done."
    async with gesta.open(there) as copy:
        assert (copy.info.id, copy.info.mark) == (record.info.id, pos)
        await approve(copy, first.run)
        waits = await copy.resume(first.run, agent(pay))
        assert (waits.reason, [(each.what, each.tool) for each in waits.waiting]) == ("waiting", [("copy", "pay")])
        assert len(FIRED) == 1
        other = await copy.run(agent(pay), "Pay.", session="t", key="m1")  # a new turn is not in two records
        await approve(copy, other.run)
        assert (await copy.resume(other.run, agent(pay))).answer == "Done."
        assert len(FIRED) == 2
    async with gesta.open(there) as copy:
        await copy.store.adopt("ann")
        assert copy.info.mark is None
        assert (await copy.resume(first.run, agent(pay))).answer == "Done."
    assert len(FIRED) == len(set(FIRED)) == 3
    async with gesta.open(there) as copy:
        assert copy.info.mark is None


async def test_what_only_reads_goes_on_in_a_copy(tmp_path: Path):
    here, there = str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta")
    async with gesta.open(here) as record:
        first = await record.run(agent(look), "Look.", session="s")
        backup(here, there)
    async with gesta.open(there) as copy:
        await approve(copy, first.run)
        assert (await copy.resume(first.run, agent(look))).answer == "Done."


async def test_a_copy_of_an_adopted_copy_is_marked_anew(tmp_path: Path):
    places = [str(tmp_path / f"{name}.gesta") for name in "abc"]
    filled(Path(places[0]), 4)
    backup(places[0], places[1])
    store = inline_store(places[1])
    assert store.info.mark == 4
    await store.adopt("ann")
    lease = await store.lease("r")
    await store.append(make_batch(lease, 4))
    backup(places[1], places[2])
    await store.close()
    copy = inline_store(places[2])
    assert copy.info.mark == 5
    await copy.close()


async def test_after_a_restore_no_payment_has_the_key_of_an_older_one(tmp_path: Path):
    FIRED.clear()
    here, there = tmp_path / "a.gesta", tmp_path / "b.gesta"

    async def paid(key: str) -> None:
        async with gesta.open(str(here)) as record:
            first = await record.run(agent(pay), "Pay.", session="s", key=key)
            await approve(record, first.run)
            assert (await record.resume(first.run, agent(pay))).answer == "Done."

    await paid("m1")
    backup(str(here), str(there))
    await paid("m2")
    here.unlink()
    there.rename(here)
    await paid("m3")
    assert len(FIRED) == len(set(FIRED)) == 3


async def test_a_record_of_version_0_1_0_is_copied_with_its_doubts_and_marked(tmp_path: Path):
    fixture = Path(__file__).parents[1] / "fixtures" / "0.1.0" / "in-doubt.gesta"
    old, made = tmp_path / "old.gesta", tmp_path / "copy.gesta"
    shutil.copy(fixture, old)
    backup(str(old), str(made))
    assert old.read_bytes() == fixture.read_bytes(), "what is copied is not changed"
    async with gesta.open(str(made)) as copy:
        entries = (await copy.store.sql("SELECT max(pos) FROM entries")).rows[0][0]
        assert copy.info.mark == entries
        for row in await copy.store.runs():
            assert (await copy.state(row.run)).open
            await copy.store.release(await copy.store.lease(row.run))
        assert await copy.verify() == []
    assert names(tmp_path) == ["copy.gesta", "old.gesta"]


def test_what_the_record_was_given_to_run_does_not_run_when_a_copy_is_marked(tmp_path: Path):
    filled(tmp_path / "a.gesta")
    with contextlib.closing(apsw.Connection(str(tmp_path / "a.gesta"))) as db:
        db.execute("CREATE TRIGGER t AFTER UPDATE ON record BEGIN UPDATE record SET mark = NULL, adopted_by = 'x'; END")
    with pytest.warns(SetAside):
        backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"))
    with contextlib.closing(apsw.Connection(str(tmp_path / "b.gesta"))) as db:
        assert db.execute("SELECT mark, adopted_by FROM record").fetchall() == [(9, None)]


async def test_a_program_starts_no_child_run_in_a_copy_of_its_open_turn(tmp_path: Path):
    FIRED.clear()
    here, there = str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta")
    payer = msgspec.structs.replace(agent(msgspec.structs.replace(pay, approval=False)), name="payer")

    async def program(verbs: Any, _task: str) -> str:
        await verbs.ask("may", "May I?")
        return (await verbs.call(payer, "Pay.", "pay")).text

    acting = gesta.Agent("boss", program=program)
    async with gesta.open(here) as record:
        first = await record.run(acting, "Go.", session="s")
        backup(here, there)
    async with gesta.open(there) as copy:
        (question,) = (await copy.state(first.run)).questions
        await copy.send(first.run, AnswerContent(of=question, value="yes", by="ann"), key="a")
        waits = await copy.resume(first.run, acting)
        assert (waits.reason, [each.what for each in waits.waiting], FIRED) == ("waiting", ["copy"], [])
        await copy.store.adopt("ann")
        assert (await copy.resume(first.run, acting)).answer == "Done."
    assert len(FIRED) == 1


@pytest.mark.parametrize("by", ["tool", "hook"])
async def test_no_agent_that_may_have_effects_is_called_in_a_copy_of_an_open_turn_by_what_only_reads(
    tmp_path: Path, by: str
):
    FIRED.clear()
    here, there = str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta")
    payer = msgspec.structs.replace(agent(msgspec.structs.replace(pay, approval=False)), name="payer")
    judge = gesta.Agent("judge", model=gesta.scripted("Fine."))

    @gesta.tool(effect="pure", approval=by == "tool")
    async def ask(context: gesta.Context) -> str:
        """Ask two agents."""
        return f"{(await context.call(judge, 'Well?')).answer} {(await context.call(payer, 'Pay.')).answer}"

    async def judged(_answer: str, context: gesta.Context) -> None:
        await ask.function(context)

    acting = agent(look) if by == "hook" else agent(ask)
    acting = msgspec.structs.replace(acting, hooks=Hooks(answer=judged) if by == "hook" else None)
    async with gesta.open(here) as record:
        first = await record.run(acting, "Go.", session="s")
        backup(here, there)
    async with gesta.open(there) as copy:
        await approve(copy, first.run)
        for _ in range(2):
            waits = await copy.resume(first.run, acting)
            assert (waits.reason, [each.what for each in waits.waiting], FIRED) == ("waiting", ["copy"], [])
            assert [each.what for each in await copy.waiting("s")] == ["copy"]
        await copy.store.adopt("ann")
    async with gesta.open(there) as copy:
        assert (await copy.resume(first.run, acting)).answer == "Done."
        assert await copy.verify() == []
    assert len(FIRED) == 1
