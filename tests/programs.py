"""Programs of Python in processes of their own, which start and end in 30 ms of processor time instead of 150.

They are forked from a server that has loaded foreign packages, and modules of Gesta, which it hides: a program imports
Gesta itself, so that a module it forgot to import is missed here too. A test of what is loaded, of pipes, terminals or
signals uses `subprocess`.
"""

import atexit
import builtins
import functools
import gc
import importlib
import importlib.abc
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Self

FOREIGN = [
    "asyncio",
    "anyio",
    "anyio._backends._asyncio",
    "anyio._core._subprocesses",
    "anyio.from_thread",
    "anyio.to_thread",
    "apsw",
    "csv",
    "difflib",
    "gettext",
    "hashlib",
    "hmac",
    "httpx2",
    "importlib.metadata",
    "importlib.resources",
    "importlib.util",
    "json",
    "mimetypes",
    "msgspec",
    "msgspec.json",
    "pathlib",
    "random",
    "rich._emoji_codes",
    "rich.console",
    "rich.table",
    "secrets",
    "shutil",
    "sqlite3",
    "textwrap",
    "typer",
    "typer._click.decorators",
    "typer.main",
    "typing",
    "unicodedata",
    "urllib.request",
    "webbrowser",
    "zipfile",
    "zlib",
]
OURS = [
    "gesta.record.record",
    "gesta.stores.memory",
    "gesta.stores.sqlite",
    "gesta.models.scripted",
    "gesta.formatters.tool_calls",
    "gesta.views.lineage",
    "gesta.sync",
    "gesta.cli",
    *(
        f"gesta.cli.{name}"
        for name in ("answering", "cataloguing", "comparing", "finding", "keys", "looking", "moving")
    ),
    *(f"gesta.cli.{name}" for name in ("running", "serving", "showing", "storing", "tracing", "viewing", "why")),
    *(f"gesta.cli.{name}" for name in ("driving", "files", "loading", "pages", "transcript", "waits")),
    "gesta.demo.play",
    "gesta.demo.second",
    "gesta.models.providers",
]
"""Modules of Gesta that most programs and commands load, with what these import."""
SELDOM = (20_000, 20, 10)
"""When the garbage collector looks for cycles: as often as Python does of itself, it takes a tenth of the whole time."""
SIZE = struct.Struct("=q")
AT_START = ("PYTHON", "L")
"""Beginnings of the names of variables that Python reads as it starts."""
ROOT = Path(__file__).resolve().parents[1]


class ForkServer:
    """A process that forks others, and says how each ended; it ends with the one that started it."""

    def __init__(self, env: dict[str, str]) -> None:
        self._mine, its = socket.socketpair()
        number = its.fileno()
        null = subprocess.DEVNULL
        command = [sys.executable, str(Path(__file__).resolve()), str(number)]
        self._process = subprocess.Popen(command, stdin=null, stdout=null, pass_fds=[number], cwd=ROOT, env=env)
        its.close()

    def start(self, job: bytes, streams: list[int]) -> int:
        """Start a program, and return its id.

        Args:
            streams: input, output and errors, and where the status that `waitpid` gives is written at its end.
        """
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
    server, process = ForkServer(others | dict(each.split("=", 1) for each in variables)), os.getpid()
    atexit.register(lambda: server.end() if os.getpid() == process else None)  # a forked child ends nothing
    return server


def run(
    words: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None, input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `python` with some words in a process of its own, as `subprocess.run` does when it captures all as text.

    Args:
        words: `-c` with code, `-m` with a module, or a file; and then its arguments.
    """
    if not hasattr(socket, "send_fds"):
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=cwd, env=env, input=input, capture_output=True, text=True, check=False)
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        said.write(input.encode())
        said.seek(0)
        _, ending = _started(words, cwd, env, [said.fileno(), out.fileno(), err.fileno()])
        code = _code(ending)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read().decode(), err.read().decode())


class Program:
    """A process that runs beside the test, with a pipe to it and one from it, as a `subprocess.Popen` with such pipes."""

    def __init__(self, words: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
        """Start `python` with some words; see `run`. What it writes to its errors goes where those of the test go."""
        said, mine = os.pipe()
        its, told = os.pipe()
        try:
            self.pid, self._ending = _started(words, cwd, env, [said, told, 2])
        finally:
            os.close(said)
            os.close(told)
        self.stdin, self.stdout = os.fdopen(mine, "w"), os.fdopen(its)
        self.returncode: int | None = None

    def send_signal(self, sign: int) -> None:
        """Send it a signal, unless it is known to have ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sign)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        if self.returncode is None:
            self.returncode = _code(self._ending)
        return self.returncode

    def communicate(self, input: str = "") -> tuple[str, None]:
        """Write to it for the last time, and return what it writes until its end."""
        with self:
            if not self.stdin.closed:
                with suppress(BrokenPipeError):
                    self.stdin.write(input)
                    self.stdin.close()
            return "" if self.stdout.closed else self.stdout.read(), None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.wait()


