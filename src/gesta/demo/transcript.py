"""Prints a conversation from the entries on record, in their order. The seq of an entry is its number in the run."""

import json
from typing import Any

from gesta.demo.voice import AGENT, CUSTOMER, Voice
from gesta.entry import Entry
from gesta.kinds import (
    ApprovalContent,
    ApprovalRequestContent,
    AssistantContent,
    AttemptContent,
    Error,
    FaultContent,
    ResolutionContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.state.calls import LOST, UNKNOWN_END

WORDS = (UserContent, AssistantContent)
DEEDS = (ApprovalRequestContent, ApprovalContent, FaultContent, ResolutionContent)


class Transcript:
    """Prints the entries of one run, one after the other."""

    def __init__(self, voice: Voice) -> None:
        self.seen = 0
        """Seq of the entry that was printed last."""
        self.answer: int | None = None
        """Seq of the first answer after a person approved or denied a call; `None` before that."""
        self._voice = voice
        self._calls: dict[int, ToolCallContent] = {}
        """The calls without a result, by seq."""
        self._told: set[int] = set()
        """Seqs of the calls that were printed before they had a result."""
        self._attempts: dict[int, int] = {}
        """Seq of the call, by the seq of each attempt to run it."""
        self._settled: set[int] = set()
        """Seqs of the calls whose doubt was resolved. A doubt is a call that may or may not have happened."""
        self._judged = False

    def called(self, seq: int) -> str:
        """Return a call as text, such as `refund(order_id=1017)`.

        Args:
            seq: seq of the call, which must have no result yet: only such calls are kept in memory.
        """
        return described(self._calls[seq])

    def show(self, entry: Entry, *, spoken: bool = True) -> None:
        """Print a line about an entry, if the entry matters for the demo.

        Args:
            spoken: whether to print the words of customer and agent too. They may have been printed while they
                streamed.
        """
        self.seen = entry.seq
        match entry.content:
            case UserContent(value=text) if spoken:
                self._voice.gap()
                self._voice.person(CUSTOMER, text)
            case AssistantContent(value=text):
                if self._judged and self.answer is None:
                    self.answer = entry.seq
                if spoken:
                    self._voice.person(AGENT, text)
            case ToolCallContent() as call:
                self._calls[entry.seq] = call
            case ApprovalRequestContent(of=of):
                self._told.add(of)
                self._voice.note(self.called(of))
                self._voice.note("waits for a person's approval")
            case ApprovalContent(verdict=verdict, by=by):
                self._judged = True
                self._voice.note(f"{verdict} by {by}")
            case AttemptContent(of=of, number=number):
                self._attempts[entry.seq] = of
                if of in self._told:
                    self._voice.note(f"attempt {number} is on record (entry {entry.seq}), the tool may start")
            case FaultContent(error=Error(type=type_), over=over) if type_ == UNKNOWN_END:
                found = "has ended" if over else "may still be at work"
                self._voice.fact("looked up", f"entry {entry.seq}: what that attempt began {found}")
            case FaultContent(error=Error(type=type_)) if type_ == LOST:
                pass  # the death of the process was printed when it was killed
            case FaultContent(error=error):
                self._voice.note(f"{error.type}: {error.message}")
            case ResolutionContent() as settled:
                self._settle(entry.seq, settled)
            case ToolResultContent() as result:
                self._result(entry.seq, result)
            case _:
                pass

    def _settle(self, seq: int, settled: ResolutionContent) -> None:
        self._settled.add(self._attempts[settled.of])
        found = {
            "done": f"it is done ({brief(settled.result)})",
            "failed": "it failed",
            "retry": "it did not happen, and is to be tried again with the same key",
        }
        self._voice.fact("settled", f"entry {seq}, a resolution by {settled.by}: {found[settled.verdict]}")

    def _result(self, seq: int, result: ToolResultContent) -> None:
        of = result.call or 0
        call = self._calls.pop(of, None)
        if of in self._settled:
            self._voice.fact("result", f"entry {seq}: {brief(result.tool_result)}")
            return
        if call is not None and of not in self._told:
            self._voice.note(described(call))
        self._voice.note(f"-> {brief(result.tool_result)}")


class Summary(Transcript):
    """Prints a part of a conversation: some messages, and all approvals, faults and resolutions.

    A fault is a recorded failure, and a resolution says whether an interrupted call had its effect. Messages are
    printed up to the agent's first answer after a person's approval or denial.
    """

    def show(self, entry: Entry, *, spoken: bool = True) -> None:
        """Print a line about an entry, if the entry belongs to the summary."""
        of_summary = WORDS + DEEDS if self.answer is None else DEEDS
        with self._voice.muted(when=not isinstance(entry.content, of_summary)):
            super().show(entry, spoken=spoken)


def described(call: ToolCallContent) -> str:
    """Return a call as it would be written in Python."""
    args = {name: json.dumps(value, ensure_ascii=False, default=str) for name, value in call.tool_args.items()}
    return f"{call.tool_name}({', '.join(f'{name}={text}' for name, text in args.items())})"


def brief(result: Any) -> str:
    """Return a tool's result as one short line: the values of a dict, and for a list the number of its elements."""
    if isinstance(result, dict):
        return ", ".join(f"{name} {brief(value)}" for name, value in result.items())
    if isinstance(result, list):
        return f"({len(result)})"
    return str(result)
