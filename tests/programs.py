"""Programs of Python in processes of their own, which start and end in 45 ms of processor time instead of 150.

They are forked from a server that has loaded foreign packages and no module of Gesta: a program imports Gesta itself,
so that a module it forgot to import is missed here too. A test of what is loaded, of pipes, terminals or signals uses
`subprocess`.
"""

import builtins
import functools
import gc
import importlib
import json
import os
import runpy
import socket
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType

FOREIGN = [
    "asyncio",
    "anyio",
    "anyio._backends._asyncio",
    "anyio.from_thread",
    "anyio.to_thread",
    "apsw",
    "csv",
    "difflib",
    "gettext",
    "hashlib",
    "hmac",
    "importlib.util",
    "json",
    "mimetypes",
    "msgspec",
    "msgspec.json",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "sqlite3",
    "textwrap",
    "typer",
    "typer.main",
    "typing",
    "zlib",
]
SIZE = struct.Struct("=q")
AT_START = ("PYTHON", "L")
"""Beginnings of the names of variables that Python reads as it starts."""
ROOT = Path(__file__).resolve().parents[1]


class ForkServer:
    """A process that forks others, one at a time; it ends with the one that started it."""

    def __init__(self, env: dict[str, str]) -> None:
        self._mine, its = socket.socketpair()
        number = its.fileno()
        null = subprocess.DEVNULL
        command = [sys.executable, str(Path(__file__).resolve()), str(number)]
        self._process = subprocess.Popen(command, stdin=null, stdout=null, pass_fds=[number], cwd=ROOT, env=env)
        its.close()

    def run(self, job: bytes, streams: list[int]) -> int:
        """Run a program to its end, and return the status that `waitpid` gave."""
        socket.send_fds(self._mine, [SIZE.pack(len(job))], streams)
        self._mine.sendall(job)
        return SIZE.unpack(self._mine.recv(SIZE.size, socket.MSG_WAITALL))[0]

    def end(self) -> None:
        """End it, with what it runs left alone."""
        self._mine.close()
        self._process.kill()
        self._process.wait()


@functools.cache
def fork_server(variables: tuple[str, ...]) -> ForkServer:
    """The server of this process for some values of the variables that Python reads as it starts."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(AT_START)}
    return ForkServer(others | dict(each.split("=", 1) for each in variables))


def run(
    words: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None, input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `python` with some words in a process of its own, as `subprocess.run` does when it captures all as text.

    Args:
        words: `-c` with code, `-m` with a module, or a file; and then its arguments.
    """
    variables = dict(os.environ if env is None else env)
    if not hasattr(socket, "send_fds"):
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=cwd, env=env, input=input, capture_output=True, text=True, check=False)
    job = json.dumps({"words": words, "cwd": str(cwd or Path.cwd()), "env": variables}).encode()
    at_start = tuple(f"{name}={variables[name]}" for name in sorted(variables) if name.startswith(AT_START))
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        said.write(input.encode())
        said.seek(0)
        server = fork_server(at_start)
        try:
            status = server.run(job, [said.fileno(), out.fileno(), err.fileno()])
        except BaseException:  # its answer would be taken for the next one's
            fork_server.cache_clear()
            server.end()
            raise
        out.seek(0)
        err.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return subprocess.CompletedProcess(words, code, out.read().decode(), err.read().decode())


def serve(connection: socket.socket) -> list[str]:
    """Fork a process for each job; returns in each of these, with the words of its job."""
    for name in FOREIGN:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        start, streams, _, _ = socket.recv_fds(connection, SIZE.size, 3)
        if not start:
            sys.exit()
        job = json.loads(connection.recv(SIZE.unpack(start)[0], socket.MSG_WAITALL))
        if child := os.fork():
            for each in streams:
                os.close(each)
            connection.sendall(SIZE.pack(os.waitpid(child, 0)[1]))
            continue
        for number, each in enumerate(streams):
            os.dup2(each, number)
        connection.close()
        os.closerange(3, 256)
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        return list(job["words"])


def execute(words: list[str]) -> None:
    """Do what `python` does with some words."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], str(Path.cwd())
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # the one that `python -m` calls
    elif words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
        main.__file__ = words[0]
        exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), main.__dict__)


if __name__ == "__main__":
    execute(serve(socket.socket(fileno=int(sys.argv[1]))))
