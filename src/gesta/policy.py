"""What an agent may do, how often and how long: data, carried out by `decide` and `perform`."""

import math
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import Struct

from gesta.errors import AgentError, nearest

DoubtPolicy = Literal["ask", "tell"]


class Spelled(msgspec.StructMeta):
    """Metaclass of the rules: its error for a misspelt keyword names the nearest field."""

    if not TYPE_CHECKING:  # checkers read the fields themselves

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Make an instance. Raises TypeError for a keyword that is no field."""
            fields = self.__struct_fields__
            for name in kwargs:
                if name not in fields:
                    raise TypeError(
                        f"{self.__name__} has no field {name!r}.{nearest(name, fields)} It has: {', '.join(fields)}."
                    )
            return super().__call__(*args, **kwargs)


class Limits(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """Bounds of one turn; the turn ends with reason `limit` and the name of the bound."""

    requests: int | None = 50
    """Answers of the model; tries that failed or were lost do not count."""
    calls: int | None = 500
    """Tool calls."""
    depth: int = 8
    """Runs above a child run, at most: agents may call agents this deep."""


class Retry(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """How a model that did not answer is asked again: the same body, each time its own `request`."""

    tries: int = 4
    """Tries that may fail in a row before the turn fails; tries lost to a crash do not count."""
    first_wait_s: float = 0.5
    factor: float = 2.0
    """Each wait is this many times the one before."""
    max_wait_s: float = 30.0
    empty: int = 1
    """How often a reply without text and calls is asked for again before the turn fails."""
    corrections: int = 2
    """How often a model is told that its answer is not of the agent's `output` before the turn fails."""

    def wait_s(self, failed: int, asked_s: float | None = None) -> float:
        """Return the pause after `failed` tries in a row, from 1; the provider's own wish, if that is longer."""
        wait = min(self.first_wait_s * self.factor ** (failed - 1), self.max_wait_s)
        return max(wait, min(asked_s or 0.0, self.max_wait_s))


class Budget(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """Bounds of what one turn may cost, with all that runs below it cost; without a bound, costs are only recorded.

    The cost of a request is reserved before it and settled after it: what a crash or a lost reply left unsettled
    counts as spent.
    """

    usd: float | None = None
    """US dollars."""
    tokens: int | None = None
    """Tokens in and out."""
    request_usd: float = 0.10
    """Set aside for a request whose price nobody knows; it counts as spent in full."""
    request_tokens: int = 16_000
    """Set aside for a reply whose length no setting such as `max_tokens` bounds."""
    when_spent: Literal["stop", "ask"] = "stop"
    """The turn ends with reason `budget`, or waits for a person to say how much more it may cost."""

    def __post_init__(self) -> None:
        """Refuse values that are no bounds. Raises AgentError."""
        for name in ("usd", "tokens", "request_usd", "request_tokens"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise AgentError(f"Budget({name}={value!r}): expected a number from 0 on.")


class Price(Protocol):
    """The price of one model's tokens."""

    @property
    def dated(self) -> str:
        """Name and edition of the price list; it stands on the record beside each sum."""

    def usd(self, usage: dict[str, Any]) -> float | None:
        """Return the price in US dollars of a usage as the provider counts it; `None` if it is unknown. Total."""


class Compact(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """How a prompt that has grown too large is made smaller: what a model is no longer shown stays on record.

    Each is a `compaction` on record, and no call is parted from its result: first old results of tools are left out
    and their calls stay, then old turns are, whole. What frees less than a tenth of `at_tokens` is left alone.
    """

    at_tokens: int
    """Size of the next prompt above which that is done: what the provider counted last, and a guess of what is new."""
    keep_turns: int = 3
    """Turns before the open one that stay."""
    keep_results: int = 5
    """Results that stay, the last ones; those that no reply has seen yet stay anyway."""
    results_over: int | None = 500
    """Size of a result, in bytes as sent, above which it may be left out; `None` to leave all results in."""
    by: Any = None
    """An agent that sums up the turns that are left out, see `gesta.patterns.summariser`; `None` for no summary."""

    def __post_init__(self) -> None:
        """Refuse negative numbers. Raises AgentError."""
        for name in ("at_tokens", "keep_turns", "keep_results", "results_over"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise AgentError(f"Compact({name}={value!r}): expected a number from 0 on.")


class Policy(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """All of an agent's rules."""

    limits: Limits = Limits()
    retry: Retry = Retry()
    budget: Budget | None = None
    """What a turn may cost; `None` to keep no account."""
    compact: Compact | None = None
    """What is done about a prompt that has grown too large; `None` to do nothing."""
    parallel: int = 8
    """Tool calls of one reply that run at once; 1 for tools whose order matters."""
    attempts: int = 3
    """Attempts of one call that may be lost or come to nothing before it is given up."""
    deaths: int = 5
    """Processes in a row that may die in a turn without any progress before a person has to resume it."""
    when_busy: Literal["queue", "replace", "raise"] = "queue"
    """What a message does that finds an open turn. `queue` drives that turn on first, and waits behind it where it
    waits for somebody; `replace` ends that turn `cancelled`; `raise` raises TurnOpen or RunHeld."""
    when_left: Literal["go-on", "stop"] = "go-on"
    """What a turn that was begun by `record.stream` does when its reader leaves."""
    tool_timeout_s: float | None = 300.0
    """Timeout of one attempt of a tool that names no timeout itself, in seconds; `None` for no timeout."""
