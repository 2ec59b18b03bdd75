"""The lineage of an answer in a real browser: walked by keys, its words marked in both, folded, and hostile."""

from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside
from tests.viewing import TOKEN, viewed

import gesta

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
HOSTILE = """<img src=x onerror="alert(1)"><script>alert(2)</script><svg onload=alert(3)></a></foreignObject> \u202eevil 4417"""


@pytest.fixture(scope="module")
def crashed(record: Path) -> str:
    """Return the id of the run that was killed in the middle of its refund."""

    def look() -> str:
        with gesta.open_sync(record, readonly=True) as opened:
            return next(each.runs[0] for each in opened.sessions() if each.name == "demo-1-crash")

    return str(aside(look))


def said(agent: gesta.Agent[Any], text: str, record: Path) -> str:
    """Send a message to an agent, and return the id of its run."""
    return str(aside(lambda: gesta.run_sync(agent, text, record=record, session="s")).run)


def last_answer(record: Path, run: str) -> int:
    def look() -> int:
        with gesta.open_sync(record, readonly=True) as opened:
            return int(max(each.seq for each in opened.read(run) if each.kind == "assistant"))

    return int(aside(look))


def here(page: Any) -> str:
    """Return what the card is that a person stands on."""
    return str(page.locator(".graph .card.here small").inner_text())


def test_the_refund_is_drawn_walked_by_keys_and_left_for_the_conversation(page: Any, record: Path) -> None:
    with viewed(record) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_text("demo-1-crash").click()
        page.get_by_role("link", name="See it drawn").click()
        page.locator(".graph .card.target").wait_for()
        assert here(page).startswith("answer · entry ")
        canvas = page.locator(".canvas")
        canvas.focus()
        walked = []
        for _ in range(8):
            canvas.press("ArrowUp")
            walked.append(here(page).split(" · ")[0])
        assert {"result", "settled", "approval", "call"} <= set(walked)
        settled = page.locator(".graph .card.Resolution")
        settled.hover()
        words = page.locator(".lineage .from", has_text="card ending 4417")
        assert "lit" in words.get_attribute("class")
        assert settled.locator("mark", has_text="card ending 4417").count() == 1
        words.focus()
        assert "lit" in settled.get_attribute("class")
        for _ in words.get_attribute("data-ids").split():  # around all entries that say it, and back
            words.press("Enter")
        assert here(page).startswith("settled")
        seq = here(page).rpartition(" ")[2]
        canvas.press("Enter")
        page.locator(".item.here, .item:has(.story)").first.wait_for()
        assert page.url.endswith(f"#{seq}")


def test_the_same_is_a_list_for_whoever_listens(page: Any, record: Path, crashed: str) -> None:
    with viewed(record) as address:
        page.goto(f"{address}/r/0/run/{crashed}/why?token={TOKEN}")
        page.get_by_text("The same as a list").click()
        rows = page.locator(".as-list li").all_inner_texts()
        assert len(rows) == page.locator(".graph .card").count()
        assert rows[-1].startswith("answer · entry ")
        assert "from: " in rows[-1]
        page.locator(".canvas").press("ArrowUp")
        assert page.locator("#spoken").inner_text()
        page.get_by_role("button", name="Everything before it").click()
        page.locator(".graph .card.Analysis").first.wait_for()
        assert page.url.partition("?")[2].startswith("all=1")


def test_a_turn_is_folded_and_opened_again_and_its_address_says_so(page: Any, record: Path, crashed: str) -> None:
    with viewed(record) as address:
        page.goto(f"{address}/r/0/run/{crashed}/why?token={TOKEN}")
        groups = page.locator(".graph .group")
        groups.first.wait_for()
        before = groups.count()
        groups.first.locator("button").click()
        folded = page.locator(".graph .folded")
        folded.wait_for()
        assert groups.count() == before - 1
        assert "turned=" in page.url
        page.reload()
        folded.wait_for()
        folded.click()
        folded.wait_for(state="detached")
        assert groups.count() == before


