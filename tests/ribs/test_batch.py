"""Batches: a copy of a task or an agent for each item, in order, at once or in parts, and on after a kill."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import programs

import gesta
from gesta.compat.langroid.batch import (
    Batch,
    ExceptionHandling,
    agent_response_batch,
    llm_response_batch,
    run_batch_agent_method,
    run_batch_function,
    run_batch_task_gen,
    run_batch_tasks,
    run_batched_tasks,
)
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.task import Task
from gesta.compat.langroid.tool_message import ToolMessage
from gesta.errors import GestaError

NONE, EXCEPTION = ExceptionHandling.RETURN_NONE, ExceptionHandling.RETURN_EXCEPTION


class Square(ToolMessage):
    request: str = "square"
    purpose: str = "To find the square of a <num>."
    num: int

    def handle(self) -> str:
        return str(self.num**2)


def last(messages: list[dict[str, Any]]) -> str:
    return str(messages[-1]["content"]).removeprefix("Observation: ")


def more(messages: list[dict[str, Any]], _header: Any) -> str:
    return f"DONE {int(last(messages)) + 1}"


def squares(messages: list[dict[str, Any]], _header: Any) -> str:
    """Use the tool, then repeat its result."""
    text = last(messages)
    return f'{{"request": "square", "num": {text}}}' if len(messages) == 1 else f"DONE {text}"


class First:
    """A model that answers only items that begin with `a`, and never comes to an end with others."""

    def __init__(self) -> None:
        self.asked = list[str]()

    async def __call__(self, messages: list[dict[str, Any]], _header: Any) -> str:
        self.asked.append(last(messages))
        if not last(messages).startswith("a"):
            await anyio.sleep_forever()
        return f"DONE {last(messages)}"


def agent(model: Callable[..., Any] = more, record: str | None = None) -> ChatAgent:
    return ChatAgent(ChatAgentConfig(name="calc", llm=gesta.function(model)), record=record, session="s")


def task(model: Callable[..., Any] = more, record: str | None = None) -> Task:
    return Task(agent(model, record), interactive=False)


def open_turns(made: Task, session: str = "s") -> Counter[str]:
    """How many runs of a session are open, and how the others ended."""

    async def look() -> Counter[str]:
        record = made.chat.home.record
        states = [await record.state(row.run) for row in await record.store.runs(session)]
        return Counter("open" if each.open else str(each.turn and each.turn.reason) for each in states)

    return anyio.run(look)


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize("sequential", [True, False])
def test_results_have_the_order_of_the_items(size: int | None, sequential: bool) -> None:
    made = task()[int]
    assert run_batch_tasks(made, [4, 0, 2], sequential=sequential, batch_size=size) == [5, 1, 3]
    assert run_batch_tasks(made, [], sequential=sequential, batch_size=size) == []


def test_items_are_mapped_in_and_results_out() -> None:
    found = run_batch_tasks(task()[int], ["1 a", "2 b"], lambda item: item[0], lambda result: -result)
    assert found == [-2, -3]


def test_a_batch_that_is_not_sequential_has_all_items_at_work_at_once_or_as_many_as_it_says() -> None:
    working, most, gathered = set[str](), list[int](), list[anyio.Event]()

    async def slow(messages: list[dict[str, Any]], _header: Any) -> str:
        working.add(last(messages))
        most.append(len(working))
        gathered.extend([] if gathered else [anyio.Event()])
        if len(working) == wanted:
            gathered[0].set()
        with anyio.fail_after(20):
            await gathered[0].wait()
        for _ in range(100):  # one too many would come now
            await anyio.lowlevel.checkpoint()
        working.discard(last(messages))
        return "DONE"

    several: list[tuple[dict[str, Any], int]] = [({}, 4), ({"max_concurrency": 3}, 3), ({"batch_size": 2}, 2)]
    for options, wanted in several:  # the model reads `wanted`
        run_batch_tasks(task(slow), list("abcd"), sequential=False, **options)
        assert max(most) == wanted
        most.clear()
        gathered.clear()


@pytest.mark.parametrize("items", [["b", "a1", "c"], ["c", "d", "a1"]])
def test_the_first_result_ends_the_runs_that_are_at_work(items: list[str]) -> None:
    made = task(First())
    found = run_batch_tasks(made, items, output_map=lambda doc: doc.content, stop_on_first_result=True)
    assert found == ["a1" if item == "a1" else None for item in items]
    assert open_turns(made) == {"answered": 1, "cancelled": 2}


def test_parts_after_the_first_result_are_not_begun() -> None:
    model = First()
    found = run_batch_tasks(task(model)[str], ["a1", "a2", "a3"], stop_on_first_result=True, batch_size=1)
    assert (found, model.asked) == (["a1", None, None], ["a1"])


def test_a_result_that_is_mapped_to_none_does_not_end_a_batch() -> None:
    found = run_batch_tasks(task()[int], [1, 2], output_map=lambda n: n if n > 5 else None, stop_on_first_result=True)
    assert found == [None, None]


@pytest.mark.parametrize("sequential", [True, False])
def test_an_item_that_fails_is_raised_or_is_none_or_its_exception(sequential: bool) -> None:
    def found(how: ExceptionHandling | bool) -> list[Any]:
        made = task()[int]
        return run_batch_task_gen(made.clone, [1, "x", 2], sequential=sequential, handle_exceptions=how)

    for raises in (ExceptionHandling.RAISE, False):
        with pytest.raises(GestaError, match="'calc-1' failed: invalid literal for int"):
            found(raises)
    assert found(NONE) == found(True) == [2, None, 3]
    two, problem, three = found(EXCEPTION)
    assert (two, type(problem), three) == (2, GestaError, 3)


def test_what_an_output_map_raises_is_that_items_failure() -> None:
    def picky(result: int) -> int:
        if result == 2:
            raise ValueError("two")
        return result

    found = run_batch_task_gen(task()[int].clone, [0, 1, 2], output_map=picky, handle_exceptions=EXCEPTION)
    assert [found[0], str(found[1]), found[2]] == [1, "two", 3]


def test_limits_hold_for_each_task() -> None:
    def chats(messages: list[dict[str, Any]], _header: Any) -> str:
        return f'{{"request": "square", "num": {len(messages)}}}'

    made = task(chats)
    made.chat.enable_message(Square)
    found = run_batch_tasks(made, ["go", "go"], turns=2)
    assert [doc.content for doc in found] == ["1", "1"]


def test_a_copy_has_the_tools_and_the_sub_tasks_of_its_task() -> None:
    made = task(squares)
    made.chat.enable_message(Square)
    assert run_batch_tasks(made[int], [3, 4], sequential=False) == [9, 16]


def test_a_task_can_be_made_for_each_item() -> None:
    def gen(i: int) -> Task:
        return Task(agent(lambda *_: f"DONE {10 * i}"), f"t{i}", interactive=False)[int]

    assert run_batch_task_gen(gen, "abc", sequential=False) == [0, 10, 20]


def test_an_agent_answers_each_item_with_a_copy_of_its_own() -> None:
    made = agent()
    assert [doc.content for doc in llm_response_batch(made, [1, 2], sequential=False)] == ["DONE 2", "DONE 3"]
    assert len(made.message_history) == 1
    made.enable_message(Square)
    found = agent_response_batch(made, ['{"request": "square", "num": 3}', "no tool"])
    assert [found[0].content, found[1]] == ["9", None]
    with pytest.raises(ValueError, match="'llm_response' is not asynchronous"):
        run_batch_agent_method(made, made.llm_response, ["1"])


def test_functions_are_batched_too() -> None:
    async def do(item: str, i: int) -> str:
        if item == "x":
            raise ValueError(item)
        return f"{item}{i}"

    assert run_batched_tasks(["a", "x", "c"], do, 2, False, False, NONE, lambda text: text) == ["a0", None, "c2"]
    for sequential in (True, False):
        assert run_batch_function(lambda n: 2 * n, [1, 2, 3], sequential, batch_size=2) == [2, 4, 6]


async def test_in_an_event_loop_a_batch_is_awaited() -> None:
    with pytest.raises(GestaError, match=r"await Batch\(\.\.\.\)\.tasks"):
        run_batch_tasks(task(), [1])
    assert await Batch(sequential=False).tasks(task()[int].clone, [1, 2]) == [2, 3]
    with pytest.raises(TypeError, match="Did you mean 'batch_size'"):
        Batch(batchsize=1)  # type: ignore[call-arg]


def test_a_named_batch_gives_what_is_on_record(tmp_path: Path) -> None:
    asked = list[str]()

    def model(messages: list[dict[str, Any]], header: Any) -> str:
        asked.append(last(messages))
        return more(messages, header)

    for _ in range(2):
        made = task(model, str(tmp_path / "a.gesta"))
        assert run_batch_tasks(made[int], [1, 2], name="sums") == [2, 3]
    assert asked == ["1", "2"]
    assert open_turns(made, "sums") == {"answered": 2}


def test_a_named_batch_that_has_a_first_result_begins_nothing_more(tmp_path: Path) -> None:
    for _ in range(2):
        model = First()
        made = task(model, str(tmp_path / "a.gesta"))
        assert run_batch_tasks(made[str], ["b", "a", "c"], stop_on_first_result=True, name="race") == [None, "a", None]
    assert model.asked == []


KILLED = """
import os, signal, sys
import gesta
from gesta.compat.langroid.batch import {names}
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.task import Task
from gesta.compat.langroid.tool_message import ToolMessage

