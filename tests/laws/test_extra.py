"""Whatever stands in `extra`, on any entry: no prompt, no move, no table and no picture of the run is another one."""

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.journeys.test_budgets import USAGE, Cents
from tests.seeds.test_002_tasks import Square, task

import gesta
from gesta import address
from gesta.cli.transcript import line_of
from gesta.codec.rows import digest_of
from gesta.codec.upcasts import LIFTED
from gesta.compare.differences import said
from gesta.compat.langchain.steps import steps
from gesta.compat.langroid.task_log import task_log
from gesta.decide.move import decide
from gesta.entry import Entry, fold
from gesta.formatters.codeact_text import CodeActText
from gesta.formatters.react_text import ReActText
from gesta.formatters.tool_calls import ToolCalls
from gesta.kinds import AnswerContent, ApprovalContent
from gesta.policy import Compact
from gesta.prompt import Prompt
from gesta.record.record import Record
from gesta.state.run import RunView
from gesta.views.lineage import Lineage, nodes_of, unexplained
from gesta.views.prov import quads

FORMATTERS = (ToolCalls(), ReActText(), CodeActText())
POLICY = gesta.Policy(
    budget=gesta.Budget(usd=1.0, when_spent="ask"), compact=Compact(at_tokens=110, keep_turns=0, results_over=None)
)


class Sum(msgspec.Struct):
    """What the agent answers."""

    cents: int


def worker() -> gesta.Agent[Any]:
    """An agent with states, an approval, a child, a budget, a compaction, and an answer that is corrected."""

    def unlock() -> str:
        return "unlocked " * 40

    def pay(cents: int) -> dict[str, int]:
        return {"paid": cents}

    def fail() -> str:
        raise ValueError("no")

    helper = gesta.Agent("helper", model=gesta.scripted(gesta.reply("Helped.", usage=USAGE)), price=Cents())
    script: list[Any] = [
        *(gesta.call("unlock"), gesta.call("pay", cents=5), gesta.call("fail"), gesta.call("helper", task="Help.")),
        *('{"cents": "many"}', '{"cents": 5}', gesta.call("unlock"), '{"cents": 0}'),
    ]
    return gesta.Agent(
        "worker",
        model=gesta.scripted(
            *(
                gesta.reply(each, usage=USAGE) if isinstance(each, str) else gesta.reply(calls=[each], usage=USAGE)
                for each in script
            )
        ),
        tools=[
            gesta.tool(unlock, effect="pure", state="open"),
            gesta.tool(pay, effect="once", approval=True, applicable_states="open"),
            gesta.tool(fail, effect="pure"),
            helper.as_tool(),
        ],
        output=Sum,
        policy=POLICY,
        price=Cents(),
        settings={"max_tokens": 50},
    )


async def played(record: Record, agent: gesta.Agent[Any]) -> str:
    """Have two turns, with every approval given and a little more money each time."""
    for text in ("Pay it.", "Again."):
        outcome = await record.run(agent, text, session="s")
        for n in range(40):
            if not outcome.waiting:
                break
            (waiting,) = outcome.waiting
            answer: Any = AnswerContent(of=waiting.of or 0, value=0.6, by="ann")
            if waiting.what == "approval":
                answer = ApprovalContent(of=waiting.of or 0, verdict="approved", by="ann")
            await record.send(waiting.run or outcome.run, answer, key=f"{text}{n}")
            outcome = await record.resume(outcome.run, agent)
        assert outcome.reason == "answered", outcome
    return outcome.run


@functools.cache
def runs() -> tuple[tuple[Entry, ...], ...]:
    """Runs of an agent, of its child, and of tasks that hand documents on."""

    async def main() -> list[tuple[Entry, ...]]:
        async with gesta.open() as record:
            await played(record, worker())
            return [tuple(await record.read(row.run)) for row in await record.store.runs()]

    made = task(
        "top", gesta.call("square", num=3), "Look at 9.", "DONE 9", tools=[Square], subs=[task("sub", "DONE It is 9.")]
    )
    made.run("Square it.")

    async def read() -> list[tuple[Entry, ...]]:
        record = made.chat.home.record
        return [tuple(await record.read(row.run)) for row in await record.store.runs(made.session)]

    return (*anyio.run(main), *made.chat.wait_for(read, "read"))


def bare(value: Any) -> Any:
    """A value without any `extra` in it, as far down as contents stand."""
    if isinstance(value, Mapping):
        return {str(key): bare(each) for key, each in value.items() if key != "extra"}
    if isinstance(value, list | tuple | set | frozenset):
        return [bare(each) for each in (sorted(value, key=repr) if isinstance(value, set | frozenset) else value)]
    return value


def plain(value: Any) -> str:
    return json.dumps(bare(msgspec.to_builtins(value, enc_hook=repr)), default=repr, sort_keys=True)


def pictures(entries: Iterable[Entry]) -> Any:
    """All that Gesta makes of the entries of a run, but for what shows `extra` itself."""
    entries = list(entries)
    agent = address.bind(worker())
    state = RunView().start()
    yield from ()
    for entry in entries:
        state = RunView().apply(state, entry)
        yield "line", line_of(entry, "worker")
        yield "said", digest_of(said(entry))
        if state.open and state.opened is not None and state.opened.name == "worker":
            yield "move", plain(decide(agent, state))
    yield "state", plain(state)
    for formatter in FORMATTERS:
        prompt = Prompt(formatter, gesta.scripted())
        for entry in entries:
            prompt.add(entry)
        prompt.close()
        yield formatter.name, prompt.blocks
    lineage = fold(Lineage(), entries)
    nodes = nodes_of(lineage)[0]
    yield "lineage", (nodes, unexplained(entries), list(quads(nodes, lineage)))
    yield "task log", task_log(entries)
    yield "steps", steps(entries)


NAMES = sorted(
    {name for lifted in LIFTED.values() for pair in lifted.items() for name in pair} | {"recipient", "block"}
)
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [True, 0, 1, 3, 10**9, "open", "usd", "ann", "r.1", ["ann"], {"usd": 0.0}, {"type": "T", "message": "m"}, None]
)
EXTRAS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(NAMES) | st.text(max_size=3), VALUES | st.builds(dict, metadata=VALUES)
)


def test_the_runs_hold_what_steers_in_its_fields() -> None:
    """Else the law would say nothing."""
    found = {
        (str(entry.kind), name)
        for entries in runs()
        for entry in entries
        for name in LIFTED.get(entry.kind, {}).values()
        if getattr(entry.content, name) not in (None, False)
    }
    assert found >= {
        *(("tool-result", "state"), ("tool-result", "error"), ("system", "source"), ("system", "corrects")),
        *(("question", "raises"), ("edge", "child"), ("begin", "allowance"), ("compaction", "tokens")),
        *(("attempt", "effect"), ("system", "document")),
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("place", range(4))
@settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))  # to find the smallest example takes minutes
@given(data=st.data())
def test_extra_changes_nothing(place: int, data: st.DataObject) -> None:
    entries = runs()[place]
    cut = data.draw(st.integers(1, len(entries)))
    changed = [
        structs.replace(entry, content=structs.replace(entry.content, extra=data.draw(EXTRAS) or None))
        for entry in entries[:cut]
    ]
    for before, after in zip(pictures(entries[:cut]), pictures(changed), strict=True):
        assert before == after
