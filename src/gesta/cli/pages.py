"""Implements the commands `runs`, `log` and `sql`. Each of them opens the record for reading only.

A record is the store of all entries. A run is the list of entries of one conversation of an agent.
"""

import csv
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Any, TypeVar

import anyio
import msgspec

from gesta.address import Record, open_record
from gesta.cli.layout import page_width, table
from gesta.cli.options import LogOptions, OnRecord, RunsOptions, SqlOptions
from gesta.cli.talk import (
    BOLD,
    FAILED,
    Stop,
    colours,
    complain,
    dollars,
    harmless,
    json_harmless,
    json_line,
    put,
    put_all,
    say,
    short,
    styled,
    terminal,
)
from gesta.cli.transcript import Transcript
from gesta.codec.fitting import unfit
from gesta.codec.rows import encode_content
from gesta.decide.waiting import SENT
from gesta.entry import Entry, Row, utc_text
from gesta.errors import BrokenRecord, nearest
from gesta.kinds import ChatCompletionContent, Kind
from gesta.log.journal import entry_of, in_record
from gesta.log.shared import rows_of
from gesta.model.usage import tokens
from gesta.record.waits import answers_sent
from gesta.state.run import UNFIT, RunState, RunView
from gesta.state.turn import Turn
from gesta.store import QueryBounds, RunRow, Table

T = TypeVar("T")

TEXTS = ("run", "kind", "at", "causes", "content", "annotations", "salt", "digest")
ROW_BYTES = f"""SELECT sum({" + ".join(f"coalesce(octet_length({each}), 0)" for each in TEXTS)}) FROM entries
    WHERE run = ?"""  # noqa: S608 - constants
BLOB_BYTES = "SELECT sum(octet_length(data) + octet_length(salt)) FROM blobs WHERE run = ?"

PAGE = 1000
"""Number of rows that one query reads."""


def reading(options: OnRecord, do: Callable[[Record], Awaitable[T]], named: str | None = None) -> T:
    """Open the record for reading, call a function with it, and return the function's result.

    Args:
        named: address of the record; `None` for the record that the options choose.
    """
    address = options.source(named)

    async def main() -> T:
        async with open_record(address, readonly=True) as record:
            try:
                return await do(record)
            except UNFIT as error:
                raise await _misfit(record) or error from error

    return anyio.run(main)


async def _misfit(record: Record) -> BrokenRecord | None:
    """Return an error about the first entry that has a field of a wrong type for its kind; `None` if there is none."""
    for row in await record.store.runs():
        for entry in await record.read(row.run):
            if (wrong := unfit(entry.content)) is not None:
                return BrokenRecord(record.info.address, f"entry {entry.id}: {wrong}")
    return None


def runs(options: RunsOptions) -> None:
    """Print a list of runs; the one written to last comes first."""
    found = reading(options, lambda record: newest(record, options.limit, size=options.size))
    if options.json:
        put_all(json_line(each) for each in found)
        return
    priced = any(each["counted_usd"] is not None for each in found)
    measured = [*["bytes"] * options.size, *["blobs"] * options.size]
    headings = (
        "run",
        "session",
        "agent",
        "started (UTC)",
        "entries",
        *measured,
        "tokens",
        *["cost"] * priced,
        "stands",
    )
    rows = [
        (
            each["run"],
            short(each["session"], 40 if terminal(sys.stdout) else 1000),
            short(each["agent"], 24),
            each["started"][:19].replace("T", " "),
            f"{each['entries']:,}",
            *([f"{each['entry_bytes']:,}", f"{each['blob_bytes']:,}"] if measured else []),
            f"{each['tokens_in'] + each['tokens_out']:,}" if each["tokens_in"] + each["tokens_out"] else "",
            *[dollars(each["usd"]).removeprefix("cost ") if each["counted_usd"] is not None else ""] * priced,
            each["stands"],
        )
        for each in found
    ]
    heading, *lines = table(headings, rows, right=("entries", *measured, "tokens", *["cost"] * priced))
    put(styled(heading, BOLD, sys.stdout))
    put_all(lines)
    if not found:
        say("There is no run in this record yet.")


async def newest(record: Record, limit: int, *, size: bool = False) -> list[dict[str, Any]]:
    """Return facts about the newest runs, as `gesta runs --json` writes them.

    Args:
        limit: greatest number of runs.
        size: whether the facts include the sizes in bytes.
    """
    rows = sorted(await record.store.runs(), key=lambda row: (row.last_at, row.pos), reverse=True)
    sent = await answers_sent(record.store, [row.run for row in rows[:limit]])
    return [
        await _known(record, row, sent.get(row.run, {})) | (await _size(record, row.run) if size else {})
        for row in rows[:limit]
    ]


