"""Implements the command `work`, which checks the record again and again, and resumes the runs that are due.

A record is the store of all runs. A run is due if its turn was interrupted, if a person has answered it, or if its time
has come.
"""

import sys
from contextlib import redirect_stdout

import anyio

from gesta.address import open_record
from gesta.cli.loading import load_all, with_default, with_servers
from gesta.cli.options import WorkOptions
from gesta.cli.talk import ANSWERED, BROKEN_PIPE, FAILED, RED, count, json_line, put, say, short
from gesta.cli.tracing import traced
from gesta.errors import message_of
from gesta.events import Outcome
from gesta.worker import Failed, Worker

MOST = 500
"""Greatest number of characters of a failure that are shown."""


def work(options: WorkOptions) -> int:
    """Resume runs that are due, until Ctrl-C, SIGTERM or, with --once, until no run is due. Returns the exit code.

    Raises:
        WriteFailed: with --once, the record cannot be read.
    """
    address = options.target()
    agents, approver = load_all(options.agents)
    agents = with_servers(with_default(agents, options.model), options.mcp)
    work = _Work(options)

    async def main() -> None:
        async with open_record(address, approver=approver) as record, traced(record):
            await work.on(Worker(record, agents, jobs=options.jobs, failed=work.failed))

    try:
        with redirect_stdout(sys.stderr):  # output of tools goes to stderr
            anyio.run(main)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    if work.unread:
        return BROKEN_PIPE
    if work.left:
        say(f"{count(work.left, 'turn')} left open, for the next worker.")
    if work.waits:
        say(f"{count(work.waits, 'turn')} {'waits' if work.waits == 1 else 'wait'}.")
    if work.done or not (work.left or work.waits):
        say(f"{count(work.done, 'turn')} went on." if work.done else "Nothing was due.")
    return FAILED if options.once and work.failures else ANSWERED


class _Work:
    """Prints the outcomes of the turns that a worker runs, and counts successes and failures."""

    def __init__(self, options: WorkOptions) -> None:
        self._options, self._out = options, sys.stdout
        self.done = self.waits = 0
        self.failures = 0
        self.left = 0
        """Number of turns that were at work when the command was stopped."""
        self.unread = False
        """Whether nobody reads the output any more, so that the command stops."""
        self._scope: anyio.CancelScope | None = None

    async def on(self, worker: Worker) -> None:
        """Run turns with the worker until the command is stopped; with --once, until nothing is due."""
        with anyio.CancelScope() as self._scope:
            while self._options.once and await worker.look(self.told):
                pass
            if not self._options.once:
                await worker.work(self.told, every_s=self._options.every, stopping=self.stopping)

    def told(self, outcome: Outcome) -> None:
        """Print how a turn ended, or what it waits for."""
        self.done += outcome.end is not None
        self.waits += outcome.end is None
        said = outcome.answer if outcome.reason == "answered" else ", ".join(w.what for w in outcome.waiting)
        if self._options.json:
            self._put({"run": outcome.run, "session": outcome.session, "reason": outcome.reason, "said": said})
        else:
            more = f": {short(said, 200)}" if said else ""
            say(f"run {outcome.run}, session {outcome.session}: {outcome.reason}{more}")

    def failed(self, failed: Failed) -> None:
        """Print that a run could not be resumed."""
        self.failures += 1
        say(short(str(failed), MOST), RED)
        if self._options.json:
            error = {"type": type(failed.failure).__name__, "message": message_of(failed.failure)}
            found = {"run": failed.run, "session": failed.session, "error": error}
            self._put({**found, "tries": failed.tries, "again_s": failed.again_s})

    def stopping(self, turns: int) -> None:
        """Print that the command is stopping, if turns are still running."""
        self.left = turns
        if turns and not self.unread:
            say(f"\nStopping: {count(turns, 'turn')} at work. Ctrl-C again ends at once.")

    def _put(self, line: dict[str, object]) -> None:
        try:
            with redirect_stdout(self._out):
                put(json_line(line))
        except BrokenPipeError:
            self.unread = True
            if self._scope is not None:
                self._scope.cancel()
