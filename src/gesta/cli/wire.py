"""Makes the output of `show`: an entry as it is stored, or a model request, made again from the entries before it.

An entry is one event of a run, such as a message or a call. The record stores all runs.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gesta.cli.layout import fold, page_width, wrap
from gesta.cli.options import ShowOptions
from gesta.cli.pages import heading, reading
from gesta.cli.talk import BOLD, DIM, Stop, count, harmless, json_line, put, put_all, say, styled
from gesta.codec.rows import encode_content
from gesta.compare.requests import Wanted, compared, remade, request_facts
from gesta.entry import Entry, utc_text
from gesta.kinds import Kind
from gesta.record.record import Record
from gesta.text.visible import visible_value
from gesta.views.losses import told
from gesta.views.sent import Sent, counted, message_text
from gesta.views.sent_changes import difference_facts

FEW = 4
"""Greatest number of lines that are shown of a message."""


def show(options: ShowOptions) -> None:
    """Print an entry or a request, as the options say. Raises Stop if there is no such entry."""

    async def read(record: Record) -> None:
        row = await record.find(options.run)
        entries = await record.read(row.run)
        chosen = next((entry for entry in entries if entry.seq == options.entry), None)
        if options.entry is not None and chosen is None:
            raise Stop(
                f"Run {row.run!r} has {count(len(entries), 'entry')}; there is no entry {options.entry}. "
                f"Name one from 1 to {len(entries)}."
            )
        if not options.json:
            put(styled(harmless(heading(row)), BOLD, sys.stdout))
            put("")
        wanted = Wanted(entry=options.entry, form=options.form, model=options.model, whole=options.whole)
        if options.wire or options.diff or wanted.whole or wanted.anew or chosen is None:
            put_all((_diff if options.diff else _wire)(entries, wanted, options))
        else:
            put_all(_entry(chosen, as_json=options.json))

    reading(options, read)


DECIDED = frozenset({Kind.ToolCall, Kind.Question, Kind.Approval, Kind.Answer, Kind.Resolution})
"""Kinds of entries about a person's decision. In these entries, escapes replace characters that cannot be seen."""


def _entry(entry: Entry, *, as_json: bool) -> Iterable[str]:
    """Return the lines that show one entry as it is stored in the record."""
    if as_json:
        return [json_line(shown_facts(entry))]
    facts, content = _stamp(entry), json.loads(encode_content(entry.content))
    if entry.kind in DECIDED:
        content = visible_value(content)
    told = [f"{key}: {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in facts.items() if value]
    return map(harmless, [*told, *json.dumps(content, indent=2, ensure_ascii=False).split("\n")])


def shown_facts(entry: Entry) -> dict[str, Any]:
    """Return the fields of an entry as JSON values, as `gesta show --json` writes them."""
    return {**_stamp(entry), "content": json.loads(encode_content(entry.content))}


def _stamp(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "kind": str(entry.kind),
        "at": utc_text(entry.at),
        "span": entry.span,
        "causes": [cause if isinstance(cause, int) else list(cause) for cause in entry.causes],
        "annotations": entry.annotations,
    }


def _wire(entries: Sequence[Entry], wanted: Wanted, options: ShowOptions) -> Iterator[str]:
    """Yield the lines that show a request as it was sent to the model.

    Args:
        entries: the entries of the run.
        wanted: which request to show, and for which model.
        options: options of the command `show`.
    """
    one = remade(entries, wanted)
    facts = request_facts(one, wanted)
    if options.json:
        yield json_line(facts)
        return
    say(_checked(one, wanted), None if one.known else BOLD)
    for line in told(one.lost):
        say(f"not shown: {line}", DIM)
    if facts["headers"] is not None:
        yield f"{facts['method']} {facts['url']}"
        yield from (harmless(f"{name}: {value}") for name, value in facts["headers"].items())
        yield ""
    yield from map(harmless, json.dumps(facts["body"], indent=2, ensure_ascii=False).split("\n"))


def _checked(one: Sent[Any], wanted: Wanted) -> str:
    size = f"{count(len(one.request.blocks), 'message')}, {len(one.request.body()):,} bytes"
    head = f"request {one.seq} to {wanted.model or one.header.model or 'a model that is not named'}: {size}"
    if one.known:
        return f"{head}; the bytes are those whose digest is on record."
    if wanted.anew:
        return f"{head}, made anew."
    if wanted.whole:
        return f"{head}, as if nothing had been left out."
    return f"{head}. NOT the bytes that were sent: settings of the model in the program are not on record."


def _diff(entries: Sequence[Entry], wanted: Wanted, options: ShowOptions) -> Iterator[str]:
    """Yield the lines that show what a request added to the request before it."""
    found = compared(entries, wanted)
    one, before, total = found.one, found.before, len(found.one.request.blocks)
    if options.json:
        yield json_line(difference_facts(found, entries))
        return
    for line in told(one.lost) if wanted.anew else ():
        say(f"not shown: {line}", DIM)
    if before is None:
        yield f"request {one.seq}, the first: {count(total, 'message')}"
    else:
        yield f"request {one.seq} after request {before.seq}: {found.kept} of {total} messages as they were"
        yield from (f"  changed: {name}" for name in found.changed)
        if lost := len(before.request.blocks) - found.kept:
            left_out = f": left out by {_listed(found.left_out_by)}" if found.left_out_by else ""
            yield f"  {count(lost, 'message')} of request {before.seq} not repeated{left_out}"
    for place in range(found.kept, total):
        shown = one.shown[place]
        yield styled(f"+ {shown.role} from {_listed(shown.sources)}", DIM, sys.stdout)
        lines = wrap(harmless(message_text(one.message(place))), page_width() - 4)
        yield from (f"    {line}" for line in fold(lines, FEW))
    yield _cached(entries, one)


def _cached(entries: Sequence[Entry], one: Sent[Any]) -> str:
    counts = counted(entries, one.seq)
    if counts is None:
        return "cached: nobody knows; no answer of it with a count of tokens is on record"
    if counts.cache_read is None:
        return f"cached: the provider does not say; it read {counts.input:,} tokens"
    return f"cached: {counts.cache_read:,} of {counts.input:,} tokens that the provider read"


def _listed(seqs: Iterable[int]) -> str:
    every = ", ".join(map(str, seqs))
    return f"entry {every}" if "," not in every else f"entries {every}"
