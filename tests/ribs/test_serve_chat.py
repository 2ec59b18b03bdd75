"""The `openai` client, unchanged, talks to a served agent; its conversations are sessions of the record."""

import json
from asyncio import gather
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import apsw
import httpx2
import openai
import pytest
from tests.serving import post, served

import gesta
from gesta.address import Record, bind
from gesta.decide.waiting import Waiting
from gesta.serve import Access, app
from gesta.serve.app import assembled
from gesta.serve.chat import said_of
from gesta.store import Letter
from gesta.stores.memory import MemoryStore
from gesta.worker import Worker

pytestmark = pytest.mark.sample(2, over="parent")

Messages = list[Any]
WHERE: Any = {
    "type": "function",
    "function": {
        "name": "where",
        "description": "Where a parcel is.",
        "parameters": {"type": "object", "properties": {"parcel": {"type": "integer"}}, "required": ["parcel"]},
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    path = tmp_path_factory.mktemp("chat") / "chat.gesta"
    with served(path) as address:
        yield address, path


@pytest.fixture
def client(place: tuple[str, Path]) -> Iterator[openai.OpenAI]:
    """A client as it is by default: it tries again what failed."""
    with openai.OpenAI(base_url=f"{place[0]}/v1", api_key="none") as client:
        yield client


def say(client: openai.OpenAI, messages: Messages, text: str, **more: Any) -> Any:
    """Ask as a chat front end does: the whole conversation each time."""
    messages.append({"role": "user", "content": text})
    return complete(client, messages, **more)


def complete(client: openai.OpenAI, messages: Messages, **more: Any) -> Any:
    completion = client.chat.completions.create(model="desk", messages=messages, **more)
    messages.append(completion.choices[0].message.model_dump(exclude_none=True))
    return completion


def words(client: openai.OpenAI, messages: Messages, **more: Any) -> str:
    stream = client.chat.completions.create(model="desk", messages=messages, stream=True, **more)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_the_agents_are_its_models(client: openai.OpenAI) -> None:
    assert [each.id for each in client.models.list()] == ["desk"]


def test_a_conversation_goes_on_in_one_session(client: openai.OpenAI) -> None:
    messages: Messages = []
    first = say(client, messages, "One.", user="anna")
    second = say(client, messages, "Two.", user="anna")
    assert second.choices[0].message.content == "You said: One. | Two."
    assert first.session == second.session
    assert second.usage.total_tokens == second.usage.prompt_tokens + second.usage.completion_tokens


def test_two_conversations_that_begin_alike_are_two_sessions(client: openai.OpenAI) -> None:
    mine: Messages = []
    yours: Messages = []
    say(client, mine, "Alike.", user="anna")
    say(client, yours, "Alike.", user="anna")
    said = say(client, mine, "Mine.", user="anna"), say(client, yours, "Yours.", user="anna")
    assert [each.choices[0].message.content for each in said] == [
        "You said: Alike. | Mine.",
        "You said: Alike. | Yours.",
    ]
    assert said[0].session != said[1].session


def test_nobody_goes_on_with_the_conversation_of_another_user(client: openai.OpenAI) -> None:
    messages: Messages = []
    hers = say(client, messages, "Private.", user="anna")
    his = say(client, [*messages], "And?", user="bert")
    assert hers.session != his.session


def test_an_edited_message_begins_a_session_with_what_was_said_before_it(client: openai.OpenAI) -> None:
    messages: Messages = []
    first = say(client, messages, "Red.", user="edit")
    say(client, messages, "Green.", user="edit")
    edited = say(client, messages[:2], "Blue.", user="edit")
    assert edited.choices[0].message.content == "You said: Red. | Blue."
    assert edited.session != first.session


def test_a_conversation_that_began_elsewhere_is_put_on_record_as_history(client: openai.OpenAI) -> None:
    messages: Messages = [{"role": "user", "content": "Before."}, {"role": "assistant", "content": "Indeed."}]
    said = say(client, messages, "After.", user="elsewhere")
    assert said.choices[0].message.content == "You said: Before. | After."
    again = say(client, messages, "Later.", user="elsewhere")
    assert again.session == said.session


def test_words_come_as_a_stream_and_the_conversation_goes_on(client: openai.OpenAI) -> None:
    messages: Messages = [{"role": "user", "content": "What of the weather?"}]
    told = words(client, messages, user="stream")
    assert told.startswith("Let me look.")
    assert told.endswith("It says: Rome: 21 degrees, dry")
    messages.append({"role": "assistant", "content": told})
    assert say(client, messages, "Thanks.", user="stream").session.endswith("-1")


def test_a_stream_ends_with_the_usage_where_that_is_asked_for(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="desk",
        messages=[{"role": "user", "content": "Count."}],
        stream=True,
        stream_options={"include_usage": True},
    )
    *_, before, last = stream
    assert before.choices[0].finish_reason == "stop"
    assert last.usage is not None


def test_the_client_carries_out_a_tool_of_its_own(client: openai.OpenAI) -> None:
    messages: Messages = []
    asked = say(client, messages, "Tell me where it is.", tools=[WHERE], user="tools")
    (call,) = asked.choices[0].message.tool_calls
    assert (asked.choices[0].finish_reason, call.function.name) == ("tool_calls", "where")
    assert call.function.arguments == '{"parcel": 7}'
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "In Rome."})
    told = complete(client, messages, tools=[WHERE], user="tools")
    assert told.choices[0].message.content == "It says: In Rome."
    after = say(client, messages, "Thanks.", tools=[WHERE], user="tools")
    assert after.session == asked.session


