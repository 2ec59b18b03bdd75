"""Decides which entries of a run came from outside the agent's code. A replay copies these entries unchanged.

They come from people, tools, providers and the clock: tool results, faults, messages, approvals, ends of processes. The
agent's code makes the other entries, such as requests, calls and answers, and a replay writes them again. A letter is a
message to a run, such as an approval, sent through its inbox by another process. An attempt is the entry that says that
a tool is about to run; a resolution says whether an attempt of unknown outcome had its effect. The causes of an entry
are the entries it was made from; its seq is its number in the run. An annotation is a name with a value that is stored
beside an entry's content. A turn is the work on one message. It is a span: a named part of a run, which may contain
other spans.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from gesta.decide.open_call import NEVER
from gesta.entry import Entry
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    BeginContent,
    BudgetContent,
    CheckContent,
    CompactionContent,
    EdgeContent,
    EndContent,
    FaultContent,
    KeyValueContent,
    Kind,
    QuestionContent,
    ResolutionContent,
    RetrievalContent,
    SignalContent,
    SystemContent,
    ToolResultContent,
    UserContent,
)
from gesta.perform.late import Sayable
from gesta.state.calls import EXPIRED
from gesta.state.turn import AGENT

FROM = "from"
"""Name of the annotation of an entry that a fork copied from its base."""
RECONCILED = "reconcile of "
"""Prefix of `by` in a resolution that a tool's `reconcile` function made, not a person."""
SAID = frozenset({Kind.Fault, Kind.Signal, Kind.Approval, Kind.Answer, Kind.Resolution})
"""Kinds of entries that people, providers and tools cause, independently of the agent's code."""


def by_tool(entry: Entry) -> int | None:
    """Return the seq of the attempt that a tool's result belongs to; `None` if the entry is not a result of a tool."""
    content = entry.content
    if not isinstance(content, ToolResultContent) or content.outcome not in ("ok", "error"):
        return None
    own = [cause for cause in entry.causes if isinstance(cause, int)]
    return own[0] if len(own) == 1 and own[0] != content.call else None


def left_below(entries: Sequence[Entry], turn: int, name: str | None) -> list[str]:
    """Return the names of tools that child runs left in doubt, according to the next entry about these runs.

    Args:
        entries: the recorded entries that were not replayed yet.
        turn: seq of the turn's `begin` entry.
        name: name of the child run that a call, a hook or a compaction started: it ends with the seq of the entry that
            it was started for. `None` for all child runs; then the turn's `end` names the tools.
    """
    for each in entries:
        match each.content:
            case EndContent(below=below) if name is None and each.span == turn:
                return below or []
            case (
                ToolResultContent(call=int(of), doubts=doubts)
                | CheckContent(of=of, doubts=doubts)
                | CompactionContent(to_seq=of, doubts=doubts)
            ) if name is not None and name.endswith(f"#{of}"):
                return doubts or []
    return []


def by_letter(entries: Sequence[Entry], entry: Entry) -> bool:
    """Return whether an entry arrived in the run's inbox as a letter."""
    content = entry.content
    if isinstance(content, ToolResultContent):
        alone = entry.causes == (content.call,)
        return content.outcome == "late" or (alone and (content.outcome == "ok" or _told(content)))
    if not isinstance(content, Sayable):
        return False
    match content:
        case ApprovalContent(by=by):
            return by != EXPIRED
        case ResolutionContent(by=by):
            return not by.startswith(RECONCILED)
        case AnswerContent() | SignalContent():
            return _in_turn(entries, entry)
        case UserContent():
            return not opens(entries, entry)
        case SystemContent() | KeyValueContent() | CompactionContent():
            return _uncaused(entries, entry) and getattr(content, "key", "") != AGENT
    assert_never(content)


def from_outside(entries: Sequence[Entry], entry: Entry) -> bool:
    """Return whether an entry came from outside the agent's code.

    Args:
        entries: the run's entries from the first one on, so that entry `seq` is at index `seq - 1`.
    """
    content = entry.content
    if entry.kind in SAID or FROM in (entry.annotations or {}) or not _in_turn(entries, entry):
        return True
    match content:
        case ToolResultContent():
            never = content.tool_result == NEVER and entry.causes != (content.call,)  # its child run says so
            return never or by_letter(entries, entry) or by_tool(entry) is not None
        case BudgetContent(spent=dict()):  # the code itself settles only a request that was answered
            return not any(isinstance(cause, int) and _answers(entries, cause) for cause in entry.causes)
        case RetrievalContent() | EdgeContent():
            return _while_tried(entries, entry)
        case EndContent():
            told = content.error is not None and content.error.type == "orphaned"
            return told or any(
                entries[cause - 1].kind is Kind.Signal for cause in entry.causes if isinstance(cause, int)
            )
        case KeyValueContent():
            return content.key == AGENT or by_letter(entries, entry)
        case SystemContent() | CompactionContent():
            return by_letter(entries, entry)
        case QuestionContent():
            return content.attempt is not None
    return entry.kind is Kind.User and not opens(entries, entry)


def unmoved(entries: Sequence[Entry], entry: Entry) -> bool:
    """Return whether an entry came from outside the agent's code, and from no tool, which may give another result now.

    It is the fault of a provider, the mark of a fork, or the end of a span that the code did not end.
    """
    if isinstance(entry.content, FaultContent):
        return entries[entry.content.of - 1].kind is Kind.Request
    return entry.kind in (Kind.Begin, Kind.End) and from_outside(entries, entry)


def _answers(entries: Sequence[Entry], seq: int) -> bool:
    return entries[seq - 1].kind is Kind.ChatCompletion


def _told(content: ToolResultContent) -> bool:
    """Return whether a failed result came from outside: it contains an error, or is a copy of another result.

    Return `False` for a placeholder, which the agent's code writes if a result is missing.
    """
    return content.error is not None or content.copy_of is not None


def opens(entries: Sequence[Entry], entry: Entry) -> bool:
    """Return whether an entry is the message that opened its turn."""
    before = entries[entry.seq - 2] if entry.seq > 1 else None
    return before is not None and begins_turn(before) and before.seq == entry.span


def _uncaused(entries: Sequence[Entry], entry: Entry) -> bool:
    """Return whether an entry has no causes and no annotations, and is in no span inside its turn.

    Return `False` for the message that opened the turn.
    """
    direct = begins_turn(entries[entry.span - 1]) and not opens(entries, entry)
    return direct and not entry.causes and not entry.annotations


def begins_turn(entry: Entry) -> bool:
    """Return whether an entry is the `begin` of a turn."""
    return isinstance(entry.content, BeginContent) and entry.content.role == "turn"


def _in_turn(entries: Sequence[Entry], entry: Entry) -> bool:
    """Return whether an entry is in an agent's turn, or in a span inside such a turn."""
    seen: Mapping[int, Entry] = {each.seq: each for each in (entry,)}
    span = entry.span
    while True:
        begin = seen.get(span) or entries[span - 1]
        if begins_turn(begin):
            return True
        parent = begin.content.parent if isinstance(begin.content, BeginContent) else None
        if parent is None:
            return False
        span = parent


def _while_tried(entries: Sequence[Entry], entry: Entry) -> bool:
    """Return whether a running tool wrote this entry.

    The first cause of such an entry is the tool's attempt, or an `edge` entry (a task for another agent) that the
    running tool wrote.
    """
    own = [cause for cause in entry.causes if isinstance(cause, int)]
    first = entries[own[0] - 1] if own else None
    if first is None:
        return False
    return first.kind is Kind.Attempt or (first.kind is Kind.Edge and _while_tried(entries, first))
