"""Tool messages, chat documents, steering tools, signals and done sequences: the parts that agents and tasks are of."""

import importlib
import json
from datetime import date
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costs import cost_s

import gesta
from gesta.compat.langchain.steps import UNANSWERED
from gesta.compat.langroid import chat_document, orchestration
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.chat_document import (
    ChatDocAttachment,
    ChatDocMetaData,
    ChatDocument,
    Entity,
    LLMFunctionCall,
    OpenAIToolCall,
    StatusCode,
    from_ChatDocument,
    from_state,
    process_tool_results,
    to_state,
)
from gesta.compat.langroid.done_sequences import (
    AgentEvent,
    DoneSequence,
    EventType,
    Response,
    matched,
    parse_done_sequence,
    parse_done_sequences,
)
from gesta.compat.langroid.entities import LLMMessage
from gesta.compat.langroid.facts import facts_of, fits
from gesta.compat.langroid.orchestration import (
    AgentDoneTool,
    DoneTool,
    FinalResultTool,
    RecipientTool,
    ResultTool,
    SendTool,
    effect_of,
)
from gesta.compat.langroid.signals import AT, parse_recipient, parse_routing
from gesta.compat.langroid.tool_message import (
    Attempt,
    ToolForm,
    ToolMessage,
    as_tool,
    as_tool_class,
    attempt,
    attempts,
    to_json,
)
from gesta.errors import BadArguments, BadTool
from gesta.kinds import ToolCallContent, ToolResultContent
from gesta.message import Call
from gesta.model.request import Reply, ReplyCall

PATHS = """
chat_document: AT ChatDocAttachment ChatDocMetaData ChatDocument DONE Entity LLMFunctionCall LogFields NO_ANSWER
chat_document: OpenAIToolCall PASS PASS_TO SEND_TO StatusCode USER_QUIT_STRINGS from_ChatDocument process_tool_results
orchestration: AgentDoneTool AgentSendTool DonePassTool DoneTool FinalResultTool ForwardTool PassTool RecipientTool
orchestration: ResultTool SendTool
tool_message: ToolMessage
done_sequences: AgentEvent DoneSequence EventType parse_done_sequence parse_done_sequences
"""


class Square(ToolMessage):
    """What a user writes."""

    request: str = "square"
    purpose: str = "To find the square of a <num>."
    num: int
    note: str | None = None

    @classmethod
    def examples(cls) -> list[Any]:
        return [cls(num=3), ("I need the square of 5", cls(num=5))]


class Mail(ToolMessage):
    request: str = "mail"
    purpose: str = "To send a mail."
    recipient: Annotated[str, msgspec.Meta(description="Address of a mailbox.")]
    body: str = ""


class Named(ToolMessage):
    request: str = "named"
    purpose: str = "To have fields that are called like methods."
    name: str  # type: ignore[assignment]  # a method there
    examples: list[str] = msgspec.field(default_factory=list)  # type: ignore[assignment]  # as above
    day: date = date(2026, 1, 2)


class Twice(ToolMessage):
    request: str = "twice"
    purpose: str = "To do it again."
    _handler = "do_again"
    _allow_llm_use = False
    inner: Square


class Cube(pydantic.BaseModel):
    request: str = "cube"
    purpose: str = "To find a cube."
    num: int = pydantic.Field(ge=3, description="At least 3.")
    many: list[float] = []
    _handler = "handle_cube"

    @classmethod
    def examples(cls) -> list[Any]:
        return [cls(num=7)]


TOOLS: dict[str, type[ToolForm]] = {each.name(): each for each in (Square, Mail, Twice)}


def doc(content: str = "", sender: Entity = Entity.LLM, **fields: Any) -> ChatDocument:
    return ChatDocument(content=content, metadata=ChatDocMetaData(sender=sender), **fields)


def calls(*ids: str | None) -> list[OpenAIToolCall]:
    return [OpenAIToolCall(id=id_, function=LLMFunctionCall("square", {"num": n})) for n, id_ in enumerate(ids)]


@pytest.mark.parametrize("line", PATHS.strip().splitlines())
def test_names_are_at_their_places(line: str) -> None:
    module, _, names = line.partition(": ")
    missing = [
        name for name in names.split() if not hasattr(importlib.import_module(f"gesta.compat.langroid.{module}"), name)
    ]
    assert not missing


# ---------------------------------------------------------------------------------------------------- tool messages


def test_a_class_has_fields_without_default_after_those_with_one() -> None:
    assert Square(num=3) == Square(request="square", purpose="To find the square of a <num>.", num=3)
    square: Any = Square
    with pytest.raises(TypeError, match="Missing required argument 'num'"):
        square()
    with pytest.raises(TypeError, match=r"Square has no field 'nmu'\. Did you mean 'num'\?"):
        square(nmu=3)


