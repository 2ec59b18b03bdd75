"""Laws 1, 9 and 10 for forks: what is shared stands once, what is their own is chained to it, and they fire nothing."""

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from tests.laws.scenes import Tape, World, agent, facts, play
from tests.laws.test_evidence import flaws
from tests.laws.test_replay import described, every
from tests.laws.test_resume import scripts

import gesta
from gesta import address
from gesta.address import Record
from gesta.bridges.jsonl import export_run
from gesta.bridges.pushing import push
from gesta.compare.cases import Case, Head, check, read, taken, written
from gesta.compare.forks import Change, Fork, asked_otherwise, fork, go_on
from gesta.compare.replaying import replay_run
from gesta.entry import Entry
from gesta.importers.file import import_file
from gesta.importers.source import BadImport
from gesta.integrity.verify import audit
from gesta.kinds import AssistantContent, AttemptContent, ChatCompletionContent, ToolResultContent
from gesta.log import journal
from gesta.record import forks


@given(scripts, st.data())
def test_a_fork_of_any_prefix_reaches_the_same_facts_and_fires_nothing(script: list[Any], data: st.DataObject) -> None:
    async def main() -> None:
        tape, world = Tape(), World()
        acting = agent(world, script)
        (outcome,) = await play(tape, acting)
        record = Record(tape, address.bind)
        base, before = await record.find(outcome.run), await record.read(outcome.run)
        at = data.draw(st.integers(0, len(before)))
        fired, rows = world.fired.copy(), len(tape._rows)
        made = await fork(record, base, Fork(at=at))
        await go_on(record, made, acting)
        entries = await record.read(made.run)
        own = await tape.read(made.run)
        shared = own[0].seq - 1
        assert at <= shared <= len(before)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))  # law 1
        assert [entry.digest for entry in entries[:shared]] == [entry.digest for entry in before[:shared]]
        assert len(tape._rows) == rows + len(own)  # what is shared takes no space
        assert await record.read(outcome.run) == before
        assert world.fired == fired
        assert not any(row.kind == "attempt" and json.loads(row.content).get("effect") == "once" for row in own)
        assert [each for each in facts(entries) if each != (None, "success")] == facts(before)
        asked = [row.seq for row in own if row.kind == "request"]
        assert set(asked[:1]).isdisjoint(
            asked_otherwise(before, entries)
        )  # law 4: it goes on with the bytes that its base sent
        assert await audit(tape) == []  # law 9
        again = await replay_run(await every(tape), made.run, acting)  # law 10
        assert again.first is None, described(again)

    anyio.run(main)


@given(scripts, st.data())
def test_a_fork_of_a_fork_shares_both(script: list[Any], data: st.DataObject) -> None:
    async def main() -> None:
        tape, world = Tape(), World()
        acting = agent(world, script)
        (outcome,) = await play(tape, acting)
        record = Record(tape, address.bind)
        row, run = await record.find(outcome.run), outcome.run
        for _ in range(3):
            head = len(await record.read(run))
            row = await fork(record, row, Fork(at=data.draw(st.integers(0, head))))
            await go_on(record, row, acting)
            run = row.run
        assert await audit(tape) == []
        assert (await record.state(run)).turn is not None
        assert all(count == 1 for count in world.fired.values())

    anyio.run(main)


@gesta.tool(effect="once")
async def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


@gesta.tool(effect="pure")
async def order(number: int) -> dict[str, Any]:
    """Read an order."""
    return {"number": number, "status": "delivered", "euros": 20}


def told(messages: list[dict[str, Any]], header: Any) -> Any:
    """Pay what the order says, once it was looked up."""
    del header
    seen = [message["content"] for message in messages if message["role"] == "tool"]
    if not seen:
        return gesta.call("order", number=1)
    if len(seen) == 1:
        return gesta.call("pay", euros=json.loads(seen[0])["euros"])
    return f"Done: {seen[-1]}"


desk = gesta.Agent("desk", model=gesta.function(told), tools=[order, pay])


