"""Chat agents: responders, tools enabled and disabled, what handlers give, histories that are changed and stay valid."""

import importlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pydantic
import pytest
from tests.validators.chat_completions import violations

import gesta
from gesta.address import formatter as bound_formatter
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.chat_document import ChatDocument, Entity, LLMFunctionCall, OpenAIToolCall
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.language_models import LLMConfig
from gesta.compat.langroid.orchestration import AgentDoneTool, DoneTool, ForwardTool
from gesta.compat.langroid.tool_message import ToolForm, ToolMessage
from gesta.errors import BadTool, GestaError, TurnOpen
from gesta.kinds import CompactionContent, Kind, RequestContent
from gesta.message import Call, Message
from gesta.model.request import ReplyCall
from gesta.prompt import Formatter, rebuild

MODES: dict[str, dict[str, bool]] = {
    "json": {},
    "native": {"use_tools": False, "use_functions_api": True},
    "react": {"use_functions_api": True, "use_tools_api": False},
}
PATHS = """
chat: ChatAgent ChatAgentConfig ChatDocument Entity
chat_config: AgentConfig ChatAgentConfig TaskConfig
tool_message: ToolMessage
task: StatusCode Task TaskConfig
"""
METHODS = """
entity_responders entity_responders_async agent_response agent_response_async llm_response llm_response_async
user_response user_response_async create_agent_response create_llm_response create_user_response response_template
llm_can_respond can_respond has_tool_message_attempt has_only_unhandled_tools unhandled_tools enable_message
enable_message_handling disable_message_handling disable_message_use disable_message_use_except get_tool_messages
get_json_tool_messages get_function_call_class get_oai_tool_calls_classes tool_validation_error handle_message
handle_tool_message handle_message_fallback process_tool_results to_ChatDocument from_ChatDocument task_messages
init_message_history clear_history update_history last_message_with_role nth_message_idx_with_role update_last_message
augment_system_message message_history_str chat_num_tokens tool_instructions json_format_rules llm_response_messages
llm_response_forget clone sample_multi_round_dialog
"""


class Square(ToolMessage):
    request: str = "square"
    purpose: str = "To find the square of a <num>."
    _tool_effect = "pure"
    num: int

    @classmethod
    def examples(cls) -> Sequence[ToolForm]:
        return [cls(num=3)]

    def handle(self) -> str:
        return str(self.num**2)


class Twice(ToolMessage):
    request: str = "twice"
    purpose: str = "To double a <num>."
    _tool_effect = "pure"
    num: int


class Cube(pydantic.BaseModel):
    request: str = "cube"
    purpose: str = "To find a cube."
    num: int = pydantic.Field(ge=1)

    def handle(self) -> int:
        return self.num**3


class Counting(ChatAgent):
    """An agent with handlers of its own."""

    def twice(self, msg: Twice) -> int:
        return 2 * msg.num


def agent(*script: Any, cls: type[ChatAgent] = ChatAgent, mode: str = "native", **config: Any) -> ChatAgent:
    """An agent that has no model if it has no script."""
    llm = gesta.scripted(*script) if script else None
    home = {key: config.pop(key) for key in ("record", "session") if key in config}
    return cls(ChatAgentConfig(**({"name": "calc", "llm": llm} | MODES[mode] | config)), **home)


def calls(*names: str, **args: Any) -> list[ReplyCall]:
    return [gesta.call(name, **(args or {"num": 4})) for name in names]


def entries(chat: ChatAgent) -> Any:
    """All entries of an agent's own run."""
    record = chat.home.record

    async def read() -> Any:
        return await record.read(await record.turns.run_of(chat.home.session, chat.name))

    return chat.wait_for(read, "read")


def of(chat: ChatAgent, kind: type[Any]) -> list[Any]:
    return [each.content for each in entries(chat) if isinstance(each.content, kind)]


def requests_are_valid(chat: ChatAgent) -> int:
    """Every request on record can be made again byte for byte, and is one that a provider takes; how many there are."""
    every = entries(chat)
    asked = [each for each in every if isinstance(each.content, RequestContent)]
    shape: Formatter[Any] = bound_formatter(chat.config.formatter)
    assert not isinstance(chat.config.llm, str | LLMConfig | None)
    for entry in asked:
        made = rebuild(every, entry.seq, shape, chat.config.llm)
        assert made.digest == entry.content.body_digest
        assert violations(made.body()) == []
    return len(asked)


@pytest.mark.parametrize("line", PATHS.strip().splitlines())
def test_names_are_at_their_places(line: str) -> None:
    module, _, names = line.partition(": ")
    place = importlib.import_module(f"gesta.compat.langroid.{module}")
    assert [name for name in names.split() if not hasattr(place, name)] == []


