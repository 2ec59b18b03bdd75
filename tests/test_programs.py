"""A program that the fork server starts behaves as one that `python` starts."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests import programs
from tests.commands import ROOT, forgotten

SHOWN = """
import os, sys
print(__name__, sys.argv, sys.path[0], os.getcwd(), os.environ["CHOSEN"], sys.stdin.read())
print([name for name in sys.modules if name.split(".")[0] in ("gesta", "tests", "pytest")])
print("talk", file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["-c", SHOWN, "a", "b"], ["shown.py", "a"]], ids=["code", "file"])
def test_a_program_sees_what_python_shows_it(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(SHOWN, encoding="utf-8")
    env = os.environ | {"CHOSEN": "ann"}
    common = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=env, input="hi", capture_output=True, text=True, check=True
    )
    done = programs.run(words, cwd=tmp_path, env=env, input="hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, common.stdout, common.stderr)


def test_a_module_is_run_as_the_main_one() -> None:
    assert programs.run(["-m", "json.tool", "--compact"], input='{"a": 1}').stdout == '{"a":1}\n'


IMPORTED = """
import sys
from importlib import import_module
import_module(sys.argv[1])
ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "gesta"}
for name, module in sorted(ours.items()):
    print(name, module.__spec__, sorted(each for each in vars(module) if each[:2] != "__"))
"""


@pytest.mark.parametrize("name", ["gesta", "gesta.kinds", "gesta.record.record", "gesta.cli", "gesta.stores.sqlite"])
def test_of_gesta_a_program_sees_what_it_imported_and_nothing_else(name: str) -> None:
    def shown(text: str) -> str:
        return re.sub(r"0x[0-9a-f]+", "", text)

    common = subprocess.run([sys.executable, "-c", IMPORTED, name], capture_output=True, text=True, check=True)
    assert shown(programs.run(["-c", IMPORTED, name]).stdout) == shown(common.stdout) != ""


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(7)", 7),
        ("raise SystemExit(300)", 44),
        ("raise SystemExit('no')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_how_a_program_ends_is_told(code: str, status: int) -> None:
    assert programs.run(["-c", code]).returncode == status


def test_what_is_left_to_do_at_the_end_is_done() -> None:
    code = """
import atexit, threading
class Held:
    def __del__(self):
        print("freed")
held = Held()
atexit.register(print, "last")
threading.Timer(0, print, ["later"]).start()
"""
    assert programs.run(["-c", code]).stdout.split() == ["later", "last", "freed"]


def test_a_command_forgets_what_is_the_users_and_keeps_what_is_of_this_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = dict[str, ModuleType]()
    monkeypatch.setattr(sys, "modules", modules)
    for folder in (ROOT, tmp_path):
        with forgotten(folder):
            modules["loaded"] = ModuleType("loaded")
            modules["loaded"].__file__ = str(folder / "loaded.py")
        assert ("loaded" in modules) is (folder == ROOT)
        modules.clear()
