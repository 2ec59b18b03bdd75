"""Tool messages that steer a task instead of doing its work: they end the task, pass a message on, or send a text.

Each message is data. Its `_effect`, a row of the table below, is the effect of the message on its task. A model may use
a message only if its class was enabled for the model; a class with `_allow_llm_use = False` can not be enabled so.

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
"""A text. Any other value from a model or a program is converted to a text."""
TO_WHOM = "Nobody is named whom this is for. Name the recipient with `add_recipient`, and do not repeat the text."
UNSENT = "unsent"
"""The `source` of a document that asks the model with `TO_WHOM`."""
EMPTY = "No text waits for a recipient: the content is empty. Send it with `recipient_message`."


class Effect(Struct, frozen=True, kw_only=True):
    """The effect of a message on its task."""

    ends: Literal["", "task", "all"] = ""
    """The tasks that the message ends: its task (`task`), its task and all tasks above it (`all`), or none (empty)."""
    gives: Literal["content", "pending", "itself", "rewind", "unsent"]
    """The content that is passed on: `content` and `tools` of the message, the message that waits for an answer, the
    tool message itself, its `content` in place of an older answer and all that followed, or the last text without a
    recipient."""
    to: str = ""
    """The field of the message that names a recipient; empty if it has no such field."""
    speaker: Literal["Agent", "LLM"] = "Agent"
    """The sender of the resulting document."""


class Open(ToolMeta):
    """A metaclass for which keywords that are not fields become attributes of an instance."""

    def __call__(cls, /, **fields: Any) -> Any:  # noqa: N805, D102 - of a metaclass
        known = set(cls.__struct_fields__)
        made = super().__call__(**{name: fields[name] for name in fields if name in known})
        made.__dict__.update({name: fields[name] for name in fields if name not in known})
        return made


class Loose:
    """A mixin whose `repr` and `==` cover attributes that are not fields."""

    __struct_fields__: ClassVar[tuple[str, ...]]
    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in type(self).__struct_fields__} | self.__dict__
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def __eq__(self, other: object) -> bool:
        same = type(self) is type(other) and self.__dict__ == other.__dict__
        return same and all(getattr(self, name) == getattr(other, name) for name in type(self).__struct_fields__)


class Steers:
    """A message that steers a task; a program can also carry the message out itself, with `response`."""

    __slots__ = ()

    def response(self, agent: Any, chat_doc: Any = None) -> Any:
        """Return the document that this message makes from `chat_doc`. A handler may return that document."""
        return agent._steered(self, chat_doc)  # noqa: SLF001 - of an agent, whose public names may be tools'


class DoneTool(Steers, ToolMessage):
    """Ends the task, with a text as its result."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="content")
    request: str = "done_tool"
    purpose: str = "To say that the task is done, with its result as <content>."
    content: Text = ""

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)


class AgentDoneTool(Steers, ToolMessage):
    """Ends the task, with any value and tool messages as its result; for programs, not for models."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="content")
    _allow_llm_use: bool = False
    request: str = "agent_done_tool"
    purpose: str = "To end the task with <content> and <tools>."
    content: Any = None
    tools: list[ToolMessage] = field(default_factory=list)
    """The tool messages that the caller gets."""


class ResultTool(Loose, Steers, ToolMessage, metaclass=Open):
    """Ends the task, with this message as its result: it holds fields of a subclass, or any keywords."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="itself")
    request: str = "result_tool"
    purpose: str = "To end the task with a structured result."

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...


class FinalResultTool(ResultTool):
    """Ends the task and all tasks above it, with this message as the result; a subclass may allow models to use it."""

    _effect: ClassVar[Effect] = Effect(ends="all", gives="itself")
    _allow_llm_use: bool = False
    request: str = ""
    purpose: str = "To end the task, and every task above it, with a structured result."


class PassTool(Steers, ToolMessage):
    """Passes on the message that waits for an answer, unchanged, to another responder."""

    _effect: ClassVar[Effect] = Effect(gives="pending")
    request: str = "pass_tool"
    purpose: str = "To pass the current message on, unchanged, so that somebody else answers it."


class DonePassTool(Steers, ToolMessage):
    """Ends the task, with the message that waits for an answer as its result, unchanged."""

    _effect: ClassVar[Effect] = Effect(ends="task", gives="pending")
    request: str = "done_pass_tool"
    purpose: str = "To say that the task is done, with the current message, unchanged, as its result."


class ForwardTool(Steers, ToolMessage):
    """Passes on the message that waits for an answer, unchanged, to a named agent."""

    _effect: ClassVar[Effect] = Effect(gives="pending", to="agent")
    request: str = "forward_tool"
    purpose: str = "To pass the current message on, unchanged, to the <agent> named."
    agent: str


class SendTool(Steers, ToolMessage):
    """Sends a text to a named agent."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="to")
    request: str = "send_tool"
    purpose: str = "To send <content> to the one whose name is <to>."
    to: str
    content: Text = ""

    def __post_init__(self) -> None:
        self.content = observation_text(self.content)


class AgentSendTool(Steers, ToolMessage):
    """Sends a text and tool messages to a named agent; for programs, not for models."""

    _effect: ClassVar[Effect] = Effect(gives="content", to="to")
    _allow_llm_use: bool = False
    request: str = "agent_send_tool"
    purpose: str = "To send <content> and <tools> to the one whose name is <to>."
    to: str
    content: str = ""
    tools: list[ToolMessage] = field(default_factory=list)


class AddRecipientTool(Steers, ToolMessage):
    """Names the recipient of the model's last text, which had no recipient."""

    _effect: ClassVar[Effect] = Effect(gives="unsent", to="intended_recipient", speaker="LLM")
    request: str = "add_recipient"
    purpose: str = "To say who the <intended_recipient> of your last message is, where you named none."
    intended_recipient: str


class RecipientTool(Steers, ToolMessage):
    """Sends a text of the model to a recipient; a text without a recipient waits for an `AddRecipientTool`."""

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
        """Return a question to the model for the recipient of its text, if the text has no recipient."""
        meta = getattr(msg, "metadata", None)
        if meta is None or meta.sender != Entity.LLM or meta.recipient or agent.has_tool_message_attempt(msg):
            return None
        doc = agent.create_agent_response(TO_WHOM, recipient=str(Entity.LLM))
        doc.metadata.source = UNSENT
        return doc

    @classmethod
    def create(cls, recipients: Sequence[str], default: str = "") -> type["RecipientTool"]:
        """Return a class that accepts only these recipients; `default` makes the field optional. Raises ValueError."""
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
    """Replaces an earlier message of the model by a new text, and hides all that came after that message."""

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
"""All messages that steer a task."""


def effect_of(message: Any) -> Effect | None:
    """Return the effect of a message on its task; `None` if the message does not steer a task."""
    found = getattr(type(message), "_effect", None)
    return found if isinstance(found, Effect) else None
