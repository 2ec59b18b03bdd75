"""Shows the time of a run as bars: turns, spans, model calls, tool calls, waits, and processes.

A lane is a row of the picture. An attempt is one execution of a tool call. The seq of an entry is its number in its
run. A fault is an entry about a try that failed or was lost. Each bar belongs to the span around it, so the bars of a
run are a tree. Gesta writes an entry before each model call and each tool call, and another one after it; the bar goes
from one to the other. An imported conversation often has only one entry for a call. Then the bar has the duration that
the source recorded, or it is an instant.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct, field

from gesta import kinds
from gesta.entry import Entry
from gesta.model.usage import tokens
from gesta.state.calls import LOST, UNKNOWN_END, WAITING

Lane = Literal["turn", "span", "model", "tools", "waiting", "process"]
"""Row of the picture in which a bar is drawn."""
LONGEST_MS = 1e9
"""A recorded duration of a model call is ignored from this number of milliseconds on."""
ABOUT = 40
"""Greatest number of characters of a call's arguments in a bar."""
NAME = 80
"""Greatest number of characters of a label."""


class Bar(Struct, omit_defaults=True):
    """A bar of the timeline: something that took a period of time, or happened at an instant."""

    lane: Lane
    seq: int
    """Seq of the entry at which the bar begins."""
    start: datetime
    end: datetime | None = None
    """Time at which the bar ends; `None` if it has not ended."""
    label: str = ""
    about: str = ""
    """Beginning of the arguments of a call."""
    tone: str = ""
    """`fault`, `lost` (the process died), `settled` or `waiting`; empty for an ordinary bar."""
    of: int | None = None
    """Seq of the call that the bar belongs to."""
    span: int = 0
    """Seq of the `begin` of the span around the bar; 0 if there is none."""
    role: str | None = None
    """Role of a span."""
    said: bool = False
    """Whether the duration was recorded by the source of an imported run, and not computed from entries."""
    model: str | None = None
    tokens: tuple[int, int, int] | None = None
    """Numbers of tokens that the model read, that it read from the provider's cache, and that it wrote."""
    usd: float | None = None
    """Cost in US dollars; `None` if it was not recorded."""


class Timeline(Struct):
    """The bars of a run, made from the entries read so far."""

    bars: list[Bar] = field(default_factory=list)
    last: int = 0
    """Seq of the last entry."""
    open: dict[tuple[str, int], Bar] = field(default_factory=dict)
    """Bars that have not ended, by their lane and a seq."""
    calls: dict[int, Bar] = field(default_factory=dict)
    """For each call, a bar from the call to its first attempt, or else to its result."""
    attempts: dict[int, int] = field(default_factory=dict)
    """Seq of the call of each attempt, by the attempt's seq."""
    asked: dict[int, Bar] = field(default_factory=dict)
    """Bars of model calls, by the seq of the request."""
    edges: dict[int, int] = field(default_factory=dict)
    """Seq of the span in which each child run was started, by the seq of the `edge` entry."""
    due: dict[int, datetime] = field(default_factory=dict)
    """Time at which each timer ends that was not over at the last entry, by the timer's seq."""
    before: datetime | None = None
    """Time of the previous entry."""

    def begin(self, key: tuple[str, int], bar: Bar) -> Bar:
        """Add an open bar by its key (lane and seq), and return it. An older bar with this key ends where it begins."""
        if (last := self.open.pop(key, None)) is not None:
            last.end = bar.start
        bar.label = bar.label[:NAME]
        self.bars.append(bar)
        self.open[key] = bar
        return bar

    def close(self, key: tuple[str, int], at: datetime, tone: str = "") -> None:
        """End an open bar. Do nothing if there is none.

        Args:
            key: lane and seq of the bar.
            tone: how the bar is coloured, such as `fault`. A tone that the bar has already is kept.
        """
        bar = self.open.pop(key, None)
        if bar is not None:
            bar.end, bar.tone = at, bar.tone or tone

    def instant(self, bar: Bar) -> Bar:
        """Add a bar that has ended, and return it. A bar without an end ends at its start: it is an instant."""
        bar.label, bar.end = bar.label[:NAME], bar.end or bar.start
        self.bars.append(bar)
        return bar

    def tool(self, call: int) -> str:
        """Return the tool's name for the call with the seq `call`; an empty text if the call is not known."""
        found = self.calls.get(call)
        return found.label if found is not None else ""


