"""Makes a request again from the entries before it, as it was sent or in another form.

A request is on record as what it adds to the one before, and as the digest of its body. The blocks are encoded again
here, by the model and the formatter that the caller names. If the digest is that on record, the bytes are those sent.
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
from gesta.prompt.blocks import Prompt, Shown, header_of, prompt_at
from gesta.prompt.formatter import Formatter
from gesta.views.losses import losses

M = TypeVar("M", bound=Model)
Made = tuple[tuple[int, ...], bytes]
"""The sources and the block of a message. The key needs both, because one entry may make several messages."""
FIRST = "tool-calls/1+chat-completions/1"
"""How the blocks of a run without requests are made."""


class Encoding(NamedTuple):
    """The formatter and the encoder of a request, as their names are on record."""

    formatter: str
    encoder: str


class Asked(Struct, Generic[M], frozen=True, kw_only=True):
    """How a request is to be made again."""

    seq: int
    """Seq of the request; or, if no request is before it, of the request that would come next."""
    form: Formatter[Any]
    dressed: bool = False
    """Whether the formatter is another one than that on record, so that the header is made for it anew."""
    models: Sequence[M]
    """Models to try, until one gives the bytes on record; the last one is used if none does."""
    whole: bool = False
    """Whether the prompt is made without compactions."""


class Sent(Struct, Generic[M], frozen=True, kw_only=True):
    """A request, made again from the entries."""

    seq: int
    header: RequestHeaderContent
    model: M
    request: Request
    shown: list[Shown]
    """The entries and the role of each block of the request."""
    messages: Mapping[Made, Message]
    """The messages from which the blocks of the request were encoded."""
    lost: Mapping[str, int]
    """Number of losses by kind: content of earlier entries that the request does not show in its own form."""
    known: bool
    """Whether the body of the request has the digest on record."""

    def message(self, place: int) -> Message:
        """Return the message of a block."""
        return self.messages[self.shown[place].sources, self.request.blocks[place]]


class Overheard:
    """A model that also stores the messages that it encodes."""

    def __init__(self, model: Model) -> None:
        self.name, self.encoder = model.name, model.encoder
        self.messages: dict[Made, Message] = {}
        self._model = model

    def encode(self, message: Message) -> bytes:
        """Return one message as one block, and store the message."""
        block = self._model.encode(message)
        self.messages[message.sources, block] = message
        return block

    def still(self, prompt: Prompt) -> dict[Made, Message]:
        """Return the stored messages that are still in the prompt."""
        left = {(shown.sources, block) for shown, block in zip(prompt.shown, prompt.blocks, strict=True)}
        return {made: message for made, message in self.messages.items() if made in left}


def request_of(entries: Sequence[Entry], seq: int | None, *, anew: bool = False) -> int:
    """Return the seq of the request that an entry is, or that came last before the entry; by default the last request.

    Args:
        entries: a run.
        seq: the entry.
        anew: whether to return the seq of the request that would come next if none is on record, as after an import.

    Raises:
        BadAddress: no request is on record before the entry.
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
    """Return the seq of the request before the request `seq`; `None` if that one is the first.

    If the request is not on record, the one before is that to which the last completion was the answer.
    """
    asked = {entry.seq for entry in entries if entry.kind is Kind.Request}
    if seq not in asked:
        replies = (entry for entry in entries if entry.kind is Kind.ChatCompletion and entry.seq < seq)
        return max((entry.seq for entry in replies if asked.isdisjoint(entry.causes)), default=None)
    return max((each for each in asked if each < seq), default=None)


def encoding(entries: Sequence[Entry], seq: int) -> Encoding:
    """Return how the blocks of the request `seq` were made."""
    blocks = [block for entry in entries if entry.seq <= seq for block in _blocks(entry) if not isinstance(block, str)]
    name, _, encoder = str(blocks[-1][1] if blocks else FIRST).partition("+")
    return Encoding(name, encoder)


def _blocks(entry: Entry) -> list[Any]:
    return entry.content.blocks if isinstance(entry.content, RequestContent) else []


def header_before(entries: Sequence[Entry], seq: int) -> RequestHeaderContent:
    """Return the header of the request `seq`; without a request of that seq, the last header before it."""
    if any(entry.kind is Kind.Request and entry.seq == seq for entry in entries):
        return header_of(entries, seq)
    found = [entry.content for entry in entries if entry.seq < seq and isinstance(entry.content, RequestHeaderContent)]
    return found[-1] if found else RequestHeaderContent()


def sent(entries: Sequence[Entry], asked: Asked[M]) -> Sent[M]:
    """Make a request again. Cost: all entries before it."""
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
    """Return the number of images and files that a block holds only as a note with their names."""
    found: Counter[str] = Counter()
    for (_, block), message in messages.items():
        parts = [part for part in message.parts if part.type != "text" and (part.data or part.url)]
        noted = [json.dumps(part_text(part)[:-1], ensure_ascii=False)[1:-1] for part in parts]
        found["file-in-words"] += sum(note.encode(errors="replace") in block for note in noted)
    return +found


def _settings(header: RequestHeaderContent, model: Model) -> Counter[str]:
    """Return the number of settings that were made for the members of another provider's body."""
    meta = header.meta or {}
    own, made_for = meta.get("settings"), str(meta.get("model") or "").partition(":")[0]
    other = made_for not in ("", model.name.partition(":")[0])
    return +Counter({"settings": len(own) if other and isinstance(own, dict) else 0})


def counted(entries: Sequence[Entry], seq: int) -> Tokens | None:
    """Return the tokens of the answer to a request; `None` if they are not on record."""
    answers = (entry.content for entry in entries if seq in entry.causes)
    return next((tokens(each.usage) for each in answers if isinstance(each, ChatCompletionContent)), None)


def message_text(message: Message) -> str:
    """Return the text, the parts and the calls of a message."""
    calls = [f"calls {call.name} {json.dumps(call.args, ensure_ascii=False)}" for call in message.calls]
    parts = map(part_text, message.parts)
    return "\n".join([*([message.text] if message.text else []), *parts, *calls])
