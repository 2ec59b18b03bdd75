"""A server that is killed or asked to end loses nothing: what it had begun goes on at its next start, once."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.postgres import Server
from tests.serving import post

import gesta

MAIN = "from gesta.cli import main; main()"
AGENT = '''
from pathlib import Path

import gesta

HERE = Path(__file__).parent


def pay(order: int, context: gesta.Context) -> str:
    """Pay for an order."""
    with (HERE / "paid").open("a") as paid:
        print(context.key, file=paid)
    (HERE / "begun").write_text("")  # it waits for somebody who reads
    (HERE / "go").read_text()
    return "paid"


def choose(messages, _header):
    return f"Order 7 is {messages[-1]['content']}." if messages[-1]["role"] == "tool" else gesta.call("pay", order=7)


once, again = (gesta.tool(pay, effect=effect) for effect in ("once", "idempotent"))
agent = gesta.Agent("shop", model=gesta.function(choose), tools=[once])
plain = gesta.Agent("plain", model=gesta.function(lambda messages, header: f"You said: {messages[-1]['content']}"))
lent = gesta.Agent("lent")
careful = gesta.Agent("careful", model=gesta.function(choose), tools=[again])
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    for pipe in ("begun", "go"):
        os.mkfifo(tmp_path / pipe)
    return tmp_path


@contextmanager
def serving(shop: Path, *words: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `gesta serve`, and yield its process and its address."""
    words = words or ("serve", "agent.py:agent", "agent.py:careful", "--record", "shop.gesta")
    command, there = [sys.executable, "-c", MAIN, *words, "--port", "0", "--json"], os.environ | env
    process = subprocess.Popen(command, cwd=shop, stdout=subprocess.PIPE, text=True, env=there)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["address"]
    finally:
        process.kill()
        process.communicate()


def send(address: str, agent: str, heard: list[Any]) -> threading.Thread:
    """Send the one message of these tests, in a thread."""

    def ask() -> None:
        try:
            said = {"message": "Pay for order 7.", "key": "m1", "agent": agent}
            heard.append(post(address, "/sessions/anna/messages", said).json())
        except Exception as failure:  # noqa: BLE001 - the server was killed
            heard.append(failure)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.slow
def test_of_two_servers_on_postgresql_one_goes_on_with_what_the_other_had_begun(shop: Path, postgres: Server) -> None:
    heard = list[Any]()
    words = ["serve", "agent.py:agent", "agent.py:careful", "--record", postgres.address()]
    with serving(shop, *words) as (first, address), serving(shop, *words) as (_, other):
        asking = send(address, "careful", heard)
        (shop / "begun").read_text()
        first.send_signal(signal.SIGKILL)
        asking.join(10)
        (shop / "begun").read_text()  # the other one goes on by itself
        (shop / "go").write_text("")
        heard.clear()
        send(other, "careful", heard).join(10)
    assert heard[0]["answer"] == "Order 7 is paid."
    assert len(keys(shop)) == 2
    assert len(set(keys(shop))) == 1


