"""Laws 3, 4, 5 and 7 in every formatter and every dialect, over runs that real parsers read from real wire forms.

What models say, send and forget is drawn by lot, and so is where a process dies, who is asked next, and what comes in
between. Each body is judged when it is sent, by validators that know nothing of this code.
"""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import anyio
import msgspec
import pytest
from benchmarks.histories import Judge
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from tests.conftest import COSTLY, FULL, sampled
from tests.laws.dialects import MODELS, STRICT, Host, Said, Spoken
from tests.laws.scenes import World, tools
from tests.laws.test_everything import agreeing
from tests.laws.test_histories import anything, text, wild_calls
from tests.laws.test_killed_patterns import Mortal

import gesta
from gesta import address
from gesta.address import Record
from gesta.codec.rows import encode_content
from gesta.entry import Entry
from gesta.function_tool.output import Output
from gesta.kinds import (
    CompactionContent,
    Content,
    Kind,
    Part,
    RequestContent,
    RequestHeaderContent,
    SystemContent,
    ToolResultContent,
    UserContent,
)
from gesta.message import Message
from gesta.model.request import Delta, Envelope, Reply, ReplyCall, Request
from gesta.models.jsontext import paired
from gesta.policy import Compact
from gesta.prompt import SHOWN, header_of, prompt_at, rebuild
from gesta.store import Letter

pytestmark = pytest.mark.sample(2, over="parent")

OPEN = ("thinking must come first in its message",)
"""Stricter than the provider, and broken where a compaction leaves nothing between two replies to Anthropic."""
LIVES = 20
"""Times that a turn is taken up before it counts as one that does not end."""
ended = {"answered", "failed", "limit"}

KEPT = ("keep_turns", "keep_results", "results_over")

formatters = st.sampled_from(address.FORMATTERS)
models = st.sampled_from(MODELS)
PIECES = (
    *(
        "Thought: t\n",
        "Action: look\n",
        'Args: {"x": 1}\n',
        "Observation: o\n",
        "Final Answer: ",
        "**Action:** `put`\n",
    ),
    *(
        "```python\nlook(x=1)\n```\n",
        "```",
        "<code>",
        "</code>",
        '{"request": "look", "x": 1}',
        '{"request": "',
        "{",
        "}",
    ),
    *("\n", " ", "\r\n", "\ud800", "\udc00", "\x00", "😀", "</system>", "[calls look with {}]", "(Go on.)"),
)
words = st.lists(st.sampled_from(PIECES) | text, max_size=6).map("".join)
deep = '{"x":' + "[" * 200 + "]" * 200 + "}"
hard = st.sampled_from(
    [
        deep,
        '{"x": 1e999}',
        '{"\\ud800": 1, "\\udc00": 2}',
        '{"x": 1, "x": 2}',
        '{"request": "put"}',
        '{"x": ' + "9" * 700 + "}",
    ]
)
known = st.sampled_from(["look", "put", "pay", "wire", "fail", "tell", "tell", "answer"])
calls = st.builds(ReplyCall, known, st.just('{"x": 1}') | st.just('{"x": 1}') | hard, st.sampled_from([None, "c", "d"]))
said = st.builds(
    Said,
    text=words,
    thought=st.none() | words,
    calls=st.lists(calls | wild_calls, max_size=3).map(tuple),
    lost=st.booleans(),
)
parts = st.builds(
    Part,
    type=st.sampled_from(["text", "image", "file"]),
    text=st.none() | text,
    data=st.none() | st.sampled_from([b"", b"\x89PNG", b"%PDF-1", b"plain \xc3\xa4", b"\xff"]),
    url=st.sampled_from(
        [None, "", "https://example.org/a.png", "http://x/a", "file:///a", "data:image/png;base64,AA=="]
    ),
    media_type=st.sampled_from(
        [None, "", "image/png", "image/bmp", "application/pdf", "text/plain; charset=x", "audio/mpeg", "odd"]
    ),
    name=st.none() | text,
)
messages = st.lists(words | parts, max_size=3)
seqs, places = st.integers(0, 60), st.integers(0, 200)
compactions = st.builds(
    lambda one, other, summary: CompactionContent(from_seq=min(one, other), to_seq=max(one, other), summary=summary),
    seqs,
    seqs,
    st.none() | words,
)
letters = st.lists(
    compactions
    | st.builds(UserContent, value=words, parts=st.none() | st.lists(parts, max_size=2))
    | st.builds(SystemContent, value=words)
    | st.builds(ToolResultContent, tool_result=words, call=st.none() | seqs, tool_call_id=st.none() | text),
    max_size=3,
)


