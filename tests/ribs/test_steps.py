"""Any run reads as actions, steps and finishes; these go back, and into LangChain's own bytes and out of them."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.scenes import World, agent, play

import gesta
from gesta import address
from gesta.codec.rows import PythonValue
from gesta.compat.langchain.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from gesta.compat.langchain.lc import from_lc, to_lc
from gesta.compat.langchain.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)
from gesta.compat.langchain.scratchpads import (
    format_log_to_messages,
    format_log_to_str,
    format_to_openai_function_messages,
    format_to_tool_messages,
    format_xml,
)
from gesta.compat.langchain.steps import UNANSWERED, contents, steps
from gesta.entry import Entry
from gesta.formatters import tool_calls
from gesta.kinds import (
    ApprovalContent,
    AssistantContent,
    ChatCompletionContent,
    Content,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.log.journal import read
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore

try:
    from langchain_core.load import dumps, loads  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    dumps = loads = None  # type: ignore[assignment, unused-ignore]

SAID = AIMessage("hm", tool_calls=[{"name": "search", "args": {"q": 1}, "id": "c1"}])
PLAIN = AgentAction("search", {"q": "é"}, "Thought: search it")
LOGGED = AgentActionMessageLog("search", {"q": 1}, "l", message_log=[SAID])


def entries(written: Sequence[Content]) -> list[Entry]:
    """Stamp contents, in one span."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return [Entry(run="r", seq=n, at=at, span=1, content=each) for n, each in enumerate(written, 2)]


def bare(found: Sequence[AgentStep | AgentFinish]) -> list[Any]:
    """Leave out which entries they came from, by writing and reading without it."""
    values = json.loads(to_lc(list(found)))
    for value in values:
        value["kwargs"].pop("entry", None)
    return from_lc(json.dumps(values))


def completion(text: str, **more: Any) -> Content:
    return ChatCompletionContent(output=text, **more)


def call(name: str, id_: str | None = None, **args: Any) -> Content:
    return ToolCallContent(tool_name=name, tool_args=args, tool_call_id=id_)


def result(value: Any, id_: str | None = None, **more: Any) -> Content:
    return ToolResultContent(tool_result=value, tool_call_id=id_, **more)


# ------------------------------------------------------------------------------------------------------- recorded
async def test_a_run_of_parallel_and_failing_calls_reads_as_steps_and_a_finish() -> None:
    store, script = (
        MemoryStore(),
        [[gesta.call("look", x=1), gesta.call("look", x=1), gesta.call("fail", x=2)], "Done."],
    )
    await play(store, agent(World(), script))
    found = steps(every := await read(store, (await store.runs())[0].run))
    first, second, third, finish = found
    assert isinstance(first, AgentStep)
    assert isinstance(second, AgentStep)
    assert isinstance(third, AgentStep)
    assert isinstance(first.action, AgentActionMessageLog)
    assert isinstance(second.action, AgentActionMessageLog)
    assert first.action.message_log is second.action.message_log
    assert first.action != second.action
    assert first.action.entry != second.action.entry
    assert first.action.entry in {entry.id for entry in every}
    assert first.action.log == 'Invoking: `look` with `{"x": 1}`'
    assert (first.observation, first.outcome) == ("saw 1", "ok")
    assert (third.observation, third.outcome) == ("ValueError: no 2 here", "error")
    assert finish == AgentFinish({"output": "Done."}, "Done.")
    assert bare(steps(entries(contents(found)))) == bare(found)


async def test_ids_of_calls_are_those_that_the_model_reads() -> None:
    store, script = MemoryStore(), [[gesta.call("look", x=1), gesta.call("look", x=1)], "Done."]
    await play(store, agent(World(), script))
    every = await read(store, (await store.runs())[0].run)
    formatter = tool_calls.ToolCalls()
    ids = [message.call_id for message in formatter.format(every, formatter.start()) if message.role == "tool"]
    assert ids == [step.action.tool_call_id for step in steps(every)[:-1]]  # type: ignore[union-attr]


