"""A fork continues a recorded run, its base, from one entry: with another model, changed words, or another result.

The fork shares the entries of the base up to that point without copying them. A changed entry is written to the fork,
with the old entry among its causes. What follows is made anew: the agent runs again, and it gets the messages that
people sent to the base after that point. A seq is the number of an entry in its run. A turn is the work on one message.
A session is a group of runs.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gesta.address import bind
from gesta.agent import Agent
from gesta.codec.rows import decode_content
from gesta.compare.outside import FROM, begins_turn, opens
from gesta.compare.same import stored, told, wrapped
from gesta.compare.texts import changed, nothing
from gesta.entry import GENESIS, Cause, Entry, run_id
from gesta.errors import AgentError, RunError, nearest
from gesta.events import Outcome
from gesta.function_tool.output import T
from gesta.kinds import (
    ApprovalContent,
    ApprovalRequestContent,
    AttemptContent,
    BeginContent,
    ChatCompletionContent,
    Content,
    EndContent,
    Forked,
    Kind,
    Opened,
    RequestContent,
    ResolutionContent,
    ToolCallContent,
    UserContent,
)
from gesta.log.journal import Journal, read
from gesta.models.replay import replay
from gesta.prompt import rebuild
from gesta.record.record import Record, typed
from gesta.state.opening import Opening
from gesta.store import Batch, RunRow
from gesta.text.objects import json_of

CHANGEABLE = (
    *(Kind.User, Kind.System, Kind.ChatCompletion, Kind.Thought, Kind.ToolCall, Kind.ToolResult),
    *(Kind.Answer, Kind.Approval, Kind.Resolution, Kind.Retrieval),
)
"""Kinds of entries that a fork may change: they come from people, models and tools.

The agent's code makes all others.
"""
BROUGHT = (Kind.System, Kind.Compaction)
"""Kinds of entries that an agent's hook adds right after its check: a text for the model, or a range to hide."""
REPLY = (Kind.Thought, Kind.ToolCall)
"""Kinds of entries that are part of a model's reply, written right after its completion."""


class Change(Struct, frozen=True):
    """One value that a fork replaces in an entry."""

    seq: int
    path: str
    """Path of the value in the entry's content, for example `tool_result.items[0].price`."""
    value: Any


class Fork(Struct, frozen=True, kw_only=True):
    """The settings of a fork: where it begins, and what it changes."""

    at: int | None = None
    """Seq of the last entry that the fork shares; 0 for none.

    By default: the entry before the changed entry, or the base's last entry if nothing is changed.
    """
    changes: Sequence[Change] = ()
    """Values to replace, all of them in one entry."""
    live: Sequence[str] = ()
    """Names of tools that may really run in the fork.

    Without a recorded result, only these and tools that only read may run.
    """
    session: str | None = None
    """Name of the fork's session; by default the name of the base's session with a number added."""


def change(text: str) -> Change:
    """Return the change that a text `SEQ.PATH=VALUE` describes. A value that is not JSON is used as a string.

    Raises:
        AgentError: the text does not have this form.
    """
    found = re.fullmatch(r"(\d+)\.([^=]+)=(.*)", text, re.DOTALL)
    if found is None:
        raise AgentError(f"Cannot change {text!r}: write SEQ.PATH=VALUE, as in 8.tool_result.status=lost.")
    try:
        value = json_of(found[3])
    except (ValueError, RecursionError):
        value = found[3]
    return Change(int(found[1]), found[2], value)


async def fork(record: Record, base: RunRow, how: Fork) -> RunRow:
    """Make a fork of a run, and return its row in the table of runs. The agent is not run yet.

    Raises:
        AgentError: there is no such entry, or it cannot be changed in this way.
        RunError: the fork's session already has a run of this name, or the base lost entries.
    """
    entries = await record.read(base.run)
    shared, own = _parts(entries, how)
    opened, store = next(each.content.opened for each in reversed(entries) if _opens(each)), record.store  # type: ignore[union-attr]
    assert opened is not None
    session = how.session or await _session(record, base)
    digest = entries[shared - 1].digest if shared else GENESIS
    forked = Forked(run=base.run, seq=shared, digest=digest.hex(), live=list(how.live) or None)
    made = Opened(session=session, name=opened.name, record=store.info.id, base=forked)
    run = run_id(store.info.id, session, opened.name)
    async with record.turns.leases.leased(run) as lease:
        if lease.head:
            raise RunError(
                f"There is a run {opened.name!r} in session {session!r} already. Name another: --session NAME."
            )
        await store.append(Batch(lease, 0, (), synced=True))  # a crash of the server may have lost the end of the base
        if shared and digest not in [each.digest for each in await read(store, base.run, shared - 1, shared)]:
            raise RunError(f"Run {base.run!r} is no longer as it was read: entry {shared} is gone. Fork it again.")
        journal = Journal(store, msgspec.structs.replace(lease, head=shared, digest=digest), record.turns.clock)
        begin = journal.write(BeginContent(name="fork", role="fork", opened=made), 0)
        journal.write(EndContent(), begin.seq)
        _write(journal, own, base.run)
        await journal.durable()
    return await record.find(run)