def test_a_class_tells_a_provider_of_itself() -> None:
    spec = Square.llm_function_schema()
    assert (spec.name, spec.description) == ("square", "To find the square of a <num>.")
    assert list(spec.parameters["properties"]) == ["num", "note"]
    assert spec.parameters["required"] == ["num"]
    with_request = Square.llm_function_schema(request=True, defaults=False).parameters
    assert with_request["properties"]["request"] == {"type": "string", "enum": ["square"]}
    assert list(with_request["properties"]) == with_request["required"] == ["request", "num"]
    assert Square.simple_schema() == with_request


def test_a_schema_is_made_once_and_nobody_can_change_it() -> None:
    facts = facts_of(Square)
    Square.llm_function_schema().parameters["properties"].clear()
    Square.default_value("note")
    assert facts_of(Square) is facts
    assert "num" in facts.schema["properties"]


def test_a_tool_inside_a_tool_is_pinned_and_its_purpose_hidden() -> None:
    inner = Twice.llm_function_schema().parameters["$defs"]["Square"]
    assert inner["properties"]["request"] == {"type": "string", "enum": ["square"]}
    assert "purpose" not in inner["properties"]
    assert inner["required"] == ["request", "num"]
    found = attempt("twice", {"inner": {"request": "square", "num": 2}}, TOOLS).tool
    assert found == Twice(inner=Square(num=2))


def test_instructions_hold_what_a_model_must_know() -> None:
    text = Square.json_instructions(tool=True)
    for part in ("square", "To find the square of a <num>.", '"num"', "I need the square of 5"):
        assert part in text
    assert '"request"' not in Square.json_instructions()
    whole = ToolMessage.json_group_instructions().format(json_instructions=text)
    assert text in whole


def test_examples_are_messages_that_can_be_read_again() -> None:
    every = attempts(Square.usage_examples(), TOOLS)
    assert [one.tool for one in every] == [Square(num=3), Square(num=5)]
    one = Square.usage_examples(random=True)
    assert one == Square.usage_examples(random=True)
    assert len(attempts(one, TOOLS)) == 1
    assert Mail.usage_examples() == Mail.instructions() == ""


def test_a_message_is_written_as_a_model_would_send_it() -> None:
    message = Square(num=3, note="é")
    assert message.dict_example() == {"request": "square", "num": 3, "note": "é"}
    assert message.to_json() == message.format_example() == to_json(message)
    assert [one.tool for one in attempts(f"So:\n{message.to_json()}", TOOLS)] == [message]


def test_fields_may_be_called_like_methods() -> None:
    found = attempt("named", {"name": "Ada", "day": "2026-11-21"}, {"named": Named}).tool
    assert found == Named(name="Ada", day=date(2026, 11, 21))
    assert json.loads(to_json(found)) == {"request": "named", "name": "Ada", "examples": [], "day": "2026-11-21"}


def test_defaults_and_values_are_found_by_name_and_type() -> None:
    assert Square.default_value("request") == "square"
    assert Square.default_value("num") is Square.default_value("unknown") is None
    assert Twice(inner=Square(num=2)).get_value_of_type(Square) == Square(num=2)
    assert Square(num=3).get_value_of_type(float) is None
    assert (Twice._handler, Twice._allow_llm_use, Square._allow_llm_use) == ("do_again", False, True)
    assert Square._max_result_tokens is Square._max_retained_tokens is None


def test_every_wrong_field_is_named_and_the_whole_message_asked_for_again() -> None:
    found = attempt("square", {"num": "three", "note": 4, "colour": "red"}, TOOLS)
    assert found.tool is None
    assert found.problem == (
        "Arguments of 'square': Expected `int`, got `str` - at `$.num`; Expected `str | null`, got `int` - at `$.note`; "
        "Unknown argument - at `$.colour`. Known: 'num', 'note'. "
        "Correct every field named here and send the whole 'square' message again."
    )


def test_what_a_class_itself_refuses_is_told_too() -> None:
    class Even(ToolMessage):
        request: str = "even"
        num: int

        def __post_init__(self) -> None:
            if self.num % 2:
                raise ValueError("an even number is needed")

    problem = attempt("even", {"num": 3}, {"even": Even}).problem
    assert problem is not None
    assert problem.startswith("Arguments of 'even': an even number is needed. Correct")


def test_an_unknown_tool_is_told_with_the_nearest() -> None:
    found = attempt("sqare", {}, TOOLS)
    assert found == Attempt(
        name="sqare", problem="There is no tool 'sqare'. Did you mean 'square'? Tools: square, mail, twice."
    )


def test_a_class_may_demand_a_recipient() -> None:
    addressed = Square.require_recipient()
    assert addressed.llm_function_schema().parameters["required"] == ["num", "recipient"]
    assert addressed.name() == "square"
    found = attempt("square", {"num": 3, "recipient": "Bob"}, {"square": addressed})
    assert isinstance(found.tool, Square)
    assert found.recipient == "Bob"


