"""Each thing that can happen in a run has a class here; `Content` is the closed, tagged union of them.

A tag on disk never changes; the classes keep the names that agent-catalog's activity logs use. Every link (`of`,
`call`, `header`, `extends`) is the seq of an entry in the same run. A link is never a provider's id, because providers
repeat or omit ids. These classes hold data only: they do not know how they are stored, shown or sent.

Words: a *run* is one conversation or task of an agent, stored as *entries*; an entry's *seq* is its number in the run;
a *child run* is the run of an agent that another agent calls; a *turn* goes from one message to its answer; a *span* is
a named part of a run, from its `begin` to its `end`; an *attempt* is one execution of a tool for a call; a *doubt* is a
call that may or may not have had its effect; a *hook* is a function of the agent that may change or refuse something;
an *epoch* counts how often the right to write a run (the lease) was taken.
"""

from datetime import datetime
from typing import Any, ClassVar, Literal

from gesta.content import (
    AgentRef as AgentRef,
    Base as Base,
    Error as Error,
    Forked as Forked,
    Hit as Hit,
    Kind as Kind,
    Opened as Opened,
    Part as Part,
    Reason as Reason,
    Status as Status,
    Step as Step,
    ToolServer as ToolServer,
)


class SystemContent(Base, frozen=True, kw_only=True, tag="system"):
    """A text that the application made: a template filled in, or the task of a child run."""

    kind: ClassVar[Kind] = Kind.System
    value: str
    parts: list[Part] | None = None
    source: list[str] | None = None
    """Names of the agents or programs that made the text, the outermost first. A model reads it with role `user`."""
    user_id: str | None = None
    """The user on whose behalf the agent acts."""
    corrects: int | None = None
    """Seq of the completion whose answer this text corrects."""
    document: dict[str, Any] | None = None
    """The message that the text was made from, if that message holds more than text."""
    history: bool = False
    """Whether a program added the text as part of an earlier conversation."""


class UserContent(Base, frozen=True, kw_only=True, tag="user"):
    """A message that a person sent."""

    kind: ClassVar[Kind] = Kind.User
    value: str
    user_id: str | None = None
    parts: list[Part] | None = None
    document: dict[str, Any] | None = None
    """The message that the text was made from, if that message holds more than text."""
    history: bool = False
    """Whether a program added the message as part of an earlier conversation: nobody sent it in this turn."""
    traceparent: str | None = None
    """The W3C trace context that came with the message: the turn's trace span becomes a child of that span."""


class AssistantContent(Base, frozen=True, kw_only=True, tag="assistant"):
    """The answer that the person was shown."""

    kind: ClassVar[Kind] = Kind.Assistant
    value: str
    parts: list[Part] | None = None
    return_values: dict[str, Any] | None = None
    """The values of the answer, if the answer is more than its text."""
    history: bool = False
    """Whether a program added the answer as part of an earlier conversation: it does not answer this turn."""


class RequestHeaderContent(Base, frozen=True, kw_only=True, tag="request-header"):
    """Tools, instructions, model and settings. These apply to every later request, until the next request-header."""

    kind: ClassVar[Kind] = Kind.RequestHeader
    tools: list[dict[str, Any]] | None = None
    """Each `{name, description, args_schema}`. A tool of a server also has `server`, and its rules such as `effect`."""
    output: dict[str, Any] | None = None
    """JSON schema of the answer."""
    meta: dict[str, Any] | None = None
    """Has the members `model`, `instructions` and `settings`, and further data of the agent."""
    made: str | None = None
    """The instructions that the agent's function returned; `None` if the agent's instructions are a text."""

    @property
    def model(self) -> Any:
        """The model that is asked, as `provider:model`."""
        return (self.meta or {}).get("model")


class RequestContent(Base, frozen=True, kw_only=True, tag="request"):
    """A model is about to be asked. The entry is durable before the first byte of the request is sent."""

    kind: ClassVar[Kind] = Kind.Request
    header: int
    extends: int | None = None
    """Seq of the request whose blocks this request repeats; `None` for the run's first request, or if all blocks were
    encoded again."""
    blocks: list[Any]
    """The added blocks (encoded messages). Each is `[[seq, ...], encoder]`, naming the entries to encode, or the
    encoded text."""
    body_digest: str
    """SHA-256 of the whole body, in hex."""
    number: int = 1
    """Number of the try of this same body, from 1."""


