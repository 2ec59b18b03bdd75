"""Programs that read events wrongly."""

from typing import assert_never

import gesta
from gesta.events import CallEvent


def shown(event: gesta.Event) -> str:
    print(event.tool)  # refused: not every event has a tool
    if event.type == "call":
        print(event.outcome)  # refused: a call has no outcome
        event.arguments.upper()  # refused: the arguments are a dict
        event.content = ""  # refused: events do not change
        return event.tool
    if event.type == "calls":  # refused: there is no such type
        return ""
    if event.type == "end":
        event.outcome.answer.upper()  # refused: there may be no answer
        return ""
    assert_never(event)  # refused: other types are left


CallEvent(tool="weather")  # refused: a call has arguments
