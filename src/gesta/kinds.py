"""Each thing that can happen in a run has a class here; `Content` is the closed, tagged union of them.

The tag on disk is the string of `Kind`, for ever; the classes keep the names that activity logs use. Every link
(`of`, `call`, `header`, `extends`) is the seq of an entry in the same run, never a provider's id: those repeat
and go missing. Data only: nothing here knows how it is stored, shown or sent.
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
    """Text that the application made."""

    kind: ClassVar[Kind] = Kind.System
    value: str
    parts: list[Part] | None = None
    source: list[str] | None = None
    """The names of the agent or program that made the text, the outermost first. A model reads it as role user."""
    user_id: str | None = None
    """The user on whose behalf the agent acts."""
    corrects: int | None = None
    """Seq of the completion whose answer this text corrects."""
    document: dict[str, Any] | None = None
    """The message that the text was made from, if that message holds more than text."""
    history: bool = False
    """Whether a program put it into the history."""


class UserContent(Base, frozen=True, kw_only=True, tag="user"):
    """A message that a person sent."""

    kind: ClassVar[Kind] = Kind.User
    value: str
    user_id: str | None = None
    parts: list[Part] | None = None
    document: dict[str, Any] | None = None
    """The message that the text was made from, if that message holds more than text."""
    history: bool = False
    """Whether a program put it into the history: nobody sent it."""
    traceparent: str | None = None
    """The W3C trace context of the request that brought the message: the turn's span hangs under that span."""


class AssistantContent(Base, frozen=True, kw_only=True, tag="assistant"):
    """The answer that the person was shown."""

    kind: ClassVar[Kind] = Kind.Assistant
    value: str
    parts: list[Part] | None = None
    return_values: dict[str, Any] | None = None
    """The values of the answer, where they are more than its text."""
    history: bool = False
    """Whether a program put it into the history: it is no answer of this turn."""


class RequestHeaderContent(Base, frozen=True, kw_only=True, tag="request-header"):
    """Tools, instructions, model and settings of every request after it, until another header."""

    kind: ClassVar[Kind] = Kind.RequestHeader
    tools: list[dict[str, Any]] | None = None
    """Each `{name, description, args_schema}`. A tool of a server also has `server`, and its rules such as `effect`."""
    output: dict[str, Any] | None = None
    """JSON schema of the answer."""
    meta: dict[str, Any] | None = None
    """`model`, `instructions`, `settings`."""
    made: str | None = None
    """The instructions that the agent's function returned; `None` if the agent's instructions are a text."""

    @property
    def model(self) -> Any:
        """The model that is asked, as `provider:model`."""
        return (self.meta or {}).get("model")


class RequestContent(Base, frozen=True, kw_only=True, tag="request"):
    """A model is about to be asked; durable before the first byte is sent."""

    kind: ClassVar[Kind] = Kind.Request
    header: int
    extends: int | None = None
    """Request whose blocks this request repeats; `None` for the first, or if all blocks were encoded again."""
    blocks: list[Any]
    """The added blocks: `[[seq, ...], encoder]` by reference, or the text of one encoded block."""
    body_digest: str
    """SHA-256 of the whole body, in hex."""
    number: int = 1
    """Number of the try of this body, from 1."""


class ChatCompletionContent(Base, frozen=True, kw_only=True, tag="chat-completion"):
    """A reply of a model. The only cause of its entry is the entry of the request that it answers."""

    kind: ClassVar[Kind] = Kind.ChatCompletion
    output: str
    model: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """The usage as the provider sent it."""
    latency_ms: float | None = None
    meta: dict[str, Any] | None = None
    """`raw`, or `raw_zlib` if compressed: the bytes of the reply. `native`: items that the provider wants back."""
    actions: dict[str, Any] | None = None
    """The agent actions that were made from it, if they do not follow from its text and calls."""


class ThoughtContent(Base, frozen=True, kw_only=True, tag="thought"):
    """Reasoning: the agent's own, or the part of a model's that its provider shows."""

    kind: ClassVar[Kind] = Kind.Thought
    value: str


class ToolCallContent(Base, frozen=True, kw_only=True, tag="tool-call"):
    """Arguments that a model made for a tool."""

    kind: ClassVar[Kind] = Kind.ToolCall
    tool_name: str
    tool_args: dict[str, Any]
    tool_call_id: str | None = None
    """The provider's id of the call; it may be missing or repeated."""
    status: Status | None = "success"
    """Whether the call was generated well."""
    meta: dict[str, Any] | None = None
    """`raw_args` where the arguments were no JSON object; `error` says why status is error."""


