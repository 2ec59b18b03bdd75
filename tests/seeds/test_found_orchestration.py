"""What a comparison with Langroid by lot found: one test a finding."""

import json
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.seeds.test_found_langroid import said

import gesta
import gesta.compat.langroid as lr
from gesta.compat.langroid.agent.tools import (
    AddRecipientTool,
    AgentDoneTool,
    AgentSendTool,
    DonePassTool,
    DoneTool,
    FinalResultTool,
    ForwardTool,
    PassTool,
    RecipientTool,
    ResultTool,
    RewindTool,
    SendTool,
)
from gesta.compat.langroid.agent.xml_tool_message import XMLToolMessage
from gesta.compat.langroid.message_states import message_of, message_state
from gesta.compat.langroid.steering import steer
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


@pytest.mark.parametrize("native", [True, False])
def test_a_call_that_a_sub_task_left_is_over_before_its_model_is_asked_again(native: bool) -> None:
    left, handed = gesta.call("square", num=3), gesta.call("double", num=4)
    calls = [each if native else written(each) for each in (left, handed)]
    ann, _ = heard("ann", "__SEND__:bob one", calls[1], calls[1], "__SEND__:bob two", "DONE", native=native)
    ann.enable_message(Double, handle=False)
    bob, told = heard("bob", calls[0], "DONE fine", native=native)
    bob.enable_message(Square)
    bob.enable_message(Double, use=False)
    task = lr.Task(ann, interactive=False)
    task.add_sub_task(lr.Task(bob, interactive=False, single_round=True))
    task.run("go")
    assert told == ["one", "two"]


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


def test_a_call_is_handed_to_a_sub_task_once_and_its_result_is_known_whoever_speaks_next() -> None:
    handled: list[int] = []

    class Counted(Double):
        request: str = "counted"

        def handle(self) -> str:
            handled.append(self.num)
            return f"twice is {self.num * 2}"

    said = iter(["__SEND__:bob hi", "and now?", "q"])
    shown: list[list[str]] = []

    def say(messages: list[dict[str, Any]], _header: Any) -> Any:
        shown.append([each["content"] for each in messages if each["role"] == "tool"])
        return gesta.call("counted", num=4) if len(shown) == 1 else "fine"

    ann = lr.ChatAgent(lr.ChatAgentConfig(name="ann", llm=gesta.function(say), use_functions_api=True))
    ann.callbacks.get_user_response = lambda **_: next(said)
    ann.enable_message(Counted, handle=False)
    ann.enable_message(Square)
    bob, _ = heard("bob", gesta.call("square", num=3))
    bob.enable_message(Counted, use=False)
    bob.enable_message(Square)
    task = lr.Task(ann, interactive=True)
    task.add_sub_task(lr.Task(bob, interactive=False, single_round=True))
    task.run("go")
    assert handled == [4]
    assert shown == [[], ["twice is 8", "9"]]


def test_tokens_that_a_caller_allows_are_the_limit_and_may_be_used_up() -> None:
    count = iter(range(1000))

    def say(_messages: Any, _header: Any) -> Any:
        usage = {"prompt_tokens": 5, "completion_tokens": 0}
        return gesta.reply(calls=[gesta.call("square", num=next(count))], usage=usage)

    made = lr.ChatAgent(lr.ChatAgentConfig(name="ann", llm=gesta.function(say), use_functions_api=True))
    made.enable_message(Square)
    task = lr.Task(made, interactive=False)
    assert (task.run("go", max_tokens=300), task.status) == (None, lr.StatusCode.MAX_TOKENS)
    assert next(count) == 61


def test_what_a_sub_task_sends_to_its_caller_is_for_nobody_else() -> None:
    ann, told = heard("ann", "__SEND__:bob ask", "DO-NOT-KNOW", "DONE")
    bob, _ = heard("bob", "__SEND__:ann answer")
    cy, asked = heard("cy", "DONE fine")
    task = lr.Task(ann, interactive=False)
    task.add_sub_task([lr.Task(cy, interactive=False), lr.Task(bob, interactive=False)])
    task.run("go")
    assert (told[1], asked) == ("answer", ["DO-NOT-KNOW"])


def test_a_person_gets_a_chance_after_a_sub_task_that_was_done_by_a_tool() -> None:
    ann, told = heard("ann", "__SEND__:bob ask", "fine")
    bob, _ = heard("bob", gesta.call("done_tool", content="60"))
    bob.enable_message(DoneTool)
    asked: list[str] = []
    ann.callbacks.get_user_response = lambda prompt: asked.append(prompt) or "q"  # type: ignore[func-returns-value]
    task = lr.Task(ann, interactive=True)
    task.add_sub_task(lr.Task(bob, interactive=False, single_round=True))
    task.run("go")
    assert (told, asked) == (["go"], ["60"])


