"""Records in files with every kind of entry: damaged in their cells or bytes, and read in every way."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, get_args

import anyio
import apsw
import msgspec
from msgspec import inspect

import gesta
from benchmarks.fuzz.commands import command
from benchmarks.fuzz.mutating import CHUNKS, hostile, odd, spoilt
from gesta.errors import GestaError
from gesta.kinds import Base, BeginContent, Content, RequestContent, SignalContent

LONG = "a text that is large enough to lie beside the entries " * 1500
FORMS = ("activity", "steps", "task", "react", "codeact")
TABLES = ("entries", "entries", "entries", "entries", "blobs", "inbox", "record", "leases", "owners", "inbox_keys")
COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("runs",), ("runs", "--json", "--size"), ("log", "{run}"), ("log", "{run}", "--all"), ("log", "{run}", "--raw")),
    *(("log", "{run}", "--json"), ("show", "{run}.{seq}"), ("show", "{run}.{seq}", "--json"), ("verify",)),
    *(("log", "{run}", "--as", form, *more) for form in FORMS for more in ((), ("--json",))),
    *(("why", "{run}"), ("why", "{run}", "--json"), ("find", "text"), ("find", "a*", "--json"), ("stats",)),
    *(("stats", "--by", "tool", "--json"), ("stats", "--by", "model"), ("verify", "--json"), ("export", "{run}")),
    *(("export", "--all", "--format", name) for name in ("gesta", "agent-catalog", "trig", "nquads")),
    *(("sql", "SELECT * FROM entries"), ("sql", "SELECT * FROM runs", "--json"), ("sql", "SELECT * FROM tool_calls")),
    *(("diff", "{run}", "{other}"), ("backup", "{folder}/copy.gesta"), ("push", "{file}", "{folder}/pushed.gesta")),
    *(("approve", "{run}", "--by", "ann"), ("approve", "{run}", "--deny"), ("cancel", "{run}"), ("hold", "{run}")),
    *(("answer", "{run}", "yes"), ("resolve", "{run}", "done"), ("prune", "--session", "desk", "--yes")),
    *(("adopt", "--by", "ann"), ("gone", "0" * 16, "--by", "ann"), ("case", "{run}"), ("prune", "--older", "1d")),
)
"""Every command that reads a record, and every command that writes to a record without an agent."""


def made(kind: Any, lot: Random) -> Any:
    """Return a content of a kind with a value in each field."""
    return msgspec.convert(_value(inspect.type_info(kind), lot), kind)


def _value(known: Any, lot: Random) -> Any:
    match known:
        case inspect.UnionType(types=types):
            return _value(lot.choice([each for each in types if not isinstance(each, inspect.NoneType)]), lot)
        case inspect.StructType(fields=fields, tag=tag, tag_field=name):
            members = {each.encode_name: _value(each.type, lot) for each in fields if each.name != "base"}
            return members if name is None else {name: tag} | members
        case inspect.LiteralType(values=values):
            return lot.choice(values)
        case (
            inspect.ListType(item_type=item)
            | inspect.VarTupleType(item_type=item)
            | inspect.CollectionType(item_type=item)
        ):
            return [_value(item, lot) for _ in range(2)]
        case inspect.TupleType(item_types=items):
            return [_value(each, lot) for each in items]
        case inspect.DictType(value_type=value):
            return {"a text": _value(value, lot)}
        case _:
            return LEAVES.get(type(known), lambda _: {"a": ["text", 1]})(lot)  # type: ignore[no-untyped-call]


LEAVES: dict[Any, Callable[[Random], Any]] = {
    inspect.StrType: lambda _: "a text",
    inspect.IntType: lambda lot: lot.randrange(1, 9),
    inspect.FloatType: lambda lot: lot.random(),
    inspect.BoolType: lambda lot: lot.random() < 0.5,
    inspect.NoneType: lambda _: None,
    inspect.DateTimeType: lambda _: "2026-01-01T00:00:00.000001Z",
}


@gesta.tool(effect="pure")
def look(what: str) -> str:
    """Look something up."""
    return LONG if what == "all" else f"{what}: a text"


@gesta.tool(effect="once", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def desk() -> gesta.Agent:
    """Return the agent whose runs are in the sample record."""
    said = (
        *(
            gesta.call("look", what="all"),
            gesta.reply(calls=[gesta.call("look", what="one"), gesta.call("look", what="two")]),
        ),
        *("An answer with a text.", gesta.call("pay", amount=5), "Paid."),
    )
    return gesta.Agent("desk", model=gesta.scripted(*said), tools=[look, pay], instructions="Help.")


@contextmanager
def without_chance() -> Iterator[None]:
    """Make random bytes of the system the same each time, so that samples differ only in their times."""
    lot = Random(1)
    known = [(module, name, getattr(module, name)) for module, name in ((os, "urandom"), (random, "_urandom"))]
    try:
        for module, name, _ in known:
            setattr(module, name, lot.randbytes)
        yield
    finally:
        for module, name, function in known:
            setattr(module, name, function)


async def write_sample(path: Path) -> None:
    """Write a record with turns, a turn that waits, a fork, a message in an inbox, and every kind of content."""
    lot = Random(1)
    async with gesta.open(str(path)) as record:
        first = await record.run(desk(), "Look everything up.", session="desk")
        await record.run(desk(), "Pay 5.", session="desk")
        async with record.span("kinds", session="kinds") as log:
            for kind in get_args(Content):
                for _ in range(2):
                    content = made(kind, lot)
                    if isinstance(content, BeginContent):
                        content = msgspec.structs.replace(content, opened=None)
                    elif isinstance(content, RequestContent):
                        content = msgspec.structs.replace(content, blocks=["{}"], extends=None)
                    assert isinstance(content, Base)
                    log.write(content, annotations={"note": "a note"})  # type: ignore[arg-type]
        from gesta.compare.forks import Fork, fork

        await fork(record, await record.find(first.run), Fork(at=6))
        await record.send(first.run, SignalContent(name="cancel", by="ann"), key="one")


def loosened(path: Path) -> apsw.Connection:
    """Return a connection to a record whose tables accept any value in any cell, until `tightened` is called."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = ON; PRAGMA ignore_check_constraints = ON")
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(replace(sql, ' STRICT', ''), ' NOT NULL', '') WHERE type = 'table'"
    )
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, '''begin''', '''never''') WHERE name = 'opened'")
    connection.execute("PRAGMA writable_schema = RESET; PRAGMA writable_schema = ON")
    return connection


