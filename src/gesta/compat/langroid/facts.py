"""Reads, once for each class of tool messages, its name, its purpose, its schema, and the check of its arguments.

A tool message is a tool call as data: its class describes the tool, and its fields are the arguments of the call. A
struct is read like the signature of a tool function. So structs and functions accept the same types and report problems
in the same words. A pydantic model brings its own schema and check; this module does not import pydantic.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from gesta.errors import BadArguments, BadTool
from gesta.function_tool.context import Context
from gesta.function_tool.signature import BOUNDS, MOST, close, read_signature, unknown_members
from gesta.function_tool.tool import Tool

RESERVED = ("request", "purpose")
"""Fields that the class sets, so that no model fills them."""
AGAIN = "Correct every field named here and send the whole {name!r} message again."


class Facts(Struct, frozen=True, kw_only=True):
    """The name, purpose, fields, defaults, schema and check of one class of tool messages."""

    name: str
    purpose: str
    fields: frozenset[str]
    """Names of the fields that a model may fill."""
    defaults: dict[str, Any]
    schema: dict[str, Any]
    """JSON Schema of the arguments as an object. It refers to no other schema and excludes the reserved fields."""
    build: Callable[[Mapping[str, Any]], Any]
    """Makes a tool message from the arguments of a call. Raises BadArguments if they do not fit."""


def settle_defaults(namespace: dict[str, Any]) -> None:
    """Replace defaults that only pydantic allows, such as `Field(...)` or a list, by defaults that a struct allows.

    Args:
        namespace: the names in the body of the class, which are changed in place.
    """
    stated = namespace.get("__annotations__", {})
    for own in [each for each in namespace if type(namespace[each]).__module__.startswith("pydantic.")]:
        _as_struct_field(own, stated, namespace)
    for key in [key for key in stated if key in namespace]:
        given = namespace[key]
        if isinstance(given, Struct | list | dict | set) or hasattr(given, "model_copy"):
            namespace[key] = msgspec.field(default_factory=partial(copy.copy, given))


def _as_struct_field(name: str, stated: dict[str, Any], namespace: dict[str, Any]) -> None:
    """Replace the `Field(...)` of pydantic that defines a field by its default and a type with its bounds.

    Raises BadTool for any other object of pydantic.

    Args:
        stated: the types of the fields, by name, which are changed in place.
        namespace: the names in the body of the class, which are changed in place.
    """
    info = namespace.pop(name)
    if name not in stated or not hasattr(info, "is_required"):
        wanted = "write the tool as a pydantic model with `request` and `purpose`"
        raise BadTool(f"{name!r} is a {type(info).__name__} of pydantic's; to have it, {wanted}.")
    found = {key: getattr(each, key) for each in info.metadata for key in BOUNDS if hasattr(each, key)}
    found |= {"description": info.description} if info.description else {}
    more = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else None
    if (found or more) and not isinstance(stated[name], str):
        stated[name] = Annotated[stated[name], Meta(**found, extra_json_schema=more)]
    if info.default_factory is not None:
        namespace[name] = msgspec.field(default_factory=info.default_factory)
    elif not info.is_required():
        namespace[name] = info.default


def facts_of(cls: type) -> Facts:
    """Return the facts about a class of tool messages. Raises BadTool if a field's type has no schema."""
    found = cls.__dict__.get("_facts")
    if not isinstance(found, Facts):
        found = _struct_facts(cls) if issubclass(cls, Struct) else _model_facts(cls)
        type.__setattr__(cls, "_facts", found)
    return found


def _struct_facts(cls: type[Struct]) -> Facts:
    own = {field.name: field for field in msgspec.structs.fields(cls)}
    defaults = {
        name: field.default if field.default is not NODEFAULT else field.default_factory()
        for name, field in own.items()
        if not (field.default is NODEFAULT and field.default_factory is NODEFAULT)
    }
    name = str(defaults.get("request", ""))
    described = [
        inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=field.type,
            default=defaults.get(key, inspect.Parameter.empty),
        )
        for key, field in own.items()
        if key not in RESERVED
    ]

    def fields() -> None: ...

    fields.__signature__ = inspect.Signature(described)  # type: ignore[attr-defined]  # `inspect` reads it
    signature = read_signature(fields, name or cls.__name__, Context)
    for part in signature.schema.get("$defs", {}).values():
        _pin(part)
    check = Tool(name=name, args_schema=signature.schema, function=fields, parameters=signature.parameters)
    names = frozenset(own) - set(RESERVED)
    free = bool(cls.__dictoffset__) and not names  # a class without fields accepts any argument

    def build(args: Mapping[str, Any]) -> Any:
        given = _own(args, names)
        more = {key: given.pop(key) for key in [*given]} if free else {}
        try:
            return cls(**check.arguments(given), **more)
        except (BadArguments, TypeError, ValueError) as wrong:
            said = str(wrong) if isinstance(wrong, BadArguments) else f"Arguments of {name!r}: {wrong}"
            raise BadArguments(f"{said.rstrip('.')}. {AGAIN.format(name=name)}") from wrong

    purpose = str(defaults.get("purpose", ""))
    return Facts(name=name, purpose=purpose, fields=names, defaults=defaults, schema=signature.schema, build=build)


