"""Every target for speed and size, measured beside its floor in one run; with --peers, beside other systems too.

python -m benchmarks.targets [--json] [--peers] [--quick]

A row says what Gesta takes, what a plain program takes that writes as much in as many commits (the floor), how they
compare, and whether the target is met. Each load runs in a process of its own, several times; a row gives the median,
and the lowest beside it. Read ratios: machines differ. It ends with 0, whatever is met: it tells, it does not judge.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from benchmarks._peers import PEERS, side_by_side
from benchmarks.crashes import campaign
from benchmarks.server import RUNS, measured
from benchmarks.steps import FIRST, started

SIZES = (10, 100, 1000, 10_000)
"""Steps of one turn, for what grows with it."""
MODULES = "import sys; bare = set(sys.modules); import gesta; print(len(set(sys.modules) - bare))"


class Row(Struct, kw_only=True):
    """One target, and what was found."""

    target: str
    unit: str
    gesta: float
    """The median."""
    best: float | None = None
    """The lowest of all rounds."""
    floor: float | None = None
    """Of a plain program, in the same unit."""
    ratio: float | None = None
    """Gesta by its floor, or what the target bounds where that is no figure of Gesta's alone."""
    bound: str
    met: bool | None
    """None where it was not measured."""


class Table(Struct):
    """All that was found."""

    rows: list[Row]
    exponents: dict[str, float]
    """Of total time and bytes in the number of steps."""
    peers: list[dict[str, Any]]
    notes: list[str]