def letter(run: str, content: Content, key: str) -> Letter:
    """Make a letter of any content, past the door that refuses some."""
    return Letter(run, key, encode_content(content))


class Play(Struct, frozen=True):
    """A conversation drawn by lot."""

    formatter: str
    asked: Sequence[Spoken]
    """Models, asked in turn: each time that a turn is begun, or taken up after a death."""
    said: Sequence[Said]
    messages: Sequence[Sequence[Any]]
    meanwhile: Sequence[Content]
    """What comes while a tool runs."""
    between: Sequence[Content]
    """What comes after a turn."""
    deaths: Sequence[tuple[int, str]] = ()
    result: Any = None
    """What the tool gives that is called then."""
    output: Any = None
    compact: Compact | None = None
    sizes: Sequence[int] = (64,)
    stream: bool = True

    def hosts(self) -> list[Host]:
        script = [*self.said, Said(text="Final Answer: done", thought="t")]
        return [Host(each, script, sizes=self.sizes, stream=self.stream) for each in self.asked]


plays = st.builds(
    Play,
    formatters,
    st.lists(models, min_size=1, max_size=3, unique_by=lambda spoken: spoken.name),
    st.lists(said, min_size=1, max_size=4),
    st.lists(messages, min_size=1, max_size=3),
    letters,
    letters,
    st.lists(st.tuples(st.integers(1, 14), st.sampled_from(["before", "after"])), max_size=3),
    text | anything,
    st.sampled_from([None, None, None, int, Output(dict[str, int], by="tool"), Output(list[str], by="prompt")]),
    st.none() | st.builds(Compact, at_tokens=st.sampled_from([1, 40]), **dict.fromkeys(KEPT, st.integers(0, 1))),
)


def acting(play: Play, host: Host, store: Mortal) -> gesta.Agent:
    """An agent with the tools of the scenes, and one during which something comes."""

    async def tell(x: int, context: gesta.Context) -> Any:
        for number, content in enumerate(play.meanwhile):
            await store.send(letter(context.run, content, f"{context.key}-{number}"))
        return play.result

    told = [replace(tool, on_doubt="tell") if tool.reconcile is None else tool for tool in tools(World())]
    limits, retry = gesta.Limits(requests=8), gesta.Retry(first_wait_s=0.0, empty=0)
    quick = gesta.Policy(retry=retry, limits=limits, compact=play.compact)
    everything = [*told, gesta.tool(tell, effect="pure")]
    agent = gesta.Agent("actor", model=host, tools=everything, formatter=play.formatter, policy=quick)
    return address.bind(replace(agent, instructions="Be brief.", output=play.output))


def same() -> Mortal:
    """A store of an id that is always the same, and with it are the ids of runs, and those of calls without one."""
    store = Mortal()
    store._info = replace(store.info, id="0" * 32)
    return store


async def lived(play: Play, hosts: Sequence[Host]) -> tuple[Mortal, str]:
    """Run every turn to its end, through deaths. Returns the store and the run."""
    store, deaths, lives, run = same(), list(play.deaths), 0, ""
    for number, message in enumerate(play.messages):
        for _ in range(LIVES):
            store.begin(deaths.pop() if deaths else None)
            record, host, lives = Record(store, address.bind), hosts[lives % len(hosts)], lives + 1
            try:
                outcome = await record.run(acting(play, host, store), list(message), session="s", key=f"m{number}")
            except BaseException:
                if not store.dead:
                    raise
                continue
            if not store.dead and outcome.reason != "waiting":
                break
            store.begin(None)
            await approve(Record(store, address.bind))
        assert outcome.reason in ended, outcome
        run = outcome.run
        store.begin(None)
        for place, content in enumerate(play.between):
            await store.send(letter(run, content, f"between-{number}-{place}"))
    return store, run


async def approve(record: Record) -> None:
    """Approve a second attempt of a call whose outcome nobody knows."""
    for row in await record.store.runs():
        for key, content in agreeing(await record.state(row.run), random.Random(0)):
            await record.store.send(letter(row.run, content, key))


