"""The validators are tested too: every broken request is refused, for the one reason that its name tells."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.validators.chat_completions import ARRAY_LENGTH, history_violations, violations

HERE = Path(__file__).parent
BROKEN = {path.stem: path for path in sorted((HERE / "chat_completions").glob("*.json"))}
VALID = {path.stem: path for path in sorted((HERE / "valid").glob("*.json"))}
REASONS = {  # file -> how each of its violations begins
    "body_truncated": ["$: not valid JSON in UTF-8"],
    "body_not_utf8": ["$: not valid JSON in UTF-8"],
    "body_surrogate_in_bytes": ["$: not valid JSON in UTF-8"],
    "body_not_an_object": ["$: must be an object"],
    "body_name_twice": ["$: not valid JSON in UTF-8 (a name stands twice"],
    "body_lone_surrogate": ["messages[0].content: lone surrogate"],
    "body_lone_surrogate_in_a_name": ["metadata (a key): lone surrogate"],
    "body_nan": ["temperature: number must be finite"],
    "body_number_overflows": ["temperature: number must be finite"],
    "request_without_model": ["model: must be a non-empty string"],
    "request_without_messages": ["messages: must be an array"],
    "request_messages_empty": ["messages: empty array"],
    "request_messages_an_object": ["messages: must be an array"],
    "request_stream_a_string": ["stream: must be a boolean"],
    "request_stream_options_without_stream": ["stream_options: only allowed when stream is enabled"],
    "request_stream_options_with_stream_false": ["stream_options: only allowed when stream is enabled"],
    "request_stream_options_a_list": ["stream_options: must be an object"],
    "request_tools_empty": ["tools: empty array"],
    "request_tools_null": ["tools: must be an array"],
    "request_tool_choice_without_tools": ["tool_choice: only allowed when tools are specified"],
    "request_parallel_tool_calls_without_tools": ["parallel_tool_calls: only allowed when tools are specified"],
    "request_tool_choice_unknown": ["tool_choice: must be none, auto, required or a function"],
    "request_tool_choice_not_a_tool": ["tool_choice.function.name: not among the tools"],
    "tool_a_string": ["tools[1]: must be an object"],
    "tool_without_type": ["tools[0].type: must be function"],
    "tool_flat": ["tools[0].function: must be an object"],
    "tool_names_not_unique": ["tools[2].function.name: names of tools must be unique"],
    "tool_name_with_dot": ["tools[0].function.name: name must match"],
    "tool_name_of_65": ["tools[0].function.name: name must match"],
    "tool_name_empty": ["tools[0].function.name: name must match"],
    "tool_name_ends_in_newline": ["tools[0].function.name: name must match"],
    "tool_parameters_without_type": ["tools[0].function.parameters: must be an object schema"],
    "tool_parameters_of_type_string": ["tools[0].function.parameters: must be an object schema"],
    "tool_parameters_null": ["tools[0].function.parameters: must be an object schema"],
    "tool_properties_a_list": ["tools[0].function.parameters.properties: must be an object of schemas"],
    "tool_required_null": ["tools[0].function.parameters.required: must be an array of strings"],
    "message_a_string": ["messages[1]: must be an object"],
    "message_without_role": ["messages[0].role: must be one of"],
    "message_role_unknown": ["messages[0].role: must be one of"],
    "message_role_function": ["messages[1].role: must be one of"],
    "message_name_with_space": ["messages[0].name: name must match"],
    "message_name_null": ["messages[0].name: name must match"],
    "user_without_content": ["messages[0].content: must be a string or an array of parts"],
    "user_content_null": ["messages[0].content: must be a string or an array of parts"],
    "user_content_an_object": ["messages[0].content: must be a string or an array of parts"],
    "user_content_no_parts": ["messages[0].content: empty array"],
    "user_with_tool_calls": ["messages[0].tool_calls: only in a message of role assistant"],
    "user_with_tool_call_id": ["messages[0].tool_call_id: only in a message of role tool"],
    "system_content_null": ["messages[0].content: must be a string or an array of parts"],
    "system_with_image": ["messages[0].content[0].type: part must be an object of type ['text']"],
    "part_without_type": ["messages[0].content[0].type: part must be an object of type"],
    "part_type_unknown": ["messages[0].content[0].type: part must be an object of type"],
    "part_a_string": ["messages[0].content[0].type: part must be an object of type"],
    "part_text_null": ["messages[0].content[0].text: part is malformed"],
    "part_image_url_a_string": ["messages[0].content[0].image_url: part is malformed"],
    "part_audio_format_unknown": ["messages[0].content[0].input_audio: part is malformed"],
    "part_file_without_data": ["messages[0].content[0].file: part is malformed"],
    "assistant_without_anything": ["messages[1]: assistant message must have content, tool_calls or a refusal"],
    "assistant_content_null_without_calls": [
        "messages[1]: assistant message must have content, tool_calls or a refusal"
    ],
    "assistant_content_empty_without_calls": [
        "messages[1]: assistant message must have content, tool_calls or a refusal"
    ],
    "assistant_refusal_empty": ["messages[1]: assistant message must have content, tool_calls or a refusal"],
    "assistant_refusal_a_boolean": ["messages[1].refusal: must be a string"],
    "assistant_with_image": ["messages[1].content[0].type: part must be an object of type ['text', 'refusal']"],
    "calls_empty": ["messages[1].tool_calls: empty array"],
    "calls_null": ["messages[1].tool_calls: must be an array"],
    "call_a_string": ["messages[1].tool_calls[1]: must be an object"],
    "call_id_empty": ["messages[1].tool_calls[0].id: must be a non-empty string"],
    "call_id_a_number": ["messages[1].tool_calls[1].id: must be a non-empty string"],
    "call_id_of_41": ["messages[1].tool_calls[0].id: string too long"],
    "call_ids_equal_in_one_message": ["messages[1].tool_calls[1].id: 'call_1' is not unique in the history"],
    "call_id_of_an_earlier_turn": ["messages[5].tool_calls[0].id: 'call_1' is not unique in the history"],
    "call_without_type": ["messages[1].tool_calls[0].type: must be function"],
    "call_without_function": ["messages[1].tool_calls[0].function: must be an object"],
    "call_name_with_space": ["messages[1].tool_calls[0].function.name: name must match"],
    "call_arguments_an_object": ["messages[1].tool_calls[0].function.arguments: must be a string"],
    "call_arguments_null": ["messages[1].tool_calls[0].function.arguments: must be a string"],
    "call_arguments_empty": ["messages[1].tool_calls[0].function.arguments: not valid JSON"],
    "call_arguments_cut_off": ["messages[1].tool_calls[0].function.arguments: not valid JSON"],
    "call_arguments_python": ["messages[1].tool_calls[0].function.arguments: not valid JSON"],
    "call_arguments_encoded_twice": ["messages[1].tool_calls[0].function.arguments: must be a JSON object"],
    "call_arguments_a_list": ["messages[1].tool_calls[0].function.arguments: must be a JSON object"],
    "call_arguments_name_twice": ["messages[1].tool_calls[0].function.arguments: not valid JSON (a name stands twice"],
    "call_arguments_nan": ["messages[1].tool_calls[0].function.arguments (parsed).city: number must be finite"],
    "call_arguments_lone_surrogate": ["messages[1].tool_calls[0].function.arguments (parsed).city: lone surrogate"],
    "answer_missing_at_the_end": [
        "messages[1].tool_calls: must be followed at once by a tool message for each tool_call_id, there is none for ['call_1']"
    ],
    "answer_missing_before_user": [
        "messages[1].tool_calls: must be followed at once by a tool message for each tool_call_id, there is none for ['call_1']"
    ],
    "answer_missing_before_assistant": [
        "messages[1].tool_calls: must be followed at once by a tool message for each tool_call_id, there is none for ['call_1']"
    ],
    "answer_missing_for_one_of_two": [
        "messages[1].tool_calls: must be followed at once by a tool message for each tool_call_id, there is none for ['call_2']"
    ],
    "answer_missing_between_two_calls": [
        "messages[1].tool_calls: must be followed at once by a tool message for each tool_call_id, there is none for ['call_1']"
    ],
    "answer_after_a_user_message": [
        "messages[1].tool_calls: must be followed at once by a tool message for each tool_call_id, there is none for ['call_1']",
        "messages[3]: tool message without a preceding assistant message with tool_calls",
    ],
    "answer_after_a_system_message": [
        "messages[1].tool_calls: must be followed at once by a tool message for each tool_call_id, there is none for ['call_2']",
        "messages[4]: tool message without a preceding assistant message with tool_calls",
    ],
    "answer_after_the_next_calls": [
        "messages[1].tool_calls: must be followed at once by a tool message for each tool_call_id, there is none for ['call_1']",
        "messages[3].tool_call_id: 'call_1' is not among the tool_calls before",
    ],
    "answer_first_of_all": ["messages[0]: tool message without a preceding assistant message with tool_calls"],
    "answer_after_user": ["messages[1]: tool message without a preceding assistant message with tool_calls"],
    "answer_after_assistant_without_calls": [
        "messages[2]: tool message without a preceding assistant message with tool_calls"
    ],
    "answer_again_a_turn_later": ["messages[4]: tool message without a preceding assistant message with tool_calls"],
    "answer_to_no_call": ["messages[3].tool_call_id: 'call_2' is not among the tool_calls before"],
    "answer_twice": ["messages[3].tool_call_id: 'call_1' is answered twice"],
    "answer_without_id": ["messages[3].tool_call_id: None is not among the tool_calls before"],
    "answers_out_of_order": ["messages[3].tool_call_id: not in the order of the calls"],
    "answer_content_null": ["messages[2].content: must be a string or an array of parts"],
    "answer_without_content": ["messages[2].content: must be a string or an array of parts"],
    "answer_content_an_object": ["messages[2].content: must be a string or an array of parts"],
    "answer_with_image": ["messages[2].content[0].type: part must be an object of type ['text']"],
}


def history(name: str) -> list[dict[str, Any]]:
    return json.loads(VALID[name].read_bytes())["messages"]


def test_the_table_names_every_file() -> None:
    assert BROKEN.keys() == REASONS.keys()


@pytest.mark.parametrize("name", REASONS)
def test_a_broken_request_is_refused_for_its_reason(name) -> None:
    found = violations(BROKEN[name].read_bytes())
    assert len(found) == len(REASONS[name]), found
    for violation, reason in zip(found, REASONS[name], strict=True):
        assert violation.startswith(reason)


@pytest.mark.parametrize("name", [name for name in REASONS if REASONS[name][0].startswith("messages")])
def test_a_broken_history_is_refused_alone_too(name) -> None:
    body = BROKEN[name].read_bytes()
    assert history_violations(json.loads(body).get("messages")) == violations(body)


@pytest.mark.parametrize("name", VALID)
def test_a_valid_request_is_accepted(name) -> None:
    assert violations(VALID[name].read_bytes()) == []
    assert history_violations(history(name)) == []


@pytest.mark.parametrize("name", VALID)
def test_no_call_and_no_answer_can_be_taken_away(name) -> None:
    messages = history(name)
    for at, message in enumerate(messages):
        if message["role"] == "tool" or "tool_calls" in message:
            assert history_violations([*messages[:at], *messages[at + 1 :]])


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("role", ["user", "system", "assistant"])
def test_nothing_comes_between_calls_and_answers(name, role) -> None:
    messages = history(name)
    for at, message in enumerate(messages):
        found = history_violations([*messages[:at], {"role": role, "content": "Hi"}, *messages[at:]])
        assert bool(found) == (message["role"] == "tool")


def test_arrays_have_a_limit() -> None:
    def request(count: int) -> bytes:
        names = [f"n{at}" for at in range(count)]
        calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]
        answers = [{"role": "tool", "tool_call_id": name, "content": ""} for name in names]
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        messages = [{"role": "assistant", "tool_calls": calls}, *answers]
        return json.dumps({"model": "gpt-4.1-mini", "messages": messages, "tools": tools}).encode()

    assert violations(request(ARRAY_LENGTH)) == []
    rule = "array too long, 128 items at most"
    assert violations(request(ARRAY_LENGTH + 1)) == [f"messages[0].tool_calls: {rule}", f"tools: {rule}"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (({"type": "text", "text": "Hi"},), "messages[0].content: tuple is not JSON value"),
        (b"Hi", "messages[0].content: bytes is not JSON value"),
        ("\ud83d", "messages[0].content: lone surrogate in a string"),
        ([{"type": "text", "text": "Hi", "x": float("inf")}], "messages[0].content[0].x: number must be finite"),
        ([{"type": "text", "text": "Hi", 1: 2}], "messages[0].content[0]: keys must be strings"),
    ],
)
def test_python_values_that_are_no_json_are_refused(content, reason) -> None:
    assert reason in history_violations([{"role": "user", "content": content}])


def test_deep_json_is_no_crash() -> None:
    assert violations(b"[" * 100_000)
    deep = (
        b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "metadata": ' + b"[" * 500 + b"]" * 500 + b"}"
    )
    assert violations(deep) == []
