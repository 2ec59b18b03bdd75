"""Makes the output of `log --as`: one run in the forms that other systems use.

`activity` is the form of agent-catalog, `steps` of LangChain, `task` of Langroid, `react` and `codeact` of KodeAgent.
By default the columns fit the page and long texts are folded. With `--json` the form is written as the other system's
own programs read it.
"""

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len, chop_cells

from gesta.cli.layout import fold, page_width, wrap
from gesta.cli.options import LogOptions
from gesta.cli.pages import heading, reading
from gesta.cli.talk import BOLD, Stop, count, harmless, json_harmless, json_line, put, put_all, short, styled
from gesta.cli.voice import call_text
from gesta.compat.agent_catalog.export import export_run
from gesta.compat.kodeagent.codeact import CodeActHistoryFormatter
from gesta.compat.kodeagent.history import HistoryFormatter
from gesta.compat.kodeagent.kutils import text_of
from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.compat.langchain.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from gesta.compat.langchain.lc import to_lc
from gesta.compat.langchain.steps import Round, rounds, steps
from gesta.compat.langroid.task_log import COLUMNS, Row, task_log, tsv
from gesta.entry import Entry
from gesta.errors import nearest
from gesta.kinds import BeginContent, ToolResultContent
from gesta.prompt.formatter import observation_text
from gesta.record.record import Record
from gesta.store import RunRow

FORMATS = ("tsv",)
FEW = 6
"""Greatest number of lines that are shown of a text, unless `--all` is set."""
NOTE = 50
"""Greatest number of characters that are shown of a key-value, because most key-values are for programs only."""
PAGE = ("mark", "task", "responder", "recipient", "tool", "content")
"""Columns of a task that are shown if they hold anything. JSON output has all columns."""
Cells = Sequence[str]


def log(options: LogOptions) -> None:
    """Show a run in another system's form."""
    form = _chosen(options)

    async def show(record: Record) -> None:
        row = await record.find(options.run)
        lines = await FORMS[form](record, row, options)
        if not (options.json or options.format):
            put(styled(harmless(heading(row)), BOLD, sys.stdout))
            put("")
        put_all(lines)

    reading(options, show)


def _chosen(options: LogOptions) -> str:
    """Return the name of the chosen form. Raises Stop if it does not exist or fit another option."""
    form, named = options.form or "task", "--as" if options.form is not None else "--format"
    clashes = {
        f"{named} and --raw": options.raw,
        f"{named} and --follow": options.follow,
        f"{named} and --kinds": options.kinds is not None,
        "--format and --json": options.json and options.format is not None,
    }
    for both, given in clashes.items():
        if given:
            raise Stop(f"{both} do not go together. Leave one of them out.")
    if form not in FORMS:
        raise Stop(f"No form {form!r}.{nearest(form, FORMS)} Forms: {', '.join(FORMS)}.")
    if options.format not in (None, *FORMATS):
        raise Stop(f"No format {options.format!r}.{nearest(options.format or '', FORMATS)} Formats: tsv.")
    if options.format is not None and form != "task":
        raise Stop(f"--format {options.format} is a form of --as task, not of --as {form}.")
    return form


