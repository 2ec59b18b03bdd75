"""What Langroid gets wrong in what Gesta has, done right. Each test is named in docs/coming-from/parity.md."""

import json
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import pytest
from tests.costs import cost_s
from tests.validators.chat_completions import violations

import gesta
from gesta.address import formatter as bound_formatter
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.chat_document import Entity
from gesta.compat.langroid.exceptions import InfiniteLoopException
from gesta.compat.langroid.language_models import LLMConfig
from gesta.compat.langroid.task import StatusCode, Task, TaskConfig
from gesta.compat.langroid.tool_message import ToolMessage
from gesta.kinds import EndContent, RequestContent, SystemContent, ToolCallContent, ToolResultContent
from gesta.model.request import ReplyCall
from gesta.prompt import rebuild

NATIVE = {"use_tools": False, "use_functions_api": True}


class Square(ToolMessage):
    request: str = "square"
    purpose: str = "To find the square of a <num>."
    _tool_effect = "pure"
    num: int

    def handle(self) -> str:
        return str(self.num**2)


class Nothing(ToolMessage):
    request: str = "nothing"
    purpose: str = "To give nothing."

    def handle(self) -> None:
        return None


class Boom(ToolMessage):
    request: str = "boom"
    purpose: str = "To fail."

    def handle(self) -> str:
        raise ValueError("no luck")


def agent(name: str, *script: Any, tools: Any = (), **config: Any) -> ChatAgent:
    llm = gesta.scripted(*script) if script else None
    chat = ChatAgent(ChatAgentConfig(**({"name": name, "llm": llm} | NATIVE | config)))
    for cls in tools:
        chat.enable_message(cls)
    return chat


def task(name: str, *script: Any, tools: Any = (), **options: Any) -> Task:
    return Task(agent(name, *script, tools=tools), **({"interactive": False} | options))


def several(*names: str) -> list[ReplyCall]:
    return [gesta.call(name, **({"num": 4} if name == "square" else {})) for name in names]


def runs(chat: ChatAgent) -> dict[str, Any]:
    """Entries of every run in an agent's session, by name."""
    record, session = chat.home.record, chat.home.session

    async def read() -> dict[str, Any]:
        return {row.name: await record.read(row.run) for row in await record.store.runs(session)}

    found: dict[str, Any] = chat.wait_for(read, "read")
    return found


def of(chat: ChatAgent, kind: type[Any], run: str = "") -> list[Any]:
    return [each.content for each in runs(chat)[run or chat.name] if isinstance(each.content, kind)]


def histories_are_valid(chat: ChatAgent, run: str = "") -> None:
    """Every request that was sent is one that a provider takes, and can be made again."""
    every = runs(chat)[run or chat.name]
    assert not isinstance(chat.config.llm, str | LLMConfig | None)
    for entry in every:
        if isinstance(entry.content, RequestContent):
            made = rebuild(every, entry.seq, bound_formatter(chat.config.formatter), chat.config.llm)
            assert made.digest == entry.content.body_digest
            assert violations(made.body()) == []


# ------------------------------------------------------------------------------------------ calls and their results


@pytest.mark.parametrize("mode", [NATIVE, {"use_functions_api": True, "use_tools_api": False}])
@pytest.mark.parametrize("names", [("square", "nothing"), ("square", "square"), ("nothing", "boom", "square")])
def test_every_one_of_several_calls_gets_its_result(names: tuple[str, ...], mode: dict[str, bool]) -> None:
    chat = agent("calc", several(*names), "so", tools=[Square, Nothing, Boom], **mode)
    chat.llm_response(chat.agent_response(chat.llm_response("go")))
    known = {"square": "16", "nothing": "", "boom": "ValueError: no luck"}
    results = sorted(of(chat, ToolResultContent), key=lambda each: each.call)
    assert [each.tool_result for each in results] == [known[name] for name in names]
    histories_are_valid(chat)


