"""An overview of a run: its turns, its time in four lanes, its effects and its cost. One fold over its entries.

The lanes are model, tools, waiting and process. The process lane shows each process from its first to its last entry,
and where a process died.
"""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from gesta import kinds
from gesta.entry import Entry
from gesta.kinds import Kind
from gesta.model.usage import tokens
from gesta.state.calls import UNKNOWN_END

LOST = "lost"
"""Type of the fault of a turn whose process died."""

Lane = Literal["model", "tools", "waiting", "process"]


class Bar(Struct, omit_defaults=True):
    """A period of time in a lane."""

    lane: Lane
    seq: int
    """Seq of the entry with which the bar begins."""
    start: datetime
    end: datetime | None = None
    """Time at which the bar ends; `None` while it has not ended."""
    label: str = ""
    tone: str = ""
    """`fault`, `settled` or `waiting`; empty for an ordinary bar."""
    of: int | None = None
    """Seq of the call that the bar belongs to."""


class TurnFacts(Struct):
    """One turn of a run."""

    seq: int
    number: int
    name: str
    at: datetime
    key: str | None = None
    end: datetime | None = None
    reason: str | None = None
    """`None` while the turn is open."""
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None
    """Cost in US dollars; `None` if no account was kept."""
    calls: int = 0
    deaths: int = 0
    """Number of processes that died in the turn."""


class Overview(Struct):
    """The turns, bars and counts of a run, updated with each entry."""

    turns: list[TurnFacts] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    effects: dict[str, int] = field(default_factory=dict)
    """Number of effects that happened, by the name of the tool; calls that only read are left out."""
    doubts: int = 0
    """Number of calls whose outcome was in doubt at some time."""
    settled: int = 0
    """Number of those calls whose doubt was settled."""
    errors: int = 0
    """Number of failed calls and requests."""
    last: int = 0
    """Seq of the last entry."""
    doubtful: set[int] = field(default_factory=set)
    open: dict[tuple[str, int], Bar] = field(default_factory=dict)
    """Bars that have not ended, by lane and a seq that identifies the bar."""
    calls: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    """Name and effect of each call's tool."""
    attempts: dict[int, int] = field(default_factory=dict)
    """The call of each attempt."""
    before: datetime | None = None
    """Time of the previous entry."""

    def begin(self, key: tuple[str, int], bar: Bar) -> None:
        """Begin a bar. A bar under the same key that has not ended ends at this time."""
        if (last := self.open.pop(key, None)) is not None:
            last.end = bar.start
        self.bars.append(bar)
        self.open[key] = bar

    def close(self, key: tuple[str, int], at: datetime, tone: str | None = None) -> None:
        """End a bar, if it has not ended. `tone` is used if the bar has no tone."""
        bar = self.open.pop(key, None)
        if bar is not None:
            bar.end, bar.tone = at, bar.tone or tone or ""

    def tool(self, call: int) -> str:
        """Return the name of a call's tool; an empty text if the call is not known."""
        return self.calls.get(call, ("", None))[0]

    def doubt(self, call: int) -> None:
        """Count a call whose outcome was in doubt, once."""
        if call not in self.doubtful:
            self.doubtful.add(call)
            self.doubts += 1


