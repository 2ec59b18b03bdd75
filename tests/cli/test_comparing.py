"""`gesta replay`, `fork`, `diff` and `case`: what they print, how they end, and what they say where something is wrong."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.cli.conftest import Gesta

pytestmark = pytest.mark.sample(2, over="parent")

SHOP = '''
import json
import gesta


@gesta.tool(effect="pure")
async def order(number: int) -> dict:
    """Read an order."""
    return {"number": number, "euros": 20}


@gesta.tool(effect="once")
async def pay(euros: int) -> str:
    """Pay."""
    with open("paid.txt", "a") as file:
        file.write(f"{euros}\\n")
    return f"paid {euros}"


def told(messages, header):
    seen = [message["content"] for message in messages if message["role"] == "tool"]
    if not seen:
        return gesta.call("order", number=1)
    if len(seen) == 1:
        return gesta.call("pay", euros=json.loads(seen[0])["euros"])
    return f"Done: {seen[-1]}."


desk = gesta.Agent("desk", model=gesta.function(told), tools=[order, pay])
'''


@pytest.fixture
def shop(gesta: Gesta, folder: Path) -> Callable[[str, str], None]:
    """A shop whose run is on record; gives what rewrites its code."""
    path = folder / "shop.py"
    path.write_text(SHOP)
    assert gesta("run", "shop.py:desk", "Pay my order.", "--session", "ann").exit_code == 0

    def rewrite(old: str, new: str) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return rewrite


def paid(folder: Path) -> list[str]:
    return (folder / "paid.txt").read_text().split()


def test_a_run_is_replayed_and_nothing_is_done(gesta: Gesta, folder: Path, shop: Callable[[str, str], None]):
    done = gesta("replay", "ann", "shop.py:desk")
    assert done.exit_code == 0
    assert re.fullmatch(r"run [0-9a-f]{16}: 17 entries, all the same. Nothing was done.\n", done.stdout)
    assert paid(folder) == ["20"]
    facts = json.loads(gesta("replay", "ann", "shop.py:desk", "--json").stdout)
    assert (facts["entries"], facts["diverged"]) == (17, None)


def test_a_replay_names_the_first_entry_that_is_another_one(gesta: Gesta, shop: Callable[[str, str], None]):
    shop('"""Pay."""', '"""Pay now."""')
    done = gesta("replay", "ann", "shop.py:desk")
    assert done.exit_code == 1
    assert re.sub(r"[0-9a-f]{16}", "RUN", done.stdout) == (
        'entry 3 of run RUN, request-header: $.tools[1].description\n  - "Pay."\n  + "Pay now."\n'
    )
    facts = json.loads(gesta("replay", "ann", "shop.py:desk", "--json").stdout)["diverged"]
    assert (facts["seq"], facts["path"], facts["replayed"]) == (3, "$.tools[1].description", "Pay now.")


def test_a_tool_that_may_run_is_compared_with_what_it_gave(
    gesta: Gesta, folder: Path, shop: Callable[[str, str], None]
):
    shop('"euros": 20', '"euros": 21')
    assert gesta("replay", "ann", "shop.py:desk").exit_code == 0
    done = gesta("replay", "ann", "shop.py:desk", "--live", "order")
    assert "result of order(number=1): $.tool_result.euros\n  - 20\n  + 21\n" in done.stdout
    assert done.exit_code == 1
    assert paid(folder) == ["20"]


def test_a_tool_that_the_run_does_not_have_cannot_be_live_in_a_replay_or_a_case(
    gesta: Gesta, shop: Callable[[str, str], None]
):
    for words in (["replay", "last", "shop.py:desk"], ["case", "add", "last", "shop.py:desk"]):
        done = gesta(*words, "--live", "orders")
        assert done.exit_code == 2
        assert (
            "error: --live orders: no tool of 'desk' or of the run has this name. There are: order, pay." in done.stderr
        )


def test_a_run_without_a_turn_says_why_it_cannot_be_replayed(gesta: Gesta, folder: Path):
    from gesta import open_sync
    from gesta.kinds import UserContent

    with open_sync("own.gesta") as record, record.span("program", session="s") as span:
        span.log(UserContent(value="hi"))
    done = gesta("replay", "last", "agent.py:agent", "--record", "own.gesta")
    assert (
        "has no turn of an agent: it was imported or only recorded, so nothing can be replayed. Name a run"
        in done.stderr
    )
    assert done.exit_code == 1


def test_a_fork_stops_where_it_would_have_an_effect_until_a_person_says_so(
    gesta: Gesta, folder: Path, shop: Callable[[str, str], None]
):
    done = gesta("fork", "ann", "shop.py:desk", "--set", "8.tool_result.euros=30")
    assert done.exit_code == 3
    assert re.search(r"It stops here: pay \(call \d+\) is not on record of run [0-9a-f]{16}", done.stderr)
    assert paid(folder) == ["20"]
    line = re.search(r"Let it happen with: gesta (.+) && gesta (.+)", done.stderr)
    assert line is not None
    for words in line.groups():
        done = gesta(*words.split())
    assert done.stdout == "Done: paid 30.\n"
    assert paid(folder) == ["20", "30"]
    assert gesta("verify", "runs.gesta").exit_code == 0


TEAM = """
import gesta

