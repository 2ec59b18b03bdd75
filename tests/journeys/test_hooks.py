"""Hooks refuse, change and ask; each of that is an entry, and what is sent is what is on record."""

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest
from tests.laws import scenes
from tests.laws.scenes import Tape, World, again, facts, play
from tests.laws.test_resume import rebuilt

import gesta
from gesta import address
from gesta.codec.rows import encode_content
from gesta.compare.forks import Fork, fork, go_on
from gesta.compare.replaying import replay_run
from gesta.entry import Entry
from gesta.errors import AgentError
from gesta.hooks import Add, AskAgain, Asking, AskPerson, Calling, Change, Hooks, Refuse
from gesta.kinds import CheckContent, CompactionContent, RequestContent, SystemContent, ToolResultContent
from gesta.perform.child import TooDeep
from gesta.prompt import rebuild
from gesta.record.record import Record
from gesta.store import Letter
from gesta.stores.memory import MemoryStore
from gesta.views.lineage import explain, unexplained
from gesta.worker import Worker

READ = list[Any]


class Place(msgspec.Struct):
    """An answer."""

    city: str


def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


PAY = gesta.tool(pay, effect="once")


def agent(hooks: Hooks | None, *script: Any, tools: Any = (PAY,), read: READ | None = None, **changes: Any) -> Any:
    """An agent whose model follows a script, and notes what it reads."""

    def choose(messages: list[Any], _header: Any) -> Any:
        if read is not None:
            read.append([each.get("content") for each in messages])
        return script[sum(each["role"] == "assistant" for each in messages)]

    model = gesta.function(choose) if read is not None else gesta.scripted(*script)
    return gesta.Agent("desk", model=model, tools=tools, hooks=hooks, **changes)


def record_of(store: MemoryStore | None = None) -> Record:
    return Record(store or MemoryStore(), address.bind)


def checks(entries: Sequence[Entry]) -> list[tuple[Any, ...]]:
    found = [each.content for each in entries if isinstance(each.content, CheckContent)]
    return [(each.point, each.verdict, each.words, each.value) for each in found]


def results(entries: Sequence[Entry]) -> list[tuple[Any, str | None]]:
    found = [each.content for each in entries if isinstance(each.content, ToolResultContent)]
    return [(each.tool_result, each.outcome) for each in found]


async def explained(record: Record, run: str) -> list[Entry]:
    """Read a run, and check that every answer is explained, and every request can be made again."""
    entries = await record.read(run)
    found = unexplained(entries)
    assert (found.entries, found.answers) == ({}, ())
    return entries


def no_swearing(text: str, _context: gesta.Context) -> Refuse | Change | None:
    """Refuse a message, or mask what is in it."""
    if "damn" in text:
        return Refuse("Please be polite.")
    return Change(text.replace("4111-1111", "[card]")) if "4111-1111" in text else None


async def test_a_refused_message_ends_the_turn_and_no_model_ever_reads_it() -> None:
    read, record = READ(), record_of()
    acting = agent(Hooks(message=no_swearing), "Hello.", read=read)
    outcome = await record.run(acting, "damn you", session="s")
    assert (outcome.reason, outcome.requests) == ("failed", 0)
    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.message) == ("refused", "Please be polite.")
    assert read == []
    assert (await record.run(acting, "Good morning", session="s")).answer == "Hello."
    assert read == [["Good morning"]]
    assert checks(await explained(record, outcome.run)) == [("message", "refused", "Please be polite.", None)]


@pytest.mark.parametrize("formatter", ["tool-calls", "react-text", "codeact-text", "json-text", "transcript", "react"])
async def test_a_refused_or_changed_message_is_hidden_whatever_the_formatter(formatter: str) -> None:
    record, bodies = record_of(), list[bytes]()

    def answer(messages: list[Any], _header: Any) -> str:
        bodies.append(msgspec.json.encode(messages))
        return "Thought: so.\nFinal Answer: Hello." if formatter == "react-text" else "Hello."

    acting = gesta.Agent("a", model=gesta.function(answer), formatter=formatter, hooks=Hooks(message=no_swearing))
    for text in ("First", "damn you", "My card is 4111-1111", "Last"):
        await record.run(acting, text, session="s")
    assert len(bodies) == 3
    assert b"My card is [card]" in bodies[1]
    assert all(word in bodies[2] for word in (b"First", b"My card is [card]", b"Last"))
    assert not any(word in body for body in bodies for word in (b"damn", b"4111"))


