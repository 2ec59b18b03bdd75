"""Makes pytest collect cases: JSON lines files with the first characters of a case, in any folder of tests.

A case is a recorded run that is kept as a test: replayed with the present code, the run must have the same entries.

pytest loads this module on every run, so it must stay light: it reads only the beginning of a file, and the other
modules are imported when the first case is found.
"""

from pathlib import Path

import pytest

BEGINS = b'{"gesta_case":'
REST = "gesta.compare.collecting"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector for a file that is a case; `None` for any other file."""
    if file_path.suffix != ".jsonl":
        return None
    with file_path.open("rb") as file:
        if file.read(len(BEGINS)) != BEGINS:
            return None
    plugins = parent.config.pluginmanager
    plugins.import_plugin(REST)
    made: pytest.Collector = plugins.get_plugin(REST).CaseFile.from_parent(parent, path=file_path)  # type: ignore[union-attr]
    return made
