"""Servers of the protocol's version 2026-07-28 that ask a person: what they return, forget, and demand."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context as ServerContext
from mcp.server.mcpserver import RequestStateSecurity
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)

import gesta
from gesta.kinds import AttemptContent, FaultContent, QuestionContent, ToolResultContent

pytestmark = pytest.mark.sample(2, over="parent")

SIZE = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}


class Shop:
    """A server of the official library, whose tools return their questions."""

    def __init__(self) -> None:
        self.effects = list[str]()
        self.calls = 0
        self.opened = False
        self.slow = 0
        """Number of next answered calls that take too long."""
        self.port = 0
        self.pages = count(1)

    def served(self, key: bytes = b"k" * 32) -> AbstractContextManager[int]:
        """Serve it; with another key it knows no token of before."""
        server = MCPServer("shop", version="2.0", request_state_security=RequestStateSecurity(keys=[key]))
        for tool in (self.order, self.compose, self.connect, self.nag):
            server.tool()(tool)

        @server.tool()
        async def grow(ctx: ServerContext) -> str:
            """Have one more tool."""
            if not self.effects:
                self.effects.append("grown")
                server.add_tool(self.connect, name="grown")
                await ctx.notify_tools_changed()
            return "grown"

        return serving(server, self.port)

    async def order(self, item: str, ctx: ServerContext) -> str | InputRequiredResult:
        """Order an item, in a size that a person says."""
        self.calls += 1
        found = (ctx.input_responses or {}).get("size")
        if found is None:
            asked = ElicitRequest(params=ElicitRequestFormParams(message="Which size?", requested_schema=SIZE))
            return InputRequiredResult(input_requests={"size": asked}, request_state=f"half of {item}")
        assert ctx.request_state == f"half of {item}"
        if self.slow:
            self.slow -= 1
            await anyio.sleep_forever()
        said = getattr(found, "content", None) or {}
        self.effects.append(f"{item} {said.get('size', getattr(found, 'action', ''))}")
        return self.effects[-1]

    async def compose(self, ctx: ServerContext) -> str | InputRequiredResult:
        """Write a poem, with words of a model."""
        if ctx.input_responses:
            return ctx.input_responses["poem"].content.text  # type: ignore[union-attr] # what it asked for
        said = SamplingMessage(role="user", content=TextContent(type="text", text="Praise soup."))
        asked = CreateMessageRequest(params=CreateMessageRequestParams(messages=[said], max_tokens=9))
        return InputRequiredResult(input_requests={"poem": asked})

    async def connect(self) -> str:
        """Connect an account, once a person has opened a page that is another one each time."""
        if self.opened:
            self.effects.append("connected")
            return "connected"
        number = next(self.pages)
        page = ElicitRequestURLParams(
            mode="url", message="Log in.", url=f"https://host.example/{number}", elicitation_id=str(number)
        )
        raise UrlElicitationRequiredError([page])

    async def nag(self) -> InputRequiredResult:
        """Ask for ever."""
        asked = ElicitRequest(params=ElicitRequestFormParams(message="And now?", requested_schema=SIZE))
        return InputRequiredResult(input_requests={"size": asked}, request_state="again")


@contextmanager
def serving(server: MCPServer, port: int) -> Iterator[int]:
    """Serve over streamable HTTP in a thread, and yield the port."""
    config = uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error")
    config.load()
    http, listening = uvicorn.Server(config), config.bind_socket()
    thread = threading.Thread(target=http.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        http.should_exit = True
        thread.join(10)


def agent_of(port: int, *said: Any, **options: Any) -> gesta.Agent:
    source = gesta.mcp(f"http://127.0.0.1:{port}/mcp", **options)
    return gesta.Agent("buyer", model=gesta.scripted(*said), tools=[source])


def of_kind(entries: list[gesta.Entry], kind: Any) -> list[Any]:
    return [each.content for each in entries if isinstance(each.content, kind)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("key", [b"k" * 32, b"another key of at least 32 bytes!"])
async def test_another_process_goes_on_with_what_a_server_has_returned(key: bytes, tmp_path: Path) -> None:
    shop = Shop()
    with shop.served() as shop.port:
        agent = agent_of(shop.port, gesta.call("order", item="soup"), "Done.")
        async with gesta.open(tmp_path / "r.gesta") as record:
            outcome = await record.run(agent, "Buy.", session="s")
            assert [each.question for each in outcome.waiting] == ["shop asks: Which size?"]
            (fault,) = of_kind(await record.read(outcome.run), FaultContent)
    assert (fault.error.type, bool(fault.state["state"])) == ("asks", True)
    with shop.served(key):
        async with gesta.open(tmp_path / "r.gesta") as record:
            await record.answer(outcome.waiting[0], {"size": "large"}, by="Ada")
            ended = await record.resume("s", agent)
            entries = await record.read(ended.run)
    assert ended.answer == "Done."
    assert [each.tool_result for each in of_kind(entries, ToolResultContent)] == [{"result": "soup large"}]
    assert shop.effects == ["soup large"]
    assert shop.calls == (2 if key == b"k" * 32 else 3), "a forgotten token is asked for once more"
    assert len(of_kind(entries, QuestionContent)) == 1, "the person is not"
    assert len({each.key for each in of_kind(entries, AttemptContent)}) == 1


async def test_a_call_that_is_lost_after_the_answer_goes_on_with_what_the_server_had_returned() -> None:
    shop = Shop()
    with shop.served() as port:
        agent = agent_of(
            port, gesta.call("order", item="soup"), "Done.", effects={"order": "idempotent"}, timeouts={"order": 1}
        )
        async with gesta.open() as record:
            outcome = await record.run(agent, "Buy.", session="s")
            await record.answer(outcome.waiting[0], {"size": "large"}, by="Ada")
            shop.slow = 1
            assert (await record.resume("s", agent)).answer == "Done."
    assert (shop.effects, shop.calls) == (["soup large"], 3), "one that asks, one that is lost, one that goes on"


async def test_a_person_declines_what_a_server_has_returned() -> None:
    shop = Shop()
    with shop.served() as port:
        agent = agent_of(port, gesta.call("order", item="soup"), "Done.")
        async with gesta.open() as record:
            outcome = await record.run(agent, "Buy.", session="s")
            await record.answer(outcome.waiting[0], "decline", by="Ada")
            assert (await record.resume("s", agent)).answer == "Done."
    assert shop.effects == ["soup decline"]


@pytest.mark.parametrize("sampling", [True, False])
async def test_a_server_that_returns_a_text_for_the_model_is_answered_if_it_may_be(sampling: bool) -> None:
    def choose(messages: list[Any], header: Any) -> Any:
        if header.tools:
            return gesta.call("compose") if len(messages) == 1 else "Done."
        return "O soup!"

    with Shop().served() as port:
        source = gesta.mcp(f"http://127.0.0.1:{port}/mcp", sampling=sampling)
        agent = gesta.Agent("poet", model=gesta.function(choose), tools=[source])
        async with gesta.open() as record:
            outcome = await record.run(agent, "Write.")
            (result,) = of_kind(await record.read(outcome.run), ToolResultContent)
    refused = "the MCP server 'shop' wants what it cannot have: sampling/createMessage is not supported here"
    assert result.tool_result == ({"result": "O soup!"} if sampling else refused)


@pytest.mark.parametrize("last", ["accept", "decline"])
async def test_a_page_that_a_server_wants_opened_is_opened_by_a_person_or_the_call_fails(last: str) -> None:
    shop = Shop()
    with shop.served() as port:
        agent = agent_of(port, gesta.call("connect"), "Done.")
        async with gesta.open() as record:
            outcome = await record.run(agent, "Go.", session="s")
            assert "Open https://host.example/1, and answer accept" in str(outcome.waiting[0].question)
            await record.answer(outcome.waiting[0], "accept", by="Ada")  # but the page was not seen through
            outcome = await record.resume("s", agent)
            assert "Open https://host.example/2, and" in str(outcome.waiting[0].question)
            shop.opened = last == "accept"
            await record.answer(outcome.waiting[0], last, by="Ada")
            outcome = await record.resume("s", agent)
            (result,) = of_kind(await record.read(outcome.run), ToolResultContent)
    assert outcome.answer == "Done."
    assert (result.outcome, shop.effects) == (("ok", ["connected"]) if last == "accept" else ("error", []))
    assert last == "accept" or "A person did not open the page that shop wants" in result.tool_result


@pytest.mark.slow
async def test_a_server_that_asks_for_ever_is_refused_in_the_end() -> None:
    with Shop().served() as port:
        agent = agent_of(port, gesta.call("nag"), "Done.")
        async with gesta.open() as record:
            outcome = await record.run(agent, "Go.", session="s")
            while outcome.reason == "waiting":
                await record.answer(outcome.waiting[0], "cancel", by="Ada")
                outcome = await record.resume("s", agent)
            entries = await record.read(outcome.run)
    (result,) = of_kind(entries, ToolResultContent)
    assert "a call may ask a person 25 times, and this one asks once more" in result.tool_result
    assert len(of_kind(entries, QuestionContent)) == 25


async def test_an_agent_that_nobody_answers_for_refuses_what_a_server_returns() -> None:
    with Shop().served() as port:
        agent = agent_of(port, gesta.call("order", item="soup"), "Done.", elicitation=False)
        async with gesta.open() as record:
            outcome = await record.run(agent, "Buy.")
            (result,) = of_kind(await record.read(outcome.run), ToolResultContent)
    assert outcome.answer == "Done."
    assert "wants what it cannot have: elicitation/create is not supported here" in result.tool_result


async def test_a_server_that_tells_changes_to_subscribers_is_listed_again() -> None:
    seen = list[bool]()

    def choose(_: Any, header: Any) -> Any:
        seen.append(any(tool["name"] == "grown" for tool in header.tools))
        return "Done." if seen[-1] else gesta.call("grow")

    with Shop().served() as port:
        agent = gesta.Agent("buyer", model=gesta.function(choose), tools=[gesta.mcp(f"http://127.0.0.1:{port}/mcp")])
        async with gesta.open() as record:
            assert (await record.run(agent, "Go.")).answer == "Done."
    assert (seen[0], seen[-1]) == (False, True)
