"""`runs --size`, `find`, `stats`, `backup`, `adopt`, `gone`, `prune` and `hold`."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Gesta

pytestmark = pytest.mark.sample(2, over="parent")

Find = Callable[[str], str]


@pytest.fixture
def filled(gesta: Gesta) -> Gesta:
    gesta("run", "agent.py:agent", "What of Rome?", "--session", "trip")
    gesta("run", "agent.py:plain", "A lamp?", "--session", "lamp")
    gesta("run", "agent.py:desk", "pay", "--session", "pay")
    return gesta


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# --------------------------------------------------------------------------------------------------------- --size


def test_the_size_of_runs_is_told(filled: Gesta):
    heading, *rows = filled("runs", "--size").stdout.splitlines()
    assert re.sub(r"  +", "|", heading) == "run|session|agent|started (UTC)|entries|bytes|blobs|tokens|stands"
    assert len(rows) == 3
    each = lines(filled("runs", "--size", "--json").stdout)[-1]
    assert each["session"] == "trip"
    assert 1000 < each["entry_bytes"] < 10_000
    assert each["blob_bytes"] == 0
    assert "entry_bytes" not in lines(filled("runs", "--json").stdout)[0]


def test_large_values_are_counted_apart(gesta: Gesta, folder: Path):
    gesta("run", "agent.py:echo", "x" * 100_000, "--session", "big")
    (each,) = lines(gesta("runs", "--size", "--json").stdout)
    assert each["blob_bytes"] > 100_000
    assert each["entry_bytes"] < 10_000


# ----------------------------------------------------------------------------------------------------------- find


def test_words_are_found_with_what_stands_around_them(filled: Gesta, run_id: Find):
    done = filled("find", "rome")
    assert done.stdout.splitlines()[:2] == [
        next(line for line in done.stdout.splitlines() if line.startswith(f"{run_id('guide')}.11")),
        "    [Rome] is dry: no umbrella.",
    ]
    assert f"{run_id('guide')}.6" in done.stdout
    found = lines(filled("find", "rome", "--kinds", "tool-call", "--json").stdout)
    assert [(each["id"], each["kind"], each["snippet"]) for each in found] == [
        (f"{run_id('guide')}.6", "tool-call", "weather city: [Rome]")
    ]


def test_quotes_that_the_shell_took_away_still_hold_words_together(filled: Gesta):
    assert "[dry: no] umbrella" in filled("find", "dry no").stdout
    assert filled("find", "no dry").stdout == ""
    assert filled("find", "no", "dry", "--limit", "1").stdout != ""


def test_what_is_not_found_is_said(filled: Gesta):
    done = filled("find", "nowhere")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "Nothing was found.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["!!"], "error: No word to look for in '!!'. Words are letters and digits: gesta find refund\n"),
        (["x", "--kinds", "request"], "error: Nothing is looked for in 'request' entries."),
        (["x", "--since", "soon"], "error: --since 'soon' is not a time. Write an age (90m, 12h, 30d, 4w) or a day"),
        (["x", "--run", "nobody"], "error: No run or session 'nobody' in this record."),
    ],
)
def test_what_cannot_be_looked_for_is_an_error(filled: Gesta, words: list[str], said: str):
    done = filled("find", *words)
    assert done.exit_code in (1, 2)
    assert done.stderr.startswith(said)


def test_days_and_sessions_narrow_it(filled: Gesta):
    assert "lamp" in filled("find", "lamp", "--session", "lamp", "--since", "1h").stdout.lower()
    assert filled("find", "lamp", "--session", "trip").stdout == ""
    assert filled("find", "lamp", "--until", "2020-01-01").stdout == ""


def test_the_agent_narrows_it_and_the_best_come_first(filled: Gesta):
    assert {each["agent"] for each in lines(filled("find", "W1", "--agent", "desk", "--json").stdout)} == {"desk"}
    assert filled("find", "W1", "--agent", "guide").stdout == ""
    newest = [each["seq"] for each in lines(filled("find", "rome", "--agent", "guide", "--json").stdout)]
    best = [each["seq"] for each in lines(filled("find", "rome", "--agent", "guide", "--best", "--json").stdout)]
    assert newest == sorted(newest, reverse=True)
    assert len(best) == len(newest)
    assert best != sorted(best, reverse=True)


# ---------------------------------------------------------------------------------------------------------- stats


def test_stats_are_a_table_or_lines(filled: Gesta):
    done = filled("stats", "--by", "agent")
    heading, *rows = done.stdout.splitlines()
    assert heading.split()[:3] == ["agent", "requests", "faults"]
    assert [row.split()[0] for row in rows] == ["desk", "guide", "plain"]
    assert "answers came without a count of tokens." in done.stderr
    guide = lines(filled("stats", "--by", "agent", "--json").stdout)[1]
    assert (guide["agent"], guide["requests"], guide["tokens_in"], guide["tokens_out"]) == ("guide", 2, 30, 9)
    assert (guide["usd"], guide["unpriced"], guide["unknown_usage"]) == (None, 2, 1)


def test_stats_of_tools_tell_how_often_they_failed(filled: Gesta):
    alone = lines(filled("stats", "--by", "agent", "--session", "pay", "--json").stdout)
    assert [each["agent"] for each in alone] == ["desk"]
    assert "There is nothing to count." in filled("stats", "-s", "nobody").stderr
    heading, *rows = filled("stats", "--by", "tool").stdout.splitlines()
    assert heading.split()[:4] == ["tool", "calls", "errors", "error"]
    assert [row.split()[:3] for row in rows] == [["refund", "1", "0"], ["weather", "1", "0"]]


def test_stats_of_a_time_in_which_nothing_happened_say_so(filled: Gesta):
    done = filled("stats", "--until", "2020-01-01")
    assert done.stderr == "There is nothing to count.\n"
    assert filled("stats", "--since", "2020-01-01").stdout == filled("stats").stdout != done.stdout
    assert filled("stats", "--by", "week").exit_code == 2


# --------------------------------------------------------------------------------------------------------- backup


def test_a_backup_is_the_same_record(filled: Gesta):
    done = filled("backup", "copy.gesta")
    assert re.fullmatch(r"runs\.gesta copied to copy\.gesta: [\d.]+ kB\n", done.stdout)
    assert filled("verify", "copy.gesta").exit_code == 0
    assert filled("log", "trip", "--record", "copy.gesta").stdout == filled("log", "trip").stdout
    again = filled("backup", "copy.gesta")
    assert again.exit_code == 1
    assert "something lies there already; name a new file" in again.stderr
    told = json.loads(filled("backup", "other.gesta", "--json").stdout)
    assert told == {"from": "runs.gesta", "to": "other.gesta", "bytes": Path("other.gesta").stat().st_size}


def test_a_database_is_backed_up_by_other_means(filled: Gesta):
    done = filled("backup", "postgresql://ann@localhost/db")
    assert done.exit_code == 2
    assert done.stderr == (
        "error: A backup is a file. Into a database: gesta push runs.gesta postgresql://ann@localhost/db\n"
    )
    done = filled("backup", "x.gesta", "--record", "postgresql://ann@localhost/db")
    assert done.stderr.startswith("error: A record in PostgreSQL is copied by `gesta push`, or by pg_dump.")


# ---------------------------------------------------------------------------------------------------------- adopt


def test_a_copy_makes_no_call_with_effects_until_it_is_adopted(filled: Gesta, run_id: Find):
    filled("backup", "copy.gesta")
    filled("approve", "pay", "--record", "copy.gesta")
    waits = filled("resume", "pay", "agent.py:desk", "--record", "copy.gesta")
    assert waits.exit_code != 0
    asked = filled("adopt", "--record", "copy.gesta", "--by", "ann")
    assert asked.exit_code == 2
    assert "1 turn that was open then may go on in both:" in asked.stderr
    assert f"{run_id('desk')}  pay  desk" in asked.stderr
    assert asked.stderr.endswith("is used no more. Nothing was changed: add --yes.\n")
    done = filled("adopt", "--record", "copy.gesta", "--by", "ann", "--yes")
    assert (done.exit_code, done.stdout) == (0, "adopted by ann: 1 turn may go on\n")
    again = filled("adopt", "--record", "copy.gesta", "--json", "--yes")
    assert json.loads(again.stdout) == {"adopted": False, "runs": []}
    assert "This record is not a copy that waits to be adopted." in again.stderr
    assert filled("resume", "pay", "agent.py:desk", "--record", "copy.gesta").exit_code == 0


def test_what_adopting_wrote_is_told_as_json(filled: Gesta, run_id: Find):
    filled("backup", "copy.gesta")
    told = json.loads(filled("adopt", "--record", "copy.gesta", "--by", "ann", "--yes", "--json").stdout)
    assert (told["adopted"], told["by"], told["runs"]) == (True, "ann", [run_id("desk")])
    assert told["mark"] > 20


def test_a_mirror_is_adopted_by_name_when_its_record_is_lost(filled: Gesta):
    filled("push", "runs.gesta", "copy.gesta")
    for said in (["approve", "pay"], ["resume", "pay", "agent.py:desk"]):
        refused = filled(*said, "--record", "copy.gesta")
        assert refused.exit_code == 1
        assert "is a mirror of the same run in the record with id" in refused.stderr
    assert filled("adopt", "pay", "--record", "copy.gesta").exit_code == 2
    done = filled("adopt", "pay", "--record", "copy.gesta", "--by", "ann", "--yes")
    assert done.stdout == "adopted by ann: 1 run may go on\n"
    again = filled("adopt", "pay", "--record", "copy.gesta", "--yes", "--json")
    assert json.loads(again.stdout) == {"adopted": False, "by": json.loads(again.stdout)["by"], "runs": []}
    assert "They go on in this record already." in again.stderr
    filled("approve", "pay", "--record", "copy.gesta")
    assert filled("resume", "pay", "agent.py:desk", "--record", "copy.gesta").exit_code == 0


# ----------------------------------------------------------------------------------------------------------- gone


@pytest.fixture
def lost(filled: Gesta) -> str:
    """A process that tried a call in `lost.gesta`, of which nobody can know there whether it has ended."""
    filled("run", "agent.py:sender", "go", "--session", "sent")
    (told,) = lines(filled("sql", "SELECT content FROM entries WHERE kind = 'attempt'", "--json").stdout)[-1:]
    shutil.copy("runs.gesta", "lost.gesta")
    name: str = json.loads(told["content"])["process"]
    return name


def test_a_person_says_that_a_process_has_ended_and_sees_which_attempts_name_it(filled: Gesta, lost: str):
    (listed,) = lines(filled("gone", "--record", "lost.gesta", "--json").stdout)
    assert (listed["process"], listed["known"], len(listed["attempts"])) == (lost, "not known", 1)
    assert re.search(rf"^{lost} +not known +0 +1$", filled("gone", "--record", "lost.gesta").stdout, re.MULTILINE)
    asked = filled("gone", lost[:8], "--record", "lost.gesta", "--by", "ann")
    assert asked.exit_code == 2
    assert asked.stderr.splitlines()[0] == f"1 attempt names process {lost}."
    assert asked.stderr.splitlines()[1] == f"    {listed['attempts'][0]}  send: no result on record"
    assert asked.stderr.endswith("with all that it started. Nothing was changed: add --yes.\n")
    example = re.findall(r"^    gesta (gone .+)$", filled("gone", "--help").stdout, re.MULTILINE)[0].split()
    done = filled(example[0], lost, *example[2:], "--record", "lost.gesta")
    assert (done.exit_code, done.stdout) == (0, f"gone: {lost}, ann says\n")
    again = filled("gone", lost, "--record", "lost.gesta", "--json")
    assert json.loads(again.stdout) == {"process": lost, "gone": True, "by": None, "attempts": listed["attempts"]}
    assert "That it has ended is known." in again.stderr


def test_of_a_process_that_lives_here_it_cannot_be_said(filled: Gesta):
    import gesta

    with gesta.open_sync("runs.gesta") as record, record.span("app", session="app"):
        (listed,) = lines(filled("gone", "--json").stdout)
        assert (listed["known"], len(listed["runs"])) == ("is at work here", 1)
        done = filled("gone", listed["process"], "--yes")
    assert done.exit_code == 1
    assert "is at work on this machine, so it has not ended. End it first" in done.stderr
    assert filled("gone").stderr == "No process holds a run, or tried a call that has no result.\n"


def test_a_process_that_nothing_names_is_an_error_that_names_the_nearest(filled: Gesta, lost: str):
    done = filled("gone", f"{lost[:15]}x", "--record", "lost.gesta", "--yes")
    assert done.exit_code == 2
    assert f"Nothing in this record names a process '{lost[:15]}x'. Did you mean {lost[:16]!r}?" in done.stderr


# ---------------------------------------------------------------------------------------------------------- prune


def test_what_goes_is_said_first_and_nothing_goes_without_a_yes(filled: Gesta, run_id: Find):
    done = filled("prune", "--before", "0m")
    assert done.exit_code == 2
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == ["run", run_id("guide"), run_id("plain")]
    assert f"Run {run_id('desk')} (session pay) stays: a turn of it is open: end it first" in done.stderr
    assert done.stderr.endswith("2 runs, 19 entries would go, for good. Nothing was pruned: add --yes.\n")
    assert len(filled("runs").stdout.splitlines()) == 4


def test_old_runs_go_and_verify_knows_of_them(filled: Gesta, run_id: Find):
    guide = run_id("guide")
    done = filled("prune", "--session", "trip", "--yes", "--by", "ann", "--reason", "no longer needed")
    assert done.exit_code == 0, done.output
    assert re.search(r"^1 run, 12 entries pruned(, [\d.]+ kB freed)?$", done.stdout, re.MULTILINE)
    assert guide not in filled("runs").stdout
    assert filled("log", "trip").exit_code == 2
    done = filled("verify")
    assert re.fullmatch(r"3 runs, \d+ entries: nothing was changed\. 1 run was pruned\.\n", done.stdout)
    assert json.loads(filled("verify", "--json").stdout)["pruned"] == 1
    said = lines(filled("log", "gesta", "--json").stdout)[1]["content"]["value"]
    assert (said["by"], said["reason"], said["runs"][0]["run"]) == ("ann", "no longer needed", guide)


def test_a_run_that_was_removed_by_hand_is_no_pruned_one(filled: Gesta, run_id: Find):
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect("runs.gesta")) as file:
        file.execute("DELETE FROM entries WHERE run = ?", (run_id("guide"),))
        file.commit()
    done = filled("verify")
    assert done.exit_code == 1
    assert done.stdout == (
        "entries are missing, and no tombstone says that they were pruned: they were removed by hand (places 1 to 12)\n"
    )
    assert done.stderr == "It is not whole.\n"


def test_a_run_that_was_named_and_must_stay_stops_it_all(filled: Gesta, run_id: Find):
    done = filled("prune", "pay", "trip", "--yes")
    assert done.exit_code == 1
    assert done.stderr.endswith("end it first with `gesta cancel`. Nothing was pruned.\n")
    assert run_id("guide")
    assert filled("prune", "nobody", "--yes").exit_code == 2


def test_prune_must_be_told_what(filled: Gesta):
    done = filled("prune", "--yes")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: Say what goes: gesta prune RUN, --before 90d, --session NAME, or --keep 100")
    done = filled("prune", "--before", "yesterday")
    assert done.stderr.endswith("Write an age (90m, 12h, 30d, 4w) or a day in UTC (2026-11-21).\n")


def test_the_newest_stay(filled: Gesta):
    done = filled("prune", "--before", "0m", "--keep", "2", "--yes", "--json")
    told = json.loads(done.stdout)
    assert (told["runs"], told["entries"], told["stayed"]) == (1, 12, 0)
    assert {each["session"] for each in lines(filled("runs", "--json").stdout)} == {"lamp", "pay", "gesta"}
    done = filled("prune", "--before", "30d", "--yes")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.endswith("Nothing is pruned.\n")


def test_a_held_run_stays_until_it_is_released(filled: Gesta, run_id: Find):
    assert filled("hold").stderr == "No run is held.\n"
    assert filled("hold", "trip", "--reason", "a complaint", "--by", "ann").stdout == f"held: {run_id('guide')}\n"
    assert re.sub(r"  +", "|", filled("hold").stdout) == f"run|by|reason\n{run_id('guide')}|ann|a complaint\n"
    assert json.loads(filled("hold", "--json").stdout)["by"] == "ann"
    done = filled("prune", "trip", "--yes")
    assert done.exit_code == 1
    assert "stays: ann holds it: a complaint. Nothing was pruned." in done.stderr
    assert filled("hold", "trip", "--release").stdout == f"may go: {run_id('guide')}\n"
    assert filled("prune", "trip", "--yes").exit_code == 0


def test_what_happened_last_is_not_that_something_was_pruned(filled: Gesta):
    filled("prune", "trip", "--yes")
    assert "agent desk" in filled("log", "last").stdout
