"""A model and tools that say and give what they did, and do nothing: what stands in for the outside on a stage."""

import json
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, ParamSpec

from msgspec.structs import replace

from gesta.agent import Agent
from gesta.compare.stage import Stage
from gesta.context import Context
from gesta.errors import BadArguments
from gesta.kinds import RequestHeaderContent, ToolResultContent
from gesta.message import Message
from gesta.model import Delta, Envelope, Model, Parser, Reply, Request
from gesta.result import Told
from gesta.tooling import InThread, Tool

P = ParamSpec("P")
CONTEXT = "gesta_replayed_context"
"""Parameter by which a tool gets the context, whatever its own are."""


class PlayedModel:
    """A model that is asked as it was, and says what it said."""

    def __init__(self, stage: Stage, model: Model) -> None:
        self._stage, self._model = stage, model
        self._heard = Heard(model.parser)

    @property
    def name(self) -> str:
        """The model's."""
        return self._model.name

    @property
    def encoder(self) -> str:
        """The model's."""
        return self._model.encoder

    def encode(self, message: Message) -> bytes:
        """Turn one message into one block."""
        return self._model.encode(message)

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Turn a header into what stands around the blocks."""
        return self._model.envelope(header)

    async def send(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Yield the bytes that came, where they were kept."""
        answer, content = self._stage.answer()
        native = (content.meta or {}).get("native")
        if answer.raw is not None:
            yield zlib.decompress(answer.raw)
            return
        self._heard.reply = replace(
            answer.reply,
            model=content.model,
            finish_reason=content.finish_reason,
            native=native.get("items") if isinstance(native, dict) else None,
        )

    def parser(self) -> Parser:
        """Make a reader for one reply."""
        self._heard = Heard(self._model.parser)
        return self._heard


class Heard:
    """Reads a reply from its bytes, or gives the one that is on record."""

    def __init__(self, parser: Callable[[], Parser]) -> None:
        self.reply: Reply | None = None
        self._make = parser
        self._parser: Parser | None = None

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes."""
        self._parser = self._parser or self._make()
        return self._parser.feed(data)

    def close(self) -> Reply:
        """Give the reply."""
        if self.reply is not None:
            return self.reply
        return (self._parser or self._make()).close()


class PlayedTool(Tool, frozen=True, kw_only=True, eq=False):
    """A tool that gives what it gave, and does nothing."""

    stage: Stage
    real: Tool

    async def invoke(self, arguments: dict[str, Any], context: Context, in_thread: InThread | None = None) -> Any:
        """Give the result that is on record; of one that may be run, what it gives now."""
        if self.agent is not None:
            return await self.real.invoke(arguments, context, in_thread)
        attempt = _attempt(context)
        for name, asked in self.stage.called(attempt):
            await context.call(Agent(name, program=nobody), asked)
        content = await self.stage.result(attempt)
        if self.name in self.stage.live:
            return await self.real.invoke(arguments, context, in_thread)
        return given(content)


def played(stage: Stage, tool: Tool) -> PlayedTool:
    """Make a tool that gives what it gave."""

    async def reconcile(_key: str, context: Context) -> Any:
        return stage.settled(_attempt(context))

    fields = {name: getattr(tool, name) for name in tool.__struct_fields__} | {"context_names": (CONTEXT,)}
    fields["reconcile"] = reconcile if tool.reconcile is not None else None
    if tool.effect == "transactional":
        fields["function"] = _giving(stage)
    return PlayedTool(**fields, stage=stage, real=tool)


def _giving(stage: Stage) -> Callable[P, Any]:
    def give(*_args: P.args, **kwargs: P.kwargs) -> Any:
        context = kwargs[CONTEXT]
        assert isinstance(context, Context)
        return given(stage.result_at_once(_attempt(context)))

    return give


async def nobody(*_: Any) -> None:
    """Stand where an agent is only named."""


def _attempt(context: Context) -> int:
    """Give the attempt that a tool is told of."""
    return int(context.explain_id.rpartition(".")[2])


def given(content: ToolResultContent) -> Any:
    """Give what a tool returned, or raise what it raised, so that the same result comes of it."""
    extra = {name: value for name, value in (content.extra or {}).items() if name != "state"}
    if content.outcome == "ok":
        return Told(content.tool_result, extra) if extra else content.tool_result
    error = extra.get("error")
    if isinstance(error, Mapping):
        raise type(str(error.get("type")), (Exception,), {})(str(error.get("message", "")))
    raise BadArguments(text(content.tool_result))


def text(value: Any) -> str:
    """Write a value as text."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
