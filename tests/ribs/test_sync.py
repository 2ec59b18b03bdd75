"""The synchronous door does what the asynchronous one does, without an event loop."""

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

import gesta
from gesta.decide.approval import SignedApprovals, asked, sign
from gesta.errors import NotWaiting, OtherMessage
from gesta.kinds import ApprovalContent, Kind, SystemContent, UserContent
from gesta.store import QueryBounds
from gesta.sync import SyncRecord

PAID: list[int] = []
KEY = b"k" * 32
WHERE = "`record.waiting(run)` and `gesta runs` list what waits."
WHICH = "Write one of these, with the run that it names, or pass an element of outcome.waiting."


@gesta.tool(effect="once", approval=True)
def pay(euros: int) -> str:
    """Pay."""
    PAID.append(euros)
    return f"{euros} paid"


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def clerk(*calls: Any) -> gesta.Agent:
    return gesta.Agent("clerk", model=gesta.scripted(*(calls or (gesta.call("pay", euros=5),)), "Done."), tools=[pay])


ASYNC_ONLY = {
    "close": "the block that opened a record closes it",
    "now": "for the library's own use",
    "start": "a task of the record's own needs an event loop",
}


def public(door: type) -> dict[str, Any]:
    return {name: getattr(door, name) for name in dir(door) if not name.startswith("_") and name not in ASYNC_ONLY}


def test_both_doors_have_the_same_methods_with_the_same_parameters():
    one, other = public(gesta.Record), public(SyncRecord)
    assert sorted(one) == sorted(other)
    for name in one:
        if callable(one[name]):
            ours, theirs = (list(inspect.signature(door[name]).parameters.values()) for door in (one, other))
            assert ours == theirs, name


def test_a_person_approves_and_the_turn_goes_on(tmp_path: Path):
    path = tmp_path / "a.gesta"
    with gesta.open_sync(path) as record:
        run = record.run(clerk(), "Pay.", session="s", key="k", user="ann").run
        assert record.state(run).open
        assert record.approve(run, by="ann")
        assert record.approve(run, by="bob").again, "that was said before"
        assert record.resume(run, clerk()).value == "Done."
        assert record.verify() == record.verify(record.heads()) == record.report().flaws == []
        assert record.find("s").run == run
    with gesta.open_sync(path, readonly=True) as record, pytest.raises(gesta.GestaError, match="for reading only"):
        record.run(clerk(), "Again", session="t")
    assert PAID == [5]


def test_a_person_denies_changes_arguments_and_cancels():
    with gesta.open_sync() as record:
        denied = record.run(clerk(), "Pay.", session="a").run
        assert record.deny(denied, by="ann", reason="too dear")
        record.resume(denied, clerk())
        changed = record.run(clerk(), "Pay.", session="b").run
        assert record.approve(changed, by="ann", args={"euros": 2})
        record.resume(changed, clerk())
        cancelled = record.run(clerk(), "Pay.", session="c").run
        ended = record.cancel(cancelled, by="ann", reason="shut")
        assert ended is not None
        assert ended.reason == "cancelled"
        with pytest.raises(NotWaiting, match="has no open turn"):
            record.cancel(cancelled, by="ann")
    assert PAID == [2]


def test_a_word_about_nothing_or_about_several_things_says_what_waits():
    agent = clerk([gesta.call("pay", euros=1), gesta.call("pay", euros=2)])
    with gesta.open_sync() as record:
        run = record.run(agent, "Pay.", session="s").run
        first, second = record.state(run).calls
        named = f"call={first} (pay), call={second} (pay)"
        for attempt, said in (
            (
                lambda: record.approve(run, by="ann"),
                f"has 2 of them, expected one call that waits for approval: {named}. {WHICH}",
            ),
            (
                lambda: record.deny(run, 99, by="ann"),
                f"has no call that waits for approval with seq 99; it has {named}. Write that, or pass an element of outcome.waiting.",
            ),
            (
                lambda: record.answer(run, "yes", by="ann"),
                f"has no question that waits, nor has a run below it; what waits: approval of pay, approval of pay. {WHERE}",
            ),
            (
                lambda: record.resolve(run, "done", by="ann"),
                f"has no call in doubt, nor has a run below it; what waits: approval of pay, approval of pay. {WHERE}",
            ),
        ):
            with pytest.raises(NotWaiting) as refused:
                attempt()
            assert str(refused.value) == f"Run {run!r} {said}"
        assert record.approve(run, second, by="ann")
        record.resume(run, agent)
    assert PAID == [2]


