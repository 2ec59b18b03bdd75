"""Computes the cost of a turn from the entries of the run.

A turn goes from one message of a run to its answer. An amount is reserved before each request to the model. Afterwards
it is settled: the real cost replaces the reserved amount. An amount that was never settled counts as spent, so a crash
hides no request that was paid for. An unknown cost is null, never 0; the reserved amount is used in its place. A child
run is a run of an agent that this run calls; an `edge` entry starts it. The `edge` entry reserves the allowance of the
child run (the amount that it may spend). It is settled when the child run has ended. The seq of an entry is its number
in the run.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from gesta.entry import Entry
from gesta.kinds import (
    AnswerContent,
    BudgetContent,
    ChatCompletionContent,
    CompactionContent,
    Content,
    EdgeContent,
    Kind,
    Part,
    QuestionContent,
    RequestHeaderContent,
)
from gesta.model.usage import Tokens
from gesta.prompt import observation_text

COSTS = frozenset({Kind.Budget, Kind.Edge, Kind.Question, Kind.Answer})
"""Kinds of entries that `Spending.take` handles."""
BYTES = 4
"""Bytes of text per token, for estimates."""
UNWEIGHED = 16
"""Number of contents from which `Weight` estimates their tokens at the next message or reply, and keeps only the sum.
The estimate is delayed because most policies never need it."""
FILE = 1_500
"""Estimated number of tokens of an image or a file."""


class Amount(Struct, frozen=True):
    """A sum of tokens and of US dollars."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.usd + other.usd)


class Spent(Struct, frozen=True, kw_only=True):
    """The cost of a turn, including the cost of all runs below it."""

    tokens: int
    """Tokens of prompts and replies. For a request whose tokens are unknown, the reserved tokens are added."""
    usd: float | None
    """US dollars; `None` if any price is unknown."""
    counted_usd: float
    """US dollars, with the reserved amount in place of each unknown price; a budget is compared with this sum."""


class ChildEdge(Struct, frozen=True):
    """An `edge` entry, which starts a child run, and the amount that the child run may spend."""

    child: str
    """Name of the child run that a tool call started; empty for a workflow step, which starts at most one."""
    allowance: dict[str, Any] | None


class Spending(Struct):
    """The account of a turn: the amounts that it has spent, and the amounts that are reserved."""

    allowed: dict[str, Any] | None = None
    """What the parent run allows: the bounds `tokens` and `usd`, and what to reserve for a request of unknown cost."""
    settled: Amount = Amount()
    held: dict[int, Amount] = field(default_factory=dict)
    """Amounts that are reserved and not settled yet, by the seq of the `request` or `edge` entry."""
    edges: dict[int, ChildEdge] = field(default_factory=dict)
    """The `edge` entries that started child runs, by the seq of the entry. If a call was tried again, only the last
    `edge` of the call is kept."""
    children: dict[str, int] = field(default_factory=dict)
    """Seq of the `edge` entry of each child run that a tool call started, by the name of the child run."""
    requests: int = 0
    """Number of requests with a reply whose cost was settled."""
    unpriced: int = 0
    """Number of requests and child runs that are settled, but whose cost in dollars is unknown."""
    more: Amount = Amount()
    """The amount by which a person raised the bounds."""
    asked: int | None = None
    """Seq of the open question whether the turn may spend more; `None` if no such question is open."""
    axis: str = ""
    """The unit of the question `asked`: `tokens` or `usd`."""
    refused: bool = False
    """Whether a person answered that no more may be spent."""

    @property
    def counted(self) -> Amount:
        """The amount to compare with the budget: all settled costs, and the amounts that are still reserved."""
        return sum(self.held.values(), self.settled)

    def edge_of(self, child: str) -> int | None:
        """Return the seq of the `edge` entry by which a tool call started this child run; `None` if there is none."""
        return self.children.get(child)

    def spent(self, requests: int) -> Spent | None:
        """Return the cost of the turn; `None` if no account was kept.

        Args:
            requests: number of replies in the turn. If some of them were not settled, the cost in dollars is unknown.
        """
        whole, known = self.counted, not (self.held or self.unpriced or requests > self.requests)
        if whole == Amount() and not self.requests:
            return None
        usd = round(whole.usd, 9)
        return Spent(tokens=whole.tokens, usd=usd if known else None, counted_usd=usd)

    def take(self, entry: Entry) -> None:
        """Add an entry to the account if it is about the budget or starts a child run; ignore any other entry."""
        match entry.content:
            case BudgetContent(of=of, reserved=dict() as reserved, spent=None):
                self.held[of] = amount(reserved)
            case BudgetContent(of=of, spent=dict() as spent) if of in self.held:
                self._settle(of, spent)
            case EdgeContent(allowance=allowance, child=child):
                self._hand(entry.seq, ChildEdge(child or "", allowance))
            case QuestionContent(raises="tokens" | "usd" as axis):
                self.asked, self.axis = entry.seq, axis
            case AnswerContent(of=of, value=value) if of == self.asked:
                given = amount({self.axis: value})
                self.asked, self.more, self.refused = None, self.more + given, given == Amount()

    def forked(self) -> None:
        """Forget the child runs of the base that a tool call or a hook started: a fork has child runs of its own.

        What they spent stays counted, as far as it was settled.
        """
        for edge in self.children.values():
            self.held.pop(edge, None)
            del self.edges[edge]
        self.children.clear()

    def _hand(self, edge: int, handed: ChildEdge) -> None:
        """Add the `edge` entry with the seq `edge`, and reserve the allowance of the child run that it starts.

        If there is an earlier `edge` entry of the same child run, because a call was tried again, the new one replaces
        it. If the allowance in the earlier entry was settled, none is reserved again.
        """
        before = self.edge_of(handed.child)
        if before is None or self.held.pop(before, None) is not None:
            self.held[edge] = amount(handed.allowance or {})
        if before is not None:
            del self.edges[before]
        self.edges[edge] = handed
        if handed.child:
            self.children[handed.child] = edge

    def _settle(self, of: int, spent: dict[str, Any]) -> None:
        held = self.held.pop(of)
        counted = spent.get("counted") or spent
        self.settled += Amount(int(number(counted.get("tokens"), held.tokens)), number(counted.get("usd"), held.usd))
        self.unpriced += spent.get("usd") is None
        self.requests += of not in self.edges


