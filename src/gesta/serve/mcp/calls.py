"""A call of an agent's tool: its turn runs in a task of the record, so whoever leaves ends nothing.

Cancellation that a client sends is a person's will: the turn ends `cancelled`. A connection that ends is none. So a
client of version 2026-07-28 over HTTP, which can only close its stream, leaves the turn to the agent's policy.
"""

import os
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from gesta.agent import Agent
from gesta.cli.talk import harmless, short
from gesta.cli.voice import call_text
from gesta.codec.rows import digest_of
from gesta.errors import GestaError, NotWaiting, RunHeld, TurnOpen
from gesta.events import Event, Listener, Outcome
from gesta.record.options import MessageOptions
from gesta.record.record import Record
from gesta.record.stream import breaks_off
from gesta.serve.service import LOGGER
from gesta.state.turn import Turn

HEARD = 256
"""The most progress that waits for a slow client; further progress is not told."""
WIDTH = 200
"""The most characters of one message of progress."""
CLOSED = (
    "The server is about to end, and left the turn open. Send the same message again under its session and key: it "
    "goes on, and nothing is done twice."
)


class Running:
    """The number of calls that are not answered yet."""

    def __init__(self) -> None:
        self.none = anyio.Event()
        """Set while there is none."""
        self.none.set()
        self._count = 0

    def __enter__(self) -> None:
        """Count a call in this block."""
        if not self._count:
            self.none = anyio.Event()
        self._count += 1

    def __exit__(self, *_: object) -> None:
        """Count one less."""
        self._count -= 1
        if not self._count:
            self.none.set()


class Call:
    """One message of a client to an agent."""

    def __init__(self, record: Record, agent: Agent[Any], message: str, options: MessageOptions) -> None:
        """Prepare a call.

        Args:
            options: session and key of the message, and what else belongs to it.
        """
        self.record, self.agent, self.message, self._options = record, agent, message, options
        self.session, self.key = options.get("session") or "", options.get("key") or ""
        self.outcome: Outcome[Any] | None = None
        """The outcome of the turn, as it stood when the work on it last ended."""
        self.ended = anyio.Event()
        self.told = 0
        """The number of messages of progress that the client was sent."""
        self._told = Told()
        self._failure: BaseException | None = None
        self._scope = anyio.CancelScope()

    def start(self) -> MemoryObjectReceiveStream[str]:
        """Start the turn in a task of the record, or go on with it. Returns its progress, which ends with the turn."""
        self.ended, self._scope, self._failure = anyio.Event(), anyio.CancelScope(), None
        tell, heard = anyio.create_memory_object_stream[str](HEARD)
        self.record.start(partial(self._drive, tell))
        return heard

    async def _drive(self, tell: MemoryObjectSendStream[str]) -> None:
        def hear(event: Event) -> None:
            if text := self._told.words(event):
                with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    tell.send_nowait(text)

        with tell:
            try:
                with self._scope:
                    self.outcome = await self._taken(hear)
            except BaseException as failure:
                self._failure = GestaError(CLOSED) if breaks_off(failure) else failure
                if breaks_off(failure):
                    raise
            finally:
                self.ended.set()

    async def _taken(self, hear: Listener) -> Outcome[Any] | None:
        """Run the turn, or join it where it is at work and its agent takes no message meanwhile."""
        agent, message = self.agent, self.message
        try:
            return await self.record.run(agent, message, listener=hear, **self._options)
        except (RunHeld, TurnOpen):
            if await self._turn() is None:
                raise
        stream = self.record.stream(agent, message, **self._options)
        async for event in stream:
            hear(event)
        return stream.outcome

    async def _turn(self) -> Turn | None:
        """Return the turn of the message; `None` if it has not begun."""
        run = await self.record.turns.run_of(self.session, self.agent.name)
        return (await self.record.state(run)).turns.get(self.key)

    def given(self) -> Outcome[Any]:
        """Return the outcome, once the progress has ended. Raises whatever ended the turn without one."""
        if self._failure is not None:
            raise self._failure
        if self.outcome is None:
            raise GestaError(CLOSED)
        return self.outcome

    def leave(self) -> None:
        """Stop listening. The turn goes on, unless the agent's policy says that it stops when its reader leaves."""
        if self.agent.policy.when_left == "stop" and not self.ended.is_set():
            self.stop()

    def stop(self) -> None:
        """Let the turn begin nothing new, and begin no turn at all if it has not begun."""
        self._scope.cancel()

    async def cancel(self, by: str, reason: str | None) -> None:
        """End the turn of this message, and no other one."""
        self.stop()
        await self._end(by, reason)  # on record at once: this process may die while a tool is seen through
        await self.ended.wait()
        await self._end(by, reason)

    async def _end(self, by: str, reason: str | None) -> None:
        turn = await self._turn()
        if turn is None or turn.reason is not None:
            return
        try:
            run = await self.record.turns.run_of(self.session, self.agent.name)
            await self.record.cancel(run, by=by, reason=reason)
        except NotWaiting:  # it ended meanwhile
            return
        except GestaError as failure:
            LOGGER.warning("The turn of session %s could not be cancelled.", self.session, exc_info=failure)


def new_key() -> str:
    """Return the key of a message whose client gave none."""
    return f"mcp-{os.urandom(8).hex()}"


def session_of(client: str, key: str) -> str:
    """Return the session of a message whose client named none: the same for the same key of the same client."""
    return f"mcp-{digest_of([client, key])[:16]}"


class Told:
    """What a client is told of a turn while it is at work, each thing once."""

    def __init__(self) -> None:
        self._seen = set[str | int]()

    def words(self, event: Event) -> str | None:
        """Return the words for an event; `None` for most events, and for one that was told before."""
        match event.type:
            case "call":
                text = f"calls {call_text(event.tool, event.arguments)}"
            case "result":
                text = f"{event.tool or 'a call'}: {event.outcome}"
            case "retry":
                text = f"asks the model again: {event.content}"
            case "waiting":
                text = f"waits: {event.waiting.text}"
            case "compaction":
                text = "sums up what was said before"
            case "answer":
                text = "writes"
            case _:
                return None
        name = event.message if event.type == "answer" else event.id or text
        if name in self._seen:
            return None
        self._seen.add(name)
        return short(harmless(text), WIDTH)
