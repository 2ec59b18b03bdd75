"""A run goes on with the agent that began it, and with no other."""

import anyio
import pytest

import gesta
from gesta.errors import AgentError


@gesta.tool(effect="once", approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"{cents} paid"


refunder = gesta.Agent("refunder", model=gesta.scripted(gesta.call("pay", cents=5), "Paid."), tools=[pay])
script = gesta.scripted(gesta.call("refunder", task="Refund it."), "Your money comes.")
triage = gesta.Agent("triage", model=script, tools=[refunder.as_tool(description="Refunds.")])


async def test_a_child_run_is_not_resumed_with_the_agent_that_called_it() -> None:
    async with gesta.open() as record:
        outcome = await record.run(triage, "Refund it.", session="s")
        (wait,) = outcome.waiting
        receipt = await record.approve(wait, by="ann")
        said = f"agent 'refunder', and 'triage' was given. It was called by run '{outcome.run}'"
        with pytest.raises(AgentError, match=said):
            await record.resume(wait.run, triage)
        ended = await record.resume(receipt.root, triage)
        assert ended.answer == "Your money comes."
        results = [each.content.tool_result for each in await record.read(wait.run) if each.kind == "tool-result"]  # type: ignore[union-attr]
        assert results == ["5 paid"]


async def test_a_run_is_not_resumed_with_an_agent_of_another_name() -> None:
    async with gesta.open() as record:
        outcome = await record.run(refunder, "Refund it.", session="s")
        with pytest.raises(AgentError, match="Resume it with 'refunder'"):
            await record.resume(outcome.run, triage)


async def test_a_call_that_only_reads_and_was_left_is_no_doubt_for_a_person() -> None:
    begun = anyio.Event()

    @gesta.tool(effect="pure")
    async def slow() -> str:
        """Look slowly."""
        begun.set()
        await anyio.sleep_forever()
        return "seen"

    agent = gesta.Agent("looks", model=gesta.scripted(gesta.call("slow"), "Done."), tools=[slow])
    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record.run(agent, "Look.", session="s"))
            await begun.wait()
            group.cancel_scope.cancel()
        assert [each.what for each in await record.waiting("s")] == ["resume"]
