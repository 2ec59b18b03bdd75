"""What the command line prints holds no secret of its process, whoever prints it."""

import os
import sqlite3
from pathlib import Path

import pytest
from tests import programs

KEY = "sk-TOP/SECRET+0123456789-wxyz=="
MAIN = ["-c", "from gesta.cli import main; main()"]
LEAKY = '''
import os
import sys

import gesta

KEY = os.environ["CRM_TOKEN"]


@gesta.tool(effect="pure")
def look() -> str:
    """Look."""
    sys.stdout.write("printed " + KEY[:9])
    sys.stdout.flush()
    sys.stdout.write(KEY[9:] + " in pieces\\n")
    print("masked", KEY[:6] + "..." + KEY[-4:])
    print("to stderr", KEY, file=sys.stderr)
    return "found " + KEY


agent = gesta.Agent("leaky", gesta.scripted(gesta.call("look"), "It is " + KEY), tools=[look])
'''


def gesta(folder: Path, *words: str) -> str:
    environment = {**os.environ, "CRM_TOKEN": KEY, "COLUMNS": "200"}
    done = programs.run([*MAIN, *words], cwd=folder, env=environment)
    said = done.stdout + done.stderr
    for piece in ("TOP/SEC", "0123456789", "wxyz"):
        assert piece not in said, said
    return said


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    (tmp_path / "leaky.py").write_text(LEAKY, encoding="utf-8")
    return tmp_path


def test_a_run_and_what_its_tools_print_show_no_secret(leaky: Path) -> None:
    said = gesta(leaky, "run", "leaky.py:agent", "go")
    for words in ("printed ", "<secret CRM_TOKEN> in pieces", "masked ", "to stderr ", "It is <secret CRM_TOKEN>"):
        assert words in said, "what is told of the run may stand between what a tool prints in pieces"
    assert said.count("<secret CRM_TOKEN>") >= 4
    for command in (
        ["log", "last", "--all"],
        ["log", "last", "--json"],
        ["show", "last"],
        ["export", "last"],
        ["why", "last"],
    ):
        gesta(leaky, *command)
    assert KEY.encode() not in b"".join(each.read_bytes() for each in leaky.glob("runs.gesta*"))


def test_a_traceback_shows_no_secret_and_nothing_that_a_terminal_obeys(leaky: Path) -> None:
    (leaky / "broken.py").write_text(
        'import os\nraise ValueError("\\x1b[2J " + os.environ["CRM_TOKEN"])\n', encoding="utf-8"
    )
    said = gesta(leaky, "run", "broken.py:agent", "go", "--debug")
    assert "Traceback (most recent call last)" in said
    assert "ValueError: \\x1b[2J <secret CRM_TOKEN>" in said
    assert "\x1b" not in said


def test_a_record_that_another_process_made_is_shown_and_exported_without_a_secret(leaky: Path) -> None:
    agent = 'import gesta\nagent = gesta.Agent("a", gesta.scripted("It is so."))\n'
    (leaky / "plain.py").write_text(agent, encoding="utf-8")
    words = [*MAIN, "run", "plain.py:agent", f"my key is {KEY}"]
    assert programs.run(words, cwd=leaky).returncode == 0
    with sqlite3.connect(leaky / "runs.gesta") as connection:
        ((found,),) = connection.execute("SELECT count(*) FROM entries WHERE content LIKE ?", (f"%{KEY}%",)).fetchall()
    connection.close()
    assert found
    assert "my key is <secret CRM_TOKEN>" in gesta(leaky, "log", "last")
    assert "<secret CRM_TOKEN>" in gesta(leaky, "sql", "SELECT content FROM entries")
    assert "line held a secret of this process, and was written without it" in gesta(
        leaky, "export", "last", "-o", "x.jsonl"
    )
    assert KEY not in (leaky / "x.jsonl").read_text(encoding="utf-8")


def test_an_address_is_printed_without_its_password(leaky: Path) -> None:
    said = gesta(leaky, "runs", "--record", f"postgresql://ann:{KEY}@127.0.0.1:none/db")
    assert "The server of 'postgresql://ann@127.0.0.1:none/db' cannot be reached" in said
    assert "error: " in gesta(leaky, "run", "leaky.py:agent", "x", "--model", "m", "--base-url", f"htp://me:{KEY}@host")
