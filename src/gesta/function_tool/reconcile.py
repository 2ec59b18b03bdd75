"""Checks the `reconcile` function of a tool where the tool is made, and selects the arguments that it is called with.

The function receives the idempotency key of a call and, if it has a second parameter, the `Context` of the call. It
does not receive the arguments of the call. A function that expects them would compare a `Context` with a number, find
nothing and answer `NotDone`, and a payment would be made twice. So a wrong signature is refused.
"""

import inspect
from types import SimpleNamespace, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from gesta.errors import BadTool
from gesta.function_tool.context import Context, Done, NotDone, Unknown
from gesta.function_tool.signature import cells_of, cut, unwrapped
from gesta.text.redactor import SECRETS

FORMS = "Write `(key: str)` or `(key: str, context: gesta.Context)`"
RECEIVED = ((str, "the idempotency key"), (Context, "the context of the call"))
"""The type of each argument that a `reconcile` function receives, and the words for it."""
ANSWERS = "expected gesta.Done(result), gesta.NotDone() or gesta.Unknown()"
PLAIN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Untold(Struct, frozen=True):
    """The answer of a `reconcile` function that could not tell. A replay returns it, with the recorded words."""

    why: str


def check_reconcile(reconcile: Any, name: str) -> None:
    """Check that a function can be called with a key, or with a key and a context. `None` is accepted.

    Args:
        reconcile: the function.
        name: name of the tool, for errors.

    Raises:
        BadTool: it is not a function, it needs another argument, or a parameter has another type.
    """
    if reconcile is None:
        return
    if not callable(reconcile):
        raise BadTool(f"Tool {name!r}: reconcile is {reconcile!r}, expected a function.")
    parameters = _parameters(reconcile, name)
    plain = [each for each in parameters if each.kind in PLAIN]
    if plain and plain[0].name in ("self", "cls"):
        raise BadTool(f"Tool {name!r}: reconcile is a method without an object. Write `reconcile=thing.method`.")
    for each in parameters:
        if each.default is each.empty and (each in plain[2:] or each.kind is each.KEYWORD_ONLY):
            found = f"reconcile needs {each.name!r}, and receives the key and the context alone"
            raise BadTool(f"Tool {name!r}: {found}. {FORMS}, or set {each.name!r} with functools.partial.")
    for each, (wanted, role) in zip(plain, RECEIVED, strict=False):
        if each.annotation is not each.empty and not _accepts(_type_of(each, reconcile), wanted):
            found = f"{each.name!r} of reconcile receives {role}, and has the type {_in_source(each.annotation)}"
            raise BadTool(f"Tool {name!r}: {found}. {FORMS}.")


def arguments_for(reconcile: Any, key: str, context: Context) -> tuple[Any, ...]:
    """Return the arguments for a `reconcile` function: the key and, if it has a place for it, the context.

    A second parameter without a type and with a default, as in `lambda key, bank=bank: ...`, keeps its default.
    """
    parameters = inspect.signature(reconcile).parameters.values()
    places = [each for each in parameters if each.kind in PLAIN]
    several = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    own = len(places) > 1 and places[1].annotation is inspect.Parameter.empty
    own = own and places[1].default not in (None, inspect.Parameter.empty)
    return (key, context)[: 1 if own else 2 if several else len(places)]


def answer_of(returned: Any) -> Done | NotDone | Unknown | Untold:
    """Return what a `reconcile` function returned. If it is not an answer, return words that say what was expected."""
    if isinstance(returned, Done | NotDone | Unknown | Untold):
        return returned
    try:
        found = cut(SECRETS.text(repr(returned)))  # a secret that is cut would not be known any more
    except Exception:  # noqa: BLE001 - an object of the user may raise anything
        found = f"an object of the type {type(returned).__name__!r}"
    return Untold(f"it returned {found}, {ANSWERS}")


def _parameters(reconcile: Any, name: str) -> list[inspect.Parameter]:
    try:
        return [*inspect.signature(reconcile).parameters.values()]
    except (TypeError, ValueError) as exc:
        raise BadTool(f"Tool {name!r}: reconcile={reconcile!r} shows no parameters. Wrap it in a `def`.") from exc


def _type_of(parameter: inspect.Parameter, reconcile: Any) -> Any:
    """Return the type of a parameter; its text if the type is not found, as for an import for type checkers only."""
    scope = inspect.unwrap(unwrapped(reconcile)[1])
    turns = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(turns, getattr(scope, "__globals__", {}), cells_of(scope))[parameter.name]
    except Exception:  # noqa: BLE001 - the annotation of a user may raise anything
        return parameter.annotation


def _accepts(hint: Any, wanted: type) -> bool:
    """Return whether a parameter of this type can receive a value of the class `wanted`.

    A type that says nothing about classes, such as a type variable or a protocol, is accepted. A text, which stands for
    a type that was not found, is accepted as a key; as a context it has to name `Context`.
    """
    while (inner := getattr(hint, "__supertype__", getattr(hint, "__value__", None))) is not None:
        hint = inner  # a NewType, or an alias made by a `type` statement
    if isinstance(hint, str):
        return wanted is str or Context.__name__ in hint
    if get_origin(hint) in (Union, UnionType):
        return any(_accepts(each, wanted) for each in get_args(hint))
    kind = get_origin(hint) or hint
    if hint is Any or isinstance(hint, TypeVar) or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    return issubclass(wanted, kind) or issubclass(kind, wanted)


def _in_source(annotation: Any) -> str:
    """Return an annotation as it is written in a program, without quotes and the word `class`."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
