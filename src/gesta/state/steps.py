"""A workflow step is a named span in a program's turn: it is done once, and from then on read from the record.

So a program that is run again from its start does nothing twice, and goes on where it was. Notes are single entries,
named by an annotation.
"""

from msgspec import Struct, field

from gesta.entry import Entry
from gesta.kinds import AnswerContent, BeginContent, EdgeContent, EndContent, Kind

NOTE_NAME = "name"
"""Annotation that names a note."""
STEP_KINDS = frozenset({Kind.Begin, Kind.User, Kind.System, Kind.Answer})
"""Kinds that `WorkflowSteps` takes in where no step is open and the entry has no annotation."""


class WorkflowStep(Struct):
    """Something that a program does once."""

    begin: int
    name: str
    entries: list[Entry] = field(default_factory=list)
    """What lies in it, without its begin; its end is the last."""

    @property
    def end(self) -> EndContent | None:
        """How it ended, if it did."""
        last = self.entries[-1].content if self.entries else None
        return last if isinstance(last, EndContent) else None

    @property
    def end_seq(self) -> int:
        """Seq of its end."""
        return self.entries[-1].seq

    @property
    def edge(self) -> EdgeContent | None:
        """The call of a child run, if it is one."""
        return next((each.content for each in self.entries if isinstance(each.content, EdgeContent)), None)


class WorkflowSteps(Struct):
    """The steps and notes of the last turn, by name."""

    turn: int = 0
    named: dict[str, WorkflowStep] = field(default_factory=dict)
    notes: dict[str, Entry] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    """How often a name was used in earlier turns."""
    answers: dict[int, AnswerContent] = field(default_factory=dict)
    """By the question that they are about."""
    question: Entry | None = None
    """What opened the turn."""
    open: dict[int, WorkflowStep] = field(default_factory=dict)
    """By the begin of its span."""

    def take(self, entry: Entry) -> None:
        """Add one entry."""
        content = entry.content
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

    def _begin(self, entry: Entry, content: BeginContent) -> None:
        if content.role == "turn":
            for name in self.named:
                self.before[name] = self.before.get(name, 0) + 1
            self.turn, self.named, self.notes, self.open = entry.seq, {}, {}, {}
            self.question, self.answers = None, {}
        elif self.turn and content.parent == self.turn:
            self.named[content.name] = self.open[entry.seq] = WorkflowStep(entry.seq, content.name)
