"""Computes which entries an entry was made from, for the explanation of an answer.

A run is one conversation or task of an agent. A seq is an entry's number in its run. The causes of an entry are the
entries that it was made from. A completion is a model's reply, and a span is a named part of a run, such as a turn. An
explanation is a graph: its nodes are entries, such as questions, results and answers. `PLACES` says for each kind
whether its entries are nodes. A cause that is not a node (a request, an attempt, an `edge` to a child run) is replaced
by the nodes that it was made from. `Origin` computes the links between the entries of one run, for explanations of old
entries and for events about new entries, so both agree. A cause in another run is kept as a link, which `derived`
follows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, field

from gesta import kinds
from gesta.entry import Cause, Entry
from gesta.kinds import Kind

StepNode = Literal["Question", "Analysis", "ToolUse", "Thought", "Observation", "Retrieval", "Approval", "Conclusion"]
PatternNode = Literal["PatternDecision", "Decomposition", "Plan", "Finding", "StepResult", "Synthesis"]
NodeType = StepNode | PatternNode | Literal["Resolution", "Artifact", "Summary", "Note", "Instructions", "Entry"]
"""The types of nodes in an explanation. `Entry` is the type of any other entry that somebody asks to explain."""

Key = tuple[str, int]
"""An entry: the id of its run, and its seq."""


class Place(Struct, frozen=True):
    """The rules by which explanations show entries of one kind: the type of their nodes, and causes they must have."""

    node: NodeType | None = None
    """`None` if entries of this kind are not nodes. An explanation replaces them by their causes, or omits them."""
    causes: frozenset[Kind] | None = frozenset()
    """An entry needs a cause of one of these kinds. `None` allows a cause of any kind. If empty, no cause is needed."""
    follows: bool = False
    """Whether an explanation that shows a cause of an entry shows the entry too."""


MAKERS = frozenset({Kind.ChatCompletion, Kind.Plan, Kind.ToolCall, Kind.Attempt})
"""Kinds of entries that can cause a tool call: a model's reply, a plan, another call or its attempt."""
LED = frozenset({Kind.User, Kind.System, Kind.ToolResult, Kind.Decision, Kind.End})
"""Further kinds of entries that can cause a tool call, if a program makes the call and not a model."""
PLACES: Mapping[Kind, Place] = MappingProxyType(
    {
        Kind.System: Place(),  # a Question if it opens a child run
        Kind.User: Place("Question"),
        Kind.Assistant: Place("Conclusion", None),
        Kind.RequestHeader: Place(),
        Kind.Request: Place(None, None),
        Kind.ChatCompletion: Place("Analysis", frozenset({Kind.Request})),
        Kind.Thought: Place("Thought", None, follows=True),
        Kind.ToolCall: Place("ToolUse", MAKERS | LED, follows=True),
        Kind.Attempt: Place(None, frozenset({Kind.ToolCall}), follows=True),
        Kind.ToolResult: Place("Observation", frozenset({Kind.ToolCall, Kind.Attempt})),
        Kind.Fault: Place(None, frozenset({Kind.Request, Kind.Attempt, Kind.Begin})),  # Begin: its process died
        Kind.Begin: Place(),
        Kind.End: Place(),  # the result of its span, by the span's role; in a child run the Conclusion
        Kind.Edge: Place(),
        Kind.KeyValue: Place("Note"),
        Kind.Decision: Place("PatternDecision", None, follows=True),
        Kind.Plan: Place("Plan", None),  # a Decomposition if that is its role
        Kind.Retrieval: Place("Retrieval", None, follows=True),
        Kind.ApprovalRequest: Place(None, frozenset({Kind.ToolCall}), follows=True),
        Kind.Approval: Place("Approval", frozenset({Kind.ApprovalRequest}), follows=True),
        Kind.Question: Place("Analysis", None),
        Kind.Answer: Place("Observation", frozenset({Kind.Question})),
        Kind.Signal: Place(),
        Kind.Timer: Place(),
        Kind.Resolution: Place("Resolution", frozenset({Kind.Attempt}), follows=True),
        Kind.Budget: Place(None, frozenset({Kind.Request, Kind.Attempt, Kind.Edge})),
        Kind.Artifact: Place("Artifact", None, follows=True),
        Kind.Compaction: Place("Summary"),  # a summary of the range that it names
        Kind.Check: Place("Approval", None, follows=True),
    }
)
"""The role of every kind. Links (`of`, `call`, `extends`) are treated as causes. An `assistant` in a turn without a
question needs no cause."""

ROLES: Mapping[str, NodeType] = MappingProxyType({"finding": "Finding", "step": "StepResult", "synthesis": "Synthesis"})
"""The type of node for the result of a span with this role. The result is the span's `end`, or an `assistant` in it."""

SPEAKS = frozenset({Kind.Assistant, Kind.Plan, Kind.Decision, Kind.Question})
"""Kinds of entries that are made from a completion without calls. An explanation shows such an entry in place of the
completion. The `end` of a child run is treated in the same way."""

