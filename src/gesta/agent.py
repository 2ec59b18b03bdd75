"""An agent is a frozen description: it has no state, and the record (a store of runs) keeps only its name and a digest.

A turn goes from a message to the answer. An agent's model and formatter may be given as addresses. `gesta.open`
replaces these by objects when a turn begins ("binds" the agent). A `program` is an async function that runs turns in
place of a model. A request header is the entry that states the tools, instructions, model and settings of requests.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from hashlib import sha256
from inspect import isawaitable
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Any, Generic

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from gesta.codec.rows import digest_of
from gesta.errors import AgentError, BadArguments, BadTool
from gesta.function_tool.context import Context
from gesta.function_tool.output import ANSWER, Output, T, output_of
from gesta.function_tool.signature import check_call
from gesta.function_tool.source import ToolSource
from gesta.function_tool.tool import Tool, tool
from gesta.hooks import VERDICTS, Hooks
from gesta.kinds import AgentRef, RequestHeaderContent
from gesta.model.request import Model, Reply, Unasked
from gesta.policy import AGENT_FIELDS, Policy, Price, Spelled
from gesta.prompt import Formatter

RULES = ("name", "effect", "approval", "timeout_s", "on_doubt", "group", "applicable_states", "state")
"""The fields of a tool that are part of an agent's digest, beside the tool's schema."""
CALLED = {"instructions": ("context",), "deps": (), "program": ("verbs", "text"), "repair": ("text",)}
"""Names of fields that may hold a function, each with the arguments with which the function is called."""


class Unanswered(Exception):
    """Raised if an agent that was called as a tool did not answer. The calling model reads the error."""


class Answer(Struct, frozen=True):
    """The return value of a program that returns both a text for people and a value for programs."""

    text: str
    """The answer as people read it."""
    value: Any
    """The answer as programs read it: any JSON value."""


Program = Callable[[Any, str], Awaitable[T]] | Callable[[Any, str], Awaitable[Answer]]
"""An async function that receives the verbs (see `Verbs`) and the message's text, and returns the answer."""


Instructions = str | Callable[[Context[Any]], str | Awaitable[str]]
"""The instructions for a model: a text, or a function that returns the text, given the turn's context."""


async def instructions_text(instructions: Instructions, context: Context[Any]) -> str:
    """Return the instructions as a text. If they are a function, it is called, and may raise any error.

    Raises:
        TypeError: the function did not return a text.
    """
    if isinstance(instructions, str):
        return instructions
    given = instructions(context)
    text = await given if isawaitable(given) else given
    if not isinstance(text, str):
        raise TypeError(f"the function of the instructions gave {text!r:.60}, expected a text")
    return text


def joined(*parts: Instructions) -> Instructions:
    """Return several instructions as one: a text if all are texts, else a function."""
    if all(isinstance(part, str) for part in parts):
        return "\n\n".join(str(part) for part in parts if part)

    async def every(context: Context[Any]) -> str:
        texts = [await instructions_text(part, context) for part in parts]
        return "\n\n".join(filter(None, texts))

    every.__qualname__ = " + ".join(part if isinstance(part, str) else function_name(part) for part in parts)
    return every


