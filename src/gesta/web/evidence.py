"""The results of `verify` for the pages: a check of the whole record, which runs in a thread, and a check of one run.

`verify` finds entries that were changed after they were written; each finding is a flaw. A head is the digest of a
run's last entry, kept outside the record. With heads, cut or rewritten runs are found too. The result of a check is not
written to the record: it is kept in memory while the viewer runs.
"""

from collections.abc import Sequence
from datetime import datetime
from threading import Thread
from typing import Any, Literal

import anyio
import msgspec
from msgspec import Struct, field

from gesta.address import Record, open_record
from gesta.errors import AgentError, message_of
from gesta.integrity.verify import UNREADABLE, Flaw, Head, How, behind, check_run, head_of, report
from gesta.store import RunRow
from gesta.text.redactor import SECRETS

LARGE = 5_000
"""Number of entries above which a run is not checked alone, because that takes long. Its flaws come from the last check
of the whole record.
"""
MOST = 200
"""Greatest number of flaws sent in one answer."""

ROWS: dict[How, tuple[str, ...]] = {
    "digest": (
        "a byte of an entry: content, kind, time, span, causes, version, salt",
        "the digest of an entry",
        "annotations that were NULL become an empty text",
        "an end of the content is moved into the annotations",
        "entries of a run change places",
    ),
    "missing": ("an entry in the middle of a run is removed", "entries of a run change places"),
    "place": ("an entry changes place with one of another run",),
    "base": (
        "a byte of an entry: content, kind, time, span, causes, version, salt",
        "a run is removed whole, and later runs stay",
    ),
    "blob": ("a byte of a blob", "a piece of a blob is moved into its salt", "a blob is removed"),
    "removed": (
        "the last entry of a run is removed, and later runs stay",
        "a run is removed whole, and later runs stay",
    ),
    "cut": ("the last entries of the record are removed", "the last run is removed whole"),
    "anew": ("entries are changed, and the chain is worked out anew",),
    "late": ("an entry is added behind the end, with a time before the last",),
    "aside": ("a trigger on a table of Gesta's", "a view of Gesta's is made in other words"),
    "damage": ("a page of the file is damaged",),
    "bytes": ("a page of the file is damaged", "a byte of an entry: content, kind, time, span, causes, version, salt"),
}
"""For each kind of flaw, the rows of the table in `docs/verify.md` that describe possible causes."""


class Stopped(Exception):
    """Raised inside the thread of a check when a person stopped the check."""


class Check(Struct):
    """The state and the result of a check of a whole record."""

    at: datetime
    """Time at which the check began."""
    heads: int
    """Number of heads kept outside the record that the check compares with the record."""
    state: Literal["running", "done", "stopped", "failed"] = "running"
    ended_at: datetime | None = None
    entries: int = 0
    """Number of entries in the record when the check began."""
    checked: int = 0
    """Number of entries checked so far."""
    flaws: list[Flaw] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str = ""
    """Why the check failed."""
    stopping: bool = False


class Evidence:
    """The checks of one record: at most one of the whole record at a time, and checks of single runs."""

    def __init__(self, record: Record, address: str, heads: Sequence[Sequence[Head]] = ()) -> None:
        """Prepare the checks of a record; none is started.

        Args:
            address: address of the record. The check of the whole record opens the record a second time.
            heads: heads that were kept outside the record, one list for each time at which they were saved.
        """
        self._record, self._address, self.heads = record, address, heads
        self.large = LARGE
        self.check: Check | None = None

    def start(self) -> None:
        """Start a check of the whole record in a thread, unless one is running."""
        if self.check is None or self.check.state != "running":
            self.check = Check(self._record.now(), sum(map(len, self.heads)))
            Thread(target=self._work, args=[self.check], name="gesta-verify", daemon=True).start()

    def stop(self) -> None:
        """Ask the running check to stop. The check stops when it has finished its current page of entries."""
        if self.check is not None:
            self.check.stopping = True

    def _work(self, check: Check) -> None:
        """Check the whole record, in a thread with an event loop of its own, so that the pages stay responsive."""

        def told(entries: int) -> None:
            check.checked += entries
            if check.stopping:
                raise Stopped

        async def main() -> None:
            async with open_record(self._address, readonly=True) as record:
                check.entries = int((await record.store.sql("SELECT count(*) FROM entries")).rows[0][0])
                found = await report(record.store, *self.heads, told=told)
                check.flaws, check.notes = found.flaws, found.notes

        try:
            anyio.run(main)
            told(0)
            check.state = "done"
        except Stopped:
            check.state = "stopped"
        except Exception as error:  # noqa: BLE001 - whatever it was, the page says so
            check.state, check.error = "failed", SECRETS.message(message_of(error))
        check.ended_at = self._record.now()

    def about(self) -> dict[str, Any]:
        """Return the state, progress and flaws of the last check of the whole record.

        Before the first check, the member `check` is `None`.
        """
        check = self.check
        if check is None:
            return {"check": None, "heads": sum(map(len, self.heads))}
        known = {"flaws": [_told(each) for each in check.flaws[:MOST]], "found": len(check.flaws)}
        return {"check": msgspec.to_builtins(check) | known, "heads": sum(map(len, self.heads))}

    async def run(self, row: RunRow) -> dict[str, Any]:
        """Check one run, and return its flaws and head as a dict for the page.

        A run of more than `LARGE` entries is not checked, because that takes long. Its flaws come from the last check
        of the whole record. If there was no such check yet, the member `checked` is false.
        """
        store, own = self._record.store, [head for each in self.heads for head in each if head.run == row.run]
        flaws, checked, last = list[Flaw](), row.head <= self.large, self._last()
        if checked:
            try:
                flaws, _ = await check_run(store, row.run, MOST)
            except UNREADABLE as error:
                flaws = [Flaw(row.run, 0, f"its entries cannot be read: {error}")]
            for each in self.heads:
                flaws += [
                    flaw
                    for flaw in await behind(store, [head for head in each if head.run == row.run], set())
                    if flaw not in flaws
                ]
        else:
            checked = last is not None
        if last is not None:
            known = {(flaw.seq, flaw.how) for flaw in flaws}
            flaws += [each for each in last.flaws if each.run == row.run and (each.seq, each.how) not in known]
        rows = await store.read(row.run, row.head - 1, row.head)
        head = Head(row.run, row.head, rows[0].digest.hex()) if rows and isinstance(rows[0].digest, bytes) else None
        return {
            "run": row.run,
            "at": last.at if last is not None and row.head > self.large else self._record.now(),
            "checked": checked,
            "entries": row.head,
            "flaws": [_told(each) for each in sorted(flaws, key=lambda each: each.seq)[:MOST]],
            "head": str(head) if head is not None else None,
            "covered": max((each.seq for each in own), default=None),
            "heads": sum(map(len, self.heads)),
        }

    def _last(self) -> Check | None:
        return self.check if self.check is not None and self.check.state == "done" else None


def heads_in(text: str) -> list[Head]:
    """Return the heads in a text, one a line; blank lines are skipped.

    Raises:
        AgentError: a line is not a head. The message names the line.
    """
    found = list[Head]()
    for number, line in enumerate(text.splitlines(), 1):
        head = head_of(line) if line.strip() else None
        if head is not None:
            found.append(head)
        elif line.strip():
            raise AgentError(f"Line {number} is not a head. A head is RUN.SEQ:DIGEST, as `gesta verify --keep` writes.")
    return found


def _told(flaw: Flaw) -> dict[str, Any]:
    return {**msgspec.to_builtins(flaw), "rows": ROWS[flaw.how]}
