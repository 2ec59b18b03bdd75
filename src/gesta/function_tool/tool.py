"""A tool is a typed function that a model may call. Its signature gives the schema and the check of arguments.

The tool state of a run is a word that decides which tools the run may use; tools can change it. The schema is made
once, with the tool. `arguments` converts a model's arguments to keyword arguments. If some are wrong, it raises
`BadArguments` with every wrong path, so that the model can correct them all at once. Types are as strict as JSON (`"5"`
is not an integer), except that 5.0 is accepted as 5. A tool whose author declares no effect has the effect `once`, with
`declared` False. The docstring is the description for the model; `with_texts` replaces it.
"""

import functools
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, Unpack, get_args, overload

import msgspec
from anyio import to_thread
from msgspec import UNSET, Struct, ValidationError
from msgspec.structs import force_setattr

from gesta.content import ToolServer
from gesta.errors import BadArguments, BadTool, nearest
from gesta.function_tool.context import Context, Reconcile
from gesta.function_tool.reconcile import check_reconcile
from gesta.function_tool.signature import MOST, cut, named, read_signature, unknown_members, unwrapped
from gesta.text.objects import MAX_DEPTH, deeper

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    F = TypeVar("F", covariant=True, default=Any)  # noqa: PLC0105 - users read this name in messages of type checkers
else:
    from typing import TypeVar

    F = TypeVar("F")
G = TypeVar("G", bound=Callable[..., Any])

Effect = Literal["pure", "idempotent", "once", "transactional"]
OnDoubt = Literal["ask", "tell"]
YIELDING = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
FLAT = ("string", "integer", "number", "boolean", "null")
"""JSON types whose values have no members."""

