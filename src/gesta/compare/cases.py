"""A case is a good run that is kept as a test: replayed with the present code, the run must have the same entries.

A run is the recorded list of entries about an agent's work. A replay runs the agent's code again with the recorded
answers. A child run is a run that the run started. A case is a small file of JSON lines: a head, and the entries of the
run and of its child runs. Prompts are not compared; tool results, tool calls and answers are. The recorded bytes of
model replies are left out.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gesta.agent import Agent
from gesta.codec.rows import decode_content, encode_content
from gesta.compare.replaying import How, Runs, replay_run
from gesta.compare.same import difference
from gesta.compare.words import divergence_lines
from gesta.entry import Cause, Entry, utc_text, utc_time
from gesta.errors import AgentError, BrokenRecord
from gesta.kinds import ChatCompletionContent
from gesta.record.record import Record
from gesta.text.redactor import SECRETS

FORMAT = 1
"""Version of the file format."""
MARK = '{"gesta_case":'
"""The text with which every case file begins."""


class Head(Struct, frozen=True, kw_only=True):
    """The first line of a case: the run, the agent that replays it, and the tools that the replay really runs."""

    gesta_case: int = FORMAT
    agent: str
    """Address of the agent: FILE.py:NAME, relative to the folder where the tests run, or dotted.module:NAME."""
    run: str
    live: list[str] = []
    """Names of the tools that a replay really runs. Their new results are compared with the recorded ones."""


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a case after the first: an entry of the run or of a child run."""

    run: str
    seq: int
    at: str
    span: int
    causes: list[Cause] = []
    content: msgspec.Raw
    annotations: dict[str, Any] | None = None


class Case(Struct, frozen=True):
    """A run and its child runs, as read from a case file."""

    head: Head
    runs: Runs


async def taken(record: Record, run: str) -> dict[str, list[Entry]]:
    """Return the entries of a run and of its child runs at any depth, by run id.

    These entries are the content of a new case.
    """
    found, open_ = {run: await record.read(run)}, {run}
    for row in await record.store.runs():  # in the order in which they were opened
        if row.parent_run in open_:
            open_.add(row.run)
            found[row.run] = await record.read(row.run)
    return found


def written(case: Case) -> str:
    """Return a case as the text of its file. Values of secrets in this process's environment are replaced."""
    lines = [msgspec.json.encode(case.head).decode()]
    lines += [_line(entry) for entries in case.runs.values() for entry in entries]
    SECRETS.add_environment(os.environ)
    return SECRETS.text("\n".join(lines) + "\n")


def read(path: str | os.PathLike[str]) -> Case:
    """Read a case from a file. Raises BrokenRecord, which names the first line that cannot be read."""
    runs: dict[str, list[Entry]] = {}
    number = 1
    try:
        head, *lines = Path(path).read_text(encoding="utf-8").splitlines()
        made = msgspec.json.decode(head, type=Head)
        for number, text in enumerate(lines, 2):  # noqa: B007 - told below
            entry = _entry(msgspec.json.decode(text, type=Line))
            if entry.seq != len(runs.setdefault(entry.run, [])) + 1:
                raise ValueError(f"entry {entry.run}.{entry.seq} stands where {len(runs[entry.run]) + 1} was due")
            runs[entry.run].append(entry)
        if made.run not in runs:
            raise ValueError(f"there is no entry of run {made.run!r}")
    except (ValueError, msgspec.MsgspecError, BrokenRecord, RecursionError) as error:
        raise BrokenRecord(str(path), f"line {number}: {error}") from error
    return Case(made, runs)


async def check(case: Case, agent: Agent[Any]) -> list[str]:
    """Replay a case, and return the first difference as lines of text; an empty list if the replay is equal."""
    found = await replay_run(case.runs, case.head.run, agent, How(prompts=False, live=case.head.live))
    first = found.first
    return [] if first is None else divergence_lines(first, list(case.runs[first.run]))


async def accepted(case: Case, agent: Agent[Any]) -> Case:
    """Return the case with new entries: the entries that the present code writes when the case is replayed.

    The new entries must have the same number and kinds as the recorded ones, because no model is asked.

    Raises:
        AgentError: the number or the kinds differ. Run the agent again and add that run as a case.
    """
    how = How(prompts=False, live=case.head.live, moves=True)
    found = await replay_run(case.runs, case.head.run, agent, how)
    if found.first is not None:
        told = "\n".join(divergence_lines(found.first, list(case.runs[found.first.run])))
        raise AgentError(
            f"The code takes other steps, which no model was asked about:\n{told}\n"
            "Run it anew, and add that run: gesta run ..., gesta case add last ..."
        )
    return Case(case.head, {**case.runs, **{each.run: _kept(case.runs[each.run], each.made) for each in found.every()}})


def _kept(before: Sequence[Entry], after: Sequence[Entry]) -> list[Entry]:
    """Return `after`, with the entry of `before` in place of each entry that a comparison finds equal.

    Equal entries may have other times. Keeping the old ones changes fewer lines of the case file.
    """
    pairs = zip(before, after, strict=True)
    return [new if difference(old, new) is not None else old for old, new in pairs]


def _line(entry: Entry) -> str:
    content = entry.content
    if isinstance(content, ChatCompletionContent) and content.meta:
        meta = {name: value for name, value in content.meta.items() if name != "raw_zlib"}
        content = msgspec.structs.replace(content, meta=meta or None)
    line = Line(
        run=entry.run,
        seq=entry.seq,
        at=utc_text(entry.at),
        span=entry.span,
        causes=list(entry.causes),
        content=msgspec.Raw(encode_content(content).encode()),
        annotations=entry.annotations,
    )
    return msgspec.json.encode(line, enc_hook=repr).decode()


def _entry(line: Line) -> Entry:
    return Entry(
        run=line.run,
        seq=line.seq,
        at=utc_time(line.at),
        span=line.span,
        causes=tuple(line.causes),
        content=decode_content(bytes(line.content).decode(), {}),
        annotations=line.annotations,
    )


def cases_in(paths: Iterable[Path]) -> list[Path]:
    """Return the case files among the paths. A folder stands for all files `*.jsonl` in it, at any depth."""
    files = [each for path in paths for each in (sorted(path.rglob("*.jsonl")) if path.is_dir() else [path])]
    return [file for file in files if is_case(file)]


def is_case(path: Path) -> bool:
    """Return whether a file is a case. Only the first characters of the file are read."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(len(MARK)).replace(" ", "") == MARK