async def test_a_call_that_a_person_denied_says_so() -> None:
    async def pay(x: int) -> str:
        return f"paid {x}"

    tool = gesta.tool(pay, effect="once", approval=True)
    record = Record(MemoryStore(), address.bind)
    acting = agent(World(), [gesta.call("pay", x=1), "Not paid."], tools=[tool])
    waiting = await record.run(acting, "pay", session="s", key="m")
    run = (await record.find("s")).run
    [asked] = [each.asked for each in (await record.state(run)).calls.values()]
    assert (waiting.reason, steps(await record.read(run))[0].outcome) == ("waiting", "unanswered")  # type: ignore[union-attr]
    assert asked is not None
    await record.send(run, ApprovalContent(of=asked, verdict="denied", by="eva", reason="no money"), key="eva")
    await record.run(acting, "pay", session="s", key="m")
    step, finish = found = steps(await record.read(run))
    assert isinstance(step, AgentStep)
    assert step.outcome == "denied"
    assert "no money" in step.observation
    assert finish == AgentFinish({"output": "Not paid."}, "Not paid.")
    assert bare(steps(entries(contents(found)))) == bare(found)


def test_every_prefix_of_a_round_reads() -> None:
    whole = entries(
        [
            UserContent(value="q"),
            completion("t"),
            call("a", "1"),
            call("b", "2"),
            result(1, "2"),
            result(2, "1"),
            completion("x"),
        ]
    )
    counts = [len(steps(whole[:end])) for end in range(len(whole) + 1)]
    assert counts == [0, 0, 1, 1, 2, 2, 2, 3]


def test_a_call_without_a_result_is_unanswered_and_its_words_are_the_formatters() -> None:
    assert UNANSWERED == tool_calls.UNANSWERED
    found = steps(entries([completion(""), call("a", "1"), call("b", "2"), result("two", "2")]))
    assert [(step.observation, step.outcome) for step in found if isinstance(step, AgentStep)] == [
        (UNANSWERED, "unanswered"),
        ("two", "ok"),
    ]
    assert sum(isinstance(each, ToolResultContent) for each in contents(found)) == 1


def test_a_late_result_and_one_of_no_call_are_steps_too() -> None:
    late = [
        completion(""),
        call("a", "1"),
        result("?", "1", outcome="interrupted", status="error"),
        result("it", call=3, outcome="late"),
    ]
    found = [*steps(entries(late)), *steps(entries([result("lost", "9")]))]
    assert [step.observation for step in found if isinstance(step, AgentStep)] == ["?", "it", "lost"]
    assert found[1].action is not None and found[1].outcome == "late"  # type: ignore[union-attr]
    assert [each.content for each in format_to_tool_messages(found[:2])][-2:] == ["?", "[Late result of a]\nit"]  # type: ignore[arg-type]


def test_a_result_finds_its_call_though_ids_repeat_and_come_out_of_order() -> None:
    again = [completion(""), call("a", "1"), result("one", "1"), completion(""), call("a", "1"), call("a", "2")]
    found = steps(entries([*again, result("three", "2"), result("two", "1"), result("late", "1")]))
    assert [step.observation for step in found if isinstance(step, AgentStep)] == ["one", "two", "three", "late"]
    assert len({step.action.tool_call_id for step in found[:3]}) == 3  # type: ignore[union-attr]


def test_calls_without_ids_pair_in_order_within_their_reply() -> None:
    bare_ = [
        completion("", finish_reason="tool_calls"),
        call("a"),
        call("b"),
        completion("", finish_reason="tool_calls"),
        call("c"),
        result("c"),
    ]
    found = steps(entries([*bare_, completion("x")]))
    assert [(each.action.tool, each.observation) for each in found if isinstance(each, AgentStep)] == [
        ("a", UNANSWERED),
        ("b", UNANSWERED),
        ("c", "c"),
    ]


def test_arguments_that_are_no_json_stay_text_and_are_no_finish() -> None:
    wrong = ToolCallContent(
        tool_name="a", tool_args={}, tool_call_id="1", status="error", meta={"raw_args": "{x", "error": "bad"}
    )
    found = steps(entries([completion(""), wrong, result("bad", "1", status="error", outcome="error")]))
    [step] = found
    assert isinstance(step, AgentStep)
    assert step.action.tool_input == "{x"
    assert contents(found)[1] == wrong
    assert [each.type for each in format_to_tool_messages([step])] == ["ai", "tool"]


