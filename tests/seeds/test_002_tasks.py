"""Tasks: steps, responders, how they end, what is handed on, and that one which was broken off does nothing twice."""

import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
import pytest
from tests import programs
from tests.validators.chat_completions import violations

import gesta
from gesta.address import formatter as bound_formatter
from gesta.address import open_record
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.chat_document import ChatDocument, Entity
from gesta.compat.langroid.exceptions import InfiniteLoopException
from gesta.compat.langroid.orchestration import (
    AgentDoneTool,
    AgentSendTool,
    DonePassTool,
    DoneTool,
    FinalResultTool,
    ForwardTool,
    PassTool,
    RecipientTool,
    ResultTool,
    SendTool,
)
from gesta.compat.langroid.task import StatusCode, Task, TaskConfig
from gesta.compat.langroid.tool_message import ToolMessage
from gesta.errors import GestaError, TurnOpen
from gesta.kinds import (
    ApprovalContent,
    ApprovalRequestContent,
    AttemptContent,
    CompactionContent,
    KeyValueContent,
    RequestContent,
    ResolutionContent,
    UserContent,
)
from gesta.model.request import ReplyCall
from gesta.prompt import rebuild
from gesta.views.lineage import Unexplained, unexplained

NATIVE = {"use_tools": False, "use_functions_api": True}
FIELDS = """
agent name llm_delegate single_round system_message user_message restart default_human_response interactive
only_user_quits_root erase_substeps allow_null_result max_stalled_steps default_return_type done_if_no_response
done_if_response config
"""


class Square(ToolMessage):
    request: str = "square"
    purpose: str = "To find the square of a <num>."
    _tool_effect = "pure"
    num: int

    def handle(self) -> str:
        return str(self.num**2)


class Answer(ResultTool):
    request: str = "answer"
    purpose: str = "To give the <num>."
    num: int = 0


class Final(FinalResultTool):
    request: str = "final"
    purpose: str = "To end all with <num>."
    _allow_llm_use = True
    num: int


def agent(name: str, *script: Any, tools: Any = (), **config: Any) -> ChatAgent:
    llm = gesta.scripted(*script) if script else None
    home = {key: config.pop(key) for key in ("record", "session") if key in config}
    chat = ChatAgent(ChatAgentConfig(**({"name": name, "llm": llm} | NATIVE | config)), **home)
    for cls in tools:
        chat.enable_message(cls)
    return chat


def task(name: str, *script: Any, tools: Any = (), subs: Any = (), **options: Any) -> Task:
    """A task of an agent of that name, with nobody there."""
    config = {key: options.pop(key) for key in ("record", "session", "use_functions_api", "policy") if key in options}
    made = Task(agent(name, *script, tools=tools, **config), **({"interactive": False} | options))
    made.add_sub_task(list(subs))
    return made


def text(doc: Any) -> Any:
    return doc.content if isinstance(doc, ChatDocument) else doc


def runs(made: Task) -> dict[str, Any]:
    """Entries of every run in the task's session, by the run's name; each request in them is a valid one, each answer explained."""
    record, session = made.chat.home.record, made.session

    async def read() -> dict[str, Any]:
        return {row.name: await record.read(row.run) for row in await record.store.runs(session)}

    found: dict[str, Any] = made.chat.wait_for(read, "read")
    assert unexplained([entry for every in found.values() for entry in every]) == Unexplained({}, (), (), 0)
    for every in found.values():
        for entry in every:
            if isinstance(entry.content, RequestContent):
                again = rebuild(every, entry.seq, bound_formatter(made.chat.config.formatter), gesta.scripted())
                assert again.digest == entry.content.body_digest
                assert violations(again.body()) == []
    return found


def said_to(made: Task, name: str) -> list[str]:
    """Texts that stand before a run's models, in order."""
    kinds = ("user", "system", "tool-result")
    every = [each.content for each in runs(made)[name] if each.kind in kinds]
    return [getattr(each, "value", None) or str(getattr(each, "tool_result", "")) for each in every]


# ------------------------------------------------------------------------------------------------------- construction


def test_a_task_has_every_field_of_the_document_and_names_the_nearest_of_another() -> None:
    assert [name for name in FIELDS.split() if name not in Task.__struct_fields__] == []
    wrong: Any = {"interactve": False}
    with pytest.raises(TypeError, match=r"Task has no field 'interactve'\. Did you mean 'interactive'\?"):
        Task(agent("a", "x"), **wrong)
    config: Any = TaskConfig
    chat_config: Any = ChatAgentConfig
    with pytest.raises(TypeError, match="TaskConfig has no field 'single_round'"):
        config(single_round=True)
    with pytest.raises(TypeError, match="ChatAgentConfig has no field 'sytem_message'"):
        chat_config(sytem_message="x")
    with pytest.raises(GestaError, match="agent is str, expected a ChatAgent"):
        Task("a")  # type: ignore[arg-type]
    assert Task().chat.name == "LLM-Agent"


def test_a_task_gives_its_agent_a_name_and_messages_for_as_long_as_it_runs() -> None:
    chat = agent("calc", "DONE 1", "DONE 2")
    made = Task(chat, "other", system_message="Be brief.", user_message="Begin.", interactive=False)
    assert text(made.run()) == "1"
    header = next(each.content for each in runs(made)["other"] if each.kind == "request-header")
    assert header.meta["instructions"] == "Be brief."
    assert said_to(made, "other") == ["Begin."]
    assert (chat.name, chat.config.system_message, chat.interactive) == ("calc", "You are a helpful assistant.", True)