def test_a_chat_agent_has_every_method_of_the_document() -> None:
    assert [name for name in METHODS.split() if not hasattr(ChatAgent, name)] == []


# --------------------------------------------------------------------------------------------------------- responders


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_is_used_in_each_of_the_three_ways(mode: str) -> None:
    first = 'Let me see.\n{"request": "square", "num": 5}' if mode == "json" else gesta.call("square", num=5)
    chat = agent(first, "It is 25.", mode=mode)
    chat.enable_message(Square)
    said = chat.llm_response("What is 5 squared?")
    assert said is not None
    assert said.tool_messages == [Square(num=5)]
    result = chat.agent_response(said)
    assert result is not None
    assert (result.content, result.metadata.sender, result.metadata.parent_id) == ("25", Entity.AGENT, said.metadata.id)
    last = chat.llm_response(result)
    assert last is not None
    assert (last.content, last.metadata.sender, last.metadata.sender_name) == ("It is 25.", Entity.LLM, "calc")
    assert [each.kind for each in entries(chat) if each.kind in (Kind.ToolCall, Kind.Attempt, Kind.ToolResult)] == [
        Kind.ToolCall,
        Kind.Attempt,
        Kind.ToolResult,
    ]
    assert requests_are_valid(chat) == 2


def test_agent_model_and_user_answer_in_this_order_and_each_has_a_twin() -> None:
    chat = agent("hello")
    assert [entity for entity, _ in chat.entity_responders()] == ["Agent", "LLM", "User"]
    assert [entity for entity, _ in chat.entity_responders_async()] == ["Agent", "LLM", "User"]
    for (_, plain), (_, waited) in zip(chat.entity_responders(), chat.entity_responders_async(), strict=True):
        assert f"{plain.__name__}_async" == waited.__name__


async def test_the_twins_do_the_same_and_a_door_in_a_loop_names_its_twin() -> None:
    chat = agent(calls("square"), "16")
    chat.enable_message(Square)
    said = await chat.llm_response_async("4?")
    result = await chat.agent_response_async(said)
    assert result is not None
    assert result.content == "16"
    with pytest.raises(GestaError, match=r"await llm_response_async\(\.\.\.\)"):
        chat.llm_response("4?")


def test_documents_are_made_as_if_from_an_entity() -> None:
    chat = agent("x")
    made = {
        "Agent": chat.create_agent_response("a", recipient="Bob", tool_messages=[Square(num=1)]),
        "LLM": chat.create_llm_response("b", oai_tool_choice="none"),
        "User": chat.create_user_response({"n": 1}),
        "System": chat.response_template(Entity.SYSTEM, "d", content_any=[1]),
    }
    assert {name: doc.metadata.sender.value for name, doc in made.items()} == {name: name for name in made}
    assert (made["Agent"].metadata.recipient, made["Agent"].tool_messages) == ("Bob", [Square(num=1)])
    assert (made["User"].content, made["User"].content_any) == ('{"n": 1}', {"n": 1})
    assert made["LLM"].oai_tool_choice == "none"
    assert (made["System"].content, made["System"].content_any) == ("d", [1])
    assert all(doc.metadata.sender_name == "calc" for doc in made.values())


def test_an_agent_without_a_model_says_nothing_and_one_without_a_person_asks_nobody() -> None:
    chat = agent()
    assert not chat.llm_can_respond("x")
    assert chat.llm_response("x") is None
    assert chat.agent_response(None) is None
    assert chat.user_response("x") is None


def test_a_person_answers_where_there_is_one() -> None:
    chat = agent("x")
    heard: list[str] = []
    chat.get_user_response = lambda text: heard.append(text) or "  Rome "  # type: ignore[func-returns-value]
    said = chat.user_response(chat.create_llm_response("Where?"))
    assert said is not None
    assert (said.content, said.metadata.sender) == ("Rome", Entity.USER)
    assert heard == ["Where?"]
    assert [each.value for each in of(chat, gesta.kinds.UserContent)] == ["Rome"]
    chat.interactive = False
    assert not chat.user_can_respond("x")
    assert chat.user_response("x") is None
    assert chat.user_can_respond(chat.create_llm_response("x", recipient="User"))
    chat.default_human_response = "as always"
    said = chat.user_response(chat.create_llm_response("x", recipient="User"))
    assert said is not None
    assert said.content == "as always"


def test_a_model_does_not_answer_a_message_with_tools_that_its_agent_handles() -> None:
    chat = agent("x")
    tools = chat.create_llm_response(tool_messages=[Square(num=1)])
    assert chat.llm_can_respond(tools)
    chat.enable_message(Square)
    assert not chat.llm_can_respond(tools)
    assert chat.llm_can_respond("words")


