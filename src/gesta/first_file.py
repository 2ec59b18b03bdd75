"""Prints a hint about keeping the record in a file, if a program named no file for it.

The record is the stored history of all that the agents did. Without a file, it exists only in memory. The hint is
printed at most once per process, and only for a program that a person started as a file. A library that calls
`run_sync`, a test and the interactive prompt get no hint. Nor does a program that names any record, even `:memory:`.
"""

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType

NOTE = """\
gesta: the record of this run was in memory, and is gone. To keep it, name a file:
    gesta.run_sync(..., record="runs.gesta")
and then ask what its answer was made from:  gesta why last
(record=":memory:" keeps none, and is silent.)
"""
UNDER_TEST = "PYTEST_CURRENT_TEST"
"""Environment variable that pytest sets while a test runs, also for processes that the test starts."""


def tell(caller: FrameType) -> None:
    """Write the hint to standard error, if the calling module is a file that was started as a program.

    The second and later calls in a process write nothing.
    """
    names = caller.f_globals
    if names.get("__name__") == "__main__" and UNDER_TEST not in os.environ and _is_file(names.get("__file__")):
        _write()


def _is_file(path: object) -> bool:
    with suppress(OSError, ValueError):
        return isinstance(path, str) and Path(path).is_file()
    return False


@cache
def _write() -> None:
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(NOTE)
            sys.stderr.flush()
