"""The crash test: it kills an agent's process at many points, resumes the turn, and counts the effects of the tools.

A record is the store of all runs. A point is a moment before or after a write to the record, or before or after a
tool's function runs. Each process of the agent is called a life. The test keeps a log of its own beside the record:
which entries were committed, which effects began and returned, and where the process was killed. Each line is on disk
before the process continues, so the log proves which entries and effects the record lacks. `python -m gesta.testing
FILE.py:agent "message"` runs the same test.
"""

import subprocess
import sys
from os import PathLike, fspath

import msgspec

from gesta.errors import GestaError
from gesta.testing.crashes.report import Report

__all__ = ["Report", "crash_test"]


def crash_test(
    agent: str,
    *messages: str,
    folder: str | PathLike[str] | None = None,
    cancel: bool = False,
    fail: bool = False,
    again: bool = False,
) -> Report:
    """Kill an agent's process at each point that it passes, resume the turn in a new process, and return a report.

    Args:
        agent: address of the agent, `FILE.py:NAME` or `dotted.module:NAME`; each process imports it again.
        messages: messages to the agent, one turn each. Calls that wait for approval are approved. If a turn waits for
            anything else, the report says so.
        cancel: also make a trial for each point in which the turn is cancelled there; the same process then sends the
            message again.
        fail: also make a trial for each point in which the next write fails once; the same process then sends the
            message again.
        again: also make trials in which the process that resumes the turn is killed too, at one of its first points.
        folder: where the records and the test's logs are kept; by default they are removed.

    Raises:
        GestaError: the agent could not be run.

    Cost: about three processes for each point. Each process takes 50 ms and the time of the agent.
    """
    command = [sys.executable, "-m", "gesta.testing", agent, *messages, "--json"]
    command += ["--folder", fspath(folder)] if folder is not None else []
    command += [f"--{name}" for name, wanted in (("cancel", cancel), ("fail", fail), ("again", again)) if wanted]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - it is this Python, and no shell
    if done.returncode not in {0, 1}:
        raise GestaError(
            done.stderr.decode(errors="replace").strip() or f"The crash test ended with {done.returncode}."
        )
    return msgspec.json.decode(done.stdout, type=Report)
