"""Sends the result of an attempt after the turn has stopped waiting for it, as a letter to the inbox of the run.

An attempt is one execution of a tool call. A content is the data of an entry or letter. A fault is an entry about an
attempt that failed or did not begin. A letter waits in the inbox until the process that holds the run turns it into an
entry. The letter's key names the attempt by its number and by its idempotency key. The number is not enough: a run that
was pruned (removed) and begun anew uses the same numbers.
"""

from typing import get_args

from msgspec.structs import replace

from gesta.codec.rows import decode_content, encode_content
from gesta.entry import Entry
from gesta.errors import GestaError
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    AttemptContent,
    CompactionContent,
    Content,
    Error,
    FaultContent,
    KeyValueContent,
    ResolutionContent,
    SignalContent,
    SystemContent,
    ToolResultContent,
    UserContent,
)
from gesta.log.journal import read
from gesta.log.steering import own_fields
from gesta.state.calls import UNSTARTED, OpenCall
from gesta.store import Letter, Store

LATE = "late-"
"""Prefix of the keys of these letters."""
Sayable = (
    AnswerContent
    | ApprovalContent
    | CompactionContent
    | KeyValueContent
    | ResolutionContent
    | SignalContent
    | SystemContent
    | UserContent
)
SAYABLE = get_args(Sayable)
"""Types of content that a person or the application may send to an inbox. Others are only written by the run itself."""
STRAY = "gesta.stray"
"""Key of the key-value entry that is written for a letter that fits no attempt of the run."""


def late(run: str, attempt: int, key: str | None, content: Content) -> Letter:
    """Return a letter that contains the result of an attempt, or a fault about it.

    Args:
        run: id of the run.
        attempt: seq of the attempt.
        key: idempotency key of the attempt.
        content: the result or the fault.
    """
    return Letter(run, f"{LATE}{attempt}-{(key or '')[:16]}", encode_content(content))


async def send(letter: Letter, store: Store) -> None:
    """Send the letter of an attempt to the run's inbox. Raises WriteFailed if that fails.

    A letter that says that the attempt did not begin is sent only if the attempt is on record.
    """
    content = decode_content(letter.content, {})
    unbegun = isinstance(content, FaultContent) and content.error.type == UNSTARTED
    if not unbegun or await attempt_of(letter, store) is not None:
        await store.send(letter)


async def send_all(letters: list[Letter], run: str, store: Store) -> None:
    """Send letters to their runs' inboxes, those of `run` first, until one cannot be sent. Remove those that were sent.

    Args:
        letters: the letters of attempts, see `late`. The list may grow meanwhile.
    """
    for letter in sorted(letters, key=lambda each: each.run != run):
        try:
            await send(letter, store)
        except GestaError:
            return
        if letter in letters:
            letters.remove(letter)


async def attempt_of(letter: Letter, store: Store) -> Entry | None:
    """Return the entry of the attempt that a letter is about; `None` if no such entry exists.

    Cost: reads one row.
    """
    seq, _, key = letter.key.removeprefix(LATE).partition("-")
    if not letter.key.startswith(LATE) or not seq.isdecimal():
        return None
    for entry in await read(store, letter.run, int(seq) - 1, int(seq)):
        if isinstance(entry.content, AttemptContent) and (entry.content.key or "").startswith(key):
            return entry
    return None


def placed(content: Content, attempt: Entry | None, calls: dict[int, OpenCall]) -> Content:
    """Return the content of the entry that a letter becomes. If the call already has a result, mark this one as late.

    For a letter that fits no call or attempt of the run, return a key-value entry that says so.

    Args:
        content: content of the letter.
        attempt: the attempt that the letter is about, see `attempt_of`.
        calls: the calls of the run that have no result, by seq.
    """
    moves = isinstance(content, SignalContent) and content.name == "moved"
    if isinstance(content, Sayable) and not moves:
        if not (own := own_fields(content)):
            return content
        return KeyValueContent(key=STRAY, value=f"a letter with a {content.kind} whose {own[0]!r} the run fills in")
    tried = attempt.content if attempt is not None else None
    if isinstance(tried, AttemptContent) and attempt is not None:
        if isinstance(content, FaultContent) and content.of == attempt.seq:
            return content
        if isinstance(content, ToolResultContent) and content.call == tried.of:
            last = calls[tried.of].last if tried.of in calls else None
            if last is not None and last.seq != attempt.seq and content.outcome == "error":
                why = content.error or Error(type="error", message=str(content.tool_result))
                return FaultContent(of=attempt.seq, error=why, over=True)  # a later attempt may have had the effect
            return content if tried.of in calls else replace(content, outcome="late")
    return KeyValueContent(key=STRAY, value=f"a letter with a {content.kind} that belongs to no attempt of this run")
