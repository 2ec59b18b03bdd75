"""Agents behind HTTP: what is sent comes on the record, a person's word lets a run go on, and nobody gets in unasked."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.serving import DESK, post, served

import gesta
from gesta.errors import (
    AgentError,
    Expired,
    GestaError,
    LeaseLost,
    NoRun,
    NoServer,
    NotWaiting,
    RunHeld,
    SaidBefore,
    SeveralRuns,
    TurnOpen,
)
from gesta.record.followers import FollowerTooSlow
from gesta.serve import Access, app
from gesta.serve.advice import advised
from gesta.serve.routes import PLACES

pytestmark = pytest.mark.sample(2, over="parent")

TOKEN = "a-token-of-a-client-3141592653589793"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("desk") / "desk.gesta") as address:
        yield address


def error(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["message"]


def test_a_message_is_answered_with_the_outcome_of_its_turn(desk: str) -> None:
    outcome = post(desk, "/sessions/a/messages", {"message": "Hello."}).json()
    assert (outcome["reason"], outcome["answer"], outcome["session"]) == ("answered", "You said: Hello.", "a")


def test_a_message_with_a_key_is_answered_once(desk: str) -> None:
    said = {"message": "Once.", "key": "m1", "user": "anna"}
    first, second = (post(desk, "/sessions/once/messages", said).json() for _ in range(2))
    assert first["turn"] == second["turn"]
    other = post(desk, "/sessions/once/messages", {**said, "message": "Twice."})
    assert other.status_code == 409
    assert other.json()["error"]["type"] == "OtherMessage"


def test_the_header_idempotency_key_is_a_key(desk: str) -> None:
    said, header = {"message": "Once."}, {"idempotency-key": "m7"}
    first, second = (post(desk, "/sessions/header/messages", said, **header).json() for _ in range(2))
    assert first["turn"] == second["turn"]
    refused = post(desk, "/sessions/header/messages", {**said, "key": "m8"}, **header)
    assert error(refused) == (400, "The body and the header Idempotency-Key name two keys. Leave one out.")


def test_a_turn_waits_for_an_approval_and_goes_on_when_it_comes(desk: str) -> None:
    waits = post(desk, "/sessions/pay/messages", {"message": "I want a refund."}).json()
    (wait,) = waits["waiting"]
    assert (wait["what"], wait["tool"], wait["args"]) == ("approval", "refund", {"order": 42, "cents": 6490})
    assert wait in httpx2.get(f"{desk}/waiting").json()
    assert post(desk, "/runs/pay/approve", {"by": "ann", "call": wait["call"]}).status_code == 202
    said = {"message": "Thanks."}
    assert "Thanks." in post(desk, "/sessions/pay/messages", said).json()["answer"]  # behind the turn that went on
    assert httpx2.get(f"{desk}/runs/pay").json()["turns"] == 2
    texts = [each["text"] for each in httpx2.get(f"{desk}/sessions/pay").json()["messages"]]
    assert "It says: 6490 cents for order 42 are on their way" in texts
    assert "pay" in [each["name"] for each in httpx2.get(f"{desk}/sessions").json()]
    assert len(httpx2.get(f"{desk}/sessions?limit=1").json()) == 1
    (called,) = [each for each in httpx2.get(f"{desk}/sessions/pay?calls=1").json()["messages"] if each["calls"]]
    assert called["calls"][0]["tool"] == "refund"


def test_a_word_about_what_was_shown_is_refused_if_something_else_has_its_place(desk: str) -> None:
    (wait,) = post(desk, "/sessions/shown/messages", {"message": "I want a refund."}).json()["waiting"]
    words: dict[str, dict[str, Any]] = {"approve": {}, "deny": {}, "answer": {"value": 1}, "cancel": {}}
    for verb, said in {**words, "resolve": {"verdict": "done"}}.items():
        status, message = error(post(desk, f"/runs/shown/{verb}", {**said, "waiting": {**wait, "args_digest": "0"}}))
        assert status == 409
        assert "than was shown" in message or "in doubt" in message
    status, message = error(post(desk, "/runs/shown/approve", {"call": 1, "waiting": wait}))
    assert (status, message) == (400, "`waiting` is of another run or call than the request names.")
    assert post(desk, "/runs/shown/approve", {"waiting": wait}).status_code == 202


def test_what_was_denied_does_not_run_and_a_second_word_is_refused(desk: str) -> None:
    post(desk, "/sessions/deny/messages", {"message": "I want a refund."})
    assert post(desk, "/runs/deny/deny", {"reason": "too much", "args": {}}).status_code == 400
    assert post(desk, "/runs/deny/deny", {"reason": "too much"}).status_code == 202
    answer = post(desk, "/sessions/deny/messages", {"message": "And now?"}).json()["answer"]
    assert "And now?" in answer
    status, message = error(post(desk, "/runs/deny/approve", {}))
    assert status == 409
    assert "approval" in message


@pytest.mark.parametrize("limit", ["0", "-1", "x", "9" * 5000])
def test_a_limit_that_is_no_number_is_refused(desk: str, limit: str) -> None:
    status, message = error(httpx2.get(f"{desk}/sessions", params={"limit": limit}))
    assert status == 400
    assert "expected a whole number from 1 on" in message


def test_a_turn_that_waits_is_cancelled(desk: str) -> None:
    post(desk, "/sessions/stop/messages", {"message": "I want a refund."})
    ended = post(desk, "/runs/stop/cancel", {"by": "ann"}).json()
    assert ended["outcome"]["reason"] == "cancelled"


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/sessions/x/messages", {"messages": "Hello."}, 400, "unknown field `messages`. Did you mean 'message'?"),
        ("/sessions/x/messages", {}, 400, "missing required field `message`"),
        ("/sessions/x/messages", {"message": "Hello.", "agent": "dek"}, 404, "Did you mean 'desk'?"),
        ("/runs/nobody/approve", {}, 404, "nobody"),
        ("/runs/nobody/resolve", {"verdict": "perhaps"}, 404, "nobody"),
        ("/nowhere", {}, 404, "No such path: POST /nowhere. GET /openapi.json lists them."),
        ("/health", {}, 405, "No such method for this path"),
    ],
)
def test_a_wrong_request_is_told_what_was_expected(desk: str, path: str, body: Any, status: int, said: str) -> None:
    found, message = error(post(desk, path, body))
    assert found == status
    assert said in message


def test_a_body_that_is_no_json_is_refused(desk: str) -> None:
    def sent(content: bytes, kind: str) -> int:
        return error(httpx2.post(f"{desk}/sessions/x/messages", content=content, headers={"content-type": kind}))[0]

    assert sent(b"{", "application/json") == 400
    assert sent(b"\xff", "application/json") == 400
    assert sent(b"[" * 100_000, "application/json") == 400
    assert sent(b"{}", "text/plain") == 415


def test_the_description_names_every_path_and_each_has_a_sentence(desk: str) -> None:
    described = httpx2.get(f"{desk}/openapi.json").json()
    for place in PLACES:
        operation = described["paths"][place.path][place.method.lower()]
        assert len(operation["summary"]) > 10, place.path
    assert described["openapi"] == "3.1.0"


def test_a_failure_shows_no_traceback(desk: str) -> None:
    whole = post(desk, "/sessions/fail/messages", {"message": "Please break."})
    assert whole.json()["reason"] == "failed"
    assert "the model is broken" in whole.text
    assert "Traceback" not in whole.text
    lines = post(desk, "/sessions/fail/messages", {"message": "Please break."}, accept="text/event-stream").text
    assert "the model is broken" in lines
    assert "Traceback" not in lines


def test_a_stream_gives_the_events_and_the_outcome(desk: str) -> None:
    lines = post(desk, "/sessions/s/messages", {"message": "the weather?"}, accept="text/event-stream").text
    kinds = [line.removeprefix("event: ") for line in lines.splitlines() if line.startswith("event: ")]
    assert "observation" in kinds
    assert kinds[-1] == "outcome"


def test_a_session_is_followed_before_it_has_begun_and_from_any_place_on(desk: str) -> None:
    with httpx2.stream("GET", f"{desk}/sessions/later/events?until=end", timeout=10) as stream:
        post(desk, "/sessions/later/messages", {"message": "Hello."})
        told = "".join(stream.iter_text())
    ids = [line.removeprefix("id: ") for line in told.splitlines() if line.startswith("id: ")]
    assert "event: end" in told
    rest = httpx2.get(f"{desk}/sessions/later/events", params={"until": "end", "after": ids[1]}).text
    assert [line.removeprefix("id: ") for line in rest.splitlines() if line.startswith("id: ")] == ids[2:]
    status, message = error(httpx2.get(f"{desk}/sessions/later/events?after=x"))
    assert status == 400
    assert "expected the id of an event" in message


@pytest.mark.parametrize("host", ["shop.example", "127.0.0.1.shop.example", "localhost.shop.example:80"])
def test_without_tokens_only_requests_to_this_machine_are_answered(desk: str, host: str) -> None:
    status, message = error(httpx2.get(f"{desk}/health", headers={"host": host}))
    assert status == 403
    assert host in message
    assert "hosts=" in message


def test_a_page_of_another_site_may_ask_only_if_it_is_named(tmp_path: Path) -> None:
    with served(tmp_path / "r.gesta", access=Access(origins=["https://shop.example"])) as address:
        other = post(address, "/sessions/a/messages", {"message": "x"}, origin="https://evil.example")
        assert error(other) == (403, "Pages of https://evil.example may not ask here. Name it in origins= or --origin.")
        named = post(address, "/sessions/a/messages", {"message": "x"}, origin="https://shop.example")
        assert named.headers["access-control-allow-origin"] == "https://shop.example"
        asks = {"origin": "https://shop.example", "access-control-request-method": "POST"}
        assert httpx2.options(f"{address}/sessions/a/messages", headers=asks).status_code == 200


def test_with_tokens_only_who_has_one_is_answered_and_it_is_on_no_record(tmp_path: Path) -> None:
    with served(tmp_path / "r.gesta", access=Access(tokens={"web": TOKEN, "desk": f"{TOKEN}-2"})) as address:
        for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": TOKEN}, {"authorization": f"Basic {TOKEN}"}):
            refused = post(address, "/sessions/a/messages", {"message": "x"}, **wrong)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
        assert httpx2.get(f"{address}/health").status_code == 200
        right = {"authorization": f"Bearer {TOKEN}"}
        answer = post(address, "/sessions/a/messages", {"message": f"I know {TOKEN}"}, **right)
        assert answer.json()["answer"] == "You said: I know <secret token-of-web>"
        post(address, "/sessions/b/messages", {"message": "a refund"}, **right)
        assert post(address, "/runs/b/approve", {"by": "ann"}, **right).status_code == 202
        post(address, "/sessions/b/messages", {"message": "Thanks."}, **right)
    record = (tmp_path / "r.gesta").read_bytes()
    assert TOKEN.encode() not in record
    assert b"ann via web" in record


def test_a_body_beyond_the_bound_is_refused_with_and_without_a_length(tmp_path: Path) -> None:
    with served(tmp_path / "r.gesta", access=Access(body_bytes=100)) as address:
        assert error(post(address, "/sessions/a/messages", {"message": "x" * 200}))[0] == 413
        json = {"content-type": "application/json"}
        parts = (b" " * 60 for _ in range(3))
        status, message = error(httpx2.post(f"{address}/sessions/a/messages", content=parts, headers=json))
        assert status == 413
        assert "more than 100 bytes" in message


def test_more_turns_than_the_bound_are_refused_until_one_has_ended(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def slow(_messages: Any, _header: Any) -> str:
        begun.set()
        assert await anyio.to_thread.run_sync(go_on.wait, 10)
        return "Done."

    agent = gesta.Agent("slow", model=gesta.function(slow))
    with served(tmp_path / "r.gesta", agents=[agent], access=Access(turns=1)) as address:
        first = threading.Thread(target=post, args=(address, "/sessions/a/messages", {"message": "x"}))
        first.start()
        assert begun.wait(10)
        refused = post(address, "/sessions/b/messages", {"message": "x"})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        go_on.set()
        first.join(10)
        assert post(address, "/sessions/b/messages", {"message": "x"}).json()["answer"] == "Done."


def test_a_server_needs_agents_of_different_names_and_a_token_of_some_length(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="found: desk, desk"):
        app(str(tmp_path / "r.gesta"), [DESK, DESK])
    with pytest.raises(AgentError, match="expected at least 8"):
        Access(tokens={"web": "short"})
    with pytest.raises(TypeError, match="Did you mean 'tokens'"):
        Access(token="x" * 40)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("origins", "https://shop.example", "expected a list of texts, as in ['https://shop.example']."),
        ("origins", ["https://shop.example/cart"], "expected one such as 'https://shop.example'."),
        ("origins", ["*"], "'*' is not an origin of a page"),
        ("hosts", "shop.example", "expected a list of texts, as in ['shop.example']."),
        ("tokens", "x" * 20, "expected a dict of texts, as in {'web': TOKEN}."),
        ("body_bytes", "100", "expected a whole number from 1 on."),
        ("turns", 0, "expected a whole number from 1 on."),
        ("followers", -1, "expected a whole number from 1 on."),
    ],
)
def test_a_rule_of_access_that_lets_in_too_many_or_nobody_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(AgentError) as refused:
        Access(**{name: value})
    assert said in str(refused.value)


@pytest.mark.parametrize("agents", [DESK, "desk", [3]])
def test_what_is_no_list_of_agents_is_refused(tmp_path: Path, agents: Any) -> None:
    with pytest.raises(AgentError, match=r"expected a list of agents, as in \[agent\]"):
        app(tmp_path / "r.gesta", agents)


async def test_it_is_mounted_in_another_application_on_an_opened_record() -> None:
    async with gesta.open(":memory:") as record:
        outer = Starlette(routes=[Mount("/agents", app(record, [DESK]))])
        transport = httpx2.ASGITransport(app=outer)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await anyio.lowlevel.checkpoint()
            said = await client.post("/agents/sessions/a/messages", json={"message": "Hello."})
            assert said.json()["answer"] == "You said: Hello."
        assert (await record.find("a")).session == "a"


CUSTOMERS = ["/sessions/{session}/messages", "/sessions/{session}/events"]


async def test_only_the_paths_that_are_named_are_served_and_described() -> None:
    async with gesta.open(":memory:") as record:
        asked = dict[str, int]()
        for paths in (CUSTOMERS, [*CUSTOMERS, "/openapi.json"]):
            outer = Starlette(routes=[Mount("/api", app(record, [DESK], paths=paths))])
            transport = httpx2.ASGITransport(app=outer)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/api") as client:
                assert (await client.post("/sessions/a/messages", json={"message": "Hello."})).status_code == 200
                assert (await client.get("/sessions/a/events?until=end")).status_code == 200
                for place in PLACES:
                    if place.path not in CUSTOMERS:
                        path = place.path.format(session="a", run="a")
                        asked[place.path] = (await client.request(place.method, path, json={})).status_code
                missing = error(await client.get("/waiting"))[1]
                described = await client.get("/openapi.json")
        assert set(asked.values()) == {404}
        assert missing == "No such path: GET /api/waiting. GET /api/openapi.json lists them."
        assert described.json()["servers"] == [{"url": "/api"}]
        assert [*described.json()["paths"]] == CUSTOMERS
        bare = httpx2.ASGITransport(app=app(record, [DESK], paths=CUSTOMERS))
        async with httpx2.AsyncClient(transport=bare, base_url="http://localhost") as client:
            assert error(await client.get("/openapi.json")) == (404, "No such path: GET /openapi.json.")


@pytest.mark.parametrize("paths", [["/session/{session}/messages"], "/sessions/{session}/messages"])
def test_a_path_that_there_is_not_is_refused_with_the_nearest_one(tmp_path: Path, paths: Any) -> None:
    with pytest.raises(AgentError) as raised:
        app(str(tmp_path / "r.gesta"), [DESK], paths=paths)
    assert "expected a list with some of these: /health, /agents, " in str(raised.value)
    assert "Did you mean '/sessions/{session}/messages'?" in str(raised.value)


async def test_an_application_that_was_mounted_with_an_address_says_that_it_needs_an_opened_record(
    tmp_path: Path,
) -> None:
    outer = Starlette(routes=[Mount("/agents", app(str(tmp_path / "r.gesta"), [DESK]))])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=outer), base_url="http://localhost") as client:
        status, message = error(await client.get("/agents/health"))
    assert status == 500
    assert "Mounted in another one it needs an opened record: async with gesta.open(...)" in message


def test_a_history_with_half_a_surrogate_pair_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "odd.gesta"
    odd = gesta.Agent("desk", model=gesta.scripted("\ud800 lone"))
    gesta.run_sync(odd, "Hello", record=path, session="odd")
    with served(path) as address:
        said = httpx2.get(f"{address}/sessions/odd", timeout=10).json()["messages"]
    assert said[-1]["text"] == "\ud800 lone"


FAILED = (
    (NoRun("ann"), 404, "No run or session 'ann' in this record. GET /sessions lists the sessions"),
    (SeveralRuns("ann", ["1", "2"]), 409, "GET /sessions lists both"),
    (NotWaiting("1", "approval", []), 409, "GET /waiting lists what waits"),
    (NotWaiting("1", "question", ["of=4 (Why?)", "of=6 (When?)"]), 409, "as `question` where it says `of`"),
    (NotWaiting("1", "doubt", ["call=4 (pay)"], 9, missed=True), 409, "as `call`"),
    (Expired("1", 4, "12:00"), 409, "nobody answered in time"),
    (SaidBefore("1", "call=4 (pay)", "approved", "ann", "2"), 409, "GET /runs/2 says how the run goes on"),
    (TurnOpen("1", 4, "not finished"), 409, "POST /runs/1/cancel ends it"),
    (RunHeld("1", "process 77 on host", "12:00", 4), 409, "Ask again when that is done"),
    (LeaseLost("1", "4", "6"), 503, "Send the message again, under its key"),
    (NoServer("https://tools", "refused", "Look for it"), 503, "Look for it"),
    (FollowerTooSlow(1000, "17-0"), 500, "`Last-Event-ID: 17-0`"),
)


@pytest.mark.parametrize(("raised", "status", "said"), FAILED, ids=[type(each[0]).__name__ for each in FAILED])
def test_an_error_says_what_a_client_of_the_server_can_do(raised: GestaError, status: int, said: str) -> None:
    answer = advised(raised)
    message = json.loads(bytes(answer.body))["error"]["message"]
    assert answer.status_code == status
    assert said in message
    assert not any(word in message for word in ("gesta ", "(run)", "resume(", "follow(", "outcome.", "process 77"))


async def test_a_server_of_tools_that_is_away_is_no_fault_of_the_message() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted("Hi."), tools=[gesta.mcp("http://127.0.0.1:1/mcp")])
    async with gesta.open(":memory:") as record:
        transport = httpx2.ASGITransport(app=app(record, [agent], work=False))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post("/sessions/ann/messages", json={"message": "Hello."})
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert error(answer)[1].startswith("The server of tools 'http://127.0.0.1:1/mcp' cannot be used")
