"""Compares a record whose processes were killed with the crash test's own log, and reports the differences.

An effect is what a tool does to the world outside. It is assumed to have happened if the tool's function returned, or
if the process died inside the function, unless the tool's `reconcile` later said that it did not happen. The effect of
a transactional tool happened if its transaction was committed.

A record is the store of all runs. A turn is one message and everything up to its answer. A doubt is a call that may or
may not have happened: its attempt is on record, and its outcome is not. A letter is a message or an approval for a run,
and waits in its inbox. A seq is the number of an entry in its run.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct, field

from gesta.demo.facts import bought_again
from gesta.entry import Entry
from gesta.kinds import AttemptContent, EndContent, FaultContent, ResolutionContent, ToolCallContent, ToolResultContent
from gesta.record.record import Record
from gesta.state.calls import UNSTARTED
from gesta.testing.crashes.witness import Line, Strike, Written

OPEN = "open"
"""Value of `settled` for a doubt that is not resolved."""
NOTHING = "nothing that it names"
ADDED = ("sent_at", "refused")
"""Members of an answer on record that its letter lacked: when it was sent, and why it is not accepted."""
STRUCK = get_args(Strike)
Entries = dict[tuple[str, int], Entry]
"""The entries of all runs, by run and seq."""
Fired = dict[tuple[str, str, str], int]
"""The number of effects of each call. A call is named by tool, effect policy and idempotency key."""


class ToolCount(Struct, kw_only=True):
    """How often a tool was called, and how often its effect happened."""

    effect: str
    """The tool's effect policy, such as `once`."""
    calls: int = 0
    """Number of calls whose function was started at least once."""
    fired: int = 0
    """Number of effects of all calls."""
    max_fired: int = 0
    """Greatest number of effects of a single call."""


class Doubt(Struct, frozen=True, kw_only=True):
    """An attempt of a tool call whose outcome was unknown when the turn was resumed."""

    tool: str
    run: str
    attempt: int
    killed: str
    """The point at which the attempt's process was killed, or the error that interrupted the attempt."""
    settled: str
    """How the doubt ended, as text: `settled by` and a name, `the model was told`, or `open`."""


