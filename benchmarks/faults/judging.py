"""Finds broken promises in the witness file and the records, and the place in a run that each fault met."""

import math
import sqlite3
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from datetime import datetime
from typing import Any

import anyio

import gesta
from benchmarks.faults.agents import BELOW
from benchmarks.faults.driving import LATE
from benchmarks.faults.tools import KINDS
from benchmarks.faults.witness import Line
from gesta.entry import Entry
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    ApprovalRequestContent,
    AttemptContent,
    BeginContent,
    ChatCompletionContent,
    EndContent,
    FaultContent,
    KeyValueContent,
    QuestionContent,
    RequestContent,
    ResolutionContent,
    TimerContent,
    ToolCallContent,
    ToolResultContent,
)

Runs = dict[str, list[Entry]]
PLACES = (
    "before the intent",
    "model call",
    "call without attempt",
    "transactional",
    "attempt pure",
    "attempt idempotent",
    "attempt once",
    "child run",
    "approval",
    "question",
    "doubt",
    "sleep",
    "result",
    "between turns",
)


def wrongs(lines: Sequence[Line], booked: dict[int, int]) -> list[str]:
    """Return a sentence for each broken promise in the lines of a witness file and in the tables of tools.

    Args:
        booked: for each order, the number of its rows in the tables of transactional tools.
    """
    found = [line.text for line in lines if line.what == "wrong"]
    effects: dict[int, list[Line]] = defaultdict(list)
    keys: dict[str, set[int]] = defaultdict(set)
    for line in lines:
        if line.what == "effect":
            effects[line.order].append(line)
            keys[line.key].add(line.order)
    for order, those in effects.items():
        careful = [line for line in those if line.effect != "pure"]
        distinct = {line.key for line in careful}
        tools = ", ".join(sorted({f"{line.tool} ({line.effect})" for line in careful}))
        if len(careful) > 1 and any(line.effect == "once" for line in careful):
            found.append(f"order {order} of {tools} was carried out {len(careful)} times, under {len(distinct)} keys")
        elif len(distinct) > 1:
            found.append(f"order {order} of {tools} has {len(distinct)} keys")
    found += [f"order {order} was booked {times} times" for order, times in booked.items() if times > 1]
    found += [f"one key stands for the orders {sorted(those)}" for key, those in keys.items() if key and len(those) > 1]
    return found


def bookings(address: str) -> dict[int, int]:
    """Return the number of rows in the table of the transactional tool, by order."""
    if "://" in address:
        import psycopg

        url, _, schema = address.partition("&schema=")
        query = "SELECT booked, count(*) FROM public.bookings WHERE schema = %s GROUP BY booked"
        with psycopg.connect(url) as server:
            return {int(order): times for order, times in server.execute(query, [schema])}
    with closing(sqlite3.connect(address)) as file:
        there = file.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'bookings'").fetchone()[0]
        query = "SELECT booked, count(*) FROM bookings GROUP BY booked"
        return {int(order): times for order, times in (file.execute(query) if there else ())}


async def _read(address: str) -> tuple[Runs, list[str]]:
    async with gesta.open(address, readonly=True) as record:
        flaws = [f"verify: {flaw}" for flaw in await record.verify()]
        runs = {row.run: await record.read(row.run) for row in await record.store.runs()}
    return runs, flaws


def read(address: str) -> tuple[Runs, list[str]]:
    """Return the entries of all runs of a record, and the flaws that `verify` finds."""
    return anyio.run(_read, address)


def late_approvals(runs: Runs) -> list[str]:
    """Return a sentence for each call that was carried out although its approval was sent after it had expired."""
    found = []
    for run, entries in runs.items():
        asked = {each.seq: each.content.of for each in entries if isinstance(each.content, ApprovalRequestContent)}
        tried = {each.content.of for each in entries if isinstance(each.content, AttemptContent)}
        for each in entries:
            if isinstance(each.content, ApprovalContent) and each.content.by == LATE:
                valid = not getattr(each.content, "refused", None) and asked.get(each.content.of) in tried
                found += [f"call {run}.{asked[each.content.of]} ran on an approval that came too late"] if valid else []
    return found


def never_started(lines: Sequence[Line], runs: Runs) -> list[str]:
    """Return a sentence for each attempt that timed out although its function was never called."""
    begun = {(line.run, line.attempt) for line in lines if line.what == "begun"}
    return [
        f"attempt {run}.{each.content.of} timed out and was never started"
        for run, entries in runs.items()
        for each in entries
        if isinstance(each.content, FaultContent)
        and each.content.error.type == "timeout"
        and (run, each.content.of) not in begun
    ]


def answered(entries: Iterable[Entry]) -> set[str | None]:
    """Return the message keys of the turns that were answered."""
    begun, ended = {}, set()
    for each in entries:
        if isinstance(each.content, BeginContent) and each.content.role == "turn":
            begun[each.seq] = each.content.key
        elif isinstance(each.content, EndContent) and each.content.reason == "answered":
            ended.add(begun.get(each.span))
    return ended