def test_of_two_calls_one_that_is_wrong_gets_what_is_wrong_with_it() -> None:
    bad = [gesta.call("square", num="x"), gesta.call("square", num=4)]
    chat = agent("calc", bad, "so", tools=[Square])
    result = chat.agent_response(chat.llm_response("go"))
    assert result is not None
    assert len(result.oai_tool_id2result or {}) == 2
    chat.llm_response(result)
    wrong, right = of(chat, ToolResultContent)
    assert ("`$.num`" in wrong.tool_result, wrong.status, right.tool_result) == (True, "error", "16")
    histories_are_valid(chat)


def test_of_two_calls_one_of_an_unknown_tool_is_told_and_the_other_runs() -> None:
    chat = agent("calc", several("square", "sqare"), "so", tools=[Square])
    chat.llm_response(chat.agent_response(chat.llm_response("go")))
    told = {each.status: each.tool_result for each in of(chat, ToolResultContent)}
    assert told["success"] == "16"
    assert told["error"].startswith("There is no tool 'sqare'. Did you mean 'square'?")
    histories_are_valid(chat)


@pytest.mark.parametrize("text", [False, True])
def test_a_single_unknown_call_goes_back_to_the_model(text: bool) -> None:
    first = '{"request": "sqare", "num": 4}' if text else gesta.call("sqare", num=4)
    made = Task(agent("calc", first, "DONE sorry", tools=[Square], use_functions_api=not text), interactive=False)
    doc = made.run("go")
    assert doc.content == "sorry"
    assert of(made.chat, ToolResultContent)[0].tool_result.startswith("There is no tool 'sqare'.")
    histories_are_valid(made.chat)


def test_several_calls_that_a_sub_task_handles_get_a_result_each() -> None:
    kid = Task(agent("kid"), interactive=False, done_if_response=[Entity.AGENT])
    kid.chat.enable_message(Square, use=False)
    calls = [gesta.call("square", num=n) for n in (2, 3)]
    boss = task("boss", calls, "DONE both", done_if_no_response=())
    boss.chat.enable_message(Square, handle=False)
    boss.add_sub_task(kid)
    assert boss.run("go").content == "both"
    assert [each.tool_result for each in of(boss.chat, ToolResultContent)] == ["4", "9"]
    histories_are_valid(boss.chat)


def test_several_calls_for_a_sub_task_may_be_refused_each() -> None:
    kid = Task(agent("kid"), interactive=False, done_if_response=[Entity.AGENT])
    kid.chat.enable_message(Square, use=False)
    calls = [gesta.call("square", num=n) for n in (2, 3)]
    config = TaskConfig(allow_subtask_multi_oai_tools=False)
    boss = task("boss", calls, gesta.call("square", num=4), "DONE one", config=config)
    boss.chat.enable_message(Square, handle=False)
    boss.add_sub_task(kid)
    assert boss.run("go").content == "one"
    results = [each.tool_result for each in of(boss.chat, ToolResultContent)]
    assert [text.partition(":")[0] for text in results[:2]] == ["Use ONE tool at a time"] * 2
    assert results[2] == "16"
    histories_are_valid(boss.chat)


async def test_several_calls_where_one_is_allowed_are_refused_each_in_both_twins() -> None:
    chat = agent("calc", several("square", "square"), "so", tools=[Square], allow_multiple_tools=False)
    result = await chat.agent_response_async(await chat.llm_response_async("go"))
    assert result is not None
    assert [text.partition(":")[0] for text in (result.oai_tool_id2result or {}).values()] == [
        "Use ONE tool at a time"
    ] * 2


def test_a_tool_that_steers_stands_alone() -> None:
    chat = agent("calc", several("square", "pass_tool"), tools=[Square])
    result = chat.agent_response(chat.llm_response("go"))
    assert result is not None
    assert [text.partition(":")[0] for text in (result.oai_tool_id2result or {}).values()] == [
        "Use ONE tool at a time"
    ] * 2


