"""Turns entries into lines for people: each entry becomes one line with a speaker, a text, and the call it belongs to.

An entry is one recorded fact of a run; its seq is its number there. A cause is an earlier entry that an entry was made
from. The viewer shows these lines. A line about a call (attempt, result, approval, or a fault: an entry about a
failure) holds the seq of that call in `of`. So a page can group the lines of a call in any order, even if it has only a
part of the run.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gesta import kinds
from gesta.entry import Entry, utc_text
from gesta.kinds import Kind
from gesta.model.usage import tokens
from gesta.text.visible import remarks
from gesta.views.files import facts as files_facts
from gesta.views.files import files, without
from gesta.views.overview import Death
from gesta.views.sentences import asked, concluded, content_of, died, happened

LONGEST = 4_000
"""Greatest number of characters of a text in a line. The whole text is in the entry."""
LINKS = 4
"""Greatest number of steps from an entry to its call, such as resolution → attempt → call."""

Part = Literal["turn", "end", "message", "words", "thought", "call", "story", "result", "note", "asked", "machinery"]
"""Role of a line on the page. `words`: text that a model wrote beside its calls. `story`: something that happened to a
call. `asked`: a question to a person. `machinery`: an entry that only Gesta itself needs."""
Tone = Literal["", "model", "tool", "waiting", "fault", "settled"]
"""Meaning of a line, from which a page chooses its colour."""


Work = (
    kinds.DecisionContent
    | kinds.PlanContent
    | kinds.RetrievalContent
    | kinds.ArtifactContent
    | kinds.CompactionContent
    | kinds.RequestHeaderContent
    | kinds.RequestContent
    | kinds.BudgetContent
)
"""Contents that belong to no message, call or wait. A new kind without a line makes mypy fail in `_facts`."""


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry as people read it: a line with a speaker, a text, and the call that the entry belongs to."""

    seq: int
    at: str
    """Time of the entry, in UTC."""
    kind: str
    part: Part
    span: int
    """Seq of the `begin` of the span around the entry."""
    of: int | None = None
    """Seq of the call that the line belongs to. For a fault of a turn, seq of the turn. For a model's reply and its
    cost, seq of the request. For a key-value, seq of the entry that it was made from."""
    who: str = ""
    """Name of the speaker, as recorded."""
    text: str = ""
    tone: Tone = ""
    """What the line is about, from which a page chooses its colour: for example `tool`, `waiting` or `fault`."""
    tool: str | None = None
    value: Any = None
    """Arguments of a call, its result, or the value of a note, as JSON."""
    said_at: str | None = None
    """For a person's answer: the time in UTC at which the store received it. `at` is when a program took it in."""
    outcome: str | None = None
    """Outcome of a result, verdict of a person, or reason of an end."""
    effect: str | None = None
    """The tool's `effect`, such as `once`, for an attempt or an approval request."""
    process: str | None = None
    """Id of the process that made an attempt."""
    model: str | None = None
    tokens: tuple[int, int] | None = None
    """Numbers of tokens that a model read and wrote."""
    cached: int | None = None
    """How many of the tokens it read came from the provider's cache; `None` if the provider does not say."""
    latency_ms: float | None = None
    parts: tuple[dict[str, Any], ...] = ()
    """Facts about images and files, each with its number in the entry; see `views.files`."""
    key: str | None = None
    """Key of the message that opened a turn."""
    run: str | None = None
    """Name of the child run that the entry is about."""
    spoken: int | None = None
    """Seq of the completion that this message was taken from, or that made this call."""
    differs: bool = False
    """Whether the message's text differs from the text of that completion."""
    concluded: str = ""
    """For a result: a sentence that sums up its call, such as what the model was told and whether anything was
    repeated."""
    calls: tuple[int, ...] = ()
    """For the death of a process: seqs of the calls that were running."""
    remarks: tuple[str, ...] = ()
    """Warnings about characters that a person cannot see or may mistake for others."""
    more: bool = False
    """Whether the text or the value was cut."""


def link(entry: Entry) -> int | None:
    """Return the seq of the entry that an entry says something about, such as its call; `None` if there is none."""
    content = entry.content
    match content:
        case kinds.ToolResultContent(call=call):
            return call
        case kinds.EdgeContent():
            return first(entry)
        case _:
            return getattr(content, "of", None)


def needed(entry: Entry) -> set[int]:
    """Return the seqs of other entries that the line of an entry is made from. `lines` needs them in `known`."""
    caused = entry.kind in (Kind.ToolResult, Kind.Assistant)
    causes = {cause for cause in entry.causes if isinstance(cause, int)} if caused else set()
    return {seq for seq in (link(entry), entry.span, *causes) if seq}


def first(entry: Entry) -> int | None:
    """Return the seq of an entry's first cause in its own run; `None` if there is none."""
    return next((cause for cause in entry.causes if isinstance(cause, int)), None)


def lines(entries: Iterable[Entry], known: Mapping[int, Entry]) -> list[Line]:
    """Return one line for each entry, in the same order.

    Args:
        entries: the entries, in the order of the run.
        known: other entries by seq: at least those that `needed` returns for `entries`.
    """
    return [line(entry, known) for entry in entries]


