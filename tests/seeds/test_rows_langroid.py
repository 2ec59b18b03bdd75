"""Rows of the page of parity about Langroid that no other test shows by their very thing."""

from contextlib import suppress
from typing import Any

import gesta
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.chat_document import (
    ChatDocument,
    Entity,
    LLMFunctionCall,
    OpenAIToolCall,
    StatusCode,
    from_state,
    to_state,
)
from gesta.compat.langroid.exceptions import InfiniteLoopException
from gesta.compat.langroid.orchestration import AgentDoneTool
from gesta.compat.langroid.task import Task, TaskConfig
from gesta.compat.langroid.tool_message import ToolMessage
from gesta.entry import Entry
from gesta.kinds import Part, UserContent
from gesta.model.request import Reply


class Square(ToolMessage):
    request: str = "square"
    purpose: str = "To find the square of a <num>."
    num: int

    def handle(self) -> str:
        return str(self.num**2)


def agent(*script: Any, name: str = "calc", cls: type[ChatAgent] = ChatAgent, **config: Any) -> ChatAgent:
    """An agent that says what stands in its script, without native calls."""
    return cls(ChatAgentConfig(name=name, llm=gesta.scripted(*script), use_functions_api=False, **config))


def task(name: str, *script: Any, cls: type[Task] = Task, **more: Any) -> Task:
    return cls(agent(*script, name=name), interactive=False, **more)


def runs(made: Task) -> dict[str, list[Entry]]:
    """Return the entries of every run in a task's session, by the run's name."""
    record, session = made.chat.home.record, made.session

    async def read() -> dict[str, list[Entry]]:
        return {row.name: await record.read(row.run) for row in await record.store.runs(session)}

    return made.chat.wait_for(read, "read")


def entries_of(chat: ChatAgent) -> list[Entry]:
    """Return all entries of an agent's own run."""
    record = chat.home.record

    async def read() -> list[Entry]:
        return await record.read(await record.turns.run_of(chat.home.session, chat.name))

    return chat.wait_for(read, "read")


def requests_of(made: Task) -> int:
    """Return how many requests the agents of a task have sent."""
    return sum(entry.kind == "request" for every in runs(made).values() for entry in every)


# ------------------------------------------------------------------------------------------------ handlers, documents


def test_a_message_without_tools_goes_to_the_fallback_that_a_class_overrides() -> None:
    class Reminding(ChatAgent):
        def handle_message_fallback(self, msg: Any) -> Any:
            return "Use a tool." if isinstance(msg, ChatDocument) and msg.metadata.sender == Entity.LLM else None

    chat = agent("plain", cls=Reminding)
    said = chat.agent_response(chat.llm_response("go"))
    assert said is not None
    assert said.content == "Use a tool."
    assert chat.handle_message_fallback(chat.create_user_response("plain")) is None


def test_a_handler_returns_a_text_or_a_dict_and_each_is_a_result() -> None:
    class Words(ToolMessage):
        request: str = "words"
        purpose: str = "To say something."

        def handle(self) -> str:
            return "said"

    class Table(ToolMessage):
        request: str = "table"
        purpose: str = "To list something."

        def handle(self) -> dict[str, int]:
            return {"n": 1}

    chat = agent("x")
    chat.enable_message([Words, Table])
    said, listed = (chat.agent_response(chat.create_llm_response(tool_messages=[each])) for each in (Words(), Table()))
    assert said is not None
    assert listed is not None
    assert said.content == "said"
    assert (listed.content, listed.content_any) == ('{"n": 1}', {"n": 1})


def test_tools_of_a_document_are_those_given_else_native_calls_else_the_older_form_else_those_of_its_text() -> None:
    chat = agent("x")
    chat.enable_message(Square)

    def call(n: int) -> LLMFunctionCall:
        return LLMFunctionCall("square", {"num": n})

    every: dict[str, Any] = {
        "tool_messages": [Square(num=1)],
        "oai_tool_calls": [OpenAIToolCall(id="c", function=call(2))],
        "function_call": call(3),
        "content": '{"request": "square", "num": 4}',
    }
    found = []
    while every:
        found.append(chat.get_tool_messages(chat.create_llm_response(**every)))
        every.pop(next(iter(every)))
    assert found == [[Square(num=1)], [Square(num=2)], [Square(num=3)], [Square(num=4)]]


def test_what_was_parsed_before_is_not_parsed_again() -> None:
    chat = agent("x")
    chat.enable_message(Square)
    said = chat.create_llm_response('{"request": "square", "num": 4}', tool_messages=[Square(num=1)])
    assert chat.get_tool_messages(said) == chat.get_tool_messages(said, all_tools=True) == [Square(num=1)]
    result = chat.agent_response(said)
    assert result is not None
    assert result.content == "1"


def test_files_of_a_document_go_to_the_model_and_are_kept_with_it() -> None:
    parts = [Part(type="image", blob="b", media_type="image/png", name="i.png")]
    made = agent("x").create_user_response("see")
    made.files = parts
    [message] = ChatDocument.to_LLMMessage(made)
    assert list(message.parts) == parts
    assert from_state(to_state(made), {}).files == parts


