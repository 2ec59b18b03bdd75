"""Shows a run as a conversation: messages, tool calls with their results, and how each turn ended.

A run is the list of entries of one conversation of an agent. A span is a named part of it, from a `begin` to an `end`.
Entries that only Gesta itself needs (such as requests to a model, and attempts to run a tool) are left out, unless
`--all` is set. Every kind of entry has its own line here. No text that is shown can control a terminal.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, assert_never

from gesta.cli.layout import fold, wrap
from gesta.cli.talk import BOLD, DIM, PLAIN, RED, count, dollars, harmless, short
from gesta.codec.rows import encode_content
from gesta.entry import Entry, utc_text
from gesta.errors import BrokenRecord
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    ApprovalRequestContent,
    ArtifactContent,
    AssistantContent,
    AttemptContent,
    BeginContent,
    BudgetContent,
    ChatCompletionContent,
    CheckContent,
    CompactionContent,
    DecisionContent,
    EdgeContent,
    EndContent,
    Error,
    FaultContent,
    KeyValueContent,
    Kind,
    PlanContent,
    QuestionContent,
    RequestContent,
    RequestHeaderContent,
    ResolutionContent,
    RetrievalContent,
    SignalContent,
    SystemContent,
    ThoughtContent,
    TimerContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.model.usage import tokens
from gesta.prompt import observation_text
from gesta.state.calls import UNKNOWN_END
from gesta.state.run import UNFIT, RunState, RunView
from gesta.text.visible import call_text, visible
from gesta.views.lineage import check_text, summary_text

CYAN, GREEN, YELLOW, BLUE = "36", "32", "33", "34"

MACHINERY = frozenset({Kind.RequestHeader, Kind.Request, Kind.Attempt, Kind.ApprovalRequest, Kind.Budget, Kind.Timer})
"""Kinds that are shown only with `--all`."""

WHO = 10
"""Number of columns for the label at the left, such as the name of the speaker."""
FEW, MANY = 6, 200
"""Greatest number of lines that are shown of a result, and of a message."""


class Line(NamedTuple):
    """One entry in the form in which it is printed: a label, a text and a colour."""

    who: str
    text: str
    style: str = PLAIN
    most: int | None = FEW
    """Greatest number of lines of the text that are shown."""


class Transcript:
    """Turns the entries of one run, one after another, into lines of text."""

    def __init__(self, *, width: int, colour: bool, everything: bool = False) -> None:
        self._width, self._colour, self._everything = width, colour, everything
        self._view, self._state = RunView(), RunState()
        self._turns = 0
        self._spans: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._said: Entry | None = None
        self._begun: Entry | None = None

    def add(self, entry: Entry) -> Iterable[str]:
        """Return the lines to print for the next entry. A reply may be held back and come with the entry after it."""
        return self._shown(entry, self._added)

    def _shown(self, entry: Entry, show: Callable[[Entry], Iterator[str]]) -> Iterable[str]:
        """Return the lines that the function `show` makes for an entry.

        An entry with a field of a wrong type is shown as JSON, as it is stored.
        """
        try:
            return list(show(entry))
        except (BrokenRecord, *UNFIT):
            return self._lines(entry, Line(str(entry.kind), encode_content(entry.content), RED))

    def _added(self, entry: Entry) -> Iterator[str]:
        self._state = self._view.apply(self._state, entry)
        content = entry.content
        if self._said is not None and not isinstance(content, ThoughtContent | BudgetContent):
            if not isinstance(content, AssistantContent):
                yield from self._reply(self._said)
            self._said = None
        match content:
            case BeginContent(role="turn"):
                yield from self._turn(entry, content)
            case EndContent() if self._begun is not None and entry.span == self._begun.seq:
                yield from self._turn_end(entry, content)
            case ChatCompletionContent():
                self._said = entry
                if self._everything:
                    yield from self._lines(entry, completion(content))
            case BeginContent() | EndContent():
                yield from self._span(entry, content)
            case _ if entry.kind not in MACHINERY or self._everything:
                yield from self._lines(entry, self.line(entry))

    def close(self) -> Iterator[str]:
        """Yield the lines of a reply that `add` held back. Call this after the last entry."""
        if self._said is not None:
            yield from self._reply(self._said)
            self._said = None

    def line(self, entry: Entry) -> Line:
        """Return the label, text and colour of one entry."""
        return line_of(entry, self._state.turn.name if self._state.turn is not None else "assistant")

    def every(self, entry: Entry) -> Iterable[str]:
        """Return the lines of one entry, even if `add` would leave it out or hold it back."""
        return self._shown(entry, self._alone)

    def _alone(self, entry: Entry) -> Iterator[str]:
        self._state = self._view.apply(self._state, entry)
        yield from self._lines(entry, self.line(entry))

    def _reply(self, entry: Entry) -> Iterator[str]:
        """Yield the lines of a model's reply; none if the reply has no text."""
        assert isinstance(entry.content, ChatCompletionContent)
        if entry.content.output.strip():
            name = self._state.turn.name if self._state.turn is not None else "model"
            yield from self._lines(entry, Line(name, entry.content.output, BLUE, MANY))

    def _turn(self, entry: Entry, content: BeginContent) -> Iterator[str]:
        self._turns += 1
        self._begun = entry
        self._spans[entry.seq] = 0
        day = utc_text(entry.at)[:10]
        key = f" · key {short(content.key, 40)}" if content.key else ""
        yield ""
        yield from self._rule(f"turn {self._turns} · {short(content.name, 40)} · {day}{key}")

    def _turn_end(self, entry: Entry, content: EndContent) -> Iterator[str]:
        turn, begun = self._state.turn, self._begun
        assert turn is not None and begun is not None
        if content.error is not None:
            yield from self._lines(entry, Line("error", f"{content.error.type}: {content.error.message}", RED))
        parts = [content.reason or content.status, count(turn.requests, "request")]
        if turn.tokens_in or turn.tokens_out:
            parts.append(f"{turn.tokens_in:,} + {turn.tokens_out:,} tokens")
        spent = turn.spending.spent(turn.requests)
        if spent is not None:
            parts.append(dollars(spent.usd))
        parts.append(f"{(entry.at - begun.at).total_seconds():.1f} s")
        yield from self._rule(" · ".join(parts))
        self._begun = None

    def _rule(self, text: str) -> Iterator[str]:
        text = f"── {harmless(text)} "
        yield self._styled(text + "─" * max(0, self._width - len(text)), DIM)

    def _span(self, entry: Entry, content: BeginContent | EndContent) -> Iterator[str]:
        """Yield the line for the begin or the end of a span, indented by the depth of the span."""
        if isinstance(content, BeginContent):
            depth = self._spans.get(content.parent, -1) + 1 if content.parent is not None else 0
            self._spans[entry.seq], self._names[entry.seq] = depth, content.name
        depth = self._spans.get(entry.span, 0)
        line = line_of(entry, "")
        if isinstance(content, EndContent):
            line = line._replace(text=f"{self._names.get(entry.span, '')} {line.text}".strip())
        yield from self._lines(entry, line._replace(text="  " * depth + line.text))

    def _lines(self, entry: Entry, line: Line) -> Iterator[str]:
        time = utc_text(entry.at)[11:19]
        who = short(harmless(line.who), WHO)
        if self._everything:
            who = f"{entry.seq:>4} {who}"
        left = f"{time}  {who:<{WHO + 5 * self._everything}}  "
        text = wrap(harmless(line.text).rstrip().lstrip("\n"), max(20, self._width - len(left)))
        for number, part in enumerate(fold(text, None if self._everything else line.most)):
            start = self._styled(left, DIM if line.style == DIM else BOLD) if not number else " " * len(left)
            yield (start + self._styled(part, line.style)).rstrip()

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and style != PLAIN and text.strip() else text


