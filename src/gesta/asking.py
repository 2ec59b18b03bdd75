"""Asking the model: placeholders first, then the request, durable before its first byte leaves; then what came back.

A try that fails is a `fault`, and whether another follows, and when, stands in it: `decide` reads it there. So a retry
that was waiting when the process died goes on where it was.
"""

import zlib
from contextlib import aclosing
from datetime import timedelta
from traceback import format_exception
from typing import Any

import anyio
import msgspec
from msgspec import Struct, field

from gesta.affording import overrun, reserved, settled
from gesta.agent import Agent
from gesta.compacting import compact
from gesta.decide import effect_of
from gesta.desk import Desk
from gesta.entry import Entry
from gesta.errors import GestaError, ModelFault, message_of
from gesta.generated import judged, no_such_tool
from gesta.kinds import (
    BudgetContent,
    ChatCompletionContent,
    Error,
    FaultContent,
    RequestContent,
    SystemContent,
    ThoughtContent,
    ToolResultContent,
)
from gesta.model import Delta, Reply, Request, native_by
from gesta.output import ANSWER
from gesta.pending import EXPIRED, LOST, Pending
from gesta.tooling import Tool
from gesta.turn import CORRECTS

DENIED = "A person did not allow this call."
INTERRUPTED = "This call was interrupted and has no result. It only reads, so it may be made again."
NEVER = "This call was not carried out."
UNKNOWN = (
    "The outcome of this call is unknown: it was started, and nobody can say whether it happened. Do not assume "
    "either, and do not make it again without a person's consent."
)


class Coming(Struct):
    """A reply that is coming in: its bytes so far, and what of it was already told."""

    message: int
    """Seq of its request."""
    held: dict[str, Any] | None
    """What was set aside for it."""
    raw: list[bytes] = field(default_factory=list)
    chars: int = 0
    thought: bool = False
    """Whether reasoning was."""
    words: str = ""
    """What stood beside a call of the tool that takes the answer."""


async def ask(agent: Agent, desk: Desk, correction: str | None = None) -> None:
    """Ask the model once, with the tools that may be used where the run stands; tell it first what was wrong."""
    if correction is not None:
        assert desk.state.turn is not None and desk.state.turn.reply is not None
        wrong = desk.state.turn.reply
        desk.write(SystemContent(value=correction, extra={"from": ["output"], CORRECTS: wrong}), wrong)
        assert desk.state.asked is not None
        desk.take_back(desk.state.asked.seq)
        desk.absorb()
    _close_calls(agent, desk)
    agent = agent.offering(desk.state.tool_state)
    await _settle_last_try(desk)
    desk.absorb()
    await compact(agent, desk)
    if overrun(agent, desk.state) is not None:
        return  # the placeholders took what was left: `decide` says how it goes on
    request, entry = _request(agent, desk)
    coming, start = Coming(entry.seq, reserved(agent, desk.state)), anyio.current_time()
    if coming.held is not None:
        desk.write(BudgetContent(of=entry.seq, reserved=coming.held), entry.seq)
    await desk.log.durable()
    try:
        whole, reply = await _answer(agent, desk, request, coming)
    except BaseException as raised:
        if not isinstance(raised, anyio.get_cancelled_exc_class() | KeyboardInterrupt):
            own = raised if isinstance(raised, Exception) else ModelFault(type(raised).__name__, message_of(raised))
            _fault(agent, desk, entry, own, coming)
            return
        await _cut(desk, coming)
        raise
    else:
        latency_ms = round((anyio.current_time() - start) * 1000, 3)
        completion = desk.write(
            ChatCompletionContent(
                output=whole,
                model=reply.model,
                finish_reason=reply.finish_reason,
                usage=reply.usage,
                latency_ms=latency_ms,
                meta=_meta(agent, coming, reply),
            ),
            coming.message,
        )
        _record(agent, desk, coming, completion, reply)
        if coming.held is not None:
            spent = settled(agent, coming.held, reply.usage)
            desk.write(BudgetContent(of=entry.seq, spent=spent), entry.seq, completion.seq)


