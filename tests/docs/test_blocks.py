"""What the README and the pages show is run, each block as a program of its own in an empty folder."""

import re
from pathlib import Path

import pytest
from tests import programs

pytestmark = pytest.mark.sample(2, over="parent")

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
COSTLY = ("crash_test", "gesta.serve", "mcp_server", "MCPServer", "starlette", "uvicorn")
"""What a block loads or does that takes as long as thirty others; it is tried elsewhere too."""
BLOCKS = [
    pytest.param(
        match[1],
        match[2],
        id=f"{page.stem}-{place}",
        marks=[pytest.mark.slow] if any(word in match[1] for word in COSTLY) else [],
    )
    for page in PAGES
    for place, match in enumerate(PYTHON.finditer(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("code", "shown"), BLOCKS)
def test_a_block_prints_what_the_page_shows(code: str, shown: str | None, tmp_path: Path) -> None:
    done = programs.run(["-c", code], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if shown is not None:
        assert done.stdout == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_pages(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+\.md)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), f"{page.name} links to {target}"
