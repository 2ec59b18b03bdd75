"""Servers of MCP that misbehave: what they write, return and forget is bounded, named, and never done twice."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import FULL
from tests.mcp_shop import either, http_shop, lines

import gesta
from gesta.errors import NoServer
from gesta.kinds import FaultContent, RequestHeaderContent, ToolResultContent

pytestmark = pytest.mark.sample(3, over="parent")

ODD = Path(__file__).parents[1] / "mcp_odd.py"


def odd(habit: str, *rest: object, **options: Any) -> Any:
    return gesta.mcp([sys.executable, "-S", str(ODD), habit, *map(str, rest)], **options)


def agent_of(source: Any, *said: Any) -> gesta.Agent:
    return gesta.Agent("buyer", model=gesta.scripted(*said), tools=[source])


def of_kind(entries: list[gesta.Entry], kind: Any) -> list[Any]:
    return [each.content for each in entries if isinstance(each.content, kind)]


async def test_what_a_server_returns_beside_text_is_on_record_and_told_to_the_model() -> None:
    names = ("picture", "sound", "link", "file", "both", "huge", "empty")
    agent = agent_of(odd("none"), *(gesta.call(name) for name in names), "Done.")
    async with gesta.open() as record:
        outcome = await record.run(agent, "Go.")
        results = of_kind(await record.read(outcome.run), ToolResultContent)
    picture, sound, link, file, both, huge, empty = results
    assert picture.tool_result == "[image of type image/png, 8 bytes: kept on record]"
    assert sound.tool_result == "[audio of type audio/wav, 8 bytes: kept on record]"
    assert link.tool_result == "[resource shop://7, seven: The seventh.]"
    assert file.tool_result == "shop://8:\neight"
    assert both.tool_result == {"result": {"size": 7}, "attached": [picture.tool_result]}
    assert [each.document["content"][0]["type"] for each in results[:5]] == [
        "image",
        "audio",
        "resource_link",
        "resource",
        "image",
    ]
    assert huge.tool_result.endswith("x\n[100,000 more characters: kept on record]")
    assert len(huge.document["content"][0]["text"]) == 500_000
    assert (empty.tool_result, empty.outcome, empty.document) == ("", "ok", None)


async def test_a_server_that_writes_rubbish_is_understood_and_named_once(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    source = odd("rubbish")
    async with gesta.open() as record:
        outcome = await record.run(agent_of(source, gesta.call("twice"), gesta.call("file"), "Done."), "Go.")
        results = of_kind(await record.read(outcome.run), ToolResultContent)
    assert [each.tool_result for each in results] == ["twice: first", "shop://8:\neight"]
    said = [each.getMessage() for each in caplog.records if each.name == "gesta" and each.levelno == logging.WARNING]
    assert len(said) == 1, said
    assert "writes lines that are not messages" in said[0]
    assert not [each for each in caplog.records if each.exc_info]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("tool", ["wrong", "late"])
async def test_a_call_that_is_never_answered_is_in_doubt(tool: str) -> None:
    async with gesta.open() as record:
        agent = agent_of(odd("none", timeouts={tool: 0.05}), gesta.call(tool), gesta.call("file"), "Done.")
        outcome = await record.run(agent, "Go.", session="s")
        assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", tool)]
        await record.resolve(outcome.waiting[0], "done", by="Ada", result="paid")
        assert (await record.resume("s", agent)).answer == "Done."


async def test_a_server_that_does_not_answer_in_time_is_named_before_anything_is_written() -> None:
    async with gesta.open() as record:
        with pytest.raises(NoServer, match=r"it did not answer within 0\.05 s"):
            await record.run(agent_of(odd("mute", start_s=0.05), "Done."), "Go.")
        assert await record.store.runs() == []


async def test_tools_that_no_model_should_be_offered_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with gesta.open() as record:
        outcome = await record.run(agent_of(odd("hostile"), "Done."), "Go.")
        (header,) = of_kind(await record.read(outcome.run), RequestHeaderContent)
    (tool,) = header.tools
    assert (tool["name"], tool["description"]) == ("pay___me", "Pay all.")
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert ["refers to another document" in said[0], "deeper than" in said[1], "more than" in said[2]] == [True] * 3
    assert len(said) == 3


@pytest.mark.parametrize("name", ["pays", "transfer"])
async def test_a_tool_that_needs_approval_and_is_renamed_in_a_turn_is_not_offered_without(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with gesta.open() as record:
        agent = agent_of(odd("renames", name, approval=["pay"]), gesta.call("pay"), gesta.call(name), "Done.")
        outcome = await record.run(agent, "Go.", session="s")
        await record.approve(outcome.waiting[0], by="Ada")
        outcome = await record.resume("s", agent)
        results = of_kind(await record.read(outcome.run), ToolResultContent)
    assert outcome.answer == "Done."
    assert [each.outcome for each in results] == ["ok", "error"]
    said = [each.getMessage() for each in caplog.records if "goes on with the tools that it had" in each.getMessage()]
    assert len(said) == 1


async def test_of_many_tools_the_rest_is_left_out_with_one_warning_and_like_names_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with gesta.open() as record:
        outcome = await record.run(agent_of(odd("many"), "Done."), "Go.")
        (header,) = of_kind(await record.read(outcome.run), RequestHeaderContent)
    names = [each["name"] for each in header.tools]
    assert (len(set(names)), names[0], names[4]) == (500, "pay", "t4")
    assert all(name.startswith("pay_") for name in names[1:4])
    (said,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert said.endswith("lists more than 500 tools; 3 are left out.")


@pytest.mark.slow
async def test_a_server_that_does_not_end_by_itself_is_ended(tmp_path: Path) -> None:
    async with gesta.open() as record:
        assert (await record.run(agent_of(odd("deaf", tmp_path), gesta.call("file"), "Done."), "Go.")).answer == "Done."
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


LOST = [(502, ""), (504, ""), (200, ""), (202, ""), (200, "<html>Log in</html>"), (200, '{"jsonrpc": "2.0", "id"')]
LOST += [
    (200, '{"jsonrpc": "2.0", "id": 4711, "result": {"content": []}}'),
    (200, "[]"),
    (200, "[" * 100_000),
    (302, ""),
]


@pytest.mark.parametrize(("status", "body"), LOST if FULL else [LOST[0], LOST[4], LOST[6], LOST[-1]])
async def test_a_reply_of_http_that_is_no_answer_leaves_a_doubt(status: int, body: str, tmp_path: Path) -> None:
    with http_shop(tmp_path) as url:
        agent = agent_of(gesta.mcp(url), gesta.call("pay", item="soup"), gesta.call("look", item="soup"), "Done.")
        (tmp_path / "body").write_text(body)
        (tmp_path / "status").write_text(str(status))
        async with gesta.open() as record:
            outcome = await record.run(agent, "Buy.", session="s")
            assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "pay")]
            (fault,) = of_kind(await record.read(outcome.run), FaultContent)
            assert f"was lost in the middle of 'pay': HTTP {status}" in fault.error.message
            await record.resolve(outcome.waiting[0], "done", by="Ada", result="paid")
            outcome = await record.resume("s", agent)
    assert outcome.answer == "Done."
    assert lines(tmp_path, "effects") == ["pay soup", "look soup"]


EVENTS = [
    "upstream timed out",
    '{"jsonrpc": "2.0", "id"',
    '{"paid": true}',
    '{"jsonrpc": "2.0", "id": 3, "result": []}',
]
EVENTS += ['{"jsonrpc": "2.0", "id": 4711, "result": {"content": []}}']


@pytest.mark.parametrize("data", EVENTS if FULL else [EVENTS[0], EVENTS[4]])
async def test_an_event_of_http_that_is_no_answer_leaves_a_doubt(
    data: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with http_shop(tmp_path) as url:
        agent = agent_of(gesta.mcp(url), gesta.call("pay", item="soup"), "Done.")
        (tmp_path / "body").write_text(f"data: {data}\n\n" * 2)
        (tmp_path / "type").write_text("text/event-stream")
        (tmp_path / "status").write_text("200")
        async with gesta.open() as record:
            outcome = await record.run(agent, "Buy.", session="s")
            assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "pay")]
            (fault,) = of_kind(await record.read(outcome.run), FaultContent)
            assert "was lost in the middle of 'pay'" in fault.error.message
    said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(said) == 1, said
    assert "writes lines that are not messages" in said[0]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_result_that_cannot_be_read_leaves_a_doubt(transport: str, tmp_path: Path) -> None:
    with either(transport, tmp_path) as source:
        (tmp_path / "odd").write_text(json.dumps({"content": "paid soup"}))
        async with gesta.open() as record:
            agent = agent_of(source, gesta.call("pay", item="soup"), gesta.call("look", item="soup"), "Done.")
            outcome = await record.run(agent, "Buy.", session="s")
            assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "pay")]
            (fault,) = of_kind(await record.read(outcome.run), FaultContent)
            assert "paid soup" in fault.error.message
            await record.resolve(outcome.waiting[0], "done", by="Ada", result="paid")
            outcome = await record.resume("s", agent)
            *_, looked = of_kind(await record.read(outcome.run), ToolResultContent)
    assert (outcome.answer, looked.outcome) == ("Done.", "error")
    assert "cannot be read" in looked.tool_result
    assert lines(tmp_path, "effects") == ["pay soup", "look soup"]


async def test_a_result_that_misses_its_schema_is_read_as_it_came() -> None:
    async with gesta.open() as record:
        agent = agent_of(odd("none"), gesta.call("misfit"), gesta.call("bare"), "Done.")
        outcome = await record.run(agent, "Go.")
        misfit, bare = of_kind(await record.read(outcome.run), ToolResultContent)
    assert (misfit.outcome, misfit.tool_result) == ("ok", {"size": "no number"})
    assert (bare.outcome, bare.tool_result) == ("ok", "done")


async def test_structured_content_is_bounded_and_told_with_an_error() -> None:
    async with gesta.open() as record:
        agent = agent_of(odd("none"), gesta.call("large"), gesta.call("broken"), "Done.")
        outcome = await record.run(agent, "Go.")
        large, broken = of_kind(await record.read(outcome.run), ToolResultContent)
    assert large.tool_result.startswith('{"x": "yyy')
    assert large.tool_result.endswith("y\n[100,009 more characters: kept on record]")
    assert large.document["structuredContent"] == {"x": "y" * 500_000}
    assert broken.outcome == "error"
    assert broken.tool_result == '[image of type image/png, 8 bytes: left out]\n\n{"code": 7, "why": "no stock"}'


@pytest.mark.skipif(not FULL, reason="64 MiB")
async def test_a_reply_of_http_that_is_too_large_leaves_a_doubt(tmp_path: Path) -> None:
    with http_shop(tmp_path) as url:
        (tmp_path / "body").write_bytes(b" " * (65 << 20))
        (tmp_path / "status").write_text("200")
        async with gesta.open() as record:
            outcome = await record.run(agent_of(gesta.mcp(url), gesta.call("pay", item="soup"), "Done."), "Buy.")
            (fault,) = of_kind(await record.read(outcome.run), FaultContent)
    assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "pay")]
    assert "the reply has more than 67108864 bytes" in fault.error.message


@pytest.mark.parametrize("status", [401, 500, 503] if FULL else [503])
async def test_a_status_of_http_that_refuses_is_read_by_the_model(status: int, tmp_path: Path) -> None:
    with http_shop(tmp_path) as url:
        agent = agent_of(gesta.mcp(url), gesta.call("pay", item="soup"), "Done.")
        (tmp_path / "status").write_text(str(status))
        async with gesta.open() as record:
            outcome = await record.run(agent, "Buy.")
            (result,) = of_kind(await record.read(outcome.run), ToolResultContent)
    assert (outcome.answer, result.outcome) == ("Done.", "error")
    assert f"refused the call: HTTP {status}" in result.tool_result


async def test_a_call_whose_session_was_forgotten_is_made_in_a_new_one(tmp_path: Path) -> None:
    with http_shop(tmp_path) as url:
        agent = agent_of(gesta.mcp(url), gesta.call("look", item="soup"), gesta.call("pay", item="soup"), "Done.")

        def forget(event: gesta.Event) -> None:
            if event.type == "result":
                (tmp_path / "forget").touch()

        async with gesta.open() as record:
            outcome = await record.run(agent, "Buy.", listener=forget)
            faults = of_kind(await record.read(outcome.run), FaultContent)
    assert (outcome.answer, faults) == ("Done.", [])
    assert lines(tmp_path, "effects") == ["look soup", "pay soup"]


async def test_a_server_that_forgets_every_session_leaves_a_doubt(tmp_path: Path) -> None:
    with http_shop(tmp_path) as url:
        agent = agent_of(gesta.mcp(url), gesta.call("pay", item="soup"), "Done.")
        (tmp_path / "forgetful").touch()
        async with gesta.open() as record:
            outcome = await record.run(agent, "Buy.", session="s")
            (fault,) = of_kind(await record.read(outcome.run), FaultContent)
    assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "pay")]
    assert "forgets its sessions at once" in fault.error.message
    assert lines(tmp_path, "effects") == []


async def test_a_server_that_never_answers_that_its_session_is_over_holds_no_record_open(tmp_path: Path) -> None:
    with http_shop(tmp_path) as url:
        (tmp_path / "stuck").touch()
        async with gesta.open() as record:
            outcome = await record.run(agent_of(gesta.mcp(url), gesta.call("look", item="soup"), "Done."), "Buy.")
    assert outcome.answer == "Done."


async def test_a_wrong_address_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with http_shop(tmp_path) as url:
        async with gesta.open() as record:
            with pytest.raises(NoServer, match=r"/nowhere'? cannot be used: .*HTTP 404"):
                await record.run(agent_of(gesta.mcp(url.replace("/mcp", "/nowhere")), "Done."), "Buy.")
            assert await record.store.runs() == []
    async with gesta.open() as record:
        with pytest.raises(NoServer, match=r"cannot be used: .*ConnectError"):
            await record.run(agent_of(gesta.mcp(url), "Done."), "Buy.")
