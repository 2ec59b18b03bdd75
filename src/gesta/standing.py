"""Where a run stands is a fold over its entries; there is no status beside the log.

`RunState` holds what `decide` needs and nothing that grows with the run but the keys of its messages: a call leaves
it when it is answered.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from gesta.acts import Acts
from gesta.codec import digest_of
from gesta.entry import Entry
from gesta.formatter import given_text
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    ApprovalRequestContent,
    AssistantContent,
    AttemptContent,
    BeginContent,
    ChatCompletionContent,
    CompactionContent,
    EdgeContent,
    EndContent,
    FaultContent,
    KeyValueContent,
    Kind,
    Opened,
    QuestionContent,
    RequestContent,
    RequestHeaderContent,
    ResolutionContent,
    SignalContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.pending import LOST, UNSETTLED, WAITS, Pending, Try
from gesta.spending import ALLOWANCE, COSTS, WEIGHED, Spending, Weight
from gesta.turn import AGENT, CORRECTS, HIDDEN, HISTORY, NULL, Asked, Turn
from gesta.usage import tokens


class RunState(Struct):
    """Where a run stands."""

    since: int = 0
    """Head when whoever asks took the lease; 0 for an onlooker, who takes every open attempt for running."""
    head: int = 0
    opened: Opened | None = None
    user: str | None = None
    turn: Turn | None = None
    """The last turn; it is open while it has no reason."""
    turns: dict[str, Turn] = field(default_factory=dict)
    """Turns by the key of their message."""
    calls: dict[int, Pending] = field(default_factory=dict)
    """Unanswered calls by seq, those of earlier turns too."""
    unknown: set[tuple[str, str]] = field(default_factory=set)
    """Tool and digest of arguments of each call that was answered `unknown`."""
    spans: set[int] = field(default_factory=set)
    """Open spans that are no turns."""
    began: list[int] = field(default_factory=list)
    """Seqs of the begins of its turns."""
    header: RequestHeaderContent | None = None
    header_seq: int = 0
    asked: Asked | None = None
    answered: int = 0
    """Completions in the run."""
    tool_state: str = ""
    """State that a tool left the run in; empty for the one it begins in."""
    acts: Acts = field(default_factory=Acts)
    weight: Weight = field(default_factory=Weight)
    questions: dict[int, QuestionContent] = field(default_factory=dict)
    """Those of the open turn that nobody has answered."""

    @property
    def open(self) -> bool:
        """Whether a turn is open."""
        return self.turn is not None and self.turn.reason is None

    def current(self) -> list[Pending]:
        """Unanswered calls of the open turn, and those of earlier ones that were tried, in order."""
        assert self.turn is not None
        return [call for call in self.calls.values() if call.seq > self.turn.begin or call.last is not None]


class RunView:
    """The fold that gives a `RunState`."""

    def start(self) -> RunState:
        """Make the state of a run without entries."""
        return RunState()

    def apply(self, state: RunState, entry: Entry) -> RunState:
        """Take one entry in."""
        state.head = entry.seq
        state.acts.take(entry)
        if (kind := entry.content.kind) in WEIGHED:
            state.weight.take(entry)
        elif kind in COSTS and state.turn is not None:
            state.turn.spending.take(entry)
        handle = HANDLERS.get(kind)
        if handle is not None:
            handle(state, entry, entry.content)
        return state


def _begin(state: RunState, entry: Entry, content: BeginContent) -> None:
    state.opened = content.opened or state.opened
    if content.role == "turn":
        state.began.append(entry.seq)
        agent = content.agent.digest if content.agent is not None else ""
        spending = Spending(allowed=(content.extra or {}).get(ALLOWANCE))
        state.turn = Turn(begin=entry.seq, key=content.key, name=content.name, agent=agent, spending=spending)
        if content.key is not None:
            state.turns[content.key] = state.turn
    else:
        state.spans.add(entry.seq)


def _end(state: RunState, entry: Entry, content: EndContent) -> None:
    state.spans.discard(entry.span)
    if state.turn is not None and entry.span == state.turn.begin:
        state.turn.reason = content.reason or ("answered" if content.status == "success" else "failed")
        state.questions.clear()
        state.turn.error, state.turn.end, state.turn.value = content.error, entry.seq, content.state
        state.turn.null = given = NULL in (content.extra or {})
        if (given or content.state is not None) and content.status == "success" and state.turn.assistant is None:
            state.turn.text = given_text(content.state)


def _user(state: RunState, entry: Entry, content: UserContent) -> None:
    state.user = content.user_id or state.user
    _system(state, entry, content)


def _system(state: RunState, entry: Entry, content: UserContent | SystemContent) -> None:
    if state.turn is not None:
        state.turn.reply = None
        state.turn.corrections += CORRECTS in (content.extra or {})
        if not state.turn.question:
            state.turn.question, state.turn.task = entry.seq, content.value


def _assistant(state: RunState, entry: Entry, content: AssistantContent) -> None:
    if state.turn is not None and HISTORY not in (content.extra or {}):
        state.turn.assistant, state.turn.text = entry.seq, content.value


def _header(state: RunState, entry: Entry, content: RequestHeaderContent) -> None:
    if state.asked is not None and state.header is not None and content.model != state.header.model:
        state.asked.encoder = HIDDEN  # another model is not shown what one keeps for itself
    state.header, state.header_seq = content, entry.seq


def _request(state: RunState, entry: Entry, content: RequestContent) -> None:
    last = state.asked if content.extends is not None else None
    before, known = (last.blocks, last.encoder) if last is not None else (0, "")
    encoder = next((block[1] for block in content.blocks if not isinstance(block, str)), known)
    blocks = before + len(content.blocks)
    state.asked = Asked(entry.seq, content.body_digest, content.number, blocks, encoder, content.header)
    if state.turn is not None:
        state.turn.retry_at = None


def _completion(state: RunState, entry: Entry, content: ChatCompletionContent) -> None:
    state.answered += 1
    if state.asked is not None:
        state.asked.open = False
    counts = tokens(content.usage)
    state.weight.reply(counts, content)
    if state.turn is not None:
        state.turn.replied(entry.seq, content, counts)


def _call(state: RunState, entry: Entry, content: ToolCallContent) -> None:
    error = str((content.meta or {}).get("error", "")) if content.status == "error" else ""
    good = content.status != "error"
    state.calls[entry.seq] = Pending(entry.seq, content.tool_name, content.tool_args, good, error)
    if state.turn is not None:
        state.turn.calls += 1
        state.turn.reply, state.turn.empty = None, 0


def _attempt(state: RunState, entry: Entry, content: AttemptContent) -> None:
    call = state.calls.get(content.of)
    if call is not None:
        call.attempts = content.number
        call.last = Try(entry.seq, once=(content.extra or {}).get("effect") == "once")


def _edge(state: RunState, entry: Entry, _content: EdgeContent) -> None:
    if state.turn is not None and entry.span == state.turn.begin:
        state.turn.handed += 1


def _result(state: RunState, entry: Entry, content: ToolResultContent) -> None:
    if state.turn is not None:
        state.turn.returned(entry)
    call = state.calls.pop(content.call, None) if content.call is not None else None
    if content.outcome == "ok" and isinstance(named := (content.extra or {}).get("state"), str):
        state.tool_state = named
    if call is not None and content.outcome == "unknown":
        state.unknown.add((call.name, digest_of(call.final_args)))


def _fault(state: RunState, entry: Entry, content: FaultContent) -> None:
    if state.asked is not None and content.of == state.asked.seq:
        state.asked.open = False
        if state.turn is not None and content.error.type != LOST:
            state.turn.faults += 1
            if content.wait_s is None:
                state.turn.fatal = content.error
            else:
                state.turn.retry_at = entry.at, content.wait_s
        return
    call = next((call for call in state.calls.values() if call.last is not None and call.last.seq == content.of), None)
    if call is not None and call.last is not None:
        last = call.last
        call.waited += content.error.type == WAITS
        last.doubt, last.child = content.error.type, str((content.extra or {}).get("run", ""))
        last.unsettled |= content.error.type == UNSETTLED


def _approval_request(state: RunState, entry: Entry, content: ApprovalRequestContent) -> None:
    if content.of in state.calls:
        state.calls[content.of].asked = entry.seq
        state.calls[content.of].expires = content.expires


def _question(state: RunState, entry: Entry, content: QuestionContent) -> None:
    state.questions[entry.seq] = content
    for cause in entry.causes:
        if isinstance(cause, int) and cause in state.calls:
            state.calls[cause].question = entry.seq


def _answer(state: RunState, entry: Entry, content: AnswerContent) -> None:
    state.questions.pop(content.of, None)
    for call in state.calls.values():
        if call.question == content.of and call.answer is None:
            call.answer, call.approved = content, entry.seq


def _approval(state: RunState, entry: Entry, content: ApprovalContent) -> None:
    for call in state.calls.values():
        if call.asked == content.of and call.approval is None:
            call.approval, call.approved = content, entry.seq


def _resolution(state: RunState, entry: Entry, content: ResolutionContent) -> None:
    for call in state.calls.values():
        if call.last is not None and call.last.seq == content.of and call.last.verdict is None:
            call.last.verdict, call.last.settled, call.result = content.verdict, entry.seq, content.result


def _compaction(state: RunState, entry: Entry, content: CompactionContent) -> None:
    if state.turn is not None:
        state.turn.returned(entry)
    state.weight.compact(content)
    if state.asked is not None:
        state.asked.encoder = HIDDEN


def _key_value(state: RunState, _entry: Entry, content: KeyValueContent) -> None:
    if content.key == AGENT and state.turn is not None and isinstance(content.value, dict):
        state.turn.agent = str(content.value.get("digest"))


def _signal(state: RunState, _entry: Entry, content: SignalContent) -> None:
    if content.name == "cancel" and state.turn is not None and state.open:
        state.turn.cancelled = content.by


HANDLERS: dict[Kind, Callable[[RunState, Entry, Any], None]] = {
    Kind.Begin: _begin,
    Kind.End: _end,
    Kind.System: _system,
    Kind.User: _user,
    Kind.Assistant: _assistant,
    Kind.RequestHeader: _header,
    Kind.Edge: _edge,
    Kind.Request: _request,
    Kind.ChatCompletion: _completion,
    Kind.ToolCall: _call,
    Kind.Attempt: _attempt,
    Kind.ToolResult: _result,
    Kind.Fault: _fault,
    Kind.ApprovalRequest: _approval_request,
    Kind.Approval: _approval,
    Kind.Question: _question,
    Kind.Answer: _answer,
    Kind.Resolution: _resolution,
    Kind.Compaction: _compaction,
    Kind.KeyValue: _key_value,
    Kind.Signal: _signal,
}
