"""A flight is one call at a server, in a task of its own, so that it can be held open while a person is asked.

A server can ask in two ways. The server may return its questions as the result of the call. The server has then done
nothing yet, and any process can repeat the call with the answers. Or the server may send a request during the call.
Then the server may have done something already, so this process holds the call open. If that call is lost, its outcome
is in doubt (nobody knows whether it happened), and a tool with effects is not called again automatically.
"""

from collections.abc import Mapping
from typing import Any

import anyio
from msgspec import Struct, field

from gesta.agent import Agent
from gesta.bridges.mcp import asking, results
from gesta.bridges.mcp.link import Link, library, plain, tool_results
from gesta.bridges.mcp.offers import Offer
from gesta.errors import GestaError, InDoubt, ToolError, message_of
from gesta.function_tool.context import Context, ToolQuestion
from gesta.text.redactor import SECRETS

KEY = "gesta/idempotency-key"
"""Member of a call's `_meta` that carries the idempotency key, which is the same in every attempt of one call."""
MOST_TOLD, TOLD_CHARS = 1000, 300
"""Greatest number of progress events of one call, and of characters in each event."""
ELICITATION, SAMPLING = "elicitation/create", "sampling/createMessage"


class Wanted(Struct):
    """A request that a server has made during a call, and its result."""

    method: str
    params: dict[str, Any]
    given: dict[str, Any] | str | None = None
    """The result of the request, or a text that says why there is none; `None` until the request is answered."""
    part: str = ""
    """Name of the question in the record, if a person is asked."""
    answered: anyio.Event = field(default_factory=anyio.Event)

    def answer(self, given: dict[str, Any] | str) -> None:
        """Set the result of the request, and wake the task that waits for it."""
        self.given = given
        self.answered.set()


class Flight:
    """One call at a server, from its start to its end."""

    def __init__(self, link: Link, offer: Offer, arguments: dict[str, Any], key: str) -> None:
        self.link, self.offer, self.exchange = link, offer, asking.Exchange()
        self._arguments, self._key = arguments, key
        self.done = anyio.Event()
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self._told = 0
        self.context: Context | None = None
        """The context of the attempt that waits for the call; `None` while the call is held open."""
        self.wanted: Wanted | None = None
        """The request of the server that has no result yet; `None` if there is none."""
        self.over = False
        self.result: Any = None
        self.failure: BaseException | None = None

    async def run(self, responses: Mapping[str, Any] | None = None, state: str | None = None) -> None:
        """Make the call, and store its result or its failure in this object.

        Args:
            responses: answers to questions that the server returned earlier.
            state: the state that the server returned with those questions.
        """
        self.link.flown.add(self.done)
        try:
            with self._scope:
                self.result = await self._called(responses, state)
            if self._scope.cancelled_caught:
                self.failure = InDoubt(f"the call of {self.offer.name!r} was cancelled")
        except Exception as failure:  # noqa: BLE001 - `value_of` raises it in the task that waits for the call
            self.failure = failure
        finally:
            self.over = True
            self._news.set()
            self.done.set()
            self.link.flown.discard(self.done)

    async def _called(self, responses: Mapping[str, Any] | None, state: str | None) -> Any:
        session, given = self.link.client.session, self._arguments
        more: dict[str, Any] = {"input_responses": responses, "request_state": state, "allow_input_required": True}
        more["meta"] = {KEY: self._key}
        match self.offer.method:
            case "tools/call":
                return await self._tool(session, more)
            case "resources/read":
                return await session.read_resource(given["uri"], **more)
            case "prompts/get":
                return await session.get_prompt(given["name"], given.get("arguments"), **more)

    async def _tool(self, session: Any, more: dict[str, Any]) -> Any:
        """Call a tool, and return the result as it came, also if it does not fit the tool's `outputSchema`.

        The library's own `call_tool` raises then, although the server has carried out the call.
        """
        types = library().types
        meta = {"_meta": more.pop("meta")}
        del more["allow_input_required"]
        params = types.CallToolRequestParams(name=self.offer.name, arguments=self._arguments, **meta, **more)
        request = types.CallToolRequest(params=params)
        return await session.send_request(request, tool_results(), progress_callback=self._progress)

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._told += 1
        if self.context is not None and self._told <= MOST_TOLD:
            of = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            self.context.respond(f"{self.offer.name}: {of}{f', {message}' if message else ''}"[:TOLD_CHARS])

    def again(self) -> "Flight":
        """Return a new flight of the same call, to repeat it with answers."""
        other = Flight(self.link, self.offer, self._arguments, self._key)
        other.exchange, other.context = self.exchange, self.context
        return other

    def cancel(self) -> None:
        """Cancel the call, also at the server."""
        self._scope.cancel()

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any] | str:
        """Store a request that the server made during the call, wait until it is answered, and return the answer.

        A text instead of a dict says why there is no answer, for example because an earlier request still waits.
        """
        if self.wanted is not None:
            return "one question at a time"
        self.wanted = wanted = Wanted(method, params)
        self._news.set()
        try:
            await wanted.answered.wait()
        finally:
            self.wanted = None
        assert wanted.given is not None
        return wanted.given

    async def news(self) -> None:
        """Wait until the call has ended, or the server has made a request that has no result yet."""
        while not self.over and (self.wanted is None or self.wanted.given is not None):
            self._news = anyio.Event()
            await self._news.wait()


