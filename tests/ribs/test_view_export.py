"""One folder from the pages: the one script, which files it writes, and what it refuses."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.commands import gesta_command

import gesta
from gesta.kinds import UserContent
from gesta.text.redactor import SECRETS
from gesta.web.app import STATIC
from gesta.web.one_script import BadModule, one_script

MODULES = {each.name: each.read_text(encoding="utf-8") for each in STATIC.iterdir() if each.name.endswith(".js")}
INSTEAD = {"source.js": "folder.js"}


def test_one_script_has_every_line_of_the_modules_and_no_import() -> None:
    script = one_script(MODULES, "app.js", INSTEAD)
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    lines = set(script.splitlines())
    for name, text in MODULES.items():
        if name != "source.js":
            lost = [
                line for line in text.splitlines() if line not in lines and not re.match(r"(import|export)\b", line)
            ]
            assert not lost, name


def test_modules_come_after_those_that_they_import_under_the_names_that_they_ask_for() -> None:
    modules = {
        "a.js": 'import * as b from "./b.js";\nimport { one as first, two } from "./c.js";\nb.show(first, two);\n',
        "b.js": 'import { two } from "./c.js";\nexport { one } from "./c.js";\nexport function show() { return two; }\n',
        "c.js": "export const one = 1, unused = 2;\nexport async function two() {}\n",
    }
    script = one_script(modules, "a.js", {})
    places = [script.index(f'modules["{name}.js"] = ') for name in "cba"]
    assert places == sorted(places)
    assert 'const { one: first, two } = modules["c.js"];' in script
    assert 'return { show, one: modules["c.js"].one };' in script


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"a.js": 'import "./b.js";\n', "b.js": ""}, "not translated"),
        ({"a.js": "export default 1;\n"}, "not translated"),
        ({"a.js": "export let a = 1;\n"}, "not translated"),
        ({"a.js": 'const b = await import("./b.js");\n'}, "not translated"),
        ({"a.js": 'import { b } from "./b.js";\n'}, "no module 'b.js'"),
        (
            {"a.js": 'import { b } from "./b.js";\n', "b.js": "export const a = 1, b = 2;\n"},
            "does not export by itself",
        ),
        ({"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}, "import each other"),
    ],
)
def test_a_form_that_the_one_script_does_not_know_is_an_error(modules: dict[str, str], said: str) -> None:
    with pytest.raises(BadModule, match=said):
        one_script(modules, "a.js", {})


def test_a_folder_gives_its_pages_all_that_the_server_gives_them() -> None:
    def exported(text: str) -> set[str]:
        return set(re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", text, re.MULTILINE))

    assert exported(MODULES["source.js"]) == exported(MODULES["folder.js"])


SECRET = "sk-é<a>-secret-of-this-process-0123456789"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a record of two sessions, one with a run below its run, and one in which a secret was said."""
    path = tmp_path_factory.mktemp("export") / "home-of-ann" / "shop.gesta"
    path.parent.mkdir()
    helper = gesta.Agent("helper", gesta.scripted("Rome is dry."))
    desk = gesta.Agent(
        "desk",
        gesta.scripted(gesta.call("helper", task="Rome?"), "No umbrella."),
        tools=[helper.as_tool(description="Help.")],
    )
    gesta.run_sync(desk, "What do I need in Rome?", record=path, session="rome")
    gesta.run_sync(gesta.Agent("desk", gesta.scripted("Kept.")), f"My key is {SECRET}", record=path, session="secret")
    return path


@pytest.fixture
def secret() -> Iterator[None]:
    SECRETS.add("key of the shop", SECRET)
    yield
    SECRETS.forget()


def export(record: Path, folder: Path, *words: str) -> dict[str, Any]:
    done = gesta_command("view", str(record), "--export", str(folder), "--json", *words)
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def texts(folder: Path) -> dict[str, str]:
    return {
        str(each.relative_to(folder)): each.read_text(encoding="utf-8") for each in folder.rglob("*") if each.is_file()
    }


