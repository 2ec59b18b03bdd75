"""Law 2 over the demo: from every commit, with the refund booked or not, one refund and the same conversation."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from tests.laws.scenes import Tape, again, doubtful, facts

import gesta
from gesta import address
from gesta.address import Record
from gesta.demo import refund_asked, shop
from gesta.demo.driver import drive, staffed
from gesta.function_tool.context import Context
from gesta.kinds import AttemptContent, ToolCallContent
from gesta.store import Batch

SESSION = "s"


def fresh_shop() -> Path:
    path = shop.place(":memory:", SESSION)
    for file in (path, shop.witness(path)):
        file.unlink(missing_ok=True)
    shop.copy(path)
    return path


def book_attempted(path: Path, entries: Sequence[gesta.Entry], *, lost: bool) -> None:
    """Bring a fresh shop to where it was: book the refund if its call is finished, or if its attempt was lost late."""
    open_calls = doubtful(entries)
    calls = {entry.seq: entry for entry in entries}
    for entry in entries:
        if isinstance(entry.content, AttemptContent) and (entry.content.of not in open_calls or lost):
            call = calls[entry.content.of].content
            assert isinstance(call, ToolCallContent)
            if call.tool_name == "refund":
                assert entry.content.key is not None
                shop.book(path, refund_asked(**call.tool_args, context=given(entry.content.key, entry)))


async def nobody(_agent: object, _input: str) -> NoReturn:
    raise AssertionError("no tool here calls an agent")


def given(key: str, entry: gesta.Entry) -> Context:
    return Context(
        record=":memory:",
        run=entry.run,
        session=SESSION,
        user=None,
        call=nobody,
        key=key,
        explain_id=entry.id,
        streaming=False,
        clock=lambda: entry.at,
        respond=lambda _: None,
        cancelled=lambda: False,
    )


async def whole() -> tuple[list[Batch], list[gesta.Entry]]:
    fresh_shop()
    tape = Tape()
    record = Record(tape, address.bind)
    outcome = await drive(record, staffed(None, None), SESSION, "eva")
    return tape.tape, await record.read(outcome.run)


@pytest.mark.sample(2)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("lost", [False, True])
def test_the_demo_resumes_from_every_commit_with_one_refund(
    lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        tape, entries = await whole()
        assert len(tape) > 15
        for end in range(len(tape) + 1):
            path = fresh_shop()
            record = Record(await again(tape[:end]), address.bind)
            if end:
                book_attempted(path, await record.read(tape[0].lease.run), lost=lost)
            outcome = await drive(record, staffed(None, None), SESSION, "eva")
            assert facts(await record.read(outcome.run)) == facts(entries), f"from commit {end}"
            assert shop.count(path) == shop.Count(1, 1)

    anyio.run(main)