def test_a_pydantic_model_is_taken_with_its_own_rules() -> None:
    tool: Any = as_tool_class(Cube)
    assert as_tool_class(Cube) is tool
    assert as_tool_class(tool) is tool
    assert (tool.name(), tool._handler, tool._allow_llm_use) == ("cube", "handle_cube", True)
    assert tool.llm_function_schema().parameters["properties"]["num"]["description"] == "At least 3."
    found = attempt("cube", {"num": "5"}, {"cube": tool}).tool
    assert isinstance(found, Cube)
    assert found.num == 5
    assert found.get_value_of_type(int) == 5
    problem = attempt("cube", {"num": 1, "z": 2, "many": "x"}, {"cube": tool}).problem or ""
    for part in ("'cube'", "`$.z`", "`$.num`", "`$.many`", "greater than or equal to 3", "send the whole 'cube'"):
        assert part in problem
    assert [one.tool for one in attempts(tool.usage_examples(), {"cube": tool})] == [tool(num=7)]
    assert attempt("cube", {"num": 4, "recipient": "Al"}, {"cube": tool.require_recipient()}).recipient == "Al"


@pytest.mark.parametrize("wrong", [int, "square", pydantic.BaseModel])
def test_any_other_class_is_refused(wrong: Any) -> None:
    with pytest.raises(BadTool, match="expected a"):
        as_tool_class(wrong)


@pytest.mark.parametrize("way", ["plain", "async"])
def test_a_message_class_is_a_tool_of_any_agent(way: str) -> None:
    seen: list[Square] = []

    def handle(message: Square) -> str:
        seen.append(message)
        return f"{message.num**2}"

    async def handle_later(message: Square) -> str:
        return handle(message)

    tool = as_tool(Square, handle if way == "plain" else handle_later, "pure")
    model = gesta.scripted(gesta.call("square", num="x"), gesta.call("square", num=4), "It is 16.")
    with gesta.open_sync() as record:
        outcome = record.run(gesta.Agent("guide", model=model, tools=[tool]), "Square of 4?")
        contents = [entry.content for entry in record.read(outcome.run)]
    assert outcome.answer == "It is 16."
    assert seen == [Square(num=4)]
    assert [each.status for each in contents if isinstance(each, ToolCallContent)] == ["error", "success"]
    told = [each.tool_result for each in contents if isinstance(each, ToolResultContent)]
    assert "send the whole 'square' message again" in told[0]
    assert told[1] == "16"


def test_a_function_that_handles_messages_may_ask_for_the_context() -> None:
    async def handle(message: Square, *, at: gesta.Context) -> str:
        return f"{message.num**2} in {at.session}"

    model = gesta.scripted(gesta.call("square", num=4), "It is 16.")
    with gesta.open_sync() as record:
        agent = gesta.Agent("guide", model=model, tools=[as_tool(Square, handle, "pure")])
        outcome = record.run(agent, "Square of 4?", session="anna")
        contents = [entry.content for entry in record.read(outcome.run)]
    assert [each.tool_result for each in contents if isinstance(each, ToolResultContent)] == ["16 in anna"]


def test_a_message_without_name_is_no_tool() -> None:
    with pytest.raises(BadTool, match="has no name to call it by"):
        as_tool(FinalResultTool, print)


# ----------------------------------------------------------------------------------------------------- tools in text


def test_json_in_prose_is_no_tool_whatever_its_fields() -> None:
    assert attempts('A config looks like {"num": 3} or {"recipient": "x", "body": "y"}.', TOOLS) == []


def test_several_tools_of_a_text_are_read_in_order_with_their_places() -> None:
    text = 'First {"request": "square", "num": 1}, then [{"request": "square", "num": 2}, {"request": "nope"}].'
    found = attempts(text, TOOLS)
    assert [one.tool for one in found] == [Square(num=1), Square(num=2), None]
    assert text[found[0].start : found[0].end] == '{"request": "square", "num": 1}'
    assert "There is no tool 'nope'" in (found[2].problem or "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"request": "square", "num": 1,}', "Illegal trailing comma"),
        ("{'request': 'square', 'num': {1}}", "Expecting property name"),
        ('{"request": "square", "num": 1', "it is not closed"),
    ],
)
def test_a_call_that_cannot_be_read_is_told_not_lost(text: str, why: str) -> None:
    (found,) = attempts(text, TOOLS)
    assert found.name == "square"
    assert found.problem is not None
    assert found.problem.startswith(f"The JSON of 'square' can not be read: {why}")


def test_a_tool_json_of_100_kb_is_read_in_10_ms() -> None:
    text = json.dumps({"request": "mail", "recipient": "a@b", "body": 'some {words} and "quotes"\n' * 4000})
    assert len(text) > 100_000
    assert attempts(text, TOOLS)[0].tool is not None
    assert cost_s(lambda: attempts(text, TOOLS), 5) < 0.010


# -------------------------------------------------------------------------------------------------------- documents


def test_an_entity_is_equal_to_its_name_in_any_case() -> None:
    assert Entity.LLM == "llm"
    assert Entity.AGENT == "AGENT"
    assert Entity.USER != None  # noqa: E711
    assert Entity.USER != Entity.LLM
    assert {"llm": 1}[Entity.LLM] == 1
    assert Entity("system") is Entity.SYSTEM
    assert str(Entity.USER) == "User"