async def test_a_changed_result_leads_elsewhere_and_a_call_that_is_not_on_record_waits() -> None:
    async with gesta.open() as record:
        first = await record.run(desk, "Pay my order.", session="s")
        entries = await record.read(first.run)
        result = next(entry for entry in entries if isinstance(entry.content, ToolResultContent))
        base = await record.find(first.run)
        how = Fork(changes=[Change(result.seq, "tool_result.euros", 30)])
        made = await fork(record, base, how)
        ended = await go_on(record, made, desk)
        assert [(waiting.what, waiting.tool) for waiting in ended.waiting] == [("approval", "pay")]
        own = [entry for entry in await record.read(made.run) if entry.seq >= result.seq]
        assert not any(isinstance(entry.content, AttemptContent) for entry in own)
        changed = next(entry for entry in own if isinstance(entry.content, ToolResultContent))
        assert changed.content.tool_result["euros"] == 30  # type: ignore[union-attr]
        assert (first.run, result.seq) in changed.causes
        live = await fork(record, base, Fork(changes=how.changes, live=["pay"]))
        gone = await go_on(record, live, desk)
        assert gone.answer == "Done: paid 30"
        same = await go_on(record, await fork(record, base, Fork(at=result.seq)), desk)
        assert same.answer == first.answer == "Done: paid 20"
        assert await record.verify() == []


class Paid(Struct):
    """An answer of a type."""

    euros: int


async def test_the_answer_of_a_fork_is_a_value_of_the_type_that_its_agent_promises() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted('{"euros": 20}', '{"euros": 30}'), output=Paid)
    async with gesta.open() as record:
        await record.run(agent, "Pay.", session="s")
        await record.run(agent, "And again.", session="s")
        base = await record.find("s")
        said = [entry.seq for entry in await record.read(base.run) if entry.kind == "begin"]
        for at in (said[1] - 1, base.head):  # the second message is sent again; nothing is
            ended = await go_on(record, await fork(record, base, Fork(at=at)), agent)
            assert ended.value == Paid(euros=30)


def test_a_change_of_what_a_fork_shares_is_found_in_the_base_and_in_the_fork() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.gesta"

        async def make() -> tuple[str, str]:
            async with gesta.open(str(path)) as record:
                first = await record.run(desk, "Pay my order.", session="s")
                made = await fork(record, await record.find(first.run), Fork(at=7))
                return first.run, made.run

        base, forked = anyio.run(make)
        assert anyio.run(flaws, path) == []
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE entries SET content = replace(content, 'Pay', 'Bay') WHERE run = ? AND seq = 2", (base,))
        assert [(flaw.run, flaw.seq) for flaw in anyio.run(flaws, path)] == [(base, 2)]
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DELETE FROM entries WHERE run = ? AND seq >= 7", (base,))
        found = {flaw.run: flaw for flaw in anyio.run(flaws, path)}
        assert (found[forked].seq, "goes on from" in found[forked].what) == (8, True)


async def test_a_fork_that_goes_on_reads_each_entry_of_its_base_and_of_itself_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, paid, look = list[int](), list[int](), journal.read

    @gesta.tool(effect="once")
    def pay(number: int) -> str:
        """Pay."""
        paid.append(number)
        return "paid"

    async def counted(*values: Any) -> list[Entry]:
        entries = await look(*values)
        rows.append(len(entries))
        return entries

    monkeypatch.setattr(forks, "read", counted)
    script: list[Any] = [*(gesta.call("pay", number=each % 3) for each in range(12)), "done"]
    agent = gesta.Agent("desk", model=gesta.scripted(*script), tools=[pay])
    async with gesta.open() as record:
        base = await record.find((await record.run(agent, "go")).run)
        made = await fork(record, base, Fork(at=2))
        ended = await go_on(record, made, agent)
        entries = len(await record.read(made.run))
        assert (ended.answer, len(paid)) == ("done", 12)
        assert sum(rows) <= base.head + entries


