"""The viewer: who gets in, and what its pages are told of a record."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.commands import gesta_command
from tests.viewing import TOKEN, viewed

import gesta
from gesta.entry import Entry
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Content,
    Error,
    FaultContent,
    KeyValueContent,
    UserContent,
)
from gesta.views.lines import line, needed
from gesta.web.app import STATIC
from gesta.web.gate import POLICY

pytestmark = pytest.mark.sample(2, over="parent")

HOSTILE = "<script>alert(1)</script> \u202eevil"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the record of the demo: one conversation, and the same one killed in the middle."""
    path = tmp_path_factory.mktemp("view") / "shop.gesta"
    assert gesta_command("demo", "--yes", "--record", str(path)).exit_code == 0
    return path


@pytest.fixture(scope="module")
def address(record: Path) -> Iterator[str]:
    with viewed(record) as at:
        yield at


@pytest.fixture
def client(address: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=address, follow_redirects=True) as opened:
        assert opened.get("/", params={"token": TOKEN}).status_code == 200
        yield opened


def crashed(client: httpx2.Client) -> str:
    """Return the id of the run that was killed."""
    found = client.get("/api/0/sessions").json()["sessions"]
    return str(next(each["runs"][0] for each in found if each["name"].endswith("crash")))


def test_only_a_browser_with_the_token_gets_in(address: str) -> None:
    assert httpx2.get(f"{address}/api/records").status_code == 401
    assert httpx2.get(f"{address}/", params={"token": "another"}).status_code == 401
    assert "gesta view" in httpx2.get(f"{address}/").text


def test_a_browser_without_the_token_gets_a_page_that_says_so_and_nothing_of_the_record(address: str) -> None:
    refused = httpx2.get(f"{address}/r/0", headers={"accept": "text/html,*/*"})
    assert (refused.status_code, refused.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "<h1>This page is closed</h1>" in refused.text
    assert httpx2.get(f"{address}/static/style.css").status_code == 200
    assert httpx2.get(f"{address}/static/style.css", headers={"host": "evil.example"}).status_code == 403
    assert {httpx2.get(f"{address}/static/{each}").status_code for each in ("app.js", "gesta.js", "x.css")} == {401}


def test_the_token_leaves_the_address_for_a_cookie_that_no_script_reads(address: str) -> None:
    answer = httpx2.get(f"{address}/r/0", params={"token": TOKEN, "words": "lamp"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/r/0?words=lamp")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
    ],
)
def test_a_request_of_another_site_is_refused(client: httpx2.Client, headers: dict[str, str]) -> None:
    assert client.get("/api/records", headers=headers).status_code == 403


def test_every_answer_forbids_scripts_from_elsewhere(client: httpx2.Client) -> None:
    for path in ("/", "/static/app.js", "/api/records", "/api/0/runs/nothing"):
        assert client.get(path).headers["content-security-policy"] == POLICY
        assert client.get(path).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["../app.py", "..%2Fgate.py", "app.jsx", "nothing.js", "app.js/"])
def test_no_file_but_those_of_the_pages_is_sent(client: httpx2.Client, name: str) -> None:
    answer = client.get(f"/static/{name}")
    assert "gesta" not in answer.text or answer.headers["content-type"].startswith("text/html")


@pytest.mark.slow
def test_the_pages_load_nothing_from_elsewhere_and_are_small(client: httpx2.Client) -> None:
    names = [each.name for each in STATIC.iterdir() if each.name.endswith((".js", ".css"))]
    files = {name: client.get(f"/static/{name}").text for name in names}
    assert all("http://" not in text.replace("http://www.w3.org/2000/svg", "") for text in files.values())
    assert all(word not in text for text in files.values() for word in ("https://", "innerHTML", "eval("))
    assert sum(len(text) for text in files.values()) < 300_000


def test_a_page_asks_for_one_script_once(client: httpx2.Client) -> None:
    page = client.get("/").text
    (address,) = re.findall(r'<script defer src="(/static/gesta\.js\?[0-9a-f]{16})"></script>', page)
    answer = client.get(address)
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")
    assert 'modules["app.js"]' in answer.text and "import " not in re.sub(r"//.*", "", answer.text).partition("\n")[0]
    assert "immutable" not in client.get("/static/gesta.js").headers.get("cache-control", "")


