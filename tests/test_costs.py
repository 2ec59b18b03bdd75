"""What a turn passes and what a step calls, counted: the same on every machine, and it only ever goes down."""

import gc
import itertools
import json
import sys
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import apsw
import pytest
from tests.conftest import tried

import gesta
from gesta.importers.file import TOGETHER, import_file
from gesta.text.redactor import SECRETS

FILES, FUNCTIONS = 42, 250
"""Of Gesta, in a turn of two model calls and a tool; by qualified names, without lambdas and comprehensions."""
CALLS = {"{}/r.gesta": (237, 297), ":memory:": (220, 255)}
"""Of Python and of C, in one more step of a function model that is handed its messages."""
RESUMED = 74, 71
"""Of Python and of C, for each step of a run that is folded anew, its request included."""
RUNS = tried(60, 200, 200)
RUN_KB = 40
"""Of memory, of one of many runs at once whose model is asked for the third time; Python differs from version to version."""
IMPORTED = (16, 36, 230, 2.2)
"""Calls of Python and of C, and bytes beyond 1.05 times the file, of one more imported entry; statements of one more
conversation."""
STEPS = 60
STEP_KB = 9
"""Of memory that a step of a conversation of 480 to 600 messages takes for a moment, a list of them included."""


@pytest.fixture(autouse=True)
def no_secrets() -> None:
    """Forget the secrets of other tests, which would be looked for in every text."""
    SECRETS.forget()


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: 21 degrees, dry"


@gesta.tool(effect="pure")
async def parcel(number: int) -> str:
    """Where a parcel is."""
    return "On its way. " * (25 + number % 2)


async def test_a_turn_of_two_model_calls_and_a_tool_passes_few_files_and_functions(tmp_path: Path) -> None:
    look, said = gesta.call("weather", city="Rome"), "Rome is dry."
    agent = gesta.Agent("guide", model=gesta.scripted(look, said, look, said, stream=False), tools=[weather])
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and "/gesta/" in code.co_filename and "<" not in code.co_name:
            calls[code.co_filename.split("/gesta/")[-1], code.co_qualname] += 1

    async with gesta.open(f"{tmp_path}/r.gesta", durability="normal") as record:
        await record.run(agent, "a", session="s")
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            await record.run(agent, "b", session="s")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    files = {file for file, _ in calls}
    print(f"{len(files)} files, {len(calls)} functions, {calls.total()} calls of Gesta's functions")
    assert len(files) <= FILES
    assert len(calls) <= FUNCTIONS


