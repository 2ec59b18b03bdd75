"""The name of a process in a record on a PostgreSQL server, and two locks which show that the process runs.

A record is the stored history of all runs (conversations of agents). A lease is the right of a process to write a run.
All stores of a process that write one record share the name and the locks:
- A lock on the server, held by a connection that runs no statement of a tool. While it is held, no other process may
  take this process's leases.
- A lock on one byte of a file on this machine. It shows other processes on the machine whether this process has ended.
  The lock on the server cannot show that: a process may lose its connection and go on running tools.

The file is named `processes`. It is in the folder `GESTA_STATE`, or in the user's folder for state, or in a folder for
temporary files. It holds a random name, so that the files of two machines differ.
"""

import os
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Protocol
from weakref import WeakSet

import psycopg

from gesta.stores.common import private
from gesta.stores.locks import Presence
from gesta.stores.postgres_open import Connection, Place, connect, number, standing

VARIABLE = "GESTA_STATE"
FILE = "processes"
NAMED = 16  # number of hex digits in the file


class Holding:
    """The name of one process in one record, with the two locks which show that the process runs.

    The locks are a byte of a file, and a connection to the server. They are freed when no store uses them any longer.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._uses = 0  # number of open stores, and of calls of `keep` that have not ended
        self._stores = 0  # number of open stores that write
        self._opening = Lock()
        self._presence: Presence | None = None  # locked before the first lease: a process that only reads needs no lock
        self._origin = ""  # the random name in the file `processes`
        self._keeping = Lock()
        self._keeper: Connection | None = None
        watch_forks(self)

    @property
    def presence(self) -> Presence:
        """The locked byte of this process in the file `processes`. The first access locks it, and may raise OSError."""
        with self._opening:
            if self._presence is None:
                self._presence, self._origin = present()
            return self._presence

    @property
    def holds(self) -> bool:
        """Whether this process has locked its byte in the file, and so has a name in the record."""
        return self._presence is not None

    @property
    def process(self) -> str:
        """The name of this process in the record. The first access locks its byte, and may raise OSError."""
        return f"{self.presence.process}.{self._origin}"

    def gone(self, process: str) -> bool | None:
        """Return whether a process has ended; `None` for a process of another machine.

        Args:
            process: a name as the property `process` returns it.
        """
        try:
            presence = self.presence
        except OSError:
            return None
        name, _, origin = process.rpartition(".")
        return presence.gone(name) if origin == self._origin else None

    def hold(self, place: Place) -> None:
        """Lock the name of this process on the server, by a connection that stays open.

        If such a connection is open already, do nothing. Processes can share the lock. So this call does not wait until
        the server notices that an earlier connection of this process was lost.

        Raises:
            psycopg.Error: the server cannot be reached. OSError: the process has no name.
        """
        key = number(self.process)
        with self._keeping:
            if self._keeper is not None and standing(self._keeper):
                return
            keeper = connect(place, readonly=True)
            try:
                keeper.execute("SELECT pg_advisory_lock_shared($1)", (key,))
            except BaseException:
                keeper.close()
                raise
            self._keeper = keeper

    def enter(self, *, writing: bool) -> None:
        """Add one to the count of this process's open stores.

        Args:
            writing: whether the store writes.
        """
        with self._opening:
            self._stores += writing
            self._uses += 1

    def last(self) -> bool:
        """Return whether exactly one store that writes is still open in this process."""
        return self._stores == 1

    def leave(self, *, writing: bool) -> None:
        """Subtract one from the count of this process's open stores. In a forked child this does nothing.

        After the last store that writes, the connection that holds the lock on the server is closed.

        Args:
            writing: whether the closed store writes.
        """
        if os.getpid() != self._process:
            return
        with self._opening:
            self._stores -= writing
        with self._keeping:
            if not self._stores and self._keeper is not None:
                self._keeper.close()
                self._keeper = None
        self.end_use()

    def keep(self) -> Callable[[], None]:
        """Keep the byte of this process locked until the returned function is called. Raises OSError."""
        _ = self.presence
        with self._opening:
            self._uses += 1
        kept = [self]

        def end() -> None:
            while kept:
                kept.pop().end_use()

        return end

    def forget(self) -> None:
        """Close a forked child's copies of the locks.

        Otherwise other processes would believe that the parent still runs, even after it has ended.
        """
        if self._presence is not None:
            with suppress(OSError):
                os.close(self._presence.descriptor)
        if self._keeper is not None:
            silence(self._keeper)

    def end_use(self) -> None:
        """Subtract one from the number of users of the locked byte. When no user is left, the byte is unlocked."""
        if os.getpid() != self._process:
            return
        with self._opening:
            self._uses -= 1
            if not self._uses and self._presence is not None:
                os.close(self._presence.descriptor)
                self._presence = None


def present() -> tuple[Presence, str]:
    """Lock a byte of the file `processes`, which shows other processes that this one runs.

    Returns the lock, and the random name in the file. Raises OSError if no file can be opened and locked.
    """
    failure = OSError("there is no folder for the file of processes")
    for folder in folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return locked(folder / FILE)
        except OSError as error:
            failure = error
    raise failure


def locked(path: Path) -> tuple[Presence, str]:
    """Lock a byte of the file at `path`, made if missing; return the lock and the random name in it. Raises OSError."""
    if not path.exists():
        made = path.with_name(f"{FILE}.{secrets.token_hex(8)}")
        with open(made, "w", encoding="ascii", opener=private) as file:
            file.write(secrets.token_hex(NAMED // 2))
        try:
            with suppress(FileExistsError):  # another process was faster
                os.link(made, path)
        finally:
            made.unlink()
    descriptor = os.open(path, os.O_RDWR)
    try:
        origin = os.read(descriptor, NAMED + 1).decode("ascii", "replace")
        if not re.fullmatch(r"[0-9a-f]{16}", origin):
            raise OSError(f"{str(path)!r} was not made by gesta")
        return Presence(descriptor), origin
    except BaseException:
        os.close(descriptor)
        raise


def folders() -> Iterator[Path]:
    """Yield the folders in which the file `processes` may be, the preferred folder first."""
    named = os.environ.get(VARIABLE)
    if named:
        yield Path(named)
        return
    variable, below = (
        ("LOCALAPPDATA", "AppData/Local") if sys.platform == "win32" else ("XDG_STATE_HOME", ".local/state")
    )
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get(variable) or Path.home() / below) / "gesta"
    user = os.getuid() if hasattr(os, "getuid") else 0
    spare = Path(tempfile.gettempdir()) / f"gesta-{user}"
    if not spare.exists() or not hasattr(os, "getuid") or spare.stat().st_uid == user:  # never a folder of another user
        yield spare


class Forgets(Protocol):
    """The interface of an object, such as a lock or a connection, that a forked child has to close."""

    def forget(self) -> None:
        """Close this copy of the object. Called in a forked child."""


WATCHED: WeakSet[Forgets] = WeakSet()
"""The objects that a forked child has to close."""


def watch_forks(one: Forgets) -> None:
    """Make each forked child call `forget` on its copy of an object, as long as the object exists."""
    _watch()
    WATCHED.add(one)


@cache
def _watch() -> None:
    def forget() -> None:
        for one in list(WATCHED):
            one.forget()

    if hasattr(os, "register_at_fork"):  # once: no hook can be taken away again
        os.register_at_fork(after_in_child=forget)


def silence(connection: Connection) -> None:
    """Close a forked child's copy of a connection without a message to the server.

    A message would end the session of the parent process, which still uses the connection.
    """
    with suppress(OSError, psycopg.Error), open(os.devnull, "rb") as nothing:  # noqa: PTH123 - before all else
        os.dup2(nothing.fileno(), connection.fileno())
