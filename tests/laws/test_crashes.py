"""Random agents, killed at random write points, keep the promises; the full campaign is `python -m benchmarks.crashes`."""

import subprocess
import sys
from pathlib import Path

import msgspec
from tests.conftest import FULL

from gesta.testing import Report


def test_random_agents_that_are_killed_lose_nothing_and_repeat_nothing() -> None:
    agents, kills = (200, 1000) if FULL else (4, 15)
    command = [sys.executable, "-m", "benchmarks.crashes", "--agents", str(agents), "--kills", str(kills), "--json"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, cwd=root, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.ok
    assert (report.agents >= agents, report.kills >= kills, report.missing) == (True, True, [])
    careful = [count.max_fired for count in report.tools.values() if count.effect in {"once", "transactional"}]
    assert careful
    assert max(careful) == 1
    ended = {"answered", "cancelled"}
    assert all(how in ended or how.startswith("waiting for doubt of ") for how in report.turns), report.turns
