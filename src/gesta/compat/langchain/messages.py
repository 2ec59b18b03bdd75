"""LangChain's message classes with its names, fields and defaults, and the base class of all classes in this package.

LangChain need not be installed. LangChain's own objects are accepted wherever these classes are accepted. The module
`agents` has the other classes: actions (requests to run a tool), steps (an action and its observation) and finishes
(final answers). An "lc form" is the JSON that LangChain's `dumps` writes for an object.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from msgspec import Struct, StructMeta, field
from msgspec.structs import force_setattr

COLLECTIONS = ("additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls", "tool_call_chunks")
"""Fields that an lc form leaves out when they are empty."""
INVALID = ("type", "id", "name", "args", "error")
"""Fields of a tool call whose arguments could not be parsed."""
CALL = ("name", "args", "id")
LIBRARIES = ("langchain_core", "langchain_classic", "langchain")
"""Packages of LangChain, whose objects are accepted in place of those of this package."""
BASE = ("content", "additional_kwargs", "response_metadata", "type", "name", "id")
"""Fields that every class of message has."""


class Keywords(StructMeta):
    """Metaclass that makes new fields keyword-only, so that a field without default may follow fields with one."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], members: dict[str, Any], *, frozen: bool = True, kw_only: bool = True
    ) -> Any:
        """Make a class that is frozen and has keyword-only fields, unless the class statement says otherwise."""
        return super().__new__(mcls, name, bases, members, frozen=frozen, kw_only=kw_only)


class Serializable(Struct, metaclass=Keywords, frozen=True):
    """Base class of messages, actions, steps and finishes. `==` also compares them with LangChain's own objects."""

    MORE: ClassVar[tuple[str, ...]] = ("entry", "tool_call_id", "outcome", "rest")
    """Fields that LangChain's class lacks. `model_dump` leaves them out when they are empty."""
    LITERAL: ClassVar[bool] = False
    """Whether the class allows only one `type`."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            other = self.taken(other)
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__struct_fields__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__struct_fields__))

    @classmethod
    def taken(cls, value: Any) -> Any:
        """Convert an object of LangChain's class of the same name to this class. Return any other value unchanged."""
        if cls.__name__ not in (foreign_names(value) or ()):
            return value
        known = {name: getattr(value, name) for name in cls.__struct_fields__ if hasattr(value, name)}
        if "rest" in cls.__struct_fields__:
            known["rest"] = dict(getattr(value, "model_extra", None) or {})
        if cls.LITERAL:
            known.pop("type", None)  # a subclass of theirs may have another
        return cls(**known)

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return True, because every class here has an lc form."""
        return True

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Return the module path that names this class in an lc form."""
        return ["langchain", "schema", "agent"]

    def to_json(self) -> dict[str, Any]:
        """Return the lc form as a dict. Messages and actions in its `kwargs` are still objects, not dicts."""
        name, kwargs = self.lc_members()
        return {"lc": 1, "type": "constructor", "id": [*self.get_lc_namespace(), name], "kwargs": kwargs}

    def lc_members(self) -> tuple[str, dict[str, Any]]:
        """Return the class name and the fields for the lc form, in LangChain's order."""
        return type(self).__name__, {name: getattr(self, name) for name in self._dumped()}

    def _dumped(self) -> list[str]:
        return [name for name in self.__struct_fields__ if name not in self.MORE or getattr(self, name)]

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as a dict in which messages, actions, steps and finishes are dicts, too."""
        return {name: _plain(getattr(self, name)) for name in self._dumped()}

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the fields as JSON text. Raises TypeError for a value that JSON cannot hold."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.model_dump(), ensure_ascii=False, indent=indent, separators=separators)

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Return an instance with the fields of a dict. An instance of this class is returned unchanged.

        Raises:
            TypeError: a field is missing, unknown or of a wrong type.
        """
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping):
            raise TypeError(f"found a {type(obj).__name__}; expected a {cls.__name__} or a dict of its members")
        return cls(**obj)


class Said(Serializable, frozen=True, kw_only=False):
    """Base class of messages. Its only field is the content, so that the content can be passed by position."""

    content: str | list[Any]


