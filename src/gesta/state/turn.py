"""The state of a turn and of the run's last request, as far as `decide` (which chooses the next move) needs it.

An entry is one stored fact of a run; its seq is its number there. A turn goes from a message to the answer. A request
asks the model; a completion is the model's reply; a fault is a failed try. A hook is a function of the agent that may
change or refuse something.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from gesta.entry import Entry
from gesta.kinds import ChatCompletionContent, Error, FaultContent, ToolResultContent
from gesta.model.usage import Tokens
from gesta.state.account import Spending
from gesta.state.calls import DEPTH, WAITS

AGENT = "gesta.agent"
"""Key of the `key-value` entry which says that an agent with a changed description continues the turn."""
REPLACED = "replaced by a new message"
"""Message of the error in the `end` of a turn that a new message ended (`Policy.when_busy`)."""
HIDDEN = "hidden"
"""Value of `LastRequest.encoder` after blocks (messages) of that request were hidden or changed. So the next request
lists all its blocks again."""
PAUSED = "pause_turn"
"""Finish reason by which Anthropic says that its own tools need more time: the request is sent again with the reply
so far."""


class LastRequest(Struct):
    """The facts about the run's last request that are needed to make the next request."""

    seq: int
    digest: str
    number: int
    blocks: int
    """Number of blocks in the request's prompt, including those of the requests that it extends."""
    encoder: str
    header: int
    open: bool = True
    """Whether neither a reply to the request nor a `fault` entry about it was written yet."""


