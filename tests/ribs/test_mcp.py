"""Tools of MCP servers in an agent: what is offered, called, asked and refused."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import CancelScope
from tests.mcp_shop import lines, shop

import gesta
from gesta.bridges.mcp.offers import unusable
from gesta.bridges.mcp.spec import McpOptions
from gesta.errors import AgentError, BadAddress, BadTool, NoServer
from gesta.kinds import AttemptContent, FaultContent, RequestHeaderContent, ToolResultContent

pytestmark = pytest.mark.sample(2, over="parent")


def agent_of(source: Any, *said: Any, **options: Any) -> gesta.Agent:
    return gesta.Agent("buyer", model=gesta.scripted(*said), tools=[source], **options)


def of_kind(entries: list[gesta.Entry], kind: Any) -> list[Any]:
    return [each.content for each in entries if isinstance(each.content, kind)]


def living(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_tools_resources_and_prompts_of_a_server_are_tools_of_the_agent(tmp_path: Path) -> None:
    heard = list[str]()
    calls = [
        gesta.call("look", item="bread"),
        gesta.call("shop_read_resource", uri="shop://list"),
        gesta.call("shop_get_prompt", name="greet", arguments={"who": "Ada"}),
        gesta.call("fail", item="soup"),
        gesta.call("steps", item="soup"),
    ]
    agent = agent_of(shop(tmp_path), *calls, "Done.")
    async with gesta.open() as record:
        outcome = await record.run(
            agent, "Buy.", session="s", listener=lambda event: heard.append(f"{event.type} {event.content}")
        )
        again = await record.run(agent, "Buy.", session="t")
        entries = await record.read(outcome.run)
    assert (outcome.answer, again.answer) == ("Done.", "Done.")
    results = [(each.tool_result, each.outcome) for each in of_kind(entries, ToolResultContent)]
    assert results == [
        ("look: bread", "ok"),
        ("bread, soup", "ok"),
        ("user: Greet Ada.", "ok"),
        ("no soup left", "error"),
        ("steps: soup", "ok"),
    ]
    first = of_kind(entries, AttemptContent)[0]
    assert (first.server.name, first.server.version, len(first.server.schema), first.effect) == (
        "shop",
        "1.2",
        64,
        "pure",
    )
    assert "observation steps: 1 of 2, soup" in heard
    (header,) = of_kind(entries, RequestHeaderContent)
    assert [tool["name"] for tool in header.tools][-2:] == ["shop_read_resource", "shop_get_prompt"]
    starts = lines(tmp_path, "starts")
    assert len(starts) == 1, "one connection serves all turns"
    assert not living(int(starts[0]))


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_server_that_dies_in_a_call_leaves_a_doubt_and_is_started_again(backend: str, tmp_path: Path) -> None:
    if backend == "trio":
        pytest.importorskip("trio")

    async def main() -> None:
        agent = agent_of(shop(tmp_path), gesta.call("pay", item="soup"), gesta.call("look", item="soup"), "Done.")
        (tmp_path / "die-after").touch()
        async with gesta.open(tmp_path / "r.gesta") as record:
            outcome = await record.run(agent, "Buy.", session="s")
            assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "pay")]
            faults = of_kind(await record.read(outcome.run), FaultContent)
            assert [each.error.message for each in faults] == [
                "the MCP server 'shop' was lost in the middle of 'pay': Connection closed"
            ]
            await record.resolve(outcome.waiting[0], "done", by="Ada", result="paid")
            ended = await record.resume("s", agent)
        assert ended.answer == "Done."

    anyio.run(main, backend=backend)
    assert lines(tmp_path, "effects") == ["pay soup", "look soup"]
    assert len(lines(tmp_path, "starts")) == 2


async def test_a_call_that_only_reads_is_made_again_when_its_server_died(tmp_path: Path) -> None:
    (tmp_path / "die-before").touch()
    async with gesta.open() as record:
        outcome = await record.run(agent_of(shop(tmp_path), gesta.call("look", item="soup"), "Done."), "Buy.")
    assert outcome.answer == "Done."
    assert lines(tmp_path, "effects") == ["look soup"]


async def test_an_idempotent_call_is_made_again_under_the_same_key(tmp_path: Path) -> None:
    (tmp_path / "die-after").touch()
    async with gesta.open() as record:
        outcome = await record.run(agent_of(shop(tmp_path), gesta.call("put", item="soup"), "Done."), "Buy.")
        attempts = of_kind(await record.read(outcome.run), AttemptContent)
    assert outcome.answer == "Done."
    assert lines(tmp_path, "effects") == ["put soup"]
    assert {each.key for each in attempts} == set(lines(tmp_path, "keys"))
    assert len(attempts) == 2


async def test_tools_are_listed_again_before_the_next_request_when_the_server_says_so(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("more", item="extra"), gesta.call("extra", item="soup"), "Done.")
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        headers = of_kind(await record.read(outcome.run), RequestHeaderContent)
    assert outcome.answer == "Done."
    assert [sum(tool["name"] == "extra" for tool in each.tools) for each in headers] == [0, 1]
    assert lines(tmp_path, "effects") == ["more extra", "extra soup"]


async def test_a_person_answers_what_a_server_asks_and_the_same_call_goes_on(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("choose", item="soup"), "Done.")
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        (waiting,) = outcome.waiting
        assert (waiting.what, waiting.question) == ("question", "shop asks: Which size of soup?")
        with pytest.raises(AgentError, match="lacks size"):
            await record.answer(waiting, {}, by="Ada")
        await record.answer(waiting, {"size": "large"}, by="Ada")
        ended = await record.resume("s", agent)
        entries = await record.read(ended.run)
    assert ended.answer == "Done."
    assert [each.tool_result for each in of_kind(entries, ToolResultContent)] == ["choose: soup large"]
    assert lines(tmp_path, "effects") == ["choose soup large"]
    assert len({each.key for each in of_kind(entries, AttemptContent)}) == 1


async def test_a_person_declines_what_a_server_asks(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("choose", item="soup"), "Done.")
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        await record.answer(outcome.waiting[0], "decline", by="Ada")
        assert (await record.resume("s", agent)).answer == "Done."
    assert lines(tmp_path, "effects") == ["choose soup decline"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("tool", ["choose", "safe_choose"])
async def test_a_call_whose_process_ended_while_a_person_was_asked_repeats_no_effect(tool: str, tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call(tool, item="soup"), "Done.")
    async with gesta.open(tmp_path / "r.gesta") as record:
        outcome = await record.run(agent, "Buy.", session="s")
        assert [each.what for each in outcome.waiting] == ["question"]
    async with gesta.open(tmp_path / "r.gesta") as record:
        await record.answer(outcome.waiting[0], {"size": "large"}, by="Ada")
        outcome = await record.resume("s", agent)
        if tool == "choose":  # it may have had an effect before it asked
            assert [each.what for each in outcome.waiting] == ["doubt"]
            await record.resolve(outcome.waiting[0], "retry", by="Ada")
            outcome = await record.resume("s", agent)
    assert outcome.answer == "Done."
    assert lines(tmp_path, "effects") == [f"{tool} soup large"], "the answer on record is given again"


async def test_a_cancelled_turn_cancels_the_call_that_is_held_at_the_server(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("choose", item="soup"), "Done.")
    async with gesta.open() as record:
        outcome = await record.run(agent, "Buy.", session="s")
        ended = await record.cancel(outcome.run, by="Ada")
        assert ended is not None
        assert ended.reason == "cancelled"
        await record.run(agent_of(shop(tmp_path), gesta.call("look", item="x"), "Done."), "Look.", session="t")
    assert "notifications/cancelled" in lines(tmp_path, "requests")


async def test_a_program_that_stops_waiting_cancels_the_call_at_the_server(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("slow", item="soup"), "Done.")
    async with gesta.open(grace_s=0) as record:
        with CancelScope() as scope:

            def leave(event: gesta.Event) -> None:
                if event.type == "observation":
                    scope.cancel()

            await record.run(agent, "Buy.", session="s", listener=leave)
        assert scope.cancelled_caught
        await record.run(agent_of(shop(tmp_path), gesta.call("look", item="x"), "Done."), "Look.", session="t")
    assert lines(tmp_path, "requests").count("notifications/cancelled") == 1


async def test_a_server_asks_the_model_of_the_agent_on_record(tmp_path: Path) -> None:
    asked = list[str]()

    def choose(messages: list[Any], header: Any) -> Any:
        asked.append(str(messages[-1]))
        if header.tools:
            return gesta.call("compose", item="soup") if len(messages) == 1 else "Done."
        return "O soup!"

    agent = gesta.Agent("poet", model=gesta.function(choose), tools=[shop(tmp_path, sampling=True)])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Write.", session="s")
        entries, rows = await record.read(outcome.run), await record.store.runs("s")
    assert [each.tool_result for each in of_kind(entries, ToolResultContent)] == ["O soup!"]
    assert any("Praise soup." in each for each in asked)
    assert [row.name.partition(".")[2][:9] for row in rows if row.parent_run] == ["sampling-"]


async def test_half_of_a_surrogate_pair_is_not_sent_and_ends_no_other_call(tmp_path: Path) -> None:
    """The library `mcp` ends the connection when it cannot write a message, so that all calls at work are in doubt."""

    paying = gesta.reply(calls=[gesta.call("pay", item="\ud800"), gesta.call("pay", item="soup")])
    said: list[Any] = [paying, gesta.call("compose", item="soup"), "half \ud800", "Done."]
    model = gesta.function(lambda *_: said.pop(0))
    async with gesta.open() as record:
        agent = gesta.Agent("poet", model=model, tools=[shop(tmp_path, sampling=True)])
        outcome = await record.run(agent, "Write.", session="s")
        told = [each.tool_result for each in of_kind(await record.read(outcome.run), ToolResultContent)]
        assert outcome.answer == "Done."
        assert sorted(told) == [
            "The arguments of 'pay' hold half of a surrogate pair. Write it whole.",
            "no model: the model answered with half of a surrogate pair",
            "pay: soup",
        ]
        choosing = agent_of(shop(tmp_path, sampling=True), gesta.call("choose", item="tea"), "Done.")
        outcome = await record.run(choosing, "Buy.", session="t")
        await record.answer(outcome.waiting[0], {"size": "\udfff"}, by="ann")
        outcome = await record.resume("t", choosing)
        assert of_kind(await record.read(outcome.run), ToolResultContent)[0].tool_result == "choose: tea cancel"
    assert len(lines(tmp_path, "starts")) == 1


async def test_a_server_that_may_not_ask_the_model_is_told_so(tmp_path: Path) -> None:
    async with gesta.open() as record:
        outcome = await record.run(agent_of(shop(tmp_path), gesta.call("compose", item="soup"), "Done."), "Write.")
        results = of_kind(await record.read(outcome.run), ToolResultContent)
    assert [each.tool_result for each in results] == ["no model: Sampling not supported"]


def test_a_program_without_an_event_loop_uses_a_server(tmp_path: Path) -> None:
    agent = agent_of(shop(tmp_path), gesta.call("pay", item="soup"), "Done.")
    with gesta.open_sync(tmp_path / "r.gesta") as record:
        assert record.run(agent, "Buy.", session="s").answer == "Done."
        assert record.run(agent, "Buy.", session="t").answer == "Done."
    assert lines(tmp_path, "effects") == ["pay soup"] * 2
    assert not any(living(int(pid)) for pid in lines(tmp_path, "starts"))


async def test_rules_choose_tools_and_say_their_effects(tmp_path: Path) -> None:
    source = shop(
        tmp_path,
        prefix="s_",
        deny=["f*", "get_prompt"],
        allow=["look", "p*", "f*", "get_prompt"],
        effects={"look": "once", "p*": "pure"},
        approval=["pay"],
        timeouts={"look": 3},
    )
    seen = list[Any]()

    def note(_: Any, header: Any) -> str:
        seen.append([tool["name"] for tool in header.tools])
        return "Done."

    agent = gesta.Agent("buyer", model=gesta.function(note), tools=[source])
    async with gesta.open() as record:
        await record.run(agent, "Buy.")
        bound = await record.turns.sources.listed(record.turns.bind(agent))
    assert seen == [["s_look", "s_put", "s_pay"]]
    rules = {tool.name: (tool.effect, tool.declared, tool.approval, tool.timeout_s) for tool in bound.tools}
    assert rules == {
        "s_look": ("once", True, False, 3),
        "s_put": ("pure", True, False, None),
        "s_pay": ("pure", True, True, None),
    }
    assert agent.tools == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"headers": {"a": "b"}}, AgentError, "headers= is for a URL, and the server is a command"),
        ({"effects": {"pay": "onc"}}, AgentError, "Did you mean 'once'?"),
        ({"effects": {"pay": "transactional"}}, AgentError, "expected one of 'pure', 'idempotent', 'once'"),
        ({"effect": {}}, TypeError, "Did you mean 'effects'?"),
        ({"allow": "pay"}, AgentError, "expected a list of names"),
        ({"approval": lambda number: number > 42}, AgentError, "expected a list of names. To ask a person about some"),
        ({"allow": 3}, AgentError, "allow=3, expected a list of names."),
        ({"prefix": "a b"}, AgentError, "expected at most 32 of"),
        ({"timeouts": {"pay": 0}}, AgentError, "expected seconds above 0"),
        ({"start_s": True}, AgentError, "expected seconds above 0"),
        ({"protocol": "2024-11-05"}, AgentError, "expected '2026-07-28' or '2025-11-25'"),
        ({"hold_s": -1}, AgentError, "expected seconds above 0"),
        ({"env": {"A": 1}}, AgentError, "the value of 'A' is a int, expected a text"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(options: McpOptions, error: Any, said: str) -> None:
    with pytest.raises(error) as raised:
        gesta.mcp("server", **options)
    assert said in str(raised.value)


@pytest.mark.parametrize("server", ["", "ftp://host/x", "a 'b", [], ["a", 1]])
def test_what_is_no_server_is_refused(server: Any) -> None:
    with pytest.raises(BadAddress, match="The MCP server is"):
        gesta.mcp(server)


async def test_a_misspelt_rule_names_the_tool_that_was_meant(tmp_path: Path) -> None:
    async with gesta.open() as record:
        with pytest.raises(AgentError, match=r"'pya' names no tool.*Did you mean 'pay'"):
            await record.run(agent_of(shop(tmp_path, effects={"pya": "once"}), "Done."), "Buy.")
        assert await record.store.runs() == []


async def test_a_server_that_does_not_start_shows_its_last_lines_without_secrets(tmp_path: Path) -> None:
    source = shop(tmp_path, "no", "licence", "for", "key-0123456789", env={"SHOP_API_KEY": "key-0123456789"})
    async with gesta.open() as record:
        with pytest.raises(NoServer) as raised:
            await record.run(agent_of(source, "Done."), "Buy.")
        assert await record.store.runs() == []
    assert "no licence for <secret SHOP_API_KEY>" in str(raised.value)
    assert "key-0123456789" not in str(raised.value)


async def test_a_command_that_does_not_exist_is_named() -> None:
    async with gesta.open() as record:
        with pytest.raises(NoServer, match=r"'no-such-command --fast' cannot be used: .*No such file"):
            await record.run(agent_of(gesta.mcp("no-such-command --fast"), "Done."), "Buy.")


async def test_two_tools_of_one_name_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    @gesta.tool(effect="pure")
    def look(item: str) -> str:
        """Look."""
        return item

    agent = gesta.Agent("buyer", model=gesta.scripted("Done."), tools=[look, shop(tmp_path)])
    async with gesta.open() as record:
        with pytest.raises(BadTool, match=r"two tools named 'look'; one is of the server 'shop'.*prefix='shop_'"):
            await record.run(agent, "Buy.")
        assert await record.store.runs() == []


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ({"name": ""}, "its name is not a text"),
        ({"name": "a", "inputSchema": {"type": "string"}}, "not that of an object"),
        ({"name": "a", "inputSchema": {"properties": []}}, "not schemas"),
        ({"name": "a", "inputSchema": {"properties": {"b": 1}}}, "not schemas"),
        ({"name": "a", "inputSchema": {"required": [1]}}, "not names"),
        ({"name": "a", "inputSchema": {}, "execution": {"taskSupport": "required"}}, "only be called as a task"),
        ({"name": "a", "inputSchema": {"properties": {"b": {"$ref": "http://x/y"}}}}, "another document"),
        ({"name": "a", "inputSchema": {"description": "x" * 200_000}}, "more than"),
    ],
)
def test_a_tool_that_no_model_can_be_offered_is_left_out(tool: dict[str, Any], said: str) -> None:
    assert said in (unusable(tool) or "")
    assert unusable({"name": "a", "inputSchema": {"type": "object", "properties": {"b": True}}}) is None


def test_a_schema_that_is_deep_is_left_out() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"properties": {"a": schema}}
    assert "deeper" in (unusable({"name": "a", "inputSchema": schema}) or "")


def test_secrets_of_a_server_are_nowhere() -> None:
    url = gesta.mcp("https://host/mcp?api_key=abcdefgh12", headers={"Authorization": "Bearer abcdefgh34"})
    command = gesta.mcp("server --token abcdefgh56 --api-key=abcdefgh78", env={"A_TOKEN": "abcdefgh90"})
    for source in (url, command):
        shown = f"{source!r} {source.spec!r} {source.described()}"
        assert "abcdefgh" not in shown, shown
    assert command.described() == gesta.mcp("server --token other --api-key=z", env={"A_TOKEN": "y"}).described()
