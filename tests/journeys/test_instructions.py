"""Instructions that a function makes: once in a turn, on record, never made again for what was sent."""

from asyncio import CancelledError
from typing import Any

import anyio
import msgspec
import pytest
from tests.laws.scenes import Tape, again, facts

import gesta
from gesta import address
from gesta.agent import joined
from gesta.compare.replaying import replay_run
from gesta.entry import Entry
from gesta.function_tool.output import Output
from gesta.kinds import RequestContent, RequestHeaderContent
from gesta.prompt import rebuild
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore


@gesta.tool(effect="pure")
async def look(x: int) -> str:
    """Look."""
    return f"saw {x}"


ASKED = gesta.tool(look.function, effect="pure", approval=True)
LOOK = gesta.call("look", x=1)


class Rules:
    """A function that counts how often it is called."""

    def __init__(self, *texts: Any) -> None:
        self.texts, self.contexts = texts, list[gesta.Context]()

    def __call__(self, context: gesta.Context) -> Any:
        self.contexts.append(context)
        given = self.texts[min(len(self.contexts), len(self.texts)) - 1]
        if isinstance(given, BaseException):
            raise given
        return given


def agent(rules: Any, *script: Any, **changes: Any) -> gesta.Agent[Any]:
    return gesta.Agent("a", model=gesta.scripted(*script), instructions=rules, **({"tools": [look]} | changes))


def record_of(store: MemoryStore | None = None) -> Record:
    return Record(store or MemoryStore(), address.bind)


def headers(entries: list[Entry]) -> list[Any]:
    found = [each.content for each in entries if isinstance(each.content, RequestHeaderContent)]
    return [(each.meta or {}).get("instructions") for each in found]


async def test_the_function_is_called_once_in_a_turn_and_what_it_gave_is_on_record() -> None:
    rules, record = Rules("Be brief."), record_of()
    acting = agent(rules, LOOK, LOOK, "One.", "Two.")
    outcome = await record.run(acting, "Go", session="s", user="ann", deps={"shop": 1})
    (context,) = rules.contexts
    assert (context.session, context.user, context.deps, context.run) == ("s", "ann", {"shop": 1}, outcome.run)
    await record.run(acting, "Go", session="s")
    assert len(rules.contexts) == 2
    assert headers(await record.read(outcome.run)) == ["Be brief."]


async def test_other_instructions_are_a_new_header_and_each_request_can_be_made_again() -> None:
    rules, record = Rules("Be brief.", "Be long."), record_of()
    acting = agent(rules, "One.", "Two.")
    outcome = await record.run(acting, "Go", session="s")
    await record.run(acting, "Go", session="s")
    entries = await record.read(outcome.run)
    assert headers(entries) == ["Be brief.", "Be long."]
    bound = address.bind(acting)
    for each in entries:
        if isinstance(each.content, RequestContent):
            assert rebuild(entries, each.seq, bound.formats(), bound.asked()).digest == each.content.body_digest


async def test_an_async_function_and_the_words_of_a_type_or_a_formatter_stand_together() -> None:
    async def rules(context: gesta.Context) -> str:
        await anyio.lowlevel.checkpoint()
        return f"You serve {context.user}."

    record = record_of()
    typed: Any = Output(dict[str, int], by="prompt")
    outcome = await record.run(agent(rules, '{"a": 1}', output=typed, formatter="react-text"), "Go", user="ann")
    (text,) = headers(await record.read(outcome.run))
    (header,) = [e.content for e in await record.read(outcome.run) if isinstance(e.content, RequestHeaderContent)]
    assert header.made == "You serve ann."
    assert text.startswith("You serve ann.")
    assert "Answer with one JSON value" in text
    assert "look" in text


async def test_who_goes_on_with_a_turn_does_not_call_the_function_again() -> None:
    rules, other = Rules("Be brief."), Rules("Be long.")
    record = record_of()
    outcome = await record.run(agent(rules, LOOK, "Done.", tools=[ASKED]), "Go")
    await record.approve(outcome.run, by="eve")
    ended = await record.resume(outcome.run, agent(other, LOOK, "Done.", tools=[ASKED]))
    assert (ended.answer, other.contexts) == ("Done.", [])
    assert headers(await record.read(outcome.run)) == ["Be brief."]


async def test_tools_of_another_state_make_a_new_header_with_the_same_instructions() -> None:
    first = gesta.tool(look.function, name="first", effect="pure", applicable_states=["undefined"], state="known")
    then = gesta.tool(look.function, name="then", effect="pure", applicable_states=["known"])
    rules, record = Rules("Be brief.", "Be long."), record_of()
    script = gesta.call("first", x=1), gesta.call("then", x=1), "Done."
    outcome = await record.run(agent(rules, *script, tools=[first, then]), "Go")
    assert (outcome.answer, len(rules.contexts)) == ("Done.", 1)
    assert headers(await record.read(outcome.run)) == ["Be brief.", "Be brief."]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (ValueError("no such shop"), "ValueError: no such shop"),
        (7, "TypeError: "),
        (CancelledError(), "CancelledError"),
    ],
    ids=str,
)
async def test_a_function_that_fails_ends_the_turn_and_says_which(given: Any, said: str) -> None:
    rules, record = Rules(given, "Be brief."), record_of()
    acting = agent(rules, "One.")
    outcome = await record.run(acting, "Go", session="s")
    assert outcome.reason == "failed"
    assert outcome.error is not None
    assert outcome.error.type == "instructions"
    assert outcome.error.message.startswith(f"{__name__}.Rules made no instructions: {said}")
    assert outcome.requests == 0
    assert (await record.run(acting, "Go", session="s")).answer == "One."
    assert headers(await record.read(outcome.run)) == ["Be brief."]


