"""What a program gives its tools for a turn is handed over as it is, and is never on record."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import gesta
from gesta import address
from gesta.compare.forks import Fork, fork, go_on
from gesta.compare.replaying import replay_run
from gesta.errors import NoDeps
from gesta.hooks import Hooks
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore
from gesta.worker import Worker

MARK = "hunter2-in-deps"


class Shop:
    """Neither copied nor written down: it holds a lock and a secret."""

    def __init__(self, name: str = "shop") -> None:
        self.name, self.lock, self.password = name, threading.Lock(), MARK
        self.sold: list[int] = []

    def __repr__(self) -> str:
        return MARK

    def __deepcopy__(self, _memo: Any) -> "Shop":
        raise AssertionError("deps are not copied")

    __copy__ = __reduce__ = __deepcopy__  # type: ignore[assignment]


@gesta.tool(effect="once")
def sell(number: int, context: gesta.Context[Shop]) -> str:
    """Sell."""
    context.deps.sold.append(number)
    return f"sold {number} at the {context.deps.name}"


@gesta.tool(effect="pure")
async def greet(context: gesta.Context[Shop | None]) -> str:
    """Greet."""
    return f"welcome to {context.deps.name if context.deps else 'nowhere'}"


SELL = gesta.call("sell", number=1)


def agent(*script: Any, tools: Any = (sell, greet), name: str = "clerk", **changes: Any) -> gesta.Agent[Any]:
    return gesta.Agent(name, model=gesta.scripted(*script), tools=tools, **changes)


def record_of(store: MemoryStore | None = None) -> Record:
    return Record(store or MemoryStore(), address.bind)


async def results(record: Record, run: str) -> list[Any]:
    return [each.content.tool_result for each in await record.read(run) if each.kind == "tool-result"]  # type: ignore[union-attr]


def holding(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if MARK.encode() in path.read_bytes()]


async def test_a_tool_finds_the_very_deps_that_the_program_gave_and_nothing_of_them_is_on_record(
    tmp_path: Path,
) -> None:
    shop, place = Shop(), tmp_path / "r.gesta"
    async with gesta.open(place) as record:
        outcome = await record.run(agent(SELL, "Sold."), "Sell.", deps=shop)
        assert await results(record, outcome.run) == ["sold 1 at the shop"]
        assert shop.sold == [1]
    assert holding(tmp_path) == []


async def test_each_turn_has_its_own_deps_also_at_the_same_time() -> None:
    record, shops = record_of(), [Shop(f"shop {place}") for place in range(5)]
    outcomes = dict[int, gesta.Outcome[Any]]()

    async def take(place: int) -> None:
        outcomes[place] = await record.run(agent(SELL, "Sold."), "Sell.", deps=shops[place])

    async with anyio.create_task_group() as group:
        for place in range(5):
            group.start_soon(take, place)
    for place in range(5):
        assert await results(record, outcomes[place].run) == [f"sold 1 at the shop {place}"]
    assert [shop.sold for shop in shops] == [[1]] * 5


async def test_agents_that_are_called_have_the_deps_of_who_calls_them() -> None:
    below, shop = agent(SELL, "Sold.", name="below"), Shop()

    async def hand(context: gesta.Context) -> str:
        return str((await context.call(agent(SELL, "So.", name="other"), "Sell.")).answer)

    calls = gesta.reply(calls=[gesta.call("below", task="Sell."), gesta.call("hand")])
    above = agent(calls, "Done.", name="above", tools=[below.as_tool(), gesta.tool(hand, effect="pure")])
    outcome = await record_of().run(above, "Go.", deps=shop)
    assert (outcome.answer, shop.sold) == ("Done.", [1, 1])


@pytest.mark.parametrize("nested", [False, True])
async def test_a_turn_without_deps_that_a_tool_needs_is_refused_before_anything_is_written(nested: bool) -> None:
    acting = agent("Hi.") if not nested else agent("Hi.", name="above", tools=[agent("Hi.").as_tool()])
    record = record_of()
    with pytest.raises(NoDeps, match=r"'sell' needs deps \(Shop\), and none were given") as raised:
        await record.run(acting, "Sell.", session="s")
    assert isinstance(raised.value, gesta.GestaError)
    assert await record.store.runs() == []


async def test_instructions_and_hooks_that_need_deps_are_refused_without_too() -> None:
    def rules(context: gesta.Context[Shop]) -> str:
        return context.deps.name

    async def judged(_text: str, context: "gesta.Context[Shop]") -> None:
        assert context.deps.name

    for acting in (
        agent("Hi.", tools=[], instructions=rules),
        agent("Hi.", tools=[], hooks=Hooks(message=judged)),
        agent("Hi.", tools=[], hooks=Hooks(answer=judged)),
    ):
        with pytest.raises(NoDeps, match=r"(rules|judged)' needs deps \(Shop\)"):
            await record_of().run(acting, "Hello")
        assert (await record_of().run(acting, "Hello", deps=Shop())).answer == "Hi."


async def test_a_turn_that_waits_is_not_touched_by_a_resume_without_deps() -> None:
    asked = gesta.tool(sell.function, effect="once", approval=True)
    acting, record = agent(SELL, "Sold.", tools=[asked]), record_of()
    outcome = await record.run(acting, "Sell.", deps=Shop())
    await record.approve(outcome.run, by="eve")
    before = await record.read(outcome.run)
    with pytest.raises(NoDeps):
        await record.resume(outcome.run, acting)
    assert await record.read(outcome.run) == before
    shop = Shop()
    assert (await record.resume(outcome.run, acting, deps=shop)).answer == "Sold."
    assert shop.sold == [1]


async def test_a_tool_that_can_do_without_deps_is_called_without() -> None:
    record = record_of()
    outcome = await record.run(agent(gesta.call("greet"), "Hi.", tools=[greet]), "Hello")
    assert await results(record, outcome.run) == ["welcome to nowhere"]
    assert (greet.needs, sell.needs) == (None, Shop)
    assert list(sell.args_schema["properties"]) == ["number"]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_worker_has_the_agents_function_make_them_for_each_turn(waits: bool) -> None:
    made, outcomes = list[Shop](), list[gesta.Outcome[Any]]()

    def shop() -> Shop:
        made.append(Shop())
        return made[-1]

    async def later() -> Shop:
        await anyio.lowlevel.checkpoint()
        return shop()

    asked = gesta.tool(sell.function, effect="once", approval=True)
    acting = agent(SELL, "Sold.", tools=[asked], deps=later if waits else shop)
    record = record_of()
    outcome = await record.run(acting, "Sell.")
    await record.approve(outcome.run, by="eve")
    await Worker(record, [acting]).look(outcomes.append)
    assert [each.answer for each in outcomes] == ["Sold."]
    assert [each.sold for each in made] == [[], [1]]


async def test_a_function_that_fails_or_makes_nothing_leaves_the_turn_as_it_was() -> None:
    def fail() -> Shop:
        raise ConnectionRefusedError("the shop is shut")

    record = record_of()
    with pytest.raises(ConnectionRefusedError):
        await record.run(agent(SELL, deps=fail), "Sell.")
    with pytest.raises(NoDeps):
        await record.run(agent(SELL, deps=lambda: None), "Sell.")
    assert await record.store.runs() == []


def test_every_door_takes_deps_and_refuses_an_option_that_no_turn_has(tmp_path: Path) -> None:
    shop = Shop()
    gesta.run_sync(agent(SELL, "Sold."), "Sell.", deps=shop)
    with gesta.open_sync(tmp_path / "r.gesta") as record:
        outcome = record.run(agent(SELL, "Sold."), "Sell.", deps=shop)
        stream = record.stream(agent(SELL, "Sold."), "Sell.", deps=shop)
        assert [event.type for event in stream][-2:] == ["answer", "end"]
        record.resume(outcome.run, agent("-"), deps=shop)
        refused: list[Callable[[], Any]] = [
            lambda: record.run(agent("-"), "Sell.", dep=shop),  # type: ignore[call-arg]
            lambda: record.resume(outcome.run, agent("-"), dep=shop),  # type: ignore[call-arg]
            lambda: list(record.stream(agent("-"), "Sell.", dep=shop)),  # type: ignore[call-arg]
            lambda: gesta.run_sync(agent("-"), "Sell.", dep=shop),  # type: ignore[call-arg]
        ]
        for door in refused:
            with pytest.raises(TypeError, match="Did you mean 'deps'"):
                door()
    assert shop.sold == [1, 1, 1]


async def test_reconcile_and_transactional_tools_have_them_too(tmp_path: Path) -> None:
    def paid(_key: str, context: gesta.Context[Shop]) -> gesta.Done:
        return gesta.Done(context.deps.name)

    def pay() -> str:
        raise gesta.InDoubt("the line went dead")

    def book(context: gesta.Context[Shop]) -> str:
        context.sql("CREATE TABLE rooms(shop TEXT)")
        context.sql("INSERT INTO rooms VALUES(?)", (context.deps.name,))
        return "booked"

    tools = [gesta.tool(pay, effect="once", reconcile=paid), gesta.tool(book, effect="transactional")]
    script = gesta.call("pay"), gesta.call("book"), "Done."
    async with gesta.open(tmp_path / "r.gesta") as record:
        outcome = await record.run(agent(*script, tools=tools), "Go.", deps=Shop("till"))
        assert await results(record, outcome.run) == ["till", "booked"]


async def test_a_replay_makes_no_deps_and_a_fork_has_those_that_the_function_makes() -> None:
    made = list[Shop]()

    def shop() -> Shop:
        made.append(Shop())
        return made[-1]

    record, acting = record_of(), agent(gesta.call("greet"), SELL, "Sold.", deps=shop)
    outcome = await record.run(acting, "Sell.")
    replayed = await replay_run({outcome.run: await record.read(outcome.run)}, outcome.run, address.bind(acting))
    assert replayed.divergence is None
    assert len(made) == 1
    base = await record.find(outcome.run)
    await go_on(record, await fork(record, base, Fork(at=2)), acting)
    assert [each.sold for each in made] == [[1], *[[]] * (len(made) - 1)]


async def test_a_turn_may_ask_another_model_with_other_settings() -> None:
    def named(name: str) -> Any:
        return gesta.function(lambda _, header: f"{name}: {(header.meta or {}).get('settings')}", name=name)

    record, acting = record_of(), gesta.Agent("a", model=named("one"), settings={"a": 1, "b": 1})
    answers = [
        (await record.run(acting, "?", session="s")).answer,
        (await record.run(acting, "?", session="s", model=named("two"), settings={"b": 2})).answer,
        (await record.run(acting, "?", session="s")).answer,
    ]
    assert answers == ["one: {'a': 1, 'b': 1}", "two: {'a': 1, 'b': 2}", "one: {'a': 1, 'b': 1}"]
    (row,) = await record.store.runs()
    headers = [each.content for each in await record.read(row.run) if each.kind == "request-header"]
    assert [header.model for header in headers] == ["one", "two", "one"]  # type: ignore[union-attr]


async def test_who_resumes_a_turn_names_its_model_again_or_goes_on_with_the_agents_own() -> None:
    other = gesta.scripted("-", "B goes on.")
    for given in (False, True):
        record = record_of()
        asked = gesta.tool(greet.function, effect="pure", approval=True)
        call = gesta.call("greet")
        acting = agent("-", "A goes on.", tools=[asked])
        outcome = await record.run(acting, "Hi", model=gesta.scripted(call))
        await record.approve(outcome.run, by="eve")
        ended = await (record.resume(outcome.run, acting, model=other) if given else record.resume(outcome.run, acting))
        assert ended.answer == ("B goes on." if given else "A goes on.")
