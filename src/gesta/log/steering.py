"""The kinds and fields that decide how a run continues. Only the run itself writes them.

A program that records, sends or takes notes only says what happened. If it could write an approval or a tool's state
too, a value that it passes on from a stranger could allow a payment.
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
"""Kinds whose entries always decide how a run continues."""
FIELDS: Mapping[Kind, tuple[str, ...]] = {
    Kind.System: ("source", "user_id", "corrects", "document", "history"),
    Kind.User: ("document", "history"),
    Kind.Assistant: ("history",),
    Kind.ToolResult: ("state", "ends_turn", "document", "by", "copy_of", "doubts"),
    Kind.Begin: ("opened", "agent", "key", "allowance"),
    Kind.End: ("null", "doubts"),
    Kind.Edge: ("child",),
    Kind.RequestHeader: ("made",),
    Kind.Question: ("raises",),
    Kind.Compaction: ("tokens", "error", "run"),
}
"""Fields of other kinds that decide how a run goes on."""


def own_fields(content: Content) -> list[str]:
    """Return the names of those filled-in fields of a content that only the run itself may fill in."""
    given = ((name, getattr(content, name)) for name in FIELDS.get(content.kind, ()))
    return [name for name, value in given if value is not None and value is not False]


def refuse_own(content: Content, door: str) -> None:
    """Check that a program may write a content.

    Args:
        door: name of the called method, for the error.

    Raises:
        AgentError: only the run itself may write this kind, or set a field that is set here.
    """
    name = type(content).__name__
    if content.kind in OWN:
        todo = "What a person says is sent: `await record.send(run, content, key=...)`."
        raise AgentError(f"{door}: found {name}, which the run itself writes. {todo}")
    refuse_fields(content, door)


def refuse_fields(content: Content, door: str) -> None:
    """Raise AgentError if the content has a field that only the run itself may set; see `refuse_own`."""
    for field in own_fields(content)[:1]:
        found = f"{type(content).__name__}({field}={getattr(content, field)!r:.60})"
        todo = "Leave it out; data of your own goes into `extra`, which steers nothing."
        raise AgentError(f"{door}: found {found}, but the run itself fills in {field!r}. {todo}")
