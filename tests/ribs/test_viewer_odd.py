"""The viewer and what is odd: names of hosts, addresses that mean nothing, runs that are pruned, damaged new entries."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import apsw
import httpx2
import pytest
from starlette.responses import PlainTextResponse
from tests.commands import gesta_command
from tests.viewing import TOKEN, visited

import gesta
from gesta.compat.forms import FORMS
from gesta.web.app import Viewer
from gesta.web.data import Pages
from gesta.web.forms import WHY
from gesta.web.gate import Gate

pytestmark = [pytest.mark.anyio, pytest.mark.sample(2, over="parent")]


@gesta.tool(effect="once", approval=True)
def pay(order: int) -> str:
    """Pay."""
    return f"paid {order}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file of a record with two sessions."""
    with gesta.open_sync(tmp_path / "shop.gesta") as record:
        for session in ("anna", "bob"):
            agent = gesta.Agent("desk", model=gesta.scripted(f"Lamps for {session}."))
            record.run(agent, "What is there?", session=session)
    return tmp_path / "shop.gesta"


@pytest.fixture
def client(path: Path) -> Iterator[httpx2.Client]:
    with visited(path) as opened:
        yield opened


def runs(client: httpx2.Client) -> dict[str, str]:
    return {each["name"]: each["runs"][0] for each in client.get("/api/0/sessions").json()["sessions"]}


@pytest.mark.parametrize(
    ("host", "hosts", "status"),
    [
        ("[::1]", (), 200),
        ("localhost", (), 200),
        ("[fe80::1]:8421", ("fe80::1",), 200),
        ("records.example", ("records.example",), 200),
        ("Records.Example:80", ("records.example",), 200),
        ("evil.example", ("",), 403),
        ("evil.example", ("records.example",), 403),
    ],
)
async def test_a_host_is_known_with_and_without_its_port(host: str, hosts: tuple[str, ...], status: int) -> None:
    gate = Gate(PlainTextResponse("open"), TOKEN, hosts)
    transport = httpx2.ASGITransport(app=gate)
    async with httpx2.AsyncClient(transport=transport, base_url="http://gate") as browser:
        opened = await browser.get("/", params={"token": TOKEN}, headers={"host": host})
        if status == 200:
            cookie = opened.headers["set-cookie"].partition(";")[0]
            opened = await browser.get("/", headers={"host": host, "cookie": cookie})
    assert opened.status_code == status


async def test_the_address_without_its_token_says_the_same() -> None:
    gate, said = Gate(PlainTextResponse("open"), TOKEN), {"words": ["a&b=c #d"], "agent": ["é"]}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=gate), base_url="http://localhost") as browser:
        moved = await browser.get("/0/a%20%3Fb", params={"token": TOKEN, **said})
    assert parse_qs(urlsplit(moved.headers["location"]).query) == said
    assert urlsplit(moved.headers["location"]).path == "/0/a%20%3Fb"


def test_an_address_that_means_nothing_is_answered_with_404(client: httpx2.Client) -> None:
    run = runs(client)["anna"]
    for place in (
        "nothing",
        f"{'9' * 5000}/waiting",
        f"0/runs/{run}/entries/{'9' * 5000}",
        f"0/runs/{run}/entries/0",
        f"0/runs/{run}%2Fodd",
        "0/runs/nothing/why",
    ):
        found = client.get(f"/api/{place}")
        assert found.status_code == 404, place
        assert found.json()["error"]["message"], place


def test_a_run_that_was_pruned_is_explained_no_more(client: httpx2.Client, path: Path) -> None:
    run = runs(client)["anna"]
    assert "Lamps for anna." in client.get(f"/api/0/runs/{run}/why").text
    assert gesta_command("prune", run, "--yes", "--record", str(path)).exit_code == 0
    for place in (
        "",
        "/lines",
        "/why",
        "/graph",
        "/time",
        "/requests",
        "/requests/4",
        "/forms/why",
        "/forms/why/lines",
    ):
        found = client.get(f"/api/0/runs/{run}{place}")
        assert "Lamps" not in found.text, place
        assert found.status_code == 404 or found.json() == [], place


