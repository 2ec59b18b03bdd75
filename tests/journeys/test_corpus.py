"""What comes in from a corpus of recorded runs is what the corpus says of itself; whatever else, the command fails."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.corpus import CLASSES, Class, Difference, File, Report, classified, main, reason

SMALL = ("activegraph-tau2", "langfuse-traces", "sqlite", "swe-agent", "tau-bench", "who-and-when")
RUN = {
    "question": "How many?",
    "history": [
        {"role": "assistant", "name": "A", "content": "8"},
        {"role": "user", "name": "B", "content": "TERMINATE"},
    ],
    "mistake_agent": "A",
    "mistake_step": "0",
}
CALLS = {
    "traj": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "tool", "content": "Error: no"},
    ]
}


def made(folder: Path, name: str, content: Any, **stats: int) -> Path:
    """A corpus of one folder with one file, and what it says of it."""
    (folder / "runs").mkdir(exist_ok=True)
    (folder / "runs" / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "runs" / "LICENSE").write_text("free", encoding="utf-8")
    listed = {"files": [{"path": f"runs/{name}", "raw_bytes": 1, "stats": stats}]}
    (folder / "MANIFEST.json").write_text(json.dumps(listed), encoding="utf-8")
    return folder


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_small_folders_of_the_corpus_hold_what_they_say(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = ran(capsys, *SMALL, "--corpus", str(corpus), "--json")
    found = json.loads(out)
    assert (code, found["problems"]) == (0, [])
    assert [folder["name"] for folder in found["folders"]] == list(SMALL)
    assert {one["kind"] for one in found["differences"]} == {"a step without a message", "actions as text"}
    assert all(one["path"].startswith("swe-agent/traj/") for one in found["differences"])
    files = [file for folder in found["folders"] for file in folder["files"]]
    runs = {file["path"]: file for file in files if file["data"] is None}
    assert all(file["seconds"] > 0 and file["mb"] > 0 and file["entries"] > 0 for file in runs.values())
    numbers = {path: (file["runs"], file["calls"], file["errors"]) for path, file in runs.items()}
    assert numbers.items() >= {
        ("tau-bench/few_shot-retail.jsonl.gz", (69, 479, 33)),
        ("tau-bench/trajectories/retail-grok-3-with-injected-503.json.gz", (115, 932, 159)),
        ("who-and-when/algorithm-generated.jsonl.gz", (63, 0, 34)),
        ("who-and-when/hand-crafted.jsonl.gz", (29, 0, 0)),
    }
    events = [file["counts"]["events"] for path, file in runs.items() if "runtime_events" in path]
    assert (len(events), sum(events)) == (8, 981)
    assert found["compared"] > 10_000


def test_without_names_all_folders_are_taken_and_what_is_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = ran(capsys, "--corpus", str(made(tmp_path, "a.json", RUN)), "--json")
    files = {file["path"]: file["data"] for folder in json.loads(out)["folders"] for file in folder["files"]}
    assert code == 0
    assert files == {"MANIFEST.json": "about the corpus", "runs/LICENSE": "licence", "runs/a.json": None}


def test_every_file_of_the_corpus_is_a_run_or_data_with_a_reason(corpus: Path) -> None:
    listed = json.loads((corpus / "MANIFEST.json").read_text(encoding="utf-8"))["files"]
    data = {entry["kind"] for entry in listed if reason(entry["path"])}
    assert {"license", "env-data", "policy", "tool-schemas", "tasks", "vcr-cassettes", "sqlite", "documents"} <= data
    assert data.isdisjoint({"agentdojo-runs", "tau2-results", "tau-bench-traj", "who-and-when", "mini-swe-agent"})


def test_a_table_has_a_line_for_each_folder_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = made(tmp_path, "a.json", RUN, traj=1, messages=2)
    code, out = ran(capsys, "runs", "--corpus", str(root), "--files")
    assert code == 0
    head, folder, *files, _, share = out.splitlines()
    assert head.split()[0] == "folder"
    assert folder.split()[:9] == ["runs", "(1", "files,", "1", "data)", "who-and-when", "15", "1/1", "2/2"]
    assert [line.split()[0] for line in files] == ["LICENSE", "a.json"]
    assert "data, not runs: licence" in files[0]
    assert share == "3 things compared, 0 differ (0.00% of 1% allowed)"


def test_a_failure_that_is_inferred_is_shown_but_what_a_corpus_leaves_out_is_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = made(tmp_path, "a.json", [CALLS], traj=1, **{"role.tool": 1, "tool_calls": 1})
    code, out = ran(capsys, "runs", "--corpus", str(root), "--json")
    (file,) = [one for one in json.loads(out)["folders"][0]["files"] if one["data"] is None]
    assert (code, file["calls"], file["errors"], file["counts"]["tool_errors"]) == (1, 1, 1, 0)
    assert {one["count"] for one in json.loads(out)["differences"]} == {
        "content.empty.assistant",
        "odd.call_id_missing",
        "odd.result_id_missing",
    }


@pytest.mark.parametrize(
    ("content", "stats", "problem"),
    [
        (RUN, {"traj": 2}, "PROBLEM runs/a.json: traj has no class"),
        (RUN, {"traj": 1, "planets": 9}, "PROBLEM runs/a.json: planets: is neither compared nor in UNCOMPARED"),
        ({"letters": 1}, {"traj": 1}, "PROBLEM runs/a.json: its format is not known; it is a JSON object with"),
        ([{"traj": 5}], {"traj": 1}, "PROBLEM runs/a.json: expected a trial with its list of messages"),
    ],
)
def test_what_does_not_come_in_as_it_should_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, stats: dict[str, int], problem: str
) -> None:
    code, out = ran(capsys, "--corpus", str(made(tmp_path, "a.json", content, **stats)))
    assert code == 1
    assert problem in out


def test_a_file_that_is_not_there_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = made(tmp_path, "a.json", RUN, traj=1)
    (root / "runs" / "a.json").unlink()
    code, out = ran(capsys, "--corpus", str(root))
    assert code == 1
    assert "PROBLEM runs: runs/a.json is missing" in out


def test_more_than_a_hundredth_fails_even_with_a_reason() -> None:
    def report(differing: int) -> Report:
        one = Difference("p", "messages", 0, differing, CLASSES[0].name)
        return Report(whole=True, compared=1000, differences=[one, Difference("p", "chars", 0, 500, CLASSES[0].name)])

    assert report(10).problems == []
    assert report(11).problems == ["too much differs in all"]


def test_a_class_holds_for_its_files_and_counts_only() -> None:
    for one in CLASSES:
        assert isinstance(one, Class) and one.why and one.counts
        file = File(path=one.files.replace("*", "x"))
        name = one.counts[0].replace("*", "x")
        assert classified(file, name, one.most) == one.name
        assert classified(file, name, 1000) is None, "of a size that nobody has explained"
        assert classified(File(path="elsewhere"), name, 1) is None
        assert classified(file, "planets", 1) is None
        file.stated[name] = 1
        assert (classified(file, name, 1) is None) == one.unsaid


def test_where_there_is_no_corpus_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GESTA_CORPUS", str(tmp_path / "nowhere"))
    code, out = ran(capsys)
    assert (code, out.startswith("SKIPPED: no corpus at ")) == (0, True)
    for words in (["--corpus", str(tmp_path / "nowhere")], ["planets", "--corpus", str(tmp_path)]):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 2