async def test_a_changed_message_is_what_the_model_reads_and_the_record_has_both() -> None:
    read, record = READ(), record_of()
    outcome = await record.run(agent(Hooks(message=no_swearing), "Paid.", read=read), "Take it off 4111-1111.")
    assert (outcome.answer, read) == ("Paid.", [["Take it off [card]."]])
    entries = await explained(record, outcome.run)
    assert checks(entries) == [("message", "changed", None, "Take it off [card].")]
    assert [each.content.value for each in entries if each.kind == "user"] == ["Take it off 4111-1111."]  # type: ignore[union-attr]


def below_100(call: Calling, _context: gesta.Context) -> Refuse | Change | AskPerson | None:
    """Refuse, change, or ask."""
    cents = call.args["cents"]
    call.args["cents"] = -1  # a copy: nothing changes unsaid
    if cents > 1000:
        return Refuse("Nobody pays that much.")
    if cents > 500:
        return AskPerson("That is a lot.")
    return Change({"cents": 100}) if cents > 100 else None


async def test_a_call_is_allowed_changed_or_refused_and_the_model_reads_the_words() -> None:
    record, calls = record_of(), [gesta.call("pay", cents=cents) for cents in (50, 300, 5000)]
    outcome = await record.run(agent(Hooks(call=below_100), gesta.reply(calls=calls), "So."), "Pay.")
    entries = await explained(record, outcome.run)
    assert results(entries) == [("paid 50", "ok"), ("paid 100", "ok"), ("Nobody pays that much.", "denied")]
    assert checks(entries) == [
        ("call", "changed", None, {"cents": 100}),
        ("call", "refused", "Nobody pays that much.", None),
    ]
    assert [each.content.tool_args for each in entries if each.kind == "tool-call"] == [  # type: ignore[union-attr]
        {"cents": cents} for cents in (50, 300, 5000)
    ]
    attempts = {each.content.of: each.causes for each in entries if each.kind == "attempt"}  # type: ignore[union-attr]
    (changed,) = [e.seq for e in entries if isinstance(e.content, CheckContent) and e.content.verdict == "changed"]
    assert sorted(map(len, attempts.values())) == [1, 2]
    assert any(changed in causes for causes in attempts.values())


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_hook_may_leave_a_call_to_a_person_who_sees_what_would_be_done(allowed: bool) -> None:
    def halved(call: Calling, context: gesta.Context) -> Any:
        return below_100(call, context) or Change({"cents": call.args["cents"] // 2})

    record = record_of()
    acting = agent(Hooks(call=below_100), gesta.call("pay", cents=600), "Done.")
    outcome = await record.run(acting, "Pay.")
    (waiting,) = outcome.waiting
    assert (waiting.what, waiting.tool) == ("approval", "pay")
    await (record.approve if allowed else record.deny)(outcome.run, by="eve")
    ended = await record.resume(outcome.run, acting)
    entries = await explained(record, ended.run)
    assert results(entries)[0][1] == ("ok" if allowed else "denied")
    assert checks(entries) == [("call", "asked", "That is a lot.", None)]
    both = gesta.tool(pay, effect="once", approval=True)
    waits = await record.run(agent(Hooks(call=halved), gesta.call("pay", cents=90), "Done.", tools=[both]), "Pay.")
    assert [each.args for each in waits.waiting] == [{"cents": -1 // 2}]


async def test_changed_arguments_that_do_not_fit_are_told_to_the_model_and_nothing_is_done() -> None:
    record = record_of()
    hooks = Hooks(call=lambda _call, _context: Change({"cents": "many"}))
    outcome = await record.run(agent(hooks, gesta.call("pay", cents=1), "No."), "Pay.")
    (result,) = results(await record.read(outcome.run))
    assert result[1] == "error"
    assert "`$.cents`" in result[0]


def no_secrets(answer: str, _context: gesta.Context) -> Refuse | Change | AskAgain | None:
    """Look an answer over."""
    if "hopeless" in answer:
        return Refuse("No such answer is given here.")
    if "rude" in answer:
        return AskAgain("Say it politely.")
    return Change(answer.replace("Bob", "a colleague")) if "Bob" in answer else None


async def test_an_answer_is_changed_asked_for_again_or_refused() -> None:
    read, record = READ(), record_of()
    acting = agent(Hooks(answer=no_secrets), "rude words", "Ask Bob.", "hopeless", "Fine.", read=read)
    outcome = await record.run(acting, "Who?", session="s")
    assert (outcome.answer, outcome.requests) == ("Ask a colleague.", 2)
    assert read[1] == ["Who?", "rude words", "Say it politely."]
    refused = await record.run(acting, "And?", session="s")
    assert (refused.reason, refused.error and refused.error.message) == ("failed", "No such answer is given here.")
    entries = await explained(record, outcome.run)
    assert checks(entries) == [
        ("answer", "again", "Say it politely.", None),
        ("answer", "changed", None, "Ask a colleague."),
        ("answer", "refused", "No such answer is given here.", None),
    ]
    assert [each.content.value for each in entries if each.kind == "assistant"] == ["Ask a colleague."]  # type: ignore[union-attr]


async def test_a_refused_answer_is_read_by_no_later_turn() -> None:
    read, record = READ(), record_of()
    script = ["hopeless", "Fine."]
    acting = agent(Hooks(answer=no_secrets), *script, read=read)
    await record.run(acting, "Who?", session="s")
    acting = agent(Hooks(answer=no_secrets), "Fine.", read=read)
    await record.run(acting, "And now?", session="s")
    assert read[-1] == ["Who?", "And now?"]


async def test_an_answer_that_stays_wrong_is_refused_after_the_corrections() -> None:
    policy = gesta.Policy(retry=gesta.Retry(corrections=1))
    outcome = await record_of().run(agent(Hooks(answer=no_secrets), *["rude"] * 9, policy=policy), "Who?")
    assert (outcome.reason, outcome.requests) == ("failed", 2)
    assert outcome.error is not None
    assert outcome.error.message == "Say it politely."


@pytest.mark.parametrize("by", ["model", "tool"])
async def test_a_hook_gets_an_answer_of_the_type_and_changes_it_to_one(by: str) -> None:
    seen = list[Any]()

    def look(answer: Any, _context: gesta.Context) -> Change:
        seen.append(answer)
        return Change(Place("Paris"))

    ends = gesta.tool(lambda: Place("Rome"), name="end", effect="pure", ends_turn=True)
    script = [gesta.call("end")] if by == "tool" else ['{"city": "Rome"}']
    record = record_of()
    outcome = await record.run(agent(Hooks(answer=look), *script, tools=[ends], output=Place), "Where?")
    assert (seen, outcome.value) == ([Place("Rome")], Place("Paris"))
    assert (await explained(record, outcome.run))[-1].content.state == {"city": "Paris"}  # type: ignore[union-attr]


async def test_the_result_of_a_tool_that_ends_the_turn_can_be_sent_back_too() -> None:
    ends = gesta.tool(lambda: "rude end", name="end", effect="pure", ends_turn=True)
    outcome = await record_of().run(agent(Hooks(answer=no_secrets), gesta.call("end"), "Fine.", tools=[ends]), "Go")
    assert (outcome.answer, outcome.requests) == ("Fine.", 2)


async def test_nobody_hears_an_answer_before_its_hook_has_let_it_be() -> None:
    async with gesta.open() as record:
        model = gesta.scripted("rude words that are long", "Ask Bob about it.")
        acting = gesta.Agent("a", model=model, hooks=Hooks(answer=no_secrets))
        stream = record.stream(acting, "Who?")
        said = [event.content async for event in stream if event.type == "answer"]
        assert "".join(said) == "Ask a colleague about it."


async def test_words_are_added_to_each_request_once_and_are_on_record() -> None:
    asked, read, record = list[Asking](), READ(), record_of()

    def remind(asking: Asking, _context: gesta.Context) -> Add | Refuse | None:
        asked.append(asking)
        if asking.number > 2:
            return Refuse("Enough.")
        return Add(f"Reminder {asking.number}.")

    script = [gesta.call("pay", cents=1), gesta.call("pay", cents=2), "Done."]
    outcome = await record.run(agent(Hooks(request=remind), *script, read=read), "Pay.")
    assert (outcome.reason, outcome.error and outcome.error.message) == ("failed", "Enough.")
    assert [each.number for each in asked] == [1, 2, 3]
    assert read[0] == ["Pay.", "Reminder 1."]
    assert read[1][-1] == "Reminder 2."
    entries = await record.read(outcome.run)
    assert [e.content.value for e in entries if isinstance(e.content, SystemContent)] == ["Reminder 1.", "Reminder 2."]


async def test_a_request_that_is_tried_again_asks_no_hook_again() -> None:
    asked = list[int]()

    def remind(asking: Asking, _context: gesta.Context) -> None:
        asked.append(asking.number)

    policy = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0))
    outcome = await record_of().run(agent(Hooks(request=remind), gesta.fault(503), "Done.", policy=policy), "Go")
    assert (outcome.answer, asked) == ("Done.", [1])


def failing(*_: Any) -> Any:
    raise ValueError("the rules are gone")


async def slow(*_: Any) -> None:
    await anyio.sleep_forever()


async def cancelled(*_: Any) -> None:
    """Wait for what somebody else has cancelled: a request of a client that was closed, for example."""
    found = asyncio.get_running_loop().create_future()
    found.cancel()
    await found


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (failing, "failing: ValueError: the rules are gone"),
        (lambda *_: "no", "<lambda>: TypeError: it returned 'no', expected None, Refuse"),
        (lambda *_: Change(5), "<lambda>: TypeError: it changed the "),
        (slow, "slow: TimeoutError: "),
        (cancelled, "cancelled: CancelledError: "),
    ],
    ids=["raises", "nonsense", "type", "hangs", "awaits what was cancelled"],
)
@pytest.mark.parametrize("point", ["message", "request", "call", "answer"])
async def test_a_hook_that_fails_ends_the_turn_and_what_it_was_to_check_is_not_done(
    point: str, hook: Any, said: str
) -> None:
    paid, record = list[int](), record_of()
    tool = gesta.tool(lambda: paid.append(1), name="pay", effect="once")
    policy = gesta.Policy(tool_timeout_s=0.01)
    hooks = Hooks(**{point: hook})
    outcome = await record.run(agent(hooks, gesta.call("pay"), "Done.", tools=[tool], policy=policy), "Pay.")
    assert (outcome.reason, outcome.answer) == ("failed", None)
    assert outcome.error is not None
    assert outcome.error.type == "hook"
    if point != "request" or "changed" not in said:
        assert outcome.error.message.startswith(said)
    assert paid == ([1] if point == "answer" else [])
    assert (await record.run(agent(None, "-", "-", "Hi."), "Again", session=outcome.session)).reason == "answered"


