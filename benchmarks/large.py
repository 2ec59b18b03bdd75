"""Measures how long it takes to open, list, search, copy and prune a large record.

    python -m benchmarks.large [ENTRIES] [--record FILE]

It makes a record of 1,000,000 entries, 20 a run, and times each operation once, so nothing is cached by an earlier try.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio

from gesta import kinds
from gesta.address import drive, inline_store, open_record
from gesta.entry import run_id
from gesta.log.journal import Journal, open_root
from gesta.store import Store
from gesta.stores.pruning import Choice, Pruner, plan, prune
from gesta.stores.sqlite_backup import backup
from gesta.stores.words import Wanted, find
from gesta.views.stats import stats

A_RUN = 20  # number of entries in a run
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = "the customer asks whether order can be returned because lamp arrived broken and wants money back soon"
WORDS = TEXT.split()
MAIN = [sys.executable, "-c", "from gesta.cli import main; main()"]


def contents(number: int) -> Iterator[kinds.Content]:
    """Yield the contents of a run with two tool calls, after the `begin` that opens it.

    Texts have about 300 characters.
    """
    said = " ".join(WORDS[(number * 7 + place * 5) % len(WORDS)] for place in range(50))
    usage = {"prompt_tokens": 400 + number % 100, "completion_tokens": 60}
    yield kinds.UserContent(value=f"{said} W{number:07}")
    yield kinds.RequestHeaderContent(meta={"model": f"openai:model-{number % 3}", "instructions": said})
    for call in range(3):
        yield kinds.RequestContent(header=3, blocks=[[[2], "tool-calls/1+chat-completions/1"]], body_digest="0" * 64)
        yield kinds.ChatCompletionContent(output=said, usage=usage, latency_ms=500.0 + number % 1000)
        if call < 2:
            yield kinds.ToolCallContent(tool_name=f"look_{number % 5}", tool_args={"order": f"W{number:07}", "n": call})
            yield kinds.AttemptContent(of=6 + 5 * call, number=1, epoch=1)
            status: Literal["error", "ok"] = "error" if number % 17 == 0 else "ok"
            yield kinds.ToolResultContent(tool_result={"note": said, "left": number}, call=6 + 5 * call, outcome=status)
    yield kinds.AssistantContent(value=said)


async def make(store: Store, entries: int) -> None:
    """Write the record, with one commit for each run."""
    for number in range(entries // A_RUN):
        session, clock = f"s-{number:06}", partial(FIRST.__add__, timedelta(minutes=number))
        run = run_id(store.info.id, session, "desk")
        lease = await store.lease(run)
        journal = Journal(store, lease, clock)
        opened = kinds.Opened(session=session, name=f"desk-{number % 4}", record=store.info.id)
        log = open_root(journal, kinds.BeginContent(name="desk", role="turn"), opened)
        for content in contents(number):
            log.write(content)
        log.write(kinds.KeyValueContent(key="number", value=number))
        log.write(kinds.EndContent(reason="answered"))
        await journal.durable()
        await store.release(lease)


@contextmanager
def timed(what: str, note: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Print how long the block took, in wall and CPU time."""
    began, cpu = time.perf_counter(), time.process_time()
    yield
    took, spent = time.perf_counter() - began, time.process_time() - cpu
    print(f"{what:<52} {took:8.3f} s  {spent:8.3f} s CPU  {note()}", flush=True)


def command(path: Path, *words: str) -> None:
    """Run a command of `gesta` in a process of its own, and print how long it took."""
    with timed(f"gesta {' '.join(words)}"):
        subprocess.run([*MAIN, *words, "--record", str(path)], check=True, capture_output=True)


async def look(path: Path) -> None:
    """Time operations that only read."""
    for readonly in (True, False):
        with timed(f"open {'for reading' if readonly else 'for writing'}"):
            async with open_record(str(path), readonly=readonly):
                pass
    async with open_record(str(path), readonly=True) as record:
        found: list[Any] = []
        with timed("list every run", lambda: f"{len(found):,}"):
            found += await record.store.runs()
        with timed("list every session by SQL"):
            await record.store.sql("SELECT session, count(*), max(last_at) FROM runs GROUP BY session")
        with timed("find a run by its session"):
            await record.find(found[len(found) // 2].session)
        for by in ("day", "tool"):
            with timed(f"stats by {by}"):
                await stats(record.store, by)


async def words(path: Path) -> None:
    """Time the search, before and after its index exists."""
    async with open_record(str(path)) as record:
        size = path.stat().st_size  # noqa: ASYNC240
        looks: list[tuple[str, Coroutine[Any, Any, Any]]] = [
            ("find a word for the first time: makes the index", find(record.store, Wanted(words="W0000042"))),
            ("find a word that stands in one run", find(record.store, Wanted(words="W0000043"))),
            ("find a word that stands everywhere, newest first", find(record.store, Wanted(words="lamp"))),
            ("the same, best first", find(record.store, Wanted(words="lamp", best=True))),
            ("the same, in one session", find(record.store, Wanted(words="lamp", session="s-000043"))),
        ]
        for what, work in looks:
            with timed(what):
                await work
    print(f"the index takes {(path.stat().st_size - size) / size:.0%} of the record")  # noqa: ASYNC240


async def thin(path: Path) -> None:
    """Time operations that remove entries."""
    async with open_record(str(path)) as record:
        runs = await record.store.runs()
        with timed("say what a tenth of the runs would be"):
            found = await plan(record.store, Choice(before=runs[len(runs) // 10].last_at))
        with timed("prune them", lambda: f"{len(found.runs):,} runs"):
            await prune(record.store, found, Pruner(by="benchmark"))
        with timed("write the file anew"):
            await record.store.shrink()


def main() -> None:
    """Make the record, and time all operations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--record", type=Path, help="where it is made, and left")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.record or Path(folder, "large.gesta")
        if not path.exists():
            with timed(f"make {options.entries:,} entries"):
                store = inline_store(str(path), durability="normal")
                drive(make(store, options.entries))
                drive(store.close())
        print(f"{path.stat().st_size / 1e6:,.0f} MB")
        anyio.run(look, path)
        command(path, "runs")
        command(path, "runs", "--size")
        command(path, "log", "last")
        with timed("backup"):
            backup(str(path), str(Path(folder, "copy.gesta")))
        anyio.run(words, path)
        anyio.run(thin, path)
        command(path, "verify")


if __name__ == "__main__":
    main()
