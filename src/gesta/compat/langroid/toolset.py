"""Keeps the tools of an agent: which ones it knows, which ones its model may use, and which ones it handles itself.

A tool message is a tool call as data, and a document is a message that may contain several. Enabling a tool also finds
its handler: a method of the agent with the tool's name, or else the method `handle` or `response` of the tool. A
handler may be async. A handler may have parameters for the agent, the document, and the `Context` of the call.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gesta.agent import Agent
from gesta.compat.langroid.chat_document import ChatDocMetaData, ChatDocument, Entity, to_state
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.orchestration import Steers, effect_of
from gesta.compat.langroid.steering import steer, unsent
from gesta.compat.langroid.tool_message import ToolForm, as_tool, as_tool_class, contexts, to_json
from gesta.errors import BadTool
from gesta.function_tool.context import Context
from gesta.function_tool.tool import Effect, Tool
from gesta.kinds import RequestHeaderContent
from gesta.perform.call_contents import DocumentedResult, plain
from gesta.prompt import observation_text

Classes = type | Sequence[type] | None
"""A class of tool messages, several classes, or `None` for all classes that the agent knows."""
Handler = Callable[[Any, Any], Any]
"""A function of a tool message and the context of its call. The context is `None` if a program calls the handler."""


BYTES_A_TOKEN = 4
"""Estimated number of bytes in a token of plain English text."""
LEFT_OUT = " [The rest of this result was left out. Use the tool again to read it.]"


IN_XML = "Write a call of each of these tools as XML, as shown; text may stand around it."


class Described(Agent, frozen=True, kw_only=True):
    """The immutable description of a chat agent, with all its tools, also those that its model may not use."""

    usable: frozenset[str] = frozenset()
    written: dict[str, str] = msgspec.field(default_factory=dict)
    """Instructions for tools whose calls are written as XML, by tool name. Used if the model writes calls as text."""
    strict: frozenset[str] = frozenset()
    """Names of the tools whose schema the provider is asked to enforce."""
    forced: str | None = None
    """Name of the tool that the model must use; `None` if it may choose."""
    choice: str | dict[str, Any] = "auto"
    """Whether the model may, must or must not call a tool in the next request, in the provider's form."""

    def header(self) -> RequestHeaderContent:
        """Return the header of the model requests: instructions, settings, and the tools that the model may use."""
        header = super().header()
        tools = [tool for tool in header.tools or () if tool["name"] in self.usable]
        for tool in [tool for tool in tools if tool["name"] in self.strict]:
            tool["strict"] = True
        meta = dict(header.meta or {})
        forced = {"type": "function", "function": {"name": self.forced}} if self.forced is not None else "auto"
        choice = forced if self.choice == "auto" else self.choice
        named = isinstance(self.formatter, str)  # a provider is not told of tools whose calls are text
        native = self.formatter != "json-text" if named else self.formats().reader() is None
        written = [self.written[tool["name"]] for tool in tools if tool["name"] in self.written and not native]
        if written:
            meta["instructions"] = "\n\n".join([meta.get("instructions", ""), IN_XML, *written]).strip()
            tools = [tool for tool in tools if tool["name"] not in self.written]
        if choice != "auto" and tools and native:
            meta["settings"] = {**meta.get("settings", {}), "tool_choice": choice}
        return msgspec.structs.replace(header, tools=tools or None, meta=meta)


