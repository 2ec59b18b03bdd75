"""Servers of MCP in processes of their own: killed, asked to end, left by their client; what they had begun goes on once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CallToolResult, ElicitResult
from tests.commands import gesta_command
from tests.conftest import FULL
from tests.serving import served

from gesta.cli.loading import load
from gesta.serve.mcp.http import agents_app

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"] if FULL else ["auto"])
MAIN = "from gesta.cli import main; main()"
AGENT = '''
import os
import subprocess
import sys
from pathlib import Path

import gesta

print("a noise while it is imported")
HERE = Path(__file__).parent


def pay(order: int, context: gesta.Context) -> str:
    """Pay for an order."""
    with (HERE / "paid").open("a") as paid:
        print(context.key, file=paid)
    (HERE / "begun").write_text("")  # it waits for somebody who reads
    (HERE / "go").read_text()
    return "paid"


def pay_aloud(order: int, context: gesta.Context) -> str:
    """Pay for an order, and print to where the protocol was."""
    print("a noise of a tool", sys.stdin.read(), flush=False)
    subprocess.run(["echo", "a noise of a child"])
    return pay(order, context)


def choose(messages, _header):
    return f"Order 7 is {messages[-1]['content']}." if messages[-1]["role"] == "tool" else gesta.call("pay", order=7)


once, again = (gesta.tool(pay, effect=effect) for effect in ("once", "idempotent"))
asked = gesta.tool(pay_aloud, name="pay", effect="once", approval=True)
agent = gesta.Agent("shop", model=gesta.function(choose), tools=[once], instructions="Pays for orders.")
careful = gesta.Agent("careful", model=gesta.function(choose), tools=[again])
strict = gesta.Agent("strict", model=gesta.function(choose), tools=[asked])
plain = gesta.Agent("plain", model=gesta.function(lambda messages, header: f"You said: {messages[-1]['content']}"))
'''
SAID = {"message": "Pay for order 7.", "session": "anna", "key": "m1"}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    for pipe in ("begun", "go"):
        os.mkfifo(tmp_path / pipe)
    return tmp_path


def words(*agents: str) -> list[str]:
    """Return the arguments of the interpreter that serve agents of the shop."""
    named = [f"agent.py:{each}" for each in agents]
    return ["-c", MAIN, "serve", *named, "--record", "shop.gesta"]


def child(shop: Path, *rest: str) -> StdioServerParameters:
    """Return what a client starts as its child."""
    there = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return StdioServerParameters(command=sys.executable, args=[*rest, "--stdio"], cwd=shop, env=there)


@contextmanager
def started(shop: Path, *rest: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve over HTTP, and yield the process and its address of MCP."""
    command = [sys.executable, *rest, "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=shop, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["mcp"]
    finally:
        process.kill()
        process.communicate()


def serving(shop: Path, *agents: str) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """Serve agents over HTTP."""
    return started(shop, *words(*agents), "--mcp")


@contextmanager
def restarted(shop: Path, name: str) -> Iterator[str]:
    """Serve an agent in this process, as the next start of the server would, and yield the address of MCP."""
    make = partial(agents_app, texts={})
    with served(shop / "shop.gesta", agents=[load(f"{shop / 'agent.py'}:{name}")], make=make) as address:
        yield f"{address}/mcp"


def told(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def keys(shop: Path) -> list[str]:
    """Return the idempotency keys under which an order was paid."""
    return (shop / "paid").read_text().splitlines()


async def read(pipe: Path) -> None:
    """Wait until the tool is at work."""
    await anyio.to_thread.run_sync(pipe.read_text)


async def write(pipe: Path) -> None:
    """Wake the tool."""
    await anyio.to_thread.run_sync(pipe.write_text, "")


async def call_and_kill(shop: Path, process: subprocess.Popen[str], address: str, name: str, mode: str) -> None:
    """Call an agent, and kill its server while the tool is at work; the client loses its connection."""
    answers = list[CallToolResult]()

    async def ask(client: Client) -> None:
        answers.append(await client.call_tool(name, SAID))

    try:
        async with Client(address, mode=mode) as client, anyio.create_task_group() as group:
            group.start_soon(ask, client)
            await read(shop / "begun")
            process.send_signal(signal.SIGKILL)
    except* (MCPError, httpx2.HTTPError):
        assert not answers
    assert not answers


@pytest.mark.slow
@ERAS
async def test_a_client_starts_a_server_asks_it_and_leaves_no_process(shop: Path, mode: str) -> None:
    heard, asked = list[str | None](), list[str]()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        heard.append(message)

    async def elicit(context: Any, params: Any) -> ElicitResult:
        del context
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    described = ["--describe", "plain=Repeats what it hears."]
    server = child(shop, *words("strict", "plain"), *described)
    async with Client(server, mode=mode, elicitation_callback=elicit) as client:
        tools = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        assert tools["plain"] == "Repeats what it hears."
        assert told(await client.call_tool("plain", {"message": "Hello."})) == "You said: Hello."
        async with anyio.create_task_group() as group:
            group.start_soon(read, shop / "begun")
            group.start_soon(write, shop / "go")
            answer = await client.call_tool("strict", SAID, progress_callback=hear)
        assert told(answer) == "Order 7 is paid."
    assert asked == ["The agent strict wants to call pay(order=7). Allow it?"]
    assert heard == ["calls pay(order=7)", "waits: approval of pay", "pay: ok", "writes"] or mode == "auto"
    assert not servers(shop)
    assert len(keys(shop)) == 1


async def test_who_serves_tools_alone_serves_no_path_that_approves(shop: Path) -> None:
    with started(shop, *words("plain"), "--mcp", "--path", "/mcp") as (_, address):
        async with Client(address) as client:
            assert told(await client.call_tool("plain", {"message": "Hello."})) == "You said: Hello."
        async with httpx2.AsyncClient(base_url=address.removesuffix("/mcp")) as others:
            assert [(await others.get(path)).status_code for path in ("/waiting", "/openapi.json")] == [404, 404]
            assert (await others.post("/runs/last/approve", json={})).status_code == 404
    done = await anyio.run_process([sys.executable, *words("plain"), "--path", "/wait"], cwd=shop, check=False)
    assert b"or --path: found '/wait', expected a list with some of these: /health, " in done.stderr
    assert done.returncode == 1


def servers(shop: Path) -> list[str]:
    """Return the processes that work in the folder of the shop."""
    found = list[str]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == shop and int(process.name) != os.getpid():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.slow
async def test_a_client_that_goes_away_in_the_middle_leaves_a_turn_that_goes_on_once(shop: Path) -> None:
    process = await anyio.open_process([sys.executable, *words("careful"), "--stdio"], cwd=shop, stderr=None)
    assert process.stdin is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "careful", "arguments": SAID}},
    ):
        await process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    await read(shop / "begun")
    await process.stdin.aclose()
    await write(shop / "go")  # the server sees the call through, and ends
    assert await process.wait() == 0
    await process.aclose()
    with restarted(shop, "careful") as address:
        async with Client(address) as client:
            assert told(await client.call_tool("careful", SAID)) == "Order 7 is paid."
    assert len(keys(shop)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT] if FULL else [signal.SIGTERM])
