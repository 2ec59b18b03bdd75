"""Reads the signature of a function into a type that converts arguments, and into a schema for the model.

A hidden parameter is not in the schema: it receives the tool's `Context`, as in `context: Context[Shop]`. Then `Shop`
is the type of the deps, the objects that a program passes to its tools. msgspec reads standard types, dataclasses,
TypedDicts and structs. pydantic models supply their own schema; pydantic is not imported here. If a parameter cannot be
described to a model, no tool is made. The error says what to write. The signatures of other functions that a program
hands over, such as hooks, are checked here too.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import CellType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Optional, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from gesta.errors import AgentError, BadTool, nearest

NUMBER = int | float
JSON_TYPES: Mapping[Any, Any] = {
    "string": str,
    "boolean": bool,
    "null": NoneType,
    "integer": NUMBER,
    "number": NUMBER,
    "array": list | tuple,
    "object": Mapping,
}
MOST = 20
"""Greatest number of unknown members that an error lists."""
VALUE_SHOWN = 100
"""Greatest number of characters of a value that an error shows."""
BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
"""Names of constraints in the annotations of msgspec, annotated-types and pydantic."""


class Signature(Struct, frozen=True):
    """The parameters of a function, as a type and as a JSON Schema."""

    parameters: type[Struct]
    """The type that arguments are converted to. Arguments that are left out are UNSET."""
    schema: dict[str, Any]
    """JSON Schema of an object, without references to other documents."""
    hidden: tuple[str, ...]
    """Names of the parameters that a model never sees."""
    needs: Any
    """The type of the deps that the function requires, such as `Shop` for `Context[Shop]`; `None` if it requires none.
    If several parameters require deps, this is the type of the first of them."""
    document: str
    """The docstring of the function, without its indentation."""


def read_signature(function: Any, name: str, hide: type) -> Signature:
    """Return the signature of a function. Raises BadTool if a parameter cannot be described to a model.

    Args:
        name: name of the tool, for errors.
        hide: parameters annotated with this type are hidden from the model.
    """
    inner, target = unwrapped(function)
    hints = _hints(function, name)
    shown = {key: _hidden(hint, hide) for key, (hint, _) in hints.items()}
    hidden = tuple(key for key, hint in shown.items() if hint is not None)
    needs = next((arg for hint in shown.values() for arg in get_args(hint) if _needed(arg)), None)
    typed = {key: _typed(*hints[key]) for key in hints if key not in hidden}
    fields = [(key, hint, UNSET) for key, (hint, _) in typed.items()]
    parameters = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    schema = _schema(parameters, name)
    for key, (_, text) in typed.items():
        told = schema["properties"][key]
        if text:
            told["description"] = text
        if (default := hints[key][1]) is inspect.Parameter.empty:
            schema["required"].append(key)
            continue
        with suppress(Exception):  # a default that JSON cannot hold is not shown
            raw = msgspec.json.encode(default, enc_hook=lambda value: value.model_dump(mode="json"))
            if raw != b"null" or default is None:  # infinity is written as null, and not shown
                told["default"] = msgspec.json.decode(raw)
    return Signature(parameters, schema, hidden, needs, inspect.cleandoc(target.__doc__ or inner.__doc__ or ""))


def needed_by(function: Any, hide: type) -> Any:
    """Return the type of the deps that a function requires, such as `Shop`; `None` if it requires none.

    Args:
        hide: parameters annotated with this type are hidden from the model.
    """
    try:
        hints = get_type_hints(unwrapped(function)[1])
    except Exception:  # noqa: BLE001 - annotations that cannot be read require no type
        return None
    args = (arg for hint in hints.values() for arg in get_args(_hidden(hint, hide)))
    return next((arg for arg in args if _needed(arg)), None)


def _hidden(hint: Any, hide: type) -> Any:
    """Return the part of a type hint that hides a parameter: `Context[Shop]` in `Context[Shop] | None`. Else `None`."""
    return next((each for each in (hint, *get_args(hint)) if hide in (each, get_origin(each))), None)


def _needed(arg: Any) -> bool:
    """Return whether the type argument of a `Context` requires deps, as `Shop` does and `Shop | None` does not."""
    return not isinstance(arg, TypeVar) and not {arg, *get_args(arg)} & {Any, object, None, NoneType}


def named(function: Any) -> str:
    """Return the name of a function; for a callable object, the name of its class."""
    inner, _ = unwrapped(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def unwrapped(function: Any) -> tuple[Any, Any]:
    """Return `function` without any `partial` around it, and the function that runs: `__call__` for an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, function if hasattr(function, "__name__") else type(function).__call__


def cells_of(function: Any) -> dict[str, Any]:
    """Return the variables that a function uses from the functions around it, by name. Raises AttributeError.

    Without them, the annotations of a function that is defined in another function cannot be read.
    """
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return {key: cell.cell_contents for key, cell in cells.items() if cell != CellType()}


