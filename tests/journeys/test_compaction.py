"""A conversation that grows too large is made smaller by entries: nothing is deleted, no call loses its result."""

import json
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec import structs
from tests.validators.chat_completions import violations

import gesta
from gesta.address import bind, open_record
from gesta.cli.transcript import line_of
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.task import Task
from gesta.decide.compaction import MADE
from gesta.entry import Entry, fold
from gesta.errors import AgentError, NoKey
from gesta.kinds import BudgetContent, CompactionContent, Kind, RequestContent, SystemContent
from gesta.log.journal import Journal
from gesta.models.chat_completions import ChatDialect
from gesta.models.hosted import unsent
from gesta.patterns.summariser import summariser
from gesta.perform.compaction import LEFT_OUT, LONGEST
from gesta.policy import Compact
from gesta.prompt import CLEARED, rebuild
from gesta.record.record import Record
from gesta.state.run import RunView
from gesta.views.across import explain_run

LONG = "x" * 4_000


@gesta.tool(effect="pure")
def look(what: str) -> str:
    """Look something up."""
    return f"{what}: {LONG}"


class Chat:
    """A keyless model that says what Chat Completions would have been sent."""

    def __init__(self, *script: Any) -> None:
        self.inner = gesta.scripted(*script)
        self.dialect = ChatDialect("m")
        self.bodies: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        self.name, self.encoder = "chat:m", self.dialect.encoder
        self.encode, self.envelope, self.parser = self.dialect.encode, self.dialect.envelope, self.inner.parser

    async def send(self, request: Any) -> Any:
        self.bodies.append(json.loads(request.body()))
        self.wrong += violations(request.body())
        async for data in self.inner.send(request):
            yield data


def desk(model: Any, formatter: str = "tool-calls", **rule: Any) -> gesta.Agent:
    compact = Compact(**{"at_tokens": 3_000, "keep_turns": 1, "keep_results": 1} | rule)
    return gesta.Agent(
        "desk", model=model, tools=[look], formatter=formatter, policy=gesta.Policy(compact=compact, parallel=1)
    )


def script(turns: int) -> list[Any]:
    return [each for turn in range(turns) for each in (gesta.call("look", what=f"w{turn}"), f"done {turn}")]


async def talk(record: Record, agent: gesta.Agent, turns: int) -> list[Entry]:
    for turn in range(turns):
        outcome = await record.run(agent, f"question {turn}", session="s")
        assert outcome.reason == "answered", outcome.error
    return await record.read(outcome.run)


def compactions(entries: list[Entry]) -> list[CompactionContent]:
    return [entry.content for entry in entries if isinstance(entry.content, CompactionContent)]


async def test_old_results_are_left_out_first_and_their_calls_stay() -> None:
    model = Chat(*script(6))
    async with open_record(":memory:") as record:
        entries = await talk(record, desk(model, keep_turns=9), 6)
        assert compactions(entries)
        last = model.bodies[-1]["messages"]
        results = [each["content"] for each in last if each["role"] == "tool"]
        assert results[-1].startswith("w5: xxx")
        assert CLEARED in results[:-1]
        assert [each["content"] for each in last if each["role"] == "user"] == [f"question {turn}" for turn in range(6)]
        assert len(json.dumps(last)) < 4 * 3_000 + 2_000
        kept = [entry.content for entry in entries if entry.kind is Kind.ToolResult]
        assert all(LONG in str(each.tool_result) for each in kept), "the record has them all"  # type: ignore[union-attr]
    assert not model.wrong


async def test_then_old_turns_are_left_out_whole_and_a_summary_stands_for_them() -> None:
    def sums(messages: Any, _header: Any) -> str:
        return f"SUM of {len(messages[-1]['content'])}"

    model = Chat(*script(6))
    async with open_record(":memory:") as record:
        entries = await talk(record, desk(model, results_over=None, by=summariser(gesta.function(sums))), 6)
        found = compactions(entries)
        assert found
        assert all(each.summary is not None and each.summary.startswith("SUM of ") for each in found)
        last = model.bodies[-1]["messages"]
        assert last[0] == {"role": "user", "content": found[-1].summary}
        assert sum(each["role"] == "user" for each in last) <= 4
        children = [row for row in await record.store.runs("s") if row.parent_run is not None]
        assert len(children) == len(found), "each summary was bought once"
        tasks = [entry.content for row in children for entry in await record.read(row.run)]
        told = [each.value for each in tasks if isinstance(each, SystemContent)]
        assert "question 0" in told[0]
        assert "SUM of" in told[-1], "an earlier summary is summed up again"
    assert not model.wrong


