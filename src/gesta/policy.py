"""What an agent may do, how often and how long: data, carried out by `decide` and `perform`."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from gesta.errors import nearest

DoubtPolicy = Literal["ask", "tell"]


class Spelled(msgspec.StructMeta):
    """Names the nearest field when a keyword is misspelt."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make one. Raises TypeError, as any call with a wrong keyword does."""
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

    def wait_s(self, failed: int, asked_s: float | None = None) -> float:
        """Give the pause after `failed` tries in a row, from 1; what the provider asked for, if that is longer."""
        wait = min(self.first_wait_s * self.factor ** (failed - 1), self.max_wait_s)
        return max(wait, min(asked_s or 0.0, self.max_wait_s))


class Policy(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """All of an agent's rules."""

    limits: Limits = Limits()
    retry: Retry = Retry()
    parallel: int = 8
    """Tool calls of one reply that run at once; 1 for tools whose order matters."""
    attempts: int = 3
    """Attempts of one call that may be lost or come to nothing before it is closed."""
    when_busy: Literal["raise", "queue"] = "raise"
    """What a message does that comes while another turn is open: an error, or it waits until that has ended."""
    tool_timeout_s: float | None = 300.0
    """Bound on one attempt of a tool that names none itself; none for no bound."""
