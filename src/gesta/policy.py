"""The rules of an agent: its limits, retries, budget and timeouts, which `decide` and `perform` carry out.

A turn is what an agent does from one message to its answer. A run is the sequence of its turns, and a child run is the
run of an agent that it calls. An attempt is one execution of a tool for a call. The record is the store of all runs.
"""

import math
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from gesta.errors import AgentError, nearest

ELSEWHERE = {
    "system_prompt": "`instructions`",
    "prompt": "`instructions`",
    "result_type": "`output`",
    "output_type": "`output`",
    "handoffs": "`tools=[other.as_tool()]`",
    "limits": "`policy=Policy(limits=...)`",
    "usage_limits": "`policy=Policy(limits=...)`",
    "retries": "`policy=Policy(retry=...)`",
    "deps_type": "the annotation `Context[Deps]` of a tool",
    "input_guardrails": "`hooks=Hooks(message=...)`",
    "output_guardrails": "`hooks=Hooks(answer=...)`",
    "model_settings": "`settings`",
}
"""Names of agent fields in other libraries, each with what to write in Gesta instead."""


class Spelled(msgspec.StructMeta):
    """Metaclass for a better error: a misspelt keyword raises TypeError with the name of the most similar field."""

    if not TYPE_CHECKING:  # checkers read the fields themselves

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Return a new instance. Raises TypeError for a keyword that is not a field."""
            fields = self.__struct_fields__
            for name in kwargs:
                if name not in fields:
                    here = f" That is {ELSEWHERE[name]} here." if name in ELSEWHERE else nearest(name, fields)
                    raise TypeError(f"{self.__name__} has no field {name!r}.{here} It has: {', '.join(fields)}.")
            return super().__call__(*args, **kwargs)


FROM_ONE = ("parallel", "attempts", "deaths")
"""Numbers that are at least 1."""
ENDLESS = ("requests", "calls", "depth", "tries", "empty", "corrections", "attempts", "deaths", "tool_timeout_s")
"""Numbers that may be infinite."""


class Rules(Struct, frozen=True, metaclass=Spelled):
    """The base class of rules, which checks each value when the rules are made."""

    def __post_init__(self) -> None:
        """Raise AgentError for a value that a rule cannot have, such as a negative number or an unknown word."""
        kinds_of: dict[str, Any] = type(self).__annotations__
        for name, kind in kinds_of.items():
            value = getattr(self, name)
            kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
            if kind is Any or (value is None and NoneType in kinds):
                continue
            if get_origin(kind) is Literal:
                known = get_args(kind)
                fits = value in known
                expected = f"one of {', '.join(map(repr, known))}"
            elif int in kinds or float in kinds:
                fits, expected = _number(name, value, whole=int in kinds)
                if fits and int in kinds and isinstance(value, float) and value < math.inf:
                    force_setattr(self, name, int(value))  # 1e6 tokens are 1,000,000 tokens
            else:
                fits, expected = isinstance(value, kinds), f"gesta.policy.{kinds[0].__name__}(...)"
            if not fits:
                none = ", or None" * (NoneType in kinds)
                raise AgentError(f"{type(self).__name__}({name}={value!r:.60}): expected {expected}{none}.")


def _number(name: str, value: Any, *, whole: bool) -> tuple[bool, str]:
    """Return whether a value is a number that the rule `name` can have, and a description of such numbers.

    Args:
        whole: whether the number must be whole.
    """
    least, timeout = 1 if name in FROM_ONE else 0, name == "tool_timeout_s"
    expected = "seconds above 0" if timeout else f"a {'whole ' * whole}number from {least} on"
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:  # NaN is not at least 0
        return False, expected
    if value == math.inf:
        return name in ENDLESS, expected
    return (not timeout or value > 0) and (not whole or value == int(value)), expected


class Limits(Rules, frozen=True, kw_only=True):
    """Bounds of one turn.

    A turn that reaches a bound ends with reason `limit`, and the error of the turn names the bound.
    """

    requests: int | None = 50
    """Greatest number of replies of the model. Requests that failed or were lost are not counted."""
    calls: int | None = 500
    """Greatest number of tool calls."""
    depth: int = 8
    """Greatest number of runs above a child run: how deeply agents may call agents."""


class Retry(Rules, frozen=True, kw_only=True):
    """The rules for repeating a request that got no reply.

    Each try sends the same body, and each try is stored as a `request` entry of its own.
    """

    tries: int = 4
    """Number of tries in a row that may fail before the turn fails. Tries lost to a crash are not counted."""
    first_wait_s: float = 0.5
    factor: float = 2.0
    """Each wait is this many times as long as the previous wait."""
    max_wait_s: float = 30.0
    empty: int = 1
    """How often the model is asked again after a reply without text and calls, before the turn fails."""
    corrections: int = 2
    """How often the model is told that its answer does not fit the agent's `output`, before the turn fails."""

    def wait_s(self, failed: int, asked_s: float | None = None) -> float:
        """Return the seconds to wait before the next try: by this rule, or as the provider asked if that is longer.

        Args:
            failed: number of failed tries in a row, from 1.
            asked_s: wait in seconds that the provider asked for. The result is never above `max_wait_s`.
        """
        try:
            wait = min(self.first_wait_s * self.factor ** (failed - 1), self.max_wait_s)
        except OverflowError:  # after some 1,000 tries
            wait = self.max_wait_s
        return max(wait, min(asked_s or 0.0, self.max_wait_s))


