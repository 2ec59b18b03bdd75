"""Calls the agents of tools and hooks in child runs, once each, however often the tool or hook is tried.

An entry is one recorded fact of a run; its seq is its number there. A child run is the run of an agent that a tool of
another run calls. An attempt is one execution of a tool call. The idempotency key of a call is a random text. By this
key, a service can recognise a second attempt and refuse to do the same thing twice.
"""

import hashlib
import os
from collections.abc import Callable
from typing import Any

import anyio
from msgspec import Struct, field

from gesta.agent import Agent
from gesta.decide.budget import returned, share
from gesta.decide.move import depth_error
from gesta.decide.open_call import agent_only_reads
from gesta.entry import Cause
from gesta.errors import AgentError, GestaError, OtherProgram, RecordError, RunError, message_of
from gesta.events import Outcome
from gesta.kinds import EdgeContent, Error, FaultContent, SystemContent
from gesta.perform.execution import LiveRun, Task
from gesta.state.calls import DEPTH, TOO_DEEP, WAITING, WAITS, OpenCall
from gesta.text.redactor import SECRETS

HELD_S = 60.0
"""Longest time in seconds for which a tool's call of an agent is held back; see `_child_number`."""


class Children(Struct):
    """The child runs that a tool starts in one attempt."""

    begun: int = 0
    """Number of child runs started so far, without those that `Context.call_as` named."""
    taken: set[int] = field(default_factory=set)
    """Numbers of these child runs."""
    news: anyio.Event | None = None
    """Set when another number is taken."""
    task: int = 0
    """Id of the asyncio or Trio task in which the tool's function runs."""
    ends: list[Cause] = field(default_factory=list)
    """Run and seq of the `end` entry of each child run that has ended. The tool's result refers to these entries."""
    at_work: list[str] = field(default_factory=list)
    """Names of the child runs that have not ended yet."""
    doubts: set[str] = field(default_factory=set)
    """Names of tools that the ended child runs called. Nobody knows whether these tools had their effect."""
    broken: bool = False
    """Whether the tool has broken off a call of an agent, for example by a timeout of its own."""


class ChildWaits(BaseException):
    """Raised in a tool whose child run cannot continue now, for example because it waits for a person. Do not catch it.

    The exception's arguments are the id of the child run and the reason of the wait.
    """


class TooDeep(GestaError):
    """Raised if agents call agents more levels deep than the policy allows. The model reads this error."""


def idempotency_key(call: OpenCall, record: str, run: str) -> str:
    """Return the idempotency key for the next attempt of a call: 64 hexadecimal digits.

    The key is random for the first attempt, and later attempts use it again. A new key is made if the tool's
    `reconcile` found the old key void (it can no longer have an effect), or if the old key is too old.

    Args:
        call: the open call.
        record: id of the record where the run was made.
        run: id of the run.
    """
    if call.last is None or call.last.renewed:
        return os.urandom(32).hex()
    return call.last.key or call_key(record, run, call.seq)


def call_key(record: str, run: str, seq: int) -> str:
    """Return the idempotency key of a call whose attempt does not contain it: 64 hexadecimal digits.

    Release 0.1.0, with log format 1, computed the key in this way.

    Args:
        record: id of the record where the run was made.
        run: id of the run.
        seq: seq of the tool-call entry.
    """
    return hashlib.sha256(f"{record}|{run}|{seq}".encode()).hexdigest()


class Trial(Struct, frozen=True):
    """Facts about an attempt of a call that is running, such as its seq, its key and its child runs."""

    call: OpenCall
    seq: int
    """Seq of the `attempt` entry."""
    key: str
    """Idempotency key of the attempt."""
    cancelled: Callable[[], bool] = lambda: False
    """Function that returns whether the run has stopped waiting for the attempt."""
    children: Children = field(default_factory=Children)
    resumed: bool = False
    """Whether the previous attempt asked a person, who has answered."""


def attempt_name(live: LiveRun, attempt: int) -> str:
    """Return a name for an attempt that is unique in this process."""
    return f"{live.log.journal.lease.owner} {live.log.run}.{attempt}"


def no_agent_error(given: object) -> AgentError:
    """Return the error that something else was given in place of an agent."""
    return AgentError(f"{given!r:.60} is not an agent. Write gesta.Agent(NAME, model=...), or a variable with one.")


