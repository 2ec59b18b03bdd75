"""The timeline, sub-agents and the story of a crash, in a real browser."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, said
from tests.journeys.test_budgets import talker
from tests.ribs.test_viewer_lanes import tree
from tests.viewing import TOKEN, viewed

import gesta
from gesta.kinds import ChatCompletionContent

pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
CALLS = 30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a record with an agent that called another thirty times at once, and with large values."""
    path = tmp_path_factory.mktemp("lanes") / "tree.gesta"
    said(tree(CALLS), "Go", path)
    usage = {"prompt_tokens": 3000, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 2048}}
    paid = talker(budget=gesta.Budget(usd=9.0), usage=usage, turns=1)
    said(paid, "Look", path, "paid")

    def copied() -> None:
        with gesta.open_sync(path) as opened, opened.span("copied", session="copied") as span:
            span["state"] = {f"member {number}": "x" * 40 for number in range(50)}
            span.log(ChatCompletionContent(output="said", latency_ms=1500.0))

    aside(copied)
    return path


@pytest.fixture(scope="module")
def address(record: Path, made: Path) -> Iterator[str]:
    with viewed(record, made) as at:
        yield at


def runs(path: Path) -> dict[str, str]:
    """Return the id of each root run, by its session."""

    def look() -> dict[str, str]:
        with gesta.open_sync(path, readonly=True) as opened:
            return {each.name: each.runs[0] for each in opened.sessions()}

    return dict(aside(look))


def test_each_step_of_a_killed_run_stands_in_time_with_its_cost(page: Any, address: str, record: Path) -> None:
    page.goto(f"{address}/?token={TOKEN}")
    page.goto(f"{address}/r/0/run/{runs(record)['demo-1-crash']}/time")
    rows = page.locator(".lane")
    rows.filter(has_text="refund").first.wait_for()
    assert rows.filter(has_text="1 process died").count() == 1
    assert rows.filter(has_text="settled").locator("rect.settled").count() == 1
    assert rows.filter(has_text="Turn 3").inner_text().split()[-1] == "2,009"
    rows.filter(has_text="Turn 3").get_by_text("only this").click()
    page.get_by_text("The whole run").wait_for()
    assert rows.filter(has_text="Turn 2").count() == 0
    rows.filter(has_text="approval of refund").get_by_role("link").click()
    page.locator(".item.here .story").get_by_text("it had happened").wait_for()
    events = page.locator(".events").inner_text()
    assert "A process died: refund in flight" in events
    assert "reconcile of refund settled it: it had happened" in events


def test_no_word_of_the_ruler_covers_another_or_is_cut_off(page: Any, address: str, record: Path) -> None:
    page.goto(f"{address}/?token={TOKEN}")
    page.goto(f"{address}/r/0/run/{runs(record)['demo-1-crash']}/time")
    ruler = page.locator(".ruler")

    def apart() -> bool:
        end = ruler.bounding_box()["x"] + ruler.bounding_box()["width"]
        found = [word.bounding_box() for word in ruler.locator("text:not([display])").all()]
        boxes = sorted((each["x"], each["x"] + each["width"]) for each in found if each)
        return (
            len(boxes) > 1 and all(one[1] < other[0] for one, other in pairwise(boxes)) and boxes[-1][1] <= end + 3
        )  # the lines around the letters

    for width in (1360, 1240, 1000, 420):
        page.set_viewport_size({"width": width, "height": 900})
        ruler.locator("text").first.wait_for()
        for _ in range(50):
            page.wait_for_timeout(100)  # until the page is drawn at this width
            if apart():
                break
        assert apart(), width


def test_hundreds_of_sub_agents_are_folded_and_read_in_place(page: Any, address: str, made: Path) -> None:
    page.goto(f"{address}/?token={TOKEN}")
    page.goto(f"{address}/r/1/run/{runs(made)['s']}")
    page.get_by_text(f"{CALLS - 8} more calls").wait_for()
    page.get_by_text(f"The {CALLS} runs that it started: {CALLS} answered").wait_for()
    first = page.locator(".child").first
    assert "did 0" in first.locator("summary").first.inner_text()
    first.locator("summary").first.click()
    first.locator(".child").get_by_text("A leaf.").wait_for()
    assert page.locator(".child [id]").count() == 0
    page.get_by_role("link", name="Timeline").click()
    group = page.get_by_role("button", name=f"tools twig × {CALLS}")
    group.wait_for()
    before = page.locator(".lane").count()
    group.click()
    page.get_by_role("button", name="agent twig").first.click()
    page.locator(".lane", has_text="leaf").first.wait_for()
    assert page.locator(".lane").count() > before + CALLS
    page.get_by_role("link", name="leaf").first.click()
    page.locator(".item.here").wait_for()


def test_large_values_are_one_line_and_what_a_source_says_is_marked(page: Any, address: str, made: Path) -> None:
    page.goto(f"{address}/?token={TOKEN}")
    page.goto(f"{address}/r/1/run/{runs(made)['copied']}")
    value = page.locator(".item", has_text="state").locator("details")
    assert value.inner_text().startswith("50 members, 2,")
    value.locator("summary").click()
    value.get_by_text("member 1", exact=True).wait_for()
    page.get_by_role("link", name="Timeline").click()
    page.locator(".lane", has_text="≈ 1.5 s").wait_for()
    assert page.locator("rect[data-said]").count() == 1


def test_each_step_says_its_tokens_and_its_money(page: Any, address: str, made: Path) -> None:
    page.goto(f"{address}/?token={TOKEN}")
    page.goto(f"{address}/r/1/run/{runs(made)['paid']}")
    page.locator(".answer .cost", has_text="$0.20").wait_for()
    steps = page.locator(".cost").all_inner_texts()
    assert [each.split("\n")[1:] for each in steps] == [["2,048 cached", "$0.2000"]] * 2
    assert all(each.startswith("3,020 tok · ") for each in steps)
    assert "6,040 tokens · 4,096 cached · $0.4000" in page.locator(".turn > header").inner_text()
    assert "6,000 tokens read (4,096 cached), 40 written" in page.locator(".side-panel").inner_text()
    page.get_by_role("link", name="Timeline").click()
    turn = page.locator(".lane", has_text="Turn 1")
    turn.wait_for()
    assert turn.inner_text().split("\n")[-1] == "$0.4000"
