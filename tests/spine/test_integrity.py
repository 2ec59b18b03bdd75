"""A record is sound if every entry follows from the one before, and no head that was kept is lost."""

from datetime import UTC, datetime

from msgspec.structs import replace

import gesta
from gesta.integrity.verify import audit, head_of, heads, report


async def test_a_sound_record_has_no_flaw_and_its_heads_are_found_again() -> None:
    async with gesta.open(":memory:") as record:
        await record.run(gesta.Agent("a", model=gesta.scripted("hi")), "hello")
        kept = await heads(record.store)
        assert [head_of(str(head)) for head in kept] == kept
        assert await audit(record.store, kept) == []
        assert not (await report(record.store, kept)).flaws


async def test_a_head_that_is_not_on_record_is_a_flaw() -> None:
    async with gesta.open(":memory:") as record:
        await record.run(gesta.Agent("a", model=gesta.scripted("hi")), "hello")
        (head,) = await heads(record.store)
        other = replace(head, seq=head.seq + 5)
        assert await audit(record.store, [other])


async def test_runs_that_programs_begin_at_once_are_no_flaw_and_the_note_names_them() -> None:
    agent = gesta.Agent("a", model=gesta.scripted("hi"))
    stamps = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (1, 2)]
    async with gesta.open(":memory:") as record:
        record.turns.clock = lambda: stamps[-1]
        while stamps:  # the program that stamped first wrote last
            await record.run(agent, "hello", session=f"s{len(stamps)}")
            stamps.pop()
        found = await report(record.store)
    assert not found.flaws
    assert found.notes == [
        "Runs that began before the run before them, as copied, imported and concurrent runs may: 1."
    ]


def test_what_is_no_head_is_read_as_none() -> None:
    assert head_of("nothing") is None