def data(folder: Path, name: str) -> Any:
    """Return the data of a file, as the script reads them."""
    (text,) = re.findall(
        r"gestaData\(\"[a-z0-9.-]+\", (.*)\);", (folder / f"data/{name}.js").read_text(encoding="utf-8")
    )
    return json.loads(json.loads(text))


def test_a_folder_has_the_runs_below_a_run_and_all_runs_of_a_session(record: Path, tmp_path: Path) -> None:
    whole = export(record, tmp_path / "rome", "--run", "rome")
    first = data(tmp_path / "rome", "0-run")["run"]
    below = export(record, tmp_path / "below", "--run", first[:8])
    assert (whole["runs"], below["runs"], whole["left_out"]) == (2, 2, {})
    assert [data(tmp_path / "rome", f"{place}-run")["agent"] for place in (0, 1)] == ["desk", "helper#6"]
    assert data(tmp_path / "rome", "0-lines-0")[1]["text"] == "What do I need in Rome?"
    assert len(texts(tmp_path / "rome")) == export(record, tmp_path / "rome", "--run", "rome")["files"]


def test_no_secret_and_no_path_of_this_machine_is_in_a_folder(record: Path, tmp_path: Path, secret: None) -> None:
    export(record, tmp_path / "site", "--run", "secret")
    files = texts(tmp_path / "site")
    assert any(
        "<secret key-of-the-shop>" in text.replace("\\\\u003c", "<").replace("\\u003c", "<") for text in files.values()
    )
    assert not [name for name, text in files.items() if "home-of-ann" in text or "0123456789" in text]


def test_the_page_loads_nothing_but_the_files_beside_it(record: Path, tmp_path: Path) -> None:
    export(record, tmp_path / "site")
    files = texts(tmp_path / "site")
    assert "default-src 'none'" in files["index.html"].replace("&#x27;", "'")
    assert "frame-ancestors" not in files["index.html"]  # browsers complain about it in a page
    assert not re.search(r"""(src|href)=["']?(/|\w+:)|<script>|<style|type="module\"""", files["index.html"])
    assert not [name for name, text in files.items() if "fetch(" in text or "EventSource" in text]


def test_a_folder_that_is_not_a_copy_is_left_as_it_is(record: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    for name in ("notes.txt", "data/mine.txt"):
        if "/" in name:
            export(record, folder)
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("mine", encoding="utf-8")
        before = texts(folder)
        refused = gesta_command("view", str(record), "--export", str(folder))
        assert refused.exit_code == 2
        assert f"it holds {name!r}, which may be yours; nothing was written" in refused.stderr
        assert texts(folder) == before
        (folder / name).unlink()
    (tmp_path / "file").touch()
    refused = gesta_command("view", str(record), "--export", str(tmp_path / "file"))
    assert "this is a file. Name a folder that is new or empty." in refused.stderr


def test_an_export_that_fails_leaves_the_earlier_copy_and_no_part_of_a_new_one(record: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gesta"
    with gesta.open_sync(broken) as opened, opened.span("app", session="s") as span:
        span.log(UserContent(value="first"))
    export(broken, tmp_path / "site")
    before = texts(tmp_path / "site")
    with closing(sqlite3.connect(broken)) as db, db:
        db.execute("UPDATE entries SET version = 99 WHERE seq = 2")
    for folder in ("site", "new"):
        failed = gesta_command("view", str(broken), "--export", str(tmp_path / folder))
        assert failed.exit_code == 1
        assert "99" in failed.stderr
    assert texts(tmp_path / "site") == before
    assert not (tmp_path / "new").exists()


def test_a_run_without_a_folder_and_two_records_for_one_folder_are_refused(record: Path, tmp_path: Path) -> None:
    said = gesta_command("view", str(record), "--run", "rome").stderr
    assert "Write: gesta view --export DIR --run RUN" in said
    said = gesta_command("view", str(record), str(record), "--export", str(tmp_path / "site")).stderr
    assert "Name one file." in said
    said = gesta_command("view", str(record), "--export", str(tmp_path / "site"), "--run", "roma").stderr
    assert "'rome'" in said or "rome" in said
    assert not (tmp_path / "site").exists()
