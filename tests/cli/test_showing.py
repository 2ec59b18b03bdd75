"""`gesta show`: an entry as it stands, the request as it was sent, what it added, and what broke the cache."""

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.cli.conftest import Gesta

import gesta
import gesta as door
from gesta.address import FORMATTERS, open_record
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.kinds import ToolCallContent, UserContent
from gesta.models.chat_completions import ChatDialect
from gesta.policy import Compact
from gesta.record.record import Record

pytestmark = pytest.mark.sample(2, over="parent")

LONG = "x" * 4_000


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of a conversation in which a result was left out, and then a tool was added."""
    monkeypatch.chdir(tmp_path)

    @gesta.tool(effect="pure")
    def look(what: str) -> str:
        """Look something up."""
        return f"{what}: {LONG}"

    @gesta.tool(effect="pure")
    def more() -> str:
        """See more."""
        return ""

    script = [each for turn in range(3) for each in (gesta.call("look", what=f"w{turn}"), f"done {turn}")]
    policy = gesta.Policy(compact=Compact(at_tokens=1_500, keep_turns=9, keep_results=1))

    async def main() -> None:
        async with open_record("runs.gesta") as record:
            for turn in range(3):
                tools = [look, more] if turn == 2 else [look]
                agent = gesta.Agent("desk", model=gesta.scripted(*script), tools=tools, policy=policy)
                await record.run(agent, f"question {turn}", session="s")

    anyio.run(main)
    return tmp_path


def seqs(path: Path, kind: str) -> list[int]:
    async def read(record: Record) -> list[int]:
        return [entry.seq for entry in await record.read((await record.find("last")).run) if entry.kind == kind]

    async def main() -> list[int]:
        async with open_record(str(path / "runs.gesta"), readonly=True) as record:
            return await read(record)

    return anyio.run(main)


def test_the_body_is_made_again_and_checked(gesta: Gesta, talk: Path) -> None:
    for seq in seqs(talk, "request"):
        done = gesta("show", "last", str(seq), "--wire", "--json")
        told = json.loads(done.stdout)
        assert told["as_sent"] is True
        assert (told["request"], told["url"]) == (seq, None), "a model that needs no key has no address"
        assert told["body"]["messages"][0]["content"] == "question 0"
    shown = gesta("show")
    assert "the bytes are those whose digest is on record" in shown.stderr
    assert json.loads(shown.stdout.partition("\n\n")[2]) == told["body"]
    assert "call-id" not in shown.stderr, "a call that had no id of its own loses nothing when one is made for it"


def test_what_a_request_added_and_from_what(gesta: Gesta, talk: Path) -> None:
    first, second, *_ = seqs(talk, "request")
    assert "the first: 1 message" in gesta("show", "last", str(first), "--diff").stdout
    done = gesta("show", "last", str(second), "--diff")
    assert f"request {second} after request {first}: 1 of 3 messages as they were" in done.stdout
    assert "+ assistant from entries" in done.stdout
    assert "+ tool from entry" in done.stdout
    told = json.loads(gesta("show", "last", str(second), "--diff", "--json").stdout)
    assert [each["role"] for each in told["added"]] == ["assistant", "tool"]
    assert told["tokens"] is None, "a scripted model counts none"


def test_what_was_left_out_and_what_changed_is_named(gesta: Gesta, talk: Path) -> None:
    (compaction, *_), requests = seqs(talk, "compaction"), seqs(talk, "request")
    after = next(seq for seq in requests if seq > compaction)
    told = gesta("show", "last", str(after), "--diff").stdout
    assert f"not repeated: left out by entry {compaction}" in told
    whole = json.loads(gesta("show", "last", str(after), "--wire", "--whole", "--json").stdout)
    assert LONG in json.dumps(whole["body"])
    assert whole["as_sent"] is False
    changed = [json.loads(gesta("show", "last", str(seq), "--diff", "--json").stdout)["changed"] for seq in requests]
    assert ["tools (+more)"] in changed


@pytest.mark.parametrize("form", ["react-text", "codeact-text", "json-text", "transcript", "tool-calls"])
def test_a_request_is_made_for_another_form_and_provider_and_what_is_lost_is_told(
    gesta: Gesta, talk: Path, form: str
) -> None:
    done = gesta("show", "--as", form, "--model", "anthropic:claude-x", "--json")
    told = json.loads(done.stdout)
    assert told["url"] == "https://api.anthropic.com/v1/messages"
    assert told["body"]["model"] == "claude-x"
    assert told["lost"].get("calls-in-words", 0) == (0 if form == "tool-calls" else 3)
    assert ("tools" in told["body"]) == (form == "tool-calls")
    if form != "tool-calls":
        assert "not shown: 3 x calls-in-words" in gesta("show", "--as", form).stderr
    assert gesta("show", "--as", "nope").exit_code == 2
    assert gesta("show", "--model", "nope:x").exit_code == 2


def test_each_message_after_the_first_change_says_what_became_of_it(gesta: Gesta, talk: Path) -> None:
    (compaction, *_), requests = seqs(talk, "compaction"), seqs(talk, "request")
    first, after = requests[0], next(seq for seq in requests if seq > compaction)
    told = json.loads(gesta("show", "last", str(after), "--diff", "--json").stdout)
    assert [step["change"] for step in told["steps"]] == ["changed", "again", "again", "added", "added"]
    assert told["steps"][0] == {"change": "changed", "place": told["kept"], "was": told["kept"]}
    assert told["left_out_by"] == [compaction]
    assert 0 < told["same_bytes"] < told["bytes"]
    told = json.loads(gesta("show", "last", str(first), "--diff", "--json").stdout)
    assert (told["steps"], told["same_bytes"]) == ([{"change": "added", "place": 0}], 0)


def test_settings_of_another_provider_are_named(gesta: Gesta, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_record(str(tmp_path / "runs.gesta")) as opened:
            agent = gesta_agent(door.scripted("hi"))
            await opened.run(msgspec.structs.replace(agent, settings={"reasoning_effort": "low"}), "hi")

    anyio.run(main)
    assert json.loads(gesta("show", "--json").stdout)["lost"] == {}
    assert json.loads(gesta("show", "--model", "anthropic:x", "--json").stdout)["lost"] == {"settings": 1}


def test_what_a_request_added_tells_also_what_is_lost_elsewhere(gesta: Gesta, talk: Path) -> None:
    done = gesta("show", "--diff", "--as", "react-text")
    assert "not shown: 3 x calls-in-words" in done.stderr
    told = json.loads(gesta("show", "--diff", "--as", "react-text", "--json").stdout)
    assert told["lost"]["calls-in-words"] == 3
    done = gesta("show", "--diff", "--model", "anthropic:claude-x")
    assert "not shown: 2 x left-out" in done.stderr


def test_messages_that_were_made_from_one_entry_are_told_apart(gesta: Gesta, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_record(str(tmp_path / "runs.gesta")) as opened, opened.span("desk", session="s") as span:
            span.log(UserContent(value="Is it dry?"))
            span.log(ToolCallContent(tool_name="look", tool_args={"what": "sky"}, status="success"))

    anyio.run(main)
    told = gesta("show", "--as", "tool-calls", "--diff").stdout
    assert "calls look" in told.partition("+ assistant from entry 3")[2].partition("+ tool from entry 3")[0]
    assert told.count("calls look") == 1


def test_an_imported_run_is_shown_in_every_form_as_it_would_be_asked_next(gesta: Gesta, tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "order", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Is it on its way?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
        {"role": "assistant", "content": "Yes."},
    ]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": messages}))
    gesta("import", str(tmp_path / "chat.jsonl"))
    assert gesta("show").exit_code == 2, "nothing was asked"
    for form in FORMATTERS:
        told = json.loads(gesta("show", "--as", form, "--json").stdout)
        assert "shipped" in json.dumps(told["body"]["messages"])
    told = json.loads(gesta("show", "--model", "google:gemini-x", "--json").stdout)
    assert [content["role"] for content in told["body"]["contents"]] == ["user", "model", "user", "model", "user"]


def test_an_entry_is_shown_as_it_stands(gesta: Gesta, talk: Path) -> None:
    (seq, *_) = seqs(talk, "compaction")
    told = json.loads(gesta("show", "last", str(seq), "--json").stdout)
    assert told["kind"] == "compaction"
    assert set(told["content"]) >= {"from_seq", "to_seq"}
    assert 'kind: "compaction"' in gesta("show", "last", str(seq)).stdout
    (talk / "runs.gesta").rename(talk / "talk.gesta")
    assert json.loads(gesta("show", "last", str(seq), "--record", "talk.gesta", "--json").stdout) == told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("last", "9999"), "there is no entry 9999"),
        (("last", "1", "--wire"), "There is no request to show. None stands before entry 1"),
    ],
)
def test_what_is_not_there_is_said(gesta: Gesta, talk: Path, words: tuple[str, ...], said: str) -> None:
    done = gesta("show", *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_the_address_and_the_headers_of_a_live_model_are_shown_without_its_key(
    gesta: Gesta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    dialect = ChatDialect("gpt-x", {"temperature": 0})

    class Live:
        name, encoder = "openai:gpt-x", dialect.encoder
        encode, envelope, parser = staticmethod(dialect.encode), staticmethod(dialect.envelope), dialect.parser

        async def send(self, request):
            yield json.dumps({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]}).encode()

    async def main() -> None:
        async with open_record("runs.gesta") as record:
            await record.run(gesta_agent(Live()), "Hello")

    anyio.run(main)
    done = gesta("show", "--wire")
    assert "POST https://api.openai.com/v1/chat/completions" in done.stdout
    assert "authorization: Bearer <OPENAI_API_KEY>" in done.stdout
    assert "secret" not in done.stdout
    assert "NOT the bytes that were sent: settings" in done.stderr, "temperature is in the program alone"


def gesta_agent(model: object) -> gesta.Agent:
    return gesta.Agent("desk", model=model)  # type: ignore[arg-type]


class Own(ReActHistoryFormatter):
    """A formatter of a program's own."""


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_a_request_of_any_formatter_is_made_again(gesta: Gesta, tmp_path: Path, formatter: str) -> None:
    record(tmp_path, formatter)
    assert json.loads(gesta("show", "--json").stdout)["as_sent"] is True
    assert "the first: 1 message" in gesta("show", "--diff").stdout


