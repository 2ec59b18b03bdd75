"""Each command of the pages is run and its output compared; the page on the command line names what `--help` names.

A page is played from top to bottom in a folder of its own, in which the demo's record `shop.gesta` lies. A fence after
`<!-- test:file NAME -->` becomes that file. A bash fence that begins with `gesta` and has a text fence after it is run;
`# exit code 3` after a command says how it ends, and a line `...` in the text stands for lines that are left out.
"""

import getpass
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest
import typer.main
from tests.commands import forgotten, gesta_command
from typer.testing import CliRunner

from gesta.cli import application, talk
from gesta.cli.app import VERBS
from gesta.models.providers import LOCAL, PROVIDERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
MAIN = [sys.executable, "-c", "from gesta.cli import main; main()"]
PREPARED = "gesta demo --yes --record shop.gesta"
HOME = "/home/ann/shop"
"""What a page writes for the folder in which its commands are run."""

FENCE = re.compile(r"(?:^<!-- test:file (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VOLATILE = {
    r"\b([0-9a-f]{64}|[0-9a-f]{32})\b": "<digest>",
    r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{16}\b": "<run>",
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?": "<time>",
    r"\b\d{4}-\d\d-\d\d\b": "<day>",
    r"\b\d\d:\d\d:\d\d(\.\d+)?\b": "<time>",
    r"\b\d+\.\d s\b": "<seconds>",
    r"process \d+ on \S+": "process <number> on <host>",
    r"\b[\d,.]+ [kMG]?B\b": "<size>",
    r"─+$": "──",
}
"""What differs from one machine and run to the next; the page on the command line says so too."""


class Block(NamedTuple):
    """Commands of a page, and what it shows that they print."""

    page: str
    line: int
    commands: list[tuple[list[str], int]]
    shown: str


def normalised(text: str, folder: Path | str = HOME) -> str:
    """Put a name in place of what is volatile."""
    text = text.replace(str(folder), HOME)
    for pattern, name in VOLATILE.items():
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def fits(shown: str, said: str) -> bool:
    """Return whether a text is what a page shows; a line `...` of the page stands for any lines."""
    lines = ("(?:.*\n)*?" if line == "...\n" else re.escape(line) for line in shown.splitlines(keepends=True))
    return re.fullmatch("".join(lines), said) is not None


def commands(code: str) -> Iterator[tuple[list[str], int]]:
    """Read the commands of a fence, each with the exit code that it says it has."""
    line = ""
    for part in code.replace("\\\n", " ").splitlines():
        line += part
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote goes on in the next line
            line += "\n"
            continue
        code_said = re.search(r"# exit code (\d+)$", line)
        while "&&" in words:
            yield words[: words.index("&&")], 0
            words = words[words.index("&&") + 1 :]
        if words:
            yield words, int(code_said[1]) if code_said else 0
        line = ""