def test_a_question_is_answered_and_the_answer_has_to_fit():
    async def program(verbs: gesta.Verbs, _text: str) -> int:
        return int(await verbs.ask("many", "How many?", {"type": "integer"})) + 1

    agent = gesta.Agent("asker", program=program)
    with gesta.open_sync() as record:
        run = record.run(agent, "Go", session="s").run
        with pytest.raises(gesta.GestaError) as refused:
            record.answer(run, "three", by="ann")
        assert str(refused.value) == (
            'The answer is "three", expected JSON of type integer. The question was: How many?'
        )
        assert record.answer(run, 3, by="ann")
        assert record.resume(run, agent).value + 1 == 5


def test_a_doubt_is_resolved():
    @gesta.tool(effect="once")
    def order() -> str:
        """Order."""
        raise gesta.InDoubt("the line went dead")

    agent = gesta.Agent("buyer", model=gesta.scripted(gesta.call("order"), "Ordered."), tools=[order])
    with gesta.open_sync() as record:
        outcome = record.run(agent, "Order.", session="s")
        assert [each.what for each in outcome.waiting] == ["doubt"]
        assert record.resolve(outcome.run, "done", by="ann", result="order 7")
        assert record.resume(outcome.run, agent).value == "Ordered."


def test_an_approver_judges_at_the_synchronous_door(tmp_path: Path):
    path, approver = tmp_path / "a.gesta", SignedApprovals({"cfo": KEY})
    waiting = gesta.run_sync(clerk(), "Pay.", record=path, session="s", key="k", approver=approver)
    with gesta.open_sync(path, approver=approver, queries=QueryBounds(seconds=5), grace_s=0) as record:
        assert record.approve(waiting.run, by="cfo")
        assert record.resume(waiting.run, clerk()).reason == "waiting", "a name is not a proof"
        (about,) = gesta.address.drive(asked(record.record.store, waiting.run))
        token = sign(ApprovalContent(of=about.request, verdict="approved", by="cfo"), about, KEY).token
        assert record.approve(waiting.run, by="cfo", token=token)
    assert gesta.run_sync(clerk(), "Pay.", record=path, session="s", key="k", approver=approver).reason == "answered"
    assert PAID == [5]