class AttemptContent(Base, frozen=True, kw_only=True, tag="attempt"):
    """A tool is about to run for a call."""

    kind: ClassVar[Kind] = Kind.Attempt
    of: int
    number: int
    """Number of the attempt of this call, from 1."""
    epoch: int
    """Epoch of the lease under which the attempt was made."""
    effect: str | None = None
    """The tool's effect policy at the time of the attempt; `None` if it is not known."""
    process: str | None = None
    """Name of the process that makes the attempt, for `Store.gone`; `None` in entries of format 1."""
    key: str | None = None
    """Idempotency key, 64 hex: random in the first attempt of a call, copied by later ones; `None` in format 1."""
    server: ToolServer | None = None
    """The server that carries the tool out; `None` for a function of the program."""


class ToolResultContent(Base, frozen=True, kw_only=True, tag="tool-result"):
    """The result of a tool call."""

    kind: ClassVar[Kind] = Kind.ToolResult
    tool_result: Any
    """The value that the model reads: any JSON value."""
    call: int | None = None
    """Seq of the tool call; `None` if an imported log does not say."""
    tool_call_id: str | None = None
    status: Status | None = "success"
    """Whether the tool ran well."""
    outcome: Literal["ok", "error", "denied", "interrupted", "unknown", "late"] | None = None
    doubts: list[str] | None = None
    """Names of tools with a call of unknown outcome in the child runs that the call started."""
    error: Error | None = None
    """The error that the tool raised."""
    state: str | None = None
    """The state in which the tool left the run."""
    ends_turn: bool | str = False
    """Whether the turn ends with this result as its answer; a text is the answer in its place."""
    document: dict[str, Any] | None = None
    """The message that the tool returned, where that holds more than text."""
    by: str | None = None
    """The person who gave the result in place of the tool."""
    copy_of: str | None = None
    """Id of the entry of another run that this result was copied from."""


class FaultContent(Base, frozen=True, kw_only=True, tag="fault"):
    """A try of a request, an attempt of a call, or a turn failed."""

    kind: ClassVar[Kind] = Kind.Fault
    of: int
    """Seq of the request or the attempt that failed; of the begin of the turn if the turn itself failed."""
    error: Error
    wait_s: float | None = None
    """Pause before the next try; `None` if there is no next try."""
    shown_chars: int | None = None
    """Number of characters of the reply that were already streamed to somebody."""
    over: bool | None = None
    """For an attempt: whether its function has certainly ended; `False` if this was looked up and is not known."""
    run: str | None = None
    """Id of the child run that an attempt or a hook waits for."""
    instead: str | None = None
    """For a request: the model that replaces the failed model for the rest of the turn."""
    state: Any = None
    """Of an attempt that a person has to answer first: what its tool gets back when it is called again."""
    meta: dict[str, Any] | None = None
    """`raw_zlib`: the bytes of the reply that were received, compressed."""


class BeginContent(Base, frozen=True, kw_only=True, tag="begin"):
    """A span starts; its seq names the span."""

    kind: ClassVar[Kind] = Kind.Begin
    name: str = ""
    role: str | None = None
    """turn, task, agent, model, tool, plan, step, finding, synthesis, or the user's own."""
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


class EndContent(Base, frozen=True, kw_only=True, tag="end"):
    """A span ends."""

    kind: ClassVar[Kind] = Kind.End
    state: Any = None
    status: Status = "success"
    reason: str | None = None
    """Of a turn: answered, failed, limit, budget, cancelled."""
    error: Error | None = None
    doubts: list[str] | None = None
    """Of a turn: names of tools with a call whose outcome is still unknown."""
    null: bool = False
    """For a turn: whether its answer is null, as the type of the answer allows."""
    goal: str | None = None
    """For a finding: its goal."""


class EdgeContent(Base, frozen=True, kw_only=True, tag="edge"):
    """One unit of work calls another (vertical) or hands over to it (horizontal)."""

    kind: ClassVar[Kind] = Kind.Edge
    source: list[str]
    """Full path of span names."""
    dest: list[str]
    payload: Any = None
    allowance: dict[str, Any] | None = None
    """The amount that the child run may spend."""
    child: str | None = None
    """Name of the child run of a tool call."""


class KeyValueContent(Base, frozen=True, kw_only=True, tag="key-value"):
    """A value that a program writes under a name."""

    kind: ClassVar[Kind] = Kind.KeyValue
    key: str
    value: Any


class DecisionContent(Base, frozen=True, kw_only=True, tag="decision"):
    """A routing choice: pattern, task type, next speaker."""

    kind: ClassVar[Kind] = Kind.Decision
    choice: str
    candidates: list[str]
    rationale: str | None = None
    task_type: str | None = None
    """Kind of task that the choice was made for."""


