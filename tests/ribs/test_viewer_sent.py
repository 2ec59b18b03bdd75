"""What the viewer is told of requests: what was sent, what changed, what was cached, and the same for another provider."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import anyio
import httpx2
import pytest
from tests.commands import gesta_command
from tests.viewing import visited

import gesta
from gesta import kinds
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.kinds import Part
from gesta.models.providers import DIALECTS, PROVIDERS, Speaks
from gesta.policy import Compact

pytestmark = pytest.mark.sample(2, over="parent")

HOSTILE = "<script>alert(1)</script> \u202eevil"
LONG = "x" * 4_000


def talk(path: Path) -> str:
    """Write a run in which a result was left out, and then a tool was added, and return its id."""

    @gesta.tool(effect="pure")
    def look(what: str) -> str:
        """Look something up."""
        return f"{what}: {LONG}"

    @gesta.tool(effect="pure")
    def more() -> str:
        """See more."""
        return ""

    def usage(read: int, cached: int) -> dict[str, Any]:
        details = {"cached_tokens": cached, "cache_write_tokens": read - cached}
        return {"prompt_tokens": read, "completion_tokens": 9, "prompt_tokens_details": details}

    script: list[Any] = [
        gesta.reply(calls=[gesta.call("look", what=HOSTILE)], usage=usage(100, 0)),
        gesta.reply("done 0", usage=usage(1_200, 80)),
        gesta.reply(calls=[gesta.call("look", what="w1")], usage=usage(1_300, 1_200)),
        *("done 1", gesta.call("look", what="w2"), "done 2"),
    ]
    policy = gesta.Policy(compact=Compact(at_tokens=1_500, keep_turns=9, keep_results=1))
    with gesta.open_sync(path) as record:
        for turn in range(3):
            agent = gesta.Agent(
                "desk",
                model=gesta.scripted(*script),
                tools=[look, more] if turn == 2 else [look],
                policy=policy,
                instructions=HOSTILE,
                settings={"temperature": 0},
            )
            pixel = Part(type="image", data=b"\x89PNG\r\n\x1a\n", media_type="image/png", name="a.png")
            run = str(record.run(agent, [f"question {turn}: {HOSTILE}", *([] if turn else [pixel])], session="s").run)
    return run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sent") / "talk.gesta"


@pytest.fixture(scope="module")
def run(path: Path) -> str:
    return talk(path)


@pytest.fixture(scope="module")
def client(run: str, path: Path) -> Iterator[httpx2.Client]:
    assert run
    with visited(path) as opened:
        yield opened


def test_every_request_is_listed_with_its_reply_and_what_the_provider_had_in_its_cache(
    client: httpx2.Client, run: str
) -> None:
    listed = client.get(f"/api/0/runs/{run}/requests").json()
    rows = listed["requests"]
    assert listed["total"] == len(rows) == 6
    assert [row["turn"] for row in rows] == [1, 1, 2, 2, 3, 3]
    assert [(row["tokens"]["input"], row["tokens"]["cache_read"]) for row in rows[:3]] == [
        (100, 0),
        (1200, 80),
        (1300, 1200),
    ]
    assert [row.get("compacted", False) for row in rows] == [False, False, False, True, False, True]
    part = client.get(f"/api/0/runs/{run}/requests", params={"after": 4, "limit": 1}).json()
    assert (part["requests"], part["total"]) == (rows[4:5], 6)


def asked(client: httpx2.Client, run: str) -> list[int]:
    return [row["seq"] for row in client.get(f"/api/0/runs/{run}/requests").json()["requests"]]


def test_a_request_is_told_in_the_words_of_the_command_line(client: httpx2.Client, run: str, path: Path) -> None:
    for seq in asked(client, run):
        facts = client.get(f"/api/0/runs/{run}/requests/{seq}").json()
        wire = client.get(f"/api/0/runs/{run}/requests/{seq}/wire").json()
        shown = [
            gesta_command("show", run, str(seq), "--json", "--record", str(path), *more).stdout
            for more in (["--diff"], ["--wire"])
        ]
        diff, whole = map(json.loads, shown)
        assert {name: facts[name] for name in diff if name not in ("added", "lost", "steps", "tokens")} == {
            name: value for name, value in diff.items() if name not in ("added", "lost", "steps", "tokens")
        }
        assert {each["name"]: each["number"] for each in facts["lost"]} == diff["lost"]
        assert [each["change"] for each in facts["steps"]] == [each["change"] for each in diff["steps"]]
        assert json.loads(wire.pop("body")) == whole.pop("body")
        assert wire.pop("characters")
        assert wire == whole


def test_each_changed_message_comes_with_what_it_was_and_long_ones_are_cut(client: httpx2.Client, run: str) -> None:
    facts = client.get(f"/api/0/runs/{run}/requests/{asked(client, run)[3]}").json()
    changed = facts["steps"][0]
    assert (changed["change"], changed["message"]["role"]) == ("changed", "tool")
    assert "left out to save space" in changed["message"]["text"]
    assert (len(changed["before"]["text"]), changed["before"]["more"]) == (2_000, True)
    place = changed["before"]["place"]
    at = f"/api/0/runs/{run}/requests/{facts['request']}/messages"
    assert LONG in client.get(f"{at}/{place}", params={"before": 1}).json()["text"]
    assert "left out" in client.get(f"{at}/{place}").json()["text"]
    every = client.get(at).json()
    assert [each["place"] for each in every] == list(range(facts["messages"]))
    assert client.get(at, params={"after": 2, "limit": 3}).json() == every[2:5]
    header = client.get(f"/api/0/runs/{run}/requests/{facts['request']}/header").json()
    assert (header["meta"]["instructions"], [tool["name"] for tool in header["tools"]]) == (HOSTILE, ["look"])


def test_the_exact_bytes_are_a_file_and_their_digest_is_that_on_record(client: httpx2.Client, run: str) -> None:
    for seq in asked(client, run):
        body = client.get(f"/api/0/runs/{run}/requests/{seq}/body")
        entry = client.get(f"/api/0/runs/{run}/entries/{seq}").json()
        assert hashlib.sha256(body.content).hexdigest() == entry["content"]["body_digest"]
        assert body.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("way", "lost"),
    [
        ({"as": "openai-responses:gpt-x"}, {"settings"}),
        ({"as": "anthropic:claude-x", "form": "react-text"}, {"settings", "calls-in-words"}),
        ({"as": "google:gemini-x"}, {"settings"}),
        ({"as": "openai:gpt-x", "whole": "1"}, {"settings"}),
    ],
)
def test_another_provider_gets_the_same_words_and_what_cannot_be_said_there_is_named(
    client: httpx2.Client, run: str, way: dict[str, str], lost: set[str]
) -> None:
    at = f"/api/0/runs/{run}/requests/{asked(client, run)[-1]}"
    facts, wire = client.get(at, params=way).json(), client.get(f"{at}/wire", params=way).json()
    assert facts["anew"]
    assert {each["name"] for each in facts["lost"]} - {"left-out"} == lost
    assert wire["url"].startswith("https://")
    assert "question 2" in wire["body"]
    assert "\u202e" not in wire["body"]
    assert wire["body"].count(LONG) == (3 if "whole" in way else 1)


def test_every_provider_is_offered_under_the_name_of_its_dialect(client: httpx2.Client) -> None:
    offered = client.get("/api/0/ways").json()["dialects"]
    assert {*DIALECTS} == {*get_args(Speaks)}, "the viewer offers no provider of a dialect that DIALECTS lacks"
    assert [each["name"] for each in offered] == [*DIALECTS.values()]
    assert sorted(name for each in offered for name in each["providers"]) == sorted(PROVIDERS)


def test_a_long_body_comes_in_parts(client: httpx2.Client, run: str) -> None:
    at = f"/api/0/runs/{run}/requests/{asked(client, run)[-1]}/wire"
    whole = client.get(at).json()
    assert client.get(at, params={"after": 100}).json()["body"] == whole["body"][100:]


@pytest.mark.parametrize(
    ("place", "way", "said"),
    [
        ("9999", {}, "has no entry 9999"),
        ("9" * 30, {}, "nothing at this address"),
        ("1", {"as": "nobody:x"}, "nobody"),
        ("1", {"form": "nothing"}, "No formatter 'nothing'"),
        ("1/messages/99", {}, "no message 99"),
        ("1/messages/0", {"before": "1"}, "no message 0"),
    ],
)
def test_a_request_that_is_not_there_is_said(
    client: httpx2.Client, run: str, place: str, way: dict[str, str], said: str
) -> None:
    answer = client.get(f"/api/0/runs/{run}/requests/{place}", params=way)
    assert answer.status_code in (400, 404)
    assert said in answer.json()["error"]["message"]


def test_of_an_imported_run_the_requests_are_those_that_gesta_would_send(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Is it on its way?"},
        {"role": "assistant", "content": "Let me look."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "Yes."},
    ]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": messages}))
    path = tmp_path / "runs.gesta"
    assert gesta_command("import", str(tmp_path / "chat.jsonl"), "--record", str(path)).exit_code == 0
    with visited(path) as client:
        rows = client.get("/api/0/runs/last/requests").json()["requests"]
        assert [row["on_record"] for row in rows] == [False, False]
        facts = client.get(f"/api/0/runs/last/requests/{rows[1]['seq']}").json()
        assert (facts["place"], facts["anew"], facts["kept"]) == (1, True, 1)
        assert [step["message"]["text"] for step in facts["steps"]] == ["Let me look.", "And?"]


class Own(ReActHistoryFormatter):
    """A formatter of a program's own."""


