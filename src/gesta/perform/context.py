"""Makes the context of a tool call: facts about the call, and functions that send words to listeners or call an agent.

Hooks and functions that make instructions get such a context, too. A child run is the run of an agent that a tool of
another run calls. An attempt is one execution of a tool call.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token
from msgspec.structs import replace

from gesta.codec.fitting import unfit
from gesta.errors import AgentError, GestaError, LeaseLost
from gesta.events import ObservationEvent, Outcome
from gesta.function_tool.context import Context
from gesta.kinds import Hit, RetrievalContent
from gesta.perform.call_contents import plain
from gesta.perform.child import Trial, attempt_name, call_agent
from gesta.perform.execution import LiveRun
from gesta.perform.threads import NO_LOOP, popen


def context_of(trial: Trial, live: LiveRun) -> Context:
    """Return the `gesta.Context` that the tool gets for one attempt of a call."""
    call, attempt = trial.call, trial.seq
    trial.children.task = anyio.get_current_task().id
    return Context(
        **_facts(live, call.seq, trial.cancelled),
        key=trial.key,
        explain_id=f"{live.log.run}.{attempt}",
        call=partial(call_agent, live, trial, ""),
        call_as=partial(call_agent, live, trial),
        found=_in_loop(_write_retrieval, live, attempt),
        popen=partial(popen, attempt_name(live, attempt), live.log.journal.store.descriptor()),
        answers=dict(call.answers),
        state=call.state,
        resumed=trial.resumed,
    )


def turn_context(live: LiveRun) -> Context:
    """Return the context for a function that is called for a whole turn, such as a hook. Its `key` is empty."""
    turn = live.state.turn
    assert turn is not None
    facts = _facts(live, turn.begin, lambda: live.stop.asked)
    return Context(**facts, key="", explain_id=f"{live.log.run}.{turn.begin}", call=no_agent)


def _facts(live: LiveRun, seq: int, cancelled: Callable[[], bool]) -> dict[str, Any]:
    """Return the fields of a context that do not depend on what it is for.

    Args:
        seq: seq of the entry with which the tracing span of the context begins.
        cancelled: returns whether nobody waits any more for the function that gets the context.
    """
    opened, span = live.state.opened, live.span(seq)
    assert opened is not None
    return {
        "record": live.record,
        "run": live.log.run,
        "session": opened.session,
        "user": live.state.user,
        "streaming": bool(live.broadcast.listeners),
        "clock": live.clock,
        "respond": _in_loop(_respond, live, cancelled),
        "cancelled": cancelled,
        "deps": live.deps,
        "traceparent": None if span is None else str(span),
    }


async def no_agent(*_: Any) -> Outcome:
    """Raise GestaError, because only a tool call may call an agent."""
    raise GestaError("context.call is for tools: only their calls are on record, so that an agent is called once.")


def _respond(live: LiveRun, cancelled: Callable[[], bool], text: str) -> None:
    if not cancelled():
        live.tell(ObservationEvent, text)


def _write_retrieval(live: LiveRun, attempt: int, query: str, hits: Sequence[Hit]) -> None:
    content = RetrievalContent(query=query, hits=list(hits))
    if (wrong := unfit(replace(content, hits=plain(content.hits)))) is not None:  # no explanation could be read
        raise AgentError(f"context.found(...): {wrong}. Expected found(text, [gesta.kinds.Hit(...)]).")
    with suppress(LeaseLost):  # a thread may outlive the turn that began it
        live.write(content, attempt)


def _in_loop(do: Callable[..., None], *args: Any) -> Callable[..., None]:
    """Return a function that calls `do` in the present event loop, from wherever it is called.

    That may be a task or a callback of this loop, or another thread, which may have a loop of its own.
    """
    token, thread = current_token(), get_ident()

    def call(*more: Any) -> None:
        if get_ident() == thread:
            do(*args, *more)
        else:
            with suppress(*NO_LOOP):  # a thread may outlive the loop that began it
                from_thread.run_sync(partial(do, *args, *more), token=token)

    return call
