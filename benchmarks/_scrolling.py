"""Measures the viewer in a real browser: time to the first page, bytes, long tasks, and number of items in the page."""

import shutil
from collections.abc import Iterator
from typing import Any

STALLS = """() => {
  window.stalls = [];
  new PerformanceObserver((list) => { for (const each of list.getEntries()) stalls.push(each.duration); })
    .observe({ type: "longtask", buffered: true });
}"""
SCROLL = """(steps) => new Promise((done) => {
  let left = steps;
  const step = () => {
    scrollBy(0, innerHeight * 0.8);
    if (--left) requestAnimationFrame(() => setTimeout(step, 30)); else setTimeout(done, 300);
  };
  step();
})"""
SEEN = "() => Math.max(0, ...[...document.querySelectorAll('.item')].map((each) => Number(each.id.slice(1))))"
BYTES = "() => performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)"

Figure = tuple[str, float, str, float | None]


def scrolled(address: str, token: str, run: str, steps: int = 400) -> Iterator[Figure]:
    """Yield figures that a browser measures; nothing if Playwright or Chromium is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        return
    if (chromium := shutil.which("chromium")) is None:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.goto(f"{address}/?token={token}")
        page.locator(".sessions .row").first.wait_for()
        yield from first_page(browser, page, f"{address}/r/0", ".sessions .row", "the list")
        yield from first_page(browser, page, f"{address}/r/0/run/{run}", ".item", "a run of 10,000 entries")
        page.evaluate(STALLS)
        page.evaluate(SCROLL, steps)
        stalls = page.evaluate("() => stalls")
        yield f"longest task of {steps} screens of scrolling", max(stalls, default=0.0), "ms", 100
        yield "entries that were scrolled through", float(page.evaluate(SEEN)), "", None
        yield "items in the page after that", float(page.locator(".item").count()), "", 600
        page.evaluate("() => { stalls.length = 0; }")
        page.evaluate(SCROLL.replace("innerHeight * 0.8", "-innerHeight * 0.8"), steps)
        yield "longest task of scrolling back", max(page.evaluate("() => stalls"), default=0.0), "ms", 100
        page.goto(f"{address}/r/0/run/{run}#9000")
        page.locator("#e9000.here, .item.here").first.wait_for()
        browser.close()


def first_page(browser: Any, page: Any, address: str, what: str, name: str) -> Iterator[Figure]:
    """Yield the seconds until an element is shown by a browser with an empty cache, and the kB that it loads."""
    cookies = page.context.cookies()
    took = []
    for _ in range(3):
        context = browser.new_context(viewport={"width": 1360, "height": 900})
        context.add_cookies(cookies)
        fresh = context.new_page()
        fresh.add_init_script(
            f"""new MutationObserver((_, watch) => {{ if (document.querySelector({what!r}))
                {{ window.shown ??= performance.now(); watch.disconnect(); }} }})
                .observe(document, {{ childList: true, subtree: true }});"""
        )
        fresh.goto(address)
        fresh.locator(what).first.wait_for()
        took.append(fresh.evaluate("() => shown") / 1000)
        size = fresh.evaluate(BYTES) / 1000
        context.close()
    yield f"{name}, shown", min(took), "s", 0.3
    yield f"{name}, loaded", size, "kB", 300
    page.goto(address)
    page.locator(what).first.wait_for()