def test_calls_of_its_tools_come_in_a_stream_too(client: openai.OpenAI) -> None:
    messages: Messages = [{"role": "user", "content": "Tell me where it is."}]
    stream = client.chat.completions.create(
        model="desk", messages=messages, tools=[WHERE], stream=True, user="in-a-stream"
    )
    deltas: list[Any] = [chunk.choices[0] for chunk in stream]
    (calls,) = [each.delta.tool_calls for each in deltas if each.delta.tool_calls]
    assert calls[0].function.name == "where"
    assert deltas[-1].finish_reason == "tool_calls"


def test_a_tool_that_the_agent_has_is_not_the_clients(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "refund", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match="has a tool 'refund' of its own"):
        say(client, [], "A refund.", tools=[named])


def test_an_invented_call_is_refused(client: openai.OpenAI) -> None:
    messages: Messages = [
        {"role": "user", "content": "x"},
        {"role": "tool", "tool_call_id": "call_1", "content": "In Rome."},
    ]
    with pytest.raises(openai.BadRequestError, match="results of tools and a new message"):
        complete(client, messages)
    messages.insert(1, {"role": "assistant", "content": None, "tool_calls": []})
    with pytest.raises(openai.BadRequestError, match="expected the id of a call made here"):
        complete(client, messages)


def test_a_turn_that_waits_says_so_and_the_next_message_waits_behind_it(
    client: openai.OpenAI, place: tuple[str, Path]
) -> None:
    messages: Messages = []
    waits = say(client, messages, "I want a refund.", user="waits")
    assert waits.choices[0].message.content == "⏳ This waits for: approval of refund."
    behind = say(client, messages, "Well?", user="waits")
    assert "Your message waits behind" in behind.choices[0].message.content
    assert behind.session == waits.session
    assert post(place[0], f"/runs/{waits.run}/approve", {"by": "ann"}).status_code == 202


@pytest.mark.parametrize("what", ["deaths", "resume", "running", "copy"])
def test_what_a_person_who_chats_cannot_end_is_said_in_words(what: Any) -> None:
    outcome = gesta.Outcome(run="r", session="s", turn=1, reason="waiting", waiting=(Waiting(what),))
    assert said_of(outcome) not in ("", f"⏳ This waits for: {what}.")


def test_a_request_that_is_sent_again_is_answered_once(client: openai.OpenAI, place: tuple[str, Path]) -> None:
    for headers in ({"Idempotency-Key": "k1"}, {"x-stainless-retry-count": "1"}):
        messages: Messages = [{"role": "user", "content": f"Once, by {[*headers]}."}]
        runs = set()
        for _ in range(2):
            sent = client.chat.completions.create(model="desk", messages=messages, extra_headers=headers)
            runs.add((sent.run, sent.choices[0].message.content))  # type: ignore[attr-defined]
        assert len(runs) == 1


