"""A desk is what one worker has at hand while it works on a run: its log, the folds over it, and who listens.

Everything on it can be thrown away and made again from the log.
"""

from collections.abc import Callable
from datetime import datetime

import msgspec

from gesta.entry import Cause, Entry
from gesta.event import Event, EventType, Explain, Listener, Node
from gesta.formatter import observation_text
from gesta.kinds import Content, ToolResultContent
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
        self.failure: Exception | None = None
        """What the listener raised; it hears no more, and the turn goes on."""
        self.streamed = False
        """Whether words of the last reply went out already."""
        self._view = RunView()
        log.journal.keeps = True

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

    def tell(self, type_: EventType, content: str, *, message: int = 0, seq: int | None = None) -> None:
        """Tell the listener a whole message once all that is written so far is durable.

        Args:
            message: seq of the request that the words belong to.
            seq: the entry that they tell of.
        """
        last = type_ in ("answer", "error")
        self._later(
            Event(type=type_, content=content, message=message, seq=seq, end_of_message=True, end_of_dialog=last)
        )

    def tell_now(self, type_: EventType, content: str, message: int = 0) -> None:
        """Tell the listener at once: only for words that may still be taken back."""
        self._hear(Event(type=type_, content=content, message=message))

    def observe(self, entry: Entry) -> None:
        """Tell of a tool's result and where it stands, once it is durable."""
        assert isinstance(entry.content, ToolResultContent)
        if self.listener is not None:
            self.tell("observation", observation_text(entry.content.tool_result), seq=entry.seq)
            self.explain("Observation", entry)

    def explain(self, node: Node, entry: Entry) -> None:
        """Tell where an entry stands in the explanation, once it is durable."""
        sources = tuple(
            f"{entry.run}.{cause}" if isinstance(cause, int) else f"{cause[0]}.{cause[1]}" for cause in entry.causes
        )
        self._later(Event(type="explain", seq=entry.seq, explain_id=entry.id, explain_graph=Explain(node, sources)))

    def _later(self, event: Event) -> None:
        if self.listener is not None:
            self.log.journal.after(lambda: self._hear(event))

    def _hear(self, event: Event) -> None:
        if self.listener is None:
            return
        try:
            self.listener(msgspec.structs.replace(event, run=self.log.run, span=self.log.path))
        except Exception as failure:  # noqa: BLE001 - raised when the turn is done: a listener must not break it
            self.listener, self.failure = None, failure