async def test_hooks_of_another_session_user_and_deps_are_told_whose_turn_it_is() -> None:
    seen = list[gesta.Context]()

    async def look(_text: str, context: gesta.Context) -> None:
        seen.append(context)

    await record_of().run(agent(Hooks(message=look), "Hi."), "Hello", session="s", user="ann", deps={"a": 1})
    assert [(each.session, each.user, each.deps, each.key) for each in seen] == [("s", "ann", {"a": 1}, "")]


def judging(judge: gesta.Agent[Any], asked: list[int] | None = None) -> Hooks:
    """A hook that has another agent judge each message."""

    async def judged(text: str, context: gesta.Context) -> Refuse | None:
        if asked is not None:
            asked.append(1)
        said = (await context.call(judge, text)).answer
        return Refuse("The judge says no.") if said == "no" else None

    return Hooks(message=judged)


@pytest.mark.parametrize("word", ["yes", "no"])
async def test_another_agent_may_judge_once_and_its_run_is_a_cause_of_the_check(word: str) -> None:
    record = record_of()
    judge = gesta.Agent("judge", model=gesta.scripted(word))
    outcome = await record.run(agent(judging(judge), "Hi."), "Hello")
    assert outcome.reason == ("answered" if word == "yes" else "failed")
    entries = await record.read(outcome.run)
    (check,) = [each for each in entries if isinstance(each.content, CheckContent)]
    assert check.content.verdict == ("allowed" if word == "yes" else "refused")  # type: ignore[union-attr]
    (below,) = [row for row in await record.store.runs() if row.parent_run == outcome.run]
    assert (below.name, (below.run, below.head) in check.causes) == ("message check#2", True)
    state = await record.state(outcome.run)
    assert state.turn is not None
    assert state.turn.handed == 0


