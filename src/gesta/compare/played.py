"""A model, tools, instructions and hooks that repeat what is on record. A replay uses them in place of the real ones.

The stage is the store to which the replay writes; it knows which recorded entry comes next. An attempt is the entry
that says that a tool is about to run. A live tool is one that the replay really runs. A verdict is the decision of a
hook (a function of the program), such as to deny a call.
"""

import functools
import json
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, ParamSpec

from msgspec.structs import replace

from gesta.agent import Agent, Instructions
from gesta.compare.stage import Stage
from gesta.errors import BadArguments
from gesta.function_tool.context import Context
from gesta.function_tool.tool import InThread, Tool
from gesta.hooks import VERDICTS, CallHooks, Change, Hooks, Verdict
from gesta.kinds import (
    CheckContent,
    Content,
    EdgeContent,
    Error,
    FaultContent,
    RequestContent,
    RequestHeaderContent,
    ToolResultContent,
)
from gesta.message import Message
from gesta.model.request import Envelope, Given, Model, Parser, Piece, Request
from gesta.perform.call_contents import DocumentedResult
from gesta.perform.checks import BY, WRITTEN, hook_name
from gesta.perform.child import TooDeep
from gesta.perform.instructions import MADE_NONE
from gesta.state.calls import DEPTH, HOOK, UNMADE

P = ParamSpec("P")
CONTEXT = "gesta_replayed_context"
"""Name of the parameter that passes the context to a played tool. No real tool has a parameter of this name."""


class PlayedModel:
    """A model that returns the recorded answers. Requests are built by the real model, so that they can be compared."""

    def __init__(self, stage: Stage, model: Model) -> None:
        self._stage, self._model = stage, model

    @property
    def name(self) -> str:
        """Name of the real model."""
        return self._model.name

    @property
    def encoder(self) -> str:
        """Name of the real model's encoder, which turns messages into JSON."""
        return self._model.encoder

    def encode(self, message: Message) -> bytes:
        """Return the bytes of one message in a request, encoded by the real model."""
        return self._model.encode(message)

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the parts of a request body around the messages, made by the real model from `header`.

        The header is the recorded entry that states settings, tools and instructions.
        """
        return self._model.envelope(header)

    async def send(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Yield the recorded bytes of the next reply.

        If the record lacks these bytes, yield a reply that was made from the entries.
        """
        answer, content = self._stage.answer()
        native = (content.meta or {}).get("native")
        if answer.raw is not None:
            yield zlib.decompress(answer.raw)
            return
        yield replace(
            answer.reply,
            model=content.model,
            finish_reason=content.finish_reason,
            native=native.get("items") if isinstance(native, dict) else None,
        )

    def parser(self) -> Parser:
        """Return a parser for one reply. In place of bytes, it also accepts a reply that was made from entries."""
        return Given(self._model.parser)


class PlayedTool(Tool, frozen=True, kw_only=True, eq=False):
    """A tool that returns the recorded results without calling its function."""

    stage: Stage
    real: Tool

    async def invoke(
        self, arguments: dict[str, Any], context: Context | None, in_thread: InThread | None = None
    ) -> Any:
        """Return the recorded result. For a live tool, return the result of a real call."""
        assert context is not None, "a played tool takes a context"
        if self.agent is not None:
            return await self.real.invoke(arguments, context, in_thread)
        attempt = _attempt(context)
        for name, asked, part in self.stage.called(attempt):
            await context.call_as(part, Agent(name, program=nobody), asked)
        content = await self.stage.result(attempt)
        if self.name in self.stage.live:
            return await self.real.invoke(arguments, context, in_thread)
        return given(content)


def played(stage: Stage, tool: Tool, real: Tool | None = None) -> PlayedTool:
    """Return a tool that repeats the recorded results of `tool`.

    If the tool is live, the replay really calls it: `real` if that is given, or else `tool` itself.
    """

    async def reconcile(_key: str, context: Context) -> Any:
        return await stage.settled(_attempt(context))

    fields = {name: getattr(tool, name) for name in tool.__struct_fields__} | {"context_names": (CONTEXT,)}
    fields["needs"] = tool.needs if tool.name in stage.live else None
    fields["reconcile"] = reconcile if tool.reconcile is not None else None
    if tool.effect == "transactional":
        fields["function"] = _giving(stage)
    return PlayedTool(**fields, stage=stage, real=real or tool)


