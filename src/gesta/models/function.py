"""A model that is a function of the conversation: for simulations, what-ifs and tests.

def echo(messages, header):
    return f"You said: {messages[-1]['content']}"

agent = gesta.Agent("echo", model=gesta.function(echo))
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gesta.errors import AgentError
from gesta.kinds import RequestHeaderContent
from gesta.model.request import Request
from gesta.models.jsontext import read_all
from gesta.models.scripted import Item, Keyless, spoken

Answering = Callable[[list[dict[str, Any]], RequestHeaderContent], Item | Awaitable[Item]]
"""Messages as Chat Completions has them, without the instructions, and the header in force, to an item."""
CONVERSATIONS = 64
"""Number of conversations whose messages are kept. Those of others are read again."""


def function(fn: Answering, name: str = "function", *, stream: bool = True) -> Keyless:
    """Make a model that answers with what a function returns: any item of `gesta.scripted`.

    Args:
        fn: called as `fn(messages, header)`, in the event loop; it may be async. `header.meta["instructions"]` holds
            the instructions, `header.tools` the tools.

    Raises:
        AgentError: `fn` is no function.
    """
    if not callable(fn):
        raise AgentError(f"gesta.function: {fn!r} is no function; expected one called as fn(messages, header).")

    seen = Seen()

    def choose(request: Request) -> Item | Awaitable[Item]:
        return fn(seen.messages(request.blocks), request.header)

    return Keyless(name, choose, spoken(name, stream=stream))


class Seen:
    """The messages of conversations that go on: each block is read once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[bytes], list[dict[str, Any]]]] = {}
        """By the identity of a list of blocks: those that were read, and what they say."""

    def messages(self, blocks: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the messages of blocks, each a new dict, so that a function may change it. Cost: what is new."""
        place = id(blocks)
        read, known = self._known.pop(place, ([], []))
        if read != blocks[: len(read)]:  # the list was replaced, or blocks were left out
            read, known = [], []
        known += read_all(blocks[len(read) :])
        self._known[place] = [*blocks], known
        if len(self._known) > CONVERSATIONS:
            del self._known[next(iter(self._known))]
        return [*map(dict, known)]
