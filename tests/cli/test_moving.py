"""`verify`, `export`, `import` and `models`."""

import json
import re
import sqlite3
from codecs import BOM_UTF8
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.conftest import Gesta

pytestmark = pytest.mark.sample(2, over="parent")


def _filled(gesta: Gesta) -> None:
    gesta("run", "agent.py:agent", "Rome?", "--session", "trip")
    gesta("run", "agent.py:plain", "x")


def test_a_record_as_it_was_written_is_said_to_be(gesta: Gesta):
    _filled(gesta)
    for words in (["verify"], ["verify", "runs.gesta"], ["verify", "--record", "runs.gesta"]):
        done = gesta(*words)
        assert done.exit_code == 0
        assert re.fullmatch(r"2 runs, \d+ entries: nothing was changed\.\n", done.stdout)
    assert json.loads(gesta("verify", "--json").stdout)["flaws"] == 0


def test_a_changed_byte_is_found_where_it_is(gesta: Gesta):
    _filled(gesta)
    with closing(sqlite3.connect("runs.gesta")) as file:
        file.execute(
            "UPDATE entries SET content = replace(content, '21 degrees', '12 degrees') WHERE kind = 'tool-result'"
        )
        file.commit()
        ((run, seq),) = file.execute("SELECT run, seq FROM entries WHERE kind = 'tool-result'")
    done = gesta("verify")
    assert done.exit_code == 1
    assert done.stdout == f"run {run}: entry {seq} (tool-result) does not match its digest\n"
    assert done.stderr == "Changed since it was written: 1 run of 2.\n"
    found = json.loads(gesta("verify", "--json").stdout)
    assert (found["run"], found["seq"]) == (run, seq)


def test_what_is_exported_can_be_imported_and_is_the_same(gesta: Gesta):
    _filled(gesta)
    done = gesta("export", "--all", "-o", "all.jsonl")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "2 runs written to all.jsonl\n")
    done = gesta("import", "all.jsonl", "--record", "copy.gesta")
    assert done.exit_code == 0, done.output
    assert re.match(r"all\.jsonl: 2 runs, \d+ entries \(gesta", done.stdout)
    assert gesta("log", "trip", "--record", "copy.gesta").stdout == gesta("log", "trip").stdout
    assert gesta("verify", "copy.gesta").exit_code == 0
    again = gesta("import", "all.jsonl", "--record", "copy.gesta", "--json")
    assert json.loads(again.stdout)["skipped"] == 2


def test_one_run_goes_to_standard_output(gesta: Gesta):
    _filled(gesta)
    lines = [json.loads(line) for line in gesta("export", "trip").stdout.splitlines()]
    assert [line["kind"] for line in lines if "kind" in line][:2] == ["begin", "user"]


def test_export_must_be_told_what(gesta: Gesta):
    _filled(gesta)
    for words in ([], ["last", "--all"]):
        done = gesta("export", *words)
        assert done.exit_code == 2
        assert done.stderr == "error: Say which run, or --all: gesta export last, gesta export --all.\n"


def test_an_export_never_takes_the_place_of_a_record(gesta: Gesta):
    _filled(gesta)
    done = gesta("export", "last", "-o", "runs.gesta")
    assert done.exit_code == 2
    assert (
        "error: 'runs.gesta' is the name of a record, and JSON lines are none. Name a file: -o run.jsonl\n"
        in done.stderr
    )
    assert gesta("verify").exit_code == 0


def test_files_that_cannot_be_imported_are_named(gesta: Gesta, folder: Path):
    done = gesta("import", "none.jsonl", "--record", "r.gesta")
    assert done.exit_code == 2
    assert (
        done.stderr
        == f"error: No file 'none.jsonl' in {folder}. Write its path from this folder, or from /. Nothing was imported.\n"
    )
    (folder / "runs").mkdir()
    done = gesta("import", "runs/", "--record", "r.gesta")
    assert done.exit_code == 2
    assert done.stderr == "error: 'runs/' is a folder. Name the files in it, as in runs/*. Nothing was imported.\n"
    assert not Path("r.gesta").exists()
    (folder / "bad.jsonl").write_text("{not json", encoding="utf-8")
    _filled(gesta)
    gesta("export", "trip", "-o", "good.jsonl")
    done = gesta("import", "bad.jsonl", "good.jsonl", "--record", "r.gesta")
    assert done.exit_code == 1
    assert "error: Cannot import 'bad.jsonl': " in done.stderr
    assert "good.jsonl: 1 run, 12 entries" in done.stdout


