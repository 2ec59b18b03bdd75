"""Output of the commands: data on stdout, messages on stderr, and no text that controls a terminal.

A record (the store of all runs) holds text of models, tools and strangers. Such text may contain escape sequences,
marks that reverse the direction of text, and lone surrogates. `harmless` replaces these characters by escapes, as in
Python source.
"""

import json
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

from gesta.errors import GestaError
from gesta.text.redactor import SECRETS, Flow

HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that control a terminal, reverse the direction of text, or cannot be seen."""

ANSWERED, FAILED, USAGE, WAITING, LIMIT, DOUBT, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 4, 5, 130, 141
"""Exit codes of the commands."""

RED, DIM, BOLD, PLAIN = "31", "2", "1", "0"


class Screen:
    """A text stream for people, which removes the secrets of this process from everything that is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._flow = stream, Flow(SECRETS)

    def write(self, text: str) -> int:
        """Write a text without secrets.

        If a secret may begin at the end of the text, that end is held back for the next call.
        """
        self._stream.write(self._flow.feed(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, as `write` does."""
        for line in lines:
            self.write(line)

    def end(self) -> None:
        """Write the text that `write` held back. Call this after the last `write`."""
        left = self._flow.feed("", last=True)
        with suppress(OSError, ValueError):
            if left:
                self._stream.write(left)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped stream, to which this object writes."""
        return getattr(self._stream, name)


class Stop(GestaError):
    """Raised if a command cannot do what was asked. The error holds the exit code of the command."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


def harmless(text: str) -> str:
    """Return a text in which escapes replace all characters that control a terminal, except tabs and line ends."""
    return HOSTILE.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_line(value: Any) -> str:
    """Return a value as one line of JSON. Escapes replace all characters that control a terminal.

    Numbers that JSON does not have are texts, as `"Infinity"`.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:  # also for an integer that Python refuses to write in decimal
        from gesta.prompt import numbers_in_hex, observation_text

        text = json.dumps(numbers_in_hex(value), default=observation_text)
        text = json.dumps(json.loads(text, parse_constant=str), ensure_ascii=False)
    return json_harmless(text)


def json_harmless(text: str) -> str:
    """Return a JSON text in which escapes replace characters that control a terminal. It encodes the same values."""
    return HOSTILE.sub(_json_escaped, text)


def _json_escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that shows colours, and the user has not switched them off."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and terminal(stream)


def terminal(stream: TextIO) -> bool:
    """Return whether a stream is an open terminal."""
    return not stream.closed and stream.isatty()


def styled(text: str, style: str, stream: TextIO) -> str:
    """Return a text with the codes for a style, such as `BOLD`; without them if the stream shows no styles."""
    return f"\x1b[{style}m{text}\x1b[{PLAIN}m" if colours(stream) else text


def say(text: str, style: str | None = None) -> None:
    """Print a message to the person, on stderr."""
    text = harmless(text)
    with suppress(BrokenPipeError):
        print(styled(text, style, sys.stderr) if style else text, file=sys.stderr, flush=True)


def complain(error: BaseException) -> None:
    """Print an error to the person, on stderr."""
    text = harmless(str(error) or type(error).__name__)
    print(f"{styled('error:', RED, sys.stderr)} {text}", file=sys.stderr, flush=True)


def put(text: str) -> None:
    """Write one line of data to stdout, and flush stdout."""
    print(text, flush=True)


def put_all(lines: Iterable[str]) -> None:
    """Write many lines of data to stdout."""
    for line in lines:
        print(line)


def count(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural: `1 entry`, `2 entries`."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def dollars(usd: float | None) -> str:
    """Return a sum of US dollars as text; `cost unknown` for `None`."""
    return "cost unknown" if usd is None else f"${usd:,.4f}"


def short(text: str, most: int) -> str:
    """Return a text as one line of at most `most` characters, without secrets. Dots replace a cut end."""
    line = " ".join(SECRETS.text(text).split())  # before the cut, because half a secret is not recognised
    return line if len(line) <= most else f"{line[: most - 3]}..."