def test_sessions_are_listed_and_found_by_words_state_and_agent(client: httpx2.Client) -> None:
    def names(**wanted: str) -> list[str]:
        return [each["name"] for each in client.get("/api/0/sessions", params=wanted).json()["sessions"]]

    assert names() == ["demo-1-crash", "demo-1"]
    assert names(limit="1", after="1") == ["demo-1"]
    assert names(stands="failed") == []
    assert names(stands="answered") == names(agent="support") == names(words="brass") == names()
    assert names(words="nobody") == []


def test_a_run_at_a_glance_tells_its_turns_its_death_and_what_happened_once(client: httpx2.Client) -> None:
    glance = client.get(f"/api/0/runs/{crashed(client)}").json()
    assert [(turn["number"], turn["key"], turn["reason"], turn["deaths"]) for turn in glance["turns"]] == [
        (1, "m0", "answered", 0),
        (2, "m1", "answered", 0),
        (3, "m2", "answered", 1),
        (4, "m3", "answered", 0),
    ]
    counts = {name: glance["totals"][name] for name in ("effects", "doubts", "settled", "errors", "deaths")}
    assert counts == {"effects": {"refund": 1}, "doubts": 1, "settled": 1, "errors": 0, "deaths": 1}
    assert [bar["tone"] for bar in glance["bars"] if bar["lane"] == "process" and "tone" in bar] == ["fault"]
    assert all(bar["end"] >= bar["start"] for bar in glance["bars"])


def test_the_story_of_a_doubt_is_told_in_sentences_that_belong_to_its_call(client: httpx2.Client) -> None:
    lines = client.get(f"/api/0/runs/{crashed(client)}/lines").json()
    call = next(each for each in lines if each.get("tool") == "refund")
    told = [each["text"] for each in lines if each.get("of") == call["seq"] and each["part"] == "story"]
    assert told[0] == "A person was asked whether it may run."
    assert told[2:] == [
        "Attempt 1 was written down before the tool ran.",
        "The process that ran it is known to have ended.",
        "reconcile of refund settled the doubt: it had happened.",
    ]


def test_a_page_in_the_middle_of_a_run_says_the_same_as_the_whole(client: httpx2.Client) -> None:
    run = crashed(client)
    whole = client.get(f"/api/0/runs/{run}/lines", params={"limit": 1000}).json()
    for first in range(0, len(whole), 5):
        assert (
            client.get(f"/api/0/runs/{run}/lines", params={"after": first, "limit": 5}).json()
            == whole[first : first + 5]
        )


def test_an_answer_is_explained_with_the_words_that_it_drew_on(client: httpx2.Client) -> None:
    found = client.get(f"/api/0/runs/{crashed(client)}/why", params={"entry": 41}).json()
    answer = found["nodes"][-1]["text"]
    assert "card ending 4417" in {answer[each["at"] : each["to"]] for each in found["drawn"]}
    assert found["complete"]


def test_one_entry_is_shown_whole(client: httpx2.Client) -> None:
    entry = client.get(f"/api/0/runs/{crashed(client)}/entries/31").json()
    assert entry["content"]["tool_args"] == {"order_id": 1017, "amount": "64.90", "reason": "broken shade"}


def test_what_is_not_there_is_said(client: httpx2.Client) -> None:
    run = crashed(client)
    for path in (
        "/api/0/runs/nothing",
        f"/api/0/runs/{run}/entries/999",
        "/api/7/sessions",
        f"/api/0/runs/{run}/entries/{10**30}",
        f"/api/0/runs/{run}/why?entry=999",
        f"/api/0/runs/{run}/graph?entry=999",
        f"/api/0/runs/{run}/forms/why?entry=999",
    ):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"]["message"]