def test_an_agent_answers_no_tools_that_only_others_handle() -> None:
    chat = agent("x")
    tools = chat.create_llm_response(tool_messages=[Square(num=1)])
    assert chat.has_only_unhandled_tools(tools)
    assert not chat.can_respond(tools)
    chat.enable_message(Square)
    assert chat.can_respond(tools)
    chat.config.respond_tools_only = True
    assert chat.can_respond(tools)
    assert not chat.can_respond("words")


def test_no_message_has_the_model_say_its_last_answer_anew() -> None:
    chat = agent("first", "second")
    chat.llm_response("go")
    said = chat.llm_response()
    assert said is not None
    assert said.content == "second"
    assert [one.text for one in chat.message_history[1:]] == ["go", "second"]
    assert requests_are_valid(chat) == 2


def test_a_conversation_may_begin_with_the_user_message() -> None:
    chat = agent("hello", system_message="Be kind.", user_message="Greet me.")
    assert [(one.role, one.text) for one in chat.task_messages] == [("system", "Be kind."), ("user", "Greet me.")]
    chat.llm_response()
    assert [one.text for one in chat.message_history] == ["Be kind.", "Greet me.", "hello"]


def test_every_conversation_begins_with_the_user_message_whatever_is_said_first() -> None:
    chat = agent("one", "two", "three", system_message="Be kind.", user_message="Add.")

    def shown() -> list[str]:
        return [one.text for one in chat.message_history[1:]]

    chat.llm_response("1 + 1")
    assert shown() == ["Add.", "1 + 1", "one"]
    chat.init_message_history()
    assert shown() == ["Add."]
    chat.llm_response("2 + 2")
    assert shown() == ["Add.", "2 + 2", "two"]
    chat.init_state()
    assert shown() == []
    chat.llm_response()
    assert shown() == ["Add.", "three"]


# ---------------------------------------------------------------------------------------------------- enabling tools


def test_a_class_a_list_or_all_that_are_known_can_be_enabled_and_disabled() -> None:
    chat = agent("x", cls=Counting, enable_orchestration_tool_handling=False)
    chat.enable_message([Square, Twice])
    assert chat.llm_tools_known == chat.llm_tools_usable == chat.llm_tools_handled == {"square", "twice"}
    chat.disable_message_handling(Square)
    assert (chat.llm_tools_handled, chat.unhandled_tools()) == ({"twice"}, {"square"})
    chat.disable_message_handling()
    chat.enable_message_handling()
    assert chat.llm_tools_handled == {"square", "twice"}
    chat.disable_message_use(Twice)
    assert chat.llm_tools_usable == {"square"}
    chat.enable_message(None, use=True)
    chat.disable_message_use_except(Twice)
    assert chat.llm_tools_usable == {"twice"}
    chat.enable_message(Square, use=False)
    assert (chat.llm_tools_usable, chat.llm_tools_handled) == ({"twice"}, {"square", "twice"})
    chat.enable_message(Square, handle=False)
    assert (chat.llm_tools_usable, chat.llm_tools_handled) == ({"square", "twice"}, {"twice"})
    chat.disable_message_use(None)
    assert chat.llm_tools_usable == set()


