"""What was sent, and the forms of a run, in a real browser: read by eye, by keyboard, by address, and while it goes on."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, browsing, looking
from tests.ribs.test_viewer_sent import LONG, talk
from tests.viewing import TOKEN, viewed

import gesta
from gesta.kinds import AssistantContent, UserContent

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str, Path, str]]:
    """Return a page that is let in, the address of a run, its record, and its id."""
    path = tmp_path_factory.mktemp("sent") / "talk.gesta"
    run = aside(lambda: talk(path))
    with viewed(path) as address, browsing(sync_api) as browser, looking(browser) as page:
        page.goto(f"{address}/?token={TOKEN}")
        yield page, f"{address}/r/0/run/{run}", path, run


def test_what_changed_is_read_beside_the_request_before(seen: tuple[Any, str, Path, str]) -> None:
    page, at, _, _ = seen
    page.goto(at)
    page.locator(".answer .asked-for").nth(1).click()
    page.get_by_role("heading", name="Request 4 of 6").wait_for()
    page.locator(".message.changed").wait_for()
    assert page.locator(".message.changed, .message.again, .message.added").evaluate_all(
        "all => all.map((each) => each.className.split(' ')[2])"
    ) == ["changed", "again", "again", "added", "added"]
    changed = page.locator(".message.changed")
    assert "left out to save space" in changed.inner_text()
    changed.get_by_text("what it was").click()
    assert LONG[:1_900] in changed.inner_text()
    changed.get_by_role("button", name="show all 4,0").click()
    changed.get_by_text(LONG).wait_for()
    page.get_by_text("messages as before").click()
    page.locator(".kept .message").first.wait_for()
    assert page.locator(".kept .message .who").all_inner_texts() == ["user", "assistant"]
    assert "question 0: <script>alert(1)</script>" in page.locator(".kept").inner_text()


def test_requests_are_walked_by_keyboard_and_each_has_an_address(seen: tuple[Any, str, Path, str]) -> None:
    page, at, _, _ = seen
    page.goto(f"{at}/sent/0")
    page.get_by_role("heading", name="Request 6 of 6").wait_for()
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.get_by_role("heading", name="Request 4 of 6").wait_for()
    page.keyboard.press("k")
    page.get_by_role("heading", name="Request 3 of 6").wait_for()
    assert page.locator(".prefix svg").nth(1).get_attribute("aria-label") == (
        "The provider had 1,200 of 1,300 tokens in its cache."
    )
    there = page.url
    page.keyboard.press("j")
    page.get_by_role("heading", name="Request 4 of 6").wait_for()
    page.go_back()
    page.get_by_role("heading", name="Request 3 of 6").wait_for()
    assert page.url == there
    page.keyboard.press("2")
    page.get_by_text("2 messages").first.wait_for()
    assert page.url == f"{there}?show=all"
    page.locator("details.call summary", has_text="look").click()
    page.get_by_text("what", exact=True).first.wait_for()


def test_the_same_request_as_another_provider_gets_it(seen: tuple[Any, str, Path, str]) -> None:
    page, at, _, _ = seen
    page.goto(f"{at}/sent/0?show=wire")
    page.get_by_text("This model has no address").wait_for()
    page.get_by_label("As another provider gets it").select_option("anthropic")
    page.get_by_text("POST https://api.anthropic.com/v1/messages").wait_for()
    page.get_by_label("Form of the history").select_option("react-text")
    lost = page.get_by_role("region", name="What cannot be said")
    lost.get_by_text("3 × calls-in-words").wait_for()
    assert "1 × settings" in lost.inner_text()
    assert "<ANTHROPIC_API_KEY>" in page.locator(".headers").inner_text()
    page.get_by_label("Name of the model").fill("claude-x")
    page.keyboard.press("Tab")
    page.get_by_text('"model": "claude-x"').wait_for()
    assert "as=anthropic%3Aclaude-x" in page.url
    page.get_by_label("with what was left out").check()
    page.locator(".wire", has_text=LONG).wait_for()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the exact").click()
    assert Path(saved.value.path()).read_bytes().startswith(b'{"model":"claude-x"')
    page.goto(f"{at}/sent/0?as=nobody:x")
    page.get_by_role("alert").get_by_text("nobody").wait_for()
    page.get_by_label("As another provider gets it").select_option("google")
    page.get_by_role("heading", name="Request 6 of 6").wait_for()


def test_one_switch_shows_a_run_in_six_forms(seen: tuple[Any, str, Path, str]) -> None:
    page, at, _, _ = seen
    page.goto(at)
    switch = page.get_by_role("navigation", name="Forms of this run")
    for name, form, said in (
        ("Activity", "activity", "request-header"),
        ("Steps", "steps", "AgentFinish"),
        ("Task", "task", "LLM"),
        ("ReAct", "react", "observation"),
        ("CodeAct", "codeact", "look(what="),
        ("Why", "why", "Conclusion"),
    ):
        switch.get_by_role("link", name=name).click()
        page.locator("table.form td", has_text=said).first.wait_for()
        assert page.url == f"{at}?form={form}"
        assert switch.locator("[aria-current=page]").inner_text() == name
    page.get_by_role("link", name="See it drawn").wait_for()
    page.goto(f"{at}?form=react")
    page.get_by_role("button", name="show all 4,0").first.click()
    page.get_by_text(LONG).first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.locator("tr.here").get_attribute("data-place") == "1"
    page.locator("td.at a").first.click()
    page.locator(".item.here").wait_for()


def test_what_comes_is_shown_while_one_looks(seen: tuple[Any, str, Path, str], tmp_path: Path) -> None:
    page, _, path, run = seen
    live = Path(shutil.copy(path, tmp_path / "live.gesta"))
    agent = gesta.Agent("desk", gesta.scripted(*["-"] * 6, "And on.", "On and on."))

    def go_on() -> str:
        return str(gesta.run_sync(agent, "Go on", record=live, session="s").run)

    with viewed(live) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.goto(f"{address}/r/0/run/{run}/sent/0")
        page.get_by_role("heading", name="Request 6 of 6").wait_for()
        assert aside(go_on) == run
        page.get_by_role("heading", name="Request 6 of 7").wait_for()
        page.get_by_role("link", name="The request after").click()
        page.get_by_text("Changed before the first message, so no cache helps").wait_for()
        page.goto(f"{address}/r/0/run/{run}?form=task")
        page.get_by_text("And on.", exact=True).wait_for()
        aside(go_on)
        page.get_by_text("On and on.", exact=True).wait_for()


def test_a_run_without_requests_and_turns_says_so_and_names_its_agent_wherever_one_begins_to_read(
    seen: tuple[Any, str, Path, str], tmp_path: Path
) -> None:
    path = tmp_path / "spans.gesta"
    with gesta.open_sync(path) as record, record.span("importer", session="s") as span:
        for number in range(200):
            span.log(UserContent(value=f"Question {number}?", user_id="ann"))
            span.log(AssistantContent(value=f"Answer {number}."))
        run = span.run
    with viewed(path) as address, looking(seen[0].context.browser) as page:
        page.goto(f"{address}/r/0/run/{run}/sent?token={TOKEN}")
        page.get_by_role("heading", name="The request that would come next").wait_for()
        assert page.title().startswith("The request that would come next · importer")
        assert page.locator(".side-panel").inner_text().endswith("No request is on record.")
        assert page.locator(".talk > div > p a").count() == 0, "no entry is named that is not on record"
        page.goto(f"{address}/r/0/run/{run}#361")
        page.locator("#e361").wait_for()
        assert page.locator("#e361 .who").inner_text() == "importer"