def test_a_handler_that_raises_leaves_no_call_open_and_a_new_question_is_one() -> None:
    chat = agent("calc", several("boom"), "sorry", tools=[Boom])
    chat.agent_response(chat.llm_response("go"))
    said = chat.llm_response("And now?")
    assert said is not None
    assert said.content == "sorry"
    assert [(one.role, one.text) for one in chat.message_history[2:]] == [
        ("assistant", ""),
        ("tool", "ValueError: no luck"),
        ("user", "And now?"),
        ("assistant", "sorry"),
    ]
    histories_are_valid(chat)


def test_a_question_instead_of_results_closes_the_calls_and_stays_a_question() -> None:
    chat = agent("calc", several("square"), "yes", tools=[Square])
    chat.llm_response("go")
    chat.llm_response("Forget it. Are you there?")
    assert [one.role for one in chat.message_history] == ["system", "user", "assistant", "tool", "user", "assistant"]
    histories_are_valid(chat)


def test_a_result_that_no_call_waits_for_is_text() -> None:
    chat = agent("calc", "I see")
    doc = chat.create_agent_response(oai_tool_id2result={"c1": "one", "c2": "two"})
    chat.llm_response(doc)
    assert [one.text for one in chat.message_history[1:]] in (["one\n\ntwo", "I see"], ["", "I see"])
    histories_are_valid(chat)


# ---------------------------------------------------------------------------------------------------------- the end


@pytest.mark.parametrize("said", ["ABANDONED", "I am not DONE yet", "UNDONE"])
def test_done_inside_a_text_ends_nothing_and_nothing_is_cut_out(said: str) -> None:
    made = task("calc", said)
    assert made.run("go").content == said
    assert made.status is StatusCode.STALLED


def test_a_result_that_holds_done_is_data() -> None:
    class Read(ToolMessage):
        request: str = "read"
        purpose: str = "To read."

        def handle(self) -> str:
            return "DONE"

    made = task("calc", several("read"), "DONE 5 tickets are DONE", tools=[Read])
    assert made.run("go").content == "5 tickets are"
    assert [each.tool_result for each in of(made.chat, ToolResultContent)] == ["DONE"]
    kid = task("kid", gesta.call("done_tool", content="All is DONE"))
    kid.chat.enable_message(kid.chat.llm_tools_map["done_tool"])
    boss = task("boss", "ask", "DONE I know")
    boss.add_sub_task(kid)
    assert boss.run("go").content == "I know"
    assert of(boss.chat, SystemContent)[-1].value == "All is DONE"


def test_a_plain_answer_is_kept() -> None:
    made = task("calc", "Paris.")
    assert made.run("Capital of France?").content == "Paris."


def test_a_person_can_answer_x_or_q_in_quotes_and_a_task_may_begin_with_them() -> None:
    answers = iter(['"x"', "q"])
    made = Task(agent("calc", "Which variable?", "DONE x it is"), interactive=True, only_user_quits_root=False)
    made.chat.get_user_response = lambda text: "" if "Solve" in text else next(answers)
    assert made.run("Solve it.").content == "x it is"
    assert task("calc", "DONE a letter").run("q").content == "a letter"


def test_text_that_begins_with_system_stays_as_it_is() -> None:
    chat = agent("calc", "x")
    chat.get_user_response = lambda _text: "SYSTEMATIC review of SYSTEM logs"
    said = chat.user_response("?")
    assert said is not None
    assert (said.content, said.metadata.sender) == ("SYSTEMATIC review of SYSTEM logs", Entity.USER)
    chat.get_user_response = lambda _text: "SYSTEM: Be brief."
    said = chat.user_response("?")
    assert said is not None
    assert (said.content, said.metadata.sender) == ("Be brief.", Entity.SYSTEM)