# tools that steer a task


def written(call: Any) -> str:
    """A call as a text."""
    return json.dumps({"request": call.name, **json.loads(call.args)})


def sends(*script: Any, native: bool = True) -> tuple[lr.Task, list[str], list[str]]:
    """A task whose model has `RecipientTool` and a sub-task `bob`, and what both models are told."""
    ann, told = heard("ann", *script, native=native)
    ann.enable_message(RecipientTool)
    bob, asked = heard("bob", "DONE fine", "DONE fine")
    task = lr.Task(ann, interactive=False)
    task.add_sub_task(lr.Task(bob, interactive=False))
    return task, told, asked


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_a_text_for_nobody_waits_until_its_recipient_is_added(native: bool, named: bool) -> None:
    first = gesta.call("recipient_message", intended_recipient="", content="hello") if named else "hello"
    calls = [first, gesta.call("add_recipient", intended_recipient="bob"), "DONE"]
    script = [one if native or isinstance(one, str) else written(one) for one in calls]
    task, told, asked = sends(*script, native=native)
    task.run("go")
    assert asked == ["hello"]
    assert "add_recipient" in told[1]
    assert told[2] == "fine"


def test_what_an_agent_sends_as_its_model_is_the_agents_in_a_done_sequence() -> None:
    ann, _ = heard("ann", gesta.call("recipient_message", intended_recipient="bob", content="hello"))
    ann.enable_message(RecipientTool)
    task = lr.Task(ann, interactive=False, config=lr.TaskConfig(done_sequences=["T, A"]))
    task.add_sub_task(lr.Task(heard("bob", "DONE")[0], interactive=False))
    assert said(task.run("go")) == "hello"


def test_a_recipient_without_a_text_is_told_to_the_model() -> None:
    task, told, asked = sends(gesta.call("add_recipient", intended_recipient="bob"), "DONE")
    task.run("go")
    assert (asked, "recipient_message" in told[1]) == ([], True)


def test_a_text_is_sent_once() -> None:
    add = gesta.call("add_recipient", intended_recipient="bob")
    task, told, asked = sends("hello", add, add, "DONE")
    task.run("go")
    assert asked == ["hello"]
    assert "recipient_message" in told[3]


@pytest.mark.parametrize("outside", [True, False])
def test_words_from_outside_stay_so_when_a_recipient_is_added(outside: bool) -> None:
    made, _ = heard("ann")
    made.enable_message(RecipientTool)
    first, add = made.create_llm_response("hello", tainted=outside), AddRecipientTool(intended_recipient="bob")
    asked = made.handle_message_fallback(first)
    doc = made.create_agent_response(tool_messages=[add])
    steer(doc, [made.create_user_response("go"), first, asked, made.create_llm_response(tool_messages=[add])])
    assert (doc.content, doc.metadata.recipient, doc.metadata.tainted) == ("hello", "bob", outside)


def test_a_tool_may_answer_messages_without_tools_for_its_agent() -> None:
    class Needed(Square):
        request: str = "needed"

        @staticmethod
        def handle_message_fallback(agent: lr.ChatAgent, msg: lr.ChatDocument) -> str:
            return f"{agent.name}: not {msg.content!r}, but `needed`"

    made, told = heard("ann", "Hm", gesta.call("needed", num=3), "DONE 9")
    made.enable_message(Needed)
    assert said(lr.Task(made, interactive=False).run("go")) == "9"
    assert told[1] == "ann: not 'Hm', but `needed`"


def test_a_tool_that_steers_is_carried_out_by_hand() -> None:
    made = lr.ChatAgent(lr.ChatAgentConfig(name="ann", llm=gesta.scripted("first", "second")))
    asked = made.create_llm_response("what waits", tainted=True)
    done = DoneTool(content=5).response(made)
    assert (done.content, [type(each) for each in done.tool_messages], done.metadata.sender) == (
        "5",
        [DoneTool],
        "Agent",
    )
    done = AgentDoneTool(content=5, tools=[Square(num=2)]).response(made)
    assert (done.content_any, [type(each) for each in done.tool_messages]) == (5, [AgentDoneTool, Square])
    assert [each.num for each in ResultTool(num=7).response(made).tool_messages] == [7]
    for tool, recipient in ((PassTool(), ""), (ForwardTool(agent="bob"), "bob")):
        passed = tool.response(made, asked)
        assert (passed.content, passed.metadata.recipient, passed.metadata.tainted) == ("what waits", recipient, True)
    passed = DonePassTool().response(made, asked)
    assert (passed.content, passed.tool_messages[0].content, passed.metadata.tainted) == (
        "what waits",
        "what waits",
        True,
    )
    for sending in (SendTool(to="bob", content="hi"), AgentSendTool(to="bob", content="hi")):
        sent = sending.response(made, asked)
        assert (sent.content, sent.metadata.recipient, sent.metadata.sender) == ("hi", "bob", "Agent")
    sent = RecipientTool(intended_recipient="bob", content="hi").response(made, asked)
    assert (sent.content, sent.metadata.recipient, sent.metadata.sender, sent.metadata.tainted) == (
        "hi",
        "bob",
        "LLM",
        True,
    )
    assert RecipientTool(intended_recipient="", content="hi").response(made).metadata.recipient == "LLM"
    assert "recipient_message" in AddRecipientTool(intended_recipient="bob").response(made).content
    made.llm_response("one")
    made.llm_response("two")
    assert RewindTool(n=1, content="better").response(made).content == "better"
    assert [each.text for each in made.message_history[1:]] == ["one", "better"]
    assert PassTool().response(made).content == "better"


