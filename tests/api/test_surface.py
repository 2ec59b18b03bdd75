"""What scripts rely on is what the committed file says: commands, options, JSON lines, exit codes, tables, errors, paths.

A line that disappears or changes breaks somebody's script; `docs/compatibility.md` says when it may. Written anew by
`python -m tests.api.test_surface > tests/api/surface.txt`, once that was decided.
"""

import difflib
import json
import os
import re
import shlex
import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import chdir, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import msgspec
import pytest
from tests.cli.conftest import AGENTS
from tests.commands import every_command, gesta_command

import gesta
from gesta import errors, events
from gesta.cli import talk
from gesta.cli.app import TYPED_WRONG
from gesta.serve.routes import PLACES

COMMITTED = Path(__file__).with_name("surface.txt")
ROOT = Path(__file__).resolve().parents[2]
PLAY = """
run agent.py:agent "Rome?" --session told --json
run agent.py:agent "And Oslo?" --session told --json
run agent.py:desk "Pay back." --session paid --json
approve paid --by ann --json
resume paid agent.py:desk --json
run agent.py:sender "Write to her." --session sent --json
resolve sent done --by ann --json
run agent.py:asker "Ask me." --session asked --json
answer asked blue --by ann --json
run agent.py:desk "Pay back." --session left --json
cancel left --by ann --reason late --json
work agent.py:asker --once --json
runs --json
runs --size --json
log told --json
show told 3 --json
why told --json
find Rome --json
stats --json
sql "SELECT 1 AS one" --json
models --json
replay told agent.py:agent --json
fork told agent.py:agent --at 10 --session other --json
diff told other --json
case add told agent.py:agent --json
export told
export told --output told.jsonl
import told.jsonl --record second.gesta --json
push runs.gesta third.gesta --json
backup fourth.gesta --json
adopt --record fourth.gesta --yes --by ann --json
hold told --reason court --by ann --json
prune --session paid --yes --by ann --json
verify --json
repair --json
"""
"""Commands that are played in this order, in a folder with the agents of the tests of the command line."""

OPEN = {"content", "annotations", "args", "arguments", "result", "detail", "schema", "holds", "wire", "body", "value"}
"""Members whose form is that of a kind, of a tool or of a provider, and stands elsewhere or belongs to the user."""


def commands() -> Iterator[str]:
    """Write each command with its arguments, and each of its options."""
    for name, command in sorted(every_command().commands.items()):
        arguments = [each.name.upper() for each in command.params if each.param_type_name == "argument"]
        yield " ".join(["gesta", name, *arguments])
        options = [each for each in command.params if each.param_type_name == "option"]
        yield from sorted(f"gesta {name} {' '.join(sorted(each.opts, reverse=True))}" for each in options)


