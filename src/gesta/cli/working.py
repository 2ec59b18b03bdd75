"""What `work` does: it looks at the record again and again, and goes on with what is due."""

import sys
from contextlib import redirect_stdout

import anyio

from gesta.address import open_record
from gesta.cli.loading import load_all
from gesta.cli.options import WorkOptions
from gesta.cli.talk import ANSWERED, count, json_line, put, say, short
from gesta.outcome import Outcome
from gesta.worker import Worker


def work(options: WorkOptions) -> int:
    """Go on with what is due, until Ctrl-C or, with --once, until nothing is; give the exit code."""
    address = options.target()
    agents, approver = load_all(options.agents)
    done, out = 0, sys.stdout

    def told(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        said = outcome.answer if outcome.reason == "answered" else ", ".join(w.what for w in outcome.waiting)
        if options.json:
            with redirect_stdout(out):
                put(json_line({"run": outcome.run, "session": outcome.session, "reason": outcome.reason, "said": said}))
        else:
            more = f": {short(said, 200)}" if said else ""
            say(f"run {outcome.run}, session {outcome.session}: {outcome.reason}{more}")

    async def main() -> None:
        async with open_record(address, approver=approver) as record:
            worker = Worker(record, agents, jobs=options.jobs)
            while True:
                found = await worker.look(told)
                if options.once and not found:
                    return
                if not options.once:
                    await anyio.sleep(options.every)

    try:
        with redirect_stdout(sys.stderr):  # what a tool prints is talk
            anyio.run(main)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    say(f"{count(done, 'turn')} went on." if done else "Nothing was due.")
    return ANSWERED
