"""What the README promises of the demo is seen at a terminal, and its other commands work as they stand there.

The quick suite runs the demo of this environment in an empty folder. `GESTA_TESTS=full` runs the whole block in a copy
of the repository, with its new environment and its installation; that needs a package index.
"""

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pexpect
import pytest
from tests import programs
from tests.conftest import FULL
from tests.docs.test_commands import MAIN, commands

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BASH = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LAST_LINE = "refunds fired: 1, model calls bought again: 0"
NOT_COPIED = (
    ".git",
    ".venv",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "site",
    "dist",
    "build",
    "*.gesta",
    "*.shop.db*",
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GESTA_")} | {
    "LOGNAME": "ann",
    "USER": "ann",
    "NO_COLOR": "1",
    "TERM": "xterm",
}


def marked(marker: str, language: str) -> str:
    """Return the fence that follows a marker."""
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found is not None, f"the README has no {language} block after {marker}"
    return found[1]


def watch(command: list[str], folder: Path, timeout_s: float) -> str:
    """Run a command at a terminal, allow the one call that it asks about, and give all that was to be seen."""
    child = pexpect.spawn(
        command[0],
        command[1:],
        cwd=str(folder),
        env=ENVIRONMENT,
        encoding="utf-8",
        timeout=timeout_s,
        dimensions=(40, 100),
        echo=False,
    )
    try:
        child.expect(r"Approve\? \[y/n\] ")
        seen = child.before
        child.sendline("y")
        child.expect(pexpect.EOF)
        seen += child.before
    finally:
        child.close()
    assert child.exitstatus == 0, seen
    assert "Approve?" not in child.before, "it asks once"
    return seen.replace("\r\n", "\n")


def refunds(shop: Path) -> int:
    """Count the refunds of a shop, with nothing but what comes with Python."""
    with closing(sqlite3.connect(shop)) as file:
        return int(file.execute("SELECT count(*) FROM refunds").fetchone()[0])


@pytest.mark.slow
@pytest.mark.timeout(900 if FULL else 20)
def test_the_demo_of_the_first_block_pays_once_in_each_part(tmp_path: Path):
    block = marked("test:demo", "bash")
    assert block.strip().endswith("&& .venv/bin/gesta demo")
    if FULL:
        folder = shutil.copytree(ROOT, tmp_path / "copy", ignore=shutil.ignore_patterns(*NOT_COPIED))
        command = ["bash", "-c", block]
    else:
        folder, command = tmp_path, [*MAIN, *shlex.split(block)[-1:]]
    seen = watch(command, folder, 800 if FULL else 18)
    assert f"\n{LAST_LINE}\n" in seen
    assert "approved by ann\n" in seen
    assert "killed    the child process ended with -9 (SIGKILL)\n" in seen
    shops = sorted(folder.glob("*.shop.db"))
    assert [shop.name for shop in shops] == ["runs-demo-1-crash.shop.db", "runs-demo-1.shop.db"]
    assert [refunds(shop) for shop in shops] == [1, 1]
    fired = [shop.with_name(f"{shop.name}.fired").read_text(encoding="utf-8").splitlines() for shop in shops]
    assert [len(lines) for lines in fired] == [1, 1]


def others() -> list[list[str]]:
    """Return the README's commands of `gesta`, without those of the demo."""
    every = [words for block in BASH.findall(README) for words, _ in commands(block)]
    return [words for words in every if words[0] == "gesta"]


class Provider(BaseHTTPRequestHandler):
    """A server that speaks Chat Completions, in place of the one that the README has running."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"role": "assistant", "content": f"{asked['model']} says: no umbrella."}
        choice = {"index": 0, "message": answer, "finish_reason": "stop"}
        body = json.dumps(
            {"id": "1", "object": "chat.completion", "model": asked["model"], "choices": [choice]}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    """Address of such a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal."""
    return programs.run(command[1:], cwd=folder, env=ENVIRONMENT)


@pytest.mark.slow
def test_the_other_commands_work_after_the_first_snippet(tmp_path: Path, address: str):
    snippet = marked("test:first", "python")
    (tmp_path / "guide.py").write_text(snippet, encoding="utf-8")
    done = run([sys.executable, "guide.py"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "trip.gesta").is_file()
    seen = {}
    for words in others():
        live = ["--base-url", address] if "--model" in words else []
        done = run([*MAIN, *words[1:], *live], tmp_path)
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr}"
        seen[words[1]] = done.stdout
    assert seen["run"] == "qwen3 says: no umbrella.\n"
    assert "Rome: [21 degrees], dry" in seen["why"], "the tool's result is seen in the answer"
    assert "Rome is dry, 21 degrees: no umbrella." in seen["log"]
    assert re.search(r"^ +\d+  tool-call +\{.*\"Rome\"", seen["sql"], re.MULTILINE)
    assert set(seen) >= {"run", "why", "log", "sql"}