@pytest.mark.parametrize("restart", [True, False])
def test_the_user_message_stands_before_what_a_task_is_asked_also_after_it_was_broken_off(
    restart: bool, tmp_path: Path
) -> None:
    seen: list[list[str]] = []

    def think(messages: Any, _header: Any) -> str:
        seen.append([each["content"] for each in messages])
        if len(seen) == 1:
            raise KeyboardInterrupt
        return f"DONE {len(seen)}"

    def made() -> Task:
        config = ChatAgentConfig(name="calc", llm=gesta.function(think), user_message="Add.")
        chat = ChatAgent(config, record=str(tmp_path / "sums.gesta"), session="s")
        return Task(chat, interactive=False, restart=restart, erase_substeps=True)

    with pytest.raises(KeyboardInterrupt):
        made().run("1 + 1")
    assert text(made().run("1 + 1")) == "2"
    assert text(made().run("2 + 2")) == "3"
    before = [] if restart else ["1 + 1", "DONE 2"]
    assert seen == [["Add.", "1 + 1"], ["Add.", "1 + 1"], ["Add.", *before, "2 + 2"]]


def test_a_sub_task_is_shown_its_own_user_message_before_what_its_parent_asks() -> None:
    made = task("boss")
    made.add_sub_task(task("calc", "DONE 4", user_message="Add."))
    assert text(made.run("2 + 2")) == "4"
    calc = runs(made)["calc"]
    request = next(each for each in calc if isinstance(each.content, RequestContent))
    assert [each.content.value for each in calc if each.seq in request.causes] == ["Add.", "2 + 2"]


def test_after_a_reset_no_model_of_a_task_and_its_sub_tasks_is_shown_what_was_said_before() -> None:
    seen: list[tuple[str, list[str]]] = []

    def made(name: str, *script: str) -> Task:
        replies = iter(script)

        def think(messages: Any, _header: Any) -> str:
            seen.append((name, [each["content"] for each in messages]))
            return next(replies)

        chat = ChatAgent(ChatAgentConfig(name=name, llm=gesta.function(think)))
        return Task(chat, interactive=False, restart=False)

    boss, below = made("boss", *["ask", "DONE a"] * 2), made("below", *["ask", "DONE b"] * 2)
    deep = made("deep", *["DONE c"] * 2)
    below.add_sub_task(deep)
    boss.add_sub_task(below)
    boss.run("one")
    boss.reset_all_sub_tasks()
    first, seen[:] = seen[:], []
    boss.run("one")
    assert [name for name, _ in seen] == ["boss", "below", "deep", "below", "boss"]
    assert seen == first


def test_sub_tasks_come_alone_in_pairs_and_in_lists() -> None:
    one, two, three = (task(name) for name in ("one", "two", "three"))
    made = task("boss", "x")
    made.add_sub_task(one)
    made.add_sub_task((two, TaskConfig(restart_as_subtask=True)))
    made.add_sub_task([three, (task("four"), TaskConfig())])
    assert [each.name for each in made.sub_tasks] == ["one", "two", "three", "four"]
    assert (made.sub_tasks[1].as_sub.restart_as_subtask, two.as_sub) == (True, None)
    with pytest.raises(GestaError, match="Two sub-tasks of 'boss' are named 'ONE'"):
        made.add_sub_task(task("ONE"))
    with pytest.raises(GestaError, match="found ChatAgent, expected a Task"):
        made.add_sub_task(agent("five"))


def test_clones_keep_sub_tasks_and_what_ends_them() -> None:
    sub = task("sub", "DONE 9")
    made = task("boss", "ask", subs=[sub], done_if_response=[sub])
    other = made.clone(1)
    assert (other.name, [each.name for each in other.sub_tasks]) == ("boss-1", ["sub-1"])
    assert text(other.run("go")) == text(made.run("go")) == "9"
    assert other.sub_tasks[0].agent is not sub.agent
    assert other[int].default_return_type is int
    assert other.default_return_type is None


# ----------------------------------------------------------------------------------------------------- one agent alone


@pytest.mark.parametrize("mode", [{}, NATIVE, {"use_functions_api": True, "use_tools_api": False}])
def test_one_task_runs_in_each_of_the_three_ways_of_tools_to_the_same_facts(mode: dict[str, bool]) -> None:
    first = gesta.call("square", num=5) if mode else '{"request": "square", "num": 5}'
    llm = gesta.scripted(first, "DONE 25")
    chat = ChatAgent(ChatAgentConfig(name="calc", llm=llm, **({"use_functions_api": False} | mode)))  # type: ignore[arg-type]
    chat.enable_message(Square)
    made = Task(chat, interactive=False)
    assert made.run("What is 5 squared?", return_type=int) == 25
    kinds = Counter(str(each.kind) for each in runs(made)["calc"])
    assert (kinds["tool-call"], kinds["attempt"], kinds["tool-result"], kinds["chat-completion"]) == (1, 1, 1, 2)


