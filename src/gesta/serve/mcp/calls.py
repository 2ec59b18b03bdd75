"""A client's call of an agent as a tool. The turn runs in a task of the record, so it outlives the connection.

The record is the store of all runs. A turn is one message to an agent and all the work up to its answer.

If a client sends a cancellation, the turn ends with the reason `cancelled`. If the connection ends, the agent's policy
`when_left` decides whether the turn stops. A client of protocol version 2026-07-28 over HTTP has no cancellation: it
can only end its connection.
"""

import os
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from gesta.agent import Agent
from gesta.cli.talk import harmless, short
from gesta.codec.rows import digest_of
from gesta.errors import GestaError, NotWaiting, RunHeld, TurnOpen
from gesta.events import Event, Listener, Outcome
from gesta.record.options import MessageOptions
from gesta.record.record import Record
from gesta.record.stream import breaks_off
from gesta.serve.service import LOGGER
from gesta.state.turn import Turn
from gesta.text.visible import call_text

HEARD = 256
"""Greatest number of progress texts that wait for a slow client. Further texts are dropped."""
WIDTH = 200
"""Greatest number of characters of a progress text."""
CLOSED = (
    "The server is about to end, and left the turn open. Send the same message again under its session and key: it "
    "goes on, and nothing is done twice."
)


class Running:
    """A counter of the calls that are not answered yet. The server waits for them before it ends."""

    def __init__(self) -> None:
        self.none = anyio.Event()
        """Set while all calls are answered."""
        self.none.set()
        self._count = 0

    def __enter__(self) -> None:
        """Count one more call that is not answered yet."""
        if not self._count:
            self.none = anyio.Event()
        self._count += 1

    def __exit__(self, *_: object) -> None:
        """Count one call less, because the call was answered."""
        self._count -= 1
        if not self._count:
            self.none.set()


class Call:
    """One message of a client to an agent, and the turn that answers the message."""

    def __init__(self, record: Record, agent: Agent[Any], message: str, options: MessageOptions) -> None:
        """Prepare a call. The turn begins with `start`.

        Args:
            options: session, key and trace context of the message.
        """
        self.record, self.agent, self.message, self._options = record, agent, message, options
        self.session, self.key = options.get("session") or "", options.get("key") or ""
        self.outcome: Outcome[Any] | None = None
        """Outcome of the turn when it last ended or waited; `None` before."""
        self.ended = anyio.Event()
        """Set once the turn has ended, waits, or was interrupted."""
        self.told = 0
        """Number of progress messages that were sent to the client."""
        self._told = Told()
        self._failure: BaseException | None = None
        self._scope = anyio.CancelScope()

    @property
    def at_work(self) -> bool:
        """Whether the turn goes on, also if the client has left."""
        return not self.ended.is_set()

    def start(self) -> MemoryObjectReceiveStream[str]:
        """Start or continue the turn in the background. Return a stream of texts about its progress."""
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
        """Run the turn, and return its outcome. If another process runs the turn, wait until it ends there.

        Return `None` if the turn was interrupted.
        """
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
        """Return the turn of the message; `None` if the turn has not begun."""
        run = await self.record.turns.run_of(self.session, self.agent.name)
        return (await self.record.state(run)).turns.get(self.key)

    def given(self) -> Outcome[Any]:
        """Return the outcome of the turn, or raise its exception. Call this after the stream of `start` has ended."""
        if self._failure is not None:
            raise self._failure
        if self.outcome is None:
            raise GestaError(CLOSED)
        return self.outcome

    def leave(self) -> None:
        """Stop following the turn. The turn continues, unless the agent's policy says `when_left="stop"`."""
        if self.agent.policy.when_left == "stop" and not self.ended.is_set():
            self.stop()

    def stop(self) -> None:
        """Stop the turn before its next step. If the turn has not begun, it does not begin."""
        self._scope.cancel()

    async def cancel(self, by: str, reason: str | None) -> None:
        """End the turn of this message, and no other turn, with the reason `cancelled`.

        Args:
            by: name of the person who cancels.
            reason: why, in the client's words.
        """
        self.stop()
        await self._end(by, reason)  # recorded at once, because this process may die before a running tool has ended
        await self.ended.wait()
        await self._end(by, reason)

    async def _end(self, by: str, reason: str | None) -> None:
        turn = await self._turn()
        if turn is None or turn.reason is not None:
            return
        try:
            run = await self.record.turns.run_of(self.session, self.agent.name)
            await self.record.cancel(run, by=by, reason=reason)
        except NotWaiting:  # the turn ended in the meantime
            return
        except GestaError as failure:
            LOGGER.warning("The turn of session %s could not be cancelled.", self.session, exc_info=failure)


def new_key() -> str:
    """Return a new key, for a message that the client sent without a key."""
    return f"mcp-{os.urandom(8).hex()}"


def session_of(client: str, key: str) -> str:
    """Return a session name for a message that names no session. Equal `client` and `key` make equal names."""
    return f"mcp-{digest_of([client, key])[:16]}"


class Told:
    """Makes texts about the events of a turn for the client, such as `calls …`. No event is reported twice."""

    def __init__(self) -> None:
        self._seen = set[str | int]()

    def words(self, event: Event) -> str | None:
        """Return the text about an event; `None` if there is nothing to say, or if the event was reported before."""
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