@pytest.mark.parametrize("by", ["resume", "worker"])
async def test_a_turn_waits_for_a_judge_that_waits_for_a_person(by: str) -> None:
    asked_tool = gesta.tool(pay, effect="once", approval=True)
    judge = gesta.Agent("judge", model=gesta.scripted(gesta.call("pay", cents=1), "no"), tools=[asked_tool])
    record, asked, outcomes = record_of(), list[int](), list[gesta.Outcome[Any]]()
    made = agent(judging(judge, asked), "Hi.")
    outcome = await record.run(made, "Hello")
    (waiting,) = outcome.waiting
    (below,) = [row for row in await record.store.runs() if row.parent_run == outcome.run]
    assert (waiting.what, waiting.tool, waiting.run) == ("approval", "pay", below.run)
    assert (await record.resume(outcome.run, made)).reason == "waiting"
    await record.approve(below.run, by="eve")
    if by == "resume":
        outcomes.append(await record.resume(outcome.run, made))
    else:
        await Worker(record, [made]).look(outcomes.append)
    assert [each.error and each.error.message for each in outcomes] == ["The judge says no."]
    assert len(asked) == 3
    assert not (await record.state(below.run)).open


SCRIPT = [
    gesta.reply(calls=[gesta.call("pay", x=1), gesta.call("put", x=7), gesta.call("look", x=9)]),
    "rude",
    "Ask Bob.",
]