def test_an_empty_result_of_a_tool_is_an_answer() -> None:
    made = task("calc", several("nothing"), "DONE nothing there", tools=[Nothing])
    assert made.run("go").content == "nothing there"


def test_a_field_that_is_called_recipient_is_a_matter_of_the_tool() -> None:
    class Mail(ToolMessage):
        request: str = "mail"
        purpose: str = "To send a mail."
        recipient: Annotated[str, msgspec.Meta(description="Address of a mailbox.")]

        def handle(self) -> str:
            return f"sent to {self.recipient}"

    for mode in (True, False):
        first = gesta.call("mail", recipient="a@b.org") if mode else '{"request": "mail", "recipient": "a@b.org"}'
        chat = agent("calc", first, "DONE ok", tools=[Mail], use_functions_api=mode)
        assert Task(chat, interactive=False).run("go").content == "ok"
        assert [each.tool_result for each in of(chat, ToolResultContent)] == ["sent to a@b.org"]


def test_json_in_prose_is_run_as_no_tool() -> None:
    made = Task(agent("calc", 'DONE Write {"num": 4} in it.', tools=[Square], use_functions_api=False))
    made.interactive = False
    assert made.run("go").content == 'Write {"num": 4} in it.'
    assert of(made.chat, ToolCallContent) == []


# ----------------------------------------------------------------------------------------------- clones and settings


def test_a_clone_keeps_the_handlers_of_tools() -> None:
    made = task("calc", several("square"), "DONE 16", tools=[Square])
    copies = [made.clone(n) for n in range(2)]
    assert [each.run("go").content for each in (made, *copies)] == ["16"] * 3
    copies[0].chat.disable_message_use(Square)
    assert "square" in copies[1].chat.llm_tools_usable


def test_a_clone_keeps_its_sub_tasks() -> None:
    boss = task("boss", "ask", "DONE ok")
    boss.add_sub_task(task("kid", "DONE 1"))
    copy = boss.clone(1)
    assert copy.run("go").content == "ok"
    assert sorted(runs(copy.chat)) == ["boss-1", "kid-1"]


def test_settings_as_a_sub_task_are_those_of_the_task_unless_others_are_given() -> None:
    kid = task("kid", "DONE 1", config=TaskConfig(restart_as_subtask=True))
    boss = task("boss", "ask")
    boss.add_sub_task(kid)
    assert (boss.sub_tasks[0].as_sub or boss.sub_tasks[0].config).restart_as_subtask
    other = task("boss", "ask")
    other.add_sub_task((kid, TaskConfig()))
    assert not (other.sub_tasks[0].as_sub or kid.config).restart_as_subtask
    assert kid.config.restart_as_subtask


def test_default_settings_are_shared_by_nobody() -> None:
    one, two = ChatAgent(), ChatAgent()
    one.config.system_message = "Other."
    one.config.settings["temperature"] = 1
    assert (two.config.system_message, two.config.settings) == ("You are a helpful assistant.", {})
    given = ChatAgentConfig(name="a")
    ChatAgent(given).config.name = "b"
    assert given.name == "a"
    assert Task(one).config is not Task(two).config


def test_no_state_is_shared_between_agents() -> None:
    one, two = agent("one", "1", tools=[Square]), agent("two", "2")
    assert two.llm_tools_known.isdisjoint({"square"})
    one.llm_response("x")
    assert len(two.message_history) == 1


def test_what_ended_one_run_does_not_end_the_next() -> None:
    made = task("calc", several("square"), "DONE 1", "plain", "again", tools=[Square])
    made.config = TaskConfig(done_sequences=["A, L"])
    assert made.run("one").content == "1"
    made.config = TaskConfig(done_sequences=["L, L"])
    assert made.run("two").content == "plain"
    assert made.status is StatusCode.STALLED


