"""A process that only reads a record sees which processes are at work on it, and keeps its own locks."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread
import pytest
from tests.commands import gesta_command

import gesta
from gesta.stores.sqlite import InlineSqliteStore

AT_WORK = """
import sys
import anyio
import gesta

@gesta.tool(effect="once")
async def pay() -> str:
    '''Pay.'''
    print("paying", flush=True)
    await anyio.sleep_forever()
    return "paid"

agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
gesta.run_sync(agent, "Pay.", record=sys.argv[1], session="s")
"""
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="lists open files by /proc")


@contextmanager
def at_work(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run a process that is in the middle of a payment."""
    command = [sys.executable, "-c", AT_WORK, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "paying\n"
            yield child
        finally:
            child.kill()


def openings(path: Path) -> int:
    """Return how many descriptors of this process are of a file."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += each.readlink() == path
        except OSError:  # the one that lists them
            continue
    return found


async def test_a_run_is_running_for_who_only_reads_it_until_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"

    async def running() -> list[bool]:
        async with gesta.open(path, readonly=True) as record:
            return [each.running for each in await record.sessions()]

    with at_work(path) as child:
        assert await running() == [True]
        told = await anyio.to_thread.run_sync(gesta_command, "gone", "--record", str(path))
        assert "is at work here" in told.output
        child.kill()
        child.wait()
        assert await running() == [False]
        told = await anyio.to_thread.run_sync(gesta_command, "gone", "--record", str(path))
        assert "has ended" in told.output
    assert openings(path) == 0


async def test_what_was_opened_to_look_at_locks_is_closed_after_the_last_reader(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    with at_work(path):
        first, second = [InlineSqliteStore.open(path, readonly=True) for _ in range(2)]
        for store in (first, second):
            (owner,) = (await store.sql("SELECT owner FROM leases")).rows[0]
            assert await store.gone(str(owner)) is False
        opened = openings(path)
        await first.close()
        assert openings(path) == opened, "or the locks of the second reader would be gone"
        assert (await second.sql("SELECT count(*) FROM entries")).rows
        await second.close()
    assert openings(path) == 0