def test_a_record_that_is_away_hides_no_other_and_is_back_when_it_is_back(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gesta"
    shutil.copy(path, other)
    with visited(path, other) as client:
        path.rename(tmp_path / "away")
        away, there = client.get("/api/records").json()
        assert "No such file" in away["problem"]
        assert (there["problem"], there["last"]) == (None, 14)
        found = client.get("/api/sessions").json()
        assert {each["record"] for each in found["sessions"]} == {1}
        assert found["problems"] == [away["problem"]]
        assert client.get("/api/0/sessions").status_code == 500
        (tmp_path / "away").rename(path)
        assert [each["problem"] for each in client.get("/api/records").json()] == [None, None]
        assert client.get("/api/sessions").json()["totals"]["sessions"] == 4


def test_a_backup_that_is_put_back_and_goes_on_is_not_mixed_with_what_was_shown(path: Path, tmp_path: Path) -> None:
    def say(word: str, session: str = "anna") -> None:
        gesta.run_sync(gesta.Agent("desk", model=gesta.scripted(word)), word, record=path, session=session)

    shutil.copy(path, tmp_path / "backup")
    say("second")
    with visited(path) as client:
        run = runs(client)["anna"]
        shown = [f"/api/0/runs/{run}{each}" for each in ("", "/time", "/why", "/lines", "/requests")]
        shown += ["/api/0/sessions", "/api/sessions", "/api/0/sessions?words=second"]
        before = [client.get(each).text for each in shown]
        (tmp_path / "backup").replace(path)
        say("otherwise")
        after = [client.get(each).text for each in shown]
    with visited(path) as client:
        assert after == [client.get(each).text for each in shown]
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_an_answer_to_a_record_that_was_moved_away_makes_no_new_record(tmp_path: Path) -> None:
    path = tmp_path / "shop.gesta"
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", order=7), "Paid."), tools=[pay])
    wait = gesta.run_sync(agent, "Pay.", record=path).waiting[0]
    word = {"run": wait.run, "of": wait.of, "verdict": "approved", "by": "Ada"}
    with visited(path) as client:
        path.rename(tmp_path / "away")
        refused = client.post("/api/0/answer", json=word)
        assert "No such file" in refused.json()["error"]["message"]
        assert not path.exists()
        (tmp_path / "away").rename(path)
        assert client.post("/api/0/answer", json=word).status_code == 202


def test_a_new_entry_that_cannot_be_read_does_not_end_the_stream(client: httpx2.Client, path: Path) -> None:
    run = runs(client)["bob"]
    with closing(apsw.Connection(str(path))) as changed:
        changed.execute("UPDATE entries SET content = '{' WHERE kind = 'assistant' AND run = ?", (run,))
    with client.stream("GET", "/api/0/follow", params={"run": run, "after": 0}) as stream:
        (data,) = [line for _, line in zip(range(3), stream.iter_lines(), strict=False) if line.startswith("data: ")]
    lines = json.loads(data.removeprefix("data: "))
    assert [each["kind"] for each in lines].count("key-value") == 1
    assert len(lines) == client.get(f"/api/0/runs/{run}").json()["head"]


def test_a_damaged_run_hides_no_wait_of_another_one_of_its_session(tmp_path: Path) -> None:
    path = tmp_path / "shop.gesta"

    @gesta.tool(effect="once", approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"{euros} paid"

    with gesta.open_sync(path) as record:
        damaged = record.run(gesta.Agent("desk", model=gesta.scripted("Yes.")), "Hello?", session="anna").run
        clerk = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay", euros=5)), tools=[pay])
        record.run(clerk, "Pay.", session="anna")
    with closing(apsw.Connection(str(path))) as changed:
        changed.execute("UPDATE entries SET content = '{' WHERE kind = 'assistant' AND run = ?", (damaged,))
    with visited(path) as client:
        (wait,) = client.get("/api/0/waiting").json()["waiting"]
    assert (wait["wait"]["tool"], wait["said"]) == ("pay", "")


MISFITS: list[tuple[str, str, object]] = [
    ("attempt", "of", -(10**19)),
    ("user", "value", 0),
    ("assistant", "value", None),
    ("tool-call", "tool_name", 2**63),
    ("chat-completion", "model", 1e300),
    ("tool-result", "outcome", {}),
    ("begin", "name", []),
    ("attempt", "effect", 7),
    ("request", "blocks", {"a": 1}),
    ("end", "reason", 1),
]
OVERVIEWS = ("", "/lines", "/time", "/children", "/why", "/graph", "/evidence")
OTHERS = ("/requests", "/requests/7", "/requests/7/messages", "/requests/7/wire")


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a record with one run, which has a call."""
    path = tmp_path_factory.mktemp("odd") / "shop.gesta"

    @gesta.tool(effect="pure")
    def look(what: str) -> str:
        """Look something up."""
        return f"a {what}"

    with gesta.open_sync(path) as record:
        agent = gesta.Agent(
            "desk", model=gesta.scripted(gesta.call("look", what="lamp"), "It is a lamp."), tools=[look]
        )
        record.run(agent, "What is it?", session="anna")
    return path


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "member", "value"), MISFITS)
async def test_an_entry_with_a_member_of_a_wrong_type_hides_no_other(
    looked: Path, tmp_path: Path, kind: str, member: str, value: object
) -> None:
    path = shutil.copy(looked, tmp_path / "shop.gesta")
    with closing(apsw.Connection(str(path))) as changed:
        entries = changed.execute("SELECT pos, content FROM entries WHERE kind = ?", (kind,)).fetchall()
        for pos, content in entries:
            text = json.dumps(json.loads(str(content)) | {member: value})
            changed.execute("UPDATE entries SET content = ? WHERE pos = ?", (text, pos))
    assert entries
    async with gesta.open(path, readonly=True) as record:
        transport = httpx2.ASGITransport(app=Viewer([Pages(record, "shop", str(path))]).app(TOKEN))
        cookies = {"cookie": f"gesta-80={TOKEN}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=cookies) as browser:
            sessions = (await browser.get("/api/0/sessions")).json()["sessions"]
            assert [each["name"] for each in sessions] == ["anna"]
            at = f"/api/0/runs/{sessions[0]['runs'][0]}"
            for place in OVERVIEWS:
                assert (await browser.get(at + place)).status_code == 200, place
            lines = (await browser.get(f"{at}/lines")).json()
            assert sum("is not of its type" in json.dumps(line) for line in lines) == len(entries) * (member != "of")
            for place in [*OTHERS, *(f"/forms/{form}" for form in (*FORMS, WHY))]:
                found = await browser.get(at + place)
                assert found.status_code == 200 or found.json()["error"]["type"] == "BrokenRecord", place
