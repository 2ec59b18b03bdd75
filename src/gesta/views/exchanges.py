"""Lists the requests of a run, each with its reply: the model, tokens, latency, and how the request ended.

An entry is one recorded fact of a run; its seq is its number there. A header is an entry with the model, instructions
and tools of requests, and a completion is the entry with a model's reply. A fault is an entry about a try that failed
or was lost. A compaction is an entry that leaves older messages out of the requests after it.
"""

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
    """One request to a model, and the reply to it."""

    seq: int
    """Seq of the request; if it is not on record, seq of the last entry before its reply."""
    at: str
    """Time of the request, in UTC, as text."""
    turn: int = 0
    """Number of the turn in the run, from 1; 0 outside of any turn."""
    on_record: bool = True
    """Whether the request is on record. After an import only its reply is."""
    model: str = ""
    """Model that the request's header names; if there is none, the model that the reply names."""
    added: int = 0
    """Number of messages in the request that are not in the request before it."""
    repeats: bool = False
    """Whether it also contains the messages of the request before it."""
    number: int = 1
    """Number of the try: 1 for the first request with this body."""
    compacted: bool = False
    """Whether messages were left out by a compaction since the request before it."""
    reply: int | None = None
    """Seq of the completion; `None` if no reply is on record."""
    fault: str = ""
    """Type of the last fault of the request; empty if it had none."""
    tokens: Tokens | None = None
    """Tokens of the request and its reply; `None` if they are not known."""
    latency_ms: float | None = None
    finish_reason: str = ""


class Exchanges(Struct):
    """The requests of a run that are in the entries read so far."""

    last: int = 0
    """Seq of the last entry read."""
    every: list[Exchange] = field(default_factory=list)
    """All requests in order."""
    of: dict[int, Exchange] = field(default_factory=dict)
    """The exchange of each recorded request, by the request's seq."""
    models: dict[int, str] = field(default_factory=dict)
    """Model named by each request header, by the header's seq."""
    turns: int = 0
    compacted: bool = False


class ExchangesView:
    """Computes the list of a run's requests from its entries."""

    def apply(self, state: Exchanges, entry: Entry) -> Exchanges:
        """Add one entry to the state, and return the state."""
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
