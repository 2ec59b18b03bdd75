"""Reads traces of Langfuse, `{trace, observations}`, whose inputs and outputs have the form of any framework.

    begin turn, (begin agent, begin model, user, completion, calls, end, begin tool, result, end, …), assistant, end

A trace becomes one run with one turn. Each observation (a model call, a tool call or another step) becomes a span with
its own times. Input and output are the states of the span's begin and end entries. For a model call these are messages:
only new ones are written, and the state refers to the entries of the others. A model call inside another is the same
call, recorded by another library, so it is only a span. A value in no known form is a key-value entry `unknown-form`.

A run is a list of entries, which are recorded facts. A seq is the number of an entry in its run. A span is a part of a
run from its begin entry to its end entry, such as a turn: the work on one message. A completion is a reply that a model
generated.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gesta.importers import observed
from gesta.importers.foreign import (
    Foreign,
    Members,
    Oddities,
    digest_json,
    each_document,
    plain_name,
    same,
    without_keys,
)
from gesta.importers.format import Format, members_of
from gesta.importers.langfuse_generations import Generations
from gesta.importers.message import KEPT
from gesta.importers.observed import EVENT, MODEL, SPAN, TOOL, Observation
from gesta.importers.python_text import decoded
from gesta.importers.source import BadImport, Document, Source
from gesta.importers.spans import UNENDED, Spans, When
from gesta.kinds import BeginContent, EndContent, Error, KeyValueContent, Reason

AGENT = "agent"
"""Name of a run whose trace has no name."""
FAILED = "ERROR"
"""The level of an observation that failed."""
CUT = Error(type="unanswered", message="The source ends here, before an answer, and does not say why.")
MEMBERS = KEPT | members_of(
    """path trace observations id projectId timestamp environment bookmarked sessionId public input output createdAt
    updatedAt metadata latency tags version release userId scores corrections externalId htmlPath totalCost
    inputCost outputCost inputUsage outputUsage totalUsage usage usageDetails costDetails usagePricingTierName
    usagePricingTierId providedCostDetails providedUsageDetails model internalModel internalModelId modelParameters
    promptId promptName promptVersion completionStartTime timeToFirstToken toolDefinitions toolCalls toolCallNames
    level parentObservationId startTime endTime status statusMessage traceId type unit shown serialized beside
    further additional_kwargs response_metadata usage_metadata invalid_tool_calls example artifact thought
    thoughtSignature is_error finish_reason gen_ai.system gen_ai.message.index event.name tool_name tool_args
    tool_call_error from_history stop_after_tool_call add_to_agent_memory metrics created_at call_id logprobs source
    request"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each trace of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """

    def trace(document: Document, words: str, oddities: Oddities) -> Foreign:
        whole = document.value if isinstance(document.value, dict) else {}
        if not isinstance(whole.get("trace"), dict) or not isinstance(whole.get("observations"), list):
            found = f"expected a trace with its list of observations, found something else in {words}"
            raise BadImport(source.path, found)
        return _trace(document, whole, oddities)

    return each_document(source, oddities, trace)


def _trace(document: Document, whole: dict[str, Any], oddities: Oddities) -> Foreign:
    trace, given = whole["trace"], whole["observations"]
    name = plain_name(trace.get("name")) or AGENT
    found = [
        observed.observation(raw, place, oddities) if isinstance(raw, dict) else raw for place, raw in enumerate(given)
    ]
    run = _Run(name, trace, found, oddities)
    more = {key: value for key, value in whole.items() if key not in ("trace", "observations")}
    run.open({"path": document.path or None, **more})
    for each, ends in observed.in_order(run.found):
        (run.end if ends else run.begin)(each)
    run.close()
    own = plain_name(trace.get("id")) or plain_name(document.path) or str(document.place)
    return Foreign(id=own, name=name, digest=digest_json(whole), entries=run.spans.entries)


