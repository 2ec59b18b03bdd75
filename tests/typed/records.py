"""A user's program: both doors to a record."""

import pathlib
from typing import assert_type

import gesta
from gesta.kinds import Kind, UserContent
from gesta.record.answers import Receipt
from gesta.store import QueryBounds, RunRow

agent = gesta.Agent("desk", model="openai:gpt-5-mini")


def hear(event: gesta.Event) -> None:
    """Hear."""
    print(event.type, event.content)


def sync() -> None:
    """Use the synchronous door."""
    where = pathlib.Path("a.gesta")
    with gesta.open_sync(where, readonly=False, grace_s=1.0, queries=QueryBounds(seconds=5)) as record:
        outcome = record.run(agent, "Hi", session="s", key="k", user="ann", listener=hear, deps={"a": 1})
        stream = record.stream(agent, "Hi", session="s", model="openai:gpt-5", settings={"temperature": 0})
        for event in stream:
            hear(event)
        for event in record.follow("ann", after=12):
            hear(event)
        assert_type(stream.outcome, gesta.Outcome[str] | None)
        for each in outcome.waiting:
            run = each.run or outcome.run
            match each.what:
                case "approval":
                    assert_type(record.approve(run, each.call, by="ann", args={"a": 1}), Receipt)
                case "question" | "budget":
                    record.answer(run, "yes", each.of, by="ann")
                case "doubt":
                    record.resolve(run, "done", each.call, by="ann", result=1)
                case _:
                    record.deny(run, by="ann")
        assert_type(record.resume(outcome.run, agent, deps=agent).value, str)
        record.cancel(outcome.run, by="ann", reason="shut")
        record.send(outcome.run, UserContent(value="more"), key="k2")
        print(record.state(outcome.run).open, record.verify(record.heads()), record.report(), record.info)
        assert_type(record.find("last"), RunRow)
        assert_type(record.read(outcome.run, after=5), list[gesta.Entry])
        with record.span("app", session="s", skip={Kind.System}, state={"n": 1}, version="2") as span:
            entry = span.log(UserContent(value="hi"), channel="chat")
            assert_type(entry, gesta.Entry | None)
            span["alpha"] = 1
            with span.span("inner", skip=[Kind.User]) as inner:
                inner["beta"] = 2


async def main() -> None:
    """Use the asynchronous door."""
    async with gesta.open(pathlib.Path("a.gesta")) as record:
        outcome = await record.run(agent, "Hi", listener=hear)
        async for event in record.follow("ann", after="12-0", until_end=True, most=50):
            assert_type(event.id, str | None)
            hear(event)
        assert_type(await record.approve(outcome.waiting[0], by="ann"), Receipt)
        await record.cancel(outcome.run, by="ann")
        async with record.span("app", session="s", skip={Kind.System}, version="2") as log:
            log.log(UserContent(value="hi"), channel="chat")


print(gesta.run_sync(agent, "Hi", record=pathlib.Path("a.gesta"), session="s", user="ann", durability="normal").value)
print(gesta.run_sync(gesta.Agent("again", model=gesta.replay(pathlib.Path("a.gesta"))), "Hi").value)
