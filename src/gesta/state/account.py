"""The cost of a turn is on record: an amount is reserved before each request and settled after it.

A reserved amount that was never settled counts as spent, so no crash hides a request that was paid for. An unknown sum
is null, never 0, and the reserved amount counts in its place. The allowance of a child run is reserved with its edge,
and settled when the child run has ended.
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
)
from gesta.model.usage import Tokens
from gesta.prompt.formatter import observation_text

COSTS = frozenset({Kind.Budget, Kind.Edge, Kind.Question, Kind.Answer})
"""Kinds of entries that `Spending` reads."""
BYTES = 4
"""Number of bytes of text that are estimated as one token."""
UNWEIGHED = 16
"""Greatest number of contents that `Weight` keeps before it estimates their tokens. Most policies never need the
estimate."""
FILE = 1_500
"""Number of tokens that an image or a file is estimated as."""


class Amount(Struct, frozen=True):
    """Tokens and money."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.usd + other.usd)


class Spent(Struct, frozen=True, kw_only=True):
    """The cost of a turn, with the cost of all runs below it."""

    tokens: int
    """Tokens in and out. For a request whose tokens are not known, the reserved tokens count."""
    usd: float | None
    """US dollars; `None` if any price is unknown."""
    counted_usd: float
    """US dollars, with the reserved amount in place of each unknown price; a budget is compared with this sum."""


class ChildEdge(Struct, frozen=True):
    """An edge to a child run, and the amount that this run may spend."""

    child: str
    """Name of the child run of a tool call; empty for a workflow step, which has one edge only."""
    allowance: dict[str, Any] | None


class Spending(Struct):
    """The account of a turn: the amounts that it has spent, and those that are reserved."""

    allowed: dict[str, Any] | None = None
    """Allowance from the parent run: the bounds `tokens` and `usd`, and the amounts to reserve for a request."""
    settled: Amount = Amount()
    held: dict[int, Amount] = field(default_factory=dict)
    """Amounts that are reserved and not settled, by the seq of the request or edge."""
    edges: dict[int, ChildEdge] = field(default_factory=dict)
    """Edges to child runs by their seq; for a call that was tried again, the last edge."""
    children: dict[str, int] = field(default_factory=dict)
    """The edges of tool calls, by the name of their child run."""
    requests: int = 0
    """Number of answered requests that were settled."""
    unpriced: int = 0
    """Number of settled amounts whose price is unknown."""
    more: Amount = Amount()
    """The amount that a person added."""
    asked: int | None = None
    """Seq of the open question whether more may be spent; `None` if no such question is open."""
    axis: str = ""
    """The unit of the question `asked`: `tokens` or `usd`."""
    refused: bool = False
    """Whether a person answered that no more may be spent."""

    @property
    def counted(self) -> Amount:
        """The amount that counts as spent: all settled and all reserved amounts."""
        return sum(self.held.values(), self.settled)

    def edge_of(self, child: str) -> int | None:
        """Return the edge to the child run of a tool call; `None` if no attempt of the call has written one."""
        return self.children.get(child)

    def spent(self, requests: int) -> Spent | None:
        """Return the cost of a turn, given its number of answered requests; `None` if no account was kept."""
        whole, known = self.counted, not (self.held or self.unpriced or requests > self.requests)
        if whole == Amount() and not self.requests:
            return None
        usd = round(whole.usd, 9)
        return Spent(tokens=whole.tokens, usd=usd if known else None, counted_usd=usd)

    def take(self, entry: Entry) -> None:
        """Add one entry."""
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

    def _hand(self, edge: int, handed: ChildEdge) -> None:
        """Add an edge to a child run, and reserve its allowance.

        For a call that is tried again the new edge replaces the old one. An allowance that was settled is not reserved
        again.
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
    """The size of the prompt: the provider's last count, and the contents since then."""

    known: int = 0
    """Number of tokens that were counted or estimated last."""
    counted: bool = False
    """Whether a provider counted `known`. If so, it includes instructions and tools."""
    since: list[Content] = field(default_factory=list)
    """Contents added to the prompt since `known`. Their tokens are estimated when `tokens` is read."""

    def take(self, entry: Entry) -> None:
        """Add an entry of a kind that the prompt shows."""
        if entry.content.kind is not Kind.Assistant or not entry.causes:
            self.since.append(entry.content)

    def reply(self, counts: Tokens | None, content: ChatCompletionContent) -> None:
        """Add a completion, with its input and output tokens if the provider counted them."""
        if counts is not None:
            self.known, self.counted = counts.input + counts.output, True
            self.since.clear()
            return
        self.since.append(content)
        if len(self.since) >= UNWEIGHED:
            self.known = self.tokens
            self.since.clear()

    def compact(self, content: CompactionContent) -> None:
        """Subtract the tokens that a compaction left out, and add those of its summary."""
        freed = int(number(content.tokens, 0))
        self.known = max(0, self.tokens - freed + text_tokens(content.summary or ""))
        self.since.clear()

    @property
    def tokens(self) -> int:
        """Tokens of the prompt as it is now."""
        return self.known + sum(map(weigh, self.since))


SHOWN_FIELD = {
    Kind.System: "value",
    Kind.User: "value",
    Kind.Assistant: "value",
    Kind.ChatCompletion: "output",
    Kind.ToolResult: "tool_result",
}
"""For each kind, the field that a prompt shows."""
WEIGHED = frozenset(SHOWN_FIELD) - {Kind.ChatCompletion}
"""Kinds of entries that `Weight.take` adds."""


def weigh(content: Content) -> int:
    """Return an estimate of the tokens of a content that a prompt shows."""
    value = getattr(content, SHOWN_FIELD[content.kind])
    parts: list[Part] = getattr(content, "parts", None) or []
    if isinstance(value, str):
        if not parts:
            return text_tokens(value)
        return text_tokens(value) + sum(text_tokens(part.text) if part.text is not None else FILE for part in parts)
    try:
        return len(msgspec.json.encode(value)) // BYTES + 1
    except (TypeError, ValueError, RecursionError):  # what has no JSON form is shown in another way
        return text_tokens(observation_text(value))


def text_tokens(text: str) -> int:
    """Return an estimate of the tokens of a text."""
    return (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))) // BYTES + 1


def amount(given: Mapping[str, Any]) -> Amount:
    """Return the amount that a mapping with `tokens` and `usd` holds."""
    return Amount(int(number(given.get("tokens"), 0)), number(given.get("usd"), 0.0))


def number(value: Any, otherwise: float) -> float:
    """Return a value if it is a number of at least 0, else `otherwise`."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    return value if fits else otherwise
