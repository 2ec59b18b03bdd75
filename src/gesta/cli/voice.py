"""Prints a run while an agent works: the answer on stdout, everything else as short dim lines on stderr.

A run is one conversation of an agent, recorded as a list of entries. A turn is one message with all that follows until
its answer. Words of a reply come as events, before the reply is written to the record (the store of all runs). Calls
and results are read from the record. On a terminal the answer is printed while it comes. Into a pipe it is written as a
whole at the end, because words in a pipe cannot be withdrawn if the reply fails.
"""

import sys

import msgspec
from anyio.abc import ObjectReceiveStream

from gesta.cli.talk import DIM, RED, count, dollars, harmless, json_line, say, short, terminal
from gesta.entry import Entry
from gesta.events import Event, Outcome
from gesta.kinds import (
    ApprovalContent,
    AttemptContent,
    ChatCompletionContent,
    FaultContent,
    ResolutionContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.perform.call_contents import plain
from gesta.prompt import observation_text
from gesta.record.record import Record
from gesta.state.calls import LOST, UNKNOWN_END
from gesta.text.visible import call_text

WIDTH = 160
"""Greatest number of characters of a call or a result that are printed during a run."""


class Voice:
    """Prints the events of one run while an agent works on it, and the outcome at the end."""

    def __init__(self, *, as_json: bool, run: str | None = None, after: int | None = None) -> None:
        self.run = run
        """Id of the run; `None` until it is known."""
        self._json = as_json
        self._out = sys.stdout  # `driving` redirects the output of tools elsewhere
        self._broken = False
        self._live = not as_json and terminal(self._out)
        self._told = after
        self._shown: list[str] = []
        self._taken_back = ""

    async def follow(self, record: Record, events: ObjectReceiveStream[Event]) -> None:
        """Print the events of the run until the stream of events ends."""
        async for event in events:
            self.run = self.run or event.run
            if self._json:
                self._put(json_line(msgspec.to_builtins(event)))
            elif event.type == "answer":
                self._words(event.content)
            elif event.type == "retract":
                self._break()
            if not self._json and event.run == self.run and (event.seq is not None or event.type == "retract"):
                self._told = (event.seq or 1) - 1 if self._told is None else self._told
                await self._catch_up(record, event)
            elif not self._json and event.type == "observation" and event.seq is None:
                self._break()
                say(f"  · {short(event.content, WIDTH)}", DIM)
        if not self._json and self.run is not None and self._told is not None:
            await self._catch_up(record)

    async def _catch_up(self, record: Record, event: Event | None = None) -> None:
        """Print the entries that were written since the last call.

        Args:
            event: print up to the entry of this event, and the calls of the same reply; `None` to print all entries.
                For a `retract` event, the last printed entry is the withdrawn reply, or the `fault` entry about it.
        """
        assert self._told is not None
        assert self.run is not None
        entries = await record.read(self.run, self._told)
        calling = {cause for entry in entries if isinstance(entry.content, ToolCallContent) for cause in entry.causes}
        over = False
        for entry in entries:
            if over or (event is not None and _beyond(entry, event)):
                break
            came = isinstance(entry.content, ChatCompletionContent | FaultContent)
            over = came and event is not None and event.type == "retract" and event.message in entry.causes
            self._told = entry.seq
            line, style = entry_line(entry)
            if isinstance(entry.content, ChatCompletionContent) and entry.seq in calling:
                text = entry.content.output
                line = short(text, WIDTH) if text != self._taken_back else ""
            if line:
                self._break()
                say(f"  {line}", style)

    def _words(self, text: str) -> None:
        if self._live and text:
            self._put(harmless(text), end="")
            self._shown.append(text)

    def _break(self) -> None:
        """End the printed line, if words of a reply were printed."""
        if self._shown:
            self._put("")
            self._taken_back = "".join(self._shown)
            self._shown.clear()

    def _put(self, text: str, end: str = "\n") -> None:
        """Write `text` and `end` to stdout. If its reader closed it, raise no error, so that the agent continues."""
        try:
            print(text, end=end, file=self._out, flush=True)
        except BrokenPipeError:
            self._broken = True

    def end(self, outcome: Outcome) -> None:
        """Print a summary of the turn. If the answer was not printed before, print it first.

        Raises BrokenPipeError if nobody reads the output.
        """
        shown = "".join(self._shown)
        self._break()
        if self._json:
            self._put(json_line({"type": "outcome", **plain(outcome)}))
        elif outcome.answer is not None and outcome.answer != shown:
            self._put(harmless(outcome.answer) if self._live else outcome.answer)
        if outcome.reason != "waiting":
            say(summary(outcome), DIM)
        if self._broken:
            raise BrokenPipeError


def _beyond(entry: Entry, event: Event) -> bool:
    if event.seq is None or entry.seq <= event.seq:
        return False
    return not (isinstance(entry.content, ToolCallContent) and event.seq in entry.causes)


def summary(outcome: Outcome) -> str:
    """Return one line about a turn: its run and session, how it ended, and how many requests and tokens it used."""
    parts = [f"run {outcome.run}, session {outcome.session}: {outcome.reason}", count(outcome.requests, "request")]
    if outcome.tokens_in or outcome.tokens_out:
        parts.append(f"{outcome.tokens_in:,} tokens in, {outcome.tokens_out:,} out")
    if outcome.spent is not None:
        parts.append(dollars(outcome.usd))
    if outcome.unknown_usage:
        parts.append(f"{count(outcome.unknown_usage, 'reply')} without a count of tokens")
    return "; ".join(parts)


def entry_line(entry: Entry) -> tuple[str, str]:
    """Return a line about an entry for a person who watches, and the style of the line.

    The line is empty for most kinds of entries.
    """
    match entry.content:
        case ToolCallContent(tool_name=name, tool_args=args, status="error", meta=meta):
            return short(f"→ {call_text(name, args)}  malformed: {(meta or {}).get('error', '')}", WIDTH), RED
        case ToolCallContent(tool_name=name, tool_args=args):
            return short(f"→ {call_text(name, args)}", WIDTH), DIM
        case ToolResultContent(tool_result=result, status="error", outcome=outcome):
            return short(f"← {outcome or 'error'}: {observation_text(result)}", WIDTH), RED
        case ToolResultContent(tool_result=result):
            return short(f"← {observation_text(result)}", WIDTH), DIM
        case ThoughtContent(value=text):
            return short(f"~ {text}", WIDTH), DIM
        case AttemptContent(number=number) if number > 1:
            return f"attempt {number} of call {entry.content.of}", DIM
        case FaultContent(of=of, error=error, over=over) if error.type == UNKNOWN_END:
            return f"looked up: attempt {of} has ended" if over else f"looked up attempt {of}: {error.message}", DIM
        case FaultContent(error=error, wait_s=wait_s) if error.type != LOST:
            again = f"; again in {wait_s:g} s" if wait_s is not None else ""
            message = error.message.removesuffix(".") if again else error.message
            return short(f"! {error.type}: {message}", WIDTH) + again, RED
        case ApprovalContent(verdict=verdict, by=by, refused=str(refused)):
            return f"{verdict} by {by}, which does not count: {refused}", RED
        case ApprovalContent(verdict=verdict, by=by, reason=reason):
            return short(f"{verdict} by {by}{f': {reason}' if reason else ''}", WIDTH), DIM
        case ResolutionContent(verdict=verdict, by=by):
            return f"doubt settled by {by}: {verdict}", DIM
        case _:
            return "", DIM
