"""The viewer in a real browser: the story of a killed refund, what comes while one looks, and hostile texts."""

from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, said
from tests.viewing import TOKEN, viewed

import gesta
from gesta.cli.approving import who
from gesta.decide.waiting import SENT
from gesta.kinds import ApprovalContent

pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
HOSTILE = """<img src=x onerror="alert(1)"><script>alert(2)</script><svg onload=alert(3)>`**</b>**` [x](javascript:alert(4))"""


def test_the_story_of_a_refund_that_was_killed_is_read_on_one_page(page: Any, record: Path) -> None:
    with viewed(record) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_text("demo-1-crash").click()
        story = page.locator(".story")
        story.get_by_text("What happened to this refund").wait_for()
        assert story.get_by_text("killed").count() == 1
        assert story.get_by_text("it had happened").count() == 1
        assert page.locator(".cards").inner_text().startswith("1\nrefund happened")
        assert page.locator("svg.time .death").count() == 1
        page.locator(".explained .from", has_text="card ending 4417").hover()
        assert page.locator(".why li.lit").count() == 1


def test_what_comes_is_shown_while_one_looks_also_after_the_viewer_was_started_again(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "live.gesta"
    agent = gesta.Agent("desk", model=gesta.scripted("One.", "Two.", "Three."))
    run = said(agent, "First", path)
    with viewed(path) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.goto(f"{address}/r/0/run/{run}")
        page.get_by_text("One.").wait_for()
        said(agent, "Second", path)
        page.get_by_text("Two.").wait_for()
    page.get_by_text("The viewer does not answer").wait_for()
    said(agent, "Third", path)
    with viewed(path, port=int(address.rpartition(":")[2])):
        page.get_by_text("Three.").wait_for(timeout=15_000)
        page.get_by_text("The viewer does not answer").wait_for(state="hidden")
    assert page.locator(".answer .said").all_inner_texts() == [
        "One.\n\nwhy?\nwhat was sent?",
        "Two.\n\nwhy?\nwhat was sent?",
        "Three.\n\nwhy?\nwhat was sent?",
    ]


def test_whatever_was_said_is_shown_as_text(page: Any, tmp_path: Path) -> None:
    @gesta.tool(effect="pure")
    def look(words: str) -> dict[str, str]:
        """Look."""
        return {words: words}

    path = tmp_path / "hostile.gesta"
    model = gesta.scripted(gesta.reply(text=HOSTILE, calls=[gesta.call("look", words=HOSTILE)]), HOSTILE)
    agent = gesta.Agent(HOSTILE, model=model, tools=[look])
    run = said(agent, HOSTILE, path, HOSTILE)
    with viewed(path) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.locator(".title", has_text="<img src=x").wait_for()
        page.goto(f"{address}/r/0/run/{run}")
        page.locator(".answer p", has_text="<script>alert(2)</script>").wait_for()
        page.locator(".why li").first.wait_for()
        assert page.locator("main img, main script, main b script, main [onerror]").count() == 0


@gesta.tool(effect="once", approval=True)
def pay(order: int, note: str) -> str:
    """Pay money back."""
    return f"order {order} is paid, {note}"


def test_an_approval_given_on_the_page_lets_a_waiting_run_finish(page: Any, tmp_path: Path) -> None:
    path, note = tmp_path / "wait.gesta", "for b\u0430nk \u202eevil"
    model = gesta.scripted(gesta.call("pay", order=7, note=note), "It is done.")
    agent = gesta.Agent("desk", model=model, tools=[pay])
    run = said(agent, "Pay order 7", path)
    with viewed(path) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_role("link", name="Waiting for you").click()
        asked = page.locator(".asks")
        asked.get_by_text("May pay run?").wait_for()
        assert "<U+202E>" in asked.inner_text()
        asked.get_by_text("Name, reason, other arguments").click()
        asked.get_by_label("Your name").fill("Ann")
        asked.get_by_label("Other arguments, as JSON").fill('{"order": 8, "note": "plain"}')
        asked.get_by_role("button", name="Approve").click()
        page.get_by_text("Written down: approved, by Ann").wait_for()
        page.goto(f"{address}/r/0")
        page.locator(".side .chip", has_text=SENT).wait_for()
        page.goto(f"{address}/r/0/run/{run}")
        page.locator("header .chip", has_text=SENT).wait_for()
        page.locator(".asks.idle", has_text=f"{SENT.capitalize()}.").wait_for()
        page.get_by_text("Pay order 7").wait_for()
        aside(lambda: go_on(agent, path, run))
        page.get_by_text("It is done.").wait_for()
        page.get_by_text("order 8 is paid, plain").wait_for()
        page.get_by_text("Ann approved it.").wait_for()
        page.locator(".story li", has_text="said at").wait_for()


def test_an_approval_on_the_page_of_a_run_is_given_in_the_name_of_who_started_the_viewer(
    page: Any, tmp_path: Path
) -> None:
    path = tmp_path / "wait.gesta"
    model = gesta.scripted(gesta.call("pay", order=7, note="for Ann"), "It is done.")
    agent = gesta.Agent("desk", model=model, tools=[pay])
    run = said(agent, "Pay order 7", path)
    with viewed(path) as address:
        page.goto(f"{address}/r/0/run/{run}?token={TOKEN}")
        asked = page.locator(".asks")
        asked.get_by_text("Name, reason, other arguments").click()
        asked.get_by_label("Your name").fill(" ")
        asked.get_by_text("Name, reason, other arguments").click()
        asked.get_by_role("button", name="Approve").click()
        asked.get_by_text("Nobody is named who answers. Write your name.").wait_for()
        assert asked.get_by_label("Your name").evaluate("(field) => field === document.activeElement")
        page.reload()
        asked.get_by_role("button", name="Approve").click()
        page.locator("header .chip", has_text=SENT).wait_for()
        page.locator(".asks.idle", has_text=f"{SENT.capitalize()}.").wait_for()
    aside(lambda: go_on(agent, path, run))
    with gesta.open_sync(path, readonly=True) as record:
        assert [each.content.by for each in record.read(run) if isinstance(each.content, ApprovalContent)] == [who()]


def test_a_form_that_a_person_opened_stays_open_while_other_runs_begin_to_wait(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "wait.gesta"
    model = gesta.scripted(*[gesta.call("pay", order=7, note="for Ann")] * 2)
    agent = gesta.Agent("desk", model=model, tools=[pay])
    said(agent, "Pay order 7", path)
    with viewed(path) as address:
        page.goto(f"{address}/r/0/waiting?token={TOKEN}")
        more = page.locator(".asks details")
        more.locator("summary").click()
        with page.expect_response(lambda answer: answer.url.endswith("/waiting")) as answered:
            said(agent, "Pay it again", path, session="other")
        assert len(answered.value.json()["waiting"]) == 2
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert more.get_attribute("open") is not None


def go_on(agent: gesta.Agent[Any], path: Path, run: str) -> None:
    with gesta.open_sync(path) as record:
        assert record.resume(run, agent).reason == "answered"


def test_nobody_answers_by_accident_and_a_number_is_asked_for_as_one(page: Any, tmp_path: Path) -> None:
    async def order(verbs: gesta.Verbs, _text: str) -> str:
        colour = await verbs.ask("colour", "Which colour?", {"enum": ["blue", "brass"]})
        pieces = await verbs.ask("pieces", "How many?", {"type": "integer", "minimum": 1})
        return f"{pieces} lamps in {colour}."

    path, agent = tmp_path / "ask.gesta", gesta.Agent("desk", program=order)
    run = said(agent, "Lamps, please", path)
    with viewed(path) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.goto(f"{address}/r/0/waiting")
        asked = page.locator(".asks", has_text="Which colour?")
        asked.get_by_role("button", name="Answer").click()
        asked.get_by_text("Choose an answer first.").wait_for()
        asked.get_by_label("Answer").select_option("brass")
        asked.get_by_role("button", name="Answer").click()
        page.get_by_text("Written down: answered").wait_for()
        aside(lambda: resumed(agent, path, run))
        asked = page.locator(".asks", has_text="How many?")
        asked.get_by_label("Answer, as a number").fill("3")
        asked.get_by_role("button", name="Answer").click()
        page.get_by_text("Written down: answered").wait_for()
        assert aside(lambda: resumed(agent, path, run)) == "3 lamps in brass."


def resumed(agent: gesta.Agent[Any], path: Path, run: str) -> Any:
    with gesta.open_sync(path) as record:
        return record.resume(run, agent).answer
