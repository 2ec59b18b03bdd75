"""Implements the commands `find`, which searches for words, and `stats`, which counts tokens, cost and errors.

Both commands read a record, the store of all runs. An entry is one event of a run, such as a message or a call.
"""

import sys
from typing import Any

from gesta.cli.layout import page_width, table, wrap
from gesta.cli.pages import kinds_of, reading
from gesta.cli.record_options import FindOptions, StatsOptions
from gesta.cli.talk import BOLD, Stop, colours, count, harmless, json_line, put, put_all, say, styled
from gesta.cli.times import point
from gesta.errors import nearest
from gesta.record.record import Record
from gesta.stores.words import CLOSING, KINDS, OPENING, Hit, Wanted
from gesta.stores.words import find as look
from gesta.views.stats import Numbers


def find(options: FindOptions) -> None:
    """Print the entries that contain the words, the newest or the best match first."""
    hits = reading(options, lambda record: matches(record, options))
    if options.json:
        put_all(json_line(hit_facts(hit)) for hit in hits)
        return
    for hit in hits:
        where = f"{hit.run}.{hit.seq}  {hit.at[:19].replace('T', ' ')}  {hit.session}  {hit.agent}  {hit.kind}"
        put(styled(harmless(where), BOLD, sys.stdout))
        put_all(f"    {line}" for line in _snippet(hit))
    if not hits:
        say("Nothing was found.")


async def matches(record: Record, options: FindOptions) -> list[Hit]:
    """Return the entries that contain the words.

    Raises Stop for a kind of entry that is not searched, or for a text that is not a time.
    """
    kinds = sorted(kinds_of(options.kinds) or ())
    for each in kinds:
        if each not in KINDS:
            raise Stop(f"Nothing is looked for in {each!r} entries.{nearest(each, KINDS)} Kinds: {', '.join(KINDS)}.")
    since, until = point(options.since, "--since"), point(options.until, "--until")
    wanted = Wanted(
        words=" ".join(f'"{word}"' if " " in word else word for word in options.words),
        run=(await record.find(options.run)).run if options.run is not None else None,
        session=options.session,
        agent=options.agent,
        kinds=kinds,
        since=since,
        until=until,
        best=options.best,
        limit=options.limit,
    )
    return await look(record.store, wanted)


def hit_facts(hit: Hit) -> dict[str, Any]:
    """Return facts about an entry that was found, as `gesta find --json` writes them."""
    snippet = hit.snippet.replace(OPENING, "[").replace(CLOSING, "]")
    found = {name: getattr(hit, name) for name in hit.__struct_fields__}
    return {"id": f"{hit.run}.{hit.seq}"} | found | {"snippet": snippet}


def _snippet(hit: Hit) -> list[str]:
    """Return the words around the first match as lines. Matches are bold, or in brackets if stdout shows no styles."""
    lines = wrap(" ".join(hit.snippet.replace(OPENING, "[").replace(CLOSING, "]").split()), page_width() - 4)
    if not colours(sys.stdout):
        return [harmless(line) for line in lines]
    lines = wrap(" ".join(hit.snippet.split()), page_width() - 4)
    return ["".join(_stand_out(line)) for line in lines]


def _stand_out(line: str) -> list[str]:
    parts = line.replace(CLOSING, OPENING).split(OPENING)
    inside = line.count(CLOSING) > line.count(OPENING)  # the match began in the line before
    return [
        styled(harmless(part), BOLD, sys.stdout) if (place + inside) % 2 else harmless(part)
        for place, part in enumerate(parts)
    ]


def stats(options: StatsOptions) -> None:
    """Print the counts, with one row for each day, agent, model or tool."""
    since, until = point(options.since, "--since") or "", point(options.until, "--until") or ""
    found = reading(options, lambda record: record.stats(options.by, since=since, until=until, session=options.session))
    if options.json:
        put_all(json_line({options.by: name} | each.facts()) for name, each in found.items())
        return
    columns = TOOL if options.by == "tool" else EVERY
    rows = [(name, *_cells(each, columns)) for name, each in found.items()]
    heading, *lines = table((options.by, *columns), rows, right=columns)
    put(styled(heading, BOLD, sys.stdout))
    put_all(lines)
    if not found:
        say("There is nothing to count.")
    unknown = sum(each.unknown_usage for each in found.values())
    unpriced = sum(each.unpriced for each in found.values())
    if unknown:
        say(f"{count(unknown, 'answer')} came without a count of tokens.")
    if unpriced:
        say(f"No price is on record of {count(unpriced, 'answer')}: an account is kept where a budget is set.")


EVERY = ("requests", "faults", "tokens in", "tokens out", "cost", "p50 ms", "p90 ms", "p99 ms", "calls", "errors")
TOOL = ("calls", "errors", "error rate", "unanswered", "p50 ms", "p90 ms", "p99 ms")


def _cells(numbers: Numbers, columns: tuple[str, ...]) -> list[str]:
    facts = numbers.facts()
    took = {f"{name} ms": "" if value is None else f"{value:,.0f}" for name, value in facts["latency_ms"].items()}
    known = {
        "requests": f"{numbers.requests:,}",
        "faults": f"{numbers.faults:,}",
        "tokens in": f"{numbers.tokens_in:,}",
        "tokens out": f"{numbers.tokens_out:,}",
        "cost": "" if numbers.usd is None else f"${numbers.usd:,.4f}",
        "calls": f"{numbers.calls:,}",
        "errors": f"{numbers.errors:,}",
        "error rate": "" if facts["error_rate"] is None else f"{facts['error_rate']:.1%}",
        "unanswered": f"{numbers.unanswered:,}",
    }
    return [(known | took)[column] for column in columns]
