"""A supervisor with three sub-agents and parallel tools, killed at every commit, always ends the same."""

import json
import subprocess
import sys
from pathlib import Path


def test_a_supervisor_that_is_killed_after_any_commit_ends_the_same_and_repeats_no_finished_effect(
    tmp_path: Path,
) -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.journeys.killed", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["killed"] for each in told] == [True] * (len(told) - 1) + [False]
    assert len(told) > 20
    for each in told:
        assert (each["answer"], each["after"], each["flaws"]) == ("a=a! aa!; b=b! bb!; c=c! cc!", 6, 0)
        assert each["again"] <= 6 - each["before"], "a finished effect was repeated"
    assert len({each["before"] for each in told}) > 3, "it was killed while the tools were at work"