def test_new_entries_come_as_events_and_a_client_that_comes_back_misses_none(tmp_path: Path) -> None:
    path = tmp_path / "live.gesta"
    agent = gesta.Agent("desk", model=gesta.scripted("One.", "Two.", "Three."))
    first = gesta.run_sync(agent, "First", record=path, session="s")
    with viewed(path) as at, httpx2.Client(base_url=at, follow_redirects=True, timeout=10) as client:
        client.get("/", params={"token": TOKEN})

        def heard(after: str | None, until: str) -> tuple[list[dict[str, Any]], str]:
            lines, last = list[dict[str, Any]](), ""
            headers = {"last-event-id": after} if after else {}
            with client.stream(
                "GET", "/api/0/follow", params={"run": first.run, "after": "0"}, headers=headers
            ) as sent:
                for each in sent.iter_lines():
                    if each.startswith("id: "):
                        last = each.removeprefix("id: ")
                    elif each.startswith("data: "):
                        lines += json.loads(each.removeprefix("data: "))
                        if any(line["kind"] == "end" and line["seq"] > int(until) for line in lines):
                            return lines, last
            raise AssertionError("the stream ended")

        early, place = heard(None, "0")
        gesta.run_sync(agent, "Second", record=path, session="s")
        late, _ = heard(place, str(early[-1]["seq"]))
    assert [line["seq"] for line in early + late] == list(range(1, late[-1]["seq"] + 1))


@pytest.mark.anyio
async def test_odd_entries_become_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "odd.gesta"
    async with gesta.open(path) as record, record.span(HOSTILE, session=HOSTILE) as span:
        span.log(UserContent(value=HOSTILE * 1000, user_id=HOSTILE))
        span[HOSTILE] = {HOSTILE: [[[[[[[[[[HOSTILE]]]]]]]]]], "many": list(range(1000))}
        span.log(AssistantContent(value="\ud800 lone"))

    def looked() -> list[dict[str, Any]]:
        with viewed(path) as at, httpx2.Client(base_url=at, follow_redirects=True) as client:
            client.get("/", params={"token": TOKEN})
            (session,) = client.get("/api/0/sessions").json()["sessions"]
            return list(client.get(f"/api/0/runs/{session['runs'][0]}/lines").json())

    lines = await anyio.to_thread.run_sync(looked)
    assert [line["kind"] for line in lines] == ["begin", "user", "key-value", "assistant", "end"]
    assert (len(lines[1]["text"]), lines[1]["more"], lines[2]["more"]) == (4000, True, True)


def test_the_type_of_a_fault_is_a_text_and_no_format() -> None:
    error = Error(type="{background} {0.__class__}", message="{x}")
    entry = Entry(run="r", seq=3, at=datetime.now(UTC), span=1, content=FaultContent(of=2, error=error))
    assert line(entry, {}).text == "{background} {0.__class__}: {x}."


def test_view_names_a_record_that_is_not_there() -> None:
    missing = gesta_command("view", "nowhere.gesta", "--no-open")
    assert missing.exit_code == 2
    assert "No record at 'nowhere.gesta'" in missing.stderr


def test_a_reply_that_says_more_than_the_answer_taken_from_it_is_told_apart() -> None:
    def entry(seq: int, content: Content, causes: tuple[int, ...] = ()) -> Entry:
        return Entry(run="run", seq=seq, at=datetime.now(UTC), span=1, content=content, causes=causes)

    for output, value, differs in (
        ("Loaded. Error 400: filtered. FINAL ANSWER: 2", "2", True),
        ("2 \n", "2", False),
        ('{"birds": 2}', '{"birds":2}', False),
        ("", "2", False),
    ):
        reply, answer = entry(5, ChatCompletionContent(output=output)), entry(6, AssistantContent(value=value), (5,))
        assert needed(answer) >= {5}
        assert (line(answer, {5: reply}).spoken, line(answer, {5: reply}).differs) == (5, differs)


def test_a_note_names_the_entry_that_it_was_made_from() -> None:
    blame = KeyValueContent(key="mistake", value={"mistake_step": "4"})
    made = Entry(run="run", seq=46, at=datetime.now(UTC), span=1, content=blame, causes=(15,))
    assert (line(made, {}).part, line(made, {}).of) == ("note", 15)
