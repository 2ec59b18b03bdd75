"""The crash kit finds what a crash does to an agent, and is not fooled by the record that it judges."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests import programs
from tests.conftest import FULL

import gesta
from gesta import address
from gesta.codec.rows import encode_content
from gesta.kinds import SignalContent
from gesta.record.record import Record
from gesta.store import Batch, Letter
from gesta.stores.memory import MemoryStore
from gesta.testing import Report, crash_test
from gesta.testing.crashes.command import NO_TOOL, table
from gesta.testing.crashes.report import Doubts, ToolCount, judge
from gesta.testing.crashes.witness import Line, Written, read

SHOP = """
import gesta

@gesta.tool(effect="pure")
def price(item: str) -> int:
    "Look a price up."
    return 5

@gesta.tool(effect="transactional")
def book(item: str, context: gesta.Context) -> str:
    "Book an item."
    context.sql("CREATE TABLE IF NOT EXISTS booked(item)")
    context.sql("INSERT INTO booked VALUES(?)", (item,))
    return "booked"

@gesta.tool(effect="once", approval=True)
async def pay(euros: int) -> str:
    "Pay."
    return "paid"

model = gesta.scripted([gesta.call("price", item="a"), gesta.call("book", item="a")], gesta.call("pay", euros=5), "Done.")
agent = gesta.Agent("clerk", model=model, tools=[price, book, pay])
"""

LIAR = """
import gesta

def never(key: str) -> gesta.NotDone:
    return gesta.NotDone()

@gesta.tool(effect="once", reconcile=never)
def pay(euros: int) -> str:
    "Pay."
    return "paid"

agent = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay", euros=5), "Paid."), tools=[pay])
"""

CAREFUL = LIAR.replace(", reconcile=never", "")

Kept = tuple[Report, Path]


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """What was found of the shop, and the records and logs."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    return crash_test(f"{folder}/shop.py:agent", "A pen.", folder=folder / "kept"), folder / "kept"


@pytest.mark.slow
def test_an_agent_is_killed_at_every_write_point_and_nothing_happens_twice(kept: Kept) -> None:
    report, folder = kept
    assert report.ok, report.wrong
    assert report.points <= report.records <= report.points + 2  # a life after a death has a commit or two more
    assert report.kills > report.points
    assert report.missing == []
    assert report.acknowledged > 500
    assert {name: count.max_fired for name, count in report.tools.items() if name != "price"} == {"book": 1, "pay": 1}
    assert report.tools["price"].max_fired > 1  # it is harmless, so it may be run again
    assert set(report.turns) == {"answered", "waiting for doubt of pay"}
    assert {doubt.tool for doubt in report.doubts} == {"pay"}
    assert len(report.doubts) == report.turns["waiting for doubt of pay"]
    places = {doubt.killed for doubt in report.doubts}
    assert {"before pay starts", "after pay returned"} <= places
    assert not any("chat-completion" in place for place in places)
    assert (folder / "1/record.gesta").exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--cancel",)] if FULL else [()])
def test_a_tool_that_says_wrongly_that_nothing_happened_is_found_out(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "liar.py").write_text(LIAR)
    done = programs.run(["-m", "gesta.testing", f"{tmp_path}/liar.py:agent", "Pay.", *words])
    assert done.returncode == 1, done.stderr
    assert "pay   once    " in done.stdout
    assert "WRONG: pay (once) fired 2 times for the call " in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_trials_with_cancellations_failed_writes_and_second_kills_are_made_on_request(tmp_path: Path) -> None:
    (tmp_path / "careful.py").write_text(CAREFUL)
    report = crash_test(f"{tmp_path}/careful.py:agent", "Pay.", cancel=True, fail=True, again=True)
    assert report.ok, report.wrong
    assert (report.cancels, report.failed_writes) == (report.points, report.points)
    assert report.kills > 2 * report.points


def test_an_agent_that_cannot_be_run_is_named() -> None:
    with pytest.raises(gesta.GestaError, match=r"No file 'nowhere\.py'"):
        crash_test("nowhere.py:agent", "Pay.")


def test_a_crash_test_in_which_no_tool_ran_says_that_it_showed_nothing() -> None:
    assert table(Report()).endswith(NO_TOOL)
    assert NO_TOOL not in table(Report(tools={"pay": ToolCount(effect="once")}))