def columns(headings: Cells, rows: Sequence[Cells], *, everything: bool) -> Iterator[str]:
    """Yield rows of cells in aligned columns. The last column is broken into lines.

    Unless `everything` is set, long texts of the last column are folded, and other columns are cut if they take more
    than half of the page.
    """
    if not headings:
        return
    most = page_width()
    rows = [[observation_text(cell) for cell in row] for row in rows]
    *left, last = headings
    cells = [[harmless(cell).replace("\n", "\\n").replace("\t", "\\t") for cell in row[:-1]] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(left, *cells, strict=True)]
    while not everything and sum(widths) + 2 * len(widths) > most // 2:
        widths[widths.index(max(widths))] -= 1
    if any(left):
        yield styled("  ".join([*map(_fitted, left, widths), last]).rstrip(), BOLD, sys.stdout)
    for ours, row in zip(cells, rows, strict=True):
        before = "".join(f"{_fitted(*each)}  " for each in zip(ours, widths, strict=True))
        lines = wrap(harmless(row[-1]).strip("\n"), max(most - cell_len(before), most // 4))
        for place, line in enumerate(fold(lines, None if everything else FEW)):
            yield ((" " * cell_len(before) if place else before) + line).rstrip()


def _fitted(cell: str, width: int) -> str:
    """Return a cell cut or filled to its width."""
    if cell_len(cell) > width:
        cell = f"{chop_cells(cell, width - 3)[0]}..." if width > 4 else chop_cells(cell, width)[0]
    return cell + " " * (width - cell_len(cell))


# ---------------------------------------------------------------------------------------------------- activity
async def activity(record: Record, row: RunRow, options: LogOptions) -> Iterable[str]:
    """Return the run as agent-catalog's activity log."""
    lines = [line.rstrip("\n") async for line in export_run(record, row.run)]
    if options.json:
        return map(json_harmless, lines)
    rows, before = [], dict[str, Any]()
    for line in lines:
        cells, notes = _activity(line)
        *left, told = cells
        if not options.all:
            told = short(told, NOTE) if cells[1] == "key-value" else told
            before, notes = notes, {key: notes[key] for key in notes if notes[key] != before.get(key)}
        said = ", ".join(f"{key}={observation_text(value)}" for key, value in notes.items())
        rows.append((*left, f"{told}\n[{said}]".lstrip("\n") if said else told))
    return columns(("time", "kind", "span", "content"), rows, everything=options.all)


def _activity(text: str) -> tuple[Cells, dict[str, Any]]:
    """Return the cells and the annotations of a line of an activity log. For a line of another form: only its text."""
    try:
        line = json.loads(text)
        content, at, path = line["content"], str(line.get("timestamp"))[11:19], "/".join(line["span"]["name"])
        return (at, str(content["kind"]), path, _told(content)), dict(line.get("annotations") or {})
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return ("", "", "", text), {}


def _told(content: dict[str, Any]) -> str:
    """Return the text to show for the content of an activity log's line."""
    match content:
        case {"kind": "tool-call", "tool_name": name, "tool_args": dict(args)}:
            return call_text(name, args)
        case {"kind": "request-header"}:
            return f"{count(len(content.get('tools') or ()), 'tool')}, {observation_text(content.get('meta'))}"
        case {"kind": "key-value", "key": key}:
            return f"{key} = {observation_text(content.get('value'))}"
        case {"kind": "edge", "source": list(source), "dest": list(dest)}:
            return f"{'/'.join(source)} → {'/'.join(dest)} {observation_text(content.get('payload'))}"
        case _:
            named = (content[name] for name in ("value", "output", "tool_result", "state") if name in content)
            return observation_text(next(named, ""))


# ------------------------------------------------------------------------------------------------------- steps
async def actions(record: Record, row: RunRow, options: LogOptions) -> Iterable[str]:
    """Return the run as LangChain's actions, steps and finishes."""
    entries = await record.read(row.run)
    if options.json:
        return (json_harmless(to_lc(step)) for step in steps(entries))
    rows = [each for turn in _turns(entries) for each in turn]
    return columns(("turn", "entry", "shape", "content"), rows, everything=options.all)


def _turns(entries: list[Entry]) -> Iterator[Iterator[Cells]]:
    """Yield the rows of each turn; turn 0 has the entries before the first turn."""
    begins = [n for n, each in enumerate(entries) if isinstance(each.content, BeginContent)]
    begins = [n for n in begins if getattr(entries[n].content, "role", None) == "turn"]
    known = {step.action.entry: step.action for step in steps(entries) if isinstance(step, AgentStep)}
    for turn, (start, end) in enumerate(zip([0, *begins], [*begins, len(entries)], strict=True)):
        yield _shapes(turn, _steps(entries[start:end], known))


def _steps(entries: list[Entry], known: dict[str | None, AgentAction]) -> list[AgentStep | AgentFinish]:
    """Return the steps of a turn. A late result of a call of an earlier turn becomes a step with that call's action."""
    found, seqs = steps(entries), {entry.seq for entry in entries}
    results = [(each.run, each.content.call) for each in entries if isinstance(each.content, ToolResultContent)]
    strays = [n for n, each in enumerate(found) if isinstance(each, AgentStep) and each.action.entry is None]
    earlier = [f"{run}.{call}" for run, call in results if call is not None and call not in seqs]
    for n, call in zip(strays, earlier, strict=True) if len(strays) == len(earlier) else ():
        stray = found[n]
        if isinstance(stray, AgentStep) and call in known:
            found[n] = AgentStep(known[call], stray.observation, "late")
    return found


def _shapes(turn: int, found: list[AgentStep | AgentFinish]) -> Iterator[Cells]:
    """Yield the rows of some steps. Actions of one reply come below the log of that reply."""
    number = str(turn or "")
    for item in rounds(found):
        if isinstance(item, AgentFinish):
            yield number, "", "AgentFinish", observation_text(item.return_values.get("output"))
            continue
        every = [item] if isinstance(item, AgentStep) else [item.steps[n] for n in sorted(item.steps)]
        if isinstance(item, Round) and (said := _said(item, len(every))) is not None:
            yield number, "", "log", said
        for step in every:
            action = step.action
            seq = (action.entry or "").rpartition(".")[2]
            yield number, seq, type(action).__name__, f"{action.tool} {observation_text(action.tool_input)}"
            outcome = f"{step.outcome}: " if step.outcome not in (None, "ok", "unanswered") else ""
            yield number, seq, "AgentStep", outcome + observation_text(step.observation)


def _said(item: Round, number: int) -> str | None:
    """Return the log from which the actions of a reply were parsed; `None` if it has no text."""
    if not isinstance(item.first, AgentActionMessageLog):
        return item.first.log
    text = "\n".join(observation_text(message.content) for message in item.first.messages).strip()
    shared = f"({number} actions share this message)" if number > 1 else ""
    return "\n".join(part for part in (text, shared) if part) or None


# -------------------------------------------------------------------------------------------------------- task
async def task(record: Record, row: RunRow, options: LogOptions) -> Iterable[str]:
    """Return the lines to print for a task and its sub-tasks."""
    runs, entries = await record.store.runs(), await record.read(row.run)
    below = [row.run]
    for run in below:
        below += [each.run for each in runs if each.parent_run == run and each.run not in below]
    for run in below[1:]:
        entries += await record.read(run)
    found = task_log(entries)
    if options.json:
        return (json_line(_task(each)) for each in found)
    if options.format is not None:
        return (harmless(tsv(cells)) for cells in [COLUMNS, *(each.cells().values() for each in found)])
    cells = [each.cells() | {"task": "  " * each.depth + each.task} for each in found]
    kept = [name for name in PAGE if any(each[name] for each in cells)]
    return columns(kept, [[each[name] for name in kept] for each in cells], everything=options.all)


def _task(row: Row) -> dict[str, Any]:
    return row.cells() | {"mark": row.mark, "depth": row.depth, "run": row.run, "seq": row.seq}


# --------------------------------------------------------------------------------------------- react and codeact
def histories(formatter: HistoryFormatter) -> Callable[[Record, RunRow, LogOptions], Awaitable[Iterable[str]]]:
    """Return a function that shows a run as the history that a formatter makes."""

    async def history(record: Record, row: RunRow, options: LogOptions) -> Iterable[str]:
        messages = formatter.history(await record.read(row.run))
        if options.json:
            return (json_line(dict(message)) for message in messages)
        rows = [cells for message in messages for cells in _message(message)]
        return columns(("", "content"), rows, everything=options.all)

    return history


def _message(message: LLMMessage) -> Iterator[Cells]:
    """Yield the rows of a message: thought, action and arguments, or code; observation; answer."""
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


FORMS: dict[str, Callable[[Record, RunRow, LogOptions], Awaitable[Iterable[str]]]] = {
    "activity": activity,
    "steps": actions,
    "task": task,
    "react": histories(ReActHistoryFormatter()),
    "codeact": histories(CodeActHistoryFormatter()),
}
"""The function that makes each form, by the name of the form."""
