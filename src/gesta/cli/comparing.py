"""Commands that run a recorded run again, change it, or compare it: `replay`, `fork`, `diff`, `case`.

A run is one conversation of an agent, recorded as a list of entries. An effect is what a tool does to the world
outside. The docstrings are help texts.
"""

from gesta.cli.app import command
from gesta.cli.compare_options import CaseOptions, DiffOptions, ForkOptions, ReplayOptions


@command(ReplayOptions, example="gesta replay last agent.py:agent")
def replay(options: ReplayOptions) -> int:
    """Replay a run with the present code, without effects.

    Models and tools answer with what is on record. If the code does something else, both versions of the first
    different entry are shown, and the exit code is 1. A tool that --live names really runs, and its results are
    compared.
    """
    from gesta.cli import compared

    return compared.replay(options)


@command(ForkOptions, example="gesta fork last agent.py:agent --at 2")
def fork(options: ForkOptions) -> int:
    """Continue a run from an earlier entry, with changes.

    The fork is a new run, which shares the entries up to that one. A call that is on record gets its recorded result.
    Any other call runs only if its tool is pure (it only reads), or if --live names the tool. Otherwise the fork waits
    for approval of that call.
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

    `case add RUN FILE.py:NAME` writes a case. `case accept FILE...` updates cases to what the code does now. A case
    fails if the code calls another tool, passes other arguments, or gives another answer. A tool that --live names
    really runs.
    """
    from gesta.cli import compared

    return compared.case(options)