def function_name(function: Callable[..., Any]) -> str:
    """Return the module and name of a function or callable object, which are the same in each process."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


if TYPE_CHECKING:

    class Tools:
        """A descriptor for type checkers: tools and sources of tools may be set, and only tools are read."""

        def __get__(self, agent: object, kind: object = None) -> Sequence[Tool]: ...
        def __set__(self, agent: object, tools: Sequence[Tool | ToolSource]) -> None: ...
else:
    Tools = Sequence[Tool]


class Agent(Struct, Generic[T], frozen=True, metaclass=Spelled):
    """An agent: its name, model, instructions, tools and rules. `T` is the type of the answer, text by default."""

    name: str
    model: Model | str = ""
    """A model, or an address `provider:model`. An agent with a program needs no model. Another agent without a model
    uses the model from the turn's options, from `--model`, or from the agent whose tool it is."""
    instructions: Instructions = ""
    """The text that the model reads first, or a function that returns it. The function is called once per turn, and its
    text is on record."""
    tools: Tools = ()  # type: ignore[assignment]  # its default is a value, not what checkers see
    """Tools, and sources of tools such as `gesta.mcp(...)`. The sources are moved to the field `sources`."""
    formatter: Formatter[Any] | str = "tool-calls"
    policy: Policy = Policy()
    settings: dict[str, Any] = {}
    """Settings of the model's request, such as `temperature`, as the provider names them."""
    output: type[T] | Output[T] | None = None
    """The type of the answer; `None` for text. An `Output` also says how the model is made to answer with this type."""
    repair: bool | Callable[[str], dict[str, Any] | None] = False
    """Whether tool arguments that are nearly JSON are repaired; the record marks repaired arguments. A function
    replaces the built-in repair. For a tool with an effect, arguments are repaired only if a person has to approve its
    calls."""
    meta: dict[str, Any] = {}
    """Further data to store in request headers, such as the name of a prompt in a catalog. No model reads these
    data."""
    groups: tuple[str, ...] | list[str] | None = None
    """Groups of tools that the agent may use: `*` for all, `None` for `default`, an empty tuple for no tool at all."""
    state: str = ""
    """The tool state in which a run begins. Tools can change it, and it decides which tools may be used. An empty
    text means `undefined`."""
    program: Program[T] | None = None
    """An async function that runs the agent's turns in place of a model; see `gesta.workflow.verbs`."""
    deps: Callable[[], Any] | None = None
    """A function, async or not, that makes the deps (objects for tools) of a turn whose caller passed none."""
    hooks: Hooks | None = None
    """Functions that are called for a message, a request, a call or an answer, and may refuse or change it."""
    price: Price | None = None
    """The prices of the model's tokens. If not set, `gesta.open` looks the prices up. Only an agent with a budget needs
    prices."""
    hint: str | None = None
    """The place from which the agent was loaded, for people to read; Gesta never imports it."""
    catalog: str | None = None
    """Version of the catalog that the agent's tools and prompts come from. Each turn's first entry stores it."""
    fallbacks: Sequence[Any] = ()
    """Models, or addresses of models. If a model fails and has no try left, the next model is asked for the rest of
    the turn."""
    sources: tuple[ToolSource, ...] = ()
    """The sources of tools. When a turn begins, the tools that they offer are added to `tools`."""

    def __post_init__(self) -> None:
        """Check the fields. Raises BadTool for a wrong tool, and AgentError for any other field that is wrong."""
        if any(getattr(self, field).__class__ not in (str, bool, NoneType) for field in ("hooks", *CALLED)):
            self._refuse_values()
        self._refuse_kinds()
        others: list[Any] = [each for each in self.tools if not isinstance(each, Tool)]
        if others and (sources := [each for each in others if isinstance(each, ToolSource)]):
            force_setattr(self, "tools", [each for each in self.tools if not isinstance(each, ToolSource)])
            force_setattr(self, "sources", (*self.sources, *sources))
        for each in others:
            if isinstance(each, Agent):
                found = f"Agent {self.name!r}: {each.name!r} in its tools is an agent, expected a tool."
                raise BadTool(f"{found} Write {each.name}.as_tool(), with a description for the model that calls it.")
            if isinstance(each, str):
                found = f"Agent {self.name!r}: {each!r:.60} in its tools is a text, expected a tool."
                raise BadTool(f"{found} If it is a server of tools, write gesta.mcp('...').")
            if not isinstance(each, ToolSource):
                name = getattr(each, "__name__", repr(each))
                found = f"Agent {self.name!r}: {name!r} in its tools is a {type(each).__name__}, expected a tool."
                raise BadTool(f"{found} Write @gesta.tool above `def {name}`.")
        summed_up_by = self.policy.compact.by if self.policy.compact is not None else None
        if summed_up_by is not None and not isinstance(summed_up_by, Agent):
            found = f"Agent {self.name!r}: Compact(by=...) is {summed_up_by!r:.60}, expected an agent."
            raise AgentError(f"{found} Write by=gesta.patterns.summariser.summariser(MODEL).")
        if self.output is not None:
            force_setattr(self, "output", output_of(self.output))
            self._refuse_texts()
        names = [tool.name for tool in self.tools]
        if self.answer_type is not None and self.answer_type.by == "tool":
            names.append(ANSWER)
        for name in names:
            if names.count(name) > 1:
                raise BadTool(f"Agent {self.name!r} has two tools named {name!r}. Give one another: tool(name='...').")

    def _refuse_kinds(self) -> None:
        """Raise AgentError if the model, `tools`, or another field has a wrong type."""
        for field, (kind, expected) in AGENT_FIELDS.items():
            if not isinstance(value := getattr(self, field), kind):
                raise AgentError(f"Agent {self.name!r:.60} has {field}={value!r:.60}, expected {expected}.")
        if not isinstance(self.model, str) and not hasattr(self.model, "send"):
            named = getattr(self.model, "__name__", None) or f"{self.model!r:.60}"
            kind = "a function, " * isinstance(self.model, FunctionType)
            found = f"Agent {self.name!r} has model={named}, {kind}expected a model"
            raise AgentError(f"{found}: gesta.scripted(ANSWERS), gesta.function(FUNCTION), or 'openai:gpt-5-mini'.")
        if isinstance(self.tools, Tool | FunctionType | ToolSource):
            name = getattr(self.tools, "__name__", None) or getattr(self.tools, "name", None) or repr(self.tools)
            raise AgentError(f"Agent {self.name!r} has tools={name}, expected a list of tools. Write tools=[{name}].")
        if isinstance(self.tools, str) or not isinstance(self.tools, Iterable):
            kind = type(self.tools).__name__
            raise AgentError(f"Agent {self.name!r} has tools={self.tools!r:.60}, a {kind}, expected a list of tools.")

    def _refuse_values(self) -> None:
        """Raise AgentError for a wrong function, for hooks of a wrong type, or for a program that has hooks."""
        wanted = ""
        if not isinstance(self.instructions, str) and not callable(self.instructions):
            wanted = f"instructions={self.instructions!r:.60}, expected a text, or a function of a gesta.Context"
        elif self.deps is not None and not callable(self.deps):
            kind = type(self.deps).__name__  # its repr may hold a secret
            wanted = f"deps of type {kind}, expected a function that makes them; a value goes to record.run(deps=...)"
        elif self.hooks is not None and not isinstance(self.hooks, Hooks):
            wanted = f"hooks={self.hooks!r:.60}, expected gesta.hooks.Hooks(message=, request=, call=, answer=)"
        elif self.hooks is not None and self.program is not None:
            wanted = "a program and hooks, which are asked where a model is; have the program check instead"
        if wanted:
            raise AgentError(f"Agent {self.name!r} has {wanted}.")
        for field, arguments in CALLED.items():
            if callable(function := getattr(self, field)):
                check_call(function, arguments, f"Agent {self.name!r} has {field}=")

    def _refuse_texts(self) -> None:
        """Raise BadTool if `ends_turn` of a tool is an answer that is not of the agent's answer type."""
        assert self.answer_type is not None
        for each in self.tools:
            if isinstance(each.ends_turn, str):
                try:
                    self.answer_type.given(each.ends_turn)
                except BadArguments as wrong:
                    found = (
                        f"Agent {self.name!r}: the text in ends_turn of {each.name!r} is no {self.answer_type.type!r}"
                    )
                    raise BadTool(f"{found}. Write ends_turn=True, and have the tool return one.") from wrong

    @property
    def answer_type(self) -> Output[T] | None:
        """The type of the answer; `None` if any text is an answer."""
        return self.output if isinstance(self.output, Output) else None

    def tool(self, name: str) -> Tool | None:
        """Return the tool with this name; `None` if the agent has no such tool."""
        for each in self.tools:  # runs at each move: a generator takes four times as long
            if each.name == name:
                return each
        return None

    def offering(self, state: str) -> "Agent[T]":
        """Return this agent with only the tools that may be used in the tool state `state`.

        Args:
            state: the tool state of the run, a word that tools set; an empty text means the agent's first state.
        """
        for each in self.tools if self.groups is None else ():  # runs at each request: a generator takes longer
            if each.group or each.applicable_states:
                break
        else:
            if self.groups is None:
                return self
        wanted, now = {"default"} if self.groups is None else set(self.groups), state or self.state or "undefined"
        return replace(self, tools=[tool for tool in self.tools if tool.offered(wanted, now)])

    def in_place(self, model: str) -> "Agent[T]":
        """Return the agent among `fallbacks` whose model has this name; this agent itself if there is none."""
        return next((each for each in self.fallbacks if each.asked().name == model), self)

    def asked(self) -> Model:
        """Return the agent's model. The agent must be bound, so that the model is an object, not an address.

        For an agent without a model, return a model that refuses every request.
        """
        if self.model == "":
            return Unasked()
        assert not isinstance(self.model, str), f"agent {self.name!r} was not bound: model is {self.model!r}"
        return self.model

    def formats(self) -> Formatter[Any]:
        """Return the agent's formatter. The agent must be bound, so that the formatter is an object, not an address."""
        assert not isinstance(self.formatter, str), f"agent {self.name!r} was not bound"
        return self.formatter

    @property
    def lacks_model(self) -> bool:
        """Whether the agent needs a model and has none yet."""
        return self.model == "" and self.program is None

    def as_tool(self, name: str | None = None, description: str = "") -> Tool:
        """Return a tool that runs this agent in a child run. A repeated call continues the same child run."""

        async def ask(task: str, context: Context) -> Any:
            ended = await context.call_as("1", self, task)  # its only child run, also if the agent has a new name
            if ended.reason != "answered":
                said = f": {ended.error.message}" if ended.error is not None else ""
                raise Unanswered(f"{self.name} ended with reason {ended.reason}{said}")
            return ended.value

        named = name or re.sub(r"[^a-zA-Z0-9_-]", "_", self.name)[:64] or "agent"
        made = tool(ask, name=named, effect="idempotent", timeout_s=math.inf)  # the agent's own limits bound it
        return replace(
            made,
            description=description
            or (self.instructions if isinstance(self.instructions, str) else "").partition("\n")[0],
            agent=self,
        )

    def answers_by(self) -> str | None:
        """Return how the model is asked for the output type: `native`, `tool` or `prompt`; `None` for plain text."""
        if self.answer_type is None:
            return None
        in_words = self.formats().reader() is not None  # calls in plain text: no provider can enforce a schema
        return "prompt" if in_words else self.answer_type.by

    def answer_text(self, output: str) -> str:
        """Return the answer in `output`, the text of a model's reply. A text may also contain calls of tools."""
        reader = self.formats().reader()
        if reader is None:
            return output
        reader.feed(output)
        return reader.close(Reply(text=output)).text

    def header(self) -> RequestHeaderContent:
        """Return the request header: the tools, instructions, model and settings of the agent's requests."""
        meta: dict[str, Any] = {**self.meta, "model": self.asked().name}
        by, schema, output = self.answers_by(), None, self.answer_type
        tools = [
            {"name": tool.name, "description": tool.description, "args_schema": tool.args_schema}
            | ({"strict": True} if tool.strict else {})
            | ({"server": tool.server.name, **(tool.rules or {})} if tool.server is not None else {})
            for tool in self.tools
        ]
        instructions = self.instructions if isinstance(self.instructions, str) else ""
        if output is None:
            pass
        elif by == "native":
            schema = output.schema
        elif by == "tool":
            tools.append(output.tool())
        elif by == "prompt":
            instructions = "\n\n".join(text for text in (instructions, output.asked()) if text)
        if instructions:
            meta["instructions"] = instructions
        if self.settings:
            meta["settings"] = self.settings
        return RequestHeaderContent(tools=tools or None, output=schema, meta=meta)

    def ref(self, known: MutableMapping[bytes, str] | None = None) -> AgentRef:
        """Return the reference to the agent that the first entry of a turn stores, such as its name and digest.

        Args:
            known: a cache of digests, so that no digest is computed twice; a new digest is added to it.
        """
        own = [tool for tool in self.tools if tool.server is None] if self.sources else self.tools
        rules = [[getattr(tool, rule) for rule in RULES] + [tool.ends_turn] * bool(tool.ends_turn) for tool in own]
        header = (replace(self, tools=own) if self.sources else self).header()  # servers may offer other tools tomorrow
        described = [self.name, msgspec.to_builtins(header), self.formats().name, rules]
        described += [["sources", *(each.described() for each in self.sources)]] if self.sources else []
        described += [self.groups, self.state, getattr(self.program, "__qualname__", None)]
        described += [True] if self.repair else []
        described += [["fallbacks", *(each.asked().name for each in self.fallbacks)]] if self.fallbacks else []
        described += [] if isinstance(self.instructions, str) else [function_name(self.instructions)]
        if self.hooks is not None:
            asked = ((point, getattr(self.hooks, point)) for point in VERDICTS)
            described.append({point: function_name(hook) for point, hook in asked if hook is not None})
        policy, compact = self.policy, self.policy.compact
        if compact is not None and compact.by is not None:  # of another agent, the name is enough
            policy = replace(policy, compact=replace(compact, by=compact.by.name))
        whole = [described, msgspec.to_builtins(policy)]
        try:
            packed = sha256(msgspec.msgpack.encode(whole)).digest()  # takes a tenth of the time of a canonical digest
        except (TypeError, ValueError, OverflowError, RecursionError):
            packed = b""
        digest = known.get(packed) if known is not None else None
        if digest is None:
            digest = digest_of(whole)
            if known is not None and packed:
                known[packed] = digest
        return AgentRef(name=self.name, digest=digest, hint=self.hint, catalog=self.catalog)


def with_model_of(tool: Tool, above: Agent[Any]) -> Tool:
    """Return the tool. If it runs an agent without a model, return a copy whose agent has the model of `above`.

    The agent then has the price of that model too, unless it has one of its own.
    """
    if not isinstance(tool.agent, Agent) or not tool.agent.lacks_model:
        return tool
    below = replace(tool.agent, model=above.model, price=tool.agent.price or above.price)
    return replace(tool, agent=below, function=below.as_tool(tool.name).function)


def chained(agents: Sequence[Agent[Any]]) -> tuple[Agent[Any], ...]:
    """Return copies of the agents in the same order. The fallbacks of each copy are all agents after it."""
    rest: tuple[Agent[Any], ...] = ()
    for each in reversed(agents):
        rest = (replace(each, fallbacks=rest), *rest)
    return rest