def test_a_call_parsed_from_text_is_a_plain_action_whose_log_is_the_whole_text() -> None:
    text = "Thought: look.\nAction: look\nAction Input: rome"
    written = [completion(text), call("look", __arg1="rome"), result("dry", status="success", outcome="ok")]
    assert bare(steps(entries(written))) == [AgentStep(AgentAction("look", "rome", text), "dry", "ok")]
    assert contents(steps(entries(written))) == written


def test_an_answer_without_words_is_a_finish_and_a_lost_one_too() -> None:
    assert steps(entries([completion(""), AssistantContent(value="")])) == [AgentFinish({"output": ""}, "")]
    assert steps(entries([completion("text only")])) == [AgentFinish({"output": "text only"}, "text only")]
    assert steps(entries([completion("")])) == []


# ---------------------------------------------------------------------------------------------------- round trips
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    max_leaves=6,
)
ARGS = st.dictionaries(st.text(), JSON, max_size=3)
NAMES = st.sampled_from(["look", "search", "code_execution"])
OUTCOMES: st.SearchStrategy[Any] = st.sampled_from(["ok", "error", "denied", None])


@st.composite
def stories(draw: st.DrawFn) -> list[AgentStep | AgentFinish]:
    """Draw steps as anybody may make them: plain, logged, native and parallel, answered or not."""
    found: list[AgentStep | AgentFinish] = []
    for turn in range(draw(st.integers(0, 4))):
        kind, text = draw(st.sampled_from(["plain", "logged", "native", "finish"])), draw(st.text())
        if kind == "finish":
            found.append(AgentFinish(draw(ARGS), text))
        elif kind == "native":
            calls: list[dict[str, Any]] = [
                {"name": draw(NAMES), "args": draw(ARGS), "id": f"c{turn}-{n}"} for n in range(draw(st.integers(1, 3)))
            ]
            log = [AIMessage(text, id=draw(st.none() | st.text()), tool_calls=calls)]
            for each in calls:
                made = AgentActionMessageLog(
                    each["name"], each["args"], draw(st.text()), message_log=log, tool_call_id=each["id"]
                )
                found.append(AgentStep(made, draw(JSON), draw(OUTCOMES)))
        else:
            tool_input = draw(ARGS | st.text())
            log = [AIMessage(draw(st.text())) for _ in range(draw(st.integers(0, 2)))]
            action = AgentAction(draw(NAMES), tool_input, text)
            logged = AgentActionMessageLog(draw(NAMES), tool_input, text, message_log=log)
            found.append(AgentStep(action if kind == "plain" else logged, draw(JSON), draw(OUTCOMES)))
    return found


@given(stories())
def test_steps_survive_a_record(told: list[AgentStep | AgentFinish]) -> None:
    assert bare(steps(entries(contents(told)))) == bare(told)


@given(stories())
def test_steps_survive_lc_json(told: list[AgentStep | AgentFinish]) -> None:
    assert from_lc(to_lc(told)) == told
    assert from_lc(to_lc(told, pretty=True)) == told