def test_a_document_knows_usage_and_finish_reason_of_its_reply() -> None:
    made = ChatDocument.from_LLMResponse(Reply(text="so", usage={"in": 3}, finish_reason="stop"))
    assert (made.metadata.usage, made.metadata.finish_reason) == ({"in": 3}, "stop")


def test_a_text_of_a_person_may_begin_with_an_address() -> None:
    for text, recipient, content in (("TO[bob]: what?", "bob", "what?"), ("what?", "", "what?")):
        made = ChatDocument.from_str(text)
        assert (made.metadata.recipient, made.content, made.metadata.sender) == (recipient, content, Entity.USER)


def test_the_last_message_of_a_role_can_be_hidden() -> None:
    chat = agent("a", "b", "c")
    chat.llm_response("1")
    chat.llm_response("2")
    chat.delete_last_message()
    assert [one.text for one in chat.message_history[1:]] == ["1", "a", "b"]
    chat.delete_last_message("assistant")
    chat.delete_last_message("tool")
    assert [one.text for one in chat.message_history[1:]] == ["1", "a"]
    chat.llm_response("3")
    assert [one.text for one in chat.message_history[1:]] == ["1", "a", "3", "c"]
    kept = [each.content.value for each in entries_of(chat) if isinstance(each.content, UserContent)]
    assert kept == ["1", "2", "3"], "nothing is deleted"


def test_a_call_that_is_hidden_takes_its_result_along() -> None:
    chat = agent([gesta.call("square", num=3)], "9", "later")
    chat.config.use_functions_api = True
    chat.enable_message(Square)
    chat.llm_response(chat.agent_response(chat.llm_response("go")))
    chat.delete_last_message("assistant")
    assert [one.role for one in chat.message_history[1:]] == ["user", "assistant", "tool"]
    chat.delete_last_message("assistant")
    assert [one.role for one in chat.message_history[1:]] == ["user"]
    chat.llm_response("and now?")
    assert [one.text for one in chat.message_history[1:]] == ["go", "and now?", "later"]


# -------------------------------------------------------------------------------------------------------------- tasks


def test_how_a_loop_is_found_can_be_set() -> None:
    def run(**config: Any) -> tuple[StatusCode | None, int]:
        kid = task("kid", *["pong"] * 60, done_if_response=[Entity.LLM])
        boss = task("boss", *["ping"] * 60, config=TaskConfig(**config))
        boss.add_sub_task(kid)
        with suppress(InfiniteLoopException):
            boss.run("go", turns=40)
        return boss.status, requests_of(boss)

    soon, late, never = run(inf_loop_wait_factor=2), run(inf_loop_wait_factor=6), run(inf_loop_cycle_len=0)
    assert (soon[0], late[0], never[0]) == (StatusCode.INF_LOOP, StatusCode.INF_LOOP, StatusCode.FIXED_TURNS)
    assert soon[1] < late[1] < never[1]


def test_a_task_that_is_called_hears_its_caller_as_the_user_and_what_it_hears_leads_back() -> None:
    heard: list[ChatDocument] = []

    class Kid(Task, eq=False):
        def valid(self, result: Any, r: Any) -> bool:
            if not heard and self.pending_message is not None:
                heard.append(self.pending_message)
            return super().valid(result, r)

    boss = task("boss", "What is 3 squared?", "DONE nine")
    boss.add_sub_task(task("kid", "DONE 9", cls=Kid))
    assert boss.run("go").content == "nine"
    [first] = heard
    assert (first.content, first.metadata.sender) == ("What is 3 squared?", Entity.USER)
    [spoken] = [each for each in runs(boss)["boss"] if getattr(each.content, "output", "") == first.content]
    assert first.metadata.parent_id.startswith(f"{spoken.run}.")


def test_nobody_answers_what_is_for_another() -> None:
    ann, bob = task("ann", "DONE from ann"), task("bob", "DONE from bob")
    boss = task("boss", "__SEND__:bob what?", "DONE ok")
    boss.add_sub_task([ann, bob])
    assert boss.run("go").content == "ok"
    assert set(runs(boss)) == {"boss", "bob"}


def test_the_result_of_a_task_holds_text_value_and_tools_of_what_ended_it() -> None:
    class Ending(ToolMessage):
        request: str = "ending"
        purpose: str = "To end."

        def handle(self, agent: ChatAgent) -> ChatDocument:
            done = AgentDoneTool(content={"n": 1}, tools=[Square(num=2)])
            return agent.create_agent_response(tool_messages=[done])

    chat = agent('{"request": "ending"}', name="calc")
    chat.enable_message([Ending, Square])
    made = Task(chat, interactive=False)
    doc = made.run("go")
    assert (doc.content, doc.content_any, doc.tool_messages) == ('{"n": 1}', {"n": 1}, [Square(num=2)])
    assert (doc.metadata.sender, doc.metadata.sender_name) == (Entity.USER, "calc")
    assert doc.metadata.status is StatusCode.DONE
    assert doc.metadata.parent_id.startswith(runs(made)["calc"][0].run)