async def _known(record: Record, row: RunRow, sent: Mapping[int, datetime]) -> dict[str, Any]:
    """Return the facts about a run that `gesta runs` prints, by their names.

    If the run cannot be read, the fact `stands` says why.

    Args:
        sent: when people answered what the run waits for. The keys are the seqs of the entries that they answered.
    """
    try:
        return _facts(row, await record.read(row.run), sent)
    except BrokenRecord as error:
        return _facts(row, [], sent) | {"stands": f"cannot be read: {error.found}"}


async def _size(record: Record, run: str) -> dict[str, int]:
    """Return the size of a run in bytes: of its entries, and of its large values. Database indexes are left out."""
    ((rows,),) = (await record.store.sql(ROW_BYTES, (run,))).rows
    ((blobs,),) = (await record.store.sql(BLOB_BYTES, (run,))).rows
    return {"entry_bytes": int(rows or 0), "blob_bytes": int(blobs or 0)}


def _facts(row: RunRow, entries: list[Entry], sent: Mapping[int, datetime]) -> dict[str, Any]:
    counts = [tokens(each.content.usage) for each in entries if isinstance(each.content, ChatCompletionContent)]
    state, turns = RunState(), dict[int, Turn]()
    for entry in entries:
        state = RunView().apply(state, entry)
        if state.turn is not None:
            turns[state.turn.begin] = state.turn
    spent = [turn.spending.spent(turn.requests) for turn in turns.values()]
    kept = [each for each in spent if each is not None]
    known = [each.usd for each in kept if each.usd is not None]
    return {
        "run": row.run,
        "session": row.session,
        "agent": row.name,
        "parent_run": row.parent_run,
        "started": row.at,
        "last": row.last_at,
        "entries": row.head,
        "requests": len(counts),
        "tokens_in": sum(each.input for each in counts if each is not None),
        "tokens_out": sum(each.output for each in counts if each is not None),
        "unknown_usage": sum(each is None for each in counts),
        "usd": round(sum(known), 9) if known and len(known) == len(spent) else None,
        "counted_usd": round(sum(each.counted_usd for each in kept), 9) if kept else None,
        "stands": standing(state, sent),
        "answer_sent_at": max((utc_text(sent[of]) for of in _asked(state) if of in sent), default=None),
    }


def _asked(state: RunState) -> list[int]:
    """Return the seqs of the entries of the open turn that a person can answer.

    They are approval requests, questions, and attempts (executions of a tool) without a result.
    """
    calls = state.current() if state.open else []
    asked = [call.asked for call in calls if call.asked is not None and call.approval is None]
    tried = [call.last.seq for call in calls if call.last is not None and call.last.verdict is None]
    return [*asked, *state.questions, *tried] if state.open else []


def standing(state: RunState, sent: Collection[int] = ()) -> str:
    """Return the state of a run in a few words, such as `answered` or `waits for approval: refund`.

    Whether a process is working on the run is not known here. `in doubt` means that a call may or may not have
    happened: its attempt has ended without a result.

    Args:
        sent: seqs of the entries to which an answer is in the run's inbox.
    """
    turn = state.turn
    if turn is None:
        return "recorded"
    if turn.reason is not None:
        return f"{turn.reason} ({turn.error.type})" if turn.error is not None else turn.reason
    waits = _asked(state)
    if waits and all(of in sent for of in waits):
        return SENT
    calls = state.current()
    asked = [call for call in calls if call.asked is not None and call.approval is None and call.asked not in sent]
    started = [call for call in calls if call.last is not None and call.last.verdict is None]
    if asked:
        return f"waits for approval: {', '.join(call.name for call in asked)}"
    if any(of not in sent for of in state.questions):
        return "waits for an answer"
    doubts = [
        call.name for call in started if call.last is not None and call.last.doubtful and call.last.seq not in sent
    ]
    if doubts:
        return f"in doubt: {', '.join(doubts)}"
    if started:
        return f"open: no result of {', '.join(call.name for call in started)}"
    due = min(state.steps.timers.values(), default=None)
    return f"waits until {due:%Y-%m-%d %H:%M:%S}" if due is not None else "open"


