"""The loads of `benchmarks.targets`, each measured in a process of its own, beside its floor.

`python -m benchmarks._loads NAME [ARG ...]` prints one JSON object. CPU is the process's own, user and system together.
"""

import asyncio
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import apsw

import gesta
from benchmarks.steps import ANSWER, parcel, size
from benchmarks.steps import floor as floor_of_steps
from benchmarks.steps import run as run_steps
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.task import Task
from gesta.compat.langroid.tool_message import ToolMessage
from gesta.models.scripted import Keyless, spoken

MB = 1_000_000
UNLIMITED = gesta.Policy(limits=gesta.Limits(requests=None, calls=None))
LATENCY_S = 0.05
"""Of a model in `many`."""


def peak_kb() -> int:
    """Give the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def rss_kb() -> int:
    """Give the memory that this process has now; 0 where the system does not tell."""
    told = Path("/proc/self/statm")
    return int(told.read_text(encoding="ascii").split()[1]) * resource.getpagesize() // 1024 if told.exists() else 0


def steps(count: str, durability: str, rounds: str) -> dict[str, Any]:
    """Take turns of so many steps, each beside its floor."""
    found = []
    for _ in range(int(rounds)):
        with tempfile.TemporaryDirectory() as folder:
            path, n = Path(folder) / "r.gesta", int(count)
            cpu, commits = anyio.run(run_steps, path, n, durability)
            low = floor_of_steps(Path(folder) / "floor.db", n, synced=durability == "synced")
            text, entries = anyio.run(size, path)
            found.append((cpu / n * 1e6, low / n * 1e6, commits, path.stat().st_size, text, entries))
    cpus, lows, *rest = zip(*found, strict=True)
    commits, file, text, entries = (column[0] for column in rest)
    return {
        "us": [min(cpus), statistics.median(cpus)],
        "floor_us": [min(lows), statistics.median(lows)],
        "ratio": statistics.median(cpu / low for cpu, low in zip(cpus, lows, strict=True)),
        "commits": commits,
        "bytes": file,
        "text": text,
        "entries": entries,
        "peak_kb": peak_kb(),
    }


def resume(count: str) -> dict[str, Any]:
    """Go on with a run of so many steps in a process that knows nothing of it, then take a turn while it does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.gesta"
        cpu, _ = anyio.run(run_steps, path, int(count), "normal")
        rows = apsw.Connection(str(path)).execute("SELECT content FROM entries").fetchall()
        plain = apsw.Connection(str(Path(folder) / "floor.db"))
        plain.execute("CREATE TABLE rows (pos INTEGER PRIMARY KEY, text TEXT)")
        with plain:
            plain.executemany("INSERT INTO rows (text) VALUES (?)", rows)
        plain.close()
        floor = _again("read_rows", str(Path(folder) / "floor.db"))
        cold = [_again("resumed", str(path)) for _ in range(3)]
        return {
            "us": cpu / int(count) * 1e6,
            "entries": len(rows),
            "cold_s": statistics.median(one["cold_s"] for one in cold),
            "warm_ms": statistics.median(one["warm_ms"] for one in cold),
            "floor_s": floor["s"],
        }


def read_rows(path: str) -> dict[str, Any]:
    """Read and decode every row of a plain table."""
    start = time.process_time()
    for (text,) in apsw.Connection(path).execute("SELECT text FROM rows").fetchall():
        json.loads(text)
    return {"s": time.process_time() - start}


def resumed(path: str) -> dict[str, Any]:
    """Take a turn on a long run that this process has not seen, and more of them."""

    async def go() -> dict[str, Any]:
        model = Keyless(  # reads nothing of what it is asked; of the name that asked before, so it is sent what is new
            "scripted", lambda _request: ANSWER, spoken("scripted", stream=False)
        )
        acting = gesta.Agent("desk", model=model, tools=[parcel])
        start, warm = time.process_time(), []
        async with gesta.open(path) as record:
            await record.run(acting, "And now?", session="s")
            cold = time.process_time() - start
            for _ in range(5):
                start = time.process_time()
                await record.run(acting, "And now?", session="s")
                warm.append((time.process_time() - start) * 1000)
        return {"cold_s": cold, "warm_ms": statistics.median(warm)}

    return anyio.run(go)


