"""A tool message is a call as data: a class says what a model may send, an instance is what it sent.

The class is the schema, the check and the words that tell a model of it; all three are read from it once. A field
that it does not have is refused, and the model is told, so nothing that a model wrote is lost unseen. Only `recipient`
is taken where there is no such field: it says to whom a message goes. A pydantic model with `request` and `purpose`
becomes such a class by `as_tool_class`; its own rules decide then what fits.
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
from gesta.perform.result import plain
from gesta.policy import Spelled
from gesta.text.objects import objects

OPTIONS: tuple[str, ...] = (
    "_handler",
    "_allow_llm_use",
    "_max_result_tokens",
    "_max_retained_tokens",
    "_tool_effect",
    "_tool_approval",
)
OPTIONS += ("_tool_timeout_s", "_strict")
NAMED = re.compile(r"[\"']?request[\"']?\s*:\s*[\"']([A-Za-z0-9_-]{1,64})[\"']")
"""The name of a tool in an object that cannot be read."""
GROUP = """\
These are all the tools that you can use. To use one, write its JSON object as shown below, complete and with its
"request" member; text may stand around it. Anything else that you write is taken as text.

{json_instructions}
"""


class LLMFunctionSpec(Struct, kw_only=True):
    """A tool as the calling interface of a provider is told."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of an object."""