def every(counted: list[str], judge: gesta.Agent[Any]) -> Hooks:
    """Hooks at each point that say something each time, and count how often they are asked."""

    async def message(text: str, context: gesta.Context) -> Change:
        counted.append("message")
        await context.call(judge, text)
        return Change(f"{text}!")

    def request(asking: Asking, _context: gesta.Context) -> Add:
        counted.append("request")
        return Add(f"r{asking.number}")

    def call(calling: Calling, _context: gesta.Context) -> Any:
        counted.append(f"call {calling.tool}")
        return {"pay": Change({"x": 2}), "put": None, "look": Refuse("no looking")}[calling.tool]

    def answer(text: str, _context: gesta.Context) -> Any:
        counted.append("answer")
        return no_secrets(text, _context)

    return Hooks(message=message, request=request, call=call, answer=answer)


def acting(world: World, counted: list[str]) -> gesta.Agent[Any]:
    judge = gesta.Agent("judge", model=gesta.scripted("yes"))
    return scenes.agent(world, SCRIPT, hooks=every(counted, judge))


async def test_from_every_prefix_the_same_is_checked_said_and_done() -> None:
    tape, world, counted = Tape(), World(), list[str]()
    whole: gesta.Outcome[Any] = (await play(tape, acting(world, counted)))[0]
    entries = await record_of(tape).read(whole.run)
    assert (whole.answer, whole.requests) == ("Ask a colleague.", 3)
    assert counted == ["message", "request", "call pay", "call put", "call look", *["request", "answer"] * 2]
    for length in range(len(tape.tape) + 1):
        store = await again(tape.tape[:length])
        known = await Record(store, address.bind).store.runs()
        before = await record_of(store).read(whole.run) if any(row.run == whole.run for row in known) else []
        fresh, asked = rebuilt(world, before, lost=True), list[str]()
        outcome: gesta.Outcome[Any] = (await play(store, acting(fresh, asked)))[0]
        resumed = await record_of(store).read(outcome.run)
        assert facts(resumed) == facts(entries)
        assert checks(resumed) == checks(entries)
        assert all(count == 1 for count in fresh.fired.values())
        said = [each.content.point for each in before if isinstance(each.content, CheckContent)]
        assert asked.count("message") == 1 - said.count("message")
        assert asked.count("request") == 3 - said.count("request")
        below = [row for row in await Record(store, address.bind).store.runs() if row.parent_run == outcome.run]
        assert [row.name for row in below] == ["message check#2"]


async def test_a_replay_asks_no_hook_and_finds_every_check() -> None:
    record, counted = record_of(), list[str]()
    made = acting(World(), counted)
    outcome = await record.run(made, "do it")
    before = len(counted)
    runs = {row.run: await record.read(row.run) for row in await record.store.runs()}
    found = await replay_run(runs, outcome.run, address.bind(made))
    assert (found.divergence, found.below) == (None, ())
    assert len(counted) == before


