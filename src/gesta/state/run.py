"""Computes the state of a run (one conversation of an agent) from its entries. The state is never stored.

An entry is one stored fact of a run; its seq is its number there. An open call is a tool call without a result.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from gesta.entry import Entry
from gesta.errors import BrokenRecord
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    ApprovalRequestContent,
    AssistantContent,
    AttemptContent,
    BeginContent,
    ChatCompletionContent,
    CheckContent,
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
from gesta.model.usage import tokens
from gesta.prompt import given_text
from gesta.state.account import COSTS, WEIGHED, Spending, Weight
from gesta.state.calls import LOST, OF_TURN, TOO_DEEP, OpenCall, Try, called_agent
from gesta.state.checks import take_check
from gesta.state.steps import STEP_KINDS, WorkflowSteps
from gesta.state.turn import AGENT, HIDDEN, LastRequest, Turn


class RunState(Struct):
    """The state of a run, computed from its entries."""

    since: int = 0
    """Seq of the run's last entry when this process took the lease (right to write); 0 if it only reads."""
    head: int = 0
    opened: Opened | None = None
    user: str | None = None
    turn: Turn | None = None
    """The last turn of the run. The turn is open while its `reason` is `None`."""
    turns: dict[str, Turn] = field(default_factory=dict)
    """Turns by the key of their message."""
    calls: dict[int, OpenCall] = field(default_factory=dict)
    """Calls without a result by seq, also those of earlier turns."""
    unknown: dict[int, OpenCall] = field(default_factory=dict)
    """Calls with an unknown outcome that was not settled. Those that `calls` lacks have a placeholder as result."""
    doubtful: set[str] = field(default_factory=set)
    """Names of tools with a call of unknown outcome in the runs below this one."""
    above: set[str] = field(default_factory=set)
    """The same of the runs above this one. Only these runs know whether a person settled it, so no `end` says it."""
    mark: int | None = None
    """For a copy of a record that no person adopted yet (`gesta adopt`): the pos of the last copied entry."""
    moved: str = ""
    """Id of the record to which the run was last moved; empty if it was never moved."""
    spans: set[int] = field(default_factory=set)
    """Seqs of the `begin` entries of open spans other than turns."""
    began: list[int] = field(default_factory=list)
    """Seqs of the `begin` entries of the run's turns."""
    header: RequestHeaderContent | None = None
    header_seq: int = 0
    asked: LastRequest | None = None
    answered: int = 0
    """Number of completions in the run."""
    tool_state: str = ""
    """The tool state of the run, which decides what tools it may use; empty for the agent's first state."""
    steps: WorkflowSteps = field(default_factory=WorkflowSteps)
    weight: Weight = field(default_factory=Weight)
    questions: dict[int, QuestionContent] = field(default_factory=dict)
    """Unanswered questions of the open turn, by seq."""

    @property
    def open(self) -> bool:
        """Whether a turn (the work on one message) has begun and not ended."""
        return self.turn is not None and self.turn.reason is None

    @property
    def copied(self) -> bool:
        """Whether the open turn was copied from another record. If so, the other record may continue the same turn."""
        return self.mark is not None and self.turn is not None and 0 < self.turn.pos <= self.mark

    def doubts(self) -> set[str]:
        """Return the names of tools with a call of unknown outcome. Further calls of these tools need an approval."""
        return self.doubtful | self.above | {call.name for call in self.unknown.values()}

    def left_in_doubt(self) -> list[str]:
        """Return the sorted names of tools whose calls here or below would stay in doubt if the turn ended now."""
        return sorted(self.doubtful | {call.name for call in (self.unknown | self.tried()).values()})

    def tried(self) -> dict[int, OpenCall]:
        """Return, by seq, the open calls that may have had an effect."""
        return {c.seq: c for c in self.calls.values() if c.last and c.last.effect != "pure"}

    def all_open(self) -> list[OpenCall]:
        """Return the calls without a result, and those with an unknown outcome that was not settled."""
        return list({**self.unknown, **self.calls}.values())

    def call(self, seq: int | None) -> OpenCall | None:
        """Return the open call with this seq; `None` if the call has a result or does not exist."""
        return self.calls.get(seq) if seq is not None else None

    def current(self) -> list[OpenCall]:
        """Return the open calls to act on, in order: all of the last turn, and earlier ones that were attempted."""
        assert self.turn is not None
        return [call for call in self.calls.values() if call.seq > self.turn.begin or call.last is not None]


