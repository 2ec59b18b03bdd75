"""OpenAI's chat completions API, for its clients and for chat front ends. Each agent is a model of this API.

A turn is one message to an agent and all the work up to its answer. If the turn waits for a person, the answer is a
text that says so. If the turn waits for a tool of the client, the answer is a call of that tool. Text that the model
writes before its own tool calls is streamed as part of the answer.
"""

import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gesta.agent import Agent, joined
from gesta.codec.rows import digest_of
from gesta.errors import AgentError, RunHeld
from gesta.events import Event, Outcome
from gesta.function_tool.tool import Tool
from gesta.record.names import run_of_id
from gesta.record.options import MessageOptions
from gesta.record.stream import Stream
from gesta.serve.advice import advised
from gesta.serve.bodies import Refused, answered, caller, kept, read
from gesta.serve.chat_messages import Asked, ChatRequest, ClientTool, conversation
from gesta.serve.chat_sessions import WAITS
from gesta.serve.service import Service
from gesta.serve.sse import EventStream, encoded, line

FINISH = {"answered": "stop", "limit": "length", "budget": "length", "cancelled": "stop"}
"""Finish reason that the client reads, by the reason of the turn's end. For all other reasons it is `stop`."""
WAITS_FOR = {
    "deaths": "whoever runs this server, because too many processes ended in it",
    "copy": "whoever runs this server, because its record is a copy",
    "resume": "the server to go on with it",
    "running": "work that may still be going on",
}
"""Words for waits that the person who chats cannot end, by `Waiting.what`."""
DONE = b"data: [DONE]\n\n"
"""Last line of a stream."""
ID = "call_"
"""Prefix of the id of a call of a client's tool. The run, the seq and the digest of the call follow it."""
FIRST_WAIT_S, LAST_WAIT_S = 0.02, 0.5  # between two tries to continue a run that is held
DIGITS = 16  # of the digest of a call's arguments, in the id of the call
ANY_OBJECT: dict[str, Any] = {"type": "object"}


async def models(_request: Request, service: Service) -> Response:
    """List the agents as OpenAI's API lists models."""
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": "gesta"} for name in service.agents]
    return answered({"object": "list", "data": listed})


async def completions(request: Request, service: Service) -> Response:
    """Run the agent that `model` names on a conversation, and return its answer.

    The recorded session that contains the conversation so far is continued. If the body has a member `session`, the
    session of that name is continued instead.
    """
    body = await read(request, ChatRequest)
    agent, asked = service.agent(body.model), conversation(body)
    if asked.system:
        agent = msgspec.structs.replace(agent, instructions=joined(agent.instructions, asked.system))
    if body.tools:
        agent = with_tools(agent, body.tools)
    exchange = Exchange(service, agent, body, asked, request)
    await exchange.ready()
    return exchange.streamed() if body.stream else await exchange.whole()


def with_tools(agent: Agent, tools: Sequence[ClientTool]) -> Agent:
    """Return a copy of the agent that also has tools which the client runs. Raises Refused if a name is taken."""
    made = []
    for each in tools:
        told = each.function
        if agent.tool(told.name) is not None:
            found = f"The agent {agent.name!r} has a tool {told.name!r} of its own: name the client's otherwise."
            raise Refused(400, "BadRequest", found)
        schema = told.parameters or ANY_OBJECT
        made.append(
            Tool(
                name=told.name,
                description=told.description,
                args_schema=schema,
                function=_elsewhere,
                effect="pure",
                declared=True,
                asks=True,
            )
        )
    try:
        return msgspec.structs.replace(agent, tools=[*agent.tools, *made])
    except AgentError as wrong:
        raise Refused(400, "BadRequest", str(wrong)) from wrong


def _elsewhere() -> None:
    raise AssertionError("the client carries it out")


