"""Looks into inboxes that come together share a query, and nobody depends on another one's fate."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from gesta.errors import RecordError
from gesta.store import Letter
from gesta.stores.sharing import Looks
from gesta.stores.sqlite import SqliteStore
from gesta.testing import make_batch


class Server:
    """Answers when it is told to, with what is in the inboxes at that time."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.letters: list[Letter] = []
        self.failing = False
        self.gates: list[anyio.Event] = []

    async def ask(self, runs: Sequence[str]) -> dict[str, list[Letter]]:
        self.asked.append(list(runs))
        if self.failing:
            raise RecordError("away")
        found = {run: [each for each in self.letters if each.run == run] for run in runs}
        gate = anyio.Event()
        self.gates.append(gate)
        await gate.wait()
        return found

    async def answer(self) -> None:
        await anyio.wait_all_tasks_blocked()
        self.gates.pop(0).set()
        await anyio.wait_all_tasks_blocked()


async def test_who_comes_while_a_query_is_under_way_shares_the_next_one() -> None:
    server, found = Server(), dict[str, list[Letter]]()
    looks = Looks(server.ask)

    async def look(run: str) -> None:
        found[run] = await looks.look(run)

    async with anyio.create_task_group() as group:
        group.start_soon(look, "r0")
        await anyio.wait_all_tasks_blocked()
        server.letters.append(Letter("r2", "k", "{}"))  # after the first query, before the second
        for number in range(1, 50):
            group.start_soon(look, f"r{number}")
        await server.answer()
        await server.answer()
    assert [len(runs) for runs in server.asked] == [1, 49]
    assert [run for run in found if found[run]] == ["r2"]


async def test_when_who_asks_is_cancelled_the_others_ask_for_themselves() -> None:
    server, found = Server(), dict[str, list[Letter]]()
    looks = Looks(server.ask)

    async def look(run: str) -> None:
        found[run] = await looks.look(run)

    async with anyio.create_task_group() as group:
        group.start_soon(look, "busy")
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as others:
                others.start_soon(look, "leaves")
                await anyio.wait_all_tasks_blocked()
                group.start_soon(look, "stays")
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        await server.answer()
        await server.answer()
    assert server.asked == [["busy"], ["stays"]]
    assert found == {"busy": [], "stays": []}


async def test_each_is_told_of_a_failure() -> None:
    server = Server()
    server.failing = True
    looks = Looks(server.ask)

    async def look(run: str) -> None:
        with pytest.raises(RecordError, match="away"):
            await looks.look(run)

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(look, f"r{number}")
    server.failing = False
    async with anyio.create_task_group() as group:
        group.start_soon(looks.look, "later")
        await server.answer()


async def test_a_commit_ends_though_its_task_is_cancelled_again_in_each_cycle_of_the_loop(tmp_path: Path) -> None:
    store = SqliteStore.open(str(tmp_path / "r.gesta"))
    store.sharing._slowest_s = 1e9  # as if the disk were slow, so that each commit has the thread
    lease = await store.lease("r")
    commit = asyncio.create_task(store.append(make_batch(lease, 0, 3)))
    while not store.sharing._leading or store.sharing._queue:  # noqa: ASYNC110 - until it cannot be withdrawn
        await asyncio.sleep(0)
    for _ in range(100_000):  # as anyio does to a task that awaits a gather
        if commit.done():
            break
        commit.cancel()
        await asyncio.sleep(0)
    assert commit.done()
    assert [row.seq for row in await store.read("r")] == [1, 2, 3]
    await store.release(lease)
    await store.close()
