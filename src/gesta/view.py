"""A view is a fold over entries: `start` gives the empty state, `apply` takes one entry in.

Whatever is known about a run is such a fold, so it can be thrown away and computed again, by anybody who has the
entries. fold(a + b) = fold(b, fold(a)). A state belongs to its fold: `apply` may change it in place and returns it.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from gesta.entry import Entry

S = TypeVar("S")


class View(Protocol[S]):
    """A fold over entries."""

    def start(self) -> S:
        """Make the state of no entries."""

    def apply(self, state: S, entry: Entry) -> S:
        """Take one entry in. Total: no entry raises."""


def fold(view: View[S], entries: Iterable[Entry], state: S | None = None) -> S:
    """Take entries in, from the start or from where `state` stands."""
    state = view.start() if state is None else state
    for entry in entries:
        state = view.apply(state, entry)
    return state
