"""The contents of an activity log as agent-catalog's programs make them: pydantic's call shapes, without pydantic.

Each class is Gesta's own kind, so that any span records it, with the fields of agent-catalog alone. What is written out
as JSON is what a record would read back: it is total, and values of every size and type are taken.
"""

from collections.abc import Collection, Iterator, Mapping
from inspect import Parameter, Signature
from json import dumps
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import msgspec

from gesta import kinds
from gesta.codec.rows import decode_content, encode_content
from gesta.compat.agent_catalog.export import plain
from gesta.content import Kind
from gesta.errors import GestaError, nearest
from gesta.importers.agent_catalog import FIELDS
from gesta.importers.unpacked import DECODER


class BadContent(GestaError, ValueError):
    """Members that make no content: where agent-catalog raises pydantic's error, which is a ValueError too."""


class Field(NamedTuple):
    """What `model_fields` says of one field."""

    annotation: Any
    default: Any
    """`msgspec.NODEFAULT` if it is required."""

    def is_required(self) -> bool:
        """Return whether it has to be given."""
        return self.default is msgspec.NODEFAULT


class Checked(msgspec.StructMeta):
    """Checks the values that an instance is made of, as pydantic does, and accepts the name of its kind."""

    @property
    def model_fields(self) -> dict[str, Field]:
        """The fields that agent-catalog knows, in its order."""
        known = {field.name: field for field in msgspec.structs.fields(self)}  # type: ignore[arg-type]
        kind: Any = getattr(self, "kind", None)
        names = tuple(known) if kind is None else ("extra", *FIELDS[kind])
        given = {name: (known[name].type, known[name].default) for name in names}
        free = {None: None, dict[str, Any] | None: dict[Any, Any] | None}  # keys of any type, where it has them
        found = {name: Field(free.get(type, type), default) for name, (type, default) in given.items()}
        return found if kind is None else {"extra": found.pop("extra"), "kind": Field(Kind, kind), **found}

    @property
    def __signature__(self) -> Signature:
        """How an instance is made: by keywords alone."""
        fields = self.model_fields.items()
        empty = Parameter.empty
        return Signature(
            [
                Parameter(name, Parameter.KEYWORD_ONLY, default=empty if field.is_required() else field.default)
                for name, field in fields
            ]
        )

    if not TYPE_CHECKING:  # checkers read the fields themselves

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Make one. Raises TypeError for a wrong keyword, and BadContent for a missing or wrong value."""
            expected = getattr(self, "kind", None)
            if expected is not None and (kind := kwargs.pop("kind", expected)) != expected:
                raise BadContent(f"{self.__name__}: found kind={kind!r:.60}, expected {str(expected)!r}.")
            fields = self.model_fields
            for name in kwargs:
                if name not in fields:
                    raise TypeError(
                        f"{self.__name__} has no field {name!r}.{nearest(name, fields)} It has: {', '.join(fields)}."
                    )
            for name, field in fields.items():
                if name in kwargs and field.annotation is not Any:
                    try:
                        kwargs[name] = msgspec.convert(kwargs[name], field.annotation)
                    except (msgspec.MsgspecError, UnicodeError) as error:
                        raise BadContent(f"{self.__name__}: field {name!r}: {error}.") from error
                elif name not in kwargs and field.is_required():
                    raise BadContent(f"{self.__name__}: field {name!r} is missing.")
            return super().__call__(*args, **kwargs)


class Model(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """What pydantic's models can do, as far as programs do it with contents."""

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Make one of a mapping, whose unknown members are left out; one that is made already stays as it is.

        Raises:
            BadContent: a member is missing or of a wrong type.
        """
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping):
            raise BadContent(f"{cls.__name__}: found {obj!r:.60}, expected a dict.")
        return cls(**{name: obj[name] for name in cls.model_fields if name in obj})

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Self:
        """Make one of JSON text; see `model_validate`."""
        try:
            text = json_data if isinstance(json_data, str) else json_data.decode()
            return cls.model_validate(DECODER.decode(text))
        except (ValueError, RecursionError) as error:
            raise error if isinstance(error, BadContent) else BadContent(f"{cls.__name__}: {error}.") from error

    def model_dump(
        self,
        *,
        mode: str = "python",
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
        exclude_unset: bool = False,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
    ) -> dict[str, Any]:
        """Return the members, as they were given, or with `mode="json"` as JSON can hold them."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        if mode == "json":
            given = self._as_json(given)
        for name, field in type(self).model_fields.items():
            left_out = (include is not None and name not in include) or name in (exclude or ())
            default = (exclude_unset or exclude_defaults) and getattr(self, name) == field.default
            if left_out or default or (exclude_none and given[name] is None):
                del given[name]
        return {name: _dumped(value) for name, value in given.items()}

    def model_dump_json(
        self,
        *,
        indent: int | None = None,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
        exclude_unset: bool = False,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
    ) -> str:
        """Write the members as JSON text. Never raises, whatever the values are."""
        left_out = {"exclude_unset": exclude_unset, "exclude_defaults": exclude_defaults, "exclude_none": exclude_none}
        members = self.model_dump(mode="json", include=include, exclude=exclude, **left_out)
        return dumps(members, indent=indent, ensure_ascii=False, separators=(",", ":" if indent is None else ": "))

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy in which some members are others; they are not checked."""
        return msgspec.structs.replace(self, **(update or {}))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield the members with their names."""
        return ((name, getattr(self, name)) for name in type(self).model_fields)

    def __repr__(self) -> str:
        """Write it as the call that makes it."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"

    def _as_json(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: plain(value) for name, value in given.items()}


class BaseContent(Model, kinds.Base, frozen=True, kw_only=True):
    """What all contents share."""

    kind: ClassVar[Kind]

    @staticmethod
    def _safe_serialize(obj: Any) -> Any:
        """Return a value as JSON can hold it; of what it cannot hold, the text that Python shows of it."""
        return KeyValueContent(key="", value=obj).model_dump(mode="json")["value"]

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> dict[str, Any]:
        """Return the schema by which pydantic, where a program has it, checks and writes fields of this class."""
        written = {"type": "function-plain", "function": lambda one: one.model_dump(mode="json"), "when_used": "json"}
        checks = {"type": "no-info", "function": cls.model_validate}
        return {"type": "function-plain", "function": checks, "serialization": written}

    def _as_json(self, given: dict[str, Any]) -> dict[str, Any]:
        back = decode_content(encode_content(self, None), {})  # type: ignore[arg-type]  # one of the union
        told = {name: plain(getattr(back, name)) for name in given}
        return told | {"kind": str(given["kind"])}


class SystemContent(BaseContent, kinds.SystemContent, frozen=True, kw_only=True):
    """Text that the application made."""


class ToolCallContent(BaseContent, kinds.ToolCallContent, frozen=True, kw_only=True):
    """Arguments that a model made for a tool."""


class ToolResultContent(BaseContent, kinds.ToolResultContent, frozen=True, kw_only=True):
    """What came of a tool call."""


class ChatCompletionContent(BaseContent, kinds.ChatCompletionContent, frozen=True, kw_only=True):
    """What a model generated."""


class Tool(Model, frozen=True, kw_only=True):
    """A tool that a model is offered."""

    name: str
    description: str
    args_schema: dict[str, Any]


class RequestHeaderContent(BaseContent, kinds.RequestHeaderContent, frozen=True, kw_only=True):
    """Tools and output type of the requests after it."""

    tools: list[Tool] | None = None  # type: ignore[assignment]  # on record they are dicts
    Tool = Tool


class UserContent(BaseContent, kinds.UserContent, frozen=True, kw_only=True):
    """What a person sent."""


class AssistantContent(BaseContent, kinds.AssistantContent, frozen=True, kw_only=True):
    """What the person was shown."""


class EdgeContent(BaseContent, kinds.EdgeContent, frozen=True, kw_only=True):
    """One unit of work calls another, or hands over to it."""


class BeginContent(BaseContent, kinds.BeginContent, frozen=True, kw_only=True):
    """A span starts."""


class EndContent(BaseContent, kinds.EndContent, frozen=True, kw_only=True):
    """A span ends."""


class KeyValueContent(BaseContent, kinds.KeyValueContent, frozen=True, kw_only=True):
    """Anything the user wants on the record under a name."""


Content = (
    SystemContent
    | ToolCallContent
    | ToolResultContent
    | ChatCompletionContent
    | RequestHeaderContent
    | UserContent
    | AssistantContent
    | BeginContent
    | EndContent
    | EdgeContent
    | KeyValueContent
)
CLASSES: Mapping[str, type[BaseContent]] = {str(one.kind): one for one in Content.__args__}


def content_of(members: Any) -> BaseContent:
    """Make a content of its members, told apart by `kind`; one that is made already stays as it is.

    Raises:
        BadContent: there is no such kind, or a member is missing or of a wrong type.
    """
    if isinstance(members, BaseContent):
        return members
    kind = members.get("kind") if isinstance(members, Mapping) else None
    if not isinstance(kind, str) or kind not in CLASSES:
        raise BadContent(f"Content: found kind {kind!r:.60}, expected one of {', '.join(CLASSES)}.")
    return CLASSES[kind].model_validate(members)


def _dumped(value: Any) -> Any:
    """Return a member with models in it as dicts."""
    if isinstance(value, list):
        return [one.model_dump() if isinstance(one, Model) else one for one in value]
    return value