def test_one_of_a_formatter_of_one_s_own_can_be_shown_in_another_form(gesta: Gesta, tmp_path: Path) -> None:
    record(tmp_path, Own())
    done = gesta("show")
    assert done.exit_code == 2
    assert "a formatter of the program's own, 'Own/1'. Add --as tool-calls" in done.stderr
    assert gesta("show", "--as", "tool-calls").exit_code == 0


def record(path: Path, formatter: Any) -> None:
    async def main() -> None:
        async with open_record(str(path / "runs.gesta")) as opened:
            await opened.run(gesta.Agent("desk", model=gesta.scripted("hi"), formatter=formatter), "hi")

    anyio.run(main)


def test_a_fork_is_shown_from_its_first_entry_on_with_what_it_shares(gesta: Gesta, talk: Path):
    def shown(name: str, *words: str) -> Any:
        return json.loads(gesta("show", name, *words, "--json").stdout)

    entries = [json.loads(line) for line in gesta("log", "s", "--json").stdout.splitlines()]
    requests = [entry["seq"] for entry in entries if entry["content"]["kind"] == "request"]
    ends = [entry["seq"] for entry in entries if entry["content"]["kind"] == "end"]
    assert gesta("fork", "s", "--at", str(ends[1]), "-s", "f").exit_code == 0
    assert gesta("fork", "f", "--at", str(ends[1] + 2), "-s", "g").exit_code == 0
    base = {seq: shown("s", str(seq)) for seq in range(1, ends[1] + 1)}
    for name in ("f", "g"):
        for seq, entry in base.items():
            found = shown(name, str(seq))
            assert (found["content"], found["at"], found["causes"]) == (entry["content"], entry["at"], entry["causes"])
        assert shown(name, str(ends[1] + 1))["content"]["opened"]["session"] == "f"
        wire = shown(name, "--wire")
        assert (wire["request"], wire["as_sent"]) == (requests[3], True)
        assert wire["digest"] == shown("s", str(requests[3]), "--wire")["digest"]
        diff = shown(name, "--diff")
        assert (diff["request"], diff["before"]) == (requests[3], requests[2])
        assert f"after request {requests[2]}" in gesta("show", name, "--diff").stdout
    assert shown("g", str(ends[1] + 3))["content"]["opened"]["base"]["seq"] == ends[1] + 2
    done = gesta("show", "g", "99")
    assert done.exit_code == 2
    assert f"has {ends[1] + 4} entries; there is no entry 99. Name one from 1 to {ends[1] + 4}." in done.stderr
