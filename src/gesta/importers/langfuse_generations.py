"""Writes what the models and tools of a trace did: messages that were sent, replies, calls and results.

A trace is a recording of what a program did. An observation is one step of it, such as a tool call. A generation is the
observation of one model call. Its reply is written when the generation ends. It is written earlier if a tool inside it
begins, if a tool begins that runs one of its calls, or if a request contains it. A tool is matched with a call by the
call's id, else by name and arguments, else by name. A span that is not a tool is matched by name and arguments only.

A run is a list of entries. A seq is an entry's number, a span a part of a run, a completion a reply of a model. The
parameter `span` of a method is the seq of the `begin` entry of the span in which the method writes entries.
"""

import math
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from gesta.importers.chat import Said
from gesta.importers.foreign import Oddities, same, without_keys
from gesta.importers.framework_message import ROLES, tools_of
from gesta.importers.langfuse_messages import INPUTS, OUTPUTS, Given, from_attributes, is_cut
from gesta.importers.langfuse_messages import read as read_messages
from gesta.importers.observed import MODEL, TOOL, Observation
from gesta.importers.python_text import decoded
from gesta.importers.retold import Hearing, Retold, Waits, args_digest, fits, pieces_of
from gesta.importers.spans import Spans, When
from gesta.kinds import AssistantContent, ChatCompletionContent, KeyValueContent, RequestHeaderContent

UNKNOWN = "unknown-form"
"""Key of the key-value entry that keeps a value whose form is unknown."""
CALL_IDS, TOOL_NAMES = ("gen_ai.tool.call.id", "tool_call.id"), ("gen_ai.tool.name", "tool.name")
NO_SETTINGS = ("created_at", "id", "instructions", "metadata", "model")
"""Members of a request's parameters that are not settings, or that belong to one reply only."""
PROMPT, COMPLETION = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")


class Due(Struct, frozen=True):
    """A reply of a generation that waits to be written as an entry."""

    each: Observation
    span: int
    gave: Given


