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
    AddRecipientTool             unsent     intended_recipient, as the model
    RewindTool                   rewind     as the model
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from gesta.compat.langroid.entities import Entity
from gesta.compat.langroid.tool_message import ToolForm, ToolMessage, ToolMeta
from gesta.prompt.formatter import observation_text

Text = Annotated[Any, Meta(extra_json_schema={"type": "string"})]
"""A text; what else a model or a program gives becomes one."""
TO_WHOM = "Nobody is named whom this is for. Name the recipient with `add_recipient`, and do not repeat the text."
UNSENT = "unsent"
"""Source of a document that asks so."""
EMPTY = "No text waits for a recipient: the content is empty. Send it with `recipient_message`."


class Effect(Struct, frozen=True, kw_only=True):
    """What a task does on a message."""

    ends: Literal["", "task", "all"] = ""
    """What it ends: its task (`task`), its task and all tasks above it (`all`), or nothing (empty)."""
    gives: Literal["content", "pending", "itself", "rewind", "unsent"]
    """Its `content` and `tools`, the message that waits for an answer, the tool message itself, its `content` in
    place of what the model said before and of all that came after that, or what the model said last to nobody."""
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


class Steers:
    """A message that steers a task, and can be carried out by hand as well."""

    __slots__ = ()

    def response(self, agent: Any, chat_doc: Any = None) -> Any:
        """Return the document that it makes of one: a handler may return it, or what it makes of it."""
        return agent._steered(self, chat_doc)  # noqa: SLF001 - of an agent, whose public names may be tools'


class DoneTool(Steers, ToolMessage):
    """The task is done, with a text."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="content")
    request: str = "done_tool"
    purpose: str = "To say that the task is done, with its result as <content>."
    content: Text = ""

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)


class AgentDoneTool(Steers, ToolMessage):
    """The task is done, with any value and tool messages; for programs, not for models."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="content")
    _allow_llm_use: bool = False
    request: str = "agent_done_tool"
    purpose: str = "To end the task with <content> and <tools>."
    content: Any = None
    tools: list[ToolMessage] = field(default_factory=list)
    """What the caller gets as tool messages."""


class ResultTool(Loose, Steers, ToolMessage, metaclass=Open):
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


class PassTool(Steers, ToolMessage):
    """Somebody else shall answer the message."""

    _effect: ClassVar[Effect] = Effect(gives="pending")
    request: str = "pass_tool"
    purpose: str = "To pass the current message on, unchanged, so that somebody else answers it."


class DonePassTool(Steers, ToolMessage):
    """The task is done, with the message as it is."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="pending")
    request: str = "done_pass_tool"
    purpose: str = "To say that the task is done, with the current message, unchanged, as its result."


class ForwardTool(Steers, ToolMessage):
    """A named agent shall answer the message."""

    _effect: ClassVar[Effect] = Effect(gives="pending", to="agent")
    request: str = "forward_tool"
    purpose: str = "To pass the current message on, unchanged, to the <agent> named."
    agent: str


class SendTool(Steers, ToolMessage):
    """A named agent gets a text."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="to")
    request: str = "send_tool"
    purpose: str = "To send <content> to the one whose name is <to>."
    to: str
    content: Text = ""

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)


class AgentSendTool(Steers, ToolMessage):
    """A named agent gets a text and tool messages; for programs, not for models."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="to")
    _allow_llm_use: bool = False
    request: str = "agent_send_tool"
    purpose: str = "To send <content> and <tools> to the one whose name is <to>."
    to: str
    content: str = ""
    tools: list[ToolMessage] = field(default_factory=list)


class AddRecipientTool(Steers, ToolMessage):
    """A model says to whom its last text goes, which it sent to nobody."""

    _effect: ClassVar[Effect] = Effect(gives="unsent", to="intended_recipient", speaker="LLM")
    request: str = "add_recipient"
    purpose: str = "To say who the <intended_recipient> of your last message is, where you named none."
    intended_recipient: str


class RecipientTool(Steers, ToolMessage):
    """A model says to whom its text goes; what it sends to nobody waits until it has used `AddRecipientTool`."""

    _along: ClassVar[tuple[type[ToolForm], ...]] = (AddRecipientTool,)
    _effect: ClassVar[Effect] = Effect(gives="content", to="intended_recipient", speaker="LLM")
    request: str = "recipient_message"
    purpose: str = "To send <content> to the <intended_recipient>."
    intended_recipient: str
    content: Text

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)

    @staticmethod
    def handle_message_fallback(agent: Any, msg: Any) -> Any:
        """Ask the model to whom its text goes, where it does not say that."""
        meta = getattr(msg, "metadata", None)
        if meta is None or meta.sender != Entity.LLM or meta.recipient or agent.has_tool_message_attempt(msg):
            return None
        doc = agent.create_agent_response(TO_WHOM, recipient=str(Entity.LLM))
        doc.metadata.source = UNSENT
        return doc

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


class RewindTool(Steers, ToolMessage):
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
    AddRecipientTool,
    RewindTool,
)
"""All of them."""


def effect_of(message: Any) -> Effect | None:
    """Return what a task does on a message; `None` if that is a tool's like any other."""
    found = getattr(type(message), "_effect", None)
    return found if isinstance(found, Effect) else None
