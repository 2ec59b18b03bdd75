"""Finds the session that a chat completion continues.

The client of a chat completion sends the whole conversation and names no session. A session is one recorded
conversation, and the record is the store of all of them. Earlier conversations of the same client are found by their
first message. One of them is continued if the record contains the messages that the client sends. Any other
conversation begins a new session, and its earlier messages are recorded as history. So no client can read the
conversation of another client, and an edited message begins a new session.
"""

import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct

from gesta.agent import Agent
from gesta.codec.rows import digest_of
from gesta.entry import Entry
from gesta.errors import RunHeld
from gesta.kinds import AssistantContent, BeginContent, UserContent
from gesta.log.journal import closing, open_root
from gesta.record.record import Record, writing
from gesta.serve.chat_messages import Asked
from gesta.state.run import RunState

LATEST = 16
"""Greatest number of conversations with the same first message that are compared; the latest come first."""
WAITS = "⏳ "
"""Prefix of the text that a client is sent if a turn waits or ended without an answer. This text is on no record."""
GIVEN = "given"
"""Name of the span that contains the earlier messages of a conversation that began elsewhere."""


class Place(Struct, frozen=True):
    """The session that a message belongs to, and the key that identifies the message."""

    session: str
    key: str
    """Key of the message: if it is sent again with this key, no new turn begins."""
    begun: bool = False
    """Whether the session was begun for this request."""