def test_the_default_ends_when_nobody_has_more_to_say_and_the_answer_is_kept() -> None:
    made = task("calc", "Paris.")
    assert text(made.run("Capital of France?")) == "Paris."
    assert made.status is StatusCode.STALLED
    assert len([each for each in runs(made)["calc"] if each.kind == "chat-completion"]) == 1


def test_a_typed_result_is_found_by_return_type_before_the_default() -> None:
    made = task("calc", [gesta.call("answer", num=5)], tools=[Answer], restart=True)
    assert made.run("go", return_type=int) == 5
    made = task("calc", "DONE 7", "DONE 7", "DONE seven", default_return_type=int)
    assert made.run("go") == 7
    assert made.run("go", return_type=str) == "7"
    assert made.run("go") is None
    assert made.status is StatusCode.DONE


def test_a_result_may_be_a_struct() -> None:
    class Point(msgspec.Struct):
        x: int

    made = task("calc", '{"x": 3}', done_if_response=[Entity.LLM])
    made.chat.config.output_format = Point
    assert made[Point].run("go") == Point(3)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("text", "text"),
        ({"a": 1}, '{"a": 1}'),
        (Square(num=2), '{\n    "request": "square",\n    "num": 2\n}'),
        (ChatDocument(content="doc", metadata=ChatAgent().create_user_response("x").metadata), "doc"),
    ],
)
def test_a_message_may_be_of_any_type(given: Any, shown: str) -> None:
    made = task("calc", "DONE ok")
    assert text(made.run(given)) == "ok"
    assert said_to(made, "calc")[0] == shown


def test_a_tool_message_that_is_handed_to_a_task_is_handled() -> None:
    made = task("calc", tools=[], done_if_response=[Entity.AGENT])
    made.chat.enable_message(Square)
    assert text(made.run(made.chat.create_llm_response(tool_messages=[Square(num=6)]))) == "36"


def test_a_message_for_somebody_else_is_not_taken() -> None:
    made = task("calc", "DONE ok")
    assert made.run("TO[bob]: hello") is None
    assert text(made.run("TO[calc]: hello")) == "ok"
    assert made.run(made.chat.create_user_response("x", recipient="Bob")) is None


# --------------------------------------------------------------------------------------------------- how a task ends


@pytest.mark.parametrize(
    ("said", "content"),
    [("DONE", ""), ("DONE 42", "42"), ("The answer is 42. DONE", "The answer is 42.")],
)
def test_done_ends_a_task_and_is_taken_out(said: str, content: str) -> None:
    made = task("calc", said)
    doc = made.run("go")
    assert (doc.content, doc.metadata.sender, doc.metadata.sender_name) == (content, Entity.USER, "calc")
    assert (made.status, doc.metadata.status) == (StatusCode.DONE, StatusCode.DONE)


def test_signals_in_text_can_be_switched_off() -> None:
    made = task("calc", "DONE 42", config=TaskConfig(recognize_string_signals=False))
    assert text(made.run("go")) == "DONE 42"
    assert made.status is StatusCode.STALLED


def test_responses_and_their_absence_may_end_it() -> None:
    assert text(task("calc", "no signal", done_if_response=[Entity.LLM]).run("go")) == "no signal"
    assert text(task("calc", "no signal", done_if_response=["llm"]).run("go")) == "no signal"
    made = task("calc", "plain", done_if_no_response=[Entity.AGENT])
    assert (text(made.run("go")), made.status) == ("go", StatusCode.DONE)


def test_a_tool_may_end_it() -> None:
    made = task("calc", [gesta.call("square", num=3)], tools=[Square], config=TaskConfig(done_if_tool=True))
    doc = made.run("go")
    assert (doc.tool_messages, made.status) == ([Square(num=3)], StatusCode.DONE)
    bad = [gesta.call("square", num="x")]
    made = task("calc", bad, calls("square", num=3), tools=[Square], config=TaskConfig(done_if_tool=True))
    assert made.run("go").tool_messages == [Square(num=3)]


def test_a_row_of_responses_may_end_it() -> None:
    sequences = TaskConfig(done_sequences=["T[square], A"])
    made = task("calc", calls("square", num=3), tools=[Square], config=sequences)
    assert (text(made.run("go")), made.status) == ("9", StatusCode.DONE)
    made = task("calc", "a", config=TaskConfig(done_sequences=["L, X"]))
    with pytest.raises(GestaError, match="found 'X' in the done sequence"):
        made.run("go")


def test_steps_and_tokens_are_limited() -> None:
    made = task("calc", calls("square", num=3), "DONE 9", tools=[Square])
    assert (text(made.run("go", turns=2)), made.status) == ("9", StatusCode.FIXED_TURNS)
    one = task("calc", "once", "twice", single_round=True)
    assert (text(one.run("go")), one.status) == ("once", StatusCode.FIXED_TURNS)
    usage = {"prompt_tokens": 90, "completion_tokens": 20}
    made = task("calc", gesta.reply("", calls=calls("square", num=3), usage=usage), "DONE", tools=[Square])
    assert (made.run("go", max_tokens=100), made.status) == (None, StatusCode.MAX_TOKENS)
    policy = gesta.Policy(budget=gesta.Budget(request_usd=0.4))  # of a request whose price nobody knows
    made = task("calc", calls("square", num=3), calls("square", num=4), "DONE", tools=[Square], policy=policy)
    assert (made.run("go", max_cost=1), made.status) == (None, StatusCode.MAX_COST)
    cheap = task("calc", calls("square", num=3), "DONE 9", tools=[Square], policy=policy)
    assert text(cheap.run("go", max_cost=1)) == "9"