class Weight(Struct):
    """An estimate of the prompt's size in tokens: the provider's last count, plus the contents added since."""

    known: int = 0
    """Number of prompt tokens when they were last counted or estimated."""
    counted: bool = False
    """Whether a provider counted the tokens in `known`. Such a count includes the instructions and tools."""
    header: RequestHeaderContent | None = None
    """The instructions and tools that the provider counted."""
    since: list[Content] = field(default_factory=list)
    """Contents added to the prompt since `known` was set. The tokens of these contents are estimated when `tokens` is
    read."""

    def take(self, entry: Entry) -> None:
        """Add an entry's content, which later prompts show, to the estimate. The entry's kind must be in `WEIGHED`."""
        kind = entry.content.kind
        if kind is not Kind.Assistant or not entry.causes:
            self.since.append(entry.content)
        if kind is not Kind.ToolResult and len(self.since) >= UNWEIGHED:  # a program's turn has no reply
            self._estimate()

    def reply(self, counts: Tokens | None, content: ChatCompletionContent, header: RequestHeaderContent | None) -> None:
        """Add a completion.

        If the provider counted the tokens of the request and the reply, this count replaces the estimate.

        Args:
            header: the instructions and tools of the request.
        """
        if counts is not None:
            self.known, self.counted, self.header = counts.input + counts.output, True, header
            self.since.clear()
            return
        self.since.append(content)
        if len(self.since) >= UNWEIGHED:
            self._estimate()

    def _estimate(self) -> None:
        """Estimate the tokens of the contents in `since`, and keep the sum in place of them."""
        self.known = self.tokens
        self.since.clear()

    def compact(self, content: CompactionContent) -> None:
        """Subtract from the count the tokens that a compaction left out, and add those of its summary."""
        freed = int(number(content.tokens, 0))
        self.known = max(0, self.tokens - freed + text_tokens(content.summary or ""))
        self.since.clear()

    @property
    def tokens(self) -> int:
        """Estimated tokens of the prompt now."""
        return self.known + sum(map(weigh, self.since))


SHOWN_FIELD = {
    Kind.System: "value",
    Kind.User: "value",
    Kind.Assistant: "value",
    Kind.ChatCompletion: "output",
    Kind.ToolResult: "tool_result",
}
"""For each kind that prompts contain, the field that they show."""
WEIGHED = frozenset(SHOWN_FIELD) - {Kind.ChatCompletion}
"""Kinds of entries that `Weight.take` adds."""


def weigh(content: Content) -> int:
    """Return an estimate of a content's tokens in a prompt."""
    value = getattr(content, SHOWN_FIELD[content.kind])
    parts: list[Part] = getattr(content, "parts", None) or []
    if isinstance(value, str):
        if not parts:
            return text_tokens(value)
        return text_tokens(value) + sum(text_tokens(part.text) if part.text is not None else FILE for part in parts)
    try:
        return len(msgspec.json.encode(value)) // BYTES + 1
    except (TypeError, ValueError, RecursionError):  # without a JSON form, it is shown as another text
        return text_tokens(observation_text(value))


def header_tokens(header: RequestHeaderContent) -> int:
    """Return an estimate of the tokens of the instructions and tools of a request."""
    return len(msgspec.json.encode([header.tools, header.meta], enc_hook=repr)) // BYTES


def text_tokens(text: str) -> int:
    """Return an estimate of the tokens of a text."""
    return (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))) // BYTES + 1


def amount(given: Mapping[str, Any]) -> Amount:
    """Return the amount in a mapping with `tokens` and `usd`. A missing or invalid value counts as 0."""
    return Amount(int(number(given.get("tokens"), 0)), number(given.get("usd"), 0.0))


def number(value: Any, otherwise: float) -> float:
    """Return the value if it is a finite number of at least 0, else `otherwise`."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    return value if fits else otherwise
