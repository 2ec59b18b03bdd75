"""Findings about programs that come from Langroid, written as their users write them: one test a finding."""

import inspect
import json
from typing import Any
from unittest.mock import Mock

import pytest

import gesta
import gesta.compat.langroid as lr
from gesta.compat.langroid.agent.tools.orchestration import DonePassTool, DoneTool, ForwardTool, PassTool
from gesta.compat.langroid.agent.tools.recipient_tool import RecipientTool
from gesta.errors import BadArguments, BadTool


def agent(name: str, *script: Any, cls: type[lr.ChatAgent] = lr.ChatAgent, **config: Any) -> lr.ChatAgent:
    """A chat agent whose model follows a script, or that has none."""
    return cls(lr.ChatAgentConfig(name=name, llm=gesta.scripted(*script) if script else None, **config))


class Secret(lr.ToolMessage):
    request: str = "secret"
    purpose: str = "For programs."

    def handle(self) -> str:
        return "SECRET"


SECRET = '{"request": "secret"}'


def keeper(name: str = "keeper", *script: Any, cls: type[lr.ChatAgent] = lr.ChatAgent, **config: Any) -> lr.ChatAgent:
    """An agent that handles a tool which no model may use."""
    made = agent(name, *script, cls=cls, **config)
    made.enable_message(Secret, use=False)
    return made


def said(doc: Any) -> str:
    return doc.content if isinstance(doc, lr.ChatDocument) else str(doc or "")


# names


def test_the_names_of_langroid_are_there_as_its_users_import_them() -> None:
    assert lr.agent.task.Task is lr.Task
    assert lr.agent.base.Agent is lr.Agent
    assert issubclass(lr.ChatAgent, lr.Agent)
    assert lr.agent.tool_message.ToolMessage is lr.ToolMessage
    assert lr.agent.chat_document.ChatDocMetaData is lr.ChatDocMetaData
    assert lr.mytypes.Entity.LLM == "llm"
    assert lr.utils.constants.DONE == "DONE"
    assert str(lr.language_models.Role.ASSISTANT) == "assistant"
    assert all(hasattr(lr, name) for name in lr.__all__)
    named = list(inspect.signature(lr.ChatAgent.create_llm_response).parameters)
    assert named[1:4] == ["content", "content_any", "tool_messages"]


def test_a_mock_answers_by_its_dict_its_function_or_always_the_same() -> None:
    mock = lr.language_models.MockLMConfig(
        response_dict={"a": 1}, response_fn=lambda text: text.upper() if text == "b" else None, default_response="c"
    )
    made = lr.ChatAgent(lr.ChatAgentConfig(llm=mock))
    assert [said(made.llm_response(text)) for text in "abz"] == ["1", "B", "c"]


def test_a_bare_agent_answers_each_message_alone() -> None:
    shown: list[int] = []

    def count(messages: list[dict[str, Any]], _header: Any) -> str:
        shown.append(len(messages))
        return "x"

    made = lr.Agent(lr.AgentConfig(llm=gesta.function(count)))
    assert [said(made.llm_response("one")), said(made.llm_response("two"))] == ["x", "x"]
    assert shown == [1, 1]


def test_a_tool_named_as_a_method_of_agents_is_handled_by_its_own() -> None:
    class Leave(lr.ToolMessage):
        request: str = "leave"
        purpose: str = "p"

        def handle(self) -> str:
            return "left"

    made = agent("a")
    made.enable_message(Leave)
    assert made.handle_message('{"request": "leave"}') == "left"


def test_the_id_of_a_document_is_that_of_its_entry_and_nothing_is_deleted() -> None:
    made = agent("a", "x")
    doc = made.llm_response("hi")
    assert doc is not None
    run, _, seq = doc.metadata.id.rpartition(".")
    lr.ChatDocument.delete_id(doc.metadata.id)
    doc.pop_tool_ids()
    shown = made.message_history[-1]
    assert (shown.text, shown.sources[0], bool(run)) == ("x", int(seq), True)
    assert not hasattr(lr, "ObjectRegistry")
    with pytest.raises(gesta.GestaError, match="its record has what it said"):
        lr.ChatAgent.from_id("a")


