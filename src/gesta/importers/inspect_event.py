"""Turns the events of an Inspect AI sample into entries in their order: spans, steps, approvals and notes.

A note is a key-value entry such as `sandbox-event`, with all members of the event except its kind and its time. Each
span is inside another span or the turn, and ends before it. If the span of an event has ended, the event is put into
the innermost open span. The recorded call of a model repeats all earlier messages, so the entry refers to them.

A run is a list of entries, which are recorded facts. A seq is the number of an entry in its run. A span is a part of a
run from its begin entry to its end entry, such as a turn: the work on one message.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Literal

from gesta.codec.rows import digest_of
from gesta.importers.chat import Chat
from gesta.importers.foreign import ForeignEntry, Members, Oddities, plain_name
from gesta.importers.inspect_message import Told, When, dig, kept
from gesta.kinds import (
    ApprovalContent,
    ApprovalRequestContent,
    BeginContent,
    Content,
    EndContent,
    KeyValueContent,
    ToolCallContent,
)

OWN_ROLES = ("init", "solvers", "solver", "scorers", "scorer")
SPAN_ROLES: Mapping[str, str] = MappingProxyType(
    {"agent": "agent", "handoff": "agent", "subtask": "task", "tool": "tool"} | {one: one for one in OWN_ROLES}
)
"""Role of a span by its type in the source. A span of another type has the role `span`."""
VERDICTS: Mapping[str, Literal["approved", "denied"]] = MappingProxyType(
    {"approve": "approved", "modify": "approved", "reject": "denied", "terminate": "denied"}
)
"""The verdict for each decision of an approval event. An event with another decision becomes a note."""
NESTED = 8
"""Greatest depth of events inside events that are written as entries. Deeper events stay a value."""
SPANS = 256
"""Greatest number of spans that may be open at once. Further spans become notes."""
UNKNOWN: When = (None, False)


class Events:
    """Writes the events of one sample between the messages of its conversation."""

    def __init__(self, chat: Chat, told: Told, oddities: Oddities) -> None:
        self._chat, self._told, self._oddities = chat, told, oddities
        self._calls: dict[str, int] = {}
        self._ids: dict[str, int] = {}
        """Seqs of the begin entries of spans and steps, by id, or by type and name. If a name occurs twice, the newer
        one counts."""
        self._open: list[int] = []
        """The open spans inside the turn, the outermost first."""
        self._parents: dict[int, int | None] = {}

    def called(self, call_id: str | None, seq: int) -> None:
        """Store the seq of a call by the call's id, so that an approval can find it."""
        self._calls[call_id or ""] = seq

    def note(self, key: str, value: Any, causes: tuple[int, ...] = ()) -> None:
        """Write a key-value entry in the innermost open span."""
        made, refs = self._told.read(value)
        self._write(KeyValueContent(key=key, value=made, extra=refs or None), self._here(), causes=causes)

    def begin(self, name: str) -> None:
        """Begin a span that the source does not have, such as `review`. The span is inside no other span."""
        self._begin(BeginContent(name=name, role=name), "", UNKNOWN)

    def close(self) -> None:
        """End all open spans, the innermost first."""
        for span in reversed(self._open):
            self._write(EndContent(), span, inferred=("kind",))
        self._open = []

    def take(self, event: Any, depth: int = 0) -> None:
        """Write one event.

        Args:
            depth: how many events contain this one.
        """
        kind = dig(event, "event")
        if not isinstance(event, dict) or not isinstance(kind, str):
            self._oddities["wrong-type"] += 1
            self.note("event", event)
            return
        apart = {"call"} if kind == "model" else {"events"} if inside(event, depth) else set()
        made, refs = self._told.read({key: value for key, value in event.items() if key not in apart})
        made = made | {key: event[key] for key in apart & event.keys() if key == "call"}
        members = Members(made, self._oddities)
        members.drop("event", kind)
        when = members.time("timestamp")
        if not self._span(made, members, refs, when):
            span = self._ids.get(f"span {plain_name(event.get('span_id'))}", 0)
            if span in self._open:
                members.take("span_id", object)
            span = span if span in self._open else self._here()
            if not self._approval(made, members, refs, (span, when)):
                key = f"{plain_name(kind).replace('_', '-')}-event"
                self._write(KeyValueContent(key=key, value=members.rest() or {}, extra=refs or None), span, when)
        self.inside(event, depth)

    def inside(self, event: Any, depth: int = 0) -> None:
        """Write the events that an event contains, in a span of their own. Only older logs have such events.

        Args:
            depth: how many events contain this one.
        """
        events = inside(event, depth)
        if events:
            kind = "tool" if event["event"] == "tool" else "subtask"
            name = plain_name(event.get("function" if kind == "tool" else "name")) or kind
            span = self._begin(BeginContent(name=name, role=SPAN_ROLES[kind], parent=self._here()), "", UNKNOWN)
            for each in events:
                self.take(each, depth + 1)
            self._end(span, EndContent(), UNKNOWN)

    def _span(self, event: dict[str, Any], members: Members, refs: dict[str, Any], when: When) -> bool:
        """Write the `begin` or `end` entry of a span if the event begins or ends one. Return whether this was done.

        Args:
            members: the members of the event that were not read yet. They are stored with the entry.
            refs: references to attachments that were replaced by their texts. They are stored with the entry.
        """
        kind, id, type_, name = (plain_name(event.get(key)) for key in ("event", "id", "type", "name"))
        action, key = kind.removeprefix("span_"), f"span {id}"
        if kind == "step":
            action, key = plain_name(event.get("action")), f"step {type_} {name}"
        elif not kind.startswith("span_"):
            return False
        span = self._ids.get(key, 0)
        if (action == "begin" and len(self._open) < SPANS) or (action == "end" and span in self._open):
            members.drop("action", action)
            members.drop("span_id", event.get("id"))
            members.drop("name", name or None)
            extra = kept(members.rest(), refs)
            if action == "begin":
                parent = self._ids.get(f"span {plain_name(event.get('parent_id'))}", 0)
                parent = parent if parent in self._open else self._here()
                role = SPAN_ROLES.get(type_, "span")
                self._begin(BeginContent(name=name or role, role=role, parent=parent, extra=extra), key, when)
            else:
                self._end(span, EndContent(extra=extra), when)
            return True
        return False

    def _approval(self, event: dict[str, Any], members: Members, refs: dict[str, Any], place: tuple[int, When]) -> bool:
        """Write an approval request and its answer if the event approves a known call.

        Return whether they were written.

        Args:
            members: the members of the event that were not read yet. They are stored with the answer.
            refs: references to attachments that were replaced by their texts. They are stored with the answer.
            place: the span that contains the event, and the time of the event.
        """
        decision, call_id = event.get("decision"), dig(event, "call", "id")
        verdict = VERDICTS.get(decision) if isinstance(decision, str) else None
        seq = self._calls.get(call_id) if isinstance(call_id, str) else None
        if event.get("event") != "approval" or event.get("stage") == "result" or verdict is None or seq is None:
            return False
        call, (span, when) = self._chat.entries[seq - 1].content, place
        assert isinstance(call, ToolCallContent)
        asked = ApprovalRequestContent(of=seq, args_digest=digest_of(call.tool_args))
        request = self._write(asked, span, when, (seq,), ("kind",))
        by, reason = members.take("approver", str), members.take("explanation", str)
        other = dig(event, "modified", "arguments")
        approval = ApprovalContent(
            of=request,
            verdict=verdict,
            by=by or "unknown",
            args=other if isinstance(other, dict) and decision == "modify" else None,
            reason=reason,
            extra=kept(members.rest(), refs),
        )
        self._write(approval, span, when, (request,))
        return True

    def _begin(self, content: BeginContent, key: str, when: When) -> int:
        span = self._write(content, 0, when)
        self._open.append(span)
        self._parents[span] = content.parent
        self._ids[key] = span
        return span

    def _end(self, span: int, content: EndContent, when: When) -> None:
        """End a span. All open spans inside it are ended first."""
        for each in reversed([one for one in self._open if self._lies(one, span)]):
            self._open.remove(each)
            self._write(content if each == span else EndContent(), each, when, (), () if each == span else ("kind",))

    def _lies(self, one: int | None, span: int) -> bool:
        while one is not None and one != span:
            one = self._parents.get(one)
        return one == span

    def _here(self) -> int:
        """Return the seq of the innermost open span, or of the turn if no span is open in it."""
        span = self._open[-1] if self._open else self._chat.entries[-1].span
        while span not in self._open and (parent := self._parents.get(span)) is not None:
            span = parent
        return span

    def _write(
        self,
        content: Content,
        span: int,
        when: When = UNKNOWN,
        causes: tuple[int, ...] = (),
        inferred: Collection[str] = (),
    ) -> int:
        seq = len(self._chat.entries) + 1
        entry = ForeignEntry(
            content=content,
            span=seq if isinstance(content, BeginContent) else span,
            causes=causes,
            at=when[0],
            sure=when[1],
            inferred=tuple(inferred),
        )
        self._chat.entries.append(entry)
        self._told.written(seq)
        return seq


def inside(event: Any, depth: int = 0) -> list[Any]:
    """Return the events that an event contains; an empty list if `depth` has reached `NESTED`."""
    events = dig(event, "events") if dig(event, "event") in ("tool", "subtask") and depth < NESTED else None
    return events if isinstance(events, list) else []


def judges(event: Any) -> bool:
    """Return whether an event begins the scoring, which comes after the run."""
    if dig(event, "event") == "score":
        return dig(event, "intermediate") is not True
    begins = dig(event, "event") == "span_begin" or dig(event, "action") == "begin"
    return begins and dig(event, "type") in ("scorers", "scorer")
