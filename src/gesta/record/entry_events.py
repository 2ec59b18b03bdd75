"""Makes the events that listeners receive from the entries of runs.

An entry is one recorded fact of a run; its seq is its number there. Events are made from entries alone, so all
listeners get the same events. A span is a named part of a run, such as a turn. A completion is the entry with a model's
reply. When a completion is read, it is not known yet whether its text is the answer or a remark beside tool calls. A
later entry shows this, and then the event of the text is made. An event of a child run has the id of the child run, and
never ends the dialogue of the parent run. An `explain` event names the entries from which another entry was made.
"""

from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

from gesta import kinds
from gesta.decide.waiting import Waiting, described
from gesta.entry import Entry
from gesta.events import (
    AnswerEvent,
    CallEvent,
    CompactionEvent,
    EndEvent,
    ErrorEvent,
    Event,
    Explain,
    ExplainEvent,
    ObservationEvent,
    ResultEvent,
    RetractEvent,
    RetryEvent,
    ThoughtEvent,
    WaitingEvent,
)
from gesta.lineage import Key, Origin, derived
from gesta.loop import outcome_of
from gesta.prompt import observation_text
from gesta.state.calls import LOST
from gesta.state.run import RunState, RunView
from gesta.state.steps import NOTE_NAME


class Followed(Struct):
    """What `EntryEvents` remembers of one run."""

    state: RunState = field(default_factory=RunState)
    """The state of the run, computed from the entries read so far."""
    origin: Origin = field(default_factory=Origin)
    """The entries that each entry was made from; explanations show them."""
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Names of the spans from the root to each span, by the seq of the span's `begin` entry."""
    requests: dict[int, int] = field(default_factory=dict)
    """Seq of the model request that led to each completion, by the seq of the completion."""
    tools: dict[int, str] = field(default_factory=dict)
    """Name of the tool of each call, by the seq of the call."""
    reply: Entry | None = None
    """The last completion, while no event has its text yet."""
    unexplained: list[Entry] = field(default_factory=list)
    """Entries whose `explain` event depends on later entries."""


class EntryEvents:
    """Makes the events of some runs from their entries."""

    def __init__(self) -> None:
        self.runs: dict[str, Followed] = {}
        """What is remembered of each run, by the run's id."""
        self._origins: dict[str, Origin] = {}
        self._view = RunView()

    def add(self, entry: Entry) -> list[Event]:
        """Read the next entry. Return its events, and events of earlier entries that had to wait for it.

        Add the entries of each run in the order of their seq. If an entry was made from entries of other runs, add
        those first.

        Raises:
            BrokenRecord: a field of the entry has another type than its kind declares.
        """
        run = self.runs.get(entry.run) or self.runs.setdefault(entry.run, Followed())
        self._origins[entry.run] = run.origin
        content, known = entry.content, run.state.turn
        if isinstance(content, kinds.BeginContent):
            run.paths[entry.seq] = (*run.paths.get(content.parent or 0, ()), content.name)
        run.origin.add(entry)
        told: list[Event] = []
        if run.reply is not None and run.reply.seq in run.origin.calling:
            told += _beside(run.reply, run)
        before = run.unexplained
        run.unexplained = [each for each in before if not self._explain(each, run, told)]
        asked = run.state.asked
        run.state = self._view.apply(run.state, entry)
        own = list[Event](_of_entry(entry, run, asked.seq if asked is not None else 0))
        explained = list[Event]()
        if not self._explain(entry, run, explained):
            run.unexplained.append(entry)
        ends = isinstance(
            content, kinds.AssistantContent | kinds.EndContent
        )  # the answer ends the dialogue: it is last
        told += [*explained, *own] if ends else [*own, *explained]
        if known is not run.state.turn:
            run.reply = None
        opened = run.state.opened
        below = opened is not None and opened.parent_run in self.runs
        return [
            msgspec.structs.replace(
                each,
                run=entry.run,
                span=each.span or run.paths.get(entry.span, ()),
                seq=each.seq or entry.seq,
                pos=entry.pos,
                part=place,
                end_of_dialog=each.end_of_dialog and not below,
            )
            for place, each in enumerate(told)
        ]

    def _explain(self, entry: Entry, run: Followed, told: list[Event]) -> bool:
        """Append the `explain` event of an entry, if it has one, to the list `told`. Return whether this is decided.

        `False` means that only later entries can show whether the entry has such an event.
        """
        key, origin = (entry.run, entry.seq), run.origin
        if any(origin.undecided(seq) for other, seq in (key, *origin.links[entry.seq]) if other == entry.run):
            return False
        node = origin.nodes.get(entry.seq)
        if node is not None and self._shown(key):
            sources = tuple(f"{other}.{seq}" for other, seq in derived(self._origins, key, self._shown))
            graph = Explain(node, sources, entry.content)
            path = run.paths.get(entry.span, ())
            told.append(ExplainEvent(seq=entry.seq, span=path, explain_id=entry.id, explain_graph=graph))
        return True

    def _shown(self, key: Key) -> bool:
        """Return whether `explain` events may name the entry whose run and seq are in `key`.

        They may name every entry of a run of which `add` has read no entry.
        """
        origin = self._origins.get(key[0])
        return origin is None or (key[1] in origin.nodes and not origin.became(key[1]))