def line(entry: Entry, known: Mapping[int, Entry]) -> Line:
    """Return the line of one entry. `known` holds at least the entries that `needed` names, by seq."""
    facts = _facts(entry, known)
    about, named = _about(entry, known), facts.pop("of", None)
    of = about.seq if about is not None else named
    text, value = str(facts.pop("text", "")), facts.pop("value", None)
    more = len(text) > LONGEST
    if value is not None:
        value, cut = _cut(without(value, []))
        more = more or cut
    return Line(
        seq=entry.seq,
        at=utc_text(entry.at),
        kind=str(entry.kind),
        span=entry.span,
        of=of,
        text=text[:LONGEST],
        value=value,
        more=more,
        parts=files_facts(files(entry.content)),
        said_at=utc_text(sent) if isinstance(sent := getattr(entry.content, "sent_at", None), datetime) else None,
        **facts,
    )


def fell(line: Line, death: Death) -> Line:
    """Return a copy of a line about the death of a process, with the calls that were running when it died."""
    return replace(line, text=died(death), calls=death.calls)


def _about(entry: Entry, known: Mapping[int, Entry]) -> Entry | None:
    """Return the entry that an entry is about: a call, or the `begin` of the turn; `None` if there is none."""
    found, here = None, entry
    for _ in range(LINKS):
        seq = link(here)
        if seq is None or seq not in known or seq >= here.seq:
            break
        here = known[seq]
        if here.kind in (Kind.ToolCall, Kind.Begin):
            found = here
    return found


def _cut(value: Any) -> tuple[Any, bool]:
    """Return a copy of a value with at most `2 * LONGEST` characters of text, and whether anything was cut."""
    left, cut = LONGEST * 2, False

    def walk(each: Any, depth: int) -> Any:
        nonlocal left, cut
        if isinstance(each, str):
            kept = each[: max(0, left)]
            left -= len(each)
            cut = cut or len(kept) < len(each)
            return kept
        if isinstance(each, dict | list | tuple) and (depth > 8 or left <= 0):
            cut = True
            return "…"
        if isinstance(each, dict):
            left -= 2 * len(each)
            return {str(key)[:200]: walk(inner, depth + 1) for key, inner in list(each.items())[:200]}
        if isinstance(each, list | tuple):
            left -= 2 * len(each)
            cut = cut or len(each) > 200
            return [walk(inner, depth + 1) for inner in each[:200]]
        return each

    return walk(value, 0), cut


def _facts(entry: Entry, known: Mapping[int, Entry]) -> dict[str, Any]:
    """Return the fields of a line that depend on the kind of the entry."""
    content = entry.content
    match content:
        case kinds.UserContent(value=text, user_id=user):
            return {"part": "message", "who": user or "user", "text": text}
        case kinds.AssistantContent(value=text):
            said = first(entry)
            who = _speaker(entry, known)
            reply = content_of(known, said or 0)
            differs = isinstance(reply, kinds.ChatCompletionContent) and _other(reply.output, text)
            return {"part": "message", "who": who, "text": text, "spoken": said, "differs": differs}
        case kinds.SystemContent(value=text):
            who = " → ".join(content.source or ()) or "system"
            return {"part": "message", "who": who, "text": text}
        case kinds.ChatCompletionContent(output=text, usage=usage):
            counts = tokens(usage)
            return {
                "part": "words",
                "who": _speaker(entry, known),
                "text": text,
                "tone": "model",
                "model": content.model,
                "tokens": (counts.input, counts.output) if counts is not None else None,
                "cached": counts.cache_read if counts is not None else None,
                "latency_ms": content.latency_ms,
                "of": first(entry),
                "outcome": content.finish_reason,
            }
        case kinds.ThoughtContent(value=text):
            return {"part": "thought", "text": text, "tone": "model"}
        case kinds.ToolCallContent() | kinds.ToolResultContent():
            return _called(entry, content, known)
        case kinds.BeginContent() | kinds.EndContent() | kinds.EdgeContent() | kinds.KeyValueContent():
            return _scope(content, first(entry))
        case kinds.AttemptContent() | kinds.FaultContent() | kinds.ResolutionContent():
            return happened(content, known)
        case (
            kinds.ApprovalRequestContent()
            | kinds.ApprovalContent()
            | kinds.QuestionContent()
            | kinds.AnswerContent()
            | kinds.CheckContent()
            | kinds.SignalContent()
            | kinds.TimerContent()
        ):
            return asked(content)
        case _:
            return _work(content)


def _other(reply: str, said: str) -> bool:
    """Return whether a reply says something other than the answer that was taken from it. White space is ignored."""
    return bool(reply.strip()) and "".join(reply.split()) != "".join(said.split())


def _speaker(entry: Entry, known: Mapping[int, Entry]) -> str:
    """Return the name of the agent that an entry's span belongs to; an empty text if the span belongs to no agent."""
    begin = content_of(known, entry.span)
    return begin.name if isinstance(begin, kinds.BeginContent) and begin.role in ("turn", "agent") else ""


