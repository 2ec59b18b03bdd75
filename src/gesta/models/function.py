"""A model whose answers come from a Python function: for simulations, experiments and tests.

def echo(messages, header):
    return f"You said: {messages[-1]['content']}"

agent = gesta.Agent("echo", model=gesta.function(echo))
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct, field

from gesta.errors import AgentError
from gesta.function_tool.signature import check_call
from gesta.kinds import RequestHeaderContent
from gesta.model.request import Request
from gesta.models.jsontext import read_all
from gesta.models.scripted import Item, Keyless, spoken

P = ParamSpec("P")
T = TypeVar("T")
Answering = Callable[[list[dict[str, Any]], RequestHeaderContent], Item | Awaitable[Item]]
"""A function that returns an item: a text, a call, or anything else that `gesta.scripted` accepts.

Its arguments are the messages in the form of Chat Completions, without the instructions, and the request's header,
which holds instructions and tools."""
CONVERSATIONS = 64
"""Greatest number of conversations whose decoded messages are kept. Messages of other conversations are decoded
again."""


def function(fn: Answering, name: str = "function", *, stream: bool = True) -> Keyless:
    """Return a model that answers with what a function returns: any item of `gesta.scripted`, such as a text or a call.

    Args:
        fn: called as `fn(messages, header)`, in the event loop; it may be async. `header.meta["instructions"]` holds
            the instructions, `header.tools` the tools.
        name: name of the model, for the record and for errors.
        stream: whether replies come in pieces, to be shown while they arrive.

    Raises:
        AgentError: `fn` is not callable, or not with two arguments.
    """
    if not callable(fn):
        raise AgentError(f"gesta.function: {fn!r} is not a function; expected one called as fn(messages, header).")
    check_call(fn, ("messages", "header"), "gesta.function: found ")
    seen = Seen()

    def choose(request: Request) -> Item | Awaitable[Item]:
        return fn(seen.messages(request.blocks), request.header)

    return Keyless(name, choose, spoken(name, stream=stream))


def _noting(change: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    def changed(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
        self.changes.append(True)
        return change(self, *args, **named)

    return changed


def _handed(kind: type, names: str) -> Any:
    """Return a subclass of dict or list whose objects report changes: each change adds an element to `changes`.

    Gesta passes such objects to a user's function to find out whether the function changed them. A copy of such an
    object is an ordinary dict or list.

    Args:
        kind: `dict` or `list`.
        names: the methods that change such an object, separated by spaces.
    """
    members: dict[str, Any] = {name: _noting(getattr(kind, name)) for name in names.split()}
    members |= {"__slots__": ("changes",), "__reduce__": lambda self: (kind, (kind(self),))}
    return type(kind.__name__, (kind,), members)


DICT = _handed(dict, "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update")
LIST = _handed(list, "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse sort")


def _noted(values: list[Any], changes: list[bool]) -> Any:
    """Return a copy of a list of JSON values that reports its changes.

    Args:
        changes: a list to which each later change of the copy, at any depth, adds an element.
    """
    made = LIST(values)
    left = [made]
    for each in left:  # the loop appends to this list
        each.changes = changes
        change = dict.__setitem__ if each.__class__ is DICT else list.__setitem__
        for key in each if each.__class__ is DICT else range(len(each)):
            inner = each[key]
            if inner.__class__ is dict or inner.__class__ is list:
                inner = DICT(inner) if inner.__class__ is dict else LIST(inner)
                change(each, key, inner)
                left.append(inner)
    return made


class Read(Struct):
    """The decoded messages of one conversation, and the blocks (messages as JSON bytes) that they were decoded from."""

    blocks: list[bytes] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    changes: list[bool] = field(default_factory=list)
    """One element for each change that the user's function made to the messages. After a change, all blocks are decoded
    again."""


class Seen:
    """A cache of decoded messages, by conversation. Each block (one message as JSON) is decoded only once."""

    def __init__(self) -> None:
        self._known: dict[int, Read] = {}
        """The decoded blocks of each conversation, by the `id` of its list of blocks."""

    def messages(self, blocks: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the messages of a conversation in a new list.

        Changes that the user's function made to an earlier list do not appear in the new list.

        Cost: grows with the number of new blocks; after such a change, with the number of all blocks.
        """
        place = id(blocks)
        read = self._known.pop(place, None) or Read()
        known = len(read.blocks)
        if read.changes or read.blocks != blocks[:known]:  # the second: another list, or blocks were left out
            read, known = Read(), 0
        new = blocks[known:]
        read.messages += _noted(read_all(new), read.changes)
        read.blocks += new
        self._known[place] = read
        if len(self._known) > CONVERSATIONS:
            del self._known[next(iter(self._known))]
        return read.messages.copy()