class _Run:
    """Turns one trace into the entries of a run."""

    def __init__(self, name: str, trace: dict[str, Any], found: list[Any], oddities: Oddities) -> None:
        self.spans = Spans()
        self.found = [each for each in found if isinstance(each, Observation)]
        observed.join(self.found, oddities)
        self._unreadable = [each for each in found if not isinstance(each, Observation)]
        self._name, self._trace, self._oddities = name, trace, oddities
        self._generations = Generations(self.spans, oddities)
        self._turn = 0
        self._open: dict[int, int] = {}
        """Seq of each observation's span, by the number of the observation."""

    def open(self, more: dict[str, Any]) -> None:
        """Write a first span with the facts about the whole trace, and begin the turn.

        Args:
            more: members of the document other than the trace and its observations.
        """
        members = Members(self._trace, self._oddities)
        begins = [When(*members.time("timestamp")), *(each.begins for each in self.found)]
        members.take("observations", object)
        told = {**more, **(members.rest() or {}), "observations": self._doubled()}
        self._oddities["unreadable-message"] += len(self._unreadable)
        notes = _told({key: decoded(decoded(value)) for key, value in told.items()})
        self.spans.leading(notes, self._unreadable)
        first = next((when for when in begins if when.at is not None), When())
        self._turn = self.spans.write(BeginContent(name=self._name, role="turn"), 0, first)

    def begin(self, each: Observation) -> None:
        """Write the entry that begins an observation's span, with the observation's input.

        An observation of type event gets a key-value entry instead of a span.
        """
        above = self._open[each.parent.place] if each.parent is not None else self._turn
        if each.role == EVENT:
            told = _told({"input": each.input, "output": each.output, **self._extra(each)})
            self.spans.write(
                KeyValueContent(key=each.name or EVENT, value=told), above, each.begins, notes=_named(each)
            )
            self._open[each.place] = above
            return
        call = self._generations.begin(each) if each.role in (TOOL, SPAN) else None
        nested = self._generations.nested(each)
        self._oddities["nested-generation"] += nested
        name = plain_name(each.name)
        begin = BeginContent(
            name=name or each.role,
            role=each.role if call is None else TOOL,
            state=each.input if nested or each.role != MODEL else None,
            annotations=_named(each),
            extra=_told({"name": each.name if each.name != name else None, **self._extra(each)}) or None,
        )
        causes, guessed = ((), ()) if call is None else ((call,), ("causes",))
        seq = self._open[each.place] = self.spans.write(begin, above, each.begins, causes, guessed)
        if each.role == MODEL and not nested:
            state = self._generations.take(each, seq)
            self.spans.change(seq, replace(begin, state=state, parent=above))

    def end(self, each: Observation) -> None:
        """Write the entry that ends an observation's span, with the observation's output."""
        if each.role == EVENT:
            return
        span, failure = self._open[each.place], _failure(each)
        self._generations.reply(each.place, each.ends)
        self._generations.result(each, span, failed=failure is not None)
        unended = each.ends.at is None
        self._oddities["unended-span"] += unended
        error = failure or (UNENDED if unended else None)
        state = None if each.role == MODEL and not self._generations.nested(each) else each.output
        end = EndContent(state=state, status="error" if error else "success", error=error)
        self.spans.write(end, span, each.ends)

    def close(self) -> None:
        """Write the answer that the person was shown, and end the turn."""
        self._oddities["unanswered-call"] += self._generations.waiting
        last = self.spans.entries[-1]
        when = When(last.at, last.sure)
        roots = [each for each in self.found if each.parent is None and each.role != TOOL]
        failure = next((error for each in roots if (error := _failure(each))), None)
        if not self._generations.heard:  # the trace has no messages
            self.spans.change(self._turn, BeginContent(name=self._name, role="trace"))
            self.spans.write(EndContent(status="error" if failure else "success", error=failure), self._turn, when)
            return
        given = [decoded(self._trace.get("output")), *(each.output for each in roots)]
        answered = self._generations.shown(given, self._turn, when)
        error = failure or (None if answered else CUT)
        reason: Reason = "failed" if failure else "answered" if answered else "limit"
        end = EndContent(status="error" if error else "success", reason=reason, error=error)
        self.spans.write(end, self._turn, when, inferred=("reason",))

    def _extra(self, each: Observation) -> dict[str, Any]:
        """Return the members of an observation that are stored nowhere else in the run."""
        for key in ("projectId", "environment"):
            each.members.drop(key, self._trace.get(key))
        each.members.drop("traceId", self._trace.get("id"))
        each.members.drop("level", "DEFAULT")
        left = without_keys(each.members.rest() or {})
        metadata = decoded(left.get("metadata"))
        if isinstance(metadata, dict) and each.attributes:
            metadata = {**metadata, "attributes": self._generations.kept(each)}
        metadata = without_keys(metadata)
        return _told({**left, "metadata": _told(metadata) if isinstance(metadata, dict) else metadata})

    def _doubled(self) -> Any:
        """Return the parts of the trace's member `observations` that differ from the file's main list of observations.

        Return `None` if there are none.
        """
        given = self._trace.get("observations")
        if not isinstance(given, list):
            return given
        known = {each.id: each.raw for each in self.found if each.id}
        left = []
        for raw in given:
            own = known.get(raw["id"]) if isinstance(raw, dict) and isinstance(raw.get("id"), str) else None
            more = raw if own is None else {key: value for key, value in raw.items() if not same(own.get(key), value)}
            told = raw if own is None else _told({key: decoded(value) for key, value in more.items()})
            left += [told if own is None else {"id": raw["id"], **told}] if told else []
        return left or None


def _named(each: Observation) -> dict[str, Any] | None:
    return {"observation": each.id} if each.id else None


def _failure(each: Observation) -> Error | None:
    if each.raw.get("level") != FAILED:
        return None
    message = each.raw.get("statusMessage")
    return Error(type=FAILED, message=message if isinstance(message, str) else "")


def _told(members: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None and value not in ("", [], {})}


FORMATS = (
    Format("langfuse", "a `trace` with its `observations`", "object", ("trace", "observations"), read, members=MEMBERS),
)
