"""What was found at version 0.1.0 in KodeAgent's formats, K4 and K5, and the rules of its messages."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gesta.compat.kodeagent import (
    AgentPlan,
    ChatMessage,
    CodeActChatMessage,
    CodeActHistoryFormatter,
    HistoryFormatter,
    ObserverResponse,
    PlanStep,
    ReActChatMessage,
    ReActHistoryFormatter,
    history_formatter,
)
from gesta.entry import Entry
from gesta.kinds import ChatCompletionContent, Content, ToolCallContent

FORMATTERS = [ReActHistoryFormatter(), CodeActHistoryFormatter()]
both = pytest.mark.parametrize("made_by", FORMATTERS, ids=lambda one: one.name)
AT = datetime(2026, 11, 21, tzinfo=UTC)
ODD = [float("nan"), float("-inf"), "half \ud83d", 10**5000, {"deep": [float("nan")]}, b"bytes", {(1,): 2}]


def entries(*contents: Content) -> list[Entry]:
    return [Entry(run="r", seq=seq, at=AT, span=1, content=content) for seq, content in enumerate(contents, 1)]


def strict(text: str) -> Any:
    """Read JSON as a strict reader does: UTF-8, and no NaN."""
    return json.loads(text.encode(), parse_constant=pytest.fail)


# ------------------------------------------------------------------------------------------------------------- K4
@both
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_arguments_on_record_that_no_json_has_are_sent_as_json(made_by: Any, odd: Any) -> None:
    call = ToolCallContent(tool_name="look", tool_args={"x": odd, "y": 1}, tool_call_id="c1")
    made = made_by.history(entries(ChatCompletionContent(output=""), call))[0]
    found = strict(made["tool_calls"][0]["function"]["arguments"])
    assert isinstance(found, dict)
    assert "code" in found or found["y"] == 1


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        *[('{"x": NaN}', {"x": "nan"}), ('{"x": -Infinity}', {"x": "-inf"}), ("{'x': 1}", {}), ("[1]", {}), ("5", {})],
        *[('{"x": "\\ud83d"}', {"x": "\ud83d"}), (None, {}), ("", {}), ('{"x": 1}', {"x": 1})],
    ],
)
def test_arguments_of_a_message_are_a_json_object_whatever_it_holds(args: Any, sent: Any) -> None:
    msg = ChatMessage(role="assistant", action="look", args=args)
    [call] = ReActHistoryFormatter().pydantic_to_dict(msg)["tool_calls"]
    assert strict(call["function"]["arguments"]) == sent


def test_sound_arguments_are_sent_letter_by_letter() -> None:
    for text in ('{"city":"Rome"}', '{ "a" : 1 }', "{}"):
        msg = ChatMessage(role="assistant", action="look", args=text)
        [call] = ReActHistoryFormatter().pydantic_to_dict(msg)["tool_calls"]
        assert call["function"]["arguments"] == text


# ------------------------------------------------------------------------------------------------------------- K5
@pytest.mark.parametrize(("made_by", "pending"), [(FORMATTERS[0], True), (FORMATTERS[1], False)])
def test_only_react_notes_that_a_call_waits_for_its_result(made_by: Any, pending: bool) -> None:
    state = {"last_tool_call_id": None, "pending_tool_call": False}
    made = made_by.format_tool_call(ChatMessage(role="assistant", action="look", args="{}", code="look()"), state)
    assert state == {"last_tool_call_id": made["tool_calls"][0]["id"], "pending_tool_call": pending}


def test_a_call_of_code_that_has_no_result_still_gets_a_placeholder() -> None:
    call = ToolCallContent(tool_name="code_execution", tool_args={"code": "1"}, tool_call_id="c1")
    history = CodeActHistoryFormatter().history(entries(ChatCompletionContent(output=""), call))
    assert [message["role"] for message in history] == ["assistant", "tool"]


# -------------------------------------------------------------------------------------------------------- messages
@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"thought": "t", "action": "FINISH"}, "final_answer must be given"),
        ({"thought": "t", "action": "FINISH", "final_answer": "a", "args": "{}"}, "args must be None"),
        ({"thought": "t", "action": "look"}, "args must be given"),
        ({"thought": "t", "action": "look", "args": "{}", "final_answer": ""}, "action must be 'FINISH'"),
        ({"thought": "t", "action": "look", "args": "{}", "task_successful": True}, "task_successful must be False"),
        ({"thought": "t", "action": "look", "args": "[1]"}, "args must be a JSON object"),
    ],
)
def test_a_react_message_that_breaks_a_rule_is_a_value_error(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        ReActChatMessage(**fields)
    with pytest.raises(ValueError, match=rule):
        ReActChatMessage.model_validate(fields)
    with pytest.raises(ValueError, match=rule):
        ReActChatMessage.model_validate_json(json.dumps(fields))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"thought": "t"}, "either code or final_answer"),
        ({"thought": "t", "code": "1", "final_answer": ""}, "either code or final_answer"),
        ({"thought": "t", "code": " "}, "either code or final_answer"),
        ({"thought": "t", "code": "1", "task_successful": True}, "task_successful must be False"),
    ],
)
def test_a_codeact_message_that_breaks_a_rule_is_a_value_error(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        CodeActChatMessage(**fields)


ACTION = {"thought": "t", "action": "look", "args": "{}"}
CODE = {"thought": "t", "code": "1"}


@pytest.mark.parametrize(("cls", "fields"), [(ReActChatMessage, ACTION), (CodeActChatMessage, CODE)])
@pytest.mark.parametrize(
    "wrong",
    [
        *({"role": "bad"}, {"role": None}, {"thought": None}, {"thought": 5}, {"action": 5}, {"args": {"a": 1}}),
        *({"code": 5}, {"files": "x"}, {"files": [1]}, {"task_successful": None}, {"final_answer": 5}),
    ],
    ids=repr,
)
def test_a_field_of_a_wrong_type_is_a_value_error(cls: Any, fields: dict[str, Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} of {cls.__name__} is "):
        cls(**fields | wrong)


@pytest.mark.parametrize("wrong", [{"role": "bad"}, {"files": "x"}, {"task_successful": 1}], ids=repr)
def test_a_plain_message_checks_the_types_of_its_fields_too(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} of ChatMessage is "):
        ChatMessage(**{"role": "user", "content": "c"} | wrong)
    assert ChatMessage(role="assistant").thought is None


def test_where_a_model_gives_both_the_action_or_the_code_is_kept() -> None:
    given = {"thought": "t", "final_answer": "42", "task_successful": True}
    react = ReActChatMessage(**given, action="look", args="{'x': 1,}")  # type: ignore[arg-type]
    code = CodeActChatMessage(**given, code="look()")  # type: ignore[arg-type]
    assert (react.final_answer, react.task_successful, react.is_final) == (None, False, False)
    assert (code.final_answer, code.task_successful, code.is_final) == (None, False, False)
    assert react.args == '{"x": 1}'
    assert (str(react), str(code)) == (
        'Thought: t\nAction: look\nArgs: {"x": 1}',
        "Thought: t\nCode:\n```python\nlook()\n```",
    )


def test_arguments_are_read_out_of_fences_and_words_but_not_completed() -> None:
    for args in ("```json\n{}\n```", "[{}]", "so: {}."):
        assert ReActChatMessage(thought="t", action="look", args=args).args == "{}"
    with pytest.raises(ValueError, match="args must be a JSON object, found"):
        ReActChatMessage(thought="t", action="look", args='{"x": 1')


def test_messages_plans_and_observations_are_dumped_and_read_back() -> None:
    answer = ReActChatMessage(thought="t", action="FINISH", final_answer="42", task_successful=True)
    plan = AgentPlan(steps=[PlanStep(description="look", is_done=True)])
    seen = ObserverResponse(is_progressing=False, is_in_loop=True, reasoning="r", correction_message=None)
    for made in (answer, plan, seen, CodeActChatMessage(thought="t", code="1"), ChatMessage(role="user", content="hi")):
        assert type(made).model_validate(made.model_dump()) == made
        assert type(made).model_validate_json(made.model_dump_json()) == made
    assert (str(answer), str(ChatMessage(role="user", content="hi"))) == ("42", "hi")
    assert plan.model_dump() == {"steps": [{"description": "look", "is_done": True}]}


def test_the_module_of_the_document_has_its_names() -> None:
    assert history_formatter.ReActHistoryFormatter is ReActHistoryFormatter
    assert history_formatter.CODE_ACT_PSEUDO_TOOL_NAME == "code_execution"


def test_a_formatter_needs_two_hooks_and_may_leave_those_for_metadata_out() -> None:
    class Short(HistoryFormatter):
        def should_format_as_tool_call(self, msg: ChatMessage) -> bool:
            return bool(msg.action)

        def format_tool_call(self, msg: ChatMessage, state: dict[str, Any]) -> dict[str, Any]:
            return ReActHistoryFormatter().format_tool_call(msg, state)

    msg = ChatMessage(role="assistant", action="look", args="{}")
    for hook in ("_get_tool_call_metadata", "_get_final_answer_metadata", "_get_extra_metadata"):
        assert getattr(Short(), hook)(msg) == {}
    assert Short().pydantic_to_dict(msg)["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
