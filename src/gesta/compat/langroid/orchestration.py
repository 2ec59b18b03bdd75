"""Tool messages that steer a task instead of doing its work: they end it, pass a message on, or send a text.

A tool message is a tool call as data, and a document is a message with its sender and recipient. The module `steering`
changes the document that contains such a tool message, as the `_effect` of its class says. The table shows these
effects; `Effect` explains the columns. A model may use a message only if its class was enabled for the model, which
`_allow_llm_use = False` forbids.

                     ends        gives      to                   speaker
    DoneTool         the task    content
    AgentDoneTool    the task    content
    ResultTool       the task    itself
    FinalResultTool  all tasks   itself
    PassTool                     pending
    DonePassTool     the task    pending
    ForwardTool                  pending    agent
    SendTool                     content    to
    AgentSendTool                content    to
    RecipientTool                content    intended_recipient   the model
    AddRecipientTool             unsent     intended_recipient   the model
    RewindTool                   rewind                          the model
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from gesta.compat.langroid.entities import Entity
from gesta.compat.langroid.tool_message import ToolForm, ToolMessage, ToolMeta
from gesta.prompt import observation_text

Text = Annotated[Any, Meta(extra_json_schema={"type": "string"})]
"""The type of a field that holds text. Any other value from a model or a program is converted to text."""
TO_WHOM = "Nobody is named whom this is for. Name the recipient with `add_recipient`, and do not repeat the text."
UNSENT = "unsent"
"""The `source` of a document that asks the model, with the text `TO_WHOM`, for the recipient of its last text."""
EMPTY = "No text waits for a recipient: the content is empty. Send it with `recipient_message`."


class Effect(Struct, frozen=True, kw_only=True):
    """The effect of a steering message on its task."""

    ends: Literal["", "task", "all"] = ""
    """What the message ends: nothing (empty), its task (`task`), or its task and all tasks above it (`all`)."""
    gives: Literal["content", "pending", "itself", "rewind", "unsent"]
    """What the resulting document contains:

    `content`: the message's fields `content` and `tools`. `pending`: the content of the document that waits for an
    answer. `itself`: the tool message. `rewind`: its `content`, which replaces an older reply of the model and all that
    followed. `unsent`: the model's last text that had no recipient.
    """
    to: str = ""
    """Name of the field that contains the recipient; empty if the message names no recipient."""
    speaker: Literal["Agent", "LLM"] = "Agent"
    """The sender of the resulting document: the agent, or its model."""


class Open(ToolMeta):
    """A metaclass whose classes accept any keywords. Keywords that are not fields become attributes."""

    def __call__(cls, /, **fields: Any) -> Any:  # noqa: N805, D102 - of a metaclass
        known = set(cls.__struct_fields__)
        made = super().__call__(**{name: fields[name] for name in fields if name in known})
        made.__dict__.update({name: fields[name] for name in fields if name not in known})
        return made


class Loose:
    """A mixin with a `repr` and an `==` that include attributes which are not fields."""

    __struct_fields__: ClassVar[tuple[str, ...]]
    __hash__ = None  # type: ignore[assignment]  # instances are mutable

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in type(self).__struct_fields__} | self.__dict__
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def __eq__(self, other: object) -> bool:
        same = type(self) is type(other) and self.__dict__ == other.__dict__
        return same and all(getattr(self, name) == getattr(other, name) for name in type(self).__struct_fields__)


class Steers:
    """A mixin for messages that steer a task. A program can apply such a message itself with `response`."""

    __slots__ = ()

    def response(self, agent: Any, chat_doc: Any = None) -> Any:
        """Apply this message to `chat_doc`, and return the new document. A tool handler can return that document."""
        return agent._steered(self, chat_doc)  # noqa: SLF001 - of an agent, whose public names may be tools'


class DoneTool(Steers, ToolMessage):
    """Ends the task with a text as its result."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="content")
    request: str = "done_tool"
    purpose: str = "To say that the task is done, with its result as <content>."
    content: Text = ""

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)


class AgentDoneTool(Steers, ToolMessage):
    """Ends the task with any value, and tool messages, as its result. For programs only, not for models."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="content")
    _allow_llm_use: bool = False
    request: str = "agent_done_tool"
    purpose: str = "To end the task with <content> and <tools>."
    content: Any = None
    tools: list[ToolMessage] = field(default_factory=list)
    """Tool messages that the calling task receives with the result."""


class ResultTool(Loose, Steers, ToolMessage, metaclass=Open):
    """Ends the task with this message itself as the result. Its data are a subclass's fields, or any keywords."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="itself")
    request: str = "result_tool"
    purpose: str = "To end the task with a structured result."

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...