@pytest.mark.slow
def test_a_port_that_is_taken_and_a_record_that_is_none_are_said_in_one_line(shop: Path) -> None:
    def failed(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-c", MAIN, "serve", "agent.py:agent", *words]
        done = subprocess.run(command, cwd=shop, capture_output=True, text=True, check=False, timeout=20)
        return done.returncode, done.stderr

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = failed("--port", port)
    assert code == 2
    assert f"Cannot listen on 127.0.0.1, port {port}: Address already in use. Name another one with --port" in said
    (shop / "text.gesta").write_text("no record" * 100)
    code, said = failed("--record", "text.gesta", "--port", "0")
    assert code == 1
    assert "text.gesta" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_options_of_the_command_hold_and_an_agent_may_ask_one_that_is_served(shop: Path) -> None:
    token, site = "a-token-of-a-client-1618033988", "https://shop.example"
    first = ["serve", "agent.py:plain", "--record", "plain.gesta", "--allow-host", "gesta.internal", "--no-work"]
    second = shlex.split(
        "serve agent.py:lent --record lent.gesta --model ollama:plain --token web=WEB_TOKEN "
        f"--origin {site} --body-bytes 300 --followers 1 --turns 3"
    )
    with (
        serving(shop, *first) as (_, plain),
        serving(shop, *second, WEB_TOKEN=token, OLLAMA_HOST=plain) as (_, lent),
    ):
        named = httpx2.get(f"{plain}/agents", headers={"host": "gesta.internal"})
        assert named.json() == [{"name": "plain", "tools": []}]
        said = {"message": "Hello."}
        assert post(lent, "/sessions/a/messages", said).status_code == 401
        answered = post(lent, "/sessions/a/messages", said, authorization=f"Bearer {token}", origin=site)
        assert answered.headers["access-control-allow-origin"] == site
        assert answered.json()["answer"] == "You said: Hello."
        large = post(lent, "/sessions/a/messages", {"message": "x" * 300}, authorization=f"Bearer {token}")
        assert large.status_code == 413
        here = {"authorization": f"Bearer {token}"}
        with httpx2.stream("GET", f"{lent}/sessions/a/events", headers=here, timeout=10) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert httpx2.get(f"{lent}/sessions/a/events", headers=here).status_code == 429


class Browser:
    """Hears the events of a session, as a browser's EventSource does: it comes back with the last id that it heard."""

    def __init__(self) -> None:
        self.last = ""
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def listen(self, address: str) -> None:
        """Listen until the server ends, or the turn has."""
        headers = {"last-event-id": self.last} if self.last else {}
        with (
            suppress(httpx2.HTTPError),
            httpx2.stream("GET", f"{address}/sessions/anna/events?until=end", headers=headers, timeout=15) as stream,
        ):
            id_ = ""
            for line in stream.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    id_ = self.last = value
                elif name == "data":
                    self.heard.append((id_, json.loads(value)))

    def started(self, address: str) -> threading.Thread:
        thread = threading.Thread(target=self.listen, args=[address])
        thread.start()
        return thread


@pytest.mark.slow
def test_a_browser_that_comes_back_hears_everything_once(shop: Path) -> None:
    browser, heard = Browser(), list[Any]()
    with serving(shop) as (process, address):
        listening = browser.started(address)
        asking = send(address, "careful", heard)
        (shop / "begun").read_text()
        process.send_signal(signal.SIGKILL)
        asking.join(10)
        listening.join(10)
    with serving(shop) as (_, address):
        (shop / "begun").read_text()
        listening = browser.started(address)
        (shop / "go").write_text("")
        listening.join(15)
    durable = [id_ for id_, _ in browser.heard if id_]
    assert durable == sorted(set(durable), key=lambda each: [*map(int, each.split("-"))])
    kinds = [event["type"] for _, event in browser.heard]
    assert [kinds.count(each) for each in ("call", "result", "end")] == [1, 1, 1]
    assert browser.heard[-1][1]["outcome"]["answer"] == "Order 7 is paid."


def keys(shop: Path) -> list[str]:
    return (shop / "paid").read_text().split()


@pytest.mark.slow
def test_a_server_that_is_killed_in_the_middle_of_a_call_goes_on_at_its_next_start(shop: Path) -> None:
    heard: list[Any] = []
    with serving(shop) as (process, address):
        asking = send(address, "careful", heard)
        (shop / "begun").read_text()
        process.send_signal(signal.SIGKILL)
        asking.join(10)
    assert isinstance(heard.pop(), Exception)
    with serving(shop) as (_, address):
        (shop / "begun").read_text()  # it goes on by itself
        asking = send(address, "careful", heard)
        (shop / "go").write_text("")
        asking.join(10)
    assert heard[0]["answer"] == "Order 7 is paid."
    assert len(keys(shop)) == 2
    assert len(set(keys(shop))) == 1


@pytest.mark.slow
def test_a_server_that_is_asked_to_end_sees_calls_through_and_leaves_the_turn_for_its_next_start(shop: Path) -> None:
    heard: list[Any] = []
    with serving(shop) as (process, address):
        asking = send(address, "shop", heard)
        (shop / "begun").read_text()
        process.send_signal(signal.SIGTERM)
        (shop / "go").write_text("")
        asking.join(10)
        assert process.wait(10) == 0
    (left,) = heard
    assert left["reason"] == "waiting"
    assert left["waiting"][0]["what"] == "resume"
    with serving(shop) as (_, address):
        heard.clear()
        send(address, "shop", heard).join(10)
    assert heard[0]["answer"] == "Order 7 is paid."
    assert len(keys(shop)) == 1


def held(address: str, words: str) -> tuple[str, str, dict[str, str]]:
    """Return the address, the path of a stream that has no end of its own, and its query."""
    if words == "serve":
        return address, "/sessions/anna/events", {}
    at, token = address.split("/?token=")
    return at, "/api/0/follow", {"token": token, "after": "0"}


@pytest.mark.slow
@pytest.mark.parametrize("words", ["serve", "view"])
def test_a_server_that_is_asked_to_end_closes_the_streams_that_are_open(shop: Path, words: str) -> None:
    with gesta.open_sync(shop / "shop.gesta") as record:
        record.run(gesta.Agent("shop", model=gesta.scripted("Yes.")), "Is it open?", session="anna")
    command = [] if words == "serve" else ["view", "shop.gesta", "--no-open"]
    with serving(shop, *command) as (process, address):
        at, path, asked = held(address, words)
        with httpx2.Client(base_url=at, follow_redirects=True, timeout=10) as client:
            client.get("/", params=asked)
            with client.stream("GET", path, params=asked) as stream:
                lines = stream.iter_lines()
                assert stream.status_code == 200
                assert next(lines)
                process.send_signal(signal.SIGTERM)
                list(lines)  # a stream that is cut off, or that stays open, is an error here
        assert process.wait(5) == 0
