"""The function of a tool of an MCP server: it makes the call, and answers the requests that the server makes during it.

An attempt is one try of a tool call, which is on record before it starts. What an attempt has to know about the
earlier attempt is stored as `state`, a dict. A flight is one call at the server. An asker answers the server's requests
during the call, and collects the questions that a person has to answer.
"""

from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel

from gesta.agent import Agent
from gesta.bridges.mcp.asking import elicited, unsendable
from gesta.bridges.mcp.connection import Connection
from gesta.bridges.mcp.flight import ELICITATION, Asker, Flight, value_of
from gesta.bridges.mcp.link import library, plain
from gesta.bridges.mcp.offers import CONTEXT, Offer
from gesta.errors import InDoubt, NoServer, ToolError, message_of
from gesta.function_tool.context import Context, NeedsAnswer

ROUNDS = 10
"""Greatest number of times that a server may return questions in one attempt."""
HELD = "held"
"""Member of an attempt's state which says that the process of that attempt holds the call open."""
URL_REQUIRED, INVALID = -32042, -32602
"""Error codes of servers: a person must open a page first; the server no longer knows the questions it asked."""


class Gone(Exception):
    """The connection has ended, or the server has forgotten its session. The call was not carried out."""


class RemoteTool:
    """The function of one tool of a server, bound to its connection and agent."""

    def __init__(self, connection: Connection, offer: Offer, agent: Agent[Any]) -> None:
        self._connection, self._offer, self._agent = connection, offer, agent

    async def call(self, **arguments: Any) -> Any:
        """Call the tool at its server with the model's arguments, and return its value.

        Raises:
            ToolError: the server refused the call, or reported that the tool failed.
            InDoubt: nobody knows whether the server carried out the call.
            ConnectionRefusedError: the call was not sent.
            NeedsAnswer: a person has to answer a question first.
        """
        context: Context = arguments.pop(CONTEXT)
        if unsendable(arguments):
            raise ToolError(f"The arguments of {self._offer.name!r} hold half of a surrogate pair. Write it whole.")
        state = context.state if isinstance(context.state, dict) else {}
        if HELD in state:
            flight = self._connection.held(context) if context.resumed else None
            if flight is not None:
                flight.context = context
                return await self._in_the_middle(flight, context)
            if self._offer.effect == "once" and context.resumed:  # else a person or `reconcile` has settled the doubt
                found = "The call was held open while a person was asked, and was lost before the answer came"
                raise InDoubt(f"{found}: the process, the server or the time for it ended.")
            state = {}
        try:
            return await self._called(arguments, context, state)
        except Gone:
            pass
        try:
            return await self._called(arguments, context, state)
        except Gone:
            raise InDoubt(f"the MCP server {self._offer.server!r} forgets its sessions at once") from None

    async def _called(self, arguments: dict[str, Any], context: Context, state: Mapping[str, Any]) -> Any:
        try:
            link = await self._connection.link()
        except NoServer as failure:
            raise ConnectionRefusedError(message_of(failure)) from None
        async with self._connection.lane(link):
            if link.over:  # the link ended while this call waited for another one: nothing was sent
                raise Gone
            flight = Flight(link, self._offer, arguments, context.key)
            flight.context = context
            return await self._rounds(flight, context, state)

    async def _rounds(self, flight: Flight, context: Context, state: Mapping[str, Any]) -> Any:
        """Make a call, repeat it with answers while the server returns questions, and return the tool's value."""
        flight.exchange.asked.update(state.get("asked", {}))
        flight.exchange.people = state.get("people", 0)
        self._check_opened(state, context)
        asker = Asker(flight, self._agent, context)
        responses, token, resumed = _resumed(state, context.answers)
        for _ in range(ROUNDS):
            await self._connection.fly(flight, responses, token)
            if not flight.over:
                return await self._in_the_middle(flight, context)
            code = getattr(flight.failure, "code", None)
            if flight.failure is not None and flight.link.kind_of(flight.failure) == "gone":
                flight.link.close()
                raise Gone
            if code == INVALID and resumed:  # the server no longer knows its questions: make the call without answers
                responses = token = None
                flight.exchange.asked.clear()
            elif code == URL_REQUIRED:
                await self._open_pages(flight, asker)
            elif flight.failure is None and isinstance(flight.result, library().types.InputRequiredResult):
                responses, token = await self._wanted(flight, asker), flight.result.request_state
                if not responses:
                    await anyio.lowlevel.checkpoint()
            else:
                return value_of(flight)
            resumed, flight = False, flight.again()
        raise ToolError(f"the MCP server {self._offer.server!r} asked more than {ROUNDS} times")

    async def _wanted(self, flight: Flight, asker: Asker) -> dict[str, Any]:
        """Return the answers to the questions that a server returned.

        Raises NeedsAnswer if a person has to answer first, and ToolError if a question cannot be asked here.
        """
        wanted = {key: plain(each) for key, each in (flight.result.input_requests or {}).items()}
        given, parts = dict[str, Any](), dict[str, str]()
        for key, each in sorted(wanted.items()):
            found = await asker.given(each["method"], each.get("params") or {})
            if isinstance(found, dict):
                given[key] = found
            elif found in asker.questions:
                parts[key] = found
            else:
                raise ToolError(f"the MCP server {self._offer.server!r} wants what it cannot have: {found}")
        if parts:
            token = {"state": flight.result.request_state, "parts": parts, "given": given}
            raise NeedsAnswer(asker.questions, token | counted(flight))
        return typed(given)

    async def _in_the_middle(self, flight: Flight, context: Context) -> Any:
        """Answer the requests that a server makes during a call until the call has ended. Return the tool's value.

        Raises NeedsAnswer if a person has to answer; the call is held open meanwhile.
        """
        asker = Asker(flight, self._agent, context)
        while not flight.over:
            wanted = flight.wanted
            assert wanted is not None
            try:
                found = await asker.given(wanted.method, wanted.params, wanted.part)
            except anyio.get_cancelled_exc_class():
                flight.cancel()
                raise
            except BaseException as left:
                flight.cancel()
                if self._offer.effect != "once":
                    raise
                said = f"the call was broken off while the MCP server {self._offer.server!r} asked the agent's model"
                raise InDoubt(said) from left
            if isinstance(found, str) and found in asker.questions:
                wanted.part = found
                self._connection.hold(flight, context)
                raise NeedsAnswer(asker.questions, {HELD: True})
            wanted.answer(found)
            await self._connection.follow(flight)
        return value_of(flight)

    async def _open_pages(self, flight: Flight, asker: Asker) -> None:
        """Ask a person to open the pages that a server requires before a call.

        Raises NeedsAnswer until the person has answered. Raises ToolError if the person declined or no page is named.
        """
        data = getattr(flight.failure, "data", None)
        pages = data.get("elicitations") if isinstance(data, dict) else None
        found: Any = "it names none"
        for page in pages if isinstance(pages, list) else ():
            if isinstance(page, dict):
                found = await asker.given(ELICITATION, {**page, "mode": "url"})
                self._check_page(found)
        if asker.questions:
            raise NeedsAnswer(asker.questions, {"pages": list(asker.questions)} | counted(flight))
        if isinstance(found, str):
            raise ToolError(f"the MCP server {self._offer.server!r} wants a page to be opened first: {found}")

    def _check_opened(self, state: Mapping[str, Any], context: Context) -> None:
        """Raise ToolError if a person declined to open a page that an earlier attempt asked for.

        A server may name another page each time, so the answer is looked up by the name of the earlier question.
        """
        for part in state.get("pages", ()):
            self._check_page(elicited(context.answers.get(part)))

    def _check_page(self, found: Any) -> None:
        if isinstance(found, dict) and found["action"] != "accept":
            raise ToolError(f"A person did not open the page that {self._offer.server} wants to be opened first.")


def counted(flight: Flight) -> dict[str, Any]:
    """Return how often the call has asked each question so far, as a part of the attempt's state."""
    return {"asked": flight.exchange.asked, "people": flight.exchange.people}


def _resumed(state: Mapping[str, Any], answers: Mapping[str, Any]) -> tuple[Any, str | None, bool]:
    """Return what a repeated call sends: answers to the server's questions, and the state that came with the questions.

    The third value is whether the earlier attempt ended with such questions. If not, the other values are `None`.

    Args:
        state: the state of the earlier attempt.
        answers: answers of a person.
    """
    if "parts" not in state:
        return None, None, False
    given = {key: elicited(answers.get(part)) for key, part in state["parts"].items()}
    return typed(given | state.get("given", {})), state.get("state"), True


def typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return answers, given as JSON values, as objects of the library `mcp`."""
    types = library().types
    return {
        key: (types.ElicitResult if "action" in each else types.CreateMessageResult).model_validate(each)
        for key, each in given.items()
    }
