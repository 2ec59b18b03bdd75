"""Those who follow hear every event once and in order, while the process that writes is killed again and again."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from benchmarks.followers import Campaign, Size
from tests.conftest import FULL
from tests.postgres import Server

import gesta

ELSEWHERE = """
import sys, gesta
@gesta.tool(effect="pure")
def wait() -> str:
    "Wait."
    print("at work", flush=True)
    return sys.stdin.readline().strip()
agent = gesta.Agent("waiter", model=gesta.scripted(gesta.call("wait"), "Done."), tools=[wait])
gesta.run_sync(agent, "go", record=sys.argv[1], session="s", key="k")
"""


@gesta.tool(effect="pure")
def wait() -> str:
    """Wait."""
    return "done here"


@pytest.mark.sample(2)
@pytest.mark.parametrize("killed", [False, True])
async def test_the_same_key_joins_a_turn_of_another_process_and_goes_on_with_it_if_that_dies(
    killed: bool, tmp_path: Path
) -> None:
    model, policy = gesta.scripted(gesta.call("wait"), "Done."), gesta.Policy(when_busy="raise")
    agent, path = gesta.Agent("waiter", model=model, tools=[wait], policy=policy), f"{tmp_path}/r.gesta"
    command, pipe = [sys.executable, "-c", ELSEWHERE, path], subprocess.PIPE
    process = await anyio.to_thread.run_sync(lambda: subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert await anyio.to_thread.run_sync(process.stdout.readline) == "at work\n"
        async with gesta.open(path) as record:
            stream, heard = record.stream(agent, "go", session="s", key="k"), list[gesta.Event]()
            async for event in stream:
                heard.append(event)
                if event.type == "call" and killed:
                    process.kill()
                elif event.type == "call":
                    process.stdin.write("done elsewhere\n")
                    process.stdin.flush()
    assert [event.type for event in heard if event.seq is not None and event.type != "explain"] == [
        *("call", "result", "observation", "answer", "end"),
    ]
    assert [event.result for event in heard if event.type == "result"] == ["done here" if killed else "done elsewhere"]
    assert stream.outcome is not None
    assert stream.outcome.answer == "Done."


@pytest.mark.slow
@pytest.mark.parametrize("store", ["file", *(["postgres"] if FULL else [])])
async def test_every_follower_hears_every_event_once_while_the_writer_is_killed(
    store: str, tmp_path: Path, postgres: Server
) -> None:
    place = postgres.address() if store == "postgres" else f"{tmp_path}/r.gesta"
    campaign = Campaign(place, Size(sessions=3, followers=12, steps=6, kills=1), seed=7)
    assert await campaign.run() == []
    assert campaign.again > 0
    assert len({len(heard) for heard in campaign.heard}) <= 3