def test_a_record_and_its_lines_taken_for_each_other_name_the_command(gesta: Gesta, folder: Path):
    _filled(gesta)
    gesta("export", "trip", "-o", "trip.jsonl")
    done = gesta("import", "runs.gesta", "--record", "copy.gesta")
    assert done.exit_code == 1
    assert done.stderr == (
        "error: Cannot import 'runs.gesta': it is a SQLite database. Copy a record with: gesta push runs.gesta RECORD\n"
    )
    path = folder / "trip.jsonl"
    for words in (("verify", "trip.jsonl"), ("push", "trip.jsonl", "copy.gesta")):
        done = gesta(*words)
        assert done.exit_code == 1
        assert done.stderr == (
            f"error: {str(path)!r} is not a readable Gesta record: it is not an SQLite database, but begins with "
            f"{path.read_bytes()[:16]!r}. Such lines are read by: gesta import {path}. Nothing was changed.\n"
        )


def test_a_format_that_is_not_known_gets_the_nearest(gesta: Gesta):
    _filled(gesta)
    gesta("export", "trip", "-o", "good.jsonl")
    done = gesta("import", "good.jsonl", "--record", "r.gesta", "--format", "tau2-bnch")
    assert done.exit_code == 1
    assert "Did you mean 'tau2-bench'?" in done.stderr


def test_a_folder_that_cannot_be_written_to_is_an_error_without_a_traceback(gesta: Gesta):
    _filled(gesta)
    done = gesta("export", "--all", "-o", "no/such/folder/x.jsonl")
    assert done.exit_code == 1
    assert "no/such/folder/x.jsonl" in done.stderr
    assert "Traceback" not in done.output


