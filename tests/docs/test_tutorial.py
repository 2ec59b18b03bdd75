"""The tutorial is played as a reader does it: its files are written, its commands run, the kills too, page after page.

A fence after `<!-- test:file NAME -->` is that whole file. One after `<!-- test:replace NAME LINE -->` takes the place of
a line of it. Commands are compared with the text fence that follows, as in `test_commands`. `test:visit`, `test:send`
and `test:see` are what the page tells the reader to do in a browser, and what is seen there.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests import programs
from tests.docs.test_commands import commands, fits, normalised

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
PAGES = sorted(TUTORIAL.glob("[0-9]-*.md"))
STEP = re.compile(r"^<!-- test:(\w+) ?([^\n]*?) -->$|^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CHROMIUM = shutil.which("chromium")
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("GESTA_", "OPENAI_", "DESK_"))
} | {
    "COLUMNS": "100",
    "LOGNAME": "ann",
    "NO_COLOR": "1",
    "USER": "ann",
}
GESTA = "import sys; sys.stderr = sys.stdout; from gesta.cli import main; main()"
"""The command `gesta`, which shows data and talk in the order in which they come, as a terminal does."""

TICK_S = 0.02
pytestmark = pytest.mark.timeout(120)  # whichever test comes first plays four pages before


class Step(NamedTuple):
    """One thing that a page has the reader do."""

    page: str
    line: int
    what: str
    """`file`, `replace`, `run`, `visit`, `send`, `see`, or `live` for commands that need an API key."""

    name: str
    text: str
    shown: str | None = None


def steps(page: Path) -> Iterator[Step]:
    """Read a page from top to bottom."""
    text = page.read_text(encoding="utf-8")
    found = list(STEP.finditer(text))
    mark: re.Match[str] | None = None
    for place, each in enumerate(found):
        line = text[: each.start()].count("\n") + 1
        after = found[place + 1] if place + 1 < len(found) else None
        adjacent = after is not None and after[3] == "text" and not text[each.end() : after.start()].strip()
        if each[1] in ("visit", "send", "see"):
            yield Step(page.name, line, each[1], "", each[2])
        elif each[1]:
            mark = each
        elif mark is not None:
            yield Step(page.name, line, mark[1], mark[2], each[4])
            mark = None
        elif each[3] == "bash":
            yield Step(page.name, line, "run", "", each[4], after[4] if after is not None and adjacent else None)


def edited(files: dict[str, str], step: Step) -> None:
    """Do to the text of a file what a page says."""
    name, _, line = step.name.partition(" ")
    if step.what == "file":
        files[name] = step.text
    else:
        assert files[name].splitlines().count(line) == 1
        files[name] = files[name].replace(f"{line}\n", step.text)


class Browser:
    """The reader's browser."""

    def __init__(self, opened: Any) -> None:
        self._page = opened.new_page()
        self._page.set_default_timeout(15_000)

    def visit(self, address: str) -> None:
        self._page.goto(address)
        self.see("Connected.")

    def send(self, text: str) -> None:
        self._page.get_by_label("Message").fill(text)
        self._page.get_by_role("button", name="Send").click()
        self.see(f"You: {text}")

    def see(self, text: str) -> None:
        self._page.get_by_text(text).first.wait_for()

    def lines(self) -> list[str]:
        return self._page.locator("li").all_inner_texts()


