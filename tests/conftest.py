"""What all tests share: how many examples a property gets, and the corpus of real data, which may be absent."""

import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from tests.postgres import Server, running
from tests.programs import SELDOM

from gesta.text.redactor import SECRETS

TESTS = os.environ.get("GESTA_TESTS") or "quick"
"""How much is tried: `quick`, what a change is tried with; `ci`, what `.ci/run` tries; `full`."""
QUICK, FULL = TESTS == "quick", TESTS == "full"
CORPUS = Path(os.environ.get("GESTA_CORPUS") or Path(__file__).resolve().parents[1] / "../shared/corpus").resolve()
ABSENT = "corpus absent"
PRIOR = CORPUS.parent / "prior"
UNREAD = "documents absent"

# No deadline and no check for slowness: both judge the machine, not the code. The limit for each test does that.
settings.register_profile("ci", max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("ci"), max_examples=5)
settings.register_profile("full", settings.get_profile("ci"), max_examples=1000, print_blob=True)
settings.load_profile(TESTS)
T = TypeVar("T")


def tried(quick: T, ci: T, full: T) -> T:
    """Return how much of something this run tries."""
    return {"quick": quick, "ci": ci, "full": full}[TESTS]


BROWSERS = Path(__file__).resolve().with_name("browser")
"""Each test here costs as much as a hundred others; `.ci/browser` runs them."""
MEMORY = Path("/dev/shm")
"""Where quick tests keep their files: nearly half of what a server's table costs is the work of a disk."""
ENOUGH_BYTES = 2 * 2**30
COSTLY = settings(max_examples=tried(2, 4, 1000))
"""For a property whose every example is a whole run that is taken up at each of its prefixes, or nearly that."""


def sampled(every: Iterable[T], step: int, first: int = 0) -> list[T]:
    """Return all in full runs, and in others each `step`-th from `first` on: evenly, and the same each time."""
    return list(every) if FULL else list(every)[first % step :: step]


def named_in(config: pytest.Config) -> set[Path]:
    """Return the files and folders that are named on the command line, other than the folder of all tests."""
    return {Path(each.partition("::")[0]).resolve() for each in config.args} - {BROWSERS.parent}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even load the tests in browsers where they are left out."""
    left = QUICK and BROWSERS in collection_path.parents
    return True if left and named_in(config).isdisjoint((collection_path, *collection_path.parents)) else None


def on_postgres(item: pytest.Item) -> bool:
    """Return whether a test asks for PostgreSQL, a server of which each worker would have to start."""
    if not isinstance(item, pytest.Function):
        return False
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    asked = any(isinstance(each, str) and each.endswith("postgres") for each in values)
    return asked or "postgres" in item.fixturenames


def left_out(config: pytest.Config, items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield what quick runs leave out: slow tests, those on PostgreSQL, and of a sampled one all cases but each N-th.

    Nothing of a file or folder that is named on the command line is left out.
    """
    named, case = named_in(config), Counter[str]()
    for item in items:
        share = item.get_closest_marker("sample")
        over = share.kwargs.get("over") if share is not None else None
        test = item.parent.nodeid if over == "parent" and item.parent else item.nodeid.partition("[")[0]
        slow = item.get_closest_marker("slow") is not None or on_postgres(item)
        beyond = share is not None and case[test] % share.args[0] != 0
        case[test] += not slow
        if (slow or beyond) and named.isdisjoint((item.path, *item.path.parents)):
            yield item


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a quick run does not try."""
    if QUICK and (seldom := set(left_out(config, items))):
        config.hook.pytest_deselected(items=list(seldom))
        items[:] = [each for each in items if each not in seldom]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A thousand examples take longer than the limit for a quick test, and Ctrl-C works also in the background.

    A shell that starts a command with `&` lets it ignore SIGINT, and with it every process that a test starts.
    """
    gc.disable()  # until all tests are collected: hardly anything of that is garbage
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if getattr(config.option, "dist", None) == "load":  # a worker takes whole files, so a server of one is started once
        config.option.dist = "worksteal"
    if FULL and config.getoption("timeout", None) is None:
        config.option.timeout = 600
    if not FULL and "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # it is looked up once


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker reports of a test that passed only that it passed, with what it printed.

    A worker otherwise writes six messages for each test, which cost it and its reader as much as running an empty test.
    With `-v`, `--durations` or `--junitxml` all of them are written.
    """
    option = item.config.option
    if not hasattr(item.config, "workerinput") or option.verbose > 0 or option.durations is not None or option.xmlpath:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_collection_finish() -> None:
    """Make the garbage collector pass over the thousands of tests, which stay until the end with what little is garbage."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(*SELDOM)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop under every asynchronous test."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_secrets() -> Iterator[None]:
    """Forget the secrets that a test had, for they are those of the whole process."""
    yield
    SECRETS.forget()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The one server of this session: a fixture that modules import would be started for each of them."""
    with running() as server:
        yield server


@pytest.fixture
def emptied(postgres: Server) -> Iterator[str]:
    """The address of an empty record on that server, for a test that does not ask how it is made."""
    with postgres.emptied() as address:
        yield address


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real runs and documents; a test that asks for it is skipped where there is none."""
    if not CORPUS.is_dir():
        pytest.skip(ABSENT)
    return CORPUS


@pytest.fixture(scope="session")
def prior() -> Path:
    """Return the folder of the five documents that Gesta implements; a test that asks for it is skipped without them."""
    if not PRIOR.is_dir():
        pytest.skip(UNREAD)
    return PRIOR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print clearly what was not tested: a green run without the corpus or the documents proves less."""
    for why, folder, hint in (
        (ABSENT, CORPUS, "Set GESTA_CORPUS to where the corpus lies."),
        (UNREAD, PRIOR, "They lie beside the corpus."),
    ):
        skipped = sum(why in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
        if skipped:
            terminalreporter.section(why, sep="!", red=True, bold=True)
            terminalreporter.write_line(
                f"{why}: {skipped} SKIPPED for want of it, because {folder} is not a folder. {hint}",
                red=True,
                bold=True,
            )
