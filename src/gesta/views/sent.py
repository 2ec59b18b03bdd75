"""Builds a recorded request to a model again from the entries before it, as it was sent or in another format.

An entry is one recorded fact of a run; its seq is its number there. A header is an entry with the model, instructions
and tools of requests, and a completion is the entry with a model's reply. A block is one encoded message. The record
keeps the digest of a request's body, and which entries its new blocks were made from. To build a request again, the
blocks are encoded again, by the model and the formatter that the caller chooses. If the new body has the recorded
digest, its bytes are the bytes that were sent.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from gesta.entry import Entry
from gesta.errors import BadAddress
from gesta.kinds import ChatCompletionContent, Kind, RequestContent, RequestHeaderContent
from gesta.message import Message, part_text
from gesta.model.request import Model, Request, native_by
from gesta.model.usage import Tokens, tokens
from gesta.prompt import Formatter, Prompt, Shown, header_of, prompt_at
from gesta.views.losses import losses

M = TypeVar("M", bound=Model)
Made = tuple[tuple[int, ...], bytes]
"""The sources (seqs of entries) and the block of a message. Both are needed as a key, because one entry may make
several messages."""
FIRST = "tool-calls/1+chat-completions/1"
"""Formatter and encoder that are assumed for a run without recorded requests, such as an imported run."""


class Encoding(NamedTuple):
    """The recorded names of the formatter and the encoder of a request."""

    formatter: str
    encoder: str


class Asked(Struct, Generic[M], frozen=True, kw_only=True):
    """A description of the request to build again."""

    seq: int
    """Seq of the request. If no request is on record, the seq that the next request would have."""
    form: Formatter[Any]
    """Formatter that turns the entries into messages."""
    dressed: bool = False
    """Whether this formatter differs from the recorded one, so that the request's header is changed to fit it."""
    models: Sequence[M]
    """Models to try in order, until one of them builds the bytes with the recorded digest. If none does, the last one
    is used."""
    whole: bool = False
    """Whether to build the prompt as if nothing had been left out by compactions."""


class Sent(Struct, Generic[M], frozen=True, kw_only=True):
    """A request that was built again from the entries."""

    seq: int
    header: RequestHeaderContent
    model: M
    request: Request
    shown: list[Shown]
    """The sources (seqs of entries) and the role of each block of the request."""
    messages: Mapping[Made, Message]
    """The messages that the blocks of the request were encoded from."""
    lost: Mapping[str, int]
    """Number of losses by kind, such as `thought`: content of earlier entries that this request cannot show."""
    known: bool
    """Whether the body has the recorded digest. Then its bytes are the bytes that were sent."""

    def message(self, place: int) -> Message:
        """Return the message that a block encodes, given the index of the block."""
        return self.messages[self.shown[place].sources, self.request.blocks[place]]


class Overheard:
    """A wrapper of a model, which remembers the messages that the model encodes."""

    def __init__(self, model: Model) -> None:
        self.name, self.encoder = model.name, model.encoder
        self.messages: dict[Made, Message] = {}
        self._model = model

    def encode(self, message: Message) -> bytes:
        """Encode one message as one block with the wrapped model, and remember the message."""
        block = self._model.encode(message)
        self.messages[message.sources, block] = message
        return block

    def still(self, prompt: Prompt) -> dict[Made, Message]:
        """Return the remembered messages that are in the prompt, by pairs of source entries (seqs) and block."""
        left = {(shown.sources, block) for shown, block in zip(prompt.shown, prompt.blocks, strict=True)}
        return {made: message for made, message in self.messages.items() if made in left}


def request_of(entries: Sequence[Entry], seq: int | None, *, anew: bool = False) -> int:
    """Return the seq of the last request up to the entry `seq`.

    If `seq` is `None`, return the seq of the run's last request.

    Args:
        entries: all entries of a run.
        seq: seq of any entry of the run.
        anew: if no request is found, as in an imported run, return the seq that the next request would have.

    Raises:
        BadAddress: there is no such request, and `anew` is not set.
    """
    before = [entry.seq for entry in entries if entry.kind is Kind.Request and (seq is None or entry.seq <= seq)]
    if not before and anew:
        return (seq or len(entries)) + 1
    if not before:
        found = "The run has none" if seq is None else f"None stands before entry {seq}"
        raise BadAddress(
            f"There is no request to show. {found}; an imported run has only what its source tells, "
            "and the requests of a program are in the runs that it calls."
        )
    return before[-1]


