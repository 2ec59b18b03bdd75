"""Computes an overview of a run: its turns, effects, costs and errors, and when a process died or a call was in doubt.

An attempt is one execution of a tool call. An entry is one recorded fact of a run; its seq is its number there. A fault
is an entry about a try that failed or was lost. A call is in doubt if nobody knows whether it had its effect. The doubt
begins with the death of the process, the timeout or the fault of the call. The doubt ends with a person's resolution,
or with the result of the call itself. One pass over the entries is enough.
"""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

from gesta import kinds
from gesta.entry import Entry
from gesta.model.usage import tokens
from gesta.state.calls import EFFECTS, KEY_EXPIRED, LOST, NOT_FAILED, UNKNOWN_END

ANSWER = 600
"""Greatest number of characters of the last answer that are stored."""


class TurnFacts(Struct):
    """Facts about one turn of a run."""

    seq: int
    """Seq of its `begin` entry."""
    number: int
    """Number of the turn in the run, from 1."""
    name: str
    """Name of the agent."""
    at: datetime
    key: str | None = None
    end: datetime | None = None
    reason: str | None = None
    """Why the turn ended, such as `answered`; `None` while the turn is open."""
    requests: int = 0
    tokens_in: int = 0
    cached: int = 0
    """How many of `tokens_in` came from the provider's cache."""
    tokens_out: int = 0
    usd: float | None = None
    """Cost in US dollars; `None` if it was not recorded."""
    calls: int = 0
    deaths: int = 0
    """Number of processes that died in the turn."""


class Death(Struct):
    """A process that died, or lost the right to write the run, while a turn was open."""

    seq: int
    """Seq of the fault that the next process wrote when it took over the run."""
    at: datetime
    """Time of that fault."""
    before: datetime
    """Time of the last entry before it."""
    turn: int
    """Seq of the turn's `begin` entry."""
    calls: tuple[int, ...] = ()
    """Seqs of the calls whose tools were running."""
    tools: tuple[str, ...] = ()
    """Names of these tools, in the same order."""
    request: int | None = None
    """Seq of a request that had no reply yet; `None` if there was none."""


class Doubt(Struct):
    """A call whose outcome nobody knew at some time, and how it was settled."""

    call: int
    """Seq of the call."""
    tool: str
    seq: int
    """Seq of the entry with which the doubt began."""
    at: datetime
    by: str = ""
    """Who settled the doubt; empty while it lasts."""
    verdict: str = ""
    """`done`, `failed`, `retry`, or `late`: the result of the call itself came after all."""
    settled: int | None = None
    """Seq of the entry that settled the doubt."""
    settled_at: datetime | None = None


class Call(Struct):
    """One tool call. These facts are kept because later entries about the call do not repeat them."""

    tool: str
    effect: str | None = None
    child: bool = False
    """Whether it called another agent. Its effects are then counted in that agent's run."""
    trying: int | None = None
    """Seq of its running attempt; `None` if none is running."""


class Overview(Struct):
    """Turns, counts, deaths and doubts of a run, in the entries read so far."""

    turns: list[TurnFacts] = field(default_factory=list)
    apart: TurnFacts = field(
        default_factory=lambda: TurnFacts(seq=0, number=0, name="", at=datetime.min.replace(tzinfo=UTC))
    )
    """Counts of what stands before any turn, as in a run that a program wrote with spans. Its `at` has no meaning."""
    effects: dict[str, int] = field(default_factory=dict)
    """Number of effects that happened, by tool. Calls of tools that only read are left out."""
    deaths: list[Death] = field(default_factory=list)
    doubts: dict[int, Doubt] = field(default_factory=dict)
    """The doubts, by the seq of the call."""
    errors: int = 0
    """Number of failed calls plus number of failed requests."""
    last: int = 0
    """Seq of the last entry."""
    answer: str = ""
    """Beginning of the last text with which the run answered."""
    called: tuple[str, int] | None = None
    """Run and seq of the entry that started this run; `None` if no other run started it."""
    calls: dict[int, Call] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """Seq of the call of each attempt, by the attempt's seq."""
    request: int | None = None
    """Seq of the last request, if it has no reply yet."""
    before: datetime | None = None
    """Time of the previous entry."""

    def doubt(self, call: int, entry: Entry) -> None:
        """Add a call to those in doubt, since `entry`. Do nothing if the call was in doubt before."""
        if call not in self.doubts:
            tool = self.calls[call].tool if call in self.calls else ""
            self.doubts[call] = Doubt(call=call, tool=tool, seq=entry.seq, at=entry.at)

    def settle(self, call: int, entry: Entry, verdict: str, by: str) -> None:
        """Write down that `entry` settled the doubt about a call: `verdict` is the outcome, `by` says who decided."""
        self.doubt(call, entry)
        found = self.doubts[call]
        found.by, found.verdict, found.settled, found.settled_at = by, verdict, entry.seq, entry.at


