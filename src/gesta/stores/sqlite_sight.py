"""Finds out whether a process that writes a record's file still runs, in a process that may only read the file.

A process that writes the file has a `Hold`, whose descriptor shows the locks of the others. A process that only reads
the file opens it once more for this. POSIX drops all locks of a process on a file when any descriptor of it is closed,
those of SQLite too. So this descriptor stays open as long as anything in this process has the file open.
"""

import os
from pathlib import Path

from msgspec import Struct

from gesta.stores.locks import ended
from gesta.stores.sqlite_guard import File, held, identified, opened_elsewhere, opened_here
from gesta.stores.sqlite_open import OPENING


class Sight(Struct, frozen=True):
    """A file that was opened to look at its locks."""

    path: Path
    descriptor: int
    """Open for reading only; no subprocess inherits it."""


_SIGHTS: dict[File, Sight] = {}


def gone(path: Path, process: str) -> bool | None:
    """Return whether a process that wrote this file has ended; `None` if that is not known.

    Args:
        process: the name of the process, in the form of `Presence.process`.
    """
    with OPENING:
        hold = held(path)
        if hold is not None:
            return hold.presence.gone(process)
        try:
            file = identified(path)
            if file not in _SIGHTS:
                descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
                _SIGHTS[file] = Sight(path, descriptor)
            return ended(_SIGHTS[file].descriptor, process)
        except OSError:
            return None


def leave() -> None:
    """Close the descriptor of each file that this process does not use any more."""
    with OPENING:
        for file, sight in list(_SIGHTS.items()):
            if not (held(sight.path) or opened_here(sight.path) or opened_elsewhere(sight.path)):
                del _SIGHTS[file]
                os.close(sight.descriptor)
