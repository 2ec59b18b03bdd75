"""What was found at version 0.1.0 with LangChain's objects, O10 and O11: nothing is taken and written wrongly.

The objects here have LangChain's names and members without its package; `.ci/originals` tries the same on its own.
"""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gesta.codec.rows import PythonValue
from gesta.compat.langchain import (
    AgentAction,
    AgentActionMessageLog,
    AgentFinish,
    AgentStep,
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
    format_log_to_messages,
    format_log_to_str,
    format_to_openai_function_messages,
    format_to_tool_messages,
    format_xml,
    from_lc,
    to_lc,
)
from gesta.compat.langchain.steps import contents, steps
from gesta.entry import Entry
from gesta.kinds import ChatCompletionContent, Content, ToolCallContent

PLAIN = AgentAction("look", {"x": 1}, "Thought: I look.")
SCRATCHPADS = [
    *(format_log_to_str, format_log_to_messages, format_to_openai_function_messages, format_to_tool_messages),
    format_xml,
]


def foreign(name: str, module: str = "langchain_core.agents", /, **members: Any) -> Any:
    """Return an object as LangChain has it: its class is a subclass of the one with that name."""
    base = type(name, (SimpleNamespace,), {"__module__": module})
    return type("Own" + name, (base,), {"__module__": "my_program"})(**members)


def said(**more: Any) -> Any:
    calls = [{"name": "look", "args": {"x": 1}, "id": "c1", "type": "tool_call"}]
    members: dict[str, Any] = {"content": "I look.", "additional_kwargs": {}, "type": "ai", "name": None, "id": None}
    return foreign("AIMessage", "langchain_core.messages.ai", **{**members, "tool_calls": calls, **more})


THEIRS = foreign("AgentAction", tool="look", tool_input={"x": 1}, log="Thought: I look.", type="AgentAction")
NATIVE = foreign(
    *("ToolAgentAction", "langchain_classic.agents.output_parsers.tools"),
    tool="look",
    tool_input={"x": 1},
    log="l",
    message_log=[said()],
    tool_call_id="c1",
)
OURS = AgentActionMessageLog(
    *("look", {"x": 1}, "l"), message_log=[AIMessage("I look.", tool_calls=said().tool_calls)], tool_call_id="c1"
)


# ------------------------------------------------------------------------------------------------------------ O10
@pytest.mark.parametrize("key", [(1, 2), b"x", frozenset(), object, 10**5000], ids=lambda key: type(key).__name__)
@pytest.mark.parametrize("where", ["above", "beside", "below", "deeper"])
def test_keys_that_json_has_no_form_for_make_a_stub_wherever_they_stand(key: Any, where: str) -> None:
    odd = {key: 1}
    value = {"above": odd, "beside": {"lc": 1, **odd}, "below": {"lc": odd}, "deeper": {"lc": [{"a": odd}]}}[where]
    seen = from_lc(to_lc(AgentStep(PLAIN, value))).observation
    stub = seen if where in ("above", "beside") else seen["lc"] if where == "below" else seen["lc"][0]["a"]
    told = stub if isinstance(stub, PythonValue) else PythonValue(".".join(stub["id"]), stub["repr"] or "")
    assert told.type == "builtins.dict"
    assert type(key).__name__ == "int" or repr(key) in told.repr


def test_keys_that_json_writes_as_names_are_written_so() -> None:
    value = {None: 1, True: 2, 1.5: 3, 7: 4}
    assert from_lc(to_lc(AgentStep(PLAIN, value))).observation == {"null": 1, "true": 2, "1.5": 3, "7": 4}


# ------------------------------------------------------------------------------------------------------------ O11
def test_a_step_of_their_action_hears_what_a_step_of_ours_hears() -> None:
    assert AgentStep(THEIRS, "seen") == AgentStep(PLAIN, "seen")
    assert AgentStep(NATIVE, "seen") == AgentStep(OURS, "seen")
    assert AgentStep(NATIVE, "seen").messages == [
        ToolMessage("seen", tool_call_id="c1", additional_kwargs={"name": "look"})
    ]