def test_a_graph_that_is_much_taller_than_the_window_has_a_map_that_leads_through_it(
    page: Any, record: Path, crashed: str
) -> None:
    page.set_viewport_size({"width": 700, "height": 420})
    with viewed(record) as address:
        page.goto(f"{address}/r/0/run/{crashed}/why?token={TOKEN}")
        page.locator(".graph .card.target").wait_for()
        canvas = page.locator(".canvas")
        assert canvas.evaluate("each => each.scrollTop") > 0  # the answer is in sight, not the question
        page.locator(".map").click(position={"x": 10, "y": 2})
        assert canvas.evaluate("each => each.scrollTop") == 0
        seen = float(page.locator(".map .seen").get_attribute("height"))
        page.get_by_role("button", name="All of it").click()
        page.locator(".map").wait_for(state="hidden")
        assert canvas.evaluate("each => each.scrollHeight - each.clientHeight") < 5
        page.set_viewport_size({"width": 700, "height": 421})
        page.get_by_role("button", name="All of it").click()
        page.locator(".map").wait_for()
        page.get_by_role("button", name="Larger").click()
        assert float(page.locator(".map .seen").get_attribute("height")) < seen


def test_the_address_of_a_cut_place_or_of_no_entry_shows_the_last_answer(page: Any, record: Path, crashed: str) -> None:
    with viewed(record) as address:
        page.goto(f"{address}/r/0/run/{crashed}/why?token={TOKEN}&turned=%,,#%")
        page.locator(".graph .card.target").wait_for()
        assert here(page).startswith("answer · entry ")


def test_any_entry_has_a_lineage_also_one_that_is_no_answer(page: Any, record: Path, crashed: str) -> None:
    with viewed(record) as address:
        page.goto(f"{address}/r/0/run/{crashed}/why/38?token={TOKEN}")
        page.locator(".graph .card.target.Observation").wait_for()
        assert page.locator(".bar h1").inner_text() == "Why this entry"
        assert page.locator(".graph .card.ToolUse").count() > 0
        page.goto(f"{address}/r/0/run/{crashed}/why/1")
        page.locator(".graph .card.target").wait_for()
        assert page.locator(".graph .card").count() == 1


def test_a_fold_that_no_viewer_answers_is_taken_back_and_works_once_it_is_there_again(
    page: Any, record: Path, crashed: str
) -> None:
    fold = page.locator(".graph .group button").first
    with viewed(record) as address:
        page.goto(f"{address}/r/0/run/{crashed}/why/41?token={TOKEN}")
        fold.wait_for()
    for _ in range(2):
        fold.click()
        page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").count() == 1
    assert "turned" not in page.url
    with viewed(record, port=int(address.rpartition(":")[2])):
        fold.click()
        page.locator(".graph .folded").wait_for()
        assert page.get_by_role("alert").count() == 0


def test_a_finger_looks_at_a_card_before_it_follows_it(browser: Any, record: Path, crashed: str) -> None:
    context = browser.new_context(viewport={"width": 420, "height": 900}, has_touch=True)
    opened = context.new_page()
    with viewed(record) as address:
        opened.goto(f"{address}/r/0/run/{crashed}/why/41?token={TOKEN}")
        card = opened.locator(".graph .card.Resolution")
        card.tap()
        opened.locator(".graph .card.Resolution.here").wait_for()
        assert "/why/" in opened.url
        card.tap()
        opened.wait_for_url("**#37")
    context.close()


def test_hostile_words_stay_words_in_every_place_of_the_graph(page: Any, tmp_path: Path) -> None:
    @gesta.tool(effect="pure")
    def look(words: str) -> dict[str, str]:
        """Look."""
        return {words: words}

    path = tmp_path / "hostile.gesta"
    model = gesta.scripted(gesta.reply(text=HOSTILE, calls=[gesta.call("look", words=HOSTILE)]), HOSTILE)
    agent = gesta.Agent(HOSTILE, model=model, tools=[look], instructions=HOSTILE)
    run = said(agent, HOSTILE, path)
    with viewed(path) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.goto(
            f"{address}/r/0/run/{run}/why/{last_answer(path, run)}?all=1&turned=%3Cimg%20src%3Dx%3E#%3Cimg%20src%3Dx%3E"
        )
        page.locator(".graph .card.target").wait_for()
        bottom = page.locator(".drawing").evaluate("each => each.getBoundingClientRect().bottom")
        assert bottom <= 901  # also below a long name
        cards = page.locator(".graph .card")
        assert cards.count() >= 5
        for card in cards.all():
            card.hover()
            assert "<script>" in card.text_content()
            assert "<script>" in page.locator(".lineage .side-panel").inner_text()
        page.get_by_text("The same as a list").click()
        assert page.locator("main img, main script, main [onerror], main [onload]").count() == 0
        assert page.locator("main svg").count() == 1


def test_the_lineage_of_an_entry_that_is_not_there_says_so(page: Any, record: Path) -> None:
    with viewed(record) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.goto(f"{address}/r/0/run/nothing/why/3")
        page.get_by_text("All sessions").wait_for()
