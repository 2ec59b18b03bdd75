"""The demo, played whole: each part pays back once, wherever its process dies, and it says only what is so."""

import io
import json
import re
import shlex
import shutil
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import pytest
from inline_snapshot import snapshot
from rich.console import Console
from tests import programs
from tests.commands import anew

import gesta
from gesta import demo
from gesta.demo import shop
from gesta.demo.build import build
from gesta.demo.conversation import MESSAGES, NO_SHOP, model
from gesta.demo.facts import Usage, bought_again, usage
from gesta.demo.play import NEXT, NEXT_IN_FULL, Choices, _close, play
from gesta.demo.stage import Stage
from gesta.demo.voice import Voice
from gesta.entry import Entry
from gesta.errors import BadAddress, NoKey, WriteFailed
from gesta.kinds import AttemptContent, BeginContent, Kind, RequestHeaderContent, ResolutionContent
from gesta.model.request import Envelope, Model, Reply, Request

pytestmark = pytest.mark.sample(2, over="parent")

R = TypeVar("R")

BOTH = ("demo-1", "demo-1-crash")
COUNTS = "refunds fired: 1, model calls bought again: 0\n"


class Typing(Console):
    """A console at which a person types."""

    def __init__(self, *typed: str) -> None:
        super().__init__(file=io.StringIO(), width=80)
        self._typed = list(typed)

    def input(self, prompt: Any = "", **options: Any) -> str:
        self.print(prompt, end="")
        if not self._typed:
            raise EOFError
        return self._typed.pop(0)

    @property
    def text(self) -> str:
        assert isinstance(self.file, io.StringIO)
        return self.file.getvalue()


@pytest.fixture
def record(tmp_path: Path) -> str:
    return str(tmp_path / "played.gesta")


def opened(record: str, work: Callable[[gesta.Record], Awaitable[R]]) -> R:
    async def done() -> R:
        async with gesta.open(record) as found:
            return await work(found)

    return anyio.run(done)


def entries(record: str, session: str) -> list[Entry]:
    async def read(found: gesta.Record) -> list[Entry]:
        return await found.read((await found.find(session)).run)

    return opened(record, read)


def sessions(record: str) -> list[str]:
    async def read(found: gesta.Record) -> list[str]:
        return [row.session for row in await found.store.runs()]

    return opened(record, read)


def counted(record: str, session: str) -> shop.Count:
    return shop.count(shop.place(record, session))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A record in which the demo was played once, which is only read, and all that can be said of it."""
    record, console = str(tmp_path_factory.mktemp("demo") / "played.gesta"), Typing()
    assert play(Choices(record=record, yes=True, full=True), console) == 0
    return record, console.text


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a person saw the demo, with no option, and what stood on the screen."""
    folder, console = tmp_path_factory.mktemp("seen"), Typing("y")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.delenv("GESTA_RECORD", raising=False)
        assert play(Choices(interactive=True), console) == 0
    return folder, console.text


def test_each_part_pays_back_once(played: tuple[str, str]) -> None:
    record, said = played
    assert COUNTS in said
    for session in BOTH:
        assert counted(record, session) == shop.Count(fired=1, booked=1)
        begins = [entry.content for entry in entries(record, session) if isinstance(entry.content, BeginContent)]
        assert [begin.key for begin in begins] == ["m0", "m1", "m2", "m3"]
    assert opened(record, lambda found: found.verify()) == []
    assert "ended with -9" in said
    assert "the answer to part 1" in said


def test_a_kill_after_the_commit_is_settled_by_asking_the_shop(played: tuple[str, str]) -> None:
    record, _ = played
    found = [entry.content for entry in entries(record, "demo-1-crash")]
    assert [content.verdict for content in found if isinstance(content, ResolutionContent)] == ["done"]
    assert sum(isinstance(content, AttemptContent) for content in found) == 4
    assert bought_again(entries(record, "demo-1-crash")) == 0