def check_called(agent: object, task: object = "") -> None:
    """Raise AgentError if something else is called in place of an agent, or if the task is not a text."""
    if not isinstance(agent, Agent):
        raise no_agent_error(agent)
    if not isinstance(task, str):
        raise AgentError(f"The agent {agent.name!r} is called with {task!r:.60}, expected a text.")


async def call_agent(live: LiveRun, trial: Trial, part: str, agent: Agent, input: str) -> Outcome:
    """Call another agent in a child run, and return its outcome. A second attempt continues the same child run.

    Args:
        trial: the attempt that calls the agent.
        part: last part of the child run's name; if empty, `_child_number` finds it.
        input: the message to the called agent.
    """
    check_called(agent, input)
    call, attempt, children = trial.call, trial.seq, trial.children
    part = part or str(await _child_number(live, trial, agent, input))
    if part.isdecimal():
        children.begun += 1
        children.taken.add(int(part))
    name = child_name(call) if part == "1" else f"{child_name(call)}.{part}"
    handed = ChildTask(name, f"{live.log.run}.{call.seq}", input, call.name, attempt, children)
    refuse_deep(live, attempt)
    children.at_work.append(name)
    ended = await hand_over(live, agent, handed)
    assert ended.end is not None
    children.at_work.remove(name)
    end_deep(live, attempt, ended)
    children.ends.append((ended.run, ended.end))
    children.doubts.update(ended.doubts)
    return ended


async def _child_number(live: LiveRun, trial: Trial, agent: Agent, input: str) -> int:
    """Return the number of the child run for a tool's call of an agent: the recorded one with this agent and message.

    Among equal calls, the order decides. A new child run begins only when the tool has called all those again that
    earlier attempts began; other tasks of the tool have `HELD_S` seconds to do this.

    Raises:
        OtherProgram: an earlier attempt called another agent, or with another message, and this attempt did not.
    """
    recorded, children, opened = trial.call.children, trial.children, live.state.opened
    shared = opened.base.seq if opened is not None and opened.base is not None else 0  # a fork need not call those
    asked = (agent.name, SECRETS.text(input))
    with anyio.move_on_after(HELD_S):
        while True:
            same = (n for n, each in recorded.items() if (each.agent, each.input) == asked and n not in children.taken)
            left = [n for n, each in recorded.items() if each.edge > shared and n not in children.taken]
            number = next(same, None) or (max((0, *recorded, *children.taken)) + 1 if not left else None)
            if number is not None:
                children.taken.add(number)
                if children.news is not None:
                    children.news.set()
                return number
            if children.task == anyio.get_current_task().id:  # the function waits here, so it calls no other agent
                break
            if children.news is None or children.news.is_set():
                children.news = anyio.Event()
            await children.news.wait()
    before = min((n, each) for n, each in recorded.items() if n not in children.taken)[1]
    found = f"an attempt before this one asked the agent {before.agent!r} {before.input!r:.200}"
    raise OtherProgram(child_name(trial.call), found, f"the same, got the agent {agent.name!r} and {asked[1]!r:.200}")


def refuse_deep(live: LiveRun, cause: int, *, told: bool = True) -> None:
    """Raise TooDeep if the policy does not allow another level of child runs. Also write a `fault` entry.

    If this happens a second time in one turn, or if no model reads the error, the entry ends the turn.

    Args:
        cause: seq of the entry that would have started the child run.
        told: whether a model reads the error.
    """
    error, turn = depth_error(live.limits, live.state), live.state.turn
    if error is not None and turn is not None:
        _note_depth(live, TOO_DEEP if told and not turn.deep else DEPTH, error.message, cause)
        raise TooDeep(f"{error.message.partition('. ')[0]}. Answer without calling another agent.")


def too_deep(reason: str | None, error: Error | None) -> bool:
    """Return whether a child run's turn ended because agents called agents too deeply. Then the calling turn ends too.

    Otherwise the calling agent would try again, and so would the agent that called it: the numbers of calls would
    multiply.
    """
    return reason == "limit" and error is not None and error.type == DEPTH


def end_deep(live: LiveRun, cause: int, ended: Outcome) -> None:
    """Write a `fault` entry that ends the turn, if a child run `ended` because agents called agents too deeply."""
    if ended.end is not None and too_deep(ended.reason, ended.error):
        _note_depth(live, DEPTH, ended.error.message if ended.error else "", cause, (ended.run, ended.end))