async def test_a_result_that_nobody_has_read_stays() -> None:
    model = Chat(gesta.reply(calls=[gesta.call("look", what=f"w{place}") for place in range(8)]), "done", "again")
    async with open_record(":memory:") as record:
        await talk(record, desk(model, keep_results=0, keep_turns=9), 2)
    results = [[each["content"] for each in body["messages"] if each["role"] == "tool"] for body in model.bodies]
    assert [LONG in each for each in results[1]] == [True] * 8
    assert results[2] == [CLEARED] * 8, "now it was read"


@pytest.mark.parametrize("rule", [{"results_over": 0}, {"at_tokens": 0, "keep_results": 0, "results_over": 0}])
async def test_what_was_left_out_is_not_left_out_again(rule: dict[str, Any]) -> None:
    async with open_record(":memory:") as record:
        entries = await talk(record, desk(Chat(*script(6)), **{"keep_turns": 9, **rule}), 6)
    found = compactions(entries)
    results = {entry.seq for entry in entries if entry.kind is Kind.ToolResult}
    assert found
    assert {each.from_seq for each in found} <= results
    assert len({each.from_seq for each in found}) == len(found)


async def test_nobody_is_told_to_make_a_call_with_an_effect_again() -> None:
    @gesta.tool(effect="once")
    def pay(what: str) -> str:
        return f"{what}: {LONG}"

    calls = [each for turn in range(6) for each in (gesta.call("pay", what=f"w{turn}"), "done")]
    model = Chat(*calls)
    agent = desk(model, keep_turns=9)
    async with open_record(":memory:") as record:
        entries = await talk(record, structs.replace(agent, tools=[pay]), 6)
    assert compactions(entries)
    assert MADE in [each["content"] for each in model.bodies[-1]["messages"]]
    assert "again if" not in json.dumps(model.bodies)


@pytest.mark.parametrize("address", ["anthropic:claude-x", "google:gemini-x"])
async def test_a_failed_result_that_is_left_out_is_still_a_failed_one(address: str) -> None:
    @gesta.tool(effect="pure")
    def look(what: str) -> str:
        raise RuntimeError(f"{what}: {LONG}")

    async with open_record(":memory:") as record:
        entries = await talk(record, structs.replace(desk(Chat(*script(6)), keep_turns=9), tools=[look]), 6)
    assert compactions(entries)
    form, model = bind(desk(Chat())).formats(), unsent(address, stream=False)
    request = [entry.seq for entry in entries if entry.kind is Kind.Request][-1]
    body = rebuild(entries, request, form, model).body().decode()
    assert CLEARED in body
    marked = '"is_error":true' if "anthropic" in address else '"response":{"error":'
    assert body.count(marked) == 6


async def test_a_summary_is_made_from_the_beginnings_of_large_results() -> None:
    @gesta.tool(effect="pure")
    def look(what: str) -> str:
        return what * 100_000

    asked: list[str] = []

    def sums(messages: Any, _header: Any) -> str:
        asked.append(messages[-1]["content"])
        return "SUM"

    calls = [each for turn in range(4) for each in (gesta.call("look", what=str(turn)), "done")]
    agent = desk(Chat(*calls), by=summariser(gesta.function(sums)), at_tokens=100)
    async with open_record(":memory:") as record:
        await talk(record, structs.replace(agent, tools=[look]), 4)
    assert max(map(len, asked)) < 3 * LONGEST
    assert "more characters]" in asked[0]


async def test_an_agent_that_cannot_sum_up_is_told_of_before_the_turn_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with open_record(":memory:") as record:
        with pytest.raises(NoKey, match="OPENAI_API_KEY"):
            await talk(record, desk(Chat("hi"), by=summariser("openai:gpt-5-mini")), 1)
        assert not await record.store.runs()
    with pytest.raises(AgentError, match=r"expected an agent\. Write by=gesta\.patterns"):
        desk(Chat("hi"), by="openai:gpt-5-mini")


async def test_without_an_agent_old_turns_are_left_out_without_a_word() -> None:
    model = Chat(*script(6))
    async with open_record(":memory:") as record:
        entries = await talk(record, desk(model, results_over=None), 6)
    assert {each.summary for each in compactions(entries)} == {None}
    assert model.bodies[-1]["messages"][0]["content"] in {f"question {turn}" for turn in range(3, 6)}
    assert not model.wrong


def fails(_messages: Any, _header: Any) -> str:
    raise RuntimeError("no money")