async def _cut(desk: Desk, coming: Coming) -> None:
    """Write that a request was broken off, though this task is cancelled."""
    with anyio.CancelScope(shield=True):
        error = Error(type=LOST, message="the process stopped asking")
        desk.write(FaultContent(of=coming.message, error=error, shown_chars=coming.chars or None), coming.message)
        desk.take_back(coming.message)
        await desk.log.durable()


def _close_calls(agent: Agent, desk: Desk) -> None:
    """Write a result for every call that has none, so that every history sent is valid."""
    for call in list(desk.state.calls.values()):
        text, outcome = _placeholder(agent, call)
        content = ToolResultContent(call=call.seq, tool_result=text, status="error", outcome=outcome)
        said = [call.approved] if call.approved is not None else []
        desk.observe(desk.write(content, call.last.seq if call.last is not None else call.seq, *said))
    desk.absorb()


def _placeholder(agent: Agent, call: Pending) -> tuple[str, Any]:
    if not call.good:
        return call.error or NEVER, "error"
    if call.approval is not None and call.approval.verdict == "denied":
        said = "" if call.approval.by == EXPIRED else "They said: "
        reason = f" {said}{call.approval.reason}" if call.approval.reason else ""
        return DENIED + reason, "denied"
    if call.last is None:
        tool = agent.tool(call.name)
        return (NEVER, "interrupted") if tool is not None else (no_such_tool(agent, call.name), "error")
    tool = agent.tool(call.name)
    if tool is not None and only_reads(tool) and effect_of(tool, call.last) in ("pure", "idempotent"):
        return INTERRUPTED, "interrupted"
    return UNKNOWN, "unknown"


def only_reads(tool: Tool) -> bool:
    """Return whether nothing outside changes however often a tool is called; of an agent, whether all its tools do."""
    if tool.agent is not None:
        return tool.agent.program is None and all(map(only_reads, tool.agent.tools))
    return tool.effect == "pure"


async def _settle_last_try(desk: Desk) -> None:
    """Note a try that a crash cut off, and wait as long as the last failed one asked for."""
    asked, turn = desk.state.asked, desk.state.turn
    assert turn is not None
    if asked is not None and asked.open:
        lost = Error(type=LOST, message="the process that asked ended before the answer was on record")
        desk.write(FaultContent(of=asked.seq, error=lost), asked.seq)
        desk.tell("retract", "", message=asked.seq)
    if turn.retry_at is not None:
        failed_at, wait_s = turn.retry_at
        left = (failed_at + timedelta(seconds=wait_s) - desk.clock()).total_seconds()
        if left > 0:
            await desk.log.durable()
            await desk.stop.wait(min(left, wait_s))


def _request(agent: Agent, desk: Desk) -> tuple[Request, Entry]:
    """Write the request: what it adds to the one before, and the digest of its whole body."""
    state, prompt = desk.state, desk.prompt
    heading = desk.head(agent)
    header = heading.header
    if header != state.header:
        desk.write(header)
        desk.absorb()
        state = desk.state
    prompt.close()
    asked = state.asked
    extends = asked if asked is not None and asked.encoder in ("", prompt.encoder) else None
    added = prompt.since(extends.blocks if extends is not None else 0)
    request = prompt.request(header, heading.envelope, state.answered)
    number = asked.number + 1 if asked is not None and asked.digest == request.digest else 1
    content = RequestContent(
        header=state.header_seq,
        extends=extends.seq if extends is not None else None,
        blocks=[[list(sources), prompt.encoder] for sources in added],
        body_digest=request.digest,
        number=number,
    )
    news = sorted({seq for sources in added for seq in sources})
    entry = desk.write(content, *([extends.seq] if extends is not None else []), *news)
    assert state.turn is not None
    return msgspec.structs.replace(request, number=state.turn.faults + 1), entry