def line_of(entry: Entry, agent: str) -> Line:
    """Return the label, text and colour of an entry of any kind. An answer has the name `agent` as its label."""
    match entry.content:
        case SystemContent(value=text):
            return Line("system", text, DIM)
        case UserContent(value=text, user_id=user):
            return Line(user or "user", text, GREEN, MANY)
        case AssistantContent(value=text):
            return Line(agent, text, PLAIN, MANY)
        case ThoughtContent(value=text):
            return Line("thinks", text, DIM)
        case ToolCallContent(tool_name=name, tool_args=args, status=status, meta=meta):
            bad = f"\nmalformed: {(meta or {}).get('error', '')}" if status == "error" else ""
            return Line(f"call {entry.seq}", call_text(name, args) + bad, RED if bad else CYAN)
        case ToolResultContent(tool_result=result, call=call, status=status, outcome=outcome):
            kind = f"{outcome or status}: " if outcome not in ("ok", None) or status == "error" else ""
            who = f"result {call}" if call is not None else "result"
            return Line(who, kind + observation_text(result), RED if status == "error" else DIM)
        case FaultContent(of=of, error=Error(type=type_, message=message), over=over) if type_ == UNKNOWN_END:
            return Line("looked up", f"attempt {of} has ended" if over else f"attempt {of}: {message}", DIM)
        case FaultContent(of=of, error=error, wait_s=wait_s):
            again = f"; tried again after {wait_s:g} s" if wait_s is not None else ""
            return Line("fault", f"{error.type} (of {of}): {error.message}{again}", RED)
        case ApprovalContent(verdict=verdict, by=by, refused=str(refused)):
            return Line(verdict, visible(f"by {by}{said_at(entry)}, which does not count: {refused}"), RED)
        case ApprovalContent(verdict=verdict, by=by, reason=reason, args=args):
            changed = f", with {shown(args)}" if args is not None else ""
            return Line(verdict, visible(f"by {by}{said_at(entry)}{changed}{f': {reason}' if reason else ''}"), YELLOW)
        case QuestionContent(value=text):
            return Line("question", visible(text), YELLOW, MANY)
        case AnswerContent(value=value, by=by):
            return Line("answer", f"{shown(value)} (by {by}{said_at(entry, ', said at ', '')})", YELLOW, MANY)
        case SignalContent(name=name, by=by, reason=reason):
            return Line(name, f"by {by}{f': {reason}' if reason else ''}", YELLOW)
        case ResolutionContent(of=of, verdict=verdict, by=by, result=result):
            gave = f", giving {shown(result)}" if result is not None else ""
            return Line("settled", f"{verdict} (attempt {of}), by {by}{said_at(entry)}{gave}", YELLOW)
        case BeginContent() | EndContent() | EdgeContent() | KeyValueContent() as content:
            return scope(content)
        case (
            DecisionContent() | PlanContent() | RetrievalContent() | ArtifactContent() | CompactionContent() as content
        ):
            return work(content)
        case CheckContent(verdict=verdict) as content:
            return Line("hook", visible(check_text(content)), RED if verdict == "refused" else YELLOW)
        case content:
            return machinery(content)