@pytest.mark.parametrize(
    ("given", "more", "error", "said"),
    [
        (Square, {"use": Twice}, TypeError, r"use is Twice; for several classes write enable_message\(\[A, B\]\)"),
        (Square, {"handle": Twice}, TypeError, "handle is Twice"),
        (int, {}, BadTool, "'int' is not a class of tool messages; expected a subclass of ToolMessage, or a pydantic"),
        (5, {}, BadTool, "Found 5, expected a class of tool messages"),
        (ToolMessage, {}, BadTool, "'ToolMessage' has no name to call it by"),
        (AgentDoneTool, {}, BadTool, "AgentDoneTool is for programs: no model may use it. Write use=False"),
    ],
)
def test_what_cannot_be_enabled_says_why(given: Any, more: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        agent("x").enable_message(given, **more)


def test_two_classes_of_one_name_are_refused() -> None:
    class Other(Square):
        pass

    chat = agent("x")
    chat.enable_message(Square)
    chat.enable_message(Square, require_recipient=True)
    with pytest.raises(BadTool, match="Two tools are named 'square': Square and Other"):
        chat.enable_message(Other)


def test_a_tool_may_be_forced_until_another_is_enabled() -> None:
    chat = agent("x", cls=Counting)
    chat.enable_message(Square, force=True)
    header = chat.describe().header()
    assert (header.meta or {})["settings"]["tool_choice"] == {"type": "function", "function": {"name": "square"}}
    chat.enable_message(Twice)
    assert "settings" not in (chat.describe().header().meta or {})


def test_a_model_is_told_of_what_it_may_use_alone_and_without_defaults_on_demand() -> None:
    class Ask(ToolMessage):
        request: str = "ask"
        purpose: str = "To ask."
        what: str
        loud: bool = False

    chat = agent("x")
    chat.enable_message(Square, use=False)
    chat.enable_message(Ask, handle=False, include_defaults=False, require_recipient=True)
    [told] = chat.describe().header().tools or []
    assert (told["name"], list(told["args_schema"]["properties"])) == ("ask", ["what", "recipient"])


def test_handlers_are_found_in_the_known_order_and_take_what_they_name() -> None:
    seen: list[Any] = []

    class Own(ToolMessage):
        request: str = "own"
        purpose: str = "p"

        def handle(self, chat_doc: ChatDocument, agent: ChatAgent) -> str:
            seen.append((chat_doc.metadata.sender, agent.name))
            return "own"

    class Other(ToolMessage):
        request: str = "other"
        purpose: str = "p"
        _handler = "elsewhere"

        async def response_async(self, asked: "ChatAgent") -> str:
            return asked.name

    class Here(ChatAgent):
        async def here_async(self, msg: ToolMessage, doc: ChatDocument) -> str:
            return f"{type(msg).__name__} in {doc.metadata.sender}"

    class Found(ToolMessage):
        request: str = "here"
        purpose: str = "p"

        def handle(self) -> str:
            raise AssertionError("the agent's method comes first")

    chat = agent([gesta.call(name) for name in ("own", "other", "here")], cls=Here)
    for cls in (Own, Other, Found):
        chat.enable_message(cls)
    result = chat.agent_response(chat.llm_response("go"))
    assert result is not None
    assert list((result.oai_tool_id2result or {}).values()) == ["own", "calc", "Found in LLM"]
    assert seen == [(Entity.LLM, "calc")]


def test_a_handler_that_asks_for_the_context_of_its_call_gets_it_as_a_tool_does() -> None:
    seen: list[Any] = []

    class Own(ToolMessage):
        request: str = "own"
        purpose: str = "p"

        def handle(self, call: gesta.Context, agent: ChatAgent) -> str:
            seen.append(call)
            return agent.name

    class Other(ToolMessage):
        request: str = "other"
        purpose: str = "p"

        async def handle_async(self, doc: ChatDocument, at: "gesta.Context | None" = None) -> Own:
            seen.append(at)
            return Own()

    class Here(ChatAgent):
        async def here_async(self, msg: ToolMessage, *, context: "gesta.Context") -> str:
            seen.append(context)
            return type(msg).__name__

    class Found(ToolMessage):
        request: str = "here"
        purpose: str = "p"

    chat = agent([gesta.call(name) for name in ("own", "other", "here")], cls=Here)
    for cls in (Own, Other, Found):
        chat.enable_message(cls)
    result = chat.agent_response(chat.llm_response("go"))
    assert result is not None
    assert list((result.oai_tool_id2result or {}).values()) == ["calc", "calc", "Found"]
    assert all(isinstance(each, gesta.Context) for each in seen)
    assert len(seen) == 4, "one handed its message on, with its context"
    assert len({each.key for each in seen}) == 3, "a key for each call"


def test_a_pydantic_class_is_a_tool_as_it_is() -> None:
    chat = agent([gesta.call("cube", num=3)], [gesta.call("cube", num=0)], "27")
    chat.enable_message(Cube)
    said = chat.llm_response("3?")
    assert said is not None
    assert isinstance(said.tool_messages[0], Cube)
    result = chat.agent_response(said)
    assert result is not None
    assert (result.content, result.content_any) == ("27", 27)
    wrong = chat.agent_response(chat.llm_response(result))
    assert wrong is not None
    assert "`$.num`" in wrong.content


# -------------------------------------------------------------------------------------------------- reading and handling


def test_tools_are_found_in_text_in_calls_and_in_the_older_form() -> None:
    chat = agent("x", cls=Counting)
    chat.enable_message(Square)
    chat.enable_message(Twice, handle=False)
    text = 'Both: {"request": "square", "num": 2} and {"request": "twice", "num": 3}'
    assert chat.get_json_tool_messages(text) == [Square(num=2), Twice(num=3)]
    assert chat.get_tool_messages(text) == [Square(num=2)]
    assert chat.get_tool_messages(text, all_tools=True) == [Square(num=2), Twice(num=3)]
    call = LLMFunctionCall("square", {"num": 2})
    assert chat.get_function_call_class(chat.create_llm_response(function_call=call)) == Square(num=2)
    native = chat.create_llm_response(oai_tool_calls=[OpenAIToolCall(function=call)])
    assert chat.get_oai_tool_calls_classes(native) == [Square(num=2)]
    assert chat.get_function_call_class(native) is None
    assert chat.has_tool_message_attempt(native)
    assert chat.has_tool_message_attempt(chat.create_llm_response('{"request": "square", "num": "x"}'))
    assert not chat.has_tool_message_attempt(chat.create_user_response("no tools"))
    assert not chat.get_tool_messages(chat.create_llm_response(tool_messages=[Square(num=1)]).content)


def test_a_native_model_that_writes_a_call_as_text_is_understood() -> None:
    chat = agent('Well: {"request": "square", "num": 4}', "16")
    chat.enable_message(Square)
    result = chat.agent_response(chat.llm_response("4?"))
    assert result is not None
    assert result.content == "16"
    chat.llm_response(result)
    assert requests_are_valid(chat) == 2


def test_tools_that_steer_a_task_are_handled_from_the_start_or_not_at_all() -> None:
    assert {"done_tool", "pass_tool", "send_tool", "forward_tool", "result_tool"} <= agent("x").llm_tools_handled
    assert agent("x").llm_tools_usable == agent("x", enable_orchestration_tool_handling=False).llm_tools_known == set()


@pytest.mark.parametrize("recognized", [True, False])
def test_an_address_in_a_text_counts_unless_that_is_switched_off(recognized: bool) -> None:
    chat = agent("TO[bob]: what?", recognize_recipient_in_content=recognized)
    said = chat.llm_response("go")
    assert said is not None
    expected = ("bob", "what?") if recognized else ("", "TO[bob]: what?")
    assert (said.metadata.recipient, said.content) == expected


def test_a_tool_for_somebody_else_is_not_mine() -> None:
    chat = agent("x")
    chat.enable_message(Square, require_recipient=True)
    to = '{"request": "square", "num": 2, "recipient": "%s"}'
    assert chat.get_tool_messages(to % "bob") == []
    assert len(chat.get_tool_messages(to % "calc")) == 1


def test_what_is_wrong_with_a_tool_is_told_field_by_field() -> None:
    chat = agent("x")
    with pytest.raises(GestaError) as raised:
        facts_of(Square).build({"num": "x", "colour": 1})
    told = chat.tool_validation_error(raised.value)
    assert "`$.num`" in told
    assert "`$.colour`" in told
    assert "send the whole 'square' message again" in told


@pytest.mark.parametrize("mode", ["json", "native"])
def test_handling_gives_nothing_a_text_results_by_id_or_a_document(mode: str) -> None:
    class Reply(ToolMessage):
        request: str = "reply"
        purpose: str = "To give a document."

        def handle(self, agent: ChatAgent) -> ChatDocument:
            return agent.create_agent_response("whole", recipient="Bob")

    chat = agent("x", mode=mode)
    chat.enable_message([Square, Reply])
    assert chat.handle_message("no tools here") is None
    assert chat.handle_message('{"request": "square", "num": 3}') == "9"
    assert chat.handle_tool_message(Square(num=5)) == "25"
    assert chat.handle_message('{"request": "square", "num": 3} {"request": "square", "num": 4}') == "9\n\n16"
    doc = chat.handle_message('{"request": "reply"}')
    assert isinstance(doc, ChatDocument)
    assert (doc.content, doc.metadata.recipient, doc.metadata.sender) == ("whole", "Bob", Entity.AGENT)


@pytest.mark.parametrize("mode", ["json", "native"])
def test_the_results_of_calls_in_a_document_bear_the_ids_of_its_calls(mode: str) -> None:
    chat = agent("x", cls=Counting, mode=mode)
    chat.enable_message([Square, Twice])
    calls = [
        OpenAIToolCall(id=id_, function=LLMFunctionCall(name, {"num": 6}))
        for id_, name in [("c1", "twice"), ("c2", "other"), ("c3", "square"), ("c4", "square")]
    ]
    doc = chat.create_llm_response(oai_tool_calls=calls)
    given = {"c1": "12", "c3": "36", "c4": "36"}
    assert chat.handle_message(doc) == given
    answer = chat.agent_response(doc)
    assert answer is not None
    assert (answer.oai_tool_id2result, answer.content) == (given, "")
    told = ChatDocument.to_LLMMessage(answer, calls)
    assert [(each.call_id, each.text) for each in told if each.call_id != "c2"] == [*given.items()]
    one = chat.agent_response(chat.create_llm_response(oai_tool_calls=calls[:2]))
    assert one is not None
    assert (one.content, one.metadata.oai_tool_id) == ("12", "c1")


def test_what_is_wrong_with_a_call_is_told_in_whatever_form_a_document_has_it() -> None:
    chat = agent("x")
    chat.enable_message(Square)
    wrong = LLMFunctionCall("square", {"num": "x"})
    told = {
        chat.handle_message(chat.create_llm_response('{"request": "square", "num": "x"}')),
        chat.handle_message(chat.create_llm_response(function_call=wrong)),
        chat.handle_message(chat.create_llm_response(oai_tool_calls=[OpenAIToolCall(id="c1", function=wrong)])),
    }
    assert len(told) == 1
    assert "`$.num`" in told.pop()


def test_a_handler_is_given_the_document_that_is_handed_over_with_its_message() -> None:
    class Seen(ToolMessage):
        request: str = "seen"
        purpose: str = "To see."

    class Seeing(ChatAgent):
        def seen(self, _message: Seen, chat_doc: ChatDocument) -> str:
            return chat_doc.content

        def handle_message(self, msg: Any) -> Any:
            return self.handle_tool_message(Seen(), chat_doc=msg)

    chat = agent("x", cls=Seeing)
    chat.enable_message(Seen)
    doc = chat.create_llm_response("See this.")
    assert chat.handle_tool_message(Seen(), chat_doc=doc) == "See this."
    assert chat.handle_message(doc) == "See this."


def test_a_handler_may_give_a_value_another_tool_or_a_task_to_be_done() -> None:
    class Rows(ToolMessage):
        request: str = "rows"
        purpose: str = "To list."

        def handle(self) -> list[int]:
            return [1, 2]

    class Again(ToolMessage):
        request: str = "again"
        purpose: str = "To square what was given."
        num: int

        def handle(self) -> Square:
            return Square(num=self.num)

    class End(ToolMessage):
        request: str = "finish"
        purpose: str = "To end."

        def handle(self) -> AgentDoneTool:
            return AgentDoneTool(content=[3], tools=[Square(num=1)])

    chat = agent("x")
    chat.enable_message([Rows, Again, End, Square])
    rows = chat.agent_response(chat.create_llm_response(tool_messages=[Rows()]))
    again = chat.agent_response(chat.create_llm_response(tool_messages=[Again(num=6)]))
    end = chat.agent_response(chat.create_llm_response(tool_messages=[End()]))
    assert rows is not None
    assert again is not None
    assert end is not None
    assert (rows.content, rows.content_any) == ("[1, 2]", [1, 2])
    assert again.content == "36"
    assert end.tool_messages == [AgentDoneTool(content=[3], tools=[Square(num=1)])]


def test_a_message_without_tools_may_be_answered_by_a_fallback() -> None:
    said = "Use a tool."
    for given, expected in [
        ("Use a tool.", "Use a tool."),
        ("user", [ForwardTool(agent="User")]),
        ("done", [AgentDoneTool(content="plain", tools=[])]),
        (lambda doc: doc.content.upper(), "PLAIN"),
        (DoneTool(content="x"), [DoneTool(content="x")]),
    ]:
        chat = agent("plain", handle_llm_no_tool=given)
        doc = chat.agent_response(chat.llm_response("go"))
        assert doc is not None
        assert expected in (doc.content, doc.tool_messages), said
    assert chat.agent_response(chat.create_user_response("hi")) is None


def test_values_are_found_in_a_document_in_the_known_order() -> None:
    chat = agent("x")
    doc = chat.create_agent_response("text", content_any=[1], tool_messages=[Square(num=4)])
    assert chat.from_ChatDocument(doc, list[int]) == [1]
    assert chat.from_ChatDocument(doc, str) == "text"
    assert chat.from_ChatDocument(doc, Square) == Square(num=4)
    assert chat.from_ChatDocument(doc, list[Square]) == [Square(num=4)]
    assert chat.from_ChatDocument(doc, int) == 4
    assert chat.from_ChatDocument(doc, float) is None


def test_a_struct_is_made_of_the_json_that_the_record_holds() -> None:
    class Point(msgspec.Struct):
        x: int
        y: int

    chat = agent("x")
    assert chat.from_ChatDocument(chat.create_agent_response({"x": 1, "y": 2}), Point) == Point(1, 2)
    assert chat.from_ChatDocument(chat.create_llm_response(' {"x": 1, "y": 2}'), Point) == Point(1, 2)
    assert chat.from_ChatDocument(chat.create_llm_response('[{"x": 1, "y": 2}]'), list[Point]) == [Point(1, 2)]
    assert chat.from_ChatDocument(chat.create_llm_response('So: {"x": 1, "y": 2}'), Point) is None
    assert chat.from_ChatDocument(chat.create_llm_response('{"x": 1}'), Point) is None


def test_anything_becomes_a_document() -> None:
    chat = agent("x")
    before = chat.create_user_response("q")
    before.metadata.id = "r.1"
    made = chat.to_ChatDocument(Square(num=2), "square", before)
    assert made is not None
    assert (made.tool_messages, made.metadata.parent_id, made.content) == ([Square(num=2)], "r.1", "")
    assert chat.to_ChatDocument(None) is None
    assert chat.to_ChatDocument(before) is before
    text = chat.to_ChatDocument("x", author_entity=Entity.LLM)
    assert text is not None
    assert text.metadata.sender is Entity.LLM


def test_the_answer_may_be_given_a_type() -> None:
    class Point(msgspec.Struct):
        x: int

    rows = agent("[1, 2]", output_format=list[int]).llm_response("go")
    assert rows is not None
    assert rows.content_any == [1, 2]
    chat = agent('{"x": 3}', "no JSON", '{"x": "three"}', "no JSON again", output_format=Point)
    said = chat.llm_response("go")
    assert said is not None
    assert said.content_any == Point(3)
    bound = chat.home.record.turns.bind(chat.describe())
    assert list((bound.header().output or {})["properties"]) == ["x"]
    said = chat.llm_response("go")
    assert said is not None
    assert (said.content, said.content_any) == ("no JSON again", None)


# ----------------------------------------------------------------------------------------------------------- history


def used(*more: Any) -> ChatAgent:
    """An agent whose history is: system, user, call, result, answer."""
    chat = agent(calls("square"), "It is 16.", *more, "and on")
    chat.enable_message(Square)
    chat.llm_response(chat.agent_response(chat.llm_response("4?")))
    return chat


def test_places_in_the_history_are_counted_from_the_system_message_and_messages_from_one() -> None:
    chat = used()
    assert [one.role for one in chat.message_history] == ["system", "user", "assistant", "tool", "assistant"]
    assert [chat.nth_message_idx_with_role("assistant", n) for n in (0, 1, 2, 3)] == [-1, 2, 4, -1]
    last = chat.last_message_with_role("assistant")
    assert last is not None
    assert last.text == "It is 16."
    assert chat.last_message_with_role("nobody") is None
    assert chat.message_history_str(1) == "user: 4?"
    assert chat.message_history_str(-2).splitlines() == ["tool: 16", "assistant: It is 16."]
    assert chat.chat_num_tokens() > chat.chat_num_tokens(chat.message_history[:1]) > 0


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (-2, -1, ["system", "user"]),  # a result goes with its call
        (-1, -1, ["system", "user", "assistant", "tool"]),
        (2, 2, ["system", "user", "assistant"]),  # a call goes with its results
        (1, -1, ["system"]),
        (0, -1, ["system"]),
        (-99, -1, ["system"]),
        (1, 1, ["system", "assistant", "tool", "assistant"]),
        (9, -1, ["system", "user", "assistant", "tool", "assistant"]),
    ],
)
def test_messages_are_hidden_from_start_to_end_and_the_next_request_is_valid(
    start: int, end: int, left: list[str]
) -> None:
    chat = used()
    before = len(entries(chat))
    chat.clear_history(start, end)
    assert [one.role for one in chat.message_history] == left
    assert all(isinstance(each.content, CompactionContent) for each in entries(chat)[before:])
    chat.llm_response("next")
    assert requests_are_valid(chat) == 3