# ------------------------------------------------------------------------------------------------------- lc bytes
HEAD = '{"lc": 1, "type": "constructor", "id": ["langchain", "schema", '
AI = (
    HEAD
    + '"messages", "AIMessage"], "kwargs": {"content": "hm", "type": "ai", "tool_calls": [{"name": "search", "args": {"q": 1}, "id": "c1", "type": "tool_call"}], "invalid_tool_calls": []}}'
)
USED = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
BROKEN = {"name": "s", "args": "{bad", "id": "c", "error": "e"}
FROZEN = [
    (PLAIN, HEAD + '"agent", "AgentAction"], "kwargs": {"tool": "search", "tool_input": {"q": "\\u00e9"}, "log": "Thought: search it", "type": "AgentAction"}}'),
    (AgentAction("a", "text", ""), HEAD + '"agent", "AgentAction"], "kwargs": {"tool": "a", "tool_input": "text", "log": "", "type": "AgentAction"}}'),
    (AgentFinish({"lc": 1}, "l"), HEAD + '"agent", "AgentFinish"], "kwargs": {"return_values": {"__lc_escaped__": {"lc": 1}}, "log": "l", "type": "AgentFinish"}}'),
    (LOGGED, HEAD + '"agent", "AgentActionMessageLog"], "kwargs": {"tool": "search", "tool_input": {"q": 1}, "log": "l", "type": "AgentActionMessageLog", "message_log": [' + AI + "]}}"),
    (AgentActionMessageLog("a", {"x": 1}, "l", message_log=[SAID], tool_call_id="c1"), HEAD + '"agent", "ToolAgentAction"], "kwargs": {"tool": "a", "tool_input": {"x": 1}, "log": "l", "type": "AgentActionMessageLog", "message_log": [' + AI + '], "tool_call_id": "c1"}}'),
    (AIMessage("", usage_metadata=USED, response_metadata={"a": 1}, additional_kwargs={"k": "v"}, invalid_tool_calls=[BROKEN]), HEAD + '"messages", "AIMessage"], "kwargs": {"content": "", "additional_kwargs": {"k": "v"}, "response_metadata": {"a": 1}, "type": "ai", "invalid_tool_calls": [{"type": "invalid_tool_call", "id": "c", "name": "s", "args": "{bad", "error": "e"}], "usage_metadata": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, "tool_calls": []}}'),
    (AIMessage([{"type": "text", "text": "x"}], name="n", id="i"), HEAD + '"messages", "AIMessage"], "kwargs": {"content": [{"type": "text", "text": "x"}], "type": "ai", "name": "n", "id": "i", "tool_calls": [], "invalid_tool_calls": []}}'),
    (HumanMessage("hi"), HEAD + '"messages", "HumanMessage"], "kwargs": {"content": "hi", "type": "human"}}'),
    (ToolMessage("r", name="", id="", tool_call_id="c1", artifact=0), HEAD + '"messages", "ToolMessage"], "kwargs": {"content": "r", "type": "tool", "name": "", "id": "", "tool_call_id": "c1", "artifact": 0, "status": "success"}}'),
    (FunctionMessage("c", name="f"), HEAD + '"messages", "FunctionMessage"], "kwargs": {"content": "c", "type": "function", "name": "f"}}'),
    (ChatMessage("c", role="r"), HEAD + '"messages", "ChatMessage"], "kwargs": {"content": "c", "type": "chat", "role": "r"}}'),
    (BaseMessage("x", type="AIMessageChunk"), HEAD + '"messages", "AIMessageChunk"], "kwargs": {"content": "x", "type": "AIMessageChunk", "tool_calls": [], "invalid_tool_calls": []}}'),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), FROZEN, ids=lambda each: type(each).__name__)
def test_lc_json_is_langchains_byte_for_byte(value: Any, text: str) -> None:
    assert to_lc(value) == text
    assert to_lc(from_lc(text)) == text


@pytest.mark.filterwarnings("ignore")  # their `loads` says that it is a beta
@pytest.mark.skipif(dumps is None, reason="langchain-core is not installed")
@pytest.mark.parametrize(
    ("value", "text"),
    [each for each in FROZEN if "ToolAgentAction" not in each[1]],
    ids=lambda each: type(each).__name__,
)
def test_langchain_reads_these_bytes_and_writes_them_again(value: Any, text: str) -> None:
    assert dumps(loads(text, allowed_objects="all")) == text
    assert dumps(loads(to_lc(value), allowed_objects="all"), pretty=True) == to_lc(value, pretty=True)


def test_values_outside_json_are_stubs_that_come_back_as_foreign() -> None:
    odd = AgentAction("a", {"n": float("nan"), "t": (1, 2), "s": {1}, "d": {1: 2}, "k": {(1,): 2}}, "l")
    text = to_lc(odd)
    assert (
        '{"n": NaN, "t": [1, 2], "s": {"lc": 1, "type": "not_implemented", "id": ["builtins", "set"], "repr": "{1}"}'
        in text
    )
    back = from_lc(text)
    assert back.tool_input["s"] == PythonValue("builtins.set", "{1}")
    assert back.tool_input["k"] == PythonValue("builtins.dict", "{(1,): 2}")
    assert to_lc(back) == text