def earlier(entries: Sequence[Entry], seq: int) -> int | None:
    """Return the seq of the request before the request `seq`; `None` if there is none.

    In an imported run, the entries of requests may be missing. If there is no request `seq` on record, return the seq
    of the last reply before `seq` whose request is not on record either.
    """
    asked = {entry.seq for entry in entries if entry.kind is Kind.Request}
    if seq not in asked:
        replies = (entry for entry in entries if entry.kind is Kind.ChatCompletion and entry.seq < seq)
        return max((entry.seq for entry in replies if asked.isdisjoint(entry.causes)), default=None)
    return max((each for each in asked if each < seq), default=None)


def encoding(entries: Sequence[Entry], seq: int) -> Encoding:
    """Return the names of the formatter and the encoder that made the last block recorded up to the request `seq`."""
    blocks = [block for entry in entries if entry.seq <= seq for block in _blocks(entry) if not isinstance(block, str)]
    name, _, encoder = str(blocks[-1][1] if blocks else FIRST).partition("+")
    return Encoding(name, encoder)


def _blocks(entry: Entry) -> list[Any]:
    return entry.content.blocks if isinstance(entry.content, RequestContent) else []


def header_before(entries: Sequence[Entry], seq: int) -> RequestHeaderContent:
    """Return the header of the request `seq`. If no such request is on record, return the last header before that seq.

    If there is no header either, return an empty one.
    """
    if any(entry.kind is Kind.Request and entry.seq == seq for entry in entries):
        return header_of(entries, seq)
    found = [entry.content for entry in entries if entry.seq < seq and isinstance(entry.content, RequestHeaderContent)]
    return found[-1] if found else RequestHeaderContent()


def sent(entries: Sequence[Entry], asked: Asked[M]) -> Sent[M]:
    """Build the request that `asked` describes. Cost: reads all entries before the request."""
    content = next((each.content for each in entries if each.kind is Kind.Request and each.seq == asked.seq), None)
    header = header_before(entries, asked.seq)
    if asked.dressed:
        plain = {name: value for name, value in (header.meta or {}).items() if name != "tools_in"}
        header = asked.form.dress(replace(header, meta=plain))
    found: Sent[M] | None = None
    for model in asked.models:
        heard = Overheard(model)
        prompt = prompt_at(entries, asked.seq, asked.form, cast("Model", heard), compacted=not asked.whole)
        request, still = prompt.request(header, model.envelope(header), 0), heard.still(prompt)
        before = [entry for entry in entries if entry.seq < asked.seq]
        found = Sent(
            seq=asked.seq,
            header=header,
            model=model,
            request=request,
            shown=prompt.shown,
            messages=still,
            lost=losses(before, list(still.values()), native_by(model)) + _noted(still) + _settings(header, model),
            known=isinstance(content, RequestContent) and request.digest == content.body_digest,
        )
        if found.known:
            break
    assert found is not None
    return found


def _noted(messages: Mapping[Made, Message]) -> Counter[str]:
    """Return the number of images and files of which the encoded messages show only the name."""
    found: Counter[str] = Counter()
    for (_, block), message in messages.items():
        parts = [part for part in message.parts if part.type != "text" and (part.data or part.url)]
        noted = [json.dumps(part_text(part)[:-1], ensure_ascii=False)[1:-1] for part in parts]
        found["file-in-words"] += sum(note.encode(errors="replace") in block for note in noted)
    return +found


def _settings(header: RequestHeaderContent, model: Model) -> Counter[str]:
    """Return the number of settings in the header that were meant for a provider other than the provider of `model`."""
    meta = header.meta or {}
    own, made_for = meta.get("settings"), str(meta.get("model") or "").partition(":")[0]
    other = made_for not in ("", model.name.partition(":")[0])
    return +Counter({"settings": len(own) if other and isinstance(own, dict) else 0})


def counted(entries: Sequence[Entry], seq: int) -> Tokens | None:
    """Return the token counts of the request `seq` and its reply; `None` if they are not on record."""
    answers = (entry.content for entry in entries if seq in entry.causes)
    return next((tokens(each.usage) for each in answers if isinstance(each, ChatCompletionContent)), None)


def message_text(message: Message) -> str:
    """Return the text of a message, followed by a line for each of its images, files and calls."""
    calls = [f"calls {call.name} {json.dumps(call.args, ensure_ascii=False)}" for call in message.calls]
    parts = map(part_text, message.parts)
    return "\n".join([*([message.text] if message.text else []), *parts, *calls])
