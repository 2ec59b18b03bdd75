"""Turns the messages of a chat into the entries of a run (its recorded facts), grouped in turns.

    begin turn, user, completion, (thought), calls, results, completion, assistant, end

A seq is an entry's number, a span a part of a run, a completion a reply of a model. The span `import` before the turns
has the facts about the whole conversation. Each message has one entry with the annotation `message`, its number in the
source. The agent never saw the person's own calls (`requestor: user`), so they are key-value entries in spans of role
`user-tools`. A last message of the person that needs no answer is in a span `closing`.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gesta.importers.foreign import ForeignEntry, Oddities
from gesta.importers.unanswered import Waiting
from gesta.importers.unpacked import loads
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    Content,
    EndContent,
    Error,
    KeyValueContent,
    Reason,
    RequestContent,
    RequestHeaderContent,
    Status,
    SystemContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)

NAMELESS = "?"
"""The tool name in the entry of a call for which the source names no tool."""


class Made(Struct, frozen=True, kw_only=True, gc=False):
    """A tool call in a message. The agent or the person made it."""

    name: str | None
    args: Any
    """The arguments: an object, or a text with JSON. Any other value is kept in `meta`, and the call has no arguments
    then."""
    id: str | None
    extra: dict[str, Any] | None = None
    lost: bool = False
    """Whether the source has only the result of the call, and not the call itself."""
    inferred: Collection[str] = ()
    """Names of the fields that the reader inferred, because the source has the call only as text. Such a call needs no
    id."""


class Said(Struct, frozen=True, kw_only=True, gc=False):
    """One message of a conversation. The reader of a format makes it, and `Chat` turns it into entries."""

    role: str
    """`system`, `user`, `assistant` or `tool`. A message of role `tool` is the result of a call."""
    text: str = ""
    calls: list[Made] = field(default_factory=list)
    call_id: str | None = None
    """For a result: id of the call that it answers."""
    result: Any = None
    error: bool | None = None
    """For a result: whether the tool failed; `None` if the source does not state it."""
    by_user: bool = False
    """For a result: whether the person made the call, not the agent."""
    inferred: Collection[str] = ()
    """For a result or a completion: names of the fields that the reader inferred."""
    tools: list[dict[str, Any]] | None = None
    """For a system message: the tools that were offered to the model."""
    generated: bool = False
    """Whether the source shows that a model made the message. An assistant's first message may be a fixed text instead,
    such as a greeting."""
    answers: bool = True
    """Whether a text without a call is an answer to the user. It is `False` for an agent that works alone and comments
    on its own steps."""
    reasoning: str | None = None
    model: str | None = None
    """Name of the model that made the message, if the source has it."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    at: datetime | None = None
    sure: bool = False
    """Whether the source states the time `at` together with its time zone."""
    extra: dict[str, Any] | None = None


