"""Each mend can be taken out, so that the campaign shows that it would be missed.

A mend is taken out by changing a line of a function, in the processes of the cases alone. `found` is what the campaign
then has to say within 200 cases. A line that is no longer there is an error: the list has to follow the code.
"""

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any

from msgspec import Struct

from benchmarks.faults.campaign import Plan, Total, campaign

CASES = 200
TIME_S = 900.0


class Change(Struct, frozen=True):
    """A line of a function that is another one without a mend."""

    where: str
    """`module:function` or `module:Class.method`."""
    old: str
    new: str


class Mend(Struct, frozen=True, kw_only=True):
    """A mend of one finding."""

    what: str
    """What happens without it."""
    changes: tuple[Change, ...]
    found: str
    """Pattern of what the campaign says."""


MENDS: dict[str, Mend] = {
    "P1": Mend(
        what="the model is told to repeat an effect",
        changes=(
            Change("gesta.asking:_placeholder", "only_reads(tool) and ", ""),
            Change("gesta.decide:_doubt", 'if effect == "pure":', 'if effect in ("pure", "idempotent"):'),
        ),
        found=r"has \d keys|was carried out",
    ),
    "P2": Mend(
        what="one idempotency key for two effects",
        changes=(
            Change("gesta.calling:key_of", "return os.urandom(32).hex()", "return call_key(record, run, call.seq)"),
        ),
        found="one key stands for",
    ),
    "P3": Mend(
        what="a run stays held by its own process",
        changes=(
            Change(
                "gesta.stores.sqlite:SqliteStore.release",
                "except RecordError:\n        pass",
                "except RecordError:\n"
                "        self._writer._leases.presence.back.pop(lease.run, None)\n"
                "        self._writer._leases.presence.using[lease.run] = lease.epoch",
            ),
        ),
        found="RunHeld for|did not come back",
    ),
    "P4": Mend(
        what="a call whose thread is at work is believed not done",
        changes=(
            Change("gesta.settle:_look", "over = not works(attempt_name(desk, last.seq))", "over = True"),
            Change(
                "gesta.settle:_look",
                "over = last.process is not None and await journal.store.gone(last.process) is True",
                "over = True",
            ),
        ),
        found=r"was carried out \d times, under 1 keys",
    ),
    "P5": Mend(
        what="a transactional tool that ends the transaction goes on without one",
        changes=(
            Change("gesta.stores.effects:Sql.__call__", "self._over = ENDED", "pass"),
            Change("gesta.stores.effects:Sql.check", 'raise Refused(f"{ENDED}.")', "return"),
        ),
        found="was booked",
    ),
    "P6": Mend(
        what="one bad run ends the others of a worker",
        changes=(Change("gesta.worker:Worker._go_on", "self._put_off(row, failure)\n        return", "raise"),),
        found="beside a bad run in a worker",
    ),
    "P7": Mend(
        what="an approval counts though it came too late",
        changes=(Change("gesta.approver:judged", "_late(letter.at, about) or ", ""),),
        found="an approval that came too late",
    ),
    "P8": Mend(
        what="waiting for a thread counts as the tool's time",
        changes=(
            Change("gesta.using:_seated", "if not work.tool.threaded:", "if True:"),
            Change(
                "gesta.using:_try",
                "returned = await caught(tool.invoke(arguments, context, thread.carry_out))",
                "waiting = Seat(); await waiting.wait(); "
                "returned = await caught(tool.invoke(arguments, context, thread.carry_out)); waiting.leave()",
            ),
        ),
        found="was never started",
    ),
    "P9": Mend(
        what="processes that write one file have no turns",
        changes=(
            Change("gesta.stores.sqlite_turn:Turn.waited", "if not self.taken_by(", "if False and not self.taken_by("),
            Change("gesta.stores.sqlite_turn:Turn.waited", "self.release()", "pass"),
        ),
        found="beside other writers|a run beside many others",
    ),
    "P10": Mend(
        what="threads of one process are taken for another copy of SQLite",
        changes=(Change("gesta.stores.sqlite_guard:refuse_first", "if opened_here(path):", "if False:"),),
        found="threads of one process",
    ),
    "P11": Mend(
        what="a log that was taken away is not noticed",
        changes=(
            Change(
                "gesta.stores.sqlite_guard:Guard.stands",
                "return identified(self._log) ==",
                "return True or identified(self._log) ==",
            ),
        ),
        found="files at .*(not on record|was carried out|has 2 keys|came out of a turn)",
    ),
    "P12": Mend(
        what="a pushed run goes on in both records",
        changes=(Change("gesta.stores.sqlite_leases:Leases.take", "raise RunMirrored(run, mirror_of)", "pass"),),
        found="push at .*was carried out|push at .*has 2 keys|push at .*booked",
    ),
    "P13": Mend(
        what="a listener that raises ends its turn",
        changes=(Change("gesta.desk:Desk._say", "self.deaf.append(failure)", "raise"),),
        found="stream|listener",
    ),
    "P14": Mend(
        what="another message under a used key gets the old answer",
        changes=(
            Change("gesta.holder:_same_message", "if opening.content is None or not known.question:", "if True:"),
        ),
        found="another message under a used key",
    ),
    "P15": Mend(
        what="an agent that calls itself has no bound of depth",
        changes=(Change("gesta.calling:hand_over", "opened.depth >= most", "False"),),
        found="an agent that calls itself",
    ),
}


def take_out(mend: Mend) -> None:
    """Change the functions of a mend, for whoever imported them too."""
    by_function: dict[str, list[Change]] = {}
    for change in mend.changes:
        by_function.setdefault(change.where, []).append(change)
    for where, changes in by_function.items():
        module, _, name = where.partition(":")
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        function = inspect.unwrap(found)
        assert isinstance(function, FunctionType), where
        function.__code__ = changed(function, where, changes)


def changed(function: FunctionType, where: str, changes: Sequence[Change]) -> Any:
    """Compile a function with other lines."""
    source = textwrap.dedent(inspect.getsource(function))
    for change in changes:
        if change.old not in source:
            raise SystemExit(f"{where} has no {change.old!r} any more: benchmarks/faults/mends.py has to follow.")
        source = source.replace(change.old, change.new)
    made: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + source, dict(function.__globals__), made)
    return inspect.unwrap(next(iter(made[name] for name in made if name != "annotations"))).__code__


def shown(name: str, plan: Plan, stores: Sequence[str], jobs: int) -> int:
    """Take a mend out, and carry out cases until the campaign says so; 0 if it did within 200."""
    mend = MENDS[name]
    take_out(mend)
    missed: Callable[[str], Any] = re.compile(mend.found).search

    def stop(total: Total) -> bool:
        return total.cases >= CASES or any(map(missed, total.wrong))

    total = campaign(plan, stores, jobs=jobs, seconds=TIME_S, keep=None, stop=stop)
    told = next(filter(missed, total.wrong), None)
    sys.stdout.write(f"{name}, {mend.what}: {told or 'not found'} ({total.cases} cases)\n")
    return 0 if told else 1