def test_a_session_can_be_named(client: openai.OpenAI) -> None:
    for text in ("One.", "Two."):
        said = client.chat.completions.create(
            model="desk", messages=[{"role": "user", "content": text}], extra_body={"session": "named"}
        )
    assert said.choices[0].message.content == "You said: One. | Two."


def test_instructions_of_the_client_come_after_the_agents_own(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(_messages: list[Any], header: Any) -> str:
        seen.append(header.meta["instructions"])
        return "Seen."

    agent = gesta.Agent("desk", model=gesta.function(look), instructions="Be kind.")
    told = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "x"}]
    with (
        served(tmp_path / "r.gesta", agents=[agent]) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client,
    ):
        complete(client, told)
    assert seen == ["Be kind.\n\nBe short."]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"model": "desk", "messages": []}, "nothing is asked"),
        ({"model": "desk", "messages": [{"role": "user", "content": "x"}], "n": 2}, "an agent answers once"),
        ({"model": "desk", "messages": [{"role": "robot", "content": "x"}]}, "expected user, assistant or tool"),
        (
            {"model": "desk", "messages": [{"role": "user", "content": [{"type": "audio"}]}]},
            "expected text or image_url",
        ),
        ({"messages": []}, "missing required field `model`"),
    ],
)
def test_a_wrong_request_is_told_what_was_expected(place: tuple[str, Path], body: Any, said: str) -> None:
    refused = post(place[0], "/v1/chat/completions", body)
    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]


def test_a_turn_that_fails_is_an_error_of_the_server_and_not_taken_twice(
    client: openai.OpenAI, place: tuple[str, Path]
) -> None:
    with pytest.raises(openai.InternalServerError, match="the model is broken"):
        say(client, [], "Please break.", user="fails")
    connection = apsw.Connection(str(place[1]))
    asked = connection.execute("SELECT count(*) FROM entries WHERE content LIKE '%Please break.%' AND kind = 'user'")
    assert asked.fetchone() == (1,)
    connection.close()


async def test_the_words_of_an_agent_below_are_no_part_of_the_answer() -> None:
    helper = gesta.Agent("helper", model=gesta.scripted("I found a cat."))
    boss = gesta.Agent(
        "boss", model=gesta.scripted(gesta.call("helper", task="Look."), "A cat."), tools=[helper.as_tool()]
    )
    async with gesta.open() as record:
        served_here = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app(record, [boss])))
        client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=served_here)
        asked: Any = {"model": "boss", "messages": [{"role": "user", "content": "What is there?"}]}
        stream = await client.chat.completions.create(**asked, stream=True)
        told = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        whole = await client.chat.completions.create(**asked, user="other")
    assert "".join(told) == whole.choices[0].message.content == "A cat."