ASIDE = frozenset({"Thought", "Note", "Summary", "Artifact"})
"""Types of nodes that do not lead from a question to its answer."""

GATHERED = frozenset({"PatternDecision", "Decomposition", "Plan", "Finding", "StepResult", "Synthesis"})
"""Types of nodes that name all nodes they were made from. Nodes of other types name only the nearest of these."""


class Origin(Struct, weakref=True):
    """Keeps, for one run, which entries each entry was made from. It is computed from the entries of the run."""

    nodes: dict[int, NodeType] = field(default_factory=dict)
    links: dict[int, tuple[Key, ...]] = field(default_factory=dict)
    """For each entry, the entries that it was made from: the declared causes, and the entries that its fields refer
    to."""
    nearest: dict[int, tuple[Key, ...]] = field(default_factory=dict)
    """For each entry, the nearest nodes that it was made from. Causes in other runs are kept unchanged."""
    spans: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Parent (0 for none) and role of each span, by the seq of its `begin` entry."""
    inside: dict[int, list[int]] = field(default_factory=dict)
    """Seqs of the entries that are inside each span whose role is one of `ROLES`."""
    asked: dict[int, list[int]] = field(default_factory=dict)
    """Seqs of the questions, by the seq of their turn's `begin` entry. The key 0 holds all questions of the run."""
    answered: set[int] = field(default_factory=set)
    """Seqs of the `begin` entries of turns and spans that contain an answer (an `assistant` entry)."""
    loose: set[int] = field(default_factory=set)
    """Nodes of the last turn from which no other node has been made. If the turn ends without an answer, these nodes
    are the causes of its `end` entry."""
    child: bool = False
    """Whether the run is a child run."""
    spoken: dict[int, int] = field(default_factory=dict)
    """For each completion, the seq of the answer or thought that was made from it; 0 if none was made so far."""
    calling: set[int] = field(default_factory=set)
    """Seqs of the completions that have calls."""
    longer: set[int] = field(default_factory=set)
    """Seqs of the completions whose text differs from the answer that was taken from them."""
    said: dict[int, int] = field(default_factory=dict)
    """For each completion with a text, the hash of that text; see `digest`."""
    found: dict[int, list[int]] = field(default_factory=dict)
    """Seqs of retrievals and artifacts by the entry that they were made from."""
    named: dict[Key, int] = field(default_factory=dict)
    """Causes in other runs. The value is the seq of the first entry of this run that has the cause."""

    def add(self, entry: Entry) -> None:
        """Add one entry. Cost: grows with the number of its causes, and of the nodes after its oldest cause."""
        seq, content = entry.seq, entry.content
        if isinstance(content, kinds.BeginContent):
            self.spans[seq] = content.parent or 0, content.role or ""
            self.loose = set() if content.role == "turn" else self.loose
            self.child |= seq == 1 and content.opened is not None and content.opened.parent_run is not None
        self.links[seq] = links = tuple(dict.fromkeys(self._links(entry)))
        type_ = self._type(entry)
        if type_ is not None:
            self.nodes[seq] = type_
        self._remember(entry, type_, links)
        near = {source for link in links for source in self._behind(link, entry)}
        self.nearest[seq] = tuple(sorted(near if type_ in GATHERED else self._reduced(near, entry.run)))
        if type_ is not None and type_ not in ASIDE:
            self.loose -= {other for run, other in self.nearest[seq] if run == entry.run}
            self.loose.add(seq)
        elif entry.kind is Kind.Edge:  # a question that was handed over is answered by nodes of the other run
            self.loose -= {link for _, link in links if self.nodes.get(link) == "Question"}

    def turn(self, span: int) -> int:
        """Return the seq of the turn that contains a span; 0 if no turn contains it."""
        while span in self.spans:
            parent, role = self.spans[span]
            if role == "turn":
                return span
            span = parent if parent < span else 0
        return 0

    def became(self, seq: int) -> int:
        """Return the seq of the entry that an explanation shows in place of the completion `seq`, such as its answer.

        Return 0 if there is none. A completion with calls, or with another text than its answer, is a node itself.
        """
        return 0 if seq in self.calling or seq in self.longer else self.spoken.get(seq, 0)

    def undecided(self, seq: int) -> bool:
        """Return whether an entry is the last completion, and neither a call nor an answer was made from it so far."""
        return not self.spoken.get(seq, 1) and seq not in self.calling and seq == next(reversed(self.spoken))

    def concludes(self, entry: Entry) -> bool:
        """Return whether an explanation shows the end of a turn as the turn's conclusion.

        It does if the turn has no answer entry, and belongs to a child run or ended with an error.
        """
        role, content = self.spans.get(entry.span, (0, ""))[1], entry.content
        ended = isinstance(content, kinds.EndContent) and (self.child or content.status == "error")
        return ended and role == "turn" and entry.span not in self.answered

    def _links(self, entry: Entry) -> Iterator[Key]:
        """Yield the earlier entries of this run that an entry was made from, and its causes in other runs."""
        content, run = entry.content, entry.run
        causes: list[Cause] = list(entry.causes)
        causes += [link for name in ("of", "call", "extends") if isinstance(link := getattr(content, name, None), int)]
        if isinstance(content, kinds.CompactionContent) and content.summary is not None:
            causes += range(max(1, content.from_seq), min(content.to_seq + 1, entry.seq))
        if not causes and self.concludes(entry):
            causes += sorted(self.loose) or self.asked.get(0, [])[-1:]  # an error answers the question too
        for cause in causes:
            other, seq = (run, cause) if isinstance(cause, int) else cause
            if other != run:
                yield other, seq
            elif 0 < seq < entry.seq:
                yield run, seq
                if isinstance(content, kinds.ToolResultContent):
                    yield from ((run, each) for each in self.found.get(seq, ()))
                if self.became(seq):
                    yield run, self.became(seq)
        if isinstance(content, kinds.EndContent):
            yield from ((run, each) for each in self.inside.get(entry.span, ()))

    def _type(self, entry: Entry) -> NodeType | None:
        """Return the type of node that an entry is in an explanation; `None` if it is not a node."""
        place = PLACES.get(entry.kind)
        role = ROLES.get(self.spans.get(entry.span, (0, ""))[1])
        match entry.content:
            case kinds.SystemContent() if self.child and not self.asked.get(self.turn(entry.span)):
                return "Question"
            case kinds.AssistantContent() if role is not None:
                return role
            case kinds.EndContent() if self.concludes(entry):
                return "Conclusion"
            case kinds.EndContent():
                return None if entry.span in self.answered else role
            case kinds.PlanContent(role="decomposition"):
                return "Decomposition"
            case kinds.CompactionContent(summary=None):
                return None
        return place.node if place is not None else None

    def _remember(self, entry: Entry, type_: NodeType | None, links: Iterable[Key]) -> None:
        """Store the facts about an entry that later entries need. `links` are the entries that it was made from."""
        seq, kind, turn = entry.seq, entry.kind, self.turn(entry.span)
        if isinstance(entry.content, kinds.ChatCompletionContent):
            self.spoken[seq] = 0
            if entry.content.output.strip():
                self.said[seq] = digest(entry.content.output)
        elif kind is Kind.Assistant:
            self.answered |= {turn, entry.span}
        if type_ == "Question":
            for each in {turn, 0}:
                self.asked.setdefault(each, []).append(seq)
        if kind not in (Kind.Begin, Kind.End, Kind.Edge) and self.spans.get(entry.span, (0, ""))[1] in ROLES:
            self.inside.setdefault(entry.span, []).append(seq)
        speaks = kind in SPEAKS or self.concludes(entry)
        for run, other in links:
            if run != entry.run:
                self.named.setdefault((run, other), seq)
                continue
            if other in self.spoken and kind is Kind.ToolCall:
                self.calling.add(other)
            elif other in self.spoken and speaks:
                self.spoken[other] = self.spoken[other] or seq
                if isinstance(entry.content, kinds.AssistantContent) and other in self.said:
                    self.longer |= {other} if self.said[other] != digest(entry.content.value) else set()
            if kind in (Kind.Retrieval, Kind.Artifact):
                self.found.setdefault(other, []).append(seq)

    def _behind(self, link: Key, entry: Entry) -> tuple[Key, ...]:
        """Return the nodes to show for the cause `link` of `entry`: the cause, or the nodes that it was made from."""
        run, seq = link
        became = self.became(seq) if run == entry.run else 0
        if became and became != entry.seq:
            return ((run, became),)
        if run != entry.run or (seq in self.nodes and not became):
            return (link,)
        return self.nearest.get(seq, ())

    def _reduced(self, near: set[Key], run: str) -> set[Key]:
        """Return the nodes of `near` from which no other node of `near` was made."""
        if len(near) < 2:
            return near
        lowest = min(seq if other == run else self.named.get((other, seq), 0) for other, seq in near)
        above, left = set[Key](), list(near)
        while left:
            other, seq = left.pop()
            for source in self.nearest.get(seq, ()) if other == run else ():
                if source not in above:
                    above.add(source)
                    if source[1] >= lowest or source[0] != run:
                        left.append(source)
        return near - above


def digest(text: str) -> int:
    """Return a hash of a text without its white space. Texts that differ only in white space have the same hash."""
    return hash("".join(text.split()))


def derived(origins: Mapping[str, Origin], key: Key, shown: Callable[[Key], bool]) -> tuple[Key, ...]:
    """Return the nodes that an entry was made from, sorted by run and seq.

    Args:
        origins: the `Origin` of each run, by the id of the run. Causes in any other run are ignored.
        shown: whether an entry is shown as a node. Any other entry is replaced by the nodes that it was made from.
    """
    found, seen, left = set[Key](), {key}, [key]
    while left:
        run, seq = left.pop()
        for source in origins[run].nearest.get(seq, ()) if run in origins else ():
            if source not in seen:
                seen.add(source)
                (found.add if shown(source) else left.append)(source)
    return tuple(sorted(found))