async def entries_of(play: Play) -> tuple[list[Entry], list[Host]]:
    hosts = play.hosts()
    store, run = await lived(play, hosts)
    return await Record(store, address.bind).read(run), hosts


@given(plays)
def test_every_body_that_is_sent_is_taken(play: Play) -> None:
    async def main() -> None:
        _, hosts = await entries_of(play)
        assert [each for host in hosts for each in host.wrong] == []

    anyio.run(main)


@given(plays)
def test_each_request_begins_as_the_one_before_and_is_the_same_on_every_formatting(play: Play) -> None:
    async def main() -> None:
        entries, hosts = await entries_of(play)
        by_name, formatter = {host.name: host for host in hosts}, address.formatter(play.formatter)
        sent = {each.digest: each for host in hosts for each in list(host.sent)}
        made: list[tuple[Entry, list[bytes]]] = []
        for entry in entries:
            if isinstance(entry.content, RequestContent):
                header = header_of(entries, entry.seq)
                request = rebuild(entries, entry.seq, formatter, by_name[header.model])
                assert request.digest == entry.content.body_digest
                made.append((entry, list(request.blocks)))
                known = sent.pop(request.digest, None)
                assert known is None or (known.blocks, known.head) == (request.blocks, request.envelope.head)
        assert sent == {}, "something was sent that is not on record"
        for (one, before), (other, after) in pairwise(made):
            assert isinstance(one.content, RequestContent)
            assert isinstance(other.content, RequestContent)
            models = {header_of(entries, each.seq).model for each in (one, other)}
            between = {entry.kind for entry in entries[one.seq : other.seq]}
            if len(models) == 1 and Kind.Compaction not in between:
                assert after[: len(before)] == before
                assert other.content.extends == one.seq
            if other.content.extends is not None:
                assert len(after) == len(before) + len(other.content.blocks)

    anyio.run(main)


@COSTLY
@given(plays, st.lists(st.tuples(st.integers(0, 200), places, places, st.none() | words), min_size=1, max_size=3))
def test_at_every_prefix_what_would_be_sent_next_is_taken_in_every_form(
    play: Play, hidden: list[tuple[int, int, int, str | None]]
) -> None:
    async def main() -> None:
        entries, _ = await entries_of(play)
        for number, (place, one, other, summary) in enumerate(hidden, 10_000):
            at = 1 + place % len(entries)
            known = [entry.seq for entry in entries[:at] if entry.kind in SHOWN]
            first, last = sorted((known[one % len(known)], known[other % len(known)]))
            content = CompactionContent(from_seq=first, to_seq=last, summary=summary)
            rewritten = [content, *([SystemContent(value=summary)] if summary and place % 2 else [])]
            for step, each in enumerate(rewritten):  # what a compaction causes stands where it hid something
                causes = (number,) if step else ()
                entries.insert(at + step, replace(entries[0], seq=number + 500 * step, content=each, causes=causes))
        judge = Judge(every=3)
        judge.take(entries)
        assert [flaw for flaw in judge.report.flaws.values() if flaw.rule not in OPEN] == []

    anyio.run(main)


everyone = pytest.mark.parametrize("spoken", STRICT, ids=lambda spoken: spoken.speaks)


def played(play: Play) -> tuple[list[Entry], Host]:
    """Play with one model, whose provider takes all that it is sent."""
    entries, (host,) = anyio.run(entries_of, play)
    assert host.wrong == []
    return entries, host


@pytest.mark.sample(2)
@everyone
def test_calls_that_are_too_many_for_one_message_are_several(spoken: Spoken) -> None:
    many = tuple(ReplyCall("look", f'{{"x": {number}}}', f"c{number}") for number in range(130))
    entries, host = played(Play("tool-calls", [spoken], [Said(text="All.", thought="t", calls=many)], [["hi"]], [], []))
    asked = [entry.seq for entry in entries if entry.kind in (Kind.ChatCompletion, Kind.ToolCall)][:131]
    made = prompt_at(entries, 10_000, address.formatter("tool-calls"), host).shown[1:133]
    assert [len(each.calls) for each in made if each.calls] == [128, 2]
    assert [seq for each in made if each.calls for seq in each.sources] == asked
    assert [each.answers for each in made if each.answers] == [call.id for call in many]
    assert [message.text for message in host.encoded if message.calls][:2] == ["All.", ""]