def instructing(stage: Stage, agent: Agent) -> Instructions:
    """Return instructions that repeat the recorded text or error instead of calling the agent's function.

    Instructions that are a text, not a function, are returned unchanged.
    """
    if isinstance(agent.instructions, str):
        return agent.instructions

    @functools.wraps(agent.instructions)
    def again(_context: Context) -> str:
        content = stage.coming()
        if isinstance(content, RequestContent):
            content = stage.recorded[content.header - 1].content
        if isinstance(content, FaultContent) and content.error.type == UNMADE:
            name, _, said = content.error.message.partition(MADE_NONE)[2].partition(": ")
            raise type(name, (Exception,), {})(said)
        return (content.made or "") if isinstance(content, RequestHeaderContent) else ""

    return again


def hooking(stage: Stage, hooks: Hooks | None) -> Hooks | None:
    """Return hooks that repeat the recorded verdicts without calling the agent's hooks.

    Returns `None` if the agent has no hooks.
    """
    if hooks is None:
        return None
    asked: dict[str, Any] = {point: getattr(hooks, point) for point in VERDICTS}
    repeated = {point: _hook(stage, point, hook) for point, hook in asked.items() if hook is not None}
    if isinstance(hooks.call, CallHooks):
        once = set[int]()
        repeated["call"] = CallHooks(tuple(_hook(stage, "call", each, once) for each in hooks.call.each))
    return Hooks(**repeated)


def _hook(stage: Stage, point: str, hook: Callable[..., Any], once: set[int] | None = None) -> Any:
    """Return a hook that repeats the recorded verdicts of one point, such as `call` or `answer`.

    Args:
        stage: the store that the replay writes to.
        point: where the hook is asked.
        hook: the hook of the agent.
        once: for one of several hooks, the seqs of the entries whose verdicts were repeated.
    """

    @functools.wraps(hook)
    async def again(about: Any, context: Context) -> Any:
        called = 0
        while isinstance(content := stage.coming(), EdgeContent) and content.source[-1].startswith(f"{point} {BY}"):
            if content.child is not None and (content.child == content.source[-1]) != (called == 0):
                raise stage.stop()  # another process asked the hook again, and it began with its first agent
            await context.call(Agent(content.dest[0], program=nobody), str(content.payload))
            called += 1
        if isinstance(content, FaultContent) and content.error.type == DEPTH:
            with suppress(TooDeep):
                await context.call(Agent(point, program=nobody), "")  # it is refused again
            content = stage.coming()
        if once is not None:
            content = _own(stage, about.seq, hook_name(hook), once)
        if isinstance(content, FaultContent) and content.error.type == HOOK:
            name, _, said = content.error.message.partition(": ")[2].partition(": ")
            raise type(name, (Exception,), {})(said)
        if not isinstance(content, CheckContent) or content.point != point:
            return None
        return _verdict(content) if point != "call" or content.of == about.seq else None

    return again


def _own(stage: Stage, call: int, name: str, once: set[int]) -> Content | None:
    """Return the next recorded verdict or failure of the hook `name` on a call; `None` if there is none.

    Args:
        once: the seqs of the entries that were returned before; the seq of this one is added.
    """
    for entry in stage.recorded[stage.written :]:
        content = entry.content
        if isinstance(content, FaultContent):
            return content if content.error.message.startswith(f"{name}: ") else None
        if not isinstance(content, CheckContent) or content.of != call:
            return None
        if content.hook == name and entry.seq not in once:
            once.add(entry.seq)
            return content
    return None


def _verdict(content: CheckContent) -> Verdict | None:
    """Return the hook's verdict that a `check` entry records; `None` if that is `allowed`."""
    if content.verdict == "changed":
        return Change(content.value)
    for kind, written in WRITTEN.items():
        if written == content.verdict:
            return kind(content.words or "")
    return None


def _giving(stage: Stage) -> Callable[P, Any]:
    def give(*_args: P.args, **kwargs: P.kwargs) -> Any:
        context = kwargs[CONTEXT]
        assert isinstance(context, Context)
        return given(stage.result_at_once(_attempt(context)))

    return give


async def nobody(*_: Any) -> None:
    """Do nothing. The record states only the name of a called agent, so a replay uses this as the agent's program.

    The program of an agent is a function that runs its turns in place of a model.
    """


def _attempt(context: Context) -> int:
    """Return the seq of the attempt to which a context belongs."""
    return int(context.explain_id.rpartition(".")[2])


def given(content: ToolResultContent) -> Any:
    """Return the value of a recorded result.

    If the result is an error, raise that error: the replay then writes the same result again.
    """
    if content.outcome == "ok":
        value, document = content.tool_result, content.document
        return value if document is None else DocumentedResult(value, document)
    if isinstance(content.error, Error):
        raise type(content.error.type, (Exception,), {})(content.error.message)
    raise BadArguments(text(content.tool_result))


def text(value: Any) -> str:
    """Return a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