def test_models_say_which_keys_were_found_and_never_the_key(gesta: Gesta, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    done = gesta("models")
    assert re.search(r"^openai +OPENAI_API_KEY is set +https://api.openai.com/v1$", done.stdout, re.MULTILINE)
    assert re.search(r"^groq +GROQ_API_KEY is not set ", done.stdout, re.MULTILINE)
    assert re.search(r"^ollama +needs no key ", done.stdout, re.MULTILINE)
    assert "gesta.scripted(...)" in done.stderr
    found = {line["provider"]: line for line in map(json.loads, gesta("models", "--json").stdout.splitlines())}
    assert found["openai"]["found"] is True
    assert found["groq"]["found"] is False
    assert "sk-very-secret" not in done.output + gesta("models", "--json").output


def test_what_was_cut_off_or_made_anew_is_found_against_heads_that_were_kept(gesta: Gesta):
    _filled(gesta)
    assert gesta("verify", "--keep", "heads.txt").exit_code == 0
    heads = Path("heads.txt").read_text().splitlines()
    assert len(heads) == 2
    assert all(re.fullmatch(r"[0-9a-f]{16}\.\d+:[0-9a-f]{64}", head) for head in heads)
    gesta("run", "agent.py:echo", "more", "--session", "later")
    for words in (["--head", "heads.txt"], ["--head", heads[0], "--head", heads[1]]):
        done = gesta("verify", *words)
        assert re.fullmatch(r"3 runs, \d+ entries: nothing was changed\. 2 heads hold\.\n", done.stdout)
    assert gesta("verify", "--head", heads[0]).stdout.endswith(" nothing was changed. 1 head holds.\n")
    done = gesta("verify", "--head", "heads.txt", "--keep", "more.txt")
    assert done.stdout.endswith(" nothing was changed. 2 heads hold. 3 heads written to more.txt.\n")
    said = json.loads(gesta("verify", "--head", "heads.txt", "--keep", "more.txt", "--json").stdout)
    assert (said["heads"], said["kept"]) == (2, 3)
    said = json.loads(gesta("verify", "--json").stdout)
    assert (said["heads"], said["kept"]) == (0, 0)
    run, _, seq = heads[0].partition(":")[0].partition(".")
    with closing(sqlite3.connect("runs.gesta")) as file:
        file.execute("DELETE FROM entries WHERE run = ? AND seq = ?", (run, seq))
        file.commit()
    done = gesta("verify", "--head", "heads.txt", "--keep", "new.txt")
    assert done.exit_code == 1
    assert f"run {run}: entry {seq} is not there any more: the run was cut off before it, or removed\n" in done.stdout
    assert not Path("new.txt").exists(), "heads of a record that was changed are not worth keeping"


def test_heads_that_another_program_saved_anew_are_the_same_heads(gesta: Gesta):
    _filled(gesta)
    gesta("verify", "--keep", "heads.txt")
    heads = Path("heads.txt").read_bytes()
    Path("heads.txt").write_bytes(BOM_UTF8 + heads.replace(b"\n", b"\r\n"))
    done = gesta("verify", "--head", "heads.txt")
    assert (done.exit_code, done.stdout.rpartition(": ")[2]) == (0, "nothing was changed. 2 heads hold.\n")


def test_a_pruned_run_is_known_by_its_head(gesta: Gesta):
    _filled(gesta)
    gesta("verify", "--keep", "heads.txt")
    assert gesta("prune", "trip", "--yes").exit_code == 0
    assert gesta("verify", "--head", "heads.txt").exit_code == 0
    other = re.sub(r":.", lambda found: ":0" if found[0] != ":0" else ":1", Path("heads.txt").read_text())
    Path("other.txt").write_text(other)
    done = gesta("verify", "--head", "other.txt")
    assert sorted(re.sub(r"[0-9a-f]{16}\b", "RUN", line) for line in done.stdout.splitlines()) == [
        "run RUN: entry 12 is not there any more: the run was cut off before it, or removed",
        "run RUN: entry 7 is not the one whose digest was kept: the chain was worked out anew",
    ]


def test_what_is_no_head_is_said(gesta: Gesta):
    _filled(gesta)
    done = gesta("verify", "--head", "nowhere")
    assert done.exit_code == 2
    assert "--head nowhere: no head (RUN.SEQ:DIGEST), and no file of heads" in done.stderr
    done = gesta("verify", "--head", "with\0nul")
    assert (done.exit_code, "no file of heads: embedded null byte" in done.stderr) == (2, True)
    Path("heads.txt").write_text("a\n")
    done = gesta("verify", "--head", "heads.txt")
    assert "--head heads.txt: line 1 is not a head. A head is RUN.SEQ:DIGEST, as --keep writes." in done.stderr
    assert (
        "--keep no/such: No such file or directory. Name a file that you may write."
        in gesta("verify", "--keep", "no/such").stderr
    )
    Path("empty.txt").write_text("\n")
    done = gesta("verify", "--head", "empty.txt")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--head empty.txt: no head is in it. A head is RUN.SEQ:DIGEST, as --keep writes." in done.stderr
    done = gesta("verify", "--head", f"run.99999999999999999999:{'0' * 64}")
    assert done.exit_code == 2
    assert "no head (RUN.SEQ:DIGEST), and no file of heads" in done.stderr


def test_runs_that_are_gone_are_counted_apart_from_those_that_were_changed(gesta: Gesta):
    _filled(gesta)
    nowhere = [word for run in ("f" * 16, "e" * 16) for word in ("--head", f"{run}.1:{'0' * 64}")]
    done = gesta("verify", *nowhere)
    since = "Since the heads were kept: 0 more entries in their runs, and 2 more runs. No head covers them.\n"
    assert (done.exit_code, done.stderr) == (1, f"{since}2 runs are not there any more.\n")
    with closing(sqlite3.connect("runs.gesta")) as file:
        file.execute("UPDATE entries SET content = replace(content, 'Rome', 'rome') WHERE kind = 'user'")
        file.commit()
    done = gesta("verify", *nowhere[:2])
    assert done.stderr == f"{since}Changed since it was written: 1 run of 2. 1 run is not there any more.\n"


def test_a_pruned_run_of_another_record_is_not_said_to_be_one_of_this(gesta: Gesta):
    _filled(gesta)
    assert gesta("prune", "trip", "--yes").exit_code == 0
    assert gesta("push", "runs.gesta", "copy.gesta").exit_code == 0
    assert gesta("verify").stdout.endswith("nothing was changed. 1 run was pruned.\n")
    assert gesta("verify", "copy.gesta").stdout.endswith("nothing was changed.\n")


def test_heads_are_written_beside_so_that_the_old_ones_stay_until_the_new_are_whole(gesta: Gesta):
    _filled(gesta)
    Path("heads.txt").write_text("old\n")
    Path("heads.txt").chmod(0o640)
    Path("link.txt").symlink_to("heads.txt")
    with Path("heads.txt").open() as old:
        assert gesta("verify", "--keep", "link.txt").exit_code == 0
        assert old.read() == "old\n"
    assert Path("link.txt").is_symlink()
    assert len(Path("heads.txt").read_text().splitlines()) == 2
    assert Path("heads.txt").stat().st_mode & 0o777 == 0o640
    assert list(Path().glob("*.new")) == []


def test_heads_never_take_the_place_of_a_record(gesta: Gesta):
    _filled(gesta)
    done = gesta("verify", "--keep", "runs.gesta")
    assert done.exit_code == 2
    assert "'runs.gesta' is the name of a record, and heads are none. Name a file: --keep heads.txt" in done.stderr
    assert gesta("verify").exit_code == 0


def test_a_place_that_cannot_be_written_to_is_named_with_what_to_type(gesta: Gesta):
    gesta("run", "agent.py:plain", "Hello.")
    done = gesta("export", "last", "-o", ".")
    assert (done.exit_code, done.stderr) == (
        1,
        "error: Cannot write '.': Is a directory. Name another file: -o FILE\n",
    )
    full = gesta("export", "last", "-o", "/dev/full")
    why = "No space left on device. What was written is not whole. Name another file: -o FILE"
    assert (full.exit_code, full.stderr) == (1, f"error: Cannot write '/dev/full': {why}\n")


def test_an_empty_address_is_no_receiver_of_traces(gesta: Gesta):
    gesta("run", "agent.py:plain", "Hello.")
    done = gesta("trace", "--to", "", "--once")
    assert done.exit_code == 2
    assert "error: --to is empty. Write an address, such as --to http://127.0.0.1:4318.\n" in done.stderr