@pytest.mark.parametrize("scratchpad", SCRATCHPADS, ids=lambda made: made.__name__)
def test_every_scratchpad_shows_their_steps_and_pairs_as_ours(scratchpad: Any) -> None:
    whole = foreign("AgentStep", action=NATIVE, observation="seen")
    for ours, theirs in [(PLAIN, THEIRS), (OURS, NATIVE)]:
        shown = scratchpad([AgentStep(ours, {"a": 1}), AgentStep(ours, "seen")])
        assert scratchpad([(theirs, {"a": 1}), (theirs, "seen")]) == shown
        assert scratchpad([foreign("AgentStep", action=theirs, observation={"a": 1}), (theirs, "seen")]) == shown
    assert scratchpad([whole]) == scratchpad([(OURS, "seen")])


def test_their_message_log_is_taken_by_our_action() -> None:
    made = AgentActionMessageLog("look", {"x": 1}, "l", message_log=[said()], tool_call_id="c1")
    assert made == OURS
    assert format_to_tool_messages([(made, "seen")]) == format_to_tool_messages([(OURS, "seen")])
    assert all(isinstance(message, BaseMessage) for message in format_to_tool_messages([(made, "seen")]))


def test_their_objects_are_equal_to_ours_that_hold_the_same_and_to_no_others() -> None:
    step = foreign("AgentStep", action=NATIVE, observation="seen")
    for ours, theirs in [(PLAIN, THEIRS), (OURS, NATIVE), (OURS.messages[0], said()), (AgentStep(OURS, "seen"), step)]:
        assert ours == theirs
        assert theirs == ours
    assert said(name="other") != OURS.messages[0]
    assert AgentAction("look", {"x": 2}, "Thought: I look.") != THEIRS
    assert SimpleNamespace(**THEIRS.__dict__) != PLAIN


def test_a_subclass_may_add_a_field_that_is_needed() -> None:
    class Rated(AgentAction):  # type: ignore[misc]  # as LangChain's programs write it
        score: float  # type: ignore[misc]

    assert Rated("look", {}, "", score=0.5).score == 0.5
    with pytest.raises(TypeError, match="score"):
        Rated("look", {}, "")  # type: ignore[call-arg]


def test_their_objects_are_written_as_ours_are() -> None:
    finish = foreign("AgentFinish", return_values={"output": said()}, log="l")
    assert to_lc([THEIRS, NATIVE, said()]) == to_lc([PLAIN, OURS, OURS.messages[0]])
    assert from_lc(to_lc(finish)) == AgentFinish({"output": OURS.messages[0]}, "l")
    step = foreign("AgentStep", action=THEIRS, observation="seen")
    assert from_lc(to_lc(step)) == AgentStep(PLAIN, "seen")


def test_their_steps_are_written_down_as_ours_are() -> None:
    finish = foreign("AgentFinish", return_values={"output": "dry"}, log="So: dry")
    theirs = [foreign("AgentStep", action=NATIVE, observation="seen"), finish]
    assert contents(theirs) == contents([AgentStep(OURS, "seen"), AgentFinish({"output": "dry"}, "So: dry")])


def test_a_chunk_of_a_message_stays_a_chunk_with_all_that_it_holds() -> None:
    chunk = foreign(
        *("AIMessageChunk", "langchain_core.messages.ai"),
        content="I",
        type="AIMessageChunk",
        tool_call_chunks=[{"index": 0}],
        model_extra={"mine": 1},
    )
    made = from_lc(to_lc(chunk))
    assert (made.type, made.content, made.tool_call_chunks, made.rest) == (
        *("AIMessageChunk", "I"),
        *([{"index": 0}], {"mine": 1}),
    )


def test_an_object_of_theirs_that_is_no_shape_is_written_by_its_own_form() -> None:
    form = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "document", "Document"]}
    page = foreign(
        *("Document", "langchain_core.documents.base"),
        lc_id=lambda: form["id"],
        to_json=lambda: {**form, "kwargs": {"page_content": "x"}},
    )
    written = json.loads(to_lc({"output": page}))
    assert written == {"output": {**form, "kwargs": {"page_content": "x"}}}


@pytest.mark.parametrize("wrong", [None, "look", {"tool": "look"}, 1, SimpleNamespace(tool="look"), HumanMessage("x")])
def test_what_is_no_action_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"found a {type(wrong).__name__}; expected a AgentAction"):
        AgentStep(wrong, "seen")


