"""A prompt is the block list of a run: it grows by what is new, and nothing in it is ever encoded twice.

The same entries give the same blocks, whether they come one by one while the run goes on or all at once when it is
resumed: segments end at `request` entries, and a block once made is final. The body's digest is carried along, so that
asking costs what is new.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from gesta.entry import Entry
from gesta.formatter import Formatter
from gesta.kinds import Kind, RequestContent, RequestHeaderContent
from gesta.message import Block
from gesta.model import Envelope, Model, Request

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
        Kind.Compaction,
    }
)
"""Kinds that a formatter may make messages of."""


class Prompt:
    """The blocks of one run for one formatter and one way of encoding."""

    def __init__(self, formatter: Formatter[Any], model: Model) -> None:
        self._formatter = formatter
        self._encode = model.encode
        self._state = formatter.start()
        self._segment: list[Entry] = []
        self.blocks: list[bytes] = []
        self.sources: list[tuple[int, ...]] = []
        """For each block, the seqs of the entries that it was made from."""
        self.encoder = f"{formatter.name}+{model.encoder}"
        self._envelope: Envelope | None = None
        self._hash = hashlib.sha256()
        self._hashed = 0

    def add(self, entry: Entry) -> None:
        """Take one entry in; a `request` ends the segment."""
        if entry.kind is Kind.Request:
            self.close()
        elif entry.kind in SHOWN:
            self._segment.append(entry)

    def close(self) -> None:
        """End the segment: make its messages, and encode each."""
        if self._segment:
            messages = self._formatter.format(self._segment, self._state)
            self._segment = []
            self.blocks += [self._encode(message) for message in messages]
            self.sources += [message.sources for message in messages]

    def since(self, known: int) -> list[Block]:
        """Give the blocks after the first `known`."""
        return [Block(data, seqs) for data, seqs in zip(self.blocks[known:], self.sources[known:], strict=True)]

    def request(self, header: RequestHeaderContent, envelope: Envelope, answered: int) -> Request:
        """Make the request of all blocks. Cost: the blocks since the last request with this envelope."""
        if envelope != self._envelope:
            self._envelope, self._hash, self._hashed = envelope, hashlib.sha256(envelope.head), 0
        for place in range(self._hashed, len(self.blocks)):
            if place:
                self._hash.update(envelope.join)
            self._hash.update(self.blocks[place])
        self._hashed = len(self.blocks)
        whole = self._hash.copy()
        whole.update(envelope.tail)
        return Request(
            header=header, envelope=envelope, blocks=self.blocks, answered=answered, digest=whole.hexdigest()
        )


def references(request: RequestContent) -> list[tuple[int, ...]]:
    """Seqs behind each block that a request adds; empty for a block that stands there in full."""
    return [() if isinstance(block, str) else tuple(block[0]) for block in request.blocks]


def rebuild(entries: Sequence[Entry], seq: int, formatter: Formatter[Any], model: Model) -> Request:
    """Make the request `seq` again from the entries before it.

    The digest of what is made equals the one on record, or the formatter or model is not the one that was used.
    """
    by_seq = {entry.seq: entry for entry in entries}
    content = by_seq[seq].content
    assert isinstance(content, RequestContent), f"entry {seq} is a {by_seq[seq].kind}, not a request"
    header = by_seq[content.header].content
    assert isinstance(header, RequestHeaderContent)
    prompt = Prompt(formatter, model)
    for entry in entries:
        if entry.seq < seq:
            prompt.add(entry)
    prompt.close()
    return prompt.request(header, model.envelope(header), 0)
