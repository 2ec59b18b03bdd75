"""A turn always comes to rest: without an event from outside, it writes a bounded number of entries.

Tools fail in the same way for ever, keys grow old, the code changes between two processes, and people answer anything.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import tried

import gesta
from gesta.function_tool.context import NeedsAnswer, ToolQuestion
from gesta.kinds import AnswerContent, ApprovalContent, Content, ResolutionContent

KEY_S, MOST, TICKS = 60, 60, 5_000
"""Age of a key, most entries that follow from one event, and number of entries at which a test is broken off."""


class Endless(BaseException):
    """Raised by the clock when a turn goes on writing."""


class Clock:
    """A clock that a test moves, and that counts how often it is read."""

    def __init__(self) -> None:
        self.now, self.ticks = datetime(2026, 1, 1, tzinfo=UTC), 0

    def __call__(self) -> datetime:
        self.ticks += 1
        if self.ticks > TICKS:
            raise Endless
        return self.now

    def pass_key(self) -> None:
        self.now += timedelta(seconds=KEY_S + 1)


def tool_of(plan: dict[str, Any], clock: Clock, ends: Iterator[str], found: Iterator[str]) -> gesta.Tool:
    """A tool whose attempts end as `ends` says, for ever as its last item, and whose `reconcile` answers alike."""

    async def act(context: gesta.Context) -> str:
        """Act."""
        if plan["slow"]:
            clock.pass_key()
        match next(ends):
            case "doubt":
                raise gesta.InDoubt
            case "refused":
                raise ConnectionRefusedError
            case "asks":
                raise NeedsAnswer({f"part {len(context.answers)}": ToolQuestion("Which?")}, {"done": 1})
            case "asks nothing":
                raise NeedsAnswer({}, {"done": 1})
            case "exits":
                raise SystemExit
        return "acted"

    async def look(_key: str) -> Any:
        if plan["slow"]:
            clock.pass_key()
        answer = next(found)
        if answer == "fails":
            raise ConnectionError
        return {"void": gesta.NotDone(void=True), "not done": gesta.NotDone()}.get(answer, gesta.Unknown())

    return gesta.tool(
        act,
        effect=plan["effect"],
        key_s=KEY_S,
        approval=plan["approval"],
        on_doubt=plan["on_doubt"],
        reconcile=look if plan["reconcile"] else None,
    )


PLANS = st.fixed_dictionaries(
    {
        "effect": st.sampled_from(["pure", "idempotent", "once"]),
        "slow": st.booleans(),
        "approval": st.booleans(),
        "on_doubt": st.sampled_from(["ask", "tell"]),
        "reconcile": st.booleans(),
    }
)
ENDS = st.lists(st.sampled_from(["doubt", "doubt", "refused", "asks", "asks nothing", "exits", "acts"]), min_size=1)
FOUND = st.lists(st.sampled_from(["void", "not done", "not done", "fails", "unknown"]), min_size=1)
EVENTS = st.lists(st.sampled_from(["retry", "retry", "failed", "yes", "day", "resume", "code"]), max_size=8)


async def said(record: Any, run: str, event: str) -> None:
    """Have a person say the same of all that waits."""
    for waits in await record.waiting(run):
        of = waits.of or 0
        content: Content | None = None
        if waits.what in ("doubt", "running") and event in ("retry", "failed"):
            content = ResolutionContent(of=of, verdict="retry" if event == "retry" else "failed", by="ann")
        elif waits.what == "question" and event == "yes":
            content = AnswerContent(of=of, value="L", by="ann")
        elif waits.what == "approval" and event == "yes":
            content = ApprovalContent(of=of, verdict="approved", by="ann")
        if content is not None:
            with suppress(gesta.GestaError):
                await record.send(waits.run, content, key=f"{event} {of}")


@settings(max_examples=tried(30, 60, 2000))
@given(plans=st.tuples(PLANS, PLANS), ends=ENDS, found=FOUND, events=EVENTS, calls=st.integers(1, 2))
def test_without_an_event_from_outside_a_turn_comes_to_rest(
    plans: tuple[dict[str, Any], ...], ends: list[str], found: list[str], events: list[str], calls: int
) -> None:
    clock, head, code = Clock(), 0, 0
    ending, finding = chain(ends, repeat(ends[-1])), chain(found, repeat(found[-1]))
    model = gesta.scripted([gesta.call("act") for _ in range(calls)], "done")
    agents = [gesta.Agent("desk", model=model, tools=[tool_of(each, clock, ending, finding)]) for each in plans]

    async def main() -> None:
        nonlocal head, code
        async with gesta.open() as record:
            record.turns.clock = clock
            run = ""
            for event in ["begin", *events, "resume"]:
                clock.ticks = 0
                code += event == "code"
                if event == "day":
                    clock.pass_key()
                await said(record, run, event) if run else None
                with suppress(gesta.GestaError):
                    if event == "begin":
                        await record.run(agents[0], "go", session="s", key="k")
                    else:
                        await record.resume(run, agents[code % 2])
                run = (await record.find("s")).run
                entries = await record.read(run)
                assert len(entries) - head <= MOST, [each.kind for each in entries[head:]][:MOST]
                head = len(entries)

    anyio.run(main)