@gesta.tool(approval=True)
def permit(what: str) -> str:
    return what


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (gesta.function(fails), "failed: no money"),
        (gesta.scripted(gesta.call("permit", what="it")), "it waits for somebody"),
        (gesta.function(lambda *_: "  "), "failed: The model answered with nothing"),
    ],
)
async def test_a_summary_that_nobody_gives_is_no_reason_to_stop_and_everybody_is_told(model: Any, reason: str) -> None:
    talker = Chat(*script(6))
    agent = desk(talker, results_over=None, by=structs.replace(summariser(model), tools=[permit]))
    async with open_record(":memory:") as record:
        entries = await talk(record, agent, 6)
        found = compactions(entries)
        assert found
        assert {each.summary for each in found} == {LEFT_OUT}
        children = {row.run for row in await record.store.runs("s") if row.parent_run is not None}
        for each in found:
            assert each.error is not None
            assert each.error.message.startswith(reason)
            assert each.run in children
        last = talker.bodies[-1]["messages"]
        assert last[0] == {"role": "user", "content": LEFT_OUT}
        explained = await record_explained(record, entries)
        assert any(LEFT_OUT in text and reason in text for text in explained)
    assert not talker.wrong
    shown = [line_of(entry, "desk").text for entry in entries if entry.kind is Kind.Compaction]
    assert all(LEFT_OUT in text and f"no summary: {reason}" in text for text in shown)


async def record_explained(record: Record, entries: list[Entry]) -> list[str]:
    """What `why` shows of the last answer."""
    return [node.text for node in (await explain_run(record, entries[-1].run)).nodes if node.type == "Summary"]


async def test_what_failed_to_be_summed_up_is_not_summed_up_later() -> None:
    asked: list[str] = []

    def sums(messages: Any, _header: Any) -> str:
        asked.append(messages[-1]["content"])
        if len(asked) == 1:
            raise RuntimeError("no money")
        return "SUM"

    by = summariser(gesta.function(sums))
    async with open_record(":memory:") as record:
        entries = await talk(record, desk(Chat(*script(8)), results_over=None, by=by), 8)
    assert [each.summary for each in compactions(entries)][:2] == [LEFT_OUT, "SUM"]
    assert LEFT_OUT not in asked[1], "it is not a summary"


async def test_a_summary_that_came_leaves_nothing_to_call_off_and_one_that_waits_does() -> None:
    """Calling off costs reading all runs of the session."""
    came = summariser(gesta.function(lambda *_: "SUM"))
    waits = structs.replace(summariser(gesta.scripted(gesta.call("permit", what="it"))), tools=[permit])
    for by, handed in ((came, 0), (waits, 1)):
        async with open_record(":memory:") as record:
            entries = await talk(record, desk(Chat(*script(4)), results_over=None, by=by), 4)
            assert compactions(entries)
            turn = fold(RunView(), entries).turn
            assert turn is not None
            assert turn.handed == handed
            children = [row.run for row in await record.store.runs("s") if row.parent_run is not None]
            assert [run for run in children if (await record.state(run)).open] == []


async def test_a_summary_in_an_act_of_a_program_is_not_counted_at_all() -> None:
    by = summariser(gesta.function(lambda *_: "SUM"))
    policy = gesta.Policy(compact=Compact(at_tokens=500, keep_turns=1, results_over=None, by=by))
    async with open_record(":memory:") as record:
        config = ChatAgentConfig(name="calc", llm=gesta.scripted(*[f"DONE {LONG}"] * 5), policy=policy)
        task = Task(ChatAgent(config, record=record, session="s"), interactive=False, restart=False)
        for place in range(5):
            await task.run_async(f"question {place}")
        entries = await record.read(next(row.run for row in await record.store.runs("s") if row.parent_run is None))
    assert compactions(entries)
    turn = fold(RunView(), entries).turn
    assert turn is not None
    assert turn.handed == 0


@pytest.mark.parametrize("formatter", ["tool-calls", "react-text", "codeact-text", "json-text", "transcript"])
async def test_any_request_can_be_made_again_as_it_was_and_as_it_would_have_been(formatter: str) -> None:
    asked = {
        "react-text": 'Thought: t\nAction: look\nArgs: {"what": "w"}',
        "json-text": '{"request": "look", "what": "w"}',
    }
    call = asked.get(formatter, gesta.call("look", what="w"))
    done = "Final Answer: done" if formatter == "react-text" else "done"
    model = Chat(*[call, done] * 6)
    agent = desk(model, formatter)
    async with open_record(":memory:") as record:
        entries = await talk(record, agent, 6)
    assert compactions(entries)
    bound = bind(agent)
    sizes = []
    for entry in entries:
        if isinstance(entry.content, RequestContent):
            again = rebuild(entries, entry.seq, bound.formats(), bound.asked())
            assert again.digest == entry.content.body_digest
            whole = rebuild(entries, entry.seq, bound.formats(), bound.asked(), compacted=False)
            sizes.append((len(again.body()), len(whole.body())))
            assert not violations(whole.body())
    assert sizes[-1][0] < sizes[-1][1] / 2


