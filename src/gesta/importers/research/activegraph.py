"""Reads runtime events of tau2-bench, as activegraph traces them: lines `{event_id, parent_event_id, event_type, …}`.

    import; begin batch, begin simulation, begin turn, (the conversation), end turn, end simulation, end batch

A simulation becomes a run. Events outside of all simulations, such as those of the batch, are in each run of the file.
Each event becomes one entry with its id in the annotation `event`: `…_start` begins a span, `…_end` ends it, and any
other event is a key-value entry. Messages become turns, as in `tau2_bench`. An event that repeats a message contains
only its number. Calls that an evaluator repeats are not calls of the agent.

A run is a list of entries, which are recorded facts. A seq is the number of an entry in its run. A span is a part of a
run from its begin entry to its end entry, such as a turn: the work on one message.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gesta.importers.chat import Chat
from gesta.importers.foreign import Foreign, ForeignEntry, Members, Oddities, digest_json, plain_name, same
from gesta.importers.format import Format, members_of
from gesta.importers.message import CUT, KEPT, ends_answered
from gesta.importers.research.tau2_bench import ending, spoken
from gesta.importers.source import Source
from gesta.importers.spans import UNENDED, UNREADABLE, Spans, When
from gesta.kinds import BeginContent, EndContent, Error, KeyValueContent, Reason, ToolResultContent

AGENT = "agent"
"""Name of a run whose domain is not known."""
BEGINS, ENDS = "_start", "_end"
SIMULATION = "simulation"
BEFORE = -1
"""The event number of entries that are written before the first event."""
AGAIN = "turn_start"
MODEL = "--agent-llm"
SPEAKS = (AGAIN, "user_response", "agent_response", "message_observed")
"""Types of events that contain a message. An event of the first type may repeat the previous message."""
INSIDE = "runtime_trace"
"""Member of an event's payload that contains all facts about the event."""
CONSTANT = ("phase", "run_id")
"""Members that have the same value in every event."""
SPAN_ROLES: Mapping[str, str] = MappingProxyType(
    {"batch": "batch", SIMULATION: "task", "tool_dispatch": "tool", "toolkit_dispatch": "tool", "user_generate": "user"}
)
FAILURES = ("error", "failed", "exception", "timeout")
"""Values of `status` in an `…_end` event that mean a failure."""
DEEPEST = 40
"""Greatest depth of nested values that are searched for messages."""


class Owned(Struct, frozen=True):
    """An event with the simulation that it belongs to."""

    place: int
    """Number of the event in the file, from 0."""
    event: Any
    owner: int | None
    """Number of the simulation, from 0; `None` for an event outside of all simulations."""
    last: bool
    """Whether the event ends its simulation."""


class Owners(Struct):
    """The simulations that have begun and not yet ended. `take` assigns each event to one of them."""

    begun: int = 0
    open: dict[int, tuple[Any, set[str]]] = field(default_factory=dict)
    """Task and event ids of each open simulation, by its number. The simulation with the newest event is last."""

    def take(self, place: int, event: Any) -> Owned:
        """Return an event (number `place` in the file) together with the simulation that it belongs to.

        This is the simulation of the event's parent. If the parent is unknown, it is the open simulation of the event's
        task, else any open simulation; of several, the one that had an event last.
        """
        members = event if isinstance(event, dict) else {}
        kind, task = members.get("event_type"), members.get("task_id")
        if kind == SIMULATION + BEGINS:
            self.open[self.begun] = task, set()
            self.begun += 1
        parent, own = members.get("parent_event_id"), members.get("event_id")
        owner = next((one for one, (_, ids) in self.open.items() if isinstance(parent, str) and parent in ids), None)
        newest = list(reversed(self.open))
        if owner is None:
            named = [one for one in newest if task is not None and self.open[one][0] == task]
            owner = next(iter([*named, *newest]), None)
        if owner is None:
            return Owned(place, event, None, last=False)
        task, ids = self.open.pop(owner)
        ids |= {own} if isinstance(own, str) else set()
        last = kind == SIMULATION + ENDS
        if not last:
            self.open[owner] = task, ids
        return Owned(place, event, owner, last=last)


