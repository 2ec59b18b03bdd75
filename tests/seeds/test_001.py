"""Every name of LangChain's agent schema has its place, and each line of its table holds."""

import importlib
from typing import Any

import pytest

from gesta.compat.langchain.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from gesta.compat.langchain.messages import AIMessage, FunctionMessage, HumanMessage

PATHS = [
    *(
        f"gesta.compat.langchain.agents.{name}"
        for name in ("AgentAction", "AgentActionMessageLog", "AgentStep", "AgentFinish")
    ),
    *(f"gesta.compat.langchain.steps.{name}" for name in ("steps", "contents", "UNANSWERED")),
    *(
        "gesta.compat.langchain.lc.to_lc",
        "gesta.compat.langchain.lc.from_lc",
        "gesta.prompt.observation_text",
    ),
    *(
        f"gesta.compat.langchain.scratchpads.format_{name}"
        for name in ("log_to_str", "log_to_messages", "xml", "to_tool_messages")
    ),
    "gesta.compat.langchain.scratchpads.format_to_openai_function_messages",
]
SAID = AIMessage("I look.", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "c1"}])
PLAIN = AgentAction("look", {"x": 1}, "Thought: I look.\nAction: look")
LOGGED = AgentActionMessageLog("look", {"x": 1}, "I look.", message_log=[SAID])


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_there(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("made", [PLAIN, LOGGED, AgentStep(PLAIN, "seen"), AgentFinish({"output": "4"}, "So: 4")])
def test_shapes_are_frozen_and_name_their_place(made: Any) -> None:
    assert made.is_lc_serializable()
    assert type(made).get_lc_namespace() == ["langchain", "schema", "agent"]
    with pytest.raises(AttributeError):
        made.log = "other"


def test_each_type_is_a_literal_of_its_own() -> None:
    types = [PLAIN.type, LOGGED.type, AgentFinish({}, "").type]
    assert types == ["AgentAction", "AgentActionMessageLog", "AgentFinish"]
    assert AgentAction("look", "x", "", type="AgentAction") == AgentAction("look", "x", "")
    for made in (PLAIN, LOGGED, AgentFinish({}, "")):
        with pytest.raises(TypeError, match=f"type is 'Other'; expected {made.type!r}"):
            type(made).model_validate({**made.model_dump(), "type": "Other"})
    with pytest.raises(TypeError, match="type is 'AgentAction'; expected 'AgentActionMessageLog'"):
        AgentActionMessageLog("look", "x", "", message_log=[], type="AgentAction")


@pytest.mark.parametrize("wrong", [None, ["a"], 1])
def test_an_input_that_is_neither_text_nor_dict_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="tool_input of 'look'"):
        AgentAction("look", wrong, "")
    with pytest.raises(TypeError, match="tool_input of 'look'"):
        AgentActionMessageLog("look", wrong, "", message_log=[])


def test_a_plain_action_speaks_its_log_and_hears_its_observation() -> None:
    assert PLAIN.messages == [AIMessage(PLAIN.log)]
    assert AgentStep(PLAIN, {"é": 1}).messages == [HumanMessage('{"é": 1}')]


def test_a_logged_action_speaks_its_messages_and_hears_one_function_message() -> None:
    assert LOGGED.messages == [SAID]
    assert AgentStep(LOGGED, None).messages == [FunctionMessage("null", name="look")]


def test_a_native_action_keeps_the_id_of_its_call() -> None:
    native = AgentActionMessageLog("look", {"x": 1}, "", message_log=[SAID], tool_call_id="c1")
    [heard] = AgentStep(native, "seen").messages
    assert (heard.type, heard.tool_call_id, heard.content) == ("tool", "c1", "seen")


def test_a_finish_speaks_its_log_not_its_answer() -> None:
    assert AgentFinish({"output": "4"}, "So: 4").messages == [AIMessage("So: 4")]


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        *(("", ""), ("as it is", "as it is"), ({"é": 1}, '{"é": 1}'), (None, "null"), (float("nan"), "NaN")),
        *((b"x", "b'x'"), ({1}, "{1}"), ({(1,): 2}, "{(1,): 2}"), ({1: 2}, '{"1": 2}'), ((1, 2), "[1, 2]")),
    ],
)
def test_an_observation_turns_into_text_as_there(observation: Any, text: str) -> None:
    assert AgentStep(PLAIN, observation).messages[0].content == text
