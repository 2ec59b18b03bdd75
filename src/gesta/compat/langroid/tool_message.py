"""A tool message is a tool call as data: its class describes the calls that a model may make, an instance is one call.

The class is the only source of the tool's schema, validation and description. A call with an unknown field is refused,
and the model is told why. Only a `recipient` is accepted even if the class has no such field: it names the recipient of
the message. `as_tool_class` makes a class of tool messages from a pydantic model with `request` and `purpose`, whose
own rules then validate the calls.
"""

import copy
import inspect
import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, dataclass_transform, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from gesta.compat.langroid.facts import AGAIN, RESERVED, facts_of, fits, settle_defaults
from gesta.errors import BadArguments, BadTool, nearest
from gesta.function_tool.context import Context
from gesta.function_tool.signature import unwrapped
from gesta.function_tool.tool import Effect, Tool
from gesta.perform.call_contents import plain
from gesta.policy import Spelled
from gesta.text.objects import objects

OPTIONS: tuple[str, ...] = ("_handler", "_allow_llm_use", "_max_result_tokens", "_max_retained_tokens", "_strict")
OPTIONS += ("_tool_effect", "_tool_approval", "_tool_timeout_s", "_tool_key_s")
NAMED = re.compile(r"[\"']?request[\"']?\s*:\s*[\"']([A-Za-z0-9_-]{1,64})[\"']")
"""Finds the name of the tool in a JSON object that cannot be parsed."""
GROUP = """\
These are all the tools that you can use. To use one, write its JSON object as shown below, complete and with its
"request" member; text may stand around it. Anything else that you write is taken as text.

{json_instructions}
"""


class LLMFunctionSpec(Struct, kw_only=True):
    """The description of a tool for a provider's tool-calling interface."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments, which form an object."""


