"""What an outcome says of a wait is all that a person needs who answers, and any other process reads the same."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

import gesta
from gesta.codec.rows import digest_of
from gesta.compare.forks import Fork, fork, go_on
from gesta.compare.replaying import replay_run
from gesta.decide.waiting import Waiting, waits
from gesta.entry import fold, utc_text
from gesta.kinds import AnswerContent, ApprovalContent, ResolutionContent
from gesta.state.run import RunView
from gesta.tools.person import ask_person


class Refusing:
    """An Approver that believes nobody."""

    def refuses(self, _approval: ApprovalContent, _asked: Any) -> str:
        """Return why not."""
        return "It is night."


@gesta.tool(effect="once", approval=True, expires_s=60)
def pay(to: str, euros: int) -> str:
    """Pay."""
    return f"{euros} euros to {to}"


@gesta.tool(effect="once")
def order() -> str:
    """Order."""
    raise gesta.InDoubt("the line went dead")


def clerk(*said: Any, name: str = "clerk", **more: Any) -> gesta.Agent:
    return gesta.Agent(name, model=gesta.scripted(*said, "Done."), tools=more.pop("tools", [pay]), **more)


PAY = gesta.call("pay", to="p\u0430ypal", euros=5)
"""One letter is Cyrillic."""


async def read_elsewhere(record: gesta.Record, outcome: gesta.Outcome) -> Waiting:
    """Return the one thing that the turn waits for, after a look whether another process reads the same."""
    (one,) = outcome.waiting
    (other,) = await record.waiting(outcome.run)
    unknown = {"declared": True, "bound": None, "need": None}
    assert msgspec.structs.replace(one, **unknown) == msgspec.structs.replace(other, **unknown)
    return one


async def test_an_approval_says_what_would_happen_and_until_when_it_may_be_given() -> None:
    async with gesta.open() as record:
        outcome = await record.run(clerk(PAY), "Pay.", session="s")
        one = await read_elsewhere(record, outcome)
        assert (one.what, one.tool, one.args, one.effect) == (
            "approval",
            "pay",
            {"to": "p\u0430ypal", "euros": 5},
            "once",
        )
        assert (one.run, one.session, one.args_digest) == (outcome.run, "s", digest_of(one.args))
        assert one.expires is not None
        assert timedelta(0) < one.expires - record.now() <= timedelta(seconds=60)
        assert one.remarks[0] == "'p<U+0430>ypal' has letters of several scripts: CYRILLIC, LATIN."


async def test_an_answer_that_did_not_count_is_named() -> None:
    async with gesta.open(approver=Refusing()) as record:
        outcome = await record.run(clerk(PAY), "Pay.", session="s")
        assert outcome.waiting[0].refused == ""
        await record.approve(outcome.run, by="ann")
        outcome = await record.resume(outcome.run, clerk(PAY))
        assert (await read_elsewhere(record, outcome)).refused == "It is night."


async def test_a_run_below_is_named_with_what_it_waits_for_be_it_called_by_a_model_or_by_a_program() -> None:
    async def program(verbs: gesta.Verbs, _text: str) -> str:
        return (await verbs.call(clerk(PAY, name="payer"), "Pay.", "step")).text

    model = clerk(gesta.call("payer", task="Pay."), tools=[clerk(PAY, name="payer").as_tool()])
    between = clerk(gesta.call("clerk", task="Pay."), name="boss", tools=[model.as_tool()])
    for agent in (model, between, gesta.Agent("program", program=program)):
        async with gesta.open() as record:
            outcome = await record.run(agent, "Go.", session="s")
            one = await read_elsewhere(record, outcome)
            below = (await record.store.runs())[-1]
            assert (one.what, one.tool, one.run, one.session) == ("approval", "pay", below.run, "s")
            assert (one.args or {})["euros"] == 5
            await record.approve(one.run, by="ann")
            assert (await record.resume(outcome.run, agent)).answer in ("Done.", '"Done."')
            assert await record.waiting(outcome.run) == []


async def test_a_question_has_its_words_and_the_schema_of_its_answer() -> None:
    async def program(verbs: gesta.Verbs, _text: str) -> Any:
        return await verbs.ask("size", "Which size?", {"enum": ["S", "L"]})

    ask = clerk(gesta.call("ask_person", question="Which size?"), tools=[ask_person(answer={"enum": ["S", "L"]})])
    for agent, tool in ((gesta.Agent("p", program=program), "size"), (ask, "ask_person")):
        async with gesta.open() as record:
            one = await read_elsewhere(record, await record.run(agent, "A shirt.", session="s"))
            assert (one.what, one.tool, one.question) == ("question", tool, "Which size?")
            assert one.schema == {"enum": ["S", "L"]}
            assert await record.answer(one.run, "L", one.of, by="ann")


async def test_a_question_is_shown_and_answered_beside_a_run_that_failed_with_many_words() -> None:
    async def failing(_verbs: gesta.Verbs, _text: str) -> str:
        raise ValueError("no " * 100_000)

    async def program(verbs: gesta.Verbs, text: str) -> str:
        await verbs.call(gesta.Agent("finder", program=failing), text, "find")
        return str(await verbs.ask("size", "Which size?"))

    agent = gesta.Agent("shop", program=program)
    async with gesta.open() as record:
        one = await read_elsewhere(record, await record.run(agent, "A shirt.", session="s"))
        await record.answer(one, "L", by="ann")
        assert (await record.resume("s", agent)).answer == "L"


async def test_a_doubt_says_since_when_and_which_process_made_the_attempt() -> None:
    async with gesta.open() as record:
        outcome = await record.run(clerk(gesta.call("order"), tools=[order]), "Order.", session="s")
        one = await read_elsewhere(record, outcome)
        (attempt,) = [entry for entry in await record.read(outcome.run) if entry.kind == "attempt"]
        assert (one.what, one.since, one.effect, one.declared) == ("doubt", attempt.at, "once", True)
        assert one.why == "the line went dead"
        assert one.process == attempt.content.process  # type: ignore[union-attr]


async def test_an_answer_and_a_resolution_keep_the_time_at_which_the_store_took_them_whatever_their_letters_say() -> (
    None
):
    forged = datetime(2020, 1, 1, tzinfo=UTC)
    ask = clerk(gesta.call("ask_person", question="Which size?"), tools=[ask_person()])
    for agent, word in (
        (ask, AnswerContent(of=0, value="L", by="ann", sent_at=forged)),
        (clerk(gesta.call("order"), tools=[order]), ResolutionContent(of=0, verdict="done", by="ann", sent_at=forged)),
    ):
        async with gesta.open() as record:
            outcome = await record.run(agent, "Go.", session="s")
            await record.send(outcome.run, msgspec.structs.replace(word, of=outcome.waiting[0].of), key="k")
            (letter,) = await record.store.inbox(outcome.run)
            assert (await record.resume(outcome.run, agent)).answer == "Done."
            entries = await record.read(outcome.run)
            (entry,) = [each for each in entries if each.kind == word.kind]
            assert isinstance(entry.content, AnswerContent | ResolutionContent)
            assert utc_text(entry.content.sent_at or forged) == letter.at
            assert (await replay_run({outcome.run: entries}, outcome.run, agent)).first is None


async def test_a_budget_says_what_is_spent_what_is_allowed_and_what_is_asked() -> None:
    budget = gesta.Budget(tokens=150, request_tokens=100, when_spent="ask")
    usage = {"prompt_tokens": 80, "completion_tokens": 20}
    model = gesta.scripted(gesta.reply(calls=[gesta.call("look")], usage=usage), "Done.")
    look = gesta.tool(lambda: "seen", name="look", effect="pure")
    agent = gesta.Agent("clerk", model=model, tools=[look], policy=gesta.Policy(budget=budget))
    async with gesta.open() as record:
        one = await read_elsewhere(record, await record.run(agent, "Pay.", session="s"))
        assert (one.what, one.axis, one.spent, one.bound) == ("budget", "tokens", 100, 150)
        assert one.need is not None
        assert one.need > 100
        assert "How many more tokens may it spend?" in one.question
        assert one.schema == {"type": "number", "minimum": 0}


async def test_a_timer_says_when_it_is_due() -> None:
    due = datetime(2099, 1, 1, tzinfo=UTC)

    async def program(verbs: gesta.Verbs, _text: str) -> str:
        return str(await verbs.sleep("rest", due))

    async with gesta.open() as record:
        one = await read_elsewhere(record, await record.run(gesta.Agent("p", program=program), "Go.", session="s"))
        assert (one.what, one.tool, one.due) == ("timer", "rest", due)


async def test_a_call_of_a_turn_that_was_cancelled_is_waited_for_at_no_prefix_of_the_next_turn() -> None:
    async with gesta.open() as record:
        outcome = await record.run(clerk(PAY, PAY), "Pay.", session="s")
        await record.cancel("s", by="ann")
        again = await record.run(clerk(PAY, PAY), "Pay.", session="s")
        (one,) = again.waiting
        entries = await record.read(outcome.run)
        for end in range(again.turn, len(entries) + 1):
            known = fold(RunView(), entries[:end])
            assert [each.call for each in waits(outcome.run, known, record.now())] in ([], [one.call]), end


async def forked(record: gesta.Record, agent: gesta.Agent) -> set[str]:
    """Fork the run of session s at each entry, and compare what waits with what another process reads of it."""
    base, met = await record.find("s"), set[str]()
    for at in range(3, base.head + 1):
        made = await fork(record, base, Fork(at=at, session=f"{base.head}-{at}"))
        ended = await go_on(record, made, agent)
        read = await record.waiting(made.run)
        assert [(each.what, each.call, each.of) for each in ended.waiting] == [
            (each.what, each.call, each.of) for each in read
        ], at
        met |= {each.what for each in read}
    return met


async def test_in_a_fork_from_anywhere_another_process_reads_what_the_turn_waits_for() -> None:
    said = (gesta.call("ask_person", question="May I?"), PAY, gesta.call("order"))
    agent = clerk(*said, tools=[ask_person(), pay, msgspec.structs.replace(order, approval=True)])
    async with gesta.open() as record:
        await record.run(agent, "Pay.", session="s")
        met = await forked(record, agent)
        await record.answer("s", "yes", by="ann")
        for _ in range(2):
            await record.resume("s", agent)
            met |= await forked(record, agent)
            await record.approve("s", by="ann")
        await record.resume("s", agent)
        met |= await forked(record, agent)
    assert met == {"approval", "doubt", "question"}
