"""A real server on a port of the loopback interface, in a thread of the test."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette

import gesta
from gesta.serve.access import Access
from gesta.serve.app import assembled
from gesta.serve.server import Server


@gesta.tool(effect="once", approval=True)
def refund(order: int, cents: int) -> str:
    """Pay money back."""
    return f"{cents} cents for order {order} are on their way"


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: 21 degrees, dry"


def choose(messages: list[dict[str, Any]], _header: Any) -> Any:
    """Answer as a desk does that reads its messages."""
    role, words = messages[-1]["role"], str(messages[-1]["content"])
    if role == "tool":
        return f"It says: {words}"
    if "refund" in words:
        return gesta.call("refund", order=42, cents=6490)
    if "weather" in words:
        return gesta.reply(text="Let me look.", calls=[gesta.call("weather", city="Rome")])
    if "where" in words:
        return gesta.call("where", parcel=7)
    if "break" in words:
        raise ValueError("the model is broken")
    said = [each["content"] for each in messages if each["role"] == "user"]
    return f"You said: {' | '.join(map(str, said))}"


DESK = gesta.Agent("desk", model=gesta.function(choose), tools=[refund, weather])


@contextmanager
def served(
    record: str | Path,
    *,
    agents: Sequence[gesta.Agent[Any]] = (DESK,),
    access: Access | None = None,
    make: Callable[..., tuple[Starlette, Any]] = assembled,
    work: bool = True,
) -> Iterator[str]:
    """Serve agents in this block, and yield the address."""
    app, service = make(record, agents, access or Access(), work=work)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=5)
    address: list[str] = []
    listening = threading.Event()

    def ready(at: str) -> None:
        address.append(at)
        listening.set()

    server = Server(config, service, ready)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert listening.wait(10)
        yield address[0]
    finally:
        server.handle_exit(15, None)
        thread.join(10)
        assert not thread.is_alive()


def post(address: str, path: str, body: Any, **headers: str) -> httpx2.Response:
    """Send JSON."""
    return httpx2.post(f"{address}{path}", json=body, headers=headers, timeout=10)