async def go_on(record: Record, fork: RunRow, agent: Agent[T]) -> Outcome[T]:
    """Send a fork the messages that people sent to its base after the shared entries, one after another.

    An open turn of the fork is resumed first. If a turn waits for somebody, no further message is sent. Returns the
    outcome of the last turn.

    Raises:
        NoRun: no turn of the fork is open, and the base has no further message of a person.
    """
    entries = await record.read(fork.run)
    begin = next(each for each in reversed(entries) if _opens(each))
    assert isinstance(begin.content, BeginContent) and begin.content.opened is not None
    base = begin.content.opened.base
    assert base is not None, f"run {fork.run} is not a fork"
    state = await record.state(fork.run)
    ended = await record.resume(fork.run, agent) if state.open else None
    said = await record.read(base.run)
    for entry in said[base.seq :]:
        if ended is not None and ended.end is None:
            break
        if isinstance(entry.content, UserContent) and opens(said, entry) and entry.span > base.seq:
            turn = said[entry.span - 1].content
            assert isinstance(turn, BeginContent)
            opening = Opening(name=fork.name, session=fork.session, content=entry.content, key=turn.key)
            ended = typed(agent, await record.turns.take(agent, opening))
    return ended or await record.resume(fork.run, agent)


def recorded_model(entries: Sequence[Entry], agent: Agent[Any]) -> Agent[Any]:
    """Return a copy of the agent, with a model that repeats the recorded answers of a run.

    The model streams if the first request of the run asked for streaming. To find out, the request is rebuilt both
    ways and compared with the digest of the recorded one.
    """
    asked = next((each for each in entries if isinstance(each.content, RequestContent)), None)
    for stream in (False, True):
        acting = bind(msgspec.structs.replace(agent, model=replay(entries, stream=stream)))
        if asked is not None:
            made = rebuild(entries, asked.seq, acting.formatter, acting.model)  # type: ignore[arg-type]
            if made.digest == asked.content.body_digest:  # type: ignore[union-attr]
                break
    return acting


def asked_otherwise(base: Sequence[Entry], fork: Sequence[Entry]) -> list[int]:
    """Return the seqs of a fork's requests whose bodies are equal to no request of the base.

    The base has no answers to these requests, so a recorded model returned answers to other requests. The list is empty
    if the base has no requests.
    """
    known = {each.content.body_digest for each in base if isinstance(each.content, RequestContent)}
    asked = [(each.seq, each.content) for each in fork if known and isinstance(each.content, RequestContent)]
    return [seq for seq, content in asked if content.body_digest not in known]


def _opens(entry: Entry) -> bool:
    return isinstance(entry.content, BeginContent) and entry.content.opened is not None


async def _session(record: Record, base: RunRow) -> str:
    """Return the first unused session name of the form `SESSION~NUMBER`, where SESSION is the session of the base."""
    number = 1
    while await record.store.runs(f"{base.session}~{number}"):
        number += 1
    return f"{base.session}~{number}"


def _parts(entries: Sequence[Entry], how: Fork) -> tuple[int, list[Entry]]:
    """Return the number of entries that the fork shares with its base, and the entries to write to the fork.

    The entries to write are the changed entry and, if it is part of a model's reply, the rest of the reply. If nothing
    is changed, there are none.

    Raises:
        AgentError: the entry to change does not exist, or its kind cannot be changed.
    """
    seqs = sorted({each.seq for each in how.changes})
    if len(seqs) > 1:
        raise AgentError(
            f"Entries {seqs[0]} and {seqs[1]} are both to be changed, but what comes after the first is "
            "made anew. Change one of them."
        )
    at = how.at if how.at is not None else (seqs[0] if seqs else len(entries))
    for seq in (at, *seqs):
        if not 0 <= seq <= len(entries) or (seqs and seq == 0):
            raise AgentError(
                f"There is no entry {seq}; the run has {len(entries)}. Name one of them: `gesta log` shows them."
            )
    if not seqs:
        return _together(entries, at), []
    (seq,) = seqs
    if at not in (seq, seq - 1):
        raise AgentError(
            f"Entry {seq} is to be changed, so a fork shares the {seq - 1} before it: leave --at out, got {at}."
        )
    entry = entries[seq - 1]
    if entry.kind not in CHANGEABLE:
        known = ", ".join(CHANGEABLE)
        raise AgentError(f"Entry {seq} is a {entry.kind}, which follows from others. What can be changed: {known}.")
    content = stored(entry.content)
    for each in how.changes:
        _set(content, each)
    made = decode_content(json.dumps(content), {})
    if isinstance(made, ChatCompletionContent) and told(made) != told(entry.content):
        made = msgspec.structs.replace(made, meta=None)  # the recorded bytes no longer fit the changed entry
    _allow(entries, entry, made, how)
    rest = entries[seq : _end_of_reply(entries, seq)]
    return seq - 1, [msgspec.structs.replace(entry, content=made), *rest]