def test_results_by_their_calls_have_one_spelling_and_another_names_it() -> None:
    meta = lr.ChatDocMetaData(sender=lr.Entity.AGENT)
    assert lr.ChatDocument(oai_tool_id2result={"a": "b"}, metadata=meta).oai_tool_id2result == {"a": "b"}
    with pytest.raises(TypeError, match="oai_tool_id2result"):
        lr.ChatDocument(oai_tool_id2results={}, metadata=meta)  # type: ignore[call-arg]


def test_another_agent_is_asked_where_the_person_agrees() -> None:
    asking, asked = agent("a"), agent("b", "yes", lr.NO_ANSWER, "no")
    asking.get_user_response = lambda _text: "y"
    assert [asking.ask_agent(asked, "q") for _ in "12"] == ["yes", None]
    asking.get_user_response = lambda _text: "n"
    assert asking.ask_agent(asked, "q") is None
    asking.indent = "  "
    assert asking.indent == "  "


def test_a_tool_message_is_dumped_and_validated_as_a_model_is() -> None:
    class Sum(lr.ToolMessage):
        request: str = "sum"
        purpose: str = "p"
        numbers: list[int]

    made = Sum.model_validate({"numbers": [1, 2]})
    assert made.model_dump() == {"request": "sum", "purpose": "p", "numbers": [1, 2]}
    assert made.model_dump(mode="python", exclude={"purpose"}) == {"request": "sum", "numbers": [1, 2]}
    assert Sum.model_validate(made.model_dump()) == made
    assert json.loads(made.model_dump_json(indent=2))["numbers"] == [1, 2]
    with pytest.raises(BadArguments, match="numbers"):
        Sum.model_validate({"numbers": "x"})


# L1 to L21


def test_options_of_a_tool_may_be_annotated() -> None:
    """L1."""

    class Wipe(lr.ToolMessage):
        request: str = "wipe"
        purpose: str = "p"
        _allow_llm_use: bool = False
        _handler: str = "do_wipe"

    class Own(lr.ChatAgent):
        def do_wipe(self, _message: Wipe) -> str:
            return "wiped"

    made = agent("a", cls=Own)
    made.enable_message(Wipe, use=False)
    assert made.handle_message('{"request": "wipe"}') == "wiped"
    assert Wipe.llm_function_schema().parameters["properties"] == {}
    with pytest.raises(BadTool, match="no model may use it"):
        made.enable_message(Wipe)


class Passing(lr.ChatAgent):
    """Answers whatever has no tool by passing it on."""

    tool: lr.ToolMessage

    def handle_message_fallback(self, msg: Any) -> Any:
        return self.tool


class Echo(lr.ChatAgent):
    def handle_message_fallback(self, msg: Any) -> Any:
        return msg.content


class Handing(lr.ChatAgent):
    """Hands the document on that it got."""

    def handle_message_fallback(self, msg: Any) -> Any:
        return msg


@pytest.mark.parametrize("tool", [DonePassTool(), PassTool(), ForwardTool(agent="boss")])
def test_nobody_outside_sets_off_a_tool_for_programs_by_what_passes_it_on(tool: lr.ToolMessage) -> None:
    """L2."""
    boss = keeper("boss", handle_llm_no_tool="use a tool")
    sub = agent("sub", cls=Passing)
    assert isinstance(sub, Passing)
    sub.tool = tool
    task = lr.Task(boss, interactive=False)
    task.add_sub_task(lr.Task(sub, interactive=False))
    assert "SECRET" not in said(task.run(SECRET, turns=6))


@pytest.mark.parametrize("cls", [Echo, Handing])
def test_nobody_outside_sets_off_a_tool_for_programs_by_a_fallback(cls: type[lr.ChatAgent]) -> None:
    """L2."""
    task = lr.Task(keeper("boss"), interactive=False)
    task.add_sub_task(lr.Task(agent("sub", cls=cls), interactive=False, done_if_response=[lr.Entity.AGENT]))
    assert "SECRET" not in said(task.run(SECRET, turns=6))


