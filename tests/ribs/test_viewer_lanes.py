"""The time, the sub-agents, the deaths and the doubts of a run, as the pages are told of them."""

import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import json
from tests.commands import gesta_command

import gesta
from gesta.entry import Entry
from gesta.kinds import (
    AttemptContent,
    BeginContent,
    ChatCompletionContent,
    Content,
    EndContent,
    Error,
    FaultContent,
    RequestContent,
    ThoughtContent,
    TimerContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.views.overview import Overview, OverviewView, totals
from gesta.views.sentences import died
from gesta.views.timeline import Timeline, TimelineView, busy_ms
from gesta.web.data import Pages
from gesta.web.glances import CHILDREN

KILLED = """
    import os, pathlib, threading, gesta

    MARK = pathlib.Path(__file__).with_suffix(".mark")

    def stays():
        if not MARK.exists():
            threading.Event().wait(60)

    def dies():
        if not MARK.exists():
            MARK.touch()
            os.kill(os.getpid(), 9)

    @gesta.tool(effect="pure")
    def price(item: str) -> int:
        "Look a price up."
        stays()
        return 5

    @gesta.tool(effect="idempotent")
    def ship(order: int) -> str:
        "Ship."
        stays()
        return "shipped"

    @gesta.tool(effect="once")
    def pay(order: int) -> str:
        "Pay."
        dies()
        return "paid"

    calls = [gesta.call("price", item="a"), gesta.call("ship", order=7), gesta.call("pay", order=7)]
    agent = gesta.Agent("desk", model=gesta.scripted(calls, "Done."), tools=[price, ship, pay])
"""
RUN = "import sys, gesta, desk\ngesta.run_sync(desk.agent, 'Order 7', record=sys.argv[1], session='s')"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a record in which a process was killed while three calls were in flight, and a person settled one."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "desk.py").write_text(textwrap.dedent(KILLED))
    path = folder / "r.gesta"
    done = subprocess.run([sys.executable, "-c", RUN, str(path)], cwd=folder, timeout=60, check=False)
    assert done.returncode == -9
    namespace: dict[str, Any] = {"__file__": str(folder / "desk.py"), "__name__": "desk"}
    exec((folder / "desk.py").read_text(), namespace)
    with gesta.open_sync(path) as record:
        outcome = record.resume("s", namespace["agent"])
        (wait,) = outcome.waiting
        record.resolve(wait, "done", by="Ann", result="paid")
        assert record.resume("s", namespace["agent"]).answer == "Done."
    return path


def asked(path: Path | str, *names: str, run: str = "s") -> Any:
    """Return what the pages answer about a run: `run`, `lines`, `time`, or `children`."""

    async def look() -> list[Any]:
        async with gesta.open(path, readonly=True) as record:
            pages = Pages(record, "r", str(path))
            id_ = (await record.find(run)).run
            answers = {"run": pages.run, "time": pages.glances.time, "children": pages.glances.children}
            return [await pages.lines(id_, 0, 1000) if name == "lines" else await answers[name](id_) for name in names]

    found = json.decode(json.encode(anyio.run(look)))
    return found[0] if len(names) == 1 else found


def test_a_death_is_told_with_what_was_in_flight_and_each_call_says_what_was_not_repeated(killed: Path) -> None:
    facts, lines = asked(killed, "run", "lines")
    (death,) = facts["deaths"]
    assert sorted(death["tools"]) == ["pay", "price", "ship"]
    told = next(each for each in lines if each["seq"] == death["seq"])
    assert told["calls"] == death["calls"]
    assert "In flight: price (entry 6), ship (entry 7), pay (entry 8)." in told["text"]
    calls = {each["tool"]: each["seq"] for each in lines if each["part"] == "call"}
    ends = {
        name: next(x["concluded"] for x in lines if x.get("of") == seq and x["part"] == "result")
        for name, seq in calls.items()
    }
    assert ends == {
        "price": "The model was told the result of attempt 2. The tool only reads, so nothing was repeated.",
        "ship": "The model was told the result of attempt 2. One key for all of them: the effect happened once.",
        "pay": "The model was told what Ann said. The call was not made again.",
    }
    (doubt,) = facts["doubts"]
    assert (doubt["tool"], doubt["by"], doubt["verdict"], doubt["seq"]) == ("pay", "Ann", "done", death["seq"])
    assert facts["totals"]["effects"] == {"ship": 1, "pay": 1}
    assert facts["totals"]["errors"] == 0


def test_bars_lie_in_their_turn_end_with_a_death_and_begin_anew(killed: Path) -> None:
    time = asked(killed, "time")
    bars = time["bars"]
    turn = next(bar for bar in bars if bar["lane"] == "turn")
    assert {bar["span"] for bar in bars if bar["lane"] in ("model", "tools")} == {turn["seq"]}
    assert [(bar["label"], bar.get("tone", "")) for bar in bars if bar["lane"] == "tools"] == [
        ("price", "lost"),
        ("ship", "lost"),
        ("pay", "lost"),
        *[(name, "") for name in ("price", "ship")],
        ("pay", "settled"),
    ]
    assert all(bar["start"] <= bar["end"] for bar in bars)
    assert set(time["busy_ms"]) == {"model", "tools", "waiting"}


@pytest.mark.anyio
async def test_a_call_of_an_imported_model_takes_as_long_as_its_source_says_or_is_an_instant() -> None:
    async with gesta.open() as record:
        async with record.span("copied", session="s") as span:
            usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}
            span.log(ChatCompletionContent(output="a", model="m", latency_ms=1500.0, usage=usage))
            span.log(ChatCompletionContent(output="b", latency_ms=float("1e300")))
            call = span.log(ToolCallContent(tool_name="look", tool_args={}))
            assert call is not None
            span.log(ToolResultContent(call=call.seq, tool_result=1, outcome="ok"))
        pages = Pages(record, "r", "")
        found = msgspec.to_builtins(await pages.glances.time(span.run))
    said, instant = [bar for bar in found["bars"] if bar["lane"] == "model"]
    assert (said["said"], said["tokens"]) == (True, (9, 5, 2))
    assert round(found["busy_ms"]["model"]) == 1500
    assert instant["start"] == instant["end"]
    assert [bar["label"] for bar in found["bars"] if bar["lane"] == "tools"] == ["look"]