def _called(
    entry: Entry, content: kinds.ToolCallContent | kinds.ToolResultContent, known: Mapping[int, Entry]
) -> dict[str, Any]:
    """Return the line's fields for a call or its result."""
    match content:
        case kinds.ToolCallContent(tool_name=tool, tool_args=args, status=status, meta=meta):
            wrong = str((meta or {}).get("error", "The call was not generated well.")) if status == "error" else ""
            made = first(entry)
            return {
                "part": "call",
                "tool": tool,
                "value": args,
                "text": wrong,
                "tone": "fault" if wrong else "tool",
                "spoken": made,
                "remarks": tuple(remarks(args)),
            }
        case kinds.ToolResultContent(tool_result=value, outcome=outcome, status=status):
            how = outcome or ("ok" if status == "success" else "error")
            value = _records(value) if isinstance(value, str) else value
            return {
                "part": "result",
                "value": value if not isinstance(value, str) else None,
                "text": without(value, []) if isinstance(value, str) else RESULTS.get(how, ""),
                "tone": "tool" if how == "ok" else "fault" if how == "error" else "waiting",
                "outcome": how,
                "concluded": concluded(entry, known),
                "who": content.by or "",
            }


def _records(text: str) -> Any:
    """Return the list or object in a JSON text, if the text is too long for a line to show whole.

    Any other text is returned unchanged, and so is a text of more than `100 * LONGEST` characters.
    """
    if not LONGEST < len(text) <= LONGEST * 100 or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


ENDED = frozenset({"limit", "budget"})
"""Reasons why a turn ended for which the error's message is shown without the error's type."""
RESULTS = {
    "denied": "It was denied, and did not run.",
    "interrupted": "It had not begun when the turn was interrupted.",
    "unknown": "Its outcome is not known, and it was not run again.",
    "late": "The result came after the model had been told something else.",
}
"""Sentence for a result without a text, by its outcome."""


def _scope(content: Any, cause: int | None) -> dict[str, Any]:
    """Return the fields of the line for a `begin`, `end`, `edge` or `key-value` entry.

    Args:
        cause: seq of the entry that this entry was made from; `None` if there is none.
    """
    match content:
        case kinds.BeginContent(role="turn", name=name, key=key):
            return {"part": "turn", "who": name, "key": key}
        case kinds.BeginContent(name=name, role=role):
            return {"part": "note", "who": role or "span", "text": name, "value": content.state}
        case kinds.EndContent(reason=reason, status=status, error=error, doubts=doubts):
            text = "" if error is None else error.message if reason in ENDED else f"{error.type}: {error.message}"
            text += f" Still in doubt: {', '.join(doubts)}." if doubts else ""
            fault = error is not None or status == "error"
            return {
                "part": "end",
                "outcome": reason or status,
                "text": text,
                "tone": "fault" if fault else "",
                "value": content.state,
            }
        case kinds.EdgeContent(source=source, dest=dest, child=child):
            return {"part": "note", "who": "calls", "text": f"{'/'.join(source)} → {'/'.join(dest)}", "run": child}
        case kinds.KeyValueContent(key=key, value=value):
            return {"part": "note", "who": key, "value": value, "of": cause}
    return {"part": "note"}


def _work(content: Work) -> dict[str, Any]:
    """Return the line's fields for an entry about the agent's work, such as a plan, a retrieval or a request."""
    match content:
        case kinds.DecisionContent(choice=choice, candidates=candidates, rationale=why):
            text = f"{choice}, of {', '.join(candidates)}{f': {why}' if why else ''}"
            return {"part": "note", "who": "decision", "text": text}
        case kinds.PlanContent(role=role, steps=steps):
            return {"part": "note", "who": role, "value": [step.goal for step in steps]}
        case kinds.RetrievalContent(query=query, hits=hits):
            found = [{"document": hit.document, "chunk": hit.chunk, "score": hit.score} for hit in hits]
            return {"part": "note", "who": "retrieval", "text": query, "value": found, "tone": "tool"}
        case kinds.ArtifactContent(name=name, media_type=media):
            return {"part": "note", "who": "artifact", "text": f"{name} ({media})"}
        case kinds.CompactionContent(from_seq=first, to_seq=last, summary=summary):
            text = f"Entries {first} to {last} are shown to the model as {'this summary' if summary else 'nothing'}."
            return {"part": "note", "who": "compaction", "text": text, "value": summary}
        case kinds.RequestHeaderContent(tools=tools, meta=meta):
            meta = meta or {}
            value = {"model": meta.get("model"), "tools": [tool.get("name") for tool in tools or ()]}
            return {"part": "machinery", "who": "header", "text": str(meta.get("instructions") or ""), "value": value}
        case kinds.RequestContent(number=number, blocks=blocks, extends=extends):
            after = f", after request {extends}" if extends is not None else ""
            return {"part": "machinery", "who": "request", "text": f"{len(blocks)} new blocks{after}, try {number}"}
        case kinds.BudgetContent(spent=spent, reserved=reserved):
            return {"part": "machinery", "who": "budget", "value": spent or reserved, "of": content.of}
    assert_never(content)