@pytest.mark.sample(5)
@everyone
@pytest.mark.parametrize("name", address.FORMATTERS)
def test_arguments_that_no_json_holds_are_shown(name: str, spoken: Spoken) -> None:
    held = tuple(ReplyCall("look", args) for args in (deep, '{"x": NaN}', '{"x": "\\ud800"}'))
    _, host = played(Play(name, [spoken], [Said(calls=held)], [["hi"]], [], []))
    assert len(host.sent) == 2


@everyone
def test_what_is_left_when_all_was_left_out_is_taken(spoken: Spoken) -> None:
    hidden = CompactionContent(from_seq=1, to_seq=8)
    said = [Said(calls=(ReplyCall("tell", '{"x": 1}'),))]
    entries, host = played(Play("tool-calls", [spoken], said, [["hi"], ["and?"]], [hidden], []))
    assert [entry.seq for entry in entries if entry.kind is Kind.Compaction] == [9]
    assert [len(each.blocks) for each in host.sent] == [1, 0, 2]


def test_an_argument_that_is_named_as_the_grammar_names_tools_does_not_rename_the_tool() -> None:
    said = [Said(calls=(ReplyCall("look", '{"x": 1, "request": "pay"}'),))]
    _, host = played(Play("json-text", STRICT[:1], said, [["hi"]], [], []))
    assert [message.text for message in host.encoded if message.role == "assistant"] == ['{"request": "look", "x": 1}']


# law 5


class Counted:
    """An envelope that counts the blocks that were put into bodies."""

    def __init__(self, envelope: Envelope, added: list[bytes]) -> None:
        self.envelope, self.added = envelope, added

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envelope, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and other.envelope == self.envelope

    __hash__ = None  # type: ignore[assignment]

    def add(self, before: bytes | None, block: bytes) -> bytes:
        self.added.append(block)
        return self.envelope.add(before, block)


class Costly(Host):
    """A host that notes what each request cost: messages encoded and blocks hashed so far, and blocks sent."""

    def __init__(self, of: Spoken, said: Sequence[Said]) -> None:
        super().__init__(of, said)
        self.added: list[bytes] = []
        self.costs: list[tuple[int, int, int]] = []

    def envelope(self, header: RequestHeaderContent) -> Any:
        return Counted(super().envelope(header), self.added)

    async def send(self, request: Request) -> AsyncGenerator[bytes, None]:
        self.costs.append((len(self.encoded), len(self.added), len(request.blocks)))
        async with aclosing(super().send(request)) as pieces:
            async for piece in pieces:
                yield piece
        del self.added[self.costs[-1][1] :]  # a body is put together once more to be sent: all of it is


class Telling:
    """A formatter that counts the entries that it is given."""

    def __init__(self, name: str) -> None:
        self.formatter, self.given = address.formatter(name), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.formatter, name)

    def format(self, entries: Sequence[Entry], state: Any) -> list[Message]:
        self.given += len(entries)
        return self.formatter.format(entries, state)


@given(plays)
def test_each_message_is_encoded_once(play: Play) -> None:
    meanwhile = [content for content in play.meanwhile if not isinstance(content, CompactionContent)]
    play = replace(play, asked=play.asked[:1], meanwhile=meanwhile, deaths=[], compact=None)

    async def main() -> None:
        (host,), store = play.hosts(), same()
        record = Record(store, address.bind)
        for number, message in enumerate(play.messages):
            await record.run(acting(play, host, store), list(message), session="s", key=f"m{number}")
        assert len(host.encoded) == len(host.sent[-1].blocks)

    anyio.run(main)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        pytest.param(name, spoken, id=f"{name} {spoken.speaks}")
        for place, name in enumerate(address.FORMATTERS)
        for spoken in sampled(STRICT, 2, place)
    ],
)
def test_the_next_request_costs_the_same_however_long_the_history_is(name: str, spoken: Spoken) -> None:
    turns = 24 if FULL else 6
    script = [
        [Said(thought="t", calls=(ReplyCall("look", f'{{"x": {n}}}', f"c{n}"),)), Said(text="ok")] for n in range(turns)
    ]
    host, formatter = Costly(spoken, [said for turn in script for said in turn]), Telling(name)
    made: list[int] = []

    async def main() -> None:
        store = same()
        record = Record(store, address.bind)
        play = Play(name, [spoken], [], [], [], [])
        for number in range(turns):
            agent = replace(acting(play, host, store), formatter=formatter)
            await record.run(agent, f"question {number}", session="s")
            made.append(formatter.given)

    anyio.run(main)
    assert host.wrong == []
    grown = [tuple(b - a for a, b in zip(one, other, strict=True)) for one, other in pairwise(host.costs[::2])]
    assert len(grown) == turns - 1
    assert set(grown[1:]) == {grown[1]}
    assert grown[1][0] == grown[1][1] == grown[1][2] > 0
    assert len({after - before for before, after in pairwise(made[1:])}) == 1


