"""Implements the commands `replay`, `fork`, `diff` and `case`.

A record is the store of all runs, and a run is the list of entries of one conversation of an agent. A turn is one
message with all that follows until its answer. A replay runs an agent's code again with the recorded answers of models
and tools. A fork is a new run that shares the first entries of another run. A case is a run that pytest replays.
"""

import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from msgspec import to_builtins
from msgspec.structs import replace

from gesta.address import open_record
from gesta.agent import Agent
from gesta.cli.compare_options import CaseOptions, DiffOptions, ForkOptions, ReplayOptions
from gesta.cli.driving import CODES
from gesta.cli.files import write_whole
from gesta.cli.layout import table
from gesta.cli.loading import load, with_model, with_servers
from gesta.cli.options import quoted
from gesta.cli.pages import reading
from gesta.cli.talk import (
    BOLD,
    DIM,
    FAILED,
    WAITING,
    Stop,
    complain,
    count,
    dollars,
    harmless,
    json_line,
    put,
    put_all,
    say,
    short,
    styled,
)
from gesta.cli.waits import settling, why_forked
from gesta.compare import cases, differences, forks
from gesta.compare.offered import offered_names
from gesta.compare.replaying import How, Replayed, Runs, replay_run
from gesta.compare.words import call_text, divergence_lines, plain, sides
from gesta.entry import Entry
from gesta.errors import AgentError, GestaError
from gesta.events import Outcome
from gesta.kinds import ToolCallContent
from gesta.record.record import Record
from gesta.store import RunRow


def replay(options: ReplayOptions) -> int:
    """Replay a run and the runs that it started, and return the exit code.

    The first difference from the recorded entries is printed.
    """
    agent = load(options.agent)

    async def work(record: Record) -> tuple[Replayed, Runs]:
        run = (await record.find(options.run)).run
        runs = await cases.taken(record, run)
        _check_replayed(options.live or (), agent, runs)
        with redirect_stdout(sys.stderr):
            return await replay_run(runs, run, agent, How(live=options.live or ())), runs

    found, runs = reading(options, work)
    first, every = found.first, found.every()
    entries = sum(each.entries for each in every)
    if options.json:
        put(json_line({"run": found.run, "runs": len(every), "entries": entries, "diverged": _divergence(first)}))
    elif first is None:
        below = f" and {count(len(every) - 1, 'run')} below it" if len(every) > 1 else ""
        put(harmless(f"run {found.run}{below}: {count(entries, 'entry')}, all the same. Nothing was done."))
    else:
        put_all(map(harmless, divergence_lines(first, list(runs[first.run]))))
    return FAILED if first is not None else 0


def _divergence(found: Any) -> dict[str, Any] | None:
    if found is None:
        return None
    where = {"run": found.run, "seq": found.seq, "path": found.difference.path}
    return where | {"recorded": plain(found.difference.before), "replayed": plain(found.difference.after)}


@dataclass(frozen=True)
class Fork:
    """A new fork, the run that it was made from, and whether a turn was run on it."""

    base: RunRow
    run: RunRow
    went_on: bool


