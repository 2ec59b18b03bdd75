"""Prints how the results of Gesta's loop agree with recorded tool results and end states.

The model outputs are recorded.

Run `python -m benchmarks.retail`. The exit code is 1 if anything differs, and 0 if the corpus is missing (it says so).
"""

import sys

import anyio

from benchmarks.retail.corpus import FILES, corpus_folder
from benchmarks.retail.drive import drive
from benchmarks.retail.reexecute import COLUMNS, row


def main() -> int:
    """Print the table, with a line for each file. Return 1 if anything differs."""
    if not corpus_folder().is_dir():
        print(f"SKIPPED: no corpus at {corpus_folder()}; set GESTA_CORPUS to its folder")
        return 0
    print(row(COLUMNS))
    complete = True
    for file in FILES:
        tally = anyio.run(drive, file)
        print(row([str(getattr(tally, name)) for name in COLUMNS]), flush=True)
        complete = complete and tally.complete()
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
