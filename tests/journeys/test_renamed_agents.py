"""An agent with a new name begins no run beside a payment that its old name left in doubt; all else goes on as before."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import programs
from tests.serving import post, served

import gesta
from gesta.address import Record
from gesta.compare.forks import Fork, fork, go_on
from gesta.errors import TurnOpen
from gesta.function_tool.context import NeedsAnswer, ToolQuestion

GO: dict[str, Any] = {"session": "s", "key": "m2"}
FIRST: dict[str, Any] = {"session": "s", "key": "m0"}


class Bank:
    """Counts payments. The first one hangs, if `hangs`."""

    def __init__(self, *, hangs: bool = True) -> None:
        self.paid, self.hangs, self.begun = 0, hangs, anyio.Event()

    async def pay(self) -> str:
        """Pay."""
        self.paid += 1
        if self.hangs:
            self.hangs = False
            self.begun.set()
            await anyio.sleep_forever()
        return "paid"

    async def refund(self) -> str:
        """Pay back."""
        return await self.pay()


def choose(messages: Any, header: Any) -> Any:
    if messages[-1]["role"] != "user" or "money" not in str(messages[-1]["content"]):
        return "Done."
    return gesta.call(header.tools[0]["name"]) if header.tools else "I cannot pay."


def agent(name: str, *tools: Any, **options: Any) -> gesta.Agent:
    return gesta.Agent(name, model=gesta.function(choose), tools=list(tools), **options)


def payer(name: str, bank: Bank, **options: Any) -> gesta.Agent:
    return agent(name, gesta.tool(bank.pay, **{"effect": "once"} | options))


def supervisor(name: str, below: gesta.Agent) -> gesta.Agent:
    def ask(messages: Any, _header: Any) -> Any:
        asked = messages[-1]["role"] == "user" and "money" in str(messages[-1]["content"])
        return gesta.call("cashier", task="money") if asked else "Done."

    return gesta.Agent(name, model=gesta.function(ask), tools=[below.as_tool("cashier", "Pays.")])


@asynccontextmanager
async def left(desk: gesta.Agent, bank: Bank, *, before: gesta.Agent | None = None) -> AsyncIterator[Record]:
    """Yield a record in which a turn of `desk` was left in the middle of a payment. `before` has a run there, too."""
    async with gesta.open(grace_s=0) as record:
        for each in (before, desk) if before is not None else (desk,):
            await record.run(each, "Good morning.", **FIRST)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record.run(desk, "My money!", **GO))
            with anyio.fail_after(10):
                await bank.begun.wait()
            group.cancel_scope.cancel()
        yield record


PROGRAM = """
import os, signal, sys
import gesta

@gesta.tool(effect="once", reconcile=lambda key: gesta.Done("paid"))
def refund() -> str:
    with open("bank.txt", "a") as bank:
        bank.write("paid\\n")
    os.kill(os.getpid(), signal.SIGKILL)

def choose(messages, header):
    text = str(messages[-1]["content"])
    return gesta.call("refund") if messages[-1]["role"] == "user" and "money" in text else "Done."

agent = gesta.Agent(sys.argv[1], model=gesta.function(choose), tools=[refund])
with gesta.open_sync("runs.gesta") as record:
    for number, text in enumerate(["Hello.", "My money!"]):
        key = {"key": f"m{number}"} if sys.argv[2] == "keys" else {}
        print(record.run(agent, text, session="anna", **key).answer)
