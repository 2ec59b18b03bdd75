"""A model that answers from a script: for first steps, tests and demonstrations, without a key or a network.

The number of recorded replies (`request.answered`) chooses the item, so a script continues correctly after a crash.

    gesta.scripted(
        gesta.call("weather", city="Rome"),                                  # one call of a tool
        ["Two at once.", gesta.call("weather", city="Oslo"), gesta.call("now")],
        gesta.fault("503"),                                                  # the next answer fails once, then succeeds
        gesta.reply("Dry.", thought="No rain.", usage={"total_tokens": 7}),  # a reply with all its members
        lambda request: f"That was answer {request.answered + 1}.",          # called when the answer is needed
        "Goodbye.",                                                          # a text
    )
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from gesta.errors import AgentError, ModelFault, ScriptExhausted
from gesta.function_tool.signature import check_call
from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Delta, Envelope, Given, LocalModel, Parser, Piece, Reply, ReplyCall, Request
from gesta.models.chat_completions import ChatDialect, ChatParser
from gesta.models.faults import retryable
from gesta.models.jsontext import exact, read

PIECES, PIECE = 16, 16
"""The greatest number of pieces into which a text is cut, and the smallest number of characters of a piece."""


class Fault(Struct, frozen=True, kw_only=True):
    """An item of a script that makes the next answer fail. `gesta.fault` makes it."""

    type: str
    message: str
    http_status: int | None = None
    retry: bool = True
    retry_after_s: float | None = None
    times: int | None = 1
    """The number of tries that fail; `None` if every try fails."""
    after: int = 0
    """The number of characters of the answer that are shown before the failure."""
    of: Any = None
    """The answer that follows in the script. Its first characters are shown before the failure."""

    def error(self) -> ModelFault:
        """Return the ModelFault that the failing request raises."""
        return ModelFault(
            self.type,
            self.message,
            http_status=self.http_status,
            retry=self.retry,
            retry_after_s=self.retry_after_s,
        )


Item = str | ReplyCall | Reply | Fault | Sequence[Any] | Callable[[Request], Any]
"""The types that a script may contain. A sequence holds the texts and calls of one reply."""

Answer = Item | bytes
"""An item of a script, or the recorded bytes of a reply."""

EXPECTED = "a text, gesta.call(...), a list of these for one reply, gesta.reply(...), gesta.fault(...), or a function"


def call(name: str, /, **args: Any) -> ReplyCall:
    """Return a tool call for a script. The keywords are the tool's arguments; any name is allowed.

    The call has no id, because many servers send none. For a call with an id, or with arguments that are not valid
    JSON, write `gesta.model.request.ReplyCall("weather", '{"city": "Rome"}', "call_1")`.
    """
    return ReplyCall(name, exact(args).decode())


def reply(
    text: str = "",
    *,
    calls: Iterable[ReplyCall] = (),
    thought: str | None = None,
    usage: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> Reply:
    """Return a reply for a script, with any of the members that a model's reply can have.

    Args:
        calls: parallel tool calls, as `gesta.call` makes them.
        thought: the reasoning that the reply shows.
        usage: token counts as a provider would send them, such as `{"prompt_tokens": 3, "completion_tokens": 5}`.
        finish_reason: by default `stop`, or `tool_calls` if there are calls.

    Raises:
        AgentError: `calls` contains something else than calls.
    """
    found = tuple(calls)
    for one in found:
        if not isinstance(one, ReplyCall):
            raise AgentError(f"gesta.reply: calls hold {one!r} ({type(one).__name__}); expected gesta.call(...).")
    return Reply(text=text, calls=found, thought=thought, usage=usage, finish_reason=finish_reason, keep=False)


def fault(
    what: str | int = "503",
    *,
    times: int | None = 1,
    after: int = 0,
    retry: bool | None = None,
    retry_after_s: float | None = None,
    message: str = "",
) -> Fault:
    """Return an item of a script that makes the answer after it fail. It is not an answer itself.

    Args:
        what: an HTTP status, or a type such as `lost-stream` or `timeout`.
        times: number of tries that fail; `None` if all fail.
        after: number of characters of the answer that are shown before it fails, as in a lost stream.
        retry: whether the request is tried again; by default as for the same error of a provider.
        retry_after_s: seconds to wait before the next try, as a provider may ask.
        message: the text of the error.

    Raises:
        AgentError: a number is out of its range.
    """
    status = int(what) if str(what).isdecimal() else None
    if (status is not None and not 400 <= status < 600) or (times is not None and times < 1) or after < 0:
        raise AgentError(
            f"gesta.fault({what!r}, times={times!r}, after={after!r}): a status is 400 to 599, times at least 1 or "
            "None for always, after at least 0."
        )
    return Fault(
        type=str(what) if status is None else f"http-{status}",
        message=message or f"scripted fault {what}",
        http_status=status,
        retry=retry if retry is not None else status is None or retryable(status),
        retry_after_s=retry_after_s,
        times=times,
        after=after,
    )


def scripted(*items: Item, name: str = "scripted", stream: bool = True, pause_s: float = 0.0) -> "Keyless":
    """Return a model that answers with these items, one after the other.

    Args:
        name: name of the model, for the record and for errors.
        stream: whether replies come in pieces, to be shown while they arrive.
        pause_s: seconds to wait before each piece, so that a person can watch.

    Raises:
        AgentError: an item has a type that a script cannot contain; the message names the item.
    """
    return Keyless(name, Script(name, items).choose, spoken(name, stream=stream), pause_s=pause_s)


class Script:
    """The items of a script, separated into answers and faults. A fault makes the answer after it fail."""

    def __init__(self, name: str, items: Iterable[Item]) -> None:
        self.name = name
        self.answers: list[Item] = []
        self.faults: dict[int, list[Fault]] = {}
        """The faults before each answer, by the number of the answer, from 0."""
        for number, item in enumerate(items, 1):
            if isinstance(item, Fault):
                self.faults.setdefault(len(self.answers), []).append(item)
            else:
                check(item, f"Item {number} of model {name!r}")
                self.answers.append(item)

    def choose(self, request: Request) -> Item:
        """Return the answer for a request, or a fault if this try of the request must fail.

        Raises:
            ScriptExhausted: the script has no more items.
        """
        place = request.answered
        item = self.answers[place] if place < len(self.answers) else None
        if place in self.faults:
            left = request.number
            for found in self.faults[place]:
                if found.times is None or left <= found.times:
                    return msgspec.structs.replace(found, of=item)
                left -= found.times
        if item is None:
            raise ScriptExhausted(self.name, place + 1, len(self.answers))
        return item


class Keyless(LocalModel):
    """A model that runs in this process: a function chooses each reply.

    The requests to such a model have the form of Chat Completions, but are sent nowhere.
    """

    def __init__(
        self,
        name: str,
        choose: Callable[[Request], Answer | Awaitable[Answer]],
        dialect: ChatDialect,
        *,
        pause_s: float = 0.0,
        keep: bool = False,
    ) -> None:
        self.name = name
        self._choose, self._dialect, self._pause_s, self._keep = choose, dialect, pause_s, keep

    def __repr__(self) -> str:
        """Return `<model 'NAME'>`."""
        return f"<model {self.name!r}>"

    @property
    def encoder(self) -> str:
        """Name and version of the encoding of messages, `chat-completions/1`."""
        return self._dialect.encoder

    def encode(self, message: Message) -> bytes:
        """Return one message as a block: the bytes that represent it in the body of every request."""
        return self._dialect.encode(message)

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the request body without the messages: the settings, tools and instructions from `header`."""
        return self._dialect.envelope(header)

    def parser(self) -> Parser:
        """Return a new parser, which reads one reply."""
        return Given(self._read)

    def _read(self) -> Parser:
        """Return a parser for replies that are bytes, as a provider of Chat Completions sent them."""
        return ChatParser(keep=self._keep)

    async def send(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Yield the chosen reply: first its words in pieces, if it is streamed, then the whole reply.

        If the reply is `bytes`, as a provider sent them, only these are yielded.

        Raises:
            ModelFault: the script says that this try fails.
            AgentError: a function returned something that is not an item of a script.
            ScriptExhausted: the script has no more items.
        """
        async for piece in self._pieces(await self._settled(self._choose, request), request):
            yield piece

    async def answer(self, request: Request) -> Reply | AsyncGenerator[Piece, None]:
        """Return the chosen reply as a whole. Gesta calls `answer` instead of `send` if the pieces need not be shown.

        Return the generator of `send` instead if the model pauses between pieces, if the reply is `bytes`, or if this
        try must fail. Raises the same errors as `send`.
        """
        item = await self._settled(self._choose, request)
        if self._pause_s or isinstance(item, bytes | Fault):
            return self._pieces(item, request)
        return finished(as_reply(item, f"Answer {request.answered + 1} of model {self.name!r}"), self._dialect.model)

    async def _pieces(self, item: Any, request: Request) -> AsyncGenerator[Piece, None]:
        if isinstance(item, bytes):
            yield item
            return
        cut = item if isinstance(item, Fault) else None
        if cut is not None:
            if not (cut.after and self._dialect.stream and cut.of is not None):
                raise cut.error()
            item = await self._settled(cut.of, request)
        answer = as_reply(item, f"Answer {request.answered + 1} of model {self.name!r}")
        if cut is not None:
            answer = Reply(text=answer.text[: cut.after])
        for delta in deltas(answer) if self._dialect.stream else ():
            if self._pause_s:
                await anyio.sleep(self._pause_s)
            yield delta
        if cut is not None:
            raise cut.error()
        yield finished(answer, self._dialect.model)

    async def _settled(self, item: Any, request: Request) -> Any:
        while callable(item):
            item = item(request)
            if item.__class__ is not Reply and inspect.isawaitable(item):
                item = await item
        return item


def spoken(name: str, *, stream: bool, settings: dict[str, Any] | None = None) -> ChatDialect:
    """Return the dialect, Chat Completions, in which a model's requests are written and recorded.

    Args:
        name: the model's name; a provider before a colon is dropped.
    """
    return ChatDialect(name.partition(":")[2] or name, settings or {}, stream)


def check(item: Any, what: str) -> None:
    """Raise AgentError if a value cannot be an item of a script. The message says what was expected.

    A function as an item is called with the request.

    Args:
        what: the name of the item, for the message.
    """
    if isinstance(item, str | ReplyCall | Reply | Fault):
        return
    if callable(item) and not isinstance(item, type):
        check_call(item, ("request",), f"{what}: found ")
        return
    if isinstance(item, list | tuple) and item:
        for part in item:
            if not isinstance(part, str | ReplyCall):
                raise AgentError(f"{what} holds {_shown(part)}; expected texts and gesta.call(...) only.")
        return
    raise AgentError(f"{what} is {_shown(item)}; expected {EXPECTED}.")


def as_reply(item: Any, what: str) -> Reply:
    """Return an item of a script as a reply.

    Args:
        what: the name of the item, for the error.

    Raises:
        AgentError: the value cannot be an item of a script.
        ModelFault: the item is a fault.
    """
    if isinstance(item, str):
        return Reply(text=item)
    if isinstance(item, Reply):
        return item
    if isinstance(item, ReplyCall):
        return Reply(calls=(item,))
    check(item, what)
    if isinstance(item, Fault):
        raise item.error()
    texts = [part for part in item if isinstance(part, str)]
    return Reply(text="\n".join(texts), calls=tuple([part for part in item if isinstance(part, ReplyCall)]))


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def deltas(answer: Reply) -> Iterator[Delta]:
    """Yield a reply's thought, and its text in pieces, to be shown while the reply arrives."""
    if answer.thought:
        yield Delta("thought", answer.thought)
    text = answer.text
    size = max(PIECE, -(-len(text) // PIECES))
    for start in range(0, len(text), size):
        yield Delta("text", text[start : start + size])


def finished(answer: Reply, name: str) -> Reply:
    """Return the reply with the members that a provider would add, such as a model's name and a finish reason.

    Missing arguments of calls become `{}`.

    Args:
        name: the model's name, which is used if the reply has none.
    """
    calls = answer.calls
    for one in calls:  # runs at each reply: any() with a generator takes longer
        if not one.args:
            calls = tuple(msgspec.structs.replace(one, args=one.args or "{}") for one in calls)
            break
    reason = "tool_calls" if calls else "stop"
    return Reply(
        text=answer.text,
        calls=calls,
        thought=answer.thought or None,
        model=name if answer.model is None else answer.model or None,
        finish_reason=answer.finish_reason or (reason if answer.finish_reason is None else None),
        usage=None if answer.usage is None else read(exact(answer.usage)),
        keep=False,
    )