def test_the_default_hides_the_last_two_messages() -> None:
    chat = agent("a", "b")
    chat.llm_response("1")
    chat.llm_response("2")
    chat.clear_history()
    assert [one.text for one in chat.message_history[1:]] == ["1", "a"]
    chat.init_message_history()
    assert len(chat.message_history) == 1
    chat.init_state()
    assert len(chat.message_history) == 1
    assert [each.value for each in of(chat, gesta.kinds.UserContent)] == ["1", "2"]  # nothing is deleted


def test_a_message_is_replaced_where_it_stood() -> None:
    chat = used()
    chat.update_last_message("What is the square of 4?")
    assert [one.text for one in chat.message_history[1:]] == ["What is the square of 4?", "", "16", "It is 16."]
    chat.update_last_message("Sixteen.", role="assistant")
    assert chat.message_history[-1].text == "Sixteen."
    chat.llm_response("next")
    assert requests_are_valid(chat) == 3
    chat.update_last_message("nothing", role="nobody")


def test_an_exchange_can_be_added() -> None:
    chat = agent("Anna.")
    chat.update_history("My name is Anna.", "Hello Anna.")
    chat.llm_response("Who am I?")
    assert [(one.role, one.text) for one in chat.message_history[1:]] == [
        ("user", "My name is Anna."),
        ("assistant", "Hello Anna."),
        ("user", "Who am I?"),
        ("assistant", "Anna."),
    ]
    assert requests_are_valid(chat) == 1


