"""A desk is what one worker has at hand while it works on a run: its log, the folds over it, and who listens.

Everything on it can be thrown away and made again from the log.
"""

from collections.abc import Callable
from datetime import datetime

import msgspec

from gesta.entry import Cause, Entry
from gesta.event import Event, EventType, Explain, Listener, Node
from gesta.kinds import Content
from gesta.log import Log
from gesta.prompt import Prompt
from gesta.standing import RunState, RunView


class Desk:
    """One run at work."""

    def __init__(self, log: Log, state: RunState, prompt: Prompt, *, record: str, listener: Listener | None) -> None:
        self.log = log
        self.state = state
        self.prompt = prompt
        self.record = record
        """Address of the record."""
        self.listener = listener
        self.streaming = listener is not None
        self.streamed = False
        """Whether words of the last reply went out already."""
        self._view = RunView(state.epoch)

    @property
    def clock(self) -> Callable[[], datetime]:
        """The clock that stamps entries."""
        return self.log.journal.clock

    def absorb(self) -> list[Entry]:
        """Fold what was written since the last call, and give it."""
        entries = self.log.journal.take()
        for entry in entries:
            self.state = self._view.apply(self.state, entry)
            self.prompt.add(entry)
        return entries

    def write(self, content: Content, *causes: Cause) -> Entry:
        """Write an entry in the turn's span."""
        return self.log.write(content, causes)

    def tell(
        self, type_: EventType, content: str, *, message: int = 0, seq: int | None = None, end: bool = True
    ) -> None:
        """Tell the listener once all that is written so far is durable.

        Args:
            message: seq of the request that the words belong to.
            seq: the entry that they tell of.
            end: whether the message ends with it.
        """
        if self.listener is not None:
            event, listener = self._event(type_, content, message, seq), self.listener
            if end:
                last = type_ in ("answer", "error")
                event = msgspec.structs.replace(event, end_of_message=True, end_of_dialog=last)
            self.log.journal.after(lambda: listener(event))

    def tell_now(self, type_: EventType, content: str, message: int = 0) -> None:
        """Tell the listener at once: only for words that may still be taken back."""
        if self.listener is not None:
            self.listener(self._event(type_, content, message, None))

    def explain(self, node: Node, entry: Entry) -> None:
        """Tell where an entry stands in the explanation, once it is durable."""
        if self.listener is not None:
            sources = tuple(
                f"{entry.run}.{cause}" if isinstance(cause, int) else f"{cause[0]}.{cause[1]}" for cause in entry.causes
            )
            event = self._event("explain", "", 0, entry.seq)
            event = msgspec.structs.replace(event, explain_id=entry.id, explain_graph=Explain(node, sources))
            listener = self.listener
            self.log.journal.after(lambda: listener(event))

    def _event(self, type_: EventType, content: str, message: int, seq: int | None) -> Event:
        return Event(type=type_, content=content, message=message, run=self.log.run, span=self.log.path, seq=seq)