@gesta.tool(effect="once", approval=True)
def sign() -> str:
    """Sign."""
    return "signed"


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_replay_repeats_all_agents_that_one_hook_called(at_once: bool) -> None:
    fast = anyio.Event()

    async def first(_verbs: gesta.Verbs, _text: str) -> str:
        if at_once:
            await fast.wait()  # the first agent ends last
        return "fine"

    async def second(_verbs: gesta.Verbs, _text: str) -> str:
        fast.set()
        return "fine"

    async def ask(_about: Any, context: gesta.Context) -> None:
        both = [context.call(gesta.Agent(each.__name__, program=each), "Well?") for each in (first, second)]
        if at_once:
            await asyncio.gather(*both)
        else:
            for each in both:
                await each

    hooks = Hooks(message=ask, request=ask, call=ask, answer=ask)
    made = gesta.Agent("a", model=gesta.scripted(gesta.call("pay", cents=1), "Done."), tools=[PAY], hooks=hooks)
    record = record_of()
    outcome = await record.run(made, "Go.")
    runs = {row.run: await record.read(row.run) for row in await record.store.runs()}
    assert len(runs) == 11
    assert (await replay_run(runs, outcome.run, made)).divergence is None


async def test_a_replay_repeats_a_hook_that_waited_for_the_second_of_its_agents() -> None:
    other = gesta.Agent("other", model=gesta.scripted("Fine."))
    signs = gesta.Agent("signs", model=gesta.scripted(gesta.call("sign"), "Signed."), tools=[sign])

    async def ask(_about: Any, context: gesta.Context) -> None:
        for each, text in ((other, "One?"), (signs, "Two?"), (other, "Three?")):
            await context.call(each, text)

    made, record = agent(Hooks(message=ask), "Done."), record_of()
    outcome = await record.run(made, "Go.", session="s")
    await record.approve(outcome.waiting[0], by="ann")
    assert (await record.resume("s", made)).answer == "Done."
    runs = {row.run: await record.read(row.run) for row in await record.store.runs()}
    found = await replay_run(runs, outcome.run, made)
    assert (found.divergence, [each.divergence for each in found.below]) == (None, [])


async def test_a_fork_asks_its_hooks_anew_and_is_answered_from_its_base() -> None:
    record, counted = record_of(), list[str]()
    world = World()
    made = acting(world, counted)
    outcome = await record.run(made, "do it")
    fired = dict(world.fired)
    ended = await go_on(record, await fork(record, await record.find(outcome.run), Fork(at=2)), made)
    assert ended.answer == "Ask a colleague."
    assert world.fired == fired
    assert counted.count("message") == 2


async def test_a_fork_at_a_check_has_all_that_follows_from_it() -> None:
    record = record_of()
    made = acting(World(), [])
    outcome = await record.run(made, "do it")
    entries = await record.read(outcome.run)
    for each in entries:
        if isinstance(each.content, CheckContent):
            forked = await fork(record, await record.find(outcome.run), Fork(at=each.seq))
            shared = await record.read(forked.run)
            ended = await go_on(record, forked, made)
            assert ended.answer == "Ask a colleague.", each.content
            brought = each.content.point == "message" or each.content.verdict in ("again", "added")
            assert len([one for one in shared if one.shared_from]) == each.seq + brought


async def test_a_check_is_written_by_the_run_alone() -> None:
    said = CheckContent(of=2, point="answer", hook="mine", verdict="changed", value="Mine.")
    record = record_of()
    outcome = await record.run(agent(None, "Hi."), "Hello", session="s")
    with pytest.raises(AgentError, match="written by the run itself"):
        await record.send(outcome.run, said, key="k")
    await record.store.send(Letter(outcome.run, "k", encode_content(said)))
    await record.run(agent(None, "Hi.", "Hi."), "Hello", session="s")
    assert checks(await record.read(outcome.run)) == []
    async with record.span("app", session="t") as log:
        with pytest.raises(AgentError, match="CheckContent, which the run itself writes"):
            log.log(said)