def tightened(connection: apsw.Connection, schema: list[tuple[str, str]]) -> None:
    """Restore the texts of the schema, so that only the cells differ from a sound record."""
    for name, text in schema:
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (text, name))
    connection.close()


def spoilt_cells(lot: Random, path: Path) -> None:
    """Put an odd value into some cells, regardless of the declared types."""
    with apsw.Connection(str(path)) as plain:
        schema = plain.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    plain.close()
    connection = loosened(path)
    for _ in range(lot.choice((1, 1, 2, 5))):
        table = lot.choice(TABLES)
        columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        column = lot.choice(columns + ["content"] * 6 if table == "entries" else columns)
        rows = [row for (row,) in connection.execute(f"SELECT rowid FROM {table}")]
        if not rows:
            continue
        row = lot.choice(rows)
        ((old,),) = connection.execute(f"SELECT CAST({column} AS BLOB) FROM {table} WHERE rowid = ?", (row,))
        value, form = cell(lot, old)
        if table == "entries" and column == "pos" and not isinstance(value, int):
            continue
        try:
            connection.execute(f"UPDATE {table} SET {column} = {form} WHERE rowid = ?", (value, row))
        except (apsw.ConstraintError, apsw.MismatchError):
            continue
    tightened(connection, schema)  # type: ignore[arg-type]


def cell(lot: Random, old: bytes | None) -> tuple[Any, str]:
    """Return a value for a cell, and the SQL expression that stores it."""
    way = lot.random()
    if way < 0.6 and old and old[:1] in b"{[":
        try:
            return hostile(lot, msgspec.json.decode(old)), "CAST(? AS TEXT)"
        except (ValueError, RecursionError):
            pass
    if way < 0.75:
        return spoilt(lot, old or b"x"), lot.choice(("CAST(? AS TEXT)", "CAST(? AS TEXT)", "?"))
    if way < 0.82:
        return lot.choice(CHUNKS), "CAST(? AS TEXT)"
    value = odd(lot)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), "CAST(? AS TEXT)"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value), "CAST(? AS REAL)"
    return (value if value is None or isinstance(value, int | float) else b"\x00"), "?"


class Samples:
    """A sample record, of which damaged copies are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sample = folder / "sample.gesta"
        with without_chance():
            anyio.run(write_sample, self.sample)
        with apsw.Connection(str(self.sample)) as connection:
            rows = connection.execute("SELECT run, seq FROM entries").fetchall()
        connection.close()
        self.ids = [(str(run), int(seq)) for run, seq in rows]  # type: ignore[arg-type]

    def copy(self) -> Path:
        """Return the path of a fresh copy, and remove earlier ones."""
        for path in self.folder.iterdir():
            if path != self.sample:
                path.unlink() if path.is_file() else shutil.rmtree(path)
        return Path(shutil.copy(self.sample, self.folder / "spoilt.gesta"))


def read(lot: Random, path: Path, samples: Samples) -> str:
    """Read a record in a random way. Raises if the reader does something wrong."""
    (run, seq), (other, _) = lot.choice(samples.ids), lot.choice(samples.ids)
    if lot.random() < 0.15:
        return anyio.run(_through_the_door, path, run)
    named = {"run": run, "seq": seq, "other": other, "folder": samples.folder, "file": path}
    words = [word.format(**named) for word in lot.choice(COMMANDS)]
    if words[0] != "push":
        words += ["--record", str(path)]
    return f"code {command(*words).code}"


async def _through_the_door(path: Path, run: str) -> str:
    async with gesta.open(str(path)) as record:
        try:
            entries = await record.read(run)
            await record.state(run)
        except GestaError:
            entries = []
        await record.verify()
        outcome = await record.run(desk(), "Another message.", session="other")
        return f"{outcome.reason} {bool(entries)}"


def cells(lot: Random, samples: Samples) -> str:
    """Read a record with odd values in its cells."""
    path = samples.copy()
    spoilt_cells(lot, path)
    return read(lot, path, samples)


def bytes_(lot: Random, samples: Samples) -> str:
    """Read a record with changed bytes."""
    path = samples.copy()
    data = path.read_bytes()
    path.write_bytes(spoilt(lot, data))
    return read(lot, path, samples)
