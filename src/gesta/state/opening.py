"""The message or task that opens a turn, and what is checked before the turn begins.

A turn is what an agent does from one message to its answer. A child run is a run that an agent's call of another agent
started. A letter is a message, approval or cancellation in the inbox of a run.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import anyio
from msgspec import Struct

from gesta.codec.rows import encode_content
from gesta.entry import Cause
from gesta.errors import AgentError, OtherMessage, OtherProgram, RunMirrored
from gesta.hooks import CallHook
from gesta.kinds import EndContent, Error, Forked, SystemContent, UserContent
from gesta.log.journal import Journal, letters
from gesta.state.run import RunState
from gesta.state.turn import Turn
from gesta.store import Letter, Store
from gesta.text.redactor import SECRETS
from gesta.text.tracing import TraceContext


class Opening(Struct, frozen=True, kw_only=True):
    """What is needed to open a turn: the message or task, the run, the session and the options of the caller."""

    name: str
    """Name of the run that the turn belongs to."""
    run: str = ""
    """Id of the run; empty if it has to be computed from the names."""
    thread: bool = False
    """Whether the run is a child run with several turns, one after the other."""
    session: str
    content: UserContent | SystemContent | None = None
    """The message or task; `None` for a turn that is opened without a text, by a program."""
    key: str | None = None
    """Key of the message or task. A message that is sent again with the same key opens no second turn."""
    parent_run: str | None = None
    causes: tuple[Cause, ...] = ()
    allowance: dict[str, Any] | None = None
    """The amount that the run above allows the turn to spend."""
    base: Forked | None = None
    """For a child run of a fork: the child run of the same name below the fork's base. Results of its calls are used
    again."""
    depth: int = 0
    """Number of runs above this run."""
    doubts: list[str] | None = None
    """Names of tools that the parent run called with unknown outcome."""
    by: str | None = None
    """Name of the person who resumes the run above, and with it this run, even if too many processes died in it."""
    begun: Callable[[int], None] = lambda _: None
    """Is called with the seq of the turn's `begin` entry, once the entry is written or found."""
    joins: bool = False
    """Whether the caller wants to wait for the turn of this message if another process is running it. Then
    `Policy.when_busy` is ignored."""
    letter: Letter | None = None
    """The letter in which the message waited in the inbox while another turn was open."""
    deps: Any = None
    """Objects from the user's program for the tools of the turn, such as a database connection. They are never
    recorded."""
    trace: TraceContext | None = None
    """For a child run: the trace span of the turn above it."""
    guards: tuple[CallHook, ...] = ()
    """For a child run: the `call` hooks of the agents above it."""


MESSAGE, UNNAMED = "message:", "message?"
"""How the key of a letter with a message begins: `MESSAGE` and the message's own key, or `UNNAMED` and a random key."""


def is_message(letter: Letter) -> bool:
    """Return whether a letter holds a message. A message stays in the inbox while a turn is open."""
    return letter.key.startswith((MESSAGE, UNNAMED))


def message_key(letter: Letter) -> str | None:
    """Return the key of the message in a letter; `None` if the message has no key."""
    return letter.key.removeprefix(MESSAGE) if letter.key.startswith(MESSAGE) else None


def shielded() -> AbstractContextManager[Any]:
    """Return a context manager that shields its block from cancellation. Without an event loop it does nothing."""
    try:
        return anyio.CancelScope(shield=True)
    except anyio.NoEventLoopError:
        return nullcontext()


def close_orphans(journal: Journal, state: RunState) -> None:
    """Write an `end` entry for each span that a process left open when it died.

    An open turn stays open, because it will be continued.
    """
    for span in sorted(state.spans):
        error = Error(type="orphaned", message="its writer ended without closing it")
        journal.write(EndContent(status="error", error=error), span)


def check_here(run: str, state: RunState, store: Store) -> None:
    """Raise RunMirrored if the run was moved to another record. Only that record may continue the run."""
    if state.moved not in ("", store.info.id):
        raise RunMirrored(run, state.moved, moved=True)


async def queue_message(store: Store, run: str, opening: Opening, content: UserContent) -> None:
    """Send the message of `opening` to the inbox of a run, where it waits for the open turn.

    Raises OtherMessage if a message that waits there has the same key and is another one.
    """
    key = MESSAGE + opening.key if opening.key is not None else UNNAMED + os.urandom(8).hex()
    if not await store.send(Letter(run, key, encode_content(content))):
        for letter, known in await letters(store, run):
            if letter.key == key and isinstance(known, UserContent):
                queued = Turn(0, key, opening.name, question=1, task=known.value, parts=len(known.parts or ()))
                check_same(run, opening, queued)


def check_same(run: str, opening: Opening, known: Turn) -> None:
    """Check that a message whose key was used before is the same message again.

    Raises OtherMessage if it is another message, or OtherProgram if the run is a child run.

    Args:
        known: the turn that was opened with this key.
    """
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


def refuse_names(names: Mapping[str, Any]) -> None:
    """Raise AgentError for an option of a message that is neither a text nor `None`, an empty name, or a key alone.

    A key without a session would never be found again, because each message without a session begins a new one.
    """
    for name, value in names.items():
        if value is not None and not isinstance(value, str):
            raise AgentError(f"{name}={value!r:.60}: expected a text, such as {name}={str(value)!r:.60}.")
    for name in ("session", "key"):
        if names.get(name) == "":
            raise AgentError(f"{name}='' is empty, expected a name. Leave {name} out to have none.")
    if names.get("key") is not None and names.get("session") is None:
        found = f"key={names['key']!r:.60} without a session: a message without a session begins a new one"
        raise AgentError(f"{found}, where no key is known. Name the session too.")
