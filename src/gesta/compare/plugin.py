"""Has pytest collect cases: files of JSON lines that begin as one, wherever tests are.

It is loaded whenever pytest runs, so it looks at how a file begins and at nothing else; the rest is loaded with the
first case.
"""

from pathlib import Path

import pytest

BEGINS = b'{"gesta_case":'
REST = "gesta.compare.collecting"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a case."""
    if file_path.suffix != ".jsonl":
        return None
    with file_path.open("rb") as file:
        if file.read(len(BEGINS)) != BEGINS:
            return None
    plugins = parent.config.pluginmanager
    plugins.import_plugin(REST)
    made: pytest.Collector = plugins.get_plugin(REST).CaseFile.from_parent(parent, path=file_path)  # type: ignore[union-attr]
    return made