def fork(options: ForkOptions) -> int:
    """Make a fork. If the options name an agent, run the agent on the fork. Returns the exit code."""
    if options.agent is None and (options.model or options.base_url or options.instructions or options.mcp):
        raise Stop(
            "--model, --base-url, --instructions and --mcp are for the agent that goes on. Name it: gesta fork RUN "
            "FILE.py:NAME ..."
        )
    agent = load(options.agent) if options.agent is not None else None
    if agent is not None:
        (agent,) = with_servers([agent], options.mcp)
    if agent is not None and options.instructions is not None:
        if agent.program is not None and agent.model == "":
            raise Stop(f"--instructions: {agent.name!r} is a program without a model, so nothing would read them.")
        agent = replace(agent, instructions=_text(options.instructions))
    how = forks.Fork(
        at=options.at,
        changes=[_usage(forks.change, text) for text in options.set or ()],
        live=options.live or (),
        session=options.session,
    )

    async def work() -> tuple[Fork, Outcome | None, list[int]]:
        async with open_record(options.target()) as record:
            base = await record.find(options.run)
            if agent is not None and how.live:
                _check_live(how.live, agent, await record.read(base.run))
            acting = await _acting(record, base, agent, options) if agent is not None else None
            try:
                made = await forks.fork(record, base, how)
            except AgentError as error:
                raise Stop(str(error)) from error
            with redirect_stdout(sys.stderr):
                ended = await forks.go_on(record, made, acting) if acting is not None else None
            guessed = options.model == "recorded" and ended is not None
            entries = [await record.read(run) for run in (base.run, made.run)] if guessed else [[], []]
            now = await record.find(made.run)
            return Fork(base, now, now.head > made.head), ended, forks.asked_otherwise(*entries)

    made, ended, guesses = anyio.run(work)
    _told(options, made, ended, guesses)
    return 0 if ended is None else WAITING if ended.end is None else CODES[ended.reason]


def _check_live(live: Sequence[str], agent: Agent, base: Sequence[Entry]) -> None:
    """Raise Stop if a name in `live`, the option `--live`, is no tool of the agent.

    Args:
        base: the entries of the run from which the fork is made. They name the tools that the agent's servers offered.
    """
    names = [tool.name for tool in agent.tools]
    if agent.sources:
        names += [name for name in offered_names(base) if name not in names]
    for name in live:
        if name not in names:
            found = f"{agent.name!r} has no such tool"
            found += f", and no server offered it in run {base[0].run}" if agent.sources else ""
            raise Stop(f"--live {name}: {found}. It has: {', '.join(names)}.")


def _check_replayed(live: Sequence[str], agent: Agent, runs: Runs) -> None:
    """Raise Stop if a name in `live` is not a tool of the agent or of agents below it, nor called in the runs."""
    entries = [entry for each in runs.values() for entry in each]
    names = {each.content.tool_name for each in entries if isinstance(each.content, ToolCallContent)}
    names.update(offered_names(entries))
    agents = [agent]
    for each in agents:
        names.update(tool.name for tool in each.tools)
        agents += [tool.agent for tool in each.tools if tool.agent is not None and tool.agent not in agents]
    for name in live if agent.program is None else ():
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise Stop(f"--live {name}: no tool of {agent.name!r} or of the run has this name. There are: {known}.")