class Asker:
    """Answers the requests that a server makes during a call: with recorded answers, or with the agent's model."""

    def __init__(self, flight: Flight, agent: Agent[Any], context: Context) -> None:
        self._offer, self._agent, self._context, self._exchange = flight.offer, agent, context, flight.exchange
        spec = flight.link.spec
        self._allowed = {ELICITATION: spec.elicitation, SAMPLING: spec.sampling}
        self.questions: dict[str, ToolQuestion] = {}
        """Questions that a person has to answer, by their names in the record."""

    async def given(self, method: str, params: Mapping[str, Any], again: str = "") -> dict[str, Any] | str:
        """Return the result of a request that the server made during the call, as a dict.

        If a person has to answer first, add the question to `questions` and return its name there. Another text is the
        reason why the request cannot be answered.

        Args:
            method: kind of the request, such as `elicitation/create`.
            params: parameters of the request.
            again: name of the question in the record, if this request was already passed to a person.
        """
        if not self._allowed.get(method):
            return f"{method} is not supported here"
        if method == ELICITATION:
            self._exchange.people += not again
            if self._exchange.people > asking.MOST_ASKED:
                return f"a call may ask a person {asking.MOST_ASKED} times, and this one asks once more"
            question = asking.question_of(params, self._offer.server)
            part = again or self._exchange.part([question.text, question.schema])
            if part in self._context.answers:
                return asking.elicited(self._context.answers[part])
            self.questions[part] = question
            return part
        return await self._sampled(params)

    async def _sampled(self, params: Mapping[str, Any]) -> dict[str, Any] | str:
        """Ask the agent's model in a child run, as a sampling request demands, and return the result of the request.

        If the run fails, return a text with the reason. If the child run waits, the exception that makes the parent run
        wait too is not caught.

        Args:
            params: the parameters of the server's request.
        """
        try:
            text = asking.sampling_text(params)
            part = f"sampling-{self._exchange.part(['sampling', text, params.get('systemPrompt')])}"
            asked = asking.sampling_agent(self._agent, params, self._offer.server)
            ended = await self._context.call_as(part, asked, text)
        except (GestaError, ValueError) as failure:
            return SECRETS.message(message_of(failure))[: asking.MOST_CHARS]
        if ended.answer is None:
            return f"the model did not answer: {ended.reason}"
        if asking.unsendable(ended.answer):
            return "the model answered with half of a surrogate pair"
        name = getattr(self._agent.model, "name", str(self._agent.model))
        return {"role": "assistant", "content": {"type": "text", "text": ended.answer}, "model": name}


def value_of(flight: Flight) -> Any:
    """Return the result of a call that has ended, as the value of the tool.

    Raises:
        ToolError: the server refused the call, or reported that the tool failed.
        InDoubt: nobody knows whether the server carried out the call, or how: the answer cannot be read.
        ConnectionRefusedError: the call was not sent.
    """
    failure, name = flight.failure, flight.offer.name
    if failure is None:
        read = {"tools/call": results.called, "resources/read": results.resource, "prompts/get": results.prompt}
        return read[flight.offer.method](plain(flight.result))
    if isinstance(failure, InDoubt):
        raise failure
    where = f"the MCP server {flight.offer.server!r}"
    said, kind = SECRETS.message(message_of(failure))[: asking.MOST_CHARS], flight.link.kind_of(failure)
    if kind == "unsent":
        raise ConnectionRefusedError(f"{where} cannot be reached: {said}") from None
    if kind in ("lost", "gone") or isinstance(failure, BaseExceptionGroup):
        raise InDoubt(f"{where} was lost in the middle of {name!r}: {said}") from None
    if isinstance(failure, library().MCPError):
        raise ToolError(f"{where} refused the call: {said}") from None
    odd = f"{where} answered {name!r}, and the answer cannot be read: {said}"
    if flight.offer.effect == "pure":
        raise ToolError(odd) from None
    raise InDoubt(odd) from None