def _model_facts(cls: Any) -> Facts:
    """Return the facts about a pydantic model, read from its own schema and fields."""
    own: Mapping[str, Any] = cls.model_fields
    defaults = {
        key: field.get_default(call_default_factory=True) for key, field in own.items() if not field.is_required()
    }
    name, whole = str(defaults.get("request", "")), cls.model_json_schema()
    properties = {key: value for key, value in whole.get("properties", {}).items() if key not in RESERVED}
    for each in properties.values():
        each.pop("title", None)
    required = [key for key in whole.get("required", ()) if key not in RESERVED]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    schema |= {} if (more := cls.model_config.get("extra") == "allow") else {"additionalProperties": False}
    for part in whole.get("$defs", {}).values():
        _pin(part)
    schema |= {"$defs": whole["$defs"]} if "$defs" in whole else {}
    close(schema)

    def build(args: Mapping[str, Any]) -> Any:
        given = _own(args, properties if not more else (*properties, *args))
        wrong = [f"Unknown argument - at `$.{key}`" for key in given if key not in properties and not more]
        wrong += islice(unknown_members(given, {"properties": properties}, schema.get("$defs", {}), "$"), MOST)
        try:
            message = cls.model_validate({key: given[key] for key in given if more or key in properties})
        except ValueError as exc:
            found: Any = exc.errors() if hasattr(exc, "errors") else [{"msg": str(exc), "loc": ()}]
            wrong += [f"{each['msg']} - at `{'.'.join(['$', *map(str, each['loc'])])}`" for each in found]
        if wrong:
            raise BadArguments(f"Arguments of {name!r}: {'; '.join(wrong[:MOST])}. {AGAIN.format(name=name)}")
        return message

    names, purpose = frozenset(properties), str(defaults.get("purpose", ""))
    return Facts(name=name, purpose=purpose, fields=names, defaults=defaults, schema=schema, build=build)


def _own(args: Mapping[str, Any], names: Any) -> dict[str, Any]:
    """Return a call's arguments without `request`, `purpose`, and a `recipient` that is not in `names`, the fields.

    If a model copied the form of the schema, the arguments are found in the member `properties`.
    """
    inner = args.get("properties")
    if isinstance(inner, Mapping) and not {"properties", *args} & {*names}:
        args = inner
    return {key: value for key, value in args.items() if key not in RESERVED and (key != "recipient" or key in names)}


def _pin(part: dict[str, Any]) -> None:
    """Change the schema of a nested message: make `request` required with the tool's name, and remove `purpose`."""
    properties = part.get("properties", {})
    if {"request", "purpose"} <= properties.keys() and isinstance(properties["request"].get("default"), str):
        del properties["purpose"]
        properties["request"] = {"type": "string", "enum": [properties["request"]["default"]]}
        part["required"] = ["request", *part.get("required", ())]


def shaped(value: Any, type_: Any) -> Any:
    """Return `value` as an instance of `type_`, converted if necessary; `None` if the conversion fails."""
    if fits(value, type_):
        return value
    if not isinstance(value, Mapping | list) or not (get_origin(type_) or isinstance(type_, type)):
        return None
    try:
        if hasattr(type_, "model_validate"):
            return type_.model_validate(value)
        return msgspec.convert(value, type_)
    except (msgspec.MsgspecError, BadArguments, TypeError, ValueError):
        return None


def fits(value: Any, type_: Any) -> bool:
    """Return whether a value matches a type, with all its elements. Nothing is converted: `True` is not a number."""
    origin, args = get_origin(type_), get_args(type_)
    if type_ is Any or type_ is object:
        return True
    if origin is Annotated:
        return fits(value, args[0])
    if origin in (Union, UnionType):
        return any(fits(value, option) for option in args)
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in args)
    if type_ is None or type_ in (int, float):
        return type(value) is (type_ or type(None))
    if not isinstance(origin or type_, type) or not isinstance(value, origin or type_):
        return False
    if issubclass(origin or type_, Mapping):
        return all(fits(part, arg) for pair in value.items() for part, arg in zip(pair, args, strict=False))
    if origin is tuple and args[-1:] != (...,):
        return len(value) == len(args) and all(map(fits, value, args))
    return (
        all(fits(item, args[0]) for item in value) if args and isinstance(value, Sequence | set | frozenset) else True
    )
