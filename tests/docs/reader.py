"""A reader of the tutorial: somebody who does what its pages say, in one folder and one terminal, and sees what they show.

A fence after `<!-- test:file NAME -->` is that whole file. One after `<!-- test:replace NAME LINE -->` takes the place of
a line of it. Commands are compared with the text fence that follows, as in `test_commands`. `test:visit`, `test:send`
and `test:see` are what the page tells the reader to do in a browser, and what is seen there.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from tests import programs
from tests.docs.test_commands import commands, fits, normalised

STEP = re.compile(r"^<!-- test:(\w+) ?([^\n]*?) -->$|^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
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

SAID = {"Question": "You", "Conclusion": "Desk"}
STATES = ("Connected.", "The server is away.")
"""What a page says of its connection, which only a browser sees."""

TICK_S = 0.02


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

    def hold(self) -> None:
        """Keep the stream of events open, as the page does by itself."""

    def lines(self) -> list[str]:
        return self._page.locator("li").all_inner_texts()


class Client:
    """The same without a browser: it asks for what the page asks for, and reads the events as the page does."""

    def visit(self, address: str) -> None:
        self._address, session = address.split("/#")
        self._session = f"{self._address}/api/sessions/{session}"
        assert "<script>" in httpx2.get(self._address).text

    def send(self, text: str) -> None:
        httpx2.post(f"{self._session}/messages", json={"message": text, "key": "k1"}, timeout=15)

    def see(self, text: str) -> None:
        assert text in STATES or any(text in line for line in self._lines())

    def hold(self) -> None:
        client = httpx2.Client()
        self._held = client.send(client.build_request("GET", f"{self._session}/events"), stream=True)
        assert next(self._held.iter_lines())

    def lines(self) -> list[str]:
        return list(self._lines("?until=end"))

    def _lines(self, asked: str = "") -> Iterator[str]:
        with httpx2.stream("GET", f"{self._session}/events{asked}", timeout=15) as events:
            for line in events.iter_lines():
                told: dict[str, Any] = json.loads(line[6:]) if line.startswith("data: ") else {"type": ""}
                graph: dict[str, Any] = told.get("explain_graph") or {"node": ""}
                if told["type"] == "waiting":
                    yield "A colleague is asked."
                elif graph["node"] in SAID:
                    yield f"{SAID[graph['node']]}: {graph['holds']['value']}"


class Reader:
    """Somebody who does what the pages say, in one folder and one terminal."""

    def __init__(self, folder: Path, browser: Browser | Client | None = None) -> None:
        self.folder, self.browser = folder, browser
        self.versions: dict[str, list[str]] = {}
        self._at_work: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])

    def play(self, page: Path) -> list[str]:
        """Do what a page says, and return where it is otherwise than the page shows."""
        wrong = []
        for step in steps(page):
            if step.what in ("file", "replace"):
                self._edit(step)
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
            case ["kill", "$!"]:
                self._at_work[-1].terminate()
                assert self._at_work[-1].wait(10) == -signal.SIGTERM
            case ["until", *_]:
                subprocess.run(["bash", "-c", " ".join(words)], cwd=self.folder, check=True, timeout=20)
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

    @property
    def address(self) -> str:
        """Address of the server that was begun last."""
        return f"http://127.0.0.1:{self._port}"

    def end(self) -> None:
        """End what is left in the background."""
        for each in self._at_work:
            each.kill()
            each.wait()

    def _edit(self, step: Step) -> None:
        name, _, line = step.name.partition(" ")
        text = step.text
        if step.what == "replace":
            old = self.versions[name][-1]
            assert old.splitlines().count(line) == 1
            text = old.replace(f"{line}\n", text)
        self.versions.setdefault(name, []).append(text)
        (self.folder / name).write_text(text, encoding="utf-8")

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
def reading(folder: Path, browser: Browser | Client | None = None) -> Iterator[Reader]:
    """A reader at work in a folder; what is left in the background ends with the block."""
    reader = Reader(folder, browser)
    try:
        yield reader
    finally:
        reader.end()