class Report(Struct, kw_only=True):
    """What a crash test found: effects, doubts, and how turns ended."""

    agents: int = 0
    records: int = 0
    points: int = 0
    """Number of points that a process passes if it is not killed."""
    kills: int = 0
    cancels: int = 0
    """Number of turns that were cancelled while their process went on."""
    failed_writes: int = 0
    """Number of writes that were made to fail once while their process went on."""
    tools: dict[str, ToolCount] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    acknowledged: int = 0
    """Number of entries whose commit had returned, and of letters that the store had accepted."""
    missing: list[str] = field(default_factory=list)
    """A text for each acknowledged entry or letter that the record lacks."""
    turns: dict[str, int] = field(default_factory=dict)
    """Number of turns for each way in which they ended, or wait."""
    bought_again: int = 0
    """Number of requests that were sent to a model although the same request had been answered."""
    killed_at: dict[str, int] = field(default_factory=dict)
    """Number of kills, cancellations and failed writes at each point."""
    wrong: list[str] = field(default_factory=list)
    """A text for each promise of Gesta that was broken, such as an effect that happened twice."""

    @property
    def ok(self) -> bool:
        """Whether every promise of Gesta was kept, so that `wrong` is empty."""
        return not self.wrong

    def add(self, other: "Report") -> None:
        """Add the findings of another report to this one."""
        for name in ("agents", "records", "kills", "cancels", "failed_writes", "acknowledged", "bought_again"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("doubts", "missing", "wrong"):
            getattr(self, name).extend(getattr(other, name))
        for name in ("turns", "killed_at"):
            setattr(self, name, dict(Counter(getattr(self, name)) + Counter(getattr(other, name))))
        self.points = max(self.points, other.points)
        for name, count in other.tools.items():
            mine = self.tools.setdefault(name, ToolCount(effect=count.effect))
            mine.calls += count.calls
            mine.fired += count.fired
            mine.max_fired = max(mine.max_fired, count.max_fired)


async def judge(record: Record, lines: Sequence[Line], session: str) -> Report:
    """Compare one session of a record with the test's log, and return the report."""
    rows = await record.store.runs(session)
    entries = {(row.run, entry.seq): entry for row in rows for entry in await record.read(row.run)}
    found = Report(records=1, kills=sum(line.what == "killed" for line in lines))
    found.cancels = sum(line.what == "cancelled" for line in lines)
    found.failed_writes = sum(line.what == "failed" for line in lines)
    found.points = max((line.points for line in lines), default=0)
    found.killed_at = dict(Counter(line.point for line in lines if line.what in STRUCK))
    fired = _fired(lines, entries)
    found.tools = _tools(fired)
    found.missing, doubled = await _letters(record, lines)
    found.missing += _missing(lines, entries)
    found.acknowledged = sum(len(line.entries) for line in lines if line.what == "committed")
    found.acknowledged += sum(line.what == "sent" for line in lines)
    found.turns = dict(Counter(_ends(lines)))
    found.bought_again = sum(bought_again([one for (of, _), one in entries.items() if of == row.run]) for row in rows)
    doubts = Doubts(lines, entries)
    found.doubts = doubts.found
    found.wrong = [*_twice(fired), *_early(lines), *doubts.wrong, *doubled]
    found.wrong += [f"acknowledged and not in the record: {each}" for each in found.missing]
    found.wrong += [f"{found.bought_again} answers of a model were bought again"] if found.bought_again else []
    found.wrong += [f"a turn waits for {NOTHING}"] if f"waiting for {NOTHING}" in found.turns else []
    return found


def _committed(lines: Iterable[Line]) -> set[tuple[int, str, int]]:
    seen = [line for line in lines if line.what == "committed"]
    return {(line.life, line.run, entry.seq) for line in seen for entry in line.entries}


def _fired(lines: Sequence[Line], entries: Entries) -> Fired:
    """Return the number of effects of each call."""
    fired: Fired = defaultdict(int)
    inside: dict[tuple[str, str, str], set[tuple[int, int]]] = defaultdict(set)
    begun = [(line, each) for line in lines if line.what == "committing" for each in line.entries]
    committed = {(line.life, line.run, each.seq) for line, each in begun if _there(entries, line.run, each)}
    for line in lines:
        call, attempt = (line.tool, line.effect, line.key), (line.life, line.attempt)
        if line.what == "started":
            fired[call] += 0
            inside[call].add(attempt)
        elif line.what in ("returned", "raised"):
            inside[call].discard(attempt)
            here = line.effect != "transactional" or (line.life, line.run, line.attempt) in committed
            fired[call] += line.what == "returned" and here
        elif line.what == "undone":
            inside = defaultdict(set, {each: those for each, those in inside.items() if each[2] != line.key})
    for call, those in inside.items():
        fired[call] += len(those) if call[1] != "transactional" else 0
    return fired


def _there(entries: Entries, run: str, one: Written) -> bool:
    found = entries.get((run, one.seq))
    return found is not None and found.digest.hex() == one.digest


def _tools(fired: Fired) -> dict[str, ToolCount]:
    counts: dict[str, ToolCount] = {}
    for (tool, effect, _), times in sorted(fired.items()):
        count = counts.setdefault(tool, ToolCount(effect=effect))
        count.calls += 1
        count.fired += times
        count.max_fired = max(count.max_fired, times)
    return counts


def _twice(fired: Fired) -> list[str]:
    return [
        f"{tool} ({effect}) fired {times} times for the call {key:.12}"
        for (tool, effect, key), times in fired.items()
        if times > 1 and effect in ("once", "transactional")
    ]


def _early(lines: Sequence[Line]) -> list[str]:
    """Return a text for each effect that began before the `attempt` entry about it was committed.

    That must not happen: after a crash, the record would not show that the effect may have happened.
    """
    wrong, known = [], set[tuple[int, str, int]]()
    for line in lines:
        if line.what == "committed":
            known |= {(line.life, line.run, entry.seq) for entry in line.entries}
        elif line.what == "started" and line.effect != "transactional":
            early = (line.life, line.run, line.attempt) not in known
            wrong += [f"{line.tool} began before its attempt {line.run}.{line.attempt} was committed"] if early else []
    return wrong


def _missing(lines: Sequence[Line], entries: Entries) -> list[str]:
    return [
        f"entry {line.run}.{each.seq} ({each.kind})"
        for line in lines
        if line.what == "committed"
        for each in line.entries
        if not _there(entries, line.run, each)
    ]


async def _letters(record: Record, lines: Sequence[Line]) -> tuple[list[str], list[str]]:
    """Return a text for each letter that was lost, and a text for each letter that is stored more than once.

    Letters with late tool results are not checked, because their content may change when it becomes an entry.
    """
    missing, doubled, sent = [], [], [line.letter for line in lines if line.letter is not None]
    same = Counter((letter.run, _said(letter.content)) for letter in sent)
    found = Counter[tuple[str, str]]()
    for run in {letter.run for letter in sent}:
        found.update((run, _said(each.content)) for each in await record.store.inbox(run))
        found.update((run, _said(row.content)) for row in await record.store.read(run) if row.content is not None)
    for letter in sent:
        place = letter.run, _said(letter.content)
        late = letter.key.startswith("late-")
        if not late and found[place] < same[place]:
            missing.append(f"letter {letter.key!r} to {letter.run}")
        if not late and found[place] > same[place]:
            doubled.append(f"letter {letter.key!r} to {letter.run} was taken in {found[place]} times")
    return missing, doubled


def _said(content: str) -> str:
    """Return the content of a letter or an entry as JSON, without the members that only an entry has (`ADDED`)."""
    told = msgspec.json.decode(content)
    return msgspec.json.encode(
        {name: value for name, value in told.items() if name not in ADDED}, order="sorted"
    ).decode()


def _ends(lines: Sequence[Line]) -> list[str]:
    """Return how each turn ended or what it waits for, from the last line about the turn."""
    last = {line.key: line for line in lines if line.what == "ended"}
    return [
        f"waiting for {', '.join(line.waits) or NOTHING}" if line.reason == "waiting" else line.reason
        for line in last.values()
    ]


class Doubts:
    """The doubts in a record. `wrong` describes doubts that should not exist, such as a doubt without a kill.

    An attempt is no doubt if its fault says that the tool was not begun. `wrong` has it if the tool began all the same.
    """

    def __init__(self, lines: Sequence[Line], entries: Entries) -> None:
        self.found: list[Doubt] = []
        self.wrong: list[str] = []
        self._committed = _committed(lines)
        self._started = {(line.run, line.attempt) for line in lines if line.what == "started"}
        self._deaths = {line.life: line.point for line in lines if line.what in STRUCK}
        self._lives = {
            (line.run, each.seq, each.digest): line.life
            for line in lines
            if line.what == "committing"
            for each in line.entries
        }
        by_run: dict[str, list[Entry]] = defaultdict(list)
        for (run, _), entry in entries.items():
            by_run[run].append(entry)
        for run, those in by_run.items():
            self._judge(run, those)

    def _judge(self, run: str, entries: Sequence[Entry]) -> None:
        calls = {each.seq: each.content for each in entries if isinstance(each.content, ToolCallContent)}
        results = _first_about(entries, ToolResultContent, "call")
        settled, faults = _first_about(entries, ResolutionContent, "of"), _first_about(entries, FaultContent, "of")
        tried = [each for each in entries if isinstance(each.content, AttemptContent)]
        last = {each.content.of: each.seq for each in tried if isinstance(each.content, AttemptContent)}
        ends = [each for each in entries if isinstance(each.content, EndContent) and each.content.reason == "answered"]
        answered = max((each.seq for each in ends), default=0)
        for attempt in tried:
            assert isinstance(attempt.content, AttemptContent)
            call, result, fault = attempt.content.of, results.get(attempt.content.of), faults.get(attempt.seq)
            if fault is not None and fault.content.error.type == UNSTARTED:
                if (run, attempt.seq) in self._started:
                    which = f"attempt {run}.{attempt.seq}"
                    self.wrong.append(f"{calls[call].tool_name} began, but not by its record ({which})")
                continue
            once = attempt.content.effect == "once"
            by = settled.get(attempt.seq)
            told = result is not None and result.content.outcome == "unknown" and last[call] == attempt.seq
            open_ = result is None and last[call] == attempt.seq
            if not once or not (by is not None or told or open_):
                continue
            how = f"settled by {by.content.by}" if by is not None else "the model was told" if told else OPEN
            death = self._death(run, attempt, result)
            if death is None and (fault is None or fault.content.error.type not in ("timeout", "cancelled", "InDoubt")):
                self.wrong.append(f"{calls[call].tool_name} is in doubt (attempt {run}.{attempt.seq}) without a kill")
            if how == OPEN and attempt.seq < answered:
                self.wrong.append(f"{calls[call].tool_name} is in doubt (attempt {run}.{attempt.seq}) below an answer")
            killed = death or (fault.content.error.type if fault is not None else "nowhere")
            self.found.append(
                Doubt(tool=calls[call].tool_name, run=run, attempt=attempt.seq, killed=killed, settled=how)
            )

    def _death(self, run: str, attempt: Entry, result: Any) -> str | None:
        """Return the point at which an attempt's process was killed or cancelled before the result was committed.

        Return `None` if neither happened.

        Args:
            result: the entry with the result of the call; `None` if there is none.
        """
        life = self._lives.get((run, attempt.seq, attempt.digest.hex()))
        if life is None or life not in self._deaths:
            return None
        if result is not None and (life, run, result.seq) in self._committed:
            return None
        return self._deaths[life]


def _first_about(entries: Sequence[Entry], kind: type, of: str) -> dict[int, Any]:
    """Return the entries of one kind, such as results, by the seq of the entry (such as a call) that each is about.

    If several entries are about the same entry, only the first of them is returned.

    Args:
        kind: class of the content.
        of: field of the content with the seq of the entry that it is about.
    """
    found: dict[int, Any] = {}
    for entry in entries:
        if isinstance(entry.content, kind):
            found.setdefault(getattr(entry.content, of), entry)
    return found
