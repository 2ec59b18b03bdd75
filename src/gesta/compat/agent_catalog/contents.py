"""The contents of an activity log under agent-catalog's names, for use like pydantic's models, without pydantic.

A content is the part of a log line that says what happened: a tool call, a result, a model's reply. Each class is a
subclass of one of Gesta's own content classes, so any span can record it. Its constructor accepts only the fields that
agent-catalog knows, with values of every size. `model_dump(mode="json")` returns the values that a program gets when it
reads the stored content back.
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
    """Raised if a field of a content is missing or has a wrong type. It is a ValueError, as pydantic's error is."""


class Field(NamedTuple):
    """The type and the default of one field of a content."""

    annotation: Any
    default: Any
    """The default value; `msgspec.NODEFAULT` if the field is required."""

    def is_required(self) -> bool:
        """Return whether the field must be passed to the constructor."""
        return self.default is msgspec.NODEFAULT


class Checked(msgspec.StructMeta):
    """Metaclass that checks the fields of new instances, as pydantic does. A passed `kind` must be the class's own."""

    @property
    def model_fields(self) -> dict[str, Field]:
        """The fields that agent-catalog knows, by name, in agent-catalog's order."""
        known = {field.name: field for field in msgspec.structs.fields(self)}  # type: ignore[arg-type]
        kind: Any = getattr(self, "kind", None)
        names = tuple(known) if kind is None else ("extra", *FIELDS[kind])
        given = {name: (known[name].type, known[name].default) for name in names}
        free = {None: None, dict[str, Any] | None: dict[Any, Any] | None}  # accept keys of any type, as it does
        found = {name: Field(free.get(type, type), default) for name, (type, default) in given.items()}
        return found if kind is None else {"extra": found.pop("extra"), "kind": Field(Kind, kind), **found}

    @property
    def __signature__(self) -> Signature:
        """The signature of the constructor, which accepts keywords only."""
        fields = self.model_fields.items()
        empty = Parameter.empty
        return Signature(
            [
                Parameter(name, Parameter.KEYWORD_ONLY, default=empty if field.is_required() else field.default)
                for name, field in fields
            ]
        )

    if not TYPE_CHECKING:  # type checkers derive the constructor from the fields

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Make an instance. Raises TypeError for an unknown argument, BadContent for a missing or wrong value."""
            if args:
                raise TypeError(f"{self.__name__} takes keywords only: {', '.join(self.model_fields)}.")
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
            return super().__call__(**kwargs)


class Model(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """Base class with those methods of pydantic models that programs call on contents."""

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Make an instance from a mapping, ignoring unknown members. An instance of this class is returned unchanged.

        Raises:
            BadContent: the value is not a mapping, or a member is missing or of a wrong type.
        """
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping):
            raise BadContent(f"{cls.__name__}: found {obj!r:.60}, expected a dict.")
        return cls(**{name: obj[name] for name in cls.model_fields if name in obj})

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Self:
        """Make an instance from the text of a JSON object. Raises BadContent, as `model_validate` does."""
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
        """Return the members as a dict, with the values that were passed to the constructor.

        Args:
            mode: `json` for values that JSON can hold.
            include: the only members to return; by default all.
            exclude: members to leave out.
            exclude_unset: leave out members that equal their default, as `exclude_defaults` does.
            exclude_none: leave out members that are `None`.
        """
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
        """Return the members as JSON text. Values of every type can be written."""
        left_out = {"exclude_unset": exclude_unset, "exclude_defaults": exclude_defaults, "exclude_none": exclude_none}
        members = self.model_dump(mode="json", include=include, exclude=exclude, **left_out)
        return dumps(members, indent=indent, ensure_ascii=False, separators=(",", ":" if indent is None else ": "))

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy with new values for some members. The new values are not checked."""
        return msgspec.structs.replace(self, **(update or {}))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the value of each member."""
        return ((name, getattr(self, name)) for name in type(self).model_fields)

    def __repr__(self) -> str:
        """Return the instance as the Python call that makes it."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"

    def _as_json(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: plain(value) for name, value in given.items()}


class BaseContent(Model, kinds.Base, frozen=True, kw_only=True):
    """Base class of all contents."""

    kind: ClassVar[Kind]

    @staticmethod
    def _safe_serialize(obj: Any) -> Any:
        """Return a value in a form that JSON can hold."""
        return KeyValueContent(key="", value=obj).model_dump(mode="json")["value"]

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> dict[str, Any]:
        """Return the schema with which pydantic, if installed, checks and writes fields of this type."""
        written = {"type": "function-plain", "function": lambda one: one.model_dump(mode="json"), "when_used": "json"}
        checks = {"type": "no-info", "function": cls.model_validate}
        return {"type": "function-plain", "function": checks, "serialization": written}

    def _as_json(self, given: dict[str, Any]) -> dict[str, Any]:
        back = decode_content(encode_content(self), {})  # type: ignore[arg-type]  # `self` is a member of the union
        told = {name: plain(getattr(back, name)) for name in given}
        return told | {"kind": str(given["kind"])}


class SystemContent(BaseContent, kinds.SystemContent, frozen=True, kw_only=True):
    """Text that the application generated."""


class ToolCallContent(BaseContent, kinds.ToolCallContent, frozen=True, kw_only=True):
    """A call of a tool, with the arguments that a model made."""


class ToolResultContent(BaseContent, kinds.ToolResultContent, frozen=True, kw_only=True):
    """The result of a tool call."""


class ChatCompletionContent(BaseContent, kinds.ChatCompletionContent, frozen=True, kw_only=True):
    """A reply that a model generated."""


class Tool(Model, frozen=True, kw_only=True):
    """The description of a tool that the model may call."""

    name: str
    description: str
    args_schema: dict[str, Any]


class RequestHeaderContent(BaseContent, kinds.RequestHeaderContent, frozen=True, kw_only=True):
    """The tools and the output type that apply to all following model requests."""

    tools: list[Tool] | None = None  # type: ignore[assignment]  # on record they are dicts
    Tool = Tool


class UserContent(BaseContent, kinds.UserContent, frozen=True, kw_only=True):
    """A message that a person sent."""


class AssistantContent(BaseContent, kinds.AssistantContent, frozen=True, kw_only=True):
    """An answer that was shown to the person."""


class EdgeContent(BaseContent, kinds.EdgeContent, frozen=True, kw_only=True):
    """A call or a hand-over from one unit of work, such as an agent, to another."""


class BeginContent(BaseContent, kinds.BeginContent, frozen=True, kw_only=True):
    """The start of a span."""


class EndContent(BaseContent, kinds.EndContent, frozen=True, kw_only=True):
    """The end of a span."""


class KeyValueContent(BaseContent, kinds.KeyValueContent, frozen=True, kw_only=True):
    """A value that a program recorded under a key."""


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
    """Make a content from a mapping of its members, where `kind` selects the class. A content is returned unchanged.

    Raises:
        BadContent: the kind is unknown, or a member is missing or of a wrong type.
    """
    if isinstance(members, BaseContent):
        return members
    kind = members.get("kind") if isinstance(members, Mapping) else None
    if not isinstance(kind, str) or kind not in CLASSES:
        raise BadContent(f"Content: found kind {kind!r:.60}, expected one of {', '.join(CLASSES)}.")
    return CLASSES[kind].model_validate(members)


def _dumped(value: Any) -> Any:
    if isinstance(value, list):
        return [one.model_dump() if isinstance(one, Model) else one for one in value]
    return value
