"""Agents as tools of MCP, driven by the client of the official package, in both eras of the protocol."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitResult
from starlette.applications import Starlette
from tests.serving import DESK, served

import gesta
from gesta.errors import AgentError
from gesta.policy import Policy
from gesta.serve import Access
from gesta.serve.mcp.asked import forms
from gesta.serve.mcp.described import agent_tools
from gesta.serve.mcp.http import agents_app
from gesta.serve.service import Places
from gesta.text.redactor import SECRETS
from gesta.tools.person import ask_person

pytestmark = pytest.mark.sample(2, over="parent")

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])
TOKEN, OTHER = "a-token-of-a-client-3141592653589793", "a-token-of-another-2718281828459045"


class Mounted:
    """An application that has that of Gesta mounted under `/agents`, as programs of users do it."""

    def __init__(self, record: str, agents: Any, access: Access, *, work: bool) -> None:
        @asynccontextmanager
        async def lifespan(web: Starlette) -> AsyncIterator[None]:
            async with gesta.open(record) as opened:
                made, self.service = agents_app(opened, agents, access, work=work, texts={})
                web.mount("/agents", made)
                yield

        self.web = Starlette(lifespan=lifespan)

    def drain(self) -> None:
        """End the streams."""
        self.service.drain()


def mounted(record: str, agents: Any, access: Access, *, work: bool) -> tuple[Starlette, Mounted]:
    """Return that application, for `served`."""
    made = Mounted(record, agents, access, work=work)
    return made.web, made


@dataclass
class City:
    """A city, and how warm it is."""

    name: str
    degrees: int


class Shop:
    """A shop whose one tool begins, and waits until it may go on."""

    def __init__(self) -> None:
        self.begun, self.go, self.paid = threading.Event(), threading.Event(), list[int]()

    def agent(self, name: str = "shop", **options: Any) -> gesta.Agent[Any]:
        """Return an agent that pays for an order."""

        @gesta.tool(effect="idempotent")
        def pay(order: int, context: gesta.Context) -> str:
            """Pay for an order."""
            self.begun.set()
            while not self.go.wait(0.01) and not context.cancelled():
                pass
            self.paid.append(order)
            return "paid"

        def choose(messages: list[dict[str, Any]], _header: Any) -> Any:
            return "It is paid." if messages[-1]["role"] == "tool" else gesta.call("pay", order=7)

        return gesta.Agent(name, model=gesta.function(choose), tools=[pay], **options)


def told(result: CallToolResult) -> str:
    """Return the text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