def test_a_reply_becomes_a_document() -> None:
    reply = Reply(
        text=" so ", calls=(ReplyCall("functions.square", '{"num": 2}', "c1"),), thought="hm", usage={"in": 3}
    )
    made = ChatDocument.from_LLMResponse(reply, displayed=True)
    assert (made.content, made.reasoning) == ("so", "hm")
    assert made.oai_tool_calls == [OpenAIToolCall(id="c1", function=LLMFunctionCall("square", {"num": 2}))]
    assert made.metadata == ChatDocMetaData(
        sender=Entity.LLM, usage={"in": 3}, displayed=True, tools_from_agent=True, oai_tool_id=""
    )
    assert ChatDocument.from_LLMResponse(Reply(text='""')).content == ""


def test_arguments_that_are_none_stay_as_their_text() -> None:
    made = ChatDocument.from_LLMResponse(Reply(calls=(ReplyCall("square", "{num:", "c1"), ReplyCall("square", "[1]"))))
    assert [call.function for call in made.oai_tool_calls or ()] == [
        LLMFunctionCall("square", None, "{num:"),
        LLMFunctionCall("square", None, "[1]"),
    ]


@pytest.mark.parametrize(
    ("text", "recipient", "content"),
    [
        ("TO[Bob]: hello", "Bob", "hello"),
        ("TO[Data team]:\nhello", "Data team", "\nhello"),
        ("Write TO[Bob]: hello", "", "Write TO[Bob]: hello"),
        ('{"request": "square", "num": 1, "recipient": "Bob"}', "Bob", None),
        ('{"request": "mail", "recipient": "bob@example.org"}', "", None),
        ('{"recipient": "Bob", "content": "hi"}', "Bob", None),
        ('{"recipient": 5}', "", None),
    ],
)
def test_an_address_is_taken_from_the_text_unless_it_is_a_matter_of_the_tool(text, recipient, content) -> None:
    made = ChatDocument.from_LLMResponse(Reply(text=text), tools=TOOLS)
    assert (made.metadata.recipient, made.content) == (recipient, text if content is None else content)
    plain = ChatDocument.from_LLMResponse(Reply(text=text), tools=TOOLS, recognize_recipient_in_content=False)
    assert (plain.metadata.recipient, plain.content) == ("", text)


@pytest.mark.parametrize(("name", "expected"), [("mail", ""), ("square", "Bob"), ("unknown", "Bob")])
def test_a_native_call_names_a_recipient_unless_that_is_a_matter_of_the_tool(name: str, expected: str) -> None:
    reply = Reply(calls=(ReplyCall(name, '{"recipient": "Bob", "num": 1}', "c1"),))
    assert ChatDocument.from_LLMResponse(reply, tools=TOOLS).metadata.recipient == expected
    if name != "unknown":
        assert attempt(name, {"recipient": "Bob"} | ({"num": 1} if name == "square" else {}), TOOLS).tool is not None


def test_what_a_person_says_stays_as_it_is() -> None:
    made = ChatDocument.from_str("SYSTEMATIC review of SYSTEM logs")
    assert made.content == "SYSTEMATIC review of SYSTEM logs"
    assert (made.metadata.sender, made.metadata.tainted) == (Entity.USER, True)
    assert ChatDocument.from_str("TO[Bob]: x").metadata.recipient == "Bob"
    assert ChatDocument.to_LLMMessage("SYSTEM: x") == [LLMMessage(role="user", text="SYSTEM: x")]


def test_messages_of_a_history_go_both_ways() -> None:
    for message in (
        LLMMessage(role="user", text="hi"),
        LLMMessage(role="system", text="be kind"),
        LLMMessage(role="assistant", text="so", calls=(Call("c1", "square", {"num": 1}),)),
    ):
        assert ChatDocument.to_LLMMessage(ChatDocument.from_LLMMessage(message)) == [message]
    made = ChatDocument.from_LLMMessage(LLMMessage(role="tool", text="4", call_id="c1"), "guide", "Bob")
    assert (made.metadata.oai_tool_id, made.metadata.sender_name, made.metadata.recipient) == ("c1", "guide", "Bob")


def test_messages_for_a_model_have_the_names_of_langroid() -> None:
    made = doc("", Entity.AGENT, oai_tool_id2result={"c1": "4"})
    [result] = ChatDocument.to_LLMMessage(made, calls("c1"))
    assert (result.content, result.tool_call_id, result.role) == ("4", "c1", "tool")
    [said] = ChatDocument.to_LLMMessage(doc("so", Entity.LLM, oai_tool_calls=calls("c2")))
    assert (said.content, [each.id for each in said.tool_calls or ()]) == ("so", ["c2"])
    chat = ChatAgent(ChatAgentConfig(system_message="Be kind.", user_message="Greet me."))
    assert [each.content for each in chat.task_messages] == ["Be kind.", "Greet me."]


