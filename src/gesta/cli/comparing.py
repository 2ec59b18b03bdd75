"""Commands that take runs again, elsewhere and side by side: `replay`, `fork`, `diff`, `case`."""

from gesta.cli.app import command
from gesta.cli.compare_options import CaseOptions, DiffOptions, ForkOptions, ReplayOptions


@command(ReplayOptions, example="gesta replay last agent.py:agent")
def replay(options: ReplayOptions) -> int:
    """Replay a run with the code of today, without effects.

    Models and tools answer what is on record. If the code goes another way, the exit code is 1, and both sides of the
    first different entry are shown. A tool that is named by --live runs, and its results are compared.
    """
    from gesta.cli import compared

    return compared.replay(options)


@command(ForkOptions, example="gesta fork last agent.py:agent --at 2")
def fork(options: ForkOptions) -> int:
    """Go on with a run from an earlier entry, changed.

    What comes before is shared and takes no space. A call that is on record is answered from it; another one goes
    live only if its tool is pure or named by --live, else the fork stops there.
    """
    from gesta.cli import compared

    return compared.fork(options)


@command(DiffOptions, example="gesta diff last last")
def diff(options: DiffOptions) -> None:
    """Compare two runs: entries, answers, effects, cost."""
    from gesta.cli import compared

    compared.diff(options)


@command(CaseOptions, example="gesta case add last agent.py:agent")
def case(options: CaseOptions) -> int:
    """Keep a run as a test, which pytest collects.

    `case add RUN FILE.py:NAME` writes it, `case accept FILE...` takes what the code does today into it. A case fails
    where the code calls another tool, with other arguments, or answers otherwise; a tool that is named by --live runs.
    """
    from gesta.cli import compared

    return compared.case(options)
