"""A turn that one version of an agent left open goes on under another; the page on runs has the table of outcomes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from msgspec.structs import replace

import gesta
from gesta.function_tool.context import NeedsAnswer, ToolQuestion
from gesta.function_tool.tool import Tool
from gesta.tools.person import ask_person

PAGE = Path(__file__).resolve().parents[2] / "docs" / "run.md"
Effect = Literal["pure", "idempotent", "once"]


class Bank:
    """What the tools of all versions do, and whether the first call hangs."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.hangs = False
        self.begun = anyio.Event()

    async def pay(self, context: gesta.Context) -> str:
        self.keys.append(context.key)
        if self.hangs:
            self.hangs = False
            self.begun.set()
            await anyio.sleep_forever()
        return "paid"


def first(bank: Bank, effect: Effect = "once", *, name: str = "pay", approval: bool = False) -> Tool:
    async def pay(cents: int, context: gesta.Context) -> str:
        """Pay."""
        del cents
        return await bank.pay(context)

    return gesta.tool(pay, name=name, effect=effect, approval=approval)


def renamed_parameter(bank: Bank, effect: Effect, *, approval: bool = False) -> Tool:
    async def pay(amount: int, context: gesta.Context) -> str:
        """Pay."""
        del amount
        return await bank.pay(context)

    return gesta.tool(pay, effect=effect, approval=approval)


def retyped_parameter(bank: Bank, effect: Effect, *, approval: bool = False) -> Tool:
    async def pay(cents: str, context: gesta.Context) -> str:
        """Pay."""
        del cents
        return await bank.pay(context)

    return gesta.tool(pay, effect=effect, approval=approval)


CHANGES: dict[str, Callable[[Bank, Effect, bool], list[Tool]]] = {
    "nothing": lambda bank, effect, asks: [first(bank, effect, approval=asks)],
    "the tool is gone": lambda _bank, _effect, _asks: [],
    "the tool has another name": lambda bank, effect, asks: [first(bank, effect, name="pay_out", approval=asks)],
    "a parameter has another name": lambda bank, effect, asks: [renamed_parameter(bank, effect, approval=asks)],
    "a parameter has another type": lambda bank, effect, asks: [retyped_parameter(bank, effect, approval=asks)],
    "the tool asks for approval now": lambda bank, effect, _asks: [first(bank, effect, approval=True)],
    "the tool asks for no approval now": lambda bank, effect, _asks: [first(bank, effect)],
    "the tool is `pure` now": lambda bank, _effect, asks: [first(bank, "pure", approval=asks)],
    "the tool is `once` now": lambda bank, _effect, asks: [first(bank, "once", approval=asks)],
}
AGAIN, ONCE, MADE = "it is made again, under its key", "it waits for a person, as a doubt", "it is made"
ASKED, NO_TOOL = "it waits for approval", "the model reads that there is no such tool"
NO_FIT = "the model reads which argument does not fit"
STARTED: dict[str, dict[Effect, str]] = {
    "nothing": {"pure": AGAIN, "idempotent": AGAIN, "once": ONCE},
    "the tool is gone": {"pure": NO_TOOL, "idempotent": ONCE, "once": ONCE},
    "the tool has another name": {"pure": NO_TOOL, "idempotent": ONCE, "once": ONCE},
    "a parameter has another name": {"pure": NO_FIT, "idempotent": ONCE, "once": ONCE},
    "a parameter has another type": {"pure": NO_FIT, "idempotent": ONCE, "once": ONCE},
    "the tool asks for approval now": {"pure": AGAIN, "idempotent": AGAIN, "once": ONCE},
    "the tool is `pure` now": {"pure": AGAIN, "idempotent": AGAIN, "once": ONCE},
    "the tool is `once` now": {"pure": ONCE, "idempotent": ONCE, "once": ONCE},
}
"""What becomes of a call that was started and has no result."""
APPROVED = {
    "nothing": MADE,
    "the tool is gone": NO_TOOL,
    "the tool has another name": NO_TOOL,
    "a parameter has another name": NO_FIT,
    "a parameter has another type": NO_FIT,
    "the tool asks for no approval now": MADE,
}
"""What becomes of a call that waited for approval, and was approved."""


def agent(tools: list[Tool], *more: Any, instructions: str = "") -> gesta.Agent:
    model = gesta.scripted(gesta.call("pay", cents=500), *more, "Done.")
    return gesta.Agent("desk", model=model, tools=tools, instructions=instructions)


def said(outcome: gesta.Outcome, entries: list[gesta.Entry], bank: Bank) -> str:
    """Return what became of the call, in the words of the table."""
    if outcome.reason == "waiting":
        return {"doubt": ONCE, "approval": ASKED}[outcome.waiting[0].what]
    (result,) = [each.content.tool_result for each in entries if each.kind == "tool-result"]  # type: ignore[union-attr]
    if result == "paid":
        return AGAIN if len(bank.keys) == 2 and len(set(bank.keys)) == 1 else MADE
    return NO_TOOL if "There is no tool 'pay'" in str(result) else NO_FIT if "`$.cents`" in str(result) else str(result)


