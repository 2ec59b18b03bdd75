"""What Langroid's own tests found when they were run against `gesta.compat.langroid` (`.ci/theirs langroid`)."""

from typing import Any

import anyio
import pytest
from pydantic import Field

import gesta.compat.langroid as lr
from gesta.compat.langroid.language_models import LLMMessage, MockLMConfig


def test_a_config_may_have_a_default_that_can_be_changed() -> None:
    class Config(lr.ChatAgentConfig):
        llm: MockLMConfig = MockLMConfig(default_response="DONE 1")
        notes: list[str] = ["a"]  # noqa: RUF012 - as pydantic allows it

    one, two = Config(), Config()
    one.llm.default_response, one.notes[0] = "DONE 2", "b"
    assert (two.llm.default_response, two.notes) == ("DONE 1", ["a"])
    assert lr.Task(lr.ChatAgent(one), interactive=False)[str].run("go") == "2"


def test_a_history_can_be_replaced() -> None:
    agent = lr.ChatAgent(lr.ChatAgentConfig(llm=MockLMConfig(default_response="x")))
    agent.message_history = [
        LLMMessage(role="system", content="Be short."),
        LLMMessage(role="user", content="Hi"),
        LLMMessage(role="assistant", content="Hello"),
    ]
    assert [(each.role, each.content) for each in agent.message_history] == [
        ("system", "Be short."),
        ("user", "Hi"),
        ("assistant", "Hello"),
    ]


class Greet(lr.ToolMessage):
    request: str = "greet"
    purpose: str = "To greet."
    whom: str = Field(..., description="Who is greeted", max_length=5)
    marks: int = Field(1, ge=1)
    words: list[str] = Field(default_factory=lambda: ["Hi"])

    def handle(self, agent: lr.ChatAgent, chat_doc: lr.ChatDocument) -> str:
        return f"{agent.name} {chat_doc.content} {self.words[0]} {self.whom}{'!' * self.marks}"


class GreetLater(lr.ToolMessage):
    request: str = "greet_later"
    purpose: str = "To greet."

    async def handle_async(self, chat_doc: lr.ChatDocument) -> str:
        return f"{chat_doc.content} later"


def test_what_handles_a_tool_is_a_method_of_its_agent() -> None:
    agent: Any = lr.ChatAgent(lr.ChatAgentConfig(name="host"))
    agent.enable_message([Greet, GreetLater])
    doc = agent.create_agent_response("says")
    assert agent.greet(Greet(whom="Ann"), doc) == "host says Hi Ann!"
    assert anyio.run(agent.greet_later_async, GreetLater(), doc) == "says later"
    with pytest.raises(AttributeError, match="has no attribute 'greets'"):
        agent.greets(Greet(whom="Ann"))


def test_a_field_of_pydantic_is_a_field_of_a_message() -> None:
    schema = Greet.llm_function_schema().parameters
    assert schema["properties"]["whom"] == {"type": "string", "maxLength": 5, "description": "Who is greeted"}
    assert (schema["required"], Greet(whom="Ann").marks) == (["whom"], 1)
    agent = lr.ChatAgent(lr.ChatAgentConfig())
    agent.enable_message(Greet)
    said = agent.create_llm_response('{"request": "greet", "whom": "Ann", "marks": 0}')
    assert "Expected `int` >= 1 - at `$.marks`" in str(agent.handle_message(said))


def test_a_document_has_an_id_and_can_be_copied() -> None:
    agent = lr.ChatAgent(lr.ChatAgentConfig(llm=MockLMConfig(default_response="x")))
    doc = agent.llm_response("hi")
    assert doc is not None
    assert doc.id() == doc.metadata.id != ""
    copied = lr.ChatDocument.deepcopy(doc)
    assert (copied.content, copied.id()) == ("x", "")


def test_a_root_task_keeps_whom_its_model_named() -> None:
    said = MockLMConfig(default_response="TO[Bob]: do it")
    result = lr.Task(lr.ChatAgent(lr.ChatAgentConfig(llm=said)), interactive=False, single_round=True).run("go")
    assert (result.metadata.recipient, result.content) == ("Bob", "do it")


def test_an_overridden_user_response_is_a_person() -> None:
    class Asked(lr.ChatAgent):
        def user_response(self, msg: object = None) -> lr.ChatDocument:
            return self.create_user_response("q")

    agent = Asked(lr.ChatAgentConfig(llm=MockLMConfig(default_response="What?")))
    task = lr.Task(agent)
    task.run("go")
    assert task.status == lr.StatusCode.USER_QUIT


class Passed(lr.ToolMessage):
    request: str = "passed"
    purpose: str = "To be the result of a task."
    num: int


def test_a_tool_without_a_handler_can_be_the_result_of_a_task() -> None:
    said = MockLMConfig(default_response='{"request": "passed", "num": 3}')
    agent = lr.ChatAgent(lr.ChatAgentConfig(llm=said))
    agent.enable_message(Passed)
    task = lr.Task(agent, interactive=False, config=lr.TaskConfig(done_if_tool=True))[Passed]
    assert task.run("go").num == 3
    assert "Nothing handles 'passed'" in str(
        agent.handle_message(agent.create_llm_response('{"request": "passed", "num": 3}'))
    )


def test_a_mock_costs_nothing() -> None:
    agent = lr.ChatAgent(lr.ChatAgentConfig(llm=MockLMConfig(default_response="DONE 1")))
    assert lr.Task(agent, interactive=False)[str].run("go", max_cost=0.0001) == "1"
