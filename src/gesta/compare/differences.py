"""Compares two runs: the equal entries at their beginning, the differences after that, and the results of each run.

Entries are paired by their content, not by their seqs (their numbers in the run). An entry that only follows from
another one, as a request does, is not compared. A fork is a run that continues another run, its base, from one of its
entries. A turn is the work on one message.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

from msgspec import Struct

from gesta.compare.outside import begins_turn
from gesta.compare.same import Difference, counted, differences
from gesta.entry import Entry
from gesta.kinds import (
    AssistantContent,
    AttemptContent,
    BeginContent,
    ChatCompletionContent,
    EndContent,
    Kind,
    ToolCallContent,
    ToolResultContent,
)
from gesta.model.usage import tokens
from gesta.state.run import RunState, RunView
from gesta.state.turn import Turn

FOLLOW = frozenset(
    {Kind.Request, Kind.Attempt, Kind.Budget, Kind.Edge, Kind.ApprovalRequest, Kind.Begin, Kind.Artifact, Kind.Timer}
)
"""Kinds of entries that are not compared, because other entries determine them."""
LINKS = frozenset(
    {"call", "of", "tool_call_id", "header", "extra", "meta", "child", "copy_of", "corrects", "run", "tokens"}
)
"""Members of a content that are not compared, most of them because they name other entries.

The `meta` of a request header is compared nevertheless.
"""


class Step(Struct, frozen=True, kw_only=True):
    """One place at which two runs differ. It has two entries of one kind, or an entry that only one run has."""

    before: Entry | None
    after: Entry | None
    differences: tuple[Difference, ...] = ()
    """The differences between the two entries of a pair; empty for a single entry."""


class Effect(Struct, frozen=True, kw_only=True):
    """A tool call and how it ended."""

    tool: str
    args: dict[str, Any]
    outcome: str | None
    fired: bool
    """Whether the tool was started in this run itself.

    `False` if a fork shares the call with its base, or if the tool never started.
    """


class Facts(Struct, frozen=True, kw_only=True):
    """The answers, the tool calls and the cost of a run."""

    run: str
    entries: int
    answers: list[str]
    reasons: list[str]
    effects: list[Effect]
    requests: int
    tokens_in: int
    tokens_out: int
    unknown_usage: int
    usd: float | None


class Compared(Struct, frozen=True, kw_only=True):
    """The result of comparing two runs."""

    alike: int
    """Number of entries at the beginning that are equal in both runs."""
    steps: list[Step]
    before: Facts
    after: Facts


def compare(before: Sequence[Entry], after: Sequence[Entry]) -> Compared:
    """Return the differences between two runs, `before` and `after`, each given as all its entries."""
    alike = 0
    for one, other in zip(before, after, strict=False):
        same = one.digest == other.digest or _key(one) == _key(other)
        if not same or one.span != other.span or one.causes != other.causes:
            break
        alike += 1
    shown = [_in_order(filter(_shown, run)) for run in (before, after)]
    keys = [[_key(each) for each in run] for run in shown]
    steps: list[Step] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if tag != "equal":
            steps += _paired(shown[0][i1:i2], shown[1][j1:j2])
    return Compared(alike=alike, steps=steps, before=facts(before), after=facts(after))


def facts(entries: Sequence[Entry]) -> Facts:
    """Return the answers, the tool calls and the cost of a run."""
    contents = [entry.content for entry in entries]
    results = {each.call: each.outcome for each in reversed(contents) if isinstance(each, ToolResultContent)}
    fork = next(
        (entry.seq for entry in entries if isinstance(entry.content, BeginContent) and entry.content.role == "fork"), 0
    )
    tried = {entry.content.of for entry in entries if isinstance(entry.content, AttemptContent) and entry.seq > fork}
    calls = [entry for entry in entries if isinstance(entry.content, ToolCallContent)]
    counts = [tokens(each.usage) for each in contents if isinstance(each, ChatCompletionContent)]
    known = [each for each in counts if each is not None]
    turns = {entry.seq for entry in entries if begins_turn(entry)}
    ended = [each for each in entries if not turns or each.span in turns]  # steps of a program end too
    ends = [each.content for each in ended if isinstance(each.content, EndContent) and each.content.reason is not None]
    said = [each.value for each in contents if isinstance(each, AssistantContent)]
    return Facts(
        run=entries[0].run if entries else "",
        entries=len(entries),
        answers=said or [json.dumps(each.state, default=str) for each in ends if each.state is not None],
        reasons=[each.reason or "" for each in ends],
        effects=[_effect(entry, results, tried) for entry in calls],
        requests=len(counts),
        tokens_in=sum(each.input for each in known),
        tokens_out=sum(each.output for each in known),
        unknown_usage=len(counts) - len(known),
        usd=_usd(entries),
    )


def _effect(entry: Entry, results: Mapping[Any, str | None], tried: Iterable[int]) -> Effect:
    content = entry.content
    assert isinstance(content, ToolCallContent)
    outcome = results.get(entry.seq)
    return Effect(tool=content.tool_name, args=content.tool_args, outcome=outcome, fired=entry.seq in tried)


def _usd(entries: Iterable[Entry]) -> float | None:
    """Return the cost of all turns in US dollars.

    Returns `None` if no entry states what a turn spent, or if a price is unknown.
    """
    state, turns = RunState(), dict[int, Turn]()
    for entry in entries:
        state = RunView().apply(state, entry)
        if state.turn is not None:
            turns[state.turn.begin] = state.turn
    spent = [turn.spending.spent(turn.requests) for turn in turns.values()]
    known = [each.usd for each in spent if each is not None and each.usd is not None]
    return round(sum(known), 9) if known and len(known) == len(spent) else None


def _shown(entry: Entry) -> bool:
    ends_span = isinstance(entry.content, EndContent) and entry.content.reason is None
    return entry.kind not in FOLLOW and not ends_span


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries with results that stand next to each other in the order of their calls.

    Results of calls that ran at once are on record in the order in which the calls ended.
    """
    groups = groupby(entries, lambda each: each.kind is Kind.ToolResult)
    return [each for _, group in groups for each in sorted(group, key=_call)]  # sorting keeps the order of all others


def _call(entry: Entry) -> int:
    return (entry.content.call or 0) if isinstance(entry.content, ToolResultContent) else 0


def said(entry: Entry) -> dict[str, Any]:
    """Return an entry's content as JSON, with only the members that `compare` looks at."""
    found = counted(entry)
    kept = "meta" if entry.kind is Kind.RequestHeader else ""
    return {name: value for name, value in found.items() if name == kept or name not in LINKS}


def _key(entry: Entry) -> str:
    return json.dumps(said(entry), sort_keys=True)


def _paired(before: list[Entry], after: list[Entry]) -> list[Step]:
    """Return the differences between two lists of entries: pairs of entries of one kind, and entries without a partner.

    Each entry of `before` is paired with the next entry of `after` that has the same kind. Each pair has the
    differences between its two entries.
    """
    steps: list[Step] = []
    left = list(after)
    for entry in before:
        match = next((place for place, each in enumerate(left) if each.kind is entry.kind), None)
        if match is None:
            steps.append(Step(before=entry, after=None))
            continue
        steps += [Step(before=None, after=each) for each in left[:match]]
        other = left[match]
        found = tuple(differences(said(entry), said(other)))
        steps.append(Step(before=entry, after=other, differences=found))
        del left[: match + 1]
    return steps + [Step(before=None, after=each) for each in left]
