"""The sentences about a call or a turn: attempts, faults and resolutions, and what people were asked and answered.

Each function returns fields of a line; see `lines.Line`.
"""

from collections.abc import Mapping
from typing import Any

from gesta import kinds
from gesta.entry import Entry, utc_text
from gesta.state.calls import UNKNOWN_END
from gesta.text.visible import remarks, visible


def content_of(known: Mapping[int, Entry], seq: int) -> Any:
    """Return the content of an entry; `None` if the entry is not among `known`."""
    return known[seq].content if seq in known else None


def happened(content: Any, known: Mapping[int, Entry]) -> dict[str, Any]:
    """Return the fields for an attempt, a fault or a resolution: a sentence about its call or its turn."""
    match content:
        case kinds.AttemptContent(number=number, effect=effect, process=process):
            told = "was written down before the tool ran" if number == 1 else "was written down before it ran again"
            return {
                "part": "story",
                "text": f"Attempt {number} {told}.",
                "tone": "tool",
                "effect": effect,
                "process": process,
            }
        case kinds.FaultContent(of=of, error=error, over=over) if error.type == UNKNOWN_END:
            ended = "is known to have ended" if over else "may still be at work"
            return {"part": "story", "text": f"The process that ran it {ended}.", "tone": "fault", "of": of}
        case kinds.FaultContent(of=of, error=error) if isinstance(content_of(known, of), kinds.BeginContent):
            lost = "The process that worked on this turn was killed, or lost the run."
            text = lost if error.type == "lost" else f"{error.type}: {error.message}."
            return {"part": "story", "text": text, "tone": "fault", "of": of}
        case kinds.FaultContent(of=of, error=error, wait_s=wait_s, instead=instead):
            again = f" It was tried again after {wait_s:g} s." if wait_s is not None else ""
            again += f" {instead} was asked instead." if instead else ""
            text = f"{error.type}: {error.message.rstrip('.')}.{again}"
            return {"part": "story", "text": text, "tone": "fault", "of": of}
        case kinds.ResolutionContent(verdict=verdict, by=by, result=result):
            found = {"done": "it had happened", "failed": "it had not happened", "retry": "it may be tried again"}
            return {
                "part": "story",
                "who": by,
                "text": f"{by} settled the doubt: {found[verdict]}.",
                "tone": "settled",
                "outcome": verdict,
                "value": result,
            }
    return {"part": "story"}


def asked(content: Any) -> dict[str, Any]:
    """Return the fields for a request to a person, or for a person's answer."""
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