class ToolForm:
    """Base class of all tool messages, whether structs or pydantic models: their options and methods."""

    __slots__ = ()

    _handler: str = ""
    """Name of the agent's method that handles the message; if empty, the value of `request`."""
    _allow_llm_use: bool = True
    _tool_effect: Effect | None = None
    """Whether a call may be repeated, as in `@tool(effect=...)`; `None` means `once`: a call must never run twice."""
    _tool_approval: bool = False
    """Whether a person must approve the call before it runs."""
    _max_result_tokens: int | None = None
    """Longest result in tokens. The rest is cut off at once. `None` for no limit."""
    _max_retained_tokens: int | None = None
    """Longest result in tokens after the model has answered it. The rest is cut off then. `None` for no limit."""
    _tool_timeout_s: float | None = None
    """Timeout of the call in seconds; `None` for the timeout of the policy."""
    _tool_key_s: float = 86_400.0
    """Seconds for which a call may be repeated, if `_tool_effect` is `idempotent`."""
    _strict: bool | None = None
    """Whether the provider is asked to enforce the schema. It has no effect if a field of the tool is optional."""
    _along: "ClassVar[tuple[type[ToolForm], ...]]" = ()
    """Further classes of tool messages that `enable_message` enables together with this class."""
    _addressed: bool = False
    """Whether `recipient` is the recipient of the message, although it is a field of the class."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the tool."""
        return facts_of(cls).name

    @classmethod
    def instructions(cls) -> str:
        """Return further instructions for the model; empty unless a class overrides the method."""
        return ""

    @classmethod
    def calls_in(cls, text: str) -> list[tuple[dict[str, Any], int, int]]:
        """Return the calls in a text: arguments, start and end of each. Empty unless a subclass has its own format."""
        del text
        return []

    @classmethod
    def arguments_read(cls, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call for the fields of the class; `XMLToolMessage` makes numbers of its texts."""
        return dict(args)

    @classmethod
    def examples(cls) -> Sequence["ToolForm | tuple[str, ToolForm]"]:
        """Return examples: messages, or pairs of a thought and the message that follows from it."""
        return []

    @classmethod
    def usage_examples(cls, random: bool = False) -> str:  # noqa: FBT001, FBT002 - the name that users know
        """Return the examples as text. With `random`, show one example, always the same, so that prompts stay equal."""
        examples = list(cls.examples())
        if random and examples:
            examples = [examples[zlib.crc32(facts_of(cls).name.encode()) % len(examples)]]
        pairs = [each if isinstance(each, tuple) else ("", each) for each in examples]
        shown = [f"{thought}\n{to_json(message)}" if thought else to_json(message) for thought, message in pairs]
        return "\n\n".join(f"EXAMPLE {n}: {text}" for n, text in enumerate(shown, 1))

    @classmethod
    def default_value(cls, f: str) -> Any:
        """Return the default of a field; `None` if there is no such field or it has no default."""
        return copy.deepcopy(facts_of(cls).defaults.get(f))

    @classmethod
    def llm_function_schema(cls, request: bool = False, defaults: bool = True) -> LLMFunctionSpec:  # noqa: FBT001, FBT002
        """Return the description of the tool for a provider's tool-calling interface.

        Args:
            request: whether to include the field `request`.
            defaults: whether to include fields that have a default.
        """
        facts = facts_of(cls)
        schema = _copied(facts.schema)
        if not defaults:
            schema["properties"] = {key: schema["properties"][key] for key in schema["required"]}
        if request:
            own = {"request": {"type": "string", "enum": [facts.name]}}
            schema |= {"properties": own | schema["properties"], "required": ["request", *schema["required"]]}
        return LLMFunctionSpec(name=facts.name, description=facts.purpose, parameters=schema)

    @classmethod
    def simple_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of `request` and of the required fields."""
        return cls.llm_function_schema(request=True, defaults=False).parameters

    @classmethod
    def json_instructions(cls, tool: bool = False) -> str:  # noqa: FBT001, FBT002 - the name that users know
        """Return the tool's description as text. With `tool`, for models that write calls as text, it shows a call."""
        spec = cls.llm_function_schema(request=tool)
        parts = [
            f"TOOL: {spec.name}",
            f"PURPOSE: {spec.description}",
            f"JSON SCHEMA: {json.dumps(spec.parameters, ensure_ascii=False)}",
            cls.instructions(),
            cls.usage_examples() if tool else "",
        ]
        return "\n".join(filter(None, parts))

    @staticmethod
    def json_group_instructions() -> str:
        """Return a template for the model. The instructions of all tools replace `{json_instructions}` in it."""
        return GROUP

    @classmethod
    def require_recipient(cls) -> "type[ToolForm]":
        """Return a subclass of the same name with a required field `recipient`, which the model must fill."""

        class Addressed(cls):  # type: ignore[misc, valid-type]  # the base is known only at run time
            _addressed: ClassVar[bool] = True
            recipient: Annotated[str, Meta(description="Name of whom this message is for.")]

        for kept in ("__module__", "__name__", "__qualname__", "__doc__"):
            type.__setattr__(Addressed, kept, getattr(cls, kept))
        return Addressed

    def get_value_of_type(self, target_type: Any) -> Any:
        """Return the value of the first field that has this type; `None` if there is none."""
        return next((value for value in values_of(self).values() if fits(value, target_type)), None)

    def dict_example(self) -> dict[str, Any]:
        """Return the message as a dict of JSON values with its `request`, as a model would send it."""
        return {"request": facts_of(type(self)).name} | arguments_of(self)

    def to_json(self) -> str:
        """Return the message as JSON text, as a model would send it."""
        return to_json(self)

    def format_example(self) -> str:
        """Return the message as JSON text, as a model would send it."""
        return to_json(self)


BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")


class ToolMeta(Spelled):
    """A metaclass that allows a field without default to follow `request` and `purpose`, also in subclasses."""

    def __new__(mcls, name: str, bases: Any, namespace: Any) -> Any:  # noqa: D102
        stated = namespace.get("__annotations__", {})
        for option in [each for each in stated if each.startswith("_")]:  # pydantic does not treat these as fields
            del stated[option]
        settle_defaults(namespace)
        return super().__new__(mcls, name, bases, namespace, kw_only=True)


@dataclass_transform(kw_only_default=True)
class ToolMessage(ToolForm, Struct, metaclass=ToolMeta):
    """A message with which a model calls a tool. Subclass it, and declare the fields that the model fills."""

    request: str
    """Name of the tool, and by default of the agent's method that handles the message."""
    purpose: str = ""
    """What the tool is for, in words for the model."""

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Return a message made from a mapping, or an instance unchanged. Raises BadArguments for wrong values."""
        made = facts_of(cls).build(obj) if isinstance(obj, Mapping) else obj
        if not isinstance(made, cls):
            raise BadArguments(f"Found {obj!r:.200}, expected the fields of a {cls.__name__}.")
        return made

    def model_dump(self, *, mode: str = "json", exclude: Collection[str] = ()) -> dict[str, Any]:
        """Return all fields, including `request` and `purpose`: as JSON values, or unchanged if `mode` is `python`."""
        values = arguments_of(self) if mode == "json" else values_of(self)
        every = {"request": facts_of(type(self)).name, "purpose": self.purpose} | values
        return {name: value for name, value in every.items() if name not in exclude}

    def json(self, *, indent: int | None = None, exclude: Collection[str] = ()) -> str:
        """Return all fields as JSON text; the same as `model_dump_json`."""
        return self.model_dump_json(indent=indent, exclude=exclude)

    def model_dump_json(self, *, indent: int | None = None, exclude: Collection[str] = ()) -> str:
        """Return all fields as JSON text, including `request` and `purpose`."""
        return json.dumps(self.model_dump(exclude=exclude), ensure_ascii=False, indent=indent)


def as_tool_class(cls: type) -> type[ToolForm]:
    """Return a class of tool messages: the class itself, or a class made from a pydantic model.

    Raises BadTool for any other class.
    """
    if not isinstance(cls, type):
        raise BadTool(f"Found {cls!r}, expected a class of tool messages.")
    if issubclass(cls, ToolForm):
        return cls
    fields: Mapping[str, Any] = getattr(cls, "model_fields", {})
    if not (hasattr(cls, "model_validate") and set(RESERVED) <= set(fields)):
        wanted = "a subclass of ToolMessage, or a pydantic model with `request` and `purpose`"
        raise BadTool(f"{cls.__name__!r} is not a class of tool messages; expected {wanted}.")
    if "_tool_class" not in cls.__dict__:
        make: Any = type(cls)
        made = make(cls.__name__, (cls, ToolForm), {"__module__": cls.__module__, "__doc__": cls.__doc__})
        private: Mapping[str, Any] = getattr(cls, "__private_attributes__", {})
        for option in OPTIONS:
            default = private[option].default if option in private else getattr(cls, option, getattr(ToolForm, option))
            type.__setattr__(made, option, default)
        type.__setattr__(cls, "_tool_class", made)
    found: type[ToolForm] = cls.__dict__["_tool_class"]
    return found


class MessageTool(Tool, frozen=True, kw_only=True, eq=False):
    """A tool whose function takes one tool message as its argument."""

    build: Callable[[Mapping[str, Any]], Any]

    def arguments(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dict with the message made from `args`. Raises BadArguments if `args` do not fit its class."""
        return {"message": self.build(args)}


def contexts(function: Callable[..., Any]) -> set[str]:
    """Return the names of a handler's parameters whose type is `Context`, the context of the tool call."""
    target = unwrapped(function)[1]
    try:
        hints = get_type_hints(target)
    except Exception:  # noqa: BLE001 - an annotation with an unknown name is not a `Context`
        hints = getattr(target, "__annotations__", {})
    return {name for name, hint in hints.items() if name != "return" and _is_context(hint)}


def _is_context(hint: Any) -> bool:
    if isinstance(hint, str):  # the annotation is in quotes
        return Context.__name__ in re.split(r"\W+", hint)
    return any(each is Context for each in (hint, *get_args(hint)))


def as_tool(cls: type, handler: Callable[..., Any], effect: Effect | None = None) -> Tool:
    """Return a tool that calls `handler` with each message of class `cls`. Raises BadTool if `cls` has no tool name."""
    known = as_tool_class(cls)
    facts = facts_of(known)
    if not facts.name:
        raise BadTool(f'{cls.__name__!r} has no name to call it by. Write `request: str = "..."` in it.')

    wanted = contexts(handler)

    def call(message: Any, context: Any = None) -> Any:
        return handler(message, **dict.fromkeys(wanted, context))

    async def call_async(message: Any, context: Any = None) -> Any:
        return await handler(message, **dict.fromkeys(wanted, context))

    bound = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
    return MessageTool(
        name=facts.name,
        description=facts.purpose,
        args_schema=_copied(facts.schema),
        function=call_async if bound else call,
        context_names=("context",) if wanted else (),
        effect=effect or "once",
        declared=effect is not None,
        approval=known._tool_approval,  # noqa: SLF001 - settings of the class
        timeout_s=known._tool_timeout_s,  # noqa: SLF001 - as above
        key_s=known._tool_key_s,  # noqa: SLF001 - as above
        build=facts.build,
    )


class Attempt(Struct, frozen=True, kw_only=True):
    """A call of a tool that was found in a model's reply, valid or not."""

    name: str
    tool: ToolForm | None = None
    problem: str | None = None
    """Why no message could be made from the call, in words for the model; `None` for a valid call."""
    recipient: str = ""
    """Recipient of the message, if the call names one and the tool has no such argument."""
    start: int = 0
    end: int = 0
    """Start and end of the call in the text."""


def attempt(name: str, args: Mapping[str, Any], tools: Mapping[str, type[ToolForm]]) -> Attempt:
    """Return the tool message of a call, or the problem with the call. `tools` are the known classes by tool name."""
    cls, recipient = tools.get(name), address_in(name, args, tools)
    if cls is None:
        problem = f"There is no tool {name!r}.{nearest(name, tools)} Tools: {', '.join(tools) or 'none'}."
        return Attempt(name=name, problem=problem, recipient=recipient)
    try:
        return Attempt(name=name, tool=facts_of(cls).build(cls.arguments_read(args)), recipient=recipient)
    except BadArguments as wrong:
        return Attempt(name=name, problem=str(wrong), recipient=recipient)


def address_in(name: str, args: Mapping[str, Any], tools: Mapping[str, type[ToolForm]]) -> str:
    """Return the recipient that a call names; empty if there is none, or if `recipient` is an argument of the tool.

    `tools` are the known classes by tool name.
    """
    cls, given = tools.get(name), args.get("recipient")
    own = cls is not None and "recipient" in facts_of(cls).fields and not cls._addressed
    return given if isinstance(given, str) and not own else ""


def attempts(text: str, tools: Mapping[str, type[ToolForm]]) -> list[Attempt]:
    """Return the calls in a text: those in a tool's own format or, if there are none, JSON objects with a `request`.

    `tools` are the known classes by tool name.
    """
    made: list[Attempt] = []
    for args, start, end in next(filter(None, (cls.calls_in(text) for cls in tools.values())), []):
        one = attempt(str(args.get("request", "")), args, tools)
        made.append(msgspec.structs.replace(one, start=start, end=end))
    if made:
        return made
    for found in objects(text) if "request" in text else ():
        if found.value is None:
            if named := NAMED.search(text, found.start, found.end):
                name, again = named[1], AGAIN.format(name=named[1])
                problem = f"The JSON of {name!r} can not be read: {found.problem}. {again}"
                made.append(Attempt(name=name, problem=problem, start=found.start, end=found.end))
        elif isinstance(name := found.value.get("request"), str):
            one = attempt(name, found.value, tools)
            made.append(msgspec.structs.replace(one, start=found.start, end=found.end))
    return made


def values_of(message: Any) -> dict[str, Any]:
    """Return the fields of a message as a dict, without `request` and `purpose`."""
    names = message.__struct_fields__ if isinstance(message, Struct) else type(message).model_fields
    more = getattr(message, "__dict__" if isinstance(message, Struct) else "model_extra", None) or {}
    return {name: getattr(message, name) for name in [*names, *more] if name not in RESERVED}


def arguments_of(message: Any) -> dict[str, Any]:
    """Return the fields of a message as a dict of JSON values, without `request` and `purpose`."""
    if not isinstance(message, Struct):
        dumped = message.model_dump(mode="json")
        return {name: dumped[name] for name in dumped if name not in RESERVED}
    return {name: plain(value) for name, value in values_of(message).items()}


def to_json(message: ToolForm) -> str:
    """Return a message as JSON text, as a model would send it."""
    return json.dumps(ToolForm.dict_example(message), ensure_ascii=False, indent=4, default=str)


def _copied(value: Any) -> Any:
    """Return a deep copy of a JSON value. For JSON values, this is three times as fast as `deepcopy`."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
