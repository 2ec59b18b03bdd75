"""Reads a log of SWE-agent's requests to models and the responses: lines `{timestamp, type: request|response, …}`.

Each request repeats a whole conversation, and only its new messages are written. It belongs to the conversation whose
beginning it repeats, at least the system message and the task. If it leaves out messages, a `compaction` entry hides
them from then on. A response answers the newest request that has no response yet. A request without a response gets a
`fault` entry; the same request sent again is another try. A request entry refers to its messages. In its `extra`,
`shown` keeps messages that had another form before, and `marks` keeps members of messages other than text and calls.
Times have no zone and are read as UTC. The reason why a conversation ended is inferred. All conversations of a file are
in memory.

A run is a list of entries. A seq is an entry's number, a span a part of a run, a completion a reply of a model.
"""

import hashlib
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gesta.importers.chat import Chat
from gesta.importers.foreign import Foreign, Members, Oddities, digest_json, plain_name, same, told, without_keys
from gesta.importers.format import Format, members_of
from gesta.importers.message import CUT, KEPT, said
from gesta.importers.openai_exchange import completion, marks_of, message_of, plain, tools_of
from gesta.importers.source import BadImport, Document, Source
from gesta.kinds import (
    AssistantContent,
    CompactionContent,
    Error,
    FaultContent,
    KeyValueContent,
    Kind,
    Reason,
    RequestContent,
    RequestHeaderContent,
)

AGENT = "swe-agent"
"""Name of the runs whose instructions do not name the agent."""
NAMED = re.compile(r"You are (?:an?|the) ([\w ]{1,60}? Agent)\b")
ENCODER = "swe-agent-interactions"
"""The encoder that request entries name, because the field is required. This importer itself encodes no messages."""
REQUEST, RESPONSE, OUTER = "request", "response", ("timestamp", "type")
INSTRUCTS = ("system", "developer")
BODY = "request_params"
"""Member that holds the body of a request. In older logs, the line itself has the members of the body."""
CONCLUDED = ("extends", "blocks", "body_digest", "causes")
"""Fields of a request entry that are always inferred, because the source lacks them."""
LOST = "no-response"
SHOWN = (Kind.User, Kind.System, Kind.ChatCompletion, Kind.ToolCall, Kind.ToolResult, Kind.KeyValue)
SUBMIT = "submit"
"""The tool that ends a run."""
When = tuple[datetime | None, bool]
Object = dict[str, Any]


class Held(Struct):
    """A message of a conversation, with the entries written for it."""

    digests: set[str]
    """Digests of the message's plain form (text and calls only), one for each form in which it was sent."""
    call_id: str | None
    """For a result: id of the call that it answers."""
    seqs: tuple[int, ...]
    """Seqs of its entries; empty for the instructions, which are in the request header."""


class Sent(Struct, frozen=True):
    """The result of comparing a request with its conversation, message by message."""

    same: int
    """Number of messages, from the beginning, that equal the messages of the conversation."""
    reply: bool
    """Whether the message after these is the model's last reply, which no earlier request contained."""
    left_out: list[Held]
    """Messages of the conversation that the request leaves out."""
    otherwise: dict[str, Any]
    """Messages that had another form before, by their number in the request."""