def test_no_answer_stalls_a_task_after_the_known_number_of_steps() -> None:
    quiet = gesta.Policy(retry=gesta.Retry(empty=0))
    made = task("calc", *[""] * 9, max_stalled_steps=3)
    made.chat.config.policy = quiet
    assert (made.run("go"), made.status) == (None, StatusCode.STALLED)
    assert len([each for each in runs(made)["calc"] if each.kind == "chat-completion"]) == 3


def test_no_answer_may_be_an_answer() -> None:
    made = task("calc", "DO-NOT-KNOW", "DONE I asked elsewhere", allow_null_result=True)
    assert text(made.run("go")) == "I asked elsewhere"
    made = task("calc", "DO-NOT-KNOW")
    assert text(made.run("go")) == "DO-NOT-KNOW"


def test_texts_that_go_round_in_a_circle_end_it() -> None:
    sub = task("sub", *["pong"] * 40, done_if_response=[Entity.LLM])
    made = task("boss", *["ping"] * 40, subs=[sub])
    with pytest.raises(InfiniteLoopException):
        made.run("go")
    assert made.status is StatusCode.INF_LOOP
    refusing = task("sub", *["DO-NOT-KNOW"] * 40, done_if_response=[Entity.LLM])
    made = task("boss", *[f"question {n}" for n in range(40)], subs=[refusing])
    with pytest.raises(InfiniteLoopException):
        made.run("go")
    assert made.status is StatusCode.INF_LOOP
    assert len([each for each in runs(made)["boss"] if each.kind == "chat-completion"]) < 10


def test_a_tool_may_be_polled_without_that_being_a_circle() -> None:
    made = task("calc", *[calls("square", num=1)] * 30, "DONE ready", tools=[Square])
    assert text(made.run("go")) == "ready"


def test_a_task_that_fails_says_why() -> None:
    made = task("calc", gesta.fault("401", retry=False, times=None))
    with pytest.raises(GestaError, match="Task 'calc' failed"):
        made.run("go")
    assert made.status is StatusCode.ERROR


# ------------------------------------------------------------------------------------------------------ with a person


def person(*answers: str) -> Callable[[str], str]:
    left = list(answers)
    return lambda _text: left.pop(0) if left else "q"


def test_a_person_gets_a_chance_after_each_answer_and_alone_ends_the_root() -> None:
    made = task("calc", "Which number?", "DONE 9", interactive=True)
    made.chat.get_user_response = person("", "3", "x")
    doc = made.run("Square it.")
    assert (doc.content, made.status) == ("x", StatusCode.USER_QUIT)
    assert said_to(made, "calc") == ["Square it.", "3", "x"]


def test_a_person_need_not_end_it() -> None:
    made = task("calc", "Which number?", "DONE 9", interactive=True, only_user_quits_root=False)
    made.chat.get_user_response = person("", "3")
    assert text(made.run("Square it.")) == "9"


def test_a_default_answer_stands_for_a_person() -> None:
    made = task("calc", "Which?", "DONE 9", interactive=True, default_human_response="3", only_user_quits_root=False)
    assert text(made.run("")) == "9"
    assert "3" in said_to(made, "calc")


def test_where_nobody_is_there_an_interactive_task_ends_as_any_other() -> None:
    made = task("calc", "DONE 9", interactive=True)
    assert (text(made.run("go")), made.status) == ("9", StatusCode.DONE)
    notes = [each.content for each in runs(made)["calc"] if isinstance(each.content, KeyValueContent)]
    assert [(each.key, each.value) for each in notes] == [("person", False)]


def test_a_message_for_the_user_waits_for_nobody_else() -> None:
    made = task("calc", calls("send_tool", to="User", content="Which?"), "DONE 9", tools=[SendTool])
    made.chat.get_user_response = person("3")
    assert text(made.run("go")) == "9"
    assert said_to(made, "calc")[-1] == "3"


# ------------------------------------------------------------------------------------------------------- several tasks


def calls(name: str, **args: Any) -> list[ReplyCall]:
    return [gesta.call(name, **args)]


def test_a_sub_task_answers_and_the_answer_goes_back() -> None:
    kid = task("kid", calls("square", num=3), "DONE 9", tools=[Square])
    boss = task("boss", "What is 3 squared?", "DONE nine", subs=[kid])
    assert text(boss.run("Square of 3?")) == "nine"
    assert said_to(boss, "kid")[0] == "What is 3 squared?"
    assert said_to(boss, "boss") == ["Square of 3?", "9"]


def test_a_call_that_a_sub_task_handles_gets_its_result() -> None:
    kid = task("kid", done_if_response=[Entity.AGENT])
    kid.chat.enable_message(Square, use=False)
    boss = task("boss", calls("square", num=4), "DONE 16", subs=[kid])
    boss.chat.enable_message(Square, handle=False)
    assert boss.run("Square of 4?", return_type=int) == 16
    [result] = [each.content for each in runs(boss)["boss"] if each.kind == "tool-result"]
    assert (result.tool_result, result.outcome) == ("16", "ok")