KINDS: tuple[tuple[str, Any, str], ...] = (
    *((option, bool, "True or False") for option in ("approval", "strict")),
    *(("state", str | None, "a name"), ("certain", tuple | list, "classes of exceptions")),
    ("ends_turn", bool | str, "True, or the text of the answer"),
)
BY_RULE = " To ask a person about some calls only, write a hook that returns AskPerson: see docs/hooks.md."
UNSAID: Mapping[str, Any] = MappingProxyType(
    {"effect": "once", "approval": False, "timeout_s": None, "on_doubt": "ask", "group": (), "state": None}
    | {"applicable_states": (), "ends_turn": False, "expires_s": None, "asks": False, "answer_schema": None}
)
"""The rules of a server's tool that a request header stores, with their defaults. A rule with its default is not
stored."""

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Tool(Struct, Generic[F], frozen=True, kw_only=True, eq=False, dict=True):
    """A function that a model may call, with the rules for its calls. Calling the tool calls the function."""

    name: str
    description: str = ""
    args_schema: dict[str, Any] = {}
    """JSON Schema of an object, without references to other documents."""
    function: F
    effect: Effect = "once"
    declared: bool = False
    """Whether the author declared the effect; if not, `effect` is `once`."""
    approval: bool = False
    """Whether a person is asked before each call."""
    expires_s: float | None = None
    """Seconds after which a call that nobody approved is denied; `None` to wait without limit."""
    asks: bool = False
    """Whether a person does the tool's work: its arguments are the question, and the person's answer is its result."""
    answer_schema: dict[str, Any] | None = None
    """JSON Schema of the answer, if a person does the tool's work; `None` for any text."""
    timeout_s: float | None = None
    """Seconds after the start of the function when the call stops waiting for it; `None` for the policy's
    `tool_timeout_s`."""
    reconcile: Reconcile | None = None
    on_doubt: OnDoubt = "ask"
    certain: tuple[type[BaseException], ...] = ()
    """Exceptions that mean that the effect did not happen, in addition to those in
    `gesta.function_tool.doubt.CERTAIN`."""
    key_s: float = 86_400.0
    """Seconds, from the first attempt, in which the called service recognises a repeated idempotency key."""
    group: tuple[str, ...] | list[str] = ()
    """Groups that the tool belongs to; an empty tuple means `default`."""
    applicable_states: tuple[str, ...] | list[str] = ()
    """Tool states in which the tool is offered; `*` or an empty tuple means all."""
    state: str | None = None
    """The tool state into which a successful call puts the run; `None` leaves the state unchanged."""
    ends_turn: bool | str = False
    """Whether a successful call ends the turn, with its result as the answer. A text is used as the answer instead
    of the result."""
    strict: bool = False
    """Whether the provider should enforce the schema, if it can. Then every parameter must be required."""
    parameters: type[Struct] | None = None
    """The type that arguments are converted to. With `None`, values are not converted, and only the names are
    checked."""
    context_names: tuple[str, ...] = ()
    """Names of the parameters that receive the `Context`."""
    needs: Any = None
    """Type of the `deps` that the tool requires, such as `Shop` for `Context[Shop]`; `None` if it requires none."""
    agent: Any = None
    """The agent that the tool runs, if it was made by `Agent.as_tool`."""
    server: ToolServer | None = None
    """The server outside the user's program that runs the tool; `None` for a function in that program."""
    rules: dict[str, Any] | None = None
    """For a tool of a server: its original rules, as request headers store them. A copy of the tool keeps them."""

    def __post_init__(self) -> None:
        """Check the fields, and take over the function's name and docstring. Raises BadTool for a wrong field."""
        for option, value, known in (("effect", self.effect, Effect), ("on_doubt", self.on_doubt, OnDoubt)):
            if value not in get_args(known):
                expected = f"expected one of {_listed(get_args(known))}.{nearest(str(value), get_args(known))}"
                raise BadTool(f"Tool {self.name!r}: {option} is {value!r}, {expected}")
        for option, names in (("group", self.group), ("applicable_states", self.applicable_states)):
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                raise BadTool(f"Tool {self.name!r}: {option} is {names!r}, expected a list of names.")
        for option, kind, expected in KINDS:
            if not isinstance(getattr(self, option), kind):
                rule = BY_RULE if option == "approval" and callable(self.approval) else ""
                raise BadTool(f"Tool {self.name!r}: {option} is {getattr(self, option)!r}, expected {expected}.{rule}")
        check_reconcile(self.reconcile, self.name)
        if self.strict and (
            left_out := set(self.args_schema.get("properties", ())) - set(self.args_schema.get("required", ()))
        ):
            found = f"strict needs every parameter, and {_listed(sorted(left_out))} may be left out"
            raise BadTool(f"Tool {self.name!r}: {found}. Take the default away, or strict=True.")
        for option, none in (("timeout_s", ", or None"), ("expires_s", ", or None"), ("key_s", "")):
            value = getattr(self, option)
            if not ((none and value is None) or (isinstance(value, int | float) and value > 0)):
                raise BadTool(f"Tool {self.name!r}: {option} is {value!r}, expected seconds above 0{none}.")
        if not all(isinstance(each, type) and issubclass(each, BaseException) for each in self.certain):
            raise BadTool(f"Tool {self.name!r}: certain is {self.certain!r}, expected classes of exceptions.")
        if self.effect == "transactional" and not self.threaded:
            found = f"Tool {self.name!r} is transactional and async"
            raise BadTool(f"{found}; expected a plain function: it runs in a commit.")
        if any(yields(each) for each in unwrapped(self.function) for yields in YIELDING):
            raise BadTool(f"Tool {self.name!r} has a `yield`, so a call of it begins nothing. Return what it yields.")
        if self.server is not None and self.rules is None:
            rules = {rule: getattr(self, rule) for rule in UNSAID}
            force_setattr(self, "rules", {rule: value for rule, value in rules.items() if value != UNSAID[rule]})
        inner, target = unwrapped(self.function)
        kept = {name: getattr(target, name, None) for name in ("__module__", "__qualname__", "__doc__")}
        self.__dict__.update(kept, __name__=getattr(inner, "__name__", self.name), __wrapped__=self.function)

    def __repr__(self) -> str:
        """Return the name and the effect, for people."""
        return f"Tool({self.name!r}, effect={self.effect!r})"

    if TYPE_CHECKING:  # so that checkers see the parameters of the function

        @property
        def __call__(self) -> F:
            """Call the function itself."""
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Call the function itself: no argument is checked, and nothing is recorded."""
            return self.function(*args, **kwargs)

    @functools.cached_property
    def threaded(self) -> bool:
        """Whether the function is not async and has to run in a worker thread."""
        inner, target = unwrapped(self.function)
        return not (inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(target))

    def offered(self, groups: Collection[str], state: str) -> bool:
        """Return whether an agent may use the tool in the present state of its run.

        Args:
            groups: the groups of tools that the agent may use; `*` for all.
            state: the tool state of the run.
        """
        own = set(self.group or ("default",))
        allowed = "*" in groups or not own.isdisjoint(groups)
        return allowed and (not self.applicable_states or not {"*", state}.isdisjoint(self.applicable_states))

    def arguments(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model's arguments, checked and converted. Arguments that it left out keep the function's defaults.

        Raises:
            BadArguments: the arguments do not fit. No other error is raised, whatever `args` contains.
        """
        required = self.args_schema.get("required", ())
        try:
            kept = _converted(args, self.parameters)
            if self.parameters and all(map(kept.__contains__, required)) and not (self.nested and self._unknown(args)):
                return kept
        except Exception:  # noqa: BLE001, S110 - converters of users' types may raise anything; the error is described below
            pass
        if not isinstance(args, Mapping):
            raise BadArguments(f"Arguments of {self.name!r}: Expected `object`, got `{type(args).__name__}` - at `$`")
        properties, kept, wrong = self.args_schema.get("properties", {}), {}, []
        for name, value in args.items():
            if name not in properties and self.args_schema.get("additionalProperties") is False:
                near = nearest(str(name), properties) or f" Known: {_listed(properties) or 'none'}."
                wrong.append(f"Unknown argument - at `$.{name}`.{near}")
                continue
            try:
                kept |= _converted({name: _integral(value) if self.parameters else value}, self.parameters)
            except Exception as exc:  # noqa: BLE001 - as above
                wrong += _problems(exc, name, self.args_schema)
        wrong += [f"Missing argument - at `$.{name}`" for name in required if name not in args]
        wrong += self._unknown(args)
        if wrong:
            shown = (text if len(text) < 500 else f"{text[:300]} ... {text[-100:]}" for text in wrong[:MOST])
            raise BadArguments(f"Arguments of {self.name!r}: {'; '.join(shown)}")
        return kept

    @functools.cached_property
    def nested(self) -> bool:
        """Whether an argument can be an object or list, so that it may have unknown members."""
        return any(not isinstance(each, dict) or each.get("type") not in FLAT for each in self._properties.values())

    @property
    def _properties(self) -> dict[str, Any]:
        """The schema of each argument, by its name."""
        found: dict[str, Any] = self.args_schema.get("properties", {})
        return found

    def _unknown(self, args: Mapping[str, Any]) -> list[str]:
        """Return an error for each unknown member inside the arguments; or only one, if they are nested too deeply."""
        if deeper(args, MAX_DEPTH):
            return [f"Nested too deeply, more than {MAX_DEPTH} levels - at `$`"]
        known = {"properties": self._properties if self.parameters else {}}
        return list(islice(unknown_members(args, known, self.args_schema.get("$defs", {}), "$"), MOST))

    def with_texts(self, description: str, texts: Mapping[str, str]) -> "Tool[F]":
        """Return a copy of the tool with another description, and with descriptions for parameters that have none."""
        properties = dict(self.args_schema.get("properties", {}))
        for name in texts.keys() & properties.keys():
            if isinstance(properties[name], dict):
                properties[name] = {"description": texts[name]} | properties[name]
        schema = self.args_schema | ({"properties": properties} if properties else {})
        return msgspec.structs.replace(self, description=description, args_schema=schema)

    async def invoke(
        self, arguments: dict[str, Any], context: Context | None, in_thread: InThread | None = None
    ) -> Any:
        """Call the function and return its result. A function that is not async runs in a worker thread.

        Args:
            arguments: the result of `Tool.arguments`.
            context: `None` only for a function without a context parameter.
            in_thread: runs a call in a thread; by default a worker thread of anyio is used.

        Raises:
            BaseException: whatever the function raises.
        """
        if self.context_names:
            arguments = arguments | dict.fromkeys(self.context_names, context)
        function: Any = self.function
        if not self.threaded:
            return await function(**arguments)
        call: Callable[[], Any] = functools.partial(function, **arguments)
        if in_thread is None:
            result = await to_thread.run_sync(call, abandon_on_cancel=True)
        else:
            result = await in_thread(call)
        return await result if inspect.isawaitable(result) else result