def many(count: str) -> dict[str, Any]:
    """Take the turns of so many runs at once: four calls of a tool and an answer each, from a slow model."""
    runs = int(count)

    async def slow(messages: list[dict[str, Any]], _header: Any) -> Any:
        asked = sum(message["role"] == "tool" for message in messages)
        messages.clear()  # what a model elsewhere keeps is not kept here
        await anyio.sleep(LATENCY_S)
        return gesta.call("parcel", number=asked) if asked < 4 else ANSWER

    async def go(path: str) -> tuple[float, int]:
        acting = gesta.Agent("desk", model=gesta.function(slow), tools=[parcel])
        answered = []

        async def one(number: int) -> None:
            outcome = await record.run(acting, "Where?", session=f"s{number}")
            answered.append(outcome.reason)

        start = time.process_time()
        async with gesta.open(path, durability="normal") as record:
            async with anyio.create_task_group() as group:
                for number in range(runs):
                    group.start_soon(one, number)
            spent = time.process_time() - start
        return spent, answered.count("answered")

    with tempfile.TemporaryDirectory() as folder:
        before, path = peak_kb(), str(Path(folder) / "r.gesta")
        cpu, answered = anyio.run(go, path)
        query = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM entries WHERE kind = 'tool-result')"
        ((kept, results),) = apsw.Connection(path).execute(query).fetchall()
        kb, floor = (peak_kb() - before) / runs, _again("many_plain", count)
    lost = 3 * runs - answered - kept - (results == 4 * runs) * runs
    return {"us": cpu / runs / 5 * 1e6, "kb": kb, "lost": lost, "floor_us": floor["us"], "floor_kb": floor["kb"]}


def many_plain(count: str) -> dict[str, Any]:
    """Do the same in a plain loop: rows wait for a commit that takes all that came."""
    runs, waiting = int(count), list[tuple[str, "asyncio.Future[None]"]]()

    async def go(path: str) -> float:
        db = apsw.Connection(path)
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "normal")
        db.execute("CREATE TABLE rows (pos INTEGER PRIMARY KEY, text TEXT)")

        def commit() -> None:
            group, waiting[:] = waiting[:], []
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO rows (text) VALUES (?)", [(text,) for text, _ in group])
            db.execute("COMMIT")
            for _, future in group:
                future.set_result(None)

        async def one() -> None:
            for _ in range(5):
                await asyncio.sleep(LATENCY_S)
                for _ in range(2):
                    future = asyncio.get_running_loop().create_future()
                    waiting.append((json.dumps({"text": ANSWER}), future))
                    if len(waiting) == 1:
                        asyncio.get_running_loop().call_soon(commit)
                    await future

        start = time.process_time()
        await asyncio.gather(*(one() for _ in range(runs)))
        return time.process_time() - start

    with tempfile.TemporaryDirectory() as folder:
        before = peak_kb()
        cpu = asyncio.run(go(str(Path(folder) / "r.db")))
    return {"us": cpu / runs / 5 * 1e6, "kb": (peak_kb() - before) / runs}


def large(megabytes: str) -> dict[str, Any]:
    """Have a tool return a very large text, and read it back."""
    text = "x" * (int(megabytes) * MB)

    @gesta.tool(effect="pure")
    async def read_all() -> str:
        """Read all."""
        return text

    async def go(path: str) -> dict[str, Any]:
        acting = gesta.Agent("desk", model=gesta.scripted(gesta.call("read_all"), "Long."), tools=[read_all])
        before, start = peak_kb(), time.process_time()
        async with gesta.open(path, durability="normal") as record:
            outcome = await record.run(acting, "Read.", session="s")
            cpu = time.process_time() - start
            (result,) = [one for one in await record.read(outcome.run) if one.kind == "tool-result"]
        same = outcome.reason == "answered" and result.content.tool_result == text
        return {"s": cpu, "same": same, "peak_mb": (peak_kb() - before) / 1000}

    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(go, str(Path(folder) / "r.gesta"))
        low = apsw.Connection(str(Path(folder) / "floor.db"))
        low.execute("CREATE TABLE rows (pos INTEGER PRIMARY KEY, data BLOB)")
        start = time.process_time()
        low.execute("INSERT INTO rows (data) VALUES (?)", (json.dumps({"text": text}).encode(),))
        return found | {"floor_s": time.process_time() - start}