def fences(page: Path) -> list[tuple[re.Match[str], str | None]]:
    """Return the fences of a page, each with the text fence that follows it directly."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    after = [
        later[3] if later is not None and later[2] == "text" and not text[each.end() : later.start()].strip() else None
        for each, later in zip_longest(found, found[1:])
    ]
    return list(zip(found, after, strict=True))


def blocks(page: Path) -> Iterator[Block | tuple[str, str]]:
    """Return the parts of a page to be played: blocks to run, and names and texts of files to write."""
    for fence, shown in fences(page):
        if fence[1]:
            yield fence[1], fence[3]
        elif fence[2] == "bash" and fence[3].startswith("gesta ") and shown is not None:
            line = page.read_text(encoding="utf-8")[: fence.start()].count("\n") + 1
            yield Block(page.name, line, list(commands(fence[3])), shown)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the demo's record, and what the demo printed."""
    folder = tmp_path_factory.mktemp("prepared")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GESTA_")}
    done = subprocess.run(
        [*MAIN, *PREPARED.split()[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        cwd=folder,
        env=environment | {"COLUMNS": "100", "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout
    return folder, done.stdout


@pytest.fixture
def folder(prepared: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of that folder, in which commands are run by Ann, who has no keys; modules of hers are forgotten."""
    home = shutil.copytree(prepared[0], tmp_path / "home")
    monkeypatch.chdir(home)
    keys = [provider.key_variable for provider in PROVIDERS.values() if provider.key_variable]
    for name in ("GESTA_RECORD", "FORCE_COLOR", LOCAL, *keys):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "LOGNAME": "ann", "USER": "ann"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert getpass.getuser() == "ann"
    with forgotten(home):
        yield home


def on_a_page(words: list[str]) -> tuple[str, int]:
    """Run a command here; give what it prints, data and talk in the order in which they come, and its exit code."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as left:
        application(next(iter(words[1:]), None))(words[1:], prog_name="gesta")
    return said.getvalue(), int(left.value.code or 0)


PLAYED = [page for page in PAGES if any(isinstance(each, Block) for each in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.stem)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, prepared: tuple[Path, str], folder: Path):
    wrong = []
    for each in blocks(page):
        if not isinstance(each, Block):
            Path(each[0]).write_text(each[1], encoding="utf-8")
            continue
        said = ""
        for words, code in each.commands:
            if shlex.join(words) == PREPARED:
                said += prepared[1]
                continue
            assert words[0] == "gesta", f"{page.name}, line {each.line}: {words[0]} is run together with gesta"
            printed, ended = on_a_page(words)
            said += printed
            if ended != code:
                wrong.append(f"{page.name}, line {each.line}: {shlex.join(words)} ended with {ended}\n")
        if not fits(normalised(each.shown), normalised(said, folder)):
            wrong.append(f"{page.name}, line {each.line} shows\n{each.shown}\nand it says\n{said}\n")
    assert not wrong, "\n".join(wrong)


def test_every_page_that_shows_commands_is_played():
    assert {"cli", "demo", "errors", "import-export"} <= {page.stem for page in PLAYED}


def options() -> dict[str, set[str]]:
    """Return the long options of every command, as `--help` lists them."""
    group = typer.main.get_command(application())
    found = {}
    for verb, command in group.commands.items():  # type: ignore[attr-defined]
        words = {word for option in command.params for word in [*option.opts, *option.secondary_opts]}
        found[verb] = {word for word in words if word.startswith("-")} | {"-h", "--help"}
    return found


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_commands_that_are_written_anywhere_exist_with_their_options(page: Path):
    known = options()
    for fence, _ in fences(page):
        for words, code in commands(fence[3]) if fence[2] == "bash" else ():
            if Path(words[0]).name != "gesta" or words[1].startswith("-") or code == talk.USAGE:
                continue
            used = {word.partition("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)}
            assert words[1] in known, f"{page.name} writes gesta {words[1]}"
            assert used <= known[words[1]], f"{page.name}: gesta {words[1]} has no {used - known[words[1]]}"


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table that follows a heading, without its own two lines."""
    lines = text.split(f"{heading}\n", 1)[1].split("\n|", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("heading", VERBS)
def test_the_page_lists_the_commands_as_help_does(heading: str):
    said = CliRunner().invoke(application(), ["--help"], prog_name="gesta", env={"COLUMNS": "100"}).stdout
    section = said.split(f"\n{heading}:\n", 1)[1].split("\n\n", 1)[0]
    helped = dict(re.findall(r"^  (\w+) +(\S.*)$", section, re.MULTILINE))
    shown = {cells[0].strip("`").removeprefix("gesta "): cells[1] for cells in rows(CLI, f"**{heading}**")}
    assert list(shown) == list(helped) == list(VERBS[heading])
    assert {name: text.replace("`", "") for name, text in shown.items()} == helped


def test_every_command_has_a_section_in_which_it_is_run():
    sections = re.findall(r"^### gesta (\w+)\n(.*?)(?=^##)", CLI, re.MULTILINE | re.DOTALL)
    assert sorted(verb for verb, _ in sections) == sorted(verb for verbs in VERBS.values() for verb in verbs)
    played = {words[1] for each in blocks(ROOT / "docs" / "cli.md") if isinstance(each, Block) for words, _ in each[2]}
    for verb, text in sections:
        assert re.search(rf"^gesta {verb}\b", text, re.MULTILINE), f"the section on {verb} does not run it"
    assert played == {verb for verb, _ in sections}


def test_the_options_of_the_page_are_those_of_help():
    shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", CLI.split("## Options\n", 1)[1].split("\n## ", 1)[0]))
    assert shown == set.union(*options().values())


def test_the_exit_codes_of_the_page_are_those_of_the_program():
    shown = {int(cells[0]) for cells in rows(CLI, "## Exit codes")}
    names = ("ANSWERED", "FAILED", "USAGE", "WAITING", "LIMIT", "DOUBT", "INTERRUPTED", "BROKEN_PIPE")
    assert shown == {getattr(talk, name) for name in names}


def test_the_variables_of_the_page_are_those_that_are_read():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    shown = {name for cells in rows(CLI, "## Environment variables") for name in re.findall(r"`([A-Z_]+)", cells[0])}
    assert set(re.findall(r'"(GESTA_[A-Z]+)"', source)) <= shown
    assert all(f'"{name}"' in source or name in {"COLUMNS", "TERM"} for name in shown)


@pytest.mark.parametrize("verb", [verb for verbs in VERBS.values() for verb in verbs])
def test_the_help_of_every_command_has_an_example(verb: str):
    said = gesta_command(verb, "--help").stdout
    (example,) = re.findall(r"^  Example:\n    (gesta .+)$", said, re.MULTILINE)
    assert shlex.split(example)[1] == verb


def test_the_lines_that_the_page_on_the_demo_explains_are_printed(prepared: tuple[Path, str]):
    page = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
    said = " ".join(prepared[1].split())
    for cells in rows(page, "## What each line proves"):
        for part in cells[0].strip("`").split(" … "):
            assert part in said, f"the demo does not print {part!r}"