class Exchange:
    """One request for a chat completion, and the response to it."""

    def __init__(self, service: Service, agent: Agent, body: ChatRequest, asked: Asked, request: Request) -> None:
        self._service, self._agent, self._body, self._asked = service, agent, body, asked
        self._whose = f"{request.state.client}/{body.user or ''}"
        self._again = request.headers.get("idempotency-key", "")
        self._retried = request.headers.get("x-stainless-retry-count", "0") != "0"
        self._conversations = service.conversations
        self._caller = caller(request)
        self._created = int(time.time())
        self._stream: Stream[Any] | None = None

    async def ready(self) -> None:
        """Refuse a message under a key of another message, before a response begins. Raises OtherMessage."""
        if isinstance(self._body.session, str) and self._body.session and not self._asked.results:
            options = self._options(kept(self._body.session), self._again or None)
            self._stream = self._service.record.stream(self._agent, self._asked.words, **options)
            await self._stream.ready()

    async def whole(self) -> Response:
        """Return the response as one JSON object, after the turn has ended or waits."""
        words, outcome = "", None
        with self._service.turns:
            async for event in self._events():  # read to the end, which frees the session
                if isinstance(event, Outcome):
                    outcome = event
                else:
                    words += shown(event)
        assert outcome is not None, "a stream ends with its outcome"
        return await self._completion(outcome, words)

    def streamed(self) -> Response:
        """Return the response as a stream of events, which are sent while the model writes."""
        self._service.turns.occupy()
        left = self._service.leave
        return EventStream(self._lines(), self._service.draining, failing=_error, leave=lambda: left(self._stream))

    async def _lines(self) -> AsyncIterator[bytes]:
        told = ""
        yield self._chunk("", {"role": "assistant", "content": ""})
        async for event in self._events():
            if not isinstance(event, Outcome):
                if words := shown(event):
                    told += words
                    yield self._chunk(event.run, {"content": words})
                continue
            calls = await self._client_calls(event)
            rest = said_of(event) if not calls and not told.endswith(said_of(event)) else ""
            if rest:
                yield self._chunk(event.run, {"content": f"\n\n{rest}" if told.strip() else rest})
            if calls:
                indexed = [{"index": number, **call} for number, call in enumerate(calls)]
                yield self._chunk(event.run, {"tool_calls": indexed})
            yield self._chunk(event.run, {}, finish="tool_calls" if calls else FINISH.get(event.reason, "stop"))
            if self._body.stream_options is not None and self._body.stream_options.include_usage:
                yield self._chunk(event.run, None, usage=usage(event))
        yield DONE

    async def _events(self) -> AsyncIterator[Event | Outcome]:
        """Run the turn, and yield its events and at last its outcome. Raises Refused if the turn failed."""
        record, asked, agent = self._service.record, self._asked, self._agent
        if asked.results:
            yield checked(await self._resumed())
            return
        if self._stream is not None:
            async for event in self._heard(self._stream):
                yield event
            return
        place = self._conversations.place(agent, asked, whose=self._whose, again=self._again, retried=self._retried)
        async with place as found:
            self._stream = record.stream(agent, asked.words, **self._options(found.session, found.key))
            async for event in self._heard(self._stream):
                yield event

    def _options(self, session: str, key: str | None) -> MessageOptions:
        return MessageOptions(session=session, key=key, user=self._body.user, traceparent=self._caller)

    async def _heard(self, stream: Stream[Any]) -> AsyncIterator[Event | Outcome]:
        own = ""  # the first event is about the message
        async for event in stream:
            own = own or event.run
            if event.run == own:
                yield event
        assert stream.outcome is not None
        yield checked(stream.outcome)

    async def _resumed(self) -> Outcome:
        """Record the results of the client's tools, continue the turn that waits for them, and return its outcome.

        Raises:
            Refused: the id of a result is not the id of a call that this agent made.
        """
        asked = [(*await self._question(id_), result) for id_, result in self._asked.results.items()]
        run = asked[-1][0]
        async with self._service.alone(run):  # its worker does not have the tools of the client
            for of, question, result in asked:
                if question is not None:
                    await self._service.record.answer(of, result, question, by=self._whose)
            return await self._gone_on(run)

    async def _question(self, id_: str) -> tuple[str, int | None]:
        """Return the run of a call, and the seq of the question that its result answers; `None` if there is none.

        Raises:
            Refused: `id_` is not the id of a call that this agent made.
        """
        record = self._service.record
        run, seq, shown = [*id_.removeprefix(ID).split("_", 2), "", ""][:3]
        row = await run_of_id(record.store, run) if id_.startswith(ID) and run and seq.isdecimal() else None
        if row is None or row.run != run or row.name != self._agent.name:
            raise Refused(400, "BadRequest", f"tool_call_id is {id_!r:.80}, expected the id of a call made here.")
        call = (await record.state(run)).call(int(seq))
        if call is not None and shown not in ("", digest_of(call.final_args)[:DIGITS]):
            raise Refused(409, "NotWaiting", f"tool_call_id is {id_!r:.80}: another call is in its place now.")
        return run, call.question if call is not None else None

    async def _gone_on(self, run: str) -> Outcome:
        """Continue a run, and return its outcome. If another request or a worker continues it now, wait until then.

        Raises:
            Refused: the server is about to end.
        """
        wait_s = FIRST_WAIT_S
        while True:
            try:
                return await self._service.record.resume(run, self._agent, by=None)
            except RunHeld as held:
                if held.run != run or held.unknown is not None:  # a run below is held, or it is unknown by whom
                    raise
            with anyio.move_on_after(wait_s):
                await self._service.draining.wait()
            wait_s = min(2 * wait_s, LAST_WAIT_S)

    async def _client_calls(self, outcome: Outcome) -> list[dict[str, Any]]:
        """Return the calls of the client's tools that the turn waits for, as the `tool_calls` of OpenAI's API."""
        own = {each.function.name for each in self._body.tools or ()}
        waits = [
            each for each in outcome.waiting if each.what == "question" and each.tool in own and each.run == outcome.run
        ]
        if not waits:
            return []
        calls = []
        for each in waits:
            function = {"name": each.tool, "arguments": json.dumps(each.args, ensure_ascii=False)}
            calls.append(
                {
                    "id": f"{ID}{outcome.run}_{each.call}_{each.args_digest[:DIGITS]}",
                    "type": "function",
                    "function": function,
                }
            )
        return calls

    async def _completion(self, outcome: Outcome, words: str) -> Response:
        calls = await self._client_calls(outcome)
        message: dict[str, Any] = {"role": "assistant", "content": said_of(outcome), "refusal": None}
        if calls:
            message |= {"content": words.strip() or None, "tool_calls": calls}
        reason = "tool_calls" if calls else FINISH.get(outcome.reason, "stop")
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        whole = self._head(outcome.run, "chat.completion") | {"choices": [choice], "usage": usage(outcome)}
        return answered(whole | {"session": outcome.session, "run": outcome.run})

    def _chunk(
        self,
        run: str,
        delta: dict[str, Any] | None,
        *,
        finish: str | None = None,
        usage: dict[str, Any] | None = None,
    ) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
        return line(encoded(self._head(run, "chat.completion.chunk") | {"choices": choices, "usage": usage}))

    def _head(self, run: str, form: str) -> dict[str, Any]:
        id_ = f"chatcmpl-{run or 'gesta'}"
        return {"id": id_, "object": form, "created": self._created, "model": self._agent.name}