def test_a_sub_task_that_fails_is_told() -> None:
    kid = task("kid", gesta.fault("401", retry=False, times=None))
    boss = task("boss", "ask", "DONE sorry", subs=[kid])
    assert text(boss.run("go")) == "sorry"
    assert said_to(boss, "boss")[1].startswith("Task 'kid' failed:")


def test_text_goes_to_whom_it_names() -> None:
    for said, heard in [
        ("__SEND__:bob what?", "what?"),
        ("__PASS__:bob", "go"),
        ("|@|bob what?", "what?"),
        ("ask |@|ann\n|@|bob what?", "what?"),
    ]:
        ann, bob = (task(name, *[f"DONE {name}"] * 3) for name in ("ann", "bob"))
        made = task("boss", said, "DONE ok", subs=[ann, bob], config=TaskConfig(addressing_prefix="|@|"))
        assert text(made.run("go")) == "ok"
        assert said_to(made, "bob") == [heard], said
        assert "ann" not in runs(made)


def test_a_text_may_be_passed_on() -> None:
    made = task("boss", "__PASS__", "DONE ok", subs=[task("kid", "DONE from kid")])
    assert text(made.run("go")) == "ok"
    assert said_to(made, "kid") == ["go"]


def test_a_recipient_that_is_nobody_is_told() -> None:
    made = task("boss", "__SEND__:nobody what?", "DONE ok")
    assert text(made.run("go")) == "ok"
    assert said_to(made, "boss") == ["go", "Invalid recipient: nobody"]


def test_names_of_sub_tasks_are_the_same_in_any_case() -> None:
    made = task("boss", "__SEND__:kid hello", "DONE ok", subs=[task("Kid", "DONE hi")])
    assert text(made.run("go")) == "ok"
    assert said_to(made, "Kid") == ["hello"]


def test_a_sub_task_ends_when_it_speaks_to_its_caller() -> None:
    made = task("boss", "ask", "DONE ok", subs=[task("kid", "__SEND__:boss the answer")])
    assert text(made.run("go")) == "ok"
    assert said_to(made, "boss")[-1] == "the answer"


# ---------------------------------------------------------------------------------------------- tools that steer


def test_done_tools_give_a_text_or_any_value() -> None:
    assert text(task("calc", calls("done_tool", content="42"), tools=[DoneTool]).run("go")) == "42"

    class End(ToolMessage):
        request: str = "finish"
        purpose: str = "To end."

        def handle(self) -> AgentDoneTool:
            return AgentDoneTool(content=[1, 2], tools=[Square(num=1)])

    doc = task("calc", calls("finish"), tools=[End, Square]).run("go")
    assert (doc.content, doc.content_any, doc.tool_messages) == ("[1, 2]", [1, 2], [Square(num=1)])


def test_a_result_tool_is_the_result() -> None:
    doc = task("calc", calls("answer", num=5), tools=[Answer]).run("go")
    assert doc.tool_messages == [Answer(num=5)]

    class Free(ToolMessage):
        request: str = "free"
        purpose: str = "To give any fields."

        def handle(self) -> ResultTool:
            return ResultTool(rows=[1, 2])

    assert task("calc", calls("free"), tools=[Free], default_return_type=list[int]).run("go") == [1, 2]


def test_a_final_result_ends_all_tasks_above() -> None:
    kid = task("kid", calls("final", num=7), tools=[Final])
    middle = task("middle", "ask kid", subs=[kid])
    made = task("boss", "ask middle", "never said", subs=[middle])
    doc = made.run("go")
    assert (doc.tool_messages, doc.content, made.status) == ([Final(num=7)], "", StatusCode.DONE)
    completions = {name: sum(each.kind == "chat-completion" for each in every) for name, every in runs(made).items()}
    assert completions == {"boss": 1, "middle": 1, "kid": 1}


def test_a_pass_tool_hands_on_what_was_asked() -> None:
    made = task("boss", calls("pass_tool"), "DONE ok", tools=[PassTool], subs=[task("kid", "DONE from kid")])
    assert text(made.run("go")) == "ok"
    assert said_to(made, "kid") == ["go"]


def test_a_done_pass_tool_ends_with_what_was_asked() -> None:
    assert text(task("calc", calls("done_pass_tool"), tools=[DonePassTool]).run("as it is")) == "as it is"


def test_a_forward_tool_hands_on_to_whom_it_names() -> None:
    subs = [task(name, "DONE hi") for name in ("ann", "bob")]
    made = task("boss", calls("forward_tool", agent="bob"), "DONE ok", tools=[ForwardTool], subs=subs)
    assert text(made.run("go")) == "ok"
    assert said_to(made, "bob") == ["go"]
    assert "ann" not in runs(made)


def test_send_tools_give_a_text_and_tools_to_whom_they_name() -> None:
    subs = [task(name, "DONE hi") for name in ("ann", "bob")]
    made = task("boss", calls("send_tool", to="bob", content="hello"), "DONE ok", tools=[SendTool], subs=subs)
    assert text(made.run("go")) == "ok"
    assert said_to(made, "bob") == ["hello"]

    class Hand(ToolMessage):
        request: str = "hand"
        purpose: str = "To hand over."

        def handle(self) -> AgentSendTool:
            return AgentSendTool(to="kid", content="", tools=[Square(num=5)])

    kid = task("kid", done_if_response=[Entity.AGENT])
    kid.chat.enable_message(Square, use=False)
    made = task("boss", calls("hand"), "DONE ok", tools=[Hand], subs=[kid])
    made.chat.enable_message(Square, handle=False)
    assert text(made.run("go")) == "ok"
    assert said_to(made, "boss")[-1] == "25"


