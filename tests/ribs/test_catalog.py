"""A folder of tools and prompts is found by name, words and annotations, each with its version from git."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.commands import gesta_command
from typer.testing import Result

import gesta
from gesta.catalog.index import Catalog, NotInCatalog, index
from gesta.kinds import BeginContent

TOOLS = '''
"""Tools of the desk."""
import gesta

ANNOTATIONS = {"refund": {"team": "desk", "risk": "high"}, "look_up": {"team": "desk"}}

@gesta.tool(effect="once")
def refund(order: int, reason: str = "") -> str:
    """Pays an order back to the customer."""
    return f"{order} refunded"

@gesta.tool(effect="pure", name="look_up")
async def look(order: int) -> str:
    """Looks up the state of an order."""
    return "shipped"

def helper() -> None:
    """Looks like nothing."""
'''
PROMPT = """+++
description = "How the desk speaks to customers who want their money back."
tools = ["refund", "look_up"]
annotations = { team = "desk", language = "en" }

[output]
type = "object"
+++

You are the support desk.
Be kind.
"""


def run(*words: str, code: int = 0) -> Result:
    done = gesta_command(*words)
    assert done.exit_code == code, done.output
    return done


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *named, *words]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_prompt", ".prompt.md").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a repository, with one commit."""
    place = tmp_path / "shop"
    put(place, desk_py=TOOLS, prompts__money_prompt=PROMPT)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return place


def shown(catalog: Catalog) -> list[tuple[str, str, str]]:
    return [(one.kind, one.name, f"{one.source}:{one.line}") for one in catalog.items]


def test_tools_and_prompts_are_read_from_their_text(folder: Path) -> None:
    catalog = index(folder)
    assert shown(catalog) == [
        ("prompt", "money", "prompts/money.prompt.md:1"),
        ("tool", "look_up", "desk.py:13"),
        ("tool", "refund", "desk.py:8"),
    ]
    assert catalog.problems == []
    refund, money = catalog.item("refund"), catalog.prompt("money")
    assert (refund.description, refund.signature) == (
        "Pays an order back to the customer.",
        "order: int, reason: str=''",
    )
    assert refund.annotations == {"team": "desk", "risk": "high"}
    assert (money.content, money.tools) == ("You are the support desk.\nBe kind.", ["refund", "look_up"])
    assert (money.output, money.annotations) == ({"type": "object"}, {"team": "desk", "language": "en"})


def test_a_version_is_the_last_commit_and_whether_the_files_differ_from_it(folder: Path) -> None:
    first = git(folder, "rev-parse", "HEAD")
    assert {str(one.version) for one in index(folder).items} == {str(index(folder).version)} == {first}
    put(folder, desk_py=TOOLS + "\n# more\n")
    changed = index(folder)
    assert str(changed.version) == str(changed.item("refund").version) == f"{first}+dirty"
    assert str(changed.prompt("money").version) == first
    git(folder, "commit", "-qam", "two")
    second = git(folder, "rev-parse", "HEAD")
    assert [str(index(folder).item(name).version) for name in ("money", "refund")] == [first, second]
    assert str(index(folder).version) == second
    assert index(folder).version.at is not None
    put(folder, more_py="import gesta\n\n@gesta.tool\ndef new() -> str: ...\n")
    assert index(folder).item("new").version.system == "raw", "git does not know it"
    assert index(folder).version.dirty
    git(folder, "add", ".")
    assert index(folder).version.dirty, "it is staged, and in no commit"
    git(folder, "rm", "-qrf", ".")
    assert index(folder.parent).items == []


def test_what_git_ignores_is_no_part_of_it(folder: Path) -> None:
    put(folder, hidden_py=TOOLS)
    (folder / ".gitignore").write_text("hidden.py\n", encoding="utf-8")
    assert len(index(folder).items) == 3
    assert not index(folder).version.dirty, "no file of the catalog differs"


