"""What a page does with the events of a turn: each type has its own fields, and none is forgotten."""

from typing import Any, Literal, assert_never, assert_type

import msgspec

import gesta
from gesta.events import AnswerEvent, CallEvent, ObservationEvent, ThoughtEvent


def shown(event: gesta.Event) -> str:
    assert_type(event.run, str)
    assert_type(event.pos, int)
    assert_type(event.id, str | None)
    if event.type == "call":
        assert_type(event, CallEvent)
        assert_type(event.arguments, dict[str, Any])
        return f"{event.tool} {sorted(event.arguments)}"
    if event.type == "result":
        assert_type(event.call, int | None)
        return f"{event.tool} {event.outcome}"
    if event.type == "waiting":
        return event.waiting.text
    if event.type == "retry":
        return f"{event.error.message}, again in {event.wait_s} s"
    if event.type == "compaction":
        return f"{event.from_seq} to {event.to_seq}"
    if event.type == "end":
        return event.outcome.reason
    if event.type == "explain":
        return f"{event.explain_graph.node} {event.explain_id.upper()}"
    match event.type:
        case "thought" | "observation" | "answer":
            assert_type(event, ThoughtEvent | ObservationEvent | AnswerEvent)
            return event.content
        case "error" | "retract":
            return event.type
        case _:
            assert_never(event)


def matched(event: gesta.Event) -> Literal["ends", "goes on"]:
    match event.type:
        case "end":
            assert_type(event.outcome, gesta.Outcome[Any])
            return "ends"
        case _:
            return "goes on"


def received(data: bytes) -> gesta.Event:
    event: gesta.Event = msgspec.json.decode(data, type=gesta.Event)
    return event
