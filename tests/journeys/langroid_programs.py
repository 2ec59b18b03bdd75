"""Programs as Langroid's published examples are, for processes that die: `python -m tests.journeys.langroid_programs`.

Each has agents of a record, and models that answer from what they are shown. A process dies at the point that it is
told; whoever is started with the same words again goes on.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gesta
import gesta.compat.langroid as lr
from gesta.compat.langroid.agent.tools.orchestration import DoneTool, FinalResultTool, SendTool

SESSION = "s"
POLICY = gesta.Policy(attempts=1000)
"""A call may be lost as often as the process dies: when to give one up is tested elsewhere."""


class World:
    """What programs act on: lines of a file, and the point at which the process dies."""

    def __init__(self, folder: Path, dies_at: int) -> None:
        self.lines, self.dies_at, self.points = folder / "world.txt", dies_at, 0

    def act(self, text: str) -> str:
        """Write a line, which nothing keeps from being written twice."""
        self.reach()
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        self.reach()
        return text

    def reach(self) -> None:
        """Die if this is the point."""
        self.points += 1
        if self.points == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def mind(self, says: Callable[[str], Any]) -> Any:
        """Make a model that answers the last message; each request is a line."""

        def answer(messages: list[dict[str, Any]], _header: Any) -> Any:
            text = str(messages[-1]["content"]).removeprefix("Observation: ")
            self.act(f"asked {text}")
            return says(text)

        return gesta.function(answer)


def agent(world: World, record: str, name: str, says: Callable[[str], Any] | None) -> lr.ChatAgent:
    """A chat agent of the record."""
    config = lr.ChatAgentConfig(name=name, llm=world.mind(says) if says is not None else None, policy=POLICY)
    return lr.ChatAgent(config, record=record, session=SESSION)


def call(request: str, **args: Any) -> str:
    return json.dumps({"request": request, **args})


class Answer(FinalResultTool):
    request: str = "answer_tool"
    purpose: str = "To give the final <answer>."
    _allow_llm_use: bool = True
    answer: int


def return_result(world: World, record: str) -> Any:
    """Of two sub-tasks each takes the numbers that are its own, and its result ends the task above, too."""
    main = agent(world, record, "Main", lambda text: text)
    even = agent(
        world, record, "Even", lambda text: text if int(text) % 2 else call("answer_tool", answer=int(text) // 2)
    )
    odd = agent(world, record, "Odd", lambda text: call("answer_tool", answer=3 * int(text) + 1))
    even.enable_message(Answer)
    odd.enable_message(Answer)
    task = lr.Task(main, interactive=False)[Answer]
    task.add_sub_task([lr.Task(even, interactive=False), lr.Task(odd, interactive=False)])
    return task.run("15", key="m").answer


def planner(world: World, record: str) -> Any:
    """A planner uses two tools until a number is what is wanted; each changes the world."""

    class Step(lr.ToolMessage):
        request: str = "step"
        purpose: str = "To change a <number> by <how>."
        number: int
        how: str
        _tool_effect: Any = "idempotent"

        def handle(self) -> str:
            made = self.number + 1 if self.how == "one" else self.number * 2
            return world.act(str(made))

    plans = {"5": "one", "6": "one", "7": "one", "8": "two", "16": "two", "32": "two"}
    chat = agent(
        world,
        record,
        "Planner",
        lambda text: (
            call("step", number=int(text), how=plans[text]) if text in plans else call("done_tool", content=text)
        ),
    )
    chat.enable_message([Step, DoneTool])
    chat.config.handle_llm_no_tool = "You forgot to use a tool."
    return lr.Task(chat, interactive=False)[int].run("5", key="m")


def two_agents(world: World, record: str) -> Any:
    """One agent asks, another answers with a tool of its own that the first cannot use."""

    class Square(lr.ToolMessage):
        request: str = "square"
        purpose: str = "To find the square of a <number>."
        number: int
        _tool_effect: Any = "idempotent"

        def handle(self) -> str:
            return world.act(str(self.number**2))

    def ask(text: str) -> str:
        return call("send_tool", to="Teacher", content="Square of 9?") if text == "Learn." else f"DONE I learned {text}"

    student = agent(world, record, "Student", ask)
    student.enable_message(SendTool)
    teacher = agent(
        world, record, "Teacher", lambda text: f"DONE {text}" if text.isdigit() else call("square", number=9)
    )
    teacher.enable_message(Square)
    task = lr.Task(student, interactive=False)
    task.add_sub_task(lr.Task(teacher, interactive=False))
    return task.run("Learn.", key="m").content


PROGRAMS: dict[str, tuple[Callable[[World, str], Any], Any]] = {
    "return_result": (return_result, 46),
    "planner": (planner, 64),
    "two_agents": (two_agents, "I learned 81"),
}
"""Programs by their names, each with its result."""

if __name__ == "__main__":
    program, place, dies_at = sys.argv[1:]
    outside = World(Path(place), int(dies_at))
    found = PROGRAMS[program][0](outside, str(Path(place) / "record.gesta"))
    sys.stdout.write(json.dumps([found, outside.points]))
