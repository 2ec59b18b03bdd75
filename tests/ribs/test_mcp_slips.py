"""Slips of a newcomer with `gesta.mcp`: each error says what to type, and shows no secret."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import gesta
from gesta.bridges.mcp.stderr import Tail
from gesta.errors import AgentError, BadAddress, BadTool, MissingExtra, NoServer

KEY = "s3cret-s3cret"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with a file that is not a program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").touch()


def agent(tools: Any) -> gesta.Agent:
    return gesta.Agent("buyer", model=gesta.scripted("Done."), tools=tools)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("localhost:8000/mcp", "a URL without its scheme. Write gesta.mcp('http://localhost:8000/mcp')."),
        (f"host:80/mcp?token={KEY}", "a URL without its scheme. Write gesta.mcp('http://host:80/mcp"),
        (f"ws://host/mcp?token={KEY}", "expected a command such as 'uvx some-server', a list of its words, or a URL"),
        ("", "The MCP server is '', expected a command"),
        (Path("server.py"), "Write gesta.mcp([sys.executable, 'server.py'])."),
        (Path("server"), "Write gesta.mcp(['server'])."),
        ({"command": "uvx", "args": ["x"], "env": {"K": KEY}}, "Write gesta.mcp(['uvx', ...], env={...}), with"),
        ({"url": "https://host", "headers": {"K": KEY}}, "Write gesta.mcp('https://...', headers={...})."),
        ({"mcpServers": {"one": {"K": KEY}, "two": {}}}, "Make one source for each of its servers: one, two."),
        ({"uvx": KEY}, "Write its command or its URL."),
        (["uvx", "--token", KEY, 5], "The MCP server is of type list, expected a command"),
        (f"uvx 'x --token {KEY}", '"uvx \'x --token ***", which is not a command: No closing quotation.'),
    ],
)
def test_what_is_no_server_is_said_with_what_to_write(server: Any, said: str) -> None:
    with pytest.raises(BadAddress) as caught:
        gesta.mcp(server)
    assert said in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("option", ["effects", "timeouts", "headers", "env"])
def test_an_option_that_is_no_dict_is_named(option: str) -> None:
    options: Any = {option: [KEY]}
    with pytest.raises(AgentError, match=f"^gesta.mcp: {option} is a list, expected a dict such as ") as caught:
        gesta.mcp("uvx some-server", **options)
    assert KEY not in str(caught.value)


def test_tools_that_are_no_list_are_named() -> None:
    with pytest.raises(AgentError, match=r"has tools=gesta.mcp\('uvx x'\), .* Write tools=\[gesta.mcp\('uvx x'\)\]\."):
        agent(gesta.mcp("uvx x"))
    with pytest.raises(AgentError, match="has tools='https://host/mcp', a str, expected a list of tools"):
        agent("https://host/mcp")
    with pytest.raises(AgentError, match="has tools=5, a int, expected a list of tools"):
        agent(5)
    with pytest.raises(BadTool, match=r"is a text, .* If it is a server of tools, write gesta.mcp\('\.\.\.'\)\."):
        agent(["https://host/mcp"])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("server", "options", "said"),
    [
        ("server.py", {}, "A .py file is run by another program: gesta.mcp([sys.executable, 'server.py'])."),
        (f"mcp.host.example/mcp?token={KEY}", {}, "If it is a URL, write gesta.mcp('https://mcp.host.example/mcp"),
        ("npxx some-server", {}, "There is no program 'npxx' on the PATH. Did you mean 'npx'."),
        ("unheard-of --x", {}, "There is no program 'unheard-of' on the PATH. Run the command by hand."),
        ("cd /tmp && server", {}, "No shell reads the command: use cwd= and env=, or write ['sh', '-c', '...']."),
        ("~/server", {}, f"No shell reads the command: write {str(Path.home() / 'server')!r}."),
        ([sys.executable], {"cwd": "/nowhere"}, "There is no folder '/nowhere': correct cwd=."),
        ("./plain", {}, "'./plain' is a file that may not be run: chmod +x, or name the program that runs it."),
    ],
)
async def test_a_command_that_cannot_be_started_says_why(server: Any, options: Any, said: str) -> None:
    async with gesta.open() as record:
        with pytest.raises(NoServer) as caught:
            await record.run(agent([gesta.mcp(server, **options)]), "Buy.")
        assert await record.store.runs() == []
    assert said in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_missing_extra_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gesta\[mcp\]'"):
        gesta.mcp("uvx some-server")


async def test_other_tasks_go_on_while_the_last_lines_of_a_server_are_awaited() -> None:
    tail, order = Tail(), list[str]()

    async def end() -> None:
        order.append("the server ends")
        tail.file.write("no port is free")
        tail.close()

    async with anyio.create_task_group() as group:
        group.start_soon(end)
        order.append((await tail.text()).strip())
    assert order == ["the server ends", "no port is free"]