def tables() -> Iterator[str]:
    """Write each table and view of a record, and its columns."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "made.gesta")
        gesta.run_sync(gesta.Agent("a", gesta.scripted("b")), "c", record=path)
        with closing(sqlite3.connect(path)) as db:
            every = "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
            for kind, name in db.execute(every).fetchall():
                columns = ", ".join(row[1] for row in db.execute(f"PRAGMA table_info('{name}')"))
                if not name.startswith("sqlite_"):
                    yield f"{kind} {name}: {columns}"


def forms(value: Any, path: str = "") -> Iterator[str]:
    """Write the path of each member of a JSON value, with its type."""
    if isinstance(value, dict) and (not path or path.rpartition(".")[2] not in OPEN):
        for name, member in value.items():
            yield from forms(member, f"{path}.{name}")
    elif isinstance(value, list):
        yield f"{path}: array"
        for each in value:
            yield from forms(each, f"{path}[]")
    elif path.rpartition(".")[2].removesuffix("[]") in OPEN:
        yield f"{path}: …"
    else:
        names = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
        yield f"{path}: {names.get(type(value), 'object')}"


def lines() -> Iterator[str]:
    """Write the members of what each command writes with `--json`; of `run` and its kin the outcome, events stand apart."""
    found: dict[str, set[str]] = {}
    with TemporaryDirectory() as folder, chdir(folder):
        Path("agent.py").write_text(AGENTS, encoding="utf-8")
        for words in map(shlex.split, PLAY.strip().splitlines()):
            done = gesta_command(*words)
            told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            assert told or "--output" in words, f"{words} wrote no JSON, but:\n{done.output}"
            for each in told:
                if words[0] not in ("run", "resume") or each["type"] == "outcome":
                    for line in forms(each):
                        path, _, kind = line.rpartition(": ")
                        found.setdefault(f"gesta {words[0].replace('resume', 'run')} {path}", set()).add(kind)
    yield from (f"{path}: {' | '.join(sorted(kinds))}" for path, kinds in sorted(found.items()))


def codes() -> Iterator[str]:
    """Write each exit code by its name, and the exit code of each error that has one of its own."""
    for name in ("ANSWERED", "FAILED", "USAGE", "WAITING", "LIMIT", "DOUBT", "INTERRUPTED", "BROKEN_PIPE"):
        yield f"{getattr(talk, name)} {name.lower()}"
    yield from (f"{talk.USAGE} {each.__name__}" for each in TYPED_WRONG)


def variables() -> Iterator[str]:
    """Write each environment variable of Gesta's own."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    yield from sorted({name for text in sources for name in re.findall(r"\bGESTA_[A-Z_]+\b", text)})


def raised() -> Iterator[str]:
    """Write each error of the tree, with those it belongs to."""
    for name, each in sorted(vars(errors).items()):
        if isinstance(each, type) and issubclass(each, errors.GestaError):
            yield f"{name}: {' '.join(base.__name__ for base in each.__mro__[1:-3])}".rstrip(": ")


def told() -> Iterator[str]:
    """Write the members of each event and of the outcome."""
    shared = [field.encode_name for field in msgspec.structs.fields(events.AnyEvent)]
    yield f"every event: {', '.join(shared)}"
    for each in (*get_args(events.Event), events.Explain, events.Outcome):
        own = [field.encode_name for field in msgspec.structs.fields(each)]
        yield f"{each.__name__}: {', '.join(name for name in own if name not in shared)}".rstrip(": ")


def served() -> Iterator[str]:
    """Write each path of the server, and the members of its body."""
    for place in sorted(PLACES, key=lambda each: (each.path, each.method)):
        body = [field.encode_name for field in msgspec.structs.fields(place.body)] if place.body else []
        yield f"{place.method} {place.path}: {', '.join(body)}".rstrip(": ")


def extras() -> Iterator[str]:
    """Write what can stand in brackets behind `pip install gesta`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = {"test", "lint", "docs", "bench", "browser"}
    yield from (f"gesta[{name}]" for name in sorted(set(project["optional-dependencies"]) - ours))


SECTIONS = {
    "Commands and options": commands,
    "JSON lines of commands": lines,
    "Exit codes": codes,
    "Environment variables": variables,
    "Tables of a record in SQLite": tables,
    "Errors": raised,
    "Events": told,
    "Paths of the server": served,
    "Extras": extras,
}


def section(title: str) -> list[str]:
    """Return what the committed file has under a title."""
    text = COMMITTED.read_text(encoding="utf-8")
    return text.partition(f"# {title}\n")[2].partition("\n# ")[0].strip().splitlines()


@pytest.mark.parametrize("title", SECTIONS)
def test_what_scripts_rely_on_is_that_of_the_committed_file(title: str):
    changed = list(difflib.unified_diff(section(title), list(SECTIONS[title]()), lineterm="", n=0))[2:]
    assert not changed, "\n".join(line for line in changed if line[:2] != "@@")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    print("\n\n".join("\n".join([f"# {title}", *write()]) for title, write in SECTIONS.items()))
