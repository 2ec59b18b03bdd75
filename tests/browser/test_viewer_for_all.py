"""The viewer for whoever does not see it, or has no mouse: what axe-core finds, and the keys."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, browsing, looking
from tests.commands import gesta_command
from tests.viewing import TOKEN, viewed

import gesta
from gesta.kinds import AssistantContent, Part, UserContent

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
AXE = find_spec("axe_playwright_python")
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM), pytest.mark.timeout(90)]
FULL = os.environ.get("GESTA_TESTS") == "full"
LOOKS = [("light", 1360), ("dark", 420), *([("dark", 1360), ("light", 420)] if FULL else [])]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(60))
WRITTEN = "# Order\n\n> said\n\n| a | b |\n|---|--:|\n| [x](https://shop.example) | `1` |\n\n```python\nprint(1)\n```\n\n- [x] done"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing(sync_api) as opened:
        yield opened


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
    of_crashed = [f"/r/0/run/{crashed}/{each}" for each in ("why", "sent")]
    return ["/r/0", "/r/0?words=refund", "/r/0/waiting", *runs, *of_crashed, "/r/0/run/nothing"]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    path = tmp_path_factory.mktemp("all") / "shop.gesta"
    assert aside(lambda: gesta_command("demo", "--yes", "--record", str(path)).exit_code) == 0
    return path, aside(lambda: views(path))


READY = "main .item, main .row, main .wait, main .card, main .empty, main pre"


@pytest.mark.skipif(AXE is None, reason="pip install -e '.[browser]': axe-core comes with axe-playwright-python")
def test_nothing_serious_is_in_the_way_of_anybody_on_any_view(browser: Any, record: tuple[Path, list[str]]) -> None:
    assert AXE is not None
    script = (Path(str(AXE.origin)).parent / "axe.min.js").read_text()
    found = []
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
                told = page.evaluate("axe.run({resultTypes: ['violations']})")
                found += [
                    f"{each['impact']} {each['id']} {view} {scheme} {width}: {node['target'][0]} {node['failureSummary']}"
                    for each in told["violations"]
                    for node in each["nodes"][:4]
                ]
    serious = [each for each in found if each.startswith(("serious", "critical"))]
    assert serious == [], "\n".join(found)
