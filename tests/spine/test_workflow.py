"""A program that is run again goes through what it did without doing it."""

import pytest

import gesta
from gesta import address
from gesta.errors import OtherProgram
from gesta.kinds import KeyValueContent
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore
from gesta.workflow.verbs import Verbs


async def test_what_is_on_record_under_a_name_is_not_done_again() -> None:
    calls: list[str] = []

    def help_out(*_: object) -> str:
        calls.append("asked")
        return "helped"

    helper = gesta.Agent("helper", model=gesta.function(help_out))

    async def program(verbs: Verbs, text: str) -> str:
        helped = await verbs.call(helper, text, "help")
        answer = await verbs.ask("sure", "Sure?")
        return f"{helped.text}, {answer}"

    record = Record(MemoryStore(), address.bind)
    agent = gesta.Agent("boss", program=program)
    waits = await record.run(agent, "please")
    assert [each.what for each in waits.waiting] == ["question"]
    await record.answer(waits.run, "yes", by="ann")
    ended = await record.resume(waits.run, agent)
    assert (ended.answer, calls) == ("helped, yes", ["asked"])


async def test_a_name_that_is_used_twice_is_refused_to_the_program() -> None:
    async def program(verbs: Verbs, _text: str) -> str:
        verbs.note("a", KeyValueContent(key="a", value=1))
        verbs.note("a", KeyValueContent(key="a", value=2))
        return "never"

    record = Record(MemoryStore(), address.bind)
    with pytest.raises(OtherProgram, match="used before"):
        await record.run(gesta.Agent("boss", program=program), "go", session="s", key="k")
    assert await record.store.runs("s") == [], "nothing was promised yet, so nothing is on record"


async def test_what_a_program_raises_is_how_its_turn_ends() -> None:
    async def program(_verbs: Verbs, _text: str) -> str:
        raise ValueError("no")

    ended = await Record(MemoryStore(), address.bind).run(gesta.Agent("boss", program=program), "go")
    assert ended.reason == "failed"
    assert ended.error is not None
    assert (ended.error.type, ended.error.message) == ("ValueError", "no")
