"""The web chat of the examples in a real browser: its server is killed while a person is asked, and nothing is lost."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
CHAT = Path(__file__).resolve().parents[2] / "examples" / "chat"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def started(folder: Path, port: int) -> subprocess.Popen[bytes]:
    words = ["-m", "uvicorn", "server:app", "--app-dir", str(CHAT), "--port", str(port), "--log-level", "warning"]
    return subprocess.Popen([sys.executable, *words], cwd=folder)


def test_a_chat_goes_on_after_its_server_was_killed(browser: Any, port: int, tmp_path: Path) -> None:
    page = browser.new_page()
    server = started(tmp_path, port)
    try:
        opened(page, f"http://127.0.0.1:{port}/#anna")
        page.get_by_label("Message").fill("I want a refund for my lamp.")
        page.get_by_role("button", name="Send").click()
        page.get_by_role("button", name="Approve").wait_for()
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        page.get_by_text("nothing is lost").wait_for()
        server = started(tmp_path, port)
        page.get_by_text("connected").wait_for()
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("Done: 64.90 euros are on their way.").wait_for()
        assert page.get_by_role("button", name="Approve").count() == 0
        page.reload()
        page.get_by_text("Done: 64.90 euros are on their way.").wait_for()
        assert page.locator("li.you").all_inner_texts() == ["I want a refund for my lamp."]
    finally:
        server.kill()
        server.wait()
        page.close()
    assert (tmp_path / "refunds.txt").read_text() == "42 64.90\n"


def test_what_a_person_or_a_tool_says_is_never_read_as_html(browser: Any, port: int, tmp_path: Path) -> None:
    page, said = browser.new_page(), list[str]()

    def heard(dialog: Any) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", heard)
    server = started(tmp_path, port)
    try:
        opened(page, f"http://127.0.0.1:{port}/#eve")
        hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
        page.get_by_label("Message").fill(hostile)
        page.get_by_role("button", name="Send").click()
        page.get_by_text("How can I help you?").wait_for()
        assert page.locator("li.you").all_inner_texts() == [hostile]
        assert page.locator("li img, li script").count() == 0
    finally:
        server.kill()
        server.wait()
        page.close()
    assert said == []


def opened(page: Any, address: str) -> None:
    """Open a page as soon as its server listens."""
    for _ in range(200):
        try:
            page.goto(address)
            break
        except sync_api.Error:
            page.wait_for_timeout(50)
    page.get_by_text("connected").wait_for()