def load(name: str, *args: object) -> dict[str, Any]:
    """Measure a load in a process of its own."""
    command = [sys.executable, "-m", "benchmarks._loads", name, *map(str, args)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told(f"{name} {' '.join(map(str, args))}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def told(what: str) -> None:
    """Say on a terminal how far it is."""
    if sys.stderr.isatty():
        print(what, file=sys.stderr, flush=True)


def exponent(sizes: Sequence[int], totals: Sequence[float]) -> float:
    """Give the slope of totals over sizes, both as logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(total) for total in totals]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def long_runs(table: Table, sizes: Sequence[int]) -> None:
    """What a step takes, and how that grows with the run."""
    rounds = {size: 3 if size > 1000 else 5 for size in sizes}
    normal = {size: load("steps", size, "normal", rounds[size]) for size in sizes}
    synced = {size: load("steps", size, "synced", 3) for size in sizes if size <= 1000}
    thousand, middle = normal[1000], synced[1000]
    per_step = (thousand["commits"] - normal[100]["commits"]) / 900
    rows = table.rows
    rows.append(Row(target="commits per step", unit="commits", gesta=per_step, bound="<= 2", met=per_step <= 2))
    rows.append(_steps("CPU per step, synced, N=1000", middle, "<= 1.5 x floor", met=middle["ratio"] <= 1.5))
    for size, found in normal.items():
        bound = "<= 150 us, aim 80"
        rows.append(_steps(f"CPU per step, normal, N={size}", found, bound, met=found["us"][1] <= 150))
    grows = {
        "time": exponent(sizes, [normal[size]["us"][0] * size for size in sizes]),
        "bytes": exponent(sizes, [normal[size]["bytes"] for size in sizes]),
        "time of the floor": exponent(sizes, [normal[size]["floor_us"][0] * size for size in sizes]),
    }
    table.exponents |= {name: round(found, 3) for name, found in grows.items()}
    for name in ("time", "bytes"):
        met = grows[name] <= 1.05
        text = f"growth of {name}, N={sizes[0]} to {sizes[-1]}"
        rows.append(Row(target=text, unit="exponent", gesta=grows[name], bound="<= 1.05", met=met))
    over = (thousand["bytes"] - 1.5 * thousand["text"]) / thousand["entries"]
    text = "bytes an entry beyond 1.5 x the text, N=1000"
    rows.append(Row(target=text, unit="B", gesta=over, bound="<= 200", met=over <= 200))
    last = normal[sizes[-1]]
    if sizes[-1] > 1000:
        memory = (last["peak_kb"] - thousand["peak_kb"]) / (last["entries"] - thousand["entries"]) * 1024
        text = f"memory an entry of a turn, N={sizes[-1]}"
        rows.append(Row(target=text, unit="B", gesta=memory, bound="no target", met=None))


def _steps(target: str, found: dict[str, Any], bound: str, *, met: bool) -> Row:
    best, median = found["us"]
    low = found["floor_us"][1]
    return Row(target=target, unit="us", gesta=median, best=best, floor=low, ratio=found["ratio"], bound=bound, met=met)


def others(table: Table, *, quick: bool) -> None:
    """What starting, resuming, many runs, large results, teams and crashes take."""
    rows, steps, runs = table.rows, 1000 if quick else 10_000, 500 if quick else 5000
    found = load("resume", steps)
    cold, warm = found["cold_s"], found["warm_ms"]
    text, floor = f"resume of {steps} steps, cold", found["floor_s"]
    rows.append(_one(text, "s", cold, floor, "<= 0.25 s", met=cold <= 0.25))
    rows.append(_one(f"next turn after {steps} steps, warm", "ms", warm, None, "<= 5 ms", met=warm <= 5))
    found = load("many", runs)
    us, kb, lost = found["us"], found["kb"], found["lost"]
    rows.append(_one(f"{runs} runs at once, CPU a step", "us", us, found["floor_us"], "<= 150 us", met=us <= 150))
    rows.append(_one(f"{runs} runs at once, memory a run", "kB", kb, found["floor_kb"], "<= 20 kB", met=kb <= 20))
    rows.append(_one(f"{runs} runs at once, lost", "runs", lost, 0, "0", met=lost == 0))
    bare = started("pass")
    text, took = "import gesta", started("import gesta") - bare
    rows.append(_one(text, "s", took, bare, "<= 0.12 s", met=took <= 0.12))
    first = started(FIRST) - bare
    rows.append(_one("first answer of a process", "s", first, bare, "<= 0.20 s", met=first <= 0.20))
    told_modules = subprocess.run([sys.executable, "-c", MODULES], check=True, capture_output=True, text=True).stdout
    rows.append(_one("modules of import gesta", "", int(told_modules), None, "<= 120", met=int(told_modules) <= 120))
    large = load("large", 10 if quick else 100)
    text = f"tool result of {10 if quick else 100} MB, kept and read back"
    rows.append(_one(text, "s", large["s"], large["floor_s"], "nothing lost", met=large["same"]))
    rows.append(_one("the same, memory", "MB", large["peak_mb"], None, "no target", met=None))
    team = load("team", 100 if quick else 1000)
    rows.append(_one("team of two, CPU a turn", "ms", team["ms"], None, "< 0.5 ms", met=team["ms"] < 0.5))
    task = load("task", 1000, 6)
    text, took = "task whose tool gives 1 MB", task["ms"][1]
    rows.append(_one(text, "ms", took, task["small_ms"][1], "< 20 ms", met=took < 20))
    left = load("finished", 300 if quick else 2000, 300 if quick else 3000)["bytes"]
    rows.append(_one("memory that a finished run leaves", "B", left, None, "<= 100 B (flat)", met=left <= 100))
    killed = campaign(4 if quick else 40, 12 if quick else 200)
    text = f"kill -9 at {killed.kills} points of {killed.agents} agents, wrong"
    wrong = len(killed.wrong)
    rows.append(_one(text, "", wrong, None, "0", met=wrong == 0))


def _one(target: str, unit: str, gesta: float, floor: float | None, bound: str, *, met: bool | None) -> Row:
    ratio = gesta / floor if floor else None
    return Row(target=target, unit=unit, gesta=gesta, floor=floor, ratio=ratio, bound=bound, met=met)


def on_postgres(table: Table, *, quick: bool) -> None:
    """What a step takes on PostgreSQL, beside a bare program that commits the same rows; skipped without a server."""
    runs = RUNS // 10 if quick else RUNS
    try:
        found = measured(runs)
    except pytest.skip.Exception as absent:
        table.notes.append(f"PostgreSQL was not measured: {absent}")
        return
    told("server")
    rows = table.rows
    for how in ("synced", "normal"):
        one, many = found[how], found[f"at once, {how}"]
        floor, wall = one["floor_us"], one["floor_wall_us"]
        text, ratio = f"PostgreSQL, {how}", one["us"] / floor
        rows.append(_one(f"{text}, CPU a step", "us", one["us"], floor, "3 x floor", met=ratio <= 3))
        ratio = one["wall_us"] / wall
        rows.append(_one(f"{text}, a lone run, wall a step", "us", one["wall_us"], wall, "2 x floor", met=ratio <= 2))
        ours, floors = 1e6 / many["wall_us"], 1e6 / wall
        text = f"{text}, {runs} runs at once, steps a second"
        rows.append(_one(text, "", ours, floors, "4 x floor", met=ours >= 4 * floors))
    haste, care = found["normal"]["wall_us"], found["synced"]["wall_us"]
    rows.append(_one("PostgreSQL, normal beside synced, wall", "us", haste, care, "less", met=haste <= care))
    work = found["workers"]
    rows.append(_one("PostgreSQL, four workers, turns a second", "", work["turns_s"], None, "no target", met=None))
    for name in ("p50_ms", "p99_ms"):
        text = f"the same, {name.removesuffix('_ms')} of a turn"
        rows.append(_one(text, "ms", work[name], None, "no target", met=None))


def beside(table: Table, environment: Path) -> None:
    """Measure the peers, and the targets that are about them."""
    table.peers, notes = side_by_side(environment)
    table.notes += notes
    by = {(peer["peer"], peer["steps"]): peer["us"] for peer in table.peers if "us" in peer}
    ours = {size: load("steps", size, "normal", 3)["us"][1] for size in (10, 100, 300, 1000)}
    table.peers[:0] = [{"peer": "Gesta, normal", "steps": size, "us": us} for size, us in ours.items()]
    wanted = (
        ("LangGraph, SQLite, sync", 300, 30),
        ("LangGraph, SQLite, sync", 1000, 100),
        ("Agno, nothing kept", 300, 1),
    )
    for name, size, times in wanted:
        us = by.get((name, size))
        ratio = us / ours[size] if us is not None else None
        bound, met = f"{times} times less", None if ratio is None else ratio >= times
        text = f"against {name}, N={size}"
        row = Row(target=text, unit="us", gesta=ours[size], floor=us, ratio=ratio, bound=bound, met=met)
        table.rows.append(row)


def shown(table: Table) -> str:
    """Write the table for people."""
    lines = [f"{'target':52} {'Gesta':>10} {'lowest':>9} {'floor':>9} {'ratio':>7}  {'wanted':16} met"]
    for row in table.rows:
        found = [_figure(value) for value in (row.gesta, row.best, row.floor, row.ratio)]
        met = {True: "yes", False: "NO", None: "-"}[row.met]
        figures = f"{found[0]:>10} {found[1]:>9} {found[2]:>9} {found[3]:>7}"
        lines.append(f"{f'{row.target} [{row.unit}]':52} {figures}  {row.bound:16} {met}")
    lines.append("exponents: " + ", ".join(f"{name} {found:.3f}" for name, found in table.exponents.items()))
    if table.peers:
        lines += ["", f"{'CPU us a step':32} {'N':>6} {'us':>9} {'kB a step':>10}"]
        for peer in table.peers:
            us, kb = _figure(peer.get("us")), _figure(peer.get("kb"))
            lines.append(f"{peer['peer']:32} {peer['steps']:6} {us:>9} {kb:>10}")
    return "\n".join([*lines, *table.notes])


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.targets", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", action="store_true", help=f"also {', '.join(PEERS)}: see `just peers`")
    parser.add_argument("--environment", type=Path, default=Path(".peers"), help="where the peers are installed")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: tells whether it runs")
    given = parser.parse_args(words)
    table = Table([], {}, [], [])
    long_runs(table, SIZES[:-1] if given.quick else SIZES)
    others(table, quick=given.quick)
    on_postgres(table, quick=given.quick)
    if given.peers:
        beside(table, given.environment)
    print(msgspec.json.encode(table).decode() if given.json else shown(table))


if __name__ == "__main__":
    main()
