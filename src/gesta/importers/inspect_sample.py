"""Turns a sample of an Inspect AI log (one task, run once) into a conversation: messages as turns, and events.

Messages keep their order. A model's message is written at the model's event, and a tool's result when the tool was
done. Every other message is written just before the next of these. If a tool, another agent or a scorer called a model,
the call is only a note. The turn ends before the first scorer, because of a limit, an error or an answer. Later events
are in a last span, `review`, which ends with the scores.

A run is a list of entries, which are recorded facts. A seq is the number of an entry in its run. A span is a part of a
run from its begin entry to its end entry, such as a turn: the work on one message. A completion is a reply that a model
generated.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gesta.importers.chat import Chat, Said
from gesta.importers.foreign import ForeignEntry, Members, Oddities, digest_json, plain_name, same
from gesta.importers.inspect_event import Events, judges
from gesta.importers.inspect_message import Heard, Hearing, Told, When, dig, done, is_message, kept, offer
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Error,
    Reason,
    RequestHeaderContent,
    ToolCallContent,
    ToolResultContent,
)

LONGEST = 100_000
"""Greatest number of messages to which one request may refer."""
EMPTY: tuple[Any, ...] = (None, {}, [])
"""Values that hold no information."""
CUT = "The source ends here, before an answer, and its log was not finished."


class Log(Struct, frozen=True):
    """Facts about a log that apply to all its samples."""

    agent: str
    model: str | None
    whole: bool
    """Whether the log was finished without an error."""
    at: datetime | None = None
    """Time at which the log began."""


class Sample:
    """Turns one sample into entries."""

    def __init__(self, sample: dict[str, Any], log: Log, oddities: Oddities) -> None:
        self._log, self._whole, self._oddities = log, sample, oddities
        self._members = Members(sample, oddities)
        transcript = Members(self._members.take("transcript", dict) or {}, oddities)
        self._events = self._members.take("events", list) or transcript.take("events", list) or []
        texts = self._members.take("attachments", dict) or transcript.take("content", dict) or {}
        self._notes: dict[str, Any] = {"attachments": texts, "transcript": transcript.rest()}
        self._told = Told(texts)
        read = [self._told.read(message) for message in self._members.take("messages", list) or self._implied()]
        self._messages, self._refs = [message for message, _ in read], [refs for _, refs in read]
        self._made = _matched(self._messages, self._events, self._told)
        """The messages that events made: from the number of the event to the number of the message."""
        self._by = {place: index for index, place in self._made.items()}
        self._told.stand(self._messages)
        self._hearing = Hearing(self._told, oddities, _calls(self._messages))
        self._chat = Chat(log.agent, oddities, log.model)
        self._writer = Events(self._chat, self._told, oddities)
        self._next = 0
        """Number of the message that is written next."""
        self._reached: dict[int, When] = {}
        """The time when a tool was done, by the number of its result message. Only tool events that were read are
        included."""
        times = (at for event in self._events if (at := _time(event)[0]) is not None)
        self._now = next(times, self._log.at)
        """Time of the entry that was written last."""
        self._offered, self._instructions = "", ""
        self._turned = self._over = self._reviewed = False

    def tell(self, notes: dict[str, Any]) -> list[ForeignEntry]:
        """Write the sample, and return all entries.

        Args:
            notes: more facts about the sample, for the state of the first `begin` entry.
        """
        scores = self._members.take("scores", dict) or {}
        own = {
            key: self._asked(value) if key == "input" else value for key, value in (self._members.rest() or {}).items()
        }
        made, refs = self._told.read({key: value for key, value in own.items() if value not in EMPTY})
        for key, value in [*notes.items(), *self._notes.items(), *made.items()]:
            if value not in EMPTY:
                self._chat.note(key, value)
        self._told.written(1)
        self._chat.began(self._now, refs or None)
        roles = [dig(message, "role") for message in self._messages]
        self._until(next((place for place, role in enumerate(roles) if role not in ("system", "user")), len(roles)))
        last = max(self._made, default=-1)
        for index, event in enumerate(self._events):
            if index > last and judges(event):
                self._finish(scored=bool(scores))
                self._review()
            self._happened(index, event)
        self._finish(scored=bool(scores))
        if scores:
            answers = [seq for seq, each in enumerate(self._chat.entries, 1) if _answers(each)]
            self._review()
            self._writer.note("scores", scores, tuple(answers[-1:]))
        self._writer.close()
        return self._chat.entries

    def _implied(self) -> list[Any]:
        """Return messages for a sample that has no list of messages.

        They are those of its longest request, with the reply. If no request has messages, they are the sample's input.
        """
        requests = [event for event in self._events if dig(event, "event") == "model"]
        pool = self._whole.get("message_pool") or dig(self._whole, "events_data", "messages")
        asked, answer = max(
            ((_input(event, pool), dig(event, "output", "choices", 0, "message")) for event in requests),
            key=lambda request: len(request[0]),
            default=([], None),
        )
        messages: Any = [*asked, *([answer] if is_message(answer) else [])]
        if not messages:
            given = self._whole.get("input")
            messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(messages, list) or not messages:
            return []
        self._oddities["no-messages"] += 1
        self._notes["implied-messages"] = "of the longest request" if asked else "of the input"
        return messages

    def _asked(self, given: Any) -> Any:
        """Return `given`, the sample's input; or a reference to the user's message that has the same text."""
        said = (place for place, each in enumerate(self._messages) if isinstance(given, str) and _asks(each, given))
        place = next(said, None)
        return given if place is None else {"message": place}

    def _until(self, stop: int) -> None:
        """Write all messages with a number below `stop` that are not written yet."""
        while self._next < stop:
            self._message(self._next)
            self._next += 1

    def _message(self, place: int) -> None:
        message, event = self._messages[place], self._event(place)
        role, entries = dig(message, "role"), self._chat.entries
        if role == "user" or not self._turned:  # a turn may begin here, which ends all open spans
            self._writer.close()
        before = len(entries)
        heard = self._hearing.hear(message, place, event, self._refs[place])
        instructs = heard is not None and role == "system" and place == 0
        if place == 0:
            self._header(self._first_request(), heard.said if heard is not None and instructs else None)
        if heard is None:
            self._chat.unreadable(message, place)
        elif not instructs:
            self._turned |= role != "system"
            if role == "assistant" and place in self._by:
                self._header(event)
            said = heard.said
            self._chat.take(said if said.at is not None else replace(said, at=self._now), place)
            self._amend(before, heard)
        made = (ChatCompletionContent, ToolResultContent)
        seqs = [seq for seq in range(before + 1, len(entries) + 1) if isinstance(entries[seq - 1].content, made)]
        self._told.written(seqs[0] if seqs else before + 1)

    def _event(self, place: int) -> Any:
        """Return the event that made a message; `None` if no event did.

        If the log lacks the event, but the sample's `output` has the message, return an event made from the output.
        """
        if place in self._by:
            return self._events[self._by[place]]
        output = self._whole.get("output")
        made = self._told.look(dig(output, "choices", 0, "message"))
        return {"event": "model", "output": output} if same(made, {"message": place}) else None

    def _first_request(self) -> Any:
        events = (self._events[index] for index in sorted(self._made))
        return next((event for event in events if dig(event, "event") == "model"), None)

    def _header(self, event: Any, said: Said | None = None) -> None:
        """Write a request header: an entry with the instructions, tools and settings of all later requests.

        Nothing is written if the last request header has the same tools and settings.

        Args:
            event: the event of a model call, which names tools and settings; `None` if the sample has no such event.
            said: the first message, if its text is the instructions; `None` keeps the instructions.
        """
        tools, settings, extra = offer(event, self._told)
        offered = digest_json([tools, settings, extra])
        if offered == self._offered:
            return
        self._offered = offered
        self._instructions = said.text if said is not None else self._instructions
        known = {"model": self._log.model, "instructions": self._instructions or None, "settings": settings}
        meta = {key: value for key, value in known.items() if value is not None}
        if said is not None or tools or meta or extra:
            more = kept(None if said is None else said.extra, extra)
            content = RequestHeaderContent(tools=tools, meta=meta or None, extra=more)
            self._chat.add(content, place=None if said is None else 0, when=(self._now, False))

    def _amend(self, before: int, heard: Heard) -> None:
        """Add facts to the entries that `Chat` wrote for a message: its latency, its outcome, and errors of its calls.

        Args:
            before: number of entries before the message was written.
            heard: the message with these facts.
        """
        entries, errors = self._chat.entries, iter(heard.errors)
        for place in range(before, len(entries)):
            content = entries[place].content
            match content:
                case ChatCompletionContent():
                    content = replace(content, latency_ms=heard.latency_ms)
                case ToolCallContent():
                    self._writer.called(content.tool_call_id, place + 1)
                    if (error := next(errors, None)) is not None:
                        content = replace(content, status="error", meta=(content.meta or {}) | {"error": error})
                case ToolResultContent(outcome="error") if heard.outcome is not None:
                    content = replace(content, outcome=heard.outcome)
            entries[place] = replace(entries[place], content=content)

    def _happened(self, index: int, event: Any) -> None:
        """Write the event with the number `index`, after the results of all tools that finished earlier.

        For a model's event that made a message, all messages up to that one are written.
        """
        at = _time(event)[0]
        while at is not None and self._next in self._reached:
            over = self._reached[self._next][0]
            if over is None or over > at:
                break
            self._until(self._next + 1)
        self._now = at or self._now
        if index not in self._made:
            self._writer.take(event)
        elif dig(event, "event") == "model":
            self._until(self._made[index] + 1)
        else:
            self._reached[self._made[index]] = done(Members(event, Counter()))
            self._writer.inside(event)

    def _finish(self, *, scored: bool) -> None:
        """Write the remaining messages, and end the last turn. If the method is called again, it does nothing.

        Args:
            scored: whether the sample has scores, which proves that it was finished.
        """
        if self._over:
            return
        self._over = True
        self._until(len(self._messages))
        self._writer.close()
        error, limit = self._whole.get("error"), self._whole.get("limit")
        reason, why = ending(error, limit)
        last = self._messages[-1] if self._messages else None
        answered = dig(last, "role") == "assistant" and not dig(last, "tool_calls")
        if why is None and not (scored or answered or self._log.whole):
            reason, why = "cancelled", Error(type="unfinished", message=CUT)
        self._chat.finish(reason, why, inferred=not scored and error is None and limit is None)

    def _review(self) -> None:
        if not self._reviewed:
            self._reviewed = True
            self._writer.begin("review")


def ending(error: Any, limit: Any) -> tuple[Reason, Error | None]:
    """Return why a turn ended, with the error, from the `error` or the `limit` of the sample."""
    if error is not None:
        message = error if isinstance(error, str) else dig(error, "message")
        return "failed", Error(type="error", message=message if isinstance(message, str) else "See the note `error`.")
    if limit is not None:
        name = plain_name(limit if isinstance(limit, str) else dig(limit, "type")) or "unknown"
        return "limit", Error(type=name, message=f"The source says that its limit ({name}) halted it.")
    return "answered", None


def _matched(messages: list[Any], events: list[Any], told: Told) -> dict[int, int]:
    """Return the messages that events made, as a dict from the event's number to the message's number.

    An event and a message belong together if their ids are equal, or else their contents. `told` replaces references to
    attachments in the messages of events by their texts.
    """
    waiting: dict[tuple[str, str], list[int]] = {}
    for place in reversed(range(len(messages))):
        message = messages[place]
        role = dig(message, "role")
        if role in ("assistant", "tool"):
            says = dig(message, "tool_call_id") if role == "tool" else digest_json(message)
            for kind, mark in (("id", dig(message, "id")), ("says", says)):
                if isinstance(mark, str):
                    waiting.setdefault((f"{role} {kind}", mark), []).append(place)
    made: dict[int, int] = {}
    taken: set[int] = set()
    for index, event in enumerate(events):
        for mark in _marks(event, told):
            places = waiting.get(mark, [])
            while places and places[-1] in taken:
                places.pop()
            if places:
                made[index] = places.pop()
                taken.add(made[index])
                break
    return made


def _marks(event: Any, told: Told) -> Iterator[tuple[str, str]]:
    """Yield the keys by which `_matched` finds the message that a model event or tool event made."""
    role, marks = "tool", (("id", dig(event, "message_id")), ("says", dig(event, "id")))
    if dig(event, "event") == "model":
        message = dig(event, "output", "choices", 0, "message")
        role, marks = "assistant", (("id", dig(message, "id")), ("says", digest_json(told.look(message))))
    elif dig(event, "event") != "tool":
        return
    for kind, mark in marks:
        if isinstance(mark, str):
            yield f"{role} {kind}", mark


def _calls(messages: list[Any]) -> dict[str, dict[str, Any]]:
    lists = (dig(message, "tool_calls") for message in messages)
    calls = (call for each in lists if isinstance(each, list) for call in each)
    return {call["id"]: call for call in calls if isinstance(dig(call, "id"), str)}


def _input(event: Any, pool: Any) -> list[Any]:
    """Return the messages of a request. In newer logs, a request lists numbers of messages in a pool of messages."""
    given, refs = dig(event, "input"), dig(event, "input_refs")
    if given or not isinstance(refs, list) or not isinstance(pool, list):
        return given if isinstance(given, list) else []
    ranges = ([dig(ref, 0), dig(ref, 1)] for ref in refs)
    every = (each for start, end in ranges if _counts(start, end) for each in islice(pool, start, end))
    return list(islice(every, LONGEST))


def _counts(*numbers: Any) -> bool:
    return all(isinstance(number, int) and 0 <= number <= LONGEST for number in numbers)


def _asks(message: Any, text: str) -> bool:
    return dig(message, "role") == "user" and same(dig(message, "content"), text)


def _answers(entry: ForeignEntry) -> bool:
    return isinstance(entry.content, AssistantContent)


def _time(event: Any) -> When:
    return Members(event, Counter()).time("timestamp") if isinstance(event, dict) else (None, False)
