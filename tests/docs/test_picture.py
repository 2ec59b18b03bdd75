"""The picture on the README is what the demo leaves, and its figures are those of the benchmarks' page."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
CLAIM = re.compile(r"^- \*\*(.+?)\*\* (.*?)(?=^- |^$)", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_picture_is_drawn_from_a_run_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GESTA_RECORD", raising=False)
    script = runpy.run_path(str(ROOT / ".ci" / "picture.py"))
    drawn = script["draw"](script["played"](tmp_path))
    assert drawn == (ROOT / "docs" / "first.svg").read_text(encoding="utf-8"), "draw it anew: python .ci/picture.py"
    ET.fromstring(drawn)
    for said in ("killed: -9 (SIGKILL)", "refunds fired: 1", "model calls bought again: 0", "41 Conclusion"):
        assert said in drawn


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_screen_shows_the_picture_and_says_in_words_what_it_shows(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    (said, path), *_ = re.findall(r"!\[([^\]]+)\]\(([\w/.]+)\)", text)
    assert (ROOT / page).parent.joinpath(path) == ROOT / "docs" / "first.svg"
    assert "killed" in said
    assert "refund was made" in said
    assert text.index("![") < 1500, "it is on the first screen"


def test_the_readme_makes_five_claims_with_figures_that_stand_where_it_says():
    claims = CLAIM.findall(README.split("![", 1)[1].split("\n## ")[0])
    assert len(claims) == 5
    for name, text in claims:
        figures = re.findall(r"\d[\d,]+", re.sub(r"\(.*?\)", "", text))
        assert figures, name
        (anchor, *_) = re.findall(r"\(docs/benchmarks\.md#([\w-]+)\)", text)
        headings = {
            heading.lower().replace(",", "").replace(" ", "-"): heading
            for heading in re.findall(r"^## (.+)$", BENCHMARKS, re.MULTILINE)
        }
        section = BENCHMARKS.split(f"## {headings[anchor]}\n")[1].split("\n## ")[0]
        for figure in figures:
            assert re.search(rf"(?<![\d,]){figure}(?!,?\d)", section), f"{name}: {figure} does not stand under {anchor}"


def test_what_is_missing_is_said_on_the_first_screen():
    missing = README.split("\n## ")[0].split("Not there yet: ")[1]
    assert "Linux" in missing
    factor = re.search(r"costs ([\d.]+) times", missing)
    assert factor is not None
    assert f"1.5 times the floor | no: {factor[1]} times" in BENCHMARKS


def test_the_pictures_of_the_viewer_are_small_described_and_drawn_by_one_command():
    drawn = {each.name: each for each in (ROOT / "docs" / "img").glob("viewer-*.png")}
    page = (ROOT / "docs" / "viewer.md").read_text(encoding="utf-8")
    described = {path: said for said, path in re.findall(r"!\[([^\]]+)\]\(img/([\w.-]+)\)", page)}
    assert set(described) == set(drawn)
    assert all(len(said) > 60 for said in described.values())
    assert all(each.stat().st_size < 150_000 for each in drawn.values())
    script = (ROOT / "tests" / "pictures.py").read_text(encoding="utf-8")
    assert all(f'"{name.removesuffix(".png")}":' in script for name in drawn)
