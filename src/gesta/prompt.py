"""The prompt of the next request: a formatter makes messages from entries, and a model makes blocks from messages.

An entry is one stored fact of a run, such as a tool call; its seq is its number there. A block is an encoded message. A
segment is the entries from one `request` entry to the next. A formatter makes the messages of a segment once, and they
never change. So the same entries always give the same blocks, and a resumed run sends the same bytes as a run that was
never interrupted. The digest of the body is updated with each block, so a request costs only what is new. A
`compaction` entry removes blocks from the requests after it. A *place* is the index of a block.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gesta.entry import Entry
from gesta.errors import BrokenRecord
from gesta.kinds import CompactionContent, Kind, RequestContent, RequestHeaderContent
from gesta.message import Message, Role
from gesta.model.request import Delta, Envelope, Model, Reply, Request, native_by

S = TypeVar("S")


class Reader(Protocol):
    """The interface of an object that divides the text of one reply into thought, calls and answer.

    The result does not depend on the pieces in which the text arrives.
    """

    def feed(self, text: str) -> list[Delta]:
        """Add the next piece of the reply's text, and return the pieces of thought or answer to show now."""

    def close(self, reply: Reply) -> Reply:
        """Return a copy of the reply with its text divided into thought, calls and answer. Never raises.

        A call that cannot be read gets its own text as arguments. The model then gets an error that says what is wrong.
        """