def test_calls_of_others_and_function_calls_are_shown_as_text() -> None:
    made = doc("so", Entity.USER, oai_tool_calls=calls("c1"), function_call=LLMFunctionCall("mail", None, "{x"))
    assert ChatDocument.to_LLMMessage(made) == [LLMMessage(role="user", text='so\nsquare {"num": 0}\nmail {x')]


def test_a_value_or_a_tool_message_without_text_is_shown() -> None:
    assert ChatDocument.to_LLMMessage(doc("", Entity.AGENT, content_any={"a": 1}))[0].text == '{"a": 1}'
    assert "square" in ChatDocument.to_LLMMessage(doc("", Entity.AGENT, tool_messages=[Square(num=1)]))[0].text


IDS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)


@given(
    IDS, st.dictionaries(st.sampled_from("abcdefgh"), st.text(max_size=5)), st.text(max_size=5), st.sampled_from("ax")
)
def test_every_call_that_waits_gets_exactly_one_result_in_order(pending, results, text, one) -> None:
    made = doc(text, Entity.AGENT, oai_tool_id2result=results or None)
    made.metadata.oai_tool_id = one
    sent = ChatDocument.to_LLMMessage(made, calls(*pending))
    assert [message.call_id for message in sent if message.role == "tool"] == pending
    assert all(message.role == "tool" for message in sent[: len(pending)])
    shown = "\n".join(message.text for message in sent)
    assert all(result in shown for result in results.values())
    assert text in shown


@given(IDS, st.dictionaries(st.sampled_from("abcdefgh"), st.text(max_size=5)), st.text(max_size=5))
def test_results_are_paired_with_every_call_and_none_is_lost(pending, results, text) -> None:
    rest, paired, one = process_tool_results(text, results, calls(*pending))
    if one is not None:
        assert ([one], paired) == (pending, None)
    else:
        assert list(paired or {}) == pending
    shown = "\n".join([rest, *(paired or {}).values()])
    assert all(each in shown for each in [text, *results.values()])


def test_a_handler_that_gave_nothing_leaves_its_call_answered() -> None:
    assert process_tool_results("", {"a": "1"}, calls("a", "b")) == ("", {"a": "1", "b": UNANSWERED}, None)


def test_one_text_of_a_sub_task_answers_all_calls() -> None:
    rest, paired, one = process_tool_results("both done", None, calls("a", "b"))
    assert (rest, one) == ("", None)
    assert paired is not None
    assert paired["a"] == "both done"
    assert paired["b"]


def test_results_under_the_ids_of_another_agent_go_by_their_order() -> None:
    assert process_tool_results("", {"x": "1", "y": "2"}, calls("a", "b")) == ("", {"a": "1", "b": "2"}, None)
    assert process_tool_results("", {"x": "1", "a": "2"}, calls("a")) == ("1", {"a": "2"}, None)


def test_results_that_no_call_waits_for_are_text() -> None:
    assert process_tool_results("so", None, None) == ("so", None, None)
    assert process_tool_results("", {"x": "1", "y": "2"}, []) == ("1\n\n2", None, None)


def test_an_empty_result_is_a_result() -> None:
    assert process_tool_results("", None, calls("a")) == ("", None, "a")
    made = doc("", Entity.AGENT)
    made.metadata.oai_tool_id = "a"
    sent = ChatDocument.to_LLMMessage(made, calls("a"))
    assert sent == [LLMMessage(role="tool", text="", call_id="a", name="square")]


def test_a_new_question_is_no_result_of_a_call_that_was_left() -> None:
    sent = ChatDocument.to_LLMMessage("And what of 5?", calls("a"))
    assert [(each.role, each.text) for each in sent] == [("tool", UNANSWERED), ("user", "And what of 5?")]


def test_calls_without_id_get_one_each() -> None:
    sent = ChatDocument.to_LLMMessage(doc(oai_tool_calls=calls(None, None)))
    assert [call.id for call in sent[0].calls] == ["call_1", "call_2"]
    answers = ChatDocument.to_LLMMessage(doc("", Entity.AGENT), calls(None, None))
    assert [each.call_id for each in answers] == ["call_1", "call_2"]


def test_a_document_tells_its_tools_to_the_log() -> None:
    text = 'x {"request": "square"} {"request": "mail"} {"request": 5} {"a": 1}'
    made = doc(text)
    made.metadata.sender_name, made.metadata.recipient, made.metadata.block = "guide", "Bob", Entity.USER
    assert made.get_json_tools() == made.get_tool_names() == ["square", "mail"]
    fields = made.log_fields()
    assert msgspec.structs.astuple(fields) == ("LLM", "guide", "Bob", "USER", "TOOL", "square,mail", text)
    assert doc(text, Entity.SYSTEM).log_fields().tool_type == ""
    assert doc(oai_tool_calls=calls("a")).log_fields().tool_type == "OAI_TOOL"
    assert doc(function_call=LLMFunctionCall("f")).log_fields().tool_type == "FUNC"
    assert str(made).startswith("LLM[guide] => Bob: TOOL[square,mail]: x")


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=4)


