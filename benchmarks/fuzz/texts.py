"""Texts that are read outside a record: JSON of others, cases, agents' files, addresses, and replies of models."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import anyio
from msgspec.json import decode

import gesta
from benchmarks.fuzz.commands import Wrong
from benchmarks.fuzz.mutating import CHUNKS, cut, hostile, spoilt, twisted
from benchmarks.fuzz.records import Samples
from gesta import address
from gesta.cli.loading import load
from gesta.cli.times import point
from gesta.codec.rows import decode_content, encode_content
from gesta.compare import cases
from gesta.compat.langchain.lc import from_lc, to_lc
from gesta.function_tool.output import output_of
from gesta.function_tool.tool import tool
from gesta.integrity.verify import head_of
from gesta.model.request import Reply
from gesta.model.usage import tokens
from gesta.models.jsontext import compact, read
from gesta.models.replay import said
from gesta.prompt import observation_text
from gesta.stores.words import compiled

AGENT = b"""import gesta

agent = gesta.Agent("desk", model=gesta.scripted("Hello."), instructions="Help.")
"""
LC = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "schema", "agent", "AgentActionMessageLog"],
    "kwargs": {
        "tool": "look",
        "tool_input": {"what": "one"},
        "log": "Look.",
        "type": "AgentActionMessageLog",
        "message_log": [
            {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "schema", "messages", "AIMessage"],
                "kwargs": {"content": "", "tool_calls": [{"name": "look", "args": {}, "id": "c1"}], "type": "ai"},
            }
        ],
    },
}
SPOKEN = {
    "react-text": "Thought: I look.\nAction: look\nAction Input: {\"what\": 'one'}\n",
    "codeact-text": 'I look.\n```python\nprint(look(what="one"))\n```\nThen more.\n',
    "json-text": 'I look. {"tool": "look", "args": {"what": "one"}} Then {"request": "look", "what": "one"}',
}
"""Replies of models that write their tool calls as text, by formatter."""
ADDRESSES = (
    "openai:gpt-4o",
    "anthropic:claude",
    "agent.py:agent",
    "a.b.c:agent",
    "postgresql://u:p@[::1]:1/x",
    "x@y:z",
)
TIMES = ("30d", "2026-01-01", "2026-01-01T00:00:00Z", "999999w", "2026-01-01T00:00:00+23:59")
HEAD = f"7ce99bb11d8c71a2.12:{'ab' * 32}"
WORDS = 'refund "two words" begin* one OR other'
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}, "input_tokens": 4}
MESSAGES = [
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": [{"id": "c", "function": {}}]},
]


@dataclass
class Place:
    """Where something is."""

    city: str
    floor: int = 0


@tool(effect="pure")
def find(name: str, at: Place, limit: int = 3, tags: list[str] | None = None, score: float = 0.5) -> str:
    """Find something."""
    return f"{name}{at}{limit}{tags}{score}"


ARGS = {"name": "x", "at": {"city": "Rome", "floor": 2}, "limit": 4, "tags": ["a"], "score": 1.5}


class Texts:
    """Samples of texts, made from a record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contents, self.case = anyio.run(_taken, Samples(folder))


async def _taken(records: Samples) -> tuple[list[str], bytes]:
    async with gesta.open(str(records.sample)) as record:
        runs = [row.run for row in await record.store.runs()]
        every = [entry for run in runs for entry in await record.read(run)]
        found = await cases.taken(record, runs[0])
    case = cases.Case(cases.Head(agent="agent.py:agent", run=runs[0]), found)
    contents = [encode_content(entry.content) for entry in every]
    return [text for text in contents if len(text) < 5_000], cases.written(case).encode()


def _text(lot: Random, data: bytes) -> str:
    """Return bytes as a text, sometimes with lone surrogates."""
    return data.decode("utf-8", lot.choice(("replace", "surrogateescape")))


def _content(lot: Random, texts: Texts) -> str:
    text = lot.choice(texts.contents)
    data = hostile(lot, decode(text)) if lot.random() < 0.8 else spoilt(lot, text.encode())
    content = decode_content(_text(lot, data), {})
    decode_content(encode_content(content), {})
    return f"read {content.kind}"