class Generations:
    """Writes the generations and tools of one trace as entries."""

    def __init__(self, spans: Spans, oddities: Oddities) -> None:
        self._spans, self._oddities = spans, oddities
        self._retold = Retold(spans, oddities)
        self.heard: set[int] = set()
        """Numbers of the generations whose messages were written."""
        self._due: dict[int, Due] = {}
        """Replies that are not written yet, by the number of their generation, in the order in which the generations
        began."""
        self._calls: dict[int, int] = {}
        """Seq of the call that a tool runs, by the number of the tool's observation."""
        self._asked: Observation | None = None
        """The last generation whose input held messages."""
        self._answer: int | None = None
        """Seq of the completion of the generation `_asked`, if the completion has no calls."""

    def nested(self, each: Observation) -> bool:
        """Return whether a generation is inside another generation, so that both are the same model call."""
        return each.role == MODEL and any(above.place in self.heard for above in each.above)

    def take(self, each: Observation, span: int) -> Any:
        """Write the messages in a generation's input that are not written yet.

        Return the value for the field `state` of the entry that begins the generation's span; `None` if the form of
        the input is unknown.
        """
        told, gave = self._read(each, each.input, INPUTS), self._read(each, each.output, OUTPUTS)
        for key, given, value in (("input", told, each.input), ("output", gave, each.output)):
            if given is None and value is not None:
                self._oddities[UNKNOWN] += 1
                self._spans.write(KeyValueContent(key=UNKNOWN, value={key: value}), span, When(each.begins.at))
        if gave is not None:
            self._due[each.place] = Due(each, span, gave)
        if told is not None or gave is not None:
            self.heard.add(each.place)
        if told is None:
            return None
        self._tell(told.said, When(each.begins.at))
        self._asked, self._answer = each, None
        when, headed = each.begins, self._header(each, told, gave, span)
        return told.shown(self._retold.hear(told.items, Hearing(span, When(when.at)), headed=headed))

    def reply(self, place: int, when: When) -> None:
        """Write the reply of a generation, if it is not written yet.

        Args:
            place: number of the generation.
            when: time of the reply.
        """
        due = self._due.pop(place, None)
        if due is None:
            return
        gave, said = due.gave, [one for one in due.gave.said if one.role == "assistant"]
        made = Said(
            role="assistant",
            text="\n".join(one.text for one in said if one.text),
            calls=[call for one in said for call in one.calls],
            reasoning="\n".join(one.reasoning for one in said if one.reasoning) or None,
        )
        finish = gave.finish_reason or next((one.finish_reason for one in said if one.finish_reason), None)
        content = _completion(due.each, made.text, gave, finish)
        completion = self._retold.give(made, content, Hearing(due.span, when))
        if due.each is self._asked:
            self._answer = None if made.calls else completion

    def begin(self, each: Observation) -> int | None:
        """Return the seq of the call that led to an observation, at the time when it begins; `None` if no call did.

        If the reply that contains the call is not written yet, it is written first.
        """
        when = When(each.begins.at)
        for outer in each.above if each.role == TOOL else ():
            self.reply(outer.place, when)
        call = self.call_of(each)
        if call is None:
            for place in [place for place, due in self._due.items() if self._calls_for(due, each)][:1]:
                self.reply(place, when)
                call = self.call_of(each)
        return call

    def call_of(self, each: Observation) -> int | None:
        """Return the seq of the call that led to an observation; `None` if no call without a result matches."""
        call = self._retold.match(*_carried(each), loose=each.role == TOOL)
        if call is not None and call not in self._calls.values():
            self._calls[each.place] = call
        return self._calls.get(each.place)

    def result(self, each: Observation, span: int, *, failed: bool) -> None:
        """Write the output of a tool as the result of its call, unless the call has a result already.

        Args:
            failed: whether the tool failed.
        """
        if each.role != TOOL and each.place not in self._calls:
            return
        call = self._calls.get(each.place) or self.call_of(each)
        if call is None:
            self._oddities["orphan-result"] += each.output is not None
        elif call in self._retold.waiting and (each.output is not None or failed):
            given = read_messages(each.output, "tool", Oddities()) if each.output is not None else None
            found = next((said for said in given.said if said.role == "tool"), None) if given is not None else None
            said = Said(role="tool", result=each.output if found is None else found.result, error=failed)
            self._retold.observe(call, said, Hearing(span, each.ends))

    def shown(self, given: Iterable[Any], span: int, when: When) -> bool:
        """Write the answer that the person was shown. Return whether there is an answer.

        The answer is the text of the last generation. If that generation calls a tool, it is the text in the trace's
        output.

        Args:
            given: outputs of the trace and its outermost observations.
        """
        answer = self._answer
        if answer is None and self._asked is not None and not self._retold.waiting:
            read = (read_messages(value, "assistant", Oddities()) for value in given if value is not None)
            said = (one for each in read if each is not None for one in reversed(each.said))
            text = next((one.text for one in said if one.role == "assistant" and one.text), None)
            if text is not None:
                made, content = Said(role="assistant", text=text), _completion(self._asked, text)
                answer = self._retold.give(made, content, Hearing(span, When(when.at)), ("output",))
        if answer is None:
            return False
        last = self._spans.entries[answer - 1].content
        assert isinstance(last, ChatCompletionContent)
        self._spans.write(AssistantContent(value=last.output), span, when, (answer,))
        return True

    @property
    def waiting(self) -> int:
        """Number of calls that have no result."""
        return len(self._retold.waiting)

    def kept(self, each: Observation) -> dict[str, Any]:
        """Return the attributes of an observation, except values that its input or output contains too."""
        known = [decoded(value) for value in (each.input, each.output) if value is not None]
        doubled = set[str]()
        for value, starts, by in ((each.input, INPUTS, "user"), (each.output, OUTPUTS, "assistant")):
            listed = from_attributes(each.attributes, starts)
            one, other = (read_messages(held, by, Oddities()) for held in (value, listed))
            if one is not None and other is not None and _same(one.said, other.said):
                texts, items = _texts(value), each.attributes.items()
                doubled |= {name for name, text in items if name.startswith(starts) and _is_in(text, texts)}
        more = [(name, value) for name, value in each.attributes.items() if name not in doubled]
        return {name: value for name, value in more if not any(same(decoded(value), held) for held in known)}

    def _calls_for(self, due: Due, each: Observation) -> bool:
        made = (Waits(one.id, one.name, args_digest(one.args)) for said in due.gave.said for one in said.calls)
        return fits(dict(enumerate(made)), *_carried(each), loose=each.role == TOOL) is not None

    def _tell(self, told: list[Said], when: When) -> None:
        """Write the waiting replies that a later request repeats, before the request itself is written.

        By the recorded times, the generation of such a reply may end after the request.

        Args:
            told: the messages of the request.
        """
        known = [key for said in told if said.role == "assistant" for key in pieces_of(said)] if self._due else []
        for place, due in [*self._due.items()]:
            parts = [key for said in due.gave.said for key in pieces_of(said)]
            if parts and all(part in known for part in parts):
                self.reply(place, when)

    def _read(self, each: Observation, value: Any, starts: tuple[str, ...]) -> Given | None:
        by = "user" if starts is INPUTS else "assistant"
        if value is None:
            value = from_attributes(each.attributes, starts)
            if value is not None and by == "assistant" and is_cut(each.attributes, starts):
                self._oddities["cut-message"] += 1
                return None
        given = read_messages(value, by, self._oddities) if value is not None else None
        empty = given is not None and by == "assistant" and not any(said.role == by for said in given.said)
        return None if empty else given

    def _header(self, each: Observation, told: Given, gave: Given | None, span: int) -> bool:
        """Write a request header: an entry with the instructions, tools and settings of a request.

        Return whether the first message of the request is the instructions. That message gets no entry of its own.

        Args:
            told: the input of the generation.
            gave: its output; `None` if the form of the output is unknown.
        """
        first = told.said[0] if told.said else None
        instructions = told.instructions or (gave.instructions if gave is not None else None)
        headed = instructions is None and first is not None and first.role == "system"
        extra = first.extra if first is not None and headed else None
        tools = list(
            tools_of([*told.tools, *(one.tool for one in told.items), *(gave.tools if gave is not None else ())])
        )
        settings = each.raw.get("modelParameters")
        settings = without_keys(settings) if isinstance(settings, dict) else {}
        meta = {
            "model": _model(each),
            "instructions": first.text if first is not None and headed else instructions,
            "settings": {key: value for key, value in settings.items() if key not in NO_SETTINGS} or None,
        }
        known = {key: value for key, value in meta.items() if value is not None}
        if known or tools:
            content = RequestHeaderContent(tools=tools or None, meta=known or None, extra=extra)
            self._retold.header(content, span, each.begins)
        return headed