class ChatCompletionContent(Base, frozen=True, kw_only=True, tag="chat-completion"):
    """A reply of a model. Its entry has one cause: the entry of the request."""

    kind: ClassVar[Kind] = Kind.ChatCompletion
    output: str
    model: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """The usage as the provider sent it."""
    latency_ms: float | None = None
    meta: dict[str, Any] | None = None
    """`raw` holds the bytes of the reply (`raw_zlib` if compressed). `native` holds items that the provider wants sent
    back."""
    actions: dict[str, Any] | None = None
    """The actions that the agent took from this reply, if they do not follow from its text and calls."""


class ThoughtContent(Base, frozen=True, kw_only=True, tag="thought"):
    """Reasoning: the agent's own, or the part of a model's reasoning that its provider shows."""

    kind: ClassVar[Kind] = Kind.Thought
    value: str


class ToolCallContent(Base, frozen=True, kw_only=True, tag="tool-call"):
    """A tool call: the arguments that a model made for a tool."""

    kind: ClassVar[Kind] = Kind.ToolCall
    tool_name: str
    tool_args: dict[str, Any]
    tool_call_id: str | None = None
    """The provider's id of the call; it may be missing or repeated."""
    status: Status | None = "success"
    """`error` if the model generated the call badly, so that it cannot run."""
    meta: dict[str, Any] | None = None
    """`raw_args` has the arguments if they were not a JSON object; `error` says why the status is `error`."""


class AttemptContent(Base, frozen=True, kw_only=True, tag="attempt"):
    """A tool is about to run for a call."""

    kind: ClassVar[Kind] = Kind.Attempt
    of: int
    number: int
    """Number of the attempt of this call, from 1."""
    epoch: int
    """Epoch of the lease (the right to write the run) under which the attempt was made."""
    effect: str | None = None
    """The tool's `effect` at the time of the attempt: pure, idempotent, once, transactional; `None` if not known."""
    process: str | None = None
    """Name of the process that makes the attempt, as `Store.gone` takes it; `None` in entries of format 1."""
    key: str | None = None
    """Idempotency key, 64 hex digits. The first attempt of a call draws it at random, and later attempts repeat it.
    `None` in entries of format 1."""
    server: ToolServer | None = None
    """The server that runs the tool; `None` for a function of the program."""
    agent: str | None = None
    """Name of the agent that the tool runs in a child run; `None` for a function."""


class ToolResultContent(Base, frozen=True, kw_only=True, tag="tool-result"):
    """The result of a tool call."""

    kind: ClassVar[Kind] = Kind.ToolResult
    tool_result: Any
    """The value that the model reads: any JSON value."""
    call: int | None = None
    """Seq of the tool call; `None` if an imported log does not say."""
    tool_call_id: str | None = None
    status: Status | None = "success"
    """`error` if the tool failed."""
    outcome: Literal["ok", "error", "denied", "interrupted", "unknown", "late"] | None = None
    doubts: list[str] | None = None
    """Names of tools with a call of unknown outcome in the child runs that this call started."""
    error: Error | None = None
    """The error that the tool raised."""
    state: str | None = None
    """The tool state that the tool put the run into; see `Agent.state`."""
    ends_turn: bool | str = False
    """Whether the turn ends with this result as its answer. A text means that the turn ends with this text as its
    answer."""
    document: dict[str, Any] | None = None
    """The message that the tool returned, if it holds more than text."""
    by: str | None = None
    """Name of the person who supplied the result in place of the tool."""
    copy_of: str | None = None
    """Id of the entry of another run that this result was copied from."""


class FaultContent(Base, frozen=True, kw_only=True, tag="fault"):
    """A try of a request, an attempt of a call, or a turn failed."""

    kind: ClassVar[Kind] = Kind.Fault
    of: int
    """Seq of what failed: the request, the attempt, or the turn's `begin` if the turn itself failed."""
    error: Error
    wait_s: float | None = None
    """Seconds until the next try; `None` if there is no next try."""
    shown_chars: int | None = None
    """Number of characters of the reply that were already streamed to a listener."""
    over: bool | None = None
    """For an attempt: `True` if its function has certainly ended, `False` if a check could not find out."""
    run: str | None = None
    """Id of the child run that the attempt or the hook waits for."""
    instead: str | None = None
    """For a request: name of the model that replaces the failed model for the rest of the turn."""
    state: Any = None
    """For an attempt that waits for a person's answer: data that the tool gets back when it is called again."""
    meta: dict[str, Any] | None = None
    """`raw_zlib`: the bytes of the reply that were received, compressed."""