def test_the_system_message_may_grow() -> None:
    chat = agent("a", "b")
    chat.llm_response("1")
    chat.augment_system_message("Be brief.")
    chat.llm_response("2")
    assert chat.message_history[0].text.endswith("\n\nBe brief.")
    headers = [(each.meta or {})["instructions"] for each in of(chat, gesta.kinds.RequestHeaderContent)]
    assert [text.endswith("Be brief.") for text in headers] == [False, True]
    assert requests_are_valid(chat) == 2


def test_a_model_may_answer_and_forget() -> None:
    chat = agent("secret", "who?")
    said = chat.llm_response_forget("between us")
    assert said is not None
    assert said.content == "secret"
    assert len(chat.message_history) == 1
    chat.llm_response("hello")
    assert [one.text for one in chat.message_history[1:]] == ["hello", "who?"]
    assert requests_are_valid(chat) == 2


def test_a_model_answers_a_list_of_messages_beside_its_history() -> None:
    shown: list[dict[str, Any]] = []

    def think(messages: list[dict[str, Any]], header: Any) -> str:
        shown.extend([{"role": "system", "content": header.meta["instructions"]}, *messages])
        return "42"

    chat = ChatAgent(ChatAgentConfig(name="calc", llm=gesta.function(think), use_functions_api=True))
    call = Call("c1", "square", {"num": 2})
    said = chat.llm_response_messages(
        [
            Message(role="system", text="Be brief."),
            Message(role="user", text="2?"),
            Message(role="assistant", text="Well,", calls=()),
            Message(role="assistant", text="", calls=(call,)),
            Message(role="tool", text="4", call_id="c1", name="square"),
            Message(role="user", text="And?"),
        ]
    )
    assert said is not None
    assert said.content == "42"
    assert [each["role"] for each in shown] == ["system", "user", "assistant", "assistant", "tool", "user"]
    assert [each.get("content") for each in shown][:2] == ["Be brief.", "2?"]
    assert len(chat.message_history) == 1