async def test_a_turn_that_is_left_while_a_hook_is_asked_is_open_and_asks_it_again() -> None:
    left, record = anyio.CancelScope(), record_of()

    async def wait(_text: str, _context: gesta.Context) -> None:
        left.cancel()
        await anyio.sleep_forever()

    with left:
        await record.run(agent(Hooks(message=wait), "Hi."), "Hello", session="s", key="k")
    (row,) = await record.store.runs()
    assert (await record.state(row.run)).open
    ended = await record.run(agent(Hooks(message=no_swearing), "Hi."), "Hello", session="s", key="k")
    assert ended.answer == "Hi."


async def test_each_request_of_a_turn_with_hooks_can_be_made_again_from_the_record() -> None:
    record, counted = record_of(), list[str]()
    made = address.bind(acting(World(), counted))
    outcome = await record.run(made, "do it")
    entries = await record.read(outcome.run)
    asked = [each for each in entries if isinstance(each.content, RequestContent)]
    assert len(asked) == 3
    for each in asked:
        assert rebuild(entries, each.seq, made.formats(), made.asked()).digest == each.content.body_digest  # type: ignore[union-attr]


async def test_a_judge_of_requests_is_asked_about_each_request() -> None:
    asked = list[str]()

    async def judge(_verbs: gesta.Verbs, text: str) -> str:
        asked.append(text)
        return "no" if text == "3" else "yes"

    async def ask(about: Asking, context: gesta.Context) -> Refuse | None:
        said = await context.call(gesta.Agent("judge", program=judge), str(about.number))
        return Refuse("Too many.") if said.answer == "no" else None

    record = record_of()
    made = agent(Hooks(request=ask), gesta.call("pay", cents=1), gesta.call("pay", cents=2), "Paid.")
    outcome = await record.run(made, "Pay.")
    assert (asked, outcome.reason, outcome.requests) == (["1", "2", "3"], "failed", 2)
    runs = {row.run: await record.read(row.run) for row in await record.store.runs()}
    assert (await replay_run(runs, outcome.run, made)).divergence is None


async def test_the_explanation_of_an_answer_names_its_checks() -> None:
    record = record_of()
    made = agent(Hooks(call=below_100, answer=no_secrets), gesta.call("pay", cents=300), "Ask Bob.")
    outcome = await record.run(made, "Pay.")
    entries = await record.read(outcome.run)
    (answer,) = [each for each in entries if each.kind == "assistant"]
    texts = [node.text for node in explain(entries, answer.seq).nodes if node.kind == "check"]
    assert texts == [
        'below_100 changed the call to {"cents": 100}',
        "no_secrets changed the answer to Ask a colleague.",
    ]


@pytest.mark.parametrize("point", ["message", "request", "call", "answer"])
@pytest.mark.parametrize("careful", [False, True])
async def test_an_agent_that_its_own_hook_calls_is_called_no_deeper_than_the_policy_allows(
    point: str, careful: bool
) -> None:
    async def judged(_about: Any, context: gesta.Context) -> None:
        try:
            await context.call(made, "Is it right?")
        except TooDeep:
            if not careful:
                raise

    limits = gesta.Policy(limits=gesta.Limits(depth=2))
    made = agent(Hooks(**{point: judged}), gesta.call("pay", cents=1), "Yes.", policy=limits)
    record = record_of()
    outcome = await record.run(made, "Hello")
    runs = {row.run: await record.read(row.run) for row in await record.store.runs()}
    assert (outcome.reason, outcome.error and outcome.error.type, len(runs)) == ("limit", "depth", 3)
    assert [(await replay_run(runs, run, made)).first for run in runs] == [None] * 3
    assert await record.verify() == []


async def test_of_a_refused_answer_that_a_tool_gave_the_words_beside_its_call_still_count_for_the_prompt() -> None:
    @gesta.tool(effect="pure", ends_turn=True)
    def give() -> str:
        return "It is paid."

    said = gesta.reply("x" * 40_000, calls=[gesta.call("give")])
    record = record_of()
    outcome = await record.run(agent(Hooks(answer=lambda *_: Refuse("No.")), said, tools=(give,)), "Hello")
    (hidden,) = [each.content for each in await record.read(outcome.run) if isinstance(each.content, CompactionContent)]
    assert hidden.tokens is not None
    assert hidden.tokens < 10
    assert (await record.state(outcome.run)).weight.tokens > 10_000
