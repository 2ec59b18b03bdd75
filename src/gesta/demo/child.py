"""The process that part 2 of the demo kills. It runs the conversation with a refund tool that kills its own process.

python -m gesta.demo.child RECORD SESSION --by NAME [--kill after|before] [--model M] [--base-url URL]
"""

import argparse
import sqlite3
from collections.abc import Callable
from typing import Any, ParamSpec

import anyio
import msgspec

import gesta
from gesta import demo
from gesta.demo import shop
from gesta.demo.driver import drive, staffed
from gesta.testing.crashes.witness import die

P = ParamSpec("P")


def killed_after(function: Callable[P, Any]) -> Callable[P, Any]:
    """Return a function that calls `function` and then kills this process, before a result is returned."""

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        function(*args, **kwargs)
        die()

    return wrapped


def killed_before_commit(order_id: int, amount: str, reason: str, context: gesta.Context) -> dict[str, Any]:
    """Book a refund like the tool `refund`, but kill this process instead of committing."""

    def commit(_connection: sqlite3.Connection) -> None:
        die()

    return shop.book(demo.its_shop(context), demo.refund_asked(order_id, amount, reason, context), commit)


def doomed(agent: gesta.Agent, when: str) -> gesta.Agent:
    """Return a copy of the agent whose refund tool kills the process.

    Args:
        when: `after` or `before` the shop's commit.
    """
    function = killed_after(demo.refund.function) if when == "after" else killed_before_commit
    refund = msgspec.structs.replace(demo.refund, function=function)
    tools = [refund if tool.name == refund.name else tool for tool in agent.tools]
    return msgspec.structs.replace(agent, tools=tools)


async def run(given: argparse.Namespace) -> gesta.Outcome:
    """Run the conversation until it ends, or until this process is killed. Return the outcome of the last turn."""
    agent = doomed(staffed(given.model, given.base_url), given.kill)
    async with gesta.open(given.record) as record:
        return await drive(record, agent, given.session, given.by)


def main() -> int:
    """Read the command line, run the conversation, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("record")
    parser.add_argument("session")
    parser.add_argument("--by", required=True)
    parser.add_argument("--kill", choices=("after", "before"), default="after")
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    outcome = anyio.run(run, parser.parse_args())
    return 0 if outcome.reason == "answered" else 1


if __name__ == "__main__":
    raise SystemExit(main())
