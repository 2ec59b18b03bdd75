"""agent-catalog's tests of activity at commit c3e80c80: its spans, its contents, and the loggers that they end in.

FOLDER is a checkout of agent-catalog. Their activity log is the export of the record, as a file that is opened. No test
needs a Couchbase server: those of its loggers hand them a stand-in for a collection.
"""

import io
import json
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from theirs import Kind

from gesta.address import drive
from gesta.compat import agent_catalog as ours
from gesta.compat.agent_catalog.export import export_run
from gesta.compat.agent_catalog.spans import log_of


class Catalog(ours.Catalog):
    """A catalog of a folder with one tool, whose activity log can be opened as a file."""

    def __init__(self) -> None:
        Path("tools.py").write_text("import gesta\n\n@gesta.tool\ndef a() -> str: ...\n")
        super().__init__(":memory:", folder=".")

    def ActivityPath(self) -> Any:  # noqa: N802 - its name
        """Return a folder in which each name is the activity log."""
        return self

    def __truediv__(self, _name: str) -> Any:
        return self

    def open(self, _mode: str) -> io.StringIO:
        """Return the activity log."""

        async def lines() -> str:
            rows = await self.record.store.runs()
            return "".join([line for row in rows async for line in export_run(self.record, row.run)])

        return io.StringIO(drive(lines()))

    def Span(self, *given: Any, **named: Any) -> Any:  # noqa: N802 - its name
        """Return a span with a local logger, which is flushed by its users: each log stands on the record at once."""
        span: Any = super().Span(*given, **named)
        span._local_logger = SimpleNamespace(rotating_handler=SimpleNamespace(flush=lambda: None))  # noqa: SLF001 - theirs
        return span


class Runner:
    """A runner of commands, which goes into a folder."""

    @contextmanager
    def isolated_filesystem(self, temp_dir: Path) -> Iterator[str]:
        """Go into a folder, and back."""
        with chdir(temp_dir):
            yield str(temp_dir)


class Log(ours.Log):
    """A line of an activity log, as their model reads it."""

    @staticmethod
    def model_validate_json(text: str) -> Any:
        """Read a line."""
        made = log_of(json.loads(text))
        fields = {name: getattr(made, name) for name in made.__struct_fields__}
        return SimpleNamespace(**{**fields, "catalog_version": SimpleNamespace(**made.catalog_version)})


@pytest.fixture
def temporary_directory(tmp_path: Path) -> Path:
    """A folder."""
    return tmp_path


@pytest.fixture
def environment_factory() -> Any:
    """What makes the folder of a catalog: the catalog makes its own."""
    return lambda **_given: None


FAULTS = ("Timeout", "UnAmbiguousTimeout", "TemporaryFail", "DocumentExists", "Couchbase")
KINDS_OF_FOLDER = SimpleNamespace(INDEXED_CLEAN_ALL_TRAVEL=None)
contents = {name: getattr(ours, name) for name in ours.__all__}
ABSENT = "gesta.compat.agent_catalog.absent"
NAMES = {
    **dict.fromkeys(("agentc_core", "agentc_cli", "agentc_testing", "couchbase", "click_extra"), ABSENT),
    "agentc": "gesta.compat.agent_catalog",
}
GIVEN: dict[str, dict[str, Any]] = {
    "agentc": {"Catalog": Catalog},
    "agentc_core.activity": contents,
    "agentc_core.activity.models.content": contents,
    "agentc_core.activity.models.log": {"Log": Log},
    "agentc_core.defaults": {"DEFAULT_ACTIVITY_FILE": "activity.log"},
    "agentc_cli.main": {"agentc": None},
    "agentc_testing.catalog": {
        "Environment": Any,
        "EnvironmentKind": KINDS_OF_FOLDER,
        "environment_factory": environment_factory,
    },
    "agentc_testing.directory": {"temporary_directory": temporary_directory},
    "agentc_testing.server": {"connection_factory": None, "shared_server_factory": None},
    "click_extra.testing": {"ExtraCliRunner": Runner},
    "couchbase.cluster": {"Cluster": Any},
    "couchbase.exceptions": {f"{name}Exception": type(name, (Exception,), {}) for name in FAULTS},
}
FILES = ["libs/agentc_core/tests/activity"]
KINDS = [
    Kind(
        "left out",
        "Empty, and skipped there too",
        ("test_activity.py::test_db_auditor", "test_activity.py::test_chain_auditor"),
    ),
    Kind(
        "beside",
        "What its loggers do where a Couchbase collection refuses a log: the document does not show them, and here "
        "whoever logs is told that it failed",
        ("test_logger_resilience.py",),
    ),
]


def pytest_configure(config: Any) -> None:
    """Make its marks known."""
    config.addinivalue_line("markers", "smoke: is quick")
    config.addinivalue_line("markers", "slow: is slow")
