"""What an agent costs when its process dies: it is killed at every write point, taken up, and counted.

Each life is a process of its own. The harness keeps a log that is not the record: what was committed, which effect
began and which returned, and where the process was killed, each line synced before anything follows it. So what is
said of the record is not said by the record. `python -m gesta.testing FILE.py:agent "message"` does the same.
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
    """Kill an agent's process before and after each of its write points; returns what became of its effects.

    Args:
        agent: where it is written, `FILE.py:NAME` or `dotted.module:NAME`; it is imported anew in each process.
        messages: what is sent to it, one turn each. Its approvals are given; what else it waits for is reported.
        cancel: also cancel the turn at each point, and send its message again in the same process.
        fail: also let the write after each point fail once, and send the message again in the same process.
        again: also kill the process that takes a killed one's turn up, at each of its first points.
        folder: where the records and the harness's logs are kept; without one they are removed.

    Raises:
        GestaError: the agent could not be run.

    Cost: about 50 ms and what the agent takes, three times for each write point.
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
