"""What a stranger or a broken client can send to a server: it hears no other's run, and costs the others nothing."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import ASGIApp
from tests.docs.pages import page
from tests.serving import DESK, served

import gesta
from gesta.errors import AgentError, OtherMessage
from gesta.serve import Access, app
from gesta.serve.app import assembled
from gesta.serve.mcp import app as mcp_app
from gesta.stores.memory import MemoryStore

pytestmark = pytest.mark.sample(2, over="parent")


@asynccontextmanager
async def asking(served: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of an application in this process."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=served), base_url="http://localhost") as client:
        yield client


async def test_a_session_in_a_path_names_a_session_exactly_and_never_a_run() -> None:
    async with gesta.open(":memory:") as record, asking(app(record, [DESK])) as client:
        run = (await client.post("/sessions/anna/messages", json={"message": "My number is 1234."})).json()["run"]
        for name in (run[:1], run[:3], run, "last"):
            assert (await client.get(f"/sessions/{name}")).status_code == 404
            heard: list[str] = []

            async def follow(name: str = name, heard: list[str] = heard) -> None:
                heard.append((await client.get(f"/sessions/{name}/events?until=end")).text)

            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                await anyio.wait_all_tasks_blocked()
                assert not heard  # a session that has not begun is waited for
                await client.post(f"/sessions/{name}/messages", json={"message": "It is mine."})
            assert "It is mine." in heard[0]
            assert "1234" not in heard[0]
            (said, _) = (await client.get(f"/sessions/{name}")).json()["messages"]
            assert said["text"] == "It is mine."


async def test_a_run_in_a_path_is_its_whole_id_or_its_session_and_what_there_is_else_is_not_told() -> None:
    async with gesta.open(":memory:") as record, asking(app(record, [DESK])) as client:
        run = (await client.post("/sessions/anna/messages", json={"message": "Hello."})).json()["run"]
        for name in (run, "anna"):
            assert (await client.get(f"/runs/{name}")).json()["run"] == run
            assert "You said: Hello." in (await client.get(f"/runs/{name}/events?until=end")).text
        for name in (run[:8], "last", "ann"):
            refused = [await client.get(f"/runs/{name}"), await client.get(f"/runs/{name}/events")]
            refused += [await client.post(f"/runs/{name}/{word}", json={}) for word in ("approve", "deny", "cancel")]
            assert {each.status_code for each in refused} == {404}
            assert not any(run in each.text or "anna" in each.text for each in refused)
        await client.post("/sessions/anna/messages", json={"message": "A refund."})
        assert (await client.post("/runs/anna/approve", json={})).status_code == 202


async def test_pages_that_wait_for_sessions_look_at_the_record_only_when_something_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str | None] = []
    runs = MemoryStore.runs

    async def counted(store: MemoryStore, session: str | None = None, name: str | None = None) -> Sequence[Any]:
        looks.append(session)
        return await runs(store, session, name)

    monkeypatch.setattr(MemoryStore, "runs", counted)
    async with (
        gesta.open(":memory:") as record,
        asking(app(record, [DESK], work=False)) as client,
        anyio.create_task_group() as group,
    ):
        for number in range(20):
            group.start_soon(client.get, f"/sessions/new-{number}/events?until=end")
        await anyio.wait_all_tasks_blocked()
        assert sorted(filter(None, looks)) == sorted(f"new-{number}" for number in range(20))
        assert None not in looks  # nobody reads the list of all runs
        looks.clear()
        await record.run(DESK, "Hello.", session="other")
        assert not [name for name in looks if name != "other"]
        group.cancel_scope.cancel()


async def test_another_message_under_a_used_key_is_refused_before_any_event() -> None:
    async with gesta.open(":memory:") as record, asking(app(record, [DESK])) as client:
        await record.run(DESK, "One.", session="s", key="k")
        heard: list[Any] = []
        with pytest.raises(OtherMessage):
            await anext(aiter(record.stream(DESK, "Two.", session="s", key="k")))
        with pytest.raises(OtherMessage):
            await record.run(DESK, "Two.", session="s", key="k", listener=heard.append)
        assert heard == []
        chat = {"model": "desk", "messages": [{"role": "user", "content": "Two."}], "session": "s", "stream": True}
        headers = {"accept": "text/event-stream", "idempotency-key": "k"}
        for path, body in {"/sessions/s/messages": {"message": "Two."}, "/v1/chat/completions": chat}.items():
            refused = await client.post(path, json=body, headers=headers)
            assert (refused.status_code, refused.json()["error"]["type"]) == (409, "OtherMessage")
        again = await client.post("/sessions/s/messages", json={"message": "One."}, headers=headers)
        assert "event: outcome" in again.text


async def test_hosts_and_origins_are_compared_without_case_and_a_token_without_its_newline() -> None:
    token = "a-token-from-a-file-2718281828459045"
    hosts = Access(hosts=["Shop.Example", "api.example:8000"], origins=["https://Shop.Example"])
    async with gesta.open(":memory:") as record, asking(app(record, [DESK], hosts)) as client:
        allowed = {"shop.example": 200, "SHOP.example:80": 200, "api.example:8000": 200}
        refused = dict.fromkeys(("api.example", "api.example:80", "hop.example", "", "shop.example.com"), 403)
        for host, status in (allowed | refused).items():
            assert (await client.get("/health", headers={"host": host})).status_code == status, host
        of_page = {"origin": "https://shop.example"}
        answer = await client.get("/health", headers=of_page)
        assert answer.headers["access-control-allow-origin"] == of_page["origin"]
        async with asking(app(record, [DESK], Access(tokens={"web": f"{token}\n"}))) as other:
            assert (await other.get("/agents", headers={"authorization": f"Bearer {token}"})).status_code == 200
    with pytest.raises(AgentError, match="texts that are not empty"):
        Access(hosts=[""])


def test_head_of_a_stream_is_answered_at_once_and_holds_no_place() -> None:
    with served(":memory:", access=Access(followers=1)) as address, httpx2.Client(base_url=address) as client:
        for _ in range(2):
            head = client.head("/sessions/new/events", timeout=5)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-type"].startswith("text/event-stream")
        assert client.get("/health").status_code == 200  # on the same connection


async def test_a_chat_completion_is_read_like_all_other_bodies() -> None:
    body = b'{"model": "desk", "messages": [{"role": "user", "content": "Hello."}]}'
    async with gesta.open(":memory:") as record, asking(app(record, [DESK])) as client:
        for kind, status in (("text/plain", 415), ("", 415), ("application/json; charset=utf-8", 200)):
            sent = await client.post("/v1/chat/completions", content=body, headers={"content-type": kind})
            assert sent.status_code == status
        for broken in (b"", b"[" * 100_000, b"\xff"):
            json = {"content-type": "application/json"}
            assert (await client.post("/v1/chat/completions", content=broken, headers=json)).status_code == 400
        assert len(await record.sessions()) == 1


@pytest.mark.parametrize("moved", ["moved", "replaced", "deleted"])
def test_health_says_that_no_message_is_taken_when_the_record_is_away(tmp_path: Path, moved: str) -> None:
    path = tmp_path / "r.gesta"
    with served(path) as address, httpx2.Client(base_url=address) as client:
        assert client.get("/health").json() == {"status": "ok"}
        if moved == "moved":
            path.rename(tmp_path / "away.gesta")
        elif moved == "replaced":
            with gesta.open_sync(tmp_path / "other.gesta"):
                pass
            (tmp_path / "other.gesta").replace(path)
        else:
            path.unlink()
        away = client.get("/health")
        assert (away.status_code, away.json()["error"]["type"]) == (503, "NoRecord")
        assert str(tmp_path) not in away.text  # everybody may ask


@pytest.mark.parametrize("make", [app, mcp_app])
async def test_an_application_whose_record_was_closed_is_not_healthy_and_one_that_starts_again_is(
    tmp_path: Path, make: Callable[..., Any]
) -> None:
    async with gesta.open(":memory:") as record:
        closed = make(record, [DESK])
    async with asking(closed) as client:
        assert (await client.get("/health")).status_code == 503
    again = make(tmp_path / "r.gesta", [DESK])
    for turns in (1, 2):
        async with again.router.lifespan_context(again), asking(again) as client:
            assert (await client.get("/health")).status_code == 200
            assert (await client.post("/sessions/a/messages", json={"message": "Hello."})).status_code == 200
            assert (await client.get("/runs/a")).json()["turns"] == turns
            told = await client.post("/mcp", json={}, headers={"accept": "application/json, text/event-stream"})
            assert told.status_code == (400 if make is mcp_app else 404)


@pytest.mark.parametrize("name", ["%00", "a%00b"])
async def test_a_session_that_could_never_be_found_again_is_refused(name: str) -> None:
    async with gesta.open(":memory:") as record, asking(app(record, [DESK])) as client:
        asked = await client.post(f"/sessions/{name}/messages", json={"message": "Hello."})
        answers = [asked, await client.get(f"/sessions/{name}"), await client.get(f"/sessions/{name}/events")]
        body: dict[str, Any] = {"model": "desk", "messages": [{"role": "user", "content": "Hello."}]}
        answers.append(await client.post("/v1/chat/completions", json={**body, "session": unquote(name)}))
        for answer in answers:
            assert answer.status_code == 400
            assert "Leave that character out" in answer.json()["error"]["message"]
        assert await record.sessions() == []


async def test_the_token_of_an_assistant_opens_only_the_paths_that_are_named() -> None:
    async with gesta.open(":memory:") as record:
        waits = await record.run(DESK, "A refund.", session="s")
        for paths, status in (([], 404), (["/health", "/mcp"], 404), (None, 202)):
            async with asking(mcp_app(record, [DESK], paths=paths)) as client:
                assert (await client.post(f"/runs/{waits.run}/approve", json={})).status_code == status
                assert (await client.post("/mcp", json={})).status_code in (400, 406)
        with pytest.raises(AgentError, match="expected a list"):
            mcp_app(record, [DESK], paths="/mcp")


@pytest.mark.parametrize("token", [None, "a-token-of-a-far-client-1414213562"])
async def test_only_a_client_of_mcp_on_this_machine_reads_where_the_record_is(
    tmp_path: Path, token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.gesta"
    async with gesta.open(path) as record:
        served = mcp_app(record, [DESK], Access(tokens={"far": token}) if token else None, paths=[])
        transport, headers = httpx2.ASGITransport(app=served), {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(transport=transport, headers=headers) as http,
            Client(streamable_http_client("http://localhost/mcp", http_client=http)) as client,
        ):
            path.rename(tmp_path / "away.gesta")
            answer = await client.call_tool("desk", {"message": "Hello."})
    assert answer.is_error
    assert "r.gesta" in str(answer.content)
    assert (str(tmp_path) in str(answer.content)) is (token is None)
    assert (str(tmp_path) in caplog.text) is (token is not None)


async def test_an_application_that_mounts_as_the_page_says_starts_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = page("serve.md").split("```")
    (block,) = (each for each in blocks if each.startswith("python\n") and "def lifespan" in each)
    monkeypatch.chdir(tmp_path)
    shop: dict[str, Any] = {}
    exec(block.removeprefix("python\n"), shop)
    for _ in range(2):
        async with shop["web"].router.lifespan_context(shop["web"]), asking(shop["web"]) as client:
            assert (await client.get("/agents/health")).status_code == 200
            said = await client.post("/agents/sessions/a/messages", json={"message": "Hello.", "key": "m1"})
            assert said.json()["answer"] == "Rome is dry."


class Gone:
    """A client that reads the events of its message until it leaves."""

    def __init__(self, path: str, body: dict[str, Any], *, half: bool = False) -> None:
        headers = {"host": "localhost", "content-type": "application/json", "accept": "text/event-stream"}
        self.scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
        self.scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._body: bytes | None = json.dumps(body).encode()
        self._half = half
        self.leaves, self.status = anyio.Event(), 0

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": self._half}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)


BODIES = (
    ("/sessions/gone/messages", {"message": "Hello."}),
    ("/v1/chat/completions", {"model": "desk", "messages": [{"role": "user", "content": "Hello."}], "stream": True}),
)


@pytest.mark.parametrize(("path", "body"), BODIES, ids=["messages", "completions"])
async def test_a_client_that_leaves_gives_its_place_back_when_its_turn_has_ended(
    path: str, body: dict[str, Any]
) -> None:
    asked, answers = anyio.Event(), anyio.Event()

    async def think(_messages: Any, _header: Any) -> str:
        asked.set()
        await answers.wait()
        return "Hello."

    agent, gone = gesta.Agent("desk", model=gesta.function(think)), Gone(path, body)
    async with gesta.open(":memory:") as record:
        served = app(record, [agent], Access(turns=1), work=False)
        async with asking(served) as client, anyio.create_task_group() as group:
            group.start_soon(served, gone.scope, gone.receive, gone.send)
            await asked.wait()
            gone.leaves.set()
            await anyio.wait_all_tasks_blocked()
            assert (await client.post("/sessions/next/messages", json={"message": "Hello."})).status_code == 429
            answers.set()
            await anyio.wait_all_tasks_blocked()
            assert (await client.post("/sessions/next/messages", json={"message": "Hello."})).status_code == 200


async def test_a_client_that_leaves_before_its_body_has_come_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    gone = Gone("/sessions/gone/messages", {"message": "Hello."}, half=True)
    gone.leaves.set()
    async with gesta.open(":memory:") as record:
        await app(record, [DESK], work=False)(gone.scope, gone.receive, gone.send)
        assert await record.store.runs() == []
    assert not caplog.records


async def test_a_server_that_ends_waits_for_no_body() -> None:
    gone = Gone("/sessions/gone/messages", {"message": "Hello."}, half=True)
    async with gesta.open(":memory:") as record, anyio.create_task_group() as group:
        served, service = assembled(record, [DESK], Access(), work=False)
        group.start_soon(served, gone.scope, gone.receive, gone.send)
        await anyio.wait_all_tasks_blocked()
        service.drain()
    assert gone.status == 503
