"""Implements the command `sessions`: the same list as in the viewer, with the same filters, in a terminal.

A session is the runs of one conversation. A record stores all runs.
"""

import sys
from typing import Any, get_args

from gesta.cli.layout import table
from gesta.cli.pages import reading
from gesta.cli.record_options import SessionsOptions
from gesta.cli.talk import BOLD, Stop, count, json_line, put, put_all, say, short, styled
from gesta.cli.times import point
from gesta.content import Reason
from gesta.decide.waiting import in_words
from gesta.errors import nearest
from gesta.perform.call_contents import plain
from gesta.record.record import Record
from gesta.stores.run_index import RunIndex
from gesta.stores.session_list import listed
from gesta.stores.words import WordIndex
from gesta.views.sessions import Session, SessionFilter, SessionList

MATCHES = 20_000
"""Greatest number of entries with the words that are examined, the newest first."""
HEADINGS = ("session", "agents", "last (UTC)", "runs", "entries", "tokens", "cost", "errors", "stands", "title")


def sessions(options: SessionsOptions) -> None:
    """Print a table of the sessions that fit the options, and the sums over all of them."""
    states = ("waiting", "open", "running", "ended", "recorded", *get_args(Reason))
    if options.stands and options.stands not in states:
        near = nearest(options.stands, states)
        raise Stop(f"--stands {options.stands!r:.60} is not a state of a session.{near} States: {', '.join(states)}.")
    wanted = SessionFilter(
        agent=options.agent or "",
        stands=options.stands or "",
        tool=options.tool or "",
        errors=options.errors,
        cost=options.cost,
        since=point(options.since, "--since") or "",
        until=point(options.until, "--until") or "",
        sort=options.sort,
        limit=options.limit,
    )
    words = " ".join(f'"{word}"' if " " in word else word for word in options.words or ())

    async def found(record: Record) -> SessionList:
        index = RunIndex(record.store)
        await index.update()
        chosen: set[str] | None = None
        if words:
            hits = await WordIndex(record.store).places(words, MATCHES)
            chosen = {session for run in hits for (session,) in index.all(OF, (run,))}
        return await listed(index, wanted, record.now(), chosen)

    answer = reading(options, found)
    if options.json:
        put_all(json_line(plain(facts(each))) for each in answer.sessions)
        return
    right = ("runs", "entries", "tokens", "cost", "errors")
    heading, *lines = table(HEADINGS, [_row(each) for each in answer.sessions], right=right)
    put(styled(heading, BOLD, sys.stdout))
    put_all(lines)
    totals, usd = answer.totals, answer.totals.usd
    cost = "" if usd is None else f", ${usd:,.4f}"
    sum_ = totals.tokens_in + totals.tokens_out
    tokens = f", {count(sum_, 'token')}" if sum_ else ""
    shown = f"{len(answer.sessions):,} of {count(totals.sessions, 'session')} shown. In all of them: "
    say(f"{shown}{count(totals.runs, 'run')}, {count(totals.entries, 'entry')}{tokens}{cost}.")


OF = "SELECT session FROM runs WHERE run = ?"


def facts(session: Session) -> dict[str, Any]:
    """Return the facts about a session that `gesta sessions --json` writes. The viewer's pages get the same facts."""
    return {name: getattr(session, name) for name in session.__struct_fields__}


def _row(each: Session) -> tuple[str, ...]:
    tokens = each.tokens_in + each.tokens_out
    stands = in_words(each.waiting) or ("running" if each.running else each.reason or each.stands)
    return (
        short(each.name, 40),
        short(", ".join(each.agents), 24),
        f"{each.last_at:%Y-%m-%d %H:%M:%S}",
        str(len(each.runs) + each.below),
        f"{each.entries:,}",
        f"{tokens:,}" if tokens else "",
        "" if each.usd is None else f"${each.usd:,.4f}",
        str(each.errors or ""),
        stands,
        short(" ".join(each.title.split()), 40),
    )