def said_at(entry: Entry, before: str = " (said at ", after: str = ")") -> str:
    """Return the time at which a person sent an answer, as text between `before` and `after`.

    Returns `""` if the entry of the answer does not contain this time. The entry itself was written later, when a
    program read the answer in the inbox. The day is left out if both times are on the same day.
    """
    at = getattr(entry.content, "sent_at", None)
    if at is None:
        return ""
    day, time = utc_text(at)[:10], utc_text(at)[11:19]
    return f"{before}{time if day == utc_text(entry.at)[:10] else f'{day} {time}'}{after}"


def scope(content: BeginContent | EndContent | EdgeContent | KeyValueContent) -> Line:
    """Return the line of an entry about a span: a begin, end, edge or key-value."""
    match content:
        case BeginContent(name=name, role=role, state=state):
            kind = f" ({role})" if role else ""
            return Line("begin", f"{name}{kind}{f' {shown(state)}' if state is not None else ''}", DIM)
        case EndContent(status=status, reason=reason, error=error, state=state):
            said = [reason or ("" if status == "success" else status), shown(state) if state is not None else ""]
            said.append(f"{error.type}: {error.message}" if error is not None else "")
            return Line("end", " ".join(part for part in said if part), DIM if error is None else RED)
        case EdgeContent(source=source, dest=dest, payload=payload, allowance=allowance):
            given = f": {shown(payload)}" if payload is not None else ""
            given += f", allowed {shown(allowance)}" if allowance is not None else ""
            return Line("edge", f"{'/'.join(source)} → {'/'.join(dest)}{given}", DIM)
        case KeyValueContent(key=key, value=value):
            return Line("note", f"{key} = {shown(value)}")
        case _:
            assert_never(content)


