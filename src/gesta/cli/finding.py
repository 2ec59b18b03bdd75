"""Commands that look through a whole record: `sessions`, `find`, `stats`.

A record is the store of all runs, and a session is one conversation. The docstrings are help texts.
"""

from gesta.cli.app import command
from gesta.cli.record_options import FindOptions, SessionsOptions, StatsOptions


@command(SessionsOptions, example="gesta sessions refund --stands waiting")
def sessions(options: SessionsOptions) -> None:
    """List the sessions that fit the options, with their cost and state.

    The viewer shows the same list. The sums are over all sessions that fit, also those that are not listed.
    """
    from gesta.cli import session_table

    session_table.sessions(options)


@command(FindOptions, example="gesta find refund --kinds tool-call,tool-result")
def find(options: FindOptions) -> None:
    """Find words in messages, tool calls, results and answers.

    The command also searches the thoughts of models, and texts that were shown to people.
    """
    from gesta.cli import search

    search.find(options)


@command(StatsOptions, example="gesta stats --by tool")
def stats(options: StatsOptions) -> None:
    """Count cost, tokens, latencies and errors by day, model or tool.

    Unknown prices and unknown counts of tokens are counted apart, not as 0.
    """
    from gesta.cli import search

    search.stats(options)