class RunView:
    """Computes a `RunState` by adding the entries of a run one by one."""

    def start(self) -> RunState:
        """Return the state of a run without entries."""
        return RunState()

    def apply(self, state: RunState, entry: Entry) -> RunState:
        """Add one entry and return the state. Raises BrokenRecord if a field does not have its declared type."""
        try:
            state.head = entry.seq
            if (kind := entry.content.kind) in STEP_KINDS or state.steps.open or entry.annotations:
                state.steps.take(entry)
            if (kind in PROGRESS or entry.annotations) and state.turn is not None:  # a program's note has an annotation
                state.turn.deaths = 0
            if kind in HANDLERS:
                HANDLERS[kind](state, entry, entry.content)
            if kind in WEIGHED:
                state.weight.take(entry)
            elif kind in COSTS and state.turn is not None:
                state.turn.spending.take(entry)
        except UNFIT as error:  # a field of a wrong type: no run may continue from it
            found = f"what its {entry.kind} content holds does not fit ({type(error).__name__}: {error})"
            raise BrokenRecord(f"entry {entry.id}", found) from error
        return state


def _fold_begin(state: RunState, entry: Entry, content: BeginContent) -> None:
    state.above.update((content.opened if content.opened is not None else content).doubts or ())
    state.opened = content.opened or state.opened
    if content.opened is not None and content.opened.base is not None:
        _fork(state)
    if content.role == "turn":
        state.began.append(entry.seq)
        agent = content.agent.digest if content.agent is not None else ""
        spending = Spending(allowed=content.allowance if isinstance(content.allowance, dict) else None)
        state.turn = Turn(entry.seq, pos=entry.pos, key=content.key, name=content.name, agent=agent, spending=spending)
        if content.key is not None:
            state.turns[content.key] = state.turn
    else:
        state.spans.add(entry.seq)


def _fork(state: RunState) -> None:
    """Remove approvals and `retry` verdicts from all calls, so that a fork repeats no effect of its base run."""
    state.moved = ""
    if state.turn is not None:  # the child runs of the base are none of the fork
        state.turn.spending.forked()
        state.turn.handed = 0
    for seq in [seq for call in state.calls.values() for seq in call.forked()]:
        state.questions.pop(seq, None)


def _fold_end(state: RunState, entry: Entry, content: EndContent) -> None:
    state.spans.discard(entry.span)
    if content.status == "success" and state.turn is not None:  # the end of a step is progress of the turn
        state.turn.deaths = 0
    if state.turn is not None and entry.span == state.turn.begin:
        state.unknown |= state.tried() if state.calls else {}  # a later result or resolution removes it
        state.doubtful.update(content.below or ())
        state.turn.reason = content.reason or ("answered" if content.status == "success" else "failed")
        state.questions.clear()
        state.turn.doubts, state.turn.null = tuple(content.doubts or ()), content.null is True
        state.turn.error, state.turn.end, state.turn.value = content.error, entry.seq, content.state
        if (state.turn.null or content.state is not None) and content.status == "success" and not state.turn.assistant:
            state.turn.text = given_text(content.state)
    else:
        state.doubtful.update(content.doubts or ())  # doubts of a run that a step called


def _fold_message(state: RunState, entry: Entry, content: UserContent | SystemContent) -> None:
    state.user = content.user_id or state.user
    if state.turn is not None:
        state.turn.reply = None
        if isinstance(content, SystemContent) and content.corrects is not None:
            state.turn.corrected()
        if not state.turn.question:
            state.turn.question, state.turn.task = entry.seq, content.value
            state.turn.parts = len(content.parts or ())
            state.turn.traceparent = content.traceparent if isinstance(content, UserContent) else None


def _fold_assistant(state: RunState, entry: Entry, content: AssistantContent) -> None:
    if state.turn is not None and content.history is not True:
        state.turn.assistant, state.turn.text = entry.seq, content.value


