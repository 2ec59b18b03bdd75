"""Shows the recorded work of an agent as other agent systems would show it.

A run is the list of entries that Gesta recorded for an agent. A turn is the part of a run that works on one message. A
form is one way to show a run: `activity` (agent-catalog), `steps` (LangChain), `task` (Langroid), `react` or `codeact`
(both KodeAgent). Each form has a table for people (`Form`), and data that the other system itself reads. Forms are
computed from the entries and never stored. Texts are never shortened.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from gesta.compat.agent_catalog.export import run_lines
from gesta.compat.kodeagent.codeact import CodeActHistoryFormatter
from gesta.compat.kodeagent.history import HistoryFormatter
from gesta.compat.kodeagent.kutils import text_of
from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.compat.langchain.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from gesta.compat.langchain.lc import to_lc
from gesta.compat.langchain.steps import Round, rounds, steps
from gesta.compat.langroid.task_log import task_log
from gesta.entry import Entry
from gesta.errors import NoRun
from gesta.kinds import BeginContent, ToolResultContent
from gesta.log.journal import pages
from gesta.prompt import observation_text
from gesta.record.record import Record
from gesta.store import RunRow
from gesta.text.visible import call_text

PAGE = ("mark", "task", "responder", "recipient", "tool", "content")
"""The columns of the `task` table. A column that is empty in every row is not shown."""
Cells = tuple[str, ...]


class FormRow(Struct, frozen=True, omit_defaults=True):
    """One row of a form's table."""

    cells: Cells
    run: str = ""
    """Id of the run whose entry this row shows. Empty if the row shows no single entry."""
    seq: int | None = None
    notes: dict[str, Any] = {}
    """In the form `activity`, the annotations of the line. Empty in all other forms."""


class Form(Struct, frozen=True):
    """A table for people that shows one run."""

    headings: Cells
    """Names of the columns. The last column contains the long texts."""
    rows: list[FormRow]


# ---------------------------------------------------------------------------------------------------- activity
def activity(entries: list[Entry]) -> Form:
    """Return a run as a table with one row for each line of agent-catalog's activity log."""
    rows = [_activity(line.rstrip("\n"), entries[0].run) for line in run_lines(entries)]
    return Form(("time", "kind", "span", "content"), rows)


def _activity(text: str, run: str) -> FormRow:
    """Return the table row for one line of the activity log. A line in another format is shown unchanged."""
    try:
        line = json.loads(text)
        content, at, path = line["content"], str(line.get("timestamp"))[11:19], "/".join(line["span"]["name"])
        own, _, seq = str(line.get("identifier")).rpartition(".")
        here = own == run and seq.isdecimal()
        cells, notes = (at, str(content["kind"]), path, _told(content)), dict(line.get("annotations") or {})
        return FormRow(cells, run if here else "", int(seq) if here else None, notes)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return FormRow(("", "", "", text))


def _told(content: dict[str, Any]) -> str:
    match content:
        case {"kind": "tool-call", "tool_name": name, "tool_args": dict(args)}:
            return call_text(name, args)
        case {"kind": "request-header"}:
            number = len(content.get("tools") or ())
            return f"{number} tool{'' if number == 1 else 's'}, {observation_text(content.get('meta'))}"
        case {"kind": "key-value", "key": key}:
            return f"{key} = {observation_text(content.get('value'))}"
        case {"kind": "edge", "source": list(source), "dest": list(dest)}:
            return f"{'/'.join(source)} → {'/'.join(dest)} {observation_text(content.get('payload'))}"
        case _:
            named = (content[name] for name in ("value", "output", "tool_result", "state") if name in content)
            return observation_text(next(named, ""))


# ------------------------------------------------------------------------------------------------------- steps
def step_lines(entries: list[Entry]) -> list[str]:
    """Return a run as LangChain's tool steps and final answers, each as one JSON text."""
    return [to_lc(step) for step in steps(entries)]


def actions(entries: list[Entry]) -> Form:
    """Return a run as a table of tool calls, their results and final answers, under LangChain's class names."""
    rows = [each for turn in _turns(entries) for each in turn]
    return Form(("turn", "entry", "shape", "content"), rows)


def _turns(entries: list[Entry]) -> Iterator[Iterator[FormRow]]:
    """Yield the table rows of each turn, as one iterator per turn. Turn 0 has the entries before the first turn."""
    begins = [n for n, each in enumerate(entries) if isinstance(each.content, BeginContent)]
    begins = [n for n in begins if getattr(entries[n].content, "role", None) == "turn"]
    known = {step.action.entry: step.action for step in steps(entries) if isinstance(step, AgentStep)}
    for turn, (start, end) in enumerate(zip([0, *begins], [*begins, len(entries)], strict=True)):
        yield _shapes(turn, _steps(entries[start:end], known))


def _steps(entries: list[Entry], known: dict[str | None, AgentAction]) -> list[AgentStep | AgentFinish]:
    """Return the steps (tool calls with their results) and the final answers of one turn.

    A result in this turn may answer a call of an earlier turn. Its step then gets the call's action from `known`, whose
    keys are the entry ids of calls.
    """
    found, seqs = steps(entries), {entry.seq for entry in entries}
    results = [(each.run, each.content.call) for each in entries if isinstance(each.content, ToolResultContent)]
    strays = [n for n, each in enumerate(found) if isinstance(each, AgentStep) and each.action.entry is None]
    earlier = [f"{run}.{call}" for run, call in results if call is not None and call not in seqs]
    for n, call in zip(strays, earlier, strict=True) if len(strays) == len(earlier) else ():
        stray = found[n]
        if isinstance(stray, AgentStep) and call in known:
            found[n] = AgentStep(known[call], stray.observation, "late")
    return found


