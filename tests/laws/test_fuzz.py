"""The fuzz kit in its short form finds nothing, finds what is wrong, and can run each input again."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from benchmarks.fuzz.__main__ import main
from benchmarks.fuzz.campaign import Failure, Reader, campaign, judged, peak
from benchmarks.fuzz.commands import Wrong, command
from benchmarks.fuzz.records import Samples, cells
from benchmarks.fuzz.streams import DIALECTS, sent
from tests.conftest import tried

from gesta.errors import NoRecord

INPUTS = tried(14, 70, 70)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_the_short_form_finds_nothing() -> None:
    words = [sys.executable, "-m", "benchmarks.fuzz", "--inputs", str(INPUTS), "--jobs", "1", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    total = json.loads(done.stdout)
    assert total["failures"] == []
    assert done.returncode == 0
    assert len(total["inputs"]) == 7
    assert sum(total["inputs"].values()) >= INPUTS


def raising(error: BaseException) -> Any:
    def read(_lot: Random, _samples: Any) -> str:
        raise error

    return read


def hanging(_lot: Random, _samples: Any) -> str:
    (10**100_000_000) % 7  # one long operation, which no signal breaks off
    return "never"


def greedy(_lot: Random, _samples: Any) -> str:
    return f"{len(bytearray(b'x' * 250_000_000))}"


def made(read: Any) -> Reader:
    return Reader("bad", "", 1, lambda folder: folder, read, (OSError,))


@pytest.mark.parametrize("error", [KeyError(1), RecursionError("deep"), UnicodeDecodeError("utf-8", b"", 0, 1, "x")])
def test_an_error_that_is_none_of_ours_is_wrong(error: BaseException) -> None:
    outcome, wrong = judged(made(raising(error)), None, 1, 0)
    assert outcome == "wrong"
    assert type(error).__name__ in wrong


@pytest.mark.parametrize("error", [NoRecord("x"), FileNotFoundError()])
def test_our_own_errors_and_those_that_a_page_names_are_not(error: BaseException) -> None:
    assert judged(made(raising(error)), None, 1, 0) == (type(error).__name__, "")


def test_what_takes_too_much_memory_is_wrong() -> None:
    before = peak(anew=True)
    assert before > 0
    total = campaign([made(greedy)], 1, 1, jobs=1)
    assert "MB" in total.failures[0].what or "MemoryError" in total.failures[0].what


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_what_hangs_is_ended_and_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.fuzz.campaign.LONGEST_S", 0.5)
    reader = made(lambda lot, samples: hanging(lot, samples) if lot.random() < 0.5 else "read")
    total = campaign([reader], 1, 3, jobs=1)
    assert total.inputs == {"bad": 3}
    assert total.failures
    for failure in total.failures:
        assert "took longer than 0.5 s" in failure.what


def test_a_command_that_ends_with_an_unforeseen_error_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_options: Any) -> None:
        raise KeyError("of a view")

    monkeypatch.setattr("gesta.cli.pages.runs", broken)
    with pytest.raises(Wrong, match="KeyError"):
        command("runs", "--record", str(tmp_path / "a.gesta"))


def test_an_input_can_be_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failure("streams", 7, "x")
    assert failure.again(3) == "python -m benchmarks.fuzz --only streams --seed 3 --case 7"
    assert main(["--only", "streams", "--seed", "3", "--case", "7"]) == 0
    assert capsys.readouterr().out.startswith("streams 7: ")
    _, events, whole = DIALECTS["chat"]
    assert sent(Random("3/a/7"), events, whole) == sent(Random("3/a/7"), events, whole)
    ids = [Samples(_folder(tmp_path, name)).ids for name in "ab"]
    assert ids[0] == ids[1], "runs have the same ids in each sample"


def test_cells_of_a_sample_take_any_value_and_the_schema_does_not_tell(tmp_path: Path) -> None:
    samples = Samples(tmp_path)
    found = {judged(Reader("c", "", 1, Samples, cells, (OSError,)), samples, 5, case)[1] for case in range(6)}
    assert found == {""}


def _folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name