def _error(raised: BaseException) -> bytes:
    """Return the last line of a stream that failed, which clients show as an error."""
    return line(bytes(advised(raised).body))


def shown(event: Event) -> str:
    """Return the text that an event adds to a streamed answer; an empty text if the event adds no text."""
    if event.type == "retract":
        return "\n\n"
    return event.content if event.type == "answer" else ""


def checked(outcome: Outcome) -> Outcome:
    """Return the outcome unchanged. Raises Refused with status 502 if the turn failed."""
    if outcome.reason == "failed":
        said = f"{outcome.error.type}: {outcome.error.message}" if outcome.error is not None else "no reason is known"
        raise Refused(502, "TurnFailed", f"The turn failed: {said}. It is run {outcome.run} on the record.")
    return outcome


def said_of(outcome: Outcome) -> str:
    """Return the text of an outcome for the client: the answer, or else why there is no answer."""
    if outcome.answer is not None:
        return outcome.answer
    if outcome.reason == "waiting":
        what = ", ".join(WAITS_FOR.get(each.what, each.text) for each in outcome.waiting)
        behind = "Your message waits behind a turn that waits for" if outcome.queued else "This waits for"
        return f"{WAITS}{behind}: {what}."
    why = f": {outcome.error.message}" if outcome.error is not None else "."
    return f"{WAITS}The turn ended without an answer, {outcome.reason}{why}"


def usage(outcome: Outcome) -> dict[str, Any]:
    """Return the token counts of a turn as the member `usage` of OpenAI's API."""
    total = outcome.tokens_in + outcome.tokens_out
    return {
        "prompt_tokens": outcome.tokens_in,
        "completion_tokens": outcome.tokens_out,
        "total_tokens": total,
    }