def test_what_it_tells_of_the_crash(played: tuple[str, str]) -> None:
    _, said = played
    told = said[said.index("killed   ") : said.index("tokens   ")]
    assert told == snapshot("""\
killed    the child process ended with -9 (SIGKILL)
shop      its table of refunds has 1 row
in doubt  entry 34, attempt 1 of refund: no result on record

Now the same driver runs again, in this process: for each message,
record.run(agent, text, session=..., key=...). Messages that were answered are
not sent again; the open turn goes on where the record ends.

looked up entry 36: what that attempt began has ended
settled   entry 37, a resolution by reconcile of refund: it is done (refund_id
          1, order_id 1017, amount 64.90, to card ending 4417)
result    entry 38: refund_id 1, order_id 1017, amount 64.90, to card ending
          4417
   agent  Done: 64.90 euros are on their way to your card ending 4417. That
          takes three to five working days. Is there anything else?

customer  Thank you, that is all.
   agent  You are welcome, Marta. Enjoy the bulbs, and have a good day.

refunds fired: 1, model calls bought again: 0
(played-demo-1-crash.shop.db.fired has a line for each time the tool set out to
pay; the shop's table of refunds has 1 row. Bought again: requests on record
whose body had been answered before.)

""")


def test_a_kill_before_the_commit_is_made_good_once(record: str) -> None:
    console = Typing()
    assert play(Choices(record=record, yes=True, kill="before"), console) == 0
    assert "its table of refunds has 0 rows" in console.text
    assert "model calls bought again: 0\n" in console.text
    path = shop.place(record, "demo-1-crash")
    assert shop.count(path) == shop.Count(fired=2, booked=1)
    assert len(set(shop.witness(path).read_text().splitlines())) == 1, "both tries had the same key"
    found = [entry.content for entry in entries(record, "demo-1-crash")]
    assert [content.verdict for content in found if isinstance(content, ResolutionContent)] == ["retry"]
    assert [content.number for content in found if isinstance(content, AttemptContent)] == [1, 1, 1, 1, 2]


