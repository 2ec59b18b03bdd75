#!/usr/bin/env python3
"""Print the Pythons of this machine that pyproject.toml allows, oldest first: for each its version and where it is.

Looked at are PATH and the usual places, pyenv's and uv's versions among them. Of one minor version the first counts.
Runs on Python 3.9 too, as the one that finds the others may be too old itself.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = Path.home()
PLACES = [
    *filter(None, os.environ.get("PATH", "").split(os.pathsep)),
    *("/usr/local/bin", "/usr/bin", "/opt/homebrew/bin", "/usr/local/opt/python@3*/bin", "/opt/python*/bin"),
    "/opt/hostedtoolcache/Python/3*/*/bin",
    "{}/versions/3*/bin".format(os.environ.get("PYENV_ROOT") or HOME / ".pyenv"),
    str(HOME / ".local/share/uv/python/*/bin"),
]
ASK = """import sys, sysconfig, ensurepip, sqlite3, ssl, venv
assert sys.version_info.releaselevel == "final" and not sysconfig.get_config_var("Py_GIL_DISABLED")
print(".".join(map(str, sys.version_info[:3])))"""


def folders(place: str) -> list[Path]:
    """Return the folders that a place with stars stands for, in order."""
    path = Path(place)
    if not path.is_absolute() or "*" not in place:
        return [path]
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def found() -> list[tuple[tuple[int, ...], Path]]:
    """Return the first Python of each minor version that can make an environment: its version, and where it is."""
    allowed = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    least = (3, int(allowed[1])) if allowed else (3,)
    pythons: dict[tuple[int, ...], tuple[tuple[int, ...], Path]] = {}
    for place in PLACES:
        for folder in folders(place):
            for path in sorted(folder.glob("python3*")) if folder.is_dir() else []:
                if not re.fullmatch(r"python3(\.\d+)?(\.exe)?", path.name):
                    continue
                asked = subprocess.run([path, "-c", ASK], check=False, capture_output=True)
                version = tuple(int(part) for part in asked.stdout.split(b".") if part)
                if asked.returncode == 0 and version >= least:
                    pythons.setdefault(version[:2], (version, path))
    return sorted(pythons.values())


if __name__ == "__main__":
    every = found()
    for version, path in every:
        print(".".join(map(str, version)), path)
    sys.exit(not every)
