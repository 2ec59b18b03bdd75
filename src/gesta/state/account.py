"""What a turn spends is on record: set aside before, settled after, and what nobody settled counts as spent.

So no crash hides a request that was paid for. A sum that nobody knows is null, never 0: it counts as what was set aside
for it. What a child run may spend is set aside on its edge, and what it spent comes back with its end.
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
"""Kinds that `Spending` is a fold of."""
BYTES = 4
"""Of a text to a token, where no provider has counted it yet."""
UNWEIGHED = 16
"""Contents that `Weight` keeps at most until somebody asks what they weigh: most policies never do."""
FILE = 1_500
"""Tokens that an image or a file is taken for."""


class Amount(Struct, frozen=True):
    """Tokens and money."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.usd + other.usd)


class Spent(Struct, frozen=True, kw_only=True):
    """The cost of a turn, with the cost of all runs below it."""

    tokens: int
    """In and out; where nobody counted them, those set aside."""
    usd: float | None
    """None where the price of anything is unknown."""
    counted_usd: float
    """The same, with what was set aside in place of what is unknown: what a budget goes by."""


class ChildEdge(Struct, frozen=True):
    """An edge to a child run, and what that may spend."""

    child: str
    """Name of the run; empty for a step, which has one edge only."""
    allowance: dict[str, Any] | None


class Spending(Struct):
    """The account of a turn: what it has spent, and what is reserved."""

    allowed: dict[str, Any] | None = None
    """By the run above: `tokens` and `usd` where it bounds them, and what it sets aside for a request."""
    settled: Amount = Amount()
    held: dict[int, Amount] = field(default_factory=dict)
    """Set aside and not settled, by request or edge."""
    edges: dict[int, ChildEdge] = field(default_factory=dict)
    """Of a call that was tried again, the last one."""
    children: dict[str, int] = field(default_factory=dict)
    """The edges of tool calls, by the name of their child run."""
    requests: int = 0
    """Answered requests that were settled."""
    unpriced: int = 0
    """Settled sums of money that nobody knows."""
    more: Amount = Amount()
    """What a person added."""
    asked: int | None = None
    """The question whether more may be spent, while nobody has answered it."""
    axis: str = ""
    """What that is about: tokens or usd."""
    refused: bool = False
    """Whether the answer was no."""

    @property
    def counted(self) -> Amount:
        """All that counts as spent: settled amounts and reserved ones."""
        return sum(self.held.values(), self.settled)

    def edge_of(self, child: str) -> int | None:
        """Return the edge of a tool call to the child run that an earlier attempt called."""
        return self.children.get(child)

    def spent(self, requests: int) -> Spent | None:
        """Return what a turn spent, given its number of answered requests; `None` if no account was kept."""
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
        """Reserve an allowance: once for a call that is tried again, and not after its child run returned it."""
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
    """How large the prompt is: as the provider last counted it, and what came since."""

    known: int = 0
    """Tokens."""
    counted: bool = False
    """Whether a provider counted those, so that instructions and tools are among them."""
    since: list[Content] = field(default_factory=list)
    """What the next prompt shows beside; weighed only where somebody asks."""

    def take(self, entry: Entry) -> None:
        """Add one entry of a kind that a model is shown."""
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
        """Subtract what a compaction left out, and add its summary."""
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
"""What a prompt shows of each kind."""
WEIGHED = frozenset(SHOWN_FIELD) - {Kind.ChatCompletion}
"""Those of them that `Weight` takes in by themselves."""


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
    """Return the amount that a member of an entry holds."""
    return Amount(int(number(given.get("tokens"), 0)), number(given.get("usd"), 0.0))


def number(value: Any, otherwise: float) -> float:
    """Return a value if it is a number of at least 0, else `otherwise`."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    return value if fits else otherwise
