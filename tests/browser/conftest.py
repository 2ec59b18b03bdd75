"""A browser, a page and the record of the demo, for each file of tests here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import NEEDED, aside, browsing, looking
from tests.commands import gesta_command


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing(pytest.importorskip("playwright.sync_api", reason=NEEDED)) as opened:
        yield opened


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Return a page that fails its test if a script of it failed, or if anything opened a dialog."""
    with looking(browser) as opened:
        yield opened


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "shop.gesta"
    assert aside(lambda: gesta_command("demo", "--yes", "--record", str(path)).exit_code) == 0
    return path