finder = gesta.Agent("finder", model=gesta.scripted("Rome is dry."))


async def program(verbs, text):
    found = await verbs.call(finder, text, "look")
    place = await verbs.ask("place", "Rome or Oslo?", {"enum": ["Rome", "Oslo", 7]})
    return f"{place}: {found.text}"


team = gesta.Agent("team", program=program)
"""


@pytest.fixture
def asking(gesta: Gesta, folder: Path) -> None:
    """A run of a program that asked a person, and has its answer."""
    (folder / "team.py").write_text(TEAM)
    assert gesta("run", "team.py:team", "Where is it dry?", "--session", "ann").exit_code == 3
    assert gesta("answer", "ann", "Rome").exit_code == 0
    assert gesta("resume", "ann", "team.py:team").stdout == "Rome: Rome is dry.\n"


def test_a_fork_that_asks_a_person_shows_the_question_and_how_to_answer_it(gesta: Gesta, asking: None):
    done = gesta("fork", "ann", "team.py:team", "--at", "2")
    assert done.exit_code == 3
    assert "It stops here: A question: Rome or Oslo?\nThe answer is one of: Rome, Oslo, 7\n" in done.stderr
    line = re.search(r"Go on with: gesta (.+) ANSWER && gesta (.+)", done.stderr)
    assert line is not None
    wrong = gesta(*line.group(1).split(), "Paris")
    assert 'The answer is "Paris", expected one of "Rome", "Oslo", 7. The question was: Rome or Oslo?' in wrong.stderr
    assert gesta("approve", "last").stderr.endswith("waits for no approval: it waits for question of place.\n")
    assert gesta(*line.group(1).split(), "Oslo").exit_code == 0
    assert gesta(*line.group(2).split()).stdout == "Oslo: Rome is dry.\n"


def test_a_diff_counts_how_turns_ended_and_not_the_steps_of_a_program(gesta: Gesta, asking: None):
    facts = json.loads(gesta("diff", "ann", "ann", "--json").stdout)
    assert facts["before"]["reasons"] == ["answered"]


def test_a_fork_of_the_same_says_the_same_and_fires_nothing(
    gesta: Gesta, folder: Path, shop: Callable[[str, str], None]
):
    done = gesta("fork", "ann", "shop.py:desk", "--at", "8", "--model", "recorded", "--json")
    facts = json.loads(done.stdout)
    assert (facts["answer"], facts["session"], facts["waiting"]) == ("Done: paid 20.", "ann~1", [])
    assert paid(folder) == ["20"]
    told = json.loads(gesta("diff", "ann", "ann~1", "--json").stdout)
    assert told["alike"] == 8
    assert told["steps"] == []
    assert [each["fired"] for each in told["after"]["effects"]] == [False, False], "what it shares its base fired"


def test_a_fork_with_a_tool_named_live_goes_on(gesta: Gesta, folder: Path, shop: Callable[[str, str], None]):
    done = gesta("fork", "ann", "shop.py:desk", "--set", "8.tool_result.euros=30", "--live", "pay", "-s", "other")
    assert (done.exit_code, done.stdout) == (0, "Done: paid 30.\n")
    assert paid(folder) == ["20", "30"]
    shown = gesta("diff", "ann", "other").stdout
    assert "7 entries alike from the first on\n" in shown
    assert "    $.tool_result.euros\n    - 20\n    + 30\n" in shown
    assert re.search(r"^answer +Done: paid 20\. +Done: paid 30\.$", shown, re.MULTILINE)


def test_a_fork_asks_a_server_of_ones_own(gesta: Gesta, server: str, shop: Callable[[str, str], None]):
    done = gesta("fork", "ann", "shop.py:desk", "--at", "2", "--model", "tiny", "--base-url", server)
    assert (done.exit_code, done.stdout) == (0, "Live.\n")


def test_a_fork_that_is_told_where_to_ask_but_not_whom_is_not_made(
    gesta: Gesta, server: str, shop: Callable[[str, str], None]
):
    done = gesta("fork", "ann", "shop.py:desk", "--at", "2", "--base-url", server)
    assert (done.exit_code, "--base-url says where, but not which model" in done.stderr) == (2, True)
    done = gesta("fork", "ann", "--at", "2", "--base-url", server)
    assert (done.exit_code, "are for the agent that goes on" in done.stderr) == (2, True)
    assert len(gesta("runs", "--json").stdout.splitlines()) == 1


def test_other_instructions_stand_in_the_header(gesta: Gesta, folder: Path, shop: Callable[[str, str], None]):
    (folder / "new.txt").write_text("Be brief.")
    assert gesta("fork", "ann", "shop.py:desk", "--at", "2", "--instructions", "@new.txt").exit_code == 0
    shown = gesta("diff", "ann", "ann~1").stdout
    assert '    $.meta.instructions\n    - (nothing)\n    + "Be brief."\n' in shown


def test_instructions_that_nothing_would_read_are_refused(gesta: Gesta, shop: Callable[[str, str], None], folder: Path):
    (folder / "steps.py").write_text("import gesta\nasync def say(verbs, text):\n    return text\n"
        "desk = gesta.Agent('desk', program=say)\n")  # fmt: skip
    done = gesta("fork", "ann", "steps.py:desk", "--at", "2", "--instructions", "Be brief.")
    assert (done.exit_code, "'desk' is a program without a model, so nothing would read them" in done.stderr) == (
        2,
        True,
    )
    assert len(gesta("runs", "--json").stdout.splitlines()) == 1


def test_a_value_in_a_text_is_set_and_every_other_character_stays(
    gesta: Gesta, folder: Path, shop: Callable[[str, str], None]
):
    text = '{"price":64.90,"number":12345678901234567890.5,\\n "euros":20}'
    shop('    return {"number": number, "euros": 20}', f"    return '{text}'")
    assert gesta("run", "shop.py:desk", "Pay my order.", "--session", "eve").exit_code == 0
    assert gesta("fork", "eve", "--set", "8.tool_result.euros=30").exit_code == 0
    entries = [json.loads(line)["content"] for line in gesta("log", "eve~1", "--json").stdout.splitlines()]
    (told,) = [each["tool_result"] for each in entries if "tool_result" in each]
    assert told == '{"price":64.90,"number":12345678901234567890.5,\n "euros":30}'


def test_what_is_no_json_is_compared_as_text_and_told_as_json(
    gesta: Gesta, folder: Path, shop: Callable[[str, str], None]
):
    for session, euros in (("eve", 20), ("bob", 30)):
        text = f'{{"v": NaN, "euros": {euros}}}'
        (folder / "shop.py").write_text(SHOP.replace('{"number": number, "euros": 20}', repr(text)))
        assert gesta("run", "shop.py:desk", "Pay my order.", "--session", session).exit_code == 0
    assert "NaN → NaN" not in gesta("diff", "eve", "bob").stdout

    def no_number(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    told = gesta("diff", "eve", "bob", "--json").stdout
    assert json.loads(told, parse_constant=no_number)
    assert "$.tool_result" in told
    assert "$.tool_result.v" not in told


def test_a_fork_without_an_agent_says_how_to_go_on(gesta: Gesta, shop: Callable[[str, str], None]):
    done = gesta("fork", "ann", "--at", "2")
    assert done.exit_code == 0
    assert re.search(r"Go on with: gesta resume [0-9a-f]{16} FILE.py:NAME", done.stderr)
    assert gesta("resume", "ann~1", "shop.py:desk").stdout == "Done: paid 20.\n"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("--at", "99"), "There is no entry 99; the run has 17. Name one of them: `gesta log` shows them.", 2),
        (("--set", "8.tool_result"), "write SEQ.PATH=VALUE, as in 8.tool_result.status=lost", 2),
        (("--set", "8.tool_results=1"), "Entry 8 has no 'tool_results'. Did you mean 'tool_result'?", 2),
        (("--set", "8.tool_result.euros.of=1"), "cannot be changed at 'tool_result.euros.of': 20 has no 'of'", 2),
        (("--set", "8.tool_result.cents.of=1"), '{"number": 1, "euros": 20} has no \'cents\'', 2),
        (("--set", "2.value.word=1"), "\"Pay my order.\" has no 'word'", 2),
        (("--set", "9.number=2"), "Entry 9 is a request, which follows from others. What can be changed: user", 2),
        (("--set", "2.value=a", "--set", "8.tool_result=1"), "made anew. Change one of them.", 2),
        (("--set", "8.tool_result=1", "--at", "3"), "so a fork shares the 7 before it: leave --at out, got 3", 2),
        (("--live", "pai"), "--live pai: 'desk' has no such tool. It has: order, pay.", 2),
        (("--instructions", "@none.txt"), "Cannot read 'none.txt': No such file", 2),
        (("--session", "ann", "--at", "2"), "There is a run 'desk' in session 'ann' already", 1),
    ],
)
def test_what_cannot_be_forked_is_said(
    gesta: Gesta, shop: Callable[[str, str], None], words: tuple[str, ...], said: str, code: int
):
    done = gesta("fork", "ann", "shop.py:desk", *words)
    assert said in done.stderr
    assert done.exit_code == code
    assert "Traceback" not in done.output
    assert len(gesta("runs", "--json").stdout.splitlines()) == 1


def test_a_fork_of_all_that_ended_says_that_nothing_was_asked(gesta: Gesta, shop: Callable[[str, str], None]):
    done = gesta("fork", "ann", "shop.py:desk")
    assert (done.exit_code, done.stdout) == (0, "Done: paid 20.\n")
    assert "Nothing was asked: the fork shares all of run" in done.stderr
    assert "--at SEQ, --set SEQ.PATH=VALUE" in done.stderr
    assert "Nothing was asked" not in gesta("fork", "ann", "shop.py:desk", "--at", "8").stderr


def test_a_model_without_an_agent_is_refused(gesta: Gesta, shop: Callable[[str, str], None]):
    done = gesta("fork", "ann", "--model", "recorded")
    assert "Name it: gesta fork RUN FILE.py:NAME" in done.stderr
    assert done.exit_code == 2


@pytest.mark.slow
def test_a_case_fails_where_the_answer_drifts_and_moves_along_when_that_is_accepted(
    gesta: Gesta, folder: Path, shop: Callable[[str, str], None], tmp_path_factory: pytest.TempPathFactory
):
    done = gesta("case", "add", "ann", "shop.py:desk", "--live", "order", "--to", "tests/cases")
    assert re.fullmatch(r"tests/cases/ann-desk.jsonl: 17 entries, [\d,]+ bytes\n", done.stdout)
    there = tmp_path_factory.mktemp("there")
    (there / "cases").mkdir()
    (there / "cases" / "ann.jsonl").write_text((folder / "tests/cases/ann-desk.jsonl").read_text())
    (there / "cases" / "other.jsonl").write_text("{}")
    (there / "shop.py").write_text(SHOP)
    assert run(there, found=True)[0] == 0
    (there / "shop.py").write_text(SHOP.replace('"""Pay."""', '"""Pay now."""'))
    assert run(there)[0] == 0, "how the model is asked is not a drift"
    (there / "shop.py").write_text(SHOP.replace('"euros": 20', '"euros": 21'))
    code, said = run(there)
    assert code == 1
    assert "result of order(number=1): $.tool_result.euros\n  - 20\n  + 21\n" in said
    assert "If that is meant: gesta case accept cases/ann.jsonl" in said
    (there / "shop.py").rename(there / "shops.py")
    code, said = run(there, among="cases/ann.jsonl")
    assert code == 1
    assert re.search(r"No file '.*shop\.py' in .*\. Did you mean 'shops\.py'\?", said)
    assert "The first line of ann.jsonl names the agent.\n" in said
    assert "Traceback" not in said
    assert "collecting.py" not in said
    shop('"euros": 20', '"euros": 21')
    done = gesta("case", "accept", "tests/cases")
    assert done.stdout == "tests/cases/ann-desk.jsonl: accepted\n"
    assert gesta("case", "accept", "tests/cases").stdout == "tests/cases/ann-desk.jsonl: as it was\n"
    assert paid(folder) == ["20"]


def run(folder: Path, *, found: bool = False, among: str = "cases") -> tuple[int, str]:
    """Run pytest in a folder, with the plugin: as it is found where it is installed, or named and alone."""
    words = ["-q", "--rootdir", ".", "-c", os.devnull, "-p", "no:cacheprovider", "--assert=plain", among]
    found = found and bool(
        entry_points(group="pytest11", name="gesta")
    )  # it may be installed before there was a plugin
    if not found:
        words += ["-p", "gesta.compare.plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        env=os.environ | ({} if found else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout or done.returncode, done.stdout
    return done.returncode, done.stdout


@pytest.mark.slow
def test_a_case_names_the_argument_that_a_call_has_no_more(
    gesta: Gesta, folder: Path, shop: Callable[[str, str], None]
):
    assert gesta("case", "add", "last", "shop.py:desk").exit_code == 0
    Path("taken").touch()
    done = gesta("case", "add", "last", "shop.py:desk", "--to", "taken")
    assert (done.exit_code, done.stderr) == (2, "error: --to taken: File exists. Name a folder that you may write.\n")
    shop("number: int) -> dict", "order_number: int) -> dict")
    shop('"number": number,', '"number": order_number,')
    failed = run(folder, among="tests")[1]
    assert "call order(number=1): $.meta.error" in failed
    assert "Unknown argument - at `$.number`. Did you mean 'order_number'?" in failed


MARKED = """
import gesta


