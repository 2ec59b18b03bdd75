"""`python -m benchmarks.faults` causes every kind of fault at every place in random agents, and counts their effects.

`--quick` is for CI and takes less than a minute. `--full` goes on until each kind of fault occurred at each place 30
times on each store, and there were 3,000 faults. The exit code is 1 if a promise of Gesta was broken.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.faults import unmended
from benchmarks.faults.campaign import Plan, Total, campaign
from benchmarks.faults.cases import FAULTS, WHERE
from benchmarks.faults.crowds import KINDS as CROWDS
from benchmarks.faults.mends import MENDS

QUICK_S, FULL_S = 40.0, 40 * 60.0
SHOWN = 40
"""Greatest number of broken promises that are printed."""
ROWS = {
    "before the intent is durable": ("before the intent",),
    "request durable, no completion": ("model call",),
    "tool-call durable, no attempt": ("call without attempt",),
    "attempt without result, pure": ("attempt pure",),
    "the same, idempotent": ("attempt idempotent",),
    "the same, once": ("attempt once",),
    "a child run was called": ("child run",),
    "transactional": ("transactional",),
    "result durable": ("result",),
}
"""Rows of the crash table in the documentation, with the places that each row is about."""


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line, run the campaign, and print what was found."""
    given = read(words)
    if given.unmend:
        return unmended_shown(given, sys.argv[1:] if words is None else words)
    stores = ("sqlite", "postgres") if given.store == "both" else (given.store,)
    target, seconds = (30, FULL_S) if given.full else (1, QUICK_S)
    seconds = given.seconds or seconds
    faults = given.faults if given.faults is not None else 3000 if given.full else 0
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    plan = Plan(stores, given.only or (), given.seed, target if given.target is None else given.target, faults)
    if given.until is not None:
        return found_again(given, plan, stores)
    total = campaign(plan, stores, jobs=given.jobs, seconds=seconds, keep=given.keep)
    print(msgspec.json.encode(total).decode() if given.json else table(total, stores))
    return 1 if total.wrong else 0


def read(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.partition("\n")[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="each cell once, at most 40 s (the default)")
    length.add_argument("--full", action="store_true", help="each cell 30 times and 3,000 faults, at most 40 minutes")
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, help="at least so many in all")
    parser.add_argument("--target", type=int, help="how often each cell has to be met")
    parser.add_argument("--seconds", type=float, help="begin no case after so many seconds")
    parser.add_argument("--jobs", type=int, default=5, help="cases at once; most of a case is waiting")
    parser.add_argument("--only", action="append", choices=sorted({*FAULTS["sqlite"], *FAULTS["postgres"], *CROWDS}))
    parser.add_argument("--keep", type=Path, help="folder for the records of cases in which something was wrong")
    parser.add_argument("--unmend", choices=(*MENDS, "all"), help="take a mend out, and see that it is missed")
    parser.add_argument("--tests", action="store_true", help="with --unmend: by the tests that hold the mend")
    parser.add_argument("--until", help="go on until a promise is broken so, as a pattern; 0 if that was found")
    parser.add_argument("--cases", type=int, default=200, help="with --until: no more cases than that")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def unmended_shown(given: argparse.Namespace, words: Sequence[str]) -> int:
    """Remove mends (fixes of earlier faults), one at a time. Return 0 if the campaign notices each removal."""
    names = list(MENDS) if given.unmend == "all" else [given.unmend]
    if given.tests:
        return max(map(unmended.by_tests, names))
    place = words.index("--unmend")
    others = [*words[:place], *words[place + 2 :]]
    return max(unmended.by_cases(name, others) for name in names)


def found_again(given: argparse.Namespace, plan: Plan, stores: Sequence[str]) -> int:
    """Run cases until one breaks a promise that matches `--until`. Return 0 if one did."""
    looked_for: Callable[[str], Any] = re.compile(given.until).search

    def stop(total: Total) -> bool:
        return total.cases >= given.cases or any(map(looked_for, total.wrong))

    seconds = given.seconds or FULL_S
    total = campaign(plan, stores, jobs=given.jobs, seconds=seconds, keep=given.keep, stop=stop)
    found = next(filter(looked_for, total.wrong), None)
    print(f"{found or 'not found'} ({total.cases} cases)")
    return 0 if found else 1


def table(total: Total, stores: Sequence[str]) -> str:
    """Return the result of a campaign as text."""
    parts = [
        f"{total.cases} cases, {total.faults} faults, {total.runs} runs, {total.seconds:.0f} s",
        "effects: " + ", ".join(f"{effect} {times}" for effect, times in sorted(total.effects.items())),
        "in the log, of attempts and requests: "
        + ", ".join(f"{name} {times}" for name, times in sorted(total.manners.items())),
    ]
    for store in stores:
        parts += [f"{store}: rows of the crash table, kills in each", laid(crash_rows(total, store))]
        parts += [f"{store}: kinds of faults at each place where a run waits", laid(matrix(total, store))]
        crowds = [[fault, str(total.cells.get(f"{store}/{fault}/", 0))] for fault in CROWDS]
        parts += [f"{store}: many at once", laid(crowds)]
    parts += [f"judged in part or not tried: {why} ({times} cases)" for why, times in total.skipped.items()]
    parts += [f"WRONG: {text}" for text in total.wrong[:SHOWN]]
    parts += [f"{len(total.wrong)} wrong"]
    return "\n\n".join(parts[:3]) + "\n\n" + "\n".join(parts[3:])


def crash_rows(total: Total, store: str) -> list[list[str]]:
    """Return each row of the crash table with its number of kills."""
    kills = ("kill", "second kill")
    counts = {
        row: sum(total.cells.get(f"{store}/{kill}/{place}", 0) for place in places for kill in kills)
        for row, places in ROWS.items()
    }
    return [[row, str(times)] for row, times in counts.items()]


def matrix(total: Total, store: str) -> list[list[str]]:
    """Return a table of the number of faults of each kind at each place."""
    faults = [fault for fault in FAULTS[store] if fault not in CROWDS]
    rows = [["", *faults]]
    rows += [[place, *(str(total.cells.get(f"{store}/{fault}/{place}", 0)) for fault in faults)] for place in WHERE]
    return rows


def laid(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines of text with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(f"  {line}" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
