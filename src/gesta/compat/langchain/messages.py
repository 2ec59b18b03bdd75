"""LangChain's messages as data, with its names, fields and defaults, and the base class of all shapes of this package.

LangChain need not be installed. Its own messages are accepted wherever these messages are: see `taken` in `agents`.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from msgspec import Struct, StructMeta, field
from msgspec.structs import force_setattr

COLLECTIONS = ("additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls", "tool_call_chunks")
"""Members that are not written if they are empty."""
INVALID = ("type", "id", "name", "args", "error")
"""Members of a call that could not be read."""
CALL = ("name", "args", "id")
LIBRARIES = ("langchain_core", "langchain_classic", "langchain")
"""Packages whose objects are accepted."""
BASE = ("content", "additional_kwargs", "response_metadata", "type", "name", "id")
"""Members of a message of any type."""


class Keywords(StructMeta):
    """Metaclass that makes the fields of a program's own subclass keyword-only, so that they need no default."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], members: dict[str, Any], *, frozen: bool = True, kw_only: bool = True
    ) -> Any:
        """Make a class. By default it is frozen, and its own fields are keyword-only."""
        return super().__new__(mcls, name, bases, members, frozen=frozen, kw_only=kw_only)


class Serializable(Struct, metaclass=Keywords, frozen=True):
    """Base class of messages, actions, steps and finishes."""

    MORE: ClassVar[tuple[str, ...]] = ("entry", "tool_call_id", "outcome", "rest")
    """Members that LangChain's class lacks. They are dumped only if they are not empty."""

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
        """Convert LangChain's own object of this class to an instance of it; return any other value unchanged."""
        if cls.__name__ not in (foreign_names(value) or ()):
            return value
        known = {name: getattr(value, name) for name in cls.__struct_fields__ if hasattr(value, name)}
        if "rest" in cls.__struct_fields__:
            known["rest"] = dict(getattr(value, "model_extra", None) or {})
        return cls(**known)

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return True: every class here has an lc form."""
        return True

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Return the module path of the class in lc forms."""
        return ["langchain", "schema", "agent"]

    def to_json(self) -> dict[str, Any]:
        """Return the outer dict of the lc form. Its `kwargs` still hold objects."""
        name, kwargs = self.lc_members()
        return {"lc": 1, "type": "constructor", "id": [*self.get_lc_namespace(), name], "kwargs": kwargs}

    def lc_members(self) -> tuple[str, dict[str, Any]]:
        """Return the class name and the members of the lc form, in LangChain's order."""
        return type(self).__name__, {name: getattr(self, name) for name in self._dumped()}

    def _dumped(self) -> list[str]:
        return [name for name in self.__struct_fields__ if name not in self.MORE or getattr(self, name)]

    def model_dump(self) -> dict[str, Any]:
        """Return the members as a dict, with messages and actions inside them as dicts too."""
        return {name: _plain(getattr(self, name)) for name in self._dumped()}

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the members as JSON. Raises TypeError for a value that JSON cannot hold."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.model_dump(), ensure_ascii=False, indent=indent, separators=separators)

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Return the instance that a dict describes. An instance is returned unchanged.

        Raises:
            TypeError: members are missing, are too many, or are of another type.
        """
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping):
            raise TypeError(f"found a {type(obj).__name__}; expected a {cls.__name__} or a dict of its members")
        return cls(**obj)


class Said(Serializable, frozen=True, kw_only=False):
    """Base of messages, which has only their content."""

    content: str | list[Any]


class BaseMessage(Said, frozen=True, kw_only=True):
    """A message of any type, also of a chunk or of a type that has no class here."""

    OWN: ClassVar[tuple[str, ...]] = ()
    """Members that this class has in addition to the members of every message."""

    additional_kwargs: dict[str, Any] = field(default_factory=dict)
    response_metadata: dict[str, Any] = field(default_factory=dict)
    type: str
    """`ai`, `human`, `system`, `tool`, `function`, `chat`, `remove`, or the name of a chunk class."""
    name: str | None = None
    id: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    """Each call is `{name, args, id}`."""
    invalid_tool_calls: list[dict[str, Any]] = field(default_factory=list)
    """Each call is `{name, args, id, error}`, where `args` is a text that could not be read."""
    usage_metadata: dict[str, Any] | None = None
    tool_call_chunks: list[dict[str, Any]] = field(default_factory=list)
    chunk_position: str | None = None
    tool_call_id: str | None = None
    artifact: Any = None
    status: str | None = None
    """In a tool message, `success` or `error`."""
    role: str | None = None
    rest: dict[str, Any] = field(default_factory=dict)
    """Members of any other name."""

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
        """The type of the message; for a chunk, the type of the message that it is a part of."""
        return self.type.removesuffix("MessageChunk").lower()

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Return the module path of the class in lc forms."""
        return ["langchain", "schema", "messages"]

    def lc_members(self) -> tuple[str, dict[str, Any]]:
        """Return the class name and the members that LangChain would write, in LangChain's order."""
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
    """A message of a model."""

    OWN = ("tool_calls", "invalid_tool_calls", "usage_metadata")
    type: str = "ai"