def test_a_file_of_an_odd_name_has_the_version_of_its_commit(folder: Path) -> None:
    for number, name in enumerate(("an odd\none.py", "é.py", "\x01.py")):
        (folder / name).write_text(f"import gesta\n\n@gesta.tool\ndef t{number}() -> str: ...\n", encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "two")
    second = git(folder, "rev-parse", "HEAD")
    found = {item.source: str(item.version) for item in index(folder).items}
    assert found["é.py"] == found["an odd\none.py"] == found["\x01.py"] == second


def test_without_git_a_version_is_a_digest_of_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    put(tmp_path, desk_py=TOOLS, __pycache____x_py="import gesta\n@gesta.tool\ndef no() -> str: ...\n")
    one = index(tmp_path)
    assert one.version.system == "raw"
    assert str(one.version).startswith("sha256:")
    assert [item.name for item in one.items] == ["look_up", "refund"]
    assert index(tmp_path).version == one.version
    put(tmp_path, desk_py=TOOLS + "\n")
    assert index(tmp_path).version != one.version


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("money back", ["money", "refund"]),
        ("refunds", ["refund"]),
        ("order", ["refund", "look_up"]),
        ("orders of a customer", ["money", "refund", "look_up"]),
        ("weather", []),
        ("", ["money", "look_up", "refund"]),
    ],
)
def test_items_are_found_by_words(folder: Path, words: str, names: list[str]) -> None:
    assert sorted(hit.item.name for hit in index(folder).find(words)) == sorted(names)