def _lc(lot: Random, _texts: Texts) -> str:
    try:
        value = from_lc(hostile(lot, LC))
    except ValueError:
        return "refused"
    to_lc(value)
    return "read"


def _json(lot: Random, _texts: Texts) -> str:
    try:
        value = read(hostile(lot, [LC, ARGS, USAGE]))
    except ValueError:
        return "refused"
    compact(value)
    observation_text(value)
    return "read"


def _case(lot: Random, texts: Texts) -> str:
    path = texts.folder / "case.jsonl"
    lines = texts.case.splitlines()
    place = lot.randrange(len(lines))
    lines[place] = hostile(lot, decode(lines[place]))
    path.write_bytes(b"\n".join(lines))
    return f"read {len(cases.read(path).runs)} runs"


def _agent(lot: Random, texts: Texts) -> str:
    path = texts.folder / "agent.py"
    path.write_bytes(spoilt(lot, AGENT))
    return f"loaded {load(f'{path}:agent').name[:8]}"


def _model(lot: Random, _texts: Texts) -> str:
    named = _text(lot, spoilt(lot, lot.choice(ADDRESSES).encode()))
    url = _text(lot, spoilt(lot, b"http://127.0.0.1:1/v1")) if lot.random() < 0.6 else None
    address.remote(named)
    return type(address.model(named, url)).__name__


def _agent_address(lot: Random, texts: Texts) -> str:
    os.chdir(texts.folder)
    (texts.folder / "agent.py").write_bytes(AGENT)
    return load(_text(lot, spoilt(lot, b"agent.py:agent"))).name


def _words(lot: Random, _texts: Texts) -> str:
    compiled(_text(lot, spoilt(lot, WORDS.encode())))
    return "words"


def _time(lot: Random, _texts: Texts) -> str:
    return str(point(_text(lot, spoilt(lot, lot.choice(TIMES).encode())), "--since"))[:4]


def _head(lot: Random, _texts: Texts) -> str:
    return "read" if head_of(_text(lot, spoilt(lot, HEAD.encode()))) else "no head"


def _usage(lot: Random, _texts: Texts) -> str:
    found = tokens(twisted(lot, USAGE) or None) if isinstance(twisted(lot, USAGE), dict) else None
    return "counted" if found else "no count"


def _said(lot: Random, _texts: Texts) -> str:
    given = twisted(lot, MESSAGES)
    known = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    return f"{len(said(known))} said"


def _spoken(lot: Random, _texts: Texts) -> str:
    name = lot.choice(list(SPOKEN))
    text = spoilt(lot, SPOKEN[name].encode() * lot.choice((1, 1, 3)))
    form: Any = address.formatter(name)
    told = []
    for pieces in ([text], cut(lot, text)):
        reader = form.reader()
        for piece in pieces:
            reader.feed(piece.decode("latin-1"))
        told.append(repr(reader.close(Reply(text=text.decode("latin-1")))))
    if told[0] != told[1]:
        raise Wrong(f"cut otherwise, {text[:300]!r} gives {told[1]:.300}, not {told[0]:.300}")
    return name


def _arguments(lot: Random, _texts: Texts) -> str:
    given = twisted(lot, ARGS)
    find.arguments(given if isinstance(given, dict) else {"name": given})
    return "taken"


def _output(lot: Random, _texts: Texts) -> str:
    form = output_of(lot.choice((Place, list[Place], dict[str, int], int, float)))
    assert form is not None
    value = form.read(_text(lot, hostile(lot, lot.choice((ARGS["at"], [ARGS["at"]], {"a": 1}, {"value": 7}, 2.5)))))
    return type(value).__name__


READ: tuple[Callable[[Random, Texts], str], ...] = (
    *(_content, _content, _content, _lc, _json, _case, _agent, _model, _agent_address, _words, _time, _head, _usage),
    *(_said, _spoken, _arguments, _arguments, _output),
)


def text(lot: Random, texts: Texts) -> str:
    """Read a damaged text in a random form, and return the outcome."""
    reader = lot.choice(READ)
    return f"{reader.__name__.strip('_')}: {reader(lot, texts)}"


__all__ = ["CHUNKS", "Texts", "json", "text"]