async def test_a_resume_makes_few_calls_for_each_step_that_it_folds(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()

    def note(_: FrameType, event: str, __: Any) -> None:
        counts[event] += 1

    async def resumed(address: str, agent: gesta.Agent) -> tuple[int, int]:
        async with gesta.open(address, durability="normal") as record:
            await record.run(agent, "Where?", session="warm")
            counts.clear()
            sys.setprofile(note)
            try:
                await record.run(agent, "And now?", session="s")
            finally:
                sys.setprofile(None)
            return counts["call"], counts["c_call"]

    limits, found = gesta.Limits(requests=None, calls=None), list[tuple[int, int]]()
    for steps in (STEPS, 2 * STEPS):
        script = [gesta.reply(text="Let me look.", calls=[gesta.call("parcel", number=n)]) for n in range(steps)]
        model = gesta.scripted(*script, *["Done."] * 4, stream=False)
        agent = gesta.Agent("desk", model=model, tools=[parcel], policy=gesta.Policy(limits=limits))
        address = f"{tmp_path}/{steps}.gesta"
        async with gesta.open(address, durability="normal") as record:
            await record.run(agent, "Where?", session="s")
        found.append(min([await resumed(address, agent) for _ in range(3)]))  # a commit gives way by the clock
    calls = [(more - few) / STEPS for few, more in zip(*found, strict=True)]
    print(f"a resume makes {calls[0]:.1f} Python and {calls[1]:.1f} C calls for each step")
    assert calls[0] <= RESUMED[0]
    assert calls[1] <= RESUMED[1]


@pytest.mark.parametrize("where", CALLS)
async def test_one_more_step_makes_few_calls(where: str, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    at: list[tuple[int, int]] = []

    def note(_: FrameType, event: str, __: Any) -> None:
        counts[event] += 1

    def choose(messages: list[Any], _header: Any) -> Any:
        at.append((counts["call"], counts["c_call"]))
        done = (len(messages) - 1) // 2
        return gesta.reply(text="Let me look.", calls=[gesta.call("parcel", number=done)]) if done < STEPS else "Done."

    limits = gesta.Limits(requests=None, calls=None)
    agent = gesta.Agent("desk", model=gesta.function(choose), tools=[parcel], policy=gesta.Policy(limits=limits))
    async with gesta.open(where.format(tmp_path), durability="normal") as record:
        await record.run(agent, "Where?", session="warm")
        at.clear()
        sys.setprofile(note)
        try:
            await record.run(agent, "Where?", session="s")
        finally:
            sys.setprofile(None)
    steps = [(after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(at)]
    fewest = min(steps)  # a commit gives way to other tasks now and then, by the clock
    print(f"one more step, {where}: {fewest[0]} Python and {fewest[1]} C calls")
    assert len(steps) == STEPS
    assert fewest[0] <= CALLS[where][0]
    assert fewest[1] <= CALLS[where][1]


async def test_a_step_of_a_long_conversation_copies_no_message() -> None:
    at: list[tuple[int, int]] = []

    @gesta.tool(effect="pure")
    async def look(number: int) -> str:
        """Look."""
        at.append(tracemalloc.get_traced_memory())
        tracemalloc.reset_peak()
        return "On its way. " * (25 + number % 2)

    def choose(messages: list[Any], _header: Any) -> Any:
        done = (len(messages) - 1) // 2
        return gesta.call("look", number=done) if done < 5 * STEPS else "Done."

    limits = gesta.Limits(requests=None, calls=None)
    agent = gesta.Agent("desk", model=gesta.function(choose), tools=[look], policy=gesta.Policy(limits=limits))
    async with gesta.open(":memory:") as record:
        tracemalloc.start(1)
        try:
            await record.run(agent, "Where?")
        finally:
            tracemalloc.stop()
    took = [most - before for (before, _), (_, most) in itertools.pairwise(at[-STEPS:])]
    found = sorted(took)[STEPS // 2]  # in some of them a list grows
    print(f"a step after {4 * STEPS} others and more takes {found / 1000:.1f} kB for a moment")
    assert found <= STEP_KB * 1000


@pytest.mark.slow
async def test_one_of_many_runs_at_once_takes_little_memory(tmp_path: Path) -> None:
    gate, asked, sizes = anyio.Event(), list[int](), list[int]()

    async def slow(request: Any) -> Any:
        asked.append(request.answered)
        if len(asked) == RUNS:
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
            gate.set()
        await gate.wait()
        return "Done."

    calls = [gesta.call("parcel", number=number) for number in range(2)]
    agent = gesta.Agent("desk", model=gesta.scripted(*calls, slow), tools=[parcel])
    async with gesta.open(f"{tmp_path}/r.gesta", durability="normal") as record:
        await record.run(gesta.Agent("desk", model=gesta.scripted(*calls, "Done."), tools=[parcel]), "Where?")
        tracemalloc.start(1)
        try:
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
            async with anyio.create_task_group() as group:
                for number in range(RUNS):
                    group.start_soon(record.run, agent, f"Where is {number}?")
        finally:
            tracemalloc.stop()
    before, then = sizes
    found = (then - before) / RUNS / 1000
    print(f"one of {RUNS} runs at once takes {found:.1f} kB")
    assert found <= RUN_KB


def conversations(count: int) -> bytes:
    """Return a file of conversations with a call and its result, as for fine-tuning."""
    call = {"id": "c1", "type": "function", "function": {"name": "parcel", "arguments": '{"number": 7}'}}
    talk = [
        {"role": "system", "content": "You are the desk of a shop. " * 20},
        {"role": "user", "content": "Where is my parcel?"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "On its way. " * 60},
        {"role": "assistant", "content": "It is on its way, and comes tomorrow."},
    ]
    lines = ({"messages": [*talk[:1], {"role": "user", "content": f"I am {n}."}, *talk[1:]]} for n in range(count))
    return "\n".join(map(json.dumps, lines)).encode()


async def test_one_more_imported_entry_makes_few_calls_and_takes_few_bytes(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    found: list[tuple[int, ...]] = []

    def note(_: FrameType, event: str, called: Any) -> None:
        counts[event] += 1
        if event == "c_call" and isinstance(getattr(called, "__self__", None), apsw.Cursor):
            counts[f"{called.__name__} of SQLite"] += 1

    async with gesta.open(tmp_path / "warm.gesta", durability="normal") as record:
        (tmp_path / "warm.jsonl").write_bytes(conversations(1))
        await import_file(record, tmp_path / "warm.jsonl")
    for number in (TOGETHER, 3 * TOGETHER):
        path, data = tmp_path / f"{number}.jsonl", conversations(number)
        path.write_bytes(data)
        tries = list[tuple[int, ...]]()
        for attempt in range(2):  # a commit gives way by the clock, more often on a busy machine
            counts.clear()
            async with gesta.open(tmp_path / f"{number}-{attempt}.gesta", durability="normal") as record:
                sys.setprofile(note)
                try:
                    done = await import_file(record, path)
                finally:
                    sys.setprofile(None)
            statements = counts["execute of SQLite"] + counts["executemany of SQLite"]
            size = (tmp_path / f"{number}-{attempt}.gesta").stat().st_size - round(1.05 * len(data))
            tries.append((counts["call"], counts["c_call"], size, done.entries, statements, number))
        found.append(min(tries))
    calls, c_calls, size, entries, statements, runs = (after - before for before, after in zip(*found, strict=True))
    each = [round(value / entries, 1) for value in (calls, c_calls, size)] + [round(statements / runs, 1)]
    print(f"one more imported entry: {each[0]} Python and {each[1]} C calls, {each[2]} bytes beyond 1.05 of the file")
    print(f"one more imported conversation: {each[3]} statements")
    assert all(value <= most for value, most in zip(each, IMPORTED, strict=True))
