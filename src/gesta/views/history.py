"""Lists the messages between a person and an agent, in order, for a page that shows a conversation.

An entry is one recorded fact of a run. The text of an answer is the text that the person was shown. If calls are
wanted, a model reply with tool calls is a message too, and each call holds its result, however late the result came.
The work of a sub-agent is not shown here but in the history of its own run.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from gesta.entry import Entry
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    EndContent,
    Part,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.log.journal import read
from gesta.message import Call, Message
from gesta.prompt import given_text, observation_text
from gesta.store import RunRow, Store

Role = Literal["user", "assistant"]
CallOutcome = Literal["open", "ok", "error", "denied", "interrupted", "unknown"]

OPEN = "This call has no result yet."
"""Result text for a call without a result. Providers require a result for each call in a list of messages."""


class SaidCall(Struct, kw_only=True):
    """A tool call in a message, with its result."""

    id: str
    """Id of the `tool-call` entry."""
    tool: str
    args: dict[str, Any]
    outcome: CallOutcome = "open"
    """`open` if there is no result yet; otherwise the outcome of the result."""
    result: Any = None
    """Result that the model read: any JSON value. `None` if there is no result yet."""
    by: str | None = None
    """Name of the person who gave the result in place of the tool; `None` if the tool did."""


class SaidMessage(Struct, kw_only=True):
    """One message of a person or of an agent."""

    role: Role
    text: str
    at: datetime
    id: str
    """Id of the message's entry, which `Record.explain` accepts."""
    agent: str
    """Name of the run, which is usually the name of its agent."""
    user: str | None = None
    """Id of the person who wrote the message, if the program passed one."""
    parts: tuple[Part, ...] = ()
    """Images and files of the message."""
    calls: tuple[SaidCall, ...] = ()
    """Tool calls that the agent made in this reply, in order."""
    ended: str | None = None
    """If the turn of this message ended without an answer, the reason: failed, limit, budget or cancelled."""


class History:
    """Collects the messages of one run from its entries.

    Args:
        agent: name of the run, which becomes the `agent` of each message.
        calls: whether replies with tool calls are messages too.
    """

    def __init__(self, agent: str, *, calls: bool) -> None:
        self.said: list[SaidMessage] = []
        self._agent, self._calls = agent, calls
        self._turn, self._task = 0, False
        self._child = False
        self._replies: dict[int, SaidMessage] = {}
        self._made: dict[int, SaidCall] = {}

    def add(self, entry: Entry) -> None:
        """Add the next entry of the run."""
        match entry.content:
            case BeginContent(role="turn", opened=opened):
                self._child = self._child or (opened is not None and opened.parent_run is not None)
                self._turn, self._task = entry.seq, self._child
            case UserContent(value=text, user_id=user, parts=parts):
                self._task = False
                self._say("user", text, entry, parts).user = user
            case SystemContent(value=text, parts=parts) if self._task:  # a child run's task
                self._task = False
                self._say("user", text, entry, parts)
            case AssistantContent(value=text, parts=parts):
                self._say("assistant", text, entry, parts)
            case ChatCompletionContent() if self._calls:
                self._replies[entry.seq] = self._made_of(entry)
            case ToolCallContent(tool_name=tool, tool_args=args) if self._calls:
                made = self._made[entry.seq] = SaidCall(id=entry.id, tool=tool, args=args)
                self._reply(entry).calls += (made,)
            case ToolResultContent(call=int() as of) as given if of in self._made:
                _give(self._made[of], given)
            case EndContent() as end if entry.span == self._turn:
                self._end(end, entry)

    def _say(self, role: Role, text: str, entry: Entry, parts: list[Part] | None = None) -> SaidMessage:
        self.said.append(SaidMessage(role=role, text=text, at=entry.at, id=entry.id, agent=self._agent))
        self.said[-1].parts = tuple(parts or ())
        return self.said[-1]

    def _made_of(self, entry: Entry) -> SaidMessage:
        text = entry.content.output if isinstance(entry.content, ChatCompletionContent) else ""
        return SaidMessage(role="assistant", text=text, at=entry.at, id=entry.id, agent=self._agent)

    def _reply(self, call: Entry) -> SaidMessage:
        """Return the message of the model reply that made a tool call.

        When the first call of the reply is read, the message is added to the history.
        """
        reply = next((self._replies[each] for each in call.causes if each in self._replies), None)
        if reply is None:
            reply = self._made_of(call)
        if not reply.calls:
            self.said.append(reply)
        return reply

    def _end(self, end: EndContent, entry: Entry) -> None:
        if end.reason not in (None, "answered"):
            if self.said:
                self.said[-1].ended = end.reason
        elif self._child and end.status == "success":
            self._say("assistant", given_text(end.state), entry)


def _give(call: SaidCall, given: ToolResultContent) -> None:
    late = given.outcome in (None, "late")
    well: CallOutcome = "error" if given.status == "error" else "ok"
    call.outcome = well if late else given.outcome  # type: ignore[assignment] # `late` is excluded above
    call.result, call.by = given.tool_result, given.by


async def history(store: Store, rows: Sequence[RunRow], *, calls: bool) -> list[SaidMessage]:
    """Return the messages of the given runs, in the order in which they were written.

    Cost: reads all entries of these runs.

    Args:
        rows: the runs.
        calls: whether replies with tool calls are messages too.
    """
    found: list[tuple[int, SaidMessage]] = []
    for row in rows:
        fold = History(row.name, calls=calls)
        for entry in await read(store, row.run):
            known = len(fold.said)
            fold.add(entry)
            found += [(entry.pos, each) for each in fold.said[known:]]
    return [each for _, each in sorted(found, key=lambda one: one[0])]


def messages(said: Sequence[SaidMessage]) -> list[Message]:
    """Return the messages in a form that every provider accepts: each call is followed by its result."""
    made: list[Message] = []
    for each in said:
        called = tuple(Call(call.id, call.tool, call.args) for call in each.calls)
        made.append(Message(role=each.role, text=each.text, parts=each.parts, calls=called))
        for call in each.calls:
            text = OPEN if call.outcome == "open" else observation_text(call.result)
            made.append(Message(role="tool", text=text, call_id=call.id, name=call.tool))
    return made
