"""LangChain's actions (requests to run a tool), steps (an action and its observation) and finishes (final answers).

The classes have the names, fields, positional arguments and `messages` of LangChain's. Three things are added: `entry`
(id of the recorded tool call), `outcome` (how the call ended), and the call's id in the message of its result. A
"native" call is one that the provider's API reports as a tool call; other calls are parsed from text. An "lc form" is
LangChain's JSON form of an object. Two calls with equal arguments are two actions: they are never merged.
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
from gesta.prompt import observation_text

Outcome = Literal["ok", "error", "denied", "interrupted", "unknown", "late", "unanswered"]
T = TypeVar("T", bound=Serializable)


class AgentAction(Serializable, frozen=True, kw_only=False):
    """A request to execute a tool."""

    LITERAL = True
    tool: str
    tool_input: str | dict[str, Any]
    """The arguments as a dict; a text if the tool takes one argument, or if the arguments are not a JSON object."""
    log: str
    """The whole text that the model wrote. For a native call, a line that names the call is added."""
    type: Literal["AgentAction", "AgentActionMessageLog"] = "AgentAction"
    entry: str | None = None
    """Id of the recorded tool call. `None` if the action does not come from a record."""

    def __post_init__(self) -> None:
        if not isinstance(self.tool_input, str | dict):
            raise TypeError(f"tool_input of {self.tool!r} is {self.tool_input!r}; expected a text or a dict")
        _check_texts(self, "tool", "log")
        _check_type(self)

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The model's reply, from which the action was parsed, as messages."""
        return [AIMessage(self.log)]


class AgentActionMessageLog(AgentAction, frozen=True, kw_only=True):
    """An action with the model's messages that asked for it."""

    message_log: Sequence[BaseMessage]
    """The messages. Objects of LangChain's own classes stay as they are."""
    type: Literal["AgentAction", "AgentActionMessageLog"] = "AgentActionMessageLog"
    tool_call_id: str | None = None
    """Id of a native tool call, as in LangChain's `ToolAgentAction`. All calls of one reply share a `message_log`."""

    def __post_init__(self) -> None:
        AgentAction.__post_init__(self)
        log = [each if foreign_names(each) else expected(each, BaseMessage) for each in self.message_log]
        for each in log:
            expected(each, BaseMessage)
        if not isinstance(self.message_log, list) or any(map(is_not, log, self.message_log)):
            force_setattr(self, "message_log", log)  # otherwise, calls of one reply keep sharing one list

    def lc_members(self) -> tuple[str, dict[str, Any]]:
        """Return the class name and the fields for the lc form, in LangChain's order."""
        name, found = super().lc_members()
        return name if self.tool_call_id is None else "ToolAgentAction", found

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The model's reply, from which the action was parsed, as messages."""
        return self.message_log


class AgentStep(Serializable, frozen=True, kw_only=False):
    """An action and its observation, the result of the tool."""

    action: AgentAction
    observation: Any
    outcome: Outcome | None = None
    """How the tool call ended; `None` if that is unknown."""

    def __post_init__(self) -> None:
        force_setattr(self, "action", expected(self.action, AgentAction))

    def lc_members(self) -> tuple[str, dict[str, Any]]:
        """Return the class name and the fields for the lc form, including the action's `entry`.

        LangChain has no lc form of steps, so this form is Gesta's own.
        """
        name, found = super().lc_members()
        return name, found if self.action.entry is None else {**found, "entry": self.action.entry}

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The observation, as messages for the model. For a native call, a tool message with the id of the call."""
        return _convert_agent_observation_to_messages(self.action, self.observation)


class AgentFinish(Serializable, frozen=True, kw_only=False):
    """The final answer of an agent."""

    LITERAL = True
    return_values: dict[str, Any]
    """The values that the agent returns. The key `output` has the answer."""
    log: str
    """The whole text that the model wrote."""
    type: Literal["AgentFinish"] = "AgentFinish"

    def __post_init__(self) -> None:
        if not isinstance(self.return_values, dict):
            raise TypeError(f"return_values is {self.return_values!r}; expected a dict")
        _check_texts(self, "log")
        _check_type(self)

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The model's final reply, as messages."""
        return [AIMessage(self.log)]


SHAPES: dict[str, type[Serializable]] = {
    **MESSAGES,
    **{shape.__name__: shape for shape in (BaseMessage, AgentAction, AgentActionMessageLog, AgentStep, AgentFinish)},
}
"""The classes of this package by name. The names are LangChain's."""


def taken(value: Any) -> Any:
    """Convert an object of a LangChain class to this package's class of the same name.

    Return other values unchanged.
    """
    names = foreign_names(value) or ()
    return next((SHAPES[name].taken(value) for name in names if name in SHAPES), value)


def said(action: AgentAction) -> list[BaseMessage]:
    """Return an action's message log, with all messages as objects of this package. Empty without a log."""
    return [taken(each) for each in action.messages] if isinstance(action, AgentActionMessageLog) else []


def expected(value: Any, shape: type[T]) -> T:
    """Return a value as an instance of `shape`. LangChain's objects and dicts of fields are converted.

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


def _check_type(shape: AgentAction | AgentFinish) -> None:
    names, defaults = type(shape).__struct_fields__, type(shape).__struct_defaults__
    known = dict(zip(reversed(names), reversed(defaults), strict=False))["type"]
    if shape.type != known:
        raise TypeError(f"type is {shape.type!r}; expected {known!r}")


def _convert_agent_action_to_messages(agent_action: Any) -> Sequence[BaseMessage]:
    """Return the model's reply from which an action was parsed, as messages."""
    return expected(agent_action, AgentAction).messages


def _convert_agent_observation_to_messages(agent_action: Any, observation: Any) -> Sequence[BaseMessage]:
    """Return the observation of an action as messages for the model."""
    action = expected(agent_action, AgentAction)
    if not isinstance(action, AgentActionMessageLog):
        return [HumanMessage(observation_text(observation))]
    if action.tool_call_id is None:
        return [_create_function_message(action, observation)]
    named = {"name": action.tool}
    text = observation_text(observation)
    return [ToolMessage(text, tool_call_id=action.tool_call_id, additional_kwargs=named)]


def _create_function_message(agent_action: Any, observation: Any) -> FunctionMessage:
    """Return an observation as a function message with the name of the action's tool."""
    return FunctionMessage(observation_text(observation), name=expected(agent_action, AgentAction).tool)
