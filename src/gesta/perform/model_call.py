"""Sends one request to a model. The request is on record before its first byte is sent; the reply is written later.

An entry is one recorded fact of a run; its seq is its number there. A completion is the entry with the model's reply. A
fault is an entry about a failed try. It says whether another try follows, and after which pause. So a process that
takes over the turn waits only for the rest of the pause.
"""

import time
import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import anyio
import msgspec
from msgspec import Struct, field

from gesta.agent import Agent
from gesta.decide.budget import reserved, settled
from gesta.decide.move import retry_wait_s
from gesta.entry import Entry
from gesta.errors import ModelFault, message_of
from gesta.events import AnswerEvent, ThoughtEvent
from gesta.function_tool.output import ANSWER
from gesta.kinds import (
    BudgetContent,
    ChatCompletionContent,
    Error,
    FaultContent,
    RequestContent,
    ThoughtContent,
)
from gesta.model.request import Delta, LocalModel, Parser, Piece, Reply, Request, native_by
from gesta.perform.call_contents import checked_call, trace_of
from gesta.perform.compaction import compact
from gesta.perform.execution import Heading, LiveRun
from gesta.perform.instructions import instructed
from gesta.perform.threads import strayed
from gesta.prompt import Reader
from gesta.state.calls import LOST
from gesta.text.redactor import SECRETS, Flow

AFTER_S = 0.5
"""Greatest number of seconds to wait for the end of the connection after the end of a reply. A connection that ends can
be used again; some servers leave it open."""


class Coming(Struct):
    """A reply while it is being received: its bytes so far, and how much of it was sent to listeners."""

    message: int
    """Seq of the request."""
    held: dict[str, Any] | None = None
    """Tokens and US dollars that were reserved for the request; `None` without a budget."""
    raw: list[bytes] = field(default_factory=list)
    """The received bytes, in order."""
    begun: bool = False
    """Whether any byte or word of the reply has been received."""
    chars: int = 0
    """Number of characters of the answer that were sent to listeners."""
    in_text: bool = False
    """Whether the model writes its tool calls as text, so that a formatter reads them from the reply."""
    unheard: bool = False
    """Whether words came when there was no listener. Then no more words are streamed, and listeners get the whole reply
    once it is on record."""
    thought: bool = False
    """Whether reasoning was sent to listeners."""
    answering: bool = False
    """Whether the answer has begun, and listeners were told that the reasoning is complete."""
    flows: dict[str, Flow] = field(default_factory=dict)
    """Filters that remove secrets from the words for listeners: one for `text` and one for `thought`."""
    secret: bool = False
    """Whether the reply contains a secret. Then its raw bytes are not recorded."""
    quiet: bool = False
    """Whether the answer is held back from listeners until a hook has allowed it."""


async def ask(agent: Agent, live: LiveRun, *, smaller: bool = False) -> None:
    """Send one request to the model. The request is recorded before, and the reply or a `fault` entry after.

    Args:
        smaller: whether to shorten the prompt instead, if anything can be left out of it.
    """
    turn = live.state.turn
    if turn is not None and turn.instead:
        agent = agent.in_place(turn.instead)
        await live.encode_for(agent)
    agent = agent.offering(live.state.tool_state)
    if smaller:
        await compact(agent, live)
        return
    heading = live.heading
    if heading is None or heading.agent is not agent:  # or else the heading of the last request is used
        made = agent if isinstance(agent.instructions, str) else await instructed(agent, live)
        if made is None:
            return
        agent, heading = made, live.head(made)
    (request, entry), start = _write_request(heading, live), time.monotonic()
    coming = Coming(entry.seq, quiet=agent.hooks is not None and agent.hooks.answer is not None)
    if agent.policy.budget is not None or (turn is not None and turn.spending.allowed is not None):
        coming.held = reserved(agent, live.state)
    if coming.held is not None:
        live.write(BudgetContent(of=entry.seq, reserved=coming.held), entry.seq)
    await live.log.journal.durable()
    try:
        whole, reply = await _exchange(agent, live, request, coming)
    except BaseException as raised:
        if strayed(raised) or not isinstance(raised, anyio.get_cancelled_exc_class() | KeyboardInterrupt):
            _write_fault(agent, live, entry, raised, coming)
            return
        await _write_broken_off(live, coming)
        raise
    completion = live.write(
        ChatCompletionContent(
            output=whole,
            model=reply.model,
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            latency_ms=round((time.monotonic() - start) * 1000, 3),
            meta=_meta(agent, coming, reply),
        ),
        coming.message,
    )
    _record(agent, live, coming, completion, reply)
    if coming.held is not None:
        spent = settled(agent, coming.held, reply.usage)
        live.write(BudgetContent(of=entry.seq, spent=spent), entry.seq, completion.seq)


