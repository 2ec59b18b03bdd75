"""Shows any run as the log of a task: one row for each message, with its responder and tools.

The columns are Langroid's. USER is a person, or the parent of a sub-task; LLM is a model, AGENT a tool, SYSTEM the
instructions. OAI_TOOL is a call that the provider reported; TOOL is a call that was parsed from the model's text. A
mark (`*`) shows the result of each step. The rows of a sub-task follow the row where its parent called it; then comes
the sub-task's result. No text is cut.

A run is a list of entries; an entry's seq is its number in its run, and its causes are the entries it was made from. A
span is a named part of a run. An edge is the entry that records the call of a sub-task.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gesta import kinds
from gesta.compat.langchain.agents import AgentActionMessageLog, AgentStep
from gesta.compat.langchain.steps import steps
from gesta.entry import Entry
from gesta.prompt import given_text, observation_text

USER, LLM, AGENT, SYSTEM = "USER", "LLM", "AGENT", "SYSTEM"
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

Key = tuple[str, int]
"""The run and the seq (number within the run) of an entry."""


class LogFields(Struct, frozen=True, kw_only=True):
    """The columns of a row that describe its message."""

    sender_entity: str = USER
    """USER, LLM, AGENT or SYSTEM."""
    sender_name: str = ""
    recipient: str = ""
    block: str = ""
    """The responder that must not answer the message; empty if there is none."""
    tool_type: str = ""
    """OAI_TOOL, TOOL or FUNC if the message calls a tool; else empty."""
    tool: str = ""
    """Names of the tools that the message calls, separated by commas; in a result, the name of its tool."""
    content: str = ""


class Row(Struct, frozen=True, kw_only=True):
    """A row in the log of a task."""

    task: str
    """Name of the task's run."""
    responder: str
    """USER, LLM, AGENT, SYSTEM, or the name of a sub-task."""
    fields: LogFields
    run: str
    seq: int
    """Seq of the entry that the row shows."""
    mark: bool = False
    """Whether the row is the result of a step."""
    depth: int = 0
    """How many tasks are above the row's task."""

    def cells(self) -> dict[str, str]:
        """Return the row as a dict from the name of a column to its text."""
        own = {"mark": "*" if self.mark else "", "task": self.task, "responder": self.responder}
        return own | {name: getattr(self.fields, name) for name in self.fields.__struct_fields__}


COLUMNS = ("mark", "task", "responder", *LogFields.__struct_fields__)


class State(Struct):
    """The rows made so far for one run, and the facts about its entries that later rows need."""

    texts: frozenset[str | None]
    """Ids of the call entries that were parsed from a text."""
    edges: frozenset[Key]
    """Keys of all edge entries (calls of sub-tasks) in all runs."""
    items: list[Row | Key] = field(default_factory=list)
    """The rows in order. The key of an edge marks the place where the rows of a sub-task are to be inserted."""
    starts: dict[Key, int] = field(default_factory=dict)
    """For each edge that called this run: the index in `items` where the rows of that call begin."""
    task: str = ""
    agent: str = ""
    parent: str | None = None
    instructions: str = ""
    said: dict[int, int] = field(default_factory=dict)
    """Index in `items` of the row of a model's reply, by the seq of the reply."""
    tools: dict[int | str | None, str] = field(default_factory=dict)
    """Names of tools. The keys are the seq and the id of each call."""
    spans: dict[int, tuple[kinds.BeginContent, int]] = field(default_factory=dict)
    """Open spans by the seq of their begin entry. The value is the entry's content, and how many items came earlier."""
    given: set[Key] = field(default_factory=set)
    """Keys of entries in other runs that are results of sub-tasks and already have a row."""