async def test_a_run_that_goes_on_elsewhere_leaves_out_the_same() -> None:
    async with open_record(":memory:") as one:
        at_once = await talk(one, desk(Chat(*script(6))), 6)
    async with open_record(":memory:") as other:
        for turn in range(6):
            again = await talk_once(other, turn)
    shapes = [
        [(entry.kind, entry.content if entry.kind is Kind.Compaction else None) for entry in each]
        for each in (at_once, again)
    ]
    assert shapes[0] == shapes[1]


async def talk_once(record: Record, turn: int) -> list[Entry]:
    """A turn taken by a process that knows nothing but the record."""
    record.turns._kept.clear()
    outcome = await record.run(desk(Chat(*script(6))), f"question {turn}", session="s")
    return await record.read(outcome.run)


async def test_a_request_in_which_all_is_left_out_is_extended_by_the_next() -> None:
    async with open_record(":memory:") as record:

        @gesta.tool(effect="once")
        async def leave(context: gesta.Context) -> str:
            scope.cancel()
            while not context.cancelled():
                await checkpoint()
            return "Left."

        chat = Chat(gesta.call("leave"), gesta.call("look", what="a lamp"), "Done.")
        agent = gesta.Agent("desk", chat, tools=[leave, look])
        with anyio.CancelScope() as scope:
            await record.run(agent, "Forget it all.")
        run = (await record.find("last")).run
        async with record.turns.leases.leased(run) as lease:
            journal = Journal(record.store, lease, record.turns.clock)
            journal.write(CompactionContent(from_seq=0, to_seq=100), 1)
            await journal.durable()
        ended = await record.resume(run, agent)
        entries = await record.read(ended.run)
    asked = [(entry.seq, entry.content) for entry in entries if isinstance(entry.content, RequestContent)]
    assert [len(content.blocks) for _, content in asked] == [1, 0, 2]
    assert [content.extends for _, content in asked] == [None, None, asked[1][0]]
    assert chat.wrong == []


@pytest.mark.parametrize("when_spent", ["stop", "ask"])
async def test_a_budget_that_does_not_suffice_for_all_that_was_said_is_asked_about_what_is_left(
    when_spent: Any,
) -> None:
    def think(messages: Any, _header: Any) -> Any:
        size = len(json.dumps(messages)) // 4
        return gesta.reply("Yes.", usage={"prompt_tokens": size, "completion_tokens": 5})

    rules = gesta.Policy(
        budget=gesta.Budget(tokens=1_500, when_spent=when_spent), compact=Compact(at_tokens=1_000, keep_turns=0)
    )
    agent = gesta.Agent("desk", model=gesta.function(think), settings={"max_tokens": 50}, policy=rules)
    async with open_record(":memory:") as record:
        said = ["x" * 3_600, "y" * 3_600, "z", "v" * 9_000]
        outcomes = [await record.run(agent, text, session="s") for text in said]
    assert [outcome.reason for outcome in outcomes[:3]] == ["answered"] * 3
    last = outcomes[3]
    assert (last.reason, last.requests) == ("waiting" if when_spent == "ask" else "budget", 0), (
        "nothing more is left out"
    )


@pytest.mark.parametrize("results_over", [500, None])
async def test_what_is_set_aside_after_something_was_left_out_counts_the_tools_as_before(
    results_over: int | None,
) -> None:
    many = [structs.replace(look, name=f"look_{n}", description="Looks. " * 40) for n in range(40)]
    asked: list[int] = []

    def think(messages: Any, header: Any) -> Any:
        asked.append(len(json.dumps([messages, header.tools, header.meta])) // 4)
        calls = [gesta.call("look_0", what="w")] if messages[-1]["role"] == "user" else []
        usage = {"prompt_tokens": asked[-1], "completion_tokens": 5}
        return gesta.reply("" if calls else "Seen.", calls=calls, usage=usage)

    rule = Compact(at_tokens=6_000, keep_turns=1, keep_results=1, results_over=results_over)
    agent = structs.replace(desk(gesta.function(think)), tools=many, settings={"max_tokens": 5})
    agent = structs.replace(agent, policy=gesta.Policy(compact=rule, budget=gesta.Budget()))
    async with open_record(":memory:") as record:
        entries = await talk(record, agent, 6)
    held = [each.content.reserved for each in entries if isinstance(each.content, BudgetContent)]
    counts = [each["tokens"] for each in held if each is not None]
    assert compactions(entries)
    assert [count for count, took in zip(counts, asked, strict=True) if count < took * 0.9] == []
