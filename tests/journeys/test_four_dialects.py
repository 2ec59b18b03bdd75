"""One conversation goes from provider to provider, turn by turn: each is asked over HTTP in its own form, and no one is
shown what another keeps for itself; and one task is solved in three ways, each of which can be read in the other forms.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.validators import anthropic_messages, chat_completions, gemini, responses

import gesta
from gesta.address import bind, formatter, open_record
from gesta.kinds import Kind, ToolCallContent
from gesta.models.hosted import dialect
from gesta.models.http import HttpModel
from gesta.models.providers import Provider
from gesta.prompt import rebuild

ORDER = ("chat-completions", "anthropic-messages", "responses", "gemini")
ARGS = {"what": "the lamp"}
RULES: dict[str, Any] = {
    "chat-completions": lambda body: chat_completions.violations(json.dumps(body).encode()),
    "anthropic-messages": anthropic_messages.violations,
    "responses": responses.violations,
    "gemini": gemini.violations,
}


def chat(turn: int, *, calls: bool) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else f"answer {turn}"}
    if calls:
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": "look", "arguments": json.dumps(ARGS)}}
        message |= {"reasoning_content": f"OWN/chat-completions/{turn}", "tool_calls": [call]}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    }


def anthropic(turn: int, *, calls: bool) -> Any:
    thinking = {"type": "thinking", "thinking": f"INNER {turn}", "signature": f"OWN/anthropic-messages/{turn}"}
    use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "look", "input": ARGS}
    content = [thinking, use] if calls else [{"type": "text", "text": f"answer {turn}"}]
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 2},
    }


def response(turn: int, *, calls: bool) -> Any:
    own = {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": f"OWN/responses/{turn}"}
    call = {
        "type": "function_call",
        "id": f"fc_{turn}",
        "call_id": f"call_r{turn}",
        "name": "look",
        "arguments": json.dumps(ARGS),
    }
    text = {"type": "output_text", "text": f"answer {turn}", "annotations": []}
    said = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed", "content": [text]}
    output = [own, call | {"status": "completed"}] if calls else [said]
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": output,
        "usage": {"input_tokens": 9, "output_tokens": 2},
    }


def generated(turn: int, *, calls: bool) -> Any:
    call = {"functionCall": {"name": "look", "args": ARGS}, "thoughtSignature": f"OWN/gemini/{turn:05}"}
    parts = [call] if calls else [{"text": f"answer {turn}"}]
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11},
    }


SAYS = dict(zip(ORDER, (chat, anthropic, response, generated), strict=True))


class Server:
    """Four providers on one port: each asks for a tool, then answers."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, Any]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                name = self.path.split("/")[1]
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                turn, calls = divmod(len(owner.bodies), 2)
                owner.bodies.append((name, body))
                data = json.dumps(SAYS[name](turn, calls=not calls)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Stay quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def model(self, name: Any) -> HttpModel:
        url = f"http://127.0.0.1:{self.http.server_port}/{name}"
        provider = Provider("here", url, key_needed=False, speaks=name, keeps=("reasoning_content",))
        return HttpModel(dialect(provider, "m", stream=False), provider, key="k")


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@gesta.tool(effect="pure")
def look(what: str) -> str:
    """Look something up."""
    return f"{what}: brass"


async def test_a_conversation_moves_between_four_providers_turn_by_turn(server: Server) -> None:
    async with open_record(":memory:") as record:
        for turn, name in enumerate([*ORDER, *reversed(ORDER), *ORDER]):
            agent = gesta.Agent("desk", model=server.model(name), tools=[look], instructions="Be brief.")
            outcome = await record.run(agent, f"question {turn}", session="s")
            assert outcome.answer == f"answer {turn}", outcome.error
            assert (outcome.tokens_in, outcome.tokens_out) == (18, 4)
        entries = await record.read(outcome.run)
    assert len(server.bodies) == 24
    kept = dict.fromkeys(ORDER, 0)
    for name, body in server.bodies:
        assert RULES[name](body) == []
        text = json.dumps(body)
        assert all(f"OWN/{other}" not in text for other in ORDER if other != name), "nobody sees what another keeps"
        kept[name] += f"OWN/{name}" in text
        assert "INNER" not in text or name == "anthropic-messages"
    assert all(kept.values()), f"each has its own back: {kept}"
    last = json.dumps(server.bodies[-1][1])
    assert all(f"question {turn}" in last for turn in range(12))
    assert all(f"answer {turn}" in last for turn in range(11))
    requests = [entry for entry in entries if entry.kind is Kind.Request]
    names = [name for name in [*ORDER, *reversed(ORDER), *ORDER] for _ in range(2)]
    for entry, name in zip(requests, names, strict=True):
        again = rebuild(entries, entry.seq, formatter("tool-calls"), server.model(name))
        assert again.digest == entry.content.body_digest, "each can be made again from the record"  # type: ignore[union-attr]


# one task, three ways

WAYS: dict[str, list[Any]] = {
    "tool-calls": [gesta.call("look", what="the lamp"), "It is brass."],
    "react-text": [
        'Thought: I look.\nAction: look\nArgs: {"what": "the lamp"}',
        "Thought: I know.\nFinal Answer: It is brass.",
    ],
    "codeact-text": ['I look.\n```python\nprint(look(what="the lamp"))\n```', "It is brass."],
}
FORMS = ("tool-calls", "react", "codeact", "react-text", "codeact-text", "json-text", "transcript")


@gesta.tool(effect="pure", name="code_execution")
def run_code(code: str) -> str:
    """Stands for a sandbox: the one program that it knows."""
    assert code.strip() == 'print(look(what="the lamp"))'
    return "the lamp: brass\n"


@pytest.mark.parametrize("way", WAYS)
async def test_a_task_is_solved_in_each_way_and_its_record_is_read_in_every_form(way: str) -> None:
    tool = run_code if way == "codeact-text" else look
    agent = gesta.Agent("desk", model=gesta.scripted(*WAYS[way]), tools=[tool], formatter=way)
    async with open_record(":memory:") as record:
        outcome = await record.run(agent, "What is the lamp made of?")
        entries = await record.read(outcome.run)
    assert outcome.answer == "It is brass."
    (call,) = [entry.content for entry in entries if isinstance(entry.content, ToolCallContent)]
    assert call.status == "success"
    last = [entry.seq for entry in entries if entry.kind is Kind.Request][-1]
    model = bind(agent).asked()
    for form in FORMS:
        body = json.loads(rebuild(entries, last, formatter(form), model).body())
        text = json.dumps(body["messages"])
        assert "What is the lamp made of?" in text, form
        assert "the lamp: brass" in text, form
        assert chat_completions.history_violations(body["messages"]) == [], form