def test_a_recipient_tool_speaks_as_the_model() -> None:
    to = RecipientTool.create(["ann", "bob"])
    subs = [task(name, "DONE hi") for name in ("ann", "bob")]
    first = calls("recipient_message", intended_recipient="bob", content="hello")
    made = task("boss", calls("recipient_message", content="x"), first, "DONE ok", tools=[to], subs=subs)
    assert text(made.run("go")) == "ok"
    assert said_to(made, "bob") == ["hello"]
    assert "intended_recipient" in said_to(made, "boss")[1]


# ----------------------------------------------------------------------------------------------- again and on record


def test_each_run_begins_anew_or_goes_on() -> None:
    for restart, allowed, shown in [
        (True, True, ["2"]),
        (False, True, ["1", "a", "2"]),
        (True, False, ["1", "a", "2"]),
    ]:
        made = task("calc", "DONE a", "DONE b", restart=restart)
        made.run("1")
        made.run("2", allow_restart=allowed)
        history = [one.text.removeprefix("DONE ") for one in shown_to(made)]
        assert history == [*shown, "b"]


def shown_to(made: Task) -> list[Any]:
    """The history of a task's agent in the task's run."""
    chat = agent(made.name, "x")
    chat.home = made.chat.home
    return chat.message_history[1:]


def test_a_task_that_begins_anew_has_its_sub_tasks_begin_anew() -> None:
    kid = task("kid", "DONE 1", "DONE 2", "DONE 3")
    boss = task("boss", "ask", "again", "DONE x", "ask", "DONE y", subs=[kid])
    boss.run("one")
    assert not [each for each in runs(boss)["kid"] if isinstance(each.content, CompactionContent)]
    boss.run("two")
    assert len([each for each in runs(boss)["kid"] if isinstance(each.content, CompactionContent)]) == 1


def test_a_sub_task_may_begin_anew_at_each_call() -> None:
    kid = task("kid", "DONE 1", "DONE 2")
    boss = task("boss", "ask", "again", "DONE x", subs=[(kid, TaskConfig(restart_as_subtask=True))])
    boss.run("one")
    assert len([each for each in runs(boss)["kid"] if isinstance(each.content, CompactionContent)]) == 1


def test_what_was_said_on_the_way_may_be_forgotten() -> None:
    for end in ("DONE 9", calls("done_tool", content="9")):
        first = calls("square", num=3)
        made = task("calc", first, end, "DONE x", tools=[Square, DoneTool], erase_substeps=True, restart=False)
        made.run("3?")
        assert [(one.role, one.text.removeprefix("DONE ")) for one in shown_to(made)] == [
            ("user", "3?"),
            ("assistant", "9"),
        ]
    kid = task("kid", calls("square", num=3), calls("done_tool", content="9"), "DONE x", tools=[Square, DoneTool])
    kid.erase_substeps = True
    boss = task("boss", "3?", "4?", "DONE x", subs=[kid])
    boss.run("go")
    requests = [each.content for each in runs(boss)["kid"] if isinstance(each.content, RequestContent)]
    assert len(requests[-1].blocks) == 3  # the first question, its answer, the second question


def test_all_of_a_task_can_be_reset() -> None:
    kid = task("kid", "DONE 1")
    boss = task("boss", "ask", "DONE x", subs=[kid])
    boss.chat.update_history("a", "b")
    boss.reset_all_sub_tasks()
    assert len(boss.chat.message_history) == 1


def test_a_task_takes_over_from_an_agent_that_was_used_by_hand() -> None:
    chat = agent("calc", "hello", "DONE 9")
    chat.llm_response("hi")
    made = Task(chat, interactive=False, restart=False)
    assert text(made.run("3?")) == "9"
    assert [one.text for one in shown_to(made)][:3] == ["hi", "hello", "3?"]


def test_a_task_can_be_taken_step_by_step() -> None:
    made = task("calc", calls("square", num=3), "DONE 9", tools=[Square])
    half = task("half", calls("square", num=3), "DONE 9", tools=[Square])
    half.init("3?")
    half.step()
    assert text(half.run("3?")) == "9"
    first = made.init("3?")
    assert first is not None
    assert (first.content, made.pending_sender) == ("3?", Entity.USER)
    made.step()
    assert made.pending_message is not None
    assert made.pending_message.tool_messages == [Square(num=3)]
    assert made.done() == (False, StatusCode.OK)
    made.step()
    assert made.done() == (False, StatusCode.OK)
    made.step()
    assert made.done() == (True, StatusCode.DONE)
    assert text(made.result()) == "9"
    assert len([each for each in runs(made)["calc"] if each.kind == "chat-completion"]) == 2


def test_the_rules_may_be_others() -> None:
    class Mine(Task, eq=False):
        def done(self, result: Any = None, r: Any = None) -> tuple[bool, StatusCode]:
            pending = self.pending_message
            return (pending is not None and pending.content == "enough"), StatusCode.OK

        def valid(self, result: Any, r: Any) -> bool:
            return r == Entity.LLM and result is not None

        def result(self, status: StatusCode | None = None) -> ChatDocument | None:
            return self.chat.create_agent_response("mine")

    assert text(Mine(agent("calc", "enough"), interactive=False).run("go")) == "mine"


