"""What the pages show of other libraries and of Gesta is run, and prints what stands below it.

A block that imports another library is run where that is installed, and must be where GESTA_ORIGINALS names it.
"""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import programs

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "coming-from").glob("*.md"))
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALLED_AS = {"agentc": "agentc", "kodeagent": "kodeagent", "langchain_core": "langchain-core"}
EMPTY_CATALOG = {
    "schema_version": "0.0.0",
    "library_version": "1.1.5",
    "kind": "prompt",
    "embedding_model": {"name": "sentence-transformers/all-MiniLM-L12-v2"},
    "version": {"timestamp": "2026-01-01T00:00:00Z", "is_dirty": True},
    "source_dirs": [],
    "items": [],
}
"""What `agentc index` writes of a folder without prompts; that command itself needs a model for embeddings."""


def blocks() -> Iterator[tuple[str, str, str]]:
    """Every block of Python, by its page and place, with the next text on the page: what it prints."""
    for page in PAGES:
        found = BLOCK.findall(page.read_text(encoding="utf-8"))
        for place, (language, code) in enumerate(found):
            if language == "python":
                shown = (text for other, text in found[place + 1 :] if other == "text")
                yield f"{page.stem}-{place}", code, next(shown, "")


def others(code: str) -> set[str]:
    """The libraries that a block imports, beside Gesta and Python's own."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found - sys.stdlib_module_names - {"gesta"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which agent-catalog finds what it needs before the first line of a program."""
    for name in (".agent-catalog", ".agent-activity"):
        (tmp_path / name).mkdir()
    (tmp_path / ".agent-catalog" / "prompts.json").write_text(json.dumps(EMPTY_CATALOG))
    return tmp_path


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("code", "shown"), [pytest.param(*rest, id=place) for place, *rest in blocks()])
def test_a_block_prints_what_the_page_shows(code: str, shown: str, project: Path) -> None:
    missing = sorted(name for name in others(code) if importlib.util.find_spec(name) is None)
    demanded = os.environ.get("GESTA_ORIGINALS", "").split()
    if missing and not set(missing) & set(demanded):
        names = " ".join(INSTALLED_AS.get(name, name) for name in missing)
        pytest.skip(f"runs where this is installed: {names}")
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # kodeagent asks the network for prices when imported
    command = [sys.executable, "-c", code]
    done = (
        subprocess.run(command, capture_output=True, text=True, cwd=project, env=env, check=False)
        if others(code)
        else programs.run(command[1:], cwd=project, env=env)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown
    if not others(code):
        assert done.stderr == ""


def test_an_original_stands_beside_gesta_and_both_print_the_same() -> None:
    found = list(blocks())
    for place, code, shown in found:
        if others(code):
            page = place.rpartition("-")[0]
            twins = [one for other, one, same in found if other.rpartition("-")[0] == page and same == shown]
            assert shown, place
            assert any(not others(twin) for twin in twins), place


@pytest.mark.parametrize("page", ["agent-catalog", "kodeagent", "langchain"])
def test_the_page_shows_the_original(page: str) -> None:
    assert any(others(code) for place, code, _ in blocks() if place.rpartition("-")[0] == page)