class OverviewView:
    """The fold that computes an overview."""

    def start(self) -> Overview:
        """Return the overview of a run without entries."""
        return Overview()

    def apply(self, state: Overview, entry: Entry) -> Overview:
        """Add one entry."""
        state.last = entry.seq
        self._process(state, entry)
        turn = state.turns[-1] if state.turns else None
        content = entry.content
        match content:
            case kinds.BeginContent(role="turn", name=name, key=key):
                number = len(state.turns) + 1
                state.turns.append(TurnFacts(seq=entry.seq, number=number, name=name, at=entry.at, key=key))
            case kinds.EndContent() if turn is not None and entry.span == turn.seq:
                turn.end, turn.reason = entry.at, content.reason or content.status
                for each in [*state.open]:
                    state.close(each, entry.at)
            case kinds.RequestContent():
                state.begin(("model", entry.seq), Bar("model", entry.seq, entry.at))
            case kinds.ChatCompletionContent():
                self._completed(state, entry, content, turn)
            case kinds.ToolCallContent(tool_name=tool):
                state.calls[entry.seq] = tool, None
                if turn is not None:
                    turn.calls += 1
            case kinds.AttemptContent(of=of, effect=effect):
                tool = state.tool(of)
                state.calls[of], state.attempts[entry.seq] = (tool, effect), of
                state.begin(("tools", of), Bar("tools", entry.seq, entry.at, label=tool, of=of))
            case kinds.ToolResultContent():
                self._result(state, entry, content)
            case kinds.FaultContent():
                self._fault(state, entry, content, turn)
            case kinds.ResolutionContent(of=of):
                call = state.attempts.get(of, of)
                state.doubt(call)
                state.settled += 1
                bar = Bar("tools", entry.seq, entry.at, label=state.tool(call), tone="settled", of=call)
                state.begin(("tools", call), bar)
            case kinds.BudgetContent(spent=spent) if turn is not None and spent and spent.get("usd") is not None:
                turn.usd = (turn.usd or 0.0) + float(spent["usd"])
            case _:
                self._waits(state, entry)
        state.before = entry.at
        return state

    def _process(self, state: Overview, entry: Entry) -> None:
        """Update the lane of processes.

        After a death there is a gap, from the entry before to the entry that reports it.
        """
        content, key = entry.content, ("process", 0)
        bar = state.open.get(key)
        if isinstance(content, kinds.FaultContent) and content.error.type == LOST and bar is not None:
            bar.end, bar.tone = state.before or entry.at, "fault"
            del state.open[key]
            bar = None
        if bar is None:
            state.begin(key, Bar("process", entry.seq, entry.at))

    def _completed(
        self, state: Overview, entry: Entry, content: kinds.ChatCompletionContent, turn: TurnFacts | None
    ) -> None:
        asked = next((cause for cause in entry.causes if isinstance(cause, int)), 0)
        bar = state.open.get(("model", asked))
        if bar is not None:
            bar.label = content.model or ""
        state.close(("model", asked), entry.at)
        if turn is not None:
            counts = tokens(content.usage)
            turn.requests += 1
            turn.tokens_in += counts.input if counts is not None else 0
            turn.tokens_out += counts.output if counts is not None else 0

    def _result(self, state: Overview, entry: Entry, content: kinds.ToolResultContent) -> None:
        call = content.call or 0
        tool, effect = state.calls.get(call, ("", None))
        outcome = content.outcome or ("ok" if content.status == "success" else "error")
        tone = {"ok": None, "error": "fault", "denied": "waiting"}.get(outcome, "waiting")
        state.close(("tools", call), entry.at, tone)
        if outcome in ("ok", "late") and effect not in (None, "pure"):
            state.effects[tool] = state.effects.get(tool, 0) + 1
        state.errors += outcome == "error"
        if outcome == "unknown":
            state.doubt(call)

    def _fault(self, state: Overview, entry: Entry, content: kinds.FaultContent, turn: TurnFacts | None) -> None:
        if content.error.type == LOST and turn is not None and content.of == turn.seq:
            turn.deaths += 1
            for key, bar in [*state.open.items()]:
                if key[0] in ("tools", "model") and state.before is not None:
                    bar.end, bar.tone = state.before, "fault"
                    del state.open[key]
                    if key[0] == "tools" and state.calls.get(key[1], ("", None))[1] == "once":
                        state.doubt(key[1])
        elif content.error.type != UNKNOWN_END:
            state.errors += 1
            state.close(("model", content.of), entry.at, "fault")
            if content.of in state.attempts:
                state.close(("tools", state.attempts[content.of]), entry.at, "fault")

    @staticmethod
    def _waits(state: Overview, entry: Entry) -> None:
        content: Any = entry.content
        match entry.kind:
            case Kind.ApprovalRequest:
                label = f"approval of {state.tool(content.of)}"
                state.begin(("waiting", entry.seq), Bar("waiting", entry.seq, entry.at, label=label, of=content.of))
            case Kind.Question:
                state.begin(("waiting", entry.seq), Bar("waiting", entry.seq, entry.at, label="question"))
            case Kind.Approval | Kind.Answer:
                state.close(("waiting", content.of), entry.at)
            case Kind.Timer:
                state.begin(("waiting", -1), Bar("waiting", entry.seq, entry.at, label=f"timer {content.key}"))
            case _:
                pass