@pytest.mark.parametrize("store", ["file", "postgres"])
def test_a_record_that_is_closed_while_another_thread_pays_sees_the_payment_through(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = str(tmp_path / "a.gesta") if store == "file" else str(request.getfixturevalue("emptied"))
    paying, looking, closing = (threading.Event() for _ in range(3))
    paid = list[int]()

    @gesta.tool(effect="once")
    def pay(euros: int) -> str:
        """Pay."""
        paying.set()
        assert closing.wait(60)
        paid.append(euros)
        return "paid"

    @gesta.tool(effect="pure")
    async def look() -> str:
        """Look, until the turn is asked to stop."""
        looking.set()
        try:
            while not paid:
                await anyio.sleep_forever()
        finally:
            closing.set()
        return "seen"

    calls = [gesta.call("look"), gesta.call("pay", euros=5)]
    agent = gesta.Agent("clerk", model=gesta.scripted(calls, "Done."), tools=[pay, look])
    with ThreadPoolExecutor(1) as pool:
        with gesta.open_sync(where) as record:
            turn = pool.submit(record.run, agent, "Pay.", session="s", key="m1")
            assert paying.wait(60)
            assert looking.wait(60)
        assert closing.is_set(), "the turn was asked to stop before the record was closed"
        with pytest.raises(gesta.GestaError, match="broken off, for its record was closed"):
            turn.result(60)
    with gesta.open_sync(where) as record:
        assert record.run(agent, "Pay.", session="s", key="m1").answer == "Done."
    assert paid == [5]


def test_a_stream_gives_events_and_then_its_outcome():
    with gesta.open_sync() as record:
        stream = record.stream(gesta.Agent("desk", model=gesta.scripted("Hello.")), "Hi", session="s")
        assert stream.outcome is None
        kinds = [event.type for event in stream if record.state(event.run).open is not None]
        assert "answer" in kinds
        assert stream.outcome is not None
        assert stream.outcome.value == "Hello."
        with pytest.raises(gesta.GestaError, match=r"Call record\.stream"):
            list(stream)


@pytest.mark.parametrize(("when_left", "reason"), [("go-on", "answered"), ("stop", None)])
def test_a_reader_that_leaves_a_stream_leaves_the_turn_as_the_policy_says(when_left: Any, reason: str | None):
    @gesta.tool(effect="pure")
    async def look() -> str:
        """Look."""
        looks.append(1)
        if when_left == "stop" and len(looks) == 1:
            await anyio.sleep_forever()
        return "seen"

    looks: list[int] = []
    model = gesta.scripted(gesta.call("look"), "Done.")
    agent = gesta.Agent("desk", model=model, tools=[look], policy=gesta.Policy(when_left=when_left))
    with gesta.open_sync() as record:
        stream = record.stream(agent, "Hi", session="s", key="k")
        for _event in stream:
            break
        assert (stream.outcome.reason if stream.outcome is not None else None) == reason
        assert record.run(agent, "Hi", session="s", key="k").value == "Done."


def test_a_turn_that_fails_fails_its_stream():
    with gesta.open_sync() as record:
        agent = gesta.Agent("desk", model=gesta.scripted("Hello."))
        record.run(agent, "Hi", session="s", key="k")
        with pytest.raises(OtherMessage):
            list(record.stream(agent, "Bye", session="s", key="k"))


async def test_inside_an_event_loop_each_method_names_its_twin():
    agent = clerk()
    with gesta.open_sync() as record:
        for name, attempt in (
            ("run", lambda: record.run(agent, "Hi")),
            ("stream", lambda: list(record.stream(agent, "Hi"))),
            ("resume", lambda: record.resume("x", agent)),
            ("cancel", lambda: record.cancel("x", by="ann")),
        ):
            with pytest.raises(gesta.GestaError, match=f"and await Record.{name} in it"):
                attempt()


def test_an_option_that_is_misspelt_is_named():
    with pytest.raises(TypeError) as refused:
        gesta.run_sync(clerk(), "Hi", sesion="s")  # type: ignore[call-arg] # that is the point
    assert str(refused.value).startswith(
        "gesta.run_sync has no option 'sesion'. Did you mean 'session'? It has: record, "
    )


@pytest.mark.parametrize(
    ("name", "meant"), [("skipp", "skip"), ("skpi", "skip"), ("stat", "state"), ("sesion", "session")]
)
async def test_a_misspelt_parameter_of_a_span_is_no_annotation(name: str, meant: str):
    said = (
        f"span(...) has no parameter {name!r}. Did you mean {meant!r}? If it is meant as an annotation, write another "
        "name."
    )
    misspelt: dict[str, Any] = {name: {Kind.System}}
    with gesta.open_sync() as record:
        with pytest.raises(TypeError) as refused, record.span("app", session="s", **misspelt):
            pass
        assert str(refused.value) == said
        with record.span("app", session="s", skip={Kind.System}, stage="test", version="2") as span:
            with pytest.raises(TypeError) as refused, span.span("in", **misspelt):
                pass
            assert str(refused.value) == said
            assert span.log(SystemContent(value="left out")) is None
            assert span.log(UserContent(value="kept")) is not None


def test_the_value_of_a_turn_without_an_answer_says_what_it_lacks():
    with gesta.open_sync() as record:
        waiting = record.run(clerk(), "Pay.", session="s")
        with pytest.raises(gesta.GestaError) as refused:
            _ = waiting.value
        said = "waits, so it has no value. outcome.waiting says what for."
        assert str(refused.value) == f"The turn of run {waiting.run!r} {said}"
        ended = record.cancel(waiting.run, by="ann")
        assert ended is not None
        with pytest.raises(gesta.GestaError) as refused:
            _ = ended.value
        why = ended.error.message if ended.error else ""
        said = f"ended with reason 'cancelled' ({why}), so it has no value. Look at outcome.reason first."
        assert str(refused.value) == f"The turn of run {waiting.run!r} {said}"