class FinalResultTool(ResultTool):
    """Ends the task and all tasks above it, with this message as the result. By default it is for programs only."""

    _effect: ClassVar[Effect] = Effect(ends="all", gives="itself")
    _allow_llm_use: bool = False
    request: str = ""
    purpose: str = "To end the task, and every task above it, with a structured result."


class PassTool(Steers, ToolMessage):
    """Passes the current message on, unchanged, so that another responder answers it."""

    _effect: ClassVar[Effect] = Effect(gives="pending")
    request: str = "pass_tool"
    purpose: str = "To pass the current message on, unchanged, so that somebody else answers it."


class DonePassTool(Steers, ToolMessage):
    """Ends the task with the current message, unchanged, as its result."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="pending")
    request: str = "done_pass_tool"
    purpose: str = "To say that the task is done, with the current message, unchanged, as its result."


class ForwardTool(Steers, ToolMessage):
    """Passes the current message on, unchanged, to the named agent."""

    _effect: ClassVar[Effect] = Effect(gives="pending", to="agent")
    request: str = "forward_tool"
    purpose: str = "To pass the current message on, unchanged, to the <agent> named."
    agent: str


class SendTool(Steers, ToolMessage):
    """Sends a text to the named agent."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="to")
    request: str = "send_tool"
    purpose: str = "To send <content> to the one whose name is <to>."
    to: str
    content: Text = ""

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)


class AgentSendTool(Steers, ToolMessage):
    """Sends a text and tool messages to the named agent. For programs only, not for models."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="to")
    _allow_llm_use: bool = False
    request: str = "agent_send_tool"
    purpose: str = "To send <content> and <tools> to the one whose name is <to>."
    to: str
    content: str = ""
    tools: list[ToolMessage] = field(default_factory=list)


class AddRecipientTool(Steers, ToolMessage):
    """Names the recipient of the model's last text, which had none."""

    _effect: ClassVar[Effect] = Effect(gives="unsent", to="intended_recipient", speaker="LLM")
    request: str = "add_recipient"
    purpose: str = "To say who the <intended_recipient> of your last message is, where you named none."
    intended_recipient: str


class RecipientTool(Steers, ToolMessage):
    """Sends a text of the model to a recipient. A text without a recipient waits until `AddRecipientTool` names one."""

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
        """Return a document that asks the model for the recipient of its text; `None` if the text has a recipient."""
        meta = getattr(msg, "metadata", None)
        if meta is None or meta.sender != Entity.LLM or meta.recipient or agent.has_tool_message_attempt(msg):
            return None
        doc = agent.create_agent_response(TO_WHOM, recipient=str(Entity.LLM))
        doc.metadata.source = UNSENT
        return doc

    @classmethod
    def create(cls, recipients: Sequence[str], default: str = "") -> type["RecipientTool"]:
        """Return a subclass that accepts only these recipients. With `default`, a call may omit the recipient.

        Raises:
            ValueError: there are no recipients, or `default` is not among them.
        """
        names = tuple(dict.fromkeys(recipients))
        if not names or (default and default not in names):
            raise ValueError(f"found the default {default!r} and recipients {list(names)}; expected one of some")
        made: type[RecipientTool]
        if default:

            class Defaulted(cls):  # type: ignore[misc, valid-type]  # the base is known only at run time
                intended_recipient: Literal[names] = default  # type: ignore[valid-type]  # names are known only at run time

            made = Defaulted
        else:

            class Restricted(cls):  # type: ignore[misc, valid-type]  # as above
                intended_recipient: Literal[names]  # type: ignore[valid-type]  # as above

            made = Restricted
        made.__name__, made.__qualname__, made.__doc__ = cls.__name__, cls.__qualname__, cls.__doc__
        return made


class RewindTool(Steers, ToolMessage):
    """Replaces an earlier message of the model by a new text, and hides all that came after it."""

    _effect: ClassVar[Effect] = Effect(gives="rewind", speaker="LLM")
    request: str = "rewind_tool"
    purpose: str = "To say <content> in place of your <n>-th message, and forget all that came after it."
    n: Annotated[int, Meta(ge=1)]
    """Which of the model's own messages to replace, counted from 1."""
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
"""The classes of all messages that steer a task."""


def effect_of(message: Any) -> Effect | None:
    """Return the effect of a message on its task; `None` if the message does not steer the task."""
    found = getattr(type(message), "_effect", None)
    return found if isinstance(found, Effect) else None
