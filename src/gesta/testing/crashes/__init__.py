"""The crash test: an agent's process is killed at every write point, its turn is resumed, and its effects are counted.

Each life of the agent is a process of its own. The harness keeps a log beside the record: which entries were committed,
which effects began and returned, and where the process was killed. Each line is synced before the process continues. So
the record is judged by an independent source. `python -m gesta.testing FILE.py:agent "message"` runs the same test.
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
    """Kill an agent's process before and after each of its write points, and return a report on its effects.

    Args:
        agent: address of the agent, `FILE.py:NAME` or `dotted.module:NAME`; it is imported anew in each process.
        messages: messages to the agent, one turn each. Calls are approved; other things that it waits for are reported.
        cancel: also cancel the turn at each point, and send its message again in the same process.
        fail: also make the write after each point fail once, and send the message again in the same process.
        again: also kill the process that resumes the turn of a killed one, at each of its first points.
        folder: where the records and the harness's logs are kept; by default they are removed.

    Raises:
        GestaError: the agent could not be run.

    Cost: about 50 ms and the time of the agent, three times for each write point.
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
