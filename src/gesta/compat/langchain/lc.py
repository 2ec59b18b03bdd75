"""LangChain's own JSON form ("lc form") of actions, finishes and messages, written and read without LangChain.

`to_lc` writes the same bytes as `dumps` of langchain-core 1.7, and `from_lc` reads them. LangChain has no form of
`AgentStep`, so that form is Gesta's own. A stub takes the place of a value that JSON cannot hold: it contains the class
and the `repr` of the value. Reading never imports a class that the JSON names.
"""

import json
from typing import Any

from gesta.codec.rows import PythonValue
from gesta.compat.langchain.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep, taken
from gesta.compat.langchain.messages import MESSAGES, Serializable, message_of
from gesta.prompt import numbers_in_hex

ESCAPED = "__lc_escaped__"
AGENTS = ("AgentAction", "AgentActionMessageLog", "ToolAgentAction", "AgentStep", "AgentFinish")


def to_lc(value: Any, *, pretty: bool = False) -> str:
    """Return a value as JSON text. Actions, steps, finishes and messages in it are written in their lc form.

    A value that JSON cannot hold is written as a `not_implemented` stub with its `repr`, as in LangChain.

    Raises:
        ValueError: a value contains itself, or is nested too deeply.
    """
    try:
        return json.dumps(_written(value), indent=2 if pretty else None, default=_stub)
    except RecursionError:
        raise ValueError(f"a {type(value).__name__} inside itself, or nested too deeply, has no lc form") from None


def from_lc(text: str | bytes) -> Any:
    """Return the value that an lc JSON text describes. A stub becomes a `gesta.codec.rows.PythonValue`.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, or contains an object of an unknown class, a secret, or
            members that do not fit their class.
    """
    try:
        return _read(json.loads(text))
    except RecursionError:
        raise ValueError("this lc JSON is nested too deeply to be read") from None


def _written(value: Any) -> Any:
    value = taken(value)
    match value:
        case PythonValue():
            return {"lc": 1, "type": "not_implemented", "id": value.type.split("."), "repr": value.repr}
        case dict():
            if not _has_names(value):
                return _stub(value)
            if "lc" in value or list(value) == [ESCAPED]:
                return {ESCAPED: _escaped(value)}
            return {key: _written(each) for key, each in value.items()}
        case list() | tuple():
            return [_written(each) for each in value]
        case str() | int() | float() | None:
            return numbers_in_hex(value)
    if hasattr(value, "lc_id") or isinstance(value, Serializable):
        form = value.to_json()
        if "kwargs" in form:
            return {**form, "kwargs": {key: _written(each) for key, each in form["kwargs"].items()}}
    return _stub(value)


def _escaped(value: Any) -> Any:
    """Return a copy of a value in which a stub replaces each object that JSON cannot hold."""
    match value:
        case dict() if _has_names(value):
            return {key: _escaped(each) for key, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
        case str() | int() | float() | None:
            return numbers_in_hex(value)
    return _stub(value)


def _has_names(value: dict[Any, Any]) -> bool:
    """Return whether `json.dumps` accepts all keys of a dict: texts, numbers, true, false and null."""
    return all(key is None or isinstance(key, str | float) or isinstance(numbers_in_hex(key), int) for key in value)


def _stub(value: Any) -> dict[str, Any]:
    named = value if hasattr(value, "__name__") else type(value)
    path = [*str(getattr(named, "__module__", "")).split("."), named.__name__]
    try:
        text: str | None = repr(value)
    except Exception:  # noqa: BLE001 - a repr may raise anything
        text = None
    return {"lc": 1, "type": "not_implemented", "id": path, "repr": text}


def _read(value: Any) -> Any:
    match value:
        case {**all_} if list(all_) == [ESCAPED]:
            return all_[ESCAPED]
        case {"lc": 1, "type": "constructor", "id": [*_, str(name)], "kwargs": dict(kwargs)}:
            return _made(name, {key: _read(each) for key, each in kwargs.items()})
        case {"lc": 1, "type": "not_implemented", "id": list(path)}:
            return PythonValue(".".join(map(str, path)), str(value.get("repr") or ""))
        case {"lc": 1}:
            raise ValueError(f"found an lc object of type {value.get('type')!r}; expected a constructor")
        case dict():
            return {key: _read(each) for key, each in value.items()}
        case list():
            return [_read(each) for each in value]
        case _:
            return value


def _made(name: str, kwargs: dict[str, Any]) -> Any:
    """Return an object of LangChain's class `name` with the members `kwargs`.

    Raises ValueError if the class is unknown, or if the members do not fit it.
    """
    message = name.removesuffix("Chunk") in MESSAGES
    if not message and name not in AGENTS:
        raise ValueError(f"found an lc object {name!r}; expected one of {', '.join((*AGENTS, *MESSAGES))}")
    try:
        if message:
            return message_of(name, kwargs)
        if name == "AgentStep":
            action, entry = kwargs["action"], kwargs.pop("entry", None)
            fields = {field: getattr(action, field) for field in action.__struct_fields__ if field != "entry"}
            return AgentStep(**{**kwargs, "action": type(action)(**fields, entry=entry)})
        if name == "AgentFinish":
            return AgentFinish(**kwargs)
        return (AgentAction if name == "AgentAction" else AgentActionMessageLog)(**kwargs)
    except (AttributeError, KeyError, TypeError) as wrong:
        raise ValueError(f"the members of an lc {name} do not fit: {wrong}") from wrong
