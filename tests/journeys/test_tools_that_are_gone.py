"""What the record and the model read of a call that a person lets be tried again, and that is not tried again."""

from typing import Any

import pytest

import gesta
from gesta.cli.waits import why
from gesta.kinds import ToolResultContent
from gesta.sync import SyncRecord

UNKNOWN = "Whether its earlier attempt happened is not known."
GONE = f"There is no tool 'pay' any more, so this call was not tried again. {UNKNOWN}"


class Till:
    """Counts payments, after each of which nobody knows whether it was made."""

    def __init__(self) -> None:
        self.paid = 0

    def pay(self, cents: int) -> str:
        """Pay."""
        self.paid += 1
        raise gesta.InDoubt("no answer")

    def desk(self, *names: str, **options: Any) -> gesta.Agent:
        tools = [gesta.tool(self.pay, name=name, effect="once", **options) for name in names]
        return gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", cents=5), "ok"), tools=tools)


def results(record: SyncRecord, run: str) -> list[tuple[Any, Any]]:
    contents = [entry.content for entry in record.read(run)]
    return [(each.tool_result, each.outcome) for each in contents if isinstance(each, ToolResultContent)]


@pytest.mark.parametrize(
    ("verdict", "told"),
    [("retry", (GONE, "error")), ("failed", ("The call did not happen.", "error")), ("done", ("sent", "ok"))],
)
@pytest.mark.parametrize("names", [["pay_out"], []], ids=["renamed", "removed"])
def test_a_call_of_a_tool_that_is_gone_is_told_as_what_is_known(verdict: Any, told: tuple[str, str], names: list[str]):
    till = Till()
    with gesta.open_sync() as record:
        outcome = record.run(till.desk("pay"), "go", session="s", key="k")
        record.resolve("s", verdict, by="ann", result="sent" if verdict == "done" else None)
        outcome = record.resume(outcome.run, till.desk(*names))
        assert (outcome.answer, results(record, outcome.run), till.paid) == ("ok", [told], 1)


@pytest.mark.parametrize("verdict", ["denied", "answered"])
def test_a_call_that_may_be_tried_again_is_not_made_if_its_new_approval_does_not_allow_it(verdict: str) -> None:
    till = Till()
    with gesta.open_sync() as record:
        outcome = record.run(till.desk("pay"), "go", session="s", key="k")
        record.resolve("s", "retry", by="ann")
        outcome = record.resume(outcome.run, till.desk("pay", approval=True))
        assert [each.what for each in outcome.waiting] == ["approval"]
        if verdict == "denied":
            record.deny("s", by="ann", reason="Not now.")
            told = (f"A person did not allow this call. They said: Not now. {UNKNOWN}", "denied")
        else:
            record.answer(outcome.waiting[0], "paid by hand", by="ann")
            told = ("paid by hand", "ok")
        outcome = record.resume(outcome.run, till.desk("pay", approval=True))
        assert (outcome.answer, results(record, outcome.run), till.paid) == ("ok", [told], 1)


def test_a_doubt_about_a_tool_that_is_gone_says_so_while_it_waits() -> None:
    till = Till()
    with gesta.open_sync() as record:
        first = record.run(till.desk("pay"), "go", session="s", key="k")
        assert [each.why for each in first.waiting] == ["no answer"]
        again = record.resume(first.run, till.desk("pay_out"))
        gone = "the agent 'desk' has no tool 'pay' any more (its tools: pay_out)"
        assert [each.why for each in again.waiting] == [f"no answer; {gone}"]
        assert f"\nThe reason: no answer; {gone}" in why(again.waiting[0])
        assert record.waiting(first.run) == list(first.waiting)