def test_tools_are_told_in_words_and_shown_in_a_dialogue() -> None:
    class Shy(Twice):
        request: str = "shy"

        @classmethod
        def instructions(cls) -> str:
            return "Never use it twice."

        @classmethod
        def examples(cls) -> Sequence[ToolForm]:
            return [cls(num=1)]

        def handle(self) -> str:
            return ""

    chat = agent("x", mode="json")
    assert chat.json_format_rules() == chat.tool_instructions() == chat.sample_multi_round_dialog() == ""
    chat.enable_message([Square, Shy])
    assert "To find the square of a <num>." in chat.json_format_rules()
    assert chat.tool_instructions() == "shy: Never use it twice."
    dialogue = chat.sample_multi_round_dialog()
    assert dialogue == chat.sample_multi_round_dialog()
    assert '"request": "square"' in dialogue
    assert "User: Result from shy" in dialogue


def test_a_clone_has_a_name_tools_and_a_history_of_its_own() -> None:
    chat = agent("a", "b", cls=Counting)
    chat.enable_message(Twice)
    chat.llm_response("1")
    other = chat.clone(1)
    assert (other.name, len(other.message_history)) == ("calc-1", 1)
    assert other.handle_message('{"request": "twice", "num": 4}') == "8"
    other.disable_message_use(Twice)
    other.config.system_message = "Other."
    assert "twice" in chat.llm_tools_usable
    assert chat.config.system_message != "Other."


def test_what_is_said_by_hand_is_one_turn_of_one_run_in_the_record(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    first = agent("a", "b", record=str(path), session="s")
    first.llm_response("1")
    first.update_history("x", "y")
    again = agent("a", "b", record=str(path), session="s")
    assert [one.text for one in again.message_history[1:]] == ["1", "a", "x", "y"]
    said = again.llm_response("2")
    assert said is not None
    assert said.content == "b"
    with closing(apsw.Connection(str(path))) as db:
        assert db.execute("select count(distinct run) from entries").fetchone() == (1,)


async def test_an_agent_by_hand_keeps_out_of_a_turn_that_is_another_s() -> None:
    @gesta.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    chat = agent("a")
    own = gesta.Agent("calc", model=gesta.scripted(gesta.call("pay")), tools=[pay])
    await chat.home.record.run(own, "pay", session=chat.home.session)
    with pytest.raises(TurnOpen):
        await chat.llm_response_async("1")