def test_nobody_outside_sets_off_a_tool_for_programs_inside_a_tool_for_models() -> None:
    """L2."""
    outer = (
        '{"request": "recipient_message", "intended_recipient": "keeper", "content": "{\\"request\\": \\"secret\\"}"}'
    )
    front = agent("front", handle_llm_no_tool="x")
    front.enable_message(RecipientTool)
    task = lr.Task(front, interactive=False)
    task.add_sub_task(lr.Task(keeper(), interactive=False))
    assert "SECRET" not in said(task.run(outer, turns=6))
    both = keeper("both")
    both.enable_message(RecipientTool)
    first = both.agent_response(both.create_user_response(outer))
    assert first is not None
    assert first.metadata.tainted
    assert "SECRET" not in said(both.agent_response(first))


def test_nobody_outside_sets_off_a_tool_for_programs_by_words_that_pass_it_on() -> None:
    """L2."""
    task = lr.Task(agent("front", "__PASS__:keeper", "DONE"), interactive=False)
    task.add_sub_task(lr.Task(keeper(), interactive=False))
    assert "SECRET" not in said(task.run(SECRET, turns=6))


def test_nobody_outside_sets_off_a_tool_for_programs_by_a_text_that_a_tool_brings() -> None:
    """L2."""

    class Fetch(lr.ToolMessage):
        request: str = "fetch"
        purpose: str = "p"

        def handle(self) -> str:
            return SECRET

    front = agent("front", '{"request": "fetch"}', "DONE read")
    front.enable_message(Fetch)
    task = lr.Task(front, interactive=False)
    task.add_sub_task(lr.Task(keeper(), interactive=False))
    assert "SECRET" not in said(task.run("go", turns=6))


def test_a_document_of_a_person_counts_as_outside_however_a_root_task_gets_it() -> None:
    """L2."""
    meta = lr.ChatDocMetaData(sender=lr.Entity.USER, tools_from_agent=True)
    for given in (SECRET, lr.ChatDocument(content=SECRET, metadata=meta)):
        assert "SECRET" not in said(lr.Task(keeper(), interactive=False).run(given, turns=4))


def test_a_model_of_another_agent_sets_off_a_tool_for_programs() -> None:
    """L2, the other side."""
    task = lr.Task(agent("boss", SECRET, "DONE well"), interactive=False)
    task.chat.enable_message(Secret, use=False, handle=False)
    sub = lr.Task(keeper(), interactive=False, done_if_response=[lr.Entity.AGENT])
    task.add_sub_task(sub)
    assert said(task.run("go")) == "well"
    assert "SECRET" in task.chat.message_history_str()


class Own(lr.ChatAgent):
    def llm_response(self, message: Any = None) -> Any:
        return self.create_llm_response("DONE mine")


def test_a_task_asks_a_synchronous_responder_that_a_subclass_has() -> None:
    """L3."""
    assert said(lr.Task(agent("o", cls=Own), interactive=False).run("hi")) == "mine"


@pytest.mark.parametrize("name", ["llm_response", "llm_response_async", "agent_response", "user_response"])
def test_a_task_asks_a_responder_that_a_program_put_on_an_agent(name: str) -> None:
    """L3."""
    made = agent("o", "x")
    setattr(made, name, Mock(return_value="DONE mine") if "async" not in name else answer_mine)
    sender = {"llm": lr.Entity.LLM, "age": lr.Entity.AGENT, "use": lr.Entity.USER}[name[:3]]
    made.get_user_response = lambda _text: ""
    task = lr.Task(made, interactive=sender is lr.Entity.USER, only_user_quits_root=False, done_if_response=[sender])
    assert said(task.run("hi", turns=4)) in ("mine", "DONE mine")


async def answer_mine(_message: Any = None) -> str:
    return "DONE mine"


def test_a_responder_in_place_of_another_can_call_that() -> None:
    """L3."""

    class Louder(lr.ChatAgent):
        def llm_response(self, message: Any = None) -> Any:
            doc = super().llm_response(message)
            assert doc is not None
            doc.content = doc.content.upper()
            return doc

        def agent_response(self, msg: Any = None) -> Any:
            return super().agent_response(msg)

    task = lr.Task(agent("o", "done? no", "DONE yes", cls=Louder), interactive=False, single_round=False)
    assert said(task.run("hi")) == "DONE? NO"
    assert [each.text for each in task.chat.message_history if each.role == "assistant"] == ["done? no"]