class Chat:
    """Turns the messages of one conversation into entries, in their order. `finish` returns the entries."""

    def __init__(self, name: str, oddities: Oddities, model: str | None = None) -> None:
        self.entries: list[ForeignEntry] = []
        self._name, self._oddities, self._model = name, oddities, model
        self._place: int | None = None
        """Number of the message that is being added. It is `None` as soon as an entry represents the message."""
        self._at: datetime | None = None
        self._sure = False
        self._span, self._role = 0, ""
        self._headed = self._started = self._asked = self._answered = False
        self._before: list[int] = []
        """Causes of the next completion: the entries of the questions, results or answers since the last completion."""
        self._calls, self._user_calls = Waiting(), Waiting()
        self._ids: set[str] = set()
        self._notes: dict[str, Any] = {}
        self._open("import", "import")

    def note(self, key: str, value: Any) -> None:
        """Add a fact about the whole conversation to the state of the entry that begins the span `import`.

        Two facts with the same name become a list.
        """
        if not self._notes:
            begin = BeginContent(name="import", role="import", state=self._notes)
            self.entries[0] = replace(self.entries[0], content=begin)
        self._notes[key] = [self._notes[key], value] if key in self._notes else value

    def notes(self, members: Mapping[str, Any], but: Collection[str] = ()) -> None:
        """Add JSON members as facts about the whole conversation, except null members and those named in `but`."""
        for key, value in members.items():
            if key not in but and value is not None:
                self.note(key, value)

    def hear(self, messages: Iterable[Any], read: Callable[[Any, int], Said | None]) -> None:
        """Add all messages as `read(message, number)` returns them. For `None`, write a key-value entry instead."""
        for place, message in enumerate(messages):
            words = read(message, place)
            if words is None:
                self.unreadable(message, place)
            else:
                self.take(words, place)

    def began(self, at: datetime | None, extra: dict[str, Any] | None = None) -> None:
        """Set the time and the `extra` of the entry that begins the span `import`."""
        first = self.entries[0]
        self.entries[0] = replace(first, at=at, content=replace(first.content, extra=extra))

    def header(
        self,
        instructions: str | None,
        *,
        tools: list[dict[str, Any]] | None = None,
        extra: dict[str, Any] | None = None,
        inferred: Collection[str] = (),
    ) -> None:
        """Write the entry with instructions, tools and model of later requests. `inferred` names inferred fields."""
        self._headed = True
        known = {"model": self._model, "instructions": instructions}
        meta = {key: value for key, value in known.items() if value is not None} or None
        self._write(RequestHeaderContent(tools=tools, meta=meta, extra=extra), inferred=inferred)

    def take(self, said: Said, place: int | None) -> None:
        """Add one message.

        `place` is its number in the source; `None` for a text that is not one of the source's messages.
        """
        self._place, self._at, self._sure = place, said.at, said.sure
        match said.role:
            case "system" if not self._started and not self._headed:
                self.header(said.text, tools=said.tools, extra=said.extra)
            case "system":
                self._write(SystemContent(value=said.text, extra=said.extra))
            case "user" if said.calls:
                self._user_step(said)
            case "user":
                self._user(said)
            case "assistant":
                self._assistant(said)
            case _ if said.by_user:
                self._user_result(said)
            case _:
                self._result(said)

    def add(
        self,
        content: Content,
        causes: tuple[int, ...] = (),
        *,
        inferred: Collection[str] = (),
        place: int | None = None,
        when: tuple[datetime | None, bool] = (None, False),
    ) -> int:
        """Write an entry about the message number `place`, and return the entry's seq.

        `when` is the time, and whether it is certain. `inferred` names the fields that the source does not state. A
        request or system text is also a cause of the next completion; a request replaces the causes before it.
        """
        asks, tells = isinstance(content, RequestContent), isinstance(content, SystemContent)
        if asks and self._role != "turn":
            self._turn()
        self._place, (self._at, self._sure) = place, when
        seq = self._write(content, causes, inferred)
        if asks:
            self._before = []
        if asks or tells:
            self._before.append(seq)
        self._asked |= asks
        self._answered |= isinstance(content, AssistantContent)
        self._headed |= isinstance(content, RequestHeaderContent)
        return seq

    def unreadable(self, value: Any, place: int) -> None:
        """Write element number `place` of the source, which is not a readable message, as a key-value entry."""
        self._place, self._at, self._sure = place, None, False
        self._oddities["unreadable-message"] += 1
        self._write(KeyValueContent(key="unreadable-message", value=value))

    def finish(self, reason: Reason, error: Error | None = None, *, inferred: bool = False) -> list[ForeignEntry]:
        """End the last turn for `reason` (`inferred` if the source does not state it), and return all entries."""
        self._give_up()
        good: Status = "success" if reason == "answered" else "error"
        if self._role != "turn":
            self._close(EndContent(status=good, error=error))
        elif reason == "answered" and not self._asked:
            begin = self.entries[self._span - 1]
            self.entries[self._span - 1] = replace(begin, content=BeginContent(name="closing", role="closing"))
            self._close(EndContent())
        else:
            sure = not inferred and (self._answered or reason != "answered")
            self._close(EndContent(status=good, reason=reason, error=error), () if sure else ("reason",))
        return self.entries

    def _user(self, said: Said) -> None:
        if self._role != "turn" or self._asked:
            self._turn()
        self._started = True
        seq = self._write(UserContent(value=said.text, extra=said.extra))
        self._before.append(seq)

    def _user_step(self, said: Said) -> None:
        self._started = True
        if self._role != "user-tools":
            self._open("user", "user-tools")
        self._user_calls.give_up()
        step = self._write(KeyValueContent(key="user-step", value={"content": said.text}, extra=said.extra))
        for made in said.calls:
            value = {"id": made.id, "name": made.name, "arguments": made.args}
            call = self._write(KeyValueContent(key="user-tool-call", value=value, extra=made.extra), (step,))
            self._user_calls.add(call, made.id)

    def _user_result(self, said: Said) -> None:
        call, _ = self._user_calls.answer(said.call_id)
        self._oddities["orphan-result"] += call is None
        value = {"id": said.call_id, "content": said.result, "error": said.error}
        causes = () if call is None else (call,)
        self._write(KeyValueContent(key="user-tool-result", value=value, extra=said.extra), causes)

    def _assistant(self, said: Said) -> None:
        self._give_up()
        if self._role != "turn":
            self._turn()
        greets = not (self._started or said.calls or said.generated)
        self._started = self._asked = True
        if greets:
            self._before = [self._write(AssistantContent(value=said.text, extra=said.extra))]
            self._answered = True
            return
        completion = self._completion(said)
        for made in said.calls:
            self._calls.add(self._call(made, completion), made.id)
        self._answered = said.answers and not said.calls
        self._before = [completion]
        if self._answered:
            self._write(AssistantContent(value=said.text), (completion,))

    def _completion(self, said: Said) -> int:
        content = ChatCompletionContent(
            output=said.text,
            model=said.model or self._model,
            finish_reason=said.finish_reason,
            usage=said.usage,
            meta=said.meta,
            extra=said.extra,
        )
        inferred = [*said.inferred, *(("causes",) if self._before else ())]
        completion = self._write(content, tuple(self._before), inferred)
        if said.reasoning is not None:
            self._write(ThoughtContent(value=said.reasoning), (completion,))
        return completion

    def _call(self, made: Made, completion: int) -> int:
        content = call_content(made, self._ids, self._oddities)
        if made.id:
            self._ids.add(made.id)
        return self._write(content, (completion,), ("tool_name", "tool_args") if made.lost else made.inferred)

    def _result(self, said: Said) -> None:
        if self._role != "turn":
            self._turn()
        self._started = True
        call, late = self._calls.answer(said.call_id)
        self._oddities["orphan-result"] += call is None
        self._oddities["missing-result-id"] += said.call_id is None
        failed, known = said.error, said.error is not None
        if not known:
            failed = isinstance(said.result, str) and said.result.startswith("Error")
        content = ToolResultContent(
            tool_result=said.result,
            call=call,
            tool_call_id=said.call_id,
            status="error" if failed else "success",
            outcome="late" if late else "error" if failed else "ok",
            extra=said.extra,
        )
        by_order = ["call", "causes"] if said.call_id is None and call is not None else []
        inferred = [*said.inferred, *by_order, *(() if known else ("status",))]
        seq = self._write(content, () if call is None else (call,), inferred)
        if self._before and isinstance(self.entries[self._before[0] - 1].content, ToolResultContent):
            self._before.append(seq)
        else:
            self._before = [seq]

    def _give_up(self) -> None:
        self._oddities["unanswered-call"] += self._calls.give_up()

    def _turn(self) -> None:
        self._open(self._name, "turn")
        self._asked = self._answered = False

    def _open(self, name: str, role: str) -> None:
        if self._role == "turn" and not self._answered:
            self._oddities["unanswered-turn"] += 1
            self._close(EndContent(status="error", reason="cancelled"), ("reason",))
        elif self._role == "turn":
            self._close(EndContent(reason="answered"))
        elif self._role:
            self._close(EndContent())
        place, self._place = self._place, None
        self._span = self._write(BeginContent(name=name, role=role))
        self._place, self._role = place, role

    def _close(self, end: EndContent, inferred: Collection[str] = ()) -> None:
        now, last = (self._place, self._at, self._sure), self.entries[-1]
        self._place, self._at, self._sure = None, last.at, last.sure
        self._write(end, (), inferred)
        self._place, self._at, self._sure = now

    def _write(self, content: Content, causes: tuple[int, ...] = (), inferred: Collection[str] = ()) -> int:
        seq = len(self.entries) + 1
        place, self._place = self._place, None
        span = seq if isinstance(content, BeginContent) else self._span
        entry = ForeignEntry(
            content=content,
            span=span,
            causes=causes,
            at=self._at,
            sure=self._sure,
            inferred=tuple(inferred),
            message=place,
        )
        self.entries.append(entry)
        return seq


