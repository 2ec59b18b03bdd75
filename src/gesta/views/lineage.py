"""Explains answers: the recorded causes of an answer show what it was made from, back to the question.

The seq of an entry is its number in its run, and its key is the pair of run and seq. A cause is an entry that another
entry was made from. `explain` follows causes from an entry to all entries that were in its prompts. Some of these
entries are shown as nodes, such as a Question, an Analysis (a model reply), an Observation (a tool result) and a
Conclusion (an answer). The table in `gesta.lineage` says how each kind of entry is shown. `unexplained` finds entries
that have no such explanation. A request header is an entry with the model, instructions and tools of requests.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from gesta import kinds
from gesta.entry import Entry, fold
from gesta.kinds import Kind
from gesta.lineage import PLACES, Key, NodeType, Origin, Place, derived
from gesta.prompt import given_text, observation_text


class Node(Struct, frozen=True):
    """An entry that an explanation shows, with the entries that it was made from."""

    type: NodeType
    id: str
    """Id of the entry, `run.seq`."""
    run: str
    seq: int
    kind: Kind
    text: str
    """Text that a person reads for the entry."""
    status: str | None = None
    """Outcome of a result, or verdict of a person; `None` if all is well, or if the entry does not say."""
    derived_from: tuple[str, ...] = ()
    """Ids of the nodes that this entry was directly made from."""
    inferred: bool = False
    """Whether an importer inferred these derivations."""


class Explanation(Struct, frozen=True):
    """The explanation of one entry: the nodes that it was made from."""

    id: str
    """Id of the entry that is explained."""
    nodes: tuple[Node, ...]
    """The nodes, each after its sources; the last one is the explained entry."""
    questions: tuple[str, ...] = ()
    """Ids of the questions that the entry answers: the questions of its turn, or else the last question before it.
    Empty if there is none."""
    complete: bool = True
    """Whether the causes lead from the entry back to all these questions."""
    elsewhere: tuple[Key, ...] = ()
    """Causes (run, seq) in runs whose entries were not passed to `explain`."""


class Unexplained(Struct, frozen=True):
    """What cannot be explained in the runs that `unexplained` was called with: entries and answers."""

    entries: dict[str, str]
    """For each entry that cannot be explained, by id, what is missing, such as a cause that its kind must have."""
    answers: tuple[str, ...]
    """Ids of the answers from which no causes lead back to their questions."""
    unprompted: tuple[str, ...]
    """Ids of the answers without a question, such as a greeting. This is not an error."""
    inferred: int
    """Number of entries whose causes an importer inferred. This is not an error."""


class State(Struct):
    """The state of `Lineage`: the entries that were read, and what each was made from."""

    origins: dict[str, Origin] = field(default_factory=dict)
    """For each run, what each of its entries was made from."""
    entries: dict[Key, Entry] = field(default_factory=dict)
    followers: dict[Key, list[Key]] = field(default_factory=dict)
    """For each entry, later entries that say more about it, such as its approval."""
    questions: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    """For each answer, the questions that it answers."""
    lacks: dict[str, str] = field(default_factory=dict)
    """For each entry that cannot be explained, by id, what is missing."""

    def links(self, key: Key) -> tuple[Key, ...]:
        """Return the entries that an entry names as causes or otherwise refers to."""
        return self.origins[key[0]].links[key[1]]

    def kind(self, key: Key) -> Kind | None:
        """Return the kind of an entry; `None` if the entry was not read."""
        return self.entries[key].kind if key in self.entries else None


class Lineage:
    """Collects, for each entry of some runs, the entries that it was made from."""

    def start(self) -> State:
        """Return the state before the first entry."""
        return State()

    def apply(self, state: State, entry: Entry) -> State:
        """Add one entry to the state, and return the state.

        The entries of a run must come in order, the runs in any order.
        """
        key, place = (entry.run, entry.seq), PLACES.get(entry.kind)
        origin = state.origins.setdefault(entry.run, Origin())
        origin.add(entry)
        state.entries[key] = entry
        if place is not None and place.follows:
            for link in state.links(key):
                state.followers.setdefault(link, []).append(key)
        if entry.kind is Kind.Assistant or origin.concludes(entry):
            turn = origin.turn(entry.span)
            own = origin.asked.get(turn, []) if turn else []
            state.questions[key] = tuple((entry.run, seq) for seq in own or origin.asked.get(0, [])[-1:])
        if missing := _missing(state, entry, place):
            state.lacks[entry.id] = f"{entry.kind} without {missing}"
        return state


def explain(entries: Iterable[Entry], seq: int, run: str | None = None) -> Explanation:
    """Return the explanation of an entry: its causes, their causes, and so on, back to the user's message.

    Args:
        entries: the entries of the entry's run. If an earlier explanation lists other runs in its attribute
            `elsewhere`, add the entries of those runs.
        seq: seq of the entry.
        run: run of the entry; by default the run of the first entry in `entries`.

    Cost: linear in the number of entries, unless many nodes share long chains of causes.
    """
    state = fold(Lineage(), entries)
    target = run if run is not None else next((key[0] for key in state.entries), ""), seq
    assert target in state.entries, f"there is no entry {seq} in run {target[0]!r}"
    return explanation(state, target)


def explanation(state: State, target: Key) -> Explanation:
    """Return the explanation of an entry from the state that `Lineage` made of the entries."""
    wanted = _closure(state, [target], target[1])
    asked = state.questions.get(target, ())
    ids = tuple(state.entries[key].id for key in asked)
    nodes = _nodes(state, [*_ordered(state, wanted - {target}), target], target)
    nodes = (*_instructions(state, wanted), *nodes)
    return Explanation(state.entries[target].id, nodes, ids, wanted.issuperset(asked), _elsewhere(state, wanted))


def nodes_of(state: State, run: str | None = None) -> tuple[tuple[Node, ...], tuple[Key, ...]]:
    """Return two tuples: the nodes of a run with their sources, and the causes in runs that were not read.

    Args:
        run: id of the run; `None` for all runs.
    """
    own = [key for key in state.entries if run in (None, key[0])]
    wanted = _closure(state, own, max((seq for _, seq in own), default=0) + 1)
    return _nodes(state, list(_ordered(state, wanted))), _elsewhere(state, wanted)


def unexplained(entries: Iterable[Entry]) -> Unexplained:
    """Return which of the entries, of one or more runs, cannot be explained. Cost: linear in their number."""
    state = fold(Lineage(), entries)
    numbers = {key: place for place, key in enumerate(key for asked in state.questions.values() for key in asked)}
    reached: dict[Key, int] = {}
    for key in _ordered(state, state.entries):
        reached[key] = 1 << numbers[key] if key in numbers else 0
        for link in state.links(key):
            reached[key] |= reached.get(link, 0) if link[0] in state.origins else -1  # -1: may lead anywhere
    answers = [(state.entries[key].id, reached[key], asked) for key, asked in state.questions.items()]
    lost = [id for id, reach, asked in answers if not all(reach >> numbers[each] & 1 for each in asked)]
    unprompted = [id for id, _, asked in answers if not asked]
    return Unexplained(state.lacks, tuple(lost), tuple(unprompted), sum(map(_inferred, state.entries.values())))


def _instructions(state: State, wanted: set[Key]) -> Iterator[Node]:
    """Yield a node for each text of instructions that the requests in an explanation used.

    Args:
        wanted: the entries of the explanation.
    """
    headers = {
        (run, content.header)
        for run, seq in wanted
        if isinstance(content := state.entries[run, seq].content, kinds.RequestContent)
    }
    for key in sorted(headers & state.entries.keys(), key=lambda key: (state.entries[key].pos, key)):
        entry = state.entries[key]
        if isinstance(entry.content, kinds.RequestHeaderContent):
            text = (entry.content.meta or {}).get("instructions")
            if isinstance(text, str) and text:
                yield Node("Instructions", entry.id, entry.run, entry.seq, entry.kind, text)


def _inferred(entry: Entry) -> bool:
    named = (entry.annotations or {}).get("inferred")
    return isinstance(named, list | tuple) and "causes" in named


def _missing(state: State, entry: Entry, place: Place | None) -> str | None:
    """Return what is missing to explain an entry, such as "a cause"; `None` if nothing is missing.

    Args:
        place: how the table in `gesta.lineage` says to show the entry; `None` if the table lacks its kind.
    """
    if place is None:
        return "a place in the table of kinds"
    known = {state.kind(link) for link in state.links((entry.run, entry.seq))}
    nobody = not state.origins[entry.run].asked and entry.kind in (Kind.Assistant, Kind.ChatCompletion)
    if place.causes == frozenset() or nobody or None in known:  # a cause without a kind is in a run that was not read
        return None
    if place.causes is None or _inferred(entry):
        return None if known else "a cause"
    return None if known & place.causes else f"a cause of kind {' or '.join(sorted(place.causes))}"


def _closure(state: State, targets: Iterable[Key], before: int) -> set[Key]:
    """Return the targets, their causes, the causes of these, and so on.

    An entry that refers to a returned entry, as an approval refers to a call, is returned too.

    Args:
        targets: the entries to begin with, all of one run.
        before: a seq. In the run of the targets, a referring entry is returned only if its seq is smaller.
    """
    left = list(targets)
    wanted = set(left)
    run = left[0][0] if left else ""
    while left:
        key = left.pop()
        more = [other for other in state.followers.get(key, ()) if other[0] != run or other[1] < before]
        for other in (*state.links(key), *more):
            if other in state.entries and other not in wanted:
                wanted.add(other)
                left.append(other)
    return wanted


def _elsewhere(state: State, wanted: Iterable[Key]) -> tuple[Key, ...]:
    """Return those causes of the `wanted` entries that belong to runs which were not read."""
    return tuple(dict.fromkeys(link for key in wanted for link in state.links(key) if link[0] not in state.origins))


def _ordered(state: State, wanted: Iterable[Key]) -> Iterator[Key]:
    """Yield the `wanted` entries in the order of the record, except that no entry comes before its causes."""
    within, begun, done = set(wanted), set[Key](), set[Key]()
    left = sorted(within, key=lambda key: (state.entries[key].pos, key[1], key[0]), reverse=True)
    while left:
        key = left[-1]
        if key not in begun:
            begun.add(key)
            left += [link for link in state.links(key) if link in within and link not in begun]
            continue
        left.pop()
        if key not in done:
            done.add(key)
            yield key


def _nodes(state: State, ordered: list[Key], target: Key | None = None) -> tuple[Node, ...]:
    """Return those of the entries that are nodes, each with its sources.

    Args:
        ordered: the entries, each after its causes.
        target: an entry that is returned as a node in any case.
    """
    wanted, shown = set(ordered), set[Key]()
    for run, seq in ordered:
        became = state.origins[run].became(seq)
        if (run, seq) == target or (seq in state.origins[run].nodes and (run, became) not in wanted):
            shown.add((run, seq))
    guessed: dict[Key, bool] = {}  # whether an importer inferred causes between an entry and its nodes
    nodes = []
    for key in ordered:
        entry = state.entries[key]
        inferred = _inferred(entry) or any(guessed.get(link) for link in state.links(key))
        guessed[key] = inferred and key not in shown
        if key in shown:
            type_ = state.origins[entry.run].nodes.get(entry.seq, "Entry")
            sources = derived(state.origins, key, shown.__contains__)
            ids = tuple(state.entries[source].id for source in sources)
            said = _text(state, entry), _status(entry.content)
            nodes.append(Node(type_, entry.id, entry.run, entry.seq, entry.kind, *said, ids, inferred))
    return tuple(nodes)


Plain = (
    kinds.SystemContent
    | kinds.UserContent
    | kinds.AssistantContent
    | kinds.RequestHeaderContent
    | kinds.RequestContent
    | kinds.ChatCompletionContent
    | kinds.ThoughtContent
    | kinds.AttemptContent
    | kinds.ToolResultContent
    | kinds.FaultContent
    | kinds.BeginContent
    | kinds.EdgeContent
    | kinds.ApprovalRequestContent
    | kinds.QuestionContent
    | kinds.SignalContent
    | kinds.TimerContent
    | kinds.BudgetContent
    | kinds.ArtifactContent
)
"""Contents whose text is in a field such as `value`; see `_plain`. mypy reports a new kind that is missing here and in
`_text`."""


def _text(state: State, entry: Entry) -> str:
    """Return the text that a person reads for an entry."""
    match entry.content:
        case kinds.ToolCallContent(tool_name=name, tool_args=args):
            return f"{name} {observation_text(args)}"
        case kinds.ApprovalContent(by=by, refused=str(refused)):
            return f"by {by}, which does not count: {refused}"
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
            return "\n".join([query, *map(_passage, hits)])
        case kinds.KeyValueContent(key=name, value=value):
            return f"{name} = {observation_text(value)}"
        case kinds.CompactionContent() as content:
            return summary_text(content)
        case kinds.CheckContent() as content:
            return check_text(content)
        case kinds.EndContent(state=None, error=kinds.Error(message=message)):
            return message
        case kinds.EndContent(state=None, null=True):
            return given_text(None)
        case kinds.EndContent(state=None):
            inside = state.origins[entry.run].inside.get(entry.span, [])
            return _text(state, state.entries[entry.run, inside[-1]]) if inside else ""
        case kinds.EndContent(state=value):
            return given_text(value)
        case content:
            return _plain(content)


def _plain(content: Plain) -> str:
    """Return the text of a content's output, value, result, summary or state, or else the content's name."""
    named = (getattr(content, name, None) for name in ("output", "value", "tool_result", "summary", "state"))
    return observation_text(next((each for each in named if each is not None), getattr(content, "name", "")))


def _passage(hit: kinds.Hit) -> str:
    """Return a text that says where a passage was found: its document, page and chunk."""
    page = f"page {hit.page}" if hit.page is not None else None
    return " ".join(each for each in (hit.document, page, hit.chunk) if each)


CHECKED = {
    "allowed": "allowed",
    "changed": "changed",
    "refused": "refused",
    "asked": "has a person asked about",
    "again": "sent back",
    "added": "added words to",
}
"""Words for the verdicts of hooks."""


def check_text(content: kinds.CheckContent) -> str:
    """Return a sentence about the verdict of a hook, a function of the agent that checks something."""
    said = f"{content.hook} {CHECKED[content.verdict]} the {content.point}"
    said += f" to {observation_text(content.value)}" if content.verdict == "changed" else ""
    return f"{said}: {content.words}" if content.words else said


def summary_text(content: kinds.CompactionContent) -> str:
    """Return the summary that replaced old entries in the prompt, or why there is none; empty if none was wanted."""
    why = f"no summary: {content.error.message} (run {content.run})" if content.error is not None else None
    return "\n".join(each for each in (content.summary, why) if each)


def _status(content: kinds.Content) -> str | None:
    """Return the outcome, verdict or reason of an entry; `None` if there is none, or if all went well."""
    names = ("outcome", "verdict", "reason", "status")
    said = next((each for name in names if (each := getattr(content, name, None))), None)
    return None if said in ("ok", "success", "answered") else said