def tree(number: int) -> gesta.Agent[Any]:
    """Return an agent that calls another a number of times at once; the first of these calls a third."""

    def middle(messages: list[dict[str, Any]], _: Any) -> Any:
        text = messages[0]["content"]
        return gesta.call("leaf", task=text) if text == "0" and len(messages) == 1 else gesta.reply(text=f"did {text}")

    leaf = gesta.Agent("leaf", model=gesta.scripted("A leaf."))
    twig = gesta.Agent("twig", model=gesta.function(middle), tools=[leaf.as_tool(description="A leaf.")])
    calls = [gesta.call("twig", task=str(each)) for each in range(number)]
    model = gesta.scripted(gesta.reply(calls=calls), "All done.")
    return gesta.Agent("root", model=model, tools=[twig.as_tool(description="A twig.")])


def test_the_runs_that_a_run_started_are_told_by_their_calls_and_in_pages(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    gesta.run_sync(tree(3), "Go", record=path, session="s")
    facts, lines, found = asked(path, "run", "lines", "children")
    calls = [each["seq"] for each in lines if each["part"] == "call"]
    assert [(each["name"], each["call"], each["below"], each["reason"]) for each in found["children"]] == [
        ("twig", calls[0], 1, "answered"),
        ("twig", calls[1], 0, "answered"),
        ("twig", calls[2], 0, "answered"),
    ]
    assert [each["answer"] for each in found["children"]] == ["did 0", "did 1", "did 2"]
    edges = {each["seq"]: each["of"] for each in lines if each["kind"] == "edge"}
    assert [edges[each["edge"]] for each in found["children"]] == calls
    assert (facts["below"], len(facts["runs"]), found["count"]) == (3, 1, 3)
    below = asked(path, "run", run=found["children"][0]["run"])
    assert [each["agent"] for each in below["runs"]] == ["root", f"twig#{calls[0]}"]
    assert CHILDREN >= 100


def test_a_folder_of_pages_has_the_time_of_its_runs_and_the_runs_they_started(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    gesta.run_sync(tree(2), "Go", record=path, session="s")
    assert gesta_command("view", str(path), "--export", str(tmp_path / "out"), "--run", "s").exit_code == 0
    data = {each.name: each.read_text() for each in (tmp_path / "out" / "data").iterdir()}
    assert "twig" in data["0-children.js"]
    assert "busy_ms" in data["0-time.js"]


def test_the_same_is_told_of_a_run_in_postgresql(emptied: str) -> None:
    gesta.run_sync(tree(2), "Go", record=emptied, session="s")
    facts, time, found = asked(emptied, "run", "time", "children")
    assert sorted((each["name"], each["answer"], each["below"]) for each in found["children"]) == [
        ("twig", "did 0", 1),
        ("twig", "did 1", 0),
    ]
    assert facts["totals"]["requests"] == 2
    assert [bar["label"] for bar in time["bars"] if bar["lane"] == "tools"] == ["twig", "twig"]


def story(*contents: gesta.kinds.Content) -> Any:
    """Return what is told of a turn with these entries."""
    view, state = OverviewView(), Overview()
    for seq, content in enumerate([BeginContent(name="desk", role="turn"), *contents], 1):
        at = datetime(2026, 1, 1, 0, 0, seq, tzinfo=UTC)
        view.apply(state, Entry(run="r", seq=seq, at=at, span=1, causes=(), content=content))
    return state


DIED = FaultContent(of=1, error=Error(type="lost", message="gone"))


def test_what_was_lost_with_a_process_is_not_in_flight_when_the_next_one_dies() -> None:
    call, tried = ToolCallContent(tool_name="pay", tool_args={}), AttemptContent(of=2, number=1, epoch=1, effect="once")
    found = story(call, tried, RequestContent(header=1, blocks=[], body_digest=""), DIED, DIED)
    assert [(each.tools, each.request) for each in found.deaths] == [(("pay",), 4), ((), None)]
    assert [died(each).split(". ")[1] for each in found.deaths] == [
        "In flight: pay (entry 2), a request to the model (entry 4)",
        "Nothing was in flight",
    ]
    assert [doubt.verdict for doubt in found.doubts.values()] == [""]


def test_a_late_result_settles_a_doubt_and_a_failed_tool_leaves_none() -> None:
    call, tried = ToolCallContent(tool_name="pay", tool_args={}), AttemptContent(of=2, number=1, epoch=1, effect="once")
    slow = FaultContent(of=3, error=Error(type="timeout", message="too slow"))
    late = ToolResultContent(call=2, tool_result="paid", outcome="late")
    assert [each.verdict for each in story(call, tried, slow, late).doubts.values()] == ["late"]
    failed = ToolResultContent(call=2, tool_result="no", status="error", outcome="error")
    found = story(call, tried, failed)
    assert (found.doubts, found.errors, found.effects) == ({}, 1, {})


def test_a_timer_is_waited_for_until_it_is_due_or_the_turn_ends_and_not_in_advance() -> None:
    view, state = TimelineView(), Timeline()
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    short, long = begun + timedelta(seconds=5), begun + timedelta(days=1)
    contents: list[Content] = [BeginContent(name="desk", role="turn"), TimerContent(due_at=short, key="a")]
    contents += [TimerContent(due_at=long, key="b"), ThoughtContent(value="")]
    for seq, content in enumerate(contents, 1):
        at = begun + timedelta(seconds=10 * (seq == 4))
        view.apply(state, Entry(run="r", seq=seq, at=at, span=1, causes=(), content=content))
    waits = {bar.label: bar for bar in state.bars if bar.lane == "waiting"}
    assert {name: bar.end for name, bar in waits.items()} == {"timer a": short, "timer b": None}
    assert busy_ms(state.bars)["waiting"] == 5000
    view.apply(state, Entry(run="r", seq=5, at=begun + timedelta(minutes=1), span=1, causes=(), content=EndContent()))
    assert waits["timer b"].end == begun + timedelta(minutes=1)


def test_calls_and_replies_that_a_program_logs_in_spans_are_counted_too() -> None:
    view, state = OverviewView(), Overview()
    reply = ChatCompletionContent(output="", usage={"prompt_tokens": 7, "completion_tokens": 2})
    contents: list[Content] = [BeginContent(name="importer"), reply, ToolCallContent(tool_name="look", tool_args={})]
    for seq, content in enumerate(contents, 1):
        at = datetime(2026, 1, 1, tzinfo=UTC)
        view.apply(state, Entry(run="r", seq=seq, at=at, span=1, causes=(), content=content))
    sums = totals(state)
    assert (sums["calls"], sums["requests"], sums["tokens_in"], sums["tokens_out"]) == (1, 1, 7, 2)
    assert state.turns == []
