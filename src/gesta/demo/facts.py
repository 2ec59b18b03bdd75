"""The numbers that the demo prints.

They are computed from the recorded entries (messages, requests, calls); nothing is counted while the demo runs.
"""

from collections.abc import Iterable

from msgspec import Struct

from gesta.entry import Entry
from gesta.kinds import ChatCompletionContent, RequestContent, ToolCallContent
from gesta.model.usage import tokens


class Usage(Struct):
    """Numbers of requests to a model, of its answers, and of tokens."""

    asked: int = 0
    """Number of requests."""
    answered: int = 0
    """Number of answers."""
    given: int = 0
    """Number of tokens sent to the model."""
    taken: int = 0
    """Number of tokens received from the model."""
    unknown: int = 0
    """Number of answers that came without a count of tokens."""

    @property
    def text(self) -> str:
        """The numbers of tokens sent and received, as one line of text."""
        if self.answered == self.unknown:
            return "unknown"
        known = f"{self.given:,} in, {self.taken:,} out"
        return f"{known}; {self.unknown} of {self.answered} answers came without a count" if self.unknown else known


def usage(entries: Iterable[Entry]) -> Usage:
    """Return how many requests, answers and tokens the entries show."""
    total = Usage()
    for entry in entries:
        match entry.content:
            case RequestContent():
                total.asked += 1
            case ChatCompletionContent(usage=given):
                total.answered += 1
                counted = tokens(given)
                if counted is None:
                    total.unknown += 1
                else:
                    total.given, total.taken = total.given + counted.input, total.taken + counted.output
            case _:
                pass
    return total


def bought_again(entries: Iterable[Entry]) -> int:
    """Return the number of requests that were sent again although an equal request had been answered.

    Requests are equal if their bodies are. A reply without text and calls is not an answer.
    """
    digests: dict[int, str] = {}
    replies: dict[int, set[str]] = {}
    answered: set[str] = set()
    again = 0
    for entry in entries:
        match entry.content:
            case RequestContent(body_digest=digest):
                again += digest in answered
                digests[entry.seq] = digest
            case ChatCompletionContent(output=text):
                replies[entry.seq] = {digests[cause] for cause in entry.causes if isinstance(cause, int)}
                answered |= replies[entry.seq] if text.strip() else set()
            case ToolCallContent():
                answered.update(*(replies.get(cause, ()) for cause in entry.causes if isinstance(cause, int)))
            case _:
                pass
    return again