def log(options: LogOptions) -> int:
    """Print a run as a conversation, as stored, or as JSON lines. Returns the exit code.

    An entry that cannot be read is reported, and does not stop the command.
    """
    kinds = kinds_of(options.kinds)

    async def show(record: Record) -> int:
        code = 0
        row = await record.find(options.run)
        page = Transcript(width=page_width(), colour=colours(sys.stdout), everything=options.all)
        if not (options.json or options.raw):
            put(styled(harmless(heading(row)), BOLD, sys.stdout))
        async for stored in _rows(record, row.run, follow=options.follow):
            if kinds is None or stored.kind in kinds:
                try:
                    _show(options, page, stored, None if options.raw else await entry_of(record.store, stored))
                except BrokenRecord as error:
                    complain(in_record(record.store, error))
                    code = FAILED
        put_all(page.close())
        return code

    return reading(options, show)


def _show(options: LogOptions, page: Transcript, stored: Row, entry: Entry | None) -> None:
    if entry is None:
        cells = (stored.seq, stored.at, stored.span, stored.causes, stored.content, stored.annotations or "")
        put_all([json_harmless("\t".join(map(str, cells)))])
    elif options.json:
        put_all([entry_line(entry)])
    else:
        put_all(page.every(entry) if options.kinds else page.add(entry))
    if options.follow:
        sys.stdout.flush()


def heading(row: RunRow) -> str:
    """Return the line above the entries of a run, which names the run, its session and its agent."""
    parent = f"  child of {row.parent_run}" if row.parent_run else ""
    return f"run {row.run}  session {row.session}  agent {row.name}{parent}  begun {row.at[:10]} {row.at[11:19]} UTC"


async def _rows(record: Record, run: str, *, follow: bool) -> AsyncIterator[Row]:
    """Yield the rows (encoded entries) of a run; with `follow`, also all that are written from now on."""
    seq = pos = 0
    while rows := await rows_of(record.store, run, seq, limit=PAGE):
        for row in rows:
            yield row
        seq, pos = rows[-1].seq, rows[-1].pos
    if follow:
        async for news in record.store.tail(pos):
            for row in news:
                if row.run == run and row.seq > seq:
                    yield row


def entry_line(entry: Entry) -> str:
    """Return an entry as one line of JSON, including its large values."""
    return json_line(entry_facts(entry))


def entry_facts(entry: Entry) -> dict[str, Any]:
    """Return the fields of an entry as JSON values, as `gesta log --json` writes them."""
    return {
        "run": entry.run,
        "seq": entry.seq,
        "at": utc_text(entry.at),
        "span": entry.span,
        "causes": entry.causes,
        "content": json.loads(encode_content(entry.content)),
        "annotations": msgspec.to_builtins(entry.annotations, enc_hook=repr),
        "version": entry.version,
        "digest": entry.digest.hex(),
        "pos": entry.pos,
    }


def kinds_of(text: str | None) -> set[str] | None:
    """Return the kinds of entries that a text such as `user,tool-call` names; `None` for no text.

    Raises Stop for a name that is not a kind.
    """
    if text is None:
        return None
    known = [kind.value for kind in Kind]
    asked = {part.strip() for part in text.split(",") if part.strip()}
    for each in sorted(asked - set(known)):
        raise Stop(f"No kind {each!r}.{nearest(each, known)} Kinds: {', '.join(known)}.")
    return asked


def sql(options: SqlOptions) -> None:
    """Run a query, and print its rows as a table, CSV or JSON lines."""

    async def asked(record: Record) -> Table:
        seconds, rows, size = options.seconds or None, options.rows or None, options.size or None
        record.store.queries = QueryBounds(seconds=seconds, rows=rows, size_bytes=size)
        return await record.store.sql(options.query)

    answer = reading(options, asked)
    if options.json:
        put_all(map(json_line, table_rows(answer)))
    elif options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        shown = harmless if terminal(sys.stdout) else str
        writer.writerows([["" if cell is None else shown(str(_plain(cell))) for cell in row] for row in answer.rows])
    elif answer.columns:
        cells = [["" if cell is None else str(_plain(cell)) for cell in row] for row in answer.rows]
        numbers = [
            name
            for place, name in enumerate(answer.columns)
            if answer.rows and all(isinstance(row[place], int | float | None) for row in answer.rows)
        ]
        heading, *lines = table(answer.columns, cells, right=numbers, room=sys.maxsize)
        put(styled(heading, BOLD, sys.stdout))
        put_all(lines)


def table_rows(answer: Table) -> list[dict[str, Any]]:
    """Return the rows of a query's result, each as a dict by column, as `gesta sql --json` writes them."""
    return [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows]


def _plain(cell: Any) -> Any:
    return cell.hex() if isinstance(cell, bytes) else cell
