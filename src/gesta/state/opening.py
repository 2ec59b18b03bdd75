"""The message or task that opens a turn, and the checks before a turn begins."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import anyio
from msgspec import Struct

from gesta.entry import Cause
from gesta.errors import OtherMessage, OtherProgram, RunMirrored
from gesta.kinds import EndContent, Error, Forked, SystemContent, UserContent
from gesta.log.journal import Journal
from gesta.state.run import RunState
from gesta.state.turn import Turn
from gesta.store import Letter, Store
from gesta.text.redactor import SECRETS
from gesta.text.tracing import TraceContext


class Opening(Struct, frozen=True, kw_only=True):
    """The message or task that opens a turn."""

    name: str
    """Name of the run."""
    run: str = ""
    """Id of the run, if it is known."""
    thread: bool = False
    """Whether the run is a child run that takes several turns, one after the other."""
    session: str
    content: UserContent | SystemContent | None = None
    """The message or task; `None` for a turn whose program needs neither."""
    key: str | None = None
    """Key of the message or task: sending it again under the same key opens no second turn."""
    parent_run: str | None = None
    causes: tuple[Cause, ...] = ()
    allowance: dict[str, Any] | None = None
    """The amount that the run above allows the turn to spend."""
    base: Forked | None = None
    """For a child run of a fork: the base whose results its calls get."""
    depth: int = 0
    """Number of runs above this run."""
    doubts: list[str] | None = None
    """Names of tools with a call of unknown outcome in the run above."""
    by: str | None = None
    """The person who resumes the run above, and with it this run, also after too many processes died in it."""
    begun: Callable[[int], None] = lambda _: None
    """A function that is called with the seq of the turn's begin, once it is written or found."""
    joins: bool = False
    """Whether to wait for the message's own turn if another process runs it, whatever `when_busy` says."""
    letter: Letter | None = None
    """The letter that held the message while another turn was open."""
    deps: Any = None
    """Deps for the tools of the turn; they are never on record."""
    trace: TraceContext | None = None
    """For a child run: the span of the turn above, in whose trace the turn is."""


MESSAGE, UNNAMED = "message:", "message?"
"""Prefix of the key of a letter with a message: before the message's own key, or else before a random key."""


def is_message(letter: Letter) -> bool:
    """Return whether a letter holds a message, which waits until no turn is open."""
    return letter.key.startswith((MESSAGE, UNNAMED))


def message_key(letter: Letter) -> str | None:
    """Return the key of the message in a letter."""
    return letter.key.removeprefix(MESSAGE) if letter.key.startswith(MESSAGE) else None


def shielded() -> AbstractContextManager[Any]:
    """Return a block that a cancellation of the task does not interrupt. Without an event loop it does nothing."""
    try:
        return anyio.CancelScope(shield=True)
    except anyio.NoEventLoopError:
        return nullcontext()


def close_orphans(journal: Journal, state: RunState) -> None:
    """Close the spans that a dead process left open. An open turn stays open, because somebody continues it."""
    for span in sorted(state.spans):
        error = Error(type="orphaned", message="its writer ended without closing it")
        journal.write(EndContent(status="error", error=error), span)


def check_here(run: str, state: RunState, store: Store) -> None:
    """Raise RunMirrored for a run that is continued in another record."""
    if state.moved not in ("", store.info.id):
        raise RunMirrored(run, state.moved, moved=True)


def check_same(run: str, opening: Opening, known: Turn) -> None:
    """Check that a key comes with the same message as before. Raises OtherProgram, OtherMessage."""
    if opening.content is None or not known.question:  # its message is not on record
        return
    asked, parts = SECRETS.text(opening.content.value), len(opening.content.parts or ())
    if known.task == asked and known.parts == parts:
        return
    if opening.parent_run is not None:
        found = f"it was asked {known.task!r:.200} before"
        raise OtherProgram(opening.name, found, f"the same, got {asked!r:.200}")
    before = f"{known.task} [{known.parts} parts]" if known.parts != parts else known.task
    now = f"{asked} [{parts} parts]" if known.parts != parts else asked
    raise OtherMessage(run, str(opening.key), before, now)
