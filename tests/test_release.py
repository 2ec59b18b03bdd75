"""What a release needs, as far as it can be seen without building one; `just smoke` builds, `just release` does all."""

import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version
from tests import kept
from tests.docs.names import absent

import gesta
from gesta.cli.app import VERBS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
FIXTURES = ROOT / "tests" / "fixtures"
SECTIONS = ["Breaking", "Deprecated", "Removed", "Added", "Changed", "Fixed", "Security"]
RELEASED = re.findall(r"^## (\d\S+), (\S+)$", CHANGELOG, re.MULTILINE)
UNRELEASED = CHANGELOG.partition("## Unreleased\n")[2].partition("\n## ")[0]
RECORDS = sorted(FIXTURES.glob("[0-9]*/*.gesta"))


# ------------------------------------------------------------------------------------------------------ changelog


def test_the_version_is_that_on_top_of_the_changelog_or_in_the_making():
    version, (newest, _) = Version(PROJECT["version"]), RELEASED[0]
    if version.is_devrelease:
        assert CHANGELOG.split("\n## ")[1].startswith("Unreleased\n")
        assert version > Version(newest)
    else:
        assert str(version) == newest


def test_releases_stand_in_the_changelog_from_the_newest_to_the_oldest_each_with_its_day():
    assert re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE) == [
        *["Unreleased"] * ("## Unreleased" in CHANGELOG),
        *(f"{version}, {day}" for version, day in RELEASED),
    ]
    versions, days = [Version(version) for version, _ in RELEASED], [date.fromisoformat(day) for _, day in RELEASED]
    assert versions == sorted(set(versions), reverse=True)
    assert days == sorted(days, reverse=True)


@pytest.mark.parametrize("part", CHANGELOG.split("\n## ")[1:], ids=lambda part: part.splitlines()[0])
def test_what_breaks_stands_first_and_each_section_once(part: str):
    found = re.findall(r"^### (.*)$", part, re.MULTILINE)
    assert found == [each for each in SECTIONS if each in found]
    for section in part.split("\n### ")[1:]:
        assert section.partition("\n")[2].startswith("\n- "), section[:80]
    if "Breaking" in found:
        after = part.partition("### Breaking")[2].partition("\n### ")[2]
        assert "Breaking:" not in after, "a change that breaks something stands under Breaking"


@pytest.mark.parametrize("page", ["CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md"])
def test_each_link_leads_to_a_page(page: str):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_what_is_not_released_yet_names_what_is_there():
    """Names behind *was* are those of the release before."""
    now = re.sub(r"\(was [^)]*\)|; it was [^.]*\.|\(before: [^)]*\)", "", UNRELEASED, flags=re.DOTALL)
    assert absent(now) == []
    commands = set(re.findall(r"`gesta ([a-z]+)", now))
    assert commands - {verb for verbs in VERBS.values() for verb in verbs} == set()


# -------------------------------------------------------------------------------------------------------- version


def test_the_version_is_in_one_place_and_is_not_a_public_name_to_import_all_of():
    assert gesta.__version__ == importlib.metadata.version("gesta")
    assert "__version__" not in gesta.__all__
    others = [
        path.relative_to(ROOT)
        for path in (ROOT / "src").rglob("*.py")
        if PROJECT["version"] in path.read_text(encoding="utf-8")
    ]
    assert others == []