def test_a_subclass_handles_messages_itself() -> None:
    """L3."""

    class Counts(lr.ChatAgent):
        def handle_message(self, msg: Any) -> Any:
            return f"handled {super().handle_message(msg)}"

    made = agent("a", SECRET, cls=Counts)
    made.enable_message(Secret)
    assert said(made.agent_response(made.llm_response("go"))) == "handled SECRET"


def test_any_value_of_a_responder_is_an_answer() -> None:
    """L7."""

    class Eight(lr.ChatAgent):
        async def agent_response_async(self, _msg: Any = None) -> Any:
            return 8

    task = lr.Task(agent("o", "a", cls=Eight), interactive=False, done_if_response=[lr.Entity.AGENT])
    assert task[int].run("x") == 8

    class Done(lr.ChatAgent):
        def agent_response(self, _msg: Any = None) -> Any:
            return DoneTool(content="by a tool")

    assert said(lr.Task(agent("o", "a", cls=Done), interactive=False).run("x")) == "by a tool"


def test_state_is_set_when_an_agent_is_made_and_when_a_task_begins_anew() -> None:
    """L11."""

    class Sums(lr.ChatAgent):
        total: int | str = "unset"

        def init_state(self) -> None:
            super().init_state()
            self.total = 0

    made = agent("s", "DONE", "DONE", "DONE", cls=Sums)
    assert isinstance(made, Sums)
    assert made.total == 0
    made.total = 5
    lr.Task(made, interactive=False, restart=False).run("x")
    assert made.total == 5
    task = lr.Task(made, interactive=False)
    task.run("x")
    assert made.total == 0


def test_what_a_message_says_of_tools_is_sent_with_the_next_request() -> None:
    """L13."""
    sent: list[Any] = []

    def note(_messages: Any, header: Any) -> str:
        sent.append(((header.meta or {}).get("settings") or {}).get("tool_choice"))
        return "x"

    made = lr.ChatAgent(lr.ChatAgentConfig(name="a", llm=gesta.function(note), use_functions_api=True))
    made.enable_message(DoneTool)
    for choice in ("none", "auto", "required"):
        made.llm_response(made.create_user_response("hi", oai_tool_choice=choice))
    assert sent == ["none", None, "required"]


def test_no_class_stands_for_all_that_are_known() -> None:
    """L14."""
    made = agent("a")
    made.enable_message(Secret, use=False, handle=False)
    made.enable_message(None)
    assert "secret" in made.llm_tools_usable & made.llm_tools_handled
    assert "agent_done_tool" in made.llm_tools_handled - made.llm_tools_usable


def test_a_model_is_told_what_is_wrong_with_a_tool_wherever_its_message_comes_from() -> None:
    """L17."""

    class Named(lr.ToolMessage):
        request: str = "named"
        purpose: str = "p"
        city: str

    made = agent("a")
    made.enable_message(Named, handle=False)
    made.enable_message(Secret)
    assert "`$.city`" in made.handle_message(made.create_llm_response('{"request": "named"}'))
    assert made.handle_message(made.create_user_response('{"request": "named"}')) is None


def test_what_one_agent_handled_hides_no_tool_of_another() -> None:
    """L18."""

    class Other(Secret):
        request: str = "other"

    a, b = agent("a"), agent("b")
    a.enable_message(Secret)
    b.enable_message(Other)
    doc = a.create_llm_response(f'{SECRET} {{"request": "other"}}')
    assert said(a.agent_response(doc)) == "SECRET"
    assert [type(each) for each in b.get_tool_messages(doc)] == [Other]


def test_each_document_says_what_it_answers() -> None:
    """L19."""
    made = agent("a", "one", "DONE two")
    made.get_user_response = lambda _text: "mine"
    task = lr.Task(made, only_user_quits_root=False)
    task.run("go")
    ids = [doc.metadata.id for doc in task.trail]
    assert [doc.metadata.parent_id for doc in task.trail] == ["", *ids[:-1]]
    assert all(ids)