def _allow(entries: Sequence[Entry], entry: Entry, made: Content, how: Fork) -> None:
    """Raise AgentError if a changed approval or resolution would make a tool run that `how.live` does not name.

    A resolution is a person's decision about a tool call that may or may not have had its effect.

    Args:
        entries: the entries of the base.
        entry: the approval or resolution as it was recorded.
        made: its changed content.
    """
    if isinstance(made, ApprovalContent) and made.verdict == "approved":
        said = "approve"
    elif isinstance(made, ResolutionContent) and made.verdict == "retry":
        said = "resolve"
    else:
        return
    asked = entries[made.of - 1].content if 0 < made.of <= len(entries) else None
    of = asked.of if isinstance(asked, ApprovalRequestContent | AttemptContent) else 0
    call = entries[of - 1].content if of else None
    if not isinstance(call, ToolCallContent) or call.tool_name not in how.live:
        raise AgentError(
            f"Entry {entry.seq} would let a call with effects be made, which a fork does only if it is told to. "
            f"Leave --set out: fork at entry {entry.seq - 1} and {said} the call there, or name its tool with --live."
        )


def _together(entries: Sequence[Entry], at: int) -> int:
    """Return the seq of the last entry that must stay together with entry `at`.

    For example, a fork cannot begin between the `begin` entry of a turn and the message that opened the turn, or
    between what the child run of a step spent and the `end` of the step.
    """
    if 0 < at < len(entries) and (entries[at - 1].kind, entries[at].kind) == (Kind.Budget, Kind.End):
        span = entries[at].span
        return at + (span == entries[at - 1].span and not begins_turn(entries[span - 1]))
    if 0 < at < len(entries) and entries[at - 1].kind == Kind.Check and at in entries[at].causes:
        return at + (entries[at].kind in BROUGHT)
    if 0 < at < len(entries) and begins_turn(entries[at - 1]) and opens(entries, entries[at]):
        return at + 1
    return _end_of_reply(entries, at)


def _end_of_reply(entries: Sequence[Entry], at: int) -> int:
    """Return the seq of the last entry of the model reply that contains entry `at`; `at` if no reply contains it."""
    while 0 < at < len(entries) and entries[at].kind in REPLY and entries[at - 1].kind in (*REPLY, Kind.ChatCompletion):
        at += 1
    return at


def _set(content: dict[str, Any], change: Change) -> None:
    """Replace one value in the content of an entry, in place.

    Raises AgentError if the path does not lead to a value.
    """
    steps = re.findall(r"[^.\[\]]+", change.path)
    known = decode_content(json.dumps(content), {}).__struct_fields__
    if not steps or steps[0] not in known or steps[0] == "extra":
        near = nearest(steps[0] if steps else "", known)
        raise AgentError(f"Entry {change.seq} has no {change.path!r}.{near} It has: {', '.join(known)}.")
    try:
        content[steps[0]] = _replaced(content.get(steps[0]), steps[1:], change.value)
    except LookupError as wrong:
        raise AgentError(f"Entry {change.seq} cannot be changed at {change.path!r}: {wrong}.") from wrong


def _replaced(value: Any, steps: list[str], new: Any) -> Any:
    """Return a copy of a value with the member at the path `steps` replaced.

    Raises LookupError if there is no such member.
    """
    if not steps:
        return wrapped(new)
    if isinstance(value, dict) and value.keys() == {"$dict"} and isinstance(value["$dict"], dict):
        return {"$dict": _replaced(value["$dict"], steps, new)}
    if isinstance(value, str):  # JSON inside a string, which many tools return
        return changed(value, steps, new)
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict) and (not rest or step in value):
        return value | {step: _replaced(value.get(step), rest, new)}
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        place = int(step)
        return [*value[:place], _replaced(value[place], rest, new), *value[place + 1 :]]
    raise nothing(value, step)


def _write(journal: Journal, own: Sequence[Entry], base: str) -> None:
    """Write the changed entry, and the entries after it in the same model reply, to the fork.

    If one of these entries is a cause of another, that cause gets its new seq.

    Args:
        own: these entries, with their seqs in the base.
        base: id of the base.
    """
    seqs: dict[Cause, int] = {}
    for entry in own:
        causes = (*(seqs.get(cause, cause) for cause in entry.causes), (base, entry.seq))
        content: Content = entry.content
        notes = {**(entry.annotations or {}), FROM: entry.id}
        seqs[entry.seq] = journal.write(content, entry.span, causes, notes).seq
