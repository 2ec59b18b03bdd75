"""A folder that `gesta view --export` wrote, opened from the disk in a real browser that has no network."""

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, looking
from tests.commands import gesta_command

import gesta
from gesta.kinds import ArtifactContent, AssistantContent, ToolCallContent, ToolResultContent, UserContent

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.timeout(120),
]
HOSTILE = (
    """</script><script>alert(1)</script><img src=x onerror="alert(2)"><!--<script>\u2028\u2029";alert(3)//\\');alert(4)//"""
    "`${alert(5)}` \ud800 javascript:alert(6)"
)
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAC0lEQVR4nGNgAAMAAAcAAbKGrPQAAAAASUVORK5CYII=")


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Return a page without a network, which fails if a script of it failed, or if the console showed an error.

    It is closed before `tmp_path` is removed, because an open page may load a file of its folder at any time.
    """
    assert tmp_path.is_dir()
    with looking(browser, offline=True) as opened:
        wrong = list[str]()
        opened.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        opened.on("requestfailed", lambda asked: wrong.extend(failed(asked)))
        opened.on(
            "request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url)
        )
        yield opened
        assert wrong == []


def written(record: Path, folder: Path, *words: str) -> str:
    """Write a folder, and return the address of its page."""
    done = aside(lambda: gesta_command("view", str(record), "--export", str(folder), *words))
    assert done.exit_code == 0, done.stderr
    return (folder / "index.html").as_uri()


def test_a_folder_shows_the_story_of_a_killed_refund_and_why_its_answer_was_given(page: Any, tmp_path: Path) -> None:
    record = tmp_path / "shop.gesta"
    assert aside(lambda: gesta_command("demo", "--yes", "--record", str(record)).exit_code) == 0
    page.goto(written(record, tmp_path / "a folder # of ü", "--run", "demo-1-crash"))
    page.locator(".story").get_by_text("it had happened").wait_for()
    assert page.locator("svg.time .death").count() == 1
    page.locator(".explained .from", has_text="card ending 4417").hover()
    assert page.locator(".why li.lit").count() == 1
    page.get_by_text("See it drawn").click()
    page.locator("svg.graph .card").first.wait_for()
    before = page.locator("svg.graph .card").count()
    page.get_by_role("button", name="Everything before it").click()
    page.locator("svg.graph .card").nth(before).wait_for(state="attached")
    page.get_by_role("link", name="in the conversation").click()
    page.locator(".item.here").wait_for()
    assert page.get_by_role("search").count() == 0
    page.get_by_role("link", name="What was sent", exact=True).click()
    page.get_by_role("heading", name="Request 7 of 7").wait_for()
    for words in ("All of it", "As the provider gets it"):
        page.get_by_role("link", name=words).click()
    page.locator("pre.wire", has_text="brass").wait_for()
    page.get_by_role("link", name="The request before").click()
    page.get_by_role("heading", name="Request 6 of 7").wait_for()
    page.get_by_role("link", name="Steps").click()
    page.locator("table.steps tr.acts").first.wait_for()
    page.get_by_role("link", name="Timeline").click()
    page.get_by_text("1 death of a process").first.wait_for()


def test_a_changed_entry_is_shown_in_red_in_a_folder_too(page: Any, tmp_path: Path) -> None:
    record = tmp_path / "changed.gesta"

    def write() -> None:
        with gesta.open_sync(record) as opened, opened.span("app", session="s") as span:
            span.log(UserContent(value="Pay 10"))
            span.log(AssistantContent(value="Paid."))
        with closing(sqlite3.connect(record)) as db, db:
            db.execute("UPDATE entries SET content = replace(content, '10', '90') WHERE seq = 2")

    aside(write)
    page.goto(written(record, tmp_path / "site"))
    mark = page.locator(".item.flawed .flaw")
    mark.get_by_text("changed: entry 2 (user) does not match its digest").wait_for()
    assert "rgb(179, 38, 30)" in mark.evaluate("each => getComputedStyle(each).color")
    page.get_by_role("region", name="Evidence").get_by_text("1 place of this run is not as written").wait_for()


def failed(asked: Any) -> list[str]:
    """Return what failed about a request; nothing if the browser broke it off, because its page was left."""
    return [] if asked.failure == "net::ERR_ABORTED" else [f"{asked.url}: {asked.failure}"]


def test_a_long_run_is_read_from_one_file_after_another(page: Any, tmp_path: Path) -> None:
    record = tmp_path / "long.gesta"

    def write() -> None:
        with gesta.open_sync(record) as opened, opened.span("app", session="long") as span:
            for number in range(450):
                span.log(
                    UserContent(value=f"message {number} " + "word " * (2000 if number == 300 else 1) + f"end {number}")
                )

    aside(write)
    address = written(record, tmp_path / "site")
    page.goto(address)
    page.get_by_text("message 10 word").wait_for()
    assert page.get_by_text("message 380").count() == 0
    page.goto(f"{address}?/r/0/run/{record_run(record)}#382")
    page.get_by_text("message 380").wait_for()
    page.goto(f"{address}?/r/0/run/{record_run(record)}#302")
    page.get_by_text("message 300").wait_for()
    page.get_by_role("button", name="show all of it").click()
    page.get_by_text("end 300").wait_for()
    for _ in range(4):  # a link is followed while the page is still going to another entry
        page.goto(address)
        page.goto(f"{address}?/r/0/run/{record_run(record)}#382")
        page.goto(f"{address}?/r/0/run/{record_run(record)}#302")
        page.get_by_text("message 300").wait_for()


def record_run(record: Path) -> str:
    def look() -> str:
        with gesta.open_sync(record, readonly=True) as opened:
            return str(opened.sessions()[0].runs[0])

    return str(aside(look))


def test_whatever_was_said_stays_text_in_the_files_too(page: Any, tmp_path: Path) -> None:
    record = tmp_path / "hostile.gesta"

    def write() -> None:
        with gesta.open_sync(record) as opened, opened.span(HOSTILE, session=HOSTILE) as span:
            span.log(UserContent(value=HOSTILE, user_id=HOSTILE))
            span["__proto__"] = {"__proto__": {"class": "item polluted"}, HOSTILE: HOSTILE}
            call = span.log(ToolCallContent(tool_name=HOSTILE, tool_args={HOSTILE: HOSTILE}))
            assert call is not None
            span.log(ToolResultContent(tool_result=[PNG, b"<script>alert(7)</script>"], call=call.seq))
            span.log(ArtifactContent(name="gone.png", media_type="image/png", blob="0" * 64))
            span.log(AssistantContent(value=HOSTILE))

    aside(write)
    page.goto(written(record, tmp_path / "site"))
    page.locator(".answer p", has_text="</script><script>alert(1)").wait_for()
    page.get_by_text("2 members").first.click()
    page.locator(".note dd", has_text="<!--<script>").first.wait_for()
    assert page.locator("main script, main [onerror], main img:not([src^='data/0-entries-'])").count() == 0
    page.locator("details.call summary").first.click()
    image = page.locator("main img").first
    assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 2
    assert page.locator(".file a[download]").first.get_attribute("href") == "data/0-entries-5-files-1.bin"
    assert page.evaluate("({}).class") is None