def cut(text: str) -> str:
    """Return a text shortened to `VALUE_SHOWN` characters; an ellipsis replaces the rest."""
    return text if len(text) <= VALUE_SHOWN else f"{text[: VALUE_SHOWN - 1]}…"


def _hints(function: Any, name: str) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default (or `inspect`'s `empty`) of each parameter, by name.

    Parameters whose values a `partial` sets are left out.

    Args:
        name: name of the tool, for errors.

    Raises:
        BadTool: a parameter has no type, its type is not found, or it cannot be passed by name.
    """
    try:
        signature, scope = inspect.signature(function), inspect.unwrap(unwrapped(function)[1])
        known = cells_of(scope)
    except (AttributeError, TypeError, ValueError) as exc:
        raise BadTool(f"Tool {name!r}: {function!r} shows no parameters ({exc}). Wrap it in a `def`.") from exc
    hints: dict[str, tuple[Any, Any]] = {}
    for p in signature.parameters.values():
        if p.name in getattr(function, "keywords", ()):
            continue
        if p.annotation is p.empty:
            hint = "str" if p.default in (None, p.empty) else type(p.default).__name__
            todo = (
                f"tool(thing.{name}), with an object"
                if p.name in ("self", "cls")
                else f"`{p.name}: {hint}`, or what it is"
            )
            raise BadTool(f"Tool {name!r}: parameter {p.name!r} has no type to tell a model. Write {todo}.")
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise BadTool(f"Tool {name!r}: a model names each argument, so `{p}` will not do. Write plain parameters.")
        if hasattr(p.default, "default_factory") and hasattr(p.default, "metadata"):
            todo = f"`{p.name}: Annotated[..., Field(...)] = ...`"
            raise BadTool(f"Tool {name!r}: the default of {p.name!r} is a pydantic Field. Write {todo}.")
        try:
            turns = SimpleNamespace(__annotations__={p.name: p.annotation})
            hints[p.name] = get_type_hints(turns, scope.__globals__, known, include_extras=True)[p.name], p.default
        except Exception as exc:
            raise BadTool(f"Tool {name!r}: type of {p.name!r} not found ({exc}). Define it at module level.") from exc
    return hints


def _typed(hint: Any, default: Any) -> tuple[Any, str | None]:
    """Return a parameter's type in msgspec's form, and its description, if it has one.

    If the default is `None`, the returned type allows `None` too.
    """
    text: str | None = None
    bounds: dict[str, Any] = {}
    for item in getattr(hint, "__metadata__", ()):
        for part in (item, *getattr(item, "metadata", ())):
            said = part if isinstance(part, str) else getattr(part, "description", getattr(part, "documentation", None))
            text = said if isinstance(said, str) else text
            if not isinstance(part, msgspec.Meta):
                bounds |= {key: value for key in BOUNDS if (value := getattr(part, key, None)) is not None}
    if bounds:
        options = get_args(get_args(hint)[0])
        some: Any = Union[tuple(each for each in options if each is not NoneType)] if NoneType in options else hint  # noqa: UP007
        bound = Annotated[some, msgspec.Meta(**bounds)]
        hint = Optional[bound] if NoneType in options else bound  # noqa: UP045
    return Optional[hint] if default is None and hint is not Any else hint, text  # noqa: UP045 - a value, not a type


def _schema(parameters: type[Struct], name: str) -> dict[str, Any]:
    """Return the JSON Schema of the parameters, with the schemas it refers to. Raises BadTool for an unknown type."""
    prefixes: dict[Any, int] = {}
    parts: dict[str, Any] = {}

    def foreign(type_: Any) -> dict[str, Any]:
        if type_ is object:
            return {"description": "Any JSON value."}  # msgspec treats an empty schema as a missing one
        if not hasattr(type_, "model_json_schema"):
            raise TypeError(f"found {type_!r}")
        prefix = f"{re.sub(r'[^A-Za-z0-9]', '_', type_.__name__)}{prefixes.setdefault(type_, len(prefixes)) or ''}_"
        schema: dict[str, Any] = type_.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
        parts.update({prefix + key: value for key, value in schema.pop("$defs", {}).items()})
        return schema

    make = functools.partial(msgspec.json.schema_components, schema_hook=foreign, ref_template="#/$defs/{name}")
    for field in msgspec.structs.fields(parameters):
        try:
            make([field.type])
        except Exception as exc:
            wanted = (
                "Take standard types, dataclasses, TypedDicts, Structs or pydantic models, or fix it with partial()."
            )
            raise BadTool(
                f"Tool {name!r}: {field.name!r} is not a type for JSON ({exc}). {union_advice(field.type) or wanted}"
            ) from exc
    (ref,), defs = make([parameters])
    own = defs.pop(ref["$ref"].removeprefix("#/$defs/"))
    schema = {"type": "object", "properties": own["properties"], "required": []}
    schema |= {"$defs": defs | parts} if defs or parts else {}
    close(schema)
    return schema


def union_advice(refused: Any) -> str:
    """Return what to write in place of a union that JSON cannot hold; an empty text for other types."""
    if get_origin(refused) not in (Union, UnionType):
        return ""
    return (
        "JSON does not tell the types of this union apart. Make each a msgspec Struct with a tag, as in "
        "`class Letter(msgspec.Struct, tag=True)`, or make one type of them."
    )


def close(schema: Any) -> None:
    """Forbid unknown members of objects, and further items of tuples, in a JSON Schema and all its parts.

    The schema is changed in place. A part that already says whether it allows them is not changed.
    """
    if not isinstance(schema, dict):
        return
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    if "prefixItems" in schema and "items" not in schema:
        schema.setdefault("maxItems", len(schema["prefixItems"]))
    for part in _parts(schema):
        close(part)


def _parts(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas that a schema directly contains."""
    for name in ("properties", "$defs"):
        yield from schema.get(name, {}).values()
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        yield from schema.get(name, ())
    for name in ("items", "additionalProperties"):
        yield schema.get(name)


def unknown_members(value: Any, schema: Any, defs: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield an error for each member of a value, at any depth, that the schema does not allow.

    Args:
        defs: the schemas that `$ref` points to.
        path: the path of the value, for the errors.
    """
    schema = _referenced(schema, defs)
    if options := schema.get("anyOf", schema.get("oneOf")):
        found = (
            list(islice(unknown_members(value, each, defs, path), MOST))
            for each in options
            if _may_be(value, each, defs)
        )
        yield from min(found, key=len, default=[])
    for part in schema.get("allOf", ()):
        yield from unknown_members(value, part, defs, path)
    if isinstance(value, Mapping):
        named, rest = schema.get("properties", {}), schema.get("additionalProperties")
        for key, item in value.items():
            if key not in named and rest is False:
                known = f" Known: {', '.join(map(repr, named)) or 'none'}."
                yield f"Unknown member - at `{path}.{key}`.{nearest(str(key)[:100], named) or known}"
            elif part := named.get(key, rest):
                yield from unknown_members(item, part, defs, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        first, rest = schema.get("prefixItems", []), schema.get("items")
        for place, item in enumerate(value):
            if place >= len(first) and first and not rest:
                yield f"Unknown member - at `{path}[{place}]`."
            elif part := first[place] if place < len(first) else rest:
                yield from unknown_members(item, part, defs, f"{path}[{place}]")


def _referenced(schema: Any, defs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema, or the schema that its `$ref` points to. For `true` and `false`, return an empty schema."""
    found = defs.get(schema.get("$ref", "").removeprefix("#/$defs/"), schema) if isinstance(schema, dict) else {}
    return found if isinstance(found, dict) else {}


def listed(value: Any, schema: dict[str, Any]) -> list[Any] | None:
    """Return the values that the `enum` or `const` of a JSON Schema lists, if `value` is none of them; else `None`."""
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else [value])
    return None if any(_equal(value, each) for each in allowed) else allowed


def _equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON, in which `true` and `1` differ, but `1` and `1.0` do not."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case list(), list():
            return len(one) == len(other) and all(map(_equal, one, other))
        case dict(), dict():
            return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    return bool(one == other)


def _may_be(value: Any, schema: Any, defs: Mapping[str, Any], deep: int = 1) -> bool:
    """Return whether a value may fit a schema. Only JSON types, listed values and required members are checked.

    Args:
        defs: the schemas that `$ref` points to.
        deep: how many levels of nested members are checked.
    """
    schema = _referenced(schema, defs)
    kind = JSON_TYPES.get(str(schema.get("type")), object)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is NUMBER) or listed(value, schema) is not None:
        return False
    if not deep or not isinstance(value, Mapping):
        return True
    named = schema.get("properties", {})
    return all(name in value for name in schema.get("required", ())) and all(
        _may_be(value[name], part, defs, deep - 1) for name, part in named.items() if name in value
    )


def check_call(function: Callable[..., Any], arguments: tuple[str, ...], where: str) -> None:
    """Check that a function of the program can be called with the arguments that Gesta passes.

    A function without a readable signature, such as some built-in ones, passes the check.

    Args:
        arguments: names of the arguments, for the error; they are passed by position.
        where: the beginning of the error: where the function was given.

    Raises:
        AgentError: the function has too few parameters, or requires others.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as wrong:
        name = getattr(function, "__name__", type(function).__name__)
        found = f"({', '.join(signature.parameters)})"
        wanted = f"expected a function that is called as {name}({', '.join(arguments)})"
        raise AgentError(f"{where}{name}{found}, {wanted}.") from wrong
