"""LangChain's own JSON of actions, finishes and messages, and its scratchpads, without LangChain.

`to_lc` writes byte for byte what langchain-core's `dumps` writes (1.7), `from_lc` reads it back. Where theirs loses
something ours does not: an `AgentStep` has a form here, and no scratchpad drops an observation, merges equal rounds or
leaves a call without an answer. What is read is data: no class is looked up by the path that stands in it.
"""

import json
from collections.abc import Iterable
from typing import Any

from gesta.codec.rows import PythonValue
from gesta.compat.langchain.steps import (
    UNANSWERED,
    AgentAction,
    AgentActionMessageLog,
    AgentFinish,
    AgentStep,
    LogMessage,
    Round,
    rounds,
)
from gesta.prompt.formatter import numbers_in_hex, observation_text

Pairs = Iterable[AgentStep | tuple[AgentAction, Any]]
"""Steps, as Gesta or as LangChain keeps them."""

ESCAPED = "__lc_escaped__"
MESSAGES = {f"{name}Message": name.lower() for name in ("AI", "Human", "System", "Tool", "Function", "Chat", "Remove")}
NAMES = {type_: name for name, type_ in MESSAGES.items()}
AGENTS = ("AgentAction", "AgentActionMessageLog", "ToolAgentAction", "AgentStep", "AgentFinish")
ORDER = (
    *("content", "additional_kwargs", "response_metadata", "type", "name", "id"),
    *("tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_chunks", "chunk_position"),
    *("tool_call_id", "artifact", "status", "role"),
)
"""Members of messages, in LangChain's order."""
KEPT = ("content", "type")
"""Members that are written whatever they are."""
COLLECTIONS = ("additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls", "tool_call_chunks")
"""Members that are not written when empty."""
OWN = ("type", "content", "name", "id", "tool_call_id", "tool_calls")
INVALID = ("type", "id", "name", "args", "error")
TAGS = str.maketrans("<>", "[]")
XML = tuple(f"<{end}{tag}>" for tag in ("tool", "tool_input", "observation", "final_answer") for end in ("", "/"))


# ---------------------------------------------------------------------------------------------------- lc JSON
def to_lc(value: Any, *, pretty: bool = False) -> str:
    """Write a value that may hold actions, steps, finishes and messages as lc JSON.

    What JSON cannot hold stands as a `not_implemented` stub with its repr, as in LangChain.

    Raises:
        ValueError: a value lies inside itself.
    """
    try:
        return json.dumps(_written(value), indent=2 if pretty else None, default=_stub)
    except RecursionError:
        raise ValueError(f"a {type(value).__name__} inside itself, or nested too deeply, has no lc form") from None


def from_lc(text: str | bytes) -> Any:
    """Read lc JSON. A `not_implemented` stub comes back as `gesta.codec.rows.PythonValue`.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or holds an object of another kind, a secret, or
            fields that do not fit.
    """
    try:
        return _read(json.loads(text))
    except RecursionError:
        raise ValueError("this lc JSON is nested too deeply to be read") from None


def _written(value: Any) -> Any:
    match value:
        case AgentAction() | AgentStep() | AgentFinish():
            name, kwargs = type(value).__name__, _agent(value)
            if "tool_call_id" in kwargs:
                name = "ToolAgentAction"
        case LogMessage():
            name, kwargs = NAMES.get(value.type, value.type), _message(value)
        case PythonValue():
            return {"lc": 1, "type": "not_implemented", "id": value.type.split("."), "repr": value.repr}
        case dict():
            if not all(isinstance(key, str | int | float | bool | None) for key in value):
                return _stub(value)
            if "lc" in value or list(value) == [ESCAPED]:
                return {ESCAPED: value}
            return {key: _written(each) for key, each in value.items()}
        case list() | tuple():
            return [_written(each) for each in value]
        case _:
            return numbers_in_hex(value) if isinstance(value, str | int | float | bool | None) else _stub(value)
    path = [*value.get_lc_namespace(), name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {key: _written(kwargs[key]) for key in kwargs}}


def _agent(value: AgentAction | AgentStep | AgentFinish) -> dict[str, Any]:
    """Return the members of a shape, in LangChain's order. Ids of entries stand in steps only, whose form is ours."""
    match value:
        case AgentFinish():
            return {"return_values": value.return_values, "log": value.log, "type": value.type}
        case AgentStep():
            more = {"outcome": value.outcome, "entry": value.action.entry}
            known = {key: each for key, each in more.items() if each is not None}
            return {"action": value.action, "observation": value.observation, **known}
    found: dict[str, Any] = {"tool": value.tool, "tool_input": value.tool_input, "log": value.log, "type": value.type}
    if isinstance(value, AgentActionMessageLog):
        found["message_log"] = list(value.message_log)
        if value.tool_call_id is not None:
            found["tool_call_id"] = value.tool_call_id
    return found


