"""Random agents, killed at random write points, keep the promises; the full campaign is `python -m benchmarks.crashes`."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks.faults.judging import wrongs
from benchmarks.faults.witness import Line
from tests.conftest import FULL

from gesta.testing import Report


@pytest.mark.slow
def test_random_agents_that_are_killed_lose_nothing_and_repeat_nothing() -> None:
    agents, kills = (200, 1000) if FULL else (3, 10)
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


@pytest.mark.slow
@pytest.mark.timeout(240)  # a case that hangs is broken off by the campaign itself, and told
def test_the_campaign_of_faults_finds_nothing_in_a_few_cases() -> None:
    command = [sys.executable, "-m", "benchmarks.faults", "--target", "0", "--faults", "6", "--jobs", "2", "--json"]
    chosen = [word for kind in ("kill", "cancel", "write") for word in ("--only", kind)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([*command, *chosen], capture_output=True, cwd=root, check=False)
    total = msgspec.json.decode(done.stdout)
    assert total["wrong"] == []
    assert total["faults"] > 0
    assert total["effects"]["once"] > 0


def test_effects_are_counted_by_order_and_not_by_key() -> None:
    def line(order: int, key: str, effect: str = "once") -> Line:
        return Line(what="effect", order=order, key=key, effect=effect, tool="pay")

    assert wrongs([line(1, "a"), line(2, "b")], {3: 1}) == []
    assert wrongs([line(1, "a", "idempotent"), line(1, "a", "idempotent")], {}) == []
    assert wrongs([line(1, "a"), line(1, "b")], {}) == ["order 1 of pay (once) was carried out 2 times, under 2 keys"]
    assert wrongs([line(1, "a", "idempotent"), line(1, "b", "idempotent")], {}) == [
        "order 1 of pay (idempotent) has 2 keys"
    ]
    assert wrongs([line(1, "a"), line(2, "a")], {}) == ["one key stands for the orders [1, 2]"]
    assert wrongs([], {4: 2}) == ["order 4 was booked 2 times"]