def _fold_header(state: RunState, entry: Entry, content: RequestHeaderContent) -> None:
    if state.asked is not None and state.header is not None and content.model != state.header.model:
        state.asked.encoder = HIDDEN  # provider-specific items of one model are hidden from another
    state.header, state.header_seq = content, entry.seq
    if state.turn is not None:
        state.turn.headed = True


def _fold_request(state: RunState, entry: Entry, content: RequestContent) -> None:
    last = state.asked if content.extends is not None else None
    before, encoder = (last.blocks, last.encoder) if last is not None else (0, "")
    blocks = before + len(content.blocks)
    for block in content.blocks:
        if not isinstance(block, str):
            encoder = block[1]
            break
    state.asked = LastRequest(entry.seq, content.body_digest, content.number, blocks, encoder, content.header)
    if state.turn is not None:
        state.turn.retry_at, state.turn.asked = None, state.turn.requests + 1


def _fold_completion(state: RunState, entry: Entry, content: ChatCompletionContent) -> None:
    state.answered += 1
    if state.asked is not None:
        state.asked.open = False
    counts = tokens(content.usage) if content.usage is not None else None
    state.weight.reply(counts, content, state.header)
    if state.turn is not None:
        state.turn.replied(entry.seq, content, counts)


def _fold_call(state: RunState, entry: Entry, content: ToolCallContent) -> None:
    error = str((content.meta or {}).get("error", "")) if content.status == "error" else ""
    good = content.status != "error"
    repeats = bool(state.doubtful or state.above or state.unknown) and content.tool_name in state.doubts()
    state.calls[entry.seq] = OpenCall(entry.seq, content.tool_name, content.tool_args, good, error, repeats)
    if state.turn is not None:
        state.turn.calls += 1
        state.turn.reply, state.turn.empty = None, 0


def _fold_attempt(state: RunState, entry: Entry, content: AttemptContent) -> None:
    if (call := state.calls.get(content.of)) is not None:
        last, call.attempts = call.last, content.number
        if last is None or call.first_at is None or content.key != last.key:
            call.first_at = entry.at
        effect = content.effect if last is None else last.strictest(content.effect)
        call.last = Try(entry.seq, effect, content.process, content.key, entry.at, before=last)
        call.last.server, call.last.agent = content.server, content.agent
        if last is not None:
            last.before = None  # only one earlier attempt is needed


def _fold_edge(state: RunState, entry: Entry, content: EdgeContent) -> None:
    if state.turn is not None and entry.span == state.turn.begin:
        state.turn.handed += state.turn.spending.edge_of(content.child or "") is None  # else it is called again
        called_agent(state.calls, entry, content)


def _fold_result(state: RunState, entry: Entry, content: ToolResultContent) -> None:
    if state.turn is not None:
        state.turn.returned(entry)
    call = state.calls.pop(content.call, None) if content.call is not None else None
    state.doubtful.update(content.doubts or ())
    if content.outcome != "unknown":
        state.unknown.pop(content.call or 0, None)
    elif call is not None:
        state.unknown[call.seq] = call
    if content.outcome == "ok" and isinstance(content.state, str):
        state.tool_state = content.state
    if content.ends_turn is not False and call is not None and state.turn is not None and call.seq > state.turn.begin:
        state.turn.ends(call.seq, entry.seq, content)
    if state.questions and call is not None:
        for seq in (call.question or 0, *call.asks):  # in a fork, the result may come from the base
            state.questions.pop(seq, None)


def _fold_fault(state: RunState, entry: Entry, content: FaultContent) -> None:
    if state.asked is not None and content.of == state.asked.seq:
        state.asked.open = False
        if state.turn is not None and content.error.type != LOST:
            state.turn.failed(content, entry.at)
    if state.turn is not None and content.of == state.turn.begin:
        if content.error.type == TOO_DEEP:
            state.turn.deep += 1
        elif content.error.type in OF_TURN:
            state.turn.stopped(entry.seq, content)
        elif not (state.turn.waits_below(state.asked) or state.steps.waits_below):
            state.turn.deaths += 1  # else the death counts in the run below
    for call in state.all_open():
        if call.last is not None and call.last.seq == content.of:
            call.doubted(call.last, entry.seq, content)