class ToolForm:
    """What every class of tool messages can tell of itself, whatever it is made with."""

    __slots__ = ()

    _handler: str = ""
    """Method of the agent that handles it; empty: the one named as the request."""
    _allow_llm_use: bool = True
    _tool_effect: Effect | None = None
    """What carrying it out does, as in `@tool(effect=...)`; None: it must not happen twice."""
    _tool_approval: bool = False
    """Whether a person is asked before it is carried out."""
    _max_result_tokens: int | None = None
    """What is cut of a result at once."""
    _max_retained_tokens: int | None = None
    """What is cut of a result once the model has answered it."""
    _tool_timeout_s: float | None = None
    """Seconds that carrying it out may take; `None` for the policy's."""
    _strict: bool | None = None
    """Whether the provider holds the model to the schema, where it can and every field has to be filled."""
    _along: "ClassVar[tuple[type[ToolForm], ...]]" = ()
    """Classes that are enabled with it."""
    _addressed: bool = False
    """Whether its `recipient` says to whom the message goes, and is not a matter of the tool."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which it is called."""
        return facts_of(cls).name

    @classmethod
    def instructions(cls) -> str:
        """Return what else a model should know; empty unless a class overrides it."""
        return ""

    @classmethod
    def calls_in(cls, text: str) -> list[tuple[dict[str, Any], int, int]]:
        """Return the calls that a text holds in a form of the class's own, each with where it begins and ends."""
        del text
        return []

    @classmethod
    def arguments_read(cls, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as what the fields hold, where its form writes them otherwise."""
        return dict(args)

    @classmethod
    def examples(cls) -> Sequence["ToolForm | tuple[str, ToolForm]"]:
        """Return examples: messages, or pairs of the thought that leads to one and the message."""
        return []

    @classmethod
    def usage_examples(cls, random: bool = False) -> str:  # noqa: FBT001, FBT002 - the name that users know
        """Show the examples, each as JSON; `random` takes one of them, always the same, so that prompts stay equal."""
        examples = list(cls.examples())
        if random and examples:
            examples = [examples[zlib.crc32(facts_of(cls).name.encode()) % len(examples)]]
        pairs = [each if isinstance(each, tuple) else ("", each) for each in examples]
        shown = [f"{thought}\n{to_json(message)}" if thought else to_json(message) for thought, message in pairs]
        return "\n\n".join(f"EXAMPLE {n}: {text}" for n, text in enumerate(shown, 1))

    @classmethod
    def default_value(cls, f: str) -> Any:
        """Return the default of a field; `None` if it has no default, or if there is no such field."""
        return copy.deepcopy(facts_of(cls).defaults.get(f))

    @classmethod
    def llm_function_schema(cls, request: bool = False, defaults: bool = True) -> LLMFunctionSpec:  # noqa: FBT001, FBT002
        """Return the schema for a provider. `request` adds that field; `defaults` keeps the fields with defaults."""
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
        """Return the schema of the request and of what must be filled."""
        return cls.llm_function_schema(request=True, defaults=False).parameters

    @classmethod
    def json_instructions(cls, tool: bool = False) -> str:  # noqa: FBT001, FBT002 - the name that users know
        """Return instructions for a model. `tool` is for calls that it writes as text, which hold the request."""
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
        """Return the template of the instructions for all tools, with `{json_instructions}` for each tool's own."""
        return GROUP

    @classmethod
    def require_recipient(cls) -> "type[ToolForm]":
        """Make a class that also demands to whom the message goes."""

        class Addressed(cls):  # type: ignore[misc, valid-type]  # a class like its own
            _addressed: ClassVar[bool] = True
            recipient: Annotated[str, Meta(description="Name of whom this message is for.")]

        for kept in ("__module__", "__name__", "__qualname__", "__doc__"):
            type.__setattr__(Addressed, kept, getattr(cls, kept))
        return Addressed

    def get_value_of_type(self, target_type: Any) -> Any:
        """Return the first field whose value is of a type, or `None`."""
        return next((value for value in values_of(self).values() if fits(value, target_type)), None)

    def dict_example(self) -> dict[str, Any]:
        """Return the message as a model would send it."""
        return {"request": facts_of(type(self)).name} | arguments_of(self)

    def to_json(self) -> str:
        """Write it as a model would send it."""
        return to_json(self)

    def format_example(self) -> str:
        """Write it as a model would send it."""
        return to_json(self)


BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")


class ToolMeta(Spelled):
    """A metaclass that allows a field without default to follow `request` and `purpose`, in subclasses too."""

    def __new__(mcls, name: str, bases: Any, namespace: Any) -> Any:  # noqa: D102
        stated = namespace.get("__annotations__", {})
        for option in [each for each in stated if each.startswith("_")]:  # in pydantic, such a field is no argument
            del stated[option]
        settle_defaults(namespace)
        return super().__new__(mcls, name, bases, namespace, kw_only=True)


@dataclass_transform(kw_only_default=True)
class ToolMessage(ToolForm, Struct, metaclass=ToolMeta):
    """A message that a model sends to use a tool: subclass it, with the fields that the model fills."""

    request: str
    """Name of the tool, and of the method that handles it."""
    purpose: str = ""
    """What it is for, in words for a model."""

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Make a message of a mapping, as of a message of the class. Raises BadArguments."""
        made = facts_of(cls).build(obj) if isinstance(obj, Mapping) else obj
        if not isinstance(made, cls):
            raise BadArguments(f"Found {obj!r:.200}, expected the fields of a {cls.__name__}.")
        return made

    def model_dump(self, *, mode: str = "json", exclude: Collection[str] = ()) -> dict[str, Any]:
        """Return its fields, the reserved ones too: as JSON values, or as they are with the mode `python`."""
        values = arguments_of(self) if mode == "json" else values_of(self)
        every = {"request": facts_of(type(self)).name, "purpose": self.purpose} | values
        return {name: value for name, value in every.items() if name not in exclude}

    def json(self, *, indent: int | None = None, exclude: Collection[str] = ()) -> str:
        """Write its fields as JSON; see `model_dump_json`."""
        return self.model_dump_json(indent=indent, exclude=exclude)

    def model_dump_json(self, *, indent: int | None = None, exclude: Collection[str] = ()) -> str:
        """Write its fields as JSON, the reserved ones too."""
        return json.dumps(self.model_dump(exclude=exclude), ensure_ascii=False, indent=indent)


def as_tool_class(cls: type) -> type[ToolForm]:
    """Return a class of tool messages as it is, and a pydantic model as such a class. Raises BadTool for others."""
    if not isinstance(cls, type):
        raise BadTool(f"Found {cls!r}, expected a class of tool messages.")
    if issubclass(cls, ToolForm):
        return cls
    fields: Mapping[str, Any] = getattr(cls, "model_fields", {})
    if not (hasattr(cls, "model_validate") and set(RESERVED) <= set(fields)):
        wanted = "a subclass of ToolMessage, or a pydantic model with `request` and `purpose`"
        raise BadTool(f"{cls.__name__!r} is no class of tool messages; expected {wanted}.")
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
    """A tool whose function takes one message."""

    build: Callable[[Mapping[str, Any]], Any]

    def arguments(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Make the message. Raises BadArguments."""
        return {"message": self.build(args)}


def contexts(function: Callable[..., Any]) -> set[str]:
    """Name the parameters of a handler that get the `Context` of its call."""
    target = unwrapped(function)[1]
    try:
        hints = get_type_hints(target)
    except Exception:  # noqa: BLE001 - a name that is not known there is no `Context`
        hints = getattr(target, "__annotations__", {})
    return {name for name, hint in hints.items() if name != "return" and _is_context(hint)}


def _is_context(hint: Any) -> bool:
    if isinstance(hint, str):  # of an annotation in quotes
        return Context.__name__ in re.split(r"\W+", hint)
    return any(each is Context for each in (hint, *get_args(hint)))


def as_tool(cls: type, handler: Callable[..., Any], effect: Effect | None = None) -> Tool:
    """Make a tool that hands each message to `handler`, which may be async, and take the `Context`. Raises BadTool."""
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
        build=facts.build,
    )


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of a model to use a tool."""

    name: str
    tool: ToolForm | None = None
    problem: str | None = None
    """Why there is no message, in words for the model."""
    recipient: str = ""
    """To whom it goes, where that is said beside what the tool takes."""
    start: int = 0
    end: int = 0
    """Where it stands in the text."""


def attempt(name: str, args: Mapping[str, Any], tools: Mapping[str, type[ToolForm]]) -> Attempt:
    """Make a message of a call; tools go by their name."""
    cls, recipient = tools.get(name), address_in(name, args, tools)
    if cls is None:
        problem = f"There is no tool {name!r}.{nearest(name, tools)} Tools: {', '.join(tools) or 'none'}."
        return Attempt(name=name, problem=problem, recipient=recipient)
    try:
        return Attempt(name=name, tool=facts_of(cls).build(cls.arguments_read(args)), recipient=recipient)
    except BadArguments as wrong:
        return Attempt(name=name, problem=str(wrong), recipient=recipient)


def address_in(name: str, args: Mapping[str, Any], tools: Mapping[str, type[ToolForm]]) -> str:
    """Return whom a call names as its `recipient`, unless that is a matter of the tool, as of one that sends mail."""
    cls, given = tools.get(name), args.get("recipient")
    own = cls is not None and "recipient" in facts_of(cls).fields and not cls._addressed
    return given if isinstance(given, str) and not own else ""


def attempts(text: str, tools: Mapping[str, type[ToolForm]]) -> list[Attempt]:
    """Read the tries in a text, in a form of a tool's own or else objects with a `request`; no other object is one."""
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
    """Return what a model, or a program, filled in, as it is."""
    names = message.__struct_fields__ if isinstance(message, Struct) else type(message).model_fields
    more = getattr(message, "__dict__" if isinstance(message, Struct) else "model_extra", None) or {}
    return {name: getattr(message, name) for name in [*names, *more] if name not in RESERVED}


def arguments_of(message: Any) -> dict[str, Any]:
    """Return what a model, or a program, filled in, as JSON values."""
    if not isinstance(message, Struct):
        dumped = message.model_dump(mode="json")
        return {name: dumped[name] for name in dumped if name not in RESERVED}
    return {name: plain(value) for name, value in values_of(message).items()}


def to_json(message: ToolForm) -> str:
    """Write a message as a model would send it."""
    return json.dumps(ToolForm.dict_example(message), ensure_ascii=False, indent=4, default=str)


def _copied(value: Any) -> Any:
    """Copy JSON, in a third of the time that `deepcopy` takes: schemas are made for each reply."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