def _carried(each: Observation) -> tuple[str | None, str, Any]:
    call_id = next((text for key in CALL_IDS if isinstance(text := each.attributes.get(key), str)), None)
    names = [text for key in TOOL_NAMES if isinstance(text := each.attributes.get(key), str)]
    return call_id, [*names, each.name][0], each.input


def _completion(
    each: Observation, text: str, gave: Given | None = None, finish_reason: str | None = None
) -> ChatCompletionContent:
    """Return the content of the completion that a generation becomes.

    Args:
        each: the generation.
        text: the text of the reply.
        gave: the whole reply as it was read; `None` if only its text is known.
    """
    details = each.raw.get("costDetails")
    cost = _number(details.get("total")) if isinstance(details, dict) else None
    whole = None if gave is None or isinstance(gave.whole, str) else gave.whole
    meta = {key: value for key, value in (("cost_usd", cost), ("raw", whole)) if value is not None}
    return ChatCompletionContent(
        output=text,
        model=(gave.model if gave is not None else None) or _model(each),
        finish_reason=finish_reason,
        usage=_usage(gave.usage if gave is not None else None, each.raw.get("usageDetails")),
        latency_ms=_latency_ms(each),
        meta=meta or None,
    )


def _same(told: list[Said], listed: list[Said]) -> bool:
    """Return whether two lists of messages have the same texts, calls and results. Instructions are not compared."""
    both = [[_plain(said) for said in every if said.role != "system"] for every in (told, listed)]
    return same(both[0], both[1])


def _texts(value: Any) -> set[str]:
    """Return all texts inside a value. Texts that contain JSON or Python values are searched too."""
    found, left = set[str](), [value]
    while left:
        each = left.pop()
        if isinstance(each, str) and each not in found:
            found.add(each)
            left.append(decoded(each))
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
    return found


def _is_in(text: Any, texts: set[str]) -> bool:
    return isinstance(text, str) and (text in texts or text in ROLES)


def _plain(said: Said) -> tuple[Any, ...]:
    calls = [(made.id, made.name, decoded(made.args)) for made in said.calls]
    return said.role, said.text, calls, said.call_id, decoded(said.result)


def _model(each: Observation) -> str | None:
    model = each.raw.get("model")
    return model if isinstance(model, str) and model else None


def _number(value: Any) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _latency_ms(each: Observation) -> float | None:
    """Return the latency in milliseconds; `None` if it is not stated.

    Sources state it in seconds or in milliseconds. The unit that fits the recorded duration of the observation is
    assumed.
    """
    given = _number(each.raw.get("latency"))
    if given is None or each.begins.at is None or each.ends.at is None:
        return None if given is None else given * 1000
    took = (each.ends.at - each.begins.at).total_seconds() * 1000
    return min(given * 1000, given, key=lambda ms: abs(ms - took))


def _usage(given: dict[str, Any] | None, details: Any) -> dict[str, Any] | None:
    """Return the token counts of a model call; `None` if neither argument has counts.

    Args:
        given: the counts in the reply. They are used if they count input and output, or if there are no `details`.
        details: Langfuse's own counts. They are returned with the names `input_tokens` and `output_tokens` added.
    """
    if given is not None and any(name in given for name in PROMPT) and any(name in given for name in COMPLETION):
        return given
    if not isinstance(details, dict) or not details:
        return given
    counts = {f"{key}_tokens": details[key] for key in ("input", "output") if _number(details.get(key)) is not None}
    return {**details, **counts}
