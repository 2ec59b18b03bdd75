"""Versions of a folder and of its files, from git: the last commit, and whether the files differ from it.

Without git, or without a commit, a version is the digest of the contents of the files.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

SHOWN = 12
"""Number of hex digits of a version that are shown to a person."""
HIDDEN = ("__pycache__", "node_modules")
COMMIT = "//"
"""Prefix of a line of `git log` that names a commit; no path in git begins with it."""


class Version(Struct, frozen=True, kw_only=True):
    """The version of a folder or file: a commit, or a digest of its contents."""

    identifier: str
    """Hex digits. For a file, its last commit; for a folder, the commit that is checked out; for the system `raw`, a
    SHA-256."""
    dirty: bool = False
    """Whether the files differ from that commit. A file that git does not track is a difference too."""
    system: Literal["git", "raw"] = "git"
    at: str | None = None
    """Time of that commit, in ISO 8601; `None` without a commit."""

    def __str__(self) -> str:
        """Return the version as it is recorded: `commit`, `commit+dirty`, or `sha256:digest`."""
        return f"{'sha256:' if self.system == 'raw' else ''}{self.identifier}{'+dirty' if self.dirty else ''}"

    @property
    def short(self) -> str:
        """The version as text for people, with the first `SHOWN` hex digits of the commit or digest."""
        return str(self).replace(self.identifier, self.identifier[:SHOWN])


class History:
    """Finds the last commit of each file in a folder, by git. Cost: one pass over the folder's history."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        head = self._git("log", "-1", "--format=%H %cI")
        self._head = head.split() if head else None
        listed = self._git("ls-files", "-c", "-o", "--exclude-standard", "-z")
        self.files: list[str] | None = None if listed is None else sorted(set(_split(listed)))
        """Paths of the files that git tracks or would add, relative to the folder; `None` without git."""
        changed = self._git("diff", "HEAD", "--name-only", "--relative", "-z", "--", ".") if self._head else None
        new = self._git("ls-files", "-o", "--exclude-standard", "-z")
        self._dirty = {*_split(changed), *_split(new)}
        self._last = self._commits() if self._head else {}

    def of_file(self, path: str) -> Version:
        """Return the version of one file.

        Args:
            path: path relative to the folder.
        """
        if path not in self._last:
            return self._raw([path])
        commit, at = self._last[path]
        return Version(identifier=commit, dirty=path in self._dirty, at=at)

    def of_folder(self, paths: Iterable[str]) -> Version:
        """Return the version of the folder. The version is dirty if a file in `paths` differs from the last commit."""
        every = list(paths)
        if self._head is None:
            return self._raw(every)
        commit, at = self._head
        return Version(identifier=commit, dirty=not self._dirty.isdisjoint(every), at=at)

    def _raw(self, paths: Iterable[str]) -> Version:
        digest = hashlib.sha256()
        for path in sorted(paths):
            digest.update(hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest())
            digest.update(hashlib.sha256((self._folder / path).read_bytes()).digest())
        return Version(identifier=digest.hexdigest(), system="raw")

    def _commits(self) -> dict[str, tuple[str, str]]:
        """Return for each file its last commit, and the time of that commit."""
        told = self._git("log", f"--format={COMMIT}%H %cI", "--name-only", "--relative", "-z", "--", ".") or ""
        last: dict[str, tuple[str, str]] = {}
        commit = ("", "")
        for part in (each.removeprefix("\n") for each in _split(told)):
            if part.startswith(COMMIT):
                name, at = part.removeprefix(COMMIT).split()
                commit = (name, at)
            else:
                last.setdefault(part, commit)
        return last

    def _git(self, *words: str) -> str | None:
        """Run a command of git, and return its output; `None` if the command fails, or there is no git."""
        try:
            command = ["git", "-C", str(self._folder), *words]
            done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - no shell, fixed words
        except OSError:
            return None
        return None if done.returncode else done.stdout.decode("utf-8", "surrogateescape")


def files_without_git(folder: Path, most: int) -> list[str]:
    """Return the paths of all files below a folder, except hidden files and files in hidden folders.

    Files in `__pycache__` and `node_modules` are left out too. Once more than `most` files are found, no further folder
    is read. The result may then be incomplete.
    """
    found = list[str]()
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _shown(name)]
        below = Path(at).relative_to(folder)
        found += [(below / name).as_posix() for name in names if _shown(name)]
        if len(found) > most:
            break
    return sorted(found)


def _shown(name: str) -> bool:
    return not name.startswith(".") and name not in HIDDEN


def _split(text: str | None) -> list[str]:
    return [part for part in (text or "").split("\0") if part]
