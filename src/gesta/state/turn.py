"""The state of one turn and of its last request, as far as `decide` needs it."""

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from gesta.entry import Entry
from gesta.kinds import ChatCompletionContent, Error, FaultContent, ToolResultContent
from gesta.model.usage import Tokens
from gesta.state.account import Spending
from gesta.state.calls import DEPTH, WAITS

AGENT = "gesta.agent"
"""Key of the entry which says that an agent with another description continues the turn."""
HIDDEN = "hidden"
"""Value in place of the last request's encoder after its blocks were hidden or changed. The next request does not
extend it."""
PAUSED = "pause_turn"
"""Finish reason of Anthropic if its own tools take long: the request is sent again with the reply so far."""


class LastRequest(Struct):
    """The last request of a turn."""

    seq: int
    digest: str
    number: int
    blocks: int
    """Number of all blocks of the request's prompt."""
    encoder: str
    header: int
    open: bool = True
    """Whether the request has neither a reply nor a fault."""


class Turn(Struct):
    """The state of a turn, which is open or has ended."""

    begin: int
    key: str | None
    name: str
    agent: str = ""
    """Digest of the agent's description that was last on record."""
    requests: int = 0
    """Number of completions so far."""
    calls: int = 0
    faults: int = 0
    """Number of failed tries since the last completion."""
    corrections: int = 0
    """Number of answers of this turn that the model was told to correct."""
    empty: int = 0
    """Number of replies in a row without text and calls."""
    reply: int | None = None
    """Seq of a completion without calls, which becomes the answer."""
    text: str = ""
    assistant: int | None = None
    retry_at: tuple[datetime, float] | None = None
    """Time of the last failed try, and how many seconds after that the next try may start."""
    instead: str = ""
    """Name of the fallback that is asked because the agent's own model failed in this turn."""
    fatal: Error | None = None
    """The error that ends the turn because no further try is made."""
    deep: int = 0
    """Number of calls of agents that were refused because they were too deep."""
    limit: Error | None = None
    """The error of the limit of depth, once it ends the turn."""
    cancelled: str | None = None
    """Name of the person who cancelled the turn, and the reason if there is one."""
    pos: int = 0
    """Pos of the turn's begin; 0 if this process has just written it."""
    parts: int = 0
    """Number of images, files and further texts of the message that opened the turn."""
    doubts: tuple[str, ...] = ()
    """Names of tools with a call of unknown outcome when the turn ended."""
    deaths: int = 0
    """Number of processes that died in the turn one after another, without a new entry from a model, tool or person."""
    reason: str | None = None
    """Reason of the turn's end; `None` while the turn is open."""
    error: Error | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    unknown_usage: int = 0
    """Number of completions without a count of tokens."""
    question: int = 0
    """Seq of the entry that opened the turn: a person's message, or the task of a child run."""
    task: str = ""
    """Text of the message or task that opened the turn."""
    traceparent: str | None = None
    """W3C trace context that came with that message."""
    end: int | None = None
    handed: int = 0
    """Number of child runs started whose end has not been used as a cause yet."""
    value: Any = None
    """The value of the answer, if it is not the text."""
    null: bool = False
    """Whether the answer is null, which its type allows."""
    headed: bool = False
    """Whether a request-header of the turn is on record."""
    asked: int = 0
    """Number of the last request of the turn, from 1: one more than there were completions before it."""
    checked: set[int] = field(default_factory=set)
    """Seqs of messages and answers that a hook was asked about, and marks of requests."""
    waits: tuple[int, str] | None = None
    """Seq of the fault which says that an agent called by a hook waits, and the id of the agent's run."""
    changed: int | None = None
    """Seq of the check that changed the answer; `value` is then the changed answer."""
    ended_by: tuple[int, int] | None = None
    """Seqs of the call and the result that end the turn. Then `text` and `value` are its answer."""
    spending: Spending = field(default_factory=Spending)

    def returned(self, entry: Entry) -> None:
        """Subtract from `handed` the child runs whose ends are causes of an entry.

        Child runs of workflow steps do not count.
        """
        if self.handed and entry.span == self.begin:
            self.handed -= sum(isinstance(cause, tuple) for cause in entry.causes)

    def ends(self, call: int, seq: int, content: ToolResultContent) -> None:
        """Add a result that ends the turn. If there are several, the result of the first call counts."""
        if self.ended_by is None or call < self.ended_by[0]:
            self.ended_by = call, seq
            self.value = content.tool_result if content.ends_turn is True else content.ends_turn

    @property
    def request_mark(self) -> int:
        """The mark by which `checked` names the next request."""
        return -1 - self.requests

    def stopped(self, seq: int, content: FaultContent) -> None:
        """Add a fault that ends the turn by a limit or a failure, or that makes it wait for a child run.

        Args:
            seq: seq of the fault.
        """
        if content.error.type == DEPTH:
            self.limit = content.error
        elif content.error.type == WAITS:
            self.waits = seq, content.run or ""
        else:
            self.fatal = content.error

    def corrected(self) -> None:
        """Count a correction, after which the model answers again."""
        self.corrections += 1
        self.ended_by = self.changed = self.value = None

    def failed(self, fault: FaultContent, at: datetime) -> None:
        """Add a failed try of a request, and what follows: another try, another model, or the end of the turn."""
        self.faults += 1
        if fault.wait_s is None:
            self.fatal = fault.error
        else:
            self.retry_at = at, fault.wait_s
        if fault.instead is not None:
            self.instead, self.faults = fault.instead, 0

    def replied(self, seq: int, content: ChatCompletionContent, counts: Tokens | None) -> None:
        """Add a completion. If the provider only paused its reply, the model is asked to continue."""
        self.requests, self.faults = self.requests + 1, 0
        paused = content.finish_reason == PAUSED
        self.reply, self.text = None if paused else seq, content.output
        self.empty = 0 if paused or content.output.strip() else self.empty + 1
        if counts is None:
            self.unknown_usage += 1
        else:
            self.tokens_in += counts.input
            self.tokens_out += counts.output
