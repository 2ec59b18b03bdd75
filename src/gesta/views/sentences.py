"""Writes sentences about a call or a turn: attempts, faults, resolutions, questions to people and their answers.

An entry is one recorded fact of a run; its seq is its number there. An attempt is one execution of a tool call. A fault
is an entry about a failure, and a resolution settles whether a call happened. A hook is a function of the agent that
checks something. A line is the text that a page shows for one entry. Functions that return a dict return fields of a
line; see `lines.Line`.
"""

from collections.abc import Mapping
from typing import Any

from gesta import kinds
from gesta.entry import Entry, utc_text
from gesta.errors import InDoubt
from gesta.state.calls import ASKS, KEY_EXPIRED, LOST, UNKNOWN_END, UNSETTLED, UNSTARTED, WAITING, WAITS
from gesta.text.visible import remarks, visible
from gesta.views.overview import Death


def content_of(known: Mapping[int, Entry], seq: int) -> Any:
    """Return the content of the entry `seq`; `None` if the entry is not in `known`."""
    return known[seq].content if seq in known else None


def happened(content: Any, known: Mapping[int, Entry]) -> dict[str, Any]:
    """Return the line's fields for an attempt, a fault or a resolution.

    Args:
        content: the content of the entry.
        known: entries of the run that the content refers to, by seq.
    """
    match content:
        case kinds.AttemptContent(number=number, effect=effect, process=process):
            again = AGAIN.get(effect or "", "").format(number) or f"Attempt {number} began."
            told = f"Attempt {number} was written down before the tool ran." if number == 1 else again
            return {"part": "story", "text": told, "tone": "tool", "effect": effect, "process": process}
        case kinds.FaultContent(of=of, error=error, over=over) if error.type == UNKNOWN_END:
            ended = "is known to have ended" if over else "may still be at work"
            tone = "tool" if over else "waiting"
            return {"part": "story", "text": f"The process that ran it {ended}.", "tone": tone, "of": of}
        case kinds.FaultContent(of=of, error=error) if isinstance(content_of(known, of), kinds.BeginContent):
            text = DIED if error.type == LOST else f"{error.type}: {error.message}."
            return {"part": "story", "text": text, "tone": "fault", "of": of}
        case kinds.FaultContent(of=of, error=error, wait_s=wait_s, instead=instead):
            again = f" It was tried again after {wait_s:g} s." if wait_s is not None else ""
            again += f" {instead} was asked instead." if instead else ""
            said = error.message.rstrip(".")
            known_as = FAULTS.get(error.type)  # an unknown type is a provider's text, which may contain braces
            text = (known_as.format(said) if known_as is not None else f"{error.type}: {said}.") + again
            tone = "waiting" if error.type in (*WAITING, UNSETTLED) else "" if error.type == LOST else "fault"
            return {"part": "story", "text": text, "tone": tone, "of": of}
        case kinds.ResolutionContent(verdict=verdict, by=by, result=result):
            found = {"done": "it had happened", "failed": "it had not happened", "retry": "it may be tried again"}
            return {
                "part": "story",
                "who": by,
                "text": f"{visible(by)} settled the doubt: {found[verdict]}.",
                "tone": "settled",
                "outcome": verdict,
                "value": result,
            }
    return {"part": "story"}


DIED = "The process that worked on this turn was killed, or lost the run."
AGAIN = {
    "pure": "Attempt {} began: the tool only reads, so it may run again.",
    "idempotent": "Attempt {} began, with the same key as before.",
    "once": "Attempt {} began, after the one before it was over.",
}
"""Sentence for a second or later attempt, by the tool's effect policy (which says whether the tool may run again)."""
FAULTS = {
    LOST: "The answer of the model was lost with the process, so the model is asked again.",
    "timeout": "It took too long: {}.",
    InDoubt.__name__: "Nobody knows whether it happened: {}.",
    UNSTARTED: "It did not begin: {}.",
    UNSETTLED: "Nobody could tell yet what happened: {}.",
    KEY_EXPIRED: "Its key is too old to be used again: {}.",
    WAITS: "It waits for another run: {}.",
    ASKS: "It waits for a person: {}.",
}
"""Sentence for each type of fault that Gesta itself records."""


def died(death: Death) -> str:
    """Return sentences about the death of a process: what was running, and when another process took the run over."""
    flight = [*(f"{tool} (entry {call})" for tool, call in zip(death.tools, death.calls, strict=True))]
    if death.request is not None:
        flight.append(f"a request to the model (entry {death.request})")
    what = f"In flight: {', '.join(flight)}." if flight else "Nothing was in flight."
    gap_s = (death.at - death.before).total_seconds()
    return f"{DIED} {what} Another process took the run over {duration(gap_s)} after the last entry."


