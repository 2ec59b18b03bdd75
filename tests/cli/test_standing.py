"""What a turn waits for is said with what to type next, and with the exit code of docs/run.md."""

import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests import programs
from tests.cli.conftest import Gesta

from gesta.decide.waiting import SENT

MAIN = ["-c", "from gesta.cli import main; main()"]
DYING = """
import os
import gesta

@gesta.tool(effect="once")
def pay() -> str:
    "Pay."
    if os.environ.get("DIES"):
        os._exit(9)
    return "paid"

def answer(messages, header):
    os._exit(9) if os.environ.get("DIES") else None
    return "alive"

payer = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "It is paid."), tools=[pay])
fragile = gesta.Agent("fragile", model=gesta.function(answer), policy=gesta.Policy(deaths=2))
"""
RESTING = """
from datetime import UTC, datetime
import gesta

async def rest(verbs, text):
    await verbs.sleep("rest", datetime(2099, 1, 1, 8, 30, tzinfo=UTC))
    return "rested"

rests = gesta.Agent("rests", program=rest)
"""


@pytest.fixture
def dies(folder: Path) -> None:
    (folder / "dying.py").write_text(DYING, encoding="utf-8")


def killed(*words: str) -> None:
    """Run a command in a process of its own, which dies."""
    done = programs.run([*MAIN, *words], env=os.environ | {"DIES": "1"})
    assert done.returncode == 9, done.stderr


@pytest.mark.usefixtures("dies")
def test_a_call_whose_process_cannot_be_looked_up_is_tried_again_once_a_person_says_that_it_ended(
    gesta: Gesta, folder: Path
) -> None:
    killed("run", "dying.py:payer", "Pay.", "--session", "s", "--record", "here.gesta")
    for end in ("-wal", ""):
        shutil.copy(folder / f"here.gesta{end}", folder / f"runs.gesta{end}")
    with closing(sqlite3.connect(folder / "runs.gesta")) as server:  # which found the run free, as PostgreSQL does
        server.execute("UPDATE leases SET owner = NULL")
        server.commit()
    doubt = gesta("resume", "s", "dying.py:payer")
    assert doubt.exit_code == 5
    assert "Outcome unknown: pay()" in doubt.output
    assert gesta("resolve", "s", "retry").exit_code == 0
    waits = gesta("resume", "s", "dying.py:payer")
    assert waits.exit_code == 5
    said = re.search(r"gesta gone (\S+)", waits.output)
    assert said is not None, waits.output
    assert gesta("gone", said[1], "--by", "ann", "--yes").exit_code == 0
    assert gesta("resume", "s", "dying.py:payer").exit_code == 5, "it may have paid since she looked"
    assert gesta("resolve", "s", "retry").exit_code == 0
    done = gesta("resume", "s", "dying.py:payer")
    assert (done.exit_code, "It is paid." in done.output) == (0, True)


@pytest.mark.usefixtures("dies")
def test_who_resumes_after_a_death_reads_that_the_attempt_was_looked_up(gesta: Gesta) -> None:
    killed("run", "dying.py:payer", "Pay.", "--session", "s")
    said = gesta("resume", "s", "dying.py:payer").stderr
    assert re.search(r"^  looked up: attempt \d+ has ended$", said, re.MULTILINE), said
    assert "unknown-end" not in said
    assert gesta("sessions", "--errors").stdout.count("\n") == 1


@pytest.mark.usefixtures("dies")
def test_an_answer_about_a_call_whose_process_may_still_run_is_told_in_every_list(gesta: Gesta) -> None:
    killed("run", "dying.py:payer", "Pay.", "--session", "s")
    assert gesta("sessions", "--stands", "waiting").stdout.count("\n") == 1
    assert gesta("resolve", "s", "done").exit_code == 0
    for words in (["runs"], ["sessions"], ["sessions", "--stands", "waiting"]):
        assert SENT in gesta(*words).stdout
    assert gesta("resume", "s", "dying.py:payer").exit_code == 0
    assert gesta("sessions", "--stands", "waiting").stdout.count("\n") == 1


@pytest.mark.usefixtures("dies")
def test_a_turn_in_which_processes_keep_dying_waits_for_a_person(gesta: Gesta) -> None:
    for _ in range(2):
        killed("run", "dying.py:fragile", "Go.", "--session", "s", "--key", "k")
    waits = gesta("run", "dying.py:fragile", "Go.", "--session", "s", "--key", "k")
    assert (waits.exit_code, "Too many processes died in this turn" in waits.output) == (3, True)
    assert "waiting: deaths" in gesta("work", "dying.py:fragile", "--once").output
    done = gesta("resume", "s", "dying.py:fragile")
    assert (done.exit_code, "alive" in done.output) == (0, True)


def test_an_open_turn_in_a_copy_waits_until_it_is_adopted(gesta: Gesta) -> None:
    gesta("run", "agent.py:desk", "pay", "--session", "s")
    gesta("backup", "copy.gesta")
    assert gesta("approve", "s", "--record", "copy.gesta").exit_code == 0
    waits = gesta("resume", "s", "agent.py:desk", "--record", "copy.gesta")
    assert (waits.exit_code, "This record is a copy" in waits.output) == (3, True)
    assert gesta("adopt", "--record", "copy.gesta", "--by", "ann", "--yes").exit_code == 0
    assert gesta("resume", "s", "agent.py:desk", "--record", "copy.gesta").exit_code == 0


def test_a_turn_that_waits_for_a_time_says_in_the_list_of_runs_until_when(gesta: Gesta, folder: Path) -> None:
    (folder / "rests.py").write_text(RESTING, encoding="utf-8")
    assert gesta("run", "rests.py:rests", "Rest.", "--session", "s").exit_code == 3
    assert gesta("runs").stdout.rstrip().endswith("  waits until 2099-01-01 08:30:00")