MEMBERS = KEPT | members_of(
    """component phase event_type task_id run_id turn_index state_hash message_role tool_name parent_event_id timestamp
    payload is_audio is_final_chunk contains_speech cost usage raw_data generation_time_seconds errors turn_idx
    requestor error reasoning"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each simulation of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    around = [owned for owned in _owned(source) if owned.owner is None]
    runs: dict[int, list[Owned]] = {}
    ids: set[str] = set()
    empty = True
    for owned in _owned(source):
        empty = False
        if owned.owner is not None:
            runs.setdefault(owned.owner, []).append(owned)
            if owned.last:
                yield _Run(sorted([*around, *runs.pop(owned.owner)], key=_place), oddities).foreign(owned.owner, ids)
    for number, left in sorted(runs.items()):
        yield _Run(sorted([*around, *left], key=_place), oddities).foreign(number, ids)
    if not empty and not ids:
        yield _Run(around, oddities).foreign(0, ids)
    oddities["no-conversations"] += empty


def _owned(source: Source) -> Iterator[Owned]:
    owners = Owners()
    for document in source.documents():
        yield owners.take(document.place, document.value)


def _place(owned: Owned) -> int:
    return owned.place


class _Run:
    """Turns one simulation into the entries of a run."""

    def __init__(self, events: list[Owned], oddities: Oddities) -> None:
        self._events, self._oddities = events, oddities
        self._own = [owned for owned in events if owned.owner is not None]
        self._spans = Spans()
        self._name = next((name for each in events if (name := plain_name(_inside(each.event, "domain")))), AGENT)
        self._constant = {key: _first(events, key) for key in CONSTANT}
        self._known: dict[str, Any] = {}
        """References to messages, by the digest of the message."""
        self._said: dict[int, list[tuple[int, ForeignEntry]]] = {}
        """Entries of the conversation with their seqs in the conversation, by the number of the event that held the
        message."""
        self._seqs: dict[int, int] = {}
        """Seqs in the run of the entries in `_said`, by their seqs in the conversation."""
        self._entries: dict[str, int] = {}
        """Seqs of the entries of events, by the ids of the events."""
        self._open: dict[int, tuple[str, int]] = {}
        """For each open span, by its seq: the type of its event, and the seq of the span around it."""

    def foreign(self, number: int, ids: set[str]) -> Foreign:
        """Return the simulation as a conversation.

        Args:
            number: number of the simulation in the file.
            ids: the ids of the other runs of the file. The id of this run is added to them.
        """
        self._talk()
        self._tell(BEFORE)
        for owned in self._events:
            self._event(owned.event)
            self._tell(owned.place)
        self._close(list(self._open))
        names = (plain_name(_inside(each.event, "simulation_id")) for each in self._own)
        own = next((name for name in names if name), plain_name(_first(self._own, "task_id")) or str(number))
        own = f"{own}~{number}" if own in ids else own
        ids.add(own)
        digest = digest_json([owned.event for owned in self._events])
        return Foreign(id=own, name=self._name, digest=digest, entries=self._spans.entries, plain=True)

    def _talk(self) -> None:
        """Make entries from the messages in the events, and keep them in `_said` until `_tell` writes them."""
        chat = Chat(self._name, self._oddities, _model(self._events))
        for key, value in self._constant.items():
            if value is not None:
                chat.note(key, value)
        leading = len(chat.entries) + 1
        groups, told, place = [BEFORE] * len(chat.entries), None, 0
        for owned in self._events:
            raw = _message(owned.event)
            if raw is None or (owned.event["event_type"] == AGAIN and same(raw, told)):
                continue
            told, first = raw, place
            for each in _single(raw):
                self._known[digest_json(each)] = {"message": place}
                self._take(chat, each, place, owned.event)
                place += 1
            if place - first != 1:
                self._known[digest_json(raw)] = {"messages": list(range(first, place))}
            groups += [owned.place] * (len(chat.entries) - len(groups))
        reason, error, inferred = self._ending(told)
        entries = chat.finish(reason, error, inferred=inferred)
        groups += [groups[-1]] * (len(entries) - len(groups))
        for seq, (entry, group) in enumerate(zip(entries, groups, strict=True), 1):
            ends = seq == leading and isinstance(entry.content, EndContent)  # the first span, before all events
            self._said.setdefault(BEFORE if ends else group, []).append((seq, entry))

    def _ending(self, last: Any) -> tuple[Reason, Error | None, bool]:
        """Return why the last turn ended, its error, and whether the reason is inferred.

        Args:
            last: the last message. It decides the reason if no event states one.
        """
        found = (_inside(each.event, "termination_reason") for each in reversed(self._own))
        named = next((each for each in found if each is not None), None)
        if named is None and last is not None and not ends_answered([last]):
            return "limit", Error(type="unfinished", message=CUT), True
        return ending(named, self._oddities)

    def _take(self, chat: Chat, raw: Any, place: int, event: dict[str, Any]) -> None:
        words = spoken(raw, place, self._oddities)
        if words is None:
            chat.unreadable(raw, place)
            return
        at, sure = Members(event, Oddities()).time("timestamp")
        data = raw.get("raw_data")
        model = data.get("model") if isinstance(data, dict) else None
        clock = {"timestamp": raw["timestamp"]} if raw.get("timestamp") is not None else {}
        extra = {**clock, **(words.extra or {})} or None
        named = model if isinstance(model, str) and model else None
        chat.take(replace(words, at=at or words.at, sure=sure, model=named, extra=extra), place)

    def _tell(self, place: int) -> None:
        """Write the entries that `_talk` made from the message in event number `place`."""
        for seq, entry in self._said.get(place, ()):
            made = self._seqs[seq] = len(self._spans.entries) + 1
            content = entry.content
            if isinstance(content, ToolResultContent) and content.call is not None:
                content = replace(content, call=self._seqs[content.call])
            causes = tuple(self._seqs[cause] for cause in entry.causes)
            span = made if isinstance(content, BeginContent) else self._seqs[entry.span]
            self._spans.entries.append(replace(entry, content=content, span=span, causes=causes))

    def _event(self, raw: Any) -> None:
        """Write the entry of one event: the begin or the end of a span, or a key-value entry."""
        kind = raw.get("event_type") if isinstance(raw, dict) else None
        if not isinstance(kind, str):
            self._oddities["unreadable-message"] += 1
            self._note(KeyValueContent(key=UNREADABLE, value=raw), When(), (), None)
            return
        members = Members(raw, self._oddities)
        members.take("event_type", str)
        for key, value in self._constant.items():
            members.drop(key, value)
        when, own, parent = When(*members.time("timestamp")), members.take("event_id", str), self._parent(raw, members)
        payload, notes = self._referred(members.take("payload", object)), {"event": own} if own else None
        causes = () if parent is None else (parent,)
        ended = self._span_of(kind.removesuffix(ENDS), parent) if kind.endswith(ENDS) else None
        if ended is not None:
            self._close([span for span in self._open if self._lies_in(span, ended)])
            del self._open[ended]
            end = _end(raw, payload, members.rest())
            seq = self._spans.write(end, ended, when, (ended,), () if parent == ended else ("span", "causes"), notes)
        elif kind.endswith(BEGINS):
            above = parent if parent in self._open else self._innermost()
            base, tool = kind.removesuffix(BEGINS), plain_name(raw.get("tool_name"))
            members.drop("tool_name", tool)
            extra = {**({"event_type": base} if tool else {}), **(members.rest() or {})} or None
            role = SPAN_ROLES.get(base, "span")
            begin = BeginContent(name=tool or base, role=role, state=payload, extra=extra)
            seq = self._spans.write(begin, above, when, causes, ("parent",) if above not in (0, parent) else (), notes)
            self._open[seq] = base, above
        else:
            self._oddities["unbegun-span"] += kind.endswith(ENDS)
            seq = self._note(KeyValueContent(key=kind, value=payload, extra=members.rest()), when, causes, notes)
        if own:
            self._entries.setdefault(own, seq)

    def _note(self, content: KeyValueContent, when: When, causes: tuple[int, ...], notes: dict[str, Any] | None) -> int:
        """Write an event that is not a span, and return its seq.

        The entry is written in the span of the event's parent, or else in the innermost open span.
        """
        span = next((cause for cause in causes if cause in self._open), self._innermost())
        if span:
            return self._spans.write(content, span, when, causes, notes=notes)
        span = self._spans.write(BeginContent(name=content.key, role="event"), 0, when)
        seq = self._spans.write(content, span, when, causes, notes=notes)
        self._spans.write(EndContent(), span, when)
        return seq

    def _parent(self, raw: dict[str, Any], members: Members) -> int | None:
        """Return the seq of the entry of the parent of the event `raw`; `None` if the event names no known parent.

        If there is one, `parent_event_id` is removed from `members`, which are the members of `raw`.
        """
        named = raw.get("parent_event_id")
        parent = self._entries.get(named) if isinstance(named, str) else None
        self._oddities["missing-parent"] += named is not None and parent is None
        if parent is not None:
            members.take("parent_event_id", str)
        return parent

    def _span_of(self, base: str, parent: int | None) -> int | None:
        """Return the seq of the open span that an end event ends; `None` if no open span fits.

        For an event with a parent, it is the span that the parent began. For an event without a parent, it is the
        newest span of the type.

        Args:
            base: type of the event without `_end`.
            parent: seq of the parent's entry.
        """
        if parent is not None:
            return parent if self._open.get(parent, ("", 0))[0] == base else None
        return next((span for span, (known, _) in reversed(self._open.items()) if known == base), None)

    def _lies_in(self, span: int, around: int) -> bool:
        while span in self._open:
            span = self._open[span][1]
            if span == around:
                return True
        return False

    def _innermost(self) -> int:
        return next(reversed(self._open), 0)

    def _close(self, spans: list[int]) -> None:
        """End spans for which the source has no end."""
        for span in reversed(spans):
            self._oddities["unended-span"] += 1
            self._spans.write(EndContent(status="error", error=UNENDED), span)
            del self._open[span]

    def _referred(self, value: Any, depth: int = 0) -> Any:
        """Return a copy of a value in which `{"message": n}` replaces the message number n of the conversation."""
        if depth > DEEPEST or not isinstance(value, dict | list):
            return value
        if isinstance(value, list):
            return [self._referred(each, depth + 1) for each in value]
        known = self._known.get(digest_json(value)) if "role" in value else None
        return known or {key: self._referred(each, depth + 1) for key, each in value.items()}


def _end(raw: dict[str, Any], state: Any, extra: dict[str, Any] | None) -> EndContent:
    status, message = _inside(raw, "status"), _inside(raw, "error")
    if status not in FAILURES and message is None:
        return EndContent(state=state, extra=extra)
    text = message if isinstance(message, str) else ""
    error = Error(type=status if isinstance(status, str) else "error", message=text)
    return EndContent(state=state, status="error", error=error, extra=extra)


def _inside(event: Any, key: str) -> Any:
    """Return a member of an event's payload; `None` if the payload lacks it."""
    payload = event.get("payload") if isinstance(event, dict) else None
    inner = payload.get(INSIDE) if isinstance(payload, dict) else None
    return inner.get(key) if isinstance(inner, dict) else None


def _message(event: Any) -> Any:
    """Return the message that an event holds; `None` if it holds no message."""
    if not isinstance(event, dict) or event.get("event_type") not in SPEAKS:
        return None
    message = _inside(event, "message")
    return message.get("raw", message) if isinstance(message, dict) else message


def _single(raw: Any) -> list[Any]:
    """Return a message as a list.

    A message with the results of several calls is divided, with one element for each result.
    """
    several = raw.get("tool_messages") if isinstance(raw, dict) else None
    return several if isinstance(several, list) else [raw]


def _first(events: list[Owned], key: str) -> Any:
    return next(
        (value for each in events if isinstance(each.event, dict) and (value := each.event.get(key)) is not None), None
    )


def _model(events: list[Owned]) -> str | None:
    """Return the name of the agent's model from the recorded command line; `None` if it names none."""
    words = next((words for each in events if isinstance(words := _inside(each.event, "argv"), list)), [])
    place = words.index(MODEL) + 1 if MODEL in words else len(words)
    return plain_name(*words[place : place + 1]) or None


FORMATS = (
    Format(
        "activegraph",
        "JSON lines of events with `event_type` and `parent_event_id`",
        "object",
        ("event_id", "event_type", "parent_event_id"),
        read,
        members=MEMBERS,
    ),
)