@pytest.mark.parametrize("effect", ["pure", "idempotent", "once"])
@pytest.mark.parametrize("change", STARTED)
async def test_a_call_that_was_started_goes_on_under_another_version(change: str, effect: Effect) -> None:
    bank = Bank()
    bank.hangs = True
    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record.run(agent([first(bank, effect)]), "Pay.", session="s"))
            await bank.begun.wait()
            group.cancel_scope.cancel()
        run = (await record.find("s")).run
        outcome = await record.resume(run, agent(CHANGES[change](bank, effect, False)))
        assert said(outcome, await record.read(run), bank) == STARTED[change][effect]


@pytest.mark.parametrize("change", APPROVED)
async def test_a_call_that_was_approved_goes_on_under_another_version(change: str) -> None:
    bank = Bank()
    async with gesta.open() as record:
        outcome = await record.run(agent([first(bank, approval=True)]), "Pay.", session="s")
        await record.approve(outcome.run, by="ann")
        ended = await record.resume(outcome.run, agent(CHANGES[change](bank, "once", True)))
        assert said(ended, await record.read(outcome.run), bank) == APPROVED[change]
        assert len(bank.keys) == (APPROVED[change] == MADE)


async def test_a_call_that_waits_for_approval_is_made_where_no_approval_is_asked_any_more() -> None:
    bank = Bank()
    async with gesta.open() as record:
        outcome = await record.run(agent([first(bank, approval=True)]), "Pay.", session="s")
        ended = await record.resume(outcome.run, agent([first(bank)]))
        assert (said(ended, await record.read(outcome.run), bank), len(bank.keys)) == (MADE, 1)


async def test_a_result_that_is_on_record_stays_whatever_became_of_its_tool() -> None:
    bank = Bank()
    ask = gesta.call("ask_person", question="Is that all?")
    async with gesta.open() as record:
        outcome = await record.run(agent([first(bank), ask_person()], ask), "Pay.", session="s")
        await record.answer(outcome.run, "Yes.", by="ann")
        ended = await record.resume(outcome.run, agent([], ask))
        assert (ended.answer, len(bank.keys)) == ("Done.", 1)


async def test_other_instructions_and_another_model_hold_from_the_next_request_on() -> None:
    bank = Bank()
    asked: list[Any] = []

    def later(_messages: Any, header: Any) -> str:
        asked.append(header.meta["instructions"])
        return "Done, shortly."

    async with gesta.open() as record:
        outcome = await record.run(agent([first(bank, approval=True)], instructions="Be kind."), "Pay.", session="s")
        await record.approve(outcome.run, by="ann")
        changed = gesta.Agent("desk", model=gesta.function(later), tools=[first(bank)], instructions="Be short.")
        assert (await record.resume(outcome.run, changed)).answer == "Done, shortly."
        headers = [each.content for each in await record.read(outcome.run) if each.kind == "request-header"]
        assert [each.meta["instructions"] for each in headers] == ["Be kind.", "Be short."]  # type: ignore[union-attr, index]
        assert asked == ["Be short."]


PAYS = gesta.call("pay", task="5 euros")


def desk(*tools: Tool, calls: tuple[Any, ...] = (PAYS,)) -> gesta.Agent:
    return gesta.Agent("desk", model=gesta.scripted(*calls, "Done."), tools=list(tools))


def paying(paid: list[str], who: str, *, doubts: bool = False, **options: Any) -> Tool:
    def pay(task: str) -> str:
        """Pay."""
        paid.append(f"{who}: {task}")
        if doubts:
            raise gesta.InDoubt("the line is dead")
        return "paid"

    return gesta.tool(pay, **options)


def payer(tool: Tool) -> gesta.Agent:
    called = gesta.call("pay", task="5")
    model = gesta.function(lambda messages, _: called if messages[-1]["role"] != "tool" else "The payer has paid.")
    return gesta.Agent("payer", model=model, tools=[tool])


@pytest.mark.parametrize("calls", [(PAYS,), (gesta.call("pay", cents=5), PAYS)], ids=["same", "other argument"])
@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_a_payment_in_doubt_is_not_made_again_by_an_agent_of_its_name(effect: Effect, calls: Any) -> None:
    bank, paid = Bank(), list[str]()
    bank.hangs = True
    first_tool = first(bank, effect) if len(calls) == 2 else paying(paid, "function", doubts=True, effect=effect)
    policy = gesta.Policy(attempts=1)
    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            before = replace(desk(first_tool, calls=calls), policy=policy)
            group.start_soon(lambda: record.run(before, "Pay.", session="s"))
            await (bank.begun.wait() if len(calls) == 2 else anyio.wait_all_tasks_blocked())
            group.cancel_scope.cancel()
        run = (await record.find("s")).run
        made = len(paid)
        below = payer(paying(paid, "agent")).as_tool("pay", "Pays.")
        outcome = await record.resume(run, desk(below, calls=calls))
        assert [each.what for each in outcome.waiting] == ["doubt"]
        await record.resolve(run, "done", by="ann", result="paid")
        assert (await record.resume(run, desk(below, calls=calls[:1]))).answer == "Done."
        assert len(paid) == made