def test_a_folder_that_is_not_installed_has_a_version_that_says_so(tmp_path: Path):
    shutil.copytree(ROOT / "src/gesta", tmp_path / "gesta", ignore=shutil.ignore_patterns("__pycache__"))
    asked = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; import gesta; print(gesta.__version__)"
    said = subprocess.run(
        [sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True, env={}
    )
    assert said.stdout == "0+unknown\n"


def test_pythons_that_are_named_begin_with_the_lowest_that_is_allowed():
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert named[0] == PROJECT["requires-python"].removeprefix(">=")
    minors = [int(each.removeprefix("3.")) for each in named]
    assert minors == list(range(minors[0], minors[-1] + 1))


# ---------------------------------------------------------------------------------------------- records of releases


def test_every_release_left_a_record():
    assert {version for version, _ in RELEASED} <= {path.parent.name for path in RECORDS}


@pytest.mark.parametrize("old", RECORDS, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_record_of_any_release_is_read_checked_and_goes_on(old: Path, tmp_path: Path):
    copied = shutil.copy(old, tmp_path / "old.gesta")
    with gesta.open_sync(copied) as record:
        assert record.verify() == []
        assert record.heads()
        assert all(record.read(head.run)[-1].digest.hex() == head.digest for head in record.heads())
        assert all(record.history(session.name) for session in record.sessions())
        agent = gesta.Agent("new", model=gesta.scripted("yes"))
        assert record.run(agent, "Can you still be written?").answer == "yes"
        assert record.verify() == []


@pytest.fixture(params=[*sorted(FIXTURES.glob("[0-9]*/kept.gesta")), None], ids=lambda path: path and path.parent.name)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The record that a release left, and the one that this version would leave."""
    if request.param is None:
        return kept.keep(tmp_path / "made" / "kept.gesta")
    return Path(shutil.copy(request.param, tmp_path / "kept.gesta"))


def test_every_turn_that_a_release_left_open_is_finished_by_this_one(left: Path):
    with gesta.open_sync(left) as record:
        assert {one.name: one.stands for one in record.sessions()} == {
            "answered": "ended",
            "approval": "waiting",
            "question": "waiting",
            "doubt": "waiting",
            "recorded": "recorded",
        }
        assert record.run(kept.AGENTS["answered"], "And now?", session="answered").answer == "It still is."
        record.approve("approval", by="ann")
        record.answer("question", "The blue one.", by="ann")
        record.resolve("doubt", "done", by="ann")
        ended = {name: record.resume(name, kept.AGENTS[name]).answer for name in ("approval", "question", "doubt")}
        assert ended == {"approval": "It is paid.", "question": "That one.", "doubt": "It is sent."}
        assert record.verify() == []


def test_a_record_that_was_left_is_not_written_again_and_names_no_machine(tmp_path: Path):
    made = kept.keep(tmp_path / "7.1.0" / "kept.gesta")
    with pytest.raises(SystemExit, match=r"kept.gesta is there. What a release left is never written again"):
        kept.keep(made)
    told = made.read_bytes()
    assert [
        text for text in (str(ROOT), str(tmp_path), str(Path.home()), platform.node() + " ") if text.encode() in told
    ] == []


# ------------------------------------------------------------------------------------------------------ the recipe


@pytest.fixture(scope="module")
def recipe() -> Iterator[ModuleType]:
    """`.ci/release.py` as a module."""
    sys.path.insert(0, str(ROOT / ".ci"))
    made = importlib.util.spec_from_file_location("release", ROOT / ".ci/release.py")
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / ".ci"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the recipe that is ready to be released, as far as files say."""
    house = tmp_path / "house"
    (house / ".ci").mkdir(parents=True)
    for name in ("release.py", "pythons.py"):
        shutil.copy(ROOT / ".ci" / name, house / ".ci")
    (house / "pyproject.toml").write_text('[project]\nname = "gesta"\nversion = "7.1.0"\nrequires-python = ">=3.11"\n')
    (house / "CHANGELOG.md").write_text("# Changelog\n\n## 7.1.0, 2026-11-23\n")
    (house / "tests/fixtures/7.1.0").mkdir(parents=True)
    (house / "tests/fixtures/7.1.0/demo.gesta").touch()
    (house / ".gitignore").write_text("__pycache__/\n")
    git(house, "init", "-q")
    commit(house)
    return house


def git(house: Path, *words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=house, check=True, capture_output=True)


def commit(house: Path) -> None:
    git(house, "add", "-A")
    git(house, "commit", "-q", "--allow-empty", "-m", "all")


def unready(house: Path) -> list[str]:
    """Return what the recipe of that repository finds against a release."""
    asked = "import sys; sys.path.insert(0, '.ci'); import release; print(*release.unready(), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", asked], cwd=house, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_tree_with_version_changelog_record_and_no_change_is_ready(repository: Path):
    assert unready(repository) == [""]
    git(repository, "tag", "v7.1.0")
    assert unready(repository) == [""], "the tag is at this commit"


def test_what_is_missing_for_a_release_is_named_all_at_once(repository: Path):
    git(repository, "tag", "v7.2.0.dev0")
    (repository / "pyproject.toml").write_text(
        (repository / "pyproject.toml").read_text().replace("7.1.0", "7.2.0.dev0")
    )
    commit(repository)
    (repository / "note.txt").touch()
    assert [line.split(";")[0] for line in unready(repository)] == [
        "files are not committed:",
        "?? note.txt",
        "the version in pyproject.toml is 7.2.0.dev0",
        "CHANGELOG.md begins with '7.1.0, 2026-11-23'",
        "tests/fixtures/7.2.0.dev0/ has no record",
        "the tag v7.2.0.dev0 is at another commit",
    ]


def test_the_recipe_builds_nothing_from_a_tree_that_is_not_ready(repository: Path):
    (repository / "note.txt").touch()
    done = subprocess.run([repository / ".ci/release.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "release: not ready to be released:\n- files are not committed:\n?? note.txt" in done.stderr
    assert not (repository / "dist").exists()


def wheel(path: Path, **members: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return path


def test_two_builds_that_differ_are_told_apart_by_the_member_that_differs(recipe: ModuleType, tmp_path: Path):
    first = wheel(tmp_path / "1/gesta.whl", a="same", b="one")
    recipe.same(first, wheel(tmp_path / "2/gesta.whl", a="same", b="one"), "twice")
    for other in ({"a": "same", "b": "two"}, {"a": "same"}, {"a": "same", "b": "one", "c": ""}):
        with pytest.raises(SystemExit, match=r"gesta.whl is another file when it is built twice: [bc] differs"):
            recipe.same(first, wheel(tmp_path / "2/gesta.whl", **other), "twice")
    with pytest.raises(SystemExit, match="packed in another way when it is built twice; each member is the same"):
        recipe.same(first, wheel(tmp_path / "2/gesta.whl", b="one", a="same"), "twice")


def test_an_sdist_whose_members_have_another_date_is_another(recipe: ModuleType, tmp_path: Path):
    paths = []
    for day in (1, 2):
        (tmp_path / str(day)).mkdir()
        paths.append(tmp_path / str(day) / "gesta.tar.gz")
        with tarfile.open(paths[-1], "w:gz") as archive:
            one = tarfile.TarInfo("gesta/a")
            one.mtime = day
            archive.addfile(one)
    with pytest.raises(SystemExit, match=r"gesta.tar.gz is another file when it is built twice: gesta/a differs"):
        recipe.same(*paths, "twice")


def test_a_file_too_many_one_missing_and_one_that_knows_the_machine_are_found(recipe: ModuleType, tmp_path: Path):
    info = f"gesta-{PROJECT['version']}.dist-info"
    inside = {name.removeprefix("src/"): "" for name in recipe.tracked() if name.startswith("src/gesta/")}
    inside |= dict.fromkeys(
        (f"{info}/{name}" for name in ("WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")), ""
    )
    inside[f"{info}/METADATA"] = f"Name: gesta\nVersion: {PROJECT['version']}\n\n# Gesta\n"
    less = {name: text for name, text in inside.items() if name != "gesta/py.typed"}
    right, wrong = inside[f"{info}/METADATA"], "Name: gesta\nVersion: 0.1\n\n# Gesta\n"
    recipe.contents({"wheel": wheel(tmp_path / "right.whl", **inside)}, tmp_path)
    for name, members, found in (
        ("more", inside | {"tests/test_shape.py": ""}, r"only one of them has \['tests/test_shape.py'\]"),
        ("less", less, r"only one of them has \['gesta/py.typed'\]"),
        ("told", inside | {"gesta/kinds.py": f"'{tmp_path}/x'"}, r"gesta/kinds.py names .*, of the machine"),
        ("old", inside | {f"{info}/METADATA": wrong}, r"the metadata is of gesta 0.1, or the README is missing"),
        ("bare", inside | {f"{info}/METADATA": right[:-8]}, r"or the README is missing in it"),
    ):
        with pytest.raises(SystemExit, match=found):
            recipe.contents({"wheel": wheel(tmp_path / f"{name}.whl", **members)}, tmp_path)


def test_the_bill_of_materials_has_no_address_and_no_library_of_an_extra_as_a_direct_one(recipe: ModuleType):
    needed = [f"{re.split(r'[^a-z0-9-]', each)[0]}==1" for each in PROJECT["dependencies"]]
    address = {"externalReferences": [{"type": "vcs", "url": "https://example.org/pygments"}]}
    made: dict[str, Any] = {
        "metadata": {
            "component": {"bom-ref": "root", "name": "gesta"},
            "tools": {"components": [{"name": "t", **address}]},
        },
        "components": [{"name": "pygments", **address}],
        "dependencies": [
            {"ref": "rich==1", "dependsOn": ["Pygments==1"]},
            {"ref": "root", "dependsOn": ["Pygments==1", *needed]},
        ],
    }
    bill = json.loads(recipe.plain(json.dumps(made), "ab" * 32, "Python 3.11, linux"))
    assert "example.org" not in json.dumps(bill)
    assert bill["dependencies"] == [
        {"ref": "rich==1", "dependsOn": ["Pygments==1"]},
        {"ref": "root", "dependsOn": needed},
    ]
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    made["dependencies"][1]["dependsOn"].remove(needed[0])
    with pytest.raises(SystemExit, match=f"the wheel needs .*{needed[0][:-3]}"):
        recipe.plain(json.dumps(made), "", "")


def test_ci_builds_what_would_be_released():
    assert re.search(r"^just .*\bsmoke\b", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