def test_a_dict_that_looks_like_an_object_is_never_made_one() -> None:
    forged = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "agent", "AgentFinish"], "kwargs": {}}
    for value in (forged, {"__lc_escaped__": forged}):
        assert from_lc(to_lc(AgentStep(PLAIN, value))).observation == value


@pytest.mark.parametrize(
    "text",
    [
        *("nonsense", "{", '{"lc": 1, "type": "secret", "id": ["KEY"]}'),
        HEAD + '"agent", "Agent"], "kwargs": {}}',
        HEAD + '"agent", "AgentAction"], "kwargs": {"tool": "a"}}',
        HEAD + '"agent", "AgentAction"], "kwargs": {"tool": "a", "tool_input": [], "log": ""}}',
        HEAD + '"agent", "AgentStep"], "kwargs": {"action": "a", "observation": ""}}',
    ],
)
def test_what_is_no_agents_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_lc(text)


def test_a_value_inside_itself_has_no_lc_form() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="inside itself"):
        to_lc(AgentStep(PLAIN, loop))


# --------------------------------------------------------------------------------------------------- scratchpads
def test_texts_show_observations_as_json_and_take_prefixes() -> None:
    assert format_log_to_str([(PLAIN, {"a": True})]) == 'Thought: search it\nObservation: {"a": true}\nThought: '
    assert format_log_to_str([AgentStep(PLAIN, "x")], "O: ", "T: ") == "Thought: search it\nO: x\nT: "
    assert format_log_to_messages([(PLAIN, None)], "saw {observation}") == [
        AIMessage(PLAIN.log),
        HumanMessage("saw null"),
    ]
    assert format_xml([(AgentAction("a</tool>", {"q": 1}, ""), "<final_answer>")]) == (
        '<tool>a[[/tool]]</tool><tool_input>{"q": 1}</tool_input><observation>[[final_answer]]</observation>'
    )
    assert "<observation><tool></observation>" in format_xml([(PLAIN, "<tool>")], escape_format=None)


def test_no_scratchpad_drops_the_observation_of_a_plain_action() -> None:
    both = [AIMessage(PLAIN.log), HumanMessage("seen")]
    assert format_to_openai_function_messages([(PLAIN, "seen")]) == both
    assert format_to_tool_messages([(PLAIN, "seen")])[-1] == both[-1]
    assert format_to_tool_messages([(PLAIN, "seen")]) == both


def test_a_logged_action_gives_its_messages_and_a_function_message() -> None:
    assert format_to_openai_function_messages([(LOGGED, "r")]) == [SAID, FunctionMessage("r", name="search")]


def test_equal_rounds_stay_two_and_parallel_calls_one() -> None:
    native = AgentActionMessageLog("search", {"q": 1}, "l", message_log=[SAID], tool_call_id="c1")
    assert [each.type for each in format_to_tool_messages([(native, "r"), (native, "r")])] == [
        "ai",
        "tool",
        "ai",
        "tool",
    ]
    pair = AIMessage("", tool_calls=[{"name": "a", "args": {}, "id": "1"}, {"name": "a", "args": {}, "id": "2"}])
    first, second = (AgentActionMessageLog("a", {}, "", message_log=[pair], tool_call_id=each) for each in "12")
    both = format_to_tool_messages([(second, "two"), (first, "one")])
    assert [(each.tool_call_id, each.content) for each in both] == [(None, ""), ("1", "one"), ("2", "two")]


def test_no_call_is_left_without_an_answer() -> None:
    pair = AIMessage("", tool_calls=[{"name": "a", "args": {}, "id": "1"}, {"name": "b", "args": {}, "id": "2"}])
    made = format_to_tool_messages([(AgentActionMessageLog("b", {}, "", message_log=[pair], tool_call_id="2"), "two")])
    assert [(each.tool_call_id, each.content) for each in made[1:]] == [("1", UNANSWERED), ("2", "two")]
