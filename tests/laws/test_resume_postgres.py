"""Laws 1, 2 and 9 on PostgreSQL: killed after any commit, a turn is taken up by another process with the same end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.postgres import Server

pytest.importorskip("psycopg")


def test_a_turn_that_is_killed_after_any_commit_ends_the_same_and_pays_once(
    postgres: Server,
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.laws.killed_postgres", postgres.address(), tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    *tries, both = map(json.loads, done.stdout.splitlines())
    assert [told["killed"] for told in tries] == [True] * (len(tries) - 1) + [False]
    assert len(tries) > 6
    for told in (*tries, both):
        assert told["facts"] == tries[-1]["facts"]
        assert (told["flaws"], told["fired"]) == (0, [1, 1])
