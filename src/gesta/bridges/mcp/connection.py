"""The connection of a record to one server: begun when it is first needed, used by all calls, and replaced when lost.

A source describes a server among an agent's tools. The tools, resources and prompts are listed when the connection
begins, and again after the server has announced that they changed. A link is one connection to the server from its
begin to its end; after a loss, a new link is made. A flight is one call at the server. If a server asks a person during
a call, the flight is held open here, by the call's run and idempotency key.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context as Variables
from typing import Any

import anyio
import msgspec

from gesta.agent import Agent
from gesta.bridges.mcp.flight import Flight
from gesta.bridges.mcp.link import Link
from gesta.bridges.mcp.offers import Listing, Offer, clean, tools_of
from gesta.bridges.mcp.slips import not_started, refused
from gesta.bridges.mcp.spec import Rules, Spec
from gesta.codec.rows import digest_of
from gesta.errors import AgentError, NoServer, message_of
from gesta.events import LOGGER
from gesta.function_tool.context import Context
from gesta.function_tool.source import Start
from gesta.function_tool.tool import Tool
from gesta.perform.threads import unmarked
from gesta.text.redactor import SECRETS

MOST_MADE = 64
"""Greatest number of lists of tools kept in memory: one for each source and model."""
Calling = Callable[["Connection", Offer, Agent[Any]], Any]
"""Makes the function of a tool from the connection, the offer (the tool as the server lists it) and the agent."""


class Connection:
    """The connection to one server, shared by all equal sources of a record."""

    def __init__(self, spec: Spec, start: Start, calling: Calling) -> None:
        self.spec = spec
        self._start, self._calling = start, calling
        self._begins, self._lists, self._lane = anyio.Lock(), anyio.Lock(), anyio.Lock()
        self._link: Link | None = None
        self._listing: Listing | None = None
        self._digest = self._refused = ""
        self._made: dict[tuple[int, int], tuple[Any, Any, str, list[Tool]]] = {}
        self._flights: set[Flight] = set()
        self._held: dict[tuple[str, str], Flight] = {}
        self._landed = anyio.Event()
        self._alone = False

    @property
    def holding(self) -> bool:
        """Whether any call is being held open now, until a person has answered."""
        return bool(self._held)

    def ended(self, run: str) -> None:
        """Cancel the calls that are held open for a run."""
        for held in [each for each in self._held if each[0] == run]:
            self._held.pop(held).cancel()

    def close(self) -> None:
        """End the connection, and cancel the calls that are held open."""
        for flight in self._held.values():
            flight.cancel()
        self._held.clear()
        if self._link is not None:
            self._link.close()

    async def offered(self, source: Any, agent: Agent[Any], *, again: bool = False) -> Sequence[Tool]:
        """Return the tools of the server for an agent.

        Args:
            source: the description of the server, with the rules that select tools.
            again: whether the turn already has tools of the server. The turn then keeps these tools if the server
                cannot be reached.
        """
        try:
            async with self._lists:  # turns that begin meanwhile wait for the same list
                await self._list()
        except NoServer as failure:
            if not again or self._listing is None:
                raise
            LOGGER.warning("%s The turn goes on with the tools that it had.", failure)
        assert self._listing is not None
        key = id(source), id(agent.model)
        known = self._made.get(key)
        if known is not None and known[0] is source and known[1] is agent.model and known[2] == self._digest:
            return known[3]
        rules: Rules = source.rules
        had = known[3] if again and known is not None and known[0] is source and known[1] is agent.model else ()
        try:
            tools = tools_of(
                self._listing, rules, self.spec.shown, lambda offer: self._calling(self, offer, agent), had
            )
        except AgentError as failure:
            if not had:
                raise
            if self._refused != self._digest:
                LOGGER.warning("%s The turn goes on with the tools that it had.", failure)
            self._refused = self._digest
            return had
        self._made[key] = source, agent.model, self._digest, tools
        while len(self._made) > MOST_MADE:
            del self._made[next(iter(self._made))]
        return tools

    async def _list(self) -> None:
        """List the tools, resources and prompts of the server if they may have changed since the last time.

        Raises NoServer if the server does not answer.
        """
        link = await self.link()
        if not link.changed:
            return
        try:
            with anyio.fail_after(self.spec.start_s):
                found = await link.listed()
        except TimeoutError:
            link.changed = True
            raise await self._no_server(f"it did not list its tools within {self.spec.start_s:g} s", link) from None
        except Exception as failure:
            link.changed = True
            raise await self._no_server(f"it did not list its tools: {message_of(failure)[:500]}", link) from failure
        info = link.client.server_info
        name = clean(info.name if info is not None else "", 100) or "server"
        self._listing = Listing(name, clean(info.version, 50) if info is not None else None, **found)
        self._digest = digest_of(msgspec.to_builtins(self._listing))

    async def link(self) -> Link:
        """Return the link in use, or begin a new one if there is none. Raises NoServer if it cannot begin."""
        async with self._begins:
            if self._link is not None and not self._link.over:
                return self._link
            link = Link(self.spec, self._asked)
            Variables().run(self._start, link.keep)  # the connection outlives the call that begins it
            try:
                with anyio.fail_after(self.spec.start_s):
                    await link.began.wait()
            except TimeoutError:
                link.close()
                raise await self._no_server(f"it did not answer within {self.spec.start_s:g} s", link) from None
            except BaseException:
                link.close()
                raise
            if link.over:
                raise await self._no_server(link.why(), link)
            self._link = link
            return link

    async def _no_server(self, found: str, link: Link) -> NoServer:
        said = await link.tail.text() if link.tail is not None else ""
        found = f"{SECRETS.message(found)}. Its standard error ends:\n{said}\n" if said else SECRETS.message(found)
        todo = "Look whether the address is right and the server runs" if self.spec.url else "Run the command by hand"
        if self.spec.command and refused(link.failure):
            todo = not_started(self.spec.command, self.spec.cwd)
        return NoServer(self.spec.shown, found, f"Nothing was written. {todo}")

    async def _asked(self, method: str, params: dict[str, Any]) -> dict[str, Any] | str:
        """Pass a request of the server to the running call, and return its result.

        If several calls are running, nobody can know which one the request is for. Then a text with this reason is
        returned, and from now on calls are made one at a time.
        """
        flights = [each for each in self._flights if each.wanted is None]
        if len(flights) == 1:
            return await flights[0].asked(method, params)
        self._alone = True
        return "several calls are at work, and nobody knows which of them asks; from now on they are made one by one"

    @asynccontextmanager
    async def lane(self, link: Link) -> AsyncIterator[None]:
        """Wait until a call may be made at the server. The caller makes the call inside the `async with` block.

        Usually there is no wait. But once the server has made a request that may belong to several calls, calls are
        made one at a time.
        """
        if not self._alone or link.modern:
            yield
            return
        async with self._lane:
            while self._flights:
                await self._landed.wait()
            yield

    async def fly(self, flight: Flight, responses: Any = None, state: str | None = None) -> None:
        """Start a call, and wait until it has ended or the server makes a request.

        Args:
            responses: answers to questions that the server returned earlier.
            state: the state that the server returned with those questions.
        """
        # The call may open a connection that outlives this attempt. With the attempt's mark, the attempt would
        # count as running for as long as the connection lives.
        unmarked(flight.link.tasks.start_soon, flight.run, responses, state)
        await self.follow(flight)

    async def follow(self, flight: Flight) -> None:
        """Wait until a call has ended or the server makes a request.

        If the wait is cancelled, the call is cancelled too, and this method returns only after the call has ended.
        """
        self._flights.add(flight)
        try:
            await flight.news()
        except BaseException:
            flight.cancel()
            with anyio.CancelScope(shield=True):  # no timer: it would keep the mark
                await flight.done.wait()
            raise
        finally:
            self._flights.discard(flight)
            self._landed.set()
            self._landed = anyio.Event()

    def hold(self, flight: Flight, context: Context) -> None:
        """Hold a call open until a person has answered, at most `hold_s` seconds."""
        flight.context = None
        self._held[context.run, context.key] = flight
        flight.link.tasks.start_soon(self._expire, flight)

    async def _expire(self, flight: Flight) -> None:
        with anyio.move_on_after(self.spec.hold_s):
            await flight.done.wait()
        if flight in self._held.values():
            flight.cancel()

    def held(self, context: Context) -> Flight | None:
        """Return the call at the server that was held open for a tool call, and stop holding it.

        Return `None` if no call was held, or if it has failed meanwhile.
        """
        flight = self._held.pop((context.run, context.key), None)
        return flight if flight is not None and flight.failure is None else None