def work(content: DecisionContent | PlanContent | RetrievalContent | ArtifactContent | CompactionContent) -> Line:
    """Return the line of an entry about the agent's work: a plan, decision, retrieval, artifact or compaction."""
    match content:
        case DecisionContent(choice=choice, candidates=candidates, rationale=rationale):
            return Line("decision", f"{choice} of {', '.join(candidates)}{f': {rationale}' if rationale else ''}")
        case PlanContent(role=role, steps=steps):
            return Line(role, "\n".join(f"{place}. {step.goal}" for place, step in enumerate(steps)), PLAIN, MANY)
        case RetrievalContent(query=query, hits=hits):
            found = [f"{hit.document} {hit.chunk or ''} {hit.score if hit.score is not None else ''}" for hit in hits]
            return Line("retrieval", "\n".join([query, *(f"  {line.rstrip()}" for line in found)]))
        case ArtifactContent(name=name, media_type=media_type):
            return Line("artifact", f"{name} ({media_type})")
        case CompactionContent(from_seq=first, to_seq=last) as content:
            return Line("compaction", f"{first} to {last}: {summary_text(content) or 'left out'}", DIM)
        case _:
            assert_never(content)


def machinery(
    content: RequestHeaderContent
    | RequestContent
    | ChatCompletionContent
    | AttemptContent
    | ApprovalRequestContent
    | TimerContent
    | BudgetContent,
) -> Line:
    """Return a line for an entry that only Gesta itself needs, such as a request or an attempt."""
    match content:
        case RequestHeaderContent(tools=tools, meta=meta):
            meta = meta or {}
            words = f"{len(str(meta.get('instructions', ''))):,} characters of instructions"
            return Line("header", f"model {meta.get('model')}, {count(len(tools or []), 'tool')}, {words}", DIM)
        case RequestContent(extends=extends, blocks=blocks, number=number, body_digest=digest):
            after = f" after request {extends}" if extends is not None else ""
            tried = f", try {number}" if number > 1 else ""
            return Line("request", f"{count(len(blocks), 'block')}{after}{tried}, body {digest[:12]}", DIM)
        case ChatCompletionContent():
            return completion(content)
        case AttemptContent(of=of, number=number):
            return Line("attempt", f"{number} of call {of}", DIM)
        case ApprovalRequestContent(of=of):
            return Line("asks", f"may call {of} run?", YELLOW)
        case TimerContent(due_at=due_at, key=key):
            return Line("timer", f"{key} at {utc_text(due_at)[:19]}", DIM)
        case BudgetContent(of=of, reserved=reserved, spent=spent):
            return Line("budget", f"of {of}: reserved {shown(reserved)}, spent {shown(spent)}", DIM)
        case _:
            assert_never(content)


def completion(content: ChatCompletionContent) -> Line:
    """Return a line about a model's reply, with its tokens and time but without its text."""
    counts = tokens(content.usage)
    parts = [
        content.model or "model",
        f"{counts.input:,} tokens in, {counts.output:,} out" if counts is not None else "tokens unknown",
        f"{content.latency_ms / 1000:.1f} s" if content.latency_ms is not None else "",
        content.finish_reason or "",
    ]
    return Line("reply", ", ".join(part for part in parts if part), DIM)


def shown(value: Any) -> str:
    """Return a value as text on one line: a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