def _started(words: list[str], cwd: Path | None, env: dict[str, str] | None, streams: list[int]) -> tuple[int, int]:
    """Start a program, and return its id, and the descriptor from which its end is read."""
    variables = dict(os.environ if env is None else env)
    job = json.dumps({"words": words, "cwd": str(cwd or Path.cwd()), "env": variables}).encode()
    server = fork_server(tuple(f"{name}={variables[name]}" for name in sorted(variables) if name.startswith(AT_START)))
    ending, status = os.pipe()
    try:
        return server.start(job, [*streams, status]), ending
    except BaseException:  # its answer would be taken for the next one's
        os.close(ending)
        fork_server.cache_clear()
        server.end()
        raise
    finally:
        os.close(status)


def _code(ending: int) -> int:
    """Wait for the end of a program, and return its exit code."""
    with os.fdopen(ending, "rb") as status:
        return os.waitstatus_to_exitcode(SIZE.unpack(status.read(SIZE.size))[0])


class Hidden(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that are loaded, and not found before they are imported.

    Importing one imports what it imports at its top, as its code would, and binds it in its package.
    """

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._specs: dict[str, ModuleSpec | None] = {}
        self._imports: dict[str, list[str]] = {}

    def load(self, names: list[str]) -> None:
        """Load modules of one package, and hide it."""
        top = names[0].partition(".")[0]
        with self._noting():
            door = vars(importlib.import_module(top))
            bare = set(door)
            for name in names:
                importlib.import_module(name)
        for name in [each for each in door if each not in bare and f"{top}.{each}" not in sys.modules]:
            del door[name]  # it came with the first use of it
        for name in [each for each in sys.modules if each.partition(".")[0] == top]:
            module = self._modules[name] = sys.modules.pop(name)
            self._specs[name] = module.__spec__
        for name in self._modules:
            package, _, last = name.rpartition(".")
            if package and vars(self._modules[package])[last] is self._modules[name]:
                del vars(self._modules[package])[last]
        sys.meta_path.insert(0, self)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what each module imports."""
        importing = builtins.__import__

        def note(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            found = importing(name, globals, locals, fromlist, level)
            if globals is not None and locals is globals:
                names = [name, *(f"{name}.{each}" for each in fromlist or ())]
                self._imports.setdefault(globals["__name__"], []).extend(names)
            return found

        builtins.__import__ = note
        try:
            yield
        finally:
            builtins.__import__ = importing

    def find_spec(self, fullname: str, _path: Any, _target: Any = None) -> ModuleSpec | None:
        if fullname not in self._modules:
            return None
        is_package = hasattr(self._modules[fullname], "__path__")
        return importlib.util.spec_from_loader(fullname, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._specs[module.__name__]
        own = dict(vars(module))
        for name in self._imports.get(module.__name__, ()):
            if name in self._modules:
                importlib.import_module(name)
        vars(module).update(own)  # a name of its own may be that of a file in it


def serve(connection: socket.socket) -> list[str]:
    """Fork a process for each job; returns in each of these, with the words of its job."""
    gc.disable()
    for name in FOREIGN:
        with suppress(ImportError):
            importlib.import_module(name)
    Hidden().load(OURS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    gc.enable()
    ended, awake = os.pipe()
    os.set_blocking(awake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(awake, warn_on_full_buffer=False)
    started: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([connection.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            tell_ends(started)
        if connection.fileno() not in ready:
            continue
        start, streams, _, _ = socket.recv_fds(connection, SIZE.size, 4)
        if not start:
            sys.exit()
        job = json.loads(connection.recv(SIZE.unpack(start)[0], socket.MSG_WAITALL))
        if child := os.fork():
            for each in streams[:3]:
                os.close(each)
            started[child] = streams[3]
            connection.sendall(SIZE.pack(child))
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, each in enumerate(streams[:3]):
            os.dup2(each, number)
        connection.close()
        os.closerange(3, 256)
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        return list(job["words"])


def tell_ends(started: dict[int, int]) -> None:
    """Write the status of each process that has ended, and forget it."""
    while started:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with suppress(BrokenPipeError), os.fdopen(started.pop(child), "wb") as asked:
            asked.write(SIZE.pack(status))


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


class Ending:
    """The end of a process without the freeing of all that is loaded, which takes longer than the rest of a program.

    Threads have ended by then, and all else that is to be done at the end is done.
    """

    def __init__(self) -> None:
        self._status: int | None = None
        atexit.register(self._end)  # as the first, so it is called as the last

    def of(self, words: list[str]) -> None:
        """Do what `python` does with some words, and end as it does."""
        self._status = 0
        try:
            execute(words)
        except SystemExit as left:
            self._status = left.code if isinstance(left.code, int) else int(left.code is not None)
            raise
        except KeyboardInterrupt:
            self._status = None
            raise
        except BaseException:
            self._status = 1
            raise

    def _end(self) -> None:
        if self._status is not None:
            vars(sys.modules["__main__"]).clear()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._status & 0xFF)


if __name__ == "__main__":
    ending = Ending()
    ending.of(serve(socket.socket(fileno=int(sys.argv[1]))))
