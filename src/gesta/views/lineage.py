"""Every answer is explained: from its causes follows what it was made of, back to the question.

`PLACES` gives each kind its place: the node that it is in an explanation, if it is one, and the causes that it must
have. `explain` walks from an entry along causes and links to all that entered its prompts, and what stands between two
nodes (requests, attempts) is left out: Question ← Analysis ← ToolUse ← Observation ← … ← Conclusion. `unexplained` says
where that would fail. Causes that an importer inferred are counted apart, and so are words that answer nobody.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, field

from gesta import kinds
from gesta.entry import Cause, Entry
from gesta.formatter import observation_text
from gesta.kinds import Kind
from gesta.view import fold

Step = Literal["Question", "Analysis", "ToolUse", "Thought", "Observation", "Retrieval", "Approval", "Conclusion"]
Work = Literal["PatternDecision", "Decomposition", "Plan", "Finding", "StepResult", "Synthesis"]
NodeType = Step | Work | Literal["Resolution", "Artifact", "Summary", "Note", "Entry"]
"""What an entry is in an explanation; `Entry` is one that is none of these, and was asked about."""

Key = tuple[str, int]
"""Run and seq."""


class Place(Struct, frozen=True):
    """The place of a kind in the lineage."""

    node: NodeType | None = None
    """None where it only leads on to what it was made from, or is no part of an explanation."""
    causes: frozenset[Kind] | None = frozenset()
    """It must have one of such a kind; none stands for any kind, the empty set for no need of one."""
    follows: bool = False
    """Whether it belongs to an explanation as soon as one of its causes does: it says more about that."""


MAKERS = frozenset({Kind.ChatCompletion, Kind.Plan, Kind.ToolCall, Kind.Attempt})
"""Kinds that call tools."""
PLACES: Mapping[Kind, Place] = MappingProxyType(
    {
        Kind.System: Place(),  # a Question where it opens a child run
        Kind.User: Place("Question"),
        Kind.Assistant: Place("Conclusion", None),
        Kind.RequestHeader: Place(),
        Kind.Request: Place(None, None),
        Kind.ChatCompletion: Place("Analysis", frozenset({Kind.Request})),
        Kind.Thought: Place("Thought", None, follows=True),
        Kind.ToolCall: Place("ToolUse", MAKERS, follows=True),
        Kind.Attempt: Place(None, frozenset({Kind.ToolCall}), follows=True),
        Kind.ToolResult: Place("Observation", frozenset({Kind.ToolCall, Kind.Attempt})),
        Kind.Fault: Place(None, frozenset({Kind.Request, Kind.Attempt})),
        Kind.Begin: Place(),
        Kind.End: Place(),  # of a span of role finding, step or synthesis: what that gave
        Kind.Edge: Place(),
        Kind.KeyValue: Place("Note"),
        Kind.Decision: Place("PatternDecision", None, follows=True),
        Kind.Plan: Place("Plan", None),  # a Decomposition by its role
        Kind.Retrieval: Place("Retrieval", None, follows=True),
        Kind.ApprovalRequest: Place(None, frozenset({Kind.ToolCall}), follows=True),
        Kind.Approval: Place("Approval", frozenset({Kind.ApprovalRequest}), follows=True),
        Kind.Question: Place("Analysis", None),
        Kind.Answer: Place("Observation", frozenset({Kind.Question})),
        Kind.Signal: Place(),
        Kind.Timer: Place(),
        Kind.Resolution: Place("Resolution", frozenset({Kind.Attempt}), follows=True),
        Kind.Budget: Place(None, frozenset({Kind.Request, Kind.Attempt})),
        Kind.Artifact: Place("Artifact", None, follows=True),
        Kind.Compaction: Place("Summary"),  # of the range that it names
    }
)
"""Every kind. Links (`of`, `call`, `extends`) count as causes. An `assistant` that answers nobody needs none."""

ROLES: Mapping[str, NodeType] = MappingProxyType({"finding": "Finding", "step": "StepResult", "synthesis": "Synthesis"})
"""What the `end` of a span, or an `assistant` in it, is by the role of the span."""

SPEAKS = frozenset({Kind.Assistant, Kind.Plan, Kind.Decision, Kind.Question})
"""Kinds that a completion without calls becomes: it is shown as that."""


class Node(Struct, frozen=True):
    """One entry in an explanation."""

    type: NodeType
    id: str
    """Of the entry: `run.seq`."""
    run: str
    seq: int
    kind: Kind
    text: str
    status: str | None = None
    """Outcome of a result, verdict of a person; none where all is well or the entry does not say."""
    derived_from: tuple[str, ...] = ()
    """Ids of the nodes that it was made from, without those that these were made from."""
    inferred: bool = False
    """Whether an importer inferred that."""


class Explanation(Struct, frozen=True):
    """Why an entry is what it is."""

    id: str
    """Of the entry."""
    nodes: tuple[Node, ...]
    """What each derives from comes before it; the entry itself is the last."""
    questions: tuple[str, ...] = ()
    """Ids of what it answers: the questions of its turn, else the last before; none for words that answer nobody."""
    complete: bool = True
    """Whether causes lead from it to those."""
    elsewhere: tuple[Key, ...] = ()
    """Causes in runs that were not given."""


class Unexplained(Struct, frozen=True):
    """What law 8 finds."""

    entries: dict[str, str]
    """What entries lack, by id: a place, or a cause that their kind must have."""
    answers: tuple[str, ...]
    """Ids of those from which no causes lead to their question."""
    unprompted: tuple[str, ...]
    """Ids of those that answer nobody, such as a greeting: no fault."""
    inferred: int
    """Entries whose causes an importer inferred: no fault."""


class State(Struct):
    """What is known of the lineage of some runs."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    links: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    """What each was made from."""
    followers: dict[Key, list[Key]] = field(default_factory=dict)
    """What says more about it."""
    inside: dict[Key, list[Key]] = field(default_factory=dict)
    """What lies in a span whose role is one of `ROLES`."""
    spoken: dict[Key, Key] = field(default_factory=dict)
    """What a completion became."""
    spans: dict[Key, tuple[Key, str]] = field(default_factory=dict)
    """Parent and role of each span."""
    asked: dict[Key, list[Key]] = field(default_factory=dict)
    """Questions by the span of their turn; those of a run stand at seq 0."""
    questions: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    """What each answer answers."""
    lacks: dict[str, str] = field(default_factory=dict)


class Lineage:
    """The fold that follows causes."""

    def start(self) -> State:
        """Make the state of no entries."""
        return State()

    def apply(self, state: State, entry: Entry) -> State:
        """Take one entry in. Entries of several runs may come in any order of the runs."""
        key, content = (entry.run, entry.seq), entry.content
        state.entries[key] = entry
        state.links[key] = links = tuple(dict.fromkeys(_links(state, entry)))
        place = PLACES.get(entry.kind)
        if isinstance(content, kinds.BeginContent):
            state.spans[key] = (entry.run, content.parent or 0), content.role or ""
        for link in links:
            if place is not None and place.follows:
                state.followers.setdefault(link, []).append(key)
            if entry.kind in SPEAKS and _kind(state, link) is Kind.ChatCompletion:
                state.spoken.setdefault(link, key)
        if place is not None and _role(state, entry) and entry.kind not in (Kind.Begin, Kind.End):
            state.inside.setdefault((entry.run, entry.span), []).append(key)
        _ask(state, entry, key)
        if missing := _missing(state, entry, place, links):
            state.lacks[entry.id] = f"{entry.kind} without {missing}"
        return state


def explain(entries: Iterable[Entry], seq: int, run: str | None = None) -> Explanation:
    """Explain an entry: what it was made from, back to the question.

    Args:
        entries: of its run, and of the runs that `elsewhere` named before, if any.
        seq: of the entry.
        run: its run; by default that of the first entry given.

    Cost: linear in the entries, for the usual run.
    """
    state = fold(Lineage(), entries)
    target = run if run is not None else next((key[0] for key in state.entries), ""), seq
    assert target in state.entries, f"there is no entry {seq} in run {target[0]!r}"
    wanted = _closure(state, target)
    asked, given = state.questions.get(target, ()), {run for run, _ in state.entries}
    away = dict.fromkeys(link for key in wanted for link in state.links[key] if link[0] not in given)
    ids = tuple(state.entries[key].id for key in asked)
    nodes = _nodes(state, target, wanted)
    return Explanation(state.entries[target].id, tuple(nodes), ids, wanted.issuperset(asked), tuple(away))


def unexplained(entries: Iterable[Entry]) -> Unexplained:
    """Say what of some runs is not explained. Cost: linear in the entries."""
    state = fold(Lineage(), entries)
    numbers = {key: place for place, key in enumerate(key for asked in state.questions.values() for key in asked)}
    reached: dict[Key, int] = {}
    for key in _ordered(state, state.entries):
        reached[key] = 1 << numbers[key] if key in numbers else 0
        for link in state.links[key]:
            reached[key] |= reached.get(link, 0)
    answers = [(state.entries[key].id, reached[key], asked) for key, asked in state.questions.items()]
    lost = [id for id, reach, asked in answers if not all(reach >> numbers[each] & 1 for each in asked)]
    unprompted = [id for id, _, asked in answers if not asked]
    return Unexplained(state.lacks, tuple(lost), tuple(unprompted), sum(map(_inferred, state.entries.values())))


def _links(state: State, entry: Entry) -> Iterator[Key]:
    """Give what an entry was made from, as far as it stands before it."""
    content, run = entry.content, entry.run
    causes: list[Cause] = list(entry.causes)
    causes += [link for name in ("of", "call", "extends") if isinstance(link := getattr(content, name, None), int)]
    if isinstance(content, kinds.CompactionContent) and content.summary is not None:
        causes += range(max(1, content.from_seq), min(content.to_seq + 1, entry.seq))
    for cause in causes:
        other, seq = (run, cause) if isinstance(cause, int) else cause
        if other != run or 0 < seq < entry.seq:
            yield other, seq
            if isinstance(content, kinds.ToolResultContent):
                follows = state.followers.get((other, seq), ())
                yield from (key for key in follows if _kind(state, key) in (Kind.Retrieval, Kind.Artifact))
        if entry.kind in (Kind.Request, Kind.ChatCompletion) and (other, seq) in state.spoken:
            yield state.spoken[other, seq]
    if isinstance(content, kinds.EndContent):
        yield from state.inside.get((run, entry.span), ())


def _ask(state: State, entry: Entry, key: Key) -> None:
    """Remember a question, and to which questions an answer belongs."""
    turn, whole = _turn(state, (entry.run, entry.span)), (entry.run, 0)
    if entry.kind is Kind.User or _opens(state, entry):
        for each in {turn, whole}:
            state.asked.setdefault(each, []).append(key)
    elif entry.kind is Kind.Assistant:
        own = state.asked.get(turn, []) if turn != whole else []
        state.questions[key] = tuple(own or state.asked.get(whole, [])[-1:])


def _opens(state: State, entry: Entry) -> bool:
    """Tell whether an entry is the task that opens a child run."""
    first = state.entries.get((entry.run, 1), entry).content
    child = isinstance(first, kinds.BeginContent) and first.opened is not None and first.opened.parent_run is not None
    return child and entry.kind is Kind.System and not state.asked.get((entry.run, 0))


def _turn(state: State, span: Key) -> Key:
    """Find the turn that a span lies in; seq 0 where it lies in none."""
    while span in state.spans:
        parent, role = state.spans[span]
        if role == "turn":
            return span
        span = parent if parent[1] < span[1] else (span[0], 0)
    return span[0], 0


def _role(state: State, entry: Entry) -> NodeType | None:
    """Tell what the span of an entry gives, by its role."""
    return ROLES.get(state.spans.get((entry.run, entry.span), (0, ""))[1])


def _kind(state: State, key: Key) -> Kind | None:
    return state.entries[key].kind if key in state.entries else None


def _inferred(entry: Entry) -> bool:
    named = (entry.annotations or {}).get("inferred")
    return isinstance(named, list | tuple) and "causes" in named


def _missing(state: State, entry: Entry, place: Place | None, links: tuple[Key, ...]) -> str | None:
    """Say what an entry lacks."""
    if place is None:
        return "a place in the table of kinds"
    known = {_kind(state, link) for link in links}
    nobody = not state.asked.get((entry.run, 0)) and entry.kind in (Kind.Assistant, Kind.ChatCompletion)
    if place.causes == frozenset() or nobody or None in known:  # none of a kind: in a run that was not given
        return None
    if place.causes is None or _inferred(entry):
        return None if known else "a cause"
    return None if known & place.causes else f"a cause of kind {' or '.join(sorted(place.causes))}"


def _closure(state: State, target: Key) -> set[Key]:
    """Find all that an entry was made from, and what says more about that."""
    wanted, left = {target}, [target]
    while left:
        key = left.pop()
        more = [other for other in state.followers.get(key, ()) if other[0] != target[0] or other[1] < target[1]]
        for other in (*state.links[key], *more):
            if other in state.entries and other not in wanted:
                wanted.add(other)
                left.append(other)
    return wanted


def _ordered(state: State, wanted: Iterable[Key]) -> Iterator[Key]:
    """Give entries in the order of the store, but each after what it was made from."""
    within, begun, done = set(wanted), set[Key](), set[Key]()
    left = sorted(within, key=lambda key: (state.entries[key].pos, key[1], key[0]), reverse=True)
    while left:
        key = left[-1]
        if key not in begun:
            begun.add(key)
            left += [link for link in state.links[key] if link in within and link not in begun]
            continue
        left.pop()
        if key not in done:
            done.add(key)
            yield key


def node_type(state: State, key: Key) -> NodeType | None:
    """Tell which node an entry is, if it is one."""
    entry = state.entries[key]
    place, role = PLACES.get(entry.kind), _role(state, entry)
    match entry.content:
        case kinds.SystemContent() if key in state.asked.get((entry.run, 0), ()):
            return "Question"
        case kinds.AssistantContent() if role is not None:
            return role
        case kinds.EndContent():
            lying = {_kind(state, each) for each in state.inside.get((entry.run, entry.span), ())}
            return None if Kind.Assistant in lying else role
        case kinds.PlanContent(role="decomposition"):
            return "Decomposition"
        case kinds.CompactionContent(summary=None):
            return None
    return place.node if place is not None else None


def _nodes(state: State, target: Key, wanted: set[Key]) -> list[Node]:
    """Make the nodes of an explanation, each with the nearest ones that it was made from."""
    near: dict[Key, tuple[frozenset[Key], bool]] = {}
    above: dict[Key, int] = {}  # all nodes that a node was made from, a bit for each
    bits: dict[Key, int] = {}
    nodes = []
    for key in [*_ordered(state, wanted - {target}), target]:
        entry = state.entries[key]
        sources, inferred = set[Key](), _inferred(entry)
        for link in state.links[key]:
            if link in near:
                sources |= near[link][0]
                inferred |= near[link][1]
        nearest = frozenset(one for one in sources if not any(above[each] & bits[one] for each in sources))
        type_ = node_type(state, key) or ("Entry" if key == target else None)
        calls = any(_kind(state, other) is Kind.ToolCall for other in state.followers.get(key, ()))
        spoken = state.spoken.get(key) in wanted and not calls and key != target
        if type_ is None or spoken:
            near[key] = nearest, inferred
            continue
        bits[key], above[key] = 1 << len(bits), 0
        for source in nearest:
            above[key] |= above[source] | bits[source]
        near[key] = frozenset({key}), False
        derived = tuple(state.entries[source].id for source in sorted(nearest))
        said = _text(state, entry), _status(entry.content)
        nodes.append(Node(type_, entry.id, entry.run, entry.seq, entry.kind, *said, derived, inferred))
    return nodes


def _text(state: State, entry: Entry) -> str:
    """Write what an entry says."""
    match entry.content:
        case kinds.ToolCallContent(tool_name=name, tool_args=args):
            return f"{name} {observation_text(args)}"
        case (
            kinds.ApprovalContent(by=by, args=value)
            | kinds.ResolutionContent(by=by, result=value)
            | kinds.AnswerContent(by=by, value=value) as content
        ):
            said = (None if value is None else observation_text(value), getattr(content, "reason", None))
            return ": ".join([f"by {by}", *(each for each in said if each)])
        case kinds.DecisionContent(choice=choice, candidates=candidates, rationale=why):
            return f"{choice} of {', '.join(candidates)}{f': {why}' if why else ''}"
        case kinds.PlanContent(steps=steps):
            return "\n".join(f"{place}. {step.goal}" for place, step in enumerate(steps))
        case kinds.RetrievalContent(query=query, hits=hits):
            return "\n".join([query, *(f"{hit.document} {hit.chunk or ''}".rstrip() for hit in hits)])
        case kinds.KeyValueContent(key=name, value=value):
            return f"{name} = {observation_text(value)}"
        case kinds.EndContent(state=None):
            inside = state.inside.get((entry.run, entry.span), [])
            return _text(state, state.entries[inside[-1]]) if inside else ""
        case content:
            named = (getattr(content, name, None) for name in ("output", "value", "tool_result", "summary", "state"))
            return observation_text(next((each for each in named if each is not None), getattr(content, "name", "")))


def _status(content: kinds.Content) -> str | None:
    """Tell the outcome of a result or the verdict of a person, where that is more than that all is well."""
    said = next((each for name in ("outcome", "verdict", "status") if (each := getattr(content, name, None))), None)
    return None if said in ("ok", "success") else said
