"""Turns the entries of one turn into trace spans. Each span is returned, complete, as soon as it has ended.

An entry is one recorded fact of a run; its seq is its number there. A turn is a span `invoke_agent`. Below it are spans
for model requests (`chat`), tool calls (`execute_tool`), waits for a person, retrievals, and the spans that a program
opened. A header is the entry with the model, instructions and tools of requests. A fact with a time and no duration
becomes an event of the span around it. The same entries always give the same spans with the same ids, in any process.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field

from gesta import kinds
from gesta.entry import Entry
from gesta.kinds import BeginContent, EndContent, RequestHeaderContent
from gesta.prompt import given_text, observation_text
from gesta.text.tracing import span_id
from gesta.views.span_attributes import (
    asked_of,
    began_of,
    called_of,
    ended_of,
    replied_of,
    resulted_of,
    retrieved_of,
    spoken_as,
)
from gesta.views.span_events import note
from gesta.views.span_messages import Conversation, Reply, call_part, words_of
from gesta.views.spans import SHORT, Above, Notes, TraceSpan, as_json, name_of, shown

UNENDED = "unended"
"""Type of the error of a span that was still open when the span around it ended."""


class Open(Struct, kw_only=True):
    """A trace span that has not ended."""

    seq: int
    """Seq of the entry with which it began."""
    at: datetime
    parent: int | None
    """Seq of the entry with which the span around it began; `None` for the turn itself."""
    name: str
    content: Any
    """Content of that entry."""
    notes: Notes = field(default_factory=Notes)
    last: int = 0
    """For a request to a model: seq of its last try. For a tool call: seq of its last attempt."""
    reply: Reply | None = None
    """For a request to a model: the reply, once it was read."""
    replied: datetime | None = None
    """Time of that reply."""


class Turn:
    """Makes the trace spans of one turn, or of one recorded span that is outside any turn."""

    def __init__(
        self, begin: Entry, above: Above, *, content: bool = False, earlier: list[Entry] | None = None
    ) -> None:
        """Begin with the entry that opens the turn.

        Args:
            begin: the `begin` entry of the turn.
            above: where the turn belongs in a trace.
            content: whether spans include the texts of messages, calls and answers.
            earlier: earlier entries of the run, which are part of the prompts of the turn.
        """
        self.run, self.begin, self.above = begin.run, begin.seq, above
        self.known = {begin.seq}
        """Seqs of the `begin` entries of the turn and of the spans in it."""
        self.over = False
        """Whether the root span of the turn has ended."""
        self.header: RequestHeaderContent | None = None
        """Header of the next request. The caller sets it by `know` if `lacks` returned its seq."""
        self.headed = 0
        """Seq of that header."""
        self._conversation = Conversation() if content else None
        self._spans: dict[int, Open] = {}
        self._chats: dict[int, Open] = {}  # by the seq of the span around, which has one at a time
        self._calls: dict[int, Open] = {}
        self._waits: dict[int, Open] = {}
        self._attempts: dict[int, int] = {}
        self._spent: list[dict[str, Any]] = []
        self._tokens = [0, 0]
        for each in earlier or ():
            if self._conversation is not None:
                self._conversation.add(each)
        self._started(begin)

    def lacks(self, entry: Entry) -> int | None:
        """Return the seq of the header that must be passed to `know` before `entry` is passed to `add`.

        Returns `None` if no header has to be passed: `entry` is not a request, or its header is set already.
        """
        content = entry.content
        return content.header if isinstance(content, kinds.RequestContent) and content.header != self.headed else None

    def know(self, header: Entry | None) -> None:
        """Set the header of the request that is added next. The header may be older than the turn."""
        if header is not None and isinstance(header.content, RequestHeaderContent):
            self.header, self.headed = header.content, header.seq

    def add(self, entry: Entry) -> list[TraceSpan]:
        """Add the next entry of the turn. Return the spans that ended with it. Never raises."""
        if self.over or (entry.span not in self.known and not isinstance(entry.content, BeginContent)):
            return []
        done = list(self._settled(entry))
        if self._conversation is not None and not isinstance(entry.content, BeginContent):
            self._conversation.add(entry)
        match entry.content:
            case BeginContent():
                self._started(entry)
            case EndContent() as content:
                done += self._ended(entry, content)
            case RequestHeaderContent() as content:
                self.header, self.headed = content, entry.seq
            case kinds.RequestContent() as content:
                done += self._asked(entry, content)
            case kinds.ChatCompletionContent() as content:
                self._answered(entry, content)
            case kinds.ToolCallContent() as content:
                self._called(entry, content)
            case kinds.AttemptContent(of=of) if of in self._calls:
                self._attempted(entry, self._calls[of])
            case kinds.ToolResultContent(call=int() as of) as content if of in self._calls:
                done.append(self._resulted(entry, content, self._calls.pop(of)))
            case kinds.FaultContent() as content:
                done += self._failed(entry, content)
            case kinds.RetrievalContent() as content:
                done.append(self._retrieved(entry, content))
            case kinds.ApprovalRequestContent() | kinds.QuestionContent() as content:
                self._waiting(entry, content)
            case kinds.ApprovalContent(of=of) | kinds.AnswerContent(of=of) as content if of in self._waits:
                done.append(self._waited(entry.at, self._waits.pop(of), content))
            case _:
                self._noted(entry)
        return done

    def _started(self, entry: Entry) -> None:
        content = entry.content
        assert isinstance(content, BeginContent)
        parent = content.parent if content.parent in self.known and entry.seq != self.begin else None
        if entry.seq != self.begin and parent is None:
            return  # another span at the root of the run
        self.known.add(entry.seq)
        one = Open(seq=entry.seq, at=entry.at, parent=parent, name=spoken_as(content), content=content)
        one.notes.attributes |= began_of(content, self.above.session)
        self._spans[entry.seq] = one

    def _ended(self, entry: Entry, content: EndContent) -> Iterator[TraceSpan]:
        one = self._spans.pop(entry.span, None)
        if one is None:
            return
        self.over = entry.span == self.begin
        if self.over:
            yield from self._unended(entry.at)
        one.notes.attributes |= ended_of(one.content, content)
        self._said(one, "output", given_text(content.state) if content.state is not None else None)
        if self.over:
            self._sums(one)
        failure = None
        if content.status == "error" and content.reason != "cancelled":
            failure = content.error.message if content.error is not None else content.reason or "error"
            if content.error is not None:
                one.notes.fail(entry.at, content.error)
        yield self._span(one, entry.at, failure=failure)

    def _unended(self, at: datetime) -> Iterator[TraceSpan]:
        """End the spans that are open when the turn ends, at the time `at`, and yield them without the turn's own."""
        for chat in self._chats.values():
            yield self._chat(chat, at)
        for call in self._calls.values():
            yield self._span(call, at, failure="the turn ended before the call had a result", type_=UNENDED)
        for wait in self._waits.values():
            yield self._waited(at, wait, None)
        for span in sorted(self._spans.values(), key=lambda each: -each.seq):
            yield self._span(span, at, failure="the turn ended before this span did", type_=UNENDED)
        for held in (self._chats, self._calls, self._waits, self._spans):
            held.clear()

    def _sums(self, one: Open) -> None:
        if any(self._tokens):
            one.notes.attributes["gesta.usage.input_tokens"], one.notes.attributes["gesta.usage.output_tokens"] = (
                self._tokens
            )
        costs = [spent["usd"] for spent in self._spent if isinstance(spent.get("usd"), int | float)]
        if costs:
            one.notes.attributes["gesta.cost_usd"] = float(sum(costs))

    def _asked(self, entry: Entry, content: kinds.RequestContent) -> Iterator[TraceSpan]:
        before = self._chats.get(entry.span)
        if before is not None and content.number > 1:
            before.last = entry.seq  # another try of the same request
            return
        if before is not None:
            yield self._chat(self._chats.pop(entry.span), entry.at)
        known = asked_of(self.header, self.above.session, content=self._conversation is not None)
        one = Open(seq=entry.seq, at=entry.at, parent=entry.span, name=known.name, content=content, last=entry.seq)
        one.notes.attributes |= known.attributes
        if self._conversation is not None:
            one.notes.attributes["gen_ai.input.messages"] = self._conversation.text()
        self._chats[entry.span] = one

    def _answered(self, entry: Entry, content: kinds.ChatCompletionContent) -> None:
        one = self._chats.get(entry.span)
        if one is None:  # an imported reply without a recorded request
            known = asked_of(None, self.above.session, content=False, model=content.model)
            at = entry.at - timedelta(milliseconds=max(0.0, min(content.latency_ms or 0.0, 1e8)))
            one = Open(seq=entry.seq, at=at, parent=entry.span, name=known.name, content=content, last=entry.seq)
            one.notes.attributes |= known.attributes
            self._chats[entry.span] = one
        given = replied_of(content)
        one.notes.attributes |= given
        for place, name in enumerate(("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")):
            self._tokens[place] += given.get(name, 0)
        one.reply, one.replied, one.last = (
            Reply([], content.output, [], content.finish_reason or ""),
            entry.at,
            entry.seq,
        )

    def _settled(self, entry: Entry) -> Iterator[TraceSpan]:
        """Yield the span of the last request once it is complete.

        The entries directly after a reply hold its reasoning, calls and cost, and still belong to the request's span.
        Any other entry completes the span.
        """
        one = self._chats.get(entry.span)
        if one is None or one.reply is None or one.replied is None:
            return
        match entry.content:
            case kinds.ThoughtContent(value=text) if one.last in entry.causes:
                one.reply.thoughts.append(text)
            case kinds.ToolCallContent() as content if one.last in entry.causes:
                one.reply.calls.append(call_part(entry.seq, content))
            case kinds.BudgetContent(spent=dict() as spent):
                self._spent.append(spent)
                if isinstance(spent.get("usd"), int | float):
                    one.notes.attributes["gesta.cost_usd"] = float(spent["usd"])
            case _:
                yield self._chat(self._chats.pop(entry.span), one.replied)

    def _chat(self, one: Open, at: datetime, failure: str | None = None, type_: str = "lost") -> TraceSpan:
        """Return a request's span, ended by its reply or else `at`. It failed without a reply, or with a `failure`."""
        if one.reply is not None and self._conversation is not None:
            one.notes.attributes["gen_ai.output.messages"] = one.reply.text()
            self._said(one, "output", one.reply.words or as_json(one.reply.calls))
        if one.reply is None and failure is None:
            failure = "no answer came: the process that had asked ended, or lost it"
        client = "client" if one.notes.attributes.get("gen_ai.provider.name") != "gesta" else "internal"
        return self._span(one, one.replied or at, failure=failure, type_=type_, kind=client)

    def _called(self, entry: Entry, content: kinds.ToolCallContent) -> None:
        one = Open(
            seq=entry.seq, at=entry.at, parent=entry.span, name="execute_tool " + content.tool_name, content=content
        )
        one.notes.attributes |= called_of(content, self.header, self.above.session)
        if self._conversation is not None:
            one.notes.attributes["gen_ai.tool.call.arguments"] = shown(as_json(content.tool_args), 4 * 16384)
            self._said(one, "input", as_json(content.tool_args), json=True)
        self._calls[entry.seq] = one

    def _attempted(self, entry: Entry, one: Open) -> None:
        assert isinstance(entry.content, kinds.AttemptContent)
        if not one.last:
            one.at = entry.at  # not when a person was asked, but when the tool began
        one.last = entry.seq
        self._attempts[entry.seq] = one.seq
        one.notes.attributes["gesta.attempts"] = entry.content.number
        one.notes.add(entry.at, "attempt", {"number": entry.content.number, "effect": entry.content.effect})

    def _resulted(self, entry: Entry, content: kinds.ToolResultContent, one: Open) -> TraceSpan:
        given, failure = resulted_of(content)
        one.notes.attributes |= given
        if content.error is not None:
            one.notes.fail(entry.at, content.error)
        if self._conversation is not None:
            said = observation_text(content.tool_result)
            one.notes.attributes["gen_ai.tool.call.result"] = shown(said, 4 * 16384)
            self._said(one, "output", said, json=not isinstance(content.tool_result, str))
        return self._span(one, entry.at, failure=failure)

    def _failed(self, entry: Entry, content: kinds.FaultContent) -> Iterator[TraceSpan]:
        error = content.error
        of = self._attempts.get(content.of)
        chat = next((each for each in self._chats.values() if content.of == each.last and each.reply is None), None)
        one = self._calls.get(of) if of is not None else chat or self._around(entry)
        if one is not None:
            one.notes.fail(entry.at, error, {"wait_s": content.wait_s, "http_status": error.http_status})
        if chat is not None and content.wait_s is None:  # there is no further try with that model
            self._chats.pop(chat.parent or 0, None)
            yield self._chat(chat, entry.at, error.message, str(error.http_status or error.type))

    def _retrieved(self, entry: Entry, content: kinds.RetrievalContent) -> TraceSpan:
        of = next((self._attempts[each] for each in entry.causes if each in self._attempts), entry.span)
        one = Open(seq=entry.seq, at=entry.at, parent=of, name="retrieval", content=content)
        one.notes.attributes |= retrieved_of(content, self.above.session, content=self._conversation is not None)
        if self._conversation is not None:
            self._said(one, "input", content.query)
        return self._span(one, entry.at)

    def _waiting(self, entry: Entry, content: Any) -> None:
        call = self._calls.get(content.of) if isinstance(content, kinds.ApprovalRequestContent) else None
        what = "approval" if isinstance(content, kinds.ApprovalRequestContent) else "answer"
        tool = call.content.tool_name if call is not None else ""
        one = Open(seq=entry.seq, at=entry.at, parent=entry.span, name=f"wait for {what} {tool}", content=content)
        one.notes.attributes |= {
            "gesta.waiting": what,
            "session.id": self.above.session,
            "openinference.span.kind": "CHAIN",
        }
        if tool:
            one.notes.attributes["gen_ai.tool.name"] = shown(tool, 120)
        if self._conversation is not None and isinstance(content, kinds.QuestionContent):
            self._said(one, "input", content.value)
        self._waits[entry.seq] = one

    def _waited(self, at: datetime, one: Open, said: Any) -> TraceSpan:
        if isinstance(said, kinds.ApprovalContent):
            one.notes.attributes["gesta.verdict"] = "refused" if said.refused else said.verdict
            self._said(one, "output", said.reason or said.verdict)
        elif isinstance(said, kinds.AnswerContent):
            self._said(one, "output", observation_text(said.value))
        return self._span(one, at)

    def _noted(self, entry: Entry) -> None:
        """Add an entry without a duration, usually as an event, to the span of its call, or else to the span around."""
        of = getattr(entry.content, "of", None)
        call = self._calls.get(self._attempts.get(of, of)) if isinstance(of, int) else None
        one = call or self._around(entry)
        root = self._spans.get(self.begin)
        match entry.content:
            case kinds.UserContent(value=text, user_id=user):
                if root is not None and user:
                    root.notes.attributes["user.id"] = shown(user, 120)
                self._message(one, "input", text, words_of(text, entry.content.parts))
            case kinds.SystemContent(value=text) if one is root:
                self._message(one, "input", text, words_of(text, entry.content.parts))
            case kinds.AssistantContent(value=text, history=False):
                self._message(one, "output", text, words_of(text, entry.content.parts))
            case kinds.EdgeContent(payload=payload) if one is not None and one is not root:
                self._said(one, "input", given_text(payload))
            case _:
                if one is not None:
                    note(one.notes, entry, content=self._conversation is not None)

    def _message(self, one: Open | None, side: str, text: str, parts: list[dict[str, Any]]) -> None:
        """Set a span's `input` or `output` (`side`). An input that is set already is kept; an output is replaced."""
        name = f"gen_ai.{side}.messages"
        if one is None or self._conversation is None or (side == "input" and name in one.notes.attributes):
            return
        message: dict[str, Any] = {"role": "user" if side == "input" else "assistant", "parts": parts}
        if side == "output":
            message["finish_reason"] = "stop"
        one.notes.attributes[name] = as_json([message])
        self._said(one, side, text)

    def _said(self, one: Open, side: str, text: str | None, *, json: bool = False) -> None:
        """Set the text that backends show as the input or output of a span, in OpenInference's attributes.

        Args:
            side: `input` or `output`.
            json: whether the text is JSON.
        """
        if self._conversation is None or not text:
            return
        one.notes.attributes[f"{side}.value"] = shown(text, 4 * 16384)
        one.notes.attributes[f"{side}.mime_type"] = "application/json" if json else "text/plain"

    def _around(self, entry: Entry) -> Open | None:
        return self._spans.get(entry.span) or self._spans.get(self.begin)

    def _span(
        self, one: Open, at: datetime, *, failure: str | None = None, type_: str | None = None, kind: Any = "internal"
    ) -> TraceSpan:
        if failure is not None:
            one.notes.attributes.setdefault("error.type", shown(type_ or "error", 120))
        root = one.seq == self.begin
        parent = self.above.parent if root else span_id(self.run, one.parent or self.begin)
        return TraceSpan(
            trace=self.above.trace,
            span=span_id(self.run, one.seq),
            parent=parent,
            name=name_of(one.name),
            kind=kind,
            start=one.at,
            end=max(at, one.at),
            attributes=one.notes.attributes | {"gesta.run": self.run, "gesta.seq": one.seq},
            events=tuple(one.notes.events),
            dropped=one.notes.dropped,
            links=(self.above.base,) if root and self.above.base is not None else (),
            failure=shown(failure, SHORT) if failure is not None else None,
            run=self.run,
            seq=one.seq,
        )
