"""The parts of contents: their tags, their base class, and the structs that are values inside contents.

A run is one conversation or task of an agent, stored as entries; an entry's seq is its number in the run. A content is
what an entry says: a message, a tool call, a result. A turn goes from one message to its answer. Only `Base` is the
class of contents; the other structs here are values of their fields. Import all names from `gesta.kinds`, which defines
the contents.
"""

import enum
from typing import Any, Literal, Self

from msgspec import Struct

Status = Literal["success", "error"]
Reason = Literal["answered", "failed", "limit", "budget", "cancelled"]


class Kind(enum.StrEnum):
    """The kinds of contents. The value of a member is the tag that an entry of this kind stores."""

    def __new__(cls, value: str, doc: str) -> Self:
        """Return a member with this tag and this docstring."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.__doc__ = doc
        return member

    System = "system", "Text that the application made: a template filled in, the task of a child run."
    ToolCall = "tool-call", "Arguments that a model made for a tool."
    ToolResult = "tool-result", "The result of a tool call."
    ChatCompletion = "chat-completion", "What a model generated, before any post-processing."
    RequestHeader = "request-header", "Tools, output schema, model and settings of the requests after it."
    User = "user", "A message that a person sent."
    Assistant = "assistant", "The answer that the person was shown."
    Begin = "begin", "A span starts."
    End = "end", "A span ends."
    Edge = "edge", "One unit of work calls another, or hands over to it."
    KeyValue = "key-value", "A value that a program writes under a name."
    Request = "request", "A model is about to be asked."
    Thought = "thought", "Reasoning."
    Attempt = "attempt", "A tool is about to run for a call."
    Fault = "fault", "A try that failed and is not the answer."
    Decision = "decision", "A routing choice."
    Plan = "plan", "Steps that are to be taken."
    Retrieval = "retrieval", "The passages that a search found."
    ApprovalRequest = "approval-request", "A person is asked whether a call may run."
    Approval = "approval", "A person answered about a call."
    Question = "question", "A person is asked a question, other than for an approval."
    Answer = "answer", "A person answered a question."
    Signal = "signal", "A signal to the run from outside, such as a cancellation."
    Timer = "timer", "The run waits until a time."
    Resolution = "resolution", "A person or the tool decided whether an effect in doubt happened."
    Budget = "budget", "Money and tokens, reserved before a request and settled after it."
    Artifact = "artifact", "A file that a tool or code made."
    Compaction = "compaction", "A summary is shown instead of a range of entries."
    Check = "check", "A hook of the agent changed, refused or added something."


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of a message: text, or an image or file."""

    type: Literal["text", "image", "file"]
    text: str | None = None
    data: Any = None
    """The bytes of an image or file. Large ones are stored outside the entry, as a blob."""
    url: str | None = None
    """Address of the image or file, for a model that can fetch it."""
    blob: str | None = None
    """Name of the blob (a value stored outside the entry) that holds the data."""
    media_type: str | None = None
    name: str | None = None


class Error(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as it is stored in an entry: its type, its message, and the HTTP status if a server caused it."""

    type: str
    """Class of the exception, or a short name of Gesta's such as `timeout`."""
    message: str
    http_status: int | None = None
    traceback: str | None = None


class Forked(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The point at which a fork leaves its base.

    A fork is a run that shares the first entries of another run, its base.
    """

    run: str
    seq: int
    """Seq of the last entry that the fork shares; 0 if it shares no entry."""
    digest: str = ""
    """Digest of the last shared entry, in hex. The digest of the next entry of the fork is computed from it."""
    live: list[str] | None = None
    """Names of tools with effects that the fork may really call, if the base has no result for the call. Tools that
    only read may always be called."""


class Opened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts about a run that its first entry stores: its session (conversation), its name and its parent run."""

    session: str
    name: str
    record: str
    """Id of the record in which the run was made. A copy of the run in another record keeps this id."""
    parent_run: str | None = None
    base: Forked | None = None
    """For a fork: its base (the run that it was forked from), and the last shared entry."""
    depth: int = 0
    """Number of runs above this run; 0 for a root run."""
    doubts: list[str] | None = None
    """Names of tools that a run above this one called with unknown outcome. In this run, calls of these tools need an
    approval."""


class AgentRef(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent that took a turn. `hint` is a note for people about where the agent was loaded from."""

    name: str
    digest: str
    """SHA-256 of the agent's description, in hex."""
    hint: str | None = None
    catalog: str | None = None
    """Version of the catalog that the agent's tools and prompts come from, such as a commit."""


class ToolServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server that runs a tool, with the version and the schema that it reported when the tool was called."""

    name: str
    """Name that the server gives itself."""
    version: str | None = None
    """Version that the server gives itself."""
    schema: str
    """SHA-256 of the tool's name, description, schemas and annotations as the server listed them, in hex."""
    tool: str | None = None
    """Name that the server itself uses for the tool; `None` if it equals the tool's name in the run."""


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a plan."""

    goal: str
    tool_hint: str | None = None
    depends_on: list[int] | None = None
    """Indexes of other steps in the plan, from 0."""


class Hit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One passage that a retrieval found."""

    document: str
    chunk: str | None = None
    score: float | None = None
    page: int | str | None = None
    """Number of the page, or the label that is printed on it."""


class Base(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Base class of all contents."""

    extra: dict[str, Any] | None = None
    """Additional data of users and importers, any Python values: nothing in Gesta reads a member of it."""