def test_a_step_between_points_is_at_least_one() -> None:
    done = programs.run(["-m", "gesta.testing", "agent.py:agent", "Pay.", "--every", "0"])
    assert done.returncode == 2
    assert "argument --every: 0 is below 1" in done.stderr


def lose(lines: list[Line]) -> list[Line]:
    return [*lines, Line(what="committed", life=1, run=run_of(lines), entries=(Written(999, "end", "00"),))]


def spare(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.what != "killed"]


def hurry(lines: list[Line]) -> list[Line]:
    kept = [line for line in lines if line.what != "committed" or all(each.kind != "attempt" for each in line.entries)]
    return kept if kept != lines else []


def repeat(lines: list[Line]) -> list[Line]:
    return lines + [line for line in lines if line.tool == "pay" and line.what in {"started", "returned"}]


def post(lines: list[Line]) -> list[Line]:
    letter = next(line for line in lines if line.letter is not None)
    assert letter.letter is not None
    lost = msgspec.structs.replace(letter.letter, content='{"kind":"signal","name":"wake","by":"nobody"}')
    return [*lines, msgspec.structs.replace(letter, letter=lost)]


def run_of(lines: list[Line]) -> str:
    return next(line.run for line in lines if line.run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lose, "acknowledged and not in the record: entry "),
        (spare, "pay is in doubt (attempt "),
        (hurry, "pay began before its attempt "),
        (repeat, "pay (once) fired 2 times for the call "),
        (post, "acknowledged and not in the record: letter "),
    ],
)
async def test_the_harness_is_believed_and_not_the_record(
    change: Callable[[list[Line]], list[Line]], found: str, kept: Kept
) -> None:
    logs = {each: read(each) for each in kept[1].glob("*/witness.jsonl")}
    log = next(each for each, lines in logs.items() if any(line.point == "after pay returned" for line in lines))
    lines = logs[log]
    async with gesta.open(str(log.with_name("record.gesta")), readonly=True) as record:
        assert (await judge(record, lines, "crash-test")).wrong == []
        wrong = (await judge(record, change(lines), "crash-test")).wrong
        assert any(each.startswith(found) for each in wrong), wrong


async def test_a_call_that_was_cancelled_before_it_began_is_no_doubt() -> None:
    class Telling(MemoryStore):
        """Somebody cancels in the instant before the attempt is committed."""

        async def append(self, batch: Batch) -> int:
            if any(row.kind == "attempt" for row in batch.rows):
                cancel = encode_content(SignalContent(name="cancel", by="ann"))
                await self.send(Letter(batch.lease.run, "c", cancel))
            return await super().append(batch)

    record = Record(Telling(), address.bind)
    tool = gesta.tool(lambda: "paid", name="pay", effect="once")
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "Paid."), tools=[tool])
    outcome = await record.run(agent, "Pay.")
    entries = {(each.run, each.seq): each for each in await record.read(outcome.run)}
    (attempt,) = (each.seq for each in entries.values() if each.kind == "attempt")
    doubts = Doubts([], entries)
    assert (outcome.reason, doubts.found, doubts.wrong) == ("cancelled", [], [])
    begun = Doubts([Line(what="started", run=outcome.run, attempt=attempt)], entries)
    assert begun.wrong == [f"pay began, but not by its record (attempt {outcome.run}.{attempt})"]


def test_reports_are_summed_up() -> None:
    total = Report(agents=1, records=1, kills=2, turns={"answered": 1})
    total.add(Report(agents=1, records=3, points=7, turns={"answered": 2, "failed": 1}, wrong=["x"]))
    assert (total.agents, total.records, total.kills, total.points) == (2, 4, 2, 7)
    assert (total.turns, total.ok) == ({"answered": 3, "failed": 1}, False)


@pytest.mark.slow
def test_turns_are_cancelled_and_writes_fail_in_the_process_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "careful.py").write_text(CAREFUL)
    every = 1 if FULL else 3
    words = ["--cancel", "--fail", "--again", "--every", str(every), "--json", "--folder", str(tmp_path)]
    done = programs.run(["-m", "gesta.testing", f"{tmp_path}/careful.py:agent", "Pay.", *words])
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.ok, report.wrong
    assert report.points > 10
    points = len(range(0, report.points, every))
    assert report.records == 4 * points + 2
    assert (report.cancels, report.failed_writes) == (points, points)
    assert report.kills > 2 * points
    assert report.tools["pay"].max_fired == 1
    assert set(report.turns) == {"answered", "waiting for doubt of pay"}