class TimelineView:
    """Computes the timeline of a run from its entries."""

    def start(self) -> Timeline:
        """Return the timeline before the first entry."""
        return Timeline()

    def apply(self, state: Timeline, entry: Entry) -> Timeline:
        """Add one entry to the timeline, and return the timeline."""
        state.last = entry.seq
        content, span, at = entry.content, entry.span, entry.at
        for seq in [seq for seq, due in state.due.items() if due <= at]:
            state.close(("waiting", seq), state.due.pop(seq))
        self._process(state, entry)
        match content:
            case kinds.BeginContent(name=name, role=role, parent=above):
                lane: Lane = "turn" if role == "turn" else "span"
                bar = Bar(lane, entry.seq, at, label=name, span=above or 0, role=role)
                state.begin(("span", entry.seq), bar)
            case kinds.EdgeContent():
                state.edges[entry.seq] = span
            case kinds.EndContent():
                self._ended(state, entry, content)
            case kinds.RequestContent():
                state.asked[entry.seq] = state.begin(("model", entry.seq), Bar("model", entry.seq, at, span=span))
            case kinds.ChatCompletionContent():
                self._completed(state, entry, content)
            case kinds.BudgetContent(of=of, spent={"usd": int() | float() as usd}) if of in state.asked:
                state.asked[of].usd = usd
            case kinds.ToolCallContent(tool_name=name, tool_args=args):
                bar = Bar("tools", entry.seq, at, label=name, about=_brief(args), of=entry.seq, span=span)
                state.calls[entry.seq] = bar
            case kinds.AttemptContent(of=of):
                state.attempts[entry.seq] = of
                state.close(("waiting", -of), at)
                if (made := state.calls.get(of)) is not None:
                    made.end = at
                bar = Bar("tools", entry.seq, at, label=state.tool(of), of=of, span=span)
                bar.about = made.about if made is not None else ""
                state.begin(("tools", of), bar)
            case kinds.ToolResultContent():
                self._result(state, entry, content)
            case kinds.FaultContent():
                self._fault(state, entry, content)
            case kinds.ResolutionContent(of=of):
                call = state.attempts.get(of, of)
                bar = Bar("tools", entry.seq, at, label=state.tool(call), tone="settled", of=call, span=span)
                state.begin(("tools", call), bar)
            case _:
                self._waits(state, entry)
        state.before = at
        return state

    def _process(self, state: Timeline, entry: Entry) -> None:
        """Update the bars which show the processes that worked on the run.

        If a process died, its bar ends at the entry before the fault that reports the death.
        """
        content, key = entry.content, ("process", 0)
        bar = state.open.get(key)
        if isinstance(content, kinds.FaultContent) and _death(entry, content) and bar is not None:
            bar.end, bar.tone = state.before or entry.at, "fault"
            del state.open[key]
            bar = None
        if bar is None:
            state.begin(key, Bar("process", entry.seq, entry.at))

    @staticmethod
    def _ended(state: Timeline, entry: Entry, content: kinds.EndContent) -> None:
        own = state.open.get(("span", entry.span))
        if own is None:
            return
        if own.lane == "turn":  # bars that are still open end with the turn
            for each in [*state.open]:
                if each != ("span", entry.span):
                    state.close(each, entry.at)
        fault = content.error is not None or content.status == "error"
        state.close(("span", entry.span), entry.at, "fault" if fault else "")

    @staticmethod
    def _completed(state: Timeline, entry: Entry, content: kinds.ChatCompletionContent) -> None:
        asked = next((cause for cause in entry.causes if isinstance(cause, int)), 0)
        bar = state.open.get(("model", asked))
        state.close(("model", asked), entry.at)
        if bar is None:
            bar = state.instant(Bar("model", entry.seq, entry.at, end=entry.at, span=entry.span))
            took = content.latency_ms
            if took is not None and 0 < took < LONGEST_MS:
                bar.start, bar.said = entry.at - timedelta(milliseconds=took), True
        bar.label = bar.model = (content.model or "")[:NAME]
        counts = tokens(content.usage)
        bar.tokens = (counts.input, counts.cache_read or 0, counts.output) if counts is not None else None

    @staticmethod
    def _result(state: Timeline, entry: Entry, content: kinds.ToolResultContent) -> None:
        call = content.call or 0
        outcome = content.outcome or ("ok" if content.status == "success" else "error")
        tone = {"ok": "", "error": "fault"}.get(outcome, "waiting")
        made = state.calls.get(call)
        if ("tools", call) in state.open:
            state.close(("tools", call), entry.at, tone)
        elif made is not None and made.end is None and outcome in ("ok", "error"):
            made.end, made.tone = entry.at, tone
            state.bars.append(made)

    @staticmethod
    def _fault(state: Timeline, entry: Entry, content: kinds.FaultContent) -> None:
        if _death(entry, content):
            for key, bar in [*state.open.items()]:
                if key[0] in ("tools", "model"):
                    bar.end, bar.tone = state.before or entry.at, "lost"
                    del state.open[key]
        elif content.error.type != UNKNOWN_END:
            call = state.attempts.get(content.of, 0)
            waits = content.error.type in WAITING
            state.close(("model", content.of), entry.at, "fault")
            state.close(("tools", call), entry.at, "waiting" if waits else "fault")
            if waits:
                label = f"{state.tool(call)} waits"
                bar = Bar("waiting", entry.seq, entry.at, label=label, of=call, span=entry.span)
                state.begin(("waiting", -call), bar)

    @staticmethod
    def _waits(state: Timeline, entry: Entry) -> None:
        content, at, span = entry.content, entry.at, entry.span
        match content:
            case kinds.ApprovalRequestContent(of=of):
                label = f"approval of {state.tool(of)}"
                state.begin(("waiting", entry.seq), Bar("waiting", entry.seq, at, label=label, of=of, span=span))
            case kinds.QuestionContent():
                state.begin(("waiting", entry.seq), Bar("waiting", entry.seq, at, label="question", span=span))
            case kinds.ApprovalContent(of=of) | kinds.AnswerContent(of=of):
                state.close(("waiting", of), at)
            case kinds.TimerContent(key=key, due_at=due):
                state.begin(("waiting", entry.seq), Bar("waiting", entry.seq, at, label=f"timer {key}", span=span))
                state.due[entry.seq] = max(at, due)
            case _:
                pass


def _brief(args: Any) -> str:
    """Return the first three values of a call's arguments, separated by commas, cut to `ABOUT` characters."""
    values = args.values() if isinstance(args, dict) else [args]
    return ", ".join(str(each)[:ABOUT] for each, _ in zip(values, range(3), strict=False))[:ABOUT]


def _death(entry: Entry, content: kinds.FaultContent) -> bool:
    """Return whether a `fault` entry reports the death of a process that worked on a turn."""
    return content.error.type == LOST and content.of == entry.span


def busy_ms(bars: Iterable[Bar], lanes: Sequence[str] = ("model", "tools", "waiting")) -> dict[str, float]:
    """Return for each lane the milliseconds in which at least one of its bars was running. Open bars are left out."""
    found = dict.fromkeys(lanes, 0.0)
    reached = dict[str, datetime]()
    timed = [bar for bar in bars if bar.lane in found and bar.end is not None]
    for bar in sorted(timed, key=lambda each: each.start):
        assert bar.end is not None
        start = max(bar.start, reached.get(bar.lane, bar.start))
        if bar.end > start:
            found[bar.lane] += (bar.end - start) / timedelta(milliseconds=1)
            reached[bar.lane] = bar.end
    return found
