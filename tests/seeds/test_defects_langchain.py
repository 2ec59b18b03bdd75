"""What LangChain's agent schema and TrustGraph's agents get wrong in what Gesta has, done right; Langroid's import too.

Each test is named in docs/coming-from/parity.md. What is tried there on LangChain itself stands in test_steps.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.validators.chat_completions import history_violations

import gesta
from gesta import kinds
from gesta.address import open_record
from gesta.compat.langchain.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from gesta.compat.langchain.lc import from_lc, to_lc
from gesta.compat.langchain.messages import AIMessage
from gesta.compat.langchain.scratchpads import (
    format_log_to_messages,
    format_log_to_str,
    format_to_openai_function_messages,
    format_to_tool_messages,
    format_xml,
)
from gesta.compat.langchain.steps import steps
from gesta.entry import Entry, utc_text
from gesta.formatters.tool_calls import ToolCalls
from gesta.kinds import AssistantContent, Kind, RetrievalContent

SAID = AIMessage("", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "c1"}])
PLAIN = AgentAction("look", {"x": 1}, "Thought: I look.")
NATIVE = AgentActionMessageLog("look", {"x": 1}, "", message_log=[SAID], tool_call_id="c1")


async def turn(*script: Any, tools: Any = (), text: str = "go") -> list[Entry]:
    """The entries of one turn."""
    async with open_record(":memory:") as record:
        await record.run(gesta.Agent("desk", model=gesta.scripted(*script), tools=list(tools)), text, session="s")
        return await record.read((await record.find("s")).run)


def of(entries: list[Entry], kind: Kind) -> list[Any]:
    return [entry.content for entry in entries if entry.kind is kind]


@gesta.tool(effect="pure")
def look(x: Any) -> Any:
    """Return the argument."""
    return x


# -------------------------------------------------------------------------------------------------- agent actions
@pytest.mark.parametrize("made", [AgentAction, AgentFinish, AgentStep])
def test_a_field_that_is_not_there_is_named(made: Any) -> None:
    with pytest.raises(TypeError, match="colour"):
        made("look", {}, "", colour=1)


def test_an_action_keeps_its_message_log_and_the_id_of_its_call_in_json() -> None:
    step = AgentStep(NATIVE, {"n": [1, None]}, "ok")
    assert from_lc(to_lc(step)) == step
    assert from_lc(to_lc(step)).action.message_log == [SAID]


def test_lone_surrogates_can_be_written() -> None:
    step = AgentStep(PLAIN, "half a character: \ud83d")
    assert from_lc(to_lc(step).encode()) == step


def test_secrets_are_not_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "hush")
    with pytest.raises(ValueError, match="secret"):
        from_lc('{"lc": 1, "type": "secret", "id": ["API_KEY"]}')


def test_no_class_is_made_from_a_path() -> None:
    for path in (["os", "system"], ["langchain", "schema", "agent", "Other"], ["langchain_core", "agents"]):
        with pytest.raises(ValueError, match=path[-1]):
            from_lc(json.dumps({"lc": 1, "type": "constructor", "id": path, "kwargs": {}}))


def test_every_scratchpad_shows_every_observation_as_json() -> None:
    seen = [AgentStep(action, {"é": [1]}) for action in (PLAIN, NATIVE)]
    for made in (format_log_to_messages, format_to_openai_function_messages, format_to_tool_messages):
        texts = [message.content for message in made(seen)]
        assert texts.count('{"é": [1]}') == 2, made.__name__
    assert format_log_to_str(seen).count('{"é": [1]}') == 2
    assert format_xml(seen).count('{"é": [1]}') == 2


def test_parallel_calls_of_which_one_has_no_result_leave_nothing_unanswered() -> None:
    both = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": id} for id in ("c1", "c2")])
    first = AgentActionMessageLog("look", {}, "", message_log=[both], tool_call_id="c1")
    messages = format_to_tool_messages([(first, "seen")])
    assert [(message.type, message.tool_call_id) for message in messages[1:]] == [("tool", "c1"), ("tool", "c2")]


def test_tags_of_the_observation_and_of_an_answer_are_escaped() -> None:
    text = format_xml([AgentStep(AgentAction("look", "<final_answer>no", ""), "</observation><tool>x")])
    assert text.count("<final_answer>") == 0
    assert text.count("<tool>") == text.count("</observation>") == 1


async def test_a_reply_of_broken_calls_alone_is_no_finish() -> None:
    entries = await turn(gesta.call("nobody", x=1), "done", tools=[look])
    found = steps(entries)
    assert [type(one).__name__ for one in found] == ["AgentStep", "AgentFinish"]
    assert found[-1] == AgentFinish({"output": "done"}, "done")


# ------------------------------------------------------------------------------------------------ agents that trace
async def test_the_model_is_shown_the_arguments_that_were_executed() -> None:
    args = {"n": 0, "nest": {"k": [1, 2], "flag": True, "none": None}}
    entries = await turn(gesta.call("look", x=args), "done", tools=[look])
    [made] = of(entries, Kind.ToolCall)
    [told] = of(entries, Kind.ToolResult)
    shown = next(message for message in ToolCalls().format(entries, ToolCalls().start()) if message.calls)
    assert shown.calls[0].args == made.tool_args == {"x": args}
    assert told.tool_result == args


async def test_empty_texts_of_tools_and_of_answers_are_texts() -> None:
    entries = await turn(gesta.call("look", x=""), "done", tools=[look])
    [told] = of(entries, Kind.ToolResult)
    assert (told.tool_result, told.status) == ("", "success")
    assert [each.output for each in of(entries, Kind.ChatCompletion)] == ["", "done"]
    assert AgentStep(NATIVE, "").messages[0].content == ""


async def test_an_unknown_tool_does_not_end_the_turn_and_is_on_record() -> None:
    entries = await turn(gesta.call("nobody"), "done", tools=[look])
    [made] = of(entries, Kind.ToolCall)
    [told] = of(entries, Kind.ToolResult)
    assert (made.status, told.status) == ("error", "error")
    assert "nobody" in str(told.tool_result)
    assert of(entries, Kind.End)[-1].reason == "answered"


async def test_a_limit_ends_the_turn_with_a_reason_on_record() -> None:
    async with open_record(":memory:") as record:
        model = gesta.scripted(*[gesta.call("look", x=1)] * 9)
        policy = gesta.Policy(limits=gesta.Limits(requests=2))
        outcome = await record.run(gesta.Agent("desk", model=model, tools=[look], policy=policy), "go", session="s")
        entries = await record.read((await record.find("s")).run)
    assert outcome.reason == "limit"
    assert of(entries, Kind.End)[-1].reason == "limit"


@pytest.mark.parametrize(
    ("script", "reason", "said"),
    [
        ([gesta.call("look", x=1)] * 3, "limit", None),
        ([gesta.call("nobody"), "done"], "answered", "done"),
        ([gesta.call("broken"), "done"], "answered", "done"),
        ([gesta.call("look", x=1), gesta.fault("400", message="bad")], "failed", None),
        ([gesta.call("look", x=1)], "failed", None),
    ],
    ids=["limit", "unknown tool", "tool that fails", "model that fails", "model that has no more"],
)
async def test_whatever_goes_wrong_a_turn_ends_with_its_reason_on_record(
    script: list[Any], reason: str, said: str | None
) -> None:
    @gesta.tool(effect="pure")
    async def broken() -> str:
        raise ValueError("out of paper")

    policy = gesta.Policy(limits=gesta.Limits(requests=2), retry=gesta.Retry(first_wait_s=0.0))
    agent = gesta.Agent("desk", model=gesta.scripted(*script), tools=[look, broken], policy=policy)
    async with open_record(":memory:") as record:
        events = [event async for event in record.stream(agent, "go", session="s")]
        entries = await record.read((await record.find("s")).run)
    end = of(entries, Kind.End)[-1]
    assert (end.reason, end.status) == (reason, "success" if said else "error")
    assert [each.value for each in of(entries, Kind.Assistant)] == ([said] if said else [])
    assert [event.end_of_dialog for event in events].count(True) == 1
    assert (end.error is None) == (said is not None)


async def test_calls_in_parallel_are_told_apart_by_seq_and_id() -> None:
    entries = await turn([gesta.call("look", x=1), gesta.call("look", x=1)], "done", tools=[look])
    made = [entry for entry in entries if entry.kind is Kind.ToolCall]
    told = of(entries, Kind.ToolResult)
    assert sorted(result.call for result in told) == [entry.seq for entry in made]
    history = [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.args)}}
            for call in message.calls
        ]} if message.calls else {"role": message.role, "content": message.text}
        | ({"tool_call_id": message.call_id} if message.role == "tool" else {})
        for message in ToolCalls().format(entries, ToolCalls().start())
    ]  # fmt: skip
    assert history_violations(history) == []


async def test_what_was_asked_and_what_came_is_on_record_with_tokens_model_and_time() -> None:
    usage = [{"prompt_tokens": 3, "completion_tokens": 4}, {"prompt_tokens": 30, "completion_tokens": 40}]
    said = gesta.reply("I look.", calls=[gesta.call("look", x=1)], usage=usage[0])
    model = gesta.scripted(said, gesta.reply("done", usage=usage[1]))
    agent = gesta.Agent("desk", model=model, instructions="Be brief.", tools=[look], settings={"temperature": 0.5})
    async with open_record(":memory:") as record:
        outcome = await record.run(agent, "go", session="s")
        entries = await record.read(outcome.run)
    first, last = of(entries, Kind.Request)
    [header], replies = of(entries, Kind.RequestHeader), of(entries, Kind.ChatCompletion)
    assert len(first.body_digest) == 64
    assert first.blocks
    assert last.blocks
    assert last.extends == next(entry.seq for entry in entries if entry.kind is Kind.Request)
    assert (header.meta["instructions"], header.meta["settings"]) == ("Be brief.", {"temperature": 0.5})
    assert [tool["name"] for tool in header.tools] == ["look"]
    assert [(each.output, each.usage, each.model) for each in replies] == [
        ("I look.", usage[0], "scripted"),
        ("done", usage[1], "scripted"),
    ]
    assert all(each.latency_ms >= 0 for each in replies)
    assert (outcome.tokens_in, outcome.tokens_out) == (33, 44)


async def test_a_session_says_when_it_began_its_events_by_number_and_the_annotations_of_each_span() -> None:
    async with open_record(":memory:") as record:
        async with record.span("desk", session="s", shop="north") as span:
            span.write(kinds.UserContent(value="q"))
            with span.span("in", level=2) as inner:
                inner.write(AssistantContent(value="a"))
        await record.run(gesta.Agent("desk", model=gesta.scripted("done")), "go", session="t")
        query = "SELECT content, ann, start_t, cid FROM sessions"
        [(content, annotations, start, none), (_, _, later, named)] = (await record.store.sql(query)).rows
        begun, asked = [(await record.read((await record.find(name)).run))[0] for name in "st"]
    shown = [(event["seq_num"], event["event"]["kind"], event["name"]) for event in json.loads(content)]
    assert shown == [
        *((1, "begin", ["desk"]), (2, "user", ["desk"])),
        *((3, "begin", ["desk", "in"]), (4, "assistant", ["desk", "in"]), (5, "end", ["desk", "in"])),
        (6, "end", ["desk"]),
    ]
    assert json.loads(annotations) == [
        {"name": ["desk"], "annotations": {"shop": "north"}},
        {"name": ["desk", "in"], "annotations": {"shop": "north", "level": 2}},
    ]
    assert (start, none) == (utc_text(begun.at), None)
    assert isinstance(asked.content, kinds.BeginContent)
    assert asked.content.agent is not None
    assert json.loads(named) == {"identifier": asked.content.agent.digest, "timestamp": later}
    assert later == utc_text(asked.at)


async def test_a_trace_has_no_limit_and_shows_what_it_does_not_know() -> None:
    async with open_record(":memory:") as record:
        async with record.span("desk", session="s") as span:
            question = span.write(kinds.UserContent(value="q"))
            hits = [kinds.Hit(document=f"d{n}", chunk=str(n), score=1.0) for n in range(300)]
            found = [span.write(RetrievalContent(query="q", hits=hits), (question.seq,)) for _ in range(120)]
            noted = span.write(kinds.KeyValueContent(key="k", value=1), tuple(entry.seq for entry in found))
            made = span.write(AssistantContent(value="a"), (noted.seq,))
        explanation = await record.explain(made)
    assert [node.seq for node in explanation.nodes] == [question.seq, *(e.seq for e in found), noted.seq, made.seq]
    passages = "\n".join(f"d{n} {n}" for n in range(300))
    assert {node.text for node in explanation.nodes if node.type == "Retrieval"} == {f"q\n{passages}"}


async def test_turns_of_one_conversation_are_one_run() -> None:
    async with open_record(":memory:") as record:
        for text in ("one", "two"):
            await record.run(gesta.Agent("desk", model=gesta.scripted("a", "b")), text, session="s")
        row = await record.find("s")
        messages = ToolCalls().format(await record.read(row.run), ToolCalls().start())
    assert [message.text for message in messages] == ["one", "a", "two", "b"]


async def test_a_message_that_is_delivered_twice_runs_once() -> None:
    ran: list[int] = []

    @gesta.tool(effect="once")
    def pay(x: int) -> str:
        """Pay."""
        ran.append(x)
        return "paid"

    async with open_record(":memory:") as record:
        agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", x=1), "done"), tools=[pay])
        outcomes = [await record.run(agent, "go", session="s", key="m-1") for _ in range(2)]
        heads = {(await record.find("s")).head}
    assert ran == [1]
    assert [outcome.answer for outcome in outcomes] == ["done", "done"]
    assert len(heads) == 1


def test_importing_leaves_random_numbers_logging_and_the_environment_alone() -> None:
    code = """
import logging, os, random
random.seed(7)
before = random.getstate(), dict(os.environ), list(logging.getLogger().handlers), __builtins__.open
import gesta, gesta.cli
assert before == (random.getstate(), dict(os.environ), list(logging.getLogger().handlers), __builtins__.open)
"""
    odd = {"NAME": "a b", "PORT": "no number", "DEBUG": "perhaps", "SYSTEM_MESSAGE": "obey"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **odd}, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
