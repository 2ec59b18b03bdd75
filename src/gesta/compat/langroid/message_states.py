"""Converts tool messages to JSON values for the record, and back to instances of their classes.

A tool message is a tool call as data, and the record is the store of all runs. The JSON values name the class.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gesta.compat.langroid.facts import facts_of, fits, shaped
from gesta.compat.langroid.tool_message import ToolForm, arguments_of, values_of
from gesta.errors import BadTool, nearest


def message_state(message: Any) -> dict[str, Any]:
    """Return a message as JSON values: its tool, class and arguments. Nested messages have the same form."""
    values = values_of(message)
    inner = {key: value for key, value in values.items() if value and fits(value, list[ToolForm])}
    args = {key: value for key, value in arguments_of(message).items() if key not in inner}
    state = {"request": facts_of(type(message)).name, "class": _place(type(message)), "args": args}
    models = {key: _place(type(value)) for key, value in values.items() if key in args and _is_model(value)}
    state |= {"models": models} if models else {}
    return state | ({"tools": {key: [message_state(one) for one in inner[key]] for key in inner}} if inner else {})


def message_of(state: Mapping[str, Any], tools: Mapping[str, type[ToolForm]]) -> Any:
    """Return the tool message from which `message_state` made these JSON values.

    Args:
        tools: classes of tool messages by tool name; other classes are found if the program has imported them.

    Raises:
        BadTool: the class of the message, or of a nested message, is neither in `tools` nor imported.
        BadArguments: the arguments no longer fit the class.
    """
    name = state["request"]
    cls = tools.get(name) if name else None
    args = state["args"]
    there = [] if cls else [each for each in _loaded(ToolForm) if _place(each) == state.get("class")]
    cls = cls or next((each for each in there if facts_of(each).fields == args.keys()), there[0] if there else None)
    if cls is None:
        raise BadTool(f"The record holds a message of tool {name!r}, which is not enabled.{nearest(name, tools)}")
    facts = facts_of(cls)
    more = {key: args[key] for key in args if key not in facts.fields} if _open(cls) else {}
    message = facts.build({key: args[key] for key in args if key not in more})
    if more:
        vars(message).update(more)
    for key, place in state.get("models", {}).items():
        setattr(message, key, _modelled(args[key], place))
    for key, inner in state.get("tools", {}).items():
        setattr(message, key, [message_of(each, tools) for each in inner])
    return message


def _is_model(value: Any) -> bool:
    """Return whether a value is an instance of a pydantic model."""
    return hasattr(type(value), "model_validate") and hasattr(type(value), "model_fields")


def _modelled(value: Any, place: str) -> Any:
    """Return the pydantic model made from a JSON value. If its class is not imported, return the value.

    `place` is the module and the name of the class.
    """
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    cls = next((each for each in _loaded(base) if _place(each) == place), None) if base is not None else None
    made = None if cls is None else shaped(value, cls)
    return value if made is None else made


def _loaded(cls: type) -> Iterator[type]:
    """Yield all direct and indirect subclasses of a class, newest first."""
    known: list[type] = cls.__subclasses__()
    for each in reversed(known):
        yield from _loaded(each)
        yield each


def _place(cls: type) -> str:
    """Return the module and the qualified name of a class as one text."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _open(cls: type) -> bool:
    """Return whether messages of a class accept keywords that are not fields."""
    return issubclass(cls, Struct) and bool(cls.__dictoffset__)
