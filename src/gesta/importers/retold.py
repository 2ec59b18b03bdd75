"""Writes each message of a trace only once, although every request repeats the whole conversation.

A trace is a recording of what a program did. An observation is one step of it, such as a tool call. An item is one
element of a request's list of messages. A message of a request is new if the written messages do not contain it after
the request's previous message. A result is matched to a call by the call's id, else by its name, else in order. If a
model read a result that differs from the tool's own observation, the model's form is kept. Times and causes of messages
before the first request of a trace are inferred.

A run is a list of entries. A seq is an entry's number, a span a part of a run, a completion a reply of a model. In the
functions, `said` is one message of the trace, and `hearing` is the request with the message.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gesta.importers.chat import Made, Said, arguments, call_content
from gesta.importers.foreign import Oddities, digest_json, same
from gesta.importers.framework_message import Item
from gesta.importers.spans import Spans, When
from gesta.kinds import (
    ChatCompletionContent,
    RequestHeaderContent,
    SystemContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)

Key = tuple[str, ...]
GUESSED = ("causes",)
FURTHER = "further"
"""Member of a completion's `extra` that keeps facts about later messages, whose calls were added to the completion."""


class Waits(Struct, frozen=True):
    """A call that has no result so far."""

    id: str | None
    name: str | None
    args: str
    """Digest of the call's arguments."""


class Hearing(Struct):
    """One request whose messages are being compared with the written messages."""

    span: int
    when: When
    at: int = 0
    """Place in the order of the written messages from which the next message is searched."""
    waiting: list[int] = field(default_factory=list)
    """Seqs of the calls in the request that have no result so far."""
    tail: list[int] = field(default_factory=list)
    """Seqs of the messages after the model's last message. They are the causes of the reply."""
    open: int = 0
    """Seq of the completion to which further calls belong; 0 if there is no such completion."""
    fresh: bool = False
    """Whether the message that was compared last is new."""
    spoke: int = 0
    """Seq of the last completion in the request; 0 before that."""
    changed: bool = False
    """Whether the last result differs from the result that was written."""


