"""A command of `gesta`, run in this process: it says and does what a process of its own would, without the start of one.

What depends on a process (signals, terminals, closed streams, what is loaded) is tested with one, in `tests/cli`. The
commands are built once for all tests; `CliRunner.invoke` would build all of them for each.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner, Result

from gesta.cli import application

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def every_command() -> Any:
    return get_command(application())


def gesta_command(*words: str, input: str | bytes | None = None) -> Result:
    """Run a command in the current folder, as `gesta_command("runs", "--json")`; what is not an exit is raised."""
    runner, code = CliRunner(), 0
    with runner.isolation(input=input) as streams:
        try:
            every_command().main(args=list(words), prog_name="gesta")
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            out, err, both = (stream.getvalue() for stream in streams)
    return Result(runner, out, err, both, None, code, None)


def anew(*words: str) -> Result:
    """Run a command as the first one: what it imported from the current folder is forgotten."""
    with forgotten(Path.cwd()):
        return gesta_command(*words)


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """Forget after this block the modules that it imported from a folder; those of this repository stay.

    A module of `gesta.cli` that was imported twice would add its commands twice.
    """
    path, modules = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = Path(getattr(sys.modules[name], "__file__", None) or "/")
            if file.is_relative_to(folder) and not file.is_relative_to(ROOT):
                del sys.modules[name]
