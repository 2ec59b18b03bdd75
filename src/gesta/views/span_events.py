"""Adds events to spans: facts with a time and no duration, which a backend lists beside a span.

An entry is one recorded fact of a run. A span is a piece of work in a trace.
"""

from typing import Any

from gesta import kinds
from gesta.entry import Entry
from gesta.prompt import observation_text
from gesta.state.turn import AGENT
from gesta.views.spans import SHORT, Notes, shown


def note(notes: Notes, entry: Entry, *, content: bool) -> None:
    """Add an event about an entry to a span. Entries of most kinds add nothing; a plan, for example, adds an event.

    Args:
        notes: the attributes and events of the span around the entry.
        entry: the entry. Its content may have any form; the function never raises.
        content: whether the event includes texts that a person or a model wrote.
    """
    at, given = entry.at, entry.content

    def words(value: Any) -> str | None:
        return shown(observation_text(value), SHORT) if content and value is not None else None

    match given:
        case kinds.DecisionContent():
            choices = [shown(each, 120) for each in given.candidates[:20]]
            notes.add(
                at,
                "decision",
                {"choice": shown(given.choice, 120), "candidates": choices, "rationale": words(given.rationale)},
            )
        case kinds.PlanContent():
            goals = [shown(each.goal, SHORT) for each in given.steps[:50]] if content else None
            notes.add(at, "plan", {"role": given.role, "steps": len(given.steps), "goals": goals})
        case kinds.ResolutionContent():
            notes.add(at, "resolution", {"verdict": given.verdict, "void": given.void or None})
        case kinds.CompactionContent():
            notes.add(at, "compaction", {"from_seq": given.from_seq, "to_seq": given.to_seq, "tokens": given.tokens})
        case kinds.SignalContent():
            notes.add(at, "signal", {"name": given.name, "reason": words(given.reason)})
        case kinds.TimerContent():
            notes.add(at, "timer", {"due_at": given.due_at.isoformat()})
        case kinds.CheckContent():
            notes.add(at, "check", {"point": given.point, "hook": shown(given.hook, 120), "verdict": given.verdict})
        case kinds.ArtifactContent():
            notes.add(at, "artifact", {"name": words(given.name), "media_type": shown(given.media_type, 120)})
        case kinds.ToolResultContent(outcome="late"):
            notes.add(at, "late", {"call": given.call, "status": given.status})
        case kinds.KeyValueContent() if given.key != AGENT:
            notes.add(at, "note", {"key": shown(given.key, 120), "value": words(given.value)})