def _fold_approval_request(state: RunState, entry: Entry, content: ApprovalRequestContent) -> None:
    if (call := state.calls.get(content.of)) is not None:
        call.asked, call.expires, call.effect = entry.seq, content.expires, content.effect


def _fold_question(state: RunState, entry: Entry, content: QuestionContent) -> None:
    state.questions[entry.seq] = content
    for call in state.calls.values():
        if content.attempt is not None and call.last is not None and call.last.seq == content.attempt:
            call.asks[entry.seq] = content.part or ""
    for seq in state.calls.keys() & {*entry.causes}:
        state.calls[seq].question = entry.seq


def _fold_answer(state: RunState, entry: Entry, content: AnswerContent) -> None:
    state.questions.pop(content.of, None)
    for call in state.calls.values():
        if content.of in call.asks:
            call.answers[call.asks.pop(content.of)] = content.value
            call.heard.append(entry.seq)
        elif call.question == content.of and call.answer is None:
            call.answer, call.approved = content, entry.seq


def _fold_approval(state: RunState, entry: Entry, content: ApprovalContent) -> None:
    for call in state.calls.values():
        if call.asked == content.of and call.approval is None and content.refused is not None:
            call.refused, call.refusals = content.refused, call.refusals + 1
        elif call.asked == content.of and call.approval is None:
            call.approval, call.approved = content, entry.seq


def _fold_resolution(state: RunState, entry: Entry, content: ResolutionContent) -> None:
    for call in state.all_open():
        if call.resolved(content, entry.seq) and not (content.verdict == "retry" and call.seq in state.calls):
            state.unknown.pop(call.seq, None)


def _fold_compaction(state: RunState, entry: Entry, content: CompactionContent) -> None:
    if state.turn is not None:
        state.turn.returned(entry)
    state.doubtful.update(content.doubts or ())
    state.weight.compact(content)
    if state.asked is not None:
        state.asked.encoder = HIDDEN


def _fold_check(state: RunState, entry: Entry, content: CheckContent) -> None:
    state.doubtful.update(content.doubts or ())
    if state.turn is not None:
        take_check(content, entry, state.turn, state.calls)


def _fold_key_value(state: RunState, _entry: Entry, content: KeyValueContent) -> None:
    if content.key == AGENT and state.turn is not None and isinstance(content.value, dict):
        state.turn.agent = str(content.value.get("digest"))


def _fold_signal(state: RunState, _entry: Entry, content: SignalContent) -> None:
    if content.name == "moved":
        state.moved = content.to or ""
    if state.turn is not None and state.open:
        if content.name == "cancel" and content.of in (None, state.turn.begin):
            state.turn.cancelled = f"{content.by}: {content.reason}" if content.reason else content.by
        elif content.name == "wake":
            state.turn.deaths = 0


UNFIT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions that adding an entry raises if a field does not have its declared type."""
PROGRESS = frozenset({Kind.ChatCompletion, Kind.ToolResult, Kind.Approval, Kind.Answer, Kind.Resolution, Kind.User})
"""Kinds of entries that show progress. Such entries reset the count of processes that died in the turn."""
HANDLERS: dict[Kind, Callable[[RunState, Entry, Any], None]] = {
    Kind.Begin: _fold_begin,
    Kind.End: _fold_end,
    Kind.System: _fold_message,
    Kind.User: _fold_message,
    Kind.Assistant: _fold_assistant,
    Kind.RequestHeader: _fold_header,
    Kind.Edge: _fold_edge,
    Kind.Request: _fold_request,
    Kind.ChatCompletion: _fold_completion,
    Kind.ToolCall: _fold_call,
    Kind.Attempt: _fold_attempt,
    Kind.ToolResult: _fold_result,
    Kind.Fault: _fold_fault,
    Kind.ApprovalRequest: _fold_approval_request,
    Kind.Approval: _fold_approval,
    Kind.Question: _fold_question,
    Kind.Answer: _fold_answer,
    Kind.Resolution: _fold_resolution,
    Kind.Compaction: _fold_compaction,
    Kind.Check: _fold_check,
    Kind.KeyValue: _fold_key_value,
    Kind.Signal: _fold_signal,
}
