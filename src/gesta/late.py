"""What came of an attempt after nobody waited for it any more comes by letter, and counts for that attempt alone.

The key of the letter names the attempt and the beginning of its idempotency key. Both are needed: a run that was pruned
and begun anew has the same id, and its entries the same numbers.
"""

from msgspec.structs import replace

from gesta.codec import encode_content
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    Content,
    FaultContent,
    KeyValueContent,
    ResolutionContent,
    SignalContent,
    ToolResultContent,
    UserContent,
)
from gesta.pending import Pending
from gesta.store import Letter

LATE = "late-"
SAYABLE = (AnswerContent, ApprovalContent, KeyValueContent, ResolutionContent, SignalContent, UserContent)
"""What anybody may put into an inbox; what the run itself does is written by its holder alone."""
STRAY = "gesta.stray"
"""Name under which stands on record what belongs to no attempt of the run."""


def late(run: str, attempt: int, key: str | None, content: Content) -> Letter:
    """Return the letter that brings what came of an attempt.

    Args:
        attempt: seq of the attempt.
        key: its idempotency key.
        content: a result or a fault.
    """
    return Letter(run, f"{LATE}{attempt}-{(key or '')[:16]}", encode_content(content, None))


def placed(letter: Letter, content: Content, calls: dict[int, Pending]) -> Content:
    """Return the content of a letter as it is written down: a result that comes too late says so.

    Args:
        calls: those of the run that have no result, by seq.
    """
    if isinstance(content, SAYABLE) and not (isinstance(content, SignalContent) and content.name == "moved"):
        return content
    if not isinstance(content, ToolResultContent | FaultContent):
        return KeyValueContent(key=STRAY, value=f"a letter with a {content.kind}, which nobody may send")
    stray = not (letter.key.startswith(LATE) and _fits(letter, content, calls))
    if stray and isinstance(content, FaultContent):
        return KeyValueContent(key=STRAY, value=content.error.message)
    if not isinstance(content, ToolResultContent):
        return content
    if content.call not in calls:
        return replace(content, outcome="late")
    return KeyValueContent(key=STRAY, value=content.tool_result) if stray else content


def _fits(letter: Letter, content: ToolResultContent | FaultContent, calls: dict[int, Pending]) -> bool:
    """Return whether what it is about is an attempt under the same key; what was answered fits anyway."""
    key = letter.key.removeprefix(LATE).partition("-")[2]
    if isinstance(content, ToolResultContent):
        call = calls.get(content.call) if content.call is not None else None
    else:
        call = next((each for each in calls.values() if each.last is not None and each.last.seq == content.of), None)
    return call is None or (call.last is not None and (call.last.key or "").startswith(key))
