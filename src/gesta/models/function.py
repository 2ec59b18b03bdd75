"""A model that is a function of the conversation: for simulations, what-ifs and tests.

def echo(messages, header):
    return f"You said: {messages[-1]['content']}"

agent = gesta.Agent("echo", model=gesta.function(echo))
"""

from collections.abc import Awaitable, Callable
from typing import Any

from gesta.errors import AgentError
from gesta.kinds import RequestHeaderContent
from gesta.model import Request
from gesta.models.jsontext import read_all
from gesta.models.scripted import Item, Keyless, spoken

Answering = Callable[[list[dict[str, Any]], RequestHeaderContent], Item | Awaitable[Item]]
"""Messages as Chat Completions has them, without the instructions, and the header in force, to an item."""


def function(fn: Answering, name: str = "function", *, stream: bool = True) -> Keyless:
    """Make a model that answers with what a function returns: any item of `gesta.scripted`.

    Args:
        fn: called as `fn(messages, header)`, in the event loop; it may be async. `header.meta["instructions"]` holds
            the instructions, `header.tools` the tools.

    Raises:
        AgentError: it is no function.
    """
    if not callable(fn):
        raise AgentError(f"gesta.function: {fn!r} is no function; expected one called as fn(messages, header).")

    def choose(request: Request) -> Item | Awaitable[Item]:
        return fn(read_all(request.blocks), request.header)

    return Keyless(name, choose, spoken(name, stream=stream))
