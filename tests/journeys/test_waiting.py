"""What waits for a person or a time: it costs nothing while it waits, and goes on in another process."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.commands import anew

import gesta
from gesta.compare.replaying import replay_run
from gesta.errors import AgentError, SeveralRuns
from gesta.kinds import AnswerContent, ApprovalContent, ResolutionContent, SignalContent
from gesta.tools.person import ask_person
from gesta.worker import Worker

DONE: list[int] = []


@gesta.tool(effect="once", approval=True)
def pay(euros: int) -> str:
    """Pay."""
    DONE.append(euros)
    return f"{euros} paid"


@gesta.tool(effect="once", approval=True, expires_s=60)
def wire(euros: int) -> str:
    """Wire money."""
    raise AssertionError("nobody allowed it")


def results(entries: list[gesta.Entry]) -> list[object]:
    return [entry.content.tool_result for entry in entries if entry.kind == "tool-result"]  # type: ignore[union-attr]


async def test_a_question_waits_for_a_person_and_the_answer_is_the_result() -> None:
    model = gesta.scripted(gesta.call("ask_person", question="Which size?"), "Size L it is.")
    agent = gesta.Agent("desk", model=model, tools=[ask_person(answer={"enum": ["S", "L"]})])
    async with gesta.open() as record:
        outcome = await record.run(agent, "A shirt, please.", session="s")
        (waiting,) = outcome.waiting
        assert (outcome.reason, waiting.what) == ("waiting", "question")
        again = await record.resume(outcome.run, agent)
        assert again.waiting == outcome.waiting
        assert sum(entry.kind == "question" for entry in await record.read(outcome.run)) == 1
        await record.send(outcome.run, AnswerContent(of=waiting.of or 0, value="L", by="ann"), key="q")
        assert (await record.resume(outcome.run, agent)).answer == "Size L it is."
        assert results(await record.read(outcome.run)) == ["L"]


async def test_a_question_stays_asked_where_the_agent_that_goes_on_has_no_such_tool() -> None:
    model = gesta.scripted(gesta.call("ask_person", question="Which size?"), "Size L it is.")
    agent = gesta.Agent("desk", model=model, tools=[ask_person()])
    changed = gesta.Agent("desk", model=model)
    async with gesta.open() as record:
        outcome = await record.run(agent, "A shirt, please.", session="s")
        still = await record.resume(outcome.run, changed)
        assert [each.what for each in still.waiting] == ["question"]
        await record.answer(outcome.run, "L", by="ann")
        assert (await record.resume(outcome.run, changed)).answer == "Size L it is."
        assert results(await record.read(outcome.run)) == ["L"]


async def test_a_person_may_change_the_arguments_or_answer_instead_of_the_tool() -> None:
    DONE.clear()
    model = gesta.scripted(gesta.call("pay", euros=100), gesta.call("pay", euros=7), "Done.")
    agent = gesta.Agent("desk", model=model, tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Pay.", session="s")
        edit = ApprovalContent(of=outcome.waiting[0].of or 0, verdict="approved", by="ann", args={"euros": 10})
        await record.send(outcome.run, edit, key="1")
        outcome = await record.resume(outcome.run, agent)
        instead = ApprovalContent(of=outcome.waiting[0].of or 0, verdict="answered", by="ann", result="paid in cash")
        await record.send(outcome.run, instead, key="2")
        outcome = await record.resume(outcome.run, agent)
        assert outcome.answer == "Done."
        assert DONE == [10]
        assert results(await record.read(outcome.run)) == ["10 paid", "paid in cash"]


async def test_an_approval_that_nobody_gives_in_time_is_a_denial() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("wire", euros=1), "Not wired."), tools=[wire])
    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        outcome = await record.run(agent, "Wire.", session="s")
        assert (await record.resume(outcome.run, agent)).reason == "waiting"
        now[0] += timedelta(seconds=61)
        outcome = await record.resume(outcome.run, agent)
        assert outcome.answer == "Not wired."
        (told,) = results(await record.read(outcome.run))
        assert told == "A person did not allow this call. Nobody answered until 2026-01-01T00:01:00.000000Z."


async def test_of_two_answers_the_first_counts_and_the_second_is_told() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("wire", euros=1), "Not wired."), tools=[wire])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Wire.", session="s")
        asked = outcome.waiting[0].of or 0
        assert await record.send(outcome.run, ApprovalContent(of=asked, verdict="denied", by="ann"), key=f"a-{asked}")
        assert not await record.send(
            outcome.run, ApprovalContent(of=asked, verdict="approved", by="bob"), key=f"a-{asked}"
        )
        assert (await record.resume(outcome.run, agent)).answer == "Not wired."


async def test_a_call_in_doubt_stands_in_a_table_until_it_is_settled() -> None:
    @gesta.tool(effect="once")
    def post(to: str) -> str:
        """Post a letter."""
        raise gesta.InDoubt("the line went dead")

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("post", to="ann"), "Posted."), tools=[post])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Post.", session="s")
        query = "SELECT run, call, tool, attempt FROM doubts"
        assert (await record.store.sql(query)).rows == [(outcome.run, outcome.waiting[0].call, "post", 7)]
        settled = ResolutionContent(of=7, verdict="done", by="ann", result="posted")
        await record.send(outcome.run, settled, key="r")
        assert (await record.resume(outcome.run, agent)).answer == "Posted."
        assert (await record.store.sql(query)).rows == []


async def test_a_program_asks_and_sleeps_and_is_taken_up_where_it_was() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    passes = []

    async def program(verbs: gesta.Verbs, question: str) -> str:
        passes.append(question)
        size = await verbs.ask("size", "Which size?", {"type": "integer"})
        due = await verbs.sleep("delivery", 3600)
        return f"Size {size}, delivered at {due:%H:%M}"

    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        worker = Worker(record, [agent])
        outcome = await record.run(agent, "A shirt.", session="s")
        assert [each.what for each in outcome.waiting] == ["question"]
        told: list[gesta.Outcome] = []
        assert await worker.look(told.append) == 1  # it never saw that run, so it looks
        assert await worker.look(told.append) == 0
        await record.send(outcome.run, AnswerContent(of=outcome.waiting[0].of or 0, value=42, by="ann"), key="q")
        assert await worker.look(told.append) == 1
        assert [each.what for each in told[-1].waiting] == ["timer"]
        assert await worker.look(told.append) == 0
        now[0] += timedelta(hours=1)
        assert await worker.look(told.append) == 1
        assert told[-1].answer == "Size 42, delivered at 01:00"
        assert await worker.look(told.append) == 0
        assert len(passes) == 4
        assert sum(entry.kind == "timer" for entry in await record.read(outcome.run)) == 1


CLERK = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay", euros=5), "Paid."), tools=[pay])


async def caught(verbs: gesta.Verbs, text: str) -> str:
    """Go on whatever happens in the step."""
    try:
        return (await verbs.call(CLERK, text, "pay")).text
    except BaseException as failure:  # noqa: BLE001 - what many programs do
        return f"It failed: {type(failure).__name__}"


async def gathered(verbs: gesta.Verbs, text: str) -> str:
    """Return what each step gave, or why it failed."""
    done = await asyncio.gather(verbs.call(CLERK, text, "pay"), verbs.ask("why", "Why?"), return_exceptions=True)
    return ", ".join(str(getattr(each, "text", each)) for each in done)


@pytest.mark.parametrize("program", [caught, gathered])
async def test_a_program_that_catches_what_stops_it_waits_all_the_same(program: Any) -> None:
    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        outcome = await record.run(agent, "Pay.", session="s")
        assert outcome.reason == "waiting"
        for waiting in outcome.waiting:
            if waiting.what == "approval":
                await record.approve(waiting, by="ann")
            else:
                await record.answer(waiting, "It is due.", by="ann")
        answer = (await record.resume("s", agent)).answer
    assert answer == ("Paid." if program is caught else "Paid., It is due.")


async def test_a_step_that_is_faster_than_a_sleep_beside_it_ends_the_turn() -> None:
    quick = gesta.Agent("quick", model=gesta.scripted("Here."))

    async def race(verbs: gesta.Verbs, text: str) -> str:
        asked, slept = asyncio.create_task(verbs.call(quick, text, "ask")), asyncio.create_task(verbs.sleep("end", 60))
        await asyncio.wait([asked, slept], return_when=asyncio.FIRST_COMPLETED)
        slept.cancel()
        return asked.result().text if asked.done() else "too late"

    async with gesta.open() as record:
        assert (await record.run(gesta.Agent("desk", program=race), "Well?")).answer == "Here."


async def test_a_wait_that_was_once_over_is_not_repeated_if_the_clock_is_set_back() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]

    async def program(verbs: gesta.Verbs, _text: str) -> str:
        await verbs.sleep("nap", 60)
        return str(await verbs.ask("go", "Go on?"))

    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        await record.run(agent, "Sleep.", session="s")
        now[0] += timedelta(seconds=61)
        assert [each.what for each in (await record.resume("s", agent)).waiting] == ["question"]
        now[0] -= timedelta(seconds=30)
        assert [each.what for each in await record.waiting("s")] == ["question"]
        await record.answer("s", "Yes.", by="ann")
        assert (await record.resume("s", agent)).answer == "Yes."


async def asks(verbs: gesta.Verbs, _text: str) -> str:
    return str(await verbs.ask("go", "Go on?"))


async def sleeps(verbs: gesta.Verbs, _text: str) -> str:
    return str(await verbs.sleep("nap", 3600))


@pytest.mark.parametrize("program", [asks, sleeps])
async def test_a_program_that_waits_is_ended_by_the_cancellation_that_is_on_record(program: Any) -> None:
    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        outcome = await record.run(agent, "Wait.", session="s")
        await record.send(outcome.run, SignalContent(name="cancel", by="ann", of=outcome.turn), key="c")
        assert (await record.resume("s", agent)).reason == "cancelled"  # who cancelled had died before that
        assert await record.waiting("s") == []


@pytest.mark.parametrize("program", [asks, sleeps])
async def test_a_program_that_was_cancelled_while_it_waited_is_replayed(program: Any) -> None:
    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        outcome = await record.run(agent, "Wait.", session="s")
        await record.cancel("s", by="ann")
        entries = {outcome.run: await record.read(outcome.run)}
        assert (await replay_run(entries, outcome.run, agent)).divergence is None


async def test_a_cancellation_that_comes_while_a_program_works_ends_it_where_it_would_wait() -> None:
    async with gesta.open() as record:

        async def program(verbs: gesta.Verbs, _text: str) -> str:
            await verbs.ask("first", "Go on?")
            assert await record.cancel("s", by="ann") is None
            return str(await verbs.ask("second", "And now?"))

        agent = gesta.Agent("desk", program=program)
        await record.run(agent, "Wait.", session="s")
        await record.answer("s", "Yes.", by="ann")
        outcome = await record.resume("s", agent)
        assert outcome.reason == "cancelled"


@pytest.mark.parametrize(
    ("schema", "wrong", "right"),
    [
        ({"enum": [1]}, True, 1.0),
        ({"const": 0}, False, 0),
        ({"const": 0}, 1, 0),
        ({"enum": [[1]]}, [True], [1]),
        ({"enum": [{"a": 0}]}, {"a": False}, {"a": 0}),
        ({"enum": [True]}, 1, True),
    ],
)
async def test_an_answer_is_one_of_the_listed_values_and_true_is_no_number(
    schema: dict[str, Any], wrong: Any, right: Any
) -> None:
    async def program(verbs: gesta.Verbs, _text: str) -> Any:
        return await verbs.ask("which", "Which?", schema)

    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        outcome = await record.run(agent, "Ask.", session="s")
        with pytest.raises(AgentError, match="expected one of"):
            await record.answer(outcome.run, wrong, by="ann")
        await record.answer(outcome.run, right, by="ann")
        assert (await record.resume(outcome.run, agent)).value == right


async def test_a_message_waits_its_turn_where_the_policy_says_so() -> None:
    started, go = anyio.Event(), anyio.Event()

    @gesta.tool(effect="pure")
    async def slow() -> str:
        """Work for a while."""
        started.set()
        await go.wait()
        return "done"

    policy = gesta.Policy(when_busy="queue")
    model = gesta.scripted(gesta.call("slow"), "First.", "Second.", "Third.")
    agent = gesta.Agent("desk", model=model, tools=[slow], policy=policy)
    answers: list[str | None] = []
    async with gesta.open() as record, anyio.create_task_group() as group:

        async def say(text: str) -> None:
            answers.append((await record.run(agent, text, session="s")).answer)

        group.start_soon(say, "1")
        await started.wait()
        group.start_soon(say, "2")
        group.start_soon(say, "3")
        for _ in range(100):
            await checkpoint()
        assert answers == []
        go.set()
    assert answers == ["First.", "Second.", "Third."]


SHOP = """
import gesta
from gesta.tools.person import ask_person

agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("ask_person", question="Which size?"), "Size it is."),
                    tools=[ask_person(answer={"type": "integer"})])
"""


def test_the_command_line_answers_a_question_and_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)

    asked = anew("run", "shop.py:agent", "A shirt.")
    assert asked.exit_code == 3
    assert "A question: Which size?" in asked.stderr
    assert " ANSWER && gesta resume " in asked.stderr
    wrong = anew("answer", "last", "large")
    assert wrong.exit_code == 2
    assert "expected JSON" in wrong.stderr
    waits = anew("work", "shop.py:agent", "--once").stderr
    assert waits.count("waiting: question") == 1
    assert waits.endswith("1 turn waits.\n"), "none went on"
    assert anew("answer", "last", "42").exit_code == 0
    again = anew("answer", "last", "43")
    assert again.exit_code == 1
    assert "was answered before" in again.stderr
    worked = anew("work", "shop.py:agent", "--once")
    assert "answered: Size it is." in worked.stderr
    assert "Nothing was due." in anew("work", "shop.py:agent", "--once").stderr


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def payer(name: str) -> gesta.Agent:
    return gesta.Agent(name, model=gesta.scripted(gesta.call("pay", euros=len(name)), "Done."), tools=[pay])


async def test_a_session_with_the_id_of_another_run_gets_no_word_that_is_meant_for_it() -> None:
    DONE.clear()
    async with gesta.open() as record:
        first = await record.run(payer("victim"), "x", session="v")
        other = await record.run(payer("attacker"), "x", session=first.run)
        for verb in (record.approve, record.deny, record.cancel):
            with pytest.raises(SeveralRuns, match=f"2 runs fit '{first.run}': {first.run}, {other.run}. Write a start"):
                await verb(first.run, by="ann")
        with pytest.raises(SeveralRuns):
            await record.find(first.run)
        with pytest.raises(SeveralRuns):
            await record.resume(first.run, payer("victim"), by="ann")
        assert [each.run for each in await record.waiting(first.run)] == [first.run]  # its waits can be shown and meant
        assert (await record.approve(first.run[:-1], by="ann")).run == first.run
        assert (await record.resume(first.run, payer("victim"), by=None)).reason == "answered"  # as a worker does
        cancelled = await record.cancel(other.waiting[0], by="ann")
        assert (cancelled and cancelled.reason, DONE) == ("cancelled", [6])


async def test_last_is_refused_while_another_run_is_of_a_session_called_last() -> None:
    async with gesta.open() as record:
        named = await record.run(payer("a"), "x", session="last")
        assert (await record.find("last")).run == named.run  # both meanings are one run
        latest = await record.run(payer("b"), "x", session="s")
        with pytest.raises(SeveralRuns, match=f"2 runs fit 'last': {latest.run}, {named.run}"):
            await record.approve("last", by="ann")
        assert (await record.approve(named.run, by="ann")).run == named.run
