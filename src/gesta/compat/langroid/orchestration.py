"""Tool messages that steer a task instead of doing its work: done, pass on, send to somebody.

They are data. What a task does on one stands in its `_effect`, a row of the table below, and a task needs to know no
more of it. A model may use one only where it was enabled for that, those that say so never.

                     ends        gives      to
    DoneTool         the task    content
    AgentDoneTool    the task    content
    ResultTool       the task    itself
    FinalResultTool  all tasks   itself
    PassTool                     pending
    DonePassTool     the task    pending
    ForwardTool                  pending    agent
    SendTool                     content    to
    AgentSendTool                content    to
    RecipientTool                content    intended_recipient, as the model
    RewindTool                   rewind     as the model
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from gesta.compat.langroid.tool_message import ToolMessage, ToolMeta
from gesta.prompt.formatter import observation_text

Text = Annotated[Any, Meta(extra_json_schema={"type": "string"})]
"""A text; what else a model or a program gives becomes one."""


class Effect(Struct, frozen=True, kw_only=True):
    """What a task does on a message."""

    ends: Literal["", "task", "all"] = ""
    """What it ends: its task (`task`), its task and all tasks above it (`all`), or nothing (empty)."""
    gives: Literal["content", "pending", "itself", "rewind"]
    """Its `content` and `tools`, the message that waits for an answer, the tool message itself, or its `content` in
    place of what the model said before and of all that came after that."""
    to: str = ""
    """Field that names who gets it."""
    speaker: Literal["Agent", "LLM"] = "Agent"
    """As whose word it goes on."""


class Open(ToolMeta):
    """A class that keeps keywords which are not fields as attributes."""

    def __call__(cls, /, **fields: Any) -> Any:  # noqa: N805, D102 - of a metaclass
        known = set(cls.__struct_fields__)
        made = super().__call__(**{name: fields[name] for name in fields if name in known})
        made.__dict__.update({name: fields[name] for name in fields if name not in known})
        return made


class Loose:
    """Something with any attributes, which count as fields do."""

    __struct_fields__: ClassVar[tuple[str, ...]]
    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in type(self).__struct_fields__} | self.__dict__
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def __eq__(self, other: object) -> bool:
        same = type(self) is type(other) and self.__dict__ == other.__dict__
        return same and all(getattr(self, name) == getattr(other, name) for name in type(self).__struct_fields__)


class DoneTool(ToolMessage):
    """The task is done, with a text."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="content")
    request: str = "done_tool"
    purpose: str = "To say that the task is done, with its result as <content>."
    content: Text = ""

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)


class AgentDoneTool(ToolMessage):
    """The task is done, with any value and tool messages; for programs, not for models."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="content")
    _allow_llm_use: bool = False
    request: str = "agent_done_tool"
    purpose: str = "To end the task with <content> and <tools>."
    content: Any = None
    tools: list[ToolMessage] = field(default_factory=list)
    """What the caller gets as tool messages."""


class ResultTool(Loose, ToolMessage, metaclass=Open):
    """The task is done, with this message as its result: fields of a subclass, or any keywords."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="itself")
    request: str = "result_tool"
    purpose: str = "To end the task with a structured result."

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...


class FinalResultTool(ResultTool):
    """This task and all above it are done, with this message as their result; a model may use a named subclass."""

    _effect: ClassVar[Effect] = Effect(ends="all", gives="itself")
    _allow_llm_use: bool = False
    request: str = ""
    purpose: str = "To end the task, and every task above it, with a structured result."


class PassTool(ToolMessage):
    """Somebody else shall answer the message."""

    _effect: ClassVar[Effect] = Effect(gives="pending")
    request: str = "pass_tool"
    purpose: str = "To pass the current message on, unchanged, so that somebody else answers it."


class DonePassTool(ToolMessage):
    """The task is done, with the message as it is."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="pending")
    request: str = "done_pass_tool"
    purpose: str = "To say that the task is done, with the current message, unchanged, as its result."


class ForwardTool(ToolMessage):
    """A named agent shall answer the message."""

    _effect: ClassVar[Effect] = Effect(gives="pending", to="agent")
    request: str = "forward_tool"
    purpose: str = "To pass the current message on, unchanged, to the <agent> named."
    agent: str


class SendTool(ToolMessage):
    """A named agent gets a text."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="to")
    request: str = "send_tool"
    purpose: str = "To send <content> to the one whose name is <to>."
    to: str
    content: Text = ""

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)


class AgentSendTool(ToolMessage):
    """A named agent gets a text and tool messages; for programs, not for models."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="to")
    _allow_llm_use: bool = False
    request: str = "agent_send_tool"
    purpose: str = "To send <content> and <tools> to the one whose name is <to>."
    to: str
    content: str = ""
    tools: list[ToolMessage] = field(default_factory=list)


class RecipientTool(ToolMessage):
    """A model says to whom its text goes."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="intended_recipient", speaker="LLM")
    request: str = "recipient_message"
    purpose: str = "To send <content> to the <intended_recipient>."
    intended_recipient: str
    content: Text

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)

    @classmethod
    def create(cls, recipients: Sequence[str], default: str = "") -> type["RecipientTool"]:
        """Return a class that knows its recipients. With a default, a message need not name one. Raises ValueError."""
        names = tuple(dict.fromkeys(recipients))
        if not names or (default and default not in names):
            raise ValueError(f"found the default {default!r} and recipients {list(names)}; expected one of some")
        made: type[RecipientTool]
        if default:

            class Defaulted(cls):  # type: ignore[misc, valid-type]  # a class like its own
                intended_recipient: Literal[names] = default  # type: ignore[valid-type]  # known now

            made = Defaulted
        else:

            class Restricted(cls):  # type: ignore[misc, valid-type]  # as above
                intended_recipient: Literal[names]  # type: ignore[valid-type]  # as above

            made = Restricted
        made.__name__, made.__qualname__, made.__doc__ = cls.__name__, cls.__qualname__, cls.__doc__
        return made


class RewindTool(ToolMessage):
    """A model says something else in place of what it said before, and forgets what came of that."""

    _effect: ClassVar[Effect] = Effect(gives="rewind", speaker="LLM")
    request: str = "rewind_tool"
    purpose: str = "To say <content> in place of your <n>-th message, and forget all that came after it."
    n: Annotated[int, Meta(ge=1)]
    """Number of the message among the model's own, from 1."""
    content: str


TOOLS: tuple[type[ToolMessage], ...] = (
    DoneTool,
    AgentDoneTool,
    ResultTool,
    FinalResultTool,
    PassTool,
    DonePassTool,
    ForwardTool,
    SendTool,
    AgentSendTool,
    RecipientTool,
    RewindTool,
)
"""All of them."""


def effect_of(message: Any) -> Effect | None:
    """Return what a task does on a message; `None` if that is a tool's like any other."""
    found = getattr(type(message), "_effect", None)
    return found if isinstance(found, Effect) else None
