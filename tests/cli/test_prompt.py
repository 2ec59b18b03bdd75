"""A person at a terminal: the answer as it comes, and the question before a call."""

import os
import sys
from pathlib import Path

import pexpect
import pytest

pytestmark = pytest.mark.sample(3, over="parent")

MAIN = ["-c", "from gesta.cli import main; main()"]
ASKED = r"Approve\? \[y/N/\?\] "


def _spawn(*words: str) -> "pexpect.spawn[str]":
    env = {name: value for name, value in os.environ.items() if name != "GESTA_RECORD"} | {
        "NO_COLOR": "1",
        "TERM": "xterm",
        "USER": "ann",
        "LOGNAME": "ann",
    }
    child = pexpect.spawn(
        sys.executable, [*MAIN, *words], encoding="utf-8", timeout=15, env=env, dimensions=(40, 100), echo=False
    )
    child.delaybeforesend = None
    return child


def _end(child: "pexpect.spawn[str]") -> tuple[str, int]:
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus is not None
    return child.before.replace("\r\n", "\n"), child.exitstatus


@pytest.mark.usefixtures("folder")
def test_yes_at_the_prompt_runs_the_call_in_ones_own_name():
    child = _spawn("run", "agent.py:desk", "pay it back")
    child.expect(ASKED)
    asked = child.before.replace("\r\n", "\n")
    assert 'refund asks to run, with:\n    order   "W1"\n    amount  20.5\n' in asked
    child.sendline("?")
    child.expect(ASKED)
    explained = child.before.replace("\r\n", "\n")
    assert "refund: Pay money back.\n" in explained
    assert "Its effect is 'once'" in explained
    assert "Ctrl-C or Ctrl-D: nothing is answered" in explained
    child.sendline("y")
    said, code = _end(child)
    assert code == 0
    assert "approved by ann\n" in said
    assert "← refunded 20.5 for W1\n" in said
    assert "\nIt is done.\n" in said


@pytest.mark.usefixtures("folder")
def test_enter_at_the_prompt_does_not_allow_it():
    child = _spawn("run", "agent.py:desk", "pay it back")
    child.expect(ASKED)
    child.sendline("")
    said, code = _end(child)
    assert code == 0
    assert "denied by ann\n" in said
    assert "refunded" not in said


@pytest.mark.sample(2)
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("leave", "code", "said"),
    [("sendintr", 130, "Interrupted; the turn is left open. Go on with: gesta resume "), ("sendeof", 3, "Go on with:")],
)
def test_leaving_the_prompt_answers_nothing(leave: str, code: int, said: str):
    child = _spawn("run", "agent.py:desk", "pay it back", "--session", "s")
    child.expect(ASKED)
    getattr(child, leave)()
    ended = _end(child)
    assert ended[1] == code
    assert said in ended[0]
    child = _spawn("resume", "s", "agent.py:desk")
    child.expect(ASKED)
    child.sendline("y")
    assert _end(child)[1] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_every_call_of_several_is_asked_about():
    child = _spawn("run", "agent.py:pair", "pay both")
    for order, answer in (("W1", "y"), ("W2", "n")):
        child.expect(ASKED)
        assert order in child.before
        child.sendline(answer)
    said, code = _end(child)
    assert code == 0
    assert "← refunded 1.0 for W1" in said
    assert "← denied: A person did not allow this call." in said


@pytest.mark.usefixtures("folder")
def test_on_a_terminal_the_answer_is_shown_once():
    said, code = _end(_spawn("run", "agent.py:agent", "Rome?"))
    assert code == 0
    assert said.count("Rome is dry: no umbrella.") == 1
    assert said.count("Let me look.") == 1
    assert said.index("Let me look.") < said.index("→ weather") < said.index("Rome is dry")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_lost_stream_is_told_on_a_terminal():
    said, code = _end(_spawn("run", "agent.py:shaky", "hello"))
    assert code == 0
    assert said.index("There\n") < said.index("! http-503: try later") < said.index("There you are.\n")


@pytest.mark.usefixtures("folder")
def test_without_a_task_a_terminal_is_not_read():
    said, code = _end(_spawn("run", "agent.py:plain"))
    assert code == 2
    assert "error: There is no task." in said


def test_arguments_are_shown_whole_and_harmless(folder: Path):
    (folder / "odd.py").write_text(
        "import gesta\n"
        "@gesta.tool(approval=True)\n"
        "def pay(note: str, items: list[dict[str, int]]) -> str:\n"
        "    '''Pay.'''\n"
        "    return 'paid'\n"
        "call = gesta.call('pay', note='\\x1b[2J\\u202eabc [bold]', items=[{'a': 1}, {'b': 2}])\n"
        "agent = gesta.Agent('odd', gesta.scripted(call, 'Paid.'), tools=[pay])\n",
        encoding="utf-8",
    )
    child = _spawn("run", "odd.py:agent", "x")
    child.expect(ASKED)
    shown = child.before.replace("\r\n", "\n")
    child.sendline("y")
    assert _end(child)[1] == 0
    assert "<U+001B>[2J<U+202E>abc [bold]" in shown
    assert "Some characters cannot be seen, or turn text around: <U+...> stands for each." in shown
    assert "\x1b[2J" not in shown
    assert '"a": 1' in shown
    assert '"b": 2' in shown
