"""The viewer for whoever does not see it, or has no mouse: what axe-core finds, and the keys."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, looking
from tests.commands import gesta_command
from tests.viewing import TOKEN, viewed

import gesta
from gesta.kinds import AssistantContent, Part, UserContent

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
AXE = find_spec("axe_playwright_python")
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM), pytest.mark.timeout(300)]
FULL = os.environ.get("GESTA_TESTS") == "full"
LOOKS = [("light", 1360), ("dark", 420), *([("dark", 1360), ("light", 420)] if FULL else [])]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(60))
FORMS = ("activity", "steps", "task", "react", "codeact", "why")
WRITTEN = "# Order\n\n> said\n\n| a | b |\n|---|--:|\n| [x](https://shop.example) | `1` |\n\n```python\nprint(1)\n```\n\n- [x] done"


@gesta.tool(effect="once", approval=True)
def pay(order: int, note: str) -> str:
    """Pay money back."""
    return note


def write(path: Path) -> str:
    """Add to a record a run with all that Markdown has, and a call that waits for a person."""
    with gesta.open_sync(path) as record, record.span("desk", session="written") as span:
        span.log(UserContent(value=WRITTEN, parts=[Part(type="image", data=PNG, name="a.png")]))
        span.log(AssistantContent(value=WRITTEN))
        run = str(span.run)
    model = gesta.scripted(gesta.call("pay", order=7, note="for b\u0430nk \u202eevil"), "never")
    gesta.run_sync(gesta.Agent("desk", model=model, tools=[pay]), "Pay", record=path, session="waits")
    return run


def views(record: Path) -> list[str]:
    """Return the addresses of all views, with something in each of them."""
    written = write(record)
    with gesta.open_sync(record, readonly=True) as opened:
        crashed = next(each.runs[0] for each in opened.sessions() if each.name == "demo-1-crash")
    runs = [f"/r/0/run/{each}" for each in (crashed, written)]
    parts = ("/why", "/time", "/sent", "/sent?show=all", "/sent?show=wire", *(f"?form={each}" for each in FORMS))
    of_crashed = [f"/r/0/run/{crashed}{each}" for each in parts]
    return ["/r/0", "/r/0?words=refund", "/r/0/waiting", "/r/0/evidence", *runs, *of_crashed, "/r/0/run/nothing"]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    path = tmp_path_factory.mktemp("all") / "shop.gesta"
    assert aside(lambda: gesta_command("demo", "--yes", "--record", str(path)).exit_code) == 0
    return path, aside(lambda: views(path))


READY = "main .item, main .row, main .wait, main .card, main .empty, main .sent > *, main .form td, main .lane, main .evidence"


@pytest.mark.skipif(AXE is None, reason="pip install -e '.[browser]': axe-core comes with axe-playwright-python")
def test_nothing_serious_is_in_the_way_of_anybody_on_any_view(browser: Any, record: tuple[Path, list[str]]) -> None:
    assert AXE is not None
    script = (Path(str(AXE.origin)).parent / "axe.min.js").read_text()
    found, wide = [], []
    with viewed(record[0]) as address, looking(browser, bypass_csp=True) as page:
        page.goto(f"{address}/?token={TOKEN}")
        for view in record[1]:
            page.goto(f"{address}{view}")
            page.locator(READY).first.wait_for(state="attached")
            page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
            page.evaluate(script)
            for scheme, width in LOOKS:
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                wide += [f"{view} at {width}: {over} px"] if over > 0 else []
                told = page.evaluate("axe.run({resultTypes: ['violations']})")
                found += [
                    f"{each['impact']} {each['id']} {view} {scheme} {width}: {node['target'][0]} {node['failureSummary']}"
                    for each in told["violations"]
                    for node in each["nodes"][:4]
                ]
    serious = [each for each in found if each.startswith(("serious", "critical"))]
    assert serious == [], "\n".join(found)
    assert wide == [], "wider than the window"


def focused(page: Any) -> dict[str, Any]:
    """Return what has the focus: its name, its words, its place, and whether one sees that it has it."""
    found: dict[str, Any] = page.evaluate(
        """() => {
            const it = document.activeElement, style = getComputedStyle(it), here = it.closest(".here")?.querySelector(".said") ?? it;
            const seen = [style, getComputedStyle(here)].some((each) => each.outlineStyle !== "none" && parseFloat(each.outlineWidth) >= 2);
            return {tag: it.localName, words: it.innerText ?? "", id: it.id, href: it.getAttribute("href") ?? "", seen};
        }"""
    )
    return found


def test_all_is_reached_by_keys_and_one_sees_where_one_is(browser: Any, record: tuple[Path, list[str]]) -> None:
    path, addresses = record
    run = next(each for each in addresses if "/run/" in each)
    with viewed(path) as address, looking(browser, reduced_motion="reduce") as page:
        page.goto(f"{address}{run}?token={TOKEN}")
        page.locator(".answer").first.wait_for()
        page.keyboard.press("Tab")
        assert focused(page)["words"] == "Skip to the content"
        page.keyboard.press("Enter")
        assert focused(page)["id"] == "main"

        page.keyboard.press("j")
        first = focused(page)
        page.keyboard.press("j")
        assert focused(page)["id"] != first["id"]
        assert focused(page)["seen"]
        assert page.url.endswith(f"#{focused(page)['id'][1:]}")
        page.keyboard.press("k")
        assert focused(page)["id"] == first["id"]

        calls = page.locator("details.call")
        page.keyboard.press("f")
        assert page.locator("details.call[open]").count() == calls.count()
        page.keyboard.press("f")
        assert page.locator("details.call[open]").count() == 0

        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keys")
        dialog.wait_for()
        page.keyboard.press("j")
        assert page.url.endswith(f"#{first['id'][1:]}")  # the keys of the page rest
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        page.keyboard.press("/")
        assert focused(page)["tag"] == "input"
        page.keyboard.type("j?f")
        assert page.get_by_label("Find").input_value() == "j?f"

        reached, unseen = set[str](), []
        for _ in range(70):
            page.keyboard.press("Tab")
            here = focused(page)
            reached.add(here["href"])
            if not here["seen"] and here["tag"] != "body":
                unseen.append(here)
        assert unseen == []
        assert {"/r/0", "/r/0/waiting", f"{run}/sent"} <= reached
        assert any(each.startswith(f"{run}/why") for each in reached)
        for name in ("banner", "main", "complementary", "search"):
            assert page.get_by_role(name).count() == 1
        moves = (
            "[...document.querySelectorAll('*')].filter((each) => getComputedStyle(each).transitionDuration !== '0s')"
        )
        assert page.evaluate(f"{moves}.length") == 0


def test_whoever_listens_is_told_what_is_new_once_and_not_without_end(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "live.gesta"
    agent = gesta.Agent("desk", model=gesta.scripted(*(f"Answer {at}." for at in range(9))))
    aside(lambda: gesta.run_sync(agent, "First", record=path, session="s"))
    with viewed(path) as address, looking(browser) as page:
        page.goto(f"{address}/?token={TOKEN}")
        page.locator(".sessions .row").wait_for()
        page.evaluate(
            "window.told = []; new MutationObserver(() => told.push(spoken.textContent)).observe(spoken, {childList: true})"
        )
        for at in range(3):
            aside(lambda: gesta.run_sync(agent, "More", record=path, session="s"))
            page.get_by_text(f"{2 * at + 4} messages").wait_for()
        assert page.evaluate("told") in ([], ["1 session shown"])