@asynccontextmanager
async def client(address: str, mode: str = "auto", *, token: str | None = None, **more: Any) -> AsyncIterator[Client]:
    """Connect the client of the official package."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=20) as http:
        transport = streamable_http_client(f"{address}/mcp", http_client=http)
        async with Client(transport, mode=mode, **more) as made:
            yield made


def answering(**content: Any) -> tuple[Any, list[str]]:
    """Return a person who fills in every form, and the list of what the person was asked."""
    asked = list[str]()

    async def elicit(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content=content)

    return elicit, asked


serving = partial(served, make=partial(agents_app, texts={}))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    clerk = gesta.Agent("clerk", model=gesta.function(_clerk), tools=[ask_person(), post])
    typed = gesta.Agent("typed", model=gesta.function(lambda *_: '{"name": "Rome", "degrees": 21}'), output=City)
    counts = gesta.Agent("counts", model=gesta.function(lambda *_: '{"value": [1, 2]}'), output=list[int])
    odd = gesta.Agent("odd", model=gesta.function(lambda *_: "half \ud83d, \u202eback, \x1b[31mred"))
    agents = [DESK, clerk, typed, counts, odd]
    with serving(tmp_path_factory.mktemp("desk") / "desk.gesta", agents=agents) as address:
        yield address


@gesta.tool(effect="once")
def post(to: str) -> str:
    """Send a letter; this one never learns whether it went out."""
    raise gesta.InDoubt("the line went dead")


def _clerk(messages: list[dict[str, Any]], _header: Any) -> Any:
    words = str(messages[-1]["content"])
    if messages[-1]["role"] == "tool":
        return f"It says: {words}"
    return gesta.call("post", to="ann") if "letter" in words else gesta.call("ask_person", question="Which colour?")


def test_each_agent_is_a_tool_with_its_text_its_schemas_and_hints_on_its_effects() -> None:
    looks = gesta.Agent(
        "looks", model="", instructions="Looks things up.\nMore.", tools=[gesta.tool(effect="pure")(_w)]
    )
    above = gesta.Agent("above", tools=[looks.as_tool()])
    silent = gesta.Agent("is silent", tools=[gesta.tool(_w)])
    program = gesta.Agent("program", program=_program)
    typed = gesta.Agent("typed", output=City)
    found = agent_tools([looks, above, silent, program, typed], {"above": "Asks another."})
    assert [(each.tool.name, each.tool.title, each.tool.description) for each in found.values()] == [
        ("looks", "looks", "Looks things up."),
        ("above", "above", "Asks another."),
        ("is_silent", "is silent", "Send a message to the agent is silent, and get its answer."),
        ("program", "program", "Do what a program does."),
        ("typed", "typed", "Send a message to the agent typed, and get its answer."),
    ]
    hints = {name: each.tool.annotations for name, each in found.items()}
    reads = [
        name for name, hint in hints.items() if hint is not None and hint.read_only_hint and not hint.destructive_hint
    ]
    assert reads == ["looks", "above", "typed"]
    assert {name for name, each in found.items() if each.tool.output_schema} == {"typed"}
    assert found["looks"].tool.input_schema["required"] == ["message"]


def _w(city: str) -> str:
    return city


async def _program(_verbs: Any, message: str) -> str:
    """Do what a program does.

    And more.
    """
    return message


def test_two_agents_with_one_name_as_tools_and_a_description_of_nobody_are_refused() -> None:
    with pytest.raises(AgentError, match=r"'a b' and 'a_b' are both 'a_b' as tools. Give one of them another name"):
        agent_tools([gesta.Agent("a b"), gesta.Agent("a_b")], {})
    with pytest.raises(AgentError, match=r"No agent 'dsek' to describe. Did you mean 'desk'"):
        agent_tools([gesta.Agent("desk")], {"dsek": "x"})


@ERAS
async def test_a_message_is_answered_and_its_progress_told(desk: str, mode: str) -> None:
    heard = list[tuple[float, str | None]]()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        del total
        heard.append((progress, message))

    async with client(desk, mode) as one:
        assert one.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        assert [tool.name for tool in (await one.list_tools()).tools] == ["desk", "clerk", "typed", "counts", "odd"]
        said = {"message": "How is the weather?", "session": f"w-{mode}"}
        answer = await one.call_tool("desk", said, progress_callback=hear)
        assert (told(answer), answer.is_error) == ("It says: Rome: 21 degrees, dry", False)
        assert answer.meta is not None
        assert (answer.meta["gesta/session"], answer.meta["gesta/reason"]) == (f"w-{mode}", "answered")
        assert [done for done, _ in heard] == list(range(1, len(heard) + 1))
        assert {'calls weather(city="Rome")', "weather: ok", "writes"} <= {message for _, message in heard}
        second = await one.call_tool("desk", {"message": "Hello.", "session": f"w-{mode}"})
        assert told(second) == "You said: How is the weather? | Hello."


@ERAS
async def test_an_answer_of_a_type_is_structured_content_that_fits_the_schema(desk: str, mode: str) -> None:
    async with client(desk, mode) as one:
        answer = await one.call_tool("typed", {"message": "Rome?"})
        assert answer.structured_content == {"name": "Rome", "degrees": 21}
        counted = await one.call_tool("counts", {"message": "Count."})
        assert counted.structured_content == {"value": [1, 2]}


@ERAS
async def test_a_turn_that_waits_says_for_what_and_the_same_call_goes_on_afterwards(desk: str, mode: str) -> None:
    said = {"message": "I want a refund.", "key": f"r-{mode}"}
    async with client(desk, mode) as one:
        waits = await one.call_tool("desk", said)
        assert waits.is_error
        words, facts = told(waits), waits.structured_content
        assert "Waiting for approval of refund(order=42, cents=6490)" in words
        assert f"gesta approve {facts['run']} --record " in words
        assert facts["settle"][0] in words
        assert (facts["reason"], facts["waiting"][0]["for"], facts["key"]) == ("waiting", "approval", f"r-{mode}")
        assert httpx2.post(f"{desk}/runs/{facts['run']}/approve", json={"by": "ann"}).status_code == 202
        answer = await one.call_tool("desk", {**said, "session": facts["session"]})
        assert told(answer) == "It says: 6490 cents for order 42 are on their way"
        again = await one.call_tool("desk", said)
        assert again.meta is not None
        assert answer.meta is not None
        assert (told(again), again.meta["gesta/turn"]) == (told(answer), answer.meta["gesta/turn"])


@ERAS
async def test_a_person_at_the_client_is_asked_for_an_approval(desk: str, mode: str) -> None:
    elicit, asked = answering(approve=True, reason="seen the photo")
    async with client(desk, mode, elicitation_callback=elicit) as one:
        answer = await one.call_tool("desk", {"message": "refund", "session": f"yes-{mode}"})
    assert told(answer) == "It says: 6490 cents for order 42 are on their way"
    assert asked == ["The agent desk wants to call refund(order=42, cents=6490). Allow it?"]
    events = httpx2.get(f"{desk}/sessions/yes-{mode}", params={"calls": 1}).json()
    assert "on their way" in json.dumps(events)
    elicit, asked = answering(approve=False)
    async with client(desk, mode, elicitation_callback=elicit) as one:
        answer = await one.call_tool("desk", {"message": "refund", "session": f"no-{mode}"})
    assert not answer.is_error
    assert told(answer) == "It says: A person did not allow this call."


@pytest.mark.sample(3)
@ERAS
@pytest.mark.parametrize(
    "result", [("decline", None), ("cancel", None), ("accept", {"approve": "yes"}), ("accept", {})]
)
async def test_a_person_who_does_not_answer_leaves_the_turn_waiting(desk: str, mode: str, result: Any) -> None:
    async def elicit(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action=result[0], content=result[1])

    async with client(desk, mode, elicitation_callback=elicit) as one:
        waits = await one.call_tool("desk", {"message": "refund"})
    assert waits.is_error
    assert waits.structured_content["waiting"][0]["for"] == "approval"
    run = waits.structured_content["run"]
    assert httpx2.get(f"{desk}/runs/{run}").json()["waiting"]


@ERAS
async def test_a_question_and_a_doubt_are_asked_for_too(desk: str, mode: str) -> None:
    elicit, asked = answering(answer="blue", verdict="done", result='{"sent": true}')
    async with client(desk, mode, elicitation_callback=elicit) as one:
        colour = await one.call_tool("clerk", {"message": "Order a lamp."})
        letter = await one.call_tool("clerk", {"message": "Send a letter."})
    assert told(colour) == "It says: blue"
    assert "sent" in told(letter)
    assert asked[0] == "The agent clerk asks: Which colour?"
    assert asked[1].startswith('The agent clerk called post(to="ann"), and nobody knows whether it happened.')


def test_a_question_is_asked_in_a_form_of_one_level_or_as_json() -> None:
    def asked(schema: Any) -> Any:
        (form,) = forms([gesta.Waiting("question", of=3, run="r", question="?", schema=schema)], "a")
        return form.params.requested_schema["properties"]

    flat = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    assert asked(flat) == flat["properties"]
    assert asked({"type": "integer"}) == {"answer": {"type": "integer"}}
    assert asked(None) == {"answer": {"type": "string"}}
    deep = asked({"type": "array", "items": {"type": "integer"}})["answer"]
    assert deep["type"] == "string"
    assert '"items"' in deep["description"]
    assert not forms([gesta.Waiting("resume"), gesta.Waiting("approval", of=1, refused="no proof")], "a")


async def test_a_message_that_is_sent_again_runs_once(tmp_path: Path) -> None:
    shop = Shop()
    with serving(tmp_path / "shop.gesta", agents=[shop.agent()]) as address:
        async with client(address) as one, client(address, "legacy") as two, anyio.create_task_group() as group:
            answers = list[str]()

            async def ask(who: Client) -> None:
                answers.append(told(await who.call_tool("shop", {"message": "Pay.", "key": "m1"})))

            group.start_soon(ask, one)
            await happened(shop.begun)
            group.start_soon(ask, two)
            shop.go.set()
        assert answers == ["It is paid."] * 2
        async with client(address) as one:
            assert (
                told(await one.call_tool("shop", {"message": "Pay."}, meta=cast("Any", {"gesta/key": "m1"})))
                == "It is paid."
            )
            other = await one.call_tool("shop", {"message": "Pay twice.", "key": "m1"})
            assert other.is_error
            assert "m1" in told(other)
    assert shop.paid == [7]


class Watched(Places):
    """Places for turns that tell when there are two of them, and when one was left."""

    def __init__(self) -> None:
        super().__init__(9, "turns", "")
        self.two, self.left = threading.Event(), threading.Event()

    def occupy(self) -> None:
        super().occupy()
        if self.taken == 2:
            self.two.set()

    def free(self) -> None:
        super().free()
        self.left.set()

    async def free_after(self, ended: anyio.Event) -> None:
        self.left.set()
        await super().free_after(ended)


@contextmanager
def watching(record: Path, shop: Shop, **options: Any) -> Iterator[tuple[str, Watched]]:
    """Serve a shop, and yield the address and its places for turns."""
    turns = Watched()

    def make(*args: Any, work: bool) -> Any:
        app, service = agents_app(*args, work=work, texts={})
        service.turns = turns
        return app, service

    with served(record, agents=[shop.agent(**options)], make=make) as address:
        yield address, turns


async def happened(event: threading.Event) -> None:
    """Wait for what another thread does."""
    assert await anyio.to_thread.run_sync(event.wait, 10)


@pytest.mark.parametrize(("mode", "stands"), [("legacy", "cancelled"), ("auto", "answered")])
async def test_a_client_that_cancels_ends_the_turn_and_one_that_leaves_does_not(
    tmp_path: Path, mode: str, stands: str
) -> None:
    shop, said = Shop(), {"message": "Pay.", "session": "s", "key": "m1"}
    with watching(tmp_path / "shop.gesta", shop) as (address, turns):
        async with client(address, mode) as one:
            async with anyio.create_task_group() as group:
                group.start_soon(one.call_tool, "shop", said)
                await happened(shop.begun)
                group.cancel_scope.cancel()
            await happened(turns.left)
            shop.go.set()
            again = await one.call_tool("shop", said)
        assert again.meta is not None
        assert again.meta["gesta/reason"] == stands
        assert again.is_error is (stands == "cancelled")
        if again.is_error:
            assert told(again) == "The turn ended with cancelled: cancelled by mcp: caller cancelled"
    assert shop.paid == [7]


async def test_a_cancellation_ends_no_turn_of_another_message(tmp_path: Path) -> None:
    shop, answers = Shop(), list[str]()
    with watching(tmp_path / "shop.gesta", shop) as (address, turns):
        async with client(address, "legacy") as one, anyio.create_task_group() as group:

            async def first() -> None:
                answers.append(told(await one.call_tool("shop", {"message": "Pay.", "session": "s", "key": "m1"})))

            group.start_soon(first)
            await happened(shop.begun)
            async with anyio.create_task_group() as second:
                second.start_soon(one.call_tool, "shop", {"message": "Again.", "session": "s", "key": "m2"})
                await happened(turns.two)
                second.cancel_scope.cancel()
            await happened(turns.left)
            shop.go.set()
        assert answers == ["It is paid."]
        assert "Again." not in httpx2.get(f"{address}/sessions/s").text
    assert shop.paid == [7]


async def test_an_agent_that_takes_no_message_meanwhile_is_joined_by_the_same_message(tmp_path: Path) -> None:
    shop, said, answers = Shop(), {"message": "Pay.", "session": "s", "key": "m1"}, list[str]()
    with watching(tmp_path / "shop.gesta", shop, policy=Policy(when_busy="raise")) as (address, turns):
        async with client(address, "legacy") as one, anyio.create_task_group() as group:

            async def ask() -> None:
                answers.append(told(await one.call_tool("shop", said)))

            group.start_soon(ask)
            await happened(shop.begun)
            other = await one.call_tool("shop", {**said, "message": "Another.", "key": "m2"})
            assert other.is_error
            assert "is being written by" in told(other)
            turns.two.clear()
            group.start_soon(ask)
            await happened(turns.two)
            shop.go.set()
    assert answers == ["It is paid."] * 2
    assert shop.paid == [7]


async def test_an_agent_whose_policy_says_so_stops_when_its_client_leaves(tmp_path: Path) -> None:
    shop = Shop()
    agent = shop.agent(policy=Policy(when_left="stop"))
    with serving(tmp_path / "shop.gesta", agents=[agent], work=False) as address:
        said = {"message": "Pay.", "session": "s", "key": "m1"}
        async with client(address) as one, anyio.create_task_group() as group:
            group.start_soon(one.call_tool, "shop", said)
            await happened(shop.begun)
            group.cancel_scope.cancel()
        shop.go.set()
        async with client(address) as one:
            assert told(await one.call_tool("shop", said)) == "It is paid."
    assert len(shop.paid) <= 2


async def test_of_two_servers_on_one_record_each_answers_for_the_other(tmp_path: Path) -> None:
    shop = Shop()
    shop.go.set()
    with (
        serving(tmp_path / "shop.gesta", agents=[shop.agent()]) as first,
        serving(tmp_path / "shop.gesta", agents=[shop.agent()]) as second,
    ):
        async with client(first) as one, client(second, "legacy") as two:
            said = {"message": "Pay.", "key": "m1"}
            assert {told(await each.call_tool("shop", said)) for each in (one, two)} == {"It is paid."}
    assert shop.paid == [7]


async def test_a_server_that_ends_leaves_the_turn_open_and_the_next_one_goes_on(tmp_path: Path) -> None:
    shop, answers = Shop(), list[CallToolResult]()
    said = {"message": "Pay.", "session": "s", "key": "m1"}
    record = tmp_path / "shop.gesta"

    def ask(address: str) -> None:
        async def main() -> None:
            async with client(address) as one:
                answers.append(await one.call_tool("shop", said))

        anyio.run(main)

    with serving(record, agents=[shop.agent()]) as address:
        asking = threading.Thread(target=ask, args=[address])
        asking.start()
        await happened(shop.begun)
    asking.join(10)
    assert answers[0].is_error
    assert "goes on when it is resumed" in told(answers[0])
    assert "call this tool again with the same message, session 's' and key 'm1'" in told(answers[0])
    with serving(record, agents=[shop.agent()]) as address:
        async with client(address) as one:
            assert told(await one.call_tool("shop", said)) == "It is paid."
    assert shop.paid == [7]


async def test_the_same_tokens_hosts_origins_and_bounds_hold(tmp_path: Path) -> None:
    access = Access(tokens={"web": TOKEN, "desk": OTHER}, body_bytes=2000, turns=1)
    shop = Shop()
    with serving(tmp_path / "desk.gesta", agents=[DESK, shop.agent()], access=access) as address:
        at, headers = (
            f"{address}/mcp",
            {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"},
        )
        assert httpx2.post(at, json={}).status_code == 401
        assert httpx2.post(at, json={}, headers={**headers, "origin": "https://evil.example"}).status_code == 403
        assert httpx2.post(at, json={"x": "y" * 2000}, headers=headers).status_code == 413
        assert httpx2.post(at, content=iter([b"x" * 1500, b"y" * 1500]), headers=headers).status_code == 413
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        begun = httpx2.post(at, json=begin, headers=headers)
        ours = {**headers, "mcp-session-id": begun.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert httpx2.post(at, json=listing, headers={**ours, "authorization": f"Bearer {OTHER}"}).status_code == 404
        async with client(address, token=TOKEN) as one, anyio.create_task_group() as group:
            group.start_soon(one.call_tool, "shop", {"message": "Pay."})
            await happened(shop.begun)
            refused = await one.call_tool("desk", {"message": "Hello."})
            shop.go.set()
        assert told(refused).startswith("There are 1 turns at work, and no more are taken at once.")
    with serving(tmp_path / "open.gesta") as address:
        assert httpx2.post(f"{address}/mcp", json={}, headers={"host": "evil.example"}).status_code == 403


async def test_mounted_under_a_path_its_tokens_streams_clients_of_openai_and_of_mcp_are_served_as_elsewhere(
    tmp_path: Path,
) -> None:
    access = Access(tokens={"web": TOKEN})
    with served(str(tmp_path / "r.gesta"), make=mounted, access=access) as address:
        under, bearer = f"{address}/agents", {"authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(timeout=20) as http:
            assert (await http.get(f"{under}/health")).json() == {"status": "ok"}
            closed = [f"{under}/{path}" for path in ("agents", "waiting", "health/", "mcp", "openapi.json")]
            assert {(await http.get(each)).status_code for each in closed} == {401}
            http.headers.update(bearer)
            assert (await http.get(f"{under}/openapi.json")).json()["servers"] == [{"url": "/agents"}]
            said = await http.post(f"{under}/sessions/a/messages", json={"message": "Hello."})
            assert said.json()["answer"] == "You said: Hello."
            events = (await http.get(f"{under}/sessions/a/events?until=end")).text
            assert "event: answer" in events
            asked = {"model": "desk", "messages": [{"role": "user", "content": "Hello."}]}
            chat = (await http.post(f"{under}/v1/chat/completions", json=asked)).json()
            assert chat["choices"][0]["message"]["content"] == "You said: Hello."
        async with client(under, token=TOKEN) as made:
            assert "You said: Hi." in told(await made.call_tool("desk", {"message": "Hi."}))


async def test_a_key_of_one_client_is_not_that_of_another(tmp_path: Path) -> None:
    access = Access(tokens={"web": TOKEN, "desk": OTHER})
    with serving(tmp_path / "desk.gesta", access=access) as address:
        sessions = set[str]()
        for token in (TOKEN, OTHER):
            async with client(address, token=token) as one:
                answer = await one.call_tool("desk", {"message": "Hello.", "key": "m1"})
                assert answer.meta is not None
                sessions.add(answer.meta["gesta/session"])
    assert len(sessions) == 2


@pytest.mark.sample(4)
@ERAS
@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("desk", {"messages": "x"}, "Object contains unknown field `messages`. Did you mean 'message'?"),
        ("desk", {}, "Object missing required field `message`."),
        ("desk", {"message": 7}, "Expected `str`, got `int` - at `$.message`."),
        ("desk", {"message": "x", "key": ""}, "key has 0 characters, expected 1 to 200."),
        ("desk", {"message": "x", "session": "y" * 201}, "session has 201 characters, expected 1 to 200."),
        ("desk", {"message": "break"}, "The turn ended with failed: the model is broken"),
    ],
)
async def test_errors_are_plain_text(desk: str, mode: str, name: str, given: Any, expected: str) -> None:
    async with client(desk, mode) as one:
        refused = await one.call_tool(name, given)
    assert refused.is_error
    assert told(refused).startswith(expected)
    assert "Traceback" not in refused.model_dump_json()


@ERAS
async def test_an_unknown_tool_is_told_with_the_nearest_one(desk: str, mode: str) -> None:
    async with client(desk, mode) as one:
        with pytest.raises(MCPError, match=r"No tool 'dsek'. Did you mean 'desk'"):
            await one.call_tool("dsek", {"message": "x"})


@ERAS
async def test_what_no_terminal_should_see_is_escaped_and_breaks_no_connection(desk: str, mode: str) -> None:
    async with client(desk, mode) as one:
        odd = await one.call_tool("odd", {"message": "x"})
        assert told(odd) == "half \\ud83d, \\u202eback, \\x1b[31mred"
        assert not (await one.call_tool("desk", {"message": "Hello."})).is_error


async def test_a_secret_of_the_process_is_in_no_answer_error_or_progress(tmp_path: Path) -> None:
    secret = "the-secret-of-this-process-161803"
    SECRETS.add("key of the shop", secret)
    heard = list[str | None]()

    @gesta.tool(effect="pure")
    def look(what: str) -> str:
        return what

    def choose(messages: list[dict[str, Any]], _header: Any) -> Any:
        if messages[-1]["role"] == "tool":
            raise ValueError(f"no access with {secret}")
        return gesta.call("look", what=secret)

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        heard.append(message)

    with serving(
        tmp_path / "desk.gesta", agents=[gesta.Agent("spy", model=gesta.function(choose), tools=[look])]
    ) as at:
        async with client(at) as one:
            failed = await one.call_tool("spy", {"message": secret}, progress_callback=hear)
    assert failed.is_error
    assert secret not in failed.model_dump_json()
    assert any(message and message.startswith("calls look") for message in heard)
    assert secret not in json.dumps(heard)