def task_log(entries: Iterable[Entry]) -> list[Row]:
    """Return the log of a task. `entries` are those of its run and of all child runs; the runs may be in any order."""
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        runs.setdefault(entry.run, []).append(entry)
    edges = frozenset((e.run, e.seq) for own in runs.values() for e in own if isinstance(e.content, kinds.EdgeContent))
    states = {run: _read(own, edges) for run, own in runs.items()}
    for run, state in states.items():
        if state.parent in states and not state.starts:  # no edge says where its rows belong: put them at the end
            states[state.parent].items.append((run, 0))
            state.starts[run, 0] = 0
    called: dict[Key, list[list[Row | Key]]] = {}
    for state in states.values():
        places = [*state.starts.items()]
        for place, (edge, start) in enumerate(places):
            end = places[place + 1][1] if place + 1 < len(places) else None
            called.setdefault(edge, []).append(state.items[start if place else 0 : end])
    return [row for state in states.values() if not state.starts for row in _nested(state.items, called, 0)]


def tsv(cells: Iterable[str]) -> str:
    """Return the cells as one tab-separated line. Backslashes, tabs and line breaks in a cell are escaped."""
    return "\t".join(cell.translate(ESCAPES) for cell in cells)


def _nested(items: list[Row | Key], called: dict[Key, list[list[Row | Key]]], depth: int) -> Iterator[Row]:
    for item in items:
        if isinstance(item, Row):
            yield replace(item, depth=depth)
        else:
            for inner in called.pop(item, ()):
                yield from _nested(inner, called, depth + 1)


def _read(entries: list[Entry], edges: frozenset[Key]) -> State:
    actions = [step.action for step in steps(entries) if isinstance(step, AgentStep)]
    texts = frozenset(action.entry for action in actions if not isinstance(action, AgentActionMessageLog))
    state = State(texts, edges)
    for entry in entries:
        _apply(state, entry)
    return state


def _apply(state: State, entry: Entry) -> None:
    """Add a row for an entry to the state of its run, or note what later rows need."""
    match entry.content:
        case kinds.BeginContent() as begin:
            _begin(state, entry, begin)
        case kinds.EndContent() as end:
            _end(state, entry, end)
        case kinds.EdgeContent() as edge:
            _edge(state, entry, edge)
        case kinds.RequestHeaderContent(meta=meta):
            text = observation_text((meta or {}).get("instructions") or "")
            if text and text != state.instructions:
                _say(state, entry, SYSTEM, text)
            state.instructions = text
        case kinds.SystemContent() as content:
            _system(state, entry, content)
        case kinds.UserContent(value=text, user_id=user):
            _say(state, entry, USER, text, user or "")
        case kinds.AnswerContent(value=value, by=by):
            _say(state, entry, USER, observation_text(value), by)
        case kinds.ApprovalContent(verdict=verdict, by=by, reason=reason, refused=refused):
            why = f", which does not count: {refused}" if refused is not None else f": {reason}" if reason else ""
            _say(state, entry, USER, f"{verdict} by {by}{why}", by)
        case kinds.QuestionContent(value=text):
            _say(state, entry, AGENT, text, state.agent)
        case kinds.ChatCompletionContent(output=text):
            state.said[entry.seq] = len(state.items)
            _say(state, entry, LLM, text, state.agent)
        case kinds.AssistantContent(value=text):
            if not any(row.fields.content == text for row in _rows(state, entry)):
                _say(state, entry, LLM, text, state.agent)
        case kinds.ToolCallContent() as call:
            _call(state, entry, call)
        case kinds.ToolResultContent(tool_result=result, call=seq, tool_call_id=own):
            tool = state.tools.get(seq if seq is not None else own, "")
            state.given |= _elsewhere(entry)
            _say(state, entry, AGENT, observation_text(result), state.agent, tool=tool)