class Budget(Rules, frozen=True, kw_only=True):
    """Bounds of the cost of one turn, including its child runs at any depth. Without a bound, costs are only recorded.

    The cost of a request is reserved before the request and settled (replaced by the real cost) after it. A reserved
    amount that was never settled, because of a crash or a lost reply, is added to the costs.
    """

    usd: float | None = None
    """US dollars."""
    tokens: int | None = None
    """Tokens of prompts and replies together."""
    request_usd: float = 0.10
    """US dollars that are reserved for a request whose price is unknown. The full amount is added to the costs."""
    request_tokens: int = 16_000
    """Tokens that are reserved for a reply if no setting such as `max_tokens` limits its length."""
    when_spent: Literal["stop", "ask"] = "stop"
    """`stop`: the turn ends with reason `budget`. `ask`: it waits until a person says how much more it may cost."""


class Price(Protocol):
    """The interface of an object that knows the prices of one model's tokens."""

    @property
    def dated(self) -> str:
        """Name and edition of the price list. The record stores it beside each sum."""

    def usd(self, usage: dict[str, Any]) -> float | None:
        """Return the price of a reply in US dollars; `None` if it is unknown. Never raises.

        Args:
            usage: the usage in the provider's form.
        """


class Compact(Rules, frozen=True, kw_only=True):
    """The rules for leaving old entries out of a prompt that has become too large.

    First, old results of tools are left out, while their calls stay. If that is not enough, whole old turns are left
    out. Nothing is left out that would free less than a tenth of `at_tokens`. Each time that something is left out, a
    `compaction` entry is written. The entries that the model no longer reads stay on record.
    """

    at_tokens: int
    """Prompt size, in tokens, above which it is made smaller. The size is the provider's last count, plus an estimate
    for later messages."""
    keep_turns: int = 3
    """Number of turns before the open turn that stay in the prompt."""
    keep_results: int = 5
    """Number of the newest results that stay in the prompt. Results that the model has not read yet stay too."""
    results_over: int | None = 500
    """Size in bytes, as sent, above which a result may be left out; `None` to keep all results."""
    by: Any = None
    """An agent that sums up the turns that are left out, see `gesta.patterns.summariser`; `None` for no summary."""


class Policy(Rules, frozen=True, kw_only=True):
    """The rules of an agent: limits, retries, budget, compaction, timeouts."""

    limits: Limits = Limits()
    retry: Retry = Retry()
    budget: Budget | None = None
    """The budget of a turn; `None` to keep no account of its costs."""
    compact: Compact | None = None
    """The rules for a prompt that has grown too large; `None` to never make it smaller."""
    parallel: int = 8
    """Number of tool calls of one reply that run at once. With 1, they run in their order: while a call waits, for
    example for an approval, no later call runs."""
    attempts: int = 3
    """Number of attempts of one call that may end without a result. After that no further attempt is made."""
    deaths: int = 5
    """Number of processes that may die one after another in a turn that makes no progress. After that the turn waits
    until a person resumes it."""
    when_busy: Literal["queue", "replace", "raise"] = "queue"
    """What happens to a message for a run with an open turn. `queue`: the open turn is continued first; if it waits for
    somebody, so does the message. `replace`: the open turn ends `cancelled`. `raise`: TurnOpen or RunHeld is raised."""
    when_left: Literal["go-on", "stop"] = "go-on"
    """Whether a turn started by `record.stream` continues or stops when its reader leaves."""
    tool_timeout_s: float | None = 300.0
    """Seconds after which an attempt is stopped, for tools that set no timeout themselves; `None` for no timeout."""


AGENT_FIELDS: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("name", "state"), (str, "a text")),
    **dict.fromkeys(("hint", "catalog"), (str | None, "a text, or None")),
    **dict.fromkeys(("settings", "meta"), (dict, "a dict")),
    "groups": (tuple | list | None, "a list of names, or None"),
    "fallbacks": (tuple | list, "a list of models"),
    "program": (Callable | None, "an async function, or None"),
    "repair": (bool | Callable, "True, False, or a function that repairs a text"),
    "policy": (Policy, "gesta.Policy(limits=gesta.Limits(requests=20)) or the like"),
}
"""The types of an agent's fields, each in words for people."""