class HumanMessage(BaseMessage, frozen=True, kw_only=True):
    """A message of a person, or the observation of an action."""

    type: str = "human"


class SystemMessage(BaseMessage, frozen=True, kw_only=True):
    """Instructions that hold for a whole conversation."""

    type: str = "system"


class ToolMessage(BaseMessage, frozen=True, kw_only=True):
    """The result of the tool call that `tool_call_id` names."""

    OWN = ("tool_call_id", "artifact", "status")
    type: str = "tool"


class FunctionMessage(BaseMessage, frozen=True, kw_only=True):
    """The result of the function that `name` names."""

    type: str = "function"


class ChatMessage(BaseMessage, frozen=True, kw_only=True):
    """A message of any other role."""

    OWN = ("role",)
    type: str = "chat"


class RemoveMessage(BaseMessage, frozen=True, kw_only=True):
    """A request to remove the message that `id` names."""

    content: str | list[Any] = ""
    type: str = "remove"


MESSAGES: dict[str, type[BaseMessage]] = {
    made.__name__: made
    for made in (AIMessage, HumanMessage, SystemMessage, ToolMessage, FunctionMessage, ChatMessage, RemoveMessage)
}
TYPES = {made: made.__name__.removesuffix("Message").lower() for made in MESSAGES.values()}


def foreign_names(value: Any) -> tuple[str, ...] | None:
    """Return the names of an object's LangChain classes, nearest first; `None` if it has no class of LangChain."""
    if isinstance(value, Serializable):
        return None
    theirs = [base.__name__ for base in type(value).__mro__ if base.__module__.partition(".")[0] in LIBRARIES]
    if theirs and theirs[0].endswith("MessageChunk"):
        return ("BaseMessage",)
    return tuple({"ToolAgentAction": "AgentActionMessageLog"}.get(name, name) for name in theirs) or None


def message_of(name: str, members: Mapping[str, Any]) -> BaseMessage:
    """Return the message of a class name or type. Members that its class does not have go into `rest`."""
    shape = next((made for made in MESSAGES.values() if name in (made.__name__, TYPES[made])), BaseMessage)
    every = {**members, **members.get("rest", {})}
    known = {key: each for key, each in every.items() if key in shape.__struct_fields__ and key != "rest"}
    rest = {key: each for key, each in every.items() if key not in shape.__struct_fields__}
    return shape(**{**known, "type": TYPES.get(shape, name)}, rest=rest)


def _calls_of(raw: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the calls in a provider's own form, and the calls whose arguments cannot be read."""
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
    """Return a value in which all messages, actions, steps and finishes are dicts."""
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