life = int(sys.argv[1])

def write(name, line):
    with open(name, "a") as file:
        file.write(line + chr(10))

class Pay(ToolMessage):
    request: str = "pay"
    purpose: str = "To pay an invoice."
    num: int

    def handle(self):
        write("paid", str(self.num))
        return "paid"

def model(messages, header):
    text = str(messages[-1]["content"]).removeprefix("Observation: ")
    write("asked", text)
    if life == 0 and len(open("asked").readlines()) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return "DONE " + text if "paid" in text else '{{"request": "pay", "num": %s}}' % text

agent = ChatAgent(ChatAgentConfig(name="payer", llm=gesta.function(model)), record="r.gesta")
agent.enable_message(Pay)
task = Task(agent, interactive=False)
print({call})
"""
TASKS = "run_batch_tasks(task, [1, 2, 3], output_map=lambda doc: doc.content, sequential={}, name='bills')"
MODELS = "llm_response_batch(agent, [1, 2, 3], output_map=lambda doc: doc.content, sequential={}, name='bills')"


@pytest.mark.parametrize("at", [2, 5])
def test_a_named_batch_whose_process_was_killed_goes_on_and_repeats_nothing(tmp_path: Path, at: int) -> None:
    code = KILLED.format(names="run_batch_tasks", call=TASKS.format(True))
    lives = [programs.run(["-c", code, str(life), str(at)], cwd=tmp_path) for life in (0, 1)]
    assert [each.returncode for each in lives] == [-signal.SIGKILL, 0], lives[1].stderr
    assert lives[1].stdout == "['paid', 'paid', 'paid']\n"
    assert (tmp_path / "paid").read_text().split() == ["1", "2", "3"]
    asked = (tmp_path / "asked").read_text().split()
    assert len(asked) == 6 + 1  # one answer was lost with the process


def test_after_a_kill_an_effect_of_unknown_outcome_is_asked_about_and_not_repeated(tmp_path: Path) -> None:
    code = KILLED.format(names="run_batch_tasks", call=TASKS.format(False))
    killed = programs.run(["-c", code, "0", "4"], cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL
    later = programs.run(["-c", code, "1", "0"], cwd=tmp_path)
    assert later.stdout == "['paid', 'paid', 'paid']\n" or "waits for doubt of pay" in later.stderr
    assert sorted((tmp_path / "paid").read_text().split()) in (["1", "2", "3"], ["1", "2"], ["1", "3"], ["2", "3"])


def test_a_named_batch_of_an_agents_answers_goes_on_after_a_kill(tmp_path: Path) -> None:
    code = KILLED.format(names="llm_response_batch", call=MODELS.format(True))
    lives = [programs.run(["-c", code, str(life), "2"], cwd=tmp_path) for life in (0, 1)]
    assert [each.returncode for each in lives] == [-signal.SIGKILL, 0], lives[1].stderr
    assert (tmp_path / "asked").read_text().split() == ["1", "2", "2", "3"]