class Toolset:
    """Base class of chat agents: the tools of an agent, with their handlers."""

    def __init__(self) -> None:
        self.llm_tools_map: dict[str, type[ToolForm]] = {}
        """The classes of all tools that the agent knows, by tool name."""
        self.llm_tools_usable: set[str] = set()
        self.llm_tools_handled: set[str] = set()
        self.llm_tool_forced: str | None = None
        self._handlers: dict[str, Handler] = {}
        self._terse: set[str] = set()
        """Names of the tools of which the model is shown only the required fields."""
        self._made: dict[type, tuple[Any, Tool]] = {}
        """For each class: the values from which its tool was last made, and the tool, reused for equal values."""
        self._begins = False
        """True while `restart` calls `init_state`.

        The history is already hidden then, so `init_state` need not do it.
        """
        self._document: ChatDocument | None = None
        """The document whose tools are being handled."""

    if not TYPE_CHECKING:  # type checkers do not know the names of an agent's tools

        def __getattr__(self, name: str) -> Any:
            """Return the handler of the tool called `name`, so that `agent.my_tool(message)` runs it.

            `_async` may follow.
            """
            known = vars(self).get("llm_tools_map", {})
            word = name if name in known else name.removesuffix("_async")
            cls = known.get(word)
            words = ("handle", "response") if word == name else ("handle_async", "response_async")
            found = _own(cls, words)
            if not found and (cls is None or effect_of_class(cls) is None):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}.")
            handler = self._of_message(found[0], getattr(cls, found[0])) if found else lambda message, _: message
            waits = inspect.iscoroutinefunction(handler)
            return partial(self._by_name_async if waits else self._by_name, handler)

    def _by_name(self, handler: Handler, message: Any, chat_doc: ChatDocument | None = None) -> Any:
        """Call the handler of a message, and return its result. `chat_doc` is the document with the message."""
        before, self._document = self._document, chat_doc
        try:
            return handler(message, None)
        finally:
            self._document = before

    async def _by_name_async(self, handler: Handler, message: Any, chat_doc: ChatDocument | None = None) -> Any:
        """Await the handler of a message, and return its result. `chat_doc` is the document with the message."""
        before, self._document = self._document, chat_doc
        try:
            return await handler(message, None)
        finally:
            self._document = before

    @property
    def llm_tools_known(self) -> set[str]:
        """Names of all tools that the agent knows."""
        return set(self.llm_tools_map)

    def enable_message(
        self,
        message_class: Classes,
        use: bool = True,  # noqa: FBT001, FBT002 - the names that users know, here and below
        handle: bool = True,  # noqa: FBT001, FBT002
        force: bool = False,  # noqa: FBT001, FBT002
        require_recipient: bool = False,  # noqa: FBT001, FBT002
        include_defaults: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        """Enable tools for use by the model, for handling by the agent, or for both.

        Args:
            message_class: one or more classes; `None` for all tools that the agent knows.
            force: whether the model must use the tool, until another tool is enabled.
            require_recipient: whether the model must also name a recipient.
            include_defaults: whether the model is shown fields that have defaults.

        Raises:
            TypeError: `use` or `handle` is a class.
            BadTool: a value is not a class of tool messages, its tool has no name, or another tool has that name.
        """
        for name, given in (("use", use), ("handle", handle)):
            if isinstance(given, type):
                raise TypeError(f"{name} is {given.__name__}; for several classes write enable_message([A, B])")
        self.llm_tool_forced = None
        for cls in self._classes(message_class):
            known = as_tool_class(cls)
            known = known.require_recipient() if require_recipient and use else known
            name = self._know(known)
            allowed = known._allow_llm_use  # noqa: SLF001 - a setting of the class
            if use and not allowed and message_class is not None:
                raise BadTool(f"{known.__name__} is for programs: no model may use it. Write use=False.")
            self._handlers.pop(name, None)
            if handle:
                self._handlers[name] = self._handler(known)
            _set(self.llm_tools_usable, name, on=use and allowed)
            _set(self.llm_tools_handled, name, on=handle)
            _set(self._terse, name, on=not include_defaults)
            if known._along:  # noqa: SLF001 - a setting of the class
                self.enable_message(known._along, use, handle)  # noqa: SLF001 - as above
            if force:
                self.llm_tool_forced = name

    def enable_message_handling(self, message_class: Classes = None) -> None:
        """Make the agent handle tools of `message_class` (`None`: all). This does not enable them for the model."""
        for cls in self._classes(message_class):
            name = self._know(as_tool_class(cls))
            self._handlers[name] = self._handler(self.llm_tools_map[name])
            self.llm_tools_handled.add(name)

    def disable_message_handling(self, message_class: Classes = None) -> None:
        """Stop the agent from handling the tools of `message_class`; `None` means all tools."""
        self.llm_tools_handled -= {facts_of(as_tool_class(cls)).name for cls in self._classes(message_class)}

    def disable_message_use(self, message_class: Classes) -> None:
        """Forbid the model to use the tools of `message_class`, one or more classes."""
        self.llm_tools_usable -= {facts_of(as_tool_class(cls)).name for cls in self._classes(message_class)}

    def disable_message_use_except(self, message_class: type) -> None:
        """Forbid the model to use any tool except that of `message_class`."""
        self.llm_tools_usable &= {facts_of(as_tool_class(message_class)).name}

    def own_tools(self) -> None:
        """Copy the sets of tools and the handlers, so that a copied agent no longer changes the original."""
        self.llm_tools_map, self._terse = dict(self.llm_tools_map), set(self._terse)
        self.llm_tools_usable, self.llm_tools_handled = set(self.llm_tools_usable), set(self.llm_tools_handled)
        self._handlers = {name: self._handler(self.llm_tools_map[name]) for name in self.llm_tools_handled}
        self._made = {}

    def strict_tools(self) -> frozenset[str]:
        """Return the names of the tools that set `_strict` and whose fields are all required, as providers demand."""
        kept = {name: facts_of(cls).schema for name, cls in self.llm_tools_map.items() if cls._strict}
        return frozenset(name for name, schema in kept.items() if {*schema["required"]} == {*schema["properties"]})

    def trail(self) -> Sequence[ChatDocument]:
        """Return an empty tuple. `Working.trail` returns the documents that the agent's task had to answer so far."""
        return ()

    def fallbacks(self) -> list[Callable[..., Any]]:
        """Return the `handle_message_fallback` of each tool that the model may use and the agent handles.

        The tool that was enabled first comes first.
        """
        both = [
            cls for name, cls in self.llm_tools_map.items() if name in self.llm_tools_usable & self.llm_tools_handled
        ]
        found = (getattr(cls, "handle_message_fallback", None) for cls in both)
        return [method for method in found if callable(method)]

    def unhandled_tools(self) -> set[str]:
        """Return the names of the tools that the agent knows but does not handle."""
        return self.llm_tools_known - self.llm_tools_handled

    def tools(self, *, in_text: bool) -> list[Tool]:
        """Return all known tools, for the description of the agent.

        Args:
            in_text: whether the model writes its calls as text. Descriptions then include examples.
        """
        return [self._tool(cls, in_text=in_text) for cls in self.llm_tools_map.values()]

    def _classes(self, given: Classes) -> Iterable[type]:
        if given is None:
            return list(self.llm_tools_map.values())
        return list(given) if isinstance(given, Sequence) else [given]

    def _know(self, cls: type[ToolForm]) -> str:
        name = facts_of(cls).name
        if not name:
            raise BadTool(f'{cls.__name__!r} has no name to call it by. Write `request: str = "..."` in it.')
        known = self.llm_tools_map.get(name)
        if known is not None and _place(known) != _place(cls):
            raise BadTool(f"Two tools are named {name!r}: {known.__name__} and {cls.__name__}. Name one otherwise.")
        self.llm_tools_map[name] = cls
        return name

    def _handler(self, cls: type[ToolForm]) -> Handler:
        """Return the handler for messages of a class. Without one, return a function that raises BadTool."""
        name = cls._handler or facts_of(cls).name
        for own in (self._method(f"{name}_async"), self._method(name)):
            if own is not None:
                return self._fitted(own, 1, contexts(own))
        for word in _own(cls, ("handle_async", "handle", "response_async", "response")):
            return self._of_message(word, getattr(cls, word))
        if effect_of_class(cls) is not None:
            return lambda message, _context: message
        need = f"a method `{name}` of the agent, or `handle` of {cls.__name__}"

        def missing(_message: Any, _context: Context) -> Any:
            raise BadTool(f"Nothing handles {name!r}; expected {need}, or enable_message(..., handle=False).")

        return missing

    def _method(self, name: str) -> Callable[..., Any] | None:
        """Return the agent's method `name` if the user's program defines it; `None` if only this package does."""
        own = next((vars(cls)[name] for cls in type(self).__mro__ if name in vars(cls)), None)
        if (own is None or getattr(own, "__module__", "").startswith(__package__)) and name not in vars(self):
            return None
        found = getattr(self, name)
        return found if callable(found) else None

    def _fitted(self, function: Callable[..., Any], taken: int, told: Collection[str]) -> Handler:
        """Return a handler that calls `function`. Parameters after the message get the context, agent or document.

        Args:
            taken: 1 if the first parameter is the message, else 0.
            told: names of the parameters that receive the context.
        """
        parameters = list(inspect.signature(function).parameters.values())
        extra = [each.name for each in parameters[taken:] if each.kind is not inspect.Parameter.VAR_KEYWORD]
        alone = [each.name for each in parameters[taken:] if each.kind is inspect.Parameter.KEYWORD_ONLY]
        types = set(type(self).__mro__) - {object}
        agents = {
            each.name
            for each in parameters[taken:]
            if each.name == "agent"
            or each.annotation in [*types, *(cls.__name__ for cls in types)]
            or (isinstance(each.annotation, type) and issubclass(each.annotation, Toolset))
        }

        def call(message: Any, context: Context) -> Any:
            more = {name: self if name in agents else context if name in told else self._document for name in extra}
            named = {name: more.pop(name) for name in alone}
            return function(message, *more.values(), **named) if taken else function(*more.values(), **named)

        async def waiting(message: Any, context: Context) -> Any:
            return await call(message, context)

        return waiting if inspect.iscoroutinefunction(function) else call

    def _of_message(self, word: str, method: Callable[..., Any]) -> Handler:
        """Return a handler that calls the method `word` of each message."""
        told = contexts(method)

        def call(message: Any, context: Context) -> Any:
            return self._fitted(getattr(message, word), 0, told)(message, context)

        async def waiting(message: Any, context: Context) -> Any:
            return await call(message, context)

        return waiting if inspect.iscoroutinefunction(method) else call

    def _tool(self, cls: type[ToolForm], *, in_text: bool) -> Tool:
        """Return the `Tool` of a class, the same until the class or its handler changes; `in_text` adds examples."""
        name = facts_of(cls).name
        word = cls._handler or name
        if name in self._handlers and {word, f"{word}_async"} & vars(self).keys():  # the program replaced the handler
            self._handlers[name] = self._handler(cls)
        effect: Effect | None = "pure" if effect_of_class(cls) is not None else cls._tool_effect
        told = (cls.instructions(), cls.usage_examples() if in_text else "")
        spec = cls.llm_function_schema(defaults=name not in self._terse)  # not cached: a class may change its answer
        made_of = (self._handlers.get(name), effect, cls._tool_approval, told, spec)
        known = self._made.get(cls)
        if known is None or known[0] != made_of:
            description = "\n".join(filter(None, [spec.description, *told]))
            handed = self._handed(cls, effect)
            tool = msgspec.structs.replace(handed, description=description, args_schema=spec.parameters)
            known = self._made[cls] = made_of, tool
        return known[1]

    def _handed(self, cls: type[ToolForm], effect: Effect | None) -> Tool:
        """Return a tool that calls the present handler of `cls`. Without an `effect`, it has that of the class."""
        name = facts_of(cls).name
        handler = self._handlers.get(name)

        def handle(message: Any, context: Context) -> Any:
            assert handler is not None, f"{name!r} is handled by somebody else"
            return self._returned(handler(message, context), name, context)

        async def waiting(message: Any, context: Context) -> Any:
            assert handler is not None
            return self._returned(await handler(message, context), name, context)

        return as_tool(cls, waiting if inspect.iscoroutinefunction(handler) else handle, effect)

    def _returned(self, value: Any, name: str, context: Context) -> Any:
        """Return `value`, a result of the tool `name`, in the form to record. Documents are stored whole."""
        if isinstance(value, ToolForm):
            other = facts_of(type(value)).name
            if other != name and other in self.llm_tools_handled and effect_of(value) is None:
                return self._returned(self._handlers[other](value, context), other, context)
            meta = ChatDocMetaData(sender=Entity.AGENT, tools_from_agent=True)
            message, value = value, ChatDocument(tool_messages=[value], metadata=meta)
            if unsent(message):
                steer(value, self.trail())
        if isinstance(value, ChatDocument):
            bound = self.llm_tools_map[name]._max_result_tokens  # noqa: SLF001 - as below
            value.content = value.content if bound is None else shortened(value.content, bound)
            effect = effect_of(value.tool_messages[0]) if value.tool_messages else None
            given = getattr(value.tool_messages[0], "content", None) if effect and effect.gives == "content" else None
            text = value.content or ("" if given is None else observation_text(plain(given)))
            text = text or "\n".join(map(to_json, value.tool_messages))
            return DocumentedResult(text, to_state(value))
        bound = self.llm_tools_map[name]._max_result_tokens  # noqa: SLF001 - a setting of the class
        if bound is not None and value is not None:
            return shortened(observation_text(plain(value)), bound)
        return "" if value is None else plain(value)


def shortened(text: str, tokens: int) -> str:
    """Return a text cut to about this many tokens. If something was left out, a note at the end says so."""
    size = tokens * BYTES_A_TOKEN
    done = text.endswith(LEFT_OUT) and len(text) <= size + len(LEFT_OUT)
    return text if len(text) <= size or done else text[:size] + LEFT_OUT


def effect_of_class(cls: type) -> Any:
    """Return the effect of a class's messages on their task, such as ending it; `None` if they have none."""
    return getattr(cls, "_effect", None)


def _own(cls: type | None, words: Sequence[str]) -> list[str]:
    """Return the names in `words` that are handler methods of the class, such as `handle`."""
    found = {word: getattr(cls, word, None) for word in words}
    return [word for word, method in found.items() if callable(method) and method is not Steers.response]


def _place(cls: type) -> tuple[str, str]:
    """Return the module and name of a class. They stay the same if the class is made again."""
    return cls.__module__, cls.__qualname__


def _set(names: set[str], name: str, *, on: bool) -> None:
    (names.add if on else names.discard)(name)