def _text(given: str) -> str:
    """Return the value of an option; for `@FILE`, the content of that file. Raises Stop if the file cannot be read."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise Stop(
            f"Cannot read {given[1:]!r}: {error.strerror or error}. Name another file, or write the text itself."
        ) from error


def _usage(read: Any, text: str) -> Any:
    try:
        return read(text)
    except AgentError as error:
        raise Stop(str(error)) from error


async def _acting(record: Record, base: RunRow, agent: Agent, options: ForkOptions) -> Agent:
    if options.model == "recorded":
        return forks.recorded_model(await record.read(base.run), agent)
    return with_model(agent, options.model, options.base_url)


def _told(options: ForkOptions, fork: Fork, ended: Outcome | None, guesses: list[int]) -> None:
    """Print how the turn of a fork ended, and the next command to type.

    Args:
        ended: the outcome of the turn; `None` if no turn was run.
        guesses: seqs (entry numbers) of the fork's requests that the run it was forked from never sent. No answer to
            them is on record, so the recorded model repeated an answer to another request.
    """
    base, made = fork.base, fork.run
    if ended is not None and ended.end is not None and not fork.went_on:
        say(
            f"Nothing was asked: the fork shares all of run {base.run}, which had ended. This is how it ended there. "
            "Fork it from earlier, or change an entry: --at SEQ, --set SEQ.PATH=VALUE"
        )
    if options.json:
        facts = {"run": made.run, "session": made.session, "base": base.run, "entries": made.head}
        told = {} if ended is None else {"reason": ended.reason, "answer": ended.answer}
        waits = [] if ended is None else [to_builtins(each) for each in ended.waiting]
        put(json_line({**facts, **told, "waiting": waits, "asked_otherwise": guesses}))
        return
    if ended is not None and ended.answer is not None:
        put(harmless(ended.answer))
    say(f"fork {made.run}, session {made.session}: goes on from run {base.run}", DIM)
    if guesses:
        say(
            f"The recorded model was asked {count(len(guesses), 'time')} what it was not asked in run {base.run} "
            f"(first by request {guesses[0]}). It said what it had said there in its turn."
        )
    for each in ended.waiting if ended is not None else ():
        say(f"It stops here: {why_forked(each, base.run)}")
    agent, named = f" {quoted(options.agent)}" if options.agent else " FILE.py:NAME", options.named
    agent += "".join(f" --mcp {quoted(each)}" for each in options.mcp or ())
    if ended is None:
        say(f"Go on with: gesta resume {made.run}{agent}{named}")
    elif ended.end is None:
        blocked = ended.waiting
        begin = "Let it happen with" if all(each.what == "approval" for each in blocked) else "Go on with"
        say(f"{begin}: {' && '.join([*settling(blocked, named), f'gesta resume {made.run}{agent}{named}'])}")
    say(f"Compare them with: gesta diff {base.run} {made.run}{named}", DIM)


def diff(options: DiffOptions) -> None:
    """Compare two runs, and print their differences."""

    async def work(record: Record) -> list[list[Entry]]:
        return [await record.read((await record.find(name)).run) for name in (options.run, options.other)]

    before, after = reading(options, work)
    found = differences.compare(before, after)
    if options.json:
        put(json_line(_as_json(found)))
        return
    put(f"{count(found.alike, 'entry')} alike from the first on")
    for step in found.steps:
        put_all(map(harmless, _step(step)))
    put("")
    put_all(_facts(found))


def _step(step: differences.Step) -> list[str]:
    """Return the lines that show one difference: an entry that was changed, removed or added."""
    if step.before is not None and step.after is not None:
        lines = [f"~ {step.before.seq} → {step.after.seq} {step.before.kind}"]
        for each in step.differences:
            lines += [f"    {each.path}", *(f"    {mark} {text}" for mark, text in sides(each))]
        return lines
    mark, entry = ("-", step.before) if step.before is not None else ("+", step.after)
    assert entry is not None
    return [f"{mark} {entry.seq} {entry.kind} {short(_content(entry), 100)}"]


def _content(entry: Entry) -> str:
    found = {key: value for key, value in differences.said(entry).items() if key != "kind"}
    return call_text("", found)


def _facts(found: differences.Compared) -> list[str]:
    """Return a table that shows outcome, answer, calls and cost of both runs side by side."""
    rows = []
    for name, show in FACTS.items():
        one, other = show(found.before), show(found.after)
        rows.append((name, short(one, 60), "=" if one == other else short(other, 60)))
    heading, *lines = table(("", found.before.run, found.after.run), rows)
    return [styled(heading, BOLD, sys.stdout), *map(harmless, lines)]


def _effects(facts: differences.Facts) -> str:
    return "; ".join(f"{call_text(each.tool, each.args)}{_mark(each)}" for each in facts.effects)


def _mark(effect: differences.Effect) -> str:
    """Return a note for a call whose tool did not run: `[not done]` or `[from the record]`; an empty text if it ran."""
    if effect.fired:
        return ""
    return " [not done]" if effect.outcome is None else " [from the record]"


FACTS: dict[str, Any] = {
    "ended": lambda facts: ", ".join(facts.reasons) or "open",
    "answer": lambda facts: facts.answers[-1] if facts.answers else "",
    "calls": _effects,
    "fired": lambda facts: str(sum(each.fired for each in facts.effects)),
    "entries": lambda facts: f"{facts.entries:,}",
    "requests": lambda facts: f"{facts.requests:,}",
    "tokens": lambda facts: (
        f"{facts.tokens_in:,} in, {facts.tokens_out:,} out"
        + (f", {facts.unknown_usage:,} replies uncounted" if facts.unknown_usage else "")
    ),
    "cost": lambda facts: dollars(facts.usd),
}
"""The rows of the comparison: the name of each, and a function that makes its text from the facts about a run."""


def _as_json(found: differences.Compared) -> dict[str, Any]:
    steps = [
        {
            "before": step.before.seq if step.before is not None else None,
            "after": step.after.seq if step.after is not None else None,
            "kind": str((step.before or step.after).kind),  # type: ignore[union-attr]
            "differences": [
                {"path": each.path, "before": plain(each.before), "after": plain(each.after)}
                for each in step.differences
            ],
        }
        for step in found.steps
    ]
    return {
        "alike": found.alike,
        "steps": steps,
        "before": to_builtins(found.before, enc_hook=repr),
        "after": to_builtins(found.after, enc_hook=repr),
    }


def case(options: CaseOptions) -> int:
    """Add a case, or update cases with the results of the present code. Returns the exit code."""
    return _add(options) if options.what == "add" else _accept(options)


def _add(options: CaseOptions) -> int:
    if len(options.words) != 2:
        raise Stop("Name a run and the agent whose code it is: gesta case add last agent.py:agent")
    named, address = options.words
    agent = load(address)

    async def work(record: Record) -> tuple[RunRow, cases.Case, list[str]]:
        row = await record.find(named)
        head = cases.Head(agent=address, run=row.run, live=list(options.live or ()))
        made = cases.Case(head, await cases.taken(record, row.run))
        _check_replayed(options.live or (), agent, made.runs)
        with redirect_stdout(sys.stderr):
            return row, made, await cases.check(made, agent)

    row, made, drift = reading(options, work)
    if drift:
        told = "\n".join(drift)
        raise GestaError(f"The code does not do now what is on record, so this would be a test that fails:\n{told}")
    name = re.sub(r"[^\w.-]+", "-", f"{row.session}-{row.name}").strip("-.") or row.run
    path = Path(options.to) / f"{name}.jsonl"
    text = cases.written(made)
    write_whole(path, text, f"--to {options.to}", parents=True)
    entries = sum(len(each) for each in made.runs.values())
    facts = {"case": str(path), "entries": entries, "bytes": len(text.encode())}
    put(json_line(facts) if options.json else harmless(f"{path}: {count(entries, 'entry')}, {facts['bytes']:,} bytes"))
    return 0


def _accept(options: CaseOptions) -> int:
    found = cases.cases_in([_there(word) for word in options.words])
    if not found:
        raise Stop(
            f"There is no case in {', '.join(options.words)}. Name cases, or the folder that they are in: tests/cases"
        )
    failed = 0
    for path in found:
        old = cases.read(path)
        try:
            text = cases.written(_made(old))
        except GestaError as error:
            failed += 1
            complain(GestaError(f"{path}: {error}"))
            continue
        changed = text != path.read_text(encoding="utf-8")
        write_whole(path, text, str(path))
        facts = {"case": str(path), "changed": changed}
        put(json_line(facts) if options.json else harmless(f"{path}: {'accepted' if changed else 'as it was'}"))
    return FAILED if failed else 0


def _made(old: cases.Case) -> cases.Case:
    agent = load(old.head.agent)
    with redirect_stdout(sys.stderr):
        return anyio.run(cases.accepted, old, agent)


def _there(word: str) -> Path:
    path = Path(word)
    if not path.exists():
        raise Stop(f"No file {word!r} in {Path.cwd()}. Name cases, or the folder that they are in: tests/cases")
    return path