class Turn(Struct):
    """The state of one turn, open or ended, computed from its entries."""

    begin: int
    key: str | None
    name: str
    agent: str = ""
    """Digest of the description of the agent that last continued the turn."""
    requests: int = 0
    """Number of completions so far."""
    calls: int = 0
    faults: int = 0
    """Number of failed tries since the last completion."""
    corrections: int = 0
    """Number of times that the model was told to correct its answer in this turn."""
    empty: int = 0
    """Number of replies in a row without text and calls."""
    finish: str | None = None
    """The provider's reason why the last completion ended."""
    reply: int | None = None
    """Seq of a completion without calls, which can become the answer; `None` if there is none."""
    text: str = ""
    assistant: int | None = None
    retry_at: tuple[datetime, float] | None = None
    """Time of the last failed try, and the seconds to wait after it before the next try."""
    instead: str = ""
    """Name of the fallback model that is used for the rest of the turn, because the agent's own model failed; empty for
    none."""
    fatal: Error | None = None
    """The error that ends the turn, because no further try is made."""
    deep: int = 0
    """Number of times that the model called an agent as a tool and was refused because of `Limits.depth`."""
    limit: Error | None = None
    """The error that ends the turn because of `Limits.depth`."""
    cancelled: str | None = None
    """Name of the person who cancelled the turn, followed by the reason if there is one."""
    pos: int = 0
    """Pos (place in the whole store) of the turn's `begin` entry; 0 if this process has just written it."""
    parts: int = 0
    """Number of images, files and further texts in the message that opened the turn."""
    doubts: tuple[str, ...] = ()
    """Names of tools with a call of unknown outcome when the turn ended."""
    deaths: int = 0
    """Number of processes that died in the turn one after another, without a new entry from a model, tool or person."""
    reason: str | None = None
    """The reason for which the turn ended; `None` while the turn is open."""
    error: Error | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    unknown_usage: int = 0
    """Number of completions without a count of tokens."""
    question: int = 0
    """Seq of the entry with the message or task that opened the turn."""
    task: str = ""
    """Text of the message or task that opened the turn."""
    traceparent: str | None = None
    """W3C trace context that came with this message."""
    end: int | None = None
    handed: int = 0
    """Number of child runs that this turn started, and whose end it has not recorded yet."""
    value: Any = None
    """The value of the answer, if it is more than a text."""
    null: bool = False
    """Whether the answer is the value null, which the answer type allows."""
    headed: bool = False
    """Whether the turn has written a request-header (the tools and settings of its requests)."""
    asked: int = 0
    """Number of the last request of the turn, from 1. Repeated tries of a request have the same number."""
    checked: set[int] = field(default_factory=set)
    """Everything that a hook was already called for: seqs of messages and answers, and the `request_mark` of requests.
    """
    smallest: int = 0
    """The `request_mark` of the next request, if nothing can be left out of its prompt; not on record."""
    waits: tuple[int, str] | None = None
    """If a hook called an agent and that agent waits: the seq of the `fault` entry that says so, and the id of that
    agent's run."""
    changed: int | None = None
    """Seq of the check that changed the answer; `value` is then the changed answer."""
    ended_by: tuple[int, int] | None = None
    """Seq of a tool call whose result is the answer of the turn, and seq of the result. Then `text` and `value` hold
    the answer."""
    spending: Spending = field(default_factory=Spending)

    def returned(self, entry: Entry) -> None:
        """Count the child runs whose end an entry reports, and subtract that number from `handed`.

        `handed` is the number of child runs that have not returned to the turn yet. The `end` entries of the child runs
        are causes of the entry. Entries of workflow steps are ignored.
        """
        if self.handed and entry.span == self.begin:
            self.handed -= sum(isinstance(cause, tuple) for cause in entry.causes)

    def ends(self, call: int, seq: int, content: ToolResultContent) -> None:
        """Add a tool result that ends the turn. If there are several, the result of the earliest call is the answer.

        Args:
            call: seq of the call.
            seq: seq of the result.
        """
        if self.ended_by is None or call < self.ended_by[0]:
            self.ended_by = call, seq
            self.value = content.tool_result if content.ends_turn is True else content.ends_turn

    def waits_below(self, asked: LastRequest | None) -> bool:
        """Return whether the turn may be waiting for a child run.

        Only child runs that were started after the run's last request count; the turn does not wait for earlier ones.

        Args:
            asked: the last request of the run.
        """
        return self.handed > 0 and (asked is None or asked.seq < max(self.spending.edges, default=0))

    @property
    def answer_seq(self) -> int | None:
        """Seq of the completion, or of the tool result, that holds the answer; `None` if there is no answer yet."""
        return self.reply if self.ended_by is None else self.ended_by[1]

    @property
    def given(self) -> Any:
        """The answer: its value, or its text if it is no more than a text."""
        return self.text if self.value is None and not self.null else self.value

    @property
    def request_mark(self) -> int:
        """A negative number that stands for the next request, which has no seq yet.

        It is put into `checked`, the set of the seqs of everything that a hook was already called for.
        """
        return -1 - self.requests

    def stopped(self, seq: int, content: FaultContent) -> None:
        """Add a `fault` entry about the turn itself: an error that ends the turn, or a wait for a child run.

        Args:
            seq: seq of the `fault` entry.
        """
        if content.error.type == DEPTH:
            self.limit = content.error
        elif content.error.type == WAITS:
            self.waits = seq, content.run or ""
        else:
            self.fatal = content.error

    def corrected(self) -> None:
        """Add one to the corrections: the model was told that its answer does not fit, and answers again."""
        self.corrections += 1
        self.ended_by = self.changed = self.value = None

    def failed(self, fault: FaultContent, at: datetime) -> None:
        """Add a failed try of a request: the turn then waits for the next try, asks another model, or ends.

        Args:
            at: time of the `fault` entry.
        """
        self.faults += 1
        if fault.wait_s is None:
            self.fatal = fault.error
        else:
            self.retry_at = at, fault.wait_s
        if fault.instead is not None:
            self.instead, self.faults = fault.instead, 0

    def replied(self, seq: int, content: ChatCompletionContent, counts: Tokens | None) -> None:
        """Add a completion. If the provider only paused and wants to continue, the completion's text is not the answer.

        Args:
            seq: seq of the completion.
            counts: the tokens of the request and the completion; `None` if the provider did not count them.
        """
        self.requests, self.faults = self.requests + 1, 0
        self.finish = content.finish_reason
        paused = self.finish == PAUSED
        self.reply, self.text = None if paused else seq, content.output
        self.empty = 0 if paused or content.output.strip() else self.empty + 1
        if counts is None:
            self.unknown_usage += 1
        else:
            self.tokens_in += counts.input
            self.tokens_out += counts.output
