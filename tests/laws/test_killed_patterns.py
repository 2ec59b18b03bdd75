"""Law 2 over patterns: wherever a process dies, and however often, all its runs end with the same facts."""

import functools
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from tests import programs
from tests.conftest import COSTLY, FULL
from tests.laws.killed_plays import PLAYS, Outside
from tests.laws.killed_programs import POINTS, Life, judged

from gesta import address
from gesta.address import Record
from gesta.store import Batch, Lease, Letter, TransactionalEffect
from gesta.stores.memory import MemoryStore

pytestmark = pytest.mark.sample(2, over="parent")

ROOT = Path(__file__).resolve().parents[2]
COMMITS = {"supervisor": 20, "errands": 18, "task": 20, "handed": 10, "asked": 4}
"""So many commits, or more, has a life that nothing breaks off."""
ALWAYS = {"supervisor": ("before", "after", "again"), "task": ("before", "after", "again")}
"""Where real processes are killed in short runs too; in full ones it is everywhere."""
DIES, KILLED = (1, 1) if FULL else (7, 13)
"""Of so many places one is tried, where a process is played to die and where a real one is killed; in full runs each."""
only_full = pytest.mark.skipif(not FULL, reason="takes long; GESTA_TESTS=full")
plays = pytest.mark.parametrize("play", PLAYS)
kills = [
    pytest.param(play, point, marks=() if point in ALWAYS.get(play, ()) else only_full)
    for play in PLAYS
    for point in (*POINTS, "again")
]


class Died(BaseException):
    """Stands for the end of a process."""


class Mortal(MemoryStore):
    """A store whose process dies somewhere; what was committed outlives it, and what is left of it can do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.begin(None)

    def begin(self, life: Life | None) -> None:
        """Begin a new process: the leases of the dead one are free."""
        self._held.clear()
        self.dead, self.life, self.reached = False, life, Counter[str]()

    def reach(self, point: str = "") -> None:
        """Come to a point, where this life may end; a dead one comes nowhere."""
        self.reached[point] += 1
        self.dead = self.dead or self.life == (self.reached[point], point)
        if self.dead:
            raise Died

    async def append(self, batch: Batch) -> int:
        self.reach()
        await checkpoint()
        self.reach("before")
        pos = await super().append(batch)
        self.reach("after")
        return pos

    async def transact(self, effect: TransactionalEffect) -> None:
        self.reach()
        await checkpoint()
        self.reach("before")
        await super().transact(effect)
        self.reach("after")

    async def send(self, letter: Letter) -> bool:
        self.reach()
        return await super().send(letter)

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        self.reach()
        return await super().lease(run, mirror=mirror)


def lived(play: str, lives: Sequence[Life]) -> dict[str, Any]:
    """Play through some lives that are broken off and one that is not, and say how all stands then."""
    store = Mortal()
    outside = Outside(reach=store.reach)

    async def live() -> None:
        await PLAYS[play](Record(store, address.bind), outside)

    async def last() -> dict[str, Any]:
        await live()
        points = dict(store.reached)
        return {**await judged(Record(store, address.bind), outside), "points": points}

    try:
        killed = 0
        for life in lives:
            store.begin(life)
            try:
                anyio.run(live)
            except BaseException:
                if not store.dead:
                    raise
                killed += 1
        store.begin(None)
        return {**anyio.run(last), "killed": killed}
    finally:
        outside.close()


@functools.cache
def whole(play: str) -> dict[str, Any]:
    """How it ends when nothing breaks it off."""
    told = lived(play, ())
    return json.loads(json.dumps(told))


def same(play: str, told: dict[str, Any], after: Any) -> None:
    """All is well, and as it is when nothing breaks it off."""
    assert told["wrong"] == [], after
    told = json.loads(json.dumps(told))
    for part in ("effects", "facts", "why"):
        assert told[part] == whole(play)[part], f"{part} after {after}"


def test_what_is_played_does_something_in_many_runs_and_all_is_well() -> None:
    shapes = {play: (len(whole(play)["facts"]), len(whole(play)["effects"])) for play in PLAYS}
    assert shapes == {"supervisor": (6, 3), "errands": (4, 5), "task": (3, 5), "handed": (2, 7), "asked": (1, 1)}
    assert [whole(play)["wrong"] for play in PLAYS] == [[]] * len(PLAYS)


def test_results_of_calls_that_a_sub_task_carries_out_go_to_their_own_calls() -> None:
    said = whole("handed")["facts"]["boss: Prepare the feast."]["said"]
    results = [(args["item"], *given) for name, args, *given in (each for each in said if len(each) == 3)]
    assert results[:6] == [(item, [item, "ok"]) for item in ("one", "two", "three", "four", "five", "six")]
    assert results[6:] == [("seven", ["seven", "ok"]), ("air", ["ValueError: air has no price", "ok"])]
    assert [each for each in said if each[0] == "system"] == []


@pytest.mark.sample(4)
@plays
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_anywhere_is_taken_up_with_the_same_facts(play: str, point: str) -> None:
    times = whole(play)["points"][point]
    assert times >= (COMMITS[play] if point != "outside" else 3)
    for number in range(first(point, DIES), times + 1, DIES):
        told = lived(play, [(number, point)])
        assert told["killed"] == 1
        same(play, told, (number, point))


def first(point: str, step: int) -> int:
    """The first place of a kind that is tried, so that those of the kinds lie apart."""
    return 1 + POINTS.index(point) * (step // 2) % step


lives = st.lists(st.tuples(st.integers(1, 12), st.sampled_from(POINTS)), max_size=8)


@COSTLY
@given(st.sampled_from(list(PLAYS)), lives)
def test_processes_that_die_one_after_the_other_are_taken_up_with_the_same_facts(play: str, deaths: list[Life]) -> None:
    same(play, lived(play, deaths), deaths)


@only_full
@plays
def test_a_process_that_takes_up_another_may_die_at_any_commit_too(play: str) -> None:
    for first in range(1, whole(play)["points"]["before"] + 1):
        left = lived(play, [(first, "before")])["points"].get("after", 0)
        for second in range(1, left + 1):
            deaths = [(first, "before"), (second, "after")]
            same(play, lived(play, deaths), deaths)


@pytest.mark.sample(4)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it forks")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("play", "point"), kills)
def test_a_process_that_is_killed_anywhere_is_taken_up_with_the_same_facts(
    play: str, point: str, tmp_path: Path
) -> None:
    words = ["-m", "tests.laws.killed_programs", play, str(tmp_path), point]
    if point != "again":
        words += [str(first(point, KILLED)), str(KILLED)]
    done = programs.run(words, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["killed"] for each in told] == [True] * (len(told) - 1) + [False]
    assert told[-1]["life"] > {"again": 2, "outside": 3}.get(point, COMMITS[play])
    for each in told:
        same(play, each, each["life"])