class Reader:
    """Somebody who does what the pages say, in one folder and one terminal."""

    def __init__(self, folder: Path, browser: Browser | None = None) -> None:
        self.folder, self.browser = folder, browser
        self.files: dict[str, str] = {}
        self._at_work: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])

    def play(self, page: Path) -> list[str]:
        """Do what a page says, and return where it is otherwise than the page shows."""
        wrong = []
        for step in steps(page):
            if step.what in ("file", "replace"):
                edited(self.files, step)
                name = step.name.partition(" ")[0]
                (self.folder / name).write_text(self.files[name], encoding="utf-8")
            elif step.what == "run":
                said = "".join(self.run(words) for words, _ in commands(step.text))
                if step.shown is not None and not fits(alike(step.shown), alike(said)):
                    wrong.append(f"{page.name}, line {step.line} shows\n{step.shown}\nand it says\n{said}")
            elif self.browser is not None and step.what in ("visit", "send", "see"):
                getattr(self.browser, step.what)(step.text.replace("8000", self._port))
        return wrong

    def run(self, words: list[str]) -> str:
        """Run a command, and return what it prints."""
        named = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        match [word.replace("8000", self._port) for word in words if not re.match(r"[A-Z_]+=", word)]:
            case [program, *others, "&"]:
                self._begin(program, others, named)
            case ["kill", "-9", "$!"]:
                self._at_work[-1].send_signal(signal.SIGKILL)
                assert self._at_work[-1].wait() == -signal.SIGKILL
            case ["cat", name]:
                self._until(lambda: (self.folder / name).is_file() and (self.folder / name).read_text().endswith("\n"))
                return (self.folder / name).read_text()
            case ["python", *others]:
                done = programs.run(others, cwd=self.folder, env=ENVIRONMENT | named)
                assert (done.returncode, done.stderr) == (0, ""), done.stderr
                return done.stdout
            case ["gesta", *others]:
                done = programs.run(["-c", GESTA, *others], cwd=self.folder, env=ENVIRONMENT)
                assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
                return done.stdout
            case _:
                raise AssertionError(f"no reader knows what to do with {shlex.join(words)}")
        return ""

    def end(self) -> None:
        """End what is left in the background."""
        for each in self._at_work:
            each.kill()
            each.wait()

    def _begin(self, program: str, words: list[str], named: dict[str, str]) -> None:
        command = [sys.executable, *([] if program == "python" else ["-m", program]), *words]
        self._at_work.append(
            subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT | named, stdout=subprocess.DEVNULL)
        )
        if program == "uvicorn":
            self._until(self._listens)

    def _listens(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", int(self._port))) == 0

    def _until(self, happened: Any) -> None:
        """Wait until something has happened, as long as what was begun last is at work."""
        while not happened():
            try:
                code = self._at_work[-1].wait(TICK_S)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"it ended with {code} before")


def alike(text: str) -> str:
    """Put a name in place of what differs from one reader to the next."""
    return re.sub(r"\b[0-9a-f]{64}\b|\bs-[0-9a-f]{8}\b", "<name>", normalised(text))


@contextmanager
def reading(folder: Path, browser: Browser | None = None) -> Iterator[Reader]:
    """A reader at work in a folder, which is the current one meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in os.environ.keys() - ENVIRONMENT.keys():
            patch.delenv(name)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        reader = Reader(folder, browser)
        try:
            yield reader
        finally:
            reader.end()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]], dict[str, str]]:
    """The folder after the first four pages, what was wrong on each, and the texts of the files."""
    folder = tmp_path_factory.mktemp("desk")
    with reading(folder) as reader:
        wrong = {page.stem: reader.play(page) for page in PAGES[:4]}
    return folder, wrong, reader.files


@pytest.mark.parametrize("page", PAGES[:4], ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, story: tuple[Path, dict[str, list[str]], dict[str, str]]) -> None:
    assert not story[1][page.stem], "\n".join(story[1][page.stem])


def test_the_crash_paid_once_and_no_payment_was_made_without_a_yes(
    story: tuple[Path, dict[str, list[str]], dict[str, str]],
) -> None:
    paid = [line.split(" ", 1)[1] for line in (story[0] / "bank.txt").read_text().splitlines()]
    assert paid == ["order 42", "order 43"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install -e '.[browser]': the page is seen there")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Browser(opened)
        opened.close()


def test_the_served_page_does_what_it_shows_in_a_browser(
    browser: Browser, story: tuple[Path, dict[str, list[str]], dict[str, str]], tmp_path: Path
) -> None:
    folder = shutil.copytree(story[0], tmp_path / "desk")
    with reading(folder, browser) as reader:
        reader.files = dict(story[2])
        wrong = reader.play(PAGES[4])
    assert not wrong, "\n".join(wrong)
    assert browser.lines() == [
        "You: Order 42 is broken. I want my money back.",
        "A colleague is asked.",
        "Desk: The money is paid back.",
    ]