class ToolOptions(TypedDict, total=False):
    """The options of `tool`, which set the fields of `Tool` with the same names."""

    name: str
    effect: Effect
    approval: bool
    expires_s: float | None
    reconcile: Reconcile | None
    timeout_s: float | None
    on_doubt: OnDoubt
    certain: type[BaseException] | tuple[type[BaseException], ...]
    key_s: float
    group: str | tuple[str, ...] | list[str]
    applicable_states: str | tuple[str, ...] | list[str]
    state: str | None
    ends_turn: bool | str
    strict: bool


@overload
def tool(function: G, /, **options: Unpack[ToolOptions]) -> Tool[G]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[G], Tool[G]]: ...
def tool(function: Any = None, /, **options: Unpack[ToolOptions]) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Return a tool made from a function, a bound method, a partial or a callable object.

    Use as `@tool` or `@tool(...)`.

    Raises:
        BadTool: the function cannot be offered to a model; the message says what to write.
    """
    for option in options.keys() - ToolOptions.__annotations__.keys():
        raise BadTool(f"tool() has no option {option!r}.{nearest(option, ToolOptions.__annotations__)}")
    return functools.partial(_tool, options) if function is None else _tool(options, function)


def _tool(options: ToolOptions, function: Any) -> Tool:
    if not callable(function) or isinstance(function, Tool):
        raise BadTool(f"tool() takes a function, not {function!r}. Write @tool(name='...') above a `def`.")
    given = options.get("name")
    name = named(function) if given is None else str(given)
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        raise BadTool(f"Tool {name!r}: a name is 1 to 64 of a-z A-Z 0-9 _ -. Write @tool(name='...').")
    signature = read_signature(function, name, Context)
    facts: dict[str, Any] = {key: value for key, value in options.items() if key != "name"}
    facts |= {each: (facts[each],) for each in ("group", "applicable_states") if isinstance(facts.get(each), str)}
    facts |= {"certain": (facts["certain"],)} if isinstance(facts.get("certain"), type) else {}
    facts |= {"declared": "effect" in options, "parameters": signature.parameters}
    return Tool(
        name=name,
        description=signature.document,
        args_schema=signature.schema,
        function=function,
        context_names=signature.hidden,
        needs=signature.needs,
        **facts,
    )


def _converted(args: Mapping[str, Any], parameters: type[Struct] | None) -> dict[str, Any]:
    """Return the arguments, converted to the types of the parameters. A missing argument stays missing."""
    if parameters is None:
        return dict(args)
    made = msgspec.convert(args, parameters, dec_hook=_foreign, str_keys=True)
    given = {}
    for key, value in msgspec.structs.asdict(made).items():  # a comprehension takes longer
        if value is not UNSET:
            given[key] = value  # noqa: PERF403
    return given


class _Foreign(ValueError):
    """The errors that a pydantic model reported for a value, each with its path."""


def _foreign(type_: Any, value: Any) -> Any:
    """Return a value converted to a pydantic model, in strict mode. msgspec calls this for types that it does not know.

    Raises _Foreign if the value does not fit.
    """
    if type_ is object:
        return value
    try:
        return type_.model_validate_json(json.dumps(value), strict=True)
    except ValueError as exc:
        found = exc.errors() if hasattr(exc, "errors") else [{"type": "missing", "msg": str(exc), "loc": ()}]
        paths = ("".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in e["loc"]) for e in found)
        got = ("" if e["type"] == "missing" else f", got {cut(repr(e['input']))}" for e in found)
        raise _Foreign([(e["msg"] + what, path) for e, what, path in zip(found, got, paths, strict=True)]) from exc


def _problems(exc: Exception, name: str, schema: dict[str, Any]) -> list[str]:
    """Return the errors about the argument `name` that an exception contains, each with the path of the wrong value.

    Args:
        schema: the schema of the argument. If it lists the allowed values, the error names them.
    """
    where = str(exc).rpartition(" - at `")[2].removesuffix("`")
    if isinstance(exc.__cause__, _Foreign):
        return [f"{text} - at `{where}{path}`" for text, path in exc.__cause__.args[0]]
    if not isinstance(exc, ValidationError):
        return [f"{type(exc).__name__}: {exc} - at `$.{name}`"]
    options = _listed(_allowed(schema, re.findall(r"[^.\[\]]+|\.\.\.", where)[1:], schema.get("$defs", {})))
    return [f"{exc}, expected one of {options}" if options else str(exc)]


def _allowed(node: dict[str, Any], path: list[str], parts: dict[str, Any]) -> list[Any]:
    """Return the values that the schema `node` lists (`enum`) for the value at a path; an empty list if it lists none.

    `parts` are the schemas that references (`$ref`) name.
    """
    node = parts.get(node.get("$ref", "").removeprefix("#/$defs/"), node)
    found = [value for option in node.get("anyOf", ()) for value in _allowed(option, path, parts)]
    if not path:
        return [*node.get("enum", ()), *found]
    child = node.get("properties", {}).get(path[0]) or node.get("items") or node.get("additionalProperties")
    return found + (_allowed(child, path[1:], parts) if isinstance(child, dict) else [])


def _integral(value: Any) -> Any:
    """Return a JSON value in which 5.0 and the like are integers, because JSON does not distinguish 5.0 from 5."""
    return json.loads(
        json.dumps(value), parse_float=lambda text: int(float(text)) if float(text).is_integer() else float(text)
    )


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(repr, values))
