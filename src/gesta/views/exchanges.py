"""Lists the requests of a run, each with the reply to it: model, tokens, what came from a cache, and how it ended."""

from msgspec import Struct, field

from gesta.entry import Entry, utc_text
from gesta.kinds import (
    BeginContent,
    ChatCompletionContent,
    CompactionContent,
    FaultContent,
    RequestContent,
    RequestHeaderContent,
)
from gesta.model.usage import Tokens, tokens


class Exchange(Struct, kw_only=True, omit_defaults=True):
    """One request and the reply to it."""

    seq: int
    """Seq of the request; if it is not on record, seq of the last entry before its reply."""
    at: str
    turn: int = 0
    """Number of the turn, from 1; 0 outside of any turn."""
    on_record: bool = True
    """Whether the request is on record; after an import only its reply is."""
    model: str = ""
    """The model in the header; else the model that the reply names."""
    added: int = 0
    """Number of messages that it adds to the request before it."""
    repeats: bool = False
    """Whether it repeats the messages of the request before it."""
    number: int = 1
    """Number of tries of this request."""
    compacted: bool = False
    """Whether a compaction is between it and the request before it."""
    reply: int | None = None
    """Seq of the completion; `None` if there is none."""
    fault: str = ""
    """Type of the fault with which it ended."""
    tokens: Tokens | None = None
    """Tokens of the reply and its request; `None` if they are not known."""
    latency_ms: float | None = None
    finish_reason: str = ""


class Exchanges(Struct):
    """The requests of a run up to an entry."""

    last: int = 0
    """Seq of the last entry."""
    every: list[Exchange] = field(default_factory=list)
    of: dict[int, Exchange] = field(default_factory=dict)
    """The exchange of each request on record."""
    models: dict[int, str] = field(default_factory=dict)
    """The model of each header."""
    turns: int = 0
    compacted: bool = False


class ExchangesView:
    """Folds entries into the list of requests."""

    def apply(self, state: Exchanges, entry: Entry) -> Exchanges:
        """Add one entry."""
        state.last = entry.seq
        match entry.content:
            case BeginContent(role="turn"):
                state.turns += 1
            case RequestHeaderContent() as header:
                state.models[entry.seq] = str(header.model or "")
            case CompactionContent():
                state.compacted = True
            case RequestContent() as content:
                made = Exchange(seq=entry.seq, at=utc_text(entry.at), turn=state.turns, compacted=state.compacted)
                made.model = state.models.get(content.header, "")
                made.added, made.repeats, made.number = len(content.blocks), content.extends is not None, content.number
                state.of[entry.seq], state.compacted = made, False
                state.every.append(made)
            case ChatCompletionContent() as content:
                self._reply(state, entry, content)
            case FaultContent(of=of, error=error) if of in state.of:
                state.of[of].fault = error.type
            case _:
                pass
        return state

    def _reply(self, state: Exchanges, entry: Entry, content: ChatCompletionContent) -> None:
        found = next((state.of[cause] for cause in entry.causes if isinstance(cause, int) and cause in state.of), None)
        if found is None:
            found = Exchange(seq=entry.seq - 1, at=utc_text(entry.at), turn=state.turns, on_record=False)
            state.every.append(found)
        found.reply, found.latency_ms = entry.seq, content.latency_ms
        found.model = found.model or content.model or ""
        found.finish_reason = content.finish_reason or ""
        found.tokens = tokens(content.usage)
