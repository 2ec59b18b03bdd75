"""Programs as Langroid's published examples are run with their imports changed, and go on after their process died."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests import programs
from tests.journeys.langroid_programs import PROGRAMS


def life(program: str, folder: Path, dies_at: int) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, which dies at a point, or never for 0."""
    words = ["-m", "tests.journeys.langroid_programs", program, str(folder), str(dies_at)]
    return programs.run(words, cwd=programs.ROOT)


@pytest.mark.sample(3)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_whose_process_dies_goes_on_and_asks_and_does_nothing_again(program: str, tmp_path: Path) -> None:
    whole, expected = tmp_path / "whole", PROGRAMS[program][1]
    whole.mkdir()
    unharmed = life(program, whole, 0)
    assert not unharmed.returncode, unharmed.stderr
    result, points = json.loads(unharmed.stdout)
    assert result == expected
    killed = tmp_path / "killed"
    killed.mkdir()
    for dies_at in (points // 2, 1, 2):  # in the middle, then before and after what was begun
        assert life(program, killed, dies_at).returncode == -9
    last = life(program, killed, 0)
    assert not last.returncode, last.stderr
    assert json.loads(last.stdout)[0] == expected
    lines = [Counter((folder / "world.txt").read_text().splitlines()) for folder in (whole, killed)]
    again = lines[1] - lines[0]
    assert not lines[0] - lines[1]
    assert again.total() <= 3, "what was under way when the process died is done again, and nothing else"
