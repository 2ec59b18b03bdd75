"""A program that is run again goes through what it did without doing it."""

from inspect import isawaitable
from typing import Any

import pytest

import gesta
from gesta import address
from gesta.errors import AgentError, OtherProgram
from gesta.kinds import BeginContent, DecisionContent, EndContent, KeyValueContent, SystemContent
from gesta.perform.execution import LiveRun
from gesta.record.record import Record
from gesta.state.steps import WorkflowStep
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


@pytest.mark.parametrize("verb", ["call", "ask", "sleep", "pick", "now", "note"])
async def test_a_name_that_is_no_text_is_refused_for_nothing_would_be_found_under_it_again(verb: str) -> None:
    helper = gesta.Agent("helper", model=gesta.scripted("Done."))

    async def program(verbs: Any, _text: str) -> str:
        arguments = {
            "call": (helper, "go", 7),
            "ask": (7, "Sure?"),
            "sleep": (7, 0),
            "pick": (7, ["a", "b"]),
            "now": (7,),
        }
        done = getattr(verbs, verb)(*arguments.get(verb, (7, KeyValueContent(key="a", value=1))))
        return str(await done if isawaitable(done) else done)

    record = Record(MemoryStore(), address.bind)
    with pytest.raises(AgentError, match="name of a step is 7, expected a text"):
        await record.run(gesta.Agent("boss", program=program), "go", session="s", key="k")


@pytest.mark.parametrize(("question", "schema"), [("How many?", int), ("How many?", "integer"), (7, None), (None, {})])
async def test_a_question_that_nobody_could_answer_is_not_asked(question: Any, schema: Any) -> None:
    asked = [(question, schema), ("How many?", {"type": "integer"})]

    async def program(verbs: Verbs, _text: str) -> str:
        return str(await verbs.ask("number", *asked[0]))

    record, agent = Record(MemoryStore(), address.bind), gesta.Agent("boss", program=program)
    with pytest.raises(AgentError, match="expected a text, and as schema a dict"):
        await record.run(agent, "go", session="s", key="k")
    del asked[0]
    waits = await record.run(agent, "go", session="s", key="k")
    await record.answer(waits.waiting[0], 3, by="ann")
    assert (await record.resume(waits.run, agent)).answer == "3"


@pytest.mark.parametrize(
    "other", [("Pay 1000 euros?", {"enum": ["yes", "no"]}), ("Pay 10 euros?", {"type": "boolean"})]
)
async def test_an_answer_is_not_given_to_a_program_that_asks_something_else(other: tuple[str, dict[str, Any]]) -> None:
    asks: list[tuple[str, dict[str, Any]]] = [("Pay 10 euros?", {"enum": ["yes", "no"]})]

    async def program(verbs: Verbs, _text: str) -> str:
        return str(await verbs.ask("sure", *asks[-1]))

    record, agent = Record(MemoryStore(), address.bind), gesta.Agent("boss", program=program)
    waits = await record.run(agent, "go", session="s", key="k")
    await record.answer(waits.run, "yes", by="ann")
    asks.append(other)
    with pytest.raises(OtherProgram, match="on record with the input"):
        await record.resume(waits.run, agent)
    del asks[-1]
    assert (await record.resume(waits.run, agent)).answer == "yes"


async def test_a_program_that_is_no_async_function_is_told_so() -> None:
    def program(_verbs: Verbs, _text: str) -> str:
        return "Rome"

    agent = gesta.Agent("boss", program=program)  # type: ignore[arg-type]
    ended = await Record(MemoryStore(), address.bind).run(agent, "go")
    assert ended.error is not None
    assert ended.error.message == (
        "The program of agent 'boss' is not an async function: it returned 'Rome', expected a coroutine. Write `async def`."
    )


async def test_what_a_program_raises_is_how_its_turn_ends() -> None:
    async def program(_verbs: Verbs, _text: str) -> str:
        raise ValueError("no")

    ended = await Record(MemoryStore(), address.bind).run(gesta.Agent("boss", program=program), "go")
    assert ended.reason == "failed"
    assert ended.error is not None
    assert (ended.error.type, ended.error.message) == ("ValueError", "no")


async def test_the_words_of_a_called_agent_are_heard_as_they_come() -> None:
    heard: list[gesta.Event] = []
    helper = gesta.Agent("helper", model=gesta.scripted("One two.", "Three four."))

    async def program(verbs: Verbs, text: str) -> str:
        await verbs.call(helper, text, "alone", hear=heard.append)
        for number in (1, 2):
            content = SystemContent(value=f"{text} {number}")
            await verbs.go_on(
                helper, content, f"part {number}", thread="talk", causes=[verbs.question], hear=heard.append
            )
        return "done"

    async with gesta.open(":memory:") as record:
        async for _ in record.stream(gesta.Agent("boss", program=program), "go"):
            pass
    assert "".join(event.content for event in heard) == "One two.One two.Three four."
    assert {event.type for event in heard} == {"answer"}


async def test_steps_notes_and_picks_are_on_record_with_their_roles_and_causes() -> None:
    async def program(verbs: Verbs, _text: str) -> str:
        _, first = verbs.note("a", KeyValueContent(key="a", value=1))
        _, second = verbs.keep("b", KeyValueContent(key="b", value=2), [first.seq])
        assert (
            verbs.pick("way", ["left", "right"], choice="right", why="It is shorter.", causes=[second.seq]) == "right"
        )

        async def work(live: LiveRun, _step: WorkflowStep) -> tuple[EndContent, tuple[int, ...]]:
            return EndContent(status="success"), ()

        await verbs.step("look", work, role="finding")
        return "done"

    record = Record(MemoryStore(), address.bind)
    ended = await record.run(gesta.Agent("boss", program=program), "go")
    entries = await record.read(ended.run)
    first, second = (entry for entry in entries if isinstance(entry.content, KeyValueContent))
    ((picked, why),) = (
        (entry, entry.content.rationale) for entry in entries if isinstance(entry.content, DecisionContent)
    )
    assert (second.causes, picked.causes, why) == ((first.seq,), (second.seq,), "It is shorter.")
    (step,) = (entry.content for entry in entries if isinstance(entry.content, BeginContent) and entry.content.parent)
    assert (step.name, step.role) == ("look", "finding")