"""


@pytest.mark.parametrize("keys", ["keys", "no keys"])
def test_a_killed_program_whose_agent_was_renamed_does_not_pay_again_and_goes_on_under_the_old_name(
    keys: str, tmp_path: Path
) -> None:
    assert programs.run(["-c", PROGRAM, "desk", keys], cwd=tmp_path).returncode == -9
    refused = programs.run(["-c", PROGRAM, "till", keys], cwd=tmp_path)
    assert refused.returncode == 1
    for word in ["agent 'desk'", "agent 'till'", "session 'anna'", "'refund'", "gesta resolve ", "gesta cancel "]:
        assert word in refused.stderr
    assert ("the key 'm1'" in refused.stderr) == (keys == "keys")
    assert programs.run(["-c", PROGRAM, "till", keys], cwd=tmp_path).returncode == 1
    if keys == "keys":
        again = programs.run(["-c", PROGRAM, "desk", keys], cwd=tmp_path)
        assert (again.returncode, again.stdout) == (0, "Done.\nDone.\n")
    assert (tmp_path / "bank.txt").read_text() == "paid\n"


@pytest.mark.parametrize("effect", ["once", "idempotent"])
@pytest.mark.parametrize("key", ["m0", "m2", "queued", None], ids=str)
async def test_every_message_that_the_old_name_may_have_had_is_refused(key: str | None, effect: str) -> None:
    bank = Bank()
    desk, till = payer("desk", bank, effect=effect, reconcile=None), payer("till", bank, effect=effect)
    async with left(desk, bank) as record:
        run = (await record.find("s")).run
        if key == "queued":
            doubtful = payer("desk", bank, effect="once")
            assert (await record.run(doubtful, "My money!", session="s", key="queued")).queued
        paid = bank.paid
        with pytest.raises(TurnOpen) as refused:
            await record.run(till, "My money!", session="s", key=key)
        assert (refused.value.run, bank.paid) == (run, paid)
        with pytest.raises(TurnOpen):
            async for _ in record.stream(till, "My money!", session="s", key=key):
                pass
        assert [row.name for row in await record.store.runs("s")] == ["desk"]


async def test_a_payment_of_which_the_model_was_told_that_its_outcome_is_unknown_is_not_made_again() -> None:
    paid, begun = list[str](), anyio.Event()

    @gesta.tool(effect="once", on_doubt="tell")
    def pay() -> str:
        """Pay."""
        paid.append("5 euros")
        raise gesta.InDoubt("the line is dead")

    async def hang(messages: Any, header: Any) -> Any:
        if messages[-1]["role"] == "tool":
            begun.set()
            await anyio.sleep_forever()
        return choose(messages, header)

    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            desk = gesta.Agent("desk", model=gesta.function(hang), tools=[pay])
            group.start_soon(lambda: record.run(desk, "My money!", **GO))
            with anyio.fail_after(10):
                await begun.wait()
            group.cancel_scope.cancel()
        with pytest.raises(TurnOpen, match="'pay'"):
            await record.run(agent("till", pay), "My money!", **GO)
        assert len(paid) == 1


def test_a_server_refuses_a_message_to_a_renamed_agent(tmp_path: Path) -> None:
    @gesta.tool(effect="once")
    def pay() -> str:
        """Pay."""
        raise gesta.InDoubt("the line is dead")

    with gesta.open_sync(tmp_path / "r.gesta") as record:
        assert record.run(agent("desk", pay), "My money!", **GO).reason == "waiting"
    with served(tmp_path / "r.gesta", agents=[agent("till", pay)]) as address:
        refused = post(address, "/sessions/s/messages", {"message": "My money!", "key": "m2"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "TurnOpen")


async def test_once_the_old_turn_has_ended_the_new_name_begins_its_run() -> None:
    bank = Bank()
    async with left(payer("desk", bank), bank) as record:
        run = (await record.find("s")).run
        await record.resolve(run, "done", by="ann", result="paid")
        with pytest.raises(TurnOpen):
            await record.run(payer("till", bank), "My money!", **GO)
        assert (await record.resume(run, payer("desk", bank))).answer == "Done."
        assert (await record.run(payer("till", bank), "Good evening.", session="s", key="m3")).answer == "Done."
        assert bank.paid == 1


async def test_a_person_who_cancels_the_old_turn_lets_the_new_name_begin() -> None:
    bank = Bank()
    async with left(payer("desk", bank), bank) as record:
        await record.cancel("s", by="ann")
        assert (await record.run(payer("till", bank), "Hello?", **GO)).answer == "Done."


async def test_a_payment_in_doubt_below_a_renamed_agent_is_not_made_again() -> None:
    bank = Bank()

    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record.run(supervisor("desk", payer("cashier", bank)), "My money!", **GO))
            with anyio.fail_after(10):
                await bank.begun.wait()
            group.cancel_scope.cancel()
        with pytest.raises(TurnOpen, match="'pay'"):
            await record.run(supervisor("till", payer("cashier", bank)), "My money!", **GO)
        assert bank.paid == 1


async def test_a_payment_in_doubt_below_a_renamed_program_is_not_made_again() -> None:
    bank = Bank()

    async def program(verbs: gesta.Verbs, _text: str) -> str:
        return str((await verbs.call(payer("cashier", bank), "money", name="pay")).text)

    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record.run(gesta.Agent("desk", program=program), "Go.", **GO))
            with anyio.fail_after(10):
                await bank.begun.wait()
            group.cancel_scope.cancel()
        with pytest.raises(TurnOpen, match="'pay'"):
            await record.run(gesta.Agent("till", program=program), "Go.", **GO)
        assert bank.paid == 1


# What goes on as before.


async def test_two_agents_get_the_same_key_at_once_and_both_pay() -> None:
    bank, other, met = Bank(hangs=False), Bank(hangs=False), anyio.Event()

    async def pay() -> str:
        """Pay."""
        bank.begun.set()
        await met.wait()
        return await bank.pay()

    async with gesta.open() as record, anyio.create_task_group() as group:
        group.start_soon(lambda: record.run(agent("desk", gesta.tool(pay)), "My money!", **GO))
        await bank.begun.wait()
        assert (await record.run(payer("till", other), "My money!", **GO)).answer == "Done."
        met.set()
    assert (bank.paid, other.paid) == (1, 1)


async def test_two_agents_get_the_same_key_one_after_the_other() -> None:
    bank = Bank(hangs=False)
    async with gesta.open() as record:
        for name in ("desk", "till", "desk", "till"):
            assert (await record.run(payer(name, bank), "My money!", **GO)).answer == "Done."
    assert bank.paid == 2


@pytest.mark.parametrize(
    ("tools", "options"),
    [
        (["refund"], GO),
        ([], GO),
        ([], {"session": "s"}),
        (["pay"], {"session": "s", "key": "m3"}),
        (["pay"], {"session": "t", "key": "m2"}),
    ],
    ids=["another tool", "no tool", "no tool and no key", "a new key", "another session"],
)
async def test_beside_a_payment_in_doubt_another_agent_begins(tools: list[str], options: Any) -> None:
    bank = Bank()
    async with left(payer("desk", bank), bank) as record:
        others = [gesta.tool(getattr(bank, tool), effect="once") for tool in tools]
        ended = await record.run(agent("till", *others), "My money!", **options)
        assert ended.answer == ("Done." if tools else "I cannot pay.")


async def test_an_agent_that_has_a_run_in_the_session_goes_on_there() -> None:
    bank = Bank()
    async with left(payer("desk", bank), bank, before=payer("till", bank)) as record:
        assert (await record.run(payer("till", bank), "My money!", **GO)).answer == "Done."


@pytest.mark.parametrize("waits", ["approval", "question", "pure"])
async def test_a_turn_in_which_nothing_was_tried_keeps_nobody_from_beginning(waits: str) -> None:
    bank = Bank(hangs=waits == "pure")

    async def pay(context: gesta.Context) -> str:
        """Pay."""
        if not context.answers and waits == "question":
            raise NeedsAnswer({"from": ToolQuestion("From which account?")})
        return await bank.pay()

    tool = gesta.tool(pay, effect="pure" if waits == "pure" else "once", approval=waits == "approval")
    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record.run(agent("desk", tool), "My money!", **GO))
            await (bank.begun.wait() if waits == "pure" else anyio.wait_all_tasks_blocked())
            group.cancel_scope.cancel()
        ended = await record.run(agent("till", tool), "My money!", **GO)
        assert ended.reason == ("answered" if waits == "pure" else "waiting")


async def test_a_child_run_begins_beside_the_payment_in_doubt_and_so_does_a_fork() -> None:
    bank = Bank()
    above = supervisor("above", payer("cashier", bank))
    async with left(payer("desk", bank), bank, before=above) as record:
        assert (await record.run(above, "My money!", **GO)).answer == "Done."
        assert bank.paid == 2
        base = next(row for row in await record.store.runs("s") if row.name == "desk")
        made = await fork(record, base, Fork(at=base.head))
        assert (await go_on(record, made, payer("desk", bank))).reason == "waiting"
        assert bank.paid == 2


async def test_an_agent_whose_agents_below_have_the_tool_is_refused() -> None:
    bank = Bank()
    above = supervisor("above", payer("cashier", bank))
    async with left(payer("desk", bank), bank) as record:
        with pytest.raises(TurnOpen, match="'pay'"):
            await record.run(above, "My money!", **GO)


def test_the_command_line_refuses_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(PROGRAM.split("agent =", maxsplit=1)[0])
    code = "agent = gesta.Agent('{}', model=gesta.function(choose), tools=[refund])\n"
    seen = list[subprocess.CompletedProcess[str]]()
    for name in ("desk", "till"):
        (tmp_path / "desk.py").write_text(PROGRAM.split("agent =", maxsplit=1)[0] + code.format(name))
        words = ["-m", "gesta", "run", "desk.py:agent", "My money!", "--session", "anna", "--record", "r.gesta"]
        seen.append(programs.run(words, cwd=tmp_path))
    assert (seen[0].returncode, seen[1].returncode) == (-9, 1), sys.executable
    assert "error: Run " in seen[1].stderr
    assert "agent 'desk' of session 'anna'" in seen[1].stderr
    assert "Traceback" not in seen[1].stderr