def test_with_nobody_to_ask_it_waits_and_what_it_prints_goes_on(record: str, tmp_path: Path) -> None:
    console = Typing()
    assert play(Choices(record=record), console) == 3
    named = f" --record {record}"
    line = f"gesta approve last{named} && gesta resume last gesta.demo:agent{named}"
    assert f"  {line}\n" in console.text
    assert counted(record, "demo-1") == shop.Count(fired=0, booked=0)
    assert sessions(record) == ["demo-1"]
    main = "from gesta.cli import main; main()"
    for command in line.split(" && "):
        done = programs.run(["-c", main, *shlex.split(command)[1:]], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert counted(record, "demo-1") == shop.Count(fired=1, booked=1)


def test_the_record_that_a_command_takes_anyway_is_not_named(
    record: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GESTA_RECORD", raising=False)
    console = Typing()
    assert play(Choices(), console) == 3
    assert "  gesta approve last && gesta resume last gesta.demo:agent\n" in console.text
    assert (tmp_path / "runs-demo-1.shop.db").exists()
    monkeypatch.setenv("GESTA_RECORD", record)
    assert Choices().address == record
    assert not Choices().named
    assert Choices(record="runs.gesta").named == " --record runs.gesta"


def test_a_person_approves_at_the_prompt(record: str) -> None:
    console = Typing("", "perhaps", "Y")
    assert play(Choices(record=record, interactive=True), console) == 0
    assert console.text.count("Approve? [y/n]") == 3
    assert COUNTS in console.text
    assert [counted(record, session).booked for session in BOTH] == [1, 1]


def test_a_denied_refund_is_not_made_and_the_agent_says_so(record: str) -> None:
    console = Typing("no")
    assert play(Choices(record=record, interactive=True), console) == 0
    assert counted(record, "demo-1") == shop.Count(fired=0, booked=0)
    assert sessions(record) == ["demo-1"]
    assert "did not approve it" in console.text
    assert "Done:" not in console.text
    assert "The refund was denied" in console.text


def test_whoever_leaves_the_prompt_can_go_on_later(record: str) -> None:
    console = Typing()
    assert play(Choices(record=record, interactive=True), console) == 3
    assert "neither approved nor" in console.text


def test_ctrl_c_leaves_a_line_to_go_on_with(record: str) -> None:
    class Leaving(Typing):
        def input(self, prompt: Any = "", **options: Any) -> str:
            raise KeyboardInterrupt

    console = Leaving()
    assert play(Choices(record=record, interactive=True), console) == 130
    assert f"  gesta resume last gesta.demo:agent --record {record}\n" in console.text


@pytest.mark.slow
def test_each_showing_has_sessions_of_its_own(played: tuple[str, str], tmp_path: Path) -> None:
    folder = shutil.copytree(Path(played[0]).parent, tmp_path / "copied")
    record = str(folder / "played.gesta")
    shop.copy(shop.place(record, "demo-2-crash"))
    assert play(Choices(record=record, yes=True), Typing()) == 0
    assert sessions(record) == [*BOTH, "demo-3", "demo-3-crash"]
    assert {counted(record, session).booked for session in sessions(record)} == {1}


@pytest.mark.slow
def test_what_it_says_fits_eighty_columns(
    summary: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GESTA_RECORD", raising=False)
    console = Typing()
    play(Choices(yes=True, full=True), console)
    for text in (console.text, summary[1]):
        assert not [line for line in text.splitlines() if len(line) > 80 or line != line.rstrip()]
        assert text.isascii()


def test_without_an_option_it_says_what_matters_in_thirty_lines(summary: tuple[Path, str]) -> None:
    folder, said = summary
    lines = said.splitlines()
    assert len(lines) < 29, "at a terminal two more: which record it is, and the end of the question"
    for part in (
        "     you  Approve? [y/n] ",
        "killed    the child process ended with -9 (SIGKILL)",
        "in doubt  entry 34, attempt 1 of refund: no result on record",
        "settled   entry 37, a resolution by reconcile of refund: it is done (refund_id",
    ):
        assert part in said
    assert said.count("refund(order_id=1017") == 1
    assert said.count("   agent  Done: 64.90 euros") == 2
    assert said.endswith(f"""
{COUNTS}
  gesta why demo-1-crash 41    what that answer was made from
  gesta view                   both conversations in a browser
""")
    assert [counted(str(folder / "runs.gesta"), session) for session in BOTH] == [shop.Count(fired=1, booked=1)] * 2


def test_the_commands_after_the_summary_show_the_answer_that_matters(
    summary: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = summary
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GESTA_RECORD", raising=False)
    (why,) = [anew(*shlex.split(line.split("   ")[0])[1:]) for line in said.splitlines()[-2:-1]]
    log = anew("log", BOTH[1])
    assert [why.exit_code, log.exit_code] == [0, 0]
    assert re.search(r"^41 +Conclusion .* Done: ", why.stdout, re.MULTILINE)
    assert re.search(r"^37 +. Resolution .* done ", why.stdout, re.MULTILINE)
    assert "by reconcile of refund" in log.stdout


@pytest.mark.parametrize("on_path", [False, True])
def test_commands_are_printed_as_the_person_can_type_them(
    on_path: bool, summary: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = tmp_path / "my env" / "bin" / "gesta"
    typed.parent.mkdir(parents=True)
    typed.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(typed)])
    monkeypatch.setenv("PATH", str(typed.parent if on_path else tmp_path))
    console = Typing()
    stage = Stage(Choices(record=str(summary[0] / "runs.gesta")), console)
    stage.sessions.append(BOTH[1])
    anyio.run(_close, stage)
    first = "gesta" if on_path else f"'{typed}'"
    assert console.text.startswith(f"\n  {first} why demo-1-crash")


def test_the_commands_it_ends_with_exist(
    played: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = re.findall(r"^  gesta (.*?)(?:   .*)?$", played[1], re.MULTILINE)
    assert len(printed) == len((*NEXT, *NEXT_IN_FULL))
    for command in printed:
        serves = ["--help"] if command.startswith("view") else []  # it would serve until it is stopped
        done = anew(*shlex.split(command), *serves)
        assert done.exit_code == 0, f"{command}: {done.stderr}"


# ------------------------------------------------------------------------------------------------- a live model


class Answering(BaseHTTPRequestHandler):
    """An OpenAI-compatible server that says what the replay says, so many times, and then what its address says."""

    asked = 0

    def do_POST(self) -> None:
        type(self).asked += 1
        later = self.path.split("/")[2] if self.asked > int(self.path.split("/")[1]) else ""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(401 if later == "refused" else 200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        replay = gesta.scripted(*["I cannot do that."] * 4) if later == "unhelpful" else model()
        anyio.run(self.answer, replay, asked["messages"])

    async def answer(self, replay: Model, messages: list[dict[str, Any]]) -> None:
        request = Request(
            header=RequestHeaderContent(),
            envelope=Envelope(b"", b"", b""),
            blocks=[json.dumps(message).encode() for message in messages],
            answered=sum(message["role"] == "assistant" for message in messages),
        )
        async for piece in replay.send(request):
            if isinstance(piece, Reply):
                self.wfile.write(event_of(piece))

    def log_message(self, *args: object) -> None:
        pass


def event_of(reply: Reply) -> bytes:
    """The reply as a stream of Chat Completions with one event."""
    calls = [
        {"index": place, "type": "function", "function": {"name": call.name, "arguments": call.args}}
        for place, call in enumerate(reply.calls)
    ]
    delta = {"content": reply.text, "reasoning_content": reply.thought, "tool_calls": calls or None}
    choice = {"index": 0, "delta": delta, "finish_reason": reply.finish_reason}
    return b"data: " + json.dumps({"model": reply.model, "choices": [choice]}).encode() + b"\n\ndata: [DONE]\n\n"


@pytest.fixture
def server() -> Iterator[str]:
    handler = type("Handler", (Answering,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@pytest.mark.slow
def test_a_live_model_plays_both_parts(record: str, server: str) -> None:
    console = Typing()
    assert play(Choices(record=record, yes=True, full=True, model="any", base_url=f"{server}/99/v1"), console) == 0
    assert COUNTS in console.text
    assert "live model any" in console.text
    assert "replay" not in console.text
    assert "cost      unknown\n" in console.text


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("later", "said"),
    [
        ("unhelpful", "came to the end without calling refund, so nothing was killed"),
        ("refused", "The child process ended with 1, before it was killed"),
    ],
)
def test_a_live_model_that_does_not_come_to_the_refund(record: str, server: str, later: str, said: str) -> None:
    console = Typing()
    assert play(Choices(record=record, yes=True, model="any", base_url=f"{server}/7/{later}"), console) == 1
    assert said in " ".join(console.text.split())
    assert [counted(record, session).booked for session in BOTH] == [1, 0]


def test_a_live_model_that_refuses_ends_the_demo(record: str, server: str) -> None:
    done = anew("demo", "--yes", "--record", record, "--model", "any", "--base-url", f"{server}/0/refused")
    assert done.exit_code == 1
    assert "The turn ended without an answer (failed)" in " ".join(done.stdout.split())


def test_what_cannot_be_used_is_refused_before_anything_is_made(
    record: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(NoKey, match="OPENAI_API_KEY"):
        play(Choices(record=record, model="openai:any"), Typing())
    with pytest.raises(BadAddress, match="--model"):
        play(Choices(record=record, base_url="http://localhost:1/v1"), Typing())
    for address in (":memory:", "postgresql://localhost/runs"):
        with pytest.raises(BadAddress, match=r"--record FILE\.gesta"):
            play(Choices(record=address), Typing())
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------- agent and shop


def test_without_a_shop_the_tools_say_what_to_do(record: str) -> None:
    async def ask(found: gesta.Record) -> list[str]:
        said = [await found.run(demo.agent, text, session="s-1", key=str(place)) for place, text in enumerate(MESSAGES)]
        return [outcome.answer or "" for outcome in said]

    assert opened(record, ask)[1:] == [NO_SHOP] * 3
    results = [entry.content for entry in entries(record, "s-1") if entry.kind is Kind.ToolResult]
    assert "gesta demo" in str(results[0])
    assert not list(Path(record).parent.glob("*.db"))


def test_a_refund_answers_whoever_asks_by_its_key(tmp_path: Path) -> None:
    path = tmp_path / "a.shop.db"
    shop.copy(path)
    asked = shop.Refund(key="k", order_id=1017, cents=shop.cents("64.9"), reason="broken", at=datetime.now(UTC))
    assert shop.booked_as(path, "k") is None
    booked = shop.book(path, asked)
    assert booked == {"refund_id": 1, "order_id": 1017, "amount": "64.90", "to": "card ending 4417"}
    assert shop.booked_as(path, "k") == booked
    assert shop.order(path, 1017)["refunded"] == "64.90"
    with pytest.raises(LookupError, match="No order 9"):
        shop.book(path, msgspec.structs.replace(asked, order_id=9))
    with pytest.raises(ValueError, match=r"more than the 80\.80 paid"):
        shop.book(path, msgspec.structs.replace(asked, cents=8081))
    assert shop.count(path) == shop.Count(fired=1, booked=1)


@pytest.mark.parametrize("amount", ["", "0", "-1", "1.234", "1e3", "NaN", "1,50", "64.90 euros", "٣", "9" * 5000])
def test_an_amount_is_plain_decimal_text(amount: str) -> None:
    with pytest.raises(ValueError, match="is not an amount"):
        shop.cents(amount)


def test_amounts_are_whole_cents_inside() -> None:
    assert [shop.cents(text) for text in ("0.01", "7", "19.9", "64.90", "123456789.99")] == [
        1,
        700,
        1990,
        6490,
        12345678999,
    ]
    assert [shop.euros(cents) for cents in (1, 700, 6490)] == ["0.01", "7.00", "64.90"]


def test_a_session_named_like_a_path_stays_beside_the_record() -> None:
    assert shop.place("/a/runs.gesta", "../../etc/x y") == Path("/a/runs-.._.._etc_x_y.shop.db")


def test_a_shop_that_cannot_be_copied_is_an_error_of_ours(record: str) -> None:
    shop.copy(shop.place(record, "demo-1"))
    with pytest.raises(WriteFailed, match="demo-1"):
        Stage(Choices(record=record), Typing()).open_shop("demo-1")


def test_the_shop_that_ships_is_what_its_sql_makes(tmp_path: Path) -> None:
    assert shop.ORIGINAL.stat().st_size < 100_000
    with (
        closing(sqlite3.connect(build(tmp_path / "shop.db"))) as made,
        closing(sqlite3.connect(shop.ORIGINAL)) as ships,
    ):
        assert list(made.iterdump()) == list(ships.iterdump())
        assert ships.execute("SELECT count(*) FROM customers").fetchone() == (12,)
        assert ships.execute("SELECT count(*) FROM orders").fetchone() == (30,)
        wrong = "SELECT order_id FROM payments GROUP BY 1 HAVING sum(amount_cents) != (SELECT sum(quantity * price_cents) FROM order_lines WHERE order_lines.order_id = payments.order_id)"
        assert ships.execute(wrong).fetchall() == []


# ------------------------------------------------------------------------------------------------- what it says


def test_nothing_that_is_said_can_steer_the_terminal() -> None:
    console = Typing()
    voice = Voice(console)
    voice.person(("agent", ""), "red \x1b[31malert\x07 \u202ebackwards\ud800")
    voice.note("a\x1b]0;title\x07b [bold]not markup[/bold]")
    assert not set("\x1b\x07\u202e\ud800") & set(console.text)
    assert "[bold]not markup[/bold]" in console.text


def test_no_color_means_no_styles_at_all() -> None:
    text = {}
    for no_color in (False, True):
        file = io.StringIO()
        voice = Voice(Console(file=file, width=80, force_terminal=True, no_color=no_color))
        voice.heading("Part 1")
        voice.person(("agent", "bold"), "Hello.")
        voice.fact("cost", "unknown")
        text[no_color] = file.getvalue()
    assert "\x1b[" in text[False]
    assert "\x1b" not in text[True]


def test_words_are_kept_whole_however_they_come_in() -> None:
    text = "Goods that arrive damaged are refunded in full, to the card or account that paid for them.\nThat is all."
    whole, cut = Typing(), Typing()
    Voice(whole).person(("agent", ""), text)
    voice = Voice(cut)
    for char in text:
        voice.words(char, ("agent", ""))
    voice.close()
    assert whole.text == cut.text
    assert " ".join(whole.text.split()) == "agent " + " ".join(text.split())


def test_tokens_that_nobody_counted_are_unknown() -> None:
    assert Usage().text == "unknown"
    assert Usage(answered=2, unknown=1, given=10, taken=2).text == "10 in, 2 out; 1 of 2 answers came without a count"


def test_a_body_that_is_sent_again_after_its_answer_is_counted(played: tuple[str, str]) -> None:
    record, _ = played
    found = entries(record, "demo-1")
    assert usage(found).asked == 7
    assert bought_again(found + [entry for entry in found if entry.kind is Kind.Request][:2]) == 2
