"""Cases in which Gesta's own commands change or copy a record between two processes.

The sessions continue afterwards.
"""

import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec

import gesta
from benchmarks.faults import judging
from benchmarks.faults.agents import Cast, Scene, order_of_args
from benchmarks.faults.driving import BY, witness_of
from benchmarks.faults.lives import begin, done, kill_note
from benchmarks.faults.striking import Striker
from gesta.kinds import ApprovalContent

BRIEF_S = 1.5
HELD_S = 5.0
"""The longest time in seconds that a subprocess started by a tool lives on."""
FORKED: Any = None
"""The agent that continues a fork. The command finds it here by its name."""


def command(*words: str) -> int:
    """Run a command of `gesta` in a process of its own, and return its exit code."""

    def work() -> None:
        from gesta.cli import main

        sys.argv = ["gesta", *words]
        main()

    return done(work)


class Copying:
    """A case in which the record is pruned, restored, pushed, moved or forked."""

    def __init__(self, case: Any) -> None:
        self.case, self.scene, self.lot = case, case.scene, random.Random(case.scene.seed)

    def run(self) -> None:
        """Kill a process at the place of the case, then carry out its operation on the record."""
        begin(self.scene, [self.case.at_place("kill")]).follow()
        getattr(self, f"_{self.case.fault}")()

    def _note(self) -> None:
        kill_note(self.scene, self.case.fault, self.case.place)

    def _later(self, **others: Any) -> Scene:
        """Return the scene with one more message for each session."""
        return msgspec.structs.replace(self.scene, turns=self.scene.turns + 1, **others)

    def _prune(self) -> None:
        """Remove ended sessions. A session that is used again afterwards is a new run with new keys."""
        if self.lot.random() < 0.3:
            begin(self.scene, final=True).follow()
        before = self._sessions()
        self._note()
        self.case.ended(command("prune", "--before", "0m", "--yes", "--record", self.scene.record))
        gone = tuple(int(each[1:]) for each in before - self._sessions())
        self.case.lost = True
        self.case.final(self._later(skipped=gone))

    def _known(self) -> Scene:
        """Return the scene with only those sessions that are on record.

        The others are left out, because the same message sent to two records is rightly carried out twice.
        """
        known = {int(each[1:]) for each in self._sessions()}
        others = tuple(each for each in range(self.scene.sessions) if each not in known)
        return msgspec.structs.replace(self.scene, skipped=others)

    def _sessions(self) -> set[str]:
        """Return the names of the sessions on record."""

        async def work() -> set[str]:
            async with gesta.open(self.scene.record, readonly=True) as record:
                rows = await record.store.runs()
                return {row.session for row in rows if row.session[1:].isdecimal()}

        path = self.case.folder / "sessions.json"
        done(lambda: path.write_bytes(msgspec.json.encode(anyio.run(work))) and None)
        return msgspec.json.decode(path.read_bytes(), type=set[str])

    def _restore(self) -> None:
        """Restore a backup.

        It knows nothing of what was done since, and the keys used since then must not be used again.
        """
        copy, path = self.case.folder / "backup.gesta", Path(self.scene.record)
        self.case.ended(command("backup", str(copy), "--record", self.scene.record))
        known = self._known()
        begin(self._later(), brief_s=BRIEF_S * 4).follow()
        self._note()
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        if self.lot.random() < 0.5:
            shutil.copy(copy, path)
        else:
            Path(copy).replace(path)
        self.case.lost = True
        begin(msgspec.structs.replace(self.scene, turns=0, marked=True, fresh=1), brief_s=BRIEF_S).follow()
        begin(known, brief_s=BRIEF_S / 3).follow()  # turns that were open at the backup may wait, and must do nothing

    def _push(self) -> None:
        """Copy the record. The copy is a mirror, so nothing is done twice even if both are driven and approved."""
        self._approve()
        self._note()
        copy = self._copy()
        self._pushed(copy)
        mirror = msgspec.structs.replace(self._known(), record=copy)
        other = begin(mirror, brief_s=BRIEF_S) if self.lot.random() < 0.5 else None
        self.case.final()
        if other is not None:
            other.follow()
        begin(mirror, brief_s=0.3).follow()
        if self.lot.random() < 0.3:
            self._pushed(copy)

    def _move(self) -> None:
        """Move the runs to another record. They continue there, and only there."""
        if not moves():
            self.case.skipped = "push --move is not there"
            return
        self._approve()
        self._note()
        copy = self._copy()
        self._pushed(copy, "--move")
        self.case.lost = True
        known = self._known()
        begin(known, brief_s=0.3).follow()
        self.case.final(msgspec.structs.replace(self.scene, record=copy, copied=True))
        begin(known, brief_s=0.3).follow()

    def _pushed(self, copy: str, *options: str) -> None:
        """Push the record. The command is repeated while a tool's subprocess that lives on still holds a run."""
        until, code = time.monotonic() + HELD_S, 1
        while code and time.monotonic() < until:
            code = command("push", *options, self.scene.record, copy)
        self.case.ended(code)

    def _copy(self) -> str:
        server = self.case.server
        copy = (
            server.address(f"{self.case.schema}_copy") if server is not None else str(self.case.folder / "copy.gesta")
        )
        self.case.records.append(copy)
        return str(copy)

    def _approve(self) -> None:
        """Approve the calls that wait for it, before any other process continues."""
        witness = witness_of(self.scene)

        async def work() -> None:
            async with gesta.open(self.scene.record) as record:
                for row in await record.store.runs():
                    for call in (await record.state(row.run)).calls.values():
                        if call.awaits_approval and witness.truth(order_of_args(call.args)) == "not done":
                            said = ApprovalContent(of=call.asked or 0, verdict="approved", by=BY)
                            await record.send(row.run, said, key=f"ap-{call.asked}")

        done(lambda: anyio.run(work))

    def _fork(self) -> None:
        """Fork interrupted runs. A fork must not carry out anything, whatever entries it shares."""
        runs = self._shared()
        self._note()
        for run, at in runs:
            done(lambda run=run, at=at: self._forked(run, at))  # type: ignore[misc]
        self.case.final()

    def _shared(self) -> list[tuple[str, int]]:
        """Return the runs to fork, each with the last shared entry: an approval if there is one."""
        path = self.case.folder / "shared.json"

        def work() -> None:
            runs, _ = judging.read(self.scene.record)
            found = []
            for run, entries in runs.items():
                approvals = [each.seq for each in entries if isinstance(each.content, ApprovalContent)]
                said = [each.seq for each in entries if each.kind in ("tool-call", "tool-result", "user")]
                if entries and entries[0].content.opened.parent_run is None and (approvals or said):  # type: ignore[union-attr]
                    found.append((run, self.lot.choice(approvals or said)))
            path.write_bytes(msgspec.json.encode(found))

        done(work)
        return msgspec.json.decode(path.read_bytes(), type=list[tuple[str, int]])

    def _forked(self, run: str, at: int) -> None:
        """Fork a run and let the agent continue the fork. Each effect that it has is noted as wrong."""
        global FORKED  # noqa: PLW0603 - commands find an agent by its name
        quiet = self.case.folder / "fork.jsonl"
        witness = witness_of(self.scene)
        mine = msgspec.structs.replace(self.scene, witness=str(quiet))
        shutil.copy(self.scene.witness, quiet)
        known = len(witness.lines())
        FORKED = Cast(mine, witness_of(mine), Striker(witness_of(mine))).root()
        words = ["fork", run, f"{__name__}:FORKED", "--at", str(at), "--record", self.scene.record]

        def work() -> None:
            from gesta.cli import main

            sys.argv = ["gesta", *words]
            main()

        done(work)
        for line in witness_of(mine).lines()[known:]:
            if line.what == "effect" and line.effect != "pure":
                witness.wrong(f"a fork carried out order {line.order} of {line.tool} ({line.effect})")


def moves() -> bool:
    """Return whether this version of Gesta can move records."""
    from gesta.cli.options import PushOptions

    return "move" in PushOptions.__annotations__
