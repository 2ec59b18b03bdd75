"""The page on errors names every error with its own words, and what it shows is what is printed."""

import importlib
import inspect
import pkgutil
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import apsw
import msgspec
import pytest
from tests.docs.test_commands import ROOT, fences, normalised, rows

import gesta
from gesta import errors
from gesta.cli.app import TYPED_WRONG
from gesta.cli.talk import FAILED, USAGE, Stop
from gesta.errors import (
    Expired,
    ForeignObjects,
    GestaError,
    LeaseLost,
    MissingExtra,
    NewerRecord,
    NoAnswer,
    NotWaiting,
    RecordBusy,
    RunHeld,
    SaidBefore,
)
from gesta.importers import source
from gesta.importers.file import import_file
from gesta.store import Batch

PAGE = ROOT / "docs" / "errors.md"
TEXT = PAGE.read_text(encoding="utf-8")
TREE = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, GestaError)]
"""Those of `errors.py`, in its order."""


def elsewhere() -> list[type[GestaError]]:
    """Return the errors that other files define; those under the names of another system stand on its own page."""
    for module in pkgutil.walk_packages(gesta.__path__, "gesta."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    every, left = set[type[GestaError]](), [GestaError]
    while left:
        left += (below := left.pop().__subclasses__())
        every |= set(below)
    known = (errors.__name__, "gesta.compat.")
    ours = (each for each in every if each.__module__.startswith("gesta.") and not each.__module__.startswith(known))
    return sorted(ours, key=lambda each: each.__name__)


def code_of(error: type[GestaError]) -> str:
    """Return the exit code of a command that raises it."""
    return f"{FAILED} or {USAGE}" if error is Stop else str(USAGE if error in TYPED_WRONG else FAILED)


def test_the_table_is_the_tree_of_errors():
    shown = [[cell.strip("`") for cell in cells] for cells in rows(TEXT, "bug of Gesta's own; please report it.")]
    assert shown == [
        [
            each.__name__,
            each.__bases__[0].__name__ if each is not GestaError else "",
            (each.__doc__ or "").splitlines()[0],
            code_of(each),
        ]
        for each in [*TREE, *elsewhere()]
    ]


def test_the_tree_that_the_module_draws_has_them_all():
    assert all(each.__name__ in (errors.__doc__ or "") for each in TREE)


def is_shown(error: type[GestaError]) -> bool:
    section = re.search(rf"^### {error.__name__}\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return section is not None and "```text\n" in section[1]


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_every_error_has_a_section_that_shows_it(error: type[GestaError]):
    if error.__name__ == "RunError":
        assert "`RunError` itself is never raised." in TEXT
        return
    assert is_shown(error)


def test_every_error_of_another_file_has_a_section_that_shows_it():
    """Not one test for each: to collect them, every worker would import all files of Gesta."""
    assert [each.__name__ for each in elsewhere() if not is_shown(each)] == []


async def two_writers(folder: Path) -> None:
    """Write a run that somebody is writing."""
    place = str(folder / "shop.gesta")
    async with gesta.open(place) as one, gesta.open(place) as other, one.span("desk", session="s") as log:
        log["greeted"] = True
        await log.durable()
        async with other.span("desk", session="s"):
            pass


async def old_handle(folder: Path) -> None:
    """Write with a lease that was given back."""
    async with gesta.open(str(folder / "shop.gesta")) as record:
        outcome = await record.run(gesta.Agent("desk", gesta.scripted("Hello.")), "Hi", session="s")
        lease = await record.store.lease(outcome.run)
        await record.store.release(lease)
        newer = await record.store.lease(outcome.run)
        try:
            await record.store.append(Batch(lease, lease.head, [], []))
        finally:
            await record.store.release(newer)


async def later_release(folder: Path) -> None:
    """Open a record whose header says that a later release made it."""
    place = folder / "later.gesta"
    async with gesta.open(str(place)):
        pass
    with closing(sqlite3.connect(place)) as file:
        file.execute("PRAGMA user_version = 3")
    async with gesta.open(str(place), readonly=True):
        pass


async def sent_record(folder: Path) -> None:
    """Open a record that somebody put an index on."""
    place = folder / "sent.gesta"
    async with gesta.open(str(place)):
        pass
    with closing(sqlite3.connect(place)) as file:
        file.execute("CREATE INDEX i ON entries(kind)")
    async with gesta.open(str(place), readonly=True):
        pass


async def busy_writer(folder: Path) -> None:
    """Write while another connection does, and does not end."""
    place = folder / "shop.gesta"
    async with gesta.open(str(place), busy_s=0.05) as record:
        other = apsw.Connection(str(place))
        other.execute("BEGIN IMMEDIATE")
        try:
            await record.run(gesta.Agent("desk", gesta.scripted("Hello.")), "Hi", session="s")
        finally:
            other.close()


async def library_missing(folder: Path) -> None:
    """Import what only a library unpacks that is not installed with Gesta."""
    packed = folder / "runs.jsonl.zst"
    packed.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(source, "zstandard", None)
        async with gesta.open() as record:
            await import_file(record, "runs.jsonl.zst", None, lambda _: None)


@gesta.tool(effect="once", approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def payer(*calls: object) -> gesta.Agent:
    """Make an agent that waits for a person."""
    return gesta.Agent("payer", gesta.scripted(list(calls) or gesta.call("pay"), "Done."), tools=[pay])


async def which_call(_folder: Path) -> None:
    """Approve one of two calls without naming it."""
    async with gesta.open() as record:
        outcome = await record.run(payer(gesta.call("pay"), gesta.call("pay")), "Hi", session="s")
        await record.approve(outcome.run, by="ann")


async def late(_folder: Path) -> None:
    """Approve a call when its request has expired."""
    async with gesta.open() as record:
        record.turns.clock = lambda: datetime(2026, 11, 22, tzinfo=UTC)
        tool = msgspec.structs.replace(pay, expires_s=60)
        agent = gesta.Agent("payer", gesta.scripted(gesta.call("pay"), "Done."), tools=[tool])
        outcome = await record.run(agent, "Hi", session="s")
        record.turns.clock = lambda: datetime(2026, 11, 23, tzinfo=UTC)
        await record.approve(outcome.waiting[0], by="ann")


async def two_words(_folder: Path) -> None:
    """Approve a call and then deny it."""
    async with gesta.open() as record:
        (waiting,) = (await record.run(payer(), "Hi", session="s")).waiting
        await record.approve(waiting, by="ann")
        await record.deny(waiting, by="bob")


async def no_value(_folder: Path) -> None:
    """Ask for the value of a turn that waits."""
    async with gesta.open() as record:
        _ = (await record.run(payer(), "Hi", session="s")).value


SCENES: dict[type[GestaError], Callable[[Path], Awaitable[None]]] = {
    RunHeld: two_writers,
    LeaseLost: old_handle,
    ForeignObjects: sent_record,
    NewerRecord: later_release,
    RecordBusy: busy_writer,
    MissingExtra: library_missing,
    NotWaiting: which_call,
    Expired: late,
    SaidBefore: two_words,
    NoAnswer: no_value,
}
"""What cannot be reached by one command or a few lines, and so stands on the page by itself."""


def alone() -> Iterator[tuple[str, str]]:
    """Return texts of the page without a command or program before them, each under its heading."""
    every = fences(PAGE)
    for (_, before), (fence, _) in pairwise([*every[:1], *every]):
        if fence[2] == "text" and before is None:
            yield re.findall(r"^### (\w+)$", TEXT[: fence.start()], re.MULTILINE)[-1], fence[3]


@pytest.mark.parametrize("error", SCENES, ids=lambda error: error.__name__)
async def test_what_the_page_shows_by_itself_is_what_is_raised(error: type[GestaError], tmp_path: Path):
    with pytest.raises(error) as raised:
        await SCENES[error](tmp_path)
    assert normalised(f"{raised.value}\n", tmp_path) == normalised(dict(alone())[error.__name__])


def test_nothing_stands_on_the_page_that_is_not_tried():
    assert {name for name, _ in alone()} == {each.__name__ for each in SCENES}
