"""What was spent and how it went is counted by day, agent, model and tool; what nobody knows is counted apart."""

from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import gesta
from gesta.compare.forks import Change, Fork, fork, go_on
from gesta.hooks import Hooks
from gesta.kinds import ChatCompletionContent, Forked, ToolCallContent, ToolResultContent
from gesta.log.shared import base_in
from gesta.policy import Policy
from gesta.views.stats import Row, Stats, between_ms, percentile, stats

pytestmark = pytest.mark.anyio
USAGE = {"prompt_tokens": 30, "completion_tokens": 9}


@gesta.tool(effect="pure")
def look(number: int) -> str:
    """Look something up."""
    if number > 1:
        raise ValueError("there is none")
    return "a lamp"


def agent(name: str = "desk", **options: Any) -> gesta.Agent:
    script = gesta.scripted(
        [gesta.call("look", number=1), gesta.call("look", number=2)],
        gesta.fault(503),
        gesta.reply("A lamp.", usage=USAGE),
    )
    return gesta.Agent(name, script, tools=[look], policy=Policy(retry=gesta.Retry(first_wait_s=0)), **options)


async def test_requests_faults_tokens_and_calls_are_counted(tmp_path: Path):
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        for session in ("a", "b"):
            await record.run(agent(), "Well?", session=session)
        await record.run(agent("clerk"), "Well?", session="c")
        found = await stats(record.store, "agent")
    assert list(found) == ["clerk", "desk"]
    desk = found["desk"]
    assert (desk.requests, desk.faults, desk.answers) == (6, 2, 4)
    assert (desk.tokens_in, desk.tokens_out, desk.unknown_usage) == (60, 18, 2)
    assert (desk.calls, desk.errors, desk.unanswered) == (4, 2, 0)
    assert desk.facts()["error_rate"] == 0.5
    assert (desk.usd, desk.unpriced) == (None, 4)
    assert len(desk.latencies_ms) == 4
    assert found["clerk"].requests == 3


async def test_an_agent_is_counted_under_its_name_whoever_calls_it(tmp_path: Path):
    below = gesta.Agent("below", gesta.scripted("Fine."))

    async def judge(_about: Any, context: gesta.Context) -> None:
        await context.call(below, "Well?")

    @gesta.tool(effect="pure")
    async def ask(context: gesta.Context) -> str:
        """Ask three times."""
        for part in ("1", "2", "a.b"):
            await context.call_as(part, below, f"Well, {part}?")
        return "asked"

    async def steps(verbs: gesta.Verbs, _text: str) -> str:
        return " ".join([(await verbs.call(below, "Well?", f"look {number}")).text for number in range(2)])

    hooks = Hooks(request=judge)
    desk = gesta.Agent("desk", gesta.scripted(gesta.call("ask"), "Done."), tools=[ask], hooks=hooks)
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        await record.run(desk, "Go.")
        found = await stats(record.store, "agent")
        program = gesta.Agent("program", program=steps)
        await record.run(program, "Go.")
        again = await stats(record.store, "agent")
    assert {name: each.requests for name, each in found.items()} == {"below": 5, "desk": 2}
    assert {name: each.requests for name, each in again.items()} == {"below": 7, "desk": 2}


async def test_tools_have_rows_of_their_own_with_the_time_that_they_took(tmp_path: Path):
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        await record.run(agent(), "Well?", session="a")
        found = await stats(record.store, "tool")
        by_day, by_model = await stats(record.store, "day"), await stats(record.store, "model")
    assert list(found) == ["look"]
    facts = found["look"].facts()
    assert (facts["calls"], facts["errors"], facts["error_rate"]) == (2, 1, 0.5)
    assert len(found["look"].latencies_ms) == 2
    assert facts["latency_ms"]["p50"] > 0
    assert (facts["requests"], facts["answers"]) == (0, 0)
    (day,) = by_day
    assert by_day[day].calls == 2
    assert list(by_model) == ["scripted"]
    assert by_model["scripted"].calls == 2


class Penny:
    """A price list on which each answer that was counted costs a cent."""

    dated = "ours 2026-11-01"

    def usd(self, usage: dict[str, Any]) -> float | None:
        return 0.01 if usage else None


async def test_a_price_is_counted_where_an_account_is_kept(tmp_path: Path):
    priced = agent(price=Penny())
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        await record.run(msgspec.structs.replace(priced, policy=Policy(budget=gesta.Budget(usd=1.0))), "?", session="a")
        found = await stats(record.store, "model")
    facts = found["scripted"].facts()
    assert (facts["usd"], facts["unpriced"], facts["answers"]) == (0.01, 1, 2)


def row(pos: int, kind: str, content: str, at: str = "2026-01-02T00:00:00.000000Z", run: str = "r") -> Row:
    return Row(pos, run, pos, kind, at, content)


def folded(rows: list[Row], by: Any = "day", since: str = "", until: str = "") -> Stats:
    found = Stats(by, {"r": "desk"}, since, until)
    for each in rows:
        found.add(each)
    return found