async def _write_broken_off(live: LiveRun, coming: Coming) -> None:
    """Write a `fault` entry about an interrupted request, even while this task is being cancelled."""
    with anyio.CancelScope(shield=True):
        error = Error(type=LOST, message="the process stopped asking")
        live.write(FaultContent(of=coming.message, error=error, shown_chars=coming.chars or None), coming.message)
        live.take_back(coming.message)
        await live.log.durable()


def _write_request(heading: Heading, live: LiveRun) -> tuple[Request, Entry]:
    """Write the entry of a request with this heading, and return the request to send and its entry.

    The entry has the blocks (encoded messages) that the request adds, and the digest of the whole body.
    """
    state, prompt, header = live.state, live.prompt, heading.header
    if header != state.header:
        live.write(header)
        live.absorb()
        state = live.state
        if state.header == header:
            state.header = header  # the folded header is equal, but a copy of all schemas
    prompt.close()
    asked = state.asked
    extends = asked if asked is not None and asked.encoder in ("", prompt.encoder) else None
    added = prompt.shown[extends.blocks if extends is not None else 0 :]
    request = prompt.request(header, heading.envelope, state.answered)
    number = asked.number + 1 if asked is not None and asked.digest == request.digest else 1
    blocks, news = list[str | list[Any]](), set[int]()
    for shown in added:
        blocks.append([list(shown.sources), prompt.encoder])
        news.update(shown.sources)
    content = RequestContent(
        header=state.header_seq,
        extends=extends.seq if extends is not None else None,
        blocks=blocks,
        body_digest=request.digest,
        number=number,
    )
    entry = live.write(content, *([extends.seq] if extends is not None else []), *sorted(news))
    assert state.turn is not None
    return msgspec.structs.replace(request, number=state.turn.faults + 1), entry


async def _exchange(agent: Agent, live: LiveRun, request: Request, coming: Coming) -> tuple[str, Reply]:
    """Send the request, and return the text of the reply for the record, and the parsed reply.

    While the reply is received, its words are sent to listeners.
    """
    model, reader, fed = agent.asked(), agent.formats().reader(), 0
    live.streamed, coming.in_text = False, reader is not None
    if not live.broadcast.listeners and isinstance(model, LocalModel):
        given = await model.answer(request)
    else:
        given = model.send(request)
    if isinstance(given, Reply):
        reply = given
    else:
        reply, fed = await _read_pieces(live, coming, reader, model.parser(), given)
    whole = reply.text
    if reader is not None:
        for read in reader.feed(whole[fed:]):
            if fed:  # a reply that was not streamed is shown as a whole later
                _show(live, coming, read)
        reply = reader.close(reply)
    if live.streamed:
        _show(live, coming, Delta("text", reply.text[coming.chars :]))
    if coming.flows:
        _flush(live, coming)
    if SECRETS.search is not None:
        said = (reply.text, reply.thought or "", *(call.args for call in reply.calls))
        coming.secret = any(SECRETS.named_in(text) is not None for text in said)
    if reply.calls and reply.calls[0].name == ANSWER and _gives_answer(agent, reply):
        thought = "\n\n".join(text for text in (reply.thought, reply.text) if text) or None
        whole = reply.calls[0].args
        live.take_back(coming.message)
        reply = msgspec.structs.replace(reply, text=whole, calls=(), thought=thought, native=None)
    return whole, reply


async def _read_pieces(
    live: LiveRun, coming: Coming, reader: Reader | None, parser: Parser, pieces: AsyncGenerator[Piece, None]
) -> tuple[Reply, int]:
    """Receive a streamed reply, and send its words to listeners.

    Return the reply, and the number of its characters that were passed to `reader`.

    Args:
        reader: reads tool calls from the text; `None` if the provider returns them separately.
    """
    fed = 0
    async with aclosing(pieces) as chunks:
        async for data in chunks:
            coming.begun = True
            if isinstance(data, bytes):
                coming.raw.append(data)
            for delta in parser.feed(data):
                if reader is None or delta.type == "thought":
                    _show(live, coming, delta)
                    continue
                fed += len(delta.text)
                for read in reader.feed(delta.text):
                    _show(live, coming, read)
            if getattr(parser, "over", False):
                with suppress(ModelFault), anyio.move_on_after(AFTER_S):
                    await anext(chunks, None)
                break
    return parser.close(), fed