@pytest.mark.parametrize("wrong", ["hi", ("ai", "hi"), {"role": "user"}, None, PLAIN])
def test_what_is_no_message_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"found a {type(wrong).__name__}; expected a BaseMessage"):
        AgentActionMessageLog("look", {}, "", message_log=[wrong])


@pytest.mark.parametrize("scratchpad", SCRATCHPADS, ids=lambda made: made.__name__)
@pytest.mark.parametrize("wrong", ["seen", 1, None, HumanMessage("x"), AgentFinish({}, "")])
def test_what_is_no_step_is_refused_by_every_scratchpad(scratchpad: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"found a {type(wrong).__name__}; expected a step"):
        scratchpad([wrong])


@pytest.mark.parametrize("wrong", ["seen", PLAIN, HumanMessage("x")])
def test_what_is_no_step_has_no_contents(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"found a {type(wrong).__name__}; expected steps and finishes"):
        contents([wrong])


def test_members_of_another_type_are_refused() -> None:
    for made in (lambda: AgentAction(None, "x", ""), lambda: AgentAction("a", "x", None)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected a text"):
            made()
    with pytest.raises(TypeError, match="return_values is 'dry'; expected a dict"):
        AgentFinish("dry", "")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the content of a message is 1"):
        HumanMessage(1)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- what their messages do
def test_calls_in_a_providers_own_form_are_calls_of_the_message() -> None:
    raw = [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}},
        {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{"}},
    ]
    message = AIMessage("", additional_kwargs={"tool_calls": raw})
    assert message.tool_calls == [{"name": "look", "args": {"x": 1}, "id": "c1", "type": "tool_call"}]
    assert [(call["id"], call["args"]) for call in message.invalid_tool_calls] == [("c2", "{")]


def test_shapes_are_dumped_and_validated_as_pydantics_are() -> None:
    step = AgentStep(PLAIN, FunctionMessage("r", name="look"))
    plain = {"tool": "look", "tool_input": {"x": 1}, "log": "Thought: I look.", "type": "AgentAction"}
    assert PLAIN.model_dump() == plain
    assert step.model_dump()["action"] == plain
    assert step.model_dump()["observation"] == {
        "content": "r",
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "function",
        "name": "look",
        "id": None,
    }
    assert json.loads(PLAIN.model_dump_json(indent=2)) == plain
    assert (
        PLAIN.model_dump_json() == '{"tool":"look","tool_input":{"x":1},"log":"Thought: I look.","type":"AgentAction"}'
    )
    assert AgentAction.model_validate(plain) == AgentAction.model_validate(PLAIN) == PLAIN
    assert PLAIN.to_json()["kwargs"] == plain
    with pytest.raises(TypeError, match="found a str; expected a AgentAction"):
        AgentAction.model_validate("look")


def test_a_dump_of_a_step_or_of_a_message_log_is_read_back_whole() -> None:
    made = AgentStep.model_validate(AgentStep(OURS, "seen").model_dump())
    assert made == AgentStep(OURS, "seen")


def test_actions_that_an_earlier_version_kept_are_read_as_they_were() -> None:
    calls = [{"name": "look", "args": {}, "id": "c1", "type": "tool_call"}]
    log: dict[str, Any] = {"type": "ai", "content": "I look.", "name": None, "id": "i", "tool_calls": calls}
    log["rest"] = {"odd": 1, "additional_kwargs": {"k": "v"}, "usage_metadata": {"input_tokens": 1}}
    kept = {"message_log": [log], "actions": [{"tool": "look", "tool_input": {}, "log": "own", "tool_call_id": "c1"}]}
    call = ToolCallContent(tool_name="look", tool_args={}, tool_call_id="c1")
    made: list[Content] = [ChatCompletionContent(output="I look.", actions=kept), call]
    at = datetime(2026, 11, 22, tzinfo=UTC)
    [step] = steps(Entry(run="r", seq=n, at=at, span=0, content=content) for n, content in enumerate(made, 1))
    assert isinstance(step, AgentStep)
    assert step.action.log == "own"
    [message] = step.action.messages
    assert message == AIMessage(
        "I look.",
        additional_kwargs={"k": "v"},
        id="i",
        tool_calls=calls,
        usage_metadata={"input_tokens": 1},
        rest={"odd": 1},
    )