@given(st.text(), JSON, st.lists(st.sampled_from("abc"), unique=True), st.sampled_from([None, *StatusCode]))
def test_a_document_is_kept_as_json_and_comes_back(content, value, ids, status) -> None:
    made = doc(
        content, content_any=value, oai_tool_calls=calls(*ids) or None, oai_tool_id2result=dict.fromkeys(ids, "")
    )
    made.tool_messages = [Square(num=1), AgentDoneTool(content=value, tools=[DoneTool(content="x"), Square(num=2)])]
    made.metadata.status, made.attachment = status, ChatDocAttachment(pages=[1, 2])
    tools: dict[str, type[ToolForm]] = {"done_tool": DoneTool, "agent_done_tool": AgentDoneTool, **TOOLS}
    kept = json.loads(json.dumps(to_state(made)))
    assert from_state(kept, tools) == made


def test_results_with_any_fields_come_back() -> None:
    cube: Any = as_tool_class(Cube)
    made = doc(tool_messages=[ResultTool(answer=42), cube(num=3)], content_any=Square(num=1))
    tools: dict[str, type[ToolForm]] = {"result_tool": ResultTool, "cube": cube}
    back = from_state(to_state(made), tools)
    assert back.tool_messages == made.tool_messages
    assert back.content_any["num"] == 1


def test_a_message_is_made_of_the_class_whose_fields_it_has() -> None:
    addressed: Any = Square.require_recipient()  # stands where `Square` does, and is as long alive as anybody has it
    made = [Square(num=1), addressed(num=1, recipient="Al")]
    back = from_state(to_state(doc(tool_messages=made)), {}).tool_messages
    assert [type(each) for each in back] == [Square, addressed]


def test_a_document_with_a_tool_that_is_gone_says_so() -> None:
    state = to_state(doc(tool_messages=[Square(num=1)]))
    assert from_state(state, {}).tool_messages == [Square(num=1)]
    gone = {**state, "tool_messages": [{"request": "sqare", "args": {}}]}
    with pytest.raises(BadTool, match="message of tool 'sqare', which is not enabled"):
        from_state(gone, {})
    state["tool_messages"][0]["args"] = {"number": 1}
    with pytest.raises(BadArguments, match="number"):
        from_state(state, TOOLS)


# -------------------------------------------------------------------------------------------------------- extraction


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("5", int, 5),
        (" -7 ", int, -7),
        ("5.0", int, None),
        ("about 5", int, None),
        ("1_000", int, None),
        ("9" * 5000, int, None),
        ("2.5e3", float, 2500.0),
        (".5", float, 0.5),
        ("nan", float, None),
        ("", str, None),
        (" as it is ", str, " as it is "),
        *((text, bool, True) for text in ("true", "Yes", "1")),
        *((text, bool, False) for text in ("False", "no", "0")),
        ("certainly not", bool, None),
        ("", bool, None),
    ],
)
def test_a_value_is_read_from_a_text_that_is_nothing_else(text: str, type_: type, expected: Any) -> None:
    found = from_ChatDocument(doc(text), type_)
    assert found == expected
    assert type(found) is type(expected)


def test_a_value_is_looked_for_in_the_known_order() -> None:
    full = doc("text", content_any="any", tool_messages=[Mail(recipient="r", body="field"), Square(num=4)])
    assert from_ChatDocument(full, str) == "any"
    full.content_any = None
    assert from_ChatDocument(full, str) == "text"
    full.content = ""
    assert from_ChatDocument(full, str) == "r"
    assert from_ChatDocument(full, Square) == Square(num=4)
    assert from_ChatDocument(full, list[Square]) == [Square(num=4)]
    assert from_ChatDocument(full, list[ToolMessage]) == full.tool_messages
    assert from_ChatDocument(full, int) == 4
    assert from_ChatDocument(full, float) is None
    assert from_ChatDocument(doc(tool_messages=[ResultTool(answer=[1, 2])]), list[int]) == [1, 2]


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ([1, 2], list[int], True),
        ([1, "2"], list[int], False),
        ([True], list[int], False),
        ({"a": [1]}, dict[str, list[int]], True),
        ({"a": ["x"]}, dict[str, list[int]], False),
        ((1, "a"), tuple[int, str], True),
        ((1, 2, 3), tuple[int, ...], True),
        (None, int | None, True),
        (5, float, False),
        ([Square(num=1)], list[ToolMessage], True),
        ([Square(num=1)], list[Mail], False),
    ],
)
def test_a_type_is_checked_down_to_what_containers_hold(value: Any, type_: Any, expected: bool) -> None:
    assert fits(value, type_) is expected
    assert (from_ChatDocument(doc(content_any=value), type_) is not None) is (expected and value is not None)


# --------------------------------------------------------------------------------------------------------- steering