def test_a_handler_may_return_what_a_steering_tool_makes_of_its_document() -> None:
    class Leave(lr.ToolMessage):
        request: str = "leave"
        purpose: str = "To end."

        def response(self, agent: lr.ChatAgent, chat_doc: lr.ChatDocument) -> Any:
            del chat_doc
            return DoneTool(content="left").response(agent)

    class Louder(DoneTool):
        request: str = "louder"

        def response(self, agent: lr.ChatAgent, chat_doc: Any = None) -> Any:
            doc = super().response(agent, chat_doc)
            doc.tool_messages[0].content = doc.content.upper()
            return doc

    for call in (gesta.call("leave"), gesta.call("louder", content="left")):
        made, _ = heard("ann", call)
        made.enable_message([Leave, Louder])
        assert said(lr.Task(made, interactive=False).run("go")).lower() == "left"


def test_who_may_not_answer_a_root_is_not_asked() -> None:
    made, told = heard("ann", "DONE 5")
    doc = made.create_user_response("go")
    doc.metadata.block = lr.Entity.LLM
    assert lr.Task(made, interactive=False).run(doc) is None
    assert told == []


def test_an_agent_that_is_done_does_not_end_an_interactive_root_that_only_a_person_ends() -> None:
    class Ending(lr.ToolMessage):
        request: str = "ending"
        purpose: str = "To end with a <num>."
        num: int

        def handle(self) -> Any:
            return AgentDoneTool(content=self.num, tools=[self])

    for only in (True, False):
        count = iter(range(1000))
        script = lambda _m, _h, n=count: gesta.call("ending", num=3) if next(n) else "which?"  # noqa: E731 - once
        made = lr.ChatAgent(lr.ChatAgentConfig(name="ann", llm=gesta.function(script), use_functions_api=True))
        made.enable_message(Ending)
        task = lr.Task(made, interactive=True, default_human_response="3", only_user_quits_root=only)
        result = task.run("go")
        assert (result is None) == only
        assert only or result.content == "3"


def test_a_person_who_says_the_same_again_and_again_is_a_circle() -> None:
    made = lr.ChatAgent(
        lr.ChatAgentConfig(
            name="ann", llm=gesta.function(lambda _m, _h: gesta.call("square", num=3)), use_functions_api=True
        )
    )
    made.enable_message(Square)
    with pytest.raises(lr.InfiniteLoopException):
        lr.Task(made, interactive=True, default_human_response="go on").run("go")


def test_a_final_result_ends_an_interactive_root_too() -> None:
    class Ending(lr.ToolMessage):
        request: str = "ending"
        purpose: str = "To end."

        def handle(self) -> Any:
            return FinalResultTool(num=7)  # type: ignore[call-arg]  # any keywords

    bob, _ = heard("bob", gesta.call("ending"))
    bob.enable_message(Ending)
    ann, told = heard("ann", "first?", "second?")
    ann.callbacks.get_user_response = lambda **_: "q" if told[1:] else ""
    task = lr.Task(ann, interactive=True)
    task.add_sub_task(lr.Task(bob, interactive=False))
    assert [each.num for each in task.run("go").tool_messages] == [7]
    assert told == ["go"]


@pytest.mark.parametrize("native", [True, False])
def test_a_history_has_what_the_model_was_shown_and_said(native: bool) -> None:
    call = gesta.call("square", num=3)
    made, told = heard("ann", call if native else written(call), "DONE 9", native=native)
    made.enable_message(Square)
    task = lr.Task(made, interactive=False, restart=False, done_if_response=[lr.Entity.AGENT])
    assert said(task.run("go")) == "9"
    assert [one.role for one in made.message_history] == ["system", "user", "assistant"]
    made.clear_history(-1)
    assert [one.role for one in made.message_history] == ["system", "user"]
    task.run("and now?")
    assert told == ["go", "and now?"]


