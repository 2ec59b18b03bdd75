"""Who installed Gesta alone, without an extra, can use every command that needs none, and reads which extra is missing."""

import json
import tomllib
from pathlib import Path

import pytest
from tests import programs

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OF_EXTRAS = [
    "json_repair",
    "psycopg",
    "pyoxigraph",
    "genai_prices",
    "starlette",
    "uvicorn",
    "zstandard",
    "mcp",
    "opentelemetry",
    "pydantic",
    "pytest",
]
"""Modules that a person without extras does not have."""
ALONE = f"import sys\nfor name in {OF_EXTRAS!r}: sys.modules[name] = None\n"
COMMAND = ALONE + "sys.argv[0] = 'gesta'\nfrom gesta.cli import main\nmain()\n"
PROGRAM = """
import gesta

@gesta.tool(effect="pure")
def weather(city: str) -> str:
    \"\"\"Today's weather in a city.\"\"\"
    return f"{city}: 21 degrees"

agent = gesta.Agent("guide", model=gesta.scripted(gesta.call("weather", city="Rome"), "21 degrees."), tools=[weather])
if __name__ == "__main__":
    print(gesta.run_sync(agent, "Rome?", record="runs.gesta").answer)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "guide.py").write_text(ALONE + PROGRAM, encoding="utf-8")
    done = programs.run(["guide.py"], cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("21 degrees.\n", "")
    return tmp_path


@pytest.mark.slow
def test_the_six_forms_of_a_run_need_no_extra(folder: Path):
    for form in ("activity", "steps", "task", "react", "codeact"):
        done = programs.run(["-c", COMMAND, "log", "last", "--as", form], cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "21 degrees" in done.stdout
        done = programs.run(["-c", COMMAND, "log", "last", "--as", form, "--json"], cwd=folder)
        assert [json.loads(line) for line in done.stdout.splitlines()], done.stderr
    assert programs.run(["-c", COMMAND, "why", "last"], cwd=folder).returncode == 0


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve", "guide.py:agent"], "serve"),
        (["serve", "guide.py:agent", "--stdio"], "mcp"),
        (["serve", "guide.py:agent", "--mcp"], "mcp"),
        (["serve", "--read", "--stdio", "--record", "runs.gesta"], "mcp"),
        (["run", "guide.py:agent", "Rome?", "--mcp", "uvx some-server"], "mcp"),
        (["export", "last", "--format", "trig"], "prov"),
        (["runs", "--record", "postgresql://ann@localhost/runs"], "postgres"),
    ],
)
def test_a_command_that_needs_an_extra_names_the_line_that_installs_it(words: list[str], extra: str, folder: Path):
    done = programs.run(["-c", COMMAND, *words], cwd=folder)
    assert done.returncode != 0
    assert done.stderr.endswith(f"which is not installed: pip install 'gesta[{extra}]'\n")
    assert extra in PROJECT["optional-dependencies"]


def test_kodeagents_messages_say_what_repairs_their_arguments(tmp_path: Path):
    code = f"""{ALONE}
from gesta.compat.kodeagent import ReActChatMessage
from gesta.errors import MissingExtra
said = dict(role="assistant", thought="t", action="weather")
print(ReActChatMessage(args='{{"city": "Rome"}}', **said).args)
print(ReActChatMessage(args='```json\\n{{"city": "Rome"}}\\n```', **said).args)
for args in ("{{'city': 'Rome',}}", "no object"):
    try:
        print(ReActChatMessage(args=args, **said))
    except (MissingExtra, ValueError) as error:
        print(type(error).__name__, error)
"""
    done = programs.run(["-c", code], cwd=tmp_path)
    assert done.stdout.splitlines() == [
        '{"city": "Rome"}',
        '{"city": "Rome"}',
        "MissingExtra Reading arguments that are not JSON needs 'json-repair', which is not installed: pip install 'gesta[repair]'",
        "ValueError args must be a JSON object, found no object",
    ], done.stderr