def test_a_task_without_a_result_says_why() -> None:
    made = task("calc", *["same"] * 30, config=TaskConfig(inf_loop_wait_factor=3))
    made.add_sub_task(task("kid", *["same too"] * 30, done_if_response=[Entity.LLM]))
    with pytest.raises(InfiniteLoopException, match="circle"):
        made.run("go")
    assert made.status is StatusCode.INF_LOOP
    end = of(made.chat, EndContent)[-1]
    assert (end.reason, end.error.type) == ("limit", "INF_LOOP")


def test_tokens_are_counted_for_the_task_alone() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 1000}
    task("spender", gesta.reply("DONE", usage=usage)).run("go")
    made = task("calc", gesta.reply("DONE 1", usage={"prompt_tokens": 1, "completion_tokens": 1}))
    assert made.run("go", max_tokens=100).content == "1"


@pytest.mark.parametrize(("said", "value"), [("yes", True), ("no", False), ("perhaps", None)])
def test_a_text_that_is_no_truth_value_is_none(said: str, value: bool | None) -> None:
    assert task("calc", f"DONE {said}", default_return_type=bool).run("go") is value


# ---------------------------------------------------------------------------------------------------- time and memory


def test_tools_of_one_message_run_at_once() -> None:
    inside: list[str] = []
    every = anyio.Event()

    class Wait(ToolMessage):
        request: str = "wait"
        purpose: str = "To wait."

        async def handle_async(self) -> str:
            inside.append(self.request)
            if len(inside) == 3:
                every.set()
            with anyio.fail_after(10):
                await every.wait()
            return "waited"

    chat = agent("calc", several("wait", "wait", "wait"), tools=[Wait])
    told = chat.agent_response(chat.llm_response("go"))
    assert told is not None
    assert list((told.oai_tool_id2result or {}).values()) == ["waited"] * 3


@pytest.mark.slow
def test_a_step_costs_little_and_as_much_in_a_long_task_as_in_a_short_one() -> None:
    def polling(n: int) -> Task:
        chat = agent("calc", *[several("square")] * n, "DONE ready", tools=[Square])
        chat.config.policy = gesta.Policy(limits=gesta.Limits(requests=None, calls=None))
        return Task(chat, interactive=False)

    short, long = (cost_s(lambda n=n: polling(n).run("go"), 1) / n for n in (20, 200))  # type: ignore[misc]
    assert long < 0.016  # what one round takes there
    assert long < 4 * short


@pytest.mark.sample(2)
@pytest.mark.parametrize("end", ['{"request": "square", "num": 4}', ""])
def test_a_long_message_is_read_in_milliseconds_with_and_without_a_tool_in_it(end: str) -> None:
    def taken(times: int) -> float:
        words = '{"request"} and {"a": {"b": "request"}} ' * times
        chat = agent("calc", words + end, "DONE 16", tools=[Square], use_functions_api=False)
        took = cost_s(lambda: Task(chat, interactive=False).run("go"), 1)
        assert len(of(chat, ToolCallContent)) == bool(end)
        return took

    short, long = min(taken(300) for _ in range(3)), taken(2400)
    for _ in range(2):
        if long >= min(20 * short, 1):
            long = min(long, taken(2400))
    assert long < 20 * short, "eight times the words cost eight times as much; were it squared, it would be 64 times"
    assert long < 1


def test_a_result_of_100_kb_costs_milliseconds() -> None:
    class Read(ToolMessage):
        request: str = "read"
        purpose: str = "To read."

        def handle(self) -> str:
            return json.dumps([{"a": n, "b": "{"} for n in range(5000)])

    made = task("calc", several("read"), "DONE read", tools=[Read])
    assert cost_s(lambda: made.run("go"), 1) < 0.3


# ------------------------------------------------------------------------------------------------ on record, and killed