class Conversations:
    """Finds and begins the sessions of chat completions in one record."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._busy: set[str] = set()
        self._keyed: dict[tuple[str, str], str] = {}  # sessions of the requests at work, by `base` and key
        self._choosing: WeakValueDictionary[tuple[str, str], anyio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def place(self, agent: Agent, asked: Asked, *, whose: str, again: str, retried: bool) -> AsyncIterator[Place]:
        """Yield the session for a request: an earlier session with the same messages, or else a new one.

        Inside the block, no other new message can use the session.

        Args:
            agent: the agent that answers.
            asked: the conversation in the request.
            whose: name of the client, and of the person that it sends the request for.
            again: the client's own key for this request; empty if it sent none.
            retried: whether the client says that it sends the same request again.
        """
        first = next((text for role, text in asked.history if role == "user"), asked.text)
        base = f"chat-{digest_of([whose, agent.name, first])[:16]}-"
        key = f"chat:{hashlib.sha256(again.encode()).hexdigest()[:32]}" if again else _new_key()
        async with self._choosing.setdefault((base, key), anyio.Lock()):
            session = self._keyed.get((base, key))  # of the same request, which came before and is not answered yet
            if session is not None:
                place = Place(session, key)
            else:
                place = await self._place(base, agent, asked, key, retried=retried)
            mine = place.begun or place.session not in self._busy
            self._busy.add(place.session)
            self._keyed.setdefault((base, key), place.session)
        try:
            yield place
        finally:
            if mine:
                self._busy.discard(place.session)
            if session is None:
                self._keyed.pop((base, key), None)

    async def _place(self, base: str, agent: Agent, asked: Asked, key: str, *, retried: bool) -> Place:
        there = await self._count(base, agent)
        for number in range(there, max(0, there - LATEST), -1):
            place = await self._fitting(f"{base}{number}", agent, asked, key, retried=retried)
            if place is not None:
                return place
        return await self._begin(base, there, agent, asked, key)

    async def _fitting(self, session: str, agent: Agent, asked: Asked, key: str, *, retried: bool) -> Place | None:
        """Return `session` and a key for the request's new message if the session fits the request; else `None`.

        A session fits if it has the earlier messages of the request and is not in use. A request that is sent again
        fits the session that it used before, and its message keeps the old key.

        Args:
            key: key made from the client's own key for this request; a new key if the client sent none.
            retried: whether the client says that it sends the same request again.
        """
        run = await self._run(session, agent)
        if run is None:
            return None
        said, state = spoken(await self._record.read(run)), await self._record.state(run)
        if key in state.turns:
            return Place(session, key)
        asked_last = said[:-1] if said and said[-1][0] == "assistant" else said
        if retried and (last := _last_key(state)) and alike(asked_last, (*asked.history, ("user", asked.text))):
            return Place(session, last)
        if session in self._busy or not alike(said, asked.history) or (state.open and not _waits(asked)):
            return None
        return Place(session, key)

    async def _count(self, base: str, agent: Agent) -> int:
        """Return how many of the sessions named `base1`, `base2`, `base3` and so on exist.

        Cost: grows with the logarithm of that number.
        """
        below, above = 0, 1
        while await self._run(f"{base}{above}", agent) is not None:
            below, above = above, above * 2
        while above - below > 1:
            middle = (below + above) // 2
            if await self._run(f"{base}{middle}", agent) is not None:
                below = middle
            else:
                above = middle
        return below

    async def _run(self, session: str, agent: Agent) -> str | None:
        rows = await self._record.store.runs(session)
        return next((row.run for row in rows if row.parent_run is None and row.name == agent.name), None)

    async def _begin(self, base: str, there: int, agent: Agent, asked: Asked, key: str) -> Place:
        """Begin a new session with the earlier messages that the client sent. Return the session as a `Place`.

        Args:
            base: name of the session without its number.
            key: key of the new message, by which a repeated request is recognized.
            there: number of sessions that exist with this `base`.
        """
        while True:
            there += 1
            session = f"{base}{there}"
            if session in self._busy:  # another request of this server began it
                continue
            self._busy.add(session)  # before it is on record, so that no other request finds it there and takes it
            try:
                begun = await self._began(session, agent, asked)
            except BaseException:
                self._busy.discard(session)
                raise
            if begun:
                return Place(session, key, begun=True)
            self._busy.discard(session)

    async def _began(self, session: str, agent: Agent, asked: Asked) -> bool:
        """Begin a session with the earlier messages of a request. Return `False` if another process began it first."""
        try:
            async with writing(self._record, session, agent.name) as (journal, opened):
                if journal.head:
                    return False
                log = open_root(journal, BeginContent(name=GIVEN), opened)
                with closing(log, None):
                    for role, text in asked.history:
                        content = UserContent if role == "user" else AssistantContent
                        log.write(content(value=text, history=True))
        except RunHeld:
            return False
        return True


def spoken(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """Return the conversation in a run's entries: the role (`user` or `assistant`) and the text of each message.

    Successive texts of one role are joined.
    """
    said: list[tuple[str, str]] = []
    for entry in entries:
        match entry.content:
            case UserContent(value=text):
                role = "user"
            case AssistantContent(value=text):
                role = "assistant"
            case _:
                continue
        if said and said[-1][0] == role:
            said[-1] = role, f"{said[-1][1]}\n\n{text}"
        else:
            said.append((role, text))
    return said


def alike(said: Iterable[tuple[str, str]], shown: Iterable[tuple[str, str]]) -> bool:
    """Return whether a conversation that a client sends (`shown`) is the recorded conversation (`said`).

    Each message is a pair of its role and its text.

    An answer in `shown` may have further text before the recorded answer: the client also shows earlier text of the
    model. An answer in `shown` that begins with `WAITS` is a notice of this server, which is not recorded. It is
    skipped, together with the recorded answer at its place, if there is one.
    """
    left = list(said)
    for role, text in shown:
        if role == "assistant" and text.startswith(WAITS):
            if left and left[0][0] == "assistant":
                left.pop(0)
            continue
        if not left or left[0][0] != role:
            return False
        known = left.pop(0)[1]
        if known != text and not (role == "assistant" and known and text.endswith(known)):
            return False
    return not left


def _waits(asked: Asked) -> bool:
    """Return whether the client's last message is a notice of this server, such as that the turn waits for a person."""
    return bool(asked.history) and asked.history[-1][1].startswith(WAITS)


def _last_key(state: RunState) -> str | None:
    return state.turn.key if state.turn is not None else None


def _new_key() -> str:
    return f"chat:{os.urandom(16).hex()}"
