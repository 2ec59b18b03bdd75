"""Commands that look through a whole record: `find`, `stats`."""

from gesta.cli.app import command
from gesta.cli.record_options import FindOptions, StatsOptions


@command(FindOptions, example="gesta find refund --kinds tool-call,tool-result")
def find(options: FindOptions) -> None:
    """Find words in messages, tool calls, results and answers.

    It searches what people sent and were shown, what models wrote and thought, and arguments and results of calls.
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
