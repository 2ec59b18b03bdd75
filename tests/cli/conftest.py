"""A folder with agents that need no key, and the command line, run in this process."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.commands import forgotten, gesta_command
from typer.testing import Result

AGENTS = '''
import gesta
from gesta.tools.person import ask_person


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    print("a tool may print")
    return f"{city}: 21 degrees, dry"


@gesta.tool(effect="once", approval=True)
def refund(order: str, amount: float) -> str:
    """Pay money back."""
    return f"refunded {amount} for {order}"


@gesta.tool
def get_weather(city: str) -> str:
    """Says nothing about its effect, and cannot say whether it happened."""
    raise gesta.InDoubt("the line went dead")


@gesta.tool(effect="once")
def send(to: str) -> str:
    """Says what it does, and cannot say whether it happened."""
    raise gesta.InDoubt("the line went dead")


USAGE = {"prompt_tokens": 30, "completion_tokens": 9}
agent = gesta.Agent(
    "guide",
    model=gesta.scripted(
        ["Let me look.", gesta.call("weather", city="Rome")],
        gesta.reply("Rome is dry: no umbrella.", usage=USAGE),
        "Bring a hat.",
    ),
    tools=[weather],
)
desk = gesta.Agent(
    "desk", model=gesta.scripted(gesta.call("refund", order="W1", amount=20.5), "It is done."), tools=[refund]
)
strict = gesta.Agent(
    "strict",
    model=gesta.scripted(gesta.call("refund", order="W1", amount=20.5), "It is done."),
    tools=[refund],
    policy=gesta.Policy(when_busy="raise"),
)
pair = gesta.Agent(
    "pair",
    model=gesta.scripted(
        [gesta.call("refund", order="W1", amount=1.0), gesta.call("refund", order="W2", amount=2.0)], "Both are done."
    ),
    tools=[refund],
)
undeclared = gesta.Agent("undeclared", gesta.scripted(gesta.call("get_weather", city="Oslo"), "Wet."), tools=[get_weather])
sender = gesta.Agent("sender", gesta.scripted(gesta.call("send", to="ann"), "Sent."), tools=[send])
twice = gesta.Agent(
    "twice", gesta.scripted([gesta.call("send", to="ann"), gesta.call("send", to="bob")], "Sent."), tools=[send]
)
asker = gesta.Agent(
    "asker", gesta.scripted(gesta.call("ask_person", question="Which one?"), "That one."), tools=[ask_person()]
)
both = gesta.Agent(
    "both",
    gesta.scripted([gesta.call("ask_person", question="Which?"), gesta.call("ask_person", question="When?")], "Noted."),
    tools=[ask_person()],
)
echo = gesta.Agent("echo", gesta.function(lambda messages, header: f"You said: {messages[-1]['content']!r}"))
plain = gesta.Agent("plain", gesta.scripted("One.", "Two."))
mute = gesta.Agent("mute", gesta.scripted("", ""))
empty = gesta.Agent("empty", gesta.scripted())
shaky = gesta.Agent(
    "shaky",
    gesta.scripted(gesta.fault("503", after=5, message="try later"), "There you are."),
    policy=gesta.Policy(retry=gesta.Retry(first_wait_s=0.0)),
)
endless = gesta.Agent(
    "endless",
    gesta.function(lambda messages, header: gesta.call("weather", city="Rome")),
    tools=[weather],
    policy=gesta.Policy(limits=gesta.Limits(requests=3)),
)
hostile = gesta.Agent("hostile", gesta.scripted("\\x1b[31mred\\x1b[0m \\x07 [bold]x[/bold] \\u202edcba \\x9b2J\\r!"))
live = gesta.Agent("live", "openai:gpt-4o")
'''

Gesta = Callable[..., Result]


class Server(BaseHTTPRequestHandler):
    """Speaks just enough Chat Completions."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Live."},"finish_reason":"stop"}]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object):
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own with `agent.py`, in which the command runs; what importing left behind is taken away."""
    (tmp_path / "agent.py").write_text(AGENTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("GESTA_RECORD", "OPENAI_API_KEY", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    with forgotten(tmp_path):
        yield tmp_path


@pytest.fixture
def gesta(folder: Path) -> Gesta:
    """Runs a command in that folder: `gesta("runs", "--json")`."""
    return gesta_command


@pytest.fixture
def run_id(gesta: Gesta) -> Callable[[str], str]:
    """Finds the id of the newest run of an agent."""
    import json

    def find(agent: str = "") -> str:
        lines = [json.loads(line) for line in gesta("runs", "--json").stdout.splitlines()]
        return next(line["run"] for line in lines if agent in ("", line["agent"]))

    return find


@pytest.fixture
def server() -> Iterator[str]:
    """The base URL of a server that answers every request with `Live.`"""
    with HTTPServer(("127.0.0.1", 0), Server) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}/v1"
        listening.shutdown()
