"""`approve`, `resolve` and `cancel`: an answer goes into the inbox, and what to type next is said."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Gesta

from gesta.decide.waiting import SENT

pytestmark = pytest.mark.sample(2, over="parent")

Find = Callable[[str], str]


def _kinds(gesta: Gesta) -> list[str]:
    return [json.loads(line)["content"]["kind"] for line in gesta("log", "last", "--json").stdout.splitlines()]


def test_approve_only_puts_the_answer_into_the_inbox(gesta: Gesta, run_id: Find):
    gesta("run", "agent.py:desk", "pay")
    before = _kinds(gesta)
    done = gesta("approve", "last", "--by", "ann", "--reason", "damaged")
    run = run_id("desk")
    assert done.exit_code == 0
    assert done.stderr == (
        f'record: runs.gesta\napproved: refund(order="W1", amount=20.5)\nNext: gesta resume {run} agent.py:desk\n'
    )
    assert _kinds(gesta) == before
    assert "approved by ann: damaged" in gesta("resume", run, "agent.py:desk").stderr


def test_a_denied_call_does_not_run_and_the_model_reads_why(gesta: Gesta):
    gesta("run", "agent.py:desk", "pay")
    gesta("approve", "last", "--deny", "--reason", "not ours")
    done = gesta("resume", "last", "agent.py:desk")
    assert "denied: A person did not allow this call. They said: not ours" in done.stderr
    assert done.stdout == "It is done.\n"


def test_a_second_answer_is_refused_before_and_after_it_was_taken_in(gesta: Gesta, run_id: Find):
    gesta("run", "agent.py:desk", "pay")
    gesta("approve", "last")
    run = run_id("desk")
    done = gesta("approve", "last", "--deny")
    assert done.exit_code == 1
    assert f"error: Run {run}: answer sent, waits for a program to go on. Next: gesta resume {run}" in done.stderr
    assert gesta("resume", run, "agent.py:desk").exit_code == 0
    done = gesta("approve", "last", "--deny")
    assert done.exit_code == 1
    assert f"error: Run {run} waits for no approval: its last turn ended with 'answered'.\n" in done.stderr
    assert gesta("approve", "last", "--all").exit_code == 1


def test_of_several_calls_one_must_be_named(gesta: Gesta, run_id: Find):
    gesta("run", "agent.py:pair", "pay")
    run = run_id("pair")
    named = '\n  --call 6  refund(order="W1", amount=1.0)\n  --call 7  refund(order="W2", amount=2.0)\n'
    done = gesta("approve", "last")
    assert done.exit_code == 2
    assert f"error: 2 calls of run {run} wait. Say which, or --all for every one:{named}" in done.stderr
    done = gesta("approve", "last", "--call", "9")
    assert done.exit_code == 2
    assert f"error: Call 9 of run {run} is not among those that wait. Name one of these:{named}" in done.stderr
    assert "1 call still to be answered.\n" in gesta("approve", "last", "--call", "7", "--deny").stderr
    assert f"Next: gesta resume {run} agent.py:pair\n" in gesta("approve", "last").stderr
    done = gesta("resume", "last", "agent.py:pair")
    assert "← refunded 1.0 for W1" in done.stderr
    assert "← denied: A person did not allow this call." in done.stderr


def test_all_answers_every_call(gesta: Gesta):
    gesta("run", "agent.py:pair", "pay")
    done = gesta("approve", "last", "--all", "--json")
    assert [json.loads(line)["call"] for line in done.stdout.splitlines()] == [6, 7]
    assert gesta("resume", "last", "agent.py:pair").exit_code == 0


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["done", "--result", '{"sent": true}'], '← {"sent": true}'),
        (["failed"], "← error: The call did not happen."),
        (["failed", "--result", '"no such person"'], "← error: no such person"),
    ],
)
def test_a_doubt_is_settled_by_what_a_person_says(gesta: Gesta, run_id: Find, words: list[str], shown: str):
    gesta("run", "agent.py:sender", "send")
    done = gesta("resolve", "last", *words, "--by", "ann")
    assert f"Next: gesta resume {run_id('sender')} agent.py:sender\n" in done.stderr
    done = gesta("resume", "last", "agent.py:sender")
    assert shown in done.stderr
    assert (done.exit_code, done.stdout) == (0, "Sent.\n")


def test_retry_tries_again(gesta: Gesta):
    gesta("run", "agent.py:sender", "send")
    gesta("resolve", "last", "retry")
    done = gesta("resume", "last", "agent.py:sender")
    assert "attempt 2 of call 6" in done.stderr
    assert done.exit_code == 5


def test_a_doubt_is_settled_once(gesta: Gesta):
    gesta("run", "agent.py:sender", "send")
    gesta("resolve", "last", "done")
    done = gesta("resolve", "last", "failed")
    assert done.exit_code == 1
    assert "error: The doubt about call 6 was settled before. Next: gesta resume" in done.stderr


def test_of_several_doubts_one_must_be_named(gesta: Gesta):
    done = gesta("run", "agent.py:twice", "send")
    assert " done --call 6 && gesta resolve " in done.stderr
    done = gesta("resolve", "last", "done")
    assert done.exit_code == 2
    assert 'wait. Say which:\n  --call 6  send(to="ann")\n  --call 7  send(to="bob")\n' in done.stderr
    assert gesta("resolve", "last", "done", "--call", "6").exit_code == 0
    assert gesta("resolve", "last", "failed", "--call", "7").exit_code == 0
    assert gesta("resume", "last", "agent.py:twice").exit_code == 0


def test_a_result_that_is_no_json_is_told_how(gesta: Gesta):
    gesta("run", "agent.py:sender", "send")
    done = gesta("resolve", "last", "done", "--result", "sent")
    assert done.exit_code == 2
    assert "error: --result is 'sent', expected JSON (" in done.stderr
    assert "Text goes in quotes: --result '\"sent\"'\n" in done.stderr
    done = gesta("resolve", "last", "done", "--result", "[" * 100_000)
    assert (done.exit_code, "expected JSON (maximum recursion depth exceeded" in done.stderr) == (2, True)


def test_without_a_doubt_there_is_nothing_to_resolve(gesta: Gesta, run_id: Find):
    gesta("run", "agent.py:desk", "pay")
    done = gesta("resolve", "last", "done")
    assert done.exit_code == 1
    assert f"error: Run {run_id('desk')} is in no doubt about a call: it waits for approval of refund.\n" in done.stderr


def test_cancel_ends_the_turn_once(gesta: Gesta, run_id: Find):
    gesta("run", "agent.py:desk", "pay", "--session", "s")
    run = run_id("desk")
    done = gesta("cancel", "s", "--reason", "no longer", "--by", "ann", "--json")
    assert json.loads(done.stdout) == {"run": run, "turn": 1, "reason": "cancelled"}
    assert f"Run {run}: the turn is ended (cancelled).\n" in done.stderr
    shown = gesta("log", run).stdout
    assert "cancel      by ann: no longer" in shown
    assert "── cancelled · 1 request" in shown
    done = gesta("cancel", run)
    assert done.exit_code == 1
    assert (
        f"error: No turn is open in run {run}: its last turn ended with 'cancelled'. `gesta runs` shows which are open.\n"
        in done.stderr
    )
    done = gesta("resume", run, "agent.py:desk")
    assert done.exit_code == 1
    assert "error: The turn ended with cancelled: cancelled by ann: no longer\n" in done.stderr


def test_a_command_that_finds_no_record_names_those_that_lie_there(gesta: Gesta):
    gesta("run", "agent.py:plain", "hello", "--session", "ann", "--record", "bank.gesta")
    for words in (["approve", "ann"], ["log", "ann", "--record", "bnak.gesta"]):
        done = gesta(*words)
        assert done.exit_code == 2
        assert (
            "That folder has 'bank.gesta'. Name one with --record FILE, or in the variable GESTA_RECORD." in done.stderr
        )
        assert "record: runs.gesta" not in done.stderr


@pytest.mark.parametrize("words", [["approve", "nope"], ["cancel", "nope"], ["resolve", "nope", "done"]])
def test_no_such_run_and_no_such_record(gesta: Gesta, words: list[str]):
    done = gesta(*words)
    assert done.exit_code == 2
    assert "error: No record at 'runs.gesta'. Name one with --record FILE" in done.stderr
    gesta("run", "agent.py:plain", "hello")
    done = gesta(*words)
    assert done.exit_code == 2
    assert "error: No run or session 'nope' in this record. `gesta runs` lists them.\n" in done.stderr


def test_a_call_runs_with_the_arguments_that_a_person_put_in_their_place(gesta: Gesta):
    gesta("run", "agent.py:desk", "pay")
    done = gesta("approve", "last", "--args", '{"order": "W1", "amount": 1.5}', "--by", "ann")
    assert 'approved: refund(order="W1", amount=1.5)\n' in done.stderr
    assert "← refunded 1.5 for W1\n" in gesta("resume", "last", "agent.py:desk").stderr


def test_a_call_that_a_person_gives_a_result_does_not_run(gesta: Gesta):
    gesta("run", "agent.py:desk", "pay")
    done = gesta("approve", "last", "--result", '"paid by cheque"')
    assert 'answered: refund(order="W1", amount=20.5)\n' in done.stderr
    shown = gesta("resume", "last", "agent.py:desk").stderr
    assert "paid by cheque" in shown
    assert "refunded" not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--args", "x"], "error: --args is 'x', expected JSON ("),
        (["--args", "[1]"], "error: --args is a JSON list, expected an object such as '{\"amount\": 5}'.\n"),
        (["--args", '{"amount": NaN}'], ", expected JSON (NaN is not a number in JSON)."),
        (["--args", "{}", "--result", "1"], "error: --args and --result do not go together: "),
        (["--deny", "--args", "{}"], "error: --deny and --args do not go together: "),
    ],
)
def test_what_no_approval_can_say_is_refused_and_the_call_waits_on(gesta: Gesta, words: list[str], said: str):
    gesta("run", "agent.py:desk", "pay")
    done = gesta("approve", "last", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert gesta("approve", "last").exit_code == 0


def test_a_turn_is_resumed_with_consent_to_every_call(gesta: Gesta):
    gesta("run", "agent.py:pair", "pay")
    done = gesta("resume", "last", "agent.py:pair", "--yes")
    assert (done.exit_code, done.stdout) == (0, "Both are done.\n")
    assert done.stderr.count("approved by --yes\n") == 2


def test_of_several_questions_one_is_named_and_each_has_its_answer(gesta: Gesta):
    gesta("run", "agent.py:both", "go", "--record", "asked.gesta")
    on = ("--record", "asked.gesta")
    run = json.loads(gesta("runs", "--json", *on).stdout)["run"]
    named = "\n  --question 8  Which?\n  --question 9  When?\n"
    done = gesta("answer", "last", "The blue one", *on)
    assert (done.exit_code, f"error: 2 questions of run {run} wait. Say which:{named}" in done.stderr) == (2, True)
    done = gesta("answer", "last", "x", "--question", "7", *on)
    assert done.exit_code == 2
    assert f"error: Question 7 of run {run} is not among those that wait. Name one of these:{named}" in done.stderr
    for question, text in (("9", "Today"), ("8", "The blue one")):
        assert gesta("answer", "last", text, "--question", question, "--by", "ann", *on).exit_code == 0
    done = gesta("resume", "last", "agent.py:both", *on)
    assert (done.exit_code, done.stdout) == (0, "Noted.\n")
    lines = map(json.loads, gesta("log", "last", "--json", *on).stdout.splitlines())
    told = {line["content"]["of"]: line["content"] for line in lines if line["content"]["kind"] == "answer"}
    assert {of: (each["value"], each["by"]) for of, each in told.items()} == {
        8: ("The blue one", "ann"),
        9: ("Today", "ann"),
    }


def test_a_doubt_is_settled_in_the_record_that_is_named(gesta: Gesta):
    gesta("run", "agent.py:sender", "go", "--record", "other.gesta")
    done = gesta("resolve", "last", "done", "--by", "ann", "--record", "other.gesta")
    assert (done.exit_code, 'done: send(to="ann")\n' in done.stderr) == (0, True)
    assert gesta("resume", "last", "agent.py:sender", "--record", "other.gesta").stdout == "Sent.\n"


def test_a_question_is_answered_in_the_record_that_is_named(gesta: Gesta):
    gesta("run", "agent.py:asker", "go", "--record", "other.gesta")
    assert gesta("answer", "last", "The blue one", "--record", "other.gesta").exit_code == 0
    assert gesta("resume", "last", "agent.py:asker", "--record", "other.gesta").stdout == "That one.\n"


SLOW_PAYMENT = """
import gesta