def _message(message: LogMessage) -> dict[str, Any]:
    """Return the members of a message that LangChain would write, in its order."""
    every = {**message.rest, **{name: getattr(message, name) for name in OWN}, "tool_calls": list(message.tool_calls)}
    kind = message.type.removesuffix("Chunk")
    if kind in ("tool", "ToolMessage"):
        every.setdefault("status", "success")
    if "invalid_tool_calls" in every:
        every["invalid_tool_calls"] = [
            {**{key: call.get(key) for key in INVALID}, **call, "type": "invalid_tool_call"}
            for call in every["invalid_tool_calls"]
        ]
    found = {}
    for key in (*ORDER, *(key for key in message.rest if key not in ORDER)):
        each = every.get(key)
        if key in KEPT or each or (each is not None and key not in COLLECTIONS):
            found[key] = each
    if kind in ("ai", "AIMessage"):
        found.setdefault("tool_calls", [])
        found.setdefault("invalid_tool_calls", [])
    return found


def _stub(value: Any) -> dict[str, Any]:
    """Stand in for what JSON cannot hold."""
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
    """Make the object of a constructor."""
    message = name.removesuffix("Chunk") in MESSAGES
    if not message and name not in AGENTS:
        raise ValueError(f"found an lc object {name!r}; expected one of {', '.join((*AGENTS, *MESSAGES))}")
    try:
        if message:
            return _message_of(name, kwargs)
        if name == "AgentStep":
            action, entry = kwargs["action"], kwargs.pop("entry", None)
            fields = {field: getattr(action, field) for field in action.__struct_fields__ if field != "entry"}
            return AgentStep(**{**kwargs, "action": type(action)(**fields, entry=entry)})
        if name == "AgentFinish":
            return AgentFinish(**kwargs)
        return (AgentAction if name == "AgentAction" else AgentActionMessageLog)(**kwargs)
    except (AttributeError, KeyError, TypeError) as wrong:
        raise ValueError(f"the members of an lc {name} do not fit: {wrong}") from wrong


def _message_of(name: str, kwargs: dict[str, Any]) -> LogMessage:
    own = {key: kwargs[key] for key in OWN if key in kwargs}
    own["type"] = MESSAGES.get(name, name)
    rest = {key: each for key, each in kwargs.items() if key not in OWN and (each or key not in COLLECTIONS)}
    if rest.get("status") == "success":
        del rest["status"]
    return LogMessage(**own, rest=rest)


# ------------------------------------------------------------------------------------------------- scratchpads
def format_log_to_str(steps: Pairs, observation_prefix: str = "Observation: ", llm_prefix: str = "Thought: ") -> str:
    """Write logs and observations as one text that the model goes on with."""
    return "".join(
        f"{step.action.log}\n{observation_prefix}{observation_text(step.observation)}\n{llm_prefix}"
        for step in _steps(steps)
    )


def format_log_to_messages(steps: Pairs, template_tool_response: str = "{observation}") -> list[LogMessage]:
    """Return each log as an ai message and each observation, in the template, as a human one."""
    found: list[LogMessage] = []
    for step in _steps(steps):
        text = template_tool_response.format(observation=observation_text(step.observation))
        found += [LogMessage("ai", step.action.log), LogMessage("human", text)]
    return found


def format_to_openai_function_messages(steps: Pairs) -> list[LogMessage]:
    """Return message logs, each followed by a function message; a plain action's observation is a human message."""
    found: list[LogMessage] = []
    for step in _steps(steps):
        text, action = observation_text(step.observation), step.action
        if isinstance(action, AgentActionMessageLog):
            found += [*action.messages, LogMessage("function", text, name=action.tool)]
        else:
            found += [*action.messages, LogMessage("human", text)]
    return found


def format_to_tool_messages(steps: Pairs) -> list[LogMessage]:
    """Return each reply once, then one tool message for each of its calls; a call without a step is answered so."""
    found: list[LogMessage] = []
    for item in rounds(_steps(steps)):
        if isinstance(item, Round):
            found += item.first.messages
            found += _answers(item)
        elif isinstance(item, AgentStep):
            named = f"[Late result of {item.action.tool}]\n{observation_text(item.observation)}"
            found.append(LogMessage("human", named))
    return found


def format_xml(steps: Pairs, *, escape_format: str | None = "minimal") -> str:
    """Write tools, inputs and observations in tags; tags inside them turn into `[[tag]]` unless that is off."""
    found = ""
    for step in _steps(steps):
        texts = step.action.tool, observation_text(step.action.tool_input), observation_text(step.observation)
        tool, tool_input, seen = (_escape(text) for text in texts) if escape_format == "minimal" else texts
        found += f"<tool>{tool}</tool><tool_input>{tool_input}</tool_input><observation>{seen}</observation>"
    return found


def _steps(steps: Pairs) -> list[AgentStep]:
    return [step if isinstance(step, AgentStep) else AgentStep(*step) for step in steps]


def _answers(item: Round) -> Iterable[LogMessage]:
    for place, call in enumerate(item.asked):
        step = item.steps.get(place)
        text = UNANSWERED if step is None else observation_text(step.observation)
        named = {"additional_kwargs": {"name": call["name"]}}
        yield LogMessage("tool", text, tool_call_id=call["id"], rest=named)
    if not item.asked:
        yield from item.steps[0].messages


def _escape(text: str) -> str:
    for tag in XML:
        text = text.replace(tag, f"[{tag.translate(TAGS)}]")
    return text