class Retold:
    """The messages of a trace that were written so far. A repeated message is recognised by its content."""

    def __init__(self, spans: Spans, oddities: Oddities) -> None:
        self._spans, self._oddities = spans, oddities
        self._order: list[int] = []
        """Seqs of the written texts, calls and results, in order."""
        self._places: dict[Key, list[int]] = {}
        """The places of each content in `_order`."""
        self._held: dict[str, int] = {}
        """Seq of the entry of a message, by the digest of the whole message."""
        self._ids: dict[str, int] = {}
        """Seq of the newest call with each id."""
        self._header: RequestHeaderContent | None = None
        self._headed = 0
        self.waiting: dict[int, Waits] = {}
        self.results: dict[int, int] = {}
        """Seqs of results, by the seqs of their calls."""
        self._seen: set[int] = set()
        """Seqs of the results that come from a tool's own observation and that no request has contained yet."""
        self.last: tuple[int, ...] = ()
        """Causes of the next reply, if its request does not show any."""

    def header(self, content: RequestHeaderContent, span: int, when: When) -> None:
        """Write a request header: an entry with instructions, tools and settings.

        If the last request header has the same content, nothing is written.
        """
        if not same(content, self._header):
            self._header, self._headed = content, self._spans.write(content, span, when)

    def hear(self, items: list[Item], hearing: Hearing, *, headed: bool) -> list[Any]:
        """Write the new messages of a request.

        Args:
            headed: whether the first message is the instructions, which the request header holds already.

        Returns:
            A list with one value for each item: the seqs of the item's entries. If these entries do not contain the
            whole item, the value is the item itself.
        """
        references = []
        for item in items:
            seqs, fresh, hearing.changed = list[int](), list[bool](), False
            for said in item.said:
                header, headed = headed, False
                seqs.append(self._headed if header else self._hear(said, hearing))
                fresh.append(hearing.fresh and not header)
            references.append(item.raw if hearing.changed else self._reference(item, seqs, new=all(fresh)))
        self.last = tuple(hearing.tail) or self.last
        return references

    def give(self, said: Said, content: ChatCompletionContent, hearing: Hearing, inferred: Collection[str] = ()) -> int:
        """Write a model's reply, with its thought and its calls, and return the seq of the completion.

        Args:
            said: the reply, with its thought and its calls.
            content: the content of the completion, made from the reply.
            hearing: the request that was replied to.
            inferred: fields of the completion that the reader inferred.
        """
        causes, guessed = self.last, [*inferred, *(GUESSED if self.last else ())]
        completion = self._spans.write(content, hearing.span, hearing.when, causes, guessed)
        if said.reasoning:
            thought = ThoughtContent(value=said.reasoning)
            self._say(
                ("thought", said.reasoning), self._spans.write(thought, hearing.span, hearing.when, (completion,))
            )
        if said.text:
            self._say(("assistant", said.text), completion)
        for made in said.calls:
            hearing.waiting.append(self._call(made, completion, hearing))
        self.last = (completion,)
        return completion

    def match(self, call_id: str | None, name: str, args: Any, *, loose: bool) -> int | None:
        """Return the seq of the call that a tool ran, among the calls without a result; `None` if no call fits.

        The call is the one with the id, or else the first call with the name and the arguments.

        Args:
            loose: whether a call with the same name is returned if no call has the id or the arguments.
        """
        return fits(self.waiting, call_id, name, args, loose=loose)

    def observe(self, call: int, said: Said, hearing: Hearing) -> None:
        """Write the result of a call from the tool's own observation.

        If a later request shows the model another result of the call, the other result replaces this result.

        Args:
            call: seq of the call.
            said: the observation, as a message with the result.
        """
        self._seen.add(self.answer(call, said, hearing))

    def answer(self, call: int | None, said: Said, hearing: Hearing, inferred: Collection[str] = ()) -> int:
        """Write the result of a call, and return the seq of the result.

        Args:
            call: seq of the call; `None` if it is not known.
            said: the message with the result.
            inferred: fields of the result that the reader inferred.
        """
        failed = said.error or False
        content = ToolResultContent(
            tool_result=said.result,
            call=call,
            tool_call_id=said.call_id,
            status="error" if failed else "success",
            outcome="error" if failed else "ok",
            extra=said.extra,
        )
        unsure = [*inferred, *(() if said.error is not None else ("status",))]
        seq = self._spans.write(content, hearing.span, hearing.when, () if call is None else (call,), unsure)
        self._oddities["orphan-result"] += call is None
        if call is not None:
            self.results[call] = seq
            self.waiting.pop(call, None)
        return seq

    def _hear(self, said: Said, hearing: Hearing) -> int:
        """Write a message if it is new. Return the seq of its entry; 0 for an empty message, which may have none."""
        hearing.fresh = False
        if said.role == "tool":
            seq = self._result(said, hearing)
            hearing.tail.append(seq)
            return seq
        keys = list(pieces_of(said))
        found = self._find(keys, hearing.at)
        if found is None:
            seq = self._write(said, hearing)
            hearing.at, hearing.fresh = len(self._order), True
        else:
            seqs = [self._order[place] for place in found]
            hearing.at, hearing.open = found[-1] + 1 if found else hearing.at, 0
            hearing.waiting += [seq for key, seq in zip(keys, seqs, strict=True) if key[0] == "call"]
            seq = self._completion(seqs[0]) if seqs else 0
        if said.role != "assistant":
            hearing.open = 0
            hearing.tail.append(seq)
        elif seq and seq != hearing.spoke:  # otherwise a further call of that completion, sent as its own message
            self.last, hearing.tail, hearing.spoke = (seq,), [], seq
        return seq

    def _write(self, said: Said, hearing: Hearing) -> int:
        self.last = tuple(hearing.tail) or self.last
        if said.role == "assistant" and hearing.open and not (said.text or said.reasoning):
            hearing.waiting += [self._call(made, hearing.open, hearing) for made in said.calls]
            self._add(hearing.open, said.extra)
        elif said.role == "assistant":
            content = ChatCompletionContent(output=said.text, finish_reason=said.finish_reason, extra=said.extra)
            hearing.open = self.give(said, content, hearing)
        else:
            kind = UserContent if said.role == "user" else SystemContent
            told = kind(value=said.text, extra=said.extra)
            return self._say((said.role, said.text), self._spans.write(told, hearing.span, hearing.when))
        return hearing.open

    def _add(self, completion: int, more: dict[str, Any] | None) -> None:
        """Add to the `extra` of a completion the further members of a message whose calls were added to the completion.

        Args:
            completion: seq of the completion.
            more: the members; `None` if the message has none.
        """
        content = self._spans.entries[completion - 1].content
        assert isinstance(content, ChatCompletionContent)
        if more:
            extra = content.extra or {}
            known = extra.get(FURTHER, [])
            further = [*(known if isinstance(known, list) else [known]), more]
            self._spans.change(completion, replace(content, extra={**extra, FURTHER: further}))

    def _completion(self, seq: int) -> int:
        entry = self._spans.entries[seq - 1]
        return entry.causes[0] if isinstance(entry.content, ToolCallContent | ThoughtContent) else seq

    def _call(self, made: Made, completion: int, hearing: Hearing) -> int:
        content = call_content(made, self._ids, self._oddities)
        seq = self._spans.write(content, hearing.span, hearing.when, (completion,))
        self.waiting[seq] = Waits(made.id, made.name, args_digest(made.args))
        if made.id:
            self._ids[made.id] = seq
        return self._say(_key(made), seq)

    def _result(self, said: Said, hearing: Hearing) -> int:
        hearing.open = 0
        name = (said.extra or {}).get("name")
        named = [seq for seq in hearing.waiting if name is not None and self._name(seq) == name]
        call = self._ids.get(said.call_id) if said.call_id else next(iter(named or hearing.waiting), None)
        if call in hearing.waiting:
            hearing.waiting.remove(call)
        seq = self._orphan(said, hearing) if call is None else self.results.get(call)
        if seq is not None:
            hearing.changed |= call is not None and not self._read(seq, said)
            return seq
        hearing.fresh = True
        self._oddities["missing-result-id"] += said.call_id is None
        seq = self.answer(call, said, hearing, () if said.call_id or call is None else ("call", "causes"))
        return seq if call is not None else self._say(_orphan(said), seq)

    def _read(self, seq: int, said: Said) -> bool:
        """Return whether the written result `seq` of a call is the same as the result that a message has for that call.

        A written result that came from a tool's observation is first replaced by the message's result.
        """
        content = self._spans.entries[seq - 1].content
        assert isinstance(content, ToolResultContent)
        if seq in self._seen:
            self._seen.remove(seq)
            extra = {**(content.extra or {}), **(said.extra or {})} or None
            self._spans.change(seq, replace(content, tool_result=said.result, extra=extra))
            return True
        return same(content.tool_result, said.result)

    def _orphan(self, said: Said, hearing: Hearing) -> int | None:
        found = self._find([_orphan(said)], hearing.at)
        if found is None:
            return None
        hearing.at = found[0] + 1
        return self._order[found[0]]

    def _name(self, call: int) -> str | None:
        content = self._spans.entries[call - 1].content
        return content.tool_name if isinstance(content, ToolCallContent) else None

    def _find(self, keys: list[Key], start: int) -> list[int] | None:
        """Return the places at which texts, calls or results were written in the given order; `None` if they were not.

        Args:
            keys: for each text, call or result its key, made by `pieces_of`.
            start: the first place to search. A place is an index in the order of writing.
        """
        found = []
        for key in keys:
            places = self._places.get(key, [])
            place = bisect_left(places, start)
            if place == len(places):
                return None
            found.append(places[place])
            start = places[place] + 1
        return found

    def _say(self, key: Key, seq: int) -> int:
        self._places.setdefault(key, []).append(len(self._order))
        self._order.append(seq)
        return seq

    def _reference(self, item: Item, seqs: list[int], *, new: bool) -> Any:
        """Return what is stored in place of an item of a request: the seqs of the item's entries.

        If these entries do not contain the whole item, return the item itself.

        Args:
            seqs: the seqs of the entries.
            new: whether the entries were written for this item.
        """
        if not seqs or not all(seqs):
            return item.raw
        digest = digest_json(item.raw)
        plain = not any(said.extra or any(made.extra for made in said.calls) for said in item.said)
        if new or plain or digest in self._held:
            self._held[digest] = seqs[0]
            return seqs[0] if len(seqs) == 1 else seqs
        self._held[digest] = seqs[0]
        return item.raw