def test_a_history_of_an_agent_with_its_own_record_is_read_in_an_event_loop() -> None:
    made, _ = heard("ann", "hello")

    async def main() -> list[str]:
        await made.llm_response_async("hi")
        return [one.text for one in made.message_history[1:]]

    assert anyio.run(main) == ["hi", "hello"]


def test_a_call_in_the_quotes_of_python_is_carried_out() -> None:
    made, told = heard("ann", "I use {'request': 'square', 'num': 3}", "DONE", native=False)
    made.enable_message(Square)
    lr.Task(made, interactive=False).run("go")
    assert told == ["go", "Observation: 9"]
    assert [
        each.dict_example()["num"]
        for each in made.get_tool_messages(made.create_llm_response("{'request': 'square', 'num': 4}"))
    ] == [4]


class Special(BaseModel):
    answer: int


def test_a_model_of_pydantic_in_a_result_comes_back_as_one() -> None:
    class Ending(lr.ToolMessage):
        request: str = "ending"
        purpose: str = "To end."

        def handle(self) -> Any:
            return ResultTool(special=Special(answer=7), plain={"answer": 8})

    made, _ = heard("ann", gesta.call("ending"))
    made.enable_message(Ending)
    (tool,) = lr.Task(made, interactive=False).run("go").tool_messages
    assert (tool.special, tool.plain) == (Special(answer=7), {"answer": 8})


def test_a_class_that_the_program_does_not_have_leaves_its_json() -> None:
    made = ResultTool(special=Special(answer=7))
    state = message_state(made)
    state["models"] = {"special": "elsewhere.Special"}
    assert message_of(state, {"result_tool": ResultTool}).special == {"answer": 7}


def test_steps_that_a_caller_gave_and_that_bring_nothing_end_with_the_last_message() -> None:
    made, _ = heard("ann", gesta.call("square", num=3))
    made.enable_message(Square, handle=False)
    task = lr.Task(made, interactive=False)
    result = task.run("go", turns=3)
    assert ([each.request for each in result.tool_messages], task.status) == (["square"], lr.StatusCode.FIXED_TURNS)


def test_an_agent_that_is_done_again_and_again_and_is_not_heard_is_a_circle() -> None:
    class Other(lr.ToolMessage):
        request: str = "other"
        purpose: str = "Of nobody here."

    class Ending(lr.ToolMessage):
        request: str = "ending"
        purpose: str = "To end."

        def handle(self) -> Any:
            return AgentDoneTool(content=3, tools=[Other()])

    model = gesta.function(lambda _messages, _header: gesta.call("ending"))
    made = lr.ChatAgent(lr.ChatAgentConfig(name="ann", llm=model, use_functions_api=True))
    made.enable_message(Ending)
    with pytest.raises(lr.InfiniteLoopException):
        lr.Task(made, interactive=True, default_human_response="go on").run("go")


# what a user of Langroid would miss


@pytest.mark.parametrize(("message", "answer"), [("Filtered.", "Filtered."), (None, None)])
def test_a_reply_that_a_filter_emptied_is_answered_with_content_filter_message(message: Any, answer: Any) -> None:
    stopped = gesta.reply("", finish_reason="content_filter")
    llm = gesta.function(lambda _messages, _header: stopped)
    made = lr.ChatAgent(lr.ChatAgentConfig(name="ann", llm=llm, content_filter_message=message))
    doc = made.llm_response("hi")
    assert (doc.content if doc is not None else None) == answer
    assert [one.text for one in made.message_history[1:]] == ["hi"]


def test_the_first_messages_are_set_by_set_system_message_and_set_user_message() -> None:
    made, told = heard("ann", "hello")
    made.set_system_message("You are brief.")
    made.set_user_message("begin")
    made.llm_response()
    assert (made.message_history[0].text.split(".")[0], told) == ("You are brief", ["begin"])


def test_a_call_with_its_fields_in_properties_is_the_call_that_it_means() -> None:
    for script in ('{"request": "square", "properties": {"num": 3}}', gesta.call("square", properties={"num": 3})):
        made, told = heard("ann", script, "DONE", native=not isinstance(script, str))
        made.enable_message(Square)
        lr.Task(made, interactive=False).run("go")
        assert told[1].endswith("9")


def test_xml_that_does_not_fit_its_class_raises_the_exception_of_langroid_where_a_program_reads_it() -> None:
    class Written(XMLToolMessage):
        request: str = "written"
        purpose: str = "To write <num>."
        num: int

    assert Written.parse("<tool><request>written</request><num>3</num></tool>") == Written(num=3)
    with pytest.raises(lr.exceptions.XMLException, match=r"`\$.num`"):
        Written.parse("<tool><request>written</request><num>many</num></tool>")
