"""A workflow step is a named span in a program's turn. Each step is done once; then its result is read from the log.

A program is the async function that runs a turn in place of a model. A program that is started again from its beginning
repeats no step, and continues where it was. A turn goes from one message to the answer; a span is a part of it, between
a `begin` and an `end` entry. An entry is one stored fact of a run; its seq is its number there. A note is a single
entry that a program named, by an annotation.
"""

from datetime import datetime

from msgspec import Struct, field

from gesta.entry import Entry
from gesta.kinds import AnswerContent, BeginContent, EdgeContent, EndContent, Kind, TimerContent

NOTE_NAME = "name"
"""Key of the annotation that holds the name of a note."""
STEP_KINDS = frozenset({Kind.Begin, Kind.User, Kind.System, Kind.Answer})
"""Kinds that `WorkflowSteps.take` needs even if no step is open and the entry has no annotation."""


class WorkflowStep(Struct):
    """One step of a program's turn, with its entries."""

    begin: int
    name: str
    entries: list[Entry] = field(default_factory=list)
    """Entries in the step's span after its `begin` entry. If the step has ended, the last entry is the span's `end`."""

    @property
    def end(self) -> EndContent | None:
        """The content of the step's `end` entry; `None` while the step is open."""
        last = self.entries[-1].content if self.entries else None
        return last if isinstance(last, EndContent) else None

    @property
    def end_seq(self) -> int:
        """Seq of the step's `end` entry. The step must have ended."""
        return self.entries[-1].seq

    @property
    def edge(self) -> EdgeContent | None:
        """The `edge` entry that started the child run of the step; `None` if the step started no child run."""
        return next((each.content for each in self.entries if isinstance(each.content, EdgeContent)), None)


class WorkflowSteps(Struct):
    """The steps and notes of the run's last turn, by the names that the program gave them."""

    turn: int = 0
    named: dict[str, WorkflowStep] = field(default_factory=dict)
    notes: dict[str, Entry] = field(default_factory=dict)
    timers: dict[str, datetime] = field(default_factory=dict)
    """When each timer is due, by the name of its note, less the timers that were due when a later entry was written."""
    before: dict[str, int] = field(default_factory=dict)
    """For each step name, how many times earlier turns of the run used it."""
    answers: dict[int, AnswerContent] = field(default_factory=dict)
    """Answers of persons, by the seq of the `question` entry."""
    question: Entry | None = None
    """The entry with the message or task that opened the turn."""
    open: dict[int, WorkflowStep] = field(default_factory=dict)
    """Open steps by the seq of their `begin` entry."""

    @property
    def waits_below(self) -> bool:
        """Whether an open step has started a child run."""
        return any(step.edge is not None for step in self.open.values())

    def take(self, entry: Entry) -> None:
        """Add one entry of the run to the steps and notes."""
        content = entry.content
        if self.timers:
            self.timers = {name: due for name, due in self.timers.items() if due > entry.at}
        step = self.open.get(entry.span)
        if step is not None:
            step.entries.append(entry)
            if isinstance(content, EndContent):
                del self.open[entry.span]
        elif isinstance(content, BeginContent):
            self._begin(entry, content)
        elif self.question is None and entry.kind in (Kind.User, Kind.System):
            self.question = entry
        elif isinstance(content, AnswerContent):
            self.answers.setdefault(content.of, content)
        elif entry.span == self.turn and entry.annotations:
            name = entry.annotations.get(NOTE_NAME)
            if isinstance(name, str):
                self.notes[name] = entry
                if isinstance(content, TimerContent):
                    self.timers[name] = content.due_at

    def _begin(self, entry: Entry, content: BeginContent) -> None:
        if content.role == "turn":
            for name in self.named:
                self.before[name] = self.before.get(name, 0) + 1
            self.turn, self.named, self.notes, self.open = entry.seq, {}, {}, {}
            self.question, self.answers, self.timers = None, {}, {}
        elif self.turn and content.parent == self.turn:
            self.named[content.name] = self.open[entry.seq] = WorkflowStep(entry.seq, content.name)