class Halting:
    """A scripted model that waits behind its first words, and once more behind the next ones."""

    def __init__(self, *waits: anyio.Event) -> None:
        self._model, self._waits = gesta.scripted("Rome is dry, and Oslo is not."), iter(waits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def send(self, request: Any) -> Any:
        async for piece in self._model.send(request):
            yield piece
            if (wait := next(self._waits, None)) is not None:
                await wait.wait()


async def test_a_stream_that_heard_only_the_first_words_ends_with_the_words_that_are_left() -> None:
    left, joined = anyio.Event(), anyio.Event()
    agent, said = gesta.Agent("desk", model=Halting(left, joined)), "Where is it dry?"
    body = {"model": "desk", "messages": [{"role": "user", "content": said}], "session": "anna", "stream": True}
    told = list[str]()

    async with gesta.open() as record, anyio.create_task_group() as tasks:
        served_here = httpx2.ASGITransport(app=app(record, [agent], work=False))
        client = httpx2.AsyncClient(transport=served_here, base_url="http://localhost/v1")

        async def listen() -> None:
            reply = await client.post("/chat/completions", json=body, headers={"Idempotency-Key": "m1"})
            chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
            told.extend(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)

        first: Any = aiter(record.stream(agent, said, session="anna", key="m1"))
        async with aclosing(first):
            while (await anext(first)).type != "answer":
                pass
        left.set()  # the next words come while nobody listens
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        joined.set()
    assert "".join(told) == "Rome is dry, and Oslo is not."
    assert len([words for words in told if words]) == 2


@asynccontextmanager
async def asking(record: gesta.Record, agent: gesta.Agent) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Serve an agent in this task, and yield what sends a conversation to it."""
    served = httpx2.ASGITransport(app=app(record, [agent], work=False))
    async with httpx2.AsyncClient(transport=served, base_url="http://localhost/v1") as client:

        async def ask(messages: Messages, **headers: str) -> Any:
            body = {"model": agent.name, "messages": messages, "tools": [WHERE]}
            return await client.post("/chat/completions", json=body, headers=headers)

        yield ask


async def test_requests_that_come_at_once_begin_a_session_each(tmp_path: Path) -> None:
    agent = gesta.Agent("desk", model=gesta.scripted(*["Rome is dry."] * 9))
    told = [{"role": "user", "content": "Rome?"}, {"role": "assistant", "content": "Which month?"}]
    async with gesta.open(tmp_path / "chat.gesta") as record, asking(record, agent) as ask:
        replies = await gather(*(ask([*told, {"role": "user", "content": "May."}]) for _ in range(6)))
    assert [reply.status_code for reply in replies] == [200] * 6
    assert len({reply.json()["session"] for reply in replies}) == 6


async def test_results_that_are_sent_twice_at_once_are_answered_twice(tmp_path: Path) -> None:
    model = gesta.scripted(gesta.call("where", parcel=7), "In Rome.")
    agent = gesta.Agent("desk", model=model)
    asked = [{"role": "user", "content": "Where is it?"}]
    async with gesta.open(tmp_path / "chat.gesta") as record, asking(record, agent) as ask:
        calls = (await ask(asked)).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": calls["tool_calls"][0]["id"], "content": "Rome"}
        replies = await gather(*(ask([*asked, calls, result]) for _ in range(2)))
    assert [reply.json()["choices"][0]["message"]["content"] for reply in replies] == ["In Rome."] * 2


async def test_a_request_that_comes_twice_at_once_under_its_key_is_answered_once(tmp_path: Path) -> None:
    agent = gesta.Agent("desk", model=gesta.scripted("Rome is dry."))
    asked = [{"role": "user", "content": "Rome?"}]
    key = {"Idempotency-Key": "m1"}
    async with gesta.open(tmp_path / "chat.gesta") as record, asking(record, agent) as ask:
        replies = await gather(*(ask(asked, **key) for _ in range(4)))
    assert [reply.json()["choices"][0]["message"]["content"] for reply in replies] == ["Rome is dry."] * 4
    assert len({reply.json()["session"] for reply in replies}) == 1


class Looking(MemoryStore):
    """A store that lets the worker of a server look for runs to continue after each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.worker: Worker | None = None
        self.due: list[int] = []

    async def send(self, letter: Letter) -> bool:
        sent = await super().send(letter)
        if self.worker is not None:
            self.due.append(await self.worker.look(lambda _: None))
        return sent


async def test_a_worker_leaves_a_run_alone_whose_client_sends_the_results_of_its_tools() -> None:
    heard: list[Any] = []

    def where(messages: list[dict[str, Any]], header: Any) -> Any:
        heard.append([tool["name"] for tool in header.tools or ()])
        return "In Rome." if messages[-1]["role"] == "tool" else gesta.call("where", parcel=7)

    agent, store = gesta.Agent("desk", model=gesta.function(where)), Looking()
    body: Any = {"model": "desk", "tools": [WHERE], "messages": [{"role": "user", "content": "Where?"}]}
    async with anyio.create_task_group() as tasks:
        served, service = assembled(Record(store, bind, tasks), [agent], Access(), work=True)
        transport = httpx2.ASGITransport(app=served)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/v1") as client:
            calls = (await client.post("/chat/completions", json=body)).json()["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": calls["tool_calls"][0]["id"], "content": "Rome"}
            store.worker = service.worker
            body["messages"] += [calls, result]
            reply = await client.post("/chat/completions", json=body)
        tasks.cancel_scope.cancel()
    assert reply.json()["choices"][0]["message"]["content"] == "In Rome."
    assert store.due == [0]
    assert heard == [["where"], ["where"]]