def test_a_run_in_a_session_of_its_own() -> None:
    made = task("calc", "DONE 1", "DONE 2", restart=False)
    made.run("a", session_id="one")
    assert text(made.run("b", session_id="two")) == "1"
    assert made.session == "two"


def test_a_task_with_a_caller_is_no_root() -> None:
    above, made = task("above", "x"), task("calc", "DONE 9", interactive=True)
    made.chat.get_user_response = person("", "never")
    assert text(made.run("go", caller=above)) == "9"


# ---------------------------------------------------------------------------------------------------- broken off


DIED = 9
"""Exit code of a process that died."""


def program(folder: Path, stop: int | None, busy: Literal["queue", "raise"] = "queue") -> Task:
    """A task with a sub-task and a tool that must not run twice; its process dies before the `stop`-th answer."""
    count, record = iter(range(100)), str(folder / "a.gesta")

    rules = gesta.Policy(when_busy=busy)

    def once(what: str) -> None:
        with (folder / "once").open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    class Pay(ToolMessage):
        request: str = "pay"
        purpose: str = "To pay <cents>."
        cents: int

        def handle(self) -> str:
            once("paid")
            return f"paid {self.cents}"

    def answers(*script: Any) -> Any:
        def make(n: int) -> Any:
            def answer(_request: Any) -> Any:
                if next(count) == stop:
                    os._exit(DIED)
                once(f"asked {script[n]}")
                return script[n]

            return answer

        return gesta.scripted(*[make(n) for n in range(len(script))])

    def made(name: str, *script: Any) -> Task:
        chat = ChatAgent(
            ChatAgentConfig(name=name, llm=answers(*script), use_functions_api=True, policy=rules),
            record=record,
            session="s",
        )
        return Task(chat, interactive=False)

    kid = made("kid", gesta.call("pay", cents=5), "DONE paid")
    kid.chat.enable_message(Pay)
    boss = made("boss", "Pay 5 cents.", "DONE all paid")
    boss.add_sub_task(kid)
    return boss


def begun(folder: Path, stop: int, key: str | None = None) -> None:
    """Run that task in a process of its own, which dies."""
    code = "import sys; from tests.seeds.test_002_tasks import *; "
    code += "program(Path(sys.argv[1]), int(sys.argv[2])).run('go', key=sys.argv[3] or None)"
    words = ["-c", code, str(folder), str(stop), key or ""]
    assert programs.run(words, cwd=Path(__file__).parents[2]).returncode == DIED


def done_once(folder: Path) -> Counter[str]:
    """Return how often each thing was done that must be done once."""
    return Counter((folder / "once").read_text(encoding="utf-8").splitlines())


@pytest.mark.sample(2)
@pytest.mark.parametrize("stop", range(4))
def test_a_task_whose_process_dies_goes_on_and_does_nothing_twice(stop: int, tmp_path: Path) -> None:
    begun(tmp_path, stop)
    boss = program(tmp_path, None)
    assert text(boss.run("go")) == "all paid"
    assert done_once(tmp_path)["paid"] == 1
    assert set(done_once(tmp_path).values()) == {1}
    attempts = [each for every in runs(boss).values() for each in every if isinstance(each.content, AttemptContent)]
    assert len(attempts) == 1


def test_a_task_that_is_run_again_with_its_key_is_the_same_turn(tmp_path: Path) -> None:
    def made() -> Task:
        return task("calc", "DONE one", "DONE two", record=str(tmp_path / "a.gesta"), session="s")

    first = made()
    assert text(first.run("go", key="k")) == "one"
    again = made()  # another process: nobody knows whether the first came to its end
    assert text(again.run("go", key="k")) == "one"
    assert again.status is StatusCode.DONE
    assert again.run("go", key="k", return_type=str) == "one"
    assert text(again.run("go", key="m")) == "two"
    assert text(made().run("go", key="k")) == "one", "also later"
    assert sum(isinstance(each.content, UserContent) for each in runs(again)["calc"]) == 2


@pytest.mark.sample(2)
@pytest.mark.parametrize("stop", range(4))
def test_a_task_with_a_key_whose_process_dies_goes_on_with_it_alone(stop: int, tmp_path: Path) -> None:
    begun(tmp_path, stop, "k")
    with pytest.raises(TurnOpen):
        program(tmp_path, None, "raise").run("go", key="other")
    boss = program(tmp_path, None)
    assert text(boss.run("go", key="k")) == "all paid"
    assert text(boss.run("go", key="k")) == "all paid"
    assert set(done_once(tmp_path).values()) == {1}


def test_a_tool_that_raises_what_is_no_error_is_in_doubt_and_not_run_again(tmp_path: Path) -> None:
    ran: list[int] = []

    class Pay(ToolMessage):
        request: str = "pay"
        purpose: str = "To pay <cents>."
        cents: int

        async def handle_async(self) -> str:
            ran.append(self.cents)
            raise GeneratorExit

    def made() -> Task:
        chat = agent(
            "calc", calls("pay", cents=5), "DONE x", tools=[Pay], record=str(tmp_path / "a.gesta"), session="s"
        )
        return Task(chat, interactive=False)

    for again in (made(), made()):
        with pytest.raises(GestaError, match="Task 'calc' waits for doubt of pay: see run"):
            again.run("go")
    assert ran == [5]
    attempt = next(each for each in runs(again)["calc"] if isinstance(each.content, AttemptContent))
    done = ResolutionContent(of=attempt.seq, verdict="done", by="Ann", result="paid")
    again.chat.wait_for(lambda: again.chat.home.record.send(attempt.run, done, key="r"), "send")
    assert text(made().run("go")) == "x"
    assert ran == [5]