def _note_depth(live: LiveRun, type: str, message: str, *causes: Cause) -> None:
    assert live.state.turn is not None
    live.write(FaultContent(of=live.state.turn.begin, error=Error(type=type, message=message)), *causes)


class ChildTask(Struct, frozen=True):
    """A task that a tool, a hook or another part of a run passes to another agent."""

    child: str
    """Name of the child run."""
    key: str
    """Key of the task: a second task with the same key is not done again."""
    input: str
    """The text that the agent is asked."""
    by: str
    """Name of the tool, or of another part of the run such as a hook, that passes the task on."""
    cause: int
    """Seq of the entry that the task was made from."""
    beside: Children = field(default_factory=Children)
    """The child runs of the same tool or hook."""


async def hand_over(live: LiveRun, agent: Agent, task: ChildTask) -> Outcome:
    """Run another agent for a task, in a child run, and return its outcome.

    An `edge` entry that names the child run is written before. The amounts that the child run spent are recorded after,
    unless they are on record because the task was passed before.

    Raises:
        ChildWaits: the child run cannot continue now, or waits for somebody. In a copy of a record that no person
            adopted, the agent may have effects, and the original record may call it too; then no run is named.
        OtherProgram: the child run was begun with another message.
    """
    if live.state.copied and not agent_only_reads(agent):
        raise ChildWaits("", "this record is a copy, and the record that it was copied from may call that agent too")
    source = (*live.log.path, task.by)
    allowance, dest = _allowance(live, task.child), [agent.name]
    content = EdgeContent(source=list(source), dest=dest, payload=task.input, allowance=allowance, child=task.child)
    edge = live.write(content, task.cause).seq
    live.absorb()
    live.log.journal.sync()
    handed = Task(
        name=task.child,
        key=task.key,
        content=SystemContent(value=task.input),
        cause=(live.log.run, edge),
        source=source,
        allowance=allowance,
        left=((task.key,) if task.beside.broken else ()) + _waiting_below(live),
        doubts=(*task.beside.doubts, *_doubted(live)),
    )
    failed: GestaError | None = None
    try:
        ended = await live.host.child(agent, handed, live)
    except (RecordError, RunError) as failure:  # the child's turn is still open, so the model gets no result yet
        if isinstance(failure, OtherProgram) and failure.name == task.child:  # its run is another task's, for ever
            raise
        failed = failure
    except BaseException:
        task.beside.broken = True
        raise
    if failed is not None:  # outside of `except`, so that its context is what the tool was handling, see `doubt_behind`
        raise ChildWaits(await live.host.child_run(task.child, live), message_of(failed)) from failed
    if ended.end is None:
        raise ChildWaits(ended.run, "it waits for somebody")
    spent, turn = returned(edge, allowance, ended.spent), live.state.turn
    if spent is not None and turn is not None and edge in turn.spending.held:
        live.write(spent, edge, (ended.run, ended.end))
    return ended


def _waiting_below(live: LiveRun) -> tuple[str, ...]:
    """Return the keys of the tasks of open calls that wait for a child run, which may have left a call in doubt."""
    waits = [each for each in live.state.calls.values() if each.last is not None and each.last.doubt == WAITS]
    return tuple(f"{live.log.run}.{each.seq}" for each in waits)


def _doubted(live: LiveRun) -> list[str]:
    """Return the names of tools with an open call that may have had an effect, and that nobody works on now."""
    tried = [each for each in live.state.tried().values() if each.in_doubt(live.state.since)]
    return [each.name for each in tried if each.last is not None and each.last.doubt not in WAITING]


def child_name(call: OpenCall) -> str:
    """Return the name of the child run that a call starts: the tool's name, `#` and the seq of the call."""
    return f"{call.name}#{call.seq}"


def _allowance(live: LiveRun, child: str) -> dict[str, Any] | None:
    """Return the amounts that a child run may spend; `None` without a budget.

    The rest of the budget is divided equally among the current calls whose child runs have not begun. If the child run
    was called before, the amounts on record are returned.
    """
    assert live.state.turn is not None
    spending = live.state.turn.spending
    edge = spending.edge_of(child)
    if edge is not None and spending.edges[edge].allowance is not None:
        return spending.edges[edge].allowance
    among = sum(spending.edge_of(child_name(each)) is None for each in live.state.current())
    return share(live.budget, live.state, max(among, 1))
