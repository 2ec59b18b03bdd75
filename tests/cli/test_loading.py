"""Naming an agent: what works, and what is said when it does not."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Gesta

import gesta as library
from gesta.errors import BadAddress
from gesta.kinds import RequestHeaderContent

BROKEN = """
def helper():
    return 1 / 0

value = helper()
"""
UNTYPED = """
import gesta

@gesta.tool
def add(left, right):
    return left + right
"""


def _said(gesta: Gesta, address: str) -> str:
    done = gesta("run", address, "hello")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "record:" not in done.stderr, "nothing was opened"
    assert not Path("runs.gesta").exists()
    return done.stderr


def test_a_file_and_a_dotted_module_name_an_agent(gesta: Gesta, folder: Path):
    (folder / "shop").mkdir()
    (folder / "shop" / "desks.py").write_text((folder / "agent.py").read_text(), encoding="utf-8")
    assert gesta("run", "agent.py:plain", "x").stdout == "One.\n"
    assert gesta("run", "shop/desks.py:plain", "x").stdout == "One.\n"
    assert gesta("run", "shop.desks:plain", "x").stdout == "One.\n"
    assert gesta("run", f"{folder}/agent.py:plain", "x").stdout == "One.\n"


def test_a_file_that_is_rewritten_within_a_second_is_read_as_it_stands(
    gesta: Gesta, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for word in ("One.", "Two."):
        text = f'import gesta\nquick = gesta.Agent("quick", gesta.scripted("{word}"))\n'
        (folder / "quick.py").write_text(text, encoding="utf-8")
        os.utime(folder / "quick.py", (1_800_000_000, 1_800_000_000))
        assert gesta("run", "quick.py:quick", "x").stdout == f"{word}\n"


def test_an_agent_file_may_import_its_neighbours_and_print(gesta: Gesta, folder: Path):
    (folder / "deep").mkdir()
    (folder / "deep" / "words_of_mine.py").write_text("WORD = 'Hi.'", encoding="utf-8")
    (folder / "deep" / "main.py").write_text(
        "import gesta, words_of_mine\nprint('loading')\na = gesta.Agent('a', gesta.scripted(words_of_mine.WORD))\n",
        encoding="utf-8",
    )
    done = gesta("run", "deep/main.py:a", "x")
    assert done.stdout == "Hi.\n"
    assert "loading" in done.stderr


def test_no_such_file_names_the_folder_and_the_nearest(gesta: Gesta, folder: Path):
    said = _said(gesta, "agnet.py:agent")
    assert f"error: No file 'agnet.py' in {folder}. Did you mean 'agent.py'?" in said
    assert "Write FILE.py:NAME, as in agent.py:agent, or dotted.module:NAME." in said


def test_no_such_name_names_the_nearest_and_all_agents(gesta: Gesta):
    said = _said(gesta, "agent.py:agnt")
    assert "error: No 'agnt' in agent.py. Did you mean 'agent'? Agents in it: agent, desk, strict, pair, " in said
    assert said.endswith("Write agent.py:agent.\n")


def test_a_file_without_a_name_lists_its_agents(gesta: Gesta):
    assert "'agent.py' names a file, but no agent in it. Agents in it: agent, desk" in _said(gesta, "agent.py")
    assert "'agent' names no agent. Write FILE.py:NAME" in _said(gesta, "nothing").replace("nothing", "agent")


def test_something_else_of_that_name_is_no_agent(gesta: Gesta):
    said = _said(gesta, "agent.py:weather")
    assert "error: agent.py:weather is of type Tool, not an Agent. Agents in it: agent, desk" in said


def test_a_file_without_agents_says_so(gesta: Gesta, folder: Path):
    (folder / "bare.py").write_text("x = 1", encoding="utf-8")
    assert "No 'agent' in bare.py. There is no agent in it: write agent = gesta.Agent(...)." in _said(
        gesta, "bare.py:agent"
    )


def test_no_such_module_is_named(gesta: Gesta):
    assert "error: No module 'gesta.dmo'. Write FILE.py:NAME" in _said(gesta, "gesta.dmo:agent")


@pytest.mark.parametrize("address", ["broken.py:agent", "broken:agent"])
def test_a_file_that_fails_shows_the_users_own_line(gesta: Gesta, folder: Path, address: str):
    (folder / "broken.py").write_text(BROKEN, encoding="utf-8")
    name = address.partition(":")[0]
    assert _said(gesta, address) == (
        f"error: {name} does not import: ZeroDivisionError: division by zero\n  broken.py, line 3:\n    return 1 / 0\n"
    )


def test_a_syntax_error_shows_its_line(gesta: Gesta, folder: Path):
    (folder / "broken.py").write_text("x = 1\nagent = gesta.Agent(\n", encoding="utf-8")
    said = _said(gesta, "broken.py:agent")
    assert said.startswith("error: broken.py does not import: SyntaxError: '(' was never closed")
    assert said.endswith("  broken.py, line 2:\n    agent = gesta.Agent(\n")


def test_a_missing_library_shows_the_import(gesta: Gesta, folder: Path):
    (folder / "broken.py").write_text("import nowhere_to_be_found\n", encoding="utf-8")
    said = _said(gesta, "broken.py:agent")
    assert "ModuleNotFoundError: No module named 'nowhere_to_be_found'\n  broken.py, line 1:" in said


def test_a_tool_without_annotations_shows_what_to_write_and_where(gesta: Gesta, folder: Path):
    (folder / "broken.py").write_text(UNTYPED, encoding="utf-8")
    said = _said(gesta, "broken.py:agent")
    assert "Tool 'add': parameter 'left' has no type to tell a model. Write `left: str`, or what it is." in said
    assert "\n  broken.py, line " in said
    assert "gesta/tooling.py" not in said


def test_a_file_that_ends_the_program_is_told_how_not_to(gesta: Gesta, folder: Path):
    (folder / "broken.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    said = _said(gesta, "broken.py:agent")
    assert "broken.py ended the program while it was imported." in said
    assert "if __name__ == '__main__':" in said


def test_debug_shows_the_traceback(gesta: Gesta, folder: Path):
    (folder / "broken.py").write_text(BROKEN, encoding="utf-8")
    with pytest.raises(Exception, match="broken does not import") as caught:
        gesta("run", "broken:agent", "hello", "--debug")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_no_command_imports_what_a_record_names(gesta: Gesta, folder: Path):
    text = 'import gesta\nagent = gesta.Agent("quick", gesta.scripted("One."))\n'
    (folder / "named.py").write_text(text, encoding="utf-8")
    assert gesta("run", "named.py:agent", "x", "--session", "s").stdout == "One.\n"
    assert "named.py:agent" in gesta("log", "s", "--raw").stdout
    sys.modules.pop("named", None)
    (folder / "named.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n{text}", encoding="utf-8")
    for words in (
        *(["runs"], ["log", "s", "--all"], ["show", "s"], ["why", "s"], ["verify"], ["stats"], ["export", "s"]),
        *(["approve", "s"], ["answer", "s", "x"], ["resolve", "s", "done"], ["cancel", "s"], ["resume", "s"]),
        *(["fork", "s"], ["replay", "s"], ["diff", "s", "s"], ["find", "One"], ["prune", "--session", "s", "--yes"]),
    ):
        gesta(*words)
        assert not (folder / "ran").exists(), words


BARE = """
import gesta