def test_the_best_is_first_and_annotations_and_kinds_narrow_it_down(folder: Path) -> None:
    catalog = index(folder)
    hits = catalog.find("refund an order")
    assert hits[0].item.name == "refund"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert [hit.item.name for hit in catalog.find("order", limit=1)] == [catalog.find("order")[0].item.name]
    assert [hit.item.name for hit in catalog.find(annotations={"team": "desk", "risk": "high"})] == ["refund"]
    assert [hit.item.name for hit in catalog.find(kind="prompt")] == ["money"]
    assert catalog.find(annotations={"team": "sales"}) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bad_py", "def (", "bad.py:1: it is not Python: "),
        ("bad_py", "import gesta\nANNOTATIONS = {'a': 5}\n@gesta.tool\ndef a() -> str: ...\n", "bad.py:4: annotations are a table"),
        ("more_py", "import gesta\n@gesta.tool\ndef refund() -> str: ...\n", "more.py:3: tool 'refund' is also in desk.py:8."),
        ("bad_prompt", "You are", "bad.prompt.md:1: a prompt begins with TOML between two lines +++."),
        ("bad_prompt", "+++\nname =\n+++\n", "bad.prompt.md:2: its head is not TOML: "),
        ("bad_prompt", "+++\ntitle = 'x'\n+++\n", "bad.prompt.md:2: its head has 'title', expected name, description,"),
        ("bad_prompt", "+++\nname = 5\n+++\n", "bad.prompt.md:2: `name` and `description` are texts."),
        ("bad_prompt", "+++\ntools = 'x'\n+++\n", "bad.prompt.md:2: `tools` is a list of names."),
        ("bad_prompt", "+++\noutput = 'x'\n+++\n", "bad.prompt.md:2: `output` is a table, a JSON Schema."),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_and_ends_nothing(folder: Path, name: str, text: str, said: str) -> None:
    put(folder, **{name: text})
    catalog = index(folder)
    assert {one.name for one in catalog.items} == {"money", "look_up", "refund"}
    (problem,) = catalog.problems
    assert problem.startswith(said)


def test_bytes_that_are_no_text_are_a_problem(folder: Path) -> None:
    (folder / "bad.py").write_bytes(b"\xff\xfe")
    assert index(folder).problems[0].startswith("bad.py: 'utf-8' codec")


def test_a_name_that_is_not_there_is_answered_with_the_nearest(folder: Path) -> None:
    with pytest.raises(NotInCatalog, match=r"No tool 'refnd' in the catalog of .* Did you mean 'refund'\?"):
        index(folder).tools("refnd")
    with pytest.raises(NotInCatalog, match=r"No prompt 'refund' .* There is: money\."):
        index(folder).prompt("refund")
    with pytest.raises(NotInCatalog, match="There is no folder"):
        index(folder / "none")
    put(folder, other_py="from gesta import tool\n\nif False:\n    pass\n\n@tool\ndef gone() -> str: ...\n\ndel gone\n")
    with pytest.raises(NotInCatalog, match=r"'other.py' makes no tool 'gone' when it runs"):
        index(folder).tools("gone")


def test_a_folder_of_too_many_files_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gesta.catalog.index.MOST_FILES", 2)
    (tmp_path / "node_modules").mkdir()
    for name in ("a.py", "b.py", "node_modules/c.py", ".d.py"):
        (tmp_path / name).write_text("")
    assert index(tmp_path).items == []
    (tmp_path / "e.py").write_text("")
    with pytest.raises(NotInCatalog, match="holds more than 2 files, and git does not keep it"):
        index(tmp_path)


async def test_the_version_stands_on_the_begin_of_every_turn(folder: Path) -> None:
    catalog = index(folder)
    prompt, at = catalog.prompt("money"), str(catalog.version)
    tools = catalog.tools(*prompt.tools)
    assert [tool.name for tool in tools] == ["refund", "look_up"]
    model = gesta.scripted(gesta.call("look_up", order=42), "It was shipped.", "You are welcome.")
    agent = gesta.Agent("desk", model=model, instructions=prompt.content or "", tools=tools, catalog=at)
    async with gesta.open() as record:
        for text in ("Where is order 42?", "Thanks."):
            outcome = await record.run(agent, text, session="s")
        entries = await record.read(outcome.run)
    begins = [one.content.agent for one in entries if isinstance(one.content, BeginContent) and one.content.agent]
    assert [one.catalog for one in begins] == [at, at]
    other = gesta.Agent("desk", model=model, instructions=prompt.content or "", tools=tools)
    assert other.catalog is None


def test_the_command_lists_finds_and_shows(folder: Path) -> None:
    done = run("catalog", str(folder))
    version = index(folder).version
    assert done.stdout.splitlines()[0].split() == ["kind", "name", "version", "file", "description"]
    assert f"tool    refund   {version.short}  desk.py:8" in done.stdout
    assert done.stderr == f"The catalog of {folder} is at {version.short}.\n"
    one = json.loads(run("catalog", str(folder), "--find", "refund", "--json", "-n", "1").stdout)
    assert (one["name"], one["version"], one["annotations"]) == (
        "refund",
        str(version),
        {"team": "desk", "risk": "high"},
    )
    assert one["score"] > 0
    whole = run("catalog", str(folder), "--name", "money", "--kind", "prompt").stdout
    assert "tools:        refund, look_up\n" in whole
    assert whole.endswith("\nYou are the support desk.\nBe kind.\n")
    found: Any = run("catalog", str(folder), "--annotation", "risk=high", "--json")
    assert [json.loads(line)["name"] for line in found.stdout.splitlines()] == ["refund"]
    assert "Nothing was found." in run("catalog", str(folder), "--find", "weather").stderr


def test_the_command_says_what_is_wrong(folder: Path) -> None:
    wrong = run("catalog", str(folder), "--annotation", "risk", code=2)
    assert "--annotation 'risk': expected KEY=VALUE." in wrong.stderr
    assert "Did you mean 'refund'?" in run("catalog", str(folder), "--name", "refnd", code=1).stderr
    put(folder, bad_prompt="You are")
    broken = run("catalog", str(folder), code=1)
    assert "bad.prompt.md:1: a prompt begins" in broken.stderr
    assert "refund" in broken.stdout