PAID = [
    row(1, "request-header", '{"meta":{"model":"openai:m"}}', "2026-01-01T23:00:00.000000Z"),
    row(2, "request", '{"header":1}', "2026-01-01T23:59:59.500000Z"),
    row(3, "budget", '{"of":2,"reserved":{"usd":1.0}}', "2026-01-01T23:59:59.600000Z"),
    row(4, "chat-completion", '{"output":"x","usage":{"input_tokens":5,"output_tokens":1}}'),
    row(5, "budget", '{"of":2,"spent":{"usd":0.25}}'),
    row(6, "budget", '{"of":2,"spent":{"usd":0.25}}'),
    row(7, "request", '{"header":1}'),
    row(8, "chat-completion", '{"output":"y","latency_ms":70}'),
]


def test_a_cost_is_settled_once_and_an_unknown_one_is_no_zero():
    numbers = folded(PAID, "model").groups["openai:m"]
    assert (numbers.usd, numbers.unpriced, numbers.answers, numbers.unknown_usage) == (0.25, 1, 2, 1)
    assert sorted(numbers.latencies_ms) == [70, 500.0]


def test_what_came_before_is_read_for_its_model_but_not_counted():
    numbers = folded(PAID, "model", since="2026-01-02").groups["openai:m"]
    assert (numbers.requests, numbers.answers, numbers.usd) == (1, 2, 0.25)
    assert folded(PAID, "model", until="2026-01-01").groups == {}
    assert list(folded(PAID).groups) == ["2026-01-01", "2026-01-02"]


def test_results_of_foreign_logs_find_their_calls_and_late_ones_count_once():
    rows = [
        row(1, "tool-call", '{"tool_name":"a","tool_call_id":"x"}'),
        row(2, "tool-call", '{"tool_name":"b"}'),
        row(3, "tool-result", '{"tool_result":1}'),
        row(4, "tool-result", '{"tool_result":1,"tool_call_id":"x","status":"error"}'),
        row(5, "tool-call", '{"tool_name":"b"}'),
        row(6, "tool-result", '{"call":5,"outcome":"interrupted"}'),
        row(7, "tool-result", '{"call":5,"outcome":"late"}'),
        row(8, "tool-result", '{"call":99}'),
        row(9, "tool-call", '{"tool_name":"c"}'),
    ]
    found = folded(rows, "tool").groups
    assert {name: (each.calls, each.errors, each.unanswered) for name, each in found.items()} == {
        "a": (1, 1, 0),
        "b": (2, 1, 0),
        "c": (1, 0, 1),
    }


@pytest.mark.parametrize("content", ["", "[]", "{", '{"header":{"$blob":1},"usage":[],"of":"x","spent":3,"call":"?"}'])
def test_no_row_raises(content: str):
    kinds = ("request-header", "request", "chat-completion", "fault", "budget", "tool-call", "attempt", "tool-result")
    for by in ("day", "agent", "model", "tool"):
        folded([row(place, kind, content) for place, kind in enumerate(kinds, 1)], by)


async def test_imported_answers_without_a_request_count_too():
    async with gesta.open() as record:
        async with record.span("desk", session="s") as span:
            span.log(ChatCompletionContent(output="x", model="m", usage=USAGE))
            span.log(ToolCallContent(tool_name="t", tool_args={}))
            span.log(ToolResultContent(tool_result="ok"))
        found = await stats(record.store, "model")
    assert (found["m"].requests, found["m"].answers, found["m"].tokens_in, found["m"].calls) == (0, 1, 30, 1)


def test_percentiles_are_values_that_were_measured():
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, each) for each in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert (percentile([], 50), percentile([3.0], 99), percentile([1.0, 2.0], 50)) == (None, 3.0, 1.0)


def test_time_between_entries_crosses_months():
    assert between_ms("2026-01-31T23:59:59.000000Z", "2026-02-01T00:00:00.500000Z") == 1500
    assert between_ms("", "2026-02-01T00:00:00.500000Z") is None
    assert between_ms("no time", "2026-02-01T00:00:00.500000Z") is None


async def test_of_a_fork_counts_what_it_did_itself(tmp_path: Path):
    script = gesta.scripted(
        gesta.reply(calls=[gesta.call("look", number=2)], usage=USAGE), gesta.reply("None.", usage=USAGE), stream=False
    )
    desk = gesta.Agent("desk", script, tools=[look], policy=Policy(retry=gesta.Retry(first_wait_s=0)))
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        first = await record.run(desk, "Well?", session="a")
        entries = await record.read(first.run)
        before = (await stats(record.store, "model"))["scripted"]
        assert (before.requests, before.tokens_in, before.calls, before.errors) == (2, 60, 1, 1)
        base = await record.find(first.run)
        made = await fork(record, base, Fork(at=len(entries)))
        assert (await stats(record.store, "model"))["scripted"] == before, "what it shares was spent once"
        asked = next(entry.seq for entry in entries if isinstance(entry.content, ChatCompletionContent))
        made = await fork(record, base, Fork(changes=[Change(asked, "output", "Let me look.")]))
        assert (await stats(record.store, "model"))["scripted"].tokens_in == 60, "nor was what it took over"
        await go_on(record, made, desk)
        found = await stats(record.store, "model")
        assert list(found) == ["scripted"], "the header that names the model is shared"
        after = found["scripted"]
        assert (after.requests, after.tokens_in) == (3, 90)
        assert (after.calls, after.errors, after.unanswered) == (1, 1, 0), "a call that the base answers is none"
        by_tool = await stats(record.store, "tool")
        assert (by_tool["look"].calls, by_tool["look"].errors) == (1, 1)


