"""Laws 1, 2 and 9 on PostgreSQL: killed after any commit, a turn is taken up by another process with the same end."""

import json
from pathlib import Path

import pytest
from tests import programs
from tests.postgres import Server

pytest.importorskip("psycopg")


@pytest.mark.slow
def test_a_turn_that_is_killed_after_any_commit_ends_the_same_and_pays_once(
    postgres: Server,
    tmp_path: Path,
) -> None:
    words = ["-m", "tests.laws.killed_postgres", postgres.address(), str(tmp_path)]
    done = programs.run(words, cwd=programs.ROOT)
    assert done.returncode == 0, done.stderr
    *tries, both = map(json.loads, done.stdout.splitlines())
    assert [told["killed"] for told in tries] == [True] * (len(tries) - 1) + [False]
    assert len(tries) > 6
    for told in (*tries, both):
        assert told["facts"] == tries[-1]["facts"]
        assert (told["flaws"], told["fired"]) == (0, [1, 1])
