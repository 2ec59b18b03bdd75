"""The command `python -m gesta.testing FILE.py:agent "message" …`, which runs the crash test.

A record is the store of all runs. A turn is one message to the agent with all that follows until its answer. A point is
a moment before or after a write or a tool's function. Each trial has a record of its own. In the first trial no process
is killed, which shows how many points there are. In each other trial, the first process is killed at one of the points,
and a second process runs to the end. In the last trial every process is killed, each one point later than the process
before it, until a process reaches the end.
"""

# ruff: noqa: T201 - a command prints

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from gesta.cli.loading import load
from gesta.errors import GestaError
from gesta.testing.crashes.life import Scene, judged, lived, ready
from gesta.testing.crashes.report import Report
from gesta.testing.crashes.witness import Strike

RECORD, WITNESS = "record.gesta", "witness.jsonl"
STRIKES: dict[str, Strike] = {"cancel": "cancelled", "fail": "failed"}
AGAIN = 12
"""Number of points at the beginning of the second process. The option `again` kills the process at one of these."""
DESCRIPTION = """Kill an agent's process before and after each of its writes, take the turn up again, and say what
became of its effects. The exit code is 0, or 1 if a promise of Gesta was broken (an entry was lost, an effect happened
twice), or 2 if the test could not run."""
NO_TOOL = "No tool ran, so nothing could happen twice. Send a message about which the agent calls its tools."
WRONG = 50  # greatest number of broken promises that are shown


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line, run the test, and print its findings.

    Return 0, or 1 if a promise of Gesta was broken (an entry was lost, an effect happened twice), or 2 if the test
    could not run.
    """
    parser = argparse.ArgumentParser(prog="python -m gesta.testing", description=DESCRIPTION)
    parser.add_argument("agent", help="FILE.py:NAME or dotted.module:NAME")
    parser.add_argument("message", nargs="+", help="what is sent to it, one turn each")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--folder", type=Path, help="keep the records and the harness's logs there")
    parser.add_argument("--cancel", action="store_true", help="also cancel the turn at each point, and go on")
    parser.add_argument("--fail", action="store_true", help="also let the write after each point fail once, and go on")
    parser.add_argument("--again", action="store_true", help="also kill the process that takes the turn up")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="strike at each N-th point alone")
    given = parser.parse_args(words)
    if given.every < 1:
        parser.error(f"argument --every: {given.every} is below 1")
    chosen = [name for name in ("cancel", "fail", "again") if getattr(given, name)]
    try:
        with tempfile.TemporaryDirectory(prefix="gesta-crash-") as passing:
            ready(Path(passing))
            report = swept(given.agent, given.message, given.folder or Path(passing), chosen, given.every)
    except (GestaError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(msgspec.json.encode(report).decode() if given.json else table(report))
    return 0 if report.ok else 1


def swept(agent: str, messages: Sequence[str], folder: Path, chosen: Sequence[str] = (), every: int = 1) -> Report:
    """Kill an agent's process at each point that the process passes, and return the report.

    Args:
        agent: address of the agent.
        messages: messages to the agent, one turn each.
        folder: where the records and the test's logs are written.
        chosen: further trials at each point, each in a record of its own: `cancel` cancels the turn, `fail` makes the
            next write fail, `again` also kills the second process.
        every: use only each `every`-th point. The trial that kills every process uses all points.

    Raises:
        GestaError: the agent could not be run.
    """
    scenes: list[Scene] = []

    def scene(name: str) -> Scene:
        place = folder / name
        place.mkdir(parents=True)
        one = Scene(agent=partial(load, agent), messages=messages, record=str(place / RECORD), witness=place / WITNESS)
        scenes.append(one)
        return one

    lived(scene("0"), 1, None)
    for point in range(1, (points := judged(*scenes).points) + 1, every):
        one = scene(str(point))
        lived(one, 1, point)
        lived(one, 2, None)
        for name in chosen:
            other = scene(f"{point}-{name}")
            if name == "again":
                lived(other, 1, point)
                lived(other, 2, 1 + point % AGAIN)
            else:
                lived(other, 1, point, strike=STRIKES[name])
            lived(other, 3, None)
        _progress(f"struck at point {point} of {points}")
    last, number = scene("all"), 1
    while lived(last, number, number):
        number += 1
        _progress(f"one record, killed {number - 1} times")
    total = judged(*scenes)
    total.agents, total.points = 1, points
    _progress("")
    return total


def table(report: Report) -> str:
    """Return a report as text for people."""
    tools = [("tool", "effect", "calls", "fired", "max_fired")]
    tools += [
        (name, count.effect, str(count.calls), str(count.fired), str(count.max_fired))
        for name, count in sorted(report.tools.items())
    ]
    places = Counter((doubt.tool, _short(doubt.killed, doubt.tool), doubt.settled) for doubt in report.doubts)
    doubts = [("in doubt", "times", "killed", "then")]
    doubts += [(tool, str(times), killed, then) for (tool, killed, then), times in sorted(places.items())]
    turns = [("turns", "times"), *((how, str(times)) for how, times in sorted(report.turns.items()))]
    facts = [
        ("agents", report.agents),
        ("records", report.records),
        ("write points of an unharmed life", report.points),
        ("kills", report.kills),
        ("turns cancelled", report.cancels),
        ("writes failed", report.failed_writes),
        ("entries and letters acknowledged", report.acknowledged),
        ("of these missing", len(report.missing)),
        ("model answers bought again", report.bought_again),
        ("doubts", len(report.doubts)),
        ("wrong", len(report.wrong)),
    ]
    parts = [_laid([(name, str(value)) for name, value in facts])]
    parts += [_laid(rows) for rows in (tools, doubts, turns) if len(rows) > 1]
    parts += [NO_TOOL] if len(tools) == 1 else []
    return "\n\n".join([*parts, "\n".join(f"WRONG: {each}" for each in report.wrong[:WRONG])]).rstrip()


def _short(point: str, tool: str) -> str:
    """Return a shorter name of a point, such as `before the commit` for `before the commit of end`.

    A tool other than `tool` is called `another tool`.
    """
    words = point.split(" ")
    if words[-1] in ("starts", "returned") and words[1] != tool:
        words[1] = "another tool"
    return " ".join(words).partition(" of ")[0]


def _laid(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as text in aligned columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _progress(text: str) -> None:
    """Show a text on the terminal's last line. If stderr is not a terminal, do nothing."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
