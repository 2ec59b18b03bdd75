"""The kinds and fields of entries that decide how a run continues. A program may not write them.

The content of an entry is its data, and each kind of entry has its own class of contents.
A program may pass on a value from a stranger. If it could write an approval, that value could allow a payment.
"""

from collections.abc import Mapping

from gesta.errors import AgentError
from gesta.kinds import Content, Kind

OWN = frozenset(
    {
        Kind.Request,
        Kind.Attempt,
        Kind.Fault,
        Kind.ApprovalRequest,
        Kind.Approval,
        Kind.Answer,
        Kind.Signal,
        Kind.Resolution,
        Kind.Budget,
        Kind.Check,
    }
)
"""Kinds that only the run itself may write, because entries of these kinds decide how the run continues."""
FIELDS: Mapping[Kind, tuple[str, ...]] = {
    Kind.System: ("source", "user_id", "corrects", "document", "history"),
    Kind.User: ("document", "history"),
    Kind.Assistant: ("history",),
    Kind.ToolResult: ("state", "ends_turn", "document", "by", "copy_of", "doubts"),
    Kind.Begin: ("opened", "agent", "key", "allowance", "doubts"),
    Kind.End: ("null", "doubts", "below"),
    Kind.Edge: ("child",),
    Kind.RequestHeader: ("made",),
    Kind.Question: ("raises",),
    Kind.Compaction: ("tokens", "error", "run", "doubts"),
}
"""For other kinds, the fields that only the run itself may set, because they decide how the run continues."""


def own_fields(content: Content) -> list[str]:
    """Return the names of those fields that are set in a content although only the run itself may set them."""
    given = ((name, getattr(content, name)) for name in FIELDS.get(content.kind, ()))
    return [name for name, value in given if value is not None and value is not False]


def refuse_own(content: Content, door: str) -> None:
    """Raise AgentError if a program may not write this content.

    Some kinds, and some fields of other kinds, may be written only by the run itself.

    Args:
        door: name of the called method, for the error.
    """
    name = type(content).__name__
    if content.kind in OWN:
        todo = "What a person says is sent: `await record.send(run, content, key=...)`."
        raise AgentError(f"{door}: found {name}, which the run itself writes. {todo}")
    refuse_fields(content, door)


def refuse_fields(content: Content, door: str) -> None:
    """Raise AgentError if a content has a field that only the run itself may set.

    Args:
        door: name of the called method, for the error.
    """
    for field in own_fields(content)[:1]:
        found = f"{type(content).__name__}({field}={getattr(content, field)!r:.60})"
        todo = "Leave it out; data of your own goes into `extra`, which steers nothing."
        raise AgentError(f"{door}: found {found}, but the run itself fills in {field!r}. {todo}")
