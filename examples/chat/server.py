"""A web chat whose agent asks a person before it pays. Its server can be killed at any time; restarted, it continues.

    pip install 'gesta[serve]' fastapi
    uvicorn server:app --app-dir examples/chat --timeout-graceful-shutdown 1

Open http://127.0.0.1:8000, ask for a refund, kill the server with `kill -9`, start it again, and approve the call.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse

import gesta
from gesta.serve import app as agents


@gesta.tool(effect="pure")
def order(number: int) -> str:
    """Look an order up."""
    return f"Order {number}: a lamp, 64.90 euros, delivered."


@gesta.tool(effect="once", approval=True)
def refund(number: int, euros: str) -> str:
    """Refund an order."""
    with Path("refunds.txt").open("a") as paid:  # stands for a bank
        paid.write(f"{number} {euros}\n")
    return f"{euros} euros are on their way"


def answer(messages: list[dict[str, Any]], _header: Any) -> Any:
    """Act as a model, so that the example needs no API key."""
    last = messages[-1]
    if last["role"] == "tool" and "delivered" in last["content"]:
        return gesta.call("refund", number=42, euros="64.90")
    if last["role"] == "tool":
        return f"Done: {last['content']}."
    return gesta.call("order", number=42) if "refund" in last["content"] else "How can I help you?"


desk = gesta.Agent("desk", model=gesta.function(answer), tools=[order, refund])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the record, and serve its agents under /api, which also continues turns that a killed server left open."""
    async with gesta.open("chat.gesta") as record:
        app.mount("/api", agents(record, [desk]))
        yield
        app.routes.pop()


app = FastAPI(lifespan=lifespan)
app.get("/")(lambda: FileResponse(Path(__file__).with_name("chat.html")))