def _gives_answer(agent: Agent, reply: Reply) -> bool:
    """Return whether a reply calls only the tool by which the model gives its answer; see `Output.by`.

    A call without arguments, in a reply that was cut off, gives no answer.
    """
    if reply.calls[-1].args in ("", "{}") and reply.cut:
        return False
    return agent.answers_by() == "tool" and all(call.name == ANSWER for call in reply.calls)


def _show(live: LiveRun, coming: Coming, delta: Delta) -> None:
    if not delta.text or (coming.quiet and delta.type == "text"):
        return
    if coming.unheard or not live.broadcast.listeners:
        coming.unheard = True
        return
    if delta.type == "text":
        if coming.thought and not coming.answering:
            coming.answering = True
            _tell(live, coming, "thought", coming.flows.pop("thought").feed("", last=True))
            live.tell(ThoughtEvent, "", coming.message, last=True)
        coming.chars += len(delta.text)
        live.streamed = True
    else:
        coming.thought, coming.answering = True, False
    flow = coming.flows.get(delta.type) or coming.flows.setdefault(delta.type, Flow(SECRETS))
    _tell(live, coming, delta.type, flow.feed(delta.text))


def _flush(live: LiveRun, coming: Coming) -> None:
    """Send listeners the last words, which were held back in case a secret begins in them."""
    for type_, flow in coming.flows.items():
        _tell(live, coming, type_, flow.feed("", last=True))


def _tell(live: LiveRun, coming: Coming, type_: str, text: str) -> None:
    if text:
        live.tell(AnswerEvent if type_ == "text" else ThoughtEvent, text, coming.message)


def _write_fault(agent: Agent, live: LiveRun, entry: Entry, raised: BaseException, coming: Coming) -> None:
    """Write a `fault` entry about a failed try.

    If another try follows, the entry has the pause before it and the model to ask.

    Args:
        entry: entry of the request.
        raised: the exception by which the try failed.
    """
    failure = raised if isinstance(raised, Exception) else ModelFault(type(raised).__name__, message_of(raised))
    turn = live.state.turn
    assert turn is not None
    wait_s, status, name = None, None, type(failure).__name__
    instead = None
    if isinstance(failure, ModelFault):
        name, status, wait_s = failure.type, failure.http_status, retry_wait_s(agent, turn, failure)
        if wait_s is None and agent.fallbacks:
            wait_s, instead = 0.0, agent.fallbacks[0].asked().name
    error = Error(type=name, message=message_of(failure), http_status=status, traceback=trace_of(failure))
    meta, chars = (_raw(coming) or None) if coming.raw else None, coming.chars or None
    fault = FaultContent(of=entry.seq, error=error, wait_s=wait_s, shown_chars=chars, instead=instead, meta=meta)
    live.write(fault, entry.seq)
    if coming.held is not None and status is not None and not coming.begun:  # refused, so not billed
        live.write(BudgetContent(of=entry.seq, spent={"tokens": 0, "usd": 0.0}), entry.seq)
    live.take_back(coming.message)


def _raw(coming: Coming) -> dict[str, Any]:
    """Return the received bytes of a reply, compressed, for the record; an empty dict if they contain a secret."""
    data = b"".join(coming.raw)
    if coming.secret or SECRETS.bytes(data) is not data:
        return {}
    return {"raw_zlib": zlib.compress(data)}


def _meta(agent: Agent, coming: Coming, reply: Reply) -> dict[str, Any] | None:
    """Return data to record with the reply: the received bytes, and items that the provider wants in later requests.

    Return `None` if there is neither.
    """
    native = {} if reply.native is None else {"native": {"by": native_by(agent.asked()), "items": reply.native}}
    return (_raw(coming) if reply.keep else {}) | native or None


def _record(agent: Agent, live: LiveRun, coming: Coming, completion: Entry, reply: Reply) -> None:
    # these entries are committed together with the completion
    if reply.thought:
        live.write(ThoughtContent(value=reply.thought), completion.seq)
    if live.streamed and (reply.calls or not reply.text.strip()):
        live.take_back(coming.message)
    if reply.calls and reply.text and coming.in_text:  # the record holds the words and the calls in one text
        live.tell(ThoughtEvent, reply.text, coming.message, last=True)
    for call in reply.calls:
        lost = call is reply.calls[-1] and call.args in ("", "{}") and reply.cut
        live.write(checked_call(agent, call, lost=lost), completion.seq)