@gesta.tool(effect="pure")
def look() -> dict:
    \"\"\"Look.\"\"\"
    return {"of": {"$a": 1}}


desk = gesta.Agent("desk", model=gesta.scripted(gesta.call("look"), "Done."), tools=[look])
"""


def test_a_key_that_looks_like_a_mark_stands_in_paths_as_it_was_given(gesta: Gesta, folder: Path):
    (folder / "marked.py").write_text(MARKED)
    gesta("run", "marked.py:desk", "Go.", "-s", "marked")
    made = gesta("fork", "marked", "marked.py:desk", "--set", "8.tool_result.of.$a=2", "-s", "forked")
    assert made.exit_code == 0, made.stderr
    assert "$.tool_result.of.$a\n    - 1\n    + 2" in gesta("diff", "marked", "forked").stdout
    new = gesta("fork", "marked", "marked.py:desk", "--set", '8.tool_result={"$b": 3}', "-s", "new")
    assert new.exit_code == 0, new.stderr
    assert "$.tool_result.$b\n    - (nothing)\n    + 3" in gesta("diff", "marked", "new").stdout


def test_what_cannot_be_a_case_is_said(gesta: Gesta, folder: Path, shop: Callable[[str, str], None]):
    assert "Name a run and the agent" in gesta("case", "add", "ann").stderr
    assert "No file 'nowhere'" in gesta("case", "accept", "nowhere").stderr
    assert (
        "There is no case in agent.py. Name cases, or the folder that they are in"
        in gesta("case", "accept", "agent.py").stderr
    )
    shop('gesta.call("order", number=1)', 'gesta.call("order", number=2)')
    assert gesta("case", "add", "ann", "shop.py:desk").exit_code == 0, "the model is not asked"
    shop("async def pay(euros: int)", "async def pay(euros: str)")
    done = gesta("case", "add", "ann", "shop.py:desk")
    assert "so this would be a test that fails" in done.stderr
    assert "$.meta.error" in done.stderr
    assert done.exit_code == 1
    assert gesta("case", "accept", "tests/cases").exit_code == 1


def test_a_case_holds_no_key(gesta: Gesta, shop: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "Pay my order.")
    done = gesta("case", "add", "ann", "shop.py:desk")
    assert done.exit_code == 0
    (case,) = Path("tests/cases").glob("*")
    text = case.read_text(encoding="utf-8")
    assert "Pay my order." not in text
    assert "<secret OPENAI_API_KEY>" in text