def _say(state: State, entry: Entry, responder: str, text: str, name: str = "", *, tool: str = "") -> None:
    """Add a row for an entry, with its responder, its text, the sender's name, and the names of its tools (`tool`)."""
    sender = responder if responder in (USER, LLM, AGENT, SYSTEM) else USER  # a sub-task answers in place of a user
    document = getattr(entry.content, "document", None)
    meta = document.get("metadata") if isinstance(document, dict) else None
    meta = meta if isinstance(meta, dict) else {}
    told = {key: observation_text(meta[key]) for key in ("recipient", "block") if meta.get(key) is not None}
    fields = LogFields(sender_entity=sender, sender_name=name, tool=tool, content=text, **told)
    state.items.append(Row(task=state.task, responder=responder, fields=fields, run=entry.run, seq=entry.seq))


def _rows(state: State, entry: Entry) -> list[Row]:
    """Return the rows of the model replies from which an entry was made (the replies among its causes)."""
    found = [state.items[state.said[cause]] for cause in entry.causes if isinstance(cause, int) and cause in state.said]
    return [row for row in found if isinstance(row, Row)]


def _begin(state: State, entry: Entry, content: kinds.BeginContent) -> None:
    if content.opened is not None:
        state.task = state.agent = content.opened.name
        state.parent = content.opened.parent_run
    if content.agent is not None:
        state.agent = content.agent.name
    state.spans[entry.seq] = content, len(state.items)


def _end(state: State, entry: Entry, content: kinds.EndContent) -> None:
    """Add a row for the result of a sub-task, and mark the last row of a step as the step's result."""
    begin, before = state.spans.pop(entry.span, (kinds.BeginContent(), len(state.items)))
    others = _elsewhere(entry) - state.given
    if others and content.state is not None:
        state.given |= others
        _say(state, entry, begin.name, given_text(content.state), begin.name)
    if begin.role == "step":
        for place in range(len(state.items) - 1, before - 1, -1):
            if isinstance(row := state.items[place], Row):
                state.items[place] = replace(row, mark=True)
                break


def _elsewhere(entry: Entry) -> set[Key]:
    """Return those causes of an entry that belong to other runs."""
    return {cause for cause in entry.causes if isinstance(cause, tuple) and cause[0] != entry.run}


def _edge(state: State, entry: Entry, content: kinds.EdgeContent) -> None:
    """Mark the place of a sub-task's rows. The message that called the sub-task now names it as the recipient."""
    for row in _rows(state, entry):
        if content.dest and not row.fields.recipient:
            fields = replace(row.fields, recipient=content.dest[-1])
            state.items[state.said[row.seq]] = replace(row, fields=fields)
    state.items.append((entry.run, entry.seq))


def _system(state: State, entry: Entry, content: kinds.SystemContent) -> None:
    """Add a row of SYSTEM for a text from the application, or of USER for a text that the parent task passed on."""
    edge = next((cause for cause in entry.causes if isinstance(cause, tuple) and cause in state.edges), None)
    if edge is not None:
        state.starts[edge] = len(state.items)
    if edge is None and (state.parent is None or any(isinstance(i, Row) and i.responder == USER for i in state.items)):
        _say(state, entry, SYSTEM, content.value)
        return
    _say(state, entry, USER, content.value, content.source[0] if content.source else "")


def _call(state: State, entry: Entry, content: kinds.ToolCallContent) -> None:
    """Add a call to the row of the reply that contains it, or add a row for a call without a reply."""
    name, meta, place = content.tool_name, content.meta or {}, len(state.items)
    state.tools[entry.seq] = state.tools[content.tool_call_id] = name
    if row := next(iter(_rows(state, entry)), None):
        place = state.said[row.seq]
    else:
        _say(state, entry, LLM, "", state.agent)
    made = state.items[place]
    assert isinstance(made, Row)
    fields, in_text = made.fields, entry.id in state.texts
    raw: Any = meta.get("raw_args")
    line = "" if in_text else f"{name} {raw if isinstance(raw, str) else observation_text(content.tool_args)}"
    fields = replace(
        fields,
        tool_type="TOOL" if in_text else "OAI_TOOL",
        tool=",".join(each for each in (fields.tool, name) if each),
        content="\n".join(each for each in (fields.content, line) if each),
    )
    state.items[place] = replace(made, fields=fields)