class OverviewView:
    """Computes the overview of a run from its entries."""

    def start(self) -> Overview:
        """Return the overview before the first entry."""
        return Overview()

    def apply(self, state: Overview, entry: Entry) -> Overview:
        """Add one entry to the overview, and return the overview."""
        state.last = entry.seq
        turn = state.turns[-1] if state.turns else state.apart
        content = entry.content
        match content:
            case kinds.BeginContent(role="turn", name=name, key=key):
                number = len(state.turns) + 1
                state.turns.append(TurnFacts(seq=entry.seq, number=number, name=name, at=entry.at, key=key))
            case kinds.EndContent() if entry.span == turn.seq:
                turn.end, turn.reason = entry.at, content.reason or content.status
                state.request = None
                if isinstance(content.state, str):
                    state.answer = content.state[:ANSWER]
            case kinds.SystemContent() if state.called is None:
                state.called = next((cause for cause in entry.causes if not isinstance(cause, int)), None)
            case kinds.AssistantContent(value=text):
                state.answer = text[:ANSWER]
            case kinds.RequestContent():
                state.request = entry.seq
            case kinds.ChatCompletionContent():
                state.request = None
                state.answer = content.output[:ANSWER] or state.answer
                self._cost(turn, content)
            case kinds.ToolCallContent(tool_name=tool):
                state.calls[entry.seq] = Call(tool)
                turn.calls += 1
            case kinds.AttemptContent(of=of, effect=effect):
                call = state.calls.setdefault(of, Call(""))
                call.effect, call.trying = effect, entry.seq
                state.attempts[entry.seq] = of
            case kinds.EdgeContent():
                for cause in entry.causes:
                    if isinstance(cause, int) and cause in state.attempts:
                        state.calls[state.attempts[cause]].child = True
            case kinds.ToolResultContent():
                self._result(state, entry, content)
            case kinds.FaultContent():
                self._fault(state, entry, content, turn)
            case kinds.ResolutionContent(of=of, verdict=verdict, by=by):
                state.settle(state.attempts.get(of, of), entry, verdict, by)
            case kinds.BudgetContent(spent={"usd": int() | float() as usd}):
                turn.usd = (turn.usd or 0.0) + usd
            case _:
                pass
        state.before = entry.at
        return state

    @staticmethod
    def _cost(turn: TurnFacts, content: kinds.ChatCompletionContent) -> None:
        counts = tokens(content.usage)
        turn.requests += 1
        if counts is not None:
            turn.tokens_in += counts.input
            turn.cached += counts.cache_read or 0
            turn.tokens_out += counts.output

    @staticmethod
    def _result(state: Overview, entry: Entry, content: kinds.ToolResultContent) -> None:
        seq = content.call or 0
        call = state.calls.get(seq, Call(""))
        call.trying = None
        outcome = content.outcome or ("ok" if content.status == "success" else "error")
        if outcome in ("ok", "late") and call.effect not in (None, "pure") and not call.child:
            state.effects[call.tool] = state.effects.get(call.tool, 0) + 1
        state.errors += outcome == "error"
        if outcome == "unknown":
            state.doubt(seq, entry)
        elif outcome != "interrupted" and seq in state.doubts and state.doubts[seq].settled is None:
            state.settle(seq, entry, "late", "its own result")

    @staticmethod
    def _fault(state: Overview, entry: Entry, content: kinds.FaultContent, turn: TurnFacts) -> None:
        type_ = content.error.type
        state.errors += type_ not in NOT_FAILED
        if type_ == LOST and content.of == turn.seq:
            turn.deaths += 1
            trying = {seq: call for seq, call in state.calls.items() if call.trying is not None}
            state.deaths.append(
                Death(
                    seq=entry.seq,
                    at=entry.at,
                    before=state.before or entry.at,
                    turn=turn.seq,
                    calls=tuple(trying),
                    tools=tuple(call.tool for call in trying.values()),
                    request=state.request,
                )
            )
            state.request = None
            for seq, call in trying.items():
                call.trying = None
                if call.effect in EFFECTS:
                    state.doubt(seq, entry)
        elif content.of in state.attempts and type_ != UNKNOWN_END:
            seq = state.attempts[content.of]
            call = state.calls[seq]
            call.trying = None
            if type_ == KEY_EXPIRED or (type_ not in NOT_FAILED and call.effect in EFFECTS):
                state.doubt(seq, entry)
        elif content.of == state.request:
            state.request = None


def totals(overview: Overview) -> dict[str, Any]:
    """Return the counts of a run (such as deaths and doubts), and the sums over its turns (such as tokens).

    The sums include what stands before any turn.
    """
    turns = [*overview.turns, overview.apart]
    usd = [turn.usd for turn in turns if turn.usd is not None]
    names = ("requests", "tokens_in", "cached", "tokens_out", "calls")
    sums = {name: sum(getattr(turn, name) for turn in turns) for name in names}
    settled = sum(each.settled is not None for each in overview.doubts.values())
    counts = {"effects": overview.effects, "doubts": len(overview.doubts), "settled": settled}
    return counts | {"errors": overview.errors, "deaths": len(overview.deaths), "usd": sum(usd) if usd else None} | sums