async def test_a_server_over_stdio_ends_when_it_is_asked_to(shop: Path, sign: signal.Signals) -> None:
    command = [sys.executable, "-c", MAIN, "serve", "agent.py:plain", "--stdio", "--record", "shop.gesta"]
    process = await anyio.open_process(command, cwd=shop, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = b""
    while b"over stdio" not in said:
        said += await process.stderr.receive()
    process.send_signal(sign)
    assert await process.wait() == 0  # its input is still open
    await process.aclose()


@pytest.mark.slow
@ERAS
async def test_what_a_killed_server_had_begun_goes_on_once_in_another_one(shop: Path, mode: str) -> None:
    with serving(shop, "careful") as (first, address), restarted(shop, "careful") as other:
        await call_and_kill(shop, first, address, "careful", mode)
        async with Client(other, mode=mode) as client, anyio.create_task_group() as group:
            group.start_soon(read, shop / "begun")
            group.start_soon(write, shop / "go")
            answer = await client.call_tool("careful", SAID)
    assert told(answer) == "Order 7 is paid."
    assert len(set(keys(shop))) == 1


@pytest.mark.slow
@ERAS
async def test_a_call_that_a_killed_server_left_in_doubt_is_settled_by_the_command_it_names(
    shop: Path, mode: str
) -> None:
    with serving(shop, "agent") as (process, address):
        await call_and_kill(shop, process, address, "shop", mode)
    with restarted(shop, "agent") as address:
        async with Client(address, mode=mode) as client:
            doubt = await client.call_tool("shop", SAID)
            assert doubt.is_error
            assert "Outcome unknown: pay(order=7)" in told(doubt)
            _, *settle = doubt.structured_content["settle"][0].split()
            assert await anyio.to_thread.run_sync(lambda: gesta_command(*settle).exit_code) == 0
            assert "Order 7 is" in told(await client.call_tool("shop", SAID))
    assert len(keys(shop)) == 1


@pytest.mark.slow
async def test_an_assistant_is_asked_what_an_agent_did(shop: Path) -> None:
    ran = [sys.executable, "-c", MAIN, "run", "agent.py:plain", "Hello.", "--session", "anna", "--record", "shop.gesta"]
    await anyio.run_process(ran, cwd=shop)
    reading = ["-c", MAIN, "serve", "--read", "--record", "shop.gesta"]
    async with Client(child(shop, *reading)) as client:
        assert client.server_info is not None
        assert client.server_info.name == "gesta-record"
        why = await client.call_tool("why", {"run": "anna"})
        assert [row["type"] for row in why.structured_content["rows"]][-1] == "Conclusion"
        refused = await client.call_tool("sql", {"query": "DELETE FROM entries"})
        assert refused.is_error
    assert not servers(shop)
    if not FULL:
        return
    with started(shop, *reading) as (process, address):
        async with Client(address) as client:
            assert (await client.call_tool("runs", {})).structured_content["rows"][0]["session"] == "anna"
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait) == 0