MEMBERS = KEPT | members_of(
    """timestamp type error request_params messages model temperature top_p tools response outputs cost input_tokens
    output_tokens marks shown created object choices usage system_fingerprint stream max_tokens stop tool_choice"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield the conversations of a log. The whole log is read first. Raises BadImport if it is not such a log."""
    log = _Log(source.path, oddities)
    for document in source.documents():
        log.take(document)
    oddities["no-conversations"] += not log.threads
    yield from (thread.finish() for thread in log.threads)


class _Log:
    """Assigns the lines of a log to its conversations."""

    def __init__(self, path: str, oddities: Oddities) -> None:
        self._path, self._oddities = path, oddities
        self.threads: list[_Thread] = []
        self._waiting: list[_Thread] = []
        """Conversations whose last request has no response yet, the newest request last."""

    def take(self, document: Document) -> None:
        """Add one line of the log to its conversation."""
        line, place = document.value, document.place
        type_ = line.get("type") if isinstance(line, dict) else None
        if type_ == REQUEST and isinstance(messages := _body(line).get("messages"), list):
            digests = [digest_json(plain(message)) for message in messages]
            thread = self._thread(messages, digests)
            self._waiting = [one for one in self._waiting if one is not thread] + [thread]
            thread.request(line, place, digests)
        elif type_ == RESPONSE and self._waiting:
            thread = self._waiting.pop()
            thread.response(line, place)
        elif place == 0 and type_ not in (REQUEST, RESPONSE):
            raise BadImport(self._path, "expected a log of requests and responses, found neither in its first line")
        else:
            thread = self.threads[-1] if self.threads else self._new([])
            thread.other(line, place, orphan=type_ == RESPONSE)
        thread.lines.update(digest_json(line).encode())

    def _thread(self, messages: list[Any], digests: list[str]) -> "_Thread":
        """Return the conversation that a request continues, or a new one.

        Args:
            messages: the messages of the request.
            digests: the digests of their plain forms (text and calls only).
        """
        opening = next((at for at, one in enumerate(messages, 1) if _role(one) not in INSTRUCTS), len(messages))
        found = [(thread.common(digests), place) for place, thread in enumerate(self.threads)]
        same, place = max(found, default=(0, 0))
        goes_on = same >= max(1, opening) and (
            same >= len(self.threads[place].last) or any(_role(one) == "assistant" for one in messages)
        )  # otherwise the same task begins again
        return self.threads[place] if goes_on else self._new(messages)

    def _new(self, messages: list[Any]) -> "_Thread":
        first = plain(messages[0]) if messages else {}
        text = first["text"] if first.get("role") in INSTRUCTS else None
        name = NAMED.match(text) if isinstance(text, str) else None
        thread = _Thread(str(len(self.threads)), name[1] if name else AGENT, self._oddities)
        self.threads.append(thread)
        return thread


class _Thread:
    """Turns one conversation into the entries of a run."""

    def __init__(self, own: str, name: str, oddities: Oddities) -> None:
        self._id, self._name, self._oddities = own, name, oddities
        self._chat = Chat(name, oddities)
        self.lines = hashlib.sha256()
        """Digest of the log lines that belong to the conversation."""
        self.last: list[str] = []
        """Digests of the messages of the last request."""
        self._names: dict[str, str] = {}
        self._held: list[Held] = []
        self._reply: Object | None = None
        """The model's last reply, if no request has repeated it yet. Its message is then the last one in `_held`."""
        self._header, self._heading = 0, ""
        self._request, self._number = 0, 0
        self._spoken = False
        """Whether the agent has said anything."""
        self._asked: When | None = None
        """Time of the last request, if it has no response."""

    def common(self, digests: list[str]) -> int:
        """Return how many of a request's first messages equal the first messages of this conversation."""
        pairs = enumerate(zip(self._held, digests, strict=False))
        shorter = min(len(self._held), len(digests))
        return next((at for at, (held, digest) in pairs if digest not in held.digests), shorter)

    def request(self, line: Object, place: int, digests: list[str]) -> None:
        """Add a request: first its new messages, then the request itself.

        Args:
            line: the line of the log.
            place: number of the line.
            digests: digests of the plain forms (text and calls only) of its messages.
        """
        outer, body = Members(line, self._oddities), _body(line)
        outer.take("type", str)
        when = outer.time("timestamp")
        rest = {key: value for key, value in (outer.rest() or {}).items() if key not in (BODY, *body)}
        messages = body["messages"]
        again = digests == self.last
        sent = self._compared(messages, digests)
        self._lost(when, again=again, replied=len(messages) > sent.same and _role(messages[sent.same]) == "assistant")
        self._oddities["repeated-request"] += again
        self._head(body, place, when)
        self._held = self._held[: sent.same] + (self._held[-1:] if sent.reply else [])
        marks = {str(at): mark for at in range(len(self._held)) if (mark := marks_of(messages[at]))}
        for at in range(len(self._held), len(messages)):
            self._held.append(self._new(messages[at], digests[at], place, when))
        self._leave_out(sent.left_out, place, when)
        changed = any(int(at) < len(self.last) for at in sent.otherwise)
        whole = changed or bool(sent.left_out) or not self._request
        added = self._held if whole else self._held[len(self.last) :]
        self._number = self._number + 1 if again else 1
        known = {**rest, "marks": marks, "shown": sent.otherwise}
        content = RequestContent(
            header=self._header,
            extends=None if whole else self._request,
            blocks=[[list(held.seqs), ENCODER] for held in added if held.seqs],
            body_digest=digest_json(body),
            number=self._number,
            extra={key: value for key, value in known.items() if value} or None,
        )
        causes = {seq for held in added for seq in held.seqs} | (set() if whole else {self._request})
        self._request = self._chat.add(content, tuple(sorted(causes)), inferred=CONCLUDED, place=place, when=when)
        self.last, self._asked, self._reply = digests, when, None

    def response(self, line: Object, place: int) -> None:
        """Add the reply in a response, or a `fault` entry (a failed request) if the response has no message."""
        members = Members(line, self._oddities)
        members.take("type", str)
        when = members.time("timestamp")
        self._asked, message = None, message_of(line)
        if message is None:
            error = Error(type="no-message", message="The response holds no message.")
            fault = FaultContent(of=self._request, error=error, extra=members.rest())
            self._chat.add(fault, (self._request,), place=place, when=when, inferred=("of", "causes"))
            return
        first, words = len(self._chat.entries) + 1, said(message, self._names, self._oddities)
        assert words is not None
        words = completion(words, message, members, self._oddities)
        self._chat.take(replace(words, at=when[0], sure=when[1]), place)
        self._reply, self._spoken = plain(message), True
        self._held.append(Held(digests={digest_json(self._reply)}, call_id=None, seqs=self._made(first)))

    def other(self, line: Any, place: int, *, orphan: bool) -> None:
        """Keep a line as a key-value entry, because it is neither a request nor the response to a request.

        Args:
            orphan: whether the line is a response.
        """
        if orphan:
            self._oddities["orphan-response"] += 1
            self._chat.add(KeyValueContent(key="orphan-response", value=line), place=place)
        else:
            self._chat.unreadable(line, place)

    def finish(self) -> Foreign:
        """Write how the conversation ended, and return the conversation."""
        reason: Reason = "limit"
        error: Error | None = Error(type="steps", message=CUT)
        if self._asked is not None:
            self._lost((None, False), again=False, replied=False)
            reason, error = "failed", Error(type=LOST, message="The last request has no response.")
        elif self._reply is not None and not self._reply["calls"]:
            made = self._held[-1].seqs[:1]
            answer = AssistantContent(value=self._reply["text"] if isinstance(self._reply["text"], str) else "")
            self._chat.add(answer, made, inferred=("kind",))
            reason, error = "answered", None
        elif self._reply is not None and self._reply["calls"][-1]["name"] == SUBMIT:
            reason, error = "answered", None
        entries = self._chat.finish(reason, error, inferred=True)
        return Foreign(id=self._id, name=self._name, digest=self.lines.hexdigest(), entries=entries)

    def _compared(self, messages: list[Any], digests: list[str]) -> Sent:
        """Return which messages of a request the conversation has already, and which ones the request leaves out.

        If a known message was sent in another form, the digest of that form is stored with the message.
        """
        at, otherwise = 0, {}
        for held, message, digest in zip(self._held, messages, digests, strict=False):
            if digest not in held.digests:
                if held.call_id is None or plain(message)["call_id"] != held.call_id:
                    break
                otherwise[str(at)] = message
                held.digests.add(digest)
            at += 1
        end = len(self._held) - (self._reply is not None)
        reply = at <= end < len(self._held) and at < len(messages)
        if reply and digests[at] not in self._held[-1].digests:
            reply = at == end and self._sent_otherwise(messages[at])
            if reply:
                otherwise[str(at)] = messages[at]
                self._held[-1].digests.add(digests[at])
        return Sent(same=at, reply=reply, left_out=self._held[at : end if reply else None], otherwise=otherwise)

    def _sent_otherwise(self, message: Any) -> bool:
        """Return whether a message repeats the last reply: the text is the same, and the reply has all its calls."""
        again, reply = plain(message), self._reply
        assert reply is not None
        alike = again["role"] == "assistant" and same(again["text"], reply["text"])
        return alike and all(call in reply["calls"] for call in again["calls"])

    def _lost(self, now: When, *, again: bool, replied: bool) -> None:
        """Write a `fault` entry (a failed request) if the last request got no reply.

        A reply that no response contains may still be in the next request.

        Args:
            now: time of the next request.
            again: whether the next request is the same request.
            replied: whether the next request contains the reply.
        """
        asked, self._asked = self._asked, None
        if asked is None:
            return
        self._oddities["unanswered-request"] += 1
        if not replied:
            between = max(0.0, (now[0] - asked[0]).total_seconds()) if again and now[0] and asked[0] else None
            error = Error(type=LOST, message="The log holds no response to this request.")
            fault = FaultContent(of=self._request, error=error, wait_s=between)
            self._chat.add(fault, (self._request,), inferred=("entry",), when=(now[0] or asked[0], False))

    def _head(self, body: Object, place: int, when: When) -> None:
        """Write a request header: an entry with instructions, tools and settings.

        If the last request header has the same instructions, tools and settings, nothing is written.
        """
        messages, tools, odd = body["messages"], *tools_of(body.get("tools"))
        first = messages[0] if messages and _role(messages[0]) in INSTRUCTS else None
        settings = {key: body[key] for key in body if key not in ("messages", "tools", "model")}
        text, named = None if first is None else plain(first)["text"], body.get("model")
        known = {
            "model": plain_name(named) or None,
            "instructions": text if isinstance(text, str) else None,
            "settings": without_keys({key: value for key, value in settings.items() if value is not None}) or None,
        }
        more = {
            "role": None if _role(first) == "system" else _role(first),
            "model": None if same(plain_name(named), named) else named,
            "instructions": None if isinstance(text, str) else text,
            "marks": marks_of(first),
            "tools": odd or None,
        }
        heading = digest_json([known["model"], text, settings, body.get("tools")])
        if heading != self._heading:
            meta = {key: value for key, value in known.items() if value is not None}
            extra = {key: value for key, value in more.items() if value is not None}
            header = RequestHeaderContent(tools=tools or None, meta=meta or None, extra=extra or None)
            self._header, self._heading = self._chat.add(header, place=place, when=when), heading

    def _new(self, message: Any, digest: str, place: int, when: When) -> Held:
        """Write a message that no request contained before, and return it with the seqs of its entries.

        Args:
            digest: digest of its plain form (text and calls only).
            place: number of the log line that holds the request.
            when: time of the request, and whether it is certain.
        """
        first, call_id = len(self._chat.entries) + 1, plain(message)["call_id"]
        words = said(message, self._names, self._oddities)
        if words is None:
            self._chat.unreadable(message, place)
        elif words.role == "system" and not self._held:
            return Held(digests={digest}, call_id=None, seqs=())
        elif words.role == "user" and self._spoken:
            content = told(words.text, AGENT, words.extra or {})
            self._chat.add(content, inferred=("kind",), place=place, when=when)
        else:
            self._spoken |= words.role == "assistant"
            words = replace(words, at=when[0], sure=when[1], generated=True, answers=False)
            self._chat.take(words, place)
        return Held(digests={digest}, call_id=call_id, seqs=self._made(first))

    def _made(self, first: int) -> tuple[int, ...]:
        every = enumerate(self._chat.entries[first - 1 :], first)
        return tuple(seq for seq, entry in every if entry.content.kind in SHOWN)

    def _leave_out(self, held: list[Held], place: int, when: When) -> None:
        """Write a `compaction` entry, which hides these messages from later requests."""
        seqs = [seq for one in held for seq in one.seqs]
        if seqs:
            self._oddities["left-out"] += 1
            hidden = CompactionContent(from_seq=min(seqs), to_seq=max(seqs))
            self._chat.add(hidden, inferred=("entry",), place=place, when=when)


def _body(line: Object) -> Object:
    """Return the body of a request. In older logs it is the line itself, without time and type."""
    body = line.get(BODY)
    return body if isinstance(body, dict) else {key: line[key] for key in line if key not in OUTER}


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


FORMATS = (
    Format(
        "swe-agent-interactions",
        "a log of requests to models and their responses, with `timestamp` and `type`",
        "object",
        ("timestamp", "type"),
        read,
        vague=True,
        members=MEMBERS,
    ),
)
