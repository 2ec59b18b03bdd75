"""What a comparison with Langroid by lot found: one test a finding."""

from datetime import UTC, datetime
from typing import Any

from tests.seeds.test_found_langroid import said

import gesta
import gesta.compat.langroid as lr
from gesta.compat.langroid.agent.tools.orchestration import ResultTool
from gesta.entry import Entry
from gesta.formatters.tool_calls import ToolCalls
from gesta.kinds import ChatCompletionContent, Content, SystemContent, ToolCallContent, ToolResultContent

AT = datetime(2026, 11, 23, tzinfo=UTC)


class Square(lr.ToolMessage):
    request: str = "square"
    purpose: str = "To find the square of a <num>."
    num: int

    def handle(self) -> str:
        return str(self.num**2)


class Double(lr.ToolMessage):
    request: str = "double"
    purpose: str = "To double a <num>."
    num: int

    def handle(self) -> str:
        return str(self.num * 2)


def heard(name: str, *script: Any, native: bool = True, **config: Any) -> tuple[lr.ChatAgent, list[str]]:
    """An agent whose model follows a script, and the last words that it was told each time."""
    told: list[str] = []

    def say(messages: list[dict[str, Any]], _header: Any) -> Any:
        told.append(messages[-1]["content"])
        return script[len(told) - 1]

    ways: dict[str, Any] = {"use_tools": not native, "use_functions_api": native}
    return lr.ChatAgent(lr.ChatAgentConfig(name=name, llm=gesta.function(say), **ways, **config)), told


def test_a_call_that_nobody_answered_is_not_answered_in_the_next_run() -> None:
    made, told = heard("ann", gesta.call("square", num=3), "DONE 5")
    made.enable_message(Square)
    task = lr.Task(made, interactive=False, single_round=True)
    assert [each.request for each in task.run("one").tool_messages] == ["square"]
    assert said(task.run("two")) == "5"
    assert told == ["one", "two"]


def test_a_call_of_an_earlier_message_is_no_result_of_a_sub_task() -> None:
    ann, told = heard("ann", "first?", gesta.call("double", num=4), "DONE")
    ann.enable_message(Double, handle=False)
    bob, _ = heard("bob", gesta.call("square", num=3))
    bob.enable_message(Square)
    bob.enable_message(Double, use=False)
    task = lr.Task(ann, interactive=False)
    task.add_sub_task(lr.Task(bob, interactive=False, single_round=True))
    task.run("go")
    assert told[-1] == "8"


def test_the_turns_that_a_caller_gives_count_before_single_round() -> None:
    made, told = heard("ann", gesta.call("square", num=3), "DONE 5")
    made.enable_message(Square)
    assert said(lr.Task(made, interactive=False, single_round=True).run("go", turns=3)) == "5"
    assert told == ["go", "9"]


def test_a_result_tool_with_any_keywords_ends_its_task_and_those_above() -> None:
    class Ending(lr.ToolMessage):
        request: str = "ending"
        purpose: str = "To end."

        def handle(self) -> Any:
            return ResultTool(num=7)

    bob, _ = heard("bob", gesta.call("ending"))
    bob.enable_message(Ending)
    ann, told = heard("ann", "first?")
    task = lr.Task(ann, interactive=False)
    task.add_sub_task(lr.Task(bob, interactive=False))
    result = task.run("go")
    assert told == ["go"]
    assert [each.num for each in result.tool_messages] == [7]


def test_a_call_that_was_handed_over_is_not_taken_for_one_of_the_models_own() -> None:
    ann, _ = heard("ann", "__PASS__:bob", gesta.call("double", num=4), "DONE")
    ann.enable_message(Double, handle=False)
    bob, told = heard("bob", "DONE hello", "DONE bye")
    bob.enable_message(Double, use=False)
    task = lr.Task(ann, interactive=False)
    task.add_sub_task(lr.Task(bob, interactive=False))
    task.run("go")
    assert told == ["go", "8"]


def test_a_call_of_a_program_after_a_message_stands_after_that_message() -> None:
    contents: list[tuple[Content, tuple[int, ...]]] = [
        (ChatCompletionContent(output="said"), ()),
        (SystemContent(value="do this", source=["x"]), ()),
        (ToolCallContent(tool_name="double", tool_args={"num": 4}), (2,)),
        (ToolResultContent(call=3, tool_result="8"), (3,)),
    ]
    entries = [
        Entry(run="r", seq=n, at=AT, span=0, content=content, causes=causes)
        for n, (content, causes) in enumerate(contents, 1)
    ]
    formatter = ToolCalls()
    messages = formatter.format(entries, formatter.start())
    assert [(each.role, each.text, len(each.calls)) for each in messages] == [
        ("assistant", "said", 0),
        ("user", "do this", 0),
        ("assistant", "", 1),
        ("tool", "8", 0),
    ]


def test_a_tool_that_nobody_handles_is_no_result() -> None:
    made, _ = heard("ann", gesta.call("square", num=3))
    made.enable_message(Square, handle=False)
    task = lr.Task(made, interactive=False)
    assert task.run("go") is None
    assert task.status is lr.StatusCode.STALLED
