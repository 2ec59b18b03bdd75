"""Wherever a person decides, each character of what is decided about is seen for what it is."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Gesta

import gesta as library
from gesta.cli.approving import arguments
from gesta.decide.approval import asked
from gesta.decide.waiting import Waiting
from gesta.text.visible import call_text, unseen

HOSTILE = "p\\u0430ypal\\u202e\\u200b \\x1b[2J\\ufe0f\\u3164"
SHOWN = "p<U+0430>ypal<U+202E><U+200B> <U+001B>[2J<U+FE0F><U+3164>"
AGENTS = f'''
import gesta
from gesta.tools.person import ask_person


@gesta.tool(effect="once", approval=True)
def pay(to: str, amount: int) -> str:
    """Pay."""
    return "paid"


@gesta.tool(effect="once")
def send(to: str) -> str:
    """Send."""
    raise gesta.InDoubt("the line went dead")


TO = "{HOSTILE}"
payer = gesta.Agent("payer", gesta.scripted(gesta.call("pay", to=TO, amount=5), "Paid."), tools=[pay])
pair = gesta.Agent(
    "pair",
    gesta.scripted([gesta.call("pay", to=TO, amount=5), gesta.call("pay", to="bob", amount=6)], "Paid."),
    tools=[pay],
)
asker = gesta.Agent("asker", gesta.scripted(gesta.call("ask_person", question=TO), "So."), tools=[ask_person()])
sender = gesta.Agent("sender", gesta.scripted(gesta.call("send", to=TO), "Sent."), tools=[send])
'''


@pytest.fixture
def hostile(folder: Path) -> None:
    (folder / "bad.py").write_text(AGENTS, encoding="utf-8")


def check(text: str) -> None:
    assert SHOWN in " ".join(text.split())
    assert not [sign for sign in text if unseen(sign)]
    assert "\u0430" not in text


@pytest.mark.usefixtures("hostile")
def test_an_approval_is_asked_and_given_with_every_character_seen(gesta: Gesta) -> None:
    waits = gesta("run", "bad.py:payer", "go")
    check(waits.stderr)
    assert "'p<U+0430>ypal<U+202E><U+200B>' has letters of several scripts: CYRILLIC, LATIN.\n" in waits.stderr
    assert "Some characters cannot be seen, or turn text around: <U+...> stands for each.\n" in waits.stderr
    check(gesta("log", "last").stdout)
    check(gesta("log", "last", "--all").stdout)
    given = gesta("approve", "last")
    check(given.stderr)
    assert "several scripts" in given.stderr


@pytest.mark.usefixtures("hostile")
def test_an_entry_that_a_person_decides_about_is_shown_with_every_character_seen(gesta: Gesta) -> None:
    gesta("run", "bad.py:payer", "go", "--session", "s")
    log = gesta("log", "last", "--all").stdout
    number = next(line.split()[1] for line in log.splitlines() if "call" in line and "pay(" in line)
    check(gesta("show", "last", number).stdout)


@pytest.mark.usefixtures("hostile")
def test_several_calls_questions_and_doubts_are_listed_with_every_character_seen(gesta: Gesta) -> None:
    gesta("run", "bad.py:pair", "go", "--session", "pair")
    check(gesta("approve", "pair").stderr)
    check(gesta("run", "bad.py:asker", "go", "--session", "ask").stderr)
    check(gesta("log", "ask").stdout)
    check(gesta("run", "bad.py:sender", "go", "--session", "send").stderr)
    check(gesta("resolve", "send", "done").stderr)


VALUES = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.text(min_size=1))
def test_the_prompt_and_the_line_of_a_call_hold_nothing_unseen(args: dict[str, object], name: str) -> None:
    waiting = Waiting("approval", call=1, tool=name, args=args)
    for text in (*arguments(waiting), call_text(name, args)):
        assert not [sign for sign in text if unseen(sign)]


def test_the_command_line_says_what_a_name_is_worth(gesta: Gesta) -> None:
    said = " ".join(gesta("approve", "--help").stdout.split())
    assert "nothing checks it" in said
    assert "approver" in said


SIGNED = """
import pathlib

import gesta
from gesta.decide.approval import SignedApprovals

approver = SignedApprovals({"cfo": bytes(range(32))})


@gesta.tool(effect="once", approval=True)
def pay(amount: int) -> str:
    \"\"\"Pay.\"\"\"
    pathlib.Path("paid").touch()
    return "paid"


agent = gesta.Agent("clerk", gesta.scripted(gesta.call("pay", amount=5), "Paid."), tools=[pay])
"""


def test_a_model_with_a_shell_cannot_approve_itself_where_an_approver_checks(
    gesta: Gesta, folder: Path, run_id: Callable[[str], str]
) -> None:
    (folder / "signed.py").write_text(SIGNED, encoding="utf-8")
    gesta("run", "signed.py:agent", "go")
    run = run_id("clerk")
    gesta("approve", "last", "--by", "cfo")  # what the model would type
    done = gesta("resume", "last", "signed.py:agent")
    assert done.exit_code == 3
    assert "An answer to it does not count: It has no token" in done.stderr
    assert not (folder / "paid").exists()

    async def waits() -> int:
        async with library.open("runs.gesta", readonly=True) as record:
            return len(await asked(record.store, run))

    assert anyio.run(waits) == 1


def test_without_an_approver_any_name_is_believed(gesta: Gesta, folder: Path) -> None:
    (folder / "signed.py").write_text(SIGNED.replace("approver = ", "unused = "), encoding="utf-8")
    gesta("run", "signed.py:agent", "go")
    gesta("approve", "last", "--by", "cfo")
    assert gesta("resume", "last", "signed.py:agent").exit_code == 0
    assert (folder / "paid").exists()