async def test_annotations_that_cannot_be_read_mark_nothing(tmp_path: Path):
    path = str(tmp_path / "r.gesta")
    async with gesta.open(path) as record:
        await record.run(agent(), "Well?", session="a")
    with apsw.Connection(path) as connection:
        connection.execute("UPDATE entries SET annotations = '{bad' WHERE kind = 'chat-completion'")
    async with gesta.open(path, readonly=True) as record:
        assert (await stats(record.store, "agent"))["desk"].answers == 2


async def test_from_is_a_mark_in_forks_only():
    async with gesta.open() as record:
        async with record.span("app", session="s") as span:
            span.write(ChatCompletionContent(output="x", model="m"))
            span.write(ChatCompletionContent(output="x", model="m"), (), {"from": "cache"})
            call = span.write(ToolCallContent(tool_name="t", tool_args={}))
            span.write(ToolResultContent(call=call.seq, tool_result="r", copy_of="server-1"))
        found = (await stats(record.store, "model"))["m"]
    assert (found.answers, found.calls, found.unanswered) == (2, 1, 0)


async def test_a_fork_goes_on_with_the_model_that_its_base_had_there(tmp_path: Path):
    script = (gesta.call("look", number=1), "One.", gesta.call("look", number=0), "Two.")
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        for name in ("mA", "mB"):
            desk = gesta.Agent("desk", gesta.scripted(*script, name=name), tools=[look])
            run = (await record.run(desk, "Well?", session="a")).run
        call = next(entry for entry in await record.read(run) if isinstance(entry.content, ToolCallContent))
        await fork(record, await record.find(run), Fork(changes=[Change(call.seq, "tool_args.number", -1)]))
        found = await stats(record.store, "model")
    assert {name: each.calls for name, each in found.items()} == {"mA": 2, "mB": 1}


@gesta.tool(effect="once", approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


async def test_a_call_that_a_fork_shares_is_answered_there_and_counts_again_where_it_is_done_again(tmp_path: Path):
    desk = gesta.Agent("desk", gesta.scripted(gesta.call("pay", euros=1), "Done."), tools=[pay])
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        base = await record.find((await record.run(desk, "Pay.", session="a")).run)
        for calls in (1, 2):
            await go_on(record, await fork(record, base, Fork(live=["pay"])), desk)
            found = (await stats(record.store, "tool"))["pay"]
            assert (found.calls, found.unanswered, len(found.latencies_ms)) == (calls, 0, calls)


def test_a_fork_looks_its_entries_up_in_what_it_shares_and_not_after():
    rows = [
        row(1, "request-header", '{"meta":{"model":"mA"}}', run="base"),
        row(2, "request", '{"header":1}', run="base"),
        row(3, "tool-call", '{"tool_name":"a"}', run="base"),
        row(4, "request-header", '{"meta":{"model":"mB"}}', run="base"),
        row(5, "tool-call", '{"tool_name":"b"}', run="base"),
        row(6, "request", '{"header":1}', run="fork of fork"),
        row(7, "request", '{"header":4}', run="fork of fork"),
        row(8, "tool-result", '{"call":5,"outcome":"ok"}', run="fork of fork"),
        row(9, "tool-result", '{"call":3,"outcome":"ok","extra":3}', run="fork of fork"),
        row(10, "request", '{"header":1}', run="own base"),
        row(11, "budget", '{"of":0,"spent":{"usd":1}}', run="base"),
    ]
    bases = {
        "fork": Forked(run="base", seq=3),
        "fork of fork": Forked(run="fork", seq=5),
        "own base": Forked(run="own base", seq=20),
    }
    for by, expected in (("model", {"mA": (2, 1), "unknown": (2, 0)}), ("tool", {"a": (0, 0), "b": (0, 1)})):
        found = Stats(by, {}, bases=bases)  # type: ignore[arg-type]
        for each in rows:
            found.add(each)
        assert {name: (each.requests, each.unanswered) for name, each in found.groups.items()} == expected


@pytest.mark.parametrize("content", ["", "{}", '{"opened":{"base":{"run":"r"}}}', '{"opened":3}'])
def test_a_begin_that_cannot_be_read_makes_no_fork(content: str):
    assert base_in(content) is None