class BeginContent(Base, frozen=True, kw_only=True, tag="begin"):
    """A span starts. The seq of this entry identifies the span."""

    kind: ClassVar[Kind] = Kind.Begin
    name: str = ""
    role: str | None = None
    """`turn`, `task`, `agent`, `model`, `tool`, `plan`, `step`, `finding`, `synthesis`, or a role of the user's own."""
    parent: int | None = None
    state: Any = None
    annotations: dict[str, Any] | None = None
    """Annotations that every entry in the span and in the spans below it inherits."""
    opened: Opened | None = None
    agent: AgentRef | None = None
    key: str | None = None
    """Key of the message that opened this turn."""
    allowance: dict[str, Any] | None = None
    """For a turn of a child run: the amount that the turn may spend."""
    doubts: list[str] | None = None
    """For a later turn of a child run: what `Opened.doubts` is for its first turn, without names known before."""


class EndContent(Base, frozen=True, kw_only=True, tag="end"):
    """A span ends."""

    kind: ClassVar[Kind] = Kind.End
    state: Any = None
    status: Status = "success"
    reason: str | None = None
    """For a turn: answered, failed, limit, budget, cancelled."""
    error: Error | None = None
    doubts: list[str] | None = None
    """For a turn: names of tools with a call whose outcome is still unknown."""
    below: list[str] | None = None
    """For a turn: those of `doubts` that its child runs left, and that no other entry of the turn names."""
    null: bool = False
    """For a turn: whether its answer is the value null, which the agent's `output` type allows."""
    goal: str | None = None
    """For a span with role `finding`: the goal that was looked into."""


class EdgeContent(Base, frozen=True, kw_only=True, tag="edge"):
    """A run or span calls another one, or hands its work over to another one."""

    kind: ClassVar[Kind] = Kind.Edge
    source: list[str]
    """Names of the spans from the root of the run to the caller."""
    dest: list[str]
    payload: Any = None
    allowance: dict[str, Any] | None = None
    """The amount that the child run may spend."""
    child: str | None = None
    """Name of the child run that a tool call starts."""


class KeyValueContent(Base, frozen=True, kw_only=True, tag="key-value"):
    """A value that a program writes under a name."""

    kind: ClassVar[Kind] = Kind.KeyValue
    key: str
    value: Any


class DecisionContent(Base, frozen=True, kw_only=True, tag="decision"):
    """A choice between alternatives, such as the next speaker, the type of a task or the pattern to use."""

    kind: ClassVar[Kind] = Kind.Decision
    choice: str
    candidates: list[str]
    rationale: str | None = None
    task_type: str | None = None
    """The kind of task that was decided about."""


class PlanContent(Base, frozen=True, kw_only=True, tag="plan"):
    """A plan: the steps that an agent intends to take."""

    kind: ClassVar[Kind] = Kind.Plan
    role: Literal["plan", "decomposition"]
    steps: list[Step]


class RetrievalContent(Base, frozen=True, kw_only=True, tag="retrieval"):
    """The passages that a search found."""

    kind: ClassVar[Kind] = Kind.Retrieval
    query: str
    hits: list[Hit]


class ApprovalRequestContent(Base, frozen=True, kw_only=True, tag="approval-request"):
    """A person is asked whether a call may run."""

    kind: ClassVar[Kind] = Kind.ApprovalRequest
    of: int
    args_digest: str
    """SHA-256 of the call's arguments as canonical JSON, in hex. An approval holds for these arguments only."""
    expires: datetime | None = None
    effect: str | None = None
    """The tool's `effect`: pure, idempotent, once or transactional; `None` if it is not known."""


class ApprovalContent(Base, frozen=True, kw_only=True, tag="approval"):
    """A person's answer to the question whether a call may run."""

    kind: ClassVar[Kind] = Kind.Approval
    of: int
    """Seq of the approval-request."""
    verdict: Literal["approved", "denied", "answered"]
    """`answered`: the call does not run, and `result` is its result."""
    by: str
    args: dict[str, Any] | None = None
    """Arguments to run the call with, if the person changed them."""
    reason: str | None = None
    result: Any = None
    sent_at: datetime | None = None
    """Time at which the store received the approval, by the store's clock; it is compared with the request's
    `expires`."""
    token: str | None = None
    """Proof of who approved; the program's `Approver` checks it."""
    refused: str | None = None
    """Why this approval does not count: it came too late, or the `Approver` does not accept it."""


class QuestionContent(Base, frozen=True, kw_only=True, tag="question"):
    """A person is asked a question, other than for an approval."""

    kind: ClassVar[Kind] = Kind.Question
    value: str
    schema: dict[str, Any] | None = None
    raises: Literal["tokens", "usd"] | None = None
    """The bound of the turn's budget that the answer will raise; `None` for any other question."""
    attempt: int | None = None
    """Seq of the attempt whose tool asks. The tool is called again with the answer. `None` for any other question."""
    part: str | None = None
    """Name by which the tool itself knows the question."""


