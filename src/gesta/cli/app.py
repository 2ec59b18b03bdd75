"""The application `gesta`, and the decorator that makes a command from a function and a dataclass of options.

Help is plain text, because formatted help would take longer to import than all the rest. Each command imports only what
it needs. No error that a user can cause shows a traceback without `--debug`.
"""

import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
import typer.core

import gesta
from gesta.cli.options import Common
from gesta.cli.talk import BROKEN_PIPE, FAILED, INTERRUPTED, USAGE, Stop, complain, harmless, put, say
from gesta.errors import BadAddress, GestaError, NoRecord, NoRun, SetAside, SeveralRuns

P = ParamSpec("P")
Options = TypeVar("Options", bound=Common)
LARGEST = 2**63 - 1
"""Largest number that SQLite and PostgreSQL can hold."""

VERBS = {
    "Run": ("demo", "run", "resume", "work", "serve", "approve", "answer", "resolve", "cancel"),
    "Look": ("sessions", "runs", "log", "show", "why", "find", "stats", "sql", "view"),
    "Compare": ("replay", "fork", "diff", "case"),
    "Data": (
        "import",
        "export",
        "trace",
        "push",
        "backup",
        "adopt",
        "gone",
        "prune",
        "hold",
        "verify",
        "repair",
        "catalog",
    ),
    "Models": ("models",),
}
"""The names of all commands, each under the heading of the help text that lists it."""

TYPED_WRONG = (BadAddress, NoRecord, NoRun, SeveralRuns)
"""Errors about wrong input on the command line. They have exit code 2, like click's own errors."""

UNFORESEEN = "This was not foreseen. `--debug` shows where it happened; please report that."


class Groups(typer.core.TyperGroup):
    """The top command, which lists its subcommands under headings."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of `VERBS`."""
        return [name for names in VERBS.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands to the help text, under the headings of `VERBS`."""
        for heading, names in VERBS.items():
            rows = [(name, self.commands[name].get_short_help_str(formatter.width - 12)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows, col_spacing=10 - max(len(name) for name in names))


app = typer.Typer(
    cls=Groups,
    name="gesta",
    help="Agents on the record: run LLM agents on an append-only log of what they did, and look at it.",
    epilog="Start with `gesta demo`: it needs no key.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        put(f"gesta {gesta.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Agents on the record: run LLM agents on an append-only log of what they did, and look at it."""


def command(
    shape: Callable[P, Options], *, example: str, lists: Mapping[str, str] | None = None
) -> Callable[[Callable[[Options], int | None]], Callable[[Options], int | None]]:
    """Return a decorator that makes a function a command of the application `gesta`.

    The command has the function's name. The function's docstring is the help text.

    Args:
        shape: a dataclass with typer's annotations; its fields are the options of the command.
        example: a command line for the help text, which a test runs.
        lists: for each name in braces in the docstring, the text that replaces it, such as a list of formats.
    """

    def join(handle: Callable[[Options], int | None]) -> Callable[[Options], int | None]:
        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            options = shape(*args, **kwargs)
            raise typer.Exit(guarded(lambda: handle(_countable(options)), debug=options.debug))

        _sign(call, shape)
        name = handle.__name__.removesuffix("_")
        app.command(
            name,
            help=(inspect.getdoc(handle) or "").format(**lists) if lists else inspect.getdoc(handle),
            epilog=f"\b\nExample:\n  {example}",
            rich_help_panel=next(heading for heading, names in VERBS.items() if name in names),
        )(call)
        return handle

    return join


def _countable(options: Options) -> Options:
    """Return the options. Raises Stop for a number that is not finite, or that no database can hold."""
    for value in vars(options).values():
        if isinstance(value, float) and not math.isfinite(value):
            raise Stop(f"An option is {value}, expected a finite number.")
        if isinstance(value, int) and value > LARGEST:
            raise Stop(f"{value} is too large a number, expected at most {LARGEST}.")
    return options


def _sign(call: Any, shape: Any) -> None:
    """Set the signature of a function to the fields of a dataclass, from which typer makes the options.

    Fields of the most derived class come first.
    """
    fields = inspect.signature(shape).parameters
    order: dict[str, None] = {}
    for each in shape.__mro__:
        order |= dict.fromkeys(name for name in getattr(each, "__annotations__", {}) if name in fields)
    call.__signature__ = inspect.Signature([fields[name] for name in order])
    call.__annotations__ = {name: fields[name].annotation for name in order}


def guarded(work: Callable[[], int | None], *, debug: bool) -> int:
    """Run a command and return its exit code.

    An error is printed as a message. With `debug` the error is raised instead, so that Python prints the traceback.
    """
    try:
        with _warned():
            code = work() or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return silenced()
    except KeyboardInterrupt:
        if debug:
            raise
        print(file=sys.stderr)
        return INTERRUPTED
    except (GestaError, OSError) as error:
        if debug:
            raise
        complain(error)
        return error.code if isinstance(error, Stop) else USAGE if isinstance(error, TYPED_WRONG) else FAILED
    except Exception as error:
        if debug:
            raise
        complain(GestaError(f"{type(error).__name__}: {error}\n{UNFORESEEN}"))
        return FAILED


@contextmanager
def _warned() -> Iterator[None]:
    """Print Gesta's warnings about a record as messages, inside the block. Python prints all other warnings."""
    with warnings.catch_warnings():
        shown: Callable[..., None] = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, SetAside):
                say(harmless(str(message)))
            else:
                shown(message, category, *where)

        setattr(warnings, "showwarning", show)  # noqa: B010 - a type checker wants all of its parameters
        warnings.simplefilter("default", SetAside)
        yield


def silenced() -> int:
    """Discard all output from now on, because its reader closed the pipe. Return the exit code for a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