def call_content(made: Made, ids: Container[str], oddities: Oddities) -> ToolCallContent:
    """Return the content of the entry for a call. Count its problems, such as an id in `ids` (of earlier calls)."""
    args, meta = arguments(made.args)
    oddities["bad-arguments"] += meta is not None
    oddities["lost-call"] += made.lost
    oddities["call-without-name"] += not (made.name or made.lost)
    oddities["missing-call-id"] += not (made.id or made.lost or made.inferred)
    oddities["repeated-call-id"] += bool(made.id) and made.id in ids
    return ToolCallContent(
        tool_name=made.name or NAMELESS,
        tool_args=args,
        tool_call_id=made.id,
        status="error" if meta else "success",
        meta=meta,
        extra=made.extra,
    )


def arguments(given: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Read the arguments of a call from an object or from JSON text. Return them and `None`.

    If they cannot be read, return an empty dict, and a dict with the error and the original value.
    """
    if given is None or given == "":
        return {}, None
    if isinstance(given, dict):
        return given, None
    error = f"the arguments are not a JSON object but {type(given).__name__}"
    if isinstance(given, str):
        try:
            read = loads(given)
        except (ValueError, RecursionError) as failure:
            error = f"the arguments are not JSON: {failure}"
        else:
            if isinstance(read, dict):
                return read, None
            error = f"the arguments are not a JSON object but {type(read).__name__}"
    return {}, {"raw_args": given, "error": error}
