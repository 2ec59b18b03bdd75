"""The page of evidence in a real browser: a check against heads that were kept elsewhere, and the way to the entry."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, looking
from tests.commands import gesta_command
from tests.viewing import TOKEN, viewed

import gesta
from gesta.kinds import AssistantContent, UserContent

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)


def test_a_cut_run_is_found_against_heads_on_the_page_and_shown_where_it_was_cut(browser: Any, tmp_path: Path) -> None:
    record, heads = tmp_path / "cut.gesta", tmp_path / "heads.txt"

    def write() -> None:
        with gesta.open_sync(record) as opened, opened.span("app", session="s") as span:
            span.log(UserContent(value="Pay 10"))
            span.log(AssistantContent(value="Paid."))
        assert gesta_command("verify", str(record), "--keep", str(heads)).exit_code == 0
        with closing(sqlite3.connect(record)) as db, db:
            db.execute("DELETE FROM entries WHERE seq = 4")

    aside(write)
    with viewed(record) as address, looking(browser) as page:
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_role("link", name="Evidence").click()
        page.get_by_text("Nobody checked this record since the viewer started.").wait_for()
        page.get_by_role("button", name="Check the record").click()
        page.locator(".whole-chain", has_text="3 entries checked: nothing was changed.").wait_for()
        page.get_by_text("Compare with heads").click()
        page.get_by_label("A file of heads").set_input_files(str(heads))
        sync_api.expect(page.locator("textarea")).to_have_value(re.compile(r"\.4:"))
        page.get_by_role("button", name="Check the record").click()
        page.get_by_text("the last entries of the record are removed").wait_for(state="attached")
        page.get_by_role("link", name="entry 4").click()
        page.locator(".flaw", has_text="cut off: entry 4 is not there any more").wait_for()
        page.get_by_text("Compared with a head that was kept elsewhere, of entry 4").wait_for()
