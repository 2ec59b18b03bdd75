"""Prints how Gesta's loop over recorded model outputs agrees with the recorded tool results and end states.

Run `python -m benchmarks.retail`; it ends with 1 if anything differs, with 0 if the corpus is absent (and says so).
"""

import sys

import anyio

from benchmarks.retail.corpus import FILES, corpus_folder
from benchmarks.retail.drive import drive
from benchmarks.retail.reexecute import COLUMNS, row


def main() -> int:
    """Print the table, a line per file."""
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