# law 7


def pieces_of(draw: st.DataObject, data: Any) -> list[Any]:
    """Cut a text or bytes at places drawn by lot."""
    edges = [0, *sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8))), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def heard(reader: Any, pieces: Sequence[Any]) -> tuple[str, str]:
    """Feed a reader, and give what a listener was told: thought and text."""
    deltas: list[Delta] = [delta for piece in pieces for delta in reader.feed(piece)]
    told = ["".join(delta.text for delta in deltas if delta.type == type) for type in ("thought", "text")]
    return told[0], told[1]


@pytest.mark.parametrize("name", ["react-text", "codeact-text", "json-text"])
@given(words, st.data())
def test_a_grammar_reads_the_same_however_words_are_cut(name: str, text: str, draw: st.DataObject) -> None:
    def read(pieces: Sequence[str]) -> tuple[Reply, str]:
        reader = address.formatter(name).reader()
        assert reader is not None
        _, told = heard(reader, pieces)
        reply = reader.close(Reply())
        assert reply.calls or reply.text.startswith(told)
        return reply, told

    expected, told = read([text])
    assert all(read(pieces)[0] == expected for pieces in (pieces_of(draw, text), list(text)))
    assert told.strip() == expected.text.strip() or "json" in name or not told


@pytest.mark.sample(4)
@pytest.mark.parametrize("spoken", MODELS, ids=lambda spoken: spoken.name)
@given(said, st.data())
def test_a_reply_is_the_same_however_its_stream_is_cut_and_whole(
    spoken: Spoken, said: Said, draw: st.DataObject
) -> None:
    def read(pieces: Sequence[bytes]) -> tuple[Reply, str, str]:
        parser = spoken.dialect.parser()
        thought, text = heard(parser, pieces)
        reply = parser.close()
        assert reply.text.startswith(text)
        assert (reply.thought or "").startswith(thought)
        return reply, thought, text

    wire = spoken.wire(said, 0)
    stream = b"".join(wire.events)
    expected = read([stream])
    assert read(pieces_of(draw, stream)) == expected
    assert read([bytes([byte]) for byte in stream]) == expected
    assert read([wire.whole])[0] == expected[0]
    assert expected[0].text == paired(said.text)
    assert len(expected[0].calls) >= sum(bool(call.name or call.args or call.id) for call in said.calls)


def told(entries: Sequence[Entry], *, streams: bool) -> list[Any]:
    """What must be the same: all of an entry, less when, how fast, and, where one was no stream, in which bytes."""
    found: list[Any] = []
    for entry in entries:
        content: Any = msgspec.to_builtins(entry.content, builtin_types=(bytes,))
        content.pop("latency_ms", None)
        if not streams:
            for place in (content, content.get("meta") or {}, content.get("extra") or {}):
                for name in ("raw_zlib", "body_digest", "error", "opened"):
                    place.pop(name, None)
        content.pop("opened", None)
        if entry.kind == Kind.Attempt:
            content["key"] = content["process"] = "drawn by lot"
        found.append((entry.seq, entry.kind, repr(content), entry.span, entry.causes))  # nan is no other nan
    return found


@given(plays, st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_however_streams_are_cut_and_without_them_the_same_entries_result(play: Play, sizes: list[int]) -> None:
    play = replace(play, deaths=[])

    async def main() -> None:
        plain, _ = await entries_of(play)
        cut, _ = await entries_of(replace(play, sizes=sizes))
        whole, _ = await entries_of(replace(play, stream=False))
        assert told(cut, streams=True) == told(plain, streams=True)
        assert told(whole, streams=False) == told(plain, streams=False)

    anyio.run(main)
