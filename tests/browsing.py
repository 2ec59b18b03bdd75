"""A real browser for tests: Debian's Chromium, and pages that note all that went wrong on them."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gesta

CHROMIUM = shutil.which("chromium")
NEEDED = "pip install -e '.[browser]': the pages are looked at there"
NO_CHROMIUM = "no Chromium: apt-get install chromium"


@contextmanager
def browsing(sync_api: Any) -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def looking(browser: Any, **options: Any) -> Iterator[Any]:
    """Open a page. Fails at the end of the block if a script failed, a dialog opened, or a policy was broken."""
    page = browser.new_page(viewport={"width": 1360, "height": 900}, **options)
    wrong: list[str] = []
    watched(page, wrong)
    yield page
    page.close()
    assert wrong == [], wrong


def watched(page: Any, wrong: list[str]) -> None:
    """Add to `wrong` what scripts, dialogs and the browser's policies have to say about a page."""

    def dialog(each: Any) -> None:
        wrong.append(f"dialog {each.message}")
        each.dismiss()

    def console(message: Any) -> None:
        if "Content Security Policy" in message.text or "Content-Security-Policy" in message.text:
            wrong.append(message.text)

    page.on("dialog", dialog)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", console)


def aside(work: Callable[[], Any]) -> Any:
    """Call a function in a thread: Playwright keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def said(agent: gesta.Agent[Any], text: str, record: Path, session: str = "s") -> str:
    """Send a message to an agent, and return the id of its run."""
    return str(aside(lambda: gesta.run_sync(agent, text, record=record, session=session).run))