def duration(seconds: float) -> str:
    """Return a duration in words with one unit, such as `3 hours`."""
    if seconds < 1:
        return f"{max(seconds * 1000, 0.0):.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            number = round(seconds / size)
            return f"{number} {unit}{'s' if number != 1 else ''}"
    return ""


def concluded(entry: Entry, known: Mapping[int, Entry]) -> str:
    """Return a sentence that sums up a call: what the model was told, and whether anything was repeated.

    Args:
        entry: the result of the call.
        known: other entries of the run, by seq: at least those that the result was made from.
    """
    content = entry.content
    assert isinstance(content, kinds.ToolResultContent)
    outcome = content.outcome or ("ok" if content.status == "success" else "error")
    if outcome in TOLD:
        return TOLD[outcome]
    causes = [content_of(known, cause) for cause in entry.causes if isinstance(cause, int)]
    settled = next((each for each in causes if isinstance(each, kinds.ResolutionContent)), None)
    attempt = next((each for each in causes if isinstance(each, kinds.AttemptContent)), None)
    if settled is not None:
        return f"The model was told what {visible(settled.by)} said. The call was not made again."
    if attempt is None:
        return ""
    number, effect = attempt.number, attempt.effect
    if number == 1:
        return "It ran once, and the model was told its result."
    if effect == "pure":
        return f"The model was told the result of attempt {number}. The tool only reads, so nothing was repeated."
    if effect == "idempotent":
        return f"The model was told the result of attempt {number}. One key for all of them: the effect happened once."
    return f"The model was told the result of attempt {number}."


TOLD = {
    "denied": "The model was told that a person did not allow it. It did not run.",
    "interrupted": "The model was told that it was interrupted.",
    "unknown": "The model was told that nobody knows whether it happened. It was not made again.",
    "late": "Its own result came after all, and the model was told it then. It was not made again.",
}
"""Sentence that ends the description of a call, by the outcome of its result."""


def asked(content: Any) -> dict[str, Any]:
    """Return the line's fields for a request to a person, a person's answer, a hook's verdict, a signal or a timer."""
    match content:
        case kinds.ApprovalRequestContent(effect=effect, expires=expires):
            until = f", until {utc_text(expires)[:19]}" if expires is not None else ""
            text = f"A person was asked whether it may run{until}."
            return {"part": "story", "text": text, "tone": "waiting", "effect": effect}
        case kinds.ApprovalContent(verdict=verdict, by=by, args=args, reason=reason, refused=refused):
            why = f": {visible(reason)}" if reason else ""
            text = f"{visible(by)} {VERDICTS[verdict]}{why}."
            text += f" It does not count: {refused}." if refused else ""
            tone = "fault" if refused else "settled" if verdict == "approved" else "waiting"
            value = args if args is not None else content.result
            return {"part": "story", "who": by, "text": text, "tone": tone, "outcome": verdict, "value": value}
        case kinds.QuestionContent(value=text):
            return {"part": "asked", "text": text, "tone": "waiting", "remarks": tuple(remarks(text))}
        case kinds.AnswerContent(of=of, value=value, by=by):
            return {"part": "asked", "who": by, "value": value, "tone": "settled", "of": of, "outcome": "answered"}
        case kinds.CheckContent(of=of, hook=hook, verdict=verdict, words=words):
            tone = "fault" if verdict == "refused" else "waiting"
            text = f"The hook {hook} {CHECKS.get(verdict, verdict)}{f': {words}' if words else ''}."
            return {"part": "story", "text": text, "tone": tone, "of": of, "outcome": verdict, "value": content.value}
        case kinds.SignalContent(name=name, by=by, reason=reason):
            text = f"{by} sent {name}{f': {reason}' if reason else ''}."
            return {"part": "note", "text": text, "tone": "waiting", "who": by, "outcome": name}
        case kinds.TimerContent(due_at=due, key=key):
            return {"part": "machinery", "text": f"Timer {key}, due at {utc_text(due)[:19]}.", "tone": "waiting"}
    return {"part": "note"}


VERDICTS = {"approved": "approved it", "denied": "denied it", "answered": "gave its result in place of the tool"}
CHECKS = {"allowed": "allowed it", "changed": "changed it", "refused": "refused it", "asked": "asked a person"}
