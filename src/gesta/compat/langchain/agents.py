"""LangChain's actions, steps and finishes. The names of the classes and of this module are LangChain's.

The fields, the positional arguments and `messages` are LangChain's too. Some members are added: `entry` names the entry
of a call, `outcome` says how the call ended, and the message of a native call's result keeps the id of the call.
Contract: two actions are the same only if they are one entry; nothing here merges actions that are merely equal.
"""

from collections.abc import Sequence
from operator import is_not
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from gesta.compat.langchain.messages import (
    MESSAGES,
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    Serializable,
    ToolMessage,
    foreign_names,
    message_of,
)
from gesta.prompt.formatter import observation_text

Outcome = Literal["ok", "error", "denied", "interrupted", "unknown", "late", "unanswered"]
T = TypeVar("T", bound=Serializable)


class AgentAction(Serializable, frozen=True, kw_only=False):
    """A request to execute a tool."""

    tool: str
    tool_input: str | dict[str, Any]
    """The arguments; or a text, for a tool with one argument or for arguments that are no JSON object."""
    log: str
    """The model's whole text before it was parsed; for a native call, also a line that names the call."""
    type: Literal["AgentAction", "AgentActionMessageLog"] = "AgentAction"
    entry: str | None = None
    """Id of the tool-call entry that it was read from."""

    def __post_init__(self) -> None:
        if not isinstance(self.tool_input, str | dict):
            raise TypeError(f"tool_input of {self.tool!r} is {self.tool_input!r}; expected a text or a dict")
        _check_texts(self, "tool", "log")

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The reply of the model, as messages."""
        return [AIMessage(self.log)]


class AgentActionMessageLog(AgentAction, frozen=True, kw_only=True):
    """An action with the messages that it was parsed from."""

    message_log: Sequence[BaseMessage]
    """A list. Messages of LangChain's own classes are not converted."""
    type: Literal["AgentAction", "AgentActionMessageLog"] = "AgentActionMessageLog"
    tool_call_id: str | None = None
    """Id of a native tool call, as in LangChain's `ToolAgentAction`. The calls of one reply share one log."""

    def __post_init__(self) -> None:
        AgentAction.__post_init__(self)
        log = [each if foreign_names(each) else expected(each, BaseMessage) for each in self.message_log]
        for each in log:
            expected(each, BaseMessage)
        if not isinstance(self.message_log, list) or any(map(is_not, log, self.message_log)):
            force_setattr(self, "message_log", log)  # else calls of one reply go on sharing one

    def lc_members(self) -> tuple[str, dict[str, Any]]:
        """Return the class name and the members of the lc form, in LangChain's order."""
        name, found = super().lc_members()
        return name if self.tool_call_id is None else "ToolAgentAction", found

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The reply of the model, as messages."""
        return self.message_log


class AgentStep(Serializable, frozen=True, kw_only=False):
    """An action and its observation."""

    action: AgentAction
    observation: Any
    outcome: Outcome | None = None
    """How the call ended; `None` if that is not known."""

    def __post_init__(self) -> None:
        force_setattr(self, "action", expected(self.action, AgentAction))

    def lc_members(self) -> tuple[str, dict[str, Any]]:
        """Return the class name and the members of the lc form, with the entry's id.

        LangChain has no lc form of steps.
        """
        name, found = super().lc_members()
        return name, found if self.action.entry is None else {**found, "entry": self.action.entry}

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The observation as the model reads it; for a native call, a tool message with the id of the call."""
        return _convert_agent_observation_to_messages(self.action, self.observation)


class AgentFinish(Serializable, frozen=True, kw_only=False):
    """The answer of an agent at its end."""

    return_values: dict[str, Any]
    """The values that the agent returns; `output` is the answer."""
    log: str
    """The model's whole text."""
    type: Literal["AgentFinish"] = "AgentFinish"

    def __post_init__(self) -> None:
        if not isinstance(self.return_values, dict):
            raise TypeError(f"return_values is {self.return_values!r}; expected a dict")
        _check_texts(self, "log")

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The reply of the model, as messages."""
        return [AIMessage(self.log)]


SHAPES: dict[str, type[Serializable]] = {
    **MESSAGES,
    **{shape.__name__: shape for shape in (BaseMessage, AgentAction, AgentActionMessageLog, AgentStep, AgentFinish)},
}
"""Classes by their names, which are LangChain's."""


def taken(value: Any) -> Any:
    """Convert an object of a LangChain class to the class of the same name here; return anything else unchanged."""
    names = foreign_names(value) or ()
    return next((SHAPES[name].taken(value) for name in names if name in SHAPES), value)


def said(action: AgentAction) -> list[BaseMessage]:
    """Return the message log of an action, all as messages of Gesta; an empty list if the action has no log."""
    return [taken(each) for each in action.messages] if isinstance(action, AgentActionMessageLog) else []


def expected(value: Any, shape: type[T]) -> T:
    """Convert a value to the class that it must have. As in LangChain, the value may be a dict of the members.

    Raises:
        TypeError: the value cannot be converted.
    """
    made = taken(value)
    match value:
        case {"type": str(type_), "content": _} if shape is BaseMessage:
            made = message_of(type_, value)
        case {"tool": _, "tool_input": _, "log": _}:
            made = (AgentActionMessageLog if "message_log" in value else AgentAction)(**value)
    if not isinstance(made, shape):
        raise TypeError(f"found a {type(value).__name__}; expected a {shape.__name__}, of LangChain or of Gesta")
    return made


def _check_texts(shape: Struct, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(shape, name), str):
            raise TypeError(f"{name} is {getattr(shape, name)!r}; expected a text")


def _convert_agent_action_to_messages(agent_action: Any) -> Sequence[BaseMessage]:
    """Return, as messages, the reply of the model that asked for an action."""
    return expected(agent_action, AgentAction).messages


def _convert_agent_observation_to_messages(agent_action: Any, observation: Any) -> Sequence[BaseMessage]:
    """Return an observation as the messages that the model reads."""
    action = expected(agent_action, AgentAction)
    if not isinstance(action, AgentActionMessageLog):
        return [HumanMessage(observation_text(observation))]
    if action.tool_call_id is None:
        return [_create_function_message(action, observation)]
    named = {"name": action.tool}
    text = observation_text(observation)
    return [ToolMessage(text, tool_call_id=action.tool_call_id, additional_kwargs=named)]


def _create_function_message(agent_action: Any, observation: Any) -> FunctionMessage:
    """Return an observation as a message with the name of the tool."""
    return FunctionMessage(observation_text(observation), name=expected(agent_action, AgentAction).tool)