class PlanContent(Base, frozen=True, kw_only=True, tag="plan"):
    """Steps that are to be taken."""

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
    """SHA-256 of the canonical arguments, in hex."""
    expires: datetime | None = None
    effect: str | None = None
    """The tool's effect policy; `None` if it is not known."""


class ApprovalContent(Base, frozen=True, kw_only=True, tag="approval"):
    """A person answered about a call."""

    kind: ClassVar[Kind] = Kind.Approval
    of: int
    """The approval-request."""
    verdict: Literal["approved", "denied", "answered"]
    """`answered`: the call does not run, and `result` is its result."""
    by: str
    args: dict[str, Any] | None = None
    """Other arguments to run with, if the person changed them."""
    reason: str | None = None
    result: Any = None
    sent_at: datetime | None = None
    """Time at which the store received the approval, by the store's clock; it is compared with `expires`."""
    token: str | None = None
    """Proof of who approves, for the record's `Approver`."""
    refused: str | None = None
    """Why this approval does not count: it came too late, or the `Approver` does not accept it."""


class QuestionContent(Base, frozen=True, kw_only=True, tag="question"):
    """A person is asked a question, other than for an approval."""

    kind: ClassVar[Kind] = Kind.Question
    value: str
    schema: dict[str, Any] | None = None
    raises: Literal["tokens", "usd"] | None = None
    """The bound of the turn's budget that the answer raises; `None` for any other question."""
    attempt: int | None = None
    """Seq of the attempt whose tool asks: it is called again with the answer; `None` for any other question."""
    part: str | None = None
    """The tool's own name of the question."""


class AnswerContent(Base, frozen=True, kw_only=True, tag="answer"):
    """A person answered a question."""

    kind: ClassVar[Kind] = Kind.Answer
    of: int
    value: Any
    by: str


class SignalContent(Base, frozen=True, kw_only=True, tag="signal"):
    """A signal to the run from outside, such as a cancellation."""

    kind: ClassVar[Kind] = Kind.Signal
    name: Literal["cancel", "wake", "pause", "moved"]
    by: str
    reason: str | None = None
    to: str | None = None
    """For `moved`: id of the record in which the run is continued."""


class TimerContent(Base, frozen=True, kw_only=True, tag="timer"):
    """A time at which the run is to continue."""

    kind: ClassVar[Kind] = Kind.Timer
    due_at: datetime
    key: str


class ResolutionContent(Base, frozen=True, kw_only=True, tag="resolution"):
    """A person, or the tool's `reconcile`, said whether an effect in doubt happened."""

    kind: ClassVar[Kind] = Kind.Resolution
    of: int
    """The attempt in doubt."""
    verdict: Literal["done", "failed", "retry"]
    by: str
    result: Any = None
    void: bool = False
    """Whether the attempt's key can no longer act: the next attempt draws a new one."""


class BudgetContent(Base, frozen=True, kw_only=True, tag="budget"):
    """Money and tokens that are reserved before a request and settled after it."""

    kind: ClassVar[Kind] = Kind.Budget
    of: int
    """The request, or the edge to a child run."""
    reserved: dict[str, Any] | None = None
    """`tokens`, `usd`."""
    spent: dict[str, Any] | None = None
    """`tokens`, `usd`, each null if unknown. For unknown amounts `counted` holds the amounts that count instead;
    `prices` names the price list."""


class ArtifactContent(Base, frozen=True, kw_only=True, tag="artifact"):
    """A file that a tool or code made."""

    kind: ClassVar[Kind] = Kind.Artifact
    name: str
    media_type: str
    blob: str


class CompactionContent(Base, frozen=True, kw_only=True, tag="compaction"):
    """A summary is shown instead of a range of entries; without a summary the range is only hidden."""

    kind: ClassVar[Kind] = Kind.Compaction
    from_seq: int
    to_seq: int
    summary: str | None = None
    tokens: int | None = None
    """Size of the range in the prompt, as it was estimated."""
    error: Error | None = None
    """Why there is no summary, if an agent was to write a summary."""
    run: str | None = None
    """Id of the child run that was to write the summary."""


class CheckContent(Base, frozen=True, kw_only=True, tag="check"):
    """A hook of the agent changed, refused or added something, or left it to a person."""

    kind: ClassVar[Kind] = Kind.Check
    of: int
    """Seq of the message, the call, or the completion or result with the answer; for a request, the turn's begin."""
    point: Literal["message", "request", "call", "answer"]
    hook: str
    """Name of the function."""
    verdict: Literal["allowed", "changed", "refused", "asked", "again", "added"]
    """`allowed` is written only if the hook called an agent."""
    words: str | None = None
    """The reason, for the model or for the person."""
    value: Any = None
    """The new value, if the hook changed it."""


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
"""The closed union. Matching on it ends in `assert_never` where a kind must be handled."""
