"""Reads spoken simulations of tau2-bench, `{id, mode, ticks, …}`, in which agent and user may speak at the same time.

    import; begin turn, (begin speech, tick, tick, end speech, …), end turn

A tick is a short stretch of time. Each becomes a key-value entry with the members of both sides that are not null.
Ticks contain no words, so the run has no questions and answers. Who speaks is inferred from `contains_speech`, and
becomes a span of role `speech`. Speech of both sides overlaps, so the ticks are directly in the turn. Times have no
zone and are read as UTC.

A run is a list of entries, which are recorded facts. A seq is the number of an entry in its run. A span is a part of a
run from its begin entry to its end entry, such as a turn: the work on one message.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gesta.importers.foreign import Foreign, Members, Oddities, digest_json, each_document, plain_name
from gesta.importers.format import Format, members_of
from gesta.importers.research.tau2_bench import ending
from gesta.importers.source import BadImport, Document, Source
from gesta.importers.spans import UNREADABLE, Spans, When
from gesta.kinds import BeginContent, EndContent, KeyValueContent

AGENT = "agent"
"""Name of the runs, because the source does not name the agent."""
LIST, TICK = "ticks", "tick"
SIDES: Mapping[str, str] = MappingProxyType({"agent_chunk": "assistant", "user_chunk": "user"})
"""The members of a tick that describe the two sides, with the role of each."""
SPEECH = "contains_speech"
TICK_MEMBERS = SIDES.keys() | members_of(
    "tick_id timestamp agent_tool_calls agent_tool_results user_tool_calls user_tool_results user_transcript"
)
MEMBERS = members_of(
    """path id task_id timestamp start_time end_time duration termination_reason trial seed mode agent_cost user_cost
    reward_info messages ticks policy hallucination_retries_used"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each simulation of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """

    def simulation(document: Document, words: str, oddities: Oddities) -> Foreign:
        whole = document.value
        if not isinstance(whole, dict) or not isinstance(whole.get(LIST), list):
            raise BadImport(
                source.path, f"expected a simulation with its list of ticks, found something else in {words}"
            )
        return _simulation(whole, document, oddities)

    return each_document(source, oddities, simulation)


def _simulation(whole: dict[str, Any], document: Document, oddities: Oddities) -> Foreign:
    members, spans = Members(whole, oddities), Spans()
    ticks = members.take(LIST, list) or []
    begun, ended = (When(*Members(whole, oddities).time(key)) for key in ("start_time", "end_time"))
    path = {"path": document.path} if document.path else {}
    spans.leading({**path, **(members.rest() or {})})
    turn = spans.write(BeginContent(name=AGENT, role="turn"), 0, begun)
    speaking: dict[str, int] = {}
    for tick in ticks:
        if not isinstance(tick, dict):
            oddities["unreadable-message"] += 1
            spans.write(KeyValueContent(key=UNREADABLE, value=tick), turn)
            continue
        told = Members(tick, oddities)
        when = When(*told.time("timestamp"))
        for key, name in SIDES.items():
            if _speaks(tick, key) and name not in speaking:
                begin = BeginContent(name=name, role="speech")
                speaking[name] = spans.write(begin, turn, when, inferred=("span",))
            elif not _speaks(tick, key) and name in speaking:
                spans.write(EndContent(), speaking.pop(name), when, inferred=("span",))
        rest = told.rest() or {}
        oddities["unknown-member"] += len(rest.keys() - TICK_MEMBERS)
        spans.write(KeyValueContent(key=TICK, value=_sides(rest)), turn, when)
    last = When(spans.entries[-1].at)
    for span in reversed(list(speaking.values())):
        spans.write(EndContent(), span, last, inferred=("span",))
    reason, error, inferred = ending(whole.get("termination_reason"), oddities)
    end = EndContent(status="error" if error else "success", reason=reason, error=error)
    spans.write(end, turn, ended if ended.at is not None else last, inferred=("reason",) if inferred else ())
    own = plain_name(whole.get("id")) or plain_name(document.path) or str(document.place)
    return Foreign(id=own, name=AGENT, digest=digest_json(whole), entries=spans.entries, plain=True)


def _speaks(tick: dict[str, Any], key: str) -> bool:
    chunk = tick.get(key)
    return isinstance(chunk, dict) and chunk.get(SPEECH) is True


def _sides(tick: dict[str, Any]) -> dict[str, Any]:
    told = dict(tick)
    for key, role in SIDES.items():
        chunk = told.get(key)
        if isinstance(chunk, dict):
            told[key] = {
                name: each for name, each in chunk.items() if each is not None and (name, each) != ("role", role)
            }
    return told


FORMATS = (Format("tau2-voice", "a simulation with `ticks`", "object", ("task_id", "ticks"), read, members=MEMBERS),)