@pytest.mark.parametrize("tools", [[], ["approval"], ["function"]], ids=["gone", "function with approval", "function"])
async def test_an_agent_that_became_a_function_is_waited_for_and_its_end_is_the_result(tools: list[str]) -> None:
    paid = list[str]()
    below = payer(paying(paid, "agent", doubts=True))
    after = [
        paying(paid, "function", approval=tool == "approval", reconcile=lambda _: gesta.NotDone()) for tool in tools
    ]
    async with gesta.open() as record:
        outcome = await record.run(desk(below.as_tool("pay", "Pays.")), "Pay.", session="s")
        for _ in range(2):
            outcome = await record.resume(outcome.run, desk(*after))
            (waiting,) = outcome.waiting
            assert (waiting.what, waiting.run != outcome.run) == ("doubt", True)
        await record.resolve(waiting, "done", by="ann", result="paid")
        assert (await record.resume(waiting.run, below)).answer == "The payer has paid."
        assert (await record.resume(outcome.run, desk(*after))).answer == "Done."
        (result,) = [each for each in await record.read(outcome.run) if each.kind == "tool-result"]
        assert (result.content.tool_result, paid) == ("The payer has paid.", ["agent: 5"])  # type: ignore[union-attr]
        assert any(isinstance(cause, tuple) and cause[0] == waiting.run for cause in result.causes)


async def test_a_function_is_not_asked_what_became_of_the_run_of_an_agent() -> None:
    paid, begun = list[str](), anyio.Event()

    async def thinks(*_: Any) -> str:
        begun.set()
        await anyio.sleep_forever()
        return "never"

    below = gesta.Agent("payer", model=gesta.function(thinks)).as_tool("pay", "Pays.")
    after = desk(paying(paid, "function", reconcile=lambda _: gesta.NotDone(), on_doubt="tell"))
    async with gesta.open() as record:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record.run(desk(below), "Pay.", session="s"))
            await begun.wait()
            group.cancel_scope.cancel()
        run = (await record.find("s")).run
        outcome = await record.resume(run, after)
        assert (outcome.reason, paid) == ("waiting", [])


@pytest.mark.parametrize("verdict", ["approved", "denied"])
async def test_a_call_that_asked_a_question_is_not_made_without_the_approval_that_is_asked_for_now(
    verdict: str,
) -> None:
    paid = list[str]()

    def asking(*, approval: bool) -> gesta.Agent:
        @gesta.tool(effect="once", approval=approval)
        def pay(task: str, context: gesta.Context) -> str:
            """Pay."""
            if not context.answers:
                raise NeedsAnswer({"from": ToolQuestion("From which account?")})
            paid.append(f"{task} from {context.answers['from']}")
            return "paid"

        return desk(pay)

    async with gesta.open() as record:
        outcome = await record.run(asking(approval=False), "Pay.", session="s")
        await record.answer(outcome.run, "giro", by="ann")
        outcome = await record.resume(outcome.run, asking(approval=True))
        assert [each.what for each in outcome.waiting] == ["approval"]
        assert [each.what for each in await record.waiting("s")] == ["approval"]
        await (record.approve if verdict == "approved" else record.deny)(outcome.run, by="ann")
        assert (await record.resume(outcome.run, asking(approval=True))).answer == "Done."
        assert paid == (["5 euros from giro"] if verdict == "approved" else [])


async def test_a_payment_that_may_be_tried_again_waits_for_the_approval_that_is_asked_for_now() -> None:
    paid = list[str]()
    after = desk(paying(paid, "second", approval=True, reconcile=lambda _: gesta.NotDone()))
    async with gesta.open() as record:
        outcome = await record.run(desk(paying(paid, "first", doubts=True)), "Pay.", session="s")
        outcome = await record.resume(outcome.run, after)
        assert [each.what for each in outcome.waiting] == ["approval"]
        assert [each.what for each in await record.waiting("s")] == ["approval"]
        await record.approve(outcome.run, by="ann")
        assert (await record.resume(outcome.run, after)).answer == "Done."
        assert paid == ["first: 5 euros", "second: 5 euros"]


def test_the_page_has_this_table() -> None:
    text = PAGE.read_text(encoding="utf-8").split("## When the code changes under an open turn\n", 1)[1]
    rows = [
        [each.strip() for each in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    table = {cells[0]: cells[1:] for cells in rows}
    for change in dict.fromkeys([*STARTED, *APPROVED]):
        started = [STARTED.get(change, {}).get(effect, "") for effect in ("pure", "idempotent", "once")]
        assert table[change] == [*started, APPROVED.get(change, "")], change