def test_a_tool_may_need_a_person_and_the_task_goes_on_when_they_have_answered(tmp_path: Path) -> None:
    class Pay(ToolMessage):
        request: str = "pay"
        purpose: str = "To pay <cents>."
        _tool_approval = True
        cents: int

        def handle(self) -> str:
            return f"paid {self.cents}"

    def made() -> Task:
        config: dict[str, Any] = {"record": str(tmp_path / "a.gesta"), "session": "s"}
        boss = task("boss", "pay it", "DONE x", **config)
        boss.add_sub_task(task("kid", calls("pay", cents=5), "DONE paid", tools=[Pay], **config))
        return boss

    boss = made()
    with pytest.raises(GestaError, match="Task 'boss' waits for approval of pay"):
        boss.run("go")
    asked = next(each for each in runs(boss)["kid"] if isinstance(each.content, ApprovalRequestContent))
    yes = ApprovalContent(of=asked.seq, verdict="approved", by="Ann")
    boss.chat.wait_for(lambda: boss.chat.home.record.send(asked.run, yes, key="a"), "send")
    assert text(made().run("go")) == "x"
    assert said_to(boss, "boss") == ["go", "paid"]


async def test_a_task_that_its_program_leaves_stays_open() -> None:
    async with open_record(":memory:") as record:
        chat = ChatAgent(ChatAgentConfig(name="calc", llm=gesta.scripted("DONE 1")), record=record, session="s")
        made = Task(chat, interactive=False)

        async def never(_pending: Any) -> None:
            await anyio.sleep_forever()

        chat.agent_response_async = never  # type: ignore[method-assign, assignment]
        with anyio.move_on_after(0.05):
            await made.run_async("go")
        [row] = await record.store.runs("s")
        turn = (await record.state(row.run)).turn
        assert turn is not None
        assert turn.reason is None


def test_a_killed_task_ends_and_so_does_what_it_called() -> None:
    class Stop(ToolMessage):
        request: str = "stop"
        purpose: str = "To kill."

        def handle(self) -> str:
            boss.kill()
            return "killed"

    kid = task("kid", calls("stop"), "never said", tools=[Stop])
    boss = task("boss", "ask", "never said", subs=[kid])
    assert (boss.run("go"), boss.status) == (None, StatusCode.KILL)
    ends = {name: every[-1].content.reason for name, every in runs(boss).items()}
    assert ends == {"boss": "cancelled", "kid": "cancelled"}
    assert text(task("calc", "DONE 1").run("go")) == "1"


def test_a_session_can_be_killed_from_elsewhere(tmp_path: Path) -> None:
    asked, go = threading.Event(), threading.Event()

    def slow(_request: Any) -> Any:
        asked.set()
        go.wait(5)
        return gesta.call("square", num=1)

    path = str(tmp_path / "a.gesta")
    made = task("calc", slow, "never said", tools=[Square], record=path, session="s")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(made.run("go")))
    thread.start()
    assert asked.wait(5)
    Task.kill_session("s", ChatAgent(record=path).home.record)
    go.set()
    thread.join(5)
    assert (found, made.status) == ([None], StatusCode.KILL)


def test_a_task_is_at_work_in_one_run_at_a_time() -> None:
    made = task("calc", "DONE 1", "DONE 2")

    class Again(ToolMessage):
        request: str = "again"
        purpose: str = "To run its own task."

        async def handle_async(self) -> str:
            await boss.run_async("inner", session_id="other")
            return "never"

    boss = task("boss", calls("again"), "DONE x", tools=[Again])
    assert text(boss.run("go")) == "x"
    assert "is at work in run" in said_to(boss, "boss")[1]
    assert text(made.run("go")) == "1"


def test_a_task_that_is_at_work_can_be_cloned_for_other_work() -> None:
    class Other(ToolMessage):
        request: str = "other"
        purpose: str = "To have a clone work."

        async def handle_async(self) -> str:
            return str((await kid.clone(1).run_async("inner")).content)

    def think(messages: list[dict[str, Any]], _header: Any) -> Any:
        last = messages[-1]["content"]
        return gesta.call("other") if last == "go" else f"DONE {last} and done"

    kid = task("kid", tools=[Other])
    kid.chat.config.llm = gesta.function(think)
    assert text(kid.run("go")) == "inner and done and done"


def test_two_tasks_of_one_agent_do_not_know_of_each_other() -> None:
    chat = agent("calc", "DONE 1", "DONE 2")
    one, two = Task(chat, "one", interactive=False), Task(chat, "two", interactive=True)
    assert text(one.run("go")) == "1"
    assert text(two.run("go")) == "1"
    assert said_to(one, "one") == ["go"]
    assert not [
        each for each in runs(one)["one"] if isinstance(each.content, UserContent) and each.content.value != "go"
    ]