def test_steering_tools_have_their_names_and_effects() -> None:
    table = {each.__name__: (each.name(), each._effect.ends, each._effect.gives, each._effect.to) for each in ALL}  # type: ignore[attr-defined]
    assert table == {
        "DoneTool": ("done_tool", "task", "content", ""),
        "AgentDoneTool": ("agent_done_tool", "task", "content", ""),
        "ResultTool": ("result_tool", "task", "itself", ""),
        "FinalResultTool": ("", "all", "itself", ""),
        "PassTool": ("pass_tool", "", "pending", ""),
        "DonePassTool": ("done_pass_tool", "task", "pending", ""),
        "ForwardTool": ("forward_tool", "", "pending", "agent"),
        "SendTool": ("send_tool", "", "content", "to"),
        "AgentSendTool": ("agent_send_tool", "", "content", "to"),
        "RecipientTool": ("recipient_message", "", "content", "intended_recipient"),
        "AddRecipientTool": ("add_recipient", "", "unsent", "intended_recipient"),
        "RewindTool": ("rewind_tool", "", "rewind", ""),
    }
    never = [each.__name__ for each in ALL if not each._allow_llm_use]
    assert never == ["AgentDoneTool", "FinalResultTool", "AgentSendTool"]
    assert effect_of(SendTool(to="Bob")) == SendTool._effect
    assert effect_of(Square(num=1)) is None


ALL = orchestration.TOOLS


def test_what_is_done_becomes_text() -> None:
    assert [DoneTool(content=value).content for value in (5, None, "x", {"a": 1})] == ["5", "null", "x", '{"a": 1}']
    assert attempt("done_tool", {"content": 5}, {"done_tool": DoneTool}).tool == DoneTool(content="5")
    assert DoneTool.llm_function_schema().parameters["properties"]["content"]["type"] == "string"


def test_a_result_takes_any_fields() -> None:
    made = ResultTool(answer=42, rows=[Square(num=1)])
    assert made.get_value_of_type(int) == 42
    assert made.get_value_of_type(list[Square]) == [Square(num=1)]
    assert (made == ResultTool(answer=42, rows=[Square(num=1)]), made == ResultTool(answer=43)) == (True, False)
    assert "answer=42" in repr(made)


def test_a_model_may_use_a_named_result() -> None:
    class Final(FinalResultTool):
        request: str = "final"
        _allow_llm_use: bool = True
        answer: int

    assert attempt("final", {"answer": 3}, {"final": Final}).tool == Final(answer=3)
    assert "`$.colour`" in (attempt("final", {"answer": 3, "colour": 1}, {"final": Final}).problem or "")
    assert effect_of(Final(answer=3)) == FinalResultTool._effect


def test_recipients_may_be_limited() -> None:
    open_ = RecipientTool.create(["Ann", "Bob"])
    default: Any = RecipientTool.create(["Ann", "Bob"], "Bob")
    tools: dict[str, type[ToolForm]] = {"recipient_message": open_}
    problem = attempt("recipient_message", {"intended_recipient": "Cy", "content": "x"}, tools).problem
    assert "expected one of 'Ann', 'Bob'" in (problem or "")
    assert open_.llm_function_schema().parameters["required"] == ["intended_recipient", "content"]
    assert default(content="x").intended_recipient == "Bob"
    for wrong in ([], ["Ann"]):
        with pytest.raises(ValueError, match="expected one of some"):
            RecipientTool.create(wrong, "Zoe")


# ---------------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("DONE", ""),
        ("DONE.", ""),
        ("DONE: 42", "42"),
        ("DONE 42", "42"),
        ("DONE -5", "-5"),
        ("**DONE:** 42", "42"),
        ("`DONE`", ""),
        ("DONE\nthe ABANDONED ship\nwas DONE up", "the ABANDONED ship\nwas DONE up"),
        ("The answer is 42. DONE", "The answer is 42."),
        ("The answer:\n42\nDONE\n", "The answer:\n42"),
    ],
)
def test_done_counts_as_first_or_last_word_and_only_it_is_taken_out(text: str, content: str) -> None:
    found = parse_routing(text)
    assert (found.done, found.content) == (True, content)


@pytest.mark.parametrize(
    "text", ["ABANDONED", "I am not DONE yet", "done", "UNDONE", "NOT-DONE", "state=DONE", "Is it DONE?", "DONE.5", ""]
)
def test_any_other_text_is_left_alone(text: str) -> None:
    found = parse_routing(text, AT)
    assert not (found.done or found.passes or found.recipient or found.no_answer)
    assert found.content == text


@given(st.text(), st.text())
def test_text_around_is_never_altered(before: str, after: str) -> None:
    text = f"{before}xDONEx{after}"
    found = parse_routing(text)
    assert found.content in text
    if not (found.done or found.passes):
        assert found.content == text