async def test_a_fork_is_exported_with_its_base_and_comes_in_again(tmp_path: Path) -> None:
    lines = tmp_path / "fork.jsonl"
    async with gesta.open() as record:
        first = await record.run(desk, "Pay my order.", session="s")
        made = await fork(record, await record.find(first.run), Fork(at=7))
        again = await fork(record, made, Fork(at=9))
        lines.write_text("".join([line async for line in export_run(record, again.run)]))
        before = {run: await record.read(run) for run in (first.run, made.run, again.run)}
        alone = lines.read_text().splitlines()
        alone = [alone[0], *(line for line in alone if f'"run":"{again.run}"' in line)]
        (tmp_path / "alone.jsonl").write_text("\n".join(alone) + "\n")
    async with gesta.open(str(tmp_path / "copy.gesta")) as copy:
        assert (await import_file(copy, lines)).runs == 3
        assert (await import_file(copy, lines)).skipped == 3
        assert {run: [each.digest for each in entries] for run, entries in before.items()} == {
            run: [each.digest for each in await copy.read(run)] for run in before
        }
        assert await copy.verify() == []
    async with gesta.open() as empty:
        with pytest.raises(
            BadImport, match=f"goes on from entry {made.run}.9, which is not on record; import that run first"
        ):
            await import_file(empty, tmp_path / "alone.jsonl")


async def test_a_fork_is_pushed_with_its_base_and_not_without() -> None:
    async with gesta.open() as record, gesta.open() as other, gesta.open() as third:
        first = await record.run(desk, "Pay my order.", session="s")
        made = await fork(record, await record.find(first.run), Fork(at=7))
        pushed = await push(record.store, other.store)
        assert (pushed.runs, pushed.refused) == (2, [])
        assert [each.digest for each in await other.read(made.run)] == [
            each.digest for each in await record.read(made.run)
        ]
        assert await other.verify() == []
        held = await record.store.lease(first.run)
        refused = (await push(record.store, third.store)).refused
        await record.store.release(held)
        assert len(refused) == 2
        assert (
            refused[1]
            == f"Run {made.run!r} is a fork of {first.run!r}, which was not pushed. It was not pushed either."
        )


async def test_a_run_is_rewound_to_an_answer_which_is_said_otherwise_and_what_followed_is_made_anew() -> None:
    def told(messages: list[dict[str, Any]], header: Any) -> str:
        del header
        return " | ".join(str(message["content"]) for message in messages)

    echo = gesta.Agent("echo", model=gesta.function(told))
    async with gesta.open() as record:
        for text in ("one", "two", "three"):
            first = await record.run(echo, text, session="s")
        before = await record.read(first.run)
        second = [entry for entry in before if isinstance(entry.content, ChatCompletionContent)][1]
        how = Fork(changes=[Change(second.seq, "output", "I take that back.")])
        made = await fork(record, await record.find(first.run), how)
        ended = await go_on(record, made, echo)
        after = await record.read(made.run)
        said = [entry.content.value for entry in after if isinstance(entry.content, AssistantContent)]
        assert said == ["one", "I take that back.", "one | one | two | I take that back. | three"]
        assert ended.answer == said[-1]
        assert await record.read(first.run) == before, "a run is never cut"
        shared = [entry for entry in after if entry.seq < second.seq]
        assert [entry.digest for entry in shared] == [entry.digest for entry in before[: second.seq - 1]]


async def test_a_fork_becomes_a_case_with_what_it_shares(tmp_path: Path) -> None:
    async with gesta.open() as record:
        first = await record.run(desk, "Pay my order.", session="s")
        made = await fork(record, await record.find(first.run), Fork(at=9))
        await go_on(record, made, desk)
        (tmp_path / "case.jsonl").write_text(
            written(Case(Head(agent="desk.py:desk", run=made.run), await taken(record, made.run)))
        )
        assert await check(read(tmp_path / "case.jsonl"), desk) == []
