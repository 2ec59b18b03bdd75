"""Agents that talk for long: what one turn of theirs takes does not depend on how many came before."""

import gc
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import gesta
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.task import Task
from gesta.compat.langroid.tool_message import ToolMessage
from gesta.errors import GestaError, RunHeld, WriteFailed
from gesta.models.scripted import Keyless, spoken
from gesta.store import Lease

UNLIMITED = gesta.Policy(limits=gesta.Limits(requests=None, calls=None))


def team(record: gesta.Record, says: Callable[[str, int], str]) -> Task:
    """Make a student who asks and a teacher who answers; their models count what they are shown."""

    def made(name: str) -> Task:
        llm = Keyless(name, lambda request: says(name, len(request.blocks)), spoken(name, stream=False))
        chat = ChatAgent(ChatAgentConfig(name=name, llm=llm, policy=UNLIMITED), record=record)
        return Task(chat, interactive=False, single_round=name == "teacher")

    student = made("student")
    student.add_sub_task(made("teacher"))
    return student


def spent(path: Path, turns: int) -> tuple[int, int]:
    """Have a team talk; give the lines of Python that were gone through and the commits that it took."""
    lines = 0

    def count(_frame: Any, event: str, _arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    async def go() -> int:
        async with gesta.open(str(path), durability="normal") as record:
            student = team(record, lambda name, shown: f"{name} {shown}")
            before, traced = record.store.commits, sys.gettrace()  # type: ignore[attr-defined]  # of stores in files
            gc.disable()  # what it would call is not the team's
            sys.settrace(count)
            try:
                await student.run_async("Begin.", turns=turns)
            finally:
                sys.settrace(traced)
                gc.enable()
            return int(record.store.commits) - int(before)  # type: ignore[attr-defined]  # as above

    commits = anyio.run(go)
    return lines, commits


@pytest.mark.slow
def test_a_turn_of_a_team_costs_the_same_however_many_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gesta.stores.sharing.YIELD_S", math.inf)  # else commits give way to others by the clock
    monkeypatch.setattr("gesta.stores.sharing.QUICK_S", math.inf)  # else a thread commits while the disk is slow
    _first, few, some, many = [spent(tmp_path / f"{turns}.gesta", turns) for turns in (2, 20, 84, 148)]
    assert many[1] - some[1] == some[1] - few[1] <= 64 * 2, "two requests, the edge of a sub-task, its end"
    assert many[0] - some[0] <= some[0] - few[0] + 20, "a line in two turns, at most"


async def test_a_sub_task_is_told_every_word_even_one_that_is_a_setting_elsewhere() -> None:
    heard = []

    def says(name: str, _shown: int) -> str:
        return "auto" if name == "student" else "DONE"

    async with gesta.open() as record:
        student = team(record, says)
        (teacher,) = student.sub_tasks
        teacher.chat.handle_message_fallback = lambda doc: heard.append(doc.content)
        await student.run_async("Begin.", turns=2)
    assert heard[0] == "auto"


async def test_the_lease_of_a_sub_task_stays_with_the_task_that_asks_it_until_that_is_left(tmp_path: Path) -> None:
    held: list[str] = []

    async def look(name: str) -> str:
        runs = await record.store.runs(name="teacher")
        if name == "student" and runs:
            with pytest.raises(RunHeld):
                await record.store.lease(runs[0].run)
            held.append(runs[0].run)
        return "DONE" if len(held) == 3 else name

    def model(name: str) -> Keyless:
        async def choose(_request: Any) -> str:
            return await look(name)

        return Keyless(name, choose, spoken(name, stream=False))

    async with gesta.open(str(tmp_path / "r.gesta"), durability="normal") as record:
        student = team(record, lambda name, _shown: name)
        for task in (student, *student.sub_tasks):
            task.chat.config.llm = model(task.name)
        await student.run_async("Begin.")
        assert len(held) == 3
        for row in await record.store.runs():
            await record.store.release(await record.store.lease(row.run))


async def test_a_sub_task_that_waits_for_somebody_gives_its_lease_back_with_its_turn() -> None:
    async with gesta.open() as record:
        says = gesta.scripted('{"request": "add", "first": 1}', "DONE")
        clerk = ChatAgent(ChatAgentConfig(name="clerk", llm=says), record=record)
        clerk.enable_message(Asked)
        desk = Task(
            ChatAgent(ChatAgentConfig(name="desk", llm=gesta.scripted("Add.")), record=record), interactive=False
        )
        desk.add_sub_task(Task(clerk, interactive=False))
        with pytest.raises(GestaError, match="waits for approval"):
            await desk.run_async("Begin.")
        for row in await record.store.runs():
            await record.store.release(await record.store.lease(row.run))


async def test_a_lease_that_cannot_be_given_back_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gesta.open() as record:
        store, given = record.store, record.store.release
        gone: list[str] = []

        async def release(lease: Lease) -> None:
            gone.append(lease.run)
            if len(gone) == 1:
                raise WriteFailed(store.info.address, "the disk is full")
            await given(lease)

        monkeypatch.setattr(store, "release", release)
        with pytest.raises(WriteFailed):
            await team(record, lambda name, _shown: name).run_async("Begin.", turns=4)
        (teacher,), (student,) = [await store.runs(name=name) for name in ("teacher", "student")]
        assert gone == [teacher.run, student.run]
        await given(await store.lease(student.run))
        with pytest.raises(RunHeld):
            await store.lease(teacher.run)


async def test_a_child_run_that_is_asked_once_gives_its_lease_back_at_once() -> None:
    async with gesta.open() as record:

        async def program(verbs: Any, _task: str) -> str:
            await verbs.call(gesta.Agent("clerk", gesta.scripted("Done.")), "Do it.", name="clerk")
            (clerk,) = await record.store.runs(name="clerk")
            await record.store.release(await record.store.lease(clerk.run))
            return "ok"

        assert (await record.run(gesta.Agent("desk", program=program), "Go.")).answer == "ok"


class Add(ToolMessage):
    """A tool with a default."""

    request: str = "add"
    purpose: str = "To add."
    first: int
    second: int = 0

    def handle(self) -> str:
        return str(self.first + self.second)


def test_a_tool_is_described_once_and_anew_where_anything_of_it_is_another() -> None:
    chat = ChatAgent(ChatAgentConfig(name="a", llm=gesta.scripted("x"), enable_orchestration_tool_handling=False))
    chat.enable_message(Add)
    (tool,) = chat.tools(in_text=True)
    assert chat.tools(in_text=True) == [tool]
    chat.enable_message(Add, include_defaults=False)
    (terse,) = chat.tools(in_text=True)
    assert (list(tool.args_schema["properties"]), list(terse.args_schema["properties"])) == (
        ["first", "second"],
        ["first"],
    )
    chat.clone(1).enable_message(Add)
    assert chat.tools(in_text=True) == [terse], "a copy has tools of its own"
    Add._tool_approval = True
    try:
        (asked,) = chat.tools(in_text=True)
    finally:
        Add._tool_approval = False
    assert (terse.approval, asked.approval) == (False, True)


class Asked(Add):
    """A tool that a person has to allow."""

    _tool_approval = True
