"""The command line `gesta`. Each command is one dataclass of options and one function. `main` runs a command."""

import os
import signal
import sys
import threading
from copy import copy
from io import TextIOWrapper
from pathlib import Path
from traceback import format_exc
from types import FrameType
from typing import TYPE_CHECKING

from gesta.cli.talk import INTERRUPTED, Screen, harmless
from gesta.text.redactor import SECRETS

PATIENCE_S = 0.3  # seconds to wait for threads that have finished their work

if TYPE_CHECKING:
    from typer import Typer


def application(verb: str | None = None) -> "Typer":
    """Return the application with all its commands, or only with the command that `verb` names.

    Building all commands takes as long as a short command itself. If `verb` is `None` or names no command, the
    application has all commands.
    """
    from gesta.cli import (  # noqa: F401 - each module adds its commands
        answering,
        cataloguing,
        comparing,
        finding,
        keys,
        looking,
        moving,
        running,
        serving,
        showing,
        storing,
        tracing,
        viewing,
        why,
    )
    from gesta.cli.app import app

    alone = copy(app)
    alone.registered_commands = [each for each in app.registered_commands if each.name == verb]
    return alone if alone.registered_commands else app


def main() -> None:
    """Run the command line with the arguments of this process, and exit with the exit code of the command."""
    heed_termination()
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the calling process has closed it
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115 - as long as we live
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    screens = Screen(sys.stdout), Screen(sys.stderr)
    sys.stdout, sys.stderr = screens
    SECRETS.add_environment(os.environ)
    try:
        application(next(iter(sys.argv[1:]), None))(prog_name="gesta")
    except SystemExit as leaving:
        others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
        lasting = [thread for thread in others if not thread.daemon]
        for thread in lasting:
            thread.join(PATIENCE_S / len(lasting))
        if any(thread.is_alive() for thread in lasting):
            for screen in screens:
                screen.end()
            leave(leaving.code)
        raise
    except KeyboardInterrupt:  # while the command was loaded, or with --debug
        if "--debug" in sys.argv:
            raise
        raise SystemExit(INTERRUPTED) from None
    except Exception:  # noqa: BLE001 - with --debug
        sys.stderr.write(harmless(format_exc()))
        raise SystemExit(1) from None
    finally:
        for screen in screens:
            screen.end()


def heed_termination() -> None:
    """Make SIGTERM, by which systemd and containers stop a program, act like Ctrl-C: a tool at work is seen through."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and hasattr(signal, "pthread_sigmask"):
        # in the background of a shell script: Ctrl-C still does not reach us, but asyncio prepares for it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_: int, frame: FrameType | None) -> None:
    stop = signal.getsignal(signal.SIGINT)  # asyncio's own, while an event loop is running
    if not callable(stop):
        raise KeyboardInterrupt
    stop(signal.SIGINT, frame)


def leave(code: int | str | None) -> None:
    """Exit at once with an exit code. A normal exit would wait for a thread in which a tool hangs.

    The record has no result of that tool's call, so the next process treats the call's outcome as unknown.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)