@pytest.mark.parametrize(
    ("text", "recipient", "passes", "content"),
    [
        ("__PASS__", "", True, ""),
        ("__PASS__:Bob", "Bob", True, ""),
        ("__SEND__:Bob what is 3+3?", "Bob", False, "what is 3+3?"),
        ("__SEND__:math-agent: go", "math-agent", False, "go"),
        ("|@|Bob, what is it?", "Bob", False, "what is it?"),
        ("|@|Bob", "Bob", True, ""),
        ("What is 3+3? |@|Bob", "Bob", False, "What is 3+3?"),
        ("First\n__SEND__:Ann a\n__SEND__:Bob b\nc", "Bob", False, "b\nc"),
        ("Not |@|Ann but |@|Bob: what is it?", "Bob", False, "what is it?"),
        ("a|@|Bob", "", False, "a|@|Bob"),
    ],
)
def test_an_address_counts_where_a_word_begins_and_the_last_one_does(text, recipient, passes, content) -> None:
    found = parse_routing(text, AT)
    assert (found.recipient, found.passes, found.content) == (recipient, passes, content)


def test_other_signals_are_read() -> None:
    assert parse_routing("DO-NOT-KNOW.").no_answer
    assert not parse_routing("I said DO-NOT-KNOW").no_answer
    both = parse_routing("DONE __PASS__")
    assert (both.done, both.passes) == (True, True)
    assert parse_routing("|@|Bob x").recipient == ""
    assert parse_recipient("TO[Bob]: x") == ("Bob", "x")
    assert chat_document.USER_QUIT_STRINGS == ("q", "x", "quit", "exit", "bye", "DONE")


def test_signals_are_read_fast_from_long_texts() -> None:
    for text in (
        "DONE " * 20_000,
        " " * 100_000,
        "__SEND__:Bob x " * 7_000,
        "**" * 50_000,
        "DONE" + "." * 100_000 + "x",
    ):
        assert cost_s(lambda text=text: parse_routing(text, AT), 1) < 0.5  # type: ignore[misc]


# --------------------------------------------------------------------------------------------------- done sequences

TOOL = Response(sender="LLM", tools=["square", "mail"], content="{...}")
LLM = Response(sender="LLM", content="The answer is 42")
AGENT = Response(sender="Agent", content="16")
USER = Response(sender="User", content="thanks")
NOTHING = Response(sender="Agent", none=True)


@pytest.mark.parametrize(
    ("dsl", "responses", "expected"),
    [
        ("T, A", [USER, TOOL, AGENT], True),
        ("T, A", [TOOL, NOTHING, AGENT, NOTHING], True),
        ("T, A", [TOOL, AGENT, USER], False),
        ("T, A", [AGENT], False),
        ("T[square], A", [TOOL, AGENT], True),
        ("T[mail]", [TOOL], True),
        ("T[Square]", [TOOL], True),
        ("T[twice]", [TOOL], False),
        ("L", [LLM], True),
        ("L", [TOOL], False),
        ("L, L", [LLM], False),
        ("N", [LLM, NOTHING], True),
        ("L, N", [LLM, NOTHING], True),
        ("N", [LLM], False),
        ("C", [LLM], True),
        ("C", [Response(sender="LLM", content=" ")], False),
        ("C[ANSWER IS \\d+]", [LLM], True),
        ("C[[0-9]{1,3}], U", [LLM, USER], True),
        ("C[no such]", [LLM], False),
        (" llm ,, User ", [LLM, USER], True),
        ("tool, agent", [TOOL, AGENT], True),
    ],
)
def test_a_sequence_matches_the_newest_responses(dsl: str, responses: list[Response], expected: bool) -> None:
    sequence = parse_done_sequence(dsl, TOOLS)
    assert (matched([sequence], responses) is sequence) is expected


def test_events_may_name_who_gave_them() -> None:
    by = DoneSequence(events=[AgentEvent(event_type=EventType.AGENT_RESPONSE, responder="Adder", sender="agent")])
    assert matched([by], [Response(sender="Agent", responder="adder", content="1")]) is by
    assert matched(parse_done_sequences([by, "U"]), [AGENT]) is None
    of_class = DoneSequence(events=[AgentEvent(event_type=EventType.SPECIFIC_TOOL, tool_class=Square)])
    assert matched([of_class], [TOOL]) is of_class


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("T, X", "found 'X' in the done sequence 'T, X'; expected T, A, L, U, N, C, T"),
        ("T A", "found 'T A' in the done sequence 'T A'; expected T, A"),
        ("A[x]", "found 'A[x]' in the done sequence 'A[x]'; brackets expected: T[tool], C[regex]"),
        ("T[]", "found 'T[]' in the done sequence 'T[]'; brackets expected"),
        ("C[(]", "no regex: missing ), unterminated subpattern"),
        ("C[x", "found a bracket that is not closed in the done sequence 'C[x'"),
        (" , ", "found no events in the done sequence ' , '"),
        (DoneSequence(events=[]), "found no events in DoneSequence(events=[], name=None)"),
        (5, "found 5 as a done sequence"),
    ],
)
def test_what_is_no_sequence_says_what_was_found(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_done_sequence(wrong)
    assert message in str(raised.value)
