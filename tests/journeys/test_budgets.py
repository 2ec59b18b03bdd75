"""What a turn may cost: set aside before a request, settled after, shared with child runs; it stops or asks a person."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.commands import anew
from tests.laws.scenes import Tape, again, play

import gesta
from gesta import address
from gesta.compare.replaying import replay_run
from gesta.compat.langroid.chat import ChatAgent
from gesta.compat.langroid.chat_config import ChatAgentConfig
from gesta.errors import AgentError, GestaError
from gesta.hooks import Change, Hooks, Refuse
from gesta.kinds import AnswerContent, ApprovalContent, BudgetContent, EdgeContent, QuestionContent
from gesta.policy import Limits
from gesta.record.record import Record
from gesta.worker import Worker

USAGE = {"prompt_tokens": 80, "completion_tokens": 20}


class Cents:
    """A cent for each token out."""

    dated = "cents of 2026"

    def usd(self, usage: dict[str, Any]) -> float | None:
        return 0.01 * int(usage["completion_tokens"])


@gesta.tool(effect="pure")
def look(at: int) -> str:
    """Look."""
    return f"saw {at}"


def talker(*, budget: gesta.Budget | None = None, usage: Any = USAGE, turns: int = 9, **more: Any) -> gesta.Agent:
    """An agent that looks so often, each time for 20 cents of at most 50."""
    script = [gesta.reply(calls=[gesta.call("look", at=at)], usage=usage) for at in range(turns)]
    model = gesta.scripted(*script, gesta.reply("Seen.", usage=usage))
    more = {"price": Cents(), "settings": {"max_tokens": 50}, "tools": [look], "name": "talker", **more}
    return gesta.Agent(model=model, policy=gesta.Policy(budget=budget), **more)


def sums(entries: list[gesta.Entry]) -> list[tuple[Any, Any]]:
    found = [entry.content for entry in entries if isinstance(entry.content, BudgetContent)]
    return [(each.reserved and each.reserved["usd"], each.spent and each.spent["usd"]) for each in found]


async def test_a_turn_ends_where_the_next_request_could_go_beyond_its_budget() -> None:
    async with gesta.open() as record:
        outcome = await record.run(talker(budget=gesta.Budget(usd=1.0)), "Look around.", session="s")
        assert (outcome.reason, outcome.requests) == ("budget", 3)
        assert outcome.error is not None
        assert outcome.error.type == "usd"
        assert outcome.error.message == (
            "The turn reached its budget: of $1.0000, $0.6000 are spent or set aside, and the next request may take "
            "$0.5000. Raise Budget.usd, or bound each reply: settings={'max_tokens': ...}."
        )
        assert outcome.usd == 0.6
        assert outcome.spent is not None
        assert outcome.spent.tokens == 300
        entries = await record.read(outcome.run)
        assert sums(entries) == [(0.5, None), (None, 0.2)] * 3
        settled = [entry.content.spent for entry in entries if isinstance(entry.content, BudgetContent)][1]
        assert settled == {"tokens": 100, "usd": 0.2, "prices": "cents of 2026"}


async def test_tokens_are_bounded_by_what_was_counted_and_a_guess_of_what_came_since() -> None:
    async with gesta.open() as record:
        outcome = await record.run(talker(budget=gesta.Budget(tokens=400)), "Look around.", session="s")
        assert (outcome.reason, outcome.requests) == ("budget", 3)
        assert outcome.error is not None
        assert outcome.error.type == "tokens"
        held = [entry.content.reserved for entry in await record.read(outcome.run) if entry.kind == "budget"]  # type: ignore[union-attr]
        assert [each["tokens"] for each in held if each][1:] == [100 + 2 + 50] * 2


async def test_each_turn_has_its_own_budget() -> None:
    async with gesta.open() as record:
        agent = talker(budget=gesta.Budget(usd=1.0), turns=4)
        first = await record.run(agent, "Look.", session="s")
        second = await record.run(agent, "Go on.", session="s")
        assert (first.reason, first.usd) == ("budget", 0.6)
        assert (second.reason, second.usd) == ("answered", 0.4)


async def test_a_person_may_say_how_much_more_it_may_cost() -> None:
    agent = talker(budget=gesta.Budget(usd=1.0, when_spent="ask"))
    async with gesta.open() as record:
        outcome = await record.run(agent, "Look around.", session="s")
        (waiting,) = outcome.waiting
        assert (waiting.what, waiting.of is not None) == ("budget", True)
        assert (await record.resume(outcome.run, agent)).waiting == outcome.waiting
        entries = await record.read(outcome.run)
        (question,) = [entry.content for entry in entries if isinstance(entry.content, QuestionContent)]
        assert question.value == (
            "The turn reached its budget: of $1.0000, $0.6000 are spent or set aside, and the next request may take "
            "$0.5000. How many more US dollars may it spend? 0 ends it."
        )
        await record.send(outcome.run, AnswerContent(of=waiting.of or 0, value=0.5, by="ann"), key="1")
        outcome = await record.resume(outcome.run, agent)
        assert (outcome.reason, outcome.requests, outcome.usd) == ("waiting", 6, 1.2)
        await record.send(outcome.run, AnswerContent(of=outcome.waiting[0].of or 0, value=100, by="ann"), key="2")
        outcome = await record.resume(outcome.run, agent)
        assert (outcome.answer, outcome.usd) == ("Seen.", 2.0)


NAMES = ["budget", "timer", "child", "question", "approval", "doubt", "model", "turn", "deaths", "compact", "user"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_tool_of_any_name_is_approved_and_called_where_the_budget_asks_too(name: str) -> None:
    fired = list[int]()

    def act(at: int) -> str:
        """Act."""
        fired.append(at)
        return "done"

    acting = gesta.tool(act, name=name, effect="once", approval=True)
    calls = [gesta.reply(calls=[gesta.call(name, at=at)], usage=USAGE) for at in range(3)]
    model = gesta.scripted(*calls, gesta.reply("Seen.", usage=USAGE))
    agent = structs.replace(
        talker(budget=gesta.Budget(usd=0.5, when_spent="ask")), name=name, model=model, tools=[acting]
    )
    waited = list[tuple[str, str | None]]()
    async with gesta.open() as record:
        outcome = await record.run(agent, "Act.", session="s")
        while outcome.waiting:
            (waiting,) = outcome.waiting
            waited.append((waiting.what, waiting.tool))
            answer: AnswerContent | ApprovalContent = AnswerContent(of=waiting.of or 0, value=1, by="ann")
            if waiting.what == "approval":
                answer = ApprovalContent(of=waiting.of or 0, verdict="approved", by="ann")
            await record.send(outcome.run, answer, key=str(len(waited)))
            outcome = await record.resume(outcome.run, agent)
    assert (outcome.answer, fired) == ("Seen.", [0, 1, 2])
    assert waited == [("approval", name), ("budget", None), ("approval", name), ("approval", name)]


@pytest.mark.parametrize("value", [0, -3, "no", None, True])
async def test_any_other_answer_ends_the_turn(value: Any) -> None:
    agent = talker(budget=gesta.Budget(usd=1.0, when_spent="ask"))
    async with gesta.open() as record:
        outcome = await record.run(agent, "Look around.", session="s")
        await record.send(outcome.run, AnswerContent(of=outcome.waiting[0].of or 0, value=value, by="ann"), key="1")
        assert (await record.resume(outcome.run, agent)).reason == "budget"


async def test_a_worker_goes_on_once_the_question_was_answered() -> None:
    agent = talker(budget=gesta.Budget(usd=1.0, when_spent="ask"))
    async with gesta.open() as record:
        worker, told = Worker(record, [agent]), list[gesta.Outcome]()
        outcome = await record.run(agent, "Look around.", session="s")
        assert await worker.look(told.append) == 1
        assert await worker.look(told.append) == 0
        await record.send(outcome.run, AnswerContent(of=outcome.waiting[0].of or 0, value=5, by="ann"), key="1")
        assert await worker.look(told.append) == 1
        assert told[-1].answer == "Seen."


async def test_an_unknown_price_counts_as_the_maximum_and_is_shown_as_unknown() -> None:
    async with gesta.open() as record:
        budget = gesta.Budget(usd=0.35, request_usd=0.1)
        outcome = await record.run(talker(budget=budget, price=None), "Look around.", session="s")
        assert (outcome.reason, outcome.requests, outcome.usd) == ("budget", 3, None)
        assert outcome.spent is not None
        assert outcome.spent.counted_usd == pytest.approx(0.3)
        assert sums(await record.read(outcome.run)) == [(0.1, None), (None, None)] * 3


async def test_a_reply_without_usage_counts_as_what_was_set_aside() -> None:
    async with gesta.open() as record:
        outcome = await record.run(talker(budget=gesta.Budget(usd=1.2), usage=None), "Look around.", session="s")
        assert (outcome.reason, outcome.requests, outcome.usd) == ("budget", 2, None)
        spent = [
            each.content.spent for each in await record.read(outcome.run) if isinstance(each.content, BudgetContent)
        ]
        assert spent[1] is not None
        assert (spent[1]["usd"], spent[1]["counted"]["usd"]) == (None, 0.5)


async def test_a_refused_request_costs_nothing_and_a_lost_reply_counts() -> None:
    quick = gesta.Retry(first_wait_s=0)
    async with gesta.open() as record:
        for what, usd, counted in (("503", 0.2, 0.2), ("lost-stream", None, 0.7)):
            model = gesta.scripted(gesta.fault(what, after=0), gesta.reply("Hi.", usage=USAGE))
            policy = gesta.Policy(budget=gesta.Budget(usd=5), retry=quick)
            agent = gesta.Agent("a", model=model, price=Cents(), settings={"max_tokens": 50}, policy=policy)
            outcome = await record.run(agent, "Hello.")
            assert (outcome.answer, outcome.usd) == ("Hi.", usd)
            assert outcome.spent is not None
            assert outcome.spent.counted_usd == pytest.approx(counted)


async def test_a_request_that_a_crash_cut_off_counts_as_spent() -> None:
    agent = address.bind(talker(budget=gesta.Budget(usd=1.0)))
    tape = Tape()
    await play(tape, agent)
    store = await again(tape.tape[:1])  # the first request, and what was set aside for it
    (outcome,) = await play(store, agent)
    assert (outcome.reason, outcome.requests, outcome.usd) == ("budget", 1, None)
    assert outcome.spent is not None
    assert outcome.spent.counted_usd == pytest.approx(0.7)
    assert sums(await Record(store, address.bind).read(outcome.run)) == [(0.5, None), (0.5, None), (None, 0.2)]


async def test_without_a_budget_no_account_is_kept() -> None:
    async with gesta.open() as record:
        outcome = await record.run(talker(turns=1), "Look.", session="s")
        assert (outcome.answer, outcome.spent, outcome.usd) == ("Seen.", None, None)
        assert not sums(await record.read(outcome.run))


async def test_a_budget_without_bounds_records_what_things_cost() -> None:
    async with gesta.open() as record:
        outcome = await record.run(talker(budget=gesta.Budget()), "Look.", session="s")
        assert (outcome.answer, outcome.usd) == ("Seen.", 2.0)


async def test_tools_that_are_agents_share_what_is_left_and_give_the_rest_back() -> None:
    helper = talker(turns=1, name="helper")
    both = [gesta.call("helper", task="left"), gesta.call("helper", task="right")]
    script = gesta.scripted(gesta.reply(calls=both, usage=USAGE), gesta.reply("Done.", usage=USAGE))
    agent = gesta.Agent(
        "boss",
        model=script,
        tools=[helper.as_tool()],
        price=Cents(),
        settings={"max_tokens": 50},
        policy=gesta.Policy(budget=gesta.Budget(usd=3.2)),
    )
    async with gesta.open() as record:
        outcome = await record.run(agent, "Both.", session="s")
        assert (outcome.answer, outcome.usd) == ("Done.", 0.2 + 2 * 0.4 + 0.2)
        edges = [each.content for each in await record.read(outcome.run) if isinstance(each.content, EdgeContent)]
        assert [each.allowance and round(each.allowance["usd"], 5) for each in edges] == [1.0, 1.0]
        assert [(await record.state(row.run)).turn.spending.allowed for row in await record.store.runs()][1:] == [  # type: ignore[union-attr]
            each.allowance for each in edges
        ]


async def test_a_child_run_ends_where_its_allowance_does_and_the_program_reads_why() -> None:
    async def program(verbs: gesta.Verbs, _text: str) -> str:
        one = await verbs.call(talker(name="helper"), "Look around.", "one")
        return f"{one.reason}: {one.text}"

    agent = gesta.Agent("boss", program=program, policy=gesta.Policy(budget=gesta.Budget(usd=2.0)))
    async with gesta.open() as record:
        outcome = await record.run(agent, "Go.", session="s")
        assert outcome.usd == 0.6
        assert outcome.answer is not None
        assert outcome.answer.startswith("budget: The turn reached what the run above allows it: of $1.0000, $0.6000")


async def test_the_smaller_bound_holds_in_a_child_run_with_a_budget_of_its_own() -> None:
    async def program(verbs: gesta.Verbs, _text: str) -> str:
        one = await verbs.call(talker(name="helper", budget=gesta.Budget(usd=0.6)), "Look around.", "one")
        two = await verbs.call(talker(name="other", budget=gesta.Budget(usd=9.0)), "Look around.", "two")
        return f"{one.text[:30]} {two.text[:45]}"

    agent = gesta.Agent("boss", program=program, policy=gesta.Policy(budget=gesta.Budget(usd=2.2)))
    async with gesta.open() as record:
        outcome = await record.run(agent, "Go.", session="s")
        assert outcome.answer == "The turn reached its budget: o The turn reached what the run above allows it"
        assert outcome.usd == pytest.approx(0.2 + 0.6)


async def test_what_a_child_run_spent_comes_up_also_to_a_run_without_a_budget() -> None:
    async def program(verbs: gesta.Verbs, _text: str) -> str:
        return (await verbs.call(talker(name="helper", budget=gesta.Budget(), turns=1), "Look.", "one")).text

    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("boss", program=program), "Go.", session="s")
        assert (outcome.answer, outcome.usd) == ("Seen.", 0.4)


async def test_a_child_run_that_asks_for_more_has_the_run_above_wait() -> None:
    helper = talker(name="helper", budget=gesta.Budget(usd=0.5, when_spent="ask"), turns=1)
    model = gesta.scripted(gesta.reply(calls=[gesta.call("helper", task="look")], usage=USAGE), "Done.")
    agent = gesta.Agent("boss", model=model, tools=[helper.as_tool()])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Go.", session="s")
        assert outcome.reason == "waiting"
        (child,) = [row.run for row in await record.store.runs() if row.parent_run]
        (asked,) = (await record.state(child)).questions
        await record.send(child, AnswerContent(of=asked, value=1, by="ann"), key="1")
        outcome = await record.resume(outcome.run, agent)
        assert outcome.answer == "Done."
        assert outcome.usd is None  # the boss keeps no account of its own requests
        assert outcome.spent is not None
        assert outcome.spent.counted_usd == 0.4


async def test_limits_come_before_the_budget() -> None:
    agent = talker(budget=gesta.Budget(usd=1.0))
    policy = gesta.Policy(budget=gesta.Budget(usd=1.0), limits=Limits(requests=2))
    async with gesta.open() as record:
        limited = gesta.Agent("talker", model=agent.model, tools=[look], price=Cents(), policy=policy)
        assert (await record.run(limited, "Look.", session="s")).reason == "budget"  # 16,000 tokens of a reply
        limited = gesta.Agent(
            "t", model=agent.model, tools=[look], price=Cents(), policy=policy, settings={"max_tokens": 9}
        )
        assert (await record.run(limited, "Look.", session="s")).reason == "limit"


async def test_a_chat_agent_keeps_to_the_budget_of_its_settings() -> None:
    async with gesta.open() as record:
        for when, found in (("stop", "reached its budget: of 10 tokens"), ("ask", "waiting: budget")):
            policy = gesta.Policy(budget=gesta.Budget(tokens=10, when_spent=when))  # type: ignore[arg-type]
            config = ChatAgentConfig(name=f"chat-{when}", llm=gesta.scripted("Hello."), policy=policy)
            chat = ChatAgent(config, record=record)
            with pytest.raises(GestaError, match=found):
                await chat.llm_response_async("Say hello.")


async def test_a_price_that_raises_is_unknown_and_does_not_break_the_turn() -> None:
    usage = {"input_tokens": 80, "output_tokens": 20}  # other names than this price knows
    async with gesta.open() as record:
        outcome = await record.run(talker(budget=gesta.Budget(), usage=usage, turns=0), "Look.", session="s")
        assert (outcome.answer, outcome.usd) == ("Seen.", None)


def test_a_budget_that_bounds_nothing_is_refused() -> None:
    with pytest.raises(AgentError, match=r"Budget\(usd=-1\): expected a number from 0 on, or None\."):
        gesta.Budget(usd=-1)
    with pytest.raises(TypeError, match="Budget has no field 'dollars'"):
        gesta.Budget(dollars=1)  # type: ignore[call-arg]


async def test_the_table_of_costs_has_a_row_for_each_request(tmp_path: Path) -> None:
    for where in (":memory:", str(tmp_path / "costs.gesta")):
        async with gesta.open(where) as record:
            await record.run(talker(budget=gesta.Budget(), turns=1), "Look.", session="a")
            await record.run(talker(turns=0), "Look.", session="b")
            table = await record.store.sql(
                "SELECT turn, model, tokens_in, tokens_out, usd, prices, priced_at IS NULL FROM costs ORDER BY usd"
            )
            assert table.rows == [
                (1, "scripted", 80, 20, None, None, 1),
                *[(1, "scripted", 80, 20, 0.2, "cents of 2026", 0)] * 2,
            ]


SHOP = """
import gesta