class AnswerContent(Base, frozen=True, kw_only=True, tag="answer"):
    """A person answered a question."""

    kind: ClassVar[Kind] = Kind.Answer
    of: int
    value: Any
    by: str
    sent_at: datetime | None = None
    """Time at which the store received the answer, by the store's clock. The entry's own time may be much later."""


class SignalContent(Base, frozen=True, kw_only=True, tag="signal"):
    """A signal to the run from outside, such as a cancellation."""

    kind: ClassVar[Kind] = Kind.Signal
    name: Literal["cancel", "wake", "pause", "moved"]
    by: str
    reason: str | None = None
    to: str | None = None
    """For `moved`: id of the record in which the run continues."""
    of: int | None = None
    """For `cancel`: seq of the `begin` of the turn to cancel; `None` for whichever turn is open."""


class TimerContent(Base, frozen=True, kw_only=True, tag="timer"):
    """A time at which the run is to continue."""

    kind: ClassVar[Kind] = Kind.Timer
    due_at: datetime
    key: str


class ResolutionContent(Base, frozen=True, kw_only=True, tag="resolution"):
    """A person, or the tool's `reconcile`, said whether an effect in doubt happened."""

    kind: ClassVar[Kind] = Kind.Resolution
    of: int
    """Seq of the attempt in doubt."""
    verdict: Literal["done", "failed", "retry"]
    by: str
    result: Any = None
    void: bool = False
    """Whether the attempt's idempotency key can no longer have an effect: the next attempt draws a new key."""
    sent_at: datetime | None = None
    """Time at which the store received a person's resolution, as in `AnswerContent`."""


class BudgetContent(Base, frozen=True, kw_only=True, tag="budget"):
    """Money and tokens that are reserved before a request and settled after it."""

    kind: ClassVar[Kind] = Kind.Budget
    of: int
    """Seq of the request, or of the edge to a child run."""
    reserved: dict[str, Any] | None = None
    """Has the members `tokens` and `usd`."""
    spent: dict[str, Any] | None = None
    """Has the members `tokens` and `usd`, each null if unknown. If one is unknown, `counted` holds the amounts that
    count instead. `prices` names the price list."""


class ArtifactContent(Base, frozen=True, kw_only=True, tag="artifact"):
    """A file that a tool or code made."""

    kind: ClassVar[Kind] = Kind.Artifact
    name: str
    media_type: str
    blob: str


class CompactionContent(Base, frozen=True, kw_only=True, tag="compaction"):
    """A summary replaces a range of entries in the prompt. Without a summary, the range is only left out."""

    kind: ClassVar[Kind] = Kind.Compaction
    from_seq: int
    to_seq: int
    summary: str | None = None
    tokens: int | None = None
    """Estimated number of tokens that the range had in the prompt."""
    error: Error | None = None
    """Why there is no summary, if an agent had to write one."""
    run: str | None = None
    """Id of the child run that had to write the summary."""
    doubts: list[str] | None = None
    """Names of tools with a call of unknown outcome in that child run."""


class CheckContent(Base, frozen=True, kw_only=True, tag="check"):
    """A hook of the agent changed, refused or added something, or asked that a person decides."""

    kind: ClassVar[Kind] = Kind.Check
    of: int
    """Seq of what was checked: a message, a call, or the completion or result with the answer. For a request, the
    turn's begin."""
    point: Literal["message", "request", "call", "answer"]
    hook: str
    """Name of the hook's function."""
    verdict: Literal["allowed", "changed", "refused", "asked", "again", "added"]
    """`allowed` is written only if the hook called an agent."""
    words: str | None = None
    """The reason that the hook gave: for the model to read, or for the person who is asked."""
    value: Any = None
    """The new message, request, arguments or answer, if the hook made one."""
    doubts: list[str] | None = None
    """Names of tools with a call of unknown outcome in the child runs that the hook started."""


Content = (
    SystemContent
    | UserContent
    | AssistantContent
    | RequestHeaderContent
    | RequestContent
    | ChatCompletionContent
    | ThoughtContent
    | ToolCallContent
    | AttemptContent
    | ToolResultContent
    | FaultContent
    | BeginContent
    | EndContent
    | EdgeContent
    | KeyValueContent
    | DecisionContent
    | PlanContent
    | RetrievalContent
    | ApprovalRequestContent
    | ApprovalContent
    | QuestionContent
    | AnswerContent
    | SignalContent
    | TimerContent
    | ResolutionContent
    | BudgetContent
    | ArtifactContent
    | CompactionContent
    | CheckContent
)
"""The closed union of all contents. A `match` that must handle every kind ends in `assert_never`."""