def test_where_a_task_stands_is_on_record_and_read_by_another_process(tmp_path: Path) -> None:
    path = str(tmp_path / "a.gesta")

    def made(*script: Any) -> Task:
        config = ChatAgentConfig(name="calc", llm=gesta.scripted(*script), use_functions_api=True)
        chat = ChatAgent(config, record=path, session="s")
        chat.enable_message(Square)
        return Task(chat, interactive=False)

    first = made(several("square"), gesta.fault("hangs", times=None, retry=False))
    first.init("go")
    first.step()
    assert made(several("square"), "DONE 16").run("go").content == "16"
    with gesta.open_sync(path) as record:
        entries = record.read(record.find("s").run)
    answer = next(each for each in entries if each.kind == "assistant")
    assert all(cause in {each.seq for each in entries} for cause in answer.causes)
    assert sum(each.kind == "tool-call" for each in entries) == 1


def test_killing_reaches_sub_tasks_while_they_run() -> None:
    class Stop(ToolMessage):
        request: str = "stop"
        purpose: str = "To kill."

        def handle(self) -> str:
            boss.kill()
            return "killed"

    kid = task("kid", several("stop"), *[several("stop")] * 5, tools=[Stop])
    boss = task("boss", "ask")
    boss.add_sub_task(kid)
    assert (boss.run("go"), boss.status) == (None, StatusCode.KILL)
    assert len(of(boss.chat, ToolCallContent, "kid")) == 1
    assert task("calc", "DONE 1").run("go").content == "1"  # another session is not touched


def test_an_unknown_keyword_is_named_with_the_nearest() -> None:
    for make in (Task, TaskConfig, ChatAgentConfig):
        wrong: Any = make
        with pytest.raises(TypeError, match="has no field 'interactve'"):
            wrong(interactve=False)


def test_person_s_text_sets_off_no_tool_that_is_for_programs() -> None:
    chat = agent("calc", "x")
    chat.enable_message(Square, use=False)
    text = '{"request": "square", "num": 3}'
    assert chat.get_tool_messages(chat.create_user_response(text)) == []
    chat.enable_message(Square)
    assert chat.get_tool_messages(chat.create_user_response(text)) == [Square(num=3)]


def test_nothing_is_written_beside_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task("calc", "DONE 1").run("go")
    assert list(tmp_path.iterdir()) == []


def test_a_tool_whose_schema_grows_is_offered_as_it_is_now_and_else_stays_the_same():
    tables = ["a"]

    class Query(Nothing):
        request: str = "query"
        table: str

        @classmethod
        def llm_function_schema(cls, request=False, defaults=True):
            spec = super().llm_function_schema(request, defaults)
            spec.description = f"To query one of {len(tables)}."
            spec.parameters["properties"]["table"]["enum"] = list(tables)
            return spec

    chat = agent("a", "x", tools=[Query])
    first = next(tool for tool in chat.tools(in_text=False) if tool.name == "query")
    same = next(tool for tool in chat.tools(in_text=False) if tool.name == "query")
    assert same is first
    tables.append("b")
    second = next(tool for tool in chat.tools(in_text=False) if tool.name == "query")
    assert [tool.args_schema["properties"]["table"]["enum"] for tool in (first, second)] == [["a"], ["a", "b"]]
    assert second.description.startswith("To query one of 2.")


def test_options_of_a_tool_may_be_annotated_and_are_no_arguments() -> None:
    class Wipe(ToolMessage):
        request: str = "wipe"
        purpose: str = "for programs"
        _allow_llm_use: bool = False
        _handler: str = "do_wipe"
        what: str = "all"

    class Child(Wipe):
        request: str = "child"
        _tool_approval: bool = True

    schema = Wipe.llm_function_schema().parameters
    assert list(schema["properties"]) == ["what"]
    assert (Wipe._allow_llm_use, Wipe._handler, Child._allow_llm_use, Child._tool_approval) == (
        *(False, "do_wipe"),
        *(False, True),
    )
    assert Wipe(what="x").dict_example() == {"request": "wipe", "what": "x"}