def manners(runs: Runs) -> Counter[str]:
    """Return the number of failed attempts and requests, by the type of error on record."""
    faults = (each.content for entries in runs.values() for each in entries if isinstance(each.content, FaultContent))
    return Counter(each.error.type for each in faults)


# the place of a run


def places(entries: Sequence[Entry]) -> list[str]:
    """Return what a run waits for or does after the given entries, as places of `PLACES`."""
    turn = _open_turn(entries)
    if turn is None:
        return ["between turns"]
    here = [each for each in entries if each.seq > turn]
    calls = {each.seq: each.content for each in here if isinstance(each.content, ToolCallContent)}
    for each in here:
        if isinstance(each.content, ToolResultContent) and each.content.call is not None:
            calls.pop(each.content.call, None)
    found = [place for seq, call in calls.items() for place in [_place(seq, call.tool_name, here)]]
    replied = max((each.seq for each in here if isinstance(each.content, ChatCompletionContent)), default=0)
    if found and any(each.seq > replied and isinstance(each.content, ToolResultContent) for each in here):
        found.append("result")
    return sorted(set(found)) if found else [_tail(here)]


def _open_turn(entries: Sequence[Entry]) -> int | None:
    begins = [each.seq for each in entries if isinstance(each.content, BeginContent) and each.content.role == "turn"]
    ended = {each.span for each in entries if isinstance(each.content, EndContent)}
    return begins[-1] if begins and begins[-1] not in ended else None


def _place(call: int, tool: str, here: Sequence[Entry]) -> str:
    """Return the place of an open call."""
    approval = _last(here, ApprovalRequestContent, lambda each: each.of == call)
    if approval is not None and _last(here, ApprovalContent, lambda each: each.of == approval.seq) is None:
        return "approval"
    if tool == "ask_person":
        return "question"
    attempt = _last(here, AttemptContent, lambda each: each.of == call)
    if attempt is None:
        return "transactional" if tool in KINDS and KINDS[tool].effect == "transactional" else "call without attempt"
    if tool in BELOW:
        return "child run"
    doubt = _last(here, FaultContent, lambda each: each.of == attempt.seq)
    settled = _last(here, ResolutionContent, lambda each: each.of == attempt.seq)
    if doubt is not None and settled is None:
        return "doubt"
    effect = getattr(attempt.content, "effect", None) or (KINDS[tool].effect if tool in KINDS else "once")
    return f"attempt {effect}" if effect != "transactional" else "transactional"


def _tail(here: Sequence[Entry]) -> str:
    """Return the place of a run that has no open call."""
    last: Any = None
    for each in here:
        match each.content:
            case RequestContent():
                last = "model call"
            case ChatCompletionContent():
                last = "before the intent"
            case FaultContent():
                last = "model call" if last == "model call" else last
            case ToolResultContent():
                last = "result"
            case QuestionContent():
                last = "question"
            case AnswerContent():
                last = "result"
            case TimerContent():
                last = "sleep"
            case KeyValueContent() | EndContent():
                last = last if last is None else "result"
            case BeginContent(role="agent"):
                last = "child run"
    return last or "before the intent"


def _last(here: Sequence[Entry], kind: type, fits: Any) -> Entry | None:
    return next((each for each in reversed(here) if isinstance(each.content, kind) and fits(each.content)), None)


def cells(lines: Iterable[Line], runs: Runs) -> Counter[tuple[str, str]]:
    """Count at which place each strike met each run that was open: from the log, as it was at that time.

    What a transactional tool does is on record only once it is committed: that it was at work is told by the strike,
    and holds until something is written again. Runs that were answered and are no longer there were pruned.
    """
    found: Counter[tuple[str, str]] = Counter()
    written = sorted(seconds(each.at) for entries in runs.values() for each in entries)
    answered_at = min((line.at for line in lines if line.what == "answered"), default=math.inf)
    transacted = math.nan
    for line in lines:
        if line.what != "strike":
            continue
        if "a transaction" in line.place:
            transacted = line.at
        still = bisect(written, transacted) == bisect(written, line.at) if transacted <= line.at else False
        met: set[str] = {"transactional"} if still else set()
        for entries in runs.values():
            before = [each for each in entries if seconds(each.at) <= line.at]
            if before and before[0].shared_from is None:  # a fork did not exist yet
                with suppress(IndexError):
                    met |= set(places(before))
        if len(met) > 1:
            met.discard("between turns")
        nowhere = "between turns" if answered_at < line.at else "before the intent"
        found.update((line.fault, place) for place in met or {nowhere})
    return found


def seconds(at: datetime) -> float:
    """Return a time as seconds since 1970."""
    return at.timestamp()