async def _answer(agent: Agent, desk: Desk, request: Request, coming: Coming) -> tuple[str, Reply]:
    """Send, and give the reply's whole text and the reply as read; deltas go to the listener as they come."""
    model = agent.asked()
    parser, reader, fed = model.parser(), agent.formats().reader(), 0
    desk.streamed = False
    async with aclosing(model.send(request)) as chunks:
        async for data in chunks:
            coming.raw.append(data)
            for delta in parser.feed(data):
                if reader is None or delta.type == "thought":
                    _show(desk, coming, delta)
                    continue
                fed += len(delta.text)
                for read in reader.feed(delta.text):
                    _show(desk, coming, read)
    reply = parser.close()
    whole = reply.text
    if reader is not None:
        for read in reader.feed(whole[fed:]):
            _show(desk, coming, read)
        reply = reader.close(reply)
    if desk.streamed:
        _show(desk, coming, Delta("text", reply.text[coming.chars :]))
    if agent.answers_by() == "tool" and reply.calls and all(call.name == ANSWER for call in reply.calls):
        thought = "\n\n".join(text for text in (reply.thought, reply.text) if text) or None
        coming.words, whole = reply.text, reply.calls[0].args
        desk.take_back(coming.message)
        reply = msgspec.structs.replace(reply, text=whole, calls=(), thought=thought, native=None)
    return whole, reply


def _show(desk: Desk, coming: Coming, delta: Delta) -> None:
    if desk.listener is None or not delta.text:
        return
    if delta.type == "text":
        coming.chars += len(delta.text)
        desk.streamed = True
    else:
        coming.thought = True
    desk.tell_now("answer" if delta.type == "text" else "thought", delta.text, coming.message)


def _fault(agent: Agent, desk: Desk, entry: Entry, failure: Exception, coming: Coming) -> None:
    """Write down why this try failed, and when the next one may start if there is one."""
    turn, retry = desk.state.turn, agent.policy.retry
    assert turn is not None
    wait_s, status, name = None, None, type(failure).__name__
    if isinstance(failure, ModelFault):
        name, status = failure.type, failure.http_status
        if failure.retry and turn.faults + 1 < retry.tries:
            wait_s = retry.wait_s(turn.faults + 1, failure.retry_after_s)
    trace = None if isinstance(failure, GestaError) else "".join(format_exception(failure, limit=-8))
    error = Error(type=name, message=message_of(failure), http_status=status, traceback=trace)
    extra, chars = _raw(coming) if coming.raw else None, coming.chars or None
    desk.write(FaultContent(of=entry.seq, error=error, wait_s=wait_s, shown_chars=chars, extra=extra), entry.seq)
    if coming.held is not None and status is not None and not coming.raw:  # what is refused is not billed
        desk.write(BudgetContent(of=entry.seq, spent={"tokens": 0, "usd": 0.0}), entry.seq)
    desk.take_back(coming.message)


def _raw(coming: Coming) -> dict[str, Any]:
    """Keep the bytes as they came; replies that are streamed shrink to a tenth."""
    return {"raw_zlib": zlib.compress(b"".join(coming.raw))}


def _meta(agent: Agent, coming: Coming, reply: Reply) -> dict[str, Any] | None:
    """Keep the bytes, and what the provider wants back in the next request."""
    native = {} if reply.native is None else {"native": {"by": native_by(agent.asked()), "items": reply.native}}
    return (_raw(coming) if reply.keep else {}) | native or None


def _record(agent: Agent, desk: Desk, coming: Coming, completion: Entry, reply: Reply) -> None:
    """Write what the reply let be seen of its reasoning, and its calls: one commit with the completion."""
    if reply.thought:
        thought = desk.write(ThoughtContent(value=reply.thought), completion.seq)
        whole = coming.words if coming.thought else reply.thought
        desk.tell("thought", whole, message=coming.message, seq=thought.seq)
    if reply.calls or not reply.text.strip():
        desk.take_back(coming.message)
    if reply.calls:
        if reply.text:
            desk.tell("thought", reply.text, message=coming.message, seq=completion.seq)
        desk.explain("Analysis", completion)
    for call in reply.calls:
        desk.write(judged(agent, call), completion.seq)
