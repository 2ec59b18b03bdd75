"""Runs a command of `gesta` in this process, and checks how it ended."""

import contextlib
import functools
import io
import os
import sys
import traceback
from typing import Any, NamedTuple

from typer.main import get_command

from gesta.cli import application
from gesta.cli.app import UNFORESEEN

CODES = {0, 1, 2, 3, 4, 5}
"""Exit codes of commands that nobody interrupted."""
WIDTH = "100"
GESTA = f"src{os.sep}gesta{os.sep}"


class Wrong(Exception):
    """A reader did something that it must never do."""


class Ended(NamedTuple):
    """How a command ended: its exit code and its output."""

    code: int
    out: str
    err: str


@functools.cache
def every_command() -> Any:
    """Return the commands of `gesta`, built once."""
    os.environ |= {"NO_COLOR": "1", "COLUMNS": WIDTH}
    return get_command(application())


def command(*words: str, answer: str = "") -> Ended:
    """Run a command, and return how it ended.

    Args:
        answer: text on its standard input.

    Raises:
        Wrong: the command printed a traceback, failed in an unforeseen way, or ended with an undocumented exit code.
    """
    code, out, err = 0, _Stream(), _Stream()
    known, stdin = every_command(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(answer.encode()))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            known.main(args=list(words), prog_name="gesta")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    finally:
        sys.stdin = stdin
    ended = Ended(code, out.text(), err.text())
    if UNFORESEEN in ended.err or "Traceback (most recent call last)" in ended.err:
        raise Wrong(f"`gesta {' '.join(words)}` said: {ended.err[-600:]}{_where(words)}")
    if code not in CODES:
        raise Wrong(f"`gesta {' '.join(words)!r}` ended with {code}")
    if code and not ended.err.strip() and not ended.out.strip():
        raise Wrong(f"`gesta {' '.join(words)!r}` ended with {code} without a word")
    return ended


def _where(words: tuple[str, ...]) -> str:
    """Return where an error happened, found by running the command again."""
    try:
        with contextlib.redirect_stdout(_Stream()), contextlib.redirect_stderr(_Stream()):
            every_command().main(args=[*words, "--debug"], prog_name="gesta")
    except SystemExit:
        return ""
    except BaseException as error:  # noqa: BLE001 - any exception is shown
        return where(error)
    return ""


def where(error: BaseException) -> str:
    """Return an error as text with the last places in Gesta that it passed through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if GESTA in frame.filename]
    places = [f"{frame.filename.partition(GESTA)[2]}:{frame.lineno} {frame.name}" for frame in frames[-4:]]
    return f"{type(error).__name__}: {str(error)[:500]} ({' > '.join(places)})"


class _Stream(io.TextIOWrapper):
    """Standard output or error of a command, set up as `main` does it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="backslashreplace")

    def text(self) -> str:
        self.flush()
        data = self.buffer.getvalue()  # type: ignore[attr-defined]
        return bytes(data).decode("utf-8", "replace")
