"""Which version of a folder, and of each of its files, git has: the commit, and whether the files differ from it.

Where there is no git, or no commit, a version is the digest of what the files hold.
"""

import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

SHOWN = 12
"""Hex digits of a version that a person is shown."""
HIDDEN = ("__pycache__", "node_modules")
COMMIT = "//"
"""Begins a line of `git log` that names a commit; no path of git begins so."""


class Version(Struct, frozen=True, kw_only=True):
    """A version of a folder or a file."""

    identifier: str
    """Id of the last commit that changed it; of `raw`, SHA-256 of what it holds. In hex."""
    dirty: bool = False
    """Whether it differs from that commit, also by files that git does not know."""
    system: Literal["git", "raw"] = "git"
    at: str | None = None
    """Time of that commit, ISO 8601."""

    def __str__(self) -> str:
        """Write it as it stands on record: `commit`, `commit+dirty`, or `sha256:digest`."""
        return f"{'sha256:' if self.system == 'raw' else ''}{self.identifier}{'+dirty' if self.dirty else ''}"

    @property
    def short(self) -> str:
        """The same for people, with fewer digits."""
        return str(self).replace(self.identifier, self.identifier[:SHOWN])


class History:
    """What git knows of a folder. Cost: one look through its history."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        head = self._git("log", "-1", "--format=%H %cI")
        self._head = head.split() if head else None
        listed = self._git("ls-files", "-c", "-o", "--exclude-standard", "-z")
        self.files: list[str] | None = None if listed is None else sorted(set(_split(listed)))
        """Files below the folder that git knows or would take in, relative to it; `None` where there is no git."""
        changed = self._git("diff", "HEAD", "--name-only", "--relative", "-z", "--", ".") if self._head else None
        new = self._git("ls-files", "-o", "--exclude-standard", "-z")
        self._dirty = {*_split(changed), *_split(new)}
        self._last = self._commits() if self._head else {}

    def of_file(self, path: str) -> Version:
        """Return the version of a file, by its path relative to the folder."""
        if path not in self._last:
            return self._raw([path])
        commit, at = self._last[path]
        return Version(identifier=commit, dirty=path in self._dirty, at=at)

    def of_folder(self, paths: Iterable[str]) -> Version:
        """Return the version of the folder, of which these files count."""
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
        """Return the last commit of each file, and its time."""
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
        """Return what a command of git prints; `None` if it fails, or there is no git."""
        try:
            command = ["git", "-C", str(self._folder), *words]
            done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - no shell, fixed words
        except OSError:
            return None
        return None if done.returncode else done.stdout.decode("utf-8", "surrogateescape")


def files_without_git(folder: Path) -> list[str]:
    """List the files below a folder, but none that is hidden or lies in a hidden folder."""
    found = []
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") or part in HIDDEN for part in parts):
            found.append("/".join(parts))
    return sorted(found)


def _split(text: str | None) -> list[str]:
    return [part for part in (text or "").split("\0") if part]
