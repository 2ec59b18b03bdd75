"""`python -m benchmarks.fuzz` gives every reader of outside data hostile input, and counts how it ends.

`--quick` is for CI and takes less than twenty seconds; `--full` reads 50,000 inputs. The exit code is 1 if a reader
raised an error that is not one of Gesta's, took more than 10 s or 200 MB, or if a command ended with an undocumented
exit code.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.fuzz.campaign import Reader, Total, campaign, judged
from benchmarks.fuzz.readers import READERS

QUICK, QUICK_S, FULL = 900, 12.0, 50_000
SHOWN = 20
"""Greatest number of kinds of failures that are printed, each with its first example."""
TOLD = 4
"""Number of outcomes printed for each reader, the most frequent ones."""


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line, run the campaign, and print the result. Return 1 if there were failures."""
    given = read(words)
    readers = [reader for reader in READERS if not given.only or reader.name in given.only]
    if given.case is not None:
        return again(readers, given.seed, given.case)
    inputs = given.inputs or (FULL if given.full else QUICK)
    seconds = given.seconds or (None if given.full or given.inputs else QUICK_S)
    total = campaign(readers, given.seed, inputs, jobs=given.jobs, seconds=seconds)
    print(msgspec.json.encode(total).decode() if given.json else table(total))
    return 1 if total.failures else 0


def read(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.partition("\n")[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help=f"{QUICK} inputs, at most {QUICK_S:g} s (the default)")
    length.add_argument("--full", action="store_true", help=f"{FULL:,} inputs")
    length.add_argument("--inputs", type=int, help="so many inputs over all readers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=[reader.name for reader in READERS])
    parser.add_argument("--case", type=int, help="one input of one reader, again")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--seconds", type=float, help="begin nothing after so many seconds")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    if given.case is not None and len(given.only or ()) != 1:
        parser.error("--case needs one --only")
    return given


def again(readers: Sequence[Reader], seed: int, case: int) -> int:
    """Read one input again in this process, and print the outcome. Return 1 if it is a failure."""
    with tempfile.TemporaryDirectory() as folder:
        outcome, wrong = judged(readers[0], readers[0].samples(Path(folder)), seed, case)
    print(f"{readers[0].name} {case}: {outcome}")
    if wrong:
        print(wrong)
    return 1 if wrong else 0


def table(total: Total) -> str:
    """Return the result of a campaign as text."""
    lines = [f"seed {total.seed}: {sum(total.inputs.values()):,} inputs, {total.seconds:.0f} s", ""]
    for name, count in total.inputs.items():
        outcomes = sorted(total.outcomes[name].items(), key=lambda each: -each[1])
        told = ", ".join(f"{times:,} {outcome}" for outcome, times in outcomes[:TOLD])
        more = f", {len(outcomes) - TOLD} more" if len(outcomes) > TOLD else ""
        bounds = f"{total.slowest_s[name]:.1f} s, {total.largest_bytes[name] / 1e6:.0f} MB at most"
        lines.append(f"  {name:<14} {count:>7,} inputs  ({bounds})  {told}{more}")
    kinds = {failure.what.strip().rpartition("\n")[2]: failure for failure in reversed(total.failures)}
    for failure in list(reversed(kinds.values()))[:SHOWN]:
        lines += ["", f"WRONG: {failure.again(total.seed)}", *(f"    {line}" for line in failure.what.splitlines())]
    return "\n".join([*lines, "", f"{len(total.failures)} wrong, of {len(kinds)} kinds"])


if __name__ == "__main__":
    raise SystemExit(main())
