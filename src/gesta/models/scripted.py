"""A model that answers from a script: for first steps, tests and demonstrations, without a key or a network.

It keeps no counter: item `answered` of the script answers a request, so a script continues after a crash where it was.
Its requests are Chat Completions bytes. Its replies are objects and no bytes, with several deltas.

    gesta.scripted(
        gesta.call("weather", city="Rome"),                                  # one call of a tool
        ["Two at once.", gesta.call("weather", city="Oslo"), gesta.call("now")],
        gesta.fault("503"),                                                  # the next answer fails once, then comes
        gesta.reply("Dry.", thought="No rain.", usage={"total_tokens": 7}),  # in full
        lambda request: f"That was answer {request.answered + 1}.",          # made when it is asked for
        "Goodbye.",                                                          # text
    )
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from gesta.errors import AgentError, ModelFault, ScriptExhausted
from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Delta, Envelope, Given, LocalModel, Parser, Piece, Reply, ReplyCall, Request
from gesta.models.chat_completions import ChatDialect, ChatParser
from gesta.models.faults import retryable
from gesta.models.jsontext import exact, read

PIECES, PIECE = 16, 16
"""The largest number of pieces of a text, and the smallest number of characters in a piece."""


class Fault(Struct, frozen=True, kw_only=True):
    """An item that makes tries fail. Made by `fault`."""

    type: str
    message: str
    http_status: int | None = None
    retry: bool = True
    retry_after_s: float | None = None
    times: int | None = 1
    """The number of tries that fail; `None` for all."""
    after: int = 0
    """The number of characters that are shown before the failure."""
    of: Any = None
    """The answer whose first characters are shown before the failure."""

    def error(self) -> ModelFault:
        """Return the error to raise."""
        return ModelFault(
            self.type,
            self.message,
            http_status=self.http_status,
            retry=self.retry,
            retry_after_s=self.retry_after_s,
        )


Item = str | ReplyCall | Reply | Fault | Sequence[Any] | Callable[[Request], Any]
"""The types that a script may hold. A sequence holds the texts and calls of one reply."""

Answer = Item | bytes
"""An item, or the recorded bytes of a reply."""

EXPECTED = "a text, gesta.call(...), a list of these for one reply, gesta.reply(...), gesta.fault(...), or a function"


def call(name: str, /, **args: Any) -> ReplyCall:
    """Return a call of a tool. The keywords are the tool's arguments, whatever their names.

    The call has no id, as from many servers. For a call with an id, or with arguments that are not valid JSON, write
    `gesta.model.request.ReplyCall("weather", '{"city": "Rome"}', "call_1")`.
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
    """Return a reply with all its members.

    Args:
        calls: parallel calls, as `gesta.call` makes them.
        thought: reasoning that the reply shows.
        usage: as a provider would give it, such as `{"prompt_tokens": 3, "completion_tokens": 5}`.
        finish_reason: by default `stop`, or `tool_calls`.

    Raises:
        AgentError: an element of the calls is no call.
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
    """Return an item that makes tries of the next answer fail. It is no answer itself.

    Args:
        what: an HTTP status, or a type such as `lost-stream` or `timeout`.
        times: number of tries that fail; `None` for all of them.
        after: number of characters of the next answer that are shown before it fails, as in a lost stream.
        retry: whether to try again; by default as for a provider's error.
        retry_after_s: pause in seconds that the fault asks for.

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
    """Make a model that answers with these items, one after the other.

    Args:
        name: name of the model, on record and in errors.
        stream: whether replies come in pieces.
        pause_s: pause before each piece, to watch it.

    Raises:
        AgentError: an item is of no type that a script can hold; the message names it.
    """
    return Keyless(name, Script(name, items).choose, spoken(name, stream=stream), pause_s=pause_s)


class Script:
    """The items of a script, in the order of the answers."""

    def __init__(self, name: str, items: Iterable[Item]) -> None:
        self.name = name
        self.answers: list[Item] = []
        self.faults: dict[int, list[Fault]] = {}
        """Faults by the number, from 0, of the answer that they come before."""
        for number, item in enumerate(items, 1):
            if isinstance(item, Fault):
                self.faults.setdefault(len(self.answers), []).append(item)
            else:
                check(item, f"Item {number} of model {name!r}")
                self.answers.append(item)

    def choose(self, request: Request) -> Item:
        """Return the item for a request, or the fault for this try of the request.

        Raises:
            ScriptExhausted: the script has no item for it.
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
    """A model whose replies are made in Python. Its requests have the form of Chat Completions."""

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
        """Return the model's name for a person."""
        return f"<model {self.name!r}>"

    @property
    def encoder(self) -> str:
        """The encoder of the dialect."""
        return self._dialect.encoder

    def encode(self, message: Message) -> bytes:
        """Return one message as one block."""
        return self._dialect.encode(message)

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the envelope for a header: the parts of the body around the blocks."""
        return self._dialect.envelope(header)

    def parser(self) -> Parser:
        """Return a new parser for one reply."""
        return Given(self._read)

    def _read(self) -> Parser:
        """Return a parser for the bytes of a reply."""
        return ChatParser(keep=self._keep)

    async def send(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Yield the reply of the next item. If the reply is streamed, its words come before it in pieces.

        Raises:
            ModelFault: the item is a fault.
            AgentError: a function returned a value that is no item.
            ScriptExhausted: there is no item.
        """
        async for piece in self._pieces(await self._settled(self._choose, request), request):
            yield piece

    async def answer(self, request: Request) -> Reply | AsyncGenerator[Piece, None]:
        """Return the reply of the next item as a whole. If it is paced, fails or is bytes, return its pieces instead.

        Raises as `send`.
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
    """Return the Chat Completions dialect for a model's name. The body names the model without its provider."""
    return ChatDialect(name.partition(":")[2] or name, settings or {}, stream)


def check(item: Any, what: str) -> None:
    """Raise AgentError for a value that is no item of a script.

    Raises:
        AgentError: the value is no item; the message says what was expected.
    """
    if isinstance(item, str | ReplyCall | Reply | Fault) or (callable(item) and not isinstance(item, type)):
        return
    if isinstance(item, list | tuple) and item:
        for part in item:
            if not isinstance(part, str | ReplyCall):
                raise AgentError(f"{what} holds {_shown(part)}; expected texts and gesta.call(...) only.")
        return
    raise AgentError(f"{what} is {_shown(item)}; expected {EXPECTED}.")


def as_reply(item: Any, what: str) -> Reply:
    """Return an item of a script as a reply.

    Raises:
        AgentError: it is not an item of a script.
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
    """Yield the thought of a reply, and its text cut into pieces, for a listener."""
    if answer.thought:
        yield Delta("thought", answer.thought)
    text = answer.text
    size = max(PIECE, -(-len(text) // PIECES))
    for start in range(0, len(text), size):
        yield Delta("text", text[start : start + size])


def finished(answer: Reply, name: str) -> Reply:
    """Return a reply with the members of a provider's reply: model, finish reason, and arguments for each call."""
    calls = answer.calls
    for one in calls:  # at each reply: a generator takes longer
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