def team(count: str) -> dict[str, Any]:
    """Have two agents talk: one asks, the other answers, so many turns in all."""
    turns = int(count)

    def says(word: str) -> Keyless:  # reads nothing of what it is asked
        return Keyless(word, lambda request: f"{word} {len(request.blocks)}", spoken(word, stream=True))

    async def go(path: str) -> dict[str, Any]:
        async with gesta.open(path, durability="normal") as record:
            student, teacher = (
                Task(
                    ChatAgent(ChatAgentConfig(name=name, llm=says(name), policy=UNLIMITED), record=record),
                    interactive=False,
                    single_round=name == "teacher",
                )
                for name in ("student", "teacher")
            )
            student.add_sub_task(teacher)
            before, start = record.store.commits, time.process_time()
            await student.run_async("Begin.", turns=turns)
            cpu, commits = time.process_time() - start, record.store.commits - before
            table = await record.store.sql("SELECT count(*) FROM entries WHERE kind = 'chat-completion'")
            return {"ms": cpu / turns * 1000, "answers": table.rows[0][0], "commits": commits / turns}

    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(go, str(Path(folder) / "r.gesta"))


class ReadAll(ToolMessage):
    """A tool whose result is large."""

    request: str = "read_all"
    purpose: str = "To read all."
    size: int
    _tool_effect = "pure"

    def handle(self) -> str:
        return "x" * self.size


def task(kilobytes: str, rounds: str) -> dict[str, Any]:
    """Run a task whose tool gives a large result, and one whose tool gives a small one."""

    async def one(record: gesta.Record, number: int, size: int) -> float:
        llm = gesta.scripted(json.dumps({"request": "read_all", "size": size}), "DONE read")
        chat = ChatAgent(ChatAgentConfig(name=f"reader{number}", llm=llm), record=record)
        chat.enable_message(ReadAll)
        made = Task(chat, interactive=False)
        start = time.process_time()
        done = await made.run_async("Read.")
        assert done.content == "read", done
        return (time.process_time() - start) * 1000

    async def go(path: str) -> dict[str, Any]:
        async with gesta.open(path, durability="normal") as record:
            pairs = [
                (await one(record, 2 * n, int(kilobytes) * 1000), await one(record, 2 * n + 1, 10))
                for n in range(int(rounds))
            ]
            large, small = zip(*pairs[1:], strict=True)
            return {"ms": [min(large), statistics.median(large)], "small_ms": [min(small), statistics.median(small)]}

    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(go, str(Path(folder) / "r.gesta"))


def finished(first: str, more: str) -> dict[str, Any]:
    """Finish runs, then many more, and say how much memory one of the latter leaves behind."""

    async def go(path: str) -> dict[str, Any]:
        model = gesta.function(lambda messages, _: ANSWER if len(messages) > 1 else gesta.call("parcel", number=1))
        acting = gesta.Agent("desk", model=model, tools=[parcel])
        async with gesta.open(path, durability="normal") as record:
            for number in range(int(first)):
                await record.run(acting, "Where?", session=f"a{number}")
            gc.collect()
            before = rss_kb()
            for number in range(int(more)):
                await record.run(acting, "Where?", session=f"b{number}")
            gc.collect()
            return {"bytes": (rss_kb() - before) * 1024 / int(more)}

    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(go, str(Path(folder) / "r.gesta"))


def _again(name: str, *args: str) -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks._loads", name, *args]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


LOADS = {
    load.__name__: load for load in (steps, resume, read_rows, resumed, many, many_plain, large, team, task, finished)
}

if __name__ == "__main__":
    print(json.dumps(LOADS[sys.argv[1]](*sys.argv[2:])))