async def test_a_function_that_hangs_is_given_up_and_one_that_is_left_is_called_again() -> None:
    left = anyio.CancelScope()

    async def rules(context: gesta.Context) -> str:
        if context.deps == "leave":
            left.cancel()
        await anyio.sleep_forever()
        return ""

    policy = gesta.Policy(tool_timeout_s=0.01)
    outcome = await record_of().run(agent(rules, "One.", policy=policy), "Go")
    assert outcome.error is not None
    assert "TimeoutError" in outcome.error.message
    record = record_of()
    with left:
        await record.run(agent(rules, "One."), "Go", session="s", key="k", deps="leave")
    (row,) = await record.store.runs()
    assert (await record.state(row.run)).open
    assert (await record.run(agent("Be brief.", "One."), "Go", session="s", key="k")).answer == "One."


async def test_a_secret_in_them_is_neither_sent_nor_on_record() -> None:
    gesta.secret("shop-pass", "opensesame-1234")
    seen = list[str]()

    def model(_: Any, header: Any) -> str:
        seen.append(header.meta["instructions"])
        return "Done."

    record = record_of()
    acting = gesta.Agent("a", model=gesta.function(model), instructions=lambda _: "Log in with opensesame-1234. \ud800")
    outcome = await record.run(acting, "Go", session="s")
    await record.run(acting, "Go", session="s")
    assert headers(await record.read(outcome.run)) == seen[:1]
    assert "opensesame" not in seen[0]
    assert seen[0] == seen[1]


async def test_from_every_prefix_the_instructions_of_a_turn_that_asked_stay_as_they_were() -> None:
    tape, script = Tape(), (LOOK, LOOK, "Done.")
    whole = await record_of(tape).run(agent(Rules("Be brief."), *script), "Go", session="s", key="k")
    entries = await record_of(tape).read(whole.run)
    for length in range(len(tape.tape) + 1):
        store, rules = await again(tape.tape[:length]), Rules("Be long.")
        asked = [e for e in await record_of(store).read(whole.run) if e.kind == "request"] if length else []
        outcome = await record_of(store).run(agent(rules, *script), "Go", session="s", key="k")
        resumed = await record_of(store).read(outcome.run)
        assert facts(resumed) == facts(entries)
        assert headers(resumed) == (["Be brief."] if asked else ["Be long."])
        assert len(rules.contexts) == (0 if asked else 1)


@pytest.mark.parametrize("given", ["Be brief.", ValueError("a: b")], ids=str)
async def test_a_replay_calls_no_function(given: Any) -> None:
    rules, record = Rules(given), record_of()
    acting = agent(rules, LOOK, "One.", "Two.")
    outcome = await record.run(acting, "Go", session="s")
    await record.run(acting, "Go", session="s")
    found = await replay_run({outcome.run: await record.read(outcome.run)}, outcome.run, address.bind(acting))
    assert found.divergence is None
    assert len(rules.contexts) == 2


def test_the_digest_of_an_agent_names_the_function_and_not_what_it_gives() -> None:
    def other(_: gesta.Context) -> str:
        return ""

    digests = {address.bind(agent(each, "One.")).ref().digest for each in (Rules("a"), Rules("b"), other, "a")}
    assert len(digests) == 3


async def test_an_agent_that_is_called_makes_its_own_and_instructions_can_be_joined() -> None:
    rules = Rules("Be brief.")
    below = msgspec.structs.replace(agent(joined("You look.", "", rules), "Seen."), name="below")
    record = record_of()
    above = agent("Ask.", gesta.call("below", task="Look."), "Done.", tools=[below.as_tool()])
    outcome = await record.run(above, "Go", deps="d")
    rows = [row for row in await record.store.runs() if row.run != outcome.run]
    assert headers(await record.read(rows[0].run)) == ["You look.\n\nBe brief."]
    assert [context.deps for context in rules.contexts] == ["d"]
    assert joined("a", "", "b") == "a\n\nb"


async def test_a_run_begins_in_the_state_of_its_agent_and_each_header_keeps_its_meta() -> None:
    early = gesta.tool(look.function, name="early", effect="pure", applicable_states=["undefined"])
    late = gesta.tool(look.function, name="late", effect="pure", applicable_states=["known"])
    agent = gesta.Agent("desk", model=gesta.scripted("Hello."), tools=[early, late], state="known", meta={"ticket": 7})
    async with gesta.open(":memory:") as record:
        outcome = await record.run(agent, "Hi.")
        (header,) = [
            each.content for each in await record.read(outcome.run) if isinstance(each.content, RequestHeaderContent)
        ]
    assert [tool["name"] for tool in header.tools or ()] == ["late"]
    assert header.meta is not None
    assert header.meta["ticket"] == 7
