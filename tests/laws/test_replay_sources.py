"""Law 10 for tools of servers: the record alone gives them, so no server is started and nothing is sent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.mcp_shop import lines, shop

import gesta
from gesta.compare import cases, differences, forks
from gesta.compare.replaying import How, Replayed, replay_run
from gesta.entry import Entry
from gesta.errors import AgentError
from gesta.function_tool.context import NeedsAnswer, ToolQuestion
from gesta.kinds import RequestHeaderContent, ToolResultContent

pytestmark = pytest.mark.sample(2, over="parent")

Runs = dict[str, list[Entry]]


class Nowhere:
    """A source of tools that must not be opened."""

    shared_by = "nowhere"

    def described(self) -> Any:
        return "nowhere"

    def open(self, start: Any) -> Any:
        raise AssertionError("a replay opened a source")


async def taken(record: Any) -> Runs:
    return {row.run: await record.read(row.run) for row in await record.store.runs()}


def agent_of(source: Any, *said: Any, tools: Sequence[Any] = (), **options: Any) -> gesta.Agent:
    return gesta.Agent("buyer", model=gesta.scripted(*said), tools=[*tools, source], **options)


async def replayed(runs: Runs, run: str, agent: gesta.Agent, **how: Any) -> Replayed:
    without = gesta.Agent("buyer", model=agent.model, tools=[*agent.tools, Nowhere()], policy=agent.policy)
    return await replay_run(runs, run, without, How(**how))


async def check(runs: Runs, run: str, agent: gesta.Agent) -> None:
    """Replay every prefix of a run, against a source that cannot be opened."""
    entries = runs[run]
    for end in range(1, len(entries) + 1):
        found = await replayed({**runs, run: entries[:end]}, run, agent)
        assert found.first is None, (end, found.first)
        assert found.entries == end


async def test_a_run_with_tools_of_a_server_is_replayed_without_the_server(tmp_path: Path) -> None:
    calls = [
        gesta.call("look", item="bread"),
        gesta.call("shop_read_resource", uri="shop://list"),
        gesta.call("fail", item="soup"),
        gesta.call("pay", item="bread"),
        gesta.call("put", item="bread"),
    ]

    @gesta.tool(effect="pure")
    def add(one: int, other: int) -> int:
        """Add."""
        return one + other

    source = shop(tmp_path, approval=["pay"], effects={"look": "idempotent"})
    agent = agent_of(source, gesta.call("add", one=1, other=2), calls, "Done.", "Bye.", tools=[add])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        await record.approve(outcome.waiting[0], by="Ada")
        await record.resume("s", agent)
        outcome = await record.run(agent, "Thank you.", session="s")
        runs = await taken(record)
    did = (lines(tmp_path, "effects"), lines(tmp_path, "starts"))
    assert outcome.answer == "Bye."
    await check(runs, outcome.run, agent)
    assert (lines(tmp_path, "effects"), lines(tmp_path, "starts")) == did


async def test_a_list_that_changed_in_the_middle_is_replayed(tmp_path: Path) -> None:
    said = [gesta.call("more", item="extra"), gesta.call("extra", item="soup"), "Done."]
    agent = agent_of(shop(tmp_path), *said)
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        runs = await taken(record)
    headers = [each.content for each in runs[outcome.run] if isinstance(each.content, RequestHeaderContent)]
    assert len(headers) == 2
    await check(runs, outcome.run, agent)


async def test_a_call_that_was_held_open_while_a_person_answered_is_replayed(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("choose", item="hat"), gesta.call("look", item="hat"), "Done.")
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        await record.answer(outcome.waiting[0], {"size": "L"}, by="Ada")
        assert (await record.resume("s", agent)).answer == "Done."
        runs = await taken(record)
    await check(runs, outcome.run, agent)


async def test_a_call_that_was_lost_while_a_person_was_asked_is_replayed(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("choose", item="hat"), "Done.")
    async with gesta.open(tmp_path / "r.gesta") as record:
        outcome = await record.run(agent, "Buy.", session="s")
        await record.answer(outcome.waiting[0], {"size": "L"}, by="Ada")
    async with gesta.open(tmp_path / "r.gesta") as record:
        outcome = await record.resume("s", agent)
        await record.resolve(outcome.waiting[0], "done", by="Ada", result="a hat")
        assert (await record.resume("s", agent)).answer == "Done."
        runs = await taken(record)
    await check(runs, outcome.run, agent)


async def test_a_sampled_run_is_not_asked_for_again(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path, sampling=True), gesta.call("compose", item="tea"), "Done.")
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        runs = await taken(record)
    assert len(runs) == 2
    await check(runs, outcome.run, agent)


@pytest.mark.sample(3)
@pytest.mark.parametrize("verdict", ["done", "retry", "failed"])
async def test_a_call_in_doubt_is_replayed_with_what_settled_it(verdict: Any, tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), [gesta.call("pay", item="soup"), gesta.call("look", item="soup")], "Done.")
    (tmp_path / "die-before").touch()
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        while outcome.waiting:
            await record.resolve(outcome.waiting[0], verdict, by="Ada", result="paid" if verdict == "done" else None)
            outcome = await record.resume("s", agent)
        runs = await taken(record)
    assert outcome.answer == "Done."
    await check(runs, outcome.run, agent)


async def test_a_tool_of_the_program_that_asks_a_person_is_replayed() -> None:
    @gesta.tool(effect="once")
    async def order(dish: str, context: gesta.Context) -> str:
        """Order a dish."""
        if "size" not in context.answers:
            raise NeedsAnswer({"size": ToolQuestion(f"Which size of {dish}?")}, {"round": 1})
        return f"{dish}, {context.answers['size']}"

    @gesta.tool(effect="pure")
    async def look(dish: str) -> str:
        """Look a dish up."""
        return dish

    both = [gesta.call("order", dish="soup"), gesta.call("look", dish="soup")]
    agent = gesta.Agent("buyer", model=gesta.scripted(both, "Done."), tools=[order, look])
    async with gesta.open() as record:
        outcome = await record.run(agent, "A soup.", session="s")
        await record.answer(outcome.waiting[0], "large", by="Ada")
        assert (await record.resume("s", agent)).answer == "Done."
        runs = await taken(record)
    for end in range(1, len(runs[outcome.run]) + 1):
        found = await replay_run({outcome.run: runs[outcome.run][:end]}, outcome.run, agent)
        assert found.first is None, (end, found.first)


async def test_only_a_tool_that_is_live_is_called_at_its_server(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("look", item="soup"), gesta.call("pay", item="soup"), "Done.")
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        runs = await taken(record)
    found = await replay_run(runs, outcome.run, agent, How(live=["look"]))
    assert found.first is None
    assert lines(tmp_path, "effects") == ["look soup", "pay soup", "look soup"]
    with pytest.raises(AgentError, match=r"'look' is to run, and no server of agent 'buyer' offers it now\. Leave"):
        await replay_run(runs, outcome.run, msgspec.structs.replace(agent, sources=()), How(live=["look"]))
    entry = next(each for each in runs[outcome.run] if isinstance(each.content, ToolResultContent))
    other = msgspec.structs.replace(entry, content=msgspec.structs.replace(entry.content, tool_result="look: bread"))
    changed = [other if each is entry else each for each in runs[outcome.run]]
    found = await replay_run({outcome.run: changed}, outcome.run, agent, How(live=["look"]))
    assert found.first is not None
    assert (found.first.seq, found.first.difference.path) == (entry.seq, "$.tool_result")


async def test_a_run_with_tools_of_a_server_is_a_case_and_is_compared(tmp_path: Path) -> None:
    def agent(item: str) -> gesta.Agent:
        said = [gesta.call("look", item="soup"), gesta.call("pay", item=item), f"One {item}."]
        return agent_of(shop(tmp_path, approval=["pay"]), *said)

    async with gesta.open() as record:
        ended = []
        for item in ("soup", "bread"):
            outcome = await record.run(agent(item), "Buy.", session=item)
            await record.approve(outcome.waiting[0], by="Ada")
            ended.append(await record.resume(item, agent(item)))
        kept = [await cases.taken(record, each.run) for each in ended]
    did = (lines(tmp_path, "effects"), lines(tmp_path, "starts"))
    one, other = [runs[each.run] for runs, each in zip(kept, ended, strict=True)]
    path = tmp_path / "one.jsonl"
    path.write_text(cases.written(cases.Case(cases.Head(agent="agent.py:agent", run=ended[0].run), kept[0])))
    case = cases.read(path)
    offline = msgspec.structs.replace(agent("soup"), sources=(Nowhere(),))
    assert await cases.check(case, offline) == []
    assert cases.written(await cases.accepted(case, offline)) == path.read_text()
    compared = differences.compare(one, other)
    assert [(each.tool, each.fired) for each in compared.after.effects] == [("look", True), ("pay", True)]
    assert (lines(tmp_path, "effects"), lines(tmp_path, "starts")) == did


async def test_a_fork_of_a_run_with_tools_of_a_server_calls_only_what_may_be_called(tmp_path: Path) -> None:
    said = [gesta.call("look", item="soup"), gesta.call("pay", item="soup"), "Done."]
    async with gesta.open(tmp_path / "r.gesta") as record:
        outcome = await record.run(agent_of(shop(tmp_path), *said), "Buy.", session="s")
        base = await record.find(outcome.run)
        did = lines(tmp_path, "effects")
        recorded = forks.recorded_model(await record.read(base.run), agent_of(shop(tmp_path), *said))
        made = await forks.fork(record, base, forks.Fork(at=2))
        assert (await forks.go_on(record, made, recorded)).answer == "Done."
        assert lines(tmp_path, "effects") == did, "all is answered by the base"
        same = differences.compare(await record.read(base.run), await record.read(made.run))
        assert not same.steps
        assert [each.fired for each in same.after.effects] == [False, False]
        said[1] = gesta.call("pay", item="bread")
        other = agent_of(shop(tmp_path), *said)
        made = await forks.fork(record, base, forks.Fork(at=2))
        waits = await forks.go_on(record, made, other)
        assert [(each.what, each.tool) for each in waits.waiting] == [("approval", "pay")]
        assert lines(tmp_path, "effects") == did
        await record.approve(waits.waiting[0], by="Ada")
        assert (await record.resume(made.run, other)).answer == "Done."
        assert lines(tmp_path, "effects") == [*did, "pay bread"]
        made = await forks.fork(record, base, forks.Fork(at=2, live=["pay"]))
        assert (await forks.go_on(record, made, other)).answer == "Done."
        assert lines(tmp_path, "effects") == [*did, "pay bread", "pay bread"]
        runs = await taken(record)
    found = await replayed(runs, made.run, other)
    assert found.first is None, found.first