class BaseMessage(Said, frozen=True, kw_only=True):
    """A message. Direct instances are chunks of messages, or messages of a type that has no class here."""

    OWN: ClassVar[tuple[str, ...]] = ()
    """Fields that this class has in addition to those of every message."""

    additional_kwargs: dict[str, Any] = field(default_factory=dict)
    response_metadata: dict[str, Any] = field(default_factory=dict)
    type: str
    """`ai`, `human`, `system`, `tool`, `function`, `chat`, `remove`, or the name of a chunk class."""
    name: str | None = None
    id: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    """Each call is `{name, args, id}`."""
    invalid_tool_calls: list[dict[str, Any]] = field(default_factory=list)
    """Each call is `{name, args, id, error}`, where `args` is the text that could not be parsed."""
    usage_metadata: dict[str, Any] | None = None
    tool_call_chunks: list[dict[str, Any]] = field(default_factory=list)
    chunk_position: str | None = None
    tool_call_id: str | None = None
    artifact: Any = None
    status: str | None = None
    """In a tool message, `success` or `error`."""
    role: str | None = None
    rest: dict[str, Any] = field(default_factory=dict)
    """Fields of the original message that have no field here, by name."""

    def __post_init__(self) -> None:
        if not isinstance(self.content, str | list):
            raise TypeError(f"the content of a message is {self.content!r}; expected a text or a list")
        calls, invalid = self.tool_calls, self.invalid_tool_calls
        if self.kind == "ai" and not calls and not invalid:
            calls, invalid = _calls_of(self.additional_kwargs.get("tool_calls"))
        made = ({name: call.get(name) for name in CALL} for call in calls)
        force_setattr(self, "tool_calls", [{**call, "type": "tool_call"} for call in made])
        broken = ({**dict.fromkeys(INVALID), **call, "type": "invalid_tool_call"} for call in invalid)
        force_setattr(self, "invalid_tool_calls", list(broken))
        if self.kind == "tool" and self.status is None:
            force_setattr(self, "status", "success")

    @property
    def kind(self) -> str:
        """The type of the message in lower case, such as `ai`. A chunk has the type of its message."""
        return self.type.removesuffix("MessageChunk").lower()

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Return the module path that names this class in an lc form."""
        return ["langchain", "schema", "messages"]

    def lc_members(self) -> tuple[str, dict[str, Any]]:
        """Return the class name and the fields that LangChain would write for this message, in LangChain's order."""
        every = {**{name: getattr(self, name) for name in self.__struct_fields__ if name != "rest"}, **self.rest}
        found = {
            key: each
            for key, each in every.items()
            if key in ("content", "type") or each or (each is not None and key not in COLLECTIONS)
        }
        if self.kind == "ai":
            found.setdefault("tool_calls", [])
            found.setdefault("invalid_tool_calls", [])
        return type(self).__name__ if type(self) is not BaseMessage else self.type, found

    def _dumped(self) -> list[str]:
        known = (*BASE, *self.OWN)
        return [name for name in self.__struct_fields__ if name in known or getattr(self, name) not in (None, [], {})]


class AIMessage(BaseMessage, frozen=True, kw_only=True):
    """A message that the model wrote."""

    OWN = ("tool_calls", "invalid_tool_calls", "usage_metadata")
    type: str = "ai"


class HumanMessage(BaseMessage, frozen=True, kw_only=True):
    """A message from a person. Tool results that the model reads as ordinary text have this class, too."""

    type: str = "human"


class SystemMessage(BaseMessage, frozen=True, kw_only=True):
    """Instructions for the model that apply to the whole conversation."""

    type: str = "system"


class ToolMessage(BaseMessage, frozen=True, kw_only=True):
    """The result of a tool call. `tool_call_id` is the id of that call."""

    OWN = ("tool_call_id", "artifact", "status")
    type: str = "tool"


class FunctionMessage(BaseMessage, frozen=True, kw_only=True):
    """The result of a function call. `name` is the name of the function."""

    type: str = "function"


class ChatMessage(BaseMessage, frozen=True, kw_only=True):
    """A message whose `role` is a free text, for roles that have no class here."""

    OWN = ("role",)
    type: str = "chat"


class RemoveMessage(BaseMessage, frozen=True, kw_only=True):
    """A request to remove the message whose id is `id`."""

    content: str | list[Any] = ""
    type: str = "remove"


MESSAGES: dict[str, type[BaseMessage]] = {
    made.__name__: made
    for made in (AIMessage, HumanMessage, SystemMessage, ToolMessage, FunctionMessage, ChatMessage, RemoveMessage)
}
TYPES = {made: made.__name__.removesuffix("Message").lower() for made in MESSAGES.values()}


def foreign_names(value: Any) -> tuple[str, ...] | None:
    """Return the names of an object's LangChain classes, most specific first; `None` for any other object."""
    if isinstance(value, Serializable):
        return None
    theirs = [base.__name__ for base in type(value).__mro__ if base.__module__.partition(".")[0] in LIBRARIES]
    if theirs and theirs[0].endswith("MessageChunk"):
        return ("BaseMessage",)
    return tuple({"ToolAgentAction": "AgentActionMessageLog"}.get(name, name) for name in theirs) or None


def message_of(name: str, members: Mapping[str, Any]) -> BaseMessage:
    """Return a new message. `name` is its class or type, `members` its fields. Unknown fields go into `rest`."""
    shape = next((made for made in MESSAGES.values() if name in (made.__name__, TYPES[made])), BaseMessage)
    every = {**members, **members.get("rest", {})}
    known = {key: each for key, each in every.items() if key in shape.__struct_fields__ and key != "rest"}
    rest = {key: each for key, each in every.items() if key not in shape.__struct_fields__}
    return shape(**{**known, "type": TYPES.get(shape, name)}, rest=rest)


def _calls_of(raw: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return OpenAI's tool calls in two lists: calls with parsed arguments, and calls with malformed arguments."""
    calls: list[dict[str, Any]] = []
    invalid: list[dict[str, Any]] = []
    for call in raw if isinstance(raw, list) else ():
        match call:
            case {"function": {"name": name, "arguments": text}}:
                try:
                    args = json.loads(text) or {}
                except (TypeError, ValueError, RecursionError):
                    invalid.append({"name": name, "args": text, "id": call.get("id")})
                else:
                    calls.append({"name": name or "", "args": args, "id": call.get("id")})
    return calls, invalid


def _plain(value: Any) -> Any:
    """Return a value in which all messages, actions, steps and finishes are dicts, at every depth."""
    match value:
        case Serializable():
            return value.model_dump()
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _ if foreign_names(value) and hasattr(value, "model_dump"):
            return value.model_dump()
    return value