def test_a_request_of_a_formatter_of_one_s_own_is_shown_in_a_form_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "own.gesta"
    gesta.run_sync(gesta.Agent("desk", gesta.scripted("Hi."), formatter=Own()), "Hello", record=path)
    with visited(path) as client:
        (row,) = client.get("/api/0/runs/last/requests").json()["requests"]
        facts = client.get(f"/api/0/runs/last/requests/{row['seq']}").json()
        assert (facts["unknown_form"], facts["form"]) == ("Own/1", "tool-calls")
        assert facts["steps"][0]["message"]["text"] == "Hello"

    async def write() -> None:
        async with gesta.open(tmp_path / "odd.gesta") as record, record.span("odd", session="s") as span:
            span.write(kinds.UserContent(value="Hello"))
            span.write(kinds.RequestHeaderContent(meta={"model": "mine"}))
            span.write(kinds.RequestContent(header=3, blocks=[[[2], "own/9+own/7"]], body_digest="-"))

    anyio.run(write)
    with visited(tmp_path / "odd.gesta") as client:
        facts = client.get("/api/0/runs/last/requests/4").json()
        assert (facts["unknown_form"], facts["model"], facts["as_sent"]) == ("own/9", "mine", False)
        assert facts["steps"][0]["message"]["text"] == "Hello"