def _shapes(turn: int, found: list[AgentStep | AgentFinish]) -> Iterator[FormRow]:
    """Yield the table rows of one turn. The text of a model's reply has its own row, above the reply's tool calls."""
    number = str(turn or "")
    for item in rounds(found):
        if isinstance(item, AgentFinish):
            yield FormRow((number, "", "AgentFinish", observation_text(item.return_values.get("output"))))
            continue
        every = [item] if isinstance(item, AgentStep) else [item.steps[n] for n in sorted(item.steps)]
        if isinstance(item, Round) and (said := _said(item, len(every))) is not None:
            yield FormRow((number, "", "log", said))
        for step in every:
            action = step.action
            run, _, seq = (action.entry or "").rpartition(".")
            at = int(seq) if seq.isdecimal() else None
            told = f"{action.tool} {observation_text(action.tool_input)}"
            yield FormRow((number, seq, type(action).__name__, told), run, at)
            outcome = f"{step.outcome}: " if step.outcome not in (None, "ok", "unanswered") else ""
            yield FormRow((number, seq, "AgentStep", outcome + observation_text(step.observation)), run, at)


def _said(item: Round, number: int) -> str | None:
    """Return the text of a model's reply; `None` if it has none. If it asked for several actions, the text says so.

    Args:
        item: the actions that the reply asked for.
        number: number of these actions.
    """
    if not isinstance(item.first, AgentActionMessageLog):
        return item.first.log
    text = "\n".join(observation_text(message.content) for message in item.first.messages).strip()
    shared = f"({number} actions share this message)" if number > 1 else ""
    return "\n".join(part for part in (text, shared) if part) or None


# -------------------------------------------------------------------------------------------------------- task
def task_lines(entries: list[Entry]) -> list[dict[str, Any]]:
    """Return a run as the lines of Langroid's task log, each as a dict."""
    found = task_log(entries)
    return [each.cells() | {"mark": each.mark, "depth": each.depth, "run": each.run, "seq": each.seq} for each in found]


def task(entries: list[Entry]) -> Form:
    """Return a run as a table with the lines of Langroid's task log. Names of sub-tasks are indented."""
    found = task_log(entries)
    cells = [each.cells() | {"task": "  " * each.depth + each.task} for each in found]
    kept = tuple(name for name in PAGE if any(each[name] for each in cells))
    rows = [
        FormRow(tuple(each[name] for name in kept), own.run, own.seq) for each, own in zip(cells, found, strict=True)
    ]
    return Form(kept, rows)


# --------------------------------------------------------------------------------------------- react and codeact
def history(formatter: HistoryFormatter) -> Callable[[list[Entry]], Form]:
    """Return a function that shows a run as a table of KodeAgent messages, which `formatter` builds.

    Each message becomes one or more rows: thought, action and arguments (or code), observation, answer.
    """

    def rows(entries: list[Entry]) -> Form:
        found = []
        for message, sources in formatter.sourced(entries):
            at = sources[-1] if sources else None
            found += [FormRow(cells, entries[0].run if at else "", at) for cells in _message(message)]
        return Form(("", "content"), found)

    return rows


def history_lines(formatter: HistoryFormatter) -> Callable[[list[Entry]], list[dict[str, Any]]]:
    """Return a function that converts a run's entries to KodeAgent messages, as dicts. `formatter` builds them."""
    return lambda entries: [dict(message) for message in formatter.history(entries)]


def _message(message: LLMMessage) -> Iterator[Cells]:
    """Yield the table rows of one KodeAgent message."""
    text = text_of(message.get("content"))
    match message:
        case {"tool_calls": [{"function": {"name": name, "arguments": arguments}}, *_]}:
            if text:
                yield "thought", text
            if message.get("_code"):
                yield "code", str(message["_code"])
            else:
                yield "action", name
                yield "args", arguments
        case {"role": "assistant"}:
            yield "answer", text
        case {"role": "tool"}:
            yield "observation", text
        case _:
            yield str(message.get("role")), text


# ------------------------------------------------------------------------------------------------------- forms
class Shape(Struct, frozen=True):
    """One form: the functions that make its table and its data from the entries of a run."""

    form: Callable[[list[Entry]], Form]
    """Returns the table for people."""
    lines: Callable[[list[Entry]], Iterable[Any]]
    """Returns the data that the other system reads, as JSON texts or as dicts."""
    below: bool = False
    """Whether the form also shows child runs, which are runs that this run started, and their child runs."""

    async def entries(self, record: Record, row: RunRow) -> list[Entry]:
        """Return the entries of a run. If `self.below` is set, return those of its child runs too.

        Raises NoRun if there are no entries.

        Other async tasks can run while the entries are read.
        """
        runs = [row.run]
        rows = await record.store.runs() if self.below else []
        for run in runs:
            runs += [each.run for each in rows if each.parent_run == run and each.run not in runs]
        found = [entry for run in runs async for page in pages(record.store, run) for entry in page]
        if not found:
            raise NoRun(row.run, [each.run for each in await record.store.runs()])
        return found


REACT, CODEACT = ReActHistoryFormatter(), CodeActHistoryFormatter()
FORMS = {
    "activity": Shape(activity, run_lines),
    "steps": Shape(actions, step_lines),
    "task": Shape(task, task_lines, below=True),
    "react": Shape(history(REACT), history_lines(REACT)),
    "codeact": Shape(history(CODEACT), history_lines(CODEACT)),
}
"""The forms by name."""
