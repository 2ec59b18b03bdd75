"""What a stranger or a broken client can send to a server: it hears no other's run, and costs the others nothing."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from starlette.types import ASGIApp
from tests.serving import DESK

import gesta
from gesta.serve import app
from gesta.stores.memory import MemoryStore

pytestmark = pytest.mark.sample(2, over="parent")


@asynccontextmanager
async def asking(served: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of an application in this process."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=served), base_url="http://localhost") as client:
        yield client


async def test_a_session_in_a_path_names_a_session_exactly_and_never_a_run() -> None:
    async with gesta.open(":memory:") as record, asking(app(record, [DESK])) as client:
        run = (await client.post("/sessions/anna/messages", json={"message": "My number is 1234."})).json()["run"]
        for name in (run[:1], run[:3], run, "last"):
            assert (await client.get(f"/sessions/{name}")).status_code == 404
            heard: list[str] = []

            async def page(name: str = name, heard: list[str] = heard) -> None:
                heard.append((await client.get(f"/sessions/{name}/events?until=end")).text)

            async with anyio.create_task_group() as group:
                group.start_soon(page)
                await anyio.wait_all_tasks_blocked()
                assert not heard  # a session that has not begun is waited for
                await client.post(f"/sessions/{name}/messages", json={"message": "It is mine."})
            assert "It is mine." in heard[0]
            assert "1234" not in heard[0]
            (said, _) = (await client.get(f"/sessions/{name}")).json()["messages"]
            assert said["text"] == "It is mine."


async def test_a_run_in_a_path_is_its_whole_id_or_its_session_and_what_there_is_else_is_not_told() -> None:
    async with gesta.open(":memory:") as record, asking(app(record, [DESK])) as client:
        run = (await client.post("/sessions/anna/messages", json={"message": "Hello."})).json()["run"]
        for name in (run, "anna"):
            assert (await client.get(f"/runs/{name}")).json()["run"] == run
            assert "You said: Hello." in (await client.get(f"/runs/{name}/events?until=end")).text
        for name in (run[:8], "last", "ann"):
            refused = [await client.get(f"/runs/{name}"), await client.get(f"/runs/{name}/events")]
            refused += [await client.post(f"/runs/{name}/{word}", json={}) for word in ("approve", "deny", "cancel")]
            assert {each.status_code for each in refused} == {404}
            assert not any(run in each.text or "anna" in each.text for each in refused)
        await client.post("/sessions/anna/messages", json={"message": "A refund."})
        assert (await client.post("/runs/anna/approve", json={})).status_code == 202


async def test_pages_that_wait_for_sessions_look_at_the_record_only_when_something_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str | None] = []
    runs = MemoryStore.runs

    async def counted(store: MemoryStore, session: str | None = None, name: str | None = None) -> Sequence[Any]:
        looks.append(session)
        return await runs(store, session, name)

    monkeypatch.setattr(MemoryStore, "runs", counted)
    async with (
        gesta.open(":memory:") as record,
        asking(app(record, [DESK], work=False)) as client,
        anyio.create_task_group() as group,
    ):
        for number in range(20):
            group.start_soon(client.get, f"/sessions/new-{number}/events?until=end")
        await anyio.wait_all_tasks_blocked()
        assert sorted(filter(None, looks)) == sorted(f"new-{number}" for number in range(20))
        assert None not in looks  # nobody reads the list of all runs
        looks.clear()
        await record.run(DESK, "Hello.", session="other")
        assert not [name for name in looks if name != "other"]
        group.cancel_scope.cancel()
