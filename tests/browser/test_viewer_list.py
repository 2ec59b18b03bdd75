"""The list of sessions in a real browser: its address says what it shows, it is live; a long run stays a small page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, looking
from tests.viewing import TOKEN, viewed

import gesta
from gesta import kinds

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.timeout(120),
]
LONG = 700
ALL, LAST = re.compile("5[45] sessions"), re.compile("51 to 5[45] of 5[45]")
"""Another test may have written one more session before."""


@gesta.tool(effect="pure")
def look(number: int) -> str:
    """Look something up."""
    if number > 1:
        raise gesta.ToolError("there is no such number")
    return "a lamp"


def desk(*said: Any, name: str = "desk") -> gesta.Agent[str]:
    return gesta.Agent(name, model=gesta.scripted(*said), tools=[look])


async def fill(path: Path) -> None:
    async with gesta.open(path) as record:
        clerk = desk(gesta.call("look", number=1), "A lamp.", name="clerk").as_tool(description="Looks.")
        boss = gesta.scripted(gesta.call("clerk", task="Look."), "It is a lamp.")
        await record.run(gesta.Agent("boss", model=boss, tools=[clerk]), "What is there?", session="below")
        await record.run(desk(gesta.call("look", number=2), "Nothing."), "And two?", session="wrong")
        for number in range(51):
            async with record.span("notes", session=f"s{number:02}") as span:
                span.log(kinds.UserContent(value=f"Question {number}"))
        async with record.span("long", session="long") as span:
            for number in range(LONG):
                span.log(kinds.UserContent(value=f"Line {number}\n\nand one more, a little longer than the first."))


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("list") / "shop.gesta"
    aside(lambda: anyio.run(fill, path))
    return path


@pytest.fixture(scope="module")
def address(record: Path) -> Iterator[str]:
    with viewed(record) as at:
        yield at


@pytest.fixture(scope="module")
def page(browser: Any, address: str) -> Iterator[Any]:
    """Return one page for all tests; it fails the last one if a script of it failed."""
    with looking(browser) as opened:
        opened.goto(f"{address}/?token={TOKEN}")
        yield opened


def test_filters_order_and_page_stand_in_the_address_and_come_back_with_it(page: Any, address: str) -> None:
    page.goto(f"{address}/r/0")
    page.locator(".sums").get_by_text(ALL).wait_for()
    page.get_by_role("button", name="More ›").click()
    page.get_by_text(LAST).wait_for()
    page.reload()
    page.get_by_text(LAST).wait_for()
    page.get_by_label("with errors").check()
    page.locator(".sums").get_by_text("1 session").wait_for()
    assert page.locator(".sessions .title").all_inner_texts() == ["And two?"]
    assert page.url.endswith("/r/0?errors=1")
    page.get_by_label("Tool").select_option("look")
    page.get_by_label("Order").select_option("tokens")
    page.get_by_label("with errors").uncheck()
    page.locator(".sums").get_by_text("2 sessions").wait_for()
    assert page.url.partition("?")[2] == "tool=look&sort=tokens"
    page.reload()
    page.locator(".sums").get_by_text("2 sessions").wait_for()
    page.get_by_role("button", name="Show all").click()
    page.locator(".sums").get_by_text(ALL).wait_for()


def test_children_stand_under_their_session_and_words_lead_to_their_place(page: Any, address: str) -> None:
    page.goto(f"{address}/r/0?words=lamp")
    row = page.locator(".sessions > li", has_text="What is there?")
    row.get_by_text("1 run below").click()
    row.locator(".tree a", has_text="clerk").wait_for()
    assert row.locator(".found mark").all_inner_texts() == ["lamp"]
    row.locator("a.row").click()
    page.locator(".item.here", has_text="lamp").wait_for()


def test_a_session_that_is_written_comes_on_top_while_one_looks(page: Any, address: str, record: Path) -> None:
    page.goto(f"{address}/r/0?agent=desk")
    page.locator(".sessions > li").first.wait_for()
    aside(lambda: gesta.run_sync(desk("Now."), "Something new", record=record, session="new"))
    page.locator(".sessions > li:first-child .title", has_text="Something new").wait_for()


def test_of_a_long_run_only_what_is_near_the_screen_is_in_the_page(page: Any, address: str) -> None:
    page.goto(f"{address}/r/0?words=Line")
    page.locator("a.row").first.click()
    page.wait_for_url("**/run/**")
    page.goto(page.url.partition("#")[0])
    items = page.locator(".item")
    items.first.wait_for()
    most = page.evaluate(
        """async (last) => {
          let most = 0;
          while (!document.getElementById(`e${last}`)) {
            scrollTo(0, document.body.scrollHeight);
            await new Promise((done) => setTimeout(done, 20));
            most = Math.max(most, document.querySelectorAll(".item").length);
          }
          return most;
        }""",
        LONG + 1,
    )
    page.locator(".item").nth(249).wait_for(state="detached")
    assert most < LONG
    page.evaluate("scrollTo(0, 0)")
    page.locator("#e2").wait_for()
    assert page.locator(f"#e{LONG + 1}").count() == 0
    page.evaluate("location.hash = '#500'")
    page.locator("#e500.here").wait_for()
    page.keyboard.press("j")
    page.locator("#e501.here").wait_for()
    assert items.count() < 250