def _beside(reply: Entry, run: Followed) -> Iterator[Event]:
    """Yield an event with the text that a model wrote beside its tool calls."""
    run.reply = None
    assert isinstance(reply.content, kinds.ChatCompletionContent)
    header = run.state.header
    in_text = header is not None and (header.meta or {}).get("tools_in") == "text"
    if reply.content.output and not in_text:  # else the text contains the calls too
        path, message = run.paths.get(reply.span, ()), run.requests.get(reply.seq, 0)
        yield ThoughtEvent(content=reply.content.output, message=message, span=path, seq=reply.seq, end_of_message=True)


def _of_entry(entry: Entry, run: Followed, asked: int) -> Iterator[Event]:
    """Yield the events of an entry that do not depend on later entries.

    Args:
        run: what is remembered of the run, including the entry.
        asked: seq of the last model request before the entry; 0 if there is none.
    """
    match entry.content:
        case kinds.ChatCompletionContent():
            run.requests[entry.seq] = next((cause for cause in entry.causes if isinstance(cause, int)), 0)
            run.reply = entry
        case kinds.ThoughtContent(value=text):
            yield ThoughtEvent(content=text, message=_message(entry, run), end_of_message=True)
        case kinds.ToolCallContent(tool_name=name, tool_args=args, status=status, meta=meta):
            run.tools[entry.seq] = name
            error = str((meta or {}).get("error", "malformed")) if status == "error" else None
            yield CallEvent(tool=name, arguments=args, error=error, message=_message(entry, run), end_of_message=True)
        case kinds.ToolResultContent():
            yield from _result(entry.content, run)
        case kinds.FaultContent(of=of, error=error, wait_s=wait_s, shown_chars=shown) if of == asked:
            if shown or error.type == LOST:
                yield RetractEvent(message=of, end_of_message=True)
            if wait_s is not None:
                yield RetryEvent(content=error.message, message=of, error=error, wait_s=wait_s, end_of_message=True)
        case kinds.CompactionContent(summary=summary, from_seq=first, to_seq=last):
            yield CompactionEvent(content=summary or "", from_seq=first, to_seq=last, end_of_message=True)
        case kinds.ApprovalRequestContent(of=of):
            yield _waits(Waiting("approval", of, run.tools.get(of), entry.seq), entry, run)
        case kinds.QuestionContent():
            call = next((each for each in run.state.calls.values() if entry.seq in (each.question, *each.asks)), None)
            seq, step = (None, _note_name(entry)) if call is None else (call.seq, call.name)
            yield _waits(Waiting("question", seq, step, entry.seq), entry, run)
        case kinds.TimerContent(key=key):
            yield _waits(Waiting("timer", tool=key, of=entry.seq), entry, run)
        case kinds.AssistantContent(value=text, history=history):
            if not history:
                message = _message(entry, run)
                yield AnswerEvent(content=text, message=message, end_of_message=True, end_of_dialog=True)
        case kinds.EndContent():
            yield from _end(entry, run)
        case _:
            pass


def _result(content: kinds.ToolResultContent, run: Followed) -> Iterator[Event]:
    """Yield two events of a tool result: one with the value, and one with the text that the model reads."""
    tool = run.tools.get(content.call) if content.call is not None else None
    outcome = content.outcome or ("error" if content.status == "error" else "ok")
    yield ResultEvent(call=content.call, tool=tool, result=content.tool_result, outcome=outcome, end_of_message=True)
    yield ObservationEvent(content=observation_text(content.tool_result), end_of_message=True)


def _waits(waiting: Waiting, entry: Entry, run: Followed) -> Event:
    """Return the event that reports a new wait, such as a wait for an approval."""
    return waiting_event(described(waiting, entry.run, run.state), entry.run)


def _note_name(entry: Entry) -> str | None:
    name = (entry.annotations or {}).get(NOTE_NAME)
    return name if isinstance(name, str) else None


def _end(entry: Entry, run: Followed) -> Iterator[Event]:
    """Yield the events of the `end` entry of a turn. The `end` entry of any other span has no events."""
    state, turn = run.state, run.state.turn
    if turn is None or turn.end != entry.seq:
        return
    reason = turn.reason or ""
    below = state.opened is not None and state.opened.parent_run is not None
    if reason != "answered" and not below:  # the parent run decides what a failed child run means
        text = turn.error.message if turn.error is not None else reason
        yield ErrorEvent(content=text, end_of_message=True, end_of_dialog=True)
    elif reason == "answered" and turn.assistant is None:
        message = _message(entry, run)
        yield AnswerEvent(content=turn.text, message=message, end_of_message=True, end_of_dialog=True)
    if state.opened is not None:
        yield EndEvent(content=reason, outcome=outcome_of(entry.run, state, of=turn))


def _message(entry: Entry, run: Followed) -> int:
    """Return the seq of the model request that led to an entry, such as a tool call; 0 if there is none."""
    return next((run.requests[seq] for seq in entry.causes if isinstance(seq, int) and seq in run.requests), 0)


def waiting_event(waiting: Waiting, run: str) -> Event:
    """Return the event that tells listeners of a wait. Unless the wait is for a timer, the event ends the dialogue."""
    text, over = waiting.question or waiting.text, waiting.what != "timer"
    return WaitingEvent(content=text, waiting=waiting, run=run, end_of_message=True, end_of_dialog=over)
