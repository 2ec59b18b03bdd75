"""What the pages show of contracts is what pytest says, in a folder of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^<!-- test:file (\S+\.py) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(
    r"^```bash\npython -m pytest -q[^\n]* (test_\w+\.py) \|[^\n]*\n```\n\n```text\n([^`]*)^```$", re.MULTILINE
)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "count"), [("testing.md", 1), ("import-export.md", 1)])
def test_pytest_says_what_the_page_shows(page: str, count: int, tmp_path: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, code in FENCE.findall(text):
        (tmp_path / name).write_text(code, encoding="utf-8")
    shown = SHOWN.findall(text)
    assert len(shown) == count
    for file, lines in shown:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "anyio", file]
        alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others would take half of the time
        done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)
        for line in lines.splitlines():
            assert line in done.stdout, done.stdout