@gesta.tool(effect="once", timeout_s=0.05)
def pay(order: str) -> str:
    '''Pay, when somebody writes into the pipe.'''
    with open("go") as go:
        return go.read()

agent = gesta.Agent("payer", gesta.scripted(gesta.call("pay", order="W1"), "Done."), tools=[pay])
"""


def test_a_word_about_what_may_still_be_at_work_is_told_to_be_early_and_is_asked_for_again(
    gesta: Gesta, folder: Path
) -> None:
    (folder / "slow.py").write_text(SLOW_PAYMENT, encoding="utf-8")
    os.mkfifo("go")
    before = set(threading.enumerate())
    gesta("run", "slow.py:agent", "pay")
    done = gesta("resolve", "last", "retry")
    Path("go").write_text("paid")
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert gesta("resume", "last", "slow.py:agent").stdout == "Done.\n"
    assert done.exit_code == 0
    assert (
        "may still be at work, and happen after you looked. When it has ended, look and say it again.\n" in done.stderr
    )


def test_a_run_that_waits_for_an_answer_says_so_in_the_list_of_runs(gesta: Gesta):
    gesta("run", "agent.py:asker", "go")
    assert gesta("runs").stdout.splitlines()[1].endswith("waits for an answer")


@pytest.mark.parametrize(
    ("agent", "waits", "words"),
    [
        ("desk", "waits for approval: refund", ["approve", "last"]),
        ("asker", "waits for an answer", ["answer", "last", "This one."]),
        ("sender", "in doubt: send", ["resolve", "last", "done"]),
    ],
)
def test_an_answer_that_no_program_took_in_yet_is_told_in_every_list(
    gesta: Gesta, agent: str, waits: str, words: list[str]
):
    def stands() -> tuple[str, bool, str, bool]:
        (run,), (session,) = (
            map(json.loads, gesta(name, "--json").stdout.splitlines()) for name in ("runs", "sessions")
        )
        _, table = gesta("sessions").stdout.splitlines()
        (wait,) = session["waiting"]
        assert gesta("runs").stdout.splitlines()[1].endswith(run["stands"])
        return run["stands"], bool(run["answer_sent_at"]), table, bool(wait["answer_sent_at"])

    gesta("run", f"agent.py:{agent}", "go")
    stood, sent, table, wait = stands()
    assert (stood, sent, SENT in table, wait) == (waits, False, False, False)
    assert gesta(*words).exit_code == 0
    stood, sent, table, wait = stands()
    assert (stood, sent, SENT in table, wait) == (SENT, True, True, True)
    assert gesta("resume", "last", f"agent.py:{agent}").exit_code == 0
    (run,) = map(json.loads, gesta("runs", "--json").stdout.splitlines())
    assert (run["stands"], run["answer_sent_at"]) == ("answered", None)


def test_of_two_calls_the_one_without_an_answer_is_told(gesta: Gesta):
    gesta("run", "agent.py:pair", "pay")
    gesta("approve", "last", "--call", "6")
    assert gesta("runs").stdout.splitlines()[1].endswith("waits for approval: refund")
    gesta("approve", "last")  # the other one
    assert gesta("runs").stdout.splitlines()[1].endswith(SENT)


def test_arguments_for_several_calls_at_once_are_refused(gesta: Gesta):
    gesta("run", "agent.py:pair", "pay")
    done = gesta("approve", "last", "--all", "--args", '{"order": "W1", "amount": 1.0}')
    assert done.exit_code == 2
    assert "error: --args fits one call, and --all means 2. Name the call with --call N.\n" in done.stderr
    assert "approved" not in gesta("resume", "last", "agent.py:pair").stderr


@pytest.mark.parametrize("words", [["approve"], ["cancel"], ["log"], ["resume", "agent.py:desk"]])
def test_an_empty_name_names_no_run_also_where_there_is_one_alone(gesta: Gesta, words: list[str]):
    gesta("run", "agent.py:desk", "pay")
    done = gesta(words[0], "", *words[1:])
    assert done.exit_code == 2
    assert "error: No run or session '' in this record." in done.stderr
    assert "approval" not in _kinds(gesta)


def test_a_call_that_is_tried_again_takes_no_result(gesta: Gesta):
    gesta("run", "agent.py:sender", "write")
    done = gesta("resolve", "last", "retry", "--result", "3")
    assert done.exit_code == 2
    assert "error: retry and --result do not go together: the tool is tried again" in done.stderr
    assert "resolution" not in _kinds(gesta)