class Formatter(Protocol[S]):
    """The interface of an object that makes messages from entries, and reads calls that a model writes in its text."""

    @property
    def name(self) -> str:
        """Name and version, such as `tool-calls/1`. The entry of each request stores it."""

    def start(self) -> S:
        """Return the formatter's state before the first segment.

        The state is what a formatter keeps from one segment for the next, such as the ids of calls.
        """

    def format(self, entries: Sequence[Entry], state: S) -> list[Message]:
        """Return the messages of one segment, and update `state` for the next segment. Never raises.

        Each call in the messages is followed by one result. The results come in the order of the calls, directly after
        the message with the calls. A placeholder replaces a missing result.
        """

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return the request header (tools, instructions, settings) in the form that is sent to the model.

        If calls are read from text, instructions on how to write calls are added.
        """

    def reader(self) -> Reader | None:
        """Return a reader for one reply; `None` if the provider reports calls apart from the text."""


DECIMAL_BITS = 14_000
"""Greatest number of bits of an integer that is written in decimal. Python refuses to write over 4,300 digits."""


def numbers_in_hex(value: Any) -> Any:
    """Return a copy of a value in which `hex` texts replace the integers that Python refuses to write in decimal."""
    match value:
        case int() if value.bit_length() > DECIMAL_BITS:
            return hex(value)
        case dict():
            keys = [numbers_in_hex(key) if isinstance(key, int) else key for key in value]
            return dict(zip(keys, map(numbers_in_hex, value.values()), strict=True))
        case list() | tuple():
            return [numbers_in_hex(each) for each in value]
        case _:
            return value


def observation_text(value: Any) -> str:
    """Return a tool's result as text for a model: a text unchanged, any other value as JSON, or else by `str`.

    Never raises.
    """
    if isinstance(value, str):
        return value
    for write in (_as_json, lambda value: _as_json(numbers_in_hex(value)), str):
        try:
            return write(value)
        except (TypeError, ValueError, RecursionError):
            continue
    return f"(a {type(value).__name__} that has no text)"


def given_text(value: Any) -> str:
    """Return a value that a program returned as text for a person to read. Never raises.

    If the value is a dict with a text `content`, that text is returned; for any other value see `observation_text`.
    """
    content = value.get("content") if isinstance(value, dict) else None
    return content if isinstance(content, str) else observation_text(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


SHOWN = frozenset(
    {
        Kind.System,
        Kind.User,
        Kind.Assistant,
        Kind.ChatCompletion,
        Kind.Thought,
        Kind.ToolCall,
        Kind.ToolResult,
        Kind.Begin,
    }
)
"""Kinds of entries from which a formatter may make messages."""


def way(formatter: Formatter[Any], model: Model) -> str:
    """Return a name for the combination of formatter, encoder and model that makes blocks from entries.

    The model is part of the name because only the model that made native items (such as signed reasoning) gets them
    back.
    """
    return f"{formatter.name}+{native_by(model)}"


CLEARED = "[This result was left out to save space. Call the tool again if it is needed.]"
NOTHING = "(All earlier messages were left out. Go on.)"
"""The message to send if no block is left, because no provider accepts an empty conversation."""


class Shown(Struct, frozen=True, gc=False):
    """Facts about one block of a prompt: the role of its message, its calls, and the entries that it was made from."""

    role: Role
    sources: tuple[int, ...]
    """Seqs of the entries that the block was made from."""
    calls: tuple[str, ...]
    """Ids of the calls in the block."""
    answers: str | None
    """Id of the call whose result the block contains; `None` if it contains no result."""
    tool: str | None
    observes: bool
    """Whether the block contains the results of tools."""
    failed: bool = False
    """Whether the block holds the error of a tool."""
    left_out: bool = False
    """Whether a compaction replaced the text of the block."""


class Prompt:
    """The messages of a run, made by one formatter and encoded for one model."""

    def __init__(self, formatter: Formatter[Any], model: Model) -> None:
        self._formatter = formatter
        self._encode = model.encode
        self._state = formatter.start()
        self._segment: list[Entry] = []
        self.blocks: list[bytes] = []
        self.shown: list[Shown] = []
        """The facts about each block, in the same order as `blocks`."""
        self._gaps: dict[int, int] = {}
        """For each compaction since the last request, by its seq: the place where it removed blocks. Messages made from
        the compaction, such as its summary, are inserted there."""
        self.encoder = f"{formatter.name}+{model.encoder}"
        self.way = way(formatter, model)
        self._envelope: Envelope | None = None
        self._hash = hashlib.sha256()
        self._hashed = 0

    def become(self, made: "Prompt") -> None:
        """Replace all that this prompt holds by what another prompt of the same run holds.

        Each task that has this object then continues with the blocks of the other one.
        """
        self.__dict__ |= made.__dict__

    def add(self, entry: Entry) -> None:
        """Add one entry of the run. A `request` or a `compaction` ends the current segment."""
        kind = entry.content.kind
        if kind is Kind.Request:
            if self._segment:
                self.close()
            self._gaps.clear()  # sent blocks stay as they are
        elif kind is Kind.Compaction:
            assert isinstance(entry.content, CompactionContent)
            self.close()
            self._hide(entry.seq, entry.content)
        elif kind in SHOWN:
            gap = self._gap(entry) if self._gaps else None
            if gap is not None:
                self.close()
            self._segment.append(entry)
            if gap is not None:
                self.close(gap)

    def _gap(self, entry: Entry) -> int | None:
        """Return the place where a compaction removed blocks, if the compaction is a cause of `entry`; else `None`."""
        return next((self._gaps[cause] for cause in entry.causes if cause in self._gaps), None)

    def close(self, at: int | None = None) -> None:
        """End the current segment: make messages from its entries, encode each into a block, and insert the blocks.

        Args:
            at: place of the first inserted block; `None` for the end.
        """
        if self._segment:
            messages = self._formatter.format(self._segment, self._state)
            self._segment = []
            self._insert(at, messages)

    def _insert(self, at: int | None, messages: Sequence[Message]) -> None:
        if at is None:
            at = len(self.blocks)
        else:  # later insertions come after this one
            self._gaps = {known: gap + len(messages) * (gap >= at) for known, gap in self._gaps.items()}
        self.blocks[at:at] = map(self._encode, messages)
        self.shown[at:at] = [
            Shown(
                role=each.role,
                sources=each.sources,
                calls=tuple([call.id for call in each.calls]) if each.calls else (),
                answers=each.call_id,
                tool=each.name,
                observes=each.observes or each.call_id is not None,
                failed=each.failed,
            )
            for each in messages
        ]

    def _hide(self, seq: int, content: CompactionContent) -> None:
        """Remove the blocks that were made from the range of entries that a compaction names.

        The summary, if there is one, takes their place. The results of removed calls are removed too. If a result is in
        the range but its call is not, the result stays, and a short text replaces its text.

        Args:
            seq: seq of the compaction.
        """
        hidden = {
            place
            for place, shown in enumerate(self.shown)
            if shown.sources and all(content.from_seq <= source <= content.to_seq for source in shown.sources)
        }
        calls = {id for place in hidden for id in self.shown[place].calls}
        alone = {place for place in hidden if self._answers_beyond(place, calls, hidden)}
        for place in alone:
            self._clear(place, seq, content.summary)
        hidden -= alone
        hidden |= {place for place, shown in enumerate(self.shown) if shown.answers in calls}
        kept = [place for place in range(len(self.blocks)) if place not in hidden]
        gap = min(hidden, default=len(self.blocks))
        self.blocks = [self.blocks[place] for place in kept]
        self.shown = [self.shown[place] for place in kept]
        self._gaps = {known: at - sum(place < at for place in hidden) for known, at in self._gaps.items()}
        self._gaps[seq] = gap
        if content.summary is not None and (hidden or not alone):
            self._insert(gap, [Message(role="user", text=content.summary, sources=(seq,))])
        self._envelope = None

    def _answers_beyond(self, place: int, calls: set[str], hidden: set[int]) -> bool:
        """Return whether a block that is to be removed is the result of a call that stays in the prompt.

        Args:
            place: place of the block.
            calls: ids of the calls in the blocks to remove.
            hidden: places of the blocks to remove.
        """
        shown = self.shown[place]
        if not shown.observes:
            return False
        return shown.answers not in calls if shown.answers is not None else place - 1 not in hidden

    def _clear(self, place: int, seq: int, summary: str | None) -> None:
        """Replace the result in the block at `place` by a short text. The block stays: each call needs a result.

        Args:
            seq: seq of the compaction, which the block then counts as made from.
            summary: the short text; `None` for the text `CLEARED`.
        """
        old = self.shown[place]
        text = CLEARED if summary is None else summary
        self.blocks[place] = self._encode(
            Message(role=old.role, text=text, call_id=old.answers, name=old.tool, failed=old.failed, sources=(seq,))
        )
        self.shown[place] = replace(old, sources=(seq,), left_out=True)

    def request(self, header: RequestHeaderContent, envelope: Envelope, answered: int) -> Request:
        """Return a request to the model that contains all blocks of the prompt.

        Cost: proportional to the blocks added since the last request with this envelope.

        Args:
            envelope: the parts of the body around the blocks.
            answered: number of replies of the model in the run so far.
        """
        if not self.blocks:
            alone = self._encode(Message(role="user", text=NOTHING))
            envelope = replace(envelope, tail=alone + envelope.tail)
        if envelope != self._envelope:
            self._envelope, self._hash, self._hashed = envelope, hashlib.sha256(envelope.head), 0
        for place in range(self._hashed, len(self.blocks)):
            before = self.blocks[place - 1] if place else None
            self._hash.update(envelope.add(before, self.blocks[place]))
        self._hashed = len(self.blocks)
        whole = self._hash.copy()
        whole.update(envelope.end(self.blocks))
        return Request(
            header=header, envelope=envelope, blocks=self.blocks, answered=answered, digest=whole.hexdigest()
        )


def references(request: RequestContent) -> list[tuple[int, ...]]:
    """Return, for each block of a request, the seqs of the entries that the block was made from.

    A block that is stored as text in the request has no seqs.
    """
    return [() if isinstance(block, str) else tuple(block[0]) for block in request.blocks]


def prompt_at(
    entries: Sequence[Entry], seq: int, formatter: Formatter[Any], model: Model, *, compacted: bool = True
) -> Prompt:
    """Return the prompt of a recorded request, made again from the entries before the request.

    Args:
        seq: seq of the request.
        compacted: `False` to ignore compactions.
    """
    prompt = Prompt(formatter, model)
    for entry in entries:
        if entry.seq < seq and (compacted or entry.kind is not Kind.Compaction):
            prompt.add(entry)
    prompt.close()
    return prompt


def rebuild(
    entries: Sequence[Entry], seq: int, formatter: Formatter[Any], model: Model, *, compacted: bool = True
) -> Request:
    """Return a recorded request, made again from the entries before it; see `prompt_at`.

    Compare its digest with the recorded digest. If they differ, another formatter or model made the recorded request.
    """
    header = header_of(entries, seq)
    return prompt_at(entries, seq, formatter, model, compacted=compacted).request(header, model.envelope(header), 0)


def header_of(entries: Sequence[Entry], seq: int) -> RequestHeaderContent:
    """Return the content of the header entry (model, instructions and tools) of the request with this seq.

    Raises BrokenRecord if there is no such entry.
    """
    by_seq = {entry.seq: entry for entry in entries}
    content = by_seq[seq].content
    assert isinstance(content, RequestContent), f"entry {seq} is a {by_seq[seq].kind}, not a request"
    header = by_seq[content.header].content if content.header in by_seq else None
    if not isinstance(header, RequestHeaderContent):
        raise BrokenRecord(f"entry {by_seq[seq].id}", f"its header, entry {content.header}, is no request-header")
    return header