def test_odd_entries_are_shown_or_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.gesta"
    odd = {"n": 10**5000, "f": float("nan"), "\ud800": "\ud800"}
    with gesta.open_sync(path) as record, record.span("odd", session="s") as span:
        span.log(kinds.RequestHeaderContent(tools=[{"name": 5}], meta={"model": {"a": 1}, "instructions": ["x"]}))
        span.log(kinds.UserContent(value="\ud800 hi", parts=[kinds.Part(type="file", url="javascript:alert(1)")]))
        span.log(kinds.ChatCompletionContent(output="", usage={"prompt_tokens": "x"}, latency_ms=float("nan")))
        span.log(kinds.ToolCallContent(tool_name="look", tool_args=odd))
        span.log(kinds.ToolResultContent(tool_result=odd, call=5))
        span.log(kinds.ChatCompletionContent(output="done"))
    with visited(path) as client:
        rows = client.get("/api/0/runs/last/requests").json()["requests"]
        for part in ("", "/messages", "/wire", "/header", "/body"):
            assert client.get(f"/api/0/runs/last/requests/{rows[1]['seq']}{part}").status_code == 200, part
        (noted,) = client.get("/api/0/runs/last/requests/6", params={"as": "anthropic:x"}).json()["lost"][-1:]
        assert noted["name"] == "file-in-words"
        broken = client.get("/api/0/runs/last/requests/6", params={"form": "react-text"})
        assert "a member before it is not of its type" in broken.json()["error"]["message"]
        for form in ("activity", "steps", "task", "react", "codeact", "why"):
            assert client.get(f"/api/0/runs/last/forms/{form}").status_code == 200, form
            assert client.get(f"/api/0/runs/last/forms/{form}/lines").status_code == 200, form
