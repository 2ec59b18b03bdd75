"""Remembers the words that a listener was sent before they were on record, so that the listener gets no word twice.

Words are pieces of text that a model is writing. When the entry with these words is written, its event contains only
the words that were not sent yet.
"""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from gesta.events import AnswerEvent, EndEvent, Event, ObservationEvent, RetractEvent, ThoughtEvent


class Words(Struct):
    """Words of one message that were sent to a listener before they were on record."""

    message: int
    """Seq of the request that the words answer."""
    text: str = ""
    ended: bool = False
    """Whether the words of the message are complete."""


class ToldWords:
    """Remembers the words that one listener was sent, for each run and type of event, until they are on record."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], Words] = {}

    def add(self, event: Event) -> bool:
        """Remember the words of an event, and return whether to send the event to the listener.

        A `retract` event withdraws words. If there are no words to withdraw, it is not sent.
        """
        if isinstance(event, RetractEvent):
            self._said[event.run, event.type] = Words(event.message)
            return self._said.pop((event.run, "answer"), None) is not None
        if isinstance(event, AnswerEvent | ThoughtEvent | ObservationEvent):
            said = self._said.get((event.run, event.type))
            if said is None or said.message != event.message:
                said = self._said[event.run, event.type] = Words(event.message)
            said.text += event.content
            said.ended = event.end_of_message
        return True

    def without(self, event: Event) -> Iterator[Event]:
        """Yield the event of an entry without the words that were sent before. If all of them were sent, yield nothing.

        If the sent words differ from the recorded answer, a `retract` event comes first.
        """
        said = self._said.pop((event.run, event.type), None)
        match event:
            case EndEvent() | RetractEvent():
                for type_ in ("answer", "thought", "observation"):
                    self._said.pop((event.run, type_), None)
                if event.type == "retract" and said is not None and said.message == event.message:
                    return
            case ObservationEvent() if said is not None:
                if said.ended and said.text == event.content:
                    return
            case AnswerEvent() | ThoughtEvent() if said is not None:
                if said.message == event.message and event.content.startswith(said.text):
                    event = replace(event, content=event.content[len(said.text) :])
                    if said.ended and not event.content:
                        return
                elif event.type == "answer":
                    yield RetractEvent(message=said.message, run=event.run, span=event.span, end_of_message=True)
                elif said.text.startswith(event.content):
                    return
            case _:
                pass
        yield event
