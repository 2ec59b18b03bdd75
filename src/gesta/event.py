"""An event is what a listener hears while a run goes on; none is kept, for all that is true is an entry.

Only `answer` and `thought` deltas go out before their entry is durable; a lost stream is taken back by `retract`.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from gesta.origins import NodeType

EventType = Literal["thought", "observation", "answer", "explain", "error", "retract"]


class Explain(Struct, frozen=True):
    """Where an entry stands in the explanation of the answer."""

    node: NodeType
    derived_from: tuple[str, ...]
    """Ids of the nodes that it was made from, as `Explanation` has them."""


class Event(Struct, frozen=True, kw_only=True):
    """One thing that a listener hears."""

    type: EventType
    content: str = ""
    message: int = 0
    """Seq of the request that the words belong to; 0 outside of one."""
    run: str = ""
    span: tuple[str, ...] = ()
    seq: int | None = None
    """The entry that it tells of, once written."""
    end_of_message: bool = False
    end_of_dialog: bool = False
    explain_id: str | None = None
    """Id of the entry that is explained."""
    explain_graph: Explain | None = None


Listener = Callable[[Event], None]