class Cents:
    dated = "cents"
    def usd(self, usage):
        return 0.01 * usage["completion_tokens"]

usage = {"prompt_tokens": 80, "completion_tokens": 20}
model = gesta.scripted(gesta.reply("Hello.", usage=usage), gesta.reply("Hello again.", usage=usage))

def made(usd, **more):
    policy = gesta.Policy(budget=gesta.Budget(usd=usd, **more))
    return gesta.Agent("desk", model=model, price=Cents(), settings={"max_tokens": 50}, policy=policy)

rich, poor, asking = made(1.0), made(0.1), made(0.1, when_spent="ask")
"""


def test_the_command_line_shows_what_a_turn_cost_and_ends_with_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)

    assert "; $0.2000" in anew("run", "shop.py:rich", "Hi.").stderr
    assert "$0.2000" in anew("log", "last").stdout
    assert "$0.2000  answered" in anew("runs").stdout
    poor = anew("run", "shop.py:poor", "Hi.")
    assert poor.exit_code == 4
    assert "The turn ended with budget: The turn reached its budget: of $0.1000, $0.0000" in poor.stderr
    asking = anew("run", "shop.py:asking", "Hi.")
    assert asking.exit_code == 3
    assert "How many more US dollars may it spend?" in asking.stderr
    assert anew("answer", "last", "0.5").exit_code == 0
    assert "Hello." in anew("resume", "last", "shop.py:asking").stdout


async def test_the_last_reply_that_a_chat_agents_limit_allows_is_given() -> None:
    policy = gesta.Policy(limits=Limits(requests=1))
    chat = ChatAgent(ChatAgentConfig(llm=gesta.scripted("one", "two"), policy=policy))
    answered = await chat.llm_response_async("first")
    assert answered is not None
    assert answered.content == "one"
    with pytest.raises(GestaError, match="limit of 1 requests"):
        await chat.llm_response_async("second")


def refused(text: str, _context: gesta.Context) -> Refuse | None:
    return Refuse("Too long.") if len(text) > 1_000 else None


def shortened(text: str, _context: gesta.Context) -> Change | None:
    return Change(text[:100]) if len(text) > 1_000 else None


@pytest.mark.parametrize("when_spent", ["stop", "ask"])
@pytest.mark.parametrize(("hook", "reason"), [(refused, "failed"), (shortened, "answered")])
async def test_a_hook_makes_a_message_smaller_before_the_budget_is_asked_and_the_conversation_goes_on(
    hook: Any, reason: str, when_spent: Any
) -> None:
    budget = gesta.Budget(tokens=2_000, when_spent=when_spent)
    model = gesta.function(lambda *_: gesta.reply("Hm.", usage=USAGE))
    agent = structs.replace(talker(budget=budget, hooks=Hooks(message=hook)), model=model)
    async with gesta.open() as record:
        outcomes = [await record.run(agent, text, session="s") for text in ("Hi.", "z" * 40_000, "Hello?")]
        run = outcomes[0].run
        replayed = await replay_run({run: await record.read(run)}, run, agent)
    assert [outcome.reason for outcome in outcomes] == ["answered", reason, "answered"]
    assert replayed.first is None


async def test_instructions_that_a_function_makes_are_known_before_the_budget_is_asked() -> None:
    made = list[str]()

    def instructions(_context: gesta.Context) -> str:
        made.append("x" * 40_000)
        return made[-1]

    agent = talker(budget=gesta.Budget(tokens=2_000, when_spent="ask"), turns=0, instructions=instructions)
    async with gesta.open() as record:
        outcome = await record.run(agent, "Hi.", session="s")
        assert ([each.what for each in outcome.waiting], outcome.requests) == (["budget"], 0)
        await record.answer(outcome.waiting[0], 20_000, by="ann")
        outcome = await record.resume(outcome.run, agent)
        runs = {outcome.run: await record.read(outcome.run)}
    assert (outcome.answer, len(made)) == ("Seen.", 1)
    assert (await replay_run(runs, outcome.run, agent)).first is None


async def test_tools_and_instructions_that_are_new_in_a_turn_are_counted_before_its_first_request() -> None:
    agent = structs.replace(
        talker(budget=gesta.Budget(tokens=2_000)), model=gesta.function(lambda *_: gesta.reply("Hm.", usage=USAGE))
    )
    described = structs.replace(look, description="Looks. " * 2_000)
    async with gesta.open() as record:
        assert (await record.run(agent, "Hi.", session="s")).reason == "answered"
        for changed in ({"instructions": "x" * 40_000}, {"tools": [described]}):
            outcome = await record.run(structs.replace(agent, **changed), "Hi.", session="s")
            assert (outcome.reason, outcome.requests) == ("budget", 0)
        assert (await record.run(agent, "Hi.", session="s")).reason == "answered"
