"""Whatever is pruned, and whenever the process dies: what stays is byte for byte what it was, and points to nothing gone.

Runs with parents, bases and causes are drawn by lot, and so is what is to go.
"""

import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import programs

import gesta
from gesta.address import drive, inline_store
from gesta.integrity.tombstones import pruned, unexplained
from gesta.store import Batch, Store
from gesta.stores.memory import MemoryStore
from gesta.stores.pruning import Choice, Pruner, plan, prune
from gesta.testing import make_batch, make_row

SOURCE = str(Path(next(iter(gesta.__path__))).parent)
AT = "2026-01-02T03:04:05.000006Z"


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[dict[str, Any]], Choice]:
    """Runs in the order in which they are opened, each referring to earlier ones; and what is to go."""
    runs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 12))):
        earlier = st.sampled_from([each["run"] for each in runs]) if runs else st.none()
        runs.append(
            {
                "run": f"r{number}",
                "session": draw(st.sampled_from("ab")),
                "at": f"2026-0{draw(st.integers(1, 9))}-01T00:00:00.000000Z",
                "parent_run": draw(st.none() | earlier),
                "base": draw(st.none() | earlier),
                "cause": draw(st.none() | earlier),
                "count": draw(st.integers(1, 4)),
            }
        )
    names = [each["run"] for each in runs]
    choice = Choice(
        runs=draw(st.just([]) | st.lists(st.sampled_from(names), unique=True)),
        session=draw(st.none() | st.sampled_from("ab")),
        before=draw(st.none() | st.just("2026-05-01")),
        keep=draw(st.integers(0, 3)),
    )
    return runs, choice


async def recorded(store: Store, runs: list[dict[str, Any]]) -> None:
    for each in runs:
        lease = await store.lease(each["run"])
        opened = {"session": each["session"], "name": "n", "record": "0" * 32, "parent_run": each["parent_run"]}
        if each["base"] is not None:
            opened["base"] = {"run": each["base"], "seq": 1}
        content = {"kind": "begin", "name": "n", "opened": {name: value for name, value in opened.items() if value}}
        rows = [make_row(each["run"], 1, "begin", msgspec.json.encode(content).decode())]
        rows += [make_row(each["run"], seq) for seq in range(2, each["count"] + 1)]
        causes = f'[["{each["cause"]}",1]]' if each["cause"] is not None else "[]"
        rows = [msgspec.structs.replace(row, at=each["at"], causes=causes) for row in rows]
        await store.append(Batch(lease, 0, rows))
        await store.release(lease)


@given(forests())
def test_what_stays_is_what_it_was_and_points_to_nothing_that_is_gone(drawn: tuple[list[dict[str, Any]], Choice]):
    runs, choice = drawn
    store = MemoryStore()
    drive(recorded(store, runs))
    before = {each["run"]: drive(store.read(each["run"])) for each in runs}
    found = drive(plan(store, choice))
    gone = drive(prune(store, found, Pruner(by="law", together=3)))
    assert gone.staying == []
    going = {row.run for row in found.runs}
    for run, rows in before.items():
        assert drive(store.read(run)) == ([] if run in going else rows)
    known = {each["run"]: each for each in runs}
    parents = {run: known[run]["parent_run"] for run in known}
    for run in known.keys() - going:
        referred = {known[run][name] for name in ("parent_run", "base", "cause")} - {None}
        assert not referred & going
        assert not {child for child, parent in parents.items() if parent == run} & going
    assert all(choice.session in (None, known[run]["session"]) for run in going)
    assert all(choice.before is None or known[run]["at"] < choice.before for run in going)
    roots = [run for run in known if parents[run] is None]
    newest = sorted(roots, key=lambda run: known[run]["at"])[max(0, len(roots) - choice.keep) :]
    assert choice.keep == 0 or not set(newest) & going
    assert {stone.run for each in drive(pruned(store)) for stone in each.runs} == going
    assert drive(unexplained(store)) == []
    drive(recorded(store, [each for each in runs if each["run"] in going]))
    assert drive(unexplained(store)) == []


PRUNING = """
import sys
from gesta.address import drive, inline_store
from gesta.stores.pruning import Choice, Pruner, plan, prune
store = inline_store(sys.argv[1], durability="normal")
found = drive(plan(store, Choice(session="s")))
print("planned", flush=True)
drive(prune(store, found, Pruner(by="law", together=8), lambda runs: print(runs, flush=True)))
drive(store.shrink())
print("done", flush=True)
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("lines", [1, 2, 4, 7, 12])
def test_a_prune_that_is_killed_leaves_each_run_whole_or_gone(lines: int, tmp_path: Path):
    path = tmp_path / "r.gesta"
    store = inline_store(str(path))
    for number in range(60):
        lease = drive(store.lease(f"r{number}"))
        opened = {"session": "s", "name": f"r{number}", "record": "0" * 32}
        opened |= {"parent_run": f"r{number - 1}"} if number % 2 else {}
        content = msgspec.json.encode({"kind": "begin", "name": "n", "opened": opened}).decode()
        drive(store.append(Batch(lease, 0, [make_row(f"r{number}", 1, "begin", content)])))
        drive(store.append(make_batch(lease, 1, 3)))
        drive(store.release(lease))
    drive(store.close())
    with programs.Program(["-c", PRUNING, str(path)]) as child:
        for _ in range(lines):
            child.stdout.readline()
        time.sleep(0.0005 * lines)
        child.send_signal(signal.SIGKILL)
    store = inline_store(str(path))
    left = [row.run for row in drive(store.runs("s"))]
    stones = [stone.run for each in drive(pruned(store)) for stone in each.runs]
    assert sorted(left + stones) == sorted(f"r{number}" for number in range(60))
    assert all(len(drive(store.read(run))) == 4 for run in left)
    assert {int(run[1:]) // 2 for run in left}.isdisjoint(int(run[1:]) // 2 for run in stones)
    assert drive(unexplained(store)) == []
    assert drive(store.damage()) == []
    found = drive(plan(store, Choice(session="s")))
    assert len(found.runs) == len(left), "who died holds nothing any more"
    assert drive(prune(store, found, Pruner(by="law"))).runs == len(left)
    drive(store.close())
