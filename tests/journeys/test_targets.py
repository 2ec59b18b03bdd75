"""The table of targets says what was found, what was wanted, and whether that is met; what is missing is named."""

from pathlib import Path

import pytest
from benchmarks._peers import side_by_side
from benchmarks.targets import Row, Table, exponent, shown


def test_the_exponent_of_what_grows_with_the_steps_is_one_and_of_their_square_two() -> None:
    sizes = (10, 100, 1000)
    assert exponent(sizes, [3.0 * size for size in sizes]) == pytest.approx(1)
    assert exponent(sizes, [0.1 * size**2 for size in sizes]) == pytest.approx(2)
    assert exponent(sizes, [7.0] * 3) == pytest.approx(0)


def test_a_row_says_whether_its_target_is_met_and_what_was_not_measured_is_neither() -> None:
    rows = [
        Row(target=f"row {met}", unit="us", gesta=1.5, floor=1, ratio=1.5, bound="<= 1", met=met)
        for met in (True, False, None)
    ]
    lines = shown(Table(rows, {"time": 1.0}, [], ["A note."])).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["yes", "NO", "-"]
    assert lines[-2:] == ["exponents: time 1.000", "A note."]


def test_without_peers_it_says_how_to_install_them(tmp_path: Path) -> None:
    found, notes = side_by_side(tmp_path)
    assert not found
    assert "just peers" in notes[0]


def test_a_peer_that_cannot_be_imported_is_named_with_the_reason(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'ImportError: no such peer' >&2\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    found, notes = side_by_side(tmp_path)
    assert not found
    assert all(note.endswith("ImportError: no such peer") for note in notes)
    assert notes[0].startswith("LangGraph, nothing kept: not measured at N=10")