def fits(calls: Mapping[int, Waits], call_id: str | None, name: str, args: Any, *, loose: bool) -> int | None:
    """Return the seq of the call in `calls` that a result belongs to; `None` if no call fits.

    Args:
        call_id: id of the call, as the result names it. A call with this id comes before all others.
        name: name of the tool; next comes a call of this tool with equal arguments.
        args: arguments with which the tool ran.
        loose: whether, last of all, any call of the tool fits.
    """
    told, every = args_digest(args), calls.items()
    found = [
        *(seq for seq, call in every if call_id is not None and call.id == call_id),
        *(seq for seq, call in every if call.name == name and call.args == told),
        *(seq for seq, call in every if call.name == name and loose),
    ]
    return found[0] if found else None


def pieces_of(said: Said) -> Iterator[Key]:
    """Yield a key for each text, thought, call or result in a message. Equal contents have equal keys."""
    if said.role != "assistant":
        yield said.role, said.text
        return
    if said.reasoning:
        yield "thought", said.reasoning
    if said.text:
        yield "assistant", said.text
    for made in said.calls:
        yield _key(made)


def _key(made: Made) -> Key:
    return "call", made.id or "", made.name or "", args_digest(made.args)


def args_digest(args: Any) -> str:
    """Return the digest of a call's arguments. JSON text and the object that it contains have the same digest."""
    read, wrong = arguments(args)
    return digest_json(args if wrong else read)


def _orphan(said: Said) -> Key:
    return "tool", said.call_id or "", digest_json(said.result)