@gesta.tool(effect="pure")
def look() -> str:
    "Look."
    return "seven lamps"

desk = gesta.Agent("desk", instructions="Be brief.", tools=[look])
boss = gesta.Agent("boss", tools=[desk.as_tool()])
"""


def test_an_agent_without_a_model_is_given_one_by_the_command_and_so_are_the_agents_that_are_its_tools(
    gesta: Gesta, folder: Path
):
    (folder / "bare.py").write_text(BARE, encoding="utf-8")
    gesta("run", "agent.py:plain", "x")
    for words in (
        ["run", "bare.py:desk", "How many?"],
        ["work", "bare.py:desk", "--once"],
        ["serve", "agent.py:plain", "bare.py:desk", "--no-work"],
    ):
        done = gesta(*words)
        assert done.exit_code == 2
        assert (
            "error: Agent 'desk' of bare.py:desk has no model. Add --model openai:gpt-5-mini, or any that `gesta models` "
            "lists, or write model=... in the file; model=gesta.scripted(...) needs no key.\n" in done.stderr
        )
    done = gesta("run", "bare.py:desk", "How many?", "--base-url", "http://127.0.0.1:9")
    assert (done.exit_code, "Add --model NAME" in done.stderr) == (2, True)
    done = gesta("work", "bare.py:desk", "--once", "--model", "openai:gpt-5-mini")
    assert (done.exit_code, done.stderr.endswith("Nothing was due.\n")) == (0, True)
    done = gesta("run", "bare.py:desk", "How many?", "--model", "openai:gpt-5-mini")
    assert done.exit_code == 1
    assert "OPENAI_API_KEY" in done.stderr, "the model is known, its key is missing"


async def test_an_agent_without_a_model_takes_that_of_the_turn_or_of_the_agent_whose_tool_it_is(folder: Path):
    names: dict[str, Any] = {}
    exec(BARE, names)
    asked: list[str] = []

    def answer(messages: list[dict[str, Any]], header: RequestHeaderContent) -> Any:
        asked.append((header.tools or [{}])[0]["name"])
        return "Seven." if messages[-1]["role"] == "tool" else library.call(asked[-1], **ARGS[asked[-1]])

    async with library.open(folder / "r.gesta") as record:
        with pytest.raises(
            BadAddress, match=r"Agent 'boss' has no model\. Give it one, as in model='openai:gpt-5-mini'"
        ):
            await record.run(names["boss"], "How many?")
        assert await record.store.runs() == [], "nothing was begun"
        outcome = await record.run(names["boss"], "How many?", model=library.function(answer))
    assert (outcome.answer, asked) == ("Seven.", ["desk", "look", "look", "desk"])


ARGS = {"desk": {"task": "How many?"}, "look": {}}


def test_a_module_that_makes_its_names_when_they_are_looked_at_is_no_fault(gesta: Gesta, folder: Path):
    lazy = (
        "class Lazy:\n    __class__ = property(lambda self: globals().setdefault(str(len(globals())), Lazy) and Lazy)\n"
    )
    (folder / "lazy.py").write_text(lazy + "first, second = Lazy(), Lazy()\n", encoding="utf-8")
    assert _said(gesta, "lazy.py:agent").startswith("error: No 'agent' in lazy.py. There is no agent in it")
